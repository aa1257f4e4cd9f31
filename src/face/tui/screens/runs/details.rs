//! Details of a run or a cell, beside or below the list, and as a text that scrolls.

use std::sync::Arc;

use super::Act;
use super::state::{self, Runs};
use crate::desk::{self, RunSection};
use crate::face::tui::prelude::*;
use crate::face::tui::texts::TextView;
use crate::face::tui::widgets::wrap::elided_clauses;
use base::text::latency;
use lab::store::Annotations;
use table::{Measure, MeasureScope, Record, measure};

pub fn draw_details(buf: &mut Buffer, area: Rect, cx: &Context, runs: &Runs, stored: &Arc<Snapshot>) {
    if area.is_empty() {
        return;
    }
    let (theme, whole) = (cx.theme, cx.key::<Runs>(Act::Whole));
    let record = runs.described(stored);
    let title = record.map_or_else(|| "details".to_owned(), |record| runs.described_name(record));
    let inner = frame(buf, area, &title, theme);
    let Some(record) = record else { return };
    if inner.height < LEAST_ROWS {
        let numbers = numbers(record, &stored.annotations);
        let lines = wrap(&numbers, usize::from(inner.width.saturating_sub(2)));
        for (row, text) in (0..inner.height).zip(&lines) {
            line(buf, inner, row, &[(" ", theme.style(Role::Text)), (text, theme.style(Role::Text))]);
        }
        let hint = format!(" {whole}: all ");
        let x = area.right().saturating_sub(hint.width() as u16 + 1);
        put(buf, area, x, area.bottom() - 1, &hint, theme.style(Role::Dim));
        return;
    }
    let (lines, width, fitting) = detail_lines(record, &stored.annotations, inner);
    let (about, height) = (name_column_width(&lines, width), usize::from(inner.height));
    let place = |at: usize| {
        let (column, row) = (at / height.max(1), at % height.max(1));
        (inner.x + column as u16 * width, inner.y + row as u16)
    };
    for (at, (name, says)) in lines.iter().take(fitting).enumerate() {
        let (x, y) = place(at);
        let end = put(buf, inner, x + 1, y, name, theme.style(Role::Dim));
        put(buf, inner, (x + 1 + about).max(end + 1), y, says, theme.style(Role::Text));
    }
    if lines.len() > fitting && height > 0 {
        let (x, y) = place(fitting);
        let more = counted(lines.len() - fitting, "more line");
        let told = format!("… {more}: {whole} shows all");
        put(buf, inner, x + 1, y, &told, theme.style(Role::Dim));
    }
}

/// Rows of the frame below which the details are the numbers alone, side by side.
const LEAST_ROWS: u16 = 5;

/// Details of a run, one per line; empty if they all fit.
pub fn cut_details(record: &Record, annotations: &Annotations, area: Rect) -> Vec<String> {
    let inner = inside(area);
    let (lines, _, fitting) = detail_lines(record, annotations, inner);
    let is_short = |(name, says): &(String, String)| name == WARNING && says.ends_with('…');
    match inner.height < LEAST_ROWS || fitting < lines.len() || lines.iter().any(is_short) {
        true => {
            described(record, annotations).iter().map(|(name, says)| format!("{name}: {says}")).collect()
        }
        false => Vec::new(),
    }
}

/// Lines of the details of a run, the width of their column, and the number of lines that fit.
fn detail_lines(
    record: &Record,
    annotations: &Annotations,
    inner: Rect,
) -> (Vec<(String, String)>, u16, usize) {
    let detail_rows = |area| {
        let mut lines = described(record, annotations);
        lines.retain(|(name, _)| !is_hash(name));
        shorten_warnings(&mut lines, area);
        detail_rows(&lines, area)
    };
    let lines = detail_rows(inner);
    // long descriptions flow into two columns where both have room
    let height = usize::from(inner.height);
    let flows = lines.len() > height && inner.width >= 2 * state::DETAILS - 8;
    let (width, columns) = if flows { (inner.width / 2, 2) } else { (inner.width, 1) };
    let lines = match flows {
        true => detail_rows(Rect { width: width - 2, ..inner }),
        false => lines,
    };
    let fitting = match columns * height {
        room if lines.len() > room => room.saturating_sub(1),
        _ => lines.len(),
    };
    (lines, width, fitting)
}

