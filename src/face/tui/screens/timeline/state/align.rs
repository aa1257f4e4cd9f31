//! Alignment of two stacked traces: both are at window time 0 at the same place of the same step.
//!
//! After every move, the traces realign at the step and place in view; the trace with the cursor does not move. Manual
//! alignment stops this until it is turned on again.

use std::sync::{Arc, PoisonError};

use super::index::TraceIndex;
use super::pane::Pane;
use super::panel::TimelinePanel;
use super::view::TimelineView;
use super::window::TimeWindow;
use crate::face::tui::format::ns;
use plan::Phase;
use study::analysis::StepAlignment;
use trace::Span;
use trace::overlap::StepKey;

/// Place in both aligned steps at window time 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Anchor {
    #[default]
    Start,
    /// Two layers in the middle.
    Middle,
    Layer(u32),
    /// Percent of the step's length, if it has no layer here.
    Share(u8),
}

impl Anchor {
    /// Place before the names of the steps: `layer 12 of `.
    fn words(self) -> String {
        match self {
            Self::Start => String::new(),
            Self::Middle => "middle of ".into(),
            Self::Layer(layer) => format!("layer {layer} of "),
            Self::Share(percent) => format!("{percent} % of "),
        }
    }
}

/// Two times (ns) with their unit, once if both have the same: `12.9 against 19.2 ms`.
pub fn two_times(a: i64, word: &str, b: i64) -> String {
    let [a, b] = [a, b].map(ns);
    let number = match (a.split_once(' '), b.split_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other => number,
        _ => a.as_str(),
    };
    format!("{number} {word} {b}")
}

/// Operation whose counterpart in the other trace is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CounterpartQuery {
    /// Pane of the operation.
    focus: usize,
    /// Its span (an index).
    span: usize,
    /// Step of the other trace (an index).
    there: usize,
}

/// Parts of a step that differ enough to realign, in percent.
const PART: u8 = 5;

impl TimelineView {
    /// Step of the other trace that is aligned with this step of a pane.
    pub(super) fn partner(&self, pane: usize, key: StepKey) -> Option<usize> {
        self.alignment.partner(pane == 0, self.panes.get(pane)?.step_like(key)?)
    }

    /// Adds a trace below, replacing a second one. Both open on the same two layers in the middle of a decode step of
    /// typical length, or on the whole step if one has no layers.
    pub fn add(&mut self, index: Arc<TraceIndex>) {
        self.remove();
        self.panes.push(Pane::new(index));
        let keys = |pane: &Pane| pane.index.steps.iter().map(|step| step.key).collect::<Vec<_>>();
        let [above, below] = [&self.panes[0], &self.panes[1]].map(keys);
        self.alignment = StepAlignment::of_keys(above.iter().copied(), below.into_iter());
        let decode = |pair: &&(usize, usize)| above[pair.0].phase == Phase::Decode;
        let mut both: Vec<_> = self.alignment.pairs.iter().filter(decode).copied().collect();
        if both.is_empty() {
            both.clone_from(&self.alignment.pairs);
        }
        let typical = [&self.panes[0], &self.panes[1]].map(|pane| pane.index.typical_step);
        let (first, second) = match self.nearest_to_medians(both) {
            Some((first, second)) => (Some(first), Some(second)),
            None => (typical[0], typical[1]),
        };
        self.marks = [None; 2];
        self.selected = None;
        self.panes[0].line = self.panes[0].first_row();
        (self.panes[0].aligned, self.panes[1].aligned) = (first, second);
        let of_layers = self.panes.iter().map(|p| p.index.two_layers(p.aligned?));
        let layers: Option<Vec<TimeWindow>> = of_layers.collect();
        self.anchor = if layers.is_some() { Anchor::Middle } else { Anchor::Start };
        self.follows = true;
        let of_step = |p: &Pane| Some(p.index.steps.get(p.aligned?)?.window);
        let shown = layers.unwrap_or_else(|| self.panes.iter().filter_map(of_step).collect());
        self.show_aligned(shown.iter().map(TimeWindow::width).max());
        self.opened_width = self.window.width();
    }

