//! Serving in a closed loop: C requests are in flight, and the next one arrives when one ends.
//!
//! The engine's steps are the events. A step decodes all running requests and, where the engine mixes them, processes
//! prompt tokens up to the engine's limit; requests whose KV cache does not fit wait in order of arrival. Steps between
//! two events differ only in their context, so they are taken together at their mean context. Requests reach the engine
//! one by one, so those that are sent together do not stay together. Everything is deterministic: requests of unequal
//! length follow a low-discrepancy sequence.
//!
//! Latencies of steps are those of the cell's plans, from the simulation of both lanes at a few batches, contexts and
//! prompt lengths, interpolated between them.

use std::collections::BTreeMap;

use super::cell::SimulatedCell;
use super::durations::Durations;
use super::lanes::{LaneClock, LaneSimulation};
use machine::hardware::{Schedule, Serving};
use plan::{Phase, Step};

/// Requests of a benchmark per request in flight; the first wave finds an idle engine.
const REQUEST_WAVES: usize = 10;
/// Nodes of the context between the shortest prompt and the longest sequence.
const CONTEXT_NODES: usize = 3;

/// Requests of a closed loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    pub concurrency: u32,
    pub prompt_tokens: u32,
    pub output_tokens: u32,
    /// Shortest length over the longest: prompts and outputs are uniform between; 1: all are equal.
    pub length_ratio: f64,
    /// Tokens that the KV cache holds.
    pub cache_tokens: f64,
}

/// Means over the requests of a closed loop, as a benchmark of ten waves reports them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServingLatency {
    /// Time from arrival to the first token (ms).
    pub ttft_ms: f64,
    /// (latency - TTFT) / (output tokens - 1) (ms).
    pub tpot_ms: f64,
    /// Requests that decode at once, at most.
    pub running: u32,
    /// True if requests waited because the KV cache was full.
    pub is_queued: bool,
}

/// Latency of an engine's steps (us).
pub(super) trait StepLatencies {
    fn decode_us(&mut self, batch: u32, context: f64) -> f64;
    /// Latency of `tokens` prompt tokens, which may be several prompts or a part of one.
    fn prefill_us(&mut self, tokens: f64) -> f64;
    /// Part of a step's latency that does not repeat if it both decodes and processes prompts (us).
    fn shared_us(&self) -> f64;
}

struct Request {
    prompt: u32,
    output: u32,
    sent: f64,
    /// Time at which the engine has the request.
    arrived: f64,
    first: f64,
    ended: f64,
}

impl Request {
    fn new(index: usize, load: &Load) -> Self {
        let part = |step: f64| {
            let share = ((index + 1) as f64 * step).fract();
            load.length_ratio + (1.0 - load.length_ratio) * share
        };
        // golden ratio and square root of 2: neither follows the other
        let scaled = |tokens: u32, step: f64| ((f64::from(tokens) * part(step)).round() as u32).max(1);
        Self {
            prompt: scaled(load.prompt_tokens, 0.618_033_988_75),
            output: scaled(load.output_tokens, 0.414_213_562_37),
            sent: 0.0,
            arrived: 0.0,
            first: 0.0,
            ended: 0.0,
        }
    }

    fn cached(&self, reserve: f64) -> f64 {
        f64::from(self.prompt) + reserve * f64::from(self.output)
    }
}

/// Closed loop in progress.
struct Loop<'a> {
    engine: &'a Serving,
    load: &'a Load,
    requests: Vec<Request>,
    /// First request that has not started.
    next: usize,
    /// Request whose prompt is processed in part, and its remaining tokens.
    partial: Option<(usize, u32)>,
    /// Running requests with their remaining tokens.
    running: Vec<(usize, u32)>,
    now: f64,
    /// Start of the step before.
    before: f64,
    /// Steps that prompts have waited for others.
    waited: u32,
    reserved: f64,
    /// Sum of the running requests' contexts.
    context: f64,
    most: usize,
    is_queued: bool,
}

