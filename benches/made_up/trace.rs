//! Made-up traces with the shape of a real run and its noise.
//!
//! A decode step of the plan is played over and over on every rank: each operation waits for its lane
//! and for what it reads, each all-reduce for its last rank, and every duration and gap has noise of
//! its own, so that ranks are nearly alike and never alike, and compression has no free lunch.

use base::error::{Error, Result};
use plan::{Lane, Phase};
use run::Resolve;
use run::sim::Simulator;
use table::{CellOptions, Spec};
use trace::{OperationInfo, Span, Trace};

/// Decode steps of a built-in model with ladder on `tp` ranks, `spans` spans in all.
pub fn big(model: &str, tp: u32, spans: usize) -> Trace {
    let options = CellOptions {
        architecture: Some("ladder".parse().expect("an architecture")),
        model: Some(model.into()),
        backend: Some(table::Backend::Sim),
        hardware: Some("h100_sxm".into()),
        tp: Some(tp),
        ..CellOptions::default()
    };
    let (spec, _) = options.resolve().expect("the options are valid");
    play(&spec, spans).expect("it is simulated anywhere")
}

/// Plays decode steps until there are `spans` spans (the last step is cut off).
///
/// `spec` says which plan; its prefill is not in the trace.
fn play(spec: &Spec, spans: usize) -> Result<Trace> {
    let short = Spec { output_tokens: 2, ..spec.clone() };
    let (_, trace) = Simulator::default().cell(&short)?.run(true)?;
    let Some(mut trace) = trace else {
        return Err(Error::failed("simulating gave no trace"));
    };
    let mut step: Vec<Span> =
        trace.spans.iter().filter(|s| s.phase == Phase::Decode && s.rank == 0).copied().collect();
    // in the order of the plan, so that whatever an operation waits for has been played before it
    step.sort_by_key(|span| span.operation);
    trace.spans = Vec::with_capacity(spans);
    let mut player = Player::new(spec.tp as usize, trace.operations.len());
    for number in 0.. {
        if trace.spans.len() >= spans || step.is_empty() {
            break;
        }
        player.play(&step, number, &trace.operations);
        for lane in &mut player.lanes {
            trace.spans.append(lane);
        }
    }
    trace.spans.truncate(spans);
    Ok(trace)
}

/// The state of all ranks while steps are played.
struct Player {
    random: fastrand::Rng,
    ranks: usize,
    /// Spans of the step by rank and lane: compute and comm of rank 0, then of rank 1.
    lanes: Vec<Vec<Span>>,
    /// When each lane is free (ns).
    free: Vec<i64>,
    /// When each operation's result is there, by operation and rank (ns).
    done: Vec<i64>,
}

impl Player {
    fn new(ranks: usize, operations: usize) -> Self {
        Self {
            random: fastrand::Rng::with_seed(405),
            ranks,
            lanes: vec![Vec::new(); 2 * ranks],
            free: vec![0; 2 * ranks],
            done: vec![0; ranks * operations],
        }
    }

    fn play(&mut self, step: &[Span], number: u32, operations: &[OperationInfo]) {
        for template in step {
            let waits = operations.get(template.operation as usize).map_or(&[][..], |o| &o.waits_for);
            let comm = template.lane == Lane::Comm;
            let mut spans = Vec::with_capacity(self.ranks);
            for rank in 0..self.ranks {
                let lane = 2 * rank + usize::from(comm);
                let before = |op: &u32| self.done.get(*op as usize * self.ranks + rank).copied();
                let ready_ns = waits.iter().filter_map(before).max().unwrap_or(0).max(self.free[lane]);
                let start_ns = ready_ns + 300 + self.noise(200);
                spans.push(Span {
                    step: number,
                    rank: rank as u32,
                    ready_ns,
                    start_ns,
                    last_arrival_ns: -1,
                    ..*template
                });
            }
            let arrival = spans.iter().map(|span| span.start_ns).max().unwrap_or(0);
            for (rank, mut span) in spans.into_iter().enumerate() {
                let lane = 2 * rank + usize::from(comm);
                let nominal = template.end_ns - template.start_ns;
                // a spread of about 1 %, and a stall once in a while
                let stall = if self.random.u32(..2000) == 0 { nominal } else { 0 };
                let taken = nominal + stall + self.noise(nominal / 30 + 50);
                if comm {
                    span.last_arrival_ns = arrival;
                }
                span.end_ns = span.start_ns.max(span.last_arrival_ns) + taken.max(1);
                self.free[lane] = span.end_ns;
                if let Some(done) = self.done.get_mut(span.operation as usize * self.ranks + rank) {
                    *done = span.end_ns;
                }
                self.lanes[lane].push(span);
            }
        }
    }

    /// Nanoseconds from -`spread` to `spread`, mostly small.
    fn noise(&mut self, spread: i64) -> i64 {
        let mut third = || self.random.i64(-spread..=spread);
        (third() + third() + third()) / 3
    }
}
