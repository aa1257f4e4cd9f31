//! Experiments: files, and those built into the binary, with the cells of their grid and the feasibility of each.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::Cell;
use super::Grid;
use super::file::ExperimentFile;
use base::error::{Error, Result, nearest};
use base::input::InputKind;
use base::text::{counted, same_name};
use plan::division_problem;
use run::sim::Simulator;
use run::{GridContext, Resolve, feasibility};
use table::Spec;

/// Default rounds of a sweep with executed cells.
const ROUNDS: u32 = 3;

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../../experiments/", $name, ".toml")))),*]
    };
}

/// Names and texts of the built-in experiments, quickstart first.
pub const BUILT_IN: [(&str, &str); 19] = built_in![
    "quickstart",
    "p2p",
    "paper-70b",
    "paper-405b",
    "pipeline",
    "model-sizes",
    "collective",
    "staleness",
    "delayed",
    "micro-batches",
    "micro-by-latency",
    "sequence-parallel",
    "gain-by-latency",
    "quality",
    "rivals",
    "today",
    "moe",
    "farskip",
    "from-scratch",
];

/// Parsed and checked experiment with the cells of its grid.
#[derive(Clone, Debug, Default)]
pub struct Experiment {
    /// Stem of the file name, e.g. `quickstart`.
    pub name: String,
    /// Path of the file, whose directory is the base of relative paths in it.
    pub path: PathBuf,
    /// Question that the experiment asks, if given.
    pub question: Option<String>,
    pub text: String,
    pub rounds: u32,
    /// Evaluation of the quality of the cells' models, if any.
    pub evaluate: Option<Evaluate>,
    /// Training of the cells' models, if any.
    pub adapt: Option<Adapt>,
    /// Names of the grid's axes, in file order.
    pub axes: Vec<String>,
    /// Resolved cells (backend, dtype, links) in file order. Combinations that would run identically are one cell.
    pub cells: Vec<Cell>,
    /// Notes for the user: backends chosen by `auto` with the reason, options without effect, merged combinations, and
    /// profile values that set several links. Each appears once.
    pub notes: Vec<String>,
}

/// Key, cell and note of a combination of the grid.
type ResolvedCell = (String, Cell, Option<String>);

impl Experiment {
    /// Resolves every cell of an experiment's text. Relative paths in it start at `path`'s directory. Runs nothing.
    ///
    /// # Errors
    ///
    /// Returns an input error with file, line, column and nearest valid name.
    pub fn from_str(text: &str, path: &Path) -> Result<Self> {
        Self::resolve(text, path, None, &GridContext::default())
    }

    /// Checks each key and value of a text without planning its cells; fast enough for every key press.
    ///
    /// # Errors
    ///
    /// Fails like [`Experiment::from_str`], but not for what only the cells together make impossible.
    pub fn check(text: &str, path: &Path) -> Result<()> {
        ExperimentFile::parse(text, path).map(drop)
    }

    /// Reads a file, or a built-in experiment of that name if there is no file.
    ///
    /// # Errors
    ///
    /// Fails like [`Experiment::from_str`], if the file cannot be read, and for an unknown word, with the nearest name.
    pub fn open(path_or_name: &Path) -> Result<Self> {
        Self::open_on(path_or_name, None, &GridContext::default())
    }

    pub(super) fn grid<'a>(&'a self, simulator: &'a Simulator) -> Grid<'a> {
        Grid { cells: &self.cells, rounds: self.rounds, name: Some(&self.name), simulator }
    }

    /// Like [`Experiment::open`], with `model`, if given, in all cells in place of the file's, and on the machine that
    /// `shared` describes. Also fails for a model that is neither built in nor a directory, and for backend `auto` on
    /// another machine than this one.
    pub fn open_on(path: &Path, model: Option<&str>, shared: &GridContext) -> Result<Self> {
        let word = path.to_str().unwrap_or_default();
        let built_in = BUILT_IN.iter().find(|(name, _)| same_name(name, word));
        // `sweep moe --dir moe` creates a directory named like the experiment
        if path.exists() && !(path.is_dir() && built_in.is_some()) {
            return Self::resolve(&InputKind::EXPERIMENT.text(path)?, path, model, shared);
        }
        let Some((name, text)) = built_in else { return Err(not_found(path)) };
        Self::resolve(text, Path::new(&format!("{name}.toml")), model, shared)
    }

