//! Runs that signals stop: the files that such a run leaves, and the position from which it
//! resumes.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use forebay_udfs::hash::hash_bytes;
use tempfile::TempDir;

use super::outputs::contents;
use super::{command, forebay};

/// Time limit for an expected event. A test fails if it waits longer.
const PATIENCE: Duration = Duration::from_secs(120);
/// Pause between two checks of a running process.
const LOOK: Duration = Duration::from_millis(2);

/// A random generator, which starts from the seed that a failing test prints.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        hash_bytes(&self.0.to_le_bytes()) % n
    }
}

/// Returns the number of runs to stop: 12, unless the environment variable FOREBAY_FUZZ_CASES sets
/// another number.
fn cases() -> u64 {
    let asked = std::env::var("FOREBAY_FUZZ_CASES");
    asked.map_or(12, |asked| asked.parse().unwrap())
}

fn kill(signal: &str, child: &Child) {
    let id = child.id().to_string();
    let killed = Command::new("kill").args([signal, &id]).status().unwrap();
    assert!(killed.success());
}

/// Waits until `look` returns a value. Returns `None` if the process ends before that.
#[track_caller]
fn until<T>(child: &mut Child, mut look: impl FnMut(&Child) -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        if let Some(found) = look(child) {
            return Some(found);
        }
        if child.try_wait().unwrap().is_some() {
            return None;
        }
        assert!(begun.elapsed() < PATIENCE, "nothing happens");
        std::thread::sleep(LOOK);
    }
}

/// Returns the temporary output files in a folder.
fn temporary(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|e| e == "tmp"))
        .collect()
}

/// Creates a folder with `data`, whose tables are so large that a run with the lowest memory limit
/// spills their windows, and `spill`, for the spilled rows.
fn tables() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("data")).unwrap();
    fs::create_dir(folder.path().join("spill")).unwrap();
    for (name, rows, payload) in [("wide.parquet", "16000", "1kB"), ("t.csv", "3000", "0")] {
        let name = format!("data/{name}");
        let words = [
            "generate",
            "table",
            &name,
            "--rows",
            rows,
            "--payload",
            payload,
        ];
        forebay(folder.path(), &words).ok();
    }
    folder
}

const SPILLS: &str =
    "SELECT id, payload FROM parquet('data/wide.parquet') SHUFFLE GLOBALLY BATCH 8 REPEAT";
const ENDLESS: &str =
    "SELECT id, text FROM csv('data/t.csv') SHUFFLE WITHIN 500 ROWS BATCH 8 REPEAT";

fn spawn(folder: &Path, words: &[&str]) -> Child {
    command(folder, words)
        .env("TMPDIR", folder.join("spill"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// True if this process ignores hangups, and so do those that it starts.
#[cfg(target_os = "linux")]
fn ignores_hangups() -> bool {
    const HANGUP: u64 = 1;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & HANGUP != 0)
}

/// Returns true if the process has an open, unnamed and non-empty file in `folder`, which has
/// spilled rows.
#[cfg(target_os = "linux")]
fn spills(child: &Child, folder: &Path) -> bool {
    let Ok(open) = fs::read_dir(format!("/proc/{}/fd", child.id())) else {
        return false;
    };
    open.flatten().any(|open| {
        let is_deleted = fs::read_link(open.path())
            .is_ok_and(|to| to.starts_with(folder) && to.to_string_lossy().ends_with("(deleted)"));
        is_deleted && fs::metadata(open.path()).is_ok_and(|file| file.len() > 0)
    })
}

#[cfg(target_os = "linux")]
#[test]
fn spilled_rows_are_in_an_unnamed_file() {
    let folder = tables();
    let spill = folder.path().join("spill").canonicalize().unwrap();
    let signals = ["-KILL", "-TERM", "-INT", "-HUP"];
    // A command goes on after a hangup if its parent ignores them, as under nohup.
    let ending = signals
        .into_iter()
        .filter(|&s| s != "-HUP" || !ignores_hangups());
    for signal in ending {
        let words = ["run", "-e", SPILLS, "--memory-limit", "18MiB"];
        let mut child = spawn(folder.path(), &words);
        let spilled = until(&mut child, |child| spills(child, &spill).then_some(()));
        assert!(spilled.is_some(), "the run does not spill");
        assert!(contents(&spill).is_empty(), "spilled files have names");
        kill(signal, &child);
        child.wait().unwrap();
        assert!(contents(&spill).is_empty(), "{signal}");
    }
}

/// Returns the exit code of a process to which a signal was sent. If the signal ended the process
/// before its handler was installed, returns 128 plus the signal, which is also the exit code of
/// the handler.
fn code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap())
}

