//! Help beyond the argument structs: headings of long option lists, examples, and the global options that have no
//! effect on a verb. Verb `man`: manual pages from the same definitions.

use std::io::Write as _;
use std::path::PathBuf;

use clap::{Arg, Command};
use clap_mangen::Man;

use super::app::VerbEntry;
use super::{VERBS, output, stderr};
use base::atomic::AtomicFile;
use base::error::{Error, Result};
use base::text::counted;

/// Headings of options: verbs, heading, ids of the options.
const HEADINGS: [(&str, &str, &str); 14] = [
    (
        "run whatif",
        "Model and workload",
        "architecture model dtype kv_dtype tp pp ep dp expert_load batch prompt_tokens \
         output_tokens micro_batches concurrency sequence_parallel shard_head seed",
    ),
    (
        "run whatif",
        "Backend and communication",
        "backend p2p link collective comm_dtype nvls comm_sms env",
    ),
    ("run whatif", "Simulator", "hardware stack set"),
    ("run", "Measured runs", "samples warmup rounds threads recorder no_graph timeout"),
    ("whatif", "Sweep", "alpha_us gb_s network_alpha_us network_gb_s sms hidden_pct"),
    (
        "calibrate",
        "Add measured all-reduces to a profile",
        "collectives p2p message_bytes extrapolate rules recording",
    ),
    ("calibrate", "Fit constants to measured runs", "data filter stack fit no_cross_validation"),
    ("rewire", "If the trace does not record it", "layers tp message_bytes"),
    ("rewire overlap", "Opening traces", "rules recording filter"),
    ("diff report", "Opening traces", "rules recording"),
    ("overlap timeline report", "Selection", "phase step from to"),
    ("convert", "Write a checkpoint", "write layers budget point"),
    ("convert validate", "Figure", "output size dpi font"),
    ("adapt", "Optimizer", "lr warmup weight_decay clip batch context distil replicas tp seed"),
];

/// Verbs that read traces, besides those with [`OpenOptions`](crate::desk::OpenOptions). They have a memory limit.
const TRACE_VERBS: &str = "record show figure trace";

/// True if this is one of the words of `all`.
fn has(all: &str, word: &str) -> bool {
    all.split(' ').any(|one| one == word)
}

/// Adds examples and headings to all verbs, and hides global options without effect. Builds the command, since only
/// then the verbs have the global options.
pub(super) fn completed(mut command: Command) -> Command {
    command.build();
    for verb in command.get_subcommands_mut() {
        *verb = adapted(std::mem::take(verb));
    }
    command
}

fn adapted(verb: Command) -> Command {
    let name = verb.get_name().to_owned();
    let Some(&VerbEntry { examples, page, uses_runs_dir, .. }) =
        VERBS.iter().find(|entry| entry.name.eq_ignore_ascii_case(&name))
    else {
        return verb;
    };
    let header = verb.get_styles().get_header();
    let notes = verb.get_after_help().map(|notes| format!("{}\n\n", notes.ansi())).unwrap_or_default();
    let lines: String = examples.iter().map(|line| format!("  {line}\n")).collect();
    let after = format!("{notes}{header}Examples:{header:#}\n{lines}\nDocumentation: docs/{page}");
    let has_csv =
        name == "trace" || name == "runs" || verb.get_arguments().any(|arg| arg.get_id() == "format");
    let reads_traces =
        has(TRACE_VERBS, &name) || verb.get_arguments().any(|arg| arg.get_id() == "recording");
    let is_shown = move |id: &str| match id {
        "dir" => uses_runs_dir,
        "raw" => has_csv,
        "memory_limit" => reads_traces,
        _ => true,
    };
    let heading = move |arg: Arg| {
        let id = arg.get_id().as_str().to_owned();
        if !is_shown(&id) {
            return arg.hide(true);
        }
        let takes_value = arg.get_action().takes_values() && arg.get_long().is_some();
        match HEADINGS.iter().find(|(verbs, _, ids)| has(verbs, &name) && has(ids, &id)) {
            Some((_, heading, _)) => arg.help_heading(*heading),
            None => arg,
        }
        // so that -1 is an error about the number, not about an unknown option -1
        .allow_negative_numbers(takes_value)
    };
    verb.mut_args(heading).after_help(after)
}

/// Arguments of `ladderscope man`.
#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// Directory for the pages of the command and of every verb [default: print the command's page]
    #[arg(value_name = "DIR")]
    pub folder: Option<PathBuf>,
}

fn man_page(command: Command) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let program = concat!("ladderscope ", env!("CARGO_PKG_VERSION"));
    let page = Man::new(command).source(program).manual("Ladderscope");
    page.render(&mut text).map_err(|e| Error::failed(format!("the manual page: {e}")))?;
    Ok(text)
}

/// Prints the main page, or writes all pages: `ladderscope.1` and one `ladderscope-VERB.1` per verb.
pub fn man(args: &ManArgs, mut command: Command) -> Result<u8> {
    command.build();
    let Some(dir) = &args.folder else {
        let text = String::from_utf8(man_page(command)?);
        output::emit(&text.map_err(|e| Error::failed(format!("the manual page: {e}")))?)?;
        return Ok(0);
    };
    let verbs =
        command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help");
    let pages: Vec<Command> = std::iter::once(command.clone()).chain(verbs.cloned()).collect();
    let count = pages.len();
    for command in pages {
        // `man` looks for names such as `ladderscope-run`
        let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
        let path = dir.join(format!("{name}.1"));
        let mut file = AtomicFile::create_all(&path)?;
        file.write_all(&man_page(command)?).map_err(Error::io(&path))?;
        file.finish()?;
    }
    stderr::line(&format!("{} in {}", counted(count, "page"), dir.display()));
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::cli::app::command;

    /// An example with a wrong option would be worse than none.
    #[test]
    fn examples_parse() {
        for VerbEntry { examples, page, .. } in VERBS {
            let page = format!("{}/docs/{page}", env!("CARGO_MANIFEST_DIR"));
            assert!(std::path::Path::new(&page).is_file(), "{page}");
            for example in *examples {
                let line = example.split(" | ").next().unwrap().split(" > ").next().unwrap();
                // quoted words contain blanks
                let mut words: Vec<String> = Vec::new();
                for (at, part) in line.split('\'').enumerate() {
                    match at % 2 {
                        0 => words.extend(part.split_whitespace().map(str::to_owned)),
                        _ => words.push(part.to_owned()),
                    }
                }
                assert!(example.len() < 98, "too long: {example}");
                let parsed = command().try_get_matches_from(&words);
                assert!(parsed.is_ok(), "{example}: {}", parsed.unwrap_err());
            }
        }
    }

    #[test]
    fn headings_name_options() {
        let command = command();
        for (verbs, heading, ids) in HEADINGS {
            let verbs: Vec<_> =
                verbs.split(' ').map(|verb| command.find_subcommand(verb).unwrap()).collect();
            let has = |verb: &&Command, id: &str| verb.get_arguments().any(|arg| arg.get_id() == id);
            for verb in &verbs {
                assert!(
                    ids.split(' ').any(|id| has(verb, id)),
                    "{} has no option of '{heading}'",
                    verb.get_name()
                );
            }
            for id in ids.split(' ') {
                assert!(verbs.iter().any(|verb| has(verb, id)), "{heading}: no option {id}");
            }
        }
    }
}
