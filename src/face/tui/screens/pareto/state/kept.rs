//! State of the Pareto screen saved between sessions.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::window::ZoomWindow;
use super::{Pareto, Scale};
use crate::face::tui::prelude::*;
use study::analysis::{self, Axes, Series};
use table::P2p;

/// Stored as words, so that people can read it and other versions can skip unknown values.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct KeptPareto {
    x: String,
    y: String,
    x_scale: Scale,
    y_scale: Scale,
    group: String,
    /// Newest run at save time; if newer ones exist, the group is not restored.
    newest: Option<String>,
    /// Chosen P2P setting by experiment; null for both.
    p2p_of: BTreeMap<String, Option<P2p>>,
    hidden: BTreeSet<String>,
    table: Option<bool>,
    /// Typed limits by experiment and by the name of their axis.
    limits_of: BTreeMap<String, BTreeMap<String, f64>>,
    published: bool,
    /// x from and to, y from and to.
    window: Option<[f64; 4]>,
}

impl PersistentScreen for Pareto {
    type Kept = KeptPareto;

    fn keep(&self) -> Option<KeptPareto> {
        let group = self.groups.get(self.group).or(self.wanted_group.as_ref());
        let hidden = self.hidden.iter().map(Series::label);
        Some(KeptPareto {
            x: self.axes.x.to_string(),
            y: self.axes.y.to_string(),
            x_scale: self.scales.0,
            y_scale: self.scales.1,
            group: group.cloned().unwrap_or_default(),
            newest: self.newest.clone(),
            p2p_of: self.p2p_of.clone(),
            hidden: hidden.chain(self.wanted_hidden.iter().cloned()).collect(),
            table: self.table,
            limits_of: self.limits_of.clone(),
            published: !self.published.is_empty(),
            window: self.zoom.window.map(|w| [w.x.0, w.x.1, w.y.0, w.y.1]),
        })
    }

    fn restore(&mut self, kept: KeptPareto, _cx: &mut Context) {
        let axes = Axes::default();
        self.axes = Axes { x: kept.x.parse().unwrap_or(axes.x), y: kept.y.parse().unwrap_or(axes.y) };
        self.scales = (kept.x_scale, kept.y_scale);
        (self.p2p_of, self.table, self.newest) = (kept.p2p_of, kept.table, kept.newest);
        self.limits_of = kept.limits_of;
        for limits in self.limits_of.values_mut() {
            limits.retain(|_, limit| limit.is_finite() && *limit > 0.0);
        }
        match self.groups.iter().position(|group| *group == kept.group) {
            // an undo; hidden series stay as they are
            Some(group) => self.choose_group(group),
            None => (self.wanted_group, self.wanted_hidden) = (Some(kept.group), kept.hidden),
        }
        if kept.published {
            self.publish(analysis::published().unwrap_or_default());
        }
        let whole = |w: &[f64; 4]| w.iter().all(|v| v.is_finite()) && w[0] < w[1] && w[2] < w[3];
        let window = kept.window.filter(whole);
        self.zoom.window = window.map(|[a, b, c, d]| ZoomWindow { x: (a, b), y: (c, d) });
        self.arrange();
    }
}
