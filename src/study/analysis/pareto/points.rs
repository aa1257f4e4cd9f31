//! Pareto points: one per cell, in groups of comparable cells.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use rayon::prelude::*;
use serde::Serialize;

use super::axes::{Axes, XAxis, YAxis};
use super::frontier::mark;
use base::statistics::bootstrap;
use plan::Architecture;
use table::{
    CellRuns, Collective, Measure, P2p, Provenance, Record, RunQuality, Spec, aggregate, host, shared,
};

#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct ParetoPoint {
    /// Id of the run, or of the cell's last run if several were pooled.
    pub run: String,
    #[serde(flatten)]
    pub spec: Spec,
    pub provenance: Provenance,
    /// Latency of prefill and decode together, median over samples (ms).
    pub completion_ms: f64,
    /// Throughput of all sequences, divided by TP (tokens/s).
    pub tokens_per_s_per_gpu: f64,
    /// Time per output token, median over decode steps (ms).
    pub tpot_ms: f64,
    /// True if no other choice of its group dominates it; false for `upper-bound`, which computes wrong results and is
    /// a limit, not a choice.
    pub on_frontier: bool,
    /// Comparison group, for display: model, workload, hardware, provenance.
    pub group: String,
    pub ttft_ms: Option<f64>,
    pub tokens_per_s: f64,
    /// Throughput of one user, 1000 / TPOT (tokens/s); null with a single output token.
    pub tokens_per_s_per_user: Option<f64>,
    /// 95 % interval of the completion latency (ms); null with fewer than 6 samples or for simulations.
    pub completion_ms_ci95: Option<[f64; 2]>,
    /// 95 % interval of TPOT (ms); null with fewer than 6 samples or for simulations.
    pub tpot_ms_ci95: Option<[f64; 2]>,
    /// 95 % interval of TTFT (ms); null with fewer than 6 samples, for simulations, and if TTFT is not the axis.
    pub ttft_ms_ci95: Option<[f64; 2]>,
    /// 95 % interval of the throughput (tokens/s); null with fewer than 6 samples or for simulations.
    pub tokens_per_s_ci95: Option<[f64; 2]>,
    /// Settings that separate the series besides architecture and P2P (link, collective, variables); empty if the group
    /// has only one of them per P2P setting.
    pub setting: String,
    /// True if no other run of its series (architecture, P2P and setting) dominates it.
    pub on_series_frontier: bool,
    /// True for a simulated point on the frontier if another architecture's point is within the simulator's error on
    /// both axes, and for that other point: the frontier is uncertain here.
    pub too_close: bool,
    /// Run of its group that dominates it, never `upper-bound`: the highest throughput among those no slower; null if
    /// none does.
    pub dominated_by: Option<String>,
    /// Value on a horizontal axis other than the above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub x: Option<f64>,
    /// Value on a vertical axis other than the above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub y: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub x_ci95: Option<[f64; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub y_ci95: Option<[f64; 2]>,
    /// Evaluation behind a quality axis: what was evaluated, on which text.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "shared")]
    pub quality: Option<Arc<RunQuality>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Series {
    pub architecture: Architecture,
    pub p2p: P2p,
    /// Settings that separate the series besides architecture and P2P (see [`ParetoPoint::setting`]).
    pub setting: String,
}

impl Series {
    /// Label such as `ladder p2p-on`, followed by the setting if any.
    pub fn label(&self) -> String {
        let base = format!("{} p2p-{}", self.architecture, self.p2p.as_str());
        if self.setting.is_empty() { base } else { format!("{base} {}", self.setting) }
    }
}

impl ParetoPoint {
    /// True for `upper-bound`, which nobody can choose: it only shows the limit for other architectures.
    pub fn is_limit(&self) -> bool {
        self.spec.architecture.is_limit()
    }

    pub fn series(&self) -> Series {
        Series {
            architecture: self.spec.architecture.clone(),
            p2p: self.spec.p2p,
            setting: self.setting.clone(),
        }
    }

