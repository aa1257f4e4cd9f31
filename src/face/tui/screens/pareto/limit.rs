//! Limit of x: the prompt for it, the answer ("within 30 ms: ladder 8x64 p2p-on, ..."), its line in the plot, and the table
//! of all series within it.

use super::draw::is_blank;
use super::state::series::SeriesEntry;
use super::state::{Pareto, is_within};
use super::{Act, layout, show_selected};
use crate::face::tui::prelude::*;
use crate::face::tui::widgets::scatter::Plot;
use base::statistics::distinct;
use plan::Architecture;
use study::analysis::{
    self, AtLimit, BestAtLimit, BestWithin, ParetoPoint, Series, XAxis, with_setting,
};
use study::plot::limit_words;
use table::{P2p, Provenance};

impl Pareto {
    /// Finds the best points within the typed limit, or else of all points.
    pub(super) fn find_within(&mut self) {
        let typed = self.typed_limit();
        let own = typed.filter(|(axis, _)| *axis == self.axes.x).map(|(_, limit)| limit);
        let other = typed.filter(|(axis, _)| *axis != self.axes.x);
        // without the quantity no point could meet it
        let other = other.filter(|(axis, _)| self.visible().any(|point| axis.value(point).is_some()));
        let is_kept = |point: &&ParetoPoint| other.is_none_or(|bound| is_within(point, bound));
        let kept: Vec<&ParetoPoint> = self.visible().filter(is_kept).collect();
        let limit = own.unwrap_or(self.axes.x.widest());
        let rows = analysis::at_limits(kept.iter().copied(), self.axes, &[limit]);
        let best = analysis::best_within(&kept, &rows, self.axes, limit);
        (self.limit, self.other_limit) = (own, other);
        (self.limits, self.best_within) = (rows, best);
    }

    /// Unit of the limit and its divisor: that of its axis, as the plot over it has it.
    fn unit_of_limit(&self) -> (&'static str, f64) {
        let Some((axis, limit)) = self.other_limit else { return self.unit() };
        axis.unit_for(self.visible().filter_map(|point| axis.value(point)).fold(limit, f64::max))
    }

    /// Limit in words, with its measure unless the unit or the axis names it: `TPOT within 15 ms`.
    fn bound_words(&self) -> Option<String> {
        let (axis, limit) = self.bound()?;
        let words = limit_words(axis, limit, self.unit_of_limit());
        Some(match axis {
            XAxis::Tpot => format!("TPOT {words}"),
            XAxis::Ttft => format!("TTFT {words}"),
            XAxis::Completion if self.limit.is_none() => format!("latency {words}"),
            _ => words,
        })
    }

    /// Says that the limit is of another axis than the one shown; `None` without such a limit.
    pub(super) fn limit_elsewhere(&self) -> Option<String> {
        self.other_limit?;
        let shown = self.axes.x.measure().words;
        Some(format!("limit kept: {}; x axis: {shown}", self.bound_words()?))
    }

    /// Limits x on the axis shown, or removes the limit, and selects the winner within it.
    pub fn set_limit(&mut self, limit: Option<f64>) {
        self.type_limit(limit);
        self.select_within();
    }

    /// Selects the winner within the limit.
    pub(super) fn select_within(&mut self) {
        self.find_within();
        let winner = self.best_within.first().map(|winner| winner.run.clone());
        let run = winner.or_else(|| nearest(self).map(|(point, _)| point.run.clone()));
        run.iter().for_each(|run| _ = self.select(run));
    }
}

