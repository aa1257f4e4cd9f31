//! Navigation: to typed targets, along dependencies and critical paths, to list rows, and back.

use super::index::{StepKey, StepRange, TraceLine};
use super::pane::Pane;
use super::panel::{DifferencePanelRow, TimelinePanel, difference_rows};
use super::view::TimelineView;
use super::window::TimeWindow;
use crate::face::tui::format;
use crate::face::tui::prelude::*;
use base::text::latency;
use plan::Phase;
use study::analysis::{self, Dependencies, OperationDifference};

impl TimelineView {
    /// Goes to a target; returns `Ok(true)` if it needs a search first.
    pub fn go(&mut self, target: JumpTarget) -> Result<bool, String> {
        let origin = self.ruler_origin().time;
        let shown = |ns: i64| ns.saturating_add(origin);
        let window = match target {
            JumpTarget::All => self.bounds(),
            JumpTarget::Marks => self
                .marked()
                .ok_or_else(|| "set both marks first: there is nothing between them".to_string())?,
            JumpTarget::Interval(from, to) => TimeWindow::new(shown(from), shown(to)),
            JumpTarget::Time(ns) => {
                let half = self.window.width() / 2;
                TimeWindow::new(shown(ns).saturating_sub(half), shown(ns).saturating_add(half))
            }
            JumpTarget::Around(ns) => {
                TimeWindow::new(self.time.saturating_sub(ns), self.time.saturating_add(ns))
            }
            JumpTarget::Prefill => {
                let (key, time) = (self.pane().step_key(self.time, true), self.pane().own(self.time));
                let steps = &self.pane().index.steps;
                let prefills = || {
                    let of_sample =
                        |step: &&StepRange| key.is_none_or(|key| key.sample == step.key.sample);
                    steps.iter().filter(|step| step.key.phase == Phase::Prefill).filter(of_sample)
                };
                let next = prefills().find(|step| step.window.from > time).or_else(|| prefills().next());
                let number = next.map_or(0, |step| step.key.step);
                return self.go_to_steps(Phase::Prefill, number, number).map(|()| false);
            }
            JumpTarget::Steps(first, last) => {
                // numbers of imported steps run through both phases
                let index = &self.pane().index;
                let has = |phase| {
                    index.steps.iter().any(|step| (step.key.step, step.key.phase) == (first, phase))
                };
                let is_prefill =
                    index.trace.meta.import.is_some() && !has(Phase::Decode) && has(Phase::Prefill);
                let phase = if is_prefill { Phase::Prefill } else { Phase::Decode };
                return self.go_to_steps(phase, first, last).map(|()| false);
            }
            JumpTarget::Name(name) => {
                self.search.line = FilterBox::new(name);
                (self.search.awaited, self.search.zoom) = (true, true);
                return Ok(true);
            }
        };
        if !self.show_window(window) {
            let bounds = self.pane().bounds();
            let since = |time: i64| format::ns(time.saturating_sub(origin));
            let (from, to) = (since(bounds.from), since(bounds.to));
            return Err(format!("outside the trace, which runs from {from} to {to}"));
        }
        if let JumpTarget::Time(ns) = target {
            self.pane_mut().point_at(shown(ns));
            self.follow();
        }
        Ok(false)
    }

    /// Opens at an interval of the upper trace (ns since its first start), with an empty history.
    pub fn show(&mut self, from: i64, to: i64) {
        let pane = &self.panes[0];
        let shown = |ns: i64| ns.saturating_add(pane.index.zero).saturating_sub(pane.origin);
        let window = TimeWindow::new(shown(from), shown(to));
        // outside the trace, the view stays where it opened
        self.show_window(window);
        self.history.clear();
    }

    /// Shows a window, with the cursor in it; false if nothing is there.
    fn show_window(&mut self, window: TimeWindow) -> bool {
        let bounds = self.bounds();
        if window.to <= bounds.from || window.from >= bounds.to {
            return false;
        }
        self.set(window);
        if !self.window.contains(self.time) {
            let from = self.window.from;
            self.pane_mut().point_from(from);
            self.follow();
        }
        true
    }

