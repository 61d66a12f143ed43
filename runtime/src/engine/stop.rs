//! Ending a run before its end.

use super::Run;

impl Run {
    /// Stops the run, and returns when its threads have ended. Dropping it stops it, too, but waits for
    /// nothing: what is being computed is finished in the background.
    pub async fn stop(mut self) {
        let threads = self.opened.env.pool.threads();
        if let Some(task) = &mut self.task {
            task.abort();
            // It was aborted, or had ended; either is what was asked for.
            let _ = task.await;
        }
        self.task = None;
        drop(self);
        threads.ended().await;
    }
}
