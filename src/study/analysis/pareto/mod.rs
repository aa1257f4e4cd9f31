//! Pareto frontiers of latency against throughput.
//!
//! This file makes a point of each cell, in groups of comparable cells named by the parts that differ, and has the
//! columns of all tables. [`axes`] defines the plotted measures, [`frontier`] marks the frontiers and reads them at
//! fixed latencies, [`area`] computes the area that one frontier gains over another, [`overlay`] reads external points,
//! which never join a frontier.

mod area;
mod axes;
mod frontier;
mod overlay;

pub use area::{AreaGained, AreaOptions, LEAST_CELLS, area_gained};
pub use axes::{Axes, XAxis, YAxis};
pub use frontier::{
    AtLimit, BestAtLimit, BestWithin, NearMiss, ParetoLayout, at_limits, best_within, frontier,
    frontier_on, frontier_steps, mark, round_limits,
};
pub use overlay::{
    OVERLAY_COLUMNS, OverlayPoint, PUBLISHED, PublishedValue, parse_overlay, published, published_of,
    read_overlay,
};

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use rayon::prelude::*;
use serde::Serialize;

use super::apart::runs_apart;
use crate::validate::TieBand;
use base::statistics::bootstrap;
use plan::{Architecture, ExpertLoad};
use table::render::{Shown, Table};
use table::{
    CellRuns, Measure, OptionEntry, P2p, Provenance, Record, RunQuality, Spec, Status, aggregate, host,
};

#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct ParetoPoint {
    /// Id of the run, or of the cell's last run if several were pooled.
    pub run: String,
    /// Pooled runs of the cell.
    pub runs: usize,
    #[serde(flatten)]
    pub spec: Spec,
    pub provenance: Provenance,
    /// Latency of prefill and decode together, median over samples (ms).
    pub completion_ms: f64,
    /// Throughput of all sequences, divided by the number of GPUs (tokens/s).
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
    /// True for a point on the frontier if a point of another series is within the simulator's error on both axes, or the
    /// 95 % intervals of measured ones overlap, and for that other point: the frontier is uncertain here.
    pub too_close: bool,
    /// Band within which the simulated points of its group tie on the horizontal axis; `None` for measured ones.
    #[serde(skip)]
    pub band: Option<TieBand>,
    /// Published throughput of its cell (tokens/s) with the error of this point's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published_tokens_per_s: Option<PublishedValue>,
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
    /// True if its group has several expert- and data-parallel sizes, so that labels name them.
    #[serde(skip)]
    pub has_divisions: bool,
    /// True if some of its rounds were not measured side by side with the other architectures, as after a resume: the
    /// machine may have changed.
    #[serde(skip)]
    pub is_apart: bool,
    /// Evaluation behind a quality axis: what was evaluated, on which text.
    #[serde(skip_serializing_if = "Option::is_none")]
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
        with_setting(format!("{} p2p-{}", self.architecture, self.p2p.as_str()), &self.setting)
    }
}

