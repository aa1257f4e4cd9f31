//! Headline of an answer: who wins, by how much and where.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::{Question, Winner, listed, setting_phrase, share_of_settings, spread, times};
use crate::analysis::{Axis, Comparison, ComparisonReport, PairVerdict, Varied, fastest, inconclusive};
use base::statistics::{distinct, median};
use base::text::{capitalized, counted};
use table::Provenance;

/// Headline of a comparison: who wins, by how much and where; `settings` vary besides the axis.
fn headline(axis: &Axis, report: &ComparisonReport, settings: &Varied) -> String {
    Question::new(axis, report, settings).headline()
}

/// Headlines of all pairs of a report, one per provenance.
pub fn headlines_of_all(axis: &Axis, report: &ComparisonReport) -> String {
    let pairs: Vec<&Comparison> = report.pairs.iter().collect();
    let specs = pairs.iter().flat_map(|pair| [&pair.baseline_side.spec, &pair.side.spec]);
    let settings = Varied::of(specs.clone()).without(axis).model_last(specs);
    headlines(axis, report, &pairs, &settings)
}

/// Headlines of these pairs of a report, one per provenance; `settings` vary besides the axis.
pub fn headlines(
    axis: &Axis,
    report: &ComparisonReport,
    pairs: &[&Comparison],
    settings: &Varied,
) -> String {
    let mut by: BTreeMap<Provenance, Vec<Comparison>> = BTreeMap::new();
    for pair in pairs {
        by.entry(pair.provenance).or_default().push((*pair).clone());
    }
    let several = by.len() > 1;
    let headlines = by.into_iter().map(|(provenance, pairs)| {
        let text = headline(axis, &report.of_pairs(pairs), settings);
        if several { format!("{provenance}: {text}") } else { text }
    });
    headlines.collect::<Vec<_>>().join("; ")
}

