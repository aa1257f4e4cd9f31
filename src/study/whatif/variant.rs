//! Cell with its sliders, and sliders over a measured step of a trace; [`crate::rewire`] predicts its times.
//!
//! Break-even: the highest latency or lowest bandwidth at which an architecture keeps its communication
//! hidden.

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::answer::{
    Answer, LaunchGaps, Numbers, ProfileValues, Question, Row, SHOWN, Strip, StripSpan, TPS,
    compare_with, native_link,
};
use super::slider::shown;
use crate::rewire::{Asked, Choice, Ends, Rewiring, Setting, lanes_us};
use base::error::{Error, Result};
use machine::hardware::{LinkPoint, Profile, Target};
use model::Model;
use plan::{Architecture, LayerSet};
use run::sim::{LinkTimes, Simulator};
use table::options::{Kind, OPTIONS, PAIRS};
use table::{Backend, Link, P2p, Provenance, Spec, Split};
use trace::Trace;
use trace::overlap::StepKey;

/// Substitute hardware for cells that ran on a machine without a profile.
const INSTEAD_OF_HOST: &str = "h100_sxm";

/// Simulated cell and the hardware values that sliders changed; `None` keeps the profile's value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    /// Cell on the simulator backend, with its own overrides in `set`.
    pub cell: Spec,
    /// Latency of a small all-reduce inside a node (us).
    pub alpha_us: Option<f64>,
    /// Message bandwidth of an all-reduce inside a node (1e9 bytes/s).
    pub gb_s: Option<f64>,
    /// SMs' worth of work that a large all-reduce takes from compute.
    pub sms: Option<f64>,
    /// Share of its rate that an all-reduce loses while compute runs (%).
    pub comm_loss_pct: Option<f64>,
    /// Peak memory bandwidth (1e9 bytes/s).
    pub hbm_gb_s: Option<f64>,
    /// Fixed time of a kernel (us).
    pub launch_us: Option<f64>,
    /// True if no kernel waits for its launch, as in a CUDA graph; changes steps of a trace alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_launch_gaps: bool,
    /// Division of the GPUs that returns when TP rises from 1, by index; one GPU has nothing to divide.
    #[serde(skip)]
    pub division_above_one: RememberedDivision,
}

/// Division of the GPUs, by index, that takes no part in comparisons: it changes no number.
#[derive(Clone, Copy, Debug, Default)]
pub struct RememberedDivision(pub usize);

impl PartialEq for RememberedDivision {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Default for Variant {
    /// 70B, TP 8, batch 1, on H100 with gpt-fast: the cell of the Ladder Residual paper.
    fn default() -> Self {
        Self::new(Spec {
            architecture: Architecture::Ladder(LayerSet::All),
            model: "llama-3-70b".into(),
            tp: 8,
            hardware: INSTEAD_OF_HOST.into(),
            stack: "gpt-fast".into(),
            samples: 1,
            warmup: 0,
            ..Spec::default()
        })
    }
}

impl Variant {
    pub(super) fn new(cell: Spec) -> Self {
        Self {
            cell,
            alpha_us: None,
            gb_s: None,
            sms: None,
            comm_loss_pct: None,
            hbm_gb_s: None,
            launch_us: None,
            no_launch_gaps: false,
            division_above_one: RememberedDivision::default(),
        }
    }

    /// Simulated version of any cell. A machine without a profile becomes an H100 (the second value is a note
    /// about it); links taken from a profile become the profile's own P2P setting.
    pub fn of(spec: &Spec) -> (Self, Option<String>) {
        let mut cell = Spec { backend: Backend::Sim, samples: 1, warmup: 0, ..spec.clone() };
        (cell.p2p, cell.link) = match cell.link {
            Link::P2pOn => (P2p::On, Link::Native),
            Link::P2pOff => (P2p::Off, Link::Native),
            other => (cell.p2p, other),
        };
        let note = (cell.hardware == "host").then(|| {
            cell.hardware = INSTEAD_OF_HOST.into();
            format!("no profile for this run's machine; simulated on {INSTEAD_OF_HOST}")
        });
        (Self::new(cell), note)
    }

