//! Threads of a rank: their cores ([`CorePlacement`]), and additional compute threads that each compute their share of a
//! product's panels ([`Team`]).
//!
//! Products follow each other within microseconds, so if every thread has its own core ([`CorePlacement`]), a
//! waiting thread spins briefly before it sleeps. Inputs are shared or moved, and each share of the result is copied:
//! a few kilobytes compared with megabytes of weights.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};

use arithmetic::product::{Arranged, InstructionSet, PANEL_WIDTH, Panels, ProductOutput};

use crate::comm::SpinWait;
use crate::recorder::name_thread;
use base::error::{Error, Result};

/// Minimum product size worth dividing (256 KB of weight lines).
const LEAST_BYTES: usize = 256 * 1024;

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

/// Exchange between a thread and the rank's main thread.
#[derive(Debug, Default)]
struct Handoff {
    state: AtomicU32,
    work: Mutex<HelperProduct>,
}

const IDLE: u32 = 0;
const REQUESTED: u32 = 1;
const DONE: u32 = 2;
const STOP: u32 = 3;
const GONE: u32 = 4;

#[derive(Debug, Default)]
struct HelperProduct {
    part: Option<ProductTask>,
    /// `[rows, panels of the part x 16]`.
    y: Vec<f32>,
}

#[derive(Debug)]
struct ProductTask {
    set: InstructionSet,
    x: Arc<Arranged>,
    w: Arc<Panels>,
    panels: Range<usize>,
    requester: Thread,
}

impl Handoff {
    fn work(&self) -> MutexGuard<'_, HelperProduct> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is(&self, state: u32) -> bool {
        self.state.load(Ordering::Acquire) == state
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
                    placement.compute(rank, number);
                    serve(&own, spin_wait);
                })
                .map_err(|e| Error::failed(format!("cannot start a thread: {e}")))?;
            Ok(Helper { handoff, thread: Some(thread) })
        });
        Ok(Self { helpers: helpers.collect::<Result<_>>()?, spin_wait })
    }

    pub fn product(
        &self,
        set: InstructionSet,
        x: &Arc<Arranged>,
        w: &Arc<Panels>,
        panels: Range<usize>,
        onto: ProductOutput<'_>,
    ) {
        let threads = self.helpers.len() + 1;
        let is_small = panels.len() * w.panel_bytes() * x.rows() < LEAST_BYTES;
        if threads == 1 || panels.len() < threads || is_small {
            return set.product(x, w, panels, onto);
        }
        let part = |thread: usize| {
            panels.start + panels.len() * thread / threads
                ..panels.start + panels.len() * (thread + 1) / threads
        };
        let requester = std::thread::current();
        for (number, helper) in self.helpers.iter().enumerate() {
            helper.handoff.work().part = Some(ProductTask {
                set,
                x: Arc::clone(x),
                w: Arc::clone(w),
                panels: part(number + 1),
                requester: requester.clone(),
            });
            helper.handoff.state.store(REQUESTED, Ordering::Release);
            if let Some(thread) = &helper.thread {
                thread.thread().unpark();
            }
        }
        let ProductOutput { y, columns } = onto;
        set.product(x, w, part(0), ProductOutput { y: &mut *y, columns });
        for (number, helper) in self.helpers.iter().enumerate() {
            self.spin_wait.wait(|| !helper.handoff.is(REQUESTED), std::thread::park);
            assert!(helper.handoff.is(DONE), "a thread of the rank has ended");
            helper.handoff.state.store(IDLE, Ordering::Relaxed);
            let (first, own) =
                (part(number + 1).start - panels.start, part(number + 1).len() * PANEL_WIDTH);
            let first = first * PANEL_WIDTH;
            let count = own.min(columns - first);
            let work = helper.handoff.work();
            for (y, part) in y.chunks_exact_mut(columns).zip(work.y.chunks_exact(own)) {
                y[first..first + count].copy_from_slice(&part[..count]);
            }
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        for helper in &mut self.helpers {
            helper.handoff.state.store(STOP, Ordering::Release);
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
            self.0.state.store(GONE, Ordering::Release);
            if let Some(part) = self.0.work().part.take() {
                part.requester.unpark();
            }
        }
    }
    let _mark = MarkGone(handoff);
    loop {
        spin_wait.wait(|| handoff.is(REQUESTED) || handoff.is(STOP), std::thread::park);
        if handoff.is(STOP) {
            return;
        }
        let mut work = handoff.work();
        let HelperProduct { part, y } = &mut *work;
        let Some(ProductTask { set, x, w, panels, .. }) = part else { continue };
        let columns = panels.len() * PANEL_WIDTH;
        y.resize(x.rows() * columns, 0.0);
        set.product(x, w, panels.clone(), ProductOutput { y, columns });
        // release the shared input before the main thread continues, because it overwrites it
        let requester = part.take().map(|part| part.requester);
        drop(work);
        handoff.state.store(DONE, Ordering::Release);
        if let Some(requester) = requester {
            requester.unpark();
        }
    }
}

