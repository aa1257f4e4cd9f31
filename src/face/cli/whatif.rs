//! `ladderscope whatif`: one simulated cell over a range of link latencies, bandwidths or contention, and
//! up to where each keeps its communication hidden.

use std::collections::BTreeMap;

use super::output::{self, Format, FormatArgs};
use super::report;
use crate::base::error::{Error, Result};
use crate::base::text::shell_command;
use crate::plan::Architecture;
use crate::study::whatif::{Answer, BreakEven, Crossing, Engine, HIDDEN_PCT, Numbers, Over, Variant};
use crate::table::render::{Shown, Sourced, Table};
use crate::table::{Backend, CellOptions, Provenance, Spec};

/// What is taken where other verbs take something else.
const DEFAULTS: &str = "The architecture is ladder where none is given. Without --model the cell is the paper's: \
    llama-3-70b, and where they are not given TP 8 and stack gpt-fast. TPOT and communication are of the middle step.";

/// The command line's arguments of `ladderscope whatif`.
#[derive(Debug, clap::Args)]
#[command(after_help = DEFAULTS)]
pub struct Args {
    #[command(flatten)]
    pub cell: CellOptions,
    /// Latencies of an all-reduce to go through (us), for example 5,10,20,40
    #[arg(long, value_name = "US,...", value_delimiter = ',', group = "over")]
    pub alpha_us: Vec<f64>,
    /// Message bandwidths of an all-reduce to go through (1e9 bytes a second)
    #[arg(long, value_name = "GB_S,...", value_delimiter = ',', group = "over")]
    pub gb_s: Vec<f64>,
    /// SMs' worth of work that a large all-reduce takes from compute, to go through
    #[arg(long, value_name = "N,...", value_delimiter = ',', group = "over")]
    pub sms: Vec<f64>,
    /// From this overlap on communication counts as hidden (%)
    #[arg(long, value_name = "PCT", default_value_t = HIDDEN_PCT)]
    pub hidden_pct: f64,
    #[command(flatten)]
    pub output: FormatArgs,
}

/// Prints a line a value and architecture.
pub fn run(args: &Args) -> Result<u8> {
    if !(args.hidden_pct > 0.0 && args.hidden_pct <= 100.0) {
        return Err(Error::input(format!(
            "--hidden-pct {}: write a number above 0, up to 100",
            args.hidden_pct
        )));
    }
    let (variant, engine) = (variant(&args.cell)?, Engine::default());
    let (slider, values) = sweep_of(args)?;
    let mut points: Vec<(Option<f64>, Answer)> = Vec::new();
    if values.is_empty() {
        points.push((None, engine.answer(&variant)?));
    }
    for value in values {
        let mut changed = variant.clone();
        match slider {
            "alpha_us" => changed.alpha_us = Some(value),
            "gb_s" => changed.gb_s = Some(value),
            _ => changed.sms = Some(value),
        }
        points.push((Some(value), engine.answer(&changed)?));
    }
    let found = break_evens(&engine, &variant, args.hidden_pct);
    match args.output.format {
        Format::Json => output::json(&object(&variant.cell, slider, &points, &found))?,
        Format::Csv => output::emit(&rows(slider, &points).csv(Sourced::ByRow))?,
        Format::Table => {
            let mut text = told(&variant.cell) + &output::aligned(&rows(slider, &points));
            for (cell, found) in &found {
                text += &format!("{} {}\n", cell.architecture_label(), in_words(found));
            }
            text += "all numbers are simulated\n";
            output::emit(&text)?;
        }
    }
    let why = points.iter().map(|(_, answer)| answer.cannot()).collect::<Option<Vec<String>>>();
    match why.and_then(|why| why.into_iter().next()) {
        Some(why) => Err(Error::input(why)),
        None => Ok(0),
    }
}

/// The cell that is varied: as `run` takes it, but that the backend is the simulator, the architecture
/// ladder and the model 70B at TP 8 where nothing is said.
fn variant(options: &CellOptions) -> Result<Variant> {
    if options.backend.is_some_and(|backend| backend != Backend::Auto && !backend.is_simulated()) {
        return Err(Error::input_help(
            "--backend: what-ifs are simulated",
            "leave it out, or write --backend sim",
        ));
    }
    let mut options = CellOptions { backend: Some(Backend::Sim), ..options.clone() };
    let paper = Variant::default().cell;
    options.architecture.get_or_insert(paper.architecture);
    if options.model.is_none() {
        options.model = Some(paper.model);
        options.tp.get_or_insert(paper.tp);
        options.stack.get_or_insert(paper.stack);
    }
    let (spec, note) = options.resolve()?;
    if let Some(note) = note {
        report::note(&note);
    }
    let (variant, note) = Variant::of(&spec);
    if let Some(note) = note {
        report::note(&note);
    }
    Ok(variant)
}

