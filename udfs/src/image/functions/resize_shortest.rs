//! `resize_shortest`: resizes an image so that its shorter side has a given size.

use std::sync::Arc;

use datafusion::common::Result;

use super::arguments;
use super::arguments::FILTER;
use crate::args::CallArgs;
use crate::draw::Draws;
use crate::facts::{Algebra, FunctionFacts, Purity};
use crate::image::call::ImageCall;
use crate::image::definition;
use crate::image::kernel::geometry::Region;
use crate::image::op::{Buffers, ImageFunction, ImageOp};
use crate::image::pixels::within_limit;
use crate::image::scratch::Scratch;
use crate::image::values::Interpolation;
use crate::info::{FunctionInfo, GEOMETRY, IMAGE, arg, facts};
use crate::tensor::TensorType;

pub(super) static FUNCTION: ImageFunction = ImageFunction {
    info: FunctionInfo {
        name: "resize_shortest",
        category: GEOMETRY,
        signature: "resize_shortest(image, size [, filter])",
        summary: "Resizes an image so that its shorter side has a size, keeping its proportions.",
        arguments: &[
            IMAGE,
            arg("size", "Pixels of the shorter side, 1 to 65535."),
            FILTER,
        ],
        returns: "An image of that size, same element type; the longer side is rounded down.",
        example: "SELECT resize_shortest(decode_image(image), 256) FROM photos",
        counterpart: "torchvision v2.Resize(size, antialias=True): as resize.",
        facts: facts(Purity::Pure, Algebra::Spatial, true).averaging(),
    },
    parse,
};

fn parse(args: &CallArgs, _: Option<TensorType>) -> Result<Arc<dyn ImageOp>> {
    args.expect_count(2, 3, "resize_shortest(image, size [, filter])")?;
    Ok(Arc::new(ResizeShortest {
        size: args.side(1, "size")?,
        filter: arguments::filter(args, 2)?,
    }))
}

#[derive(Debug)]
pub(super) struct ResizeShortest {
    pub(super) size: usize,
    pub(super) filter: Interpolation,
}

/// Returns height and width of an image whose shorter side becomes `size` (as in torchvision, the
/// longer side is rounded down).
const fn shortest((height, width): (usize, usize), size: usize) -> (usize, usize) {
    if height == 0 || width == 0 {
        return (size, size);
    }
    if width <= height {
        (size * height / width, size)
    } else {
        (size, size * width / height)
    }
}

impl ImageOp for ResizeShortest {
    fn function(&self) -> &'static ImageFunction {
        &FUNCTION
    }

    fn definition(&self) -> String {
        definition::fields(
            "ResizeShortest",
            &[
                ("size", self.size.to_string()),
                ("filter", definition::filter(self.filter)),
            ],
        )
    }

    fn acts_by_channel(&self) -> bool {
        true
    }

    fn apply(&self, scratch: &mut Scratch, _: &mut Draws) -> Result<(), String> {
        let shape = scratch.front.shape;
        let size = shortest((shape.height, shape.width), self.size);
        within_limit(size)?;
        scratch.resize(Region::whole(&shape), size, self.filter)
    }

    fn shown(&self) -> String {
        self.size.to_string()
    }

    fn output(&self, input: TensorType) -> Result<TensorType> {
        Ok(input.of_shape(input.shape.map(|shape| shortest(shape, self.size))))
    }

    fn call(&self) -> ImageCall {
        ImageCall::ResizeShortest(self.size, self.filter)
    }

    fn facts(&self) -> FunctionFacts {
        arguments::facts_of_resize(FUNCTION.info.facts, self.filter)
    }

    fn buffers(&self) -> Buffers {
        Buffers::Resize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::pixels::PixelShape;

    #[test]
    fn a_thin_image_may_become_too_large() {
        let shortest = ResizeShortest {
            size: 65_535,
            filter: Interpolation::Bilinear,
        };
        let mut scratch = Scratch::default();
        scratch.front.shape = PixelShape {
            height: 1,
            width: 60_000,
            ..scratch.front.shape
        };
        let error = shortest.apply(&mut scratch, &mut Draws::new(0, 0, 0, 0));
        assert!(error.is_err_and(|e| e.contains("above")));
    }
}
