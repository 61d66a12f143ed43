//! `grayscale` and `random_grayscale`: convert an image to gray.

use std::sync::Arc;

use datafusion::common::{Result, plan_err};

use super::arguments;
use crate::args::CallArgs;
use crate::draw::Draws;
use crate::facts::{Algebra, Purity};
use crate::image::call::ImageCall;
use crate::image::definition;
use crate::image::op::{ImageFunction, ImageOp};
use crate::image::scratch::Scratch;
use crate::image::values::Real;
use crate::info::{COLOR, FunctionInfo, IMAGE, arg, facts};
use crate::tensor::TensorType;

/// Converts an image to gray.
pub(super) static GRAYSCALE: ImageFunction = ImageFunction {
    info: FunctionInfo {
        name: "grayscale",
        category: COLOR,
        signature: "grayscale(image [, channels])",
        summary: "Brings an image to gray: 0.2989 R + 0.587 G + 0.114 B.",
        arguments: &[IMAGE, arg("channels", "1 (default) or 3 equal channels.")],
        returns: "A gray image of the same element type; bytes are truncated.",
        example: "SELECT grayscale(decode_image(image)) FROM photos",
        counterpart: "torchvision v2.Grayscale(num_output_channels): within 1 of 255 (order of sums).",
        facts: facts(Purity::Pure, Algebra::Pointwise, false),
    },
    parse: parse_grayscale,
};

/// Converts an image to gray with a probability.
pub(super) static RANDOM_GRAYSCALE: ImageFunction = ImageFunction {
    info: FunctionInfo {
        name: "random_grayscale",
        category: COLOR,
        signature: "random_grayscale(image [, p])",
        summary: "Brings an image to gray with a probability, keeping its channels.",
        arguments: &[IMAGE, arg("p", "Probability, 0 to 1; default 0.1.")],
        returns: "An image of the same type.",
        example: "SELECT random_grayscale(decode_image(image), 0.2) FROM photos",
        counterpart: "torchvision v2.RandomGrayscale(p): as grayscale given the choice.",
        facts: facts(Purity::Random, Algebra::Pointwise, false),
    },
    parse: parse_random_grayscale,
};

fn parse_grayscale(args: &CallArgs, _: Option<TensorType>) -> Result<Arc<dyn ImageOp>> {
    args.expect_count(1, 2, "grayscale(image [, channels])")?;
    let channels = if args.len() > 1 {
        args.whole(1, "channels", (1, 3))?
    } else {
        1
    };
    if channels == 2 {
        return plan_err!("grayscale: channels must be 1 or 3, found 2");
    }
    Ok(Arc::new(Grayscale {
        channels: channels as usize,
    }))
}

fn parse_random_grayscale(args: &CallArgs, _: Option<TensorType>) -> Result<Arc<dyn ImageOp>> {
    args.expect_count(1, 2, "random_grayscale(image [, p])")?;
    let p = arguments::probability(args, 1, 0.1)?;
    Ok(Arc::new(RandomGrayscale { p }))
}

#[derive(Debug)]
pub(super) struct Grayscale {
    pub(super) channels: usize,
}

#[derive(Debug)]
pub(super) struct RandomGrayscale {
    pub(super) p: Real,
}

impl ImageOp for Grayscale {
    fn function(&self) -> &'static ImageFunction {
        &GRAYSCALE
    }

    fn definition(&self) -> String {
        definition::fields("Grayscale", &[("channels", self.channels.to_string())])
    }

    fn apply(&self, scratch: &mut Scratch, _: &mut Draws) -> Result<(), String> {
        scratch.make_gray(self.channels);
        Ok(())
    }

    fn shown(&self) -> String {
        self.channels.to_string()
    }

    fn output(&self, input: TensorType) -> Result<TensorType> {
        Ok(TensorType {
            channels: self.channels,
            ..input
        })
    }

    fn call(&self) -> ImageCall {
        ImageCall::Grayscale(self.channels)
    }
}

impl ImageOp for RandomGrayscale {
    fn function(&self) -> &'static ImageFunction {
        &RANDOM_GRAYSCALE
    }

    fn definition(&self) -> String {
        definition::fields("RandomGrayscale", &[("p", definition::real(&self.p))])
    }

    fn apply(&self, scratch: &mut Scratch, draws: &mut Draws) -> Result<(), String> {
        if draws.chance(self.p.0) {
            let channels = scratch.front.shape.channels;
            scratch.make_gray(channels);
        }
        Ok(())
    }

    fn shown(&self) -> String {
        self.p.0.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::testing::occurs;

    #[test]
    fn choices_have_their_probability() {
        for p in [0.0, 0.1, 0.5, 1.0] {
            let gray = RandomGrayscale { p: Real(p) };
            occurs(p, |draws| {
                let mut scratch = Scratch::default();
                scratch.front.shape.height = 1;
                scratch.front.shape.width = 1;
                scratch.front.u8s = vec![1, 200, 30];
                gray.apply(&mut scratch, draws).unwrap();
                scratch.repeat_channel();
                scratch.front.u8s[0] == scratch.front.u8s[1]
            });
        }
    }
}
