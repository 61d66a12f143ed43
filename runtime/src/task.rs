//! Tasks and threads whose panics become errors rather than missing results.
//!
//! No other module of the workspace starts tasks or threads: `clippy.toml` forbids the functions
//! that do. A task that panics drops the values that it owns. If one of them is the sender of a
//! channel, the channel looks to its receiver as if it had ended normally. Code that waits for a
//! task must therefore check how the task ended, and the functions of this module do.

use std::any::Any;
use std::future::Future;

use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, Result, exec_datafusion_err, internal_datafusion_err};
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt, future};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};

/// Returns the message of a panic.
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

/// Creates the error for the panic `panic` of some work. A panic is a broken invariant, so this is
/// an internal error. `what` names the work.
pub(crate) fn panicked(what: &str, panic: &(dyn Any + Send)) -> DataFusionError {
    internal_datafusion_err!("{what} panicked: {}", panic_message(panic))
}

/// Creates the error for a task that ended without a result, because the task panicked or the
/// process is ending. `what` names the task's work.
pub(crate) fn lost(what: &str, why: JoinError) -> DataFusionError {
    match why.try_into_panic() {
        Ok(panic) => panicked(what, &*panic),
        Err(why) => exec_datafusion_err!("{what} was interrupted: {why}"),
    }
}

/// Starts a task. The caller must check how the task ended, and report a panic with [`lost`].
#[must_use]
pub(crate) fn start<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that starts tasks which outlive their handle"
    )]
    tokio::spawn(work)
}

/// Starts a task that is aborted when its handle is dropped.
#[must_use]
pub(crate) fn owned<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> SpawnedTask<T> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that starts tasks which end with their handle"
    )]
    SpawnedTask::spawn(work)
}

/// Runs `work` on a thread for blocking work. `what` names the work in errors, such as "reading
/// Arrow files".
///
/// # Errors
/// Fails if `work` panicked or the process is ending.
pub async fn blocking<T: Send + 'static>(
    what: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    #[expect(clippy::disallowed_methods, reason = "the one place that starts blocking work")]
    let task = tokio::task::spawn_blocking(work);
    task.await.map_err(|why| lost(what, why))
}

/// Yields `items`, which come through a channel that `task` fills, and then an error if the task
/// panicked or was interrupted. `what` names the task's work in errors.
pub(crate) fn received<T, E>(
    items: impl Stream<Item = Result<T, E>> + Send + 'static,
    task: impl Future<Output = Result<(), JoinError>> + Send + 'static,
    what: &'static str,
) -> BoxStream<'static, Result<T, E>>
where
    T: Send + 'static,
    E: From<DataFusionError> + Send + 'static,
{
    let ended =
        stream::once(async move { task.await.err().map(|why| Err(lost(what, why).into())) });
    items.chain(ended.filter_map(future::ready)).boxed()
}

/// Yields the items that `work` sends to its channel. `work` runs on a thread for blocking work,
/// which starts with the first poll of the stream. If `work` panics or is interrupted, the last
/// item is an error.
pub(crate) fn blocking_stream<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce(&mpsc::Sender<Result<T>>) + Send + 'static,
) -> BoxStream<'static, Result<T>> {
    let started = async move {
        let (sender, receiver) = mpsc::channel(1);
        let items = stream::unfold(receiver, |mut receiver| async move {
            Some((receiver.recv().await?, receiver))
        });
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place that starts blocking work with a channel"
        )]
        let task = tokio::task::spawn_blocking(move || work(&sender));
        received(items, task, what)
    };
    stream::once(started).flatten().boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_broken_invariant(error: &DataFusionError) -> bool {
        matches!(error.find_root(), DataFusionError::Internal(_))
    }

    #[tokio::test]
    async fn panics_of_blocking_work_are_broken_invariants() {
        let error = blocking("counting", || panic!("at {}", 7)).await;
        let error: DataFusionError = error.map(|()| 0).unwrap_err();
        assert!(is_broken_invariant(&error), "{error}");
        assert!(
            error.to_string().contains("counting panicked: at 7"),
            "{error}"
        );

        let sent = blocking_stream("sending", |sender: &mpsc::Sender<Result<i32>>| {
            sender.blocking_send(Ok(1)).unwrap();
            panic!("early");
        });
        let sent = sent.collect::<Vec<_>>().await;
        assert_eq!(sent.len(), 2);
        assert_eq!(sent[0].as_ref().unwrap(), &1);
        assert!(is_broken_invariant(sent[1].as_ref().unwrap_err()));
    }
}
