//! Ranking of the lines of a picker: by whole words first, then by letters of their names. The palette has groups.

use nucleo_matcher::pattern::{CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Matcher};

use base::text::folded;

/// Line of a picker: the searched name, and its description.
#[derive(Clone, Debug)]
pub struct PickLine {
    pub name: String,
    pub about: String,
    /// Name in lower case, for searches of whole words.
    folded: String,
    /// Name as searched: `all-reduce`, `all_reduce` and `AllReduce` are one.
    squeezed: String,
    /// Other words that find the line, folded: those of the description among them.
    pub also: String,
    pub is_elsewhere: bool,
    /// True for an action of the palette, of this screen or of another.
    pub is_action: bool,
    /// True for an action that is not possible now.
    pub is_off: bool,
    /// Group whose lines this line counts, in place of those that do not fit.
    pub more_of: Option<PickGroup>,
}

/// Groups of the palette's lines, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PickGroup {
    Action,
    Experiment,
    Run,
    Trace,
    Operation,
    Setting,
    /// Action found by other words than those of its name.
    OtherAction,
}

impl PickGroup {
    /// Groups of which few lines are shown if lines of later groups follow, with the word for several.
    pub const SHORTENED: [(Self, &'static str); 5] = [
        (Self::Experiment, "experiments"),
        (Self::Run, "runs"),
        (Self::Trace, "traces"),
        (Self::Operation, "operations"),
        (Self::Setting, "settings"),
    ];
}

impl PickLine {
    pub fn new((name, about): (String, String)) -> Self {
        let (folded, squeezed, also) = (folded(&name), squeezed(&name), folded(&about));
        let (is_elsewhere, is_action, is_off, more_of) = (false, false, false, None);
        Self { name, about, folded, squeezed, also, is_elsewhere, is_action, is_off, more_of }
    }

    /// Group by the first word of the description, which names the kind of an item.
    fn group(&self) -> PickGroup {
        match self.about.split_whitespace().next() {
            _ if self.is_action => PickGroup::Action,
            Some("experiment") => PickGroup::Experiment,
            Some("run" | "cell") => PickGroup::Run,
            Some("trace") => PickGroup::Trace,
            Some("operation") => PickGroup::Operation,
            Some("setting") => PickGroup::Setting,
            // sliders, and columns to sort by
            _ => PickGroup::Action,
        }
    }

    /// Name as searched, without the kind of the line: `compare` of `screen: compare`.
    fn without_kind(&self) -> &str {
        self.squeezed.strip_prefix("screen: ").unwrap_or(&self.squeezed)
    }

    /// True if the name begins with this whole word.
    fn begins_with(&self, word: &str) -> bool {
        self.without_kind().split(|c: char| !c.is_alphanumeric()).next() == Some(word)
    }

    pub fn is_same(&self, other: &Self) -> bool {
        (&self.name, &self.about) == (&other.name, &other.about)
    }
}

/// Name of a line at this index.
struct Named<'a>(usize, &'a str);

impl AsRef<str> for Named<'_> {
    fn as_ref(&self) -> &str {
        self.1
    }
}

/// Typed words without articles and `of`, or all if no others are left.
fn without_articles(typed: &str) -> String {
    let words = typed.split_whitespace();
    let kept: Vec<&str> = words.filter(|word| !["the", "a", "an", "of"].contains(word)).collect();
    if kept.is_empty() { typed.to_owned() } else { kept.join(" ") }
}

/// Text without case, hyphens and underscores.
fn squeezed(text: &str) -> String {
    folded(text).replace('-', "")
}

/// Lines that [`by_words`] finds; if there are none, those whose names have the letters of each word in order and near
/// one another.
pub fn by_letters(lines: &[PickLine], typed: &str) -> Vec<usize> {
    let mut found = by_words(lines, typed);
    if found.is_empty() {
        let typed_letters = folded(typed);
        let words: Vec<Vec<char>> =
            typed_letters.split_whitespace().map(|word| word.chars().collect()).collect();
        found = likest(lines, typed);
        found.retain(|at| {
            let name: Vec<char> = lines[*at].folded.chars().collect();
            words.iter().all(|word| has_near(&name, word))
        });
    }
    found
}

