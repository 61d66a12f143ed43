//! Several runs of one opened job.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;

use super::{BatchStream, JobRun, OpenJob, RunConfig};
use crate::cache::Stores;
use crate::job::JobConfig;
use crate::source::counting::compiled;

const ROWS: i64 = 100;

/// Creates a CSV file of whole numbers from 0.
fn table() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.csv");
    let rows: String = (0..ROWS).map(|id| format!("{id}\n")).collect();
    std::fs::write(&file, format!("id\n{rows}")).unwrap();
    (folder, file.display().to_string())
}

/// Returns the epoch, the step and the ids of each batch of a run.
async fn batches(mut run: BatchStream) -> Vec<(u64, u64, Vec<i64>)> {
    let mut all = Vec::new();
    while let Some(batch) = run.next().await {
        let batch = batch.unwrap();
        let ids = batch.batch.column(0).as_primitive::<Int64Type>();
        all.push((batch.epoch, batch.step, ids.values().to_vec()));
    }
    all
}

fn of_rank(rank: u64) -> RunConfig {
    RunConfig {
        rank,
        world: 2,
        ..RunConfig::default()
    }
}

/// Two ranks that run one job stage each window once, and yield the same batches as two ranks that
/// each open a separate job.
#[tokio::test]
async fn runs_of_a_job_share_its_windows() {
    let (_folder, file) = table();
    for (shuffle, reads_of_two_epochs) in [
        // Except under `SHUFFLE GLOBALLY`, the windows of each epoch are staged separately.
        // `SHUFFLE GLOBALLY` has one window, which all epochs share.
        ("SHUFFLE WITHIN 1000 ROWS", 2),
        ("SHUFFLE GLOBALLY", 1),
        ("", 2),
    ] {
        let sql = format!("SELECT id FROM csv('{file}') AS t {shuffle} BATCH 7 REPEAT 2");
        let reads = Arc::new(AtomicUsize::new(0));
        let compiled = compiled(&sql, "t.csv", &reads).await;
        let mut apart = Vec::new();
        for rank in 0..2 {
            let run = JobRun::open(&compiled, &of_rank(rank), &Stores::default()).await;
            apart.push(batches(run.unwrap().start()).await);
        }
        assert_eq!(
            reads.swap(0, Ordering::SeqCst),
            2 * reads_of_two_epochs,
            "{sql}"
        );

        let config = JobConfig {
            epochs: Some(2),
            ..JobConfig::default()
        };
        let job = OpenJob::open(&compiled, &config, &Stores::default()).await;
        let job = Arc::new(job.unwrap());
        let mut together = Vec::new();
        for rank in 0..2 {
            let run = JobRun::of(Arc::clone(&job), &of_rank(rank)).await.unwrap();
            together.push(batches(run.start()).await);
        }
        assert_eq!(together, apart, "{sql}");
        assert_eq!(reads.load(Ordering::SeqCst), reads_of_two_epochs, "{sql}");
        let mut ids: Vec<i64> = { together.iter().flatten() }
            .filter(|(epoch, ..)| *epoch == 1)
            .flat_map(|(.., ids)| ids.clone())
            .collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..ROWS).collect::<Vec<_>>());
    }
}
