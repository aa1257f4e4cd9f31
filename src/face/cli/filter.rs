//! Option `--filter` of every verb that selects stored runs.

use std::path::Path;

use super::stderr;
use crate::desk;
use base::error::{Error, Result};
use base::text::counted;
use study::analysis::filter::Filter;
use study::analysis::{Axis, RunTable, compared_rows};
use table::Record;

/// Filter option of every verb that selects stored runs.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct FilterArgs {
    /// Only runs that match this filter, for example 'arch:ladder tp:4,8 tpot<12 -failed' (syntax: `runs --help`)
    #[arg(long, value_name = "FILTER", allow_hyphen_values = true)]
    pub filter: Option<String>,
}

/// Filter syntax in `runs --help`.
pub const FILTER_SYNTAX: &str = "\
Filter syntax: terms separated by spaces must all match. Case is ignored; - and _ are equal.
  ladder 70b            fuzzy match in any text of a run (upb finds upper-bound)
  \"gpt-fast\" -failed    exact substring; a leading - negates
  arch:ladder tp:4,8    substring of a text, equality of a number; commas mean or; range: tp:2..8
  tok/s>1000 tpot<=5    also = and != (exact), < and >=; units: memory>60GB, ttft<2s, hidden>50%
  tag:good -tag:*       tag; * matches any value, so -tag:* finds runs without tags
  NCCL_ALGO:Ring        environment variables and overrides by name";

impl FilterArgs {
    pub fn typed(&self) -> Option<&str> {
        self.filter.as_deref().filter(|typed| !typed.trim().is_empty())
    }

    /// Records of the named runs and directories (see [`desk::RunSelection::named`]) that match the filter; with a filter,
    /// notes how many do. Fails like [`desk::RunSelection::named`], or if the filter has an unknown field or an invalid value.
    pub fn records(&self, named: &[String], dir: &Path) -> Result<Vec<Record>> {
        let chosen = select_runs(named, dir)?;
        let all = chosen.records.len();
        let records = desk::filter_runs(chosen, self.typed())?;
        if let Some(typed) = self.typed() {
            note_matches(records.len(), all, typed);
        }
        Ok(records)
    }

    /// Records of [`Self::records`], plus those that they are compared with along an axis ([`compared_rows`]). Fails
    /// like [`Self::records`].
    pub fn compared(
        &self,
        named: &[String],
        dir: &Path,
        axis: &Axis,
        baseline: Option<&str>,
    ) -> Result<Vec<Record>> {
        let Some(typed) = self.typed() else { return self.records(named, dir) };
        let desk::RunSelection { records, annotations, .. } = select_runs(named, dir)?;
        let table = RunTable::new(&records, &annotations);
        let filter = Filter::parse(typed);
        filter.check_whole()?;
        let (rows, wrong) = compared_rows(&filter, &table, &records, axis, baseline);
        if let Some(error) = wrong.into_iter().next() {
            return Err(error);
        }
        note_matches(rows.len(), records.len(), typed);
        Ok(desk::take_rows(records, &rows))
    }

    /// Run for a verb that takes one: the named run, or the newest that matches the filter. Fails like
    /// [`Self::records`], if no run matches, or without a name and a filter.
    pub fn one_run(&self, named: Option<&String>, dir: &Path) -> Result<String> {
        let Some(filter) = self.typed() else {
            return named.cloned().ok_or_else(|| {
                let help = "pass a run, or select one with --filter, for example 'arch:ladder tp:8'";
                Error::input_help("no run is named", help)
            });
        };
        let mut records = self.records(named.map_or(&[], std::slice::from_ref), dir)?;
        let found = records.len();
        let newest = records.pop().ok_or_else(|| {
            let help = "`ladderscope runs --filter ...` shows what a filter chooses";
            Error::input_help(format!("no run in {} meets the filter '{filter}'", dir.display()), help)
        })?;
        if found > 1 {
            stderr::note(&format!("the newest of them: {}", newest.run));
        }
        Ok(newest.run)
    }
}

/// Notes how many runs the output covers.
fn note_matches(matching: usize, all: usize, filter: &str) {
    stderr::note(&format!("{matching} of {}, filter {filter}", counted(all, "run")));
}

/// Selects records for verbs over many runs and warns about damaged files. See [`desk::RunSelection::named`], also for errors.
pub fn select_runs(named: &[String], dir: &Path) -> Result<desk::RunSelection> {
    let chosen = desk::RunSelection::named(named, dir)?;
    chosen.damaged.iter().for_each(|damaged| stderr::warn(damaged));
    Ok(chosen)
}
