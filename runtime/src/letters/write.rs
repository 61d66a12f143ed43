//! Writing dead letters.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, RecordBatch, StringArray, UInt32Array, UInt64Array};
use datafusion::common::{DataFusionError, exec_datafusion_err};
use parquet::arrow::ArrowWriter;

use super::input::{Input, inputs};
use super::{Letter, SCHEMA};
use crate::error::Result;
use crate::job::Job;
use crate::output_file::NewFile;
use crate::tail::uri;
use crate::task;
use crate::token::StreamName;

/// Letters that are held before they are written.
const FLUSH: usize = 1000;
/// Bytes of inputs that are held at once.
const INPUTS: u64 = 64 << 20;
/// Largest input that can be kept: a column of them has offsets of 32 bits.
const LARGEST: u64 = 1 << 30;
/// Files of one run in a folder: names are tried in turn, so that no file is written over.
const FILES: u32 = 1 << 20;

/// Writes the failed rows of a run.
#[derive(Debug)]
pub(crate) struct LetterWriter {
    folder: PathBuf,
    /// Largest input that is kept.
    keep: u64,
    rank: u64,
    job: Arc<Job>,
    name: Arc<StreamName>,
    waiting: Vec<Letter>,
    next: u32,
}

impl LetterWriter {
    pub(crate) fn new(
        folder: PathBuf,
        keep: Option<u64>,
        rank: u64,
        job: Arc<Job>,
        name: Arc<StreamName>,
    ) -> Self {
        Self {
            folder,
            keep: keep.unwrap_or(0).min(LARGEST),
            rank,
            job,
            name,
            waiting: Vec::new(),
            next: 0,
        }
    }

    /// Adds failed rows.
    pub(crate) async fn add(&mut self, letters: Vec<Letter>) -> Result<()> {
        self.waiting.extend(letters);
        match self.waiting.len() >= FLUSH {
            true => self.flush().await,
            false => Ok(()),
        }
    }

    /// Writes what is held to files of its own.
    pub(crate) async fn flush(&mut self) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let letters = std::mem::take(&mut self.waiting);
        let at_once = (INPUTS / self.keep.max(1)).clamp(1, FLUSH as u64);
        for letters in letters.chunks(at_once as usize) {
            let inputs = inputs(&self.job, letters, self.keep).await;
            let batch = self.table(letters, &inputs)?;
            let (folder, stem) = (self.folder.clone(), self.stem());
            let next = self.next;
            let write = move || write(&folder, &stem, next, &batch);
            self.next = task::blocking("writing dead letters", write).await?? + 1;
        }
        Ok(())
    }

    /// What the names of this run's files begin with.
    fn stem(&self) -> String {
        let hash = &self.name.semantic_hash;
        let hash = hash.get(..8).unwrap_or(hash);
        format!("letters-{hash}-{}-{}", self.name.seed, self.rank)
    }

    fn table(&self, letters: &[Letter], inputs: &[Option<Input>]) -> Result<RecordBatch> {
        let snapshot = &self.job.snapshot;
        let texts = |of: &dyn Fn(&Letter) -> String| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(letters.iter().map(of)))
        };
        let maybe = |of: &dyn Fn(&Letter) -> Option<String>| -> ArrayRef {
            Arc::new(letters.iter().map(of).collect::<StringArray>())
        };
        let numbers = |of: &dyn Fn(&Letter) -> u64| -> ArrayRef {
            Arc::new(UInt64Array::from_iter_values(letters.iter().map(of)))
        };
        let small = |of: &dyn Fn(&Letter) -> u32| -> ArrayRef {
            Arc::new(UInt32Array::from_iter_values(letters.iter().map(of)))
        };
        let place = |letter: &Letter| {
            let (location, file) = (snapshot.location(letter.file), snapshot.path(letter.file));
            uri(location, file)
        };
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
            texts(&|l| snapshot.path(l.file).to_owned()),
            numbers(&|l| l.row),
            small(&|l| l.child),
            texts(&place),
            maybe(&|l| l.column.clone()),
            texts(&|l| l.operator.clone()),
            texts(&|l| l.cause.clone()),
            texts(&|l| l.outcome.to_owned()),
            Arc::new(sizes),
            Arc::new(sums),
            Arc::new(kept),
        ];
        let batch = RecordBatch::try_new(Arc::clone(&SCHEMA), columns);
        Ok(batch.map_err(DataFusionError::from)?)
    }
}

/// Writes a file that was not there, and answers its number. A reader never sees a part of it.
fn write(
    folder: &Path,
    stem: &str,
    from: u32,
    batch: &RecordBatch,
) -> Result<u32, DataFusionError> {
    let failed = |why: &dyn std::fmt::Display| {
        exec_datafusion_err!(
            "dead letters cannot be written to {}: {why}",
            folder.display()
        )
    };
    std::fs::create_dir_all(folder).map_err(|why| failed(&why))?;
    let mut file = NewFile::create(folder, stem).map_err(|why| failed(&why))?;
    let mut writer = ArrowWriter::try_new(file.as_file(), batch.schema(), None)?;
    writer.write(batch)?;
    writer.close()?;
    for number in from..FILES {
        let path = folder.join(format!("{stem}-{number}.parquet"));
        // Another run's file of this name stays.
        match file.publish_new(&path) {
            Ok(()) => return Ok(number),
            Err((why, back)) if why.kind() == std::io::ErrorKind::AlreadyExists => file = back,
            Err((why, _)) => return Err(failed(&why)),
        }
    }
    Err(failed(
        &"there are too many files of this pipeline; remove old ones",
    ))
}