#[test]
fn kills_at_any_moment_leave_whole_files_only() {
    let folder = tables();
    let at = |name: &str| folder.path().join(name);
    let inputs = contents(&at("data"));
    let seed = 0x5EED;
    let mut dice = Dice(seed);
    let mut moments = BTreeSet::new();
    for case in 0..cases() {
        let told = format!("case {case} of seed {seed}");
        let signal = ["-KILL", "-TERM"][dice.below(2) as usize];
        let format = ["csv", "json", "arrow", "parquet"][dice.below(4) as usize];
        let out = format!("out.{format}");
        let has_older = dice.below(2) == 0;
        if has_older {
            fs::write(at(&out), "older").unwrap();
        }
        let query = if dice.below(4) == 0 { SPILLS } else { ENDLESS };
        let words = [
            "run",
            "-e",
            query,
            "--memory-limit",
            "18MiB",
            "--out",
            &out,
            "--save-token",
            "t.token",
        ];
        let mut child = spawn(folder.path(), &words);
        // The signal is sent once the output file has `bytes` bytes or, in one run of four, after
        // `looks` checks of the process.
        let (bytes, looks) = (dice.below(300_000), dice.below(60));
        let by_looks = dice.below(4) == 0;
        let mut looked = 0;
        let begun = until(&mut child, |_| {
            looked += 1;
            let sizes = temporary(folder.path()).into_iter();
            let size = sizes
                .filter_map(|path| Some(fs::metadata(path).ok()?.len()))
                .max();
            if by_looks {
                (looked > looks).then_some(size.is_some())
            } else {
                size.filter(|&size| size >= bytes).map(|_| true)
            }
        });
        let begun = begun.unwrap_or_else(|| panic!("{told}: the run ended by itself"));
        moments.insert((signal, begun));
        kill(signal, &child);
        let status = child.wait().unwrap();
        let expected = if signal == "-KILL" { 137 } else { 143 };
        assert_eq!(code(status), expected, "{told}");
        if has_older {
            assert_eq!(fs::read(at(&out)).unwrap(), b"older", "{told}")
        } else {
            assert!(!at(&out).exists(), "{told}")
        }
        if status.code().is_some() {
            assert!(temporary(folder.path()).is_empty(), "{told}");
        }
        if status.code().is_some() && begun {
            forebay(folder.path(), &["token", "show", "t.token"]).ok();
        }
        assert!(
            contents(&at("data")) == inputs,
            "{told}: an input was touched"
        );
        assert!(contents(&at("spill")).is_empty(), "{told}");
        for path in temporary(folder.path())
            .into_iter()
            .chain([at(&out), at("t.token")])
        {
            fs::remove_file(path).ok();
        }
        assert_eq!(contents(folder.path()).len(), inputs.len(), "{told}");
    }
    assert!(moments.contains(&("-TERM", true)) && moments.contains(&("-KILL", true)));
}

