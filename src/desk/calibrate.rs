//! Writes calibrated values into copies of the profile's and the stack's TOML files, keeping their comments: constants of
//! a fit, and links of measured all-reduces.

use std::path::{Path, PathBuf};

use toml_edit::{DocumentMut, InlineTable, Item, Table as TomlTable, TableLike, Value};

use base::atomic;
use base::error::{Error, Result};
use base::input::InputKind;
use machine::hardware::{Profile, Stack, Target};
use study::calibrate::{Fit, FittedConstant, MeasuredLink, MeasuredLinks};

/// Writes the stack and the profile with the fitted constants into a directory. `hardware` and `stack` are the names or
/// files that the fit started from. Returns the paths.
pub fn write_fit(fit: &Fit, hardware: &str, stack: &str, into: &Path) -> Result<[PathBuf; 2]> {
    std::fs::create_dir_all(into).map_err(Error::io(into))?;
    let mut stack_file = open_document(stack, Stack::built_in_text(stack), InputKind::STACK)?;
    let mut profile_file = open_profile(hardware)?;
    let Target { profile, stack } = &fit.target;
    for FittedConstant { parameter, value, .. } in &fit.constants {
        // these constants determine all rows of the link, written below
        if parameter.is_host_link() {
            continue;
        }
        let file = if parameter.is_of_profile() { &mut profile_file } else { &mut stack_file };
        set_number(file, parameter.key, *value)?;
    }
    if fit.constants.iter().any(|constant| constant.parameter.is_host_link()) {
        for (tp, point) in &profile.link.p2p_off.tp {
            let mut set = |name: &str, value: f64| {
                set_number(&mut profile_file, &format!("link.p2p_off.tp.{tp}.{name}"), value)
            };
            set("alpha_us", point.alpha_us)?;
            set("gb_s", point.gb_s)?;
            if let Some(large) = point.large {
                set("large.alpha_us", large.alpha_us)?;
                set("large.gb_s", large.gb_s)?;
            }
        }
    }
    Ok([save(into, &stack.name, &stack_file)?, save(into, &profile.name, &profile_file)?])
}

/// Writes a profile with all these links, measured against the same one. Returns its path.
pub fn write_links(links: &[MeasuredLinks], into: &Path) -> Result<PathBuf> {
    let first = links.first().ok_or_else(|| Error::failed("no link was measured"))?;
    std::fs::create_dir_all(into).map_err(Error::io(into))?;
    let mut file = open_profile(&first.hardware)?;
    links.iter().try_for_each(|links| put_links(links, &mut file))?;
    let path = save(into, &first.after.name, &file)?;
    // reads the file back to detect errors now
    Profile::load(&path.display().to_string())?;
    Ok(path)
}

fn open_profile(name_or_file: &str) -> Result<DocumentMut> {
    open_document(name_or_file, Profile::built_in_text(name_or_file), InputKind::HARDWARE)
}

/// Text of a built-in profile or stack, or of a file of this kind, with comments.
fn open_document(name_or_file: &str, built_in: Option<&str>, kind: InputKind) -> Result<DocumentMut> {
    let text = match built_in {
        Some(text) => text.to_owned(),
        None => kind.text(Path::new(name_or_file))?,
    };
    text.parse().map_err(|error| Error::failed(format!("{name_or_file}: {error}")))
}

fn save(into: &Path, name: &str, file: &DocumentMut) -> Result<PathBuf> {
    let path = into.join(format!("{name}.toml"));
    atomic::write(&path, file.to_string().as_bytes())?;
    Ok(path)
}

/// Puts the measured links into the profile's file.
fn put_links(links: &MeasuredLinks, file: &mut DocumentMut) -> Result<()> {
    let setting = format!("link.p2p_{}", links.p2p.as_str());
    let after = links.table_after();
    let rows = table_at(file, &format!("{setting}.tp"))?;
    let written: Vec<String> = rows.iter().map(|(tp, _)| tp.to_owned()).collect();
    let stays = |tp: &String| tp.parse().is_ok_and(|tp: u32| after.tp.contains_key(&tp));
    for tp in written.into_iter().filter(|tp| !stays(tp)) {
        rows.remove(&tp);
    }
    if after.extrapolate {
        table_at(file, &setting)?.insert("extrapolate", toml_edit::value(true));
    }
    for measured in &links.links {
        let source = source(measured, &setting, &links.before.name);
        put_link(measured, file, &setting, &source)?;
        if let Some(sources) = file.get_mut("sources").and_then(Item::as_array_mut) {
            sources.push(source);
        }
    }
    Ok(())
}

