//! Words as other programs read them: fields of a CSV table, words of a shell's command.

/// A CSV field (RFC 4180), in quotes where it needs them.
pub fn csv_field(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// A word as a POSIX shell takes it.
pub fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A command: its words, each as a POSIX shell takes it.
pub fn shell_command<W: AsRef<str>>(words: impl IntoIterator<Item = W>) -> String {
    words.into_iter().map(|word| shell_word(word.as_ref())).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::{csv_field, shell_word};

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(shell_word("paper-70b"), "paper-70b");
        assert_eq!(shell_word("emulated:alpha_us=20,gb_s=50"), "emulated:alpha_us=20,gb_s=50");
        assert_eq!(shell_word("tok/s>1 it's"), r"'tok/s>1 it'\''s'");
        assert_eq!(shell_word(""), "''");
    }

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        assert_eq!(csv_field("plain"), "plain");
        assert_eq!(csv_field("a,\"b\"\r"), "\"a,\"\"b\"\"\r\"");
    }
}
