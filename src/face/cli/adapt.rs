//! `ladderscope adapt`: retrains a conversion, or trains a small model from random weights, and prints cost and
//! results.

use std::path::PathBuf;

use serde::Serialize;

use super::evaluate::{model_of, text_of};
use super::output::{self, FormatArgs, OutputFormat};
use super::running::{OnHangUp, cancel_on_signals};
use super::stderr;
use super::step_progress::StepProgress;
use crate::desk::adapt::{TrainingOptions, TrainingRequest, adapt};
use base::error::{Error, Result};
use lab::store::Store;
use model::Model;
use plan::Architecture;
use study::analysis::compared_trainings;
use table::render::{Shown, Sourced, Table};
use table::{Curve, Provenance, Quality};

/// Arguments of `ladderscope adapt`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// HF checkpoint directory to start from: config.json, safetensors, and tokenizer.json for --text
    #[arg(long, alias = "weights", value_name = "DIR", required_unless_present = "from_scratch")]
    pub model: Option<PathBuf>,
    /// Start from random weights: a built-in shape (mini: 3.6 M parameters, byte vocabulary) or the shape of an HF
    /// directory
    #[arg(long, value_name = "SHAPE", conflicts_with = "model")]
    pub from_scratch: Option<String>,
    /// Architectures to train (as in `run`), one training each: A,B,... [default: the checkpoint's wiring;
    /// from scratch standard,ladder,parallel]
    #[arg(long, value_delimiter = ',')]
    pub architecture: Vec<Architecture>,
    /// Training text, tokenized without special tokens; its end is held out for evaluation
    #[arg(long, value_name = "FILE", required_unless_present = "tokens_file")]
    pub text: Option<PathBuf>,
    /// Training text as token ids separated by whitespace, not tokenized
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    pub tokens_file: Option<PathBuf>,
    /// Use only the first LIMIT tokens of the text
    #[arg(long, value_name = "LIMIT", value_parser = clap::value_parser!(u32).range(1..))]
    pub tokens: Option<u32>,
    #[command(flatten)]
    pub options: TrainingOptions,
    #[command(flatten)]
    pub format: FormatArgs,
}

pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    let request = training_request(args)?;
    let cancel = cancel_on_signals(OnHangUp::Cancel)?;
    let mut shown = StepProgress::new();
    let found = adapt(&request, &Store::open(&dir), &cancel, &mut |progress| shown.training(&progress));
    shown.finish();
    let found = found.inspect_err(|error| {
        if matches!(error, Error::Interrupted) {
            stderr::line("rerun the same command to resume from the last checkpoint");
        }
    })?;
    print(&found, args.format.format)?;
    for one in &found {
        let training = &one.training;
        stderr::note(&format!("{}: {}", training.spec.label(), training.output.display()));
    }
    Ok(0)
}

fn training_request(args: &Args) -> Result<TrainingRequest> {
    let from_scratch = args.from_scratch.is_some();
    let model = match (&args.from_scratch, &args.model) {
        (Some(shape), _) => {
            let model = Model::resolve(shape)?;
            // ignores the weights of a directory
            let model =
                Model { has_weights: false, dir: model.dir.filter(|_| !model.has_weights), ..model };
            if model.dir.is_none() {
                model.written_family()?;
            }
            model
        }
        (_, Some(dir)) => model_of(dir, args.options.seed[0])?,
        _ => return Err(Error::input("no model: pass --model DIR or --from-scratch SHAPE")),
    };
    let architectures = match (&args.architecture[..], &model.wiring) {
        ([], _) if from_scratch => {
            ["standard", "ladder", "parallel"].map(str::parse).into_iter().collect::<Result<_>>()?
        }
        ([], Some(wiring)) => vec![wiring.clone()],
        ([], None) => {
            return Err(Error::input_help(
                format!("{} is wired as standard", model.name),
                "choose the target, for example --architecture ladder:8 (or standard to keep the wiring)",
            ));
        }
        (named, _) => named.to_vec(),
    };
    Ok(TrainingRequest {
        text: text_of(&args.text, &args.tokens_file)?,
        model,
        from_scratch,
        limit: args.tokens.map(|limit| limit as usize),
        architectures,
        options: args.options.clone(),
    })
}

/// Output of `--format json`.
#[derive(Serialize, schemars::JsonSchema)]
pub struct PrintedTrainings<'a> {
    trainings: &'a [Curve],
    /// Final difference of each architecture from the first, for trainings with several seeds.
    compared: Vec<study::analysis::ComparedTrainings>,
}

fn print(found: &[Curve], format: OutputFormat) -> Result<()> {
    let compared = compared_trainings(found);
    if format == OutputFormat::Json {
        return output::json_line(&PrintedTrainings { trainings: found, compared });
    }
    let table = table(found);
    if format == OutputFormat::Csv {
        return output::emit(&table.csv(Sourced::All(Provenance::Measured)));
    }
    let Some(Curve { training, .. }) = found.first() else { return Ok(()) };
    let spec = &training.spec;
    let miniature = if training.miniature { ", a miniature" } else { "" };
    let kl = match spec.from_scratch {
        true => "",
        false => "; KL of the held-out text from the starting model",
    };
    let heading = format!(
        "measured on cpu: {} steps of {} windows of {} tokens, {:.1} of {:.1} M parameters trained{miniature}; NLL in \
         nats/token{kl}",
        spec.steps,
        spec.batch,
        spec.context,
        training.trained_parameters as f64 / 1e6,
        training.parameters as f64 / 1e6
    );
    output::emit(&(output::wrapped("", &heading, 2) + &output::aligned(&table)))?;
    for one in compared {
        output::emit(&format!("{}\n", one.summary()))?;
    }
    output::emit(&format!("\n{}", loss_plot(found, 100, 16)))
}

