//! `posterize`: reduces the number of levels of an image.

use std::sync::Arc;

use datafusion::common::Result;

use crate::args::CallArgs;
use crate::draw::Draws;
use crate::facts::{Algebra, Purity, Scale};
use crate::image::definition;
use crate::image::kernel::tone;
use crate::image::op::{Buffers, ImageFunction, ImageOp};
use crate::image::scratch::Scratch;
use crate::info::{COLOR, FunctionInfo, IMAGE, arg, facts};
use crate::tensor::TensorType;

pub(super) static FUNCTION: ImageFunction = ImageFunction {
    info: FunctionInfo {
        name: "posterize",
        category: COLOR,
        signature: "posterize(image, bits)",
        summary: "Keeps the highest bits of each sample; floats are brought to that many levels.",
        arguments: &[IMAGE, arg("bits", "Bits to keep, 0 to 8.")],
        returns: "An image of the same type.",
        example: "SELECT posterize(decode_image(image), 4) FROM photos",
        counterpart: "torchvision v2.functional.posterize: equal.",
        facts: facts(Purity::Pure, Algebra::Pointwise, false).scaled(Scale::Constants),
    },
    parse,
};

fn parse(args: &CallArgs, _: Option<TensorType>) -> Result<Arc<dyn ImageOp>> {
    args.expect_count(2, 2, "posterize(image, bits)")?;
    let bits = args.whole(1, "bits", (0, 8))? as u32;
    Ok(Arc::new(Posterize { bits }))
}

#[derive(Debug)]
pub(super) struct Posterize {
    pub(super) bits: u32,
}

impl ImageOp for Posterize {
    fn function(&self) -> &'static ImageFunction {
        &FUNCTION
    }

    fn definition(&self) -> String {
        definition::fields("Posterize", &[("bits", self.bits.to_string())])
    }

    fn acts_by_channel(&self) -> bool {
        true
    }

    fn apply(&self, scratch: &mut Scratch, _: &mut Draws) -> Result<(), String> {
        tone::posterize(&mut scratch.front, self.bits);
        Ok(())
    }

    fn shown(&self) -> String {
        self.bits.to_string()
    }

    fn takes_planes(&self) -> bool {
        true
    }

    fn buffers(&self) -> Buffers {
        Buffers::InPlace
    }
}
