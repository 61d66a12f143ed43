//! Data that changes after it was read: tokens, row counts and cached rows of the old contents are
//! never used for the new contents.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use forebay::{RunConfig, Session, Token};

use crate::common::{batches_of_p, digest, keys, parquet};

/// Creates a session with a pipeline `p` whose query is `query`.
async fn session(query: &str) -> Session {
    let session = Session::new();
    session
        .execute(&format!("CREATE PIPELINE p AS {query}"))
        .await
        .unwrap();
    session
}

/// Returns the token after the first batch of a pipeline whose query is `query`.
async fn token(query: &str) -> Token {
    let session = session(query).await;
    let batches = batches_of_p(&session, RunConfig::default(), 1)
        .await
        .unwrap();
    batches[0].token()
}

/// Resumes a pipeline from `token` in a new session, which shares nothing with the session that
/// returned the token. Returns the number of remaining batches or the error.
async fn resume(query: &str, token: &Token) -> Result<usize, String> {
    let text = token.to_json().unwrap();
    let config = RunConfig {
        resume: Some(Arc::new(Token::from_json(&text).unwrap())),
        ..RunConfig::default()
    };
    let batches = batches_of_p(&session(query).await, config, usize::MAX).await?;
    Ok(batches.len())
}

#[track_caller]
fn assert_refused(outcome: Result<usize, String>) {
    let why = outcome.unwrap_err();
    assert!(why.contains("the data has changed"), "{why}");
}

fn numbers(numbers: std::ops::Range<i64>) -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
    RecordBatch::try_from_iter([("id", ids)]).unwrap()
}