    /// Zooms to decode steps, preferring the sample under the cursor.
    fn go_to_steps(&mut self, phase: Phase, first: u32, last: u32) -> Result<(), String> {
        let pane = self.pane();
        let sample = pane.step_key(self.time, true).map_or(0, |key| key.sample);
        let find = |step| pane.step_like(StepKey { sample, phase, step });
        let Some(from) = find(first) else {
            let steps = pane.index.steps.iter().filter(|s| s.key.phase == phase).map(|s| s.key.step);
            return Err(match (steps.clone().min(), steps.max()) {
                (Some(low), Some(high)) if phase == Phase::Decode => {
                    format!("there is no step {first}: the trace has {low} to {high}")
                }
                _ => format!("the trace has no {}", StepKey { sample, phase, step: first }.label()),
            });
        };
        // as many as exist
        let to = (first..=last).rev().take(100_000).find_map(find).unwrap_or(from);
        self.fit_steps(from, to);
        Ok(())
    }

    /// Dependencies of the span under the cursor, or the reason there are none.
    fn dependencies(&self) -> Result<(usize, Dependencies), String> {
        let Some(span) = self.pane().span_index() else {
            return Err("there is no operation under the cursor".into());
        };
        Ok((span, analysis::dependencies(&self.pane().index.trace, span)))
    }

    /// Goes to the dependency of the operation under the cursor that finished last, or, with `after`, to
    /// the dependent that started first.
    pub fn follow_link(&mut self, after: bool) -> Result<(), String> {
        let (_, dependencies) = self.dependencies()?;
        let list = if after { &dependencies.after } else { &dependencies.before };
        // planned dependencies take precedence over lane order
        let first = match after {
            true => list.iter().find(|l| l.why != analysis::PathReason::Lane).or(list.first()),
            false => list.first(),
        };
        match first {
            Some(dependency) => {
                self.jump(dependency.span);
                Ok(())
            }
            None if after => Err("nothing in the trace waited for this".into()),
            None => Err("this waited for nothing in the trace".into()),
        }
    }

    pub fn list_dependencies(&mut self) -> Result<(), String> {
        let (span, dependencies) = self.dependencies()?;
        if dependencies.before.is_empty() && dependencies.after.is_empty() {
            return Err("this waited for nothing in the trace, and nothing waited for it".into());
        }
        self.panel = Some(TimelinePanel::Dependencies { span, dependencies, list: List::default() });
        Ok(())
    }

    /// Lists the dependencies of another operation after the cursor moved to it.
    pub fn refresh_dependencies(&mut self) {
        let Some(TimelinePanel::Dependencies { span: listed, .. }) = self.panel else { return };
        if self.pane().span_index().is_some_and(|span| span != listed)
            && let Ok((span, dependencies)) = self.dependencies()
        {
            let list = List::default();
            self.panel = Some(TimelinePanel::Dependencies { span, dependencies, list });
        }
    }

    /// Goes to a span of the focused trace and records the current place.
    pub fn jump(&mut self, span: usize) {
        self.remember();
        self.as_one_move(|view| view.go_to_span(span));
    }

    fn remember(&mut self) {
        let pane = self.pane();
        let Some(line) = pane.current() else { return };
        let here = (self.focus, line, pane.place);
        if self.trail.last() != Some(&here) {
            self.trail.push(here);
        }
    }

    fn go_to_span(&mut self, span: usize) {
        if let Some((line, place)) = self.pane().index.find(span) {
            self.go_to_place(line, place);
        }
    }

    /// Moves the cursor to an item of the focused trace, and shows all of it.
    pub(super) fn go_to_place(&mut self, line: TraceLine, place: usize) {
        self.pane_mut().go_to(line, place);
        self.follow();
        self.show_whole();
    }

    pub fn back(&mut self) -> bool {
        let Some((pane, line, place)) = self.trail.pop() else { return false };
        self.focus = pane.min(self.panes.len() - 1);
        self.as_one_move(|view| view.go_to_place(line, place));
        true
    }

    /// Goes to the next or previous operation on the critical path under the cursor.
    pub fn walk_path(&mut self, forwards: bool) -> Result<(), String> {
        let pane = self.pane();
        let key = pane.step_key(self.time, true);
        let path = match &pane.path {
            Some(path) if Some(path.key) == key => path,
            _ if !analysis::knows_dependencies(&pane.index.trace) => {
                return Err("imported traces do not record dependencies".into());
            }
            _ => {
                self.lit = true;
                return Err("still searching the critical path; try again in a moment".into());
            }
        };
        let (span, time) = (pane.span_index(), pane.own(self.time));
        match path.neighbour(span, time, forwards) {
            Some(span) => {
                self.lit = true;
                self.as_one_move(|view| view.go_to_span(span));
                Ok(())
            }
            None if forwards => Err("here the critical path of this step ends".into()),
            None => Err("here the critical path of this step begins".into()),
        }
    }

