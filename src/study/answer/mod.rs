//! Result of a set of runs as a card: who wins and by how much, how far to trust it, and at most three bullets (failures,
//! in how many settings it wins, where others win, P2P); then details and a table.
//!
//! Rules over comparisons produce the text, so a sweep's end, a stored experiment and the report all show the same.
//! `upper-bound` is a limit and never wins.
//!
//! An answer is about the runs of one provenance and machine. A warning says that the machine was too busy, from the signs
//! of [noise](crate::analysis); simulations have none. The quality cost of the fastest architecture is added, since that
//! is a different network than `standard`.

mod question;

pub use question::{RUN_AGAIN, headlines, headlines_of_all};

use std::collections::BTreeMap;

use self::question::{ComparisonQuestion, MOST_NAMED};
use crate::analysis::{
    Axis, Cells, Comparison, ComparisonReport, Flag, FlagKind, Side, Varied, is_measured_apart,
    is_of_debug_build, load_words, overload, slow_limit, wide_rounds,
};
use crate::validate::{evidence, short_badge};
use base::statistics::{LEAST_SAMPLES, distinct};
use base::text::{capitalized, counted};
use table::render::Table;
use table::{
    CellRuns, Link, P2p, Provenance, Record, RunQuality, Spec, Status, aggregate, host, tokens_per_s,
};

/// Maximum number of runs for an answer in sentences; larger grids need comparisons and the report.
pub const MOST_RUNS: usize = 10_000;

/// Definition of the share of the gap on a card.
const GAP: &str =
    "Gap closed: share of upper-bound's TPOT saving over standard that an architecture reaches.";

/// Origin of the shares of communication on a card of runs that were executed.
const LANES: &str = "Exposed and hidden: recorded lanes, so noise in TPOT can contradict them.";

/// Largest relative difference between a measured ratio of tokens/s and the one computed from prefill and TPOT that is not
/// called noise.
const UNEXPLAINED: f64 = 0.03;

/// Separates, in an answer's basis, how far to trust the numbers from the cells that they are about.
const SCOPE: &str = " · ";

/// Maximum number of bullets on a card.
const MOST_BULLETS: usize = 3;

/// Result of a set of runs: a card of a headline, a badge of trust and a few bullets; details and a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Headline: the winner, its lead and the settings.
    pub headline: String,
    pub provenance: Option<Provenance>,
    /// Provenance with its error or number of samples, cells, and the settings that all cells share.
    pub basis: String,
    /// Why the numbers are not trustworthy, and what to do.
    pub noise: Option<String>,
    /// Bullets on failures, wins, other winners and P2P: at most three.
    pub bullets: Vec<String>,
    pub details: Vec<String>,
    /// Cells with their ratios, in the order of the comparison; at most twelve rows.
    pub table: Table,
    pub left_out: OmittedRows,
    /// Key of the headline's cell; `None` without a winner.
    pub lead: Option<String>,
    /// Axis of the comparison, in the syntax of `compare --by`; empty without a comparison.
    pub by: String,
}

/// Part of a comparison that the table of its answer leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OmittedRows {
    /// Rows.
    pub cells: usize,
    /// Rows of the settings that are shown: their slowest choices.
    pub choices: usize,
    /// Settings, of `all_settings`; 0 if only some choices of the one setting are left out.
    pub settings: usize,
    pub all_settings: usize,
}

impl OmittedRows {
    /// `17 more settings`; `None` if the table is whole.
    pub fn words(self) -> Option<String> {
        let settings = counted(self.settings, "more setting");
        let more = match (self.settings, self.choices) {
            (0, _) => counted(self.cells, "more cell"),
            (_, 0) => settings,
            (_, choices) => format!("{} and {settings}", counted(choices, "slower choice")),
        };
        (self.cells > 0).then_some(more)
    }

    /// Words before the values that the table's rows share: `3 of 20 settings, the largest gains; all with`.
    fn common_head(self, rows: usize) -> String {
        let Self { cells, settings, all_settings, .. } = self;
        match (settings, cells) {
            (0, 0) => format!("all {rows} cells:"),
            (0, cells) => format!("{rows} of {} cells, all with", rows + cells),
            _ => format!(
                "{} of {all_settings} settings, the largest gains; all with",
                all_settings - settings
            ),
        }
    }
}

