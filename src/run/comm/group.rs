//! Collectives and barrier between the ranks of one process.
//!
//! A collective is two calls: [`RankGroup::give`] hands in a rank's buffer and returns at once, [`RankGroup::take`] waits for
//! the result, and the rank computes in between. Buffers move instead of being shared, so there are no data races.
//! The last rank to arrive sums in rank order, so results are bitwise equal in every run and on every rank. That rank
//! reads and writes `(2 tp - 1) x bytes`, a few kilobytes per decode step. If every rank has its own core, no thread
//! has to be woken ([`SpinWait`]).

use std::collections::{BTreeMap, VecDeque};
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::link::{EmulatedLink, Occupancy};
use crate::recorder::MonotonicClock;
use plan::Rows;

/// Spin time: the usual drift between ranks that do the same work, plus a margin.
const SPIN_TIME: Duration = Duration::from_micros(200);

/// Spin time before a waiting thread sleeps; zero by default. Waking a thread takes tens of microseconds, more on
/// virtual machines, while the other rank usually arrives within a few. If threads share cores, spinning would only
/// delay the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpinWait {
    spin: Duration,
}

impl SpinWait {
    pub fn with_own_core() -> Self {
        Self { spin: SPIN_TIME }
    }

    /// Waits until `done` returns true. Code that makes it true must also end `sleep`, which may wake spuriously.
    pub fn wait(self, mut done: impl FnMut() -> bool, mut sleep: impl FnMut()) {
        if self.spins(&mut done) {
            return;
        }
        while !done() {
            sleep();
        }
    }

    /// Spins; returns true if `done` was reached.
    pub fn spins(self, mut done: impl FnMut() -> bool) -> bool {
        if done() {
            return true;
        }
        if self.spin.is_zero() {
            return false;
        }
        let until = Instant::now() + self.spin;
        while Instant::now() < until {
            // reading the clock takes as long as a few of these
            for _ in 0..16 {
                std::hint::spin_loop();
                if done() {
                    return true;
                }
            }
        }
        false
    }
}

/// Error after another rank died: pending collectives cannot complete.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RankFailure(pub String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    AllReduce,
    /// Every rank gets its share of the rows of the sum ([`Rows::share`]).
    ReduceScatter {
        columns: usize,
    },
    /// Every rank gets all buffers, concatenated in rank order.
    AllGather,
}

impl Exchange {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AllReduce => "all-reduce",
            Self::ReduceScatter { .. } => "reduce-scatter",
            Self::AllGather => "all-gather",
        }
    }

    /// Time on a link (ns) for `message` bytes. Reduce-scatter and all-gather are the two halves of an all-reduce.
    pub fn link_ns(self, link: &EmulatedLink, message: u64) -> i64 {
        let us = match self {
            Self::AllReduce => link.us(message),
            Self::ReduceScatter { .. } | Self::AllGather => link.half_us(message),
        };
        (us * 1e3).round() as i64
    }

    /// Replaces the ranks' inputs with their results, both in rank order.
    fn apply<T: Copy + AddAssign>(self, buffers: &mut [Vec<T>]) {
        let ranks = buffers.len() as u32;
        let Some((first, others)) = buffers.split_first_mut() else { return };
        if self == Self::AllGather {
            others.iter().for_each(|other| first.extend_from_slice(other));
        } else {
            for other in others.iter() {
                for (sum, summand) in first.iter_mut().zip(other) {
                    *sum += *summand;
                }
            }
        }
        let share = |rank: u32| match self {
            Self::ReduceScatter { columns } => {
                let rows = Rows::share(first.len() / columns.max(1), rank, ranks);
                rows.start * columns..rows.end * columns
            }
            Self::AllReduce | Self::AllGather => 0..first.len(),
        };
        for (other, rank) in others.iter_mut().zip(1..) {
            other.clear();
            other.extend_from_slice(&first[share(rank)]);
        }
        let own = share(0).len();
        first.truncate(own);
    }
}

