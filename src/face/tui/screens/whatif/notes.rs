//! Sentences of screen 7: launch gaps, break-even or assumptions, the meaning of the selected slider, and the error of
//! the predictions.

use std::sync::Arc;

use super::Act;
use super::draw::{base_text, header, is_estimated, scaled_latency, stand_in, value_text};
use super::layout::{NOTES, WIDE_SLIDERS, WhatIfAreas, areas_of};
use super::state::WhatIf;
use crate::face::tui::prelude::*;
use crate::face::tui::widgets::wrap::join_fitting;
use base::statistics::extent;
use base::text::{counted, joined_with_and, latency};
use plan::{Architecture, LayerSet, Phase};
use study::validate::{TieBand, Trust};
use study::whatif::{
    BreakEven, Fastest, LaunchGaps, NetworkValues, SimulatedMetrics, Slider, WhatIfAnswer, WhatIfRow,
    about_architecture, own_meaning,
};
use table::{Provenance, Spec};

/// Heading of the break-even.
const BREAK_EVEN: &str = "break-even:";

/// Text below the sliders, with its heading.
struct Sentence {
    head: String,
    role: Role,
    words: String,
    style: Role,
}

impl Sentence {
    fn new(head: impl Into<String>, role: Role, words: String, style: Role) -> Self {
        Self { head: head.into(), role, words, style }
    }

    fn whole(&self) -> String {
        format!("{} {}", self.head, self.words).trim_start().to_owned()
    }

    /// Rows of the sentence if it starts at row `from` of an area: one row in areas of at most two wide rows; in areas below
    /// [`NOTES`] rows the rows that are left, of which the first of three leaves one to the next sentence; else all.
    fn rows(&self, area: Rect, from: u16) -> Vec<String> {
        match area.height {
            ..=2 if area.width >= 76 => clause_rows(&self.whole(), area.width, 1),
            ..NOTES => {
                let kept = u16::from(from == 0 && area.height > 2);
                let rest = area.height.saturating_sub(from + kept).max(1);
                clause_rows(&self.whole(), area.width, rest.into())
            }
            _ => wrap(&self.whole(), usize::from(area.width.saturating_sub(1))),
        }
    }
}

/// Rows of a text, at most `most`: too long a text loses its last clauses, then the remark in brackets at its end. Words are cut
/// only if less than two thirds of the room would be used.
fn clause_rows(text: &str, width: u16, most: usize) -> Vec<String> {
    let columns = usize::from(width.saturating_sub(1));
    let mut kept = text;
    loop {
        let rows = wrap(kept, columns);
        if rows.len() <= most && 3 * kept.width() > 2 * columns * most {
            return rows;
        }
        let shorter = match kept.rsplit_once("; ") {
            None => kept.strip_suffix(')').and_then(|text| text.rsplit_once(" (")),
            found => found,
        };
        kept = match shorter {
            Some((shorter, _)) if rows.len() > most => shorter,
            _ => return headline_rows(text, width + 1, most),
        };
    }
}

/// Reason why the present values have no numbers, as a headline; `None` if they have some.
pub fn refusal(whatif: &WhatIf, answer: &WhatIfAnswer) -> Option<String> {
    let of_values = whatif.error.as_ref().map(|why| format!("No answer: {}", why.replace('\n', ": ")));
    of_values.or_else(|| answer.cannot().map(|why| format!("No architecture can run: {why}")))
}

