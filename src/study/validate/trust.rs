//! Trust in a simulated number: fitted to measurements of this very cell, predicted within a known error, or not
//! validated. Every screen, the verdict, what-if and the command line take their words from here.
//!
//! A cell is compared with the published rows of its hardware and stack, option by option. Errors of rows that were
//! left out of a fit come from `calibrate` and `validate --left-out`.

mod known;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

pub(super) use self::known::*;
use super::set::Measure;
use base::text::{counted, joined_with_and};
use machine::hardware::{Profile, Stack};
use run::sim::p2p_of;
use table::Spec;

/// Reason of a trust in cells of a GPU or engine without published rows.
const NOTHING_MEASURED: &str = "for this hardware and engine";

/// Least number of cells for an error of its own in [`badge`].
const LEAST_CELLS: usize = 3;

/// Validation of one simulated cell.
#[derive(Clone, Debug)]
pub enum Trust {
    /// The constants were fitted to measurements of this cell.
    Fitted(Evidence),
    /// Measured cells near this one were predicted without being fitted.
    HeldOut(Evidence),
    /// Nothing measured covers the cell; the reason, such as `for desync:4 with gpt-fast on h100_sxm`.
    NotValidated(String),
}

/// Published rows near a cell.
#[derive(Clone, Copy, Debug)]
pub struct Evidence {
    known: &'static KnownError,
    held_out: Option<&'static HeldOutError>,
}

impl Trust {
    pub fn from_spec(spec: &Spec) -> Self {
        let is = |known: &&'static KnownError| {
            known.stack == Stack::canonical_name(&spec.stack)
                && known.hardware == Profile::canonical_name(&spec.hardware)
        };
        let mut found: Option<(Self, usize)> = None;
        for known in known_errors().iter().filter(is) {
            let near = known.trust(spec);
            if found.as_ref().is_none_or(|(_, worse)| near.1 < *worse) {
                found = Some(near);
            }
        }
        match found {
            None => Self::NotValidated(NOTHING_MEASURED.into()),
            Some(_) if !spec.set.is_empty() => Self::NotValidated(overrides_in_words(&spec.set)),
            Some((trust, _)) => trust,
        }
    }

    /// Adds the published rows of another version of the engine, if the cell is not validated.
    fn with_other_version(self, spec: &Spec) -> Self {
        let Self::NotValidated(why) = self else { return self };
        let other = KnownError::of_other_version(spec).filter(|_| spec.set.is_empty());
        Self::NotValidated(other.map_or(why.clone(), |other| format!("{why}; {other}")))
    }

    /// Error of a simulated speedup (share); `None` if no measured pair covers the cell.
    fn speedup_error(&self) -> Option<f64> {
        let pct = match self {
            Self::Fitted(of) => of.known.speedup_pct,
            Self::HeldOut(of) => of.held_out?.speedup_pct,
            Self::NotValidated(_) => None,
        };
        Some(pct?.ceil() / 100.0)
    }

    /// Error of a simulated prefill (share); `None` if no measured prefill covers the cell.
    fn prefill_error(&self) -> Option<f64> {
        match self {
            Self::Fitted(of) | Self::HeldOut(of) if of.known.measure == Measure::Prefill => {
                Some(of.pct().ceil() / 100.0)
            }
            _ => None,
        }
    }

    /// Words beside a result: `mean error 2 % on cells used for calibration`, `mean error 12 % on cells not used for
    /// calibration`, `not validated`.
    pub fn badge(&self) -> String {
        match self {
            Self::Fitted(of) => format!("mean error {} on cells used for calibration", of.percent()),
            Self::HeldOut(of) => {
                format!("mean error {} on cells not used for calibration", of.percent())
            }
            Self::NotValidated(_) => "not validated".into(),
        }
    }

    /// Error of one cell beside that of settings left out of the fit: `error 2 % on fitted cells, 12 % on batch sizes left
    /// out`; [`Self::badge`] if the cell was not fitted.
    pub fn with_left_out(&self) -> String {
        let Self::Fitted(of) = self else { return self.badge() };
        let left_out =
            of.known.held_out.iter().map(|out| Evidence { known: of.known, held_out: Some(out) });
        let worst = left_out.max_by(|a, b| a.pct().total_cmp(&b.pct()));
        let errors = std::iter::once(*of).chain(worst);
        let errors: Vec<String> =
            errors.map(|of| format!("{} on {}", of.percent(), of.cells())).collect();
        format!("error {}", errors.join(", "))
    }

    /// [`Self::badge`] of a number of cells, beside those of others: `12 % on 24 cells with each batch size left out`.
    fn badge_of(&self, cells: usize, is_first: bool) -> String {
        let number = counted(cells, "cell");
        let (evidence, used) = match self {
            Self::Fitted(of) => (of, "used for calibration".to_owned()),
            Self::HeldOut(of) => {
                (of, format!("with {} left out", of.held_out.map_or("them", |out| out.by.as_str())))
            }
            Self::NotValidated(_) => return format!("{number} not validated"),
        };
        let what = if is_first { "mean error " } else { "" };
        format!("{what}{} on {number} {used}", evidence.percent())
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Fitted(_) => 0,
            Self::HeldOut(_) => 1,
            Self::NotValidated(_) => 2,
        }
    }
}

