//! Undo and redo: one history of the session's changes. Arrangements of lists (filter, order, groups, axes) are
//! recorded here; screens undo and redo their own edits. A screen's own changes come first; then a second press of the
//! key goes to the screen of the latest other change. Moves of a view (zoom, pan) are undone on their own screen only.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::keymap::Action;
use super::prelude::*;
use super::scope::{self, ScopeChoice};
use super::widgets::field::TextField;

/// Keys of a screen's saved state ([`PersistentScreen`]) that arrange what it shows, with their names in messages. A
/// change of any other key cannot be undone.
const KEYS: [(&str, &str); 13] = [
    // grouping changes the order too
    ("grouping", "grouping"),
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
    ("p2p_of", "P2P"),
    ("limits_of", "limit"),
];

/// Maximum number of changes to undo.
const MOST: usize = 400;

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

#[derive(Clone, Debug)]
struct Change {
    tab: Tab,
    kind: ChangeKind,
}

#[derive(Clone, Debug)]
enum ChangeKind {
    /// Arrangement to return to.
    Arranged(Arrangement),
    /// Scope of all result screens to return to.
    Scoped(ScopeChoice),
    /// Own edit of the screen, and the number of its edits with this one.
    Own(OwnEdits),
}

impl Change {
    fn is_view(&self) -> bool {
        matches!(self.kind, ChangeKind::Own(OwnEdits { are_views: true, .. }))
    }
}

/// Changes of this session on all screens, latest last.
#[derive(Debug, Default)]
pub struct SessionHistory {
    done: Vec<Change>,
    undone: Vec<Change>,
    /// Number of own edits of each screen after the previous input.
    own: BTreeMap<Tab, usize>,
    /// Arrangement of each screen before the filter that is being typed there.
    typing: BTreeMap<Tab, Arrangement>,
    /// True if the current input undid or redid a change.
    has_travelled: bool,
    /// Screen on which the current input named a change of another screen, and true if the same key undoes it.
    offered: Option<(Tab, bool)>,
    /// The same of the previous input.
    was_offered: Option<(Tab, bool)>,
    /// True once anything was changed in this session, even if it is undone.
    pub is_used: bool,
}

/// State of the current screen before an input that may change it.
#[derive(Debug)]
pub struct StateBeforeInput {
    tab: Tab,
    is_typing: bool,
    arrangement: Arrangement,
    own: usize,
    scope: ScopeChoice,
}

