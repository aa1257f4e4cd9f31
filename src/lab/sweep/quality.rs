//! Sections `[evaluate]` and `[adapt]` of an experiment file: evaluation and training of the cells' models after the
//! cells have run.

use std::path::{Path, PathBuf};

/// Built-in text: paragraphs of this project's own documentation, which no model has memorized.
pub const OWN_TEXT: &str = include_str!("../../../experiments/text.txt");

/// Source of the tokens of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text {
    Own,
    /// Text file, tokenized by the checkpoint's `tokenizer.json` without special tokens.
    Words(PathBuf),
    /// File of token ids separated by blanks.
    Ids(PathBuf),
}

/// Evaluation of an experiment's models (`[evaluate]`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluate {
    /// Text to split into windows.
    pub text: Text,
    /// Tokens per window, at least 2.
    pub context: usize,
    /// Number of tokens used from the text; `None` for all.
    pub limit: Option<usize>,
}

/// Trainings of an experiment (`[adapt]`): one per seed and architecture of its cells.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapt {
    /// Training text, a part of which is held out.
    pub text: Text,
    /// Number of tokens used from the text; `None` for all.
    pub limit: Option<usize>,
    pub steps: u32,
    pub batch: u32,
    /// Predicted tokens per window.
    pub context: u32,
    /// Peak learning rate; `None` for the default of `adapt`.
    pub lr: Option<f64>,
    /// Weight of the KL to the unconverted model, relative to the token loss.
    pub distil: Option<f64>,
    /// True to train the whole model instead of only the converted layers.
    pub all_layers: bool,
    /// Seeds, one training each.
    pub seeds: Vec<u64>,
}

/// Default tokens per window.
pub const CONTEXT: usize = 512;

impl Text {
    /// Path of the file; only a name for the built-in text.
    pub fn path(&self) -> &Path {
        match self {
            Self::Own => Path::new("ladderscope-text"),
            Self::Words(path) | Self::Ids(path) => path,
        }
    }

    pub fn name(&self) -> String {
        self.path().file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}
