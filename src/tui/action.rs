//! What a user can do, and with which keys: one table feeds key presses, the palette, the help
//! overlay, the footer's hints and the mouse. What is not in this table cannot be done, and what is in
//! it is shown: help cannot lie.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// The pages of the workbench, in the order of their digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Screen {
    /// Experiment files.
    Experiments,
    /// The sweep that runs, or ran last.
    Live,
    /// Stored runs.
    Runs,
    /// Lanes of a trace.
    Timeline,
    /// Latency against per-GPU throughput.
    Pareto,
    /// Matched pairs along an axis.
    Compare,
}

impl Screen {
    /// All of them; the first has digit 1.
    pub const ALL: [Self; 6] =
        [Self::Experiments, Self::Live, Self::Runs, Self::Timeline, Self::Pareto, Self::Compare];

    /// The word on its tab.
    pub fn title(self) -> &'static str {
        match self {
            Self::Experiments => "experiments",
            Self::Live => "live",
            Self::Runs => "runs",
            Self::Timeline => "timeline",
            Self::Pareto => "pareto",
            Self::Compare => "compare",
        }
    }

    /// The screen `by` tabs further, round and round.
    pub fn shifted(self, by: usize) -> Self {
        Self::ALL[(self as usize + by) % Self::ALL.len()]
    }
}

/// Something a user asks for; [`BINDINGS`] says of each in words what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Show(Screen),
    NextScreen,
    PreviousScreen,
    Help,
    Palette,
    Close,
    ToggleMouse,
    Quit,
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    RunExperiment,
    ShowFile,
    Rescan,
    OpenCell,
    CancelCell,
    CancelAll,
    OpenRun,
    OpenRunBeneath,
    SortNext,
    SortPrevious,
    SortReverse,
    Filter,
    Detail,
    CopyRun,
    Reload,
    SpanPrevious,
    SpanNext,
    ZoomIn,
    ZoomOut,
    PanLeft,
    PanRight,
    StepNext,
    StepPrevious,
    FitAll,
    ZoomSpan,
    Undo,
    SearchName,
    MatchNext,
    MatchPrevious,
    ToggleRank,
    ToggleRanks,
    SwitchTrace,
    ShiftNext,
    ShiftPrevious,
    CloseBeneath,
    TypeOpen,
    TypeBeneath,
    PointLeft,
    PointRight,
    PointUp,
    PointDown,
    OpenPoint,
    CycleP2p,
    CycleGroup,
    Export,
    NextAxis,
    PreviousAxis,
    OpenPair,
    OpenBoth,
}

/// Where a binding holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// On every screen.
    Anywhere,
    /// On this screen; it wins over a binding that holds anywhere.
    On(Screen),
}

/// A key, as pressed. Shift is part of a character, not a modifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    code: KeyCode,
    control: bool,
}

impl Key {
    const fn of(code: KeyCode) -> Self {
        Self { code, control: false }
    }

    const fn char(c: char) -> Self {
        Self::of(KeyCode::Char(c))
    }

    const fn control(c: char) -> Self {
        Self { code: KeyCode::Char(c), control: true }
    }

    fn matches(self, event: &KeyEvent) -> bool {
        let control = event.modifiers.contains(KeyModifiers::CONTROL);
        !event.modifiers.contains(KeyModifiers::ALT)
            && self.code == event.code
            && self.control == control
    }

    /// How help calls it.
    pub fn label(self) -> String {
        let name = match self.code {
            KeyCode::Char(' ') => "Space".into(),
            KeyCode::Char(c) => c.to_string(),
            KeyCode::Enter => "Enter".into(),
            KeyCode::Esc => "Esc".into(),
            KeyCode::Tab => "Tab".into(),
            KeyCode::BackTab => "Shift-Tab".into(),
            KeyCode::Left => "←".into(),
            KeyCode::Right => "→".into(),
            KeyCode::Up => "↑".into(),
            KeyCode::Down => "↓".into(),
            KeyCode::PageUp => "PgUp".into(),
            KeyCode::PageDown => "PgDn".into(),
            KeyCode::Home => "Home".into(),
            KeyCode::End => "End".into(),
            other => format!("{other:?}"),
        };
        if self.control { format!("Ctrl-{}", name.to_uppercase()) } else { name }
    }
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    /// Where it holds.
    pub scope: Scope,
    /// The keys, the one to advertise first.
    pub keys: &'static [Key],
    /// What they do.
    pub action: Action,
    /// That in words, for help and palette.
    pub name: &'static str,
    /// A word or two for the footer, where it deserves a place there.
    pub hint: Option<&'static str>,
}

impl Binding {
    /// All its keys, for help: `j ↓`.
    pub fn keys_label(&self) -> String {
        self.keys.iter().map(|k| k.label()).collect::<Vec<_>>().join(" ")
    }

    /// Whether it can be used on this screen.
    pub fn holds_on(&self, screen: Screen) -> bool {
        match self.scope {
            Scope::Anywhere => true,
            Scope::On(on) => on == screen,
        }
    }
}

