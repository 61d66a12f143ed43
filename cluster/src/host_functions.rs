//! Functions of the host language of clients: the blob that carries their code, and the rules of
//! workers.

use std::sync::Arc;

use forebay_udfs::{DeclaredFunction, HostFunctions};

use crate::error::SendError;
use crate::job_spec::MAX_JOB_BYTES;
use crate::lease::whole;
use crate::message::{MessageError, MessageKind};

/// Maximum number of functions of a job.
const MAX_FUNCTIONS: usize = 1024;

/// Rule of a worker for jobs that call functions of the host language of their clients.
#[derive(Debug, Clone)]
pub enum FunctionRule {
    /// The worker is unfit for such jobs, for this reason.
    Refuse(String),
    /// The functions run.
    Run(Arc<dyn HostFunctions>),
}

impl Default for FunctionRule {
    fn default() -> Self {
        Self::Refuse("this worker does not run functions of clients".to_owned())
    }
}

impl FunctionRule {
    /// Returns the latest incidents with functions.
    pub(crate) fn events(&self) -> Vec<String> {
        match self {
            Self::Refuse(_) => Vec::new(),
            Self::Run(functions) => functions.events(),
        }
    }
}

/// Encodes functions for workers.
///
/// # Errors
/// Fails if a function cannot be sent, with its name and the reason, or if all of them are larger
/// than a blob may be.
pub(crate) fn encode(functions: &[Arc<dyn DeclaredFunction>]) -> Result<Vec<u8>, SendError> {
    let mut codes = Vec::with_capacity(functions.len());
    for function in functions {
        codes.push(function.code().map_err(|cause| SendError::Function {
            function: function.name().to_owned(),
            cause,
        })?);
    }
    let bytes = postcard::to_stdvec(&codes).map_err(|e| MessageKind::Functions.malformed(&e))?;
    if bytes.len() > MAX_JOB_BYTES {
        return Err(MessageKind::Functions.too_large().into());
    }
    Ok(bytes)
}

/// Decodes the codes of functions, which are untrusted input.
///
/// # Errors
/// Fails if `bytes` are not codes of functions.
pub(crate) fn decode(bytes: &[u8]) -> Result<Vec<&[u8]>, MessageError> {
    if bytes.len() > MAX_JOB_BYTES {
        return Err(MessageKind::Functions.too_large());
    }
    let codes: Vec<&[u8]> = whole(bytes, MessageKind::Functions)?;
    if codes.len() > MAX_FUNCTIONS {
        return Err(MessageKind::Functions.too_large());
    }
    Ok(codes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn garbage_is_refused() {
        let codes = vec![b"one".to_vec(), Vec::new()];
        let bytes = postcard::to_stdvec(&codes).unwrap();
        assert_eq!(decode(&bytes).unwrap(), codes);
        for end in 0..bytes.len() {
            assert!(decode(&bytes[..end]).is_err(), "{end}");
        }
        assert!(decode(&[&bytes[..], b"more"].concat()).is_err());
        // A count without contents does not allocate.
        assert!(decode(&[0xff; 9]).is_err());
    }
}
