//! `ladderscope man [DIR]`: manual pages, generated from the same arguments as help and completions.

use std::io::Write as _;
use std::path::PathBuf;

use clap_mangen::Man;

use super::{output, report};
use base::atomic::AtomicFile;
use base::error::{Error, Result};
use base::text::counted;

/// Arguments of `ladderscope man`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory for the pages of the command and of every verb [default: print the command's page]
    #[arg(value_name = "DIR")]
    pub folder: Option<PathBuf>,
}

fn page(command: clap::Command) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let program = concat!("ladderscope ", env!("CARGO_PKG_VERSION"));
    let page = Man::new(command).source(program).manual("Ladderscope");
    page.render(&mut text).map_err(|e| Error::failed(format!("the manual page: {e}")))?;
    Ok(text)
}

/// Prints the main page, or writes all pages: `ladderscope.1` and one `ladderscope-VERB.1` per verb.
pub fn run(args: &Args, mut command: clap::Command) -> Result<u8> {
    command.build();
    let Some(dir) = &args.folder else {
        let text = String::from_utf8(page(command)?);
        output::emit(&text.map_err(|e| Error::failed(format!("the manual page: {e}")))?)?;
        return Ok(0);
    };
    let verbs =
        command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help");
    let pages: Vec<clap::Command> = std::iter::once(command.clone()).chain(verbs.cloned()).collect();
    let count = pages.len();
    for command in pages {
        // `man` looks for names such as `ladderscope-run`
        let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
        let path = dir.join(format!("{name}.1"));
        let mut file = AtomicFile::create_all(&path)?;
        file.write_all(&page(command)?).map_err(Error::io(&path))?;
        file.finish()?;
    }
    report::line(&format!("{} in {}", counted(count, "page"), dir.display()));
    Ok(0)
}
