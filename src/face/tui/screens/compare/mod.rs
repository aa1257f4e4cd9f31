//! Screen 6: matched pairs along an axis, as a pivot, a list or a heat map over two settings.

pub mod compared;
mod detail;
mod draw;
mod header;
mod heat;
mod map;
mod marks;
mod pivot;
pub mod state;
#[cfg(test)]
mod tests;
mod winners;

use std::collections::HashSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use self::compared::AxisComparison;
pub use self::state::Compare;
use self::state::{Order, TableView};
use crate::desk::figure::FigureKind;
use crate::face::tui::figures;
use crate::face::tui::keymap::Action;
use crate::face::tui::prelude::*;
use study::analysis::{Axis, AxisCount, Comparison, HeatValue, Pivot, pivot_table};
use table::render::Sourced;

acts! {
    Open: "open", "Enter b", "open both timelines: the pair's run over its baseline, for runs with a trace", Some("timelines") => "open", "beside diff";
    Map: "map", "t", "next view: summary, list of pairs, map over TP and batch (or the settings that vary)", Some("view"), "heatmap table grid";
    PickSlice: "slice", "c", "map: choose the slice: the value, and the settings besides rows and columns", Some("slice"), "fixed";
    NextValue: "value", "v", "map; again: ratio, exposed communication, gap closed", Some("value");
    PickAxis: "axis", "a", "choose the axis to compare by", Some("axis"), "by architecture tp batch p2p";
    PickBaseline: "baseline", "B", "choose the baseline", Some("baseline"), "reference standard";
    Filter: "filter", "/", "filter: words, tp:4,8 arch:ladder, tpot<5, -word", Some("filter") => "find", "search narrow query";
    SortNext: "sort-next", "s >", "sort by the next column", Some("sort"), "order";
    SortPrevious: "sort-previous", "S <", "sort by the previous column", None;
    PickOrder: "sort-by", "O", "choose the column to sort by", None, "order";
    SortReverse: "sort-reverse", "I", "reverse the order", None;
    Undo: "undo", "u", "undo a change of the filter, order, axis or baseline", None, "back revert";
    Redo: "redo", "ctrl-r", "redo", None;
    Mark: "mark", "Space", "mark the row; if any is marked, only marked rows are exported", Some("mark");
    Left: "left", "Left h", "select the value to the left; list: scroll; map: a column to the left", None;
    Right: "right", "Right l", "select the value to the right; list: scroll; map: a column to the right", None;
    Fold: "fold", "e", "fold or open the details below the summary; list: a row of pairs with equal numbers", None;
    Flags: "flags", "f", "show or hide suspicious results", Some("flags"), "warnings noisy noise outliers";
    NextAxis: "next-axis", "]", "compare by the next axis that varies", None;
    PreviousAxis: "previous-axis", "[", "compare by the previous axis that varies", None;
}

impl Acts for Compare {
    type Act = Act;

