//! What a set of runs answers, in sentences and a small table: who wins, by how much, how much of the
//! communication was hidden, what P2P changed, what cannot be told from chance and what could not run.
//!
//! The sentences are made by rules over comparisons, so that they are the same wherever they stand: where a
//! sweep ends, beside a stored experiment, at the head of the report. `upper-bound` is a limit and no choice:
//! it never wins.

use std::collections::{BTreeMap, BTreeSet};

use super::analysis::{Axis, Cells, Comparison, ComparisonReport, Varied, Verdict};
use crate::base::statistics::median;
use crate::base::text::counted;
use crate::plan::Architecture;
use crate::table::render::{Shown, Table};
use crate::table::{P2p, Provenance, Record, Status};

/// Runs that are answered in sentences, at most: a larger grid is for comparisons and the report.
pub const MOST_RUNS: usize = 10_000;

/// Rows of the table; the sentences are about all of them.
const MOST_ROWS: usize = 12;

/// Things of one kind that a sentence names; others are counted.
const MOST_NAMED: usize = 3;

/// What runs of one provenance answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// What the sentences rest on: provenance, cells, samples, and what all cells have in common.
    pub basis: String,
    /// The answer, what matters most first.
    pub sentences: Vec<String>,
    /// The cells with their ratios, in the order in which they were compared; twelve at most.
    pub table: Table,
    /// How many rows the table leaves out.
    pub left_out: usize,
}

impl Answer {
    /// What these runs answer, for each provenance among them: numbers of different origin are never
    /// compared. Runs without numbers are counted in the first answer.
    pub fn of(records: &[Record]) -> Vec<Self> {
        let kinds: BTreeSet<Provenance> = records.iter().map(|record| record.provenance).collect();
        let numbers = |record: &&Record| record.status == Status::Ok && record.metrics.is_some();
        let mut answers: Vec<Self> = Vec::new();
        for kind in kinds {
            let own: Vec<Record> =
                records.iter().filter(numbers).filter(|r| r.provenance == kind).cloned().collect();
            answers.extend((!own.is_empty()).then(|| Self::of_kind(&own)));
        }
        let without: Vec<&Record> = records.iter().filter(|record| !numbers(record)).collect();
        let unfinished = unfinished(&without);
        match answers.first_mut() {
            Some(first) => first.sentences.extend(unfinished),
            None => answers.extend(unfinished.map(|sentence| Self {
                basis: "no run has numbers".into(),
                sentences: vec![sentence],
                table: Table::default(),
                left_out: 0,
            })),
        }
        answers
    }

    /// The lines of a terminal: the basis, a sentence a line, the table.
    pub fn text(&self) -> String {
        let sentences = self.sentences.iter().map(|sentence| format!("  {sentence}\n"));
        let rows = match self.left_out {
            0 => String::new(),
            rows => format!("... and {rows} more rows: `ladderscope compare` has all\n"),
        };
        let table =
            if self.table.is_empty() { String::new() } else { format!("\n{}", self.table.aligned()) };
        format!("{}\n{}{table}{rows}", self.basis, sentences.collect::<String>())
    }

    fn of_kind(records: &[Record]) -> Self {
        let cells = Cells::of(records);
        let specs = || cells.specs();
        let varied = Varied::of(specs());
        let basis = basis(records, &cells, &varied);
        let axes = cells.axes();
        let has = |axis: &Axis| axes.iter().any(|count| count.axis == *axis && count.pairs > 0);
        let natural = [Axis::ARCHITECTURE, Axis::P2P].into_iter().find(has);
        let first = || axes.iter().find(|count| count.pairs > 0).map(|count| count.axis.clone());
        let Some(axis) = natural.or_else(first) else {
            return Self { basis, sentences: alone(records), table: Table::default(), left_out: 0 };
        };
        let settings = varied.without(&axis);
        let Ok(report) = cells.compare(&axis, None) else {
            return Self { basis, sentences: alone(records), table: Table::default(), left_out: 0 };
        };
        let question = Question { report: &report, settings: &settings };
        let mut sentences = question.winner();
        if axis == Axis::ARCHITECTURE {
            sentences.extend(question.hidden());
            if has(&Axis::P2P)
                && let Ok(by_p2p) = cells.compare(&Axis::P2P, None)
            {
                let settings = varied.without(&Axis::P2P);
                sentences.extend(Question { report: &by_p2p, settings: &settings }.without_p2p());
            }
        }
        sentences.extend(question.unclear());
        sentences.extend(warnings(&report.flags));
        let (table, left_out) = question.table();
        Self { basis, sentences, table, left_out }
    }
}

