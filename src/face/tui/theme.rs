//! Colours by role, grouped in themes. The default, `neutral`, has medium colours and no background: they can be read
//! on black, white and Solarized. `terminal` uses the terminal's own 16 colours, without the blue and red that
//! disappear on the black of consoles; `dark`, `light` and `high-contrast` have a background. Without colour
//! (`NO_COLOR`) only modifiers remain. Colour is never the only cue: glyphs and words carry the same information.

use std::str::FromStr;

use ratatui::style::{Color, Modifier, Style};

use super::screenshot::rgb;
use table::{Provenance, Status};

/// Number of distinct series styles; further series repeat them.
const SERIES: usize = 6;

/// Number of distinct architecture styles; further ones repeat them.
const ARCHITECTURES: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Ordinary text; its background is the window's.
    Text,
    /// Secondary text: units, notes, inactive items.
    Dim,
    Title,
    Border,
    Selected,
    Key,
    /// Success: a finished run, a gain.
    Good,
    /// Failure: a failed run, a loss.
    Bad,
    /// Warnings, and the label of numbers over emulated links.
    Warn,
    /// Label of simulated numbers.
    Simulated,
    /// Currently running item.
    Active,
    Comm,
    /// Communication waiting for a peer.
    Waiting,
    /// Exposed communication.
    Exposed,
    Series(usize),
    /// Architecture, by its look index; uses the same hue as in figures.
    Architecture(usize),
}

impl Role {
    pub fn of_provenance(provenance: Provenance) -> Self {
        match provenance {
            Provenance::Measured => Self::Good,
            Provenance::EmulatedLink | Provenance::SharedGpu => Self::Warn,
            Provenance::Simulated => Self::Simulated,
        }
    }
}

/// Built-in themes, and true for those with dark text on a light background.
const BUILT_IN: [(&str, bool); 5] =
    [(NEUTRAL, false), (TERMINAL, false), ("dark", false), ("light", true), ("high-contrast", false)];

/// Default theme of terminals with 256 colours.
pub const NEUTRAL: &str = "neutral";

/// Default theme of other terminals; its modifiers suit terminals without colours.
pub const TERMINAL: &str = "terminal";

/// Roles in the order of [`Theme::styles`]: the name in theme files, and the style in each theme of
/// [`BUILT_IN`], as words and 256-colour palette indices.
const ROLES: [(Role, &str, [&str; BUILT_IN.len()]); 14 + SERIES + ARCHITECTURES] = [
    (Role::Text, "text", ["", "", "252 on 234", "236 on 255", "15 on 16"]),
    (Role::Dim, "dim", ["244", "dim", "245", "242", "15"]),
    (Role::Title, "title", ["bold", "bold", "bold 255", "bold 232", "bold underlined 15"]),
    (Role::Border, "border", ["244", "dim", "240", "248", "15"]),
    (
        Role::Selected,
        "selected",
        ["reversed", "reversed", "bold 255 on 24", "bold 232 on 153", "bold 16 on 15"],
    ),
    (Role::Key, "key", ["bold 32", "bold cyan", "bold 80", "bold 25", "bold 14"]),
    (Role::Good, "good", ["28", "green", "114", "22", "bold 10"]),
    (Role::Bad, "bad", ["bold 196", "bold lightred", "bold 210", "bold 124", "bold 16 on 9"]),
    (Role::Warn, "warn", ["bold 163", "bold magenta", "bold 176", "bold 90", "bold 13"]),
    (Role::Simulated, "simulated", ["31", "cyan", "80", "23", "bold 14"]),
    (Role::Active, "active", ["bold 33", "bold lightblue", "bold 75", "bold 25", "bold 14"]),
    (Role::Comm, "comm", ["100", "yellow", "221", "94", "bold 11"]),
    (Role::Waiting, "waiting", ["101", "dim yellow", "179", "58", "11"]),
    (Role::Exposed, "exposed", ["bold 196", "bold lightred", "bold 209", "bold 160", "bold 16 on 11"]),
    (Role::Series(0), "series-1", ["32", "lightblue", "75", "25", "bold 12"]),
    (Role::Series(1), "series-2", ["28", "green", "114", "22", "bold 10"]),
    (Role::Series(2), "series-3", ["133", "magenta", "176", "90", "bold 13"]),
    (Role::Series(3), "series-4", ["30", "cyan", "80", "23", "bold 14"]),
    (Role::Series(4), "series-5", ["167", "lightred", "210", "124", "bold 9"]),
    (Role::Series(5), "series-6", ["100", "yellow", "221", "94", "bold 11"]),
    (Role::Architecture(0), "architecture-1", ["33", "lightblue", "69", "25", "bold 12"]),
    (Role::Architecture(1), "architecture-2", ["166", "lightred", "209", "160", "bold 9"]),
    (Role::Architecture(2), "architecture-3", ["28", "green", "78", "22", "bold 10"]),
    (Role::Architecture(3), "architecture-4", ["164", "magenta", "176", "126", "bold 13"]),
    (Role::Architecture(4), "architecture-5", ["", "", "255", "232", "bold 15"]),
    (Role::Architecture(5), "architecture-6", ["100", "yellow", "214", "94", "bold 11"]),
    (Role::Architecture(6), "architecture-7", ["31", "cyan", "117", "23", "bold 14"]),
    (Role::Architecture(7), "architecture-8", ["244", "dim", "245", "242", "7"]),
    (Role::Architecture(8), "architecture-9", ["bold 168", "bold magenta", "169", "89", "13"]),
    (Role::Architecture(9), "architecture-10", ["bold 130", "bold yellow", "186", "58", "11"]),
    (Role::Architecture(10), "architecture-11", ["bold 99", "bold lightblue", "105", "54", "12"]),
    (Role::Architecture(11), "architecture-12", ["bold 167", "bold lightred", "173", "52", "9"]),
];

