//! Result card: headline, provenance, noise and bullets of an answer, and the keys of the screens with its details.

use crate::face::tui::keymap::Action;
use crate::face::tui::prelude::*;
use study::answer::CardLine;

/// Screens with the details of a result.
const NEXT_SCREENS: [Tab; 3] = [Tab::Compare, Tab::Pareto, Tab::Runs];

/// Wrapped lines of a card with their roles.
pub fn card_lines<'a>(
    card: impl IntoIterator<Item = (CardLine, &'a str)>,
    width: usize,
) -> Vec<(String, Role)> {
    let mut lines = Vec::new();
    for (line, text) in card {
        let (head, role) = match line {
            CardLine::Headline => ("", Role::Title),
            CardLine::Basis(provenance) => ("", provenance.map_or(Role::Dim, Role::of_provenance)),
            CardLine::Noise => ("! ", Role::Warn),
            CardLine::Bullet => ("• ", Role::Text),
        };
        let blanks = " ".repeat(head.width());
        for (index, words) in wrap(text, width.saturating_sub(head.width())).into_iter().enumerate() {
            lines.push((format!("{}{words}", if index == 0 { head } else { &blanks }), role));
        }
    }
    lines
}

/// Writes into the bottom border of a result's frame the keys of the screens that show more of it.
pub fn next_screens(buf: &mut Buffer, area: Rect, cx: &Context) {
    let (mut x, y) = (area.x + 2, area.bottom().saturating_sub(1));
    for tab in NEXT_SCREENS {
        let key = format!(" {}", cx.keys.label(Action::Show(tab)));
        x = put(buf, area, x, y, &key, cx.theme.style(Role::Key));
        x = put(buf, area, x, y, &format!(" {} ", tab.title()), cx.theme.style(Role::Dim));
    }
}