/// Line of a card, for its style.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CardLine {
    Headline,
    Basis(Option<Provenance>),
    Noise,
    Bullet,
}

impl Answer {
    /// Answers the runs of each provenance and machine separately; numbers of different origin are never
    /// compared. The first answer also counts the runs without numbers.
    pub fn from_records(records: Vec<Record>) -> Vec<Self> {
        let (with, without): (Vec<Record>, Vec<Record>) =
            records.into_iter().partition(Record::has_numbers);
        let mut origins: BTreeMap<(Provenance, Option<String>), Vec<Record>> = BTreeMap::new();
        for record in with {
            origins.entry((record.provenance, host(&record))).or_default().push(record);
        }
        let mut unfinished = Unfinished::from_records(&without, !origins.is_empty());
        if origins.is_empty() && !without.is_empty() {
            let Unfinished { failed, others, reasons } = unfinished;
            let bullets = [failed, others, reasons].into_iter().flatten().collect();
            return vec![Self { headline: "No run has results.".into(), bullets, ..Self::default() }];
        }
        let several = origins.len() > 1;
        let answer = |((provenance, host), records): (&(Provenance, Option<String>), &Vec<Record>)| {
            let is_own = |record: &&Record| {
                record.provenance == *provenance
                    && table::host(record).is_none_or(|of| Some(of) == *host)
            };
            let missing: Vec<&Record> = without.iter().filter(is_own).collect();
            let host = host.as_deref().filter(|_| several);
            let unfinished = std::mem::take(&mut unfinished);
            Self::of_origin(records, &missing, *provenance, host, unfinished)
        };
        origins.iter().map(answer).collect()
    }

    /// How far to trust the numbers, and the cells that they are about.
    pub fn trust_and_scope(&self) -> (&str, &str) {
        self.basis.split_once(SCOPE).unwrap_or((&self.basis, ""))
    }

    /// Lines of the card, in order.
    pub fn card(&self) -> impl Iterator<Item = (CardLine, &str)> {
        let basis = Some(self.basis.as_str()).filter(|basis| !basis.is_empty());
        let basis = basis.map(|basis| (CardLine::Basis(self.provenance), basis));
        let noise = self.noise.as_deref().map(|noise| (CardLine::Noise, noise));
        let bullets = self.bullets.iter().map(|bullet| (CardLine::Bullet, bullet.as_str()));
        [(CardLine::Headline, self.headline.as_str())]
            .into_iter()
            .chain(basis)
            .chain(noise)
            .chain(bullets)
    }

