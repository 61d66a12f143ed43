//! Helpers of the tests of sources.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use datafusion::common::Result;
use datafusion::physical_expr::PhysicalExpr;
use forebay_planner::source::{Format, SourceSpec};
use futures::TryStreamExt;

use super::{FileResolver, Scan, Source};

/// Returns the description of a source of `format` at `location`, without declared columns.
pub(crate) fn spec(format: Format, location: &Path, options: &[(&str, &str)]) -> SourceSpec {
    SourceSpec {
        format,
        location: location.to_str().unwrap().to_owned(),
        options: options
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect(),
        columns: None,
    }
}

/// Creates a folder with files of these relative paths. Each file contains its relative path.
pub(crate) fn tree(names: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in names {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    dir
}

/// Opens a source. The error is the text that a user would see.
pub(crate) async fn open(
    format: Format,
    location: &Path,
    options: &[(&str, &str)],
) -> Result<Arc<dyn Source>, String> {
    FileResolver::default()
        .open(&spec(format, location, options))
        .await
        .map_err(|e| e.to_string())
}

/// Reads all splits of a source. Returns the (file index, row number) of each row, and the rows
/// with the projected columns.
pub(crate) async fn read_all(
    source: &Arc<dyn Source>,
    projection: &[usize],
    prune: Option<Arc<dyn PhysicalExpr>>,
) -> Result<(Vec<(usize, u64)>, RecordBatch), String> {
    let scan = Scan {
        projection: projection.to_vec(),
        prune,
        keep: None,
    };
    let mut keys = Vec::new();
    let mut batches = Vec::new();
    for (file, found) in source.manifest().files.iter().enumerate() {
        for (split, place) in found.splits.iter().enumerate() {
            let read: Vec<_> = source
                .read_split(file, split, &scan)
                .try_collect()
                .await
                .map_err(|e| e.to_string())?;
            let mut count = 0;
            for rows in read {
                assert_eq!(rows.batch.num_rows(), rows.numbers.len());
                assert!(!rows.numbers.is_empty());
                count += rows.numbers.len() as u64;
                keys.extend(rows.numbers.iter().map(|&number| (file, number)));
                let span = place.first_row..place.first_row + place.rows;
                assert!(rows.numbers.iter().all(|number| span.contains(number)));
                batches.push(rows.batch);
            }
            if scan.prune.is_none() {
                assert_eq!(count, place.rows);
            }
        }
    }
    assert!(keys.is_sorted());
    let schema = Arc::new(source.schema().project(projection).unwrap());
    Ok((keys, concat_batches(&schema, &batches).unwrap()))
}

/// Returns a folder of the shared test data; `None` if the environment variable `FOREBAY_TEST_DATA`
/// is not set, or the data has no such folder.
pub(crate) fn shared_data(folder: &str) -> Option<PathBuf> {
    let Some(root) = std::env::var_os("FOREBAY_TEST_DATA") else {
        println!("skipped: FOREBAY_TEST_DATA is not set");
        return None;
    };
    Some(Path::new(&root).join(folder)).filter(|path| path.is_dir())
}

/// Returns the header block of a tar entry with this kind, this name and a content of this size.
pub(crate) fn tar_header(kind: u8, name: &str, size: usize) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[100..107].copy_from_slice(b"0000644");
    block[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
    block[136..147].copy_from_slice(b"00000000000");
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    with_checksum(block)
}

/// Sets the checksum of a tar header block.
pub(crate) fn with_checksum(mut block: Vec<u8>) -> Vec<u8> {
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// Returns an entry of a tar archive: header, content and padding.
pub(crate) fn tar_entry(kind: u8, name: &str, content: &[u8]) -> Vec<u8> {
    let mut entry = tar_header(kind, name, content.len());
    entry.extend(content);
    entry.resize(entry.len().next_multiple_of(512), 0);
    entry
}

/// Returns a tar archive of regular files.
pub(crate) fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let entries = files
        .iter()
        .map(|(name, content)| tar_entry(b'0', name, content));
    let mut archive = entries.collect::<Vec<_>>().concat();
    archive.extend([0; 1024]);
    archive
}
