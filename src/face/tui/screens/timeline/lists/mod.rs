//! Lists below the lanes: dependencies, differences of two traces, operations, exposed stretches, the
//! verdict, the legend.

mod dependencies;
pub mod differences;
pub mod legend;
mod operations;
mod stretches;
mod verdict;

use super::state::View;
use super::state::panel::Panel;
use crate::face::tui::prelude::*;
use base::text::fitting_name;

pub use verdict::lines as verdict_lines;

/// Rows of the list, without frame, header, and whatever is below a table.
pub fn rows(area: Rect, view: &View) -> Rect {
    let rows = cut_top(inside(area), 1).1;
    match &view.panel {
        Some(Panel::Operations(table)) => cut_bottom(rows, operations::beneath(table, rows)).0,
        Some(Panel::Legend(..) | Panel::Verdict { .. }) => inside(area),
        _ => rows,
    }
}

pub fn draw(buf: &mut Buffer, area: Rect, view: &View, cx: &Context) {
    let (theme, rows) = (cx.theme, rows(area, view));
    match &view.panel {
        Some(Panel::Dependencies { span, dependencies, list }) => {
            dependencies::draw(buf, area, &view.pane().index, *span, dependencies, list, theme);
        }
        Some(Panel::Differences { list, by_exposed, open }) => {
            differences::draw(buf, area, view, (list, *by_exposed, open), theme);
        }
        Some(Panel::Operations(table)) => operations::draw(buf, (area, rows), view, table, cx),
        Some(Panel::Stretches(shown)) => stretches::draw(buf, area, view, shown, cx),
        Some(Panel::Verdict { lines, list }) => {
            verdict::draw(buf, (area, rows), view, (lines, list), theme);
        }
        Some(Panel::Legend(list, _)) => legend::draw(buf, (area, rows), list, theme),
        None => {}
    }
}

/// Shortens a name for a narrow column: drops the phase and abbreviates kernel names.
fn brief(name: &str, room: usize) -> String {
    let name = name.strip_prefix("decode/").or(name.strip_prefix("prefill/")).unwrap_or(name);
    fitting_name(name, room)
}

/// Label of the trace that a list belongs to; empty if only one is open.
fn which(view: &View) -> String {
    let provenance = view.pane().index.provenance();
    match (view.panes.len(), view.focus) {
        (1, _) => String::new(),
        (_, 0) => format!("upper trace [{provenance}], "),
        _ => format!("lower trace [{provenance}], "),
    }
}

fn note(buf: &mut Buffer, area: Rect, words: &str, theme: Theme) {
    let x = area.right().saturating_sub(words.width() as u16 + 2);
    put(buf, area, x.max(area.x + 1), area.bottom().saturating_sub(1), words, theme.style(Role::Dim));
}
