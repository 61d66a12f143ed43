//! Measures what a client gets from its workers, and for how long it waits for them.

use std::time::Duration;

/// Rows and waiting times of a stream.
#[derive(Debug, Default)]
pub(super) struct StreamMeter {
    rows: u64,
    waited: Duration,
    /// Beginning of the wait that lasts.
    waiting_since: Option<Duration>,
    /// Time, rows and waiting time of the last look.
    last: (Duration, u64, Duration),
}

/// Rows and waiting times between two looks at a [`StreamMeter`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct MeterReading {
    /// Rows since the beginning.
    pub(super) rows: u64,
    pub(super) rows_per_second: f64,
    /// Share of the time for which the client waited, from 0 to 1.
    pub(super) wait_share: f64,
}

impl StreamMeter {
    /// Counts rows that a worker has computed.
    pub(super) fn add_rows(&mut self, rows: u64) {
        self.rows += rows;
    }

    /// Notes that the client has no result at the time `now`.
    pub(super) fn wait(&mut self, now: Duration) {
        self.waiting_since.get_or_insert(now);
    }

    /// Notes that the client has a result, or has stopped waiting, at the time `now`.
    pub(super) fn resume(&mut self, now: Duration) {
        if let Some(since) = self.waiting_since.take() {
            self.waited += now.saturating_sub(since);
        }
    }

    /// Returns what happened since the last look.
    pub(super) fn read(&mut self, now: Duration) -> MeterReading {
        let current = self.waiting_since;
        let waited =
            self.waited + current.map_or(Duration::ZERO, |since| now.saturating_sub(since));
        let (then, rows, waited_then) = std::mem::replace(&mut self.last, (now, self.rows, waited));
        let seconds = now.saturating_sub(then).as_secs_f64();
        let share = |part: f64| if seconds > 0.0 { part / seconds } else { 0.0 };
        MeterReading {
            rows: self.rows,
            #[expect(clippy::cast_precision_loss, reason = "a rate")]
            rows_per_second: share((self.rows - rows) as f64),
            wait_share: share((waited - waited_then).as_secs_f64()).clamp(0.0, 1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_count_where_they_happen() {
        let seconds = Duration::from_secs;
        let mut meter = StreamMeter::default();
        meter.wait(seconds(1));
        meter.wait(seconds(2));
        meter.resume(seconds(3));
        meter.add_rows(40);
        let reading = meter.read(seconds(4));
        assert_eq!((reading.rows, reading.rows_per_second), (40, 10.0));
        assert_eq!(reading.wait_share, 0.5);
        // A wait that lasts counts up to now, once.
        meter.wait(seconds(5));
        assert_eq!(meter.read(seconds(8)).wait_share, 0.75);
        meter.add_rows(4);
        meter.resume(seconds(9));
        let reading = meter.read(seconds(10));
        assert_eq!((reading.rows, reading.rows_per_second), (44, 2.0));
        assert_eq!(reading.wait_share, 0.5);
        assert_eq!(
            meter.read(seconds(10)).wait_share,
            0.0,
            "no time has passed"
        );
    }
}
