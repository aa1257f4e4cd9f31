//! Completion of a partial command line: verbs, options, and values from the tables and the stored runs. Shell
//! scripts call the hidden verb `__complete`. It reads only file names, so an answer takes a few milliseconds for any
//! number of runs.

use std::path::PathBuf;

use clap::{Arg, Command};

use super::app;
use super::complete_values::values;
use base::offer::{Completion, Offer, fitting};

const MOST: usize = 200;

const PROGRAM: &str = "ladderscope";

/// Hidden verb that shell scripts call for completions.
pub const VERB: &str = "__complete";

/// Parsed part of the line before the cursor.
pub struct Typed<'a> {
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
    let mut typed = Typed { verbs: Vec::new(), dir: "runs".into(), value: word };
    let (mut positional, mut pending): (usize, Option<&Arg>) = (0, None);
    for word in before {
        if let Some(option) = pending.take() {
            if option.get_long() == Some("dir") {
                typed.dir = PathBuf::from(*word);
            }
        } else if let Some((name, value)) = option_of(word) {
            let option = found(command, name);
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
        return values(option, &typed);
    }
    if let Some((name, Some(value))) = option_of(word) {
        let Some(option) = found(command, name) else { return Completion::default() };
        let start = word.len() - value.len();
        typed.value = value;
        let Completion { replaces, offers } = values(option, &typed);
        return Completion { replaces: start + replaces.start..start + replaces.end, offers };
    }
    if word.starts_with('-') {
        return all(fitting(options(command), word, MOST));
    }
    let mut offers = Vec::new();
    if positional == 0 {
        let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
        let verb = |verb: &Command| Offer::new(verb.get_name(), told(verb.get_about()));
        offers = fitting(verbs.map(verb), word, MOST);
        // verbs must match by prefix
        offers.retain(|offer| offer.text.starts_with(word));
    }
    let mut positionals = command.get_positionals();
    let last = || {
        command
            .get_positionals()
            .last()
            .filter(|arg| arg.get_num_args().is_some_and(|n| n.max_values() > 1))
    };
    if let Some(argument) = positionals.nth(positional).or_else(last) {
        let Completion { replaces, offers: more } = values(argument, &typed);
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
        Some(Offer::new(format!("--{}", argument.get_long()?), told(argument.get_help())))
    };
    shown.filter_map(offer).collect()
}

fn told(text: Option<&clap::builder::StyledStr>) -> String {
    text.map(ToString::to_string).unwrap_or_default()
}

/// Splits a word into an option's name and the value attached to it, if any.
fn option_of(word: &str) -> Option<(&str, Option<&str>)> {
    let long = word.strip_prefix("--").filter(|name| !name.is_empty());
    let text = long.or_else(|| word.strip_prefix('-').filter(|name| name.len() == 1))?;
    Some(text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value))))
}

fn found<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
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

/// Entry point of the hidden verb. Arguments: the line, and for bash the token.
pub fn main(arguments: &[String]) -> String {
    match arguments {
        [line] => answer(line, None),
        [line, token, ..] => answer(line, Some(token)),
        [] => String::new(),
    }
}

/// True if a word looks like a path, which shells complete themselves.
pub fn is_path(word: &str) -> bool {
    word.contains('/') || word.starts_with(['.', '~'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(line: &str) -> Vec<String> {
        let told = answer(line, None);
        told.lines().filter_map(|line| Some(line.split_once('\t')?.0.to_owned())).collect()
    }

    #[test]
    fn verbs_options_and_values_follow() {
        assert_eq!(offered("ladderscope calib"), ["calibrate"]);
        assert!(!offered("ladderscope ").contains(&"__run".to_owned()), "hidden");
        assert_eq!(offered("ladderscope runs ta"), ["tag"]);
        assert_eq!(offered("ladderscope run --p"), ["--prompt-tokens", "--p2p"]);
        assert_eq!(offered("ladderscope run --architecture up"), ["upper-bound"]);
        let told = answer("ladderscope run --architecture up", None);
        assert!(told.contains("wrong on purpose"), "what it means stands beside it: {told}");
        assert_eq!(offered("ladderscope run --architecture=up"), ["--architecture=upper-bound"]);
        assert!(offered("ladderscope run --model llama").contains(&"llama-3-70b".to_owned()));
        assert_eq!(offered("ladderscope run --tp 8 --hardware h100"), ["h100_sxm"]);
        assert_eq!(offered("ladderscope run --env NCCL_PROTO=LL1"), ["NCCL_PROTO=LL128"]);
        assert!(offered("ladderscope whatif --set link.al").contains(&"link.alpha_us=".to_owned()));
        assert_eq!(offered("ladderscope sweep paper").len(), 2);
        assert_eq!(offered("ladderscope compare --by prompt"), ["prompt_tokens"]);
        assert_eq!(offered("ladderscope runs --status sk"), ["skipped"]);
        assert_eq!(offered("ladderscope figure pareto --p2p o"), ["on", "off"]);
        assert_eq!(offered("ladderscope schema hardware-").as_slice(), ["hardware-list"]);
        assert!(offered("ladderscope runs --columns run,tpo").contains(&"run,tpot".to_owned()));
        assert!(offered("ladderscope runs --columns run,tok/").contains(&"run,tok/s".to_owned()));
        assert!(!offered("ladderscope runs --filter tok/").is_empty(), "a column, and no path");
        assert!(offered("ladderscope show ./x").is_empty(), "files are the shell's");
    }

    #[test]
    fn filters_are_completed_within_their_quotes() {
        assert_eq!(offered("ladderscope pareto --filter 'tp:4 exper"), ["tp:4 exp:"]);
        assert_eq!(offered("ladderscope runs --filter arch:lad")[..2], ["arch:ladder", "arch:ladder:K"]);
        assert_eq!(offered("ladderscope runs --filter p2p:on,of"), ["p2p:on,off"]);
    }

    #[test]
    fn what_a_shell_parts_at_colons_is_completed_behind_them() {
        let told = answer("ladderscope runs --filter arch:up", Some("up"));
        assert_eq!(told.split('\t').next(), Some("upper-bound"));
        let told = answer("ladderscope run --architecture=up", Some("up"));
        assert_eq!(told.split('\t').next(), Some("upper-bound"));
    }

    #[test]
    fn no_line_breaks_it() {
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
