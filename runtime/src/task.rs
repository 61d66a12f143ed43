//! Work in tasks and threads of its own, whose panic is an error and never a missing outcome.
//!
//! Nothing else in the workspace spawns: `clippy.toml` refuses the functions that do. A task that panics drops
//! what it held, so a channel whose sender it had closes as it does after the last value. Whoever waits for a
//! task must therefore ask how the task ended, which the functions here do.

use std::any::Any;
use std::future::Future;

use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, Result, exec_datafusion_err, internal_datafusion_err};
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};

/// The text of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

/// The error of work that panicked: a broken invariant.
pub(crate) fn panicked(what: &str, panic: &(dyn Any + Send)) -> DataFusionError {
    internal_datafusion_err!("{what} panicked: {}", panic_message(panic))
}

/// The error of a task that has no outcome: it panicked, or the process is ending.
pub(crate) fn lost(what: &str, why: JoinError) -> DataFusionError {
    match why.try_into_panic() {
        Ok(panic) => panicked(what, &*panic),
        Err(why) => exec_datafusion_err!("{what} was interrupted: {why}"),
    }
}

/// Starts a task. Its handle must be asked how it ended: see [`lost`].
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

/// Starts a task that ends when its handle is dropped.
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

/// Runs work on a thread for blocking work. `what` names it where it panics: "reading Arrow files".
///
/// # Errors
/// The work panicked, or the process is ending.
pub async fn blocking<T: Send + 'static>(
    what: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    #[expect(clippy::disallowed_methods, reason = "the one place that starts blocking work")]
    let task = tokio::task::spawn_blocking(work);
    task.await.map_err(|why| lost(what, why))
}

/// Does each piece of work in a task of its own, up to `at_once` of them side by side, and gives the
/// outcomes in order.
///
/// A piece begins when it is taken from `work`, not when its turn comes to be asked for: a plain
/// [`StreamExt::buffered`] begins none while it has an outcome to give. Tasks end with the stream.
/// `failed` is the outcome of a task that panicked.
pub fn begun_ahead<W, T, F>(
    work: impl Stream<Item = W>,
    at_once: usize,
    mut begin: impl FnMut(W) -> F,
    failed: impl Fn(DataFusionError) -> T,
) -> impl Stream<Item = T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    work.map(move |piece| owned(begin(piece)))
        .buffered(at_once.max(1))
        .map(move |done| done.unwrap_or_else(|why| failed(lost("a task of the engine", why))))
}

/// Reads a stream in a task of its own, `ahead` items before they are asked for. The task ends when the
/// stream is dropped; where it panics, the last item is an error.
pub(crate) fn read_ahead<T: Send + 'static>(
    mut items: BoxStream<'static, Result<T>>,
    ahead: usize,
) -> BoxStream<'static, Result<T>> {
    let (sender, receiver) = mpsc::channel(ahead.max(1));
    let task = owned(async move {
        while let Some(item) = items.next().await {
            if sender.send(item).await.is_err() {
                break;
            }
        }
    });
    let ended = |task: SpawnedTask<()>| async move {
        let ended = task.join().await;
        ended.err().map(|why| Err(lost("reading ahead", why)))
    };
    received(receiver, task, ended)
}

/// The items of a channel that a task fills, then what `ended` finds of the task.
fn received<T, K, E>(
    receiver: mpsc::Receiver<Result<T>>,
    task: K,
    ended: impl Fn(K) -> E + Send + 'static,
) -> BoxStream<'static, Result<T>>
where
    T: Send + 'static,
    K: Send + 'static,
    E: Future<Output = Option<Result<T>>> + Send + 'static,
{
    stream::unfold(
        (receiver, Some(task), ended),
        |(mut receiver, mut task, ended)| async move {
            if let Some(item) = receiver.recv().await {
                return Some((item, (receiver, task, ended)));
            }
            let last = ended(task.take()?).await?;
            Some((last, (receiver, None, ended)))
        },
    )
    .boxed()
}

