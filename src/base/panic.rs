//! Containment of panics, converted to error text.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// True while panics in this thread are expected and should not be reported.
    static CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`, returning a panic's message as `Err`; the panic hook still reports it. A panic may leave
/// data borrowed by `work` inconsistent: do not use it afterwards.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| text(&*panic).to_owned())
}

/// Like [`caught`], without calling the panic hook. For parsers that panic on damaged files, as Polars
/// does in places. `work` must stay on this thread; other panics are reported as usual.
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

/// Panic message: `panic!` uses one of two text types as payload.
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
