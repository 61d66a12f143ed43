//! `random_perspective`: moves the corners of an image inwards at random.

use std::sync::Arc;

use datafusion::common::Result;

use super::arguments;
use crate::args::CallArgs;
use crate::draw::Draws;
use crate::facts::{Algebra, Purity, Scale};
use crate::image::definition;
use crate::image::kernel::warp::{PlaceMap, warp};
use crate::image::op::{ImageFunction, ImageOp};
use crate::image::pixels::{PixelShape, by_sample};
use crate::image::scratch::Scratch;
use crate::image::values::{Interpolation, Real};
use crate::info::{FunctionInfo, GEOMETRY, IMAGE, arg, facts};
use crate::tensor::TensorType;

pub(super) static FUNCTION: ImageFunction = ImageFunction {
    info: FunctionInfo {
        name: "random_perspective",
        category: GEOMETRY,
        signature: "random_perspective(image [, distortion_scale [, p [, filter [, fill]]]])",
        summary: "Shows an image in a random perspective with a probability.",
        arguments: &[
            IMAGE,
            arg(
                "distortion_scale",
                "Part of half the width and height by which a corner may move inwards, 0 to 1; default 0.5.",
            ),
            arg("p", "Probability, 0 to 1; default 0.5."),
            arg("filter", "'bilinear' (default) or 'nearest'."),
            arguments::FILL,
        ],
        returns: "An image of the same size and element type.",
        example: "SELECT random_perspective(decode_image(image), 0.4, 0.5) FROM photos",
        counterpart: "torchvision v2.RandomPerspective(distortion_scale, p, interpolation, fill): given the \
            corners, 'bilinear' within 1 of 255; 'nearest' may choose the other of two pixels whose borders a \
            sample point meets. An image stays as it is where no perspective has these corners, as in an image \
            one pixel wide.",
        facts: facts(Purity::Random, Algebra::Spatial, false)
            .keeping_shape()
            .scaled(Scale::Constants)
            .priced_as("random_rotate"),
    },
    parse,
};

fn parse(args: &CallArgs, _: Option<TensorType>) -> Result<Arc<dyn ImageOp>> {
    args.expect_count(1, 5, FUNCTION.info.signature)?;
    Ok(Arc::new(RandomPerspective {
        distortion: Real(args.real_in(1, "distortion_scale", (0.0, 1.0), 0.5)?),
        p: arguments::probability(args, 2, 0.5)?,
        filter: args.choice(3, "filter", &arguments::SAMPLINGS, Interpolation::Bilinear)?,
        fill: arguments::fill(args, 4)?.unwrap_or_else(|| vec![Real(0.0)]),
    }))
}

#[derive(Debug)]
struct RandomPerspective {
    distortion: Real,
    p: Real,
    filter: Interpolation,
    fill: Vec<Real>,
}

/// Column and row of each corner of an image: top left, top right, bottom right, bottom left.
type Corners = [[usize; 2]; 4];

/// Returns the corners of an image of this height and width.
const fn corners((height, width): (usize, usize)) -> Corners {
    let (right, bottom) = (width - 1, height - 1);
    [[0, 0], [right, 0], [right, bottom], [0, bottom]]
}

impl RandomPerspective {
    /// Draws new positions for an image's corners; `None` if the image stays unchanged.
    fn moved(&self, (height, width): (usize, usize), draws: &mut Draws) -> Option<Corners> {
        if !draws.chance(self.p.0) || height == 0 || width == 0 {
            return None;
        }
        let most = |side: usize| (self.distortion.0 * (side / 2) as f64) as usize;
        let (across, down) = (most(width), most(height));
        let corners = corners((height, width)).map(|[x, y]| {
            let (in_x, in_y) = (draws.up_to(across), draws.up_to(down));
            // Torchvision draws every coordinate as an offset from the low end of its range, also
            // for the right and the bottom corners.
            let x = if x == 0 { in_x } else { x - across + in_x };
            let y = if y == 0 { in_y } else { y - down + in_y };
            [x, y]
        });
        Some(corners)
    }
}

