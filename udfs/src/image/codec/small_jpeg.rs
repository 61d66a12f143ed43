//! Decoding of JPEG images smaller than one unit of subsampled chroma.
//!
//! `zune-jpeg` interpolates chroma over whole blocks, so samples at an image's border mix with the
//! block's padding, which is not part of the image. libjpeg (and thus Pillow) repeats the last
//! sample instead. In a photo, the difference affects one column and one row; in an image of few
//! pixels, the difference affects most pixels. `jpeg-decoder` stops at the border like libjpeg,
//! with the same triangle filter, so `jpeg-decoder` decodes such images again.
//!
//! If chroma is at most two samples wide, libjpeg repeats each sample instead of interpolating
//! (`jdsample.c`: "fancy upsampling" requires `downsampled_width > 2`). The stored samples are
//! recovered from the interpolated plane of `jpeg-decoder`: in the plane's outer columns, stored
//! samples are mixed only with samples above or below, and these mixtures are solved row by row.

use std::io::Read;

use image::metadata::Orientation;
use jpeg_decoder::{ColorTransform, PixelFormat};

use super::decoder::{Decoder, EncodedHeader};
use super::jpeg::{Jpeg, segments};
use crate::image::pixels::Pixels;

/// The decoder of JPEG images with subsampled chroma that are narrower or lower than [`UNIT`].
pub(super) struct SmallJpeg;

/// Width and height, in pixels, of the area that two blocks of luma and one block of chroma cover
/// in each direction.
const UNIT: usize = 16;

/// Width, in pixels, of the widest image whose chroma is at most two samples wide.
const NARROW: usize = 4;

impl Decoder for SmallJpeg {
    fn accepts(&self, bytes: &[u8]) -> bool {
        Jpeg.accepts(bytes) && Frame::of(bytes).is_some()
    }

    fn header(&self, bytes: &[u8]) -> Result<EncodedHeader, String> {
        Jpeg.header(bytes)
    }

    fn decode_luma(
        &self,
        bytes: &[u8],
        target: &mut Pixels,
    ) -> Option<Result<Orientation, String>> {
        Jpeg.decode_luma(bytes, target)
    }

    fn decode(&self, bytes: &[u8], target: &mut Pixels) -> Result<Orientation, String> {
        // The general decoder (`Jpeg`) reports broken and truncated files. The pixels of `Jpeg` are
        // the result if the second decoder cannot read the file.
        let orientation = Jpeg.decode(bytes, target)?;
        let size = (target.shape.height, target.shape.width);
        let frame = Frame::of(bytes).filter(|frame| (frame.height, frame.width) == size);
        if let Some((frame, samples)) = frame.and_then(|f| f.samples(bytes).map(|s| (f, s))) {
            frame.convert(&samples, &mut target.u8s);
        }
        Ok(orientation)
    }
}

/// The frame header of a small YCbCr image whose chroma is halved in one or both directions.
struct Frame {
    /// Byte offset in the file of the header's height; two bytes of width follow the height.
    at: usize,
    height: usize,
    width: usize,
    /// True if chroma has half the columns.
    across: bool,
    /// True if chroma has half the rows.
    down: bool,
}

impl Frame {
    /// Reads the frame header of a small image with halved chroma; `None` for any other image.
    fn of(bytes: &[u8]) -> Option<Self> {
        for (kind, marker) in segments(bytes) {
            let body = bytes.get(marker + 4..)?;
            match kind {
                // Adobe's segment with transform 0 means that the file stores RGB, not YCbCr.
                0xee if body.starts_with(b"Adobe") && body.get(11) == Some(&0) => return None,
                // Baseline, extended and progressive Huffman frames.
                0xc0..=0xc2 => return Self::read(body, marker + 5),
                _ => {}
            }
        }
        None
    }

