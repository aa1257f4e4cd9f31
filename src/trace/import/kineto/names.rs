//! Interned names with the arguments that distinguish operations.
//!
//! During parsing, the arguments of collectives (on `record_param_comms` operators, and since PyTorch 2.4 on the
//! kernels themselves) and the shapes of matrix products are appended to the name, separated by [`PART`]s, so
//! each distinct text is stored and parsed once. [`collective`] and [`products`] split the names again.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::RandomState;
use indexmap::IndexSet;

use super::assemble::ReadFile;
use super::event::{GpuCategory, TraceEvent};
use super::json::{JsonError, JsonValue, last_integer, unescape};
use super::table::{EventTable, LaunchCall, PART};
use crate::import::enclosing::{Enclosing, ThreadRange};
use crate::{
    CallArguments, CollectiveInfo, CopiedBytes, OperationInfo, ProcessGroup, Product, Span, is_product,
};

#[derive(Clone, Debug, Default)]
pub(super) struct Interner {
    numbers: HashMap<Box<[u8]>, u32, RandomState>,
}

impl Interner {
    #[inline]
    pub(super) fn intern(&mut self, text: &[u8]) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        // 2^32 distinct texts do not fit in memory
        let number = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        self.numbers.insert(text.into(), number);
        number
    }

    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Texts ordered by number.
    pub(super) fn texts(&self) -> Vec<&[u8]> {
        let mut texts = vec![&b""[..]; self.numbers.len()];
        for (text, number) in &self.numbers {
            texts[*number as usize] = text;
        }
        texts
    }

    /// Merges the texts of another interner. Returns the new number of each of its texts.
    pub(super) fn merge(&mut self, other: &Self) -> Vec<u32> {
        other.texts().into_iter().map(|text| self.intern(text)).collect()
    }
}

pub(super) const OPERATOR: &[u8] = b"record_param_comms";

/// Arguments that distinguish operations, in order of encoding.
const COLLECTIVE_KEYS: [&[u8]; 11] = [
    b"Collective name",
    b"In msg nelems",
    b"Out msg nelems",
    b"dtype",
    b"Process Group Name",
    b"Process Group Description",
    b"Process Group Ranks",
    b"Group size",
    b"Global rank start",
    b"Global rank stride",
    PEER,
];

/// Peer of a send; PyTorch names that of a receive `Src Rank`.
const PEER: &[u8] = b"Dst Rank";

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CollectiveArguments<'a> {
    values: [&'a [u8]; COLLECTIVE_KEYS.len()],
    /// Sequence number in the process group; [`Span::NO_SEQUENCE`] if the event has none.
    pub(super) sequence: u32,
}

impl<'a> CollectiveArguments<'a> {
    /// Parses the arguments of an event; `None` if they name no collective.
    pub(super) fn new(event: &TraceEvent<'a>, bytes: &'a [u8]) -> Result<Option<Self>, JsonError> {
        let mut found = Self { sequence: Span::NO_SEQUENCE, ..Self::default() };
        let Some(mut cursor) = event.arguments_cursor(bytes) else { return Ok(None) };
        cursor.enter()?;
        while let Some(key) = cursor.key()? {
            let value = match cursor.value()? {
                JsonValue::String(text) | JsonValue::Scalar(text) | JsonValue::Nested(text, _) => {
                    text.trim_ascii()
                }
            };
            let key = if key == b"Src Rank" { PEER } else { key };
            if let Some(at) = COLLECTIVE_KEYS.iter().position(|known| *known == key) {
                found.values[at] = value;
            } else if key == b"Seq" {
                found.sequence = last_integer(value)
                    .and_then(|number| u32::try_from(number).ok())
                    .unwrap_or(Span::NO_SEQUENCE);
            }
        }
        Ok((!found.values[0].is_empty()).then_some(found))
    }

    /// Interning key: the kernel name and its arguments. `name` may be empty.
    pub(super) fn key(&self, name: &[u8]) -> Vec<u8> {
        let mut key = name.to_vec();
        for value in self.values {
            key.push(PART);
            key.extend_from_slice(value);
        }
        key
    }
}

fn collective(
    key: &str,
    files: &[ReadFile],
) -> (String, Option<(CollectiveInfo, Option<ProcessGroup>)>) {
    let parts: Vec<&str> = key.rsplitn(COLLECTIVE_KEYS.len() + 1, char::from(PART)).collect();
    let [peer, stride, start, size, ranks, description, group, dtype, left, entered, collective, name] =
        parts[..]
    else {
        return (key.to_owned(), None);
    };
    let name = name.to_owned();
    let number = |text: &str| text.parse::<u64>().ok();
    let info = CollectiveInfo {
        name: collective.to_owned(),
        group: None,
        in_elements: number(entered),
        out_elements: number(left),
        dtype: dtype.to_owned(),
        peer: peer.parse().ok(),
        ..CollectiveInfo::default()
    };
    let has_group = [group, ranks, size].iter().any(|text| !text.is_empty());
    let group = has_group.then(|| {
        let size = number(size).and_then(|size| u32::try_from(size).ok()).unwrap_or(0);
        let even = number(start).zip(number(stride));
        let ranks = listed(ranks)
            .filter(|listed| size == 0 || listed.len() == size as usize)
            .or_else(|| strided(even, size))
            .or_else(|| configured(files, group, size))
            .unwrap_or_default();
        ProcessGroup {
            name: group.to_owned(),
            description: description.to_owned(),
            size: size.max(ranks.len() as u32),
            ranks,
        }
    });
    (name, Some((info.with_message_bytes(), group)))
}

