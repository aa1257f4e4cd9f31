//! `ladderscope evaluate`: measures how well architectures of a checkpoint predict a text, and their divergence from
//! `standard`.
//!
//! Options of every verb that measures quality: checkpoint, text, and windows.

use std::path::{Path, PathBuf};

use super::output::{self, FormatArgs, OutputFormat};
use super::running::{OnHangUp, cancel_on_signals};
use super::stderr;
use super::step_progress::StepProgress;
use crate::desk::evaluate::{
    ArchitectureQuality, QualityRequest, TextCache, TextQuality, TextSource, evaluate,
};
use base::error::{Error, Result};
use base::input;
use lab::store::Store;
use model::Model;
use plan::{Architecture, CommDType, DType};
use run::{Execute, evaluator};
use table::render::{Shown, Sourced, Table};
use table::{Backend, Provenance, Quality};

/// Arguments of `ladderscope evaluate`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub text: TextArgs,
    /// Architectures to evaluate (as in `run`), one case each: A,B,... [default: standard, or the checkpoint's]
    #[arg(long, value_delimiter = ',')]
    pub architecture: Vec<Architecture>,
    /// Reference checkpoint for the KL divergence, run as standard [default: --model]
    #[arg(long, value_name = "DIR")]
    pub reference: Option<String>,
    /// Number format of all-reduce messages (partial sums): activations, f8, int8
    #[arg(long, value_name = "FORMAT", default_value = "activations")]
    pub comm_dtype: CommDType,
    #[command(flatten)]
    pub output: FormatArgs,
}

pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    let backend = args.text.backend()?;
    let model = model_of(&args.text.model, args.text.seed)?;
    let mut architectures = args.architecture.clone();
    if architectures.is_empty() {
        architectures.push(model.wiring.clone().unwrap_or(Architecture::Standard));
    }
    let mut request = args.text.request(model, backend, architectures, args.comm_dtype)?;
    request.reference = args.reference.as_deref().map(Model::resolve).transpose()?;
    let cancel = cancel_on_signals(OnHangUp::Cancel)?;
    let mut shown = StepProgress::new();
    let (mut cache, store) = (TextCache::default(), Store::open(dir));
    let evaluated = evaluate(&request, &mut cache, backend, &store, &cancel, &mut |progress| {
        shown.evaluation(progress)
    });
    shown.finish();
    let evaluated = evaluated?;
    evaluated.notes.iter().for_each(|note| stderr::note(note));
    print(&evaluated, args.output.format)?;
    Ok(0)
}

fn print(evaluated: &TextQuality, format: OutputFormat) -> Result<()> {
    if format == OutputFormat::Json {
        return output::json_line(evaluated);
    }
    let low = |ci: Option<[f64; 2]>| Shown::number(ci.map(|ci| ci[0]), 4);
    let high = |ci: Option<[f64; 2]>| Shown::number(ci.map(|ci| ci[1]), 4);
    // files have separate columns for the ends of the 95 % intervals
    let table = Table::from_rows(
        &evaluated.cases,
        &[
            ("architecture", &|case: &ArchitectureQuality| Shown::text(&case.architecture)),
            ("tp", &|case| case.tp.into()),
            ("nll|NLL", &|case| Shown::interval(Some(case.quality.nll), case.quality.nll_ci95, 4)),
            ("perplexity", &|case| {
                Shown::interval(Some(case.quality.perplexity), case.quality.perplexity_ci95, 2)
            }),
            ("kl|KL", &|case| Shown::interval(Some(case.quality.kl), case.quality.kl_ci95, 4)),
            ("agreement", &|case| {
                Shown::interval(Some(case.quality.agreement), case.quality.agreement_ci95, 3)
            }),
            ("nll_low|", &|case| low(case.quality.nll_ci95)),
            ("nll_high|", &|case| high(case.quality.nll_ci95)),
            ("perplexity_low|", &|case| low(case.quality.perplexity_ci95)),
            ("perplexity_high|", &|case| high(case.quality.perplexity_ci95)),
            ("kl_low|", &|case| low(case.quality.kl_ci95)),
            ("kl_high|", &|case| high(case.quality.kl_ci95)),
            ("agreement_low|", &|case| low(case.quality.agreement_ci95)),
            ("agreement_high|", &|case| high(case.quality.agreement_ci95)),
        ],
    )
    // follows from the NLL
    .least(&["perplexity"]);
    if format == OutputFormat::Csv {
        return output::emit(&table.csv(Sourced::All(Provenance::Measured)));
    }
    let windows = base::text::counted(evaluated.windows, "window");
    let heading = format!(
        "measured on {}: {} of {} tokens, {} predicted; NLL and KL (against standard) in nats/token",
        evaluated.backend, windows, evaluated.context, evaluated.predicted
    );
    let answer = output::wrapped("", &headline(evaluated), 0);
    output::emit(&(answer + &output::wrapped("", &heading, 2) + &output::aligned(&table)))
}

