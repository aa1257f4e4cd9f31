//! Cell with its sliders, and sliders over a measured step of a trace; [`crate::rewire`] predicts its times.
//!
//! Break-even: the highest latency or lowest bandwidth at which an architecture keeps its communication
//! hidden.

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::answer::{
    Answer, Numbers, ProfileValues, Question, Row, SHOWN, Strip, StripSpan, compare_with, native_link,
};
use crate::rewire::{Asked, Choice, Rewiring, Setting};
use base::error::{Error, Result};
use machine::hardware::{LinkPoint, Profile, Target};
use model::Model;
use plan::{Architecture, LayerSet};
use run::sim::{LinkTimes, Simulator};
use table::options::{Kind, OPTIONS, PAIRS};
use table::{Backend, Link, P2p, Spec, Split};
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
        for option in OPTIONS.iter().filter(|option| option.is_heeded_by(Backend::Sim)) {
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
    /// Arguments of `ladderscope` that name the trace and its machine, after the verb.
    arguments: Vec<String>,
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
        let cell = Spec {
            architecture: Architecture::Standard,
            tp,
            collective: rewiring.collective().unwrap_or_default(),
            p2p: rewiring.p2p(),
            backend: Backend::Sim,
            hardware: target.profile.name.clone(),
            ..known
        };
        let measured_ms = rewiring.measured().step_us / 1e3;
        Ok(Self { rewiring, target, base: Variant::new(cell), number, measured_ms, arguments })
    }

    /// Predicted numbers of every architecture with the sliders of a variant.
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
        let rows = shown.par_iter().map(|architecture| self.row(variant, architecture));
        let (mut rows, strips): (Vec<Row>, Vec<Option<Strip>>) = rows.unzip();
        let step_ms = |wanted: &Architecture| {
            let row = rows.iter().find(|row| row.architecture == *wanted)?;
            row.numbers.as_ref().ok().map(|numbers| numbers.tpot_ms)
        };
        // speedups compare with the step as it was measured
        let limit = step_ms(&Architecture::UpperBound);
        compare_with(&mut rows, Some(self.measured_ms), limit);
        let is_drawn = |strip: &Strip| {
            strip.architecture == Architecture::Standard || strip.architecture == *chosen
        };
        Ok(Answer {
            variant: variant.clone(),
            spec: variant.cell.clone(),
            profile_values: self.profile_values(variant),
            link: None,
            rows,
            strips: strips.into_iter().flatten().filter(is_drawn).collect(),
            frontiers: Vec::new(),
            arguments: self.arguments(&self.choice(variant, chosen.clone())),
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
            ..Choice::of(architecture)
        }
    }

    fn row(&self, variant: &Variant, architecture: &Architecture) -> (Row, Option<Strip>) {
        let row = |numbers| Row { architecture: architecture.clone(), micro_batches: 1, numbers };
        match self.numbers(&self.choice(variant, architecture.clone())) {
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
        let (comm_ms, exposed_ms) = (strip.comm_ns() as f64 / 1e6, times.exposed_us / 1e3);
        let numbers = Numbers {
            prefill_ms: None,
            decode_ms: None,
            tpot_ms: times.step_us / 1e3,
            completion_ms: None,
            tokens_per_s_per_gpu: None,
            comm_ms,
            exposed_ms,
            overlap_pct: table::overlap_pct(exposed_ms.min(comm_ms), comm_ms),
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
            is_mixture: false,
            // one rank has no all-reduces to measure
            tps: vec![2, 4, 8, 16, 32, 64],
            latency_scale: stack.collective.latency_scale,
            link_note,
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
        words
    }

    /// Origin and assumptions of the numbers.
    pub fn assumptions(&self, variant: &Variant) -> String {
        let choice = self.choice(variant, variant.cell.architecture.clone());
        let profile = &self.target.profile.name;
        let mut words =
            vec!["kernel and all-reduce times are measured, their schedule is simulated".to_owned()];
        if choice.collective.is_some()
            || choice.p2p.is_some()
            || choice.alpha_us.or(choice.gb_s).is_some()
        {
            words.push(format!("{profile} gives the ratio of new to traced all-reduce times"));
        }
        words.push(self.rewiring.error(&choice));
        if choice.tp.is_some() {
            words.push("kernels between all-reduces scale with 1/TP (best case)".into());
        }
        words.join("; ")
    }
}

/// Minimum overlap at which communication counts as hidden (%). Less than 100 because the last all-reduce of
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

/// Point at which communication stops being hidden.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Crossing {
    /// Break-even value, in the unit of the search.
    At(f64),
    /// Hidden in the whole range.
    Always,
    /// Not hidden anywhere in the range.
    Never,
}

/// Break-even of a variant's architecture, everything else unchanged.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct BreakEven {
    /// Quantity of the search.
    pub over: Over,
    /// Link whose latency or bandwidth varies.
    pub link: CrossedLink,
    /// Minimum overlap that counts as hidden (%).
    pub hidden_pct: f64,
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

/// Bisection steps on a logarithmic scale, for a relative precision of about a thousandth.
const HALVINGS: usize = 14;

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
    /// Finds the value at which the variant's architecture stops hiding at least `hidden_pct` of its
    /// communication, by bisection. If the overlap is not monotonic, the result is one of several crossings.
    ///
    /// # Errors
    ///
    /// Returns an error if the variant is invalid or its architecture cannot run or does not communicate.
    pub fn break_even(&self, simulator: &Simulator, over: Over, hidden_pct: f64) -> Result<BreakEven> {
        let question = Question::new(simulator, self)?;
        let is_emulated = matches!(question.spec.link, Link::Emulated { .. });
        let link = match question.spec.tp > question.target.profile.gpus_per_node && !is_emulated {
            true => CrossedLink::Network,
            false => CrossedLink::Node,
        };
        let at = |value: f64| Question::new(simulator, &over.set(link, self, value));
        let hidden = |value: f64| -> Result<bool> { Ok(overlap_pct(&at(value)?)? >= hidden_pct) };
        let [low, high] = over.range();
        let (mut easy, mut hard) = match over {
            Over::AlphaUs => (low, high),
            Over::GbS => (high, low),
        };
        let crossing = match (hidden(easy)?, hidden(hard)?) {
            (false, _) => Crossing::Never,
            (true, true) => Crossing::Always,
            (true, false) => {
                for _ in 0..HALVINGS {
                    let middle = (easy * hard).sqrt();
                    if hidden(middle)? { easy = middle } else { hard = middle }
                }
                Crossing::At(easy)
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
            range: over.range(),
            crossing,
            all_reduce_us: there.as_ref().map(|times| times.alone_us),
            charged_us: there.map(|times| times.charged_us),
        })
    }
}

fn overlap_pct(question: &Question<'_>) -> Result<f64> {
    let (numbers, _) = question.numbers(&question.spec).map_err(Error::input)?;
    numbers.overlap_pct.ok_or_else(|| {
        Error::input_help(
            format!("{} at TP {} does not communicate", question.spec.architecture, question.spec.tp),
            "choose an architecture and a TP that do",
        )
    })
}
