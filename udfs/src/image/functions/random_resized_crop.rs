//! `random_resized_crop`: cuts out a rectangle of random area, aspect ratio and position, and
//! resizes it.

use std::sync::Arc;

use datafusion::common::Result;

use super::arguments;
use super::arguments::{FILTER, HEIGHT, WIDTH};
use crate::args::CallArgs;
use crate::draw::Draws;
use crate::facts::{Algebra, FunctionFacts, Purity};
use crate::image::call::Rectangle;
use crate::image::definition;
use crate::image::kernel::geometry::Region;
use crate::image::op::{Buffers, ImageFunction, ImageOp};
use crate::image::scratch::Scratch;
use crate::image::values::{Interpolation, Range, Real};
use crate::info::{FunctionInfo, GEOMETRY, IMAGE, arg, facts};
use crate::tensor::TensorType;

pub(super) static FUNCTION: ImageFunction = ImageFunction {
    info: FunctionInfo {
        name: "random_resized_crop",
        category: GEOMETRY,
        signature: "random_resized_crop(image, height, width [, scale_min, scale_max \
            [, ratio_min, ratio_max]] [, filter])",
        summary: "Cuts out a rectangle of random area, aspect ratio and place, and resizes it.",
        arguments: &[
            IMAGE,
            HEIGHT,
            WIDTH,
            arg(
                "scale_min",
                "Least part of the image's area; default 0.08. [min, max] is also accepted.",
            ),
            arg("scale_max", "Greatest part of the image's area; default 1."),
            arg(
                "ratio_min",
                "Least width / height; default 3/4. [min, max] is also accepted.",
            ),
            arg("ratio_max", "Greatest width / height; default 4/3."),
            FILTER,
        ],
        returns: "An image of that size, same element type.",
        example: "SELECT random_resized_crop(decode_image(image), 224, 224) FROM photos",
        counterpart: "torchvision v2.RandomResizedCrop((h, w), scale, ratio, antialias=True): given the \
            rectangle, as resize.",
        facts: facts(Purity::Random, Algebra::Spatial, false).averaging(),
    },
    parse,
};

fn parse(args: &CallArgs, _: Option<TensorType>) -> Result<Arc<dyn ImageOp>> {
    let usage = "random_resized_crop(image, height, width [, scale_min, scale_max [, ratio_min, \
                 ratio_max]] [, filter])";
    args.expect_count(3, 8, usage)?;
    let (scale, ratio, next) =
        arguments::scale_and_ratio(args, 3, (0.08, 1.0), (3.0 / 4.0, 4.0 / 3.0))?;
    let filter = arguments::filter(args, next)?;
    if next + 1 < args.len() {
        args.expect_count(3, next + 1, usage)?;
    }
    Ok(Arc::new(RandomResizedCrop {
        size: arguments::size(args, 1)?,
        scale,
        ratio,
        filter,
    }))
}

#[derive(Debug)]
pub(super) struct RandomResizedCrop {
    pub(super) size: (usize, usize),
    pub(super) scale: Range,
    pub(super) ratio: Range,
    pub(super) filter: Interpolation,
}

impl RandomResizedCrop {
    /// Draws a rectangle of random area and aspect ratio at a uniformly random position. After ten
    /// failed attempts, returns the largest central rectangle whose aspect ratio is allowed
    /// (torchvision `RandomResizedCrop`).
    fn region(&self, (height, width): (usize, usize), draws: &mut Draws) -> Region {
        let (h, w) = (height as f64, width as f64);
        let ratio = self.ratio;
        let (low, high) = (Real(libm::log(ratio.0.0)), Real(libm::log(ratio.1.0)));
        for _ in 0..arguments::TRIES {
            let area = h * w * arguments::uniform(draws, self.scale);
            let aspect = libm::exp(arguments::uniform(draws, (low, high)));
            let box_width = libm::rint(libm::sqrt(area * aspect)) as usize;
            let box_height = libm::rint(libm::sqrt(area / aspect)) as usize;
            if (1..=width).contains(&box_width) && (1..=height).contains(&box_height) {
                let top = draws.up_to(height - box_height);
                let left = draws.up_to(width - box_width);
                return Region {
                    top,
                    left,
                    height: box_height,
                    width: box_width,
                };
            }
        }
        let aspect = w / h;
        let (box_height, box_width) = if aspect < ratio.0.0 {
            ((libm::rint(w / ratio.0.0) as usize).clamp(1, height), width)
        } else if aspect > ratio.1.0 {
            (height, (libm::rint(h * ratio.1.0) as usize).clamp(1, width))
        } else {
            (height, width)
        };
        Region {
            top: (height - box_height) / 2,
            left: (width - box_width) / 2,
            height: box_height,
            width: box_width,
        }
    }
}

impl ImageOp for RandomResizedCrop {
    fn function(&self) -> &'static ImageFunction {
        &FUNCTION
    }

    fn definition(&self) -> String {
        definition::fields(
            "RandomResizedCrop",
            &[
                ("size", definition::pair(&self.size)),
                ("scale", definition::range(&self.scale)),
                ("ratio", definition::range(&self.ratio)),
                ("filter", definition::filter(self.filter)),
            ],
        )
    }

    fn acts_by_channel(&self) -> bool {
        true
    }

    fn apply(&self, scratch: &mut Scratch, draws: &mut Draws) -> Result<(), String> {
        let region = self.region(scratch.image_size(), draws);
        scratch.resize(region, self.size, self.filter)
    }

    fn reads(&self, size: (usize, usize), draws: &mut Draws) -> Option<Rectangle> {
        Some(self.region(size, draws).into())
    }

    fn shown(&self) -> String {
        arguments::shown_size(self.size)
    }

    fn output(&self, input: TensorType) -> Result<TensorType> {
        Ok(input.of_shape(Some(self.size)))
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
    use crate::image::testing::{SIZE, agree, columns, draws, interval};

    #[test]
    fn rectangles_are_drawn_as_torchvision_draws_them() {
        let crop = RandomResizedCrop {
            size: (8, 8),
            scale: interval(0.08, 1.0),
            ratio: interval(3.0 / 4.0, 4.0 / 3.0),
            filter: Interpolation::Bilinear,
        };
        let regions = draws().map(|mut draws| crop.region(SIZE, &mut draws));
        agree("random_resized_crop", columns(regions));
    }
}
