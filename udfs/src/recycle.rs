//! Recycled memory of large columns.
//!
//! A batch of images is tens of megabytes. Where each batch's memory comes fresh from the system, every
//! page of it is first zeroed by the kernel and faulted in. So memory goes back to a shelf when the last
//! holder of its column lets go, and the next batch of about that size takes it from there. It stays
//! with the process when a run ends. `docs/internals.md` has what it saves.
//!
//! ```
//! use forebay_udfs::recycle::{lend, take};
//!
//! let mut elements = take::<f32>(4);
//! elements.fill(0.5);
//! let column = lend(elements); // a buffer for Arrow arrays
//! assert_eq!(column[3], 0.5);
//! ```

use std::sync::{Mutex, MutexGuard, TryLockError};

use arrow::buffer::{Buffer, ScalarBuffer};
use arrow::datatypes::{ArrowNativeType, ToByteSlice};
use half::f16;
use half::vec::HalfBitsVecExt;

use crate::lent::Addresses;

/// Vectors that a shelf keeps: as many columns of finished images as a run has alive, two being
/// computed, one in the channel and one with the consumer.
const KEPT: usize = 4;
/// Bytes that a shelf keeps.
const KEPT_BYTES: usize = 256 << 20;
/// Bytes below which the allocator recycles well enough itself.
const SMALL: usize = 1 << 20;

/// Times that a shelf is asked for before it is given up. Others hold it for less than a microsecond.
const PATIENCE: usize = 64;

/// The memory that columns have now.
static LENT: Addresses = Addresses::new();

/// The idle memory of one element type, the longest idle first.
#[derive(Debug)]
pub struct Shelf<E>(Mutex<Vec<Vec<E>>>);

impl<E: Recycled> Shelf<E> {
    const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// The shelf; `None` where it cannot be had soon. A child of a process that forked while another
    /// thread was at the shelf can never have it.
    fn idle(&self) -> Option<MutexGuard<'_, Vec<Vec<E>>>> {
        (0..PATIENCE).find_map(|_| match self.0.try_lock() {
            Ok(idle) => Some(idle),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                std::thread::yield_now();
                None
            }
        })
    }

    /// Memory from the shelf.
    fn reuse(&self, len: usize) -> Option<Vec<E>> {
        let fits = |v: &Vec<E>| v.capacity() >= len && v.capacity() / 2 <= len;
        let mut idle = self.idle()?;
        let place = idle.iter().rposition(fits)?;
        Some(idle.remove(place))
    }

    fn take(&self, len: usize) -> Vec<E> {
        let Some(mut memory) = self.reuse(len) else {
            let bytes = len.saturating_mul(size_of::<E>());
            if !(SMALL..=KEPT_BYTES).contains(&bytes) {
                return E::zeroed(len);
            }
            // A round capacity fits the next column, too, where columns differ in size. What nobody
            // writes of it has no pages.
            let mut memory = E::zeroed(bytes.next_power_of_two() / size_of::<E>());
            memory.truncate(len);
            return memory;
        };
        memory.resize(len, E::default());
        memory
    }

    fn give(&self, memory: Vec<E>) {
        let bytes = |v: &Vec<E>| v.capacity() * size_of::<E>();
        if !(SMALL..=KEPT_BYTES).contains(&bytes(&memory)) {
            return;
        }
        let Some(mut idle) = self.idle() else {
            return;
        };
        idle.push(memory);
        let mut surplus = Vec::new();
        while idle.len() > KEPT || idle.iter().map(bytes).sum::<usize>() > KEPT_BYTES {
            surplus.push(idle.remove(0));
        }
        // Giving memory back to the system takes a while: not while others wait for the shelf.
        drop(idle);
    }
}

/// An element whose columns' memory is recycled.
pub trait Recycled: ArrowNativeType + Sync {
    /// The idle memory of its columns.
    fn shelf() -> &'static Shelf<Self>;

    /// Zeros from the system: a page is there when it is first touched, by the thread that writes it.
    fn zeroed(len: usize) -> Vec<Self>;
}