/// What the numbers rest on.
fn basis(records: &[Record], cells: &Cells, varied: &Varied) -> String {
    let samples: Vec<usize> = cells.samples().collect();
    let (least, most) = (samples.iter().min().copied(), samples.iter().max().copied());
    let samples = match (least, most) {
        // a prediction is the same each time
        _ if records.iter().all(|record| record.provenance == Provenance::Simulated) => String::new(),
        (Some(least), Some(most)) if least == most => format!(", {} each", counted(most, "sample")),
        (Some(least), Some(most)) => format!(", {least} to {most} samples each"),
        _ => String::new(),
    };
    let common = records.first().map(|record| varied.common(&record.spec)).unwrap_or_default();
    let provenance = records.first().map_or("", |record| record.provenance.as_str());
    format!("{provenance}: {}{samples}; {common}", counted(cells.specs().count(), "cell"))
}

/// Cells that cannot be compared with one another: what each took.
fn alone(records: &[Record]) -> Vec<String> {
    let cells = crate::table::aggregate(records);
    let took = cells.iter().filter_map(|cell| {
        let metrics = cell.metrics.as_ref()?;
        let (tpot, ci) = (metrics.tpot_ms.p50, metrics.tpot_ms_ci95);
        let ci = ci.map_or(String::new(), |[low, high]| format!(" [{low:.2}, {high:.2}]"));
        Some(format!("{} takes {tpot:.2} ms{ci} a token.", cell.spec.label()))
    });
    let mut sentences: Vec<String> = took.take(MOST_NAMED).collect();
    sentences.push(match cells.len() {
        1 => "There is one cell alone: nothing is compared.".into(),
        _ => "No two cells differ in one option alone: nothing is compared.".into(),
    });
    sentences
}

/// What has no numbers, and why.
fn unfinished(records: &[&Record]) -> Option<String> {
    let mut by: BTreeMap<Status, Vec<&Record>> = BTreeMap::new();
    records.iter().for_each(|record| by.entry(record.status).or_default().push(record));
    let part = |(status, records): (&Status, &Vec<&Record>)| {
        let count = counted(records.len(), "cell");
        let what = match status {
            Status::Oom => "would not fit in memory",
            Status::Skipped => "cannot run",
            Status::Interrupted => "did not end",
            Status::Failed => "failed",
            Status::Ok => "left no numbers",
        };
        let why = records.iter().find_map(|record| record.reason.as_deref()?.lines().next());
        let why = why.map_or(String::new(), |why| format!(" ({}: {why})", records[0].spec.label()));
        format!("{count} {what}{why}")
    };
    let parts: Vec<String> = by.iter().map(part).collect();
    (!parts.is_empty()).then(|| format!("{}.", parts.join("; ")))
}

fn warnings(flags: &[String]) -> Option<String> {
    let first = flags.first()?;
    let end = if first.ends_with(['.', '?']) { "" } else { "." };
    Some(match flags.len() {
        1 => format!("One thing looks wrong: {first}{end}"),
        more => format!("{more} things look wrong, the first: {first}{end}"),
    })
}

/// A comparison whose result is to be told.
struct Question<'a> {
    report: &'a ComparisonReport,
    /// What varies beside the axis.
    settings: &'a Varied,
}