/// Cores of all threads of a run. With fewer cores than threads nothing is pinned and waiting threads sleep at once;
/// waking them costs tens of microseconds per collective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CorePlacement {
    /// Cores of each rank's threads; empty if not pinned.
    cores: Vec<Vec<usize>>,
}

impl CorePlacement {
    /// Places `ranks` ranks of `threads` threads each on the cores that this process may use.
    pub fn here(ranks: usize, threads: u32) -> Self {
        Self::on(&allowed(), ranks, threads)
    }

    /// Leaves placement to the system, for several unmeasured groups of ranks.
    pub fn free() -> Self {
        Self { cores: Vec::new() }
    }

    pub(super) fn on(cores: &[usize], ranks: usize, threads: u32) -> Self {
        let threads = threads as usize;
        let cores = match cores.len() >= ranks * threads {
            true => cores.chunks_exact(threads.max(1)).take(ranks).map(<[usize]>::to_vec).collect(),
            false => Vec::new(),
        };
        Self { cores }
    }

    pub fn compute(&self, rank: u32, number: u32) {
        if let Some(core) = self.cores.get(rank as usize).and_then(|cores| cores.get(number as usize)) {
            pin(*core);
        }
    }

    pub fn spin_wait(&self) -> SpinWait {
        if self.cores.is_empty() { SpinWait::default() } else { SpinWait::with_own_core() }
    }

    pub fn describe(&self) -> String {
        if self.cores.is_empty() {
            return "not pinned: fewer cores than threads, which sleep where they wait for one another"
                .into();
        }
        let ranks = self.cores.iter().enumerate();
        let text: Vec<String> = ranks
            .map(|(rank, cores)| {
                let numbers: Vec<String> = cores.iter().map(ToString::to_string).collect();
                let cores = if cores.len() == 1 { "core" } else { "cores" };
                format!("rank {rank}: compute on {cores} {}", numbers.join(", "))
            })
            .collect();
        text.join("; ")
    }
}

#[cfg(target_os = "linux")]
fn allowed() -> Vec<usize> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

#[cfg(target_os = "linux")]
fn pin(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    // if pinning is forbidden, the kernel schedules as usual
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

#[cfg(not(target_os = "linux"))]
fn allowed() -> Vec<usize> {
    Vec::new()
}

#[cfg(not(target_os = "linux"))]
fn pin(_: usize) {}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Matrix, MatrixData};

    #[test]
    fn threads_give_what_one_gives_alone() {
        let mut rng = fastrand::Rng::with_seed(7);
        let (inputs, outputs) = (96, 2003);
        let numbers: Vec<f32> = (0..inputs * outputs).map(|_| rng.f32() - 0.5).collect();
        let w =
            Arc::new(Panels::from_matrix(&Matrix { outputs, inputs, data: MatrixData::F32(numbers) }));
        for (threads, cores) in [(2, 2), (3, 3), (4, 1)] {
            let placement = CorePlacement::on(&(0..cores).collect::<Vec<_>>(), 1, threads);
            let team = Team::start(0, threads, &placement).unwrap();
            for rows in [1, 5, 40] {
                let x: Vec<f32> = (0..rows * inputs).map(|_| rng.f32() - 0.5).collect();
                let set = InstructionSet::chosen();
                let mut arranged = Arranged::default();
                arranged.fill(&x, &w, set);
                let arranged = Arc::new(arranged);
                let panels = 0..outputs.div_ceil(PANEL_WIDTH);
                let mut y = vec![vec![f32::NAN; rows * outputs]; 2];
                let [alone, together] = &mut y[..] else { unreachable!() };
                set.product(&arranged, &w, panels.clone(), ProductOutput { y: alone, columns: outputs });
                team.product(
                    set,
                    &arranged,
                    &w,
                    panels,
                    ProductOutput { y: together, columns: outputs },
                );
                assert_eq!(alone, together, "{threads} threads, {rows} rows");
                assert_eq!(Arc::strong_count(&arranged), 1, "nobody keeps the rows");
            }
        }
    }

    #[test]
    fn threads_are_pinned_and_spin_where_each_has_a_core() {
        assert_eq!(CorePlacement::on(&[0, 1, 2, 5], 2, 1).cores, [[0], [1]]);
        assert_eq!(CorePlacement::on(&[0, 1, 2, 5], 2, 2).cores, [[0, 1], [2, 5]]);
        let few = CorePlacement::on(&[3, 7, 9], 2, 2);
        assert!(few.cores.is_empty() && few.spin_wait() == SpinWait::default());
        assert_eq!(CorePlacement::on(&[0, 1], 1, 2).spin_wait(), SpinWait::with_own_core());
        assert_eq!(CorePlacement::on(&[0, 1], 1, 2).describe(), "rank 0: compute on cores 0, 1");
    }
}
