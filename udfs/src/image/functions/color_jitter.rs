//! `color_jitter`: changes brightness, contrast, saturation and hue by random factors.

use std::sync::Arc;

use datafusion::common::{Result, plan_err};

use super::arguments;
use crate::args::CallArgs;
use crate::draw::Draws;
use crate::facts::{Algebra, Purity, Scale};
use crate::image::definition;
use crate::image::kernel::color::{Adjust, adjust};
use crate::image::op::{Buffers, ImageFunction, ImageOp};
use crate::image::scratch::Scratch;
use crate::image::values::Range;
use crate::info::{COLOR, FunctionInfo, IMAGE, arg, facts};
use crate::tensor::TensorType;

pub(super) static FUNCTION: ImageFunction = ImageFunction {
    info: FunctionInfo {
        name: "color_jitter",
        category: COLOR,
        signature: "color_jitter(image, brightness [, contrast [, saturation [, hue]]])",
        summary: "Changes brightness, contrast, saturation and hue by random factors in random order.",
        arguments: &[
            IMAGE,
            arg(
                "brightness",
                "x: factor uniform in [max(0, 1 - x), 1 + x]; or [min, max].",
            ),
            arg("contrast", "As brightness; default 0."),
            arg("saturation", "As brightness; default 0."),
            arg(
                "hue",
                "x: turn uniform in [-x, x] of a circle, at most 0.5; or [min, max]; default 0.",
            ),
        ],
        returns: "An image of the same size and element type.",
        example: "SELECT color_jitter(decode_image(image), 0.4, 0.4, 0.4, 0.1) FROM photos",
        counterpart: "torchvision v2.ColorJitter: given factors and order, within 1 of 255 a change (2 \
            for hue). Factors that cannot change anything are left out.",
        facts: facts(Purity::Random, Algebra::Global, false)
            .keeping_shape()
            .scaled(Scale::Range),
    },
    parse,
};

fn parse(args: &CallArgs, _: Option<TensorType>) -> Result<Arc<dyn ImageOp>> {
    let usage = "color_jitter(image, brightness, contrast, saturation, hue)";
    args.expect_count(2, 5, usage)?;
    Ok(Arc::new(ColorJitter {
        brightness: factor(args, 1, "brightness")?,
        contrast: factor(args, 2, "contrast")?,
        saturation: factor(args, 3, "saturation")?,
        hue: arguments::around(args, 4, "hue", 0.5)?,
    }))
}

/// Reads argument `i` as the range of a factor around 1: `x` means `[max(0, 1 - x), 1 + x]`, and a
/// list is the range itself.
fn factor(args: &CallArgs, i: usize, what: &str) -> Result<Range> {
    let name = args.function();
    match args.reals(i, what)?.as_deref() {
        None => Ok(arguments::span((1.0, 1.0))),
        Some(&[x]) if x >= 0.0 => Ok(arguments::span((f64::max(0.0, 1.0 - x), 1.0 + x))),
        Some(&[low, high]) if low >= 0.0 => Ok(arguments::span(args.ordered(what, low, high)?)),
        Some(_) => plan_err!(
            "{name}: {what} must be a number that is not negative, or a range [low, high] of such numbers"
        ),
    }
}

#[derive(Debug)]
pub(super) struct ColorJitter {
    pub(super) brightness: Range,
    pub(super) contrast: Range,
    pub(super) saturation: Range,
    pub(super) hue: Range,
}

impl ColorJitter {
    /// Draws factors of brightness, contrast, saturation and hue, and a uniformly random order of
    /// the four changes. A factor that changes nothing (1, or 0 for hue) is left out.
    fn changes(&self, draws: &mut Draws) -> Vec<Adjust> {
        let ranges = [self.brightness, self.contrast, self.saturation, self.hue];
        let mut order = [0, 1, 2, 3];
        for i in (1..4).rev() {
            order.swap(i, draws.up_to(i));
        }
        let factors = ranges.map(|range| arguments::uniform(draws, range));
        order
            .into_iter()
            .filter(|&i| ranges[i].0 != ranges[i].1 || factors[i] != [1.0, 1.0, 1.0, 0.0][i])
            .map(|i| match i {
                0 => Adjust::Brightness(factors[0]),
                1 => Adjust::Contrast(factors[1]),
                2 => Adjust::Saturation(factors[2]),
                _ => Adjust::Hue(factors[3]),
            })
            .collect()
    }
}

impl ImageOp for ColorJitter {
    fn function(&self) -> &'static ImageFunction {
        &FUNCTION
    }

    fn definition(&self) -> String {
        definition::fields(
            "ColorJitter",
            &[
                ("brightness", definition::range(&self.brightness)),
                ("contrast", definition::range(&self.contrast)),
                ("saturation", definition::range(&self.saturation)),
                ("hue", definition::range(&self.hue)),
            ],
        )
    }

    fn apply(&self, scratch: &mut Scratch, draws: &mut Draws) -> Result<(), String> {
        adjust(&mut scratch.front, &self.changes(draws));
        Ok(())
    }

    fn buffers(&self) -> Buffers {
        Buffers::InPlace
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::image::testing::{ROWS, agree, draws, interval};

    #[test]
    fn changes_are_drawn_as_torchvision_draws_them() {
        let jitter = ColorJitter {
            brightness: interval(0.6, 1.4),
            contrast: interval(0.7, 1.3),
            saturation: interval(0.5, 1.5),
            hue: interval(-0.1, 0.1),
        };
        let mut factors = vec![Vec::new(); 4];
        let mut orders = BTreeMap::new();
        for mut draws in draws() {
            let mut order = Vec::new();
            for change in jitter.changes(&mut draws) {
                let (i, factor) = match change {
                    Adjust::Brightness(f) => (0, f),
                    Adjust::Contrast(f) => (1, f),
                    Adjust::Saturation(f) => (2, f),
                    Adjust::Hue(f) => (3, f),
                };
                factors[i].push(factor);
                order.push(i);
            }
            *orders.entry(order).or_insert(0) += 1;
        }
        agree("color_jitter", factors);
        // All 24 orders are equally likely: chi-square with 23 degrees of freedom, 49.7 is p =
        // 1e-3.
        let expected = ROWS as f64 / 24.0;
        let chi: f64 = orders
            .values()
            .map(|&n| (f64::from(n) - expected).powi(2) / expected)
            .sum();
        assert!(orders.len() == 24 && chi < 49.7, "{orders:?}");
    }
}
