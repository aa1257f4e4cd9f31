//! Sentences of an answer about one axis.

mod headline;
mod latency;
mod rows;

pub use headline::{RUN_AGAIN, headlines, headlines_of_all};

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::contradicts_tpot;
use crate::analysis::{
    Axis, CONTENTION, Comparison, ComparisonReport, LEAST_DIFFERENCE, PairVerdict, Pivot,
    PublishedValue, Side, Varied, beaten_limit, fastest, inconclusive, is_measured_apart, less_work,
};
use base::statistics::{distinct, extent, grouped, mean, median};
use base::text::{capitalized, counted, joined_with_and, latency, whole_percent};
use plan::Architecture;
use table::{P2p, Provenance, Record, Status};

/// Relative difference below which simulated speedups are equal: two orders of operations that cost the same.
const EQUAL: f64 = 1e-4;

/// Maximum items that a sentence names; it counts the rest.
pub(super) const MOST_NAMED: usize = 3;

/// Maximum architectures in the sentence about P2P; experiments ask about few.
const MOST_KEPT: usize = 6;

/// Least share of the exposed communication that waits for late ranks (%) for a place on the card.
const LEAST_WAIT_PCT: f64 = 20.0;

pub(super) struct ComparisonQuestion<'a> {
    pub axis: &'a Axis,
    pub report: &'a ComparisonReport,
    /// Options that vary besides the axis.
    pub settings: &'a Varied,
    /// Simulated values whose numbers equal another value's in all settings, with that value: (farskip, ladder).
    twins: Vec<(String, String)>,
    /// Reason that noise explains the differences; `None` if they are conclusive.
    doubt: Option<String>,
    /// Compared pairs without limits (`upper-bound`) and twins, grouped by setting, in the order of the comparison.
    choices: Vec<(String, Vec<&'a Comparison>)>,
    /// Value that is fastest in most settings, alone or tied; `None` if nothing is faster than the baseline.
    pub winner: Option<Winner<'a>>,
}

impl<'a> ComparisonQuestion<'a> {
    pub fn new(axis: &'a Axis, report: &'a ComparisonReport, settings: &'a Varied) -> Self {
        let twins = twins(axis, report);
        let value = |pair: &Comparison| axis.phrase(&pair.side.spec);
        let is_twin = |pair: &Comparison| twins.iter().any(|(twin, _)| *twin == value(pair));
        let is_choice =
            |pair: &&Comparison| !pair.is_limit() && !is_measured_apart(pair) && !is_twin(pair);
        let choices = report.pairs.iter().filter(is_choice);
        let choices = grouped(choices.map(|pair| (settings.phrase(&pair.side.spec), pair)));
        let leads = choices.iter().flat_map(|(_, pairs)| {
            let fastest = fastest(pairs);
            let is_tied = fastest.len() > 1;
            fastest.into_iter().map(move |pair| (axis.phrase(&pair.side.spec), (pair, is_tied)))
        });
        let winners = grouped(leads).into_iter().map(|(value, leads)| Winner {
            value,
            tied: leads.iter().filter(|(_, is_tied)| *is_tied).count(),
            pairs: leads.into_iter().map(|(pair, _)| pair).collect(),
        });
        // the first of several
        let winner = winners.rev().max_by_key(|winner| (winner.pairs.len(), Reverse(winner.tied)));
        Self { axis, report, settings, twins, doubt: inconclusive(report), choices, winner }
    }

    /// Compared cell's value of the axis: `ladder`, `TP 8`, `NCCL_ALGO=Ring`.
    fn value(&self, pair: &Comparison) -> String {
        self.axis.phrase(&pair.side.spec)
    }

    pub fn baseline(&self, pair: &Comparison) -> String {
        self.axis.phrase(&pair.baseline_side.spec)
    }

