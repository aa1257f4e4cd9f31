//! State of screen 4, and the part saved between sessions.

use serde::{Deserialize, Serialize};

use super::view::View;
use crate::face::tui::prelude::*;

#[derive(Debug, Default)]
pub struct Timeline {
    /// Open traces; `None` until one is opened.
    pub view: Option<View>,
    /// Description of the traces being loaded.
    pub loading: Option<String>,
    /// Traces of the previous session, until the screen is shown.
    pub kept: Option<KeptTimeline>,
}

/// Open traces from top to bottom, and the window. Predictions are not saved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeptTimeline {
    pub sources: Vec<String>,
    pub rules: Vec<Option<String>>,
    pub recordings: Vec<Option<String>>,
    /// Window (ns since the first trace's first start).
    pub window: Option<(i64, i64)>,
}

impl KeptTimeline {
    /// True if it names one or two traces.
    pub fn is_usable(&self) -> bool {
        (1..=2).contains(&self.sources.len()) && self.sources.iter().all(|source| !source.is_empty())
    }

    fn of(view: &View) -> Option<Self> {
        let indices = || view.panes.iter().filter(|pane| pane.ghost.is_none()).map(|pane| &pane.index);
        let above = &view.panes[0];
        let window = above.window(view.window);
        let since = |time: i64| time.saturating_sub(above.index.zero);
        Some(Self {
            sources: indices().map(|index| index.source()).collect::<Option<_>>()?,
            rules: indices().map(|index| index.rules.clone()).collect(),
            recordings: indices().map(|index| index.recording.clone()).collect(),
            window: Some((since(window.from), since(window.to))),
        })
    }
}

impl Kept for Timeline {
    type Kept = KeptTimeline;

    fn keep(&self) -> Option<KeptTimeline> {
        self.view.as_ref().map_or_else(|| self.kept.clone(), KeptTimeline::of)
    }

    fn restore(&mut self, kept: KeptTimeline, cx: &mut Context) {
        match cx.tab {
            Tab::Timeline => self.open_kept(kept, cx),
            _ => self.kept = Some(kept),
        }
    }
}
