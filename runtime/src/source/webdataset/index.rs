//! The index of a shard (a tar archive): the keys of its samples, and the byte ranges of their
//! values.

use super::super::manifest::Split;
use super::super::runs::SPLIT_ROWS;
use super::super::tar::TarEntry;

/// Name of the column that holds the keys of samples.
pub(super) const KEY: &str = "__key__";

/// Number of samples in a split of an uncompressed archive. Windows consist of splits, so small
/// splits mix better. A split of a compressed archive has [`SPLIT_ROWS`] samples instead, because
/// reading a split decompresses all bytes of the archive before the split. Both numbers are part of
/// the meaning of a pipeline: changing one of them needs a new version of the contract.
const PLAIN_SPLIT_ROWS: u64 = 256;

/// Maximum number of different extensions in a source. More extensions are an error.
pub(super) const MAX_EXTENSIONS: usize = 1000;

/// Maximum size in bytes of a value in a compressed shard. A larger value is an error.
const MAX_COMPRESSED_BYTES: u64 = 256 << 20;

/// Maximum size in bytes of the index of a shard in memory. A larger index is an error.
const MAX_INDEX_BYTES: usize = 1 << 30;

/// The index of a shard: its samples, and the byte ranges of their values.
#[derive(Debug, Default)]
pub(super) struct Shard {
    pub(super) is_compressed: bool,
    /// The extensions in the shard. [`SampleValue::extension`] is an index into this list.
    pub(super) extensions: Vec<String>,
    /// For each of `extensions`, the index of its column in the source's schema.
    pub(super) columns: Vec<usize>,
    /// The keys of all samples, concatenated.
    keys: String,
    samples: Vec<SampleEnd>,
    values: Vec<SampleValue>,
}

/// The ends of a sample in [`Shard::keys`] and in [`Shard::values`]. The sample begins at the ends
/// of the previous sample.
#[derive(Debug, Clone, Copy, Default)]
struct SampleEnd {
    key: usize,
    values: usize,
}

/// Byte range of a value in the (decompressed) archive, and the value's extension.
#[derive(Debug, Clone, Copy)]
pub(super) struct SampleValue {
    pub(super) extension: usize,
    pub(super) offset: u64,
    pub(super) size: u64,
}

impl Shard {
    /// Creates an index without samples.
    pub(super) fn new(is_compressed: bool) -> Self {
        Self {
            is_compressed,
            ..Self::default()
        }
    }

    /// Returns the key and the values of the sample with the row number `row`; `None` when the
    /// shard has no such row.
    pub(super) fn sample(&self, row: u64) -> Option<(&str, &[SampleValue])> {
        let row = usize::try_from(row).ok()?;
        let end = self.samples.get(row)?;
        let start = match row.checked_sub(1) {
            Some(before) => self.samples[before],
            None => SampleEnd::default(),
        };
        Some((
            &self.keys[start.key..end.key],
            &self.values[start.values..end.values],
        ))
    }

    /// Adds `entry` to the last sample if that sample has the key of `entry`, otherwise to a new
    /// sample. An entry that belongs to no sample is ignored.
    pub(super) fn add(&mut self, entry: TarEntry) -> Result<(), String> {
        let TarEntry { name, offset, size } = entry;
        let Some((key, extension)) = key_and_extension(&name) else {
            return Ok(());
        };
        let extension = extension.to_lowercase();
        if extension.is_empty() || extension == KEY {
            return Err(format!(
                "entry '{name}' has the extension '{extension}', which names no column; rename the entry"
            ));
        }
        if self.is_compressed && size > MAX_COMPRESSED_BYTES {
            return Err(format!(
                "entry '{name}' has {size} bytes, above the limit of {MAX_COMPRESSED_BYTES} for compressed shards; decompress the shard"
            ));
        }
        let known = self.extensions.iter().position(|known| *known == extension);
        let extension = known.unwrap_or_else(|| {
            self.extensions.push(extension);
            self.extensions.len() - 1
        });
        if self.extensions.len() > MAX_EXTENSIONS {
            return Err(too_many_extensions(self.extensions.len()));
        }
        let last = (self.samples.len() as u64).checked_sub(1);
        match last.and_then(|last| self.sample(last)) {
            Some((last, values)) if last == key => {
                if values.iter().any(|value| value.extension == extension) {
                    return Err(format!(
                        "sample '{key}' has two entries with the extension '{}'; remove one, or give it another key",
                        self.extensions[extension]
                    ));
                }
            }
            _ => {
                self.keys.push_str(key);
                self.samples.push(SampleEnd::default());
            }
        }
        self.values.push(SampleValue {
            extension,
            offset,
            size,
        });
        let end = SampleEnd {
            key: self.keys.len(),
            values: self.values.len(),
        };
        if let Some(last) = self.samples.last_mut() {
            *last = end;
        }
        let bytes = end.key
            + size_of::<SampleEnd>() * self.samples.len()
            + size_of::<SampleValue>() * end.values;
        if bytes > MAX_INDEX_BYTES {
            return Err(format!(
                "its index would need more than {MAX_INDEX_BYTES} bytes of memory; write its samples to several shards"
            ));
        }
        Ok(())
    }

    /// Returns the splits of the shard's samples.
    pub(super) fn splits(&self) -> Vec<Split> {
        let rows = if self.is_compressed {
            SPLIT_ROWS
        } else {
            PLAIN_SPLIT_ROWS
        };
        let mut first = 0;
        let samples = self.samples.chunks(rows as usize);
        samples
            .enumerate()
            .map(|(split, samples)| {
                let end = samples.last().map_or(first, |last| last.values);
                let values = &self.values[first..end];
                first = end;
                let bytes = values.first().zip(values.last());
                Split {
                    first_row: split as u64 * rows,
                    rows: samples.len() as u64,
                    bytes: bytes.map_or(0, |(first, last)| last.offset + last.size - first.offset),
                }
            })
            .collect()
    }
}

/// Splits the name of an entry into the key and the extension: the parts before and after the first
/// dot of the base name. Returns `None` for an entry that belongs to no sample.
pub(super) fn key_and_extension(name: &str) -> Option<(&str, &str)> {
    let base = name.rfind('/').map_or(0, |slash| slash + 1);
    let dot = base + name[base..].find('.')?;
    let is_own = name
        .split('/')
        .any(|part| part.starts_with("__") && part.ends_with("__"));
    (dot > base && !is_own).then(|| (&name[..dot], &name[dot + 1..]))
}

pub(super) fn too_many_extensions(found: usize) -> String {
    format!(
        "{found} different extensions, above the limit of {MAX_EXTENSIONS}; an extension begins at the first dot of a base name: rename files such as 'photo.0001.jpg'"
    )
}
