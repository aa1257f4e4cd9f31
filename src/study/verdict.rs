//! Verdict on a trace, in sentences: exposed share of the time, responsible collectives, transfer or waiting for slower
//! ranks, stream use, and the gain of each remedy.
//!
//! All rules are in this module; `overlap`, the timeline and the report show its result. Remedies come from
//! [`super::rewire`], which rebuilds steps from the trace's own times.

use std::collections::BTreeMap;

use serde::Serialize;

use super::analysis::{CollectiveRow, IdleSplit, TimePart, TraceReport, arrivals, time_parts};
use super::rewire::{Asked, Choice, Rewiring, Setting, Times};
use base::text::fitting_name;
use plan::{Architecture, LayerSet};
use table::Collective;
use trace::overlap::{Class, Replays, Runs, Selection};
use trace::rules::{What, function};
use trace::{Span, Trace};

/// Minimum share of a collective's time before a cause is reported.
const DOMINATES: f64 = 2.0 / 3.0;

/// Exposed share of the time below which no remedy is worthwhile.
const LITTLE: f64 = 0.02;

/// Share of the time waiting for the host above which launches come first.
const HOST: f64 = 0.2;

/// Minimum share of communication on dedicated streams for it to count as having its own.
const OWN: f64 = 0.5;

/// Maximum ratio of compute to communication time on a dedicated stream.
const HARDLY: f64 = 0.1;

/// Minimum overlap for communication to count as partly hidden.
const HIDDEN: f64 = 0.05;

/// Minimum share of the GPUs' work for a doubtful kernel to be named.
const DOUBTFUL: f64 = 0.02;

/// Maximum number of collectives named in a verdict.
const NAMED: usize = 3;

/// Maximum length of a collective's name in a sentence.
const NAME: usize = 48;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// At least two thirds move data.
    TransferDominated,
    /// At least two thirds wait for the last rank.
    SkewDominated,
    /// Neither transfer nor waiting reaches two thirds.
    Mixed,
    /// The trace does not determine the cause.
    Inconclusive,
}

impl Cause {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TransferDominated => "transfer-dominated",
            Self::SkewDominated => "skew-dominated",
            Self::Mixed => "mixed",
            Self::Inconclusive => "inconclusive",
        }
    }

    /// Cause, from the time that moves data, that waits for the last rank, and that is one or the other.
    fn of(transfer_us: f64, waited_us: f64, unknown_us: f64) -> Self {
        let all = transfer_us + waited_us + unknown_us;
        let dominates = |us: f64| us >= DOMINATES * all;
        match () {
            () if all <= 0.0 => Self::Inconclusive,
            () if dominates(transfer_us) => Self::TransferDominated,
            () if dominates(waited_us) => Self::SkewDominated,
            () if dominates(transfer_us + unknown_us) || dominates(waited_us + unknown_us) => {
                Self::Inconclusive
            }
            () => Self::Mixed,
        }
    }
}

/// Time of collectives by what it was spent on, summed over executions (us).
#[derive(Clone, Copy, Debug, Default)]
struct CauseTimes {
    transfer_us: f64,
    waited_us: f64,
    /// Transfer, or waiting for a rank that was not recorded.
    unknown_us: f64,
    /// Collectives without a match on another rank.
    unmatched_us: f64,
}

impl CauseTimes {
    fn of(row: &CollectiveRow) -> Self {
        let count = row.executed.count as f64;
        let unmatched = row.transfer_us.is_none() && row.waited_at_least_us.is_none();
        Self {
            transfer_us: row.transfer_us.unwrap_or(0.0) * count,
            waited_us: row.waited_us.or(row.waited_at_least_us).unwrap_or(0.0) * count,
            unknown_us: row.waited_at_least_us.map_or(0.0, |waited| row.mean_us - waited) * count,
            unmatched_us: if unmatched { row.mean_us * count } else { 0.0 },
        }
    }

    fn add(self, more: Self) -> Self {
        Self {
            transfer_us: self.transfer_us + more.transfer_us,
            waited_us: self.waited_us + more.waited_us,
            unknown_us: self.unknown_us + more.unknown_us,
            unmatched_us: self.unmatched_us + more.unmatched_us,
        }
    }

