//! A cluster of processes: workers on other addresses and in other folders yield the stream of one
//! process, also if one of them is killed.

use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStderr, Stdio};

use super::{command, forebay, photos};

/// A process that is killed when the test ends.
struct Process {
    child: Child,
    /// The address that the process listens on.
    address: String,
    /// Open end of the pipe that the process writes its messages to.
    _messages: Lines<BufReader<ChildStderr>>,
}

impl Process {
    /// Starts a process, and waits until it says which address it listens on.
    fn start(folder: &Path, words: &[&str]) -> Self {
        let mut command = command(folder, words);
        command.env("FOREBAY_CLUSTER_TOKEN", "secret");
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let listens = |line: std::io::Result<String>| {
            let line = line.unwrap();
            line.split_once("listens on ").map(|(_, at)| at.to_owned())
        };
        let address = lines.by_ref().find_map(listens).unwrap();
        Self {
            child,
            address,
            _messages: lines,
        }
    }

    fn worker(folder: &Path, scheduler: &str, address: &str, more: &[&str]) -> Self {
        let words = ["worker", "--scheduler", scheduler, "--listen", address];
        Self::start(folder, &[&words[..], more].concat())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have been killed already.
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }
}

fn digest(folder: &Path, sql: &str, cluster: Option<&str>, token: &str) -> super::Ran {
    let mut words = vec!["run", "-e", sql, "--digest"];
    if let Some(address) = cluster {
        words.extend(["--cluster", address]);
    }
    let mut command = command(folder, &words);
    command.env("FOREBAY_CLUSTER_TOKEN", token);
    super::Ran::of(&command.output().unwrap())
}

#[test]
fn processes_yield_the_stream_of_one_process() {
    let (folder, elsewhere) = (photos(), tempfile::tempdir().unwrap());
    forebay(
        folder.path(),
        &["generate", "table", "t.parquet", "--rows", "5000"],
    )
    .ok();
    let scheduler = Process::start(elsewhere.path(), &["scheduler", "--listen", "127.0.0.2:0"]);
    let at = scheduler.address.as_str();
    let more = ["--threads", "1", "--memory-limit", "200MiB"];
    let first = Process::worker(elsewhere.path(), at, "127.0.0.3:0", &more);
    let pipelines = [
        "SELECT label, normalize(random_hflip(random_resized_crop(decode_image(image), 24, 24)), 'imagenet') AS p
         FROM images('photos') AS t SHUFFLE WITHIN 5 ROWS SEED 2 BATCH 4 REPEAT 3",
        "SELECT id, price * 2 AS twice FROM parquet('t.parquet') AS t WHERE clicks > 1
         SHUFFLE GLOBALLY SEED 3 BATCH 32 REPEAT 2",
        "SELECT id, 100 / (id % 7) AS v FROM parquet('t.parquet') AS t BATCH 50 OPTIONS (on_error = 'skip')",
    ];
    for sql in pipelines {
        let local = digest(folder.path(), sql, None, "").ok().stdout;
        let there = digest(folder.path(), sql, Some(at), "secret").ok().stdout;
        assert_eq!(there, local, "{sql}");
    }
    let refused = digest(folder.path(), pipelines[0], Some(at), "wrong");
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("token"), "{}", refused.stderr);

    // Of two workers, the first one is killed, and the second one has its data in another place.
    let there = elsewhere.path().join("photos");
    let data = folder.path().join("photos");
    std::fs::rename(&data, &there).unwrap();
    std::fs::create_dir(&data).unwrap();
    for entry in walk(&there) {
        let to = data.join(entry.strip_prefix(&there).unwrap());
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(&entry, to).unwrap();
    }
    let root = format!("{}={}", data.display(), there.display());
    let _second = Process::worker(elsewhere.path(), at, "127.0.0.4:0", &["--data", &root]);
    drop(first);
    let local = digest(folder.path(), pipelines[0], None, "").ok().stdout;
    // The client reads nothing: its folder is gone.
    std::fs::remove_dir_all(&data).unwrap();
    let moved = digest(folder.path(), pipelines[0], Some(at), "secret")
        .ok()
        .stdout;
    assert_eq!(moved, local);
    let shown = |words: &[&str]| {
        let words = [words, &["--cluster", at, "-e", pipelines[0]]].concat();
        let mut command = command(folder.path(), &words);
        command.env("FOREBAY_CLUSTER_TOKEN", "secret");
        super::Ran::of(&command.output().unwrap())
    };
    assert!(shown(&["schema"]).ok().stdout.contains("label"));
    assert!(shown(&["explain"]).ok().stdout.contains("decode_image"));
    shown(&["preview", "--out", "sheet.png"]).ok();
    // The times of operators are those of the workers.
    let analyzed = shown(&["explain", "--analyze", "--json"]).ok().stdout;
    let analyzed: serde_json::Value = serde_json::from_str(&analyzed).unwrap();
    let operators = analyzed["analyze"]["operators"].as_array().unwrap();
    assert!(!operators.is_empty());
    assert!(
        operators.iter().all(|of| of["rows"].as_u64().unwrap() > 0),
        "{operators:?}"
    );
    assert!(analyzed["analyze"]["read_bytes"].as_u64().unwrap() > 0);
    shown(&["which", "--step", "1"]).ok();
    let missing = [
        "run",
        "--cluster",
        at,
        "-e",
        "SELECT * FROM images('none') AS t BATCH 1",
    ];
    let mut missing = command(folder.path(), &missing);
    missing.env("FOREBAY_CLUSTER_TOKEN", "secret");
    let missing = super::Ran::of(&missing.output().unwrap());
    assert_eq!(missing.code, Some(1), "{}", missing.stderr);
    assert!(
        missing.stderr.contains("no file or folder"),
        "{}",
        missing.stderr
    );
}

/// Returns the files below a folder.
fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let below = |path: std::path::PathBuf| {
        if path.is_dir() {
            walk(&path)
        } else {
            vec![path]
        }
    };
    entries.flat_map(below).collect()
}

#[test]
fn addresses_of_other_machines_need_insecure() {
    let folder = tempfile::tempdir().unwrap();
    let refused = forebay(folder.path(), &["scheduler", "--listen", "0.0.0.0:0"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("insecure"), "{}", refused.stderr);
}