    /// Pair of steps with the least sum of relative deviations from their traces' medians; of several, the one nearest to
    /// their middle.
    fn nearest_to_medians(&self, pairs: Vec<(usize, usize)>) -> Option<(usize, usize)> {
        let deviation = |pane: &Pane, step: usize| {
            let (length, median) = (step_length(pane, Some(step))?, typical_length(pane)?);
            Some(length.abs_diff(median) as f64 / median.max(1) as f64)
        };
        let of_pair = |(first, second): (usize, usize)| {
            let both = deviation(&self.panes[0], first).zip(deviation(&self.panes[1], second));
            both.map_or(0.0, |(a, b)| a + b)
        };
        let middle = pairs.len() / 2;
        let pairs = pairs.into_iter().enumerate();
        let order = |(at, pair): &(usize, (usize, usize))| (of_pair(*pair), at.abs_diff(middle));
        let nearest = pairs.min_by(|a, b| {
            let (a, b) = (order(a), order(b));
            a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
        });
        nearest.map(|(_, pair)| pair)
    }

    /// Adds a trace below the one that is being looked at: the window and the cursor stay, at the step under the cursor,
    /// unless that is the step on which a pair opens, or the new trace lacks it.
    pub fn add_here(&mut self, index: Arc<TraceIndex>) {
        self.remove();
        let looked = self.step_looked_at(0);
        let (window, time) = (self.window, self.time);
        let (line, place) = (self.panes[0].line, self.panes[0].place);
        self.add(index);
        let has_partner = looked.is_some_and(|step| self.alignment.partner(true, step).is_some());
        if !has_partner || looked == self.panes[0].aligned {
            return;
        }
        // window time was that of the trace
        let origin = self.panes[0].origin;
        (self.panes[0].line, self.panes[0].place) = (line, place);
        self.window = window.shifted(origin.saturating_neg()).within(self.bounds());
        self.time = time.saturating_sub(origin);
        // it has a partner
        let _ = self.align_here();
        self.history.clear();
    }

    /// Zooms to this much time from where the traces are aligned.
    pub(super) fn show_aligned(&mut self, width: Option<i64>) {
        self.align();
        self.history.clear();
        let width = width.unwrap_or_else(|| self.bounds().width());
        self.window = TimeWindow::new(0, width).within(self.bounds());
        for pane in &mut self.panes {
            pane.prefer_busy_row(self.window);
            match pane.aligned.filter(|_| self.anchor == Anchor::Start) {
                Some(step) => pane.point_in_step(step),
                None => pane.point_from(0),
            }
        }
        self.time = 0;
        self.follow();
    }

    /// Removes the lower trace, if there is one.
    pub fn remove(&mut self) {
        self.panes.truncate(1);
        self.focus = 0;
        (self.differences, self.left) = (None, None);
        self.forget_counterpart();
        self.follows = false;
        self.unpaired = None;
        self.anchor = Anchor::Start;
        self.trail.retain(|(pane, ..)| *pane == 0);
        if !matches!(self.panel, Some(TimelinePanel::Dependencies { .. })) {
            self.panel = None;
        }
        let origin = std::mem::take(&mut self.panes[0].origin);
        self.rebase(origin);
        self.history.clear();
        self.bound();
    }

    /// Aligns another step of the lower trace with the upper one; false if there is none.
    pub fn shift(&mut self, by: isize) -> bool {
        let Some(pane) = self.panes.get_mut(1) else { return false };
        let to = pane.aligned.and_then(|i| i.checked_add_signed(by));
        let Some(to) = to.filter(|i| *i < pane.index.steps.len()) else { return false };
        pane.aligned = Some(to);
        self.align();
        // the origin of the focused trace may have moved under the cursor
        let time = self.time;
        self.bound();
        for pane in &mut self.panes {
            pane.point_at(time);
        }
        true
    }

