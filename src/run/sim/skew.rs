//! Simulation of ranks that differ: all ranks' lanes at once; collectives start when the last rank has arrived.
//!
//! Compute times are drawn from the run's seed: each rank's speed once, each operation's jitter every time. A
//! collective occupies a rank's comm lane from the rank's arrival (NCCL spins), so waiting for a peer causes
//! contention too. Data moves once all ranks have arrived, at a rate that depends on the share of computing ranks. A
//! collective on the compute lane waits for its peers there. An event costs O(ranks), a step O(ranks^2 x operations).
//! [`replay`] does the same with measured times, to predict a different wiring.

use super::cell::SimulatedCell;
use super::durations::{ContendedDurations, Durations, ExpertShares};
use super::lane_times::{LaneTimes, mean_overlap};
use super::lanes::{LaneClock, PENDING, PlanDependencies, SimulatedOperation};
use super::ranks::SimulatedRanks;
use super::routing::DRAWS;
use machine::hardware::Skew;
use plan::{Lane, Phase, Plan};
use table::Overlap;

/// Lower bound of the random factors.
const MIN_FACTOR: f64 = 0.05;

/// Number of steps averaged by [`SkewedRanks::pace_without_waiting`]; a multiple of [`DRAWS`], so that each rank meets every
/// draw equally often.
const PACED_STEPS: i64 = 2 * DRAWS as i64;

/// Random numbers of a rank's step: the same on any machine and any number of threads.
fn random_of(seed: u64, rank: u64, step: u64) -> fastrand::Rng {
    // distinct streams: the generator mixes its seed well, so odd multipliers suffice
    let mixed = seed
        ^ rank.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ step.wrapping_add(1).wrapping_mul(0xd1b5_4a32_d192_ed03);
    fastrand::Rng::with_seed(mixed)
}

