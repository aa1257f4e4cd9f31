//! Completion of argument values, by the value name in the argument's help.

use std::path::Path;

use clap::Arg;

use super::complete::{Typed, is_path};
use crate::desk::{experiments, offers};
use crate::face::tui;
use base::offer::{Completion, Offer, complete_word, fitting};
use lab::store::{Annotations, Store};
use study::analysis::RunTable;
use study::analysis::filter::complete;
use study::calibrate::PARAMETERS;
use table::options::OPTIONS;
use table::{MEASURES, Provenance, Status};

const MOST: usize = 200;

const RUNS: usize = 50;

pub fn values(argument: &Arg, typed: &Typed<'_>) -> Completion {
    let name = argument.get_value_names().and_then(|names| names.first());
    let name = name.map_or("", |name| name.as_str());
    let possible: Vec<Offer> = argument
        .get_possible_values()
        .iter()
        .map(|value| {
            Offer::new(value.get_name(), value.get_help().map(ToString::to_string).unwrap_or_default())
        })
        .collect();
    let option = OPTIONS.iter().find(|option| argument.get_long() == Some(option.flag));
    let one = |offers: Vec<Offer>| Completion {
        replaces: 0..typed.value.len(),
        offers: fitting(offers, typed.value, MOST),
    };
    let several = |offers: Vec<Offer>| complete_word(typed.value, typed.value.len(), &offers, MOST);
    match name {
        // names of columns and models also contain slashes
        "FILTER" => filter(typed),
        "COLUMN,..." | "COLUMN[:desc],..." => several(columns()),
        _ if is_path(typed.value) => Completion::default(),
        _ if option.is_some() => {
            let offers = option.map(offers::values).unwrap_or_default();
            if typed.value.contains(',') { several(offers) } else { one(offers) }
        }
        _ if !possible.is_empty() => one(possible),
        "KEY=VALUE" => pair(argument, typed),
        "AXIS" if typed.verbs.contains(&"compare") => one(options()),
        "AXIS" => one(axes()),
        "RUN" | "RUNS|DIR" | "RUN|TRACE" | "BENEATH" => one(runs(&typed.dir)),
        "FILE.toml" => one(experiments::names(Path::new(experiments::DIRECTORY))),
        "MEASURE" => one(measures()),
        "BASELINE" | "VALUE|BASELINE" => one(baselines(&typed.dir)),
        "TAG" | "TAGS" => several(tags(&typed.dir)),
        "STATUS" => one(Status::ALL.map(|status| Offer::new(status.as_str(), "")).into()),
        "RULES" => one(["default", "nccl-name", "hta"].map(|name| Offer::new(name, "")).into()),
        "THEME" => one(tui::theme_names().map(|name| Offer::new(name, "")).collect()),
        "published|FILE" => one(vec![Offer::new("published", "the 70B points of arXiv 2501.06589")]),
        "KEY,..." => several(PARAMETERS.iter().map(|p| Offer::new(p.key, "")).collect()),
        "on|off" => one(["on", "off"].map(|word| Offer::new(word, "")).into()),
        "NAME" | "NAME|FILE" if typed.verbs.contains(&"hardware") => {
            one(["hardware", "stack"].into_iter().flat_map(offers::axis_values).collect())
        }
        _ => Completion::default(),
    }
}

/// Newest runs and batches by id. Reads only file names.
fn runs(dir: &Path) -> Vec<Offer> {
    let ids = Store::open(dir).ids().unwrap_or_default();
    let last = (!ids.is_empty()).then(|| Offer::new("last", "the newest run that has ended"));
    last.into_iter().chain(ids.into_iter().take(RUNS).map(|id| Offer::new(id, ""))).collect()
}

fn baselines(dir: &Path) -> Vec<Offer> {
    let names = Store::open(dir).baseline_names().unwrap_or_default();
    names.into_iter().map(|name| Offer::new(name, "")).collect()
}

fn tags(dir: &Path) -> Vec<Offer> {
    let annotations = Store::open(dir).annotations();
    let tag = |(tag, count): (&str, usize)| Offer::new(tag, base::text::counted(count, "run"));
    annotations.tags().into_iter().map(tag).collect()
}

fn options() -> Vec<Offer> {
    OPTIONS.iter().map(|option| Offer::new(option.name, option.help())).collect()
}

fn measures() -> Vec<Offer> {
    let measure = |measure: &table::Measure| {
        Offer::new(measure.aliases.first().copied().unwrap_or(measure.name), measure.title)
    };
    MEASURES.iter().map(measure).collect()
}

fn axes() -> Vec<Offer> {
    let named = ["completion", "tpot", "ttft", "user", "per-gpu", "total"];
    named.map(|name| Offer::new(name, "")).into_iter().chain(measures()).collect()
}

fn columns() -> Vec<Offer> {
    let table = RunTable::new(&[], &Annotations::default());
    let column =
        |column: &study::analysis::Column| Offer::new(column.field.short(), column.field.title.clone());
    table.shown().map(column).collect()
}

/// Completes a field of the filter language or a value of the field's option. Reads no runs.
fn filter(typed: &Typed<'_>) -> Completion {
    let table = RunTable::new(&[], &Annotations::default());
    let found = complete(typed.value, typed.value.len(), &table, MOST);
    if !found.offers.is_empty() {
        return found;
    }
    let start = found.replaces.start;
    let field = typed.value[..start].trim_end_matches([':', '=', '!', '~']);
    let field = field.rsplit([' ', '-']).next().unwrap_or(field);
    // completes the last alternative
    let name = field.split([':', '=']).next().and_then(|name| table.find(name));
    let name = name.and_then(|at| table.columns().get(at)).map(|column| column.field.name.to_string());
    let known: Vec<Offer> = match name.as_deref() {
        Some("experiment") => experiments::names(Path::new(experiments::DIRECTORY)),
        Some("status") => Status::ALL.map(|status| Offer::new(status.as_str(), "")).into(),
        Some("tags") => tags(&typed.dir),
        Some("provenance") => Provenance::ALL.map(|one| Offer::new(one.as_str(), "")).into(),
        Some(name) => offers::axis_values(name),
        None => Vec::new(),
    };
    let offers = fitting(known, &typed.value[start..], MOST);
    Completion { replaces: start..typed.value.len(), offers }
}

/// Completes `KEY=VALUE`: NCCL variables, or values of the hardware profile or stack.
fn pair(argument: &Arg, typed: &Typed<'_>) -> Completion {
    let of = if argument.get_long() == Some("env") { "env" } else { "set" };
    if let Some((key, value)) = typed.value.split_once('=') {
        let values = offers::axis_values(&format!("{of}.{key}"));
        let start = typed.value.len() - value.len();
        return Completion { replaces: start..typed.value.len(), offers: fitting(values, value, MOST) };
    }
    let names = offers::pairs(of).into_iter();
    let names = names.map(|name| Offer::new(format!("{}=", name.text), name.about));
    Completion { replaces: 0..typed.value.len(), offers: fitting(names, typed.value, MOST) }
}