impl Question<'_> {
    /// Headline: the winner, its lead and the settings.
    pub fn headline(&self) -> String {
        let choices = self.choices();
        let Some(baseline) = self.report.pairs.first().map(|pair| self.baseline(pair)) else {
            return "No cell has a baseline to be compared with.".into();
        };
        if choices.is_empty() {
            return format!("Only upper-bound was compared with {baseline}.");
        }
        if let Some(why) = inconclusive(self.report) {
            return format!("Inconclusive, run again on an idle machine: {why}");
        }
        let text = match self.winner() {
            Some(winner) if choices.len() == 1 => {
                self.headline_of_one(&winner, &choices[0].1, &baseline)
            }
            Some(winner) => self.headline_of_many(&winner, &choices, &baseline),
            None => self.headline_without_winner(&choices, &baseline),
        };
        match *self.axis == Axis::ARCHITECTURE {
            true => capitalized(&text),
            false => text,
        }
    }

    fn headline_of_one(&self, winner: &Winner<'_>, pairs: &[&Comparison], baseline: &str) -> String {
        let fastest = fastest(pairs);
        let at = setting_phrase(winner.pairs[0], self.axis);
        if fastest.len() > 1 {
            let named = fastest.iter().map(|pair| format!("{} {}", self.value(pair), times(pair)));
            let named: Vec<String> = named.collect();
            return format!("too close to call at {at}: {}{}", named.join(", "), self.unit_of(baseline));
        }
        let hidden = winner.pairs[0].overlap_pct.filter(|pct| *pct >= 0.5);
        let closed = winner.pairs[0].hidden_share.filter(|share| *share < 1.005);
        let effect = match (hidden, closed) {
            (Some(pct), _) => format!("; hides {pct:.0} % of its communication"),
            (None, Some(share)) => format!("; closes {:.0} % of the gap to upper-bound", 100.0 * share),
            (None, None) => String::new(),
        };
        let published = winner.pairs[0].published_speedup;
        let published = published.map_or_else(String::new, |of| format!(" ({})", of.of_ratio()));
        let speedup = times(winner.pairs[0]) + &published;
        let (next, unit) = (self.over_next(winner, std::slice::from_ref(&pairs)), self.unit());
        let winner = self.with_twins(&winner.value);
        format!("{winner} is {speedup} faster than {baseline} in {unit} at {at}{next}{effect}")
    }

    fn headline_of_many(
        &self,
        winner: &Winner<'_>,
        choices: &[(String, Vec<&Comparison>)],
        baseline: &str,
    ) -> String {
        let rivals = choices.iter().flat_map(|(_, pairs)| pairs).map(|pair| self.value(pair));
        let several = rivals.collect::<BTreeSet<String>>().len() > 1;
        let adjective = if several { "fastest".to_owned() } else { format!("faster than {baseline}") };
        let settings = |wins: usize| share_of_settings(wins, choices.len());
        let alone = winner.pairs.len() - winner.tied;
        let within = self.within();
        let ahead = self.ahead(winner, choices);
        // the range below is of the settings that it leads
        let own = || {
            let all = choices.iter().flat_map(|(_, pairs)| pairs.iter().copied());
            all.filter(|pair| self.value(pair) == winner.value)
        };
        let mut level = match own().filter(|pair| pair.verdict.is_tie()).count() {
            0 => String::new(),
            level => format!(", level with {baseline} in {level}"),
        };
        let undecided: Vec<&Comparison> = own().filter(|pair| pair.verdict.is_undecided()).collect();
        level += &match undecided[..] {
            [] => String::new(),
            [only] => format!(", undecided in 1 ({}: {})", self.setting(only), times(only)),
            _ => format!(", undecided in {}", undecided.len()),
        };
        let wins = match (alone, winner.tied) {
            (alone, 0) => format!("is {adjective} in {}{level}", settings(alone)),
            (0, tied) => format!("ties for {adjective}{within} in {}{ahead}{level}", settings(tied)),
            (alone, tied) => {
                let alone = settings(alone);
                format!("is {adjective} in {alone}, tied for it{within} in {tied}{ahead}{level}")
            }
        };
        let of_baseline = if several { self.unit_of(baseline) } else { format!(" its {}", self.unit()) };
        let speedups = match &winner.pairs[..] {
            [] | [_] | [_, _] => {
                let each = self.range(&winner.pairs, |pair| Some(pair.speedup), times);
                let at = match &winner.pairs[..] {
                    [only] => format!(" ({})", self.setting(only)),
                    _ => String::new(),
                };
                format!("{each}{of_baseline}{at}")
            }
            pairs => {
                let speedups: Vec<f64> = pairs.iter().map(|pair| pair.speedup).collect();
                let best = pairs.iter().max_by(|a, b| a.speedup.total_cmp(&b.speedup));
                let at = best.map_or(String::new(), |best| self.setting(best));
                let published = best.and_then(|best| best.published_speedup);
                let published =
                    published.map_or_else(String::new, |value| format!(": {}", value.of_ratio()));
                let median = median(&speedups).unwrap_or_default();
                let range = spread(&speedups);
                format!("{range}{of_baseline} (median {median:.2}x; most at {at}{published})")
            }
        };
        let pairs: Vec<&[&Comparison]> = choices.iter().map(|(_, pairs)| pairs.as_slice()).collect();
        let next = self.over_next(winner, &pairs);
        format!("{} {wins}: {speedups}{next}", self.with_twins(&winner.value))
    }

    /// Measure that the ratios compare: tokens/s, or the speed of the first token if no cell decodes.
    fn unit(&self) -> &'static str {
        if self.report.latency() == "TPOT" { "tokens/s" } else { "speed to the first token" }
    }

    fn unit_of(&self, baseline: &str) -> String {
        format!(" {baseline}'s {}", self.unit())
    }

    /// Lead of the winner over the next choice where it leads alone: `; 1.07x the runner-up, parallel`. Empty without
    /// another choice.
    fn over_next(&self, winner: &Winner<'_>, settings: &[&[&Comparison]]) -> String {
        let mut by: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for pairs in settings {
            let best = match fastest(pairs)[..] {
                [best] if self.value(best) == winner.value => best,
                _ => continue,
            };
            let others = pairs.iter().filter(|pair| !std::ptr::eq(**pair, best));
            if let Some(next) = others.max_by(|a, b| a.speedup.total_cmp(&b.speedup)) {
                by.entry(self.value(next)).or_default().push(best.speedup / next.speedup);
            }
        }
        let next = by.into_iter().max_by_key(|(_, ratios)| ratios.len());
        let Some((next, ratio, count)) =
            next.and_then(|(next, ratios)| Some((next, median(&ratios)?, ratios.len())))
        else {
            return String::new();
        };
        let median_note = if count > 1 { " (median)" } else { "" };
        // its lead is only known where it wins alone
        let where_alone = if count < settings.len() { "where fastest, " } else { "" };
        format!("; {where_alone}{ratio:.2}x the runner-up, {next}{median_note}")
    }

    /// Values with more tokens/s than the winner where it ties, with their numbers of settings: ` (parallel ahead
    /// in 4)`.
    fn ahead(&self, winner: &Winner<'_>, choices: &[(String, Vec<&Comparison>)]) -> String {
        let mut ahead: Vec<(String, usize)> = Vec::new();
        for (_, pairs) in choices {
            let fastest: Vec<String> = fastest(pairs).iter().map(|pair| self.value(pair)).collect();
            let Some(value) = fastest.first().filter(|first| **first != winner.value) else { continue };
            if !fastest.contains(&winner.value) {
                continue;
            }
            match ahead.iter_mut().find(|(known, _)| known == value) {
                Some((_, settings)) => *settings += 1,
                None => ahead.push((value.clone(), 1)),
            }
        }
        ahead.sort_by_key(|(_, settings)| Reverse(*settings));
        let named = ahead.iter().map(|(value, settings)| format!("{value} ahead in {settings}"));
        listed(named.collect()).map_or(String::new(), |list| format!(" ({list})"))
    }

    fn headline_without_winner(&self, choices: &[(String, Vec<&Comparison>)], baseline: &str) -> String {
        let pairs = || choices.iter().flat_map(|(_, pairs)| pairs.iter().copied());
        let rivals = distinct(pairs().map(|pair| self.value(pair)));
        let slower = rivals.iter().filter_map(|rival| {
            let is_slower =
                |pair: &&Comparison| pair.verdict == PairVerdict::Slower && self.value(pair) == *rival;
            let slower: Vec<&Comparison> = pairs().filter(is_slower).collect();
            let range = self.range(&slower, |pair| Some(pair.speedup), times);
            (!slower.is_empty()).then(|| format!("{rival} {range}"))
        });
        let slower: Vec<String> = slower.collect();
        let ratios = || {
            rivals.iter().map(|rival| {
                let own: Vec<&Comparison> = pairs().filter(|pair| self.value(pair) == *rival).collect();
                let speedups: Vec<f64> = own.iter().map(|pair| pair.speedup).collect();
                match speedups.len() {
                    ..3 => format!("{rival} {}", self.range(&own, |pair| Some(pair.speedup), times)),
                    _ => format!("{rival} {}", spread(&speedups)),
                }
            })
        };
        if pairs().all(|pair| pair.verdict == PairVerdict::Unknown) {
            let rounds = pairs().flat_map(|pair| [pair.baseline_side.rounds, pair.side.rounds]).min();
            return format!(
                "too early to say after {}: {}{} so far",
                counted(rounds.unwrap_or_default(), "round"),
                listed(ratios().collect()).unwrap_or_default(),
                self.unit_of(baseline)
            );
        }
        let limits: BTreeSet<String> = self.report.pairs.iter().map(|pair| self.setting(pair)).collect();
        let several = match (choices.len(), limits.len().saturating_sub(choices.len())) {
            (1, _) => String::new(),
            (settings, 0) => format!(" in any of {settings} settings"),
            // with the axis of P2P or TP, upper-bound has settings of its own
            (settings, limits) => {
                format!(" in any of {settings} settings (besides {limits} of upper-bound)")
            }
        };
        match listed(slower) {
            Some(slower) => {
                format!("nothing is faster than {baseline}{several}: {slower} its {}", self.unit())
            }
            None => match self.report.band() {
                Some(band) => format!(
                    "no clear difference{several} ({}): {}{}",
                    band.words(),
                    listed(ratios().collect()).unwrap_or_default(),
                    self.unit_of(baseline)
                ),
                None => format!(
                    "no significant difference{several}: {} vs {baseline}",
                    listed(rivals).unwrap_or_default()
                ),
            },
        }
    }
}
