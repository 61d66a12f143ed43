//! An image function of a program, with the stream from which the function draws.

use std::sync::Arc;

use datafusion::common::{Result, internal_err};

use super::definition::optional;
use super::input::ImageKind;
use super::op::ImageOp;
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
