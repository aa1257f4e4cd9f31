use std::collections::BTreeSet;

use crate::analysis::{
    Axis, Comparison, ComparisonReport, LEAST_DIFFERENCE, TOO_CLOSE, Varied, Verdict, beaten_limit,
    is_too_close, less_work,
};
use base::statistics::median;
use base::text::counted;
use table::render::{Shown, Table};
use table::{P2p, Provenance};

/// Maximum rows of the table; the sentences cover all pairs.
const MOST_ROWS: usize = 12;

/// Maximum items that a sentence names; it counts the rest.
pub(super) const MOST_NAMED: usize = 3;

/// Maximum architectures in the sentence about P2P; experiments ask about few.
const MOST_KEPT: usize = 6;

/// Columns that a narrow window drops, last one first.
const LEAST: [&str; 3] = ["exposed %", "verdict", "TPOT ms"];

pub(super) struct Question<'a> {
    pub axis: &'a Axis,
    pub report: &'a ComparisonReport,
    /// Options that vary besides the axis.
    pub settings: &'a Varied,
}

impl Question<'_> {
    /// Label of the compared cell on the axis: `ladder`, `tp8`, `NCCL_ALGO=Ring`.
    fn value(&self, pair: &Comparison) -> String {
        self.axis.label(&pair.side.spec)
    }

    pub fn baseline(&self, pair: &Comparison) -> String {
        self.axis.label(&pair.baseline_side.spec)
    }

    /// Pairs without limits (`upper-bound`), grouped by setting, in the order of the comparison.
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

    /// Value that is fastest in most settings, ties included, with its winning pairs.
    pub fn fastest(&self) -> Option<(String, Vec<&Comparison>)> {
        self.most(self.choices().into_iter().filter_map(|(_, pairs)| fastest(&pairs).first().copied()))
    }

    /// Most frequent value among the pairs, with these pairs; the first of several.
    fn most<'a>(
        &self,
        pairs: impl Iterator<Item = &'a Comparison>,
    ) -> Option<(String, Vec<&'a Comparison>)> {
        let mut wins: Vec<(String, Vec<&Comparison>)> = Vec::new();
        for pair in pairs {
            let value = self.value(pair);
            match wins.iter_mut().find(|(known, _)| *known == value) {
                Some((_, pairs)) => pairs.push(pair),
                None => wins.push((value, vec![pair])),
            }
        }
        wins.into_iter().rev().max_by_key(|(_, pairs)| pairs.len())
    }

    /// Names the fastest value, its settings and its speedup.
    pub fn winner(&self) -> Vec<String> {
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
        let fastest: Vec<(&String, Vec<&Comparison>)> =
            choices.iter().map(|(setting, pairs)| (setting, fastest(pairs))).collect();
        let tied = self.tied(&fastest, &baseline);
        let winners = fastest.iter().filter_map(|(_, fastest)| match fastest[..] {
            [winner] => Some(winner),
            _ => None,
        });
        let Some((best, pairs)) = self.most(winners) else {
            if let Some(tied) = tied {
                return vec![tied];
            }
            let anywhere =
                if total > 1 { format!(" in any of {total} settings") } else { String::new() };
            let mut sentences = vec![format!(
                "Nothing is shown to be faster than {baseline}{anywhere}; compared with it: {}.",
                listed(rivals.iter().cloned().collect()).unwrap_or_default()
            )];
            for rival in rivals.iter().take(MOST_NAMED) {
                let slower =
                    |pair: &&Comparison| pair.verdict == Verdict::Slower && self.value(pair) == *rival;
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
        let elsewhere = fastest.iter().filter_map(|(setting, fastest)| match fastest[..] {
            [] => Some(format!("nothing beats {baseline} at {setting}")),
            [pair] if self.value(pair) != best => {
                Some(format!("{} at {setting} ({})", self.value(pair), times(pair)))
            }
            _ => None,
        });
        sentences.extend(listed(elsewhere.collect()).map(|list| format!("Elsewhere: {list}.")));
        sentences.extend(tied);
        sentences
    }

    /// Settings whose fastest simulations differ by less than the simulator's error.
    fn tied(&self, fastest: &[(&String, Vec<&Comparison>)], baseline: &str) -> Option<String> {
        let tied: Vec<_> = fastest.iter().filter(|(_, fastest)| fastest.len() > 1).collect();
        let names = |pairs: &[&Comparison]| {
            let named = pairs.iter().map(|pair| format!("{} {}", self.value(pair), times(pair)));
            named.collect::<Vec<_>>().join(", ")
        };
        match &tied[..] {
            [] => None,
            [(_, pairs)] if fastest.len() == 1 => Some(format!(
                "The fastest are {TOO_CLOSE}: {} the tokens/s of {baseline}.",
                names(pairs)
            )),
            _ => {
                let settings = tied.iter().take(MOST_NAMED);
                let mut settings: Vec<String> =
                    settings.map(|(setting, pairs)| format!("{setting} ({})", names(pairs))).collect();
                let more = tied.len().saturating_sub(MOST_NAMED);
                settings.extend((more > 0).then(|| format!("and {more} more")));
                Some(format!(
                    "The fastest are {TOO_CLOSE} in {} of {} settings: {}.",
                    tied.len(),
                    fastest.len(),
                    settings.join("; ")
                ))
            }
        }
    }

    /// Share of communication that the winner (or else the first choice) hid.
    pub fn hidden(&self) -> Option<String> {
        let limits =
            self.report.pairs.iter().filter(|pair| pair.side.spec.architecture.is_limit()).count();
        if limits == 0 {
            return Some(
                "How much of the communication was hidden is not known: upper-bound was not run.".into(),
            );
        }
        let choices = self.choices();
        let value = self.fastest().map(|(value, _)| value).or_else(|| {
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
                    // the gap to upper-bound may be zero, or there are too few samples
                    None => " (no interval)".into(),
                };
                format!("{:.0} %{sure}", 100.0 * share)
            },
        );
        let beyond = with.iter().filter(|pair| pair.hidden_share.is_some_and(|share| share >= 1.005));
        // an architecture with less work than upper-bound can be faster
        let is_noise = |pair: &&Comparison| {
            pair.provenance != Provenance::Simulated && less_work(&pair.side.spec).is_none()
        };
        let beyond = match beyond.copied().any(|pair| is_noise(&pair)) {
            true => {
                format!("; more than 100 % is noise: {value} and upper-bound cannot be told apart there")
            }
            false => String::new(),
        };
        let of = "of the time that communication costs standard (the hidden share)";
        Some(format!("{value} won back {shares} {of}{nothing}{beyond}."))
    }

    pub fn beaten_limit(&self) -> Option<String> {
        beaten_limit(self.report, |pair| self.settings.words(&pair.side.spec))
    }

    /// Throughput without P2P relative to P2P, by architecture.
    pub fn without_p2p(&self) -> Vec<String> {
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
            .filter(|pair| pair.verdict == Verdict::Faster)
            .collect();
        let most = |pairs: &[&Comparison]| pairs.iter().map(|pair| pair.speedup).fold(0.0, f64::max);
        by.sort_by(|(_, a), (_, b)| most(b).total_cmp(&most(a)));
        let settings = self.settings.without(&Axis::ARCHITECTURE);
        let kept = by.iter().map(|(architecture, pairs)| {
            let inner = Question { settings: &settings, ..*self };
            format!("{architecture} {}", inner.range(pairs, |pair| Some(pair.speedup), times))
        });
        let kept = listed_up_to(MOST_KEPT, kept.collect());
        let mut sentences: Vec<String> = kept
            .map(|list| match faster.is_empty() {
                true => format!("Without P2P each keeps a part of its tokens/s: {list}."),
                false => format!("Without P2P the tokens/s are these times those with it: {list}."),
            })
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

    /// Comparisons that are not significant, or too small to matter.
    pub fn unclear(&self) -> Option<String> {
        let choices = self.choices();
        let pairs = || choices.iter().flat_map(|(_, pairs)| pairs.iter().copied());
        let of = |verdict: Verdict| -> Vec<String> {
            pairs().filter(|pair| pair.verdict == verdict).map(|pair| self.named(pair)).collect()
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
        part(of(Verdict::TooClose), &format!("are {TOO_CLOSE}"));
        (!parts.is_empty()).then(|| format!("{}.", parts.join("; ")))
    }

    pub fn named(&self, pair: &Comparison) -> String {
        match self.settings.words(&pair.side.spec) {
            setting if setting.is_empty() => self.value(pair),
            setting => format!("{} at {setting}", self.value(pair)),
        }
    }

    /// Range of one number over several pairs: all values of up to two pairs, else minimum, maximum and
    /// median.
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
                // omit a median that equals one of the ends
                let middle = middle
                    .map(|pair| words(pair))
                    .filter(|middle| *middle != words(first) && *middle != words(last))
                    .map_or(String::new(), |middle| format!(", typically {middle}"));
                format!("{} to {}{middle}", at(first), at(last))
            }
        }
    }

    /// Table of the cells with their ratios, the baseline of each setting first; and the number of omitted
    /// rows.
    pub fn table(&self) -> (Table, usize) {
        let by = self.report.by.replace('_', " ");
        let baseline = self.report.pairs.first().map(|pair| self.baseline(pair)).unwrap_or_default();
        let ratio = format!("x {baseline}'s tokens/s");
        let titles = ["setting", &by, "TPOT ms", &ratio, "hidden share", "exposed %", "verdict"];
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
                    pair.verdict.as_str()
                }),
            ]);
            rows += 1;
        }
        (table, left_out)
    }
}

