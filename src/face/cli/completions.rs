//! `ladderscope completions SHELL`: prints a completion script. In bash, zsh and fish it calls the program (`complete`) to
//! offer models, stored runs and filter fields. If that returns nothing, and in other shells, a static list of verbs and
//! options is used.

use clap_complete::Shell;

use super::output;
use base::error::{Error, Result};

/// Arguments of `ladderscope completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = INSTALLATION)]
pub struct Args {
    /// Shell to print the script for
    #[arg(value_enum)]
    pub shell: Shell,
}

const INSTALLATION: &str = "\
Add one line to the shell's startup file:
  bash  source <(ladderscope completions bash)                 in ~/.bashrc
  zsh   source <(ladderscope completions zsh)                  in ~/.zshrc, after compinit
  fish  ladderscope completions fish | source                  in ~/.config/fish/config.fish
Completes models, architectures, hardware, runs, experiments, columns, filters and option values.";

/// Calls the program, which handles words that bash splits at colons.
const BASH: &str = include_str!("completions/live.bash");

const ZSH: &str = include_str!("completions/live.zsh");

const FISH: &str = include_str!("completions/live.fish");

pub fn run(args: &Args, command: &mut clap::Command) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "ladderscope", &mut script);
    let script =
        String::from_utf8(script).map_err(|e| Error::failed(format!("the completion script: {e}")))?;
    output::emit(&match args.shell {
        Shell::Bash => format!("{script}\n{BASH}"),
        Shell::Zsh => format!("{script}\n{ZSH}"),
        // fish combines all completions of a command, so the static list is limited to when the program is not found
        Shell::Fish => format!("if not command -q ladderscope\n{script}\nelse\n\n{FISH}\nend\n"),
        _ => script,
    })?;
    Ok(0)
}
