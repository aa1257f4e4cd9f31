//! Errors on standard error: graphical on a terminal, plain lines elsewhere, JSON objects if results are JSON.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use miette::{Diagnostic as _, GraphicalReportHandler, GraphicalTheme};

use crate::desk::OpenedTrace;
use base::error::Error;
use base::text::{escaped_json, is_coloured, printable, takes_escapes, without_controls};
use trace::import;

pub fn is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// True if progress bars can be drawn on standard error.
pub fn can_draw() -> bool {
    is_terminal() && takes_escapes()
}

/// True if errors are printed as JSON (`--format json`).
static ERRORS_ARE_JSON: AtomicBool = AtomicBool::new(false);

/// Enables JSON errors if the arguments ask for JSON. Scans the raw arguments, because parse errors are printed too.
pub fn choose_error_format(arguments: &[OsString]) {
    let asked = arguments.iter().any(|argument| argument == "--format=json")
        || arguments.windows(2).any(|pair| pair[0] == "--format" && pair[1] == "json");
    ERRORS_ARE_JSON.store(asked, Ordering::Relaxed);
}

/// Error in JSON.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub struct PrintedError {
    /// Description of the error, with the invalid value.
    error: String,
    /// Remedy; null if unknown.
    help: Option<String>,
}

/// Formats an error as one line, `{"error": "...", "help": "..."}`; `help` may be null.
fn as_json(error: &Error) -> String {
    let help = error.help().map(|help| help.to_string());
    let printed = PrintedError { error: error.placed(), help };
    escaped_json(&serde_json::to_string(&printed).unwrap_or_default()).into_owned()
}

/// Prints an error with its position in the file and the remedy.
pub fn print_error(error: &Error) {
    if ERRORS_ARE_JSON.load(Ordering::Relaxed) {
        return write(&as_json(error));
    }
    let style = if is_coloured(is_terminal()) {
        ErrorStyle::Coloured
    } else if can_draw() {
        ErrorStyle::Graphical
    } else {
        ErrorStyle::Plain
    };
    write(render(error, style).trim_end());
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrorStyle {
    /// Lines without drawing, for files and pipes.
    Plain,
    /// Box drawing without colours.
    Graphical,
    Coloured,
}

fn render(error: &Error, style: ErrorStyle) -> String {
    let error = &harmless(error);
    let is_plain = style == ErrorStyle::Plain;
    if is_plain && !matches!(error, Error::At { .. }) {
        let help = error.help().map_or(String::new(), |help| format!("\n  help: {help}"));
        return format!("error: {error}{help}");
    }
    let handler = match style {
        ErrorStyle::Coloured => GraphicalReportHandler::new_themed(GraphicalTheme::unicode()),
        ErrorStyle::Graphical => GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor()),
        // no wrapping, so that the text can be searched
        ErrorStyle::Plain => {
            GraphicalReportHandler::new_themed(GraphicalTheme::none()).with_width(10_000)
        }
    };
    let mut text = String::new();
    match handler.render_report(&mut text, error) {
        Ok(()) if !is_plain => text,
        Ok(()) => format!("error: {}", text.trim_start().trim_start_matches("x ")),
        Err(_) => format!("error: {error}"),
    }
}

pub fn warn(message: &str) {
    line(&format!("warning: {message}"));
}

/// Maximum number of warnings of one kind.
const MOST_WARNINGS: usize = 20;

/// Prints the first of many warnings, then the number of others and where to find them.
pub fn warn_all<'a>(messages: impl ExactSizeIterator<Item = &'a str>, all_are: &str) {
    let left = messages.len().saturating_sub(MOST_WARNINGS);
    messages.take(MOST_WARNINGS).for_each(warn);
    if left > 0 {
        line(&format!("and {left} more warnings: {all_are}"));
    }
}

/// Notes the simulator's errors on the data nearest to these cells, for tables only.
pub fn note_simulator_errors<'a>(specs: impl IntoIterator<Item = &'a table::Spec>) {
    if !ERRORS_ARE_JSON.load(Ordering::Relaxed) {
        study::validate::nearest_errors(specs)
            .iter()
            .for_each(|error| note(&format!("simulator: {error}")));
    }
}

