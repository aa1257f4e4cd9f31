//! Details of the selected pair on screen 6: its result, the two sides, where their decode phases went, and the sources
//! of the difference.

use super::compared::side_names;
use super::draw::{p, shared_decimals};
use crate::face::tui::prelude::*;
use crate::face::tui::widgets::table::{self, TableColumn};
use crate::face::tui::widgets::wrap::elided_clauses;
use ::table::{Link, Provenance, Spec};
use base::text::without_middle;
use study::analysis::{Axis, CONTENTION, Comparison, LEAST_DIFFERENCE, PairVerdict, Side, rest_name};
use study::validate::TieBand;

/// Rows of the details, from top to bottom. Parts without room are empty.
struct DetailAreas {
    /// Provenance, setting and runs.
    origin: Rect,
    result: Rect,
    sides: Rect,
    bars: Rect,
    bar_legend: Rect,
    differences: Rect,
}

impl DetailAreas {
    /// Header and two sides.
    const SIDES: u16 = 3;
    const BARS: u16 = 2;

    /// Divides the interior of the frame. Bars need their legend, and the table of the sides both of its rows; the origin gives
    /// way to them and to the sources of the difference, since the selected row names the setting. `rows` counts the
    /// rows of the first sentence on the difference, and of all; a long result gets a second row if there is room.
    fn new(inner: Rect, rows: [u16; 2], is_long: bool) -> Self {
        let sides = if inner.height > Self::SIDES { Self::SIDES } else { 0 };
        let has_bars = inner.height > Self::SIDES + Self::BARS + 1;
        let (bars, bar_legend) = if has_bars { (Self::BARS, 1) } else { (0, 0) };
        let free = inner.height.saturating_sub(1 + sides + bars + bar_legend);
        let [first, all] = rows;
        let wanted = if free >= first { all.min(free) } else { 0 };
        let origin = u16::from(free > wanted);
        let more = u16::from(is_long && free > wanted + origin);
        let gap = u16::from(free > wanted + origin + more);
        let (origin, rest) = cut_top(inner, origin);
        let (result, rest) = cut_top(rest, 1 + more);
        let (sides, rest) = cut_top(rest, sides);
        let (bars, rest) = cut_top(rest, bars);
        let (bar_legend, rest) = cut_top(rest, bar_legend);
        let (_, differences) = cut_top(rest, gap);
        Self { origin, result, sides, bars, bar_legend, differences }
    }

    /// True if the rows of the result hold all of its text.
    fn holds(&self, text: &str) -> bool {
        text.width() <= usize::from(self.result.width) * usize::from(self.result.height)
            && wrap(text, self.result.width.into()).len() <= self.result.height.into()
    }

    /// True if the shares of exposed communication are in the result, for want of the table of the sides.
    fn is_short(&self) -> bool {
        self.sides.is_empty()
    }
}

/// Definitions of the shares in the table of the sides, the longest that fits.
const SHARES: [&str; 3] = [
    " exposed: communication not hidden by compute · hidden: the share that is · gap closed: share of upper-bound's gain ",
    " exposed: not hidden by compute · gap closed: share of upper-bound's gain ",
    " exposed: communication not hidden by compute ",
];

/// Selected pair with its texts, which the frame and the notes share.
pub struct PairDetails<'a> {
    axis: &'a Axis,
    pair: &'a Comparison,
    /// Baseline and compared cell.
    names: [String; 2],
    result: ResultLine,
    /// Sources of the difference, a sentence each.
    differences: Vec<String>,
}

impl<'a> PairDetails<'a> {
    pub fn new(axis: &'a Axis, pair: &'a Comparison) -> Self {
        let names = side_names(axis, pair);
        let differences = differences(&names, pair);
        Self { axis, pair, names, result: ResultLine::new(pair, false), differences }
    }

    /// Areas in an interior of the frame.
    fn areas(&self, inner: Rect) -> DetailAreas {
        let is_long = self.result.text().width() > usize::from(inner.width);
        DetailAreas::new(inner, rows_of(&self.differences, inner.width), is_long)
    }

