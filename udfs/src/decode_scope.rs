//! The resources that a thread's decoding of images may use.

use std::cell::RefCell;
use std::sync::Arc;

use crate::room::DecodeRoom;
use crate::seek_index_store::SeekIndexAccess;

thread_local! {
    static OF_THREAD: RefCell<Option<DecodeScope>> = const { RefCell::new(None) };
}

/// Memory and seek indexes for the images that a job decodes.
#[derive(Debug, Clone)]
pub struct DecodeScope {
    /// Memory for the images that are decoded at the same time.
    pub room: Arc<DecodeRoom>,
    /// The seek indexes of JPEG files; `None` to decode without.
    pub indexes: Option<SeekIndexAccess>,
}

impl DecodeScope {
    /// Runs `work` with these resources on this thread. `work` must not panic, because the previous
    /// resources would not be restored.
    pub fn within<T>(self, work: impl FnOnce() -> T) -> T {
        let before = OF_THREAD.replace(Some(self));
        let done = work();
        OF_THREAD.set(before);
        done
    }

    /// Returns the resources of this thread; `None` if its memory is not limited.
    pub(crate) fn of_thread() -> Option<Self> {
        OF_THREAD.with_borrow(Clone::clone)
    }
}
