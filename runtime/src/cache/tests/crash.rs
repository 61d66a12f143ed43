//! Tests that a process killed while writing leaves no half-written rows that can be read.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use object_store::{ObjectStore, PutPayload, Result};

use super::*;
use crate::cache::clock::SystemClock;
use crate::objects::hooked::{Hook, Hooked};

/// Environment variable that tells the child process which directory to write to, and where to
/// stop.
const PLACE: &str = "FOREBAY_TEST_CACHE_CRASH";
const STOPPED: &str = "stopped here";

/// A hook that stops the process before the second segment is written, or before the manifest that
/// would list the second segment is written.
#[derive(Debug)]
struct Stop {
    folder: PathBuf,
    /// `segment`, `manifest`, `half segment` or `half manifest`. With `half`, the process stops
    /// after writing half of the object under its temporary name.
    at: String,
    seen: std::sync::atomic::AtomicU32,
}

impl Hook for Stop {
    fn before_put(&self, location: &Path, payload: &PutPayload) -> Result<()> {
        let what = match location.filename() {
            Some("manifest.json") => "manifest",
            Some(name) if name.ends_with(".arrows") => "segment",
            _ => return Ok(()),
        };
        if !self.at.ends_with(what) {
            return Ok(());
        }
        if self.seen.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0 {
            return Ok(());
        }
        if self.at.starts_with("half") {
            let bytes: Vec<u8> = payload.iter().flatten().copied().collect();
            let temporary = self.folder.join(format!("{location}#1"));
            std::fs::write(temporary, &bytes[..bytes.len() / 2]).unwrap();
        }
        println!("{STOPPED}");
        std::io::stdout().flush().unwrap();
        // Waits until the parent process kills this process, or has died.
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        std::process::exit(1);
    }
}

/// The child process: writes two segments, and stops before the second is complete.
#[tokio::test]
async fn child() {
    let Ok(place) = std::env::var(PLACE) else {
        return;
    };
    let (at, folder) = place.split_once('|').unwrap();
    let stop = Arc::new(Stop {
        folder: PathBuf::from(folder),
        at: at.to_owned(),
        seen: Default::default(),
    });
    let wrap = |inner| Arc::new(Hooked { inner, hook: stop }) as Arc<dyn ObjectStore>;
    let clock = Arc::new(SystemClock::default());
    let store = CacheStore::in_directory(folder.as_ref(), small(), clock, wrap)
        .await
        .unwrap();
    let entry = entry(&store).await;
    let mut writer = entry.writer().await.unwrap().unwrap();
    for rows in [0..20, 20..40] {
        append(&mut writer, rows).await.unwrap();
        writer.flush().await.unwrap();
    }
    unreachable!("the child was to stop");
}

#[tokio::test]
async fn a_writer_that_is_killed_leaves_what_it_finished() {
    for at in ["segment", "half segment", "manifest", "half manifest"] {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "cache::tests::crash::child", "--nocapture"])
            .env(PLACE, format!("{at}|{}", folder.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(said.any(|line| line.unwrap().contains(STOPPED)), "{at}");
        let store = directory(&folder, small()).await;
        let all: Vec<u64> = (0..40).collect();
        let finished: Vec<u64> = (0..20).collect();
        // While the child process lives, other processes can read the entry, but cannot write to
        // the entry.
        let entry = entry(&store).await;
        assert_eq!(there(&entry, &all).await, finished, "{at}");
        assert!(entry.writer().await.unwrap().is_none(), "{at}");
        child.kill().unwrap();
        child.wait().unwrap();
        let after = self::entry(&directory(&folder, small()).await).await;
        assert_eq!(there(&after, &all).await, finished, "{at}");
        assert!(store.verify(false).await.unwrap().damaged.is_empty());
        let temporary = files(folder.path(), "#1").len();
        assert_eq!(temporary, usize::from(at.starts_with("half")));
        // The next writer removes the leftovers and writes the missing rows.
        let writer = after.writer().await.unwrap().unwrap();
        assert_eq!(files(folder.path(), "#1").len(), 0);
        assert_eq!(files(folder.path(), ".arrows").len(), 1);
        writer.finish().await.unwrap();
        write(&after, &all).await;
        assert_eq!(there(&after, &all).await, all);
        assert_eq!(store.counters().damaged, 0);
    }
}
