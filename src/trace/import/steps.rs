//! Host ranges around a launch: its step by range name, and the innermost range.
//!
//! Steps are `ProfilerStep#12`, `decode step 12`, `iteration 12`, and iterations of serving engines:
//! `execute_context_1(512)_generation_31(31)` (vLLM), `step[DECODE bs=32]` (SGLang),
//! `[Executor] _forward_step 12: 1 ctx reqs, 31 gen reqs` (TensorRT-LLM).

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use plan::Phase;
use rayon::prelude::*;

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

/// Work of a step, from the name of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepWork {
    Prefill,
    Decode,
    /// Prefills and decodes of a serving engine in one batch.
    Mixed,
}

impl StepName {
    /// True for an iteration of a serving engine, which is one forward pass.
    pub fn is_forward(&self) -> bool {
        self.kind == SERVING
    }
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    pub(super) process: i64,
    pub(super) thread: i64,
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    pub(super) name: u32,
}

#[derive(Debug, Default)]
pub(super) struct FileSteps {
    of_process: HashMap<i64, Steps>,
    /// Chosen kind of step, and its number of ranges.
    pub(super) kind: Option<(String, usize)>,
    /// Up to five other kinds.
    pub(super) others: Vec<String>,
}

impl FileSteps {
    /// Chooses the kind of names that looks most like steps. `names` has an entry per range name.
    pub(super) fn of(ranges: impl Iterator<Item = Candidate>, names: &[Option<StepName>]) -> Self {
        let of_name = |range: &Candidate| names.get(range.name as usize).and_then(Option::as_ref);
        let mut list: Vec<Candidate> = ranges.filter(|range| of_name(range).is_some()).collect();
        list.sort_unstable_by_key(|range| {
            (range.process, range.thread, range.start_ns, Reverse(range.end_ns))
        });
        // drop nested iterations: an engine and its model runner may both mark one
        let mut outer: Option<Candidate> = None;
        list.retain(|range| {
            if of_name(range).is_none_or(|name| name.kind != SERVING) {
                return true;
            }
            let inner = outer.is_some_and(|outer| {
                (outer.process, outer.thread) == (range.process, range.thread)
                    && range.end_ns <= outer.end_ns
            });
            outer = if inner { outer } else { Some(*range) };
            !inner
        });
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        for name in list.iter().filter_map(of_name) {
            *kinds.entry(&name.kind).or_default() += 1;
        }
        let counted = kinds.iter().map(|(kind, count)| (*kind, *count));
        let best = counted.max_by_key(|(kind, count)| (preference(kind), *count, Reverse(*kind)));
        let Some((kind, count)) = best else {
            return Self::default();
        };
        let others = kinds.keys().filter(|other| **other != kind).take(5).map(|k| (*k).into()).collect();
        let mut chosen: Vec<(&Candidate, &StepName)> = list
            .iter()
            .filter_map(|range| Some((range, of_name(range).filter(|name| name.kind == kind)?)))
            .collect();
        chosen.sort_by_key(|(range, _)| (range.process, range.start_ns));
        let mut of_process: HashMap<i64, Steps> = HashMap::new();
        for (range, name) in chosen {
            let steps = of_process.entry(range.process).or_default();
            let number = name.number.unwrap_or(steps.list.len() as u32);
            let phase = name.work.map_or(Phase::Decode, StepWork::phase);
            steps.list.push((range.start_ns, range.end_ns, range.thread, (number, phase)));
        }
        of_process.values_mut().for_each(Steps::sort);
        Self { of_process, kind: Some((kind.into(), count)), others }
    }

    pub(super) fn of_process(&self, process: i64) -> Option<&Steps> {
        self.of_process.get(&process)
    }

    /// Step at `time` in any of the wanted processes.
    pub(super) fn any(&self, time: i64, is_wanted: impl Fn(i64) -> bool) -> Option<Numbered> {
        let processes = self.of_process.iter().filter(|(process, _)| is_wanted(**process));
        processes.filter_map(|(_, steps)| steps.at(time, None)).min()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.of_process.is_empty()
    }
}

/// Number and phase of a step; decode if its name does not say.
pub(super) type Numbered = (u32, Phase);

/// Steps of one process, indexed for lookups by time.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// (start, end, thread, number and phase), by start once sorted.
    list: Vec<(i64, i64, i64, Numbered)>,
    /// Latest end of each step and all before it, which bounds the backward search.
    latest: Vec<i64>,
}

impl Steps {
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
    pub(super) fn at(&self, time: i64, thread: Option<i64>) -> Option<Numbered> {
        /// Maximum number of steps to search backwards if steps of many threads overlap.
        const FAR: usize = 256;
        let end = self.list.partition_point(|step| step.0 <= time);
        let mut any = None;
        for index in (end.saturating_sub(FAR)..end).rev() {
            if self.latest[index] <= time {
                break;
            }
            let (_, step_end, of, number) = self.list[index];
            if time < step_end {
                if thread.is_none_or(|thread| thread == of) {
                    return Some(number);
                }
                any = any.or(Some(number));
            }
        }
        any
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) thread: i64,
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    pub(super) value: u32,
}

#[derive(Debug, Default)]
pub(super) struct Enclosing {
    /// Sorted by thread and start, longest first.
    list: Vec<Extent>,
    /// Index of the enclosing range on the thread; `u32::MAX` for none.
    outer: Vec<u32>,
}

