//! Undo of how a list is arranged: its filter, order, groups and axes. Screens undo their own edits; `u` takes back
//! whichever came last.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::prelude::*;
use super::widgets::field::Field;

/// Keys of a screen's saved state that arrange what it shows, with their names in messages.
const KEYS: [(&str, &str); 12] = [
    // grouping changes the order too
    ("grouped", "grouping"),
    ("sort", "order"),
    ("order", "order"),
    ("descending", "order"),
    ("group", "group"),
    ("by", "axis"),
    ("baseline", "baseline"),
    ("x", "axes"),
    ("y", "axes"),
    ("x_scale", "scale"),
    ("y_scale", "scale"),
    ("p2p", "P2P"),
];

/// Maximum number of arrangements to return to, per screen.
const MOST: usize = 64;

#[derive(Clone, Debug, PartialEq)]
struct Arrangement {
    kept: Map<String, Value>,
    filter: String,
}

impl Arrangement {
    /// Name of the first difference to another arrangement.
    fn difference(&self, other: &Self) -> &'static str {
        let differs = |(key, _): &&(&str, &str)| self.kept.get(*key) != other.kept.get(*key);
        // a filter may change the group too
        let keys = if self.filter == other.filter { &KEYS[..] } else { &[] };
        keys.iter().find(differs).map_or("filter", |(_, name)| name)
    }
}

/// Arrangement of the current screen before an input.
#[derive(Debug)]
pub struct Before {
    tab: Tab,
    is_typing: bool,
    arrangement: Arrangement,
}

/// Arrangements of each screen to return to, latest last, each with the number of the screen's own edits then.
#[derive(Debug, Default)]
pub struct Arrangements {
    undo: BTreeMap<Tab, Vec<(Arrangement, usize)>>,
    /// Arrangement of each screen before the filter that is being typed there.
    typing: BTreeMap<Tab, Arrangement>,
    /// True if the current input took an arrangement back.
    is_undone: bool,
}

/// Arrangement of the current screen, before an input that may change it.
pub fn before(state: &mut State) -> Before {
    state.cx.arrangements.is_undone = false;
    let tab = state.cx.tab;
    let (is_typing, arrangement) = current(state, tab);
    Before { tab, is_typing, arrangement }
}

fn current(state: &mut State, tab: Tab) -> (bool, Arrangement) {
    let (screen, _) = state.split(tab);
    let filter = screen.filter().map(|filter| (filter.typing, filter.value().to_owned()));
    let (is_typing, filter) = filter.unwrap_or_default();
    let mut kept = match screen.remember() {
        Some(Value::Object(kept)) => kept,
        _ => Map::new(),
    };
    kept.retain(|key, _| KEYS.iter().any(|(known, _)| known == key));
    (is_typing, Arrangement { kept, filter })
}

/// Records the arrangement before an input that changed it; a typed filter counts once it is kept or dropped.
pub fn after(state: &mut State, before: Before) {
    let Before { tab, is_typing: was_typing, arrangement } = before;
    let (is_typing, now) = current(state, tab);
    let own = state.split(tab).0.own_edits();
    let arrangements = &mut state.cx.arrangements;
    let first = match (was_typing, is_typing) {
        (false, true) => {
            arrangements.typing.insert(tab, arrangement);
            return;
        }
        (true, true) => return,
        (true, false) => arrangements.typing.remove(&tab).unwrap_or(arrangement),
        (false, false) => arrangement,
    };
    if first != now && !std::mem::take(&mut arrangements.is_undone) {
        let undo = arrangements.undo.entry(tab).or_default();
        undo.push((first, own));
        if undo.len() > MOST {
            undo.remove(0);
        }
    }
}

/// Takes the last change of the arrangement back; false if there is none, or the screen's own last edit is later.
pub fn undo(state: &mut State, tab: Tab) -> bool {
    let (_, now) = current(state, tab);
    let (screen, cx) = state.split(tab);
    let Some(undo) = cx.arrangements.undo.get_mut(&tab) else { return false };
    let own = screen.own_edits();
    let Some((arrangement, _)) = undo.pop_if(|(_, edits)| own <= *edits) else { return false };
    cx.arrangements.is_undone = true;
    if let Some(Value::Object(mut all)) = screen.remember().filter(|_| arrangement.kept != now.kept) {
        all.extend(arrangement.kept.clone());
        screen.recall(&Value::Object(all), cx);
    }
    if let Some(filter) = screen.filter().filter(|_| arrangement.filter != now.filter) {
        filter.field = Field::new(&arrangement.filter);
        screen.input(Input::Narrow, cx);
    }
    cx.inform(format!("undone: {}", arrangement.difference(&now)));
    true
}
