//! Experiments embedded in the binary, which can be run anywhere by name.

use std::path::Path;

use super::Experiment;
use base::error::{Error, Result, nearest};
use base::text::same_name;
use run::Shared;

/// Names and texts, quickstart first.
pub const BUILT_IN: [(&str, &str); 15] = [
    ("quickstart", include_str!("../../../experiments/quickstart.toml")),
    ("p2p", include_str!("../../../experiments/p2p.toml")),
    ("paper-70b", include_str!("../../../experiments/paper-70b.toml")),
    ("paper-405b", include_str!("../../../experiments/paper-405b.toml")),
    ("model-sizes", include_str!("../../../experiments/model-sizes.toml")),
    ("collective", include_str!("../../../experiments/collective.toml")),
    ("staleness", include_str!("../../../experiments/staleness.toml")),
    ("delayed", include_str!("../../../experiments/delayed.toml")),
    ("micro-batches", include_str!("../../../experiments/micro-batches.toml")),
    ("micro-by-latency", include_str!("../../../experiments/micro-by-latency.toml")),
    ("sequence-parallel", include_str!("../../../experiments/sequence-parallel.toml")),
    ("gain-by-latency", include_str!("../../../experiments/gain-by-latency.toml")),
    ("quality", include_str!("../../../experiments/quality.toml")),
    ("rivals", include_str!("../../../experiments/rivals.toml")),
    ("from-scratch", include_str!("../../../experiments/from-scratch.toml")),
];

impl Experiment {
    /// Reads a file, or a built-in experiment of that name if there is no file. Fails like [`Experiment::load`], and
    /// for an unknown word, with the nearest name.
    pub fn open(path_or_name: &Path) -> Result<Self> {
        Self::open_with(path_or_name, None)
    }

    /// Like [`Experiment::open`], but with `model`, if given, in all cells in place of the file's. Also fails for a
    /// model that is neither built in nor a directory.
    pub fn open_with(path_or_name: &Path, model: Option<&str>) -> Result<Self> {
        Self::open_on(path_or_name, model, &Shared::default())
    }

    /// Like [`Experiment::open_with`], for cells that run on another machine: the GPUs and memory of this one do not
    /// limit what can run. Also fails for cells with backend `auto`.
    pub fn open_elsewhere(path_or_name: &Path, model: Option<&str>) -> Result<Self> {
        Self::open_on(path_or_name, model, &Shared::elsewhere())
    }

    fn open_on(path_or_name: &Path, model: Option<&str>, shared: &Shared) -> Result<Self> {
        let word = path_or_name.to_str().unwrap_or_default();
        let named = BUILT_IN.iter().find(|(name, _)| same_name(name, word));
        match named {
            Some((name, text)) if !path_or_name.exists() => {
                Self::of_model(text, Path::new(&format!("{name}.toml")), model, shared)
            }
            // a word that is not a file counts as a name
            _ if !path_or_name.exists() && is_word(path_or_name) => {
                let wrong = path_or_name.display().to_string();
                let names = BUILT_IN.iter().map(|(name, _)| *name);
                Err(Error::unknown("experiment, or file,", &wrong, names))
            }
            _ if !path_or_name.exists() => Err(no_file(path_or_name)),
            _ => Self::of_model(&super::experiment::read(path_or_name)?, path_or_name, model, shared),
        }
    }
}

/// Error for a missing file, with the nearest file or built-in experiment.
fn no_file(path: &Path) -> Error {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let beside = std::fs::read_dir(folder.unwrap_or(Path::new("."))).into_iter().flatten().flatten();
    let files =
        beside.map(|entry| entry.path()).filter(|path| path.extension() == Some("toml".as_ref()));
    let stem = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let files: Vec<String> = files.map(|path| stem(&path)).collect();
    let built_in = BUILT_IN.iter().map(|(name, _)| *name);
    let wanted = stem(path);
    let names = || files.iter().map(String::as_str).chain(built_in.clone());
    let help = match nearest(&wanted, names()) {
        Some(name) if files.iter().any(|file| file == name) => {
            format!("did you mean '{}'?", path.with_file_name(format!("{name}.toml")).display())
        }
        Some(name) => format!("did you mean the built-in experiment '{name}'?"),
        None => format!("built in: {}", built_in.clone().collect::<Vec<_>>().join(", ")),
    };
    Error::input_help(format!("{}: there is no such file", path.display()), help)
}

/// True if a path could be an experiment's name: no folder, no extension.
fn is_word(path: &Path) -> bool {
    path.extension().is_none() && path.components().count() == 1
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(built_in.contains("p2q.toml: there is no such file"), "{built_in}");
        assert!(built_in.contains("did you mean the built-in experiment 'p2p'"), "{built_in}");
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("mine-70b.toml"), "").unwrap();
        let beside = told(&dir.path().join("mine-7b.toml"));
        assert!(beside.contains("did you mean '") && beside.contains("/mine-70b.toml'"), "{beside}");
    }
}
