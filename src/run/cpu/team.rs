//! Additional compute threads of a rank: each computes its share of a product's panels.
//!
//! Products follow each other within microseconds, so if every thread has its own core ([`super::placement`]), a
//! waiting thread spins briefly before it sleeps. Inputs are shared or moved, and each share of the result is copied:
//! a few kilobytes compared with megabytes of weights.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};

use arithmetic::product::{Arranged, InstructionSet, Onto, Panels, WIDE};

use super::placement::Placement;
use crate::comm::Patience;
use crate::recorder::name_thread;
use base::error::{Error, Result};

/// Minimum product size worth dividing (256 KB of weight lines).
const LEAST_BYTES: usize = 256 * 1024;

#[derive(Debug, Default)]
pub(super) struct Team {
    mates: Vec<Mate>,
    patience: Patience,
}

#[derive(Debug)]
struct Mate {
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

/// Exchange between a thread and the rank's main thread.
#[derive(Debug, Default)]
struct Desk {
    state: AtomicU32,
    work: Mutex<Work>,
}

const IDLE: u32 = 0;
const ASKED: u32 = 1;
const DONE: u32 = 2;
const LEAVE: u32 = 3;
const GONE: u32 = 4;

#[derive(Debug, Default)]
struct Work {
    part: Option<Part>,
    /// `[rows, panels of the part x 16]`.
    y: Vec<f32>,
}

#[derive(Debug)]
struct Part {
    set: InstructionSet,
    x: Arc<Arranged>,
    w: Arc<Panels>,
    panels: Range<usize>,
    asker: Thread,
}

impl Desk {
    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is(&self, state: u32) -> bool {
        self.state.load(Ordering::Acquire) == state
    }
}

impl Team {
    pub fn start(rank: u32, threads: u32, placement: &Placement) -> Result<Self> {
        let patience = placement.patience();
        let mates = (1..threads).map(|number| -> Result<Mate> {
            let desk = Arc::new(Desk::default());
            let (own, placement) = (Arc::clone(&desk), placement.clone());
            let thread = std::thread::Builder::new()
                .name(format!("rank{rank}-{number}"))
                .spawn(move || {
                    name_thread(&format!("rank {rank} compute {number}"));
                    placement.compute(rank, number);
                    serve(&own, patience);
                })
                .map_err(|e| Error::failed(format!("cannot start a thread: {e}")))?;
            Ok(Mate { desk, thread: Some(thread) })
        });
        Ok(Self { mates: mates.collect::<Result<_>>()?, patience })
    }

    pub fn product(
        &self,
        set: InstructionSet,
        x: &Arc<Arranged>,
        w: &Arc<Panels>,
        panels: Range<usize>,
        onto: Onto<'_>,
    ) {
        let threads = self.mates.len() + 1;
        let is_small = panels.len() * w.panel_bytes() * x.rows() < LEAST_BYTES;
        if threads == 1 || panels.len() < threads || is_small {
            return set.product(x, w, panels, onto);
        }
        let part = |thread: usize| {
            panels.start + panels.len() * thread / threads
                ..panels.start + panels.len() * (thread + 1) / threads
        };
        let asker = std::thread::current();
        for (number, mate) in self.mates.iter().enumerate() {
            mate.desk.work().part = Some(Part {
                set,
                x: Arc::clone(x),
                w: Arc::clone(w),
                panels: part(number + 1),
                asker: asker.clone(),
            });
            mate.desk.state.store(ASKED, Ordering::Release);
            if let Some(thread) = &mate.thread {
                thread.thread().unpark();
            }
        }
        let Onto { y, columns } = onto;
        set.product(x, w, part(0), Onto { y: &mut *y, columns });
        for (number, mate) in self.mates.iter().enumerate() {
            self.patience.wait(|| !mate.desk.is(ASKED), std::thread::park);
            assert!(mate.desk.is(DONE), "a thread of the rank has ended");
            mate.desk.state.store(IDLE, Ordering::Relaxed);
            let (first, own) = (part(number + 1).start - panels.start, part(number + 1).len() * WIDE);
            let first = first * WIDE;
            let count = own.min(columns - first);
            let work = mate.desk.work();
            for (y, part) in y.chunks_exact_mut(columns).zip(work.y.chunks_exact(own)) {
                y[first..first + count].copy_from_slice(&part[..count]);
            }
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        for mate in &mut self.mates {
            mate.desk.state.store(LEAVE, Ordering::Release);
            if let Some(thread) = mate.thread.take() {
                thread.thread().unpark();
                // a panic was already reported
                let _ = thread.join();
            }
        }
    }
}

fn serve(desk: &Desk, patience: Patience) {
    /// Wakes the waiting main thread if this thread panics.
    struct Leaves<'a>(&'a Desk);
    impl Drop for Leaves<'_> {
        fn drop(&mut self) {
            self.0.state.store(GONE, Ordering::Release);
            if let Some(part) = self.0.work().part.take() {
                part.asker.unpark();
            }
        }
    }
    let _leaves = Leaves(desk);
    loop {
        patience.wait(|| desk.is(ASKED) || desk.is(LEAVE), std::thread::park);
        if desk.is(LEAVE) {
            return;
        }
        let mut work = desk.work();
        let Work { part, y } = &mut *work;
        let Some(Part { set, x, w, panels, .. }) = part else { continue };
        let columns = panels.len() * WIDE;
        y.resize(x.rows() * columns, 0.0);
        set.product(x, w, panels.clone(), Onto { y, columns });
        // release the shared input before the main thread continues, because it overwrites it
        let asker = part.take().map(|part| part.asker);
        drop(work);
        desk.state.store(DONE, Ordering::Release);
        if let Some(asker) = asker {
            asker.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Matrix, MatrixData};

    #[test]
    fn threads_give_what_one_gives_alone() {
        let mut rng = fastrand::Rng::with_seed(7);
        let (inputs, outputs) = (96, 2003);
        let numbers: Vec<f32> = (0..inputs * outputs).map(|_| rng.f32() - 0.5).collect();
        let w = Arc::new(Panels::of(&Matrix { outputs, inputs, data: MatrixData::F32(numbers) }));
        for (threads, cores) in [(2, 2), (3, 3), (4, 1)] {
            let placement = Placement::on(&(0..cores).collect::<Vec<_>>(), 1, threads);
            let team = Team::start(0, threads, &placement).unwrap();
            for rows in [1, 5, 40] {
                let x: Vec<f32> = (0..rows * inputs).map(|_| rng.f32() - 0.5).collect();
                let set = InstructionSet::chosen();
                let mut arranged = Arranged::default();
                arranged.fill(&x, &w, set);
                let arranged = Arc::new(arranged);
                let panels = 0..outputs.div_ceil(WIDE);
                let mut y = vec![vec![f32::NAN; rows * outputs]; 2];
                let [alone, together] = &mut y[..] else { unreachable!() };
                set.product(&arranged, &w, panels.clone(), Onto { y: alone, columns: outputs });
                team.product(set, &arranged, &w, panels, Onto { y: together, columns: outputs });
                assert_eq!(alone, together, "{threads} threads, {rows} rows");
                assert_eq!(Arc::strong_count(&arranged), 1, "nobody keeps the rows");
            }
        }
    }
}