    /// Experts and top-k of a built-in mixture.
    pub fn experts(&self) -> Option<[u32; 2]> {
        Model::experts_of_built_in(&self.cell.model)
    }

    /// Changes one of [`Self::experts`]; `None` keeps it.
    pub(super) fn set_experts(&mut self, at: usize, value: Option<f64>) {
        let Some((mut experts, value)) = self.experts().zip(value) else { return };
        experts[at] = value as u32;
        self.cell.model = Model::named_with_experts(&self.cell.model, experts);
    }

    /// Profile and stack without the slider changes. Returns the errors of [`Target::of`] for the variant's
    /// hardware and stack.
    pub fn plain_target(&self) -> Result<Target> {
        Target::of(&self.cell)
    }

    /// Cell with all slider changes, as for `ladderscope run`. Returns the errors of [`Target::of`], and an
    /// error if communication takes more SMs than the GPU has or the profile lacks the number of SMs.
    pub fn spec(&self) -> Result<Spec> {
        let mut spec = self.cell.clone();
        if spec.concurrency > 0 {
            spec.concurrency = spec.batch;
        }
        if let Link::Emulated { alpha_us, gb_s } = spec.link {
            let (alpha_us, gb_s) = (self.alpha_us.unwrap_or(alpha_us), self.gb_s.unwrap_or(gb_s));
            spec.link = Link::Emulated { alpha_us, gb_s };
        } else if self.alpha_us.is_some() || self.gb_s.is_some() {
            let profile = self.plain_target()?.profile;
            set_link(&mut spec.set, &profile, "alpha_us", self.alpha_us);
            set_link(&mut spec.set, &profile, "gb_s", self.gb_s);
        }
        if let Some(sms) = self.sms {
            let plain = self.plain_target()?;
            let total = f64::from(sms_of(&plain.profile)?);
            if sms > total {
                return Err(Error::input(format!(
                    "communication takes {sms} SMs, but {} has {total}",
                    plain.profile.name
                )));
            }
            let contention = &plain.stack.contention;
            let lost = (sms / total).clamp(0.0, MOST_LOST);
            // memory-bound compute loses in proportion
            let memory = if contention.arithmetic > 0.0 {
                contention.memory * lost / contention.arithmetic
            } else {
                lost
            };
            spec.set.insert("stack.contention.arithmetic".into(), number(lost));
            spec.set.insert("stack.contention.memory".into(), number(memory.min(MOST_LOST)));
        }
        let mut set = |key: &str, value: Option<f64>| {
            if let Some(value) = value {
                spec.set.insert(key.into(), number(value));
            }
        };
        set("stack.contention.comm", self.comm_loss_pct.map(|pct| pct / 100.0));
        set("hbm_gb_s", self.hbm_gb_s);
        set("stack.launch_us", self.launch_us);
        Ok(spec)
    }

