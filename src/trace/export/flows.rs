//! Flow arrows from collectives to the spans that consume their results, from the plan's dependencies.

use crate::{OperationInfo, Span};
use plan::Lane;

/// Finds the consumers of collectives, one step of one rank at a time.
pub(super) struct Flows {
    /// Collectives that each operation waits for.
    awaited: Vec<Vec<u32>>,
    /// Index of each operation's span in the current step.
    place: Vec<Option<usize>>,
}

impl Flows {
    pub(super) fn new(operations: &[OperationInfo]) -> Self {
        let comm = |op: &u32| operations.get(*op as usize).is_some_and(|o| o.lane == Lane::Comm);
        Self {
            awaited: operations
                .iter()
                .map(|operation| operation.waits_for.iter().copied().filter(comm).collect())
                .collect(),
            place: vec![None; operations.len()],
        }
    }

    pub(super) fn of<'a>(&mut self, spans: &'a [Span]) -> Vec<(&'a Span, &'a Span)> {
        for (at, span) in spans.iter().enumerate().filter(|(_, span)| span.lane == Lane::Comm) {
            if let Some(place) = self.place.get_mut(span.operation as usize) {
                *place = Some(at);
            }
        }
        let mut pairs = Vec::new();
        // communication spans that wait for a collective wait for its buffer, not its result
        for consumer in spans.iter().filter(|span| span.lane == Lane::Compute) {
            for producer in self.awaited.get(consumer.operation as usize).into_iter().flatten() {
                let place = self.place.get(*producer as usize).copied().flatten();
                pairs.extend(place.and_then(|at| spans.get(at)).map(|producer| (producer, consumer)));
            }
        }
        for span in spans {
            if let Some(place) = self.place.get_mut(span.operation as usize) {
                *place = None;
            }
        }
        pairs
    }
}
