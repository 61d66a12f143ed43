//! `rotate` and `random_rotate`: rotate an image about its centre.

use std::sync::Arc;

use datafusion::common::{Result, plan_err};

use super::arguments;
use crate::args::CallArgs;
use crate::draw::Draws;
use crate::facts::{Algebra, Purity, Scale};
use crate::image::definition;
use crate::image::kernel::rotate::{Turn, rotate, turned_size};
use crate::image::op::{ImageFunction, ImageOp};
use crate::image::scratch::Scratch;
use crate::image::values::{Interpolation, Range, Real};
use crate::info::{ArgumentInfo, FunctionInfo, GEOMETRY, IMAGE, arg, facts};
use crate::tensor::TensorType;

const EXPAND: ArgumentInfo = arg(
    "expand",
    "If true, the result grows to hold the whole rotated image; default false.",
);

/// Rotates an image by a constant angle.
pub(super) static ROTATE: ImageFunction = ImageFunction {
    info: FunctionInfo {
        name: "rotate",
        category: GEOMETRY,
        signature: "rotate(image, degrees [, filter, expand, fill])",
        summary: "Rotates an image counter-clockwise about its centre.",
        arguments: &[
            IMAGE,
            arg("degrees", "Angle."),
            arguments::SAMPLING,
            EXPAND,
            arguments::FILL,
        ],
        returns: "An image of the same size, or larger with expand.",
        example: "SELECT rotate(decode_image(image), 15) FROM photos",
        counterpart: "torchvision v2.functional.rotate on tensors: 'bilinear' within 1 of 255; 'nearest' \
            may choose the other of two pixels whose borders a sample point meets.",
        facts: facts(Purity::Pure, Algebra::Spatial, false).scaled(Scale::Constants),
    },
    parse: parse_rotate,
};

/// Rotates an image by a random angle.
pub(super) static RANDOM_ROTATE: ImageFunction = ImageFunction {
    info: FunctionInfo {
        name: "random_rotate",
        category: GEOMETRY,
        signature: "random_rotate(image, degrees [, filter, expand, fill])",
        summary: "Rotates an image by a random angle.",
        arguments: &[
            IMAGE,
            arg(
                "degrees",
                "Uniform in [-degrees, degrees], or in [min, max].",
            ),
            arguments::SAMPLING,
            EXPAND,
            arguments::FILL,
        ],
        returns: "An image of the same size; of differing sizes with expand.",
        example: "SELECT random_rotate(decode_image(image), 10) FROM photos",
        counterpart: "torchvision v2.RandomRotation(degrees): as rotate given the angle.",
        facts: facts(Purity::Random, Algebra::Spatial, false)
            .scaled(Scale::Constants)
            .priced_as("rotate"),
    },
    parse: parse_random_rotate,
};

fn parse_rotate(args: &CallArgs, _: Option<TensorType>) -> Result<Arc<dyn ImageOp>> {
    args.expect_count(2, 5, "rotate(image, degrees [, filter, expand, fill])")?;
    let turn = parse_turn(args)?;
    // The expanded size depends on the angle, which must therefore be known during planning.
    if turn.expand && args.is_pending(1) {
        return plan_err!("rotate: degrees must be a literal number where expand is true");
    }
    let degrees = Real(args.real(1, "degrees", 0.0)?);
    Ok(Arc::new(Rotate { degrees, turn }))
}

fn parse_random_rotate(args: &CallArgs, _: Option<TensorType>) -> Result<Arc<dyn ImageOp>> {
    args.expect_count(
        2,
        5,
        "random_rotate(image, degrees [, filter, expand, fill])",
    )?;
    Ok(Arc::new(RandomRotate {
        degrees: arguments::around(args, 1, "degrees", f64::INFINITY)?,
        turn: parse_turn(args)?,
    }))
}

fn parse_turn(args: &CallArgs) -> Result<Turn> {
    Ok(Turn {
        filter: args.choice(2, "filter", &arguments::SAMPLINGS, Interpolation::Nearest)?,
        expand: args.flag(3, "expand", false)?,
        fill: arguments::fill(args, 4)?,
    })
}

#[derive(Debug)]
pub(super) struct Rotate {
    pub(super) degrees: Real,
    pub(super) turn: Turn,
}

#[derive(Debug)]
pub(super) struct RandomRotate {
    pub(super) degrees: Range,
    pub(super) turn: Turn,
}

impl RandomRotate {
    /// Draws an angle, in degrees.
    fn angle(&self, draws: &mut Draws) -> f64 {
        arguments::uniform(draws, self.degrees)
    }
}

