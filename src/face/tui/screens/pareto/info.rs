//! Text around the plot: headline, selected point, area gained.

use super::draw::{APART, covered, is_crowded};
use super::layout::{areas, meaning, meanings, plot};
use super::limit::named;
use super::state::Pareto;
use super::{Act, errors};
use crate::face::tui::keymap::Action;
use crate::face::tui::prelude::*;
use crate::face::tui::screens::experiments::{self, Experiments};
use crate::face::tui::widgets::scatter::Plot;
use plan::Architecture;
use study::analysis::{
    AreaGained, LEAST_CELLS, LEAST_DIFFERENCE, OverlayPoint, ParetoPoint, XAxis, less_work, published_of,
};
use table::{Provenance, Spec};

pub fn draw(buf: &mut Buffer, area: Rect, pareto: &Pareto, cx: &Context, plot: &Plot) {
    let theme = cx.theme;
    let Some(point) = pareto.current() else { return };
    let (text, title) = (theme.style(Role::Text), theme.style(Role::Title));
    if let Some((other, place)) = pareto.other() {
        let words = against(pareto, other, place);
        let rows = wrap(&words, usize::from(area.width.saturating_sub(2)));
        for (row, words) in (0..area.height).zip(&rows) {
            line(buf, area, row, &[(" ", text), (words, if row == 0 { title } else { text })]);
        }
        return;
    }
    let point_text = PointText::new(pareto, point, cx, plot, area.width);
    if area.height == 1 {
        let row = folded_notes(buf, cut_left(area, 1).1, &notes(pareto, cx), cx);
        let short = point_text.short(pareto, point);
        return line(buf, row, 0, &[(row_clauses(&short, row.width), title)]);
    }
    line(
        buf,
        area,
        0,
        &[
            (&point_text.label, theme.provenance(point.provenance)),
            (&point_text.cell, title),
            (&point_text.standing, text),
            (point_text.fitting_more(area.width), text),
        ],
    );
    // the hint ends the last row
    let notes = notes(pareto, cx);
    let rows = point_text.rows(area.width);
    for row in 1..area.height {
        let mut place = cut_top(cut_top(area, row).1, 1).0;
        if row + 1 == area.height {
            place = folded_notes(buf, place, &notes, cx);
        }
        if let Some((text, role)) = rows.get(usize::from(row) - 1) {
            let style = theme.style(*role);
            line(buf, place, 0, &[(" ", style), (row_clauses(text, place.width), style)]);
        }
    }
}

/// Width below which the first row is short.
const NARROW: u16 = 100;

/// Ends of the clauses after which a text may be cut.
const CLAUSE_ENDS: [&str; 6] = [", ", "; ", ": ", " (", " at ", " than "];

/// Cuts a row of text after its last clause that fits; without one it stays whole.
fn row_clauses(text: &str, width: u16) -> &str {
    leading_clauses(text, usize::from(width).saturating_sub(1), &CLAUSE_ENDS).unwrap_or(text)
}

/// Texts on the selected point.
struct PointText {
    label: String,
    cell: String,
    /// Number of points in the same place, for a low window; empty if there is only one.
    short_here: String,
    /// Place on the frontier.
    standing: String,
    /// Points that dominate this one, whether their lead is within noise, and the number of points in the same place if there
    /// is room.
    more: String,
    /// Coordinates, and that number otherwise.
    numbers: String,
    /// Contradiction within the published numbers of the cell.
    contradiction: Option<String>,
    /// Area gained; the area of two cells is a single step, whose size depends on their arbitrary distance.
    gained: Option<String>,
}

