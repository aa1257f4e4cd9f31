//! Comparison: cells that differ along one axis only, their ratios, and whether those mean anything.

use std::collections::BTreeMap;

use serde::Serialize;

use super::difference::Difference;
use super::flags::flags;
use super::metrics::{Cell, completion_ms, host, recorder, steps_ms, tokens_per_s};
use super::statistics::{bootstrap, median};
use crate::error::{Error, Result};
use crate::spec::{Collective, Provenance, Spec};
use crate::store::{Metrics, Record, Sample};

/// A matched pair in a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// What both have in common, for people: `tiny tp2 b1 p2p-on cpu emulated:...`.
    pub matched: String,
    /// The axis's value of the baseline.
    pub baseline: String,
    /// The axis's value of the other.
    pub value: String,
    /// Runs compared.
    pub baseline_run: String,
    /// Runs compared.
    pub run: String,
    /// Where the numbers come from; of two different origins the one further from a measurement.
    pub provenance: Provenance,
    /// Baseline's TPOT (ms).
    pub baseline_tpot_ms: f64,
    /// TPOT (ms).
    pub tpot_ms: f64,
    /// Tokens/s over the baseline's tokens/s, each the median over the rounds that both have (over
    /// all, where they share none); above 1 is faster.
    pub speedup: f64,
    /// Bootstrap interval of the speedup (rounds resampled as pairs, then samples); null with fewer
    /// than 6 samples or for simulations.
    pub speedup_ci95: Option<[f64; 2]>,
    /// The interval excludes 1 (for simulations: the ratio is not 1).
    pub differs: bool,
    /// Overlap % of the baseline; null for both where they were recorded in different ways.
    pub baseline_overlap_pct: Option<f64>,
    /// Overlap %.
    pub overlap_pct: Option<f64>,
    /// By architecture, where `upper-bound` was run too: (standard - it) / (standard - upper-bound) in
    /// TPOT; null where upper-bound is no faster than standard.
    pub hidden_share: Option<f64>,
    /// Interval of the hidden share, likewise: the three arms resampled in the same rounds; null too
    /// where the gap between standard and upper-bound may be nothing.
    pub hidden_share_ci95: Option<[f64; 2]>,
    /// Where the decode phase's difference lies, baseline less it; null where the backend cannot tell.
    pub saved: Option<Difference>,
    /// Likewise, it less `upper-bound`, where that was run too.
    pub above_upper_bound: Option<Difference>,
}

/// All pairs that differ only along `axis`, and what looks wrong.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparisonReport {
    /// The axis.
    pub by: String,
    /// Pairs.
    pub pairs: Vec<Comparison>,
    /// Ratios looked at: the more, the more will differ by chance.
    pub comparisons: usize,
    /// Higher TP slower than lower, `upper-bound` that differs between P2P on and off, ...
    pub flags: Vec<String>,
}

/// Axes one can compare by.
pub const AXES: [&str; 11] = [
    "architecture",
    "p2p",
    "tp",
    "batch",
    "link",
    "model",
    "hardware",
    "backend",
    "dtype",
    "collective",
    "stack",
];

/// Compares cells that differ only along `axis` (and, for p2p, in the link that p2p chose and in NCCL's
/// P2P variables; by hardware and backend, in the machine). The baseline is `standard` for
/// architecture, `on` for p2p, else the first value met. Takes runs as stored: pooled records have
/// lost which samples belong to which round.
pub fn compare(records: &[Record], axis: &str) -> Result<ComparisonReport> {
    if !AXES.contains(&axis) {
        return Err(Error::unknown("axis", axis, AXES));
    }
    let arms: Vec<Arm> = Cell::group(records).iter().filter_map(Arm::new).collect();
    let matching = Matching::new(&arms, axis);
    let label = Label::new(&arms, axis);
    let mut warnings = matching.unmatched(&label);
    let pairs: Vec<Comparison> =
        matching.pairs().map(|pair| pair.comparison(axis, &label, &mut warnings)).collect();
    let mut all = flags(&arms);
    all.extend(warnings);
    Ok(ComparisonReport { by: axis.into(), comparisons: pairs.len(), pairs, flags: all })
}

/// A cell with numbers.
#[derive(Debug)]
pub(super) struct Arm {
    /// Its pooled record.
    pub record: Record,
    metrics: Metrics,
    pub(super) rounds: BTreeMap<u32, Vec<Sample>>,
}

