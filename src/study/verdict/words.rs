//! Words of a verdict: a headline, and sentences.

use super::{
    CAVEAT, Cause, CollectiveVerdict, FUSED, LAUNCH_BOUND, LIMIT, LongestGap, MANY_PYTHON_CALLS, NAMED,
    NOT_PREDICTED, Remedy, StageIdle, Verdict,
};
use crate::analysis::TimePart;
use crate::whatif::FURTHER_ARCHITECTURES;
use base::text::{capitalized, counted, fitting_name, function_name, latency};
use trace::rules::function;

/// Exposed share of the time below which no remedy is worthwhile.
const LITTLE: f64 = 0.02;

/// Minimum idle share of the time to lead a verdict.
const IDLE: f64 = 0.05;

/// Minimum overlap for communication to count as partly hidden.
const HIDDEN: f64 = 0.05;

/// Standard deviation of times below which nothing differs (%).
const ALIKE_PCT: f64 = 0.05;

/// Maximum number of remedies in a verdict.
const REMEDIES: usize = 4;

/// Least gain of a remedy that is offered: less is within rounding.
const GAIN: f64 = 0.005;

/// Place in which a verdict is read; it decides how the next steps are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerdictPlace<'a> {
    CommandLine,
    /// Workbench, with the names of its keys: `go` goes to the cause that a sentence names, `open` opens traces,
    /// `compare` opens the what-if screen.
    Workbench {
        go: &'a str,
        open: &'a str,
        compare: &'a str,
    },
}

/// Need of traces of more ranks; `how` opens them.
pub(super) fn all_ranks(how: &str) -> String {
    format!("open the traces of all ranks ({how}, one file per rank) to separate transfer from waiting")
}

/// Cause of transfers whose messages are too small for the link's bandwidth.
const LATENCY_BOUND: &str = "latency-bound";

/// Maximum length of a collective's name in a sentence.
const NAME: usize = 48;

impl CollectiveVerdict {
    /// Name shortened for a sentence; keeps the process group.
    fn fitting_name(&self) -> String {
        let group = self.group.as_ref().map(|group| format!(" ({group})")).unwrap_or_default();
        let name = self.name.strip_suffix(&group).unwrap_or(&self.name);
        fitting_name(name, NAME) + &group
    }

    /// Cause, with the share of the time behind it.
    fn cause_in_words(&self) -> String {
        let waits = self.transfer_share.map(|share| 1.0 - share).filter(|waits| *waits >= 0.005);
        let waits = match waits {
            Some(waits) => format!("{} of its time waits for peers", percent(waits)),
            None => "no waiting for peers".to_owned(),
        };
        if let Some(message) = self.latency_bound {
            return format!("{LATENCY_BOUND}, {}, {waits}", message.in_words());
        }
        let transfer = self
            .transfer_share
            .map_or(String::new(), |share| format!(" ({waits}, {} is transfer)", percent(share)));
        let waited = self.waited_share_at_least.map_or(String::new(), |share| {
            format!(" (at least {} of its time waits for slower ranks)", percent(share))
        });
        format!("{}{transfer}{waited}", self.cause.in_words())
    }
}

pub(super) fn percent(share: f64) -> String {
    let pct = 100.0 * share;
    // one decimal below 10 % and close to 100 %, unless it is 0
    let nearly = (pct > 0.0 && pct < 9.95) || (pct > 99.05 && pct < 99.95);
    let text = if nearly { format!("{pct:.1}") } else { format!("{pct:.0}") };
    let whole = text.strip_suffix(".0").filter(|_| pct >= 0.95);
    format!("{} %", whole.unwrap_or(&text))
}

/// Part of a time with its share: `2.14 of 84.5 ms (2.5 %)`.
fn part_of(us: f64, all_us: f64) -> String {
    let (part, all) = (latency(us), latency(all_us));
    let unit = |text: &str| text.split_once(' ').map(|(_, unit)| unit.to_owned());
    let part = match unit(&part) == unit(&all) {
        true => part.split(' ').next().unwrap_or_default(),
        false => &part,
    };
    let share = if all_us > 0.0 { us / all_us } else { 0.0 };
    format!("{part} of {all} ({})", percent(share))
}

