//! Comm lane of a rank: collectives in flight, in order, with their times. The lane has no thread of its own: a
//! posted collective completes in [`crate::comm::Group`], and the rank fetches the result when it needs it.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::comm::{Broken, Exchange, Group};
use crate::recorder::{SpanRecorder, Started, start};
use plan::Lane;

#[derive(Debug)]
pub(super) struct CommLane {
    rank: usize,
    group: Arc<Group>,
    under_way: VecDeque<Posted>,
    name: String,
    /// End of the last collective (ns).
    free_at: i64,
    pub recorder: SpanRecorder,
}

#[derive(Debug)]
struct Posted {
    operation: u32,
    /// Times at which the operand was ready and the collective was posted (ns).
    ready: i64,
    posted: i64,
    /// Profiler range, if recorded; ends when the collective is removed from the lane.
    _range: Option<Started>,
}

#[derive(Debug)]
pub(super) struct Completed {
    pub operation: u32,
    /// End time (ns).
    pub end: i64,
    pub buffer: Vec<f32>,
}

impl CommLane {
    pub fn new(rank: u32, group: Arc<Group>) -> Self {
        let recorder = SpanRecorder::new(rank, Lane::Comm);
        let (name, under_way) = (format!("rank {rank} comm"), VecDeque::new());
        Self { rank: rank as usize, group, under_way, name, free_at: 0, recorder }
    }

    /// Posts a collective with a message of `bytes` bytes, whose operand was ready at `ready`, at time `posted` (ns).
    /// `named` is the operation's name if it is recorded.
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

    pub fn complete(&mut self) -> Result<Completed, Broken> {
        let exchanged = self.group.take(self.rank)?;
        let Some(Posted { operation, ready, posted, .. }) = self.under_way.pop_front() else {
            return Err(Broken("no collective is under way".into()));
        };
        // the lane starts a collective when the one before it has ended
        let start = posted.max(self.free_at);
        let end = exchanged.end.max(start);
        self.recorder.record(operation, ready, start, end, exchanged.last_arrival.max(start));
        self.free_at = end;
        Ok(Completed { operation, end, buffer: exchanged.buffer })
    }
}