    /// TP and batch as in labels: `8x16`.
    pub fn label(&self) -> String {
        format!("{}x{}", self.spec.tp, self.spec.batch)
    }
}

/// Points of all finished cells, completion latency against per-GPU throughput, with the frontier marked in each group.
/// Ties are all on the frontier. A group has the same model, number format, workload (prompt and output tokens),
/// hardware with its overrides, machine, backend, stack and provenance. `upper-bound` is a limit: it dominates nothing
/// and is only on its own series' frontier.
pub fn pareto(records: &[Record]) -> Vec<ParetoPoint> {
    pareto_on(records, Axes::default())
}

/// Points of all finished cells on any axes, with the frontier marked in each group. A cell without a value on one axis
/// (no TPOT with a single output token) is on no frontier.
pub fn pareto_on(records: &[Record], axes: Axes) -> Vec<ParetoPoint> {
    let cells = CellRuns::group(records);
    let mut points: Vec<(ParetoPoint, String)> =
        cells.par_iter().filter_map(|cell| point(cell, axes)).collect();
    name_settings(&mut points);
    let mut points: Vec<ParetoPoint> = points.into_iter().map(|(point, _)| point).collect();
    if let XAxis::Of(measure) = axes.x {
        place(&mut points, records, measure, |point| (&mut point.x, &mut point.x_ci95));
    }
    if let YAxis::Of(measure) = axes.y {
        place(&mut points, records, measure, |point| (&mut point.y, &mut point.y_ci95));
    }
    if axes.quality().is_some() {
        part_by_text(&mut points);
    }
    mark(&mut points, axes);
    points
}

/// Splits groups whose quality was measured on different texts, since those numbers are not comparable.
fn part_by_text(points: &mut [ParetoPoint]) {
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for point in points.iter() {
        let text = point.quality.as_ref().map(|quality| quality.text_hash.clone());
        texts.entry(point.group.clone()).or_default().extend(text);
    }
    for point in points {
        let several = texts.get(&point.group).is_some_and(|texts| texts.len() > 1);
        if let Some(quality) = point.quality.as_ref().filter(|_| several) {
            let hash = quality.text_hash.get(..6).unwrap_or(&quality.text_hash);
            point.group += &format!(", quality on {} ({hash})", quality.text);
        }
    }
}

fn point(cell: &CellRuns<'_>, axes: Axes) -> Option<(ParetoPoint, String)> {
    let record = cell.record()?;
    let metrics = record.metrics.as_ref().filter(|_| record.is_finished())?;
    if !metrics.completion_ms.is_finite() || !metrics.tokens_per_s_per_gpu.is_finite() {
        return None;
    }
    let spec = &record.spec;
    let positive = |value: f64| Some(value).filter(|v| v.is_finite() && *v > 0.0);
    let tokens = f64::from(spec.batch) * f64::from(spec.output_tokens);
    // throughput is tokens over completion latency, so each interval gives the other
    let completion = metrics.tokens_per_s_ci95.filter(|[low, _]| *low > 0.0);
    let setting = setting(spec);
    let ttft_ms_ci95 = if axes.x == XAxis::Ttft && record.provenance != Provenance::Simulated {
        let rounds: Vec<Vec<f64>> =
            cell.rounds().values().map(|round| round.iter().map(|s| s.prefill_ms).collect()).collect();
        bootstrap([&rounds], |[median]| median)
    } else {
        None
    };
    let point = ParetoPoint {
        run: record.run.clone(),
        provenance: record.provenance,
        completion_ms: metrics.completion_ms,
        tokens_per_s_per_gpu: metrics.tokens_per_s_per_gpu,
        tpot_ms: metrics.tpot_ms.p50,
        on_frontier: false,
        group: group(&record),
        ttft_ms: positive(metrics.prefill_ms),
        tokens_per_s: metrics.tokens_per_s,
        tokens_per_s_per_user: positive(metrics.tpot_ms.p50).map(|ms| 1000.0 / ms),
        completion_ms_ci95: completion.map(|[low, high]| [tokens * 1e3 / high, tokens * 1e3 / low]),
        tpot_ms_ci95: metrics.tpot_ms_ci95,
        ttft_ms_ci95,
        tokens_per_s_ci95: metrics.tokens_per_s_ci95,
        setting: String::new(),
        on_series_frontier: false,
        too_close: false,
        dominated_by: None,
        x: None,
        y: None,
        x_ci95: None,
        y_ci95: None,
        quality: record.quality.filter(|_| axes.quality().is_some()),
        spec: record.spec,
    };
    Some((point, setting))
}

