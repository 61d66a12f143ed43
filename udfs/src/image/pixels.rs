//! Pixels in memory while kernels run.

use half::f16;

use crate::tensor::{Dtype, ImageLayout};

/// Maximum number of pixels of an image: the size above which Pillow refuses a file as a
/// decompression bomb (`2 * Image.MAX_IMAGE_PIXELS`). A larger image is an error of its row.
pub const MAX_PIXELS: u64 = 178_956_970;

/// Fails if an image of this height and width would have more than [`MAX_PIXELS`] pixels.
pub(crate) fn within_limit((height, width): (usize, usize)) -> Result<(), String> {
    if (height as u64).saturating_mul(width as u64) > MAX_PIXELS {
        return Err(format!(
            "the result of {height} x {width} is above {MAX_PIXELS} pixels"
        ));
    }
    Ok(())
}

/// Height, width, channels, element type and layout of pixels in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PixelShape {
    /// Number of rows.
    pub(crate) height: usize,
    /// Number of columns.
    pub(crate) width: usize,
    /// Number of channels: 1 or 3.
    pub(crate) channels: usize,
    /// Element type.
    pub(crate) dtype: Dtype,
    /// Order of the dimensions.
    pub(crate) layout: ImageLayout,
}

impl PixelShape {
    /// Number of elements.
    pub(crate) const fn len(&self) -> usize {
        self.height * self.width * self.channels
    }
}

/// The pixels of one image. Bytes are stored in `u8s`, and both float types in `f32s`. Every sample
/// of a half-precision image is rounded after each kernel, so storing the sample in single
/// precision until the next kernel changes nothing.
#[derive(Debug, Clone)]
pub(crate) struct Pixels {
    /// Shape of the image that the buffers hold.
    pub(crate) shape: PixelShape,
    /// Samples of a byte image.
    pub(crate) u8s: Vec<u8>,
    /// Samples of a float image.
    pub(crate) f32s: Vec<f32>,
}

impl Default for Pixels {
    fn default() -> Self {
        let shape = PixelShape {
            height: 0,
            width: 0,
            channels: 3,
            dtype: Dtype::U8,
            layout: ImageLayout::Hwc,
        };
        Self {
            shape,
            u8s: Vec::new(),
            f32s: Vec::new(),
        }
    }
}

impl Pixels {
    /// Sets the shape and resizes the buffer. The elements have unspecified values.
    pub(crate) fn reshape(&mut self, shape: PixelShape) {
        self.shape = shape;
        match shape.dtype {
            Dtype::U8 => make_room(&mut self.u8s, shape.len()),
            Dtype::F16 | Dtype::F32 => make_room(&mut self.f32s, shape.len()),
        }
    }

    /// Rounds the samples of a half-precision image to that precision.
    pub(crate) fn settle(&mut self) {
        if self.shape.dtype == Dtype::F16 {
            for value in &mut self.f32s {
                *value = f16::from_f32(*value).to_f32();
            }
        }
    }
}

/// Unit, in elements, to a multiple of which the capacity of a buffer is rounded up.
const ROOM: usize = 256 << 10;

/// Sets the length of `elements` to `len`. The elements have unspecified values.
pub(crate) fn make_room<T: Copy + Default>(elements: &mut Vec<T>, len: usize) {
    if elements.capacity() < len {
        // Growing in place would copy elements that are not needed, and growing in small increments
        // fragments the heap.
        *elements = Vec::new();
        *elements = vec![T::default(); len.next_multiple_of(ROOM)];
        elements.truncate(len);
    } else {
        elements.resize(len, T::default());
    }
}

/// An element type that kernels compute on.
pub(crate) trait PixelSample:
    Copy + Default + PartialEq + PartialOrd + Send + Sync + 'static
{
    /// Greatest sample of an image: 255, or 1 for floats (torchvision's `_max_value`).
    const TOP: f32;
    /// True if the type is a float.
    const FLOAT: bool;
    /// Returns the samples of `pixels`, which must be of this type.
    fn of(pixels: &Pixels) -> &[Self];
    /// Returns the samples of `pixels`, mutably.
    fn of_mut(pixels: &mut Pixels) -> &mut Vec<Self>;
    /// Converts an element to a single-precision number.
    fn real(self) -> f32;
    /// Converts a number that is within the type's range; bytes are truncated, as by
    /// `Tensor.to(uint8)`.
    fn truncated(value: f32) -> Self;
    /// Converts a whole number that is within the type's range, if the type is bytes.
    fn from_whole(value: f32) -> Self;
    /// Converts any number; bytes round half to even and saturate.
    fn rounded(value: f32) -> Self;
}

impl PixelSample for u8 {
    const TOP: f32 = 255.0;
    const FLOAT: bool = false;

    fn of(pixels: &Pixels) -> &[Self] {
        &pixels.u8s
    }

    fn of_mut(pixels: &mut Pixels) -> &mut Vec<Self> {
        &mut pixels.u8s
    }

    #[inline]
    fn real(self) -> f32 {
        f32::from(self)
    }

    #[inline]
    fn truncated(value: f32) -> Self {
        value as Self
    }

    #[inline]
    fn from_whole(value: f32) -> Self {
        // The last bits of the sum are those of the number. Vector instructions do this for many
        // numbers at once, unlike a conversion that saturates.
        (value + 8_388_608.0).to_bits() as Self
    }

    #[inline]
    fn rounded(value: f32) -> Self {
        Self::from_whole(value.round_ties_even().clamp(0.0, 255.0))
    }
}

impl PixelSample for f32 {
    const TOP: Self = 1.0;
    const FLOAT: bool = true;

    fn of(pixels: &Pixels) -> &[Self] {
        &pixels.f32s
    }

    fn of_mut(pixels: &mut Pixels) -> &mut Vec<Self> {
        &mut pixels.f32s
    }

    #[inline]
    fn real(self) -> f32 {
        self
    }

    #[inline]
    fn truncated(value: f32) -> Self {
        value
    }

    #[inline]
    fn from_whole(value: f32) -> Self {
        value
    }

    #[inline]
    fn rounded(value: f32) -> Self {
        value
    }
}

/// Evaluates `$body` with `$T` as the Rust type of the element type `$dtype`.
macro_rules! by_sample {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            $crate::tensor::Dtype::U8 => {
                type $T = u8;
                $body
            }
            $crate::tensor::Dtype::F16 | $crate::tensor::Dtype::F32 => {
                type $T = f32;
                $body
            }
        }
    };
}
pub(crate) use by_sample;