    fn why_not(&self, act: Act, cx: &Context) -> Option<&'static str> {
        match act {
            Act::Undo => (!self.has_content()).then_some(NOTHING_TO_UNDO),
            // pairs are only compared while the screen is shown
            _ if cx.tab != Tab::Compare => None,
            // after an error, another axis is possible
            Act::NextAxis | Act::PreviousAxis if matches!(self.compared, Some(Err(_))) => None,
            _ if !self.has_content() => Some(cx.why_no_run()),
            Act::SortNext if self.map.is_some() => Some("a map has no order"),
            Act::PickSlice if self.map.is_none() => Some("only on the map"),
            Act::Open if self.traced_runs().is_empty() => Some("no timeline of this pair"),
            _ => None,
        }
    }

    fn hint(&self, act: Act, _cx: &Context) -> Option<HintWords> {
        // the key also opens the map, but the footer shows it only on the map
        (act == Act::NextValue && self.map.is_none()).then_some(HintWords::HIDDEN)
    }

    fn act(&mut self, act: Act, cx: &mut Context) {
        match act {
            Act::Open => self.open(cx),
            Act::SortNext | Act::SortPrevious | Act::SortReverse | Act::PickOrder
                if self.map.is_some() =>
            {
                let key = cx.key::<Compare>(Act::Map);
                cx.inform(format!("a map has no order: {key} switches to the tables, which have one"));
            }
            Act::PickAxis | Act::PickBaseline | Act::PickOrder => self.pick(act, cx),
            // a baseline that no longer exists
            Act::NextAxis | Act::PreviousAxis if matches!(self.compared, Some(Err(_))) => {
                self.compare_by(self.asked.axis.clone(), None);
            }
            Act::NextAxis | Act::PreviousAxis => {
                let axes = self.compared().map_or_else(Vec::new, |of| self.axes_in_scope(of));
                let axes: Vec<Axis> = axes.into_iter().map(|of| of.axis).collect();
                let next = match axes.contains(&self.asked.axis) {
                    true => next_of(&axes, self.asked.axis.clone(), act == Act::PreviousAxis),
                    false => axes.first().cloned().unwrap_or_else(|| self.asked.axis.clone()),
                };
                match next == self.asked.axis {
                    true => cx.inform(format!("these runs have pairs by {next} only")),
                    false => {
                        cx.inform(format!("compared by {next}, not {}", self.asked.axis));
                        self.compare_by(next, None);
                    }
                }
            }
            Act::Map => match (&self.map, self.view) {
                (Some(_), _) => self.show(TableView::Pivot),
                (None, TableView::Pivot) => self.show(TableView::Pairs),
                (None, TableView::Pairs) => {
                    self.open_map_on_selected();
                    if self.map.is_none() {
                        cx.inform("no pairs to draw a map of");
                        self.show(TableView::Pivot);
                    }
                }
            },
            // from another view, the first press opens the map
            Act::PickSlice | Act::NextValue if self.map.is_none() => {
                self.open_map_on_selected();
                match &self.map {
                    None => cx.inform("no pairs to draw a map of"),
                    Some(_) if act == Act::PickSlice => self.pick(act, cx),
                    Some(_) => {}
                }
            }
            Act::PickSlice => self.pick(act, cx),
            Act::NextValue => {
                self.value = next_of(&HeatValue::ALL, self.value, false);
            }
            Act::Left | Act::Right => {
                let by = if act == Act::Left { -1 } else { 1 };
                match self.map {
                    Some(_) => self.move_cursor(0, by),
                    None if self.view == TableView::Pivot => self.move_column(by),
                    None => draw::scroll(self, by, cx.body().width),
                }
            }
            Act::Fold if self.map.is_some() => {
                let key = cx.key::<Compare>(Act::Map);
                cx.inform(format!("a map has nothing to fold: {key} switches to the tables"));
            }
            Act::Fold if self.shows_pivot() => match self.pivot_width_beside_details(cx.body()) {
                Some(_) => cx.inform("the details are shown next to the summary and need no folding"),
                None => self.is_folded = !self.is_folded,
            },
            Act::Fold => {
                if !self.fold() {
                    cx.inform("no other pair has the same numbers as this one");
                }
            }
            Act::Filter => {
                self.map = None;
                self.filter.begin();
            }
            Act::SortNext | Act::SortPrevious => self.order_by_next(act == Act::SortPrevious),
            Act::SortReverse => {
                self.descending = !self.descending;
                self.arrange();
            }
            // the session's history undoes arrangements
            Act::Undo => cx.inform(NOTHING_TO_UNDO),
            Act::Redo => cx.inform("nothing to redo"),
            Act::Mark => self.toggle_mark(),
            Act::Flags => (self.flags, self.first_flag) = (!self.flags, 0),
        }
    }
}

impl Screen for Compare {
    fn draw(&self, buf: &mut Buffer, body: Rect, cx: &Context) {
        draw::draw(buf, body, self, cx);
    }