impl fmt::Display for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fitted(of) => {
                let out = of.left_out().map_or_else(String::new, |out| format!("; {out}"));
                let (measure, pct) = (of.known.measure.title(), of.pct().ceil());
                write!(f, "fitted to these runs (mean {measure} error {pct:.0} %{out}): {of}")
            }
            Self::HeldOut(of) => {
                let (measure, pct) = (of.known.measure.title(), of.pct().ceil());
                let by = of.held_out.map_or("", |out| &out.by);
                write!(f, "{pct:.0} % mean {measure} error with {by} left out: {of}")
            }
            Self::NotValidated(why) => write!(f, "not validated {why}"),
        }
    }
}

/// Most overridden values that [`overrides_in_words`] names.
const MOST_NAMED: usize = 3;

/// Values of hardware and stack that a cell overrides: `at another all-reduce latency and memory bandwidth`.
fn overrides_in_words(set: &BTreeMap<String, String>) -> String {
    let mut named: Vec<&str> = set.keys().map(|key| value_in_words(key)).collect();
    named.sort_unstable();
    named.dedup();
    match named.len() > MOST_NAMED {
        true => "with other values of hardware or stack".into(),
        false => format!("at another {}", joined_with_and(&named)),
    }
}

/// Name of an overridden value that a slider changes; the key of any other.
fn value_in_words(key: &str) -> &str {
    match key {
        "hbm_gb_s" => "memory bandwidth",
        "link.inter_node.alpha_us" => "network latency",
        "link.inter_node.gb_s" => "network bandwidth",
        "stack.contention.arithmetic" | "stack.contention.memory" => "number of comm SMs",
        "stack.contention.comm" => "comm loss",
        "stack.launch_us" => "kernel launch time",
        _ if key.starts_with("link.") && key.ends_with("alpha_us") => "all-reduce latency",
        _ if key.starts_with("link.") && key.ends_with("gb_s") => "all-reduce bandwidth",
        _ => key,
    }
}

impl Evidence {
    /// Mean absolute error: left after the fit, or of rows left out of it (percent).
    fn pct(&self) -> f64 {
        self.held_out.map_or(self.known.pct, |out| out.pct.max(self.known.pct))
    }

    fn percent(&self) -> String {
        format!("{:.0} %", self.pct().ceil())
    }

    /// Cells that the error is of: `fitted cells`, `batch sizes left out`.
    fn cells(&self) -> String {
        let Some(out) = self.held_out else { return "fitted cells".into() };
        format!("{}s left out", out.by.strip_prefix("each ").unwrap_or("setting"))
    }

    /// Errors of the rows that were left out of the fit: `5 % with each TP left out, 12 % with each batch size left out`.
    fn left_out(&self) -> Option<String> {
        let out = self.known.held_out.iter();
        let out: Vec<String> =
            out.map(|out| format!("{:.0} % with {} left out", out.pct.ceil(), out.by)).collect();
        (!out.is_empty()).then(|| out.join(", "))
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.known.place(), self.known.set)
    }
}

/// True for a built-in mixture of experts.
pub(super) fn has_experts(model: &str) -> bool {
    built_in(model).is_some_and(|shape| shape.experts.is_some())
}

/// Validation of a simulated cell in words: `fitted to these runs (mean TPOT error 2 %; ...): gpt-fast on h100_sxm
/// (paper_70b)`, `5 % mean TPOT error with each TP left out: ...`, or `not validated for ...`.
pub fn nearest_error(spec: &Spec) -> String {
    Trust::from_spec(spec).with_other_version(spec).to_string()
}

/// Validations of the simulated ones of these cells, one line each, with their numbers of cells if there are several.
pub fn nearest_errors<'a>(specs: impl IntoIterator<Item = &'a Spec>) -> Vec<String> {
    let (groups, total) = grouped(specs);
    let is_only = groups.len() == 1;
    groups.iter().map(|(cells, trust)| line(trust.to_string(), *cells, total, is_only)).collect()
}

/// Text about some of several cells, or about the only group of them.
fn line(text: String, cells: usize, total: usize, is_only: bool) -> String {
    if is_only { text } else { format!("{cells} of {}: {text}", counted(total, "cell")) }
}

/// What the errors in [`short_badge`] rest on, why cells have none, and links that other GPUs stand in for, one line each:
/// `60 of 80 cells: fitted to gpt-fast on h100_sxm (paper_70b)`.
pub fn evidence<'a>(specs: impl IntoIterator<Item = &'a Spec> + Clone) -> Vec<String> {
    let (groups, total) = grouped(specs.clone());
    let is_fitted = |known: &KnownError| {
        groups
            .iter()
            .any(|(_, trust)| matches!(trust, Trust::Fitted(of) if std::ptr::eq(of.known, known)))
    };
    let evidence = |(cells, trust): &(usize, Trust)| {
        let text = match trust {
            Trust::Fitted(of) => format!("fitted to {of}"),
            // the line of the fitted cells has the same source
            Trust::HeldOut(of) if is_fitted(of.known) => return None,
            Trust::HeldOut(of) => {
                let by = of.held_out.map_or("", |out| &out.by);
                format!("{} error of {of} with {by} left out of the fit", of.known.measure.title())
            }
            Trust::NotValidated(_) => trust.to_string(),
        };
        Some(line(text, *cells, total, groups.len() == 1))
    };
    groups.iter().filter_map(evidence).chain(stand_ins(specs)).collect()
}

