//! `random_crop`: cuts out a rectangle at a random position, after padding with zeros.

use std::sync::Arc;

use datafusion::common::Result;

use super::arguments;
use super::arguments::{HEIGHT, WIDTH};
use crate::args::CallArgs;
use crate::draw::Draws;
use crate::facts::{Algebra, FunctionFacts, Purity};
use crate::image::call::Rectangle;
use crate::image::definition;
use crate::image::op::{ImageFunction, ImageOp};
use crate::image::scratch::Scratch;
use crate::image::values::Sides;
use crate::info::{FunctionInfo, GEOMETRY, IMAGE, arg, facts};
use crate::tensor::TensorType;

pub(super) static FUNCTION: ImageFunction = ImageFunction {
    info: FunctionInfo {
        name: "random_crop",
        category: GEOMETRY,
        signature: "random_crop(image, height, width [, padding])",
        summary: "Cuts out a rectangle at a random place, after padding with zeros.",
        arguments: &[
            IMAGE,
            HEIGHT,
            WIDTH,
            arg("padding", "As for pad; default none."),
        ],
        returns: "An image of that size, same element type; an error if the padded image is smaller.",
        example: "SELECT random_crop(decode_image(image), 32, 32, 4) FROM photos",
        counterpart: "torchvision v2.RandomCrop((h, w), padding): equal given the place.",
        facts: facts(Purity::Random, Algebra::Spatial, true),
    },
    parse,
};

fn parse(args: &CallArgs, _: Option<TensorType>) -> Result<Arc<dyn ImageOp>> {
    args.expect_count(3, 4, "random_crop(image, height, width [, padding])")?;
    let sides = if args.len() > 3 {
        arguments::sides(args, 3)?
    } else {
        [0; 4]
    };
    let size = arguments::size(args, 1)?;
    Ok(Arc::new(RandomCrop { size, sides }))
}

#[derive(Debug)]
pub(super) struct RandomCrop {
    pub(super) size: (usize, usize),
    pub(super) sides: Sides,
}

impl RandomCrop {
    /// Draws the first row and column of the rectangle, which are negative if they lie in the
    /// padding.
    fn place(
        &self,
        (height, width): (usize, usize),
        draws: &mut Draws,
    ) -> Result<(i64, i64), String> {
        let [left, top, right, bottom] = self.sides;
        let (padded_height, padded_width) = (height + top + bottom, width + left + right);
        let Some((down, across)) = padded_height
            .checked_sub(self.size.0)
            .zip(padded_width.checked_sub(self.size.1))
        else {
            let (h, w) = self.size;
            return Err(format!(
                "a crop of {h} x {w} is larger than the padded image of {padded_height} x {padded_width}"
            ));
        };
        // The image is not padded. A crop returns zeros outside the image, and the padding would be
        // zeros, so it is enough to shift the crop.
        let y = draws.up_to(down) as i64 - top as i64;
        let x = draws.up_to(across) as i64 - left as i64;
        Ok((y, x))
    }
}

impl ImageOp for RandomCrop {
    fn function(&self) -> &'static ImageFunction {
        &FUNCTION
    }

    fn definition(&self) -> String {
        definition::fields(
            "RandomCrop",
            &[
                ("size", definition::pair(&self.size)),
                ("sides", definition::brackets(&self.sides)),
            ],
        )
    }

    fn acts_by_channel(&self) -> bool {
        true
    }

    fn apply(&self, scratch: &mut Scratch, draws: &mut Draws) -> Result<(), String> {
        let at = self.place(scratch.image_size(), draws)?;
        scratch.crop(at, self.size);
        Ok(())
    }

    fn reads(&self, size: (usize, usize), draws: &mut Draws) -> Option<Rectangle> {
        let at = self.place(size, draws).ok()?;
        Some(Rectangle::at(at, self.size))
    }

    fn shown(&self) -> String {
        arguments::shown_size(self.size)
    }

    fn output(&self, input: TensorType) -> Result<TensorType> {
        Ok(input.of_shape(Some(self.size)))
    }

    /// Without padding, the rectangle lies inside the image.
    fn facts(&self) -> FunctionFacts {
        let facts = FUNCTION.info.facts;
        if self.sides == [0; 4] {
            facts.selecting()
        } else {
            facts
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::testing::{SIZE, agree, draws};

    #[test]
    fn places_are_drawn_as_torchvision_draws_them() {
        let crop = RandomCrop {
            size: (50, 40),
            sides: [0; 4],
        };
        let places = draws().map(|mut draws| crop.place(SIZE, &mut draws).unwrap());
        let (tops, lefts) = places.map(|(y, x)| (y as f64, x as f64)).unzip();
        agree("random_crop", vec![tops, lefts]);
    }

    #[test]
    fn places_at_the_borders_are_reached() {
        let crop = RandomCrop {
            size: SIZE,
            sides: [1, 0, 1, 0],
        };
        let mut lefts: Vec<i64> = draws()
            .map(|mut draws| crop.place(SIZE, &mut draws).unwrap().1)
            .collect();
        lefts.sort_unstable();
        lefts.dedup();
        assert_eq!(lefts, [-1, 0, 1]);
    }
}
