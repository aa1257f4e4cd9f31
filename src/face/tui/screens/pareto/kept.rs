//! What of the Pareto screen is kept until the workbench is opened again.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::state::window::Window;
use super::state::{Pareto, Scale};
use crate::study::analysis::{self, Axes, XAxis, YAxis};
use crate::table::P2p;

/// What is kept. Words, so that a person can read it and another version can leave what it does not know.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Kept {
    x: String,
    y: String,
    x_scale: String,
    y_scale: String,
    group: String,
    /// The newest run then: what came since is looked at first.
    newest: Option<String>,
    p2p: Option<P2p>,
    /// Series taken off the plot, by label.
    hidden: BTreeSet<String>,
    table: Option<bool>,
    published: bool,
    /// x from and to, y from and to.
    window: Option<[f64; 4]>,
}

/// What is worth keeping.
pub fn remember(pareto: &Pareto) -> Option<serde_json::Value> {
    let group = pareto.groups.get(pareto.group).or(pareto.wanted_group.as_ref());
    let hidden = pareto.hidden.iter().map(analysis::Series::label);
    let kept = Kept {
        x: pareto.axes.x.to_string(),
        y: pareto.axes.y.to_string(),
        x_scale: pareto.scales.0.word().into(),
        y_scale: pareto.scales.1.word().into(),
        group: group.cloned().unwrap_or_default(),
        newest: pareto.newest.clone(),
        p2p: pareto.p2p,
        hidden: hidden.chain(pareto.wanted_hidden.iter().cloned()).collect(),
        table: pareto.table,
        published: !pareto.published.is_empty(),
        window: pareto.zoom.window.map(|w| [w.x.0, w.x.1, w.y.0, w.y.1]),
    };
    serde_json::to_value(kept).ok()
}

/// Takes up what was kept, as far as it can be read.
pub fn recall(pareto: &mut Pareto, kept: &serde_json::Value) {
    let Ok(kept) = Kept::deserialize(kept) else { return };
    let axes = Axes::default();
    pareto.axes = Axes {
        x: kept.x.parse::<XAxis>().unwrap_or(axes.x),
        y: kept.y.parse::<YAxis>().unwrap_or(axes.y),
    };
    let scale = |word: &str| Scale::ALL.into_iter().find(|s| s.word() == word).unwrap_or_default();
    pareto.scales = (scale(&kept.x_scale), scale(&kept.y_scale));
    pareto.p2p = kept.p2p;
    pareto.table = kept.table;
    pareto.wanted_group = Some(kept.group);
    pareto.newest = kept.newest;
    pareto.wanted_hidden = kept.hidden;
    if kept.published {
        pareto.publish(analysis::published().unwrap_or_default());
    }
    let whole = |w: &[f64; 4]| w.iter().all(|v| v.is_finite()) && w[0] < w[1] && w[2] < w[3];
    let window = kept.window.filter(whole);
    pareto.zoom.window = window.map(|[a, b, c, d]| Window { x: (a, b), y: (c, d) });
    pareto.arrange();
}
