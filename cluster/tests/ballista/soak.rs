//! Many leases: memory, threads and files stay as they are.

use std::process::Command;
use std::time::Instant;

use forebay_cluster::engine::LeaseEngine;
use futures::{StreamExt, stream};

use crate::support::{TestCluster, lease, within};

/// Returns a number that an environment variable sets.
fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |number| number.parse().unwrap())
}

/// Returns the megabytes, the threads and the open files of this process.
fn usage() -> (u64, u64, usize) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    let files = std::fs::read_dir("/proc/self/fd").unwrap().count();
    (field("VmRSS:") / 1024, field("Threads:"), files)
}

/// Variable that is set in the process that measures itself.
const ALONE: &str = "FOREBAY_TEST_SOAK_ALONE";

/// Starts this test program again, because other tests of a process count in its memory.
#[test]
fn memory_threads_and_files_stay_flat() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "soak::leases_leave_nothing_behind",
            "--nocapture",
        ])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}{errors}");
    assert!(printed.contains("round 9:"), "{printed}");
}

/// Runs many leases, if this process was started for it. `FOREBAY_TEST_LEASES` is their number.
#[tokio::test(flavor = "multi_thread")]
async fn leases_leave_nothing_behind() {
    if std::env::var_os(ALONE).is_none() {
        return;
    }
    let leases = number("FOREBAY_TEST_LEASES", 2_000);
    let in_flight = usize::try_from(number("FOREBAY_TEST_IN_FLIGHT", 8)).unwrap();
    // Megabytes of the result of each lease.
    let command = match number("FOREBAY_TEST_MEGABYTES", 0) {
        0 => "number 1".to_owned(),
        megabytes => format!("large {megabytes}"),
    };
    let cluster = TestCluster::start(2).await;
    let mut first = None;
    for round in 0..10 {
        let start = Instant::now();
        let running = (0..leases / 10).map(|order| {
            let lease = cluster.engine.submit(lease(&command, order));
            async { within("a lease", lease).await.unwrap() }
        });
        let done = stream::iter(running)
            .buffer_unordered(in_flight)
            .count()
            .await;
        let rate = done as f64 / start.elapsed().as_secs_f64();
        let usage = usage();
        println!("round {round}: {rate:.0} leases/s, (MB, threads, files) = {usage:?}");
        // The first rounds fill pools and the list of jobs that finished a moment ago.
        if round == 4 {
            first = Some(usage);
        }
    }
    let (megabytes, threads, files) = usage();
    let (megabytes_before, threads_before, files_before) = first.unwrap();
    assert!(
        megabytes <= megabytes_before + 32,
        "{megabytes} MB after {megabytes_before}"
    );
    assert!(
        threads <= threads_before + 4,
        "{threads} threads after {threads_before}"
    );
    assert!(
        files <= files_before + 8,
        "{files} files after {files_before}"
    );
}
