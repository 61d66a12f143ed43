//! Runs the cases of a test on several threads.

use std::sync::Mutex;
use std::thread::{available_parallelism, scope};

/// Returns the number of threads on which cases that compute all the time run fastest.
pub(crate) fn cores() -> usize {
    available_parallelism().map_or(1, |cores| cores.get())
}

/// Calls `check` for each of `cases`, on several threads. Returns the results in the order of the
/// cases. Each thread keeps a state of its own, which it makes with `start`.
pub(crate) fn on_threads<C, S, R>(
    threads: usize,
    cases: C,
    start: impl Fn() -> S + Sync,
    check: impl Fn(&S, C::Item) -> R + Sync,
) -> Vec<R>
where
    C: IntoIterator<IntoIter: Send>,
    R: Send,
{
    let cases = Mutex::new(cases.into_iter().enumerate());
    let results = Mutex::new(Vec::new());
    let next = || cases.lock().unwrap().next();
    let work = || {
        let state = start();
        while let Some((index, case)) = next() {
            let result = check(&state, case);
            results.lock().unwrap().push((index, result));
        }
    };
    scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let mut results = results.into_inner().unwrap();
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}
