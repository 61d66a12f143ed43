//! Writes rows to a file, batch by batch, in a format that Forebay's sources can read.

use std::fmt;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::writer::FileWriter;
use arrow::json::writer::LineDelimited;
use arrow::{csv, json};
use forebay_runtime::output_file::OutputFile;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use super::error::GenerateError;
use super::finite;
use super::format::TableFormat;
use super::stored::{stored_batch, stored_schema};

/// Target size, in bytes, of a Parquet row group; a reader holds one or two row groups in memory.
const ROW_GROUP_BYTES: usize = 16 << 20;
/// Number of bytes buffered before a write to the file.
const BUFFER: usize = 64 << 10;
/// Maximum number of rows of a Parquet row group.
const ROW_GROUP_ROWS: usize = 16_384;

/// A table file that is being written. At most a row group and a batch are held in memory. The file
/// appears under its name at [finish](Self::finish). Until then, an existing file of the same name
/// stays unchanged.
pub struct TableWriter {
    path: PathBuf,
    /// Schema in which the file stores the rows.
    schema: SchemaRef,
    inner: FormatWriter,
    file: OutputFile,
    is_direct: bool,
}

impl fmt::Debug for TableWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableWriter")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

enum FormatWriter {
    Parquet(Box<ArrowWriter<BufWriter<File>>>),
    Csv(csv::Writer<BufWriter<File>>),
    Json(json::Writer<BufWriter<File>, LineDelimited>),
    Arrow(FileWriter<BufWriter<File>>),
}

impl TableWriter {
    /// Starts the file `path`. The finished file replaces an existing file of that name. The parent
    /// folder must exist. A column type that the format cannot hold is refused before anything is
    /// written.
    pub fn create(
        path: &Path,
        format: TableFormat,
        schema: &SchemaRef,
    ) -> Result<Self, GenerateError> {
        let path = PathBuf::from(path);
        let schema = match stored_schema(format, schema) {
            Ok(schema) => schema,
            Err(source) => {
                let source = Box::new(source);
                return Err(GenerateError::Type { path, source });
            }
        };
        let begun = OutputFile::create(&path).and_then(|file| Ok((file.handle()?, file)));
        let (handle, file) = match begun {
            Ok(begun) => begun,
            Err(source) => return Err(GenerateError::Io { path, source }),
        };
        // Lines written to a pipe are not buffered, so the reader gets every written batch even if
        // the process is killed.
        let is_direct = file.is_direct() && format.is_read_by_the_row();
        let buffer = if is_direct { 0 } else { BUFFER };
        let handle = BufWriter::with_capacity(buffer, handle);
        let inner = match open(handle, format, &schema) {
            Ok(inner) => inner,
            Err(error) => return Err(failure(path, error)),
        };
        Ok(Self {
            path,
            schema,
            inner,
            file,
            is_direct,
        })
    }

    /// True if readers see each row as soon as it is written (lines to a pipe or a device). False
    /// if readers see rows only in the finished file.
    pub const fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Writes the rows of a batch.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), GenerateError> {
        let stored = stored_batch(&self.schema, batch);
        let written = stored.and_then(|stored| self.inner.write(&stored));
        written.map_err(|error| failure(self.path.clone(), error))
    }

    /// Finishes the file, which then appears under its name, and returns the file's size in bytes.
    pub fn finish(self) -> Result<u64, GenerateError> {
        let Self {
            path, inner, file, ..
        } = self;
        if let Err(error) = inner.finish() {
            return Err(failure(path, error));
        }
        file.commit()
            .map_err(|source| GenerateError::Io { path, source })
    }
}

fn failure(path: PathBuf, source: ArrowError) -> GenerateError {
    match source {
        ArrowError::IoError(_, source) => GenerateError::Io { path, source },
        source => GenerateError::Rows { path, source },
    }
}

impl FormatWriter {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), ArrowError> {
        match self {
            Self::Parquet(writer) => write_parquet(writer, batch).map_err(ArrowError::from),
            Self::Csv(writer) => writer.write(batch),
            Self::Json(writer) => {
                finite::check(batch)?;
                writer.write(batch)
            }
            Self::Arrow(writer) => writer.write(batch),
        }
    }

    fn finish(self) -> Result<(), ArrowError> {
        match self {
            Self::Parquet(writer) => flush(writer.into_inner()?)?,
            Self::Csv(writer) => flush(writer.into_inner())?,
            Self::Json(mut writer) => {
                writer.finish()?;
                flush(writer.into_inner())?;
            }
            Self::Arrow(mut writer) => {
                writer.finish()?;
                flush(writer.into_inner()?)?;
            }
        }
        Ok(())
    }
}

fn open(
    file: BufWriter<File>,
    format: TableFormat,
    schema: &SchemaRef,
) -> Result<FormatWriter, ArrowError> {
    Ok(match format {
        TableFormat::Parquet => {
            let properties = WriterProperties::builder()
                .set_compression(Compression::SNAPPY)
                .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
                .build();
            let schema = SchemaRef::clone(schema);
            FormatWriter::Parquet(Box::new(ArrowWriter::try_new(
                file,
                schema,
                Some(properties),
            )?))
        }
        TableFormat::Csv => {
            FormatWriter::Csv(csv::WriterBuilder::new().with_header(true).build(file))
        }
        // Explicit nulls preserve columns that hold only nulls, and map entries with a null value.
        // Both would otherwise be lost.
        TableFormat::Json => FormatWriter::Json(
            json::WriterBuilder::new()
                .with_explicit_nulls(true)
                .build::<_, LineDelimited>(file),
        ),
        TableFormat::Arrow => FormatWriter::Arrow(FileWriter::try_new(file, schema.as_ref())?),
    })
}

