//! Fields of a run, in CSV order: options, measures, and other contents of its record. A field is a
//! column of run tables, a name on the command line, in files and in filters, and an accessor of
//! records.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::options::{OPTIONS, OptionEntry, OptionKind};
use super::{IntervalColumns, MEASURES, Measure, MeasureScope, Record, host};
use base::text::same_name;

/// Handling of a column in free-text search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldSearch {
    Never,
    /// Matches the text as typed.
    Words,
    /// Matches from the start of one of its parts: an id.
    Id,
    /// Matches the text as typed or as a subsequence: `upb` finds `upper-bound`.
    Letters,
}

/// Accessor of a column's value.
#[derive(Clone, Copy)]
pub enum FieldSource {
    Text(fn(&Record) -> Option<Cow<'_, str>>),
    Number(fn(&Record) -> Option<f64>),
    Option(&'static OptionEntry),
    Measure(&'static Measure),
    /// Bound of an interval: 0 for the lower, 1 for the upper.
    End(IntervalColumns, usize),
    /// Experiment whose sweep ran it, and experiments that reused it from the store.
    Experiments,
    Tags,
    Note,
    /// Difference from the other runs of its experiment; needs all of them.
    Setting,
    /// Environment variable or override, by name.
    Variable,
    Override,
}

impl std::fmt::Debug for FieldSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Source")
    }
}

#[derive(Clone, Debug)]
pub struct Field {
    /// Key in files and on the command line, including the unit.
    pub name: Cow<'static, str>,
    /// Shorter names; the first is the preferred one.
    pub aliases: &'static [&'static str],
    /// Column header on screen.
    pub title: Cow<'static, str>,
    pub unit: Unit,
    pub searched: FieldSearch,
    pub source: FieldSource,
}

impl Field {
    /// Underlying option, if its values may need 64 bits.
    pub fn large_option(&self) -> Option<&'static OptionEntry> {
        match self.source {
            FieldSource::Option(option) if option.kind == OptionKind::Large => Some(option),
            _ => None,
        }
    }

    /// Preferred name to type: the first alias, else the name.
    pub fn short(&self) -> &str {
        self.aliases.first().copied().unwrap_or(&self.name)
    }

    /// Text value in a record; `None` for numbers, tags and notes (these are not part of records).
    pub fn text<'a>(&self, record: &'a Record) -> Option<Cow<'a, str>> {
        let entry =
            |map: &'a BTreeMap<String, String>| Some(map.get(self.title.as_ref())?.as_str().into());
        match self.source {
            FieldSource::Text(get) => get(record),
            FieldSource::Experiments => record.experiment.as_deref().map(Cow::from),
            FieldSource::Option(option) => Some(option.text(&record.spec)),
            FieldSource::Variable => entry(&record.spec.env),
            FieldSource::Override => entry(&record.spec.set),
            _ => None,
        }
    }

    /// Numeric value in a record, in the field's unit; `None` if it depends on other runs.
    pub fn number(&self, record: &Record) -> Option<f64> {
        match self.source {
            FieldSource::Number(get) => get(record),
            FieldSource::Option(option) => option.number(&record.spec).map(|number| number as f64),
            FieldSource::Measure(measure) => measure.of(record),
            FieldSource::End(interval, end) => interval.of(record).map(|ends| ends[end]),
            _ => None,
        }
    }

    /// True for fields created from a variable of some run (`env.NAME`, `set.NAME`).
    pub fn is_dynamic(&self) -> bool {
        matches!(self.name, Cow::Owned(_))
    }

    pub fn is_measure(&self) -> bool {
        matches!(self.source, FieldSource::Measure(_) | FieldSource::End(..))
    }

    /// True for values added after the record was written.
    pub fn is_added(&self) -> bool {
        matches!(self.source, FieldSource::Tags | FieldSource::Note | FieldSource::Experiments)
    }

    /// True if the record alone determines the value, without additions or other runs.
    pub fn is_of_record(&self) -> bool {
        let of_runs =
            matches!(self.source, FieldSource::Measure(measure) if measure.scope == MeasureScope::Runs);
        !of_runs && !self.is_added() && !matches!(self.source, FieldSource::Setting)
    }

    /// True if `name` is the field's name or alias.
    pub fn is(&self, name: &str) -> bool {
        same_name(&self.name, name) || self.aliases.iter().any(|alias| same_name(alias, name))
    }

    /// Field of an environment variable set for a run: `env.NAME`.
    pub fn variable(name: &str) -> Self {
        Self::dynamic("env", name, FieldSource::Variable)
    }

    /// Field of a hardware override: `set.NAME`.
    pub fn setting(name: &str) -> Self {
        Self::dynamic("set", name, FieldSource::Override)
    }

    fn dynamic(prefix: &str, name: &str, source: FieldSource) -> Self {
        Self {
            name: format!("{prefix}.{name}").into(),
            aliases: &[],
            title: name.to_owned().into(),
            unit: Unit::Text,
            searched: FieldSearch::Never,
            source,
        }
    }
}

fn field(
    name: &'static str,
    aliases: &'static [&'static str],
    title: &'static str,
    unit: Unit,
    searched: FieldSearch,
    source: FieldSource,
) -> Field {
    Field { name: name.into(), aliases, title: title.into(), unit, searched, source }
}

fn text(
    name: &'static str,
    aliases: &'static [&'static str],
    searched: FieldSearch,
    get: fn(&Record) -> Option<Cow<'_, str>>,
) -> Field {
    field(name, aliases, name, Unit::Text, searched, FieldSource::Text(get))
}