impl Loop<'_> {
    /// Sends the next request.
    fn send(&mut self) {
        let earlier = self.requests.last().map_or(f64::NEG_INFINITY, |request| request.arrived);
        let mut request = Request::new(self.requests.len(), self.load);
        request.sent = self.now;
        request.arrived = (self.now + self.engine.request_us).max(earlier + self.engine.intake_us);
        self.requests.push(request);
    }

    /// First request that has not started, if the engine knows of it when it prepares the next step.
    fn waiting(&self) -> Option<&Request> {
        let known =
            if self.engine.overlaps && !self.running.is_empty() { self.before } else { self.now };
        self.requests.get(self.next).filter(|request| request.arrived <= known)
    }

    /// True if the KV cache has no room for the next request.
    fn is_full(&self) -> bool {
        let need = self.requests.get(self.next).map_or(0.0, |next| next.cached(self.engine.reserve));
        self.reserved + need > self.load.cache_tokens
    }

    /// True if prompts wait for more prompts: the engine decodes a few steps meanwhile.
    fn is_gathering(&mut self) -> bool {
        let waits = self.waited < self.engine.wait_steps && !self.running.is_empty();
        let is_gathering = waits && self.partial.is_none() && self.waiting().is_some();
        self.waited = if is_gathering { self.waited + 1 } else { 0 };
        is_gathering
    }

    /// Chooses the prompts of the next step: their tokens, and the requests whose prompts end in it.
    fn admit(&mut self) -> (u32, Vec<usize>) {
        let decoded = if self.engine.schedule == Schedule::Separate { 0 } else { self.running.len() };
        let mut room = self.engine.step_tokens.saturating_sub(decoded as u32).max(1);
        let (mut tokens, mut complete) = (0, Vec::new());
        while room > 0 {
            let (request, left) = match self.partial.take() {
                Some(partial) => partial,
                None if self.engine.step_prompts > 0
                    && complete.len() >= self.engine.step_prompts as usize =>
                {
                    break;
                }
                None => {
                    let Some(waiting) = self.waiting() else { break };
                    let prompt = waiting.prompt;
                    if self.is_full() && !(self.running.is_empty() && complete.is_empty()) {
                        self.is_queued = true;
                        break;
                    }
                    if self.engine.schedule == Schedule::Whole && prompt > room && tokens > 0 {
                        break;
                    }
                    self.reserved += self.requests[self.next].cached(self.engine.reserve);
                    self.next += 1;
                    (self.next - 1, prompt)
                }
            };
            let part = if self.engine.schedule == Schedule::Whole { left } else { left.min(room) };
            tokens += part;
            room = room.saturating_sub(part);
            match left - part {
                0 => complete.push(request),
                left => self.partial = Some((request, left)),
            }
        }
        (tokens, complete)
    }

    /// Runs `count` steps of `us` each, which decode all running requests unless prompts are processed separately.
    fn advance(&mut self, count: u32, us: f64, is_decoding: bool) {
        self.before = self.now + f64::from(count - 1) * us;
        self.now += f64::from(count) * us;
        if !is_decoding {
            return;
        }
        self.context += self.running.len() as f64 * f64::from(count);
        for at in (0..self.running.len()).rev() {
            let (request, left) = &mut self.running[at];
            *left = left.saturating_sub(count);
            if *left > 0 {
                continue;
            }
            let request = *request;
            self.running.swap_remove(at);
            self.end(request);
        }
    }

    fn end(&mut self, request: usize) {
        let now = self.now;
        let ended = &mut self.requests[request];
        ended.ended = now;
        self.context -= f64::from(ended.prompt + ended.output);
        self.reserved -= ended.cached(self.engine.reserve);
        self.send();
    }

    /// Starts decoding a request whose prompt has been processed.
    fn start(&mut self, request: usize) {
        let started = &mut self.requests[request];
        started.first = self.now;
        self.context += f64::from(started.prompt + 1);
        match started.output - 1 {
            0 => self.end(request),
            left => self.running.push((request, left)),
        }
    }

    fn step(&mut self, times: &mut impl StepLatencies) {
        let (tokens, complete) = if self.is_gathering() { Default::default() } else { self.admit() };
        let batch = self.running.len() as u32;
        let context = self.context / f64::from(batch.max(1));
        if tokens > 0 {
            let is_decoding = batch > 0 && self.engine.schedule != Schedule::Separate;
            let mut us = times.prefill_us(f64::from(tokens));
            if is_decoding {
                us += times.decode_us(batch, context) - times.shared_us();
            }
            self.advance(1, us, is_decoding);
        } else if batch == 0 {
            // until the next request arrives
            let arrival = self.requests.get(self.next).map_or(self.now, |request| request.arrived);
            self.now = self.now.max(arrival);
        } else {
            // until the next request ends; its successor arrives then
            let is_due = self.next < self.requests.len();
            let until_end = self.running.iter().map(|(_, left)| *left).min().unwrap_or(1);
            let count = if is_due && !self.is_full() { 1 } else { until_end };
            let us = times.decode_us(batch, context + f64::from(count) / 2.0);
            self.advance(count, us, true);
        }
        for request in complete {
            self.start(request);
        }
        self.most = self.most.max(self.running.len());
    }
}

