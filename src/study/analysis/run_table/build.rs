//! Construction of the columns of a [`super::RunTable`].

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::OnceLock;

use foldhash::fast::FixedState;

use rayon::prelude::*;

use super::{Column, Lower, NOTHING, Values};
use crate::analysis::settings;
use base::natural::natural_order;
use lab::store::Annotations;
use table::{Field, Record, Scope, Source};

/// Options with their own column in every list of runs.
const TOLD: [&str; 5] = ["architecture", "model", "tp", "batch", "p2p"];

/// Built-in fields, plus one for each variable and override in the runs.
pub(super) fn fields(records: &[Record]) -> Vec<Field> {
    let (mut env, mut set): (BTreeSet<&str>, BTreeSet<&str>) = Default::default();
    for record in records {
        for (names, map) in [(&mut env, &record.spec.env), (&mut set, &record.spec.set)] {
            for name in map.keys().filter(|name| !names.contains(name.as_str())).collect::<Vec<_>>() {
                names.insert(name);
            }
        }
    }
    let mut fields = table::fields();
    fields.extend(env.into_iter().map(Field::variable));
    fields.extend(set.into_iter().map(Field::setting));
    fields
}

impl Column {
    pub(super) fn new(field: Field, records: &[Record], annotations: &Annotations) -> Self {
        let of = |record: &Record| annotations.of(&record.run);
        fn some(text: Cow<'_, str>) -> Option<Cow<'_, str>> {
            (!text.is_empty()).then_some(text)
        }
        let values = match field.source {
            Source::Measure(measure) if measure.scope == Scope::Runs => {
                let values = measure.of_all(&records.iter().collect::<Vec<_>>());
                Values::Number(values.into_iter().map(|value| value.unwrap_or(f64::NAN)).collect())
            }
            Source::Experiments => texts(records, |r| {
                let separator = field.unit.separator().unwrap_or_default();
                let own = r.experiment.as_deref();
                let found = of(r).into_iter().flat_map(|a| a.experiments.iter().map(String::as_str));
                let mut all: Vec<&str> =
                    own.into_iter().chain(found.filter(|name| Some(*name) != own)).collect();
                match all.len() {
                    0 | 1 => all.pop().map(Cow::from),
                    _ => Some(all.join(separator).into()),
                }
            }),
            Source::Tags => texts(records, |r| some(of(r)?.tags_in_a_line().into())),
            Source::Setting => {
                let settings = settings(records, &TOLD);
                let mut settings = settings.into_iter();
                texts(records, |_| some(settings.next()?.into()))
            }
            Source::Note => texts(records, |r| some(of(r)?.note.as_str().into())),
            _ if field.unit.is_number() => {
                Values::Number(records.iter().map(|r| field.number(r).unwrap_or(f64::NAN)).collect())
            }
            _ => texts(records, |record| field.text(record)),
        };
        let longest = match &values {
            Values::Text { texts, .. } => texts.iter().map(|text| text.chars().count()).max(),
            Values::Number(_) => None,
        };
        Self {
            field,
            values,
            ranks: OnceLock::new(),
            blank: OnceLock::new(),
            longest: longest.unwrap_or(0),
        }
    }
}

/// Dictionary-encodes texts: most columns have few distinct ones.
fn texts<'a>(records: &'a [Record], mut get: impl FnMut(&'a Record) -> Option<Cow<'a, str>>) -> Values {
    let mut known: HashMap<Cow<'a, str>, u32, FixedState> = HashMap::default();
    let mut texts: Vec<String> = Vec::new();
    let code = |record: &'a Record| {
        let Some(text) = get(record) else { return NOTHING };
        if let Some(code) = known.get(&text) {
            return *code;
        }
        let code = texts.len() as u32;
        texts.push(text.as_ref().to_owned());
        known.insert(text, code);
        code
    };
    let codes = records.iter().map(code).collect();
    let lower = Lower::new(&texts);
    Values::Text { codes, texts, lower }
}

/// Rank of each row's value among the distinct values.
pub(super) fn ranks(values: &Values) -> Vec<u32> {
    match values {
        Values::Text { codes, texts, lower } => {
            let mut order: Vec<u32> = (0..texts.len() as u32).collect();
            let text = |code: &u32| (lower.get(*code as usize), &texts[*code as usize]);
            // ids are already in order, which a stable sort detects at once
            order.sort_by(|a, b| {
                natural_order(text(a).0, text(b).0).then_with(|| text(a).1.cmp(text(b).1))
            });
            let mut places = vec![0; texts.len()];
            for (place, code) in (0..).zip(order) {
                places[code as usize] = place;
            }
            codes.iter().map(|code| places.get(*code as usize).copied().unwrap_or(NOTHING)).collect()
        }
        Values::Number(values) => {
            let mut order: Vec<(f64, u32)> = values.iter().copied().zip(0..).collect();
            order.retain(|(value, _)| !value.is_nan());
            order.par_sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
            let mut ranks = vec![NOTHING; values.len()];
            for (rank, equal) in (0..).zip(order.chunk_by(|a, b| a.0.total_cmp(&b.0).is_eq())) {
                equal.iter().for_each(|(_, row)| ranks[*row as usize] = rank);
            }
            ranks
        }
    }
}
