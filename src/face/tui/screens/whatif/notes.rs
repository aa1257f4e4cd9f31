//! Sentences of screen 7: launch gaps, break-even or assumptions, the meaning of the selected slider, and the error of
//! the predictions.

use std::sync::Arc;

use super::Act;
use super::draw::{base_text, header, stand_in, value_text, whole_header};
use super::layout::{Areas, NOTES, areas_of};
use super::state::WhatIf;
use crate::face::tui::prelude::*;
use base::statistics::extent;
use base::text::{joined_with_and, latency};
use plan::{Architecture, LayerSet};
use study::whatif::{
    Answer, BreakEven, Fastest, LaunchGaps, NetworkValues, Numbers, Row, Slider, about_architecture,
    own_meaning, with_article,
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
            ..=2 => clause_rows(&self.whole(), area.width, 1),
            3..NOTES => {
                let rest = area.height.saturating_sub(from + u16::from(from == 0)).max(1);
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

/// Fastest architecture or those that tie for it, their speedup over `standard` and over a traced step; shorter forms last.
fn fastest(whatif: &WhatIf, answer: &Answer) -> Vec<String> {
    let Fastest { rows, tie_share } = answer.fastest();
    let Some((_, first)) = rows.first() else { return Vec::new() };
    let labels: Vec<String> = rows.iter().map(|(row, _)| answer.label(row)).collect();
    let [all, short] = leaders(&labels, tie_share);
    let numbers_of =
        |architecture: &Architecture| answer.row(architecture).and_then(|row| row.numbers.as_ref().ok());
    let standard = numbers_of(&Architecture::Standard);
    let over_standard = |numbers: &Numbers| match whatif.traced.is_some() {
        true => standard.map(|standard| standard.tpot_ms / numbers.tpot_ms),
        false => numbers.speedup,
    };
    let ms = extent(rows.iter().map(|(_, numbers)| numbers.tpot_ms));
    let ms = ms.map_or_else(String::new, |ms| from_to(ms.map(|ms| latency(1e3 * ms))));
    let is_none_faster = labels[0] == "standard";
    let gains = extent(rows.iter().filter_map(|(_, numbers)| over_standard(numbers)));
    let gains = gains.filter(|_| !is_none_faster);
    let gain = match gains {
        _ if is_none_faster && labels.len() == 1 => "; none is faster".to_owned(),
        Some(gains) => {
            format!(", {} standard", from_to(gains.map(|gain| format!("{gain:.2}x"))))
        }
        None => String::new(),
    };
    let most = gains.map_or_else(String::new, |[_, most]| format!(", up to {most:.2}x"));
    if let (Some(traced), Some(speedup)) = (&whatif.traced, first.speedup) {
        let times = if traced.is_simulated() { "simulated" } else { "measured" };
        let before = latency(1e3 * traced.measured_ms);
        let over_trace = format!("{speedup:.2}x the trace");
        return vec![
            format!("{all}, {ms}{gain}, {speedup:.2}x the {times} step of {before}"),
            format!("{all}, {ms}{gain}, {over_trace}"),
            format!("{short}, {ms}{gain}, {over_trace}"),
            format!("{short}{gain}, {over_trace}"),
            format!("{short}, {over_trace}"),
        ];
    }
    if let Some(own) = slower_after_change(whatif, answer, &rows) {
        let few = few_of(&labels);
        let (first, rest) = all.split_at(1);
        let gains = gains.map_or_else(String::new, |gains| {
            format!(", {}", from_to(gains.map(|gain| format!("{gain:.2}x"))))
        });
        return vec![
            format!("{own}; {}{rest}{gains}", first.to_lowercase()),
            format!("{own}; fastest: {few}{gains}"),
            format!("{own}; fastest: {few}{most}"),
            format!("{own}; fastest: {few}"),
            format!("{own}; fastest{}", most.trim_start_matches(',')),
            own,
        ];
    }
    let limit = numbers_of(&Architecture::UpperBound).and_then(|limit| limit.speedup);
    let limit = limit.map_or_else(String::new, |limit| format!("; without communication {limit:.2}x"));
    vec![
        format!("{all}, {ms}{gain}{limit}"),
        format!("{all}, {ms}{gain}"),
        format!("{short}, {ms}{gain}"),
        format!("{short}{gain}"),
        format!("{short}{most}"),
    ]
}

/// What a change made of the selected architecture if that is none of the fastest: `ladder 22.9 ms (was 12.9), 1.27x`.
fn slower_after_change(
    whatif: &WhatIf,
    answer: &Answer,
    fastest: &[(&Row, &Numbers)],
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
    let speedup = own.speedup.map_or_else(String::new, |speedup| format!(", {speedup:.2}x"));
    Some(format!("{} {now}{was}{speedup}", answer.label(chosen)))
}

/// The fastest architecture, or those that tie for it: all, and in few words, which name `ladder`.
pub fn leaders(labels: &[String], tie_share: f64) -> [String; 2] {
    // without the binary form of the share
    let within = format!("within {} %", (1000.0 * tie_share).round() / 10.0);
    match labels {
        [] => [String::new(), String::new()],
        [one] => [format!("Fastest: {one}"), format!("Fastest: {one}")],
        [first, others @ ..] if first == "standard" => {
            let are = if others.len() > 1 { "are" } else { "is" };
            [
                format!("No clear gain over standard: {} {are} {within}", joined_with_and(others)),
                format!("No clear gain over standard ({within})"),
            ]
        }
        all => [
            format!("Fastest, tied {within}: {}", joined_with_and(all)),
            format!("Tied {within}: {}", few_of(all)),
        ],
    }
}

/// First label and `ladder`, and the number of others: `parallel, ladder and 3 more`.
fn few_of(labels: &[String]) -> String {
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

/// Meanings of the architectures that are fastest, without the two of the main question and the chosen one.
fn unfamiliar(answer: &Answer) -> Option<Sentence> {
    let rows = answer.fastest().rows;
    let architectures = rows.iter().map(|(row, _)| &row.architecture);
    let is_familiar = |one: &Architecture| {
        let main = [Architecture::Standard, Architecture::Ladder(LayerSet::All)];
        main.contains(one) || *one == answer.spec.architecture
    };
    let others = architectures.filter(|one| !is_familiar(one));
    let others: Vec<String> = others.map(|one| format!("{one}: {}", own_meaning(one))).collect();
    let words = others.join(". ");
    (!others.is_empty()).then(|| Sentence::new("fastest:", Role::Dim, words, Role::Dim))
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
    // a low window has it in the header
    let elsewhere = whatif.measured_elsewhere.filter(|_| area.height >= NOTES);
    let elsewhere = elsewhere.map(|(ms, machine)| {
        let words = format!(
            "run measured {} ms on {machine}; no profile of it, so {} is simulated: compare speedups, not times",
            digits(ms),
            whatif.base.cell.hardware
        );
        Sentence::new("", Role::Text, words, Role::Warn)
    });
    let first = elsewhere.into_iter().chain(unvalidated).chain(launches);
    let last = link.into_iter().chain(validated).chain(unfamiliar(answer));
    let mut all: Vec<Sentence> = first.chain([said, of_slider]).chain(last).collect();
    if is_last {
        all[1..].rotate_left(1);
    }
    all
}

/// Missing validation of a cell, of which the screen warns.
pub fn unvalidated(answer: &Answer) -> Option<&str> {
    answer.error.as_deref().filter(|error| error.starts_with("not validated"))
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
            let rows = clause_rows(&sentence.whole(), own.width, own.height.into());
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
