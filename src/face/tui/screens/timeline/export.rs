//! Export of the timeline: file, command line, or saved state.

use std::sync::Arc;

use super::lists;
use super::state::measure;
use super::state::panel::Panel;
use super::state::scope::{Part, Scope};
use super::state::window::Window;
use super::state::{Pane, TraceIndex, View};
use crate::face::tui::screen::{Export, FileKind};
use plan::Phase;
use study::analysis;
use study::plot;
use table::render::{Shown, Sourced, Table};
use trace::Trace;
use trace::overlap::StepKey;

/// Exported stretch in ns of the trace: the selection or marks, else the visible window.
fn stretch(view: &View, pane: &Pane) -> Window {
    pane.window(view.stretch().unwrap_or(view.window))
}

/// Exports figures of the stretch of all open traces, or its spans as CSV. If a list is open below the
/// lanes, CSV exports the list.
pub fn export(view: &View, kind: FileKind) -> Result<Export, String> {
    if kind == FileKind::Csv && matches!(view.panel, Some(Panel::Differences { .. })) {
        return match (&view.differences, &view.panes[..]) {
            (Some(report), [a, b]) if view.compares_now() => {
                let provenance = [a.index.provenance(), b.index.provenance()];
                Ok(Export::text(lists::differences::csv(report, provenance)))
            }
            _ => Err("the steps are being compared: once more, please".into()),
        };
    }
    if let (FileKind::Csv, Some(table)) = (kind, counted(view)) {
        return table
            .map(|table| Export::text(table.csv(Sourced::ByRow)))
            .ok_or("it is being counted: once more, please".into());
    }
    let shown: Vec<(Arc<TraceIndex>, Window)> =
        view.panes.iter().map(|pane| (pane.index.clone(), stretch(view, pane))).collect();
    if shown.iter().all(|(index, _)| index.trace.spans.is_empty()) {
        return Err("the trace has no spans: there is nothing to write".into());
    }
    Ok(match kind {
        FileKind::Csv => Export::new(move |path| {
            let parts: Vec<(&str, Trace)> = shown
                .iter()
                .map(|(index, window)| (index.title.as_str(), measure::part(index, *window)))
                .collect();
            let parts: Vec<(&str, &Trace)> = parts.iter().map(|(name, trace)| (*name, trace)).collect();
            trace::export::write_several(&parts, path)
        }),
        FileKind::Svg | FileKind::Png => Export::new(move |path| {
            let alone = shown.len() == 1;
            let stretches: Vec<plot::Stretch> = shown
                .iter()
                .map(|(index, window)| {
                    let since = |time: i64| time.saturating_sub(index.zero);
                    // keep simultaneous events of two traces aligned
                    let from = if alone { since(window.from).max(0) } else { since(window.from) };
                    plot::Stretch { trace: &index.trace, from_ns: from, to_ns: since(window.to) }
                })
                .collect();
            plot::timeline(&stretches, path)
        }),
    })
}

/// Listed operations or exposed stretches with their provenance; the inner `None` means still being computed.
fn counted(view: &View) -> Option<Option<Table>> {
    let table = match view.panel.as_ref()? {
        Panel::Operations(shown) => {
            let counted = shown.counted.as_ref().filter(|counted| counted.is_of(shown.scope, view));
            counted.map(|counted| {
                let rows = shown.order.iter().filter_map(|at| counted.table.rows.get(*at));
                analysis::names_table(&rows.cloned().collect::<Vec<_>>())
            })
        }
        Panel::Stretches(shown) => {
            let counted = shown.counted.as_ref().filter(|counted| counted.is_of(shown.scope, view));
            counted.map(|counted| analysis::stretches_table(&counted.table.longest))
        }
        _ => return None,
    };
    let provenance = view.pane().index.provenance();
    Some(table.map(|table| table.with("provenance", &Shown::text(provenance))))
}

