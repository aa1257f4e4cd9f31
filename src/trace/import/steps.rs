//! Steps of a launch: host ranges that are named as steps.
//!
//! Steps are `ProfilerStep#12`, `decode step 12`, `iteration 12`, and iterations of serving engines:
//! `execute_context_1(512)_generation_31(31)` (vLLM), `step[DECODE bs=32]` (SGLang),
//! `[Executor] _forward_step 12: 1 ctx reqs, 31 gen reqs` (TensorRT-LLM). Kinds that differ in the word for the work only,
//! as `prefill step` and `decode step`, are one family. Of several families, one has the steps.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use plan::Phase;

use super::enclosing::ThreadRange;
use super::samples::{MarkedStep, step_keys};
use crate::overlap::StepKey;

/// Kind of a serving engine's iterations.
const SERVING: &str = "serving iteration";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepName {
    /// Name before the number, in lower case; equal for all steps of one kind.
    pub kind: String,
    /// `None` for iterations of vLLM and SGLang.
    pub number: Option<u32>,
    /// Number of requests in the step, if the name contains it.
    pub batch: Option<u32>,
    /// `None` if the name does not say.
    pub work: Option<StepWork>,
    /// Prompt tokens of a prefill or mixed step, if the name contains them.
    pub tokens: Option<u64>,
}

impl StepName {
    /// True for one forward pass: an iteration of a serving engine, or a step that is named a prefill or decode.
    pub fn is_forward(&self) -> bool {
        self.kind == SERVING || self.work.is_some()
    }

    /// Kind without the word for the work, which prefills and decodes of one engine share.
    fn family(&self) -> String {
        let word = ["prefilling", "prefill", "decoding", "decode"].into_iter();
        let word = word.filter(|_| self.work.is_some()).find(|word| self.kind.contains(word));
        word.map_or_else(|| self.kind.clone(), |word| self.kind.replacen(word, "*", 1))
    }
}

/// Work of a step, from the name of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepWork {
    Prefill,
    Decode,
    /// Prefills and decodes of a serving engine in one batch.
    Mixed,
}

impl StepWork {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Mixed => "mixed",
        }
    }

    /// Phase of the step's spans: a step with any prompt is no decode step.
    fn phase(self) -> Phase {
        if self == Self::Decode { Phase::Decode } else { Phase::Prefill }
    }

    fn of_requests(prefills: u32, decodes: u32) -> Self {
        match (prefills, decodes) {
            (0, _) => Self::Decode,
            (_, 0) => Self::Prefill,
            _ => Self::Mixed,
        }
    }

    /// Work in a framework's or user's name for a step: `decode step 7`, `PrefillStep#0`.
    fn of_words(name: &str) -> Option<Self> {
        name.split(|c: char| !c.is_ascii_alphabetic()).find_map(|word| {
            let word = word.to_ascii_lowercase();
            match word.strip_suffix("step").unwrap_or(&word) {
                "decode" | "decoding" => Some(Self::Decode),
                "prefill" | "prefilling" => Some(Self::Prefill),
                _ => None,
            }
        })
    }

    /// Work of SGLang's `ForwardMode`. Steps of speculative decoding are decodes, also those that extend the draft.
    fn of_mode(mode: &str) -> Option<Self> {
        match mode {
            "EXTEND" | "SPLIT_PREFILL" => Some(Self::Prefill),
            "MIXED" => Some(Self::Mixed),
            "DECODE" | "TARGET_VERIFY" => Some(Self::Decode),
            mode if mode.starts_with("DRAFT_EXTEND") => Some(Self::Decode),
            _ => None,
        }
    }
}

/// Parses a range name; `None` if it is not a step.
pub fn step_name(name: &str) -> Option<StepName> {
    let name = name.trim();
    if let Some(serving) = serving(name) {
        return Some(serving);
    }
    let of_words = StepWork::of_words(name);
    let name = name.trim_end_matches([']', ')', '>']);
    let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = name[prefix.len()..].parse().ok()?;
    if prefix.len() > 64 {
        return None;
    }
    let kind = prefix
        .trim_end_matches([' ', '#', '_', ':', '=', '-', '.', '[', '(', '<', '/'])
        .to_ascii_lowercase();
    let word = kind.rsplit(|c: char| !c.is_ascii_alphanumeric()).next()?;
    let is_step = word.ends_with("step") || word == "iteration" || word == "iter";
    is_step.then_some(StepName { kind, number: Some(number), batch: None, work: of_words, tokens: None })
}

