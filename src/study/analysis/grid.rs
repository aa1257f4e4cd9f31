//! Measured grid as in docs/gpus-and-clusters.md: a row per setting with the TPOT of each architecture.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::{Axis, Cells, Comparison, Varied};
use table::options::option;
use table::render::{Shown, Table};
use table::{Link, Provenance, Record, Spec};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct MeasuredGrid {
    /// Settings that all rows share: `llama-3-70b bf16 tp8 ...`.
    pub settings: String,
    /// Settings in which standard, ladder and upper-bound were run, by model, TP, link, options and batch.
    pub rows: Vec<GridRow>,
    /// Number of settings without a run of ladder or upper-bound.
    pub incomplete: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct GridRow {
    pub model: String,
    pub tp: u32,
    /// P2P setting, or latency and bandwidth of an emulated link.
    pub link: String,
    /// Other options in which the rows differ, where they are not at their defaults: `nvls-off comm-sms8`.
    pub options: String,
    pub batch: u32,
    pub standard_tpot_ms: f64,
    pub ladder: GridCell,
    /// Null if it was not run.
    pub parallel: Option<GridCell>,
    pub upper_bound: GridCell,
    /// Gap closed by ladder; null if upper-bound is not faster than standard.
    pub gap_closed: Option<f64>,
    pub gap_closed_ci95: Option<[f64; 2]>,
    /// Overlap of ladder in the decode phase (%).
    pub overlap_pct: Option<f64>,
    pub provenance: Provenance,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct GridCell {
    pub tpot_ms: f64,
    /// TPOT of standard divided by this TPOT.
    pub speedup: f64,
}

impl GridCell {
    fn from_pair(pair: &Comparison) -> Self {
        Self { tpot_ms: pair.tpot_ms, speedup: pair.baseline_tpot_ms / pair.tpot_ms }
    }

    fn shown(self) -> Shown {
        Shown::text(format!("{} ({:.2}x)", Shown::Number(self.tpot_ms, 3), self.speedup))
    }
}

/// Options with a column, and those that do not change what is measured.
const COLUMNS: [&str; 6] = ["model", "tp", "p2p", "link", "batch", "samples"];

impl MeasuredGrid {
    /// Arranges the cells of stored runs.
    pub fn from_records(records: &[Record]) -> Self {
        let report = Cells::from_records(records).compare(&Axis::ARCHITECTURE, None);
        let pairs = report.map(|report| report.pairs).unwrap_or_default();
        let mut settings: BTreeMap<&str, BTreeMap<&str, &Comparison>> = BTreeMap::new();
        for pair in &pairs {
            settings.entry(&pair.baseline_run).or_default().entry(&pair.value).or_insert(pair);
        }
        let all = settings.len();
        settings
            .retain(|_, values| ["ladder", "upper-bound"].iter().all(|name| values.contains_key(name)));
        let specs =
            settings.values().filter_map(|values| Some(&values.get("ladder")?.baseline_side.spec));
        let varied = Varied::from_specs(specs.clone());
        let options =
            COLUMNS.into_iter().fold(varied.clone(), |rest, name| rest.without(&Axis::Option(name)));
        // a default goes without saying
        let is_default = |axis: &Axis, spec: &Spec| matches!(axis, Axis::Option(name) if option(name).is_some_and(|of| of.is_default(spec)));
        let options_of = |spec: &Spec| {
            let shown = options.axes().filter(|axis| !is_default(axis, spec));
            shown.map(|axis| axis.label(spec)).collect::<Vec<_>>().join(" ")
        };
        let shared = specs.clone().next().map(|spec| varied.common(spec)).unwrap_or_default();
        let row = |values: &BTreeMap<&str, &Comparison>| {
            let (ladder, bound) = (values.get("ladder")?, values.get("upper-bound")?);
            let spec = &ladder.baseline_side.spec;
            Some(GridRow {
                model: spec.model.clone(),
                tp: spec.tp,
                link: link(spec),
                options: options_of(spec),
                batch: spec.batch,
                standard_tpot_ms: ladder.baseline_tpot_ms,
                ladder: GridCell::from_pair(ladder),
                parallel: values.get("parallel").map(|pair| GridCell::from_pair(pair)),
                upper_bound: GridCell::from_pair(bound),
                gap_closed: ladder.hidden_share,
                gap_closed_ci95: ladder.hidden_share_ci95,
                overlap_pct: ladder.overlap_pct,
                provenance: values.values().map(|pair| pair.provenance).max()?,
            })
        };
        let mut rows: Vec<GridRow> = settings.values().filter_map(row).collect();
        // P2P on before off, and TP 8 before TP 2
        rows.sort_by_cached_key(|row| {
            let GridRow { model, tp, link, options, batch, .. } = row;
            (model.clone(), Reverse(*tp), link == OFF, link.clone(), options.clone(), *batch)
        });
        Self { settings: shared, incomplete: all - rows.len(), rows }
    }

    /// Table of the rows. Models and TPs have a column on screen if they differ.
    pub fn table(&self) -> Table {
        let differ =
            |of: &dyn Fn(&GridRow) -> String| self.rows.windows(2).any(|w| of(&w[0]) != of(&w[1]));
        let model = if differ(&|row| row.model.clone()) { "model" } else { "model|" };
        let tp = if differ(&|row| row.tp.to_string()) { "tp|TP" } else { "tp|" };
        let ms = |cell: Option<GridCell>| Shown::number(cell.map(|cell| cell.tpot_ms), 3);
        let speedup = |cell: Option<GridCell>| Shown::number(cell.map(|cell| cell.speedup), 3);
        let text = |cell: Option<GridCell>| cell.map(GridCell::shown);
        Table::from_rows(
            &self.rows,
            &[
                (model, &|row: &GridRow| Shown::text(&row.model)),
                (tp, &|row| row.tp.into()),
                ("!link", &|row| Shown::text(&row.link)),
                ("options", &|row| Shown::some(&row.options)),
                ("!batch", &|row| row.batch.into()),
                ("standard_tpot_ms|standard", &|row| Shown::Number(row.standard_tpot_ms, 3)),
                ("|ladder", &|row| row.ladder.shown()),
                ("ladder_tpot_ms|", &|row| ms(Some(row.ladder))),
                ("ladder_speedup|", &|row| speedup(Some(row.ladder))),
                ("|parallel", &|row| text(row.parallel).into()),
                ("parallel_tpot_ms|", &|row| ms(row.parallel)),
                ("parallel_speedup|", &|row| speedup(row.parallel)),
                ("|upper bound", &|row| row.upper_bound.shown()),
                ("upper_bound_tpot_ms|", &|row| ms(Some(row.upper_bound))),
                ("upper_bound_speedup|", &|row| speedup(Some(row.upper_bound))),
                ("gap_closed|gap closed", &|row| Shown::number(row.gap_closed, 2)),
                ("|overlap", &|row| row.overlap_pct.map(|pct| format!("{pct:.0} %")).into()),
                ("overlap_pct|", &|row| Shown::number(row.overlap_pct, 1)),
                ("!provenance", &|row| Shown::text(row.provenance)),
            ],
        )
        .least(&["overlap", "parallel"])
    }
}

/// Name of the link without P2P.
const OFF: &str = "P2P off";

fn link(spec: &Spec) -> String {
    match spec.link {
        Link::Emulated { .. } => spec.link.to_string(),
        _ => format!("P2P {}", spec.p2p.as_str()),
    }
}
