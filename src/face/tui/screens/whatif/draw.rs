//! Drawing of screen 7: header and sliders; the tables, plots and notes have their own files.

use std::sync::Arc;

use super::Act;
use super::layout::{WhatIfAreas, areas_of, tracks};
use super::notes::{draw_notes, headline, notes, refusal, trust};
use super::numbers::{bars, pins, pins_in_words};
use super::plots::{draw_strip, frontier};
use super::state::{Pin, StripView, WhatIf, letter};
use crate::face::tui::prelude::*;
use crate::face::tui::widgets::wrap::join_fitting;
use base::text::{latency, without_middle};
use plan::Phase;
use study::whatif::{ProfileValues, Slider, WhatIfAnswer, WhatIfVariant};
use table::Collective;

pub fn draw(buf: &mut Buffer, body: Rect, whatif: &WhatIf, cx: &Context) {
    let theme = cx.theme;
    let areas = areas_of(body, whatif);
    let place = folded_notes(buf, areas.header, &notes(whatif, body, cx), cx);
    let (words, ..) = header(whatif, &areas, cx, place.width);
    let pieces: Vec<(&str, Style)> =
        words.iter().map(|(text, role)| (text.as_str(), theme.style(*role))).collect();
    line(buf, place, 0, &pieces);
    sliders(buf, &areas, theme, whatif);
    let Some(answer) = &whatif.answer else {
        let text = whatif.error.as_deref().unwrap_or("simulating…").replace('\n', ": ");
        put(buf, body, areas.bars.x, areas.bars.y + 1, &text, theme.style(Role::Dim));
        return;
    };
    let (fastest, trusted) = (cut_left(areas.fastest, 1).1, cut_left(areas.trust, 1).1);
    let sentence = headline(whatif, answer, fastest.width, cx);
    let is_refused = refusal(whatif, answer).is_some();
    let role = if is_refused { Role::Warn } else { Role::Title };
    line(buf, fastest, 0, &[(&sentence, theme.style(role))]);
    if !is_refused {
        let (clauses, is_warning) = trust(whatif, answer);
        let role = if is_warning { Role::Warn } else { Role::Dim };
        line(buf, trusted, 0, &[(&join_fitting(&clauses, trusted.width), theme.style(role))]);
    }
    match answer.cannot() {
        Some(why) => cannot(buf, areas.bars, &why, whatif, cx),
        None => bars(buf, areas.bars, theme, whatif, answer),
    }
    if whatif.strip != StripView::Hidden {
        let whole_step = whatif.strip == StripView::Step;
        if !answer.strips.is_empty() && !areas.strip.is_empty() {
            let traced = whatif.traced.as_ref();
            let label = traced.map_or_else(String::new, |traced| match &traced.typical_label {
                Some(step) => format!("typical {step} replayed: "),
                None => format!("typical step {} replayed: ", traced.typical),
            });
            draw_strip(buf, areas.strip, theme, (&label, answer.strips.as_slice()), whole_step);
        }
    }
    frontier(buf, areas.frontier, whatif, answer, cx);
    match areas.has_pins_in_words {
        true => pins_in_words(buf, areas.pins, whatif, theme),
        false => pins(buf, areas.pins, whatif, cx),
    }
    if whatif.error.is_some() && whatif.current().is_none() {
        stale(buf, &[areas.bars, areas.strip, areas.frontier], theme);
    }
    draw_notes(buf, &areas, whatif, answer, cx);
}

/// Reason why no architecture can run, and the keys that lead back.
fn cannot(buf: &mut Buffer, area: Rect, why: &str, whatif: &WhatIf, cx: &Context) {
    let key = |act| cx.key::<WhatIf>(act);
    let back = format!(
        "{} undoes the last change, {} resets {}, {} resets all",
        key(Act::Undo),
        key(Act::ResetOne),
        whatif.slider().name(),
        key(Act::ResetAll)
    );
    let width = usize::from(area.width);
    let mut row = 0;
    for (text, role) in [(format!("no architecture can run: {why}"), Role::Warn), (back, Role::Text)] {
        for words in wrap(&text, width) {
            line(buf, area, row, &[(&words, cx.theme.style(role))]);
            row += 1;
        }
    }
}

/// Marks results of earlier slider values: dimmed, and named so.
fn stale(buf: &mut Buffer, areas: &[Rect], theme: Theme) {
    for area in areas {
        buf.set_style(area.intersection(buf.area), theme.style(Role::Dim));
    }
    put(buf, areas[0], areas[0].x, areas[0].y, " previous", theme.style(Role::Bad));
}

