//! Additional compute threads of a rank, which each compute their share of a product's panels.
//!
//! Products follow each other within microseconds, so if every thread has its own core ([`CorePlacement`]), a
//! waiting thread spins briefly before it sleeps. Inputs are shared or moved, and each share of the result is copied:
//! a few kilobytes compared with megabytes of weights.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};

use arithmetic::product::{Arranged, InstructionSet, PANEL_WIDTH, Panels, ProductOutput};

use super::placement::CorePlacement;
use crate::comm::SpinWait;
use crate::recorder::name_thread;
use base::error::{Error, Result};

/// Minimum product size worth dividing (256 KB of weight lines).
const MIN_BYTES: usize = 256 * 1024;

#[derive(Debug, Default)]
pub(super) struct Team {
    helpers: Vec<Helper>,
    spin_wait: SpinWait,
}

#[derive(Debug)]
struct Helper {
    handoff: Arc<Handoff>,
    thread: Option<JoinHandle<()>>,
}

/// Hand-off of tasks and results between the rank's main thread and a helper.
#[derive(Debug, Default)]
struct Handoff {
    /// A [`HandoffState`].
    state: AtomicU8,
    exchange: Mutex<Exchange>,
}

/// Protocol of a hand-off. Whoever sets a state other than idle wakes the other thread.
///
/// | state | set by | the helper | the main thread |
/// |---|---|---|---|
/// | idle | main thread, once it has the result | waits | does other work |
/// | requested | main thread, with a task | computes its share | computes its own share, then waits |
/// | done | helper, with the result | waits | copies the result |
/// | stop | main thread, if the team is dropped | ends | joins it |
/// | gone | helper, if it ends or panics | | panics instead of waiting forever |
#[derive(Clone, Copy)]
#[repr(u8)]
enum HandoffState {
    Idle = 0,
    Requested,
    Done,
    Stop,
    Gone,
}

#[derive(Debug, Default)]
struct Exchange {
    task: Option<ProductTask>,
    /// `[rows, panels of the task x PANEL_WIDTH]`.
    result: Vec<f32>,
}

#[derive(Debug)]
struct ProductTask {
    instructions: InstructionSet,
    x: Arc<Arranged>,
    w: Arc<Panels>,
    panels: Range<usize>,
    requester: Thread,
}

impl Handoff {
    fn exchange(&self) -> MutexGuard<'_, Exchange> {
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is(&self, state: HandoffState) -> bool {
        self.state.load(Ordering::Acquire) == state as u8
    }

    fn set(&self, state: HandoffState) {
        self.state.store(state as u8, Ordering::Release);
    }
}

impl Helper {
    fn request(&self, task: ProductTask) {
        self.handoff.exchange().task = Some(task);
        self.handoff.set(HandoffState::Requested);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    /// Waits for the result and copies it to these panels of `output`.
    fn collect(&self, spin_wait: SpinWait, panels: Range<usize>, output: ProductOutput<'_>) {
        spin_wait.wait(|| !self.handoff.is(HandoffState::Requested), std::thread::park);
        // the rank catches this panic, as any other, and the run fails
        assert!(self.handoff.is(HandoffState::Done), "a thread of the rank has ended");
        self.handoff.set(HandoffState::Idle);
        let ProductOutput { y, columns } = output;
        let (first, width) = (panels.start * PANEL_WIDTH, panels.len() * PANEL_WIDTH);
        let count = width.min(columns - first);
        let exchange = self.handoff.exchange();
        for (y, result) in y.chunks_exact_mut(columns).zip(exchange.result.chunks_exact(width)) {
            y[first..first + count].copy_from_slice(&result[..count]);
        }
    }
}

impl Team {
    pub fn start(rank: u32, threads: u32, placement: &CorePlacement) -> Result<Self> {
        let spin_wait = placement.spin_wait();
        let helpers = (1..threads).map(|number| -> Result<Helper> {
            let handoff = Arc::new(Handoff::default());
            let (own, placement) = (Arc::clone(&handoff), placement.clone());
            let thread = std::thread::Builder::new()
                .name(format!("rank{rank}-{number}"))
                .spawn(move || {
                    name_thread(&format!("rank {rank} compute {number}"));
                    placement.pin_this_thread(rank, number);
                    serve(&own, spin_wait);
                })
                .map_err(|e| Error::failed(format!("cannot start a thread: {e}")))?;
            Ok(Helper { handoff, thread: Some(thread) })
        });
        Ok(Self { helpers: helpers.collect::<Result<_>>()?, spin_wait })
    }

