//! `ladderscope rewire RUN|TRACE`: predicts the step latency of a traced engine on its machine with another
//! architecture, a faster all-reduce, or another P2P setting.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::ValueEnum;

use super::filter::FilterArgs;
use super::output::{self, FormatArgs};
use super::stderr;
use crate::desk::{self, ChosenMachine, MachineChoice, OpenOptions};
use base::error::{Error, Result};
use base::text::{capitalized, counted, fitting_name, latency};
use lab::store::Store;
use plan::{Architecture, Phase};
use study::diff::{PredictedRow, StoredPrediction};
use study::rewire::{
    LayerCollectives, RecordedSteps, RewireAnswer, RewireChoice, RewiredTimes, Rewiring, Setting,
    StepSelection, UnknownSize, answers_table,
};
use table::render::Sourced;
use table::{Collective, P2p, Provenance};

/// Arguments of `ladderscope rewire`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Stored run of standard (id, prefix, 'last'), trace file, or directory with one file per rank
    #[arg(value_name = "RUN|TRACE", required_unless_present = "filter")]
    pub source: Option<String>,
    /// Target architectures, for example ladder,parallel,sync-drop:40,upper-bound
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = "ladder,parallel,upper-bound"
    )]
    pub architecture: Vec<Architecture>,
    /// Other all-reduces, predicted with the hardware profile: nccl, symmetric, one-shot, two-shot, multimem, fused,
    /// fastest [default: as measured]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub collective: Vec<Collective>,
    /// P2P setting, predicted with the hardware profile: on, off [default: as measured]
    #[arg(long, value_name = "P2P")]
    pub p2p: Option<P2p>,
    /// Latency of a small all-reduce inside a node (us); each traced all-reduce changes by the difference from the hardware
    /// profile's [default: as measured]
    #[arg(long, value_name = "US", value_parser = positive)]
    pub alpha_us: Option<f64>,
    /// Message bandwidth of an all-reduce inside a node, predicted with the hardware profile [default: as measured]
    #[arg(long, value_name = "GB/S", value_parser = positive)]
    pub gb_s: Option<f64>,
    /// Latency of the network per doubling of the nodes (us), if the ranks span nodes [default: the profile's]
    #[arg(long, value_name = "US", value_parser = positive)]
    pub network_alpha_us: Option<f64>,
    /// Bandwidth of all network cards of a node, if the ranks span nodes [default: the profile's]
    #[arg(long, value_name = "GB/S", value_parser = positive)]
    pub network_gb_s: Option<f64>,
    /// Run on N ranks instead; best case: the kernels between two all-reduces scale with 1/N
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1024))]
    pub on_tp: Option<u32>,
    /// Split the batch into M micro-batches; best case: kernel time scales with batch; worst case: it does not
    #[arg(long, value_name = "M", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub micro_batches: u32,
    /// Predict without launch gaps, as if a CUDA graph launched all kernels
    #[arg(long)]
    pub no_launches: bool,
    /// Number of layers, if the trace does not determine it
    #[arg(long, value_name = "N")]
    pub layers: Option<u32>,
    /// Phase to rewire, for stored runs only: prefill, decode
    #[arg(
        long,
        value_enum,
        value_name = "PHASE",
        hide_possible_values = true,
        default_value = "decode"
    )]
    pub phase: RewirePhase,
    /// Only this step, numbered as by `overlap --by step`; without markers of steps, from 0
    #[arg(long, value_name = "N")]
    pub step: Option<u32>,
    #[command(flatten)]
    pub machine: MachineChoice,
    /// Tensor-parallel size of the traced engine, if the trace does not record it; --on-tp predicts another
    #[arg(long, value_name = "N")]
    pub tp: Option<u32>,
    /// All-reduce message size in bytes [default: the run's; else inferred from the latency with the profile]
    #[arg(long, value_name = "N")]
    pub message_bytes: Option<u64>,
    /// Store the prediction; `diff A B --check NAME` later shows its error
    #[arg(long, value_name = "NAME")]
    pub save: Option<String>,
    #[command(flatten)]
    pub filter: FilterArgs,
    #[command(flatten)]
    pub opening: OpenOptions,
    #[command(flatten)]
    pub output: FormatArgs,
}

/// Phase of a run to rewire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RewirePhase {
    /// Prefill of the prompt
    Prefill,
    /// Decode steps only
    Decode,
}

pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    let source = args.filter.one_run(args.source.as_ref(), &dir)?;
    let store = Store::open(dir);
    let opened = desk::open(&source, &store, &args.opening, args.step)?.require_gpu_spans()?;
    stderr::note_part(&opened);
    stderr::import_warnings(&opened);
    let has_prefill = || opened.trace.spans.iter().any(|span| span.phase == Phase::Prefill);
    if args.phase == RewirePhase::Prefill && !has_prefill() {
        return Err(Error::input_help(
            "the trace has no step that is known to be a prefill",
            "omit --phase, and choose the step with --step N",
        ));
    }
    let ChosenMachine { target, reason: machine } = desk::choose_machine(&opened.trace, &args.machine)?;
    let asked = StepSelection {
        layers: args.layers,
        phase: Some(match args.phase {
            RewirePhase::Prefill => Phase::Prefill,
            RewirePhase::Decode => Phase::Decode,
        }),
        step: args.step,
        key: None,
    };
    let setting =
        Setting { target, tp: args.tp, message_bytes: args.message_bytes.map(|bytes| bytes as f64) };
    let mut rewiring = Rewiring::new(&opened.trace, &asked, &setting)?;
    rewiring.steps.notes.extend(rewiring.late_launches());
    let answers = answers(&rewiring, &choices(args))?;
    let csv = || answers_table(&rewiring, &answers, false).csv(Sourced::ByRow);
    if let Some(name) = &args.save {
        let trace = Some(match &opened.record {
            Some(record) => record.run.clone(),
            None => std::path::absolute(&source)
                .map_or_else(|_| source.clone(), |path| path.to_string_lossy().into_owned()),
        });
        let predicted =
            StoredPrediction::new(name, "rewire", opened.name(), machine.clone(), predicted(&answers));
        save_prediction(&store, StoredPrediction { trace, ..predicted })?;
    }
    let shown = || text(&rewiring, &answers, &machine, args.no_launches) + &past_errors(&store);
    output::print(args.output.format, &printed(&rewiring, &answers, &machine), csv, shown)?;
    Ok(0)
}

fn predicted(answers: &[RewireAnswer]) -> Vec<PredictedRow> {
    let row = |answer: &RewireAnswer| {
        let RewiredTimes { step_us, speedup, .. } = answer.best();
        let (label, architecture) = (answer.choice.label(), answer.choice.architecture.to_string());
        PredictedRow { label, architecture, step_us, speedup }
    };
    answers.iter().map(row).collect()
}

/// Stores a prediction and notes its file.
pub fn save_prediction(store: &Store, prediction: StoredPrediction) -> Result<()> {
    let prediction = StoredPrediction { created: store.now(), ..prediction };
    let path = store.set_prediction(&prediction.name, &prediction)?;
    stderr::note(&format!(
        "stored prediction {} in {}; check it with `ladderscope diff BEFORE AFTER --check {}`",
        prediction.name,
        path.display(),
        prediction.name
    ));
    Ok(())
}

/// Errors of earlier predictions, as a sentence; empty if none was checked.
fn past_errors(store: &Store) -> String {
    let all: Vec<StoredPrediction> = store.predictions().unwrap_or_default();
    let errors: Vec<f64> = all.iter().flat_map(|one| &one.checks).map(|c| c.error_pct.abs()).collect();
    let Some(mean) = base::statistics::mean(&errors) else { return String::new() };
    output::wrapped(
        "",
        &format!(
            "Your {} so far: mean error {mean:.1} % of the step.",
            counted(errors.len(), "checked prediction")
        ),
        0,
    )
}

fn positive(text: &str) -> Result<f64> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| Error::input(format!("'{text}' is not a number above 0")))
}

/// Combinations of every architecture with every all-reduce, the trace's own first.
fn choices(args: &Args) -> Vec<RewireChoice> {
    let link = [args.alpha_us, args.gb_s, args.network_alpha_us, args.network_gb_s];
    let is_own_link = link.iter().all(Option::is_none) && args.on_tp.is_none();
    let own = args.p2p.is_none() && is_own_link && args.micro_batches == 1 && !args.no_launches;
    let changed = |architecture: &Architecture, collective| RewireChoice {
        collective,
        p2p: args.p2p,
        alpha_us: args.alpha_us,
        gb_s: args.gb_s,
        network_alpha_us: args.network_alpha_us,
        network_gb_s: args.network_gb_s,
        tp: args.on_tp,
        host: !args.no_launches,
        ..RewireChoice::from_architecture(architecture.clone())
    };
    let mut choices: Vec<RewireChoice> = Vec::new();
    let standard = Architecture::Standard;
    for collective in std::iter::once(None).chain(args.collective.iter().copied().map(Some)) {
        let is_measured = collective.is_none() && own;
        let first = (!is_measured).then_some(&standard);
        let others = args.architecture.iter().filter(|other| **other != standard);
        choices.extend(first.into_iter().chain(others).map(|one| changed(one, collective)));
    }
    if args.micro_batches > 1 {
        let groups = args.micro_batches;
        let in_groups = |choice: RewireChoice| {
            [1.0, 1.0 / f64::from(groups)].map(|share| RewireChoice {
                micro_batches: groups,
                share,
                ..choice.clone()
            })
        };
        return choices.into_iter().flat_map(in_groups).collect();
    }
    choices
}

