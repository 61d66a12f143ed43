//! The `forebay` command.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    limit_heap_growth();
    cli::main()
}

/// Has glibc give large images back to the system when they are freed, keep the memory of a table's
/// columns, and spread small buffers over two arenas only. By default its threshold for the first grows up
/// to 32 MiB, and buffers of that size then tear holes into the heap; and the end of the heap is given back
/// with every batch and faulted in again (`docs/internals.md`, "Measured choices").
fn limit_heap_growth() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        /// Bytes: above nearly all decoded photos, below batches.
        const THRESHOLD: libc::c_int = 2 << 20;
        /// One for the threads that read and one for those that compute, about.
        const ARENAS: libc::c_int = 2;
        /// Bytes that stay at the heap's end: more than the columns of the batches that are under way.
        const KEPT: libc::c_int = 64 << 20;
        /// Bytes by which the heap grows at least.
        const GROWTH: libc::c_int = 4 << 20;
        // SAFETY: no other thread runs yet, and mallopt takes two integers by value.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, THRESHOLD);
            libc::mallopt(libc::M_ARENA_MAX, ARENAS);
            libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT);
            libc::mallopt(libc::M_TOP_PAD, GROWTH);
        }
    }
}
