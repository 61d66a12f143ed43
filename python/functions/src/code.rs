//! Functions as bytes, which a client sends to the workers of a cluster.

use serde::{Deserialize, Serialize};

use crate::Declaration;

/// Separates the header, which is JSON, from the pickled function.
const HEADER_END: u8 = b'\n';

/// The versions that must agree between the process that pickles a function and the one that
/// unpickles it. Each is a major and a minor version, such as `3.12`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PickleVersions {
    /// Version of Python, which the code of functions depends on.
    pub python: String,
    /// Version of cloudpickle, which rebuilds functions from their code.
    pub cloudpickle: String,
}

/// A function with its code.
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionCode {
    /// Versions of the process that pickled the function.
    pub versions: PickleVersions,
    /// The declaration.
    pub declaration: Declaration,
    /// The function, pickled with its code.
    pub pickled: Vec<u8>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    versions: PickleVersions,
    declaration: Declaration,
}

impl FunctionCode {
    /// Encodes the function.
    ///
    /// # Errors
    /// Fails if a type cannot be encoded, with the reason.
    pub fn encode(&self) -> Result<Vec<u8>, String> {
        let header = Header {
            versions: self.versions.clone(),
            declaration: self.declaration.clone(),
        };
        let mut bytes = serde_json::to_vec(&header).map_err(|error| error.to_string())?;
        bytes.push(HEADER_END);
        bytes.extend_from_slice(&self.pickled);
        Ok(bytes)
    }

    /// Decodes a function, which is untrusted input.
    ///
    /// # Errors
    /// Fails if `bytes` is not a function, with the reason.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let malformed = |why: &dyn std::fmt::Display| format!("not a Python function: {why}");
        // JSON has no line breaks where it is not formatted for people.
        let end = bytes.iter().position(|byte| *byte == HEADER_END);
        let end = end.ok_or_else(|| malformed(&"it has no header"))?;
        let Header {
            versions,
            declaration,
        } = serde_json::from_slice(&bytes[..end]).map_err(|error| malformed(&error))?;
        Ok(Self {
            versions,
            declaration,
            pickled: bytes[end + 1..].to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};

    use super::*;

    #[test]
    fn a_function_survives_and_garbage_is_refused() {
        let code = FunctionCode {
            versions: PickleVersions {
                python: "3.12".into(),
                cloudpickle: "3.1".into(),
            },
            declaration: Declaration {
                name: "lab.score".into(),
                version: 2,
                deterministic: true,
                ns_per_row: Some(7),
                arity: None,
                value: Field::new("score", DataType::Float32, true),
                rows: None,
                processes: Some(2),
            },
            pickled: b"\x80pickle\nof two lines".to_vec(),
        };
        let bytes = code.encode().unwrap();
        assert_eq!(FunctionCode::decode(&bytes).unwrap(), code);
        let end = bytes.iter().position(|byte| *byte == b'\n').unwrap();
        for end in 0..end {
            assert!(FunctionCode::decode(&bytes[..end]).is_err());
        }
    }
}