/// Asks for a limit in the unit of the x axis, or of another axis that is named, and selects the best point within it.
pub fn ask(pareto: &Pareto, cx: &mut Context) {
    let (x, (unit, by)) = (pareto.axes.x, pareto.unit());
    let (words, most) = (x.measure().words, direction(x));
    let title =
        if unit == words { format!("{words} {most}") } else { format!("{words} {most} ({unit})") };
    let other = match x {
        XAxis::Tpot => "'completion<2s' or '2 s completion' limits the latency",
        _ => "'tpot<30' or '30 ms tpot' limits TPOT",
    };
    let hint = format!("{other}; nothing typed: no limit; goes to the best point within it");
    let text = match (pareto.limit, pareto.other_limit) {
        (Some(limit), _) => (limit / by).to_string(),
        (None, Some((axis, limit))) => {
            let (unit, by) = pareto.unit_of_limit();
            let unit = if unit == axis.unit() || unit == "s" { unit } else { "" };
            format!("{} {unit} {axis}", limit / by)
        }
        (None, None) => String::new(),
    };
    cx.prompt(PromptCompletion::Nothing, title, hint, text, move |pareto: &mut Pareto, typed, cx| {
        let parsed = parse_on(typed, pareto.axes.x, pareto.unit());
        let (x, limit) = parsed.map_err(|why| format!("{why}; {other}"))?;
        if x != pareto.axes.x {
            pareto.show_x(x);
        }
        pareto.set_limit(limit);
        let plot = layout::plot(pareto, cx.body());
        show_selected(pareto, &plot);
        if let Some(limit) = limit.filter(|limit| keeps_all(pareto, *limit)) {
            cx.inform(format!("every point is {}", limit_words(x, limit, pareto.unit())));
        }
        Ok(())
    });
}

/// True if no point is beyond a limit.
fn keeps_all(pareto: &Pareto, limit: f64) -> bool {
    let x = pareto.axes.x;
    pareto.visible().all(|point| x.value(point).is_none_or(|value| x.keeps(value, limit)))
}

/// Direction of a limit of an axis, in words.
fn direction(x: XAxis) -> &'static str {
    if x.is_more_better() { "at least" } else { "at most" }
}

/// Parses a limit and its axis, also in filter syntax (`tpot<15`). The axis and the unit default to the ones shown.
fn parse_on(typed: &str, shown: XAxis, unit: (&str, f64)) -> Result<(XAxis, Option<f64>), String> {
    let is_between = |c: char| c.is_whitespace() || matches!(c, '<' | '≤' | '>' | '≥' | '=');
    let typed_words: Vec<&str> = typed.split(is_between).filter(|word| !word.is_empty()).collect();
    let axis_of = |word: &str| {
        let is = |axis: &XAxis| {
            let has_own_unit = *axis == XAxis::User && word == axis.unit();
            has_own_unit || axis.as_str().eq_ignore_ascii_case(word)
        };
        XAxis::ALL.into_iter().find(is)
    };
    let named = typed_words.iter().find_map(|word| axis_of(word)).filter(|axis| *axis != shown);
    let x = named.unwrap_or(shown);
    let other_way = if x.is_more_better() { ['<', '≤'] } else { ['>', '≥'] };
    if typed.contains(other_way) {
        let (words, direction) = (x.measure().words, direction(x));
        return Err(format!("'{typed}' is not a limit: {words} limits are '{direction}'"));
    }
    let rest: Vec<&str> = typed_words.into_iter().filter(|word| axis_of(word).is_none()).collect();
    let unit = if x == shown { unit } else { x.unit_for(0.0) };
    Ok((x, parse(&rest.join(" "), unit)?))
}

/// Limit in the base unit of an axis, from a number in the unit that the axis shows, or with a unit of time after it; `None`
/// if nothing is typed.
fn parse(typed: &str, (unit, by): (&str, f64)) -> Result<Option<f64>, String> {
    let typed = typed.trim();
    if typed.is_empty() {
        return Ok(None);
    }
    let is_time = matches!(unit, "ms" | "s");
    let (text, by) = match (typed.strip_suffix("ms"), typed.strip_suffix('s')) {
        (Some(text), _) if is_time => (text, 1.0),
        (None, Some(text)) if is_time => (text, 1e3),
        _ => (typed.strip_suffix(unit).unwrap_or(typed), by),
    };
    let value = text.trim().parse().ok().filter(|value: &f64| value.is_finite() && *value > 0.0);
    let value =
        value.ok_or_else(|| format!("'{typed}' is not a limit: type a number above 0, in {unit}"));
    value.map(|value| Some(value * by))
}

/// Width below which the axis alone may name the measure of a limit.
const NARROW: u16 = 79;

