//! `ladderscope` without a verb: the workbench, or a short summary if there is no terminal.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use super::{filter, output};
use crate::face::tui;
use base::error::Result;
use base::text::counted;
use table::Status;

/// Opens the workbench on a terminal, else prints a short introduction.
pub fn workbench_or_summary(dir: PathBuf) -> Result<u8> {
    if std::io::stdout().is_terminal() && std::io::stdin().is_terminal() {
        tui::run(tui::Options { dir, ..tui::Options::default() })?;
    } else {
        output::emit(&text(&dir)?)?;
    }
    Ok(0)
}

fn text(dir: &Path) -> Result<String> {
    let records = filter::select(&[], dir)?.records;
    let count = |status| records.iter().filter(|record| record.status == status).count();
    let running = match count(Status::Running) {
        0 => String::new(),
        running => format!(", {running} running now"),
    };
    Ok(format!(
        "\
Ladderscope {}: how much of tensor-parallel decoding time is exposed communication,
and which model architecture hides it best, on which hardware?

{} in {} ({} ok{running}). Not a terminal, so the workbench was not opened. Try:

  ladderscope run --model tiny --backend cpu --tp 2 --architecture ladder   run one cell
  ladderscope experiments                                                   experiment files at hand
  ladderscope sweep FILE.toml                                               run an experiment
  ladderscope runs                                                          list stored runs
  ladderscope doctor                                                        what this machine can do
  ladderscope --help                                                        everything else
",
        env!("CARGO_PKG_VERSION"),
        counted(records.len(), "stored run"),
        dir.display(),
        count(Status::Ok),
    ))
}
