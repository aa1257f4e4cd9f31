//! State saved between sessions: the screen, and each screen's sort order and zoom. Stored
//! per runs directory in the user's state directory, because several people may share the runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::prelude::*;
use super::scope::KeptScope;
use base::cache::own_directory;
use base::error::{Error, Result};
use base::input::InputKind;
use base::{atomic, checksum};

/// Format version; raise it when older versions could misread the file.
const VERSION: u32 = 1;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SavedSession {
    version: u32,
    /// Runs directory, for people reading the file.
    dir: PathBuf,
    screen: String,
    #[serde(default)]
    recent: Vec<String>,
    #[serde(default)]
    scope: KeptScope,
    pages: BTreeMap<String, Value>,
}

/// Path of the saved state of a runs directory; `None` without a home directory.
pub fn path(dir: &Path) -> Option<PathBuf> {
    let own = own_directory("XDG_STATE_HOME", ".local/state")?;
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let name = checksum::sha256(dir.as_os_str().as_encoded_bytes());
    Some(own.join(format!("workbench-{}.json", &name[..12])))
}

/// Loads saved state; `None` if the file does not exist.
pub fn load(path: &Path) -> Result<Option<SavedSession>> {
    if !path.exists() {
        return Ok(None);
    }
    let bytes = InputKind::SETTINGS.bytes(path)?;
    let memory: SavedSession = serde_json::from_slice(&bytes).map_err(|error| {
        Error::input_help(
            format!("{}: {error}", path.display()),
            "last session not restored; its file is kept as .json.old",
        )
    })?;
    if memory.version > VERSION {
        return Err(Error::input(format!(
            "{}: written by a newer version (format {}, this one reads {VERSION})",
            path.display(),
            memory.version
        )));
    }
    Ok(Some(memory))
}

/// Theme chosen in the workbench, for all runs directories. Valid as long as the settings still name the
/// theme they named when it was chosen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct ChosenTheme {
    theme: Option<String>,
    /// Theme in the settings at that time.
    instead_of: String,
}

fn theme_path() -> Option<PathBuf> {
    Some(own_directory("XDG_STATE_HOME", ".local/state")?.join("theme.json"))
}

/// Restores the theme chosen in the workbench, unless the settings' theme changed since.
pub fn recall_theme(cx: &mut Context) {
    let kept = theme_path().and_then(|path| InputKind::SETTINGS.bytes(&path).ok());
    let kept: Option<ChosenTheme> = kept.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    if let Some(ChosenTheme { theme: Some(theme), instead_of }) = kept
        && instead_of == cx.themes.setting
    {
        cx.take_theme(theme);
        cx.recalled_theme = cx.chosen_theme.clone();
    }
}

/// Saves the chosen theme if it changed in this session, so that a choice made in a concurrent session
/// survives.
pub fn save_theme(cx: &Context) -> Result<()> {
    let Some(path) = theme_path().filter(|_| cx.chosen_theme != cx.recalled_theme) else {
        return Ok(());
    };
    let (theme, instead_of) = (cx.chosen_theme.clone(), cx.themes.setting.clone());
    if theme.is_none() && !path.exists() {
        return Ok(());
    }
    let text = serde_json::to_string(&ChosenTheme { theme, instead_of });
    let text = text.map_err(|error| Error::failed(error.to_string()))?;
    atomic::write(&path, text.as_bytes())
}

/// Renames an unreadable file to `.json.old`: it may contain unsaved edits.
pub fn keep_aside(path: &Path) -> Result<()> {
    std::fs::rename(path, path.with_extension("json.old")).map_err(Error::io(path))
}

pub fn save(path: &Path, memory: &SavedSession) -> Result<()> {
    let mut text = serde_json::to_string_pretty(memory).map_err(|e| Error::failed(e.to_string()))?;
    text.push('\n');
    atomic::write(path, text.as_bytes())
}

pub fn remember(state: &State) -> SavedSession {
    let kept = |tab: Tab| Some((tab.title().to_string(), state.screen(tab).remember()?));
    SavedSession {
        version: VERSION,
        dir: std::path::absolute(&state.cx.dir).unwrap_or_else(|_| state.cx.dir.clone()),
        screen: state.cx.tab.title().into(),
        recent: state.cx.recent.clone(),
        scope: state.cx.scope.keep(),
        pages: Tab::ALL.into_iter().filter_map(kept).collect(),
    }
}

/// Restores saved state; `tab` also restores the current screen.
pub fn recall(state: &mut State, memory: &SavedSession, tab: bool) {
    if let Some(shown) = Tab::ALL.into_iter().find(|s| tab && s.title() == memory.screen) {
        state.cx.tab = shown;
    }
    state.cx.recent.clone_from(&memory.recent);
    state.cx.scope.recall(&memory.scope);
    for tab in Tab::ALL {
        if let Some(kept) = memory.pages.get(tab.title()) {
            let (screen, cx) = state.split(tab);
            screen.recall(kept, cx);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::face::tui::theme::Theme;

    fn state() -> State {
        State::new(Context::new("runs".into(), Theme::new(true), (80, 24)))
    }

    #[test]
    fn the_screen_is_remembered_and_nothing_else_is_needed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/memory.json");
        assert_eq!(load(&path).unwrap(), None, "the first time");
        let mut before = state();
        before.cx.tab = Tab::Compare;
        save(&path, &remember(&before)).unwrap();
        let memory = load(&path).unwrap().unwrap();
        let mut after = state();
        recall(&mut after, &memory, true);
        assert_eq!(after.cx.tab, Tab::Compare);
        let mut opened_at_a_trace = state();
        opened_at_a_trace.cx.tab = Tab::Timeline;
        recall(&mut opened_at_a_trace, &memory, false);
        assert_eq!(opened_at_a_trace.cx.tab, Tab::Timeline);
    }

    #[test]
    fn a_file_that_cannot_be_read_says_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("memory.json");
        for text in ["", "{", "[]", "{\"version\":99,\"dir\":\"\",\"screen\":\"\",\"pages\":{}}"] {
            std::fs::write(&path, text).unwrap();
            let error = load(&path).unwrap_err().to_string();
            assert!(error.contains("memory.json"), "{text}: {error}");
        }
    }

    #[test]
    fn every_runs_directory_has_its_own() {
        assert_ne!(path(Path::new("a")), path(Path::new("b")));
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".*".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            let key =
                prop_oneof!["[a-z_]{1,8}", "sort|filter|columns|group|axis|window|run|from|to|values"];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((key, inner), 0..4)
                    .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn whatever_is_in_the_file_breaks_no_page(values in prop::collection::vec(values(), Tab::ALL.len())) {
            let pages = Tab::ALL.iter().map(|s| s.title().to_string()).zip(values).collect();
            let (screen, recent) = ("timeline".into(), Vec::new());
            let (dir, scope) = (PathBuf::new(), KeptScope::default());
            let memory = SavedSession { version: VERSION, dir, screen, recent, scope, pages };
            let mut state = state();
            recall(&mut state, &memory, true);
            let again = remember(&state);
            recall(&mut state, &again, true);
        }
    }
}