/// Limit, and the best point within it with the best of other architectures, as many as fit: (`within 30 ms: `,
/// `ladder 8x64 p2p-on, 278 tok/s/GPU (close: parallel 278), standard 8x32: 245; P2P off: ladder 226`). Rivals of another TP or
/// batch are named with it, because their ratio is no speedup. Without a typed limit: the best point of all, those that tie
/// with it, and `standard` in the same cell.
fn answer(pareto: &Pareto, width: u16) -> Option<(String, String)> {
    let title = pareto.y_title();
    let unit = if width < 100 { title.replace("tokens/s", "tok/s") } else { title };
    let is_undecided = pareto.is_undecided();
    let most = match (pareto.axes.y.is_more_better(), is_undecided) {
        (true, false) => "most",
        (false, false) => "least",
        // noise may explain it
        (true, true) => "highest",
        (false, true) => "lowest",
    };
    let limited = pareto.bound_words();
    let has_ties = pareto.best_within.iter().any(|rival| rival.is_tied);
    let doubt = if is_undecided && !has_ties { " (undecided)" } else { "" };
    let named_bound = match &limited {
        Some(words) => format!("{words}{doubt}: "),
        None => format!("{most} {unit}{doubt}: "),
    };
    let Some((winner, rivals)) = pareto.best_within.split_first() else {
        return limited.map(|_| (named_bound, nothing(pareto)));
    };
    let point = pareto.point(&winner.run)?;
    let at_limit = if is_at_limit(pareto, point) { AT_LIMIT } else { "" };
    let name = format!("{}, {}{at_limit}", named(point), digits(winner.y));
    // without a limit, the beginning has the unit
    let with_unit = if limited.is_some() { format!("{name} {unit}") } else { name.clone() };
    let is_named = |rival: &&BestWithin| limited.is_some() || rival.is_tied;
    let words = rivals.iter().filter(is_named);
    let words = words.map(|rival| (rival.is_tied, rival_words(pareto, rival, point)));
    let words: Vec<(bool, [String; 2])> = words.chain(standard_there(pareto, point, rivals)).collect();
    let beside = |count: usize, form: usize| {
        let list = |tied: bool| {
            let of = words[..count].iter().filter(|(is_tied, _)| *is_tied == tied);
            of.map(|(_, forms)| forms[form].as_str()).collect::<Vec<_>>().join(", ")
        };
        let rivals = match (list(true), list(false)) {
            (close, others) if close.is_empty() => format!("({others})"),
            (close, others) if others.is_empty() => format!("({tied}{close})", tied = tie_word(point)),
            (close, others) => format!("({tied}{close}), {others}", tied = tie_word(point)),
        };
        format!("{with_unit} {rivals}")
    };
    let whole = if words.is_empty() { with_unit.clone() } else { beside(words.len(), 0) };
    let off = limited.as_ref().and_then(|_| without_p2p(pareto, point)).into_iter().flatten();
    let mut texts: Vec<String> = off.map(|off| format!("{whole}; {off}")).collect();
    let counts = (1..=words.len()).rev();
    texts.extend(counts.flat_map(|count| [0, 1].map(|form| beside(count, form))));
    // a tied rival's number is close to the winner's
    let tied = rivals.first().filter(|rival| rival.is_tied);
    let tied = tied.map(|rival| format!("({}{})", tie_word(point), rival.architecture));
    // the axis has the unit
    texts.extend(tied.iter().flat_map(|tied| [format!("{with_unit} {tied}"), format!("{name} {tied}")]));
    texts.extend([with_unit, name]);
    let mut bounds = vec![named_bound];
    if width < 100 {
        let short = bounds[0].replacen("within", "≤", 1).replacen("at least", "≥", 1);
        let bare = short.find('≤').filter(|_| width < NARROW && pareto.limit.is_some());
        let bare = bare.map(|at| short[at..].to_owned());
        bounds.push(short);
        bounds.extend(bare);
    }
    let pairs = texts.iter().flat_map(|text| bounds.iter().map(move |bound| (bound, text)));
    let fits = |(bound, text): &(&String, &String)| bound.width() + text.width() <= width.into();
    let (bound, text) = pairs.clone().find(fits).or_else(|| pairs.last())?;
    Some((bound.clone(), text.clone()))
}

