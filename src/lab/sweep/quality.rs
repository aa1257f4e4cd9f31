//! `[evaluate]` of an experiment file: on which text the quality of the cells' models is evaluated, once the cells
//! have run.

use std::path::{Path, PathBuf};

/// The text that comes with the program: paragraphs of its own documentation, so that no model has learned it by heart.
pub const OWN_TEXT: &str = include_str!("../../../experiments/text.txt");

/// Where the tokens of a text come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text {
    /// The text that comes with the program.
    Own,
    /// A file of text, which the checkpoint's `tokenizer.json` turns into tokens without special ones.
    Words(PathBuf),
    /// A file of token ids separated by blanks.
    Ids(PathBuf),
}

/// What an experiment says of its evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluate {
    /// The text that `[evaluate]` names, cut into windows of tokens.
    pub text: Text,
    /// Tokens of a window, at least 2.
    pub context: usize,
    /// How many of the text's tokens are used; all without.
    pub limit: Option<usize>,
}

/// What an experiment says of its trainings (`[adapt]`): a training for each seed and architecture of its cells.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapt {
    /// The text, a part of which is held out.
    pub text: Text,
    /// How many of the text's tokens are used; all without.
    pub limit: Option<usize>,
    /// Steps of a training.
    pub steps: u32,
    /// Windows of a step.
    pub batch: u32,
    /// Predicted tokens of a window.
    pub context: u32,
    /// The greatest learning rate; without, the default of `adapt`.
    pub lr: Option<f64>,
    /// How much KL to the unconverted model counts beside the tokens.
    pub distil: Option<f64>,
    /// Whether all of the model is trained, in place of the layers that are converted.
    pub all_layers: bool,
    /// Seeds, a training each.
    pub seeds: Vec<u64>,
}

/// Tokens of a window where nobody says how many.
pub const CONTEXT: usize = 512;

impl Text {
    /// The file of it; a name alone where it is the program's own.
    pub fn path(&self) -> &Path {
        match self {
            Self::Own => Path::new("ladderscope-text"),
            Self::Words(path) | Self::Ids(path) => path,
        }
    }

    /// The name of its file.
    pub fn name(&self) -> String {
        self.path().file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}