/// Predictions for all choices. Notes values that a collective's profile lacks; fails if no choice succeeds, or none with
/// another collective although one is asked for.
fn answers(rewiring: &Rewiring, choices: &[RewireChoice]) -> Result<Vec<RewireAnswer>> {
    let (mut answers, mut failed) = (Vec::new(), Vec::new());
    for choice in choices {
        match rewiring.answer(choice) {
            Ok(answer) => answers.push(answer),
            Err(error) => failed.push((choice, error)),
        }
    }
    let asks_other = choices.iter().any(|choice| choice.collective.is_some());
    let has_other = answers.iter().any(|answer| answer.choice.collective.is_some());
    if !failed.is_empty() && (answers.is_empty() || asks_other && !has_other) {
        // the reason why what was asked for is missing
        let asked = failed.iter().position(|(choice, _)| choice.collective.is_some() || !asks_other);
        let (_, first) = failed.remove(asked.unwrap_or(0));
        failed.retain(|(_, error)| error.to_string() != first.to_string());
        note_failed(&failed);
        return Err(first);
    }
    note_failed(&failed);
    Ok(answers)
}

/// Notes choices without a prediction.
fn note_failed(failed: &[(&RewireChoice, Error)]) {
    failed.iter().for_each(|(choice, error)| stderr::note(&format!("{}: {error}", choice.label())));
}

/// Output of a rewired trace in JSON.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub struct PrintedRewiring<'a> {
    /// Provenance of the trace's numbers.
    provenance: Provenance,
    /// Layers of the model; if experts exchange tokens, those with experts.
    layers: u32,
    /// Collectives at the ends of the layers: `all_reduces`, or `exchanges` (dispatch and combine).
    ends: &'static str,
    /// Traced ranks.
    ranks: u32,
    /// Ranks of the model; null if unknown.
    tp: Option<u32>,
    /// Either `prefill` or `decode`.
    phase: &'a str,
    /// Steps found in the trace.
    steps: usize,
    /// Steps that are rewired, evenly spread over the trace.
    rewired_steps: usize,
    /// Name of the all-reduce operation, or of the dispatch.
    all_reduce: &'a str,
    /// Kind of all-reduce; null if its name does not show it.
    collective: Option<Collective>,
    /// Message size in bytes; null without a profile, and if it cannot be estimated.
    message_bytes: Option<f64>,
    /// True if the message size is estimated from the latency; null if it is unknown.
    message_bytes_estimated: Option<bool>,
    /// Profile and stack, with the reason for the choice.
    machine: &'a str,
    /// True if the trace records the host's launches.
    launches_recorded: bool,
    /// Share of a step in which the GPU waits for launches (0 to 1).
    host_share: f64,
    /// Part of `host_share` between two CUDA graphs (0 to 1).
    between_graphs_share: f64,
    /// Uncertainties about the steps.
    notes: &'a [String],
    /// Measured latency of the steps.
    measured: RewiredTimes,
    /// Median time per rank and step in the layers' collectives, including waits for the last rank (us).
    all_reduce_us: f64,
    answers: Vec<PrintedAnswer<'a>>,
}

#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
struct PrintedAnswer<'a> {
    /// Always `simulated`, regardless of the trace.
    provenance: Provenance,
    #[schemars(with = "String")]
    architecture: &'a Architecture,
    /// Another all-reduce; null if unchanged.
    collective: Option<Collective>,
    /// Another P2P setting; null if unchanged.
    p2p: Option<P2p>,
    /// New latency of a small all-reduce (us); null if unchanged.
    alpha_us: Option<f64>,
    /// New message bandwidth of an all-reduce (GB/s); null if unchanged.
    gb_s: Option<f64>,
    /// New latency of the network per doubling of the nodes (us); null if unchanged.
    network_alpha_us: Option<f64>,
    /// New bandwidth of all network cards of a node (GB/s); null if unchanged.
    network_gb_s: Option<f64>,
    /// New number of ranks; null if unchanged.
    on_tp: Option<u32>,
    micro_batches: u32,
    /// Time of a group's operations as a share of the whole batch's (0 to 1).
    share: f64,
    /// True if kernels wait for their launches as in the trace.
    launches: bool,
    /// True if the speedups are upper bounds: launch gaps that Python stacks lengthened are removed.
    speedup_is_upper_bound: bool,
    /// Latency without contention between lanes.
    alone: RewiredTimes,
    /// Latency with the profile's contention; null without a profile.
    contended: Option<RewiredTimes>,
    /// Error of the nearest validated traces, in words; of `alone`.
    error: String,
    /// Error of `contended`; null if contention does not change the times or their error.
    contended_error: Option<String>,
}

