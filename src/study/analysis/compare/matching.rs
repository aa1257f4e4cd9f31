//! Cells that have everything but the axis in common, and the baseline among them.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::axis::Axis;
use super::comparison::Flag;
use super::label::Label;
use super::pair::{Pair, hidden_share_interval};
use table::options::option;

use table::{CellRuns, Metrics, Provenance, Record, Sample, VARIANTS, hidden_shares, host};

/// The field of where a cell's numbers come from.
const PROVENANCE: &str = "provenance";

/// A cell whose runs yielded numbers, with the samples of all its rounds.
#[derive(Clone, Debug)]
pub(in crate::analysis) struct PooledCell {
    /// The record of the cell, its rounds pooled.
    pub record: Record,
    /// The numbers of that record, which has some.
    pub metrics: Metrics,
    /// Samples of each round.
    pub rounds: BTreeMap<u32, Vec<Sample>>,
    /// The machine it was timed on.
    pub host: Option<String>,
    /// Its hidden share among the cells it stands with ([`cells`]).
    pub hidden_share: Option<f64>,
    /// The interval of its hidden share; `None` for simulations, for the two limits, whose share is no
    /// question, and with few samples.
    pub hidden_share_ci95: Option<[f64; 2]>,
    /// Everything cells are matched by, name and value, in the order of names.
    fields: BTreeMap<String, String>,
}

/// The cells of these runs that have numbers.
pub(super) fn cells(records: &[Record]) -> Vec<PooledCell> {
    let runs = CellRuns::group(records);
    let mut cells: Vec<PooledCell> = runs.par_iter().filter_map(PooledCell::new).collect();
    let pooled: Vec<&Record> = cells.iter().map(|cell| &cell.record).collect();
    let shares = hidden_shares(&pooled);
    for (cell, share) in cells.iter_mut().zip(shares) {
        cell.hidden_share = share;
    }
    for (cell, interval) in hidden_share_intervals(&cells).into_iter().enumerate() {
        cells[cell].hidden_share_ci95 = interval;
    }
    cells
}

/// Of each cell the interval of its hidden share. Costs three thousand draws a measured cell.
fn hidden_share_intervals(cells: &[PooledCell]) -> Vec<Option<[f64; 2]>> {
    let asked = |cell: &&PooledCell| {
        cell.hidden_share.is_some() && cell.record.provenance != Provenance::Simulated
    };
    let limit = |cell: &PooledCell| table::limit(&cell.record.spec);
    let mut limits: BTreeMap<String, [Option<&PooledCell>; 2]> = BTreeMap::new();
    for cell in cells.iter().filter(asked) {
        if let Some(limit) = limit(cell) {
            limits.entry(cell.common(&Axis::ARCHITECTURE)).or_default()[limit] = Some(cell);
        }
    }
    let interval = |cell: &PooledCell| {
        let cell = Some(cell).filter(asked).filter(|cell| limit(cell).is_none())?;
        let [standard, bound] = *limits.get(&cell.common(&Axis::ARCHITECTURE))?;
        hidden_share_interval([standard?, cell, bound?])
    };
    cells.par_iter().map(interval).collect()
}

impl PooledCell {
    pub fn new(runs: &CellRuns<'_>) -> Option<Self> {
        let mut record = runs.record().filter(Record::has_numbers)?;
        let metrics = record.metrics.clone()?;
        let (host, mut rounds) = (host(&record), runs.rounds());
        if record.provenance == Provenance::Simulated {
            // only intervals ask for steps, and simulations have none: thousands of cells stay small
            for sample in rounds.values_mut().flatten() {
                sample.steps_ms = Vec::new();
            }
        }
        record.samples = Vec::new();
        Some(Self {
            metrics,
            rounds,
            fields: fields(&record),
            host,
            hidden_share: None,
            hidden_share_ci95: None,
            record,
        })
    }

    /// Everything but the axis and what the axis brings with it, as a key.
    fn common(&self, axis: &Axis) -> String {
        let key = axis.key();
        let p2p = *axis == Axis::P2P;
        let machine = matches!(axis, Axis::Option("hardware" | "backend"));
        // where numbers come from follows from these; along anything else runs of two provenances are not compared
        let provenance = matches!(axis, Axis::Option("link" | "backend"));
        // only that backend has them
        let of_one = |name: &str| {
            let heeded_by = option(name).map(|option| option.about.heeded_by);
            *axis == Axis::Option("backend") && matches!(heeded_by, Some([only]) if !only.is_simulated())
        };
        let kept = self.fields.iter().filter(|(name, _)| {
            **name != key
                && name.strip_prefix("files:") != Some(key.as_str())
                && !(*axis == Axis::ARCHITECTURE && VARIANTS.contains(&name.as_str()))
                && !(p2p && (*name == "link" || name.starts_with("env:NCCL_P2P_")))
                && !(machine && *name == "host")
                && !(provenance && *name == PROVENANCE)
                && !of_one(name)
        });
        let mut text = String::new();
        for (name, value) in kept {
            text.push_str(name);
            text.push('=');
            text.push_str(value);
            text.push('\n');
        }
        text
    }
}