/// Kernel with at least half of a part of the time, and its share of the whole time: `most in flash_fwd_kernel (45 %)`.
fn most_of(part: &TimePart) -> Option<String> {
    let name = part.longest.as_ref().filter(|_| 2.0 * part.longest_share >= part.share)?;
    let name = fitting_name(&function_name(name), NAME);
    Some(format!("most in {name} ({})", percent(part.longest_share)))
}

impl Cause {
    fn in_words(self) -> &'static str {
        match self {
            Self::Inconclusive => {
                "transfer, or waiting for slower ranks: this trace cannot separate them"
            }
            known => known.as_str(),
        }
    }
}

impl StageIdle {
    fn in_words(self) -> String {
        let Self { pp, micro_batches, idle_share } = self;
        format!(
            "The {pp} pipeline stages are idle {} of the time, waiting for each other, with {micro_batches} micro-batch{} in \
             flight{}.",
            percent(idle_share),
            if micro_batches == 1 { "" } else { "es" },
            match micro_batches < pp {
                true => format!("; {pp} would give each stage one"),
                false => String::new(),
            }
        )
    }
}

impl Verdict {
    pub(super) fn in_a_few_words(&self) -> String {
        if self.undecided {
            return format!("undecided: {}", self.first_doubt().unwrap_or_default());
        }
        let of_part = self.only_prefill().map_or(String::new(), |part| format!("{part}: "));
        let Some(worst) = self.collectives.first() else {
            return of_part + &self.without_communication();
        };
        let work = self.leading_work();
        let kernel = work.and_then(most_of);
        let mut words = vec![format!("{} exposed communication", percent(self.exposed_share))];
        if self.exposed_share >= LITTLE && self.cause != Cause::Inconclusive {
            let cause = match self.cause {
                Cause::Mixed => "both transfer and waiting",
                Cause::TransferDominated if self.is_latency_bound() => LATENCY_BOUND,
                known => known.as_str(),
            };
            words.push(cause.to_owned());
        }
        let host = self.host_share.filter(|share| *share >= LAUNCH_BOUND);
        // the larger loss first: narrow windows drop what comes later
        if let Some(host) = host {
            let at = if self.waits_between_graphs() { " between CUDA graphs" } else { "" };
            let place = if host > self.exposed_share { 0 } else { words.len() };
            words.insert(place, format!("{} waiting for the host{at}", percent(host)));
        } else if let Some(ladder) = self.remedies.iter().find(|remedy| remedy.name == "ladder") {
            words.push(format!("ladder {:.2}x (predicted)", ladder.speedup));
        } else if self.exposed_share >= LITTLE && kernel.is_none() {
            words.push(format!("most in {}", worst.fitting_name()));
        }
        if self.leads_with_idle() && host.is_none_or(|host| host <= self.exposed_share) {
            let unknown = if self.host_share.is_none() { " (cause unknown)" } else { "" };
            words.insert(0, format!("{} idle{unknown}", percent(self.idle_share)));
        }
        let work = work.map(|part| format!("{} {}", percent(part.share), part.work));
        let words: Vec<String> = work.into_iter().chain(kernel).chain(words).collect();
        of_part + &words.join(", ")
    }

    /// Largest part of the time, if it is neither idle time nor communication.
    fn leading_work(&self) -> Option<&TimePart> {
        let part = self.time.first()?;
        (!["idle", "exposed communication"].contains(&part.work.as_str())).then_some(part)
    }

    /// Sentence on the largest part of the time, if it is neither idle time nor communication.
    fn work(&self) -> Option<String> {
        let part = self.leading_work()?;
        let most = most_of(part).map_or(String::new(), |most| format!(", {most}"));
        let time = part_of(part.share * self.time_us, self.time_us);
        Some(format!("{}: {time} per rank{most}.", capitalized(&part.work)))
    }

