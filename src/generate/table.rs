//! Generates a table like those that recommenders and click models train on.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryBuilder, Float64Builder, Int32Builder, Int64Builder, RecordBatch,
    StringBuilder, TimestampMillisecondBuilder,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;
use forebay_udfs::draw::Draws;

use super::error::GenerateError;
use super::format::TableFormat;
use super::writer::TableWriter;

/// Maximum payload per row, in bytes; a larger payload is refused.
pub const MAX_PAYLOAD: u64 = 64 << 20;

/// Target size, in bytes, of the rows generated at a time.
const CHUNK_BYTES: u64 = 8 << 20;
/// Maximum number of rows generated at a time.
const CHUNK_ROWS: u64 = 8192;
/// Approximate size of a row without payload, in bytes.
const ROW_BYTES: u64 = 160;

/// 2024-01-01T00:00:00Z in Unix milliseconds: the earliest possible time of the first row.
const FIRST_MILLISECOND: i64 = 1_704_067_200_000;
/// Mean time between rows, in milliseconds.
const MILLISECONDS_A_ROW: u64 = 250;

const CATEGORIES: [&str; 12] = [
    "books", "cameras", "clothing", "games", "garden", "grocery", "kitchen", "music", "phones",
    "shoes", "sports", "toys",
];

const WORDS: [&str; 64] = [
    "a",
    "about",
    "after",
    "again",
    "all",
    "and",
    "arrived",
    "as",
    "bad",
    "battery",
    "best",
    "bought",
    "box",
    "broke",
    "but",
    "cheap",
    "colour",
    "could",
    "day",
    "delivery",
    "does",
    "easy",
    "excellent",
    "expected",
    "fast",
    "fine",
    "for",
    "from",
    "gift",
    "good",
    "great",
    "happy",
    "have",
    "his",
    "it",
    "just",
    "like",
    "little",
    "love",
    "month",
    "never",
    "nice",
    "not",
    "of",
    "old",
    "one",
    "perfect",
    "poor",
    "price",
    "quality",
    "really",
    "recommend",
    "returned",
    "screen",
    "size",
    "slow",
    "small",
    "the",
    "this",
    "very",
    "was",
    "well",
    "with",
    "works",
];

/// Options of a generated table with the columns `id`, `user_id` (few users have most of the rows),
/// `time`, `category`, `price` (2 % null), `clicks`, `label` (0 or 1; more clicks make 1 more
/// likely), `text` (5 % null) and, if requested, `payload`.
#[derive(Debug, Clone)]
pub struct Table {
    /// Number of rows.
    pub rows: u64,
    /// Number of random bytes per row in the column `payload`; 0 omits the column. CSV and JSON
    /// store the bytes as hexadecimal text.
    pub payload: u64,
    /// Seed of all random choices.
    pub seed: u64,
}

/// Counts of the generated table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableReport {
    /// Number of rows.
    pub rows: u64,
    /// Size of the file, in bytes.
    pub bytes: u64,
}

impl Table {
    /// Returns the schema of the table.
    pub fn schema(&self) -> SchemaRef {
        let mut fields = vec![
            Field::new("id", DataType::Int64, false),
            Field::new("user_id", DataType::Int64, false),
            Field::new(
                "time",
                DataType::Timestamp(TimeUnit::Millisecond, None),
                false,
            ),
            Field::new("category", DataType::Utf8, false),
            Field::new("price", DataType::Float64, true),
            Field::new("clicks", DataType::Int32, false),
            Field::new("label", DataType::Int32, false),
            Field::new("text", DataType::Utf8, true),
        ];
        if self.payload > 0 {
            fields.push(Field::new("payload", DataType::Binary, false));
        }
        Arc::new(Schema::new(fields))
    }

    /// Writes the table to `path` in the format of its extension, a few megabytes at a time.
    /// `progress` is called with the number of rows written so far.
    pub fn write(&self, path: &Path, progress: &dyn Fn(u64)) -> Result<TableReport, GenerateError> {
        let format = TableFormat::of_path(path).ok_or_else(|| {
            GenerateError::Option(format!(
                "{}: expected a name that ends with .parquet, .csv, .json or .arrow",
                path.display()
            ))
        })?;
        if self.payload > MAX_PAYLOAD {
            return Err(GenerateError::Option(format!(
                "the payload must be at most {MAX_PAYLOAD} bytes, found {}",
                self.payload
            )));
        }
        let mut writer = TableWriter::create(path, format, &self.schema())?;
        let step = (CHUNK_BYTES / (ROW_BYTES + self.payload)).clamp(1, CHUNK_ROWS);
        let mut start = 0;
        while start < self.rows {
            let end = self.rows.min(start + step);
            let batch = self
                .batch(start, end)
                .map_err(|source| GenerateError::Rows {
                    path: path.to_path_buf(),
                    source,
                })?;
            writer.write(&batch)?;
            progress(end);
            start = end;
        }
        Ok(TableReport {
            rows: self.rows,
            bytes: writer.finish()?,
        })
    }

