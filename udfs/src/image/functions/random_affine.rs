//! `random_affine`: rotates, shifts, scales and shears an image at random.

use std::f64::consts::PI;
use std::sync::Arc;

use datafusion::common::{Result, plan_err};

use super::arguments;
use crate::args::CallArgs;
use crate::draw::Draws;
use crate::facts::{Algebra, Purity, Scale};
use crate::image::definition;
use crate::image::kernel::warp::{PlaceMap, warp};
use crate::image::op::{ImageFunction, ImageOp};
use crate::image::pixels::{PixelShape, by_sample};
use crate::image::scratch::Scratch;
use crate::image::values::{Interpolation, Range, Real};
use crate::info::{FunctionInfo, GEOMETRY, IMAGE, arg, facts};
use crate::tensor::TensorType;

pub(super) static FUNCTION: ImageFunction = ImageFunction {
    info: FunctionInfo {
        name: "random_affine",
        category: GEOMETRY,
        signature: "random_affine(image, degrees [, translate [, scale [, shear]]] [, filter [, fill]])",
        summary: "Turns, moves, scales and shears an image at random, about its centre.",
        arguments: &[
            IMAGE,
            arg(
                "degrees",
                "Angle, clockwise: uniform in [-degrees, degrees], or in [min, max].",
            ),
            arg(
                "translate",
                "Greatest shift as a part of width and of height, [across, down], each 0 to 1; shifts are whole \
                    pixels; default none.",
            ),
            arg(
                "scale",
                "Factor, uniform in [min, max], above 0; default 1.",
            ),
            arg(
                "shear",
                "Angle between axes in degrees, -90 to 90: uniform in [-shear, shear] or [min, max] along x, or \
                    [x_min, x_max, y_min, y_max]; default none.",
            ),
            arguments::SAMPLING,
            arguments::FILL,
        ],
        returns: "An image of the same size and element type.",
        example: "SELECT random_affine(decode_image(image), 15, [0.1, 0.1], [0.8, 1.2], 10) FROM photos",
        counterpart: "torchvision v2.RandomAffine(degrees, translate, scale, shear, interpolation, fill): given \
            what is drawn, 'bilinear' within 1 of 255; 'nearest' may choose the other of two pixels whose borders a \
            sample point meets.",
        facts: facts(Purity::Random, Algebra::Spatial, false)
            .keeping_shape()
            .scaled(Scale::Constants)
            .priced_as("random_rotate"),
    },
    parse,
};

fn parse(args: &CallArgs, _: Option<TensorType>) -> Result<Arc<dyn ImageOp>> {
    args.expect_count(2, 7, FUNCTION.info.signature)?;
    // The numeric arguments come first; a text among the arguments is the filter.
    let next = (2..args.len().min(5))
        .find(|&i| args.is_text(i))
        .unwrap_or(args.len().min(5));
    if next + 2 < args.len() {
        args.expect_count(2, next + 2, FUNCTION.info.signature)?;
    }
    let number = |i: usize| if i < next { i } else { args.len() };
    Ok(Arc::new(RandomAffine {
        degrees: arguments::around(args, 1, "degrees", f64::INFINITY)?,
        translate: translate(args, number(2))?,
        scale: scale(args, number(3))?,
        shear: shear(args, number(4))?,
        filter: args.choice(
            next,
            "filter",
            &arguments::SAMPLINGS,
            Interpolation::Nearest,
        )?,
        fill: arguments::fill(args, next + 1)?.unwrap_or_else(|| vec![Real(0.0)]),
    }))
}

fn translate(args: &CallArgs, i: usize) -> Result<(Real, Real)> {
    match args.reals(i, "translate")?.as_deref() {
        None => Ok((Real(0.0), Real(0.0))),
        Some(&[across, down]) if [across, down].iter().all(|v| (0.0..=1.0).contains(v)) => {
            Ok((Real(across), Real(down)))
        }
        Some(_) => plan_err!("random_affine: translate must be [across, down], each from 0 to 1"),
    }
}