    /// Sentence on the time that no other sentence names, so that all parts add up; `None` if that is within rounding.
    fn rest(&self) -> Option<String> {
        /// Least share of the time that is named.
        const ROUNDING: f64 = 0.005;
        let leading = self.leading_work();
        let other = 1.0 - self.idle_share - self.exposed_share - leading.map_or(0.0, |part| part.share);
        let is_named = |part: &&TimePart| {
            let is_separate = ["idle", "exposed communication"].contains(&part.work.as_str());
            is_separate || leading.is_some_and(|leading| leading.work == part.work)
        };
        let unnamed = || self.time.iter().filter(|part| !is_named(part));
        let nameless = other - unnamed().map(|part| part.share).sum::<f64>();
        let is_idle_named = self.stages.is_some() || self.idle().is_some();
        let idle = if is_idle_named { 0.0 } else { self.idle_share };
        let parts = [(idle, "idle")].into_iter();
        let parts = parts.chain(unnamed().map(|part| (part.share, part.work.as_str())));
        let parts = parts.chain([(nameless, "copies and other work")]);
        let parts = parts.filter(|(share, _)| *share >= ROUNDING).map(|(share, what)| {
            format!("{} ({}) {what}", latency(share * self.time_us), percent(share))
        });
        let parts: Vec<String> = parts.collect();
        (!parts.is_empty()).then(|| format!("Rest per rank: {}.", parts.join("; ")))
    }

    /// True if latency-bound collectives expose most of the communication.
    fn is_latency_bound(&self) -> bool {
        let bound = self.collectives.iter().filter(|row| row.latency_bound.is_some());
        bound.map(|row| row.share).sum::<f64>() >= 0.5
    }

    /// True if more time is idle than exposed communication takes.
    fn leads_with_idle(&self) -> bool {
        self.stages.is_none() && self.idle_share >= IDLE && self.idle_share > self.exposed_share
    }

    /// True if the GPU waits for the host more than communication is exposed, as in launch-bound steps.
    pub fn leads_with_host(&self) -> bool {
        self.host_share.is_some_and(|host| host >= LAUNCH_BOUND && host > self.exposed_share)
    }

    /// Gap that the verdict names before other causes: one that is most of the idle time, or the longest one where idle
    /// time leads.
    pub fn leading_gap(&self) -> Option<&LongestGap> {
        let [.., outside] = self.idle_parts;
        let leads = self.leads_with_idle() && 2.0 * outside < self.idle_share;
        self.longest_gap.as_ref().or(self.any_gap.as_ref().filter(|_| leads))
    }

    fn without_communication(&self) -> String {
        let part = |part: &TimePart| part.in_words(percent, |name| fitting_name(name, NAME));
        let ignored = match self.ignored_kernels() {
            0 => String::new(),
            count => format!(" left ({} ignored)", counted(count, "kernel")),
        };
        match (self.time.first(), self.doubtful.first()) {
            (None, _) => "nothing ran".into(),
            (Some(_), Some((name, share))) => {
                let name = fitting_name(name, NAME);
                format!("no known communication{ignored}, {} in {name}", percent(*share))
            }
            (Some(most), None) => {
                let one = if self.one_rank && ignored.is_empty() { "one rank, " } else { "" };
                let gap =
                    self.longest_gap.as_ref().map(|gap| format!(", one gap of {}", latency(gap.gap_us)));
                format!("{one}no communication{ignored}, {}{}", part(most), gap.unwrap_or_default())
            }
        }
    }

    /// True if at least half of the waiting for the host is between CUDA graphs.
    fn waits_between_graphs(&self) -> bool {
        self.host_share.is_some_and(|host| 2.0 * self.between_graphs_share >= host)
    }

    /// Number of ignored kernels that are communication.
    fn ignored_kernels(&self) -> usize {
        self.ignored_communication.iter().map(|(_, count)| *count as usize).sum()
    }