/// Returns the coefficients `a` to `h` of `x' = (ax + by + c) / (gx + hy + 1)`, `y' = (dx + ey + f)
/// / (gx + hy + 1)` that map each corner of `from` to the corresponding corner of `to`; `None` if
/// no such coefficients exist.
fn coefficients(from: Corners, to: Corners) -> Option<[f64; 8]> {
    // Eight equations in eight unknowns; the ninth column is the right-hand side.
    let mut rows = [[0.0; 9]; 8];
    for (i, (from, to)) in from.iter().zip(to).enumerate() {
        let ([x, y], [u, v]) = (from.map(|v| v as f64), to.map(|v| v as f64));
        rows[2 * i] = [x, y, 1.0, 0.0, 0.0, 0.0, -u * x, -u * y, u];
        rows[2 * i + 1] = [0.0, 0.0, 0.0, x, y, 1.0, -v * x, -v * y, v];
    }
    // Gauss-Jordan elimination. Choosing the largest pivot keeps the elimination stable.
    for i in 0..8 {
        let size = |row: &[f64; 9]| row[i].abs();
        let pivot = (i..8).max_by(|&a, &b| size(&rows[a]).total_cmp(&size(&rows[b])))?;
        rows.swap(i, pivot);
        let pivot = rows[i];
        if size(&pivot) < 1e-9 {
            return None;
        }
        for (j, row) in rows.iter_mut().enumerate() {
            let factor = row[i] / pivot[i];
            if j != i {
                for (value, above) in row.iter_mut().zip(pivot) {
                    *value -= factor * above;
                }
            }
        }
    }
    let mut solution = [0.0; 8];
    for (i, value) in solution.iter_mut().enumerate() {
        *value = rows[i][8] / rows[i][i];
    }
    Some(solution)
}

/// Returns the map from the result's pixels to positions in an image of this height and width,
/// whose corners move to `moved`; `None` if no perspective has these corners.
fn places((height, width): (usize, usize), moved: Corners) -> Option<PlaceMap> {
    let [a, b, c, d, e, f, g, h] = coefficients(moved, corners((height, width)))?;
    // Here, torchvision counts positions from the border of the first pixel, but it counts the
    // drawn corners from the centre of the first pixel.
    let (right, down) = (width as f64 * 0.5, height as f64 * 0.5);
    let centred = |x: f64, y: f64, offset: f64| [x, y, offset + x * right + y * down];
    let divisor = centred(g, h, 1.0);
    let half_less = |part: [f64; 3]| std::array::from_fn(|i| part[i] - 0.5 * divisor[i]);
    Some(PlaceMap {
        x: half_less(centred(a, b, c)),
        y: half_less(centred(d, e, f)),
        divisor: Some(divisor),
    })
}

