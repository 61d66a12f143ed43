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

/// A source as a user would name it.
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

/// Files that hold their own names.
pub(crate) fn tree(names: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in names {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    dir
}

/// Opens a source; the error as the text a user would see.
pub(crate) async fn open(
    format: Format,
    location: &Path,
    options: &[(&str, &str)],
) -> Result<Arc<dyn Source>, String> {
    FileResolver
        .open(&spec(format, location, options))
        .await
        .map_err(|e| e.to_string())
}

/// Every row of a source: file, row number, and the projected values.
pub(crate) async fn read_all(
    source: &Arc<dyn Source>,
    projection: &[usize],
    prune: Option<Arc<dyn PhysicalExpr>>,
) -> Result<(Vec<(usize, u64)>, RecordBatch), String> {
    let scan = Scan {
        projection: projection.to_vec(),
        prune,
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

/// A folder of the shared test data, where the environment names it.
pub(crate) fn shared_data(folder: &str) -> Option<PathBuf> {
    let Some(root) = std::env::var_os("FOREBAY_TEST_DATA") else {
        println!("skipped: FOREBAY_TEST_DATA is not set");
        return None;
    };
    Some(Path::new(&root).join(folder)).filter(|path| path.is_dir())
}
