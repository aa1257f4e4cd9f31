//! Verdict on the upper trace, in sentences.

use crate::face::tui::prelude::*;
use crate::face::tui::screens::timeline::state::View;
use study::verdict::Verdict;

pub fn lines(verdict: &Verdict, width: u16) -> Vec<String> {
    verdict.sentences.iter().flat_map(|sentence| wrap(sentence, usize::from(width.max(20)))).collect()
}

pub fn draw(
    buf: &mut Buffer,
    (area, rows): (Rect, Rect),
    view: &View,
    (lines, list): (&[String], &List),
    theme: Theme,
) {
    let provenance = view.panes[0].index.provenance();
    frame(buf, area, &format!("verdict [{provenance}]; what remedies give is simulated"), theme);
    if lines.is_empty() {
        put(buf, rows, rows.x + 1, rows.y, "looking…", theme.style(Role::Dim));
    }
    for (row, y) in list.rows(lines.len(), rows) {
        put(buf, rows, rows.x + 1, y, &lines[row], theme.style(Role::Text));
    }
}
