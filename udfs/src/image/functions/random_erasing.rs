//! `random_erasing`: overwrites a random rectangle of an image.

use std::sync::Arc;

use datafusion::common::{Result, plan_err};

use super::arguments;
use crate::args::CallArgs;
use crate::draw::Draws;
use crate::facts::{Algebra, Purity, Scale};
use crate::image::definition;
use crate::image::kernel::erase::{EraseValue, erase};
use crate::image::kernel::geometry::Region;
use crate::image::op::{Buffers, ImageFunction, ImageOp};
use crate::image::pixels::PixelShape;
use crate::image::scratch::Scratch;
use crate::image::values::{Range, Real};
use crate::info::{FunctionInfo, GEOMETRY, arg, facts};
use crate::tensor::{Dtype, TensorType};

pub(super) static FUNCTION: ImageFunction = ImageFunction {
    info: FunctionInfo {
        name: "random_erasing",
        category: GEOMETRY,
        signature: "random_erasing(image [, p [, scale_min, scale_max [, ratio_min, ratio_max [, value]]]])",
        summary: "Overwrites a random rectangle with a probability.",
        arguments: &[
            arg("image", "A decoded image, [H, W, C] or [C, H, W]."),
            arg("p", "Probability, 0 to 1; default 0.5."),
            arg(
                "scale_min",
                "Least part of the image's area; default 0.02. [min, max] is also accepted.",
            ),
            arg(
                "scale_max",
                "Greatest part of the image's area; default 0.33.",
            ),
            arg(
                "ratio_min",
                "Least height / width; default 0.3. [min, max] is also accepted.",
            ),
            arg("ratio_max", "Greatest height / width; default 3.3."),
            arg(
                "value",
                "A number, one per channel, or 'random' (normal draws, float images only); default 0.",
            ),
        ],
        returns: "The image, a rectangle of it overwritten or not.",
        example: "SELECT random_erasing(normalize(decode_image(image), 'imagenet'), 0.25) FROM photos",
        counterpart: "torchvision v2.RandomErasing(p, scale, ratio, value): equal given the rectangle.",
        facts: facts(Purity::Random, Algebra::Spatial, false)
            .keeping_shape()
            .scaled(Scale::Constants),
    },
    parse,
};

fn parse(args: &CallArgs, _: Option<TensorType>) -> Result<Arc<dyn ImageOp>> {
    let usage = "random_erasing(image [, p [, scale_min, scale_max [, ratio_min, ratio_max \
                 [, value]]]])";
    args.expect_count(1, 7, usage)?;
    let p = arguments::probability(args, 1, 0.5)?;
    let (scale, ratio, next) = arguments::scale_and_ratio(args, 2, (0.02, 0.33), (0.3, 3.3))?;
    if scale.1.0 > 1.0 {
        return plan_err!(
            "random_erasing: scale must be at most 1, found {}",
            scale.1.0
        );
    }
    if next + 1 < args.len() {
        args.expect_count(1, next + 1, usage)?;
    }
    let value = if args.is_text(next) {
        args.choice(next, "value", &[("random", ())], ())?;
        EraseValue::Random
    } else {
        let numbers = args.reals(next, "value")?;
        EraseValue::Constant(arguments::reals(numbers.unwrap_or_else(|| vec![0.0])))
    };
    Ok(Arc::new(RandomErasing {
        p,
        scale,
        ratio,
        value,
    }))
}

#[derive(Debug)]
pub(super) struct RandomErasing {
    pub(super) p: Real,
    pub(super) scale: Range,
    pub(super) ratio: Range,
    pub(super) value: EraseValue,
}

impl RandomErasing {
    /// Draws, with probability `p`, a rectangle of random area and aspect ratio that is smaller
    /// than the image (torchvision `RandomErasing`). `None` if nothing is to be erased.
    fn region(&self, (height, width): (usize, usize), draws: &mut Draws) -> Option<Region> {
        if !draws.chance(self.p.0) {
            return None;
        }
        let area = height as f64 * width as f64;
        let (low, high) = self.ratio;
        let (low, high) = (Real(libm::log(low.0)), Real(libm::log(high.0)));
        for _ in 0..arguments::TRIES {
            let erased = area * arguments::uniform(draws, self.scale);
            let aspect = libm::exp(arguments::uniform(draws, (low, high)));
            let box_height = libm::rint(libm::sqrt(erased * aspect)) as usize;
            let box_width = libm::rint(libm::sqrt(erased / aspect)) as usize;
            if box_height < height && box_width < width {
                let top = draws.up_to(height - box_height);
                let left = draws.up_to(width - box_width);
                return Some(Region {
                    top,
                    left,
                    height: box_height,
                    width: box_width,
                });
            }
        }
        None
    }
}

impl ImageOp for RandomErasing {
    fn function(&self) -> &'static ImageFunction {
        &FUNCTION
    }

    fn definition(&self) -> String {
        let value = match &self.value {
            EraseValue::Constant(values) => format!("Constant({})", definition::reals(values)),
            EraseValue::Random => "Random".to_owned(),
        };
        definition::fields(
            "RandomErasing",
            &[
                ("p", definition::real(&self.p)),
                ("scale", definition::range(&self.scale)),
                ("ratio", definition::range(&self.ratio)),
                ("value", value),
            ],
        )
    }

    fn apply(&self, scratch: &mut Scratch, draws: &mut Draws) -> Result<(), String> {
        let PixelShape { height, width, .. } = scratch.front.shape;
        if let Some(region) = self.region((height, width), draws) {
            erase(&mut scratch.front, region, &self.value, draws);
        }
        Ok(())
    }

    fn shown(&self) -> String {
        self.p.0.to_string()
    }

    fn output(&self, input: TensorType) -> Result<TensorType> {
        match &self.value {
            EraseValue::Random if input.dtype == Dtype::U8 => {
                plan_err!("random_erasing: value 'random' needs a float image, found {input}")
            }
            EraseValue::Random => Ok(input),
            EraseValue::Constant(value) => {
                arguments::per_channel(&FUNCTION, "value", value, input)?;
                Ok(input)
            }
        }
    }

    fn takes_planes(&self) -> bool {
        true
    }

    fn buffers(&self) -> Buffers {
        Buffers::InPlace
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::testing::{SIZE, agree, columns, draws, interval};

    #[test]
    fn rectangles_are_drawn_as_torchvision_draws_them() {
        let erasing = RandomErasing {
            p: Real(1.0),
            scale: interval(0.02, 0.33),
            ratio: interval(0.3, 3.3),
            value: EraseValue::Constant(vec![Real(0.0)]),
        };
        let regions = draws().filter_map(|mut draws| erasing.region(SIZE, &mut draws));
        agree("random_erasing", columns(regions));
    }
}