    pub fn switch(&mut self) {
        self.focus = (self.focus + 1) % self.panes.len();
        let time = self.time;
        self.pane_mut().point_at(time);
    }

    /// Alignment of two traces in words: `aligned: layer 12 of step 3 over step 3`, or `not aligned: ...` if the other
    /// trace lacks the step. With `short`, or if other steps drift, equal step names appear once.
    pub fn aligned_words(&self, short: bool, other: &str) -> String {
        let [first, second] = &self.panes[..] else { return String::new() };
        if let Some(key) = self.unpaired {
            let step = self.step_label(self.focus, key);
            return format!("not aligned: {other} has no {step}");
        }
        let step = |pane: &Pane| {
            let step = pane.aligned.and_then(|at| pane.index.steps.get(at));
            step.map_or("their starts".into(), |step| pane.index.step_label(step.key))
        };
        let drifts = self.drifts();
        let steps = match (step(first), step(second)) {
            (first, second) if first == second && (short || drifts) => first,
            (first, second) => format!("{first} over {second}"),
        };
        let drifts = if drifts { "; other steps drift" } else { "" };
        let fixed = if self.follows { "" } else { " (fixed)" };
        format!("aligned: {}{steps}{fixed}{drifts}", self.anchor.words())
    }

    /// True if the window shows steps besides the aligned ones, in one trace at another place than in the other.
    fn drifts(&self) -> bool {
        /// Distance at which a step counts as drifted, as a fraction of the window.
        const APART: u64 = 50;
        let apart = self.window.width().unsigned_abs() / APART;
        let in_window_time = |pane: usize, step: usize| {
            let pane = self.panes.get(pane)?;
            Some(pane.index.steps.get(step)?.window.shifted(pane.origin.saturating_neg()))
        };
        self.panes.iter().enumerate().any(|(at, pane)| {
            let (shown, steps) = (pane.window(self.window), &pane.index.steps);
            // a drift grows with the distance from the aligned step
            let first = pane.index.step_at(shown.from).unwrap_or(0);
            let last = steps.partition_point(|step| step.window.from < shown.to).saturating_sub(1);
            [first, last].into_iter().filter(|step| Some(*step) != pane.aligned).any(|step| {
                let own = in_window_time(at, step);
                let own = own.filter(|own| own.from < self.window.to && self.window.from < own.to);
                let other = self.alignment.partner(at == 0, step);
                let other = other.and_then(|other| in_window_time(1 - at, other));
                own.zip(other).is_some_and(|(own, other)| own.from.abs_diff(other.from) > apart)
            })
        })
    }

    /// Lengths and exposed communication of the aligned steps, the faster one first: `ladder step 1.49x faster: 12.9
    /// against 19.2 ms; exposed 2.92 against 10.2 ms`. Says so if the median steps contradict them. Empty unless two steps
    /// are aligned.
    pub fn compared_words(&self, names: &[String; 2]) -> String {
        let [first, second] = &self.panes[..] else { return String::new() };
        let step = |pane: &Pane| Some((step_length(pane, pane.aligned)?, exposed_in_step(pane)?));
        let both = step(first).zip(step(second)).filter(|_| self.unpaired.is_none());
        let Some((upper, lower)) = both else { return String::new() };
        let [upper_name, lower_name] = names;
        let (name, fast, slow) = match upper.0 <= lower.0 {
            true => (upper_name, upper, lower),
            false => (lower_name, lower, upper),
        };
        let ratio = |fast: i64, slow: i64| format!("{:.2}x", slow as f64 / fast.max(1) as f64);
        let other = if name == upper_name { lower_name } else { upper_name };
        let is_typical = |pane: &Pane| {
            let phase = |step: Option<usize>| Some(pane.index.steps.get(step?)?.key.phase);
            pane.ghost.is_none() && phase(pane.aligned) == phase(pane.index.typical_step)
        };
        let medians = typical_length(first).zip(typical_length(second));
        let medians = medians.filter(|_| is_typical(first) && is_typical(second));
        let medians = medians.map(|(a, b)| if name == upper_name { (b, a) } else { (a, b) });
        let contrary = medians.filter(|(fast, slow)| fast < slow).map(|(fast, slow)| ratio(fast, slow));
        let faster = match (ratio(fast.0, slow.0).as_str(), contrary) {
            ("1.00x", _) => format!("{upper_name} step as fast as {lower_name}"),
            (ratio, Some(by_median)) if by_median != "1.00x" => {
                format!("{name} step {ratio} faster (medians: {other} {by_median} faster)")
            }
            (ratio, _) => format!("{name} step {ratio} faster"),
        };
        let [lengths, exposed] =
            [(fast.0, slow.0), (fast.1, slow.1)].map(|(a, b)| two_times(a, "against", b));
        format!("{faster}: {lengths}; exposed {exposed}")
    }