/// True if a part of `name` that begins with a word of it and is at most twice as long as `word` has its letters in
/// order: any long name of a kernel has those of most words.
fn has_near(name: &[char], word: &[char]) -> bool {
    let begins = |at: usize| at == 0 || !name[at - 1].is_alphanumeric();
    (0..name.len()).filter(|from| begins(*from)).any(|from| {
        let mut part = name[from..].iter().take(2 * word.len());
        word.iter().all(|letter| part.any(|other| other == letter))
    })
}

/// Lines whose names have the letters of each word in order, the best first.
fn likest(lines: &[PickLine], typed: &str) -> Vec<usize> {
    let pattern = Pattern::parse(typed, CaseMatching::Ignore, Normalization::Smart);
    let names = lines.iter().enumerate().map(|(at, line)| Named(at, &line.name));
    let found = pattern.match_list(names, &mut Matcher::new(Config::DEFAULT));
    let found = found.into_iter().map(|(named, _)| named.0);
    let (here, elsewhere): (Vec<_>, Vec<_>) = found.partition(|at| !lines[*at].is_elsewhere);
    [here, elsewhere].concat()
}

/// Lines with every typed word, in any order: within the name, or at the start of one of the other words. Names that
/// begin with the first typed word come first, then lines with the most whole words, then names in which a word that
/// begins with the first typed one comes early; lines found by other words alone come last, after them those of other
/// screens. Actions of other screens whose names begin with the first typed word come first if no line of this screen does.
/// Without a typed word, actions that are not possible come last.
pub fn by_words(lines: &[PickLine], typed: &str) -> Vec<usize> {
    /// Least letters that may begin another word; fewer have to be the whole word.
    const LEAST: usize = 3;
    let typed = &without_articles(typed.trim_end_matches([' ', '=']));
    let mut rank = vec![usize::MAX; lines.len()];
    likest(lines, typed).into_iter().enumerate().for_each(|(place, at)| rank[at] = place);
    let typed = squeezed(typed);
    let words: Vec<&str> = typed.split_whitespace().collect();
    let has = |line: &PickLine, word: &str| {
        let begins = |other: &str| other == word || word.len() >= LEAST && other.starts_with(word);
        line.squeezed.contains(word) || line.also.split([' ', '-']).any(begins)
    };
    let has_whole = |line: &PickLine, word: &str| {
        let is_word = |text: &str| text.split([' ', '-', '_', ':', '/']).any(|part| part == word);
        is_word(&line.folded) || is_word(&line.also)
    };
    let is_found = |at: &usize| words.iter().all(|word| has(&lines[*at], word));
    let mut found: Vec<usize> = (0..lines.len()).filter(is_found).collect();
    let begins_with_first = |line: &PickLine| words.first().is_some_and(|first| line.begins_with(first));
    let begins_here = found.iter().any(|at| !lines[*at].is_elsewhere && begins_with_first(&lines[*at]));
    found.sort_by_cached_key(|at| {
        let line = &lines[*at];
        let PickLine { squeezed, is_elsewhere, .. } = line;
        let is_raised = line.is_action && !line.is_off && !begins_here && begins_with_first(line);
        let is_last = words.is_empty() && line.is_off;
        let named = words.iter().all(|word| squeezed.contains(word));
        // `b1` is not the start of `b16`
        let parts = words.iter().filter(|word| !has_whole(&lines[*at], word)).count();
        let starts = words
            .first()
            .is_some_and(|first| squeezed.starts_with(first) || line.without_kind().starts_with(first));
        let contains = squeezed.contains(&typed);
        let begins = |first: &&str| {
            squeezed.split(|c: char| !c.is_alphanumeric()).position(|word| word.starts_with(*first))
        };
        let place = words.first().and_then(begins).unwrap_or(usize::MAX);
        let first = (is_last, !is_raised);
        (first, *is_elsewhere, !(named || starts), !starts, parts, !contains, place, rank[*at], *at)
    });
    found
}

