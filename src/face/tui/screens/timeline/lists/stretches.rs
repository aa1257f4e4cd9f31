//! The longest stretches of exposed communication: which collective, and what waited for it.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::super::Act;
use super::super::draw::seconds;
use super::{brief, note, which};
use crate::base::text::rank_list;
use crate::face::tui::context::Context;
use crate::face::tui::format::ns;
use crate::face::tui::screens::timeline::Timeline;
use crate::face::tui::screens::timeline::state::View;
use crate::face::tui::screens::timeline::state::panel::Stretches;
use crate::face::tui::theme::Role;
use crate::face::tui::widgets::paint::{frame, line, put};
use crate::study::analysis::ExposedStretches;

/// Draws the stretches in their frame.
pub fn draw(buf: &mut Buffer, (area, rows): (Rect, Rect), view: &View, shown: &Stretches, cx: &Context) {
    let theme = cx.theme;
    let counted = shown.counted.as_ref().filter(|counted| counted.is_of(shown.scope, view));
    let part = shown.scope.part(view).label();
    let told =
        |table: &ExposedStretches| format!(", {} a rank", ns((table.total_us * 1e3).round() as i64));
    let sum = counted
        .filter(|counted| counted.table.count > 0)
        .map_or(String::new(), |counted| told(&counted.table));
    let many = match counted.map(|counted| &counted.table) {
        None => "looking…".into(),
        Some(table) if table.count == 0 => "no communication is exposed".into(),
        Some(table) if (table.longest.len() as u64) < table.count => {
            format!("the {} longest of {}", table.longest.len(), table.count)
        }
        Some(table) if table.count == 1 => "1 stretch".into(),
        Some(table) => format!("{} stretches", table.count),
    };
    let title = format!("exposed communication: {}{part} · {many}{sum}", which(view));
    let inner = frame(buf, area, &title, theme);
    let half = usize::from(inner.width).saturating_sub(FIXED) / 2;
    let header = format!(
        "{:>10} {:>12}  {:<9} {:<8}  {:<half$}  what waited",
        "length", "at s", "step", "ranks", "exposed"
    );
    line(buf, inner, 0, &[(&header, theme.style(Role::Dim))]);
    for (row, y) in shown.list.rows(shown.all().len(), rows) {
        let stretch = &shown.all()[row];
        let role = if row == shown.list.selected { Role::Selected } else { Role::Text };
        let waited = stretch.waited.as_deref().unwrap_or("nothing");
        let length = stretch.interval.1.saturating_sub(stretch.interval.0);
        let text = format!(
            "{:>10} {:>12}  {:<9} {:<8}  {:<half$}  {}",
            ns(length),
            seconds((stretch.at_us * 1e3).round() as i64, 6),
            stretch.step.label(),
            rank_list(&stretch.ranks),
            brief(&stretch.collective, half),
            brief(waited, half)
        );
        put(buf, rows, rows.x, y, &text, theme.style(role));
    }
    note(buf, area, &format!(" Enter goes there  {} part ", cx.key::<Timeline>(Act::Stretches)), theme);
}

/// Columns of all but the two names.
const FIXED: usize = 48;
