//! The time at which the scheduler looks at waiting leases again, although nothing happened.

use std::sync::Mutex;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::ballista::lock::lock;

/// A single alarm, which rings at the earliest time that was set.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    next: Mutex<Option<Instant>>,
    changed: Notify,
}

impl Alarm {
    /// Lets the alarm ring at `time`, if it does not ring earlier.
    pub(crate) fn set(&self, time: Instant) {
        let mut next = lock(&self.next);
        if next.is_none_or(|earlier| time < earlier) {
            *next = Some(time);
            self.changed.notify_one();
        }
    }

    /// Waits until the alarm rings. It does not ring again until it is set again.
    pub(crate) async fn rings(&self) {
        loop {
            let next = *lock(&self.next);
            let Some(time) = next else {
                self.changed.notified().await;
                continue;
            };
            tokio::select! {
                () = sleep_until(time) => {
                    *lock(&self.next) = None;
                    return;
                }
                () = self.changed.notified() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_earliest_time_counts() {
        let alarm = Alarm::default();
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let ring = async {
            alarm.rings().await;
            Instant::now()
        };
        let set = async {
            alarm.set(after(500));
            tokio::time::sleep(Duration::from_millis(100)).await;
            alarm.set(after(200));
            alarm.set(after(300));
        };
        let (rang, ()) = tokio::join!(ring, set);
        assert_eq!(rang, after(200));
        let again = tokio::time::timeout(Duration::from_secs(60), alarm.rings());
        assert!(again.await.is_err(), "it rings once");
    }
}
