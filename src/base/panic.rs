//! Panics of work that must not take the program with it: what a panic said, as an error's text.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Whether this thread is where a panic is expected, and only its text is wanted.
    static CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`; its panic becomes `Err` with the message of the panic, which the panic hook has reported
/// by then. What `work` borrows may be left half-changed by a panic: do not look at it afterwards.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| text(&*panic).to_owned())
}

/// Runs `work` like [`caught`], and the panic hook is not called. It is for parsers that panic at
/// damaged files, as Polars does in places. `work` must stay on this thread; panics of other threads,
/// and later ones of this thread, are reported as ever.
pub fn contained<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let report = take_hook();
        set_hook(Box::new(move |panic| {
            if !CONTAINED.get() {
                report(panic);
            }
        }));
    });
    let outer = CONTAINED.replace(true);
    let result = caught(work);
    CONTAINED.set(outer);
    result
}

/// What a panic said: the payload that `panic!` makes is one of two kinds of text.
fn text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("it panicked")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_with_its_message_and_later_ones_are_reported_again() {
        assert_eq!(contained(|| 5), Ok(5));
        assert_eq!(contained(|| -> u8 { panic!("row {}", 7) }), Err("row 7".to_owned()));
        assert_eq!(contained(|| -> u8 { panic!("no row") }), Err("no row".to_owned()));
        assert!(contained(|| CONTAINED.get()).unwrap());
        assert!(!CONTAINED.get());
    }
}