impl Enclosing {
    pub(super) fn new(mut list: Vec<Extent>) -> Self {
        list.par_sort_by_key(|range| (range.thread, range.start_ns, Reverse(range.end_ns), range.value));
        let mut outer = Vec::with_capacity(list.len());
        let mut open: Vec<u32> = Vec::new();
        let mut thread = None;
        for (at, range) in list.iter().enumerate() {
            if thread.replace(range.thread) != Some(range.thread) {
                open.clear();
            }
            while open.last().is_some_and(|last| list[*last as usize].end_ns <= range.start_ns) {
                open.pop();
            }
            outer.push(open.last().copied().unwrap_or(u32::MAX));
            open.push(at as u32);
        }
        Self { list, outer }
    }

    /// Value of the innermost range of `thread` around `time`. `near` caches the position of the
    /// caller's last search, 0 at first, which makes ascending lookups O(1).
    pub(super) fn innermost(&self, thread: i64, time: i64, near: &mut usize) -> Option<u32> {
        let starts = |range: &Extent| (range.thread, range.start_ns) <= (thread, time);
        let mut at = partition_near(&self.list, near, starts).checked_sub(1)?;
        loop {
            let range = self.list[at];
            if range.thread != thread {
                return None;
            }
            if time < range.end_ns {
                return Some(range.value);
            }
            at = *self.outer.get(at).filter(|outer| **outer != u32::MAX)? as usize;
        }
    }
}

/// Like [`slice::partition_point`], but tries the positions after `near` first, and stores the result
/// there.
pub(super) fn partition_near<T>(list: &[T], near: &mut usize, is_before: impl Fn(&T) -> bool) -> usize {
    /// Positions to try linearly: fewer than a binary search needs.
    const STEPS: usize = 6;
    let from = (*near).min(list.len());
    let (before, rest) = list.split_at(from);
    let steps = || rest.iter().take(STEPS).take_while(|item| is_before(item)).count();
    *near = match before.last().is_none_or(&is_before).then(steps) {
        Some(STEPS) => from + rest.partition_point(is_before),
        Some(steps) => from + steps,
        None => before.partition_point(is_before),
    };
    *near
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
        let range = |(name, (thread, start_ns, end_ns, _)): (u32, &(i64, i64, i64, &str))| Candidate {
            process: 1,
            thread: *thread,
            start_ns: *start_ns,
            end_ns: *end_ns,
            name,
        };
        FileSteps::of((0..).zip(list).map(range), &names)
    }

    #[test]
    fn the_launching_threads_step_decides_and_then_any() {
        let steps = steps(&[(1, 0, 100, "step 0"), (1, 100, 200, "step 1"), (2, 50, 150, "step 9")]);
        let steps = steps.of_process(1).unwrap();
        let at = |time, thread| steps.at(time, thread).map(|(number, _)| number);
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
        assert_eq!(steps.kind, Some((SERVING.into(), 3)));
        let steps = steps.of_process(1).unwrap();
        assert_eq!(
            [50, 350, 550, 450].map(|time| steps.at(time, Some(1))),
            [Some((0, Phase::Prefill)), Some((1, Phase::Decode)), Some((2, Phase::Prefill)), None]
        );
    }

    #[test]
    fn the_profilers_steps_go_before_as_many_iterations() {
        let iteration = "step[DECODE bs=8]";
        let list = [(1, 0, 100, "ProfilerStep#7"), (1, 10, 90, iteration)];
        let any = |list, time| steps(list).any(time, |_| true).map(|(number, _)| number);
        assert_eq!(any(&list, 50), Some(7));
        let list = [(1, 0, 100, "ProfilerStep#7"), (1, 10, 40, iteration), (1, 50, 90, iteration)];
        assert_eq!(any(&list, 60), Some(1));
        assert_eq!(any(&[(1, 0, 9, "iter 4"), (1, 10, 19, "decode step 2")], 5), None);
    }
}

#[cfg(test)]
mod tests_of_enclosing {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_partition_is_found_from_every_place(
            mut list in prop::collection::vec(0i64..60, 0..60),
            value in 0i64..60,
            mut near in 0usize..70,
        ) {
            list.sort_unstable();
            let found = partition_near(&list, &mut near, |item| *item <= value);
            prop_assert_eq!(found, list.partition_point(|item| *item <= value));
            prop_assert_eq!(near, found);
        }

        #[test]
        fn the_innermost_is_the_last_to_start_of_nested_ranges(
            cuts in prop::collection::vec((0i64..40, 0i64..40, 0i64..2), 0..30),
            time in 0i64..40,
            thread in 0i64..2,
            mut near in 0usize..40,
        ) {
            // nested: a range that would cross an earlier one is left out
            let mut list: Vec<Extent> = Vec::new();
            for (value, (a, b, thread)) in cuts.into_iter().enumerate() {
                let range = Extent { thread, start_ns: a.min(b), end_ns: a.max(b), value: value as u32 };
                let crosses = |other: &Extent| {
                    let apart = other.end_ns <= range.start_ns || range.end_ns <= other.start_ns;
                    let within = |a: &Extent, b: &Extent| a.start_ns <= b.start_ns && b.end_ns <= a.end_ns;
                    other.thread == thread && !apart && !within(other, &range) && !within(&range, other)
                };
                if range.start_ns < range.end_ns && !list.iter().any(crosses) {
                    list.push(range);
                }
            }
            let around = list.iter().filter(|r| r.thread == thread && r.start_ns <= time && time < r.end_ns);
            let expected = around.min_by_key(|r| (r.end_ns - r.start_ns, Reverse(r.value)));
            let found = Enclosing::new(list.clone()).innermost(thread, time, &mut near);
            let length = |value: u32| list.iter().find(|r| r.value == value).map(|r| r.end_ns - r.start_ns);
            prop_assert_eq!(found.and_then(length), expected.map(|r| r.end_ns - r.start_ns));
        }
    }
}
