//! All that can be said of a run, in the order of CSV files: its options, its measures and what its record
//! says beside them. A field is a column of tables of runs, a name on the command line, in files and in
//! filters, and a way to read a record.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base::text::same_name;

use super::options::{Kind, OPTIONS, OptionEntry};
use super::{Interval, MEASURES, Measure, Record, Scope, Unit, host};

/// Whether words of a filter are looked for in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// Words are not looked for in the column.
    Never,
    /// Words are looked for as they stand.
    Words,
    /// Words are looked for as they stand, and by their letters in order: `upb` finds `upper-bound`.
    Letters,
}

/// How a column's value is found for a run.
#[derive(Clone, Copy)]
pub enum Source {
    Text(fn(&Record) -> Option<Cow<'_, str>>),
    Number(fn(&Record) -> Option<f64>),
    Option(&'static OptionEntry),
    Measure(&'static Measure),
    /// An end of an interval: 0 the lower one, 1 the higher one.
    End(Interval, usize),
    /// The experiment of whose sweep the run is, and those that found it stored.
    Experiments,
    /// The tags that people gave the run.
    Tags,
    Note,
    /// What sets the run apart from the others of its experiment, which only all of them tell.
    Setting,
    /// A variable of the environment or an override, by its name.
    Variable,
    Override,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Source")
    }
}

/// A column of tables of runs.
#[derive(Clone, Debug)]
pub struct Field {
    /// Its name in files and on the command line: the contract's key, with its unit.
    pub name: Cow<'static, str>,
    /// Shorter names for it, the shortest that is clear first.
    pub aliases: &'static [&'static str],
    /// The header of its column on screens.
    pub title: Cow<'static, str>,
    /// The unit of its values, or that they are texts.
    pub unit: Unit,
    /// Whether words of a filter are looked for in it.
    pub searched: Search,
    pub source: Source,
}

impl Field {
    /// The option that it is of, where its numbers may need all of 64 bits.
    pub fn large_option(&self) -> Option<&'static OptionEntry> {
        match self.source {
            Source::Option(option) if option.kind == Kind::Large => Some(option),
            _ => None,
        }
    }

    /// The name to type: the first alias, or the name.
    pub fn short(&self) -> &str {
        self.aliases.first().copied().unwrap_or(&self.name)
    }

    /// What a record says under it, where that is a text; tags and notes are no part of records.
    pub fn text<'a>(&self, record: &'a Record) -> Option<Cow<'a, str>> {
        let of = |map: &'a BTreeMap<String, String>| Some(map.get(self.title.as_ref())?.as_str().into());
        match self.source {
            Source::Text(get) => get(record),
            Source::Experiments => record.experiment.as_deref().map(Cow::from),
            Source::Option(option) => Some(option.text(&record.spec)),
            Source::Variable => of(&record.spec.env),
            Source::Override => of(&record.spec.set),
            _ => None,
        }
    }

    /// What a record says under it, where that is a number in its unit; what other runs decide is not there.
    pub fn number(&self, record: &Record) -> Option<f64> {
        match self.source {
            Source::Number(get) => get(record),
            Source::Option(option) => option.number(&record.spec).map(|number| number as f64),
            Source::Measure(measure) => measure.of(record),
            Source::End(interval, end) => interval.of(record).map(|ends| ends[end]),
            _ => None,
        }
    }

    /// Whether it is there because some run has such a variable.
    pub fn is_dynamic(&self) -> bool {
        matches!(self.name, Cow::Owned(_))
    }

    /// Whether it is a number that runs yield, or an end of its interval.
    pub fn is_measure(&self) -> bool {
        matches!(self.source, Source::Measure(_) | Source::End(..))
    }

    /// Whether it is what was added to the run after its record was written.
    pub fn is_added(&self) -> bool {
        matches!(self.source, Source::Tags | Source::Note | Source::Experiments)
    }

    /// Whether a record alone fills it: neither additions nor other runs do.
    pub fn is_of_record(&self) -> bool {
        let of_runs = matches!(self.source, Source::Measure(measure) if measure.scope == Scope::Runs);
        !of_runs && !self.is_added() && !matches!(self.source, Source::Setting)
    }

    /// Whether it goes by this name.
    pub fn is(&self, name: &str) -> bool {
        same_name(&self.name, name) || self.aliases.iter().any(|alias| same_name(alias, name))
    }

    /// The environment variable of this name, as it was set for a run: `env.NAME`.
    pub fn variable(name: &str) -> Self {
        Self::dynamic("env", name, Source::Variable)
    }

    /// The hardware profile's number of this name, as a run set it: `set.NAME`.
    pub fn setting(name: &str) -> Self {
        Self::dynamic("set", name, Source::Override)
    }

    fn dynamic(prefix: &str, name: &str, source: Source) -> Self {
        Self {
            name: format!("{prefix}.{name}").into(),
            aliases: &[],
            title: name.to_owned().into(),
            unit: Unit::Text,
            searched: Search::Never,
            source,
        }
    }
}