    /// Arguments of the command that reproduces these numbers, starting with `run`. Returns the errors of
    /// [`Self::spec`].
    pub fn arguments(&self) -> Result<Vec<String>> {
        let spec = self.spec()?;
        let mut words: Vec<String> = ["run", "--backend", "sim"].map(str::to_owned).to_vec();
        for option in OPTIONS.iter().filter(|option| option.is_used_by(Backend::Sim)) {
            let text = option.text(&spec);
            match (option.name, option.kind) {
                // already set, or fixed by the simulator
                ("backend" | "samples" | "warmup", _) => {}
                (_, Kind::Flag) => words.extend((text == "true").then(|| format!("--{}", option.flag))),
                ("link" | "seed", _) if option.is_default(&spec) => {}
                _ if !option.is_required && option.is_default(&spec) => {}
                _ => words.extend([format!("--{}", option.flag), text.into_owned()]),
            }
        }
        for pairs in &PAIRS {
            let pair = |(key, value)| [format!("--{}", pairs.name), format!("{key}={value}")];
            words.extend((pairs.of)(&spec).iter().flat_map(pair));
        }
        Ok(words)
    }
}

const MOST_LOST: f64 = 0.99;

/// Number of SMs of the profile's GPU; an error if the profile does not state it.
pub(super) fn sms_of(profile: &Profile) -> Result<u32> {
    profile.sms.ok_or_else(|| {
        Error::input_help(
            format!("hardware profile {} does not say how many SMs the GPU has", profile.name),
            "add sms = N to the profile",
        )
    })
}

/// Overrides `alpha_us` or `gb_s` of every link inside a node, and scales the large-message values in
/// proportion.
pub fn set_link(set: &mut BTreeMap<String, String>, profile: &Profile, name: &str, value: Option<f64>) {
    let Some(value) = value else { return };
    // a more specific key would override the new value
    let refines = |key: &str| {
        key.starts_with("link.") && !key.starts_with("link.inter_node") && key.ends_with(name)
    };
    set.retain(|key, _| !refines(key));
    set.insert(format!("link.{name}"), number(value));
    let of: fn(&LinkPoint) -> f64 = if name == "gb_s" { |p| p.gb_s } else { |p| p.alpha_us };
    for (table, rows) in profile.link.tables() {
        for (tp, point) in &rows.tp {
            let Some(large) = point.large.filter(|_| of(point) > 0.0) else { continue };
            let large = if name == "gb_s" { large.gb_s } else { large.alpha_us };
            let key = format!("link.{table}.tp.{tp}.large.{name}");
            set.insert(key, number(large * value / of(point)));
        }
    }
}

/// Rounds to six significant digits, so that screen, simulation and command agree.
fn number(value: f64) -> String {
    let rounded: f64 = format!("{value:.5e}").parse().unwrap_or(value);
    rounded.to_string()
}

/// A measured step with its kernels and all-reduces, as the starting point of the sliders.
#[derive(Debug)]
pub struct TracedStep {
    rewiring: Rewiring,
    target: Target,
    /// Traced engine as a cell: what the sliders start from.
    pub base: Variant,
    pub number: u32,
    /// Measured step latency (ms).
    pub measured_ms: f64,
    /// Time in which the GPU waits for launches, as the verdict on the trace counts it (ms); `None` unless that is much.
    launch_wait_ms: Option<f64>,
    /// Arguments of `ladderscope` that name the trace and its machine, after the verb.
    arguments: Vec<String>,
    /// TP sizes to choose from, ascending.
    tps: Vec<u32>,
    is_of_known_model: bool,
}

impl TracedStep {
    /// Prepares the step of a trace with this key, or at this time (ns). `layers` and `tp` are for traces that do not
    /// tell. `arguments` name the trace and, if the trace does not, its machine.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Rewiring::of`], and an error if the trace does not tell its TP.
    pub fn of(
        trace: &Trace,
        (key, at_ns): (Option<StepKey>, i64),
        [layers, tp]: [Option<u32>; 2],
        target: Target,
        arguments: Vec<String>,
    ) -> Result<Self> {
        let asked = Asked { layers, phase: key.map(|key| key.phase), ..Asked::default() };
        let setting = Setting { target: Some(target.clone()), tp, ..Setting::default() };
        let rewiring = Rewiring::of(trace, &asked, &setting)?;
        let number = rewiring.step_at(key, at_ns);
        let rewiring = rewiring.on_step(number)?;
        let tp = rewiring.tp.ok_or_else(|| {
            Error::input_help(
                "the trace does not tell its tensor-parallel size, which the link's times depend on",
                "pass it to `ladderscope rewire TRACE --tp N`, or open the traces of all ranks",
            )
        })?;
        let known = trace.meta.spec.clone().unwrap_or_default();
        let (tp, ranks) = match rewiring.steps.ends {
            Ends::AllReduces => (tp, known.dp),
            // ranks with attention and experts of their own
            Ends::Exchanges => (1, tp),
        };
        let cell = Spec {
            architecture: Architecture::Standard,
            tp,
            ep: if ranks > 1 { ranks } else { known.ep },
            dp: ranks,
            micro_batches: 1,
            collective: rewiring.collective().unwrap_or_default(),
            p2p: rewiring.p2p(),
            backend: Backend::Sim,
            hardware: target.profile.name.clone(),
            ..known
        };
        let measured_ms = rewiring.measured().step_us / 1e3;
        let launch_wait_ms = rewiring.steps.launch_wait_ms(number);
        // a trace of another program does not name its model
        let shape = trace.meta.spec.as_ref().and_then(|spec| Model::resolve(&spec.model).ok());
        let has_link = |tp: &u32| target.profile.link_problem(cell.collective, cell.p2p, *tp).is_none();
        // without the model's heads, only divisors of the traced TP are known to divide them
        let divides = |tp: &u32| match &shape {
            Some(model) => model.shape.tp_problem(*tp).is_none(),
            None => cell.tp.is_multiple_of(*tp),
        };
        // one rank has no all-reduces to measure
        let tps = TPS[1..].iter().copied().filter(|tp| *tp == cell.tp || has_link(tp) && divides(tp));
        let tps = tps.collect();
        let (is_of_known_model, base) = (shape.is_some(), Variant::new(cell));
        Ok(Self {
            rewiring,
            target,
            base,
            number,
            measured_ms,
            launch_wait_ms,
            arguments,
            tps,
            is_of_known_model,
        })
    }

