//! Prefetching: starts work before its result is awaited.
//!
//! | What runs ahead | Mechanism |
//! |---|---|
//! | segments, windows, and the splits of a window, in order | [`ahead`] |
//! | segments that an engine computes | [`prefetched`] |
//! | batches of one split | [`prefetched_in`], with room that the splits of a job share |
//! | the rows of one window, which several segments share | [`LazyWindow`](crate::segment::LazyWindow) |

use datafusion::common::{DataFusionError, Result};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};

use crate::channel::{ChannelRoom, channel};
use crate::task::{lost, owned, received};

/// Runs each piece of work in a separate task, at most `at_once` tasks concurrently, and yields the
/// results in order. `begin` turns a piece of work into a future.
///
/// A task starts as soon as its piece of work is taken from `work`, whereas [`StreamExt::buffered`]
/// alone would poll the pieces only while the stream is polled. Dropping the stream aborts the
/// tasks. If a task panics, `failed` converts the error to a result.
pub(crate) fn ahead<W, T, F>(
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

/// Reads `items` in a separate task, which may be `ahead` items ahead of the consumer. Dropping the
/// returned stream aborts the task. If the task panics, the last item is an error.
pub(crate) fn prefetched<T, E>(
    items: BoxStream<'static, Result<T, E>>,
    ahead: usize,
) -> BoxStream<'static, Result<T, E>>
where
    T: Send + 'static,
    E: From<DataFusionError> + Send + 'static,
{
    prefetched_in(items, ahead, &ChannelRoom::new(0), |_| 0)
}

/// Like [`prefetched`], and reads further items ahead while there is `room` for them. `bytes`
/// returns the size of an item.
pub(crate) fn prefetched_in<T, E>(
    mut items: BoxStream<'static, Result<T, E>>,
    ahead: usize,
    room: &ChannelRoom,
    bytes: impl Fn(&T) -> u64 + Send + 'static,
) -> BoxStream<'static, Result<T, E>>
where
    T: Send + 'static,
    E: From<DataFusionError> + Send + 'static,
{
    let (sender, receiver) = channel(ahead, room);
    let task = owned(async move {
        while let Some(item) = items.next().await {
            let size = item.as_ref().map_or(0, &bytes);
            if !sender.send(item, size).await {
                break;
            }
        }
    });
    received(receiver.into_stream(), task, "reading ahead")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::{TryStreamExt, stream};
    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn work_starts_before_it_is_polled_and_is_delivered_in_order() {
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
        let mut done = ahead(stream::iter(0..9), 2, begin, |_| usize::MAX).boxed();
        assert_eq!(done.next().await, Some(0));
        assert_eq!(done.next().await, Some(1));
        // The third piece runs although nothing has asked for it.
        third.notified().await;
        assert_eq!(done.collect::<Vec<_>>().await, (2..9).collect::<Vec<_>>());
    }

    fn is_broken_invariant(error: &DataFusionError) -> bool {
        matches!(error.find_root(), DataFusionError::Internal(_))
    }

    #[tokio::test]
    async fn a_panicking_task_yields_an_error() {
        let begin = |piece: usize| async move {
            assert!(piece != 1, "broken");
            Ok(piece)
        };
        let done = ahead(stream::iter(0..3), 2, begin, Err);
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
        let mut read = prefetched(items.boxed(), 2);
        assert_eq!(read.next().await.unwrap().unwrap(), 0);
        assert_eq!(read.next().await.unwrap().unwrap(), 1);
        let error = read.next().await.unwrap().unwrap_err();
        assert!(is_broken_invariant(&error), "{error}");
        assert!(error.to_string().contains("damaged"), "{error}");
        assert!(read.next().await.is_none());

        let sound = prefetched(
            stream::iter((0..4).map(Ok::<_, DataFusionError>)).boxed(),
            2,
        );
        assert_eq!(sound.try_collect::<Vec<_>>().await.unwrap(), [0, 1, 2, 3]);
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
        drop(prefetched(items.boxed(), 1));
        ended.notified().await;
    }
}
