//! `ladderscope completions SHELL`: a completion script on standard output.

use clap_complete::Shell;

use super::output;
use crate::base::error::{Error, Result};

/// The command line's arguments of `ladderscope completions`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Prints the completion script of the shell asked for.
pub fn run(args: &Args, command: &mut clap::Command) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "ladderscope", &mut script);
    let script =
        String::from_utf8(script).map_err(|e| Error::failed(format!("the completion script: {e}")))?;
    output::emit(&script)?;
    Ok(0)
}
