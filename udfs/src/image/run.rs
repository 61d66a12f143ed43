//! Running a chain of image functions over the rows of a batch, in parallel on the rayon pool that
//! the caller is in.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{ArrayRef, new_empty_array};
use datafusion::common::{DataFusionError, Result, internal_err};
use half::f16;
use rayon::prelude::*;

use super::codec::header;
use super::footprint::Footprint;
use super::input::{Images, Kind};
use super::op::{ImageOp, Mode};
use super::output::{Element, Tail, fixed_column, tail_length, variable_column};
use super::pixels::{Scratch, Shape};
use super::scratch::with_scratch;
use super::step::Step;
use crate::bounded::OversizedBatch;
use crate::draw::Draws;
use crate::failure::RowFailure;
use crate::recycle::take;
use crate::room::{self, DecodeRoom, Grant, NoRoom};
use crate::row::Rows;
use crate::tensor::{Dtype, TensorType};

/// An image function with the stream that it draws from, if it draws.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Stage {
    /// The function.
    pub(crate) op: ImageOp,
    /// Its stream; `None` for pure functions.
    pub(crate) stream: Option<u64>,
}

/// The type that a chain makes of `input`, which is first decoded if the chain begins so.
pub(crate) fn output_type(stages: &[Stage], input: Kind) -> Result<TensorType> {
    let mut current = match input {
        Kind::Encoded => None,
        Kind::Image(tensor) => Some(tensor),
    };
    for stage in stages {
        current = Some(stage.op.output(current)?);
    }
    match current {
        Some(tensor) => Ok(tensor),
        None => internal_err!("an image program without functions"),
    }
}

/// Runs the chain on each row of `column`. Returns the images, null where the input is null or the
/// row failed, and the failures in row order.
pub(crate) fn run(
    stages: &[Stage],
    column: &ArrayRef,
    kind: Kind,
    rows: Option<&Rows>,
) -> Result<(ArrayRef, Vec<RowFailure>)> {
    match output_type(stages, kind)?.dtype {
        Dtype::U8 => run_as::<u8>(stages, column, kind, rows),
        Dtype::F16 => run_as::<f16>(stages, column, kind, rows),
        Dtype::F32 => run_as::<f32>(stages, column, kind, rows),
    }
}

/// A chain split into what each row runs and what writing out does.
struct Chain<'a, E> {
    mode: Mode,
    head: &'a [Stage],
    flips: Vec<&'a Stage>,
    tail: Tail<E>,
    images: Images<'a>,
    rows: Option<&'a Rows>,
    memory: Memory,
}

/// What the rows of a call take of the thread's room.
struct Memory {
    room: Option<Arc<DecodeRoom>>,
    /// What rows are decoded to.
    decoded: TensorType,
    /// Whether each result is memory of its own, which all keep until the column is made.
    keeps_results: bool,
    results: AtomicU64,
    /// The most that a row, or the results of all, were refused.
    refused: AtomicU64,
}

