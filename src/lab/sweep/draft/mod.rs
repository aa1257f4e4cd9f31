//! An experiment file's text as settings and axes, checked one by one. What the settings mean together
//! (backend, dtype, whether cells can run) is [`super::experiment`]'s.

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

/// More cells than anybody can want.
const MAX_CELLS: usize = 100_000;

/// What a setting or an axis sets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Name {
    /// An option of a cell.
    Option(&'static str),
    /// A variable of the run's process.
    Env(String),
    /// A value of the hardware profile.
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

/// A value and where it stands.
pub(super) type Placed = (String, Range<usize>);

/// One or, in an axis, several values of something.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub name: Name,
    /// Where the name stands.
    pub at: Range<usize>,
    pub values: Vec<Placed>,
}

/// An experiment file, each value of it checked.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    pub question: Option<String>,
    pub rounds: Option<u32>,
    /// What all cells share.
    pub settings: Vec<Axis>,
    /// What the grid varies, in file order; the first varies slowest.
    pub axes: Vec<Axis>,
    /// What p2p on and off mean.
    pub on: Option<Link>,
    pub off: Option<Link>,
    /// The place of `[links]` in the text.
    pub links: Range<usize>,
    /// On which text quality is evaluated.
    pub evaluate: Option<Evaluate>,
    /// How the cells' models are trained.
    pub adapt: Option<Adapt>,
}

/// Reads an experiment's text; `path` names it in errors and is what relative paths in it start from.
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

/// The draft of a file as far as it was read.
struct Reader<'a> {
    source: Source<'a>,
    draft: Draft,
}

impl Reader<'_> {
    /// What can only be checked when all was read.
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
        // counted before any cell is made
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
    /// Returns an error if P2P on and off would run over links that are not comparable: an emulated one beside the
    /// native one, or the same one twice.
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
    /// The same with all cells of another model; errors where it is neither built in nor a directory.
    pub fn of_model(mut self, model: &str) -> Result<Self> {
        Model::resolve(model)?;
        let name = Name::Option("model");
        self.settings.retain(|setting| setting.name != name);
        self.axes.retain(|axis| axis.name != name);
        self.settings.push(Axis { name, at: 0..0, values: vec![(model.to_owned(), 0..0)] });
        Ok(self)
    }

    /// Cells of the grid.
    pub fn count(&self) -> usize {
        self.axes.iter().map(|axis| axis.values.len()).product()
    }

    /// Options of a cell, in file order: the last axis varies fastest.
    pub fn cell(&self, index: usize) -> Result<CellOptions> {
        let mut cell = CellOptions::default();
        for setting in &self.settings {
            if let Some((value, _)) = setting.values.first() {
                apply(&mut cell, &setting.name, value)?;
            }
        }
        let mut below = self.count();
        for axis in &self.axes {
            // an axis has values, so that no count is 0
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

/// A whole number with its thousands apart; in powers of ten where nobody would count the digits.
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
