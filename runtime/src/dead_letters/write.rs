//! Writing of the dead-letter table.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, RecordBatch, StringArray, UInt32Array, UInt64Array};
use datafusion::common::{DataFusionError, exec_datafusion_err};
use parquet::arrow::ArrowWriter;

use super::failed_row::FailedRow;
use super::input::{Input, inputs};
use super::schema::SCHEMA;
use crate::error::Result;
use crate::job::OpenPlan;
use crate::output_file::NewFile;
use crate::stream::token::StreamName;
use crate::tail::uri;
use crate::task;

/// Number of failed rows that are buffered in memory before they are written to a file.
const FLUSH: usize = 1000;
/// Maximum total size in bytes of the inputs that are in memory at the same time.
const INPUTS: u64 = 64 << 20;
/// Maximum size in bytes of an input that is kept, because the column of inputs has 32-bit offsets.
/// Larger inputs are recorded by size and hash alone.
const LARGEST: u64 = 1 << 30;
/// Maximum number of files with the same name prefix in a folder; more files are an error. Numbers
/// are tried in ascending order, so that no file is overwritten.
const FILES: u32 = 1 << 20;

/// Writes the failed rows of a run to the dead-letter table.
#[derive(Debug)]
pub(crate) struct DeadLetterWriter {
    folder: PathBuf,
    /// Maximum size in bytes of an input that is kept, as the pipeline's option `dead_letter_bytes`
    /// says.
    keep: u64,
    rank: u64,
    plan: Arc<OpenPlan>,
    name: Arc<StreamName>,
    waiting: Vec<FailedRow>,
    next: u32,
}

impl DeadLetterWriter {
    pub(crate) fn new(
        folder: PathBuf,
        keep: Option<u64>,
        rank: u64,
        plan: Arc<OpenPlan>,
        name: Arc<StreamName>,
    ) -> Self {
        Self {
            folder,
            keep: keep.unwrap_or(0).min(LARGEST),
            rank,
            plan,
            name,
            waiting: Vec::new(),
            next: 0,
        }
    }

    /// Adds failed rows, and writes the buffered rows to a file if there are enough.
    pub(crate) async fn add(&mut self, letters: Vec<FailedRow>) -> Result<()> {
        self.waiting.extend(letters);
        if self.waiting.len() >= FLUSH {
            self.flush().await
        } else {
            Ok(())
        }
    }

    /// Writes the buffered rows to new files.
    pub(crate) async fn flush(&mut self) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let letters = std::mem::take(&mut self.waiting);
        let at_once = (INPUTS / self.keep.max(1)).clamp(1, FLUSH as u64);
        for letters in letters.chunks(at_once as usize) {
            let inputs = inputs(&self.plan, letters, self.keep).await;
            let batch = self.table(letters, &inputs)?;
            let (folder, stem) = (self.folder.clone(), self.stem());
            let next = self.next;
            let write = move || write(&folder, &stem, next, &batch);
            self.next = task::blocking("writing dead letters", write).await?? + 1;
        }
        Ok(())
    }

    /// Returns the common prefix of the names of this run's files.
    fn stem(&self) -> String {
        let hash = &self.name.semantic_hash;
        let hash = hash.get(..8).unwrap_or(hash);
        format!("letters-{hash}-{}-{}", self.name.seed, self.rank)
    }

    fn table(&self, letters: &[FailedRow], inputs: &[Option<Input>]) -> Result<RecordBatch> {
        let snapshot = &self.plan.data.snapshot;
        let texts = |of: &dyn Fn(&FailedRow) -> String| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(letters.iter().map(of)))
        };
        let numbers = |of: &dyn Fn(&FailedRow) -> u64| -> ArrayRef {
            Arc::new(UInt64Array::from_iter_values(letters.iter().map(of)))
        };
        let small = |of: &dyn Fn(&FailedRow) -> u32| -> ArrayRef {
            Arc::new(UInt32Array::from_iter_values(letters.iter().map(of)))
        };
        let uri = |letter: &FailedRow| uri(&letter.failure.location, &letter.failure.file);
        let failed = letters
            .iter()
            .map(|letter| letter.failure.column.as_deref());
        let failed: StringArray = failed.collect();
        let inputs = || inputs.iter().map(Option::as_ref);
        let sizes: UInt64Array = inputs().map(|input| Some(input?.bytes)).collect();
        let sums: StringArray = inputs().map(|input| Some(&input?.sha256)).collect();
        let kept: BinaryArray = inputs().map(|input| input?.kept.as_deref()).collect();
        let columns = vec![
            texts(&|_| self.name.semantic_hash.clone()),
            texts(&|_| self.name.snapshot_hash.clone()),
            numbers(&|_| self.name.seed),
            numbers(&|l| l.epoch),
            numbers(&|l| l.step),
            numbers(&|_| self.rank),
            numbers(&|l| l.pass),
            small(&|l| snapshot.occurrence(l.file)),
            texts(&|l| l.failure.file.clone()),
            numbers(&|l| l.failure.row),
            small(&|l| l.child),
            texts(&uri),
            Arc::new(failed),
            texts(&|l| l.failure.operator.clone()),
            texts(&|l| l.failure.cause.clone()),
            texts(&|l| l.outcome.to_owned()),
            Arc::new(sizes),
            Arc::new(sums),
            Arc::new(kept),
        ];
        Ok(RecordBatch::try_new(Arc::clone(&SCHEMA), columns)?)
    }
}

/// Writes `batch` to a new file, whose number is the first free one from `from` on, and returns
/// this number. Readers never see a partial file.
fn write(
    folder: &Path,
    stem: &str,
    from: u32,
    batch: &RecordBatch,
) -> Result<u32, DataFusionError> {
    let failed = |why: &dyn std::fmt::Display| {
        exec_datafusion_err!("cannot write dead letters to {}: {why}", folder.display())
    };
    std::fs::create_dir_all(folder).map_err(|why| failed(&why))?;
    let mut file = NewFile::create(folder, stem).map_err(|why| failed(&why))?;
    let mut writer = ArrowWriter::try_new(file.as_file(), batch.schema(), None)?;
    writer.write(batch)?;
    writer.close()?;
    for number in from..FILES {
        let path = folder.join(format!("{stem}-{number}.parquet"));
        // A file of another run is not replaced; the next number is tried.
        match file.publish_new(&path) {
            Ok(()) => return Ok(number),
            Err((why, back)) if why.kind() == std::io::ErrorKind::AlreadyExists => file = back,
            Err((why, _)) => return Err(failed(&why)),
        }
    }
    Err(failed(
        &"the folder has too many files of this pipeline; remove old ones",
    ))
}
