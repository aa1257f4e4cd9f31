//! The palette (actions with their shortcuts, items of all screens, columns to sort by, traces, themes), and the
//! pickers of one screen's items and of themes.

use std::sync::Arc;

use super::keymap::{Action, BindingScope, BoundAction, Keymap, MOVING};
use super::prelude::*;
use super::ranking::PickGroup;
use super::screens::experiments::state::ExperimentEntry;
use super::screens::live::state::LiveCell;
use super::trace_picker::{clean, looks_like_path};
use super::update::act;
use base::text::folded;
use study::analysis::NameRow;
use study::whatif::Slider;

/// Bindings usable on a screen: its main ones, then other ones, then those of all screens; moving last.
pub fn usable(keys: &Keymap, tab: Tab) -> impl Iterator<Item = &BoundAction> {
    let holds =
        |b: &&BoundAction| b.holds_on(tab) && !matches!(b.action, Action::Palette | Action::Close);
    // drop global bindings whose keys the screen uses itself
    let is_seen = |b: &&BoundAction| b.scope != BindingScope::Anywhere || !hidden(keys, tab, b);
    let mut all: Vec<&BoundAction> = keys.all().iter().filter(holds).filter(is_seen).collect();
    all.sort_by_key(|b| {
        let has_arrow = |arrow: &str| b.row.keys.contains(arrow);
        let moves = MOVING.iter().any(|moving| moving.act == b.action)
            || ["Left", "Right"].into_iter().any(has_arrow);
        (moves, b.scope == BindingScope::Anywhere, b.row.hint.is_none())
    });
    all.into_iter()
}

/// True if the screen overrides every key of a global binding.
fn hidden(keys: &Keymap, tab: Tab, bound: &BoundAction) -> bool {
    !bound.keys.is_empty() && bound.keys.iter().all(|k| keys.is_taken(tab, *k))
}

/// Path of a trace file, with or without a leading `open`; `None` for search words.
fn path(typed: &str) -> Option<String> {
    let typed = typed.trim_start();
    let path = typed.strip_prefix("open ").unwrap_or(typed);
    looks_like_path(path).then(|| clean(path))
}

pub(super) const PALETTE: &str = "palette: actions, experiments, runs, traces, settings";

pub(super) const NOT_FOUND: &str = "nothing matches; words or letters find actions (export, sort tpot), experiments \
                                    (paper-70b), runs (ladder tp8 b1), traces and their operations (all_reduce), and \
                                    settings (theme: light)";

/// Start of the names of items that sort the screen of runs.
const SORTING: &str = "sort runs by ";

/// Opens the palette: actions, items of all screens, traces opened before or near, themes.
pub fn open(state: &mut State, typed: &str) {
    let pick = palette_of(state).typed(typed);
    state.cx.lay(pick);
    state.cx.add_near(PALETTE, "trace  ");
}

/// Contents that the palette lists, by address and length: a palette is rebuilt when they change.
#[derive(Debug, PartialEq)]
pub struct PaletteBasis {
    runs: Option<*const Snapshot>,
    experiments: (*const (String, String), Option<*const ExperimentEntry>),
    operations: Option<(*const NameRow, usize)>,
    cells: (*const LiveCell, usize),
    sliders: Vec<Slider>,
}

impl PaletteBasis {
    fn from_state(state: &State) -> Self {
        let counted = state.timeline.view.as_ref().and_then(|view| view.docked.counted.as_ref());
        let cells = &state.live.cells;
        Self {
            runs: state.cx.stored.as_ref().map(Arc::as_ptr),
            experiments: (
                state.experiments.names.as_ptr(),
                state.experiments.entries.as_ref().map(Vec::as_ptr),
            ),
            operations: counted.map(|counted| (counted.table.rows.as_ptr(), counted.table.rows.len())),
            cells: (cells.as_ptr(), cells.len()),
            sliders: state.whatif.sliders(),
        }
    }
}

