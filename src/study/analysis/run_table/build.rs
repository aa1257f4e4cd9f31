//! Making the columns of a [`super::RunTable`].

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use foldhash::fast::FixedState;

use super::field::{Source, built_in};
use super::{Column, Field, Lower, NOTHING, Values, natural_order};
use crate::lab::store::Annotations;
use crate::table::Record;

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
    pub(super) fn new(field: Field, records: &[Record], annotations: &Annotations) -> Self {
        let number = |of: &dyn Fn(&Record) -> Option<f64>| {
            Values::Number(records.iter().map(|record| of(record).unwrap_or(f64::NAN)).collect())
        };
        let of = |record: &Record| annotations.of(&record.run);
        let values = match field.source {
            Source::Number(get) => number(&get),
            Source::Option(option) if field.unit.is_number() => {
                number(&|r| option.number(&r.spec).map(|number| number as f64))
            }
            Source::Option(option) => texts(records, |r| Some(option.text(&r.spec))),
            Source::Measure(measure) => {
                let values = measure.of_all(&records.iter().collect::<Vec<_>>());
                Values::Number(values.into_iter().map(|value| value.unwrap_or(f64::NAN)).collect())
            }
            Source::End(interval, end) => number(&|r| interval.of(r).map(|ends| ends[end])),
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