    pub fn product(
        &self,
        instructions: InstructionSet,
        x: &Arc<Arranged>,
        w: &Arc<Panels>,
        panels: Range<usize>,
        output: ProductOutput<'_>,
    ) {
        let threads = self.helpers.len() + 1;
        let is_small = panels.len() * w.panel_bytes() * x.rows() < MIN_BYTES;
        if threads == 1 || panels.len() < threads || is_small {
            return instructions.product(x, w, panels, output);
        }
        let first_of = |thread: usize| panels.start + panels.len() * thread / threads;
        let panels_of = |thread: usize| first_of(thread)..first_of(thread + 1);
        let requester = std::thread::current();
        for (helper, thread) in self.helpers.iter().zip(1..) {
            helper.request(ProductTask {
                instructions,
                x: Arc::clone(x),
                w: Arc::clone(w),
                panels: panels_of(thread),
                requester: requester.clone(),
            });
        }
        let ProductOutput { y, columns } = output;
        instructions.product(x, w, panels_of(0), ProductOutput { y: &mut *y, columns });
        for (helper, thread) in self.helpers.iter().zip(1..) {
            let Range { start, end } = panels_of(thread);
            let own = start - panels.start..end - panels.start;
            helper.collect(self.spin_wait, own, ProductOutput { y: &mut *y, columns });
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        for helper in &mut self.helpers {
            helper.handoff.set(HandoffState::Stop);
            if let Some(thread) = helper.thread.take() {
                thread.thread().unpark();
                // a panic was already reported
                let _ = thread.join();
            }
        }
    }
}

fn serve(handoff: &Handoff, spin_wait: SpinWait) {
    /// Wakes the waiting main thread if this thread panics.
    struct MarkGone<'a>(&'a Handoff);
    impl Drop for MarkGone<'_> {
        fn drop(&mut self) {
            self.0.set(HandoffState::Gone);
            if let Some(task) = self.0.exchange().task.take() {
                task.requester.unpark();
            }
        }
    }
    let _mark = MarkGone(handoff);
    loop {
        let is_awaited = || handoff.is(HandoffState::Requested) || handoff.is(HandoffState::Stop);
        spin_wait.wait(is_awaited, std::thread::park);
        if handoff.is(HandoffState::Stop) {
            return;
        }
        let mut exchange = handoff.exchange();
        let Exchange { task, result } = &mut *exchange;
        let Some(ProductTask { instructions, x, w, panels, .. }) = task else { continue };
        let columns = panels.len() * PANEL_WIDTH;
        result.resize(x.rows() * columns, 0.0);
        instructions.product(x, w, panels.clone(), ProductOutput { y: result, columns });
        // release the shared input before the main thread continues, because it overwrites it
        let requester = task.take().map(|task| task.requester);
        drop(exchange);
        handoff.set(HandoffState::Done);
        if let Some(requester) = requester {
            requester.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Matrix, MatrixData};

    #[test]
    fn a_team_gives_the_same_product_as_one_thread() {
        let mut rng = fastrand::Rng::with_seed(7);
        let (inputs, columns) = (96, 2003);
        let data = MatrixData::F32((0..inputs * columns).map(|_| rng.f32() - 0.5).collect());
        let w = Arc::new(Panels::from_matrix(&Matrix { outputs: columns, inputs, data }));
        let instructions = InstructionSet::chosen();
        for (threads, cores) in [(2, 2), (3, 3), (4, 1)] {
            let placement = CorePlacement::on_cores(&(0..cores).collect::<Vec<_>>(), 1, threads);
            let team = Team::start(0, threads, &placement).unwrap();
            for rows in [1, 5, 40] {
                let x: Vec<f32> = (0..rows * inputs).map(|_| rng.f32() - 0.5).collect();
                let mut arranged = Arranged::default();
                arranged.fill(&x, &w, instructions);
                let arranged = Arc::new(arranged);
                let panels = 0..columns.div_ceil(PANEL_WIDTH);
                let mut alone = vec![f32::NAN; rows * columns];
                let mut together = alone.clone();
                let output = ProductOutput { y: &mut alone, columns };
                instructions.product(&arranged, &w, panels.clone(), output);
                let output = ProductOutput { y: &mut together, columns };
                team.product(instructions, &arranged, &w, panels, output);
                assert_eq!(alone, together, "{threads} threads, {rows} rows");
                assert_eq!(Arc::strong_count(&arranged), 1, "no thread keeps the input");
            }
        }
    }
}