    /// Caveats of the pair, whose details have this interior: its result, and the sources of the difference.
    pub fn notes(&self, inner: Rect) -> Vec<ScreenNote> {
        let (areas, text, width) = (self.areas(inner), self.result.text(), usize::from(inner.width));
        let cell = cell_words(self.pair);
        let origin = format!("[{}] {cell}", self.pair.provenance);
        let is_folded =
            areas.origin.is_empty() || areas.is_short() || !areas.holds(&text) || origin.width() > width;
        let [baseline, value] = &self.names;
        let result = format!("{cell}, {value} against {baseline}: {text}");
        let mut notes = vec![ScreenNote::new(result, is_folded)];
        if !self.differences.is_empty() {
            let is_folded = rows_of(&self.differences, inner.width)[1] > areas.differences.height;
            notes.push(ScreenNote::new(self.differences.join("; "), is_folded));
        }
        notes
    }

    /// Draws the details; `marks` explains the marks of the table above instead of the shares, and `fold` ends the title.
    pub fn draw(
        &self,
        buf: &mut Buffer,
        area: Rect,
        (notes, marks, fold): (&[ScreenNote], Option<String>, &str),
        cx: &Context,
    ) {
        let (pair, names, theme) = (self.pair, &self.names, cx.theme);
        let name = format!("{}: {} against {}{fold}", self.axis, names[1], names[0]);
        let room = area.width.saturating_sub(notes_hint(notes, cx).width() as u16 + 6);
        let inner = frame(buf, area, &cut(&name, room), theme);
        let top = cut_top(Rect { width: area.width.saturating_sub(2), ..area }, 1).0;
        folded_notes(buf, top, notes, cx);
        let shares = SHARES.into_iter().find(|shares| shares.width() + 4 <= usize::from(area.width));
        let below = marks.as_deref().or(shares).unwrap_or_default();
        let bottom = area.bottom().saturating_sub(1);
        put(buf, area, area.x + 2, bottom, below, theme.style(Role::Dim));
        let areas = self.areas(inner);
        draw_origin(buf, areas.origin, pair, theme);
        match areas.is_short() {
            true => ResultLine::new(pair, true).draw(buf, areas.result, theme),
            false => self.result.draw(buf, areas.result, theme),
        }
        draw_sides(buf, areas.sides, (pair, names), theme);
        draw_bars(buf, &areas, (pair, names), theme);
        let rows = self.differences.iter().flat_map(|sentence| wrap(sentence, inner.width.into()));
        for (row, words) in (0..).zip(rows) {
            line(buf, areas.differences, row, &[(&words, theme.style(Role::Text))]);
        }
    }
}

/// Settings that both sides share, with the short label of an emulated link.
fn cell_words(pair: &Comparison) -> String {
    let link = pair.side.spec.link;
    pair.matched.replace(&link.to_string(), &link.label())
}

/// Provenance, setting, and as much of the run ids as fits.
fn draw_origin(buf: &mut Buffer, area: Rect, pair: &Comparison, theme: Theme) {
    let label = format!("[{}] ", pair.provenance);
    let x = put(buf, area, area.x, area.y, &label, theme.provenance(pair.provenance));
    let ids = [&pair.run, &pair.baseline_run];
    let short_ids = ids.map(|id| without_middle(id, 14));
    let cell = cell_words(pair);
    let texts = [
        format!("{cell}  runs {} and {}", ids[0], ids[1]),
        format!("{cell}  runs {} and {}", short_ids[0], short_ids[1]),
        cell,
    ];
    let text = first_fitting(&texts, area.right().saturating_sub(x));
    put(buf, area, x, area.y, text, theme.style(Role::Dim));
}

/// Result of a pair: `tokens/s 1.25x [1.24, 1.28] ▲ faster; by TPOT 1.25x; p <.001 (BH)`.
struct ResultLine {
    measure: &'static str,
    ratio: String,
    verdict: String,
    /// Further facts; the last ones are left out first.
    clauses: Vec<String>,
}

