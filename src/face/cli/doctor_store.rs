//! `ladderscope doctor --store DIR`: verifies every record, segment and trace of a store against its checksum.

use std::path::Path;

use super::output::{self, OutputFormat};
use super::stderr;
use base::error::{Error, Result};
use base::text::counted;
use lab::store::{Store, StoreCheck};
use table::render::{Shown, Sourced, Table};

/// Checks the store and prints what is damaged or foreign. Returns exit status 0 if nothing is damaged, otherwise 1.
pub(super) fn check_store(dir: &Path, format: OutputFormat) -> Result<u8> {
    if !dir.is_dir() {
        return Err(Error::input(format!("{}: no such directory", dir.display())));
    }
    let check = Store::open(dir).check()?;
    match format {
        OutputFormat::Json => output::json(&check)?,
        OutputFormat::Csv => output::emit(&store_table(&check).csv(Sourced::NoRuns))?,
        OutputFormat::Table => {
            let found = match check.damaged.len() {
                0 => "✔ no damage found".into(),
                files => format!("✘ {} damaged", counted(files, "file")),
            };
            let StoreCheck { runs, segments, traces, .. } = check;
            output::emit(&format!(
                "{found}: checked {}, {} of simulated runs and {} in {}\n",
                counted(runs, "measured run"),
                counted(segments, "file"),
                counted(traces, "trace"),
                dir.display()
            ))?;
            if !check.damaged.is_empty() || !check.foreign.is_empty() {
                output::emit(&output::aligned(&store_table(&check)))?;
            }
            if check.without_checksum > 0 {
                let files = counted(check.without_checksum, "file");
                stderr::note(&format!("{files} without a checksum were only parsed"));
            }
        }
    }
    Ok(u8::from(!check.damaged.is_empty()))
}

fn store_table(check: &StoreCheck) -> Table {
    let mut table = Table::new(["path", "state", "problem"]);
    for file in &check.damaged {
        table.push(vec![Shown::text(&file.path), Shown::text("damaged"), Shown::text(&file.problem)]);
    }
    for path in &check.foreign {
        table.push(vec![Shown::text(path), Shown::text("foreign"), Shown::None]);
    }
    table
}