/// Prefix of the rivals that tie with a best point. Intervals of measured points may overlap, however far apart noise puts
/// their medians, although their ratio, paired by round, shows a lead.
fn tie_word(best: &ParetoPoint) -> &'static str {
    if best.provenance == Provenance::Simulated { "close: " } else { "undecided: " }
}

/// Mark of a simulated point that meets the limit by less than its error.
const AT_LIMIT: &str = " (≈limit)";

/// True if a simulated point is as close to the limit as the simulator's error.
fn is_at_limit(pareto: &Pareto, point: &ParetoPoint) -> bool {
    let margin = pareto.bound().and_then(|(axis, limit)| Some((axis.value(point)? / limit - 1.0).abs()));
    // only simulated points have a band
    margin.zip(point.band).is_some_and(|(margin, band)| margin < band.share)
}

/// Meaning of [`tie_word`], for simulations with their errors against measurements; then shorter. Empty if no rival ties with
/// the best point.
pub fn tie_meanings(pareto: &Pareto) -> Vec<String> {
    let Some(point) = pareto.current() else { return Vec::new() };
    if !pareto.best_within.iter().any(|rival| rival.is_tied) {
        let winner = pareto.best_within.first().and_then(|winner| pareto.point(&winner.run));
        let is_near = winner.is_some_and(|winner| is_at_limit(pareto, winner));
        return if is_near {
            vec![format!("{}: within the simulator's error of it", AT_LIMIT.trim())]
        } else {
            Vec::new()
        };
    }
    if point.provenance != Provenance::Simulated {
        return vec!["undecided: intervals overlap".to_owned()];
    }
    let meaning = "close: within the simulator's error".to_owned();
    let errors = pareto.errors.get(&point.group).map(String::as_str);
    let first = errors.and_then(|errors| errors.split("; ").next());
    let with = |errors: &str| format!("{meaning} ({errors})");
    errors.map(with).into_iter().chain(first.map(with)).chain([meaning.clone()]).collect()
}

/// `standard` in the cell of the best point, unless it is that point or ties with it: `standard there 245`.
fn standard_there(
    pareto: &Pareto,
    best: &ParetoPoint,
    rivals: &[BestWithin],
) -> Option<(bool, [String; 2])> {
    let is_standard = |architecture: &Architecture| *architecture == Architecture::Standard;
    let is_named = rivals.iter().any(|rival| rival.is_tied && is_standard(&rival.architecture));
    if pareto.bound().is_some() || is_named || is_standard(&best.spec.architecture) {
        return None;
    }
    let is_there = |point: &&ParetoPoint| {
        let series = Series { architecture: Architecture::Standard, ..best.series() };
        point.label() == best.label() && point.series() == series
    };
    let y = pareto.axes.y.value(pareto.visible().find(is_there)?)?;
    let words = format!("standard there {}", digits(y));
    Some((false, [words.clone(), words]))
}

/// Best point of a rival of the winner, with its near miss of the winner's TP and batch if it has one: `standard 8x1: 12.7;
/// its 8x16 misses by 7.45 %`. In few words that near miss alone, as in the table: `standard ~8x16`.
fn rival_words(pareto: &Pareto, rival: &BestWithin, winner: &ParetoPoint) -> [String; 2] {
    let limit = pareto.limit.unwrap_or(f64::NAN);
    let point = pareto.point(&rival.run);
    let size = point.map(ParetoPoint::label).filter(|label| *label != winner.label());
    let setting = point.map(|point| &point.setting).filter(|setting| **setting != winner.setting);
    let parts: Vec<String> = size.into_iter().chain(setting.cloned()).collect();
    let label = match parts.is_empty() {
        true => String::new(),
        false => format!(" {}:", parts.join(" ")),
    };
    let words = format!("{}{label} {}", rival.architecture, digits(rival.y));
    let is_of = |at: &&AtLimit| at.best.as_ref().is_some_and(|best| best.run == rival.run);
    let missed = pareto.limits.iter().find(is_of).and_then(|at| at.near_miss.as_ref());
    let missed = missed.filter(|missed| {
        !label.is_empty() && (missed.tp, missed.batch) == (winner.spec.tp, winner.spec.batch)
    });
    let Some(missed) = missed else { return [words.clone(), words] };
    let by_pct = 100.0 * (missed.x / limit - 1.0).abs();
    let with_miss = format!("{words}; its {} misses by {} %", winner.label(), digits(by_pct));
    // a larger point in its place would look like a larger gain
    [with_miss, format!("{} ~{}", rival.architecture, winner.label())]
}