/// What a key does on a screen: the screen's own bindings first.
pub fn lookup(screen: Screen, event: &KeyEvent) -> Option<Action> {
    let find = |scope: Scope| {
        BINDINGS
            .iter()
            .find(|b| b.scope == scope && b.keys.iter().any(|k| k.matches(event)))
            .map(|b| b.action)
    };
    find(Scope::On(screen)).or_else(|| find(Scope::Anywhere))
}

const fn bind(
    scope: Scope,
    keys: &'static [Key],
    action: Action,
    name: &'static str,
    hint: Option<&'static str>,
) -> Binding {
    Binding { scope, keys, action, name, hint }
}

const UP: Key = Key::of(KeyCode::Up);
const DOWN: Key = Key::of(KeyCode::Down);
const LEFT: Key = Key::of(KeyCode::Left);
const RIGHT: Key = Key::of(KeyCode::Right);
const ENTER: Key = Key::of(KeyCode::Enter);
const PAGE_UP: Key = Key::of(KeyCode::PageUp);
const PAGE_DOWN: Key = Key::of(KeyCode::PageDown);
const EXPERIMENTS: Scope = Scope::On(Screen::Experiments);
const LIVE: Scope = Scope::On(Screen::Live);
const RUNS: Scope = Scope::On(Screen::Runs);
const TIMELINE: Scope = Scope::On(Screen::Timeline);
const PARETO: Scope = Scope::On(Screen::Pareto);
const COMPARE: Scope = Scope::On(Screen::Compare);
const ANYWHERE: Scope = Scope::Anywhere;