    /// True if the trace comes from the simulator.
    pub fn is_simulated(&self) -> bool {
        self.rewiring.provenance == Provenance::Simulated
    }

    /// Predicted numbers of every architecture with the sliders of a variant, and of `standard` in two micro-batches.
    ///
    /// # Errors
    ///
    /// Returns an error if the arguments of the command cannot be formed.
    pub fn answer(&self, variant: &Variant) -> Result<Answer> {
        let chosen = &variant.cell.architecture;
        let mut shown: Vec<Architecture> = SHOWN.iter().filter_map(|name| name.parse().ok()).collect();
        if !shown.contains(chosen) {
            shown.insert(shown.len() - 1, chosen.clone());
        }
        let mut shown: Vec<(Architecture, u32)> = shown.into_iter().map(|it| (it, 1)).collect();
        shown.insert(shown.len() - 1, (Architecture::Standard, 2));
        let rows =
            shown.par_iter().map(|(architecture, groups)| self.row(variant, architecture, *groups));
        let (mut rows, strips): (Vec<Row>, Vec<Option<Strip>>) = rows.unzip();
        let step_ms = |wanted: &Architecture| {
            let row = rows.iter().find(|row| (&row.architecture, row.micro_batches) == (wanted, 1))?;
            row.numbers.as_ref().ok().map(|numbers| numbers.tpot_ms)
        };
        let [standard, limit] =
            [Architecture::Standard, Architecture::UpperBound].map(|it| step_ms(&it));
        compare_with(&mut rows, standard, limit);
        // speedups compare with the step as it was measured
        for numbers in rows.iter_mut().filter_map(|row| row.numbers.as_mut().ok()) {
            numbers.speedup = Some(self.measured_ms / numbers.tpot_ms);
        }
        let strips = strips.into_iter().zip(&shown).filter(|(_, (architecture, groups))| {
            *groups == 1 && (*architecture == Architecture::Standard || architecture == chosen)
        });
        let strips: Vec<Strip> = strips.filter_map(|(strip, _)| strip).collect();
        Ok(Answer {
            variant: variant.clone(),
            spec: variant.cell.clone(),
            profile_values: self.profile_values(variant),
            link: None,
            error: None,
            launch_gaps: self.launch_gaps(variant),
            assumptions: Some(self.assumptions(variant)),
            rows,
            strips,
            frontiers: Vec::new(),
            arguments: self.arguments(&self.choice(variant, chosen.clone())),
        })
    }

    fn launch_gaps(&self, variant: &Variant) -> Option<LaunchGaps> {
        Some(LaunchGaps {
            ms: self.launch_wait_ms?,
            remedy: self.rewiring.steps.launch_remedy(),
            is_removed: variant.no_launch_gaps,
        })
    }

    fn choice(&self, variant: &Variant, architecture: Architecture) -> Choice {
        let (now, base) = (&variant.cell, &self.base.cell);
        Choice {
            collective: (now.collective != base.collective).then_some(now.collective),
            p2p: (now.p2p != base.p2p).then_some(now.p2p),
            tp: (now.tp != base.tp).then_some(now.tp),
            alpha_us: variant.alpha_us,
            gb_s: variant.gb_s,
            host: !variant.no_launch_gaps,
            ..Choice::of(architecture)
        }
    }

