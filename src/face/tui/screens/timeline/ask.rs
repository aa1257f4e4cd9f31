//! Background questions of the timeline: numbers, overviews and critical paths of open traces, search
//! matches, differences between traces, predictions.

use std::sync::Arc;

use super::state::measure::{self, CriticalPath, MeasuredInterval};
use super::state::pane::OverlapOf;
use super::state::panel::{
    OperationScope, ResolvedScope, ScopedTable, TimelinePanel, is_explained_by_exposed,
};
use super::state::prediction::{Facts, traced};
use super::state::{Matches, Pane, TimelineView, TraceIndex};
use super::{Timeline, lists};
use crate::desk;
use crate::face::tui::context::{Context, Request, SelectedRun};
use crate::face::tui::keymap::Action;
use crate::face::tui::overlay::PromptCompletion;
use crate::face::tui::screen::Tab;
use crate::face::tui::task::Stop;
use base::error::Result;
use plan::{Architecture, Phase};
use study::analysis;
use table::{Backend, Spec};
use trace::import;
use trace::overlap::{Selection, overlap};

pub const PREDICTION: &str = "prediction";

pub const OPERATIONS: &str = "operations";

pub const STRETCHES: &str = "stretches";

const DOCKED: &str = "docked";

const ZOOMED: &str = "zoomed";

const OF_A_PANE: [&str; 8] =
    ["overview", "numbers", "path", "overlap", "search", "totals", "kernel", "verdict"];

/// Drops pending questions after other traces were opened.
pub fn forget(cx: &mut Context) {
    for slot in OF_A_PANE {
        (0..2).for_each(|pane| cx.forget::<Timeline>((slot, pane)));
    }
    for slot in ["differences", OPERATIONS, STRETCHES, DOCKED, ZOOMED] {
        cx.forget::<Timeline>(slot);
    }
}

/// Asks for missing data, one question of each kind at a time. `columns` is the width of the lanes; 0
/// skips the overview.
pub fn follow(view: &TimelineView, columns: usize, cx: &mut Context) {
    let stretch = view.stretch();
    for (at, pane) in view.panes.iter().enumerate() {
        if columns > 0 {
            let take = |pane: &mut Pane, _, overview| pane.overview = Some(overview);
            of_pane(cx, ("overview", at), pane, columns, measure::overview, take);
        }
        if let Some(stretch) = stretch {
            let take = |pane: &mut Pane, _, numbers| pane.measured = Some(numbers);
            of_pane(cx, ("numbers", at), pane, pane.window(stretch), MeasuredInterval::new, take);
        }
        if let Some(step) = pane.step_key(view.time, at == view.focus).filter(|_| view.lit) {
            let path = |index: &TraceIndex, step| CriticalPath::new(&index.trace, step);
            of_pane(cx, ("path", at), pane, step, path, |pane, _, path| pane.path = Some(path));
        }
        if let Some(span) = view.looked_up(at).filter(|_| at == view.focus) {
            let look = |index: &TraceIndex, span| {
                import::kernel(&index.trace, span).map_err(|error| error.to_string())
            };
            let take = |pane: &mut Pane, span, found| pane.kernel = Some((span, found));
            of_pane(cx, ("kernel", at), pane, span, look, take);
        }
        if let Some(part) = pane.wanted(view.step_looked_at(at)) {
            of_pane(cx, ("overlap", at), pane, part, overlap_pct, |pane, part, pct| {
                pane.overlap.insert(part, pct);
            });
        }
    }
    (0..view.panes.len()).for_each(|at| judge(view, at, cx));
    count(view, cx);
    if let (Some(TimelinePanel::Differences { .. }), [a, b]) = (&view.panel, &view.panes[..])
        && let Ok(steps) = view.steps_to_compare()
    {
        let [a, b] = [a, b].map(|pane| Arc::clone(&pane.index));
        cx.follow(
            "differences",
            &steps,
            move |_| {
                for pane in [&a, &b] {
                    pane.trace.meta.provenance.require_evidence("a trace")?;
                }
                let [a, b] = [&a.trace, &b.trace].map(analysis::ComputeTimes::from_trace);
                Ok(analysis::operation_differences(&a, steps.0, &b, steps.1))
            },
            |timeline: &mut Timeline, report, cx| {
                let view = timeline.view.as_mut().filter(|view| view.panes.len() == 2);
                if let Some((view, report)) = view.zip(cx.ok_or_fail(report)) {
                    if let (None, Some(TimelinePanel::Differences { by_exposed, .. })) =
                        (&view.differences, &mut view.panel)
                    {
                        *by_exposed = is_explained_by_exposed(&report);
                    }
                    view.differences = Some(Arc::new(report));
                }
            },
        );
    }
}