    /// Choices of all settings.
    fn all_choices(&self) -> impl Iterator<Item = &'a Comparison> {
        self.choices.iter().flat_map(|(_, pairs)| pairs.iter().copied())
    }

    /// Settings in which no choice was compared, because rounds were measured apart.
    fn settings_apart(&self) -> Vec<String> {
        if !self.report.pairs.iter().any(is_measured_apart) {
            return Vec::new();
        }
        let choices = self.report.pairs.iter().filter(|pair| !pair.is_limit());
        let settings = grouped(choices.map(|pair| (self.setting(pair), pair)));
        let is_apart = |pairs: &[&Comparison]| pairs.iter().all(|pair| is_measured_apart(pair));
        let apart = settings.into_iter().filter(|(_, pairs)| is_apart(pairs));
        apart.map(|(setting, _)| setting).collect()
    }

    /// End of a headline about fewer than all settings: `; not compared in 1 of 2 settings`.
    fn not_compared(&self) -> String {
        match self.settings_apart().len() {
            0 => String::new(),
            apart => {
                let all = apart + self.choices.len();
                format!("; not compared in {}", share_of_settings(apart, all))
            }
        }
    }

    /// Measured architectures that have neither numbers nor a failed run in some settings: `No run: upper-bound at P2P
    /// off.`
    pub fn not_run(&self, missing: &[&Record]) -> Option<String> {
        let pairs = &self.report.pairs;
        if *self.axis != Axis::ARCHITECTURE || pairs.iter().any(Comparison::is_simulated) {
            return None;
        }
        let values = distinct(pairs.iter().map(|pair| self.value(pair)));
        let mut absent = Vec::new();
        for (setting, pairs) in grouped(pairs.iter().map(|pair| (self.setting(pair), pair))) {
            let known = self.missing_in(&pairs, missing);
            let has = |value: &&String| {
                known.iter().any(|(of, _)| of == *value)
                    || pairs.iter().any(|pair| self.value(pair) == **value)
            };
            absent.extend(
                values.iter().filter(|value| !has(value)).map(|value| format!("{value} at {setting}")),
            );
        }
        listed(absent).map(|list| format!("No run: {list}."))
    }

    /// Values of runs without numbers that belong to the setting of these pairs, each with the status of its run.
    fn missing_in(&self, pairs: &[&Comparison], missing: &[&Record]) -> Vec<(String, &'static str)> {
        let Some(first) = pairs.first() else { return Vec::new() };
        let baseline = &first.baseline_side.spec;
        let mut values: BTreeSet<String> = pairs.iter().map(|pair| self.value(pair)).collect();
        values.insert(self.baseline(first));
        let mut found = Vec::new();
        for record in missing {
            let both = [baseline, &record.spec].into_iter();
            let is_of_setting = Varied::from_specs(both).without(self.axis).is_empty();
            let value = self.axis.phrase(&record.spec);
            if let Some(status) = status_word(record).filter(|_| is_of_setting)
                && values.insert(value.clone())
            {
                found.push((value, status));
            }
        }
        found
    }

    /// Bands in which simulations tie: ` within 2 %`; empty for measurements, whose intervals decide.
    fn within(&self) -> String {
        let within = self.report.within(&self.report.pairs);
        if within.is_empty() { within } else { format!(" {within}") }
    }

    /// Value with those that equal it: `ladder (farskip is equal)`.
    fn with_twins(&self, value: &str) -> String {
        let twins = self.twins.iter().filter(|(_, of)| of == value).map(|(twin, _)| twin.as_str());
        match &twins.collect::<Vec<_>>()[..] {
            [] => value.to_owned(),
            [twin] => format!("{value} ({twin} is equal)"),
            twins => format!("{value} ({} are equal)", twins.join(", ")),
        }
    }

    /// Values with the numbers of another, and the reason if the model gives it.
    pub fn equal(&self) -> Option<String> {
        let (twin, of) = self.twins.first()?;
        let pair = self.report.pairs.iter().find(|pair| self.value(pair) == *twin)?;
        let settings: BTreeSet<String> =
            self.report.pairs.iter().map(|pair| self.setting(pair)).collect();
        let settings = match settings.len() {
            1 => String::new(),
            several => format!(" in {}", share_of_settings(several, several)),
        };
        let spec = &pair.side.spec;
        let model = run::GridContext::default().simulator.model(&spec.model).ok();
        let experts = model.as_ref().and_then(|model| model.shape.experts.as_ref());
        let is_bare = experts.is_some_and(|experts| experts.shared_width == 0);
        let why =
            match matches!(spec.architecture, Architecture::FarSkip(_)) && is_bare && of == "ladder" {
                true => format!(
                    ": {} has no shared experts, and without them {twin} orders the work as {of} does",
                    spec.model
                ),
                false => String::new(),
            };
        Some(format!("{} has the latency of {of}{settings}{why}.", capitalized(twin)))
    }

    /// Settings in which the winner is not the fastest.
    pub fn elsewhere(&self) -> Option<String> {
        let winner = self.winner.as_ref()?;
        let (mut elsewhere, mut without) = (Vec::new(), Vec::new());
        for (setting, pairs) in &self.choices {
            let fastest = fastest(pairs);
            let mut undecided = pairs.iter().filter(|pair| pair.verdict.is_undecided());
            match fastest.first() {
                // the headline counts those of the winner
                None if undecided.clone().any(|pair| self.value(pair) == winner.value) => {}
                None => match undecided.next() {
                    Some(pair) => elsewhere.push(format!(
                        "undecided at {setting} ({} {}{})",
                        self.value(pair),
                        times(pair),
                        self.among(pair)
                    )),
                    None => without.push((setting, self.baseline(pairs[0]))),
                },
                Some(_) if fastest.iter().any(|pair| self.value(pair) == winner.value) => {}
                Some(pair) => {
                    elsewhere.push(format!("{} at {setting} ({})", self.value(pair), times(pair)))
                }
            }
        }
        if let Some((setting, baseline)) = without.first() {
            let at = match without.len() {
                1 => format!("at {setting}"),
                several => format!("in {several} settings (the first: {setting})"),
            };
            elsewhere.insert(0, format!("no choice is faster than {baseline} {at}"));
        }
        listed(elsewhere).map(|list| format!("Elsewhere: {list}."))
    }

    /// Largest gain of the winner with each value of a setting that is neither TP, batch nor P2P: `Ladder's largest gain by
    /// all-reduce: nccl 1.35x (TP 8, batch 1), one-shot 1.12x (TP 8, batch 1).`
    pub fn gain_by_setting(&self) -> Option<String> {
        let winner = self.winner.as_ref()?;
        let is_usual = |axis: &&Axis| ["tp", "batch", "p2p", "link"].iter().any(|name| axis.spans(name));
        let mut others = self.settings.axes().filter(|axis| !is_usual(axis));
        let (axis, None) = (others.next()?, others.next()) else { return None };
        let own = self.all_choices().filter(|pair| self.value(pair) == winner.value);
        let by = grouped(own.map(|pair| (axis.phrase(&pair.side.spec), pair)));
        let largest = by.iter().filter_map(|(value, pairs)| {
            let best = pairs.iter().max_by(|a, b| a.speedup.total_cmp(&b.speedup))?;
            let place = self.settings.without(axis).phrase(&best.side.spec);
            let place = if place.is_empty() { place } else { format!(" ({place})") };
            Some(format!("{value} {:.2}x{place}", best.speedup))
        });
        let largest: Vec<String> = largest.collect();
        let words = listed(largest).filter(|_| by.len() > 1)?;
        Some(format!("{}'s largest gain by {}: {words}.", capitalized(&winner.value), axis))
    }

    /// Settings whose fastest simulations differ by less than the simulator's error.
    pub fn tied(&self) -> Option<String> {
        let tied = self.choices.iter().filter_map(|(setting, pairs)| {
            let fastest = fastest(pairs);
            let is_tie = fastest.len() > 1;
            is_tie.then(|| format!("{setting} ({})", self.named_with_ratios(&fastest)))
        });
        let tied: Vec<String> = tied.collect();
        let count = counted(tied.len(), "setting");
        let list = listed(tied).filter(|_| self.choices.len() > 1)?;
        Some(format!("The fastest tie{} in {count}: {list}.", self.within()))
    }

    /// Pair of the headline with its published speedup.
    fn lead_with_published(&self) -> Option<(&Comparison, PublishedValue)> {
        let pair = self.lead()?;
        Some((pair, pair.published_speedup?))
    }

    /// Published value of the headline's cell: `Paper, ladder at TP 8, batch 1: 1.60x in tokens/s (simulated 1.48x,
    /// -7.3 %), but 1.50x by the published TPOT.`
    pub fn published_lead(&self) -> Option<String> {
        let (pair, of) = self.lead_with_published()?;
        let (cell, own, error) = (self.named(pair), pair.speedup, of.error_pct);
        Some(format!(
            "Paper, {cell}: {:.2}x in tokens/s (simulated {own:.2}x, {error:+.1} %){}.",
            of.value,
            of.contradicting()
        ))
    }

    /// Errors of simulated speedups if several were published; that of the headline's cell has its own line.
    pub fn published(&self) -> Option<String> {
        let pairs = self.report.pairs.iter();
        let known: Vec<(&Comparison, PublishedValue)> =
            pairs.filter_map(|pair| Some((pair, pair.published_speedup?))).collect();
        let error = |of: &PublishedValue| of.error_pct.abs();
        let mean = mean(&known.iter().map(|(_, of)| error(of)).collect::<Vec<_>>())?;
        let (pair, worst) = known.iter().max_by(|a, b| error(&a.1).total_cmp(&error(&b.1)))?;
        let (cell, own, published) = (self.named(pair), pair.speedup, worst.ratio());
        (known.len() > 1 || self.lead_with_published().is_none()).then(|| {
            let cells = counted(known.len(), "published cell");
            format!(
                "Simulated speedups of {cells} miss by {mean:.1} % on average, most for {cell} ({own:.2}x simulated, \
                 published {published})."
            )
        })
    }

    /// Exposed share of the step of the baseline, and of the winner (or else the first choice).
    pub fn exposed(&self) -> Option<String> {
        let (value, pairs) = self.named_first()?;
        let shares = |of: &dyn Fn(&Comparison) -> Option<f64>| match &pairs[..] {
            [] | [_] | [_, _] => {
                self.range(&pairs, of, |p| of(p).map_or("-".into(), |pct| format!("{pct:.1} %")))
            }
            _ => {
                let all: Vec<f64> = pairs.iter().filter_map(|pair| of(pair)).collect();
                let [low, high] = extent(all.iter().copied()).unwrap_or_default();
                format!("{low:.1} to {high:.1} % (median {:.1} %)", median(&all).unwrap_or_default())
            }
        };
        let (base, own) =
            (|p: &Comparison| p.baseline_side.exposed_pct, |p: &Comparison| p.side.exposed_pct);
        if pairs.iter().any(|pair| base(pair).is_none() || own(pair).is_none()) {
            return None;
        }
        let hides = match pairs.iter().all(|pair| pair.side.overlap_pct.is_some()) {
            true => {
                format!(", which hides {} of all its communication", shares(&|p| p.side.overlap_pct))
            }
            false => String::new(),
        };
        Some(format!(
            "Exposed communication (nothing computes beside it): {} of {}'s step, {} of {value}'s{hides}.",
            shares(&base),
            self.baseline(pairs[0]),
            shares(&own)
        ))
    }

    /// Shares of the exposed communication that wait for the last rank, of the baseline and of the winner (or else the
    /// first choice): for the card if one is large, else for its details. Both are `None` if arrivals are unknown, and
    /// if nothing waits, as in simulations without skew.
    pub fn late_ranks(&self) -> (Option<String>, Option<String>) {
        let Some((most, text)) = self.waits_for_ranks() else { return (None, None) };
        if most >= LEAST_WAIT_PCT { (Some(text), None) } else { (None, Some(text)) }
    }

    /// Largest share (%) and sentence of [`Self::late_ranks`]; short, because the card of two links just fits a window of
    /// 80x24.
    fn waits_for_ranks(&self) -> Option<(f64, String)> {
        let (value, pairs) = self.named_first()?;
        let shares = |of: fn(&Comparison) -> &Side| {
            let shares = pairs.iter().map(|pair| of(pair).peer_wait_pct());
            extent(shares.collect::<Option<Vec<f64>>>()?)
        };
        let [base, own] = [shares(|pair| &pair.baseline_side)?, shares(|pair| &pair.side)?];
        let words = |[low, high]: [f64; 2]| match [low, high].map(whole_percent) {
            [least, most] if least == most => most,
            [_, most] => format!("{low:.0} to {most}"),
        };
        let most = base[1].max(own[1]);
        let text = format!(
            "Exposed time due to late ranks: {} {}, {value} {}.",
            self.baseline(pairs[0]),
            words(base),
            words(own)
        );
        (most > 0.0).then_some((most, text))
    }

    /// Measured settings in which the winner's gain is mostly idle time.
    pub fn idle(&self) -> Option<String> {
        let (value, pairs) = self.named_first()?;
        let (pair, [idle, all]) = pairs.iter().find_map(|pair| Some((*pair, idle_gain(pair)?)))?;
        let count = pairs.iter().filter(|pair| idle_gain(pair).is_some()).count();
        let place = match (pairs.len(), count) {
            (1, _) => String::new(),
            (_, 1) => format!(" at {}", self.settings.words(&pair.side.spec)),
            (_, count) => {
                format!(" in {count} settings, such as {}", self.settings.words(&pair.side.spec))
            }
        };
        Some(format!(
            "Mostly idle time: with {value}{place}, decoding falls by {} and idle time (neither compute nor communication) \
             by {}, so the machine may explain the gain, not the architecture.",
            latency(1e3 * all),
            latency(1e3 * idle)
        ))
    }

    /// Winner, or else the first choice, with all its pairs.
    fn named_first(&self) -> Option<(String, Vec<&Comparison>)> {
        let value = match &self.winner {
            Some(winner) => winner.value.clone(),
            None => self.value(self.all_choices().next()?),
        };
        let pairs = self.all_choices().filter(|pair| self.value(pair) == value).collect();
        Some((value, pairs))
    }

    /// Share of the gap between standard and upper-bound that the winner (or else the first choice) closes; `None` if the
    /// answer is inconclusive.
    pub fn gap_closed(&self) -> Option<String> {
        if self.doubt.is_some() {
            return None;
        }
        let limits = self.report.pairs.iter().filter(|pair| pair.is_limit()).count();
        if limits == 0 {
            return Some("Gap closed: unknown, because upper-bound was not run.".into());
        }
        let (value, pairs) = self.named_first()?;
        let with: Vec<&Comparison> =
            pairs.iter().copied().filter(|p| p.hidden_share.is_some()).collect();
        if with.is_empty() {
            let why = match pairs.iter().any(|pair| pair.side.spec.output_tokens > 1) {
                true if pairs.iter().all(|pair| pair.is_gap_apart) => {
                    "it was not measured together with upper-bound"
                }
                true => "upper-bound is not clearly faster than standard",
                false => "one output token has no decode steps",
            };
            return Some(format!("Gap closed: unknown, because {why}."));
        }
        let unknown = match pairs.len() - with.len() {
            0 => String::new(),
            count => format!(
                "; unknown in {}, where upper-bound is missing, measured apart or not clearly faster",
                counted(count, "setting")
            ),
        };
        let percents: Vec<f64> =
            with.iter().filter_map(|pair| Some(100.0 * pair.hidden_share?)).collect();
        let ends = extent(percents.iter().copied());
        let gap = "of the gap between standard and upper-bound";
        let shares = match (ends, median(&percents)) {
            (Some([low, high]), _) if percents.len() > 2 && high - low < 1.0 => {
                format!("{} {gap}", whole_percent(low))
            }
            (Some([low, high]), Some(middle)) if percents.len() > 2 => {
                let [high, middle] = [high, middle].map(whole_percent);
                format!("{low:.0} to {high} {gap} (median {middle})")
            }
            _ => format!("{} {gap}", self.range(&with, |pair| pair.hidden_share, gap_words)),
        };
        // an architecture with less work than upper-bound can be faster
        let is_noise = |pair: &&Comparison| {
            pair.hidden_share.is_some_and(|share| share >= 1.005)
                && pair.provenance != Provenance::Simulated
                && less_work(&pair.side.spec).is_none()
        };
        let beyond = match with.iter().any(is_noise) {
            true => "; above 100 % is noise: upper-bound does the same work without communication",
            false => "",
        };
        // the same share at every TP looks like a result
        let capped = match with.iter().filter(|pair| pair.is_capped()).count() {
            0 => String::new(),
            count if count == with.len() => format!("; the rest is {CONTENTION}"),
            count => {
                let settings = counted(with.len(), "setting");
                format!("; in {count} of {settings} the rest is {CONTENTION}")
            }
        };
        let text = format!("{value} closes {shares}");
        Some(format!("{}{unknown}{beyond}{capped}.", capitalized(&text)))
    }

    /// Measured choices that are faster than `upper-bound`, which only noise or drift explains.
    pub fn above_limit(&self) -> Option<String> {
        let above = self.report.pairs.iter().filter(|pair| pair.is_above_limit);
        let named = above.map(|pair| format!("{} ({:.2}x)", self.named(pair), pair.speedup));
        listed(named.collect()).map(|list| {
            format!(
                "Above the upper bound: {list}. This is noise or drift, since upper-bound does the same work without \
                 communication."
            )
        })
    }

    pub fn beaten_limit(&self) -> Option<String> {
        beaten_limit(self.report, |pair| self.setting(pair))
    }

    /// Throughput without P2P relative to P2P, by architecture; and a warning if it is higher.
    pub fn without_p2p(&self) -> (Option<String>, Option<String>) {
        let off =
            self.report.pairs.iter().filter(|pair| {
                pair.side.spec.p2p == P2p::Off && !pair.is_limit() && pair.rounds_apart == 0
            });
        let mut by = grouped(off.map(|pair| (pair.side.spec.architecture_label(), pair)));
        let faster: Vec<&Comparison> = by
            .iter()
            .flat_map(|(_, pairs)| pairs.iter().copied())
            .filter(|pair| pair.verdict == PairVerdict::Faster)
            .collect();
        let most = |pairs: &[&Comparison]| pairs.iter().map(|pair| pair.speedup).fold(0.0, f64::max);
        by.sort_by(|(_, a), (_, b)| most(b).total_cmp(&most(a)));
        let place = self.settings.without(&Axis::ARCHITECTURE);
        let kept = by.iter().map(|(architecture, pairs)| match &pairs[..] {
            [only] => {
                let is_clear = matches!(only.verdict, PairVerdict::Faster | PairVerdict::Slower);
                let mark = if is_clear { "" } else { " (undecided)" };
                format!("{architecture} {}{mark}", times(only))
            }
            _ => {
                let least = pairs.iter().min_by(|a, b| a.speedup.total_cmp(&b.speedup));
                let at = least.map_or(String::new(), |pair| place.words(&pair.side.spec));
                let at = if at.is_empty() { at } else { format!(" ({at})") };
                let [low, high] = [least.map_or(0.0, |pair| pair.speedup), most(pairs)]
                    .map(|speedup| format!("{speedup:.2}x"));
                match low == high {
                    true => format!("{architecture} {low}"),
                    false => format!("{architecture} {low}{at} to {high}"),
                }
            }
        });
        let kept = listed_up_to(MOST_KEPT, kept.collect());
        let kept = kept.map(|list| format!("P2P off vs on, tokens/s: {list}."));
        let warning = (!faster.is_empty()).then(|| {
            let pairs = counted(faster.len(), "pair");
            format!("P2P off is faster than on in {pairs}: check the links that stand for them.")
        });
        (kept, warning)
    }

    /// Comparisons that are not significant, or too small to matter.
    pub fn unclear(&self) -> Option<String> {
        let pairs = || self.report.pairs.iter();
        let values_with = |verdict: PairVerdict| -> Vec<String> {
            pairs().filter(|pair| pair.verdict == verdict).map(|pair| self.named(pair)).collect()
        };
        let mut parts = Vec::new();
        let mut part = |named: Vec<String>, [one, several]: [&str; 2], what: &str| {
            let (count, all) = (named.len(), counted(pairs().count(), "comparison"));
            let verb = if count == 1 { one } else { several };
            parts.extend(listed(named).map(|list| format!("{count} of {all} {verb} {what}: {list}")));
        };
        let is_of_many = pairs().any(is_chance_of_many);
        let adjusted = match is_of_many {
            true => format!(
                "not significant (Benjamini-Hochberg, {})",
                counted(self.report.adjusted.tested, "test")
            ),
            false => "not significant".to_owned(),
        };
        part(values_with(PairVerdict::Chance), ["is", "are"], &adjusted);
        let (apart, few): (Vec<&Comparison>, Vec<&Comparison>) = pairs()
            .filter(|pair| pair.verdict == PairVerdict::Unknown)
            .partition(|pair| pair.rounds_apart > 0);
        let named = |pairs: Vec<&Comparison>| pairs.into_iter().map(|pair| self.named(pair)).collect();
        part(named(few), ["has", "have"], "too few samples for an interval");
        part(named(apart), ["rests", "rest"], "on rounds that were measured apart");
        let least = format!("by less than {} %", 100.0 * LEAST_DIFFERENCE);
        part(values_with(PairVerdict::Same), ["differs", "differ"], &least);
        if let Some(band) = self.report.band(Some(PairVerdict::TooClose)) {
            part(values_with(PairVerdict::TooClose), ["is", "are"], &band.too_close());
        }
        (!parts.is_empty()).then(|| format!("{}.", parts.join("; ")))
    }

    pub fn named(&self, pair: &Comparison) -> String {
        match self.setting(pair) {
            setting if setting.is_empty() => self.value(pair),
            setting => format!("{} at {setting}", self.value(pair)),
        }
    }

    /// Values of pairs with their ratios: `ladder 1.33x, parallel 1.32x`.
    fn named_with_ratios(&self, pairs: &[&Comparison]) -> String {
        let named = pairs.iter().map(|pair| format!("{} {}", self.value(pair), times(pair)));
        named.collect::<Vec<_>>().join(", ")
    }

    /// Setting of a pair: `TP 8, batch 1, P2P on`; empty if only the axis varies.
    fn setting(&self, pair: &Comparison) -> String {
        self.settings.phrase(&pair.side.spec)
    }

    /// Range of one number over several pairs: all values of up to two pairs, else minimum, maximum and
    /// median.
    fn range(
        &self,
        pairs: &[&Comparison],
        number: impl Fn(&Comparison) -> Option<f64>,
        words: impl Fn(&Comparison) -> String,
    ) -> String {
        let mut sorted: Vec<&Comparison> =
            pairs.iter().copied().filter(|pair| number(pair).is_some()).collect();
        // two stay in the order of the table
        if sorted.len() > 2 {
            sorted.sort_by(|a, b| number(a).unwrap_or(0.0).total_cmp(&number(b).unwrap_or(0.0)));
        }
        let at = |pair: &Comparison| match self.setting(pair) {
            setting if setting.is_empty() => words(pair),
            setting => format!("{} ({setting})", words(pair)),
        };
        match sorted.as_slice() {
            [] => "an unknown share".into(),
            [only] => words(only),
            [first, second] => format!("{} and {}", at(first), at(second)),
            [first, .., last] => {
                let middle = median(&sorted.iter().filter_map(|pair| number(pair)).collect::<Vec<_>>());
                let middle = sorted.iter().min_by(|a, b| {
                    let off =
                        |pair: &Comparison| (number(pair).unwrap_or(0.0) - middle.unwrap_or(0.0)).abs();
                    off(a).total_cmp(&off(b))
                });
                // omit a median that equals one of the ends
                let middle = middle
                    .map(|pair| words(pair))
                    .filter(|middle| *middle != words(first) && *middle != words(last))
                    .map_or(String::new(), |middle| format!(", median {middle}"));
                format!("{} to {}{middle}", at(first), at(last))
            }
        }
    }

    /// Choices whose tokens/s, compared by round, changed in the other direction than their TPOT.
    pub fn contradicting_tpot(&self) -> Option<String> {
        let contradicting = self.all_choices().filter(|pair| {
            let [from, to] = pair.latencies_ms();
            pair.latency() == "TPOT" && contradicts_tpot(pair) && (pair.speedup > 1.0) != (to < from)
        });
        let named = contradicting.map(|pair| {
            let [from, to] = pair.latencies_ms();
            let change = 100.0 * (to / from - 1.0);
            format!("{} {:.2}x with a TPOT of {change:+.0} %", self.named(pair), pair.speedup)
        });
        listed(named.collect())
            .map(|list| format!("Noise: ratios by round contradict the medians of all rounds: {list}."))
    }

    /// Reason why a ratio whose interval excludes 1 is undecided: `, not significant among 4 comparisons`; else empty.
    fn among(&self, pair: &Comparison) -> String {
        let tested = counted(self.report.adjusted.tested, "comparison");
        let is_of_many = is_chance_of_many(pair);
        if is_of_many { format!(", {} among {tested}", pair.verdict) } else { String::new() }
    }
}