    fn list(&mut self, body: Rect) -> Option<ScreenList<'_>> {
        let area = cut_top(self.areas(body).table, 1).1;
        let len = match self.view {
            TableView::Pivot => self.pivot.rows.len(),
            TableView::Pairs => self.shown.len(),
        };
        self.map.is_none().then_some(ScreenList { len, area, rows: 1, list: &mut self.list })
    }

    fn filter(&mut self) -> Option<&mut FilterBox> {
        Some(&mut self.filter)
    }

    fn input(&mut self, input: ScreenInput<'_>, _cx: &mut Context) -> bool {
        match input {
            ScreenInput::Step(rows) if self.flags => {
                let last = self.flagged.len().saturating_sub(1);
                self.first_flag = self.first_flag.saturating_add_signed(rows).min(last);
            }
            ScreenInput::Step(rows) if self.map.is_some() => self.move_cursor(rows, 0),
            ScreenInput::Step(_) if self.shows_pivot() => {
                self.hold_column();
                // the list moves
                return false;
            }
            ScreenInput::Mouse(body, event)
                if event.kind == PointerKind::Click && self.shows_pivot() =>
            {
                let area = self.areas(body).table;
                let value = self.compared().and_then(|c| pivot::value_at(self, c, area, event.at));
                let Some(value) = value else { return false };
                // a title selects the column only
                let row =
                    usize::from(event.at.y - area.y).checked_sub(1).map(|row| self.list.offset + row);
                if let Some(row) = row.filter(|row| *row < self.pivot.rows.len()) {
                    self.list.selected = row;
                }
                self.choose(Some(value));
            }
            ScreenInput::Mouse(body, event) if event.kind == PointerKind::Click => {
                let cell = |map| heat::cell_at(self.areas(body).table, map, self.cursor.1, event.at);
                let Some(cell) = self.map.as_ref().and_then(cell) else { return false };
                self.cursor = cell;
            }
            ScreenInput::Narrow => self.narrow(),
            ScreenInput::Close if std::mem::take(&mut self.flags) => {}
            ScreenInput::Close if self.map.is_some() => self.show(self.view),
            ScreenInput::Close if self.shows_pivot() && self.column.is_some() => self.choose(None),
            ScreenInput::Close if self.filter.drop_text() => self.narrow(),
            ScreenInput::Close => self.marked.clear(),
            _ => return false,
        }
        true
    }

    fn own_edits(&self) -> Option<OwnEdits> {
        Some(OwnEdits::default())
    }

    fn has_content(&self) -> bool {
        self.compared().is_some_and(|compared| compared.axes.iter().any(|axis| !axis.pairs.is_empty()))
    }

    fn command(&self) -> Result<Command, &'static str> {
        self.compared().ok_or(NO_COMMAND)?;
        let mut words = vec!["compare".to_owned(), "--by".into(), self.asked.axis.to_string()];
        if let Some(baseline) = &self.asked.baseline {
            words.extend(["--against".into(), baseline.clone()]);
        }
        if !self.filter.text().trim().is_empty() {
            words.extend(["--filter".into(), self.filter.text().trim().into()]);
        }
        // the command prints all pairs and slices
        let mut beyond = Vec::from_iter(self.filter.beyond());
        if self.map.is_some() {
            words.push("--heatmap".into());
            if !self.map_slices.axes.is_plain() {
                beyond.push("the rows and columns of the map".into());
            }
            if self.slices_shown.len() > 1 {
                beyond.push(format!("the slice {}", self.slice_name()));
            }
        } else {
            if self.view == TableView::Pivot {
                words.push("--pivot".into());
            }
            match self.marked.len() {
                0 => {}
                1 => beyond.push("the mark".into()),
                marks => beyond.push(format!("the {marks} marks")),
            }
        }
        Ok(Command { words, beyond })
    }

    fn react(&mut self, news: &News, _cx: &mut Context) {
        if let News::Runs { now, before } = news {
            self.reading += u64::from(!now.has_runs_of(before.as_ref()));
        }
    }

    fn settle(&mut self, _body: Rect, cx: &mut Context) {
        if let Some(runs) = cx.stored.clone() {
            let (asked, cells, dir) = (self.asked.clone(), Arc::clone(&self.cells), cx.dir.clone());
            let work = move |_: &_| AxisComparison::new(&cells.of(&runs, &dir), &asked).map(Arc::new);
            let key = (self.asked.clone(), self.reading);
            cx.want("comparison", &key, work, |screen: &mut Self, compared, _| screen.set(compared));
        }
        if let Some(of) = self.answer_of() {
            let asked = of.clone();
            let work = move |_: &_| {
                let answer = of.0.answer(&of.1);
                Ok((of, answer))
            };
            cx.want("headline", &asked, work, |screen: &mut Self, answer, cx| {
                screen.answer = cx.ok_or_fail(answer);
                if let Some((_, findings)) = screen.answer.as_mut().filter(|(_, of)| of.is_mixed)
                    && let Some(own) = cx.scope.own()
                {
                    let key = cx.keys.label(Action::Scope);
                    findings.headline += &format!("; {key} compares {} alone", own.experiment);
                }
            });
        }
        let Some(of) = self.map_of() else { return };
        let work = {
            let of = of.clone();
            move |_: &_| Ok((of.0.gaps(of.1), of))
        };
        cx.want("gaps", &of, work, |screen: &mut Self, found, cx| {
            screen.gaps = cx.ok_or_fail(found).map(|(why, of)| (of, why));
        });
    }

    fn status(&self, _cx: &Context) -> ScreenStatus {
        ScreenStatus { hints: self.filter.taken(), ..ScreenStatus::default() }
    }

    fn notes(&self, body: Rect, cx: &Context) -> Vec<ScreenNote> {
        draw::notes(self, body, cx)
    }

    fn selection(&self, _cx: &Context) -> ScreenSelection {
        let kind = match &self.asked.axis {
            axis if *axis == Axis::P2P => FigureKind::P2p,
            axis if *axis == Axis::TP => FigureKind::Throughput,
            _ => FigureKind::Improvement,
        };
        let pairs = self.exported_report().map(|report| report.pairs).unwrap_or_default();
        let mut runs: Vec<String> =
            pairs.into_iter().flat_map(|pair| [pair.run, pair.baseline_run]).collect();
        // several pairs share a baseline
        let mut seen = HashSet::new();
        runs.retain(|run| seen.insert(run.clone()));
        let runs = Some(runs).filter(|runs| !runs.is_empty());
        let run =
            |pair: &Comparison| SelectedRun { spec: pair.side.spec.clone(), run: pair.run.clone() };
        let figure = Subject { kind: Some(kind), runs, ..Subject::default() };
        ScreenSelection { run: self.selected().map(run), figure }
    }

    fn export(&self, kind: FileKind, cx: &Context) -> Result<Option<Export>, String> {
        let report = self.exported_report().filter(|report| !report.pairs.is_empty());
        let report = report.ok_or("nothing to export: no pairs are shown")?;
        let exported = self.exported();
        Ok(match kind {
            FileKind::Csv if self.shows_pivot() => {
                let whole = &self.compared().ok_or("nothing is compared yet")?.report;
                let pivot = match exported.are_marked {
                    true => Pivot::new(whole, &exported.pairs),
                    // in the order of the screen
                    false => self.pivot.clone(),
                };
                let text = pivot_table(whole, &pivot).csv(Sourced::ByRow);
                Some(Export::text(text).holding(exported.words(pivot.rows.len(), "row")))
            }
            FileKind::Csv => {
                let text = study::analysis::pairs_table(&report).csv(Sourced::ByRow);
                Some(Export::text(text).holding(exported.words(report.pairs.len(), "pair")))
            }
            // the map exports as a picture, the tables as a figure
            _ if self.map.is_some() || kind == FileKind::Html => None,
            _ => Some(figures::comparison(cx, report)),
        })
    }
}

