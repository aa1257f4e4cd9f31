//! Parser for trace file names: position of the rank, recorded step or stage, time stamp.

use super::position::{Dimension, MAX_RANK, Position};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::import) struct Name {
    /// Original name: the path relative to the opened directory.
    pub(super) text: String,
    /// Named coordinates: `rank_3`, `TP-1-DP-0`.
    pub(super) position: Option<Position>,
    /// True if the position is a single glued dimension such as `tp8`, which may also be the size of the
    /// job.
    pub(super) is_weak: bool,
    /// Number at the end: a rank as in `trace_3`, or a process id.
    pub(super) last_number: Option<u32>,
    /// True if a time stamp follows the last number, as in `HOST_PID.STAMP` of PyTorch's handler.
    pub(super) is_process: bool,
    /// Steps and stages: `step_12`, `decode`.
    pub(super) part: String,
    pub(super) step: Option<u64>,
    /// Time of writing, scaled to 19 digits for comparison, and its original digits.
    pub(super) stamp: Option<(u128, String)>,
    /// Remaining words, without `last_number`.
    pub(super) rest: String,
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Number(&'a str),
    Separator(char),
}

const ENDINGS: [&str; 18] = [
    ".gz",
    ".zst",
    ".zstd",
    ".xz",
    ".bz2",
    ".tar",
    ".zip",
    ".json",
    ".trace",
    ".pt",
    ".sqlite",
    ".sqlite3",
    ".db",
    ".parquet",
    ".nsys-rep",
    ".qdrep",
    ".chrome",
    ".tgz",
];

/// Stages that serving engines profile separately.
const STAGES: [&str; 3] = ["extend", "prefill", "decode"];

const STEPS: [&str; 6] = ["step", "steps", "iter", "iteration", "epoch", "cycle"];

impl Name {
    pub(in crate::import) fn parse(text: &str) -> Self {
        let text = text.replace('\\', "/");
        // directories in the path may be archives
        let stem: Vec<&str> = text.split('/').map(without_endings).collect();
        let stem = stem.join("/");
        let tokens = tokens(&stem);
        let mut name = Self { text: text.clone(), ..Self::default() };
        let mut position = Position::default();
        let mut glued = 0;
        let mut kept: Vec<bool> = vec![true; tokens.len()];
        let (mut parts, mut at) = (Vec::new(), 0);
        while at < tokens.len() {
            match &tokens[at] {
                Token::Word(word) if STAGES.iter().any(|stage| word.eq_ignore_ascii_case(stage)) => {
                    kept[at] = false;
                    parts.push((*word).to_owned());
                }
                Token::Number(digits) => {
                    if let Some((stamp, used)) = stamp(&tokens[at..]) {
                        kept[at..at + used].fill(false);
                        name.stamp = Some(stamp);
                        at += used;
                        continue;
                    }
                    let (word, word_at) = word_before(&tokens, at);
                    let before = word_at.and_then(|at| word_before(&tokens, at).0);
                    let value = digits.parse::<u32>().ok().filter(|value| *value <= MAX_RANK);
                    let dimension = word.as_deref().and_then(|w| Dimension::new(w, before.as_deref()));
                    match (word.as_deref(), word_at, dimension, value) {
                        (Some(_), Some(from), Some(dimension), Some(value)) => {
                            position.set(dimension, value);
                            // both words of `tp_rank` belong to the dimension
                            let is_pair =
                                word.as_deref() == Some("rank") && dimension != Dimension::Rank;
                            let first = word_before(&tokens, from).1.filter(|_| is_pair);
                            kept[first.unwrap_or(from)..=at].fill(false);
                            let upper = matches!(&tokens[from], Token::Word(w) if w.chars().all(char::is_uppercase));
                            let glue = from + 1 == at || !upper;
                            glued += usize::from(dimension.is_parallel() && glue);
                        }
                        // redundant: follows from the TP rank
                        (Some("dcp"), Some(from), ..) => kept[from..=at].fill(false),
                        (Some(word), Some(from), ..)
                            if STEPS.contains(&word) || word.ends_with("step") =>
                        {
                            name.step = digits.parse().ok();
                            parts.push(format!("{word}_{digits}"));
                            kept[from..=at].fill(false);
                        }
                        _ => {}
                    }
                }
                _ => {}
            }
            at += 1;
        }
        if position.known() > 0 {
            name.position = Some(position);
            name.is_weak = position.known() == 1 && glued == 1;
        }
        let last = last_number(&tokens, &kept);
        if let Some(at) = last {
            let Token::Number(digits) = &tokens[at] else { return name };
            name.last_number = digits.parse().ok().filter(|value| *value <= MAX_RANK);
            name.is_process = name.stamp.is_some() && name.last_number.is_some();
        }
        name.part = parts.join("-");
        let with_last = name.last_number.is_none();
        let kept = tokens.iter().zip(&kept).enumerate();
        let kept = kept.filter(|(at, (_, kept))| **kept && (with_last || Some(*at) != last));
        let text: String = kept.map(|(_, (token, _))| token.text()).collect();
        let words: Vec<&str> =
            text.split(['_', '-', '.', ' ', '/', '=']).filter(|word| !word.is_empty()).collect();
        name.rest = words.join("-");
        name
    }

    pub(in crate::import) fn may_say_rank(&self) -> bool {
        self.position.is_some() || self.last_number.is_some()
    }

    /// False if both names contain a rank and they differ.
    pub(in crate::import) fn is_of_same_rank(&self, other: &Self) -> bool {
        let numbers = |name: &Self| (name.position, name.last_number);
        numbers(self) == numbers(other) || !self.may_say_rank() || !other.may_say_rank()
    }

    /// Identity of a file with an unknown rank: files with the same origin are of the same rank.
    pub(super) fn origin(&self) -> String {
        match self.last_number {
            Some(number) => format!("{}-{number}", self.rest),
            None => self.rest.clone(),
        }
    }
}

/// Parses the position in a process label: `[TP01] 0`, `Rank 3: python`, `VLLM::Worker_TP1`.
pub(in crate::import) fn label(text: &str) -> Option<Position> {
    let tokens = tokens(text);
    let mut position = Position::default();
    for (at, token) in tokens.iter().enumerate() {
        let Token::Number(digits) = token else { continue };
        let (Some(word), Some(word_at)) = word_before(&tokens, at) else { continue };
        // excludes process numbers, and words that do not denote ranks in labels: `GPU 0` and `Stage 1` occur in any trace
        let is_label =
            !matches!(word.as_str(), "gpu" | "device" | "cuda" | "stage" | "node" | "worker" | "procid");
        let before = word_before(&tokens, word_at).0;
        let value = digits.parse::<u32>().ok().filter(|value| *value <= MAX_RANK);
        if let (true, Some(dimension), Some(value)) =
            (is_label, Dimension::new(&word, before.as_deref()), value)
        {
            position.set(dimension, value);
        }
    }
    (position.known() > 0).then_some(position)
}

impl<'a> Token<'a> {
    fn text(&self) -> std::borrow::Cow<'a, str> {
        match self {
            Self::Word(text) | Self::Number(text) => (*text).into(),
            Self::Separator(separator) => separator.to_string().into(),
        }
    }
}