/// Number after the first occurrence of a word, with the rest of the text.
fn number_after<'a>(name: &'a str, word: &str) -> Option<(u64, &'a str)> {
    let text = &name[name.find(word)? + word.len()..];
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    Some((text[..text.len() - rest.len()].parse().ok()?, rest))
}

/// Parses a serving engine's iteration.
fn serving(name: &str) -> Option<StepName> {
    let step = |number, batch, work, tokens| {
        Some(StepName { kind: SERVING.into(), number, batch, work, tokens })
    };
    let count = |word: &str| u32::try_from(number_after(name, word)?.0).ok();
    if name.starts_with("execute_") {
        let (prefills, decodes) = match (count("context_"), count("generation_")) {
            (Some(prefills), Some(decodes)) => (prefills, decodes),
            _ => (count("_new_")?, count("_cached_")?),
        };
        // tokens stand in brackets: `context_1(888_788544)`, `context_9(sq8155)`
        let tokens = number_after(name, "context_").and_then(|(_, rest)| {
            let rest = rest.strip_prefix('(')?;
            Some(number_after(rest.strip_prefix("sq").unwrap_or(rest), "")?.0)
        });
        let batch = Some(prefills.checked_add(decodes)?);
        return step(None, batch, Some(StepWork::of_requests(prefills, decodes)), tokens);
    }
    if let Some((number, rest)) = number_after(name, "_forward_step ") {
        let requests = |at: usize, what: &str| -> Option<u32> {
            let part = rest.strip_prefix(": ")?.split(", ").nth(at)?;
            part.strip_suffix(what)?.trim_end().parse().ok()
        };
        let (prefills, decodes) = (requests(0, "ctx reqs")?, requests(1, "gen reqs")?);
        let (number, batch) = (u32::try_from(number).ok(), prefills.checked_add(decodes)?);
        return step(number, Some(batch), Some(StepWork::of_requests(prefills, decodes)), None);
    }
    let mode = name.strip_prefix("step[")?.strip_suffix(']')?;
    if !mode.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return None;
    }
    let work = mode.split(' ').next().and_then(StepWork::of_mode);
    let prompt = number_after(mode, "toks=").filter(|_| work != Some(StepWork::Decode));
    step(None, count("bs="), work, prompt.map(|(tokens, _)| tokens))
}

/// Priority of a kind of steps; ties go to the more frequent kind.
fn preference(kind: &str) -> u32 {
    match kind {
        "profilerstep" | SERVING => 3,
        _ if kind.contains("decod") => 2,
        _ if kind.ends_with("step") => 1,
        _ => 0,
    }
}

/// A range that is named as a step.
#[derive(Clone, Copy)]
struct NamedStep<'n> {
    process: i64,
    range: ThreadRange,
    name: &'n StepName,
    family: &'n str,
}

impl NamedStep<'_> {
    /// True if the step ends within an outer one on its thread, which begins no later.
    fn is_within(&self, outer: &Self) -> bool {
        (self.process, self.range.thread) == (outer.process, outer.range.thread)
            && self.range.end_ns <= outer.range.end_ns
    }
}

#[derive(Debug, Default)]
pub(super) struct FileSteps {
    of_process: HashMap<i64, ProcessSteps>,
    /// Kinds of the chosen family, and its number of ranges.
    pub(super) kinds: Option<(Vec<String>, usize)>,
    /// Up to five other kinds.
    pub(super) others: Vec<String>,
    /// True if the numbers in the names do not tell the steps apart, so that steps are numbered in order of time.
    is_renumbered: bool,
}