fn arrow(path: &Path, batch: &RecordBatch) {
    let file = File::create(path).unwrap();
    let mut writer = arrow::ipc::writer::FileWriter::try_new(file, &batch.schema()).unwrap();
    writer.write(batch).unwrap();
    writer.finish().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_csv_of_fewer_rows_in_as_many_bytes_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    let query = format!("SELECT id FROM csv('{}') BATCH 2", path.display());
    let (six, five) = ("id\n1\n2\n3\n4\n5\n6\n", "id\n1\n2\n3\n4\n567\n");
    assert_eq!(six.len(), five.len());
    fs::write(&path, six).unwrap();
    let before = token(&query).await;
    assert_eq!(resume(&query, &before).await, Ok(2));
    fs::write(&path, five).unwrap();
    let why = resume(&query, &before).await.unwrap_err();
    assert!(
        why.contains("1 files, 6 rows, 15 bytes in the token, 1 files, 5 rows, 15 bytes now"),
        "{why}"
    );
    // A token is also refused after a change that keeps the number of rows.
    fs::write(&path, six.replace('6', "7")).unwrap();
    assert_refused(resume(&query, &before).await);
    // Once the file has its original contents again, the token is accepted, although the file is
    // newer.
    fs::write(&path, six).unwrap();
    assert_eq!(resume(&query, &before).await, Ok(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn swapped_files_of_equal_size_are_refused() {
    for format in ["parquet", "arrow"] {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(format!("{name}.{format}"));
        for (name, of) in [("a", 0..1000), ("b", 1000..2000)] {
            match format {
                "parquet" => parquet(&path(name), &numbers(of), 100),
                _ => arrow(&path(name), &numbers(of)),
            }
        }
        let size = |name: &str| fs::metadata(path(name)).unwrap().len();
        assert_eq!(size("a"), size("b"));
        let query = format!(
            "SELECT id FROM {format}('{}') SHUFFLE WITHIN 300 ROWS BATCH 100",
            folder.path().display()
        );
        let before = token(&query).await;
        assert_eq!(resume(&query, &before).await, Ok(19), "{format}");
        fs::rename(path("a"), path("c")).unwrap();
        fs::rename(path("b"), path("a")).unwrap();
        fs::rename(path("c"), path("b")).unwrap();
        assert_refused(resume(&query, &before).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_json_lines_and_right_sides_of_joins_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let lines = |of: &dyn Fn(u32) -> u32| -> String {
        (10..50).fold(String::new(), |mut text, id| {
            writeln!(text, "{{\"id\": {id}, \"x\": {}}}", of(id)).unwrap();
            text
        })
    };
    let (first, second) = (lines(&|id| id + 10), lines(&|id| id + 20));
    assert_eq!(first.len(), second.len());
    fs::write(path("t.json"), &first).unwrap();
    fs::write(path("k.json"), &first).unwrap();
    let query = format!(
        "SELECT t.id, k.x FROM json('{}') AS t JOIN json('{}') AS k ON t.id = k.id BATCH 4",
        path("t.json").display(),
        path("k.json").display()
    );
    let before = token(&query).await;
    assert_eq!(resume(&query, &before).await, Ok(9));
    for changed in ["t.json", "k.json"] {
        fs::write(path(changed), &second).unwrap();
        assert_refused(resume(&query, &before).await);
        fs::write(path(changed), &first).unwrap();
    }
    assert_eq!(resume(&query, &before).await, Ok(9));
}

/// A token also belongs to the options of the file's reader, since they change the rows.
#[tokio::test(flavor = "multi_thread")]
async fn options_that_change_rows_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("t.csv");
    fs::write(&csv, "id,x\n1,-\n2,b\n3,-\n4,d\n").unwrap();
    let photos = folder.path().join("photos");
    crate::common::photos(&photos, 6, 2);
    let tables = [
        (&csv, "CSV", "'header' 'true'", "'null' '-'"),
        (
            &photos,
            "IMAGEFOLDER",
            "'classes' 'class0,class1'",
            "'classes' 'class1,class0'",
        ),
    ];
    for (location, format, first, second) in tables {
        let column = if format == "CSV" { "x" } else { "label" };
        let of = async |options: &str| {
            let session = Session::new();
            let sql = format!(
                "CREATE EXTERNAL TABLE t STORED AS {format} OPTIONS ({options}) LOCATION '{}';
                 CREATE PIPELINE p AS SELECT {column} FROM t BATCH 2",
                location.display()
            );
            session.execute(&sql).await.unwrap();
            session
        };
        let batches = batches_of_p(&of(first).await, RunConfig::default(), 1).await;
        let token = Arc::new(batches.unwrap()[0].token());
        let rest = async |options: &str| {
            let config = RunConfig {
                resume: Some(Arc::clone(&token)),
                ..RunConfig::default()
            };
            let batches = batches_of_p(&of(options).await, config, usize::MAX).await;
            batches.map(|batches| batches.len())
        };
        assert!(rest(first).await.unwrap() > 0, "{format}");
        assert_refused(rest(second).await);
    }
}

/// Files are identified by their contents, not by their location or modification time, so a token
/// is valid for a copy of the data.
#[tokio::test(flavor = "multi_thread")]
async fn copies_elsewhere_are_the_same_data() {
    let folder = tempfile::tempdir().unwrap();
    let file = |place: &str, name: &str| folder.path().join(place).join(name);
    parquet(&file("a", "t.parquet"), &numbers(0..100), 10);
    fs::write(file("a", "t.csv"), "id\n1\n2\n3\n4\n").unwrap();
    arrow(&file("a", "t.arrow"), &numbers(0..100));
    crate::common::photos(&file("a", "photos"), 6, 2);
    fs::create_dir(folder.path().join("b")).unwrap();
    for name in ["t.parquet", "t.csv", "t.arrow"] {
        fs::copy(file("a", name), file("b", name)).unwrap();
    }
    crate::common::photos(&file("b", "photos"), 6, 2);
    let queries = [
        ("id", "parquet", "t.parquet"),
        ("id", "csv", "t.csv"),
        ("id", "arrow", "t.arrow"),
        ("label", "images", "photos"),
    ];
    for (column, function, name) in queries {
        let query = |place: &str| {
            let file = file(place, name);
            format!(
                "SELECT {column} FROM {function}('{}') SHUFFLE GLOBALLY BATCH 3",
                file.display()
            )
        };
        let before = token(&query("a")).await;
        assert!(resume(&query("b"), &before).await.unwrap() > 0, "{name}");
    }
}

/// A session lists the files of its tables once. Contents written after that are not mixed with the
/// listed contents.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changes_after_it_was_listed_ends_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    fs::write(&path, "id\n1\n2\n3\n").unwrap();
    let query = format!("SELECT id FROM csv('{}') BATCH 2", path.display());
    let listed = session(&query).await;
    fs::write(&path, "id\n1\n234\n").unwrap();
    later(&path);
    let why = batches_of_p(&listed, RunConfig::default(), usize::MAX).await;
    let why = why.unwrap_err();
    assert!(
        why.contains("t.csv' changed since the source was opened")
            && why.contains("open the source again"),
        "{why}"
    );
    fs::write(&path, "id\n1\n2\n3\n").unwrap();
    let batches = batches_of_p(&listed, RunConfig::default(), usize::MAX).await;
    assert_eq!(batches.unwrap().len(), 2, "the same file, written again");
}

/// Rows of an earlier epoch that are still in memory do not hide that their file changed.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changes_between_epochs_ends_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    // A run that reads ahead finds the one file or the other, not a part of one.
    let replace = |text: &str, seconds: u32| {
        let new = folder.path().join("new");
        fs::write(&new, text).unwrap();
        (0..seconds).for_each(|_| later(&new));
        fs::rename(&new, &path).unwrap();
    };
    for order in ["", "SHUFFLE WITHIN 2 ROWS"] {
        let query = format!(
            "SELECT id FROM csv('{}') {order} BATCH 2 REPEAT 10000",
            path.display()
        );
        replace("id\n1\n2\n3\n", 0);
        let session = session(&query).await;
        let mut run = session.run("p", RunConfig::default()).await.unwrap();
        for _ in 0..4 {
            run.next().await.unwrap().unwrap();
        }
        // Written again, the same rows are no change.
        replace("id\n1\n2\n3\n", 1);
        for _ in 0..1000 {
            run.next().await.unwrap().unwrap();
        }
        replace("id\n1\n2\n4\n", 2);
        let mut after = 0;
        let why = loop {
            match run.next().await.unwrap() {
                Ok(_) => after += 1,
                Err(why) => break why.to_string(),
            }
        };
        assert!(why.contains("t.csv' changed since"), "{order}: {why}");
        assert!(after < 5000, "{order}: {after} batches were read ahead");
    }
}

/// Advances a file's modification time by a second. The clock of the file system may be too coarse
/// to give two quick writes different times.
fn later(path: &Path) {
    let file = File::options().write(true).open(path).unwrap();
    let time = fs::metadata(path).unwrap().modified().unwrap();
    file.set_modified(time + std::time::Duration::from_secs(1))
        .unwrap();
}

/// Overwrites a file with a text of the same size, and restores its modification time.
fn write_unnoticed(path: &Path, text: &str) {
    let before = fs::metadata(path).unwrap();
    assert_eq!(before.len(), text.len() as u64);
    fs::write(path, text).unwrap();
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(before.modified().unwrap()).unwrap();
}

/// Row counts and cached rows are keyed by the contents of files, so a change is detected even if
/// the modification time stays the same.
#[tokio::test(flavor = "multi_thread")]
async fn counts_and_cached_rows_of_other_contents_are_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    let text = |shift: u32| {
        let lines = (0..60).map(|row| format!("{}\n", 10 + (row + shift) % 70));
        "id\n".to_owned() + &lines.collect::<String>()
    };
    let query = |cache: &str, of: &str| {
        let dir = folder.path().join(of);
        format!(
            "SELECT upper(concat('id ', id)) AS id FROM csv('{}') WHERE id % 70 < 35
             SHUFFLE WITHIN 20 ROWS SEED 3 BATCH 4 REPEAT 2 {cache} OPTIONS (cache_dir = '{}')",
            path.display(),
            dir.display()
        )
    };
    let mut streams = Vec::new();
    for shift in [0, 30] {
        match shift {
            0 => fs::write(&path, text(shift)).unwrap(),
            _ => write_unnoticed(&path, &text(shift)),
        }
        let off = session(&query("CACHE OFF", "counts")).await;
        let whole = batches_of_p(&off, RunConfig::default(), usize::MAX)
            .await
            .unwrap();
        let cached = session(&query("CACHE AT upper", "cache")).await;
        let from_cache = batches_of_p(&cached, RunConfig::default(), usize::MAX).await;
        assert_eq!(digest(&from_cache.unwrap()), digest(&whole), "cached rows");
        let mut ranks = Vec::new();
        for rank in 0..2 {
            let config = RunConfig {
                rank,
                world: 2,
                ..RunConfig::default()
            };
            ranks.push(batches_of_p(&off, config, usize::MAX).await.unwrap());
        }
        let mut of_ranks: Vec<_> = ranks.iter().flat_map(|batches| keys(batches)).collect();
        let mut of_whole = keys(&whole);
        of_ranks.sort();
        of_whole.sort();
        assert_eq!(of_ranks, of_whole, "counts");
        streams.push(digest(&whole));
    }
    assert_ne!(streams[0], streams[1]);
}