fn scale(args: &CallArgs, i: usize) -> Result<Range> {
    let (low, high) = args.range(i, "scale", (1.0, 1.0))?;
    if low <= 0.0 {
        return plan_err!("random_affine: scale must be above 0, found {low}");
    }
    Ok((Real(low), Real(high)))
}

fn shear(args: &CallArgs, i: usize) -> Result<[Range; 2]> {
    let ranges = match args.reals(i, "shear")?.as_deref() {
        Some(&[x_min, x_max, y_min, y_max]) => [
            arguments::span(args.ordered("shear", x_min, x_max)?),
            arguments::span(args.ordered("shear", y_min, y_max)?),
        ],
        Some(&[_] | &[_, _]) | None => [
            arguments::around(args, i, "shear", 90.0)?,
            arguments::span((0.0, 0.0)),
        ],
        Some(_) => {
            return plan_err!(
                "random_affine: shear must be one number, [min, max] or [x_min, x_max, y_min, y_max]"
            );
        }
    };
    // A shear of 90 degrees has an infinite tangent.
    if ranges
        .iter()
        .any(|(low, high)| low.0 <= -90.0 || high.0 >= 90.0)
    {
        return plan_err!("random_affine: shear must be between -90 and 90 degrees");
    }
    Ok(ranges)
}

#[derive(Debug)]
struct RandomAffine {
    degrees: Range,
    /// Largest shift, as a fraction of width and height.
    translate: (Real, Real),
    scale: Range,
    /// Range of the shear along x and along y, in degrees.
    shear: [Range; 2],
    filter: Interpolation,
    fill: Vec<Real>,
}

/// A transformation with drawn parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Affine {
    degrees: f64,
    /// Shift to the right and down, in pixels.
    translate: (f64, f64),
    scale: f64,
    /// Shear along x and along y, in degrees.
    shear: (f64, f64),
}

impl RandomAffine {
    /// Draws a transformation of an image of this height and width. A parameter with only one
    /// possible value takes no draw.
    fn transformation(&self, (height, width): (usize, usize), draws: &mut Draws) -> Affine {
        let degrees = arguments::uniform(draws, self.degrees);
        let mut shift = |part: Real, side: usize| {
            let most = part.0 * side as f64;
            if most == 0.0 {
                return 0.0;
            }
            libm::rint(arguments::uniform(draws, (Real(-most), Real(most))))
        };
        let translate = (
            shift(self.translate.0, width),
            shift(self.translate.1, height),
        );
        let scale = arguments::uniform(draws, self.scale);
        let [x, y] = self.shear;
        let shear = (arguments::uniform(draws, x), arguments::uniform(draws, y));
        Affine {
            degrees,
            translate,
            scale,
            shear,
        }
    }
}

impl Affine {
    /// Returns the map from the result's pixels to positions in an image of this height and width
    /// (torchvision `_get_inverse_affine_matrix`).
    fn inverse(&self, (height, width): (usize, usize)) -> PlaceMap {
        let radians = |degrees: f64| degrees * (PI / 180.0);
        let turn = radians(self.degrees);
        let (shear_x, shear_y) = (radians(self.shear.0), radians(self.shear.1));
        let a = libm::cos(turn - shear_y) / libm::cos(shear_y);
        let c = libm::sin(turn - shear_y) / libm::cos(shear_y);
        let b = -(a * libm::tan(shear_x) + libm::sin(turn));
        let d = libm::cos(turn) - c * libm::tan(shear_x);
        // The determinant of the rotation and shear is 1, so the inverse divides only by the scale.
        let [a, b, c, d] = [d, -b, -c, a].map(|v| v / self.scale);
        let (right, down) = self.translate;
        let centre = |side: usize| side as f64 * 0.5 - 0.5;
        PlaceMap {
            x: [a, b, centre(width) - a * right - b * down],
            y: [c, d, centre(height) - c * right - d * down],
            divisor: None,
        }
    }
}