pub fn before(state: &mut State) -> StateBeforeInput {
    forget_lost(state);
    let history = &mut state.cx.history;
    history.has_travelled = false;
    history.was_offered = history.offered.take();
    let tab = state.cx.tab;
    let (is_typing, arrangement) = current(state, tab);
    StateBeforeInput {
        tab,
        is_typing,
        arrangement,
        own: own_count(state, tab),
        scope: state.cx.scope.choice(),
    }
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

fn own_count(state: &State, tab: Tab) -> usize {
    state.screen(tab).own_edits().map_or(0, |own| own.count)
}

/// Drops history entries whose screen discarded its own edits without an undo, such as pans of a replaced trace.
fn forget_lost(state: &mut State) {
    for tab in Tab::ALL {
        let count = own_count(state, tab);
        let history = &mut state.cx.history;
        if history.own.insert(tab, count).is_some_and(|known| count < known) {
            let stays =
                |change: &Change| change.tab != tab || !matches!(change.kind, ChangeKind::Own(_));
            history.done.retain(stays);
            history.undone.retain(stays);
        }
    }
}

/// Records what an input changed; a typed filter counts once it is kept or dropped.
pub fn after(state: &mut State, before: StateBeforeInput) {
    let StateBeforeInput { tab, is_typing: was_typing, arrangement, own: had, scope } = before;
    if std::mem::take(&mut state.cx.history.has_travelled) {
        for tab in Tab::ALL {
            let count = own_count(state, tab);
            state.cx.history.own.insert(tab, count);
        }
        return;
    }
    forget_lost(state);
    let (is_typing, now) = current(state, tab);
    let own = state.screen(tab).own_edits().unwrap_or_default();
    let shown = state.cx.tab;
    // a group chosen with its scope; going to a screen is no change, and the key of the scope undoes itself
    let is_here = tab == shown && scope::is_scoped(shown);
    let is_rescoped = is_here && arrangement != now && scope != state.cx.scope.choice();
    let scoped = is_rescoped.then_some(Change { tab: shown, kind: ChangeKind::Scoped(scope) });
    let history = &mut state.cx.history;
    let first = match (was_typing, is_typing) {
        (false, true) => {
            history.typing.insert(tab, arrangement);
            return;
        }
        (true, true) => return,
        (true, false) => history.typing.remove(&tab).unwrap_or(arrangement),
        (false, false) => arrangement,
    };
    let edits = (had + 1..=own.count).map(|count| ChangeKind::Own(OwnEdits { count, ..own }));
    // a group chosen with the scope goes with it
    let arranged = (first != now && !is_rescoped).then_some(ChangeKind::Arranged(first));
    let changes: Vec<Change> =
        edits.chain(arranged).map(|kind| Change { tab, kind }).chain(scoped).collect();
    if changes.is_empty() {
        return;
    }
    history.is_used = true;
    history.undone.clear();
    history.done.extend(changes);
    let most = history.done.len().saturating_sub(MOST);
    history.done.drain(..most);
}

/// Undoes the last change of a screen, or redoes the one undone last. Without one, names the last change of another
/// screen, and performs it if the previous input did that; shows that screen. Returns false if there is none, so that
/// the screen answers itself.
pub fn travel(state: &mut State, tab: Tab, back: bool) -> bool {
    let Some(own) = state.screen(tab).own_edits() else { return false };
    let has_scope = scope::is_scoped(tab);
    let history = &mut state.cx.history;
    history.has_travelled = true;
    let changes = if back { &history.done } else { &history.undone };
    let is_lost = |change: &Change| match &change.kind {
        ChangeKind::Own(edits) => {
            back && history.own.get(&change.tab).is_some_and(|count| *count < edits.count)
        }
        ChangeKind::Arranged(_) | ChangeKind::Scoped(_) => false,
    };
    let is_here =
        |change: &Change| change.tab == tab || has_scope && matches!(change.kind, ChangeKind::Scoped(_));
    let here = changes.iter().rposition(|change| is_here(change) && !is_lost(change));
    let elsewhere = changes.iter().rposition(|change| !change.is_view() && !is_lost(change));
    // edits without an input, such as the first window of a trace
    let recorded = changes.iter().rev().find_map(|change| match &change.kind {
        ChangeKind::Own(edits) if change.tab == tab => Some(edits.count),
        _ => None,
    });
    let is_own_next = back && own.count > recorded.unwrap_or(0);
    let Some(at) = here.or(elsewhere.filter(|_| !is_own_next)) else { return false };
    if here.is_none() && history.was_offered != Some((tab, back)) {
        let change = changes[at].clone();
        offer(state, tab, back, change);
        return true;
    }
    let changes = if back { &mut history.done } else { &mut history.undone };
    let is_here = here.is_some();
    let Change { tab: on, kind } = changes.remove(at);
    let on = if is_here { tab } else { on };
    state.cx.tab = on;
    let done = if back { "undone" } else { "redone" };
    let place = if on == tab { String::new() } else { format!(" on {}", on.title()) };
    let kind = match kind {
        ChangeKind::Own(edits) => {
            let word = if back { "undo" } else { "redo" };
            let act = on.bindings().iter().position(|row| row.id == word);
            let (screen, cx) = state.split(on);
            if let Some(act) = act {
                screen.perform(act, cx);
            }
            ChangeKind::Own(edits)
        }
        ChangeKind::Arranged(arrangement) => {
            let now = arrange(state, on, &arrangement);
            state.cx.inform(format!("{done}{place}: {}", arrangement.difference(&now)));
            ChangeKind::Arranged(now)
        }
        ChangeKind::Scoped(choice) => {
            let now = state.cx.scope.return_to(choice);
            state.cx.inform(format!("{done}{place}: scope"));
            ChangeKind::Scoped(now)
        }
    };
    let history = &mut state.cx.history;
    let onto = if back { &mut history.undone } else { &mut history.done };
    onto.push(Change { tab: on, kind });
    true
}

/// Names the change of another screen that the same key undoes or redoes if it is pressed again.
fn offer(state: &mut State, tab: Tab, back: bool, Change { tab: on, kind }: Change) {
    let what = match kind {
        ChangeKind::Own(_) => "last change".to_owned(),
        ChangeKind::Scoped(_) => "scope".to_owned(),
        ChangeKind::Arranged(arrangement) => {
            let (_, now) = current(state, on);
            arrangement.difference(&now).to_owned()
        }
    };
    let (word, does) = if back { ("undo", "undoes") } else { ("redo", "redoes") };
    let act = tab.bindings().iter().position(|row| row.id == word);
    let key = act.map_or_else(String::new, |at| state.cx.keys.label(Action::On(tab, at)));
    state.cx.history.offered = Some((tab, back));
    state.cx.inform(format!("nothing to {word} here; {key} again {does} the {what} on {}", on.title()));
}

/// Arranges a screen; returns its arrangement before.
fn arrange(state: &mut State, tab: Tab, arrangement: &Arrangement) -> Arrangement {
    let (_, now) = current(state, tab);
    let (screen, cx) = state.split(tab);
    if let Some(Value::Object(mut all)) = screen.remember().filter(|_| arrangement.kept != now.kept) {
        all.extend(arrangement.kept.clone());
        screen.recall(&Value::Object(all), cx);
    }
    if let Some(filter) = screen.filter().filter(|_| arrangement.filter != now.filter) {
        filter.field = TextField::new(&arrangement.filter);
        screen.input(ScreenInput::Narrow, cx);
    }
    now
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crossterm::event::KeyModifiers;

    use super::*;
    use crate::face::tui::tests::fixtures::Driver;

    #[test]
    fn after_any_number_of_zooms_a_new_one_ends_what_can_be_redone() {
        let mut driver = Driver::full(100, 30);
        driver.taps("5");
        driver.taps(&"+-".repeat(60));
        assert!(own_count(&driver.state, Tab::Pareto) > 100, "no zoom is forgotten");
        driver.taps("pu");
        driver.shows("undone: P2P");
        driver.taps("+");
        driver.chord(KeyCode::Char('r'), KeyModifiers::CONTROL);
        driver.shows("nothing to redo");
    }

    /// A renamed field of a saved state would lose its undo.
    #[test]
    fn every_key_is_in_the_saved_state_of_a_screen() {
        let state = Driver::empty(80, 24).state;
        let mut saved = BTreeSet::new();
        for tab in Tab::ALL {
            if let Some(Value::Object(kept)) = state.screen(tab).remember() {
                saved.extend(kept.into_iter().map(|(key, _)| key));
            }
        }
        for (key, name) in KEYS {
            assert!(saved.contains(key), "no screen saves '{key}', so its {name} cannot be undone");
        }
    }
}