/// Architecture closest to `standard` and the farthest one, or the likelihood of a `standard` alone.
fn headline(evaluated: &TextQuality) -> String {
    let is_reference = |case: &&ArchitectureQuality| {
        evaluated.reference.is_none() && case.architecture == Architecture::Standard
    };
    let distance = |case: &ArchitectureQuality| {
        let Quality { kl, agreement, .. } = case.quality;
        format!(
            "{} (KL {kl:.4}, same top token {:.1} % of the time)",
            case.architecture,
            100.0 * agreement
        )
    };
    let reference = evaluated.reference.as_deref().unwrap_or("standard");
    let mut others: Vec<&ArchitectureQuality> =
        evaluated.cases.iter().filter(|case| !is_reference(case)).collect();
    others.sort_by(|a, b| a.quality.kl.total_cmp(&b.quality.kl));
    match (&others[..], evaluated.cases.first()) {
        ([], None) => String::new(),
        ([], Some(case)) => {
            let Quality { nll, perplexity, .. } = case.quality;
            format!("{}: NLL {nll:.3} nats/token, perplexity {perplexity:.2}.", case.architecture)
        }
        ([one], _) => format!("Divergence from {reference}: {}.", distance(one)),
        ([closest, .., farthest], _) => {
            format!("Closest to {reference}: {}; farthest: {}.", distance(closest), distance(farthest))
        }
    }
}

/// A checkpoint and a text.
#[derive(Clone, Debug, clap::Args)]
pub struct TextArgs {
    /// HF checkpoint directory: config.json, safetensors, and tokenizer.json for --text
    #[arg(long, alias = "weights", value_name = "DIR")]
    pub model: PathBuf,
    /// Evaluation text, tokenized without special tokens
    #[arg(long, value_name = "FILE")]
    pub text: Option<PathBuf>,
    /// Evaluation text as token ids separated by whitespace, not tokenized
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    pub tokens_file: Option<PathBuf>,
    /// Tensor-parallel size used for evaluation
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub tp: u32,
    /// Tokens per window; windows do not overlap and are evaluated independently, a short last window is dropped
    #[arg(long, value_name = "TOKENS", default_value_t = 512, value_parser = clap::value_parser!(u32).range(2..))]
    pub context: u32,
    /// Use only the first LIMIT tokens of the text
    #[arg(long, value_name = "LIMIT", value_parser = clap::value_parser!(u32).range(1..))]
    pub tokens: Option<u32>,
    /// Weight format: f32, bf16, fp8 (computed in f32 on cpu), mxfp4 (cpu) [default: f32, or mxfp4 if stored so]
    #[arg(long)]
    pub dtype: Option<DType>,
    /// Backend: cpu, cuda
    #[arg(long, default_value = "cpu")]
    pub backend: Backend,
    /// Seed of random weights, if the directory has no weights
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

impl TextArgs {
    /// Backend that computes; `auto` is the cpu backend.
    pub fn backend(&self) -> Result<&'static dyn Execute> {
        match self.backend {
            Backend::Auto => evaluator(Backend::Cpu),
            named => evaluator(named),
        }
    }

    /// Evaluation request. Fails if no text is named.
    pub fn request(
        &self,
        model: Model,
        backend: &dyn Execute,
        architectures: Vec<Architecture>,
        comm_dtype: CommDType,
    ) -> Result<QualityRequest> {
        Ok(QualityRequest {
            text: text_of(&self.text, &self.tokens_file)?,
            dtype: self.dtype.unwrap_or_else(|| backend.generation_dtype(&model, self.tp, 1)),
            model,
            architectures,
            reference: None,
            tp: self.tp,
            comm_dtype,
            context: self.context as usize,
            limit: self.tokens.map(|limit| limit as usize),
            seed: self.seed,
            counts: true,
        })
    }
}

/// Text in words, else in token ids. Fails if no text is named.
pub(super) fn text_of(text: &Option<PathBuf>, tokens_file: &Option<PathBuf>) -> Result<TextSource> {
    let ids = || tokens_file.clone().map(TextSource::Ids);
    let text = text.clone().map(TextSource::Words).or_else(ids);
    text.ok_or_else(|| Error::input("no text: pass --text FILE or --tokens-file FILE"))
}

/// Model of a directory. Prints a note if its weights are random although the user may not expect it.
pub(super) fn model_of(dir: &Path, seed: u64) -> Result<Model> {
    if let Some(refused) = input::special_file_error(dir, "an HF directory") {
        return Err(refused);
    }
    if !dir.is_dir() {
        return Err(Error::input_help(
            format!("--model {}: no such directory", dir.display()),
            "pass an HF directory with config.json and safetensors",
        ));
    }
    // a directory takes precedence over a built-in shape of the same name
    let place = if dir.is_relative() { Path::new(".").join(dir) } else { dir.to_owned() };
    let named = if Model::is_built_in(&dir.to_string_lossy()) { &place } else { dir };
    let model = Model::resolve(&named.to_string_lossy())?;
    model.warnings.iter().for_each(|warning| stderr::warn(warning));
    if !model.has_weights {
        let dir = dir.display();
        stderr::warn(&format!("{dir} has no weights; using random ones from seed {seed}"));
    }
    Ok(model)
}