impl Arm {
    pub(super) fn new(cell: &Cell<'_>) -> Option<Self> {
        let record = cell.record()?;
        let metrics = record.metrics.clone()?;
        Some(Self { metrics, rounds: cell.rounds(), record })
    }
}

/// One number a sample in the rounds that all arms have, by arm and round. Rounds in which a sample
/// has no such number do not count.
fn shared_rounds<const ARMS: usize>(
    arms: [&Arm; ARMS],
    of: impl Fn(&Spec, &Sample) -> Option<f64>,
) -> [Vec<Vec<f64>>; ARMS] {
    let mut by_arm = [(); ARMS].map(|()| Vec::new());
    let Some(first) = arms.first() else { return by_arm };
    for round in first.rounds.keys() {
        let numbers = arms.map(|arm| -> Option<Vec<f64>> {
            arm.rounds.get(round)?.iter().map(|sample| of(&arm.record.spec, sample)).collect()
        });
        if numbers.iter().all(Option::is_some) {
            for (arm, numbers) in by_arm.iter_mut().zip(numbers) {
                arm.extend(numbers);
            }
        }
    }
    by_arm
}

/// A baseline and what is compared with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair<'a> {
    pub baseline: &'a Arm,
    pub other: &'a Arm,
    /// `upper-bound` matched with both.
    upper_bound: Option<&'a Arm>,
}

/// A ratio of throughputs and what may be said of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ratio {
    pub speedup: f64,
    pub ci95: Option<[f64; 2]>,
    /// The interval excludes 1; between simulations: the ratio is not 1.
    pub differs: bool,
    /// Whether it is between simulations, where every difference is one.
    pub exact: bool,
}

impl<'a> Pair<'a> {
    pub fn new(baseline: &'a Arm, other: &'a Arm) -> Self {
        Self { baseline, other, upper_bound: None }
    }

    /// Throughput over the baseline's.
    pub fn ratio(&self) -> Ratio {
        let arms = [self.other, self.baseline];
        let throughput = |arm: &Arm, ms| tokens_per_s(&arm.record.spec, ms);
        let [other, baseline] = shared_rounds(arms, |_, sample| Some(completion_ms(sample)));
        let pooled = |rounds: &[Vec<f64>]| median(&rounds.concat());
        let speedup = match (pooled(&other), pooled(&baseline)) {
            (Some(a), Some(b)) => throughput(arms[0], a) / throughput(arms[1], b),
            _ => arms[0].metrics.tokens_per_s / arms[1].metrics.tokens_per_s,
        };
        let simulated = arms.map(|arm| arm.record.provenance == Provenance::Simulated);
        let exact = simulated == [true, true];
        let ci95 = if simulated == [false, false] {
            bootstrap([&other, &baseline], |[a, b]| throughput(arms[0], a) / throughput(arms[1], b))
        } else {
            None
        };
        let differs = match ci95 {
            Some([low, high]) => low > 1.0 || high < 1.0,
            // Simulations repeat to the last bit but for the order of sums.
            None => exact && (speedup - 1.0).abs() > 1e-9,
        };
        Ratio { speedup, ci95, differs, exact }
    }

    /// (baseline - other) / (baseline - upper-bound) in TPOT, and its interval.
    fn hidden_share(&self) -> (Option<f64>, Option<[f64; 2]>) {
        let Some(limit) = self.upper_bound else { return (None, None) };
        let arms = [self.baseline, self.other, limit];
        let share = |[standard, it, limit]: [f64; 3]| {
            if standard > limit { (standard - it) / (standard - limit) } else { f64::NAN }
        };
        let value = Some(share(arms.map(|arm| arm.metrics.tpot_ms.p50))).filter(|v| v.is_finite());
        let measured = arms.iter().all(|arm| arm.record.provenance != Provenance::Simulated);
        if value.is_none() || !measured {
            return (value, None);
        }
        let [a, b, c] = shared_rounds(arms, |spec, sample| median(&steps_ms(spec, sample)));
        (value, bootstrap([&a, &b, &c], share))
    }