    /// Reads `body`, the body of a frame header: precision, height, width and number of components,
    /// and the identifier, sampling factors and table of each component.
    fn read(body: &[u8], at: usize) -> Option<Self> {
        let body: &[u8; 15] = body.first_chunk()?;
        let height = usize::from(u16::from_be_bytes([body[1], body[2]]));
        let width = usize::from(u16::from_be_bytes([body[3], body[4]]));
        let is_rgb = [body[6], body[9], body[12]] == *b"RGB";
        let is_small = height.min(width) > 0 && height.min(width) < UNIT;
        if body[0] != 8 || body[5] != 3 || is_rgb || !is_small {
            return None;
        }
        let (across, down) = match [body[7], body[10], body[13]] {
            [0x21, 0x11, 0x11] => (true, false),
            [0x12, 0x11, 0x11] => (false, true),
            [0x22, 0x11, 0x11] => (true, true),
            _ => return None,
        };
        Some(Self {
            at,
            height,
            width,
            across,
            down,
        })
    }

    const fn is_narrow(&self) -> bool {
        self.across && self.width <= NARROW
    }

    /// Number of pixels in a row of [`Self::samples`].
    const fn columns(&self) -> usize {
        if self.is_narrow() {
            self.width.next_multiple_of(2)
        } else {
            self.width
        }
    }

    /// Decodes Y, Cb and Cr of each pixel, with interpolated chroma; `None` if `jpeg-decoder`
    /// cannot read the file.
    ///
    /// A narrow image is decoded with an even width, so that the last column holds unmixed chroma.
    /// The wider image consists of the same blocks, hence of the same coded data.
    fn samples(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let width = u16::try_from(self.columns()).ok()?.to_be_bytes();
        let (head, tail) = (bytes.get(..self.at + 2)?, bytes.get(self.at + 4..)?);
        let mut decoder = jpeg_decoder::Decoder::new(head.chain(&width[..]).chain(tail));
        let size = self.height * self.columns() * 3;
        decoder.set_max_decoding_buffer_size(size);
        // The components are declared as RGB, so the decoder returns the components interleaved and
        // unconverted (`None` would return one plane after another).
        decoder.set_color_transform(ColorTransform::RGB);
        let samples = decoder.decode().ok()?;
        let is_whole = decoder.info()?.pixel_format == PixelFormat::RGB24 && samples.len() == size;
        is_whole.then_some(samples)
    }

    /// Converts interpolated YCbCr samples to RGB.
    fn convert(&self, samples: &[u8], out: &mut [u8]) {
        let rows = samples.chunks_exact(self.columns() * 3);
        // The recovered chroma (Cb, Cr) of the previous row, in the left and the right half of a
        // narrow image.
        let mut chroma = [[0; 2]; 2];
        for (y, (row, out)) in rows.zip(out.chunks_exact_mut(self.width * 3)).enumerate() {
            if self.is_narrow() && (!self.down || y % 2 == 0) {
                for (half, last) in chroma.iter_mut().enumerate() {
                    let at = half * (self.columns() - 1) * 3 + 1;
                    for (last, mixed) in last.iter_mut().zip(&row[at..]) {
                        *last = if self.down && y > 0 {
                            unmixed(*mixed, *last)
                        } else {
                            *mixed
                        };
                    }
                }
            }
            for (x, (out, ycc)) in out.chunks_exact_mut(3).zip(row.chunks_exact(3)).enumerate() {
                let [cb, cr] = if self.is_narrow() {
                    chroma[x / 2]
                } else {
                    [ycc[1], ycc[2]]
                };
                out.copy_from_slice(&to_rgb(ycc[0], cb, cr));
            }
        }
    }
}

/// Solves `mixed = (3 * near + far + 2) / 4`, rounded down, for `near`. If two numbers solve the
/// equation, the lower one is returned. An error of 1 in `far` does not grow from row to row.
fn unmixed(mixed: u8, far: u8) -> u8 {
    (u16::from(mixed) * 4)
        .saturating_sub(far.into())
        .div_euclid(3)
        .min(255) as u8
}