/// The items that blocking work sends, on a thread that starts with the first poll. Where the work panics or
/// is interrupted, the last item is an error.
pub(crate) fn blocking_stream<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce(&mpsc::Sender<Result<T>>) + Send + 'static,
) -> BoxStream<'static, Result<T>> {
    let started = async move {
        let (sender, receiver) = mpsc::channel(1);
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place that starts blocking work with a channel"
        )]
        let task = tokio::task::spawn_blocking(move || work(&sender));
        let ended = move |task: JoinHandle<()>| async move {
            task.await.err().map(|why| Err(lost(what, why)))
        };
        received(receiver, task, ended)
    };
    stream::once(started).flatten().boxed()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::TryStreamExt;
    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn work_is_begun_before_it_is_asked_for_and_delivered_in_order() {
        let begun = Arc::new(AtomicUsize::new(0));
        let third = Arc::new(Notify::new());
        let begin = {
            let (begun, third) = (Arc::clone(&begun), Arc::clone(&third));
            move |piece: usize| {
                let (begun, third) = (Arc::clone(&begun), Arc::clone(&third));
                async move {
                    if begun.fetch_add(1, Ordering::SeqCst) == 2 {
                        third.notify_one();
                    }
                    piece
                }
            }
        };
        let mut done = begun_ahead(stream::iter(0..9), 2, begin, |_| usize::MAX).boxed();
        assert_eq!(done.next().await, Some(0));
        assert_eq!(done.next().await, Some(1));
        // Nobody asks for the third, and it runs.
        third.notified().await;
        assert_eq!(done.collect::<Vec<_>>().await, (2..9).collect::<Vec<_>>());
    }

    fn is_broken_invariant(error: &DataFusionError) -> bool {
        matches!(error.find_root(), DataFusionError::Internal(_))
    }

    #[tokio::test]
    async fn a_task_that_panics_is_an_outcome() {
        let begin = |piece: usize| async move {
            assert!(piece != 1, "broken");
            Ok(piece)
        };
        let done = begun_ahead(stream::iter(0..3), 2, begin, Err);
        let mut done = done.collect::<Vec<_>>().await.into_iter();
        assert_eq!(done.next().unwrap().unwrap(), 0);
        let error = done.next().unwrap().unwrap_err();
        assert!(is_broken_invariant(&error), "{error}");
        assert!(error.to_string().contains("broken"), "{error}");
        assert_eq!(done.next().unwrap().unwrap(), 2);
    }

    #[tokio::test]
    async fn a_panic_while_reading_ahead_is_not_the_end_of_the_stream() {
        let items = stream::iter(0..4).map(|item| {
            assert!(item != 2, "damaged");
            Ok(item)
        });
        let mut read = read_ahead(items.boxed(), 2);
        assert_eq!(read.next().await.unwrap().unwrap(), 0);
        assert_eq!(read.next().await.unwrap().unwrap(), 1);
        let error = read.next().await.unwrap().unwrap_err();
        assert!(is_broken_invariant(&error), "{error}");
        assert!(error.to_string().contains("damaged"), "{error}");
        assert!(read.next().await.is_none());

        let sound = read_ahead(stream::iter((0..4).map(Ok)).boxed(), 2);
        assert_eq!(sound.try_collect::<Vec<_>>().await.unwrap(), [0, 1, 2, 3]);
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

    #[tokio::test]
    async fn reading_ahead_ends_with_its_reader() {
        struct Alive(Arc<Notify>);
        impl Drop for Alive {
            fn drop(&mut self) {
                self.0.notify_one();
            }
        }
        let ended = Arc::new(Notify::new());
        let alive = Alive(Arc::clone(&ended));
        let items = stream::pending::<Result<()>>().map(move |item| {
            let _ = &alive;
            item
        });
        drop(read_ahead(items.boxed(), 1));
        ended.notified().await;
    }
}