impl Question<'_> {
    /// The pairs that are of a choice, by their setting, in the order of the comparison.
    fn choices(&self) -> Vec<(String, Vec<&Comparison>)> {
        let mut by: Vec<(String, Vec<&Comparison>)> = Vec::new();
        for pair in self.report.pairs.iter().filter(|pair| !is_limit(pair)) {
            let setting = self.settings.words(&pair.side.spec);
            match by.iter_mut().find(|(known, _)| *known == setting) {
                Some((_, pairs)) => pairs.push(pair),
                None => by.push((setting, vec![pair])),
            }
        }
        by
    }

    /// The value that is fastest in most settings, with its pairs there.
    fn best(&self) -> Option<(String, Vec<&Comparison>)> {
        let fastest = self.choices().into_iter().filter_map(|(_, pairs)| fastest(&pairs));
        let mut wins: Vec<(String, Vec<&Comparison>)> = Vec::new();
        for pair in fastest {
            match wins.iter_mut().find(|(value, _)| *value == pair.value) {
                Some((_, pairs)) => pairs.push(pair),
                None => wins.push((pair.value.clone(), vec![pair])),
            }
        }
        wins.into_iter().rev().max_by_key(|(_, pairs)| pairs.len())
    }

    /// Who is fastest, where, and by how much.
    fn winner(&self) -> Vec<String> {
        let choices = self.choices();
        let total = choices.len();
        let Some(baseline) = self.report.pairs.first().map(|pair| pair.baseline.clone()) else {
            return vec!["No cell has a baseline to be compared with.".into()];
        };
        if choices.is_empty() {
            return vec![format!("Nothing but upper-bound was compared with {baseline}.")];
        }
        let rivals: BTreeSet<&str> =
            choices.iter().flat_map(|(_, pairs)| pairs.iter().map(|pair| pair.value.as_str())).collect();
        let Some((best, pairs)) = self.best() else {
            let named: Vec<String> = rivals.iter().take(MOST_NAMED).map(ToString::to_string).collect();
            let more = rivals.len().saturating_sub(MOST_NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            return vec![format!(
                "Nothing is shown to be faster than {baseline}{}: not {}{more}.",
                if total > 1 { format!(" in any of {total} settings") } else { String::new() },
                named.join(", "),
            )];
        };
        let of = if rivals.len() > 1 {
            format!(", the fastest of {}", rivals.len() + 1)
        } else {
            String::new()
        };
        let mut sentences = vec![match (pairs.len(), total) {
            (_, 1) => format!("{best} reaches {} the tokens/s of {baseline}{of}.", times(pairs[0])),
            (1, _) => format!(
                "{best} is fastest in 1 of {total} settings: {} the tokens/s of {baseline} at {}.",
                times(pairs[0]),
                self.settings.words(&pairs[0].side.spec)
            ),
            (wins, _) => {
                let wins =
                    if wins == total { format!("all {total}") } else { format!("{wins} of {total}") };
                format!(
                    "{best} is {} in {wins} settings, {} the tokens/s of {baseline}.",
                    if rivals.len() > 1 { "fastest" } else { "faster" },
                    self.range(&pairs, |pair| Some(pair.speedup), times)
                )
            }
        }];
        // who wins elsewhere
        let elsewhere = choices.iter().filter_map(|(setting, pairs)| {
            let won = fastest(pairs).filter(|pair| pair.value == best).is_none();
            won.then(|| match fastest(pairs) {
                Some(pair) => format!("{} at {setting} ({})", pair.value, times(pair)),
                None => format!("nothing beats {baseline} at {setting}"),
            })
        });
        sentences.extend(listed(elsewhere.collect()).map(|list| format!("Elsewhere: {list}.")));
        sentences
    }

    /// How much of the communication the winner (or else the first choice) hid.
    fn hidden(&self) -> Option<String> {
        let limits = self.report.pairs.iter().filter(|pair| is_limit(pair)).count();
        if limits == 0 {
            return Some(
                "How much of the communication was hidden is not known: upper-bound was not run.".into(),
            );
        }
        let choices = self.choices();
        let value = self.best().map(|(value, _)| value).or_else(|| {
            choices.first().and_then(|(_, pairs)| pairs.first()).map(|pair| pair.value.clone())
        })?;
        let all = choices.iter().flat_map(|(_, pairs)| pairs.iter().copied());
        let pairs: Vec<&Comparison> = all.filter(|pair| pair.value == value).collect();
        let with: Vec<&Comparison> =
            pairs.iter().copied().filter(|p| p.hidden_share.is_some()).collect();
        let nothing = pairs.len() - with.len();
        let nothing = match (nothing, with.is_empty()) {
            (0, _) => String::new(),
            (_, true) => {
                return Some(
                    "There was nothing to hide: upper-bound is no faster than standard.".into(),
                );
            }
            (count, false) => {
                format!("; in {} upper-bound was not run or is no faster", counted(count, "setting"))
            }
        };
        let shares = self.range(
            &with,
            |pair| pair.hidden_share,
            |pair| {
                let share = pair.hidden_share.unwrap_or_default();
                let sure = match pair.hidden_share_ci95 {
                    Some([low, high]) => format!(" [{:.0}, {:.0}]", 100.0 * low, 100.0 * high),
                    None if pair.provenance == Provenance::Simulated => String::new(),
                    // the gap to the bound may be nothing, or there are too few samples
                    None => " (no interval)".into(),
                };
                format!("{:.0} %{sure}", 100.0 * share)
            },
        );
        Some(format!("{value} hid {shares} of the time that communication costs standard{nothing}."))
    }

    /// What is left of each architecture's throughput without P2P.
    fn without_p2p(&self) -> Vec<String> {
        let mut by: Vec<(&Architecture, Vec<&Comparison>)> = Vec::new();
        let off = |pair: &&Comparison| pair.side.spec.p2p == P2p::Off && !is_limit(pair);
        for pair in self.report.pairs.iter().filter(off) {
            let architecture = &pair.side.spec.architecture;
            match by.iter_mut().find(|(known, _)| *known == architecture) {
                Some((_, pairs)) => pairs.push(pair),
                None => by.push((architecture, vec![pair])),
            }
        }
        let faster: Vec<&Comparison> = by
            .iter()
            .flat_map(|(_, pairs)| pairs.iter().copied())
            .filter(|pair| pair.verdict() == Verdict::Faster)
            .collect();
        let settings = self.settings.without(&Axis::ARCHITECTURE);
        let kept = by.iter().map(|(architecture, pairs)| {
            let inner = Question { report: self.report, settings: &settings };
            format!("{architecture} {}", inner.range(pairs, |pair| Some(pair.speedup), times))
        });
        let kept = listed(kept.collect());
        let mut sentences: Vec<String> = kept
            .map(|list| format!("Without P2P, of the tokens/s with it: {list}."))
            .into_iter()
            .collect();
        if !faster.is_empty() {
            sentences.push(format!(
                "P2P off is faster than on in {}: ask what the two links stand for.",
                counted(faster.len(), "pair")
            ));
        }
        sentences
    }

    /// What cannot be told from chance, or is too small to matter.
    fn unclear(&self) -> Option<String> {
        let choices = self.choices();
        let pairs = || choices.iter().flat_map(|(_, pairs)| pairs.iter().copied());
        let of = |verdict: Verdict| -> Vec<String> {
            pairs().filter(|pair| pair.verdict() == verdict).map(|pair| self.named(pair)).collect()
        };
        let mut parts = Vec::new();
        let mut part = |named: Vec<String>, what: &str| {
            let count = named.len();
            parts.extend(
                listed(named)
                    .map(|list| format!("{count} of {} comparisons {what}: {list}", pairs().count())),
            );
        };
        part(of(Verdict::Chance), "cannot be told from chance");
        part(of(Verdict::Unknown), "have too few samples for an interval");
        part(of(Verdict::Same), "differ by less than half a percent");
        (!parts.is_empty()).then(|| format!("{}.", parts.join("; ")))
    }

    /// A pair by its value and, where several settings were run, its setting.
    fn named(&self, pair: &Comparison) -> String {
        match self.settings.words(&pair.side.spec) {
            setting if setting.is_empty() => pair.value.clone(),
            setting => format!("{} at {setting}", pair.value),
        }
    }

    /// One number of several pairs: that of one, of both of two, else the least and the most.
    fn range(
        &self,
        pairs: &[&Comparison],
        of: impl Fn(&Comparison) -> Option<f64>,
        words: impl Fn(&Comparison) -> String,
    ) -> String {
        let mut sorted: Vec<&Comparison> =
            pairs.iter().copied().filter(|pair| of(pair).is_some()).collect();
        sorted.sort_by(|a, b| of(a).unwrap_or(0.0).total_cmp(&of(b).unwrap_or(0.0)));
        let at = |pair: &Comparison| match self.settings.words(&pair.side.spec) {
            setting if setting.is_empty() => words(pair),
            setting => format!("{} ({setting})", words(pair)),
        };
        match sorted.as_slice() {
            [] => "an unknown part".into(),
            [only] => words(only),
            [first, second] => format!("{} and {}", at(first), at(second)),
            [first, .., last] => {
                let middle = median(&sorted.iter().filter_map(|pair| of(pair)).collect::<Vec<_>>());
                let middle = sorted.iter().min_by(|a, b| {
                    let off =
                        |pair: &Comparison| (of(pair).unwrap_or(0.0) - middle.unwrap_or(0.0)).abs();
                    off(a).total_cmp(&off(b))
                });
                let middle = middle.map_or(String::new(), |pair| format!(", typically {}", words(pair)));
                format!("{} to {}{middle}", at(first), at(last))
            }
        }
    }

    /// The cells with their ratios, the baseline of each setting first; and how many are left out.
    fn table(&self) -> (Table, usize) {
        let by = self.report.by.replace('_', " ");
        let baseline = self.report.pairs.first().map_or("", |pair| pair.baseline.as_str());
        let ratio = format!("x {baseline}'s tokens/s");
        let mut table =
            Table::new(["setting", &by, "TPOT ms", &ratio, "hidden share", "exposed %", "differs"]);
        let mut settings: Vec<String> = Vec::new();
        let (mut rows, mut left_out) = (0, 0);
        for pair in &self.report.pairs {
            let setting = self.settings.words(&pair.side.spec);
            let new = !settings.contains(&setting);
            if rows + usize::from(new) >= MOST_ROWS {
                left_out += 1 + usize::from(new);
                if new {
                    settings.push(setting);
                }
                continue;
            }
            if new {
                settings.push(setting.clone());
                table.push(vec![
                    Shown::some(&setting),
                    Shown::text(&pair.baseline),
                    Shown::interval(Some(pair.baseline_tpot_ms), pair.baseline_side.tpot_ms_ci95, 2),
                    Shown::None,
                    Shown::None,
                    Shown::number(pair.baseline_side.exposed_pct, 1),
                    Shown::None,
                ]);
                rows += 1;
            }
            let share = pair.hidden_share.filter(|_| !is_limit(pair));
            table.push(vec![
                Shown::text(""),
                Shown::text(&pair.value),
                Shown::interval(Some(pair.tpot_ms), pair.side.tpot_ms_ci95, 2),
                Shown::interval(Some(pair.speedup), pair.speedup_ci95, 2),
                Shown::interval(share, pair.hidden_share_ci95, 2),
                Shown::number(pair.side.exposed_pct, 1),
                Shown::text(if is_limit(pair) { "the limit" } else { pair.verdict().as_str() }),
            ]);
            rows += 1;
        }
        (table, left_out)
    }
}

/// Whether a pair compares the limit, which is no choice.
fn is_limit(pair: &Comparison) -> bool {
    pair.side.spec.architecture == Architecture::UpperBound
}

/// The fastest of what differs from the baseline, and is faster.
fn fastest<'a>(pairs: &[&'a Comparison]) -> Option<&'a Comparison> {
    let faster = pairs.iter().copied().filter(|pair| pair.verdict() == Verdict::Faster);
    faster.max_by(|a, b| a.speedup.total_cmp(&b.speedup))
}

/// `1.16x [1.09, 1.18]`
fn times(pair: &Comparison) -> String {
    let ci = pair.speedup_ci95.map_or(String::new(), |[low, high]| format!(" [{low:.2}, {high:.2}]"));
    format!("{:.2}x{ci}", pair.speedup)
}

/// The first few, separated by commas, and how many more; `None` of none.
fn listed(mut parts: Vec<String>) -> Option<String> {
    let more = parts.len().saturating_sub(MOST_NAMED);
    parts.truncate(MOST_NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!parts.is_empty()).then(|| format!("{}{more}", parts.join(", ")))
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
