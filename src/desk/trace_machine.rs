//! Hardware profile and stack of a trace, for rewiring it and for its verdict.

use base::error::{Error, Result};
use machine::hardware::{Profile, STACKS, Stack, Target, profile_named};
use study::analysis::TraceReport;
use study::rewire::Setting;
use study::verdict::{Verdict, verdict};
use table::Spec;
use table::options::SET_PAIRS;
use trace::Trace;
use trace::overlap::Selection;

/// User's choice of machine and engine; missing values come from the trace.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct MachineChoice {
    /// Hardware for contention and other all-reduces: a built-in name or a TOML file [default: the trace's GPU]
    #[arg(long, value_name = "NAME|FILE")]
    pub hardware: Option<String>,
    /// Software stack for contention: a built-in name or a TOML file [default: the run's; native]
    #[arg(long, value_name = "NAME|FILE")]
    pub stack: Option<String>,
    /// Override a value of the hardware or the stack (repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

/// Engines by the names that their kernels and ranges contain, most specific first: SGLang and vLLM also run kernels of
/// the engines after them.
const ENGINE_MARKS: [(&str, &[&str]); 3] =
    [("sglang", &["sglang", "sgl_"]), ("vllm", &["vllm"]), ("tensorrt_llm", &["tensorrt_llm"])];

/// Stack of the engine that an imported trace shows, by its kernels and ranges, and the reason.
fn stack_of_trace(trace: &Trace) -> Option<(&'static str, String)> {
    let text = |key: &str| trace.meta.environment.get(key).and_then(serde_json::Value::as_str);
    let operations = trace.operations.iter().map(|operation| operation.name.as_str());
    let names: Vec<&str> = operations.chain(trace.meta.range_names.iter().map(String::as_str)).collect();
    let is_shown =
        |marks: &[&str]| names.iter().any(|name| marks.iter().any(|mark| name.contains(mark)));
    let engine =
        text("engine").or_else(|| Some(ENGINE_MARKS.iter().find(|(_, marks)| is_shown(marks))?.0))?;
    let version =
        text(&format!("{engine}_version")).or_else(|| text("engine_version")).unwrap_or_default();
    let (stack, is_exact) = Stack::of_engine(engine, version)?;
    let why = match version {
        "" => format!("the trace shows {engine} of unknown version"),
        version if is_exact => format!("the trace is of {engine} {version}"),
        version => format!("nearest to {engine} {version} of the trace"),
    };
    Some((stack, why))
}

/// Machine and engine of a trace.
#[derive(Clone, Debug)]
pub struct ChosenMachine {
    /// `None` if unknown.
    pub target: Option<Target>,
    /// Name and reason, or why it is unknown.
    pub reason: String,
}

/// Chooses the machine and engine of a trace, in order of preference: the user's choice; the run's own; the profile of
/// the trace's GPU with the stack of the trace's engine.
///
/// # Errors
///
/// Returns an input error if a profile, stack or override is invalid.
pub fn choose_machine(trace: &Trace, choice: &MachineChoice) -> Result<ChosenMachine> {
    let overrides = SET_PAIRS.read(&choice.set)?;
    let run = trace.meta.spec.as_ref().filter(|spec| {
        Profile::names().contains(&spec.hardware.as_str()) || spec.hardware.ends_with(".toml")
    });
    let (hardware, why_hardware) = match choose_profile(trace, choice, run) {
        Ok(chosen) => chosen,
        Err(why) => {
            let Some(pair) = choice.set.first() else {
                return Ok(ChosenMachine { target: None, reason: why });
            };
            // an unknown key is reported first
            Target::check_overrides(&overrides)?;
            return Err(Error::input_help(
                format!("--set {pair} needs a hardware profile: {why}"),
                "pass --hardware",
            ));
        }
    };
    let run_here = run.filter(|spec| spec.hardware == hardware);
    let (stack, why_stack) = choose_stack(trace, choice, run_here);
    let mut set = run_here.map(|spec| spec.set.clone()).unwrap_or_default();
    set.extend(overrides);
    let target =
        Target { profile: Profile::load(&hardware)?, stack: Stack::load(&stack)? }.with(&set)?;
    let reason =
        format!("{} ({why_hardware}), stack {}{why_stack}", target.profile.name, target.stack.name);
    Ok(ChosenMachine { target: Some(target), reason })
}

/// Profile and reason; `Err` says why there is none. `run` is the trace's run if its profile exists.
fn choose_profile(
    trace: &Trace,
    choice: &MachineChoice,
    run: Option<&Spec>,
) -> Result<(String, String), String> {
    if let Some(named) = &choice.hardware {
        return Ok((named.clone(), "as asked".to_owned()));
    }
    if let Some(spec) = run {
        return Ok((spec.hardware.clone(), "the run's own".to_owned()));
    }
    let gpu = trace.meta.environment.get("gpus").and_then(|gpus| gpus[0]["name"].as_str());
    let Some(gpu) = gpu.filter(|name| !name.is_empty()) else {
        return Err("the trace does not name its GPU".to_owned());
    };
    match profile_named(gpu) {
        Some(profile) => Ok((profile.to_owned(), format!("the trace is of {gpu}"))),
        None => Err(format!("no profile for {gpu}")),
    }
}

/// Stack, and its reason in brackets; empty if the user chose it or `run_here`, the trace's run on the chosen
/// profile, has it.
fn choose_stack(trace: &Trace, choice: &MachineChoice, run_here: Option<&Spec>) -> (String, String) {
    if let Some(stack) = choice.stack.as_ref().or(run_here.map(|spec| &spec.stack)) {
        return (stack.clone(), String::new());
    }
    match stack_of_trace(trace) {
        Some((stack, why)) => (stack.to_owned(), format!(" ({why})")),
        None => (STACKS[0].to_owned(), " (default: the trace names no known engine)".to_owned()),
    }
}

