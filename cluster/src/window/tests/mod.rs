//! Tests of the window's rules, one each.

mod host;
mod poison;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use host::{Host, MB, id, info, lost, one_at_a_time, unfit};

use super::*;
use crate::engine::EngineError;
use crate::error::ClusterError;

#[test]
fn leases_begin_with_one_segment_and_grow() {
    let host = Host::with_segments(WindowSettings::default(), 100, MB);
    assert_eq!(host.sizes(), [1, 4, 16, 16]);
}

#[test]
fn the_first_lease_wants_a_single_segment() {
    let host = Host::new(WindowSettings::default());
    assert!(matches!(
        host.others[..],
        [WindowAction::WantSegments { segments: 1, .. }]
    ));
}

#[test]
fn leases_in_flight_follow_the_workers_and_their_sizes_do_not() {
    let mut host = Host::with_segments(WindowSettings::default(), 100, MB);
    host.send(WindowEvent::WorkersChanged(vec![id("a"), id("b")]));
    assert_eq!(host.sizes(), [1, 4, 16, 16, 16, 16, 16, 15]);
}

#[test]
fn a_lease_without_room_waits_until_results_are_consumed() {
    let settings = WindowSettings {
        max_bytes: 40 * MB,
        leases_per_worker: 100,
        ..WindowSettings::default()
    };
    let mut host = Host::with_segments(settings, 100, 4 * MB);
    assert_eq!(host.sizes(), [1, 2, 2, 2]);
    host.finish(0, "a", 4 * MB);
    host.finish(1, "a", 4 * MB);
    host.send(WindowEvent::Consumed);
    assert_eq!(host.submitted.len(), 4, "the results are held");
    host.send(WindowEvent::Consumed);
    assert_eq!(host.submitted.len(), 5);
}

#[test]
fn a_segment_over_the_bound_is_submitted_alone() {
    let settings = WindowSettings {
        max_bytes: MB,
        ..WindowSettings::default()
    };
    let mut host = Host::with_segments(settings, 2, 100 * MB);
    assert_eq!(host.submitted.len(), 1);
    host.finish(0, "a", 100 * MB);
    assert_eq!(host.submitted.len(), 1);
    host.send(WindowEvent::Consumed);
    assert_eq!(host.submitted.len(), 2);
}

#[test]
fn results_are_delivered_in_order_whatever_comes_first() {
    let mut host = Host::with_segments(WindowSettings::default(), 3, 10);
    host.finish(1, "a", 11);
    assert!(host.delivered.is_empty());
    host.finish(0, "a", 10);
    assert_eq!(
        host.delivered,
        [(0, vec![10]), (1, vec![11]), (2, vec![11])]
    );
    (0..3).for_each(|_| host.send(WindowEvent::Consumed));
    assert!(host.has_finished());
}

#[test]
fn a_lost_lease_is_issued_again_at_once() {
    let mut host = Host::with_segments(one_at_a_time(), 1, 10);
    host.fail(0, lost("a"));
    assert_eq!(host.submitted.len(), 2);
    assert_eq!(host.submitted[1].lease, host.submitted[0].lease);
    host.finish(0, "a", 99);
    assert!(host.delivered.is_empty(), "the first attempt ended before");
    host.finish(1, "b", 10);
    assert_eq!(host.delivered, [(0, vec![10])]);
}

#[test]
fn an_unavailable_scheduler_is_asked_again_with_growing_delays() {
    let mut host = Host::with_segments(one_at_a_time(), 1, 10);
    for (index, delay) in [50, 100, 200].into_iter().enumerate() {
        host.fail(
            index,
            EngineError::Unavailable {
                cause: "down".into(),
            },
        );
        host.pass(Duration::from_millis(delay - 1));
        assert_eq!(host.submitted.len(), index + 1);
        host.pass(Duration::from_millis(1));
        assert_eq!(host.submitted.len(), index + 2);
    }
}

#[test]
fn an_outage_that_does_not_end_ends_the_run() {
    let mut host = Host::with_segments(one_at_a_time(), 1, 10);
    while host.error().is_none() {
        assert!(host.now < Duration::from_secs(700));
        let last = host.submitted.len() - 1;
        host.fail(
            last,
            EngineError::Unavailable {
                cause: "down".into(),
            },
        );
        host.pass(Duration::from_secs(1));
    }
    assert!(matches!(
        host.error(),
        Some(ClusterError::Unavailable { .. })
    ));
    assert!(host.now > Duration::from_secs(600));
}