/// Maximum size of a group; a larger one is damage.
const LARGEST_GROUP: u32 = 1 << 20;

/// Parses a rank list `[0, 1]`; `None` if it is empty or abbreviated with `...`.
fn listed(text: &str) -> Option<Vec<u32>> {
    let inner = text.trim().strip_prefix('[')?.strip_suffix(']')?;
    let mut ranks =
        inner.split(',').map(|rank| rank.trim().parse().ok()).collect::<Option<Vec<u32>>>()?;
    ranks.sort_unstable();
    ranks.dedup();
    Some(ranks)
}

/// Ranks of a group with a constant stride. PyTorch writes a stride of 0 or less for irregular groups.
fn strided(even: Option<(u64, u64)>, size: u32) -> Option<Vec<u32>> {
    let (start, stride) =
        even.filter(|(_, stride)| *stride > 0 && (1..=LARGEST_GROUP).contains(&size))?;
    (0..u64::from(size))
        .map(|at| u32::try_from(start.checked_add(at.checked_mul(stride)?)?).ok())
        .collect()
}

/// Ranks in `distributedInfo` for the group with this name and size; `None` if files disagree.
fn configured(files: &[ReadFile], name: &str, size: u32) -> Option<Vec<u32>> {
    let all = files.iter().flat_map(|file| &file.metadata.groups);
    let mut lists: Vec<&Vec<u32>> =
        all.filter(|(of, ranks)| of == name && ranks.len() == size as usize).map(|(_, r)| r).collect();
    lists.dedup();
    match lists[..] {
        [ranks] if size > 0 => Some(ranks.clone()),
        _ => None,
    }
}

/// Arguments with shapes, in order of encoding.
const SHAPE_KEYS: [&[u8]; 4] = [b"Input Dims", b"Input type", b"Input Strides", b"Concrete Inputs"];

/// Maximum length of the argument text: a product has a few tensors only.
const LONGEST_SHAPES: usize = 1 << 14;

/// Marker after the arguments for all kernels of a call but the first.
const LATER: u8 = b'+';

/// Interning key of a matrix product or attention with its arguments; `None` for other operators and
/// missing shapes.
#[inline]
pub(super) fn shape_key(
    event: &TraceEvent<'_>,
    name: &[u8],
    bytes: &[u8],
) -> Result<Option<Vec<u8>>, JsonError> {
    if !is_product(name) {
        return Ok(None);
    }
    let Some(mut cursor) = event.arguments_cursor(bytes) else { return Ok(None) };
    let mut found = [&b""[..]; SHAPE_KEYS.len()];
    cursor.enter()?;
    while let Some(key) = cursor.key()? {
        let value = cursor.value()?;
        if let (JsonValue::Nested(text, _), Some(at)) =
            (value, SHAPE_KEYS.iter().position(|known| known.eq_ignore_ascii_case(key)))
        {
            found[at] = text;
        }
    }
    let length: usize = found.iter().map(|text| text.len()).sum();
    if found[0].is_empty() || length > LONGEST_SHAPES {
        return Ok(None);
    }
    let mut key = Vec::with_capacity(name.len() + length + SHAPE_KEYS.len());
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
    /// True for indices into [`EventTable::names`] that have shapes.
    has_shape: Vec<bool>,
}

impl Calls {
    /// Calls of a table; must run before its operators are taken.
    pub(super) fn from_table(table: &EventTable) -> Self {
        if !table.has_shapes {
            return Self::default();
        }
        let texts = table.names.texts();
        let has_shape: Vec<bool> = texts.iter().map(|text| text.contains(&PART)).collect();
        let calls = table.operators.iter().filter(|range| has_shape[range.name as usize]);
        let calls = calls.zip(0..).map(|(range, number)| ThreadRange::new(range, number));
        Self { around: Enclosing::new(calls.collect()), has_shape }
    }

