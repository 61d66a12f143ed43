//! The `forebay` command.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    limit_heap_growth();
    cli::main()
}

/// Tunes glibc's allocator: large images return to the system when freed, columns of tables are
/// reused, and small buffers share two arenas.
///
/// By default, glibc raises its threshold for large blocks up to 32 MiB, and freed buffers below
/// the threshold then fragment the heap. By default, glibc also returns the top of the heap to the
/// system after every batch, and faults it in again for the next one (`docs/internals.md`,
/// "Measured choices").
fn limit_heap_growth() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        /// Size, in bytes, from which a block is mapped separately and returned to the system when
        /// freed: more than the columns of most batches, less than nearly all decoded photos.
        const THRESHOLD: libc::c_int = 2 << 20;
        /// Maximum number of arenas: about one for the threads that read and one for those that
        /// compute.
        const ARENAS: libc::c_int = 2;
        /// Number of free bytes that stay at the top of the heap: more than the columns of the
        /// batches in flight.
        const KEPT: libc::c_int = 64 << 20;
        /// Minimum number of bytes by which the heap grows.
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
