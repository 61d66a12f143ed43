//! Times at which the scheduler is not asked.

use std::time::Duration;

use super::settings::WindowSettings;

/// Time without a failure after which an outage is over, also if no lease has a result yet. Longer
/// than what a connection takes to fail.
const PAUSE: Duration = Duration::from_secs(30);

/// Returns the delay before the repetition with the given number, which is counted from 0.
pub(crate) fn backoff(settings: &WindowSettings, repetition: u32) -> Duration {
    let factor = 1 << repetition.min(16);
    (settings.retry_delay * factor).min(settings.max_retry_delay)
}

/// State of the connection to the scheduler.
#[derive(Debug, Default)]
pub(super) struct Outage {
    since: Option<Duration>,
    /// Time of the last failure.
    last: Duration,
    until: Duration,
    repetitions: u32,
}

impl Outage {
    /// Notes that the scheduler was unavailable. Returns the time since it is.
    pub(super) fn report(&mut self, now: Duration, settings: &WindowSettings) -> Duration {
        if now > self.last + PAUSE {
            self.end();
        }
        self.last = now;
        let since = *self.since.get_or_insert(now);
        // Many attempts fail at the same time, and count as one.
        if self.repetitions == 0 || now >= self.until {
            self.until = now + backoff(settings, self.repetitions);
            self.repetitions += 1;
        }
        now - since
    }

    /// Notes that the scheduler works.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }

    /// Returns the time until which nothing is submitted, or `None` if leases may be submitted.
    pub(super) fn until(&self, now: Duration) -> Option<Duration> {
        (now < self.until).then_some(self.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_doubles_up_to_a_second_and_a_success_resets_it() {
        let (mut outage, settings) = (Outage::default(), WindowSettings::default());
        let mut now = Duration::ZERO;
        let mut delays = Vec::new();
        for _ in 0..7 {
            outage.report(now, &settings);
            outage.report(now, &settings);
            let until = outage.until(now).expect("an outage");
            delays.push((until - now).as_millis());
            now = until;
        }
        assert_eq!(delays, [50, 100, 200, 400, 800, 1000, 1000]);
        assert_eq!(outage.report(now, &settings).as_millis(), 3550);
        outage.end();
        assert_eq!(outage.until(now), None);
        assert!(outage.report(now + 2 * PAUSE, &settings).is_zero());
    }
}