/// What is gone through, and its values.
fn sweep_of(args: &Args) -> Result<(&'static str, Vec<f64>)> {
    let all = [
        ("alpha_us", &args.alpha_us, 0.0),
        ("gb_s", &args.gb_s, f64::MIN_POSITIVE),
        ("sms", &args.sms, 0.0),
    ];
    let Some((name, values, least)) = all.into_iter().find(|(_, values, _)| !values.is_empty()) else {
        return Ok(("as given", Vec::new()));
    };
    if let Some(wrong) = values.iter().find(|value| !value.is_finite() || **value < least) {
        let option = name.replace('_', "-");
        let from = if least > 0.0 { "above 0" } else { "of at least 0" };
        return Err(Error::input(format!("--{option} {wrong}: write numbers {from}")));
    }
    Ok((name, values.clone()))
}

/// What hides communication, whatever the cell of a what-if is of: architectures, and `standard` in two micro-batches.
const HIDING: [(&str, u32); 7] = [
    ("ladder", 1),
    ("stale:2", 1),
    ("parallel+ladder", 1),
    ("delayed:2", 1),
    ("delayed:4", 1),
    ("sync-drop", 1),
    ("standard", 2),
];

/// The break-evens of the cell and of what else hides communication, by their cells.
fn break_evens(engine: &Engine, variant: &Variant, hidden_pct: f64) -> Vec<(Spec, BreakEven)> {
    let own = &variant.cell;
    let mut cells: Vec<Spec> = HIDING
        .iter()
        .filter_map(|(name, groups)| {
            let micro_batches = own.micro_batches.max(*groups);
            Some(Spec { architecture: name.parse().ok()?, micro_batches, ..own.clone() })
        })
        .collect();
    if !cells.contains(own) {
        cells.insert(0, own.clone());
    }
    let mut found = Vec::new();
    for cell in cells {
        let variant = Variant { cell: cell.clone(), ..variant.clone() };
        for over in [Over::AlphaUs, Over::GbS] {
            // one that does not communicate, or cannot run, has none: its row says why
            if let Ok(at) = engine.break_even(&variant, over, hidden_pct) {
                found.push((cell.clone(), at));
            }
        }
    }
    found
}

fn in_words(found: &BreakEven) -> String {
    let [low, high] = found.range;
    let unit = found.over.unit();
    let name = match found.over {
        Over::AlphaUs => "latency",
        Over::GbS => "bandwidth",
    };
    let where_ = match (found.crossing, found.over) {
        (Crossing::At(at), Over::AlphaUs) => format!("up to a {name} of {at:.1} {unit}"),
        (Crossing::At(at), Over::GbS) => format!("down to a {name} of {at:.1} {unit}"),
        (Crossing::Always, _) => format!("at every {name} from {low} to {high} {unit}"),
        (Crossing::Never, _) => format!("at no {name} from {low} to {high} {unit}"),
    };
    format!("overlaps {}% of its communication {where_}", found.hidden_pct)
}

/// What JSON has of all positions of the slider.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub struct Printed<'a> {
    /// The cell that is varied, with all its options.
    cell: &'a Spec,
    /// The name of the value that is varied.
    over: &'a str,
    /// Where all numbers come from.
    provenance: Provenance,
    points: Vec<PrintedPoint>,
    break_even: Vec<PrintedBreakEven<'a>>,
}

/// An architecture at a position of the slider.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
struct PrintedPoint {
    /// The position; null where nothing is varied.
    value: Option<f64>,
    #[schemars(with = "String")]
    architecture: Architecture,
    /// The command that runs the chosen cell; null of those it is compared with.
    command: Option<String>,
    /// The architecture, and what sets its cell apart from a plain one.
    label: String,
    /// Why it has no numbers; null where it has some.
    reason: Option<String>,
    /// Times in ms (prefill and decode of the whole generation; TPOT, communication and its exposed part of the
    /// middle step), tokens/s, overlap in percent, hidden share; absent where it has none.
    #[serde(flatten)]
    numbers: BTreeMap<&'static str, Option<f64>>,
}