#[derive(Clone, Copy, Debug)]
struct CompareAreas {
    title: Rect,
    table: Rect,
    /// All values at the selected setting of the pivot; empty without room for them.
    setting: Rect,
    detail: Rect,
}

/// Height of the pair details; a taller window also shows the breakdown of the difference.
const DETAIL: u16 = 10;

/// Height of folded pair details: the result in its frame.
const FOLDED: u16 = 3;

/// Rows for the pair's details next to the pivot, where sentences wrap.
const MOST_DETAIL: u16 = DETAIL + 5;

/// Least window height for a row that explains the marks of the pivot.
const ROOM_FOR_LEGEND: u16 = 20;

/// Least window height for longer pair details, and for the caveat on simulated results in the header.
const TALL: u16 = 36;

/// Least height of the pivot, with its header; in a window with room for the legend, the list of pairs keeps half.
const LEAST_PIVOT: u16 = 8;

/// Most rows of a map that are kept before the pair details.
const MOST_MAP_ROWS: usize = 8;

/// Header of the pivot, a gap, and the validation of simulated cells.
const BESIDE_ROWS: usize = 5;

/// Frame and header of the values at a setting.
const HEAD_OF_SETTING: usize = 3;

/// Minimum width of the pair's details next to the pivot.
const LEAST_BESIDE: u16 = 100;

/// Room right of the pivot for the numbers of hidden rows.
const HIDDEN_ROWS: u16 = 10;

