//! State of screen 3: which stored runs are shown, and in which order. Computed when runs, filter or
//! order change, not when drawn.

use std::cmp::Ordering;
use std::sync::Arc;

use tui_input::Input;

use crate::store::{Metrics, Record};
use crate::tui::message::Snapshot;
use crate::tui::screens::experiments::state::value;
use crate::tui::state::List;

/// Columns of the table; their titles say what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Column {
    #[default]
    Run,
    Status,
    Architecture,
    Model,
    Tp,
    Batch,
    P2p,
    Provenance,
    Tpot,
    TokensPerS,
    PerGpu,
    Overlap,
}

impl Column {
    /// In the table's order.
    pub const ALL: [Self; 12] = [
        Self::Run,
        Self::Status,
        Self::Architecture,
        Self::Model,
        Self::Tp,
        Self::Batch,
        Self::P2p,
        Self::Provenance,
        Self::Tpot,
        Self::TokensPerS,
        Self::PerGpu,
        Self::Overlap,
    ];

    fn shifted(self, by: usize) -> Self {
        Self::ALL[(self as usize + by) % Self::ALL.len()]
    }

    /// Ascending order in this column; runs without a number come last, whichever way it is read.
    fn compare(self, a: &Record, b: &Record, ascending: bool) -> Ordering {
        let directed = |order: Ordering| if ascending { order } else { order.reverse() };
        if let Some((x, y)) = self.number(a).zip(self.number(b)) {
            return match (x, y) {
                (Some(x), Some(y)) => directed(x.total_cmp(&y)),
                (x, y) => y.is_some().cmp(&x.is_some()),
            };
        }
        directed(match self {
            Self::Status => a.status.cmp(&b.status),
            Self::Architecture => a.spec.architecture.cmp(&b.spec.architecture),
            Self::Model => a.spec.model.cmp(&b.spec.model),
            Self::Tp => a.spec.tp.cmp(&b.spec.tp),
            Self::Batch => a.spec.batch.cmp(&b.spec.batch),
            Self::P2p => a.spec.p2p.cmp(&b.spec.p2p),
            Self::Provenance => a.provenance.cmp(&b.provenance),
            _ => Ordering::Equal,
        })
    }

    /// In a column of results: the run's, if it has one.
    fn number(self, record: &Record) -> Option<Option<f64>> {
        let metric = |f: fn(&Metrics) -> f64| Some(record.metrics.as_ref().map(f));
        match self {
            Self::Tpot => metric(|m| m.tpot_ms.p50),
            Self::TokensPerS => metric(|m| m.tokens_per_s),
            Self::PerGpu => metric(|m| m.tokens_per_s_per_gpu),
            Self::Overlap => Some(record.overlap.and_then(|o| o.overlap_pct)),
            _ => None,
        }
    }
}

/// State of the runs screen.
#[derive(Debug, Default)]
pub struct Runs {
    /// Indices into the snapshot's records, as shown.
    pub order: Vec<usize>,
    /// The selection.
    pub list: List,
    /// The column that decides the order; `Run` means the order of their creation.
    pub sort: Column,
    /// Ascending, or oldest first; at first it is newest first.
    pub ascending: bool,
    /// The filter's text.
    pub filter: Input,
    /// Whether keys go to the filter.
    pub typing: bool,
    /// Whether the details of the selected run are shown.
    pub detail: bool,
}

impl Runs {
    /// The selected run.
    pub fn selected<'a>(&self, snapshot: Option<&'a Arc<Snapshot>>) -> Option<&'a Record> {
        snapshot?.records.get(*self.order.get(self.list.selected)?)
    }

    /// Chooses and orders anew; the selection stays on its run where that is still shown.
    pub fn arrange(&mut self, snapshot: Option<&Snapshot>) {
        let selected = self.order.get(self.list.selected).copied();
        let records = snapshot.map_or(&[][..], |s| &s.records);
        let filter = Filter::parse(self.filter.value());
        self.order = (0..records.len()).filter(|i| filter.accepts(&records[*i])).collect();
        // stable, so equal runs stay in the order of their creation
        self.order.sort_by(|a, b| self.sort.compare(&records[*a], &records[*b], self.ascending));
        if self.sort == Column::Run && !self.ascending {
            self.order.reverse();
        }
        let at = selected.and_then(|s| self.order.iter().position(|i| *i == s));
        self.list.selected = at.unwrap_or(0);
    }

    /// Sorts by another column.
    pub fn sort_by_next(&mut self, backwards: bool) {
        let last = Column::ALL.len() - 1;
        self.sort = self.sort.shifted(if backwards { last } else { 1 });
    }
}

/// A filter: all of its words must be in a run; `key=value` asks for exactly this value.
#[derive(Debug)]
struct Filter {
    words: Vec<String>,
    pairs: Vec<(String, String)>,
}

impl Filter {
    fn parse(text: &str) -> Self {
        let mut filter = Self { words: Vec::new(), pairs: Vec::new() };
        for word in text.to_lowercase().split_whitespace() {
            match word.split_once('=') {
                Some((key, value)) if !key.is_empty() => filter.pairs.push((key.into(), value.into())),
                _ => filter.words.push(word.into()),
            }
        }
        filter
    }

    fn accepts(&self, record: &Record) -> bool {
        self.pairs.iter().all(|(key, value)| {
            // while a value is being typed, nothing behind `=` yet must not empty the table
            value.is_empty() || field(record, key).to_lowercase() == *value
        }) && (self.words.is_empty() || {
            let text = text(record).to_lowercase();
            self.words.iter().all(|word| text.contains(word.as_str()))
        })
    }
}

/// A run's value under a key of its record or spec.
fn field(record: &Record, key: &str) -> String {
    match key {
        "run" => record.run.clone(),
        "status" => record.status.as_str().into(),
        "provenance" => record.provenance.as_str().into(),
        "experiment" => record.experiment.clone().unwrap_or_default(),
        "round" => record.round.to_string(),
        _ => {
            let upper = key.to_uppercase();
            let name = record.spec.env.keys().find(|name| name.to_uppercase() == upper);
            value(&record.spec, name.map_or(key, String::as_str))
        }
    }
}

/// Everything of a run that words are looked for in.
fn text(record: &Record) -> String {
    const KEYS: [&str; 17] = [
        "run",
        "status",
        "provenance",
        "experiment",
        "architecture",
        "model",
        "dtype",
        "tp",
        "batch",
        "p2p",
        "backend",
        "link",
        "hardware",
        "stack",
        "collective",
        "prompt_tokens",
        "output_tokens",
    ];
    let mut text = String::new();
    for key in KEYS {
        text.push_str(&field(record, key));
        text.push('\n');
    }
    for (name, value) in &record.spec.env {
        text.push_str(&format!("{name}={value}\n"));
    }
    text.push_str(record.reason.as_deref().unwrap_or_default());
    text
}