/// Answer in one line, as many clauses as fit: the fastest architecture, the launch gaps that hide its gain, or the reason why
/// there are no numbers.
pub fn headline(whatif: &WhatIf, answer: &WhatIfAnswer, room: u16, cx: &Context) -> String {
    if let Some(why) = refusal(whatif, answer) {
        return cut(&why, room);
    }
    if let Some((gaps, [alone, wired])) = answer.launches_hide_gains() {
        let LaunchGaps { remedy, has_python_stacks, .. } = gaps;
        let (wiring, key) = (answer.wiring(), cx.key::<WhatIf>(Act::LaunchGaps));
        // the row below has the reason
        let at_most = if has_python_stacks { "< " } else { "" };
        let clauses = [
            format!("{wiring} gains nothing: launch-bound"),
            format!("; {key} ({remedy}): {at_most}{alone:.2}x the trace"),
            format!("; with {wiring} {at_most}{wired:.2}x"),
        ];
        return join_fitting(&clauses, room);
    }
    let fastest = answer.fastest();
    let labels: Vec<String> = fastest.rows.iter().map(|(row, _)| answer.label(row)).collect();
    let others = if labels.len() > 1 && labels[0] == "standard" { &labels[1..] } else { &labels[..] };
    // all names if the first clause then fits
    let hardware = &answer.spec.hardware;
    let elsewhere =
        whatif.measured_elsewhere.map(|(_, machine)| format!("On {hardware}, not on {machine}: "));
    let elsewhere = elsewhere.unwrap_or_default();
    let room = room.saturating_sub(elsewhere.width() as u16);
    let [all, few] = [joined_with_and(others), few_of(others)]
        .map(|names| fastest_in_words(whatif, answer, &fastest, &names, room));
    // the smallest window has no room for what they are, only for who and by how much
    let mut bare = few.clone();
    bare.first_mut().into_iter().for_each(|clause| {
        *clause = clause.split_once(": ").map_or_else(|| clause.clone(), |(_, rest)| rest.to_owned());
    });
    let has_room =
        |clauses: &&Vec<String>| clauses.first().is_some_and(|clause| clause.width() <= room.into());
    let clauses = [&all, &few].into_iter().find(has_room).unwrap_or(&bare);
    elsewhere + &join_fitting(clauses, room)
}

/// Clauses on the fastest architectures, which have these names: their speedup over `standard` or, as in the table, over the
/// trace; the band within which they tie, their TPOT, the interval of the first one over the steps of a trace, a slower one
/// that is selected, and the limit or the trace.
fn fastest_in_words(
    whatif: &WhatIf,
    answer: &WhatIfAnswer,
    Fastest { rows, band, has_one_band, has_overlap, .. }: &Fastest<'_>,
    names: &str,
    room: u16,
) -> Vec<String> {
    let Some((first_row, first)) = rows.first() else { return Vec::new() };
    let numbers_of =
        |architecture: &Architecture| answer.row(architecture).and_then(|row| row.numbers.as_ref().ok());
    let base = base_of(whatif);
    let at_most = if answer.is_overstated() { "< " } else { "" };
    let range = |all: Vec<f64>, words: &dyn Fn(f64) -> String| {
        extent(all).map_or_else(String::new, |ends| from_to(ends.map(words)))
    };
    let gain = rows.iter().filter_map(|(_, numbers)| numbers.speedup).collect();
    let gain = range(gain, &|gain: f64| format!("{gain:.2}x"));
    let ms = rows.iter().map(|(_, numbers)| numbers.tpot_ms).collect();
    let ms = range(ms, &|ms: f64| latency(1e3 * ms));
    let metric = match whatif.traced.as_ref().map(|traced| traced.phase()) {
        Some(Phase::Prefill) => "prefill",
        Some(Phase::Decode) => "step",
        None => "TPOT",
    };
    let is_none_faster = answer.label(first_row) == "standard";
    let (within, ties) = (band.within(), rows.len() > 1);
    let ends = first.speedup_95.map(|ends| ends.map(|end| format!("{end:.2}")));
    // steps of a simulation hardly differ
    let ends = ends.filter(|[low, high]| low != high);
    let interval = ends.map_or(String::new(), |[low, high]| format!(" [{low}, {high}]"));
    let own_interval = if ties { "" } else { &interval };
    let mut clauses = match gain.as_str() {
        _ if is_none_faster && ties => {
            vec![
                format!("No gain in {metric} over standard beyond {}", band.pct()),
                format!(": {names}"),
            ]
        }
        _ if is_none_faster => vec![format!("No architecture has a faster {metric} than standard")],
        "" => vec![format!("Fastest {metric}: {names}")],
        gain => {
            vec![format!("Fastest {metric}: {names}, {at_most}{gain} {base}"), own_interval.to_owned()]
        }
    };
    if ties && !is_none_faster {
        let tied = match *has_one_band {
            _ if *has_overlap => [" (tied: steps overlap)", " (tied)"].map(str::to_owned),
            true => [format!(" (tied {within})"), format!(" (±{})", band.pct())],
            // the row below has the bands
            false => [" (too close to call)", " (tied)"].map(str::to_owned),
        };
        let left = room.saturating_sub(clauses.concat().width() as u16);
        clauses.push(first_fitting(&tied, left).to_owned());
    }
    let own = slower_after_change(whatif, answer, rows);
    if let (Some(traced), Some(speedup)) = (&whatif.traced, first.speedup) {
        let before = latency(1e3 * traced.measured_ms);
        // without changes, standard is as fast as the trace
        if whatif.variant != whatif.base && !is_none_faster {
            let over = rows.iter().filter_map(|(_, numbers)| answer.speedup_over_standard(numbers));
            let over = range(over.collect(), &|ratio: f64| format!("{ratio:.2}x"));
            clauses.extend((!over.is_empty()).then(|| format!(", {over} standard")));
        }
        clauses.push(format!(", {ms}"));
        // all of one speedup without an interval have it already
        if is_none_faster || ties && (gain.contains(" to ") || !interval.is_empty()) {
            let label = answer.label(first_row);
            clauses.push(format!("; {label} {at_most}{speedup:.2}x {base}{interval}"));
        }
        clauses.extend(own);
        clauses.push(format!("; trace {before} ({})", traced.provenance()));
        return clauses;
    }
    clauses.push(own.unwrap_or_else(|| format!(", {ms}")));
    let limit = numbers_of(&Architecture::UpperBound).and_then(|limit| limit.speedup);
    clauses.extend(limit.map(|limit| format!("; without communication {limit:.2}x standard")));
    clauses
}

