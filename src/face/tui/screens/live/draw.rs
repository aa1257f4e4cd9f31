//! Screen 2: the current or most recent sweep.
//!
//! ```text
//! | quickstart  ▶ running   ██████▌·····  7/12 runs  left about 0:40 |
//! |   cell          round  samples   tok/s  TPOT  elapsed            |
//! | ▶ ladder tp2 …   1/3  ███··· 3/6  ...                            |
//! | ╭ queue ──────────────────────────────────────────────────────╮ |
//! | ╭ running ladder tp2 … ───────────────────────────────────────╮ |
//! | │ sample 3/10 · decode step 17/31, tok/s, lanes, memory, log   │ |
//! ```

use super::state::{CellState, Live, LiveCell, Pause};
use super::{Act, detail, result};
use crate::face::tui::format::clock;
use crate::face::tui::prelude::*;
use crate::face::tui::widgets::paint::bar;
use crate::face::tui::widgets::table::{self, Column, Rows};
use ::table::Provenance;
use run::Feasibility;

const COLUMNS: [Column; 9] = [
    Column::text("  cell", 30, 0).growing(10),
    Column::number("round", 5, 6),
    Column::text("samples", 10, 3),
    Column::number("tok/s", 7, 1),
    Column::number("TPOT ms", 7, 1),
    Column::number("95 %", 12, 3),
    Column::number("elapsed", 7, 4),
    Column::text("provenance", 13, 2),
    Column::text("note", 12, 7),
];

const INTERVAL: usize = 5;

/// Column omitted if all cells share a provenance, which is then shown once above the table.
const PROVENANCE: usize = 7;

fn common_provenance(live: &Live) -> Option<Provenance> {
    let mut all = live.cells.iter().map(|cell| cell.spec.provenance());
    all.next().filter(|first| all.all(|other| other == *first))
}

pub fn draw(buf: &mut Buffer, body: Rect, live: &Live, cx: &Context) {
    let theme = cx.theme;
    let areas = live.areas(body);
    let Some(name) = &live.experiment else {
        return result::draw_earlier(buf, body, &areas, live, cx);
    };
    header(buf, areas.top, live, cx, name);
    let rows = Rows::new(&live.list, live.cells.len());
    let common = common_provenance(live);
    // predictions have no interval
    let empty = |at: usize| match common {
        Some(Provenance::Simulated) => [PROVENANCE, INTERVAL].contains(&at),
        Some(_) => at == PROVENANCE,
        None => false,
    };
    let kept: Vec<usize> = (0..COLUMNS.len()).filter(|at| !empty(*at)).collect();
    let columns: Vec<Column> = kept.iter().map(|at| COLUMNS[*at].clone()).collect();
    table::draw(buf, areas.table, theme, &columns, rows, |row, column, _| {
        table::cell(content(live, &live.cells[row], kept[column], cx.now_ms, theme))
    });
    if !live.queue.is_empty() {
        queue(buf, areas.queue, live, cx);
    }
    match live.selected() {
        _ if live.shows_answer() => result::draw(buf, areas.detail, live, cx),
        Some(cell) => detail::draw(buf, areas.detail, live, cx, cell),
        None => {}
    }
}

