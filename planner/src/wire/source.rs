//! The sources of a sent plan, and descriptions of sources that are sent alone.

use std::sync::Arc;

use arrow::datatypes::{Field, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::logical_expr::TableSource;

use super::error::WireError;
use super::form::{SourceForm, SpecForm};
use crate::source::{Format, SourceSpec};

/// Encodes the description of a source, without its release: the message around it has the release.
///
/// # Errors
/// Fails if the declared columns cannot be encoded.
pub fn encode_spec(spec: &SourceSpec) -> Result<Vec<u8>, WireError> {
    serde_json::to_vec(&SpecForm::of(spec)).map_err(|why| WireError::Lost(why.to_string()))
}

/// Decodes the description of a source, which is untrusted input.
///
/// # Errors
/// Fails if `bytes` is no description.
pub fn decode_spec(bytes: &[u8]) -> Result<SourceSpec, WireError> {
    let form: Result<SpecForm, _> = serde_json::from_slice(bytes);
    form.map_err(|why| WireError::malformed(why.to_string()))?
        .spec()
}

impl SpecForm {
    fn of(spec: &SourceSpec) -> Self {
        Self {
            format: spec.format.name().to_owned(),
            location: spec.location.clone(),
            options: spec.options.clone(),
            columns: spec.columns.as_deref().cloned(),
        }
    }

    fn spec(self) -> Result<SourceSpec, WireError> {
        let mut formats = Format::ALL.iter().copied();
        let Some(format) = formats.find(|format| format.name() == self.format) else {
            return Err(WireError::malformed(format!("no format {:?}", self.format)));
        };
        Ok(SourceSpec {
            format,
            location: self.location,
            options: self.options,
            columns: self.columns.map(Arc::new),
        })
    }
}

/// Describes a table: returns the description from which it was opened, and the hash of its files.
/// Returns `None` if the table was not opened from a description.
pub type DescribeTable = dyn Fn(&dyn TableProvider) -> Option<(SourceSpec, String)>;

/// A source that a sent plan scans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceMessage {
    /// The user's description, by which the receiver opens the source.
    pub spec: SourceSpec,
    /// Hash of the files that the source has on the sender. The receiver compares it with its own
    /// files; planning does not read it.
    pub files: String,
    /// The columns that the source has on the sender.
    pub schema: SchemaRef,
}

impl SourceMessage {
    /// Returns the form that is sent.
    pub(super) fn form(&self) -> SourceForm {
        SourceForm {
            spec: SpecForm::of(&self.spec),
            files: self.files.clone(),
            schema: self.schema.as_ref().clone(),
        }
    }

    /// Reads the form that was sent.
    pub(super) fn of_form(form: SourceForm) -> Result<Self, WireError> {
        Ok(Self {
            spec: form.spec.spec()?,
            files: form.files,
            schema: Arc::new(form.schema),
        })
    }

    /// Checks that an opened source has the sent columns.
    pub(super) fn check(&self, opened: &dyn TableSource) -> Result<(), WireError> {
        let found = opened.schema();
        if found == self.schema {
            return Ok(());
        }
        let (sent, found) = (self.schema.fields(), found.fields());
        let same = sent.iter().zip(found).take_while(|(a, b)| a == b).count();
        // Two fields may differ in their metadata alone.
        let shown = |field: Option<&Arc<Field>>| match field {
            None => "absent".to_owned(),
            Some(field) => {
                let null = if field.is_nullable() { " or null" } else { "" };
                let (name, data_type) = (field.name(), field.data_type());
                let metadata = match field.metadata() {
                    none if none.is_empty() => String::new(),
                    some => format!(" {some:?}"),
                };
                format!("{name:?}: {data_type}{null}{metadata}")
            }
        };
        Err(WireError::SourceColumns {
            location: self.spec.location.clone(),
            column: same + 1,
            sent: shown(sent.get(same)),
            found: shown(found.get(same)),
        })
    }
}
