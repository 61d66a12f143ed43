//! Sharing of a batch's columns between consumers.
//!
//! NumPy arrays and PyTorch tensors may be written, while Arrow arrays never change. So the
//! elements of a column are shared with one kind of consumers only: either with those that may
//! write, or with those that rely on unchanging elements. The first consumer decides the kind.
//! Consumers of the other kind get a copy.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arrow::array::{Array, ArrayRef, MutableArrayData, make_array};
use arrow::error::ArrowError;

/// A column of a batch, and the consumers that its elements are shared with.
#[derive(Debug)]
pub(crate) struct SharedColumn(Mutex<SharedState>);

#[derive(Debug)]
struct SharedState {
    array: ArrayRef,
    /// True if only this column and its writable views hold the elements.
    is_own: bool,
    /// The loan that all writable views hold; dead once no view is left.
    views: Weak<Lent>,
}

/// A loan of a column's elements, held by each writable view.
#[derive(Debug)]
pub(crate) struct Lent;

impl SharedColumn {
    /// Wraps a column; `is_own` is true if the column is the sole holder of its elements.
    pub(crate) fn new(array: ArrayRef, is_own: bool) -> Arc<Self> {
        Arc::new(Self(Mutex::new(SharedState {
            array,
            is_own,
            views: Weak::new(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, SharedState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the column's array. The caller must read the elements immediately, since writable
    /// views may change them later.
    pub(crate) fn array(&self) -> ArrayRef {
        Arc::clone(&self.state().array)
    }

    /// True if the column is the sole holder of its elements. A writable view then needs no copy.
    pub(crate) fn is_own(&self) -> bool {
        self.state().is_own
    }

    /// Returns the column's array for a writable view, or a copy of the array if its elements have
    /// other holders.
    pub(crate) fn writable(&self) -> Result<(ArrayRef, Arc<Lent>), ArrowError> {
        let mut state = self.state();
        if !state.is_own {
            return Ok((copied(&state.array)?, Arc::new(Lent)));
        }
        let lent = state.views.upgrade().unwrap_or_else(|| Arc::new(Lent));
        state.views = Arc::downgrade(&lent);
        Ok((Arc::clone(&state.array), lent))
    }

    /// Returns the column's array for consumers that rely on unchanging elements, or a copy of the
    /// array while a writable view exists.
    pub(crate) fn unchanging(&self) -> Result<ArrayRef, ArrowError> {
        let mut state = self.state();
        if state.is_own && state.views.strong_count() > 0 {
            return copied(&state.array);
        }
        state.is_own = false;
        Ok(Arc::clone(&state.array))
    }
}

/// Copies the rows of an array to new memory.
fn copied(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let data = array.to_data();
    let mut copy = MutableArrayData::new(vec![&data], false, data.len());
    copy.try_extend(0, 0, data.len())?;
    Ok(make_array(copy.freeze()))
}
