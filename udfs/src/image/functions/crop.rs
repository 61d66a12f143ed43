//! `crop`: cuts out a rectangle of an image, with zeros outside the image.

use std::sync::Arc;

use datafusion::common::Result;

use super::arguments;
use super::arguments::{HEIGHT, WIDTH};
use crate::args::CallArgs;
use crate::args::MAX_SIDE;
use crate::draw::Draws;
use crate::facts::{Algebra, Purity};
use crate::image::call::{ImageCall, Rectangle};
use crate::image::definition;
use crate::image::op::{ImageFunction, ImageOp};
use crate::image::scratch::Scratch;
use crate::info::{FunctionInfo, GEOMETRY, IMAGE, arg, facts};
use crate::tensor::TensorType;

pub(super) static FUNCTION: ImageFunction = ImageFunction {
    info: FunctionInfo {
        name: "crop",
        category: GEOMETRY,
        signature: "crop(image, top, left, height, width)",
        summary: "Cuts out a rectangle; places outside the image are zeros.",
        arguments: &[
            IMAGE,
            arg("top", "First row, may be negative."),
            arg("left", "First column, may be negative."),
            HEIGHT,
            WIDTH,
        ],
        returns: "An image of that size, same element type.",
        example: "SELECT crop(decode_image(image), 0, 0, 64, 64) FROM photos",
        counterpart: "torchvision v2.functional.crop: equal.",
        facts: facts(Purity::Pure, Algebra::Spatial, false),
    },
    parse,
};

fn parse(args: &CallArgs, _: Option<TensorType>) -> Result<Arc<dyn ImageOp>> {
    args.expect_count(5, 5, "crop(image, top, left, height, width)")?;
    let range = (-(MAX_SIDE as i64), MAX_SIDE as i64);
    let at = (args.whole(1, "top", range)?, args.whole(2, "left", range)?);
    let size = arguments::size(args, 3)?;
    Ok(Arc::new(Crop { at, size }))
}

#[derive(Debug)]
pub(super) struct Crop {
    pub(super) at: (i64, i64),
    pub(super) size: (usize, usize),
}

impl ImageOp for Crop {
    fn function(&self) -> &'static ImageFunction {
        &FUNCTION
    }

    fn definition(&self) -> String {
        definition::fields(
            "Crop",
            &[
                ("at", definition::pair(&self.at)),
                ("size", definition::pair(&self.size)),
            ],
        )
    }

    fn acts_by_channel(&self) -> bool {
        true
    }

    fn apply(&self, scratch: &mut Scratch, _: &mut Draws) -> Result<(), String> {
        scratch.crop(self.at, self.size);
        Ok(())
    }

    fn reads(&self, _: (usize, usize), _: &mut Draws) -> Option<Rectangle> {
        Some(Rectangle::at(self.at, self.size))
    }

    fn shown(&self) -> String {
        arguments::shown_size(self.size)
    }

    fn output(&self, input: TensorType) -> Result<TensorType> {
        Ok(input.of_shape(Some(self.size)))
    }

    fn call(&self) -> ImageCall {
        ImageCall::Crop(Rectangle::at(self.at, self.size))
    }
}