    /// Answers the runs of one provenance and machine, of which `missing` have no numbers; `host` is given only if there
    /// are several machines.
    fn of_origin(
        records: &[Record],
        missing: &[&Record],
        provenance: Provenance,
        host: Option<&str>,
        unfinished: Unfinished,
    ) -> Self {
        let cells = Cells::from_records(records);
        let varied = Varied::from_specs(cells.specs());
        let axes = cells.axes();
        let has = |axis: &Axis| axes.iter().any(|count| count.axis == *axis && !count.pairs.is_empty());
        let natural = [Axis::ARCHITECTURE, Axis::P2P].into_iter().find(has);
        let first = || axes.iter().find(|count| !count.pairs.is_empty()).map(|count| count.axis.clone());
        let compared = natural.or_else(first).and_then(|axis| {
            let report = cells.compare(&axis, None).ok()?;
            Some((axis, report))
        });
        // most important first
        let mut bullets: Vec<String> =
            unfinished.failed.into_iter().chain(unfinished_repetition(records)).collect();
        let Some((axis, report)) = compared else {
            let (headline, more) = alone(records);
            let noise = noise(records, &varied, None);
            bullets.extend(more);
            bullets.extend(unfinished.others);
            return Self {
                headline,
                provenance: Some(provenance),
                basis: basis(records, &cells, &varied, host, (None, false), noise.is_some()),
                noise,
                bullets,
                details: Vec::from_iter(unfinished.reasons),
                ..Self::default()
            };
        };
        let settings = varied.without(&axis);
        let question = ComparisonQuestion::new(&axis, &report, &settings);
        bullets.extend(measured_apart(&report).into_iter().chain(question.above_limit()));
        bullets.extend(question.not_run(missing));
        bullets.extend(question.contradicting_tpot());
        let lead = question.lead();
        let is_apart = report.pairs.iter().any(|pair| pair.rounds_apart > 0);
        let noise = noise(records, &varied, Some(&question));
        let basis = basis(records, &cells, &varied, host, (lead, is_apart), noise.is_some());
        let mut details = Vec::new();
        let is_of_architectures = axis == Axis::ARCHITECTURE;
        if is_of_architectures && has(&Axis::Division) {
            let report = cells.compare(&Axis::Division, None).ok();
            bullets.extend(report.and_then(|report| question::best_division(&report)));
        }
        // the minimum latency at which conversion pays off answers such a sweep; who wins most settings comes next
        let (pays_off, headline) = (question.pays_off(), question.headline(" in tokens/s"));
        bullets.extend(question.gain_by_setting());
        bullets.extend(question.published_lead());
        bullets.extend(pays_off.as_ref().map(|_| format!("{headline}.")));
        bullets.extend(question.wins_of_winner().map(|wins| format!("{wins}.")));
        bullets.extend(question.elsewhere());
        if is_of_architectures
            && has(&Axis::P2P)
            && let Ok(by_p2p) = cells.compare(&Axis::P2P, None)
        {
            let settings = varied.without(&Axis::P2P);
            let (kept, warning) = ComparisonQuestion::new(&Axis::P2P, &by_p2p, &settings).without_p2p();
            bullets.extend(kept);
            details.extend(warning);
        }
        if is_of_architectures {
            let (late_ranks, late_ranks_detail) = question.late_ranks();
            bullets.extend(question.idle().into_iter().chain(late_ranks).chain(question.equal()));
            // the table has them
            let exposed = question.exposed().into_iter().chain(late_ranks_detail);
            details.splice(0..0, exposed.chain(question.gap_closed()));
        }
        details.extend(rates(&report).map(str::to_owned));
        bullets.extend(question.published().into_iter().chain(unfinished.others));
        details.extend(unfinished.reasons);
        details.splice(0..0, bullets.split_off(bullets.len().min(MOST_BULLETS)));
        details.extend(question.tied().into_iter().chain(question.unclear()));
        if is_of_architectures {
            details.extend(question.beaten_limit());
            details.extend(question.exposed().map(|_| match provenance {
                Provenance::Simulated => GAP.to_owned(),
                _ => format!("{GAP} {LANES}"),
            }));
            details.extend(quality(records, &question));
        }
        details.extend(warnings(&report.flags));
        details.extend(evidence(cells.specs()).iter().map(|line| format!("{}.", capitalized(line))));
        let (table, left_out) = question.table(missing);
        Self {
            headline: pays_off.unwrap_or(headline),
            provenance: Some(provenance),
            basis,
            noise,
            bullets,
            details,
            table,
            left_out,
            lead: lead.map(|pair| pair.side.spec.key()),
            by: axis.to_string(),
        }
    }
}

/// Basis of an answer with the pair `lead` in its headline; `is_apart` is true if rounds of any pair were measured apart,
/// `is_noisy` if a warning of noise names the build.
fn basis(
    records: &[Record],
    cells: &Cells,
    varied: &Varied,
    host: Option<&str>,
    (lead, is_apart): (Option<&Comparison>, bool),
    is_noisy: bool,
) -> String {
    let samples = match (cells.samples().min(), cells.samples().max()) {
        // simulations repeat exactly
        _ if records.iter().all(|record| record.provenance == Provenance::Simulated) => {
            let specs: Vec<&Spec> = cells.specs().collect();
            let lead = lead.map(|pair| [&pair.baseline_side.spec, &pair.side.spec]);
            let badge = short_badge(&specs, lead.as_ref().map_or(&[][..], |pair| &pair[..]));
            badge.map_or_else(String::new, |badge| format!("; {badge}"))
        }
        (Some(least), Some(most)) => {
            let samples = match least == most {
                true => counted(most, "sample"),
                false => format!("{least} to {most} samples"),
            };
            // a finished sweep has as many of each cell
            let preliminary = match least < most || is_apart {
                true => " (preliminary: compared in the rounds that both have)",
                false => "",
            };
            let intervals = if most < LEAST_SAMPLES { "too few for intervals" } else { "[95 % CI]" };
            let is_debug = !is_noisy && records.iter().any(is_of_debug_build);
            let build = if is_debug { ", debug build" } else { "" };
            format!(", {samples} a cell{preliminary}, {intervals}{build}")
        }
        _ => String::new(),
    };
    let common = records.first().map(|record| varied.common(&record.spec)).unwrap_or_default();
    let provenance = records.first().map_or("", |record| record.provenance.as_str());
    // name the simulated hardware even if it is the default
    let machine = records.first().filter(|record| {
        let (hardware, stack) = (&record.spec.hardware, &record.spec.stack);
        record.provenance == Provenance::Simulated
            && !common.contains(hardware.as_str())
            && cells.specs().all(|spec| spec.hardware == *hardware && spec.stack == *stack)
    });
    let machine = machine.map_or(String::new(), |record| {
        let stack = Some(&record.spec.stack).filter(|stack| !common.contains(stack.as_str()));
        let stack = stack.map_or(String::new(), |stack| format!(", {stack} stack"));
        format!(" on {}{stack}", record.spec.hardware)
    });
    let links = links(cells);
    let host = host.map_or(String::new(), |host| format!(" on {host}"));
    let cells = counted(cells.specs().count(), "cell");
    format!("{provenance}{host}{samples}{SCOPE}{cells}: {common}{machine}{links}")
}

