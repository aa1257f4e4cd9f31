//! `ladderscope generate`: greedy or sampled tokens from a checkpoint or a model with random weights, on a CPU or on
//! GPUs.

use std::path::{Path, PathBuf};

use indicatif::ProgressBar;

use super::evaluate::model_of;
use super::output::{self, FormatArgs, OutputFormat};
use super::running::TimeoutArgs;
use super::stderr;
use base::error::{Error, Result};
use model::{ChatMessage, ChatTemplate, Model, Tokenizer, read_prompts};
use plan::{Architecture, CommDType, DType, Variant};
use run::{
    Execute, GenerateOptions, GenerateRequest, GenerationResult, GenerationStatus, choose_generator,
    generator,
};
use table::render::{Shown, Sourced, Table};
use table::{Backend, CellOptions, Provenance};

/// Arguments of `ladderscope generate`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// HF checkpoint directory (config.json, safetensors, and tokenizer.json for --prompt), or a built-in model shape
    /// with random weights, which needs --prompt-tokens-file
    #[arg(long, alias = "weights", value_name = "DIR|NAME")]
    pub model: String,
    /// Prompt, tokenized with the directory's tokenizer.json (repeatable)
    #[arg(long, value_name = "TEXT", required_unless_present = "prompt_tokens_file")]
    pub prompt: Vec<String>,
    /// Send each prompt as a user message through the directory's chat template
    #[arg(long, conflicts_with = "prompt_tokens_file")]
    pub chat: bool,
    /// System message before each prompt, with --chat
    #[arg(long, value_name = "TEXT", requires = "chat")]
    pub system: Option<String>,
    /// Prompts as token ids separated by whitespace, one prompt per line, not tokenized
    #[arg(long, value_name = "FILE", conflicts_with = "prompt")]
    pub prompt_tokens_file: Option<PathBuf>,
    /// Number of new tokens per prompt
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    pub output_tokens: u32,
    /// Architecture (as in `run`) [default: the checkpoint's, else standard]
    #[arg(long)]
    pub architecture: Option<Architecture>,
    /// Tensor-parallel size (ranks)
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub tp: u32,
    /// Ranks over which whole experts are divided; 1: each rank has a slice of every expert
    #[arg(long, value_name = "EP", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub ep: u32,
    /// Backend: auto, cpu, cuda
    #[arg(long, default_value = "auto")]
    pub backend: Backend,
    /// Weight format: f32, bf16, fp8 (computed in f32 on cpu), mxfp4 (cpu), f16 (cuda) [default: f32, or mxfp4 if
    /// stored so; on cuda the checkpoint's, else bf16]
    #[arg(long)]
    pub dtype: Option<DType>,
    /// Sampling temperature; without it, decoding is greedy
    #[arg(long, value_parser = temperature)]
    pub temperature: Option<f32>,
    /// Sample from the K most likely tokens
    #[arg(long, value_name = "K", requires = "temperature", value_parser = clap::value_parser!(u32).range(1..))]
    pub top_k: Option<u32>,
    /// Split each batch into M micro-batches with interleaved operations
    #[arg(long, value_name = "M", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub micro_batches: u32,
    /// Number format of all-reduce messages (partial sums): activations, f8, int8
    #[arg(long, value_name = "FORMAT", default_value = "activations")]
    pub comm_dtype: CommDType,
    /// Use sequence parallelism: reduce-scatter, norms on 1/TP of the rows, all-gather
    #[arg(long)]
    pub sequence_parallel: bool,
    /// Seed of sampling and of random weights
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Stop a sequence at the model's end-of-text token
    #[arg(long)]
    pub stop_at_eos: bool,
    /// Launch the operations of a cuda run one by one instead of replaying a CUDA graph
    #[arg(long)]
    pub no_graph: bool,
    #[command(flatten)]
    pub timeout: TimeoutArgs,
    #[command(flatten)]
    pub output: FormatArgs,
}