    /// A row; micro-batches take as long as the whole batch (worst case), as in [`crate::verdict`].
    fn row(
        &self,
        variant: &Variant,
        architecture: &Architecture,
        micro_batches: u32,
    ) -> (Row, Option<Strip>) {
        let row = |numbers| Row { architecture: architecture.clone(), micro_batches, numbers };
        let choice = Choice { micro_batches, ..self.choice(variant, architecture.clone()) };
        match self.numbers(&choice) {
            Ok((numbers, strip)) => (row(Ok(numbers)), Some(strip)),
            Err(error) => (row(Err(error.to_string())), None),
        }
    }

    fn numbers(&self, choice: &Choice) -> Result<(Numbers, Strip)> {
        let answer = self.rewiring.answer(choice)?;
        let times = answer.contended.unwrap_or(answer.alone);
        let (plan, executed) = self.rewiring.replayed(choice, self.number)?;
        let rank = executed.iter().map(|one| one.rank).min();
        let of_rank = executed.iter().filter(|one| Some(one.rank) == rank && one.end > one.start);
        let spans: Vec<StripSpan> = of_rank
            .map(|one| StripSpan::of(&plan.operations[one.operation], one.lane, (one.start, one.end)))
            .collect();
        let length_ns = spans.iter().map(|span| span.end_ns).max().unwrap_or(0);
        let strip = Strip::of(&choice.architecture, spans, length_ns, self.rewiring.steps.layers);
        let [comm_ms, exposed_ms] = lanes_us(&executed, self.rewiring.steps.ranks).map(|us| us / 1e3);
        let numbers = Numbers {
            prefill_ms: None,
            decode_ms: None,
            tpot_ms: times.step_us / 1e3,
            completion_ms: None,
            tokens_per_s_per_gpu: None,
            comm_ms,
            exposed_ms,
            overlap_pct: table::overlap_pct(exposed_ms, comm_ms),
            split: Split::default(),
            speedup: None,
            hidden_share: None,
        };
        Ok((numbers, strip))
    }

    fn profile_values(&self, variant: &Variant) -> ProfileValues {
        let Target { profile, stack } = &self.target;
        let (alpha_us, gb_s, link_note) = native_link(profile, &variant.cell);
        ProfileValues {
            alpha_us,
            gb_s,
            sms: None,
            sms_total: profile.sms,
            comm_loss_pct: 100.0 * stack.contention.comm,
            hbm_gb_s: profile.hbm_gb_s,
            launch_us: stack.launch_us,
            experts: None,
            tps: self.tps.clone(),
            divisions: [true, false, false],
            tp_note: (!self.is_of_known_model).then(|| {
                let tp = self.base.cell.tp;
                format!("the trace does not name its model; only divisors of TP {tp} are certain to divide its heads")
            }),
            latency_scale: stack.collective.latency_scale,
            link_note,
            no_link: (self.rewiring.steps.ends == Ends::Exchanges).then(|| {
                let is = self.rewiring.provenance;
                format!("this trace has no all-reduce; its dispatches and combines stay as {is}")
            }),
        }
    }

    /// Command that predicts the same.
    fn arguments(&self, choice: &Choice) -> Vec<String> {
        let mut words = vec!["rewire".to_owned()];
        words.extend(self.arguments.iter().cloned());
        let mut option = |name: &str, value: Option<String>| {
            words.extend(value.into_iter().flat_map(|value| [format!("--{name}"), value]));
        };
        option("step", Some(self.number.to_string()));
        option("architecture", Some(choice.architecture.to_string()));
        option("collective", choice.collective.map(|it| it.to_string()));
        option("p2p", choice.p2p.map(|it| it.to_string()));
        option("alpha-us", choice.alpha_us.map(|us| us.to_string()));
        option("gb-s", choice.gb_s.map(|gb_s| gb_s.to_string()));
        option("on-tp", choice.tp.map(|tp| tp.to_string()));
        words.extend((!choice.host).then(|| "--no-launches".to_owned()));
        words
    }

