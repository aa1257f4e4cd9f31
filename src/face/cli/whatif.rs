//! `ladderscope whatif`: one simulated cell over a range of link latencies, bandwidths or contention, with the
//! break-even up to which each architecture hides its communication.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::output::{self, FormatArgs, OutputFormat};
use super::rewire::save_prediction;
use super::stderr;
use super::whatif_text::{cell_in_words, footnotes, headline, link_in_words, rows};
use base::error::{Error, Result};
use base::text::shell_command;
use lab::store::Store;
use plan::Architecture;
use run::Resolve;
use run::sim::Simulator;
use study::diff::{PredictedRow, StoredPrediction};
use study::validate::nearest_error;
use study::whatif::{
    BreakEven, BreakEvenQuantity, Crossing, HIDDEN_PCT, SimulatedMetrics, Slider, WhatIfAnswer,
    WhatIfVariant,
};
use table::options::option;
use table::render::Sourced;
use table::{Backend, CellOptions, Provenance, Spec};

const NOTES: &str = "Columns are of the middle decode step: speedup is TPOT of standard / TPOT, hidden the share of the communication \
    behind compute, gap (hidden_share in CSV and JSON) the closed share of the TPOT between standard and upper-bound. The break-even is the highest \
    latency and lowest bandwidth, each alone, at which at least --hidden-pct of the communication is hidden. Measured latencies \
    are of an all-reduce alone, as in nccl-tests; inside a model the stack scales them, and the output shows both. The stack does \
    not scale formulas (P2P off on h100_sxm) and emulated links. With several nodes, the search varies the network. For the \
    engine of a trace: `ladderscope rewire TRACE`. One sweep option may have several values; a single value is a setting. A \
    mixture with other experts is also a model: --model gpt-oss-120b@experts=64,top-k=4.";

/// Options of a cell without effect in a what-if, which simulates once without variables and samples.
pub(super) const WITHOUT_EFFECT: [&str; 5] = ["backend", "samples", "warmup", "seed", "env"];

/// Defaults that differ from those of `run`.
const DEFAULTS: [(&str, &str); 5] = [
    ("architecture", "ladder"),
    ("model", "llama-3-70b"),
    ("dtype", "f16 without --model, else the checkpoint's or bf16"),
    ("tp", "8 without --model, else 1"),
    ("stack", "gpt-fast without --model, else native"),
];

/// Adapts an option of a cell to this verb's help: hidden if it has no effect, with this verb's default.
fn listed(option: clap::Arg) -> clap::Arg {
    let id = option.get_id().as_str().to_owned();
    if WITHOUT_EFFECT.contains(&id.as_str()) || is_of_other_backends(&id) {
        return option.hide(true);
    }
    let help = option.get_help().map(ToString::to_string).unwrap_or_default();
    let Some((about, default)) = help.split_once(" [default: ") else { return option };
    let default = default.trim_end_matches(']');
    let here = DEFAULTS.iter().find(|(name, _)| *name == id).map(|(_, default)| *default);
    let simulated = default.split("; on cpu").next().unwrap_or(default);
    option.help(format!("{about} [default: {}]", here.unwrap_or(simulated)))
}

fn is_of_other_backends(name: &str) -> bool {
    option(name).is_some_and(|option| !option.is_used_by(Backend::Sim))
}

/// Options that sweep a value: name, title of its column, and minimum.
pub(super) const SWEPT: [(&str, &str, f64); 7] = [
    ("alpha_us", "alpha_us|latency us", 0.0),
    ("gb_s", "gb_s|GB/s", f64::MIN_POSITIVE),
    ("network_alpha_us", "network_alpha_us|network us", 0.0),
    ("network_gb_s", "network_gb_s|network GB/s", f64::MIN_POSITIVE),
    ("sms", "sms|SMs", 0.0),
    ("experts", "experts", 1.0),
    ("top_k", "top_k|top-k", 1.0),
];

