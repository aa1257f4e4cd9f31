//! Colours by role, in themes. `terminal`, the default, uses the 16 colours that the terminal's own
//! theme defines and never a background, so that it works on light and dark ones; `dark`, `light` and
//! `high-contrast` bring their own. Without colour (`NO_COLOR`) modifiers alone remain. No state is told
//! by colour alone: glyphs and words say the same.

use std::str::FromStr;

use ratatui::style::{Color, Modifier, Style};

use crate::table::{Provenance, Status};

/// Series (architectures, modules) that look different from each other; more repeat them.
const SERIES: usize = 6;

/// What a piece of the screen means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Ordinary text; its background is the window's.
    Text,
    /// Text that matters less: units, notes, what is inactive.
    Dim,
    /// Titles of panes and headers of tables.
    Title,
    /// Frames around panes and popups.
    Border,
    /// The selected row, tab or point.
    Selected,
    /// Keys in hints and help.
    Key,
    /// What went well: a finished run, a gain.
    Good,
    /// What went wrong: a failed run, a loss.
    Bad,
    /// Odd news; emulated and simulated labels.
    Warn,
    /// What is running at this moment.
    Active,
    /// Communication that moves data.
    Comm,
    /// Communication that waits for a peer.
    Waiting,
    /// Communication during which the rank computed nothing.
    Exposed,
    /// One of several series or modules.
    Series(usize),
}

/// Roles and their names in theme files, in the order of [`Theme::styles`]; then come the series.
const ROLES: [(Role, &str); 13] = [
    (Role::Text, "text"),
    (Role::Dim, "dim"),
    (Role::Title, "title"),
    (Role::Border, "border"),
    (Role::Selected, "selected"),
    (Role::Key, "key"),
    (Role::Good, "good"),
    (Role::Bad, "bad"),
    (Role::Warn, "warn"),
    (Role::Active, "active"),
    (Role::Comm, "comm"),
    (Role::Waiting, "waiting"),
    (Role::Exposed, "exposed"),
];

/// Names of the built-in themes, and what each says of each role, in the order of [`role_names`].
const BUILT_IN: [(&str, bool, [&str; ROLES.len() + SERIES]); 4] = [
    (
        "terminal",
        false,
        [
            "",
            "dim",
            "bold",
            "dim",
            "reversed",
            "bold cyan",
            "green",
            "bold red",
            "bold magenta",
            "bold blue",
            "yellow",
            "dim yellow",
            "bold red",
            "blue",
            "green",
            "magenta",
            "cyan",
            "red",
            "yellow",
        ],
    ),
    (
        "dark",
        false,
        [
            "252 on 234",
            "245",
            "bold 255",
            "240",
            "bold 255 on 24",
            "bold 80",
            "114",
            "bold 210",
            "bold 176",
            "bold 75",
            "221",
            "179",
            "bold 209",
            "75",
            "114",
            "176",
            "80",
            "210",
            "221",
        ],
    ),
    (
        "light",
        true,
        [
            "236 on 255",
            "244",
            "bold 232",
            "248",
            "bold 232 on 153",
            "bold 25",
            "28",
            "bold 124",
            "bold 90",
            "bold 25",
            "130",
            "136",
            "bold 160",
            "25",
            "28",
            "90",
            "30",
            "124",
            "130",
        ],
    ),
    (
        "high-contrast",
        false,
        [
            "15 on 16",
            "15",
            "bold underlined 15",
            "15",
            "bold 16 on 15",
            "bold 14",
            "bold 10",
            "bold 16 on 9",
            "bold 13",
            "bold 14",
            "bold 11",
            "11",
            "bold 16 on 11",
            "bold 12",
            "bold 10",
            "bold 13",
            "bold 14",
            "bold 9",
            "bold 11",
        ],
    ),
];

/// Names of everything that a theme can say: the roles, then `series-1` and so on.
pub fn role_names() -> Vec<String> {
    let series = (1..=SERIES).map(|i| format!("series-{i}"));
    ROLES.iter().map(|(_, name)| name.to_string()).chain(series).collect()
}

/// Names of the built-in themes.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, ..)| *name)
}

/// What a built-in theme says of each role: (role, style).
pub fn written(name: &str) -> Option<Vec<(String, &'static str)>> {
    let (.., styles) = BUILT_IN.iter().find(|(n, ..)| *n == name)?;
    Some(role_names().into_iter().zip(*styles).collect())
}

/// A style for every role.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Theme {
    styles: [Style; ROLES.len() + SERIES],
    light: bool,
}

impl Theme {
    /// The theme of the terminal, with colours, or without.
    pub fn new(color: bool) -> Self {
        let theme = Self::built_in("terminal")
            .unwrap_or(Self { styles: [Style::new(); ROLES.len() + SERIES], light: false });
        if color { theme } else { theme.without_color() }
    }

    /// The built-in theme of this name; `None` where there is none.
    pub fn built_in(name: &str) -> Option<Self> {
        let (_, light, written) = BUILT_IN.iter().find(|(n, ..)| *n == name)?;
        // a test reads them all
        let styles = written.map(|style| parse(style).unwrap_or_default());
        Some(Self { styles, light: *light })
    }