#[derive(Debug)]
pub struct Exchanged<T = f32> {
    /// The rank's result; the memory may come from another rank's input.
    pub buffer: Vec<T>,
    /// Arrival of the last rank (ns).
    pub last_arrival: i64,
    /// Completion (ns): the result is computed and the link time is over.
    pub end: i64,
}

/// Ranks of one process that exchange values of type `T`.
#[derive(Debug)]
pub struct RankGroup<T = f32> {
    ranks: usize,
    clock: MonotonicClock,
    link: Option<EmulatedLink>,
    /// Margin by which a sleep must end before the link completes (ns).
    early_ns: i64,
    spin_wait: SpinWait,
    state: Mutex<State<T>>,
    /// Incremented on each event that a rank may wait for: result, barrier, abort.
    news: AtomicU64,
    changed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    /// Collectives whose result some rank has not fetched yet, in order; `before` counts those already removed.
    rounds: VecDeque<Round<T>>,
    before: u64,
    /// Number of collectives that each rank has given to, and whose result it has fetched.
    given: Vec<u64>,
    fetched: Vec<u64>,
    occupancy: Occupancy,
    barrier_arrived: usize,
    barriers: u64,
    /// Number of waiting threads that sleep instead of spinning.
    sleeping: usize,
    broken: Option<RankFailure>,
}

#[derive(Debug)]
struct Round<T> {
    /// Inputs by rank; results once `done`.
    buffers: Vec<Vec<T>>,
    arrived: usize,
    fetched: usize,
    done: bool,
    /// Arrival of the last rank and completion (ns).
    last_arrival: i64,
    end: i64,
}

