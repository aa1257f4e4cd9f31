//! Key map: the built-in bindings of all screens with the user's changes.
//!
//! Everything that displays a key (help, palette, footer, messages) reads this map, so a displayed key
//! is always the real one.
//!
//! User actions: global ones, and those in each screen's binding table. Help and the palette read the
//! same tables that dispatch keys, so they always agree.

use super::key::Key;
use super::prelude::*;
use super::screen::Tab;
use super::screens::experiments::{self, Experiments};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindingScope {
    Anywhere,
    /// One screen; takes precedence over `Anywhere`.
    On(Tab),
}

impl BindingScope {
    /// Prefix of a binding's full name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Anywhere => "everywhere",
            Self::On(tab) => tab.title(),
        }
    }
}

#[derive(Clone, Debug)]
pub struct BoundAction {
    pub scope: BindingScope,
    pub row: BindingRow,
    pub action: Action,
    /// Keys, the first of which is shown in hints; empty if the action is only in the palette.
    pub keys: Vec<Key>,
}

impl BoundAction {
    /// All keys, for help: `↓ j`.
    pub fn label(&self) -> String {
        self.keys.iter().map(|k| k.label()).collect::<Vec<_>>().join(" ")
    }

    /// Full name in a key map: `runs.filter`.
    pub fn id(&self) -> String {
        format!("{}.{}", self.scope.word(), self.row.id)
    }

    pub fn holds_on(&self, tab: Tab) -> bool {
        match self.scope {
            BindingScope::Anywhere => true,
            BindingScope::On(on) => on == tab,
        }
    }
}

/// True for actions that keep their built-in keys.
pub fn is_fixed(action: Action) -> bool {
    matches!(
        action,
        Action::Help
            | Action::Close
            | Action::Palette
            | Action::Quit
            | Action::NextScreen
            | Action::PreviousScreen
            | Action::Show(_)
    )
}

#[derive(Clone, Debug)]
pub struct Keymap {
    all: Vec<BoundAction>,
}

impl Default for Keymap {
    fn default() -> Self {
        let bound = |scope, row: BindingRow, action| {
            // a test parses every key in the tables
            let keys = row.keys.split_whitespace().filter_map(|key| key.parse().ok()).collect();
            BoundAction { scope, row, action, keys }
        };
        let mut all = Vec::new();
        for tab in Tab::ALL {
            let rows = tab.bindings().into_iter().enumerate();
            all.extend(rows.map(|(at, row)| bound(BindingScope::On(tab), row, Action::On(tab, at))));
        }
        let of = |bindings: &'static [Binding<Action>]| {
            bindings.iter().map(|binding| bound(BindingScope::Anywhere, binding.row, binding.act))
        };
        all.extend(of(MOVING));
        let digits = DIGITS.into_iter().chain(std::iter::repeat(""));
        all.extend(Tab::ALL.into_iter().zip(Tab::SHOW).zip(digits).map(|((tab, (id, name)), keys)| {
            bound(
                BindingScope::Anywhere,
                BindingRow { id, keys, name, hint: None, also: "" },
                Action::Show(tab),
            )
        }));
        all.extend(of(EVERYWHERE));
        Self { all }
    }
}

impl Keymap {
    /// Applies the user's changes `(full name, keys)` to the built-in map. Returns the map and the
    /// problems, one line each; an invalid change is ignored.
    pub fn with(changes: &[(String, Vec<String>)]) -> (Self, Vec<String>) {
        let mut map = Self::default();
        let mut wrong = Vec::new();
        for (id, keys) in changes {
            if let Err(why) = map.change(id, keys) {
                wrong.push(format!("{id}: {why}"));
            }
        }
        wrong.extend(map.clashes());
        (map, wrong)
    }

    fn change(&mut self, id: &str, keys: &[String]) -> Result<(), String> {
        let Some(at) = self.all.iter().position(|bound| bound.id() == id) else {
            let names = self.all.iter().map(BoundAction::id);
            let near = names.max_by(|a, b| strsim::jaro(a, id).total_cmp(&strsim::jaro(b, id)));
            let near = near.map_or_else(String::new, |near| format!(": did you mean {near}?"));
            return Err(format!("there is no such action{near}"));
        };
        if is_fixed(self.all[at].action) {
            return Err("its keys never change".into());
        }
        let keys: Vec<Key> = keys.iter().map(|key| key.parse()).collect::<Result<_, _>>()?;
        for key in &keys {
            let fixed = self.all.iter().find(|b| is_fixed(b.action) && b.keys.contains(key));
            if let Some(fixed) = fixed {
                return Err(format!("{key} is '{}' and stays so", fixed.row.name));
            }
        }
        self.all[at].keys = keys;
        Ok(())
    }

