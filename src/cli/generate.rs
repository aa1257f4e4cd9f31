//! `ladderscope generate --weights DIR`: greedy or sampled tokens from a checkpoint, on the cpu backend.

use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use serde_json::json;

use super::output::{self, Field, Format, FormatArgs, Rows};
use super::report;
use crate::backend::{GenerateRequest, Generated, cpu};
use crate::error::{Error, Result};
use crate::model::{DType, Model, Tokenizer, read_prompts};
use crate::plan::Architecture;

/// Arguments of `generate`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// An HF directory: config.json and safetensors
    #[arg(long, value_name = "DIR")]
    pub weights: PathBuf,
    /// A prompt, through the directory's tokenizer.json (repeatable)
    #[arg(long, value_name = "TEXT", required_unless_present = "prompt_tokens_file")]
    pub prompt: Vec<String>,
    /// A prompt a line, token ids separated by blanks, taken as they are
    #[arg(long, value_name = "FILE", conflicts_with = "prompt")]
    pub prompt_tokens_file: Option<PathBuf>,
    /// New tokens of each prompt
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    pub output_tokens: u32,
    /// Residual wiring (as in `run`) [default: the checkpoint's, else standard]
    #[arg(long)]
    pub architecture: Option<Architecture>,
    /// Ranks of tensor parallelism
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub tp: u32,
    /// Format of the weights: f32, bf16 (computed in f32)
    #[arg(long, default_value_t = DType::F32)]
    pub dtype: DType,
    /// Sample at this temperature instead of taking the likeliest token
    #[arg(long, value_parser = temperature)]
    pub temperature: Option<f32>,
    /// Sample among the K likeliest tokens
    #[arg(long, value_name = "K", requires = "temperature", value_parser = clap::value_parser!(u32).range(1..))]
    pub top_k: Option<u32>,
    /// Seed of sampling
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// End a sequence at the model's end-of-text token
    #[arg(long)]
    pub stop_at_eos: bool,
    #[command(flatten)]
    pub output: FormatArgs,
}

fn temperature(text: &str) -> Result<f32> {
    match text.parse::<f32>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        _ => Err(Error::input_help(
            format!("temperature '{text}' is not a number above 0"),
            "leave --temperature away for the likeliest token",
        )),
    }
}

/// Generates and prints.
pub fn run(args: &Args) -> Result<u8> {
    if !args.weights.is_dir() {
        return Err(Error::input_help(
            format!("--weights {}: no such directory", args.weights.display()),
            "name an HF directory with config.json and safetensors",
        ));
    }
    let model = Model::resolve(&args.weights.to_string_lossy())?;
    if !model.has_weights {
        report::warn(&format!("{} has no weights: they are random", args.weights.display()));
    }
    if let Some(problem) = model.shape.tp_problem(args.tp) {
        return Err(Error::input(problem));
    }
    let tokenizer = open_tokenizer(&args.weights)?;
    let prompts = prompts(args, &model, tokenizer.as_ref())?;
    let architecture = args.architecture.clone().unwrap_or_else(|| {
        model.ladder_layers.as_ref().map_or(Architecture::Standard, Architecture::from_ladder_layers)
    });
    if args.stop_at_eos && model.eos.is_empty() {
        report::warn("--stop-at-eos: the model's config names no end-of-text token");
    }
    let request = GenerateRequest {
        stop_at: if args.stop_at_eos { model.eos.clone() } else { Vec::new() },
        model,
        architecture,
        dtype: args.dtype,
        tp: args.tp,
        prompts,
        output_tokens: args.output_tokens,
        temperature: args.temperature,
        top_k: args.top_k,
        seed: args.seed,
    };
    let bar = if report::stderr_is_terminal() {
        ProgressBar::new(u64::from(args.output_tokens))
    } else {
        ProgressBar::hidden()
    };
    let generated = cpu::generate(&request, &mut |done| bar.set_position(done as u64));
    bar.finish_and_clear();
    let generated = generated?;
    let text = match &tokenizer {
        Some(tokenizer) => {
            generated.tokens.iter().map(|ids| tokenizer.decode(ids)).collect::<Result<Vec<_>>>()?
        }
        None => vec![String::new(); generated.tokens.len()],
    };
    print(&request, &generated, &text, args.output.format)?;
    Ok(0)
}

fn open_tokenizer(dir: &Path) -> Result<Option<Tokenizer>> {
    dir.join("tokenizer.json").exists().then(|| Tokenizer::open(dir)).transpose()
}

fn prompts(args: &Args, model: &Model, tokenizer: Option<&Tokenizer>) -> Result<Vec<Vec<u32>>> {
    if let Some(path) = &args.prompt_tokens_file {
        return read_prompts(path, model.shape.vocab);
    }
    let tokenizer = tokenizer.ok_or_else(|| {
        Error::input_help(
            format!(
                "--prompt needs {}, which is not there",
                args.weights.join("tokenizer.json").display()
            ),
            "give token ids with --prompt-tokens-file FILE",
        )
    })?;
    args.prompt
        .iter()
        .map(|text| {
            let ids = tokenizer.encode(text)?;
            match ids.iter().find(|id| **id >= model.shape.vocab) {
                _ if ids.is_empty() => Err(Error::input(format!("--prompt '{text}' has no tokens"))),
                Some(id) => Err(Error::input(format!(
                    "--prompt '{text}': the tokenizer gives id {id}, but the model's vocabulary has {} entries",
                    model.shape.vocab
                ))),
                None => Ok(ids),
            }
        })
        .collect()
}

fn print(
    request: &GenerateRequest,
    generated: &Generated,
    text: &[String],
    format: Format,
) -> Result<()> {
    match format {
        Format::Json => output::json_line(&json!({
            "prompt_tokens": request.prompts,
            "tokens": generated.tokens,
            "text": text,
            "top_logits": generated.top_logits.iter().map(|top| &top[..top.len().min(5)]).collect::<Vec<_>>(),
            "nll": generated.nll,
        })),
        Format::Csv | Format::Table => {
            let mut rows = Rows::new(["prompt", "prompt_tokens", "nll", "tokens", "text"]);
            for (index, tokens) in generated.tokens.iter().enumerate() {
                let ids = tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
                let text = text.get(index).filter(|text| !text.is_empty());
                rows.push(vec![
                    Field::Whole(index as u64),
                    Field::Whole(request.prompts.get(index).map_or(0, |p| p.len() as u64)),
                    Field::number(generated.nll.get(index).copied().flatten(), 4),
                    Field::text(ids),
                    text.map_or(Field::None, Field::text),
                ]);
            }
            if format == Format::Csv {
                return output::emit(&rows.csv());
            }
            // Long texts do not belong into columns.
            let mut out = String::new();
            for (index, tokens) in generated.tokens.iter().enumerate() {
                let nll = generated.nll.get(index).copied().flatten();
                let nll =
                    nll.map(|nll| format!(", {nll:.4} nats a token of its own")).unwrap_or_default();
                let length = request.prompts.get(index).map_or(0, Vec::len);
                out += &format!("prompt {index} ({length} tokens{nll})\n");
                match text.get(index).filter(|text| !text.is_empty()) {
                    Some(text) => out += &format!("{text}\n"),
                    None => {
                        out += &format!(
                            "{}\n",
                            tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
                        )
                    }
                }
            }
            output::emit(&out)
        }
    }
}