/// Maximum trace size, in spans, for computing a verdict in advance; takes a few seconds of one core.
const JUDGED: usize = 1 << 20;

/// Minimum rows of the screen for opening the host's ranges by itself.
const ROOM: usize = 20;

/// Minimum rows of the screen for giving the lanes and these ranges half of it rather than a third.
const ROOMY: usize = 30;

fn judge(view: &TimelineView, at: usize, cx: &mut Context) {
    let pane = &view.panes[at];
    let is_wanted = matches!(view.panel, Some(TimelinePanel::Verdict { .. }));
    let is_known = pane.verdict.is_some() || pane.ghost.is_some();
    if is_known || !is_wanted && pane.index.trace.spans.len() > JUDGED {
        return;
    }
    let index = Arc::clone(&pane.index);
    let work = move |_: &Stop| {
        // of ranks that did the same, two have the collectives of all
        let trace = index.matchable();
        let selection = Selection::default_of(&trace);
        let report = analysis::trace_report(&trace, &selection);
        Ok(desk::verdict_of(&trace, &report, &selection))
    };
    cx.follow(("verdict", at), &(), work, move |timeline: &mut Timeline, verdict, cx| {
        let Some((view, verdict)) = timeline.view.as_mut().zip(cx.ok_or_fail(verdict)) else { return };
        let (is_alone, height) = (view.panes.len() == 1, usize::from(cx.body().height));
        if let Some(pane) = view.panes.get_mut(at) {
            // the host's ranges show the cause; the rest of the window is left to lists and details
            if verdict.leads_with_host() && is_alone && height >= ROOM {
                pane.open_ranges_within(if height >= ROOMY { height / 2 } else { height / 3 });
            }
            pane.verdict = Some(Arc::new(verdict));
        }
        if matches!(view.panel, Some(TimelinePanel::Verdict { .. })) {
            let computed = lists::verdict_lines(view, cx);
            if let Some(TimelinePanel::Verdict { lines, .. }) = &mut view.panel {
                *lines = computed;
            }
        }
    });
}

/// Requests the table below the lanes, and the totals of the search.
fn count(view: &TimelineView, cx: &mut Context) {
    match &view.panel {
        Some(TimelinePanel::Operations(shown)) => {
            count_part(view, cx, OPERATIONS, shown.scope, ResolvedScope::operations, |view, counted| {
                if let Some(shown) = view.operations() {
                    shown.set(counted);
                    go_to_row_if(std::mem::take(&mut shown.awaited), view);
                }
            });
        }
        Some(TimelinePanel::Stretches(shown)) => {
            count_part(view, cx, STRETCHES, shown.scope, ResolvedScope::stretches, |view, counted| {
                if let Some(TimelinePanel::Stretches(shown)) = &mut view.panel {
                    shown.set(counted);
                    go_to_row_if(std::mem::take(&mut shown.awaited), view);
                }
            });
        }
        _ => {}
    }
    // also for the palette, which finds its operations
    if view.shows_docked() {
        count_part(view, cx, DOCKED, view.docked.scope, ResolvedScope::operations, |view, counted| {
            view.docked.set(counted);
            view.docked.list.selected = usize::MAX;
        });
    }
    if view.shows_docked() && view.is_zoomed() {
        count_part(view, cx, ZOOMED, view.zoomed.scope, ResolvedScope::operations, |view, counted| {
            view.zoomed.set(counted);
            view.zoomed.list.selected = usize::MAX;
        });
    }
    let hits = OperationScope::Hits.part(view);
    if let ResolvedScope::Hits(query) = &hits {
        // only after the search has caught up with the typed text
        let found = |pane: &Pane| pane.matches.as_ref().is_some_and(|matches| matches.query == *query);
        for (at, pane) in view.panes.iter().enumerate().filter(|(_, pane)| found(pane)) {
            let (index, hits, of) = (Arc::clone(&pane.index), hits.clone(), query.clone());
            let work = move |_: &Stop| Ok((of, hits.totals(&index)));
            cx.follow(("totals", at), query, work, move |timeline: &mut Timeline, totals, cx| {
                let pane = timeline.view.as_mut().and_then(|view| view.panes.get_mut(at));
                if let Some((pane, totals)) = pane.zip(cx.ok_or_fail(totals)) {
                    pane.totals = Some(totals);
                }
            });
        }
    }
}

