//! `decode_image`: decodes an encoded file to pixels.

use std::sync::Arc;

use datafusion::common::Result;

use crate::args::CallArgs;
use crate::draw::Draws;
use crate::facts::{Algebra, Purity};
use crate::image::call::ImageCall;
use crate::image::op::{ImageFunction, ImageOp};
use crate::image::scratch::Scratch;
use crate::image::values::Mode;
use crate::info::{DECODING, FunctionInfo, arg, facts};
use crate::tensor::TensorType;

pub(super) static FUNCTION: ImageFunction = ImageFunction {
    info: FunctionInfo {
        name: "decode_image",
        category: DECODING,
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
    parse,
};

fn parse(args: &CallArgs, _: Option<TensorType>) -> Result<Arc<dyn ImageOp>> {
    args.expect_count(1, 2, "decode_image(bytes [, 'rgb' | 'gray' | 'luma'])")?;
    let modes = [
        ("rgb", Mode::Rgb),
        ("gray", Mode::Gray),
        ("luma", Mode::Luma),
    ];
    let mode = args.choice(1, "mode", &modes, Mode::Rgb)?;
    Ok(Arc::new(DecodeImage { mode }))
}

#[derive(Debug)]
pub(super) struct DecodeImage {
    pub(super) mode: Mode,
}

impl ImageOp for DecodeImage {
    fn function(&self) -> &'static ImageFunction {
        &FUNCTION
    }

    fn definition(&self) -> String {
        let mode = match self.mode {
            Mode::Rgb => "Rgb",
            Mode::Gray => "Gray",
            Mode::Luma => "Luma",
        };
        format!("Decode({mode})")
    }

    /// Never called: a program decodes its input before its functions run.
    fn apply(&self, _: &mut Scratch, _: &mut Draws) -> Result<(), String> {
        Err("an image cannot be decoded twice".to_owned())
    }

    fn shown(&self) -> String {
        let mode = match self.mode {
            Mode::Rgb => "",
            Mode::Gray => "gray",
            Mode::Luma => "luma",
        };
        mode.to_owned()
    }

    fn call(&self) -> ImageCall {
        ImageCall::Decode(self.mode)
    }
}
