//! Events of a window of a trace, as the data of the page's timeline.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::analysis::StepSummary;
use base::error::{Error, Result};
use base::text::{fitting_name, latency, printable};
use plan::Lane;
use trace::overlap::intervals::difference;
use trace::overlap::{Lanes, Selection, SpanRuns};
use trace::{OperationInfo, Span, Trace};

/// Maximum GPU events and ranges of a page: about 3 MB.
pub const MOST_EVENTS: usize = 180_000;

/// Maximum GPU events of a window that the user did not choose.
const DEFAULT_EVENTS: usize = 60_000;

/// Steps of a window that the user did not choose.
const DEFAULT_STEPS: usize = 3;

/// Maximum characters of a name; some kernels are named by kilobytes of template arguments.
const MOST_LETTERS: usize = 1_000;

/// Characters of the label inside an event, if its name is longer.
const LABEL: usize = 60;

/// Part of a trace on the timeline (ns after the trace's first start), and its description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownPart {
    pub from_ns: i64,
    pub to_ns: i64,
    pub words: String,
}

/// Data of the timeline. Times in ns after the trace's first start.
#[derive(Debug, Default, Serialize)]
pub struct TimelineData {
    from: i64,
    to: i64,
    operations: Vec<TimelineOperation>,
    names: Vec<String>,
    rows: Vec<TimelineRow>,
    /// Exposed intervals of communication by rank.
    exposed: BTreeMap<u32, Vec<(i64, i64)>>,
    steps: Vec<TimelineStep>,
    #[serde(skip)]
    pub events: usize,
    /// Ranges that the page has no room for.
    #[serde(skip)]
    pub ranges_left_out: usize,
}

#[derive(Debug, Default, Serialize)]
struct TimelineOperation {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    short: Option<String>,
    kind: String,
    /// `compute`, `comm`, `memory` or `other`.
    class: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    shape: String,
}

/// Events of one stream, or ranges of one depth of a thread, by start.
#[derive(Debug, Default, Serialize)]
struct TimelineRow {
    rank: u32,
    name: String,
    host: bool,
    /// Start of the first event, then differences.
    starts: Vec<i64>,
    lengths: Vec<i64>,
    /// Operation, or name of a range.
    operations: Vec<u32>,
    /// Time until the last rank arrived, of collectives; empty if unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waited: Vec<i64>,
}

#[derive(Debug, Serialize)]
struct TimelineStep {
    name: String,
    from: i64,
    to: i64,
}

impl ShownPart {
    /// The `chosen` window, or a few steps in the middle of the selection. Returns an input error if the chosen one has
    /// more events than a page holds.
    pub fn from_trace(
        trace: &Trace,
        steps: &[StepSummary],
        selection: &Selection,
        chosen: Option<(i64, i64)>,
    ) -> Result<Self> {
        let starts = |window: Option<(i64, i64)>| {
            let window = Selection {
                from_ns: window.map(|w| w.0).or(selection.from_ns),
                to_ns: window.map(|w| w.1).or(selection.to_ns),
                ..if window.is_some() { Selection::default() } else { *selection }
            };
            let runs = SpanRuns::new(trace, &window);
            let mut events: Vec<(i64, i64)> = Vec::new();
            runs.each(runs.by_rank.iter().flatten(), |span, _| {
                let event = (span.start_ns - runs.origin, span.end_ns - runs.origin);
                // one that reaches two selected parts is one event
                if events.last() != Some(&event) {
                    events.push(event);
                }
            });
            events.sort_unstable();
            events
        };
        if let Some(window) = chosen {
            let events = starts(Some(window)).len();
            if events > MOST_EVENTS {
                return Err(Error::input_help(
                    format!("{events} GPU events selected; a page holds {MOST_EVENTS}"),
                    "choose one step with --step, or less time with --from and --to",
                ));
            }
            return Ok(Self::new(window, "the selected part"));
        }
        let middle = steps.len() / 2;
        for count in (1..=DEFAULT_STEPS.min(steps.len())).rev() {
            let first = middle.saturating_sub(count / 2).min(steps.len() - count);
            let shown = &steps[first..first + count];
            let is_row = shown.windows(2).all(|pair| pair[0].end_ns <= pair[1].end_ns);
            let window = (
                shown.iter().map(|step| step.start_ns).min().unwrap_or(0),
                shown.iter().map(|step| step.end_ns).max().unwrap_or(0),
            );
            if is_row && starts(Some(window)).len() <= DEFAULT_EVENTS {
                let names: Vec<String> = shown.iter().map(step_name).collect();
                let words = match &names[..] {
                    [one] => format!("{one} of {}", steps.len()),
                    [one, .., last] => format!("{one} to {last}, {count} of {} steps", steps.len()),
                    [] => String::new(),
                };
                return Ok(Self::new(window, &words));
            }
        }
        let (events, words) = match steps.get(middle) {
            Some(step) => (
                starts(Some((step.start_ns, step.end_ns))),
                format!("the first part of {}", step_name(step)),
            ),
            None => (starts(None), "the middle".to_owned()),
        };
        let ends = events.first().zip(events.iter().map(|event| event.1).max());
        let (first, to) = ends.ok_or_else(|| Error::input("the selection is empty"))?;
        if events.len() <= DEFAULT_EVENTS {
            return Ok(Self::new((first.0.max(0), to), "everything"));
        }
        let first = if steps.is_empty() { (events.len() - DEFAULT_EVENTS) / 2 } else { 0 };
        Ok(Self::new((events[first].0, events[first + DEFAULT_EVENTS].0), &words))
    }