/// Next normal number (Box and Muller, 1958).
pub(super) fn normal(random: &mut fastrand::Rng) -> f64 {
    let (u, v) = (1.0 - random.f64(), random.f64());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

pub(super) struct SkewedRanks {
    dependencies: PlanDependencies,
    skew: Skew,
    seed: u64,
    ranks: Vec<Rank>,
    steps: u64,
    /// Operations with experts: the share of each rank, in several draws of the routing.
    routed: ExpertShares,
}

/// Collective that all ranks have reached.
#[derive(Clone, Copy)]
struct ReachedCollective {
    /// Arrival of the last rank (ns).
    start: i64,
    /// Remaining work (ns at full rate).
    left: f64,
}

struct Rank {
    clock: LaneClock,
    speed: f64,
    ends: Vec<i64>,
    /// Durations of the current step's operations on this rank, and the host's time before each (ns).
    durations: Vec<i64>,
    host: Vec<i64>,
    /// Earliest end of each operation on this rank (ns); empty if unknown.
    floors: Vec<i64>,
    head: [usize; 2],
    compute: Option<RunningOperation>,
    comm: Option<CollectiveArrival>,
    times: LaneTimes,
}

#[derive(Clone, Copy)]
struct RunningOperation {
    operation: usize,
    ready: i64,
    start: i64,
    left: f64,
}

/// A rank that has arrived at the current collective.
#[derive(Clone, Copy)]
struct CollectiveArrival {
    operation: usize,
    lane: Lane,
    ready: i64,
    start: i64,
}

impl SimulatedRanks for SkewedRanks {
    fn decode(self, cell: &SimulatedCell<'_>) -> Self {
        let clocks: Vec<LaneClock> = self.ranks.iter().map(|rank| rank.clock).collect();
        let ranks = Self::new(&cell.plans.decode[0], self.skew, self.seed, 1, &clocks);
        Self { routed: cell.expert_shares(Phase::Decode), ..ranks }
    }

    fn step(
        &mut self,
        durations: &[Durations<'_>],
        visit: impl FnMut(usize, SimulatedOperation),
    ) -> i64 {
        self.draw(&durations[0]);
        self.replay(durations[0].loads(), visit);
        self.tokens()
    }

    fn overlap(&self) -> Option<Overlap> {
        mean_overlap(self.ranks.iter().map(|rank| &rank.times))
    }
}

impl SkewedRanks {
    /// Ranks of a cell before a step of the run. `shares` give operations with experts the work of their rank: one of the
    /// draws in each step and layer.
    pub(super) fn of_cell(
        cell: &SimulatedCell<'_>,
        phase: Phase,
        step: u32,
        shares: ExpertShares,
    ) -> Self {
        let (plan, skew) = (&cell.plans.stages(phase)[0], cell.target.profile.skew);
        let clocks = vec![LaneClock::default(); cell.ranks() as usize];
        // prefill is step 0 of the draws
        let first = if phase == Phase::Prefill { 0 } else { 1 + u64::from(step) };
        Self { routed: shares, ..Self::new(plan, skew, cell.spec.seed, first, &clocks) }
    }

    /// `first` is the number of the first replayed step: steps are numbered over the run, so each is drawn anew,
    /// while a rank keeps its speed over both plans.
    fn new(plan: &Plan, skew: Skew, seed: u64, first: u64, clocks: &[LaneClock]) -> Self {
        let dependencies = PlanDependencies::new(plan);
        let ranks = clocks
            .iter()
            .zip(0_u64..)
            .map(|(&clock, rank)| Rank {
                clock,
                // a rank's speed is the same in prefill and decode
                speed: (1.0 + skew.rank_pct / 100.0 * normal(&mut random_of(seed, rank, u64::MAX - 1)))
                    .max(MIN_FACTOR),
                ends: vec![PENDING; dependencies.len()],
                durations: vec![0; dependencies.len()],
                host: vec![0; dependencies.len()],
                floors: Vec::new(),
                head: [0; 2],
                compute: None,
                comm: None,
                times: LaneTimes::since(clock.tokens),
            })
            .collect();
        Self { dependencies, skew, seed, ranks, steps: first, routed: Vec::new() }
    }

    fn tokens(&self) -> i64 {
        self.ranks.iter().map(|rank| rank.clock.tokens).max().unwrap_or(0)
    }

    /// Mean step of the slowest rank (ns) where no rank waits for another.
    pub(super) fn pace_without_waiting(&mut self, durations: &Durations<'_>) -> i64 {
        let mut sums = vec![0_i64; self.ranks.len()];
        for _ in 0..PACED_STEPS {
            self.draw(durations);
            for (sum, rank) in sums.iter_mut().zip(&self.ranks) {
                let times = rank.durations.iter().chain(&rank.host);
                *sum = times.fold(*sum, |sum, ns| sum.saturating_add(*ns));
            }
            self.steps += 1;
        }
        sums.into_iter().max().unwrap_or(0) / PACED_STEPS
    }

    /// Replays one step with measured durations and floors, by rank and operation (ns).
    fn measured_step(
        &mut self,
        work: &[Vec<i64>],
        floors: &[Vec<i64>],
        loads: ContendedDurations<'_>,
        visit: impl FnMut(usize, SimulatedOperation),
    ) {
        for ((rank, work), floors) in self.ranks.iter_mut().zip(work).zip(floors) {
            rank.durations.clone_from(work);
            rank.floors.clone_from(floors);
        }
        self.replay(loads, visit);
    }

    fn replay(
        &mut self,
        durations: ContendedDurations<'_>,
        mut visit: impl FnMut(usize, SimulatedOperation),
    ) {
        for rank in &mut self.ranks {
            rank.ends.fill(PENDING);
            rank.head = [0; 2];
        }
        let mut collective: Option<ReachedCollective> = None;
        let mut now = self.ranks.iter().map(|rank| rank.clock.tokens).min().unwrap_or(0);
        loop {
            for rank in &mut self.ranks {
                rank.start(&self.dependencies);
            }
            if collective.is_none() {
                let reached = |(start, operation): (i64, usize)| ReachedCollective {
                    start,
                    left: durations.ns[operation] as f64,
                };
                collective = self.arrival().map(reached);
            }
            let Some((next, ended)) = self.next(now, collective, durations) else { break };
            self.advance(now, next, &mut collective, durations);
            now = next;
            match ended {
                EarliestEnd::Compute(index) => {
                    let rank = &mut self.ranks[index];
                    if let Some(one) = rank.compute.take() {
                        let work = rank.durations[one.operation];
                        let event = SimulatedOperation {
                            operation: one.operation,
                            lane: Lane::Compute,
                            ready: one.ready,
                            start: one.start,
                            arrival: one.start,
                            end: now,
                            work,
                        };
                        rank.end(event);
                        visit(index, event);
                    }
                }
                EarliestEnd::Collective => {
                    let arrival = collective.take().map_or(now, |collective| collective.start);
                    for (index, rank) in self.ranks.iter_mut().enumerate() {
                        let Some(one) = rank.comm.take() else { continue };
                        // waiting for peers on the compute lane is not contention
                        let waited = if one.lane == Lane::Compute { arrival - one.start } else { 0 };
                        let event = SimulatedOperation {
                            operation: one.operation,
                            lane: one.lane,
                            ready: one.ready,
                            start: one.start,
                            arrival,
                            end: now,
                            work: durations.ns[one.operation].saturating_add(waited.max(0)),
                        };
                        rank.end(event);
                        visit(index, event);
                    }
                }
                // something starts, so rates change
                EarliestEnd::Nothing => {}
            }
        }
        for rank in &mut self.ranks {
            let tokens = self.dependencies.tokens(&rank.ends);
            rank.clock.tokens = tokens.unwrap_or(rank.clock.both_free());
        }
        self.steps += 1;
    }

    fn draw(&mut self, durations: &Durations<'_>) {
        let share = self.skew.operation_pct / 100.0;
        for (rank, index) in self.ranks.iter_mut().zip(0_u64..) {
            let mut random = random_of(self.seed, index, self.steps);
            rank.host.clone_from(&durations.host);
            for (own, &ns) in rank.durations.iter_mut().zip(&durations.ns) {
                let jitter =
                    if share > 0.0 { (1.0 + share * normal(&mut random)).max(MIN_FACTOR) } else { 1.0 };
                *own = (ns as f64 * rank.speed * jitter).round() as i64;
            }
            // by layer, so that every wiring meets the same loads; an odd stride meets all of them
            for (layer, (operation, draws)) in self.routed.iter().enumerate() {
                let draw = (self.steps as usize + layer * 3) % draws.len().max(1);
                let share = draws.get(draw).and_then(|ranks| ranks.get(index as usize)).unwrap_or(&1.0);
                let own = &mut rank.durations[*operation];
                *own = (*own as f64 * share).round() as i64;
            }
        }
    }

    /// Arrival of the last rank at the current collective; `None` if a rank has not arrived.
    fn arrival(&self) -> Option<(i64, usize)> {
        let arrived: Option<Vec<CollectiveArrival>> = self.ranks.iter().map(|rank| rank.comm).collect();
        let arrived = arrived?;
        Some((arrived.iter().map(|one| one.start).max()?, arrived.first()?.operation))
    }

    /// Rates of every rank's compute and of the collective, valid until the next event.
    fn rates(&self, now: i64, durations: ContendedDurations<'_>) -> (Vec<f64>, f64) {
        let compute = |rank: &Rank| match (rank.compute, rank.comm) {
            (Some(compute), Some(comm)) if comm.start <= now => {
                1.0 - durations.contention[compute.operation] * durations.contention[comm.operation]
            }
            _ => 1.0,
        };
        let computing = self.ranks.iter().filter(|r| r.compute.is_some_and(|c| c.start <= now)).count();
        let share = computing as f64 / self.ranks.len().max(1) as f64;
        (self.ranks.iter().map(compute).collect(), 1.0 - durations.comm_loss * share)
    }

    fn next(
        &self,
        now: i64,
        collective: Option<ReachedCollective>,
        durations: ContendedDurations<'_>,
    ) -> Option<(i64, EarliestEnd)> {
        let (compute_rates, comm_rate) = self.rates(now, durations);
        let mut best: Option<(i64, EarliestEnd)> = None;
        let mut consider = |time: i64, ended: EarliestEnd| {
            if best.is_none_or(|(known, _)| time < known) {
                best = Some((time, ended));
            }
        };
        let after = |left: f64, rate: f64| now.saturating_add((left / rate).ceil() as i64);
        for (index, (rank, rate)) in self.ranks.iter().zip(compute_rates).enumerate() {
            match rank.compute {
                Some(one) if one.start > now => consider(one.start, EarliestEnd::Nothing),
                Some(one) => consider(after(one.left, rate), EarliestEnd::Compute(index)),
                None => {}
            }
            if let Some(one) = rank.comm.filter(|one| one.start > now) {
                consider(one.start, EarliestEnd::Nothing);
            }
        }
        match collective {
            Some(ReachedCollective { start, .. }) if start > now => {
                consider(start, EarliestEnd::Nothing)
            }
            Some(ReachedCollective { left, .. }) => {
                consider(after(left, comm_rate), EarliestEnd::Collective)
            }
            None => {}
        }
        best
    }

    fn advance(
        &mut self,
        now: i64,
        next: i64,
        collective: &mut Option<ReachedCollective>,
        durations: ContendedDurations<'_>,
    ) {
        let (compute_rates, comm_rate) = self.rates(now, durations);
        let time = (next - now) as f64;
        let is_waiting = collective.is_none_or(|collective| collective.start > now);
        for (rank, rate) in self.ranks.iter_mut().zip(compute_rates) {
            if let Some(one) = rank.compute.as_mut().filter(|one| one.start <= now) {
                one.left = (one.left - time * rate).max(0.0);
                if rank.comm.is_some_and(|comm| comm.lane == Lane::Comm && comm.start <= now) {
                    let waiting = if is_waiting { next - now } else { 0 };
                    rank.times.add_overlap(next - now, waiting);
                }
            }
        }
        if let Some(collective) = collective.as_mut().filter(|collective| collective.start <= now) {
            collective.left = (collective.left - time * comm_rate).max(0.0);
        }
    }
}

#[derive(Clone, Copy)]
enum EarliestEnd {
    Compute(usize),
    Collective,
    Nothing,
}

impl Rank {
    fn start(&mut self, dependencies: &PlanDependencies) {
        let waits_inline = self.comm.is_some_and(|one| one.lane == Lane::Compute);
        if self.compute.is_none()
            && !waits_inline
            && let Some((operation, mut ready)) = self.startable(dependencies, Lane::Compute)
        {
            let mut start = ready.max(self.clock.free(Lane::Compute));
            if self.host[operation] > 0 {
                start = start.saturating_add(self.host[operation]);
                ready = start;
            }
            if !dependencies.inline[operation] {
                let work = self.durations[operation];
                // a late launch delays the start; nothing contends before it
                let released =
                    self.floors.get(operation).map_or(start, |floor| floor.saturating_sub(work));
                let (start, left) = (start.max(released), work as f64);
                self.compute = Some(RunningOperation { operation, ready, start, left });
            } else if self.comm.is_none() {
                self.comm = Some(CollectiveArrival { operation, lane: Lane::Compute, ready, start });
            }
        }
        if self.comm.is_none()
            && let Some((operation, ready)) = self.startable(dependencies, Lane::Comm)
        {
            let start = ready.max(self.clock.free(Lane::Comm));
            self.comm = Some(CollectiveArrival { operation, lane: Lane::Comm, ready, start });
        }
    }

    fn startable(&self, dependencies: &PlanDependencies, lane: Lane) -> Option<(usize, i64)> {
        let operation = *dependencies.lanes[lane as usize].get(self.head[lane as usize])? as usize;
        let ready = dependencies.ready(operation, &self.ends, self.clock.tokens);
        (ready != PENDING).then_some((operation, ready))
    }

    fn end(&mut self, event: SimulatedOperation) {
        self.times.count(&event);
        self.ends[event.operation] = event.end;
        self.clock.free[event.lane as usize] = event.end;
        self.head[event.lane as usize] += 1;
    }
}

/// Measured times of a plan's operations in one step (ns).
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredOperations {
    pub begin: Vec<i64>,
    /// Duration of each compute operation without contention, by rank, then by operation.
    pub work: Vec<Vec<i64>>,
    /// Earliest end of each operation because of its host launch, by rank, then by operation; empty if unknown for a
    /// rank.
    pub floors: Vec<Vec<i64>>,
    /// Duration of each collective from the last rank's arrival, by operation; 0 for other operations.
    pub transfer: Vec<i64>,
    /// Contention by operation (0 to 1): for compute, the share of its rate lost to a large collective; for a
    /// collective, how much of that loss it causes.
    pub contention: Vec<f64>,
    /// Share of its rate that a collective loses to compute.
    pub comm_loss: f64,
}

/// One executed operation of a replayed step; times in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayedOperation {
    pub rank: u32,
    pub operation: usize,
    pub lane: Lane,
    pub ready: i64,
    /// Start; if the host delayed the operation, the latest possible one.
    pub start: i64,
    /// Arrival of the last rank at a collective; otherwise the start.
    pub arrival: i64,
    pub end: i64,
}

/// Replays one step of `plan` on all ranks. Returns every executed operation, in order per lane, and the time at
/// which the last rank had the step's tokens (ns).
pub fn replay(plan: &Plan, measured: &MeasuredOperations) -> (Vec<ReplayedOperation>, i64) {
    let clocks: Vec<LaneClock> =
        measured.begin.iter().map(|&at| LaneClock { free: [at; 2], tokens: at }).collect();
    let mut ranks = SkewedRanks::new(plan, Skew::default(), 0, 0, &clocks);
    let loads = ContendedDurations {
        ns: &measured.transfer,
        contention: &measured.contention,
        comm_loss: measured.comm_loss,
    };
    let mut executed = Vec::with_capacity(plan.operations.len() * clocks.len());
    ranks.measured_step(&measured.work, &measured.floors, loads, |rank, event| {
        executed.push(ReplayedOperation {
            rank: rank as u32,
            operation: event.operation,
            lane: event.lane,
            ready: event.ready,
            start: event.start,
            arrival: event.arrival,
            end: event.end,
        });
    });
    (executed, ranks.tokens())
}