fn printed<'a>(
    rewiring: &'a Rewiring,
    answers: &'a [RewireAnswer],
    machine: &'a str,
) -> PrintedRewiring<'a> {
    let steps = &rewiring.steps;
    let message = rewiring.message();
    PrintedRewiring {
        provenance: rewiring.provenance,
        layers: steps.layers,
        ends: match steps.ends {
            LayerCollectives::AllReduces => "all_reduces",
            LayerCollectives::Exchanges => "exchanges",
        },
        ranks: steps.ranks,
        tp: rewiring.tp,
        phase: steps.phase.as_str(),
        steps: steps.len(),
        rewired_steps: rewiring.rewired_steps(),
        all_reduce: &steps.all_reduce,
        collective: rewiring.collective(),
        message_bytes: message.map(|(bytes, _)| bytes.round()),
        message_bytes_estimated: message.map(|(_, is_estimate)| is_estimate),
        machine,
        launches_recorded: steps.has_launches,
        host_share: steps.host_share(),
        between_graphs_share: steps.between_graphs_share(),
        notes: &steps.notes,
        measured: rewiring.measured(),
        all_reduce_us: rewiring.all_reduce_us(),
        answers: answers.iter().map(|answer| PrintedAnswer::new(rewiring, answer)).collect(),
    }
}

impl<'a> PrintedAnswer<'a> {
    fn new(rewiring: &Rewiring, answer: &'a RewireAnswer) -> Self {
        let choice = &answer.choice;
        Self {
            provenance: Provenance::Simulated,
            architecture: &choice.architecture,
            collective: choice.collective,
            p2p: choice.p2p,
            alpha_us: choice.alpha_us,
            gb_s: choice.gb_s,
            network_alpha_us: choice.network_alpha_us,
            network_gb_s: choice.network_gb_s,
            on_tp: choice.tp,
            micro_batches: choice.micro_batches,
            share: choice.share,
            launches: choice.host,
            speedup_is_upper_bound: rewiring.is_overstated(choice),
            alone: answer.alone,
            contended: answer.contended,
            error: rewiring.error(choice),
            contended_error: rewiring.contended_error(answer),
        }
    }
}

/// Sentence on the host: time that the GPU waits for it, and if the predictions exclude it.
fn host_note(steps: &RecordedSteps, no_launches: bool) -> Option<String> {
    if no_launches {
        return (!steps.has_launches).then(|| {
            "--no-launches has no effect: the trace records no host launches, so idle time cannot be attributed to the host"
                .into()
        });
    }
    let (host, between) = (steps.host_share(), steps.between_graphs_share());
    if host <= 0.01 {
        return None;
    }
    let place = if 2.0 * between >= host {
        "for the host between CUDA graphs"
    } else if steps.has_graphs {
        "for kernel launches outside CUDA graphs"
    } else {
        "for kernel launches"
    };
    let instead =
        if steps.has_graphs { "without these gaps" } else { "as if a CUDA graph replaced the launches" };
    Some(format!(
        "the GPU waits {place} for {:.0} % of {}, and rewiring does not change that; add --no-launches to predict the step \
         {instead}",
        100.0 * host,
        match steps.len() {
            1 => "the step".to_owned(),
            count => format!("these {count} steps"),
        }
    ))
}

/// Speedup below which a prediction counts as no gain.
const LEAST_GAIN: f64 = 1.01;

