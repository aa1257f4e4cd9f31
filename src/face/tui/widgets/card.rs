//! Result card: headline, badge of trust and bullets of an answer, wrapped to a width.

use crate::face::tui::prelude::*;
use study::answer::{Answer, CardLine};

/// Lines of a card with their roles.
pub fn lines(answer: &Answer, width: usize) -> Vec<(String, Role)> {
    let mut lines = Vec::new();
    for (line, text) in answer.card() {
        let (head, role) = match line {
            CardLine::Headline => ("", Role::Title),
            CardLine::Basis(provenance) => ("", provenance.map_or(Role::Dim, Role::of_provenance)),
            CardLine::Noise => ("! ", Role::Warn),
            CardLine::Bullet => ("• ", Role::Text),
        };
        let blanks = " ".repeat(head.width());
        for (at, words) in wrap(text, width.saturating_sub(head.width())).into_iter().enumerate() {
            lines.push((format!("{}{words}", if at == 0 { head } else { &blanks }), role));
        }
    }
    lines
}
