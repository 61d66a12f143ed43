//! Limits the total memory of the images that are processed at the same time.
//!
//! A photo of 100 megapixels has 300 MB of pixels, however small its file. So before a row's image
//! is decoded, the memory that the row needs is estimated from the file's header and requested from
//! the [`DecodeRoom`] of the thread's [scope](crate::decode_scope), if it has a scope. The thread
//! waits while other threads hold too much of the room. If an image is larger than the whole room, a
//! strict room ends the run ([`NoRoom`]), and any other room lets the thread wait until no other
//! image is being processed.
//!
//! There is no deadlock: a waiting thread holds no grant, because a thread returns the grant of a
//! row before it starts other work. So the first request in the queue is always granted in the end.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The error of an image that is larger than the room for decoding. The error ends the run: if only
/// the row failed, the stream would depend on the memory limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the memory limit of {limit} bytes is too small for these images: decoding takes {needed} bytes at once, so the limit \
     has to be at least {minimum} bytes; raise the limit, or leave out or shrink the largest images"
)]
pub struct NoRoom {
    /// Bytes that the image needs.
    pub needed: u64,
    /// The memory limit, in bytes.
    pub limit: u64,
    /// The smallest memory limit, in bytes, under which the image would fit.
    pub minimum: u64,
}

/// A limit on the memory that the images of several threads may take together.
#[derive(Debug)]
pub struct DecodeRoom {
    state: Mutex<RoomState>,
    freed: Condvar,
}

#[derive(Debug)]
struct RoomState {
    size: Size,
    is_strict: bool,
    used: u64,
    /// Ticket that the next request gets.
    ticket: u64,
    /// Ticket of the request that is granted next.
    turn: u64,
}

/// The part of a memory limit that belongs to the room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Size {
    limit: u64,
    /// Divisor of the limit: the room has a share of `limit / parts`.
    parts: u64,
    /// Bytes of the room's share that are used for other purposes than images.
    apart: u64,
}

impl Size {
    const fn capacity(&self) -> u64 {
        (self.limit / self.parts).saturating_sub(self.apart)
    }

    const fn refuse(&self, needed: u64) -> NoRoom {
        NoRoom {
            needed,
            limit: self.limit,
            minimum: needed.saturating_add(self.apart).saturating_mul(self.parts),
        }
    }
}

impl DecodeRoom {
    /// Creates a room that has the whole memory limit of `limit` bytes. A strict room refuses an
    /// image that is larger than the room.
    pub const fn new(limit: u64, is_strict: bool) -> Self {
        Self {
            state: Mutex::new(RoomState {
                size: Size {
                    limit,
                    parts: 1,
                    apart: 0,
                },
                is_strict,
                used: 0,
                ticket: 0,
                turn: 0,
            }),
            freed: Condvar::new(),
        }
    }

    /// Sets the size of the room to `limit / parts - apart` bytes. `apart` is the part of the
    /// room's share that is used for other purposes than images.
    pub fn share(&self, parts: u64, apart: u64) {
        let size = &mut self.state().size;
        (size.parts, size.apart) = (parts.max(1), apart);
    }

    fn state(&self) -> MutexGuard<'_, RoomState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails if the room is strict and smaller than `bytes`, so that a request could never be
    /// granted.
    pub(crate) fn check(&self, bytes: u64) -> Result<(), NoRoom> {
        let state = self.state();
        if state.is_strict && bytes > state.size.capacity() {
            Err(state.size.refuse(bytes))
        } else {
            Ok(())
        }
    }

    /// Returns the error for a request of `bytes` bytes that does not fit into the room.
    pub(crate) fn refusal(&self, bytes: u64) -> NoRoom {
        self.state().size.refuse(bytes)
    }

    /// Takes `bytes` bytes of the room. Requests are granted in order of arrival: the thread waits
    /// until all earlier requests are granted and the bytes are free.
    pub(crate) fn take(&self, bytes: u64) -> Result<Grant<'_>, NoRoom> {
        self.check(bytes)?;
        let mut state = self.state();
        let ticket = state.ticket;
        state.ticket += 1;
        while state.turn != ticket
            || state.used > 0 && state.used.saturating_add(bytes) > state.size.capacity()
        {
            state = self
                .freed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.turn += 1;
        state.used = state.used.saturating_add(bytes);
        drop(state);
        self.freed.notify_all();
        Ok(Grant { room: self, bytes })
    }
}

/// A granted amount of a room's memory, which returns to the room when the grant is dropped.
#[derive(Debug)]
pub(crate) struct Grant<'a> {
    room: &'a DecodeRoom,
    bytes: u64,
}

impl Drop for Grant<'_> {
    fn drop(&mut self) {
        let mut state = self.room.state();
        state.used = state.used.saturating_sub(self.bytes);
        drop(state);
        self.room.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn a_room_is_never_overfull_and_everyone_gets_a_turn() {
        let room = DecodeRoom::new(100, true);
        let (used, most, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..8_u64 {
                let (room, used, most, done) = (&room, &used, &most, &done);
                scope.spawn(move || {
                    for round in 0..200 {
                        let bytes = [100, 60, 40, 7][(thread + round) as usize % 4];
                        let grant = room.take(bytes).unwrap();
                        let now = used.fetch_add(bytes, Ordering::SeqCst) + bytes;
                        most.fetch_max(now, Ordering::SeqCst);
                        std::thread::yield_now();
                        used.fetch_sub(bytes, Ordering::SeqCst);
                        drop(grant);
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(done.into_inner(), 1600);
        assert_eq!(most.into_inner(), 100);
        assert_eq!(room.state().used, 0);
    }

    #[test]
    fn only_a_strict_room_refuses_what_is_larger() {
        let strict = DecodeRoom::new(100, true);
        let error = strict.take(101).unwrap_err();
        assert_eq!((error.needed, error.limit, error.minimum), (101, 100, 101));
        assert!(strict.take(100).is_ok());
        let lenient = DecodeRoom::new(100, false);
        drop(lenient.take(1000).unwrap());
        let shared = DecodeRoom::new(100, true);
        shared.share(2, 10);
        assert!(shared.take(40).is_ok());
        let minimum = shared.take(41).unwrap_err().minimum;
        let enough = DecodeRoom::new(minimum, true);
        enough.share(2, 10);
        assert!(enough.take(41).is_ok());
    }
}