/// Replaces the row of a TP, because its old values described another machine.
fn put_link(measured: &MeasuredLink, file: &mut DocumentMut, setting: &str, source: &str) -> Result<()> {
    let MeasuredLink { test, link, .. } = measured;
    let rows = table_at(file, &format!("{setting}.tp"))?;
    let row = rows.entry(&test.ranks.to_string()).or_insert(Item::Table(TomlTable::new()));
    let row = row.as_table_like_mut().ok_or_else(|| not_a_table(setting))?;
    for key in ["large", "note", "measured_bytes", "points"] {
        row.remove(key);
    }
    if !link.points.is_empty() {
        row.insert("points", Item::Value(points_value(&link.points)?));
    }
    if let Some((least, most)) = link.measured_bytes {
        row.insert("measured_bytes", Item::Value(value_of(&format!("[{least}, {most}]"))?));
    }
    row.insert("note", Item::Value(source.into()));
    let key = |name: &str| format!("{setting}.tp.{}.{name}", test.ranks);
    set_number(file, &key("alpha_us"), link.alpha_us)?;
    set_number(file, &key("gb_s"), link.gb_s)
}

/// TOML list of message sizes and latencies, six to a line.
fn points_value(points: &[(u64, f64)]) -> Result<Value> {
    let points: Vec<String> =
        points.iter().map(|(bytes, us)| format!("[{bytes}, {}]", rounded(*us))).collect();
    let lines: Vec<String> =
        points.chunks(6).map(|line| format!("    {},\n", line.join(", "))).collect();
    value_of(&format!("[\n{}]", lines.concat()))
}

fn value_of(text: &str) -> Result<Value> {
    text.parse().map_err(|error| Error::failed(format!("measured points: {error}")))
}

/// Origin of a link: `link.p2p_on, TP 8: nccl-tests, eight.txt, NCCL 2.28.8, in CUDA graphs`, and the value kept from
/// the profile.
fn source(measured: &MeasuredLink, setting: &str, profile: &str) -> String {
    let MeasuredLink { file, test, kept, .. } = measured;
    let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy();
    let version = test.version.as_ref().map(|version| format!(", NCCL {version}")).unwrap_or_default();
    let graphs = match test.in_graph {
        Some(true) => ", in CUDA graphs",
        Some(false) => ", without CUDA graphs",
        None => "",
    };
    let kept = kept.map(|kept| format!("; {} from {profile}", kept.name)).unwrap_or_default();
    format!("{setting}, TP {}: {}, {name}{version}{graphs}{kept}", test.ranks, test.origin)
}

/// Rounds to four significant digits.
pub fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// Sets the number at a dotted path, keeping surrounding comments and blanks.
fn set_number(document: &mut DocumentMut, path: &str, value: f64) -> Result<()> {
    let (tables, key) = path.rsplit_once('.').unwrap_or(("", path));
    let table = table_at(document, tables)?;
    let mut number = Value::from(rounded(value));
    match table.get_mut(key) {
        // inserting would drop the comment above the key
        Some(item) => {
            if let Some(old) = item.as_value() {
                *number.decor_mut() = old.decor().clone();
            }
            *item = Item::Value(number);
        }
        None => drop(table.insert(key, Item::Value(number))),
    }
    Ok(())
}

/// Table at a dotted path; missing ones are added.
fn table_at<'a>(document: &'a mut DocumentMut, path: &str) -> Result<&'a mut dyn TableLike> {
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for key in path.split('.').filter(|key| !key.is_empty()) {
        let missing = || Item::Value(Value::InlineTable(InlineTable::new()));
        let item = table.entry(key).or_insert_with(missing);
        table = item.as_table_like_mut().ok_or_else(|| not_a_table(path))?;
    }
    Ok(table)
}

fn not_a_table(path: &str) -> Error {
    Error::failed(format!("{path} is not a table of the profile or stack"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_set_in_place_and_keep_their_comments() {
        let text = "# about\nlaunch_us = 2.0 # measured\n[link.p2p_on.tp.2]\nalpha_us = 9\n";
        let mut document: DocumentMut = text.parse().unwrap();
        set_number(&mut document, "launch_us", 2.671_28).unwrap();
        set_number(&mut document, "link.p2p_on.tp.2.alpha_us", 12.0).unwrap();
        set_number(&mut document, "link.p2p_on.tp.2.large.gb_s", 5.0).unwrap();
        assert_eq!(
            document.to_string(),
            "# about\nlaunch_us = 2.671 # measured\n[link.p2p_on.tp.2]\nalpha_us = 12.0\nlarge = { gb_s = 5.0 }\n"
        );
    }

    #[test]
    fn a_value_in_place_of_a_table_is_an_error() {
        let mut document: DocumentMut = "link = 3\n".parse().unwrap();
        let error = set_number(&mut document, "link.p2p_on.tp.2.alpha_us", 1.0).unwrap_err();
        assert!(error.to_string().contains("is not a table"), "{error}");
    }
}
