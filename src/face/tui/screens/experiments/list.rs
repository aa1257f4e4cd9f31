//! Left side of screen 1: the introduction, and the list of experiments.

use super::draft::name_before_edits;
use super::state::{ExperimentEntry, StoredCounts};
use super::{Act, ExperimentAreas, Experiments, PAPER};
use crate::face::tui::keymap::Action;
use crate::face::tui::prelude::*;
use crate::face::tui::widgets::wrap::clauses_in_rows;

const TITLE: &str =
    "Measures how much of LLM decoding waits for communication, and which architecture hides it best";

const LADDER: &str = "Standard blocks wait for each all-reduce. Ladder's next block starts without it, so communication runs beside compute.";

const LADDER_IN_SHORT: &str =
    "Ladder's next block does not wait for the all-reduce, and computes beside it";

/// Least width for [`LADDER_IN_SHORT`].
pub(super) const LADDER_COLUMNS: u16 = 79;

/// Introduction and first keys to press; once runs are stored, the keys below its first sentence if there is a row for it.
pub fn welcome(buf: &mut Buffer, area: Rect, experiments: &Experiments, cx: &Context) {
    let (theme, is_first_use) = (cx.theme, experiments.is_first_use);
    if area.height == 0 {
        return;
    }
    let (key, text) = (theme.style(Role::Key), theme.style(Role::Text));
    let mut top = area.y;
    if is_first_use || area.height > 1 {
        let title = leading_clauses(TITLE, area.width.saturating_sub(1).into(), &[","]).unwrap_or(TITLE);
        line(buf, area, 0, &[(" ", text), (title, theme.style(Role::Title))]);
        top += 1;
    }
    let ladder = match area.width {
        _ if !is_first_use => None,
        120.. if area.height > 2 => Some(LADDER),
        LADDER_COLUMNS..120 if area.height > 3 => Some(LADDER_IN_SHORT),
        _ => None,
    };
    if let Some(ladder) = ladder {
        line(buf, area, 1, &[(" ", text), (ladder, theme.style(Role::Dim))]);
        top += 1;
    }
    let act = |act| cx.key::<Experiments>(act);
    let open = cx.keys.label(Action::TypeOpen);
    let paper = match experiments.is_stored(PAPER) {
        true => "show the paper's 70B sweep (simulated, stored)",
        false => "run the paper's 70B sweep (simulated, 1 s)",
    };
    let is_narrow = area.width < 71;
    let words = |narrow: &str, wide: &str| (if is_narrow { narrow } else { wide }).to_owned();
    // the forecast in the right pane states the time
    let run = words(&act(Act::Choose), &format!("{} or {}", act(Act::Choose), act(Act::Run)));
    let selected = experiments.selected().map_or("quickstart", |entry| entry.name.as_str());
    let keys = [
        (run, if is_narrow { selected.to_owned() } else { format!("run {selected}") }),
        (act(Act::Paper), words("paper's 70B", paper)),
        (open, words("open trace", "open a profile of your engine")),
        (cx.keys.label(Action::Help), "help".to_owned()),
    ];
    let (mut x, mut y) = (area.x + 1, top);
    let mut elsewhere = Vec::new();
    let runs = stored_elsewhere(experiments, cx);
    if runs > 0 {
        let count = format!("{} of other experiments: ", counted(runs, "stored run"));
        x = put(buf, area, x, y, &count, theme.style(Role::Dim));
        let screens = [Tab::Runs, Tab::Compare, Tab::Pareto];
        elsewhere.extend(screens.map(|tab| (cx.keys.label(Action::Show(tab)), tab.title().to_owned())));
    }
    // the footer has the first key of them
    let keys = keys.into_iter().skip(usize::from(!is_first_use));
    for (label, what) in elsewhere.into_iter().chain(keys) {
        let width = (label.width() + what.width() + 1) as u16;
        if x + width > area.right() && x > area.x + 1 {
            (x, y) = (area.x + 1, y + 1);
        }
        x = put(buf, area, x, y, &label, key);
        x = put(buf, area, x + 1, y, &what, text) + 3;
    }
}

/// Number of stored runs if none of them is of an experiment of the list.
fn stored_elsewhere(experiments: &Experiments, cx: &Context) -> usize {
    let runs = cx.stored.as_ref().map_or(0, |stored| stored.records.len());
    if experiments.has_none_stored() { runs } else { 0 }
}

/// Mark of experiments that run on this machine, with its meaning.
const RUNS_HERE: &str = "●";
const MARK_LEGENDS: [&str; 2] = [" ● runs on this machine, others are simulated ", " ● runs here "];
/// Columns that the legend leaves to the number of hidden rows.
const HIDDEN_COLUMNS: u16 = 13;

