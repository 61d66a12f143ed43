//! An output file never replaces an input, is never visible half written, and replaces an existing
//! file only when it is complete.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::{forebay, photos, tables};

/// Returns the names and contents of all files below a folder, including temporary files.
pub(crate) fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            let inner = contents(&path).into_iter();
            found.extend(inner.map(|(inner, bytes)| (format!("{name}/{inner}"), bytes)));
        } else {
            found.push((name, fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

#[track_caller]
fn is_refused(folder: &TempDir, words: &[&str], why: &str) {
    let before = contents(folder.path());
    let ran = forebay(folder.path(), words);
    assert_eq!(ran.code, Some(2), "{words:?}: {}", ran.stderr);
    assert!(ran.stderr.contains(why), "{words:?}: {}", ran.stderr);
    assert!(contents(folder.path()) == before, "{words:?} changed files");
}

#[test]
fn an_output_that_is_an_input_is_refused() {
    let folder = tables();
    let at = |name: &str| folder.path().join(name);
    fs::hard_link(at("t.csv"), at("hard.csv")).unwrap();
    fs::create_dir(at("data")).unwrap();
    fs::copy(at("t.csv"), at("data/a.csv")).unwrap();
    fs::write(at("q.sql"), "SELECT id FROM csv('t.csv') BATCH 9").unwrap();
    let input = "it is an input";
    let mut names = vec!["t.csv", "./t.csv", "hard.csv", "data/../t.csv"];
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("t.csv", at("soft.csv")).unwrap();
        names.push("soft.csv");
    }
    for out in names {
        is_refused(&folder, &["run", "-f", "q.sql", "--out", out], input);
        let query = "SELECT count(*) AS n FROM csv('t.csv')";
        is_refused(&folder, &["sql", "-e", query, "--out", out], input);
        let step = ["which", "-f", "q.sql", "--step", "0", "--out", out];
        is_refused(&folder, &step, input);
        is_refused(&folder, &["plan", "save", "-f", "q.sql", "-o", out], input);
        let token = ["run", "-f", "q.sql", "--save-token", out];
        is_refused(&folder, &token, input);
    }
    // The right side of a JOIN is an input, too.
    let join =
        "SELECT a.id, b.text FROM json('t.json') a JOIN csv('t.csv') b ON a.id = b.id BATCH 9";
    is_refused(&folder, &["run", "-e", join, "--out", "t.csv"], input);
    is_refused(
        &folder,
        &["plan", "save", "-f", "q.sql", "-o", "q.sql"],
        input,
    );
    is_refused(
        &folder,
        &["run", "-f", "q.sql", "--save-token", "q.sql"],
        input,
    );
    // The output file would match the input pattern, so the next run would read it.
    for from in ["data", "data/*.csv", "**/a*.csv"] {
        let query = format!("SELECT id FROM csv('{from}') BATCH 9");
        let words = ["run", "-e", &query, "--out", "data/anew.csv"];
        is_refused(&folder, &words, "would read it as input the next time");
    }
    let query = "SELECT id FROM csv('data') BATCH 9";
    forebay(
        folder.path(),
        &["run", "-e", query, "--out", "data/new.arrow"],
    )
    .ok();
    forebay(folder.path(), &["run", "-e", query, "--out", "new.csv"]).ok();
}

#[test]
fn rows_and_token_are_two_files() {
    let folder = tables();
    let absolute = folder.path().join("r.json").display().to_string();
    let mut pairs = vec![
        ("r.json", "r.json"),
        ("./r.json", "r.json"),
        ("r.json", absolute.as_str()),
        ("./r.json", "sub/../r.json"),
    ];
    fs::create_dir(folder.path().join("sub")).unwrap();
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("r.json", folder.path().join("token")).unwrap();
        std::os::unix::fs::symlink(".", folder.path().join("here")).unwrap();
        pairs.extend([("r.json", "token"), ("here/r.json", "r.json")]);
    }
    let query = "SELECT id FROM csv('t.csv') BATCH 9";
    for exists in [false, true] {
        for (out, token) in &pairs {
            let words = ["run", "-e", query, "--out", out, "--save-token", token];
            let ran = forebay(folder.path(), &words);
            assert_eq!(ran.code, Some(2), "{words:?}: {}", ran.stderr);
            assert!(ran.stderr.contains("name the same file"), "{}", ran.stderr);
            assert_eq!(folder.path().join("r.json").exists(), exists, "{words:?}");
        }
        forebay(folder.path(), &["run", "-e", query, "--out", "r.json"]).ok();
    }
}

#[test]
fn dead_letters_do_not_become_rows() {
    let folder = tables();
    fs::create_dir(folder.path().join("data")).unwrap();
    fs::copy(
        folder.path().join("t.parquet"),
        folder.path().join("data/a.parquet"),
    )
    .unwrap();
    let query = |letters: &str| {
        format!(
            "SELECT id, 10 / (id - 400) AS x FROM parquet('data') BATCH 9
             OPTIONS (on_error = 'skip', dead_letters = '{letters}')"
        )
    };
    let why = "would read it as input the next time";
    is_refused(&folder, &["run", "-e", &query("data")], why);
    is_refused(&folder, &["run", "-e", &query("data/failed/here")], why);
    forebay(folder.path(), &["run", "-e", &query("failed")]).ok();
    forebay(folder.path(), &["run", "-e", &query("failed")]).ok();
}

#[test]
fn a_contact_sheet_does_not_become_a_photo() {
    let folder = photos();
    let query = "SELECT decode_image(image) AS image FROM images('photos') BATCH 1";
    let words = ["preview", "-e", query, "-o", "photos/sheet.png"];
    is_refused(&folder, &words, "would read it as input the next time");
}

#[test]
fn the_old_file_stays_if_a_run_fails() {
    let folder = tables();
    let query = "SELECT id, 10 / (id - 400) AS x FROM parquet('t.parquet') BATCH 9";
    for out in ["out.csv", "out.json", "out.parquet", "out.arrow"] {
        fs::write(folder.path().join(out), "older").unwrap();
        let before = contents(folder.path());
        let ran = forebay(folder.path(), &["run", "-e", query, "--out", out]);
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        assert!(contents(folder.path()) == before, "{out}");
        let good = query.replace("400", "4000");
        forebay(folder.path(), &["run", "-e", &good, "--out", out]).ok();
        assert_eq!(contents(folder.path()).len(), before.len(), "{out}");
        assert_ne!(fs::read(folder.path().join(out)).unwrap(), b"older");
    }
}

#[test]
fn a_token_replaces_the_previous_one() {
    let folder = tables();
    let query = "SELECT id FROM parquet('t.parquet') SHUFFLE GLOBALLY BATCH 7";
    let run = |more: &[&str]| {
        let words = [
            "run",
            "-q",
            "-e",
            query,
            "--limit-batches",
            "3",
            "--save-token",
            "t.token",
        ];
        forebay(folder.path(), &[&words, more].concat()).ok()
    };
    run(&[]);
    let first = fs::read(folder.path().join("t.token")).unwrap();
    run(&["--resume", "t.token"]);
    assert_ne!(fs::read(folder.path().join("t.token")).unwrap(), first);
    let words = [
        "run", "-e", query, "--resume", "t.token", "--out", "t.token",
    ];
    assert_eq!(forebay(folder.path(), &words).code, Some(2));
    if cfg!(unix) {
        let words = ["run", "-q", "-e", query, "--save-token", "/dev/null"];
        forebay(folder.path(), &words).ok();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
}
