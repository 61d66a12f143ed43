//! The command line, end to end, through the built program.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking; the lint's exception covers only test functions"
)]

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// What a command gave.
struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ran {
    #[track_caller]
    fn ok(self) -> Self {
        assert_eq!(
            self.code,
            Some(0),
            "stdout: {}\nstderr: {}",
            self.stdout,
            self.stderr
        );
        self
    }

    #[track_caller]
    fn json(self) -> Value {
        let ran = self.ok();
        serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {}", ran.stdout))
    }
}

fn command(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.current_dir(folder).args(words).stdin(Stdio::null());
    command
}

fn forebay(folder: &Path, words: &[&str]) -> Ran {
    let output = command(folder, words).output().unwrap();
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A folder with a table of 500 rows in every format.
fn tables() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["t.parquet", "t.csv", "t.json", "t.arrow"] {
        forebay(folder.path(), &["generate", "table", name, "--rows", "500"]).ok();
    }
    folder
}

/// A folder with 12 small photos of 3 classes in `photos`.
fn photos() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let words = [
        "generate",
        "photos",
        "photos",
        "--count",
        "12",
        "--classes",
        "3",
        "--size",
        "48x36",
    ];
    forebay(folder.path(), &words).ok();
    folder
}

const TABLE_PIPELINE: &str = "CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION 't.parquet';
    CREATE PIPELINE p AS SELECT id, price * 2 AS twice FROM t WHERE clicks > 1
      SHUFFLE WITHIN 100 ROWS SEED 3 BATCH 32;";

const PHOTO_PIPELINE: &str = "CREATE EXTERNAL TABLE photos STORED AS IMAGEFOLDER LOCATION 'photos';
    CREATE PIPELINE train AS
      SELECT class, label, normalize(random_hflip(random_resized_crop(decode_image(image), 24, 24)),
        'imagenet') AS pixels
      FROM photos SHUFFLE GLOBALLY BATCH 4 DROP REMAINDER;";

#[test]
fn generated_data_is_the_same_every_time() {
    let (a, b) = (tables(), tables());
    for name in ["t.parquet", "t.csv", "t.json", "t.arrow"] {
        let read = |folder: &TempDir| fs::read(folder.path().join(name)).unwrap();
        assert_eq!(read(&a), read(&b), "{name}");
    }
    let words = [
        "generate",
        "table",
        "wide.parquet",
        "--rows",
        "30",
        "--payload",
        "1kB",
        "--json",
    ];
    let made = forebay(a.path(), &words).json();
    assert_eq!(made["rows"], 30);
    assert!(made["bytes"].as_u64().unwrap() > 30_000);
}

#[test]
fn a_run_tells_its_figures_and_its_digest() {
    let folder = tables();
    let run = |more: &[&str]| {
        let words = ["run", "-e", TABLE_PIPELINE, "--digest", "--json"];
        forebay(folder.path(), &[&words, more].concat()).json()
    };
    let one = run(&["--threads", "1"]);
    let rows = one["rows"].as_u64().unwrap();
    assert!((50..450).contains(&rows), "{one}");
    assert_eq!(one["batches"].as_u64().unwrap(), rows.div_ceil(32));
    assert_eq!(one["skipped"], 0);
    assert!(one["seconds"].as_f64().unwrap() > 0.0 && one["rows_per_second"].is_f64());
    assert_eq!(one["digest"].as_str().unwrap().len(), 64);
    for same in [
        &["--threads", "2"] as &[&str],
        &["--optimize", "none"],
        &["--memory-limit", "300MiB"],
    ] {
        assert_eq!(run(same)["digest"], one["digest"], "{same:?}");
    }
    assert_ne!(run(&["--seed", "4"])["digest"], one["digest"]);
    assert_ne!(run(&["--first-epoch", "1"])["digest"], one["digest"]);
    assert_eq!(run(&["--limit-batches", "1"])["rows"], 32);
    assert_eq!(run(&["--epochs", "2"])["rows"].as_u64().unwrap(), 2 * rows);
}