    /// Origin and assumptions of the numbers.
    pub fn assumptions(&self, variant: &Variant) -> String {
        let choice = self.choice(variant, variant.cell.architecture.clone());
        let profile = &self.target.profile.name;
        let of = match self.rewiring.steps.ends {
            Ends::AllReduces => "all-reduce",
            Ends::Exchanges => "dispatch and combine",
        };
        let provenance = self.rewiring.provenance;
        let mut words = vec![match provenance {
            Provenance::Simulated => format!("kernel and {of} times are those of a simulated run"),
            Provenance::EmulatedLink => {
                format!("kernel times are measured, {of} times emulated, their schedule is simulated")
            }
            _ => format!("kernel and {of} times are {provenance}, their schedule is simulated"),
        }];
        if choice.collective.is_some()
            || choice.p2p.is_some()
            || choice.alpha_us.or(choice.gb_s).is_some()
        {
            words.push(format!("{profile} gives the ratio of new to traced all-reduce times"));
        }
        words.extend(self.rewiring.unmerged(&choice.architecture));
        words.push(match self.rewiring.answer(&choice) {
            Ok(answer) => self.rewiring.error_of(&answer),
            Err(_) => self.rewiring.error(&choice),
        });
        if choice.tp.is_some() {
            words.push("kernels between all-reduces scale with 1/TP (best case)".into());
        }
        words.push(
            "worst case for micro2: kernels of half a batch take as long as those of the whole".into(),
        );
        words.join("; ")
    }
}

/// Minimum hidden share (%) at which communication counts as hidden. Less than 100 because the last all-reduce of
/// a step has nothing to hide behind.
pub const HIDDEN_PCT: f64 = 95.0;

/// Quantity to search over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Over {
    /// Latency of an all-reduce (us): hidden below the break-even.
    AlphaUs,
    /// Message bandwidth (1e9 bytes/s): hidden above the break-even.
    GbS,
}

/// Link of the all-reduce whose latency or bandwidth varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CrossedLink {
    /// Inside a node, or emulated: latency as measured by nccl-tests.
    Node,
    /// Between nodes: latency per doubling of the nodes, bandwidth of all network cards of a node.
    Network,
}

/// Point at which communication stops being hidden, or begins to be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Crossing {
    /// Break-even value, in the unit of the search.
    At(f64),
    /// Hidden from the present value to the slow end of the range.
    Always,
    /// Not hidden from the present value to the fast end of the range.
    Never,
}

/// Break-even of a variant's architecture, everything else unchanged.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct BreakEven {
    /// Quantity of the search.
    pub over: Over,
    /// Link whose latency or bandwidth varies.
    pub link: CrossedLink,
    /// Minimum hidden share of the communication that counts as hidden (%).
    pub hidden_pct: f64,
    /// Value of the cell.
    pub now: f64,
    /// True if that is the hardware profile's, false if a slider or an option set it.
    pub is_of_profile: bool,
    /// Hidden share of the communication at that value (%).
    pub now_hidden_pct: f64,
    /// Lowest and highest value of the search.
    pub range: [f64; 2],
    /// Result of the search.
    pub crossing: Crossing,
    /// Latency of a decode step's all-reduce at the break-even, back to back as in nccl-tests (us); null
    /// without a crossing.
    pub all_reduce_us: Option<f64>,
    /// Same latency as the stack charges it within a model (us).
    pub charged_us: Option<f64>,
}

/// Values between the present one and the end of the range at which the hidden share is computed; the first at which
/// communication changes from hidden to not hidden, or back, is bisected.
const SCANNED: i32 = 16;

/// Bisection steps on a logarithmic scale, for a relative precision of a thousandth.
const HALVINGS: usize = 10;

impl Over {
    pub fn range(self) -> [f64; 2] {
        match self {
            Self::AlphaUs => [0.1, 2000.0],
            Self::GbS => [1.0, 2000.0],
        }
    }

    pub fn set(self, link: CrossedLink, variant: &Variant, value: f64) -> Variant {
        let mut changed = variant.clone();
        let network = |name: &str| (format!("link.inter_node.{name}"), value.to_string());
        match (self, link) {
            (Self::AlphaUs, CrossedLink::Node) => changed.alpha_us = Some(value),
            (Self::GbS, CrossedLink::Node) => changed.gb_s = Some(value),
            (Self::AlphaUs, CrossedLink::Network) => changed.cell.set.extend([network("alpha_us")]),
            (Self::GbS, CrossedLink::Network) => changed.cell.set.extend([network("gb_s")]),
        }
        changed
    }

