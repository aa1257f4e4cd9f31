//! Merged numbering of the names and operations of all files.

use std::collections::BTreeMap;

use super::assemble::ReadFile;
use super::collective::{Groups, decode};
use super::event::Gpu;
use super::scan::unescape;
use crate::{CollectiveInfo, Copied, OperationInfo, ProcessGroup};

/// Decoded names of all files, numbered in sorted order, so numbers do not depend on thread scheduling.
pub(super) struct Names {
    pub(super) texts: Vec<String>,
    pub(super) replaced: u64,
}

impl Names {
    /// Collects the used names of all files. Also returns, for each file, the new number of each of its
    /// names; 0 for unused ones.
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

/// Number of kinds of GPU events. A file's operation number is `3 x name + kind`.
pub(super) const KINDS: usize = Gpu::ALL.len();

/// Distinct pairs of name and kind, sorted.
pub(super) struct Operations {
    pub(super) names: Names,
    /// Index of the name, and kind.
    pairs: Vec<(u32, usize)>,
    /// New number of each operation, per file.
    pub(super) maps: Vec<Vec<u32>>,
}

impl Operations {
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
