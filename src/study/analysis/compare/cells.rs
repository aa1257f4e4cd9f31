//! Pooled cells and their comparison along an axis.

use std::collections::HashMap;

use rayon::prelude::*;

use super::comparison::{Adjusted, LEVEL, benjamini_hochberg};
use super::comparison::{AxisCount, Comparison, ComparisonReport, Flag, Measured, Side, Verdict};
use super::matching::Label;
use super::matching::{Matching, PooledCell, cells};
use super::matching::{Pair, Ratio};
use super::pivot::Axis;
use crate::analysis::noise::flags;
use crate::analysis::side_by_side::Difference;
use base::error::{Error, Result};
use table::options::OPTIONS;
use table::{Measure, Record, Scope, Spec, recorder};

/// Cells with metrics, ready to be compared along any axis.
#[derive(Clone, Debug, Default)]
pub struct Cells(Vec<PooledCell>);

impl Cells {
    /// Groups stored runs into cells. Takes unpooled records: pooling loses which samples belong to which round.
    pub fn of(records: &[Record]) -> Self {
        Self(cells(records))
    }

    pub fn specs(&self) -> impl Iterator<Item = &Spec> + Clone {
        self.0.iter().map(|cell| &cell.record.spec)
    }

    pub fn samples(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|cell| cell.metrics.samples as usize)
    }

    /// Axes along which the cells differ, with the number of pairs of each.
    pub fn axes(&self) -> Vec<AxisCount> {
        let mut keys: Vec<Axis> = OPTIONS.iter().map(|option| Axis::Option(option.name)).collect();
        let mut named: Vec<Axis> = Vec::new();
        for PooledCell { record, .. } in &self.0 {
            let variables = record.spec.env.keys().cloned().map(Axis::Env);
            for axis in variables.chain(record.spec.set.keys().cloned().map(Axis::Set)) {
                if !named.contains(&axis) {
                    named.push(axis);
                }
            }
        }
        named.sort();
        keys.extend(named);
        let count = |axis: &Axis| {
            let matching = Matching::new(&self.0, axis, None);
            let values = matching.values().to_vec();
            (values.len() > 1).then(|| AxisCount {
                axis: axis.clone(),
                values,
                pairs: matching.pairs().len(),
            })
        };
        keys.par_iter().filter_map(count).collect()
    }

    /// Compares cells that differ only along `axis` with the cell whose value is `baseline`, or else the default
    /// ([`Axis::natural_baseline`]), or else the first value found. Along p2p, the link chosen by P2P and NCCL's P2P
    /// variables may differ too; along hardware and backend, the machine. Returns an error if no cell has the baseline.
    pub fn compare(&self, axis: &Axis, baseline: Option<&str>) -> Result<ComparisonReport> {
        let cells = &self.0;
        let matching = Matching::new(cells, axis, baseline);
        if let Some(wanted) = baseline.filter(|wanted| !matching.values().iter().any(|v| v == wanted)) {
            let values = matching.values().iter().map(String::as_str);
            return Err(Error::unknown(&format!("{axis} among these runs:"), wanted, values));
        }
        let label = Label::new(cells, Some(axis));
        let compared: Vec<(Comparison, Vec<Flag>)> =
            matching.pairs().par_iter().map(|pair| pair.comparison(axis, &label)).collect();
        let mut all = flags(cells);
        all.extend(matching.unmatched(&label));
        let mut pairs = Vec::with_capacity(compared.len());
        for (pair, warnings) in compared {
            pairs.push(pair);
            all.extend(warnings);
        }
        let adjusted = adjust_all(&mut pairs);
        Ok(ComparisonReport {
            by: axis.to_string(),
            values: matching.values().to_vec(),
            comparisons: pairs.len(),
            differ: pairs.iter().filter(|pair| pair.matters()).count(),
            adjusted,
            pairs,
            flags: all,
        })
    }
}

