//! Files that commands write rows to: `--out`.

use std::path::Path;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use forebay::generate::{TableFormat, TableWriter};

use super::failure::Failure;

/// The format of a file that is to be written.
pub(crate) fn format(out: &Path) -> Result<TableFormat, Failure> {
    TableFormat::of_path(out).ok_or_else(|| {
        Failure::Usage(format!(
            "--out {}: expected a name that ends with .parquet or .arrow, or with .csv or .json for plain columns",
            out.display()
        ))
    })
}

/// Writes rows to a file.
pub(crate) fn write(
    out: &Path,
    schema: &SchemaRef,
    batches: &[RecordBatch],
) -> Result<(), Failure> {
    let mut writer = TableWriter::create(out, format(out)?, schema)?;
    for batch in batches {
        writer.write(batch)?;
    }
    writer.finish()?;
    Ok(())
}
