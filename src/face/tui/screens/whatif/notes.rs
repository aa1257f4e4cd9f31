//! Sentences of screen 7: launch gaps, break-even or assumptions, the meaning of the selected slider, and the error of
//! the predictions.

use std::sync::Arc;

use super::Act;
use super::draw::{base_text, header, stand_in, whole_header};
use super::layout::{Areas, NOTES, areas_of};
use super::state::WhatIf;
use crate::face::tui::prelude::*;
use base::text::latency;
use plan::Architecture;
use study::analysis::LEAST_DIFFERENCE;
use study::whatif::{
    Answer, BreakEven, LaunchGaps, NetworkValues, Slider, about_architecture, with_article,
};

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

    /// Rows of the sentence if it starts at row `from` of an area: one row in areas of at most two rows; in areas below
    /// [`NOTES`] rows the rows that are left, of which the first sentence leaves one to the next; else all.
    fn rows(&self, area: Rect, from: u16) -> Vec<String> {
        match area.height {
            ..=2 => leading_clauses(&self.whole(), area.width, 1),
            3..NOTES => {
                let rest = area.height.saturating_sub(from + u16::from(from == 0)).max(1);
                leading_clauses(&self.whole(), area.width, rest.into())
            }
            _ => wrap(&self.whole(), usize::from(area.width.saturating_sub(1))),
        }
    }
}