/// Goes to the first row of a list for which Enter was pressed before it was counted.
fn go_to_row_if(is_awaited: bool, view: &mut TimelineView) {
    if is_awaited {
        // an empty list says so itself
        let _ = view.go_to_row();
    }
}

/// Requests a table over part of the trace for the list below the lanes.
fn count_part<T: Send + Sync + 'static>(
    view: &TimelineView,
    cx: &mut Context,
    slot: &'static str,
    scope: OperationScope,
    table: fn(&ResolvedScope, &TraceIndex) -> T,
    take: fn(&mut TimelineView, ScopedTable<T>),
) {
    let (pane, part, index) = (view.focus, scope.part(view), Arc::clone(&view.pane().index));
    let key = (pane, part.clone());
    let work = move |_: &Stop| {
        let table = Arc::new(table(&part, &index));
        Ok(ScopedTable { pane, part, table })
    };
    cx.follow(slot, &key, work, move |timeline: &mut Timeline, counted, cx| {
        if let Some((view, counted)) = timeline.view.as_mut().zip(cx.ok_or_fail(counted)) {
            take(view, counted);
        }
    });
}

/// Asks a question with this key about a pane's trace, and stores the answer in the pane.
fn of_pane<K: Copy + PartialEq + Send + 'static, T: Send + 'static>(
    cx: &mut Context,
    slot: (&'static str, usize),
    pane: &Pane,
    key: K,
    work: fn(&TraceIndex, K) -> T,
    take: fn(&mut Pane, K, T),
) {
    let index = Arc::clone(&pane.index);
    cx.follow(
        slot,
        &key,
        move |_| Ok(work(&index, key)),
        move |timeline: &mut Timeline, answer, cx| {
            let pane = timeline.view.as_mut().and_then(|view| view.panes.get_mut(slot.1));
            if let Some((pane, answer)) = pane.zip(cx.ok_or_fail(answer)) {
                take(pane, key, answer);
            }
        },
    );
}

/// Hidden share (%) of a step, or of the part that is meant by default; `None` without communication.
fn overlap_pct(index: &TraceIndex, part: OverlapOf) -> Option<f64> {
    let all = || Selection::default_of(&index.trace);
    overlap(&index.trace, &part.map_or_else(all, Selection::of_step)).all.overlap_pct
}

pub fn search(view: &TimelineView, cx: &mut Context) {
    for (at, pane) in view.panes.iter().enumerate() {
        let (index, query) = (Arc::clone(&pane.index), view.search.line.value().to_owned());
        cx.ask(
            ("search", at),
            move |_| Ok(Matches::new(&index, &query)),
            move |timeline: &mut Timeline, matches, cx| {
                if let Some((view, matches)) = timeline.view.as_mut().zip(cx.ok_or_fail(matches)) {
                    view.found(at, matches);
                }
            },
        );
    }
}

pub fn end_search(view: &mut TimelineView, cx: &mut Context) {
    view.forget_search();
    for slot in ["search", "totals"] {
        (0..2).for_each(|pane| cx.forget::<Timeline>((slot, pane)));
    }
}

/// How the what-if screen opens on a trace.
pub struct WhatIfStart {
    /// True if the user asked for it; else nothing is asked back.
    pub asked: bool,
    /// Facts that the trace leaves open.
    pub facts: Facts,
    /// Architecture to start at, if not the traced one.
    pub architecture: Option<Architecture>,
}

/// Settings of a traced run: those of the stored one, of which the trace may have the first steps alone.
fn whole_run(traced: &Spec, run: Option<&str>, cx: &Context) -> Spec {
    let stored = run.and_then(|run| Some(&cx.stored.as_ref()?.find(run)?.spec));
    let is_same =
        |spec: &&Spec| Spec { output_tokens: traced.output_tokens, ..(*spec).clone() } == *traced;
    stored.filter(is_same).unwrap_or(traced).clone()
}

/// Opens the what-if screen on the steps of a phase of a trace. Uses the run's settings instead if the run was simulated,
/// so that the sliders simulate it again, or if the steps cannot be rewired. Asks for a fact that the trace leaves open.
pub fn what_if(
    index: Arc<TraceIndex>,
    arguments: Vec<String>,
    phase: Option<Phase>,
    start: WhatIfStart,
    cx: &mut Context,
) {
    let WhatIfStart { asked, facts, architecture } = start;
    let run = index.source();
    let spec = index.trace.meta.spec.as_ref().map(|traced| whole_run(traced, run.as_deref(), cx));
    if let Some((spec, run)) = spec.as_ref().filter(|spec| spec.backend.is_simulated()).zip(run.clone())
    {
        let architecture = architecture.unwrap_or_else(|| spec.architecture.clone());
        let spec = Spec { architecture, ..spec.clone() };
        cx.request(Request::WhatIf(Some(Box::new(SelectedRun { spec, run }))));
        return cx.inform("sliders simulate this trace's run again");
    }
    let name = match phase {
        Some(Phase::Prefill) => format!("{} (a prefill)", index.title),
        _ => index.title.clone(),
    };
    let step = index.typical_step.and_then(|at| index.steps.get(at));
    let step = step.filter(|step| step.key.phase == Phase::Decode);
    let measured = step.map(|step| (step.window.width() as f64 / 1e6, index.provenance()));
    let (again, opened) = (Arc::clone(&index), arguments.clone());
    cx.ask(
        PREDICTION,
        move |_| traced(&index.whole(), arguments, phase, facts).map(Arc::new),
        move |_: &mut Timeline, traced, cx| match (traced, spec.zip(run)) {
            // the user went elsewhere
            _ if !asked && cx.tab != Tab::WhatIf => {}
            (Ok(traced), _) => cx.request(Request::WhatIfTraced(traced, name, architecture)),
            (Err(why), None) if !asked => {
                let first = why.lines().next().unwrap_or_default();
                cx.inform(format!(
                    "what-if keeps the simulated cell; the open trace cannot be used: {first}"
                ));
            }
            // the simulation of another machine says nothing about this trace
            (Err(why), Some((spec, _))) if spec.backend == Backend::Cpu && asked => {
                let first = why.lines().next().unwrap_or_default();
                let more =
                    "its machine has no profile to simulate; open a trace of standard of the same cell";
                cx.fail(format!("{first}\n{more}"));
            }
            (Err(_), Some((spec, _))) if spec.backend == Backend::Cpu => {}
            (Err(why), Some((spec, run))) => {
                let selected = Box::new(SelectedRun { spec, run });
                cx.request(Request::WhatIfRunOfTrace { selected, measured });
                let why = why.lines().next().unwrap_or_default();
                cx.inform(format!("sliders start from the run's settings: {why}"));
            }
            (Err(why), None) => {
                let first = why.lines().next().unwrap_or_default();
                let Some(lacking) = Facts::lacking(&why) else {
                    let key = cx.keys.label(Action::Show(Tab::WhatIf));
                    return cx.fail(format!("{first}\n{key} has the sliders for a simulated run"));
                };
                let take = move |_: &mut Timeline, typed: &str, cx: &mut Context| {
                    let facts = Facts::parse(typed)?.and(facts);
                    let start = WhatIfStart { asked, facts, architecture: architecture.clone() };
                    what_if(Arc::clone(&again), opened.clone(), phase, start, cx);
                    Ok(())
                };
                let hint =
                    format!("{first}. Type the model's layers, as layers 80, or the TP size, as tp 8");
                cx.prompt(PromptCompletion::Nothing, "what-if of this trace", hint, lacking, take);
            }
        },
    );
}

/// Shows below the trace what this work predicts: a simulation of its run, or its current step rewired.
pub fn show_ghost(
    cx: &mut Context,
    work: impl FnOnce() -> Result<(Arc<TraceIndex>, String)> + Send + 'static,
) {
    cx.ask(
        PREDICTION,
        move |_| work(),
        |timeline: &mut Timeline, ghost, cx| {
            let ghost = ghost.map_err(|why| match (Facts::lacking(&why), why.lines().next()) {
                (Some(lacking), Some(first)) => {
                    format!("{first}\ntype it after the architecture: ladder {lacking}8")
                }
                _ => why,
            });
            if let Some((view, (index, on))) = timeline.view.as_mut().zip(cx.ok_or_fail(ghost)) {
                view.add_ghost(index, on);
                forget(cx);
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::tui::tests::fixtures;

    #[test]
    fn every_step_has_an_overlap_the_prefill_too() {
        let index = fixtures::imported();
        let of_step = |step: usize| overlap_pct(&index, Some(index.steps[step].key));
        assert!(of_step(0).is_some_and(|pct| pct > 0.0), "the first of two collectives is hidden");
        assert_eq!(of_step(0), of_step(2));
        let index = fixtures::trace();
        let prefill = index.steps[0].key;
        assert_eq!(prefill.phase, Phase::Prefill);
        assert_eq!(
            overlap_pct(&index, Some(prefill)),
            overlap_pct(&index, None),
            "standard hides nothing"
        );
        assert!(overlap_pct(&index, Some(prefill)).is_some_and(|pct| pct < 10.0));
    }
}
