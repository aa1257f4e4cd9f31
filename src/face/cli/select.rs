//! Options that select a part of a trace: `--phase`, `--step`, `--from`, `--to`.

use clap::ValueEnum;

use super::stderr;
use base::error::{Error, Result};
use base::text::{latency, step_list};
use plan::Phase;
use study::analysis::untied_clocks;
use trace::overlap::Selection;
use trace::{NO_STEP, Span, Trace};

/// Maximum number of ranges of steps in an error.
const MAX_RANGES: usize = 13;

/// Options that select spans.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct SelectArgs {
    /// Only this phase: prefill, decode, all [default: decode, unless a time range is given or there are no decode
    /// steps, or an imported trace names no prefill]
    #[arg(long, value_enum, hide_possible_values = true)]
    pub phase: Option<PhaseArg>,
    /// Only this step: decode step from 0 (stored run), or step number of the profiler (imported trace, see overlap
    /// --by step)
    #[arg(long, value_name = "N")]
    pub step: Option<u32>,
    /// Start of the time range, after the trace's first start, for example 250us, 1.5ms (no unit: us)
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub from: Option<i64>,
    /// End of the time range, after the trace's first start
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub to: Option<i64>,
}

/// Value of `--phase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PhaseArg {
    /// Prefill of the prompt
    Prefill,
    /// Decode steps only
    Decode,
    /// Prefill and decode steps
    All,
}

/// Parses a time since the trace's first start into nanoseconds.
fn parse_time(text: &str) -> Result<i64> {
    let (number, scale) = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("", 1e3)]
        .iter()
        .find_map(|(unit, scale)| text.strip_suffix(unit).map(|number| (number, *scale)))
        .unwrap_or((text, 1e3));
    match number.trim().parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 && value * scale < 9e18 => {
            Ok((value * scale).round() as i64)
        }
        _ => Err(Error::input_help(
            format!("'{text}' is not a time"),
            "write a number of at least 0 with ns, us, ms or s, for example 1.5ms (no unit: us)",
        )),
    }
}

impl SelectArgs {
    pub fn is_any(&self) -> bool {
        self.phase.is_some() || self.step.is_some() || self.has_time_range()
    }

    pub fn has_time_range(&self) -> bool {
        self.from.is_some() || self.to.is_some()
    }

    /// Arguments that select the same spans again.
    pub fn to_arguments(&self) -> Vec<String> {
        let Self { phase, step, from, to } = self;
        let phase = phase.and_then(|phase| Some(phase.to_possible_value()?.get_name().to_owned()));
        let time = |ns: Option<i64>| ns.map(|ns| format!("{ns}ns"));
        let step = step.map(|step| step.to_string());
        let options =
            [("--phase", phase), ("--step", step), ("--from", time(*from)), ("--to", time(*to))];
        let given = options.into_iter().filter_map(|(name, value)| Some([name.to_owned(), value?]));
        given.flatten().collect()
    }

    /// Resolves and checks the selection for an analysis of this trace. Prints a note about the default if the user
    /// selected nothing.
    pub fn resolve(&self, trace: &Trace) -> Result<Selection> {
        self.check(trace)?;
        let phase = match self.phase {
            Some(PhaseArg::Prefill) => Some(Phase::Prefill),
            Some(PhaseArg::Decode) => Some(Phase::Decode),
            // a step number without a phase selects one step; a run's prefill has the number of its first step
            Some(PhaseArg::All) | None if self.step.is_some() => {
                self.step.map(|step| phase_of(trace, step))
            }
            Some(PhaseArg::All) => None,
            None if self.has_time_range() => None,
            None => Selection::default_of(trace).phase,
        };
        if self.phase.is_none() && self.step.is_none() && phase.is_some() {
            stderr::note("decode phase only; --phase all includes prefill");
        }
        if self.phase.is_some_and(|phase| phase != PhaseArg::All) && !trace.tells_phases() {
            stderr::note("the trace does not mark prefills, so all its steps count as decode");
        }
        Ok(Selection {
            phase,
            step: self.step,
            from_ns: self.from,
            to_ns: self.to,
            ..Selection::default()
        })
    }

