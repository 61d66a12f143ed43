//! The `forebay` command.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    limit_heap_growth();
    cli::main()
}

/// Has glibc give batches and large images back to the system when they are freed, and spread small
/// buffers over two arenas only. By default its threshold for the former grows up to 32 MiB, and buffers of that
/// size then tear holes into the heap: over 30 epochs of photos, memory grew to 320 MiB with
/// the defaults, and to 190 MiB with these settings, at the same speed.
fn limit_heap_growth() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        /// Bytes: above nearly all decoded photos, below batches.
        const THRESHOLD: libc::c_int = 2 << 20;
        /// One for the threads that read and one for those that compute, about.
        const ARENAS: libc::c_int = 2;
        // SAFETY: no other thread runs yet, and mallopt takes two integers by value.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, THRESHOLD);
            libc::mallopt(libc::M_ARENA_MAX, ARENAS);
        }
    }
}
