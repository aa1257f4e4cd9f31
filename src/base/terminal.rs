//! Terminal detection for escape sequences and color.

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