fn of(
    name: &'static str,
    aliases: &'static [&'static str],
    title: &'static str,
    unit: Unit,
    searched: Search,
    source: Source,
) -> Field {
    Field { name: name.into(), aliases, title: title.into(), unit, searched, source }
}

fn text(
    name: &'static str,
    aliases: &'static [&'static str],
    searched: Search,
    get: fn(&Record) -> Option<Cow<'_, str>>,
) -> Field {
    of(name, aliases, name, Unit::Text, searched, Source::Text(get))
}

/// The fields that every run has, in the order of CSV files.
pub fn fields() -> Vec<Field> {
    use Search::{Letters, Never, Words};
    let mut fields = vec![
        text("run", &["id"], Words, |r| Some(r.run.as_str().into())),
        text("status", &[], Letters, |r| Some(r.status.as_str().into())),
        text("provenance", &["prov"], Letters, |r| Some(r.provenance.as_str().into())),
    ];
    fields.extend(OPTIONS.iter().map(of_option));
    let round = Source::Number(|r| Some(r.round.into()));
    fields.push(of("round", &[], "round", Unit::Count, Never, round));
    fields.extend(MEASURES.iter().flat_map(of_measure));
    fields.extend([
        text("env", &[], Letters, |r| pairs(&r.spec.env)),
        text("set", &[], Letters, |r| pairs(&r.spec.set)),
        of("experiment", &["exp"], "experiment", Unit::Names, Letters, Source::Experiments),
        text("created", &["date"], Never, |r| {
            Some(r.created.as_str().into()).filter(|c: &Cow<'_, str>| !c.is_empty())
        }),
        text("trace", &[], Never, |r| r.trace.as_deref().map(Cow::from)),
        text("reason", &["why"], Words, |r| r.reason.as_deref().map(Cow::from)),
        text("quality", &[], Never, |r| Some(r.quality.as_ref()?.told().into())),
        text("warnings", &[], Words, |r| (!r.warnings.is_empty()).then(|| r.warnings.join("; ").into())),
        of("tags", &["tag"], "tags", Unit::Words, Letters, Source::Tags),
        of("note", &[], "note", Unit::Text, Words, Source::Note),
        of("setting", &[], "differs in", Unit::Text, Words, Source::Setting),
        // of simulations none: it does not matter to them
        text("host", &[], Letters, |r| host(r).map(Cow::from)),
        // `tp8 b16 p2p-on`: how labels elsewhere write these, so that it can be searched for
        text("cell", &[], Words, |r| {
            Some(format!("tp{} b{} p2p-{}", r.spec.tp, r.spec.batch, r.spec.p2p.as_str()).into())
        }),
    ]);
    fields
}

/// The column of an option.
fn of_option(option: &'static OptionEntry) -> Field {
    let (unit, searched) = match option.kind {
        Kind::Count | Kind::Large => (Unit::Count, Search::Never),
        _ if !option.about.is_searched => (Unit::Text, Search::Never),
        _ => (Unit::Text, Search::Letters),
    };
    of(option.name, option.about.aliases, option.title(), unit, searched, Source::Option(option))
}

/// The column of a measure, and those of the ends of its interval.
fn of_measure(measure: &'static Measure) -> Vec<Field> {
    let Measure { name, aliases, title, unit, .. } = *measure;
    let mut fields = vec![of(name, aliases, title, unit, Search::Never, Source::Measure(measure))];
    if let Some((interval, names)) = measure.interval.and_then(|i| Some((i, i.names?))) {
        let bare = title.trim_end_matches(unit.symbol()).trim_end();
        for (end, (name, which)) in names.into_iter().zip(["low", "high"]).enumerate() {
            let field = of(name, &[], "", unit, Search::Never, Source::End(interval, end));
            fields.push(Field { title: format!("{bare} {which}").into(), ..field });
        }
    }
    fields
}

fn pairs(map: &BTreeMap<String, String>) -> Option<Cow<'_, str>> {
    let pair = |(key, value): (&String, &String)| format!("{key}={value}");
    (!map.is_empty()).then(|| map.iter().map(pair).collect::<Vec<_>>().join(" ").into())
}
