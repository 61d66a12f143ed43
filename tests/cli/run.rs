//! The commands `run` and `generate`: reported figures, digests, output files, Ctrl-C.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::{TABLE_PIPELINE, command, forebay, tables};

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
fn a_run_prints_its_figures_and_its_digest() {
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
fn a_digest_of_rows_ignores_order() {
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
fn the_rows_of_a_query_are_written_for_a_pipeline() {
    let folder = tables();
    let count = "SELECT count(*) AS n, max(id) AS last FROM parquet('t.parquet')";
    let two = format!("SELECT 1 AS one; {count}");
    let args = ["sql", "-e", &two, "--out", "n.parquet"];
    let ran = forebay(folder.path(), &args);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (Some(0), ""),
        "{}",
        ran.stderr
    );
    let read = "SELECT n, last FROM parquet('n.parquet') BATCH 1";
    let read = forebay(folder.path(), &["run", "-e", read, "--json"]);
    assert_eq!(read.json()["rows"], 1);
    for (sql, out, why) in [
        (count, "n.xls", "ends with .parquet or .arrow"),
        (
            "CREATE PIPELINE p AS SELECT id FROM parquet('t.parquet')",
            "m.parquet",
            "no rows for --out",
        ),
    ] {
        let ran = forebay(folder.path(), &["sql", "-e", sql, "--out", out]);
        assert_eq!(ran.code, Some(2), "{sql}");
        assert!(ran.stderr.contains(why), "{}", ran.stderr);
        assert!(!folder.path().join("m.parquet").exists());
    }
}

#[test]
fn a_run_separates_data_and_messages() {
    let folder = tables();
    let ran = forebay(folder.path(), &["run", "-e", TABLE_PIPELINE]).ok();
    assert_eq!(ran.stdout, "");
    assert!(
        ran.stderr.starts_with("p: ") && ran.stderr.contains("rows/s"),
        "{}",
        ran.stderr
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
    let is_begun = || {
        let entries = fs::read_dir(folder.path()).unwrap();
        let mut names = entries.map(|entry| entry.unwrap().file_name());
        names.any(|name| name.to_string_lossy().ends_with(".tmp"))
    };
    while !is_begun() {
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
    assert!(!out.exists() && !is_begun(), "half a file is left");
}
