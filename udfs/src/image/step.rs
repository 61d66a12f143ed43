//! One image function on one row: its draws taken, then its kernel run.

use super::codec::MAX_PIXELS;
use super::kernel::color::{Adjust, adjust, grayscale};
use super::kernel::geometry::{Region, crop, flip_horizontal, flip_vertical, pad};
use super::kernel::rotate::{Turn, rotate};
use super::kernel::{blur, convert, erase, tone};
use super::op::{EraseValue, Filter, ImageOp, PadMode, Range, Real, Sides, shortest};
use super::pixels::Scratch;
use crate::draw::Draws;
use crate::tensor::Dtype;

/// Tries of a random rectangle before the fallback, as in torchvision.
const TRIES: usize = 10;

/// What an image function does to one image, draws taken.
#[derive(Debug, Clone)]
pub(crate) enum Step<'a> {
    /// Nothing.
    Keep,
    Resize {
        from: Region,
        size: (usize, usize),
        filter: Filter,
    },
    Crop {
        at: (i64, i64),
        size: (usize, usize),
    },
    Pad {
        sides: Sides,
        fill: &'a [Real],
        mode: PadMode,
    },
    FlipHorizontal,
    FlipVertical,
    Rotate {
        degrees: f64,
        turn: &'a Turn,
    },
    Adjust(Vec<Adjust>),
    Grayscale {
        channels: usize,
    },
    Blur {
        kernel: (usize, usize),
        sigma: f64,
    },
    Solarize {
        threshold: f32,
    },
    Posterize {
        bits: u32,
    },
    Erase {
        region: Region,
        value: &'a EraseValue,
        draws: Draws,
    },
    ToFloat {
        dtype: Dtype,
    },
    Normalize {
        mean: &'a [Real],
        std: &'a [Real],
    },
    ToChw,
}

fn uniform(draws: &mut Draws, (low, high): Range) -> f64 {
    if low == high {
        low.0
    } else {
        draws.uniform_in(low.0, high.0)
    }
}

/// Uniform in whole numbers from 0 to `last`.
fn whole(draws: &mut Draws, last: usize) -> usize {
    draws.below(last as u64 + 1) as usize
}

impl ImageOp {
    /// Takes the row's draws and tells what to do with an image of this height, width and number
    /// of channels. `None` for `decode_image`, which has no image yet. Errors are the row's.
    pub(crate) fn step(
        &self,
        (height, width): (usize, usize),
        channels: usize,
        draws: &mut Draws,
    ) -> Result<Option<Step<'_>>, String> {
        let all = Region {
            top: 0,
            left: 0,
            height,
            width,
        };
        Ok(Some(match self {
            Self::Decode(_) => return Ok(None),
            Self::Resize { size, filter } => Step::Resize {
                from: all,
                size: *size,
                filter: *filter,
            },
            Self::ResizeShortest { size, filter } => {
                let size = shortest((height, width), *size);
                Step::Resize {
                    from: all,
                    size: bounded(size)?,
                    filter: *filter,
                }
            }
            Self::CenterCrop { size } => {
                let at = (centred(height, size.0), centred(width, size.1));
                Step::Crop { at, size: *size }
            }
            Self::Crop { at, size } => Step::Crop {
                at: *at,
                size: *size,
            },
            Self::Pad { sides, fill, mode } => {
                let [left, top, right, bottom] = *sides;
                bounded((height + top + bottom, width + left + right))?;
                Step::Pad {
                    sides: *sides,
                    fill,
                    mode: *mode,
                }
            }
            Self::RandomCrop { size, sides } => {
                let at = random_crop((height, width), *size, *sides, draws)?;
                Step::Crop { at, size: *size }
            }
            Self::RandomResizedCrop {
                size,
                scale,
                ratio,
                filter,
            } => {
                let from = random_region((height, width), *scale, *ratio, draws);
                Step::Resize {
                    from,
                    size: *size,
                    filter: *filter,
                }
            }
            Self::FlipHorizontal => Step::FlipHorizontal,
            Self::FlipVertical => Step::FlipVertical,
            Self::RandomFlipHorizontal { p } if draws.chance(p.0) => Step::FlipHorizontal,
            Self::RandomFlipVertical { p } if draws.chance(p.0) => Step::FlipVertical,
            Self::RandomGrayscale { p } if draws.chance(p.0) => Step::Grayscale { channels },
            Self::RandomFlipHorizontal { .. }
            | Self::RandomFlipVertical { .. }
            | Self::RandomGrayscale { .. } => Step::Keep,
            Self::Rotate { degrees, turn } => Step::Rotate {
                degrees: degrees.0,
                turn,
            },
            Self::RandomRotate { degrees, turn } => Step::Rotate {
                degrees: uniform(draws, *degrees),
                turn,
            },
            Self::ColorJitter {
                brightness,
                contrast,
                saturation,
                hue,
            } => Step::Adjust(jitter([*brightness, *contrast, *saturation, *hue], draws)),
            Self::Grayscale { channels } => Step::Grayscale {
                channels: *channels,
            },
            Self::GaussianBlur { kernel, sigma } => Step::Blur {
                kernel: *kernel,
                sigma: uniform(draws, *sigma),
            },
            Self::Solarize { threshold } => Step::Solarize {
                threshold: threshold.0 as f32,
            },
            Self::Posterize { bits } => Step::Posterize { bits: *bits },
            Self::RandomErasing {
                p,
                scale,
                ratio,
                value,
            } => match erased_region((height, width), *p, *scale, *ratio, draws) {
                Some(region) => Step::Erase {
                    region,
                    value,
                    draws: draws.clone(),
                },
                None => Step::Keep,
            },
            Self::ToFloat { dtype } => Step::ToFloat { dtype: *dtype },
            Self::Normalize { mean, std } => Step::Normalize { mean, std },
            Self::ToChw => Step::ToChw,
        }))
    }
}