    /// The theme with another style for a role; why that cannot be.
    pub fn set(&mut self, role: &str, style: &str) -> Result<(), String> {
        let names = role_names();
        let Some(at) = names.iter().position(|name| name == role) else {
            return Err(format!("there is no role '{role}': {}", names.join(", ")));
        };
        self.styles[at] = parse(style)?;
        Ok(())
    }

    /// Modifiers alone; what had a background is reversed.
    pub fn without_color(mut self) -> Self {
        for (i, style) in self.styles.iter_mut().enumerate() {
            let marked = i > 0 && style.bg.is_some();
            *style = Style::new().add_modifier(style.add_modifier);
            if marked {
                *style = style.add_modifier(Modifier::REVERSED);
            }
        }
        self
    }

    /// Colours that a terminal without 24 bits a colour can show: the nearest of its 256.
    pub fn with_256_colors(mut self) -> Self {
        for style in &mut self.styles {
            style.fg = style.fg.map(nearest);
            style.bg = style.bg.map(nearest);
        }
        self
    }

    /// Whether it is meant for dark text on light paper.
    pub fn is_light(self) -> bool {
        self.light
    }

    /// The style of a role.
    pub fn style(self, role: Role) -> Style {
        let at = match role {
            Role::Series(i) => ROLES.len() + i % SERIES,
            role => ROLES.iter().position(|(r, _)| *r == role).unwrap_or(0),
        };
        self.styles[at]
    }

    /// The style of a status's glyph.
    pub fn status(self, status: Status) -> Style {
        self.style(match status {
            Status::Ok => Role::Good,
            Status::Failed => Role::Bad,
            Status::Oom | Status::Interrupted => Role::Warn,
            Status::Skipped => Role::Dim,
        })
    }

    /// The style of a provenance label.
    pub fn provenance(self, provenance: Provenance) -> Style {
        self.style(match provenance {
            Provenance::Measured => Role::Good,
            Provenance::EmulatedLink | Provenance::Simulated => Role::Warn,
        })
    }
}

/// A style in words: `bold red`, `#d55e00 on black`, `dim`, `214`; the empty text is the terminal's own.
fn parse(text: &str) -> Result<Style, String> {
    let mut style = Style::new();
    let mut words = text.split_whitespace();
    while let Some(word) = words.next() {
        style = match word {
            "bold" => style.add_modifier(Modifier::BOLD),
            "dim" => style.add_modifier(Modifier::DIM),
            "italic" => style.add_modifier(Modifier::ITALIC),
            "underlined" => style.add_modifier(Modifier::UNDERLINED),
            "reversed" => style.add_modifier(Modifier::REVERSED),
            "on" => style.bg(color(words.next().ok_or("'on' wants a colour behind it")?)?),
            word => style.fg(color(word)?),
        };
    }
    Ok(style)
}

fn color(word: &str) -> Result<Color, String> {
    Color::from_str(word).map_err(|_| {
        format!(
            "'{word}' is no colour: a name such as red or lightblue, 0 to 255, #rrggbb; \
             or bold, dim, italic, underlined, reversed, on COLOUR"
        )
    })
}

/// The nearest of xterm's colour cube and greys.
fn nearest(color: Color) -> Color {
    let Color::Rgb(r, g, b) = color else { return color };
    let level = |n: u8| if n == 0 { 0 } else { 55 + 40 * i32::from(n) };
    let cube = (0..216u8).map(|i| (16 + i, [level(i / 36), level(i / 6 % 6), level(i % 6)]));
    let greys = (0..24u8).map(|i| (232 + i, [8 + 10 * i32::from(i); 3]));
    let distance = |c: [i32; 3]| {
        let own = [r, g, b].map(i32::from);
        (0..3).map(|i| (own[i] - c[i]).pow(2)).sum::<i32>()
    };
    let near = cube.chain(greys).min_by_key(|(_, c)| distance(*c));
    near.map_or(color, |(index, _)| Color::Indexed(index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_themes_can_be_read_and_tell_roles_apart_without_colour() {
        for name in names() {
            for (role, style) in written(name).unwrap_or_default() {
                assert!(parse(style).is_ok(), "{name}: {role} = {style}");
            }
            let theme = Theme::built_in(name).map(Theme::without_color).unwrap_or(Theme::new(true));
            assert!(theme.styles.iter().all(|s| s.fg.is_none() && s.bg.is_none()), "{name}");
            assert_ne!(theme.style(Role::Selected), theme.style(Role::Text), "{name}");
        }
        assert_eq!(Theme::built_in("drak"), None);
    }

    #[test]
    fn a_role_is_changed_or_the_reason_said() {
        let mut theme = Theme::new(true);
        assert_eq!(theme.set("exposed", "bold #d55e00 on black"), Ok(()));
        let style = theme.style(Role::Exposed);
        assert_eq!((style.fg, style.bg), (Some(Color::Rgb(0xd5, 0x5e, 0)), Some(Color::Black)));
        assert_eq!(theme.with_256_colors().style(Role::Exposed).fg, Some(Color::Indexed(166)));
        assert_eq!(theme.set("series-2", "75"), Ok(()));
        assert_eq!(theme.style(Role::Series(1)).fg, Some(Color::Indexed(75)));
        let wrong = |role, style| Theme::new(true).set(role, style).unwrap_err();
        assert!(wrong("exposd", "red").contains("exposed"));
        assert!(wrong("exposed", "redd").contains("'redd' is no colour"));
        assert!(wrong("exposed", "red on").contains("'on' wants"));
    }
}