impl Memory {
    fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed) > 0
    }

    /// The error that ends the run where a row, or the results of all, cannot have their memory.
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
    stages: &[Stage],
    column: &ArrayRef,
    kind: Kind,
    rows: Option<&Rows>,
) -> Result<(ArrayRef, Vec<RowFailure>)> {
    let output = output_type(stages, kind)?;
    if rows.is_none() && stages.iter().any(|s| s.stream.is_some()) {
        return internal_err!("a random image function ran without the hidden row column");
    }
    let (mode, stages) = match stages {
        [
            Stage {
                op: ImageOp::Decode(mode),
                ..
            },
            rest @ ..,
        ] => (*mode, rest),
        _ => (Mode::Rgb, stages),
    };
    let mut current = match kind {
        Kind::Encoded => ImageOp::Decode(mode).output(None)?,
        Kind::Image(tensor) => tensor,
    };
    let mut typed = Vec::with_capacity(stages.len());
    for stage in stages {
        typed.push((&stage.op, current));
        current = stage.op.output(Some(current))?;
    }
    let (head, tail) = stages.split_at(stages.len() - tail_length(&typed));
    let tail_ops: Vec<&ImageOp> = tail.iter().map(|s| &s.op).collect();
    let flips = tail
        .iter()
        .filter(|s| {
            matches!(
                s.op,
                ImageOp::FlipHorizontal | ImageOp::RandomFlipHorizontal { .. }
            )
        })
        .collect();
    let tail = Tail::<E>::new(&tail_ops, output.channels);
    let images = Images::new(column, kind)?;
    let fixed = output.elements().filter(|&elements| elements > 0);
    let chain = Chain {
        mode,
        head,
        flips,
        tail,
        images,
        rows,
        memory: Memory {
            room: room::of_thread().filter(|_| kind == Kind::Encoded),
            decoded: ImageOp::Decode(mode).output(None)?,
            keeps_results: fixed.is_none(),
            results: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        },
    };
    let count = column.len();

    let (images, failures) = match fixed {
        Some(elements) => {
            let mut values = take::<E>(count * elements);
            let done = chain.rows(values.chunks_mut(elements), |row, out| {
                let done = chain
                    .row(row, |pixels, flip, tail| {
                        if pixels.shape.len() != out.len() {
                            let Shape { height, width, .. } = pixels.shape;
                            return Err(format!("the image of {height} x {width} is no {output}"));
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
            (fixed_column(values, &valid, &output)?, failures)
        }
        _ => {
            let elements = AtomicU64::new(0);
            let fit = |elements: u64| elements <= i32::MAX as u64;
            let done = chain.rows(std::iter::repeat_n((), count), |row, ()| {
                if !fit(elements.load(Ordering::Relaxed)) {
                    return Ok(None);
                }
                let done = chain.row(row, |pixels, flip, tail| {
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
            // No image alone has so many elements: it has at most `MAX_PIXELS` pixels.
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
            match chain.memory.is_refused() {
                true => (new_empty_array(&output.data_type()), failures),
                false => (variable_column(images, &output)?, failures),
            }
        }
    };
    chain.memory.outcome()?;
    Ok((images, failures))
}

impl<E: Element> Chain<'_, E> {
    /// Runs `row` on each row and what belongs to it, in parallel; the results in row order.
    ///
    /// The largest files come first: a photo can take as long as thirty others, and a thread that
    /// begins with it last leaves the others without work.
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

    /// Runs one row and hands its pixels to `finish`; `None` where the row has no image.
    fn row<T>(
        &self,
        row: usize,
        finish: impl FnOnce(&super::pixels::Pixels, bool, &Tail<E>) -> Result<T, String>,
    ) -> Result<Option<T>, RowFailure> {
        if self.images.is_null(row) {
            return Ok(None);
        }
        let failed = |operator: &str, cause: String| RowFailure {
            row,
            operator: operator.to_owned(),
            cause,
        };
        // The run ends then; what becomes of its rows does not matter.
        let _granted = self.granted(row).map_err(|refused| {
            let most = &self.memory.refused;
            most.fetch_max(refused.needed, Ordering::Relaxed);
            failed("decode_image", refused.to_string())
        })?;
        with_scratch(|scratch| {
            self.images
                .load(row, self.mode, scratch)
                .map_err(|cause| failed("decode_image", cause))?;
            for stage in self.head {
                self.stage(row, stage, scratch)
                    .map_err(|cause| failed(stage.op.name(), cause))?;
            }
            let mut flip = false;
            for stage in &self.flips {
                let step = self
                    .step(row, stage, scratch)
                    .map_err(|c| failed(stage.op.name(), c))?;
                flip ^= matches!(step, Some(Step::FlipHorizontal));
            }
            let done = finish(&scratch.front, flip, &self.tail);
            done.map(Some).map_err(|cause| failed("image", cause))
        })
    }

    /// Waits until the row may have its memory; `None` where it needs none to speak of.
    fn granted(&self, row: usize) -> Result<Option<Grant<'_>>, NoRoom> {
        let Some(room) = &self.memory.room else {
            return Ok(None);
        };
        // A broken header is an error of its row, which decoding finds before it allocates.
        let Ok(header) = header(self.images.bytes(row)) else {
            return Ok(None);
        };
        let ops = self.head.iter().map(|stage| &stage.op);
        let footprint = Footprint::of(&header, self.memory.decoded, ops);
        if self.memory.keeps_results {
            let result = footprint.result;
            let before = self.memory.results.fetch_add(result, Ordering::Relaxed);
            room.check(before.saturating_add(result))?;
        }
        match footprint.is_small() {
            true => Ok(None),
            false => room.take(footprint.peak).map(Some),
        }
    }

    fn step<'s>(
        &self,
        row: usize,
        stage: &'s Stage,
        scratch: &Scratch,
    ) -> Result<Option<Step<'s>>, String> {
        let mut draws = match (stage.stream, self.rows) {
            (Some(stream), Some(rows)) => rows.draws(row, stream),
            _ => Draws::new(0, 0, 0, 0),
        };
        let Shape {
            height,
            width,
            channels,
            ..
        } = scratch.front.shape;
        stage.op.step((height, width), channels, &mut draws)
    }

    fn stage(&self, row: usize, stage: &Stage, scratch: &mut Scratch) -> Result<(), String> {
        match self.step(row, stage, scratch)? {
            Some(step) => step.run(scratch),
            None => Err("an image cannot be decoded twice".to_owned()),
        }
    }
}
