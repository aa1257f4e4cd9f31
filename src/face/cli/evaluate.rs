//! `ladderscope evaluate`: how well architectures of a checkpoint predict a text, and how far each is
//! from `standard`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::output::{self, Format, FormatArgs};
use super::progress::duration;
use super::{interrupt, report};
use crate::base::error::{Error, Result};
use crate::desk::evaluate::{Asked, Progress, Text, TextQuality, evaluate};
use crate::lab::launch::Cancel;
use crate::lab::store::Store;
use crate::model::Model;
use crate::plan::{Architecture, CommDType, DType};
use crate::run::backend;
use crate::table::render::{Shown, Table};
use crate::table::{Backend, Quality};

/// How often lines of progress may come where standard error is no terminal.
const PLAIN_INTERVAL: Duration = Duration::from_secs(5);

/// The command line's arguments of `ladderscope evaluate`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// An HF directory: config.json, safetensors, and for --text tokenizer.json
    #[arg(long, value_name = "DIR")]
    pub weights: PathBuf,
    /// The text that is predicted, through the directory's tokenizer.json without special tokens
    #[arg(long, value_name = "FILE", required_unless_present = "tokens_file")]
    pub text: Option<PathBuf>,
    /// The text as token ids separated by blanks, taken as they are
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    pub tokens_file: Option<PathBuf>,
    /// Residual wirings (as in `run`), a case each: A,B,...
    #[arg(long, value_delimiter = ',', default_value = "standard")]
    pub architecture: Vec<Architecture>,
    /// Ranks of tensor parallelism
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub tp: u32,
    /// Tokens of a window; windows lie side by side, each stands alone, a last shorter one is dropped
    #[arg(long, value_name = "TOKENS", default_value_t = 512, value_parser = clap::value_parser!(u32).range(2..))]
    pub context: u32,
    /// Use the text's first tokens alone
    #[arg(long, value_name = "LIMIT", value_parser = clap::value_parser!(u32).range(1..))]
    pub tokens: Option<u32>,
    /// Who computes: cpu
    #[arg(long, default_value = "cpu")]
    pub backend: Backend,
    /// Format of the weights: f32, bf16 (on cpu computed in f32) [default: f32]
    #[arg(long)]
    pub dtype: Option<DType>,
    /// Format in which partial sums are sent: activations, f8, int8
    #[arg(long, value_name = "FORMAT", default_value = "activations")]
    pub comm_dtype: CommDType,
    /// Seed of random weights, where the directory has none
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    #[command(flatten)]
    pub output: FormatArgs,
}

/// Evaluates the architectures and prints a case for each.
pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    let model = model(&args.weights, args.seed)?;
    let backend = match args.backend {
        Backend::Auto => backend(Backend::Cpu)?,
        named => backend(named)?,
    };
    let text = match (&args.text, &args.tokens_file) {
        (Some(path), _) => Text::Words(path.clone()),
        (None, Some(path)) => Text::Ids(path.clone()),
        (None, None) => return Err(Error::input("no text: give --text FILE or --tokens-file FILE")),
    };
    let asked = Asked {
        dtype: args.dtype.unwrap_or_else(|| backend.generation_dtype(&model)),
        model,
        text,
        architectures: args.architecture.clone(),
        tp: args.tp,
        comm_dtype: args.comm_dtype,
        context: args.context as usize,
        limit: args.tokens.map(|limit| limit as usize),
        seed: args.seed,
    };
    let cancel = Cancel::default();
    interrupt::cancel_on_signals(&cancel)?;
    let mut shown = Shower::new();
    let evaluated =
        evaluate(&asked, backend, &Store::open(dir), &cancel, &mut |progress| shown.show(progress));
    shown.finish();
    let evaluated = evaluated?;
    for note in &evaluated.notes {
        report::note(note);
    }
    print(&evaluated, args.output.format)?;
    Ok(0)
}