/// True if the interval excludes 1, but not after adjustment for the number of comparisons.
fn is_chance_of_many(pair: &Comparison) -> bool {
    pair.verdict == PairVerdict::Chance && pair.differs
}

/// Reason in a word why a run has no numbers; `None` if it ran and only checked something.
fn status_word(record: &Record) -> Option<&'static str> {
    let is_cancelled = record.reason.as_deref().is_some_and(|why| why.starts_with("cancelled"));
    match record.status {
        Status::Ok => None,
        Status::Failed => Some("failed"),
        Status::Oom => Some("out of memory"),
        Status::Skipped => Some("cannot run"),
        Status::Interrupted if is_cancelled => Some("cancelled"),
        Status::Interrupted => Some("not finished"),
        Status::Running => Some("running"),
    }
}

/// Idle time and decode latency that a measured gain saves (ms), if most of it is idle time.
fn idle_gain(pair: &Comparison) -> Option<[f64; 2]> {
    let (from, to) = (&pair.baseline_side, &pair.side);
    let [all, idle] = [from.decode_ms - to.decode_ms, from.idle_ms? - to.idle_ms?];
    let is_gain = !pair.is_simulated() && pair.verdict == PairVerdict::Faster;
    (is_gain && all > 0.0 && 2.0 * idle > all).then_some([idle, all])
}