    fn new((from_ns, to_ns): (i64, i64), what: &str) -> Self {
        let us = |ns: i64| latency(ns as f64 / 1e3);
        let words =
            format!("{what}: {} from {} after the first start", us(to_ns - from_ns), us(from_ns));
        Self { from_ns, to_ns: to_ns.max(from_ns + 1), words }
    }
}

fn step_name(step: &StepSummary) -> String {
    match (&step.name, step.phase) {
        (Some(name), _) => readable(name),
        (None, "prefill") => "prefill".into(),
        (None, _) => format!("step {}", step.step),
    }
}

/// Name without characters that turn or hide text, cut to [`MOST_LETTERS`].
fn readable(name: &str) -> String {
    printable(name).chars().take(MOST_LETTERS).collect()
}

impl TimelineData {
    pub fn new(trace: &Trace, steps: &[StepSummary], shown: &ShownPart) -> Self {
        let window =
            Selection { from_ns: Some(shown.from_ns), to_ns: Some(shown.to_ns), ..Selection::default() };
        let runs = SpanRuns::new(trace, &window);
        let lanes = Lanes::from_runs(&runs);
        let mut operations = Operations { trace, runs: &runs, all: Vec::new(), places: HashMap::new() };
        let mut timeline = Self { from: shown.from_ns, to: shown.to_ns, ..Self::default() };
        let in_window = |step: &&StepSummary| step.start_ns < shown.to_ns && step.end_ns > shown.from_ns;
        timeline.steps = (steps.iter().filter(in_window))
            .map(|step| TimelineStep { name: step_name(step), from: step.start_ns, to: step.end_ns })
            .collect();
        for (at, rank) in runs.ranks.iter().enumerate() {
            let mut by_stream: BTreeMap<(u16, Lane), Vec<&Span>> = BTreeMap::new();
            runs.each(&runs.by_rank[at], |span, _| {
                let lane = if trace.meta.streams.is_empty() { span.lane } else { Lane::Compute };
                by_stream.entry((span.stream, lane)).or_default().push(span);
            });
            for ((stream, lane), mut spans) in by_stream {
                spans.sort_by_key(|span| span.start_ns);
                let name = match trace.meta.streams.get(usize::from(stream)) {
                    Some(stream) => stream.label(),
                    None => lane.as_str().to_owned(),
                };
                let mut row = TimelineRow { rank: *rank, name, ..TimelineRow::default() };
                for span in &spans {
                    row.push(span.start_ns - runs.origin, span.end_ns - span.start_ns);
                    row.operations.push(operations.place(span));
                    row.waited.push((span.last_arrival_ns.min(span.end_ns) - span.start_ns).max(0));
                }
                if row.waited.iter().all(|waited| *waited == 0) {
                    row.waited.clear();
                }
                timeline.events += spans.len();
                timeline.rows.push(row);
            }
            let exposed = difference(&lanes[at].comm, lanes[at].compute.union());
            let after_start = |(from, to)| (from - runs.origin, to - runs.origin);
            timeline.exposed.insert(*rank, exposed.into_iter().map(after_start).collect());
        }
        timeline.operations = operations.all;
        timeline.add_ranges(trace, runs.origin, (shown.from_ns, shown.to_ns));
        timeline
    }

