//! Runs a chain of image functions over the rows of a batch, in parallel on the caller's rayon
//! pool.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{ArrayRef, new_empty_array};
use datafusion::common::{DataFusionError, Result, internal_err};
use half::f16;
use rayon::prelude::*;

use super::call::{ImageCall, Rectangle};
use super::codec::header;
use super::footprint::Footprint;
use super::input::{ImageKind, Images};
use super::op::{Finish, ImageOp};
use super::output::{ColumnWriter, Element, fixed_column, tail_length, variable_column};
use super::pixels::{PixelShape, Pixels};
use super::scratch::with_scratch;
use super::stage::{ProgramStage, output_type};
use super::values::{Decoding, Mode};
use crate::bounded::OversizedBatch;
use crate::buffer_pool::take;
use crate::draw::Draws;
use crate::facts::Algebra;
use crate::failure::RowFailure;
use crate::room::{self, DecodeRoom, Grant, NoRoom};
use crate::row::RowColumn;
use crate::tensor::{Dtype, TensorType};

/// Runs the chain on each row of `column`. Returns the images, which are null for null inputs and
/// failed rows, and the failures in row order.
pub(crate) fn run(
    stages: &[ProgramStage],
    column: &ArrayRef,
    kind: ImageKind,
    rows: Option<&RowColumn>,
) -> Result<(ArrayRef, Vec<RowFailure>)> {
    match output_type(stages, kind)?.dtype {
        Dtype::U8 => run_as::<u8>(stages, column, kind, rows),
        Dtype::F16 => run_as::<f16>(stages, column, kind, rows),
        Dtype::F32 => run_as::<f32>(stages, column, kind, rows),
    }
}

/// A chain, split into the functions that run on each row's pixels, and the functions that are
/// applied while the result is written.
struct Chain<'a, E> {
    decoding: Decoding,
    head: &'a [ProgramStage],
    /// Mirrorings applied while rows are written, as the stream and the probability of each.
    flips: Vec<(Option<u64>, f64)>,
    tail: ColumnWriter<E>,
    images: Images<'a>,
    rows: Option<&'a RowColumn>,
    memory: RowMemory,
}

/// Accounts for the memory that the rows of a call take from the thread's [`DecodeRoom`].
struct RowMemory {
    room: Option<Arc<DecodeRoom>>,
    /// Type of a row's image after decoding.
    decoded: TensorType,
    /// True if the result of each row is a separate allocation, which lives until the column is
    /// built.
    keeps_results: bool,
    results: AtomicU64,
    /// Size, in bytes, of the largest refused request, by one row or by all results together; 0 if
    /// none was refused.
    refused: AtomicU64,
}

impl RowMemory {
    fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed) > 0
    }

    /// Returns the error that ends the run if a request was refused, by one row or by all results
    /// together.
    fn outcome(self) -> Result<()> {
        let refused = self.refused.into_inner();
        match self.room.filter(|_| refused > 0) {
            None => Ok(()),
            Some(room) => {
                let needed = refused.max(self.results.into_inner());
                let error = room.refusal(needed);
                Err(DataFusionError::External(Box::new(error)))
            }
        }
    }
}

