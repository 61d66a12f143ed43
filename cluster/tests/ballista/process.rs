//! Workers in processes of their own, so that they can be killed.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use forebay_cluster::ballista::{Worker, WorkerOptions};

use crate::support::TestHandler;

/// Variable whose value is the scheduler of a worker that is to be run instead of a test.
const SCHEDULER: &str = "FOREBAY_TEST_WORKER_OF";

/// A worker in a process of its own, which ends with this value.
pub(crate) struct WorkerProcess(Child);

impl WorkerProcess {
    /// Starts this test program again as a worker with two slots.
    pub(crate) fn start(scheduler: SocketAddr) -> Self {
        let program = std::env::current_exe().unwrap();
        let child = Command::new(program)
            .args(["--exact", "process::run_worker", "--nocapture"])
            .env(SCHEDULER, scheduler.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// Sends the worker a signal.
    pub(crate) fn signal(&self, signal: &str) {
        let process = self.0.id().to_string();
        let status = Command::new("kill")
            .args([signal, &process])
            .status()
            .unwrap();
        assert!(status.success(), "kill {signal}: {status}");
    }

    /// Kills the worker, as a lack of memory does.
    pub(crate) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // It has ended if the test killed it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a worker, if this process was started for it. It ends when the test's process does.
#[tokio::test(flavor = "multi_thread")]
async fn run_worker() {
    let Ok(scheduler) = std::env::var(SCHEDULER) else {
        return;
    };
    let options = WorkerOptions::new(scheduler, 2);
    let _worker = Worker::start(options, Arc::new(TestHandler::default()))
        .await
        .unwrap();
    tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()))
        .await
        .unwrap()
        .unwrap();
}
