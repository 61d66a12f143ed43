//! One image function with its constants: what it makes of an image's type.

use std::fmt;
use std::hash::{Hash, Hasher};

use datafusion::common::{Result, plan_err};

use super::codec::MAX_PIXELS;
use super::kernel::rotate::{Turn, turned_size};
use crate::tensor::{Dtype, Layout, TensorType};

/// A finite number that is compared and hashed by its bits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Real(pub(crate) f64);

impl PartialEq for Real {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Real {}

impl Hash for Real {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

/// An interval of numbers.
pub(crate) type Range = (Real, Real);

/// Color mode of `decode_image`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Three channels.
    Rgb,
    /// One channel of luma, computed of the three.
    Gray,
    /// One channel of luma: that of the file where it holds one, else as `Gray`.
    Luma,
}

/// How samples between pixels are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Filter {
    /// The nearest pixel.
    Nearest,
    /// A triangle, widened when shrinking (antialiased).
    Bilinear,
    /// Catmull-Rom (a = -0.5, as Pillow), antialiased.
    Bicubic,
    /// Lanczos of three lobes, antialiased.
    Lanczos,
}

impl Filter {
    /// Names in SQL.
    pub(crate) const NAMES: [(&'static str, Self); 4] = [
        ("bilinear", Self::Bilinear),
        ("nearest", Self::Nearest),
        ("bicubic", Self::Bicubic),
        ("lanczos", Self::Lanczos),
    ];
}

/// What `pad` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum PadMode {
    /// The fill value.
    Constant,
    /// The outermost pixel.
    Edge,
    /// The image mirrored without its outermost pixel.
    Reflect,
    /// The image mirrored.
    Symmetric,
}

/// What `random_erasing` writes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum EraseValue {
    /// A number, or one a channel.
    Constant(Vec<Real>),
    /// Standard normal draws.
    Random,
}

/// Padding on the left, top, right and bottom, in pixels.
pub(crate) type Sides = [usize; 4];

/// One image function with its constants checked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum ImageOp {
    Decode(Mode),
    Resize {
        size: (usize, usize),
        filter: Filter,
    },
    ResizeShortest {
        size: usize,
        filter: Filter,
    },
    CenterCrop {
        size: (usize, usize),
    },
    Crop {
        at: (i64, i64),
        size: (usize, usize),
    },
    Pad {
        sides: Sides,
        fill: Vec<Real>,
        mode: PadMode,
    },
    RandomCrop {
        size: (usize, usize),
        sides: Sides,
    },
    RandomResizedCrop {
        size: (usize, usize),
        scale: Range,
        ratio: Range,
        filter: Filter,
    },
    FlipHorizontal,
    FlipVertical,
    RandomFlipHorizontal {
        p: Real,
    },
    RandomFlipVertical {
        p: Real,
    },
    Rotate {
        degrees: Real,
        turn: Turn,
    },
    RandomRotate {
        degrees: Range,
        turn: Turn,
    },
    ColorJitter {
        brightness: Range,
        contrast: Range,
        saturation: Range,
        hue: Range,
    },
    Grayscale {
        channels: usize,
    },
    RandomGrayscale {
        p: Real,
    },
    GaussianBlur {
        kernel: (usize, usize),
        sigma: Range,
    },
    Solarize {
        threshold: Real,
    },
    Posterize {
        bits: u32,
    },
    RandomErasing {
        p: Real,
        scale: Range,
        ratio: Range,
        value: EraseValue,
    },
    ToFloat {
        dtype: Dtype,
    },
    Normalize {
        mean: Vec<Real>,
        std: Vec<Real>,
    },
    ToChw,
}