fn run_as<E: Element>(
    stages: &[ProgramStage],
    column: &ArrayRef,
    kind: ImageKind,
    rows: Option<&RowColumn>,
) -> Result<(ArrayRef, Vec<RowFailure>)> {
    let output = output_type(stages, kind)?;
    if rows.is_none() && stages.iter().any(|s| s.stream.is_some()) {
        return internal_err!("a random image function ran without the hidden row column");
    }
    let (decoding, stages) = match stages
        .split_first()
        .map(|(first, rest)| (first.op.call(), rest))
    {
        Some((ImageCall::Decode(decoding), rest)) => (decoding, rest),
        // The column holds pixels, which are not decoded.
        _ => {
            let mode = Mode::Rgb;
            let is_strict = false;
            (Decoding { mode, is_strict }, stages)
        }
    };
    let mut current = kind.tensor().unwrap_or(decoding.mode.decoded());
    let mut typed = Vec::with_capacity(stages.len());
    for stage in stages {
        typed.push((&*stage.op, current));
        current = stage.op.result(Some(current))?;
    }
    let (head, tail) = stages.split_at(stages.len() - tail_length(&typed));
    let tail_ops: Vec<&dyn ImageOp> = tail.iter().map(|s| &*s.op).collect();
    let mirrored = |stage: &ProgramStage| match stage.op.finish() {
        Some(Finish::Mirror(p)) => Some((stage.stream, p)),
        _ => None,
    };
    let flips = tail.iter().filter_map(mirrored).collect();
    let tail = ColumnWriter::<E>::new(&tail_ops, output.channels)?;
    let images = Images::new(column, kind)?;
    let fixed = output.elements().filter(|&elements| elements > 0);
    let chain = Chain {
        decoding,
        head,
        flips,
        tail,
        images,
        rows,
        memory: RowMemory {
            room: room::of_thread().filter(|_| kind == ImageKind::Encoded),
            decoded: decoding.mode.decoded(),
            keeps_results: fixed.is_none(),
            results: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        },
    };
    let (images, failures) = match fixed {
        Some(elements) => chain.fixed(column.len(), elements, output)?,
        None => chain.variable(column.len(), output)?,
    };
    chain.memory.outcome()?;
    Ok((images, failures))
}