    fn clashes(&self) -> Vec<String> {
        let mut clashes = Vec::new();
        for (i, a) in self.all.iter().enumerate() {
            for b in self.all[i + 1..].iter().filter(|b| b.scope == a.scope) {
                for key in a.keys.iter().filter(|key| b.keys.contains(key)) {
                    clashes.push(format!("{key} is both {} and {}; the first wins", a.id(), b.id()));
                }
            }
        }
        clashes
    }

    /// Looks up the action of a key; the screen's own bindings win.
    pub fn lookup(&self, tab: Tab, event: &KeyEvent) -> Option<Action> {
        let key = Key::from_event(event);
        let find = |scope| self.all.iter().find(|b| b.scope == scope && b.keys.contains(&key));
        find(BindingScope::On(tab)).or_else(|| find(BindingScope::Anywhere)).map(|bound| bound.action)
    }

    /// All bindings, screens before global ones, each scope in help order.
    pub fn all(&self) -> &[BoundAction] {
        &self.all
    }

    /// Label of the first key of an action, or a note that it is unbound.
    pub fn label(&self, action: Action) -> String {
        let bound = self.all.iter().find(|bound| bound.action == action);
        bound
            .and_then(|bound| Some(bound.keys.first()?.label()))
            .unwrap_or_else(|| "(not bound; in the palette)".into())
    }

    pub fn to_first_run(&self) -> String {
        let key = self.label(Action::Show(Tab::Experiments));
        let run = self.label(Action::from_act::<Experiments>(experiments::Act::Run));
        format!("{key} lists experiments, {run} there runs one")
    }

    /// Main action on the selected row of a screen: the one bound to Enter by default.
    pub fn main_action(&self, tab: Tab) -> Option<Action> {
        let mut own = self.all.iter().filter(|bound| bound.scope == BindingScope::On(tab));
        let main = own.find(|bound| bound.row.keys.split_whitespace().any(|key| key == "Enter"));
        main.map(|bound| bound.action)
    }

    pub fn is_taken(&self, tab: Tab, key: Key) -> bool {
        self.all.iter().any(|b| b.scope == BindingScope::On(tab) && b.keys.contains(&key))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Show(Tab),
    NextScreen,
    PreviousScreen,
    Help,
    Palette,
    Find,
    Close,
    ToggleMouse,
    Quit,
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Reload,
    Scope,
    TypeOpen,
    Export,
    Figure,
    Report,
    Picture,
    CopyCommand,
    WhatIfHere,
    Conversions,
    Trainings,
    Record,
    Messages,
    Theme,
    /// Binding at this index of a screen's table.
    On(Tab, usize),
}

impl Action {
    /// True for actions that leave the screen, which do not wait for the answers of it.
    pub fn leaves_screen(self) -> bool {
        matches!(self, Self::Show(_) | Self::NextScreen | Self::PreviousScreen | Self::Quit)
    }

    pub fn from_act<S: Acts>(act: S::Act) -> Self {
        // a test presses every binding: an act without a table entry has no action
        let at = S::Act::BINDINGS.iter().position(|binding| binding.act == act);
        Self::On(S::TAB, at.unwrap_or(usize::MAX))
    }
}

/// Words of a footer hint: one or two, and shorter ones for a narrow window, so that it has room for the main four or five.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HintWords {
    pub whole: &'static str,
    pub short: &'static str,
}

impl HintWords {
    /// Keeps an act out of the footer in the current state.
    pub const HIDDEN: Self = Self::new("");

    pub const fn new(whole: &'static str) -> Self {
        Self { whole, short: whole }
    }