/// Splits text into words, numbers and separators. An upper-case letter after a lower-case one starts a
/// new word.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let is_digit = |c: char| c.is_ascii_digit();
    // a separator is neither
    let kind = |c: char| (is_digit(c), c.is_alphabetic());
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let first_kind = kind(first);
        if first_kind == (false, false) {
            tokens.push(Token::Separator(first));
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let mut before = first;
        let end = rest
            .char_indices()
            .find(|(_, c)| {
                let humps = before.is_lowercase() && c.is_uppercase();
                before = *c;
                kind(*c) != first_kind || humps
            })
            .map_or(rest.len(), |(at, _)| at);
        let text = &rest[..end];
        tokens.push(if is_digit(first) { Token::Number(text) } else { Token::Word(text) });
        rest = &rest[end..];
    }
    tokens
}

/// Word before a token, in lower case, and its index: adjacent, or separated by one or two of `_-=.
/// #:[`.
fn word_before(tokens: &[Token<'_>], at: usize) -> (Option<String>, Option<usize>) {
    let mut from = at;
    while let Some(before) = from.checked_sub(1) {
        match &tokens[before] {
            Token::Separator('_' | '-' | '=' | '.' | ' ' | '#' | ':' | '[') if at - before <= 2 => {
                from = before;
            }
            Token::Word(word) => return (Some(word.to_lowercase()), Some(before)),
            _ => break,
        }
    }
    (None, None)
}

/// Index of the number at the end of the file's own name, ignoring stamps, or else of its directory's.
fn last_number(tokens: &[Token<'_>], kept: &[bool]) -> Option<usize> {
    // Nsight Systems numbers its reports
    if let [Token::Word("report"), Token::Number(_)] = tokens {
        return None;
    }
    let mut at = tokens.len();
    loop {
        at = at.checked_sub(1)?;
        match &tokens[at] {
            Token::Number(_) if kept[at] => return Some(at),
            Token::Separator('.' | '_' | '-') | Token::Number(_) => {}
            Token::Word(_) | Token::Separator(_) => break,
        }
    }
    // `3/trace.json`
    let slash = tokens.iter().rposition(|token| *token == Token::Separator('/'))?;
    let before = slash.checked_sub(1)?;
    (matches!(tokens[before], Token::Number(_)) && kept[before]).then_some(before)
}

/// Parses a time stamp at the start of the tokens; returns the number of tokens used. Accepts 10 digits
/// or more (seconds to nanoseconds, or seconds with a fraction), a date of 8 digits with a time of 6,
/// and `2024_05_01_12_00_00`.
fn stamp(tokens: &[Token<'_>]) -> Option<((u128, String), usize)> {
    let Some(Token::Number(first)) = tokens.first() else { return None };
    let next = match tokens.get(1..3) {
        Some([Token::Separator(separator), Token::Number(next)]) => Some((*separator, *next)),
        _ => None,
    };
    let (digits, used) = match (first.len(), next) {
        (10, Some(('.', fraction))) if fraction.len() <= 9 => (format!("{first}{fraction}"), 3),
        (10..=25, _) => ((*first).to_owned(), 1),
        (8, Some(('_' | '-', time))) if first.starts_with("20") && time.len() == 6 => {
            (format!("{first}{time}"), 3)
        }
        (4, Some(_)) if first.starts_with("20") => (spelt_out(tokens)?, 11),
        _ => return None,
    };
    let text: String = tokens[..used].iter().map(Token::text).collect();
    let scaled: String = digits.chars().chain(std::iter::repeat('0')).take(19).collect();
    Some(((scaled.parse().ok()?, text), used))
}

/// Digits of year, month, day, hour, minute and second with separators in between.
fn spelt_out(tokens: &[Token<'_>]) -> Option<String> {
    let mut digits = String::new();
    for (at, token) in tokens.get(..11)?.iter().enumerate() {
        match token {
            Token::Number(number) if at == 0 || at % 2 == 0 && number.len() == 2 => {
                digits.push_str(number);
            }
            Token::Separator('_' | '-' | '.' | ':' | 'T' | ' ') if at % 2 == 1 => {}
            _ => return None,
        }
    }
    Some(digits)
}

fn without_endings(mut text: &str) -> &str {
    while let Some(shorter) = ENDINGS.iter().find_map(|ending| strip(text, ending)) {
        text = shorter;
    }
    text
}

fn strip<'a>(text: &'a str, ending: &str) -> Option<&'a str> {
    let at = text.len().checked_sub(ending.len()).filter(|at| *at > 0)?;
    text.is_char_boundary(at)
        .then(|| text.split_at(at))
        .filter(|(_, end)| end.eq_ignore_ascii_case(ending))
        .map(|(start, _)| start)
}

#[cfg(test)]
mod tests {
    use super::super::position::ranks_at;
    use super::*;

    fn rank(text: &str) -> Option<u32> {
        Name::parse(text).position.and_then(|position| Some(ranks_at(&[position])?[0]))
    }

    #[test]
    fn names_of_engines_and_tools_say_the_rank() {
        for (text, expected) in [
            ("dp0_pp0_tp1_dcp0_ep1_rank1.1756191234567890.pt.trace.json.gz", Some(1)),
            ("1756191234.123-TP-1-DECODE.trace.json.gz", Some(1)),
            ("1756191234.123-TP-1-DP-0-PP-0-EP-1.trace.json.gz", Some(1)),
            ("worker1_step_12.16941282015012.pt.trace.json", Some(1)),
            ("trace_rank_12.pt.trace.json.gz", Some(12)),
            ("rank-0-step-5.json", Some(0)),
            ("rank=7.json", Some(7)),
            ("rank_7.json.xz", Some(7)),
            ("run.zip/rank_4.tar.gz/trace.json.bz2", Some(4)),
            ("traceRank3.json", Some(3)),
            ("node12_rank103.sqlite", Some(103)),
            ("report_rank1.sqlite", Some(1)),
            ("global_rank_9_local_rank_1.json", Some(9)),
            ("rank_2/trace.json", Some(2)),
            ("rank_2/host_77.1694128201501.pt.trace.json", Some(2)),
            ("frankfurt_3.json", None),
            ("frank3.json", None),
            ("rank.json", None),
            ("trace_3.json.gz", None),
            ("host_123.1697000000000.pt.trace.json", None),
            ("rank1694128201501.json", None),
        ] {
            assert_eq!(rank(text), expected, "{text}");
        }
        assert!(Name::parse("b200_tp8_eager.json.gz").is_weak, "a size, as likely");
        assert!(!Name::parse("p-TP-1.trace.json").is_weak);
        assert!(!Name::parse("pp0_tp1.json").is_weak);
    }

    #[test]
    fn the_last_number_may_be_a_rank() {
        for (text, expected) in [
            ("trace_3.json.gz", Some(3)),
            ("7.json", Some(7)),
            ("llama-3-8b_5.json", Some(5)),
            ("run/4/trace.json", Some(4)),
            ("run/4.tar.xz/trace.json", Some(4)),
            ("trace_3.json.bz2", Some(3)),
            ("plugins/profile/2024_05_01_12_30_07/host.trace.json.gz", None),
            ("host_123.1697000000000.pt.trace.json", Some(123)),
            ("trace_20240501.json", None),
            ("trace_2_20240501_120000.json", Some(2)),
            ("trace_step_3.json", None),
            ("report2.sqlite", None),
            ("trace_8b.json", None),
        ] {
            assert_eq!(Name::parse(text).last_number, expected, "{text}");
        }
        assert!(Name::parse("host_123.1697000000000.pt.trace.json").is_process);
    }

    #[test]
    fn steps_stages_and_stamps_say_which_recording_it_is() {
        let parts = |text: &str| {
            let name = Name::parse(text);
            (name.part, name.step, name.stamp.map(|(_, text)| text), name.rest)
        };
        let is = |part: &str, step, stamp: Option<&str>, rest: &str| {
            (part.to_owned(), step, stamp.map(str::to_owned), rest.to_owned())
        };
        assert_eq!(
            parts("worker1_step_12.16941282015012.pt.trace.json"),
            is("step_12", Some(12), Some("16941282015012"), "")
        );
        assert_eq!(
            parts("1756191234.1234567-TP-1-DECODE.trace.json.gz"),
            is("DECODE", None, Some("1756191234.1234567"), "")
        );
        assert_eq!(parts("1756-TP-1.trace.json.gz"), is("", None, None, "1756"));
        assert_eq!(
            parts("b/tp_rank_0/run-20240501_120000.json"),
            is("", None, Some("20240501_120000"), "b-run")
        );
        assert_eq!(
            parts("plugins/profile/2024_05_01_12_30_07/host.trace.json.gz"),
            is("", None, Some("2024_05_01_12_30_07"), "plugins-profile-host")
        );
        let later = |a: &str, b: &str| Name::parse(a).stamp < Name::parse(b).stamp;
        assert!(later("a.1694128201501.json", "a.1694128201502.json"));
        assert!(later("1756191234.5-TP-0.json", "1756191235.1-TP-0.json"));
    }

    #[test]
    fn labels_of_processes_say_the_rank() {
        for (text, expected) in [
            ("[TP01] 0", Some(1)),
            ("[TP01] 900", Some(1)),
            ("[DP00-TP03] 17", Some(3)),
            ("rank 2 host", Some(2)),
            ("Rank 3: python", Some(3)),
            ("rank1_900", Some(1)),
            ("VLLM::Worker_TP1", Some(1)),
            ("GPU 0", None),
            ("python 17", None),
            ("900", None),
            ("Spans", None),
        ] {
            assert_eq!(
                label(text).and_then(|position| Some(ranks_at(&[position])?[0])),
                expected,
                "{text}"
            );
        }
    }
}