/// Best choice without P2P, if the winner uses P2P: `P2P off: ladder 226`, and in few words.
fn without_p2p(pareto: &Pareto, winner: &ParetoPoint) -> Option<[String; 2]> {
    let is_off = |at: &&AtLimit| at.p2p == P2p::Off && !at.architecture.is_limit();
    let rows = pareto.limits.iter().filter(is_off).filter(|_| winner.spec.p2p == P2p::On);
    let choices = rows.filter_map(|at| Some((&at.architecture, at.best.as_ref()?.y)));
    let (architecture, y) = choices.max_by(|(_, a), (_, b)| match pareto.axes.y.is_more_better() {
        true => a.total_cmp(b),
        false => b.total_cmp(a),
    })?;
    let y = digits(y);
    Some([format!("P2P off: {architecture} {y}"), format!("{y} without P2P")])
}

/// Name of a point in the answer: `ladder 8x64 p2p-on`, in a group with several collectives `ladder 8x64 p2p-on one-shot`.
pub fn named(point: &ParetoPoint) -> String {
    let Series { architecture, p2p, setting } = point.series();
    with_setting(format!("{architecture} {} p2p-{}", point.label(), p2p.as_str()), &setting)
}

/// Says that no point can be chosen within the limit, and which comes nearest to it.
fn nothing(pareto: &Pareto) -> String {
    let (unit, by) = pareto.unit_of_limit();
    let nearest = nearest(pareto).map_or_else(String::new, |(point, value)| {
        format!("; nearest: {}, {} {unit}", named(point), digits(value / by))
    });
    format!("no point{nearest}")
}

/// Choice that comes nearest to the limit if none is within it, with its value.
fn nearest(pareto: &Pareto) -> Option<(&ParetoPoint, f64)> {
    let x = pareto.bound().map_or(pareto.axes.x, |(axis, _)| axis);
    let choices = pareto.visible().filter(|point| !point.is_limit());
    let places = choices.filter_map(|point| Some((point, x.value(point)?)));
    places.min_by(|(_, a), (_, b)| match x.is_more_better() {
        true => b.total_cmp(a),
        false => a.total_cmp(b),
    })
}

/// Draws the answer, and in a wide window the keys to another limit and to all series.
pub fn draw_answer(buf: &mut Buffer, area: Rect, pareto: &Pareto, cx: &Context) {
    let row = cut_left(area, 1).1;
    let Some((bound, text)) = answer(pareto, row.width) else { return };
    let (limit, title) = (cx.theme.style(Role::Key), cx.theme.style(Role::Title));
    line(buf, row, 0, &[(&bound, limit), (&text, title)]);
    let keys = [Act::Limit, Act::Table].map(|act| cx.key::<Pareto>(act));
    let has_table = layout::areas(cx.body(), pareto).table.height > 0;
    let table = if has_table { "hide the table" } else { "all series" };
    let ask = if pareto.bound().is_some() { "another limit" } else { "type a limit" };
    let keys = format!("{}: {ask}, {}: {table}", keys[0], keys[1]);
    let (used, wide) = (bound.width() + text.width(), keys.width());
    if used + wide + 3 <= row.width.into() {
        put(buf, row, row.right() - wide as u16 - 1, row.y, &keys, cx.theme.style(Role::Dim));
    }
}

/// Draws the limit as a vertical line where nothing else is.
pub fn draw_line(buf: &mut Buffer, pareto: &Pareto, cx: &Context, plot: &Plot) {
    let Some(limit) = pareto.limit.filter(|limit| plot.x.contains(*limit)) else { return };
    let (x, _) = plot.cell((limit, 0.0));
    for y in plot.area.y..plot.area.bottom() {
        if buf.cell((x, y)).is_some_and(is_blank) {
            put(buf, plot.area, x, y, "┊", cx.theme.style(Role::Key));
        }
    }
}