/// Division of the GPUs that is fastest in most settings, the baseline included, with the engine that decides it: `best
/// division of the GPUs with native: TP 8 in all 18 settings (1.01x to 2.10x the tokens/s of the next, too close to call
/// in 4)`.
pub(super) fn best_division(report: &ComparisonReport) -> Option<String> {
    let choices: Vec<usize> =
        (0..report.pairs.len()).filter(|at| !report.pairs[*at].is_limit()).collect();
    let pivot = Pivot::new(report, &choices);
    let mut wins: BTreeMap<String, Vec<(f64, bool)>> = BTreeMap::new();
    let mut stacks = BTreeSet::new();
    for row in &pivot.rows {
        let pairs: Vec<&Comparison> = row.known().map(|at| &report.pairs[at]).collect();
        let first = *pairs.first()?;
        let baseline = (Axis::Division.phrase(&first.baseline_side.spec), 1.0, None);
        let others =
            pairs.iter().map(|pair| (Axis::Division.phrase(&pair.side.spec), pair.speedup, Some(*pair)));
        let mut all: Vec<(String, f64, Option<&Comparison>)> = others.chain([baseline]).collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        let lead = all[0].1 / all[1].1;
        let is_close = match (all[0].2, all[1].2) {
            (Some(best), Some(next)) => best.ties_with(next),
            // one of them is the baseline
            (best, next) => best.or(next).is_some_and(|pair| !pair.verdict.mark().is_empty()),
        };
        wins.entry(all.swap_remove(0).0).or_default().push((lead, is_close));
        stacks.insert(first.side.spec.stack.as_str());
    }
    let most = wins.values().map(Vec::len).max()?;
    wins.retain(|_, leads| leads.len() == most);
    let each = if wins.len() > 1 { " each" } else { "" };
    let best = wins.keys().cloned().collect::<Vec<_>>().join(" and ");
    let leads: Vec<(f64, bool)> = wins.into_values().flatten().collect();
    let settings = share_of_settings(most, pivot.rows.len());
    let range = spread(&leads.iter().map(|lead| lead.0).collect::<Vec<_>>());
    let close = match leads.iter().filter(|lead| lead.1).count() {
        0 => String::new(),
        close => format!(", too close to call in {close}"),
    };
    let stacks = joined_with_and(&stacks.into_iter().collect::<Vec<&str>>());
    Some(format!(
        "Best division of the GPUs with {stacks}: {best} in {settings}{each} ({range} the tokens/s of the next{close})."
    ))
}

