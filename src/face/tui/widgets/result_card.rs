//! Result card: headline, provenance, noise and bullets of an answer, and the keys of the screens with its details; the
//! whole result has a table and details too.

use crate::face::tui::keymap::Action;
use crate::face::tui::prelude::*;
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

/// Row of a low window that says how far to trust a result: the first clauses that fit, and the noise.
fn badge(trust: &str, is_noisy: bool, width: usize) -> String {
    let noisy = if is_noisy { ", noisy (below)" } else { "" };
    let end = if is_noisy { noisy } else { " …" };
    let kept = leading_clauses(trust, width.saturating_sub(end.width()), &["; ", ", "]);
    match kept {
        Some(kept) if trust.width() + noisy.width() > width => format!("{kept}{end}"),
        _ => format!("{trust}{noisy}"),
    }
}

/// Lines of the result: headline, trust, noise and speedups first, then the rest. In a low window, trust and noise have one
/// row, and the bullets come before the whole texts of both and the speedups.
pub fn result_lines(answers: &[Answer], width: usize, is_low: bool) -> Vec<(String, Role)> {
    let mut lines = Vec::new();
    for answer in answers {
        let (trust, scope) = answer.trust_and_scope();
        let basis = CardLine::Basis(answer.provenance);
        let noise = answer.noise.as_deref().map(|noise| (CardLine::Noise, noise));
        let bullets = answer.bullets.iter().map(|bullet| (CardLine::Bullet, bullet.as_str()));
        let bullets = card_lines(bullets, width);
        lines.extend(card_lines([(CardLine::Headline, answer.headline.as_str())], width));
        if is_low {
            let badge = badge(trust, noise.is_some(), width);
            lines.extend(card_lines([(basis, badge.as_str())], width));
            lines.extend_from_slice(&bullets);
            let trust = (!badge.starts_with(trust)).then_some((basis, trust));
            lines.extend(card_lines(noise.into_iter().chain(trust), width));
        } else {
            lines.extend(card_lines([(basis, trust)].into_iter().chain(noise), width));
        }
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
        let columns = table.left_out.len();
        let columns = (columns > 0).then(|| counted(columns, "more column"));
        let more: Vec<String> = answer.left_out.words().into_iter().chain(columns).collect();
        if !more.is_empty() {
            let text = format!("… {}: screen {} has all", more.join("; "), Tab::Compare.title());
            lines.extend(wrap(&text, width).into_iter().map(|words| (words, Role::Dim)));
        }
        if !is_low {
            lines.extend(bullets);
        }
        for text in [scope].into_iter().chain(answer.details.iter().map(String::as_str)) {
            lines.extend(wrap(text, width).into_iter().map(|words| (words, Role::Dim)));
        }
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

/// Writes into the bottom border of a result's frame the keys of the screens that show more of it; returns the next free
/// column.
pub fn next_screens(buf: &mut Buffer, area: Rect, cx: &Context) -> u16 {
    let (mut x, y) = (area.x + 2, area.bottom().saturating_sub(1));
    for tab in NEXT_SCREENS {
        let key = format!(" {}", cx.keys.label(Action::Show(tab)));
        x = put(buf, area, x, y, &key, cx.theme.style(Role::Key));
        x = put(buf, area, x, y, &format!(" {} ", tab.title()), cx.theme.style(Role::Dim));
    }
    x
}