    pub fn unit(self) -> &'static str {
        match self {
            Self::AlphaUs => "us",
            Self::GbS => "GB/s",
        }
    }
}

impl Variant {
    /// Finds the value nearest to the present one at which the variant's architecture stops hiding at least
    /// `hidden_pct` of its communication on a slower link, or, if it does not hide it now, begins to on a faster one.
    /// The value is on the hidden side.
    ///
    /// # Errors
    ///
    /// Returns an error if the variant is invalid, its architecture cannot run or does not communicate, or the link
    /// does not change its communication.
    pub fn break_even(&self, simulator: &Simulator, over: Over, hidden_pct: f64) -> Result<BreakEven> {
        let question = Question::new(simulator, self)?;
        if let Some(why) = question.no_link() {
            return Err(Error::input(why));
        }
        let is_emulated = matches!(question.spec.link, Link::Emulated { .. });
        let ranks = question.spec.tp.max(question.spec.dp);
        let link = match ranks > question.target.profile.gpus_per_node && !is_emulated {
            true => CrossedLink::Network,
            false => CrossedLink::Node,
        };
        let now = self.link_value(&question, over, link)?;
        let at = |value: f64| Question::new(simulator, &over.set(link, self, value));
        let hidden = |value: f64| -> Result<bool> { Ok(at(value)?.overlap_pct()? >= hidden_pct) };
        let now_hidden_pct = question.overlap_pct()?;
        let is_hidden = now_hidden_pct >= hidden_pct;
        let [low, high] = over.range();
        let end = match (over, is_hidden) {
            (Over::AlphaUs, true) | (Over::GbS, false) => high.max(now),
            (Over::AlphaUs, false) | (Over::GbS, true) => low.min(now),
        };
        // a latency may be 0
        let from = now.max(low * 1e-3);
        let mut before = from;
        let mut found = None;
        for step in 1..=SCANNED {
            let value = from * (end / from).powf(f64::from(step) / f64::from(SCANNED));
            if hidden(value)? != is_hidden {
                found = Some((before, value));
                break;
            }
            before = value;
        }
        let crossing = match found {
            None if is_hidden => Crossing::Always,
            None => Crossing::Never,
            Some((mut like_now, mut other)) => {
                for _ in 0..HALVINGS {
                    let middle = (like_now * other).sqrt();
                    if hidden(middle)? == is_hidden { like_now = middle } else { other = middle }
                }
                Crossing::At(if is_hidden { like_now } else { other })
            }
        };
        let there: Option<LinkTimes> = match crossing {
            Crossing::At(value) => Some(at(value)?.link().times),
            _ => None,
        };
        Ok(BreakEven {
            over,
            link,
            hidden_pct,
            now,
            is_of_profile: self.is_of_profile(over, link),
            now_hidden_pct,
            range: over.range(),
            crossing,
            all_reduce_us: there.as_ref().map(|times| times.alone_us),
            charged_us: there.map(|times| times.charged_us),
        })
    }

    /// True if the hardware profile alone decides a value of a link.
    fn is_of_profile(&self, over: Over, link: CrossedLink) -> bool {
        let (own, name) = match over {
            Over::AlphaUs => (self.alpha_us, "alpha_us"),
            Over::GbS => (self.gb_s, "gb_s"),
        };
        let is_set = |key: &String| key.starts_with("link.") && key.ends_with(name);
        let is_emulated = matches!(self.cell.link, Link::Emulated { .. });
        !self.cell.set.keys().any(is_set)
            && (link == CrossedLink::Network || own.is_none() && !is_emulated)
    }