fn header(buf: &mut Buffer, area: Rect, live: &Live, cx: &Context, name: &str) {
    let theme = cx.theme;
    let progress = live.progress(cx.now_ms);
    let elapsed = clock(live.worked_ms(cx.now_ms));
    let pause = cx.key::<Live>(Act::Pause);
    let paused = format!("‖ paused: {pause} resumes");
    let (word, role) = match (live.ended, live.pause) {
        (None, _) if live.cancelling => ("■ being cancelled", Role::Warn),
        (None, Pause::Asked) => ("‖ pausing: the run under way ends first", Role::Warn),
        (None, Pause::Yes) => (paused.as_str(), Role::Warn),
        (None, Pause::No) if live.evaluation.is_some() => ("▶ evaluating quality", Role::Active),
        (None, Pause::No) => ("▶ running", Role::Active),
        (Some((_, ended)), _) if ended.interrupted => {
            ("◼ interrupted; what was done is stored", Role::Warn)
        }
        (Some((_, ended)), _) if ended.failed > 0 => ("✘ ended, with failures", Role::Bad),
        (Some(_), _) => ("✔ done", Role::Good),
    };
    let full = bar(progress.fraction, usize::from(area.width / 4));
    let unable = match progress.unable {
        0 => String::new(),
        // leaves room for the rest of the line in narrow windows
        cells if area.width < 110 => format!("  ⊘ {cells}"),
        cells => format!("  ⊘ {} cannot run", counted(cells, "cell")),
    };
    let mut numbers = format!("  {}/{}{unable}", progress.done, counted(progress.total, "run"));
    if let Some(left) = progress.left_ms {
        numbers.push_str(&format!("  left about {}", clock(left)));
    }
    numbers.push_str(&format!("  elapsed {elapsed}"));
    if let Some(cell) = live.cells.iter().find(|c| c.state == CellState::Running) {
        numbers.push_str(&format!("  round {}/{}", cell.round + 1, live.rounds));
    }
    if let Some(evaluation) = live.evaluation.as_ref().filter(|_| live.ended.is_none()) {
        let left = evaluation.left_ms(cx.now_ms);
        let left = left.map(|left| format!(", left about {}", clock(left))).unwrap_or_default();
        let (done, of) = (evaluation.done, counted(evaluation.of, "window"));
        numbers = format!("  {done}/{of}{left}  elapsed {elapsed}  {}", evaluation.what);
    } else if let Some(note) = &live.note {
        numbers.push_str(&format!("  {note}"));
    }
    let failed = match live.failures() {
        0 => String::new(),
        n => format!("  ✘ {n} failed"),
    };
    let (title, text) = (theme.style(Role::Title), theme.style(Role::Text));
    let provenance = common_provenance(live);
    let label = provenance.map(|provenance| format!(" [{provenance}]")).unwrap_or_default();
    let label_style = provenance.map_or(text, |provenance| theme.provenance(provenance));
    let follow = if live.follow && live.is_running() { "  following" } else { "" };
    let common = match live.cells.first() {
        Some(cell) if !live.varied.is_empty() => format!("  all {}", live.varied.common(&cell.spec)),
        _ => String::new(),
    };
    line(
        buf,
        area,
        0,
        &[
            (" ", text),
            (name, title),
            (&label, label_style),
            ("  ", text),
            (word, theme.style(role)),
            (&failed, theme.style(Role::Bad)),
            (follow, theme.style(Role::Dim)),
            (&common, theme.style(Role::Dim)),
        ],
    );
    line(buf, area, 1, &[(" ", text), (&full, theme.style(Role::Active)), (&numbers, text)]);
}

fn queue(buf: &mut Buffer, area: Rect, live: &Live, cx: &Context) {
    let theme = cx.theme;
    let label = |act| cx.key::<Live>(act);
    let title = match live.in_queue {
        true => format!(
            "queue: {} earlier, {} later, {} remove",
            label(Act::Earlier),
            label(Act::Later),
            label(Act::Remove)
        ),
        false => format!("queue: {} goes there", label(Act::Queue)),
    };
    let inner = frame(buf, area, &title, theme);
    for (row, y) in live.queue_list.rows(live.queue.len(), inner) {
        let queued = &live.queue[row];
        let cells = queued.experiment.cells.iter();
        let cells = cells.filter(|cell| cell.feasibility == Feasibility::Runs).count();
        let runs = cells * queued.experiment.rounds as usize;
        let text = format!(" {} {}, up to {}", row + 1, queued.title(), counted(runs, "run"));
        put(buf, inner, inner.x, y, &text, theme.style(Role::Text));
        if live.in_queue && row == live.queue_list.selected {
            put(buf, inner, inner.x, y, "▸", theme.style(Role::Key));
            select(buf, inner, y, theme);
        }
    }
}

fn content(live: &Live, cell: &LiveCell, column: usize, now_ms: u64, theme: Theme) -> (String, Style) {
    let text = theme.style(Role::Text);
    let number = |value: Option<f64>| (value.map_or("-".into(), digits), text);
    match column {
        0 => {
            let style = match cell.state {
                CellState::Queued => theme.style(Role::Dim),
                CellState::Running => theme.style(Role::Active),
                CellState::Done(status) => theme.status(status),
            };
            (format!("{} {}", cell.state.glyph(), live.title(&cell.spec)), style)
        }
        1 => (format!("{}/{}", cell.round + 1, live.rounds), text),
        2 => {
            let (done, of) = cell.samples;
            let share = if of == 0 { 0.0 } else { f64::from(done) / f64::from(of) };
            (format!("{} {done}/{of}", bar(share, 4)), text)
        }
        3 => number(cell.tokens_per_s),
        4 => number(cell.tpot_ms),
        5 => {
            let ends = cell.tpot_ms_ci95.map(|[low, high]| format!("{}..{}", digits(low), digits(high)));
            (ends.unwrap_or_else(|| "-".into()), text)
        }
        6 => {
            let since = cell.since_ms.map(|since| now_ms.saturating_sub(since));
            (since.or(cell.took_ms).map_or("-".into(), clock), text)
        }
        PROVENANCE => {
            let provenance = cell.spec.provenance();
            (provenance.to_string(), theme.provenance(provenance))
        }
        _ => (cell.note.clone(), theme.style(Role::Dim)),
    }
}
