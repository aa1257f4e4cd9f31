//! Sliders over a measured step of a trace; [`crate::rewire`] predicts its times.

use rayon::prelude::*;

use super::answer::{
    Answer, Numbers, ProfileValues, Row, SHOWN, Strip, StripSpan, compare_with, native_link,
};
use super::variant::Variant;
use crate::rewire::{Asked, Choice, Rewiring, Setting};
use base::error::{Error, Result};
use machine::hardware::Target;
use plan::Architecture;
use table::{Backend, Spec, Split};
use trace::Trace;
use trace::overlap::StepKey;

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
    /// Prepares the step of a trace with this key, or at this time (ns). `arguments` name the trace and, if the trace
    /// does not, its machine.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Rewiring::of`], and an error if the trace does not tell its TP.
    pub fn of(
        trace: &Trace,
        (key, at_ns): (Option<StepKey>, i64),
        target: Target,
        arguments: Vec<String>,
    ) -> Result<Self> {
        let asked = Asked { phase: key.map(|key| key.phase), ..Asked::default() };
        let setting = Setting { target: Some(target.clone()), ..Setting::default() };
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
        if choice.tp.is_some() {
            words.push("kernels between all-reduces scale with 1/TP (best case)".into());
        }
        words.join("; ")
    }
}
