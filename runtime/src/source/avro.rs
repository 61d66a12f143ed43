//! `AVRO` object container files: a split is a run of blocks.
//!
//! Row counts come from the blocks' headers, without decoding. The layout is that of the Avro
//! specification 1.11, "Object Container Files".

use std::io::{BufRead, BufReader, Cursor, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use arrow_avro::reader::ReaderBuilder;
use datafusion::common::Result;
use forebay_planner::source::SourceSpec;

use super::content::{ContentHash, ContentHasher};
use super::error::SourceError;
use super::listing::{Wanted, list};
use super::options::Options;
use super::plain::{merged_schema, plain_batch, plain_schema};
use super::runs::SPLIT_ROWS;
use super::staged::{FileRows, Place, SplitReader, StagedSource, inspect_all, open as open_file};
use super::stream::{Emit, rows_per_batch};
use super::{Scan, Split, StoredRows};

const FORMAT: &str = "AVRO";

/// Bytes of a file's header at most.
const MAX_HEADER_BYTES: u64 = 16 << 20;

/// Bytes of decoded rows for each stored byte, at a guess: blocks are compressed, and integers
/// stored in few bytes.
const EXPANSION: u64 = 4;

const READ_BYTES: usize = 64 << 10;
const SYNC_BYTES: usize = 16;

pub(super) const AVRO: Wanted = Wanted {
    noun: "Avro",
    extensions: &["avro"],
    strict: false,
};

/// Opens Avro files: reads the header of each block. They have no options.
pub(crate) async fn open(spec: &SourceSpec) -> Result<StagedSource> {
    Options::new(spec, &[])?;
    if spec.columns.is_some() {
        return Err(SourceError::Schema(
            "AVRO files say their columns themselves: leave out the column list".to_owned(),
        )
        .into());
    }
    let listing = list(&spec.location, &AVRO).await?;
    let scanned = inspect_all(&listing, FORMAT, |file| Ok(scan(&file.absolute)?)).await?;
    let schema = merged_schema(
        FORMAT,
        listing
            .files
            .iter()
            .zip(&scanned)
            .map(|(file, s)| (file.relative.as_str(), &s.schema)),
    )?;
    let (rows, starts) = scanned
        .into_iter()
        .map(|file| {
            let Scanned {
                content, splits, ..
            } = file;
            (FileRows { content, splits }, (file.header, file.starts))
        })
        .unzip();
    let reader = Arc::new(Reader {
        schema: Arc::clone(&schema),
        starts,
    });
    Ok(StagedSource::new(spec, schema, listing, rows, reader))
}

struct Scanned {
    content: ContentHash,
    schema: Schema,
    /// Bytes of the header, with the sync marker.
    header: u64,
    splits: Vec<Split>,
    /// Offset of the first block of each split.
    starts: Vec<u64>,
}

fn scan(path: &Path) -> Result<Scanned, SourceError> {
    let damaged = |cause: String| SourceError::damaged(path, FORMAT, cause);
    let (file, size) = open_file(path)?;
    let mut bytes = Bytes {
        input: BufReader::with_capacity(READ_BYTES, file),
        at: 0,
        size,
    };
    let sync = bytes.header().map_err(damaged)?;
    let header = bytes.at;

    let (mut again, _) = open_file(path)?;
    let mut text = vec![0; header as usize];
    again
        .read_exact(&mut text)
        .map_err(|error| SourceError::unreadable(path, error))?;
    let stored = ReaderBuilder::new()
        .build(Cursor::new(&text))
        .map_err(|e| damaged(format!("its schema cannot be read: {e}")))?
        .schema();

    // The header names the marker that ends each block, which writers draw anew for each file.
    let mut content = ContentHasher::new(FORMAT, "");
    content.update(&text);
    let mut splits: Vec<Split> = Vec::new();
    let mut starts = Vec::new();
    let mut rows = 0u64;
    while bytes.at < size {
        let start = bytes.at;
        let count = bytes
            .block(&sync)
            .map_err(|e| damaged(format!("block at byte {start}: {e}")))?;
        content.update(&count.to_le_bytes());
        content.update(&(bytes.at - start).to_le_bytes());
        let full = splits.last().is_none_or(|split| split.rows >= SPLIT_ROWS);
        if full && count > 0 {
            starts.push(start);
            splits.push(Split {
                first_row: rows,
                rows: 0,
                bytes: 0,
            });
        }
        rows = rows
            .checked_add(count)
            .ok_or_else(|| damaged("its row counts overflow".to_owned()))?;
        if let Some((split, first)) = splits.last_mut().zip(starts.last()) {
            split.rows += count;
            split.bytes = bytes.at - first;
        }
    }
    Ok(Scanned {
        content: content.finish(),
        schema: plain_schema(&stored),
        header,
        splits,
        starts,
    })
}

/// A file read from the beginning, with the place known.
struct Bytes<R> {
    input: R,
    at: u64,
    size: u64,
}

impl<R: BufRead + Seek> Bytes<R> {
    fn exact<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut bytes = [0; N];
        self.input
            .read_exact(&mut bytes)
            .map_err(|_| "the file ends too early".to_owned())?;
        self.at += N as u64;
        Ok(bytes)
    }

    /// A zig-zag variable-length integer that must not be negative.
    fn length(&mut self) -> Result<u64, String> {
        u64::try_from(self.long()?).map_err(|_| "a negative length".to_owned())
    }

    fn long(&mut self) -> Result<i64, String> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.exact()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed());
            }
        }
        Err("an integer of more than 64 bits".to_owned())
    }

    fn skip(&mut self, bytes: u64) -> Result<(), String> {
        if bytes > self.size.saturating_sub(self.at) {
            return Err("the file ends too early".to_owned());
        }
        self.at += bytes;
        let offset = bytes.cast_signed();
        // Relative seeks would throw the buffer away.
        self.input.seek_relative(offset).map_err(|e| e.to_string())
    }

    /// Reads over the header; yields the sync marker that ends each block.
    fn header(&mut self) -> Result<[u8; SYNC_BYTES], String> {
        if self.exact::<4>().ok() != Some(*b"Obj\x01") {
            return Err("it does not begin as an Avro object container file".to_owned());
        }
        loop {
            let mut entries = self.long()?;
            if entries == 0 {
                break;
            }
            if entries < 0 {
                entries = entries.checked_neg().ok_or("a broken header")?;
                self.length()?;
            }
            for _ in 0..entries {
                for _key_and_value in 0..2 {
                    let length = self.length()?;
                    self.skip(length)?;
                }
                if self.at > MAX_HEADER_BYTES {
                    return Err(format!(
                        "its header is longer than {MAX_HEADER_BYTES} bytes"
                    ));
                }
            }
        }
        self.exact()
    }

    /// Reads over a block; yields its number of rows.
    fn block(&mut self, sync: &[u8; SYNC_BYTES]) -> Result<u64, String> {
        let rows = self.length()?;
        let bytes = self.length()?;
        self.skip(bytes)?;
        if &self.exact::<SYNC_BYTES>()? != sync {
            return Err("it does not end with the file's sync marker".to_owned());
        }
        Ok(rows)
    }
}