    /// Adds host ranges below the streams of their rank, the outermost first, while there is room.
    fn add_ranges(&mut self, trace: &Trace, origin: i64, (from, to): (i64, i64)) {
        let at = |ns: i64| ns - origin;
        let is_shown = |range: &&trace::Range| {
            !range.on_device && at(range.start_ns) < to && at(range.end_ns) > from
        };
        let mut by_depth: BTreeMap<u16, usize> = BTreeMap::new();
        for range in trace.ranges.iter().filter(is_shown) {
            *by_depth.entry(range.depth).or_default() += 1;
        }
        let mut room = MOST_EVENTS.saturating_sub(self.events);
        let mut depths = 0;
        for (depth, count) in by_depth {
            match room.checked_sub(count).filter(|_| self.ranges_left_out == 0) {
                Some(left) => (room, depths) = (left, depth + 1),
                None => self.ranges_left_out += count,
            }
        }
        let mut names: HashMap<u32, u32> = HashMap::new();
        let mut rows: BTreeMap<(u32, u16, u16), TimelineRow> = BTreeMap::new();
        for range in trace.ranges.iter().filter(is_shown).filter(|range| range.depth < depths) {
            let name = *names.entry(range.name).or_insert_with(|| {
                let name = trace.meta.range_names.get(range.name as usize);
                self.names.push(readable(name.map_or("", String::as_str)));
                self.names.len() as u32 - 1
            });
            let row =
                rows.entry((range.rank, range.thread, range.depth)).or_insert_with(|| TimelineRow {
                    rank: range.rank,
                    name: format!("thread {}", range.thread),
                    host: true,
                    ..TimelineRow::default()
                });
            row.push(at(range.start_ns), range.end_ns - range.start_ns);
            row.operations.push(name);
        }
        self.rows.extend(rows.into_values());
        self.rows.sort_by_key(|row| (row.rank, row.host));
        for row in &mut self.rows {
            let mut last = 0;
            for start in &mut row.starts {
                (*start, last) = (*start - last, *start);
            }
        }
    }

    pub fn has_ranges(&self) -> bool {
        self.rows.iter().any(|row| row.host)
    }

    pub fn ranks(&self) -> impl Iterator<Item = u32> {
        self.exposed.keys().copied()
    }

    /// JSON for the inside of a `script` element: markup characters are escaped.
    pub fn json(&self) -> Result<String> {
        let json = serde_json::to_string(self).map_err(|e| Error::failed(e.to_string()))?;
        Ok(json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026"))
    }
}

impl TimelineRow {
    fn push(&mut self, start: i64, length: i64) {
        self.starts.push(start);
        self.lengths.push(length.max(0));
    }
}

/// Operations of the window, numbered as they appear.
struct Operations<'a> {
    trace: &'a Trace,
    runs: &'a SpanRuns<'a>,
    all: Vec<TimelineOperation>,
    places: HashMap<(u32, Lane), u32>,
}

impl Operations<'_> {
    fn place(&mut self, span: &Span) -> u32 {
        let (key, next) = ((span.operation, span.lane), self.all.len() as u32);
        let place = *self.places.entry(key).or_insert(next);
        if place == next {
            let operation = self.described(span);
            self.all.push(operation);
        }
        place
    }

    fn described(&self, span: &Span) -> TimelineOperation {
        let class = self.runs.class(span).as_str();
        let Some(info) = self.trace.operations.get(span.operation as usize) else {
            return TimelineOperation {
                name: "unknown".to_owned(),
                class,
                ..TimelineOperation::default()
            };
        };
        let name = readable(&info.name);
        // of own plans the end tells operations apart
        let short = match info.name.rsplit('/').next().filter(|_| self.trace.meta.spec.is_some()) {
            Some(last) => readable(last),
            None => fitting_name(&name, LABEL),
        };
        TimelineOperation {
            short: Some(short).filter(|short| *short != name),
            name,
            kind: info.kind.to_string(),
            class,
            bytes: self.bytes(info, span),
            group: self.group(info),
            shape: readable(&info.shape),
        }
    }

    /// Message size of a collective, or bytes written by a copy or fill.
    fn bytes(&self, info: &OperationInfo, span: &Span) -> Option<u64> {
        let planned = |step| info.cost.message_bytes.at(&step);
        let message = match &info.collective {
            Some(collective) => collective.message_bytes,
            None => self.trace.step(span).map(planned),
        };
        let copied = || Some(info.cost.bytes_written.fixed).filter(|_| info.kind.is_memory());
        message.filter(|bytes| *bytes > 0).or_else(|| copied().filter(|bytes| *bytes > 0))
    }

    fn group(&self, info: &OperationInfo) -> Option<String> {
        let group = self.trace.meta.groups.get(info.collective.as_ref()?.group? as usize)?;
        let size = match group.size {
            0 => String::new(),
            size => format!(" of {size} ranks"),
        };
        Some(readable(&format!("{}{size}", group.kind())))
    }
}