#[test]
fn a_refusal_ends_the_run_and_cancels_everything() {
    let mut host = Host::with_segments(WindowSettings::default(), 3, 10);
    host.fail(
        1,
        EngineError::Refused {
            cause: "quota".into(),
        },
    );
    assert_eq!(
        host.error(),
        Some(&ClusterError::Refused {
            cause: "quota".into()
        })
    );
    assert_eq!(host.cancelled, [host.submitted[0].attempt]);
}

#[test]
fn an_unfit_worker_is_avoided_and_set_aside_when_another_one_succeeds() {
    let mut host = Host::with_segments(one_at_a_time(), 2, 10);
    host.send(WindowEvent::WorkersChanged(vec![id("a"), id("b")]));
    host.fail(0, unfit("a"));
    let again = host.submitted.last().cloned().expect("a submission");
    assert_eq!(
        (again.lease, again.avoid),
        (host.submitted[0].lease, vec![id("a")])
    );
    assert!(host.window.status().set_aside.is_empty());
    host.finish(2, "b", 10);
    assert_eq!(
        host.window.status().set_aside,
        [(id("a"), "no mount".to_owned())]
    );
}

#[test]
fn a_lease_that_three_workers_cannot_compute_ends_the_run_when_it_is_the_head() {
    let mut host = Host::with_segments(WindowSettings::default(), 2, 10);
    let mut index = 1;
    for worker in ["a", "b", "c"] {
        assert_eq!(host.error(), None);
        host.fail(index, unfit(worker));
        index = host.submitted.len() - 1;
    }
    assert_eq!(host.error(), None, "segment 0 comes first");
    host.finish(0, "d", 10);
    assert_eq!(host.delivered.len(), 1);
    let error = host.error().map(ToString::to_string);
    let expected = "no worker can compute segment 1: worker a: no mount; worker b: no mount; \
                    worker c: no mount";
    assert_eq!(error.as_deref(), Some(expected));
}

#[test]
fn a_lease_waits_for_another_worker_if_the_only_one_is_unfit() {
    let mut host = Host::with_segments(one_at_a_time(), 1, 10);
    host.send(WindowEvent::WorkersChanged(vec![id("a")]));
    host.fail(0, unfit("a"));
    assert_eq!(host.submitted.len(), 1);
    host.pass(Duration::from_secs(59));
    host.send(WindowEvent::WorkersChanged(vec![id("a"), id("b")]));
    assert_eq!(host.submitted.len(), 2);
    host.send(WindowEvent::WorkersChanged(vec![id("a")]));
    host.pass(Duration::from_secs(61));
    assert!(matches!(host.error(), Some(ClusterError::Unfit { .. })));
}

#[test]
fn a_wrong_number_of_results_makes_the_worker_unfit() {
    let mut host = Host::with_segments(one_at_a_time(), 1, 10);
    host.send(WindowEvent::AttemptDone {
        attempt: host.submitted[0].attempt,
        worker: id("a"),
        results: vec![1, 2],
        took: Duration::ZERO,
    });
    assert!(host.delivered.is_empty());
    assert_eq!(host.submitted[1].avoid, [id("a")]);
}

#[test]
fn only_the_head_is_hedged_and_the_first_result_wins() {
    let mut host = Host::with_segments(WindowSettings::default(), 3, 10);
    host.finish(0, "a", 10);
    host.pass(Duration::from_millis(999));
    assert_eq!(host.submitted.len(), 2);
    host.pass(Duration::from_millis(1));
    let (first, second) = (host.submitted[1].clone(), host.submitted[2].clone());
    assert_eq!(first.lease, second.lease);
    assert_ne!(first.affinity, second.affinity);
    host.finish(2, "b", 10);
    assert_eq!(host.cancelled, [first.attempt]);
    host.finish(1, "a", 77);
    assert_eq!(host.delivered[1], (1, vec![10]));
    assert_eq!(host.window.status().counts.duplicates, 2);
}

