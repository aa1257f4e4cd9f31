//! Machine and engine for rewiring a trace.

use base::error::{Error, Result};
use machine::hardware::{Profile, STACKS, Stack, Target, profile_named};
use study::analysis::TraceReport;
use study::rewire::Setting;
use study::verdict::{Verdict, verdict};
use table::Spec;
use trace::Trace;
use trace::overlap::Selection;

/// User's choice of machine and engine; missing values come from the trace.
#[derive(Clone, Debug, Default)]
pub struct Engine {
    pub hardware: Option<String>,
    pub stack: Option<String>,
    pub set: Vec<String>,
}

/// Machine and engine of a trace, in order of preference: the user's choice; the run's own; the profile of the
/// trace's GPU with our stack. `None` if all are unknown. The text explains the choice. Returns an input error if a
/// profile, stack or override is invalid.
pub fn machine_of(trace: &Trace, engine: &Engine) -> Result<(Option<Target>, String)> {
    let spec = trace.meta.spec.as_ref();
    let gpu = trace.meta.environment.get("gpus").and_then(|gpus| gpus[0]["name"].as_str());
    let gpu = gpu.filter(|name| !name.is_empty());
    let is_known = |spec: &&Spec| {
        Profile::names().contains(&spec.hardware.as_str()) || spec.hardware.ends_with(".toml")
    };
    let own = spec.filter(is_known);
    let (hardware, why) = match (&engine.hardware, own, gpu.and_then(profile_named)) {
        (Some(named), ..) => (named.clone(), "as asked".to_owned()),
        (None, Some(spec), _) => (spec.hardware.clone(), "the run's own".to_owned()),
        (None, None, Some(profile)) => {
            (profile.to_owned(), format!("the trace is of {}", gpu.unwrap_or_default()))
        }
        (None, None, None) => {
            let why = match gpu {
                Some(gpu) => format!("no profile is of {gpu}"),
                None => "the trace does not tell on which GPU it was recorded".into(),
            };
            return Ok((None, why));
        }
    };
    let of_run = own.filter(|own| own.hardware == hardware);
    let stack = match (&engine.stack, of_run) {
        (Some(stack), _) => stack.clone(),
        (None, Some(spec)) => spec.stack.clone(),
        (None, None) => STACKS[0].to_owned(),
    };
    let mut set = of_run.map(|spec| spec.set.clone()).unwrap_or_default();
    for pair in &engine.set {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(Error::input(format!("--set {pair}: write it as KEY=VALUE")));
        };
        set.insert(key.to_owned(), value.to_owned());
    }
    let target =
        Target { profile: Profile::load(&hardware)?, stack: Stack::load(&stack)? }.with(&set)?;
    let why = format!("{} ({why}), stack {}", target.profile.name, target.stack.name);
    Ok((Some(target), why))
}

/// Verdict on the selected part of a trace, on its own machine if known.
pub fn verdict_of(trace: &Trace, report: &TraceReport, selection: &Selection) -> Verdict {
    // an invalid or missing profile must not prevent a verdict
    let target = machine_of(trace, &Engine::default()).ok().and_then(|(target, _)| target);
    verdict_on(target, trace, report, selection)
}

pub fn verdict_on(
    target: Option<Target>,
    trace: &Trace,
    report: &TraceReport,
    selection: &Selection,
) -> Verdict {
    verdict(trace, report, selection, &Setting { target, ..Setting::default() })
}