impl Compare {
    fn areas(&self, body: Rect) -> CompareAreas {
        let above_status = self.answer_rows(body).len() as u16 + u16::from(self.has_counts());
        let (title, rest) = cut_top(body, above_status + 1 + u16::from(self.has_legend(body)));
        if let Some(width) = self.pivot_width_beside_details(body) {
            let (table, beside) = cut_left(rest, width);
            let setting = (self.pivot.values.len() + HEAD_OF_SETTING) as u16;
            let has_setting = self.pivot.values.len() > 1 && beside.height >= setting + DETAIL;
            let (setting, below) = cut_top(beside, if has_setting { setting } else { 0 });
            return CompareAreas { title, table, setting, detail: cut_top(below, MOST_DETAIL).0 };
        }
        // the caveat shortens the details, not the pivot
        let more = if body.height >= TALL { 3 - self.caveat_rows(body).len() as u16 } else { 0 };
        let detail = match self.is_folded && self.shows_pivot() && !self.flags {
            true => FOLDED,
            false => DETAIL + more,
        };
        let least = match &self.map {
            _ if self.shows_pivot() => (self.pivot.rows.len() + 1).clamp(3, LEAST_PIVOT.into()) as u16,
            Some(map) => heat::HEAD + map.rows.len().min(MOST_MAP_ROWS) as u16,
            None if body.height < ROOM_FOR_LEGEND => LEAST_PIVOT,
            None => LEAST_PIVOT.div_ceil(2),
        };
        let (table, detail) = cut_bottom(rest, detail.min(rest.height.saturating_sub(least)));
        let (rows, values) = (self.pivot.rows.len(), self.pivot.values.len());
        let has_setting = self.shows_pivot()
            && rows > 0
            && values > 1
            && usize::from(table.height) >= rows + BESIDE_ROWS + values + HEAD_OF_SETTING;
        let setting = if has_setting { values + HEAD_OF_SETTING } else { 0 };
        let (table, setting) = cut_bottom(table, setting as u16);
        CompareAreas { title, table, setting, detail }
    }

    /// Width of the pivot in a window that is wide enough for the pair details beside it.
    fn pivot_width_beside_details(&self, body: Rect) -> Option<u16> {
        let compared = self.compared().filter(|_| self.shows_pivot() && !self.pivot.rows.is_empty())?;
        let width = pivot::needed_width(self, compared, body.width) + HIDDEN_ROWS;
        (width + LEAST_BESIDE <= body.width).then_some(width)
    }

    /// True if a row below the status row explains the marks.
    fn has_legend(&self, body: Rect) -> bool {
        self.shows_pivot() && body.height >= ROOM_FOR_LEGEND
    }

    /// True if a row above the status row names the comparison. The pivot shows the answer there.
    fn has_counts(&self) -> bool {
        !self.shows_pivot() || self.pairs().is_empty()
    }

    /// First rows: the findings and the caveat.
    fn answer_rows(&self, body: Rect) -> Vec<String> {
        [self.finding_rows(body), self.caveat_rows(body)].concat()
    }

    /// Caveat on the simulated order of architectures, in a tall window.
    fn caveat_rows(&self, body: Rect) -> Vec<String> {
        let caveat = self.caveat().filter(|_| self.shows_pivot() && body.height >= TALL);
        let Some(caveat) = caveat else { return Vec::new() };
        // the status row has the provenance
        let short = caveat.replace(" published pairs", " pairs");
        let texts = [format!("Simulated: {caveat}"), caveat.to_owned(), short];
        headline_rows(first_fitting(&texts, body.width.saturating_sub(2)), body.width, 2)
    }

    /// The headline, and below it signs of noise and the winners by setting; on the list and the map, the beginning of the
    /// headline if there is room.
    fn finding_rows(&self, body: Rect) -> Vec<String> {
        if self.pairs().is_empty() {
            return Vec::new();
        }
        let (headline, has_room) = (self.headline(), body.height >= ROOM_FOR_LEGEND);
        if !self.shows_pivot() {
            let has_answer = has_room && !self.kept.is_empty();
            return has_answer.then(|| header::leading_row(headline, body.width)).into_iter().collect();
        }
        let [noise, winners] = [self.noise(), self.winners()].map(|text| text.filter(|_| has_room));
        let lead = self.lead();
        let first = header::leading_row(lead, body.width);
        let mut rows = match winners {
            None => headline_rows(headline, body.width, usize::from(body.height / 6).clamp(2, 4)),
            // a first clause of two rows has the numbers
            Some(_) if first.contains('…') && body.height >= TALL => {
                headline_rows(lead, body.width, 2)
            }
            Some(_) => vec![first],
        };
        rows.extend(noise.into_iter().flat_map(|noise| headline_rows(noise, body.width, 1)));
        rows.extend(winners.into_iter().flat_map(|winners| headline_rows(winners, body.width, 2)));
        rows
    }