impl<T: Copy + AddAssign> RankGroup<T> {
    /// Creates a group of `ranks` ranks. With a link, every collective takes at least the link's time.
    pub fn new(
        ranks: usize,
        link: Option<EmulatedLink>,
        spin_wait: SpinWait,
        clock: MonotonicClock,
    ) -> Self {
        let state = State {
            rounds: VecDeque::new(),
            before: 0,
            given: vec![0; ranks],
            fetched: vec![0; ranks],
            occupancy: Occupancy::default(),
            barrier_arrived: 0,
            barriers: 0,
            sleeping: 0,
            broken: None,
        };
        let early_ns = if link.is_some() { clock.sleep_overshoot() } else { 0 };
        let (state, news, changed) = (Mutex::new(state), AtomicU64::new(0), Condvar::new());
        Self { ranks, clock, link, early_ns, spin_wait, state, news, changed }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifies waiting ranks. Makes a system call only if a thread sleeps.
    fn notify(&self, state: MutexGuard<'_, State<T>>) {
        self.news.fetch_add(1, Ordering::Release);
        let somebody_sleeps = state.sleeping > 0;
        drop(state);
        if somebody_sleeps {
            self.changed.notify_all();
        }
    }

    /// Hands in a rank's buffer for its next collective without waiting; the last rank to arrive computes the result.
    /// All ranks must call it in the same order with the same exchange and message size, and for sums with buffers of
    /// equal length. Returns [`RankFailure`] if a rank has left.
    pub fn give(
        &self,
        rank: usize,
        exchange: Exchange,
        message_bytes: u64,
        buffer: Vec<T>,
    ) -> Result<(), RankFailure> {
        let mut state = self.lock();
        if let Some(broken) = &state.broken {
            return Err(broken.clone());
        }
        let number = state.given[rank];
        state.given[rank] += 1;
        let at = (number - state.before) as usize;
        if at == state.rounds.len() {
            let buffers = vec![Vec::new(); self.ranks];
            let (arrived, fetched, done, last_arrival, end) = (0, 0, false, 0, 0);
            state.rounds.push_back(Round { buffers, arrived, fetched, done, last_arrival, end });
        }
        let round = &mut state.rounds[at];
        round.buffers[rank] = buffer;
        round.arrived += 1;
        if round.arrived < self.ranks {
            return Ok(());
        }
        let arrived = self.clock.now();
        let mut buffers = std::mem::take(&mut round.buffers);
        let complete_at = match &self.link {
            Some(link) => state.occupancy.issue(arrived, exchange.link_ns(link, message_bytes)),
            None => arrived,
        };
        // a large sum must not block ranks that give to the next collective
        drop(state);
        exchange.apply(&mut buffers);
        let mut state = self.lock();
        let at = (number - state.before) as usize;
        let round = &mut state.rounds[at];
        (round.buffers, round.done) = (buffers, true);
        (round.last_arrival, round.end) = (arrived, complete_at.max(self.clock.now()));
        self.notify(state);
        Ok(())
    }

    /// Returns the result of the oldest collective that the rank has given to and not taken from; blocks until all
    /// ranks have arrived and the link time is over. Returns [`RankFailure`] if a rank has left.
    pub fn take(&self, rank: usize) -> Result<Exchanged<T>, RankFailure> {
        let exchanged = self.until(|state| {
            let at = (state.fetched[rank] - state.before) as usize;
            let round = state.rounds.get_mut(at).filter(|round| round.done)?;
            let buffer = std::mem::take(&mut round.buffers[rank]);
            round.fetched += 1;
            let exchanged = Exchanged { buffer, last_arrival: round.last_arrival, end: round.end };
            state.fetched[rank] += 1;
            while state.rounds.front().is_some_and(|round| round.fetched == self.ranks) {
                state.rounds.pop_front();
                state.before += 1;
            }
            Some(exchanged)
        })?;
        if self.link.is_some() {
            self.clock.sleep_until(exchanged.end, self.early_ns);
        }
        Ok(exchanged)
    }

    /// Waits until `done` returns a value; spins without the lock before it sleeps.
    fn until<R>(&self, mut done: impl FnMut(&mut State<T>) -> Option<R>) -> Result<R, RankFailure> {
        loop {
            let seen = self.news.load(Ordering::Acquire);
            let mut state = self.lock();
            if let Some(result) = done(&mut state) {
                return Ok(result);
            }
            if let Some(broken) = &state.broken {
                return Err(broken.clone());
            }
            drop(state);
            if self.spin_wait.spins(|| self.news.load(Ordering::Acquire) != seen) {
                continue;
            }
            let mut state = self.lock();
            state.sleeping += 1;
            while self.news.load(Ordering::Acquire) == seen {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.sleeping -= 1;
        }
    }

    pub fn barrier(&self) -> Result<(), RankFailure> {
        let mut state = self.lock();
        let mine = state.barriers;
        state.barrier_arrived += 1;
        if state.barrier_arrived == self.ranks {
            state.barrier_arrived = 0;
            state.barriers += 1;
            self.notify(state);
        } else {
            drop(state);
        }
        self.until(|state| (state.barriers != mine).then_some(()))
    }

    pub fn abort(&self, why: impl Into<String>) {
        let mut state = self.lock();
        state.broken.get_or_insert_with(|| RankFailure(why.into()));
        self.notify(state);
    }
}

/// Poll interval of the watchdog.
const WATCHDOG_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub struct ProgressMonitor {
    state: Mutex<ProgressState>,
}

#[derive(Debug)]
struct ProgressState {
    latest: Instant,
    phase: String,
    ranks: BTreeMap<usize, String>,
}

impl Default for ProgressMonitor {
    fn default() -> Self {
        let state =
            ProgressState { latest: Instant::now(), phase: String::new(), ranks: BTreeMap::new() };
        Self { state: Mutex::new(state) }
    }
}

impl ProgressMonitor {
    pub fn of_rank(&self, rank: usize, what: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.latest = Instant::now();
        state.ranks.insert(rank, what.to_owned());
    }

    pub fn of_run(&self, phase: Option<&str>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.latest = Instant::now();
        if let Some(phase) = phase {
            state.phase = phase.to_owned();
        }
    }

    /// Time since the latest progress.
    pub fn silence(&self) -> Duration {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).latest.elapsed()
    }

    /// Current activity: `sample 3/10; rank 0: decode step 17, rank 1: decode step 16`.
    pub fn describe(&self) -> String {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let ranks: Vec<String> =
            state.ranks.iter().map(|(rank, what)| format!("rank {rank}: {what}")).collect();
        let parts = [state.phase.clone(), ranks.join(", ")];
        let known: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        if known.is_empty() { "it had not begun".into() } else { known.join("; ") }
    }
}

/// Watches until the process ends. After `timeout` without progress, and a margin because the waits inside the run
/// have more precise messages, calls `end` once with a message.
pub fn start_watchdog(
    progress: Arc<ProgressMonitor>,
    timeout: Duration,
    end: impl FnOnce(String) + Send + 'static,
) {
    let limit = timeout + (timeout / 4).min(Duration::from_secs(15));
    // without a thread there is no watchdog, but the run's own waits still time out
    let _ = std::thread::Builder::new().name("watchdog".into()).spawn(move || {
        while progress.silence() <= limit {
            std::thread::sleep(WATCHDOG_INTERVAL.min(limit / 4));
        }
        end(format!(
            "no progress for {:.0} s ({}); ending the run (raise the limit with --timeout)",
            progress.silence().as_secs_f64(),
            progress.describe()
        ));
    });
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Gives and takes at once.
    fn exchange(
        group: &RankGroup,
        rank: usize,
        bytes: u64,
        buffer: Vec<f32>,
    ) -> Result<Exchanged, RankFailure> {
        group.give(rank, Exchange::AllReduce, bytes, buffer)?;
        group.take(rank)
    }

    fn run(ranks: usize, spin_wait: SpinWait, rounds: usize) -> Vec<Vec<Vec<f32>>> {
        let link = None;
        let group: RankGroup = RankGroup::new(ranks, link, spin_wait, MonotonicClock::start());
        let group = &group;
        thread::scope(|scope| {
            let handles: Vec<_> = (0..ranks)
                .map(|rank| {
                    scope.spawn(move || {
                        (0..rounds)
                            .map(|round| {
                                let mine = vec![(rank * 10 + round) as f32 + 0.1; 5];
                                exchange(group, rank, 4, mine).unwrap().buffer
                            })
                            .collect::<Vec<_>>()
                    })
                })
                .collect();
            handles.into_iter().map(|h| h.join().unwrap()).collect()
        })
    }

    #[test]
    fn every_rank_gets_the_same_sum_round_after_round() {
        for spin_wait in [SpinWait::default(), SpinWait::with_own_core()] {
            let results = run(4, spin_wait, 50);
            for round in 0..50 {
                let mut wanted = 0.1 + round as f32;
                for rank in 1..4 {
                    wanted += (rank * 10 + round) as f32 + 0.1;
                }
                for rank in &results {
                    assert_eq!(rank[round], vec![wanted; 5]);
                }
            }
        }
    }

    /// A rank may be several collectives ahead of another, and gets their results in order.
    #[test]
    fn a_rank_gives_to_several_before_it_takes_from_the_first() {
        let group: RankGroup = RankGroup::new(2, None, SpinWait::default(), MonotonicClock::start());
        for round in 0..5 {
            group.give(0, Exchange::AllReduce, 4, vec![round as f32]).unwrap();
        }
        for round in 0..5 {
            let there = exchange(&group, 1, 4, vec![0.5]).unwrap();
            assert_eq!(there.buffer, [round as f32 + 0.5]);
            assert!(there.end >= there.last_arrival);
        }
        for round in 0..5 {
            assert_eq!(group.take(0).unwrap().buffer, [round as f32 + 0.5]);
        }
        assert!(group.lock().rounds.is_empty());
    }

    #[test]
    fn ranks_get_their_share_of_a_sum_and_together_all_of_it() {
        for (rows, ranks) in [(8, 4), (5, 4), (3, 4), (1, 3), (7, 1), (0, 2)] {
            let columns = 3;
            let given = |rank: usize| (0..rows * columns).map(move |at| (at * (rank + 1)) as f32);
            let sum: Vec<f32> =
                (0..rows * columns).map(|at| (at * ranks * (ranks + 1) / 2) as f32).collect();
            let mut buffers: Vec<Vec<f32>> = (0..ranks).map(|rank| given(rank).collect()).collect();
            Exchange::ReduceScatter { columns }.apply(&mut buffers);
            for (rank, share) in buffers.iter().enumerate() {
                let own = Rows::share(rows, rank as u32, ranks as u32);
                assert_eq!(share, &sum[own.start * columns..own.end * columns], "{rows} over {ranks}");
            }
            Exchange::AllGather.apply(&mut buffers);
            assert!(buffers.iter().all(|whole| *whole == sum), "{rows} over {ranks}");
        }
    }

    #[test]
    fn halves_of_an_all_reduce_take_half_its_time_on_the_link() {
        let link = EmulatedLink::Formula { alpha_us: 10.0, gb_s: 1.0 };
        let takes = |exchange: Exchange| exchange.link_ns(&link, 1_000_000);
        assert_eq!(takes(Exchange::AllReduce), 1_010_000);
        assert_eq!(takes(Exchange::ReduceScatter { columns: 4 }), 510_000);
        assert_eq!(takes(Exchange::AllGather), 510_000);
    }

    #[test]
    fn an_emulated_link_delays_completion() {
        let clock = MonotonicClock::start();
        let group: RankGroup = RankGroup::new(
            1,
            Some(EmulatedLink::Formula { alpha_us: 2_000.0, gb_s: 1.0 }),
            SpinWait::default(),
            clock,
        );
        let before = clock.now();
        let reduced = exchange(&group, 0, 32, vec![1.0; 8]).unwrap();
        assert!(clock.now() - before >= 2_000_000);
        assert!(reduced.last_arrival - before < 2_000_000);
    }

    #[test]
    fn a_dead_rank_ends_the_others_waits() {
        let group: RankGroup = RankGroup::new(2, None, SpinWait::default(), MonotonicClock::start());
        thread::scope(|scope| {
            let waits = scope.spawn(|| exchange(&group, 0, 4, vec![1.0]));
            let waits_too = scope.spawn(|| group.barrier());
            group.abort("rank 1 panicked");
            assert_eq!(waits.join().unwrap().unwrap_err(), RankFailure("rank 1 panicked".into()));
            assert!(waits_too.join().unwrap().is_err());
        });
        assert!(exchange(&group, 1, 4, vec![1.0]).is_err());
    }

    #[test]
    fn it_tells_what_every_rank_was_doing() {
        let progress = ProgressMonitor::default();
        assert_eq!(progress.describe(), "it had not begun");
        std::thread::sleep(Duration::from_millis(30));
        assert!(progress.silence() >= Duration::from_millis(30));
        progress.of_run(Some("sample 3/10"));
        progress.of_rank(1, "prefill");
        progress.of_rank(0, "decode step 17");
        progress.of_run(None);
        assert!(progress.silence() < Duration::from_millis(30));
        assert_eq!(progress.describe(), "sample 3/10; rank 0: decode step 17, rank 1: prefill");
    }

    #[test]
    fn it_ends_what_stands_still_and_says_what_that_was() {
        let progress = Arc::new(ProgressMonitor::default());
        let (sender, abandoned) = crossbeam_channel::bounded(1);
        let timeout = Duration::from_millis(200);
        start_watchdog(Arc::clone(&progress), timeout, move |why| {
            let _ = sender.send(why);
        });
        for step in 0..8 {
            progress.of_rank(1, &format!("decode step {step}"));
            assert!(abandoned.recv_timeout(timeout / 4).is_err(), "it goes on");
        }
        let why = abandoned.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(why.starts_with("no progress for 0 s (rank 1: decode step 7); ending the run"), "{why}");
    }
}