/// Arguments of `ladderscope whatif`.
#[derive(Debug, clap::Args)]
#[command(after_help = NOTES, mut_args = listed)]
pub struct Args {
    /// Always refused, with a hint for those who pass a trace
    #[arg(hide = true)]
    pub source: Option<String>,
    #[command(flatten)]
    pub cell: CellOptions,
    /// Sweep the latency of a small all-reduce within a node (us), for example 5,10,20,40
    #[arg(long, value_name = "US,...", value_delimiter = ',')]
    pub alpha_us: Vec<f64>,
    /// Sweep the bandwidth of an all-reduce within a node (GB/s)
    #[arg(long, value_name = "GB_S,...", value_delimiter = ',')]
    pub gb_s: Vec<f64>,
    /// Sweep the latency that the network adds per doubling of the nodes (us), for a TP that spans nodes
    #[arg(long, value_name = "US,...", value_delimiter = ',')]
    pub network_alpha_us: Vec<f64>,
    /// Sweep the bandwidth of all network cards of a node (GB/s), for a TP that spans nodes
    #[arg(long, value_name = "GB_S,...", value_delimiter = ',')]
    pub network_gb_s: Vec<f64>,
    /// Sweep the number of SMs that a large all-reduce occupies
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    pub sms: Vec<f64>,
    /// Sweep the number of experts of a built-in mixture
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    pub experts: Vec<f64>,
    /// Sweep the number of experts that each token chooses
    #[arg(long, value_name = "K,...", value_delimiter = ',')]
    pub top_k: Vec<f64>,
    /// Minimum share of communication hidden behind compute at the break-even (%)
    #[arg(long, value_name = "PCT", default_value_t = HIDDEN_PCT)]
    pub hidden_pct: f64,
    /// Store the prediction; `diff A B --check NAME` later shows its error
    #[arg(long, value_name = "NAME", conflicts_with_all = SWEPT.map(|(name, ..)| name))]
    pub save: Option<String>,
    #[command(flatten)]
    pub output: FormatArgs,
}

/// Predicted step latency and speedup over plain standard of every row that can run.
fn predicted(answer: &WhatIfAnswer) -> Vec<PredictedRow> {
    let row = |row: &study::whatif::WhatIfRow| {
        let numbers = row.numbers.as_ref().ok()?;
        Some(PredictedRow {
            label: answer.label(row),
            architecture: row.architecture.to_string(),
            step_us: numbers.tpot_ms * 1e3,
            speedup: numbers.speedup?,
        })
    };
    answer.rows.iter().filter_map(row).collect()
}

pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    if let Some(source) = &args.source {
        let rewire = shell_command(["ladderscope", "rewire", source]);
        return Err(Error::input_help(
            format!("unexpected argument '{source}': whatif simulates a cell and reads no trace"),
            format!("name a model with --model; to change the engine of a trace or run: `{rewire}`"),
        ));
    }
    if !(args.hidden_pct > 0.0 && args.hidden_pct <= 100.0) {
        return Err(Error::input(format!(
            "--hidden-pct {}: write a number above 0, up to 100",
            args.hidden_pct
        )));
    }
    let (mut variant, simulator) = (variant(&args.cell)?, Simulator::default());
    let Sweep { slider, values, fixed } = sweep_of(args)?;
    for (name, value) in &fixed {
        set_swept(&mut variant, name, *value)?;
    }
    let mut points: Vec<SweepPoint> = Vec::new();
    if values.is_empty() {
        points.push(SweepPoint { value: None, answer: variant.answer(&simulator)? });
    }
    for &value in &values {
        let mut changed = variant.clone();
        set_swept(&mut changed, slider, value)?;
        points.push(SweepPoint { value: Some(value), answer: changed.answer(&simulator)? });
    }
    refuse_without_effect(args, &points[0].answer)?;
    let cannot = points.iter().map(|point| point.answer.cannot()).collect::<Option<Vec<String>>>();
    let cannot = cannot.and_then(|why| why.into_iter().next());
    if let Some(why) = cannot.as_ref().filter(|_| matches!(args.output.format, OutputFormat::Table)) {
        return Err(Error::input(why.clone()));
    }
    if let (Some(name), None) = (&args.save, &cannot) {
        let source = variant.cell.label();
        let machine = format!("{}, stack {}", variant.cell.hardware, variant.cell.stack);
        let rows = points.iter().flat_map(|point| predicted(&point.answer)).collect();
        save_prediction(
            &Store::open(dir),
            StoredPrediction::new(name, "whatif", source, machine, rows),
        )?;
    }
    // a single value is a setting
    let mut searched = variant.clone();
    if let [value] = values.as_slice() {
        set_swept(&mut searched, slider, *value)?;
    }
    let found = break_evens(&simulator, &searched, &points[0].answer, args.hidden_pct);
    match args.output.format {
        OutputFormat::Json => output::json(&printed(&variant.cell, slider, &points, found))?,
        OutputFormat::Csv => output::emit(&rows(slider, &points).csv(Sourced::ByRow))?,
        OutputFormat::Table => {
            let mut text = headline(slider, &points) + &cell_in_words(&variant.cell, &fixed);
            for point in &points {
                text += &link_in_words(slider, point);
            }
            text += &output::aligned(&rows(slider, &points));
            for line in footnotes(&points) {
                text += &output::wrapped("", &line, 2);
            }
            let beaten = points.iter().find_map(|point| point.answer.beaten_limit());
            text.extend(beaten.map(|beaten| output::wrapped("", &beaten, 2)));
            for of_cell in found.chunk_by(|a, b| a.label == b.label) {
                let words: Vec<BreakEven> =
                    of_cell.iter().map(|found| found.break_even.clone()).collect();
                let line = format!("{} {}", of_cell[0].label, BreakEven::in_words(&words));
                text += &output::wrapped("", &line, 2);
            }
            let error = nearest_error(&variant.cell);
            text += &output::wrapped("", &format!("All numbers are simulated ({error})."), 2);
            output::emit(&text)?;
        }
    }
    match cannot {
        Some(why) => Err(Error::input(why)),
        None => Ok(0),
    }
}

/// Cell to vary: options as in `run`, except that the backend is the simulator and the defaults are ladder and 70B at
/// TP 8.
fn variant(options: &CellOptions) -> Result<WhatIfVariant> {
    if options.backend.is_some_and(|backend| backend != Backend::Auto && !backend.is_simulated()) {
        return Err(Error::input_help(
            "--backend: whatif always simulates",
            "omit it, or write --backend sim",
        ));
    }
    let given = options.given().map(|option| option.name).filter(|name| *name != "backend");
    let of_pairs = (!options.env.is_empty()).then_some("env");
    let without_effect = |name: &&str| WITHOUT_EFFECT.contains(name) || is_of_other_backends(name);
    if let Some(name) = given.chain(of_pairs).find(without_effect) {
        return Err(Error::input_help(
            format!("--{} has no effect in whatif", name.replace('_', "-")),
            "omit it; `run --backend sim` accepts it",
        ));
    }
    let mut options = CellOptions { backend: Some(Backend::Sim), ..options.clone() };
    let paper = WhatIfVariant::default().cell;
    options.architecture.get_or_insert(paper.architecture);
    if options.model.is_none() {
        options.model = Some(paper.model);
        options.dtype.get_or_insert(paper.dtype);
        options.tp.get_or_insert(paper.tp);
        options.stack.get_or_insert(paper.stack);
    }
    let (spec, note) = options.resolve()?;
    if let Some(note) = note {
        stderr::note(&note);
    }
    let (variant, note) = WhatIfVariant::from_spec(&spec);
    if let Some(note) = note {
        stderr::note(&note);
    }
    Ok(variant)
}

/// Answer at a value of the swept option; `value` is `None` if nothing is swept.
pub struct SweepPoint {
    pub value: Option<f64>,
    pub answer: WhatIfAnswer,
}

