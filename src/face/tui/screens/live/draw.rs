//! Screen 2: the current or most recent sweep.

use super::progress::{alike, communication, coverage, duration, exposed, sparkline};
use super::state::{CellState, Live, LiveCell, Pause};
use super::{Act, chart, result};
use crate::face::tui::format::{clock, si, unable_word};
use crate::face::tui::prelude::*;
use crate::face::tui::widgets::shade::{self, Shares};
use crate::face::tui::widgets::table::{self, TableColumn, TableRows};
use crate::face::tui::widgets::wrap::bar;
use ::table::{Provenance, Status};
use base::text::rank_label;
use run::{Feasibility, StepLanes};
use study::analysis::Axis;
use study::whatif::own_meaning;

/// Least width of the sweep's progress bar.
const LEAST_BAR: usize = 6;

/// Width of the throughput.
const RATE: u16 = 7;

const COLUMNS: [TableColumn; 9] = [
    TableColumn::text("  cell", 14, 0).growing(12),
    TableColumn::number("round", 5, 6),
    TableColumn::text("samples", 10, 3),
    TableColumn::number("tok/s", RATE, 1),
    TableColumn::number("TPOT ms", 7, 1),
    TableColumn::number("TPOT 95 % CI", 14, 3),
    TableColumn::number("last run", 8, 4),
    TableColumn::text("provenance", 13, 2),
    TableColumn::text("note", 12, 7),
];

const ROUND: usize = 1;
const SAMPLES: usize = 2;
const LATENCY: usize = 4;
const INTERVAL: usize = 5;
const LAST_RUN: usize = 6;

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
    let rows = TableRows::new(&live.list, live.cells.len());
    let common = common_provenance(live);
    let is_single = live.rounds == 1 && live.cells.iter().all(|cell| cell.spec.samples == 1);
    let empty = |at: usize| match (at, common) {
        (PROVENANCE, common) => common.is_some(),
        // predictions have no interval and take no time
        (INTERVAL | LAST_RUN, Some(Provenance::Simulated)) => true,
        // the mark of a cell says as much
        (ROUND | SAMPLES, _) => is_single,
        _ => false,
    };
    let kept: Vec<usize> = (0..COLUMNS.len()).filter(|at| !empty(*at)).collect();
    let mut columns: Vec<TableColumn> = kept.iter().map(|at| COLUMNS[*at].clone()).collect();
    // titles are shown in full if the rate fits too, because cells differ in any of their words; if the latency does not
    // fit, only the titles in view decide the width
    let room = areas.table.width.saturating_sub(RATE + 1);
    let mut widest = live.widest as u16 + 2;
    if widest + COLUMNS[LATENCY].width + 1 > room {
        let in_view = live.list.rows(live.cells.len(), cut_top(areas.table, 1).1);
        let in_view = in_view.map(|(row, _)| live.title(&live.cells[row].spec).width() as u16 + 2);
        widest = in_view.max().unwrap_or(widest);
    }
    columns[0].width = columns[0].width.max(widest).min(room);
    if let Some(at) = kept.iter().position(|at| *at == LATENCY) {
        columns[at].title = format!("{} ms", live.latency()).into();
    }
    queue(buf, areas.queue, live, cx);
    match live.selected() {
        selected if live.shows_answer() => {
            result::draw(buf, areas.detail, live, cx);
            draw_below_result(buf, areas.below, live, cx, selected);
        }
        Some(cell) => draw_cell(buf, areas.detail, live, cx, cell),
        None => {}
    }
    // after the frame above it: the number of hidden rows takes a free place around the header
    table::draw(buf, areas.table, theme, &columns, rows, |row, column, _| {
        table::cell(content(live, &live.cells[row], kept[column], cx.now_ms, theme))
    });
}

/// Draws the selected cell with the chart below the cells of a result, or the chart alone in fewer rows.
fn draw_below_result(
    buf: &mut Buffer,
    area: Rect,
    live: &Live,
    cx: &Context,
    selected: Option<&LiveCell>,
) {
    const FRAME: u16 = 2;
    let bars = chart::bars(live, area.height);
    let whole = |cell: &&LiveCell| {
        let needed = FRAME + details_rows(cell) + reason_rows(cell, area.width.saturating_sub(FRAME));
        area.height >= needed + chart::rows(&bars)
    };
    match selected.filter(whole) {
        Some(cell) => draw_cell(buf, area, live, cx, cell),
        None => chart::draw(buf, area, live, &bars, cx.theme),
    }
}

