//! `decode_image`: decodes an encoded file to pixels.

use std::sync::Arc;

use datafusion::common::Result;

use crate::args::CallArgs;
use crate::draw::Draws;
use crate::facts::{Algebra, FunctionFacts, Purity};
use crate::image::call::ImageCall;
use crate::image::op::{ImageFunction, ImageOp};
use crate::image::scratch::Scratch;
use crate::image::values::{Decoding, Mode};
use crate::info::{DECODING, FunctionInfo, arg, facts};
use crate::tensor::TensorType;

pub(super) static FUNCTION: ImageFunction = ImageFunction {
    info: FunctionInfo {
        name: "decode_image",
        category: DECODING,
        signature: "decode_image(bytes [, mode] [, damage])",
        summary: "Decodes a JPEG, PNG, WebP, GIF (first frame), BMP or TIFF image.",
        arguments: &[
            arg("bytes", "The file's bytes (Binary)."),
            arg(
                "mode",
                "'rgb' (default), 'gray' (ITU-R BT.601 luma in Pillow's fixed point) or 'luma' (a JPEG's own \
                    luma, which saves decoding its colors; other files as 'gray').",
            ),
            arg(
                "damage",
                "'lenient' (default): where a JPEG's coded data is damaged, pixels have defined values, whatever part of the \
                    image later functions read. 'strict': decodes the whole image, and damage is an error. It may also stand \
                    in the place of mode.",
            ),
        ],
        returns: "An image u8[H, W, 3], or u8[H, W, 1] in modes 'gray' and 'luma'; height and width differ by row.",
        example: "SELECT decode_image(image) FROM photos",
        counterpart: "torchvision.io.decode_image(apply_exif_orientation=True), PIL.Image.open: \
            orientation is applied, alpha dropped without blending, 16 bits keep the high byte, CMYK \
            and YCCK become RGB as in Pillow. The pixels of a JPEG are libjpeg-turbo's (accurate DCT, \
            fancy upsampling) to the bit. A truncated file is an error, as is an image above 178 956 970 pixels.",
        // Version 2: the pixels of JPEG files are those of libjpeg-turbo, and damaged coded
        // data is no error.
        facts: FunctionFacts {
            version: 2,
            ..facts(Purity::Pure, Algebra::Decode, true)
        },
    },
    parse,
};

fn parse(args: &CallArgs, _: Option<TensorType>) -> Result<Arc<dyn ImageOp>> {
    let usage = "decode_image(bytes [, 'rgb' | 'gray' | 'luma'] [, 'lenient' | 'strict'])";
    args.expect_count(1, 3, usage)?;
    let choices = [
        ("rgb", (Mode::Rgb, false)),
        ("gray", (Mode::Gray, false)),
        ("luma", (Mode::Luma, false)),
        ("lenient", (Mode::Rgb, false)),
        ("strict", (Mode::Rgb, true)),
    ];
    let (mode, is_strict) = args.choice(1, "mode", &choices, (Mode::Rgb, false))?;
    if is_strict {
        args.expect_count(1, 2, usage)?;
    }
    let damage = [("lenient", false), ("strict", true)];
    let is_strict = args.choice(2, "damage", &damage, is_strict)?;
    let decoding = Decoding { mode, is_strict };
    Ok(Arc::new(DecodeImage { decoding }))
}

#[derive(Debug)]
pub(super) struct DecodeImage {
    pub(super) decoding: Decoding,
}

impl ImageOp for DecodeImage {
    fn function(&self) -> &'static ImageFunction {
        &FUNCTION
    }

    fn definition(&self) -> String {
        let mode = match self.decoding.mode {
            Mode::Rgb => "Rgb",
            Mode::Gray => "Gray",
            Mode::Luma => "Luma",
        };
        if self.decoding.is_strict {
            format!("Decode({mode}, strict)")
        } else {
            format!("Decode({mode})")
        }
    }

    /// Never called: a program decodes its input before its functions run.
    fn apply(&self, _: &mut Scratch, _: &mut Draws) -> Result<(), String> {
        Err("an image cannot be decoded twice".to_owned())
    }

    fn shown(&self) -> String {
        let mode = match self.decoding.mode {
            Mode::Rgb => "",
            Mode::Gray => "gray",
            Mode::Luma => "luma",
        };
        let strict = if self.decoding.is_strict {
            "strict"
        } else {
            ""
        };
        format!("{mode} {strict}").trim().to_owned()
    }

    fn call(&self) -> ImageCall {
        ImageCall::Decode(self.decoding)
    }
}