    /// Goes to a span of a pane, zooming in if it would be too small to see; records the current place.
    pub fn jump_closely(&mut self, pane: usize, span: usize) {
        /// Minimum visible size, as a fraction 1/40 of the window.
        const SEEN: i64 = 40;
        self.remember();
        self.focus = pane.min(self.panes.len() - 1);
        self.as_one_move(|view| {
            view.go_to_span(span);
            let Some((start, end)) = view.interval() else { return };
            let length = end.saturating_sub(start).max(1);
            if length < view.window.width() / SEEN {
                let margin = length.saturating_mul(4);
                view.set(TimeWindow::new(start.saturating_sub(margin), end.saturating_add(margin)));
            }
        });
    }

    /// Activates the selected row of the list below the lanes: goes to its target, or expands its layers; once the list is
    /// counted, if it is not. Returns the reason if nothing happens.
    pub fn go_to_row(&mut self) -> Result<(), String> {
        let mut panel = self.panel.take();
        let mut done = Ok(());
        match &mut panel {
            Some(TimelinePanel::Dependencies { dependencies, list, .. }) => {
                let mut both = dependencies.before.iter().chain(&dependencies.after);
                if let Some(dependency) = both.nth(list.selected) {
                    self.jump(dependency.span);
                }
                panel = None;
            }
            Some(TimelinePanel::Differences { list, by_exposed, open }) => {
                match self.differences.clone() {
                    None => done = Err("still comparing; press Enter again in a moment".into()),
                    Some(report) => match difference_rows(&report, *by_exposed, open).get(list.selected)
                    {
                        Some(DifferencePanelRow::Family(at)) => {
                            let family = &report.families[*at];
                            if let [_] = family.groups[..] {
                                self.go_to_difference(&family.sum);
                            } else if !open.remove(&family.sum.name) {
                                open.insert(family.sum.name.clone());
                            }
                        }
                        Some(DifferencePanelRow::Group(at)) => {
                            self.go_to_difference(&report.groups[*at])
                        }
                        Some(DifferencePanelRow::Rest | DifferencePanelRow::Step) | None => {}
                    },
                }
            }
            Some(TimelinePanel::Operations(shown)) => {
                let counted = shown.counted.as_ref().filter(|counted| counted.is_of(shown.scope, self));
                let span = shown.row().map(|(_, span)| span);
                match (counted.map(|counted| counted.pane), span) {
                    (Some(pane), Some(span)) => self.jump_closely(pane, span),
                    (Some(_), None) => done = Err("no operation is listed".into()),
                    (None, _) => shown.awaited = true,
                }
            }
            Some(TimelinePanel::Stretches(shown)) => {
                // after a change of its part, the list still has the rows of the previous one
                let counted = shown.counted.as_ref().filter(|counted| counted.is_of(shown.scope, self));
                match counted.map(|counted| counted.pane) {
                    Some(pane) => match shown.longest_of_row() {
                        Some(span) => {
                            self.jump_closely(pane, span);
                            // the details of the call take its place
                            self.left = Some(std::mem::take(shown));
                            panel = None;
                        }
                        None => done = Err("no communication is exposed".into()),
                    },
                    None => shown.awaited = true,
                }
            }
            Some(TimelinePanel::Legend(..) | TimelinePanel::Verdict { .. }) | None => {}
        }
        self.panel = panel;
        done
    }

    /// Goes to the next shorter, or next longer, call of the row of exposed communication that was last gone to; false if none
    /// was.
    pub fn go_to_call(&mut self, forwards: bool) -> bool {
        let shown = match &mut self.panel {
            Some(TimelinePanel::Stretches(shown)) => Some(shown),
            _ => self.left.as_mut(),
        };
        let call = shown.and_then(|shown| {
            let span = shown.neighbour_call(forwards)?;
            Some((shown.counted.as_ref()?.pane, span))
        });
        if let Some((pane, span)) = call {
            self.jump_closely(pane, span);
        }
        call.is_some()
    }