impl<E: Element> Chain<'_, E> {
    /// Runs `count` rows whose results have one shape, and writes each result directly to the row's
    /// part of the column.
    fn fixed(
        &self,
        count: usize,
        elements: usize,
        output: TensorType,
    ) -> Result<(ArrayRef, Vec<RowFailure>)> {
        let mut values = take::<E>(count * elements);
        let done = self.rows(values.chunks_mut(elements), |row, out| {
            let done = self
                .row(row, |pixels, flip, tail| {
                    if pixels.shape.len() != out.len() {
                        let PixelShape { height, width, .. } = pixels.shape;
                        return Err(format!(
                            "expected an image of type {output}, found {height} x {width} pixels"
                        ));
                    }
                    tail.write(pixels, flip, out);
                    Ok(())
                })
                .map(|done| done.is_some());
            if !matches!(done, Ok(true)) {
                out.fill(E::default());
            }
            done
        });
        let valid: Vec<bool> = done.iter().map(|d| matches!(d, Ok(true))).collect();
        let failures = done.into_iter().filter_map(Result::err).collect();
        Ok((fixed_column(values, &valid, &output)?, failures))
    }

    /// Runs `count` rows whose results differ in shape, and concatenates the results.
    fn variable(&self, count: usize, output: TensorType) -> Result<(ArrayRef, Vec<RowFailure>)> {
        let elements = AtomicU64::new(0);
        let fit = |elements: u64| elements <= i32::MAX as u64;
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
        if !fit(elements.into_inner()) {
            return Err(DataFusionError::External(Box::new(OversizedBatch {
                function: "images of different shapes".to_owned(),
                rows: count,
            })));
        }
        let mut failures = Vec::new();
        let images = done.into_iter().map(|d| {
            d.unwrap_or_else(|f| {
                failures.push(f);
                None
            })
        });
        let images: Vec<_> = images.collect();
        if self.memory.is_refused() {
            return Ok((new_empty_array(&output.data_type()), failures));
        }
        Ok((variable_column(images, &output)?, failures))
    }

    /// Calls `row` with the index and the item of each row, in parallel. Returns the results in row
    /// order.
    ///
    /// Rows with the largest files start first: a photo can take as long as thirty others, and if
    /// such a photo started last, the other threads would be idle.
    fn rows<T: Send, R: Send>(
        &self,
        items: impl Iterator<Item = T>,
        row: impl Fn(usize, T) -> R + Sync,
    ) -> Vec<R> {
        let mut queue: Vec<(usize, T)> = items.enumerate().collect();
        queue.sort_by_key(|(row, _)| Reverse(self.images.size(*row)));
        let queue = queue.into_iter().par_bridge();
        let mut done: Vec<(usize, R)> = queue.map(|(i, item)| (i, row(i, item))).collect();
        done.sort_unstable_by_key(|(row, _)| *row);
        done.into_iter().map(|(_, result)| result).collect()
    }

    /// Runs one row and passes the pixels to `finish`; returns `None` if the row has no image.
    fn row<T>(
        &self,
        row: usize,
        finish: impl FnOnce(&Pixels, bool, &ColumnWriter<E>) -> Result<T, String>,
    ) -> Result<Option<T>, RowFailure> {
        if self.images.is_null(row) {
            return Ok(None);
        }
        let failed = |operator: &str, cause: String| RowFailure {
            row,
            operator: operator.to_owned(),
            cause,
        };
        // A refusal ends the run, so the outcome of the call's rows does not matter.
        let _granted = self.granted(row).map_err(|refused| {
            let most = &self.memory.refused;
            most.fetch_max(refused.needed, Ordering::Relaxed);
            failed("decode_image", refused.to_string())
        })?;
        with_scratch(|scratch| {
            self.images
                .load(row, self.decoding, &|size| self.reads(row, size), scratch)
                .map_err(|cause| failed("decode_image", cause))?;
            scratch.is_repeated = false;
            for stage in self.head {
                if !stage.op.acts_by_channel() {
                    scratch.repeat_channel();
                }
                let mut draws = self.draws(row, stage.stream);
                stage
                    .op
                    .apply(scratch, &mut draws)
                    .map_err(|cause| failed(stage.op.name(), cause))?;
            }
            scratch.repeat_channel();
            let mut flip = false;
            for (stream, p) in &self.flips {
                flip ^= self.draws(row, *stream).chance(*p);
            }
            let done = finish(&scratch.front, flip, &self.tail);
            done.map(Some).map_err(|cause| failed("image", cause))
        })
    }

    /// Returns the rectangle of an image of this height and width that the functions read. Functions
    /// before the first one that reads a rectangle change single pixels only.
    fn reads(&self, row: usize, size: (usize, usize)) -> Option<Rectangle> {
        for stage in self.head {
            let rectangle = stage.op.reads(size, &mut self.draws(row, stage.stream));
            if rectangle.is_some() {
                return rectangle;
            }
            let algebra = stage.op.facts().algebra;
            if !matches!(algebra, Algebra::Pointwise | Algebra::Layout) {
                return None;
            }
        }
        None
    }

    /// Waits until the room grants the memory for decoding the row. Returns `None` if the row needs
    /// so little memory that none is requested.
    fn granted(&self, row: usize) -> Result<Option<Grant<'_>>, NoRoom> {
        let Some(room) = &self.memory.room else {
            return Ok(None);
        };
        // A broken header is an error of its row, which the decoder reports before it allocates any
        // pixels.
        let Ok(header) = header(self.images.bytes(row)) else {
            return Ok(None);
        };
        let ops = self.head.iter().map(|stage| &*stage.op);
        let footprint = Footprint::of(&header, self.memory.decoded, ops);
        if self.memory.keeps_results {
            let result = footprint.result;
            let before = self.memory.results.fetch_add(result, Ordering::Relaxed);
            room.check(before.saturating_add(result))?;
        }
        if footprint.is_small() {
            Ok(None)
        } else {
            room.take(footprint.peak).map(Some)
        }
    }

    /// Returns the draws of `stream` for a row. If `stream` is `None`, the function takes no draws,
    /// and the returned draws are arbitrary.
    fn draws(&self, row: usize, stream: Option<u64>) -> Draws {
        match (stream, self.rows) {
            (Some(stream), Some(rows)) => rows.draws(row, stream),
            _ => Draws::new(0, 0, 0, 0),
        }
    }
}
