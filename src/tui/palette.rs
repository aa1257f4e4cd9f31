//! The palette: every action that can be used now, found by fuzzy search, with its shortcut.

use nucleo_matcher::pattern::{CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Matcher};

use super::action::{Action, BINDINGS, Binding, Scope, Screen};

struct Named(&'static Binding);

impl AsRef<str> for Named {
    fn as_ref(&self) -> &str {
        self.0.name
    }
}

/// The bindings that can be used on `screen` and match what was typed, the best first; without a
/// query those of the screen come first.
pub fn matches(screen: Screen, query: &str) -> Vec<&'static Binding> {
    let usable = BINDINGS
        .iter()
        .filter(|b| b.holds_on(screen) && !matches!(b.action, Action::Palette | Action::Close))
        // hidden behind a binding of the screen that has all its keys
        .filter(|b| b.scope != Scope::Anywhere || b.keys.iter().any(|k| !is_taken(screen, *k)));
    let pattern = Pattern::parse(query, CaseMatching::Ignore, Normalization::Smart);
    let mut matcher = Matcher::new(Config::DEFAULT);
    pattern.match_list(usable.map(Named), &mut matcher).into_iter().map(|(named, _)| named.0).collect()
}

/// Whether a screen's own bindings use the key.
pub fn is_taken(screen: Screen, key: super::action::Key) -> bool {
    BINDINGS.iter().any(|b| b.scope == Scope::On(screen) && b.keys.contains(&key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_letters_find_an_action() {
        assert_eq!(matches(Screen::Timeline, "undo")[0].action, Action::Undo);
        assert_eq!(matches(Screen::Runs, "rvrs")[0].action, Action::SortReverse);
        assert!(matches(Screen::Runs, "undo zoom").is_empty(), "not on this screen");
        assert!(matches(Screen::Runs, "qqqq").is_empty());
    }

    #[test]
    fn without_a_query_the_screen_comes_first() {
        let all = matches(Screen::Experiments, "");
        assert_eq!(all[0].action, Action::RunExperiment);
        assert!(all.iter().any(|b| b.action == Action::Quit));
    }
}
