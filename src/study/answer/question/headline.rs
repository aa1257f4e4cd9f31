//! Headline of an answer: who wins, by how much and where; and in how many settings.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::{
    ComparisonQuestion, Winner, idle_gain, listed, setting_phrase, share_of_settings, spread, times,
};
use crate::analysis::{Axis, Comparison, ComparisonReport, PairVerdict, Varied, fastest, inconclusive};
use base::statistics::{distinct, grouped, median};
use base::text::{capitalized, counted, whole_percent};
use table::Provenance;

/// Advice in a headline that noise leaves undecided, before its reason.
pub const RUN_AGAIN: &str = "run again on an idle machine";

/// Headlines of all pairs of a report, one per provenance.
pub fn headlines_of_all(axis: &Axis, report: &ComparisonReport) -> String {
    let pairs: Vec<&Comparison> = report.pairs.iter().collect();
    let specs = pairs.iter().flat_map(|pair| [&pair.baseline_side.spec, &pair.side.spec]);
    let settings = Varied::from_specs(specs.clone()).without(axis).model_last(specs);
    headlines(axis, report, &pairs, &settings, true)
}

/// Headlines of these pairs of a report, one per provenance, and if `has_wins` the numbers of settings that the winners
/// lead; `settings` vary besides the axis. Noise is looked for in `upper-bound` of the pairs' settings too, even if it is
/// not among the pairs.
pub fn headlines(
    axis: &Axis,
    report: &ComparisonReport,
    pairs: &[&Comparison],
    settings: &Varied,
    has_wins: bool,
) -> String {
    let mut by: BTreeMap<Provenance, Vec<Comparison>> = BTreeMap::new();
    for pair in pairs {
        by.entry(pair.provenance).or_default().push((*pair).clone());
    }
    let several = by.len() > 1;
    let headlines = by.into_iter().map(|(provenance, pairs)| {
        let matched: BTreeSet<&str> = pairs.iter().map(|pair| pair.matched.as_str()).collect();
        let is_limit = |pair: &&Comparison| {
            pair.is_limit() && pair.provenance == provenance && matched.contains(pair.matched.as_str())
        };
        let limits: Vec<Comparison> = report.pairs.iter().filter(is_limit).cloned().collect();
        let doubt = inconclusive(&report.of_pairs([limits, pairs.clone()].concat()));
        let report = report.of_pairs(pairs);
        let question = ComparisonQuestion { doubt, ..ComparisonQuestion::new(axis, &report, settings) };
        let wins =
            question.wins().filter(|_| has_wins).map_or_else(String::new, |wins| format!("; {wins}"));
        let text = question.headline("") + &wins;
        if several { format!("{provenance}: {text}") } else { text }
    });
    headlines.collect::<Vec<_>>().join("; ")
}

/// Pairs with the largest speedup, best first: one that is ahead by less than the simulator's error, or whose interval
/// overlaps, is no larger than the others.
fn largest<'a>(pairs: &[&'a Comparison]) -> Vec<&'a Comparison> {
    let mut level = pairs.to_vec();
    level.sort_by(|a, b| b.speedup.total_cmp(&a.speedup));
    let Some(best) = level.first().copied() else { return level };
    level.retain(|pair| match (best.speedup_ci95, pair.speedup_ci95) {
        (Some(most), Some(own)) => most[0] <= own[1],
        _ => std::ptr::eq(*pair, best) || best.ties_with(pair),
    });
    level
}

/// Reason of a lead: idle time, or communication behind compute, or else the gap closed.
fn effect(pair: &Comparison) -> String {
    if idle_gain(pair).is_some() {
        return "; mostly less idle time, which the machine may explain".to_owned();
    }
    let hidden = pair.overlap_pct.filter(|pct| *pct >= 0.5);
    let closed = pair.hidden_share.filter(|share| *share < 1.005);
    match (hidden, closed) {
        (Some(pct), _) => format!("; hides {} of its communication", whole_percent(pct)),
        (None, Some(share)) => {
            format!("; closes {} of the gap to upper-bound", whole_percent(100.0 * share))
        }
        (None, None) => String::new(),
    }
}