/// Reason why the speedups of a card differ from the ratios of its TPOT, if it decodes.
fn rates(report: &ComparisonReport) -> Option<&'static str> {
    match report.pairs.iter().any(contradicts_tpot) {
        _ if report.latency() != "TPOT" => None,
        true => Some(
            "Ratios are medians over rounds, so with noise they differ from those of the TPOT shown.",
        ),
        false => {
            Some("Tokens/s include the prefill, so their ratios differ a little from those of TPOT.")
        }
    }
}

/// True if the measured speedup of a pair differs from the one that its prefill and TPOT give.
fn contradicts_tpot(pair: &Comparison) -> bool {
    // without the noise of decode steps
    let rate = |side: &Side, tpot_ms: f64| {
        let steps = f64::from(side.spec.output_tokens.saturating_sub(1));
        tokens_per_s(&side.spec, side.completion_ms - side.decode_ms + steps * tpot_ms)
    };
    let ratio = rate(&pair.side, pair.tpot_ms) / rate(&pair.baseline_side, pair.baseline_tpot_ms);
    let is_compared = !pair.is_simulated() && !is_measured_apart(pair);
    is_compared && (pair.speedup / ratio - 1.0).abs() > UNEXPLAINED
}

/// Runs that do not count, because the repetition of their cell is not complete yet.
fn unfinished_repetition(records: &[Record]) -> Option<String> {
    let count: usize = CellRuns::group(records).iter().map(|cell| cell.unfinished).sum();
    (count > 0).then(|| {
        let runs = counted(count, "run");
        format!(
            "{runs} of a later, unfinished repetition do not count yet; resume it, or run all again."
        )
    })
}

/// Comparisons with rounds that were not measured side by side.
fn measured_apart(report: &ComparisonReport) -> Option<String> {
    let apart = || report.pairs.iter().filter(|pair| pair.rounds_apart > 0);
    let farthest = apart().max_by_key(|pair| pair.longest_apart.map(|time| time.abs()))?;
    Some(format!(
        "Rounds measured apart do not count: {} of {} affected, {} by up to {}. Run all again to compare them.",
        apart().count(),
        counted(report.pairs.len(), "comparison"),
        farthest.value,
        farthest.apart_from(&farthest.baseline)?
    ))
}

/// Links that emulate P2P on and off, if both are emulated; else empty.
fn links(cells: &Cells) -> String {
    let emulated = cells.specs().filter(|spec| matches!(spec.link, Link::Emulated { .. }));
    let mut links = distinct(emulated.map(|spec| (spec.p2p, spec.link)));
    links.sort_by_key(|(p2p, _)| *p2p);
    let [(P2p::On, on), (P2p::Off, off)] = &links[..] else { return String::new() };
    let link_text = |link: &Link| match link {
        Link::Emulated { alpha_us, gb_s } => format!("{alpha_us} us + bytes / {gb_s} GB/s"),
        other => other.to_string(),
    };
    format!(" · all-reduce: {} with P2P, {} without", link_text(on), link_text(off))
}