/// The model of a directory; says where its weights are random although they might not be expected to be.
pub(super) fn model(dir: &Path, seed: u64) -> Result<Model> {
    if !dir.is_dir() {
        return Err(Error::input_help(
            format!("--weights {}: no such directory", dir.display()),
            "name an HF directory with config.json and safetensors",
        ));
    }
    let model = Model::resolve(&dir.to_string_lossy())?;
    if !model.has_weights {
        report::warn(&format!("{} has no weights: they are random, from seed {seed}", dir.display()));
    }
    Ok(model)
}

/// Shows progress on standard error: a bar on a terminal, now and then a line elsewhere.
#[derive(Debug)]
pub(super) struct Shower {
    bar: ProgressBar,
    began: Option<Instant>,
    last_line: Option<Instant>,
}

impl Shower {
    pub fn new() -> Self {
        let bar = match report::stderr_is_terminal() {
            true => ProgressBar::new(0),
            false => ProgressBar::hidden(),
        };
        if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}") {
            bar.set_style(style.progress_chars("━╸─"));
        }
        Self { bar, began: None, last_line: None }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    pub fn show(&mut self, progress: Progress<'_>) {
        let (done, found, of) = match progress {
            Progress::Doing(what) => {
                // what comes now may take longer than what was
                self.began = None;
                return self.bar.set_message(what.to_owned());
            }
            Progress::Windows { done, found, of } => (done, found, of),
        };
        let began = *self.began.get_or_insert_with(Instant::now);
        let computed = done - found;
        let left = match computed {
            0 => String::new(),
            _ => {
                let rest = began.elapsed().mul_f64((of - done) as f64 / computed as f64);
                format!(", {} to go", duration(rest))
            }
        };
        self.bar.set_length(of as u64);
        self.bar.set_position(done as u64);
        let stored = if found > 0 { format!(" ({found} were stored)") } else { String::new() };
        self.bar.set_message(format!("windows{stored}{left}"));
        let due = self.last_line.is_none_or(|last| last.elapsed() >= PLAIN_INTERVAL) || done == of;
        if self.bar.is_hidden() && due {
            self.last_line = Some(Instant::now());
            report::line(&format!("[{done}/{of}] windows{stored}{left}"));
        }
    }
}

/// What `--format json` has of an evaluation.
#[derive(Serialize)]
struct Printed<'a> {
    context: usize,
    tokens: usize,
    windows: usize,
    predicted: u32,
    cases: Vec<PrintedCase<'a>>,
}

#[derive(Serialize)]
struct PrintedCase<'a> {
    architecture: &'a Architecture,
    tp: u32,
    #[serde(flatten)]
    quality: &'a Quality,
}

fn print(evaluated: &TextQuality, format: Format) -> Result<()> {
    if format == Format::Json {
        let cases = evaluated.cases.iter();
        let cases = cases.map(|case| PrintedCase {
            architecture: &case.architecture,
            tp: case.tp,
            quality: &case.quality,
        });
        return output::json_line(&Printed {
            context: evaluated.context,
            tokens: evaluated.tokens,
            windows: evaluated.windows,
            predicted: evaluated.predicted,
            cases: cases.collect(),
        });
    }
    let mut table = Table::new(["architecture", "tp", "nll", "perplexity", "kl", "agreement"]);
    for case in &evaluated.cases {
        let q = &case.quality;
        table.push(vec![
            Shown::text(&case.architecture),
            Shown::Whole(u64::from(case.tp)),
            Shown::interval(Some(q.nll), q.nll_ci95, 4),
            Shown::interval(Some(q.perplexity), q.perplexity_ci95, 2),
            Shown::interval(Some(q.kl), q.kl_ci95, 4),
            Shown::interval(Some(q.agreement), q.agreement_ci95, 3),
        ]);
    }
    if format == Format::Csv {
        return output::emit(&table.csv());
    }
    let windows = crate::base::text::counted(evaluated.windows, "window");
    output::emit(&format!(
        "{} of {} tokens, {} predicted; nll and kl in nats a token, kl against standard\n{}",
        windows,
        evaluated.context,
        evaluated.predicted,
        output::aligned(&table)
    ))
}
