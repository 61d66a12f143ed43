//! The sources of a sent plan.

use std::sync::Arc;

use arrow::datatypes::{Field, SchemaRef};
use datafusion::logical_expr::TableSource;

use super::error::WireError;
use super::form::SourceForm;
use crate::source::{Format, SourceSpec};

/// A source that a sent plan scans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceMessage {
    /// The user's description, by which the receiver opens the source.
    pub spec: SourceSpec,
    /// The columns that the source has on the sender.
    pub schema: SchemaRef,
}

impl SourceMessage {
    /// Returns the form that is sent.
    pub(super) fn form(&self) -> SourceForm {
        SourceForm {
            format: self.spec.format.name().to_owned(),
            location: self.spec.location.clone(),
            options: self.spec.options.clone(),
            columns: self.spec.columns.as_deref().cloned(),
            schema: self.schema.as_ref().clone(),
        }
    }

    /// Reads the form that was sent.
    pub(super) fn of_form(form: SourceForm) -> Result<Self, WireError> {
        let mut formats = Format::ALL.iter().copied();
        let Some(format) = formats.find(|format| format.name() == form.format) else {
            return Err(WireError::malformed(format!("no format {:?}", form.format)));
        };
        Ok(Self {
            spec: SourceSpec {
                format,
                location: form.location,
                options: form.options,
                columns: form.columns.map(Arc::new),
            },
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
