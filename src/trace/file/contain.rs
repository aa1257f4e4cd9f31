//! The door behind which a parser may panic: damaged Parquet makes Polars panic in places, and no
//! panic may reach the user.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is where a panic will be caught and turned into an error. Panic hooks that do
/// more than print (restoring a terminal, say) must do nothing then.
pub fn panic_is_contained() -> bool {
    CONTAINED.get()
}

/// Runs `work`, which must stay on this thread; its panic becomes `Err` with the panic's message, and
/// nothing is printed. Panics of other threads, and later ones of this thread, are reported as ever.
pub(crate) fn contained<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let report = take_hook();
        set_hook(Box::new(move |panic| {
            if !panic_is_contained() {
                report(panic);
            }
        }));
    });
    let outer = CONTAINED.replace(true);
    // nothing that `work` borrows is looked at after a panic
    let result = catch_unwind(AssertUnwindSafe(work));
    CONTAINED.set(outer);
    result.map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it panicked".into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_with_its_message_and_the_door_closes_behind_it() {
        assert_eq!(contained(|| 5), Ok(5));
        assert_eq!(contained(|| -> u8 { panic!("row {}", 7) }), Err("row 7".to_owned()));
        assert!(contained(panic_is_contained).unwrap());
        assert!(!panic_is_contained());
    }
}
