//! `gaussian_blur`: blurs an image with a Gaussian, of random width if a range is given.

use std::sync::Arc;

use datafusion::common::{Result, plan_err};

use super::arguments;
use crate::args::CallArgs;
use crate::draw::Draws;
use crate::facts::{Algebra, Purity};
use crate::image::definition;
use crate::image::kernel::blur;
use crate::image::op::{Buffers, ImageFunction, ImageOp};
use crate::image::scratch::Scratch;
use crate::image::values::Range;
use crate::info::{FunctionInfo, GEOMETRY, IMAGE, arg, facts};
use crate::tensor::TensorType;

pub(super) static FUNCTION: ImageFunction = ImageFunction {
    info: FunctionInfo {
        name: "gaussian_blur",
        category: GEOMETRY,
        signature: "gaussian_blur(image, kernel [, sigma_min [, sigma_max]])",
        summary: "Blurs an image with a Gaussian, of random width if a range is given.",
        arguments: &[
            IMAGE,
            arg(
                "kernel",
                "Places of the kernel, odd, 1 to 1023; [across, down] is also accepted.",
            ),
            arg(
                "sigma_min",
                "Least standard deviation in pixels; default 0.1. Alone: the only one.",
            ),
            arg(
                "sigma_max",
                "Greatest standard deviation in pixels; default 2.",
            ),
        ],
        returns: "An image of the same size; an error if it is too small to mirror half the kernel.",
        example: "SELECT gaussian_blur(decode_image(image), 23, 0.1, 2.0) FROM photos",
        counterpart: "torchvision v2.GaussianBlur(kernel, sigma): within 1 of 255 given sigma. It counts \
            as random even where one sigma is given.",
        facts: facts(Purity::Random, Algebra::Spatial, true)
            .keeping_shape()
            .averaging(),
    },
    parse,
};

fn parse(args: &CallArgs, _: Option<TensorType>) -> Result<Arc<dyn ImageOp>> {
    let usage = "gaussian_blur(image, kernel [, sigma_min [, sigma_max]])";
    args.expect_count(2, 4, usage)?;
    let kernel = match args.reals(1, "kernel")?.as_deref() {
        None => (1, 1),
        Some(&[k]) => (odd(k)?, odd(k)?),
        Some(&[across, down]) => (odd(down)?, odd(across)?),
        Some(other) => {
            return plan_err!(
                "gaussian_blur: kernel must be 1 or 2 numbers, found {}",
                other.len()
            );
        }
    };
    let sigma = if args.len() == 3 && !args.is_list(2) {
        let sigma = args.real_in(2, "sigma", arguments::POSITIVE, 1.0)?;
        (sigma, sigma)
    } else {
        let (range, next) = arguments::pair(args, 2, "sigma", (0.1, 2.0))?;
        if next < args.len() {
            args.expect_count(2, next, usage)?;
        }
        range
    };
    if sigma.0 <= 0.0 {
        return plan_err!("gaussian_blur: sigma must be above 0, found {}", sigma.0);
    }
    Ok(Arc::new(GaussianBlur {
        kernel,
        sigma: arguments::span(sigma),
    }))
}

fn odd(k: f64) -> Result<usize> {
    if (1.0..=1023.0).contains(&k) && k % 2.0 == 1.0 {
        return Ok(k as usize);
    }
    plan_err!("gaussian_blur: kernel must be odd whole numbers from 1 to 1023, found {k}")
}

#[derive(Debug)]
pub(super) struct GaussianBlur {
    /// Height and width of the kernel, in pixels.
    pub(super) kernel: (usize, usize),
    pub(super) sigma: Range,
}

impl GaussianBlur {
    /// Draws the standard deviation of the Gaussian, in pixels.
    fn width(&self, draws: &mut Draws) -> f64 {
        arguments::uniform(draws, self.sigma)
    }
}

impl ImageOp for GaussianBlur {
    fn function(&self) -> &'static ImageFunction {
        &FUNCTION
    }

    fn definition(&self) -> String {
        definition::fields(
            "GaussianBlur",
            &[
                ("kernel", definition::pair(&self.kernel)),
                ("sigma", definition::range(&self.sigma)),
            ],
        )
    }

    fn acts_by_channel(&self) -> bool {
        true
    }

    fn apply(&self, scratch: &mut Scratch, draws: &mut Draws) -> Result<(), String> {
        let sigma = self.width(draws);
        blur::gaussian_blur(&mut scratch.front, self.kernel, sigma, &mut scratch.lines)
    }

    fn shown(&self) -> String {
        arguments::shown_size(self.kernel)
    }

    /// Work grows with the number of weights: the blur passes over the image twice, with one
    /// product per weight and sample.
    fn work(&self) -> u64 {
        /// Number of weights of the documented example, a kernel of 23 x 23: 23 in each direction.
        const TAPS: usize = 46;
        (100 * (self.kernel.0 + self.kernel.1) / TAPS) as u64
    }

    fn buffers(&self) -> Buffers {
        Buffers::InPlace
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::testing::{agree, draws, interval};

    #[test]
    fn widths_are_drawn_as_torchvision_draws_them() {
        let blur = GaussianBlur {
            kernel: (3, 3),
            sigma: interval(0.1, 2.0),
        };
        let widths = draws().map(|mut draws| blur.width(&mut draws));
        agree("gaussian_blur", vec![widths.collect()]);
    }
}