    /// Returns an error if options conflict or the step does not exist.
    fn check(&self, trace: &Trace) -> Result<()> {
        if let Some(step) = self.step {
            let phase = match (self.phase, trace.meta.import.is_some()) {
                (Some(PhaseArg::Prefill), false) => {
                    return Err(Error::input(
                        "--step counts decode steps, so it cannot be combined with --phase prefill",
                    ));
                }
                (Some(PhaseArg::Prefill), true) => Some(Phase::Prefill),
                (Some(PhaseArg::Decode), _) | (_, false) => Some(Phase::Decode),
                (_, true) => None,
            };
            check_step(trace, step, phase)?;
        }
        if let Some(warning) = self.has_time_range().then(|| untied_clocks(trace)).flatten() {
            stderr::note(&warning);
        }
        match (self.from, self.to) {
            (Some(from), Some(to)) if from >= to => Err(Error::input(format!(
                "--from ({}) must be before --to ({})",
                latency(from as f64 / 1e3),
                latency(to as f64 / 1e3)
            ))),
            _ => Ok(()),
        }
    }

    /// Time window of a figure (ns since the trace's first start).
    pub fn window(&self, trace: &Trace) -> Result<(i64, i64)> {
        self.check(trace)?;
        self.interval(trace)
    }

    /// Window of a selection that [`Self::resolve`] has checked.
    pub fn interval(&self, trace: &Trace) -> Result<(i64, i64)> {
        let all =
            time_extent(trace.spans.iter()).ok_or_else(|| Error::input("the trace has no spans"))?;
        let (from, to) = match (self.step, self.phase) {
            (Some(step), _) => time_extent(last_sample(trace, step)).unwrap_or(all),
            (None, Some(PhaseArg::All)) => all,
            (None, Some(PhaseArg::Prefill)) => {
                time_extent(trace.spans.iter().filter(|s| s.phase == Phase::Prefill)).unwrap_or(all)
            }
            (None, Some(PhaseArg::Decode)) => time_extent(decode_spans(trace)).unwrap_or(all),
            (None, None) if self.has_time_range() => all,
            // Default to one step: a whole generation has thousands of operations, too many for a figure.
            (None, None) => match decode_spans(trace).map(|s| s.step).max() {
                Some(last) if trace.meta.spec.is_some() => {
                    stderr::note(&format!(
                        "drawing decode step {} of 0 to {last}; choose others with --step, --from, --to",
                        last / 2
                    ));
                    time_extent(last_sample(trace, last / 2)).unwrap_or(all)
                }
                _ => all,
            },
        };
        // limits the window to the requested part of the step or phase
        let from = self.from.map_or(from - all.0, |asked| asked.max(from - all.0));
        let to = self.to.map_or(to - all.0, |asked| asked.min(to - all.0));
        if from >= to || from >= all.1 - all.0 {
            return Err(Error::input_help(
                format!(
                    "the range from {} to {} is empty",
                    latency(from as f64 / 1e3),
                    latency(to as f64 / 1e3)
                ),
                format!("the trace is {} long", latency((all.1 - all.0) as f64 / 1e3)),
            ));
        }
        Ok((from, to))
    }
}

fn decode_spans(trace: &Trace) -> impl Iterator<Item = &Span> {
    trace.spans.iter().filter(|span| span.phase == Phase::Decode)
}

/// Spans of a step in the last sample that has it.
fn last_sample(trace: &Trace, step: u32) -> impl Iterator<Item = &Span> {
    let phase = phase_of(trace, step);
    let of_step = move |span: &&Span| (span.phase, span.step) == (phase, step);
    let sample = trace.spans.iter().filter(of_step).map(|span| span.sample).max();
    trace.spans.iter().filter(of_step).filter(move |span| Some(span.sample) == sample)
}

/// Phase of the step with this number, decode if both have it: numbers of imported traces may run through both.
fn phase_of(trace: &Trace, step: u32) -> Phase {
    let is_prefill = trace.meta.import.is_some() && decode_spans(trace).all(|span| span.step != step);
    if is_prefill { Phase::Prefill } else { Phase::Decode }
}

/// First start and last end (ns); `None` without spans.
fn time_extent<'a>(spans: impl Iterator<Item = &'a Span>) -> Option<(i64, i64)> {
    spans.fold(None, |extent, span| match extent {
        None => Some((span.start_ns, span.end_ns)),
        Some((from, to)) => Some((span.start_ns.min(from), span.end_ns.max(to))),
    })
}