    /// Display name of a step of a pane.
    pub fn step_label(&self, pane: usize, key: StepKey) -> String {
        self.panes.get(pane).map_or_else(|| key.label(), |pane| pane.index.step_label(key))
    }

    /// Pane with the cursor, and the other one.
    pub(super) fn pair(&self) -> Option<(usize, usize)> {
        let focus = self.focus.min(1);
        (self.panes.len() == 2).then_some((focus, 1 - focus))
    }

    /// Step in view: under the cursor if it is visible; else the aligned one if that is, or the one in the
    /// middle of the window.
    pub fn step_looked_at(&self, at: usize) -> Option<usize> {
        let pane = self.panes.get(at)?;
        let is_cursor = at == self.focus && self.window.contains(self.time);
        let shown = pane.window(self.window);
        let is_shown = |step: &usize| {
            let step = pane.index.steps.get(*step).map(|step| step.window);
            step.is_some_and(|step| step.from < shown.to && shown.from < step.to)
        };
        match pane.aligned.filter(|step| !is_cursor && is_shown(step)) {
            Some(aligned) => Some(aligned),
            None => pane.step(self.focus_time(), is_cursor),
        }
    }

    /// Puts each trace's anchor at window time 0, or its first work. If a step lacks the anchor, all align at their start.
    pub(super) fn align(&mut self) {
        let place = |pane: &Pane, anchor| {
            pane.aligned.map_or(Some(pane.index.zero), |step| pane.index.place_in_step(step, anchor))
        };
        if self.panes.iter().any(|pane| place(pane, self.anchor).is_none()) {
            self.anchor = Anchor::Start;
        }
        for pane in &mut self.panes {
            pane.origin = place(pane, self.anchor).unwrap_or(pane.index.zero);
        }
    }

    /// Aligns both traces at a place of these steps (of the pane with the cursor, of the other); the former does not
    /// move.
    fn align_at(&mut self, (focus, other): (usize, usize), steps: (usize, usize), anchor: Anchor) {
        let before = self.panes[focus].origin;
        (self.panes[focus].aligned, self.panes[other].aligned) = (Some(steps.0), Some(steps.1));
        self.anchor = anchor;
        self.align();
        self.rebase(before.saturating_sub(self.panes[focus].origin));
        self.bound();
    }

    /// Aligns both traces at the start of their step.
    pub(super) fn align_at_start(&mut self) {
        if std::mem::take(&mut self.anchor) != Anchor::Start {
            let before = self.pane().origin;
            self.align();
            self.rebase(before.saturating_sub(self.pane().origin));
            self.bound();
        }
    }

    /// Aligns both traces at the step under the cursor, matching step numbers. The trace with the cursor
    /// does not move. Returns the reason if it cannot.
    pub fn align_here(&mut self) -> Result<(), String> {
        let (focus, other) = self.pair().ok_or("only one trace is open")?;
        self.unpaired = None;
        let here = self.step_looked_at(focus).ok_or("there is no step under the cursor")?;
        let key = self.panes[focus].index.steps[here].key;
        let Some(there) = self.partner(focus, key) else {
            self.unpaired = Some(key);
            let which = if other == 0 { "upper" } else { "lower" };
            return Err(format!("the {which} trace has no {}", self.step_label(focus, key)));
        };
        let anchor = self.anchor_here((focus, here), (other, there));
        if anchor != self.anchor
            || (self.panes[focus].aligned, self.panes[other].aligned) != (Some(here), Some(there))
        {
            self.align_at((focus, other), (here, there), anchor);
        }
        Ok(())
    }