/// Baseline of all speedups.
fn base_of(whatif: &WhatIf) -> &'static str {
    if whatif.traced.is_some() { "the trace" } else { "standard" }
}

/// What a change made of the selected architecture if that is none of the fastest: `; ladder 1.27x standard, 22.9 ms (was
/// 12.9)`.
fn slower_after_change(
    whatif: &WhatIf,
    answer: &WhatIfAnswer,
    fastest: &[(&WhatIfRow, &SimulatedMetrics)],
) -> Option<String> {
    let chosen = answer.row(&answer.spec.architecture)?;
    if whatif.variant == whatif.base || fastest.iter().any(|(row, _)| *row == chosen) {
        return None;
    }
    let own = chosen.numbers.as_ref().ok()?;
    let base = whatif.base_answer.as_ref()?.row(&answer.spec.architecture);
    let [now, was] = [Some(own), base.and_then(|row| row.numbers.as_ref().ok())]
        .map(|numbers| numbers.map_or_else(String::new, |numbers| latency(1e3 * numbers.tpot_ms)));
    let was = match (now.split_once(' '), was.split_once(' ')) {
        (_, None) => String::new(),
        (Some((_, unit)), Some((number, same))) if unit == same => format!(" (was {number})"),
        _ => format!(" (was {was})"),
    };
    let (base, at_most) = (base_of(whatif), if answer.is_overstated() { "< " } else { "" });
    let speedup =
        own.speedup.map_or_else(String::new, |speedup| format!(" {at_most}{speedup:.2}x {base},"));
    Some(format!("; {}{speedup} {now}{was}", answer.label(chosen)))
}

