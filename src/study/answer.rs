//! What a set of runs answers, in sentences and a small table: who wins, by how much, how much of the
//! communication was hidden, what P2P changed, what cannot be told from chance and what could not run.
//!
//! The sentences are made by rules over comparisons, so that they are the same wherever they stand: where a
//! sweep ends, beside a stored experiment, at the head of the report. `upper-bound` is a limit and no choice:
//! it never wins.

use std::collections::{BTreeMap, BTreeSet};

use super::analysis::{
    Axis, Cells, Comparison, ComparisonReport, Flag, LEAST_DIFFERENCE, Varied, Verdict,
};
use crate::base::statistics::median;
use crate::base::text::counted;
use crate::table::render::{Shown, Table};
use crate::table::{P2p, Provenance, Record, Status, host};

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

/// Titles of columns of the table that a narrow window does without, the first to go last.
const LEAST: [&str; 3] = ["exposed %", "differs", "TPOT ms"];

impl Answer {
    /// What these runs answer, for each provenance and machine among them: numbers of different origin are
    /// never compared. Runs without numbers are counted in the first answer.
    pub fn of(records: Vec<Record>) -> Vec<Self> {
        let numbers = |record: &Record| record.status == Status::Ok && record.metrics.is_some();
        let (with, without): (Vec<Record>, Vec<Record>) = records.into_iter().partition(numbers);
        let mut origins: BTreeMap<(Provenance, Option<String>), Vec<Record>> = BTreeMap::new();
        for record in with {
            origins.entry((record.provenance, host(&record))).or_default().push(record);
        }
        let several = origins.len() > 1;
        let of = |((_, host), records): (&(Provenance, Option<String>), &Vec<Record>)| {
            Self::of_origin(records, host.as_deref().filter(|_| several))
        };
        let mut answers: Vec<Self> = origins.iter().map(of).collect();
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

    /// What runs of one provenance and machine answer; the machine's name, where there are several.
    fn of_origin(records: &[Record], host: Option<&str>) -> Self {
        let cells = Cells::of(records);
        let specs = || cells.specs();
        let varied = Varied::of(specs());
        let mut basis = basis(records, &cells, &varied);
        basis.extend(host.map(|host| format!(" on {host}")));
        let axes = cells.axes();
        let has = |axis: &Axis| axes.iter().any(|count| count.axis == *axis && count.pairs > 0);
        let natural = [Axis::ARCHITECTURE, Axis::P2P].into_iter().find(has);
        let first = || axes.iter().find(|count| count.pairs > 0).map(|count| count.axis.clone());
        let compared = natural.or_else(first).and_then(|axis| {
            let report = cells.compare(&axis, None).ok()?;
            Some((axis, report))
        });
        let Some((axis, report)) = compared else {
            return Self { basis, sentences: alone(records), table: Table::default(), left_out: 0 };
        };
        let settings = varied.without(&axis);
        let question = Question { axis: &axis, report: &report, settings: &settings };
        let mut sentences = question.winner();
        if axis == Axis::ARCHITECTURE {
            if has(&Axis::P2P)
                && let Ok(by_p2p) = cells.compare(&Axis::P2P, None)
            {
                let settings = varied.without(&Axis::P2P);
                sentences.extend(
                    Question { axis: &Axis::P2P, report: &by_p2p, settings: &settings }.without_p2p(),
                );
            }
            sentences.extend(question.hidden());
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
    // a prediction is of a machine, also where that is the usual one
    let machine = records.first().filter(|record| {
        let (hardware, stack) = (&record.spec.hardware, &record.spec.stack);
        record.provenance == Provenance::Simulated
            && !common.contains(hardware.as_str())
            && cells.specs().all(|spec| spec.hardware == *hardware && spec.stack == *stack)
    });
    let machine = machine.map_or(String::new(), |record| {
        format!(", predicted for {} with the stack {}", record.spec.hardware, record.spec.stack)
    });
    format!("{provenance}: {}{samples}; {common}{machine}", counted(cells.specs().count(), "cell"))
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
fn unfinished(records: &[Record]) -> Option<String> {
    let mut by: BTreeMap<Status, Vec<&Record>> = BTreeMap::new();
    records.iter().for_each(|record| by.entry(record.status).or_default().push(record));
    let part = |(status, records): (&Status, &Vec<&Record>)| {
        let count = counted(records.len(), "cell");
        let what = match status {
            Status::Oom => "would not fit in memory",
            Status::Skipped => "cannot run",
            Status::Interrupted => "did not end",
            Status::Running => "still running",
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

fn warnings(flags: &[Flag]) -> Option<String> {
    let first = &flags.first()?.text;
    let end = if first.ends_with(['.', '?']) { "" } else { "." };
    Some(match flags.len() {
        1 => format!("One thing looks wrong: {first}{end}"),
        more => format!("{more} things look wrong, the first: {first}{end}"),
    })
}

/// A comparison whose result is to be told.
struct Question<'a> {
    axis: &'a Axis,
    report: &'a ComparisonReport,
    /// What varies beside the axis.
    settings: &'a Varied,
}

impl Question<'_> {
    /// What was compared, by its value on the axis: `ladder`, `tp8`, `NCCL_ALGO=Ring`.
    fn value(&self, pair: &Comparison) -> String {
        self.axis.label(&pair.side.spec)
    }

    /// What it was compared with.
    fn baseline(&self, pair: &Comparison) -> String {
        self.axis.label(&pair.baseline_side.spec)
    }

    /// The pairs that are of a choice, by their setting, in the order of the comparison.
    fn choices(&self) -> Vec<(String, Vec<&Comparison>)> {
        let mut by: Vec<(String, Vec<&Comparison>)> = Vec::new();
        for pair in self.report.pairs.iter().filter(|pair| !pair.side.spec.architecture.is_limit()) {
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
            let value = self.value(pair);
            match wins.iter_mut().find(|(known, _)| *known == value) {
                Some((_, pairs)) => pairs.push(pair),
                None => wins.push((value, vec![pair])),
            }
        }
        wins.into_iter().rev().max_by_key(|(_, pairs)| pairs.len())
    }

    /// Who is fastest, where, and by how much.
    fn winner(&self) -> Vec<String> {
        let choices = self.choices();
        let total = choices.len();
        let Some(baseline) = self.report.pairs.first().map(|pair| self.baseline(pair)) else {
            return vec!["No cell has a baseline to be compared with.".into()];
        };
        if choices.is_empty() {
            return vec![format!("Nothing but upper-bound was compared with {baseline}.")];
        }
        let all: Vec<&Comparison> =
            choices.iter().flat_map(|(_, pairs)| pairs.iter().copied()).collect();
        let rivals: BTreeSet<String> = all.iter().map(|pair| self.value(pair)).collect();
        let Some((best, pairs)) = self.best() else {
            let anywhere =
                if total > 1 { format!(" in any of {total} settings") } else { String::new() };
            let mut sentences = vec![format!(
                "Nothing is shown to be faster than {baseline}{anywhere}; compared with it: {}.",
                listed(rivals.iter().cloned().collect()).unwrap_or_default()
            )];
            // what is shown to be slower, and by how much
            for rival in rivals.iter().take(MOST_NAMED) {
                let slower =
                    |pair: &&Comparison| pair.verdict() == Verdict::Slower && self.value(pair) == *rival;
                let slower: Vec<&Comparison> = all.iter().copied().filter(slower).collect();
                if !slower.is_empty() {
                    let range = self.range(&slower, |pair| Some(pair.speedup), times);
                    sentences.push(format!("{rival} is slower: {range} the tokens/s of {baseline}."));
                }
            }
            return sentences;
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
                let wins = match wins {
                    2 if total == 2 => "both".into(),
                    _ if wins == total => format!("all {total}"),
                    _ => format!("{wins} of {total}"),
                };
                format!(
                    "{best} is {} in {wins} settings, {} the tokens/s of {baseline}.",
                    if rivals.len() > 1 { "fastest" } else { "faster" },
                    self.range(&pairs, |pair| Some(pair.speedup), times)
                )
            }
        }];
        // who wins elsewhere
        let elsewhere = choices.iter().filter_map(|(setting, pairs)| match fastest(pairs) {
            Some(pair) if self.value(pair) == best => None,
            Some(pair) => Some(format!("{} at {setting} ({})", self.value(pair), times(pair))),
            None => Some(format!("nothing beats {baseline} at {setting}")),
        });
        sentences.extend(listed(elsewhere.collect()).map(|list| format!("Elsewhere: {list}.")));
        sentences
    }

    /// How much of the communication the winner (or else the first choice) hid.
    fn hidden(&self) -> Option<String> {
        let limits =
            self.report.pairs.iter().filter(|pair| pair.side.spec.architecture.is_limit()).count();
        if limits == 0 {
            return Some(
                "How much of the communication was hidden is not known: upper-bound was not run.".into(),
            );
        }
        let choices = self.choices();
        let value = self.best().map(|(value, _)| value).or_else(|| {
            choices.first().and_then(|(_, pairs)| pairs.first()).map(|pair| self.value(pair))
        })?;
        let all = choices.iter().flat_map(|(_, pairs)| pairs.iter().copied());
        let pairs: Vec<&Comparison> = all.filter(|pair| self.value(pair) == value).collect();
        let with: Vec<&Comparison> =
            pairs.iter().copied().filter(|p| p.hidden_share.is_some()).collect();
        let nothing = pairs.len() - with.len();
        let nothing = match (nothing, with.is_empty()) {
            (0, _) => String::new(),
            (_, true) => {
                return Some(
                    "How much was hidden is not known: where upper-bound was run it is no faster than standard."
                        .into(),
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
        let of = "of the time that communication costs standard (the hidden share)";
        Some(format!("{value} won back {shares} {of}{nothing}."))
    }

    /// What is left of each architecture's throughput without P2P.
    fn without_p2p(&self) -> Vec<String> {
        let mut by: Vec<(String, Vec<&Comparison>)> = Vec::new();
        let off = |pair: &&Comparison| {
            pair.side.spec.p2p == P2p::Off && !pair.side.spec.architecture.is_limit()
        };
        for pair in self.report.pairs.iter().filter(off) {
            let architecture = pair.side.spec.architecture_label();
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
        // who keeps most stands first
        let most = |pairs: &[&Comparison]| pairs.iter().map(|pair| pair.speedup).fold(0.0, f64::max);
        by.sort_by(|(_, a), (_, b)| most(b).total_cmp(&most(a)));
        let settings = self.settings.without(&Axis::ARCHITECTURE);
        let kept = by.iter().map(|(architecture, pairs)| {
            let inner = Question { settings: &settings, ..*self };
            format!("{architecture} {}", inner.range(pairs, |pair| Some(pair.speedup), times))
        });
        let kept = listed(kept.collect());
        let mut sentences: Vec<String> = kept
            .map(|list| format!("Without P2P each keeps a part of its tokens/s: {list}."))
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
        let least = format!("differ by less than {} %", 100.0 * LEAST_DIFFERENCE);
        part(of(Verdict::Same), &least);
        (!parts.is_empty()).then(|| format!("{}.", parts.join("; ")))
    }

    /// A pair by its value and, where several settings were run, its setting.
    fn named(&self, pair: &Comparison) -> String {
        match self.settings.words(&pair.side.spec) {
            setting if setting.is_empty() => self.value(pair),
            setting => format!("{} at {setting}", self.value(pair)),
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
                // the middle of what is all alike says nothing
                let middle = middle
                    .map(|pair| words(pair))
                    .filter(|middle| *middle != words(first) && *middle != words(last))
                    .map_or(String::new(), |middle| format!(", typically {middle}"));
                format!("{} to {}{middle}", at(first), at(last))
            }
        }
    }

    /// The cells with their ratios, the baseline of each setting first; and how many are left out.
    fn table(&self) -> (Table, usize) {
        let by = self.report.by.replace('_', " ");
        let baseline = self.report.pairs.first().map(|pair| self.baseline(pair)).unwrap_or_default();
        let ratio = format!("x {baseline}'s tokens/s");
        let titles = ["setting", &by, "TPOT ms", &ratio, "hidden share", "exposed %", "differs"];
        let mut table = Table::new(titles).least(&LEAST);
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
                    Shown::text(self.baseline(pair)),
                    Shown::interval(Some(pair.baseline_tpot_ms), pair.baseline_side.tpot_ms_ci95, 2),
                    Shown::None,
                    Shown::None,
                    Shown::number(pair.baseline_side.exposed_pct, 1),
                    Shown::None,
                ]);
                rows += 1;
            }
            let share = pair.hidden_share.filter(|_| !pair.side.spec.architecture.is_limit());
            table.push(vec![
                Shown::text(""),
                Shown::text(self.value(pair)),
                Shown::interval(Some(pair.tpot_ms), pair.side.tpot_ms_ci95, 2),
                Shown::interval(Some(pair.speedup), pair.speedup_ci95, 2),
                Shown::interval(share, pair.hidden_share_ci95, 2),
                Shown::number(pair.side.exposed_pct, 1),
                Shown::text(if pair.side.spec.architecture.is_limit() {
                    "the limit"
                } else {
                    pair.verdict().as_str()
                }),
            ]);
            rows += 1;
        }
        (table, left_out)
    }
}

/// The fastest of what differs from the baseline, and is faster.
fn fastest<'a>(pairs: &[&'a Comparison]) -> Option<&'a Comparison> {
    let faster = pairs.iter().copied().filter(|pair| pair.verdict() == Verdict::Faster);
    faster.max_by(|a, b| a.speedup.total_cmp(&b.speedup))
}

/// A pair's speed-up in tokens/s for a sentence, with its 95 % interval where there is
/// one: `1.16x [1.09, 1.18]`.
fn times(pair: &Comparison) -> String {
    let ci = pair.speedup_ci95.map_or(String::new(), |[low, high]| format!(" [{low:.2}, {high:.2}]"));
    format!("{:.2}x{ci}", pair.speedup)
}

/// The first few, separated by commas, and how many more; `None` of none.
fn listed(mut parts: Vec<String>) -> Option<String> {
    let more = parts.len().saturating_sub(MOST_NAMED);
    parts.truncate(MOST_NAMED);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    (!parts.is_empty()).then(|| format!("{}{more}", parts.join(", ")))
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