/// Value that is swept, and those that are settings.
#[derive(Debug, PartialEq)]
struct Sweep {
    /// Name of the varied option; `as given` if none is.
    slider: &'static str,
    values: Vec<f64>,
    fixed: Vec<(&'static str, f64)>,
}

fn sweep_of(args: &Args) -> Result<Sweep> {
    let Args { alpha_us, gb_s, network_alpha_us, network_gb_s, sms, experts, top_k, .. } = args;
    let values = [alpha_us, gb_s, network_alpha_us, network_gb_s, sms, experts, top_k];
    let all = SWEPT.into_iter().zip(values).map(|((name, _, least), values)| (name, least, values));
    let given: Vec<_> = all.filter(|(.., values)| !values.is_empty()).collect();
    for (name, least, values) in &given {
        let Some(wrong) = values.iter().find(|value| !value.is_finite() || *value < least) else {
            continue;
        };
        let option = name.replace('_', "-");
        let from = match *least {
            1.0 => "of at least 1",
            0.0 => "of at least 0",
            _ => "above 0",
        };
        return Err(Error::input(format!("--{option} {wrong}: write numbers {from}")));
    }
    let mut swept = given.iter().filter(|(.., values)| values.len() > 1);
    let first = swept.next();
    if let Some(((one, ..), (other, ..))) = first.zip(swept.next()) {
        return Err(Error::input_help(
            format!(
                "--{} and --{} both have several values",
                one.replace('_', "-"),
                other.replace('_', "-")
            ),
            "sweep one of them, and give the other one value",
        ));
    }
    let Some((slider, _, values)) = first.or(given.first()).copied() else {
        return Ok(Sweep { slider: "as given", values: Vec::new(), fixed: Vec::new() });
    };
    let others = given.iter().filter(|(name, ..)| *name != slider);
    let fixed = others.map(|(name, _, values)| (*name, values[0])).collect();
    Ok(Sweep { slider, values: values.clone(), fixed })
}

/// Sets a value of [`SWEPT`].
fn set_swept(variant: &mut WhatIfVariant, name: &str, value: f64) -> Result<()> {
    match name {
        "alpha_us" => variant.alpha_us = Some(value),
        "gb_s" => variant.gb_s = Some(value),
        "network_alpha_us" => variant.network_alpha_us = Some(value),
        "network_gb_s" => variant.network_gb_s = Some(value),
        "experts" => Slider::Experts.set(variant, None, &value.to_string())?,
        "top_k" => Slider::TopK.set(variant, None, &value.to_string())?,
        _ => variant.sms = Some(value),
    }
    Ok(())
}

/// Refuses options of the link where they change nothing, because no communication uses it.
fn refuse_without_effect(args: &Args, answer: &WhatIfAnswer) -> Result<()> {
    let values = Some(&answer.profile_values);
    let network =
        [("--network-alpha-us", &args.network_alpha_us), ("--network-gb-s", &args.network_gb_s)];
    if let Some((named, _)) = network.iter().find(|(_, values)| !values.is_empty())
        && let Some(why) = Slider::NetworkLatency.no_effect(&answer.variant, values)
    {
        return Err(Error::input(format!("{named} has no effect: {why}")));
    }
    let Some(why) = Slider::Alpha.no_effect(&answer.variant, values) else { return Ok(()) };
    let cell = &answer.variant.cell;
    let of_link = |key: &&String| key.starts_with("link.");
    let named = if !args.alpha_us.is_empty() {
        "--alpha-us".to_owned()
    } else if !args.gb_s.is_empty() {
        "--gb-s".to_owned()
    } else if option("p2p").is_some_and(|p2p| !p2p.is_default(cell)) {
        "--p2p".to_owned()
    } else if let Some(key) = cell.set.keys().find(of_link) {
        format!("--set {key}")
    } else {
        return Ok(());
    };
    Err(Error::input(format!("{named} has no effect: {why}")))
}

/// Break-evens of the rows that hide communication, by cell. Always includes the chosen cell.
fn break_evens(
    simulator: &Simulator,
    variant: &WhatIfVariant,
    answer: &WhatIfAnswer,
    hidden_pct: f64,
) -> Vec<PrintedBreakEven> {
    let mut found = Vec::new();
    for row in &answer.rows {
        let cell = Spec {
            architecture: row.architecture.clone(),
            micro_batches: row.micro_batches,
            ..variant.cell.clone()
        };
        let variant = WhatIfVariant { cell: cell.clone(), ..variant.clone() };
        // cells without communication, or that cannot run, have no break-even; their row shows why
        let both = [BreakEvenQuantity::AlphaUs, BreakEvenQuantity::GbS]
            .map(|over| variant.break_even(simulator, over, hidden_pct));
        let both: Vec<BreakEven> = both.into_iter().flatten().collect();
        let hides = both.iter().any(|found| found.crossing != Crossing::Never);
        if hides || answer.is_chosen(row) {
            found.extend(both.into_iter().map(|break_even| PrintedBreakEven {
                architecture: cell.architecture.clone(),
                label: cell.architecture_label(),
                break_even,
            }));
        }
    }
    found
}

/// Output of all slider positions in JSON.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub struct PrintedWhatif<'a> {
    /// Varied cell with all its options.
    cell: &'a Spec,
    /// Name of the varied value.
    over: &'a str,
    /// Provenance of all numbers.
    provenance: Provenance,
    /// Error of the nearest validated data, in words.
    error: String,
    points: Vec<PrintedWhatifRow>,
    break_even: Vec<PrintedBreakEven>,
}

