//! Writes pixels: upsampling and colors of rows whose samples are there.

use std::ops::Range;

use crate::color::{self, Planes};
use crate::format::{PixelFormat, Target};
use crate::header::{ColorModel, MAX_COMPONENTS};
use crate::plane::Plane;
use crate::region::{Extent, PixelRegion};
use crate::simd::InstructionSet;
use crate::upsample::{self, SampleRows, Upsampling};

/// Scratch rows.
#[derive(Debug, Default)]
pub(crate) struct LineBuffers {
    near: Vec<u8>,
    far: Vec<u8>,
    sums: Vec<u16>,
    upsampled: [Vec<u8>; MAX_COMPONENTS],
}

impl LineBuffers {
    /// Writes rows of pixels, counted from the region's first one.
    pub(crate) fn write(
        &mut self,
        simd: InstructionSet,
        planes: &[Plane; MAX_COMPONENTS],
        target: &Target<'_>,
        rows: Range<usize>,
        out: &mut [u8],
    ) {
        let region = target.region;
        let row_length = region.width * target.output.channels(target.header);
        for row in rows {
            let y = region.y + row;
            let out = &mut out[row * row_length..(row + 1) * row_length];
            for (index, extent) in target.extents.iter().enumerate() {
                let place = (index, y);
                upsample_row(simd, &planes[index], extent, region, place, self);
            }
            let mut parts: [&[u8]; MAX_COMPONENTS] = [&[]; MAX_COMPONENTS];
            for ((part, extent), (plane, line)) in { parts.iter_mut() }
                .zip(&target.extents)
                .zip(planes.iter().zip(&self.upsampled))
            {
                *part = if extent.upsampling == Upsampling::None {
                    plane.row(y, region.x..region.x + region.width)
                } else {
                    let first = region.x - region.x / extent.factors.0 * extent.factors.0;
                    let first = match extent.upsampling {
                        Upsampling::Across | Upsampling::Both => first,
                        _ => 0,
                    };
                    &line[first..first + region.width]
                };
            }
            let [a, b, c, d] = parts;
            match (target.output, target.header.color()) {
                (PixelFormat::Rgb, ColorModel::YCbCr) => {
                    let planes = Planes { y: a, cb: b, cr: c };
                    color::rgb(simd, planes, out);
                }
                (PixelFormat::Rgb, ColorModel::Gray) => {
                    for (out, &sample) in out.as_chunks_mut::<3>().0.iter_mut().zip(a) {
                        *out = [sample; 3];
                    }
                }
                (PixelFormat::Rgb, ColorModel::Cmyk | ColorModel::Ycck) => {
                    let is_ycck = target.header.color() == ColorModel::Ycck;
                    color::inks(simd, Planes { y: a, cb: b, cr: c }, d, is_ycck, out);
                }
                (PixelFormat::Luma, _) => out.copy_from_slice(a),
                _ => {
                    let count = target.extents.len();
                    for (i, part) in parts[..count].iter().enumerate() {
                        for (out, &sample) in out.iter_mut().skip(i).step_by(count).zip(*part) {
                            *out = sample;
                        }
                    }
                }
            }
        }
    }
}

/// Computes the pixels of a component in row `y`, from the first pixel of the region's first sample.
fn upsample_row(
    simd: InstructionSet,
    plane: &Plane,
    extent: &Extent,
    region: PixelRegion,
    (index, y): (usize, usize),
    lines: &mut LineBuffers,
) {
    let (h, v) = extent.factors;
    let near = y / v;
    // Of two rows of pixels that a row of samples covers, the upper one depends on the row above.
    let is_below = y % v == 1;
    let far = if is_below {
        (near + 1).min(extent.rows.end - 1)
    } else {
        near.saturating_sub(1)
    };
    let first = region.x / h;
    let last = (region.x + region.width - 1) / h;
    let out = &mut lines.upsampled[index];
    match extent.upsampling {
        Upsampling::None => {}
        Upsampling::Across => {
            pad(plane, extent, near, first, last, &mut lines.near);
            out.resize((last - first + 1) * 2, 0);
            upsample::across(simd, &lines.near, out);
        }
        Upsampling::Both => {
            pad(plane, extent, near, first, last, &mut lines.near);
            pad(plane, extent, far, first, last, &mut lines.far);
            out.resize((last - first + 1) * 2, 0);
            let rows = SampleRows {
                near: &lines.near,
                far: &lines.far,
                is_below,
            };
            upsample::both(simd, rows, &mut lines.sums, out);
        }
        Upsampling::Down => {
            out.resize(region.width, 0);
            let columns = region.x..region.x + region.width;
            let rows = SampleRows {
                near: plane.row(near, columns.clone()),
                far: plane.row(far, columns),
                is_below,
            };
            upsample::down(simd, rows, out);
        }
        Upsampling::Repeat(..) => {
            out.clear();
            let samples = plane.row(near, first..last + 1);
            let pixels = (region.x..region.x + region.width).map(|x| samples[x / h - first]);
            out.extend(pixels);
        }
    }
}

/// Copies samples of a row with one more at each side; at the image's border, that is the border's.
fn pad(plane: &Plane, extent: &Extent, row: usize, first: usize, last: usize, out: &mut Vec<u8>) {
    let columns = first.saturating_sub(1)..(last + 2).min(extent.columns.end);
    let samples = plane.row(row, columns.clone());
    out.clear();
    if first == 0 {
        out.push(samples[0]);
    }
    out.extend_from_slice(samples);
    if columns.end == last + 1 {
        out.push(samples[samples.len() - 1]);
    }
}
