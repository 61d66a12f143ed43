//! The stream, the cluster and the consumer of a seed.

use std::collections::BTreeSet;
use std::time::Duration;

use forebay_cluster::window::{ByteSize, SegmentInfo, StagedData, WindowSettings};

use crate::rng::SplitMix;

const MB: u64 = 1 << 20;

/// Name of a segment, or of a range of its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowRange {
    pub(crate) sequence: u64,
    pub(crate) from: u64,
    pub(crate) rows: u64,
}

/// Result of a range of rows.
#[derive(Debug, Clone)]
pub(crate) struct SimResult {
    pub(crate) range: RowRange,
    pub(crate) bytes: u64,
    /// True if the host made the result, because the rows are poison.
    pub(crate) is_failure: bool,
}

impl ByteSize for SimResult {
    fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A segment with its actual size and time.
#[derive(Debug, Clone)]
pub(crate) struct SimSegment {
    pub(crate) info: SegmentInfo<RowRange>,
    pub(crate) bytes: u64,
    pub(crate) work: Duration,
}

/// The consumer's end of the run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ConsumerEnd {
    /// It consumes the whole stream.
    Complete,
    /// It stops the run after some segments.
    Stop { after: u64 },
    /// It needs nothing from segment `end` on, and notices that after some segments.
    Take { after: u64, end: u64 },
}

/// Chances and times of faults.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    pub(crate) lost_results: f64,
    pub(crate) silent_losses: f64,
    pub(crate) unnamed_losses: f64,
    pub(crate) single_unavailable: f64,
    pub(crate) repeats: f64,
    pub(crate) late_results: f64,
    pub(crate) kills: u64,
    pub(crate) stops: u64,
    pub(crate) outages: u64,
    /// Longest outage in milliseconds.
    pub(crate) outage_ms: f64,
    /// Mean time between faults in milliseconds.
    pub(crate) interval_ms: f64,
    /// Time at which the scheduler begins to refuse.
    pub(crate) refuses_at: Option<Duration>,
}

#[derive(Debug, Clone)]
pub(crate) struct MachineSpec {
    pub(crate) slots: usize,
    /// Multiple of the segments' times.
    pub(crate) slowness: f64,
    /// Number of the first segment that the machine cannot compute.
    pub(crate) unfit_from: Option<u64>,
}

#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) settings: WindowSettings,
    pub(crate) segments: Vec<SimSegment>,
    pub(crate) machines: Vec<MachineSpec>,
    pub(crate) poison: BTreeSet<(u64, u64)>,
    /// True if poison rows become failed results.
    pub(crate) is_poison_data: bool,
    pub(crate) faults: Faults,
    /// Time that the consumer takes for a segment, in milliseconds.
    pub(crate) consume_ms: f64,
    /// True if the consumer takes everything that there is at once.
    pub(crate) is_bursty: bool,
    pub(crate) end: ConsumerEnd,
    /// Chance that segments are not known when they are wanted.
    pub(crate) delayed_segments: f64,
}

impl Scenario {
    pub(crate) fn of(seed: u64) -> Self {
        let mut rng = SplitMix::new(seed);
        let segments = segments(&mut rng);
        let count = segments.len() as u64;
        let settings = WindowSettings {
            max_bytes: rng.spread(0.1, 512.0) as u64 * MB + 100_000,
            leases_per_worker: rng.range(1, 5) as usize,
            ..WindowSettings::default()
        };
        let machines = machines(&mut rng, count);
        let mut poison = BTreeSet::new();
        if count > 0 && rng.chance(0.2) {
            for _ in 0..rng.pick(&[1, 1, 1, 2, 5]) {
                let sequence = rng.below(count);
                let rows = segments[sequence as usize].info.rows;
                poison.insert((sequence, rng.below(rows)));
            }
        }
        let end = match rng.below(5) {
            0 => ConsumerEnd::Stop {
                after: rng.below(count + 1),
            },
            1 | 2 => {
                let end = rng.below(count + 2);
                ConsumerEnd::Take {
                    after: rng.below(end + 1),
                    end,
                }
            }
            _ => ConsumerEnd::Complete,
        };
        Self {
            settings,
            segments,
            machines,
            poison,
            is_poison_data: rng.chance(0.5),
            faults: faults(&mut rng),
            consume_ms: rng.pick(&[0.01, 0.01, 1.0, 30.0, 1000.0]),
            is_bursty: rng.chance(0.3),
            end,
            delayed_segments: rng.pick(&[0.0, 0.0, 0.3, 0.9]),
        }
    }

