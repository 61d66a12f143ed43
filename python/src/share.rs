//! Whose a batch's columns are once they are handed out.
//!
//! NumPy's arrays and PyTorch's tensors may be written, and Arrow's arrays never change. So the elements of a column
//! go to the one kind of consumer or to the other: where one kind has them, the other gets a copy.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arrow::array::{Array, ArrayRef, MutableArrayData, make_array};
use arrow::error::ArrowError;

/// A column of a batch, and who else has its memory.
#[derive(Debug)]
pub(crate) struct SharedColumn(Mutex<Shared>);

#[derive(Debug)]
struct Shared {
    array: ArrayRef,
    /// Nobody but this column, and views that may be written, has the elements.
    is_own: bool,
    /// The views that may be written and are still alive.
    views: Weak<Lent>,
}

/// Kept by views that may be written.
#[derive(Debug)]
pub(crate) struct Lent;

impl SharedColumn {
    /// A column whose elements are nobody else's, or are.
    pub(crate) fn new(array: ArrayRef, is_own: bool) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Shared {
            array,
            is_own,
            views: Weak::new(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The column, to be read at once.
    pub(crate) fn array(&self) -> ArrayRef {
        Arc::clone(&self.state().array)
    }

    /// Whether a view that may be written needs no copy.
    pub(crate) fn is_own(&self) -> bool {
        self.state().is_own
    }

    /// The column for a view that may be written: a copy where others have its elements.
    pub(crate) fn writable(&self) -> Result<(ArrayRef, Arc<Lent>), ArrowError> {
        let mut state = self.state();
        if !state.is_own {
            return Ok((copied(&state.array)?, Arc::new(Lent)));
        }
        let lent = state.views.upgrade().unwrap_or_else(|| Arc::new(Lent));
        state.views = Arc::downgrade(&lent);
        Ok((Arc::clone(&state.array), lent))
    }

    /// The column for those who take it for unchanging. It is a copy while a view may be written.
    pub(crate) fn unchanging(&self) -> Result<ArrayRef, ArrowError> {
        let mut state = self.state();
        if state.is_own && state.views.strong_count() > 0 {
            return copied(&state.array);
        }
        state.is_own = false;
        Ok(Arc::clone(&state.array))
    }
}

/// The same rows in memory of their own.
fn copied(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let data = array.to_data();
    let mut copy = MutableArrayData::new(vec![&data], false, data.len());
    copy.try_extend(0, 0, data.len())?;
    Ok(make_array(copy.freeze()))
}