impl ResultLine {
    /// `is_short` has the exposed shares in place of the ratio of TPOT.
    fn new(pair: &Comparison, is_short: bool) -> Self {
        let interval = pair.speedup_ci95.map_or_else(String::new, |[a, b]| format!(" [{a:.2}, {b:.2}]"));
        let published = pair.published_speedup;
        let contradicts = published.and_then(|of| of.by_tpot);
        let contradicts = contradicts.map(|ratio| format!("but {ratio:.2}x by the published TPOT"));
        let published = published.map(|of| format!("published {}", of.ratio()));
        let band = pair.band().filter(|_| pair.verdict == PairVerdict::TooClose).map(TieBand::words);
        let exposed = [&pair.baseline_side, &pair.side].map(|side| percent(side.exposed_pct));
        let tpot_ratio = (pair.tpot_ms > 0.0).then(|| pair.baseline_tpot_ms / pair.tpot_ms);
        let by_tpot = tpot_ratio.map(|ratio| format!("by TPOT {ratio:.2}x"));
        let is_other_way = |ratio: &f64| {
            let leads = [pair.speedup - 1.0, ratio - 1.0];
            leads.iter().all(|lead| lead.abs() >= LEAST_DIFFERENCE) && leads[0] * leads[1] < 0.0
        };
        let why = tpot_ratio.filter(is_other_way);
        let why = why.map(|_| "tokens/s counts stalls and the prefill, TPOT is a median".to_owned());
        let effect = if is_short { Some(format!("exposed {}", exposed.join(" → "))) } else { by_tpot };
        let adjusted = pair.adjusted_p.map(|_| format!("p {} (BH)", p(pair.adjusted_p)));
        let above = pair.is_above_limit.then(|| "above the upper bound: noise".to_owned());
        let gap = pair
            .is_gap_apart
            .then(|| "gap closed unknown: not measured together with upper-bound".to_owned());
        let clauses =
            [above, gap, published, contradicts, band, sample_counts(pair), effect, adjusted, why];
        Self {
            measure: if pair.latency() == "TPOT" { "tokens/s " } else { "TTFT " },
            ratio: format!("{:.2}x{interval}", pair.speedup),
            verdict: format!(" {}", verdict_words(pair)),
            clauses: clauses.into_iter().flatten().collect(),
        }
    }

    fn text(&self) -> String {
        let head = format!("{}{}{}", self.measure, self.ratio, self.verdict);
        std::iter::once(head).chain(self.clauses.iter().cloned()).collect::<Vec<_>>().join("; ")
    }

    fn draw(&self, buf: &mut Buffer, area: Rect, theme: Theme) {
        let used = self.measure.width() + self.ratio.width() + self.verdict.width();
        let whole: String = self.clauses.iter().map(|clause| format!("; {clause}")).collect();
        let width = usize::from(area.width);
        let room = width.saturating_sub(used);
        // the notes have all clauses
        let elided = |clauses: &str, room| {
            elided_clauses(clauses, room, &["; "]).unwrap_or_else(|| " …".to_owned())
        };
        let (clauses, second) = match area.height {
            ..2 => (elided(&whole, room), ""),
            // the second row has the clauses that do not fit into the first
            _ => {
                let first = leading_clauses(&whole, room.saturating_sub(1), &["; "]).unwrap_or_default();
                let rest = whole.get(first.len()..).unwrap_or_default();
                (
                    format!("{first}{}", if rest.is_empty() { "" } else { ";" }),
                    rest.trim_start_matches("; "),
                )
            }
        };
        line(buf, area, 1, &[(&elided(second, width), theme.style(Role::Dim))]);
        let (text, title) = (theme.style(Role::Text), theme.style(Role::Title));
        let pieces: [(&str, Style); 4] = [
            (self.measure, text),
            (&self.ratio, title),
            (&self.verdict, text),
            (&clauses, theme.style(Role::Dim)),
        ];
        line(buf, area, 0, &pieces);
    }
}