/// Command that prints the list below the lanes, such as `overlap RUN --by name`.
fn list_command(view: &View) -> Option<Vec<String>> {
    let (by, part) = match view.panel.as_ref()? {
        Panel::Operations(shown) => ("name", shown.scope.part(view)),
        Panel::Stretches(shown) => ("exposed", shown.scope.part(view)),
        _ => return None,
    };
    let pane = view.pane();
    let mut words = vec!["overlap".to_string(), pane.index.source()?];
    words.extend(opening(pane.index.rules.as_ref(), pane.index.recording.as_ref()));
    words.extend(["--by".into(), by.into()]);
    words.extend(match part {
        Part::Step(key) if key.phase == Phase::Decode => vec!["--step".into(), key.step.to_string()],
        Part::Step(StepKey { phase, .. }) | Part::Phase(phase) => {
            vec!["--phase".into(), phase.as_str().into()]
        }
        Part::Stretch(window) => {
            let time = |ns: i64| format!("{}ns", ns.saturating_sub(pane.index.zero).max(0));
            vec!["--from".into(), time(window.from), "--to".into(), time(window.to)]
        }
        Part::All | Part::Hits(_) => vec!["--phase".into(), "all".into()],
    });
    Some(words)
}

fn opening(rules: Option<&String>, recording: Option<&String>) -> Vec<String> {
    let options = [("--rules", rules), ("--recording", recording)].into_iter();
    options.filter_map(|(option, value)| Some([option.to_owned(), value?.clone()])).flatten().collect()
}

/// Equivalent command: `overlap RUN --from --to` for a stretch, else the timeline at the same window.
pub fn command(view: &View) -> Option<Vec<String>> {
    if let Some(words) = list_command(view).filter(|_| view.pane().ghost.is_none()) {
        return Some(words);
    }
    let above = &view.panes[0];
    let source = |pane: &Pane| pane.index.source();
    let measured = view.stretch().filter(|_| view.pane().ghost.is_none());
    let pane = if measured.is_some() { view.pane() } else { above };
    let window = stretch(view, pane);
    let time = |ns: i64| format!("{}ns", ns.saturating_sub(pane.index.zero).max(0));
    let verb = if measured.is_some() { "overlap" } else { "timeline" };
    let mut words = vec![verb.to_string(), source(pane)?];
    let (mut rules, mut recording) = (pane.index.rules.as_ref(), pane.index.recording.as_ref());
    if measured.is_none()
        && let Some(below) = view.panes.get(1).filter(|pane| pane.ghost.is_none())
    {
        words.push(source(below)?);
        rules = rules.or(below.index.rules.as_ref());
        recording = recording.or(below.index.recording.as_ref());
    }
    words.extend(opening(rules, recording));
    // the full trace needs no options, except for phases
    let whole = window.from <= pane.index.zero && window.to >= pane.index.bounds.to;
    if !whole || measured.is_some() {
        words.extend(["--from".into(), time(window.from), "--to".into(), time(window.to)]);
    }
    Some(words)
}

/// Parts of the view that the command cannot express, since it accepts one set of rules and one
/// recording.
pub fn beyond_command(view: &View) -> Vec<String> {
    // `--step` covers all samples
    let sample = |scope: Scope| {
        let several = view.pane().index.trace.spans.iter().any(|span| span.sample > 0);
        matches!(scope.part(view), Part::Step(_)) && several
    };
    match (&view.panel, &view.panes[..]) {
        (Some(Panel::Operations(shown)), _) => {
            let search = matches!(shown.scope.part(view), Part::Hits(_));
            let filter = !shown.filter.value().is_empty();
            let all =
                [(search, "the search"), (filter, "the filter"), (sample(shown.scope), "the sample")];
            all.into_iter().filter(|(so, _)| *so).map(|(_, what)| what.to_owned()).collect()
        }
        (Some(Panel::Stretches(shown)), _) if sample(shown.scope) => vec!["the sample".into()],
        (Some(Panel::Stretches(_)), _) => Vec::new(),
        (_, [above, below]) if view.stretch().is_none() && below.ghost.is_none() => {
            let (above, below) = (&above.index, &below.index);
            let differ = [
                (above.rules != below.rules, "the rules in which the traces differ"),
                (above.recording != below.recording, "the recordings in which the traces differ"),
            ];
            differ.into_iter().filter(|(so, _)| *so).map(|(_, what)| what.to_owned()).collect()
        }
        (_, [_, below]) if view.stretch().is_none() && below.ghost.is_some() => {
            vec!["what is simulated below".into()]
        }
        _ => Vec::new(),
    }
}
