//! `ladderscope trace convert IN OUT`: reserved; this version says so.

use std::path::PathBuf;

use crate::error::{Error, Result};

/// Arguments of `trace`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Convert a trace; the format follows from content or extension (not in this version)
    Convert {
        /// The trace to read
        #[arg(value_name = "IN")]
        input: PathBuf,
        /// The trace to write
        #[arg(value_name = "OUT")]
        output: PathBuf,
    },
}

/// Says that converting is not in this version.
pub fn run(args: &Args) -> Result<u8> {
    let Verb::Convert { input, output } = &args.verb;
    Err(Error::input_help(
        format!(
            "trace convert {} {}: converting traces is not in this version of ladderscope ({})",
            input.display(),
            output.display(),
            env!("CARGO_PKG_VERSION")
        ),
        "`overlap` and `timeline` read the traces that `run` and `sweep` record",
    ))
}
