//! Experiment files: from text to the grid of cells that can or cannot run.

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

/// Rounds of a sweep that executes something, where the file does not say.
const ROUNDS: u32 = 3;

/// An experiment file, parsed and checked.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The file's stem: `quickstart`.
    pub name: String,
    /// The file of the text, from whose directory relative paths in it start.
    pub path: PathBuf,
    /// The question that the experiment asks, where the file says one.
    pub question: Option<String>,
    /// The text of the file.
    pub text: String,
    /// The model that was named in place of the file's, if one was.
    pub model: Option<String>,
    /// How often each cell is run, a pass over all cells after the other.
    pub rounds: u32,
    /// On which text the quality of the cells' models is evaluated, where the file says that it is.
    pub evaluate: Option<Evaluate>,
    /// How the cells' models are trained, where the file says that they are.
    pub adapt: Option<Adapt>,
    /// Names of the grid's axes, in file order.
    pub axes: Vec<String>,
    /// How many combinations of values the grid has.
    pub combinations: usize,
    /// The grid, resolved (backend, dtype, links), in file order; combinations that are run alike are one cell.
    pub cells: Vec<Cell>,
}

impl Experiment {
    /// Reads an experiment file and resolves every cell of its grid; nothing is run.
    ///
    /// # Errors
    ///
    /// The system's error where the file cannot be read; an input error with file, line and column of
    /// what is wrong in it, and with the nearest valid name.
    pub fn load(path: &Path) -> Result<Self> {
        Self::from_str(&read(path)?, path)
    }

    /// Like [`Experiment::load`], of a text that was read already (or is built in); relative paths in it
    /// start at `path`'s directory.
    ///
    /// # Errors
    ///
    /// An input error with line and column of what is wrong, and with the nearest valid name.
    pub fn from_str(text: &str, path: &Path) -> Result<Self> {
        Self::of_model(text, path, None, &Shared::default())
    }

    /// Like [`Experiment::from_str`], with all cells of another model than the text says, where one is named, and for
    /// the machine that `shared` is about.
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
        // an option that a backend does not read makes no other cell of it
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
            // a simulation gives the same numbers every time
            rounds: draft.rounds.unwrap_or(if executed { ROUNDS } else { 1 }),
            combinations,
            axes: draft.axes.iter().map(|axis| axis.name.to_string()).collect(),
            cells,
        })
    }

    /// What the user should know about how cells were resolved: which backend `auto` chose and why,
    /// options that have no effect. Asks the file's text again; each note once.
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

    /// What is to be known of the grid as a whole: that combinations are run once, or set links alike.
    pub fn remarks(&self) -> impl Iterator<Item = String> {
        self.run_once().into_iter().chain(self.links_alike())
    }

    /// That some combinations are one cell, if any are: what sets them apart has no effect on their backends.
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

    /// That a profile value is set for the links of P2P on and off alike where both are run, if one is; how
    /// to name one of the links.
    fn links_alike(&self) -> Option<String> {
        let key = self.sets_both_links()?;
        let name = key.trim_start_matches("link.");
        Some(format!(
            "{key} sets the links of P2P on and off alike, so that off may seem no slower; \
             link.p2p_on.{name} or link.p2p_off.{name} names one"
        ))
    }

    /// A profile value that is set for all links where P2P is compared.
    fn sets_both_links(&self) -> Option<&'static str> {
        let several = self.cells.iter().any(|cell| cell.spec.p2p != self.cells[0].spec.p2p);
        let set = |key: &&str| self.cells.iter().any(|cell| cell.spec.set.contains_key(*key));
        ["link.alpha_us", "link.gb_s"].into_iter().filter(|_| several).find(set)
    }
}

/// The text of an experiment file.
pub(super) fn read(path: &Path) -> Result<String> {
    InputKind::EXPERIMENT.text(path)
}

fn parse(text: &str, path: &Path, model: Option<&str>) -> Result<Draft> {
    let draft = draft::parse(text, path)?;
    model.map_or(Ok(draft.clone()), |model| draft.of_model(model))
}

/// The spec of one cell, and what the user should know about it.
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

/// An error that belongs to no single place of the file.
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
