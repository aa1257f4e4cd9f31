//! User settings of the workbench (theme, colours, keys, mouse) in one TOML file. Each mistake is
//! reported on its own line and the rest still applies, so a typo never locks anyone out.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use toml_edit::{Document, Item};

use super::keymap::{Keymap, is_fixed};
use super::theme::{self, Theme};
use base::cache::own_directory;
use base::error::{Error, Result};
use base::input::InputKind;

/// Environment variable that overrides the settings path.
const VARIABLE: &str = "LADDERSCOPE_CONFIG";

#[derive(Clone, Debug)]
pub struct WorkbenchConfig {
    pub theme: Theme,
    /// Every theme, adapted to the user's colours and this terminal.
    pub themes: Themes,
    pub keys: Keymap,
    /// True if the mouse starts captured.
    pub mouse: bool,
    /// Problems in the file, one line each: `FILE:LINE: ...`.
    pub wrong: Vec<String>,
}

/// Themes with the user's colours, adapted to the terminal.
#[derive(Clone, Debug, Default)]
pub struct Themes {
    /// Theme name from the settings; the default theme's name if unset.
    pub setting: String,
    /// Theme from the settings file, before adapting it to the terminal's colour depth.
    own: Option<Theme>,
    /// Role styles from the settings, applied on top of every theme.
    colors: Vec<(String, String)>,
    around: Surroundings,
}

impl Themes {
    /// Selectable names: the built-in themes, plus the one from the settings if it is a file.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = theme::names().map(str::to_owned).collect();
        if !self.setting.is_empty() && !names.contains(&self.setting) {
            names.push(self.setting.clone());
        }
        names
    }

    /// Returns a theme by name with the user's colours, reduced to this terminal's colour depth.
    pub fn of(&self, name: &str) -> Option<Theme> {
        let own = self.own.filter(|_| name == self.setting);
        let mut theme = own.or_else(|| Theme::built_in(name))?;
        for (role, style) in &self.colors {
            // errors were reported when the settings were read
            let _ = theme.set(role, style);
        }
        if !self.around.true_color {
            theme = theme.with_256_colors();
        }
        Some(if self.around.no_color { theme.without_color() } else { theme })
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Colours disabled (`NO_COLOR`).
    pub no_color: bool,
    /// 24-bit colour support (`COLORTERM`).
    pub true_color: bool,
    /// At most 16 colours (`TERM`).
    pub few_colors: bool,
    /// SSH session; mouse capture would get in the way of selecting text.
    pub ssh: bool,
}

impl Surroundings {
    /// Theme if the settings name none.
    pub fn theme(&self) -> &'static str {
        if self.no_color || self.few_colors { theme::TERMINAL } else { theme::NEUTRAL }
    }

    pub fn of_process() -> Self {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let depth = std::env::var("COLORTERM").unwrap_or_default();
        let term = std::env::var("TERM").unwrap_or_default();
        // terminals with 256 colours whose `TERM` does not say so
        let with_256 = ["256color", "kitty", "alacritty", "ghostty", "wezterm", "foot", "direct"];
        Self {
            no_color: set("NO_COLOR"),
            true_color: depth == "truecolor" || depth == "24bit",
            few_colors: depth.is_empty() && !with_256.iter().any(|name| term.contains(name)),
            ssh: set("SSH_CONNECTION") || set("SSH_TTY"),
        }
    }
}