pub fn names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _)| *name)
}

/// Role styles of a built-in theme: (role, style).
pub fn written(name: &str) -> Option<[(&'static str, &'static str); ROLES.len()]> {
    let at = names().position(|known| known == name)?;
    Some(ROLES.map(|(_, role, styles)| (role, styles[at])))
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Theme {
    styles: [Style; ROLES.len()],
    light: bool,
}

impl Theme {
    /// Default theme, with or without colours.
    pub fn new(color: bool) -> Self {
        let theme = Self::built_in(if color { NEUTRAL } else { TERMINAL })
            .unwrap_or(Self { styles: [Style::new(); ROLES.len()], light: false });
        if color { theme } else { theme.without_color() }
    }

    pub fn built_in(name: &str) -> Option<Self> {
        // a test parses all of them
        let styles = written(name)?.map(|(_, style)| parse(style).unwrap_or_default());
        Some(Self { styles, light: BUILT_IN.contains(&(name, true)) })
    }

    /// Sets the style of a role; returns the reason if it is invalid.
    pub fn set(&mut self, role: &str, style: &str) -> Result<(), String> {
        let names = ROLES.map(|(_, name, _)| name);
        let Some(at) = names.iter().position(|name| *name == role) else {
            return Err(format!("there is no role '{role}': {}", names.join(", ")));
        };
        self.styles[at] = parse(style)?;
        Ok(())
    }

    /// Keeps only modifiers; styles with a background become reversed.
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

    /// Maps 24-bit colours to the nearest of the 256-colour palette.
    pub fn with_256_colors(mut self) -> Self {
        for style in &mut self.styles {
            style.fg = style.fg.map(nearest);
            style.bg = style.bg.map(nearest);
        }
        self
    }

    /// True if meant for dark text on a light background.
    pub fn is_light(self) -> bool {
        self.light
    }

    /// True if series have distinct styles, which requires colour.
    pub fn tells_series(self) -> bool {
        self.style(Role::Series(0)) != self.style(Role::Series(1))
    }

    pub fn style(self, role: Role) -> Style {
        let role = match role {
            Role::Series(i) => Role::Series(i % SERIES),
            Role::Architecture(i) => Role::Architecture(i % ARCHITECTURES),
            role => role,
        };
        let at = ROLES.iter().position(|(known, ..)| *known == role).unwrap_or(0);
        self.styles[at]
    }

    pub fn status(self, status: Status) -> Style {
        self.style(match status {
            Status::Ok => Role::Good,
            Status::Failed => Role::Bad,
            Status::Oom | Status::Interrupted => Role::Warn,
            Status::Skipped => Role::Dim,
            Status::Running => Role::Active,
        })
    }

    pub fn provenance(self, provenance: Provenance) -> Style {
        self.style(Role::of_provenance(provenance))
    }
}

/// Parses a style: `bold red`, `#d55e00 on black`, `dim`, `214`; empty text is the terminal's default.
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

fn nearest(color: Color) -> Color {
    let Color::Rgb(r, g, b) = color else { return color };
    let fixed = (16..=255).filter_map(|index| Some((index, rgb(Color::Indexed(index), false)?)));
    let distance = |other: [u8; 3]| {
        [r, g, b].into_iter().zip(other).map(|(a, b)| u32::from(a.abs_diff(b)).pow(2)).sum::<u32>()
    };
    let near = fixed.min_by_key(|(_, other)| distance(*other));
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

    /// The contrast of two colours as WCAG 2 has it, 1 to 21.
    fn contrast(a: [u8; 3], b: [u8; 3]) -> f64 {
        let linear = |c: u8| match f64::from(c) / 255.0 {
            c if c <= 0.04045 => c / 12.92,
            c => ((c + 0.055) / 1.055).powf(2.4),
        };
        let light =
            |[r, g, b]: [u8; 3]| 0.05 + 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
        let (a, b) = (light(a), light(b));
        a.max(b) / a.min(b)
    }

    #[test]
    fn text_of_every_role_can_be_read_on_its_ground() {
        assert!((contrast([0; 3], [255; 3]) - 21.0).abs() < 1e-9);
        // the terminal's own theme has the terminal's own colours
        for name in names().filter(|name| ![NEUTRAL, TERMINAL].contains(name)) {
            let theme = Theme::built_in(name).unwrap();
            let ground = theme.style(Role::Text);
            for (role, of, _) in ROLES.iter().filter(|(role, ..)| *role != Role::Border) {
                let style = ground.patch(theme.style(*role));
                let [letters, paper] =
                    [style.fg, style.bg].map(|color| rgb(color.unwrap(), false).unwrap());
                let contrast = contrast(letters, paper);
                assert!(contrast >= 4.5, "{name}: {of} has {contrast:.2}:1");
            }
        }
    }

    #[test]
    fn the_default_theme_can_be_read_on_dark_light_and_solarized_grounds() {
        let grounds = [[0; 3], [255; 3], [0, 0x2b, 0x36], [0xfd, 0xf6, 0xe3]];
        let theme = Theme::built_in(NEUTRAL).unwrap();
        for (role, of, _) in ROLES {
            assert_eq!(theme.style(role).bg, None, "{of}");
            // large text of WCAG 2 needs 3:1
            for (letters, ground) in theme.style(role).fg.iter().flat_map(|fg| grounds.map(|g| (fg, g)))
            {
                let contrast = contrast(rgb(*letters, false).unwrap(), ground);
                assert!(contrast >= 3.0, "{of} on {ground:?} has {contrast:.2}:1");
            }
        }
    }

    #[test]
    fn the_terminal_theme_can_be_read_on_the_black_of_a_console() {
        // xterm's colours and those of the Linux console, from black to bright white
        let xterm = |i: u8| match (i, i & 7) {
            (4, _) => [0, 0, 238],
            (12, _) => [92, 92, 255],
            (7, _) => [229; 3],
            (8, _) => [127; 3],
            (i, c) => [1, 2, 4].map(|bit| if c & bit == 0 { 0 } else { [205, 255][usize::from(i > 7)] }),
        };
        let console = |i: u8| match (i, i & 7) {
            (3, _) => [170, 85, 0],
            (i, c) => {
                let [low, high] = if i > 7 { [85, 255] } else { [0, 170] };
                [1, 2, 4].map(|bit| if c & bit == 0 { low } else { high })
            }
        };
        let theme = Theme::built_in(TERMINAL).unwrap();
        for (role, of, _) in ROLES {
            let Some(color) = theme.style(role).fg else { continue };
            let index = (0..16).find(|i| rgb(Color::Indexed(*i), false) == rgb(color, false)).unwrap();
            for letters in [xterm(index), console(index)] {
                let contrast = contrast(letters, [0; 3]);
                assert!(contrast >= 3.0, "{of}: {color} has {contrast:.2}:1");
            }
        }
    }

    #[test]
    fn architectures_are_told_apart_in_every_theme() {
        for name in names() {
            let theme = Theme::built_in(name).unwrap_or(Theme::new(true));
            let styles = (0..ARCHITECTURES).map(|n| theme.style(Role::Architecture(n)));
            let styles: std::collections::HashSet<_> = styles.collect();
            assert_eq!(styles.len(), ARCHITECTURES, "{name}");
        }
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