impl PointText {
    fn new(pareto: &Pareto, point: &ParetoPoint, cx: &Context, plot: &Plot, width: u16) -> Self {
        let here = covered(pareto, plot).map(|(at, of)| {
            // the next point after the last one here is elsewhere
            let (act, word) = if at < of { (Act::Next, "next") } else { (Act::Previous, "previous") };
            let key = cx.key::<Pareto>(act);
            [format!("; {of} points here ({key}: {word})"), format!(", {of} points here ({key})")]
        });
        let [here, short_here] = here.unwrap_or_default();
        let area = pareto.area().filter(|area| area.cells >= LEAST_CELLS);
        let (standing, more) = standing(pareto, point);
        let contradiction = published(pareto, point).and_then(OverlayPoint::contradiction);
        let help = contradiction.is_some().then(|| cx.keys.label(Action::Help));
        let mut point_text = Self {
            label: format!("{} ", label(point)),
            cell: point.cell_label(),
            short_here,
            standing,
            more,
            numbers: numbers(pareto, point, width, help),
            contradiction,
            gained: area.and_then(|area| gained(pareto, area, width.saturating_sub(2).into())),
        };
        // the verdict comes before the number
        match point_text.more.width() + here.width() < point_text.room(width).into() {
            true => point_text.more += &here,
            false => point_text.numbers += &here,
        }
        point_text
    }

    /// Columns that the first row has left behind the standing.
    fn room(&self, width: u16) -> u16 {
        let texts = [&self.label, &self.cell, &self.standing];
        width.saturating_sub(texts.map(|text| text.width()).iter().sum::<usize>() as u16)
    }

    /// True if the first row has no room for all of it.
    fn is_cut(&self, width: u16) -> bool {
        self.more.width() >= self.room(width).into()
    }

    /// Clauses of `more` that the first row has room for.
    fn fitting_more(&self, width: u16) -> &str {
        let room = self.room(width);
        let clauses = row_clauses(&self.more, room);
        if clauses.width() < room.into() { clauses } else { "" }
    }

    /// The row of a low window, whose headline has the provenance: `ladder 8x1 p2p-on: 191 ms, 21.7 tok/s/GPU, 2 points here
    /// (n), on the frontier`.
    fn short(&self, pareto: &Pareto, point: &ParetoPoint) -> String {
        let (unit, by) = pareto.unit();
        let place = pareto.axes.coordinates(point).map(|(x, y)| {
            let title = pareto.y_title().replace("tokens/s", "tok/s");
            format!(": {} {unit}, {} {title}", digits(x / by), digits(y))
        });
        let standing = self.standing.replacen(": ", ", ", 1);
        format!("{}{}{}{standing}", named(point), place.unwrap_or_default(), self.short_here)
    }

    /// Rows below the first.
    fn rows(&self, width: u16) -> Vec<(String, Role)> {
        let texts = [(Some(&self.numbers), Role::Text), (self.gained.as_ref(), Role::Dim)];
        let rows = texts.into_iter().flat_map(|(text, role)| {
            let rows = text.map_or_else(Vec::new, |text| wrap(text, width.saturating_sub(2).into()));
            rows.into_iter().map(move |row| (row, role))
        });
        rows.collect()
    }
}

/// Caveats of the plot: the headline with its remark, the validation of simulated cells, and what the selected point rests on.
pub fn notes(pareto: &Pareto, cx: &Context) -> Vec<ScreenNote> {
    let (Some(point), body) = (pareto.current(), cx.body()) else { return Vec::new() };
    let (areas, plot) = (areas(body, pareto), plot(pareto, body));
    let mut notes = Vec::new();
    let whole = headline_prefix(pareto) + pareto.headline();
    if has_headline(pareto) && !is_whole(&[headline(pareto, cx, body.width)], &whole) {
        notes.push(ScreenNote::new(whole, true));
    }
    if let Some(meanings) = meanings(pareto, cx.theme).first() {
        let is_folded = meaning(pareto, cx.theme, body.width).is_none();
        notes.push(ScreenNote::new(format!("marks: {meanings}"), is_folded));
    }
    if is_crowded(pareto, &plot) {
        notes.push(ScreenNote::new(
            "too few rows for all lines: only the selected series has its own",
            true,
        ));
    }
    if let Some(trust) = pareto.trust.get(&point.group) {
        notes.push(ScreenNote::new(format!("{}: {trust}", point.provenance), true));
    }
    let point_text = PointText::new(pareto, point, cx, &plot, areas.info.width);
    let standing = [&*point_text.cell, &point_text.standing, &point_text.more].concat();
    let is_short = areas.info.height == 1;
    notes.push(ScreenNote::new(standing, is_short || point_text.is_cut(areas.info.width)));
    notes.extend(
        point_text.contradiction.iter().map(|why| ScreenNote::new(format!("published: {why}"), true)),
    );
    let (rows, below) =
        (point_text.rows(areas.info.width), usize::from(areas.info.height.saturating_sub(1)));
    let numbers = rows.iter().filter(|(_, role)| *role == Role::Text).count();
    let at = notes.len();
    notes.push(ScreenNote::new(point_text.numbers, numbers > below));
    notes.extend(point_text.gained.map(|gained| ScreenNote::new(gained, rows.len() > below)));
    // the hint takes its room from the last row
    let hint = notes_hint(&notes, cx).width();
    if let Some((last, _)) = below.checked_sub(1).and_then(|row| rows.get(row)).filter(|_| hint > 0)
        && last.width() + 1 + hint > areas.info.width.into()
        && let Some(note) = notes.get_mut(at + usize::from(below > numbers))
    {
        note.is_folded = true;
    }
    notes
}