/// Row of a series within the limit.
fn row_of<'a>(pareto: &'a Pareto, entry: &SeriesEntry) -> Option<&'a AtLimit> {
    pareto.limits.iter().find(|at| {
        at.architecture == entry.series.architecture
            && at.p2p == entry.series.p2p
            && at.setting == entry.series.setting
    })
}

/// Series with points.
fn entries(pareto: &Pareto) -> impl Iterator<Item = &SeriesEntry> {
    let lines = pareto.lines.iter().filter(|line| !line.places.is_empty());
    lines.filter_map(move |line| pareto.entries.get(line.entry))
}

/// Heading of the table and of the list: `best tokens/s/GPU within 30 ms`.
fn heading(pareto: &Pareto) -> String {
    let best = format!("best {}", pareto.y_title());
    match (pareto.limit, pareto.bound_words()) {
        (Some(limit), _) => format!("{best} {}", limit_words(pareto.axes.x, limit, pareto.unit())),
        (None, Some(words)) => format!("{best}, {words}"),
        (None, None) => best,
    }
}

/// Draws the best point of each series within the limit, or of all its points: both axes, TP x batch, ratio to standard.
pub fn draw_table(buf: &mut Buffer, area: Rect, pareto: &Pareto, cx: &Context) {
    if area.is_empty() {
        return;
    }
    let theme = cx.theme;
    let (text, title, dim) = (theme.style(Role::Text), theme.style(Role::Title), theme.style(Role::Dim));
    let entries: Vec<&SeriesEntry> = entries(pareto).collect();
    let cells: Vec<LimitCell> = entries.iter().map(|entry| LimitCell::new(pareto, entry)).collect();
    let names = entries.iter().map(|entry| format!(" {} {}", entry.mark(), entry.series.label()));
    let names: Vec<String> = names.collect();
    let name_width = names.iter().map(|name| name.width()).max().unwrap_or(0) as u16 + 2;
    put(buf, area, area.x + 1, area.y, &heading(pareto), title);
    let rows = names.iter().zip(&entries).zip(cells.iter().zip(rows(&cells)));
    for (y, ((name, entry), (cell, row))) in (area.y + 1..).zip(rows) {
        put(buf, area, area.x, y, name, theme.style(Role::Architecture(entry.look)));
        put(buf, area, area.x + name_width, y, &row, if cell.label.is_empty() { dim } else { text });
    }
    let meanings = meanings(&cells);
    let meanings = first_fitting(&meanings, area.width.saturating_sub(1));
    put(buf, area, area.x + 1, area.bottom() - 1, meanings, dim);
}

/// Lists all series within the limit, the winner first; the chosen one's point is selected.
pub fn list_series(pareto: &Pareto, cx: &mut Context) {
    let Some(point) = pareto.current() else { return };
    let more = pareto.axes.y.is_more_better();
    let with_best = |entry| (entry, row_of(pareto, entry).and_then(|row| row.best.as_ref()));
    let mut ranked: Vec<(&SeriesEntry, Option<&BestAtLimit>)> = entries(pareto).map(with_best).collect();
    // nobody can choose upper-bound
    let is_limit = |entry: &SeriesEntry| entry.series.architecture.is_limit();
    let rank = |best: Option<&BestAtLimit>| {
        best.map_or(f64::INFINITY, |best| if more { -best.y } else { best.y })
    };
    ranked
        .sort_by(|a, b| is_limit(a.0).cmp(&is_limit(b.0)).then_with(|| rank(a.1).total_cmp(&rank(b.1))));
    let cells: Vec<LimitCell> = ranked.iter().map(|(entry, _)| LimitCell::new(pareto, entry)).collect();
    let lines = ranked
        .iter()
        .zip(rows(&cells))
        .map(|((entry, _), row)| (format!("{} {}", entry.mark(), entry.series.label()), row));
    let lines = lines.collect();
    let title = format!("[{}] {}", point.provenance, heading(pareto));
    let [meanings, _] = meanings(&cells);
    let runs: Vec<Option<String>> =
        ranked.into_iter().map(|(_, best)| best.map(|best| best.run.clone())).collect();
    let take = move |state: &mut State, chosen: PickResult| {
        let PickResult::Line(at) = chosen else { return };
        let (pareto, cx) = (&mut state.pareto, &mut state.cx);
        match runs.get(at).cloned().flatten() {
            Some(run) => {
                pareto.select(&run);
                let plot = layout::plot(pareto, cx.body());
                show_selected(pareto, &plot);
            }
            None => cx.inform("no point of this series is within the limit"),
        }
    };
    cx.lay(Pick::new(title, lines, |_, _| None, take).explained(meanings));
}

