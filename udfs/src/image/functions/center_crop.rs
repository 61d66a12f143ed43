//! `center_crop`: cuts out the centre of an image.

use std::sync::Arc;

use datafusion::common::Result;

use super::arguments;
use super::arguments::{HEIGHT, WIDTH};
use crate::args::CallArgs;
use crate::draw::Draws;
use crate::facts::{Algebra, Purity};
use crate::image::call::{ImageCall, Rectangle};
use crate::image::definition;
use crate::image::kernel::geometry::centred;
use crate::image::op::{ImageFunction, ImageOp};
use crate::image::scratch::Scratch;
use crate::info::{FunctionInfo, GEOMETRY, IMAGE, facts};
use crate::tensor::TensorType;

pub(super) static FUNCTION: ImageFunction = ImageFunction {
    info: FunctionInfo {
        name: "center_crop",
        category: GEOMETRY,
        signature: "center_crop(image, height, width)",
        summary: "Cuts out the centre of an image; zeros surround an image that is smaller.",
        arguments: &[IMAGE, HEIGHT, WIDTH],
        returns: "An image of that size, same element type.",
        example: "SELECT center_crop(resize_shortest(decode_image(image), 256), 224, 224) FROM photos",
        counterpart: "torchvision v2.CenterCrop((h, w)): equal.",
        facts: facts(Purity::Pure, Algebra::Spatial, false),
    },
    parse,
};

fn parse(args: &CallArgs, _: Option<TensorType>) -> Result<Arc<dyn ImageOp>> {
    args.expect_count(3, 3, "center_crop(image, height, width)")?;
    let size = arguments::size(args, 1)?;
    Ok(Arc::new(CenterCrop { size }))
}

#[derive(Debug)]
pub(super) struct CenterCrop {
    pub(super) size: (usize, usize),
}

impl CenterCrop {
    /// Returns the first row and column of the crop.
    fn place(&self, (height, width): (usize, usize)) -> (i64, i64) {
        (centred(height, self.size.0), centred(width, self.size.1))
    }
}

impl ImageOp for CenterCrop {
    fn function(&self) -> &'static ImageFunction {
        &FUNCTION
    }

    fn definition(&self) -> String {
        definition::fields("CenterCrop", &[("size", definition::pair(&self.size))])
    }

    fn acts_by_channel(&self) -> bool {
        true
    }

    fn apply(&self, scratch: &mut Scratch, _: &mut Draws) -> Result<(), String> {
        scratch.crop(self.place(scratch.image_size()), self.size);
        Ok(())
    }

    fn reads(&self, size: (usize, usize), _: &mut Draws) -> Option<Rectangle> {
        Some(Rectangle::at(self.place(size), self.size))
    }

    fn shown(&self) -> String {
        arguments::shown_size(self.size)
    }

    fn output(&self, input: TensorType) -> Result<TensorType> {
        Ok(input.of_shape(Some(self.size)))
    }

    fn call(&self) -> ImageCall {
        ImageCall::CenterCrop(self.size.0, self.size.1)
    }
}