/// Rebuilds the open palette if runs, experiments or a trace were loaded; keeps its text and its selected line.
pub fn renew(state: &mut State) {
    let basis = PaletteBasis::from_state(state);
    let Some(before) = state.cx.top::<Pick>() else { return };
    if before.basis.as_ref().is_none_or(|known| *known == basis) {
        return;
    }
    let mut pick = palette_of(state);
    let Some(before) = state.cx.top_mut::<Pick>() else { return };
    let near = before.lines.split_off(before.fixed.min(before.lines.len()));
    let on = before.found.get(before.selected);
    let on = on.and_then(|at| before.lines.iter().chain(&near).nth(*at)).cloned();
    pick.field = std::mem::take(&mut before.field);
    pick.add(near.into_iter().map(|line| (line.name, line.about)).collect());
    let is_on = |at: &usize| on.as_ref().is_some_and(|on| pick.lines[*at].is_same(on));
    pick.selected = pick.found.iter().position(is_on).unwrap_or(0);
    *before = pick;
}

fn palette_of(state: &State) -> Pick {
    let cx = &state.cx;
    let mut items: Vec<Find> = Vec::new();
    items.extend(usable(&cx.keys, cx.tab).map(|bound| action(state, cx.tab, bound)));
    let own = items.len();
    items.extend(Tab::ALL.into_iter().flat_map(|tab| state.screen(tab).finds(cx)));
    for path in cx.recent.clone() {
        let (name, about) = (path.clone(), "trace  opened before".to_owned());
        let go = Box::new(move |state: &mut State| open_trace(state, path));
        items.push(Find { name, about, also: String::new(), why_not: None, go });
    }
    for theme in cx.themes.names() {
        let (name, about) = (format!("theme: {theme}"), "setting".to_owned());
        let go = Box::new(move |state: &mut State| state.cx.take_theme(theme));
        items.push(Find { name, about, also: String::new(), why_not: None, go });
    }
    let here = items.len();
    items.extend(elsewhere(&cx.keys, cx.tab).map(|(tab, bound)| action(state, tab, bound)));
    // lines that count others, which the search names
    let counting = items.len();
    items.extend(PickGroup::SHORTENED.map(|_| Find {
        name: String::new(),
        about: String::new(),
        also: String::new(),
        why_not: None,
        go: Box::new(|_: &mut State| ()),
    }));
    // names of operations contain slashes, too
    let literal = |typed: &str, nothing_matches: bool| {
        let is_meant = nothing_matches || typed.starts_with(['/', '~', '\'', '"']);
        Some(format!("Enter opens {}", path(typed).filter(|_| is_meant)?))
    };
    let mut pick = pick_of(PALETTE, items, literal, |state, typed| {
        if let Some(path) = path(&typed) {
            open_trace(state, path);
        }
    });
    let counts = pick.lines.iter_mut().skip(counting);
    for (line, (group, _)) in counts.zip(PickGroup::SHORTENED) {
        (line.more_of, line.is_off) = (Some(group), true);
    }
    for (at, line) in pick.lines.iter_mut().enumerate().take(counting) {
        let sorts_elsewhere = cx.tab != Tab::Runs && line.name.starts_with(SORTING);
        // names of kernels have the words of many actions, such as copy
        line.is_action = at < own || at >= here || sorts_elsewhere;
        line.is_elsewhere = at >= here || sorts_elsewhere || line.about.starts_with("operation ");
    }
    pick.basis = Some(PaletteBasis::from_state(state));
    // with the marks of the lines
    pick.search_again();
    pick
}

