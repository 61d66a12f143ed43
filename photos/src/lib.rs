//! Generated photos, so that neither the demo nor the tests nor the benches need a download.
//!
//! Painting is a separate crate because it takes most of the demo's computing time. So the dev
//! profile can optimise this crate, while the crates that use it build quickly without
//! optimisation.
//!
//! ```
//! use forebay_photos::{PhotoFormat, encode, paint};
//! use forebay_udfs::draw::Draws;
//!
//! let photo = paint(3, 64, 48, &mut Draws::new(42, 0, 0, 0));
//! let jpeg = encode(&photo.into(), PhotoFormat::Jpeg { quality: 90 })?;
//! assert!(jpeg.starts_with(&[0xff, 0xd8]));
//! # Ok::<(), image::ImageError>(())
//! ```

mod noise;
mod painter;

use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::PngEncoder;
use image::{DynamicImage, ImageError};

pub use painter::{CLASSES, class_name, paint};

/// The file format of a photo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhotoFormat {
    /// JPEG.
    Jpeg {
        /// Quality, 1 to 100.
        quality: u8,
    },
    /// PNG.
    Png,
}

/// Encodes a photo as the bytes of a file.
pub fn encode(photo: &DynamicImage, format: PhotoFormat) -> Result<Vec<u8>, ImageError> {
    let mut bytes = Vec::new();
    match format {
        PhotoFormat::Jpeg { quality } => {
            photo.write_with_encoder(JpegEncoder::new_with_quality(&mut bytes, quality))?;
        }
        PhotoFormat::Png => photo.write_with_encoder(PngEncoder::new(&mut bytes))?,
    }
    Ok(bytes)
}
