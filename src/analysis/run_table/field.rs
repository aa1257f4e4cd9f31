//! What a run can be asked for: the columns of tables of runs, their names on the command line, in files
//! and in filters, and how each is read from a record.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::analysis::metrics::host;
use crate::store::{Metrics, Overlap, Record, Split};

/// What a column's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Text.
    Text,
    /// Words, separated by blanks.
    Words,
    /// A whole number.
    Count,
    /// Milliseconds.
    Ms,
    /// Bytes.
    Bytes,
    /// Percent.
    Percent,
    /// A ratio, shown as percent.
    Share,
    /// A ratio, as it is.
    Factor,
    /// Tokens a second.
    Rate,
}

impl Unit {
    /// Whether values are numbers.
    pub fn is_number(self) -> bool {
        !matches!(self, Self::Text | Self::Words)
    }
}

/// Whether words of a filter are looked for in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::analysis) enum Search {
    /// They are not.
    Never,
    /// As they stand.
    Words,
    /// Also by their letters in order.
    Letters,
}

/// How a value is had.
#[derive(Clone, Copy)]
pub(super) enum Source {
    Text(fn(&Record) -> Option<Cow<'_, str>>),
    Number(fn(&Record) -> Option<f64>),
    Metric(fn(&Metrics) -> Option<f64>),
    Lane(fn(&Overlap) -> Option<f64>),
    Split(fn(&Split) -> f64),
    /// From the annotations.
    Tags,
    Note,
    /// From the run and those of `standard` and `upper-bound` that match it.
    HiddenShare,
    /// A variable of the environment or an override, by its name.
    Variable,
    Override,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Source")
    }
}

/// A column of tables of runs.
#[derive(Clone, Debug)]
pub struct Field {
    /// Its name in files and on the command line: the contract's key, with its unit.
    pub name: Cow<'static, str>,
    /// Shorter names for it, the shortest that is clear first.
    pub aliases: &'static [&'static str],
    /// The header of its column on screens.
    pub title: Cow<'static, str>,
    /// What its values are.
    pub unit: Unit,
    /// Whether words of a filter are looked for in it.
    pub(in crate::analysis) searched: Search,
    pub(super) source: Source,
}

impl Field {
    /// The name to type: the first alias, or the name.
    pub fn short(&self) -> &str {
        self.aliases.first().copied().unwrap_or(&self.name)
    }

    /// Whether it goes by this name.
    pub fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name) || self.aliases.iter().any(|a| a.eq_ignore_ascii_case(name))
    }

    pub(super) fn variable(name: &str) -> Self {
        Self::dynamic("env", name, Source::Variable)
    }

    pub(super) fn setting(name: &str) -> Self {
        Self::dynamic("set", name, Source::Override)
    }

    fn dynamic(prefix: &str, name: &str, source: Source) -> Self {
        Self {
            name: format!("{prefix}.{name}").into(),
            aliases: &[],
            title: name.to_owned().into(),
            unit: Unit::Text,
            searched: Search::Never,
            source,
        }
    }
}

fn of(
    name: &'static str,
    aliases: &'static [&'static str],
    title: &'static str,
    unit: Unit,
    searched: Search,
    source: Source,
) -> Field {
    Field { name: name.into(), aliases, title: title.into(), unit, searched, source }
}

fn text(
    name: &'static str,
    aliases: &'static [&'static str],
    searched: Search,
    get: fn(&Record) -> Option<Cow<'_, str>>,
) -> Field {
    of(name, aliases, name, Unit::Text, searched, Source::Text(get))
}

fn number(
    name: &'static str,
    aliases: &'static [&'static str],
    title: &'static str,
    unit: Unit,
    get: fn(&Record) -> Option<f64>,
) -> Field {
    of(name, aliases, title, unit, Search::Never, Source::Number(get))
}