/// Label followed by the settings of a series, if any.
pub fn with_setting(label: String, setting: &str) -> String {
    if setting.is_empty() { label } else { format!("{label} {setting}") }
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

    /// TP and batch as in labels: `8x16`; in a group with expert parallelism `1x16 e8d8`.
    pub fn label(&self) -> String {
        let Spec { tp, batch, ep, dp, .. } = self.spec;
        match self.has_divisions {
            true => format!("{tp}x{batch} e{ep}d{dp}"),
            false => format!("{tp}x{batch}"),
        }
    }

    /// Label of the cell, with EP and DP and with the settings in which its group differs: `ladder tp8 ep1 dp1 b8 p2p-on
    /// one-shot`.
    pub fn cell_label(&self) -> String {
        let Spec { tp, ep, dp, .. } = self.spec;
        let label = match self.has_divisions && ep.max(dp) == 1 {
            true => self.spec.label().replacen(&format!("tp{tp}"), &format!("tp{tp} ep1 dp1"), 1),
            false => self.spec.label(),
        };
        let is_new = |word: &&str| !label.split(' ').any(|known| known == *word);
        let more: Vec<&str> = self.setting.split(' ').filter(is_new).collect();
        with_setting(label.clone(), &more.join(" "))
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
    let apart = measured_apart(&cells);
    let of_cell = |(cell, is_apart): (&CellRuns<'_>, &bool)| point(cell, axes, *is_apart);
    let mut points: Vec<ParetoPoint> = cells.par_iter().zip(&apart).filter_map(of_cell).collect();
    if let XAxis::Of(measure) = axes.x {
        place(&mut points, records, measure, |point| (&mut point.x, &mut point.x_ci95));
    }
    if let YAxis::Of(measure) = axes.y {
        place(&mut points, records, measure, |point| (&mut point.y, &mut point.y_ci95));
    }
    if axes.quality().is_some() {
        part_by_text(&mut points);
    }
    relate_points(&mut points, axes);
    points
}

/// Marks the frontiers of these points alone, and names the settings and divisions in which the points of a group differ.
pub fn relate_points(points: &mut [ParetoPoint], axes: Axes) {
    name_settings(points);
    mark(points, axes);
    let divided = points.iter().filter(|point| point.spec.ep.max(point.spec.dp) > 1);
    let divided: BTreeSet<String> = divided.map(|point| point.group.clone()).collect();
    points.iter_mut().for_each(|point| point.has_divisions = divided.contains(&point.group));
}

/// Setting that comparisons match cells by: cell key without the architecture, and host. `None` for simulations.
fn measured_setting(cell: &CellRuns<'_>) -> Option<(String, Option<String>)> {
    let run: &Record = cell.runs.first().filter(|run| run.provenance != Provenance::Simulated)?;
    let standard = Spec { architecture: Architecture::Standard, ..run.spec.clone() };
    Some((standard.key(), host(run)))
}

/// True for each cell with a round that was [measured apart](super::apart) from the other architectures of its setting.
fn measured_apart(cells: &[CellRuns<'_>]) -> Vec<bool> {
    let mut settings: HashMap<(String, Option<String>), Vec<usize>> = HashMap::new();
    for (at, cell) in cells.iter().enumerate() {
        if let Some(setting) = measured_setting(cell) {
            settings.entry(setting).or_default().push(at);
        }
    }
    let mut apart = vec![false; cells.len()];
    for cells_of in settings.into_values() {
        let late = runs_apart(cells_of.iter().map(|at| cells[*at].ok()));
        for at in cells_of {
            apart[at] = cells[at].ok().any(|run| late.iter().any(|(late, _)| std::ptr::eq(*late, run)));
        }
    }
    apart
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

fn point(cell: &CellRuns<'_>, axes: Axes, is_apart: bool) -> Option<ParetoPoint> {
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
    let ttft_ms_ci95 = if axes.x == XAxis::Ttft && record.provenance != Provenance::Simulated {
        let rounds: Vec<Vec<f64>> =
            cell.rounds().values().map(|round| round.iter().map(|s| s.prefill_ms).collect()).collect();
        bootstrap([&rounds], |[median]| median)
    } else {
        None
    };
    Some(ParetoPoint {
        run: record.run.clone(),
        runs: cell.ok().count(),
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
        band: None,
        published_tokens_per_s: PublishedValue::of_cell(spec, metrics.tokens_per_s),
        dominated_by: None,
        x: None,
        y: None,
        x_ci95: None,
        y_ci95: None,
        quality: record.quality.filter(|_| axes.quality().is_some()),
        has_divisions: false,
        is_apart,
        spec: record.spec,
    })
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

/// Link of a cell as a setting; the links of its hardware profile follow from P2P.
fn link_setting(spec: &Spec) -> String {
    if spec.has_link_of_p2p() { "profile's link".to_owned() } else { spec.link.to_string() }
}

/// Variables of a cell that are settings: all but those of P2P.
fn env_settings(spec: &Spec) -> impl Iterator<Item = (&String, &String)> {
    spec.env.iter().filter(|(key, _)| !key.starts_with("NCCL_P2P_"))
}

/// Settings in which the cells of a group with the same P2P setting differ.
#[derive(Debug, Default)]
struct VariedSettings {
    link: bool,
    options: Vec<&'static OptionEntry>,
    env: BTreeSet<String>,
}

impl VariedSettings {
    fn add_differences(&mut self, a: &Spec, b: &Spec) {
        self.link |= link_setting(a) != link_setting(b);
        for option in Spec::setting_options().filter(|option| !option.same(a, b)) {
            if !self.options.iter().any(|known| known.name == option.name) {
                self.options.push(option);
            }
        }
        let own = |of: &Spec, other: &Spec| -> Vec<String> {
            let changed = env_settings(of).filter(|(key, value)| other.env.get(*key) != Some(value));
            changed.map(|(key, _)| key.clone()).collect()
        };
        self.env.extend(own(a, b).into_iter().chain(own(b, a)));
    }

    /// Values of a cell: `nccl kv-f8 NCCL_ALGO=Ring`. Defaults are named if they say what they are of: `nccl`, but not `micro1`.
    fn words(&self, spec: &Spec) -> String {
        let link = self.link.then(|| link_setting(spec));
        let is_named =
            |option: &&&OptionEntry| option.about.label.is_empty() || !option.is_default(spec);
        let options = self.options.iter().filter(is_named).map(|option| option.label(spec));
        let env = self.env.iter().filter_map(|key| Some(format!("{key}={}", spec.env.get(key)?)));
        let words = link.into_iter().chain(options).chain(env).filter(|word| !word.is_empty());
        words.collect::<Vec<_>>().join(" ")
    }
}

/// Names the settings that separate the series of a group.
fn name_settings(points: &mut [ParetoPoint]) {
    let mut first: BTreeMap<(&str, P2p), &Spec> = BTreeMap::new();
    let mut varied: BTreeMap<&str, VariedSettings> = BTreeMap::new();
    for point in &*points {
        let first = *first.entry((&point.group, point.spec.p2p)).or_insert(&point.spec);
        varied.entry(&point.group).or_default().add_differences(first, &point.spec);
    }
    let named = points.iter().map(|point| varied[&*point.group].words(&point.spec));
    let settings: Vec<String> = named.collect();
    points.iter_mut().zip(settings).for_each(|(point, setting)| point.setting = setting);
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
    let mut load = String::new();
    if spec.expert_load != ExpertLoad::Uniform {
        load += &format!(", {} expert load", spec.expert_load);
    }
    if spec.concurrency > 0 {
        load += &format!(", {} requests in flight", spec.concurrency);
    }
    format!(
        "{} {}, prompt {}, output {}{load}, {hardware}, {} {}{eager}, {}",
        named("model", &spec.model),
        spec.dtype,
        spec.prompt_tokens,
        spec.output_tokens,
        spec.backend.as_str(),
        named("stack", &spec.stack),
        record.provenance
    )
}

/// Number of a group's cells among these runs that do not fit in memory, and so have no point.
pub fn out_of_memory<'a>(
    runs: impl IntoIterator<Item = &'a Record>,
    points: &[ParetoPoint],
    group: &str,
) -> usize {
    let is_of = |run: &&Record| run.status == Status::Oom && self::group(run) == group;
    let mut cells: BTreeSet<String> = runs.into_iter().filter(is_of).map(|run| run.spec.key()).collect();
    if !cells.is_empty() {
        let of_group = points.iter().filter(|point| point.group == group);
        of_group.for_each(|point| _ = cells.remove(&point.spec.key()));
    }
    cells.len()
}

/// Table with one row per point. Files have all digits and columns that an overlay can read; `low` and `high` are the
/// ends of 95 % intervals.
pub fn points_table<'a>(points: impl IntoIterator<Item = &'a ParetoPoint>, axes: Axes) -> Table {
    let end = |ci: Option<[f64; 2]>, at: usize| Shown::number(ci.map(|ci| ci[at]), 3);
    let (ttft, user) = match axes.x {
        XAxis::Ttft => ("ttft_ms|TTFT ms", "tokens_per_s_per_user|"),
        XAxis::User => ("ttft_ms|", "tokens_per_s_per_user|tok/s/user"),
        _ => ("ttft_ms|", "tokens_per_s_per_user|"),
    };
    // extra column for an axis without its own, readable by an overlay
    let other = |column: &str, measure: Option<&Measure>| match measure {
        Some(measure) => [format!("{column}|{}", measure.title), format!("{column}_measure|")],
        None => Default::default(),
    };
    let [x, x_measure] = other("x", if let XAxis::Of(measure) = axes.x { Some(measure) } else { None });
    let [y, y_measure] = other("y", if let YAxis::Of(measure) = axes.y { Some(measure) } else { None });
    let decimals = [axes.x.measure().decimals, axes.y.measure().decimals];
    let points: Vec<&ParetoPoint> = points.into_iter().collect();
    let error = match points.iter().any(|point| point.published_tokens_per_s.is_some()) {
        true => "published_error_pct|tok/s vs published %",
        false => "published_error_pct|",
    };
    let [ep, dp] = match points.iter().any(|point| point.has_divisions) {
        true => ["ep", "dp"],
        false => ["ep|", "dp|"],
    };
    Table::from_rows(
        points,
        &[
            ("group|", &|p| Shown::text(&p.group)),
            ("on_frontier|", &|p| Shown::text(p.on_frontier)),
            ("|frontier", &|p| {
                let place = match (p.on_frontier, p.on_series_frontier) {
                    (true, _) => "●",
                    (false, true) => "○",
                    (false, false) => "",
                };
                Shown::some(format!("{place}{}", if p.too_close { "≈" } else { "" }))
            }),
            ("architecture", &|p| Shown::text(&p.spec.architecture)),
            ("model|", &|p| Shown::text(&p.spec.model)),
            ("dtype|", &|p| Shown::text(p.spec.dtype)),
            ("tp", &|p| p.spec.tp.into()),
            (ep, &|p| p.spec.ep.into()),
            (dp, &|p| p.spec.dp.into()),
            ("batch", &|p| p.spec.batch.into()),
            ("prompt_tokens|", &|p| p.spec.prompt_tokens.into()),
            ("output_tokens|", &|p| p.spec.output_tokens.into()),
            ("p2p", &|p| Shown::text(p.spec.p2p.as_str())),
            ("backend|", &|p| Shown::text(p.spec.backend.as_str())),
            ("link", &|p| Shown::text(p.spec.link)),
            ("|setting", &|p| Shown::some(&p.setting)),
            ("hardware|", &|p| Shown::text(&p.spec.hardware)),
            ("stack|", &|p| Shown::text(&p.spec.stack)),
            (&x, &|p| Shown::interval(p.x, p.x_ci95, decimals[0])),
            (&x_measure, &|_| Shown::text(axes.x.measure().name)),
            (&y, &|p| Shown::interval(p.y, p.y_ci95, decimals[1])),
            (&y_measure, &|_| Shown::text(axes.y.measure().name)),
            ("completion_ms|completion ms", &|p| Shown::Number(p.completion_ms, 2)),
            ("tokens_per_s_per_gpu|tok/s/GPU", &|p| Shown::Number(p.tokens_per_s_per_gpu, 2)),
            // no TPOT if no token was decoded
            ("tpot_ms|TPOT ms", &|p| Shown::number(Some(p.tpot_ms).filter(|ms| *ms > 0.0), 3)),
            (ttft, &|p| Shown::number(p.ttft_ms, 2)),
            (user, &|p| Shown::number(p.tokens_per_s_per_user, 2)),
            ("tokens_per_s|tok/s", &|p| Shown::Interval(p.tokens_per_s, p.tokens_per_s_ci95, 2)),
            ("completion_ms_low|", &|p| end(p.completion_ms_ci95, 0)),
            ("completion_ms_high|", &|p| end(p.completion_ms_ci95, 1)),
            ("tpot_ms_low|", &|p| end(p.tpot_ms_ci95, 0)),
            ("tpot_ms_high|", &|p| end(p.tpot_ms_ci95, 1)),
            ("tokens_per_s_low|", &|p| end(p.tokens_per_s_ci95, 0)),
            ("tokens_per_s_high|", &|p| end(p.tokens_per_s_ci95, 1)),
            ("!provenance", &|p| Shown::text(p.provenance)),
            ("run", &|p| Shown::text(&p.run)),
            ("setting|", &|p| Shown::text(&p.setting)),
            ("on_series_frontier|", &|p| Shown::text(p.on_series_frontier)),
            ("too_close|", &|p| Shown::text(p.too_close)),
            ("published_tokens_per_s|", &|p| {
                Shown::number(p.published_tokens_per_s.map(|of| of.value), 2)
            }),
            (error, &|p| Shown::number(p.published_tokens_per_s.map(|of| of.error_pct), 1)),
            ("dominated_by|dominated by", &|p| p.dominated_by.as_deref().into()),
        ],
    )
    .least(&["tok/s", "link", "run", "dominated by"])
}

/// True if point tables have this column; overlays ignore it.
fn is_own(column: &str) -> bool {
    points_table([], Axes::default()).has(column)
}

pub fn limits_table<'a>(rows: impl IntoIterator<Item = &'a AtLimit>) -> Table {
    let rows: Vec<&AtLimit> = rows.into_iter().collect();
    let is_divided = |row: &&AtLimit| row.best.as_ref().is_some_and(|best| best.ep.max(best.dp) > 1);
    let [ep, dp] = if rows.iter().any(is_divided) { ["ep", "dp"] } else { ["ep|", "dp|"] };
    Table::from_rows(
        rows,
        &[
            ("group|", &|r| Shown::text(&r.group)),
            ("limit", &|r| Shown::Number(r.limit, 3)),
            ("architecture", &|r| Shown::text(&r.architecture)),
            ("p2p", &|r| Shown::text(r.p2p.as_str())),
            ("setting", &|r| Shown::some(&r.setting)),
            ("y|best", &|r| r.best.as_ref().map_or(Shown::None, |b| Shown::Interval(b.y, b.y_ci95, 2))),
            ("tp", &|r| r.best.as_ref().map(|b| b.tp).into()),
            (ep, &|r| r.best.as_ref().map(|b| b.ep).into()),
            (dp, &|r| r.best.as_ref().map(|b| b.dp).into()),
            ("batch", &|r| r.best.as_ref().map(|b| b.batch).into()),
            ("x|at", &|r| Shown::number(r.best.as_ref().map(|b| b.x), 2)),
            ("over_standard|", &|r| Shown::number(r.best.as_ref().and_then(|b| b.over_standard), 3)),
            (
                "|x standard",
                &|r| match r.best.as_ref().map(|b| (b.over_same_batch(), b.over_standard)) {
                    // a ratio across batch sizes is no speedup
                    Some((None, Some(_))) => Shown::text("different batch: no ratio"),
                    over => Shown::number(over.and_then(|(same, _)| same), 3),
                },
            ),
            ("standard_batch|", &|r| r.best.as_ref().and_then(|b| b.standard_batch).into()),
            ("provenance|", &|r| Shown::text(r.provenance)),
            ("run|", &|r| r.best.as_ref().map(|b| b.run.as_str()).into()),
        ],
    )
}

pub fn areas_table<'a>(rows: impl IntoIterator<Item = &'a AreaGained>) -> Table {
    let end = |ci: Option<[f64; 2]>, at: usize| Shown::number(ci.map(|ci| ci[at]), 2);
    Table::from_rows(
        rows,
        &[
            ("group|", &|r| Shown::text(&r.group)),
            ("architecture", &|r| Shown::text(&r.architecture)),
            ("baseline|", &|r| Shown::text(&r.baseline)),
            ("p2p", &|r| Shown::text(r.p2p.as_str())),
            ("setting", &|r| Shown::some(&r.setting)),
            ("gained_pct|area gained %", &|r| Shown::interval(r.gained_pct, r.gained_pct_ci95, 2)),
            ("gained_pct_low|", &|r| end(r.gained_pct_ci95, 0)),
            ("gained_pct_high|", &|r| end(r.gained_pct_ci95, 1)),
            ("area|", &|r| Shown::Number(r.area, 3)),
            ("baseline_area|", &|r| Shown::Number(r.baseline_area, 3)),
            ("x_scale|", &|r| Shown::text(r.x_scale)),
            ("y_scale|", &|r| Shown::text(r.y_scale)),
            ("reference_x|", &|r| Shown::Number(r.reference[0], 3)),
            ("reference_y|", &|r| Shown::Number(r.reference[1], 3)),
            ("cells", &|r| r.cells.into()),
            ("left_out|cells left out", &|r| r.left_out.into()),
            ("|reference", &|r| Shown::text(format!("{:.2}, {:.2}", r.reference[0], r.reference[1]))),
            ("provenance|", &|r| Shown::text(r.provenance)),
            ("no_interval|", &|r| r.no_interval.as_deref().into()),
        ],
    )
}

/// Splits group names into the parts that differ, per group, and the common parts. A single group has no
/// differing part.
pub fn split_group_names(names: &[&str]) -> (Vec<String>, String) {
    let parts: Vec<Vec<&str>> = names.iter().map(|name| name.split(", ").collect()).collect();
    let Some((first, others)) = parts.split_first().filter(|(_, others)| !others.is_empty()) else {
        return (vec![String::new(); names.len()], names.concat());
    };
    let same = |part: &&str| others.iter().all(|other| other.contains(part));
    let common: Vec<&str> = first.iter().copied().filter(same).collect();
    // in a part such as `h100_sxm link.alpha_us=5`, keep only the words that differ
    let words = |part: &str| part.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let apart = |part: &str, at: usize| -> String {
        let words_there = |other: &Vec<&str>| other.get(at).map(|part| words(part)).unwrap_or_default();
        let all: Vec<Vec<String>> = parts.iter().map(words_there).collect();
        let own: Vec<String> = words(part);
        let distinct: Vec<String> =
            own.iter().filter(|word| !all.iter().all(|words| words.contains(word))).cloned().collect();
        match part.starts_with("prompt ") || part.starts_with("output ") || distinct.is_empty() {
            true => part.to_owned(),
            false => distinct.join(" "),
        }
    };
    let names = parts.iter().map(|parts| {
        let own = parts.iter().enumerate().filter(|(_, part)| !common.contains(part));
        own.map(|(at, part)| apart(part, at)).collect::<Vec<_>>().join(", ")
    });
    (names.collect(), common.join(", "))
}

#[cfg(test)]
mod tests;
