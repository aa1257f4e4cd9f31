//! Key presses: their names in key maps, and their labels in hints and help.

use std::fmt;
use std::str::FromStr;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Key press. Shift is part of a character, and a modifier of any other key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    code: KeyCode,
    modifiers: KeyModifiers,
}

/// Named keys: name in key maps, code, label in help.
const NAMES: [(&str, KeyCode, &str); 17] = [
    ("Enter", KeyCode::Enter, "Enter"),
    ("Esc", KeyCode::Esc, "Esc"),
    ("Tab", KeyCode::Tab, "Tab"),
    ("Backspace", KeyCode::Backspace, "Backspace"),
    ("Delete", KeyCode::Delete, "Delete"),
    ("Insert", KeyCode::Insert, "Insert"),
    ("Left", KeyCode::Left, "←"),
    ("Right", KeyCode::Right, "→"),
    ("Up", KeyCode::Up, "↑"),
    ("Down", KeyCode::Down, "↓"),
    ("PageUp", KeyCode::PageUp, "PgUp"),
    ("PageDown", KeyCode::PageDown, "PgDn"),
    ("Home", KeyCode::Home, "Home"),
    ("End", KeyCode::End, "End"),
    ("Space", KeyCode::Char(' '), "Space"),
    ("Minus", KeyCode::Char('-'), "-"),
    ("Plus", KeyCode::Char('+'), "+"),
];

impl Key {
    pub fn from_event(event: &KeyEvent) -> Self {
        let (mut code, mut modifiers) = (event.code, event.modifiers);
        modifiers &= KeyModifiers::CONTROL | KeyModifiers::ALT | KeyModifiers::SHIFT;
        match code {
            KeyCode::Char(_) => modifiers -= KeyModifiers::SHIFT,
            KeyCode::BackTab => {
                code = KeyCode::Tab;
                modifiers |= KeyModifiers::SHIFT;
            }
            _ => {}
        }
        Self { code, modifiers }
    }

    /// Key with this label: `↑`, `Enter`, `y`.
    pub fn labelled(label: &str) -> Option<Self> {
        let known = NAMES.iter().find(|(.., shown)| *shown == label);
        known.map_or_else(|| label.parse().ok(), |(name, ..)| name.parse().ok())
    }

    pub fn event(self) -> KeyEvent {
        KeyEvent::new(self.code, self.modifiers)
    }

    /// Label in help: `Ctrl-U`, `↑`.
    pub fn label(self) -> String {
        let known = NAMES.iter().find(|(_, code, _)| *code == self.code);
        let name = known.map_or_else(|| name_of(self.code), |(.., label)| (*label).to_owned());
        let name =
            if self.modifiers.contains(KeyModifiers::CONTROL) { name.to_uppercase() } else { name };
        format!("{}{name}", self.prefix(["Ctrl-", "Alt-", "Shift-"]))
    }

    fn prefix(self, words: [&str; 3]) -> String {
        [KeyModifiers::CONTROL, KeyModifiers::ALT, KeyModifiers::SHIFT]
            .into_iter()
            .zip(words)
            .filter_map(|(modifier, word)| self.modifiers.contains(modifier).then_some(word))
            .collect()
    }
}

fn name_of(code: KeyCode) -> String {
    match (NAMES.iter().find(|(_, c, _)| *c == code), code) {
        (Some((name, ..)), _) => (*name).into(),
        (None, KeyCode::Char(c)) => c.to_string(),
        (None, KeyCode::F(n)) => format!("F{n}"),
        (None, other) => format!("{other:?}"),
    }
}

/// Key map syntax: `ctrl-u`, `shift-Left`, `F5`, `j`.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.prefix(["ctrl-", "alt-", "shift-"]), name_of(self.code))
    }
}

impl FromStr for Key {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut rest, mut modifiers) = (text, KeyModifiers::NONE);
        while let Some((word, behind)) = rest.split_once('-') {
            modifiers |= match word.to_ascii_lowercase().as_str() {
                "ctrl" => KeyModifiers::CONTROL,
                "alt" => KeyModifiers::ALT,
                "shift" => KeyModifiers::SHIFT,
                _ => break,
            };
            rest = behind;
        }
        let mut chars = rest.chars();
        let code = match (chars.next(), chars.next()) {
            (Some(c), None) if !c.is_control() => KeyCode::Char(c),
            _ => named(rest).ok_or_else(|| unknown(text, rest))?,
        };
        if let (KeyCode::Char(c), true) = (code, modifiers.contains(KeyModifiers::SHIFT)) {
            return Err(format!("'{text}': shift is part of a character; write {:?}", shifted(c)));
        }
        Ok(Self { code, modifiers })
    }
}

fn named(name: &str) -> Option<KeyCode> {
    if let Some((_, code, _)) = NAMES.iter().find(|(n, ..)| n.eq_ignore_ascii_case(name)) {
        return Some(*code);
    }
    let number = name.strip_prefix(['F', 'f'])?.parse().ok()?;
    (1..=24).contains(&number).then_some(KeyCode::F(number))
}

fn unknown(text: &str, name: &str) -> String {
    let names = NAMES.iter().map(|(n, ..)| *n).chain(["ctrl-", "alt-", "shift-"]);
    let near = names
        .map(|n| (strsim::jaro_winkler(&n.to_lowercase(), &name.to_lowercase()), n))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match near {
        Some((_, near)) => format!("no key is called '{text}': did you mean {near}?"),
        None => {
            format!("no key is called '{text}': a character, Enter, Left, F5, ctrl-u, shift-Tab, ...")
        }
    }
}

fn shifted(c: char) -> String {
    c.to_uppercase().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn keys_are_read_as_they_are_written(c in any::<char>(), f in 1u8..25, n in 0..NAMES.len(), m in 0u8..8) {
            let modifiers = KeyModifiers::from_bits_truncate(m);
            for code in [KeyCode::Char(c), KeyCode::F(f), NAMES[n].1] {
                if c.is_control() { continue }
                let key = Key::from_event(&KeyEvent::new(code, modifiers));
                prop_assert_eq!(key.to_string().parse::<Key>(), Ok(key));
            }
        }

        #[test]
        fn no_text_breaks_the_reader(text in ".*") {
            let _ = text.parse::<Key>();
        }
    }
}
