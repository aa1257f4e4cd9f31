//! Screen 3: stored runs.
//!
//! ```text
//! | 12 of 40 runs   filter: ladder p2p=on▏                   |
//! | run   status  architecture  model  tp batch p2p  ...     |
//! | ╭ details ─────────────────────────────────────────────╮ |
//! ```

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::store::Record;
use crate::tui::format::{digits, percent, si};
use crate::tui::screens::runs::state::Column as Key;
use crate::tui::state::State;
use crate::tui::theme::{Role, Theme};
use crate::tui::widgets::paint::{empty, frame, line, put, wrap};
use crate::tui::widgets::table::{self, Column, Rows};

/// One for each [`Key`], in its order.
const COLUMNS: [Column; Key::ALL.len()] = [
    Column::text("  run", 17, 0).growing(26),
    Column::text("status", 11, 8),
    Column::text("architecture", 12, 0),
    Column::text("model", 13, 7),
    Column::number("tp", 3, 1),
    Column::number("batch", 6, 4),
    Column::text("p2p", 4, 3),
    Column::text("provenance", 13, 1),
    Column::number("TPOT ms", 8, 1),
    Column::number("tok/s", 8, 2),
    Column::number("tok/s/GPU", 10, 5),
    Column::number("overlap", 8, 1),
];

/// Draws the screen.
pub fn draw(buf: &mut Buffer, body: Rect, state: &State) {
    let (theme, runs) = (state.theme, &state.runs);
    let Some(stored) = &state.stored else {
        empty(buf, body, "reading the runs directory…", theme);
        return;
    };
    if stored.records.is_empty() && stored.damaged.is_empty() {
        let text = format!("no runs yet in {}: press 1, Enter runs the quickstart", state.dir.display());
        empty(buf, body, &text, theme);
        return;
    }
    let (top, area, details) = super::areas(body, runs.detail);
    let count = format!(" {} of {} runs  ", runs.order.len(), stored.records.len());
    let (text, key) = (theme.style(Role::Text), theme.style(Role::Key));
    line(buf, top, 0, &[(&count, theme.style(Role::Title))]);
    let mut x = top.x + count.len() as u16;
    if runs.typing || !runs.filter.value().is_empty() {
        x = put(buf, top, x, top.y, "filter: ", key);
        x = put(buf, top, x, top.y, runs.filter.value(), text);
        if runs.typing {
            x = put(
                buf,
                top,
                x,
                top.y,
                "▏ words, key=value; Enter keeps, Esc drops",
                theme.style(Role::Dim),
            );
        }
    }
    if let Some(first) = stored.damaged.first() {
        let note = format!("  ✘ {} unreadable: {first}", stored.damaged.len());
        put(buf, top, x, top.y, &note, theme.style(Role::Bad));
    }
    let at = Key::ALL.iter().position(|k| *k == runs.sort).unwrap_or(0);
    let mark = Some((at, if runs.ascending { "↑" } else { "↓" }));
    let rows = Rows { list: &runs.list, len: runs.order.len(), mark };
    table::draw(buf, area, theme, &COLUMNS, rows, |row, column| {
        let record = runs.order.get(row).and_then(|i| stored.records.get(*i));
        record.map_or_else(Default::default, |record| content(record, Key::ALL[column], theme))
    });
    if runs.order.is_empty() {
        empty(buf, area, "no run matches the filter: Esc drops it", theme);
    }
    if runs.detail {
        let record = runs.selected(Some(stored));
        let title = record.map_or("details", |r| r.run.as_str());
        let inner = frame(buf, details, title, theme);
        let lines = record.map(|r| describe(r, usize::from(inner.width).max(8))).unwrap_or_default();
        for (row, text) in lines.iter().take(usize::from(inner.height)).enumerate() {
            line(buf, inner, row as u16, &[(text, theme.style(Role::Text))]);
        }
    }
}

