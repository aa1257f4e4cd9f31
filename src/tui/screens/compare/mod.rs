//! Screen 6: matched pairs along an axis, as a table or as a map over TP and batch.

mod detail;
mod draw;
mod heat;
pub mod state;
#[cfg(test)]
mod tests;

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use tui_input::Input;

use self::state::{Choice, Order, Picker};
use crate::analysis::{Axis, HeatValue};
use crate::tui::action::{Action, Binding, bind};
use crate::tui::figures;
use crate::tui::keys::{paste_into, type_into};
use crate::tui::layout::{cut_bottom, cut_top};
use crate::tui::message::Effect;
use crate::tui::page::{Export, FileKind, Page, Pointer, PointerKind};
use crate::tui::state::{List, State};
use crate::tui::update::{open_run, open_runs};

/// What can be done here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    Open,
    OpenBoth,
    PickAxis,
    PickBaseline,
    NextAxis,
    PreviousAxis,
    Map,
    PickSlice,
    NextValue,
    Left,
    Right,
    Filter,
    SortNext,
    SortPrevious,
    SortReverse,
    Mark,
    Flags,
}

#[rustfmt::skip]
const BINDINGS: &[Binding] = &[
    bind("open", "Enter", Action::Compare(Act::Open), "open the timeline of the pair's run", Some("timeline")),
    bind("axis", "a", Action::Compare(Act::PickAxis), "choose the axis to compare by", Some("axis")),
    bind("baseline", "B", Action::Compare(Act::PickBaseline), "choose what to compare with", Some("baseline")),
    bind("map", "t", Action::Compare(Act::Map), "table, or map over TP and batch", Some("map")),
    bind("open-both", "b", Action::Compare(Act::OpenBoth), "open both timelines: the pair's run over its baseline", Some("both")),
    bind("filter", "/", Action::Compare(Act::Filter), "filter: parts of words, all of which a pair must have", Some("filter")),
    bind("sort-next", "s >", Action::Compare(Act::SortNext), "sort by the next column", Some("sort")),
    bind("sort-previous", "S <", Action::Compare(Act::SortPrevious), "sort by the previous column", None),
    bind("sort-reverse", "r", Action::Compare(Act::SortReverse), "reverse the order", None),
    bind("mark", "Space", Action::Compare(Act::Mark), "mark the pair: marked pairs alone are exported", Some("mark")),
    bind("slice", "c", Action::Compare(Act::PickSlice), "map: choose what it holds fixed", None),
    bind("value", "v", Action::Compare(Act::NextValue), "map: ratio, exposed communication, hidden share", None),
    bind("left", "Left h", Action::Compare(Act::Left), "map: a batch to the left", None),
    bind("right", "Right l", Action::Compare(Act::Right), "map: a batch to the right", None),
    bind("flags", "f", Action::Compare(Act::Flags), "show or hide what looks wrong", Some("flags")),
    bind("next-axis", "n", Action::Compare(Act::NextAxis), "compare by the next axis that varies", None),
    bind("previous-axis", "N", Action::Compare(Act::PreviousAxis), "compare by the previous axis that varies", None),
];

/// The page.
#[derive(Debug)]
pub struct Compare;