/// Columns of the names and the gap behind them; a name of more than half the width pushes its value to the right.
fn name_column_width(lines: &[(String, String)], width: u16) -> u16 {
    let most = usize::from(width) / 2;
    let widths = lines.iter().map(|(name, _)| name.width());
    widths.filter(|width| *width <= most).max().unwrap_or(0) as u16 + 2
}

/// Name of the lines with warnings.
const WARNING: &str = "warning";

/// Shortens each warning to the clauses that fit in one line; the full text has them whole.
fn shorten_warnings(lines: &mut [(String, String)], area: Rect) {
    let column = name_column_width(lines, area.width);
    let room = area.width.saturating_sub(column + 2);
    for (_, says) in lines.iter_mut().filter(|(name, _)| name == WARNING) {
        if let Some(short) = elided_clauses(says, room.into(), &["; ", " (", ", "]) {
            *says = short;
        }
    }
}

/// Describes a run: names and values. First its state, and reasons, tags and notes, then its results, warnings, the rest,
/// and hashes last.
fn described(record: &Record, annotations: &Annotations) -> Vec<(String, String)> {
    placed_lines(record, annotations).into_iter().map(|placed| placed.line).collect()
}

/// Results of a run in one text, or its status and the reason why it has none: `TPOT 5.00 ms · tokens/s 800`.
fn numbers(record: &Record, annotations: &Annotations) -> String {
    let lines = placed_lines(record, annotations).into_iter();
    let is_state = |name: &str| name == "reason" || name == "status" && record.metrics.is_none();
    let lines = lines.filter(|placed| placed.is_number || is_state(&placed.line.0));
    let texts = lines.map(|PlacedLine { line: (name, says), .. }| format!("{name} {says}"));
    texts.collect::<Vec<_>>().join(" · ")
}

/// Line of a description.
struct PlacedLine {
    /// Sort key.
    place: u8,
    is_number: bool,
    /// Name and value.
    line: (String, String),
}

fn placed_lines(record: &Record, annotations: &Annotations) -> Vec<PlacedLine> {
    let status = format!("{} {}, {}", record.status.glyph(), record.status.as_str(), record.provenance);
    let head = [("status".to_owned(), status), ("cell".to_owned(), record.spec.label())];
    let head = head.into_iter().map(|line| PlacedLine { place: 0, is_number: false, line });
    let mut lines: Vec<PlacedLine> = head.collect();
    let per_gpu = measure(state::PER_GPU).filter(|_| record.spec.backend.computes_on_cores());
    let per_gpu = per_gpu.map(|measure| measure.words);
    for section in desk::describe(record, annotations.of(&record.run), Measure::cell_with_interval) {
        let is_result = section.scope.is_some();
        let basis = basis(record, &section).map(|line| (false, line));
        // a pool lists its runs instead
        let is_pooled = record.runs.len() > 1;
        let is_shown = |(_, (name, _)): &(bool, (String, String))| {
            Some(name.as_str()) != per_gpu && !(is_pooled && name == "round")
        };
        let own = section.lines.into_iter().map(|line| (is_result, line));
        for (is_number, line) in basis.into_iter().chain(own).filter(is_shown) {
            let place = match line.0.as_str() {
                "reason" | "tags" | "note" => 0,
                _ if is_result => 1,
                WARNING => 2,
                name if is_hash(name) => 4,
                _ => 3,
            };
            lines.push(PlacedLine { place, is_number, line });
        }
    }
    lines.sort_by_key(|placed| placed.place);
    lines
}

