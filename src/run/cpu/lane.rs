//! The comm lane of a rank: collectives under way, in order, and when each was on its way.
//!
//! No thread of its own stands behind it: a collective is handed in and goes on by itself
//! ([`crate::comm::Group`]), as one that a network's processor executes; the rank looks for the result where it
//! needs it.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::comm::{Broken, Exchange, Group};
use crate::recorder::{SpanRecorder, Started, start};
use plan::Lane;

/// Collectives of one rank.
#[derive(Debug)]
pub(super) struct CommLane {
    rank: usize,
    group: Arc<Group>,
    under_way: VecDeque<Posted>,
    /// What profilers call the lane: `rank 0 comm`.
    name: String,
    /// When the lane is free again: the end of the last collective (ns).
    free_at: i64,
    pub recorder: SpanRecorder,
}

/// A collective under way.
#[derive(Debug)]
struct Posted {
    operation: u32,
    /// When its operand was there, and when it was handed in (ns).
    ready: i64,
    posted: i64,
    /// The collective for profilers, where it is recorded; it ends as the collective is taken out of the lane.
    _range: Option<Started>,
}

/// A collective that has completed.
#[derive(Debug)]
pub(super) struct Completed {
    /// Index of its operation in the plan.
    pub operation: u32,
    /// When it ended (ns).
    pub end: i64,
    /// Its result: the sum over all ranks.
    pub buffer: Vec<f32>,
}

impl CommLane {
    /// The lane of a rank, with nothing under way.
    pub fn new(rank: u32, group: Arc<Group>) -> Self {
        let recorder = SpanRecorder::new(rank, Lane::Comm);
        let (name, under_way) = (format!("rank {rank} comm"), VecDeque::new());
        Self { rank: rank as usize, group, under_way, name, free_at: 0, recorder }
    }

    /// Hands in a buffer, a message of so many bytes, whose numbers were there at `ready`; now is `posted` (ns).
    /// `named`: the operation's name, where it is recorded.
    pub fn post(
        &mut self,
        (operation, named): (u32, Option<&str>),
        [ready, posted]: [i64; 2],
        exchange: Exchange,
        bytes: u64,
        buffer: Vec<f32>,
    ) -> Result<(), Broken> {
        let _range = named.map(|named| start(&self.name, named));
        self.under_way.push_back(Posted { operation, ready, posted, _range });
        self.group.give(self.rank, exchange, bytes, buffer)
    }

    /// Waits for the first collective that is under way.
    pub fn complete(&mut self) -> Result<Completed, Broken> {
        let exchanged = self.group.take(self.rank)?;
        let Some(Posted { operation, ready, posted, .. }) = self.under_way.pop_front() else {
            return Err(Broken("no collective is under way".into()));
        };
        // one at a time: the lane takes it up when it has ended the one before
        let start = posted.max(self.free_at);
        let end = exchanged.end.max(start);
        self.recorder.record(operation, ready, start, end, exchanged.last_arrival.max(start));
        self.free_at = end;
        Ok(Completed { operation, end, buffer: exchanged.buffer })
    }
}