fn header(buf: &mut Buffer, area: Rect, live: &Live, cx: &Context, name: &str) {
    let theme = cx.theme;
    let notes = notes(live, cx, area.width);
    let state = state(live, cx, name);
    let (mut first, _) = cut_top(area, 1);
    let warning = live.warning();
    // the state of the sweep comes before the hint
    if warning.is_none() && width_of(&state) + notes_hint(&notes, cx).width() <= area.width.into() {
        first = folded_notes(buf, first, &notes, cx);
    }
    let room = usize::from(first.width).saturating_sub(width_of(&state));
    let common = (whole_words(&common(live), room), theme.style(Role::Dim));
    pieces(buf, first, 0, &[&state[..], &[common]].concat());
    draw_progress(buf, area, live, cx);
    if let Some(warning) = warning {
        let row = folded_notes(buf, cut_top(cut_top(area, 2).1, 1).0, &notes, cx);
        let shown = whole_words(&warning, usize::from(row.width.saturating_sub(1)));
        line(buf, row, 0, &[(" ", theme.style(Role::Text)), (&shown, theme.style(Role::Warn))]);
    }
}

fn width_of(pieces: &[(String, Style)]) -> usize {
    pieces.iter().map(|(text, _)| text.width()).sum()
}

/// Name, provenance and state of the sweep.
fn state(live: &Live, cx: &Context, name: &str) -> Vec<(String, Style)> {
    let theme = cx.theme;
    let (word, role) = match (live.ended, live.pause) {
        (None, _) if live.cancelling => ("■ being cancelled".to_owned(), Role::Warn),
        (None, Pause::Asked) => ("‖ pauses after the current run".into(), Role::Warn),
        (None, Pause::Yes) => (format!("‖ paused: {} resumes", cx.key::<Live>(Act::Pause)), Role::Warn),
        (None, Pause::No) => {
            let word = match live.evaluation.as_ref().map(|evaluation| evaluation.unit) {
                None => "▶ running",
                Some("step") => "▶ training",
                Some(_) => "▶ evaluating quality",
            };
            (word.into(), Role::Active)
        }
        (Some((_, ended)), _) if live.was_interrupted() => {
            let progress = live.progress(cx.now_ms);
            let (done, of, cancelled) = (progress.done, progress.total, progress.cancelled);
            let resume = cx.key::<Live>(Act::RetryFailed);
            let word = match cancelled > 0 && (live.cancelling || !ended.interrupted) {
                true => {
                    let them = if cancelled == 1 { "it" } else { "them" };
                    format!("◼ cancelled: {}; {resume} runs {them}", counted(cancelled, "run"))
                }
                false => format!("◼ interrupted at {done} of {of}: {resume} resumes"),
            };
            (word, Role::Warn)
        }
        (Some((_, ended)), _) if ended.failed > 0 => ("✘ ended, with failures".into(), Role::Bad),
        (Some(_), _) => ("✔ done".into(), Role::Good),
    };
    let failed = match live.failures() {
        0 => String::new(),
        n => format!("  ✘ {n} failed"),
    };
    let provenance = common_provenance(live);
    let label = provenance.map(|provenance| format!(" [{provenance}]")).unwrap_or_default();
    let text = theme.style(Role::Text);
    let follow = if live.follow && live.is_running() { "  following" } else { "" };
    vec![
        (" ".to_owned(), text),
        (name.to_owned(), theme.style(Role::Title)),
        (label, provenance.map_or(text, |provenance| theme.provenance(provenance))),
        ("  ".to_owned(), text),
        (word, theme.style(role)),
        (failed, theme.style(Role::Bad)),
        (follow.to_owned(), theme.style(Role::Dim)),
    ]
}

/// Settings that all cells share: `  cells: tiny f32 b4`; empty next to a result, which names them.
fn common(live: &Live) -> String {
    match live.cells.first().filter(|_| !live.shows_answer()) {
        Some(cell) if !live.varied.is_empty() => {
            format!("  cells: {}", live.varied.common(&cell.spec))
        }
        _ => String::new(),
    }
}