/// Prints a note, for example a choice and its reason.
pub fn note(message: &str) {
    match is_terminal() {
        true => line(super::output::wrapped("note: ", message, 2).trim_end()),
        false => line(&format!("note: {message}")),
    }
}

/// Prints a note if a trace lacks steps of its run.
pub fn note_part(opened: &OpenedTrace) {
    if let Some(part) = opened.part {
        note(&format!("{}: the {part}, simulated again; --step shows a later one", opened.source));
    }
}

/// Warns of everything that an import left out or chose, for output that does not list it.
pub fn import_warnings(opened: &OpenedTrace) {
    let Some(import) = &opened.trace.meta.import else { return };
    warn_all(import.warnings.iter().map(String::as_str), "`ladderscope overlap` lists them");
}

/// Prints a line, with terminal control characters replaced by `�`.
pub fn line(text: &str) {
    write(&printable(text));
}

/// Removes terminal control characters from an error, including the file that it quotes.
fn harmless(error: &Error) -> Error {
    match error {
        Error::Input { message, help } => Error::Input {
            message: printable(message).into_owned(),
            help: help.as_deref().map(|help| printable(help).into_owned()),
        },
        Error::At { message, help, source_code, span } => Error::At {
            message: printable(message).into_owned(),
            help: help.as_deref().map(|help| printable(help).into_owned()),
            source_code: miette::NamedSource::new(
                printable(source_code.name()),
                without_controls(source_code.inner()),
            ),
            span: *span,
        },
        Error::Interrupted => Error::Interrupted,
        other => Error::failed(printable(&other.to_string())),
    }
}

/// Writes a line unchanged. A closed standard error is no reason to fail.
fn write(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Words for the standard library's and clap's errors about numbers.
fn wrong_number(why: &str) -> String {
    if why.contains("invalid float literal") {
        return "is not a number".into();
    }
    if why.contains("invalid digit found") || why.contains("cannot parse integer") {
        return "is not a whole number".into();
    }
    let Some((least, most)) =
        why.split_once(" is not in ").and_then(|(_, range)| range.split_once(".."))
    else {
        return format!("is invalid: {why}");
    };
    match most.trim_start_matches('=') {
        "" | "4294967295" => format!("is too small: at least {least}"),
        most => format!("is not between {least} and {most}"),
    }
}

/// Prints an error about the arguments, or the requested help. Returns the exit status.
pub fn usage_error(error: &clap::Error) -> u8 {
    let text_of = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text),
        _ => None,
    };
    let source = std::error::Error::source(error);
    let option = text_of(ContextKind::InvalidArg);
    let in_words = match (error.kind(), source.and_then(|source| source.downcast_ref::<Error>())) {
        // our own parsers suggest the nearest valid name, which clap would drop
        (ErrorKind::ValueValidation, Some(Error::Input { message, help })) => {
            let option = option.map(|option| format!("{option}: ")).unwrap_or_default();
            Some(Error::Input { message: format!("{option}{message}"), help: help.clone() })
        }
        (ErrorKind::ValueValidation, _) => {
            option.zip(text_of(ContextKind::InvalidValue)).map(|(option, value)| {
                let why = source.map(ToString::to_string).unwrap_or_default();
                Error::input(format!("{option}: '{value}' {}", wrong_number(&why)))
            })
        }
        (ErrorKind::UnknownArgument, _) => option.and_then(|word| another_trace(word)),
        _ => text_of(ContextKind::InvalidSubcommand).and_then(|word| no_verb(word)),
    };
    if let Some(error) = in_words {
        print_error(&error);
        return 2;
    }
    let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    if !asked && ERRORS_ARE_JSON.load(Ordering::Relaxed) {
        let text = error.render().to_string();
        let (message, help) = text.split_once('\n').unwrap_or((&text, ""));
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        print_error(&Error::input_help(message.trim_start_matches("error: "), help));
        return 2;
    }
    let printed = error.print().and_then(|()| std::io::stdout().flush());
    match printed {
        _ if !asked => 2,
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            print_error(&Error::io("standard output")(e));
            1
        }
        // a closed pipe is no error: the reader has seen enough
        _ => 0,
    }
}