fn verdict_words(pair: &Comparison) -> String {
    let words = match pair.verdict {
        PairVerdict::Faster if pair.is_limit_ahead() => return "▲ the limit".to_owned(),
        PairVerdict::Faster => return "▲ faster".to_owned(),
        PairVerdict::Slower => return "▼ slower".to_owned(),
        PairVerdict::Same => "negligible difference".into(),
        PairVerdict::TooClose => "too close to call".into(),
        PairVerdict::Chance => "not significant".into(),
        PairVerdict::Unknown => pair.why_unknown(),
    };
    // the interval is not corrected for the number of comparisons
    let p = pair.adjusted_p.filter(|_| pair.verdict == PairVerdict::Chance && pair.differs);
    let p = p.map_or_else(String::new, |p| format!(" (corrected p {p:.2})"));
    format!("{} {words}{p}", pair.verdict.mark())
}

/// Samples and rounds of the two sides; `None` for simulations, which repeat exactly.
fn sample_counts(pair: &Comparison) -> Option<String> {
    if pair.provenance == Provenance::Simulated {
        return None;
    }
    let [baseline, own] = [&pair.baseline_side, &pair.side];
    let rounds = counted(own.rounds, "round");
    Some(match (baseline.samples, baseline.rounds) == (own.samples, own.rounds) {
        true => format!("{} in {rounds} each", counted(own.samples as usize, "sample")),
        false => {
            let (samples, others) = (baseline.samples, own.samples);
            format!("{samples} and {others} samples in {} and {rounds}", baseline.rounds)
        }
    })
}

/// Columns of the two sides. A narrow window drops the lanes' milliseconds, which are also in the bars.
fn side_columns(pair: &Comparison) -> [TableColumn; 8] {
    let sides = [&pair.baseline_side, &pair.side];
    // simulated sides have no intervals
    let with_interval = |title: &str, interval: fn(&Side) -> Option<[f64; 2]>, spare: u8| {
        let has_interval = sides.iter().any(|side| interval(side).is_some());
        let (title, width) = match has_interval {
            true => (format!("{title} [95 % CI]"), 23),
            false => (title.to_owned(), 10),
        };
        TableColumn { title: title.into(), ..TableColumn::number("", width, spare) }
    };
    [
        TableColumn::text("", 12, 0),
        with_interval(&format!("{} ms", pair.latency()), |side| side.tpot_ms_ci95, 0),
        TableColumn::number("comm ms", 8, 2),
        TableColumn::number("exposed ms", 10, 2),
        TableColumn::number("exposed", 8, 0),
        TableColumn::number("hidden", 8, 0),
        with_interval("gap closed", |side| side.hidden_share_ci95, 1),
        TableColumn::text("", 12, 3),
    ]
}

/// Table of the two sides: latency, communication, and the shares of them.
fn draw_sides(buf: &mut Buffer, area: Rect, (pair, names): (&Comparison, &[String; 2]), theme: Theme) {
    let sides = [&pair.baseline_side, &pair.side];
    let latencies_ms = pair.latencies_ms();
    let decimals = shared_decimals(latencies_ms);
    let latency = |row: usize| {
        let interval = sides[row].tpot_ms_ci95;
        let interval = interval.map(|[low, high]| format!(" [{low:.decimals$}, {high:.decimals$}]"));
        format!("{:.decimals$}{}", latencies_ms[row], interval.unwrap_or_default())
    };
    let of_latency = |of: fn(&Side) -> Option<f64>| {
        aligned_ms([0, 1].map(|row| {
            share_of_phase(sides[row], of(sides[row])).map(|share| share * latencies_ms[row])
        }))
    };
    let [comm_ms, exposed_ms] =
        [of_latency(|side| side.comm_ms), of_latency(|side| side.exposed_comm_ms)];
    let overlap_pct = [pair.baseline_overlap_pct, pair.overlap_pct];
    table::draw_all(buf, area, theme, &side_columns(pair), sides.len(), |row, column| match column {
        0 => names[row].clone(),
        1 => latency(row),
        2 => comm_ms[row].clone(),
        3 => exposed_ms[row].clone(),
        4 => percent(sides[row].exposed_pct),
        5 => percent(overlap_pct[row]),
        6 => sides[row].gap_closed(),
        _ => link(&sides[row].spec),
    });
}