    /// Headline, signs of noise and winners by setting, in full.
    fn whole_answer(&self) -> Vec<&str> {
        let headline = self.lead().trim_end_matches('.');
        [Some(headline), self.noise(), self.winners()].into_iter().flatten().collect()
    }

    /// Opens the timelines of the selected pair, or says why there are none and what to do.
    fn open(&self, cx: &mut Context) {
        let runs = self.traced_runs();
        if let Some(why) = self.why_no_pair() {
            cx.inform(format!("{why}; {}", cx.keys.to_first_run()));
        } else if runs.is_empty() && self.selected().is_some() {
            let next = cx.keys.to_first_run();
            cx.inform(format!("{}; run the cells again: {next}", self.why_no_timeline()));
        } else {
            cx.open_runs(runs);
        }
    }

    /// Opens a picker for the axis, the baseline or the map slice.
    fn pick(&self, act: Act, cx: &mut Context) {
        let Some(compared) = self.compared().cloned() else {
            return cx.inform("nothing is compared yet");
        };
        let slices = self.slices_shown.clone();
        // those without pairs have nothing to compare
        let axes = self.axes_in_scope(&compared);
        let (title, lines): (_, Vec<(String, String)>) = match act {
            Act::PickAxis => {
                let of = |axis: &AxisCount| {
                    let [values, pairs] = self.left_of_axis(&compared, axis);
                    format!("{values} values  {pairs:>4} pairs")
                };
                let lines = axes.iter().map(|axis| (axis.axis.to_string(), of(axis)));
                ("compare by", lines.collect())
            }
            Act::PickBaseline => {
                let values = compared.report.values.iter();
                ("compare with", values.map(|value| (value.clone(), String::new())).collect())
            }
            Act::PickOrder => {
                // typing the name of the measure finds the column, too
                let about = |order: Order| if order == Order::Hidden { "overlap" } else { "" };
                let line = |order: Order| (order.name().to_owned(), about(order).to_owned());
                ("sort by", Order::all().map(line).collect())
            }
            _ => {
                let of = |&(at, pairs): &(usize, usize)| {
                    (self.map_slices.names[at].clone(), counted(pairs, "cell"))
                };
                ("the map holds fixed", slices.iter().map(of).collect())
            }
        };
        let take = move |compare: &mut Self, chosen, _: &mut Context| {
            let PickResult::Line(at) = chosen else { return };
            match act {
                Act::PickAxis => compare.compare_by(axes[at].axis.clone(), None),
                // the axis may have changed in the meantime
                Act::PickBaseline if compared.report.by != compare.asked.axis.to_string() => {}
                Act::PickBaseline => {
                    let axis = compare.asked.axis.clone();
                    compare.compare_by(axis, compared.report.values.get(at).cloned());
                }
                Act::PickOrder => {
                    compare.order = Order::all().nth(at).unwrap_or_default();
                    compare.arrange();
                }
                _ => {
                    compare.slice = slices[at].0;
                    compare.open_map();
                }
            }
        };
        cx.pick(title, lines, |_, _| None, take);
    }
}

/// The view is not kept: the screen opens on the summary.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct KeptCompare {
    by: String,
    baseline: Option<String>,
    order: String,
    descending: bool,
    is_folded: bool,
}

impl PersistentScreen for Compare {
    type Kept = KeptCompare;

    fn keep(&self) -> Option<KeptCompare> {
        let (by, baseline) = (self.asked.axis.to_string(), self.asked.baseline.clone());
        let (order, descending) = (self.order.name().into(), self.descending);
        Some(KeptCompare { by, baseline, order, descending, is_folded: self.is_folded })
    }

    fn restore(&mut self, kept: KeptCompare, _cx: &mut Context) {
        self.order = Order::named(&kept.order).unwrap_or(self.order);
        (self.descending, self.is_folded) = (kept.descending, kept.is_folded);
        self.arrange();
        let is_asked = |axis: &Axis| (axis, &kept.baseline) == (&self.asked.axis, &self.asked.baseline);
        if let Some(axis) = Axis::parse(&kept.by).ok().filter(|axis| !is_asked(axis)) {
            self.compare_by(axis, kept.baseline);
        }
    }
}
