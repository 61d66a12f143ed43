//! `normalize`: subtracts a mean and divides by a standard deviation.

use std::sync::Arc;

use datafusion::common::{Result, plan_err};

use super::arguments;
use crate::args::CallArgs;
use crate::draw::Draws;
use crate::facts::{Algebra, Purity, Scale};
use crate::image::call::ImageCall;
use crate::image::definition;
use crate::image::kernel::convert;
use crate::image::op::{Buffers, Finish, ImageFunction, ImageOp};
use crate::image::scratch::Scratch;
use crate::image::values::Real;
use crate::info::{FunctionInfo, TENSORS, arg, facts};
use crate::tensor::{Dtype, TensorType};

pub(super) static FUNCTION: ImageFunction = ImageFunction {
    info: FunctionInfo {
        name: "normalize",
        category: TENSORS,
        signature: "normalize(image, mean, std) or normalize(image, 'imagenet')",
        summary: "Subtracts a mean and divides by a standard deviation, per channel.",
        arguments: &[
            arg(
                "image",
                "A decoded image, [H, W, C] or [C, H, W]; u8 is first divided by 255.",
            ),
            arg(
                "mean",
                "A number, or one per channel, on the scale 0 to 1. 'imagenet' gives both.",
            ),
            arg("std", "A number, or one per channel, not 0."),
        ],
        returns: "A float image of the same size, f32 unless the image is f16.",
        example: "SELECT normalize(decode_image(image), [0.5, 0.5, 0.5], [0.25, 0.25, 0.25]) FROM photos",
        counterpart: "torchvision v2.ToDtype(torch.float32, scale=True) then v2.Normalize(mean, std): equal \
            in single precision.",
        facts: facts(Purity::Pure, Algebra::Pointwise, false)
            .affine()
            .scaled(Scale::Leaves),
    },
    parse,
};

/// Means and standard deviations of ImageNet's training set, as torchvision's models expect them.
const IMAGENET: ([f64; 3], [f64; 3]) = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);

fn parse(args: &CallArgs, _: Option<TensorType>) -> Result<Arc<dyn ImageOp>> {
    let usage = "normalize(image, mean, std) or normalize(image, 'imagenet')";
    args.expect_count(2, 3, usage)?;
    if args.is_text(1) {
        args.expect_count(2, 2, "normalize(image, 'imagenet')")?;
        args.choice(1, "statistics", &[("imagenet", ())], ())?;
        let (mean, std) = IMAGENET;
        return Ok(Arc::new(Normalize {
            mean: arguments::reals(mean.to_vec()),
            std: arguments::reals(std.to_vec()),
        }));
    }
    args.expect_count(3, 3, usage)?;
    let mean = args.reals(1, "mean")?.unwrap_or_else(|| vec![0.0]);
    let std = args.reals(2, "std")?.unwrap_or_else(|| vec![1.0]);
    if std.iter().any(|&s| s as f32 == 0.0) {
        return plan_err!("normalize: std must not be 0");
    }
    Ok(Arc::new(Normalize {
        mean: arguments::reals(mean),
        std: arguments::reals(std),
    }))
}

#[derive(Debug)]
pub(super) struct Normalize {
    pub(super) mean: Vec<Real>,
    pub(super) std: Vec<Real>,
}

impl ImageOp for Normalize {
    fn function(&self) -> &'static ImageFunction {
        &FUNCTION
    }

    fn definition(&self) -> String {
        definition::fields(
            "Normalize",
            &[
                ("mean", definition::reals(&self.mean)),
                ("std", definition::reals(&self.std)),
            ],
        )
    }

    fn apply(&self, scratch: &mut Scratch, _: &mut Draws) -> Result<(), String> {
        convert::normalize(&mut scratch.front, &self.mean, &self.std);
        Ok(())
    }

    fn output(&self, input: TensorType) -> Result<TensorType> {
        arguments::per_channel(&FUNCTION, "mean", &self.mean, input)?;
        arguments::per_channel(&FUNCTION, "std", &self.std, input)?;
        let dtype = match input.dtype {
            Dtype::U8 => Dtype::F32,
            float => float,
        };
        Ok(TensorType { dtype, ..input })
    }

    fn takes_planes(&self) -> bool {
        true
    }

    fn call(&self) -> ImageCall {
        let plain = |values: &[Real]| values.iter().map(|v| v.0).collect();
        ImageCall::Normalize(plain(&self.mean), plain(&self.std))
    }

    fn buffers(&self) -> Buffers {
        Buffers::InPlace
    }

    fn finish(&self) -> Option<Finish> {
        Some(Finish::Table)
    }
}
