//! Experiments: the available ones, files and built-in, and their answers, computed from the runs as they end.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use base::error::{Error, Result};
use base::input::InputKind;
use base::offer::Offer;
use lab::sweep::document::Document;
use lab::sweep::{BUILT_IN, Experiment, SweepEvent};
use run::GridContext;
use study::answer::{Answer, MOST_RUNS};
use table::Record;

/// Directory of the user's experiment files, below the current one.
pub const DIRECTORY: &str = "experiments";

/// Available experiment, possibly broken.
#[derive(Debug)]
pub struct AvailableExperiment {
    pub name: String,
    /// `None` if built in.
    pub path: Option<PathBuf>,
    /// Empty if the file cannot be read.
    pub text: String,
    pub experiment: Result<Experiment>,
}

impl AvailableExperiment {
    fn of_file(path: PathBuf, shared: &GridContext) -> Self {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let (text, experiment) = match InputKind::EXPERIMENT.text(&path) {
            Ok(text) => {
                let experiment = Experiment::resolve(&text, &path, None, shared);
                (text, experiment)
            }
            Err(error) => (String::new(), Err(error)),
        };
        Self { name, text, experiment, path: Some(path) }
    }

    fn of_built_in(name: &str, text: &str, shared: &GridContext) -> Self {
        let experiment = Experiment::resolve(text, Path::new(&format!("{name}.toml")), None, shared);
        Self { name: name.into(), path: None, text: text.into(), experiment }
    }
}

/// Loads the `*.toml` files of a directory, sorted, then the built-in experiments that no file overrides. A broken
/// file is an entry with its error. Returns an error if the directory exists and cannot be read.
pub fn available_experiments(dir: &Path) -> Result<Vec<AvailableExperiment>> {
    let mut paths = Vec::new();
    if dir.is_dir() {
        for entry in std::fs::read_dir(dir).map_err(Error::io(dir))? {
            paths.push(entry.map_err(Error::io(dir))?.path());
        }
    }
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    let shared = GridContext::default();
    let mut found: Vec<AvailableExperiment> =
        paths.into_par_iter().map(|path| AvailableExperiment::of_file(path, &shared)).collect();
    let hidden: HashSet<String> = found.iter().map(|experiment| experiment.name.clone()).collect();
    let built_in = BUILT_IN.into_par_iter().filter(|(name, _)| !hidden.contains(*name));
    // planning thousands of cells takes a while
    found.par_extend(built_in.map(|(name, text)| AvailableExperiment::of_built_in(name, text, &shared)));
    Ok(found)
}

/// Loads one of the available experiments; `None` if there is none of this name.
pub fn available_experiment(dir: &Path, name: &str) -> Option<AvailableExperiment> {
    let (path, shared) = (dir.join(format!("{name}.toml")), GridContext::default());
    if path.is_file() {
        return Some(AvailableExperiment::of_file(path, &shared));
    }
    let (name, text) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name)?;
    Some(AvailableExperiment::of_built_in(name, text, &shared))
}

/// Names of the available experiments; reads only the directory.
pub fn names(dir: &Path) -> Vec<Offer> {
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
    let name = |path: PathBuf| Some(path.file_stem()?.to_string_lossy().into_owned());
    let mut own: Vec<String> = files.filter_map(name).collect();
    own.sort();
    let mut names: Vec<Offer> = BUILT_IN.iter().map(|(name, _)| Offer::new(*name, "built in")).collect();
    names.retain(|offer| !own.contains(&offer.text));
    own.into_iter().map(|name| Offer::new(name, "")).chain(names).collect()
}

/// Question of an available experiment; the rest of its file may be invalid.
pub fn question(name: &str) -> Option<String> {
    let file = InputKind::EXPERIMENT.text(&Path::new(DIRECTORY).join(format!("{name}.toml")));
    let built_in = BUILT_IN.iter().find(|(built_in, _)| *built_in == name);
    let text = file.ok().or(built_in.map(|(_, text)| (*text).to_owned()))?;
    let document = Document::parse(&text, Path::new(name)).ok()?;
    document.get("question")?.values.first().cloned()
}

/// Collects the runs of a sweep from its events. Keeps none if there are more than [`MOST_RUNS`], so memory stays
/// bounded for large grids.
#[derive(Clone, Debug, Default)]
pub struct AnswerCollector {
    records: Vec<Record>,
    is_full: bool,
}

impl AnswerCollector {
    pub fn add(&mut self, event: &SweepEvent) {
        let (SweepEvent::CellSettled { record, .. } | SweepEvent::RunEnded { record, .. }) = event
        else {
            return;
        };
        if self.records.len() >= MOST_RUNS {
            (self.records, self.is_full) = (Vec::new(), true);
        }
        if self.is_full {
            return;
        }
        self.records.push(Record::clone(record).without_simulated_steps());
    }

    pub fn answers(self) -> Vec<Answer> {
        if self.is_full { Vec::new() } else { Answer::from_records(self.records) }
    }
}