    fn cause(self) -> Cause {
        Cause::of(self.transfer_us, self.waited_us, self.unknown_us + self.unmatched_us)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct CollectiveVerdict {
    /// Name, with `L*` for the layer in own plans, and the kind of process group if there are several.
    pub name: String,
    pub group: Option<String>,
    /// Share of all exposed communication (0 to 1).
    pub share: f64,
    pub count: u64,
    /// Exposed communication per rank (us).
    pub exposed_us: f64,
    pub cause: Cause,
    /// Share of its time that moves data (0 to 1); null if unknown.
    pub transfer_share: Option<f64>,
    /// Minimum share of its time spent waiting for slower ranks (0 to 1), if ranks of its group were not recorded.
    pub waited_share_at_least: Option<f64>,
}

impl CollectiveVerdict {
    /// Name shortened for a sentence; keeps the process group.
    fn fitting_name(&self) -> String {
        let group = self.group.as_ref().map(|group| format!(" ({group})")).unwrap_or_default();
        let name = self.name.strip_suffix(&group).unwrap_or(&self.name);
        fitting_name(name, NAME) + &group
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Remedy {
    pub name: String,
    /// Speedup of the measured step, with contention if a profile defines it.
    pub speedup: f64,
    /// Range that holds 95 % of the steps; null with fewer than 6.
    pub speedup_95: Option<[f64; 2]>,
    /// Speedup without contention, if `speedup` includes it.
    pub without_contention: Option<f64>,
    /// Speedup in the best case, if kernel time scales with the share of the batch; `speedup` assumes that it does not.
    pub at_best: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Verdict {
    /// Exposed communication over the time, averaged over ranks (0 to 1).
    pub exposed_share: f64,
    /// Exposed communication per rank (us).
    pub exposed_us: f64,
    /// Hidden share of the communication (%); null without communication.
    pub overlap_pct: Option<f64>,
    /// Share of the time in which the GPU waited for the host, as far as launches are recorded (0 to 1); null if none
    /// is.
    pub host_share: Option<f64>,
    /// Part of `host_share` between two CUDA graphs (0 to 1).
    pub between_graphs_share: f64,
    /// True if the selected part replays CUDA graphs; checked only if the GPU waits for the host.
    pub has_graphs: bool,
    /// Work that fills the time, the largest part first.
    pub time: Vec<TimePart>,
    /// Main cause of the communication time.
    pub cause: Cause,
    /// Collectives with the most exposed time, the worst first.
    pub collectives: Vec<CollectiveVerdict>,
    /// True if at least half of the communication's time is on streams that hardly compute; null without communication.
    pub own_stream: Option<bool>,
    /// Share of the communication's time on such streams (0 to 1); null without communication.
    pub own_stream_share: Option<f64>,
    /// Kernels that look like communication but match no rule, with their share of the GPUs' work (0 to 1).
    pub doubtful: Vec<(String, f64)>,
    /// Skew of ranks as simulator settings (`skew.rank_pct`, `skew.operation_pct`); null with one rank.
    pub skew: Option<[f64; 2]>,
    pub remedies: Vec<Remedy>,
    pub not_rewired: Option<String>,
    pub needs: Vec<String>,
    pub headline: String,
    pub sentences: Vec<String>,
}

/// Verdict on the selected part of a trace, given its `report`. Remedies cover the steps of the whole trace.
pub fn verdict(
    trace: &Trace,
    report: &TraceReport,
    selection: &Selection,
    setting: &Setting,
) -> Verdict {
    let (all, ranks) = (&report.overlap.all, report.overlap.ranks.len().max(1) as f64);
    let share = |us: f64| if all.span_us > 0.0 { us / all.span_us } else { 0.0 };
    let idle = |part: fn(&IdleSplit) -> f64| share(report.idle.iter().map(part).sum());
    let is_imported = trace.meta.import.is_some();
    let has_launches = !is_imported || trace.spans.iter().any(Span::is_launch_known);
    let runs = Runs::new(trace, selection);
    let own_stream_share = own_stream_share(&runs);
    let host_share = if is_imported { idle(|rank| rank.host_us) } else { 0.0 };
    let split = arrivals(trace, selection);
    let splits = split.as_ref().map_or(&[][..], |found| &found.collectives);
    let collectives = collectives(report);
    let times =
        report.collectives.iter().map(CauseTimes::of).fold(CauseTimes::default(), CauseTimes::add);
    let cause = times.cause();
    let mut verdict = Verdict {
        exposed_share: share(all.exposed_comm_us),
        exposed_us: all.exposed_comm_us / ranks,
        overlap_pct: all.overlap_pct,
        // in own traces a ready span waits for nothing else
        host_share: has_launches.then_some(host_share),
        between_graphs_share: if is_imported { idle(|rank| rank.between_graphs_us) } else { 0.0 },
        has_graphs: host_share >= HOST && replays_graphs(&runs),
        time: time_parts(trace, report, selection),
        cause,
        own_stream: own_stream_share.map(|share| share >= OWN),
        own_stream_share,
        doubtful: doubtful(trace),
        skew: split.as_ref().map(|found| [found.rank_pct, found.operation_pct]),
        collectives,
        remedies: Vec::new(),
        not_rewired: None,
        needs: Vec::new(),
        headline: String::new(),
        sentences: Vec::new(),
    };
    let used = report.import.as_ref().map(|import| &import.used);
    if let Some(graphs) = used.and_then(|used| used.get("graph launch")).filter(|graphs| **graphs > 0) {
        verdict.needs.push(format!(
            "{graphs} CUDA graphs are not counted, because they were recorded as whole graphs; record with `nsys \
             profile --cuda-graph-trace=node`"
        ));
    }
    if all.comm_us > 0.0 {
        match remedies(trace, selection, setting) {
            Ok((remedies, needs)) => {
                verdict.remedies = remedies;
                verdict.needs.extend(needs);
            }
            Err(why) => verdict.not_rewired = Some(why),
        }
        if splits.is_empty() {
            verdict.needs.insert(0, needed(report));
        } else if times.unknown_us > 0.0 {
            verdict.needs.insert(0, MISSING.into());
        } else if times.unmatched_us > 0.0 && cause == Cause::Inconclusive {
            verdict.needs.insert(0, UNMATCHED.into());
        }
    }
    verdict.headline = verdict.in_a_few_words();
    verdict.sentences = verdict.in_sentences(&report.overlap.ranks.len());
    verdict
}

/// Data needed to separate transfer from waiting if ranks were not recorded.
const MISSING: &str = "there are ranks that were not recorded, and one of these may be the slowest: waiting is at \
                       least as long as the recorded ranks show; traces of all ranks tell transfer from waiting";

/// Data needed if most collectives have no match on another rank.
const UNMATCHED: &str = "most collectives have no match on another rank; traces of the same steps of all ranks tell \
                         transfer from waiting";

fn needed(report: &TraceReport) -> String {
    match report.overlap.ranks.len() {
        0 | 1 => "traces of all ranks (`overlap DIR`, a file a rank) tell transfer from waiting for slower ranks".into(),
        _ => "the collectives of the ranks could not be matched; traces of the same steps of all ranks tell transfer from waiting"
            .into(),
    }
}

/// Collectives by exposed time, one row per name and kind of process group.
fn collectives(report: &TraceReport) -> Vec<CollectiveVerdict> {
    let all: f64 = report.collectives.iter().map(|row| row.executed.exposed_us).sum();
    let ranks = report.overlap.ranks.len().max(1) as u64;
    let several = report.groups.len() > 1;
    /// Executions, exposed time (us), and the times that decide the cause.
    #[derive(Default)]
    struct Sum {
        count: u64,
        exposed: f64,
        times: CauseTimes,
    }
    let mut sums: BTreeMap<(&str, Option<&str>), Sum> = BTreeMap::new();
    for row in &report.collectives {
        let group = row.group.as_deref().filter(|_| several);
        let sum = sums.entry((&row.family, group)).or_default();
        sum.count += row.executed.count;
        sum.exposed += row.executed.exposed_us;
        sum.times = sum.times.add(CauseTimes::of(row));
    }
    let of = |((name, group), sum): ((&str, Option<&str>), Sum)| {
        let Sum { count, exposed: exposed_us, times } = sum;
        let CauseTimes { transfer_us: transfer, waited_us: waited, unknown_us: unknown, .. } = times;
        let known = transfer + waited;
        CollectiveVerdict {
            name: group.map_or_else(|| name.to_owned(), |group| format!("{name} ({group})")),
            group: group.map(str::to_owned),
            share: if all > 0.0 { exposed_us / all } else { 0.0 },
            count: count / ranks,
            exposed_us,
            cause: times.cause(),
            transfer_share: (times.cause() != Cause::Inconclusive && known > 0.0 && unknown <= 0.0)
                .then(|| transfer / known),
            waited_share_at_least: (unknown > 0.0).then(|| waited / (known + unknown)),
        }
    };
    let mut rows: Vec<CollectiveVerdict> = sums.into_iter().map(of).collect();
    rows.sort_by(|a, b| b.exposed_us.total_cmp(&a.exposed_us));
    rows.truncate(NAMED);
    rows
}

/// Share of the selected communication's time on dedicated streams; `None` without communication.
fn own_stream_share(runs: &Runs<'_>) -> Option<f64> {
    let mut times = vec![(0i64, 0i64); runs.trace.meta.streams.len().max(1)];
    let mut comm = 0i64;
    runs.each(runs.by_rank.iter().flatten(), |span, (start, end)| {
        let Some(stream) = times.get_mut(usize::from(span.stream)) else { return };
        match runs.class(span) {
            Class::Comm => {
                stream.0 = stream.0.saturating_add(end - start);
                comm = comm.saturating_add(end - start);
            }
            Class::Compute => stream.1 = stream.1.saturating_add(end - start),
            Class::Memory | Class::Other => {}
        }
    });
    // in own traces each lane is a stream
    let is_own = |(comm, compute): &&(i64, i64)| {
        runs.trace.meta.streams.is_empty() || *compute as f64 <= HARDLY * *comm as f64
    };
    let own: i64 = times.iter().filter(is_own).map(|(comm, _)| *comm).sum();
    (comm > 0).then(|| own as f64 / comm as f64)
}

/// True if selected spans of a rank come from CUDA graphs.
fn replays_graphs(runs: &Runs<'_>) -> bool {
    runs.by_rank.iter().any(|of_rank| {
        let spans = of_rank.iter().flat_map(|run| &runs.trace.spans[run.at.clone()]);
        !Replays::of(spans).is_empty()
    })
}

/// Kernels that look like communication but count as compute, the longest first.
fn doubtful(trace: &Trace) -> Vec<(String, f64)> {
    let all: f64 = trace.spans.iter().map(|span| span.end_ns.abs_diff(span.start_ns) as f64).sum();
    let unsure = trace.meta.import.iter().flat_map(|import| &import.unsure);
    unsure
        .filter(|unsure| unsure.taken_for == What::Compute)
        .map(|unsure| (unsure.operation.name.clone(), unsure.operation.total_ns as f64 / all.max(1.0)))
        .filter(|(_, share)| *share >= DOUBTFUL)
        .collect()
}

/// Predicted remedies, and the data that would improve them; an error says why there are none.
fn remedies(
    trace: &Trace,
    selection: &Selection,
    setting: &Setting,
) -> Result<(Vec<Remedy>, Option<String>), String> {
    let asked = Asked { phase: selection.phase, ..Asked::default() };
    let rewiring = Rewiring::of(trace, &asked, setting).map_err(|error| error.to_string())?;
    let steps = &rewiring.steps;
    // while the host delays everything, other remedies only help after that one
    let host = steps.host_share() < HOST;
    let plain = |architecture| Choice { host, ..Choice::of(architecture) };
    let mut choices: Vec<(&str, Choice)> = Vec::new();
    if !host {
        let name = match steps.has_graphs {
            true if 2.0 * steps.between_graphs_share() >= steps.host_share() => {
                "no gap between CUDA graphs"
            }
            true => "no waiting for launches",
            false => "no waiting for launches (a CUDA graph)",
        };
        choices.push((name, plain(Architecture::Standard)));
    }
    if rewiring.collective() != Some(Collective::Fused) {
        let fused = Choice { collective: Some(Collective::Fused), ..plain(Architecture::Standard) };
        choices.push(("fused all-reduce", fused));
    }
    choices.push(("ladder", plain(Architecture::Ladder(LayerSet::All))));
    choices.push(("two micro-batches", Choice { micro_batches: 2, ..plain(Architecture::Standard) }));
    choices.push(("no communication at all", plain(Architecture::UpperBound)));
    let mut remedies = Vec::new();
    let mut needs = None;
    for (name, choice) in choices {
        let answer = match rewiring.answer(&choice) {
            Ok(answer) => answer,
            Err(error) if choice.collective.is_some() => {
                needs = Some(format!("a fused all-reduce is not predicted: {error}"));
                continue;
            }
            Err(error) => return Err(error.to_string()),
        };
        let told: Times = answer.contended.unwrap_or(answer.alone);
        let half = (choice.micro_batches > 1)
            .then(|| rewiring.answer(&Choice { share: 0.5, ..choice.clone() }).ok())
            .flatten();
        remedies.push(Remedy {
            name: match host || remedies.is_empty() {
                true => name.into(),
                false => format!("with that {name}"),
            },
            speedup: told.speedup,
            speedup_95: told.speedup_95,
            without_contention: answer.contended.map(|_| answer.alone.speedup),
            at_best: half.map(|half| half.contended.unwrap_or(half.alone).speedup),
        });
    }
    Ok((remedies, needs))
}

fn percent(share: f64) -> String {
    let pct = 100.0 * share;
    // one decimal close to 0 % and 100 %
    let nearly = (pct > 0.0 && pct < 0.95) || (pct > 99.05 && pct < 99.95);
    if nearly { format!("{pct:.1} %") } else { format!("{pct:.0} %") }
}

impl Verdict {
    fn in_a_few_words(&self) -> String {
        let Some(worst) = self.collectives.first() else { return self.without_communication() };
        let mut words = vec![format!("{} exposed communication", percent(self.exposed_share))];
        if self.exposed_share >= LITTLE {
            words.push(self.cause.as_str().to_owned());
        }
        if let Some(host) = self.host_share.filter(|share| *share >= HOST) {
            let at = if self.waits_between_graphs() { " between CUDA graphs" } else { "" };
            words.push(format!("{} waiting for the host{at}", percent(host)));
        } else if let Some(ladder) = self.remedies.iter().find(|remedy| remedy.name == "ladder") {
            words.push(format!("ladder {:.2}x", ladder.speedup));
        } else if self.exposed_share >= LITTLE {
            words.push(format!("most in {}", worst.fitting_name()));
        }
        words.join(", ")
    }

    fn without_communication(&self) -> String {
        let part = |part: &TimePart| part.in_words(percent, |name| fitting_name(name, NAME));
        match (self.time.first(), self.doubtful.first()) {
            (None, _) => "nothing ran".into(),
            (Some(_), Some((name, share))) => {
                format!("no known communication, {} in {}", percent(*share), fitting_name(name, NAME))
            }
            (Some(most), None) => format!("no communication, {}", part(most)),
        }
    }

    /// True if at least half of the waiting for the host is between CUDA graphs.
    fn waits_between_graphs(&self) -> bool {
        self.host_share.is_some_and(|host| 2.0 * self.between_graphs_share >= host)
    }

    /// Sentence on kernels that may be communication, and how to fix the rules.
    fn doubt(&self) -> Option<String> {
        let (first, _) = self.doubtful.first()?;
        let named = self.doubtful.iter().take(NAMED);
        let named: Vec<String> = named
            .map(|(name, share)| format!("{} ({})", fitting_name(name, NAME), percent(*share)))
            .collect();
        let (count, verbs) = match self.doubtful.len() {
            1 => ("1 kernel".into(), ["looks", "counts", "it communicates"]),
            more => (format!("{more} kernels"), ["look", "count", "they communicate"]),
        };
        let [looks, counts, communicates] = verbs;
        Some(format!(
            "{count} {looks} like communication but {counts} as computation, because no rule matches (shares of the GPUs' work): \
             {}. If {communicates}, these numbers are wrong: write a rule file that begins with extends = \"default\", add a \
             [[rule]] with a name, what = \"communication\" and patterns = [{}], and pass it with --rules FILE.",
            named.join(", "),
            toml::Value::from(format!("{}*", function(first))),
        ))
    }

    fn dominated(&self) -> Option<String> {
        let part = |part: &TimePart| part.in_words(percent, |name| fitting_name(name, NAME));
        let parts: Vec<String> = self.time.iter().take(NAMED).map(part).collect();
        (!parts.is_empty()).then(|| format!("The time goes to: {}.", parts.join(", ")))
    }

    /// Sentence on streams, consistent with the measured overlap.
    fn streams(&self) -> Option<String> {
        let hidden = self.overlap_pct.unwrap_or(0.0) / 100.0;
        Some(match self.own_stream? {
            true => "Communication has a stream of its own: it can run beside kernels.".into(),
            false if hidden >= HIDDEN => format!(
                "Communication shares its streams with kernels; kernels of other streams hide {} of it.",
                percent(hidden)
            ),
            false => "Communication and kernels share one stream: nothing of it can be hidden until it gets its own.".into(),
        })
    }

    /// Sentence on the host, if the GPU waits for it often.
    fn host(&self) -> Option<String> {
        let host = self.host_share.filter(|share| *share >= HOST)?;
        let between = self.between_graphs_share;
        Some(match () {
            () if self.waits_between_graphs() => format!(
                "{} of the time the GPU waits for the host, {} of it between CUDA graphs, until the next one is launched. CUDA \
                 graphs are in use already: less work of the host between steps (scheduling, sampling, input copies), or \
                 launching the next graph before this one ends, comes first.",
                percent(host),
                percent(between / host)
            ),
            () if self.has_graphs => format!(
                "{} of the time the GPU waits for the host to launch kernels outside of the CUDA graphs{}: fewer such launches \
                 come first.",
                percent(host - between),
                match between >= 0.005 {
                    true => format!(", and {} between graphs", percent(between)),
                    false => String::new(),
                }
            ),
            () => format!(
                "{} of the time the GPU waits for the host's launches: fewer of them, or a CUDA graph, come first.",
                percent(host)
            ),
        })
    }

    fn in_sentences(&self, ranks: &usize) -> Vec<String> {
        if self.time.is_empty() {
            return vec!["Nothing ran in what was selected.".into()];
        }
        if self.collectives.is_empty() {
            let known = if self.doubtful.is_empty() { "" } else { " that a rule knows" };
            let none = format!("There is no communication{known} in what was selected.");
            return [Some(none), self.doubt(), self.dominated(), self.host()]
                .into_iter()
                .flatten()
                .collect();
        }
        let mut sentences = Vec::new();
        let hidden = self.overlap_pct.map_or(String::new(), |pct| {
            format!("; {} of the communication is hidden", percent(pct / 100.0))
        });
        sentences.push(format!(
            "{} of the time is exposed communication ({:.1} us a rank{hidden}).",
            percent(self.exposed_share),
            self.exposed_us
        ));
        let named = self.collectives.iter().filter(|row| row.share >= 0.05).map(|row| {
            let transfer = row
                .transfer_share
                .map_or(String::new(), |share| format!(" ({} of it moves data)", percent(share)));
            let waited = row.waited_share_at_least.map_or(String::new(), |share| {
                format!(" (at least {} of it waits for slower ranks)", percent(share))
            });
            format!(
                "{} in {} ({} a rank): {}{transfer}{waited}",
                percent(row.share),
                row.fitting_name(),
                row.count,
                row.cause.as_str()
            )
        });
        let named: Vec<String> = named.collect();
        if !named.is_empty() {
            sentences.push(format!("Of it {}.", named.join("; ")));
        }
        sentences.extend(self.doubt());
        if self.exposed_share < LITTLE {
            sentences.extend(self.dominated());
        }
        sentences.extend(self.streams());
        sentences.extend(self.host());
        let differ = |skew: &[f64; 2]| skew.iter().any(|pct| *pct >= 0.005);
        if let Some([rank, operation]) = self.skew.filter(|skew| *ranks > 1 && differ(skew)) {
            sentences.push(format!(
                "Ranks differ by {rank:.2} % in speed and {operation:.2} % from operation to operation (--set \
                 skew.rank_pct={rank:.2} --set skew.operation_pct={operation:.2} simulates that)."
            ));
        }
        if !self.remedies.is_empty() {
            let told: Vec<String> = self.remedies.iter().map(Remedy::told).collect();
            sentences.push(format!("Rewired, the steps would run: {}.", told.join("; ")));
        }
        if let Some(why) = &self.not_rewired {
            sentences.push(format!("Remedies are not predicted: {why}."));
        }
        sentences.extend(self.needs.iter().map(|need| format!("More data: {need}.")));
        sentences
    }
}

impl Remedy {
    fn told(&self) -> String {
        let interval = self
            .speedup_95
            .filter(|[low, high]| format!("{low:.2}") != format!("{high:.2}"))
            .map_or(String::new(), |[low, high]| format!(" [{low:.2}, {high:.2}]"));
        let range = self.at_best.filter(|best| format!("{best:.2}") != format!("{:.2}", self.speedup));
        let range = range.map_or(String::new(), |best| {
            format!(" to {best:.2}x, as kernels take as long for a part of the batch or their share")
        });
        let alone = self
            .without_contention
            .filter(|alone| format!("{alone:.2}") != format!("{:.2}", self.speedup))
            .filter(|_| range.is_empty())
            .map_or(String::new(), |alone| format!(" ({alone:.2}x without contention)"));
        format!("{} {:.2}x{interval}{range}{alone}", self.name, self.speedup)
    }
}

#[cfg(test)]
mod profiles;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::trace_report;
    use plan::{Lane, Phase};
    use trace::testing::{span, trace};
    use trace::{CollectiveInfo, ProcessGroup};

    fn judged(spans: Vec<trace::Span>) -> Verdict {
        let trace = trace(spans);
        let decode = Selection { phase: Some(Phase::Decode), ..Selection::default() };
        verdict(&trace, &trace_report(&trace, &decode), &decode, &Setting::default())
    }

    /// Two ranks that compute for so long, and then reduce until 100 us.
    fn ranks(first: i64, second: i64) -> Vec<trace::Span> {
        let of = |rank, at| [span(rank, Lane::Compute, 0, at), span(rank, Lane::Comm, at, 100_000)];
        of(0, first).into_iter().chain(of(1, second)).collect()
    }

    #[test]
    fn transfer_is_told_from_waiting_by_the_last_rank_to_arrive() {
        for (second, cause) in [
            (40_000, Cause::TransferDominated),
            (60_000, Cause::TransferDominated),
            (78_000, Cause::Mixed),
            (98_000, Cause::SkewDominated),
        ] {
            let found = judged(ranks(40_000, second));
            assert_eq!(found.cause, cause, "{second}: {:?}", found.collectives);
            assert_eq!(found.collectives[0].cause, cause);
            assert!(found.sentences.iter().any(|said| said.contains(cause.as_str())), "{found:?}");
        }
        let alone = judged(vec![span(0, Lane::Compute, 0, 40), span(0, Lane::Comm, 40, 100)]);
        assert_eq!((alone.cause, alone.skew), (Cause::Inconclusive, None));
        assert!(alone.needs[0].contains("all ranks"), "{:?}", alone.needs);
    }

    #[test]
    fn a_cause_holds_only_if_no_missing_rank_can_change_it() {
        assert_eq!(Cause::of(1.0, 9.0, 0.0), Cause::SkewDominated);
        assert_eq!(Cause::of(0.0, 8.0, 2.0), Cause::SkewDominated, "at least 80 % wait");
        assert_eq!(
            Cause::of(0.0, 1.0, 9.0),
            Cause::Inconclusive,
            "transfer, or waiting for a missing rank"
        );
        assert_eq!(Cause::of(0.0, 5.0, 5.0), Cause::Inconclusive);
        assert_eq!(Cause::of(5.0, 5.0, 0.1), Cause::Mixed);
        assert_eq!(Cause::of(0.0, 0.0, 0.0), Cause::Inconclusive);
        let mut trace = trace(ranks(40_000, 60_000));
        let group =
            ProcessGroup { name: "1".into(), size: 4, ranks: vec![0, 1, 2, 3], ..Default::default() };
        trace.meta.groups = vec![group];
        trace.operations[1].collective = Some(CollectiveInfo { group: Some(0), ..Default::default() });
        trace.meta.import = Some(Default::default());
        let all = Selection::default();
        let found = verdict(&trace, &trace_report(&trace, &all), &all, &Setting::default());
        let row = &found.collectives[0];
        assert_eq!(
            (found.cause, row.cause, row.transfer_share),
            (Cause::Inconclusive, Cause::Inconclusive, None)
        );
        // rank 0 waits 20 of its 60 us, rank 1 none of its 40
        assert_eq!(row.waited_share_at_least, Some(0.2));
        assert!(
            found.sentences[1].contains("(at least 20 % of it waits for slower ranks)"),
            "{found:?}"
        );
        assert!(found.needs[0].contains("ranks that were not recorded"), "{:?}", found.needs);
        assert!(!found.sentences.concat().contains("moves data"), "{:?}", found.sentences);
    }

    /// Two ranks match in one group; nearly all of the time is in a group whose other rank has no file.
    #[test]
    fn collectives_without_a_match_have_no_cause() {
        let mut trace = trace(ranks(40_000, 60_000));
        let group = |name: &str, ranks: Vec<u32>| ProcessGroup {
            name: name.into(),
            size: ranks.len() as u32,
            ranks,
            ..Default::default()
        };
        trace.meta.groups = vec![group("1", vec![0, 1]), group("2", vec![0, 5])];
        trace.meta.import = Some(Default::default());
        let matched = &mut trace.operations[1];
        matched.collective = Some(CollectiveInfo { group: Some(0), ..Default::default() });
        let mut other = matched.clone();
        other.name = "decode/L0/mlp/other".into();
        other.collective = Some(CollectiveInfo { group: Some(1), ..Default::default() });
        trace.operations.push(other);
        let operation = trace.operations.len() as u32 - 1;
        trace.spans.push(Span { operation, ..span(0, Lane::Comm, 200_000, 2_000_000) });
        trace.spans.sort_by_key(|span| (span.rank, span.start_ns));
        let all = Selection::default();
        let found = verdict(&trace, &trace_report(&trace, &all), &all, &Setting::default());
        assert_eq!(found.cause, Cause::Inconclusive, "{:?}", found.collectives);
        assert!(found.needs[0].contains("no match on another rank"), "{:?}", found.needs);
    }

    #[test]
    fn what_does_not_communicate_has_nothing_to_mend() {
        let found = judged(vec![span(0, Lane::Compute, 0, 40)]);
        assert_eq!(found.headline, "no communication, 100 % kernels in decode/L*/mlp/down");
        assert!(found.remedies.is_empty() && found.not_rewired.is_none() && found.needs.is_empty());
    }

    #[test]
    fn shares_are_neither_nothing_nor_all_where_they_are_not() {
        let told = |share: f64| percent(share);
        assert_eq!([0.0, 0.004, 0.05, 0.995, 1.0].map(told), ["0 %", "0.4 %", "5 %", "99.5 %", "100 %"]);
    }
}
