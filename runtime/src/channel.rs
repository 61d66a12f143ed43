//! Channels that bound the memory of the items in them.
//!
//! Each item holds a place until it is received: one of a few places of the channel, whatever the
//! item's size, or memory that several channels may share. So small items do not wait for each
//! other, and channels that are read one after the other cannot block each other.

use std::sync::Arc;

use futures::{Stream, stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Memory for the items of one or several channels.
#[derive(Debug, Clone)]
pub(crate) struct ChannelRoom {
    /// Free memory in KiB.
    free: Arc<Semaphore>,
    kib: u32,
}

impl ChannelRoom {
    /// Creates room of `bytes` bytes; 0 if items shall only hold places of their channel.
    pub(crate) fn new(bytes: u64) -> Self {
        let kib = u32::try_from(bytes >> 10).unwrap_or(u32::MAX);
        let kib = kib.min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        Self {
            free: Arc::new(Semaphore::new(kib as usize)),
            kib,
        }
    }

    /// Waits until so many bytes are free; for ever if they exceed the room.
    async fn take(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        match u32::try_from(bytes.div_ceil(1024)) {
            Ok(kib) if kib <= self.kib => {
                let free = Arc::clone(&self.free);
                free.acquire_many_owned(kib.max(1)).await.ok()
            }
            _ => std::future::pending().await,
        }
    }
}

/// Creates a channel with so many places of its own, at least one, and with `room` for further
/// items.
pub(crate) fn channel<T>(places: usize, room: &ChannelRoom) -> (Sender<T>, Receiver<T>) {
    let (items, receiver) = mpsc::channel(Semaphore::MAX_PERMITS);
    let sender = Sender {
        items,
        places: Arc::new(Semaphore::new(places.max(1))),
        room: room.clone(),
    };
    (sender, Receiver(receiver))
}

/// The end of a channel that items are sent to.
#[derive(Debug)]
pub(crate) struct Sender<T> {
    items: mpsc::Sender<(T, OwnedSemaphorePermit)>,
    places: Arc<Semaphore>,
    room: ChannelRoom,
}

impl<T> Sender<T> {
    /// Waits for a place for an item of so many bytes; `None` if the receiver was dropped.
    async fn place(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        tokio::select! {
            biased;
            place = Arc::clone(&self.places).acquire_owned() => place.ok(),
            place = self.room.take(bytes) => place,
            () = self.items.closed() => None,
        }
    }

    /// Waits until there is a place for some item. Returns false if the receiver was dropped.
    pub(crate) async fn ready(&self) -> bool {
        self.place(0).await.is_some() && !self.items.is_closed()
    }

    /// Sends `item`, which takes so many bytes, once there is a place for it. Returns false if the
    /// receiver was dropped.
    pub(crate) async fn send(&self, item: T, bytes: u64) -> bool {
        match self.place(bytes).await {
            Some(place) => self.items.send((item, place)).await.is_ok(),
            None => false,
        }
    }
}

/// The end of a channel that items are received from.
#[derive(Debug)]
pub(crate) struct Receiver<T>(mpsc::Receiver<(T, OwnedSemaphorePermit)>);

impl<T> Receiver<T> {
    /// Returns the next item; `None` once the sender was dropped and all items were received.
    pub(crate) async fn next(&mut self) -> Option<T> {
        self.0.recv().await.map(|(item, _place)| item)
    }

    /// Returns the items as a stream.
    pub(crate) fn into_stream(self) -> impl Stream<Item = T> {
        stream::unfold(
            self,
            |mut this| async move { Some((this.next().await?, this)) },
        )
    }
}

#[cfg(test)]
mod tests {
    use futures::poll;
    use std::pin::pin;

    use super::*;

    #[tokio::test]
    async fn small_items_share_the_room_and_large_ones_wait_for_a_place() {
        let room = ChannelRoom::new(8 << 10);
        let (sender, mut receiver) = channel(1, &room);
        let (other, mut others) = channel(1, &room);
        // The first item takes the place, two more take all room.
        for item in 0..3 {
            assert!(sender.send(item, 4 << 10).await);
        }
        let mut late = pin!(sender.send(3, 1));
        assert!(poll!(late.as_mut()).is_pending());
        // The other channel has a place of its own.
        assert!(other.send(9, 4 << 10).await);
        let mut large = pin!(other.send(10, 9 << 10));
        assert!(poll!(large.as_mut()).is_pending());
        assert_eq!(receiver.next().await, Some(0));
        assert!(late.await);
        assert_eq!(receiver.next().await, Some(1));
        assert_eq!(receiver.next().await, Some(2));
        // Room is free again, and the large item still waits for a place.
        assert!(poll!(large.as_mut()).is_pending());
        assert_eq!(others.next().await, Some(9));
        assert!(large.await);
        assert_eq!(others.next().await, Some(10));
        assert_eq!(receiver.next().await, Some(3));
    }

    #[tokio::test]
    async fn dropping_an_end_ends_the_other() {
        let room = ChannelRoom::new(0);
        let (sender, receiver) = channel(1, &room);
        assert!(sender.ready().await);
        assert!(sender.send(1, 1).await);
        let mut waits = pin!(sender.send(2, 1));
        assert!(poll!(waits.as_mut()).is_pending());
        drop(receiver);
        assert!(!waits.await);
        assert!(!sender.ready().await);

        let (sender, mut receiver) = channel(2, &room);
        assert!(sender.send(1, 1).await);
        drop(sender);
        assert_eq!(receiver.next().await, Some(1));
        assert_eq!(receiver.next().await, None);
    }

    #[tokio::test]
    async fn items_that_are_dropped_free_their_room() {
        let room = ChannelRoom::new(1 << 10);
        let (sender, receiver) = channel(1, &room);
        assert!(sender.send(1, 1).await && sender.send(2, 1).await);
        assert_eq!(room.free.available_permits(), 0);
        drop(receiver);
        assert_eq!(room.free.available_permits(), 1);
    }
}