/// All fields that every run has, in CSV order.
pub fn fields() -> Vec<Field> {
    use FieldSearch::{Id, Letters, Never, Words};
    let mut fields = vec![
        text("run", &["id"], Id, |r| Some(r.run.as_str().into())),
        text("status", &[], Letters, |r| Some(r.status.as_str().into())),
        text("provenance", &["source", "prov"], Letters, |r| Some(r.provenance.as_str().into())),
    ];
    fields.extend(OPTIONS.iter().map(of_option));
    // counts from 1, as on the live screen; records and files of batches count from 0
    let round = FieldSource::Number(|r| Some((r.round + 1).into()));
    fields.push(field("round", &[], "round", Unit::Count, Never, round));
    fields.extend(MEASURES.iter().flat_map(of_measure));
    fields.extend([
        text("env", &[], Letters, |r| pairs(&r.spec.env)),
        text("set", &[], Letters, |r| pairs(&r.spec.set)),
        field("experiment", &["exp"], "experiment", Unit::Names, Letters, FieldSource::Experiments),
        text("created", &["date"], Never, |r| {
            Some(r.created.as_str().into()).filter(|c: &Cow<'_, str>| !c.is_empty())
        }),
        text("trace", &[], Never, |r| r.trace.as_deref().map(Cow::from)),
        text("reason", &["why"], Words, |r| r.reason.as_deref().map(Cow::from)),
        text("quality", &[], Never, |r| Some(r.quality.as_ref()?.full_basis().into())),
        text("warnings", &[], Words, |r| (!r.warnings.is_empty()).then(|| r.warnings.join("; ").into())),
        field("tags", &["tag"], "tags", Unit::Words, Letters, FieldSource::Tags),
        field("note", &[], "note", Unit::Text, Words, FieldSource::Note),
        field("setting", &[], "differs in", Unit::Text, Words, FieldSource::Setting),
        // empty for simulations, which do not depend on the host
        text("host", &[], Letters, |r| host(r).map(Cow::from)),
        // `tp8 b16 p2p-on`, so that labels shown elsewhere can be searched for
        text("cell", &[], Words, |r| Some(r.spec.place_label().into())),
    ]);
    fields
}

fn of_option(option: &'static OptionEntry) -> Field {
    let (unit, searched) = match option.kind {
        OptionKind::Count | OptionKind::Large => (Unit::Count, FieldSearch::Never),
        _ if !option.about.is_searched => (Unit::Text, FieldSearch::Never),
        _ => (Unit::Text, FieldSearch::Letters),
    };
    field(option.name, option.about.aliases, option.title(), unit, searched, FieldSource::Option(option))
}

/// Columns of a measure and its interval bounds.
fn of_measure(measure: &'static Measure) -> Vec<Field> {
    let Measure { name, aliases, title, unit, .. } = *measure;
    let mut fields =
        vec![field(name, aliases, title, unit, FieldSearch::Never, FieldSource::Measure(measure))];
    if let Some((interval, names)) = measure.interval.and_then(|i| Some((i, i.names?))) {
        let bare = title.trim_end_matches(unit.symbol()).trim_end();
        for (end, (name, which)) in names.into_iter().zip(["low", "high"]).enumerate() {
            let bound = field(name, &[], "", unit, FieldSearch::Never, FieldSource::End(interval, end));
            fields.push(Field { title: format!("{bare} {which}").into(), ..bound });
        }
    }
    fields
}

fn pairs(map: &BTreeMap<String, String>) -> Option<Cow<'_, str>> {
    let pair = |(key, value): (&String, &String)| format!("{key}={value}");
    (!map.is_empty()).then(|| map.iter().map(pair).collect::<Vec<_>>().join(" ").into())
}

/// Value type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Single text, such as a name.
    Text,
    Words,
    /// Comma-separated names, which may contain spaces.
    Names,
    /// Count, without decimals.
    Count,
    Ms,
    /// Bytes, displayed as GB of 1e9.
    Bytes,
    /// Percent: 62.5 is 62.5 %.
    Percent,
    /// Ratio displayed as percent: 0.625 is 62.5 %.
    Share,
    /// Ratio displayed as is.
    Factor,
    Rate,
    Nats,
}

impl Unit {
    pub fn is_number(self) -> bool {
        !matches!(self, Self::Text | Self::Words | Self::Names)
    }

    /// Separator of multiple values in a text; `None` for single values.
    pub fn separator(self) -> Option<&'static str> {
        match self {
            Self::Words => Some(" "),
            Self::Names => Some(", "),
            _ => None,
        }
    }

    pub fn is_whole(self) -> bool {
        matches!(self, Self::Count | Self::Bytes)
    }

    /// Unit symbol after a number; empty if the column name implies it.
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Ms => "ms",
            Self::Bytes => "bytes",
            Self::Percent => "%",
            Self::Nats => "nats",
            _ => "",
        }
    }

    /// Unit name in files for other programs.
    pub const fn in_files(self) -> &'static str {
        match self {
            Self::Rate => "tokens/s",
            Self::Share | Self::Factor => "ratio",
            Self::Count => "count",
            _ => self.symbol(),
        }
    }

    pub const fn decimals(self) -> usize {
        match self {
            Self::Text | Self::Words | Self::Names | Self::Count | Self::Bytes => 0,
            Self::Percent | Self::Rate => 1,
            Self::Ms | Self::Share | Self::Factor => 3,
            Self::Nats => 4,
        }
    }
}
