//! Command palette: fuzzy search over the currently usable actions with their shortcuts, and paths of
//! trace files.

use super::action::Action;
use super::keymap::{Bound, Keymap, Scope};
use super::opener::{clean, looks_like_path};
use super::prelude::*;
use super::update::act;

/// Bindings usable on a screen, its own first.
pub fn usable(keys: &Keymap, tab: Tab) -> impl Iterator<Item = &Bound> {
    keys.all()
        .iter()
        .filter(move |b| b.holds_on(tab) && !matches!(b.action, Action::Palette | Action::Close))
        // drop global bindings whose keys the screen uses itself
        .filter(move |b| b.scope != Scope::Anywhere || !hidden(keys, tab, b))
}

/// True if the screen overrides every key of a global binding.
fn hidden(keys: &Keymap, tab: Tab, bound: &Bound) -> bool {
    !bound.keys.is_empty() && bound.keys.iter().all(|k| keys.is_taken(tab, *k))
}

/// Path of a trace file, with or without a leading `open`; `None` for search words.
fn path(typed: &str) -> Option<String> {
    let typed = typed.trim_start();
    let path = typed.strip_prefix("open ").unwrap_or(typed);
    looks_like_path(path).then(|| clean(path))
}

impl Context {
    pub fn type_into_palette(&mut self, text: &str) {
        let bounds: Vec<&Bound> = usable(&self.keys, self.tab).collect();
        let actions: Vec<Action> = bounds.iter().map(|bound| bound.action).collect();
        let lines = bounds.iter().map(|bound| (bound.row.name.to_owned(), bound.label())).collect();
        let literal = |typed: &str, _| Some(format!("Enter opens {}", path(typed)?));
        let pick = Pick::new("palette", lines, literal, move |state, chosen| match chosen {
            Chosen::Line(at) => actions.get(at).into_iter().for_each(|action| act(state, *action)),
            Chosen::Text(typed) => {
                if let Some(path) = path(&typed) {
                    state.cx.request(Request::OpenPath(path, Opening::Alone(None)));
                }
            }
        });
        self.lay(pick.typed(text));
    }

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
                let Chosen::Line(at) = chosen else { return };
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
    use crate::face::tui::theme::Theme;

    fn first(tab: Tab, typed: &str) -> Option<Action> {
        let mut cx = Context::new("runs".into(), Theme::new(true), (80, 24));
        cx.tab = tab;
        cx.type_into_palette(typed);
        let at = *cx.top::<Pick>()?.found().first()?;
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
    fn without_a_query_the_screen_comes_first() {
        let map = Keymap::default();
        let all: Vec<&Bound> = usable(&map, Tab::Experiments).collect();
        assert_eq!(all[0].action, Action::of::<experiments::Experiments>(experiments::Act::Run));
        assert!(all.iter().any(|b| b.action == Action::Quit));
    }
}
