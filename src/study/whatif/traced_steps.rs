//! Sliders over the measured steps of a trace; [`crate::rewire`] predicts their times.

use rayon::prelude::*;

use super::answer::{
    LaunchGaps, NetworkValues, ProfileValues, SimulatedMetrics, StepStrip, StripSpan, WhatIfAnswer,
    WhatIfRow, rival_of, shown_with,
};
use super::question::{TPS, WhatIfQuestion, compare_with, own_link};
use super::variant::WhatIfVariant;
use crate::analysis::{step_extents, typical_step};
use crate::rewire::{
    LayerCollectives, RewireAnswer, RewireChoice, RewiredTimes, Rewiring, Setting, StepSelection,
};
use base::error::{Error, Result};
use base::text::{counted, latency};
use machine::hardware::Target;
use plan::{Architecture, Phase};
use run::sim::Simulator;
use table::{Backend, Provenance, Spec};
use trace::Trace;
use trace::overlap::StepKey;

/// Measured steps of a trace with their kernels and all-reduces, as the starting point of the sliders. All numbers are
/// medians over the steps, as in [`crate::verdict`] and `ladderscope rewire`.
#[derive(Debug)]
pub struct TracedSteps {
    rewiring: Rewiring,
    target: Target,
    /// Traced engine as a cell: what the sliders start from.
    pub base: WhatIfVariant,
    /// Median latency of the steps (ms).
    pub measured_ms: f64,
    /// Step whose length is nearest to the median, as on the timeline; the strips show it.
    pub typical: u32,
    /// Label of the typical step, as on the timeline; `None` if the trace does not mark its steps.
    pub typical_label: Option<String>,
    /// Time in which the GPU waits for launches in a step, as the verdict on the trace counts it (ms); `None` unless that
    /// is much.
    launch_wait_ms: Option<f64>,
    /// Reason why removing launch gaps changes no prediction, if so.
    no_launch_gaps: Option<&'static str>,
    /// Arguments of `ladderscope` that name the trace and its machine, after the verb.
    arguments: Vec<String>,
    /// TP sizes to choose from, ascending.
    tps: Vec<u32>,
    is_of_known_model: bool,
}

