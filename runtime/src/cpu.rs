//! The CPU time of this process.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the CPU time that all threads of this process together have used so far.
pub fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