#[derive(Debug)]
struct Reader {
    schema: SchemaRef,
    /// Per file: bytes of the header, and the offset of each split.
    starts: Vec<(u64, Vec<u64>)>,
}

impl SplitReader for Reader {
    fn content(&self, path: &Path) -> Result<ContentHash, SourceError> {
        Ok(scan(path)?.content)
    }

    fn read(&self, place: &Place, scan: &Scan, emit: &Emit) -> Result<()> {
        let damaged = |cause: String| SourceError::damaged(&place.path, FORMAT, cause);
        let unreadable = |error| SourceError::unreadable(&place.path, error);
        let (header, starts) = &self.starts[place.file];
        let mut file = place.open()?;
        let mut head = vec![0; *header as usize];
        file.read_exact(&mut head).map_err(unreadable)?;
        file.seek(SeekFrom::Start(starts[place.split]))
            .map_err(unreadable)?;
        let blocks = file.take(place.rows.bytes);
        let input = BufReader::with_capacity(READ_BYTES, Cursor::new(head).chain(blocks));
        let decoded = place.rows.bytes.saturating_mul(EXPANSION);
        let reader = ReaderBuilder::new()
            .with_batch_size(rows_per_batch(place.rows.rows, decoded))
            .build(input)
            .map_err(|e| damaged(e.to_string()))?;
        let schema = Arc::new(self.schema.project(&scan.projection)?);
        let mut next = place.rows.first_row;
        let end = place.rows.first_row + place.rows.rows;
        for batch in reader {
            let batch = batch.map_err(|e| damaged(format!("after row {next}: {e}")))?;
            let rows = batch.num_rows();
            let projected = batch.project(&scan.projection)?;
            let batch = plain_batch(&schema, projected.columns(), rows)
                .map_err(|e| damaged(e.to_string()))?;
            let numbers = (next..next + rows as u64).collect();
            next += rows as u64;
            if next > end {
                break;
            }
            if !emit.send(StoredRows { batch, numbers }) {
                return Ok(());
            }
        }
        if next == end {
            return Ok(());
        }
        Err(damaged("its blocks do not hold the rows that they promise".to_owned()).into())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    use arrow_avro::writer::AvroWriter;
    use forebay_planner::source::Format;

    use crate::source::testing::{open, read_all};

    fn rows(first: i64, count: i64) -> RecordBatch {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + count));
        let names: Vec<_> = (first..first + count)
            .map(|n| format!("name {n}"))
            .collect();
        let names: ArrayRef = Arc::new(StringArray::from(names));
        RecordBatch::try_from_iter([("id", ids), ("name", names)]).unwrap()
    }

    fn file(blocks: i64, each: i64) -> Vec<u8> {
        let schema = rows(0, 1).schema().as_ref().clone();
        let mut writer = AvroWriter::new(Vec::new(), schema).unwrap();
        for block in 0..blocks {
            writer.write(&rows(block * each, each)).unwrap();
        }
        writer.finish().unwrap();
        writer.into_inner()
    }

    #[tokio::test]
    async fn splits_are_runs_of_blocks() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("t.avro"), file(21, 1000)).unwrap();
        let source = open(Format::Avro, dir.path(), &[]).await.unwrap();
        let splits: Vec<_> = source.manifest().files[0]
            .splits
            .iter()
            .map(|s| (s.first_row, s.rows))
            .collect();
        assert_eq!(splits, [(0, 9000), (9000, 9000), (18_000, 3000)]);
        let (keys, batch) = read_all(&source, &[0, 1], None).await.unwrap();
        assert!(keys.iter().zip(0..21_000).all(|(key, n)| *key == (0, n)));
        assert_eq!(batch.columns(), rows(0, 21_000).columns());
        let (_, names) = read_all(&source, &[1], None).await.unwrap();
        assert_eq!(names.column(0), batch.column(1));
        let (keys, _) = read_all(&source, &[], None).await.unwrap();
        assert_eq!(keys.len(), 21_000);
    }

    #[tokio::test]
    async fn damage_is_named_and_survived() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.avro");
        let sound = file(3, 5);
        for at in (0..sound.len()).step_by(3) {
            let mut bytes = sound.clone();
            bytes[at] ^= 0x55;
            fs::write(&path, bytes).unwrap();
            if let Ok(source) = open(Format::Avro, &path, &[]).await {
                let columns: Vec<_> = (0..source.schema().fields().len()).collect();
                drop(read_all(&source, &columns, None).await);
            }
        }
        fs::write(&path, &sound[..sound.len() - 5]).unwrap();
        let error = open(Format::Avro, &path, &[]).await.unwrap_err();
        assert!(
            error.contains("t.avro' is not a sound AVRO file: block at byte"),
            "{error}"
        );
        fs::write(&path, "Obj").unwrap();
        let error = open(Format::Avro, &path, &[]).await.unwrap_err();
        assert!(error.contains("does not begin as an Avro"), "{error}");
    }
}
