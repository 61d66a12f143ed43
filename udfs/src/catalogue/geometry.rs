//! Entries of functions that move or mix pixels by place.

use super::{Algebra, ArgumentInfo, FunctionInfo, IMAGE, Purity, Scale, arg, facts};

const CATEGORY: &str = "geometry";
const HEIGHT: ArgumentInfo = arg("height", "Rows of the result, 1 to 65535.");
const WIDTH: ArgumentInfo = arg("width", "Columns of the result, 1 to 65535.");
const FILTER: ArgumentInfo = arg(
    "filter",
    "'bilinear' (default), 'bicubic', 'lanczos', all antialiased, or 'nearest'.",
);
const TURN_FILTER: ArgumentInfo = arg("filter", "'nearest' (default) or 'bilinear'.");
const EXPAND: ArgumentInfo = arg(
    "expand",
    "Whether the result grows to hold the whole turned image; default false.",
);
const TURN_FILL: ArgumentInfo = arg(
    "fill",
    "Value of uncovered places, a number or one a channel; default 0.",
);

pub(super) const FUNCTIONS: &[FunctionInfo] = &[
    FunctionInfo {
        name: "resize",
        category: CATEGORY,
        signature: "resize(image, height, width [, filter])",
        summary: "Resizes an image to a height and width.",
        arguments: &[IMAGE, HEIGHT, WIDTH, FILTER],
        returns: "An image of that size, same element type.",
        example: "SELECT resize(decode_image(image), 224, 224) FROM photos",
        counterpart: "torchvision v2.Resize((h, w), antialias=True): within 1 of 255 on bytes, 1e-5 on \
            floats. 'lanczos' is Pillow's, which torchvision offers on PIL images only.",
        facts: facts(Purity::Pure, Algebra::Spatial, false).averaging(),
    },
    FunctionInfo {
        name: "resize_shortest",
        category: CATEGORY,
        signature: "resize_shortest(image, size [, filter])",
        summary: "Resizes an image so that its shorter side has a size, keeping its proportions.",
        arguments: &[
            IMAGE,
            arg("size", "Pixels of the shorter side, 1 to 65535."),
            FILTER,
        ],
        returns: "An image of that size, same element type; the longer side is rounded down.",
        example: "SELECT resize_shortest(decode_image(image), 256) FROM photos",
        counterpart: "torchvision v2.Resize(size, antialias=True): as resize.",
        facts: facts(Purity::Pure, Algebra::Spatial, true).averaging(),
    },
    FunctionInfo {
        name: "center_crop",
        category: CATEGORY,
        signature: "center_crop(image, height, width)",
        summary: "Cuts out the centre of an image; zeros surround an image that is smaller.",
        arguments: &[IMAGE, HEIGHT, WIDTH],
        returns: "An image of that size, same element type.",
        example: "SELECT center_crop(resize_shortest(decode_image(image), 256), 224, 224) FROM photos",
        counterpart: "torchvision v2.CenterCrop((h, w)): equal.",
        facts: facts(Purity::Pure, Algebra::Spatial, false),
    },
    FunctionInfo {
        name: "crop",
        category: CATEGORY,
        signature: "crop(image, top, left, height, width)",
        summary: "Cuts out a rectangle; places outside the image are zeros.",
        arguments: &[
            IMAGE,
            arg("top", "First row, may be negative."),
            arg("left", "First column, may be negative."),
            HEIGHT,
            WIDTH,
        ],
        returns: "An image of that size, same element type.",
        example: "SELECT crop(decode_image(image), 0, 0, 64, 64) FROM photos",
        counterpart: "torchvision v2.functional.crop: equal.",
        facts: facts(Purity::Pure, Algebra::Spatial, false),
    },
    FunctionInfo {
        name: "pad",
        category: CATEGORY,
        signature: "pad(image, padding [, fill [, mode]])",
        summary: "Adds a border.",
        arguments: &[
            IMAGE,
            arg(
                "padding",
                "Pixels: one number, [left and right, top and bottom], or [left, top, right, bottom].",
            ),
            arg(
                "fill",
                "Value of the border in mode 'constant', a number or one a channel; default 0.",
            ),
            arg(
                "mode",
                "'constant' (default), 'edge', 'reflect' or 'symmetric'.",
            ),
        ],
        returns: "The larger image, same element type.",
        example: "SELECT pad(decode_image(image), 4, 0, 'reflect') FROM photos",
        counterpart: "torchvision v2.Pad(padding, fill, padding_mode): equal.",
        facts: facts(Purity::Pure, Algebra::Spatial, true).scaled(Scale::Constants),
    },
    FunctionInfo {
        name: "random_crop",
        category: CATEGORY,
        signature: "random_crop(image, height, width [, padding])",
        summary: "Cuts out a rectangle at a random place, after padding with zeros.",
        arguments: &[
            IMAGE,
            HEIGHT,
            WIDTH,
            arg("padding", "As for pad; default none."),
        ],
        returns: "An image of that size, same element type; an error where the padded image is smaller.",
        example: "SELECT random_crop(decode_image(image), 32, 32, 4) FROM photos",
        counterpart: "torchvision v2.RandomCrop((h, w), padding): equal given the place.",
        facts: facts(Purity::Random, Algebra::Spatial, true),
    },
    FunctionInfo {
        name: "random_resized_crop",
        category: CATEGORY,
        signature: "random_resized_crop(image, height, width [, scale_min, scale_max \
            [, ratio_min, ratio_max]] [, filter])",
        summary: "Cuts out a rectangle of random area, aspect ratio and place, and resizes it.",
        arguments: &[
            IMAGE,
            HEIGHT,
            WIDTH,
            arg(
                "scale_min",
                "Least part of the image's area; default 0.08. [min, max] also serves.",
            ),
            arg("scale_max", "Greatest part of the image's area; default 1."),
            arg(
                "ratio_min",
                "Least width / height; default 3/4. [min, max] also serves.",
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
    FunctionInfo {
        name: "hflip",
        category: CATEGORY,
        signature: "hflip(image)",
        summary: "Mirrors left and right.",
        arguments: &[IMAGE],
        returns: "The mirrored image.",
        example: "SELECT hflip(decode_image(image)) FROM photos",
        counterpart: "torchvision v2.functional.horizontal_flip: equal.",
        facts: facts(Purity::Pure, Algebra::Select, false).keeping_shape(),
    },
    FunctionInfo {
        name: "vflip",
        category: CATEGORY,
        signature: "vflip(image)",
        summary: "Mirrors top and bottom.",
        arguments: &[IMAGE],
        returns: "The mirrored image.",
        example: "SELECT vflip(decode_image(image)) FROM photos",
        counterpart: "torchvision v2.functional.vertical_flip: equal.",
        facts: facts(Purity::Pure, Algebra::Select, false).keeping_shape(),
    },
    FunctionInfo {
        name: "random_hflip",
        category: CATEGORY,
        signature: "random_hflip(image [, p])",
        summary: "Mirrors left and right with a probability.",
        arguments: &[IMAGE, arg("p", "Probability, 0 to 1; default 0.5.")],
        returns: "The image, mirrored or not.",
        example: "SELECT random_hflip(decode_image(image), 0.5) FROM photos",
        counterpart: "torchvision v2.RandomHorizontalFlip(p): equal given the choice.",
        facts: facts(Purity::Random, Algebra::Select, false).keeping_shape(),
    },
    FunctionInfo {
        name: "random_vflip",
        category: CATEGORY,
        signature: "random_vflip(image [, p])",
        summary: "Mirrors top and bottom with a probability.",
        arguments: &[IMAGE, arg("p", "Probability, 0 to 1; default 0.5.")],
        returns: "The image, mirrored or not.",
        example: "SELECT random_vflip(decode_image(image)) FROM photos",
        counterpart: "torchvision v2.RandomVerticalFlip(p): equal given the choice.",
        facts: facts(Purity::Random, Algebra::Select, false).keeping_shape(),
    },
    FunctionInfo {
        name: "rotate",
        category: CATEGORY,
        signature: "rotate(image, degrees [, filter, expand, fill])",
        summary: "Rotates an image counter-clockwise about its centre.",
        arguments: &[
            IMAGE,
            arg("degrees", "Angle."),
            TURN_FILTER,
            EXPAND,
            TURN_FILL,
        ],
        returns: "An image of the same size, or larger with expand.",
        example: "SELECT rotate(decode_image(image), 15) FROM photos",
        counterpart: "torchvision v2.functional.rotate on tensors: 'bilinear' within 1 of 255; 'nearest' \
            may choose the other of two pixels whose borders a sample point meets.",
        facts: facts(Purity::Pure, Algebra::Spatial, false).scaled(Scale::Constants),
    },
    FunctionInfo {
        name: "random_rotate",
        category: CATEGORY,
        signature: "random_rotate(image, degrees [, filter, expand, fill])",
        summary: "Rotates an image by a random angle.",
        arguments: &[
            IMAGE,
            arg(
                "degrees",
                "Uniform in [-degrees, degrees], or in [min, max].",
            ),
            TURN_FILTER,
            EXPAND,
            TURN_FILL,
        ],
        returns: "An image of the same size; of differing sizes with expand.",
        example: "SELECT random_rotate(decode_image(image), 10) FROM photos",
        counterpart: "torchvision v2.RandomRotation(degrees): as rotate given the angle.",
        facts: facts(Purity::Random, Algebra::Spatial, false).scaled(Scale::Constants),
    },
    FunctionInfo {
        name: "gaussian_blur",
        category: CATEGORY,
        signature: "gaussian_blur(image, kernel [, sigma_min [, sigma_max]])",
        summary: "Blurs an image with a Gaussian, of random width where a range is given.",
        arguments: &[
            IMAGE,
            arg(
                "kernel",
                "Places of the kernel, odd, 1 to 1023; [across, down] also serves.",
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
        returns: "An image of the same size; an error where it is too small for the kernel's mirror.",
        example: "SELECT gaussian_blur(decode_image(image), 23, 0.1, 2.0) FROM photos",
        counterpart: "torchvision v2.GaussianBlur(kernel, sigma): within 1 of 255 given sigma. It counts \
            as random even where one sigma is given.",
        facts: facts(Purity::Random, Algebra::Spatial, true)
            .keeping_shape()
            .averaging(),
    },
    FunctionInfo {
        name: "random_erasing",
        category: CATEGORY,
        signature: "random_erasing(image [, p [, scale_min, scale_max [, ratio_min, ratio_max [, value]]]])",
        summary: "Overwrites a random rectangle with a probability.",
        arguments: &[
            arg("image", "A decoded image, [H, W, C] or [C, H, W]."),
            arg("p", "Probability, 0 to 1; default 0.5."),
            arg(
                "scale_min",
                "Least part of the image's area; default 0.02. [min, max] also serves.",
            ),
            arg(
                "scale_max",
                "Greatest part of the image's area; default 0.33.",
            ),
            arg(
                "ratio_min",
                "Least height / width; default 0.3. [min, max] also serves.",
            ),
            arg("ratio_max", "Greatest height / width; default 3.3."),
            arg(
                "value",
                "A number, one a channel, or 'random' (normal draws, float images only); default 0.",
            ),
        ],
        returns: "The image, a rectangle of it overwritten or not.",
        example: "SELECT random_erasing(normalize(decode_image(image), 'imagenet'), 0.25) FROM photos",
        counterpart: "torchvision v2.RandomErasing(p, scale, ratio, value): equal given the rectangle.",
        facts: facts(Purity::Random, Algebra::Spatial, false)
            .keeping_shape()
            .scaled(Scale::Constants),
    },
];