impl ImageOp {
    /// The function's name in SQL.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Decode(_) => "decode_image",
            Self::Resize { .. } => "resize",
            Self::ResizeShortest { .. } => "resize_shortest",
            Self::CenterCrop { .. } => "center_crop",
            Self::Crop { .. } => "crop",
            Self::Pad { .. } => "pad",
            Self::RandomCrop { .. } => "random_crop",
            Self::RandomResizedCrop { .. } => "random_resized_crop",
            Self::FlipHorizontal => "hflip",
            Self::FlipVertical => "vflip",
            Self::RandomFlipHorizontal { .. } => "random_hflip",
            Self::RandomFlipVertical { .. } => "random_vflip",
            Self::Rotate { .. } => "rotate",
            Self::RandomRotate { .. } => "random_rotate",
            Self::ColorJitter { .. } => "color_jitter",
            Self::Grayscale { .. } => "grayscale",
            Self::RandomGrayscale { .. } => "random_grayscale",
            Self::GaussianBlur { .. } => "gaussian_blur",
            Self::Solarize { .. } => "solarize",
            Self::Posterize { .. } => "posterize",
            Self::RandomErasing { .. } => "random_erasing",
            Self::ToFloat { .. } => "to_float",
            Self::Normalize { .. } => "normalize",
            Self::ToChw => "to_chw",
        }
    }

    /// Whether the function works on planes as well as on height, width, channels.
    const fn takes_planes(&self) -> bool {
        matches!(
            self,
            Self::Solarize { .. }
                | Self::Posterize { .. }
                | Self::RandomErasing { .. }
                | Self::ToFloat { .. }
                | Self::Normalize { .. }
        )
    }

    /// The type of the result. `input` is `None` for `decode_image` alone.
    pub(crate) fn output(&self, input: Option<TensorType>) -> Result<TensorType> {
        let name = self.name();
        let input = match (self, input) {
            (Self::Decode(mode), None) => {
                let channels = if *mode == Mode::Rgb { 3 } else { 1 };
                let layout = Layout::Hwc;
                return Ok(TensorType {
                    dtype: Dtype::U8,
                    channels,
                    layout,
                    shape: None,
                });
            }
            (Self::Decode(_), Some(tensor)) => {
                return plan_err!("{name}: expected encoded bytes, found the image {tensor}");
            }
            (_, None) => return plan_err!("{name}: expected an image"),
            (_, Some(tensor)) => tensor,
        };
        if input.layout == Layout::Chw && !self.takes_planes() {
            return plan_err!(
                "{name}: expected an image [H, W, C], found {input}; call to_chw last"
            );
        }
        let per_channel = |what: &str, values: &[Real]| match values.len() {
            n if n == 1 || n == input.channels => Ok(()),
            n => plan_err!(
                "{name}: {what} has {n} numbers for {} channels",
                input.channels
            ),
        };
        let mut output = input;
        match self {
            Self::Resize { size, .. }
            | Self::CenterCrop { size }
            | Self::Crop { size, .. }
            | Self::RandomCrop { size, .. }
            | Self::RandomResizedCrop { size, .. } => output.shape = Some(*size),
            Self::ResizeShortest { size, .. } => {
                output.shape = input.shape.map(|shape| shortest(shape, *size));
            }
            Self::Pad {
                sides: [left, top, right, bottom],
                fill,
                ..
            } => {
                per_channel("fill", fill)?;
                output.shape = input
                    .shape
                    .map(|(h, w)| (h + top + bottom, w + left + right));
            }
            Self::Rotate { degrees, turn } => {
                per_channel("fill", turn.fill.as_deref().unwrap_or(&[Real(0.0)]))?;
                output.shape = input.shape.map(|s| turned_size(s, degrees.0, turn.expand));
            }
            Self::RandomRotate { turn, .. } => {
                per_channel("fill", turn.fill.as_deref().unwrap_or(&[Real(0.0)]))?;
                if turn.expand {
                    output.shape = None;
                }
            }
            Self::Grayscale { channels } => output.channels = *channels,
            Self::RandomErasing {
                value: EraseValue::Random,
                ..
            } if input.dtype == Dtype::U8 => {
                return plan_err!("{name}: value 'random' needs a float image, found {input}");
            }
            Self::RandomErasing {
                value: EraseValue::Constant(value),
                ..
            } => {
                per_channel("value", value)?;
            }
            Self::ToFloat { dtype } => output.dtype = *dtype,
            Self::Normalize { mean, std } => {
                per_channel("mean", mean)?;
                per_channel("std", std)?;
                if input.dtype == Dtype::U8 {
                    output.dtype = Dtype::F32;
                }
            }
            Self::ToChw => output.layout = Layout::Chw,
            _ => {}
        }
        if let Some((h, w)) = output.shape
            && (h as u64).saturating_mul(w as u64) > MAX_PIXELS
        {
            return plan_err!("{name}: the result of {h} x {w} is above {MAX_PIXELS} pixels");
        }
        Ok(output)
    }
}

/// Height and width when the shorter side becomes `size` (torchvision: the longer is truncated).
pub(crate) const fn shortest((height, width): (usize, usize), size: usize) -> (usize, usize) {
    if height == 0 || width == 0 {
        return (size, size);
    }
    if width <= height {
        (size * height / width, size)
    } else {
        (size, size * width / height)
    }
}

/// As `EXPLAIN` shows it: the name and the constants that tell most.
impl fmt::Display for ImageOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        let number = |v: &Real| v.0;
        match self {
            Self::Decode(Mode::Gray) => f.write_str(" gray"),
            Self::Decode(Mode::Luma) => f.write_str(" luma"),
            Self::Resize { size: (h, w), .. }
            | Self::CenterCrop { size: (h, w) }
            | Self::Crop { size: (h, w), .. }
            | Self::RandomCrop { size: (h, w), .. }
            | Self::RandomResizedCrop { size: (h, w), .. } => write!(f, " {h}x{w}"),
            Self::ResizeShortest { size, .. } => write!(f, " {size}"),
            Self::Pad {
                sides: [l, t, r, b],
                ..
            } => write!(f, " {l},{t},{r},{b}"),
            Self::RandomFlipHorizontal { p }
            | Self::RandomFlipVertical { p }
            | Self::RandomGrayscale { p }
            | Self::RandomErasing { p, .. } => write!(f, " {}", number(p)),
            Self::Rotate { degrees, .. } => write!(f, " {}", number(degrees)),
            Self::RandomRotate {
                degrees: (low, high),
                ..
            } => {
                write!(f, " {}..{}", number(low), number(high))
            }
            Self::GaussianBlur { kernel: (h, w), .. } => write!(f, " {h}x{w}"),
            Self::Solarize { threshold } => write!(f, " {}", number(threshold)),
            Self::Posterize { bits } => write!(f, " {bits}"),
            Self::Grayscale { channels } => write!(f, " {channels}"),
            Self::ToFloat { dtype } => write!(f, " {dtype}"),
            _ => Ok(()),
        }
    }
}