/// Converts a pixel to RGB by JFIF's formula in libjpeg's fixed point (`jdcolor.c`).
fn to_rgb(y: u8, cb: u8, cr: u8) -> [u8; 3] {
    let (cb, cr) = (i32::from(cb) - 128, i32::from(cr) - 128);
    let color = |scaled: i32| (i32::from(y) + ((scaled + 0x8000) >> 16)).clamp(0, 255) as u8;
    [
        color(91_881 * cr),
        color(-22_554 * cb - 46_802 * cr),
        color(116_130 * cb),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::{Mode, Scratch, decode};
    use super::*;

    /// Beginning of the test files: the start of image, and both of libjpeg's quantisation tables
    /// at quality 30.
    const HEAD: &str = "ffd8ffdb0043001b12141714111b1716171e1c1b2028422b28252528513a3d3042605565645f555d5b6a7899\
     816a7190735b5d85b586909ea3abadab6780bcc9baa6c799a8aba4ffdb0043011c1e1e2823284e2b2b4ea46e\
     5d6ea4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4\
     a4a4a4a4a4a4a4a4";

    fn bytes(digits: &str) -> Vec<u8> {
        let digit = |d: u8| char::from(d).to_digit(16).unwrap() as u8;
        let pairs = digits.as_bytes().chunks_exact(2);
        pairs.map(|d| digit(d[0]) << 4 | digit(d[1])).collect()
    }

    /// Compares the decoded pixels of a file of noise, written by libjpeg, with the pixels that
    /// libjpeg decodes from the same file.
    fn check(tail: &str, height: usize, width: usize, expected: &[u8]) {
        let file = [bytes(HEAD), bytes(tail)].concat();
        assert!(SmallJpeg.accepts(&file));
        let mut scratch = Scratch::default();
        decode(&file, Mode::Rgb, &mut scratch).unwrap();
        let shape = &scratch.front.shape;
        assert_eq!((shape.height, shape.width), (height, width));
        for (at, (found, expected)) in scratch.front.u8s.iter().zip(expected).enumerate() {
            assert!(
                found.abs_diff(*expected) <= 2,
                "{at}: {found}, not {expected}"
            );
        }
        assert_eq!(scratch.front.u8s.len(), expected.len());
    }

    #[test]
    fn narrow_chroma_is_repeated() {
        let tail = "ffc00011080004000403012200021101031101ffc4001500010100000000000000000000000000000003ffc4\
     001a100003000301000000000000000000000000010203041112ffc400150101010000000000000000000000\
     0000000304ffc40017110101010100000000000000000000000002002131ffda000c03010002110311003f00\
     a68da586a1638f316e6535de20000f5522edffd9";
        let pixels = [
            0, 11, 23, 42, 84, 96, 135, 192, 175, 147, 204, 187, 27, 69, 81, 60, 102, 114, 126,
            183, 166, 168, 225, 208, 114, 157, 164, 72, 115, 122, 91, 148, 129, 152, 209, 190, 138,
            181, 188, 49, 92, 99, 41, 98, 79, 116, 173, 154,
        ];
        check(tail, 4, 4, &pixels);
    }

    #[test]
    fn rows_of_narrow_chroma_are_solved_for_in_progressive_files() {
        let tail = "ffc20011080005000303012200021101031101ffc40014000100000000000000000000000000000000ffc400\
     14010100000000000000000000000000000003ffda000c03010002100310000001000fffc400141001000000\
     00000000000000000000000000ffda00080101000105027fffc4001811000203000000000000000000000000\
     000001020331ffda0008010301013f01764d3d3fffc400161101010100000000000000000000000000010011\
     ffda0008010201013f01576fffc40014100100000000000000000000000000000000ffda0008010100063f02\
     7fffc4001810010100030000000000000000000000000111003151ffda0008010100013f2183b2bd73ffda00\
     0c03010002000300000010f3ffc4001511010100000000000000000000000000000100ffda0008010301013f\
     10700affc400161100030000000000000000000000000000001121ffda0008010201013f10794fffc4001810\
     010100030000000000000000000000000111004191ffda0008010100013f10054f7235e67fffd9";
        let pixels = [
            255, 133, 255, 255, 85, 211, 196, 46, 110, 238, 49, 175, 237, 48, 174, 217, 67, 131,
            50, 58, 69, 94, 102, 113, 125, 178, 126, 107, 115, 126, 131, 139, 150, 132, 185, 133,
            58, 185, 104, 56, 183, 102, 23, 201, 55,
        ];
        check(tail, 5, 3, &pixels);
    }

    #[test]
    fn chroma_halved_in_columns_alone_keeps_its_rows() {
        let tail = "ffc00011080002000303012100021101031101ffc4001500010100000000000000000000000000000005ffc4\
     001810000203000000000000000000000000000002043471ffc4001501010100000000000000000000000000\
     000305ffc4001811000203000000000000000000000000000001033271ffda000c03010002110311003f0099\
     2ecbe82cc74581b3ffd9";
        let pixels = [
            127, 141, 167, 83, 97, 123, 40, 32, 205, 127, 141, 167, 83, 97, 123, 40, 32, 205,
        ];
        check(tail, 2, 3, &pixels);
    }

    #[test]
    fn chroma_ends_at_the_border() {
        let tail = "ffc00011080003000703012200021101031101ffc4001500010100000000000000000000000000000001ffc4\
     001b100002030003000000000000000000000000010203110481b1ffc4001501010100000000000000000000\
     000000000305ffc4001811000301010000000000000000000000000102110003ffda000c0301000211031100\
     3f00bc6b26ef93727a9ef7b35e00050aad68d27a7470d013bfffd9";
        let pixels = [
            201, 194, 227, 144, 140, 163, 130, 129, 134, 114, 120, 106, 227, 238, 204, 58, 75, 30,
            227, 246, 200, 149, 172, 203, 83, 110, 131, 108, 139, 141, 55, 94, 76, 169, 215, 179,
            40, 92, 44, 168, 224, 175, 76, 162, 187, 0, 86, 102, 79, 174, 170, 0, 76, 53, 90, 202,
            162, 18, 139, 88, 88, 212, 160,
        ];
        check(tail, 3, 7, &pixels);
    }

    #[test]
    fn only_small_images_of_halved_ycbcr_chroma_are_taken() {
        let frame = |height: u16, width: u16, luma: u8, chroma: u8| {
            let mut file = vec![0xff, 0xd8, 0xff, 0xc0, 0, 17, 8];
            file.extend(height.to_be_bytes());
            file.extend(width.to_be_bytes());
            file.extend([3, 1, luma, 0, 2, chroma, 1, 3, chroma, 1]);
            file
        };
        assert!(SmallJpeg.accepts(&frame(15, 900, 0x22, 0x11)));
        assert!(SmallJpeg.accepts(&frame(900, 15, 0x21, 0x11)));
        assert!(!SmallJpeg.accepts(&frame(16, 16, 0x22, 0x11)));
        assert!(!SmallJpeg.accepts(&frame(0, 15, 0x22, 0x11)));
        assert!(!SmallJpeg.accepts(&frame(8, 8, 0x11, 0x11)));
        assert!(!SmallJpeg.accepts(&frame(8, 8, 0x41, 0x11)));
        let mut rgb = frame(8, 8, 0x22, 0x11);
        (rgb[12], rgb[15], rgb[18]) = (b'R', b'G', b'B');
        assert!(!SmallJpeg.accepts(&rgb));
        let mut adobe = frame(8, 8, 0x22, 0x11);
        adobe.splice(2..2, *b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0\0");
        assert!(!SmallJpeg.accepts(&adobe));
        for end in 0..adobe.len() {
            assert!(!SmallJpeg.accepts(&adobe[..end]));
        }
    }

    #[test]
    fn unmixing_is_exact_or_one_below() {
        for near in 0..=255_u8 {
            for far in 0..=255_u8 {
                let mixed = ((3 * u16::from(near) + u16::from(far) + 2) / 4) as u8;
                assert!(near - unmixed(mixed, far) <= 1, "{near} {far}");
            }
        }
    }
}