    /// Present latency or bandwidth of a link.
    fn link_value(&self, question: &Question<'_>, over: Over, link: CrossedLink) -> Result<f64> {
        if link == CrossedLink::Network {
            let network = &question.target.profile.link.inter_node;
            return Ok(if over == Over::AlphaUs { network.alpha_us } else { network.gb_s });
        }
        let own = if over == Over::AlphaUs { self.alpha_us } else { self.gb_s };
        let values = || {
            let (alpha_us, gb_s) = match self.cell.link {
                Link::Emulated { alpha_us, gb_s } => (alpha_us, gb_s),
                _ => {
                    let (alpha_us, gb_s, _) = native_link(&self.plain_target()?.profile, &self.cell);
                    (alpha_us, gb_s)
                }
            };
            Ok(if over == Over::AlphaUs { alpha_us } else { gb_s })
        };
        own.map_or_else(values, Ok)
    }
}

impl BreakEven {
    /// Sentence on the searches of a cell: hidden share on its link, and the limits beyond which it changes. Limits are rounded
    /// to the hidden side.
    pub fn in_words(found: &[Self]) -> String {
        Self::said(found, true)
    }

    /// The same without the values of the cell, for a reader who sees them.
    pub fn beside_values(found: &[Self]) -> String {
        Self::said(found, false)
    }

    fn said(found: &[Self], with_values: bool) -> String {
        let Some(Self { hidden_pct, now_hidden_pct, .. }) = found.first() else { return String::new() };
        let limits: Vec<String> = found.iter().map(Self::limit_in_words).collect();
        let charged = found.iter().find_map(|one| one.charged_us);
        let charged = charged.map_or(String::new(), |us| {
            format!("; an all-reduce then takes {us:.1} us inside the model")
        });
        let value = |one: &Self| format!("{} {}", shown(one.now), one.over.unit());
        // the profile is named once if all values are its own
        let all_of_profile = found.iter().all(|one| one.is_of_profile);
        let values = found.iter().enumerate().map(|(at, one)| match one.is_of_profile {
            true if at == 0 || !all_of_profile => format!("the profile's {}", value(one)),
            _ => value(one),
        });
        let values: Vec<String> = values.collect();
        let values = if with_values { format!(" at {}", values.join(" and ")) } else { String::new() };
        format!(
            "hides {} of its communication{values}; for at least {hidden_pct} %, each alone: {}{charged}",
            hidden_words(*now_hidden_pct),
            limits.join(", ")
        )
    }

    fn limit_in_words(&self) -> String {
        let unit = self.over.unit();
        let name = match (self.over, self.link) {
            (Over::AlphaUs, CrossedLink::Node) => "latency (alpha)",
            (Over::GbS, CrossedLink::Node) => "bandwidth",
            (Over::AlphaUs, CrossedLink::Network) => "network latency",
            (Over::GbS, CrossedLink::Network) => "network bandwidth",
        };
        let [low, high] = self.range;
        match (self.crossing, self.over) {
            (Crossing::At(at), Over::AlphaUs) => {
                format!("{name} at most {} {unit}", rounded(at, f64::floor))
            }
            (Crossing::At(at), Over::GbS) => {
                format!("{name} at least {} {unit}", rounded(at, f64::ceil))
            }
            (Crossing::Always, Over::AlphaUs) => format!("any {name} up to {high} {unit}"),
            (Crossing::Always, Over::GbS) => format!("any {name} from {low} {unit}"),
            (Crossing::Never, Over::AlphaUs) => format!("no {name} down to {low} {unit} is low enough"),
            (Crossing::Never, Over::GbS) => format!("no {name} up to {high} {unit} is high enough"),
        }
    }
}

/// Hidden share of communication (%) in whole percent, 100 only if all is hidden.
pub fn whole_pct(pct: f64) -> f64 {
    match pct.round() {
        whole if whole >= 100.0 && pct < 99.95 => 99.0,
        whole => whole,
    }
}

/// Hidden share of communication for people: `85 %`.
pub fn hidden_words(pct: f64) -> String {
    format!("{:.0} %", whole_pct(pct))
}

/// Three significant digits, rounded one way.
fn rounded(value: f64, way: fn(f64) -> f64) -> String {
    let unit = 10f64.powi(value.log10().floor() as i32 - 2);
    // a value of three digits stays, in spite of its binary form
    let digits = value / unit;
    let whole = if (digits - digits.round()).abs() < 1e-9 { digits.round() } else { way(digits) };
    shown(whole * unit)
}
