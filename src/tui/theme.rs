//! Colours by role. Only the 16 colours that a terminal's own theme defines, and never a background,
//! so that light and dark themes both work; without colour (`NO_COLOR`) modifiers alone remain. No
//! state is told by colour alone: glyphs and words say the same.

use ratatui::style::{Color, Modifier, Style};

use crate::spec::Provenance;
use crate::store::Status;

/// Whether colours may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Theme {
    color: bool,
}

/// What a piece of the screen means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Ordinary text.
    Text,
    /// Less important text.
    Dim,
    /// Titles and headers.
    Title,
    /// Frames.
    Border,
    /// The selected row, tab or point.
    Selected,
    /// Keys in hints and help.
    Key,
    /// Good news.
    Good,
    /// Bad news.
    Bad,
    /// Odd news; emulated and simulated labels.
    Warn,
    /// Something runs.
    Active,
    /// Communication that moves data.
    Comm,
    /// Communication that waits for a peer.
    Waiting,
    /// Exposed communication.
    Exposed,
    /// One of several series or modules.
    Series(usize),
}

impl Theme {
    /// A theme with colours, or without.
    pub fn new(color: bool) -> Self {
        Self { color }
    }

    /// As the environment asks: `NO_COLOR` set to anything but the empty string means no colours.
    pub fn from_environment() -> Self {
        Self::new(std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()))
    }

    /// Whether it is meant for dark text on light paper.
    pub fn is_light(self) -> bool {
        false
    }

    /// The style of a role.
    pub fn style(self, role: Role) -> Style {
        let (color, modifier) = match role {
            Role::Text => (None, Modifier::empty()),
            Role::Dim | Role::Border => (None, Modifier::DIM),
            Role::Title => (None, Modifier::BOLD),
            Role::Selected => (None, Modifier::REVERSED),
            Role::Key => (Some(Color::Cyan), Modifier::BOLD),
            Role::Good => (Some(Color::Green), Modifier::empty()),
            Role::Bad => (Some(Color::Red), Modifier::BOLD),
            Role::Warn => (Some(Color::Magenta), Modifier::BOLD),
            Role::Active => (Some(Color::Blue), Modifier::BOLD),
            Role::Comm => (Some(Color::Yellow), Modifier::empty()),
            Role::Waiting => (Some(Color::Yellow), Modifier::DIM),
            Role::Exposed => (Some(Color::Red), Modifier::BOLD),
            Role::Series(index) => (Some(SERIES[index % SERIES.len()]), Modifier::empty()),
        };
        let style = Style::new().add_modifier(modifier);
        match color {
            Some(color) if self.color => style.fg(color),
            _ => style,
        }
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

const SERIES: [Color; 6] =
    [Color::Blue, Color::Green, Color::Magenta, Color::Cyan, Color::Red, Color::Yellow];