/// Words beside the result of these cells; `None` if none of them is simulated: `mean error 2 % on cells used for
/// calibration`, or with several validations `mean error 2 % on 60 cells used for calibration, 12 % on 8 cells with each TP
/// left out, 20 cells not validated`, without errors of a cell or two. Prefills alone add the error of the first token.
pub fn badge<'a>(specs: impl IntoIterator<Item = &'a Spec>) -> Option<String> {
    let specs: Vec<&Spec> = specs.into_iter().filter(|spec| spec.backend.is_simulated()).collect();
    let (groups, _) = grouped(specs.iter().copied());
    let mut by: Vec<(&Trust, usize)> = Vec::new();
    for (cells, trust) in &groups {
        match by.iter_mut().find(|(known, _)| known.badge() == trust.badge()) {
            Some((_, known)) => *known += cells,
            None => by.push((trust, *cells)),
        }
    }
    let mut is_first = true;
    by.retain(|(trust, cells)| {
        std::mem::take(&mut is_first) || *cells >= LEAST_CELLS || matches!(trust, Trust::NotValidated(_))
    });
    let badge = match by.as_slice() {
        [] => return None,
        [(trust, _)] => trust.badge(),
        several => {
            let badges = several.iter().enumerate();
            let badges = badges.map(|(at, (trust, cells))| trust.badge_of(*cells, at == 0));
            badges.collect::<Vec<_>>().join(", ")
        }
    };
    let stand_ins = stand_ins(specs.iter().copied());
    let more = [first_tokens(&specs), reversed_orders(specs)].into_iter().flatten().chain(stand_ins);
    Some(std::iter::once(badge).chain(more).collect::<Vec<_>>().join(", "))
}

/// Error of the first token of prefills alone: `TTFT error 38 % in serving_moe`.
fn first_tokens(specs: &[&Spec]) -> Option<String> {
    let are_prefills = specs.iter().all(|spec| spec.output_tokens == 1);
    let band = are_prefills.then(|| TieBand::of_first_tokens(specs.iter().copied()));
    let band = band.filter(|band| matches!(band.basis, TieBandBasis::FirstTokens(Some(_))));
    band.map(TieBand::words)
}

/// Trust line of a card: the error of the headline's cells, and the largest of the others or, if all are fitted, of rows
/// that were left out of the fit: `TPOT off by 2 % on fitted cells, 12 % on batch sizes left out, 20 of 80 cells
/// not validated; ladder/parallel order reversed in 5 of 14 published pairs`, or `this cell is not validated, TPOT off by ...`.
pub fn short_badge(specs: &[&Spec], headline: &[&Spec]) -> Option<String> {
    let (groups, total) = grouped(specs.iter().copied());
    if groups.is_empty() {
        return None;
    }
    let error = |trust: &Trust| match trust {
        Trust::Fitted(of) | Trust::HeldOut(of) => Some(*of),
        Trust::NotValidated(_) => None,
    };
    let mut errors: Vec<Evidence> = groups.iter().filter_map(|(_, trust)| error(trust)).collect();
    if errors.iter().all(|of| of.held_out.is_none()) {
        // the fit says less than rows that were left out of it
        let known: Vec<&'static KnownError> = errors.iter().map(|of| of.known).collect();
        let left_out = |known: &'static KnownError| {
            known.held_out.iter().map(move |out| Evidence { known, held_out: Some(out) })
        };
        errors.extend(known.into_iter().flat_map(left_out));
    }
    errors.sort_by(|a, b| a.pct().total_cmp(&b.pct()));
    // a speedup is as good as the less validated of its cells
    let own = headline.iter().map(|spec| Trust::from_spec(spec)).max_by_key(Trust::rank);
    let first = own.as_ref().and_then(error).or_else(|| errors.first().copied());
    let badge = match first {
        None => "not validated".to_owned(),
        Some(of) => {
            // the worst error of the others, or the best one beside the worst
            let mut others = errors.iter().rev();
            let other = others.find(|other| other.percent() != of.percent());
            let other =
                other.map_or_else(String::new, |of| format!(", {} on {}", of.percent(), of.cells()));
            let own = match own {
                Some(Trust::NotValidated(_)) => "this cell is not validated, ",
                _ => "",
            };
            let unknown = groups.iter().filter(|(_, trust)| matches!(trust, Trust::NotValidated(_)));
            let unknown = match unknown.map(|(cells, _)| cells).sum::<usize>() {
                0 => String::new(),
                cells => format!(", {cells} of {} not validated", counted(total, "cell")),
            };
            let (measure, percent) = (of.known.measure.title(), of.percent());
            format!("{own}{measure} off by {percent} on {}{other}{unknown}", of.cells())
        }
    };
    let order = reversed_order(specs.iter().copied()).map(KnownOrder::words);
    let more = [first_tokens(specs), order].into_iter().flatten();
    Some(std::iter::once(badge).chain(more).collect::<Vec<_>>().join("; "))
}

