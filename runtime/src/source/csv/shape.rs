//! The interpretation of CSV files, which the options of a source decide.

use arrow::compute::can_cast_types;
use arrow::datatypes::{DataType, SchemaRef};
use forebay_planner::source::SourceSpec;

use super::super::content::ContentHasher;
use super::super::error::SourceError;
use super::super::options::SourceOptions;
use super::dialect::Dialect;

pub(super) const FORMAT: &str = "CSV";

/// Names of the options of `CSV`.
pub(super) const OPTIONS: &[&str] = &[
    "delimiter",
    "header",
    "null",
    "quote",
    "escape",
    "comment",
    "infer_rows",
];

/// Number of rows at the start of each file from which the types of columns are guessed, unless the
/// option `infer_rows` sets another number. A later value that does not fit the guessed type is an
/// error.
const INFER_ROWS: usize = 1000;

/// The interpretation of the CSV files of a source.
#[derive(Debug, Clone)]
pub(super) struct CsvShape {
    pub(super) dialect: Dialect,
    pub(super) header: bool,
    /// The text that stands for null. In columns of types other than text and bytes, an empty value
    /// is null, too.
    pub(super) null: String,
    pub(super) infer_rows: usize,
    pub(super) declared: Option<SchemaRef>,
}

impl CsvShape {
    pub(super) fn new(spec: &SourceSpec) -> Result<Self, SourceError> {
        let options = SourceOptions::new(spec, OPTIONS)?;
        let quote = options.byte("quote")?.unwrap_or(b'"');
        let dialect = Dialect {
            delimiter: options.byte("delimiter")?.unwrap_or(b','),
            quote,
            // An escape character equal to the quote means that quotes are doubled, which is the
            // default.
            escape: options.byte("escape")?.filter(|&escape| escape != quote),
            comment: options.byte("comment")?,
        };
        if dialect.delimiter == dialect.quote {
            return Err(options.wrong("delimiter", "another character than the quote"));
        }
        if let Some(field) = spec
            .columns
            .iter()
            .flat_map(|columns| columns.fields())
            .find(|f| !can_cast_types(&DataType::Utf8, f.data_type()))
        {
            return Err(SourceError::Schema(format!(
                "a CSV file cannot hold the column '{}' of type {}",
                field.name(),
                field.data_type()
            )));
        }
        Ok(Self {
            dialect,
            header: options.boolean("header", true)?,
            null: options.text("null").unwrap_or_default().to_owned(),
            infer_rows: options.count("infer_rows", INFER_ROWS)?,
            declared: spec.columns.clone(),
        })
    }

    /// Begins the hash of a file's content with the options on which the rows depend.
    pub(super) fn hasher(&self) -> ContentHasher {
        let Dialect {
            delimiter,
            quote,
            escape,
            comment,
        } = self.dialect;
        let (header, null) = (self.header, &self.null);
        let options = format!("{delimiter} {quote} {escape:?} {comment:?} {header} {null}");
        ContentHasher::new(FORMAT, &options)
    }

    pub(super) fn is_null(&self, value: &str, data_type: &DataType) -> bool {
        value == self.null || (value.is_empty() && !is_text(data_type))
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
    )
}