/// Settings path: `$LADDERSCOPE_CONFIG`, or `ladderscope/config.toml` in the user's configuration
/// directory; `None` without a home directory.
pub fn path() -> Option<PathBuf> {
    variable(VARIABLE).or_else(|| Some(own_directory("XDG_CONFIG_HOME", ".config")?.join("config.toml")))
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

impl WorkbenchConfig {
    pub fn load(around: &Surroundings) -> Self {
        let Some(path) = path() else { return Self::parse("", Path::new(""), around) };
        match InputKind::SETTINGS.text(&path) {
            Ok(text) => Self::parse(&text, &path, around),
            Err(error) => {
                let mut config = Self::parse("", &path, around);
                if path.exists() {
                    config.wrong.push(error.to_string());
                }
                config
            }
        }
    }

    /// Parses settings; `path` is used in messages and to resolve theme files.
    pub fn parse(text: &str, path: &Path, around: &Surroundings) -> Self {
        let mut reader = Reader { text, path, wrong: Vec::new() };
        let document = Document::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            reader.say(at, error.message());
        });
        let mut theme = Theme::built_in(around.theme()).unwrap_or(Theme::new(true));
        let mut changes = Vec::new();
        let setting = around.theme().to_owned();
        let mut themes = Themes { setting, around: *around, ..Themes::default() };
        let mut mouse = !around.ssh;
        for (key, item) in document.iter().flat_map(|d| d.iter()) {
            match key {
                "theme" => {
                    if let Some(named) = reader.theme(item) {
                        theme = named;
                        themes.setting = item.as_str().unwrap_or_default().to_owned();
                    }
                }
                "mouse" => match (item.as_bool(), item.as_str()) {
                    (Some(wanted), _) => mouse = wanted,
                    (None, Some("auto")) => {}
                    _ => reader.say(start(item), "mouse is true, false or \"auto\" (off over SSH)"),
                },
                // applied after the theme, regardless of their order in the file
                "colors" | "keys" => {}
                other => reader.say(
                    start(item),
                    &format!("unknown setting '{other}': theme, mouse, [colors], [keys]"),
                ),
            }
        }
        themes.own = Some(theme);
        if let Ok(document) = &document {
            themes.colors = reader.colors(document.get("colors"), &mut theme);
            changes = reader.keys(document.get("keys"));
        }
        let (keys, clashes) = Keymap::with(&changes);
        reader.wrong.extend(clashes.iter().map(|why| format!("{}: {why}", path.display())));
        let theme = themes.of(&themes.setting).unwrap_or(theme);
        Self { theme, themes, keys, mouse, wrong: reader.wrong }
    }
}

fn start(item: &Item) -> usize {
    item.span().map_or(0, |span| span.start)
}

struct Reader<'a> {
    text: &'a str,
    path: &'a Path,
    wrong: Vec<String>,
}