/// Error of a place on the x axis against the published one, with its measure: `tok/s -7.5 %`. A latency with a rate
/// counts as that rate, as on the command line and in comparisons: a plus is faster. Other measures keep their sign.
fn speed_error(x: XAxis, own: f64, published: f64) -> String {
    let (measure, own, published) = match x {
        XAxis::Completion => ("tok/s".to_owned(), published, own),
        XAxis::Tpot => ("tok/s/user".to_owned(), published, own),
        XAxis::Ttft => ("TTFT".to_owned(), own, published),
        XAxis::User | XAxis::Of(_) => (x.title(), own, published),
    };
    format!("{measure} {}", errors::percent(own, published))
}

/// Overlay point with the run of its cell: `published (arXiv 2501.06589), ladder 8x1 p2p-off: 6.20 s, 10.3
/// tokens/s/GPU; simulated 6.70 s (tok/s -7.5 %), 9.57 (tokens/s/GPU -7.1 %)`.
fn against(pareto: &Pareto, other: &OverlayPoint, (x, y): (f64, f64)) -> String {
    let (unit, by) = pareto.unit();
    let p2p = other.p2p.map_or_else(String::new, |p2p| format!(" p2p-{}", p2p.as_str()));
    let mut text = format!(
        "{}, {} {}{p2p}: {} {unit}, {} {}",
        other.source,
        other.architecture,
        other.name(),
        digits(x / by),
        digits(y),
        pareto.y_title()
    );
    let run = pareto.visible().find(|point| other.is_of(&point.spec));
    match run.and_then(|point| Some((point, pareto.axes.coordinates(point)?))) {
        None => text += "; this cell is not among the runs shown",
        Some((point, (own_x, own_y))) => {
            text += &format!(
                "; {} {} {unit} ({}), {} ({} {})",
                point.provenance,
                digits(own_x / by),
                speed_error(pareto.axes.x, own_x, x),
                digits(own_y),
                pareto.y_title(),
                errors::percent(own_y, y)
            );
        }
    }
    text
}

/// True if [`draw_headline`] has a row: not for quality, and not without points.
pub fn has_headline(pareto: &Pareto) -> bool {
    pareto.axes.quality().is_none() && pareto.current().is_some()
}

/// Headline in one row: who wins at the same TP, batch and P2P among the shown cells, as on the compare screen; the clauses
/// that do not fit are in the help. Rates within a latency limit are in the answer and the table, because they depend on which
/// batch just meets the limit. A warning about points measured apart comes first, because the machine may
/// explain their ranks.
pub fn headline(pareto: &Pareto, cx: &Context, width: u16) -> String {
    let label = pareto.current().map(label).unwrap_or_default();
    let width = width.saturating_sub(label.width() as u16);
    let (prefix, warning) = (headline_prefix(pareto), measured_apart(pareto, cx));
    let before = warning.as_ref().map_or_else(|| prefix.clone(), |why| format!("{why}; {prefix}"));
    let room = usize::from(width).saturating_sub(before.width() + 2);
    // a narrow window has the number without its interval
    let texts = [pareto.headline().to_owned(), without_intervals(pareto.headline())];
    if let Some(clauses) = texts.iter().find_map(|text| headline_clauses(text, room)) {
        return before + clauses;
    }
    let rows = headline_rows(&warning.unwrap_or(prefix + &texts[1]), width, 1);
    rows.into_iter().next().unwrap_or_default()
}

