//! NVTX ranges, so Nsight Systems shows the same names as our traces. Without an attached tool a range costs about
//! 0.1 us (two small allocations for the C string).

#[derive(Debug)]
#[must_use = "the range ends when this is dropped"]
pub struct Range(());

impl Drop for Range {
    fn drop(&mut self) {
        nvtx::range_pop!();
    }
}

pub fn range(name: &str) -> Range {
    // the crate would panic on NUL, which no plan's names contain
    debug_assert!(!name.contains('\0'));
    nvtx::range_push!("{name}");
    Range(())
}

/// Range not bound to a thread, such as a collective in flight; ended on drop.
#[derive(Debug)]
#[must_use = "the range ends when this is dropped"]
pub struct Started(i32);

impl Drop for Started {
    fn drop(&mut self) {
        let id = self.0;
        nvtx::range_end!(id);
    }
}

/// Starts a range that may overlap others, named by lane and operation: `rank 0 comm: decode/L0/attn/all_reduce`.
pub fn start(lane: &str, name: &str) -> Started {
    debug_assert!(!name.contains('\0'));
    Started(nvtx::range_start!("{lane}: {name}"))
}

pub fn name_thread(name: &str) {
    nvtx::name_thread!("{name}");
}
