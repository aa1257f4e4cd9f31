//! Names and operations of all files under one numbering.

use std::collections::BTreeMap;

use super::assemble::ReadFile;
use super::collective::{Groups, decode};
use super::event::Gpu;
use super::scan::unescape;
use crate::{CollectiveInfo, Copied, OperationInfo, ProcessGroup};

/// Names of all files, decoded and numbered in their own order, so that numbers do not depend on
/// which thread read what.
pub(super) struct Names {
    pub(super) texts: Vec<String>,
    /// How many hold bytes that had to be replaced.
    pub(super) replaced: u64,
}

impl Names {
    /// Gathers every file's used names. The result's second part says, for each file, what its numbers
    /// are called here; 0 for those that are not used.
    pub(super) fn of(files: &[ReadFile], used: &[Vec<bool>]) -> (Self, Vec<Vec<u32>>) {
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

/// Kinds of GPU events: an operation of a file is `3 x name + kind`.
pub(super) const KINDS: usize = Gpu::ALL.len();

/// Distinct pairs of name and kind, in order.
pub(super) struct Operations {
    pub(super) names: Names,
    /// Number of name, and kind.
    pairs: Vec<(u32, usize)>,
    /// What each file's numbers are called here.
    pub(super) maps: Vec<Vec<u32>>,
}

impl Operations {
    /// Gathers the operations of all files' spans.
    pub(super) fn of(files: &[ReadFile]) -> Self {
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
        let (names, name_maps) = Names::of(files, &used_names);
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

    /// The operations as the table of a trace, and the process groups that they belong to.
    pub(super) fn table(&self, files: &[ReadFile]) -> (Vec<OperationInfo>, Vec<ProcessGroup>) {
        let mut copied: BTreeMap<u32, Copied> = BTreeMap::new();
        for (file, map) in files.iter().zip(&self.maps) {
            for (operation, of_file) in &file.table.copied {
                copied.entry(map[*operation as usize]).or_default().absorb(of_file);
            }
        }
        let mut groups = Groups::default();
        let mut operation = |((name, kind), at): (&(u32, usize), u32)| {
            let (name, collective) = decode(&self.names.texts[*name as usize], files);
            let collective = collective.map(|(info, group)| CollectiveInfo {
                group: group.map(|group| groups.number(group)),
                ..info
            });
            let cost = copied.get(&at).map(Copied::cost).unwrap_or_default();
            OperationInfo { collective, cost, ..OperationInfo::imported(name, Gpu::ALL[*kind].as_str()) }
        };
        let table = self.pairs.iter().zip(0..).map(&mut operation).collect();
        (table, groups.list())
    }
}