/// Header that fits into `room` columns: pieces with their styles, the whole text of its facts, and true if no fact is left
/// out. Each piece has its longest form that leaves room for the shortest forms of the next ones.
pub fn header(
    whatif: &WhatIf,
    areas: &WhatIfAreas,
    cx: &Context,
    room: u16,
) -> (Vec<(String, Role)>, String, bool) {
    let (facts, other) = header_pieces(whatif, areas, cx);
    let whole: String =
        facts.iter().filter_map(|(forms, _)| forms.first()).map(String::as_str).collect();
    let (mut shown, mut left, mut is_whole) = (Vec::new(), usize::from(room), true);
    for (at, (forms, role)) in facts.iter().enumerate() {
        let later = facts[at + 1..].iter().filter_map(|(forms, _)| forms.last());
        let room = left.saturating_sub(later.map(|form| form.width()).sum());
        let form = forms.iter().find(|form| form.width() <= room);
        let form = form.or_else(|| forms.last().filter(|form| form.width() <= left));
        is_whole &= form.is_some();
        // the label is cut rather than left out
        let form = form.or_else(|| forms.last().filter(|_| at == 0));
        left = left.saturating_sub(form.map_or(0, |form| form.width()));
        shown.extend(form.map(|form| (form.clone(), *role)));
    }
    let form = other.into_iter().find(|form| form.width() <= left);
    shown.extend(form.map(|form| (form, Role::Key)));
    (shown, whole, is_whole)
}

/// Facts of the header: provenance, changed sliders, kept variants without a row each, the present cell and its base. Then
/// another start with its key. Each has shorter forms, the last the shortest.
fn header_pieces(
    whatif: &WhatIf,
    areas: &WhatIfAreas,
    cx: &Context,
) -> (Vec<(Vec<String>, Role)>, Vec<String>) {
    let cell = &whatif.variant.cell;
    let kept = kept_in_words(whatif, areas.has_pins(whatif.pins.len()));
    let (labels, what, from, other) = match &whatif.traced {
        Some(traced) => {
            // the recording, whatever the sliders change
            let recorded = &whatif.base.cell;
            let ranks = match recorded.dp {
                0 | 1 => format!("TP {}", recorded.tp),
                dp => format!("DP {dp}, EP {}", recorded.ep),
            };
            let label = |name: String| format!(" [predicted from {name}] ");
            let name = match traced.phase() {
                Phase::Prefill => "traced prefill",
                Phase::Decode => "trace",
            };
            let (ms, provenance) = (digits(traced.measured_ms), traced.provenance());
            let what = format!("{name}: {ranks}, {provenance} {ms} ms");
            let link = match recorded.link.is_emulated() {
                true => format!("emulated link {}", recorded.link.label()),
                false => format!("link of {}", recorded.hardware),
            };
            let what = vec![format!("{what}; {link}"), what, format!("{name}: {ranks}, {ms} ms")];
            let mut labels = trace_names(whatif, &traced.steps()).map(label).to_vec();
            labels.extend((!kept.is_empty()).then(|| label(traced.steps())));
            (labels, what, Vec::new(), Some(("goes back to", whatif.cell_name())))
        }
        None => {
            let what = vec![
                format!(
                    "{} {} {} {} {}",
                    cell.architecture_label(),
                    cell.model,
                    cell.place_label(),
                    cell.hardware,
                    cell.stack
                ),
                // sliders in sight have the rest
                format!("{} on {}, {}", cell.model, cell.hardware, cell.stack),
                format!("{} on {}", cell.model, cell.hardware),
                cell.model.clone(),
            ];
            let from = vec![format!("  from {}", whatif.base_name()), String::new()];
            let trace = whatif.usable_trace(cx).map(|name| ("starts from trace", name.to_owned()));
            let left = whatif.left_trace.as_ref().filter(|_| trace.is_none());
            let left = left.map(|name| {
                format!("  open {} to go on with it", without_middle(&trace_file(name), 24))
            });
            let from: Vec<String> = left.into_iter().chain(from).collect();
            (vec![" [simulated] ".to_owned()], what, from, trace)
        }
    };
    let values = whatif.answer.as_ref().map(|answer| &answer.profile_values);
    let changes = values.map_or_else(String::new, |values| whatif.changes(&whatif.variant, values));
    // explains and counts the marks of the sliders: `changes` omits the architecture
    let marked = whatif.sliders().into_iter();
    let marked = marked.filter(|slider| slider.is_changed(&whatif.variant, &whatif.base)).count();
    let mut forms = vec![format!("*changed: {changes}; "), format!("*{changes}; ")];
    let is_rewired = Slider::Architecture.is_changed(&whatif.variant, &whatif.base);
    let changes = match (changes.is_empty(), marked) {
        // the present cell has its name
        (true, _) if is_rewired => vec!["*changed: architecture; ".to_owned(), String::new()],
        (true, _) => Vec::new(),
        (false, ..=1) => forms,
        (false, count) => {
            forms.push(format!("*{count} changes; "));
            forms
        }
    };
    let key = cx.key::<WhatIf>(Act::Base);
    let other = other.map_or_else(Vec::new, |(verb, name)| {
        [34, 20, 12].map(|most| format!("  {key} {verb} {}", without_middle(&name, most))).to_vec()
    });
    let facts = [
        (labels, Role::Simulated),
        (changes, Role::Title),
        (kept, Role::Title),
        (what, Role::Text),
        (from, Role::Dim),
    ];
    (facts.into_iter().filter(|(forms, _)| !forms.is_empty()).collect(), other)
}

