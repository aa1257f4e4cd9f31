//! Matching of cells that differ only along the axis, and choice of their baseline.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::axis::Axis;
use super::comparison::Flag;
use super::label::Label;
use super::pair::{Pair, hidden_share_interval};
use table::options::option;

use table::{CellRuns, Metrics, Provenance, Record, Sample, VARIANTS, hidden_shares, host};

const PROVENANCE: &str = "provenance";

/// Cell with metrics and the samples of all its rounds.
#[derive(Clone, Debug)]
pub(in crate::analysis) struct PooledCell {
    pub record: Record,
    pub metrics: Metrics,
    pub rounds: BTreeMap<u32, Vec<Sample>>,
    pub host: Option<String>,
    /// Hidden share relative to the cells in the same [`cells`] call.
    pub hidden_share: Option<f64>,
    /// Interval of the hidden share; `None` for simulations, for the two limits and with few samples.
    pub hidden_share_ci95: Option<[f64; 2]>,
    /// All fields that cells are matched by, sorted by name.
    fields: BTreeMap<String, String>,
}

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

/// Interval of each cell's hidden share. Costs three thousand draws per measured cell.
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
            // only intervals need steps, and simulations have none; dropping them keeps thousands of cells small
            for sample in rounds.values_mut().flatten() {
                sample.steps_ms = Vec::new();
            }
        }
        record.samples = Default::default();
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

    /// Key of everything but the axis and the settings that follow from it.
    fn common(&self, axis: &Axis) -> String {
        let key = axis.key();
        let p2p = *axis == Axis::P2P;
        let machine = matches!(axis, Axis::Option("hardware" | "backend"));
        // link and backend decide the provenance; along other axes, runs of different provenance are not compared
        let provenance = matches!(axis, Axis::Option("link" | "backend"));
        // options that only one real backend reads
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

/// Spec as one entry per field, variable and profile value, plus host and provenance.
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

/// Groups of cells that differ only along the axis.
#[derive(Debug)]
pub(in crate::analysis) struct Matching<'a> {
    axis: &'a Axis,
    wanted: Option<&'a str>,
    groups: Vec<Vec<&'a PooledCell>>,
    order: Vec<String>,
}

impl<'a> Matching<'a> {
    /// Groups cells along an axis; `wanted` overrides the default baseline.
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

    pub fn groups(&self) -> &[Vec<&'a PooledCell>] {
        &self.groups
    }

    pub fn values(&self) -> &[String] {
        &self.order
    }

    /// Baseline value for a group; `None` if none of its cells is a baseline.
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

    /// Warnings about groups whose baseline was not run.
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

/// Baselines of a cell: those with the same link if any (the axis did not choose the link then), else those of the same
/// experiment (whose links belong together), else all.
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
