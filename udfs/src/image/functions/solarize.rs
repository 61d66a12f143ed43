//! `solarize`: inverts the bright samples of an image.

use std::sync::Arc;

use datafusion::common::Result;

use crate::args::CallArgs;
use crate::draw::Draws;
use crate::facts::{Algebra, Purity, Scale};
use crate::image::definition;
use crate::image::kernel::tone;
use crate::image::op::{Buffers, ImageFunction, ImageOp};
use crate::image::scratch::Scratch;
use crate::image::values::Real;
use crate::info::{COLOR, FunctionInfo, IMAGE, arg, facts};
use crate::tensor::TensorType;

pub(super) static FUNCTION: ImageFunction = ImageFunction {
    info: FunctionInfo {
        name: "solarize",
        category: COLOR,
        signature: "solarize(image, threshold)",
        summary: "Inverts samples at or above a threshold.",
        arguments: &[
            IMAGE,
            arg("threshold", "0 to 255 for u8 images, 0 to 1 for floats."),
        ],
        returns: "An image of the same type.",
        example: "SELECT solarize(decode_image(image), 128) FROM photos",
        counterpart: "torchvision v2.functional.solarize: equal.",
        facts: facts(Purity::Pure, Algebra::Pointwise, false).scaled(Scale::Constants),
    },
    parse,
};

fn parse(args: &CallArgs, input: Option<TensorType>) -> Result<Arc<dyn ImageOp>> {
    args.expect_count(2, 2, "solarize(image, threshold)")?;
    let high = if input.is_some_and(|t| t.dtype.is_float()) {
        1.0
    } else {
        255.0
    };
    let threshold = Real(args.real_in(1, "threshold", (0.0, high), 0.0)?);
    Ok(Arc::new(Solarize { threshold }))
}

#[derive(Debug)]
pub(super) struct Solarize {
    pub(super) threshold: Real,
}

impl ImageOp for Solarize {
    fn function(&self) -> &'static ImageFunction {
        &FUNCTION
    }

    fn definition(&self) -> String {
        let fields = [("threshold", definition::real(&self.threshold))];
        definition::fields("Solarize", &fields)
    }

    fn acts_by_channel(&self) -> bool {
        true
    }

    fn apply(&self, scratch: &mut Scratch, _: &mut Draws) -> Result<(), String> {
        tone::solarize(&mut scratch.front, self.threshold.0 as f32);
        Ok(())
    }

    fn shown(&self) -> String {
        self.threshold.0.to_string()
    }

    fn takes_planes(&self) -> bool {
        true
    }

    fn buffers(&self) -> Buffers {
        Buffers::InPlace
    }
}