/// Action of a screen. One that is not possible says why, also when it is chosen and the screen itself says nothing.
fn action(state: &State, tab: Tab, bound: &BoundAction) -> Find {
    let (action, why_not) = (bound.action, why_not(state, tab, bound));
    let place = (tab != state.cx.tab).then(|| tab.title());
    let about = [place, why_not].into_iter().flatten().map(str::to_owned).chain([bound.label()]);
    let go = move |state: &mut State| {
        state.cx.tab = tab;
        act(state, action);
        let is_silent = state.cx.notice.is_none() && state.cx.overlays.is_empty();
        if let Some(why) = why_not.filter(|_| is_silent) {
            state.cx.inform(why);
        }
    };
    Find {
        name: bound.row.name.to_owned(),
        about: about.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("  "),
        also: format!("{} {}", bound.row.id, bound.row.also),
        why_not,
        go: Box::new(go),
    }
}

/// Reason why an action is not possible now; screens know that of theirs.
fn why_not(state: &State, tab: Tab, bound: &BoundAction) -> Option<&'static str> {
    let screen = state.screen(tab);
    match bound.action {
        // a filter or an order, which the screen itself does not count
        Action::On(..) if bound.row.id == "undo" && state.cx.history.is_used => None,
        Action::On(_, at) => screen.why_impossible(at, &state.cx),
        Action::Export if !screen.has_content() => Some(screen.nothing_to_export()),
        _ => None,
    }
}

/// Actions of other screens, without those that this screen has under the same name.
fn elsewhere(keys: &Keymap, tab: Tab) -> impl Iterator<Item = (Tab, &BoundAction)> {
    let here: Vec<&str> = usable(keys, tab).map(|bound| bound.row.name).collect();
    keys.all().iter().filter_map(move |bound| match bound.scope {
        BindingScope::On(other) if other != tab && !here.contains(&bound.row.name) => {
            Some((other, bound))
        }
        _ => None,
    })
}

/// Words in names and descriptions, with other words that find them.
const SYNONYMS: [(&str, &str); 15] = [
    ("screen: compare", "who is wins winner winners best fastest faster speedup versus vs significant"),
    ("screen: live", "progress running result"),
    ("tpot", "itl latency inter-token decode"),
    ("ttft", "latency prefill"),
    ("tok/s", "throughput tokens"),
    ("deletion", "delete remove trash"),
    ("exposed", "communication overlap hidden hides"),
    ("longest", "slowest slow"),
    ("filter", "search narrow query"),
    ("timeline", "trace gantt"),
    ("pareto", "frontier throughput"),
    ("slider", "predict simulate"),
    ("operations by total time", "top kernel kernels hottest"),
    ("ar latency", "all-reduce double half alpha"),
    ("memory bw", "roofline memory-bound bandwidth hbm"),
];

/// Synonyms of the words of a name.
pub fn synonyms(name: &str) -> String {
    let name = folded(name);
    let found = SYNONYMS.into_iter().filter(|(word, _)| name.contains(*word));
    found.map(|(_, others)| others).collect::<Vec<_>>().join(" ")
}

/// Opens a picker of the items of the current screen.
pub fn find(state: &mut State) {
    let tab = state.cx.tab;
    let items = state.screen(tab).finds(&state.cx);
    if items.is_empty() {
        return state.cx.inform("this screen lists nothing to find yet");
    }
    let pick = pick_of(&format!("find in {}", tab.title()), items, |_, _| None, |_, _| ());
    state.cx.lay(pick);
}

/// Picker of items; `text` takes a line that is none of them.
fn pick_of(
    title: &str,
    items: Vec<Find>,
    literal: impl Fn(&str, bool) -> Option<String> + 'static,
    text: impl FnOnce(&mut State, String) + 'static,
) -> Pick {
    let lines = items.iter().map(|item| (item.name.clone(), item.about.clone())).collect();
    let words = |item: &Find| folded(&format!("{} {}", item.also, synonyms(&item.name)));
    let also: Vec<(String, bool)> =
        items.iter().map(|item| (words(item), item.why_not.is_some())).collect();
    let mut pick = Pick::new(title, lines, literal, move |state, chosen| match chosen {
        PickResult::Line(at) => items.into_iter().nth(at).into_iter().for_each(|item| (item.go)(state)),
        PickResult::Text(typed) => text(state, typed),
    });
    for (line, (also, is_off)) in pick.lines.iter_mut().zip(also) {
        line.also = format!("{} {also}", line.also);
        line.is_off = is_off;
    }
    pick.search_again();
    pick
}

