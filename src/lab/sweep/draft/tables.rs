//! Parses the tables of an experiment file key by key, and reports unknown keys with their position.

use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::values::{decimal, entries, variable_name, wrong_kind};
use super::{Name, Reader};
use crate::sweep::quality::{Adapt, CONTEXT, Evaluate, Text};
use base::error::Result;
use table::options::{self, OPTIONS};

const TABLES: [&str; 8] = ["model", "workload", "grid", "links", "env", "set", "evaluate", "adapt"];

fn names() -> impl Iterator<Item = &'static str> {
    OPTIONS.iter().map(|option| option.name)
}

impl Reader<'_> {
    pub(super) fn file(&mut self, table: &DeTable<'_>) -> Result<()> {
        for (key, value) in entries(table) {
            let name = key.get_ref().as_ref();
            match (name, value.get_ref().as_table()) {
                ("model", Some(table)) => self.model(key, value, table)?,
                ("workload", Some(table)) => self.workload(table)?,
                ("grid", Some(table)) => self.grid(table)?,
                ("links", Some(table)) => {
                    self.draft.links = key.span();
                    self.links(table)?;
                }
                ("env" | "set", Some(table)) => self.variables(name, table)?,
                ("evaluate", Some(table)) => self.evaluate(table)?,
                ("adapt", Some(table)) => self.adapt(key.span(), table)?,
                ("question", None) => {
                    self.draft.question = Some(self.string(name, value)?.to_owned());
                }
                ("rounds", None) => self.rounds(value)?,
                ("workload" | "grid" | "links" | "env" | "set" | "evaluate" | "adapt", None) => {
                    let kind = value.get_ref().type_str();
                    return Err(self.source.error(
                        value.span(),
                        format!("'{name}' is a table, and this is a {kind}"),
                        Some(format!("write a section [{name}]")),
                    ));
                }
                _ => match options::option(name) {
                    Some(option) => self.setting(Name::Option(option.name), key.span(), value)?,
                    None => {
                        let mut valid = vec!["question", "rounds"];
                        valid.extend(TABLES);
                        valid.extend(names().filter(|name| *name != "model"));
                        let what = if value.get_ref().is_table() { "table" } else { "key" };
                        return Err(self.source.unknown(key.span(), what, name, &valid));
                    }
                },
            }
        }
        Ok(())
    }

    /// Parses `[model]`: a name or a path.
    fn model(
        &mut self,
        key: &Spanned<std::borrow::Cow<'_, str>>,
        whole: &Spanned<DeValue<'_>>,
        table: &DeTable<'_>,
    ) -> Result<()> {
        for (key, value) in entries(table) {
            match key.get_ref().as_ref() {
                "name" => self.setting(Name::Option("model"), key.span(), value)?,
                "path" => {
                    let dir = self.beside(self.string("path", value)?);
                    if !Path::new(&dir).is_dir() {
                        let message = format!("model path '{dir}' is not a directory");
                        let help = "a relative path starts at the experiment file's directory";
                        return Err(self.source.error(value.span(), message, Some(help.into())));
                    }
                    self.checked(&Name::Option("model"), &dir, value.span())?;
                    self.add_setting(Name::Option("model"), key.span(), (dir, value.span()))?;
                }
                other => {
                    return Err(self.source.unknown(
                        key.span(),
                        "key in [model]",
                        other,
                        &["name", "path"],
                    ));
                }
            }
        }
        if table.is_empty() {
            let at = if whole.span().is_empty() { key.span() } else { whole.span() };
            return Err(self.source.error(at, "[model] is empty", Some("write name or path".into())));
        }
        Ok(())
    }

    fn workload(&mut self, table: &DeTable<'_>) -> Result<()> {
        for (key, value) in entries(table) {
            let name = key.get_ref().as_ref();
            match options::option(name) {
                _ if name == "rounds" => self.rounds(value)?,
                Some(option) => self.setting(Name::Option(option.name), key.span(), value)?,
                None => {
                    let mut valid = vec!["rounds"];
                    valid.extend(names());
                    return Err(self.source.unknown(key.span(), "key in [workload]", name, &valid));
                }
            }
        }
        Ok(())
    }

    fn grid(&mut self, table: &DeTable<'_>) -> Result<()> {
        for (key, value) in entries(table) {
            let name = key.get_ref().as_ref();
            let prefixed = name.split_once('.').filter(|(start, _)| matches!(*start, "env" | "set"));
            match (name, value.get_ref(), prefixed) {
                ("env" | "set", DeValue::Table(variables), _) => self.variables(name, variables)?,
                (_, _, Some((start, variable))) => {
                    let variable = variable_name(start, variable.to_owned());
                    self.axis(variable, key.span(), value)?;
                }
                ("rounds", ..) => {
                    let message = "rounds is not an axis: all cells run the same number of rounds";
                    return Err(self.source.error(
                        key.span(),
                        message,
                        Some("write it in [workload]".into()),
                    ));
                }
                _ => match options::option(name) {
                    Some(option) => self.axis(Name::Option(option.name), key.span(), value)?,
                    None => {
                        let mut valid: Vec<&str> = names().collect();
                        valid.extend(["env.NAME", "set.KEY"]);
                        return Err(self.source.unknown(key.span(), "axis in [grid]", name, &valid));
                    }
                },
            }
        }
        Ok(())
    }

    fn links(&mut self, table: &DeTable<'_>) -> Result<()> {
        for (key, value) in entries(table) {
            let place = match key.get_ref().as_ref() {
                "on" => &mut self.draft.on,
                "off" => &mut self.draft.off,
                other => {
                    return Err(self.source.unknown(
                        key.span(),
                        "key in [links]",
                        other,
                        &["on", "off"],
                    ));
                }
            };
            let Some(text) = value.get_ref().as_str() else {
                return Err(wrong_kind(&self.source, "a link", "a string", value));
            };
            *place = Some(text.parse().map_err(|e| self.source.blame(value.span(), e))?);
        }
        Ok(())
    }

    /// Parses `[evaluate]`: a text (the built-in one by default) and its division into windows.
    fn evaluate(&mut self, table: &DeTable<'_>) -> Result<()> {
        let mut evaluate = Evaluate { text: Text::Own, context: CONTEXT, limit: None };
        for (key, value) in entries(table) {
            match key.get_ref().as_ref() {
                name @ ("text" | "tokens_file") => {
                    evaluate.text = self.text(name, &evaluate.text, key.span(), value)?;
                }
                "context" => evaluate.context = self.whole("context", value, 2)?,
                "tokens" => evaluate.limit = Some(self.whole("tokens", value, 1)?),
                other => {
                    let valid = ["text", "tokens_file", "context", "tokens"];
                    return Err(self.source.unknown(key.span(), "key in [evaluate]", other, &valid));
                }
            }
        }
        if let Some(limit) = evaluate.limit.filter(|limit| *limit < evaluate.context) {
            let (key, _) = entries(table).into_iter().find(|(key, _)| key.get_ref() == "tokens").unzip();
            let message = format!("tokens is {limit}, and a window has {} (context)", evaluate.context);
            let at = key.map_or(0..0, Spanned::span);
            return Err(self.source.error(
                at,
                message,
                Some("use more tokens, or a smaller context".into()),
            ));
        }
        self.draft.evaluate = Some(evaluate);
        Ok(())
    }

    /// Resolves a text given by `text` or `tokens_file`; only one may be set.
    fn text(
        &self,
        name: &str,
        known: &Text,
        at: Range<usize>,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<Text> {
        if *known != Text::Own {
            let message = "text and tokens_file are both set";
            return Err(self.source.error(at, message, Some("remove one".into())));
        }
        let path = PathBuf::from(self.beside(self.string(name, value)?));
        if !path.is_file() {
            let message = format!("{name} '{}' is not a file", path.display());
            let help = "a relative path starts at the experiment file's directory";
            return Err(self.source.error(value.span(), message, Some(help.into())));
        }
        Ok(if name == "text" { Text::Words(path) } else { Text::Ids(path) })
    }

    /// Parses `[adapt]`: training of the cells' models.
    fn adapt(&mut self, at: Range<usize>, table: &DeTable<'_>) -> Result<()> {
        let (mut steps, mut adapt) = (
            None,
            Adapt {
                text: Text::Own,
                limit: None,
                steps: 0,
                batch: 8,
                context: 256,
                lr: None,
                distil: None,
                all_layers: false,
                seeds: vec![0],
            },
        );
        for (key, value) in entries(table) {
            match key.get_ref().as_ref() {
                name @ ("text" | "tokens_file") => {
                    adapt.text = self.text(name, &adapt.text, key.span(), value)?;
                }
                "tokens" => adapt.limit = Some(self.whole("tokens", value, 1)?),
                "steps" => steps = Some(self.whole("steps", value, 1)? as u32),
                "batch" => adapt.batch = self.whole("batch", value, 1)? as u32,
                "context" => adapt.context = self.whole("context", value, 2)? as u32,
                "lr" => adapt.lr = Some(self.positive("lr", value)?),
                "distil" => adapt.distil = Some(self.positive("distil", value)?),
                "layers" => {
                    adapt.all_layers = match self.string("layers", value)? {
                        "all" => true,
                        "converted" => false,
                        other => {
                            let valid = ["all", "converted"];
                            return Err(self.source.unknown(value.span(), "layers", other, &valid));
                        }
                    };
                }
                "seeds" => {
                    adapt.seeds = match value.get_ref().as_array() {
                        Some(all) if !all.is_empty() => {
                            let all = all.iter().map(|seed| Ok(self.whole("seeds", seed, 0)? as u64));
                            all.collect::<Result<_>>()?
                        }
                        _ => return Err(wrong_kind(&self.source, "seeds", "a list of numbers", value)),
                    };
                }
                other => {
                    let valid = [
                        "text",
                        "tokens_file",
                        "tokens",
                        "steps",
                        "batch",
                        "context",
                        "lr",
                        "distil",
                        "layers",
                        "seeds",
                    ];
                    return Err(self.source.unknown(key.span(), "key in [adapt]", other, &valid));
                }
            }
        }
        let Some(steps) = steps else {
            let help = "add steps, for example steps = 200";
            return Err(self.source.error(at, "[adapt] has no number of steps", Some(help.into())));
        };
        self.draft.adapt = Some(Adapt { steps, ..adapt });
        Ok(())
    }

    fn positive(&self, name: &str, value: &Spanned<DeValue<'_>>) -> Result<f64> {
        let text = match value.get_ref() {
            DeValue::Float(number) => number.as_str().to_owned(),
            DeValue::Integer(number) => decimal(number),
            _ => return Err(wrong_kind(&self.source, name, "a number", value)),
        };
        let number = text.replace('_', "").parse().ok().filter(|n: &f64| n.is_finite() && *n > 0.0);
        number.ok_or_else(|| {
            self.source.error(
                value.span(),
                format!("{name} is {text}; it must be a number above 0"),
                None,
            )
        })
    }
}