/// Leading clauses of a headline that fit, without the introduction of the next one.
fn headline_clauses(text: &str, room: usize) -> Option<&str> {
    let kept = leading_clauses(text, room, &CLAUSE_ENDS)?;
    let introductions = ["; where fastest", ", for example", ", more"];
    let before = introductions.into_iter().find_map(|introduction| kept.strip_suffix(introduction));
    Some(before.unwrap_or(kept))
}

/// Start of the headline: the P2P setting that its cells share, if the other one is hidden, and a warning of noise.
/// Comparisons of both settings may have another winner and lead.
fn headline_prefix(pareto: &Pareto) -> String {
    let p2p = pareto.p2p().map(|p2p| format!("P2P {}", p2p.as_str()));
    let noisy = pareto.is_noisy().then(|| "noisy".to_owned());
    let parts: Vec<String> = p2p.into_iter().chain(noisy).collect();
    if parts.is_empty() { String::new() } else { format!("{}: ", parts.join(", ")) }
}

/// Warning that some points were measured apart, with the keys that rerun them; `None` if no point was.
fn measured_apart(pareto: &Pareto, cx: &Context) -> Option<String> {
    let screen = cx.keys.label(Action::Show(Tab::Experiments));
    let all = cx.key::<Experiments>(experiments::Act::RunAll);
    let is_apart = pareto.visible().any(|point| point.is_apart);
    is_apart.then(|| format!("{APART} measured apart: run all again ({screen}, then {all})"))
}

/// Drops `[low, high]` behind numbers.
fn without_intervals(text: &str) -> String {
    let mut parts = text.split(" [");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |kept, part| kept + part.split_once(']').map_or(part, |(_, after)| after))
}

/// Provenance of a point, before texts on it.
fn label(point: &ParetoPoint) -> String {
    format!(" [{}]", point.provenance)
}

/// Draws the headline, after its provenance.
pub fn draw_headline(buf: &mut Buffer, area: Rect, pareto: &Pareto, cx: &Context) {
    let Some(point) = pareto.current() else { return };
    let (text, provenance) = (cx.theme.style(Role::Text), cx.theme.provenance(point.provenance));
    let headline = headline(pareto, cx, area.width);
    line(buf, area, 0, &[(&label(point), provenance), (" ", text), (&headline, text)]);
}

/// Frontier that the point is on or that it is dominated, and the point that dominates it.
fn standing(pareto: &Pareto, point: &ParetoPoint) -> (String, String) {
    if pareto.marked != pareto.axes {
        return Default::default();
    }
    let close = match (point.too_close, point.band) {
        (false, _) => String::new(),
        // not the error of latencies, which is in the notes
        (true, Some(band)) => {
            format!(", too close to call ({}: {})", band.within(), band.reason())
        }
        (true, None) => ", intervals overlap".to_owned(),
    };
    let close = match point.is_apart {
        true => format!("{close}, measured over 10 min apart from the others"),
        false => close,
    };
    let close =
        if is_above_limit(pareto, point) { format!("{close}, above upper-bound: noise") } else { close };
    if point.on_frontier {
        return (": on the frontier".into(), close);
    }
    if point.is_limit() {
        return (": a limit".into(), ", not a choice".into());
    }
    let by = point.dominated_by.as_ref().and_then(|run| pareto.point(run));
    if by.is_some_and(|by| by.spec.p2p != point.spec.p2p) && is_best_of_its_p2p(pareto, point) {
        let p2p = point.spec.p2p.as_str();
        let more = by.map_or_else(String::new, |by| format!(", overall behind {}{close}", named(by)));
        return (format!(": on the frontier of P2P {p2p}"), more);
    }
    let is_shown = |by: &&ParetoPoint| pareto.visible().any(|point| point.run == by.run);
    if let Some(by) = by.filter(|by| point.on_series_frontier && !is_shown(by)) {
        let more = format!(", best of its series{close}");
        return (format!(": dominated by {}, hidden ({})", named(by), hidden_by(pareto, by)), more);
    }
    let by = by.map_or_else(String::new, |by| {
        let hidden = if is_shown(&by) { "" } else { hidden_by(pareto, by) };
        let hidden = if hidden.is_empty() { String::new() } else { format!(", hidden: {hidden}") };
        format!(" (by {}{hidden})", by.cell_label())
    });
    match point.on_series_frontier {
        true => (": best of its series".into(), format!(", dominated overall{by}{close}")),
        false => (": dominated".into(), format!("{by}{close}")),
    }
}

