//! `resize`: resizes an image to a height and width.

use std::sync::Arc;

use datafusion::common::Result;

use super::arguments;
use super::arguments::{FILTER, HEIGHT, WIDTH};
use crate::args::CallArgs;
use crate::draw::Draws;
use crate::facts::{Algebra, FunctionFacts, Purity};
use crate::image::call::ImageCall;
use crate::image::definition;
use crate::image::kernel::geometry::Region;
use crate::image::op::{Buffers, ImageFunction, ImageOp};
use crate::image::scratch::Scratch;
use crate::image::values::Interpolation;
use crate::info::{FunctionInfo, GEOMETRY, IMAGE, facts};
use crate::tensor::TensorType;

pub(super) static FUNCTION: ImageFunction = ImageFunction {
    info: FunctionInfo {
        name: "resize",
        category: GEOMETRY,
        signature: "resize(image, height, width [, filter])",
        summary: "Resizes an image to a height and width.",
        arguments: &[IMAGE, HEIGHT, WIDTH, FILTER],
        returns: "An image of that size, same element type.",
        example: "SELECT resize(decode_image(image), 224, 224) FROM photos",
        counterpart: "torchvision v2.Resize((h, w), antialias=True): within 1 of 255 on bytes, 1e-5 on \
            floats. 'lanczos' is Pillow's, which torchvision offers on PIL images only.",
        facts: facts(Purity::Pure, Algebra::Spatial, false).averaging(),
    },
    parse,
};

fn parse(args: &CallArgs, _: Option<TensorType>) -> Result<Arc<dyn ImageOp>> {
    args.expect_count(3, 4, "resize(image, height, width [, filter])")?;
    Ok(Arc::new(Resize {
        size: arguments::size(args, 1)?,
        filter: arguments::filter(args, 3)?,
    }))
}

#[derive(Debug)]
pub(super) struct Resize {
    pub(super) size: (usize, usize),
    pub(super) filter: Interpolation,
}

impl ImageOp for Resize {
    fn function(&self) -> &'static ImageFunction {
        &FUNCTION
    }

    fn definition(&self) -> String {
        definition::fields(
            "Resize",
            &[
                ("size", definition::pair(&self.size)),
                ("filter", definition::filter(self.filter)),
            ],
        )
    }

    fn acts_by_channel(&self) -> bool {
        true
    }

    fn apply(&self, scratch: &mut Scratch, _: &mut Draws) -> Result<(), String> {
        let all = Region::whole(&scratch.front.shape);
        scratch.resize(all, self.size, self.filter)
    }

    fn shown(&self) -> String {
        arguments::shown_size(self.size)
    }

    fn output(&self, input: TensorType) -> Result<TensorType> {
        Ok(input.of_shape(Some(self.size)))
    }

    fn call(&self) -> ImageCall {
        ImageCall::Resize(self.size.0, self.size.1, self.filter)
    }

    fn facts(&self) -> FunctionFacts {
        arguments::facts_of_resize(FUNCTION.info.facts, self.filter)
    }

    fn buffers(&self) -> Buffers {
        Buffers::Resize
    }
}