impl Cells {
    /// Adds a measure to each pair of a comparison of these cells. Quality on two different texts gets no ratio.
    pub fn measure(&self, report: &mut ComparisonReport, measure: &'static Measure) {
        let records: Vec<&Record> = self.0.iter().map(|cell| &cell.record).collect();
        let values = measure.of_all(&records);
        let by_run: HashMap<&str, Option<f64>> =
            records.iter().map(|record| record.run.as_str()).zip(values).collect();
        let texts: HashMap<&str, &str> = match measure.scope {
            Scope::Quality => records
                .iter()
                .filter_map(|record| {
                    Some((record.run.as_str(), record.quality.as_ref()?.text_hash.as_str()))
                })
                .collect(),
            _ => HashMap::new(),
        };
        for pair in &mut report.pairs {
            let text = |run: &String| texts.get(run.as_str());
            let of_one_text = text(&pair.baseline_run) == text(&pair.run);
            let of = |run: &String| by_run.get(run.as_str()).copied().flatten();
            let values = [of(&pair.baseline_run), of(&pair.run)];
            let [baseline, other] = values;
            let ratio = other.zip(baseline).map(|(b, a)| b / a);
            let ratio = ratio.filter(|ratio| ratio.is_finite() && of_one_text);
            pair.measured = Some(Measured { measure, values, ratio });
        }
    }
}

pub fn compare(records: &[Record], axis: &str) -> Result<ComparisonReport> {
    Cells::of(records).compare(&Axis::parse(axis)?, None)
}

fn adjust_all(pairs: &mut [Comparison]) -> Adjusted {
    let tested: Vec<usize> = (0..pairs.len()).filter(|i| pairs[*i].p_value.is_some()).collect();
    let p: Vec<f64> = tested.iter().filter_map(|i| pairs[*i].p_value).collect();
    for (&index, adjusted) in tested.iter().zip(benjamini_hochberg(&p)) {
        pairs[index].adjusted_p = Some(adjusted);
        pairs[index].differs_adjusted = Some(adjusted <= LEVEL);
    }
    pairs.iter_mut().for_each(|pair| pair.verdict = pair.judge());
    Adjusted {
        method: "Benjamini-Hochberg",
        false_discovery_rate: LEVEL,
        tested: tested.len(),
        differ: pairs.iter().filter(|pair| pair.differs_adjusted == Some(true)).count(),
    }
}

impl Pair<'_> {
    fn comparison(&self, axis: &Axis, label: &Label) -> (Comparison, Vec<Flag>) {
        let (baseline, other) = (&self.baseline.record, &self.other.record);
        let Ratio { speedup, ci95, p, differs, .. } = self.ratio();
        let matched = label.pair(self.baseline, self.other);
        let (from, to) = (axis.value(&baseline.spec), axis.value(&other.spec));
        let mut flags = Vec::new();
        let flag = |text: String| Flag::new([self.baseline, self.other], text);
        let rounds = [self.baseline, self.other].map(|cell| cell.rounds.keys().collect::<Vec<_>>());
        if rounds[0] != rounds[1] {
            flags.push(flag(format!(
                "{matched}: {from} has rounds {:?}, {to} has {:?}; ratios use those that both have",
                rounds[0], rounds[1]
            )));
        }
        let (mut baseline_side, mut side) = (Side::new(self.baseline), Side::new(self.other));
        let both = baseline_side.overlap_pct.is_some() && side.overlap_pct.is_some();
        if recorder(baseline) != recorder(other) && both {
            let name = |record| recorder(record).unwrap_or("unknown");
            flags.push(flag(format!(
                "{matched}: overlap of {from} ({}) and {to} ({}) was recorded in different ways and is \
                 not compared",
                name(baseline),
                name(other)
            )));
            (baseline_side.overlap_pct, side.overlap_pct) = (None, None);
        }
        let comparison = Comparison {
            rest: label.rest(self.baseline, self.other),
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
            p_value: p,
            adjusted_p: None,
            differs_adjusted: None,
            verdict: Verdict::Unknown,
            baseline_overlap_pct: baseline_side.overlap_pct,
            overlap_pct: side.overlap_pct,
            hidden_share: side.hidden_share,
            hidden_share_ci95: side.hidden_share_ci95,
            saved: Difference::new(baseline.overlap.as_ref(), other.overlap.as_ref()),
            measured: None,
            above_upper_bound: self.upper_bound.and_then(|limit| {
                Difference::new(other.overlap.as_ref(), limit.record.overlap.as_ref())
            }),
            baseline_side,
            side,
        };
        (comparison, flags)
    }
}
