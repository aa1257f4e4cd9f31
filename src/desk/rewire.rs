//! On what a trace is rewired: the machine that it was recorded on, and the engine, where they are known.

use base::error::{Error, Result};
use machine::hardware::{Profile, STACKS, Stack, Target, profile_named};
use study::analysis::TraceReport;
use study::rewire::Setting;
use study::verdict::{Verdict, verdict};
use table::Spec;
use trace::Trace;
use trace::overlap::Selection;

/// What the user says of the machine and the engine; what is left out is taken from the trace.
#[derive(Clone, Debug, Default)]
pub struct Engine {
    /// A hardware profile: name or file.
    pub hardware: Option<String>,
    /// A software stack: name or file.
    pub stack: Option<String>,
    /// Values of either, as `KEY=VALUE`.
    pub set: Vec<String>,
}

/// The machine and the engine of a trace: what the user names; else those that the run was asked for; else the profile of
/// the GPU that the trace names, with our own stack. `None` where neither is known. And in words what was taken, and why.
///
/// # Errors
///
/// An input error where a profile or stack cannot be read, as of [`Target::of`].
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

/// The verdict on the selected part of a trace, on its own machine where that is known.
pub fn verdict_of(trace: &Trace, report: &TraceReport, selection: &Selection) -> Verdict {
    // a profile that is wrong, or gone, keeps nobody from a verdict
    let target = machine_of(trace, &Engine::default()).ok().and_then(|(target, _)| target);
    verdict_on(target, trace, report, selection)
}

/// The verdict on the selected part of a trace, on this machine.
pub fn verdict_on(
    target: Option<Target>,
    trace: &Trace,
    report: &TraceReport,
    selection: &Selection,
) -> Verdict {
    verdict(trace, report, selection, &Setting { target, ..Setting::default() })
}
