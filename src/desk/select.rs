//! Selection of stored runs by id, prefix, `last`, batch, runs directory or filter.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use base::error::{Error, Result};
use lab::store::{Annotations, Store};
use study::analysis::RunTable;
use study::analysis::filter::Filter;
use table::Record;

#[derive(Debug, Default)]
pub struct Selection {
    pub records: Vec<Record>,
    pub annotations: Arc<Annotations>,
    pub damaged: Vec<String>,
}

impl Selection {
    /// Selects all records of a runs directory; a missing directory has none. Damaged runs are listed in `damaged`.
    pub fn all(dir: &Path) -> Result<Self> {
        if !dir.exists() {
            return Ok(Self::default());
        }
        let store = Store::open(dir);
        let listing = store.list()?;
        Ok(Self { records: listing.records, annotations: store.annotations(), damaged: listing.damaged })
    }

    /// Selects the records of the named directories and runs, or all of `dir` without names. A run is named by its
    /// id, a prefix, `last`, a batch or a row of a batch; duplicates are dropped.
    ///
    /// # Errors
    ///
    /// Returns an input error for an unknown directory, run or batch and for an ambiguous prefix, and an error if a
    /// directory cannot be read.
    pub fn named(named: &[String], dir: &Path) -> Result<Self> {
        if named.is_empty() {
            return Self::all(dir);
        }
        let store = Store::open(dir);
        let mut chosen = Self { annotations: store.annotations(), ..Self::default() };
        for name in named {
            if Path::new(name).is_dir() {
                let there = Self::all(Path::new(name))?;
                Arc::make_mut(&mut chosen.annotations).extend(&there.annotations);
                chosen.records.extend(there.records);
                chosen.damaged.extend(there.damaged);
            } else if name.contains(std::path::MAIN_SEPARATOR) {
                return Err(Error::input(format!("{name}: no such directory")));
            } else {
                let (records, damaged) = stored(&store, name)?;
                chosen.records.extend(records);
                chosen.damaged.extend(damaged);
            }
        }
        let mut seen = HashSet::new();
        chosen.records.retain(|record| seen.insert(record.run.clone()));
        Ok(chosen)
    }
}

/// Records of a run or batch of this store, and warnings about damaged ones. Returns an input error for an unknown
/// run or batch, or an ambiguous prefix.
pub fn stored(store: &Store, name: &str) -> Result<(Vec<Record>, Vec<String>)> {
    let Some(batch) = store.batch(name)? else { return Ok((vec![store.get(name)?], Vec::new())) };
    Ok((batch.records, batch.damaged))
}

/// Filters the records and sorts them by columns (`tpot,arch:desc`). Returns an input error for an unknown field or
/// an invalid value.
pub fn filtered(chosen: Selection, filter: Option<&str>, sort: Option<&str>) -> Result<Vec<Record>> {
    if filter.is_none() && sort.is_none() {
        return Ok(chosen.records);
    }
    let table = RunTable::new(&chosen.records, &chosen.annotations);
    let mut rows = Filter::parse(filter.unwrap_or_default()).rows(&table)?;
    if let Some(keys) = sort {
        table.sort(&mut rows, &table.sort_keys(keys)?);
    }
    Ok(picked(chosen.records, &rows))
}

pub fn picked(records: Vec<Record>, rows: &[u32]) -> Vec<Record> {
    let mut records: Vec<Option<Record>> = records.into_iter().map(Some).collect();
    rows.iter().filter_map(|row| records.get_mut(*row as usize)?.take()).collect()
}