impl Reader<'_> {
    fn say(&mut self, at: usize, why: &str) {
        let before = self.text.as_bytes().get(..at).unwrap_or(self.text.as_bytes());
        let line = before.iter().filter(|b| **b == b'\n').count() + 1;
        let why = why.trim().replace('\n', "; ");
        self.wrong.push(format!("{}:{line}: {why}", self.path.display()));
    }

    /// Loads a built-in theme by name, or a TOML file with a colour table.
    fn theme(&mut self, item: &Item) -> Option<Theme> {
        let Some(name) = item.as_str() else {
            self.say(start(item), "theme is a name or the path of a TOML file");
            return None;
        };
        if let Some(theme) = Theme::built_in(name) {
            return Some(theme);
        }
        if !name.ends_with(".toml") {
            let known = theme::names().collect::<Vec<_>>().join(", ");
            self.say(start(item), &format!("unknown theme '{name}'; use {known}, or a .toml file"));
            return None;
        }
        // relative to the settings file
        let path = self.path.parent().unwrap_or(Path::new("")).join(name);
        let text = InputKind::SETTINGS.text(&path);
        let text = text.map_err(|error| self.say(start(item), &format!("theme {error}"))).ok()?;
        let mut inner = Reader { text: &text, path: &path, wrong: Vec::new() };
        let mut theme = Theme::new(true);
        match Document::parse(text.as_str()) {
            Ok(document) => {
                if let Some(base) = document.get("theme") {
                    match base.as_str().and_then(Theme::built_in) {
                        Some(base) => theme = base,
                        None => {
                            inner.say(start(base), "theme is the name of a built-in one to start from")
                        }
                    }
                }
                inner.colors(document.get("colors"), &mut theme);
            }
            Err(error) => inner.say(error.span().map_or(0, |s| s.start), error.message()),
        }
        self.wrong.extend(inner.wrong);
        Some(theme)
    }

    fn colors(&mut self, item: Option<&Item>, theme: &mut Theme) -> Vec<(String, String)> {
        let mut right = Vec::new();
        let Some(item) = item else { return right };
        let Some(table) = item.as_table_like() else {
            self.say(start(item), "[colors] is a table: exposed = \"bold red\"");
            return right;
        };
        for (role, item) in table.iter() {
            let style = item.as_str().ok_or_else(|| format!("{role} needs a text such as \"bold red\""));
            match style.and_then(|style| theme.set(role, style).map(|()| style)) {
                Ok(style) => right.push((role.to_owned(), style.to_owned())),
                Err(why) => self.say(start(item), &why),
            }
        }
        right
    }

    fn keys(&mut self, item: Option<&Item>) -> Vec<(String, Vec<String>)> {
        let mut changes = Vec::new();
        let Some(item) = item else { return changes };
        let Some(table) = item.as_table_like() else {
            self.say(start(item), "[keys] is a table: \"runs.filter\" = [\"/\", \"f\"]");
            return changes;
        };
        for (name, item) in table.iter() {
            // accepts both "runs.filter" = ... and [keys.runs] filter = ...
            let inner: Vec<(String, &Item)> = match item.as_table_like() {
                Some(table) => table.iter().map(|(k, v)| (format!("{name}.{k}"), v)).collect(),
                None => vec![(name.to_string(), item)],
            };
            for (id, item) in inner {
                let words = match (item.as_str(), item.as_array()) {
                    (Some(text), _) => Some(text.split_whitespace().map(String::from).collect()),
                    (None, Some(list)) => list.iter().map(|k| k.as_str().map(String::from)).collect(),
                    (None, None) => None,
                };
                let Some(words) = words else {
                    self.say(start(item), &format!("{id} needs a list of keys: [\"ctrl-f\", \"F5\"]"));
                    continue;
                };
                let change: (String, Vec<String>) = (id, words);
                // checked one at a time first, so that each problem gets its line number
                match Keymap::with(std::slice::from_ref(&change)).1.first() {
                    Some(why) => self.say(start(item), why),
                    None => changes.push(change),
                }
            }
        }
        changes
    }
}