/// The built-in columns, in the order of CSV files.
pub(super) fn built_in() -> Vec<Field> {
    use Search::{Letters, Never, Words};
    use Unit::{Bytes, Count, Factor, Ms, Percent, Rate, Share};
    vec![
        text("run", &["id"], Words, |r| Some(r.run.as_str().into())),
        text("status", &[], Letters, |r| Some(r.status.as_str().into())),
        text("provenance", &["prov"], Letters, |r| Some(r.provenance.as_str().into())),
        Field {
            title: "arch".into(),
            ..text("architecture", &["arch"], Letters, |r| Some(r.spec.architecture.to_string().into()))
        },
        text("model", &[], Letters, |r| Some(r.spec.model.as_str().into())),
        text("dtype", &[], Letters, |r| Some(r.spec.dtype.to_string().into())),
        number("tp", &[], "tp", Count, |r| Some(r.spec.tp.into())),
        number("batch", &["b"], "batch", Count, |r| Some(r.spec.batch.into())),
        number("prompt_tokens", &["prompt"], "prompt", Count, |r| Some(r.spec.prompt_tokens.into())),
        number("output_tokens", &["output"], "output", Count, |r| Some(r.spec.output_tokens.into())),
        text("p2p", &[], Never, |r| Some(r.spec.p2p.as_str().into())),
        text("backend", &[], Letters, |r| Some(r.spec.backend.as_str().into())),
        text("link", &[], Letters, |r| Some(r.spec.link.to_string().into())),
        text("hardware", &["hw"], Letters, |r| Some(r.spec.hardware.as_str().into())),
        text("stack", &[], Letters, |r| Some(r.spec.stack.as_str().into())),
        text("collective", &[], Letters, |r| Some(r.spec.collective.as_str().into())),
        number("samples", &[], "samples", Count, |r| r.metrics.as_ref().map(|m| m.samples.into())),
        number("round", &[], "round", Count, |r| Some(r.round.into())),
        metric("prefill_ms", &["ttft", "prefill"], "TTFT ms", Ms, |m| Some(m.prefill_ms)),
        metric("decode_ms", &["decode"], "decode ms", Ms, |m| Some(m.decode_ms)),
        metric("completion_ms", &["completion", "latency"], "compl. ms", Ms, |m| Some(m.completion_ms)),
        metric("tpot_p50_ms", &["tpot"], "TPOT ms", Ms, |m| Some(m.tpot_ms.p50)),
        metric("tpot_p90_ms", &["p90"], "p90 ms", Ms, |m| Some(m.tpot_ms.p90)),
        metric("tpot_p99_ms", &["p99"], "p99 ms", Ms, |m| Some(m.tpot_ms.p99)),
        metric("tpot_ci95_low_ms", &[], "TPOT low", Ms, |m| m.tpot_ms_ci95.map(|ci| ci[0])),
        metric("tpot_ci95_high_ms", &[], "TPOT high", Ms, |m| m.tpot_ms_ci95.map(|ci| ci[1])),
        metric("tokens_per_s", &["tok/s"], "tok/s", Rate, |m| Some(m.tokens_per_s)),
        metric("tokens_per_s_ci95_low", &[], "tok/s low", Rate, |m| m.tokens_per_s_ci95.map(|ci| ci[0])),
        metric("tokens_per_s_ci95_high", &[], "tok/s high", Rate, |m| {
            m.tokens_per_s_ci95.map(|ci| ci[1])
        }),
        metric("tokens_per_s_per_gpu", &["tok/s/gpu"], "tok/s/GPU", Rate, |m| {
            Some(m.tokens_per_s_per_gpu)
        }),
        metric("memory_bytes_per_rank", &["memory", "mem"], "memory", Bytes, |m| {
            Some(m.memory_bytes_per_rank as f64)
        }),
        lane("comm_ms", &["comm"], "comm ms", Ms, |o| Some(o.comm_ms)),
        lane("exposed_comm_ms", &["exposed"], "exposed ms", Ms, |o| Some(o.exposed_comm_ms)),
        lane("overlap_pct", &["overlap"], "overlap", Percent, |o| o.overlap_pct),
        lane("compute_ms", &["compute"], "compute ms", Ms, |o| Some(o.compute_ms)),
        lane("idle_ms", &["idle"], "idle ms", Ms, |o| Some(o.idle_ms)),
        number("overhead", &[], "overhead", Factor, |r| {
            r.instrumented.as_ref().and_then(|arm| arm.overhead)
        }),
        text("no_graph", &[], Letters, |r| Some(if r.spec.no_graph { "true" } else { "false" }.into())),
        number("seed", &[], "seed", Count, |r| Some(r.spec.seed as f64)),
        text("env", &[], Letters, |r| pairs(&r.spec.env)),
        text("set", &[], Letters, |r| pairs(&r.spec.set)),
        text("experiment", &["exp"], Letters, |r| r.experiment.as_deref().map(Cow::from)),
        text("created", &["date"], Never, |r| {
            Some(r.created.as_str().into()).filter(|c: &Cow<'_, str>| !c.is_empty())
        }),
        text("trace", &[], Never, |r| r.trace.as_deref().map(Cow::from)),
        text("reason", &["why"], Words, |r| r.reason.as_deref().map(Cow::from)),
        text("warnings", &[], Words, |r| (!r.warnings.is_empty()).then(|| r.warnings.join("; ").into())),
        of("hidden_share", &["hidden"], "hidden", Share, Never, Source::HiddenShare),
        split("transfer_ms", &["transfer"], "transfer", |s| s.transfer_ms),
        split("peer_wait_ms", &["peers"], "peers ms", |s| s.peer_wait_ms),
        split("contention_ms", &["contention"], "contention", |s| s.contention_ms),
        of("tags", &["tag"], "tags", Unit::Words, Letters, Source::Tags),
        of("note", &[], "note", Unit::Text, Words, Source::Note),
        // of simulations none: it does not matter to them
        text("host", &[], Letters, |r| host(r).map(Cow::from)),
        // `tp8 b16 p2p-on`: how labels elsewhere write these, so that it can be searched for
        text("cell", &[], Words, |r| {
            Some(format!("tp{} b{} p2p-{}", r.spec.tp, r.spec.batch, r.spec.p2p.as_str()).into())
        }),
    ]
}

fn metric(
    name: &'static str,
    aliases: &'static [&'static str],
    title: &'static str,
    unit: Unit,
    get: fn(&Metrics) -> Option<f64>,
) -> Field {
    of(name, aliases, title, unit, Search::Never, Source::Metric(get))
}

fn lane(
    name: &'static str,
    aliases: &'static [&'static str],
    title: &'static str,
    unit: Unit,
    get: fn(&Overlap) -> Option<f64>,
) -> Field {
    of(name, aliases, title, unit, Search::Never, Source::Lane(get))
}

fn split(
    name: &'static str,
    aliases: &'static [&'static str],
    title: &'static str,
    get: fn(&Split) -> f64,
) -> Field {
    of(name, aliases, title, Unit::Ms, Search::Never, Source::Split(get))
}

fn pairs(map: &BTreeMap<String, String>) -> Option<Cow<'_, str>> {
    let pair = |(key, value): (&String, &String)| format!("{key}={value}");
    (!map.is_empty()).then(|| map.iter().map(pair).collect::<Vec<_>>().join(" ").into())
}