/// Rows of a text, at most `most`: too long a text loses its last clauses, then the remark in brackets at its end. Words are cut
/// only if less than half of the room would be used.
fn leading_clauses(text: &str, width: u16, most: usize) -> Vec<String> {
    let columns = usize::from(width.saturating_sub(1));
    let mut kept = text;
    loop {
        let rows = wrap(kept, columns);
        if rows.len() <= most && 2 * kept.width() > columns * most {
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

/// Answer in one line, in the most words that fit: the fastest architecture, or the launch gaps that hide its gain.
pub fn headline(whatif: &WhatIf, answer: &Answer, room: u16, cx: &Context) -> String {
    let forms = match answer.launches_hide_gains() {
        Some((gaps, speedups)) => {
            hidden_gains(answer, gaps, speedups, &cx.key::<WhatIf>(Act::LaunchGaps))
        }
        None => fastest(whatif, answer),
    };
    first_fitting(&forms, room).to_owned()
}

/// Speedup that the launch gaps of a traced step hide, and the part of it that removing these gaps gives alone.
fn hidden_gains(answer: &Answer, gaps: LaunchGaps, [alone, wired]: [f64; 2], key: &str) -> Vec<String> {
    let (wiring, remedy) = (answer.wiring(), gaps.remedy);
    let nothing = format!("{wiring} gains nothing");
    let with = with_article(remedy);
    vec![
        format!(
            "{nothing} as traced: launch-bound; {key}: with {with} {wired:.2}x the trace (that alone {alone:.2}x)"
        ),
        format!("{nothing}: launch-bound; {key}: {remedy} {wired:.2}x (alone {alone:.2}x)"),
        format!("{nothing}: launch-bound; {key}: {wired:.2}x (alone {alone:.2}x)"),
    ]
}

/// Fastest architecture, its ties, its speedup over `standard` and over a traced step; shorter forms last.
fn fastest(whatif: &WhatIf, answer: &Answer) -> Vec<String> {
    let fastest = answer.fastest();
    let Some((_, numbers)) = fastest.first() else { return Vec::new() };
    let labels: Vec<String> = fastest.iter().map(|(row, _)| answer.label(row)).collect();
    let [one, ties @ ..] = &labels[..] else { return Vec::new() };
    let [within, tie, short, least] = ties_in_words(ties);
    let ms = latency(1e3 * numbers.tpot_ms);
    let numbers_of =
        |architecture: &Architecture| answer.row(architecture).and_then(|row| row.numbers.as_ref().ok());
    let over_standard = match whatif.traced.is_some() {
        true => numbers_of(&Architecture::Standard).map(|standard| standard.tpot_ms / numbers.tpot_ms),
        false => numbers.speedup,
    };
    let gain = match over_standard {
        _ if one == "standard" => "; none is faster".to_owned(),
        Some(speedup) => format!(", {speedup:.2}x standard"),
        None => String::new(),
    };
    if let (Some(traced), Some(speedup)) = (&whatif.traced, numbers.speedup) {
        let times = if traced.is_simulated() { "simulated" } else { "measured" };
        let before = latency(1e3 * traced.measured_ms);
        let over_trace = format!("{speedup:.2}x the trace");
        return vec![
            format!("Fastest: {one}, {ms}{gain}{within}, {speedup:.2}x the {times} step of {before}"),
            format!("Fastest: {one}, {ms}{gain}{within}, {over_trace}"),
            format!("Fastest: {one}, {ms}{gain}{tie}, {over_trace}"),
            format!("Fastest: {one}, {ms}{gain}{short}, {over_trace}"),
            format!("Fastest: {one}, {ms}{gain}{least}, {over_trace}"),
            format!("Fastest: {one}{gain}{least}, {over_trace}"),
        ];
    }
    let limit = numbers_of(&Architecture::UpperBound).and_then(|limit| limit.speedup);
    let limit = limit.map_or_else(String::new, |limit| format!("; without communication {limit:.2}x"));
    vec![
        format!("Fastest: {one}, {ms}{gain}{within}{limit}"),
        format!("Fastest: {one}, {ms}{gain}{within}"),
        format!("Fastest: {one}, {ms}{gain}{tie}"),
        format!("Fastest: {one}, {ms}{gain}{short}"),
        format!("Fastest: {one}, {ms}{gain}{least}"),
    ]
}

/// Architectures that tie with the fastest, in brackets, the longest form first; all but the last say whether `ladder` is
/// among them. Empty without ties.
pub fn ties_in_words(ties: &[String]) -> [String; 4] {
    let Some(first) = ties.first() else { return Default::default() };
    let one = ties.iter().find(|label| *label == "ladder").unwrap_or(first);
    let more = match ties.len() {
        1 => String::new(),
        all => format!(" and {} more", all - 1),
    };
    let all = ties.join(", ");
    [
        format!(" ({all} within {} %)", 100.0 * LEAST_DIFFERENCE),
        format!(" (tie: {all})"),
        format!(" (tie: {one}{more})"),
        " (tie)".to_owned(),
    ]
}

/// Missing validation, launch gaps, break-even or assumptions, meaning of the slider, and the error; two rows have room for
/// what matters most.
fn sentences(area: Rect, whatif: &WhatIf, answer: &Arc<Answer>, cx: &Context) -> Vec<Sentence> {
    let launches = answer.launch_bound(&cx.key::<WhatIf>(Act::LaunchGaps));
    let launches = launches.map(|said| match said.split_once(": ") {
        Some((head, words)) => {
            Sentence::new(format!("{head}:"), Role::Warn, words.to_owned(), Role::Text)
        }
        None => Sentence::new("", Role::Text, said, Role::Text),
    });
    let said = match (&whatif.error, &whatif.traced) {
        (Some(why), _) => Sentence::new("✘", Role::Bad, why.replace('\n', ": "), Role::Bad),
        (None, Some(_)) => {
            let assumptions = answer.assumptions.clone().unwrap_or_default();
            Sentence::new("predicted:", Role::Title, assumptions, Role::Text)
        }
        (None, None) => Sentence::new(BREAK_EVEN, Role::Title, break_even(whatif, answer), Role::Text),
    };
    let name = format!("{}:", whatif.slider().name());
    let of_slider = Sentence::new(name, Role::Dim, about(whatif, answer, cx), Role::Dim);
    let error =
        |error: &String| Sentence::new("error of predictions:", Role::Dim, error.clone(), Role::Dim);
    let link = stand_in(&answer.profile_values).filter(|_| answer.profile_values.no_link.is_none());
    let link = link.map(|note| Sentence::new("link:", Role::Warn, note.to_owned(), Role::Text));
    // two rows have it in the header
    let unvalidated = unvalidated(answer).filter(|_| area.height > 2);
    let validated = answer.error.as_ref().filter(|_| unvalidated.is_none()).map(error);
    let unvalidated = unvalidated.map(|why| Sentence::new("", Role::Text, why.to_owned(), Role::Warn));
    let is_last = area.height <= 2 && whatif.error.is_none() && launches.is_some();
    let first = unvalidated.into_iter().chain(launches);
    let mut all: Vec<Sentence> = first.chain([said, of_slider]).chain(link).chain(validated).collect();
    if is_last {
        all[1..].rotate_left(1);
    }
    all
}

/// Missing validation of a cell with the profile's values; `None` if a slider changed them, which says so itself.
pub fn unvalidated(answer: &Answer) -> Option<&str> {
    let error = answer.error.as_deref().filter(|error| error.starts_with("not validated"))?;
    answer.spec.set.is_empty().then_some(error)
}

/// Sentence with its rows, and the place of the first one.
struct PlacedSentence {
    sentence: Sentence,
    area: Rect,
    row: u16,
    rows: Vec<String>,
}

/// Places the sentences: the break-even in an area of its own if it has one, all others in the notes.
fn placed(areas: &Areas, whatif: &WhatIf, answer: &Arc<Answer>, cx: &Context) -> Vec<PlacedSentence> {
    let mut from = 0;
    let place = |sentence: Sentence| {
        let own = areas.break_even;
        if sentence.head == BREAK_EVEN && !own.is_empty() {
            let rows = leading_clauses(&sentence.whole(), own.width, own.height.into());
            return PlacedSentence { sentence, area: own, row: 0, rows };
        }
        let (area, row) = (areas.notes, from);
        let rows = sentence.rows(area, row);
        from += rows.len() as u16 + u16::from(area.height >= NOTES);
        PlacedSentence { sentence, area, row, rows }
    };
    sentences(areas.notes, whatif, answer, cx).into_iter().map(place).collect()
}

pub fn draw_notes(buf: &mut Buffer, areas: &Areas, whatif: &WhatIf, answer: &Arc<Answer>, cx: &Context) {
    let theme = cx.theme;
    for PlacedSentence { sentence, area, row, rows } in placed(areas, whatif, answer, cx) {
        for (at, words) in rows.iter().enumerate() {
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

/// Caveats: the cell or step, and the sentences below the sliders.
pub fn notes(whatif: &WhatIf, body: Rect, cx: &Context) -> Vec<Note> {
    let Some(answer) = &whatif.answer else { return Vec::new() };
    let areas = areas_of(body, whatif);
    let mut notes = Vec::new();
    for PlacedSentence { sentence, area, row, rows } in placed(&areas, whatif, answer, cx) {
        let is_wide = rows.iter().any(|row| row.width() + 1 > area.width.into());
        let is_cut = is_wide || !is_whole(&rows, &sentence.whole());
        let is_below = row + rows.len() as u16 > area.height;
        notes.push(Note::new(sentence.whole(), is_cut || is_below));
    }
    // the hint takes its room from the header
    let room = areas.header.width.saturating_sub(notes_hint(&notes, cx).width() as u16);
    let (_, is_whole) = header(whatif, &areas, cx, room);
    let whole = whole_header(whatif, &areas, cx);
    notes.push(Note::beside_hint(whole.trim(), !is_whole));
    notes
}

/// Meaning of the selected slider, and what its value needs or rests on.
fn about(whatif: &WhatIf, answer: &Answer, cx: &Context) -> String {
    let slider = whatif.slider();
    let key = |act| cx.key::<WhatIf>(act);
    let before = base_text(whatif, slider).map_or_else(String::new, |before| match slider {
        Slider::LaunchGaps => format!("{before}; "),
        _ => format!("base {before}, {} resets; ", key(Act::ResetOne)),
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

fn about_value(whatif: &WhatIf, answer: &Answer) -> String {
    let slider = whatif.slider();
    let (about, values) = (slider.about().to_owned(), &answer.profile_values);
    if let Some(why) = slider.no_effect(&whatif.variant, Some(values)) {
        return format!("no effect: {why}");
    }
    match slider {
        Slider::Architecture => about_architecture(&answer.spec.architecture),
        // the all-reduces of a trace change in proportion
        Slider::Alpha if whatif.traced.is_some() => about,
        Slider::Alpha => {
            let stack = &answer.spec.stack;
            match (values.latency_scale, answer.spec.link.is_emulated()) {
                (Some(1.0), _) => format!("{about}, as in nccl-tests"),
                (Some(scale), _) => {
                    format!("{about}, as in nccl-tests; stack {stack} scales it by {scale}")
                }
                (None, true) => format!("{about}, emulated; stack {stack} does not scale it"),
                (None, false) => {
                    format!("{about}, by the profile's formula, which stack {stack} does not scale")
                }
            }
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

fn break_even(whatif: &WhatIf, answer: &Answer) -> String {
    if let Err(why) =
        answer.row(&answer.spec.architecture).map_or(Ok(()), |row| row.numbers.as_ref().map(drop))
    {
        return format!("none: {why}");
    }
    let Some(found) = whatif.break_even() else { return "searching…".into() };
    match found.iter().cloned().collect::<Result<Vec<_>, _>>() {
        Err(why) => format!("none: {why}"),
        Ok(found) => format!("{} {}", answer.spec.architecture, BreakEven::beside_values(&found)),
    }
}