/// Verdict on the selected part of a trace, on its own machine if known.
pub fn verdict_of(trace: &Trace, report: &TraceReport, selection: &Selection) -> Verdict {
    // an invalid or missing profile must not prevent a verdict
    let target =
        choose_machine(trace, &MachineChoice::default()).ok().and_then(|machine| machine.target);
    verdict(trace, report, selection, &Setting { target, ..Setting::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    use serde_json::json;

    /// An exported trace of a simulated run names the profile as its GPU; a change of values needs a known key and a profile.
    #[test]
    fn a_simulated_gpu_is_its_profile_and_unknown_values_are_errors() {
        let mut trace = trace::testing::trace(Vec::new());
        trace.meta.spec = None;
        let mut named = |gpu: &str, set: &str| {
            trace.meta.environment.insert("gpus".to_owned(), json!([{ "name": gpu }]));
            let set = [set].into_iter().filter(|set| !set.is_empty()).map(str::to_owned).collect();
            choose_machine(&trace, &MachineChoice { set, ..MachineChoice::default() })
        };
        let ChosenMachine { target, reason } = named("simulated b200_sxm", "").unwrap();
        assert_eq!(target.unwrap().profile.name, "b200_sxm");
        assert!(reason.starts_with("b200_sxm (the trace is of simulated b200_sxm)"), "{reason}");
        for gpu in ["simulated b200_sxm", "Unheard-of GPU"] {
            let Err(Error::Input { message, help }) = named(gpu, "lunch_us=1") else { panic!("{gpu}") };
            assert!(message.contains("lunch_us"), "{message}");
            assert!(help.unwrap().contains("did you mean 'launch_us'?"));
        }
        let unused = named("Unheard-of GPU", "launch_us=1").unwrap_err().to_string();
        assert!(unused.contains("--set launch_us=1 needs a hardware profile"), "{unused}");
        assert!(named("simulated mine.toml", "").unwrap().target.is_none());
        let ChosenMachine { target, reason } = named("simulated h100_sxm (changed)", "").unwrap();
        assert!(target.is_none());
        assert_eq!(reason, "no profile for simulated h100_sxm (changed)");
    }

    /// An imported trace on an H100 with a kernel of this name and these entries of metadata.
    fn shown(kernel: &str, metadata: &[(&str, &str)]) -> (String, String) {
        let mut trace = trace::testing::trace(Vec::new());
        trace.meta.spec = None;
        trace.operations[0].name = kernel.to_owned();
        let environment = &mut trace.meta.environment;
        environment.insert("gpus".to_owned(), json!([{ "name": "NVIDIA H100 80GB HBM3" }]));
        environment.extend(metadata.iter().map(|(key, value)| ((*key).to_owned(), json!(value))));
        let ChosenMachine { target, reason } =
            choose_machine(&trace, &MachineChoice::default()).unwrap();
        let target = target.unwrap();
        assert_eq!(target.profile.name, "h100_sxm", "{reason}");
        (target.stack.name, reason)
    }

    #[test]
    fn an_imported_trace_takes_the_stack_of_its_engine_and_version() {
        let vllm = "void vllm::rms_norm_kernel<c10::BFloat16>";
        let mla = "sgl_kernel::rotary_embedding";
        let trtllm = "tensorrt_llm::kernels::allreduce_fusion::oneshot_kernel";
        for (kernel, metadata, stack, reason) in [
            (vllm, &[("vllm_version", "0.12.1")][..], "vllm-0.12", "the trace is of vllm 0.12.1"),
            (vllm, &[("vllm_version", "0.10.2")], "vllm-0.10", "the trace is of vllm 0.10.2"),
            (vllm, &[("vllm_version", "0.19.0")], "vllm-0.15", "nearest to vllm 0.19.0 of the trace"),
            (vllm, &[], "vllm-0.15", "the trace shows vllm of unknown version"),
            (mla, &[("sglang_version", "0.5.9")], "sglang-0.5", "the trace is of sglang 0.5.9"),
            (trtllm, &[("tensorrt_llm_version", "1.1.0rc2")], "trtllm-1.1", "tensorrt_llm 1.1.0rc2"),
            ("gemm", &[("engine", "TensorRT-LLM"), ("engine_version", "1.0.0")], "trtllm-1.0", "1.0.0"),
            ("ampere_bf16_gemm", &[], "native", "names no known engine"),
        ] {
            let (found, why) = shown(kernel, metadata);
            assert!(found == stack && why.contains(reason), "{kernel} {metadata:?}: {why}");
        }
        // SGLang and vLLM call kernels of the engines after them
        let mut both = trace::testing::trace(Vec::new());
        both.operations[0].name = trtllm.to_owned();
        both.meta.range_names = vec!["sglang.srt.model_executor".to_owned()];
        assert_eq!(stack_of_trace(&both).map(|(stack, _)| stack), Some("sglang-0.5"));
        // a run's own stack and the user's choice come first
        let own = trace::testing::trace(Vec::new());
        let stack =
            |choice: &MachineChoice| choose_machine(&own, choice).unwrap().target.unwrap().stack.name;
        assert_eq!(stack(&MachineChoice::default()), own.meta.spec.as_ref().unwrap().stack);
        let asked = MachineChoice { stack: Some("sglang-0.5".to_owned()), ..MachineChoice::default() };
        assert_eq!(stack(&asked), "sglang-0.5");
    }
}