/// Headline and bullets for cells that cannot be compared with one another.
fn alone(records: &[Record]) -> (String, Vec<String>) {
    let cells = aggregate(records);
    let tpot = |cell: &Record| {
        let metrics = cell.metrics.as_ref()?;
        let (tpot, ci) = (metrics.tpot_ms.p50, metrics.tpot_ms_ci95);
        let ci = ci.map_or(String::new(), |[low, high]| format!(" [{low:.2}, {high:.2}]"));
        Some(format!("{}: {tpot:.2} ms{ci} per token", cell.spec.label()))
    };
    let mut tpots: Vec<String> = cells.iter().filter_map(tpot).take(MOST_NAMED).collect();
    match tpots.len() {
        1 => (tpots.remove(0), vec!["Only one cell has results, so nothing is compared.".into()]),
        _ => ("Nothing to compare: no two cells differ in a single option.".into(), tpots),
    }
}

/// Cells without results, as sentences.
#[derive(Debug, Default)]
struct Unfinished {
    /// Failed and interrupted cells, with the reason of the first.
    failed: Option<String>,
    /// Cells that do not fit in memory, cannot run, or only checked something.
    others: Option<String>,
    /// Reasons of the first of each status of `others`.
    reasons: Option<String>,
}

impl Unfinished {
    /// `is_beside`: other cells have results.
    fn from_records(records: &[Record], is_beside: bool) -> Self {
        let mut by: BTreeMap<Status, Vec<&Record>> = BTreeMap::new();
        records.iter().for_each(|record| by.entry(record.status).or_default().push(record));
        let is_failure =
            |status: &Status| matches!(status, Status::Failed | Status::Interrupted | Status::Running);
        let with = |failures: bool| by.iter().filter(move |(status, _)| is_failure(status) == failures);
        let sentence =
            |parts: Vec<String>| (!parts.is_empty()).then(|| format!("{}.", parts.join("; ")));
        let failed = with(true).map(|(status, records)| {
            let why = reason(records).map_or(String::new(), |why| format!(" ({why})"));
            unfinished(*status, records, is_beside) + &why
        });
        let others = with(false).map(|(status, records)| unfinished(*status, records, is_beside));
        let reasons = with(false).filter_map(|(_, records)| reason(records));
        let [failed, others, reasons] =
            [failed.collect(), others.collect(), reasons.collect()].map(sentence);
        Self { failed, others, reasons }
    }
}

/// First cell of a status with a reason: `ladder tp2: no driver`.
fn reason(records: &[&Record]) -> Option<String> {
    let why = |record: &&&Record| record.reason.as_deref().is_some_and(|why| !why.is_empty());
    let record = records.iter().find(why)?;
    Some(format!("{}: {}", record.spec.label(), record.reason.as_deref()?.lines().next()?))
}

/// Number of cells with a status: `2 cells failed`, beside others with results `2 more cells failed`.
fn unfinished(status: Status, records: &[&Record], is_beside: bool) -> String {
    let count = counted(records.len(), if is_beside { "more cell" } else { "cell" });
    let what = match status {
        Status::Oom if records.len() == 1 => "does not fit in memory",
        Status::Oom => "do not fit in memory",
        Status::Skipped => "cannot run",
        Status::Interrupted => "did not finish",
        Status::Running => "not finished yet",
        Status::Failed => "failed",
        Status::Ok if records.iter().any(|record| !record.provenance.is_evidence()) => {
            "only checked ranks on one GPU"
        }
        Status::Ok => "without results",
    };
    format!("{count} {what}")
}

/// One sentence about extrapolated links, and one about each of the first other flags.
fn warnings(flags: &[Flag]) -> Vec<String> {
    let (extrapolated, wrong): (Vec<&Flag>, Vec<&Flag>) =
        flags.iter().partition(|flag| flag.kind == FlagKind::Extrapolation);
    let sentence = |flag: &Flag, head: &str| {
        let end = if flag.text.ends_with(['.', '?']) { "" } else { "." };
        format!("{head}: {}{end}", flag.text)
    };
    let mut lines = Vec::new();
    lines.extend(extrapolated.first().map(|first| match extrapolated.len() {
        1 => sentence(first, "The link of one cell is extrapolated to its TP"),
        all => sentence(first, &format!("{all} cells have links extrapolated to their TP, the first")),
    }));
    let is_stall = |flag: &&Flag| flag.text.contains("is far above the median");
    if wrong.len() > 1 && wrong.iter().all(is_stall) {
        lines.push(format!(
            "{} suspicious results, all stalls (mean far above the median): compare lists them.",
            wrong.len()
        ));
        return lines;
    }
    lines.extend(wrong.iter().take(MOST_NAMED).map(|flag| sentence(flag, "Suspicious result")));
    let more = wrong.len().saturating_sub(MOST_NAMED);
    lines.extend((more > 0).then(|| {
        let (results, them) =
            (counted(more, "more suspicious result"), if more > 1 { "them" } else { "it" });
        format!("{results}: compare lists {them}.")
    }));
    lines
}