    /// Goes to the cause that the verdict names first: the longest gap if idle time leads, else the longest exposed
    /// communication of a typical step. Selects the gap, with the cursor on the work behind it, and returns its description.
    pub fn go_to_cause(&mut self) -> Result<Option<String>, String> {
        let at = self.judged();
        let pane = &self.panes[at];
        let verdict = pane.verdict.as_ref().ok_or("the verdict is not known yet")?;
        if let Some(gap) = verdict.leading_gap().cloned() {
            let ns = |us: f64| (us * 1e3).round() as i64;
            let from = pane.index.zero.saturating_add(ns(gap.at_us)).saturating_sub(pane.origin);
            let (length, rank) = (ns(gap.gap_us), gap.rank);
            let to = from.saturating_add(length);
            let own = pane.index.ranks.iter().position(|own| own.rank == rank);
            let own_gap = pane.window(TimeWindow::new(from, to));
            let around = own.and_then(|own| pane.index.around_gap(own, own_gap));
            let behind = around.and_then(|(_, after)| pane.index.find(after));
            self.remember();
            self.focus = at;
            self.as_one_move(|view| {
                if let Some((line, place)) = behind {
                    view.pane_mut().go_to(line, place);
                }
                view.follow();
                view.select_times(from, to);
                // center the gap, with the work before and after it
                let half = (length / 2).max(1);
                view.time = from.saturating_add(half);
                view.set(TimeWindow::new(from.saturating_sub(half), to.saturating_add(half)));
            });
            let on = if self.pane().index.rank_count() > 1 {
                format!(" on rank {rank}")
            } else {
                String::new()
            };
            let host = gap.host_work().map_or_else(String::new, |call| {
                format!("; during it the host was in {} for {}", call.name, latency(call.within_us))
            });
            return Ok(Some(format!("longest gap{on}: {}{host}", latency(gap.gap_us))));
        }
        let longest = pane.index.typical_exposed();
        let span = longest.and_then(|(rank, stretch)| pane.index.collective(rank, stretch));
        match span {
            Some(span) => self.jump_closely(at, span),
            None => return Err("nothing to go to: no long gap, and no exposed communication".into()),
        }
        Ok(None)
    }

    fn go_to_difference(&mut self, group: &OperationDifference) {
        self.remember();
        self.as_one_move(|view| view.show_difference(group));
    }

    /// Moves both cursors to the first operation of a group, and shows both.
    fn show_difference(&mut self, group: &OperationDifference) {
        let firsts = [&group.a, &group.b].map(|share| share.as_ref().map(|share| share.first));
        for (pane, first) in self.panes.iter_mut().zip(firsts) {
            if let Some((line, place)) = first.and_then(|span| pane.index.find(span)) {
                pane.go_to(line, place);
            }
        }
        // move the focus to a trace that has the operation
        let focus = self.focus.min(1);
        let to = if firsts[focus].is_some() { focus } else { 1 - focus };
        self.focus = to.min(self.panes.len() - 1);
        let shown = self.panes.iter().zip(firsts).filter(|(_, first)| first.is_some());
        let interval = |pane: &Pane| {
            let (start, end) = pane.interval()?;
            Some((start.saturating_sub(pane.origin), end.saturating_sub(pane.origin)))
        };
        let intervals: Vec<(i64, i64)> = shown.filter_map(|(pane, _)| interval(pane)).collect();
        if let Some((start, end)) = self.interval() {
            self.time = start.saturating_add(end.saturating_sub(start) / 2);
        }
        let from = intervals.iter().map(|i| i.0).min();
        let to = intervals.iter().map(|i| i.1).max();
        if let Some((from, to)) = from.zip(to)
            && !(self.window.contains(from) && to <= self.window.to)
        {
            // show both in one window, at the current zoom if that suffices
            self.set(self.window.around(from, to, self.bounds()));
        }
    }
}

/// Target in a trace. Times are ns since [`TimelineView::ruler_origin`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JumpTarget {
    /// Interval: `12.5ms..13ms`.
    Interval(i64, i64),
    /// Time to centre in the current window: `12.5ms`.
    Time(i64),
    /// Interval around the cursor: `+-50us`.
    Around(i64),
    /// First and last decode step: `step 12`, `step 12..14`.
    Steps(u32, u32),
    /// Prefill of the sample at the cursor.
    Prefill,
    All,
    Marks,
    /// Operation or range, by words of its name: `decode/L12/mlp/down`.
    Name(String),
}

pub const FORMS: &str = "type 12.5ms..13ms or 12.5ms (as on the ruler), +-50us, step 12 or 12, step 12..14, prefill, all, A..B, or words of a name";

