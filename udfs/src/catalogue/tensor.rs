//! Entries of functions that make a tensor of an image or a label.

use super::{Algebra, FunctionInfo, Purity, Scale, arg, facts};

const CATEGORY: &str = "tensors";

pub(super) const FUNCTIONS: &[FunctionInfo] = &[
    FunctionInfo {
        name: "to_float",
        category: CATEGORY,
        signature: "to_float(image [, type])",
        summary: "Makes samples floats; bytes are divided by 255.",
        arguments: &[
            arg("image", "A decoded image, [H, W, C] or [C, H, W]."),
            arg("type", "'f32' (default) or 'f16'."),
        ],
        returns: "A float image of the same size; bytes come to lie in 0 to 1.",
        example: "SELECT to_float(decode_image(image), 'f16') FROM photos",
        counterpart: "torchvision v2.ToDtype(torch.float32, scale=True): equal; 'f16' rounds that.",
        facts: facts(Purity::Pure, Algebra::Pointwise, false)
            .affine()
            .scaled(Scale::Rescales),
    },
    FunctionInfo {
        name: "normalize",
        category: CATEGORY,
        signature: "normalize(image, mean, std) or normalize(image, 'imagenet')",
        summary: "Subtracts a mean and divides by a standard deviation, per channel.",
        arguments: &[
            arg(
                "image",
                "A decoded image, [H, W, C] or [C, H, W]; u8 is first divided by 255.",
            ),
            arg(
                "mean",
                "A number, or one a channel, on the scale 0 to 1. 'imagenet' gives both.",
            ),
            arg("std", "A number, or one a channel, not 0."),
        ],
        returns: "A float image of the same size, f32 unless the image is f16.",
        example: "SELECT normalize(decode_image(image), [0.5, 0.5, 0.5], [0.25, 0.25, 0.25]) FROM photos",
        counterpart: "torchvision v2.ToDtype(torch.float32, scale=True) then v2.Normalize(mean, std): equal \
            in single precision.",
        facts: facts(Purity::Pure, Algebra::Pointwise, false)
            .affine()
            .scaled(Scale::Leaves),
    },
    FunctionInfo {
        name: "to_chw",
        category: CATEGORY,
        signature: "to_chw(image)",
        summary: "Lays an image out as a plane per channel, as PyTorch's layers read it.",
        arguments: &[arg("image", "A decoded image [H, W, C].")],
        returns: "The image as [C, H, W].",
        example: "SELECT to_chw(normalize(resize(decode_image(image), 224, 224), 'imagenet')) FROM photos",
        counterpart: "Tensor.permute(2, 0, 1).contiguous(): equal.",
        facts: facts(Purity::Pure, Algebra::Layout, false).keeping_shape(),
    },
    FunctionInfo {
        name: "one_hot",
        category: CATEGORY,
        signature: "one_hot(label, n)",
        summary: "Makes a label a vector with 1 at the label and 0 elsewhere.",
        arguments: &[
            arg(
                "label",
                "An integer from 0 to n - 1; another is an error of its row.",
            ),
            arg("n", "Length of the vector, 1 to 1048576."),
        ],
        returns: "A tensor f32[n].",
        example: "SELECT one_hot(label, 10) FROM photos",
        counterpart: "torch.nn.functional.one_hot, which gives int64; floats are what soft labels need.",
        facts: facts(Purity::Pure, Algebra::Opaque, true),
    },
];
