//! Timeline actions, including typed commands.

use std::sync::Arc;

use super::state::go::{FORMS, JumpTarget};
use super::state::panel::{OperationScope, Stretches, TimelinePanel, is_explained_by_exposed};
use super::state::prediction::{Facts, PredictionTarget, Rewired};
use super::state::{Timeline, TimelineView, TraceIndex, TraceLine};
use super::{Act, NO_TRACE, ask, draw, files, info, lists, stretch};
use crate::desk::offers;
use crate::face::tui::prelude::*;
use plan::Architecture;

const NO_NAME: &str = "there is no operation or range under the cursor";

/// Acts on two traces.
const OF_PAIR: [Act; 7] = [
    Act::SwitchTrace,
    Act::AlignHere,
    Act::FollowSteps,
    Act::Compare,
    Act::ShiftNext,
    Act::ShiftPrevious,
    Act::CloseBeneath,
];

pub fn act(timeline: &mut Timeline, act: Act, cx: &mut Context) {
    if act == Act::TypeBeneath {
        // if no trace is open, it replaces the view
        let panes = timeline.view.iter().flat_map(|view| &view.panes);
        let shown: Vec<String> = panes.filter_map(|pane| pane.index.source()).collect();
        return cx.pick_run(Opening::Beneath, &shown);
    }
    if timeline.view.is_none()
        && act == Act::ToggleRank
        && let Some(record) = draw::offered(cx).cloned()
    {
        return timeline.open_records(vec![record], Opening::Alone(None), cx);
    }
    let Some(view) = &mut timeline.view else {
        cx.inform(NO_TRACE);
        return;
    };
    if view.panes.len() < 2 && OF_PAIR.contains(&act) {
        let key = cx.key::<Timeline>(Act::TypeBeneath);
        return cx.inform(format!("only one trace is open: {key} opens another one below it"));
    }
    match act {
        Act::Verdict => match &view.panel {
            Some(TimelinePanel::Verdict { .. }) => view.panel = None,
            _ => {
                let (lines, list) = (lists::verdict_lines(view, cx), Default::default());
                view.panel = Some(TimelinePanel::Verdict { lines, list });
            }
        },
        Act::GoTo => cx.prompt(PromptCompletion::Nothing, "go to", FORMS, "", go_to),
        Act::Ghost if view.has_ghost() => view.remove(),
        Act::Ghost => ask_prediction(view, cx),
        Act::WhatIf => what_if(timeline, true, cx),
        Act::CopyNumbers if view.stretch().is_some() => match stretch::text(view) {
            Some(text) => copy(text, cx),
            None => cx.inform("the numbers are being counted; try again in a moment"),
        },
        Act::CopyNumbers => copy(info::item_text(view), cx),
        Act::WholeName if !matches!(view.panel, Some(TimelinePanel::Operations(_))) => {
            match name(view) {
                // a list covers the details
                Some(name) if view.panel.is_some() => cx.inform(name),
                Some(_) => view.names_in_full = !view.names_in_full,
                None => cx.inform(NO_NAME),
            }
        }
        Act::ToggleRank if matches!(view.panel, Some(TimelinePanel::Verdict { .. })) => {
            match view.go_to_cause() {
                Ok(gap) => {
                    // show the details of the operation instead
                    view.panel = None;
                    gap.into_iter().for_each(|gap| cx.inform(gap));
                }
                Err(why) => cx.inform(why),
            }
        }
        Act::Operations | Act::Stretches => list_part(view, act, cx),
        Act::FoldRanks => fold_ranks(view, cx),
        Act::MatchNext | Act::MatchPrevious if view.search.line.value().is_empty() => {
            if view.go_to_call(act == Act::MatchNext) {
                let place = lists::place_gone_to(view);
                return place.into_iter().for_each(|place| cx.inform(place));
            }
            let key = cx.key::<Timeline>(Act::Search);
            cx.inform(format!("no search: {key} starts one"));
        }
        Act::CopyName => match name(view) {
            Some(name) => copy(name, cx),
            None => cx.inform(NO_NAME),
        },
        act => {
            let before = view.seen();
            let told = on_view(view, act);
            let unmoved = unmoved(act).filter(|_| told.is_ok() && view.seen() == before);
            let why = told.err().filter(|why| !why.is_empty()).or(unmoved.map(str::to_owned));
            if let Some(why) = why {
                cx.inform(why);
            }
        }
    }
}

fn copy(text: String, cx: &mut Context) {
    cx.inform(format!("copied: {text}"));
    cx.perform(Effect::Copy(text));
}

