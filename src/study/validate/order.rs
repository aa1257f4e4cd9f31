//! Rank order: checks for each pair of architectures in a published cell that the simulator has the same one
//! ahead.

use std::collections::BTreeMap;

use serde::Serialize;

use super::set::{DataSet, Measure, Run};
use plan::Architecture;
use table::Spec;
use table::render::{Shown, Table};

/// Two architectures in all cells of a set that have both.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct RankOrder {
    /// The two architectures.
    pub architectures: [String; 2],
    /// Cells in which both were measured and one was faster.
    pub pairs: usize,
    /// Cells in which the simulator does not have the measured winner ahead.
    pub reversed: Vec<ReversedPair>,
}

/// Cell in which the simulator has the slower architecture ahead, or a tie.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct ReversedPair {
    /// Cell without its architecture.
    pub cell: String,
    /// Lines of both rows in the file, in the order of `architectures`.
    pub lines: [usize; 2],
    /// Architecture that was measured to be faster.
    pub faster: String,
    /// Measured lead of the faster architecture in tokens/s (percent).
    pub measured_lead_pct: f64,
    /// Simulated lead of the slower architecture in tokens/s (percent).
    pub reversed_lead_pct: f64,
}

/// Rank orders of a set's throughputs; excludes `upper-bound`, which is a limit.
pub(super) fn rank_orders(set: &DataSet, done: &[(&Run, f64)]) -> Vec<RankOrder> {
    let mut cells: BTreeMap<String, Vec<(&Run, f64)>> = BTreeMap::new();
    let is_throughput = |run: &Run| set.measured()[run.column].measure == Measure::TokensPerS;
    for (run, predicted) in done {
        if is_throughput(run) && !run.spec.architecture.is_limit() {
            let cell = Spec { architecture: Architecture::Standard, ..run.spec.clone() };
            let key = serde_json::to_string(&(run.column, cell)).unwrap_or_default();
            cells.entry(key).or_default().push((run, *predicted));
        }
    }
    let mut orders: BTreeMap<[Architecture; 2], RankOrder> = BTreeMap::new();
    for runs in cells.values_mut() {
        runs.sort_by(|a, b| a.0.spec.architecture.cmp(&b.0.spec.architecture));
        for (at, first) in runs.iter().enumerate() {
            for second in &runs[at + 1..] {
                let architectures = [first, second].map(|(run, _)| run.spec.architecture.clone());
                if architectures[0] == architectures[1] {
                    continue;
                }
                let order = orders.entry(architectures.clone()).or_insert_with(|| RankOrder {
                    architectures: architectures.map(|architecture| architecture.to_string()),
                    pairs: 0,
                    reversed: Vec::new(),
                });
                order.add(*first, *second);
            }
        }
    }
    orders.into_values().collect()
}

impl RankOrder {
    fn add(&mut self, first: (&Run, f64), second: (&Run, f64)) {
        let (mut fast, mut slow) = (first, second);
        if fast.0.measured < slow.0.measured {
            (fast, slow) = (slow, fast);
        }
        if fast.0.measured == slow.0.measured {
            return;
        }
        self.pairs += 1;
        if fast.1 > slow.1 {
            return;
        }
        let spec = &fast.0.spec;
        let cell = format!("{} {}", spec.model, spec.label());
        self.reversed.push(ReversedPair {
            cell: cell.replacen(&format!("{} ", spec.architecture), "", 1),
            lines: [first.0.line, second.0.line],
            faster: spec.architecture.to_string(),
            measured_lead_pct: 100.0 * (fast.0.measured / slow.0.measured - 1.0),
            reversed_lead_pct: 100.0 * (slow.1 / fast.1 - 1.0),
        });
    }
}

/// One row per pair of architectures: cells that have both, and those that the simulator reverses.
pub fn orders_table<'a>(orders: impl IntoIterator<Item = (&'a str, &'a RankOrder)>) -> Table {
    let orders: Vec<(&str, &RankOrder)> = orders.into_iter().collect();
    let leads = |order: &RankOrder, lead: fn(&ReversedPair) -> f64| {
        let most = order.reversed.iter().map(lead).reduce(f64::max);
        let least = order.reversed.iter().map(lead).reduce(f64::min);
        Shown::some(least.zip(most).map_or(String::new(), |(least, most)| match least == most {
            true => format!("{least:.1}"),
            false => format!("{least:.1} to {most:.1}"),
        }))
    };
    Table::of(
        &orders,
        &[
            ("set", &|(set, _): &(&str, &RankOrder)| Shown::text(set)),
            ("architectures", &|(_, order)| Shown::text(order.architectures.join(", "))),
            ("cells", &|(_, order)| order.pairs.into()),
            ("reversed", &|(_, order)| order.reversed.len().into()),
            ("published_lead_%", &|(_, order)| leads(order, |pair| pair.measured_lead_pct)),
            ("reversed_lead_%", &|(_, order)| leads(order, |pair| pair.reversed_lead_pct)),
            ("at", &|(_, order)| {
                Shown::some(
                    order.reversed.iter().map(|p| p.cell.as_str()).collect::<Vec<_>>().join("; "),
                )
            }),
        ],
    )
}