impl ComparisonQuestion<'_> {
    /// Headline: the winner, its largest lead and where, in one sentence. `metric` follows the baseline, where no title says
    /// what the ratios are of: ` in tokens/s`.
    pub fn headline(&self, metric: &str) -> String {
        let Some(baseline) = self.report.pairs.first().map(|pair| self.baseline(pair)) else {
            return "No cell has a baseline to be compared with.".into();
        };
        if self.choices.is_empty() {
            return match self.settings_apart().is_empty() {
                true => format!("Only upper-bound was compared with {baseline}."),
                false => format!("Nothing compared with {baseline}: its rounds were measured apart"),
            };
        }
        if let Some(why) = &self.doubt {
            return capitalized(&format!("{}; {RUN_AGAIN}: {why}", self.undecided(&baseline)));
        }
        let text = match &self.winner {
            Some(winner) => {
                let faster = self.faster_than(&baseline, metric);
                self.headline_of_winner(winner, &faster, &baseline)
            }
            None => self.headline_without_winner(&baseline),
        };
        let text = text + &self.not_compared();
        match *self.axis == Axis::ARCHITECTURE {
            true => capitalized(&text),
            false => text,
        }
    }

    /// Choices that noise leaves undecided and their settings, and the largest gain of `upper-bound` there: `ladder against
    /// standard: undecided at TP 2, batch 1, P2P off, 3 rounds; hiding could bring at most 1.22x`.
    fn undecided(&self, baseline: &str) -> String {
        let values =
            listed(distinct(self.all_choices().map(|pair| self.value(pair)))).unwrap_or_default();
        let place = match &self.choices[..] {
            [(_, pairs)] => format!("at {}", setting_phrase(pairs[0], self.axis)),
            [(first, _), (second, _)] => format!("at {first} and at {second}"),
            all => format!("in {}", counted(all.len(), "setting")),
        };
        let rounds = self.all_choices().map(|pair| pair.side.rounds).max().unwrap_or_default();
        let is_compared = |limit: &&Comparison| {
            let setting = self.setting(limit);
            limit.is_limit_ahead() && self.choices.iter().any(|(of, _)| *of == setting)
        };
        let limits = self.report.pairs.iter().filter(is_compared);
        let most = limits.max_by(|a, b| a.speedup.total_cmp(&b.speedup)).map(|limit| {
            let at = if self.choices.len() > 1 {
                format!(" ({})", self.setting(limit))
            } else {
                String::new()
            };
            let doubt = if self.is_doubtful_limit(limit) { "≈" } else { "" };
            format!("; hiding could bring at most {doubt}{:.2}x{at}", limit.speedup)
        });
        format!(
            "{values} against {baseline}: undecided {place}, {}{}",
            counted(rounds, "round"),
            most.unwrap_or_default()
        )
    }

    fn headline_of_winner(&self, winner: &Winner<'_>, faster: &str, baseline: &str) -> String {
        let name = self.with_twins(&winner.value);
        let tied = self.tied_everywhere(winner);
        match (&winner.pairs[..], &self.choices[..]) {
            ([only], [(_, pairs)]) if winner.tied > 0 => {
                let at = setting_phrase(only, self.axis);
                let named = self.named_with_ratios(&fastest(pairs));
                format!("too close to call at {at}: {named}{}", self.unit_of(baseline))
            }
            ([only], choices) => {
                let at = match choices {
                    [_] => setting_phrase(only, self.axis),
                    _ => self.setting(only),
                };
                format!("{name} is {} {faster} at {at}{tied}{}", times(only), effect(only))
            }
            ([_, _], _) => {
                let each = self.range(&winner.pairs, |pair| Some(pair.speedup), times);
                format!("{name} is {each} {faster}{tied}")
            }
            (pairs, _) => {
                let larger = self.larger_gain(pairs);
                format!("{name} is {}{tied}{larger}", self.largest_lead(pairs, faster))
            }
        }
    }

    /// Pair of the headline: the winner's largest lead, the one with a published value among leads of that size.
    pub fn lead(&self) -> Option<&Comparison> {
        if self.pays_off().is_some() {
            return self.largest_gain();
        }
        let level = largest(&self.winner.as_ref()?.pairs);
        level.iter().find(|pair| pair.published_speedup.is_some()).or(level.first()).copied()
    }

    /// Pair with the largest gain of all choices.
    pub fn largest_gain(&self) -> Option<&Comparison> {
        let faster = self.all_choices().filter(|pair| pair.verdict == PairVerdict::Faster);
        faster.max_by(|a, b| a.speedup.total_cmp(&b.speedup))
    }

    /// Largest gain, if another choice than the winner has it: `; the largest gain is ladder's, 1.46x at batch 1`.
    fn larger_gain(&self, own: &[&Comparison]) -> String {
        let faster = self.all_choices().filter(|pair| pair.verdict == PairVerdict::Faster);
        let level = largest(&faster.collect::<Vec<_>>());
        let is_own = |pair: &&Comparison| own.iter().any(|own| std::ptr::eq(*own, *pair));
        match level.first().filter(|_| !level.iter().any(is_own)) {
            Some(best) => format!(
                "; the largest gain is {}'s, {} at {}",
                self.value(best),
                times(best),
                self.setting(best)
            ),
            None => String::new(),
        }
    }

    /// Largest lead of several pairs: `up to 1.36x faster than standard at batch 1`, of the settings that all leads of that
    /// size share.
    fn largest_lead(&self, pairs: &[&Comparison], faster: &str) -> String {
        let level = largest(pairs);
        let Some(best) = level.first().copied() else { return faster.to_owned() };
        let parts = |pair: &Comparison| -> Vec<String> {
            let all = self.settings.axes().map(|axis| axis.phrase(&pair.side.spec));
            all.filter(|part| !part.is_empty()).collect()
        };
        let is_shared = |part: &String| level.iter().all(|pair| parts(pair).contains(part));
        let (shared, own): (Vec<String>, Vec<String>) = parts(best).into_iter().partition(is_shared);
        let place = match shared.is_empty() {
            // leads of this size that share no setting
            true => format!(", for example at {}", own.join(", ")),
            false => format!(" at {}", shared.join(", ")),
        };
        format!("up to {} {faster}{place}", times(best))
    }

    /// Values that tie with the winner wherever it is the fastest: `, tied with parallel within 5 %`.
    fn tied_everywhere(&self, winner: &Winner<'_>) -> String {
        let values = self.choices.iter().map(|(_, pairs)| {
            fastest(pairs).into_iter().map(|pair| self.value(pair)).collect::<Vec<String>>()
        });
        let own = values.filter(|values| values.contains(&winner.value));
        let common =
            own.reduce(|kept, values| kept.into_iter().filter(|value| values.contains(value)).collect());
        let rivals = common.into_iter().flatten().filter(|value| *value != winner.value);
        let rivals = listed(rivals.collect());
        rivals.map_or_else(String::new, |list| format!(", tied with {list}{}", self.within()))
    }

    /// Numbers of settings that the winner leads, ties or leaves undecided, the range of its leads, and its lead over
    /// the runner-up. `None` if the headline says all of it.
    pub fn wins(&self) -> Option<String> {
        if self.doubt.is_some() {
            return None;
        }
        let (settings, winner) = (self.choices.len(), self.winner.as_ref()?);
        let baseline = self.baseline(winner.pairs[0]);
        let next = self.over_next(winner);
        let is_everywhere = winner.pairs.len() == settings && winner.tied == 0;
        if settings == 1 || settings == 2 && is_everywhere {
            return next;
        }
        let several =
            self.all_choices().map(|pair| self.value(pair)).collect::<BTreeSet<String>>().len() > 1;
        let adjective = if several { "fastest" } else { "faster" };
        let share = |wins: usize| share_of_settings(wins, settings);
        let (alone, within) = (winner.pairs.len() - winner.tied, self.within());
        let ahead = self.ahead(winner);
        let wins = match (alone, winner.tied) {
            (alone, 0) => format!("{adjective} in {}", share(alone)),
            (0, tied) => format!("tied for {adjective}{within} in {}{ahead}", share(tied)),
            (alone, tied) => {
                format!("{adjective} in {}, tied for it{within} in {tied}{ahead}", share(alone))
            }
        };
        let own = self.all_choices().filter(|pair| self.value(pair) == winner.value);
        let own: Vec<&Comparison> = own.collect();
        // where it also ties for the fastest, it is counted already
        let is_counted = |pair: &Comparison| winner.pairs.iter().any(|of| std::ptr::eq(*of, pair));
        let ties = own.iter().filter(|pair| pair.verdict.is_tie() && !is_counted(pair));
        let ties = match ties.count() {
            0 => String::new(),
            ties if several => format!(", tied with {baseline} in {ties}"),
            ties => format!(", tied in {ties}"),
        };
        let undecided: Vec<&Comparison> =
            own.into_iter().filter(|pair| pair.verdict.is_undecided()).collect();
        let undecided = match &undecided[..] {
            [] => String::new(),
            [only] => {
                let (setting, why) = (self.setting(only), self.among(only));
                format!(", undecided in 1 ({setting}: {}{why})", times(only))
            }
            _ => format!(", undecided in {}", undecided.len()),
        };
        let speedups: Vec<f64> = winner.pairs.iter().map(|pair| pair.speedup).collect();
        // the headline has each of two
        let range = match median(&speedups).filter(|_| speedups.len() > 2) {
            Some(median) => format!(": {} (median {median:.2}x)", spread(&speedups)),
            None => String::new(),
        };
        let next = next.map_or_else(String::new, |next| format!("; {next}"));
        Some(format!("{wins}{ties}{undecided}{range}{next}"))
    }

    /// [`Self::wins`] as a sentence: `Ladder is fastest in 7 of 20 settings, ...`.
    pub fn wins_of_winner(&self) -> Option<String> {
        let (wins, winner) = (self.wins()?, self.winner.as_ref()?);
        let text = match wins.starts_with("where ") {
            // the lead over the runner-up alone, with or without the settings it is of
            true => format!("{}: {wins}", winner.value),
            false if wins.starts_with(|c: char| c.is_ascii_digit()) => {
                format!("{} has {wins}", winner.value)
            }
            false => format!("{} is {wins}", winner.value),
        };
        Some(if *self.axis == Axis::ARCHITECTURE { capitalized(&text) } else { text })
    }

    /// `faster than standard`, to the first token if no cell decodes, else with the metric.
    pub fn faster_than(&self, baseline: &str, metric: &str) -> String {
        let metric = if self.report.latency() == "TPOT" { metric } else { " to the first token" };
        format!("faster than {baseline}{metric}")
    }

    /// Measure that the ratios compare: tokens/s, or the speed of the first token if no cell decodes.
    fn unit(&self) -> &'static str {
        if self.report.latency() == "TPOT" { "tokens/s" } else { "speed to the first token" }
    }

    fn unit_of(&self, baseline: &str) -> String {
        format!(" {baseline}'s {}", self.unit())
    }

    /// Lead of the winner over the next choice where it leads alone: `1.07x the tokens/s of parallel, the runner-up`.
    /// `None` without another choice.
    fn over_next(&self, winner: &Winner<'_>) -> Option<String> {
        let mut by: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for (_, pairs) in &self.choices {
            let best = match fastest(pairs)[..] {
                [best] if self.value(best) == winner.value => best,
                _ => continue,
            };
            let others = pairs.iter().filter(|pair| !std::ptr::eq(**pair, best));
            if let Some(next) = others.max_by(|a, b| a.speedup.total_cmp(&b.speedup)) {
                by.entry(self.value(next)).or_default().push(best.speedup / next.speedup);
            }
        }
        let (next, ratios) = by.into_iter().max_by_key(|(_, ratios)| ratios.len())?;
        let (ratio, count) = (median(&ratios)?, ratios.len());
        let median_note = if count > 1 { " (median)" } else { "" };
        // its lead is only known where it wins alone
        let where_alone = if count < self.choices.len() { "where fastest, " } else { "" };
        let unit = self.unit();
        Some(format!("{where_alone}{ratio:.2}x the {unit} of {next}, the runner-up{median_note}"))
    }

    /// Values with more tokens/s than the winner where it ties, with their numbers of settings: ` (parallel ahead
    /// in 4)`.
    fn ahead(&self, winner: &Winner<'_>) -> String {
        let ahead = self.choices.iter().filter_map(|(setting, pairs)| {
            let fastest: Vec<String> = fastest(pairs).iter().map(|pair| self.value(pair)).collect();
            let is_ahead = fastest.contains(&winner.value) && fastest[0] != winner.value;
            is_ahead.then(|| (fastest[0].clone(), setting))
        });
        let mut ahead = grouped(ahead);
        ahead.sort_by_key(|(_, settings)| Reverse(settings.len()));
        let named = ahead.iter().map(|(value, settings)| format!("{value} ahead in {}", settings.len()));
        listed(named.collect()).map_or(String::new(), |list| format!(" ({list})"))
    }

    fn headline_without_winner(&self, baseline: &str) -> String {
        let pairs = || self.all_choices();
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
                "undecided after {}, more rounds settle it: {}{} so far",
                counted(rounds.unwrap_or_default(), "round"),
                listed(ratios().collect()).unwrap_or_default(),
                self.unit_of(baseline)
            );
        }
        let apart = self.settings_apart();
        let mut limits: BTreeSet<String> =
            self.report.pairs.iter().map(|pair| self.setting(pair)).collect();
        limits.retain(|setting| !apart.contains(setting));
        let several = match (self.choices.len(), limits.len().saturating_sub(self.choices.len())) {
            (1, _) if !apart.is_empty() => format!(" at {}", self.choices[0].0),
            (1, _) => String::new(),
            (settings, 0) => format!(" in any of {settings} settings"),
            // with the axis of P2P or TP, upper-bound has settings of its own
            (settings, limits) => {
                format!(" in any of {settings} settings ({limits} more of upper-bound)")
            }
        };
        match listed(slower) {
            Some(slower) => {
                format!("nothing is faster than {baseline}{several}: {slower} its {}", self.unit())
            }
            None => match self.report.band(None) {
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