/// What hides a point.
pub fn hidden_by(pareto: &Pareto, point: &ParetoPoint) -> &'static str {
    if pareto.p2p().is_some_and(|p2p| p2p != point.spec.p2p) {
        "P2P"
    } else if pareto.hidden.contains(&point.series()) {
        "legend"
    } else {
        "filter"
    }
}

/// True if a measured point has more than `upper-bound` in the same cell, although it does no less work.
fn is_above_limit(pareto: &Pareto, point: &ParetoPoint) -> bool {
    if point.is_limit() || point.provenance == Provenance::Simulated || less_work(&point.spec).is_some()
    {
        return false;
    }
    let limit = Spec { architecture: Architecture::UpperBound, ..point.spec.clone() };
    let y = pareto.axes.y;
    let is_of = |other: &&ParetoPoint| other.provenance == point.provenance && other.spec == limit;
    let limit = pareto.points.iter().flatten().find(is_of).and_then(|limit| y.value(limit));
    limit.zip(y.value(point)).is_some_and(|(limit, own)| match y.is_more_better() {
        true => own > limit * (1.0 + LEAST_DIFFERENCE),
        false => own * (1.0 + LEAST_DIFFERENCE) < limit,
    })
}

/// True if no other choice with the point's P2P setting dominates it: machines without P2P cannot choose the others.
fn is_best_of_its_p2p(pareto: &Pareto, point: &ParetoPoint) -> bool {
    let rivals = pareto.points.iter().flatten().filter(|rival| {
        rival.group == point.group && rival.spec.p2p == point.spec.p2p && !rival.is_limit()
    });
    let own = pareto.axes.coordinates(point);
    let mut places = rivals.filter_map(|rival| pareto.axes.coordinates(rival).zip(own));
    own.is_some() && places.all(|(rival, own)| !pareto.axes.dominates(rival, own))
}

/// Published point of the same cell. Measurements of other machines are compared if asked for.
fn published(pareto: &Pareto, point: &ParetoPoint) -> Option<&'static OverlayPoint> {
    let is_asked = point.provenance == Provenance::Simulated || !pareto.published.is_empty();
    published_of(&point.spec).filter(|_| is_asked)
}

/// Coordinates of a point, what they rest on, and its run where there is room for an id. `help` is the key that shows why
/// the published numbers contradict each other.
fn numbers(pareto: &Pareto, point: &ParetoPoint, width: u16, help: Option<String>) -> String {
    let (x, y) = (pareto.axes.x, pareto.axes.y);
    let with = |value: Option<f64>, ci: Option<[f64; 2]>, by: f64| {
        let value = value.map_or("-".into(), |value| digits(value / by));
        let ends = |[low, high]: [f64; 2]| format!(" [{}, {}]", digits(low / by), digits(high / by));
        format!("{value}{}", ci.map(ends).unwrap_or_default())
    };
    let ((unit, by), title) = (pareto.unit(), pareto.y_title());
    let name = match x {
        XAxis::Tpot => "TPOT ",
        XAxis::Ttft => "TTFT ",
        _ => "",
    };
    let mut text = format!(
        "{name}{} {}, {} {}",
        with(x.value(point), x.interval(point), by),
        unit,
        with(y.value(point), y.interval(point), 1.0),
        if width < 80 { title.replace("tokens/s", "tok/s") } else { title }
    );
    if width >= NARROW && x.interval(point).or(y.interval(point)).is_some() {
        text.push_str(" (95 % intervals, the cross)");
    }
    if x != XAxis::Tpot && point.tpot_ms > 0.0 {
        text.push_str(&format!(", TPOT {} ms", digits(point.tpot_ms)));
    }
    let place = published(pareto, point).and_then(|other| other.place(pareto.axes));
    if let (Some((own, _)), Some((x, _))) = (pareto.axes.coordinates(point), place) {
        let error = speed_error(pareto.axes.x, own, x);
        let disagree = help.map(|key| format!("; the published numbers disagree: {key}"));
        let disagree = disagree.unwrap_or_default();
        text.push_str(&format!(", published {} {unit} ({error}{disagree})", digits(x / by)));
    }
    // the provenance label already covers where the times come from
    if let (Some(measure), Some(quality)) = (pareto.axes.quality(), &point.quality) {
        text.push_str(&format!(", {} {}", measure.title, quality.full_basis()));
    }
    let is_median = point.runs > 1 && point.provenance != Provenance::Simulated;
    match (is_median, width) {
        (false, ..NARROW) => text,
        (false, _) => format!("{text}, run {}", point.run),
        (true, ..NARROW) => format!("{text}; medians over the samples of {} runs", point.runs),
        (true, _) => {
            format!("{text}; medians over the samples of {} runs, the last {}", point.runs, point.run)
        }
    }
}