/// Lines of the palette that match, by group. If a name has words that begin as typed, or begins with the first of them,
/// actions that only other words find come last. A group with later ones behind it has few lines, and then one that counts the others.
pub fn by_group(lines: &mut [PickLine], typed: &str) -> Vec<usize> {
    /// Lines of a group that is shortened.
    const MOST: usize = 5;
    let mut found = with_values(typed).map_or_else(Vec::new, |typed| by_words(lines, &typed));
    let others = by_letters(lines, typed).into_iter().filter(|at| !found.contains(at));
    let others: Vec<usize> = others.collect();
    found.extend(others);
    found.retain(|at| lines[*at].more_of.is_none());
    if typed.trim().is_empty() {
        return found;
    }
    let typed = squeezed(&without_articles(typed));
    let words: Vec<&str> =
        typed.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let is_named = |line: &PickLine| {
        let begins = |word: &&str| {
            line.squeezed.split(|c: char| !c.is_alphanumeric()).any(|own| own.starts_with(*word))
        };
        words.iter().all(begins) || words.first().is_some_and(|first| line.begins_with(first))
    };
    let has_named = found.iter().any(|at| !lines[*at].is_elsewhere && is_named(&lines[*at]));
    let group_of = |at: usize| match lines[at].group() {
        PickGroup::Action if has_named && !is_named(&lines[at]) => PickGroup::OtherAction,
        group => group,
    };
    let mut grouped: Vec<(PickGroup, usize)> = found.into_iter().map(|at| (group_of(at), at)).collect();
    grouped.sort_by_key(|(group, _)| *group);
    let last = grouped.last().map(|(group, _)| *group);
    let mut shown = Vec::new();
    for own in grouped.chunk_by(|(a, _), (b, _)| a == b) {
        let group = own[0].0;
        let more = lines.iter().position(|line| line.more_of == Some(group));
        let more = more.filter(|_| Some(group) != last && own.len() > MOST + 1);
        let kept = if more.is_some() { MOST } else { own.len() };
        shown.extend(own.iter().take(kept).map(|(_, at)| *at));
        if let Some(more) = more {
            let words = PickGroup::SHORTENED.iter().find(|(of, _)| *of == group);
            let what = words.map_or("", |(_, words)| *words);
            lines[more].name = format!("+{} more {what}: type on", own.len() - kept);
            shown.push(more);
        }
    }
    shown
}

