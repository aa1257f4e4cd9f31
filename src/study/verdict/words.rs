//! Words of a verdict: a headline, and sentences.

use super::{CollectiveVerdict, HOST, NAMED, Remedy, StageIdle, Verdict};
use crate::analysis::TimePart;
use base::text::{counted, fitting_name, latency};
use trace::rules::function;

/// Exposed share of the time below which no remedy is worthwhile.
const LITTLE: f64 = 0.02;

/// Minimum overlap for communication to count as partly hidden.
const HIDDEN: f64 = 0.05;

/// Maximum length of a collective's name in a sentence.
const NAME: usize = 48;

impl CollectiveVerdict {
    /// Name shortened for a sentence; keeps the process group.
    fn fitting_name(&self) -> String {
        let group = self.group.as_ref().map(|group| format!(" ({group})")).unwrap_or_default();
        let name = self.name.strip_suffix(&group).unwrap_or(&self.name);
        fitting_name(name, NAME) + &group
    }
}

pub(super) fn percent(share: f64) -> String {
    let pct = 100.0 * share;
    // one decimal close to 0 % and 100 %
    let nearly = (pct > 0.0 && pct < 0.95) || (pct > 99.05 && pct < 99.95);
    if nearly { format!("{pct:.1} %") } else { format!("{pct:.0} %") }
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
                true => format!("; --micro-batches {pp} gives each stage one"),
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
                let gap = self.longest_gap.map(|gap| format!(", one gap of {}", latency(gap.gap_us)));
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
            true => "Communication runs on its own stream, so it can overlap with compute.".into(),
            false if hidden >= HIDDEN => format!(
                "Communication shares a stream with compute; kernels on other streams hide {} of it.",
                percent(hidden)
            ),
            false => "Communication runs on the compute stream, so it cannot overlap. Move it to a separate stream first.".into(),
        })
    }

    /// Sentence on the host, if the GPU waits for it often.
    fn host(&self) -> Option<String> {
        let host = self.host_share.filter(|share| *share >= HOST)?;
        let between = self.between_graphs_share;
        Some(match () {
            () if self.waits_between_graphs() => format!(
                "The GPU is idle {} of the time, waiting for the host; {} of that is between CUDA graphs. First reduce the host's \
                 work between steps (scheduling, sampling, input copies), or launch the next graph before this one ends.",
                percent(host),
                percent(between / host)
            ),
            () if self.has_graphs => format!(
                "The GPU is idle {} of the time, waiting for kernels launched outside CUDA graphs{}. Move these launches into the \
                 graph first.",
                percent(host - between),
                match between >= 0.005 {
                    true => format!(", and {} between graphs", percent(between)),
                    false => String::new(),
                }
            ),
            () => format!(
                "The GPU is idle {} of the time, waiting for kernel launches (launch-bound). Capture a CUDA graph or launch fewer \
                 kernels before optimizing communication.",
                percent(host)
            ),
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
            false => format!(
                "{} of the time is exposed communication ({} per rank)",
                percent(self.exposed_share),
                latency(self.exposed_us)
            ),
        };
        let none = "These times are not reliable enough to name a cause or a remedy.";
        let numbers = format!("As recorded: {recorded}.");
        let parts =
            [Some(none.to_owned()), Some(numbers), self.ignored(), self.doubt(), self.dominated()];
        self.unjudged().into_iter().chain(parts.into_iter().flatten()).collect()
    }

    pub(super) fn in_sentences(&self, ranks: &usize) -> Vec<String> {
        if self.time.is_empty() {
            return vec!["The selection contains no GPU work.".into()];
        }
        if self.undecided {
            return self.as_recorded();
        }
        if self.collectives.is_empty() {
            let known = if self.doubtful.is_empty() { "" } else { " by the rules" };
            let left =
                if self.ignored_communication.is_empty() { "" } else { ", apart from ignored events" };
            let none = match self.one_rank && known.is_empty() && left.is_empty() {
                true => "One rank of one: no communication to find.".to_owned(),
                false => format!("No communication{known} found{left}."),
            };
            // gaps may hold the ignored communication
            let host = self.host().filter(|_| self.ignored_communication.is_empty());
            let parts = [
                Some(none),
                self.ignored(),
                self.doubt(),
                self.dominated(),
                self.stages.map(StageIdle::in_words),
                self.longest_gap.map(|gap| gap.in_words(*ranks)),
                host,
                self.unjudged(),
            ];
            return parts.into_iter().flatten().collect();
        }
        let mut sentences = Vec::new();
        let hidden = self.overlap_pct.map_or(String::new(), |pct| {
            format!("; {} of all communication is hidden", percent(pct / 100.0))
        });
        sentences.push(format!(
            "Exposed communication: {} of the time ({} per rank{hidden}).",
            percent(self.exposed_share),
            latency(self.exposed_us)
        ));
        let named = self.collectives.iter().filter(|row| row.share >= 0.05).map(|row| {
            let transfer = row
                .transfer_share
                .map_or(String::new(), |share| format!(" ({} of its time is transfer)", percent(share)));
            let waited = row.waited_share_at_least.map_or(String::new(), |share| {
                format!(" (at least {} of its time waits for slower ranks)", percent(share))
            });
            format!(
                "{} in {} ({} calls per rank): {}{transfer}{waited}",
                percent(row.share),
                row.fitting_name(),
                row.count,
                row.cause.as_str()
            )
        });
        let named: Vec<String> = named.collect();
        if !named.is_empty() {
            sentences.push(format!("Where: {}.", named.join("; ")));
        }
        sentences.extend(self.ignored());
        sentences.extend(self.doubt());
        if self.exposed_share < LITTLE {
            sentences.extend(self.dominated());
        }
        sentences.extend(self.streams());
        sentences.extend(self.stages.map(StageIdle::in_words));
        sentences.extend(self.longest_gap.map(|gap| gap.in_words(*ranks)));
        sentences.extend(self.host());
        sentences.extend(self.unjudged());
        let differ = |skew: &[f64; 2]| skew.iter().any(|pct| *pct >= 0.005);
        if let Some([rank, operation]) = self.skew.filter(|skew| *ranks > 1 && differ(skew)) {
            sentences.push(format!(
                "Rank skew: {rank:.2} % between ranks, {operation:.2} % per operation (standard deviations). To simulate it: whatif \
                 --set skew.rank_pct={rank:.2} --set skew.operation_pct={operation:.2}."
            ));
        }
        if !self.remedies.is_empty() {
            let told: Vec<String> = self.remedies.iter().map(Remedy::told).collect();
            sentences.push(format!("Predicted speedup of a step: {}.", told.join("; ")));
            let ladder = self.remedies.iter().find(|remedy| remedy.name.ends_with("ladder"));
            let error = ladder.or(self.remedies.first()).map_or("", |remedy| &remedy.error);
            sentences.push(format!("Error of these predictions: {error}."));
        }
        if let Some(why) = &self.not_rewired {
            sentences.push(format!("No remedies predicted: {why}."));
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
            format!(" (kernel time does not shrink with the batch) to {best:.2}x (it does)")
        });
        let alone = self
            .without_contention
            .filter(|alone| format!("{alone:.2}") != format!("{:.2}", self.speedup))
            .filter(|_| range.is_empty())
            .map_or(String::new(), |alone| format!(" ({alone:.2}x without contention)"));
        format!("{} {:.2}x{interval}{range}{alone}", self.name, self.speedup)
    }
}
