//! Terminals, and who may write escape sequences to them.

/// The value of a variable; `None` where it is empty, too.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// True if the terminal understands escape sequences: `TERM` names one that is not `dumb`.
pub fn takes_escapes() -> bool {
    variable("TERM").is_some_and(|term| term != "dumb")
}

/// True if output is coloured: not with `NO_COLOR`, always with `CLICOLOR_FORCE`, else on a terminal that understands
/// colours.
pub fn is_coloured(is_terminal: bool) -> bool {
    let forced = variable("CLICOLOR_FORCE").is_some_and(|force| force != "0");
    variable("NO_COLOR").is_none() && (forced || (is_terminal && takes_escapes()))
}