    /// Generates the rows `start..end`. A row depends on its row number and on the options, but not
    /// on `start` and `end`.
    fn batch(&self, start: u64, end: u64) -> Result<RecordBatch, ArrowError> {
        let mut id = Int64Builder::new();
        let mut user = Int64Builder::new();
        let mut time = TimestampMillisecondBuilder::new();
        let mut category = StringBuilder::new();
        let mut price = Float64Builder::new();
        let mut clicks = Int32Builder::new();
        let mut label = Int32Builder::new();
        let mut text = StringBuilder::new();
        let mut payload = BinaryBuilder::new();
        let mut bytes = Vec::new();
        let users = (self.rows as f64 / 20.0).max(10.0);
        for row in start..end {
            let mut draws = Draws::new(self.seed, 0, row, 0);
            id.append_value(row as i64);
            // The cube of a uniform draw prefers small numbers: a tenth of the users have about
            // half of the rows.
            let draw = draws.uniform();
            user.append_value((draw * draw * draw * users) as i64);
            let late = draws.below(MILLISECONDS_A_ROW);
            time.append_value(FIRST_MILLISECOND + (row * MILLISECONDS_A_ROW + late) as i64);
            category.append_value(CATEGORIES[(draws.uniform() * draws.uniform() * 12.0) as usize]);
            let draw = draws.uniform();
            let cents = (99.0 + draw * draw * draw * 50_000.0).floor();
            price.append_option((!draws.chance(0.02)).then_some(cents / 100.0));
            // The number of trailing zeros of random bits is `n` with probability 1 / 2^(n + 1).
            let clicked = draws.next_u32().trailing_zeros() + draws.next_u32().trailing_zeros();
            clicks.append_value(clicked as i32);
            let odds = 0.05 + 0.8 * f64::from(clicked.min(8)) / 8.0;
            label.append_value(i32::from(draws.chance(odds)));
            if draws.chance(0.05) {
                text.append_null();
            } else {
                text.append_value(sentence(&mut draws));
            }
            if self.payload > 0 {
                bytes.clear();
                while (bytes.len() as u64) < self.payload {
                    bytes.extend_from_slice(&draws.next_u64().to_le_bytes());
                }
                bytes.truncate(self.payload as usize);
                payload.append_value(&bytes);
            }
        }
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(id.finish()),
            Arc::new(user.finish()),
            Arc::new(time.finish()),
            Arc::new(category.finish()),
            Arc::new(price.finish()),
            Arc::new(clicks.finish()),
            Arc::new(label.finish()),
            Arc::new(text.finish()),
        ];
        if self.payload > 0 {
            columns.push(Arc::new(payload.finish()));
        }
        RecordBatch::try_new(self.schema(), columns)
    }
}

fn sentence(draws: &mut Draws) -> String {
    let words = 3 + draws.below(18);
    let mut sentence = String::new();
    for i in 0..words {
        if i > 0 {
            sentence.push_str(if draws.chance(0.08) { ", " } else { " " });
        }
        sentence.push_str(WORDS[draws.below(WORDS.len() as u64) as usize]);
    }
    sentence
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use arrow::array::AsArray;
    use arrow::compute::concat_batches;
    use arrow::datatypes::Int64Type;
    use arrow::ipc::reader::FileReader;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    use super::*;

    #[test]
    fn rows_follow_their_number_and_the_seed() {
        let table = Table {
            rows: 1000,
            payload: 33,
            seed: 4,
        };
        let all = table.batch(0, 1000).unwrap();
        let parts = [table.batch(0, 7).unwrap(), table.batch(7, 1000).unwrap()];
        assert_eq!(all, concat_batches(&table.schema(), &parts).unwrap());
        assert_ne!(all, Table { seed: 5, ..table }.batch(0, 1000).unwrap());
        assert!(all["text"].null_count() > 10 && all["price"].null_count() > 2);
        assert_eq!(all["payload"].as_binary::<i32>().value(999).len(), 33);
    }

    #[test]
    fn every_format_holds_every_row() {
        let folder = tempfile::tempdir().unwrap();
        let table = Table {
            rows: 9000,
            payload: 0,
            seed: 0,
        };
        let path = |name: &str| folder.path().join(name);
        for name in ["t.parquet", "t.csv", "t.json", "t.arrow"] {
            let report = table.write(&path(name), &|_| ()).unwrap();
            assert_eq!(report.rows, 9000);
            assert_eq!(report.bytes, fs::metadata(path(name)).unwrap().len());
        }
        let expected = table.batch(0, 9000).unwrap();
        let read: Vec<RecordBatch> =
            ParquetRecordBatchReaderBuilder::try_new(File::open(path("t.parquet")).unwrap())
                .unwrap()
                .build()
                .unwrap()
                .map(Result::unwrap)
                .collect();
        assert_eq!(concat_batches(&table.schema(), &read).unwrap(), expected);
        let read: Vec<RecordBatch> =
            FileReader::try_new(File::open(path("t.arrow")).unwrap(), None)
                .unwrap()
                .map(Result::unwrap)
                .collect();
        assert_eq!(concat_batches(&table.schema(), &read).unwrap(), expected);
        let csv = fs::read_to_string(path("t.csv")).unwrap();
        assert_eq!(csv.lines().count(), 9001);
        assert!(csv.starts_with("id,user_id,time,category,price,clicks,label,text\n0,"));
        let json = fs::read_to_string(path("t.json")).unwrap();
        let last: serde_json::Value = serde_json::from_str(json.lines().last().unwrap()).unwrap();
        assert_eq!(
            last["id"],
            expected["id"].as_primitive::<Int64Type>().value(8999)
        );
    }

    #[test]
    fn impossible_options_are_refused() {
        let table = Table {
            rows: 1,
            payload: 0,
            seed: 0,
        };
        let error = table.write(Path::new("t.xls"), &|_| ()).unwrap_err();
        assert!(error.to_string().contains("ends with .parquet"), "{error}");
        let big = Table {
            payload: MAX_PAYLOAD + 1,
            ..table
        };
        assert!(big.write(Path::new("t.csv"), &|_| ()).is_err());
    }
}
