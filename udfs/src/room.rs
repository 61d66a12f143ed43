//! Room for decoding: how much memory the images that are being worked on may take together.
//!
//! A photo of 100 megapixels is 300 MB of pixels, whatever its file has. So before a row's image is decoded, its
//! memory is estimated from the file's header and granted by the room of the thread, if it has one. Where others
//! have taken it, the thread waits for them; an image that is alone has all of the room. One that is larger than
//! all of it ends the run ([`NoRoom`]) if the room is strict, and else waits until it is alone.
//!
//! A thread that waits holds nothing that another one waits for: a grant is given back before the row's thread
//! can take up other work. So the head of the queue always gets its turn.

use std::cell::RefCell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

thread_local! {
    static OF_THREAD: RefCell<Option<Arc<DecodeRoom>>> = const { RefCell::new(None) };
}

/// An image that is larger than the room that decoding has. It ends the run: a failure of its row would make the
/// stream depend on memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the memory limit of {limit} bytes is too small for these images: decoding takes {needed} bytes at once, so it \
     has to be at least {minimum} bytes; raise it, or leave out or shrink the largest images"
)]
pub struct NoRoom {
    /// Bytes that are needed at once.
    pub needed: u64,
    /// The memory limit.
    pub limit: u64,
    /// The least limit that leaves as much room.
    pub minimum: u64,
}

/// The memory that the images of some threads share.
#[derive(Debug)]
pub struct DecodeRoom {
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug)]
struct State {
    size: Size,
    is_strict: bool,
    used: u64,
    /// Number of the next who asks.
    ticket: u64,
    /// Number of the one whose turn it is.
    turn: u64,
}

/// What of a memory limit a room has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Size {
    limit: u64,
    /// One part of so many is the room's.
    parts: u64,
    /// Bytes of it that others have.
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
    /// Room of a whole memory limit. A strict one refuses what is larger.
    pub const fn new(limit: u64, is_strict: bool) -> Self {
        Self {
            state: Mutex::new(State {
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

    /// Leaves the room one part of the limit in so many, without the bytes of it that others take.
    pub fn share(&self, parts: u64, apart: u64) {
        let size = &mut self.state().size;
        (size.parts, size.apart) = (parts.max(1), apart);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses what can never fit.
    pub(crate) fn check(&self, bytes: u64) -> Result<(), NoRoom> {
        let state = self.state();
        match state.is_strict && bytes > state.size.capacity() {
            true => Err(state.size.refuse(bytes)),
            false => Ok(()),
        }
    }

    /// The refusal of what does not fit.
    pub(crate) fn refusal(&self, bytes: u64) -> NoRoom {
        self.state().size.refuse(bytes)
    }

    /// Takes a part of the room, waiting for it in the order of asking.
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

/// A part of a room, which is given back when it is dropped.
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

/// Gives this thread a room, for as long as it lives.
pub fn enter(room: Arc<DecodeRoom>) {
    OF_THREAD.set(Some(room));
}

/// The room of this thread; without one, nothing is counted.
pub(crate) fn of_thread() -> Option<Arc<DecodeRoom>> {
    OF_THREAD.with_borrow(Clone::clone)
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
