//! Collectives and barrier between the ranks of one process.
//!
//! Buffers change hands instead of being shared: a rank's comm thread gives its summand away and
//! gets a buffer with the sum back, so there is nothing to race on. The last rank to arrive sums in
//! rank order (so results are the same bits in every run and on every rank) and wakes the others:
//! one hand-over per all-reduce. Cost: `(2 tp - 1) x bytes` read and as many written by one thread,
//! about 1 us for a decode step's message.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::link::{EmulatedLink, Occupancy};
use crate::plan::Rows;
use crate::run::recorder::Clock;

/// Another rank died; nobody will arrive any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Broken(pub String);

/// What ranks do with what each of them gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// Every rank gets the sum.
    AllReduce,
    /// Every rank gets its share of the rows of the sum, each of so many columns ([`Rows::share`]).
    ReduceScatter {
        /// How many columns a row has.
        columns: usize,
    },
    /// Every rank gets what all gave, one behind the other in rank order.
    AllGather,
}

impl Exchange {
    /// The name in words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AllReduce => "all-reduce",
            Self::ReduceScatter { .. } => "reduce-scatter",
            Self::AllGather => "all-gather",
        }
    }

    /// How long it takes on a link (ns), of a message of so many bytes: reduce-scatter and all-gather are the two halves
    /// of an all-reduce.
    pub fn link_ns(self, link: &EmulatedLink, message: u64) -> i64 {
        let us = match self {
            Self::AllReduce => link.us(message),
            Self::ReduceScatter { .. } | Self::AllGather => link.half_us(message),
        };
        (us * 1e3).round() as i64
    }

    /// Makes of what the ranks gave what they get, both in rank order.
    fn apply(self, buffers: &mut [Vec<f32>]) {
        let ranks = buffers.len() as u32;
        let Some((first, others)) = buffers.split_first_mut() else { return };
        if self == Self::AllGather {
            others.iter().for_each(|other| first.extend_from_slice(other));
        } else {
            for other in others.iter() {
                for (sum, summand) in first.iter_mut().zip(other) {
                    *sum += summand;
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

/// A completed collective as one rank sees it.
#[derive(Debug)]
pub struct Exchanged {
    /// What the rank got, in memory that one of the ranks gave.
    pub buffer: Vec<f32>,
    /// When the last rank arrived (ns).
    pub last_arrival: i64,
}

/// The ranks of one process.
#[derive(Debug)]
pub struct Group {
    ranks: usize,
    clock: Clock,
    link: Option<EmulatedLink>,
    /// How much earlier than the link's completion a sleep must end to be in time (ns).
    early_ns: i64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// What the ranks have given to the collective under way, by rank.
    given: Vec<Option<Vec<f32>>>,
    arrived: usize,
    /// How many collectives have completed so far.
    completed: u64,
    /// When the last rank arrived at the last collective that completed (ns).
    last_arrival: i64,
    complete_at: i64,
    /// Results not yet fetched, by rank.
    results: Vec<Option<Vec<f32>>>,
    occupancy: Occupancy,
    barrier_arrived: usize,
    barriers: u64,
    broken: Option<Broken>,
}

impl Group {
    /// A group of `ranks` ranks; with a link, every collective takes at least the link's time.
    pub fn new(ranks: usize, link: Option<EmulatedLink>, clock: Clock) -> Self {
        let empty = || (0..ranks).map(|_| None).collect();
        let state = State { given: empty(), results: empty(), ..State::default() };
        let early_ns = if link.is_some() { clock.sleep_overshoot() } else { 0 };
        Self { ranks, clock, link, early_ns, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Exchanges `buffer`, whose message has so many bytes, with the other ranks; blocks until all have arrived and
    /// the link's time is over. Every rank must call with the same exchange and message, in the same order, and where
    /// sums are made with buffers of the same length. [`Broken`] where a rank has left, so that nothing can come of it.
    pub fn exchange(
        &self,
        rank: usize,
        exchange: Exchange,
        message_bytes: u64,
        buffer: Vec<f32>,
    ) -> Result<Exchanged, Broken> {
        let mut state = self.lock();
        if let Some(broken) = &state.broken {
            return Err(broken.clone());
        }
        let mine = state.completed;
        state.given[rank] = Some(buffer);
        state.arrived += 1;
        if state.arrived == self.ranks {
            let arrived = self.clock.now();
            let mut buffers: Vec<Vec<f32>> =
                state.given.iter_mut().map(|given| given.take().unwrap_or_default()).collect();
            exchange.apply(&mut buffers);
            for (result, buffer) in state.results.iter_mut().zip(buffers) {
                *result = Some(buffer);
            }
            state.complete_at = match &self.link {
                Some(link) => state.occupancy.issue(arrived, exchange.link_ns(link, message_bytes)),
                None => arrived,
            };
            state.last_arrival = arrived;
            state.arrived = 0;
            state.completed += 1;
            self.changed.notify_all();
        } else {
            while state.completed == mine {
                if let Some(broken) = &state.broken {
                    return Err(broken.clone());
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        let (last_arrival, complete_at) = (state.last_arrival, state.complete_at);
        let buffer = state.results[rank].take().unwrap_or_default();
        drop(state);
        if self.link.is_some() {
            self.clock.sleep_until(complete_at, self.early_ns);
        }
        Ok(Exchanged { buffer, last_arrival })
    }

    /// Blocks until every rank of the group has called it. [`Broken`] where a rank has left, so that not
    /// all can ever arrive.
    pub fn barrier(&self) -> Result<(), Broken> {
        let mut state = self.lock();
        let mine = state.barriers;
        state.barrier_arrived += 1;
        if state.barrier_arrived == self.ranks {
            state.barrier_arrived = 0;
            state.barriers += 1;
            self.changed.notify_all();
        }
        while state.barriers == mine {
            if let Some(broken) = &state.broken {
                return Err(broken.clone());
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    /// Tells every rank that one of them is gone: all present and future waits end with an error.
    pub fn abort(&self, why: impl Into<String>) {
        let mut state = self.lock();
        if state.broken.is_none() {
            state.broken = Some(Broken(why.into()));
        }
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn run(ranks: usize, link: Option<EmulatedLink>, rounds: usize) -> Vec<Vec<Vec<f32>>> {
        let group = Group::new(ranks, link, Clock::start());
        let group = &group;
        thread::scope(|scope| {
            let handles: Vec<_> = (0..ranks)
                .map(|rank| {
                    scope.spawn(move || {
                        (0..rounds)
                            .map(|round| {
                                let mine = vec![(rank * 10 + round) as f32 + 0.1; 5];
                                group.exchange(rank, Exchange::AllReduce, 4, mine).unwrap().buffer
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
        let results = run(4, None, 50);
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
        let clock = Clock::start();
        let group = Group::new(1, Some(EmulatedLink::Formula { alpha_us: 2_000.0, gb_s: 1.0 }), clock);
        let before = clock.now();
        let reduced = group.exchange(0, Exchange::AllReduce, 32, vec![1.0; 8]).unwrap();
        assert!(clock.now() - before >= 2_000_000);
        assert!(reduced.last_arrival - before < 2_000_000);
    }

    #[test]
    fn a_dead_rank_ends_the_others_waits() {
        let group = Group::new(2, None, Clock::start());
        thread::scope(|scope| {
            let waits = scope.spawn(|| group.exchange(0, Exchange::AllReduce, 4, vec![1.0]));
            let waits_too = scope.spawn(|| group.barrier());
            group.abort("rank 1 panicked");
            assert_eq!(waits.join().unwrap().unwrap_err(), Broken("rank 1 panicked".into()));
            assert!(waits_too.join().unwrap().is_err());
        });
        assert!(group.exchange(1, Exchange::AllReduce, 4, vec![1.0]).is_err());
    }
}
