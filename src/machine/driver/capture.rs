//! Frees deferred while this thread captures a stream into a graph, because freeing is not allowed
//! during capture.

use std::cell::RefCell;

/// Capture depth and deferred frees of this thread.
#[derive(Default)]
struct Pending {
    captures: usize,
    frees: Vec<Box<dyn FnOnce()>>,
}

thread_local! {
    static PENDING: RefCell<Pending> = RefCell::default();
}

/// Marks the start of a capture in this thread.
pub(super) fn begun() {
    let _ = PENDING.try_with(|pending| pending.borrow_mut().captures += 1);
}

/// Marks the end of a capture; after the last one, runs the deferred frees.
pub(super) fn ended() {
    let due = PENDING.try_with(|pending| {
        let mut pending = pending.borrow_mut();
        pending.captures = pending.captures.saturating_sub(1);
        if pending.captures == 0 { std::mem::take(&mut pending.frees) } else { Vec::new() }
    });
    due.unwrap_or_default().into_iter().for_each(|free| free());
}

pub(super) fn active() -> bool {
    PENDING.try_with(|pending| pending.borrow().captures > 0).unwrap_or(false)
}

/// Frees now, or after this thread's captures.
pub(super) fn free(free: impl FnOnce() + 'static) {
    let mut free: Option<Box<dyn FnOnce()>> = Some(Box::new(free));
    let _ = PENDING.try_with(|pending| {
        let mut pending = pending.borrow_mut();
        if pending.captures > 0 {
            pending.frees.extend(free.take());
        }
    });
    if let Some(free) = free {
        free();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn frees_wait_for_the_last_capture_to_end() {
        let freed = Rc::new(Cell::new(0));
        let free_one = || {
            let freed = Rc::clone(&freed);
            free(move || freed.set(freed.get() + 1));
        };
        free_one();
        assert_eq!(freed.get(), 1);
        begun();
        begun();
        free_one();
        ended();
        assert!(active());
        assert_eq!(freed.get(), 1);
        ended();
        assert!(!active());
        assert_eq!(freed.get(), 2);
    }
}