/// Writes a batch in slices, so that row groups stay near [`ROW_GROUP_BYTES`] for batches of any
/// size.
fn write_parquet(
    writer: &mut ArrowWriter<BufWriter<File>>,
    batch: &RecordBatch,
) -> Result<(), ParquetError> {
    let rows = batch.num_rows().max(1);
    let per_row = batch.get_array_memory_size() / rows + 1;
    let step = (ROW_GROUP_BYTES / 4 / per_row).clamp(1, ROW_GROUP_ROWS);
    let mut start = 0;
    while start < batch.num_rows() {
        let length = step.min(batch.num_rows() - start);
        writer.write(&batch.slice(start, length))?;
        start += length;
        if writer.in_progress_size() >= ROW_GROUP_BYTES {
            writer.flush()?;
        }
    }
    Ok(())
}

fn flush(buffer: BufWriter<File>) -> Result<(), ArrowError> {
    buffer
        .into_inner()
        .map_err(|error| ArrowError::from(error.into_error()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use arrow::array::{BinaryArray, Float64Array, Int64Array};
    use forebay_udfs::draw::Draws;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    use super::*;

    fn batch(rows: usize, bytes: usize) -> RecordBatch {
        let ids = Int64Array::from_iter_values(0..rows as i64);
        // Random bytes, which no encoding compresses.
        let mut draws = Draws::new(1, 2, 3, 0);
        let noise: Vec<u8> = (0..bytes / 8 + rows)
            .flat_map(|_| draws.next_u64().to_le_bytes())
            .collect();
        let blobs = BinaryArray::from_iter_values((0..rows).map(|i| &noise[i * 8..i * 8 + bytes]));
        RecordBatch::try_from_iter([("id", Arc::new(ids) as _), ("blob", Arc::new(blobs) as _)])
            .unwrap()
    }

    #[test]
    fn row_groups_are_bounded_by_bytes_and_rows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.parquet");
        for (batch, at_most) in [(batch(90, 1 << 20), 20), (batch(20_000, 8), ROW_GROUP_ROWS)] {
            let format = TableFormat::of_path(&path).unwrap();
            let mut writer = TableWriter::create(&path, format, &batch.schema()).unwrap();
            writer.write(&batch).unwrap();
            assert_eq!(writer.finish().unwrap(), fs::metadata(&path).unwrap().len());
            let reader =
                ParquetRecordBatchReaderBuilder::try_new(File::open(&path).unwrap()).unwrap();
            let groups = reader.metadata().row_groups();
            assert!(groups.len() > 1);
            assert!(
                groups.iter().all(|g| g.num_rows() as usize <= at_most),
                "{}",
                groups.len()
            );
            let rows: i64 = groups.iter().map(|g| g.num_rows()).sum();
            assert_eq!(rows as usize, batch.num_rows());
        }
    }

    #[test]
    fn an_unfinished_file_leaves_the_older_one() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["x.parquet", "x.csv", "x.json", "x.arrow"] {
            let path = folder.path().join(name);
            let format = TableFormat::of_path(&path).unwrap();
            let rows = batch(3, 3);
            let begin = || TableWriter::create(&path, format, &rows.schema()).unwrap();
            let mut writer = begin();
            writer.write(&rows).unwrap();
            drop(writer);
            assert!(!path.exists(), "{name}");
            let mut writer = begin();
            writer.write(&rows).unwrap();
            writer.finish().unwrap();
            let whole = fs::read(&path).unwrap();
            let mut writer = begin();
            writer.write(&rows).unwrap();
            writer.write(&rows).unwrap();
            assert_eq!(fs::read(&path).unwrap(), whole, "{name}");
            drop(writer);
            assert_eq!(fs::read(&path).unwrap(), whole, "{name}");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
            fs::remove_file(&path).unwrap();
        }
        assert_eq!(TableFormat::of_path(Path::new("x.txt")), None);
    }

    #[cfg(unix)]
    #[test]
    fn only_lines_are_delivered_before_the_end() {
        use TableFormat::{Arrow, Csv, Json, Parquet};
        let folder = tempfile::tempdir().unwrap();
        let rows = batch(3, 3).project(&[0]).unwrap();
        for (format, expected) in [(Csv, true), (Json, true), (Parquet, false), (Arrow, false)] {
            let device = TableWriter::create(Path::new("/dev/null"), format, &rows.schema());
            let mut device = device.unwrap();
            assert_eq!(device.is_direct(), expected, "{format}");
            device.write(&rows).unwrap();
            device.finish().unwrap();
            let path = folder.path().join("t");
            let file = TableWriter::create(&path, format, &rows.schema()).unwrap();
            assert!(!file.is_direct(), "{format}");
        }
    }

    #[test]
    fn json_files_hold_finite_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let odd = Float64Array::from(vec![1.0, f64::INFINITY]);
        let rows = RecordBatch::try_from_iter([("x", Arc::new(odd) as _)]).unwrap();
        for name in ["x.parquet", "x.csv", "x.arrow", "x.json"] {
            let path = folder.path().join(name);
            let format = TableFormat::of_path(&path).unwrap();
            let mut writer = TableWriter::create(&path, format, &rows.schema()).unwrap();
            let written = writer.write(&rows).and_then(|()| writer.finish());
            match format {
                TableFormat::Json => {
                    let error = written.unwrap_err().to_string();
                    assert!(error.contains("column \"x\": a number is NaN"), "{error}");
                    assert!(error.contains(".parquet, .arrow or .csv"), "{error}");
                    assert!(!path.exists());
                }
                _ => assert!(written.unwrap() > 0, "{name}"),
            }
        }
    }
}
