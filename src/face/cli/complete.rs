//! Completion of a partial command line: verbs, options, and values from the tables and the stored runs, by the value name
//! in an argument's help. Shell scripts call the hidden verb `__complete`. It reads only file names, so an answer takes a
//! few milliseconds for any number of runs.
//!
//! `clap_complete::engine` does not serve: a completer of its sees only its value, so not the `--dir` whose runs it should
//! offer; it offers only texts that begin with the typed word (`upb` finds `upper-bound` here); and it is unstable.
//!
//! `ladderscope completions SHELL`: prints a completion script. In bash, zsh and fish it calls the program
//! (`complete`) to offer models, stored runs and filter fields. If that returns nothing, and in other shells, a
//! static list of verbs and options is used.

use std::path::{Path, PathBuf};

use clap::{Arg, Command};
use clap_complete::Shell;

use super::{app, output};
use crate::desk::{experiments, offers};
use crate::face::tui;
use base::error::{Error, Result};
use base::offer::{Completion, Offer, complete_word, fitting};
use lab::store::{Annotations, Store};
use study::analysis::filter::complete as complete_filter;
use study::analysis::{RunTable, XAxis, YAxis};
use study::calibrate::PARAMETERS;
use table::options::OPTIONS;
use table::{MEASURES, Provenance, Status};

/// Maximum number of offers.
const MOST_OFFERS: usize = 200;

const PROGRAM: &str = "ladderscope";

/// Hidden verb that shell scripts call for completions.
pub const VERB: &str = "__complete";

/// Parsed part of the line before the cursor.
pub struct CompletionInput<'a> {
    /// Verb and nested verbs, e.g. `runs tag`.
    pub verbs: Vec<&'a str>,
    /// Runs directory named on the line.
    pub dir: PathBuf,
    /// Part of the word to complete.
    pub value: &'a str,
}

/// Answers a shell with one offer per line, followed by a tab and its description. `line` is the typed line up to the
/// cursor. `token` is the end of the last word that the shell replaces, if it is not the whole word (bash splits
/// words at colons).
pub fn answer(line: &str, token: Option<&str>) -> String {
    let words = words(line);
    let Some((word, before)) = words.split_last() else { return String::new() };
    // variables or `time` may precede the program
    let program = before.iter().position(|word| word.ends_with(PROGRAM)).unwrap_or(0);
    let before: Vec<&str> = before.iter().skip(program + 1).map(String::as_str).collect();
    let completion = complete(&before, word);
    // in `--option=value` the shell may replace only the value
    let token = token.map_or(word.as_str(), |token| token.trim_start_matches(['\'', '"']));
    let kept = &word[..word.strip_suffix(token).map_or(0, str::len)];
    let mut lines = String::new();
    for offer in completion.offers {
        let whole = format!("{}{}", &word[..completion.replaces.start], offer.text);
        let Some(text) = whole.strip_prefix(kept) else { continue };
        lines += &format!("{text}\t{}\n", offer.about.lines().next().unwrap_or_default());
    }
    lines
}

