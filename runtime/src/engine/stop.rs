//! Ending a run before its end.

use super::Run;

impl Run {
    /// Stops the run, and returns when its threads have ended. Dropping it stops it, too, but waits for
    /// nothing: what is being computed is finished in the background.
    pub async fn stop(mut self) {
        let threads = self.opened.env.pool.threads();
        self.task.abort();
        // It was aborted, or had ended; either is what was asked for.
        let _ = (&mut self.task).await;
        drop(self);
        threads.ended().await;
    }
}