/// Draws the bar of the sweep, the numbers of runs, and the times.
fn draw_progress(buf: &mut Buffer, area: Rect, live: &Live, cx: &Context) {
    let theme = cx.theme;
    let (progress, width) = (live.progress(cx.now_ms), usize::from(area.width));
    let elapsed = clock(live.worked_ms(cx.now_ms));
    let unable = unable(live, progress.unable, area.width);
    let runs = if progress.total == 1 { "run" } else { "runs" };
    let cancelled = match progress.cancelled {
        0 => String::new(),
        runs => format!(", {runs} cancelled"),
    };
    let count = format!("  {} {runs}{cancelled}", live.count_words(&progress));
    let stored = format!(", {} already stored", progress.stored);
    let left = progress.left_ms.map(|left| format!("  left about {}", clock(left))).unwrap_or_default();
    let mut numbers = format!("{count}{stored}{unable}{left}");
    if progress.stored == 0 || numbers.width() + LEAST_BAR >= width {
        numbers = format!("{count}{unable}{left}");
    }
    // whole or not at all, the note before less important numbers
    let note = live.note.as_ref().map(|note| format!("  {note}"));
    let running = live.cells.iter().find(|cell| cell.state == CellState::Running);
    let round = running.map(|cell| format!("  round {}/{}", cell.round + 1, live.rounds));
    for text in [note, Some(format!("  elapsed {elapsed}")), round].into_iter().flatten() {
        if numbers.width() + text.width() + LEAST_BAR < width {
            numbers.push_str(&text);
        }
    }
    if let Some(evaluation) = live.evaluation.as_ref().filter(|_| live.ended.is_none()) {
        let left = evaluation.left_ms(cx.now_ms);
        let left = left.map(|left| format!(", left about {}", clock(left))).unwrap_or_default();
        let (done, of) = (evaluation.done, counted(evaluation.of, evaluation.unit));
        numbers = format!("  {done}/{of}{left}  elapsed {elapsed}  {}", evaluation.what);
    }
    // gives way to the numbers in narrow windows
    let room = width.saturating_sub(numbers.width() + 2);
    let columns = room.clamp(LEAST_BAR, (width / 4).max(LEAST_BAR));
    // failed runs end the bar, so that only good ones fill it
    let crosses = ((progress.failed * columns as f64).round() as usize).min(columns);
    let full: String = bar(progress.fraction, columns).chars().take(columns - crosses).collect();
    let text = theme.style(Role::Text);
    let row = [
        (" ".to_owned(), text),
        (full, theme.style(Role::Active)),
        ("×".repeat(crosses), theme.style(Role::Bad)),
        (numbers, text),
    ];
    pieces(buf, area, 1, &row);
}

/// Cells that cannot run, `all` of them: `  ⊘ 1 cell skipped  ▣ 1 cell out of memory`.
fn unable(live: &Live, all: usize, width: u16) -> String {
    let wide = width >= 110;
    let by_status: Vec<(Status, usize)> = live.unable().collect();
    match by_status[..] {
        // leaves room for the rest of the line
        [_, _] if !wide => format!("  ⊘ {all} cannot run"),
        _ => {
            let word = |cells| if wide { counted(cells, "cell") } else { cells.to_string() };
            let text = |(status, cells): (Status, usize)| {
                format!("  {} {} {}", status.glyph(), word(cells), unable_word(status))
            };
            by_status.into_iter().map(text).collect()
        }
    }
}

/// Warning of a running sweep, and the settings that all cells share, in full.
pub fn notes(live: &Live, cx: &Context, width: u16) -> Vec<ScreenNote> {
    let mut notes = Vec::new();
    if let Some(warning) = live.warning() {
        let is_cut = warning.width() + 1 > width.into();
        notes.push(ScreenNote::beside_hint(warning, is_cut));
    }
    let (common, name) = (common(live), live.experiment.as_deref().unwrap_or_default());
    if !common.is_empty() {
        let is_cut = width_of(&state(live, cx, name)) + common.width() > width.into();
        let is_beside_hint = live.warning().is_none();
        notes.push(ScreenNote { is_beside_hint, ..ScreenNote::new(common.trim(), is_cut) });
    }
    notes
}

fn queue(buf: &mut Buffer, area: Rect, live: &Live, cx: &Context) {
    let theme = cx.theme;
    let label = |act| cx.key::<Live>(act);
    if !live.in_queue {
        let waiting = live.queue.split_first().map(|(first, others)| {
            let more =
                if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
            format!("{} queue: {}{more}", label(Act::Queue), first.title())
        });
        let parts: Vec<String> = live.previous.iter().cloned().chain(waiting).collect();
        let text = format!(" {}", parts.join(" · "));
        return line(buf, area, 0, &[(&text, theme.style(Role::Dim))]);
    }
    let title = format!(
        "queue: {} earlier, {} later, {} remove",
        label(Act::Earlier),
        label(Act::Later),
        label(Act::Remove)
    );
    let inner = frame(buf, area, &title, theme);
    for (row, y) in live.queue_list.rows(live.queue.len(), inner) {
        let queued = &live.queue[row];
        let cells = queued.experiment.cells.iter();
        let cells = cells.filter(|cell| cell.feasibility == Feasibility::Runs).count();
        let runs = cells * queued.experiment.rounds as usize;
        let text = format!(" {} {}, up to {}", row + 1, queued.title(), counted(runs, "run"));
        put(buf, inner, inner.x, y, &text, theme.style(Role::Text));
        if row == live.queue_list.selected {
            put(buf, inner, inner.x, y, "▸", theme.style(Role::Key));
            select(buf, inner, y, theme);
        }
    }
}

/// True if further rounds of a cell follow.
fn awaits_rounds(live: &Live, cell: &LiveCell) -> bool {
    live.is_running() && cell.awaits_rounds(live.rounds)
}