fn content(record: &Record, column: Key, theme: Theme) -> (String, Style) {
    let text = theme.style(Role::Text);
    let spec = &record.spec;
    let number = |f: fn(&crate::store::Metrics) -> f64| {
        (record.metrics.as_ref().map_or("-".into(), |m| digits(f(m))), text)
    };
    match column {
        Key::Run => (format!("{} {}", record.status.glyph(), record.run), theme.status(record.status)),
        Key::Status => (record.status.as_str().into(), theme.status(record.status)),
        Key::Architecture => (spec.architecture.to_string(), text),
        Key::Model => (spec.model.clone(), text),
        Key::Tp => (spec.tp.to_string(), text),
        Key::Batch => (spec.batch.to_string(), text),
        Key::P2p => (spec.p2p.as_str().into(), text),
        Key::Provenance => (record.provenance.to_string(), theme.provenance(record.provenance)),
        Key::Tpot => number(|m| m.tpot_ms.p50),
        Key::TokensPerS => number(|m| m.tokens_per_s),
        Key::PerGpu => number(|m| m.tokens_per_s_per_gpu),
        Key::Overlap => (percent(record.overlap.and_then(|o| o.overlap_pct)), text),
    }
}

/// A run in words: spec, metrics with intervals, overlap, environment.
fn describe(record: &Record, width: usize) -> Vec<String> {
    let spec = &record.spec;
    let mut lines = vec![
        format!("{} {}   {}", record.status.glyph(), record.status.as_str(), record.provenance),
        format!("{} on {}, {} {}", spec.label(), spec.hardware, spec.model, spec.dtype),
        format!(
            "backend {}, link {}, stack {}, prompt {} + output {} tokens, {} samples, seed {}",
            spec.backend.as_str(),
            spec.link,
            spec.stack,
            spec.prompt_tokens,
            spec.output_tokens,
            spec.samples,
            spec.seed
        ),
    ];
    if let Some(reason) = &record.reason {
        lines.push(format!("reason: {reason}"));
    }
    if let Some(m) = &record.metrics {
        let interval = |ci: Option<[f64; 2]>| {
            ci.map_or("no interval".into(), |[a, b]| format!("95%: {} to {}", digits(a), digits(b)))
        };
        lines.push(format!(
            "TPOT {} ms ({}), p90 {}, p99 {}",
            digits(m.tpot_ms.p50),
            interval(m.tpot_ms_ci95),
            digits(m.tpot_ms.p90),
            digits(m.tpot_ms.p99)
        ));
        lines.push(format!(
            "{} tokens/s ({}), {} a GPU",
            digits(m.tokens_per_s),
            interval(m.tokens_per_s_ci95),
            digits(m.tokens_per_s_per_gpu)
        ));
        lines.push(format!(
            "prefill {} ms, decode {} ms, completion {} ms, memory {} a rank",
            digits(m.prefill_ms),
            digits(m.decode_ms),
            digits(m.completion_ms),
            si(m.memory_bytes_per_rank as f64, "B")
        ));
    }
    if let Some(o) = &record.overlap {
        lines.push(format!(
            "overlap {}: communication {} ms, exposed {} ms, compute {} ms, idle {} ms",
            percent(o.overlap_pct),
            digits(o.comm_ms),
            digits(o.exposed_comm_ms),
            digits(o.compute_ms),
            digits(o.idle_ms)
        ));
    }
    lines.extend(record.warnings.iter().map(|w| format!("warning: {w}")));
    lines.extend(spec.env.iter().map(|(k, v)| format!("env {k}={v}")));
    lines.extend(spec.set.iter().map(|(k, v)| format!("set {k}={v}")));
    if let Some(experiment) = &record.experiment {
        lines.push(format!("experiment {experiment}, round {}", record.round + 1));
    }
    lines.push(format!("created {}", record.created));
    lines.extend(record.environment.iter().map(|(key, value)| match value {
        serde_json::Value::String(text) => format!("{key}: {text}"),
        other => format!("{key}: {other}"),
    }));
    lines.iter().flat_map(|l| wrap(l, width)).collect()
}
