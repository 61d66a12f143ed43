//! End-to-end tests of the command line, which run the built program.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod cache;
#[cfg(all(feature = "cluster", unix))]
mod cluster;
mod look;
mod mistakes;
mod outputs;
mod plan;
#[cfg(all(feature = "cluster", unix))]
#[path = "../common/process.rs"]
mod process;
mod run;
mod sizes;
#[cfg(unix)]
mod stop;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// The exit code and output of a command.
struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ran {
    fn of(output: &Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

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
    Ran::of(&command(folder, words).output().unwrap())
}

/// Creates a folder with a table of 500 rows in every format.
fn tables() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["t.parquet", "t.csv", "t.json", "t.arrow"] {
        forebay(folder.path(), &["generate", "table", name, "--rows", "500"]).ok();
    }
    folder
}

/// Creates a folder with 12 small photos of 3 classes in `photos`.
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