/// Returns an error if no span of the phase, or of either, is of the step.
fn check_step(trace: &Trace, step: u32, phase: Option<Phase>) -> Result<()> {
    let mut steps: Vec<u32> = Vec::new();
    // Spans are sorted by step, so this leaves one number per sample and step.
    for span in trace.spans.iter().filter(|span| phase.is_none_or(|phase| phase == span.phase)) {
        if span.step == step {
            return Ok(());
        }
        if steps.last() != Some(&span.step) && span.step != NO_STEP {
            steps.push(span.step);
        }
    }
    steps.sort_unstable();
    steps.dedup();
    let step_kind = match phase {
        Some(Phase::Prefill) => "prefill step",
        Some(Phase::Decode) => "decode step",
        None => "step",
    };
    let existing = match &steps[..] {
        [] => "no steps".into(),
        [only] => format!("only step {only}"),
        steps => format!("steps {}", step_list(steps, MAX_RANGES)),
    };
    Err(Error::input(format!("no {step_kind} {step} in this trace; it contains {existing}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use table::Provenance;
    use trace::TraceMeta;

    fn trace() -> Trace {
        let span = |sample, step, start_ns| Span {
            sample,
            step,
            ready_ns: start_ns,
            start_ns,
            end_ns: start_ns + 1_000,
            ..Span::EMPTY
        };
        Trace {
            meta: TraceMeta {
                clock: "monotonic".into(),
                recorder: "events".into(),
                ..TraceMeta::new(Provenance::Measured, 1)
            },
            operations: Vec::new(),
            spans: vec![span(0, 0, 5_000), span(0, 1, 7_000), span(1, 0, 15_000), span(1, 1, 17_000)],
            ranges: Vec::new(),
        }
    }

    #[test]
    fn times_have_units_and_default_to_microseconds() -> Result<()> {
        for (text, ns) in
            [("250", 250_000), ("1.5ms", 1_500_000), ("3s", 3_000_000_000), ("7ns", 7), ("2 us", 2_000)]
        {
            assert_eq!(parse_time(text)?, ns, "{text}");
        }
        for text in ["", "soon", "-1ms", "1h", "inf"] {
            assert_eq!(parse_time(text).map_err(|e| e.exit_code()), Err(2), "{text}");
        }
        Ok(())
    }

    #[test]
    fn the_window_of_a_step_is_that_of_the_last_sample() -> Result<()> {
        let select = SelectArgs { step: Some(1), ..SelectArgs::default() };
        assert_eq!(select.window(&trace())?, (12_000, 13_000));
        Ok(())
    }

    #[test]
    fn a_missing_step_is_an_error_that_lists_the_existing_ones() {
        let select = SelectArgs { step: Some(9), ..SelectArgs::default() };
        let error = select.resolve(&trace()).err().map(|e| e.to_string()).unwrap_or_default();
        assert_eq!(error, "no decode step 9 in this trace; it contains steps 0 to 1");
    }

    #[test]
    fn a_step_of_an_import_is_found_in_its_phase() -> Result<()> {
        let mut served = trace();
        served.meta.import = Some(trace::ImportReport::default());
        for span in &mut served.spans {
            span.phase = if span.step == 0 { Phase::Prefill } else { Phase::Decode };
        }
        let select = |step, phase| SelectArgs { step: Some(step), phase, ..SelectArgs::default() };
        for (step, phase, selected) in [
            (0, None, Some(Phase::Prefill)),
            (0, Some(PhaseArg::All), Some(Phase::Prefill)),
            (0, Some(PhaseArg::Prefill), Some(Phase::Prefill)),
            (1, None, Some(Phase::Decode)),
            (1, Some(PhaseArg::All), Some(Phase::Decode)),
        ] {
            assert_eq!(select(step, phase).resolve(&served)?.phase, selected, "{step} {phase:?}");
        }
        for (step, phase, message) in [
            (0, PhaseArg::Decode, "no decode step 0 in this trace; it contains only step 1"),
            (1, PhaseArg::Prefill, "no prefill step 1 in this trace; it contains only step 0"),
        ] {
            let error = select(step, Some(phase)).resolve(&served).err().map(|e| e.to_string());
            assert_eq!(error.as_deref(), Some(message));
        }
        Ok(())
    }

    #[test]
    fn an_empty_window_is_refused() {
        let select = SelectArgs { from: Some(99_000), ..SelectArgs::default() };
        assert_eq!(select.window(&trace()).map_err(|e| e.exit_code()), Err(2));
        let select = SelectArgs { from: Some(9), to: Some(9), ..SelectArgs::default() };
        assert_eq!(select.resolve(&trace()).map_err(|e| e.exit_code()).err(), Some(2));
    }
}