#[test]
fn further_hedges_wait_longer_and_replace_the_oldest_attempt() {
    let mut host = Host::with_segments(WindowSettings::default(), 1, 10);
    host.pass(Duration::from_secs(5));
    assert_eq!(host.submitted.len(), 2);
    host.pass(Duration::from_millis(9_999));
    assert_eq!(host.submitted.len(), 2);
    host.pass(Duration::from_millis(1));
    assert_eq!(
        (host.submitted.len(), host.window.status().attempts),
        (3, 2)
    );
    assert_eq!(host.cancelled, [host.submitted[0].attempt]);
}

#[test]
fn skipping_cancels_what_the_consumer_does_not_need() {
    let mut host = Host::with_segments(WindowSettings::default(), 100, MB);
    host.finish(0, "a", 10);
    host.send(WindowEvent::SkipFrom(2));
    let skipped: Vec<AttemptId> = host.submitted[2..]
        .iter()
        .map(|sent| sent.attempt)
        .collect();
    assert_eq!(host.cancelled, skipped);
    host.finish(1, "a", 10);
    assert_eq!(host.delivered.len(), 2);
    (0..2).for_each(|_| host.send(WindowEvent::Consumed));
    assert!(host.has_finished());
}

#[test]
fn stopping_cancels_everything_and_ends_all_actions() {
    let mut host = Host::with_segments(WindowSettings::default(), 100, MB);
    host.send(WindowEvent::Stop);
    assert_eq!(host.cancelled.len(), host.submitted.len());
    host.finish(0, "a", 10);
    host.pass(Duration::from_secs(100));
    assert!(host.delivered.is_empty());
}

#[test]
fn delayed_segments_are_submitted_to_idle_workers_only() {
    let mut host = Host::new(WindowSettings::default());
    host.send(WindowEvent::SegmentsAdded(vec![
        info(0, MB, 1),
        info(1, MB, 1),
    ]));
    assert_eq!(host.sizes(), [1]);
    host.send(WindowEvent::SegmentsDelayed);
    assert_eq!(host.sizes(), [1], "the worker has a lease");
    host.finish(0, "a", 10);
    assert_eq!(host.sizes(), [1, 1]);
}

/// The window holds the segments in flight, and no more.
#[test]
fn a_long_stream_is_fast_and_needs_little_memory() {
    let started = Instant::now();
    let mut window: LeaseWindow<(), u64> = LeaseWindow::new(WindowSettings::default());
    let (mut added, mut delivered, mut now) = (0u64, 0u64, Duration::ZERO);
    let total = 300_000;
    let mut most = 0;
    let mut events = VecDeque::new();
    let mut is_finished = false;
    while !is_finished {
        while let Some(action) = window.next_action() {
            match action {
                WindowAction::WantSegments { segments, .. } => {
                    let count = (segments as u64).min(total - added);
                    added += count;
                    let segment = SegmentInfo {
                        name: (),
                        bytes: 100,
                        work: Duration::from_micros(20),
                        affinity: 0,
                        staged: StagedData::default(),
                        rows: 1,
                        is_divisible: false,
                    };
                    events.push_back(WindowEvent::SegmentsAdded(vec![segment; count as usize]));
                    if added == total {
                        events.push_back(WindowEvent::EndOfStream);
                    }
                }
                WindowAction::Submit {
                    attempt, segments, ..
                } => {
                    events.push_back(WindowEvent::AttemptDone {
                        attempt,
                        worker: id("a"),
                        results: vec![100; segments.len()],
                        took: Duration::from_micros(20) * segments.len() as u32,
                    });
                }
                WindowAction::Deliver { .. } => {
                    delivered += 1;
                    events.push_back(WindowEvent::Consumed);
                }
                WindowAction::Finish => is_finished = true,
                _ => {}
            }
        }
        let status = window.status();
        most = most.max(status.delivered - status.consumed + status.leases as u64);
        now += Duration::from_micros(10);
        if let Some(event) = events.pop_front() {
            window.handle(now, event);
        }
    }
    assert_eq!(delivered, total);
    assert!(most < 40_000, "{most} segments at once");
    let rate = total as f64 / started.elapsed().as_secs_f64();
    println!("{rate:.0} segments/s");
    assert!(rate > 20_000.0, "{rate:.0} segments/s");
}