fn check_fill(function: &ImageFunction, turn: &Turn, input: TensorType) -> Result<()> {
    let fill = turn.fill.as_deref().unwrap_or(&[Real(0.0)]);
    arguments::per_channel(function, "fill", fill, input)
}

fn turn_definition(turn: &Turn) -> String {
    let fill = definition::optional(turn.fill.as_deref().map(definition::reals));
    let fields = [
        ("filter", definition::filter(turn.filter)),
        ("expand", turn.expand.to_string()),
        ("fill", fill),
    ];
    definition::fields("Turn", &fields)
}

impl ImageOp for Rotate {
    fn function(&self) -> &'static ImageFunction {
        &ROTATE
    }

    fn definition(&self) -> String {
        definition::fields(
            "Rotate",
            &[
                ("degrees", definition::real(&self.degrees)),
                ("turn", turn_definition(&self.turn)),
            ],
        )
    }

    fn apply(&self, scratch: &mut Scratch, _: &mut Draws) -> Result<(), String> {
        rotate(
            &mut scratch.front,
            self.degrees.0,
            &self.turn,
            &mut scratch.back,
        );
        scratch.swap();
        Ok(())
    }

    fn shown(&self) -> String {
        self.degrees.0.to_string()
    }

    fn output(&self, input: TensorType) -> Result<TensorType> {
        check_fill(&ROTATE, &self.turn, input)?;
        let turned = |size| turned_size(size, self.degrees.0, self.turn.expand);
        Ok(input.of_shape(input.shape.map(turned)))
    }

    fn work(&self) -> u64 {
        arguments::work_of_sampling(self.turn.filter)
    }
}

impl ImageOp for RandomRotate {
    fn function(&self) -> &'static ImageFunction {
        &RANDOM_ROTATE
    }

    fn definition(&self) -> String {
        definition::fields(
            "RandomRotate",
            &[
                ("degrees", definition::range(&self.degrees)),
                ("turn", turn_definition(&self.turn)),
            ],
        )
    }

    fn apply(&self, scratch: &mut Scratch, draws: &mut Draws) -> Result<(), String> {
        let degrees = self.angle(draws);
        rotate(&mut scratch.front, degrees, &self.turn, &mut scratch.back);
        scratch.swap();
        Ok(())
    }

    fn shown(&self) -> String {
        format!("{}..{}", self.degrees.0.0, self.degrees.1.0)
    }

    fn output(&self, input: TensorType) -> Result<TensorType> {
        check_fill(&RANDOM_ROTATE, &self.turn, input)?;
        Ok(if self.turn.expand {
            input.of_shape(None)
        } else {
            input
        })
    }

    fn work(&self) -> u64 {
        arguments::work_of_sampling(self.turn.filter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::logical_expr::lit;

    use crate::image::testing::{
        agree, assert_fused_and_row_by_row, assert_sampled, draws, image_of, interval, sampled,
    };

    #[test]
    fn pixels_are_those_of_a_naive_reference() {
        let source = image_of(23, 31, 3);
        for (number, degrees) in [1.5, 30.0, 45.0, 100.0, -77.0, 200.25]
            .into_iter()
            .enumerate()
        {
            let filter = arguments::SAMPLINGS[number % 2].1;
            let rotate = Rotate {
                degrees: Real(degrees),
                turn: Turn {
                    filter,
                    expand: false,
                    fill: Some(vec![Real(5.0), Real(80.0), Real(255.0)]),
                },
            };
            let mut scratch = Scratch {
                front: source.clone(),
                ..Scratch::default()
            };
            rotate
                .apply(&mut scratch, &mut Draws::new(0, 0, 0, 0))
                .unwrap();
            let (sin, cos) = f64::to_radians(degrees).sin_cos();
            let expected = sampled(&source, filter, &[5.0, 80.0, 255.0], |x, y| {
                let (x, y) = (x - 15.0, y - 11.0);
                (cos * x - sin * y + 15.0, sin * x + cos * y + 11.0)
            });
            assert_sampled(&scratch.front, &expected);
        }
    }

    #[test]
    fn programs_and_batches_change_no_byte() {
        assert_fused_and_row_by_row("random_rotate", vec![lit(50), lit("bilinear")]);
    }

    #[test]
    fn angles_are_drawn_as_torchvision_draws_them() {
        let rotate = RandomRotate {
            degrees: interval(-30.0, 40.0),
            turn: Turn {
                filter: Interpolation::Nearest,
                expand: false,
                fill: None,
            },
        };
        let angles = draws().map(|mut draws| rotate.angle(&mut draws));
        agree("random_rotate", vec![angles.collect()]);
    }
}
