//! Panics of kernels, caught and returned as errors.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use datafusion::common::DataFusionError;

use crate::task::panic_message;

thread_local! {
    /// Number of nested calls of `caught` that are running on this thread.
    static CATCHING: Cell<usize> = const { Cell::new(0) };
}

static QUIET_HOOK: Once = Once::new();

/// A caught panic, with its message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it panicked: {0}")]
pub struct Panicked(pub String);

impl From<Panicked> for DataFusionError {
    fn from(panicked: Panicked) -> Self {
        Self::Execution(panicked.to_string())
    }
}

/// Runs `work`, and returns a panic of `work` as an error. The panic is not printed, because the
/// error of the failed row contains the panic's message.
///
/// A panic of `work` must not leave shared state half-changed. Kernels are functions of arrays, so
/// they change no shared state.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    QUIET_HOOK.call_once(|| {
        let outer = take_hook();
        set_hook(Box::new(move |panic| {
            if CATCHING.get() == 0 {
                outer(panic);
            }
        }));
    });
    CATCHING.set(CATCHING.get() + 1);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    CATCHING.set(CATCHING.get() - 1);
    outcome.map_err(|payload| Panicked(panic_message(payload.as_ref()).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_with_its_message() {
        let text = String::from("too far");
        assert_eq!(
            caught(|| -> u8 { std::panic::panic_any(text) }),
            Err(Panicked("too far".to_owned()))
        );
        assert_eq!(caught(|| 7), Ok(7));
        assert_eq!(CATCHING.get(), 0);
    }
}