    /// Like [`Experiment::from_str`], with `model`, if given, in all cells, and on the machine that `shared` describes.
    pub fn resolve(text: &str, path: &Path, model: Option<&str>, shared: &GridContext) -> Result<Self> {
        if text.lines().all(|line| line.trim().is_empty() || line.trim().starts_with('#')) {
            return Err(Error::input_help(
                format!("{}: the experiment file is empty", path.display()),
                "add at least a model and a grid, for example:\n[model]\nname = \"llama-3-70b\"\n[grid]\narchitecture = \
                 [\"standard\", \"ladder\"]\ntp = [4, 8]",
            ));
        }
        let mut file = ExperimentFile::parse(text, path)?;
        if let Some(model) = model {
            file = file.of_model(model)?;
        }
        let resolved: Vec<Result<ResolvedCell, String>> = (0..file.count())
            .into_par_iter()
            .map(|index| {
                let (spec, note) = resolve_cell(&file, index, path, shared)?;
                if let Some(gpus) = file.gpus {
                    if gpus != spec.ranks() {
                        return Ok(None);
                    }
                    if let Some(problem) = division_problem(spec.tp, spec.ep, spec.dp) {
                        return Ok(Some(Err(problem)));
                    }
                }
                let feasibility = feasibility::assess_with(&spec, shared)
                    .map_err(|e| in_cell(path, &spec.label(), e))?;
                Ok(Some(Ok((spec.key(), Cell { spec, feasibility }, note))))
            })
            .filter_map(Result::transpose)
            .collect::<Result<_>>()?;
        let (divided, problems): (Vec<_>, Vec<_>) = resolved.into_iter().partition(Result::is_ok);
        let left_out = problems.len();
        let problem = problems.into_iter().find_map(Result::err);
        let resolved: Vec<_> = divided.into_iter().flatten().collect();
        let combinations = resolved.len();
        if let (0, Some(gpus)) = (combinations, file.gpus) {
            let why = problem.map_or(String::new(), |problem| format!(": {problem}"));
            return Err(Error::input_help(
                format!("{}: no combination of the grid has TP x PP x DP = {gpus}{why}", path.display()),
                "change gpus, or the values of tp, pp, ep and dp",
            ));
        }
        let (mut keys, mut seen) = (HashSet::new(), HashSet::new());
        let (mut cells, mut notes) = (Vec::new(), Vec::new());
        for (key, cell, note) in resolved {
            notes.extend(note.filter(|note| seen.insert(note.clone())));
            // cells that differ only in options that their backend ignores are the same
            if keys.insert(key) {
                cells.push(cell);
            }
        }
        notes.extend(problem.map(|problem| {
            format!("{} left out, such as: {problem}", counted(left_out, "combination"))
        }));
        notes.extend(merged(combinations, &cells).into_iter().chain(links_alike(&cells)));
        // simulations are deterministic
        let is_executed = cells.iter().any(|cell| !cell.spec.backend.is_simulated());
        Ok(Self {
            name: path.file_stem().map_or("experiment".into(), |s| s.to_string_lossy().into_owned()),
            path: path.to_owned(),
            question: file.question,
            text: text.to_owned(),
            rounds: file.rounds.unwrap_or(if is_executed { ROUNDS } else { 1 }),
            evaluate: file.evaluate,
            adapt: file.adapt,
            axes: file.axes.into_iter().map(|axis| axis.name).collect(),
            cells,
            notes,
        })
    }
}