/// Share of a time in the recorded decode phase. Scaling a median latency by it makes the parts of a row add up, which
/// means of the recorded steps do not.
fn share_of_phase(side: &Side, ms: Option<f64>) -> Option<f64> {
    let recorded_ms = side.compute_ms? + side.exposed_comm_ms? + side.idle_ms?;
    (recorded_ms > 0.0).then_some(ms? / recorded_ms)
}

/// Column of the two sides with as many decimals in both rows.
fn aligned_ms(column: [Option<f64>; 2]) -> [String; 2] {
    let decimals = shared_decimals(column.into_iter().flatten());
    column.map(|ms| ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.decimals$}")))
}

/// Short label of a link; empty for the machine's own link, and for one that the P2P setting names.
fn link(spec: &Spec) -> String {
    match spec.link {
        Link::Native => String::new(),
        _ if spec.has_link_of_p2p() => String::new(),
        Link::P2pOn | Link::P2pOff => format!("link={}", spec.link),
        Link::Emulated { .. } => spec.link.label(),
    }
}

/// Part of the decode phase: its glyph and name, that of a narrow window, and its colour.
type PhasePart = (&'static str, &'static str, &'static str, Role);

/// Index of the rest of the decode latency among the [`phase_parts`].
const REST: usize = 5;

/// Parts of the decode phase of a pair, in the order of the bars. Without a split, work is the whole compute lane.
fn phase_parts(pair: &Comparison, is_split: bool) -> [PhasePart; REST + 1] {
    let sides = [&pair.baseline_side, &pair.side];
    let [work, transfer] = match is_split {
        true => ["work", "exposed transfer"],
        false => ["compute", "exposed communication"],
    };
    let rest = rest_name(sides.map(|side| &side.spec));
    [
        ("█", work, work, Role::Series(0)),
        ("▓", "contention", "contention", Role::Warn),
        ("╱", transfer, "exposed", Role::Exposed),
        ("░", "waiting for peers", "waiting", Role::Waiting),
        ("·", "idle", "idle", Role::Dim),
        (":", rest, rest, Role::Dim),
    ]
}

/// Recorded decode phase of a side.
#[derive(Clone, Copy, Debug, PartialEq)]
struct PhaseTimes {
    /// Time of each of the [`phase_parts`] (ms).
    ms: [f64; REST + 1],
    /// True if the parts sum to the decode latency. Without a recorded split, contention, waiting and the rest are
    /// unknown.
    is_split: bool,
}

impl PhaseTimes {
    fn from_side(side: &Side) -> Option<Self> {
        let idle = side.idle_ms?;
        let Some(split) = side.split else {
            let ms = [side.compute_ms?, 0.0, side.exposed_comm_ms?, 0.0, idle, 0.0];
            return Some(Self { ms, is_split: false });
        };
        let [work, contention] = [split.work_ms, split.contention_ms];
        let [transfer, wait] = [split.transfer_ms, split.peer_wait_ms];
        let rest = side.decode_ms - (work + contention + transfer + wait + idle);
        // sums of the same nanoseconds differ in the last digits
        let rest = if rest > 1e-3 { rest } else { 0.0 };
        Some(Self { ms: [work, contention, transfer, wait, idle, rest], is_split: true })
    }

    fn total_ms(&self) -> f64 {
        self.ms.iter().sum()
    }
}

/// Columns for the name before a bar, and for its length behind it.
const BAR_NAME: u16 = 15;
const BAR_LENGTH: u16 = 23;

/// Minimum width of bars that say that their means include stalls.
const WIDE: u16 = 100;

/// One bar per side on a common scale, with a legend of the parts.
fn draw_bars(
    buf: &mut Buffer,
    areas: &DetailAreas,
    (pair, names): (&Comparison, &[String; 2]),
    theme: Theme,
) {
    let sides = [&pair.baseline_side, &pair.side];
    let [Some(baseline), Some(own)] = sides.map(PhaseTimes::from_side) else {
        let text = "no breakdown of the decode phase: its lanes were not recorded";
        put(buf, areas.bars, areas.bars.x, areas.bars.y, text, theme.style(Role::Dim));
        return;
    };
    let phases = [baseline, own];
    let parts = phase_parts(pair, phases.iter().all(|phase| phase.is_split));
    let totals_ms = [baseline.total_ms(), own.total_ms()];
    let longest_ms = totals_ms[0].max(totals_ms[1]);
    if longest_ms <= 0.0 {
        return;
    }
    // enough digits for their difference to match the sentences below
    let (unit, unit_ms) = unit_of(longest_ms);
    let decimals = shared_decimals(totals_ms.map(|ms| ms / unit_ms));
    let lengths = [0, 1].map(|row| {
        let length = format!("{:.decimals$} {unit}", totals_ms[row] / unit_ms);
        // unlike the medians of the headline
        let stalls = match sides[row].rounds {
            2.. if !phases[row].is_split && areas.bars.width >= WIDE => ", stalls included",
            _ => "",
        };
        format!("{length} {}{stalls}", phase_name(sides[row], &phases[row]))
    });
    let longest = lengths.iter().map(|length| length.width() as u16 + 2).max().unwrap_or(0);
    let columns = areas.bars.width.saturating_sub(BAR_NAME + longest.max(BAR_LENGTH));
    let columns_per_ms = f64::from(columns) / longest_ms;
    for (row, name) in names.iter().enumerate() {
        let area = cut_top(areas.bars, row as u16).1;
        put(buf, area, area.x, area.y, &cut(name, BAR_NAME - 1), theme.style(Role::Text));
        let x = draw_bar(buf, area, (&phases[row], parts.as_slice()), columns_per_ms, theme);
        put(buf, area, x + 1, area.y, &lengths[row], theme.style(Role::Text));
    }
    draw_bar_legend(buf, areas.bar_legend, &parts, &phases, theme);
}

/// Draws the parts of a phase; returns the next column.
fn draw_bar(
    buf: &mut Buffer,
    area: Rect,
    (phase, parts): (&PhaseTimes, &[PhasePart]),
    columns_per_ms: f64,
    theme: Theme,
) -> u16 {
    let mut x = area.x + BAR_NAME;
    let mut end_ms = 0.0;
    for ((glyph, _, _, role), ms) in parts.iter().zip(phase.ms) {
        let first = (end_ms * columns_per_ms).round() as usize;
        end_ms += ms.max(0.0);
        let end = (end_ms * columns_per_ms).round() as usize;
        x = put(buf, area, x, area.y, &glyph.repeat(end - first), theme.style(*role));
    }
    x
}

/// Phase that a bar covers. Without a split, it is a recorded one, which differs in length from the median one.
fn phase_name(side: &Side, phase: &PhaseTimes) -> String {
    match side.rounds {
        _ if phase.is_split => "decode".to_owned(),
        ..2 => "recorded".to_owned(),
        runs => format!("mean of {runs} runs"),
    }
}

/// Parts that either phase has, from the baseline to the other, in one unit.
fn draw_bar_legend(
    buf: &mut Buffer,
    area: Rect,
    parts: &[PhasePart],
    phases: &[PhaseTimes; 2],
    theme: Theme,
) {
    let (unit, unit_ms) = unit_of(phases[0].total_ms().max(phases[1].total_ms()));
    let times = phases[0].ms.into_iter().zip(phases[1].ms);
    let used = parts.iter().zip(times).filter(|(_, (from, to))| *from != 0.0 || *to != 0.0);
    let words = |((_, name, short, _), (from, to)): (&PhasePart, (f64, f64)), is_short: bool| {
        let [from, to] = [from, to].map(|ms| digits(ms / unit_ms));
        match is_short {
            true => format!(" {short} {from} → {to}  "),
            false => format!(" {name} {from} → {to} {unit}  "),
        }
    };
    let width: usize = used.clone().map(|entry| words(entry, false).width() + 1).sum();
    let is_short = width > usize::from(area.width) + 2;
    let mut x = area.x;
    for entry in used {
        let (glyph, _, _, role) = entry.0;
        x = put(buf, area, x, area.y, glyph, theme.style(*role));
        x = put(buf, area, x, area.y, &words(entry, is_short), theme.style(Role::Dim));
    }
    if is_short {
        put(buf, area, x.saturating_sub(1), area.y, unit, theme.style(Role::Dim));
    }
}

/// Unit for times of up to this many ms, and its length in ms.
fn unit_of(most_ms: f64) -> (&'static str, f64) {
    if most_ms.abs() < 1e3 { ("ms", 1.0) } else { ("s", 1e3) }
}

/// Sources of the difference in decode latency, a sentence each: of the baseline from the cell, and of the cell from
/// `upper-bound`; none without a recorded split.
fn differences([baseline, value]: &[String; 2], pair: &Comparison) -> Vec<String> {
    let rest = rest_name([&pair.baseline_side.spec, &pair.side.spec]);
    let saved = pair.saved.map(|saved| saved.sentence([baseline, value], rest));
    let above = pair.above_upper_bound.filter(|_| pair.value != "upper-bound").map(|above| {
        let capped = match pair.is_capped() {
            true => format!("; what is left of the gap is {CONTENTION}"),
            false => String::new(),
        };
        above.sentence([value, "upper-bound"], rest) + &capped
    });
    saved.into_iter().chain(above).chain(longer_comm([baseline, value], pair)).collect()
}

/// Minimum ratio of two communication times that needs an explanation.
const LONGER: f64 = 1.05;

/// Reason why a cell that hides more communication spends more time in it.
fn longer_comm([baseline, value]: [&String; 2], pair: &Comparison) -> Option<String> {
    let (from, to) = (&pair.baseline_side, &pair.side);
    let ratio = to.comm_ms? / from.comm_ms?;
    let hides_more = to.overlap_pct? > from.overlap_pct?;
    // a mean over noisy runs contradicts the medians above
    if pair.verdict.is_undecided() && !pair.is_simulated() {
        return None;
    }
    let or_waits = if pair.is_simulated() { "" } else { ", or its ranks wait longer for each other" };
    (hides_more && ratio.is_finite() && ratio >= LONGER).then(|| {
        format!(
            "{value} communicates {ratio:.2}x as long as {baseline}: kernels that run beside an all-reduce slow it \
             down{or_waits}"
        )
    })
}

/// Numbers of rows of the first of [`differences`], and of all.
fn rows_of(sentences: &[String], width: u16) -> [u16; 2] {
    let rows: Vec<u16> =
        sentences.iter().map(|sentence| wrap(sentence, width.into()).len() as u16).collect();
    [rows.first().copied().unwrap_or(0), rows.iter().sum()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> Comparison {
        let cells = crate::face::tui::tests::fixtures::records();
        let report =
            study::analysis::Cells::from_records(&cells).compare(&Axis::ARCHITECTURE, None).unwrap();
        report.pairs[0].clone()
    }

    #[test]
    fn parts_sum_to_the_latency_also_if_ranks_end_before_the_slowest() {
        let mut side = pair().side;
        (side.decode_ms, side.idle_ms) = (20.0, Some(1.0));
        side.split = Some(::table::Split {
            work_ms: 10.0,
            contention_ms: 2.0,
            peer_wait_ms: 1.0,
            transfer_ms: 3.0,
        });
        let phase = PhaseTimes::from_side(&side).unwrap();
        assert_eq!(phase, PhaseTimes { ms: [10.0, 2.0, 3.0, 1.0, 1.0, 3.0], is_split: true });
        side.decode_ms = 17.0 - 1e-9;
        let rest_ms = PhaseTimes::from_side(&side).unwrap().ms[REST];
        assert_eq!(rest_ms, 0.0, "the same nanoseconds");
    }

    #[test]
    fn time_beyond_the_ranks_is_skew_unless_requests_are_served() {
        let mut pair = pair();
        assert_eq!(phase_parts(&pair, true)[REST].1, "rank skew");
        pair.side.spec.concurrency = 64;
        assert_eq!(phase_parts(&pair, true)[REST].1, "interleaved prefills");
    }

    #[test]
    fn exposed_time_is_its_share_of_the_latency_beside_it() {
        let side = Side {
            compute_ms: Some(144.0),
            exposed_comm_ms: Some(64.0),
            idle_ms: Some(3.2),
            exposed_pct: Some(30.3),
            ..pair().side
        };
        let share = share_of_phase(&side, side.exposed_comm_ms).unwrap();
        assert!((100.0 * share - side.exposed_pct.unwrap()).abs() < 0.01, "{share}");
        assert_eq!(share_of_phase(&Side { idle_ms: None, ..side }, Some(1.0)), None);
    }

    #[test]
    fn a_ratio_of_tokens_that_contradicts_that_of_tpot_says_why() {
        let mut pair = pair();
        (pair.speedup, pair.baseline_tpot_ms, pair.tpot_ms) = (0.86, 48.37, 46.0);
        let said = |pair: &Comparison| ResultLine::new(pair, false).text().contains("TPOT is a median");
        assert!(said(&pair));
        pair.speedup = 1.04;
        assert!(!said(&pair));
    }

    #[test]
    fn noise_above_the_upper_bound_and_an_unknown_gap_are_named() {
        let mut pair = pair();
        let text = |pair: &Comparison| ResultLine::new(pair, false).text();
        assert!(!text(&pair).contains("upper"), "{}", text(&pair));
        pair.is_above_limit = true;
        assert!(text(&pair).contains("; above the upper bound: noise"), "{}", text(&pair));
        pair.is_gap_apart = true;
        let why = "; gap closed unknown: not measured together with upper-bound";
        assert!(text(&pair).contains(why), "{}", text(&pair));
    }

    #[test]
    fn numbers_of_a_column_have_as_many_decimals() {
        assert_eq!(aligned_ms([Some(0.354), Some(0.0)]), ["0.354", "0.000"], "upper-bound");
        assert_eq!(aligned_ms([Some(12.5), Some(9.876)]), ["12.50", "9.88"]);
        assert_eq!(aligned_ms([None, Some(2.0)]), ["-", "2.00"]);
    }

    #[test]
    fn bars_are_shown_with_their_legend_and_sides_with_both_rows() {
        let areas = |height, rows| DetailAreas::new(Rect::new(0, 0, 80, height), rows, false);
        let rows = |height: u16| {
            let areas = areas(height, [0, 0]);
            let all = [areas.origin, areas.result, areas.sides, areas.bars, areas.bar_legend];
            all.map(|area| area.height)
        };
        assert_eq!(rows(1), [0, 1, 0, 0, 0]);
        assert_eq!(rows(3), [1, 1, 0, 0, 0]);
        assert_eq!(rows(4), [0, 1, 3, 0, 0]);
        assert_eq!(rows(6), [1, 1, 3, 0, 0]);
        assert_eq!(rows(7), [0, 1, 3, 2, 1]);
        assert_eq!(rows(11), [1, 1, 3, 2, 1]);
        // the sources of the difference take the row of the origin rather than be cut
        let of_sources = |height, rows| {
            let areas = areas(height, rows);
            (areas.origin.height, areas.differences.height)
        };
        assert_eq!(of_sources(8, [2, 4]), (1, 0));
        assert_eq!(of_sources(9, [2, 4]), (0, 2));
        assert_eq!(of_sources(9, [1, 1]), (1, 1));
        assert_eq!(of_sources(10, [1, 1]), (1, 1));
        assert_eq!(of_sources(12, [2, 4]), (1, 4));
        // the second row of a long result replaces the gap
        let long = |height| DetailAreas::new(Rect::new(0, 0, 80, height), [1, 1], true).result.height;
        assert_eq!([long(9), long(10)], [1, 2]);
    }
}