/// Links of these simulated cells that other GPUs stand in for: `P2P off on a100_sxm is a stand-in: all-reduces of l40s`.
pub fn stand_ins<'a>(specs: impl IntoIterator<Item = &'a Spec>) -> BTreeSet<String> {
    let is_native = |spec: &&Spec| {
        let sets_link = spec.set.keys().any(|key| key.starts_with("link."));
        spec.backend.is_simulated() && spec.ranks() > 1 && !spec.link.is_emulated() && !sets_link
    };
    let links = specs.into_iter().filter(is_native);
    let links: BTreeSet<_> =
        links.map(|spec| (spec.hardware.as_str(), p2p_of(spec), spec.collective, spec.tp)).collect();
    let words = links.into_iter().filter_map(|(hardware, p2p, collective, tp)| {
        let profile = Profile::load(hardware).ok()?;
        let source = profile.stand_in(collective, p2p, tp)?;
        Some(format!("P2P {} on {} is a stand-in: {source}", p2p.as_str(), profile.name))
    });
    words.collect()
}

/// Warning on these simulated cells if two of their architectures rank otherwise in published pairs:
/// `ladder/parallel order reversed in 5 of 14 published pairs (gpt-fast on h100_sxm)`.
pub fn reversed_orders<'a>(specs: impl IntoIterator<Item = &'a Spec>) -> Option<String> {
    let order = reversed_order(specs)?;
    Some(format!("{} ({} on {})", order.words(), order.stack, order.hardware))
}

fn reversed_order<'a>(specs: impl IntoIterator<Item = &'a Spec>) -> Option<&'static KnownOrder> {
    let simulated = specs.into_iter().filter(|spec| spec.backend.is_simulated());
    let names: BTreeSet<String> = simulated
        .map(|spec| spec.architecture.to_string())
        .map(|name| name.split_once(':').map_or(name.clone(), |(family, _)| family.to_owned()))
        .collect();
    let is_ranked = |order: &&KnownOrder| order.architectures.iter().all(|name| names.contains(name));
    KNOWN.orders.iter().find(is_ranked)
}

/// Simulated cells by validation, the best validated first, and their number. All cells that are not validated with one
/// hardware and stack are a group, named by the first.
fn grouped<'a>(specs: impl IntoIterator<Item = &'a Spec>) -> (Vec<(usize, Trust)>, usize) {
    let mut by: BTreeMap<(u8, String), (usize, Trust)> = BTreeMap::new();
    let mut total = 0;
    for spec in specs.into_iter().filter(|spec| spec.backend.is_simulated()) {
        let place = format!("{} on {}", spec.stack, spec.hardware);
        let (trust, text) = match Trust::from_spec(spec) {
            Trust::NotValidated(why) if why == NOTHING_MEASURED => {
                (Trust::NotValidated(format!("for stack {place}")), place)
            }
            trust @ Trust::NotValidated(_) => (trust, place),
            trust => {
                let text = trust.to_string();
                (trust, text)
            }
        };
        let group = by.entry((trust.rank(), text));
        group.or_insert_with(|| (0, trust.with_other_version(spec))).0 += 1;
        total += 1;
    }
    (by.into_values().collect(), total)
}

/// Smallest simulated lead that is called one: the error of simulated ratios near the compared cells, rounded up to a
/// whole percent; [`Self::UNKNOWN`] if none was measured there. From a trace it is the error of the nearest validated traces.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TieBand {
    /// Lead, as a share.
    pub share: f64,
    pub(super) basis: TieBandBasis,
}

/// Measurements that a band rests on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum TieBandBasis {
    /// Speedups near all compared cells.
    Speedups,
    /// None near some cell.
    Unknown,
    /// First tokens: near the cells, or of a set of similar cells.
    FirstTokens(Option<&'static str>),
    /// Rewired traces that were compared with measured runs.
    RewiredTraces,
}

impl TieBand {
    /// Band of cells that no measured speedup covers: twice the mean error of the paper's speedups with each TP held
    /// out (2.5 %), as other models, engines and hardware are farther from the fit.
    pub const UNKNOWN: Self = Self { share: 0.05, basis: TieBandBasis::Unknown };

    /// Band of a simulated cell: of its speedups, or of its first token if it decodes nothing.
    pub fn from_spec(spec: &Spec) -> Self {
        match spec.output_tokens {
            ..=1 => Self::of_first_tokens([spec]),
            _ => Self::from_specs([spec]),
        }
    }

    /// Band of the ratio of two cells, each with its own band: unknown if one is, else the wider. A third cell without a
    /// measured speedup does not widen it, so that all comparisons of the two agree.
    pub fn between(self, other: Self) -> Self {
        if [self, other].contains(&Self::UNKNOWN) { Self::UNKNOWN } else { self.wider(other) }
    }

