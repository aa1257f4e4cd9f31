//! Text: numbers, times and names in words, natural order, control characters, widths.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::io;
use std::io::ErrorKind;

use crate::kernel_labels::library_label;

/// Formats a count with a regular plural: `1 cell`, `2 cells`.
pub fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Text with its first letter in upper case.
pub fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// Formats ranks as ranges: `r0`, `r0..r4 r6..r63`.
pub fn rank_list(ranks: &[u32]) -> String {
    runs(ranks, "r", "..").join(" ")
}

/// Formats ranks as a short label: `r0..r4 r6..r63`, or `r0 and 31 more`.
pub fn rank_label(ranks: &[u32]) -> String {
    const MAX_LISTED_RANKS: usize = 16;
    let list = rank_list(ranks);
    match ranks {
        [first, others @ ..] if list.len() > MAX_LISTED_RANKS => {
            format!("r{first} and {} more", others.len())
        }
        _ => list,
    }
}

/// Formats layers as ranges: `0-3 5 9-11`.
pub fn layer_list(layers: &[u32]) -> String {
    runs(layers, "", "-").join(" ")
}

/// Formats ascending step numbers as at most `most` ranges: `0, 3 to 7, 9`, or `0, 2, ... up to 98`.
pub fn step_list(steps: &[u32], most: usize) -> String {
    let mut names = runs(steps, "", " to ");
    if let (true, Some(last)) = (names.len() > most, steps.last()) {
        names.truncate(most.saturating_sub(1));
        names.push(format!("... up to {last}"));
    }
    names.join(", ")
}

/// Formats ascending numbers, with consecutive ones as ranges.
pub fn runs(numbers: &[u32], before: &str, to: &str) -> Vec<String> {
    let runs = numbers.chunk_by(|a, b| a.checked_add(1) == Some(*b)).map(|run| match run {
        [first, .., last] => format!("{before}{first}{to}{before}{last}"),
        [one] => format!("{before}{one}"),
        [] => String::new(),
    });
    runs.collect()
}

/// Joins items as in a sentence: `ladder`, `ladder and parallel`, `ladder, parallel and delayed:2`.
pub fn joined_with_and(items: &[impl AsRef<str>]) -> String {
    let items: Vec<&str> = items.iter().map(AsRef::as_ref).collect();
    match &items[..] {
        [firsts @ .., last] if !firsts.is_empty() => format!("{} and {last}", firsts.join(", ")),
        items => items.concat(),
    }
}

/// Folds a text for searches: lower case, `_` as `-`, so that `paper_70b` finds `paper-70B`. As long in
/// bytes as its lower case.
pub fn folded(text: &str) -> String {
    let mut folded = text.to_lowercase();
    // both take one byte
    if folded.contains('_') {
        folded = folded.replace('_', "-");
    }
    folded
}

/// True if two names are equal ignoring case, with `-` and `_` alike.
pub fn same_name(a: &str, b: &str) -> bool {
    let fold = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    a.len() == b.len() && a.bytes().map(fold).eq(b.bytes().map(fold))
}

/// Shortens a text to `most` characters by cutting its middle, because names of cells and runs usually
/// differ at the end.
pub fn without_middle(text: &str, most: usize) -> String {
    let letters = text.chars().count();
    if letters <= most || most < 2 {
        return text.to_owned();
    }
    let end = (most - 1) / 2;
    let begin = text.chars().take(most - 1 - end);
    begin.chain(['…']).chain(text.chars().skip(letters - end)).collect()
}

pub fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Quotes and joins the words of a POSIX shell command.
pub fn shell_command<W: AsRef<str>>(words: impl IntoIterator<Item = W>) -> String {
    words.into_iter().map(|word| shell_word(word.as_ref())).collect::<Vec<_>>().join(" ")
}

