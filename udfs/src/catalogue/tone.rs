//! Entries of functions that change colors.

use super::{Algebra, FunctionInfo, IMAGE, Purity, Scale, arg, facts};

const CATEGORY: &str = "color";

pub(super) const FUNCTIONS: &[FunctionInfo] = &[
    FunctionInfo {
        name: "color_jitter",
        category: CATEGORY,
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
    FunctionInfo {
        name: "grayscale",
        category: CATEGORY,
        signature: "grayscale(image [, channels])",
        summary: "Brings an image to gray: 0.2989 R + 0.587 G + 0.114 B.",
        arguments: &[IMAGE, arg("channels", "1 (default) or 3 equal channels.")],
        returns: "A gray image of the same element type; bytes are truncated.",
        example: "SELECT grayscale(decode_image(image)) FROM photos",
        counterpart: "torchvision v2.Grayscale(num_output_channels): within 1 of 255 (order of sums).",
        facts: facts(Purity::Pure, Algebra::Pointwise, false),
    },
    FunctionInfo {
        name: "random_grayscale",
        category: CATEGORY,
        signature: "random_grayscale(image [, p])",
        summary: "Brings an image to gray with a probability, keeping its channels.",
        arguments: &[IMAGE, arg("p", "Probability, 0 to 1; default 0.1.")],
        returns: "An image of the same type.",
        example: "SELECT random_grayscale(decode_image(image), 0.2) FROM photos",
        counterpart: "torchvision v2.RandomGrayscale(p): as grayscale given the choice.",
        facts: facts(Purity::Random, Algebra::Pointwise, false),
    },
    FunctionInfo {
        name: "solarize",
        category: CATEGORY,
        signature: "solarize(image, threshold)",
        summary: "Inverts samples at or above a threshold.",
        arguments: &[
            IMAGE,
            arg("threshold", "0 to 255 for u8 images, 0 to 1 for floats."),
        ],
        returns: "An image of the same type.",
        example: "SELECT solarize(decode_image(image), 128) FROM photos",
        counterpart: "torchvision v2.functional.solarize: equal.",
        facts: facts(Purity::Pure, Algebra::Pointwise, false).scaled(Scale::Constants),
    },
    FunctionInfo {
        name: "posterize",
        category: CATEGORY,
        signature: "posterize(image, bits)",
        summary: "Keeps the highest bits of each sample; floats are brought to that many levels.",
        arguments: &[IMAGE, arg("bits", "Bits to keep, 0 to 8.")],
        returns: "An image of the same type.",
        example: "SELECT posterize(decode_image(image), 4) FROM photos",
        counterpart: "torchvision v2.functional.posterize: equal.",
        facts: facts(Purity::Pure, Algebra::Pointwise, false).scaled(Scale::Constants),
    },
];
