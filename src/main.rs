//! The `forebay` command.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    limit_heap_growth();
    cli::main()
}

/// Tunes glibc's allocator: the memory of large images returns to the system when freed, the memory
/// of table columns is reused, and small buffers share three arenas.
///
/// By default, glibc raises its threshold for large blocks up to 32 MiB, and freed buffers below
/// the threshold then fragment the heap. By default, glibc also returns the top of the heap to the
/// system after every batch, and page faults bring this memory back for the next batch
/// (`docs/internals.md`, "Measured choices").
fn limit_heap_growth() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        /// Size, in bytes, from which a block is mapped separately and returned to the system when
        /// freed. The columns of most batches are smaller, and nearly all decoded photos are
        /// larger.
        const THRESHOLD: libc::c_int = 2 << 20;
        /// Maximum number of malloc arenas: about one for the threads that read, one for those that
        /// compute, and one for the others. With more, the memory for images grows.
        const ARENAS: libc::c_int = 3;
        /// Number of free bytes at the top of the heap that are not returned to the system. The
        /// columns of the batches in flight take less.
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
