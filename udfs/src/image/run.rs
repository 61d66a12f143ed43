//! Runs a chain of image functions over the rows of a batch, in parallel on the caller's rayon
//! pool.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::ArrayRef;
use datafusion::common::{DataFusionError, Result, internal_err};
use half::f16;
use rayon::prelude::*;

use super::call::ImageCall;
use super::codec::{DecodeRequest, header};
use super::footprint::Footprint;
use super::input::{ImageKind, Images};
use super::op::{Finish, ImageOp};
use super::output::{ColumnWriter, Element, fixed_column, tail_length};
use super::pixels::{PixelShape, Pixels};
use super::scratch::with_scratch;
use super::stage::{ProgramStage, output_type, rectangle_read};
use super::values::{Decoding, Mode};
use crate::buffer_pool::take;
use crate::decode_scope::DecodeScope;
use crate::draw::Draws;
use crate::failure::RowFailure;
use crate::room::{DecodeRoom, Grant, NoRoom};
use crate::row::RowColumn;
use crate::seek_index_store::SeekIndexAccess;
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
pub(super) struct Chain<'a, E> {
    decoding: Decoding,
    pub(super) head: &'a [ProgramStage],
    /// Mirrorings applied while rows are written, as the stream and the probability of each.
    flips: Vec<(Option<u64>, f64)>,
    tail: ColumnWriter<E>,
    pub(super) images: Images<'a>,
    rows: Option<&'a RowColumn>,
    pub(super) memory: RowMemory,
    /// The seek indexes of JPEG files.
    indexes: Option<SeekIndexAccess>,
}

/// Accounts for the memory that the rows of a call take from the thread's [`DecodeRoom`].
pub(super) struct RowMemory {
    room: Option<Arc<DecodeRoom>>,
    /// Type of a row's image after decoding.
    decoded: TensorType,
    /// True if the results of rows differ in size, and are counted until the column is built.
    keeps_results: bool,
    pub(super) results: AtomicU64,
    /// Size, in bytes, of the largest refused request, by one row or by all results together; 0 if
    /// none was refused.
    refused: AtomicU64,
}

impl RowMemory {
    pub(super) fn is_refused(&self) -> bool {
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
    let scope = DecodeScope::of_thread().filter(|_| kind == ImageKind::Encoded);
    let (room, indexes) = scope.map(|scope| (scope.room, scope.indexes)).unzip();
    let chain = Chain {
        decoding,
        head,
        flips,
        tail,
        images,
        rows,
        memory: RowMemory {
            room,
            decoded: decoding.mode.decoded(),
            keeps_results: fixed.is_none(),
            results: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        },
        indexes: indexes.flatten(),
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

    /// Calls `row` with the index and the item of each row, in parallel. Returns the results in row
    /// order.
    ///
    /// Rows with the largest files start first: a photo can take as long as thirty others, and if
    /// such a photo started last, the other threads would be idle.
    pub(super) fn rows<T: Send, R: Send>(
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
    pub(super) fn row<T>(
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
            let request = DecodeRequest {
                bytes: self.images.bytes(row),
                decoding: self.decoding,
                reads: &|size| {
                    rectangle_read(self.head, size, |stage| self.draws(row, stage.stream))
                },
                indexes: self.indexes.as_ref(),
            };
            { self.images.load(row, &request, scratch) }
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
