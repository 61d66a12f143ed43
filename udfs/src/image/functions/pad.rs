//! `pad`: adds a border to an image.

use std::sync::Arc;

use datafusion::common::Result;

use super::arguments;
use crate::args::CallArgs;
use crate::draw::Draws;
use crate::facts::{Algebra, Purity, Scale};
use crate::image::definition;
use crate::image::kernel::geometry::{self, PadMode};
use crate::image::op::{ImageFunction, ImageOp};
use crate::image::pixels::{PixelShape, within_limit};
use crate::image::scratch::Scratch;
use crate::image::values::{Real, Sides};
use crate::info::{FunctionInfo, GEOMETRY, IMAGE, arg, facts};
use crate::tensor::TensorType;

pub(super) static FUNCTION: ImageFunction = ImageFunction {
    info: FunctionInfo {
        name: "pad",
        category: GEOMETRY,
        signature: "pad(image, padding [, fill [, mode]])",
        summary: "Adds a border.",
        arguments: &[
            IMAGE,
            arg(
                "padding",
                "Pixels: one number, [left and right, top and bottom], or [left, top, right, bottom].",
            ),
            arg(
                "fill",
                "Value of the border in mode 'constant', a number or one per channel; default 0.",
            ),
            arg(
                "mode",
                "'constant' (default), 'edge', 'reflect' or 'symmetric'.",
            ),
        ],
        returns: "The larger image, same element type.",
        example: "SELECT pad(decode_image(image), 4, 0, 'reflect') FROM photos",
        counterpart: "torchvision v2.Pad(padding, fill, padding_mode): equal.",
        facts: facts(Purity::Pure, Algebra::Spatial, true).scaled(Scale::Constants),
    },
    parse,
};

fn parse(args: &CallArgs, _: Option<TensorType>) -> Result<Arc<dyn ImageOp>> {
    args.expect_count(2, 4, "pad(image, padding [, fill [, mode]])")?;
    let modes = [
        ("constant", PadMode::Constant),
        ("edge", PadMode::Edge),
        ("reflect", PadMode::Reflect),
        ("symmetric", PadMode::Symmetric),
    ];
    Ok(Arc::new(PadBorder {
        sides: arguments::sides(args, 1)?,
        fill: arguments::reals(args.reals(2, "fill")?.unwrap_or_else(|| vec![0.0])),
        mode: args.choice(3, "mode", &modes, PadMode::Constant)?,
    }))
}

#[derive(Debug)]
pub(super) struct PadBorder {
    pub(super) sides: Sides,
    pub(super) fill: Vec<Real>,
    pub(super) mode: PadMode,
}

impl PadBorder {
    /// Returns the height and width of an image including the border.
    const fn padded(&self, (height, width): (usize, usize)) -> (usize, usize) {
        let [left, top, right, bottom] = self.sides;
        (height + top + bottom, width + left + right)
    }
}

impl ImageOp for PadBorder {
    fn function(&self) -> &'static ImageFunction {
        &FUNCTION
    }

    fn definition(&self) -> String {
        let mode = match self.mode {
            PadMode::Constant => "Constant",
            PadMode::Edge => "Edge",
            PadMode::Reflect => "Reflect",
            PadMode::Symmetric => "Symmetric",
        };
        definition::fields(
            "Pad",
            &[
                ("sides", definition::brackets(&self.sides)),
                ("fill", definition::reals(&self.fill)),
                ("mode", mode.to_owned()),
            ],
        )
    }

    fn apply(&self, scratch: &mut Scratch, _: &mut Draws) -> Result<(), String> {
        let PixelShape { height, width, .. } = scratch.front.shape;
        within_limit(self.padded((height, width)))?;
        let target = &mut scratch.back;
        geometry::pad(&scratch.front, self.sides, &self.fill, self.mode, target)?;
        scratch.swap();
        Ok(())
    }

    fn shown(&self) -> String {
        let [left, top, right, bottom] = self.sides;
        format!("{left},{top},{right},{bottom}")
    }

    fn output(&self, input: TensorType) -> Result<TensorType> {
        arguments::per_channel(&FUNCTION, "fill", &self.fill, input)?;
        Ok(input.of_shape(input.shape.map(|size| self.padded(size))))
    }
}