/// Formats a number with about three significant digits, without exponent: `0.123`, `4.56`, `78.9`,
/// `1234`.
pub fn digits(value: f64) -> String {
    let abs = value.abs();
    if !value.is_finite() {
        return "-".into();
    }
    match abs {
        _ if abs == 0.0 => "0".into(),
        _ if abs < 0.01 => format!("{value:.4}"),
        _ if abs < 1.0 => format!("{value:.3}"),
        _ if abs < 10.0 => format!("{value:.2}"),
        _ if abs < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Decimals of a number for people: `most`, or fewer, so that it has at most four significant digits.
pub fn decimals(value: f64, most: usize) -> usize {
    let before = value.abs().max(1.0).log10().floor() as usize + 1;
    most.min(4_usize.saturating_sub(before))
}

/// Formats a latency in the unit of its size: `23.4 us`, `39.6 ms`, `2.02 s`.
pub fn latency(us: f64) -> String {
    match us.abs() {
        size if size < 1e3 => format!("{} us", digits(us)),
        size if size < 1e6 => format!("{} ms", digits(us / 1e3)),
        _ => format!("{} s", digits(us / 1e6)),
    }
}

/// Formats a duration in whole seconds: `12 s`, `3 min 05 s`, `2 h 10 min`.
pub fn duration(seconds: f64) -> String {
    let seconds = seconds.ceil() as u64;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// Formats an amount with a decimal prefix: `16.8 MB`, `33.6 MFLOP`.
pub fn si(value: f64, unit: &str) -> String {
    let steps = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    match steps.iter().find(|(size, _)| value.abs() >= *size) {
        Some((size, prefix)) => format!("{} {prefix}{unit}", digits(value / size)),
        None => format!("{} {unit}", digits(value)),
    }
}

/// Formats a message size with a binary prefix: `512 B`, `16 KiB`, `2.5 MiB`.
pub fn binary_size(bytes: f64) -> String {
    let steps = [(f64::from(1 << 30), "GiB"), (f64::from(1 << 20), "MiB"), (1024.0, "KiB")];
    let (size, unit) = steps.into_iter().find(|(size, _)| bytes >= *size).unwrap_or((1.0, "B"));
    format!("{} {unit}", (bytes / size * 10.0).round() / 10.0)
}

/// Kernel name with template arguments reduced to `<>`. Inside parentheses within a template, `>` is a
/// comparison. A name with unbalanced brackets is kept.
pub fn without_templates(name: &str) -> String {
    let mut cut = String::new();
    // for each open bracket, the number of open parentheses inside it
    let mut open: Vec<usize> = Vec::new();
    for c in name.chars() {
        match (c, open.last_mut()) {
            ('<', None) => {
                cut.push_str("<>");
                open.push(0);
            }
            ('<', Some(0)) => open.push(0),
            ('>', Some(0)) => _ = open.pop(),
            ('(', Some(within)) => *within += 1,
            (')', Some(within)) => *within = within.saturating_sub(1),
            (_, Some(_)) => {}
            (c, None) => cut.push(c),
        }
    }
    // an unbalanced bracket is no template
    if open.is_empty() { cut } else { name.to_owned() }
}

/// Shortens a kernel name to `room` characters, in steps as needed: drops template arguments, then
/// `void` and arguments, then leading namespaces and types, then the middle. Library kernels have a label: `elementwise Mul`.
pub fn fitting_name(name: &str, room: usize) -> String {
    let length = |name: &str| name.chars().count();
    let label = library_label(name);
    let name = label.as_deref().or(planned(name)).unwrap_or(name);
    let plain = without_templates(name);
    if length(&plain) <= room {
        return plain;
    }
    let bare = plain.strip_prefix("void ").unwrap_or(&plain);
    let mut bare = without_arguments(bare).trim_end();
    // a return type such as `std::enable_if<>::type`
    while length(bare) > room || bare.starts_with("type ") {
        let Some(inner) = without_qualifier(bare) else { break };
        bare = inner;
    }
    if length(bare) <= room {
        return bare.to_owned();
    }
    // the end is more informative than the beginning
    let head = room.saturating_sub(1) / 3;
    let tail = room.saturating_sub(1 + head);
    let end = bare.chars().skip(length(bare) - tail);
    bare.chars().take(head).chain(std::iter::once('…')).chain(end).take(room).collect()
}

/// Name of a kernel's function without templates, arguments, namespaces and types, the label of a library kernel, or the
/// last part of a plan operation: `multimem_all_reduce_kernel`, `Tensile MT256x192x64`, `down`.
pub fn function_name(name: &str) -> String {
    if let Some(label) = library_label(name) {
        return label;
    }
    let name = planned(name).unwrap_or(name);
    let plain = without_templates(name);
    let bare = unqualified(&plain).trim_end_matches("<>");
    let last = bare.rsplit('/').next().unwrap_or(bare);
    if last.is_empty() { name.to_owned() } else { last.to_owned() }
}

/// Function of a name without templates, without arguments, namespaces and types.
fn unqualified(plain: &str) -> &str {
    let mut bare = without_arguments(plain.strip_prefix("void ").unwrap_or(plain)).trim_end();
    while let Some(inner) = without_qualifier(bare) {
        bare = inner;
    }
    bare
}

/// Plan operation in an exported collective's kernel name:
/// `ncclDevKernel_Combine(decode/L3/moe/combine)`.
pub fn planned(name: &str) -> Option<&str> {
    let (_, inner) = name.strip_prefix("ncclDevKernel_")?.strip_suffix(')')?.split_once('(')?;
    (inner.contains('/') && !inner.contains(['(', ' ', ','])).then_some(inner)
}

/// True for kernel names of GEMM libraries, which list tiles and options: `Cijk_Alik_Bljk_BBS_MT256x32x64_...`; also for
/// mangled names.
fn is_joined(name: &str) -> bool {
    name.len() > 40 && !name.contains(['<', '(', ' ', '/']) && name.matches('_').count() > 4
}

/// Suffixes that tell kernels with equal short names apart: the template arguments and parameters that not all of them
/// have, as `‹bf16 128x64›`; empty for other names.
pub fn distinguishing(names: &[&str]) -> Vec<String> {
    /// Maximum length of a suffix.
    const MAX_SUFFIX_LENGTH: usize = 28;
    let short = |name: &str| {
        let plain = without_templates(name);
        let bare = unqualified(&plain);
        let parts = if is_joined(name) { 2 } else { usize::MAX };
        bare.split('_').take(parts).collect::<Vec<_>>().join("_")
    };
    let mut groups: HashMap<String, Vec<usize>> = HashMap::new();
    for (at, name) in names.iter().enumerate() {
        groups.entry(short(name)).or_default().push(at);
    }
    let mut suffixes = vec![String::new(); names.len()];
    for group in groups.into_values().filter(|group| group.len() > 1) {
        let arguments = |at: usize| {
            let name = names[at];
            name.split_once('<').filter(|_| !is_joined(name)).map_or(name, |(_, rest)| rest)
        };
        // with equal arguments, names differ only before them
        let are_equal = group.iter().all(|at| arguments(*at) == arguments(group[0]));
        let words = |at: usize| {
            let is_joined = is_joined(names[at]);
            let text = if are_equal { names[at] } else { arguments(at) };
            let words = text.split(|c: char| !c.is_alphanumeric() && (c != '_' || is_joined));
            // a word longer than the suffix lists tiles and options itself
            let words = words.flat_map(|word| {
                let is_list = word.chars().count() > MAX_SUFFIX_LENGTH;
                word.split(move |c| is_list && c == '_')
            });
            words.filter(|word| !word.is_empty()).collect::<Vec<_>>()
        };
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for at in &group {
            words(*at).into_iter().collect::<HashSet<_>>().into_iter().for_each(|word| {
                *counts.entry(word).or_default() += 1;
            });
        }
        for at in &group {
            // the rarest words are chosen first, and printed in the order of the name
            let all = words(*at);
            let mut rarest: Vec<usize> =
                (0..all.len()).filter(|at| counts[all[*at]] < group.len()).collect();
            rarest.sort_by_key(|at| counts[all[*at]]);
            let mut own: Vec<usize> = Vec::new();
            for word in rarest {
                let length = own.iter().map(|at| all[*at].chars().count() + 1).sum::<usize>();
                let is_new = own.iter().all(|at| all[*at] != all[word]);
                if is_new && length + all[word].chars().count() <= MAX_SUFFIX_LENGTH {
                    own.push(word);
                }
            }
            own.sort_unstable();
            let own: Vec<&str> = own.into_iter().map(|at| all[at]).collect();
            if !own.is_empty() {
                suffixes[*at] = format!("‹{}›", own.join(" "));
            }
        }
    }
    // kernels of different functions may have one label
    let label = |name: &str| library_label(name).unwrap_or_else(|| short(name));
    let mut labelled: HashMap<(String, String), Vec<usize>> = HashMap::new();
    for (at, name) in names.iter().enumerate() {
        labelled.entry((label(name), suffixes[at].clone())).or_default().push(at);
    }
    for group in labelled.into_values() {
        let functions: HashSet<String> = group.iter().map(|at| short(names[*at])).collect();
        if functions.len() > 1 {
            for at in group {
                suffixes[at] = format!("‹{}›", short(names[at]).trim_end_matches("<>"));
            }
        }
    }
    // names that differ in what does not fit are numbered
    let mut seen: HashMap<(String, String), Vec<&str>> = HashMap::new();
    for (at, name) in names.iter().enumerate() {
        if suffixes[at].is_empty() {
            continue;
        }
        let same = seen.entry((short(name), suffixes[at].clone())).or_default();
        if !same.contains(name) {
            same.push(name);
        }
        let number = same.iter().position(|known| known == name).map_or(0, |place| place + 1);
        if number > 1 {
            suffixes[at] = format!("{} {number}›", suffixes[at].trim_end_matches('›'));
        }
    }
    suffixes
}

/// Drops a function's first namespace, or the type before it; `None` if it has neither. Text in
/// parentheses is part of the name.
fn without_qualifier(name: &str) -> Option<&str> {
    let mut open = 0_usize;
    for (at, c) in name.char_indices() {
        match c {
            '(' | '{' => open += 1,
            ')' | '}' => open = open.saturating_sub(1),
            ':' if open == 0 && name[at..].starts_with("::") => return Some(&name[at + 2..]),
            ' ' if open == 0 => return Some(&name[at + 1..]),
            _ => {}
        }
    }
    None
}

/// Drops the parentheses at the end of a function's name.
fn without_arguments(name: &str) -> &str {
    let mut open = 0_usize;
    for (at, c) in name.char_indices().rev() {
        match c {
            ')' => open += 1,
            '(' => open = open.saturating_sub(1),
            _ => {}
        }
        if open == 0 {
            return if c == '(' && at > 0 { &name[..at] } else { name };
        }
    }
    name
}

/// Formats a percentage, or `-` for none.
pub fn percent(value: Option<f64>) -> String {
    value.map_or("-".into(), |v| format!("{v:.1} %"))
}

/// Formats a percentage as a whole number; a share just below 100 keeps a decimal, since `100 %` means all: `75 %`, `99.6 %`.
pub fn whole_percent(pct: f64) -> String {
    match (99.5..100.0).contains(&pct) {
        true => format!("{:.1} %", pct.min(99.9)),
        false => format!("{pct:.0} %"),
    }
}

/// Makes text safe for a terminal. Names, notes and messages come from files and other processes, and
/// control characters (ESC, the C1 set, bidirectional controls) could manipulate the terminal. Each
/// becomes `�`; line feeds and tabs are kept.
pub fn printable(text: &str) -> Cow<'_, str> {
    // fast path: almost all text is plain ASCII
    let plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\t'));
    if plain || !text.chars().any(steers) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|c| if steers(c) { '\u{fffd}' } else { c }).collect())
}

