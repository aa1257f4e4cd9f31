//! Parses an experiment file into settings and axes, each checked on its own. [`super::experiment`] resolves their
//! combination (backend, dtype, feasibility).

mod tables;
mod values;

use std::fmt;
use std::ops::Range;
use std::path::Path;

use toml::de::DeTable;

use super::position::Source;
use super::quality::{Adapt, Evaluate};
use base::error::{Error, Result};
use model::Model;
use table::{CellOptions, Link, P2p};

pub(super) use values::MAX_ROUNDS;

const MAX_CELLS: usize = 100_000;

/// Target of a setting or an axis.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Name {
    Option(&'static str),
    /// Environment variable of the run's process.
    Env(String),
    /// Value of the hardware profile.
    Set(String),
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option(name) => f.write_str(name),
            Self::Env(name) => write!(f, "env.{name}"),
            Self::Set(name) => write!(f, "set.{name}"),
        }
    }
}

/// Value and its span in the text.
pub(super) type Placed = (String, Range<usize>);

/// Setting (one value) or axis (one or more).
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub name: Name,
    pub at: Range<usize>,
    pub values: Vec<Placed>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    pub question: Option<String>,
    pub rounds: Option<u32>,
    /// Settings shared by all cells.
    pub settings: Vec<Axis>,
    /// Axes of the grid, in file order; the first varies slowest.
    pub axes: Vec<Axis>,
    /// Links for P2P on and off.
    pub on: Option<Link>,
    pub off: Option<Link>,
    pub links: Range<usize>,
    pub evaluate: Option<Evaluate>,
    pub adapt: Option<Adapt>,
}

/// Parses an experiment's text. `path` appears in errors and is the base of relative paths in the text.
pub(super) fn parse(text: &str, path: &Path) -> Result<Draft> {
    let source = Source { path, text };
    let document = DeTable::parse(text).map_err(|e| {
        let message = e.message().lines().next().unwrap_or("not TOML").to_owned();
        source.error(e.span().unwrap_or(0..0), message, None)
    })?;
    let mut reader = Reader { source, draft: Draft::default() };
    reader.file(document.get_ref())?;
    reader.finish()
}

struct Reader<'a> {
    source: Source<'a>,
    draft: Draft,
}

impl Reader<'_> {
    /// Runs the checks that need the whole file.
    fn finish(self) -> Result<Draft> {
        self.check_links()?;
        let draft = self.draft;
        let set_link = draft.settings.iter().chain(&draft.axes).find(|a| a.name == Name::Option("link"));
        if let Some(link) = set_link
            && (draft.on.is_some() || draft.off.is_some())
        {
            let message = "link is set, but [links] already sets the links for p2p on and off";
            return Err(self.source.error(
                link.at.clone(),
                message,
                Some("remove one of the two".into()),
            ));
        }
        // checked before any cell is created
        let sizes = draft.axes.iter().map(|axis| (axis.values.len(), &axis.name));
        let at = draft.axes.first().map_or(0..0, |axis| axis.at.clone());
        check_size(&self.source, sizes, &at)?;
        Ok(draft)
    }
}

/// Returns an error if a grid with axes of these lengths has more than [`MAX_CELLS`] cells.
fn check_size<'a>(
    source: &Source<'_>,
    axes: impl Iterator<Item = (usize, &'a Name)> + Clone,
    at: &Range<usize>,
) -> Result<()> {
    let cells = axes.clone().map(|(length, _)| length as f64).product::<f64>();
    if cells <= MAX_CELLS as f64 {
        return Ok(());
    }
    let several = axes.filter(|(length, _)| *length > 1);
    let sizes: Vec<String> = several.map(|(length, name)| format!("{length} {name}")).collect();
    let message = format!(
        "the grid has {} = {} cells, more than {}",
        sizes.join(" x "),
        grouped(cells),
        grouped(MAX_CELLS as f64)
    );
    let help = "give an axis fewer values, or split the grid over several files";
    Err(source.error(at.clone(), message, Some(help.into())))
}