/// Fastest variant, and the limit without communication.
fn headline(rewiring: &Rewiring, answers: &[RewireAnswer]) -> String {
    let fastest = |is_limit: bool| {
        let all = answers.iter().filter(|answer| answer.choice.architecture.is_limit() == is_limit);
        all.max_by(|a, b| a.best().speedup.total_cmp(&b.best().speedup))
    };
    let measured = latency(rewiring.measured().step_us);
    let at_most = |answer: &RewireAnswer| match rewiring.is_overstated(&answer.choice) {
        true => "< ",
        false => "",
    };
    let gain = fastest(false).filter(|best| best.best().speedup >= LEAST_GAIN).map(|best| {
        let RewiredTimes { step_us, speedup, speedup_95, .. } = best.best();
        let interval = speedup_95.map_or(String::new(), |[low, high]| format!(" [{low:.2}, {high:.2}]"));
        let step = latency(step_us);
        format!(
            "Fastest: {}, {}{speedup:.2}x{interval} ({measured} to {step} per step)",
            best.choice.label(),
            at_most(best)
        )
    });
    let gain = gain.unwrap_or_else(|| {
        format!("No gain: no variant is more than 1 % faster than the traced step of {measured}")
    });
    let limit = fastest(true).map_or(String::new(), |limit| {
        format!("; limit without communication: {}{:.2}x", at_most(limit), limit.best().speedup)
    });
    format!("{gain}{limit}.")
}

fn text(rewiring: &Rewiring, answers: &[RewireAnswer], machine: &str, no_launches: bool) -> String {
    let steps = &rewiring.steps;
    let rewired = match rewiring.rewired_steps() {
        some if some < steps.len() => format!(" ({some} rewired)"),
        _ => String::new(),
    };
    let layers = steps.layers as usize;
    let collectives = match steps.ends {
        LayerCollectives::AllReduces => counted(2 * layers, "all-reduce"),
        LayerCollectives::Exchanges => {
            format!("{} (dispatch and combine)", counted(2 * layers, "exchange"))
        }
    };
    let found = format!(
        "{}{rewired}, {}, {collectives} per step, {}; collective kernel: {}",
        counted(steps.len(), "step"),
        counted(layers, "layer"),
        counted(steps.ranks as usize, "rank"),
        fitting_name(&steps.all_reduce, output::NAME_WIDTH),
    );
    let mut text = output::wrapped("", &headline(rewiring, answers), 0);
    text += &output::wrapped("found     ", &found, 10);
    let unknown = |why: UnknownSize| match why {
        UnknownSize::TooFast => {
            "the traced collectives are faster than the profile's smallest message".to_owned()
        }
        UnknownSize::NoLatencies => {
            let ranks = rewiring.tp.map_or("this many ranks".into(), |tp| counted(tp as usize, "rank"));
            format!("the profile has no latencies of these collectives for {ranks}")
        }
    };
    let size = |why| format!("{machine}; message size unknown: {}; pass --message-bytes", unknown(why));
    let profile = match rewiring.message() {
        Some((bytes, is_estimate)) => format!(
            "{machine}; message size {}{}",
            output::bytes(bytes.round() as u64),
            if is_estimate { " (estimated from the collectives' latency)" } else { "" }
        ),
        None => rewiring.unknown_size().map_or_else(
            || format!("none: {machine}; pass --hardware to predict contention and other all-reduces"),
            size,
        ),
    };
    text += &output::wrapped("profile   ", &profile, 10);
    for note in &steps.notes {
        text += &output::wrapped("note      ", note, 10);
    }
    if let Some(note) = host_note(steps, no_launches) {
        text += &output::wrapped("note      ", &note, 10);
    }
    text += "\n";
    text += &output::aligned(&answers_table(rewiring, answers, true));
    let has_intervals = answers.iter().any(|answer| answer.alone.speedup_95.is_some());
    let between = match has_intervals {
        true => ". Speedup: median [range of 95 % of the steps]",
        false => "",
    };
    text += "\n";
    text += &output::wrapped(
        "",
        &format!(
            "Kernel and collective times are from the trace; their new schedule is simulated{between}."
        ),
        0,
    );
    if answers.iter().any(|answer| rewiring.is_overstated(&answer.choice)) {
        let why =
            "<: upper bounds, as Python stacks slow the host of this trace; record without with_stack.";
        text += &output::wrapped("", why, 0);
    }
    let unmerged = answers.iter().filter_map(|answer| rewiring.unmerged(&answer.choice.architecture));
    for note in unmerged.collect::<BTreeSet<String>>() {
        text += &output::wrapped("", &format!("{}.", capitalized(&note)), 0);
    }
    let errors: BTreeSet<String> = answers.iter().map(|answer| rewiring.error(&answer.choice)).collect();
    for error in errors {
        text += &output::wrapped("Error: ", &format!("{error}."), 7);
    }
    let contended = answers.iter().filter_map(|answer| rewiring.contended_error(answer));
    for error in contended.collect::<BTreeSet<String>>() {
        text += &output::wrapped("Error of contended times: ", &format!("{error}."), 7);
    }
    text
}