/// Title of a cell after the glyph of its state.
pub fn marked_title(live: &Live, cell: &LiveCell, theme: Theme) -> (String, Style) {
    let (glyph, style) = match cell.state {
        CellState::Queued | CellState::Done(Status::Ok) if live.is_cancelled(cell) => {
            (Status::Interrupted.glyph(), theme.style(Role::Warn))
        }
        CellState::Queued => (cell.state.glyph(), theme.style(Role::Dim)),
        CellState::Running => (cell.state.glyph(), theme.style(Role::Active)),
        CellState::Done(Status::Ok) if awaits_rounds(live, cell) => {
            (CellState::Queued.glyph(), theme.style(Role::Text))
        }
        CellState::Done(status) => (cell.state.glyph(), theme.status(status)),
    };
    (format!("{glyph} {}", live.title(&cell.spec)), style)
}

fn content(live: &Live, cell: &LiveCell, column: usize, now_ms: u64, theme: Theme) -> (String, Style) {
    let text = theme.style(Role::Text);
    let number = |value: Option<f64>| (value.map_or("-".into(), digits), text);
    match column {
        0 => marked_title(live, cell, theme),
        1 if !cell.has_begun() => ("-".to_owned(), text),
        1 => (format!("{}/{}", cell.reached_round(), live.rounds), text),
        2 => {
            let (now, of) = cell.samples;
            let is_running = cell.state == CellState::Running;
            // failed rounds have none
            let is_finished = |round: &&u32| !is_running || **round != cell.round;
            let finished = cell.rounds.keys().filter(is_finished).count() as u32;
            let done = finished * of + if is_running { now } else { 0 };
            let of = live.rounds.max(1) * of;
            let share = if of == 0 { 0.0 } else { f64::from(done) / f64::from(of) };
            (format!("{} {done}/{of}", bar(share, 4)), text)
        }
        3 => number(cell.tokens_per_s),
        LATENCY => number(match live.latency() {
            "TTFT" => cell.ttft_ms,
            _ => cell.tpot_ms,
        }),
        5 => {
            let ends =
                cell.tpot_ms_ci95.map(|[low, high]| format!("[{}, {}]", digits(low), digits(high)));
            (ends.unwrap_or_else(|| "-".into()), text)
        }
        6 => {
            let since = cell.since_ms.map(|since| now_ms.saturating_sub(since));
            // the sweep found all results of the cell in the store
            let is_stored = cell.executed == 0 && !cell.rounds.is_empty();
            let none = if is_stored { "stored" } else { "-" };
            (since.or(cell.took_ms).map_or(none.into(), clock), text)
        }
        PROVENANCE => {
            let provenance = cell.spec.provenance();
            (provenance.to_string(), theme.provenance(provenance))
        }
        _ => (cell.note.clone(), theme.style(Role::Dim)),
    }
}

/// Maximum rows kept for the log below the lanes.
const LOG_ROWS: usize = 2;

/// Rows of the lanes of one rank with their heading.
const LEAST_LANES: u16 = 3;

/// Maximum rows of the facts about a cell.
const FACTS: u16 = 4;

/// Words in place of the lanes of a cancelled cell.
const NO_LANES: &str = " no lanes: this sweep has no decode step of the cell";

/// Maximum number of next cells named in the details of a cell.
const MOST_NEXT: usize = 3;

/// Words of the screen in the frame of a cell, most important first.
const LEGEND: &str =
    "tok/s: with prefill · TPOT: median decode step · round: all cells once · exposed: not hidden";

