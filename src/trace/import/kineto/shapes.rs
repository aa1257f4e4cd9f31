//! Shapes of matrix products and attention, from the arguments of the operators that launch them. During
//! parsing the arguments are appended to the interned name, separated by [`PART`]s, so each distinct
//! text is stored and parsed once; [`decode`] splits the names again.

use std::collections::{BTreeMap, HashMap};

use super::event::Event;
use super::scan::{Broken, Value};
use super::table::{Launch, PART, Table};
use crate::import::enclosing::{Enclosing, Extent};
use crate::{CallArguments, Product, Range, Span, is_product};

/// Arguments with shapes, in order of encoding.
const KEYS: [&[u8]; 4] = [b"Input Dims", b"Input type", b"Input Strides", b"Concrete Inputs"];

/// Maximum length of the argument text: a product has a few tensors only.
const MOST: usize = 1 << 14;

/// Marker after the arguments for all kernels of a call but the first.
const LATER: u8 = b'+';

/// Interning key of a matrix product or attention with its arguments; `None` for other operators and
/// missing shapes.
#[inline]
pub(super) fn key(event: &Event<'_>, name: &[u8], bytes: &[u8]) -> Result<Option<Vec<u8>>, Broken> {
    if !is_product(name) {
        return Ok(None);
    }
    let Some(mut cursor) = event.arguments_cursor(bytes) else { return Ok(None) };
    let mut found = [&b""[..]; KEYS.len()];
    cursor.enter()?;
    while let Some(key) = cursor.key()? {
        let value = cursor.value()?;
        if let (Value::Nested(text, _), Some(at)) =
            (value, KEYS.iter().position(|known| known.eq_ignore_ascii_case(key)))
        {
            found[at] = text;
        }
    }
    let length: usize = found.iter().map(|text| text.len()).sum();
    if found[0].is_empty() || length > MOST {
        return Ok(None);
    }
    let mut key = Vec::with_capacity(name.len() + length + KEYS.len());
    key.extend_from_slice(name);
    for text in found {
        key.push(PART);
        key.extend_from_slice(text);
    }
    Ok(Some(key))
}

#[derive(Debug, Default)]
pub(super) struct Calls {
    around: Enclosing,
    /// True for indices into [`Table::names`] that have shapes.
    has_shape: Vec<bool>,
}

impl Calls {
    /// Calls of a table; must run before its operators are taken.
    pub(super) fn of(table: &Table) -> Self {
        if !table.has_shapes {
            return Self::default();
        }
        let texts = table.names.texts();
        let has_shape: Vec<bool> = texts.iter().map(|text| text.contains(&PART)).collect();
        let calls = table.operators.iter().filter(|range| has_shape[range.name as usize]);
        let extent = |(range, value): (&Range, u32)| Extent {
            thread: range.thread.into(),
            start_ns: range.start_ns,
            end_ns: range.end_ns,
            value,
        };
        Self { around: Enclosing::new(calls.zip(0..).map(extent).collect()), has_shape }
    }

    /// Marks all kernels but the first of each call, so that calls can be counted.
    pub(super) fn mark_later(&self, table: &mut Table, launches: &[Launch], launch_of: &[u32]) {
        if self.has_shape.is_empty() {
            return;
        }
        let has_shape = |span: &Span| self.has_shape.get(span.launched.operator as usize) == Some(&true);
        let mut near = 0;
        let call = |(at, (span, launch)): (usize, (&Span, &u32))| {
            let launch = launches.get(*launch as usize)?;
            let call = self.around.innermost(launch.thread.into(), launch.start_ns, &mut near)?;
            Some((call, launch.start_ns, span.start_ns, at))
        };
        let spans = table.spans.iter().zip(launch_of).enumerate();
        let mut kernels: Vec<(u32, i64, i64, usize)> =
            spans.filter(|(_, (span, _))| has_shape(span)).filter_map(call).collect();
        kernels.sort_unstable();
        let later = kernels.chunk_by(|a, b| a.0 == b.0).flat_map(|kernels| &kernels[1..]);
        let later: Vec<usize> = later.map(|(.., at)| *at).collect();
        let texts = table.names.texts();
        let mut marked: HashMap<u32, Vec<u8>> = HashMap::new();
        for at in &later {
            let operator = table.spans[*at].launched.operator;
            let text = || [texts[operator as usize], &[PART, LATER]].concat();
            marked.entry(operator).or_insert_with(text);
        }
        for at in later {
            let operator = &mut table.spans[at].launched.operator;
            *operator = table.names.intern(&marked[operator]);
        }
    }
}

/// Splits names with shapes. Returns the plain names, and the work of each operator by index.
pub(super) fn decode(names: Vec<String>) -> (Vec<String>, BTreeMap<u32, Product>) {
    let mut products = BTreeMap::new();
    let decoded = names.into_iter().zip(0..).map(|(text, number)| {
        let mut parts = text.split(char::from(PART));
        let name = parts.next().unwrap_or_default().to_owned();
        let [Some(dims), Some(types), Some(strides), Some(values)] = [(); 4].map(|()| parts.next())
        else {
            return if name.len() == text.len() { name } else { text };
        };
        if let Some(product) = Product::of(&name, CallArguments { dims, types, strides, values }) {
            products.insert(number, Product { is_first: parts.next().is_none(), ..product });
        }
        name
    });
    (decoded.collect(), products)
}
