//! `ladderscope schema KIND`: the JSON schema of a kind of file.

use clap::ValueEnum;

use super::output;
use crate::base::error::Result;
use crate::table::Record;

/// The command line's arguments of `ladderscope schema`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The kind of file: record, experiment, hardware
    #[arg(value_enum, hide_possible_values = true)]
    pub kind: Kind,
}

/// Kinds of files that have a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// A run's record, as `run --format json` prints it
    Record,
    /// An experiment file
    Experiment,
    /// A hardware profile
    Hardware,
}

/// Prints the schema of the kind asked for, as JSON.
pub fn run(args: &Args) -> Result<u8> {
    match args.kind {
        Kind::Record => output::json(&schemars::schema_for!(Record))?,
        Kind::Experiment => output::json(&crate::lab::sweep::experiment_schema())?,
        Kind::Hardware => output::json(&schemars::schema_for!(crate::machine::hardware::Profile))?,
    }
    Ok(0)
}