    fn comparison(&self, axis: &str, label: &Label, flags: &mut Vec<String>) -> Comparison {
        let (baseline, other) = (&self.baseline.record, &self.other.record);
        let Ratio { speedup, ci95, differs, .. } = self.ratio();
        let (hidden_share, hidden_share_ci95) = self.hidden_share();
        let matched = label.pair(&baseline.spec, &other.spec);
        let (from, to) = (value(&baseline.spec, axis), value(&other.spec, axis));
        let rounds = [self.baseline, self.other].map(|arm| arm.rounds.keys().collect::<Vec<_>>());
        if rounds[0] != rounds[1] {
            flags.push(format!(
                "{matched}: {from} has rounds {:?}, {to} has {:?}; ratios use those that both have",
                rounds[0], rounds[1]
            ));
        }
        let pct = |record: &Record| record.overlap.and_then(|overlap| overlap.overlap_pct);
        let mut overlaps = (pct(baseline), pct(other));
        if recorder(baseline) != recorder(other) && overlaps.0.is_some() && overlaps.1.is_some() {
            let name = |record| recorder(record).unwrap_or("unknown");
            flags.push(format!(
                "{matched}: overlap of {from} ({}) and {to} ({}) was recorded in different ways and is \
                 not compared",
                name(baseline),
                name(other)
            ));
            overlaps = (None, None);
        }
        Comparison {
            matched,
            baseline: from,
            value: to,
            baseline_run: baseline.run.clone(),
            run: other.run.clone(),
            provenance: baseline.provenance.max(other.provenance),
            baseline_tpot_ms: self.baseline.metrics.tpot_ms.p50,
            tpot_ms: self.other.metrics.tpot_ms.p50,
            speedup,
            speedup_ci95: ci95,
            differs,
            baseline_overlap_pct: overlaps.0,
            overlap_pct: overlaps.1,
            hidden_share,
            hidden_share_ci95,
            saved: Difference::new(baseline.overlap.as_ref(), other.overlap.as_ref()),
            above_upper_bound: self.upper_bound.and_then(|limit| {
                Difference::new(other.overlap.as_ref(), limit.record.overlap.as_ref())
            }),
        }
    }
}

/// Cells that have everything but the axis in common.
#[derive(Debug)]
pub(super) struct Matching<'a> {
    axis: &'a str,
    groups: Vec<Vec<&'a Arm>>,
    /// Values of the axis, the first met first.
    order: Vec<String>,
}

impl<'a> Matching<'a> {
    pub fn new(arms: &'a [Arm], axis: &'a str) -> Self {
        let mut index: BTreeMap<String, usize> = BTreeMap::new();
        let (mut groups, mut order): (Vec<Vec<&Arm>>, Vec<String>) = Default::default();
        for arm in arms {
            let value = value(&arm.record.spec, axis);
            if !order.contains(&value) {
                order.push(value);
            }
            let at = *index.entry(common(&arm.record, axis)).or_insert_with(|| {
                groups.push(Vec::new());
                groups.len() - 1
            });
            groups[at].push(arm);
        }
        Self { axis, groups, order }
    }

    /// The groups.
    pub fn groups(&self) -> &[Vec<&'a Arm>] {
        &self.groups
    }

    /// The baseline's value among these cells; `None` where none of them is a baseline.
    fn baseline(&self, group: &[&Arm]) -> Option<String> {
        let has = |wanted: &str| group.iter().any(|arm| value(&arm.record.spec, self.axis) == wanted);
        match self.axis {
            "architecture" => has("standard").then(|| "standard".into()),
            "p2p" => has("on").then(|| "on".into()),
            _ => self.order.iter().find(|value| has(value)).cloned(),
        }
    }

