//! Work begun ahead of its turn and delivered in order.

use std::future::Future;

use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, internal_datafusion_err};
use futures::{Stream, StreamExt};

/// Does each piece of work in a task of its own, up to `at_once` of them side by side, and gives the
/// outcomes in order.
///
/// A piece begins when it is taken from `work`, not when its turn comes to be asked for: a plain
/// [`StreamExt::buffered`] begins none while it has an outcome to give. Tasks end with the stream.
/// `lost` is the outcome of a task that broke down.
pub fn begun_ahead<W, T, F>(
    work: impl Stream<Item = W>,
    at_once: usize,
    mut begin: impl FnMut(W) -> F,
    lost: impl Fn(DataFusionError) -> T,
) -> impl Stream<Item = T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    work.map(move |piece| SpawnedTask::spawn(begin(piece)))
        .buffered(at_once.max(1))
        .map(move |done| {
            done.unwrap_or_else(|why| lost(internal_datafusion_err!("a task broke down: {why}")))
        })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::stream;
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

    #[tokio::test]
    async fn a_task_that_breaks_down_is_an_outcome() {
        let begin = |piece: usize| async move {
            assert!(piece != 1, "broken");
            piece
        };
        let done = begun_ahead(stream::iter(0..3), 2, begin, |_| usize::MAX);
        assert_eq!(done.collect::<Vec<_>>().await, [0, usize::MAX, 2]);
    }
}
