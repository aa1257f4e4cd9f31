//! Collective arguments: on `record_param_comms` operators, and since PyTorch 2.4 on the kernels
//! themselves. During parsing they are appended to the interned name, separated by [`PART`]s, so that
//! kernels with different arguments are different operations; [`decode`] splits the name again.

use std::collections::BTreeMap;

use super::assemble::ReadFile;
use super::event::Event;
use super::number::last_integer;
use super::scan::{Broken, Cursor, Value};
use super::table::PART;
use crate::{CollectiveInfo, ProcessGroup, Span};

pub(super) const OPERATOR: &[u8] = b"record_param_comms";

/// Arguments that distinguish operations, in order of encoding.
const KEYS: [&[u8]; 10] = [
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
];

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Collective<'a> {
    values: [&'a [u8]; KEYS.len()],
    /// Sequence number in the process group; [`Span::NO_SEQUENCE`] if the event has none.
    pub(super) sequence: u32,
}

impl<'a> Collective<'a> {
    /// Parses the arguments of an event; `None` if they name no collective.
    pub(super) fn of(event: &Event<'a>, bytes: &'a [u8]) -> Result<Option<Self>, Broken> {
        let mut found = Self { sequence: Span::NO_SEQUENCE, ..Self::default() };
        let Some(at) = event.arguments_at() else { return Ok(None) };
        let mut cursor = Cursor::new(bytes, at);
        if cursor.peek() != Some(b'{') {
            return Ok(None);
        }
        cursor.enter()?;
        while let Some(key) = cursor.key()? {
            let value = match cursor.value()? {
                Value::String(text) | Value::Scalar(text) | Value::Nested(text, _) => text.trim_ascii(),
            };
            if let Some(at) = KEYS.iter().position(|known| *known == key) {
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

pub(super) fn decode(
    key: &str,
    files: &[ReadFile],
) -> (String, Option<(CollectiveInfo, Option<ProcessGroup>)>) {
    let parts: Vec<&str> = key.rsplitn(KEYS.len() + 1, char::from(PART)).collect();
    let [stride, start, size, ranks, description, group, dtype, left, entered, collective, name] =
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
        message_bytes: None,
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
    (name, Some((info.sized(), group)))
}

/// Maximum size of a group; a larger one is damage.
const MOST: u32 = 1 << 20;

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
    let (start, stride) = even.filter(|(_, stride)| *stride > 0 && (1..=MOST).contains(&size))?;
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

#[derive(Default)]
pub(super) struct Groups {
    numbers: BTreeMap<ProcessGroup, u32>,
}

impl Groups {
    pub(super) fn number(&mut self, group: ProcessGroup) -> u32 {
        let next = self.numbers.len() as u32;
        *self.numbers.entry(group).or_insert(next)
    }

    pub(super) fn list(self) -> Vec<ProcessGroup> {
        let mut list = vec![ProcessGroup::default(); self.numbers.len()];
        for (group, number) in self.numbers {
            list[number as usize] = group;
        }
        list
    }
}
