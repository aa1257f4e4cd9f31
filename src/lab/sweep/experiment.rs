//! Experiment files: from text to the grid of cells, with the feasibility of each.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::draft::{self, Draft};
use super::{Adapt, Cell, Evaluate};
use base::error::{Error, Result};
use base::input::InputKind;
use base::text::counted;
use run::Resolve;
use run::{Shared, feasibility};
use table::Spec;

/// Default rounds of a sweep with executed cells.
const ROUNDS: u32 = 3;

/// Parsed and checked experiment file.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Stem of the file name, e.g. `quickstart`.
    pub name: String,
    /// Path of the file, whose directory is the base of relative paths in it.
    pub path: PathBuf,
    /// Question that the experiment asks, if given.
    pub question: Option<String>,
    pub text: String,
    /// Model that overrides the file's, if any.
    pub model: Option<String>,
    pub rounds: u32,
    /// Evaluation of the quality of the cells' models, if any.
    pub evaluate: Option<Evaluate>,
    /// Training of the cells' models, if any.
    pub adapt: Option<Adapt>,
    /// Names of the grid's axes, in file order.
    pub axes: Vec<String>,
    /// Number of value combinations in the grid.
    pub combinations: usize,
    /// Resolved cells (backend, dtype, links) in file order. Combinations that would run identically are one cell.
    pub cells: Vec<Cell>,
}

impl Experiment {
    /// Reads an experiment file and resolves every cell of its grid. Runs nothing.
    ///
    /// # Errors
    ///
    /// Returns the system's error if the file cannot be read, and an input error with file, line, column and nearest
    /// valid name if its contents are invalid.
    pub fn load(path: &Path) -> Result<Self> {
        Self::from_str(&read(path)?, path)
    }

    /// Like [`Experiment::load`], for a text already in memory. Relative paths in it start at `path`'s directory.
    ///
    /// # Errors
    ///
    /// Returns an input error with line, column and the nearest valid name.
    pub fn from_str(text: &str, path: &Path) -> Result<Self> {
        Self::of_model(text, path, None, &Shared::default())
    }

    /// Like [`Experiment::from_str`], with `model`, if given, in all cells, and for the machine described by
    /// `shared`.
    pub(super) fn of_model(
        text: &str,
        path: &Path,
        model: Option<&str>,
        shared: &Shared,
    ) -> Result<Self> {
        let draft = parse(text, path, model)?;
        let combinations = draft.count();
        let resolved: Vec<(String, Cell)> = (0..combinations)
            .into_par_iter()
            .map(|index| {
                let (spec, _) = resolve(&draft, index, path, shared)?;
                let feasibility =
                    feasibility::of_with(&spec, shared).map_err(|e| in_cell(path, &spec.label(), e))?;
                Ok((spec.key(), Cell { spec, feasibility }))
            })
            .collect::<Result<_>>()?;
        // cells that differ only in options that their backend ignores are the same
        let mut keys = HashSet::new();
        let new = resolved.into_iter().filter_map(|(key, cell)| keys.insert(key).then_some(cell));
        let cells: Vec<Cell> = new.collect();
        let executed = cells.iter().any(|cell| !cell.spec.backend.is_simulated());
        Ok(Self {
            name: path.file_stem().map_or("experiment".into(), |s| s.to_string_lossy().into_owned()),
            path: path.to_owned(),
            question: draft.question,
            text: text.to_owned(),
            model: model.map(str::to_owned),
            evaluate: draft.evaluate.clone(),
            adapt: draft.adapt.clone(),
            // simulations are deterministic
            rounds: draft.rounds.unwrap_or(if executed { ROUNDS } else { 1 }),
            combinations,
            axes: draft.axes.iter().map(|axis| axis.name.to_string()).collect(),
            cells,
        })
    }