/// Architecture at a slider position.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
struct PrintedWhatifRow {
    /// Slider position; null if nothing is varied.
    value: Option<f64>,
    #[schemars(with = "String")]
    architecture: Architecture,
    /// Command that runs the chosen cell; null for those it is compared with.
    command: Option<String>,
    /// Architecture, and the cell's differences from a plain one.
    label: String,
    /// Reason for missing numbers; null if there are numbers.
    reason: Option<String>,
    /// Latency of a decode step's all-reduce as measured by nccl-tests, back to back (us); null without a link.
    all_reduce_us: Option<f64>,
    /// Latency of the same all-reduce as charged by the stack within a model (us).
    charged_us: Option<f64>,
    /// Profile rows that the link is based on, if it was not measured at this TP.
    link_basis: Option<String>,
    /// All-reduce of this message if the cell switches by message size; else null.
    #[schemars(with = "Option<String>")]
    collective: Option<table::Collective>,
    /// Source of the link's latencies, if not measured for this collective, TP and message size.
    link_note: Option<String>,
    /// Remark if an architecture does less work than `upper-bound` and is faster.
    beaten_limit: Option<String>,
    /// Times in ms (prefill and decode of the whole generation; TPOT, communication and its exposed part of the
    /// middle step), speedup in TPOT, tokens/s, overlap in percent, closed share of the gap to upper-bound; absent
    /// without numbers.
    #[serde(flatten)]
    numbers: BTreeMap<&'static str, Option<f64>>,
}

/// Break-even up to which an architecture hides its communication.
#[derive(Clone, Debug, serde::Serialize, schemars::JsonSchema)]
struct PrintedBreakEven {
    #[schemars(with = "String")]
    architecture: Architecture,
    label: String,
    break_even: BreakEven,
}

