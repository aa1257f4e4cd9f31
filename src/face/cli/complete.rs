//! What can follow on a command line that is being typed: verbs, options, and values from the tables and from the
//! stored runs. Scripts of shells ask with the hidden verb `__complete`; nothing is read but names of files, so that an
//! answer takes a few milliseconds whatever is stored.

use std::path::PathBuf;

use clap::{Arg, Command};

use super::app;
use super::complete_values::values;
use base::offer::{Completion, Offer, fitting};

/// Offers that a shell is given at most.
const MOST: usize = 200;

/// The program, as it is called.
const PROGRAM: &str = "ladderscope";

/// The hidden verb by which a shell's script asks the program what can be typed next.
pub const VERB: &str = "__complete";

/// What is known of the line before the word that is typed.
pub struct Typed<'a> {
    /// The verb and the verbs within it: `runs tag`.
    pub verbs: Vec<&'a str>,
    /// The runs directory that the line names.
    pub dir: PathBuf,
    /// The part of the word that is completed.
    pub value: &'a str,
}

/// Answers a shell, a line an offer, with what it is behind a tab. `line`: the line up to the cursor, as it is typed;
/// `token`: the end of its last word that the shell replaces, where that is not all of it (bash parts words at colons).
pub fn answer(line: &str, token: Option<&str>) -> String {
    let words = words(line);
    let Some((word, before)) = words.split_last() else { return String::new() };
    // what stands before the program is not its own: variables, `time`
    let program = before.iter().position(|word| word.ends_with(PROGRAM)).unwrap_or(0);
    let before: Vec<&str> = before.iter().skip(program + 1).map(String::as_str).collect();
    let completion = complete(&before, word);
    // of an option's value in `--option=value` the shell may replace the value alone
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

/// What can stand in the place of the last word, behind the words before it.
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
        // a verb begins as it is typed
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

/// The options of a command, with what help says of each.
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

/// The name of an option that a word is, and its value where that stands in the same word.
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

/// The words of a line as a shell parts them, quotes resolved; the last one is being typed and may be empty.
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

/// The hidden verb's arguments: the line, and for bash the token.
pub fn main(arguments: &[String]) -> String {
    match arguments {
        [line] => answer(line, None),
        [line, token, ..] => answer(line, Some(token)),
        [] => String::new(),
    }
}

/// Whether a word that is typed is rather a path, which shells complete themselves.
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
