//! Making the columns of a [`super::RunTable`].

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use rayon::prelude::*;

use super::field::{Source, built_in};
use super::{Column, Field, Lower, NOTHING, Values, natural_order};
use crate::analysis::metrics::host;
use crate::analysis::statistics::median;
use crate::plan::Architecture;
use crate::spec::Spec;
use crate::store::{Annotations, Record, Status};

/// The built-in fields, and one for each variable and override that some run has.
pub(super) fn fields(records: &[Record]) -> Vec<Field> {
    let (mut env, mut set): (BTreeSet<&str>, BTreeSet<&str>) = Default::default();
    for record in records {
        for (names, map) in [(&mut env, &record.spec.env), (&mut set, &record.spec.set)] {
            for name in map.keys().filter(|name| !names.contains(name.as_str())).collect::<Vec<_>>() {
                names.insert(name);
            }
        }
    }
    let mut fields = built_in();
    fields.extend(env.into_iter().map(Field::variable));
    fields.extend(set.into_iter().map(Field::setting));
    fields
}

impl Column {
    pub(super) fn new(
        field: Field,
        records: &[Record],
        annotations: &Annotations,
        hidden: &[f64],
    ) -> Self {
        let number = |of: &dyn Fn(&Record) -> Option<f64>| {
            Values::Number(records.iter().map(|record| of(record).unwrap_or(f64::NAN)).collect())
        };
        let of = |record: &Record| annotations.of(&record.run);
        let values = match field.source {
            Source::Number(get) => number(&get),
            Source::Metric(get) => number(&|r| r.metrics.as_ref().and_then(get)),
            Source::Lane(get) => number(&|r| r.overlap.as_ref().and_then(get)),
            Source::Split(get) => number(&|r| r.overlap.and_then(|o| o.split).as_ref().map(get)),
            Source::HiddenShare => Values::Number(hidden.to_vec()),
            Source::Text(get) => texts(records, get),
            Source::Tags => texts(records, |record| {
                let tags = of(record).map(|annotation| &annotation.tags)?;
                let words: Vec<&str> = tags.iter().map(String::as_str).collect();
                (!words.is_empty()).then(|| words.join(" ").into())
            }),
            Source::Note => texts(records, |record| {
                of(record)
                    .map(|annotation| annotation.note.as_str().into())
                    .filter(|note: &Cow<'_, str>| !note.is_empty())
            }),
            Source::Variable => texts(records, |record| {
                record.spec.env.get(field.title.as_ref()).map(|v| v.as_str().into())
            }),
            Source::Override => texts(records, |record| {
                record.spec.set.get(field.title.as_ref()).map(|v| v.as_str().into())
            }),
        };
        let ranks = ranks(&values);
        let longest = match &values {
            Values::Text { texts, .. } => texts.iter().map(|text| text.chars().count()).max(),
            Values::Number(_) => None,
        };
        Self { field, values, ranks, longest: longest.unwrap_or(0) }
    }
}

/// Texts by number: most columns hold a few different ones.
fn texts<'a>(records: &'a [Record], get: impl Fn(&'a Record) -> Option<Cow<'a, str>>) -> Values {
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

/// Of each row the place of its value among the different ones.
fn ranks(values: &Values) -> Vec<u32> {
    match values {
        Values::Text { codes, texts, lower } => {
            let mut order: Vec<u32> = (0..texts.len() as u32).collect();
            let text = |code: &u32| (lower.get(*code as usize), &texts[*code as usize]);
            // ids come in order already, which a stable sort sees at once
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
            let mut order: Vec<f64> = values.iter().copied().filter(|v| !v.is_nan()).collect();
            order.sort_unstable_by(f64::total_cmp);
            order.dedup_by(|a, b| a.total_cmp(b).is_eq());
            let place = |value: &f64| order.binary_search_by(|v| v.total_cmp(value));
            values.iter().map(|value| place(value).map_or(NOTHING, |place| place as u32)).collect()
        }
    }
}

/// Of each run (standard - it) / (standard - upper-bound) in TPOT, from the medians of the runs that
/// match it in everything but the architecture, the machine included; NaN where one of the two was not
/// run, or upper-bound is no faster than standard.
pub(super) fn hidden_shares(records: &[Record]) -> Vec<f64> {
    let tpot = |record: &Record| {
        let metrics = record.metrics.as_ref().filter(|_| record.status == Status::Ok)?;
        Some(metrics.tpot_ms.p50).filter(|ms| *ms > 0.0)
    };
    let keys: Vec<u64> = records
        .par_iter()
        .map(|record| if tpot(record).is_some() { common(record) } else { 0 })
        .collect();
    let mut ends: HashMap<u64, [Vec<f64>; 2], FixedState> = HashMap::default();
    for (record, key) in records.iter().zip(&keys) {
        let end = match record.spec.architecture {
            Architecture::Standard => 0,
            Architecture::UpperBound => 1,
            _ => continue,
        };
        if let Some(ms) = tpot(record) {
            ends.entry(*key).or_default()[end].push(ms);
        }
    }
    let ends: HashMap<u64, (f64, f64), FixedState> = ends
        .into_iter()
        .filter_map(|(key, [standard, bound])| Some((key, (median(&standard)?, median(&bound)?))))
        .filter(|(_, (standard, bound))| standard > bound)
        .collect();
    let share = |(record, key): (&Record, &u64)| {
        let (standard, bound) = ends.get(key)?;
        Some((standard - tpot(record)?) / (standard - bound))
    };
    records.iter().zip(&keys).map(|both| share(both).unwrap_or(f64::NAN)).collect()
}

/// A hash of what must be alike for architectures to be compared.
fn common(record: &Record) -> u64 {
    let spec = Spec { architecture: Architecture::Standard, ..record.spec.clone() };
    FixedState::default().hash_one(serde_json::to_vec(&(spec, host(record))).unwrap_or_default())
}