impl Reader<'_> {
    /// Returns an error if P2P on and off would run over links that are not comparable: an emulated and the native
    /// link, or the same link twice.
    fn check_links(&self) -> Result<()> {
        let draft = &self.draft;
        let of = |name: &'static str| {
            draft.axes.iter().chain(&draft.settings).find(|axis| axis.name == Name::Option(name))
        };
        let has = |wanted: P2p| match of("p2p") {
            Some(p2p) => p2p.values.iter().any(|(value, _)| value.parse().ok() == Some(wanted)),
            None => wanted == P2p::On,
        };
        let links = [(P2p::On, draft.on), (P2p::Off, draft.off)];
        if links.iter().any(|(_, link)| link.is_some())
            && let Some((missing, _)) = links.iter().find(|(p2p, link)| has(*p2p) && link.is_none())
        {
            let message = format!(
                "[links] has no link for P2P {}, which cells use: they would run over the native link, which is not \
                 comparable with the other",
                missing.as_str()
            );
            let help = "write both on and off in [links], or remove the table";
            return Err(self.source.error(draft.links.clone(), message, Some(help.into())));
        }
        let is_native = |link: Option<Link>| link == Some(Link::Native);
        if has(P2p::On) && has(P2p::Off) && is_native(draft.on) != is_native(draft.off) {
            let message = "one of the links for P2P on and off is native and the other emulated, and both are in the \
                           grid: their results are not comparable";
            let help = "write on and off both as native, or both as emulated links (p2p-on, p2p-off, emulated:...)";
            return Err(self.source.error(draft.links.clone(), message, Some(help.into())));
        }
        if has(P2p::On)
            && has(P2p::Off)
            && let Some(link) = of("link")
            && let Some((value, at)) =
                link.values.iter().find(|(value, _)| value.parse().ok() != Some(Link::Native))
        {
            let message =
                format!("link '{value}' is the same for P2P on and off, and both are in the grid");
            let help = "write a link for each in [links], as on and off, or run one P2P setting";
            return Err(self.source.error(at.clone(), message, Some(help.into())));
        }
        Ok(())
    }
}

impl Draft {
    /// Copy with another model in all cells. Returns an error if it is neither built in nor a directory.
    pub fn of_model(mut self, model: &str) -> Result<Self> {
        Model::resolve(model)?;
        let name = Name::Option("model");
        self.settings.retain(|setting| setting.name != name);
        self.axes.retain(|axis| axis.name != name);
        self.settings.push(Axis { name, at: 0..0, values: vec![(model.to_owned(), 0..0)] });
        Ok(self)
    }

    pub fn count(&self) -> usize {
        self.axes.iter().map(|axis| axis.values.len()).product()
    }

    /// Options of a cell, in file order; the last axis varies fastest.
    pub fn cell(&self, index: usize) -> Result<CellOptions> {
        let mut cell = CellOptions::default();
        for setting in &self.settings {
            if let Some((value, _)) = setting.values.first() {
                apply(&mut cell, &setting.name, value)?;
            }
        }
        let mut below = self.count();
        for axis in &self.axes {
            // axes are never empty, so the count is never 0
            below /= axis.values.len().max(1);
            if let Some((value, _)) = axis.values.get(index / below.max(1) % axis.values.len().max(1)) {
                apply(&mut cell, &axis.name, value)?;
            }
        }
        let link = match cell.p2p.unwrap_or(P2p::On) {
            P2p::On => self.on,
            P2p::Off => self.off,
        };
        cell.link = cell.link.or(link);
        Ok(cell)
    }
}

fn apply(cell: &mut CellOptions, name: &Name, value: &str) -> Result<(), Error> {
    match name {
        Name::Option(option) => cell.set_option(option, value)?,
        Name::Env(variable) => cell.env.push(format!("{variable}={value}")),
        Name::Set(key) => cell.set.push(format!("{key}={value}")),
    }
    Ok(())
}

/// Formats a whole number with thousands separators, or as a power of ten from 1e15.
fn grouped(number: f64) -> String {
    if number >= 1e15 {
        return format!("{number:.1e}");
    }
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