impl TracedSteps {
    /// Prepares the steps of a phase of a trace. `layers` and `tp` are for traces that do not record them. `arguments`
    /// name the trace and, if the trace does not, its machine.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Rewiring::new`], and an error if the trace does not record its TP.
    pub fn new(
        trace: &Trace,
        phase: Option<Phase>,
        [layers, tp]: [Option<u32>; 2],
        target: Target,
        arguments: Vec<String>,
    ) -> Result<Self> {
        let asked = StepSelection { layers, phase, ..StepSelection::default() };
        let setting = Setting { target: Some(target.clone()), tp, ..Setting::default() };
        let rewiring = Rewiring::new(trace, &asked, &setting)?;
        let tp = rewiring.tp.ok_or_else(|| {
            Error::input_help(
                "the trace does not record its tensor-parallel size, which the latency of all-reduces depends on",
                "pass it to `ladderscope rewire TRACE --tp N`, or open the traces of all ranks",
            )
        })?;
        let known = trace.meta.spec.clone().unwrap_or_default();
        let (tp, ranks) = match rewiring.steps.ends {
            LayerCollectives::AllReduces => (tp, known.dp),
            // ranks with attention and experts of their own
            LayerCollectives::Exchanges => (1, tp),
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
        let launch_wait_ms = rewiring.launch_wait_ms();
        let no_launch_gaps = no_launch_gaps(&rewiring);
        let marked = typical_key(trace, rewiring.steps.phase);
        let marked = marked.and_then(|key| Some((rewiring.number_of_key(key)?, Some(key.label()))));
        let (typical, typical_label) = marked.unwrap_or_else(|| (rewiring.typical_step(), None));
        let has_link = |tp: &u32| target.profile.link_problem(cell.collective, cell.p2p, *tp).is_none();
        // a trace of another program does not name its model; only divisors of the traced TP are known to divide its heads
        let is_of_known_model = rewiring.knows_model();
        let divides = |tp: &u32| match is_of_known_model {
            true => rewiring.tp_problem(*tp).is_none(),
            false => cell.tp.is_multiple_of(*tp),
        };
        // one rank has no all-reduces to measure
        let tps = TPS[1..].iter().copied().filter(|tp| *tp == cell.tp || has_link(tp) && divides(tp));
        let tps = tps.collect();
        let base = WhatIfVariant::new(cell);
        Ok(Self {
            rewiring,
            target,
            base,
            measured_ms,
            typical,
            typical_label,
            launch_wait_ms,
            no_launch_gaps,
            arguments,
            tps,
            is_of_known_model,
        })
    }

    /// Steps that the numbers are medians of: `38 decode steps`, or `39 of 40 decode steps` if some are left out.
    pub fn steps(&self) -> String {
        let kind = match self.rewiring.steps.phase {
            Phase::Prefill => "prefill",
            Phase::Decode => "decode step",
        };
        let (used, found) = (self.rewiring.rewired_steps(), self.rewiring.steps.len());
        match used < found {
            true => format!("{used} of {}", counted(found, kind)),
            false => counted(used, kind),
        }
    }

    pub fn phase(&self) -> Phase {
        self.rewiring.steps.phase
    }

    /// Median time of one of the layers' all-reduces, with the wait for the last rank (us).
    fn all_reduce_us(&self, choice: &RewireChoice) -> Option<f64> {
        let count = 2 * self.rewiring.steps.layers;
        let has_some = self.rewiring.steps.ends == LayerCollectives::AllReduces && count > 0;
        let all_us = || self.rewiring.all_reduce_us_with(choice).ok();
        has_some.then(all_us)?.map(|all_us| all_us / f64::from(count))
    }

    /// True if the latency of the link counts the launch of the all-reduce's kernel, as an emulated link on a GPU does: the
    /// traced kernel is shorter by it.
    pub fn latency_includes_launch(&self) -> bool {
        self.run().is_some_and(|run| run.link.is_emulated() && run.backend == Backend::Cuda)
    }

    /// Speedup of a variant's [`WhatIfAnswer::wiring`] over `standard` in a simulation of the traced decode steps' own cell;
    /// `None` if the variant changes more than the architecture, for other engines' traces and simulated ones, and for a
    /// machine without a profile.
    pub fn simulated_speedup(&self, simulator: &Simulator, variant: &WhatIfVariant) -> Option<f64> {
        let is_simulable = self.run()?.backend == Backend::Cuda && self.phase() == Phase::Decode;
        let mut plain = variant.clone();
        plain.cell.architecture.clone_from(&self.base.cell.architecture);
        if !is_simulable || plain != self.base {
            return None;
        }
        let (cell, _) = WhatIfVariant::from_spec(&self.base.cell);
        let question = WhatIfQuestion::new(simulator, &cell).ok()?;
        let tpot_ms = |architecture: Architecture| {
            let spec = Spec { architecture, ..question.spec.clone() };
            question.numbers(&spec).ok().map(|(numbers, _)| numbers.tpot_ms)
        };
        let rival = rival_of(&variant.cell.architecture);
        Some(tpot_ms(Architecture::Standard)? / tpot_ms(rival)?)
    }

    /// Options of the traced run; `None` for other engines' traces.
    pub fn run(&self) -> Option<&Spec> {
        self.rewiring.cell()
    }

    pub fn provenance(&self) -> Provenance {
        self.rewiring.provenance
    }

    /// Predicted numbers of every architecture with the sliders of a variant, and of `standard` in two micro-batches.
    ///
    /// # Errors
    ///
    /// Returns an error if the arguments of the command cannot be formed.
    pub fn answer(&self, variant: &WhatIfVariant) -> Result<WhatIfAnswer> {
        let chosen = &variant.cell.architecture;
        let mut shown = shown_with(chosen, 1);
        shown.insert(shown.len() - 1, (Architecture::Standard, 2));
        let choice = self.choice(variant, chosen.clone());
        let of_chosen = self.rewiring.answer(&choice);
        let error = match &of_chosen {
            Ok(answer) => self.rewiring.error_of(answer),
            Err(_) => self.rewiring.error(&choice),
        };
        let of_chosen =
            of_chosen.map(|answer| contended_numbers(&answer)).map_err(|error| error.to_string());
        let wiring = rival_of(chosen);
        let rows = shown.par_iter().map(|(architecture, micro_batches)| {
            // micro-batches take as long as the whole batch (worst case), as in [`crate::verdict`]
            let (choice, micro_batches) = (self.choice(variant, architecture.clone()), *micro_batches);
            let choice = RewireChoice { micro_batches, ..choice };
            let numbers = if micro_batches > 1 || ![chosen, &wiring].contains(&architecture) {
                self.rewiring.best(&choice).map(numbers).map_err(|error| error.to_string())
            } else if architecture == chosen {
                of_chosen.clone()
            } else {
                let answer = self.rewiring.answer(&choice).map_err(|error| error.to_string());
                answer.map(|answer| contended_numbers(&answer))
            };
            WhatIfRow {
                architecture: architecture.clone(),
                micro_batches,
                numbers,
                band: self.rewiring.tie_band(&choice),
            }
        });
        let mut rows: Vec<WhatIfRow> = rows.collect();
        let step_ms = |wanted: &Architecture| {
            let row = rows.iter().find(|row| (&row.architecture, row.micro_batches) == (wanted, 1))?;
            row.numbers.as_ref().ok().map(|numbers| numbers.tpot_ms)
        };
        let [standard, limit] =
            [Architecture::Standard, Architecture::UpperBound].map(|it| step_ms(&it));
        compare_with(&mut rows, standard, limit);
        let mut assumptions = self.assumptions(variant);
        let limit = rows.iter().find(|row| row.architecture == Architecture::UpperBound);
        let exposed_ms = limit.and_then(|row| Some(row.numbers.as_ref().ok()?.exposed_ms));
        if let Some(ms) = exposed_ms.filter(|ms| *ms > 0.0) {
            assumptions += &self.exposed_others(ms);
        }
        let strips = shown.iter().filter(|(architecture, micro_batches)| {
            *micro_batches == 1 && [&Architecture::Standard, chosen].contains(&architecture)
        });
        let strips = strips.filter_map(|(architecture, _)| self.strip(variant, architecture).ok());
        let mut answer = WhatIfAnswer {
            variant: variant.clone(),
            spec: variant.cell.clone(),
            profile_values: self.profile_values(variant),
            link: None,
            all_reduce_us: self.all_reduce_us(&choice),
            simulated_speedup: None,
            error,
            launch_gaps: None,
            assumptions: Some(assumptions),
            strips: strips.collect(),
            rows,
            frontiers: Vec::new(),
            arguments: self.arguments(&choice),
        };
        answer.launch_gaps = self.launch_gaps(variant, answer.gains_nothing());
        Ok(answer)
    }

    /// Typical step with an architecture, replayed.
    fn strip(&self, variant: &WhatIfVariant, architecture: &Architecture) -> Result<StepStrip> {
        let choice = self.choice(variant, architecture.clone());
        let (plan, executed) = self.rewiring.replayed(&choice, self.typical)?;
        let rank = executed.iter().map(|one| one.rank).min();
        let of_rank = executed.iter().filter(|one| Some(one.rank) == rank && one.end > one.start);
        let spans: Vec<StripSpan> = of_rank
            .map(|one| StripSpan::new(&plan.operations[one.operation], one.lane, (one.start, one.end)))
            .collect();
        let length_ns = spans.iter().map(|span| span.end_ns).max().unwrap_or(0);
        Ok(StepStrip::new(architecture, spans, length_ns, self.rewiring.steps.layers))
    }

    /// Launch gaps of a step; with the speedups without them if `gains_nothing` with them.
    fn launch_gaps(&self, variant: &WhatIfVariant, gains_nothing: bool) -> Option<LaunchGaps> {
        let (ms, is_removed) = (self.launch_wait_ms?, variant.no_launch_gaps);
        let speedup = |architecture: Architecture| {
            let choice = RewireChoice { host: false, ..self.choice(variant, architecture) };
            Some(self.rewiring.best(&choice).ok()?.speedup)
        };
        let speedups_without = || {
            let standard = speedup(Architecture::Standard)?;
            Some([standard, speedup(rival_of(&variant.cell.architecture))?])
        };
        Some(LaunchGaps {
            ms,
            remedy: self.rewiring.steps.launch_remedy(),
            has_python_stacks: self.rewiring.has_python_stacks,
            is_removed,
            speedups_without: if gains_nothing && !is_removed { speedups_without() } else { None },
        })
    }

    fn choice(&self, variant: &WhatIfVariant, architecture: Architecture) -> RewireChoice {
        let (now, base) = (&variant.cell, &self.base.cell);
        let [network_alpha_us, network_gb_s] = variant.network_changes(&self.target.profile);
        RewireChoice {
            collective: (now.collective != base.collective).then_some(now.collective),
            p2p: (now.p2p != base.p2p).then_some(now.p2p),
            tp: (now.tp != base.tp).then_some(now.tp),
            alpha_us: variant.alpha_us,
            gb_s: variant.gb_s,
            network_alpha_us,
            network_gb_s,
            host: !variant.no_launch_gaps,
            ..RewireChoice::from_architecture(architecture)
        }
    }

    fn profile_values(&self, variant: &WhatIfVariant) -> ProfileValues {
        let Target { profile, stack } = &self.target;
        let (alpha_us, gb_s, link_note) = own_link(profile, &variant.cell);
        ProfileValues {
            alpha_us,
            gb_s,
            gpus_per_node: profile.gpus_per_node,
            network: NetworkValues::new(profile, &variant.cell),
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
            latency_scale: None,
            link_note,
            no_link: (self.rewiring.steps.ends == LayerCollectives::Exchanges).then(|| {
                let is = self.rewiring.provenance;
                format!("this trace has no all-reduce; its dispatches and combines stay as {is}")
            }),
            no_launch_gaps: self.no_launch_gaps,
            own_all_reduce: self.run().map(|run| run.backend).filter(|backend| *backend == Backend::Cpu),
        }
    }

    /// Command that predicts the same.
    fn arguments(&self, choice: &RewireChoice) -> Vec<String> {
        let mut words = vec!["rewire".to_owned()];
        words.extend(self.arguments.iter().cloned());
        let mut option = |name: &str, value: Option<String>| {
            words.extend(value.into_iter().flat_map(|value| [format!("--{name}"), value]));
        };
        let phase = self.rewiring.steps.phase;
        option("phase", (phase != Phase::Decode).then(|| phase.as_str().to_owned()));
        option("architecture", Some(choice.architecture.to_string()));
        option("collective", choice.collective.map(|it| it.to_string()));
        option("p2p", choice.p2p.map(|it| it.to_string()));
        option("alpha-us", choice.alpha_us.map(|us| us.to_string()));
        option("gb-s", choice.gb_s.map(|gb_s| gb_s.to_string()));
        option("network-alpha-us", choice.network_alpha_us.map(|us| us.to_string()));
        option("network-gb-s", choice.network_gb_s.map(|gb_s| gb_s.to_string()));
        option("on-tp", choice.tp.map(|tp| tp.to_string()));
        words.extend((!choice.host).then(|| "--no-launches".to_owned()));
        words
    }

    /// Assumption about the exposed communication that `upper-bound` has left.
    fn exposed_others(&self, ms: f64) -> String {
        let of_layers = match self.rewiring.steps.ends {
            LayerCollectives::AllReduces => "all-reduces",
            LayerCollectives::Exchanges => "dispatches and combines",
        };
        let exposed = latency(1e3 * ms);
        format!("; collectives besides the layers' {of_layers} stay exposed: {exposed} a step")
    }

    /// Assumptions behind the numbers.
    pub fn assumptions(&self, variant: &WhatIfVariant) -> String {
        let choice = self.choice(variant, variant.cell.architecture.clone());
        let profile = &self.target.profile.name;
        let unit = match self.rewiring.steps.ends {
            LayerCollectives::AllReduces => "all-reduce",
            LayerCollectives::Exchanges => "dispatch and combine",
        };
        let provenance = self.rewiring.provenance;
        let mut words = vec![match provenance {
            Provenance::Simulated => format!("kernel and {unit} times are those of a simulated run"),
            Provenance::EmulatedLink => {
                let launch = match self.latency_includes_launch() {
                    true => " (the link's latency includes their launch)",
                    false => "",
                };
                format!(
                    "kernel times are measured, {unit} times emulated{launch}, their schedule is simulated"
                )
            }
            _ => format!("kernel and {unit} times are {provenance}, their schedule is simulated"),
        }];
        if self.rewiring.rewired_steps() > 1 {
            words.push("each column is a median over the steps, so parts need not add up".into());
        }
        let model = match self.rewiring.emulates(&choice) {
            true => "the emulated link's formula",
            false => profile.as_str(),
        };
        if choice.alpha_us.or(choice.network_alpha_us).is_some() {
            let rule = "the link's new latency changes each traced all-reduce by the difference, and shortens it by no \
                            more than the modelled ratio";
            words.push(rule.into());
        }
        let is_scaled = choice.gb_s.or(choice.network_gb_s).is_some();
        if choice.collective.is_some() || choice.p2p.is_some() || is_scaled {
            words.push(format!("{model} gives the ratio of new to traced all-reduce times"));
        }
        words.extend(self.rewiring.unmerged(&choice.architecture));
        if self.launch_wait_ms.is_some() && choice.host {
            words.push("exposed includes communication while compute waits for launches".into());
        }
        if choice.tp.is_some() {
            words.push("kernels between all-reduces scale with 1/TP (best case)".into());
        }
        words.push(
            "worst case for micro2: kernels of half a batch take as long as those of the whole".into(),
        );
        words.join("; ")
    }
}

/// Reason why predictions without launch gaps equal those with them, with and without communication; `None` if they differ.
fn no_launch_gaps(rewiring: &Rewiring) -> Option<&'static str> {
    if !rewiring.steps.has_launches {
        return Some("the trace records no launches, so there are no gaps to remove");
    }
    let step_us = |architecture: &Architecture, host| {
        let choice = RewireChoice { host, ..RewireChoice::from_architecture(architecture.clone()) };
        rewiring.best(&choice).ok().map(|times| times.step_us)
    };
    let is_same = |architecture: &Architecture| {
        let [with, without] = [true, false].map(|host| step_us(architecture, host));
        with.zip(without).is_some_and(|(with, without)| (without / with - 1.0).abs() < 1e-6)
    };
    let same = [Architecture::Standard, Architecture::UpperBound].iter().all(is_same);
    same.then_some("the trace has no launch gaps to remove")
}