impl FileSteps {
    /// Chooses the family of names that looks most like steps. `ranges` are those of threads with their process; their
    /// values are names, of which `names` has an entry each.
    pub(super) fn new(
        ranges: impl Iterator<Item = (i64, ThreadRange)>,
        names: &[Option<StepName>],
    ) -> Self {
        let families: Vec<String> =
            names.iter().map(|name| name.as_ref().map(StepName::family).unwrap_or_default()).collect();
        let named = |(process, range): (i64, ThreadRange)| {
            let at = range.value as usize;
            Some(NamedStep { process, range, name: names.get(at)?.as_ref()?, family: &families[at] })
        };
        let mut list: Vec<NamedStep> = ranges.filter_map(named).collect();
        list.sort_unstable_by_key(|NamedStep { process, range, .. }| {
            (*process, range.thread, range.start_ns, Reverse(range.end_ns))
        });
        // drop nested iterations: an engine and its model runner may both mark one
        let mut outer: Option<NamedStep> = None;
        list.retain(|step| {
            if step.name.kind != SERVING {
                return true;
            }
            let inner = outer.is_some_and(|outer| step.is_within(&outer));
            outer = if inner { outer } else { Some(*step) };
            !inner
        });
        // preference and number of ranges
        let mut counts: BTreeMap<&str, (u32, usize)> = BTreeMap::new();
        for NamedStep { name, family, .. } in &list {
            let (preferred, count) = counts.entry(*family).or_default();
            *preferred = preference(&name.kind).max(*preferred);
            *count += 1;
        }
        let counted =
            counts.iter().map(|(family, (preferred, count))| (*preferred, *count, Reverse(*family)));
        let Some((preferred, count, Reverse(best))) = counted.max() else {
            return Self::default();
        };
        let around = outer_families(&list, best, count);
        let around = around.into_iter().filter(|outer| counts[outer].0 >= preferred);
        let chosen = around.min_by_key(|outer| (counts[outer].1, *outer)).unwrap_or(best);
        let (mut steps, others): (Vec<NamedStep>, Vec<NamedStep>) =
            list.into_iter().partition(|step| step.family == chosen);
        let kinds = |steps: &[NamedStep], most: usize| -> Vec<String> {
            let kinds: BTreeSet<&str> = steps.iter().map(|step| step.name.kind.as_str()).collect();
            kinds.into_iter().take(most).map(str::to_owned).collect()
        };
        steps.sort_by_key(|step| (step.process, step.range.start_ns));
        let mut marked: Vec<MarkedStep> = Vec::with_capacity(steps.len());
        for of_process in steps.chunk_by(|a, b| a.process == b.process) {
            marked.extend(of_process.iter().zip(0..).map(|(step, at)| MarkedStep {
                process: step.process,
                thread: step.range.thread,
                start_ns: step.range.start_ns,
                end_ns: step.range.end_ns,
                phase: step.name.work.map_or(Phase::Decode, StepWork::phase),
                number: step.name.number.unwrap_or(at),
            }));
        }
        let (keys, is_renumbered) = step_keys(&marked);
        let mut of_process: HashMap<i64, ProcessSteps> = HashMap::new();
        for (step, key) in marked.iter().zip(keys) {
            let steps = of_process.entry(step.process).or_default();
            steps.list.push((step.start_ns, step.end_ns, step.thread, key));
        }
        of_process.values_mut().for_each(ProcessSteps::sort);
        Self {
            of_process,
            kinds: Some((kinds(&steps, usize::MAX), steps.len())),
            others: kinds(&others, 5),
            is_renumbered,
        }
    }

    /// Doubt about the numbers of the steps, for people.
    pub(super) fn warning(&self) -> Option<String> {
        let (kinds, _) = self.kinds.as_ref().filter(|_| self.is_renumbered)?;
        Some(format!(
            "step numbers of the ranges named '{}' repeat out of order, so steps are numbered in order of time",
            kinds.join("' and '")
        ))
    }

    pub(super) fn of_process(&self, process: i64) -> Option<&ProcessSteps> {
        self.of_process.get(&process)
    }

    /// Step at `time` in any of the wanted processes.
    pub(super) fn any(&self, time: i64, is_wanted: impl Fn(i64) -> bool) -> Option<StepKey> {
        let processes = self.of_process.iter().filter(|(process, _)| is_wanted(**process));
        processes.filter_map(|(_, steps)| steps.at(time, None)).min()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.of_process.is_empty()
    }
}