/// Names of the traced steps, the longest first; the short ones leave out the format of the trace and the phase.
fn trace_names(whatif: &WhatIf, steps: &str) -> [String; 5] {
    let trace = whatif.trace().unwrap_or_default();
    let (_, file) = trace.rsplit_once("  ").unwrap_or(("", trace));
    let bare = trace_file(trace);
    let short = [24, 16, 12].map(|most| format!("{steps} of {}", without_middle(&bare, most)));
    let [long, middle, least] = short;
    [format!("{steps} of {trace}"), format!("{steps} of {file}"), long, middle, least]
}

/// Name of a trace without its format and phase.
fn trace_file(trace: &str) -> String {
    let (_, file) = trace.rsplit_once("  ").unwrap_or(("", trace));
    file.split_once(" (").map_or(file, |(bare, _)| bare).to_owned()
}

/// Kept variants if not each has a row of its own; shorter forms last.
fn kept_in_words(whatif: &WhatIf, shows_pins: bool) -> Vec<String> {
    let pins = || whatif.pins.iter().enumerate();
    if shows_pins || whatif.pins.is_empty() {
        return Vec::new();
    }
    let value = |(at, pin): (usize, &Pin)| {
        let ms = pin.answer.chosen().map(|numbers| format!(" {} ms", digits(numbers.tpot_ms)));
        format!("{}{}", letter(at), ms.unwrap_or_default())
    };
    let each = pins().map(|(at, pin)| {
        let (now, own) = match pin.variant == whatif.variant {
            // its changes come first in the header
            true => ("▸", String::new()),
            false => ("", whatif.changes(&pin.variant, &pin.answer.profile_values)),
        };
        let architecture = &pin.variant.cell.architecture;
        let architecture = Some(architecture).filter(|own| **own != whatif.variant.cell.architecture);
        let architecture = architecture.map_or_else(String::new, |own| format!(" {own}"));
        let model = &pin.variant.cell.model;
        let model = Some(model).filter(|own| **own != whatif.variant.cell.model);
        let model = model.map_or_else(String::new, |own| format!(" {own}"));
        let own = if own.is_empty() { own } else { format!(" {own}") };
        format!("{now}{}{model}{architecture}{own}", value((at, pin)))
    });
    let each = each.collect::<Vec<_>>().join("; ");
    let values = pins().map(value).collect::<Vec<_>>().join(", ");
    let letters: String = pins().map(|(at, _)| letter(at)).collect();
    vec![format!("kept {each}  "), format!("kept {values}  "), format!("kept: {letters}  ")]
}