/// True for a line of hashes. They show only that two runs differ, so only the full text includes them.
fn is_hash(name: &str) -> bool {
    name.ends_with("hashes") || name.contains("sha256")
}

/// Line above the values of a section that names their basis: medians over the samples, or the recording of one sample,
/// whose decode phase may be longer than the median. `None` for a section without such a basis.
fn basis(record: &Record, section: &RunSection) -> Option<(String, String)> {
    let scope = section.scope.filter(|_| !section.basis.is_empty())?;
    let Some(overlap) = record.overlap.as_ref().filter(|_| scope == MeasureScope::Lanes) else {
        return Some((section.title.to_lowercase(), section.basis.clone()));
    };
    let decode_ms = overlap.compute_ms + overlap.exposed_comm_ms + overlap.idle_ms;
    let recorded = latency(decode_ms * 1e3);
    Some(("recording".to_owned(), format!("{}, {recorded} as recorded", section.basis)))
}

/// Lines of [`described`], wrapped; a continued value has no name.
fn detail_rows(all: &[(String, String)], area: Rect) -> Vec<(String, String)> {
    let column = name_column_width(all, area.width);
    let mut lines = Vec::new();
    for (about, says) in all {
        // a long name leaves less room in its first line
        let room = area.width.saturating_sub(column.max(about.width() as u16 + 1) + 2).max(8);
        for (at, words) in wrap(says, room.into()).into_iter().enumerate() {
            lines.push((if at == 0 { about.clone() } else { String::new() }, words));
        }
    }
    lines
}

impl Runs {
    /// Record that the details describe: of the selected cell with pooled numbers, or the full one of the selected run, if
    /// it has been read.
    pub(super) fn described<'a>(&'a self, stored: &'a Arc<Snapshot>) -> Option<&'a Record> {
        if let Some(cell) = self.selected_cell() {
            return Some(&cell.pooled.record);
        }
        let record = self.selected(Some(stored))?;
        Some(self.whole.as_deref().filter(|whole| whole.run == record.run).unwrap_or(record))
    }

    /// Name of this record of [`Self::described`]: its id; of a cell, the number of pooled runs.
    pub(super) fn described_name(&self, record: &Record) -> String {
        match self.selected_cell() {
            Some(cell) => {
                format!("{} pooled: {}", counted(cell.pooled.counted, "run"), record.spec.label())
            }
            None => record.run.clone(),
        }
    }

    /// Opens all details of the selected run or cell as a text that scrolls, below the reason why it has no timeline.
    pub(super) fn show_whole(&self, no_timeline: Option<String>, cx: &mut Context) {
        let stored = cx.stored.clone();
        if let Some(record) = stored.as_ref().and_then(|stored| self.described(stored)) {
            Self::show_details(self.described_name(record), record.clone(), no_timeline, cx);
        }
    }

    pub fn show_record(record: Record, no_timeline: Option<String>, cx: &mut Context) {
        Self::show_details(record.run.clone(), record, no_timeline, cx);
    }

    fn show_details(title: String, record: Record, no_timeline: Option<String>, cx: &mut Context) {
        let annotations =
            cx.stored.as_ref().map(|stored| stored.annotations.clone()).unwrap_or_default();
        cx.lay(TextView::new(title, move |width| {
            let why = no_timeline.iter().flat_map(|why| wrap(&format!("no timeline: {why}"), width));
            let why = why.map(|text| vec![(text, Role::Warn)]);
            let all = described(&record, &annotations);
            let lines = detail_rows(&all, Rect::new(0, 0, width as u16, 1));
            let about = usize::from(name_column_width(&lines, width as u16));
            let pieces = |(name, says): (String, String)| {
                let name = format!("{name:<about$}");
                vec![(name, Role::Dim), (says, Role::Text)]
            };
            why.chain(lines.into_iter().map(pieces)).collect()
        }));
    }
}