fn bounded((height, width): (usize, usize)) -> Result<(usize, usize), String> {
    if (height as u64).saturating_mul(width as u64) > MAX_PIXELS {
        return Err(format!(
            "the result of {height} x {width} is above {MAX_PIXELS} pixels"
        ));
    }
    Ok((height, width))
}

/// Offset of a central crop; negative where the image is smaller and zeros surround it.
pub(super) fn centred(have: usize, want: usize) -> i64 {
    if want > have {
        -(((want - have) / 2) as i64)
    } else {
        // Python's round: half to even.
        libm::rint((have - want) as f64 / 2.0) as i64
    }
}

fn random_crop(
    (height, width): (usize, usize),
    size: (usize, usize),
    [left, top, right, bottom]: Sides,
    draws: &mut Draws,
) -> Result<(i64, i64), String> {
    let (padded_height, padded_width) = (height + top + bottom, width + left + right);
    let Some((down, across)) = padded_height
        .checked_sub(size.0)
        .zip(padded_width.checked_sub(size.1))
    else {
        let (h, w) = size;
        return Err(format!(
            "a crop of {h} x {w} is larger than the padded image of {padded_height} x {padded_width}"
        ));
    };
    // The padding is zeros, which a crop reads outside the image anyway.
    let y = whole(draws, down) as i64 - top as i64;
    let x = whole(draws, across) as i64 - left as i64;
    Ok((y, x))
}

/// A rectangle of random area and aspect ratio, uniform in place; after ten misses the largest
/// central one within the ratios (torchvision `RandomResizedCrop`).
fn random_region(
    (height, width): (usize, usize),
    scale: Range,
    ratio: Range,
    draws: &mut Draws,
) -> Region {
    let (h, w) = (height as f64, width as f64);
    let (low, high) = (Real(libm::log(ratio.0.0)), Real(libm::log(ratio.1.0)));
    for _ in 0..TRIES {
        let area = h * w * uniform(draws, scale);
        let aspect = libm::exp(uniform(draws, (low, high)));
        let box_width = libm::rint(libm::sqrt(area * aspect)) as usize;
        let box_height = libm::rint(libm::sqrt(area / aspect)) as usize;
        if (1..=width).contains(&box_width) && (1..=height).contains(&box_height) {
            let top = whole(draws, height - box_height);
            let left = whole(draws, width - box_width);
            return Region {
                top,
                left,
                height: box_height,
                width: box_width,
            };
        }
    }
    let aspect = w / h;
    let (box_height, box_width) = if aspect < ratio.0.0 {
        ((libm::rint(w / ratio.0.0) as usize).clamp(1, height), width)
    } else if aspect > ratio.1.0 {
        (height, (libm::rint(h * ratio.1.0) as usize).clamp(1, width))
    } else {
        (height, width)
    };
    let (top, left) = ((height - box_height) / 2, (width - box_width) / 2);
    Region {
        top,
        left,
        height: box_height,
        width: box_width,
    }
}