    /// Returns `true` if nothing goes wrong but a poison row, and lost workers are named.
    pub(crate) fn is_quiet(&self) -> bool {
        let faults = self.faults;
        let lost = faults.lost_results
            + faults.silent_losses
            + faults.unnamed_losses
            + faults.single_unavailable;
        let is_calm = faults.kills + faults.stops + faults.outages == 0 && lost == 0.0;
        let are_fit = self
            .machines
            .iter()
            .all(|machine| machine.unfit_from.is_none());
        is_calm && are_fit && self.poison.len() == 1
    }

    /// Returns the time of the whole stream on the slowest machine.
    pub(crate) fn slowest(&self) -> Duration {
        let work: Duration = self.segments.iter().map(|segment| segment.work).sum();
        let slowness = self.machines.iter().map(|machine| machine.slowness);
        work.mul_f64(slowness.fold(1.0, f64::max))
    }
}

fn segments(rng: &mut SplitMix) -> Vec<SimSegment> {
    let count = match rng.below(10) {
        0 => rng.below(3),
        1 => rng.range(100, 600),
        _ => rng.range(3, 60),
    };
    let typical = rng.spread(1e3, 3e6);
    let work_ms = rng.pick(&[0.001, 0.1, 2.0, 50.0, 500.0]);
    let misjudged = rng.pick(&[0.0, 0.0, 0.1, 1.0]);
    let is_unknown = rng.chance(0.15);
    let huge = rng.chance(0.1).then(|| rng.below(count));
    let is_divisible = rng.chance(0.8);
    let (mut affinity, window) = (0, rng.pick(&[1, 5, 1000]));
    let mut segments = Vec::new();
    for sequence in 0..count {
        let mut bytes = (typical * rng.spread(0.1, 10.0)) as u64;
        let work = rng.millis(work_ms * 0.2, work_ms * 5.0);
        let mut estimate = bytes;
        if rng.chance(misjudged) {
            estimate = (bytes as f64 / rng.spread(0.2, 50.0)) as u64;
        }
        if is_unknown {
            estimate = 0;
        }
        if huge == Some(sequence) {
            bytes = 100 * MB;
            estimate = rng.pick(&[estimate, bytes]);
        }
        if rng.below(window) == 0 {
            affinity += 1;
        }
        let rows = rng.pick(&[1, 1, 7, 32, 64, 300]);
        let info = SegmentInfo {
            name: RowRange {
                sequence,
                from: 0,
                rows,
            },
            bytes: estimate,
            work: if is_unknown { Duration::ZERO } else { work },
            affinity,
            staged: StagedData::default(),
            rows,
            is_divisible,
        };
        segments.push(SimSegment { info, bytes, work });
    }
    segments
}

fn machines(rng: &mut SplitMix, segments: u64) -> Vec<MachineSpec> {
    let count = rng.range(1, 6);
    let slots = rng.range(1, 4) as usize;
    let mut machines = vec![
        MachineSpec {
            slots,
            slowness: 1.0,
            unfit_from: None,
        };
        count as usize
    ];
    if rng.chance(0.3) {
        machines[0].slowness = 100.0;
    }
    if rng.chance(0.3) {
        let unfit = if rng.chance(0.2) {
            count
        } else {
            rng.below(count)
        };
        let from = rng.below(segments + 1);
        for machine in machines.iter_mut().rev().take(unfit as usize) {
            machine.unfit_from = Some(from);
        }
    }
    machines
}

fn faults(rng: &mut SplitMix) -> Faults {
    if rng.chance(0.1) {
        return Faults::default();
    }
    let some = |rng: &mut SplitMix, most: f64| {
        if rng.chance(0.4) {
            rng.unit() * most
        } else {
            0.0
        }
    };
    Faults {
        lost_results: some(rng, 0.2),
        silent_losses: some(rng, 0.1),
        unnamed_losses: some(rng, 1.0),
        single_unavailable: some(rng, 0.2),
        repeats: some(rng, 1.0),
        late_results: some(rng, 1.0),
        kills: rng.pick(&[0, 0, 3, 30]),
        stops: rng.pick(&[0, 0, 3]),
        outages: rng.pick(&[0, 0, 1, 4]),
        outage_ms: rng.pick(&[100.0, 5000.0, 90_000.0]),
        interval_ms: rng.pick(&[5.0, 200.0, 3000.0]),
        refuses_at: rng.chance(0.03).then(|| rng.millis(1.0, 10_000.0)),
    }
}