/// Families of which most of the `count` ranges of `inner` lie in a range on the same thread, and begin again in each:
/// training steps around micro-batches. The list must be sorted by thread, start and length.
fn outer_families<'n>(list: &[NamedStep<'n>], inner: &str, count: usize) -> Vec<&'n str> {
    /// Maximum depth of nested steps.
    const DEEPEST: usize = 64;
    /// Ranges of the inner family within those of an outer one.
    #[derive(Default)]
    struct Within {
        count: usize,
        restarts: usize,
        goes_on: bool,
        /// Thread and start of the last outer range with an inner one, and the number of its last inner one.
        last: Option<((i64, i64, i64), u32)>,
    }
    let mut found: HashMap<&str, Within> = HashMap::new();
    let mut open: Vec<&NamedStep> = Vec::new();
    for step in list {
        open.retain(|outer| step.is_within(outer));
        if step.family != inner {
            if open.len() < DEEPEST {
                open.push(step);
            }
            continue;
        }
        // unnumbered iterations do not begin again
        let Some(number) = step.name.number else { return Vec::new() };
        for outer in &open {
            let place = (outer.process, outer.range.thread, outer.range.start_ns);
            let within = found.entry(outer.family).or_default();
            within.count += 1;
            if let Some((before, last)) = within.last.replace((place, number))
                && (before.0, before.1) == (place.0, place.1)
                && before.2 != place.2
            {
                within.restarts += usize::from(number <= last);
                within.goes_on |= number > last;
            }
        }
    }
    let is_outer =
        |within: &Within| within.restarts > 0 && !within.goes_on && 4 * within.count >= 3 * count;
    found.into_iter().filter(|(_, within)| is_outer(within)).map(|(family, _)| family).collect()
}

/// Steps of one process, indexed for lookups by time.
#[derive(Debug, Default)]
pub(super) struct ProcessSteps {
    /// (start, end, thread, key), by start once sorted.
    list: Vec<(i64, i64, i64, StepKey)>,
    /// Latest end of each step and all before it, which bounds the backward search.
    latest: Vec<i64>,
}

impl ProcessSteps {
    fn sort(&mut self) {
        self.list.sort_unstable();
        self.latest = self
            .list
            .iter()
            .scan(i64::MIN, |latest, step| {
                *latest = step.1.max(*latest);
                Some(*latest)
            })
            .collect();
    }