    /// Marks all kernels but the first of each call, so that calls can be counted.
    pub(super) fn mark_later(&self, table: &mut EventTable, launches: &[LaunchCall], launch_of: &[u32]) {
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
pub(super) fn products(names: Vec<String>) -> (Vec<String>, BTreeMap<u32, Product>) {
    let mut products = BTreeMap::new();
    let decoded = names.into_iter().zip(0..).map(|(text, number)| {
        let mut parts = text.split(char::from(PART));
        let name = parts.next().unwrap_or_default().to_owned();
        let [Some(dims), Some(types), Some(strides), Some(values)] = [(); 4].map(|()| parts.next())
        else {
            return if name.len() == text.len() { name } else { text };
        };
        if let Some(product) = Product::new(&name, CallArguments { dims, types, strides, values }) {
            products.insert(number, Product { is_first: parts.next().is_none(), ..product });
        }
        name
    });
    (decoded.collect(), products)
}

/// Decoded names of all files, numbered in sorted order, so numbers do not depend on thread scheduling.
pub(super) struct Names {
    pub(super) texts: Vec<String>,
    pub(super) replaced: u64,
}

impl Names {
    /// Collects the used names of all files. Also returns, for each file, the new number of each of its
    /// names; 0 for unused ones.
    pub(super) fn new(files: &[ReadFile], used: &[Vec<bool>]) -> (Self, Vec<Vec<u32>>) {
        let mut replaced = 0;
        let mut all: BTreeMap<String, u32> = BTreeMap::new();
        let mut decode = |(text, used): (&[u8], &bool)| {
            let (text, lossy) = used.then(|| unescape(text))?;
            replaced += u64::from(lossy);
            all.insert(text.clone(), 0);
            Some(text)
        };
        let decoded: Vec<Vec<Option<String>>> = files
            .iter()
            .zip(used)
            .map(|(file, used)| {
                file.table.names.texts().into_iter().zip(used).map(&mut decode).collect()
            })
            .collect();
        all.values_mut().zip(0..).for_each(|(number, at)| *number = at);
        let number = |text: Option<String>| text.map_or(0, |text| all[&text]);
        let maps = decoded.into_iter().map(|texts| texts.into_iter().map(number).collect()).collect();
        (Self { texts: all.into_keys().collect(), replaced }, maps)
    }
}

/// Number of kinds of GPU events. A file's operation number is `3 x name + kind`.
pub(super) const KINDS: usize = GpuCategory::ALL.len();

/// Distinct pairs of name and kind, sorted.
pub(super) struct OperationPairs {
    pub(super) names: Names,
    /// Index of the name, and kind.
    pairs: Vec<(u32, usize)>,
    /// New number of each operation, per file.
    pub(super) maps: Vec<Vec<u32>>,
}

impl OperationPairs {
    pub(super) fn from_files(files: &[ReadFile]) -> Self {
        let used: Vec<Vec<bool>> = files
            .iter()
            .map(|file| {
                let mut used = vec![false; file.table.names.len() * KINDS];
                file.table.spans.iter().for_each(|span| used[span.operation as usize] = true);
                used
            })
            .collect();
        let used_names: Vec<Vec<bool>> = used
            .iter()
            .map(|used| used.chunks(KINDS).map(|kinds| kinds.contains(&true)).collect())
            .collect();
        let (names, name_maps) = Names::new(files, &used_names);
        let here = |map: &[u32], operation: usize| (map[operation / KINDS], operation % KINDS);
        let mut pairs: BTreeMap<(u32, usize), u32> = BTreeMap::new();
        for (used, map) in used.iter().zip(&name_maps) {
            let used = used.iter().enumerate().filter(|(_, used)| **used);
            pairs.extend(used.map(|(operation, _)| (here(map, operation), 0)));
        }
        pairs.values_mut().zip(0..).for_each(|(number, at)| *number = at);
        let maps = used
            .iter()
            .zip(&name_maps)
            .map(|(used, map)| {
                let number = |operation| pairs.get(&here(map, operation)).copied().unwrap_or(0);
                (0..used.len()).map(number).collect()
            })
            .collect();
        Self { names, pairs: pairs.into_keys().collect(), maps }
    }

    pub(super) fn table(&self, files: &[ReadFile]) -> (Vec<OperationInfo>, Vec<ProcessGroup>) {
        let mut copied: BTreeMap<u32, CopiedBytes> = BTreeMap::new();
        for (file, map) in files.iter().zip(&self.maps) {
            for (operation, of_file) in &file.table.copied {
                copied.entry(map[*operation as usize]).or_default().merge(of_file);
            }
        }
        let mut groups = IndexSet::new();
        let mut operation = |((name, kind), at): (&(u32, usize), u32)| {
            let (name, collective) = collective(&self.names.texts[*name as usize], files);
            let collective = collective.map(|(info, group)| CollectiveInfo {
                group: group.map(|group| groups.insert_full(group).0 as u32),
                ..info
            });
            let cost = copied.get(&at).map(CopiedBytes::cost).unwrap_or_default();
            OperationInfo {
                collective,
                cost,
                ..OperationInfo::imported(name, GpuCategory::ALL[*kind].as_str())
            }
        };
        let table = self.pairs.iter().zip(0..).map(&mut operation).collect();
        (table, groups.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_keep_their_number_and_are_taken_over() {
        let mut first = Interner::default();
        assert_eq!([first.intern(b"a"), first.intern(b"b"), first.intern(b"a")], [0, 1, 0]);
        let mut second = Interner::default();
        second.intern(b"c");
        second.intern(b"b");
        assert_eq!(first.merge(&second), [2, 1]);
        assert_eq!(first.texts(), [b"a", b"b", b"c"]);
    }
}