fn temperature(text: &str) -> Result<f32> {
    match text.parse::<f32>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        _ => Err(Error::input_help(
            format!("temperature '{text}' is not a number above 0"),
            "omit --temperature for greedy decoding",
        )),
    }
}

pub fn run(args: &Args) -> Result<u8> {
    let model = model(args)?;
    let architecture = architecture(args, &model)?;
    let tokenized = model.dir.as_deref().filter(|dir| dir.join("tokenizer.json").exists());
    let tokenizer = tokenized.map(Tokenizer::open).transpose()?;
    let prompts = prompts(args, &model, tokenizer.as_ref())?;
    if args.stop_at_eos && model.eos.is_empty() {
        stderr::warn("--stop-at-eos: the model's config names no end-of-text token");
    }
    let backend = backend(args, &model)?;
    let request = request(args, model, architecture, backend, prompts);
    let bar = match stderr::can_draw() {
        true => ProgressBar::new(u64::from(args.output_tokens)),
        false => ProgressBar::hidden(),
    };
    let mut on_token = |done: usize| bar.set_position(done as u64);
    let options = GenerateOptions { graph: !args.no_graph, timeout: args.timeout.duration() };
    let mut on_message = |message: GenerationStatus<'_>| match message {
        GenerationStatus::Note(note) => bar.suspend(|| stderr::note(note)),
        GenerationStatus::Phase(phase) => bar.set_message(phase.to_owned()),
    };
    let generated = backend.generate(&request, &options, &mut on_token, &mut on_message);
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

/// Backend that the user names, else the best one for the model.
fn backend(args: &Args, model: &Model) -> Result<&'static dyn Execute> {
    let backend = match args.backend {
        Backend::Auto => {
            let (backend, why) = choose_generator(model, args.dtype)?;
            stderr::note(&format!("backend {}: {why}", backend.name().as_str()));
            backend
        }
        named => generator(named)?,
    };
    let graphs = CellOptions { no_graph: Some(args.no_graph), ..CellOptions::default() };
    if args.no_graph && backend.asked_for(&graphs).is_empty() {
        stderr::note("--no-graph only matters on cuda");
    }
    match backend.lacks_shape(&model.shape) {
        Some(why) => Err(Error::input(why)),
        None => Ok(backend),
    }
}

/// Architecture that the user names, else the checkpoint's. Returns an input error if it does not fit the model or TP.
fn architecture(args: &Args, model: &Model) -> Result<Architecture> {
    let named = args.architecture.as_ref().or(model.wiring.as_ref());
    let architecture = named.cloned().unwrap_or(Architecture::Standard);
    let problem = model
        .shape
        .tp_problem(args.tp)
        .or_else(|| architecture.model_problem(&model.shape, args.tp))
        .or_else(|| model.shape.expert_problem(args.tp, args.ep, 1));
    problem.map_or(Ok(architecture), |problem| Err(Error::input(problem)))
}

fn request(
    args: &Args,
    model: Model,
    architecture: Architecture,
    backend: &dyn Execute,
    prompts: Vec<Vec<u32>>,
) -> GenerateRequest {
    GenerateRequest {
        architecture,
        dtype: args.dtype.unwrap_or_else(|| backend.generation_dtype(&model, args.tp, args.ep)),
        stop_at: if args.stop_at_eos { model.eos.clone() } else { Vec::new() },
        model,
        tp: args.tp,
        prompts,
        output_tokens: args.output_tokens,
        temperature: args.temperature,
        top_k: args.top_k,
        seed: args.seed,
        variant: Variant {
            micro_batches: args.micro_batches,
            comm_dtype: args.comm_dtype,
            sequence_parallel: args.sequence_parallel,
            ep: args.ep,
            ..Variant::default()
        },
    }
}

/// Model of a directory, or else a built-in shape. Prints a note if a directory has no weights.
fn model(args: &Args) -> Result<Model> {
    let dir = Path::new(&args.model);
    match Model::is_built_in(&args.model) && !dir.exists() {
        true => Model::resolve(&args.model),
        false => model_of(dir, args.seed),
    }
}