/// Ratio of a series' best point to `standard`'s with the same batch, and its meaning. In the same cell it is the ratio of
/// comparisons, paired by round.
fn over_standard(pareto: &Pareto, best: &BestAtLimit, entry: &SeriesEntry) -> Option<(String, String)> {
    let over = best.over_same_batch()?;
    let series = Series { architecture: Architecture::Standard, ..entry.series.clone() };
    let standard = pareto.limits.iter().find(|at| {
        (&at.architecture, at.p2p, &at.setting) == (&series.architecture, series.p2p, &series.setting)
    });
    let standard = standard.and_then(|at| pareto.point(&at.best.as_ref()?.run));
    let point = pareto.point(&best.run);
    let same_cell = point.filter(|point| standard.is_some_and(|other| other.label() == point.label()));
    Some(match same_cell.and_then(|point| pareto.paired_ratio(point)) {
        Some(Some(ratio)) => {
            (format!("{ratio:.2}×"), "×: tokens/s over standard's, paired by round".to_owned())
        }
        Some(None) => ("apart".to_owned(), "apart: measured over 10 min from standard".to_owned()),
        None => (format!("{over:.2}×"), "×: over standard's best, same batch and P2P".to_owned()),
    })
}

/// Value of a series without a point within a limit.
const NO_POINT: &str = "-";

/// Best point of a series within a limit.
struct LimitCell {
    /// Value of the point; [`NO_POINT`] without one.
    value: String,
    /// TP x batch of the point; empty without one.
    label: String,
    /// Its x: `at 14.9 s`; empty without a point.
    x: String,
    /// Ratio to standard's best point of the same batch, or else a point just over the limit; may be empty.
    beside: String,
    /// Meaning of `beside`, if it needs one.
    meaning: String,
}

/// Meanings of the texts beside the best points, each once, of the dash, and of the labels: `~: just over the limit (ms);
/// 8x16: TP x batch`; then without that of the labels, which the plot has, too.
fn meanings(cells: &[LimitCell]) -> [String; 2] {
    let none = cells.iter().any(|cell| cell.value == NO_POINT).then(|| "-: no point".to_owned());
    let beside = cells.iter().map(|cell| cell.meaning.clone()).filter(|meaning| !meaning.is_empty());
    let marks = distinct(beside.chain(none));
    let label = cells.iter().map(|cell| &cell.label).find(|label| !label.is_empty());
    let label = label.map(|label| match label.contains(' ') {
        true => format!("{label}: TP x batch eEP dDP"),
        false => format!("{label}: TP x batch"),
    });
    [marks.iter().cloned().chain(label).collect::<Vec<_>>().join("; "), marks.join("; ")]
}

/// Texts of the best points, in columns.
fn rows(cells: &[LimitCell]) -> Vec<String> {
    let widest = |of: fn(&LimitCell) -> &String| cells.iter().map(|cell| of(cell).width()).max();
    let (label, x) = (widest(|cell| &cell.label), widest(|cell| &cell.x));
    let (label, x) = (label.unwrap_or(0), x.unwrap_or(0));
    let row = |LimitCell { value, label: name, x: at, beside, .. }: &LimitCell| {
        format!("{value:>5} {name:<label$}  {at:<x$}  {beside}")
    };
    cells.iter().map(row).collect()
}

