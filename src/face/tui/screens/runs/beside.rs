//! Two runs or cells side by side: the speedup, their different options and their results.

use std::sync::Arc;

use super::Runs;
use super::cells::MarkedSide;
use super::state::{EXPOSED, HIDDEN, PER_GPU, TPOT};
use crate::face::tui::prelude::*;
use crate::face::tui::texts::{Pieces, TextView};
use base::text::without_middle;
use study::analysis::{ComparedSide, MeasureValues, SideBySide, side_by_side};
use table::{MeasureScope, Provenance};

impl Runs {
    pub(super) fn put_side_by_side(two: &[MarkedSide; 2], runs: &Arc<Snapshot>, cx: &mut Context) {
        let place = |side: &MarkedSide| {
            let at = runs.records.iter().position(|record| record.run == side.run)?;
            Some(if side.is_cell { ComparedSide::Cell(at) } else { ComparedSide::Run(at) })
        };
        let (Some(a), Some(b)) = (place(&two[0]), place(&two[1])) else { return };
        let is_on_cpu = |side: &MarkedSide| {
            runs.find(&side.run).is_some_and(|record| record.spec.backend.computes_on_cores())
        };
        let (is_cell, is_on_cpu) = (two.each_ref().map(|side| side.is_cell), two.iter().all(is_on_cpu));
        let runs = Arc::clone(runs);
        cx.ask_own(
            "side by side",
            move |_| side_by_side(&runs.records, a, b),
            move |both, cx| {
                let Some(mut both) = cx.ok_or_fail(both).filter(|_| cx.overlays.is_empty()) else {
                    return;
                };
                both.measures.retain(|both| !is_on_cpu || both.measure.name != PER_GPU);
                let [first, second] = both.runs.clone();
                let text = TextView::new("side by side", move |width| describe(&both, is_cell, width));
                let hints =
                    &[("Enter", "both timelines"), ("↑ ↓", "scroll"), ("?", "help"), ("Esc", "close")];
                // the first run above the second, as its column is on the left
                cx.lay(text.on_enter(hints, |state| state.cx.open_runs([first, second])));
            },
        );
    }
}