/// Area gained, below the provenance of its points and, in a wide window, with its reference point and scales.
fn gained(pareto: &Pareto, a: &AreaGained, width: usize) -> Option<String> {
    let more = |pct: f64| format!("{:.1} % {}", pct.abs(), if pct < 0.0 { "less" } else { "more" });
    let gained = more(a.gained_pct?);
    let interval = match a.gained_pct_ci95 {
        Some([low, high]) => format!(" [{low:+.1}, {high:+.1}]"),
        None => String::new(),
    };
    let scale = if a.x_scale == a.y_scale {
        a.x_scale.to_string()
    } else {
        format!("{} x, {} y", a.x_scale, a.y_scale)
    };
    let other = pareto.other_area(a).filter(|other| other.cells >= LEAST_CELLS);
    let other = other.and_then(|other| Some((other.p2p.as_str(), other.gained_pct?)));
    let other = other.map_or_else(String::new, |(p2p, pct)| format!(", {} with P2P {p2p}", more(pct)));
    let gained = format!(
        "{}'s frontier: {gained} area than {}'s{interval}{other}, {}",
        a.architecture,
        a.baseline,
        counted(a.cells, "matched cell"),
    );
    if width < 100 {
        return Some(format!("{gained}; ranks whole frontiers, not a speedup"));
    }
    Some(format!(
        "{gained} ({} {} {}, from {} {}, {scale}; ranks whole frontiers, not a speedup)",
        if pareto.axes.x.is_more_better() { "from" } else { "up to" },
        digits(a.reference[0] / pareto.unit().1),
        pareto.unit().0,
        digits(a.reference[1]),
        pareto.y_title(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_headline_never_ends_before_what_it_compares_with() {
        let text =
            "Run again: rounds of ladder vary by 1.64x, choices differ from standard by 1.2x at most";
        let kept = (0..=text.len()).filter_map(|room| headline_clauses(text, room));
        assert!(kept.clone().count() > 0 && kept.clone().all(|kept| !kept.ends_with("standard")));
    }

    #[test]
    fn a_headline_never_ends_with_the_introduction_of_a_clause() {
        let lead = "Ladder is up to 1.49x faster than standard";
        let median = "fastest in 8 of 10 settings: 1.04x to 1.49x (median 1.20x)";
        let text = format!(
            "{lead}, for example at TP 8; {median}; where fastest, 1.07x the tokens/s of parallel"
        );
        let example = format!("{lead}, for example at TP 8");
        let kept: Vec<&str> =
            (0..=text.len()).filter_map(|room| headline_clauses(&text, room)).collect();
        assert!(kept.contains(&lead) && kept.contains(&example.as_str()), "{kept:?}");
        assert!(kept.iter().any(|kept| kept.ends_with("(median 1.20x)")), "{kept:?}");
        assert!(
            kept.iter().all(|kept| !kept.ends_with("fastest") && !kept.ends_with("example")),
            "{kept:?}"
        );
    }
}
