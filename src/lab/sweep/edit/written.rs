//! Formats names and values in TOML.

use table::options::{Kind, option};

/// Table of an entry (`None` for the top of the file) and its key there.
pub(super) fn table_of(name: &str, axis: bool) -> (Option<&str>, String) {
    if let Some((table @ ("env" | "set" | "links"), rest)) = name.split_once('.') {
        return (Some(table), key(rest));
    }
    match name {
        "model" if !axis => (Some("model"), "name".to_owned()),
        _ if axis => (Some("grid"), key(name)),
        "rounds" => (Some("workload"), key(name)),
        _ if option(name).is_some_and(|option| option.about.in_workload) => {
            (Some("workload"), key(name))
        }
        _ => (None, key(name)),
    }
}

/// Formats a TOML key, quoted unless it is a bare key.
fn key(name: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.chars().all(bare) { name.to_owned() } else { quoted(name) }
}

fn quoted(text: &str) -> String {
    toml_edit::Value::from(text).to_string()
}

/// Formats a TOML value. Bare are flags, whole numbers for numeric options, and numbers of variables unless their
/// other values are strings. Everything else is quoted.
pub(super) fn written(name: &str, value: &str, others_quoted: bool) -> String {
    let variable = name.starts_with("env.") || name.starts_with("set.");
    let kind = option(name).map(|option| option.kind);
    let numeric = name == "rounds" || matches!(kind, Some(Kind::Count | Kind::Large));
    if kind == Some(Kind::Flag) && matches!(value, "true" | "false") {
        return value.to_owned();
    }
    let whole = value.parse::<i64>().is_ok_and(|number| number.to_string() == value);
    let fraction = variable && is_plain_decimal(value);
    if (numeric && whole) || (variable && !others_quoted && (whole || fraction)) {
        return value.to_owned();
    }
    quoted(value)
}

/// True for `digits.digits`, which TOML preserves exactly.
fn is_plain_decimal(value: &str) -> bool {
    let unsigned = value.strip_prefix('-').unwrap_or(value);
    let whole = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    unsigned.split_once('.').is_some_and(|(before, after)| {
        whole(before) && whole(after) && (before == "0" || !before.starts_with('0'))
    })
}

pub(super) fn list(name: &str, values: &[String]) -> String {
    let strings = values.iter().any(|value| written(name, value, false).starts_with('"'));
    let values: Vec<String> = values.iter().map(|value| written(name, value, strings)).collect();
    format!("[{}]", values.join(", "))
}