/// Text of a comparison; `is_cell` is true for a side that pools all rounds of its cell.
fn describe(both: &SideBySide, is_cell: [bool; 2], width: usize) -> Vec<Pieces> {
    /// Width of the ratios behind the values.
    const RATIOS: usize = 9;
    let mut lines: Vec<Pieces> = Vec::new();
    let all = both.measures.iter().map(|both| both.measure.words);
    let names = both.differences.iter().map(|difference| difference.0).chain(all);
    let name_width = names.map(str::width).max().unwrap_or(0).clamp(18, (width / 3).max(18));
    let column = width.saturating_sub(name_width + 1 + RATIOS).max(20) / 2;
    let row = |name: &str, a: &str, b: &str, last: &str, role: Role| -> Pieces {
        let [a, b] = distinct([a, b], column - 1);
        vec![
            (format!("{:<width$}", cut(name, name_width as u16), width = name_width + 1), Role::Dim),
            (format!("{a:<column$}{b:<column$}{last}"), role),
        ]
    };
    if !both.is_same_cell {
        lines.extend(speedup(both));
    }
    let why = both.why.iter().flat_map(|why| wrap(why, width));
    lines.extend(why.map(|text| vec![(text, Role::Title)]));
    // label by differences; ids in a batch look alike
    let words = |of: for<'a> fn(&'a (&'static str, String, String)) -> &'a String| {
        both.differences.iter().map(|difference| of(difference).as_str()).collect::<Vec<_>>().join(" ")
    };
    if !both.differences.is_empty() {
        let heads =
            [words(|d| &d.1), words(|d| &d.2)].map(|words| words_or_cut(&words, column as u16 - 1));
        lines.push(row("", &heads[0], &heads[1], "", Role::Title));
    }
    // a pool has no run of its own
    let of_side = |at: usize| if is_cell[at] { "all of its cell" } else { both.runs[at].as_str() };
    lines.push(row("run", of_side(0), of_side(1), "", Role::Text));
    if both.rounds.iter().any(|rounds| !rounds.is_empty()) {
        lines.push(row("rounds", &both.rounds[0], &both.rounds[1], "", Role::Text));
    }
    let provenance = both.provenance.map(|p| p.to_string());
    let mixed = if provenance[0] == provenance[1] { Role::Text } else { Role::Warn };
    lines.push(row("provenance", &provenance[0], &provenance[1], "", mixed));
    for warning in &both.warnings {
        for (at, text) in wrap(warning, width.saturating_sub(4)).into_iter().enumerate() {
            lines.push(vec![(format!("{}{text}", if at == 0 { "⚠ " } else { "  " }), Role::Warn)]);
        }
    }
    lines.push(vec![(format!("different options (the other {} are equal)", both.equal), Role::Title)]);
    for (name, a, b) in &both.differences {
        lines.push(row(name, a, b, "", Role::Text));
    }
    if both.differences.is_empty() {
        lines.push(vec![("none: two runs of the same cell".into(), Role::Dim)]);
    }
    lines.push(vec![("results, and the ratio of the second to the first".into(), Role::Title)]);
    let mut measures: Vec<_> = both.measures.iter().collect();
    let is_of_lanes = |both: &MeasureValues| both.measure.scope == MeasureScope::Lanes;
    measures.sort_by_key(|both| (is_of_lanes(both), ![TPOT, EXPOSED].contains(&both.measure.name)));
    let first_of_lanes = measures.iter().position(|both| is_of_lanes(both));
    for (at, both) in measures.into_iter().enumerate() {
        if first_of_lanes == Some(at) {
            // not the medians above: instrumentation may have made the recorded sample longer
            let title = "lanes in the decode phase of a recorded sample, mean over ranks";
            lines.push(vec![(title.into(), Role::Title)]);
        }
        let measure = both.measure;
        let [a, b] = both.values.map(|value| value.map_or("-".into(), |value| measure.cell(value)));
        let ratio = both.ratio().map_or(String::new(), |ratio| format!("x {}", digits(ratio)));
        let name = if measure.name == HIDDEN { "hidden" } else { measure.words };
        lines.push(row(name, &a, &b, &ratio, Role::Text));
    }
    lines
}

/// Two values of an option in this width: of longer ones, the end from where they differ.
fn distinct(values: [&str; 2], width: usize) -> [String; 2] {
    let [a, b] = values;
    if a == b || values.iter().all(|value| value.width() <= width) {
        return values.map(|value| without_middle(value, width));
    }
    let same = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    // whole words and numbers
    let from =
        a.get(..same).and_then(|same| same.rfind(['-', ':', ',', '=', ' '])).map_or(0, |at| at + 1);
    values.map(|value| match value.get(from..) {
        Some(rest) if from > 0 => without_middle(&format!("…{rest}"), width),
        _ => without_middle(value, width),
    })
}

fn speedup(both: &SideBySide) -> Vec<Pieces> {
    let Some(speedup) = both.speedup else {
        return vec![vec![("no ratio: one of them has no numbers".into(), Role::Dim)]];
    };
    let interval = match both.speedup_ci95 {
        Some([low, high]) => {
            let verdict = if both.differs { "significant" } else { "not significant" };
            format!("95 % [{low:.3}, {high:.3}]: {verdict}")
        }
        None if both.provenance.contains(&Provenance::Simulated) => "simulated: no interval".into(),
        None => "no interval: fewer than 6 samples".into(),
    };
    let rounds = counted(both.shared_rounds, "shared round");
    vec![
        vec![(format!("tokens/s over all rounds of both cells x {speedup:.3}"), Role::Title)],
        vec![(format!("{interval} ({rounds})"), Role::Text)],
    ]
}