/// Up to where an architecture hides its communication.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
struct PrintedBreakEven<'a> {
    #[schemars(with = "String")]
    architecture: &'a Architecture,
    label: String,
    break_even: &'a BreakEven,
}

fn object<'a>(
    cell: &'a Spec,
    slider: &'a str,
    points: &[(Option<f64>, Answer)],
    found: &'a [(Spec, BreakEven)],
) -> Printed<'a> {
    let points = points
        .iter()
        .flat_map(|(value, answer)| answer.rows.iter().map(move |row| (value, answer, row)))
        .map(|(value, answer, row)| {
            let chosen = answer.is_chosen(row);
            let numbers = row.numbers.iter();
            let named = |numbers: &Numbers| Numbers::NAMES.map(|name| (name, numbers.of(name)));
            PrintedPoint {
                value: *value,
                architecture: row.architecture.clone(),
                command: chosen.then(|| format!("ladderscope {}", shell_command(&answer.arguments))),
                label: answer.label(row),
                reason: row.numbers.as_ref().err().cloned(),
                numbers: numbers.flat_map(named).collect(),
            }
        });
    let break_even = found.iter().map(|(cell, found)| PrintedBreakEven {
        architecture: &cell.architecture,
        label: cell.architecture_label(),
        break_even: found,
    });
    Printed {
        cell,
        over: slider,
        provenance: Provenance::Simulated,
        points: points.collect(),
        break_even: break_even.collect(),
    }
}

/// The cell that is varied, in a line.
fn told(cell: &Spec) -> String {
    let Spec { model, dtype, tp, batch, p2p, hardware, stack, prompt_tokens, output_tokens, .. } = cell;
    format!(
        "{model} {dtype} tp{tp} b{batch} p2p-{}, prompt {prompt_tokens}, output {output_tokens}, on {hardware}, stack \
         {stack}; communication is of one step\n",
        p2p.as_str()
    )
}

fn rows(slider: &str, points: &[(Option<f64>, Answer)]) -> Table {
    // how long prefill and all steps take is left to JSON
    let names = &Numbers::NAMES[2..];
    let before = [slider, "architecture"].into_iter();
    let mut rows = Table::new(before.chain(names.iter().copied()).chain(["provenance", "reason"]));
    for (value, answer) in points {
        for row in &answer.rows {
            let mut cells = vec![Shown::number(*value, 1), Shown::text(answer.label(row))];
            cells.extend(names.iter().map(|name| row.shown(name)));
            cells.extend([Shown::text("simulated"), row.reason()]);
            rows.push(cells);
        }
    }
    rows
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
    fn values_of_one_slider_become_points_and_mistakes_are_named() {
        let args = parsed("--model llama-3.2-1b --tp 8 --alpha-us 5,50 --format json");
        assert_eq!(sweep_of(&args).unwrap(), ("alpha_us", vec![5.0, 50.0]));
        assert_eq!(variant(&args.cell).unwrap().cell.architecture.to_string(), "ladder");
        let error = sweep_of(&parsed("--gb-s 10,0")).unwrap_err();
        assert!(error.to_string().contains("--gb-s 0: write numbers above 0"), "{error}");
        assert!(Command::try_parse_from(["whatif", "--gb-s", "1", "--sms", "2"]).is_err(), "one slider");
        assert!(variant(&parsed("--backend cpu").cell).is_err());
    }

    #[test]
    fn the_object_has_a_point_a_value_and_architecture_and_says_simulated() {
        let args = parsed("--model llama-3.2-1b --tp 8 --output-tokens 8 --batch 2 --alpha-us 5,50");
        let (variant, engine) = (variant(&args.cell).unwrap(), Engine::default());
        let mut points: Vec<(Option<f64>, Answer)> = [5.0, 50.0]
            .map(|alpha| {
                let changed = Variant { alpha_us: Some(alpha), ..variant.clone() };
                (Some(alpha), engine.answer(&changed).unwrap())
            })
            .into();
        points[0].1.arguments.extend(["--model".into(), "my models/one".into()]);
        let found = break_evens(&engine, &variant, 95.0);
        let object = serde_json::to_value(object(&variant.cell, "alpha_us", &points, &found)).unwrap();
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
        assert!(
            found.len() == 14 && found.iter().all(|(_, found)| in_words(found).contains("overlaps 95%"))
        );
    }
}