impl LimitCell {
    fn new(pareto: &Pareto, entry: &SeriesEntry) -> Self {
        let found = row_of(pareto, entry);
        let best = found.and_then(|at| at.best.as_ref());
        let missed = found.and_then(|at| Some((at.near_miss.as_ref()?, at.limit)));
        let missed = missed.map(|(point, limit)| near_miss(pareto, entry, point.x, limit));
        let is_standard = entry.series.architecture == Architecture::Standard;
        let over = best.filter(|_| !is_standard).and_then(|best| over_standard(pareto, best, entry));
        let (beside, meaning) = match (over, missed) {
            (Some(over), _) => over,
            (None, Some(missed)) => (missed, format!("~: just over the limit ({})", pareto.unit().0)),
            // across batch sizes a ratio is no speedup, and both labels show the batch
            (None, None) => Default::default(),
        };
        Self {
            value: best.map_or(NO_POINT.into(), |best| digits(best.y)),
            x: best.map_or_else(String::new, |best| {
                let (unit, by) = pareto.unit();
                format!("at {} {unit}", digits(best.x / by))
            }),
            label: best
                .and_then(|best| pareto.point(&best.run))
                .map_or_else(String::new, ParetoPoint::label),
            beside,
            meaning,
        }
    }
}

/// Point of a series that is just over a limit: `~8x4 205`.
fn near_miss(pareto: &Pareto, entry: &SeriesEntry, x: f64, limit: f64) -> String {
    let by = pareto.unit().1;
    let of = |p: &&ParetoPoint| p.series() == entry.series && pareto.axes.x.value(p) == Some(x);
    let label = pareto.visible().find(of).map_or_else(String::new, ParetoPoint::label);
    let (x, limit) = (digits(x / by), digits(limit / by));
    // a rounded value must not read as the limit itself
    let beyond = match pareto.axes.x.is_more_better() {
        _ if x != limit => "",
        true => "<",
        false => ">",
    };
    format!("~{label} {beyond}{x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_another_axis_is_typed_with_its_name() {
        let on = |typed| parse_on(typed, XAxis::Completion, ("s", 1e3));
        assert_eq!(on("30 ms tpot"), Ok((XAxis::Tpot, Some(30.0))));
        assert_eq!(on("TPOT 30"), Ok((XAxis::Tpot, Some(30.0))));
        assert_eq!(on("50 tokens/s/user"), Ok((XAxis::User, Some(50.0))));
        assert_eq!(on("2 completion"), Ok((XAxis::Completion, Some(2000.0))));
        assert_eq!(on("2"), Ok((XAxis::Completion, Some(2000.0))));
        assert_eq!(on("tpot"), Ok((XAxis::Tpot, None)));
        assert!(on("soon tpot").is_err());
        // as in a filter
        for typed in ["tpot<15", "tpot<15ms", "tpot <= 15 ms", "TPOT≤15", "15 ms tpot"] {
            assert_eq!(on(typed), Ok((XAxis::Tpot, Some(15.0))), "{typed}");
        }
        assert_eq!(on("<2"), Ok((XAxis::Completion, Some(2000.0))));
        assert_eq!(on("user>=50"), Ok((XAxis::User, Some(50.0))));
        for wrong in ["tpot>15", "user<50"] {
            assert!(on(wrong).is_err_and(|why| why.contains(" are 'at ")), "{wrong}");
        }
    }

    #[test]
    fn a_limit_is_typed_in_the_unit_of_the_axis_or_with_a_unit_of_time() {
        assert_eq!(parse(" 30 ", ("ms", 1.0)), Ok(Some(30.0)));
        assert_eq!(parse("30ms", ("ms", 1.0)), Ok(Some(30.0)));
        assert_eq!(parse("2 s", ("ms", 1.0)), Ok(Some(2000.0)));
        assert_eq!(parse("1.5", ("s", 1e3)), Ok(Some(1500.0)));
        assert_eq!(parse("900 ms", ("s", 1e3)), Ok(Some(900.0)));
        assert_eq!(parse("50 tokens/s/user", ("tokens/s/user", 1.0)), Ok(Some(50.0)));
        assert_eq!(parse("", ("ms", 1.0)), Ok(None));
        for wrong in ["soon", "-3", "0", "inf", "3 days"] {
            assert!(parse(wrong, ("ms", 1.0)).is_err(), "{wrong}");
        }
    }
}