fn draw_cell(buf: &mut Buffer, area: Rect, live: &Live, cx: &Context, cell: &LiveCell) {
    let theme = cx.theme;
    let label = cell.spec.label();
    let varied = live.title(&cell.spec);
    let more = varied.split(' ').filter(|word| !label.split(' ').any(|own| own == *word));
    let state = match cell.state {
        CellState::Queued | CellState::Done(Status::Ok | Status::Interrupted)
            if live.is_cancelled(cell) =>
        {
            "cancelled:".to_owned()
        }
        CellState::Done(Status::Ok) if awaits_rounds(live, cell) => {
            format!("round {} of {} done:", cell.reached_round(), live.rounds)
        }
        CellState::Done(Status::Ok) => "done:".to_owned(),
        CellState::Done(Status::Oom) => "out of memory:".to_owned(),
        other => other.word().to_owned(),
    };
    let title: Vec<&str> = [state.as_str(), &label].into_iter().chain(more).collect();
    let title = title.join(" ");
    let inner = frame(buf, area, &title, theme);
    let needed = details_rows(cell) + reason_rows(cell, inner.width);
    let spare = inner.height.saturating_sub(needed);
    let bars = chart::bars(live, spare);
    let (inner, place) = cut_bottom(inner, chart::rows(&bars));
    chart::draw(buf, place, live, &bars, theme);
    let latest = live.latest_run();
    let is_paused = live.pause == Pause::Yes;
    // those of the latest run, if the selected cell waits for its turn
    let of_latest = || {
        let latest = latest.filter(|_| !has_reason(cell) && !live.is_cancelled(cell))?;
        let (lanes, what) = shown_lanes(latest, is_paused)?;
        let word = if is_paused { "" } else { " running" };
        Some((latest, lanes, format!("{}{word}: {what}", live.title(&latest.spec))))
    };
    let is_latest = latest.is_some_and(|latest| std::ptr::eq(latest, cell));
    let own = shown_lanes(cell, is_paused && is_latest).map(|(lanes, what)| (cell, lanes, what));
    let (of, lanes) = match own.or_else(of_latest) {
        Some((of, lanes, what)) => (of, Some((lanes, alike(lanes), what))),
        None => (cell, None),
    };
    let has_none = lanes.is_none() && live.is_cancelled(cell);
    // in a low window the lanes take the rows of the log and of the throughput, but not of the reason of a failure
    let least = match lanes.is_some() && !has_reason(cell) && inner.height > LEAST_LANES {
        true => LEAST_LANES,
        false => 0,
    };
    let (top, rest) = cut_top(inner, (inner.height - least).min(2));
    numbers(buf, top, cell, theme);
    let logged = (cell.log.len() + usize::from(has_reason(cell))).min(LOG_ROWS) as u16;
    let logged = logged.min(rest.height - least);
    let room = rest.height - logged;
    // a heading, and two lanes for ranks that are alike
    let room = room.saturating_sub(u16::from(room % 2 == 0));
    let lanes = lanes.filter(|_| room >= LEAST_LANES);
    let lane = lane_rows(of, room);
    let rows = lanes.as_ref().map_or(u16::from(has_none).min(room), |(lanes, groups, _)| {
        let pair: u16 = if has_comm(lanes) { 2 } else { 1 };
        (groups.len() as u16 * pair * lane + 1).min(room)
    });
    let (strip, rest) = cut_top(rest, rows);
    let explains = match lanes {
        Some((lanes, groups, what)) => draw_lanes(buf, strip, lane, lanes, groups, &what, theme),
        None => {
            if has_none && rows > 0 {
                line(buf, strip, 0, &[(NO_LANES, theme.style(Role::Dim))]);
            }
            true
        }
    };
    draw_border(buf, area, live, theme, explains);
    let facts = facts(live, cell);
    let free = rest.height.saturating_sub(logged);
    let (place, log) = cut_top(rest, free.min(facts.len() as u16));
    for (row, fact) in (0..place.height).zip(&facts) {
        line(buf, place, row, &[(" ", theme.style(Role::Text)), (fact, theme.style(Role::Text))]);
    }
    draw_log(buf, log, live, cx, cell);
}

/// Rows of the numbers, lanes, facts and log of a cell. Includes lanes that the next step may report, so that the chart
/// below does not move, but of few ranks.
fn details_rows(cell: &LiveCell) -> u16 {
    const NUMBERS: u16 = 2;
    const MOST_RANKS: usize = 4;
    NUMBERS + 1 + 2 * drawn_ranks(cell).min(MOST_RANKS) as u16 + FACTS + LOG_ROWS as u16
}

/// Rows of a lane in a panel with this many rows for lanes and facts. Counts ranks that may differ in the next step, so
/// that the height stays.
fn lane_rows(cell: &LiveCell, room: u16) -> u16 {
    const MOST_ROWS: u16 = 3;
    let lanes = 2 * drawn_ranks(cell).max(1) as u16;
    (room.saturating_sub(1 + FACTS) / lanes).clamp(1, MOST_ROWS)
}

/// Rows of the log and of the reason of a failed or skipped cell beyond those in [`details_rows`].
fn reason_rows(cell: &LiveCell, width: u16) -> u16 {
    /// Maximum rows that the chart below leaves to them.
    const MOST_ROWS: usize = 8;
    if !has_reason(cell) {
        return 0;
    }
    let reason = wrap(&cell.note, width.saturating_sub(1).into()).len();
    (cell.log.len() + reason).min(MOST_ROWS).saturating_sub(LOG_ROWS) as u16
}

/// Writes the best cell and the legend into the bottom border of a cell. The legend starts with the marks of the lanes,
/// unless the lanes explain them.
fn draw_border(buf: &mut Buffer, area: Rect, live: &Live, theme: Theme, explains_lanes: bool) {
    let border = Rect { width: area.width.saturating_sub(2), ..area };
    let (mut x, y) = (area.x + 2, area.bottom().saturating_sub(1));
    let best = live.best();
    if live.is_running() && !best.is_empty() {
        let best = first_fitting(&best, border.width.saturating_sub(4));
        x = put(buf, border, x, y, &format!(" {best} "), theme.style(Role::Title)) + 1;
    }
    let room = usize::from(border.right().saturating_sub(x + 2));
    let legend = if explains_lanes { LEGEND.to_owned() } else { format!("{LANES_KEY} · {LEGEND}") };
    if let Some(legend) = leading_clauses(&legend, room, &[" · "]) {
        put(buf, border, x, y, &format!(" {legend} "), theme.style(Role::Dim));
    }
}