impl ImageOp for RandomPerspective {
    fn function(&self) -> &'static ImageFunction {
        &FUNCTION
    }

    fn definition(&self) -> String {
        definition::fields(
            "RandomPerspective",
            &[
                ("distortion_scale", definition::real(&self.distortion)),
                ("p", definition::real(&self.p)),
                ("filter", definition::filter(self.filter)),
                ("fill", definition::reals(&self.fill)),
            ],
        )
    }

    fn apply(&self, scratch: &mut Scratch, draws: &mut Draws) -> Result<(), String> {
        let shape = scratch.front.shape;
        let PixelShape { height, width, .. } = shape;
        let moved = self.moved((height, width), draws);
        let moved = moved.filter(|moved| *moved != corners((height, width)));
        let Some(map) = moved.and_then(|moved| places((height, width), moved)) else {
            return Ok(());
        };
        let (front, back) = (&scratch.front, &mut scratch.back);
        back.reshape(shape);
        by_sample!(shape.dtype, T => warp::<T>(front, &map, self.filter, Some(&self.fill), back));
        scratch.swap();
        Ok(())
    }

    fn shown(&self) -> String {
        format!("{} p={}", self.distortion.0, self.p.0)
    }

    fn output(&self, input: TensorType) -> Result<TensorType> {
        arguments::per_channel(&FUNCTION, "fill", &self.fill, input)?;
        Ok(input)
    }

    /// The work depends on `filter`: the documented example is bilinear, and so reads four pixels
    /// for each pixel of the result.
    fn work(&self) -> u64 {
        let [this, example] =
            [self.filter, Interpolation::Bilinear].map(arguments::work_of_sampling);
        100 * this / example
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{Expr, col, lit};

    use super::*;
    use crate::image::testing::{
        Matrix, SIZE, assert_fused_and_row_by_row, assert_sampled, call, decoded, draws, failure,
        image_of, inverse, list, occurs, op, pictures, product, sampled,
    };

    fn always(distortion: f64) -> RandomPerspective {
        RandomPerspective {
            distortion: Real(distortion),
            p: Real(1.0),
            filter: Interpolation::Nearest,
            fill: vec![Real(0.0)],
        }
    }

    /// The homography from the unit square to a quadrilateral, in closed form (Heckbert,
    /// "Fundamentals of Texture Mapping and Image Warping", 1989).
    fn from_square(corners: Corners) -> Matrix {
        let [[x0, y0], [x1, y1], [x2, y2], [x3, y3]] = corners.map(|c| c.map(|v| v as f64));
        let (sx, sy) = (x0 - x1 + x2 - x3, y0 - y1 + y2 - y3);
        let (dx1, dx2, dy1, dy2) = (x1 - x2, x3 - x2, y1 - y2, y3 - y2);
        let determinant = dx1 * dy2 - dx2 * dy1;
        let g = (sx * dy2 - dx2 * sy) / determinant;
        let h = (dx1 * sy - sx * dy1) / determinant;
        [
            [x1 - x0 + g * x1, x3 - x0 + h * x3, x0],
            [y1 - y0 + g * y1, y3 - y0 + h * y3, y0],
            [g, h, 1.0],
        ]
    }

    /// Maps a pixel of the result to a position in the image, by way of the unit square.
    fn place(moved: Corners, size: (usize, usize), x: f64, y: f64) -> (f64, f64) {
        let map = product(from_square(corners(size)), inverse(from_square(moved)));
        let (x, y) = (x + 0.5, y + 0.5);
        let at = |row: [f64; 3]| row[0] * x + row[1] * y + row[2];
        let w = at(map[2]);
        (at(map[0]) / w - 0.5, at(map[1]) / w - 0.5)
    }

    #[test]
    fn pixels_are_those_of_a_naive_reference() {
        let size = (24, 31);
        let source = image_of(size.0, size.1, 3);
        for (number, mut draws) in draws().take(40).enumerate() {
            let perspective = RandomPerspective {
                filter: arguments::SAMPLINGS[number % 2].1,
                fill: vec![Real(7.0), Real(90.0), Real(200.0)],
                ..always(0.6)
            };
            let moved = perspective.moved(size, &mut draws.clone()).unwrap();
            let mut scratch = Scratch {
                front: source.clone(),
                ..Scratch::default()
            };
            perspective.apply(&mut scratch, &mut draws).unwrap();
            let fill = [7.0, 90.0, 200.0];
            let expected = sampled(&source, perspective.filter, &fill, |x, y| {
                place(moved, size, x, y)
            });
            assert_sampled(&scratch.front, &expected);
        }
    }

    #[test]
    fn a_smaller_square_is_a_smaller_image() {
        // The corners of 5 x 5 pixels move to those of the middle 3 x 3.
        let moved = [[1, 1], [3, 1], [3, 3], [1, 3]];
        let map = places((5, 5), moved).unwrap();
        let at = |part: [f64; 3], x: f64, y: f64| part[0] * x + part[1] * y + part[2];
        for (bx, expected) in [(-2.0, -1.5), (0.0, 2.5), (1.0, 4.5)] {
            let divisor = at(map.divisor.unwrap(), bx, 0.0);
            let x = at(map.x, bx, 0.0) / divisor;
            assert!((x - expected).abs() < 1e-9, "{bx}: {x}");
        }
    }

    #[test]
    fn images_stay_where_corners_do() {
        for (distortion, height, width) in [(0.0, 9, 7), (0.5, 1, 7), (1.0, 1, 1), (0.9, 3, 3)] {
            let mut scratch = Scratch {
                front: image_of(height, width, 3),
                ..Scratch::default()
            };
            let before = scratch.front.u8s.clone();
            for mut draws in draws().take(20) {
                always(distortion).apply(&mut scratch, &mut draws).unwrap();
                assert_eq!(scratch.front.u8s, before, "{distortion} {height}x{width}");
            }
        }
    }

    #[test]
    fn crossed_corners_end_in_no_panic() {
        for filter in [Interpolation::Nearest, Interpolation::Bilinear] {
            let perspective = RandomPerspective {
                filter,
                ..always(1.0)
            };
            for side in 1..7 {
                for mut draws in draws().take(200) {
                    let mut scratch = Scratch {
                        front: image_of(side, 4, 1),
                        ..Scratch::default()
                    };
                    perspective.apply(&mut scratch, &mut draws).unwrap();
                    assert_eq!(scratch.front.u8s.len(), side * 4);
                }
            }
        }
    }

    #[test]
    fn corners_are_drawn_in_their_ranges() {
        let (height, width) = SIZE;
        // A corner moves by at most half of half the image's height (120 rows) and width (90
        // columns).
        let (down, across) = (30, 22);
        let drawn: Vec<Corners> = draws()
            .filter_map(|mut draws| always(0.5).moved(SIZE, &mut draws))
            .collect();
        for (corner, [x, y]) in corners(SIZE).into_iter().enumerate() {
            let xs = if x == 0 {
                0..=across
            } else {
                width - 1 - across..=width - 1
            };
            let ys = if y == 0 {
                0..=down
            } else {
                height - 1 - down..=height - 1
            };
            for (axis, range) in [(0, xs), (1, ys)] {
                let mut found: Vec<usize> = drawn.iter().map(|c| c[corner][axis]).collect();
                found.sort_unstable();
                found.dedup();
                assert_eq!(found, range.collect::<Vec<_>>(), "{corner} {axis}");
            }
        }
        for p in [0.0, 0.3, 1.0] {
            let perspective = RandomPerspective {
                p: Real(p),
                ..always(0.5)
            };
            occurs(p, |draws| perspective.moved(SIZE, draws).is_some());
        }
    }

    #[test]
    fn programs_and_batches_change_no_byte() {
        assert_fused_and_row_by_row("random_perspective", vec![]);
        let all = vec![lit(0.8), lit(1.0), lit("nearest"), list(&[1.0, 2.0, 3.0])];
        assert_fused_and_row_by_row("random_perspective", all);
    }

    #[test]
    fn arguments_are_read_and_mistakes_named() {
        let text = |args: Vec<Expr>| {
            let args = std::iter::once(col("image")).chain(args).collect();
            let op = op(&call("random_perspective", args));
            (op.to_string(), op.definition())
        };
        let (shown, definition) = text(vec![]);
        assert_eq!(shown, "random_perspective 0.5 p=0.5");
        assert_eq!(
            definition,
            "RandomPerspective { distortion_scale: Real(0.5), p: Real(0.5), filter: Bilinear, fill: [Real(0.0)] }",
        );
        let (_, definition) = text(vec![lit(1), lit(0.25), lit("nearest"), lit(9)]);
        assert_eq!(
            definition,
            "RandomPerspective { distortion_scale: Real(1.0), p: Real(0.25), filter: Nearest, fill: [Real(9.0)] }",
        );
        for (args, message) in [
            (
                vec![lit(1.5)],
                "distortion_scale must be between 0 and 1, found 1.5",
            ),
            (
                vec![lit(-1)],
                "distortion_scale must be between 0 and 1, found -1",
            ),
            (vec![lit(0.5), lit(2)], "p must be between 0 and 1, found 2"),
            (
                vec![lit(0.5), lit(1), lit("lanczos")],
                "filter must be one of 'nearest', 'bilinear'",
            ),
            (
                vec![lit(0.5), lit(1), lit("nearest"), list(&[1.0, 2.0])],
                "fill must be one number, or one per channel, found 2 numbers for 3 channels",
            ),
            (
                vec![lit(0.5), lit(1), lit("nearest"), lit(1), lit(1)],
                "expected 1 to 5 arguments as in random_perspective(",
            ),
        ] {
            let args = std::iter::once(decoded()).chain(args).collect();
            let found = failure(call("random_perspective", args), &pictures());
            assert!(found.contains(message), "{found}\n    lacks: {message}");
        }
    }
}