/// Accessor of a point's coordinate on one axis and its interval.
type Coordinate = fn(&mut ParetoPoint) -> (&mut Option<f64>, &mut Option<[f64; 2]>);

fn place(points: &mut [ParetoPoint], records: &[Record], measure: &Measure, at: Coordinate) {
    let pooled = aggregate(records);
    let pooled: Vec<&Record> = pooled.iter().collect();
    let values = measure.of_all(&pooled);
    let known = pooled.iter().zip(values);
    let by_run: HashMap<&str, _> =
        known.map(|(r, value)| (r.run.as_str(), (value, measure.interval_of(r)))).collect();
    for point in points {
        let (value, ci) = by_run.get(point.run.as_str()).copied().unwrap_or_default();
        let (v, c) = at(point);
        (*v, *c) = (value, ci);
    }
}

/// Link, collective, variant and variables of a spec as text, without P2P's own variables.
fn setting(spec: &Spec) -> String {
    let mut words = vec![spec.link.to_string()];
    if spec.collective != Collective::Nccl {
        words.push(spec.collective.to_string());
    }
    let variant = spec.variant_label();
    if !variant.is_empty() {
        words.push(variant);
    }
    let own = |(key, _): &(&String, &String)| !key.starts_with("NCCL_P2P_");
    words.extend(spec.env.iter().filter(own).map(|(key, value)| format!("{key}={value}")));
    words.join(" ")
}

/// Keeps settings only if a group has several for one P2P setting.
fn name_settings(points: &mut [(ParetoPoint, String)]) {
    let mut seen: BTreeMap<(String, P2p), BTreeSet<String>> = BTreeMap::new();
    for (point, setting) in &*points {
        seen.entry((point.group.clone(), point.spec.p2p)).or_default().insert(setting.clone());
    }
    for (point, setting) in points {
        let several = seen.get(&(point.group.clone(), point.spec.p2p)).is_some_and(|s| s.len() > 1);
        point.setting = if several { std::mem::take(setting) } else { String::new() };
    }
}

/// Name of a group: `llama-3-70b f16, prompt 1024, output 512, h100_sxm, sim gpt-fast, simulated`.
pub(in crate::analysis) fn group(record: &Record) -> String {
    let spec = &record.spec;
    let named = |option: &str, name: &str| match spec.files.get(option) {
        // six digits distinguish versions of a file
        Some(hash) => format!("{name} ({})", hash.get(..6).unwrap_or(hash)),
        None => name.to_owned(),
    };
    let mut hardware = named("hardware", &spec.hardware);
    for (key, value) in &spec.set {
        hardware.push_str(&format!(" {key}={value}"));
    }
    if let Some(host) = host(record).filter(|host| *host != spec.hardware) {
        hardware.push_str(&format!(" on {host}"));
    }
    let eager = if spec.no_graph { " eager" } else { "" };
    format!(
        "{} {}, prompt {}, output {}, {hardware}, {} {}{eager}, {}",
        named("model", &spec.model),
        spec.dtype,
        spec.prompt_tokens,
        spec.output_tokens,
        spec.backend.as_str(),
        named("stack", &spec.stack),
        record.provenance
    )
}
