//! Which stored runs are meant: ids, beginnings of ids, `last`, batches, runs directories, filters.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use base::error::{Error, Result};
use lab::store::{Annotations, Store};
use study::analysis::RunTable;
use study::analysis::filter::Filter;
use table::Record;

/// Records, what people added to them, and what could not be read.
#[derive(Debug, Default)]
pub struct Selection {
    /// The records that were chosen, in the order of the store.
    pub records: Vec<Record>,
    /// Tags and notes of all runs in those stores.
    pub annotations: Arc<Annotations>,
    /// Files that are damaged, a sentence each, for the user to be warned of.
    pub damaged: Vec<String>,
}

impl Selection {
    /// All records of a runs directory; one that is not there (yet) has none.
    ///
    /// # Errors
    ///
    /// A failure where the directory cannot be read; damaged runs are no error, but named in `damaged`.
    pub fn all(dir: &Path) -> Result<Self> {
        if !dir.exists() {
            return Ok(Self::default());
        }
        let store = Store::open(dir);
        let listing = store.list()?;
        Ok(Self { records: listing.records, annotations: store.annotations(), damaged: listing.damaged })
    }

    /// The records of the named directories and runs, or all of `dir` where nothing is named. A run may be
    /// named by its id, a beginning of it, `last`, a batch or a row of it; a run named twice is one run.
    ///
    /// # Errors
    ///
    /// Input errors: no such directory, run or batch; a beginning of several ids. A failure where a
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

/// The records of a run or a batch of this store, and what of the batch is damaged.
///
/// # Errors
///
/// Input errors: no such run or batch, or a beginning of several ids.
pub fn stored(store: &Store, name: &str) -> Result<(Vec<Record>, Vec<String>)> {
    let Some(batch) = store.batch(name)? else { return Ok((vec![store.get(name)?], Vec::new())) };
    Ok((batch.records, batch.damaged))
}

/// The records that meet a filter, in the order of columns (`tpot,arch:desc`).
///
/// # Errors
///
/// An input error for a filter or an order with a field that there is not, or a value that
/// its field cannot have.
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

/// The records of these rows, in the order of the rows.
pub fn picked(records: Vec<Record>, rows: &[u32]) -> Vec<Record> {
    let mut records: Vec<Option<Record>> = records.into_iter().map(Some).collect();
    rows.iter().filter_map(|row| records.get_mut(*row as usize)?.take()).collect()
}