/// Completes `word` after the words before it.
fn complete(before: &[&str], word: &str) -> Completion {
    let mut root = app::command();
    root.build();
    let mut command = &root;
    let mut typed = CompletionInput { verbs: Vec::new(), dir: "runs".into(), value: word };
    let (mut positional, mut pending): (usize, Option<&Arg>) = (0, None);
    for word in before {
        if let Some(option) = pending.take() {
            if option.get_long() == Some("dir") {
                typed.dir = PathBuf::from(*word);
            }
        } else if let Some((name, value)) = option_of(word) {
            let option = option_named(command, name);
            match value {
                Some(dir) if name == "dir" => typed.dir = PathBuf::from(dir),
                Some(_) => {}
                None => pending = option.filter(|option| takes_value(option)),
            }
        } else if let Some(verb) = command.find_subcommand(word) {
            typed.verbs.push(verb.get_name());
            (command, positional) = (verb, 0);
        } else {
            positional += 1;
        }
    }
    let all = |offers: Vec<Offer>| Completion { replaces: 0..word.len(), offers };
    if let Some(option) = pending {
        return complete_value(option, &typed);
    }
    if let Some((name, Some(value))) = option_of(word) {
        let Some(option) = option_named(command, name) else { return Completion::default() };
        let start = word.len() - value.len();
        typed.value = value;
        let Completion { replaces, offers } = complete_value(option, &typed);
        return Completion { replaces: start + replaces.start..start + replaces.end, offers };
    }
    if word.starts_with('-') {
        return all(fitting(options(command), word, MOST_OFFERS));
    }
    let mut offers = Vec::new();
    if positional == 0 {
        let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
        let verb = |verb: &Command| Offer::new(verb.get_name(), plain_text(verb.get_about()));
        offers = fitting(verbs.map(verb), word, MOST_OFFERS);
        // verbs must match by prefix
        offers.retain(|offer| offer.text.starts_with(word));
    }
    let mut positionals = command.get_positionals().filter(|argument| !argument.is_hide_set());
    let last = || {
        command
            .get_positionals()
            .last()
            .filter(|arg| arg.get_num_args().is_some_and(|n| n.max_values() > 1))
    };
    if let Some(argument) = positionals.nth(positional).or_else(last) {
        let Completion { replaces, offers: more } = complete_value(argument, &typed);
        if offers.is_empty() {
            return Completion { replaces, offers: more };
        }
        offers.extend(more);
    }
    all(offers)
}

fn options(command: &Command) -> Vec<Offer> {
    let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let offer = |argument: &Arg| {
        Some(Offer::new(format!("--{}", argument.get_long()?), plain_text(argument.get_help())))
    };
    shown.filter_map(offer).collect()
}

fn plain_text(text: Option<&clap::builder::StyledStr>) -> String {
    text.map(ToString::to_string).unwrap_or_default()
}

/// Splits a word into an option's name and the value attached to it, if any.
fn option_of(word: &str) -> Option<(&str, Option<&str>)> {
    let long = word.strip_prefix("--").filter(|name| !name.is_empty());
    let text = long.or_else(|| word.strip_prefix('-').filter(|name| name.len() == 1))?;
    Some(text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value))))
}

fn option_named<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    let short = name.chars().next().filter(|_| name.chars().count() == 1);
    command.get_arguments().find(|argument| {
        argument.get_long() == Some(name) || (short.is_some() && argument.get_short() == short)
    })
}

fn takes_value(option: &Arg) -> bool {
    option.get_action().takes_values() && !option.is_require_equals_set()
}

/// Splits a line into words like a shell, resolving quotes. The last word is being typed and may be empty.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    let mut letters = line.trim_start().chars();
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            ('\\', None) => word.extend(letters.next()),
            ('\'' | '"', None) => quote = Some(letter),
            (letter, Some(open)) if letter == open => quote = None,
            (' ' | '\t', None) => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            (letter, _) => word.push(letter),
        }
    }
    words.push(word);
    words
}

/// True if a word looks like a path, which shells complete themselves.
pub fn is_path(word: &str) -> bool {
    word.contains('/') || word.starts_with(['.', '~'])
}

/// Maximum number of runs that are offered.
const MOST_RUNS: usize = 50;