/// Typical step of a phase by [`typical_step`], from the lengths that the timeline compares; `None` if the trace marks no step
/// of the phase.
fn typical_key(trace: &Trace, phase: Phase) -> Option<StepKey> {
    let mut steps = step_extents(trace);
    steps.retain(|(_, key)| key.phase == phase);
    let lengths: Vec<i64> = steps.iter().map(|((from, to), _)| to - from).collect();
    typical_step(&lengths).map(|at| steps[at].1)
}

/// Numbers of an answer, including the slowdown of its kernels by contention.
fn contended_numbers(answer: &RewireAnswer) -> SimulatedMetrics {
    let kernels_us = |times: RewiredTimes| times.step_us - times.exposed_us;
    let contention_us = (kernels_us(answer.best()) - kernels_us(answer.alone)).max(0.0);
    SimulatedMetrics { contention_ms: Some(contention_us / 1e3), ..numbers(answer.best()) }
}

/// Medians over the steps, with contention if a profile gives it. The speedup is over the traced steps.
fn numbers(times: RewiredTimes) -> SimulatedMetrics {
    let RewiredTimes { step_us, speedup, speedup_95, comm_us, exposed_us, .. } = times;
    SimulatedMetrics {
        prefill_ms: None,
        decode_ms: None,
        tpot_ms: step_us / 1e3,
        completion_ms: None,
        tokens_per_s_per_gpu: None,
        comm_ms: comm_us / 1e3,
        exposed_ms: exposed_us / 1e3,
        overlap_pct: table::overlap_pct(exposed_us, comm_us),
        contention_ms: None,
        speedup: Some(speedup),
        speedup_95,
        hidden_share: None,
    }
}
