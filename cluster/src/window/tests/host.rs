//! A host of a window, which tests play.

use std::time::Duration;

use crate::engine::{EngineError, WorkerId};
use crate::error::ClusterError;
use crate::window::*;

pub(super) const MB: u64 = 1 << 20;

impl ByteSize for u64 {
    fn bytes(&self) -> u64 {
        *self
    }
}

pub(super) type TestAction = WindowAction<u64, u64>;

/// A window with its host. Names of segments are their numbers.
pub(super) struct Host {
    pub(super) window: LeaseWindow<u64, u64>,
    pub(super) now: Duration,
    pub(super) submitted: Vec<TestSubmission>,
    pub(super) cancelled: Vec<AttemptId>,
    pub(super) delivered: Vec<(u64, Vec<u64>)>,
    pub(super) others: Vec<TestAction>,
}

#[derive(Debug, Clone)]
pub(super) struct TestSubmission {
    pub(super) attempt: AttemptId,
    pub(super) lease: LeaseId,
    pub(super) segments: Vec<LeaseSegment<u64>>,
    pub(super) affinity: u64,
    pub(super) avoid: Vec<WorkerId>,
}

impl Host {
    pub(super) fn new(settings: WindowSettings) -> Self {
        let mut host = Self {
            window: LeaseWindow::new(settings),
            now: Duration::ZERO,
            submitted: Vec::new(),
            cancelled: Vec::new(),
            delivered: Vec::new(),
            others: Vec::new(),
        };
        host.act();
        host
    }

    /// Makes a host whose stream is `count` equal segments.
    pub(super) fn with_segments(settings: WindowSettings, count: u64, bytes: u64) -> Self {
        let mut host = Self::new(settings);
        host.send(WindowEvent::SegmentsAdded(
            (0..count).map(|name| info(name, bytes, 8)).collect(),
        ));
        host.send(WindowEvent::EndOfStream);
        host
    }

    pub(super) fn send(&mut self, event: WindowEvent<u64, u64>) {
        self.window.handle(self.now, event);
        self.act();
        let status = self.window.status();
        assert!(status.used_bytes <= status.bound_bytes, "{status:?}");
    }

    pub(super) fn act(&mut self) {
        while let Some(action) = self.window.next_action() {
            match action {
                WindowAction::Submit {
                    attempt,
                    lease,
                    segments,
                    affinity,
                    avoid,
                    ..
                } => self.submitted.push(TestSubmission {
                    attempt,
                    lease,
                    segments,
                    affinity,
                    avoid,
                }),
                WindowAction::Cancel { attempt } => self.cancelled.push(attempt),
                WindowAction::Deliver { sequence, results } => {
                    self.delivered.push((sequence, results));
                }
                other => self.others.push(other),
            }
        }
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now += time;
        self.send(WindowEvent::Tick);
    }

    pub(super) fn finish(&mut self, index: usize, worker: &str, bytes: u64) {
        let submission = self.submitted[index].clone();
        self.send(WindowEvent::AttemptDone {
            attempt: submission.attempt,
            worker: id(worker),
            results: vec![bytes; submission.segments.len()],
            took: Duration::from_millis(1),
        });
    }

    pub(super) fn fail(&mut self, index: usize, error: EngineError) {
        let attempt = self.submitted[index].attempt;
        self.send(WindowEvent::AttemptFailed { attempt, error });
    }

    pub(super) fn sizes(&self) -> Vec<usize> {
        self.submitted
            .iter()
            .map(|submission| submission.segments.len())
            .collect()
    }

    pub(super) fn error(&self) -> Option<&ClusterError> {
        self.others.iter().find_map(|action| match action {
            WindowAction::Fail(error) => Some(error),
            _ => None,
        })
    }

    pub(super) fn has_finished(&self) -> bool {
        matches!(self.others.last(), Some(WindowAction::Finish))
    }
}

pub(super) fn info(name: u64, bytes: u64, rows: u64) -> SegmentInfo<u64> {
    SegmentInfo {
        name,
        bytes,
        work: Duration::from_micros(1),
        affinity: 7,
        staged: StagedData::default(),
        rows,
        is_divisible: true,
    }
}

pub(super) fn id(name: &str) -> WorkerId {
    WorkerId(name.into())
}

pub(super) fn lost(worker: &str) -> EngineError {
    EngineError::WorkerLost {
        worker: Some(id(worker)),
        cause: "killed".into(),
    }
}

pub(super) fn unfit(worker: &str) -> EngineError {
    EngineError::WorkerUnfit {
        worker: id(worker),
        cause: "no mount".into(),
    }
}

pub(super) fn one_at_a_time() -> WindowSettings {
    WindowSettings {
        leases_per_worker: 1,
        ..WindowSettings::default()
    }
}