fn table(found: &[Curve]) -> Table {
    let mut table = Table::new([
        "!architecture",
        "seed",
        "id",
        "loss",
        "nll_before|NLL before",
        "!nll_after|NLL after",
        "kl_before|KL before",
        "kl_after|KL after",
        "agreement",
        "tokens_per_s|tok/s",
        "gemm_share|GEMM peak",
    ])
    .least(&["agreement", "id", "GEMM peak"]);
    let interval =
        |quality: Option<Quality>, value: fn(Quality) -> (f64, Option<[f64; 2]>), decimals| {
            let (value, ends) = quality.map(value).unzip();
            Shown::interval(value, ends.flatten(), decimals)
        };
    for Curve { training, .. } in found {
        let (before, after) = (training.before, training.after);
        let if_pretrained = |quality: Option<Quality>| quality.filter(|_| !training.spec.from_scratch);
        table.push(vec![
            Shown::text(&training.spec.architecture),
            Shown::Whole(training.spec.seed),
            Shown::text(&training.id),
            Shown::number(training.loss, 4),
            interval(before, |q| (q.nll, q.nll_ci95), 4),
            interval(after, |q| (q.nll, q.nll_ci95), 4),
            interval(if_pretrained(before), |q| (q.kl, q.kl_ci95), 4),
            interval(if_pretrained(after), |q| (q.kl, q.kl_ci95), 4),
            interval(if_pretrained(after), |q| (q.agreement, q.agreement_ci95), 3),
            Shown::number(training.speed.map(|speed| speed.tokens_per_s), 0),
            Shown::number(training.speed.and_then(|speed| speed.gemm_share), 2),
        ]);
    }
    table
}

/// Width of the axis labels next to the plot.
const LABEL_WIDTH: usize = 9;

const CURVE_LETTERS: &str = "abcdefghijklmnopqrstuvwxyz";

/// Plots the loss over steps in `width` by `height` characters; a column is the mean of its steps. Letters refer to
/// the list below the plot. `*` marks cells that several curves share.
fn loss_plot(found: &[Curve], width: usize, height: usize) -> String {
    let columns = width.saturating_sub(LABEL_WIDTH + 1).max(8);
    let steps = found.iter().flat_map(|one| one.curve.last()).map(|step| step.step).max().unwrap_or(0);
    if steps == 0 {
        return String::new();
    }
    let lines: Vec<Vec<Option<f64>>> =
        found.iter().map(|one| column_means(one, steps, columns)).collect();
    let all = || lines.iter().flatten().flatten().copied();
    let (low, high) = all().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    let span = (high - low).max(1e-9);
    let mut cells = vec![vec![' '; columns]; height];
    for (line, letter) in lines.iter().zip(CURVE_LETTERS.chars().cycle()) {
        for (column, value) in line.iter().enumerate() {
            let Some(value) = value else { continue };
            let row = ((high - value) / span * (height - 1) as f64).round() as usize;
            let cell = &mut cells[row.min(height - 1)][column];
            *cell = match *cell {
                ' ' => letter,
                same if same == letter => letter,
                _ => '*',
            };
        }
    }
    let mut text = String::from("loss (nats/token)\n");
    for (row, line) in cells.iter().enumerate() {
        let label = match row {
            row if row % 5 == 0 || row == height - 1 => {
                format!("{:.3}", high - span * row as f64 / (height - 1) as f64)
            }
            _ => String::new(),
        };
        let line: String = line.iter().collect();
        text += &format!("{label:>LABEL_WIDTH$}│{}\n", line.trim_end());
    }
    text += &format!("{:>LABEL_WIDTH$}└{}\n", "", "─".repeat(columns));
    let last = format!("{steps} steps");
    text += &format!("{:>LABEL_WIDTH$} 1{last:>room$}\n", "", room = columns - 1);
    for (one, letter) in found.iter().zip(CURVE_LETTERS.chars().cycle()) {
        let loss = one.last_loss().map_or(String::new(), |loss| format!("  {loss:.4} at the end"));
        text += &format!("{:>LABEL_WIDTH$}{letter} {}{loss}\n", "", one.training.spec.label());
    }
    text
}

/// Mean loss of the steps that fall into each column; `None` for columns without steps.
fn column_means(one: &Curve, steps: u32, columns: usize) -> Vec<Option<f64>> {
    let mut sums = vec![(0.0, 0u32); columns];
    for step in &one.curve {
        let column = (step.step.saturating_sub(1) as usize * columns / steps as usize).min(columns - 1);
        sums[column].0 += step.nll;
        sums[column].1 += 1;
    }
    sums.into_iter().map(|(sum, count)| (count > 0).then(|| sum / f64::from(count))).collect()
}