/// Error for a missing file or unknown name, with the nearest one. A word without folder and extension counts as a name.
fn not_found(path: &Path) -> Error {
    let built_in = BUILT_IN.iter().map(|(name, _)| *name);
    if path.extension().is_none() && path.components().count() == 1 {
        return Error::unknown("experiment, or file,", &path.display().to_string(), built_in);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let beside = std::fs::read_dir(folder.unwrap_or(Path::new("."))).into_iter().flatten().flatten();
    let files =
        beside.map(|entry| entry.path()).filter(|path| path.extension() == Some("toml".as_ref()));
    let stem = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let files: Vec<String> = files.map(|path| stem(&path)).collect();
    let wanted = stem(path);
    let help = match nearest(&wanted, files.iter().map(String::as_str).chain(built_in.clone())) {
        Some(name) if files.iter().any(|file| file == name) => {
            format!("did you mean '{}'?", path.with_file_name(format!("{name}.toml")).display())
        }
        Some(name) => format!("did you mean the built-in experiment '{name}'?"),
        None => format!("built in: {}", built_in.collect::<Vec<_>>().join(", ")),
    };
    Error::input_help(format!("{}: no such file", path.display()), help)
}

/// Spec of one cell, with a note for the user if needed.
fn resolve_cell(
    file: &ExperimentFile,
    index: usize,
    path: &Path,
    shared: &GridContext,
) -> Result<(Spec, Option<String>)> {
    let options = file.cell(index)?;
    options.resolve_with(shared).map_err(|error| {
        let given = options
            .given()
            .filter(|option| matches!(option.name, "architecture" | "tp" | "batch" | "link"));
        let named =
            given.filter_map(|option| Some(format!("{} {}", option.name, option.asked(&options)?)));
        in_cell(path, &named.collect::<Vec<_>>().join(", "), error)
    })
}

/// Adds the cell to an error without a position in the file.
fn in_cell(path: &Path, cell: &str, error: Error) -> Error {
    match error {
        Error::Input { message, help } => {
            Error::Input { message: format!("{}: cell ({cell}): {message}", path.display()), help }
        }
        other => other,
    }
}

/// Note that combinations are one cell if they differ only in options without effect.
fn merged(combinations: usize, cells: &[Cell]) -> Option<String> {
    let same = combinations.saturating_sub(cells.len());
    (same > 0).then(|| {
        format!(
            "{same} of {} duplicate others, because the options that differ have no effect there; each runs once",
            counted(combinations, "cell")
        )
    })
}

/// Note that a profile value applies to the links of P2P on and off alike in a grid that compares them, with the keys
/// for a single link.
fn links_alike(cells: &[Cell]) -> Option<String> {
    let has_both = cells.iter().any(|cell| cell.spec.p2p != cells[0].spec.p2p);
    let is_set = |key: &&str| cells.iter().any(|cell| cell.spec.set.contains_key(*key));
    let key = ["link.alpha_us", "link.gb_s"].into_iter().filter(|_| has_both).find(is_set)?;
    let name = key.trim_start_matches("link.");
    Some(format!(
        "{key} changes the links of both P2P settings, so P2P off may look no slower; to change one, set \
         link.p2p_on.{name} or link.p2p_off.{name}"
    ))
}

/// Built-in text: paragraphs of this project's own documentation, which no model has memorized.
pub const OWN_TEXT: &str = include_str!("../../../experiments/text.txt");

/// Source of the tokens of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextSource {
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
    pub text: TextSource,
    /// Tokens per window, at least 2.
    pub context: usize,
    /// Number of tokens used from the text; `None` for all.
    pub limit: Option<usize>,
}

/// Trainings of an experiment (`[adapt]`): one per seed and architecture of its cells.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapt {
    /// Training text, a part of which is held out.
    pub text: TextSource,
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

impl TextSource {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_sets_both_links_where_p2p_is_compared_is_noted() {
        let notes = |key: &str, p2p: &str| {
            let text = format!(
                "backend = \"sim\"\nhardware = \"h100_sxm\"\n[model]\nname = \"llama-3-8b\"\n[workload]\ntp = 2\n\
                 [grid]\np2p = {p2p}\n[grid.set]\n\"{key}\" = [5, 20]\n"
            );
            Experiment::from_str(&text, Path::new("x.toml")).unwrap().notes.join("\n")
        };
        let both = notes("link.alpha_us", "[\"on\", \"off\"]");
        assert!(both.contains("set link.p2p_on.alpha_us or link.p2p_off.alpha_us"), "{both}");
        assert!(!notes("link.alpha_us", "[\"on\"]").contains("both P2P settings"));
        assert!(!notes("link.p2p_on.alpha_us", "[\"on\", \"off\"]").contains("both P2P settings"));
    }

    #[test]
    fn every_built_in_experiment_opens_by_name_and_asks_something() {
        for (name, _) in BUILT_IN {
            let experiment = Experiment::open(Path::new(name)).unwrap();
            assert_eq!(experiment.name, name);
            let otherwise = name.replace('-', "_").to_uppercase();
            assert_eq!(Experiment::open(Path::new(&otherwise)).unwrap().name, name);
            assert!(experiment.question.is_some() && !experiment.cells.is_empty());
        }
    }

    #[test]
    fn a_name_that_is_none_is_told_the_nearest() {
        let error = Experiment::open(Path::new("quickstrat")).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(format!("{error:?}").contains("did you mean 'quickstart'"), "{error:?}");
        let told = |path: &Path| format!("{:?}", Experiment::open(path).unwrap_err());
        let built_in = told(Path::new("p2q.toml"));
        assert!(built_in.contains("p2q.toml: no such file"), "{built_in}");
        assert!(built_in.contains("did you mean the built-in experiment 'p2p'"), "{built_in}");
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("mine-70b.toml"), "").unwrap();
        let beside = told(&dir.path().join("mine-7b.toml"));
        assert!(beside.contains("did you mean '") && beside.contains("/mine-70b.toml'"), "{beside}");
    }
}