    /// Band of the speedups of simulated cells: the widest of theirs.
    pub fn from_specs<'a>(specs: impl IntoIterator<Item = &'a Spec>) -> Self {
        let mut share: f64 = 0.0;
        for spec in specs {
            let Some(error) = Trust::from_spec(spec).speedup_error() else { return Self::UNKNOWN };
            share = share.max(error);
        }
        Self { share, basis: TieBandBasis::Speedups }
    }

    /// Band of the first tokens of simulated cells: the widest of theirs. The published rows have no speedups of first
    /// tokens, so it is the error of their latency.
    pub fn of_first_tokens<'a>(specs: impl IntoIterator<Item = &'a Spec>) -> Self {
        let bands = specs.into_iter().map(|spec| match Trust::from_spec(spec).prefill_error() {
            Some(share) => Self { share, basis: TieBandBasis::FirstTokens(None) },
            None => FirstTokenError::from_spec(spec).map_or(Self::UNKNOWN, |error| Self {
                share: error.pct.ceil() / 100.0,
                basis: TieBandBasis::FirstTokens(Some(&error.set)),
            }),
        });
        bands.reduce(Self::wider).unwrap_or(Self::UNKNOWN)
    }

    /// Band of predictions from a measured trace: the mean error that [`rewired_error`] states, rounded up to a whole percent.
    pub(crate) fn of_rewired(hardware: Option<&str>, changes: &Changes) -> Self {
        known_rewiring(hardware, changes).map_or(Self::UNKNOWN, |known| Self {
            share: known.pct.ceil() / 100.0,
            basis: TieBandBasis::RewiredTraces,
        })
    }

    /// True if the ratio of two throughputs or latencies lies within the band.
    pub fn holds(self, ratio: f64) -> bool {
        ratio.max(1.0 / ratio) - 1.0 < self.share
    }

    /// Reason of the width, after the name of what ties: `error of speedups measured near them`.
    pub fn reason(self) -> &'static str {
        match self.basis {
            TieBandBasis::Speedups => "error of speedups measured near them",
            TieBandBasis::Unknown => "no speedup measured near some of them",
            TieBandBasis::FirstTokens(_) => "error of measured first tokens",
            TieBandBasis::RewiredTraces => "error of predictions from validated traces",
        }
    }

    /// Error of a ratio in words: `simulator error 2 %`, `simulator error unknown, ties within 5 %`, `TTFT error
    /// 38 % in serving_moe`.
    pub fn words(self) -> String {
        let pct = 100.0 * self.share;
        match self.basis {
            TieBandBasis::Speedups => format!("simulator error {pct:.0} %"),
            TieBandBasis::Unknown => format!("simulator error unknown, ties within {pct:.0} %"),
            TieBandBasis::FirstTokens(None) => format!("simulator TTFT error {pct:.0} %"),
            TieBandBasis::FirstTokens(Some(set)) => format!("TTFT error {pct:.0} % in {set}"),
            TieBandBasis::RewiredTraces => format!("prediction error {pct:.0} %"),
        }
    }

    pub fn wider(self, other: Self) -> Self {
        if self.share < other.share { other } else { self }
    }

    /// Verdict on leads within this band: `too close to call (simulator error 2 %)`.
    pub fn too_close(self) -> String {
        format!("too close to call ({})", self.words())
    }

    /// Width in words: `2 %`.
    pub fn pct(self) -> String {
        // without the binary form of the share
        format!("{} %", (1000.0 * self.share).round() / 10.0)
    }

    /// Width in words: `within 2 %`.
    pub fn within(self) -> String {
        format!("within {}", self.pct())
    }
}

/// Error of the rewired steps of a trace, in words: traces of standard on this hardware, compared with runs of the other
/// wirings, to which nothing was fitted. Their links are emulated, so it is that of predictions without contention.
pub(crate) fn rewired_error(hardware: Option<&str>, changes: &Changes) -> String {
    if let Changes { uncovered: Some(what), .. } = changes {
        return format!("not validated for {what}");
    }
    let title =
        if changes.other_reduces { "rewired traces with another link" } else { "rewired traces" };
    let Some(known) = known_rewiring(hardware, changes) else {
        return Trust::NotValidated(NOTHING_MEASURED.into()).to_string();
    };
    let (measure, pct) = (known.measure.title(), known.pct.ceil());
    let hardware = &known.hardware;
    let contention = match changes.is_contended {
        true => "validated without contention, which this prediction adds",
        false => "no contention",
    };
    format!(
        "{pct:.0} % mean {measure} error, not fitted: {title} on {hardware}, emulated link, {contention}"
    )
}

/// Error of the validated traces nearest to a rewired one; `None` if none covers its hardware and changes.
fn known_rewiring(hardware: Option<&str>, changes: &Changes) -> Option<&'static KnownError> {
    let hardware = hardware.filter(|_| changes.uncovered.is_none())?;
    known_errors().iter().find(|known| {
        known.stack == REWIRE
            && known.hardware == Profile::canonical_name(hardware)
            && known.other_reduces == changes.other_reduces
    })
}

