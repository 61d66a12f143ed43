//! Pixels in memory while kernels run.

use half::f16;

use crate::tensor::{Dtype, Layout};

/// Height, width, channels, element type and layout of pixels in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Rows.
    pub(crate) height: usize,
    /// Columns.
    pub(crate) width: usize,
    /// 1 or 3.
    pub(crate) channels: usize,
    /// Element type.
    pub(crate) dtype: Dtype,
    /// Order of the dimensions.
    pub(crate) layout: Layout,
}

impl Shape {
    /// Elements.
    pub(crate) const fn len(&self) -> usize {
        self.height * self.width * self.channels
    }
}

/// One image. Bytes live in `u8s`; both float types live in `f32s`, where every value of a half
/// image is rounded to half precision after each kernel, so storing it in between changes nothing.
#[derive(Debug, Clone)]
pub(crate) struct Pixels {
    /// What is in the buffers.
    pub(crate) shape: Shape,
    /// Elements where the type is `u8`.
    pub(crate) u8s: Vec<u8>,
    /// Elements where the type is a float.
    pub(crate) f32s: Vec<f32>,
}

impl Default for Pixels {
    fn default() -> Self {
        let shape = Shape {
            height: 0,
            width: 0,
            channels: 3,
            dtype: Dtype::U8,
            layout: Layout::Hwc,
        };
        Self {
            shape,
            u8s: Vec::new(),
            f32s: Vec::new(),
        }
    }
}

impl Pixels {
    /// Makes room for `shape`; elements that were there before keep any value.
    pub(crate) fn reshape(&mut self, shape: Shape) {
        self.shape = shape;
        match shape.dtype {
            Dtype::U8 => make_room(&mut self.u8s, shape.len()),
            Dtype::F16 | Dtype::F32 => make_room(&mut self.f32s, shape.len()),
        }
    }

    /// Rounds the elements of a half image to half precision.
    pub(crate) fn settle(&mut self) {
        if self.shape.dtype == Dtype::F16 {
            for value in &mut self.f32s {
                *value = f16::from_f32(*value).to_f32();
            }
        }
    }
}

/// Elements by which a buffer grows.
const ROOM: usize = 256 << 10;

/// Makes the length `len`, whatever the elements.
fn make_room<T: Copy + Default>(elements: &mut Vec<T>, len: usize) {
    if elements.capacity() < len {
        // Growing in place would copy what nobody reads; growing a little at a time leaves holes.
        *elements = Vec::new();
        *elements = vec![T::default(); len.next_multiple_of(ROOM)];
        elements.truncate(len);
    } else {
        elements.resize(len, T::default());
    }
}

/// An element that kernels compute on.
pub(crate) trait Sample:
    Copy + Default + PartialEq + PartialOrd + Send + Sync + 'static
{
    /// The greatest value of an image: 255, or 1 for floats (torchvision's `_max_value`).
    const TOP: f32;
    /// Whether the type is a float.
    const FLOAT: bool;
    /// The elements of `pixels`.
    fn of(pixels: &Pixels) -> &[Self];
    /// The elements of `pixels`, to be written.
    fn of_mut(pixels: &mut Pixels) -> &mut Vec<Self>;
    /// The number.
    fn real(self) -> f32;
    /// The element of a number within range: bytes truncate, as `Tensor.to(uint8)` does.
    fn truncated(value: f32) -> Self;
    /// The element of a number: bytes round half to even and saturate.
    fn rounded(value: f32) -> Self;
}

impl Sample for u8 {
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
    fn rounded(value: f32) -> Self {
        libm::rintf(value) as Self
    }
}

impl Sample for f32 {
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
    fn rounded(value: f32) -> Self {
        value
    }
}

/// Runs `$body` with `$T` the element type of `$pixels`.
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

/// The buffers that one thread reuses from row to row.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// The image so far.
    pub(crate) front: Pixels,
    /// Where the next kernel writes, if it does not work in place.
    pub(crate) back: Pixels,
    /// Resizer with its own buffers.
    pub(crate) resizer: super::kernel::resize::Resize,
    /// Row buffers of the blur.
    pub(crate) lines: Vec<f32>,
}

impl Scratch {
    /// Bytes that the image buffers hold.
    pub(crate) const fn bytes(&self) -> usize {
        let floats = self.front.f32s.capacity() + self.back.f32s.capacity() + self.lines.capacity();
        self.front.u8s.capacity() + self.back.u8s.capacity() + 4 * floats
    }

    /// Makes the image last written the current one, rounded to its element type.
    pub(crate) fn swap(&mut self) {
        std::mem::swap(&mut self.front, &mut self.back);
        self.front.settle();
    }
}
