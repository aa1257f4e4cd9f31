//! Completion of a partial command line: verbs, options, and values from the tables and the stored runs, by the value name
//! in an argument's help. Shell scripts call the hidden verb `__complete`. It reads only file names, so an answer takes a
//! few milliseconds for any number of runs.
//!
//! `clap_complete::engine` is not used: its completers see only their own value, not the `--dir` whose runs they should
//! offer; it matches only prefixes (here `upb` finds `upper-bound`); and it is unstable.

use std::path::{Path, PathBuf};

use clap::{Arg, Command};

use super::app;
use crate::desk::{DEFAULT_DIR, experiments, offers};
use crate::face::tui;
use base::offer::{Completion, Offer, complete_word, fitting};
use lab::store::{Annotations, Store};
use study::analysis::filter::complete as complete_filter;
use study::analysis::{RunTable, XAxis, YAxis};
use study::calibrate::PARAMETERS;
use table::options::OPTIONS;
use table::{MEASURES, Provenance, Status};

/// Maximum number of offers.
const MOST_OFFERS: usize = 200;

/// Maximum number of runs that are offered.
const MOST_RUNS: usize = 50;

const PROGRAM: &str = "ladderscope";

/// Hidden verb that shell scripts call for completions.
pub const VERB: &str = "__complete";

/// Words before the one that is completed.
struct TypedLine<'a> {
    /// Innermost verb.
    command: &'a Command,
    /// Verb and nested verbs, e.g. `runs tag`.
    verbs: Vec<&'a str>,
    /// Runs directory named on the line.
    dir: PathBuf,
    /// Option whose value comes next.
    pending: Option<&'a Arg>,
    /// Number of positional arguments of `command`.
    positional: usize,
}

impl<'a> TypedLine<'a> {
    fn parse(root: &'a Command, words: &[&str]) -> Self {
        let dir = PathBuf::from(DEFAULT_DIR);
        let mut line = Self { command: root, verbs: Vec::new(), dir, pending: None, positional: 0 };
        for word in words {
            if let Some(option) = line.pending.take() {
                if option.get_long() == Some("dir") {
                    line.dir = PathBuf::from(*word);
                }
            } else if let Some((name, value)) = option_of(word) {
                match value {
                    Some(dir) if name == "dir" => line.dir = PathBuf::from(dir),
                    Some(_) => {}
                    None => line.pending = option_named(line.command, name).filter(|o| takes_value(o)),
                }
            } else if let Some(verb) = line.command.find_subcommand(word) {
                line.verbs.push(verb.get_name());
                (line.command, line.positional) = (verb, 0);
            } else {
                line.positional += 1;
            }
        }
        line
    }

    /// Positional argument that comes next; the last one repeats if it takes several values.
    fn next_positional(&self) -> Option<&'a Arg> {
        let repeats = |arg: &&Arg| arg.get_num_args().is_some_and(|count| count.max_values() > 1);
        let last = self.command.get_positionals().last().filter(repeats);
        let mut shown = self.command.get_positionals().filter(|argument| !argument.is_hide_set());
        shown.nth(self.positional).or(last)
    }
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
    let line = TypedLine::parse(&root, before);
    if let Some(option) = line.pending {
        return complete_value(option, word, &line);
    }
    if let Some((name, Some(value))) = option_of(word) {
        let Some(option) = option_named(line.command, name) else { return Completion::default() };
        let start = word.len() - value.len();
        let Completion { replaces, offers } = complete_value(option, value, &line);
        return Completion { replaces: start + replaces.start..start + replaces.end, offers };
    }
    if word.starts_with('-') {
        return offers_from(word, 0, options(line.command));
    }
    let verbs = if line.positional == 0 { verbs(line.command, word) } else { Vec::new() };
    let value = line.next_positional().map(|argument| complete_value(argument, word, &line));
    match value {
        Some(value) if verbs.is_empty() => value,
        value => {
            let values = value.into_iter().flat_map(|value| value.offers);
            Completion { replaces: 0..word.len(), offers: verbs.into_iter().chain(values).collect() }
        }
    }
}

