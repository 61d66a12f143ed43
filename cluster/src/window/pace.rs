//! Measured sizes and times of the leases of a run, by which later leases are estimated.

use std::time::Duration;

use super::settings::WindowSettings;

/// Weight of earlier leases when a lease is measured. About the last ten leases count.
const MEMORY: f64 = 0.9;

/// Largest factor by which a lease is expected to take longer than the mean of earlier ones because
/// it is larger. Small leases take most of their time on the way, which does not grow with them.
const MAX_LARGER: f64 = 16.0;

/// Relation of measured to estimated quantities.
#[derive(Debug, Clone, Default)]
struct Correction {
    estimated: f64,
    measured: f64,
    segments: f64,
}

impl Correction {
    fn measure(&mut self, estimated: f64, measured: f64, segments: usize) {
        self.estimated = self.estimated * MEMORY + estimated;
        self.measured = self.measured * MEMORY + measured;
        self.segments = self.segments * MEMORY + segments as f64;
    }

    /// Returns the corrected estimate of a segment, or the mean of measured segments if its
    /// estimate is zero.
    fn correct(&self, estimate: f64) -> f64 {
        if estimate == 0.0 {
            return self.measured / self.segments.max(1.0);
        }
        if self.estimated == 0.0 {
            return estimate;
        }
        // Estimates are lowered less than they are raised: a reservation that is too large costs
        // speed, and one that is too small costs memory.
        estimate * (self.measured / self.estimated).clamp(0.25, 1000.0)
    }
}

/// A finished lease.
#[derive(Debug, Clone)]
pub(super) struct LeaseMeasure {
    /// Number of segments.
    pub(super) segments: usize,
    /// Estimated output, without correction.
    pub(super) estimated_bytes: u64,
    /// Size of the results.
    pub(super) bytes: u64,
    /// Estimated computing time, without correction.
    pub(super) estimated_work: Duration,
    /// Computing time.
    pub(super) work: Duration,
    /// Size of the lease in relation to a full one.
    pub(super) weight: f64,
    /// Time between submission and result.
    pub(super) turnaround: Duration,
}

/// Measured sizes and times of the leases of a run.
#[derive(Debug, Clone, Default)]
pub(super) struct Pace {
    bytes: Correction,
    work: Correction,
    leases: f64,
    weight: f64,
    turnaround: f64,
}

impl Pace {
    pub(super) fn measure(&mut self, lease: &LeaseMeasure) {
        self.bytes.measure(
            lease.estimated_bytes as f64,
            lease.bytes as f64,
            lease.segments,
        );
        self.work.measure(
            lease.estimated_work.as_secs_f64(),
            lease.work.as_secs_f64(),
            lease.segments,
        );
        self.leases = self.leases * MEMORY + 1.0;
        self.weight = self.weight * MEMORY + lease.weight;
        self.turnaround = self.turnaround * MEMORY + lease.turnaround.as_secs_f64();
    }

    /// Returns the expected size of a result with the estimate `bytes`.
    pub(super) fn bytes(&self, bytes: u64) -> u64 {
        self.bytes.correct(bytes as f64) as u64
    }

    /// Returns the expected computing time of a segment with the estimate `work`.
    pub(super) fn work(&self, work: Duration) -> Duration {
        seconds(self.work.correct(work.as_secs_f64()))
    }

    /// Returns the time after which a lease is late.
    pub(super) fn late_after(
        &self,
        weight: f64,
        work: Duration,
        settings: &WindowSettings,
    ) -> Duration {
        if self.leases == 0.0 {
            return settings.first_hedge_delay.max(work * settings.hedge_factor);
        }
        let larger = weight * self.leases / self.weight.max(1e-9);
        let expected = self.turnaround / self.leases * larger.clamp(1.0, MAX_LARGER);
        let expected = seconds(expected).max(self.work(work));
        (expected * settings.hedge_factor).max(settings.hedge_delay)
    }
}

/// Returns a duration of at most a year.
fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(0.0, 3e7))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(bytes: u64, work_ms: u64, turnaround_ms: u64) -> LeaseMeasure {
        LeaseMeasure {
            segments: 10,
            estimated_bytes: 1000,
            bytes,
            estimated_work: Duration::from_millis(100),
            work: Duration::from_millis(work_ms),
            weight: 1.0,
            turnaround: Duration::from_millis(turnaround_ms),
        }
    }

    #[test]
    fn measured_leases_correct_estimates() {
        let mut pace = Pace::default();
        assert_eq!(pace.bytes(100), 100);
        pace.measure(&lease(5000, 50, 10));
        assert_eq!(pace.bytes(100), 500);
        assert_eq!(pace.work(Duration::from_millis(4)).as_millis(), 2);
    }

    #[test]
    fn an_unknown_estimate_is_the_mean_of_measured_segments() {
        let mut pace = Pace::default();
        assert_eq!(pace.bytes(0), 0);
        pace.measure(&lease(5000, 50, 10));
        assert_eq!(pace.bytes(0), 500);
        assert_eq!(pace.work(Duration::ZERO).as_millis(), 5);
    }

    #[test]
    fn a_lease_is_late_after_three_times_its_expected_time_and_never_before_a_second() {
        let (mut pace, settings) = (Pace::default(), WindowSettings::default());
        assert_eq!(
            pace.late_after(1.0, Duration::ZERO, &settings),
            settings.first_hedge_delay
        );
        pace.measure(&lease(1, 1, 10));
        assert_eq!(
            pace.late_after(1.0, Duration::ZERO, &settings),
            Duration::from_secs(1)
        );
        let mut pace = Pace::default();
        pace.measure(&lease(1, 1, 2000));
        let work = Duration::from_secs(300);
        assert_eq!(
            pace.late_after(1e9, Duration::ZERO, &settings).as_secs(),
            96
        );
        assert_eq!(pace.late_after(1.0, work, &settings).as_secs(), 225);
        assert_eq!(
            pace.late_after(0.1, Duration::ZERO, &settings),
            Duration::from_secs(6)
        );
        assert_eq!(
            pace.late_after(2.0, Duration::ZERO, &settings),
            Duration::from_secs(12)
        );
    }
}