fn complete_value(argument: &Arg, typed: &CompletionInput<'_>) -> Completion {
    let name = argument.get_value_names().and_then(|names| names.first());
    let name = name.map_or("", |name| name.as_str());
    let possible = argument.get_possible_values();
    let possible =
        possible.iter().map(|value| Offer::new(value.get_name(), plain_text(value.get_help())));
    let possible: Vec<Offer> = possible.collect();
    let option = OPTIONS.iter().find(|option| argument.get_long() == Some(option.flag));
    let single = |offers: Vec<Offer>| completed(typed.value, 0, offers);
    let several =
        |offers: Vec<Offer>| complete_word(typed.value, typed.value.len(), &offers, MOST_OFFERS);
    match name {
        // names of columns and models also contain slashes
        "FILTER" => complete_filter_text(typed),
        "COLUMN,..." | "COLUMN[:desc],..." => several(columns()),
        // the shell completes directories, as of --model of a verb that takes only checkpoints
        "DIR" => Completion::default(),
        _ if is_path(typed.value) => Completion::default(),
        _ if option.is_some() => {
            let offers = option.map(offers::values).unwrap_or_default();
            if typed.value.contains(',') { several(offers) } else { single(offers) }
        }
        _ if !possible.is_empty() => single(possible),
        "KEY=VALUE" => complete_pair(argument, typed),
        "AXIS" if typed.verbs.contains(&"compare") => single(option_names()),
        "AXIS" => single(axes()),
        "RUN" | "RUNS|DIR" | "RUNS|DIR|TRACE" | "RUN|TRACE" | "A" | "B" | "BENEATH" => {
            single(runs(&typed.dir))
        }
        "FILE.toml" => single(experiments::names(Path::new(experiments::DIRECTORY))),
        "MEASURE" => single(measures()),
        "BASELINE" => single(baselines(&typed.dir)),
        "TAG" | "TAGS" => several(tags(&typed.dir)),
        "STATUS" => single(Status::ALL.map(|status| Offer::new(status.as_str(), "")).into()),
        "RULES" => single(["default", "nccl-name", "hta"].map(|name| Offer::new(name, "")).into()),
        "THEME" => single(tui::theme_names().map(|name| Offer::new(name, "")).collect()),
        "published|FILE" => single(vec![Offer::new("published", "the 70B points of arXiv 2501.06589")]),
        "KEY,..." => several(PARAMETERS.iter().map(|p| Offer::new(p.key, "")).collect()),
        "on|off" => single(["on", "off"].map(|word| Offer::new(word, "")).into()),
        "NAME" | "NAME|FILE" if typed.verbs.contains(&"hardware") => {
            single(["hardware", "stack"].into_iter().flat_map(offers::axis_values).collect())
        }
        _ => Completion::default(),
    }
}

/// Newest runs and batches by id. Reads only file names.
fn runs(dir: &Path) -> Vec<Offer> {
    let ids = Store::open(dir).ids().unwrap_or_default();
    let last = (!ids.is_empty()).then(|| Offer::new("last", "the newest run that has ended"));
    last.into_iter().chain(ids.into_iter().take(MOST_RUNS).map(|id| Offer::new(id, ""))).collect()
}

fn baselines(dir: &Path) -> Vec<Offer> {
    let names = Store::open(dir).baseline_names().unwrap_or_default();
    names.into_iter().map(|name| Offer::new(name, "")).collect()
}

fn tags(dir: &Path) -> Vec<Offer> {
    let annotations = Store::open(dir).annotations();
    let tag = |(tag, count): (&str, usize)| Offer::new(tag, base::text::counted(count, "run"));
    annotations.tags().into_iter().map(tag).collect()
}

fn option_names() -> Vec<Offer> {
    OPTIONS.iter().map(|option| Offer::new(option.name, option.help())).collect()
}

fn measures() -> Vec<Offer> {
    let measure = |measure: &table::Measure| {
        Offer::new(measure.aliases.first().copied().unwrap_or(measure.name), measure.title)
    };
    MEASURES.iter().map(measure).collect()
}

fn axes() -> Vec<Offer> {
    let named = XAxis::ALL.map(XAxis::as_str).into_iter().chain(YAxis::ALL.map(YAxis::as_str));
    named.map(|name| Offer::new(name, "")).chain(measures()).collect()
}

fn columns() -> Vec<Offer> {
    let table = RunTable::new(&[], &Annotations::default());
    let column = |column: &study::analysis::RunTableColumn| {
        Offer::new(column.field.short(), column.field.title.clone())
    };
    table.shown().map(column).collect()
}

