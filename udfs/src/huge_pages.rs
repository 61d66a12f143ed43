//! Huge pages for large memory.

/// Asks the kernel for huge pages behind memory that was not written yet, such as a large vector of
/// zeros. Faulting it in takes less time then, and so does reading it in random order: the processor
/// caches the addresses of few pages. Does nothing where the system has no huge pages.
///
/// ```
/// let memory = vec![0_u64; 1 << 20];
/// forebay_udfs::huge_pages::prefer_huge_pages(&memory);
/// ```
pub fn prefer_huge_pages<E>(memory: &[E]) {
    #[cfg(target_os = "linux")]
    {
        /// Size and alignment of a huge page. Other sizes of pages divide it.
        const HUGE_PAGE: usize = 2 << 20;
        let range = memory.as_ptr_range();
        let start = (range.start as usize).next_multiple_of(HUGE_PAGE);
        let end = range.end as usize / HUGE_PAGE * HUGE_PAGE;
        if start < end {
            #[expect(unsafe_code, reason = "the kernel takes an address")]
            // SAFETY: the range lies within `memory`, and the advice changes no content. A kernel that cannot follow it
            // returns an error, which changes nothing.
            unsafe {
                libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_HUGEPAGE);
            }
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = memory;
}