/// Asks for a prediction to show below the trace. Our own runs default to a simulation; any trace can be rewired.
fn ask_prediction(view: &TimelineView, cx: &mut Context) {
    let (title, text, hint, names) = match &view.panes[0].index.trace.meta.spec {
        None => (
            "rewire this trace as",
            "ladder".to_owned(),
            "an architecture, then optionally an all-reduce: ladder fused".to_owned(),
            &["architecture", "collective"][..],
        ),
        Some(spec) => {
            let on = PredictionTarget::proposed(spec);
            let why = match on.hardware == spec.hardware {
                true => "the run's own hardware".into(),
                false => format!("no profile for '{}', on which it ran; using this one", spec.hardware),
            };
            (
                "simulate this run on",
                format!("{} {}", on.hardware, on.stack),
                format!(
                    "an architecture to rewire it as, or a hardware profile and a stack, names or files. Proposed: {why}"
                ),
                &["hardware", "stack", "architecture", "collective"][..],
            )
        }
    };
    let names =
        PromptCompletion::Words(names.iter().flat_map(|name| offers::axis_values(name)).collect());
    cx.prompt(names, title, hint, text, beneath);
}

/// Opens the table of operations or the list of exposed communication, or goes on to its next part once this one is
/// counted.
fn list_part(view: &mut TimelineView, act: Act, cx: &mut Context) {
    view.panel = Some(match (act, view.panel.take()) {
        (Act::Operations, Some(TimelinePanel::Operations(mut shown))) => {
            if shown.counted.as_ref().is_some_and(|counted| counted.is_of(shown.scope, view)) {
                shown.scope = shown.scope.next(view, &OperationScope::OF_OPERATIONS);
            }
            TimelinePanel::Operations(shown)
        }
        (Act::Operations, _) => {
            cx.forget::<Timeline>(ask::OPERATIONS);
            TimelinePanel::Operations(Box::default())
        }
        (_, Some(TimelinePanel::Stretches(mut shown))) => {
            if shown.counted.as_ref().is_some_and(|counted| counted.is_of(shown.scope, view)) {
                shown.scope = shown.scope.next(view, &OperationScope::OF_STRETCHES);
            }
            TimelinePanel::Stretches(shown)
        }
        _ => {
            let left = view.left.take();
            let left = left.filter(|left| left.scope.other_phase_in_view(view).is_none());
            TimelinePanel::Stretches(left.unwrap_or_else(|| {
                cx.forget::<Timeline>(ask::STRETCHES);
                let scope = OperationScope::first_of_stretches(view);
                Stretches { scope, ..Stretches::default() }
            }))
        }
    });
}

/// Folds or unfolds identical ranks; those that were stored once get spans of their own.
fn fold_ranks(view: &mut TimelineView, cx: &mut Context) {
    let folded = view.folded();
    if folded.is_empty() {
        return toggle_fold(view, cx);
    }
    cx.ask(
        "unfold",
        move |_| {
            let unfold = |index: Arc<TraceIndex>| {
                let whole = Arc::new(index.unfolded());
                [index, whole]
            };
            Ok(folded.into_iter().map(unfold).collect::<Vec<_>>())
        },
        |timeline: &mut Timeline, pairs, cx| {
            if let Some((view, pairs)) = timeline.view.as_mut().zip(cx.ok_or_fail(pairs)) {
                view.unfold(pairs);
                toggle_fold(view, cx);
            }
        },
    );
}

/// Message for an act that moved nothing.
fn unmoved(act: Act) -> Option<&'static str> {
    Some(match act {
        Act::FitAll => "the whole trace is shown already",
        Act::ZoomOut => "the whole trace is shown: there is nothing to zoom out to",
        Act::ZoomIn => "this is the closest zoom",
        Act::ZoomSpan => "nothing to zoom to under the cursor, or it fills the window already",
        Act::StepHere => "there is no decode step here",
        Act::StepNext => "this is the last decode step",
        Act::StepPrevious => "this is the first decode step",
        Act::SpanNext => "this is the last operation of the lane",
        Act::SpanPrevious => "this is the first operation of the lane",
        Act::PanLeft => "the window is at the start of the trace",
        Act::PanRight => "the window is at the end of the trace",
        _ => return None,
    })
}

/// Full name of the selected row of the operations table, or of the item under the cursor.
fn name(view: &TimelineView) -> Option<String> {
    if let Some(TimelinePanel::Operations(operations)) = &view.panel {
        return operations.row().map(|(row, _)| row.name.clone());
    }
    let pane = view.pane();
    match (pane.current()?, pane.span()) {
        (_, Some(span)) => Some(pane.index.name(span).to_owned()),
        (TraceLine::Ranges(row), _) => {
            Some(pane.index.range_name(pane.index.range(row, pane.place)?).to_owned())
        }
        _ => None,
    }
}