/// Like [`printable`], with one `?` per byte, so that byte offsets stay valid.
pub fn without_controls(text: &str) -> String {
    let harmless = |c: char| if steers(c) { "?".repeat(c.len_utf8()) } else { c.to_string() };
    text.chars().map(harmless).collect()
}

/// True for characters with an effect on a terminal beyond being displayed.
fn steers(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\t')) || turns(c)
}

/// True for characters that change text direction, or break lines without a line feed.
fn turns(c: char) -> bool {
    matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

/// Escapes characters in JSON that could manipulate a terminal (`\u009b`); valid JSON has them only
/// inside strings.
pub fn escaped_json(json: &str) -> Cow<'_, str> {
    let is_escaped = |c: char| matches!(c, '\u{7f}'..='\u{9f}') || turns(c);
    let plain = json.bytes().all(|byte| byte < 0x7f);
    if plain || !json.chars().any(is_escaped) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match is_escaped(c) {
            // writing to a String cannot fail
            true => _ = write!(escaped, "\\u{:04x}", u32::from(c)),
            false => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

/// Writer that applies [`escaped_json`]. Each write must consist of whole characters, as serde's do.
pub struct EscapedJson<W>(pub W);

impl<W: io::Write> io::Write for EscapedJson<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let json = std::str::from_utf8(bytes).map_err(|e| io::Error::new(ErrorKind::InvalidData, e))?;
        self.0.write_all(escaped_json(json).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Escapes text for XML, including attributes; characters invalid in XML become `�`.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push(' '),
            '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Compares two texts in natural order; only identical texts are equal.
pub fn natural_order(a: &str, b: &str) -> Ordering {
    let (mut x, mut y) = (a.as_bytes(), b.as_bytes());
    loop {
        let same = x.iter().zip(y).take_while(|(p, q)| p == q && !p.is_ascii_digit()).count();
        (x, y) = (&x[same..], &y[same..]);
        match (x.first(), y.first()) {
            (None, None) => return a.cmp(b),
            (None, _) => return Ordering::Less,
            (_, None) => return Ordering::Greater,
            (Some(p), Some(q)) if p.is_ascii_digit() && q.is_ascii_digit() => {
                let (m, n) = (number(x), number(y));
                // without leading zeros, more digits mean a larger number
                let (p, q) = (significant(&x[..m]), significant(&y[..n]));
                let order = p.len().cmp(&q.len()).then_with(|| p.cmp(q));
                if order.is_ne() {
                    return order;
                }
                (x, y) = (&x[m..], &y[n..]);
            }
            (Some(p), Some(q)) => return p.cmp(q),
        }
    }
}

fn number(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

fn significant(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().take_while(|byte| **byte == b'0').count();
    &digits[zeros..]
}

/// Value of a variable; `None` if unset or empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// True if the terminal supports escape sequences: `TERM` is set and not `dumb`.
pub fn takes_escapes() -> bool {
    variable("TERM").is_some_and(|term| term != "dumb")
}

/// True if output is colored: never with `NO_COLOR`, always with `CLICOLOR_FORCE`, else on a capable
/// terminal.
pub fn is_coloured(is_terminal: bool) -> bool {
    let forced = variable("CLICOLOR_FORCE").is_some_and(|force| force != "0");
    variable("NO_COLOR").is_none() && (forced || (is_terminal && takes_escapes()))
}

/// Last part of a path; all of a text that has none.
pub fn file_name(path: &str) -> String {
    let name = std::path::Path::new(path).file_name();
    name.map_or_else(|| path.to_owned(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_have_units() {
        let seconds = [0.0, 59.0, 184.2, 7_800.0];
        assert_eq!(seconds.map(duration), ["0 s", "59 s", "3 min 05 s", "2 h 10 min"]);
    }

    #[test]
    fn numbers_that_follow_one_another_are_told_by_their_ends() {
        assert_eq!(layer_list(&[0, 1, 2, 5, 9, 10]), "0-2 5 9-10");
        let but = |left_out: fn(&u32) -> bool| (0..64).filter(|r| !left_out(r)).collect::<Vec<u32>>();
        assert_eq!(rank_list(&but(|rank| *rank == 5)), "r0..r4 r6..r63");
        assert_eq!(rank_label(&but(|rank| *rank == 5)), "r0..r4 r6..r63");
        assert_eq!(rank_label(&but(|rank| rank % 2 == 1)), "r0 and 31 more");
        assert_eq!(
            (rank_list(&[]), rank_label(&[3, u32::MAX])),
            (String::new(), "r3 r4294967295".into())
        );
    }

    #[test]
    fn consecutive_steps_are_listed_as_ranges() {
        assert_eq!(step_list(&[4], 4), "4");
        assert_eq!(step_list(&[0, 3, 4, 5, 9, u32::MAX], 5), "0, 3 to 5, 9, 4294967295");
        assert_eq!(step_list(&[0, 2, 4, 6], 4), "0, 2, 4, 6");
        assert_eq!(step_list(&[0, 2, 4, 6, 8, 10], 4), "0, 2, 4, ... up to 10");
    }

    #[test]
    fn the_last_of_several_items_follows_and() {
        let items = ["ladder", "parallel", "delayed:2"];
        let joined = [0, 1, 2, 3].map(|count| joined_with_and(&items[..count]));
        assert_eq!(joined, ["", "ladder", "ladder and parallel", "ladder, parallel and delayed:2"]);
    }

    #[test]
    fn no_share_below_100_percent_is_rounded_to_it() {
        let shown = [0.0, 74.6, 99.4, 99.6, 99.99, 100.0, 104.4].map(whole_percent);
        assert_eq!(shown, ["0 %", "75 %", "99 %", "99.6 %", "99.9 %", "100 %", "104 %"]);
    }

    #[test]
    fn templates_of_kernels_are_cut_and_brackets_that_do_not_close_are_none() {
        assert_eq!(without_templates("gemm<bf16, tile<4, 8>>(int)::run<1>"), "gemm<>(int)::run<>");
        assert_eq!(without_templates("operator<<"), "operator<<");
        assert_eq!(without_templates("a -> b"), "a -> b");
        let compared = "std::enable_if<(((width) > (0)))&&f<4>::is, void>::type norm<float>(int)";
        assert_eq!(without_templates(compared), "std::enable_if<>::type norm<>(int)");
    }

    #[test]
    fn kernels_with_equal_short_names_are_told_apart_by_their_template_arguments() {
        let names = [
            "void cutlass::Kernel<Gemm<bf16, 128, 64>>(Params)",
            "void cutlass::Kernel<Gemm<f16, 128, 64>>(Params)",
            "void cutlass::Kernel<Gemm<bf16, 256, 64>>(Params)",
            "void cutlass::Kernel<Gemm<bf16, 256, 64>>(Params)",
            "void at::copy<float>(int)",
        ];
        let told = super::distinguishing(&names);
        assert_eq!(told, ["‹bf16 128›", "‹f16 128›", "‹bf16 256›", "‹bf16 256›", ""]);
        let long = ["a", "b"].map(|end| format!("k<{}{end}>", "x, y, ".repeat(2)));
        assert_eq!(super::distinguishing(&[&long[0], &long[1]]), ["‹a›", "‹b›"]);
        let tiles = ["MT256x32x64", "MT64x64x64"];
        let tiles = tiles.map(|tile| format!("Cijk_Alik_Bljk_BBS_BH_Bias_{tile}_MI16x16x1_SN_1LDSB0"));
        assert_eq!(super::distinguishing(&[&tiles[0], &tiles[1]]), ["‹MT256x32x64›", "‹MT64x64x64›"]);
        let cutlass = ["256x64_16x4_nn", "64x64_16x6_nn"]
            .map(|tiles| format!("cutlass_80_s1688gemm_{tiles}_align4"));
        let cutlass = cutlass.map(|name| format!("void cutlass::Kernel<{name}>({name}::Params)"));
        assert_eq!(
            super::distinguishing(&[&cutlass[0], &cutlass[1]]),
            ["‹256x64 16x4›", "‹64x64 16x6›"]
        );
        let signs = ["k<+1>", "k<-1>"];
        assert_eq!(super::distinguishing(&signs), ["", ""], "no word differs");
        assert_eq!(super::distinguishing(&["a::k<1>", "b::k<1>"]), ["‹a›", "‹b›"]);
        let copy =
            "gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>";
        let copies = ["elementwise_kernel", "unrolled_elementwise_kernel"]
            .map(|function| format!("void at::native::{function}<4, at::native::{copy}>(int)"));
        assert_eq!(
            super::distinguishing(&[&copies[0], &copies[1]]),
            ["‹elementwise_kernel›", "‹unrolled_elementwise_kernel›"],
            "both are labelled copy"
        );
    }

    #[test]
    fn a_name_gives_up_what_tells_least_first() {
        let name = "void at::(anonymous namespace)::copy_kernel<float, 4>(int, (a)::b)";
        assert_eq!(fitting_name(name, 80), "void at::(anonymous namespace)::copy_kernel<>(int, (a)::b)");
        assert_eq!(fitting_name(name, 50), "at::(anonymous namespace)::copy_kernel<>");
        assert_eq!(fitting_name(name, 38), "(anonymous namespace)::copy_kernel<>");
        assert_eq!(fitting_name(name, 20), "copy_kernel<>");
        assert_eq!(fitting_name(name, 11), "cop…ernel<>");
        let typed = "void std::enable_if<(4>0), void>::type vllm::fused_add_rms_norm_kernel<float>(int)";
        assert_eq!(fitting_name(typed, 30), "fused_add_rms_norm_kernel<>");
        assert_eq!(fitting_name("L12/attn/all_reduce", 15), "L12/…all_reduce");
        let exported = "ncclDevKernel_Combine(decode/L3/moe/combine)";
        assert_eq!(fitting_name(exported, 48), "decode/L3/moe/combine");
        let library = "void at::native::elementwise_kernel<4, at::native::MulFunctor<float> >(int)";
        assert_eq!(fitting_name(library, 48), "elementwise Mul");
        assert_eq!(fitting_name(name, 1), "…");
        assert_eq!(fitting_name("(anonymous)", 5), "(…us)");
        assert_eq!(fitting_name(typed, 48), "vllm::fused_add_rms_norm_kernel<>");
    }

    #[test]
    fn a_function_has_no_return_type_and_no_namespace() {
        let function = super::function_name;
        assert_eq!(function("decode/L12/mlp/down"), "down");
        assert_eq!(function("ncclDevKernel_Combine(decode/L3/moe/combine)"), "combine");
        let reduce = "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, int)";
        assert_eq!(function(reduce), "multimem_all_reduce_kernel");
        assert_eq!(function("Cijk_Alik_Bljk_BBS_BH_MT256x192x64_MI16x16x1_SN"), "Tensile MT256x192x64");
        assert_eq!(function("Memcpy DtoD (Device -> Device)"), "DtoD");
        assert_eq!(function("(anonymous)"), "(anonymous)");
    }

    #[test]
    fn names_are_the_same_in_either_case_and_with_either_dash() {
        assert!(same_name("h100_sxm", "H100-SXM") && same_name("prompt-tokens", "prompt_tokens"));
        assert!(!same_name("h100_sxm", "h100 sxm") && !same_name("tp", "tpot"));
        assert_eq!(folded("Paper_70B-édité"), "paper-70b-édité");
    }

    #[test]
    fn what_steers_a_terminal_is_not_printed() {
        assert!(matches!(printable("löst\tin\n2 lines"), std::borrow::Cow::Borrowed(_)));
        assert_eq!(super::without_controls("ö\u{9b}\x1bx\n"), "ö???x\n");
        assert_eq!(printable("a\x1b[31mb\u{9b}c\r\u{202e}d\x07\x7f"), "a�[31mb�c��d��");
    }

    #[test]
    fn json_escapes_what_steers_a_terminal_and_means_the_same() {
        use std::io::Write as _;
        let text = "a\u{7f}\u{80}\u{9b}\u{9f}\u{61c}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\u{2066}\u{2069}é\u{a0}µ—";
        let json = serde_json::to_string(&[text, "\u{1b}[31m"]).unwrap();
        let escaped = super::escaped_json(&json);
        assert_eq!(printable(&escaped), escaped, "nothing in it steers");
        assert!(
            escaped.contains("\\u009b") && escaped.contains("\\u202e") && escaped.contains("é\u{a0}µ—")
        );
        assert_eq!(serde_json::from_str::<Vec<String>>(&escaped).unwrap(), [text, "\u{1b}[31m"]);
        let mut written = super::EscapedJson(Vec::new());
        written.write_all(json.as_bytes()).unwrap();
        assert_eq!(written.0, escaped.as_bytes());
        assert!(matches!(super::escaped_json("[\"plain\"]"), std::borrow::Cow::Borrowed(_)));
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(shell_word("paper-70b"), "paper-70b");
        assert_eq!(shell_word("emulated:alpha_us=20,gb_s=50"), "emulated:alpha_us=20,gb_s=50");
        assert_eq!(shell_word("tok/s>1 it's"), r"'tok/s>1 it'\''s'");
        assert_eq!(shell_word(""), "''");
    }

    #[test]
    fn numbers_within_names_are_numbers() {
        let mut names =
            ["ladder:16", "ladder:8", "b:10", "b:9", "ladder", "1b", "34b", "3b", "a01", "a1"];
        names.sort_by(|a, b| natural_order(a, b));
        assert_eq!(
            names,
            ["1b", "3b", "34b", "a01", "a1", "b:9", "b:10", "ladder", "ladder:8", "ladder:16"]
        );
    }

    proptest! {
        #[test]
        fn it_is_an_order(texts in prop::collection::vec("[a0-2]{0,6}", 3)) {
            let (a, b, c) = (&texts[0], &texts[1], &texts[2]);
            prop_assert_eq!(natural_order(a, b), natural_order(b, a).reverse());
            prop_assert_eq!(natural_order(a, b).is_eq(), a == b);
            if natural_order(a, b).is_le() && natural_order(b, c).is_le() {
                prop_assert!(natural_order(a, c).is_le());
            }
        }
    }
}
