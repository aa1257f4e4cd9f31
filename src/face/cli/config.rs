//! `ladderscope config`: prints a settings file for the workbench, shows its path, or checks it.

use super::output;
use crate::face::tui::{config_path, config_problems, config_template};
use base::error::{Error, Result};

/// Arguments of `ladderscope config`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Theme to start from: neutral, terminal, dark, light, high-contrast
    #[arg(long, value_name = "THEME", default_value = "neutral")]
    pub theme: String,
    /// Print the path of the settings file instead
    #[arg(long, conflicts_with = "check")]
    pub path: bool,
    /// Check the settings file instead; exit status 2 if it contains an error
    #[arg(long)]
    pub check: bool,
}

/// Prints a template with every theme role and key, the path of the settings file, or its errors.
pub fn run(args: &Args) -> Result<u8> {
    let path = || {
        config_path().ok_or_else(|| {
            Error::input_help("no home directory", "set LADDERSCOPE_CONFIG to a file's path")
        })
    };
    if args.path {
        output::emit(&format!("{}\n", path()?.display()))?;
        return Ok(0);
    }
    if args.check {
        let (path, wrong) = (path()?, config_problems());
        if let [first, rest @ ..] = &wrong[..] {
            let more = rest.iter().map(|w| format!("\n{w}")).collect::<String>();
            return Err(Error::input(format!("{first}{more}")));
        }
        let says = if path.exists() { "is fine" } else { "does not exist; using the built-in settings" };
        output::emit(&format!("{} {says}\n", path.display()))?;
        return Ok(0);
    }
    output::emit(&config_template(&args.theme)?)?;
    Ok(0)
}