/// Settings template listing the defaults; every line is commented out.
pub fn template(theme: &str) -> Result<String> {
    let styles = theme::written(theme).ok_or_else(|| Error::unknown("theme", theme, theme::names()))?;
    let names: Vec<_> = theme::names().collect();
    let mut text = String::from("# Workbench settings. Commented lines show the defaults.\n\n");
    let _ = writeln!(text, "# {}, or a TOML file with a table [colors]", names.join(", "));
    let _ = writeln!(text, "# theme = \"{theme}\"\n");
    text.push_str(
        "# true, false, or \"auto\": on, except over SSH, where it would block text selection\n",
    );
    text.push_str("# mouse = \"auto\"\n\n");
    text.push_str("# A style is a colour (a name, 0 to 255, #rrggbb), `on` another, and any of bold, dim, italic,\n");
    text.push_str("# underlined, reversed. The background of `text` is the window's.\n# [colors]\n");
    for (role, style) in styles {
        let _ = writeln!(text, "# {role} = \"{style}\"");
    }
    text.push_str(
        "\n# Keys: a character, Enter, Esc, Tab, Space, Left, PageUp, F5, ...; ctrl-, alt-, shift- before it.\n\
         # An empty list takes an action's keys away; it stays in the palette. ? : q Esc Tab and digits never change.\n\
         # [keys]\n",
    );
    let map = Keymap::default();
    for bound in map.all().iter().filter(|bound| !is_fixed(bound.action)) {
        let keys: Vec<_> =
            bound.keys.iter().map(|key| toml_edit::Value::from(key.to_string()).to_string()).collect();
        let keys = keys.iter().map(|k| k.trim()).collect::<Vec<_>>().join(", ");
        let _ = writeln!(text, "# \"{}\" = [{keys}]  # {}", bound.id(), bound.row.name);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::tui::keymap::Action;
    use crate::face::tui::theme::Role;

    fn parse(text: &str) -> WorkbenchConfig {
        WorkbenchConfig::parse(
            text,
            Path::new("c.toml"),
            &Surroundings { true_color: true, ..Default::default() },
        )
    }

    #[test]
    fn settings_hold_and_mistakes_are_told_with_their_lines() {
        let config = parse(
            "theme = \"dark\"\nmouse = false\n[colors]\nexposed = \"bold #ff0000\"\n[keys]\n\
             \"everywhere.down\" = [\"ctrl-n\"]\nruns.filter = \"f F3\"\n",
        );
        assert_eq!(config.wrong, Vec::<String>::new());
        assert!(!config.mouse);
        assert_eq!(config.keys.label(Action::Down), "Ctrl-N");
        let mut dark = Theme::built_in("dark").unwrap();
        dark.set("exposed", "bold #ff0000").unwrap();
        assert_eq!(config.theme, dark);

        let config = parse(
            "theme = \"drak\"\nmuose = true\n[colors]\nexposed = \"rde\"\ndim = \"245\"\n[keys]\n\
             \"everywhere.down\" = [\"Entr\"]\n\"everywhere.quit\" = [\"Q\"]\n\"everywhere.up\" = [\"F2\"]\n",
        );
        let lines: Vec<_> = config.wrong.iter().map(|w| w.split(": ").next().unwrap()).collect();
        assert_eq!(
            lines,
            ["c.toml:1", "c.toml:2", "c.toml:4", "c.toml:7", "c.toml:8"],
            "{:?}",
            config.wrong
        );
        assert_eq!(config.keys.label(Action::Up), "F2", "what is right holds");
        assert_eq!(config.keys.label(Action::Down), "↓", "what is wrong is left as it was");
        assert_ne!(config.theme.style(Role::Dim), Theme::new(true).style(Role::Dim));
    }

    #[test]
    fn a_broken_file_is_one_line_and_everything_is_built_in() {
        let config = parse("theme = \n[keys");
        assert_eq!(config.wrong.len(), 1, "{:?}", config.wrong);
        assert!(config.wrong[0].starts_with("c.toml:2: "), "{:?}", config.wrong);
        assert_eq!(config.theme, Theme::new(true));
    }

    #[test]
    fn the_environment_decides_where_nothing_is_said() {
        let around = Surroundings { ssh: true, no_color: true, ..Default::default() };
        let config = WorkbenchConfig::parse("theme = \"light\"", Path::new(""), &around);
        assert!(!config.mouse);
        assert_eq!(config.theme, Theme::built_in("light").unwrap().without_color());
        assert!(WorkbenchConfig::parse("mouse = true", Path::new(""), &around).mouse);
        let few = Surroundings { few_colors: true, ..Default::default() };
        let of = |around| WorkbenchConfig::parse("", Path::new(""), around).theme;
        assert_eq!(of(&few), Theme::built_in("terminal").unwrap());
        assert_eq!(of(&Surroundings::default()), Theme::built_in("neutral").unwrap());
    }

    #[test]
    fn the_template_says_what_is_built_in() {
        for name in theme::names() {
            let text = template(name).unwrap();
            let said: String = text
                .lines()
                .filter_map(|line| line.strip_prefix("# "))
                .filter(|line| line.starts_with('[') || line.contains(" = "))
                .map(|line| format!("{line}\n"))
                .collect();
            let config = parse(&said);
            assert_eq!(config.wrong, Vec::<String>::new(), "{said}");
            assert_eq!(config.theme, Theme::built_in(name).unwrap());
            for (a, b) in config.keys.all().iter().zip(Keymap::default().all()) {
                assert_eq!(a.keys, b.keys, "{}", a.id());
            }
        }
        assert!(template("drak").is_err());
    }
}