    pub const fn shortened(self, short: &'static str) -> Self {
        Self { short, ..self }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct BindingRow {
    /// Name within its screen, as in key maps: `sort-next`.
    pub id: &'static str,
    /// Built-in keys, separated by spaces; the first is the one shown in hints.
    pub keys: &'static str,
    pub name: &'static str,
    /// `None` keeps it out of the footer.
    pub hint: Option<HintWords>,
    /// Other words that find the action in the palette.
    pub also: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub struct Binding<A> {
    pub row: BindingRow,
    pub act: A,
}

pub const fn bind<A: Copy>(
    id: &'static str,
    keys: &'static str,
    act: A,
    name: &'static str,
    hint: Option<&'static str>,
) -> Binding<A> {
    let hint = match hint {
        Some(words) => Some(HintWords::new(words)),
        None => None,
    };
    Binding { row: BindingRow { id, keys, name, hint, also: "" }, act }
}

impl<A: Copy> Binding<A> {
    /// Shortens the hint for a narrow window.
    pub const fn short_hint(self, short: &'static str) -> Self {
        let hint = match self.row.hint {
            Some(hint) => Some(hint.shortened(short)),
            None => None,
        };
        Self { row: BindingRow { hint, ..self.row }, act: self.act }
    }

    pub const fn also(self, also: &'static str) -> Self {
        Self { row: BindingRow { also, ..self.row }, act: self.act }
    }
}

pub trait Listed: Copy + PartialEq + 'static {
    /// Keys and description of each act, in help order.
    const BINDINGS: &'static [Binding<Self>];
}

/// Defines a screen's acts in help order: the variant name, the arguments of [`bind`], the hint in a narrow window, other
/// words of the palette.
macro_rules! acts {
    ($($act:ident: $id:literal, $keys:literal, $name:literal, $hint:expr $(=> $short:literal)? $(, $also:literal)?;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Act {
            $(#[doc = $name] $act,)*
        }

        impl $crate::face::tui::keymap::Listed for Act {
            const BINDINGS: &'static [$crate::face::tui::keymap::Binding<Self>] =
                &[$($crate::face::tui::keymap::bind($id, $keys, Self::$act, $name, $hint)
                    $(.short_hint($short))? $(.also($also))?,)*];
        }
    };
}
pub(super) use acts;

/// List movement, on every screen.
#[rustfmt::skip]
pub const MOVING: &[Binding<Action>] = &[
    bind("up", "Up k", Action::Up, "up one row", None),
    bind("down", "Down j", Action::Down, "down one row", None),
    bind("page-up", "PageUp ctrl-u", Action::PageUp, "up one page", None),
    bind("page-down", "PageDown ctrl-d", Action::PageDown, "down one page", None),
    bind("first", "Home", Action::First, "first row (also gg)", None),
    bind("last", "End G", Action::Last, "last row", None),
];

pub const DIGITS: [&str; 9] = ["1", "2", "3", "4", "5", "6", "7", "8", "9"];

/// Bindings on every screen apart from movement and screen switching, in help order.
#[rustfmt::skip]
pub const EVERYWHERE: &[Binding<Action>] = &[
    bind("what-if", "w", Action::WhatIfHere, "what-if: sliders, starting from the selected run", None)
        .also("predict simulate slider link"),
    bind("open", "o", Action::TypeOpen, "open a trace file", Some("open trace"))
        .short_hint("trace").also("load import profile trace nsys kineto torch"),
    bind("scope", "*", Action::Scope, "show runs of one experiment, or of all", None).also("experiment filter"),
    bind("export", "x", Action::Export, "export the view: SVG, PNG, CSV, HTML", Some("export"))
        .also("save write csv svg png html figure download"),
    bind("figure", "", Action::Figure, "draw a figure for a paper", None).also("plot chart paper pdf svg png"),
    bind("report", "", Action::Report, "report: an HTML page of the open trace, or of the runs, to share", None)
        .also("html page share export web"),
    bind("picture", "", Action::Picture, "take a screenshot: SVG, PNG", None)
        .also("screenshot image capture print svg png"),
    bind("conversions", "", Action::Conversions, "layers to convert: quality and speedup of each set", None)
        .also("adapt quality kl"),
    bind("trainings", "", Action::Trainings, "loss curves of trainings", None).also("loss adapt curve"),
    bind("record", "", Action::Record, "record a program: run a command and open its trace", None)
        .also("profile capture nsys"),
    bind("messages", "M", Action::Messages, "message history", None).also("log errors history notifications"),
    bind("theme", "", Action::Theme, "choose a colour theme", None)
        .also("color colors colours dark light contrast appearance settings"),
    bind("copy-command", "Y", Action::CopyCommand, "copy the equivalent command", None)
        .also("clipboard yank shell cli reproduce"),
    bind("reload", "F5", Action::Reload, "reload experiments and runs", None).also("refresh reread update"),
    bind("next-screen", "Tab", Action::NextScreen, "next screen", None),
    bind("previous-screen", "shift-Tab", Action::PreviousScreen, "previous screen", None),
    bind("help", "?", Action::Help, "help", Some("help")).also("keys shortcuts manual keyboard"),
    bind("palette", ": ctrl-p", Action::Palette, "palette: actions, experiments, runs, traces, operations, settings",
        Some("palette")).short_hint("menu"),
    bind("find", "/", Action::Find, "find on this screen", None).also("search"),
    bind("close", "Esc", Action::Close, "close the popup", None),
    bind("toggle-mouse", "m", Action::ToggleMouse, "mouse capture on or off", None).also("select text clipboard"),
    bind("quit", "q ctrl-c", Action::Quit, "quit", Some("quit")).also("exit close leave bye"),
];

#[cfg(test)]
mod tests {
    use crossterm::event::KeyModifiers;

    use super::*;

    #[test]
    fn no_built_in_key_is_misspelt_or_means_two_things_in_one_place() {
        let map = Keymap::default();
        assert_eq!(map.clashes(), Vec::<String>::new());
        for bound in map.all() {
            let written = bound.row.keys.split_whitespace().count();
            assert_eq!(bound.keys.len(), written, "{}: {}", bound.id(), bound.row.keys);
            let same = map.all().iter().filter(|b| b.id() == bound.id()).count();
            assert_eq!(same, 1, "{} stands for two actions", bound.id());
        }
        for tab in Tab::ALL {
            let shown = map.all().iter().any(|b| b.action == Action::Show(tab));
            assert!(shown, "{tab:?} cannot be reached");
        }
    }

    /// Keys that mean one thing on every screen, with the bindings that may have them.
    const GRAMMAR: [(&str, &[&str]); 35] = [
        ("r", &["run", "retry-failed"]),
        ("R", &["run-all"]),
        ("/", &["filter", "search", "find"]),
        ("n", &["next", "next-match", "recall"]),
        ("N", &["previous", "previous-match"]),
        ("s", &["sort-next"]),
        ("S", &["sort-previous"]),
        ("I", &["sort-reverse"]),
        ("g", &["group", "choose-group"]),
        ("b", &["open-beneath", "open"]),
        ("Delete", &["delete", "remove", "reset-all"]),
        ("u", &["undo"]),
        ("ctrl-r", &["redo"]),
        ("x", &["export"]),
        ("o", &["open"]),
        ("y", &["copy-id", "copy-numbers"]),
        ("Space", &["mark"]),
        ("Enter", &["open", "choose", "open-cell", "toggle-rank", "type"]),
        ("Tab", &["next-screen"]),
        ("*", &["scope"]),
        ("?", &["help"]),
        (":", &["palette"]),
        ("Y", &["copy-command"]),
        ("M", &["messages"]),
        ("m", &["toggle-mouse"]),
        ("q", &["quit"]),
        ("w", &["what-if", "what-if-traced"]),
        ("j", &["down"]),
        ("k", &["up"]),
        ("h", &["left", "back", "scroll-left", "pan-left", "less"]),
        ("l", &["right", "grid", "scroll-right", "pan-right", "more"]),
        ("+", &["zoom-in", "more"]),
        ("-", &["zoom-out", "less"]),
        ("[", &["previous-axis", "previous-step", "log-up"]),
        ("]", &["next-axis", "next-step", "log-down"]),
    ];

    #[test]
    fn a_letter_of_the_grammar_means_the_same_on_every_screen() {
        for (key, ids) in GRAMMAR {
            let key: Key = key.parse().unwrap();
            let bound = Keymap::default();
            assert!(bound.all().iter().any(|b| b.keys.contains(&key)), "{key} does nothing");
            for binding in Keymap::default().all().iter().filter(|b| b.keys.contains(&key)) {
                assert!(
                    ids.contains(&binding.row.id),
                    "{key} is {} ({:?})",
                    binding.row.id,
                    binding.scope
                );
            }
        }
    }

    #[test]
    fn a_change_replaces_keys_and_says_what_is_wrong() {
        let change = |id: &str, keys: &[&str]| {
            let keys = keys.iter().map(ToString::to_string).collect();
            Keymap::with(&[(id.to_string(), keys)])
        };
        let (map, wrong) = change("everywhere.down", &["ctrl-n", "F6"]);
        assert_eq!(wrong, Vec::<String>::new());
        assert_eq!(map.label(Action::Down), "Ctrl-N");
        let event = KeyEvent::new(KeyCode::F(6), KeyModifiers::NONE);
        assert_eq!(map.lookup(Tab::Runs, &event), Some(Action::Down));
        let j = KeyEvent::new(KeyCode::Char('j'), KeyModifiers::NONE);
        assert_ne!(map.lookup(Tab::Runs, &j), Some(Action::Down));

        let says = |id, keys: &[&str]| change(id, keys).1.join("; ");
        assert!(says("everywhere.dwon", &["n"]).contains("did you mean everywhere.down?"));
        assert!(says("everywhere.down", &["Entr"]).contains("did you mean Enter?"));
        assert!(says("everywhere.down", &["?"]).contains("stays so"));
        assert!(says("everywhere.quit", &["Q"]).contains("never change"));
        assert!(says("everywhere.down", &["shift-n"]).contains("\"N\""));
        assert!(says("everywhere.down", &["k"]).contains("both"));
    }
}