impl Page for Compare {
    fn title(&self) -> &'static str {
        "compare"
    }

    fn bindings(&self) -> &'static [Binding] {
        BINDINGS
    }

    fn draw(&self, buf: &mut Buffer, body: Rect, state: &State) {
        draw::draw(buf, body, state);
    }

    fn list_area(&self, state: &State, body: Rect) -> Option<(usize, Rect)> {
        let table = areas(body).table;
        state.compare.map.is_none().then(|| (state.compare.shown.len(), cut_top(table, 1).1))
    }

    fn list<'a>(&self, state: &'a mut State) -> Option<&'a mut List> {
        Some(&mut state.compare.list)
    }

    fn step(&self, state: &mut State, rows: isize) -> Vec<Effect> {
        if state.compare.map.is_some() {
            state.compare.move_cursor(rows, 0);
        } else {
            let len = state.compare.shown.len();
            state.compare.list.move_by(rows, len);
        }
        Vec::new()
    }

    fn typed(&self, state: &mut State, key: KeyEvent) -> Option<Vec<Effect>> {
        if state.compare.picker.is_some() {
            return Some(in_picker(state, key));
        }
        let compare = &mut state.compare;
        if !compare.typing {
            return None;
        }
        match key.code {
            KeyCode::Enter | KeyCode::Down | KeyCode::Tab => compare.typing = false,
            KeyCode::Esc => {
                compare.typing = false;
                compare.filter.reset();
                compare.arrange();
            }
            _ if type_into(&mut compare.filter, key) => compare.arrange(),
            _ => {}
        }
        Some(Vec::new())
    }

    fn paste(&self, state: &mut State, text: &str) -> Option<Vec<Effect>> {
        let compare = &mut state.compare;
        if let Some(picker) = &mut compare.picker {
            paste_into(&mut picker.input, text);
            picker.selected = 0;
            return Some(Vec::new());
        }
        compare.typing.then(|| {
            paste_into(&mut compare.filter, text);
            compare.arrange();
            Vec::new()
        })
    }

    fn pointer(&self, state: &mut State, body: Rect, event: Pointer) -> Option<Vec<Effect>> {
        if event.kind == PointerKind::Click {
            state.compare.typing = false;
            if state.compare.picker.take().is_some() {
                return Some(Vec::new());
            }
        }
        let map = state.compare.map.as_ref()?;
        if event.kind == PointerKind::Click
            && let Some(cell) = heat::at(areas(body).table, map, state.compare.cursor.1, event.at)
        {
            state.compare.cursor = cell;
            return Some(Vec::new());
        }
        None
    }

    fn close(&self, state: &mut State) {
        let compare = &mut state.compare;
        if compare.picker.take().is_some() {
        } else if compare.flags {
            compare.flags = false;
        } else if compare.map.take().is_some() {
        } else if !compare.filter.value().is_empty() {
            compare.filter.reset();
            compare.arrange();
        } else {
            compare.marked.clear();
        }
    }

    fn remember(&self, state: &State) -> Option<serde_json::Value> {
        let compare = &state.compare;
        Some(serde_json::json!({
            "by": compare.asked.axis.to_string(),
            "baseline": compare.asked.baseline,
            "order": compare.order.name(),
            "descending": compare.descending,
            "filter": compare.filter.value(),
        }))
    }

    fn recall(&self, state: &mut State, kept: &serde_json::Value) -> Vec<Effect> {
        let text = |key: &str| kept.get(key).and_then(serde_json::Value::as_str);
        let compare = &mut state.compare;
        if let Some(order) = Order::ALL.into_iter().find(|order| text("order") == Some(order.name())) {
            compare.order = order;
        }
        compare.descending = kept.get("descending").and_then(serde_json::Value::as_bool) == Some(true);
        compare.filter = Input::new(text("filter").unwrap_or_default().to_owned());
        compare.arrange();
        match text("by").and_then(|name| Axis::parse(name).ok()) {
            Some(axis) => compare_by(state, axis, text("baseline").map(str::to_owned)),
            None => Vec::new(),
        }
    }

    fn command(&self, state: &State) -> Option<Vec<String>> {
        let compare = &state.compare;
        compare.compared()?;
        let axis = compare.asked.axis.to_string();
        let mut words = vec!["compare".to_owned(), "--by".into(), axis];
        if let Some(baseline) = &compare.asked.baseline {
            words.extend(["--baseline".into(), baseline.clone()]);
        }
        if compare.map.is_some() {
            words.push("--heatmap".into());
        }
        Some(words)
    }

    /// A verb compares all runs and prints all their pairs and slices.
    fn beyond_command(&self, state: &State) -> Vec<String> {
        let compare = &state.compare;
        let Some(compared) = compare.compared() else { return Vec::new() };
        if compare.map.is_some() {
            let slice = compared.slices.get(compare.slice).filter(|_| compared.slices.len() > 1);
            return slice.map(|slice| format!("the slice {}", slice.name())).into_iter().collect();
        }
        let mut beyond = Vec::new();
        if !compare.filter.value().is_empty() {
            beyond.push(format!("the filter /{}", compare.filter.value()));
        }
        match compare.marked.len() {
            0 => {}
            1 => beyond.push("the mark".into()),
            marks => beyond.push(format!("the {marks} marks")),
        }
        beyond
    }

    fn export(&self, state: &State, kind: FileKind) -> Result<Option<Export>, String> {
        let report = state.compare.shown_report().filter(|report| !report.pairs.is_empty());
        let report = report.ok_or("nothing to export: no pairs are shown")?;
        Ok(match kind {
            FileKind::Csv => Some(Export::text(crate::analysis::pairs_csv(&report))),
            // a picture of the map; the table has a figure
            _ if state.compare.map.is_some() => None,
            _ => Some(figures::comparison(state, report)),
        })
    }
}

/// Where things are.
#[derive(Clone, Copy, Debug)]
struct Areas {
    title: Rect,
    /// The table with its header, or the map.
    table: Rect,
    /// The selected pair.
    detail: Rect,
}

/// Rows of the selected pair; a taller window shows by what it differs, too.
const DETAIL: u16 = 10;

fn areas(body: Rect) -> Areas {
    let (title, rest) = cut_top(body, 2);
    let (table, detail) = cut_bottom(rest, if body.height >= 36 { DETAIL + 3 } else { DETAIL });
    Areas { title, table, detail }
}

