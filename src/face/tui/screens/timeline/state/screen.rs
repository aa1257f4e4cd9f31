//! What screen 4 shows, and what is on its way to it.

use super::view::View;

/// State of the timeline screen.
#[derive(Debug, Default)]
pub struct Timeline {
    /// The traces; `None` until one is opened.
    pub view: Option<View>,
    /// What is being read.
    pub loading: Option<String>,
    /// What was open when the workbench was left: read when somebody looks at it.
    pub kept: Option<serde_json::Value>,
}