/// Facts about a cell, most important first: its ratio to `standard` in the same setting, its numbers so far, its
/// architecture in words, and the next cells.
fn facts(live: &Live, cell: &LiveCell) -> Vec<String> {
    let medians = |cell: &LiveCell| {
        let tpot = cell.tpot_ms.map(|ms| format!("TPOT {} ms", digits(ms)));
        let rate = cell.tokens_per_s.map(|rate| format!("{} tok/s", digits(rate)));
        [tpot, rate].into_iter().flatten().collect::<Vec<_>>().join(", ")
    };
    let numbers = |cell: &LiveCell, before: &str| {
        let exposed = cell.exposed_pct().map(|pct| format!("{before}{} exposed", percent(Some(pct))));
        medians(cell) + &exposed.unwrap_or_default()
    };
    // the exposed share is that of the result, which pools the decode time of all rounds
    let (word, before) = match (live.is_running(), cell.rounds.len()) {
        (true, _) => ("so far", ", "),
        (false, ..=1) => ("1 round", ", "),
        (false, _) => ("medians", "; all rounds: "),
    };
    let own = Some(numbers(cell, before)).filter(|own| !own.is_empty());
    let own = own.map(|own| format!("{word}: {own}"));
    let beside = live.beside_standard(cell).and_then(|(standard, ratio)| {
        let words = match live.ratio_words(cell)?.split_once('x') {
            Some((times, of_rounds)) => format!("{times}x standard{of_rounds}"),
            None => return None,
        };
        // numbers of other rounds would contradict the ratio
        let is_whole = [standard, cell].iter().all(|cell| cell.rounds.len() == ratio.rounds);
        Some(if is_whole { format!("{words} ({})", numbers(standard, ", ")) } else { words })
    });
    let spec = &cell.spec;
    let setting = [Axis::TP, Axis::Option("batch"), Axis::P2P].map(|axis| axis.phrase(spec)).join(", ");
    let meaning = own_meaning(&spec.architecture);
    let what = format!("{} at {setting}: {meaning}", spec.architecture_label());
    let next = live.next_cells(MOST_NEXT).into_iter().map(|(next, ms)| {
        let time = ms.map_or_else(String::new, |ms| format!(" (about {})", clock(ms)));
        live.title(&next.spec) + &time
    });
    let next = Some(next.collect::<Vec<_>>().join(", ")).filter(|next| !next.is_empty());
    let next = next.map(|next| format!("next: {next}"));
    [beside, own, Some(what), next].into_iter().flatten().collect()
}

fn numbers(buf: &mut Buffer, area: Rect, cell: &LiveCell, theme: Theme) {
    let (text, dim) = (theme.style(Role::Text), theme.style(Role::Dim));
    let running = cell.state == CellState::Running;
    let mut first = vec![(" ".to_owned(), text)];
    if running {
        let doing = cell.doing.text();
        let doing = if doing.is_empty() { "starting".to_owned() } else { doing };
        first.push((doing, theme.style(Role::Active)));
        if cell.doing.step.is_some() {
            first.push((format!(" {}", bar(cell.doing.fraction(), 10)), theme.style(Role::Active)));
        }
        if let Some(ms) = cell.doing.step_ms {
            let step = format!("  {} ms per step", digits(ms));
            // the bar gives way to the numbers
            if first.len() > 2 && width_of(&first) + step.width() > area.width.into() {
                first.pop();
            }
            first.push((step, text));
        }
    } else if let Some(tpot) = cell.tpot_ms {
        first.push((format!("TPOT {} ms", digits(tpot)), text));
    } else if let Some(ttft) = cell.ttft_ms {
        first.push((format!("TTFT {} ms", digits(ttft)), text));
    }
    // a blank before the numbers, and one behind them
    let room = usize::from(area.width).saturating_sub(width_of(&first) + 2);
    let memories = memory(cell);
    let memory = first_fitting(&memories, room as u16);
    pieces(buf, area, 0, &first);
    // on the same row as the activity, or on the next one if there is no room
    let x = area.right().saturating_sub(memory.width() as u16 + 1);
    let beside = area.x + (width_of(&first) as u16) < x;
    if beside || area.width >= 90 {
        put(buf, area, x, area.y + u16::from(!beside), memory, dim);
    }
    let taken = if beside { 0 } else { memory.width() + 2 };
    let speed = &cell.doing.speed;
    // that of steps leaves out the prefill
    let of_steps = speed.back().copied().filter(|_| running || cell.tokens_per_s.is_none());
    let title = if of_steps.is_some() { " decode tok/s " } else { " tok/s " };
    let rate = of_steps.or(cell.tokens_per_s).map_or_else(|| "-".to_owned(), digits);
    let mut second = vec![(title.to_owned(), dim), (rate, text)];
    let least = digits(speed.iter().copied().fold(f64::INFINITY, f64::min));
    let most = digits(speed.iter().copied().fold(0.0, f64::max));
    if !speed.is_empty() && least != most {
        let which = match (running, of_steps) {
            (true, _) => "this",
            (false, Some(_)) => "last",
            (false, None) => "decode, last",
        };
        let range = format!("  {which} run {least} to {most} ");
        let columns =
            usize::from(area.width).saturating_sub(title.width() + 13 + range.width() + taken).min(120);
        second.push((format!("  {}", sparkline(speed, columns)), theme.style(Role::Series(0))));
        second.push((range, dim));
    }
    pieces(buf, area, 1, &second);
}

