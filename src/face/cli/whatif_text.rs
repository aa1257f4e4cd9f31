//! Text and table of `whatif`: headline, cell, link, rows of all points, and what is below them.

use std::collections::BTreeMap;

use super::output;
use super::whatif::{SWEPT, SweepPoint, WITHOUT_EFFECT};
use plan::Architecture;
use run::sim::switches_in_words;
use study::validate::TieBand;
use study::whatif::{CellLink, SimulatedMetrics, whole_pct};
use table::options::OPTIONS;
use table::render::{Shown, Table};
use table::{Backend, Spec};

/// Speedup of the chosen architecture, or of the fastest if `standard` is chosen, at every position of the slider;
/// then the fastest, if it is another one, and the limit.
pub fn headline(slider: &str, points: &[SweepPoint]) -> String {
    // speedups of a label at all positions
    let mut speedups: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (answer, row) in points
        .iter()
        .flat_map(|SweepPoint { answer, .. }| answer.rows.iter().map(move |row| (answer, row)))
    {
        let speedup = row.numbers.as_ref().ok().and_then(|numbers| numbers.speedup);
        speedups.entry(answer.label(row)).or_default().extend(speedup);
    }
    let mean = |label: &&String| speedups[*label].iter().map(|s| s.ln()).sum::<f64>();
    let limit = Architecture::UpperBound.to_string();
    let ran = |label: &&String| speedups[*label].len() == points.len();
    let choices = speedups.keys().filter(|label| !label.starts_with(&limit) && ran(label));
    let choices: Vec<&String> = choices.collect();
    let Some(fastest) = choices.iter().copied().max_by(|a, b| mean(a).total_cmp(&mean(b))) else {
        return String::new();
    };
    let first = &points[0].answer;
    let chosen = first.row(&first.spec.architecture).map(|row| first.label(row));
    let is_choice = |label: &String| label != "standard" && ran(&label);
    let label = chosen.filter(is_choice).unwrap_or_else(|| fastest.clone());
    let range = |label: &str| {
        let speedups = speedups[label].iter().copied();
        output::range_text(speedups, |speedup| format!("{speedup:.2}x")).unwrap_or_default()
    };
    let over = if points.len() > 1 { format!(" over these values of {slider}") } else { String::new() };
    let mut line = match label == "standard" {
        true => format!("No architecture decodes faster than standard{over}"),
        false => format!("{label} decodes {} as fast as standard{over}", range(&label)),
    };
    // mean speedups over the headline's architecture
    let lead = |other: &String| ((mean(&other) - mean(&&label)) / points.len() as f64).exp();
    let band_with = |other: &String| {
        let is_either = |own: String| own == label || own == *other;
        let band_of = |SweepPoint { answer, .. }: &SweepPoint| {
            answer.tie_band(answer.rows.iter().filter(|row| is_either(answer.label(row))))
        };
        points.iter().map(band_of).reduce(TieBand::wider).unwrap_or(TieBand::UNKNOWN)
    };
    let mut ties: Vec<&String> = choices.iter().copied().filter(|other| **other != label).collect();
    ties.retain(|other| band_with(other).holds(lead(other)));
    let band = ties.iter().map(|other| band_with(other)).reduce(TieBand::wider);
    if let Some(band) = band {
        let named = ties.iter().map(|tie| match tie.as_str() {
            "standard" => "standard".to_owned(),
            tie => format!("{tie} {}", range(tie)),
        });
        let named = named.collect::<Vec<String>>().join(", ");
        line += &format!("; tied {} (simulator error): {named}", band.within());
    }
    if range(fastest) != range(&label) && !ties.contains(&fastest) {
        line += &format!("; fastest: {fastest}, {}", range(fastest));
    }
    if speedups.get(&limit).is_some_and(|all| all.len() == points.len()) {
        line += &format!("; limit without communication: {}", range(&limit));
    }
    output::wrapped("", &(line + "."), 0)
}