/// The spec, a line a field, each variable and each profile value for itself; and the machine.
fn fields(record: &Record) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    let spec = serde_json::to_value(&record.spec).unwrap_or_default();
    for (name, value) in spec.as_object().into_iter().flatten() {
        match value.as_object() {
            Some(pairs) => {
                let named = |(key, value): (&String, &serde_json::Value)| {
                    (format!("{name}:{key}"), value.to_string())
                };
                fields.extend(pairs.iter().map(named));
            }
            None => {
                fields.insert(name.clone(), value.to_string());
            }
        }
    }
    fields.insert("host".into(), host(record).unwrap_or_default());
    fields.insert(PROVENANCE.into(), record.provenance.to_string());
    fields
}

/// Cells that have everything but the axis in common.
#[derive(Debug)]
pub(in crate::analysis) struct Matching<'a> {
    axis: &'a Axis,
    /// What the user wants to compare with.
    wanted: Option<&'a str>,
    groups: Vec<Vec<&'a PooledCell>>,
    /// Values of the axis, the first met first.
    order: Vec<String>,
}

impl<'a> Matching<'a> {
    /// Matches cells along an axis; `wanted` is the baseline, where not the natural one.
    pub fn new(cells: &'a [PooledCell], axis: &'a Axis, wanted: Option<&'a str>) -> Self {
        let mut index: BTreeMap<String, usize> = BTreeMap::new();
        let (mut groups, mut order): (Vec<Vec<&PooledCell>>, Vec<String>) = Default::default();
        for cell in cells {
            let value = axis.value(&cell.record.spec);
            if !order.contains(&value) {
                order.push(value);
            }
            let at = *index.entry(cell.common(axis)).or_insert_with(|| {
                groups.push(Vec::new());
                groups.len() - 1
            });
            groups[at].push(cell);
        }
        Self { axis, wanted, groups, order }
    }

    /// The groups of cells that have everything but the axis in common.
    pub fn groups(&self) -> &[Vec<&'a PooledCell>] {
        &self.groups
    }

    /// Values of the axis, the first met first.
    pub fn values(&self) -> &[String] {
        &self.order
    }

    /// The baseline's value among these cells; `None` where none of them is a baseline.
    fn baseline(&self, group: &[&PooledCell]) -> Option<String> {
        let has = |wanted: &str| group.iter().any(|cell| self.axis.value(&cell.record.spec) == wanted);
        if let Some(wanted) = self.wanted {
            return has(wanted).then(|| wanted.to_owned());
        }
        match self.axis.natural_baseline() {
            Some(natural) if has(natural) => Some(natural.to_owned()),
            _ if self.axis.needs_baseline() => None,
            _ => self.order.iter().find(|value| has(value)).cloned(),
        }
    }

    /// Every cell that has a baseline, with it.
    pub fn pairs(&self) -> Vec<Pair<'a>> {
        let by_architecture = *self.axis == Axis::ARCHITECTURE;
        let of_group = |group: &Vec<&'a PooledCell>| {
            let Some(wanted) = self.baseline(group) else { return Vec::new() };
            let is_baseline = |cell: &&&PooledCell| self.axis.value(&cell.record.spec) == wanted;
            let (baselines, others): (Vec<&PooledCell>, Vec<&PooledCell>) =
                group.iter().partition(is_baseline);
            let limit = |cell: &&PooledCell| table::limit(&cell.record.spec) == Some(1);
            let upper_bound = group.iter().copied().find(limit).filter(|_| by_architecture);
            let pair = |other: &&'a PooledCell| {
                let other = *other;
                let near = baselines_of(&baselines, other).collect::<Vec<&'a PooledCell>>();
                near.into_iter().map(move |baseline| Pair { baseline, other, upper_bound })
            };
            others.iter().flat_map(pair).collect()
        };
        self.groups.iter().flat_map(of_group).collect()
    }

    /// What cannot be compared because its baseline was not run.
    pub fn unmatched(&self, label: &Label) -> Vec<Flag> {
        let without = self.groups.iter().filter(|group| self.baseline(group).is_none());
        without
            .map(|group| {
                let values: Vec<String> =
                    group.iter().map(|cell| self.axis.value(&cell.record.spec)).collect();
                let wanted = self.wanted.or(self.axis.natural_baseline()).unwrap_or_default();
                let text = format!(
                    "{}: no '{wanted}' to compare {} with",
                    label.pair(group[0], group[0]),
                    values.join(", ")
                );
                Flag::new(group.iter().copied(), text)
            })
            .collect()
    }
}

/// The baselines of a cell: those over the same link if there are any (the link was not chosen by the
/// axis then), else those of its experiment (whose links belong together), else all.
fn baselines_of<'a: 'b, 'b>(
    baselines: &'b [&'a PooledCell],
    other: &'a PooledCell,
) -> impl Iterator<Item = &'a PooledCell> + 'b {
    let link = |cell: &PooledCell| cell.record.spec.link == other.record.spec.link;
    let experiment = |cell: &PooledCell| cell.record.experiment == other.record.experiment;
    let any = |near: &dyn Fn(&PooledCell) -> bool| baselines.iter().any(|cell| near(cell));
    let (by_link, by_experiment) = (any(&link), any(&experiment));
    baselines.iter().copied().filter(move |cell| match (by_link, by_experiment) {
        (true, _) => link(cell),
        (false, true) => experiment(cell),
        (false, false) => true,
    })
}
