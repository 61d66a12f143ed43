//! Several runs of one opened job, and segments that are found by their names.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use forebay_udfs::row::RowColumn;

use super::{BatchStream, JobConfig, JobRun, OpenJob, RunConfig, SegmentName, SegmentWindow};
use crate::cache::Stores;
use crate::fragment::row_batch::{RowBatch, SlotError};
use crate::segment::RowRun;
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
            // Each epoch reads, which shows how often a window is staged.
            let mut config = of_rank(rank);
            config.internals.is_reread = true;
            let run = JobRun::open(&compiled, &config, &Stores::default()).await;
            apart.push(batches(run.unwrap().start()).await);
        }
        assert_eq!(
            reads.swap(0, Ordering::SeqCst),
            2 * reads_of_two_epochs,
            "{sql}"
        );

        let config = JobConfig {
            epochs: Some(2),
            is_reread: true,
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

/// A client of a cluster names the windows of a very long stream, and stages none.
#[tokio::test]
async fn windows_without_rows_are_not_kept() {
    let (_folder, file) = table();
    let sql = format!("SELECT id FROM csv('{file}') AS t SHUFFLE WITHIN 10 ROWS");
    let compiled = compiled(&sql, "t.csv", &Arc::default()).await;
    let job = OpenJob::open(&compiled, &JobConfig::default(), &Stores::default()).await;
    let job = job.unwrap();
    let window = |epoch| {
        let windows = job.passes.windows(0, (epoch, 0));
        job.window(0, (epoch, 0), (0, &windows[0]))
    };
    let in_use = window(0);
    for epoch in 1..100 {
        drop(window(epoch));
    }
    // The one in use, and the last one.
    assert_eq!(job.windows.held(), 2);
    assert!(Arc::ptr_eq(&in_use.window, &window(0).window));
}

/// Opens the table of [`table`] as a job with windows of a few rows.
async fn job(file: &str) -> Arc<OpenJob> {
    let sql = format!("SELECT id FROM csv('{file}') AS t SHUFFLE WITHIN 9 ROWS BATCH 7");
    let reads = Arc::new(AtomicUsize::new(0));
    let compiled = compiled(&sql, "t.csv", &reads).await;
    let job = OpenJob::open(&compiled, &JobConfig::default(), &Stores::default()).await;
    Arc::new(job.unwrap())
}

const FIRST: SegmentWindow = SegmentWindow::OfPass {
    input: 0,
    epoch: 0,
    pass: 0,
    index: 0,
};

fn segment(window: SegmentWindow, run: RowRun) -> SegmentName {
    SegmentName {
        windows: vec![window],
        runs: vec![run],
        wanted: None,
        by_child: false,
        planned: None,
    }
}

const fn ordered(window: u32, start: u32, rows: u32) -> RowRun {
    RowRun::Ordered {
        window,
        start,
        rows,
    }
}

const fn stored(split: u32, offset: u32) -> RowRun {
    RowRun::Stored {
        window: 0,
        split,
        offset,
    }
}

async fn computed(job: &OpenJob, name: &SegmentName) -> Vec<RowBatch> {
    job.compute(name).await.unwrap().rows
}

#[tokio::test]
async fn a_named_segment_has_its_rows() {
    let (_folder, file) = table();
    let job = job(&file).await;
    let split = SegmentWindow::Split { split: 0, key: 5 };
    let rows = computed(&job, &segment(split, stored(0, 17))).await;
    assert_eq!(
        rows[0].columns[0].as_primitive::<Int64Type>().values(),
        &[17]
    );
    let whole = computed(&job, &segment(FIRST, ordered(0, 2, 5))).await;
    let part = computed(&job, &segment(FIRST, ordered(0, 4, 2))).await;
    let ids = |rows: &[RowBatch]| rows[0].columns[0].as_primitive::<Int64Type>().clone();
    assert_eq!(&ids(&whole).values()[2..4], &ids(&part).values()[..]);
}

#[tokio::test]
async fn names_of_other_rows_are_refused() {
    let (_folder, file) = table();
    let job = job(&file).await;
    let window = |input, index| SegmentWindow::OfPass {
        input,
        epoch: 0,
        pass: 0,
        index,
    };
    let split = |split| SegmentWindow::Split { split, key: 0 };
    let mut refused = vec![
        segment(window(1, 0), ordered(0, 0, 1)),
        segment(window(0, 1000), ordered(0, 0, 1)),
        segment(window(u32::MAX, u32::MAX), ordered(0, 0, 1)),
        segment(split(1000), stored(0, 0)),
        segment(split(0), stored(1000, 0)),
        segment(split(0), stored(0, u32::MAX)),
        segment(FIRST, ordered(1, 0, 1)),
        segment(FIRST, ordered(0, 0, 101)),
        segment(FIRST, ordered(0, u32::MAX, u32::MAX)),
        segment(FIRST, ordered(0, 100, 1)),
    ];
    let whole = segment(FIRST, ordered(0, 0, 2));
    refused.push(SegmentName {
        wanted: Some(std::iter::once(0..1).collect()),
        ..whole.clone()
    });
    refused.push(SegmentName {
        wanted: Some(vec![0..1, std::ops::Range { start: 2, end: 1 }]),
        ..whole.clone()
    });
    refused.push(SegmentName {
        planned: Some(3),
        ..whole.clone()
    });
    refused.push(SegmentName {
        windows: Vec::new(),
        ..whole.clone()
    });
    for name in refused {
        let error = job.compute(&name).await.expect_err("refused");
        assert!(error.is_user(), "{name:?}: {error}");
    }
    assert!(job.compute(&whole).await.is_ok());
}

#[tokio::test]
async fn rows_that_a_segment_cannot_have_are_refused() {
    let (_folder, file) = table();
    let job = job(&file).await;
    let name = segment(FIRST, ordered(0, 0, 4));
    let sent = job.to_batches(&computed(&job, &name).await).unwrap();
    let schema = job.segment_schema();
    let back = job.received(&schema, &name, &sent).unwrap();
    assert_eq!(job.to_batches(&back).unwrap(), sent);

    let batch = &sent[0];
    let without = batch.project(&[0, 1]).unwrap();
    let ids = RowColumn::try_from_array(batch.column(1)).unwrap();
    let with = |ids: RowColumn| {
        let mut columns = batch.columns().to_vec();
        columns[1] = ids.to_array().unwrap();
        RecordBatch::try_new(Arc::clone(&schema), columns).unwrap()
    };
    let position = |positions: [u64; 4]| RowColumn {
        position: positions.to_vec().into(),
        ..ids.clone()
    };
    let file = RowColumn {
        file: vec![0, 0, 0, 9].into(),
        ..ids.clone()
    };
    let mut failed = back[0].clone();
    let error = SlotError::of(Some(1), ("f".to_owned(), "no".to_owned()));
    failed.errors.insert(0, vec![error]);
    let refused = [
        without,
        with(position([0, 1, 2, 4])),
        with(position([0, 2, 1, 3])),
        with(file),
        failed.to_batch(&schema).unwrap(),
    ];
    for batch in refused {
        assert!(job.received(&schema, &name, &[batch]).is_err());
    }
    assert!(
        job.received(&schema, &name, &[sent[0].clone(), sent[0].clone()])
            .is_err()
    );
}