#[test]
fn a_digest_of_rows_knows_no_order() {
    let folder = tables();
    let digest = |query: &str, kind: &str| {
        let query = format!("SELECT id, text FROM parquet('t.parquet') {query}");
        let ran = forebay(
            folder.path(),
            &["run", "-q", "-e", &query, "--digest", kind],
        )
        .ok();
        assert_eq!(ran.stderr, "");
        ran.stdout
    };
    let (a, b) = (
        "SHUFFLE GLOBALLY SEED 1 BATCH 7",
        "SHUFFLE GLOBALLY SEED 2 BATCH 9",
    );
    assert_eq!(digest(a, "rows"), digest(b, "rows"));
    assert_ne!(digest(a, "batches"), digest(b, "batches"));
}

#[test]
fn batches_are_written_and_can_be_read_again() {
    let folder = tables();
    for out in ["out.parquet", "out.arrow"] {
        let ran = forebay(
            folder.path(),
            &["run", "-e", TABLE_PIPELINE, "--out", out, "--json"],
        );
        let rows = ran.json()["rows"].as_u64().unwrap();
        let reader = if out.ends_with("parquet") {
            "parquet"
        } else {
            "arrow"
        };
        let query = format!("SELECT * FROM {reader}('{out}') BATCH 50");
        let again = forebay(folder.path(), &["run", "-e", &query, "--json"]).json();
        assert_eq!(again["rows"].as_u64().unwrap(), rows, "{out}");
    }
    let ran = forebay(
        folder.path(),
        &["run", "-e", TABLE_PIPELINE, "--out", "out.xls"],
    );
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.stderr.contains("ends with .parquet or .arrow"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_run_in_words_puts_data_and_messages_apart() {
    let folder = tables();
    let ran = forebay(folder.path(), &["run", "-e", TABLE_PIPELINE]).ok();
    assert_eq!(ran.stdout, "");
    assert!(
        ran.stderr.starts_with("p: ") && ran.stderr.contains("rows/s"),
        "{}",
        ran.stderr
    );
}

#[test]
fn photos_are_run_previewed_and_described() {
    let folder = photos();
    let script = folder.path().join("train.sql");
    fs::write(&script, PHOTO_PIPELINE).unwrap();
    let run = forebay(folder.path(), &["run", "-f", "train.sql", "--json"]).json();
    assert_eq!((&run["rows"], &run["batches"]), (&12.into(), &3.into()));
    assert_eq!(
        run["bytes"].as_u64().unwrap() / 12 / (24 * 24 * 3 * 4),
        1,
        "{run}"
    );

    let words = [
        "preview",
        "-f",
        "train.sql",
        "-o",
        "sheet.png",
        "--tile",
        "64",
    ];
    forebay(folder.path(), &words).ok();
    let sheet = image::open(folder.path().join("sheet.png"))
        .unwrap()
        .into_rgb8();
    let colours: std::collections::BTreeSet<[u8; 3]> = sheet.pixels().map(|p| p.0).collect();
    assert!(
        sheet.width() > 128 && colours.len() > 100,
        "{} colours",
        colours.len()
    );
    let missing = forebay(
        folder.path(),
        &[&words as &[&str], &["--batch", "9"]].concat(),
    );
    assert_eq!(missing.code, Some(1));
    assert!(
        missing.stderr.contains("train has 3 batches"),
        "{}",
        missing.stderr
    );

    let schema = forebay(folder.path(), &["schema", "-f", "train.sql"])
        .ok()
        .stdout;
    assert!(
        schema.contains("pixels  tensor 24x24x3 Float32"),
        "{schema}"
    );
    let source = forebay(
        folder.path(),
        &["schema", "photos", "-f", "train.sql", "--json"],
    )
    .json();
    let names: Vec<&str> = source["photos"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["image", "path", "class", "label"]);
}

#[test]
fn a_plan_is_explained_in_text_and_json() {
    let folder = tables();
    let words = ["explain", "-e", TABLE_PIPELINE];
    let text = forebay(folder.path(), &words).ok().stdout;
    let json = forebay(
        folder.path(),
        &[&words as &[&str], &["--format", "json"]].concat(),
    )
    .json();
    for hash in ["semantic_hash", "plan_hash"] {
        assert!(
            text.contains(json[hash].as_str().unwrap()),
            "{hash} in\n{text}"
        );
    }
    let analysed = [&words as &[&str], &["--analyze", "--json"]].concat();
    assert!(forebay(folder.path(), &analysed).json()["analyze"].is_object());
}

#[test]
fn the_demo_leaves_something_to_look_at() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["demo", "here", "--count", "40", "--size", "64x48"];
    let first = forebay(folder.path(), &words).ok();
    for part in [
        "CREATE PIPELINE train",
        "2 batches",
        "EXPLAIN ANALYZE",
        "here/preview.png",
    ] {
        assert!(first.stdout.contains(part), "{part} in\n{}", first.stdout);
    }
    assert!(
        image::open(folder.path().join("here/preview.png"))
            .unwrap()
            .width()
            > 300
    );
    let again = forebay(folder.path(), &words).ok();
    assert!(again.stdout.contains("there already"));
    let other = forebay(folder.path(), &["demo", "here", "--count", "41"]);
    assert_eq!(other.code, Some(2), "{}", other.stderr);
}

#[test]
fn statements_come_from_a_pipe() {
    let folder = tables();
    let piped = |text: &str| {
        let mut child = command(folder.path(), &["sql"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
        let output = child.wait_with_output().unwrap();
        Ran {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    };
    let ran = piped(
        "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION 't.csv'; -- a table
         SELECT count(*) AS n FROM t; SHOW TABLES;\nDESCRIBE t",
    )
    .ok();
    assert!(
        ran.stdout.contains("| 500 |") && ran.stdout.contains("user_id"),
        "{}",
        ran.stdout
    );

    let failed = piped("SELECT 1 AS one;\n\n  SELEC 2; SELECT 3 AS three");
    assert_eq!(failed.code, Some(2));
    assert!(failed.stdout.contains("| one |") && !failed.stdout.contains("three"));
    assert!(
        failed.stderr.contains("line 3, column 3"),
        "{}",
        failed.stderr
    );
}

#[test]
fn functions_are_listed_and_described() {
    let folder = tempfile::tempdir().unwrap();
    let list = forebay(folder.path(), &["functions"]).ok().stdout;
    for name in ["decode_image(", "random_resized_crop(", "one_hot("] {
        assert!(list.contains(name), "{name}");
    }
    let one = forebay(folder.path(), &["functions", "resize"]).ok().stdout;
    assert!(
        one.starts_with("resize(") && one.contains("Example"),
        "{one}"
    );
    let all = forebay(folder.path(), &["functions", "--json"]).json();
    assert!(all.as_array().unwrap().len() > 20);
    assert_eq!(
        forebay(folder.path(), &["functions", "frobnicate"]).code,
        Some(2)
    );
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let folder = tables();
    let mut child = command(folder.path(), &["sql", "-e", "SELECT * FROM csv('t.csv')"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_run_within_a_second() {
    let folder = tables();
    let query = "SELECT id FROM parquet('t.parquet') SHUFFLE GLOBALLY BATCH 8 REPEAT";
    let child = command(folder.path(), &["run", "-e", query, "--out", "out.parquet"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let out = folder.path().join("out.parquet");
    let patience = Instant::now();
    while !out.exists() {
        assert!(
            patience.elapsed() < Duration::from_secs(30),
            "the run does not start"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let pressed = Instant::now();
    let killed = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    assert!(
        pressed.elapsed() < Duration::from_secs(1),
        "{:?}",
        pressed.elapsed()
    );
    assert_eq!(output.status.code(), Some(130));
    assert!(!out.exists(), "half a file is left");
}

/// Queries with a mistake, over the table `t` and the photos of [`photos`].
const MISTAKES: [(&str, &str); 24] = [
    ("no statement", "42"),
    ("unknown keyword", "SELEC id FROM t"),
    ("unknown table", "SELECT id FROM tt BATCH 4"),
    ("unknown column", "SELECT idd FROM t BATCH 4"),
    (
        "unknown function",
        "SELECT resise(image, 8, 8) AS x FROM photos",
    ),
    ("unbalanced parenthesis", "SELECT (id FROM t BATCH 4"),
    ("open string", "SELECT 'id FROM t BATCH 4"),
    ("zero batch", "SELECT id FROM t BATCH 0"),
    ("negative batch", "SELECT id FROM t BATCH -3"),
    ("batch without a number", "SELECT id FROM t BATCH many"),
    (
        "window without rows",
        "SELECT id FROM t SHUFFLE WITHIN 100 BATCH 4",
    ),
    (
        "clauses out of order",
        "SELECT id FROM t BATCH 4 SHUFFLE GLOBALLY",
    ),
    ("clause twice", "SELECT id FROM t BATCH 4 BATCH 4"),
    (
        "unknown option",
        "SELECT id FROM t OPTIONS (on_eror = 'skip')",
    ),
    (
        "unknown option value",
        "SELECT id FROM t OPTIONS (on_error = 'ignore')",
    ),
    (
        "wrong argument type",
        "SELECT decode_image(label) AS x FROM photos",
    ),
    (
        "wrong argument count",
        "SELECT resize(decode_image(image)) AS x FROM photos",
    ),
    (
        "batch of unequal shapes",
        "SELECT decode_image(image) AS x FROM photos BATCH 4",
    ),
    ("random()", "SELECT random() AS x FROM t BATCH 4"),
    ("not built yet", "SELECT id FROM t PACK id INTO 128"),
    ("table hint", "SELECT id FROM t WITH (nolock) BATCH 4"),
    (
        "unknown format",
        "CREATE EXTERNAL TABLE x STORED AS XLS LOCATION 'x'",
    ),
    ("pipeline without query", "CREATE PIPELINE p AS"),
    ("drop of nothing", "DROP PIPELINE nothing"),
];

/// Inputs that are damaged or not there.
fn damage(folder: &Path) -> Vec<(&'static str, &'static str)> {
    fs::create_dir(folder.join("empty")).unwrap();
    let parquet = fs::read(folder.join("t.parquet")).unwrap();
    fs::write(
        folder.join("truncated.parquet"),
        &parquet[..parquet.len() / 2],
    )
    .unwrap();
    let arrow = fs::read(folder.join("t.arrow")).unwrap();
    fs::write(folder.join("truncated.arrow"), &arrow[..arrow.len() / 2]).unwrap();
    fs::write(folder.join("ragged.csv"), "a,b\n1,2\n3,4,5\n6,7\n").unwrap();
    fs::write(
        folder.join("broken.json"),
        "{\"a\": 1}\n{\"a\": \n{\"a\": 3}\n",
    )
    .unwrap();
    fs::create_dir_all(folder.join("bad/cat")).unwrap();
    fs::write(folder.join("bad/cat/1.jpg"), b"\xff\xd8\xff\xe0 no more").unwrap();
    fs::write(folder.join("file.txt"), "text").unwrap();
    vec![
        (
            "missing folder",
            "SELECT image FROM images('nowhere') BATCH 2",
        ),
        ("empty folder", "SELECT image FROM images('empty') BATCH 2"),
        ("no matching file", "SELECT * FROM parquet('*.pq') BATCH 2"),
        ("missing file", "SELECT * FROM csv('nowhere.csv') BATCH 2"),
        (
            "truncated Parquet",
            "SELECT id FROM parquet('truncated.parquet') BATCH 2",
        ),
        (
            "truncated Arrow",
            "SELECT id FROM arrow('truncated.arrow') BATCH 2",
        ),
        ("no Parquet", "SELECT * FROM parquet('file.txt') BATCH 2"),
        ("ragged CSV", "SELECT * FROM csv('ragged.csv') BATCH 2"),
        (
            "broken JSON line",
            "SELECT * FROM json('broken.json') BATCH 2",
        ),
        (
            "broken image",
            "SELECT resize(decode_image(image), 8, 8) AS x FROM images('bad') BATCH 2",
        ),
    ]
}

#[test]
fn every_mistake_and_damage_has_one_clear_message() {
    let folder = tables();
    let words = [
        "generate",
        "photos",
        "photos",
        "--count",
        "4",
        "--classes",
        "2",
        "--size",
        "48x36",
    ];
    forebay(folder.path(), &words).ok();
    let tables = "CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION 't.parquet';
CREATE EXTERNAL TABLE photos STORED AS IMAGEFOLDER LOCATION 'photos';
";
    let mut golden = String::new();
    for (name, query) in damage(folder.path()).into_iter().chain(MISTAKES) {
        let ran = forebay(folder.path(), &["run", "-e", &format!("{tables}{query}")]);
        assert!(
            matches!(ran.code, Some(1 | 2)),
            "{name}: {:?} {}",
            ran.code,
            ran.stderr
        );
        assert_eq!(ran.stdout, "", "{name}");
        let message = ran.stderr.trim_end();
        assert!(message.starts_with("error: "), "{name}: {message}");
        assert!(
            !message.contains("panicked") && !message.contains("bug"),
            "{name}: {message}"
        );
        let code = ran.code.unwrap();
        writeln!(golden, "{name}: {query}\n  exit {code}, {message}\n").unwrap();
    }
    let place = fs::canonicalize(folder.path()).unwrap();
    for path in [&place, folder.path()] {
        golden = golden.replace(path.to_str().unwrap(), "<folder>");
    }
    insta::assert_snapshot!("errors", golden);
}

#[cfg(unix)]
#[test]
fn a_file_that_may_not_be_read_is_named() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tables();
    let path = folder.path().join("t.csv");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read(&path).is_ok() {
        // The superuser reads everything: nothing to see.
        return;
    }
    let ran = forebay(
        folder.path(),
        &["run", "-e", "SELECT * FROM csv('t.csv') BATCH 2"],
    );
    assert!(matches!(ran.code, Some(1 | 2)));
    assert!(
        ran.stderr.starts_with("error: ") && ran.stderr.contains("t.csv"),
        "{}",
        ran.stderr
    );
}

#[test]
fn the_command_line_says_what_it_expects() {
    let folder = tables();
    let refused = |words: &[&str], expected: &str| {
        let ran = forebay(folder.path(), words);
        assert_eq!(ran.code, Some(2), "{words:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{words:?}: {}", ran.stderr);
    };
    refused(&["run"], "expected -f FILE or -e");
    refused(
        &["run", "-f", "a.sql", "-e", "SELECT 1"],
        "cannot be used with",
    );
    refused(
        &["run", "-e", TABLE_PIPELINE, "--memory-limit", "3 parsecs"],
        "such as 100kB",
    );
    refused(
        &["run", "-e", TABLE_PIPELINE, "--epochs", "0"],
        "0 is not in 1..",
    );
    refused(&["run", "-e", TABLE_PIPELINE, "--pipeline", "pp"], "pp");
    refused(
        &["run", "-e", TABLE_PIPELINE, "--rank", "2", "--world", "2"],
        "rank",
    );
    refused(
        &[
            "run",
            "-e",
            "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION 't.csv'",
        ],
        "no pipeline",
    );
    let two = format!("{TABLE_PIPELINE} SELECT id FROM t BATCH 3;");
    refused(&["run", "-e", &two], "choose one with --pipeline NAME");
    refused(
        &["generate", "photos", "x", "--classes", "0"],
        "0 is not in 1..",
    );
    refused(
        &["generate", "table", "x.xls"],
        ".parquet, .csv, .json or .arrow",
    );
    let ran = forebay(folder.path(), &["run", "-f", "none.sql"]);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr.starts_with("error: cannot read none.sql: "),
        "{}",
        ran.stderr
    );
}
