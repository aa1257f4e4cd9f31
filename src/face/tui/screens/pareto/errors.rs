//! Table of published points with the values of the runs of their cells, simulated or measured.

use super::Pareto;
use crate::face::tui::prelude::*;
use crate::face::tui::texts::TextView;
use base::statistics::mean;
use study::analysis::{self, OverlayPoint, ParetoPoint, PublishedValue};
use study::validate::short_badge;
use table::Spec;

/// Error of a value against the published one: `+8.0 %`.
pub fn percent(value: f64, published: f64) -> String {
    format!("{:+.1} %", PublishedValue::new(value, published).error_pct)
}

/// Width of the cells' labels.
const LABEL: usize = 27;

/// Measures of the table: heading, unit divisor, published value, own value.
type Measured = (&'static str, f64, fn(&OverlayPoint) -> Option<f64>, fn(&ParetoPoint) -> f64);

const MEASURES: [Measured; 3] = [
    ("latency s", 1000.0, |other| other.completion_ms, |point| point.completion_ms),
    ("TPOT ms", 1.0, |other| other.tpot_ms, |point| point.tpot_ms),
    ("tokens/s", 1.0, |other| other.tokens_per_s, |point| point.tokens_per_s),
];

impl Pareto {
    /// Shows published and own values of the group's cells, with their errors.
    pub(super) fn show_errors(&self, cx: &mut Context) {
        let group = self.groups.get(self.group);
        let points = self.points.iter().flatten().filter(|point| group == Some(&point.group));
        let both: Vec<(&OverlayPoint, &ParetoPoint)> =
            points.filter_map(|point| Some((analysis::published_of(&point.spec)?, point))).collect();
        let Some((first, point)) = both.first() else {
            return cx.inform(
                "no cell of this group was published; `ladderscope validate` compares the simulator with all data sets",
            );
        };
        let provenance = point.provenance;
        // cells of the table were fitted: the error of others is larger
        let specs: Vec<&Spec> = both.iter().map(|(_, point)| &point.spec).collect();
        let trust = short_badge(&specs, &[]);
        let trust = trust.map_or_else(String::new, |badge| format!(": {badge}"));
        let head = format!("{} against {provenance}{trust}", first.source);
        let mut rows = Vec::new();
        let mut errors = [const { Vec::new() }; MEASURES.len()];
        for (other, point) in &both {
            let cells = MEASURES.iter().zip(&mut errors).map(|((_, by, theirs, own), errors)| {
                let own = own(point);
                let Some(theirs) = theirs(other) else { return format!("{:>26}", "-") };
                errors.push(100.0 * (own / theirs - 1.0).abs());
                let error = percent(own, theirs);
                format!("{:>8}{:>10}{error:>8}", digits(theirs / by), digits(own / by))
            });
            rows.push((point.spec.label(), cells.collect::<Vec<_>>()));
        }
        let means = errors.map(|errors| {
            let mean = mean(&errors).map_or("-".into(), |mean| format!("{mean:.1} %"));
            format!("{mean:>26}")
        });
        rows.push(("mean absolute error".to_owned(), means.to_vec()));
        let notes: Vec<String> = both
            .iter()
            .filter_map(|(other, point)| {
                Some(format!("{}: {}", point.spec.label(), other.contradiction()?))
            })
            .collect();
        let titles = MEASURES.map(|(name, ..)| format!("{name:>26}"));
        let what = MEASURES.map(|_| format!("{:>8}{:>10}{:>8}", "publ.", "here", "error"));
        rows.splice(0..0, [(String::new(), titles.to_vec()), (String::new(), what.to_vec())]);
        let lines = move |width: usize| {
            let shown = (width.saturating_sub(LABEL) / 26).clamp(1, MEASURES.len());
            let mut lines: Vec<String> = wrap(&head, width);
            let row = |(label, cells): &(String, Vec<String>)| {
                format!("{label:<LABEL$}{}", cells.iter().take(shown).cloned().collect::<String>())
            };
            lines.extend(rows.iter().map(row));
            lines.extend(notes.iter().flat_map(|note| wrap(note, width)));
            lines.extend(wrap(
                "`ladderscope validate paper_70b`: also prefill, speedups and ranking",
                width,
            ));
            lines.into_iter().map(|line| vec![(line, Role::Text)]).collect()
        };
        cx.lay(TextView::new(format!("validation: published and {provenance}"), lines));
    }
}
