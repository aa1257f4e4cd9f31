//! Buffer assignment from liveness: values share memory if that adds no dependency.
//!
//! A later value may reuse a buffer only if its writer already happens after the earlier value's writer
//! and all its readers, on both lanes. With two lanes, "happens after" is a pair of positions (a vector
//! clock), so the assignment costs O(operations x free buffers). An all-reduce in flight keeps both its
//! buffers.

use super::{Element, Lane, OpId, Plan, Rows, ValueId};

/// Index of a buffer in [`Buffers::buffers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u32);

/// Memory for `rows x columns` elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Buffer {
    /// Row count in a step: one row per new token or per sequence.
    pub rows: Rows,
    /// Columns per rank.
    pub columns: u32,
    pub element: Element,
    /// Group of the batch whose rows the buffer holds.
    pub group: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// All buffers that one rank needs for a step; values that are live at the same time never share
    /// one.
    pub buffers: Vec<Buffer>,
    /// Buffer of each value of the plan.
    pub of_value: Vec<BufferId>,
}

/// Number of completed operations per lane.
pub(crate) type Clock = [u32; 2];

impl Plan {
    /// For each operation: its lane, its position on that lane (from 1), and the completed operations at
    /// its start.
    pub fn clocks(&self) -> Vec<(Lane, u32, Clock)> {
        let mut position = [0u32; 2];
        let mut clocks: Vec<(Lane, u32, Clock)> = Vec::with_capacity(self.operations.len());
        for (operation, waits) in self.operations.iter().zip(self.dependencies()) {
            let mut clock = [0; 2];
            for wait in waits {
                let (lane, at, before) = clocks[wait.index()];
                for (mine, theirs) in clock.iter_mut().zip(before) {
                    *mine = (*mine).max(theirs);
                }
                clock[lane as usize] = clock[lane as usize].max(at);
            }
            let lane = operation.lane;
            position[lane as usize] += 1;
            clocks.push((lane, position[lane as usize], clock));
        }
        clocks
    }

    /// True if `later` starts only after `earlier` has ended.
    pub fn happens_before(&self, earlier: OpId, later: OpId) -> bool {
        let clocks = self.clocks();
        let (lane, at, _) = clocks[earlier.index()];
        clocks[later.index()].2[lane as usize] >= at
    }

    /// Assigns buffers. The step's tokens and outputs never share theirs, because the next step's replay
    /// reads them.
    pub fn buffers(&self) -> Buffers {
        let clocks = self.clocks();
        let mut users: Vec<Vec<OpId>> = vec![Vec::new(); self.values.len()];
        for (index, operation) in self.operations.iter().enumerate() {
            for value in operation.reads.iter().chain(&operation.writes) {
                users[value.index()].push(OpId(index as u32));
            }
        }
        let mut buffers: Vec<Buffer> = Vec::new();
        // value most recently assigned to each buffer
        let mut occupant: Vec<ValueId> = Vec::new();
        let mut of_value = vec![BufferId(0); self.values.len()];
        let mut place = |value: ValueId, writer: Option<OpId>, occupant: &mut Vec<ValueId>| {
            let v = &self.values[value.index()];
            let wanted = Buffer { rows: v.rows, columns: v.columns, element: v.element, group: v.group };
            let free = |old: ValueId| {
                let Some(writer) = writer else { return false };
                let known = clocks[writer.index()].2;
                ![&self.tokens, &self.outputs, &self.logits].iter().any(|kept| kept.contains(&old))
                    && users[old.index()].iter().all(|user| {
                        let (lane, at, _) = clocks[user.index()];
                        *user != writer && known[lane as usize] >= at
                    })
            };
            let found = (0..buffers.len()).find(|&i| buffers[i] == wanted && free(occupant[i]));
            let id = found.unwrap_or_else(|| {
                buffers.push(wanted);
                occupant.push(value);
                buffers.len() - 1
            });
            occupant[id] = value;
            of_value[value.index()] = BufferId(id as u32);
        };
        for &tokens in &self.tokens {
            place(tokens, None, &mut occupant);
        }
        for (index, operation) in self.operations.iter().enumerate() {
            for &value in &operation.writes {
                place(value, Some(OpId(index as u32)), &mut occupant);
            }
        }
        Buffers { buffers, of_value }
    }
}
