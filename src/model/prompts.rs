//! Files of space-separated token ids: prompts, one per line, or a tokenized text.

use std::path::Path;

use base::error::{Error, Result};
use base::input::InputKind;

/// Reads a prompt file: one prompt per line, space-separated ids below `vocab`; skips blank lines.
///
/// # Errors
/// Returns an input error with file, line, column and value for an invalid number, an id not below
/// `vocab`, or a file without prompts.
pub fn read_prompts(path: &Path, vocab: u32) -> Result<Vec<Vec<u32>>> {
    parse(path, &InputKind::TEXT.text(path)?, vocab)
}

/// Reads a file of space-separated token ids below `vocab`, on any number of lines.
///
/// # Errors
/// Returns the errors of [`read_prompts`].
pub fn read_tokens(path: &Path, vocab: u32) -> Result<Vec<u32>> {
    Ok(read_prompts(path, vocab)?.concat())
}

const TOKEN_FILE_HELP: &str =
    "such a file has token ids separated by blanks: 1 4034 278; of prompts, one a line";

/// Parses a prompt file; `path` is for messages.
fn parse(path: &Path, text: &str, vocab: u32) -> Result<Vec<Vec<u32>>> {
    // some editors start a file with a byte order mark
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut prompts = Vec::new();
    for line in text.lines() {
        let mut prompt = Vec::new();
        for token in line.split_whitespace() {
            prompt.push(id(token, vocab).map_err(|(what, help)| {
                let at = token.as_ptr().addr() - text.as_ptr().addr();
                Error::at(&path.display().to_string(), text, at..at + token.len(), what, Some(help))
            })?);
        }
        if !prompt.is_empty() {
            prompts.push(prompt);
        }
    }
    if prompts.is_empty() {
        return Err(Error::input_help(
            format!("{}: no token ids in it", path.display()),
            TOKEN_FILE_HELP,
        ));
    }
    Ok(prompts)
}

/// Parses one id; errors are a problem and a remedy.
fn id(token: &str, vocab: u32) -> Result<u32, (String, String)> {
    // digits only: parse() would accept a sign
    if !token.bytes().all(|b| b.is_ascii_digit()) {
        let mut shown: String = token.chars().take(40).collect();
        if shown.len() < token.len() {
            shown.push_str("...");
        }
        return Err((format!("'{shown}' is not a token id"), TOKEN_FILE_HELP.into()));
    }
    match token.parse() {
        Ok(id) if id < vocab => Ok(id),
        _ => Err((
            format!("token id {token} is not in the vocabulary"),
            format!("ids of this model are 0 to {}", vocab.saturating_sub(1)),
        )),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Result<Vec<Vec<u32>>> {
        parse(Path::new("prompts.txt"), text, 100)
    }

    fn error(text: &str) -> (String, Option<miette::SourceSpan>) {
        match parsed(text) {
            Err(error) => {
                assert_eq!(error.exit_code(), 2);
                let span = if let Error::At { span, .. } = &error { Some(*span) } else { None };
                (error.to_string(), span)
            }
            Ok(prompts) => (format!("parsed: {prompts:?}"), None),
        }
    }

    #[test]
    fn lines_are_prompts_and_blank_lines_are_nothing() {
        let prompts = parsed("\u{feff}1 2\t3\r\n\n  \n 99 \n0");
        assert_eq!(prompts.ok(), Some(vec![vec![1, 2, 3], vec![99], vec![0]]));
    }

    #[test]
    fn errors_name_file_line_column_and_value() {
        let (message, span) = error("1 2\n\n3 \u{a0}é 4");
        assert_eq!(message, "prompts.txt:3:4: 'é' is not a token id");
        assert_eq!(span, Some((9, 2).into()));
        assert_eq!(error("1 2\n3 100").0, "prompts.txt:2:3: token id 100 is not in the vocabulary");
        assert_eq!(
            error("4294967297").0,
            "prompts.txt:1:1: token id 4294967297 is not in the vocabulary"
        );
        for bad in ["+1", "-1", "1,2", "1.0", "0x1"] {
            assert_eq!(error(bad).0, format!("prompts.txt:1:1: '{bad}' is not a token id"));
        }
    }

    #[test]
    fn a_file_without_prompts_is_an_error() {
        assert_eq!(error(" \n\n").0, "prompts.txt: no token ids in it");
    }

    #[test]
    fn a_file_that_is_not_text_is_named_with_the_byte() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("prompts.bin");
        std::fs::write(&path, b"1 2\n\xff").expect("write");
        let message = read_prompts(&path, 10).expect_err("not text").to_string();
        assert_eq!(message, format!("{}: byte 4 is not UTF-8 text", path.display()));
        let missing = read_prompts(&dir.path().join("none"), 10).expect_err("no file");
        assert_eq!(missing.exit_code(), 2);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            prompts in prop::collection::vec(prop::collection::vec(0u32..100, 1..10), 1..10),
            blank in "[ \t]{1,3}",
        ) {
            let line = |p: &Vec<u32>| p.iter().map(u32::to_string).collect::<Vec<_>>().join(&blank);
            let text = prompts.iter().map(line).collect::<Vec<_>>().join("\n");
            prop_assert_eq!(parsed(&text).ok(), Some(prompts));
        }

        #[test]
        fn any_text_is_parsed_or_refused_at_a_place_within_it(text in "\\PC{0,20}[0-9 \n]{0,20}") {
            match parsed(&text) {
                Ok(prompts) => prop_assert!(prompts.iter().flatten().all(|id| *id < 100)),
                Err(Error::At { span, .. }) => {
                    let end = span.offset() + span.len();
                    prop_assert!(text.get(span.offset()..end).is_some_and(|t| !t.is_empty()));
                }
                Err(other) => prop_assert!(text.trim_start_matches('\u{feff}').trim().is_empty(), "{other}"),
            }
        }
    }
}