/// Clauses on how far the numbers can be trusted, each after the next: the run that the sliders started from beside its
/// simulation, the error of the predictions, and the band of ties with its reason. True if a warning comes first.
pub fn trust(whatif: &WhatIf, answer: &WhatIfAnswer) -> (Vec<String>, bool) {
    let ms = whatif.base_answer.as_ref().and_then(|base| Some(base.chosen()?.tpot_ms));
    let traced = &whatif.base.cell.architecture;
    let is_run_of_trace = whatif.is_run_of_trace && *traced != Architecture::Standard;
    let of_run = match (whatif.measured_elsewhere, whatif.measured) {
        (Some((measured, machine)), _) => {
            let hardware = &whatif.base.cell.hardware;
            vec![
                format!("run measured {} ms on {machine}", digits(measured)),
                format!(", no profile of it: {hardware} is simulated, compare speedups, not times"),
            ]
        }
        // only traces of standard can be rewired
        (None, measured) if is_run_of_trace => {
            let off = ms.zip(measured).map_or_else(String::new, |(ms, (measured, _))| {
                let error = 100.0 * (ms / measured - 1.0);
                format!(", {error:+.0} % off its {} ms", digits(measured))
            });
            vec![
                format!("trace of {traced}: simulated{off}"),
                "; open the trace of standard".to_owned(),
                " to predict from measured kernels".to_owned(),
            ]
        }
        (None, Some((measured, provenance))) => {
            let simulated = ms.map(|ms| {
                let error = 100.0 * (ms / measured - 1.0);
                format!(", simulated {} ({error:+.0} %)", digits(ms))
            });
            let link = match provenance {
                Provenance::EmulatedLink => " over an emulated link",
                _ => "",
            };
            let run = format!("run measured {} ms{link}", digits(measured));
            std::iter::once(run).chain(simulated).collect()
        }
        (None, None) => {
            let lacks_interval = answer.chosen().is_some_and(|numbers| numbers.speedup_95.is_none());
            let few = whatif.traced.as_ref().filter(|_| lacks_interval);
            few.map(|traced| format!("too few for an interval: {}", traced.steps()))
                .into_iter()
                .collect()
        }
    };
    let is_unvalidated = answer.error.starts_with("not validated");
    let error = match Trust::from_spec(&answer.spec) {
        trust @ Trust::Fitted(_) if answer.assumptions.is_none() => trust.with_left_out(),
        _ => answer.error.clone(),
    };
    let has_python_stacks = answer.launch_gaps.is_some_and(|gaps| gaps.has_python_stacks);
    let caution = has_python_stacks.then(|| {
        vec![
            "Python stacks slow this trace's host".to_owned(),
            ": gains without launch gaps are overstated".to_owned(),
            "; record without with_stack".to_owned(),
        ]
    });
    let mut clauses = caution.unwrap_or_default();
    let separator = if clauses.is_empty() || of_run.is_empty() { "" } else { "; " };
    clauses.extend(of_run.into_iter().enumerate().map(|(at, clause)| match at {
        0 => format!("{separator}{clause}"),
        _ => clause,
    }));
    // the notes have the rest of the error
    let fact = error.split("; ").next().and_then(|fact| fact.split(": ").next()).unwrap_or_default();
    let separator = if clauses.is_empty() { "" } else { "; " };
    clauses.push(format!("{separator}{fact}"));
    let Fastest { rows, band, measured_band, .. } = answer.fastest();
    let is_unmeasured = |row: &&WhatIfRow| row.band == TieBand::UNKNOWN;
    let unmeasured = rows.iter().map(|(row, _)| *row).filter(is_unmeasured);
    let unmeasured: Vec<String> = unmeasured.map(|row| answer.label(row)).collect();
    let is_of_measured_trace =
        whatif.traced.as_ref().is_some_and(|traced| traced.provenance() != Provenance::Simulated);
    let reason = match (unmeasured.len() == rows.len(), is_of_measured_trace) {
        _ if unmeasured.is_empty() => band.reason().to_owned(),
        (true, true) => "no validated trace near this one".to_owned(),
        (true, false) => "no speedup measured near this cell".to_owned(),
        (false, true) => format!("no validated prediction of {}", few_of(&unmeasured)),
        (false, false) => format!("no measured speedup of {}", few_of(&unmeasured)),
    };
    let ties = match measured_band.filter(|_| !unmeasured.is_empty()) {
        Some(measured) => {
            let lacks = if is_of_measured_trace { "not validated" } else { "not measured" };
            let (within, unmeasured) = (measured.within(), few_of(&unmeasured));
            format!("; leads {within} are ties, {} for {unmeasured} ({lacks})", band.pct())
        }
        None => format!("; leads {} are ties: {reason}", band.within()),
    };
    clauses.extend((!rows.is_empty()).then_some(ties));
    let is_warning = has_python_stacks || is_unvalidated || is_run_of_trace;
    (clauses, is_warning || whatif.measured_elsewhere.is_some())
}