    fn is_aligned_here(&self) -> bool {
        self.pair().is_none_or(|(focus, _)| self.step_looked_at(focus) == self.panes[focus].aligned)
    }

    /// Place of a step to align at: its start if much of it is shown, else the layer in view.
    fn anchor_here(&self, (focus, here): (usize, usize), (other, there): (usize, usize)) -> Anchor {
        let index = &self.panes[focus].index;
        let Some(step) = index.steps.get(here) else { return Anchor::Start };
        if self.window.width() >= step.window.width() / 2 {
            return Anchor::Start;
        }
        let is_same =
            (self.panes[focus].aligned, self.panes[other].aligned) == (Some(here), Some(there));
        let shown = self.panes[focus].window(self.window);
        let is_middle = || {
            let middle = index.two_layers(here);
            middle.is_some_and(|middle| middle.from < shown.to && shown.from < middle.to)
        };
        if self.anchor == Anchor::Middle && is_same && is_middle() {
            return Anchor::Middle;
        }
        let time = self.panes[focus].own(self.focus_time());
        let cursor = self.panes[focus].span().filter(|_| self.window.contains(self.time));
        let layer = cursor.map_or_else(|| index.layer_at(time), |span| index.layer_of(span));
        let has = |layer: &u32| {
            let anchor = Anchor::Layer(*layer);
            [(focus, here), (other, there)]
                .iter()
                .all(|(pane, step)| self.panes[*pane].index.place_in_step(*step, anchor).is_some())
        };
        layer.filter(has).map_or_else(
            || {
                let into = time.saturating_sub(step.window.from).max(0) as f64;
                let percent = (100.0 * into / step.window.width() as f64).min(100.0) as u8;
                Anchor::Share(percent / PART * PART)
            },
            Anchor::Layer,
        )
    }

    /// Realigns after a move, and puts the other trace's cursor on the same operation, or at the same time.
    pub(super) fn follow_steps(&mut self) {
        let Some((focus, other)) = self.pair() else {
            self.unpaired = None;
            self.forget_counterpart();
            return;
        };
        match self.follows {
            // without a partner both stay where they are, and the header says so
            true => {
                // other bounds may move the window, and with it the step in view
                for _ in 0..3 {
                    if self.align_here().is_err() || self.is_aligned_here() {
                        break;
                    }
                }
            }
            false => self.unpaired = None,
        }
        let query = self.counterpart_query(focus, other);
        if query != self.counterpart_of {
            self.counterpart = query.and_then(|query| self.search_counterpart(query));
            self.counterpart_of = query;
        }
        let found = self.counterpart.and_then(|span| self.panes[other].index.find(span));
        let (time, pane) = (self.time, &mut self.panes[other]);
        match found.filter(|(line, _)| !pane.is_collapsed(pane.index.rank_of(*line))) {
            Some((line, place)) => pane.go_to(line, place),
            None => pane.point_at(time),
        }
    }

    /// Forgets the counterpart, as after a change of the open traces.
    pub(super) fn forget_counterpart(&mut self) {
        (self.counterpart, self.counterpart_of) = (None, None);
    }

    /// Span under the cursor, and the step of the other trace that is aligned with its own.
    fn counterpart_query(&self, focus: usize, other: usize) -> Option<CounterpartQuery> {
        let (own, their) = (&self.panes[focus], &self.panes[other]);
        let here = own.index.step_of(own.span()?)?;
        let key = own.index.steps.get(here)?.key;
        if self.unpaired == Some(key) {
            return None;
        }
        let there = match own.aligned == Some(here) {
            true => their.aligned?,
            false => self.partner(focus, key)?,
        };
        Some(CounterpartQuery { focus, span: own.span_index()?, there })
    }