/// Goes to a typed target; returns the reason if it cannot.
fn go_to(timeline: &mut Timeline, text: &str, cx: &mut Context) -> Result<(), String> {
    let Some(view) = &mut timeline.view else { return Err(NO_TRACE.into()) };
    if view.go(JumpTarget::parse(text)?)? {
        ask::search(view, cx);
    }
    Ok(())
}

/// Shows a prediction below the trace: the trace rewired, or the run simulated on a machine. Returns the
/// reason if it cannot.
fn beneath(timeline: &mut Timeline, text: &str, cx: &mut Context) -> Result<(), String> {
    let view = timeline.view.as_ref().ok_or(NO_TRACE)?;
    let pane = &view.panes[0];
    let key = pane.step_key(view.time, view.focus == 0);
    if let Some(rewired) = Rewired::parse(text)? {
        let (index, at) = (Arc::clone(&pane.index), pane.own(view.time));
        ask::show_ghost(cx, move || rewired.step(&index, (key, at)));
        return Ok(());
    }
    let run = pane.index.trace.meta.spec.clone().ok_or_else(|| {
        let given = text.split_whitespace().next().unwrap_or_default();
        format!(
            "unknown architecture '{given}': an imported trace does not say what was run; name an architecture to \
             predict it, then optionally an all-reduce: ladder fused"
        )
    })?;
    let (on, step) = (PredictionTarget::parse(text)?, key.map_or(0, |key| key.step));
    ask::show_ghost(cx, move || on.simulate(&run, step));
    Ok(())
}

/// Performs an act on the open traces; returns the reason if it had no effect.
fn on_view(view: &mut TimelineView, act: Act) -> Result<(), String> {
    let done = |done: bool, why: &str| if done { Ok(()) } else { Err(why.to_string()) };
    match act {
        Act::SpanPrevious => view.move_in_line(-1),
        Act::SpanNext => view.move_in_line(1),
        Act::ExtendPrevious => view.extend(-1),
        Act::ExtendNext => view.extend(1),
        Act::ZoomIn => view.zoom(0.5),
        Act::ZoomOut => view.zoom(2.0),
        Act::PanLeft => view.pan(-0.5),
        Act::PanRight => view.pan(0.5),
        Act::StepHere => view.fit_here(),
        Act::StepNext => view.fit_neighbour(true),
        Act::StepPrevious => view.fit_neighbour(false),
        Act::FitAll => view.fit_all(),
        Act::ZoomSpan => view.zoom_span(),
        Act::Undo => return done(view.undo(), NOTHING_TO_UNDO),
        Act::Redo => return done(view.redo(), "nothing to redo"),
        Act::Search => match view.operations() {
            Some(operations) => operations.filter.begin(),
            None => view.search.line.begin(),
        },
        Act::SortNext | Act::SortPrevious | Act::SortReverse => {
            let sorted = view.panel.as_mut().is_some_and(|panel| panel.sort(act));
            return done(sorted, "no table is open that this sorts");
        }
        Act::WholeName => {
            if let Some(operations) = view.operations() {
                operations.whole = !operations.whole;
            }
        }
        Act::LookUp => return look_up(view),
        Act::Legend => {
            view.panel = match view.panel.take() {
                Some(legend @ TimelinePanel::Legend(..)) => legend.covered(),
                other => Some(TimelinePanel::Legend(Default::default(), other.map(Box::new))),
            };
        }
        Act::MatchNext | Act::MatchPrevious => {
            let found = view.go_to_match(act == Act::MatchNext);
            return done(found, "nothing was found: a search is for parts of names");
        }
        Act::Select => view.toggle_selecting(),
        Act::MarkA => view.mark(0),
        Act::MarkB => view.mark(1),
        Act::Path => {
            view.lit = !view.lit;
            if view.lit && !study::analysis::knows_dependencies(&view.pane().index.trace) {
                view.lit = false;
                return Err("imported traces do not record dependencies".into());
            }
        }
        Act::PathNext | Act::PathPrevious => return view.walk_path(act == Act::PathNext),
        Act::WaitedFor | Act::WaitingFor => return view.follow_link(act == Act::WaitingFor),
        Act::Dependencies => return view.list_dependencies(),
        Act::Back => return done(view.back(), "no dependency was followed: there is no way back"),
        Act::ToggleRank if matches!(view.panel, Some(TimelinePanel::Legend(..))) => {
            return Err("a legend has no entry to go to".into());
        }
        Act::ToggleRank if view.panel.is_some() => return view.go_to_row(),
        Act::ToggleRank if view.selected.is_some() => return done(view.zoom_stretch(), ""),
        Act::ToggleRank => view.toggle_rank(),
        Act::ToggleRanks => view.toggle_all(),
        Act::SwitchTrace => view.switch(),
        Act::AlignHere => return view.align_here(),
        Act::FollowSteps => {
            view.follows = !view.follows;
            if view.follows {
                return view.align_here();
            }
        }
        Act::Compare => {
            view.steps_to_compare()?;
            let (by_exposed, open) = match view.panel.take() {
                Some(TimelinePanel::Differences { by_exposed, open, .. }) => (!by_exposed, open),
                // opens on what explains the difference
                _ => {
                    let known = view.differences.as_deref().filter(|_| view.compares_now());
                    (known.is_some_and(is_explained_by_exposed), Default::default())
                }
            };
            view.panel = Some(TimelinePanel::Differences { list: Default::default(), by_exposed, open });
        }
        Act::ShiftNext | Act::ShiftPrevious => {
            view.follows = false;
            let shifted = view.shift(if act == Act::ShiftNext { 1 } else { -1 });
            return done(shifted, "the lower trace has no further step");
        }
        Act::CloseBeneath => view.remove(),
        // opens a prompt, or was handled earlier
        Act::TypeBeneath | Act::GoTo | Act::Ghost | Act::WhatIf | Act::CopyNumbers => {}
        Act::Operations | Act::Stretches | Act::CopyName | Act::Verdict | Act::FoldRanks => {}
    }
    Ok(())
}