/// Typed text with `batch 16` and `tp 8` as labels of runs have them, `b16` and `tp8`; `None` without such words.
fn with_values(typed: &str) -> Option<String> {
    const SHORT: [(&str, &str); 2] = [("batch", "b"), ("tp", "tp")];
    let text = folded(typed);
    let (mut words, mut is_shorter) = (Vec::new(), false);
    let mut rest = text.split_whitespace().peekable();
    while let Some(word) = rest.next() {
        let short = SHORT.iter().find(|(name, _)| *name == word);
        let is_number = |next: &&str| next.bytes().all(|byte| byte.is_ascii_digit());
        match short.and_then(|(_, short)| Some((short, rest.next_if(is_number)?))) {
            Some((short, value)) => {
                words.push(format!("{short}{value}"));
                is_shorter = true;
            }
            None => words.push(word.to_owned()),
        }
    }
    is_shorter.then(|| words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_an_order_and_few_lines_of_each() {
        let pair = |name: &str, about: &str| PickLine::new((name.to_owned(), about.to_owned()));
        let mut lines = vec![
            pair("theme: simple", "setting"),
            pair("simulated.json", "trace  opened before"),
            pair("quickstart", "experiment  Does a simulation agree?"),
            pair("show the paper (simulated)", "p"),
        ];
        lines[3].is_action = true;
        lines.extend((0..8).map(|at| pair(&format!("ladder tp{at}"), "run  simulated")));
        let mut more = pair("", "");
        more.more_of = Some(PickGroup::Run);
        lines.push(more);
        assert_eq!(by_group(&mut lines, "sim"), [3, 2, 4, 5, 6, 7, 8, 12, 1, 0]);
        assert_eq!(lines[12].name, "+3 more runs: type on");
        // nothing follows them
        assert_eq!(by_group(&mut lines, "ladder").len(), 8);
    }

    #[test]
    fn a_batch_in_words_finds_the_labels_of_runs() {
        let lines = ["ladder tp8 b1", "ladder tp8 b16", "ladder tp16 b8"];
        let mut lines = lines.map(|name| PickLine::new((name.to_owned(), "run".to_owned())));
        assert_eq!(by_group(&mut lines, "batch 16"), [1]);
        assert_eq!(by_group(&mut lines, "TP 8 batch 1")[0], 0);
        assert_eq!(with_values("ladder batch"), None);
    }

    #[test]
    fn what_begins_as_typed_comes_first() {
        let lines = ["only these runs", "open a trace", "runs: sort", "rewire"];
        let lines = lines.map(|name| PickLine::new((name.to_owned(), String::new())));
        assert_eq!(by_letters(&lines, "runs"), [2, 0]);
        assert_eq!(by_letters(&lines, "r"), [2, 3, 0, 1], "then by how well letters fit");
        assert_eq!(by_letters(&lines, "rwr"), [3], "no name holds these together");
        assert_eq!(by_letters(&lines, "trace open"), [1], "in any order");
        let lines = ["frontier over completion latency, or over TPOT", "AR latency", "plate"];
        let lines = lines.map(|name| PickLine::new((name.to_owned(), String::new())));
        assert_eq!(by_letters(&lines, "lat"), [1, 0, 2], "then by how early a word begins with it");
    }

    #[test]
    fn a_screen_comes_before_actions_of_other_screens_that_begin_with_its_name() {
        let lines =
            ["compare two marked runs side by side", "compare by the next axis", "screen: compare"];
        let mut lines = lines.map(|name| PickLine::new((name.to_owned(), String::new())));
        lines.iter_mut().for_each(|line| line.is_action = true);
        lines[..2].iter_mut().for_each(|line| line.is_elsewhere = true);
        assert_eq!(by_letters(&lines, "compare")[0], 2);
        assert_eq!(by_letters(&lines, "screen")[0], 2);
    }

    #[test]
    fn an_action_of_another_screen_comes_first_if_it_begins_as_typed() {
        let lines = ["sort runs by gap closed", "close the lower trace", "close_kernel"];
        let mut lines = lines.map(|name| PickLine::new((name.to_owned(), String::new())));
        lines[1..].iter_mut().for_each(|line| line.is_elsewhere = true);
        lines[1].is_action = true;
        assert_eq!(by_letters(&lines, "close"), [1, 0, 2], "operations of a trace stay behind");
        lines[1].is_off = true;
        assert_eq!(by_letters(&lines, "close")[0], 0, "it is not possible now");
        assert_eq!(by_letters(&lines, "").last(), Some(&1));
    }

    #[test]
    fn hyphens_and_underscores_are_ignored_and_scattered_letters_find_nothing() {
        let kernel =
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, float>>(float const*)";
        let lines = ["all-reduce", "L*/mlp/all_reduce", "ncclDevKernel_AllReduce_Sum_bf16", kernel];
        let lines = lines.map(|name| PickLine::new((name.to_owned(), String::new())));
        for typed in ["allreduce", "all_reduce", "all-reduce"] {
            let mut found = by_letters(&lines, typed);
            found.sort_unstable();
            assert_eq!(found, [0, 1, 2], "{typed}");
        }
        assert_eq!(by_letters(&lines, "rdckrnl"), [3], "abbreviations are found");
        for typed in ["vertical", "overlap"] {
            assert_eq!(likest(&lines, typed), [3], "{typed}");
            assert!(by_letters(&lines, typed).is_empty(), "{typed}");
        }
    }
}
