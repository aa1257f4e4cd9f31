//! Options of every verb that measures quality: checkpoint, text, and windows.

use std::path::{Path, PathBuf};

use super::report;
use crate::desk::evaluate::{Asked, Text};
use base::error::{Error, Result};
use base::regular;
use model::Model;
use plan::{Architecture, CommDType, DType};
use run::{Evaluate, evaluator};
use table::Backend;

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
    /// Weight format: f32, bf16, fp8 (computed in f32 on cpu) [default: f32]
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
    pub fn backend(&self) -> Result<&'static dyn Evaluate> {
        match self.backend {
            Backend::Auto => evaluator(Backend::Cpu),
            named => evaluator(named),
        }
    }

    /// Model of the directory. Prints a note if its weights are random although the user may not expect it.
    pub fn model(&self) -> Result<Model> {
        model_of(&self.model, self.seed)
    }

    /// Evaluation request. Fails if no text is named.
    pub fn asked(
        &self,
        model: Model,
        backend: &dyn Evaluate,
        architectures: Vec<Architecture>,
        comm_dtype: CommDType,
    ) -> Result<Asked> {
        let ids = || self.tokens_file.clone().map(Text::Ids);
        let text = self.text.clone().map(Text::Words).or_else(ids);
        Ok(Asked {
            text: text.ok_or_else(|| Error::input("no text: pass --text FILE or --tokens-file FILE"))?,
            dtype: self.dtype.unwrap_or_else(|| backend.generation_dtype(&model)),
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

/// Model of a directory. Prints a note if its weights are random although the user may not expect it.
pub(super) fn model_of(dir: &Path, seed: u64) -> Result<Model> {
    if let Some(refused) = regular::refused(dir, "an HF directory") {
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
    model.warnings.iter().for_each(|warning| report::warn(warning));
    if !model.has_weights {
        let dir = dir.display();
        report::warn(&format!("{dir} has no weights; using random ones from seed {seed}"));
    }
    Ok(model)
}