    /// Step at a time: of the launching thread, or else of any thread. The latest start wins.
    pub(super) fn at(&self, time: i64, thread: Option<i64>) -> Option<StepKey> {
        /// Maximum number of steps to search backwards if steps of many threads overlap.
        const FAR: usize = 256;
        let end = self.list.partition_point(|step| step.0 <= time);
        let mut any = None;
        for index in (end.saturating_sub(FAR)..end).rev() {
            if self.latest[index] <= time {
                break;
            }
            let (_, step_end, of, key) = self.list[index];
            if time < step_end {
                if thread.is_none_or(|thread| thread == of) {
                    return Some(key);
                }
                any = any.or(Some(key));
            }
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_steps_and_their_numbers() {
        for (name, expected) in [
            ("ProfilerStep#12", Some(("profilerstep", 12))),
            ("decode step 7", Some(("decode step", 7))),
            ("Iteration: 0", Some(("iteration", 0))),
            ("iter_003", Some(("iter", 3))),
            ("train/step[4]", Some(("train/step", 4))),
            ("aten::copy_, op_id = 99", None),
            ("step", None),
            ("step 99999999999", None),
            ("stepping 3", None),
            ("filter 3", None),
            ("Optimizer.step#SGD.step", None),
            ("", None),
        ] {
            let found = step_name(name).map(|step| (step.kind, step.number, step.batch));
            let expected = expected.map(|(kind, number)| (kind.to_owned(), Some(number), None));
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn names_of_steps_tell_prefills_with_their_tokens_from_decodes() {
        use StepWork::{Decode, Mixed, Prefill};
        for (name, work, tokens) in [
            ("execute_context_1(888_788544)_generation_0(0)", Some(Prefill), Some(888)),
            ("execute_32_context_0(sq0sk0)_generation_32(sq32sk55086)", Some(Decode), Some(0)),
            ("execute_8192_context_9(sq8155)_generation_37(sq37sk34489)", Some(Mixed), Some(8155)),
            ("execute_new_3_cached_29", Some(Mixed), None),
            ("step[DECODE bs=32]", Some(Decode), None),
            ("step[EXTEND bs=1 toks=512]", Some(Prefill), Some(512)),
            ("step[IDLE]", None, None),
            ("step[MIXED bs=9 toks=520]", Some(Mixed), Some(520)),
            ("step[TARGET_VERIFY bs=8 toks=32]", Some(Decode), None),
            ("step[DRAFT_EXTEND bs=8]", Some(Decode), None),
            ("step[DRAFT_EXTEND_V2 bs=8]", Some(Decode), None),
            ("[Executor] _forward_step 12: 2 ctx reqs, 0 gen reqs", Some(Prefill), None),
            ("[Executor] _forward_step 13: 0 ctx reqs, 2 gen reqs", Some(Decode), None),
            ("decode step 7", Some(Decode), None),
            ("PrefillStep#0", Some(Prefill), None),
            ("ProfilerStep#12", None, None),
            ("mixed_precision_step 4", None, None),
            ("extended step 3", None, None),
        ] {
            let found = step_name(name).map(|step| (step.work, step.tokens));
            assert_eq!(found, Some((work, tokens)), "{name}");
        }
    }

    #[test]
    fn iterations_of_serving_engines_are_steps_with_a_batch() {
        for (name, batch) in [
            ("execute_context_8(512)_generation_32(32)", Some(Some(40))),
            ("execute_context_1(888_788544)_generation_0(0)", Some(Some(1))),
            (
                "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)",
                Some(Some(32)),
            ),
            ("execute_8192_context_9(sq8155)_generation_37(sq37sk34489)", Some(Some(46))),
            ("execute_new_3_cached_29", Some(Some(32))),
            ("step[DECODE bs=32]", Some(Some(32))),
            ("step[EXTEND bs=1 toks=512]", Some(Some(1))),
            ("step[IDLE]", Some(None)),
            ("[Executor] _forward_step 7: 1 ctx reqs, 31 gen reqs", Some(Some(32))),
            ("execute_model", None),
            ("step[", None),
            ("step[]", None),
        ] {
            let found = step_name(name).map(|step| (step.kind, step.number, step.batch));
            let number = name.contains("_forward_step").then_some(7);
            assert_eq!(found, batch.map(|batch| (SERVING.to_owned(), number, batch)), "{name}");
        }
        assert_eq!(step_name("step[7]").and_then(|step| step.number), Some(7));
    }

    fn steps(list: &[(i64, i64, i64, &str)]) -> FileSteps {
        let names: Vec<_> = list.iter().map(|(.., name)| step_name(name)).collect();
        let range = |(value, &(thread, start_ns, end_ns, _)): (u32, &(i64, i64, i64, &str))| {
            (1, ThreadRange { thread, start_ns, end_ns, value })
        };
        FileSteps::new((0..).zip(list).map(range), &names)
    }

    /// Sample, phase and number of the step at a time.
    fn found(steps: &FileSteps, time: i64) -> Option<(u32, Phase, u32)> {
        let key = steps.any(time, |_| true)?;
        Some((key.sample, key.phase, key.step))
    }

    #[test]
    fn the_launching_threads_step_decides_and_then_any() {
        let steps = steps(&[(1, 0, 100, "step 0"), (1, 100, 200, "step 1"), (2, 50, 150, "step 9")]);
        let steps = steps.of_process(1).unwrap();
        let at = |time, thread| steps.at(time, thread).map(|key| key.step);
        assert_eq!(at(99, Some(1)), Some(0));
        assert_eq!(at(100, Some(1)), Some(1));
        assert_eq!(at(120, Some(2)), Some(9));
        assert_eq!(at(120, Some(3)), Some(1));
        assert_eq!(at(200, None), None);
        assert_eq!(at(-1, None), None);
    }

    #[test]
    fn serving_iterations_are_numbered_in_order_of_time() {
        let (engine, runner) = ("execute_context_1(99)_generation_0(0)", "step[DECODE bs=8]");
        let list =
            [(1, 300, 400, runner), (1, 0, 100, engine), (1, 10, 90, runner), (1, 500, 600, engine)];
        let steps = steps(&list);
        assert_eq!(steps.kinds, Some((vec![SERVING.into()], 3)));
        assert_eq!(
            [50, 350, 550, 450].map(|time| found(&steps, time)),
            [
                Some((0, Phase::Prefill, 0)),
                Some((0, Phase::Decode, 1)),
                Some((0, Phase::Prefill, 2)),
                None
            ]
        );
    }

    #[test]
    fn the_profilers_steps_go_before_as_many_iterations() {
        let iteration = "step[DECODE bs=8]";
        let list = [(1, 0, 100, "ProfilerStep#7"), (1, 10, 90, iteration)];
        let any = |list, time| steps(list).any(time, |_| true).map(|key| key.step);
        assert_eq!(any(&list, 50), Some(7));
        let list = [(1, 0, 100, "ProfilerStep#7"), (1, 10, 40, iteration), (1, 50, 90, iteration)];
        assert_eq!(any(&list, 60), Some(1));
        assert_eq!(any(&[(1, 0, 9, "iter 4"), (1, 10, 19, "decode step 2")], 5), None);
    }

    #[test]
    fn prefills_and_decodes_with_numbers_of_their_own_are_steps() {
        let list = [
            (1, 0, 50, "prefill step 0"),
            (1, 50, 60, "decode step 0"),
            (1, 60, 110, "prefill step 1"),
            (1, 110, 120, "decode step 1"),
            (1, 0, 200, "iteration 3"),
        ];
        let steps = steps(&list);
        let kinds = vec!["decode step".to_owned(), "prefill step".to_owned()];
        assert_eq!(
            (steps.kinds.clone(), steps.others.clone()),
            (Some((kinds, 4)), vec!["iteration".into()])
        );
        assert_eq!(
            [10, 55, 70, 115, 150].map(|time| found(&steps, time)),
            [
                Some((0, Phase::Prefill, 0)),
                Some((0, Phase::Decode, 0)),
                Some((0, Phase::Prefill, 1)),
                Some((0, Phase::Decode, 1)),
                None
            ]
        );
        assert_eq!(steps.warning(), None);
    }

    #[test]
    fn numbers_that_start_again_begin_a_sample() {
        let list = [
            (1, 0, 10, "decode step 0"),
            (1, 10, 20, "decode step 1"),
            (1, 50, 60, "decode step 0"),
            (1, 60, 70, "decode step 1"),
        ];
        let steps = steps(&list);
        let decode = |sample, number| Some((sample, Phase::Decode, number));
        assert_eq!(
            [5, 15, 30, 55, 65].map(|time| found(&steps, time)),
            [decode(0, 0), decode(0, 1), None, decode(1, 0), decode(1, 1)]
        );
    }

    #[test]
    fn steps_around_micro_batches_go_before_them() {
        let micro = |at: i64, name| (1, 10 * at, 10 * at + 5, name);
        let list = [
            (1, 0, 30, "train_step 0"),
            micro(0, "micro_step 0"),
            micro(1, "micro_step 1"),
            (1, 30, 60, "train_step 1"),
            micro(3, "micro_step 0"),
            micro(4, "micro_step 1"),
        ];
        let steps_of =
            |list: &[(i64, i64, i64, &str)]| steps(list).kinds.map(|(kinds, _)| kinds.join(", "));
        assert_eq!(steps_of(&list).as_deref(), Some("train_step"));
        // numbers that go on through the outer ranges
        let mut going_on = list;
        (going_on[4].3, going_on[5].3) = ("micro_step 2", "micro_step 3");
        assert_eq!(steps_of(&going_on).as_deref(), Some("micro_step"));
        // decode steps within the iterations of a benchmark
        let benchmark = list.map(|(thread, start, end, name)| match name.strip_prefix("micro") {
            Some("_step 0") => (thread, start, end, "decode step 0"),
            Some(_) => (thread, start, end, "decode step 1"),
            None => (thread, start, end, name),
        });
        assert_eq!(steps_of(&benchmark).as_deref(), Some("decode step"));
    }

    #[test]
    fn numbers_that_repeat_out_of_order_are_replaced_with_a_warning() {
        let names = ["micro_step 0", "micro_step 1", "micro_step 0", "micro_step 2", "micro_step 1"];
        let list: Vec<_> = (0..).zip(names).map(|(at, name)| (1, 10 * at, 10 * at + 5, name)).collect();
        let steps = steps(&list);
        assert_eq!([0, 10, 20, 30, 40].map(|time| found(&steps, time).unwrap().2), [0, 1, 2, 3, 4]);
        assert_eq!(
            steps.warning().as_deref(),
            Some(
                "step numbers of the ranges named 'micro_step' repeat out of order, so steps are numbered in \
                 order of time"
            )
        );
    }
}
