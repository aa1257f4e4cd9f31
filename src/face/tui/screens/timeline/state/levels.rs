//! Levels that Escape closes, one at a time, the last opened first.

use super::view::TimelineView;
use crate::face::tui::prelude::*;

/// Something opened on top of the lanes of one trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimelineLevel {
    /// Second trace, or a prediction.
    Lower,
    /// Highlighted critical path.
    Path,
    Search,
    /// Selection or marks.
    Selection,
    /// List below the lanes.
    Panel,
}

impl TimelineLevel {
    const ALL: [Self; 5] = [Self::Lower, Self::Path, Self::Search, Self::Selection, Self::Panel];

    fn is_open(self, view: &TimelineView) -> bool {
        match self {
            Self::Lower => view.panes.len() > 1,
            Self::Path => view.lit,
            Self::Search => !view.search.line.value().is_empty(),
            Self::Selection => view.selected.is_some() || view.marks.iter().any(Option::is_some),
            Self::Panel => view.panel.is_some(),
        }
    }

    /// Footer hint of Escape.
    pub fn hint(self) -> HintWords {
        match self {
            Self::Lower => HintWords::new("close lower trace").shortened("close"),
            Self::Path => HintWords::new("hide path").shortened("hide"),
            Self::Search => HintWords::new("end search").shortened("end"),
            Self::Selection => HintWords::new("deselect"),
            Self::Panel => HintWords::new("close list").shortened("close"),
        }
    }
}

impl TimelineView {
    /// Updates the order in which levels were opened; called after every change.
    pub(super) fn note_levels(&mut self) {
        let mut levels = std::mem::take(&mut self.levels);
        levels.retain(|level| level.is_open(self));
        let opened = TimelineLevel::ALL.into_iter().filter(|level| level.is_open(self));
        for level in opened {
            if !levels.contains(&level) {
                levels.push(level);
            }
        }
        self.levels = levels;
    }
}