    /// Every cell with its baseline.
    pub fn pairs(&self) -> impl Iterator<Item = Pair<'a>> {
        self.groups.iter().flat_map(|group| {
            let Some(wanted) = self.baseline(group) else { return Vec::new() };
            let (baselines, others): (Vec<&Arm>, Vec<&Arm>) =
                group.iter().partition(|arm| value(&arm.record.spec, self.axis) == wanted);
            let upper_bound = (self.axis == "architecture")
                .then(|| {
                    others.iter().find(|arm| value(&arm.record.spec, "architecture") == "upper-bound")
                })
                .flatten()
                .copied();
            let pair = |other| baselines_of(&baselines, other).map(move |baseline| (baseline, other));
            others
                .iter()
                .flat_map(|other| pair(*other).collect::<Vec<_>>())
                .map(|(baseline, other)| Pair { baseline, other, upper_bound })
                .collect()
        })
    }

    /// What cannot be compared because its baseline was not run.
    fn unmatched(&self, label: &Label) -> Vec<String> {
        let without = self.groups.iter().filter(|group| self.baseline(group).is_none());
        without
            .map(|group| {
                let values: Vec<String> =
                    group.iter().map(|arm| value(&arm.record.spec, self.axis)).collect();
                let wanted = if self.axis == "p2p" { "on" } else { "standard" };
                let spec = &group[0].record.spec;
                format!(
                    "{}: no '{wanted}' to compare {} with",
                    label.pair(spec, spec),
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

/// Everything but the axis and what the axis brings with it, as a key.
fn common(record: &Record, axis: &str) -> String {
    let mut spec = serde_json::to_value(&record.spec).unwrap_or_default();
    let machine = if matches!(axis, "hardware" | "backend") { None } else { host(record) };
    if let Some(fields) = spec.as_object_mut() {
        fields.remove(axis);
        if axis == "p2p" {
            fields.remove("link");
            if let Some(env) = fields.get_mut("env").and_then(|env| env.as_object_mut()) {
                env.retain(|key, _| !key.starts_with("NCCL_P2P_"));
            }
        }
    }
    format!("{spec} {machine:?}")
}

/// The value of an axis (or of the stack), as a user writes it.
pub(super) fn value(spec: &Spec, axis: &str) -> String {
    match axis {
        "architecture" => spec.architecture.to_string(),
        "p2p" => spec.p2p.as_str().into(),
        "tp" => spec.tp.to_string(),
        "batch" => spec.batch.to_string(),
        "link" => spec.link.to_string(),
        "model" => spec.model.clone(),
        "hardware" => spec.hardware.clone(),
        "backend" => spec.backend.as_str().into(),
        "dtype" => spec.dtype.to_string(),
        "stack" => spec.stack.clone(),
        "collective" => match spec.collective {
            Collective::Nccl => "nccl".into(),
            Collective::OneShot => "one-shot".into(),
        },
        _ => String::new(),
    }
}

/// Names what matched cells have in common: always what matters most, the rest where cells differ in it.
#[derive(Debug)]
pub(super) struct Label {
    axis: String,
    varying: Vec<&'static str>,
}

impl Label {
    pub fn new(arms: &[Arm], axis: &str) -> Self {
        let mut varying = Vec::new();
        if let Some((first, rest)) = arms.split_first() {
            let first = parts(&first.record.spec);
            for arm in rest {
                for (a, b) in first.iter().zip(parts(&arm.record.spec)) {
                    if a.1 != b.1 && !varying.contains(&a.0) {
                        varying.push(a.0);
                    }
                }
            }
        }
        Self { axis: axis.into(), varying }
    }

    /// What two specs have in common but the axis; where a link differs, both.
    pub fn pair(&self, a: &Spec, b: &Spec) -> String {
        const ALWAYS: [&str; 6] = ["architecture", "model", "tp", "batch", "p2p", "backend"];
        let shown = |name: &str, text: &str| {
            name != self.axis
                && !text.is_empty()
                // Variables that P2P brings with it say no more than P2P does.
                && !(self.axis == "p2p" && name == "env" && a.env != b.env)
                && (ALWAYS.contains(&name)
                    || self.varying.contains(&name)
                    || (name == "link" && text != "native"))
        };
        let both = parts(a).into_iter().zip(parts(b));
        let words = both
            .filter(|(a, b)| shown(a.0, &a.1) || shown(b.0, &b.1))
            .map(|(a, b)| if a.1 == b.1 { a.1 } else { format!("{}|{}", a.1, b.1) });
        words.collect::<Vec<_>>().join(" ")
    }
}

/// A spec's fields in words, in the order in which a label shows them.
pub(super) fn parts(spec: &Spec) -> [(&'static str, String); 17] {
    let list = |map: &BTreeMap<String, String>| {
        map.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
    };
    [
        ("architecture", spec.architecture.to_string()),
        ("model", spec.model.clone()),
        ("dtype", spec.dtype.to_string()),
        ("tp", format!("tp{}", spec.tp)),
        ("batch", format!("b{}", spec.batch)),
        ("prompt_tokens", format!("prompt{}", spec.prompt_tokens)),
        ("output_tokens", format!("output{}", spec.output_tokens)),
        ("p2p", format!("p2p-{}", spec.p2p.as_str())),
        ("backend", spec.backend.as_str().into()),
        ("link", spec.link.to_string()),
        ("hardware", spec.hardware.clone()),
        ("stack", format!("stack-{}", spec.stack)),
        ("collective", value(spec, "collective")),
        ("samples", format!("samples{}", spec.samples)),
        ("seed", format!("seed{}", spec.seed)),
        ("env", list(&spec.env)),
        ("set", list(&spec.set)),
    ]
}

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;
