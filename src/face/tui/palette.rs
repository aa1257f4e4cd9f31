//! The palette: every action that can be used now, found by fuzzy search, with its shortcut; and paths
//! of trace files, typed or dropped.

use nucleo_matcher::pattern::{CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Matcher};

use super::action::Action;
use super::context::Opening;
use super::keymap::{Bound, Keymap, Scope};
use super::state::Tab;

struct Named<'a>(&'a Bound);

impl AsRef<str> for Named<'_> {
    fn as_ref(&self) -> &str {
        self.0.row.name
    }
}

/// The bindings that can be used on a screen and match what was typed, the best first; without a
/// query those of the screen come first.
pub fn matches<'a>(keys: &'a Keymap, tab: Tab, query: &str) -> Vec<&'a Bound> {
    let usable = keys
        .all()
        .iter()
        .filter(|b| b.holds_on(tab) && !matches!(b.action, Action::Palette | Action::Close))
        // hidden behind a binding of the screen that has all its keys
        .filter(|b| b.scope != Scope::Anywhere || !hidden(keys, tab, b));
    let pattern = Pattern::parse(query, CaseMatching::Ignore, Normalization::Smart);
    let mut matcher = Matcher::new(Config::DEFAULT);
    pattern.match_list(usable.map(Named), &mut matcher).into_iter().map(|(named, _)| named.0).collect()
}

/// Whether the screen does the same thing in its own way: all keys of a binding that holds anywhere
/// are the screen's own.
fn hidden(keys: &Keymap, tab: Tab, bound: &Bound) -> bool {
    !bound.keys.is_empty() && bound.keys.iter().all(|k| keys.is_taken(tab, *k))
}

/// Typed before a path: open it.
pub const OPEN: &str = "open ";

/// Typed before a path: open it beneath the trace that is shown.
pub const BENEATH: &str = "beneath ";

/// The trace (a path, or a run's id) that what was typed names, and where it is shown: `open PATH`,
/// `beneath PATH`, or a path alone; `None` where it is to be understood as words of an action.
pub fn path(keys: &Keymap, tab: Tab, typed: &str) -> Option<(String, Opening)> {
    let command = [(OPEN, Opening::Alone(None)), (BENEATH, Opening::Beneath)]
        .into_iter()
        .find_map(|(word, opening)| Some((typed.trim_start().strip_prefix(word)?, opening)));
    let (text, opening) = command.unwrap_or((typed, Opening::Alone(None)));
    let path = clean(text);
    let meant = looks_like_path(text) || (command.is_some() && matches(keys, tab, typed).is_empty());
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
    use crate::face::tui::screens::{experiments, runs, timeline};

    fn first(tab: Tab, typed: &str) -> Option<Action> {
        matches(&Keymap::default(), tab, typed).first().map(|bound| bound.action)
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
        let open = |typed: &str| path(&Keymap::default(), Tab::Timeline, typed);
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
        assert_eq!(
            path(&Keymap::default(), Tab::Runs, "open the run"),
            None,
            "an action of that screen"
        );
        assert_eq!(open("undo"), None);
    }

    #[test]
    fn without_a_query_the_screen_comes_first() {
        let map = Keymap::default();
        let all = matches(&map, Tab::Experiments, "");
        assert_eq!(all[0].action, Action::of::<experiments::Experiments>(experiments::Act::Run));
        assert!(all.iter().any(|b| b.action == Action::Quit));
    }
}
