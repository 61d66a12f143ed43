//! The progress of a run over its epochs, for those who wait for an epoch to begin.

use tokio::sync::watch;

/// The progress of a run over its epochs.
#[derive(Debug, Default)]
pub(super) struct EpochGate(watch::Sender<BegunEpoch>);

#[derive(Debug, Default)]
struct BegunEpoch {
    /// The latest epoch that has begun.
    epoch: Option<u64>,
    /// Number of rows that had been computed at the cache point when `epoch` began.
    computed: u64,
    /// True if the epoch before `epoch` computed no row, so no row is left to write to the store.
    settled: bool,
}

impl EpochGate {
    /// Begins `epoch`. `computed` is the number of rows that were computed at the cache point so
    /// far.
    pub(super) fn begin(&self, epoch: u64, computed: u64) {
        self.0.send_modify(|begun| {
            begun.settled = begun.epoch.is_some() && begun.computed == computed;
            begun.epoch = Some(epoch);
            begun.computed = computed;
        });
    }

    /// Waits until `epoch` has begun. Returns at once if no rows are left to write.
    pub(super) async fn wait(&self, epoch: u64) {
        let mut begun = self.0.subscribe();
        let reached = begun.wait_for(|begun| begun.settled || begun.epoch >= Some(epoch));
        // Waiting cannot fail, because the sender lives as long as `self`.
        drop(reached.await);
    }
}
