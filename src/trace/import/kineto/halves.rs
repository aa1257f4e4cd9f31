//! Begin and end events (ph B, E), joined to complete events. Those of a thread nest; PyTorch's profiler writes none, but
//! tools that merge or filter traces do.

use std::collections::HashMap;

use super::event::{EventClass, TraceEvent};
use super::json::{Cursor, JsonError, nanoseconds};
use super::table::EventTable;

/// A begin or end event.
#[derive(Clone, Copy)]
struct Half<'a> {
    time_ns: i64,
    /// Offset in the file.
    place: u64,
    event: TraceEvent<'a>,
    /// JSON of the event.
    text: &'a [u8],
}

impl EventTable {
    /// Joins the begin and end events of each thread to complete events; those without a partner are ignored.
    pub(super) fn join_halves(&mut self) {
        let halves = std::mem::take(&mut self.halves);
        let (mut timed, mut unpaired): (Vec<Half<'_>>, Vec<TraceEvent<'_>>) = Default::default();
        for (place, text) in &halves {
            let event = TraceEvent::read(&mut Cursor::new(text, 0), |_| true).unwrap_or_default();
            match event.start.and_then(|start| nanoseconds(start).ok()) {
                Some(time_ns) => timed.push(Half { time_ns, place: *place, event, text }),
                None => unpaired.push(event),
            }
        }
        timed.sort_unstable_by_key(|half| (half.time_ns, half.place));
        let mut open: HashMap<[&[u8]; 2], Vec<Half<'_>>> = HashMap::new();
        for half in timed {
            let begun = open.entry([half.event.pid, half.event.tid]).or_default();
            if half.event.phase == Some(b"B") {
                begun.push(half);
                continue;
            }
            let Some(begin) = begun.pop() else {
                unpaired.push(half.event);
                continue;
            };
            // the two count as one event
            self.events -= 1;
            let length = half.time_ns.saturating_sub(begin.time_ns);
            let duration = format!("{}.{:03}", length / 1000, length % 1000);
            let whole = TraceEvent { duration: Some(duration.as_bytes()), ..begin.event };
            if self.keep_joined(&whole, begin.text, begin.place).is_err() {
                self.note("event", "broken arguments");
            }
        }
        unpaired.extend(open.into_values().flatten().map(|half| half.event));
        for event in unpaired {
            let phase = event.phase.and_then(|phase| phase.first()).copied().unwrap_or(b'B');
            *self.phases.entry(phase).or_default() += 1;
        }
    }

    fn keep_joined(
        &mut self,
        event: &TraceEvent<'_>,
        bytes: &[u8],
        place: u64,
    ) -> Result<(), JsonError> {
        let Some(category) = event.category else { return self.keep_uncategorised(event, bytes) };
        let found = self.category(category);
        match self.categories[found].class {
            EventClass::Other => self.categories[found].ignored += 1,
            class => self.keep(event, class, bytes, place)?,
        }
        Ok(())
    }
}