/// First label and `ladder`, and the number of others: `parallel, ladder and 3 more`.
pub fn few_of(labels: &[String]) -> String {
    let mut named: Vec<&str> = labels.iter().take(1).map(String::as_str).collect();
    named.extend(labels.iter().skip(1).map(String::as_str).find(|label| *label == "ladder"));
    match labels.len() - named.len() {
        0 => named.join(" and "),
        1 => joined_with_and(labels),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

/// Range of two numbers with their unit, which is named once: `10.1 to 10.2 ms`.
fn from_to([low, high]: [String; 2]) -> String {
    if low == high {
        return low;
    }
    match (low.split_once(' '), high.split_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other => format!("{number} to {high}"),
        _ => format!("{low} to {high}"),
    }
}

/// Meanings of the architectures that are fastest, without the two of the main question and the chosen one; `None` if standard
/// is as fast.
fn unfamiliar(answer: &WhatIfAnswer) -> Option<Sentence> {
    let rows = answer.fastest().rows;
    if rows.iter().any(|(row, _)| row.architecture == Architecture::Standard) {
        return None;
    }
    let architectures = rows.iter().map(|(row, _)| &row.architecture);
    let is_familiar = |one: &Architecture| {
        let main = [Architecture::Standard, Architecture::Ladder(LayerSet::All)];
        main.contains(one) || *one == answer.spec.architecture
    };
    let others = architectures.filter(|one| !is_familiar(one));
    let others: Vec<String> = others.map(|one| format!("{one}: {}", own_meaning(one))).collect();
    let words = others.join(". ");
    (!others.is_empty()).then(|| Sentence::new("meaning:", Role::Dim, words, Role::Dim))
}

/// Measured TPOT of the stored runs that differ from the base in the chosen architecture alone: `ladder 44.3 to 44.9 ms in 3
/// runs`; `None` if another slider is changed.
fn measured_here(whatif: &WhatIf, answer: &WhatIfAnswer, cx: &Context) -> Option<String> {
    let run = whatif.traced.as_ref().map_or(whatif.run.as_ref(), |traced| traced.run())?;
    let architecture = &whatif.variant.cell.architecture;
    let is_base = *architecture == whatif.base.cell.architecture;
    if is_base || !whatif.changes(&whatif.variant, &answer.profile_values).is_empty() {
        return None;
    }
    let stored = cx.stored.as_ref()?;
    let key = Spec { architecture: architecture.clone(), ..run.clone() }.key();
    let runs = stored.cells.get(&key)?.iter().filter_map(|at| stored.records.get(*at));
    let measured = runs.filter(|run| run.provenance != Provenance::Simulated);
    let tpot_ms = measured.filter_map(|run| Some(run.metrics.as_ref()?.tpot_ms.p50));
    let tpot_ms: Vec<f64> = tpot_ms.filter(|ms| *ms > 0.0).collect();
    let count = counted(tpot_ms.len(), "run");
    let range = from_to(extent(tpot_ms)?.map(|ms| latency(1e3 * ms)));
    Some(format!("{architecture} {range} in {count}"))
}

/// Simulated speedup of the cell of a trace, beside the one predicted from its steps: `ladder 1.48x standard in this cell, with
/// contention; from this trace 1.64x, without (emulated link)`.
fn beside_simulator(whatif: &WhatIf, answer: &WhatIfAnswer) -> Option<String> {
    let (traced, simulated) = (whatif.traced.as_ref()?, answer.simulated_speedup?);
    let wiring = answer.wiring();
    let own = answer.speedup_over_standard(answer.row(&wiring)?.numbers.as_ref().ok()?)?;
    let [with, without] = match traced.provenance() {
        Provenance::EmulatedLink => [", with contention", ", without (emulated link)"],
        _ => [""; 2],
    };
    Some(format!(
        "{wiring} {simulated:.2}x standard in this cell{with}; from this trace {own:.2}x{without}"
    ))
}

/// Launch gaps, break-even or assumptions, meaning of the slider, the rest of the gap, and the error; a few rows have room for
/// what matters most.
fn sentences(
    areas: &WhatIfAreas,
    whatif: &WhatIf,
    answer: &Arc<WhatIfAnswer>,
    cx: &Context,
) -> Vec<Sentence> {
    let area = areas.notes;
    // beside a wide slider of the latency, its value inside the model is shown
    let latency_scale = scaled_latency(whatif).filter(|_| areas.sliders.width >= WIDE_SLIDERS);
    let latency_scale = latency_scale.map(|(scale, _)| scale);
    let launches = answer.launch_bound(&cx.key::<WhatIf>(Act::LaunchGaps));
    let launches = launches.map(|said| match said.split_once(": ") {
        Some((head, words)) => {
            Sentence::new(format!("{head}:"), Role::Warn, words.to_owned(), Role::Text)
        }
        None => Sentence::new("", Role::Text, said, Role::Text),
    });
    let said = match (&whatif.error, &whatif.traced) {
        (Some(why), _) => Some(Sentence::new("✘", Role::Bad, why.replace('\n', ": "), Role::Bad)),
        (None, Some(_)) => {
            let assumptions = answer.assumptions.clone().unwrap_or_default();
            Some(Sentence::new("predicted:", Role::Title, assumptions, Role::Text))
        }
        (None, None) if never_hides(answer) => None,
        (None, None) => {
            let words = break_even(whatif, answer, latency_scale);
            Some(Sentence::new(BREAK_EVEN, Role::Title, words, Role::Text))
        }
    };
    let name = format!("{}:", whatif.slider().name());
    let of_slider = Sentence::new(name, Role::Dim, about(whatif, answer, cx), Role::Dim);
    let error = Sentence::new("error of predictions:", Role::Dim, answer.error.clone(), Role::Dim);
    let link = stand_in(&answer.profile_values).filter(|_| answer.profile_values.no_link.is_none());
    let link = link.map(|note| Sentence::new("link:", Role::Warn, note.to_owned(), Role::Text));
    let gap = answer.rest_of_gap().map(|said| Sentence::new("gap:", Role::Title, said, Role::Text));
    let measured = measured_here(whatif, answer, cx);
    let measured = measured.map(|said| Sentence::new("measured here:", Role::Title, said, Role::Text));
    let simulated = beside_simulator(whatif, answer);
    let simulated = simulated.map(|said| Sentence::new("simulator:", Role::Title, said, Role::Text));
    let is_last = area.height <= 2 && whatif.error.is_none() && launches.is_some();
    let last = measured.into_iter().chain(simulated).chain(link).chain(gap).chain([error]);
    let last = last.chain(unfamiliar(answer));
    let first = launches.into_iter().chain(said);
    let mut all: Vec<Sentence> = first.chain([of_slider]).chain(last).collect();
    if is_last {
        all[1..].rotate_left(1);
    }
    all
}

/// Sentence with its rows, and the place of the first one.
struct PlacedSentence {
    sentence: Sentence,
    area: Rect,
    row: u16,
    rows: Vec<String>,
}

/// Places the sentences: the break-even in an area of its own if it has one, all others in the notes.
fn placed(
    areas: &WhatIfAreas,
    whatif: &WhatIf,
    answer: &Arc<WhatIfAnswer>,
    cx: &Context,
) -> Vec<PlacedSentence> {
    let mut from = 0;
    let place = |sentence: Sentence| {
        let own = areas.break_even;
        if sentence.head == BREAK_EVEN && !own.is_empty() {
            let rows = clause_rows(&sentence.whole(), own.width, own.height.into());
            return PlacedSentence { sentence, area: own, row: 0, rows };
        }
        let (area, row) = (areas.notes, from);
        let rows = sentence.rows(area, row);
        from += rows.len() as u16 + u16::from(area.height >= NOTES);
        PlacedSentence { sentence, area, row, rows }
    };
    sentences(areas, whatif, answer, cx).into_iter().map(place).collect()
}

pub fn draw_notes(
    buf: &mut Buffer,
    areas: &WhatIfAreas,
    whatif: &WhatIf,
    answer: &Arc<WhatIfAnswer>,
    cx: &Context,
) {
    let theme = cx.theme;
    for PlacedSentence { sentence, area, row, rows } in placed(areas, whatif, answer, cx) {
        for (at, words) in rows.iter().enumerate() {
            let is_last = row + at as u16 + 1 == area.height && at + 1 < rows.len();
            let more = if is_last { format!("{words} …") } else { String::new() };
            let words = if is_last { &more } else { words };
            let (head, words) = match words.split_at_checked(sentence.head.len()) {
                Some(split) if at == 0 => split,
                _ => ("", words.as_str()),
            };
            let pieces = [(" ", Role::Text), (head, sentence.role), (words, sentence.style)];
            let pieces = pieces.map(|(text, role)| (text, theme.style(role)));
            line(buf, area, row + at as u16, &pieces);
        }
    }
}

/// Caveats: the first three rows, and the sentences below the sliders.
pub fn notes(whatif: &WhatIf, body: Rect, cx: &Context) -> Vec<ScreenNote> {
    let Some(answer) = &whatif.answer else { return Vec::new() };
    let areas = areas_of(body, whatif);
    let room = areas.fastest.width.saturating_sub(1);
    let mut notes = Vec::new();
    let clauses = match refusal(whatif, answer) {
        Some(_) => Vec::new(),
        None => trust(whatif, answer).0,
    };
    let rows = [headline(whatif, answer, room, cx), join_fitting(&clauses, room)];
    let whole = [headline(whatif, answer, u16::MAX, cx), join_fitting(&clauses, u16::MAX)];
    for (row, whole) in rows.into_iter().zip(whole).filter(|(_, whole)| !whole.is_empty()) {
        let is_cut = row != whole;
        notes.push(ScreenNote::new(whole, is_cut));
    }
    for PlacedSentence { sentence, area, row, rows } in placed(&areas, whatif, answer, cx) {
        let is_wide = rows.iter().any(|row| row.width() + 1 > area.width.into());
        let is_cut = is_wide || !is_whole(&rows, &sentence.whole());
        let is_below = row + rows.len() as u16 > area.height;
        notes.push(ScreenNote::new(sentence.whole(), is_cut || is_below));
    }
    // the hint takes its room from the header
    let room = areas.header.width.saturating_sub(notes_hint(&notes, cx).width() as u16);
    let (_, whole, is_whole) = header(whatif, &areas, cx, room);
    notes.push(ScreenNote::beside_hint(whole.trim(), !is_whole));
    notes
}

/// Meaning of the selected slider, and what its value needs or rests on.
fn about(whatif: &WhatIf, answer: &WhatIfAnswer, cx: &Context) -> String {
    let slider = whatif.slider();
    let key = |act| cx.key::<WhatIf>(act);
    let before = base_text(whatif, slider).map_or_else(String::new, |before| match slider {
        Slider::LaunchGaps => format!("{before}; "),
        _ => format!("{}; ", base_and_reset(whatif, slider, &before, &key(Act::ResetOne))),
    });
    let about = about_value(whatif, answer);
    let values = Some(&answer.profile_values);
    if slider.no_effect(&whatif.variant, values).is_some() {
        return before + &about;
    }
    let is_typed = slider.option().is_none() || slider.number(&whatif.variant, values).is_some();
    let enter = if is_typed { "types a value" } else { "lists all" };
    format!("{before}{about}; {} {enter}", key(Act::Type))
}

/// Base value of a slider and the value that its reset gives: another one if the profile's follows sliders that are changed.
fn base_and_reset(whatif: &WhatIf, slider: Slider, before: &str, key: &str) -> String {
    let (now, base) = (&whatif.variant.cell, &whatif.base.cell);
    let place = if now.tp != base.tp {
        format!(" at TP {}", base.tp)
    } else if now.hardware != base.hardware {
        format!(" on {}", base.hardware)
    } else if now.p2p != base.p2p {
        format!(" with P2P {}", base.p2p.as_str())
    } else {
        String::new()
    };
    if !slider.is_changed(&whatif.variant, &whatif.base) {
        return format!("base {before}{place}");
    }
    let mut reset = whatif.variant.clone();
    slider.reset(&mut reset, &whatif.base);
    let after = value_text(slider, &reset, whatif.profile_values());
    match slider.option().is_some() || after == before {
        true => format!("base {before} (key {key} restores it)"),
        false => format!("base {before}{place}, key {key} resets to {after}"),
    }
}

fn about_value(whatif: &WhatIf, answer: &WhatIfAnswer) -> String {
    let slider = whatif.slider();
    let (about, values) = (slider.about().to_owned(), &answer.profile_values);
    if let Some(why) = slider.no_effect(&whatif.variant, Some(values)) {
        return format!("no effect: {why}");
    }
    let estimate = values.link_note.as_ref().filter(|_| is_estimated(slider, &whatif.variant, values));
    let estimate = estimate.map_or_else(String::new, |note| format!("; ~: {note}"));
    match slider {
        Slider::Architecture => about_architecture(&answer.spec.architecture),
        Slider::Alpha | Slider::Bandwidth if whatif.traced.is_some() => {
            let source = match answer.spec.link.is_emulated() {
                true => "emulated link",
                false => "hardware profile",
            };
            let base = match base_text(whatif, slider) {
                // the sentence begins with its value
                Some(_) => format!("; base: {source}"),
                None => {
                    let base = slider.text(&whatif.variant, Some(values));
                    format!("; base: {base} {} ({source})", slider.unit())
                }
            };
            let has_launch =
                whatif.traced.as_ref().is_some_and(|traced| traced.latency_includes_launch());
            let launch = match slider {
                Slider::Alpha if has_launch => "; includes the launch, which the traced kernels do not",
                _ => "",
            };
            let own = all_reduce(whatif, answer);
            format!("{about}{base}{launch}{own}{estimate}{}", stretch(whatif, answer))
        }
        Slider::Collective => about + &all_reduce(whatif, answer),
        Slider::Bandwidth => about + &estimate,
        Slider::Alpha => {
            let stack = &answer.spec.stack;
            let scaled = match (scaled_latency(whatif), answer.spec.link.is_emulated()) {
                (Some((scale, us)), _) => {
                    format!("as in nccl-tests; stack {stack} scales it by {scale} to {} us", digits(us))
                }
                (None, _) if values.latency_scale.is_some() => "as in nccl-tests".to_owned(),
                (None, true) => "emulated, the same with every stack".to_owned(),
                (None, false) => "by the profile's formula, the same with every stack".to_owned(),
            };
            format!("{about}, {scaled}{estimate}")
        }
        Slider::NetworkLatency | Slider::NetworkBandwidth => match &values.network {
            Some(NetworkValues { nodes, note, .. }) => {
                let note = note.as_ref().map_or_else(String::new, |note| format!(": {note}"));
                let (per_node, hardware) = (values.gpus_per_node, &answer.spec.hardware);
                format!("{about}; {nodes} nodes of {per_node} GPUs; default of {hardware}{note}")
            }
            None => about,
        },
        // a stand-in has a sentence of its own
        Slider::P2p | Slider::Hardware => {
            match values.link_note.as_ref().filter(|_| stand_in(values).is_none()) {
                Some(note) => format!("{about}; link: {note}"),
                None => about,
            }
        }
        Slider::Tp => match &values.tp_note {
            Some(note) => format!("{about}; {note}"),
            None => about,
        },
        Slider::Load => match answer.experts_touched() {
            Some(touched) => format!("{about}; {touched}"),
            None => about,
        },
        _ => about,
    }
}

/// Time of one all-reduce after the changes, and of the base.
fn all_reduce(whatif: &WhatIf, answer: &WhatIfAnswer) -> String {
    let Some(now) = answer.all_reduce_us.map(latency) else { return String::new() };
    let was = whatif.base_answer.as_ref().and_then(|base| base.all_reduce_us).map(latency);
    match (was.filter(|was| *was != now), whatif.traced.is_some()) {
        (Some(was), true) => format!("; one all-reduce: {now}, traced {was} (median)"),
        (Some(was), false) => format!("; one all-reduce of a decode step: {now}, base {was}"),
        (None, true) => format!("; one all-reduce: {now}, as traced (median)"),
        (None, false) => format!("; one all-reduce of a decode step: {now}"),
    }
}

/// Effect of the changes on the communication of the traced steps.
fn stretch(whatif: &WhatIf, answer: &WhatIfAnswer) -> String {
    let comm_ms = |answer: &WhatIfAnswer| {
        let standard = answer.row(&Architecture::Standard)?;
        standard.numbers.as_ref().ok().map(|numbers| numbers.comm_ms).filter(|ms| *ms > 0.0)
    };
    let before = whatif.base_answer.as_deref().and_then(comm_ms);
    match comm_ms(answer).zip(before) {
        Some((now, before)) if digits(now) != digits(before) => format!(
            "; standard communicates for {} ms a step, {:.2}x the trace's {}",
            digits(now),
            now / before,
            digits(before)
        ),
        _ => String::new(),
    }
}

/// True if the chosen architecture runs all communication alone, so that no link lets it hide any.
pub fn never_hides(answer: &WhatIfAnswer) -> bool {
    answer.spec.architecture == Architecture::Standard && answer.spec.micro_batches <= 1
}

fn break_even(whatif: &WhatIf, answer: &WhatIfAnswer, latency_scale: Option<f64>) -> String {
    if let Err(why) =
        answer.row(&answer.spec.architecture).map_or(Ok(()), |row| row.numbers.as_ref().map(drop))
    {
        return format!("none: {why}");
    }
    let Some(found) = whatif.break_even() else { return "searching…".into() };
    match found.iter().cloned().collect::<Result<Vec<_>, _>>() {
        Err(why) => format!("none: {why}"),
        Ok(found) => {
            let words = BreakEven::beside_values(&found, latency_scale);
            format!("{} {words}", answer.spec.architecture)
        }
    }
}