/// Simulates a closed loop.
pub(super) fn serve(engine: &Serving, load: &Load, times: &mut impl StepLatencies) -> ServingLatency {
    let concurrency = load.concurrency.max(1) as usize;
    let mut state = Loop {
        engine,
        load,
        requests: Vec::with_capacity((REQUEST_WAVES + 1) * concurrency),
        next: 0,
        partial: None,
        running: Vec::with_capacity(concurrency),
        now: 0.0,
        before: 0.0,
        waited: 0,
        reserved: 0.0,
        context: 0.0,
        most: 0,
        is_queued: false,
    };
    (0..concurrency).for_each(|_| state.send());
    let counted = REQUEST_WAVES * concurrency;
    let mut first = 0;
    while first < counted {
        state.step(times);
        while state.requests.get(first).is_some_and(|request| request.ended > 0.0) {
            first += 1;
        }
    }
    let mean_ms = |us: fn(&Request) -> f64| {
        state.requests[..counted].iter().map(us).sum::<f64>() / counted as f64 / 1e3
    };
    ServingLatency {
        ttft_ms: mean_ms(|request| request.first - request.sent),
        tpot_ms: mean_ms(tpot_us),
        running: state.most as u32,
        is_queued: state.is_queued,
    }
}

fn tpot_us(request: &Request) -> f64 {
    match request.output {
        0 | 1 => 0.0,
        output => (request.ended - request.first) / f64::from(output - 1),
    }
}

/// Latencies of a cell's steps, simulated on demand.
pub(super) struct CellTimes<'a> {
    cell: &'a SimulatedCell<'a>,
    decode: PhaseSimulation<'a>,
    prefill: PhaseSimulation<'a>,
    /// Shortest prompt and longest sequence.
    contexts: [f64; 2],
    /// Latency by batch and context node.
    decoded: BTreeMap<(u32, usize), f64>,
    /// Latency by prompts, as a power of two.
    prefilled: BTreeMap<i32, f64>,
    least_prefill_us: f64,
}

impl<'a> CellTimes<'a> {
    pub(super) fn new(cell: &'a SimulatedCell<'a>, engine: &Serving, load: &Load) -> Self {
        let simulation = |phase| PhaseSimulation {
            lanes: LaneSimulation::new(&cell.plans.stages(phase)[0]),
            durations: cell.durations(phase, 0),
        };
        let shortest = f64::from(load.prompt_tokens) * load.length_ratio;
        let longest = f64::from(load.prompt_tokens) + f64::from(load.output_tokens);
        Self {
            cell,
            decode: simulation(Phase::Decode),
            prefill: simulation(Phase::Prefill),
            contexts: [shortest, longest],
            decoded: BTreeMap::new(),
            prefilled: BTreeMap::new(),
            least_prefill_us: engine.prefill_layer_us * f64::from(cell.shape.layers),
        }
    }

    fn context(&self, node: usize) -> f64 {
        let [shortest, longest] = self.contexts;
        shortest + (longest - shortest) * node as f64 / (CONTEXT_NODES - 1) as f64
    }

    fn decoded_us(&mut self, batch: u32, node: usize) -> f64 {
        let context = self.context(node) as u64;
        let decode = &mut self.decode;
        *self.decoded.entry((batch, node)).or_insert_with(|| {
            let step = Step { sequences: batch.into(), new_tokens: 1, context: context.max(1) };
            decode.step_us(&step)
        })
    }

    /// Latency of 2^`power` prompts, below 0 of a part of one in its middle.
    fn prompts_us(&mut self, power: i32) -> f64 {
        let prompt = u64::from(self.cell.spec.prompt_tokens);
        let prefill = &mut self.prefill;
        *self.prefilled.entry(power).or_insert_with(|| {
            let step = match u32::try_from(power) {
                Ok(power) => Step::prefill(1 << power.min(20), prompt),
                Err(_) => {
                    let new_tokens = (prompt >> power.unsigned_abs().min(63)).max(1);
                    Step { sequences: 1, new_tokens, context: (prompt + new_tokens).div_ceil(2) }
                }
            };
            prefill.step_us(&step)
        })
    }
}

