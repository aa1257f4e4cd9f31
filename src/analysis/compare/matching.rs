//! Cells that have everything but the axis in common, and the baseline among them.

use std::collections::BTreeMap;

use super::axis::Axis;
use super::label::Label;
use super::pair::Pair;
use crate::analysis::metrics::{Cell, host};
use crate::plan::Architecture;
use crate::spec::Provenance;
use crate::store::{Metrics, Record, Sample};

/// A cell with numbers.
#[derive(Clone, Debug)]
pub(in crate::analysis) struct Arm {
    /// Its pooled record.
    pub record: Record,
    /// Its numbers.
    pub metrics: Metrics,
    /// Samples of each round.
    pub rounds: BTreeMap<u32, Vec<Sample>>,
    /// The machine it was timed on.
    pub host: Option<String>,
    /// Everything cells are matched by, name and value, in the order of names.
    fields: BTreeMap<String, String>,
}

impl Arm {
    pub fn new(cell: &Cell<'_>) -> Option<Self> {
        let mut record = cell.record()?;
        let metrics = record.metrics.clone()?;
        let (host, mut rounds) = (host(&record), cell.rounds());
        if record.provenance == Provenance::Simulated {
            // only intervals ask for steps, and simulations have none: thousands of cells stay small
            for sample in rounds.values_mut().flatten() {
                sample.steps_ms = Vec::new();
            }
        }
        record.samples = Vec::new();
        Some(Self { metrics, rounds, fields: fields(&record), host, record })
    }

    /// Everything but the axis and what the axis brings with it, as a key.
    fn common(&self, axis: &Axis) -> String {
        let key = axis.key();
        let p2p = *axis == Axis::P2P;
        let machine = matches!(axis, Axis::Field("hardware" | "backend"));
        // only one backend has them
        let of_cuda = |name: &str| {
            *axis == Axis::Field("backend") && matches!(name, "recorder" | "coverage" | "no_graph")
        };
        let kept = self.fields.iter().filter(|(name, _)| {
            **name != key
                && !(p2p && (*name == "link" || name.starts_with("env:NCCL_P2P_")))
                && !(machine && *name == "host")
                && !of_cuda(name)
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
    fields
}

/// Cells that have everything but the axis in common.
#[derive(Debug)]
pub(in crate::analysis) struct Matching<'a> {
    axis: &'a Axis,
    /// What the user wants to compare with.
    wanted: Option<&'a str>,
    groups: Vec<Vec<&'a Arm>>,
    /// Values of the axis, the first met first.
    order: Vec<String>,
}

impl<'a> Matching<'a> {
    /// Matches cells along an axis; `wanted` is the baseline, where not the natural one.
    pub fn new(arms: &'a [Arm], axis: &'a Axis, wanted: Option<&'a str>) -> Self {
        let mut index: BTreeMap<String, usize> = BTreeMap::new();
        let (mut groups, mut order): (Vec<Vec<&Arm>>, Vec<String>) = Default::default();
        for arm in arms {
            let value = axis.value(&arm.record.spec);
            if !order.contains(&value) {
                order.push(value);
            }
            let at = *index.entry(arm.common(axis)).or_insert_with(|| {
                groups.push(Vec::new());
                groups.len() - 1
            });
            groups[at].push(arm);
        }
        Self { axis, wanted, groups, order }
    }

    /// The groups.
    pub fn groups(&self) -> &[Vec<&'a Arm>] {
        &self.groups
    }

    /// Values of the axis, the first met first.
    pub fn values(&self) -> &[String] {
        &self.order
    }

    /// The baseline's value among these cells; `None` where none of them is a baseline.
    fn baseline(&self, group: &[&Arm]) -> Option<String> {
        let has = |wanted: &str| group.iter().any(|arm| self.axis.value(&arm.record.spec) == wanted);
        if let Some(wanted) = self.wanted {
            return has(wanted).then(|| wanted.to_owned());
        }
        match self.axis.natural_baseline() {
            Some(natural) if has(natural) => Some(natural.to_owned()),
            _ if self.axis.needs_baseline() => None,
            _ => self.order.iter().find(|value| has(value)).cloned(),
        }
    }

    /// Every cell with its baseline.
    pub fn pairs(&self) -> Vec<Pair<'a>> {
        let by_architecture = *self.axis == Axis::ARCHITECTURE;
        let of_group = |group: &Vec<&'a Arm>| {
            let Some(wanted) = self.baseline(group) else { return Vec::new() };
            let is_baseline = |arm: &&&Arm| self.axis.value(&arm.record.spec) == wanted;
            let (baselines, others): (Vec<&Arm>, Vec<&Arm>) = group.iter().partition(is_baseline);
            let of = |architecture: Architecture| {
                let mut found = group.iter().copied();
                found.find(|arm| by_architecture && arm.record.spec.architecture == architecture)
            };
            let (standard, upper_bound) = (of(Architecture::Standard), of(Architecture::UpperBound));
            let pair = |other: &&'a Arm| {
                let other = *other;
                let near = baselines_of(&baselines, other).collect::<Vec<&'a Arm>>();
                near.into_iter().map(move |baseline| Pair { baseline, other, standard, upper_bound })
            };
            others.iter().flat_map(pair).collect()
        };
        self.groups.iter().flat_map(of_group).collect()
    }

    /// What cannot be compared because its baseline was not run.
    pub fn unmatched(&self, label: &Label) -> Vec<String> {
        let without = self.groups.iter().filter(|group| self.baseline(group).is_none());
        without
            .map(|group| {
                let values: Vec<String> =
                    group.iter().map(|arm| self.axis.value(&arm.record.spec)).collect();
                let wanted = self.wanted.or(self.axis.natural_baseline()).unwrap_or_default();
                format!(
                    "{}: no '{wanted}' to compare {} with",
                    label.pair(group[0], group[0]),
                    values.join(", ")
                )
            })
            .collect()
    }
}

/// The baselines of a cell: those over the same link if there are any (the link was not chosen by the
/// axis then), else all.
fn baselines_of<'a: 'b, 'b>(
    baselines: &'b [&'a Arm],
    other: &'a Arm,
) -> impl Iterator<Item = &'a Arm> + 'b {
    let same = |arm: &Arm| arm.record.spec.link == other.record.spec.link;
    let any = baselines.iter().any(|arm| same(arm));
    baselines.iter().copied().filter(move |arm| !any || same(arm))
}

/// Hidden share of any cell: by what its cells of other architectures took.
#[derive(Debug)]
pub(super) struct HiddenShares(BTreeMap<String, [Option<f64>; 2]>);

impl HiddenShares {
    /// TPOT of standard and upper-bound, by everything else.
    pub fn new(arms: &[Arm]) -> Self {
        let mut limits: BTreeMap<String, [Option<f64>; 2]> = BTreeMap::new();
        for arm in arms {
            let at = match arm.record.spec.architecture {
                Architecture::Standard => 0,
                Architecture::UpperBound => 1,
                _ => continue,
            };
            limits.entry(arm.common(&Axis::ARCHITECTURE)).or_default()[at] =
                Some(arm.metrics.tpot_ms.p50);
        }
        Self(limits)
    }

    /// (standard - it) / (standard - upper-bound) in TPOT; `None` where either was not run, or
    /// upper-bound is no faster.
    pub fn of(&self, arm: &Arm) -> Option<f64> {
        let [standard, limit] = *self.0.get(&arm.common(&Axis::ARCHITECTURE))?;
        let (standard, limit) = (standard?, limit?);
        (standard > limit).then(|| (standard - arm.metrics.tpot_ms.p50) / (standard - limit))
    }
}