impl ImageOp for RandomAffine {
    fn function(&self) -> &'static ImageFunction {
        &FUNCTION
    }

    fn definition(&self) -> String {
        let [x, y] = &self.shear;
        let (across, down) = &self.translate;
        let translate = format!("({}, {})", definition::real(across), definition::real(down));
        let shear = format!("[{}, {}]", definition::range(x), definition::range(y));
        definition::fields(
            "RandomAffine",
            &[
                ("degrees", definition::range(&self.degrees)),
                ("translate", translate),
                ("scale", definition::range(&self.scale)),
                ("shear", shear),
                ("filter", definition::filter(self.filter)),
                ("fill", definition::reals(&self.fill)),
            ],
        )
    }

    fn apply(&self, scratch: &mut Scratch, draws: &mut Draws) -> Result<(), String> {
        let shape = scratch.front.shape;
        let PixelShape { height, width, .. } = shape;
        let map = self
            .transformation((height, width), draws)
            .inverse((height, width));
        let (front, back) = (&scratch.front, &mut scratch.back);
        back.reshape(shape);
        by_sample!(shape.dtype, T => warp::<T>(front, &map, self.filter, Some(&self.fill), back));
        scratch.swap();
        Ok(())
    }

    fn shown(&self) -> String {
        format!("{}..{}", self.degrees.0.0, self.degrees.1.0)
    }

    fn output(&self, input: TensorType) -> Result<TensorType> {
        arguments::per_channel(&FUNCTION, "fill", &self.fill, input)?;
        Ok(input)
    }

    fn work(&self) -> u64 {
        arguments::work_of_sampling(self.filter)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{Expr, col, lit};

    use super::*;
    use crate::image::testing::{
        SIZE, assert_fused_and_row_by_row, assert_sampled, call, decoded, draws, failure, image_of,
        interval, inverse, list, op, pictures, product, sampled,
    };

    fn still() -> RandomAffine {
        RandomAffine {
            degrees: interval(0.0, 0.0),
            translate: (Real(0.0), Real(0.0)),
            scale: interval(1.0, 1.0),
            shear: [interval(0.0, 0.0); 2],
            filter: Interpolation::Nearest,
            fill: vec![Real(0.0)],
        }
    }

    /// Maps a pixel of the result to a position in the image, by inverting the product of
    /// elementary transformations: move to the centre, shear, scale and rotate, move back and
    /// shift.
    fn place(affine: Affine, (height, width): (usize, usize), x: f64, y: f64) -> (f64, f64) {
        let [turn, sx, sy] = [affine.degrees, affine.shear.0, affine.shear.1].map(f64::to_radians);
        let shift = |x: f64, y: f64| [[1.0, 0.0, x], [0.0, 1.0, y], [0.0, 0.0, 1.0]];
        let s = affine.scale;
        let scale = [[s, 0.0, 0.0], [0.0, s, 0.0], [0.0, 0.0, 1.0]];
        let (sin, cos) = turn.sin_cos();
        let rotate = [[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]];
        let shear_y = [[1.0, 0.0, 0.0], [-sy.tan(), 1.0, 0.0], [0.0, 0.0, 1.0]];
        let shear_x = [[1.0, -sx.tan(), 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
        let centre = ((width as f64 - 1.0) / 2.0, (height as f64 - 1.0) / 2.0);
        let forward = [
            shift(affine.translate.0, affine.translate.1),
            shift(centre.0, centre.1),
            rotate,
            scale,
            shear_y,
            shear_x,
            shift(-centre.0, -centre.1),
        ];
        let back = inverse(forward.into_iter().reduce(product).unwrap());
        let at = |row: [f64; 3]| row[0] * x + row[1] * y + row[2];
        (at(back[0]), at(back[1]))
    }

    #[test]
    fn pixels_are_those_of_a_naive_reference() {
        let source = image_of(23, 31, 3);
        for (number, mut draws) in draws().take(40).enumerate() {
            let affine = RandomAffine {
                degrees: interval(-180.0, 180.0),
                translate: (Real(0.3), Real(0.2)),
                scale: interval(0.5, 2.0),
                shear: [interval(-30.0, 30.0), interval(-20.0, 20.0)],
                filter: arguments::SAMPLINGS[number % 2].1,
                fill: vec![Real(7.0), Real(90.0), Real(200.0)],
            };
            let drawn = affine.transformation((23, 31), &mut draws.clone());
            let mut scratch = Scratch {
                front: source.clone(),
                ..Scratch::default()
            };
            affine.apply(&mut scratch, &mut draws).unwrap();
            let fill = [7.0, 90.0, 200.0];
            let expected = sampled(&source, affine.filter, &fill, |x, y| {
                place(drawn, (23, 31), x, y)
            });
            assert_sampled(&scratch.front, &expected);
        }
    }

    #[test]
    fn simple_cases_are_those_made_by_hand() {
        let run = |affine: &RandomAffine| {
            let mut scratch = Scratch {
                front: image_of(3, 3, 1),
                ..Scratch::default()
            };
            scratch.front.u8s = (1..=9).collect();
            affine
                .apply(&mut scratch, &mut Draws::new(0, 0, 0, 0))
                .unwrap();
            scratch.front.u8s
        };
        assert_eq!(run(&still()), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let bilinear = RandomAffine {
            filter: Interpolation::Bilinear,
            ..still()
        };
        assert_eq!(run(&bilinear), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        // The angle is clockwise, as in torchvision's `affine`.
        let turned = RandomAffine {
            degrees: interval(90.0, 90.0),
            ..still()
        };
        assert_eq!(run(&turned), [7, 4, 1, 8, 5, 2, 9, 6, 3]);
        let larger = RandomAffine {
            scale: interval(3.0, 3.0),
            ..still()
        };
        assert_eq!(run(&larger), [5; 9]);
        let smaller = RandomAffine {
            scale: interval(0.4, 0.4),
            fill: vec![Real(77.0)],
            ..still()
        };
        assert_eq!(run(&smaller), [77, 77, 77, 77, 5, 77, 77, 77, 77]);
        let sheared = RandomAffine {
            shear: [interval(45.0, 45.0), interval(0.0, 0.0)],
            ..still()
        };
        assert_eq!(run(&sheared), [0, 1, 2, 4, 5, 6, 8, 9, 0]);
    }

    #[test]
    fn shifts_move_to_the_right_and_down() {
        let moved = Affine {
            degrees: 0.0,
            translate: (2.0, -1.0),
            scale: 1.0,
            shear: (0.0, 0.0),
        };
        let map = moved.inverse((5, 7));
        assert_eq!((map.x, map.y), ([1.0, 0.0, 1.0], [0.0, 1.0, 3.0]));
    }

    #[test]
    fn draws_lie_in_their_ranges_and_reach_their_ends() {
        let affine = RandomAffine {
            degrees: interval(-10.0, 20.0),
            translate: (Real(0.1), Real(0.05)),
            scale: interval(0.5, 3.0),
            shear: [interval(-5.0, 5.0), interval(1.0, 2.0)],
            ..still()
        };
        let drawn: Vec<Affine> = draws()
            .map(|mut draws| affine.transformation(SIZE, &mut draws))
            .collect();
        let check = |value: fn(&Affine) -> f64, low: f64, high: f64| {
            let values = || drawn.iter().map(value);
            let (least, most) = (
                values().fold(f64::MAX, f64::min),
                values().fold(f64::MIN, f64::max),
            );
            let near = (high - low) / 50.0;
            assert!(least >= low && least < low + near, "{least} {low}");
            assert!(most <= high && most > high - near, "{most} {high}");
        };
        check(|a| a.degrees, -10.0, 20.0);
        check(|a| a.translate.0, -9.0, 9.0);
        check(|a| a.translate.1, -6.0, 6.0);
        check(|a| a.scale, 0.5, 3.0);
        check(|a| a.shear.0, -5.0, 5.0);
        check(|a| a.shear.1, 1.0, 2.0);
        assert!(drawn.iter().all(|a| a.translate.0.fract() == 0.0));
        // Parameters that cannot vary take no draw.
        let mut draws = Draws::new(1, 2, 3, 4);
        still().transformation(SIZE, &mut draws);
        assert_eq!(draws.next_u64(), Draws::new(1, 2, 3, 4).next_u64());
    }

    #[test]
    fn programs_and_batches_change_no_byte() {
        let lists = || {
            vec![
                lit(20),
                list(&[0.2, 0.1]),
                list(&[0.7, 1.5]),
                list(&[-10.0, 10.0, 0.0, 5.0]),
                lit("bilinear"),
                lit(3),
            ]
        };
        assert_fused_and_row_by_row("random_affine", lists());
        assert_fused_and_row_by_row("random_affine", vec![lit(180), lit("nearest")]);
    }

    #[test]
    fn arguments_are_read_and_mistakes_named() {
        let text = |args: Vec<Expr>| {
            let args = std::iter::once(col("image")).chain(args).collect();
            op(&call("random_affine", args)).definition()
        };
        assert_eq!(
            text(vec![lit(10)]),
            "RandomAffine { degrees: (Real(-10.0), Real(10.0)), translate: (Real(0.0), Real(0.0)), \
             scale: (Real(1.0), Real(1.0)), shear: [(Real(0.0), Real(0.0)), (Real(0.0), Real(0.0))], \
             filter: Nearest, fill: [Real(0.0)] }",
        );
        let all = vec![
            list(&[-1.0, 2.0]),
            list(&[0.5, 0.25]),
            list(&[0.5, 2.0]),
            lit(30),
            lit("bilinear"),
            list(&[1.0, 2.0, 3.0]),
        ];
        assert_eq!(
            text(all),
            "RandomAffine { degrees: (Real(-1.0), Real(2.0)), translate: (Real(0.5), Real(0.25)), \
             scale: (Real(0.5), Real(2.0)), shear: [(Real(-30.0), Real(30.0)), (Real(0.0), Real(0.0))], \
             filter: Bilinear, fill: [Real(1.0), Real(2.0), Real(3.0)] }",
        );
        let early = text(vec![lit(0), lit("bilinear"), lit(5)]);
        assert!(early.contains("filter: Bilinear, fill: [Real(5.0)]"));
        for (args, message) in [
            (vec![], "expected 2 to 7 arguments as in random_affine("),
            (vec![lit(-1)], "degrees must not be negative, found -1"),
            (
                vec![lit(1), lit(0.5)],
                "translate must be [across, down], each from 0 to 1",
            ),
            (
                vec![lit(1), list(&[0.5, 1.5])],
                "translate must be [across, down], each from 0 to 1",
            ),
            (
                vec![lit(1), list(&[0.0, 0.0]), list(&[0.0, 1.0])],
                "scale must be above 0, found 0",
            ),
            (
                vec![lit(1), list(&[0.0, 0.0]), list(&[2.0, 1.0])],
                "scale must be in ascending order",
            ),
            (
                vec![lit(1), list(&[0.0, 0.0]), list(&[1.0, 1.0]), lit(90)],
                "shear must be between -90 and 90 degrees",
            ),
            (
                vec![
                    lit(1),
                    list(&[0.0, 0.0]),
                    list(&[1.0, 1.0]),
                    list(&[1.0, 2.0, 3.0]),
                ],
                "shear must be one number, [min, max] or [x_min, x_max, y_min, y_max]",
            ),
            (
                vec![lit(1), lit("bicubic")],
                "filter must be one of 'nearest', 'bilinear'",
            ),
            (
                vec![lit(1), lit("nearest"), lit(1), lit(2)],
                "expected 2 to 4 arguments",
            ),
            (
                vec![lit(1), lit("nearest"), list(&[1.0, 2.0])],
                "fill must be one number, or one per channel, found 2 numbers for 3 channels",
            ),
        ] {
            let args = std::iter::once(decoded()).chain(args).collect();
            let found = failure(call("random_affine", args), &pictures());
            assert!(found.contains(message), "{found}\n    lacks: {message}");
        }
    }
}