impl JumpTarget {
    /// Parses typed text; returns the reason if it has none of the forms.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let lower = text.to_lowercase();
        match lower.as_str() {
            "" => return Err(FORMS.into()),
            "all" => return Ok(Self::All),
            "prefill" => return Ok(Self::Prefill),
            "a..b" | "b..a" => return Ok(Self::Marks),
            _ => {}
        }
        let around = ["+-", "±", "+/-"].iter().find_map(|sign| lower.strip_prefix(sign));
        if let Some(width) = around {
            return match parse_time(width).filter(|ns| *ns > 0) {
                Some(ns) => Ok(Self::Around(ns)),
                None => Err(format!("'{text}': {}", wanted(width))),
            };
        }
        // a name of digits alone is found with the search
        if let Ok(step) = lower.parse() {
            return Ok(Self::Steps(step, step));
        }
        // `steps_fused` is a name
        if let Some(rest) =
            lower.strip_prefix("step").filter(|rest| rest.starts_with([' ', '.']) || is_number(rest))
        {
            return steps_target(rest).ok_or_else(|| {
                format!(
                    "'{text}': steps are numbers from 0: step 12, or step 12..14 with the first first"
                )
            });
        }
        if let Some((from, to)) = lower.split_once("..") {
            return match (parse_time(from), parse_time(to)) {
                (Some(from), Some(to)) if from < to => Ok(Self::Interval(from, to)),
                (Some(_), Some(_)) => Err(format!("'{text}': the end is before the start")),
                (None, _) => Err(format!("'{text}': {}", wanted(from))),
                _ => Err(format!("'{text}': {}", wanted(to))),
            };
        }
        match parse_time(&lower) {
            Some(ns) => Ok(Self::Time(ns)),
            None => Ok(Self::Name(text.into())),
        }
    }
}

fn wanted(text: &str) -> String {
    format!("'{}' is no time; write a number with ns, us, ms or s, such as 12.5ms", text.trim())
}

fn is_number(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
}

fn steps_target(text: &str) -> Option<JumpTarget> {
    let text = text.trim().trim_start_matches("step");
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first <= last).then_some(JumpTarget::Steps(first, last))
}

/// Parses a time with its unit, in ns.
fn parse_time(text: &str) -> Option<i64> {
    let text = text.trim().trim_start_matches('+').replace('µ', "u");
    let (number, scale) = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)]
        .iter()
        .find_map(|(unit, scale)| Some((text.strip_suffix(unit)?.trim_end(), *scale)))?;
    // Rust also parses `inf` and `nan`
    if !is_number(number) && !number.starts_with('.') {
        return None;
    }
    let ns = number.parse::<f64>().ok()? * scale;
    (ns.is_finite() && ns < 9e18).then(|| ns.round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_form_is_understood() {
        let cases = [
            ("12.5ms..13ms", JumpTarget::Interval(12_500_000, 13_000_000)),
            (" 0s .. 1.000000001 s ", JumpTarget::Interval(0, 1_000_000_001)),
            ("46us", JumpTarget::Time(46_000)),
            ("+46.5 µs", JumpTarget::Time(46_500)),
            ("+-50us", JumpTarget::Around(50_000)),
            ("±1ms", JumpTarget::Around(1_000_000)),
            ("step 12", JumpTarget::Steps(12, 12)),
            ("30", JumpTarget::Steps(30, 30)),
            ("step12..14", JumpTarget::Steps(12, 14)),
            ("Step 3 .. 3", JumpTarget::Steps(3, 3)),
            ("prefill", JumpTarget::Prefill),
            ("all", JumpTarget::All),
            ("A..B", JumpTarget::Marks),
            ("decode/L12/mlp/down", JumpTarget::Name("decode/L12/mlp/down".into())),
            ("L2 norms", JumpTarget::Name("L2 norms".into())),
            ("steps_fused", JumpTarget::Name("steps_fused".into())),
            ("AllReduce Ring", JumpTarget::Name("AllReduce Ring".into())),
        ];
        for (text, target) in cases {
            assert_eq!(JumpTarget::parse(text), Ok(target), "{text}");
        }
    }

    #[test]
    fn mistakes_are_told_with_what_would_be_right() {
        for (text, why) in [
            ("", "type 12.5ms..13ms"),
            ("3ms..1ms", "the end is before the start"),
            ("3ms..soon", "'soon' is no time"),
            ("3..4", "'3' is no time; write a number with ns"),
            ("+-", "is no time"),
            ("+-0us", "is no time"),
            ("step x", "steps are numbers from 0"),
            ("step 5..2", "with the first first"),
        ] {
            let error = JumpTarget::parse(text).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn nothing_that_is_typed_panics(text in ".{0,30}", odd in "[-+±0-9.munsep ]{0,20}") {
            for text in [text, odd] {
                if let Ok(JumpTarget::Interval(from, to)) = JumpTarget::parse(&text) {
                    prop_assert!(0 <= from && from < to);
                }
            }
        }
    }
}
