//! Sources that a pipeline builder reads.

use std::collections::BTreeMap;

use arrow::datatypes::SchemaRef;

use crate::error::{PlanError, Result};
use crate::source::{Format, SourceSpec, formats};
use crate::sql::canonical_name;

/// A source that a pipeline builder reads: a format, a location and options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceBuilder {
    pub(super) spec: SourceSpec,
}

impl SourceBuilder {
    fn new(format: Format, location: impl Into<String>) -> Result<Self> {
        let location = location.into();
        if location.trim().is_empty() {
            let function = format.function();
            return Err(PlanError::mistake(format!(
                "{function} expects a path, found none"
            )));
        }
        let spec = SourceSpec {
            format,
            location,
            options: BTreeMap::new(),
            columns: None,
        };
        Ok(Self { spec })
    }

    /// Sets an option of the format, like `OPTIONS (key = value)`.
    #[must_use]
    pub fn option(mut self, key: &str, value: impl ToString) -> Self {
        self.spec
            .options
            .insert(key.to_ascii_lowercase(), value.to_string());
        self
    }

    /// Declares the columns, which are otherwise inferred from the files.
    #[must_use]
    pub fn columns(mut self, schema: SchemaRef) -> Self {
        self.spec.columns = Some(schema);
        self
    }

    /// Returns the table function call that reads the source, as SQL text.
    pub(super) fn name(&self) -> String {
        canonical_name(&self.spec)
    }

    /// Returns the format, location, options and columns of the source.
    pub const fn spec(&self) -> &SourceSpec {
        &self.spec
    }
}

macro_rules! declare_calls {
    ($($(#[$doc:meta])* $format:ident, $name:literal, $function:ident;)*) => {$(
        $(#[$doc])*
        ///
        #[doc = concat!("The same as `FROM ", stringify!($function), "('location')`.")]
        ///
        /// # Errors
        /// Fails if the path is empty.
        pub fn $function(location: impl Into<String>) -> Result<SourceBuilder> {
            SourceBuilder::new(Format::$format, location)
        }
    )*};
}

formats!(declare_calls);

/// A source of the format that the table function `function` reads.
///
/// # Errors
///
/// Fails if there is no such table function, or the path is empty.
pub fn files(function: &str, location: impl Into<String>) -> Result<SourceBuilder> {
    let format = Format::of_function(function).ok_or_else(|| {
        PlanError::mistake(format!(
            "unknown table function {function:?}: expected a name such as \"parquet\""
        ))
    })?;
    SourceBuilder::new(format, location)
}