/// Reads the imported files for each kernel from now on, or no longer; returns the reason if that changes nothing.
fn look_up(view: &mut TimelineView) -> Result<(), String> {
    let pane = view.pane();
    let why = match () {
        () if pane.index.trace.meta.spec.is_some() => {
            "launch details exist only in the files of imported traces"
        }
        () if pane.index.files.is_none() => {
            "this trace was not imported from a file that is still there"
        }
        () if pane.span_index().is_none() => "there is no kernel under the cursor",
        () if !view.looks && view.looked_up(view.focus).is_some() => {
            "this file is small, so launch details are always shown"
        }
        () => {
            view.looks = !view.looks;
            return Ok(());
        }
    };
    Err(why.into())
}

/// Opens the what-if screen on the steps of the phase under the cursor, at the architecture shown there; unless `asked` by
/// the user, without a question.
pub fn what_if(timeline: &Timeline, asked: bool, cx: &mut Context) {
    let Some(view) = &timeline.view else {
        return cx.inform(NO_TRACE);
    };
    let architecture = |at: usize| {
        let spec = view.panes[at].index.trace.meta.spec.as_ref();
        spec.map(|spec| spec.architecture.clone())
    };
    // the times are those of a step of standard, which the other trace may have
    let is_standard =
        |at: &&usize| architecture(**at).is_none_or(|shown| shown == Architecture::Standard);
    let order = std::iter::once(view.focus).chain(0..view.panes.len());
    let own: Vec<usize> = order.filter(|at| view.panes[*at].ghost.is_none()).collect();
    // the settings of a simulated run are its own, whatever its architecture
    let is_simulated = |at: &&usize| {
        let index = &view.panes[**at].index;
        let spec = index.trace.meta.spec.as_ref().filter(|spec| spec.backend.is_simulated());
        **at == view.focus && spec.is_some() && index.source().is_some()
    };
    let best = own.iter().find(is_simulated).or_else(|| own.iter().find(is_standard));
    let at = best.or(own.first()).copied().unwrap_or(0);
    let pane = &view.panes[at];
    let phase = pane.step_key(view.time, at == view.focus).map(|key| key.phase);
    let start = ask::WhatIfStart {
        asked,
        facts: Facts::default(),
        architecture: architecture(view.focus).filter(|_| at != view.focus),
    };
    ask::what_if(Arc::clone(&pane.index), files::opened(pane), phase, start, cx);
}

/// False for a foreign trace that cannot be rewired and lacks no fact for it, as one without all-reduces.
pub fn can_rewire(view: &TimelineView) -> bool {
    let pane = view.pane();
    let Some(verdict) = pane.verdict.as_ref().filter(|_| pane.index.trace.meta.spec.is_none()) else {
        return true;
    };
    let lacks_fact = |why: &str| Facts::lacking(why).is_some();
    !verdict.collectives.is_empty() && verdict.not_rewired.as_deref().is_none_or(lacks_fact)
}

fn toggle_fold(view: &mut TimelineView, cx: &mut Context) {
    if !view.toggle_fold() {
        return cx.inform("no two ranks did the same at the same times");
    }
    ask::forget(cx);
    if !view.search.line.value().is_empty() {
        ask::search(view, cx);
    }
}