/// Draws the experiments by name, those that are read with their stored runs.
pub(super) fn draw(buf: &mut Buffer, areas: &ExperimentAreas, experiments: &Experiments, cx: &Context) {
    let theme = cx.theme;
    let list = frame(buf, areas.list, "experiments", theme);
    // of the counts below; a blank count would read as none
    let heading = match (experiments.entries.is_none(), areas.list.width < 32) {
        (true, _) => " counting ",
        (false, true) => " stored ",
        (false, false) => " stored runs ",
    };
    let x = areas.list.right().saturating_sub(heading.width() as u16 + 1);
    put(buf, areas.list, x, areas.list.y, heading, theme.style(Role::Dim));
    let (above, rows) = (experiments.list.offset, usize::from(list.height.div_ceil(areas.rows)));
    hidden_rows(buf, areas.list, above, experiments.len().saturating_sub(above + rows), theme);
    let runs = stored_elsewhere(experiments, cx);
    let y = areas.list.bottom().saturating_sub(1);
    if runs > 0 && areas.welcome.height == 0 {
        let count = format!(" {}: ", counted(runs, "stored run"));
        let key = format!("{} ", cx.keys.label(Action::Show(Tab::Runs)));
        let x = put(buf, areas.list, areas.list.x + 2, y, &count, theme.style(Role::Dim));
        put(buf, areas.list, x, y, &key, theme.style(Role::Key));
    } else if experiments.loaded().any(|entry| entry.runs_here) {
        let room = usize::from(areas.list.width.saturating_sub(HIDDEN_COLUMNS));
        let legend = MARK_LEGENDS.into_iter().find(|legend| legend.width() <= room);
        put(buf, areas.list, areas.list.x + 1, y, legend.unwrap_or_default(), theme.style(Role::Dim));
    }
    for row in experiments.list.offset..experiments.len() {
        let item = (row - experiments.list.offset) as u16 * areas.rows;
        let y = list.y.saturating_add(item);
        if y >= list.bottom() {
            break;
        }
        let area = Rect { y, height: areas.rows.min(list.bottom() - y), ..list };
        match (&experiments.entries, experiments.ahead(row)) {
            (Some(entries), _) => draw_entry(buf, area, experiments, cx, row, &entries[row]),
            (None, Some((entry, _))) => draw_entry(buf, area, experiments, cx, row, entry),
            (None, None) => {
                let (name, question) = &experiments.names[row];
                put(buf, list, list.x + 2, y, name, theme.style(Role::Text));
                draw_question(buf, area, question, theme);
            }
        }
        if row == experiments.list.selected {
            select(buf, list, y, theme);
        }
    }
}

/// `▶ quickstart*   3/9`: state, name, edit mark, stored runs; then the question, if there is a second row. Runs of the same
/// cells in other experiments are named: `40/80 shared`.
fn draw_entry(
    buf: &mut Buffer,
    area: Rect,
    experiments: &Experiments,
    cx: &Context,
    row: usize,
    entry: &ExperimentEntry,
) {
    let theme = cx.theme;
    let draft = experiments.drafts.get(&entry.name);
    let is_this = |name: &String| name_before_edits(name) == entry.name;
    let running = cx.sweeps.running.as_ref().is_some_and(is_this);
    let queued = cx.sweeps.queued.iter().any(is_this);
    let broken = match draft.and_then(|draft| draft.checked.as_ref()) {
        Some(checked) => checked.experiment.is_err(),
        None => entry.experiment.is_err(),
    };
    let (glyph, role) = match () {
        () if running => ("▶", Role::Active),
        () if queued => ("…", Role::Active),
        () if broken => ("✘", Role::Bad),
        () if entry.runs_here => (RUNS_HERE, Role::Text),
        () => (" ", Role::Text),
    };
    let star = if draft.is_some_and(|draft| draft.revisions.is_edited()) { "*" } else { "" };
    let stored = match draft.filter(|draft| draft.revisions.is_edited()) {
        // counts for the file's cells do not apply to edited ones
        Some(draft) => draft.stored(),
        None => experiments.stored_of(row),
    };
    let taken = 2 + entry.name.width() + star.width() + 1;
    let counts = count_words(stored, area.width.saturating_sub(taken as u16));
    let right = area.right().saturating_sub(counts.width() as u16);
    let name = Rect { width: area.width.saturating_sub(counts.width() as u16 + 1), ..area };
    let question = entry.experiment.as_ref().ok().and_then(|experiment| experiment.question.as_deref());
    draw_question(buf, area, question.unwrap_or_default(), theme);
    put(buf, name, area.x, area.y, glyph, theme.style(role));
    let x = put(buf, name, area.x + 2, area.y, &entry.name, theme.style(role));
    put(buf, name, x, area.y, star, theme.style(Role::Warn));
    let role = if stored.is_complete() { Role::Good } else { Role::Dim };
    put(buf, area, right, area.y, &counts, theme.style(role));
}

/// Stored runs of all runs, with those that other experiments ran: `40/80 shared`, `50/80, 40 shared`, in fewer columns
/// `40 shared`.
fn count_words(stored: StoredCounts, room: u16) -> String {
    let StoredCounts { runs, done, own, .. } = stored;
    let all = match runs {
        0 => String::new(),
        _ => format!("{done}/{runs}"),
    };
    let texts = match done - own {
        0 => vec![all],
        shared if own == 0 => vec![format!("{all} shared"), format!("{shared} shared"), all],
        shared => vec![format!("{all}, {shared} shared"), all],
    };
    first_fitting(&texts, room).to_owned()
}

/// Draws the question below the name, in the rows that an entry has.
fn draw_question(buf: &mut Buffer, area: Rect, question: &str, theme: Theme) {
    let (_, below) = cut_top(cut_left(area, 2).1, 1);
    let (columns, rows) = (usize::from(below.width), usize::from(below.height));
    let mut lines = wrap(question, columns);
    if lines.len() > rows && rows > 0 {
        // the first clauses are a question, too; a column is left for its mark
        let kept = clauses_in_rows(question, (columns.saturating_sub(1), rows), &[", "]);
        lines = kept.map_or(lines, |kept| wrap(&format!("{kept}?"), columns));
    }
    if lines.len() > rows && rows > 0 {
        // `put` cuts the last line with an ellipsis
        let rest = lines.split_off(rows - 1).join(" ");
        lines.push(rest);
    }
    for (text, row) in lines.iter().zip(below.rows()) {
        put(buf, below, row.x, row.y, text, theme.style(Role::Dim));
    }
}