/// Fastest of the pairs that beat the baseline, best first, with the simulations that tie with it.
fn fastest<'a>(pairs: &[&'a Comparison]) -> Vec<&'a Comparison> {
    let mut faster: Vec<&Comparison> =
        pairs.iter().copied().filter(|pair| pair.verdict == Verdict::Faster).collect();
    faster.sort_by(|a, b| b.speedup.total_cmp(&a.speedup));
    let Some(best) = faster.first().copied() else { return faster };
    let is_tied = |pair: &Comparison| {
        let simulated = best.is_simulated() && pair.is_simulated();
        std::ptr::eq(pair, best) || (simulated && is_too_close(best.speedup / pair.speedup))
    };
    faster.retain(|pair| is_tied(pair));
    faster
}

/// Speedup in tokens/s with its 95 % interval, if there is one: `1.16x [1.09, 1.18]`.
fn times(pair: &Comparison) -> String {
    let ci = pair.speedup_ci95.map_or(String::new(), |[low, high]| format!(" [{low:.2}, {high:.2}]"));
    format!("{:.2}x{ci}", pair.speedup)
}

fn listed(parts: Vec<String>) -> Option<String> {
    listed_up_to(MOST_NAMED, parts)
}

/// First `most` parts, separated by commas, and how many more; `None` if empty.
fn listed_up_to(most: usize, mut parts: Vec<String>) -> Option<String> {
    let more = parts.len().saturating_sub(most);
    parts.truncate(most);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    (!parts.is_empty()).then(|| format!("{}{more}", parts.join(", ")))
}