/// Error for a path where a verb belongs; `None` for other words, for which clap suggests a verb.
fn no_verb(word: &str) -> Option<Error> {
    let help =
        format!("`ladderscope timeline {word}` opens a trace, `ladderscope overlap {word}` explains it");
    match Path::new(word).exists() {
        true => Some(Error::input_help(format!("'{word}' is a path, not a verb"), help)),
        false if word.contains(['.', '/']) => {
            Some(Error::input(format!("{word}: no such file or directory")))
        }
        false => None,
    }
}

/// Error for a trace after the one that a verb takes; `None` for other arguments.
fn another_trace(word: &str) -> Option<Error> {
    let path = Path::new(word);
    let is_trace = match path.is_dir() {
        true => import::holds_traces(path),
        false => path.is_file() && import::is_known_file(path),
    };
    let help = format!(
        "to open the ranks of one job as one trace, pass the directory that contains their files; to compare two \
         traces: `ladderscope diff A {word}`"
    );
    let wrong = "a trace is one file, or a directory with one file per rank";
    is_trace.then(|| Error::input_help(format!("unexpected argument '{word}': {wrong}"), help))
}

/// Panic hook: reports a bug with its location.
pub fn report_panic(info: &std::panic::PanicHookInfo<'_>) {
    let what = info.payload_as_str().unwrap_or_default();
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    line(&format!(
        "error: this is a bug in ladderscope {}: {what} ({place})\n  help: finished runs are stored; please report it with this line",
        env!("CARGO_PKG_VERSION")
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_about_numbers_are_in_plain_words() {
        for (why, words) in [
            ("0 is not in 1..=64", "is not between 1 and 64"),
            ("-1 is not in 0..=4294967295", "is too small: at least 0"),
            ("invalid float literal", "is not a number"),
            ("invalid digit found in string", "is not a whole number"),
        ] {
            assert_eq!(wrong_number(why), words);
        }
    }

    #[test]
    fn plain_errors_are_lines_with_their_help() {
        let error = Error::unknown("backend", "cpuu", ["sim", "cpu"]);
        assert_eq!(
            render(&error, ErrorStyle::Plain),
            "error: unknown backend 'cpuu'\n  help: did you mean 'cpu'? valid: sim, cpu"
        );
    }

    #[test]
    fn a_second_trace_is_refused_with_the_ways_to_open_two() -> std::io::Result<()> {
        let dir = tempfile::tempdir()?;
        let rank = |name: &str| dir.path().join(name).display().to_string();
        let event = r#"[{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2}]"#;
        std::fs::write(rank("rank1.json"), event)?;
        std::fs::write(rank("sweep.toml"), "backend = \"sim\"\n")?;
        for word in [rank("rank1.json"), rank("")] {
            let error = another_trace(&word).expect("a trace");
            let help = error.help().expect("help").to_string();
            assert!(error.to_string().contains(&word), "{error}");
            assert!(
                help.contains("pass the directory") && help.contains("ladderscope diff A"),
                "{help}"
            );
        }
        for other in [rank("sweep.toml"), rank("none.json"), "--stpe".into()] {
            assert!(another_trace(&other).is_none(), "{other}");
        }
        Ok(())
    }

    #[test]
    fn an_error_in_a_file_shows_file_line_and_column() {
        let error = Error::At {
            message: "unknown key 'tpp'".into(),
            help: Some("did you mean 'tp'?".into()),
            source_code: miette::NamedSource::new("a.toml", "[grid]\ntpp = [1]\n".to_owned()),
            span: (7, 3).into(),
        };
        for style in [ErrorStyle::Plain, ErrorStyle::Graphical] {
            let text = render(&error, style);
            for part in ["unknown key 'tpp'", "a.toml:2:1", "tpp = [1]", "did you mean 'tp'?"] {
                assert!(text.contains(part), "'{part}' is missing in\n{text}");
            }
        }
    }
}