/// Completes a field of the filter language or a value of the field's option. Reads no runs.
fn complete_filter_text(typed: &CompletionInput<'_>) -> Completion {
    let table = RunTable::new(&[], &Annotations::default());
    let found = complete_filter(typed.value, typed.value.len(), &table, MOST_OFFERS);
    if !found.offers.is_empty() {
        return found;
    }
    let start = found.replaces.start;
    let field = typed.value[..start].trim_end_matches([':', '=', '!', '~']);
    let field = field.rsplit([' ', '-']).next().unwrap_or(field);
    // completes the last alternative
    let name = field.split([':', '=']).next().and_then(|name| table.find(name));
    let name = name.and_then(|at| table.columns().get(at)).map(|column| column.field.name.to_string());
    let known: Vec<Offer> = match name.as_deref() {
        Some("experiment") => experiments::names(Path::new(experiments::DIRECTORY)),
        Some("status") => Status::ALL.map(|status| Offer::new(status.as_str(), "")).into(),
        Some("tags") => tags(&typed.dir),
        Some("provenance") => Provenance::ALL.map(|one| Offer::new(one.as_str(), "")).into(),
        Some(name) => offers::axis_values(name),
        None => Vec::new(),
    };
    completed(typed.value, start, known)
}

/// Completes a value from a byte position on.
fn completed(value: &str, start: usize, offers: impl IntoIterator<Item = Offer>) -> Completion {
    let offers = fitting(offers, &value[start..], MOST_OFFERS);
    Completion { replaces: start..value.len(), offers }
}

/// Completes `KEY=VALUE`: NCCL variables, or values of the hardware profile or stack.
fn complete_pair(argument: &Arg, typed: &CompletionInput<'_>) -> Completion {
    let option = if argument.get_long() == Some("env") { "env" } else { "set" };
    if let Some((key, value)) = typed.value.split_once('=') {
        let values = offers::axis_values(&format!("{option}.{key}"));
        return completed(typed.value, typed.value.len() - value.len(), values);
    }
    let names = offers::keys(option).into_iter();
    completed(typed.value, 0, names.map(|name| Offer::new(format!("{}=", name.text), name.about)))
}

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
const BASH: &str = r#"
_ladderscope_live() {
    local offer answer program="${COMP_WORDS[0]/#\~/$HOME}"
    answer=$("$program" __complete "${COMP_LINE:0:COMP_POINT}" "$2" 2>/dev/null)
    if [[ -z $answer ]]; then
        _ladderscope "$@"
        return
    fi
    COMPREPLY=()
    while IFS=$'\t' read -r offer _; do
        COMPREPLY+=("$offer")
    done <<< "$answer"
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} =~ [=:,\>/]$ ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -F _ladderscope_live -o nosort -o bashdefault -o default ladderscope 2>/dev/null ||
    complete -F _ladderscope_live -o bashdefault -o default ladderscope
"#;

const ZSH: &str = r#"
_ladderscope_live() {
    local -a answer texts shown open open_shown
    local offer
    answer=("${(@f)$(${(Q)~words[1]} __complete "${(j: :)words[1,CURRENT]}" 2>/dev/null)}")
    if [[ -z "$answer" ]]; then
        _ladderscope "$@"
        return
    fi
    for offer in $answer; do
        if [[ "${offer%%$'\t'*}" == *[=:,\>/] ]]; then
            open+=("${offer%%$'\t'*}")
            open_shown+=("${offer/$'\t'/  -- }")
        else
            texts+=("${offer%%$'\t'*}")
            shown+=("${offer/$'\t'/  -- }")
        fi
    done
    compadd -V ladderscope -l -d shown -a texts
    compadd -V ladderscope -l -S '' -d open_shown -a open
}
compdef _ladderscope_live ladderscope
"#;

const FISH: &str = r#"
function __ladderscope_live
    ladderscope __complete (commandline -cp | string collect) 2>/dev/null
end
complete -c ladderscope -e
complete -c ladderscope -k -f -n 'count (__ladderscope_live) >/dev/null' -a '(__ladderscope_live)'
complete -c ladderscope -F -n 'not count (__ladderscope_live) >/dev/null'
"#;

