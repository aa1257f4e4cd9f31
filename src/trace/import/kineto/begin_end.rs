//! Begin and end events (ph B, E), joined to complete events. Those of a thread nest; PyTorch's profiler writes none, but
//! tools that merge or filter traces do.

use std::collections::HashMap;

use super::event::{EventClass, TraceEvent};
use super::json::{Cursor, JsonError, nanoseconds};
use super::table::EventTable;

#[derive(Clone, Copy)]
struct BeginOrEnd<'a> {
    time_ns: i64,
    /// Offset in the file.
    place: u64,
    event: TraceEvent<'a>,
    json: &'a [u8],
}

impl EventTable {
    /// Joins the begin and end events of each thread to complete events; those without a partner are ignored.
    pub(super) fn join_begin_end(&mut self) {
        let events = std::mem::take(&mut self.begin_end);
        let (mut timed, mut unpaired) = (Vec::new(), Vec::new());
        for (place, json) in &events {
            let event = TraceEvent::read(&mut Cursor::new(json, 0), |_| true).unwrap_or_default();
            match event.start.and_then(|start| nanoseconds(start).ok()) {
                Some(time_ns) => timed.push(BeginOrEnd { time_ns, place: *place, event, json }),
                None => unpaired.push(event),
            }
        }
        timed.sort_unstable_by_key(|event| (event.time_ns, event.place));
        let mut open: HashMap<[&[u8]; 2], Vec<BeginOrEnd<'_>>> = HashMap::new();
        for timed in timed {
            let begun = open.entry([timed.event.pid, timed.event.tid]).or_default();
            if timed.event.phase == Some(b"B") {
                begun.push(timed);
                continue;
            }
            let Some(begin) = begun.pop() else {
                unpaired.push(timed.event);
                continue;
            };
            // the two count as one event
            self.events -= 1;
            let length = timed.time_ns.saturating_sub(begin.time_ns);
            let duration = format!("{}.{:03}", length / 1000, length % 1000);
            let whole = TraceEvent { duration: Some(duration.as_bytes()), ..begin.event };
            if self.keep_joined(&whole, begin.json, begin.place).is_err() {
                self.note("event", "broken arguments");
            }
        }
        unpaired.extend(open.into_values().flatten().map(|begin| begin.event));
        for event in unpaired {
            let phase = event.phase.and_then(|phase| phase.first()).copied().unwrap_or(b'B');
            *self.phases.entry(phase).or_default() += 1;
        }
    }

    fn keep_joined(&mut self, event: &TraceEvent<'_>, json: &[u8], place: u64) -> Result<(), JsonError> {
        let Some(category) = event.category else { return self.keep_uncategorised(event, json) };
        let found = self.category(category);
        match self.categories[found].class {
            EventClass::Other => self.categories[found].ignored += 1,
            class => self.keep(event, class, json, place)?,
        }
        Ok(())
    }
}
