//! Recycles the memory of large columns.
//!
//! A batch of images takes tens of megabytes. If each batch allocated fresh memory, the kernel
//! would zero every page and fault it in. Instead, a column's memory returns to a free list when
//! the last reference to the column is dropped, and the next batch of about the same size reuses
//! the memory. The process keeps the free lists after a run ends. `docs/internals.md` has
//! measurements.
//!
//! ```
//! use forebay_udfs::buffer_pool::{lend, take};
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

use crate::address_set::AddressSet;
use crate::huge_pages::prefer_huge_pages;

/// Maximum number of idle vectors on a free list. If there are more, the longest idle vectors are
/// freed. A pipeline has four columns of finished images alive: two are being computed, one is in
/// the channel and one with the consumer.
const KEPT: usize = 4;
/// Maximum total size, in bytes, of the idle vectors on a free list.
const KEPT_BYTES: usize = 256 << 20;
/// Size, in bytes, below which memory is not recycled here, because the allocator itself recycles
/// small pieces of memory well enough.
pub const SMALL: usize = 1 << 20;

/// Capacities are powers of two, in bytes, and multiples of this size above it.
const CAPACITY_STEP: usize = 16 << 20;

/// Number of attempts to lock a free list. Other threads hold the lock for less than a microsecond.
const PATIENCE: usize = 64;

/// Start addresses of the memory that [`lend`] wrapped and that columns still use.
static LENT: AddressSet = AddressSet::new();

/// The idle vectors of one element type, longest idle first.
#[derive(Debug)]
pub struct FreeList<E>(Mutex<Vec<Vec<E>>>);

impl<E: Recycled> FreeList<E> {
    const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Locks the free list; `None` if [`PATIENCE`] attempts fail. In a child process forked while
    /// another thread held the lock, locking never succeeds.
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

    /// Takes a vector from the free list that has room for `len` elements, but not for more than
    /// about twice as many; `None` if no idle vector fits.
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
            // A rounded capacity also fits the next column if columns differ in size. Unwritten
            // memory occupies no pages, but counts as idle.
            let capacity = if bytes <= CAPACITY_STEP {
                bytes.next_power_of_two()
            } else {
                bytes.next_multiple_of(CAPACITY_STEP)
            };
            let mut memory = E::zeroed(capacity / size_of::<E>());
            // A first epoch writes every column to fresh memory, and faulting it in by pages of 4 KiB takes
            // about a seventh of the time of a photo.
            prefer_huge_pages(&memory);
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
        // Freeing memory takes a while, so the free list is unlocked before `surplus` is freed.
        drop(idle);
    }
}

/// An element type of columns whose memory is recycled.
pub trait Recycled: ArrowNativeType + Sync {
    /// Returns the idle vectors of this element type.
    fn free_list() -> &'static FreeList<Self>;

    /// Allocates `len` zeros from the operating system, which provides each page of memory when a
    /// thread first touches the page.
    fn zeroed(len: usize) -> Vec<Self>;
}

macro_rules! recycled {
    ($($element:ty: $zeroed:expr),*) => {$(
        impl Recycled for $element {
            fn free_list() -> &'static FreeList<Self> {
                static SHELF: FreeList<$element> = FreeList::new();
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

/// Returns `len` elements for a column. The elements are zeros, or values of an earlier column.
pub fn take<E: Recycled>(len: usize) -> Vec<E> {
    E::free_list().take(len)
}

/// A column's memory, which returns to a free list when this value is dropped.
struct LentMemory<E: Recycled>(Vec<E>);

impl<E: Recycled> AsRef<[u8]> for LentMemory<E> {
    fn as_ref(&self) -> &[u8] {
        self.0.to_byte_slice()
    }
}

impl<E: Recycled> Drop for LentMemory<E> {
    fn drop(&mut self) {
        LENT.remove(self.0.as_ptr() as usize);
        E::free_list().give(std::mem::take(&mut self.0));
    }
}

/// Wraps the elements as an Arrow buffer whose memory is recycled.
pub fn lend<E: Recycled>(elements: Vec<E>) -> ScalarBuffer<E> {
    let len = elements.len();
    LENT.insert(elements.as_ptr() as usize);
    let bytes = bytes::Bytes::from_owner(LentMemory(elements));
    ScalarBuffer::new(Buffer::from(bytes), 0, len)
}

/// True if `buffer` starts where memory that [`lend`] wrapped starts. Then all references to the
/// memory are counted, and the holder of the only reference may write to the memory.
pub fn is_lent(buffer: &Buffer) -> bool {
    LENT.contains(buffer.as_ptr() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_for_columns_of_its_size_only() {
        let free_list = FreeList::<f32>::new();
        let first = free_list.take(SMALL);
        let address = first.as_ptr();
        free_list.give(first);
        assert_eq!(free_list.take(SMALL / 8).capacity(), SMALL / 8);
        let again = free_list.take(SMALL - 5);
        assert_eq!((again.as_ptr(), again.len()), (address, SMALL - 5));
        assert!(free_list.0.lock().unwrap().is_empty());
    }

    #[test]
    fn a_free_list_keeps_no_more_than_a_few() {
        let free_list = FreeList::<u8>::new();
        for i in 0..KEPT + 2 {
            free_list.give(vec![0; SMALL + i]);
        }
        let kept: Vec<usize> = free_list.0.lock().unwrap().iter().map(Vec::len).collect();
        let last: Vec<usize> = (2..KEPT + 2).map(|i| SMALL + i).collect();
        assert_eq!(kept, last);
        free_list.give(vec![0; 8]);
        assert_eq!(free_list.0.lock().unwrap().len(), KEPT);
    }

    #[test]
    fn columns_of_about_a_size_share_memory() {
        let free_list = FreeList::<f16>::new();
        let first = free_list.take(SMALL + 1000);
        assert!(first.iter().all(|v| v.to_bits() == 0));
        let address = first.as_ptr();
        free_list.give(first);
        let second = free_list.take(SMALL + 400_000);
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