pub fn pieces(buf: &mut Buffer, area: Rect, row: u16, all: &[(String, Style)]) {
    let all: Vec<(&str, Style)> = all.iter().map(|(text, style)| (text.as_str(), *style)).collect();
    line(buf, area, row, &all);
}

/// Resident memory of the run's process, which has all ranks, and planned memory of a rank, which are different measures;
/// in full and in short: `memory: peak 1.21 GB (all ranks), planned 550 MB/rank`.
fn memory(cell: &LiveCell) -> [String; 2] {
    let amount = |bytes: u64| si(bytes as f64, "B");
    let plan = cell.looked.as_ref().and_then(|looked| looked.rank_bytes).map(amount);
    let resident = cell.doing.resident_bytes.map(amount);
    [" per rank (weights, cache, activations)", "/rank"].map(|of_rank| {
        let resident = resident.as_ref().map(|amount| format!("peak {amount} (all ranks)"));
        let plan = plan.as_ref().map(|amount| format!("planned {amount}{of_rank}"));
        match [resident, plan].into_iter().flatten().collect::<Vec<_>>() {
            parts if parts.is_empty() => String::new(),
            parts => format!("memory: {}", parts.join(", ")),
        }
    })
}

/// Ranks whose lanes the details of a cell have room for. Those of a measured run change with each step.
pub fn drawn_ranks(cell: &LiveCell) -> usize {
    match shown_lanes(cell, false).filter(|_| cell.spec.backend.is_simulated()) {
        Some((lanes, _)) => alike(lanes).len(),
        None => cell.spec.ranks() as usize,
    }
}

/// Lanes to draw and their description: the run's latest step, or a simulated one. `is_paused` if the sweep paused after
/// this run.
fn shown_lanes(cell: &LiveCell, is_paused: bool) -> Option<(&[StepLanes], String)> {
    let provenance = cell.spec.provenance();
    if !cell.doing.lanes.is_empty() {
        let step = cell.doing.lanes_of;
        let of = match cell.state {
            CellState::Running => "decode step",
            _ if is_paused => "paused after decode step",
            _ => "last reported decode step",
        };
        return Some((&cell.doing.lanes, format!("{of} {step}, {provenance}")));
    }
    let looked = cell.looked.as_ref().filter(|_| cell.spec.backend.is_simulated())?;
    let first = (!looked.simulated.is_empty()).then_some(&looked.simulated[..])?;
    Some((first, format!("first decode step, {provenance}")))
}

/// False if the lanes of communication are empty, so that only those of computation are drawn.
fn has_comm(lanes: &[StepLanes]) -> bool {
    lanes.iter().any(|lanes| !lanes.comm.is_empty())
}

/// Marks of the lanes.
const LANES_KEY: &str = "▓▒ hidden ▖▚▜╱ exposed";