    /// Notes about resolving the cells: the backend chosen by `auto` with the reason, and options without effect.
    /// Parses the text again; each note appears once.
    pub fn notes(&self) -> Result<Vec<String>> {
        let draft = parse(&self.text, &self.path, self.model.as_deref())?;
        let shared = Shared::default();
        let notes: Vec<Option<String>> = (0..draft.count())
            .into_par_iter()
            .map(|index| Ok(resolve(&draft, index, &self.path, &shared)?.1))
            .collect::<Result<_>>()?;
        let mut seen = HashSet::new();
        let notes = notes.into_iter().flatten().chain(self.remarks());
        Ok(notes.filter(|note| seen.insert(note.clone())).collect())
    }

    /// Remarks about the whole grid: merged combinations and shared link settings.
    pub fn remarks(&self) -> impl Iterator<Item = String> {
        self.run_once().into_iter().chain(self.links_alike())
    }

    /// Remark that combinations are one cell if they differ only in options without effect.
    fn run_once(&self) -> Option<String> {
        let same = self.combinations.saturating_sub(self.cells.len());
        (same > 0).then(|| {
            format!(
                "{same} of the grid's {} would be run as others of them, because what sets them apart has no effect \
                 there: each is run once",
                counted(self.combinations, "cell")
            )
        })
    }

    /// Remark that a profile value applies to the links of P2P on and off alike, with the keys for a single link.
    fn links_alike(&self) -> Option<String> {
        let key = self.sets_both_links()?;
        let name = key.trim_start_matches("link.");
        Some(format!(
            "{key} sets the links of P2P on and off alike, so that off may seem no slower; \
             link.p2p_on.{name} or link.p2p_off.{name} names one"
        ))
    }

    /// Profile value that is set for all links in a grid that compares P2P settings.
    fn sets_both_links(&self) -> Option<&'static str> {
        let several = self.cells.iter().any(|cell| cell.spec.p2p != self.cells[0].spec.p2p);
        let set = |key: &&str| self.cells.iter().any(|cell| cell.spec.set.contains_key(*key));
        ["link.alpha_us", "link.gb_s"].into_iter().filter(|_| several).find(set)
    }
}

pub(super) fn read(path: &Path) -> Result<String> {
    InputKind::EXPERIMENT.text(path)
}

fn parse(text: &str, path: &Path, model: Option<&str>) -> Result<Draft> {
    let draft = draft::parse(text, path)?;
    model.map_or(Ok(draft.clone()), |model| draft.of_model(model))
}

/// Spec of one cell, with a note for the user if needed.
fn resolve(draft: &Draft, index: usize, path: &Path, shared: &Shared) -> Result<(Spec, Option<String>)> {
    let options = draft.cell(index)?;
    options.resolve_with(shared).map_err(|e| {
        let of = |name: &str, value: Option<String>| value.map(|v| format!("{name} {v}"));
        let said = [
            of("architecture", options.architecture.as_ref().map(ToString::to_string)),
            of("tp", options.tp.map(|tp| tp.to_string())),
            of("batch", options.batch.map(|batch| batch.to_string())),
            of("link", options.link.map(|link| link.to_string())),
        ];
        let said: Vec<String> = said.into_iter().flatten().collect();
        in_cell(path, &said.join(", "), e)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_sets_both_links_where_p2p_is_compared_is_noted() {
        let text = |key: &str, p2p: &str| {
            format!(
                "backend = \"sim\"\nhardware = \"h100_sxm\"\n[model]\nname = \"llama-3-8b\"\n[workload]\ntp = 2\n\
                 [grid]\np2p = {p2p}\n[grid.set]\n\"{key}\" = [5, 20]\n"
            )
        };
        let notes = |key, p2p| {
            Experiment::from_str(&text(key, p2p), Path::new("x.toml"))
                .unwrap()
                .notes()
                .unwrap()
                .join("\n")
        };
        let both = notes("link.alpha_us", "[\"on\", \"off\"]");
        assert!(both.contains("link.p2p_on.alpha_us or link.p2p_off.alpha_us names one"), "{both}");
        assert!(!notes("link.alpha_us", "[\"on\"]").contains("alike"));
        assert!(!notes("link.p2p_on.alpha_us", "[\"on\", \"off\"]").contains("alike"));
    }
}