/// Simulated values whose throughput equals that of an earlier value in every setting.
fn twins(axis: &Axis, report: &ComparisonReport) -> Vec<(String, String)> {
    let choices = || report.pairs.iter().filter(|pair| !pair.is_limit());
    if choices().any(|pair| !pair.is_simulated()) {
        return Vec::new();
    }
    let speedups =
        choices().map(|pair| (axis.phrase(&pair.side.spec), (pair.baseline_run.as_str(), pair.speedup)));
    let by = grouped(speedups).into_iter();
    let by: Vec<(String, BTreeMap<&str, f64>)> =
        by.map(|(value, speedups)| (value, BTreeMap::from_iter(speedups))).collect();
    let is_equal = |a: &BTreeMap<&str, f64>, b: &BTreeMap<&str, f64>| {
        a.len() == b.len()
            && a.iter().all(|(run, x)| b.get(run).is_some_and(|y| (x / y - 1.0).abs() < EQUAL))
    };
    let twin = |at: usize| {
        let earlier = by[..at].iter().find(|(_, speedups)| is_equal(speedups, &by[at].1))?;
        Some((by[at].0.clone(), earlier.0.clone()))
    };
    (1..by.len()).filter_map(twin).collect()
}

/// `2 of 3 settings`, `both settings`, `all 3 settings`.
fn share_of_settings(some: usize, all: usize) -> String {
    match (some, all) {
        (2, 2) => "both settings".to_owned(),
        (some, all) if some == all => format!("all {}", counted(all, "setting")),
        (some, all) => format!("{some} of {}", counted(all, "setting")),
    }
}