    /// Span of the other trace (an index) with the operation of a span, in the aligned step: on the same rank if the trace
    /// has it, the same occurrence of the name.
    fn search_counterpart(&self, query: CounterpartQuery) -> Option<usize> {
        let (own, their) = (&self.panes[query.focus], &self.panes[1 - query.focus]);
        let span = own.index.trace.spans.get(query.span)?;
        let key = StepKey::from_span(span);
        let key_there = their.index.steps.get(query.there)?.key;
        let info = own.index.trace.operations.get(span.operation as usize)?;
        let names =
            if info.origins.is_empty() { std::slice::from_ref(&info.name) } else { &info.origins[..] };
        let is_same: Vec<bool> = (their.index.trace.operations.iter())
            .map(|other| match other.origins.is_empty() {
                true => other.name == info.name || names.contains(&other.name),
                false => other.origins.iter().any(|origin| names.contains(origin)),
            })
            .collect();
        let is_alike = |span: &Span| is_same.get(span.operation as usize).copied().unwrap_or(false);
        let rank = their.index.ranks.iter().find(|rank| rank.rank == span.rank);
        let rank = rank.or(their.index.ranks.first())?.rank;
        // the occurrence counts among operations of the own name
        let of_own = key_spans(&own.index.trace.spans, key.spans(&own.index.trace), span.rank);
        let before = of_own
            .filter(|(_, one)| one.operation == span.operation && one.start_ns < span.start_ns)
            .count();
        let mut found: Vec<(i64, usize)> =
            key_spans(&their.index.trace.spans, key_there.spans(&their.index.trace), rank)
                .filter(|(_, span)| is_alike(span))
                .map(|(at, span)| (span.start_ns, at))
                .collect();
        found.sort_unstable();
        found.get(before).map(|(_, at)| *at)
    }
}

/// Length of a step, from its first start to its last end on any rank (ns).
fn step_length(pane: &Pane, step: Option<usize>) -> Option<i64> {
    Some(pane.index.steps.get(step?)?.window.width())
}

/// Length of the step nearest to the median (ns).
fn typical_length(pane: &Pane) -> Option<i64> {
    step_length(pane, pane.index.typical_step)
}

/// Exposed communication of the aligned step (ns), mean of ranks: each from its own first start to its last end, as a rank
/// that is late still runs the step before.
fn exposed_in_step(pane: &Pane) -> Option<i64> {
    let (index, step) = (&pane.index, pane.aligned?);
    let mut kept = pane.exposed_in_step.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, exposed)) = kept.filter(|(known, _)| *known == step) {
        return Some(exposed);
    }
    let spans = index.trace.spans.get(index.steps.get(step)?.key.spans(&index.trace))?;
    let of_rank = |spans: &[Span]| {
        let rank = index.ranks.iter().find(|rank| rank.rank == spans[0].rank);
        let times = spans.iter().map(|span| (span.start_ns, span.end_ns));
        let extent = times.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        rank.zip(extent).map_or(0, |(rank, extent)| rank.exposed.within(extent))
    };
    let by_rank: Vec<i64> = spans.chunk_by(|a, b| a.rank == b.rank).map(of_rank).collect();
    let exposed = by_rank.iter().sum::<i64>() / by_rank.len().max(1) as i64;
    *kept = Some((step, exposed));
    Some(exposed)
}

/// Spans of a rank within the range of a step, with their indices; a step's spans are sorted by rank.
fn key_spans(
    spans: &[Span],
    range: std::ops::Range<usize>,
    rank: u32,
) -> impl Iterator<Item = (usize, &Span)> {
    let start = range.start;
    let of_step = spans.get(range).unwrap_or_default();
    let first = of_step.partition_point(|span| span.rank < rank);
    let of_rank = of_step[first..].iter().take_while(move |span| span.rank == rank);
    of_rank.enumerate().map(move |(at, span)| (start + first + at, span))
}
