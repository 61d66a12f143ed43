//! Entries of functions over encoded images.

use super::{Algebra, FunctionInfo, Purity, arg, facts};

const CATEGORY: &str = "decoding";

pub(super) const FUNCTIONS: &[FunctionInfo] = &[
    FunctionInfo {
        name: "decode_image",
        category: CATEGORY,
        signature: "decode_image(bytes [, mode])",
        summary: "Decodes a JPEG, PNG, WebP, GIF (first frame), BMP or TIFF image.",
        arguments: &[
            arg("bytes", "The file's bytes (Binary)."),
            arg(
                "mode",
                "'rgb' (default), 'gray' (ITU-R BT.601 luma in Pillow's fixed point) or 'luma' (a JPEG's own \
                    luma, which saves decoding its colors; other files as 'gray').",
            ),
        ],
        returns: "An image u8[H, W, 3], or u8[H, W, 1] in modes 'gray' and 'luma'; height and width differ by row.",
        example: "SELECT decode_image(image) FROM photos",
        counterpart: "torchvision.io.decode_image(apply_exif_orientation=True), PIL.Image.open: \
            orientation is applied, alpha dropped without blending, 16 bits keep the high byte, CMYK \
            and YCCK become RGB as in Pillow. JPEG bytes differ from libjpeg-turbo's by rounding \
            (chroma upsampling). A truncated file is an error, as is an image above 178 956 970 pixels.",
        facts: facts(Purity::Pure, Algebra::Decode, true),
    },
    FunctionInfo {
        name: "image_width",
        category: CATEGORY,
        signature: "image_width(bytes)",
        summary: "Width of an encoded image as shown, from its header alone.",
        arguments: &[arg("bytes", "The file's bytes (Binary).")],
        returns: "Int32, in pixels, orientation applied.",
        example: "SELECT * FROM photos WHERE image_width(image) >= 224",
        counterpart: "PIL.Image.open(..).width after ImageOps.exif_transpose.",
        facts: facts(Purity::Pure, Algebra::Opaque, true),
    },
    FunctionInfo {
        name: "image_height",
        category: CATEGORY,
        signature: "image_height(bytes)",
        summary: "Height of an encoded image as shown, from its header alone.",
        arguments: &[arg("bytes", "The file's bytes (Binary).")],
        returns: "Int32, in pixels, orientation applied.",
        example: "SELECT * FROM photos WHERE image_height(image) >= 224",
        counterpart: "PIL.Image.open(..).height after ImageOps.exif_transpose.",
        facts: facts(Purity::Pure, Algebra::Opaque, true),
    },
];
