//! The palette: every action that can be used now, found by fuzzy search, with its shortcut; and paths
//! of trace files, typed or dropped.

use super::action::Action;
use super::context::{Context, Opening, Request};
use super::keymap::{Bound, Keymap, Scope};
use super::overlay::{Chosen, Pick};
use super::state::Tab;
use super::update::act;

/// The bindings that can be used on a screen, those of the screen first.
pub fn usable(keys: &Keymap, tab: Tab) -> impl Iterator<Item = &Bound> {
    keys.all()
        .iter()
        .filter(move |b| b.holds_on(tab) && !matches!(b.action, Action::Palette | Action::Close))
        // hidden behind a binding of the screen that has all its keys
        .filter(move |b| b.scope != Scope::Anywhere || !hidden(keys, tab, b))
}

/// Whether the screen does the same thing in its own way: all keys of a binding that holds anywhere
/// are the screen's own.
fn hidden(keys: &Keymap, tab: Tab, bound: &Bound) -> bool {
    !bound.keys.is_empty() && bound.keys.iter().all(|k| keys.is_taken(tab, *k))
}

impl Context {
    /// Opens the palette with something typed.
    pub fn type_into_palette(&mut self, text: &str) {
        let bounds: Vec<&Bound> = usable(&self.keys, self.tab).collect();
        let actions: Vec<Action> = bounds.iter().map(|bound| bound.action).collect();
        let lines = bounds.iter().map(|bound| (bound.row.name.to_owned(), bound.label())).collect();
        let literal = |typed: &str, nothing_matches| {
            let (path, opening) = path(typed, nothing_matches)?;
            let below = if opening == Opening::Beneath { " beneath the trace shown" } else { "" };
            Some(format!("Enter opens {path}{below}"))
        };
        let pick = Pick::new("palette", lines, literal, move |state, chosen| match chosen {
            Chosen::Line(at) => actions.get(at).into_iter().for_each(|action| act(state, *action)),
            Chosen::Text(typed) => {
                if let Some((path, opening)) = path(&typed, true) {
                    state.cx.request(Request::OpenPath(path, opening));
                }
            }
        });
        self.choose(pick.typed(text));
    }
}

/// Typed before a path: open it.
pub const OPEN: &str = "open ";

/// Typed before a path: open it beneath the trace that is shown.
pub const BENEATH: &str = "beneath ";

/// The trace (a path, or a run's id) that what was typed names, and where it is shown: `open PATH`,
/// `beneath PATH`, or a path alone; `None` where it is to be understood as words of an action, which those that
/// no action matches are not.
fn path(typed: &str, nothing_matches: bool) -> Option<(String, Opening)> {
    let command = [(OPEN, Opening::Alone(None)), (BENEATH, Opening::Beneath)]
        .into_iter()
        .find_map(|(word, opening)| Some((typed.trim_start().strip_prefix(word)?, opening)));
    let (text, opening) = command.unwrap_or((typed, Opening::Alone(None)));
    let path = clean(text);
    let meant = looks_like_path(text) || (command.is_some() && nothing_matches);
    (meant && !path.is_empty()).then_some((path, opening))
}

/// Whether a text is a path rather than words.
pub fn looks_like_path(text: &str) -> bool {
    let text = text.trim();
    let name = text.rsplit('/').next().unwrap_or(text);
    text.starts_with(['/', '~', '\'', '"'])
        || text.contains('/')
        || name.rsplit_once('.').is_some_and(|(stem, end)| !stem.is_empty() && !end.is_empty())
}

/// A path as terminals drop it: quoted, with escaped blanks, or as a URL.
fn clean(text: &str) -> String {
    let text = text.trim();
    for quote in ['\'', '"'] {
        if let Some(inner) = text.strip_prefix(quote) {
            return inner.strip_suffix(quote).unwrap_or(inner).into();
        }
    }
    text.strip_prefix("file://").unwrap_or(text).replace("\\ ", " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::tui::overlay::Overlay;
    use crate::face::tui::screens::{experiments, runs, timeline};
    use crate::face::tui::theme::Theme;

    fn opened(tab: Tab, typed: &str) -> Pick {
        let mut cx = Context::new("runs".into(), Theme::new(true), (80, 24));
        cx.tab = tab;
        cx.type_into_palette(typed);
        let Some(Overlay::Pick(pick)) = cx.overlays.pop() else { panic!("the palette is open") };
        pick
    }

    fn first(tab: Tab, typed: &str) -> Option<Action> {
        let at = *opened(tab, typed).found().first()?;
        usable(&Keymap::default(), tab).nth(at).map(|bound| bound.action)
    }

    #[test]
    fn a_few_letters_find_an_action() {
        assert_eq!(
            first(Tab::Timeline, "undo"),
            Some(Action::of::<timeline::Timeline>(timeline::Act::Undo))
        );
        assert_eq!(first(Tab::Runs, "rvrs"), Some(Action::of::<runs::Runs>(runs::Act::SortReverse)));
        assert_eq!(first(Tab::Runs, "undo zoom"), None, "not on this screen");
        assert_eq!(first(Tab::Runs, "qqqq"), None);
    }

    #[test]
    fn paths_are_told_from_words() {
        let of = |tab, typed: &str| path(typed, opened(tab, typed).found().is_empty());
        let open = |typed: &str| of(Tab::Timeline, typed);
        let alone = |path: &str| Some((path.to_string(), Opening::Alone(None)));
        assert_eq!(open("open /tmp/a.parquet"), alone("/tmp/a.parquet"));
        assert_eq!(open("/tmp/a.parquet"), alone("/tmp/a.parquet"), "dropped into the palette");
        assert_eq!(open("'/tmp/a b.json' "), alone("/tmp/a b.json"));
        assert_eq!(open("open /tmp/a\\ b.json"), alone("/tmp/a b.json"));
        assert_eq!(open("file:///tmp/x.sqlite"), alone("/tmp/x.sqlite"));
        assert_eq!(open("beneath trace.json.gz"), Some(("trace.json.gz".into(), Opening::Beneath)));
        assert_eq!(open("open 20260102-0304-1"), alone("20260102-0304-1"), "a run");
        assert_eq!(open("open"), None);
        assert_eq!(open("open "), None);
        assert_eq!(of(Tab::Runs, "open the run"), None, "an action of that screen");
        assert_eq!(open("undo"), None);
    }

    #[test]
    fn without_a_query_the_screen_comes_first() {
        let map = Keymap::default();
        let all: Vec<&Bound> = usable(&map, Tab::Experiments).collect();
        assert_eq!(all[0].action, Action::of::<experiments::Experiments>(experiments::Act::Run));
        assert!(all.iter().any(|b| b.action == Action::Quit));
    }
}