/// Changes of a rewired trace that its error depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// True if the all-reduces are not those of the trace.
    pub(crate) other_reduces: bool,
    /// Change that no validated trace has: `another TP`.
    pub(crate) uncovered: Option<&'static str>,
    /// True if the prediction adds contention between the lanes.
    pub(crate) is_contended: bool,
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use super::*;
    use plan::{Architecture, DType, LayerSet};
    use table::{Backend, P2p};

    fn paper(tp: u32, batch: u32, p2p: P2p) -> Spec {
        Spec {
            model: "llama-3-70b".into(),
            stack: "gpt-fast".into(),
            hardware: "H100-SXM".into(),
            dtype: DType::F16,
            architecture: Architecture::Ladder(LayerSet::All),
            tp,
            batch,
            p2p,
            ..Spec::default()
        }
    }

    #[test]
    fn published_cells_are_fitted_their_neighbours_held_out_and_others_not_validated() {
        for p2p in [P2p::On, P2p::Off] {
            let said = nearest_error(&paper(8, 1, p2p));
            assert_eq!(
                said,
                "fitted to these runs (mean TPOT error 2 %; 5 % with each TP left out, 12 % with each batch \
                 size left out): gpt-fast on h100_sxm (paper_70b)"
            );
        }
        let between = Trust::from_spec(&paper(8, 4, P2p::On));
        assert_eq!(between.badge(), "mean error 12 % on cells not used for calibration");
        assert!(
            between
                .to_string()
                .starts_with("12 % mean TPOT error with each batch size left out: gpt-fast")
        );
        // TP 2 was measured, but not with this batch
        let badge = |spec: &Spec| Trust::from_spec(spec).badge();
        assert_eq!(badge(&paper(2, 16, P2p::On)), "mean error 5 % on cells not used for calibration");
        let fitted = Trust::from_spec(&paper(8, 1, P2p::Off));
        assert_eq!(fitted.with_left_out(), "error 2 % on fitted cells, 12 % on batch sizes left out");
        assert_eq!(between.with_left_out(), between.badge());
        // P2P changes nothing without communication
        let limit = Spec { architecture: Architecture::UpperBound, ..paper(8, 16, P2p::Off) };
        assert_eq!(badge(&limit), "mean error 2 % on cells used for calibration");
        let bf16 = Spec { dtype: DType::Bf16, ..paper(8, 1, P2p::On) };
        assert_eq!(badge(&bf16), "mean error 2 % on cells used for calibration");
        let desync: Architecture = "desync:4".parse().unwrap();
        for (spec, why) in [
            (paper(16, 1, P2p::On), "TP 16"),
            (paper(8, 128, P2p::On), "batch 128"),
            (Spec { architecture: desync, ..paper(8, 1, P2p::On) }, "desync:4"),
            (Spec { model: "llama-3-8b".into(), ..paper(8, 1, P2p::On) }, "llama-3-8b"),
            (Spec { prompt_tokens: 2048, ..paper(8, 1, P2p::On) }, "prompts of 2048 tokens"),
            (Spec { output_tokens: 1, ..paper(8, 1, P2p::On) }, "outputs of 1 token"),
        ] {
            let said = nearest_error(&spec);
            assert_eq!(said, format!("not validated for {why} with gpt-fast on h100_sxm"));
            assert_eq!(Trust::from_spec(&spec).badge(), "not validated");
        }
        let mut set = BTreeMap::new();
        for (key, why) in [
            ("link.alpha_us", "at another all-reduce latency"),
            ("link.nccl.tp.8.large.alpha_us", "at another all-reduce latency"),
            ("hbm_gb_s", "at another all-reduce latency and memory bandwidth"),
            ("sms", "at another all-reduce latency, memory bandwidth and sms"),
            ("peak_tflops", "with other values of hardware or stack"),
        ] {
            set.insert(key.to_owned(), "1000".to_owned());
            let changed = nearest_error(&Spec { set: set.clone(), ..paper(8, 1, P2p::On) });
            assert_eq!(changed, format!("not validated {why}"));
        }
    }

    #[test]
    fn served_cells_are_validated_with_the_engines_own_models_and_all_reduces() {
        let of = |model: &str, stack: &str, change: fn(&mut Spec)| {
            let mut spec = Spec {
                model: model.into(),
                stack: stack.into(),
                tp: 4,
                concurrency: 16,
                output_tokens: 1024,
                collective: table::Collective::OneShot,
                ..Spec::default()
            };
            change(&mut spec);
            nearest_error(&spec)
        };
        assert!(of("qwen3-32b", "vllm-0.12", |_| ()).contains("vLLM 0.12 on h100_sxm (serving_dense)"));
        for (change, why) in [
            (
                (|spec| spec.architecture = Architecture::Ladder(LayerSet::All)) as fn(&mut Spec),
                "ladder",
            ),
            (|spec| spec.collective = table::Collective::Nccl, "nccl all-reduces"),
            (|spec| spec.concurrency = 0, "static batches"),
        ] {
            let said = of("qwen3-32b", "vllm-0.12", change);
            assert!(said.starts_with(&format!("not validated for {why} with vLLM 0.12")), "{said}");
        }
        // the engine's rows are of one model
        assert!(of("llama-3-8b", "vllm-0.12", |_| ()).starts_with("not validated for llama-3-8b"));
        for (stack, hardware) in [("native", "h100_sxm"), ("vllm-0.12", "l40s")] {
            let spec = Spec { stack: stack.into(), hardware: hardware.into(), ..Spec::default() };
            assert_eq!(nearest_error(&spec), "not validated for this hardware and engine");
        }
        let experts = of("gpt-oss-120b", "vllm-0.12", |_| ());
        // its rows on this GPU are of a newer version
        let wanted = "not validated for gpt-oss-120b with vLLM 0.12 on h100_sxm; published rows of this model are of \
                      vllm-0.15 (30 rows with 9 % mean TPOT error)";
        assert_eq!(experts, wanted);
        // this version has no rows on this GPU, and the other one's are of several models
        let trtllm = of("qwen3-32b", "trtllm-1.1", |_| ());
        let wanted = "not validated for this hardware and engine; published rows of this model are of trtllm-1.0 (117 of \
                      its 235 rows, which have 5 % mean TPOT error)";
        assert_eq!(trtllm, wanted);
        let cells = [
            Spec { model: "qwen3-32b".into(), stack: "trtllm-1.1".into(), ..Spec::default() },
            Spec { stack: "native".into(), ..Spec::default() },
        ];
        let lines = nearest_errors(&cells).join("\n");
        assert!(lines.contains("not validated for stack trtllm-1.1 on h100_sxm; published"), "{lines}");
        // stacks without a version are no versions of one engine
        let rows = known_errors().iter().find(|known| known.stack == "lmdeploy").unwrap().rows();
        for stack in ["native", "gpt-fast"] {
            let said = nearest_error(&Spec { stack: stack.into(), ..rows[0].clone() });
            assert!(!said.contains("published rows"), "{said}");
        }
    }

    #[test]
    fn links_of_other_gpus_are_named_once() {
        let of = |hardware: &str, p2p, tp| Spec { hardware: hardware.into(), ..paper(tp, 1, p2p) };
        let cells =
            [of("a100_sxm", P2p::On, 8), of("a100_sxm", P2p::Off, 8), of("a100_sxm", P2p::Off, 4)];
        let wanted = "P2P off on a100_sxm is a stand-in: all-reduces of PCIe 4 GPUs without NVLink (l40s, NCCL 2.27.3)";
        assert_eq!(stand_ins(&cells), [wanted.to_owned()].into());
        assert!(badge(&cells).unwrap().ends_with(wanted), "{:?}", badge(&cells));
        assert_eq!(evidence(&cells).last().map(String::as_str), Some(wanted));
        assert_eq!(
            stand_ins(&[of("h100_sxm", P2p::Off, 8), of("a100_sxm", P2p::Off, 1)]),
            BTreeSet::new()
        );
    }

    #[test]
    fn results_of_several_cells_say_how_many_are_validated() {
        let desync: Architecture = "desync:4".parse().unwrap();
        let cells = [
            paper(8, 1, P2p::On),
            paper(8, 4, P2p::On),
            paper(8, 1, P2p::Off),
            Spec { architecture: desync, ..paper(8, 1, P2p::On) },
            Spec { stack: "native".into(), ..paper(8, 1, P2p::On) },
        ];
        assert_eq!(badge(&cells[..1]).unwrap(), "mean error 2 % on cells used for calibration");
        assert_eq!(
            badge(&cells).unwrap(),
            "mean error 2 % on 2 cells used for calibration, 2 cells not validated"
        );
        let several = [2, 4, 8].map(|batch| paper(8, batch, P2p::On));
        assert_eq!(
            badge(cells[..1].iter().chain(&several)).unwrap(),
            "mean error 2 % on 1 cell used for calibration, 12 % on 3 cells with each batch size left out"
        );
        let all: Vec<&Spec> = cells.iter().collect();
        let fitted = "TPOT off by 2 % on fitted cells, 12 % on batch sizes left out";
        let short = format!("{fitted}, 2 of 5 cells not validated");
        let short = short.as_str();
        assert_eq!(short_badge(&all, &[]).as_deref(), Some(short));
        assert_eq!(short_badge(&all, &all[..1]).as_deref(), Some(short));
        assert_eq!(short_badge(&all[..1], &[]).as_deref(), Some(fitted), "also without such cells");
        assert_eq!(short_badge(&all[4..], &[]).as_deref(), Some("not validated"));
        // the headline's cell comes first
        let unseen = "TPOT off by 12 % on batch sizes left out, 2 % on fitted cells, 2 of 5 cells not \
                      validated";
        assert_eq!(short_badge(&all, &all[1..2]).as_deref(), Some(unseen));
        let unknown = format!("this cell is not validated, {short}");
        assert_eq!(short_badge(&all, &[all[0], all[3]]).as_deref(), Some(unknown.as_str()));
        let lines = nearest_errors(&cells);
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert!(lines[0].starts_with("2 of 5 cells: fitted to these runs"), "{lines:?}");
        assert_eq!(lines[3], "1 of 5 cells: not validated for stack native on H100-SXM");
        // beside the badge, each error is said once
        let fit = "2 of 5 cells: fitted to gpt-fast on h100_sxm (paper_70b)";
        let said = evidence(&cells);
        assert_eq!(said[0], fit);
        assert_eq!(said[1..], lines[2..]);
        let held_out =
            "TPOT error of gpt-fast on h100_sxm (paper_70b) with each batch size left out of the fit";
        assert_eq!(evidence(&cells[1..2]), [held_out]);
        let measured = Spec { backend: Backend::Cpu, ..Spec::default() };
        assert_eq!((badge([&measured]), nearest_errors([&measured])), (None, Vec::new()));
    }

    #[test]
    fn a_ranking_of_ladder_and_parallel_says_how_often_their_published_order_is_reversed() {
        let ladder = paper(8, 1, P2p::On);
        let parallel = Spec { architecture: Architecture::Parallel, ..ladder.clone() };
        let badge = badge([&ladder, &parallel]).unwrap();
        let reversed =
            ", ladder/parallel order reversed in 5 of 14 published pairs (gpt-fast on h100_sxm)";
        assert_eq!(badge, format!("mean error 2 % on cells used for calibration{reversed}"));
        let other = paper(8, 4, P2p::On);
        let short = short_badge(&[&ladder, &parallel, &other], &[]).unwrap();
        assert!(
            short.ends_with("; ladder/parallel order reversed in 5 of 14 published pairs"),
            "{short}"
        );
        let measured = Spec { backend: Backend::Cpu, ..parallel };
        assert_eq!(reversed_orders([&ladder, &measured]), None);
    }

    #[test]
    fn ties_are_as_wide_as_the_error_of_the_cells_and_wider_if_nothing_covers_them() {
        let [fitted, held_out] = [1, 4].map(|batch| paper(8, batch, P2p::On));
        let native = Spec { stack: "native".into(), ..fitted.clone() };
        assert_eq!(TieBand::from_specs([&fitted]).words(), "simulator error 2 %");
        assert_eq!(TieBand::from_specs([&fitted, &held_out]).words(), "simulator error 3 %");
        let unknown = TieBand::from_specs([&fitted, &native]);
        assert_eq!(unknown.words(), "simulator error unknown, ties within 5 %");
        assert!(unknown.holds(1.049) && !unknown.holds(1.051) && unknown.holds(1.0 / 1.049));
        assert_eq!(unknown.within(), "within 5 %");
    }

    #[test]
    fn first_tokens_tie_within_the_error_of_measured_first_tokens() {
        let of = |model: &str, stack: &str, concurrency| Spec {
            model: model.into(),
            stack: stack.into(),
            concurrency,
            prompt_tokens: 4096,
            output_tokens: 1,
            ..Spec::default()
        };
        let mixture = of("gpt-oss-120b", "native", 0);
        let served = of("qwen3-32b", "vllm-0.12", 16);
        let dense = of("llama-3-8b", "native", 0);
        let words = |specs: &[&Spec]| TieBand::of_first_tokens(specs.iter().copied()).words();
        assert_eq!(words(&[&mixture, &dense]), "TTFT error 38 % in serving_moe");
        assert_eq!(words(&[&served]), "TTFT error 18 % in serving_dense");
        assert_eq!(words(&[&dense]), "TTFT error 5 % in paper_70b");
        assert_eq!(badge([&mixture]).unwrap(), "not validated, TTFT error 38 % in serving_moe");
        let decoding = Spec { output_tokens: 9, ..mixture };
        assert_eq!(badge([&decoding]).unwrap(), "not validated");
        // the published prefills of this stack
        let rows = known_errors().iter().find(|known| known.measure == Measure::Prefill).unwrap().rows();
        assert_eq!(words(&[&rows[0]]), "simulator TTFT error 3 %");
        assert_eq!(badge(&rows[..1]).unwrap(), "mean error 3 % on cells used for calibration");
    }

    #[test]
    fn errors_without_rows_and_values_that_no_row_has_validate_nothing() {
        let known =
            KnownError { set: "no such set".into(), rows: OnceLock::new(), ..known_errors()[0].clone() };
        let known: &'static KnownError = Box::leak(Box::new(known));
        let (trust, _) = known.trust(&paper(8, 1, P2p::On));
        assert_eq!(trust.to_string(), "not validated with gpt-fast on h100_sxm");
        // formats are held out, but no row has f32
        let rows = known_errors().iter().find(|known| known.stack == "vllm-0.10").unwrap().rows();
        let row = rows.iter().find(|row| row.tp == 4).unwrap();
        let other = Spec { prompt_tokens: row.prompt_tokens + 1, ..row.clone() };
        assert!(matches!(Trust::from_spec(&other), Trust::HeldOut(_)), "{}", Trust::from_spec(&other));
        let f32 = Spec { dtype: DType::F32, ..other };
        assert!(matches!(Trust::from_spec(&f32), Trust::NotValidated(_)), "{}", Trust::from_spec(&f32));
    }
}
