//! Parallel work on all cores with results delivered in order and bounded memory.
//!
//! Results are delivered block by block while the next block is computed, so at most two blocks are in memory,
//! however slow the work or its consumer is. The block size adapts so that a block takes a fraction of a second. It
//! affects only how often results arrive, never the results.

use std::ops::Range;
use std::time::{Duration, Instant};

use rayon::prelude::*;

use base::error::Result;

/// Blocks faster than this are followed by larger ones.
const SHORT: Duration = Duration::from_millis(100);
/// Blocks slower than this are followed by smaller ones.
const LONG: Duration = Duration::from_millis(400);
/// Maximum items in a block.
const MOST: usize = 1024;

/// Runs `work` for 0 to `count` on Rayon's threads and calls `on_result` in order, on this thread. Stops at the first
/// error of `on_result`.
pub(super) fn in_order<T: Send>(
    count: usize,
    work: impl Fn(usize) -> T + Sync,
    mut on_result: impl FnMut(usize, T) -> Result<()>,
) -> Result<()> {
    let least = 2 * rayon::current_num_threads();
    let mut size = 2 * least;
    let mut block = 0..size.min(count);
    let mut results = do_block(&block, &work).0;
    while !block.is_empty() {
        let next = block.end..(block.end + size).min(count);
        let mut done = (Vec::new(), Duration::ZERO);
        let taken = rayon::in_place_scope(|scope| {
            scope.spawn(|_| done = do_block(&next, &work));
            block.zip(results).try_for_each(|(index, result)| on_result(index, result))
        });
        taken?;
        size = match done.1 {
            took if took < SHORT => (size * 2).min(MOST),
            took if took > LONG => (size / 2).max(least),
            _ => size,
        };
        (block, results) = (next, done.0);
    }
    Ok(())
}

fn do_block<T: Send>(block: &Range<usize>, work: &(impl Fn(usize) -> T + Sync)) -> (Vec<T>, Duration) {
    let start = Instant::now();
    let results = block.clone().into_par_iter().map(work).collect();
    (results, start.elapsed())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use base::error::Error;

    #[test]
    fn results_come_in_order_and_never_far_ahead_of_those_taken() {
        for count in [0, 1, 7, 10_000] {
            let (worked, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let mut order = Vec::new();
            let work = |index: usize| {
                let ahead = worked.fetch_add(1, Ordering::SeqCst) - taken.load(Ordering::SeqCst);
                (index * 3, ahead)
            };
            in_order(count, work, |index, (result, ahead)| {
                taken.fetch_add(1, Ordering::SeqCst);
                assert_eq!(result, index * 3);
                assert!(ahead <= 2 * MOST, "{ahead} results were waiting");
                order.push(index);
                Ok(())
            })
            .unwrap();
            assert_eq!(order, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_error_in_taking_a_result_ends_it() {
        let worked = AtomicUsize::new(0);
        let work = |_| worked.fetch_add(1, Ordering::SeqCst);
        let ended = in_order(1_000_000, work, |index, _| match index {
            100 => Err(Error::failed("disk full")),
            _ => Ok(()),
        });
        assert!(ended.is_err());
        assert!(worked.into_inner() <= 100 + 2 * MOST);
    }
}