fn sliders(buf: &mut Buffer, areas: &WhatIfAreas, theme: Theme, whatif: &WhatIf) {
    let area = areas.sliders;
    let profile_values = whatif.profile_values();
    let (track_x, bar) = tracks(area);
    let (dim, text) = (theme.style(Role::Dim), theme.style(Role::Text));
    let all = whatif.sliders();
    let above = whatif.list.offset;
    let below = all.len().saturating_sub(above + usize::from(area.height));
    let mark =
        |arrow: &str, rows: usize| if rows > 0 { format!(" {arrow} {rows}") } else { String::new() };
    if above + below > 0 && area.y > areas.header.y {
        let sliders = if above + below == 1 { "slider" } else { "sliders" };
        let more = format!("{}{} more {sliders}", mark("↑", above), mark("↓", below));
        put(buf, areas.header.union(area), area.x, area.y - 1, &more, theme.style(Role::Key));
    }
    for (index, y) in whatif.list.rows(all.len(), area) {
        let slider = all[index];
        let no_effect = slider.no_effect(&whatif.variant, profile_values).is_some();
        let text = if no_effect { dim } else { text };
        let changed = slider.is_changed(&whatif.variant, &whatif.base);
        let mark = if changed { "*" } else { " " };
        put(buf, area, area.x, y, mark, theme.style(Role::Warn));
        put(buf, area, area.x + 1, y, slider.name(), text);
        // a slider without effect has no knob
        let place = slider.place(&whatif.variant, profile_values).filter(|_| !no_effect);
        let track = track(place, usize::from(bar));
        put(buf, area, track_x, y, &track, theme.style(if changed { Role::Active } else { Role::Dim }));
        let value = value_text(slider, &whatif.variant, profile_values);
        let style = if changed { theme.style(Role::Title) } else { text };
        // a value too long beside the track takes its place
        let x = track_x + bar + 1;
        let fits = value.width() <= usize::from(area.right().saturating_sub(x));
        let (x, value) = match fits {
            true => (x, value),
            false => {
                // without a track, the gap after the name stays
                let x = track_x + u16::from(bar == 0);
                let room = area.right().saturating_sub(x);
                put(buf, area, x, y, &" ".repeat(room.into()), text);
                (x, without_middle(&value, room.into()))
            }
        };
        let x = put(buf, area, x, y, &value, style);
        let of_all = match (slider, profile_values.and_then(|profile_values| profile_values.sms_total)) {
            (Slider::Sms, Some(total)) => format!("of {total}"),
            _ => String::new(),
        };
        let unit = if of_all.is_empty() { slider.unit() } else { &of_all };
        let room = |x: u16| usize::from(area.right().saturating_sub(x + 1));
        let has_unit = !unit.is_empty() && unit.width() <= room(x);
        let x = if has_unit { put(buf, area, x + 1, y, unit, dim) } else { x };
        // the note of the selected slider has a base value that does not fit with its name
        let before = base_text(whatif, slider);
        let forms = before.as_ref().map_or_else(Vec::new, |before| match slider {
            Slider::LaunchGaps => vec![format!("({before})"), String::new()],
            _ => vec![format!("(base {before})"), String::new()],
        });
        let forms = match slider {
            Slider::Alpha if !no_effect => latency_forms(whatif, forms),
            Slider::LaunchGaps if no_effect => vec!["(no effect)".to_owned(), String::new()],
            Slider::Collective if !no_effect => all_reduce_forms(whatif, before.as_deref(), forms),
            _ => forms,
        };
        put(buf, area, x + 1, y, first_fitting(&forms, room(x) as u16), dim);
        if index == whatif.list.selected {
            select(buf, area, y, theme);
        }
    }
}

/// Factor by which the stack scales the slider's latency, and the scaled latency (us); `None` if it is unscaled.
pub fn scaled_latency(whatif: &WhatIf) -> Option<(f64, f64)> {
    let values = whatif.profile_values();
    let scale = values?.latency_scale.filter(|scale| *scale != 1.0)?;
    Some((scale, scale * Slider::Alpha.number(&whatif.variant, values)?))
}

/// Text beside the latency of a small all-reduce, the longest first: its base, the source of a trace's latency, or the
/// scaled latency. `base` has the forms of the base, if that is another one.
fn latency_forms(whatif: &WhatIf, base: Vec<String>) -> Vec<String> {
    let texts = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect::<Vec<String>>();
    let has_base = !base.is_empty();
    match (&whatif.traced, scaled_latency(whatif)) {
        (None, None) => base,
        (Some(_), _) if has_base => base,
        (Some(traced), _) if traced.latency_includes_launch() => {
            texts(&["(setting, with launch)", "with launch", ""])
        }
        (Some(_), _) if whatif.base.cell.link.is_emulated() => texts(&["(setting)", ""]),
        (Some(_), _) => texts(&["(profile)", ""]),
        (None, Some((scale, us))) if has_base => {
            let also = base.first().map(|long| format!("x{scale}={} {long}", digits(us)));
            also.into_iter().chain(base).collect()
        }
        (None, Some((scale, us))) => {
            let (us, stack) = (digits(us), &whatif.variant.cell.stack);
            vec![
                format!("x {scale} by {stack} = {us}"),
                format!("x {scale} = {us}"),
                format!("x{scale}={us}"),
                String::new(),
            ]
        }
    }
}