fn prompts(args: &Args, model: &Model, tokenizer: Option<&Tokenizer>) -> Result<Vec<Vec<u32>>> {
    if let Some(path) = &args.prompt_tokens_file {
        return read_prompts(path, model.shape.vocab);
    }
    let tokenizer = tokenizer.ok_or_else(|| {
        Error::input_help(
            match &model.dir {
                Some(dir) => format!(
                    "--prompt needs {}, which is not there",
                    dir.join("tokenizer.json").display()
                ),
                None => "--prompt needs a tokenizer, which a built-in shape does not have".into(),
            },
            "pass token ids with --prompt-tokens-file FILE",
        )
    })?;
    let template = model.dir.as_deref().filter(|_| args.chat).map(ChatTemplate::open).transpose()?;
    let encode = |text: &String| match &template {
        None => tokenizer.encode(text),
        Some(template) => {
            let system = args.system.as_ref().map(|content| ChatMessage { role: "system", content });
            let user = ChatMessage { role: "user", content: text };
            let messages: Vec<ChatMessage<'_>> = system.into_iter().chain([user]).collect();
            // the template contains its own special tokens
            tokenizer.encode_plain(&template.render(&messages)?)
        }
    };
    args.prompt
        .iter()
        .map(|text| {
            let ids = encode(text)?;
            match ids.iter().find(|id| **id >= model.shape.vocab) {
                _ if ids.is_empty() => Err(Error::input(format!("--prompt '{text}' has no tokens"))),
                Some(id) => Err(Error::input(format!(
                    "--prompt '{text}': the tokenizer produced id {id}, but the model's vocabulary has {} entries",
                    model.shape.vocab
                ))),
                None => Ok(ids),
            }
        })
        .collect()
}

/// Output in JSON; every list has one entry per prompt.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub struct PrintedGeneration<'a> {
    /// Token ids of the prompts.
    prompt_tokens: &'a [Vec<u32>],
    /// Ids of the new tokens.
    tokens: &'a [Vec<u32>],
    /// New tokens as text; empty without a tokenizer.
    text: &'a [String],
    /// Five most likely tokens after the prompt, with logits.
    top_logits: Vec<&'a [(u32, f32)]>,
    /// Mean negative log-likelihood of the prompt's tokens (nats per token); null for prompts of one token.
    nll: &'a [Option<f64>],
}

fn print(
    request: &GenerateRequest,
    generated: &GenerationResult,
    text: &[String],
    format: OutputFormat,
) -> Result<()> {
    if format == OutputFormat::Json {
        return output::json_line(&PrintedGeneration {
            prompt_tokens: &request.prompts,
            tokens: &generated.tokens,
            text,
            top_logits: generated.top_logits.iter().map(|top| &top[..top.len().min(5)]).collect(),
            nll: &generated.nll,
        });
    }
    let mut rows = Table::new(["prompt", "prompt_tokens", "nll", "tokens", "text"]);
    // long texts do not fit into columns
    let mut blocks = String::new();
    for (index, tokens) in generated.tokens.iter().enumerate() {
        let length = request.prompts.get(index).map_or(0, Vec::len);
        let nll = generated.nll.get(index).copied().flatten();
        let ids = tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        let text = text.get(index).filter(|text| !text.is_empty());
        let in_words = nll.map(|nll| format!(", NLL {nll:.4} nats/token")).unwrap_or_default();
        blocks += &format!("prompt {index} ({length} tokens{in_words})\n{}\n", text.unwrap_or(&ids));
        let text = text.map_or(Shown::None, Shown::text);
        rows.push(vec![index.into(), length.into(), Shown::number(nll, 4), ids.into(), text]);
    }
    match format {
        OutputFormat::Csv => output::emit(&rows.csv(Sourced::All(Provenance::Measured))),
        _ => output::emit(&blocks),
    }
}