/// A run that writes to a pipe is stopped after the reader of the pipe has received some lines.
/// Another run resumes from the token of the first one. Both outputs together are the whole stream.
#[test]
fn a_token_after_a_signal_resumes_after_the_last_delivered_batch() {
    let folder = tables();
    let at = |name: &str| folder.path().join(name);
    let query = "SELECT id FROM csv('data/t.csv') SHUFFLE WITHIN 500 ROWS SEED 5 BATCH 8 REPEAT 9";
    forebay(
        folder.path(),
        &["run", "-q", "-e", query, "--out", "whole.csv"],
    )
    .ok();
    let whole = fs::read_to_string(at("whole.csv")).unwrap();
    let pipe = Command::new("mkfifo").arg(at("pipe.csv")).status().unwrap();
    assert!(pipe.success());
    let mut dice = Dice(7);
    let mut stopped = 0;
    for case in 0..cases().div_ceil(2) {
        let (signal, number) = [("-TERM", 15), ("-INT", 2), ("-HUP", 1)][case as usize % 3];
        let words = [
            "run",
            "-e",
            query,
            "--out",
            "pipe.csv",
            "--save-token",
            "t.token",
        ];
        let mut child = spawn(folder.path(), &words);
        let mut reader = BufReader::new(fs::File::open(at("pipe.csv")).unwrap());
        let mut delivered = String::new();
        for _ in 0..dice.below(9_000) {
            reader.read_line(&mut delivered).unwrap();
        }
        kill(signal, &child);
        reader.read_to_string(&mut delivered).unwrap();
        let code = code(child.wait().unwrap());
        if code == 0 {
            assert_eq!(delivered, whole, "case {case}");
            continue;
        }
        assert_eq!(code, 128 + number, "case {case}");
        stopped += 1;
        let rest = [
            "run", "-q", "-e", query, "--resume", "t.token", "--out", "rest.csv",
        ];
        forebay(folder.path(), &rest).ok();
        let rest = fs::read_to_string(at("rest.csv")).unwrap();
        let rest = rest.split_once('\n').unwrap().1;
        // If the run was stopped before its first batch, it has not even written the header.
        let delivered = if delivered.is_empty() {
            "id\n"
        } else {
            &delivered
        };
        assert!(format!("{delivered}{rest}") == whole, "case {case}");
    }
    assert!(stopped > 0);
}

#[test]
fn an_unfinished_file_was_not_delivered() {
    let folder = tables();
    let at = |name: &str| folder.path().join(name);
    let words = [
        "run",
        "-e",
        ENDLESS,
        "--out",
        "out.csv",
        "--save-token",
        "t.token",
    ];
    let mut child = spawn(folder.path(), &words);
    let is_begun = |_: &Child| {
        temporary(folder.path())
            .pop()
            .filter(|p| p.exists() && { fs::metadata(p).is_ok_and(|file| file.len() > 50_000) })
    };
    assert!(until(&mut child, is_begun).is_some());
    kill("-TERM", &child);
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert!(!at("out.csv").exists());
    let first = |more: &[&str]| {
        let words = [
            "run",
            "-q",
            "-e",
            ENDLESS,
            "--limit-batches",
            "3",
            "--digest",
        ];
        forebay(folder.path(), &[&words, more].concat()).ok().stdout
    };
    assert_eq!(first(&["--resume", "t.token"]), first(&[]));
}

#[test]
fn an_ignored_hangup_does_not_stop_a_run() {
    let folder = tables();
    let line = format!(
        "trap '' HUP; exec {} run -q -e \"{ENDLESS}\" --out out.csv",
        env!("CARGO_BIN_EXE_forebay")
    );
    let mut child = Command::new("sh")
        .args(["-c", &line])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let larger_than = |bytes: u64| {
        let folder = folder.path().to_path_buf();
        move |_: &Child| {
            let size = fs::metadata(temporary(&folder).pop()?).ok()?.len();
            (size > bytes).then_some(size)
        }
    };
    let size = until(&mut child, larger_than(0)).unwrap();
    kill("-HUP", &child);
    assert!(
        until(&mut child, larger_than(size)).is_some(),
        "the run stopped"
    );
    kill("-TERM", &child);
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

#[test]
fn calibrating_reports_progress_and_can_be_stopped() {
    for (more, told) in [(&[] as &[&str], "4 minutes"), (&["--quick"], "rougher")] {
        let folder = tables();
        let words = [&["calibrate", "--out", "prices.json"], more].concat();
        let mut child = command(folder.path(), &words)
            .env("TMPDIR", folder.path().join("spill"))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        assert!(first.contains(told), "{first}");
        let second = lines.next().unwrap().unwrap();
        assert!(
            second.starts_with("1/") && second.contains("making photos"),
            "{second}"
        );
        kill("-TERM", &child);
        let output = child.wait().unwrap();
        assert_eq!(output.code(), Some(143));
        assert!(!folder.path().join("prices.json").exists());
        let left = contents(&folder.path().join("spill"));
        assert!(left.is_empty(), "{} files are left", left.len());
    }
}