/// Draws the lanes of a step, each `height` rows high, one pair for each of `groups`, whose ranks are [`alike`]; without
/// communication, only the lane of computation. Returns false if the heading has no room for the marks of the lanes.
fn draw_lanes(
    buf: &mut Buffer,
    area: Rect,
    height: u16,
    lanes: &[StepLanes],
    mut groups: Vec<(&StepLanes, Vec<u32>)>,
    what: &str,
    theme: Theme,
) -> bool {
    let (text, dim) = (theme.style(Role::Text), theme.style(Role::Dim));
    let end = lanes.iter().map(StepLanes::end).max().unwrap_or(0);
    let (comm, exposed_ns) = lanes.iter().map(communication).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    let hidden = (comm > 0).then(|| 100.0 * (1.0 - exposed_ns as f64 / comm as f64));
    let ranks = lanes.len().max(1) as u64;
    let is_apart = comm == 0 && groups.len() > 1;
    let pair: u16 = if has_comm(lanes) { 2 } else { 1 };
    groups.truncate(usize::from((area.height - 1) / (pair * height)));
    let shown: usize = groups.iter().map(|(_, others)| 1 + others.len()).sum();
    let more =
        if shown < lanes.len() { format!("; {shown} of {} ranks", lanes.len()) } else { String::new() };
    let exposed_text = ns(i64::try_from(exposed_ns / ranks).unwrap_or(i64::MAX));
    let hidden = percent(hidden);
    let heads = match is_apart {
        // each rank is at another step by the clock
        true => {
            let longest = lanes.iter().map(duration).max().unwrap_or(0);
            vec![
                format!(
                    " {what}: {}, no communication, ranks not synchronized{more}",
                    ns(i64::from(longest))
                ),
                " no communication".to_owned(),
            ]
        }
        false if pair == 1 => {
            let end = ns(i64::from(end));
            vec![format!(" {what}: {end}, no communication{more}"), " no communication".to_owned()]
        }
        false => {
            let step = what.split(',').next().unwrap_or_default();
            vec![
                format!(
                    " {what}: {}, hidden {hidden}, exposed {exposed_text}/rank{more}",
                    ns(i64::from(end))
                ),
                // explains the marks in a narrow window
                format!(" {step}: ▓▒ hidden {hidden}, ▖▚▜╱ exposed {exposed_text}"),
            ]
        }
    };
    let head = first_fitting(&heads, area.width);
    line(buf, area, 0, &[(head, text)]);
    let x = area.right().saturating_sub(LANES_KEY.width() as u16 + 1);
    let is_beside = pair == 2 && area.x + (head.width() as u16) < x;
    if is_beside {
        put(buf, area, x, area.y, LANES_KEY, dim);
    }
    let name = |(first, others): &(&StepLanes, Vec<u32>)| match others.is_empty() {
        true => format!(" rank {}", first.rank),
        false => format!(" r{} = {}", first.rank, rank_label(others)),
    };
    let widest = groups.iter().map(|group| name(group).width()).max().unwrap_or(0);
    let width = (widest + " compute ".len()) as u16;
    let columns = usize::from(area.width.saturating_sub(width + 1));
    for (i, group) in groups.iter().enumerate() {
        let row = 1 + pair * height * i as u16;
        // in the middle of the lane
        let label = row + height / 2;
        let (name, lanes) = (name(group), group.0);
        let pad = usize::from(width);
        let lane = |name: &str, lane: &str| {
            format!("{name}{lane:>rest$} ", rest = pad.saturating_sub(name.width() + 1))
        };
        line(buf, area, label, &[(&lane(&name, "compute"), dim)]);
        if pair == 2 {
            line(buf, area, label + height, &[(&lane("", "comm"), dim)]);
        }
        let compute = coverage(&lanes.compute, end, columns);
        let comm = coverage(&lanes.comm, end, columns);
        let bare = coverage(&exposed(lanes), end, columns);
        let shares = (0..columns).map(|column| Shares {
            compute: compute[column],
            comm: comm[column],
            exposed: bare[column],
            ..Shares::default()
        });
        let drawn = Rect { height: (row + pair * height).min(area.height), ..area };
        shade::draw_step(buf, drawn, (area.x + width, area.y + row), height, shares, "·", theme);
    }
    is_beside || pair == 1 || head.contains('╱')
}

/// True if the log ends with the reason of a failed or skipped run.
fn has_reason(cell: &LiveCell) -> bool {
    cell.state != CellState::Running && !cell.note.is_empty()
}

fn draw_log(buf: &mut Buffer, area: Rect, live: &Live, cx: &Context, cell: &LiveCell) {
    let theme = cx.theme;
    let rows = usize::from(area.height);
    let below = live.log_scroll.min(cell.log.len());
    let width = usize::from(area.width.saturating_sub(1));
    let mut lines: Vec<String> = Vec::new();
    let last = cell.log.len() - below;
    for text in cell.log.iter().take(last).skip(last.saturating_sub(rows)) {
        lines.extend(wrap(text, width));
    }
    // reason for a failed or skipped run
    if below == 0 && has_reason(cell) {
        lines.extend(wrap(&cell.note, width));
    }
    let (area, end) = if below > 0 { cut_bottom(area, 1) } else { (area, Rect::ZERO) };
    let rows = usize::from(area.height);
    for (row, text) in lines.iter().skip(lines.len().saturating_sub(rows)).enumerate() {
        line(buf, area, row as u16, &[(" ", theme.style(Role::Text)), (text, theme.style(Role::Text))]);
    }
    if below > 0 {
        line(buf, end, 0, &[(&format!(" ↓ {} more", counted(below, "line")), theme.style(Role::Dim))]);
    }
}