/// With probability `p` a rectangle of random area and aspect ratio that is smaller than the image
/// (torchvision `RandomErasing`).
fn erased_region(
    (height, width): (usize, usize),
    p: Real,
    scale: Range,
    ratio: Range,
    draws: &mut Draws,
) -> Option<Region> {
    if !draws.chance(p.0) {
        return None;
    }
    let area = height as f64 * width as f64;
    let (low, high) = (Real(libm::log(ratio.0.0)), Real(libm::log(ratio.1.0)));
    for _ in 0..TRIES {
        let erased = area * uniform(draws, scale);
        let aspect = libm::exp(uniform(draws, (low, high)));
        let box_height = libm::rint(libm::sqrt(erased * aspect)) as usize;
        let box_width = libm::rint(libm::sqrt(erased / aspect)) as usize;
        if box_height < height && box_width < width {
            let top = whole(draws, height - box_height);
            let left = whole(draws, width - box_width);
            return Some(Region {
                top,
                left,
                height: box_height,
                width: box_width,
            });
        }
    }
    None
}

/// Factors of brightness, contrast, saturation and hue, in a uniformly random order. A factor that
/// cannot change anything (1, or 0 for hue) is left out.
fn jitter(ranges: [Range; 4], draws: &mut Draws) -> Vec<Adjust> {
    let mut order = [0, 1, 2, 3];
    for i in (1..4).rev() {
        order.swap(i, whole(draws, i));
    }
    let factors = ranges.map(|range| uniform(draws, range));
    order
        .into_iter()
        .filter(|&i| ranges[i].0 != ranges[i].1 || factors[i] != [1.0, 1.0, 1.0, 0.0][i])
        .map(|i| match i {
            0 => Adjust::Brightness(factors[0]),
            1 => Adjust::Contrast(factors[1]),
            2 => Adjust::Saturation(factors[2]),
            _ => Adjust::Hue(factors[3]),
        })
        .collect()
}

impl Step<'_> {
    /// Runs the kernel on `scratch.front`. Errors are the row's.
    pub(crate) fn run(self, scratch: &mut Scratch) -> Result<(), String> {
        let front = &mut scratch.front;
        match self {
            Self::Keep => return Ok(()),
            Self::FlipHorizontal => flip_horizontal(front),
            Self::FlipVertical => flip_vertical(front),
            Self::Adjust(changes) => adjust(front, &changes),
            Self::Blur { kernel, sigma } => {
                blur::gaussian_blur(front, kernel, sigma, &mut scratch.lines)?;
            }
            Self::Solarize { threshold } => tone::solarize(front, threshold),
            Self::Posterize { bits } => tone::posterize(front, bits),
            Self::Erase {
                region,
                value,
                mut draws,
            } => {
                erase::erase(front, region, value, &mut draws);
            }
            Self::ToFloat { dtype } => convert::to_float(front, dtype),
            Self::Normalize { mean, std } => convert::normalize(front, mean, std),
            Self::Resize { from, size, filter } => {
                scratch
                    .resizer
                    .run(front, from, size, filter, &mut scratch.back)?;
                scratch.swap();
            }
            Self::Crop { at, size } => {
                crop(front, at, size, &mut scratch.back);
                scratch.swap();
            }
            Self::Pad { sides, fill, mode } => {
                pad(front, sides, fill, mode, &mut scratch.back)?;
                scratch.swap();
            }
            Self::Rotate { degrees, turn } => {
                rotate(front, degrees, turn, &mut scratch.back);
                scratch.swap();
            }
            Self::Grayscale { channels } => {
                grayscale(front, channels, &mut scratch.back);
                scratch.swap();
            }
            Self::ToChw => {
                convert::to_chw(front, &mut scratch.back);
                scratch.swap();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