/// Verbs that begin with `word`.
fn verbs(command: &Command, word: &str) -> Vec<Offer> {
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    let verb = |verb: &Command| Offer::new(verb.get_name(), plain_text(verb.get_about()));
    let mut offers = fitting(verbs.map(verb), word, MOST_OFFERS);
    offers.retain(|offer| offer.text.starts_with(word));
    offers
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
fn is_path(word: &str) -> bool {
    word.contains('/') || word.starts_with(['.', '~'])
}

type OffersOfLine = fn(&TypedLine<'_>) -> Vec<Offer>;

/// Placeholders (value names in the help) of arguments that take one value, and their offers.
static OFFERS: [(&[&str], OffersOfLine); 11] = [
    (&["AXIS"], axes),
    (&["RUN", "RUNS|DIR", "RUNS|DIR|TRACE", "RUN|TRACE", "A", "B", "SECOND"], |line| runs(&line.dir)),
    (&["FILE.toml"], |_| experiments::names(Path::new(experiments::DIRECTORY))),
    (&["MEASURE"], |_| measures()),
    (&["BASELINE"], |line| baselines(&line.dir)),
    (&["STATUS"], |_| undescribed(Status::ALL.map(Status::as_str))),
    (&["RULES"], |_| undescribed(["default", "nccl-name", "hta"])),
    (&["THEME"], |_| undescribed(tui::theme_names())),
    (&["published|FILE"], |_| vec![Offer::new("published", "the 70B points of arXiv 2501.06589")]),
    (&["on|off"], |_| undescribed(["on", "off"])),
    (&["NAME", "NAME|FILE"], hardware_names),
];

/// Placeholders of arguments that take several values, and their offers.
static OFFERS_OF_LISTS: [(&[&str], OffersOfLine); 2] = [
    (&["TAG", "TAGS"], |line| tags(&line.dir)),
    (&["KEY,..."], |_| PARAMETERS.iter().map(|p| Offer::new(p.key, "")).collect()),
];

/// Completes a value of an argument.
fn complete_value(argument: &Arg, value: &str, line: &TypedLine<'_>) -> Completion {
    let name = argument.get_value_names().and_then(|names| names.first());
    let name = name.map_or("", |name| name.as_str());
    let possible = argument.get_possible_values();
    let possible =
        possible.iter().map(|value| Offer::new(value.get_name(), plain_text(value.get_help())));
    let possible: Vec<Offer> = possible.collect();
    let option = OPTIONS.iter().find(|option| argument.get_long() == Some(option.flag));
    let single = |offers: Vec<Offer>| offers_from(value, 0, offers);
    let several = |offers: Vec<Offer>| complete_word(value, value.len(), &offers, MOST_OFFERS);
    let offers_in = |known: &[(&[&str], OffersOfLine)]| {
        known.iter().find(|(names, _)| names.contains(&name)).map(|(_, offers)| offers(line))
    };
    match name {
        // names of columns and models also contain slashes
        "FILTER" => complete_filter_text(value, line),
        "COLUMN,..." | "COLUMN[:desc],..." => several(columns()),
        // the shell completes directories, also for --model of verbs that take only checkpoints
        "DIR" => Completion::default(),
        _ if is_path(value) => Completion::default(),
        _ if option.is_some() => {
            let offers = option.map(offers::values).unwrap_or_default();
            if value.contains(',') { several(offers) } else { single(offers) }
        }
        _ if !possible.is_empty() => single(possible),
        "KEY=VALUE" => complete_pair(argument, value),
        _ => match offers_in(&OFFERS_OF_LISTS) {
            Some(offers) => several(offers),
            None => single(offers_in(&OFFERS).unwrap_or_default()),
        },
    }
}

/// Offers without descriptions.
fn undescribed<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<Offer> {
    words.into_iter().map(|word| Offer::new(word, "")).collect()
}

/// Hardware profiles and stacks, for the verb that takes both.
fn hardware_names(line: &TypedLine<'_>) -> Vec<Offer> {
    match line.verbs.contains(&"hardware") {
        true => ["hardware", "stack"].into_iter().flat_map(offers::axis_values).collect(),
        false => Vec::new(),
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

fn measures() -> Vec<Offer> {
    let measure = |measure: &table::Measure| {
        Offer::new(measure.aliases.first().copied().unwrap_or(measure.name), measure.title)
    };
    MEASURES.iter().map(measure).collect()
}

/// Axes of a chart, or of `compare`, which pairs runs by options.
fn axes(line: &TypedLine<'_>) -> Vec<Offer> {
    if line.verbs.contains(&"compare") {
        return OPTIONS.iter().map(|option| Offer::new(option.name, option.help())).collect();
    }
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
fn complete_filter_text(value: &str, line: &TypedLine<'_>) -> Completion {
    let table = RunTable::new(&[], &Annotations::default());
    let found = complete_filter(value, value.len(), &table, MOST_OFFERS);
    if !found.offers.is_empty() {
        return found;
    }
    let start = found.replaces.start;
    let field = value[..start].trim_end_matches([':', '=', '!', '~']);
    let field = field.rsplit([' ', '-']).next().unwrap_or(field);
    // completes the last alternative
    let name = field.split([':', '=']).next().and_then(|name| table.find(name));
    let name = name.and_then(|at| table.columns().get(at)).map(|column| column.field.name.to_string());
    let known: Vec<Offer> = match name.as_deref() {
        Some("experiment") => experiments::names(Path::new(experiments::DIRECTORY)),
        Some("status") => undescribed(Status::ALL.map(Status::as_str)),
        Some("tags") => tags(&line.dir),
        Some("provenance") => undescribed(Provenance::ALL.map(Provenance::as_str)),
        Some(name) => offers::axis_values(name),
        None => Vec::new(),
    };
    offers_from(value, start, known)
}

/// Offers for the part of a value from a byte position on.
fn offers_from(value: &str, start: usize, offers: impl IntoIterator<Item = Offer>) -> Completion {
    let offers = fitting(offers, &value[start..], MOST_OFFERS);
    Completion { replaces: start..value.len(), offers }
}

/// Completes `KEY=VALUE`: NCCL variables, or values of the hardware profile or stack.
fn complete_pair(argument: &Arg, pair: &str) -> Completion {
    let option = if argument.get_long() == Some("env") { "env" } else { "set" };
    if let Some((key, value)) = pair.split_once('=') {
        let values = offers::axis_values(&format!("{option}.{key}"));
        return offers_from(pair, pair.len() - value.len(), values);
    }
    let names = offers::keys(option).into_iter();
    offers_from(pair, 0, names.map(|name| Offer::new(format!("{}=", name.text), name.about)))
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

    /// A placeholder that is renamed in the help loses its offers.
    #[test]
    fn every_known_placeholder_is_that_of_an_argument() {
        fn add_placeholders(command: &Command, found: &mut Vec<String>) {
            let arguments = command.get_arguments().flat_map(|arg| arg.get_value_names());
            found.extend(arguments.flatten().map(ToString::to_string));
            command.get_subcommands().for_each(|verb| add_placeholders(verb, found));
        }
        let (mut root, mut found) = (app::command(), Vec::new());
        root.build();
        add_placeholders(&root, &mut found);
        let known = OFFERS.iter().chain(&OFFERS_OF_LISTS).flat_map(|(names, _)| *names);
        for name in known.chain(&["FILTER", "COLUMN,...", "COLUMN[:desc],...", "DIR", "KEY=VALUE"]) {
            assert!(found.iter().any(|placeholder| placeholder == name), "no argument has {name}");
        }
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