pub fn run(args: &Args, command: &mut clap::Command) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "ladderscope", &mut script);
    let script =
        String::from_utf8(script).map_err(|e| Error::failed(format!("the completion script: {e}")))?;
    output::emit(&match args.shell {
        Shell::Bash => script + BASH,
        Shell::Zsh => script + ZSH,
        // fish combines all completions of a command, so the static list is limited to when the program is not found
        Shell::Fish => format!("if not command -q ladderscope\n{script}\nelse\n{FISH}\nend\n"),
        _ => script,
    })?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(line: &str) -> Vec<String> {
        let answered = answer(line, None);
        answered.lines().filter_map(|line| Some(line.split_once('\t')?.0.to_owned())).collect()
    }

    #[test]
    fn verbs_options_and_values_are_completed() {
        assert_eq!(offered("ladderscope calib"), ["calibrate"]);
        assert!(!offered("ladderscope ").contains(&"__run".to_owned()), "hidden");
        assert_eq!(offered("ladderscope runs ta"), ["tag"]);
        assert_eq!(offered("ladderscope run --p"), ["--prompt-tokens", "--p2p", "--pp"]);
        assert_eq!(offered("ladderscope run --architecture up"), ["upper-bound"]);
        let answered = answer("ladderscope run --architecture up", None);
        assert!(answered.contains("wrong on purpose"), "with its meaning: {answered}");
        assert_eq!(offered("ladderscope run --architecture=up"), ["--architecture=upper-bound"]);
        assert!(offered("ladderscope run --model llama").contains(&"llama-3-70b".to_owned()));
        assert_eq!(offered("ladderscope run --tp 8 --hardware h100_s"), ["h100_sxm"]);
        assert_eq!(offered("ladderscope run --env NCCL_PROTO=LL1"), ["NCCL_PROTO=LL128"]);
        assert!(offered("ladderscope whatif --set link.al").contains(&"link.alpha_us=".to_owned()));
        assert_eq!(offered("ladderscope sweep paper").len(), 2);
        assert_eq!(offered("ladderscope compare --by prompt"), ["prompt_tokens"]);
        assert_eq!(offered("ladderscope runs --status sk"), ["skipped"]);
        assert_eq!(offered("ladderscope figure pareto --p2p o"), ["on", "off"]);
        assert_eq!(
            offered("ladderscope schema hardware-").as_slice(),
            ["hardware-list", "hardware-collectives"]
        );
        assert!(offered("ladderscope runs --columns run,tpo").contains(&"run,tpot".to_owned()));
        assert!(offered("ladderscope runs --columns run,tok/").contains(&"run,tok/s".to_owned()));
        assert!(!offered("ladderscope runs --filter tok/").is_empty(), "a column, and no path");
        assert!(offered("ladderscope show ./x").is_empty(), "files are the shell's");
    }

    #[test]
    fn filters_are_completed_within_their_quotes() {
        assert_eq!(offered("ladderscope pareto --filter 'tp:4 experim"), ["tp:4 exp:"]);
        assert_eq!(offered("ladderscope runs --filter arch:lad")[..2], ["arch:ladder", "arch:ladder:K"]);
        assert_eq!(offered("ladderscope runs --filter p2p:on,of"), ["p2p:on,off"]);
    }

    #[test]
    fn only_the_part_after_a_colon_is_replaced_in_bash() {
        let answered = answer("ladderscope runs --filter arch:up", Some("up"));
        assert_eq!(answered.split('\t').next(), Some("upper-bound"));
        let answered = answer("ladderscope run --architecture=up", Some("up"));
        assert_eq!(answered.split('\t').next(), Some("upper-bound"));
    }

    #[test]
    fn any_line_is_accepted() {
        for line in [
            "",
            " ",
            "ladderscope",
            "x '",
            "x \\",
            "ladderscope --",
            "ladderscope -",
            "ladderscope --=",
            "é --x é",
        ] {
            answer(line, None);
            answer(line, Some("zz"));
        }
    }
}
