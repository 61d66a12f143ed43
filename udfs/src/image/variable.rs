//! Columns of images that differ in shape.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrow::array::{ArrayRef, new_empty_array};
use datafusion::common::{DataFusionError, Result};

use super::output::{Element, variable_column};
use super::pixels::PixelShape;
use super::run::Chain;
use crate::bounded::OversizedBatch;
use crate::buffer_pool::take;
use crate::facts::Algebra;
use crate::failure::RowFailure;
use crate::tensor::TensorType;

/// Largest size, in bytes, of a column whose memory is taken before any image is decoded. The headers of
/// files may promise more than follows.
const MAX_FORESEEN_BYTES: usize = 256 << 20;

/// A column, and the failures of its rows in row order.
type ComputedColumn = (ArrayRef, Vec<RowFailure>);

/// True if the offsets of a column can count this number of elements.
const fn fit(elements: u64) -> bool {
    elements <= i32::MAX as u64
}

impl<E: Element> Chain<'_, E> {
    /// Runs `count` rows whose results differ in shape.
    pub(super) fn variable(&self, count: usize, output: TensorType) -> Result<ComputedColumn> {
        match self.in_place(count, &output)? {
            Some(column) => Ok(column),
            None => self.concatenated(count, output),
        }
    }

    /// Writes each result directly to its part of the column. Returns `None` if the sizes of the results
    /// are not known before the functions run, or if the column would be very large.
    fn in_place(&self, count: usize, output: &TensorType) -> Result<Option<ComputedColumn>> {
        let keeps_size = |algebra| matches!(algebra, Algebra::Pointwise | Algebra::Layout);
        if !{ self.head.iter() }.all(|stage| keeps_size(stage.op.facts().algebra)) {
            return Ok(None);
        }
        // A row without a size is null or fails.
        let pixels = (0..count).map(|row| self.images.pixels(row).unwrap_or(0));
        let lengths: Vec<usize> = pixels.map(|pixels| pixels * output.channels).collect();
        let total: usize = lengths.iter().sum();
        if total.saturating_mul(size_of::<E>()) > MAX_FORESEEN_BYTES {
            return Ok(None);
        }
        let mut values = take::<E>(total);
        let mut rest = values.as_mut_slice();
        let parts = lengths.iter().map(|&length| {
            let (part, after) = mem::take(&mut rest).split_at_mut(length);
            rest = after;
            part
        });
        let parts: Vec<&mut [E]> = parts.collect();
        let is_other = AtomicBool::new(false);
        let done = self.rows(parts.into_iter(), |row, out| {
            self.row(row, |pixels, flip, tail| {
                if pixels.shape.len() == out.len() {
                    tail.write(pixels, flip, out);
                } else {
                    is_other.store(true, Ordering::Relaxed);
                }
                Ok(pixels.shape)
            })
        });
        // A file whose header has another size than its image. All rows run again.
        if is_other.into_inner() {
            self.memory.results.store(0, Ordering::Relaxed);
            return Ok(None);
        }
        let (shapes, failures) = outcomes(done);
        if self.memory.is_refused() {
            return Ok(Some((new_empty_array(&output.data_type()), failures)));
        }
        // Failed rows leave gaps, which the rows after them close.
        let (mut from, mut to) = (0, 0);
        for (length, shape) in lengths.iter().zip(&shapes) {
            if shape.is_some() {
                if from > to {
                    values.copy_within(from..from + length, to);
                }
                to += length;
            }
            from += length;
        }
        values.truncate(to);
        Ok(Some((variable_column(values, &shapes, output)?, failures)))
    }

    /// Runs the rows, and concatenates their results.
    fn concatenated(&self, count: usize, output: TensorType) -> Result<ComputedColumn> {
        let elements = AtomicU64::new(0);
        let done = self.rows(std::iter::repeat_n((), count), |row, ()| {
            if !fit(elements.load(Ordering::Relaxed)) {
                return Ok(None);
            }
            let done = self.row(row, |pixels, flip, tail| {
                let own = pixels.shape.len();
                let before = elements.fetch_add(own as u64, Ordering::Relaxed);
                if !fit(before + own as u64) {
                    return Ok(None);
                }
                let mut out = vec![E::default(); own];
                tail.write(pixels, flip, &mut out);
                Ok(Some((out, pixels.shape)))
            });
            done.map(Option::flatten)
        });
        // No single image has that many elements, because an image has at most `MAX_PIXELS` pixels.
        let total = elements.into_inner();
        if !fit(total) {
            return Err(DataFusionError::External(Box::new(OversizedBatch {
                function: "images of different shapes".to_owned(),
                rows: count,
            })));
        }
        let (images, failures) = outcomes(done);
        if self.memory.is_refused() {
            return Ok((new_empty_array(&output.data_type()), failures));
        }
        let mut values = take::<E>(total as usize);
        let mut rest = values.as_mut_slice();
        let shapes = images.into_iter().map(|image| {
            let (image, shape) = image?;
            let (part, after) = mem::take(&mut rest).split_at_mut(image.len());
            part.copy_from_slice(&image);
            rest = after;
            Some(shape)
        });
        let shapes: Vec<Option<PixelShape>> = shapes.collect();
        Ok((variable_column(values, &shapes, &output)?, failures))
    }
}

/// Separates the failures of rows from their results; `None` for a row without one.
fn outcomes<T>(done: Vec<Result<Option<T>, RowFailure>>) -> (Vec<Option<T>>, Vec<RowFailure>) {
    let mut failures = Vec::new();
    let results = done.into_iter().map(|done| {
        done.unwrap_or_else(|failure| {
            failures.push(failure);
            None
        })
    });
    (results.collect(), failures)
}