/// A key while a picker is open.
fn in_picker(state: &mut State, key: KeyEvent) -> Vec<Effect> {
    let found = state.compare.choices();
    let Some(picker) = &mut state.compare.picker else { return Vec::new() };
    let last = found.len().saturating_sub(1);
    match key.code {
        KeyCode::Esc => state.compare.picker = None,
        KeyCode::Up => picker.selected = picker.selected.saturating_sub(1),
        KeyCode::Down => picker.selected = (picker.selected + 1).min(last),
        KeyCode::Enter => {
            let choice = picker.choice;
            let Some((index, ..)) = found.get(picker.selected.min(last)).cloned() else {
                return Vec::new();
            };
            state.compare.picker = None;
            return choose(state, choice, index);
        }
        _ => {
            if type_into(&mut picker.input, key) {
                picker.selected = 0;
            }
        }
    }
    Vec::new()
}

/// Takes what was picked.
fn choose(state: &mut State, choice: Choice, index: usize) -> Vec<Effect> {
    let Some(compared) = state.compare.compared().cloned() else { return Vec::new() };
    match choice {
        Choice::Axis => match compared.axes.get(index) {
            Some(axis) => compare_by(state, axis.axis.clone(), None),
            None => Vec::new(),
        },
        // another axis may be under way
        Choice::Baseline if compared.report.by != state.compare.asked.axis.to_string() => Vec::new(),
        Choice::Baseline => {
            let axis = state.compare.asked.axis.clone();
            compare_by(state, axis, compared.report.values.get(index).cloned())
        }
        Choice::Slice => {
            state.compare.slice = index;
            state.compare.open_map();
            Vec::new()
        }
    }
}

/// Asks for another comparison.
fn compare_by(state: &mut State, axis: Axis, baseline: Option<String>) -> Vec<Effect> {
    let compare = &mut state.compare;
    (compare.asked.axis, compare.asked.baseline) = (axis, baseline);
    (compare.slice, compare.cursor, compare.list) = (0, (0, 0), List::default());
    state.stored.clone().map(|runs| state.compare.ask(runs)).into_iter().collect()
}

/// Does what was asked for.
pub fn act(state: &mut State, act: Act) -> Vec<Effect> {
    let pick = |choice| Some(Picker { choice, input: Input::default(), selected: 0 });
    let compare = &mut state.compare;
    match act {
        Act::Open => {
            let run = compare.selected().map(|p| p.run.clone());
            return open_run(state, run);
        }
        Act::OpenBoth => {
            let pair = compare.selected().map(|p| [p.run.clone(), p.baseline_run.clone()]);
            return open_runs(state, pair.map_or_else(Vec::new, Vec::from), false);
        }
        Act::PickAxis => compare.picker = pick(Choice::Axis),
        Act::PickBaseline => compare.picker = pick(Choice::Baseline),
        Act::NextAxis | Act::PreviousAxis => {
            let axes: Vec<Axis> = compare
                .compared()
                .map(|compared| compared.axes.iter().map(|axis| axis.axis.clone()).collect())
                .unwrap_or_default();
            let at = axes.iter().position(|axis| *axis == compare.asked.axis);
            let next = match (at, act) {
                (None, _) => 0,
                (Some(at), Act::NextAxis) => at + 1,
                (Some(at), _) => at + axes.len() - 1,
            };
            if let Some(axis) = axes.get(next % axes.len().max(1)).cloned() {
                return compare_by(state, axis, None);
            }
            state.inform("the stored runs differ in nothing: there is no other axis");
        }
        Act::Map => {
            if compare.map.take().is_none() {
                compare.open_map();
                if compare.map.is_none() {
                    state.inform("no pairs: there is no map of them");
                }
            }
        }
        Act::PickSlice | Act::NextValue | Act::Left | Act::Right if compare.map.is_none() => {
            let key = state.keys.label(Action::Compare(Act::Map));
            state.inform(format!("that is the map's: {key} shows it"));
        }
        Act::PickSlice => compare.picker = pick(Choice::Slice),
        Act::NextValue => {
            let at = HeatValue::ALL.iter().position(|value| *value == compare.value).unwrap_or(0);
            compare.value = HeatValue::ALL[(at + 1) % HeatValue::ALL.len()];
        }
        Act::Left => compare.move_cursor(0, -1),
        Act::Right => compare.move_cursor(0, 1),
        Act::Filter => {
            compare.map = None;
            compare.typing = true;
        }
        Act::SortNext | Act::SortPrevious => compare.order_by_next(act == Act::SortPrevious),
        Act::SortReverse => {
            compare.descending = !compare.descending;
            compare.arrange();
        }
        Act::Mark => compare.toggle_mark(),
        Act::Flags => compare.flags = !compare.flags,
    }
    Vec::new()
}