/// Signs of noise in the runs of one provenance and machine, as one sentence; `None` without any.
fn noise(records: &[Record], varied: &Varied, question: Option<&ComparisonQuestion>) -> Option<String> {
    if records.iter().all(|record| record.provenance == Provenance::Simulated) {
        return None;
    }
    let limit =
        question.and_then(|of| slow_limit(of.report, |pair| [of.named(pair), of.baseline(pair)]));
    let busy = overload(records);
    let load = load_words(records).filter(|_| busy.is_none());
    let build = records.iter().any(is_of_debug_build).then(|| "debug build".to_owned());
    let signs: Vec<String> = [limit, widest(records, varied), busy].into_iter().flatten().collect();
    (!signs.is_empty()).then(|| {
        let all: Vec<String> = signs.into_iter().chain(load).chain(build).collect();
        format!(
            "Noisy: {}. Run everything again on an idle machine; new runs replace these.",
            all.join("; ")
        )
    })
}

/// Signs of noise in measured runs, without a comparison of their cells; `None` without any.
pub fn signs_of_noise(mut records: Vec<Record>) -> Option<String> {
    records.retain(|record| record.provenance != Provenance::Simulated);
    let varied = Varied::from_specs(records.iter().map(|record| &record.spec));
    let reasons: Vec<String> =
        [widest(&records, &varied), overload(&records)].into_iter().flatten().collect();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

/// [`signs_of_noise`] in the finished runs of a sweep that goes on.
pub fn noise_so_far(records: Vec<Record>) -> Option<String> {
    signs_of_noise(records).map(|signs| format!("Noisy so far: {signs}. Close other programs."))
}

fn widest(records: &[Record], varied: &Varied) -> Option<String> {
    let wide = wide_rounds(records);
    let widest = wide.first()?;
    let spec = &widest.spec;
    let cell = Some(varied.phrase(spec)).filter(|words| !words.is_empty()).unwrap_or(spec.label());
    let among = match CellRuns::group(records).len() {
        1 => String::new(),
        count => format!(", those of {} of {count} cells by 1.3x or more", wide.len()),
    };
    Some(format!("rounds of {cell} vary from {}{among}", widest.words()))
}

/// KL of the fastest architecture against `standard`, or a note that nobody evaluated it. `None` if nothing
/// is faster than `standard`.
fn quality(records: &[Record], question: &ComparisonQuestion) -> Option<String> {
    let value = &question.winner.as_ref()?.value;
    let of_value = records.iter().filter(|record| question.axis.phrase(&record.spec) == *value);
    let mut found: Vec<&RunQuality> = of_value.filter_map(|record| record.quality.as_deref()).collect();
    found.sort_by(|a, b| a.quality.kl.total_cmp(&b.quality.kl));
    found.dedup_by(|a, b| a.quality.kl == b.quality.kl);
    let kl = |quality: &RunQuality| {
        let ci = quality.quality.kl_ci95;
        let ci = ci.map_or(String::new(), |[low, high]| format!(" [{low:.3}, {high:.3}]"));
        format!("{:.3}{ci}", quality.quality.kl)
    };
    Some(match found.as_slice() {
        [] => format!("Quality of {value} was not evaluated (`ladderscope evaluate`)."),
        [one] => {
            format!("{value} is {} nats per token (KL) from standard: {}.", kl(one), one.full_basis())
        }
        [least, .., most] => format!(
            "{value} is {} to {} nats per token (KL) from standard: {}.",
            kl(least),
            kl(most),
            most.basis()
        ),
    })
}

#[cfg(test)]
mod tests;
