//! A JPEG decoder that decodes only the region that is asked for, bit-identical to libjpeg-turbo.
//!
//! It decodes baseline, extended sequential and progressive files of 8 bits with Huffman codes, of 1, 3
//! or 4 components of any whole sampling factors, in one scan or several, with restart markers. Its
//! pixels are those of libjpeg-turbo with the accurate integer DCT and "fancy" upsampling. Other files
//! have a [`HeaderError::Unsupported`], which depends on their headers only.
//!
//! A region costs the entropy decoding of what precedes it in the file (of the whole file if it is
//! progressive), and the inverse DCT, upsampling and colors of its own pixels. A [`SeekIndex`], which
//! decoding makes, saves a later decoding of the file most of that.
//!
//! ```no_run
//! use forebay_jpeg::{RegionDecoder, JpegHeader, PixelFormat, PixelRegion, InstructionSet};
//!
//! let file = std::fs::read("photo.jpg")?;
//! let header = JpegHeader::read(&file)?;
//! let region = PixelRegion { x: 10, y: 20, width: 100, height: 50 };
//! let mut pixels = vec![0; region.width * region.height * 3];
//! let mut decoder = RegionDecoder::new(InstructionSet::best());
//! let decoded = decoder.decode(&file, &header, region, PixelFormat::Rgb, None, &mut pixels)?;
//! assert!(!decoded.is_damaged);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bits;
mod buffers;
mod color;
mod decoder;
mod error;
mod format;
mod header;
mod huffman;
mod huffman_spec;
mod idct;
mod marker;
mod mcu_reader;
mod mcu_runs;
#[cfg(feature = "oracle")]
pub mod oracle;
mod pixels;
mod plane;
mod progressive;
mod region;
mod scan;
mod seek_bytes;
mod seek_index;
mod seek_recorder;
mod segments;
mod sequential;
mod simd;
mod upsample;

pub use self::decoder::RegionDecoder;
pub use self::error::{HeaderError, SeekIndexError};
pub use self::format::{Decoded, PixelFormat};
pub use self::header::{ColorModel, JpegHeader};
pub use self::region::PixelRegion;
pub use self::seek_index::SeekIndex;
pub use self::simd::InstructionSet;