/// Settings of the cell, with those options that differ from their defaults.
pub fn cell_in_words(cell: &Spec, fixed: &[(&str, f64)]) -> String {
    let Spec { model, dtype, tp, batch, p2p, hardware, stack, prompt_tokens, output_tokens, .. } = cell;
    // remaining options that were set
    let shown = [
        "architecture",
        "model",
        "dtype",
        "tp",
        "batch",
        "p2p",
        "hardware",
        "stack",
        "prompt_tokens",
        "output_tokens",
    ];
    let others = OPTIONS.iter().filter(|option| option.is_used_by(Backend::Sim));
    let others = others.filter(|option| {
        let is_named = shown.contains(&option.name) || WITHOUT_EFFECT.contains(&option.name);
        !is_named && !option.is_default(cell)
    });
    let mut more: String =
        others.map(|option| format!(", --{}\u{a0}{}", option.flag, option.text(cell))).collect();
    more.extend(cell.set.iter().map(|(key, value)| format!(", --set\u{a0}{key}={value}")));
    let of_link = fixed.iter().filter(|(name, _)| !["experts", "top_k"].contains(name));
    more.extend(of_link.map(|(name, value)| format!(", --{}\u{a0}{value}", name.replace('_', "-"))));
    let line = format!(
        "{model} {dtype}, TP {tp}, batch {batch}, P2P {}, prompt {prompt_tokens}, output {output_tokens}, on {hardware}, stack \
         {stack}{more}; communication is per decode step",
        p2p.as_str()
    );
    output::wrapped("", &line, 2)
}

/// Latency of a decode step's all-reduce, measured and charged, with the profile rows it is based on.
pub fn link_in_words(slider: &str, SweepPoint { value, answer }: &SweepPoint) -> String {
    let Some(CellLink { message_bytes, times }) = &answer.link else { return String::new() };
    let at = value.map(|value| format!("{slider} {value}: ")).unwrap_or_default();
    let taken = times
        .taken
        .as_ref()
        .map(|(taken, switches)| format!(" by {taken} (by size: {})", switches_in_words(switches)));
    let us = [times.alone_us, times.charged_us].map(|us| format!("{us:.1} us"));
    let us = match us {
        [alone, charged] if alone == charged => format!("{alone}, alone and inside the model"),
        [alone, charged] => format!("{alone} alone, {charged} inside the model"),
    };
    let line = format!(
        "{at}all-reduce of {}{}: {us} (stack {}){}",
        output::bytes(*message_bytes),
        taken.unwrap_or_default(),
        answer.spec.stack,
        times.note.as_ref().map(|note| format!("; {note}")).unwrap_or_default()
    );
    output::wrapped("", &line, 2)
}

/// Reasons of rows without numbers, and experts touched by an uneven load, once each.
pub fn footnotes(points: &[SweepPoint]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for SweepPoint { answer, .. } in points {
        let own = answer.reasons().into_iter().chain(answer.experts_touched());
        for line in own.chain(answer.profile_values.no_link.clone()) {
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    lines
}

/// Rows of all points. Shares are exact in files, whole percents on screen.
pub fn rows(slider: &str, points: &[SweepPoint]) -> Table {
    // prefill and total times appear only in JSON
    let names = &SimulatedMetrics::NAMES[2..];
    let title = |name: &&str| match *name {
        "tpot_ms" => "tpot_ms|TPOT ms".to_owned(),
        "tokens_per_s_per_gpu" => "tokens_per_s_per_gpu|tok/s/GPU".to_owned(),
        "exposed_comm_ms" => "exposed_comm_ms|exposed ms".to_owned(),
        "overlap_pct" | "hidden_share" => format!("{name}|"),
        "speedup" => "speedup|speedup (TPOT)".to_owned(),
        name => format!("{name}|{}", name.replace('_', " ")),
    };
    let swept = SWEPT.into_iter().find(|(name, ..)| *name == slider);
    let slider_title = swept.map_or(slider, |(_, title, _)| title);
    let mut columns = vec![slider_title.to_owned(), "architecture".into()];
    columns.extend(names.iter().map(title));
    columns.extend(["|hidden %".into(), "|gap %".into()]);
    // the reasons are below the table
    columns.extend(["provenance".into(), "reason|".into()]);
    let decimals = usize::from(!matches!(slider, "sms" | "experts" | "top_k"));
    let mut rows = Table::new(columns).least(&[
        "hidden %",
        "gap %",
        "completion_ms",
        "tokens_per_s_per_gpu",
        "provenance",
    ]);
    for SweepPoint { value, answer } in points {
        for row in &answer.rows {
            let mut cells = vec![Shown::number(*value, decimals), Shown::text(answer.label(row))];
            cells.extend(names.iter().map(|name| row.shown(name)));
            let number = |name: &str| row.numbers.as_ref().ok()?.by_name(name);
            let gap_pct = number("hidden_share").map(|share| 100.0 * share);
            let shares = [number("overlap_pct"), gap_pct];
            cells.extend(shares.map(|share| Shown::number(share.map(whole_pct), 0)));
            cells.extend([Shown::text("simulated"), row.reason()]);
            rows.push(cells);
        }
    }
    rows
}
