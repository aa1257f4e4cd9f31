//! Memory on large pages, where the system supports them.
//!
//! Hardware prefetching stops at page boundaries, and each page needs a TLB lookup. Sequential reads of
//! weights were 1.3 to 1.7 times faster with 2 MB pages than with 4 KB pages (one thread on a Zen 4 VM).

/// Empty vector with capacity for `items`, on large pages if it fills any. The advice is given before
/// the memory is touched; systems that ignore it use ordinary pages.
pub fn with_large_pages<T>(items: usize) -> Vec<T> {
    let memory = Vec::with_capacity(items);
    #[cfg(target_os = "linux")]
    advise(&memory);
    memory
}

#[cfg(target_os = "linux")]
fn advise<T>(memory: &Vec<T>) {
    use rustix::mm::{Advice, madvise};
    const PAGE: usize = 4096;
    const LARGE: usize = 2 << 20;
    let bytes = memory.capacity() * size_of::<T>();
    let start = memory.as_ptr().cast::<u8>();
    let skipped = start.align_offset(PAGE);
    if bytes < LARGE + skipped {
        return;
    }
    let whole = (bytes - skipped) / PAGE * PAGE;
    // SAFETY: the range consists of whole pages within the vector's memory, and the advice changes no
    // contents
    let _ =
        unsafe { madvise(start.wrapping_add(skipped).cast_mut().cast(), whole, Advice::LinuxHugepage) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_what_was_asked_of_any_size() {
        for items in [0, 1, 100, 3 << 20] {
            let mut memory: Vec<u32> = with_large_pages(items);
            assert!(memory.capacity() >= items && memory.is_empty());
            memory.resize(items, 7);
            assert!(memory.iter().all(|item| *item == 7));
        }
    }
}