/// Text beside the implementation of all-reduces, the longest first: the time of one, and the base if that is another
/// time, or another implementation `before`. Without a time, these are the forms of the `base`.
fn all_reduce_forms(whatif: &WhatIf, before: Option<&str>, base: Vec<String>) -> Vec<String> {
    let us = |answer: &Arc<WhatIfAnswer>| answer.all_reduce_us.map(digits);
    let Some(now) = whatif.answer.as_ref().and_then(us) else { return base };
    let was = whatif.base_answer.as_ref().and_then(us);
    let source = if whatif.traced.is_some() { "traced" } else { "base" };
    let now_us = format!("{now} us");
    let mut forms = match (before, was) {
        (Some(before), Some(was)) => vec![format!("{now_us} ({source} {before} {was})")],
        (None, Some(was)) if was != now => vec![format!("{now_us} ({source} {was})")],
        (None, _) if whatif.traced.is_some() => vec![format!("{now_us} (traced)")],
        _ => Vec::new(),
    };
    forms.extend(before.map(|before| format!("{now_us} ({source} {before})")));
    forms.extend([now_us, now, String::new()]);
    forms
}

/// Value of a slider as shown. SM usage is derived from measured contention, so fractions are meaningless.
pub fn value_text(slider: Slider, variant: &WhatIfVariant, values: Option<&ProfileValues>) -> String {
    let own = values.and_then(|values| values.own_all_reduce);
    let own = own.filter(|_| variant.cell.collective == Collective::Nccl);
    if let (Slider::Collective, Some(backend)) = (slider, own) {
        return format!("{backend}'s own");
    }
    match (slider, slider.number(variant, values)) {
        (Slider::Sms, Some(sms)) => format!("{sms:.0}"),
        (Slider::Serving, Some(0.0)) => "static batch".into(),
        (Slider::Serving, _) => format!("{} in flight", slider.text(variant, values)),
        (Slider::P2p, _) if values.is_some_and(|values| stand_in(values).is_some()) => {
            format!("{} (stand-in)", slider.text(variant, values))
        }
        _ if values.is_some_and(|values| is_estimated(slider, variant, values)) => {
            format!("~{}", slider.text(variant, values))
        }
        _ => slider.text(variant, values),
    }
}

/// True if a slider shows the profile's link value, and that was not measured.
pub fn is_estimated(slider: Slider, variant: &WhatIfVariant, values: &ProfileValues) -> bool {
    let own = match slider {
        Slider::Alpha => variant.alpha_us,
        Slider::Bandwidth => variant.gb_s,
        _ => return false,
    };
    own.is_none() && values.link_note.as_ref().is_some_and(|note| note.contains("not measured"))
}

/// Remark that another GPU's link stands in for the profile's, if so.
pub fn stand_in(values: &ProfileValues) -> Option<&str> {
    values.link_note.as_deref().filter(|note| note.starts_with("stand-in"))
}

/// Value of a slider in the base if it is another one: changed, or the profile's, which follows TP, P2P and hardware.
pub fn base_text(whatif: &WhatIf, slider: Slider) -> Option<String> {
    let base = whatif.base_answer.as_ref();
    let (variant, values) = (&whatif.variant, whatif.profile_values());
    let base_values = match slider.is_of_network() {
        // the base may be within a node
        true => values,
        false => base.map(|answer| &answer.profile_values),
    };
    let before = || match slider {
        Slider::LaunchGaps => match base.and_then(|answer| answer.launch_gaps) {
            Some(gaps) => format!("trace: {}", latency(1e3 * gaps.ms)),
            None => "trace: little".to_owned(),
        },
        slider => value_text(slider, &whatif.base, base_values),
    };
    if slider.is_changed(variant, &whatif.base) {
        return Some(before());
    }
    let has_both = [(variant, values), (&whatif.base, base_values)]
        .iter()
        .all(|(of, values)| slider.number(of, *values).is_some());
    has_both.then(before).filter(|before| *before != value_text(slider, variant, values))
}

/// Slider track with its knob, such as `──●────`. Only the first and the last value are at the ends, so that a step away from
/// them moves the knob.
fn track(place: Option<f64>, columns: usize) -> String {
    let last = columns.max(1) - 1;
    let at = place.map(|place| match (place * last as f64).round() as usize {
        0 if place > 0.0 => 1,
        at if at == last && place < 1.0 => last.saturating_sub(1),
        at => at,
    });
    (0..columns).map(|column| if Some(column) == at { '●' } else { '─' }).collect()
}