macro_rules! recycled {
    ($($element:ty: $zeroed:expr),*) => {$(
        impl Recycled for $element {
            fn shelf() -> &'static Shelf<Self> {
                static SHELF: Shelf<$element> = Shelf::new();
                &SHELF
            }

            fn zeroed(len: usize) -> Vec<Self> {
                $zeroed(len)
            }
        }
    )*};
}

recycled!(
    u8: |len| vec![0; len],
    f16: |len| vec![0_u16; len].reinterpret_into(),
    f32: |len| vec![0.0; len]
);

/// `len` elements for a column: zeros, or whatever a column held before.
pub fn take<E: Recycled>(len: usize) -> Vec<E> {
    E::shelf().take(len)
}

/// A column's memory, which goes back to its shelf.
struct Lent<E: Recycled>(Vec<E>);

impl<E: Recycled> AsRef<[u8]> for Lent<E> {
    fn as_ref(&self) -> &[u8] {
        self.0.to_byte_slice()
    }
}

impl<E: Recycled> Drop for Lent<E> {
    fn drop(&mut self) {
        LENT.remove(self.0.as_ptr() as usize);
        E::shelf().give(std::mem::take(&mut self.0));
    }
}

/// The elements as an Arrow buffer whose memory is recycled.
pub fn lend<E: Recycled>(elements: Vec<E>) -> ScalarBuffer<E> {
    let len = elements.len();
    LENT.insert(elements.as_ptr() as usize);
    let bytes = bytes::Bytes::from_owner(Lent(elements));
    ScalarBuffer::new(Buffer::from(bytes), 0, len)
}

/// Whether a buffer's memory was lent to it, whole: then its holders are all that there are, and whoever
/// is the only one may write it.
pub fn is_lent(buffer: &Buffer) -> bool {
    LENT.contains(buffer.as_ptr() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_for_columns_of_its_size_only() {
        let shelf = Shelf::<f32>::new();
        let first = shelf.take(SMALL);
        let address = first.as_ptr();
        shelf.give(first);
        assert_eq!(shelf.take(SMALL / 8).capacity(), SMALL / 8);
        let again = shelf.take(SMALL - 5);
        assert_eq!((again.as_ptr(), again.len()), (address, SMALL - 5));
        assert!(shelf.0.lock().unwrap().is_empty());
    }

    #[test]
    fn a_shelf_keeps_no_more_than_a_few() {
        let shelf = Shelf::<u8>::new();
        for i in 0..KEPT + 2 {
            shelf.give(vec![0; SMALL + i]);
        }
        let kept: Vec<usize> = shelf.0.lock().unwrap().iter().map(Vec::len).collect();
        let last: Vec<usize> = (2..KEPT + 2).map(|i| SMALL + i).collect();
        assert_eq!(kept, last);
        shelf.give(vec![0; 8]);
        assert_eq!(shelf.0.lock().unwrap().len(), KEPT);
    }

    #[test]
    fn columns_of_about_a_size_share_memory() {
        let shelf = Shelf::<f16>::new();
        let first = shelf.take(SMALL + 1000);
        assert!(first.iter().all(|v| v.to_bits() == 0));
        let address = first.as_ptr();
        shelf.give(first);
        let second = shelf.take(SMALL + 400_000);
        assert_eq!(second.as_ptr(), address);
    }

    #[test]
    fn a_lent_column_comes_back_when_its_last_holder_lets_go() {
        // No other test has large columns of this type.
        let column = lend(take::<f16>(2 * SMALL));
        let address = column.as_ptr();
        assert!(is_lent(column.inner()));
        let held = column.clone();
        drop(column);
        let other = take::<f16>(2 * SMALL);
        assert_ne!(other.as_ptr(), address);
        drop(held);
        let again = take::<f16>(2 * SMALL);
        assert_eq!(again.as_ptr(), address);
    }

    #[test]
    fn a_lent_column_is_read_as_it_was_written() {
        let column = lend(vec![1.5_f32; 1000]);
        assert_eq!(column.len(), 1000);
        assert!(column.iter().all(|&v| v == 1.5));
    }
}