/// Lanes of a phase's plan, to simulate single steps.
struct PhaseSimulation<'a> {
    lanes: LaneSimulation,
    durations: Durations<'a>,
}

impl PhaseSimulation<'_> {
    fn step_us(&mut self, step: &Step) -> f64 {
        self.durations.set_step(step);
        let mut clock = LaneClock::default();
        self.lanes.step(&self.durations, &mut clock, |_| {});
        clock.tokens as f64 / 1e3
    }
}

impl StepLatencies for CellTimes<'_> {
    fn decode_us(&mut self, batch: u32, context: f64) -> f64 {
        let batch = batch.max(1);
        let least = 1 << batch.ilog2();
        let most = (least * 2).min(self.cell.spec.concurrency.max(batch));
        let [shortest, longest] = self.contexts;
        let place = (context - shortest) / (longest - shortest).max(1.0) * (CONTEXT_NODES - 1) as f64;
        let node = (place.max(0.0) as usize).min(CONTEXT_NODES - 2);
        let mut decoded_us = |batch| {
            let low = self.decoded_us(batch, node);
            low + (self.decoded_us(batch, node + 1) - low) * (place - node as f64)
        };
        let low = decoded_us(least);
        if batch == least {
            return low;
        }
        low + (decoded_us(most) - low) * f64::from(batch - least) / f64::from(most - least)
    }

    fn prefill_us(&mut self, tokens: f64) -> f64 {
        let prompts = tokens / f64::from(self.cell.spec.prompt_tokens.max(1));
        let power = prompts.log2().floor();
        let (low, high) = (power.exp2(), (power + 1.0).exp2());
        let part = (prompts - low) / (high - low);
        let us = self.prompts_us(power as i32);
        let us = if part > 1e-9 { us + (self.prompts_us(power as i32 + 1) - us) * part } else { us };
        us.max(self.least_prefill_us)
    }

    fn shared_us(&self) -> f64 {
        self.cell.target.stack.step_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use table::Collective;

    /// Steps of 10 ms and prompts of 40 ms each 1,000 tokens.
    struct Flat;

    impl StepLatencies for Flat {
        fn decode_us(&mut self, _: u32, _: f64) -> f64 {
            10_000.0
        }

        fn prefill_us(&mut self, tokens: f64) -> f64 {
            40.0 * tokens
        }

        fn shared_us(&self) -> f64 {
            0.0
        }
    }

    fn engine(schedule: Schedule, step_tokens: u32) -> Serving {
        Serving {
            schedule,
            step_tokens,
            step_prompts: 0,
            reserve: 1.0,
            memory_share: 0.9,
            prefill_layer_us: 0.0,
            request_us: 0.0,
            intake_us: 0.0,
            overlaps: false,
            wait_steps: 0,
            collective: Collective::OneShot,
            fused_on: Vec::new(),
        }
    }

    fn load(concurrency: u32) -> Load {
        Load {
            concurrency,
            prompt_tokens: 1000,
            output_tokens: 101,
            length_ratio: 1.0,
            cache_tokens: 1e9,
        }
    }

    #[test]
    fn a_single_request_waits_for_nobody() {
        for schedule in Schedule::ALL {
            let served = serve(&engine(schedule, 8192), &load(1), &mut Flat);
            assert!(
                (served.ttft_ms - 40.0).abs() < 1e-9 && (served.tpot_ms - 10.0).abs() < 1e-9,
                "{schedule}"
            );
            assert_eq!((served.running, served.is_queued), (1, false));
        }
    }

    /// One prompt a step: after the first wave every request decodes through the prompts of all others.
    #[test]
    fn mixed_steps_delay_tokens_by_the_prompts_of_the_others() {
        let served = serve(&engine(Schedule::Whole, 1008), &load(8), &mut Flat);
        let steady = 10.0 + 7.0 * 40.0 / 100.0;
        assert!((served.tpot_ms / steady - 1.0).abs() < 0.05, "{}", served.tpot_ms);
        assert_eq!(served.running, 8);
    }

    /// Prompts first, then decoding: requests of equal length stay together, each waits for half of the others.
    #[test]
    fn separate_prefills_delay_tokens_half_as_much_and_first_tokens_more() {
        let separate = serve(&engine(Schedule::Separate, 1000), &load(8), &mut Flat);
        assert!((separate.tpot_ms - (10.0 + 3.5 * 40.0 / 100.0)).abs() < 1e-6, "{}", separate.tpot_ms);
        assert!((separate.ttft_ms - 4.5 * 40.0).abs() < 1e-6, "{}", separate.ttft_ms);
        let mixed = serve(&engine(Schedule::Whole, 1008), &load(8), &mut Flat);
        assert!(mixed.ttft_ms < separate.ttft_ms);
    }

    /// The engine has one request when it prepares its first step, so the others take another; in a single step all
    /// would wait for all.
    #[test]
    fn requests_that_reach_the_engine_one_by_one_do_not_stay_together() {
        let together = serve(&engine(Schedule::Chunked, 8192), &load(8), &mut Flat);
        let one_by_one = Serving { intake_us: 1000.0, ..engine(Schedule::Chunked, 8192) };
        let apart = serve(&one_by_one, &load(8), &mut Flat);
        assert!((together.ttft_ms - 8.0 * 40.0).abs() < 1e-6, "{}", together.ttft_ms);
        assert!(apart.ttft_ms < 0.6 * together.ttft_ms, "{}", apart.ttft_ms);
        assert!(apart.tpot_ms > together.tpot_ms);
    }

    /// A request that comes back while a step runs waits for its end, and for another step where the engine has
    /// prepared that already.
    #[test]
    fn a_request_waits_for_the_steps_that_the_engine_has_prepared() {
        let one_prompt = |overlaps| {
            let engine = engine(Schedule::Chunked, 8192);
            let engine = Serving { step_prompts: 1, overlaps, request_us: 1000.0, ..engine };
            // of unequal length: ends are far apart
            serve(&engine, &Load { length_ratio: 0.5, ..load(4) }, &mut Flat).ttft_ms
        };
        let waits = one_prompt(true) - one_prompt(false);
        assert!((9.0..30.0).contains(&waits), "about a step of 10 ms, some with a prompt: {waits}");
    }

    #[test]
    fn prompts_that_wait_for_others_are_processed_together() {
        let waiting = Serving { wait_steps: 20, ..engine(Schedule::Whole, 8192) };
        let uneven = Load { length_ratio: 0.5, ..load(8) };
        let [waits, at_once] =
            [&waiting, &engine(Schedule::Whole, 8192)].map(|engine| serve(engine, &uneven, &mut Flat));
        let later = waits.ttft_ms - at_once.ttft_ms;
        assert!(
            (100.0..260.0).contains(&later),
            "20 steps of 10 ms, fewer for those that join: {later}"
        );
        assert!(waits.tpot_ms <= at_once.tpot_ms, "{waits:?} {at_once:?}");
    }

    #[test]
    fn prompts_above_the_limit_are_processed_in_chunks() {
        let served = serve(&engine(Schedule::Chunked, 500), &load(1), &mut Flat);
        assert!((served.ttft_ms - 40.0).abs() < 1e-9, "two chunks of 20 ms: {}", served.ttft_ms);
        let whole = serve(&engine(Schedule::Whole, 500), &load(1), &mut Flat);
        assert_eq!(whole.ttft_ms, served.ttft_ms);
    }

    #[test]
    fn requests_wait_for_the_cache_and_are_counted() {
        let small = Load { cache_tokens: 4.0 * 1101.0, ..load(8) };
        let served = serve(&engine(Schedule::Chunked, 8192), &small, &mut Flat);
        assert_eq!((served.running, served.is_queued), (4, true));
        let free = serve(&engine(Schedule::Chunked, 8192), &load(8), &mut Flat);
        assert!(served.ttft_ms > 3.0 * free.ttft_ms, "{} {}", served.ttft_ms, free.ttft_ms);
    }

    #[test]
    fn unequal_lengths_are_the_same_in_every_run_and_shorter_on_average() {
        let uneven = Load { length_ratio: 0.8, ..load(16) };
        let [a, b] = [0, 1].map(|_| serve(&engine(Schedule::Chunked, 8192), &uneven, &mut Flat));
        assert_eq!(a, b);
        let mean = (0..500).map(|i| f64::from(Request::new(i, &uneven).prompt)).sum::<f64>() / 500.0;
        assert!((mean - 900.0).abs() < 5.0, "{mean}");
    }
}
