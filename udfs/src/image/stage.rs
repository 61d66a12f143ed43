//! An image function of a program, with the stream from which the function draws.

use std::sync::Arc;

use datafusion::common::{Result, internal_err};

use super::call::Rectangle;
use super::definition::optional;
use super::input::ImageKind;
use super::op::ImageOp;
use crate::draw::Draws;
use crate::facts::Algebra;
use crate::tensor::TensorType;

/// An image function with its constants, and the stream from which the function draws, if it draws.
#[derive(Debug, Clone)]
pub(crate) struct ProgramStage {
    /// The function with its constants.
    pub(crate) op: Arc<dyn ImageOp>,
    /// Id of the stream; `None` for pure functions.
    pub(crate) stream: Option<u64>,
}

impl ProgramStage {
    /// Returns the text from which plan hashes are computed.
    pub(crate) fn definition(&self) -> String {
        let stream = optional(self.stream.map(|stream| stream.to_string()));
        format!("Stage {{ op: {}, stream: {stream} }}", self.op.definition())
    }
}

/// Returns the rectangle of an image of this height and width that `stages` read; `None` for all of it.
/// `draws` returns the draws of a function for the image. Functions before the first one that reads
/// a rectangle change single pixels only.
pub(crate) fn rectangle_read(
    stages: &[ProgramStage],
    size: (usize, usize),
    draws: impl Fn(&ProgramStage) -> Draws,
) -> Option<Rectangle> {
    for stage in stages {
        let rectangle = stage.op.reads(size, &mut draws(stage));
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

/// Returns the type of a chain's result for `input`. If the chain starts with decoding, `input`
/// must be encoded bytes.
pub(crate) fn output_type(stages: &[ProgramStage], input: ImageKind) -> Result<TensorType> {
    let mut current = input.tensor();
    for stage in stages {
        current = Some(stage.op.result(current)?);
    }
    match current {
        Some(tensor) => Ok(tensor),
        None => internal_err!("an image program without functions"),
    }
}