fn printed<'a>(
    cell: &'a Spec,
    slider: &'a str,
    points: &[SweepPoint],
    break_even: Vec<PrintedBreakEven>,
) -> PrintedWhatif<'a> {
    let points = points
        .iter()
        .flat_map(|point| point.answer.rows.iter().map(move |row| (point, row)))
        .map(|(SweepPoint { value, answer }, row)| {
            let chosen = answer.is_chosen(row);
            let times = answer.link.as_ref().map(|link| &link.times);
            let numbers = row.numbers.iter();
            let named = |numbers: &SimulatedMetrics| {
                SimulatedMetrics::NAMES.map(|name| (name, numbers.by_name(name)))
            };
            PrintedWhatifRow {
                value: *value,
                architecture: row.architecture.clone(),
                command: chosen.then(|| format!("ladderscope {}", shell_command(&answer.arguments))),
                label: answer.label(row),
                reason: row.numbers.as_ref().err().cloned(),
                all_reduce_us: times.map(|times| times.alone_us),
                charged_us: times.map(|times| times.charged_us),
                link_basis: times.and_then(|times| times.basis?.note()),
                collective: times.and_then(|times| Some(times.taken.as_ref()?.0)),
                link_note: times.and_then(|times| times.note.clone()),
                beaten_limit: answer.beaten_limit().filter(|_| row.architecture.is_limit()),
                numbers: numbers.flat_map(named).collect(),
            }
        });
    PrintedWhatif {
        cell,
        over: slider,
        provenance: Provenance::Simulated,
        error: nearest_error(cell),
        points: points.collect(),
        break_even,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn parsed(words: &str) -> Args {
        Command::try_parse_from(std::iter::once("whatif").chain(words.split(' '))).unwrap().args
    }

    #[test]
    fn values_of_one_option_are_swept_and_invalid_ones_named() {
        let args = parsed("--model llama-3.2-1b --tp 8 --alpha-us 5,50 --format json");
        let swept = |slider, values: &[f64], fixed: &[(&'static str, f64)]| Sweep {
            slider,
            values: values.to_vec(),
            fixed: fixed.to_vec(),
        };
        assert_eq!(sweep_of(&args).unwrap(), swept("alpha_us", &[5.0, 50.0], &[]));
        assert_eq!(variant(&args.cell).unwrap().cell.architecture.to_string(), "ladder");
        let error = sweep_of(&parsed("--gb-s 10,0")).unwrap_err();
        assert!(error.to_string().contains("--gb-s 0: write numbers above 0"), "{error}");
        assert_eq!(sweep_of(&parsed("--top-k 1,2")).unwrap(), swept("top_k", &[1.0, 2.0], &[]));
        // one sweep, and settings beside it
        let both = sweep_of(&parsed("--experts 64 --top-k 1,2")).unwrap();
        assert_eq!(both, swept("top_k", &[1.0, 2.0], &[("experts", 64.0)]));
        let error = sweep_of(&parsed("--experts 64,32 --top-k 1,2")).unwrap_err().to_string();
        assert!(error.contains("--experts and --top-k both have several values"), "{error}");
        let error = sweep_of(&parsed("--experts 0")).unwrap_err();
        assert!(error.to_string().contains("--experts 0: write numbers of at least 1"), "{error}");
        let saved = ["whatif", "--gb-s", "1", "--save", "one"];
        assert!(Command::try_parse_from(saved).is_err(), "a prediction is of one setting");
        assert!(variant(&parsed("--backend cpu").cell).is_err());
    }

    #[test]
    fn the_network_is_swept_across_nodes_and_refused_within_one() {
        let simulator = Simulator::default();
        let answer = |words: &str| {
            let args = parsed(words);
            let Sweep { slider, values, .. } = sweep_of(&args).unwrap();
            let mut variant = variant(&args.cell).unwrap();
            set_swept(&mut variant, slider, values[0]).unwrap();
            let answer = variant.answer(&simulator).unwrap();
            refuse_without_effect(&args, &answer)
                .map(|()| answer.rows[0].numbers.clone().unwrap().tpot_ms)
        };
        let cell = "--model llama-3.1-405b --stack native --output-tokens 8 --tp 16";
        let fast = answer(&format!("{cell} --network-alpha-us 1,100")).unwrap();
        assert!(answer(&format!("{cell} --network-alpha-us 100")).unwrap() > fast);
        let why = answer("--network-gb-s 50").unwrap_err().to_string();
        assert!(why.contains("--network-gb-s has no effect: 8 ranks fit in a node of 8 GPUs"), "{why}");
    }

    #[test]
    fn the_command_that_the_workbench_copies_shows_the_same_cell() {
        let mut slid = WhatIfVariant::default();
        (slid.alpha_us, slid.gb_s, slid.sms) = (Some(33.3), Some(120.0), Some(20.0));
        (slid.comm_loss_pct, slid.launch_us) = (Some(5.0), Some(2.0));
        (slid.cell.batch, slid.cell.p2p) = (4, table::P2p::Off);
        slid.cell.architecture = Architecture::Standard;
        let mut on_nodes = WhatIfVariant::default();
        on_nodes.cell.tp = 16;
        (on_nodes.network_alpha_us, on_nodes.network_gb_s) = (Some(9.5), Some(50.0));
        // without an effect within a node
        let within = WhatIfVariant { network_gb_s: Some(50.0), ..WhatIfVariant::default() };
        for variant in [WhatIfVariant::default(), slid, on_nodes, within] {
            let words = variant.whatif_arguments(true).unwrap();
            let args = Command::try_parse_from(&words).unwrap().args;
            let Sweep { slider, values, fixed } = sweep_of(&args).unwrap();
            let mut typed = super::variant(&args.cell).unwrap();
            for (name, value) in values.into_iter().map(|value| (slider, value)).chain(fixed) {
                set_swept(&mut typed, name, value).unwrap();
            }
            assert_eq!(typed.spec().unwrap(), variant.spec().unwrap(), "{words:?}");
        }
    }

    #[test]
    fn the_json_has_a_point_per_value_and_architecture() {
        let args = parsed("--model llama-3.2-1b --tp 8 --output-tokens 8 --batch 2 --alpha-us 5,50");
        let (variant, simulator) = (variant(&args.cell).unwrap(), Simulator::default());
        let mut points: Vec<SweepPoint> = [5.0, 50.0]
            .map(|alpha| {
                let changed = WhatIfVariant { alpha_us: Some(alpha), ..variant.clone() };
                SweepPoint { value: Some(alpha), answer: changed.answer(&simulator).unwrap() }
            })
            .into();
        points[0].answer.arguments.extend(["--model".into(), "my models/one".into()]);
        let found = break_evens(&simulator, &variant, &points[0].answer, 95.0);
        let printed = printed(&variant.cell, "alpha_us", &points, found.clone());
        let object = serde_json::to_value(printed).unwrap();
        assert_eq!(object["provenance"], "simulated");
        assert_eq!(
            (&object["cell"]["tp"], &object["cell"]["model"]),
            (&8.into(), &"llama-3.2-1b".into())
        );
        assert_eq!(object["points"].as_array().map(Vec::len), Some(16));
        let commands = object["points"].as_array().unwrap().iter().filter_map(|p| p["command"].as_str());
        let command = commands.into_iter().next().unwrap();
        assert!(command.ends_with(" --model 'my models/one'"), "as a shell takes it: {command}");
        let tpot = |index: usize| object["points"][index]["tpot_ms"].as_f64().unwrap();
        assert!(tpot(8) > tpot(0), "standard, at the higher latency");
        assert_eq!(rows("alpha_us", &points).csv(Sourced::ByRow).lines().count(), 17);
        let words = |found: &BreakEven| BreakEven::in_words(std::slice::from_ref(found));
        // the sweep's values are not those of the break-even
        let is_at_profile =
            |found: &BreakEven| words(found).contains(" of its communication at the profile's ");
        assert!(found.iter().all(|found| is_at_profile(&found.break_even)));
        let set = WhatIfVariant { alpha_us: Some(30.0), ..variant.clone() };
        let found_there = set.break_even(&simulator, BreakEvenQuantity::AlphaUs, 95.0).unwrap();
        assert!(words(&found_there).contains(" of its communication at 30 us; "));
        assert!(
            found.iter().all(|found| words(&found.break_even).contains("for at least 95 %, each alone"))
        );
        let shown: Vec<String> =
            points[0].answer.rows.iter().map(|row| points[0].answer.label(row)).collect();
        let labels: Vec<String> = found.into_iter().map(|found| found.label).collect();
        assert!(
            labels.contains(&"ladder".to_owned()) && labels.contains(&"standard micro2".to_owned()),
            "{labels:?}"
        );
        assert!(labels.iter().all(|label| shown.contains(label)), "only rows of the table: {labels:?}");
    }
}