/// Value of an axis that is the fastest in some settings.
#[derive(Debug)]
pub(super) struct Winner<'a> {
    pub value: String,
    pub pairs: Vec<&'a Comparison>,
    /// Settings in which it ties with another value.
    pub tied: usize,
}

/// Setting of a pair that is alone: TP, batch and P2P, without the compared axis.
fn setting_phrase(pair: &Comparison, axis: &Axis) -> String {
    let spec = &pair.side.spec;
    let names: &[&str] = if spec.tp > 1 { &["tp", "batch", "p2p"] } else { &["tp", "batch"] };
    let axes = names.iter().filter(|name| !axis.spans(name)).map(|name| Axis::Option(name));
    axes.map(|axis| axis.phrase(spec)).collect::<Vec<_>>().join(", ")
}

/// Gap closed with its interval, or the reason if it alone has none: `67 % [60, 72]`.
fn gap_words(pair: &Comparison) -> String {
    // with too few samples, no number has one
    let is_missing = pair.hidden_share_ci95.is_none() && pair.speedup_ci95.is_some();
    let why = if is_missing { " (no interval: the gap may be 0)" } else { "" };
    format!("{}{why}", pair.side.gap_closed())
}

/// Speedup in tokens/s with its 95 % interval, if there is one: `1.16x [1.09, 1.18]`.
fn times(pair: &Comparison) -> String {
    let ci = pair.speedup_ci95.map_or(String::new(), |[low, high]| format!(" [{low:.2}, {high:.2}]"));
    format!("{:.2}x{ci}", pair.speedup)
}

/// Least and largest of several ratios: `1.10x to 1.24x`.
fn spread(ratios: &[f64]) -> String {
    let [low, high] = extent(ratios.iter().copied()).unwrap_or_default();
    format!("{low:.2}x to {high:.2}x")
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