    /// Sentence on communication that the numbers lack.
    fn ignored(&self) -> Option<String> {
        let named = self.ignored_communication.iter().take(NAMED);
        let named: Vec<String> =
            named.map(|(name, count)| format!("{count} x {}", fitting_name(name, NAME))).collect();
        (!named.is_empty()).then(|| {
            format!(
                "Communication is missing from these numbers: {} with impossible times ignored ({}).",
                counted(self.ignored_kernels(), "kernel"),
                named.join(", ")
            )
        })
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
            "{count} {looks} like communication but {counts} as compute, because no rule matches (shares of GPU time): {}. If \
             {communicates}, these numbers are wrong: write a rule file that begins with extends = \"default\", add a [[rule]] \
             with a name, what = \"communication\" and patterns = [{}], and pass it with --rules FILE.",
            named.join(", "),
            toml::Value::from(format!("{}*", function(first))),
        ))
    }

    fn dominated(&self) -> Option<String> {
        let part = |part: &TimePart| part.in_words(percent, |name| fitting_name(name, NAME));
        let parts: Vec<String> = self.time.iter().take(NAMED).map(part).collect();
        (!parts.is_empty()).then(|| format!("Time breakdown: {}.", parts.join(", ")))
    }

    /// Sentence on streams, consistent with the measured overlap.
    fn streams(&self) -> Option<String> {
        let hidden = self.overlap_pct.unwrap_or(0.0) / 100.0;
        Some(match self.own_stream? {
            true if hidden >= HIDDEN => {
                format!("Communication runs on its own stream; compute hides {} of it.", percent(hidden))
            }
            true => "Communication runs on its own stream, so it can overlap with compute.".into(),
            false if hidden >= HIDDEN => format!(
                "Communication shares a stream with compute; kernels on other streams hide {} of it.",
                percent(hidden)
            ),
            false => {
                // while the host delays everything, other remedies only help after that one
                let first = match self.host_share.is_some_and(|host| host >= LAUNCH_BOUND) {
                    true => "Once the GPU no longer waits for the host,",
                    false => "First",
                };
                format!(
                    "Communication runs on the compute stream, so it cannot overlap. {first} move it to a separate stream."
                )
            }
        })
    }

    /// Sentence on the operator or call that the host ran during the longest gap, with a leading space. `None` if another
    /// sentence already covers that gap.
    fn longest_wait(&self) -> Option<String> {
        let gap = self.leading_gap().filter(|_| self.longest_gap.is_none())?;
        let work = gap.host_work()?;
        let [length, time] = [gap.gap_us, work.within_us].map(latency);
        let of_rank = if self.ranks > 1 { format!(" of rank {}", gap.rank) } else { String::new() };
        Some(format!(
            " During the longest gap{of_rank} ({length}) the host was in {} for {time}.",
            work.name
        ))
    }

    /// Sentence on the host, if the GPU waits for it often.
    fn host(&self) -> Option<String> {
        let host = self.host_share.filter(|share| *share >= LAUNCH_BOUND)?;
        let between = self.between_graphs_share;
        let waits = part_of(host * self.time_us, self.time_us);
        // a call that blocks the host is no launch
        let call = self.longest_gap.as_ref().and_then(|gap| gap.host_call.as_ref());
        let blocked =
            call.filter(|call| call.within_us >= 0.5 * host * self.time_us).map(|call| &call.name[..]);
        // other idle time has other causes
        let idle = match self.idle_share - host >= 0.005 {
            true => format!("The GPU is idle {} of the time; it", percent(self.idle_share)),
            false => "The GPU".to_owned(),
        };
        let sentence = if self.is_own {
            format!(
                "{idle} waits for the host {waits} per rank. First reduce the host's work between steps (scheduling, \
                 sampling, input copies).",
            )
        } else if self.waits_between_graphs() {
            format!(
                "{idle} waits for the host {waits} per rank; {} of that is between CUDA graphs. First reduce the host's work \
                 between steps (scheduling, sampling, input copies), or launch the next graph before this one ends.",
                percent(between / host)
            )
        } else if self.has_graphs {
            format!(
                "{idle} waits for the host {waits} per rank: {} of the time for kernels launched outside CUDA graphs{}. Move \
                 these launches into the graph first.",
                percent(host - between),
                match between >= 0.005 {
                    true => format!(", and {} between graphs", percent(between)),
                    false => String::new(),
                }
            )
        } else if blocked.is_some() {
            format!(
                "{idle} waits for the host {waits} per rank, most of it while the host is in {}.",
                blocked.unwrap_or_default()
            )
        } else {
            format!(
                "{idle} waits for kernel launches {waits} per rank (launch-bound).{} Capture a CUDA graph or launch fewer \
                 kernels first.",
                self.longest_wait().unwrap_or_default()
            )
        };
        Some(match self.python_calls {
            MANY_PYTHON_CALLS.. => format!(
                "{sentence} Recorded with Python stacks ({} calls), which slows the host: record without with_stack \
                 before trusting this wait or the gain of CUDA graphs.",
                self.python_calls
            ),
            _ => sentence,
        })
    }

    /// Sentence on idle time, if it is more than exposed communication, and what is known of its cause.
    fn idle(&self) -> Option<String> {
        if !self.leads_with_idle() || self.host_share.is_some_and(|share| share >= LAUNCH_BOUND) {
            return self.host();
        }
        let idle = part_of(self.idle_share * self.time_us, self.time_us);
        let causes = [
            "waiting for the host",
            "next to collectives",
            "between kernels",
            "outside of timed generations",
        ];
        let known = self.idle_parts.iter().zip(causes).filter(|(share, _)| **share >= 0.005);
        let known: Vec<String> =
            known.map(|(share, cause)| format!("{} {cause}", percent(*share))).collect();
        Some(match self.host_share {
            None if self.doubts_launches => {
                format!(
                    "Idle: {idle} per rank; launch times are unreliable, so the cause is unknown (see Doubtful)."
                )
            }
            None => format!(
                "Idle: {idle} per rank. The trace has GPU events only, so the cause is unknown; also record CPU events."
            ),
            Some(_) => format!("Idle: {idle} per rank: {}.", known.join(", ")),
        })
    }

    /// The importer's first doubt, and the number of others.
    fn first_doubt(&self) -> Option<String> {
        let (first, others) = self.doubts.split_first()?;
        Some(match others.len() {
            0 => first.clone(),
            more => format!("{first}; and {more} more"),
        })
    }

    /// Sentence on doubts of the importer.
    fn unjudged(&self) -> Option<String> {
        self.first_doubt().map(|doubt| format!("Doubtful: {doubt}."))
    }

    /// Sentences of an undecided verdict: reasons, and the file's numbers.
    fn as_recorded(&self) -> Vec<String> {
        let recorded = match self.collectives.is_empty() {
            true => "no communication".to_owned(),
            false => {
                format!("{} per rank are exposed communication", part_of(self.exposed_us, self.time_us))
            }
        };
        let none = "These times are not reliable enough to name a cause or a remedy.";
        let numbers = format!("As recorded: {recorded}.");
        let parts =
            [Some(none.to_owned()), Some(numbers), self.ignored(), self.doubt(), self.dominated()];
        self.unjudged().into_iter().chain(parts.into_iter().flatten()).collect()
    }

    /// Sentences of the verdict; lines of its table of remedies begin with two blanks.
    pub fn sentences_for(&self, reader: VerdictPlace<'_>) -> Vec<String> {
        let look = match reader {
            VerdictPlace::CommandLine => "`timeline` with `--from` and `--to`".to_owned(),
            VerdictPlace::Workbench { go, .. } => format!("{go} goes there"),
        };
        let lacking = self.only_prefill().map(capitalized);
        let lacking = lacking.map(|part| format!("{part}; no decode step in this trace."));
        if self.time.is_empty() {
            return vec!["The selection contains no GPU work.".into()];
        }
        if self.undecided {
            return self.as_recorded();
        }
        if self.collectives.is_empty() {
            return self.sentences_without_communication(lacking, &look);
        }
        let mut sentences = Vec::from_iter(lacking);
        let part = self.part.as_ref().filter(|_| !self.lacks_decode);
        let part = part.map_or(String::new(), |part| format!(", {part}"));
        let hidden = self.overlap_pct.map_or(String::new(), |pct| {
            format!("; {} of all communication is hidden", percent(pct / 100.0))
        });
        // largest part of the time first, then the larger loss
        sentences.extend(match self.exposed_share < LITTLE {
            true => self.dominated(),
            false => self.work(),
        });
        let leads = self.leads_with_idle();
        sentences.extend(self.idle().filter(|_| leads));
        sentences.push(format!(
            "Exposed communication{part}: {} per rank{hidden}.",
            part_of(self.exposed_us, self.time_us)
        ));
        // a breakdown of the time has all parts
        sentences.extend(self.rest().filter(|_| self.exposed_share >= LITTLE));
        let named = self.collectives.iter().filter(|row| row.share >= 0.05).map(|row| {
            let calls = match (self.steps as u64, row.count) {
                (steps @ 2.., count) if count % steps == 0 => {
                    format!("{} per rank and step", counted((count / steps) as usize, "call"))
                }
                (_, count) => format!("{} per rank", counted(count as usize, "call")),
            };
            format!(
                "{} in {} ({calls}): {}",
                percent(row.share),
                row.fitting_name(),
                row.cause_in_words()
            )
        });
        let named: Vec<String> = named.collect();
        if !named.is_empty() {
            sentences.push(format!("Where: {}.", named.join("; ")));
        }
        sentences.extend(self.ignored());
        sentences.extend(self.doubt());
        sentences.extend(self.streams());
        sentences.extend(self.stages.map(StageIdle::in_words));
        sentences.extend(self.longest_gap.as_ref().map(|gap| gap.in_words(self.ranks, &look)));
        sentences.extend(self.idle().filter(|_| !leads));
        sentences.extend(self.unjudged());
        sentences.extend(self.skew_for(reader));
        sentences.extend(self.remedy_lines(reader));
        if let Some(why) = &self.not_rewired {
            sentences.push(format!("No schedule predicted: {why}."));
            sentences.extend(self.bounds());
        }
        sentences.extend(self.needs_for(reader));
        sentences
    }

    /// Sentence on the skew of ranks, if their times differ.
    fn skew_for(&self, reader: VerdictPlace<'_>) -> Option<String> {
        let differ = |skew: &[f64; 2]| skew.iter().any(|pct| *pct >= ALIKE_PCT);
        let [rank, operation] = self.skew.filter(|skew| self.ranks > 1 && differ(skew))?;
        let simulate = match reader {
            VerdictPlace::CommandLine => format!(
                " To simulate it: whatif --set skew.rank_pct={rank:.2} --set skew.operation_pct={operation:.2}."
            ),
            VerdictPlace::Workbench { .. } => String::new(),
        };
        let ranks = match rank >= ALIKE_PCT {
            true => format!("Rank skew: ranks differ in speed by {rank:.2} %"),
            false => "Rank skew: ranks are equally fast".to_owned(),
        };
        let operations = match operation >= ALIKE_PCT {
            true => format!("single operations vary by {operation:.2} %"),
            false => "single operations hardly vary".to_owned(),
        };
        Some(format!("{ranks}; {operations} (standard deviations).{simulate}"))
    }

    /// Sentences on data that a better verdict needs, and on caveats.
    fn needs_for(&self, reader: VerdictPlace<'_>) -> Vec<String> {
        let sentence = |(at, need): (usize, &String)| {
            if let Some(remedy) = need.strip_prefix(NOT_PREDICTED) {
                return format!("Not predicted: {remedy}.");
            }
            match (need.strip_prefix(CAVEAT), reader) {
                (Some(caveat), VerdictPlace::CommandLine) => format!("{}.", capitalized(caveat)),
                (Some(caveat), VerdictPlace::Workbench { .. }) => {
                    format!("{}.", capitalized(&caveat.replace(" (--no-launches)", "")))
                }
                (None, VerdictPlace::Workbench { open, .. }) if at == 0 && self.needs_ranks => {
                    format!("More data: {}.", all_ranks(&format!("{open} and their directory")))
                }
                (None, _) => format!("More data: {need}."),
            }
        };
        self.needs.iter().enumerate().map(sentence).collect()
    }

    /// Sentences on a trace in which no communication was found; `lacking` names the steps it covers, if decode is not
    /// among them, and `look` how to go to a gap.
    fn sentences_without_communication(&self, lacking: Option<String>, look: &str) -> Vec<String> {
        let known = if self.doubtful.is_empty() { "" } else { " by the rules" };
        let left =
            if self.ignored_communication.is_empty() { "" } else { ", apart from ignored events" };
        let none = match self.one_rank && known.is_empty() && left.is_empty() {
            true => "One rank of one: no communication to find.".to_owned(),
            false => format!("No communication{known} found{left}."),
        };
        // gaps may hold the ignored communication, and one long gap is a cause of its own
        let idle = if self.longest_gap.is_some() { self.host() } else { self.idle() };
        let idle = idle.filter(|_| self.ignored_communication.is_empty());
        let parts = [
            lacking,
            Some(none),
            self.ignored(),
            self.doubt(),
            self.dominated(),
            self.stages.map(StageIdle::in_words),
            self.longest_gap.as_ref().map(|gap| gap.in_words(self.ranks, look)),
            idle,
            self.ignored_communication.is_empty().then(|| self.limits()),
            self.unjudged(),
        ];
        parts.into_iter().flatten().collect()
    }

    /// Best remedies, a line each under the step they are compared with and the command or key that compares other
    /// architectures; then the error of the predictions.
    fn remedy_lines(&self, reader: VerdictPlace<'_>) -> Vec<String> {
        let is_limit = |remedy: &&Remedy| remedy.name.ends_with(LIMIT);
        let limit = self.remedies.iter().find(is_limit);
        let simpler = |remedy: &Remedy| {
            let (first, _) = remedy.name.split_once(" + ")?;
            self.remedies.iter().find(|other| other.name == first)
        };
        // a part that adds nothing is no remedy
        let helps = |remedy: &&Remedy| {
            let least = simpler(remedy).map_or(1.0, |simpler| simpler.speedup.max(1.0));
            !is_limit(remedy) && remedy.speedup >= least + GAIN
        };
        let mut offered: Vec<&Remedy> = self.remedies.iter().filter(helps).collect();
        offered.sort_by(|a, b| b.speedup.total_cmp(&a.speedup));
        offered.truncate(REMEDIES);
        let Some(any) = self.remedies.first() else { return Vec::new() };
        // fused all-reduces do the norms, and the limit contains every remedy
        let has_fused = self.remedies.iter().any(|remedy| remedy.name.ends_with(FUSED));
        let bound = limit.map_or(String::new(), |limit| {
            let free = match (has_fused, limit.name.contains(" + ")) {
                (true, true) => "communication, norm kernels and launch gaps",
                (true, false) => "communication and norm kernels",
                (false, true) => "communication and launch gaps",
                (false, false) => "communication",
            };
            // what-if and `rewire` without a fused all-reduce have a lower limit
            let kept = if has_fused { "; upper-bound keeps the norm kernels" } else { "" };
            format!(" ({}{:.2}x if {free} cost nothing{kept})", limit.at_most(), limit.speedup)
        });
        // delayed:2 changes all-reduces, and traces with exchanges have none
        let exchanges = self.remedies.iter().any(|remedy| remedy.name.ends_with("farskip"));
        let such = if exchanges { "" } else { ", such as delayed:2" };
        let others = match reader {
            VerdictPlace::CommandLine => {
                format!("`ladderscope rewire --architecture` compares others{such}")
            }
            VerdictPlace::Workbench { compare, .. } if exchanges => format!("{compare} compares others"),
            VerdictPlace::Workbench { compare, .. } => {
                format!("{compare} compares {FURTHER_ARCHITECTURES} more{such}")
            }
        };
        let mut lines = vec![match offered.is_empty() {
            true => format!("No remedy is predicted to help{bound}; {others}."),
            false => {
                let median = if self.steps == 1 { "" } else { "median " };
                format!(
                    "Predicted speedup of these remedies over this trace's {median}step of {}, best first{bound}; \
                     architectures such as ladder need training or conversion, and {others}:",
                    latency(self.step_us)
                )
            }
        }];
        lines.extend(offered.iter().map(|remedy| remedy.line()));
        let ladder = self.remedies.iter().find(|remedy| remedy.name.ends_with("ladder"));
        lines.push(format!("Error of these predictions: {}.", ladder.unwrap_or(any).error));
        lines
    }

    /// Upper bounds of speedups, from recorded shares of the time, for traces whose layers are unknown.
    fn bounds(&self) -> Option<String> {
        // one long gap would hide every other bound
        let gap_us = self.longest_gap.as_ref().filter(|_| self.ranks < 2).map_or(0.0, |gap| gap.gap_us);
        let time_us = self.time_us - gap_us;
        let without_gap = |share: f64| {
            let us = share * self.time_us;
            if us >= 0.5 * gap_us { (us - gap_us).max(0.0) / self.time_us } else { share }
        };
        let mut parts = vec![
            (
                self.hideable_share,
                match self.comm_exceeds_compute {
                    Some([comm, compute]) => format!(
                        "if compute ({}) hid as much communication ({}) as it can",
                        latency(compute),
                        latency(comm)
                    ),
                    None => "if compute hid communication and no kernel became slower or faster".into(),
                },
            ),
            (
                without_gap(self.host_share.unwrap_or(0.0)),
                "if the GPU never waited for the host".to_owned(),
            ),
            (without_gap(self.idle_share), "without idle time".to_owned()),
        ];
        let copies = self.time.iter().filter(|part| part.work.ends_with(" copies"));
        parts.extend(copies.map(|part| (part.share, format!("without {}", part.work))));
        parts.extend(self.memory_slack.as_ref().map(|(share, profile)| {
            (
                *share,
                format!("if memory-bound matrix products reached the memory bandwidth of {profile}"),
            )
        }));
        parts.iter_mut().for_each(|(share, _)| *share *= self.time_us / time_us);
        parts.retain(|(share, _)| *share >= LITTLE);
        parts.sort_by(|a, b| b.0.total_cmp(&a.0));
        let bound = |(share, what): &(f64, String)| {
            let saved = latency(share * time_us);
            format!("{:.2}x (saves {saved}) {what}", 1.0 / (1.0 - share).max(1e-3))
        };
        let parts: Vec<String> = parts.iter().map(bound).collect();
        let total = match gap_us > 0.0 {
            true => format!("{} outside the gap", latency(time_us)),
            false => latency(time_us),
        };
        (!parts.is_empty()).then(|| {
            format!("Upper bounds on the speedup of the recorded {total}: {}.", parts.join("; "))
        })
    }

    /// Limit of a trace without communication: the bounds, or kernels.
    fn limits(&self) -> String {
        let computes = || {
            let idle = percent(self.idle_share);
            format!("The GPU is idle {idle} of the time: only fewer or faster kernels can help.")
        };
        self.bounds().unwrap_or_else(computes)
    }
}

impl Remedy {
    /// Line of the table: speedup or its range, and the name.
    fn line(&self) -> String {
        let differs = |other: &f64| format!("{other:.2}") != format!("{:.2}", self.speedup);
        let range = match (self.at_best.filter(differs), self.speedup_95) {
            (Some(best), _) => format!(" to {best:.2}x, if kernel time scales with the batch"),
            (None, Some([low, high])) if format!("{low:.2}") != format!("{high:.2}") => {
                format!(" [{low:.2}, {high:.2}]")
            }
            _ => String::new(),
        };
        format!("  {}{:.2}x{range}  {}", self.at_most(), self.speedup, self.name)
    }

    /// Sign before a speedup that is an upper bound, as on the what-if screen.
    fn at_most(&self) -> &'static str {
        if self.is_at_most { "< " } else { "" }
    }
}