fn open_trace(state: &mut State, path: String) {
    state.cx.open_typed(path, Opening::Alone(None));
}

impl Context {
    /// Opens the theme picker; the choice is saved for the next session.
    pub fn pick_theme(&mut self) {
        let names = self.themes.names();
        let shown = self.chosen_theme.clone().unwrap_or_else(|| self.themes.setting.clone());
        let about = |name: &String| match (*name == shown, *name == self.themes.setting) {
            (true, _) => "shown now",
            (false, true) => "of the settings",
            (false, false) => "",
        };
        let lines = names.iter().map(|name| (name.clone(), about(name).to_owned())).collect();
        let pick = Pick::new(
            "theme",
            lines,
            |_, _| None,
            move |state, chosen| {
                let PickResult::Line(at) = chosen else { return };
                if let Some(name) = names.get(at) {
                    state.cx.take_theme(name.clone());
                }
            },
        );
        self.lay(pick);
    }

    /// Applies a theme by name; ignores unknown names.
    pub fn take_theme(&mut self, name: String) {
        if let Some(theme) = self.themes.of(&name) {
            self.theme = theme;
            self.chosen_theme = (name != self.themes.setting).then_some(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::tui::screens::{experiments, runs, timeline};

    fn first(tab: Tab, typed: &str) -> Option<Action> {
        let mut cx = Context::new("runs".into(), Theme::new(true), (80, 24));
        cx.tab = tab;
        let mut state = State::new(cx);
        open(&mut state, typed);
        let at = *state.cx.top::<Pick>()?.found().first()?;
        usable(&Keymap::default(), tab).nth(at).map(|bound| bound.action)
    }

    #[test]
    fn a_few_letters_find_an_action() {
        assert_eq!(
            first(Tab::Timeline, "undo"),
            Some(Action::from_act::<timeline::Timeline>(timeline::Act::Undo))
        );
        assert_eq!(
            first(Tab::Runs, "rvrs"),
            Some(Action::from_act::<runs::Runs>(runs::Act::SortReverse))
        );
        assert_eq!(
            first(Tab::Timeline, "top kernel"),
            Some(Action::from_act::<timeline::Timeline>(timeline::Act::Operations))
        );
        assert_eq!(first(Tab::Runs, "undo zoom"), None, "not on this screen");
        assert_eq!(first(Tab::Runs, "qqqq"), None);
        for (typed, action) in [
            ("picture", Action::Picture),
            ("screenshot", Action::Picture),
            ("plot", Action::Figure),
            ("exit", Action::Quit),
            ("clipboard", Action::CopyCommand),
            ("shortcuts", Action::Help),
            ("who wins", Action::Show(Tab::Compare)),
            ("winner", Action::Show(Tab::Compare)),
            ("who is fastest", Action::Show(Tab::Compare)),
            ("best", Action::Show(Tab::Compare)),
            ("pareto", Action::Show(Tab::Pareto)),
        ] {
            assert_eq!(first(Tab::Runs, typed), Some(action), "{typed}");
        }
        assert_eq!(first(Tab::Experiments, "compare"), Some(Action::Show(Tab::Compare)));
    }

    #[test]
    fn without_a_query_the_screen_comes_first() {
        let map = Keymap::default();
        let all: Vec<&BoundAction> = usable(&map, Tab::Experiments).collect();
        assert_eq!(all[0].action, Action::from_act::<experiments::Experiments>(experiments::Act::Run));
        assert!(all.iter().any(|b| b.action == Action::Quit));
    }
}