/// The table: screens first, then what holds anywhere; within a scope in the order of help.
#[rustfmt::skip]
pub const BINDINGS: &[Binding] = &[
    bind(EXPERIMENTS, &[ENTER], Action::RunExperiment, "run the experiment", Some("run")),
    bind(EXPERIMENTS, &[Key::char('e')], Action::ShowFile, "show the experiment's file", Some("file")),
    bind(EXPERIMENTS, &[Key::char('R')], Action::Rescan, "read the experiments again", Some("reload")),
    bind(LIVE, &[ENTER], Action::OpenCell, "open the timeline of the cell's last run", Some("timeline")),
    bind(LIVE, &[Key::char('c')], Action::CancelCell, "cancel the selected cell", Some("cancel cell")),
    bind(LIVE, &[Key::char('C')], Action::CancelAll, "cancel the sweep", Some("cancel all")),
    bind(RUNS, &[ENTER], Action::OpenRun, "open the run's timeline", Some("timeline")),
    bind(RUNS, &[Key::char('b')], Action::OpenRunBeneath, "open the run's timeline beneath the one shown", Some("beneath")),
    bind(RUNS, &[Key::char('/')], Action::Filter, "filter: words, or key=value", Some("filter")),
    bind(RUNS, &[Key::char('s'), Key::char('>')], Action::SortNext, "sort by the next column", Some("sort")),
    bind(RUNS, &[Key::char('S'), Key::char('<')], Action::SortPrevious, "sort by the previous column", None),
    bind(RUNS, &[Key::char('r')], Action::SortReverse, "reverse the order", Some("reverse")),
    bind(RUNS, &[Key::char('d')], Action::Detail, "show or hide the run's details", Some("details")),
    bind(RUNS, &[Key::char('y')], Action::CopyRun, "copy the run's id to the clipboard", Some("copy id")),
    bind(RUNS, &[Key::char('R')], Action::Reload, "read the runs directory again", Some("reload")),
    bind(TIMELINE, &[LEFT], Action::SpanPrevious, "previous operation of the line", Some("operation")),
    bind(TIMELINE, &[RIGHT], Action::SpanNext, "next operation of the line", None),
    bind(TIMELINE, &[Key::char('+'), Key::char('=')], Action::ZoomIn, "zoom in at the cursor", Some("zoom")),
    bind(TIMELINE, &[Key::char('-')], Action::ZoomOut, "zoom out at the cursor", None),
    bind(TIMELINE, &[Key::char('z')], Action::ZoomSpan, "zoom to the operation under the cursor", Some("zoom to it")),
    bind(TIMELINE, &[Key::char(']'), Key::char('s')], Action::StepNext, "fit the next decode step", Some("step")),
    bind(TIMELINE, &[Key::char('['), Key::char('S')], Action::StepPrevious, "fit the previous decode step", None),
    bind(TIMELINE, &[Key::char('/')], Action::SearchName, "search: words of a name", Some("search")),
    bind(TIMELINE, &[Key::char('n')], Action::MatchNext, "next match of the search", None),
    bind(TIMELINE, &[Key::char('N')], Action::MatchPrevious, "previous match of the search", None),
    bind(TIMELINE, &[Key::char('f')], Action::FitAll, "fit the whole trace", Some("fit all")),
    bind(TIMELINE, &[Key::char('u')], Action::Undo, "undo zooming and panning", Some("undo")),
    bind(TIMELINE, &[Key::char('h')], Action::PanLeft, "pan left", Some("pan")),
    bind(TIMELINE, &[Key::char('l')], Action::PanRight, "pan right", None),
    bind(TIMELINE, &[ENTER, Key::char(' ')], Action::ToggleRank, "collapse or open the rank", Some("rank")),
    bind(TIMELINE, &[Key::char('C')], Action::ToggleRanks, "collapse or open all ranks", None),
    bind(TIMELINE, &[Key::char('b')], Action::TypeBeneath, "open another trace beneath this one", Some("beneath")),
    bind(TIMELINE, &[Key::char('w')], Action::SwitchTrace, "go to the other trace", None),
    bind(TIMELINE, &[Key::char('}')], Action::ShiftNext, "align the lower trace's next step", None),
    bind(TIMELINE, &[Key::char('{')], Action::ShiftPrevious, "align the lower trace's previous step", None),
    bind(TIMELINE, &[Key::char('x')], Action::CloseBeneath, "close the lower trace", None),
    bind(PARETO, &[ENTER], Action::OpenPoint, "open the point's timeline", Some("timeline")),
    bind(PARETO, &[LEFT], Action::PointLeft, "select the next point of lower latency", Some("point")),
    bind(PARETO, &[RIGHT], Action::PointRight, "select the next point of higher latency", None),
    bind(PARETO, &[UP], Action::PointUp, "select the next point of higher throughput", None),
    bind(PARETO, &[DOWN], Action::PointDown, "select the next point of lower throughput", None),
    bind(PARETO, &[Key::char('p')], Action::CycleP2p, "show P2P on, off, or both", Some("P2P")),
    bind(PARETO, &[Key::char('g')], Action::CycleGroup, "next group: model, workload, hardware, provenance", Some("group")),
    bind(PARETO, &[Key::char('x')], Action::Export, "export the figure as SVG and PNG", Some("export")),
    bind(PARETO, &[Key::char('R')], Action::Reload, "read the runs directory again", None),
    bind(COMPARE, &[ENTER], Action::OpenPair, "open the timeline of the pair's run", Some("timeline")),
    bind(COMPARE, &[Key::char('b')], Action::OpenBoth, "open both timelines: the pair's run over its baseline", Some("both")),
    bind(COMPARE, &[Key::char('a')], Action::NextAxis, "compare by the next axis", Some("axis")),
    bind(COMPARE, &[Key::char('A')], Action::PreviousAxis, "compare by the previous axis", None),
    bind(COMPARE, &[Key::char('R')], Action::Reload, "read the runs directory again", None),
    bind(ANYWHERE, &[UP, Key::char('k')], Action::Up, "up one row", None),
    bind(ANYWHERE, &[DOWN, Key::char('j')], Action::Down, "down one row", None),
    bind(ANYWHERE, &[PAGE_UP, Key::control('u')], Action::PageUp, "up one page", None),
    bind(ANYWHERE, &[PAGE_DOWN, Key::control('d')], Action::PageDown, "down one page", None),
    bind(ANYWHERE, &[Key::of(KeyCode::Home)], Action::First, "first row", None),
    bind(ANYWHERE, &[Key::of(KeyCode::End), Key::char('G')], Action::Last, "last row", None),
    bind(ANYWHERE, &[Key::char('1')], Action::Show(Screen::Experiments), "screen: experiments", None),
    bind(ANYWHERE, &[Key::char('2')], Action::Show(Screen::Live), "screen: live", None),
    bind(ANYWHERE, &[Key::char('3')], Action::Show(Screen::Runs), "screen: runs", None),
    bind(ANYWHERE, &[Key::char('4')], Action::Show(Screen::Timeline), "screen: timeline", None),
    bind(ANYWHERE, &[Key::char('5')], Action::Show(Screen::Pareto), "screen: pareto", None),
    bind(ANYWHERE, &[Key::char('6')], Action::Show(Screen::Compare), "screen: compare", None),
    bind(ANYWHERE, &[Key::char('o')], Action::TypeOpen, "open a trace file", None),
    bind(ANYWHERE, &[Key::of(KeyCode::Tab)], Action::NextScreen, "next screen", None),
    bind(ANYWHERE, &[Key::of(KeyCode::BackTab)], Action::PreviousScreen, "previous screen", None),
    bind(ANYWHERE, &[Key::char('?')], Action::Help, "help", Some("help")),
    bind(ANYWHERE, &[Key::char(':')], Action::Palette, "palette of all actions", Some("palette")),
    bind(ANYWHERE, &[Key::of(KeyCode::Esc)], Action::Close, "close what lies on top", None),
    bind(ANYWHERE, &[Key::char('m')], Action::ToggleMouse, "mouse capture on or off", None),
    bind(ANYWHERE, &[Key::char('q'), Key::control('c')], Action::Quit, "quit", Some("quit")),
];
