//! `hflip`, `vflip`, `random_hflip` and `random_vflip`: mirror an image.

use std::sync::Arc;

use datafusion::common::Result;

use super::arguments;
use crate::args::CallArgs;
use crate::draw::Draws;
use crate::facts::{Algebra, Purity};
use crate::image::call::{Axis, ImageCall};
use crate::image::definition;
use crate::image::kernel::geometry::{flip_horizontal, flip_vertical};
use crate::image::op::{Buffers, Finish, ImageFunction, ImageOp};
use crate::image::scratch::Scratch;
use crate::image::values::Real;
use crate::info::{FunctionInfo, GEOMETRY, IMAGE, arg, facts};

/// Mirrors left and right.
pub(super) static HFLIP: ImageFunction = ImageFunction {
    info: FunctionInfo {
        name: "hflip",
        category: GEOMETRY,
        signature: "hflip(image)",
        summary: "Mirrors left and right.",
        arguments: &[IMAGE],
        returns: "The mirrored image.",
        example: "SELECT hflip(decode_image(image)) FROM photos",
        counterpart: "torchvision v2.functional.horizontal_flip: equal.",
        facts: facts(Purity::Pure, Algebra::Select, false).keeping_shape(),
    },
    parse: |args, _| always(args, Axis::Horizontal),
};

/// Mirrors top and bottom.
pub(super) static VFLIP: ImageFunction = ImageFunction {
    info: FunctionInfo {
        name: "vflip",
        category: GEOMETRY,
        signature: "vflip(image)",
        summary: "Mirrors top and bottom.",
        arguments: &[IMAGE],
        returns: "The mirrored image.",
        example: "SELECT vflip(decode_image(image)) FROM photos",
        counterpart: "torchvision v2.functional.vertical_flip: equal.",
        facts: facts(Purity::Pure, Algebra::Select, false).keeping_shape(),
    },
    parse: |args, _| always(args, Axis::Vertical),
};

/// Mirrors left and right with a probability.
pub(super) static RANDOM_HFLIP: ImageFunction = ImageFunction {
    info: FunctionInfo {
        name: "random_hflip",
        category: GEOMETRY,
        signature: "random_hflip(image [, p])",
        summary: "Mirrors left and right with a probability.",
        arguments: &[IMAGE, arg("p", "Probability, 0 to 1; default 0.5.")],
        returns: "The image, mirrored or not.",
        example: "SELECT random_hflip(decode_image(image), 0.5) FROM photos",
        counterpart: "torchvision v2.RandomHorizontalFlip(p): equal given the choice.",
        facts: facts(Purity::Random, Algebra::Select, false).keeping_shape(),
    },
    parse: |args, _| sometimes(args, Axis::Horizontal),
};

/// Mirrors top and bottom with a probability.
pub(super) static RANDOM_VFLIP: ImageFunction = ImageFunction {
    info: FunctionInfo {
        name: "random_vflip",
        category: GEOMETRY,
        signature: "random_vflip(image [, p])",
        summary: "Mirrors top and bottom with a probability.",
        arguments: &[IMAGE, arg("p", "Probability, 0 to 1; default 0.5.")],
        returns: "The image, mirrored or not.",
        example: "SELECT random_vflip(decode_image(image)) FROM photos",
        counterpart: "torchvision v2.RandomVerticalFlip(p): equal given the choice.",
        facts: facts(Purity::Random, Algebra::Select, false).keeping_shape(),
    },
    parse: |args, _| sometimes(args, Axis::Vertical),
};

fn always(args: &CallArgs, axis: Axis) -> Result<Arc<dyn ImageOp>> {
    args.expect_count(1, 1, &format!("{}(image)", args.function()))?;
    Ok(Arc::new(Flip { axis, p: None }))
}

fn sometimes(args: &CallArgs, axis: Axis) -> Result<Arc<dyn ImageOp>> {
    args.expect_count(1, 2, &format!("{}(image [, p])", args.function()))?;
    let p = Some(arguments::probability(args, 1, 0.5)?);
    Ok(Arc::new(Flip { axis, p }))
}

#[derive(Debug)]
pub(super) struct Flip {
    pub(super) axis: Axis,
    /// Probability of mirroring; `None` for the functions that always mirror.
    pub(super) p: Option<Real>,
}

impl Flip {
    /// Returns the probability of mirroring; 1 for the functions that always mirror.
    fn probability(&self) -> f64 {
        self.p.map_or(1.0, |p| p.0)
    }
}

impl ImageOp for Flip {
    fn function(&self) -> &'static ImageFunction {
        match (self.axis, self.p) {
            (Axis::Horizontal, None) => &HFLIP,
            (Axis::Vertical, None) => &VFLIP,
            (Axis::Horizontal, Some(_)) => &RANDOM_HFLIP,
            (Axis::Vertical, Some(_)) => &RANDOM_VFLIP,
        }
    }

    fn definition(&self) -> String {
        let axis = match self.axis {
            Axis::Horizontal => "Horizontal",
            Axis::Vertical => "Vertical",
        };
        match &self.p {
            None => format!("Flip{axis}"),
            Some(p) => {
                let fields = [("p", definition::real(p))];
                definition::fields(&format!("RandomFlip{axis}"), &fields)
            }
        }
    }

    fn acts_by_channel(&self) -> bool {
        true
    }

    fn apply(&self, scratch: &mut Scratch, draws: &mut Draws) -> Result<(), String> {
        if draws.chance(self.probability()) {
            match self.axis {
                Axis::Horizontal => flip_horizontal(&mut scratch.front),
                Axis::Vertical => flip_vertical(&mut scratch.front),
            }
        }
        Ok(())
    }

    fn shown(&self) -> String {
        self.p.map(|p| p.0.to_string()).unwrap_or_default()
    }

    fn call(&self) -> ImageCall {
        ImageCall::Mirror(self.axis)
    }

    fn buffers(&self) -> Buffers {
        Buffers::InPlace
    }

    fn finish(&self) -> Option<Finish> {
        (self.axis == Axis::Horizontal).then(|| Finish::Mirror(self.probability()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::testing::occurs;

    #[test]
    fn choices_have_their_probability() {
        for p in [0.0, 0.1, 0.5, 1.0] {
            for axis in [Axis::Horizontal, Axis::Vertical] {
                let flip = Flip {
                    axis,
                    p: Some(Real(p)),
                };
                occurs(p, |draws| {
                    let mut scratch = Scratch::default();
                    scratch.front.shape.height = 2;
                    scratch.front.shape.width = 2;
                    scratch.front.u8s = (0..12).collect();
                    flip.apply(&mut scratch, draws).unwrap();
                    scratch.front.u8s[0] > 0
                });
            }
        }
    }
}
