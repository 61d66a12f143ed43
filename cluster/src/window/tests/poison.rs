//! Tests of leases that end their workers.

use std::time::Duration;

use super::host::{Host, info, lost};
use crate::error::ClusterError;
use crate::window::*;

/// Loses each lease with segment 1, row `row`, with a new worker. Returns the number of workers,
/// and the piece to blame.
fn blame(host: &mut Host, row: u64) -> (u64, u64, u64) {
    let (mut workers, mut index) = (0, 0);
    for _ in 0..1000 {
        let settled = host.others.iter().find_map(|action| match action {
            WindowAction::SettlePoison { piece, rows, .. } => Some((piece.row, *rows)),
            _ => None,
        });
        if let Some((row, rows)) = settled {
            return (workers, row, rows);
        }
        for action in std::mem::take(&mut host.others) {
            if let WindowAction::SplitSegment {
                piece,
                name,
                rows,
                max_rows,
            } = action
            {
                let pieces = (0..rows)
                    .step_by(max_rows as usize)
                    .map(|row| SegmentPiece {
                        name,
                        rows: max_rows.min(rows - row),
                    });
                let pieces = pieces.collect();
                host.send(WindowEvent::SegmentSplit { piece, pieces });
            }
        }
        let Some(submission) = host.submitted.get(index).cloned() else {
            host.pass(Duration::from_secs(1));
            continue;
        };
        let is_poison = |segment: &LeaseSegment<u64>| {
            let rows = segment.id.row..segment.id.row + segment.rows;
            segment.id.sequence == 1 && rows.contains(&row)
        };
        if submission.segments.iter().any(is_poison) {
            workers += 1;
            host.fail(index, lost(&format!("w{workers}")));
        } else {
            host.finish(index, "ok", 10);
        }
        index += 1;
    }
    panic!("nothing was blamed");
}

fn poisoned_host() -> Host {
    let mut host = Host::new(WindowSettings {
        leases_per_worker: 1,
        ..WindowSettings::default()
    });
    host.send(WindowEvent::SegmentsAdded(vec![
        info(0, 10, 1),
        info(1, 10, 64),
        info(2, 10, 1),
    ]));
    host.send(WindowEvent::EndOfStream);
    host
}

#[test]
fn a_row_that_ends_its_workers_is_found_after_six_of_them() {
    for row in [0, 13, 63] {
        let mut host = poisoned_host();
        assert_eq!(blame(&mut host, row), (6, row, 1));
    }
}

#[test]
fn a_poison_row_ends_the_run_or_becomes_a_result() {
    let piece = PieceId {
        sequence: 1,
        row: 13,
    };
    let mut host = poisoned_host();
    blame(&mut host, 13);
    let error = ClusterError::Poison {
        rows: "row 13".into(),
        workers: 6,
        cause: "killed".into(),
    };
    let result = Err(error.clone());
    host.send(WindowEvent::PoisonSettled { piece, result });
    assert_eq!(host.error(), Some(&error));

    let mut host = poisoned_host();
    blame(&mut host, 13);
    host.send(WindowEvent::PoisonSettled {
        piece,
        result: Ok(5),
    });
    let mut index = 0;
    while index < host.submitted.len() {
        host.finish(index, "ok", 10);
        index += 1;
    }
    let results = &host.delivered[1].1;
    assert_eq!(
        (
            results.iter().filter(|bytes| **bytes == 5).count(),
            results.len()
        ),
        (1, 16)
    );
}
