//! `to_float`: converts samples to floats.

use std::sync::Arc;

use datafusion::common::Result;

use crate::args::CallArgs;
use crate::draw::Draws;
use crate::facts::{Algebra, Purity, Scale};
use crate::image::call::ImageCall;
use crate::image::definition;
use crate::image::kernel::convert;
use crate::image::op::{Buffers, Finish, ImageFunction, ImageOp};
use crate::image::scratch::Scratch;
use crate::info::{FunctionInfo, TENSORS, arg, facts};
use crate::tensor::{Dtype, TensorType};

pub(super) static FUNCTION: ImageFunction = ImageFunction {
    info: FunctionInfo {
        name: "to_float",
        category: TENSORS,
        signature: "to_float(image [, type])",
        summary: "Makes samples floats; bytes are divided by 255.",
        arguments: &[
            arg("image", "A decoded image, [H, W, C] or [C, H, W]."),
            arg("type", "'f32' (default) or 'f16'."),
        ],
        returns: "A float image of the same size; bytes come to lie in 0 to 1.",
        example: "SELECT to_float(decode_image(image), 'f16') FROM photos",
        counterpart: "torchvision v2.ToDtype(torch.float32, scale=True): equal; 'f16' rounds that.",
        facts: facts(Purity::Pure, Algebra::Pointwise, false)
            .affine()
            .scaled(Scale::Rescales),
    },
    parse,
};

fn parse(args: &CallArgs, _: Option<TensorType>) -> Result<Arc<dyn ImageOp>> {
    args.expect_count(1, 2, "to_float(image [, 'f32' | 'f16'])")?;
    let dtypes = [("f32", Dtype::F32), ("f16", Dtype::F16)];
    let dtype = args.choice(1, "element type", &dtypes, Dtype::F32)?;
    Ok(Arc::new(ToFloat { dtype }))
}

#[derive(Debug)]
pub(super) struct ToFloat {
    pub(super) dtype: Dtype,
}

impl ImageOp for ToFloat {
    fn function(&self) -> &'static ImageFunction {
        &FUNCTION
    }

    fn definition(&self) -> String {
        let dtype = match self.dtype {
            Dtype::U8 => "U8",
            Dtype::F16 => "F16",
            Dtype::F32 => "F32",
        };
        definition::fields("ToFloat", &[("dtype", dtype.to_owned())])
    }

    fn acts_by_channel(&self) -> bool {
        true
    }

    fn apply(&self, scratch: &mut Scratch, _: &mut Draws) -> Result<(), String> {
        convert::to_float(&mut scratch.front, self.dtype);
        Ok(())
    }

    fn shown(&self) -> String {
        self.dtype.to_string()
    }

    fn output(&self, input: TensorType) -> Result<TensorType> {
        Ok(TensorType {
            dtype: self.dtype,
            ..input
        })
    }

    fn takes_planes(&self) -> bool {
        true
    }

    fn call(&self) -> ImageCall {
        ImageCall::ToFloat(self.dtype)
    }

    fn buffers(&self) -> Buffers {
        Buffers::InPlace
    }

    fn finish(&self) -> Option<Finish> {
        Some(Finish::Table)
    }
}
