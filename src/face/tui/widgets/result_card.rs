//! Result card: headline, trust, table, bullets and noise of an answer, and the keys of the screens with more of it; its
//! details have lines of their own.

use crate::face::tui::keymap::Action;
use crate::face::tui::prelude::*;
use crate::face::tui::widgets::wrap::clauses_in_rows;
use study::answer::{Answer, CardLine};

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

/// Columns from which the text on trust may take two rows.
const WIDE: usize = 100;

/// Columns up to which a headline takes at most two rows; the details have all of it.
const NARROW: usize = 60;

/// Headline for a card of this width.
fn headline(text: &str, width: usize) -> String {
    if width > NARROW {
        return text.to_owned();
    }
    let is_enough = |kept: &&str| *kept == text || kept.width() > width;
    match clauses_in_rows(text, (width, 2), &["; ", ", "]).filter(is_enough) {
        Some(kept) => kept.to_owned(),
        None => headline_rows(text, width as u16 + 2, 2).join(" "),
    }
}

/// Row on how far to trust a result: the first clauses that fit, and the word for noise. Wide windows have all of it.
pub fn badge(trust: &str, is_noisy: bool, width: usize) -> String {
    let noisy = if is_noisy { ", noisy (below)" } else { "" };
    let end = if is_noisy { noisy } else { " …" };
    let kept = leading_clauses(trust, width.saturating_sub(end.width()), &["; ", ", ", " ("]);
    match kept {
        Some(kept) if trust.width() + noisy.width() > width && width < WIDE => format!("{kept}{end}"),
        _ => format!("{trust}{noisy}"),
    }
}

/// Lines of the result: headline, trust in a row, table, bullets, noise, and what the table leaves out. The rest is in
/// [`detail_lines`].
pub fn result_lines(answers: &[Answer], width: usize) -> Vec<(String, Role)> {
    let mut lines = Vec::new();
    for answer in answers {
        let noise = answer.noise.as_deref().map(|noise| (CardLine::Noise, noise));
        let badge = badge(answer.trust_and_scope().0, noise.is_some(), width);
        let headline = headline(&answer.headline, width);
        let head = [
            (CardLine::Headline, headline.as_str()),
            (CardLine::Basis(answer.provenance), badge.as_str()),
        ];
        lines.extend(card_lines(head, width));
        let table = answer.table.fitted(width);
        let rule = table.text.lines().position(|line| line.starts_with('─'));
        for (at, line) in table.text.lines().enumerate().filter(|(at, _)| Some(*at) != rule) {
            let role = match rule {
                Some(rule) if at + 1 == rule => Role::Title,
                Some(rule) if at < rule => Role::Dim,
                _ => Role::Text,
            };
            lines.push((line.to_owned(), role));
        }
        let bullets = answer.bullets.iter().map(|bullet| (CardLine::Bullet, bullet.as_str()));
        lines.extend(card_lines(bullets.chain(noise), width));
        let columns = table.left_out.len();
        let columns = (columns > 0).then(|| counted(columns, "more column"));
        let more: Vec<String> = answer.left_out.words().into_iter().chain(columns).collect();
        // last: a low window has no row for it above the findings
        if !more.is_empty() {
            let text = format!("… {}: screen {} has all", more.join("; "), Tab::Compare.title());
            lines.extend(wrap(&text, width).into_iter().map(|words| (words, Role::Dim)));
        }
    }
    lines
}

/// Lines of the details of a result: its trust and cells in full, then all that its card leaves out.
pub fn detail_lines(answers: &[Answer], width: usize) -> Vec<(String, Role)> {
    let mut lines = Vec::new();
    for answer in answers {
        if answers.len() > 1 || headline(&answer.headline, width) != answer.headline {
            lines.extend(card_lines([(CardLine::Headline, answer.headline.as_str())], width));
        }
        let (trust, scope) = answer.trust_and_scope();
        let basis = [trust, scope].into_iter().filter(|text| !text.is_empty());
        let basis = basis.map(|text| (CardLine::Bullet, text));
        let details = answer.details.iter().map(|text| (CardLine::Bullet, text.as_str()));
        lines.extend(card_lines(basis.chain(details), width));
    }
    lines
}

/// Definition of the shares in the table.
const LEGEND: &str = " gap %: of upper-bound's TPOT saving ";

/// Writes the legend into the bottom border of a result's frame, right of column `x`, if it fits.
pub fn legend(buf: &mut Buffer, area: Rect, x: u16, cx: &Context) {
    if LEGEND.width() <= area.right().saturating_sub(x + 2).into() {
        let y = area.bottom().saturating_sub(1);
        put(buf, area, x + 1, y, LEGEND, cx.theme.style(Role::Dim));
    }
}

/// Writes into the bottom border of a result's frame the keys of its own parts and of the screens that show more of it;
/// returns the next free column.
pub fn more_keys(buf: &mut Buffer, area: Rect, own: &[(String, &str)], cx: &Context) -> u16 {
    let (mut x, y) = (area.x + 2, area.bottom().saturating_sub(1));
    let screens = NEXT_SCREENS.map(|tab| (cx.keys.label(Action::Show(tab)), tab.title()));
    for (key, title) in own.iter().cloned().chain(screens) {
        x = put(buf, area, x, y, &format!(" {key}"), cx.theme.style(Role::Key));
        x = put(buf, area, x, y, &format!(" {title} "), cx.theme.style(Role::Dim));
    }
    x
}
