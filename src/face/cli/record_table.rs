//! Records as rows: a narrow table for people and all numbers for CSV; whole or streamed.

use std::sync::Arc;

use super::output::{self, OutputFormat, without_samples};
use crate::desk;
use base::error::Result;
use lab::store::Annotations;
use study::analysis::{RunTable, joined_labels, settings};
use table::options::{OptionEntry, option};
use table::render::{Shown, Table};
use table::{Measure, Record, measure};

/// Columns of the narrow table: names of options and measures, and combined columns. Tags and notes appear if there
/// are any.
const NARROW_COLUMNS: [&str; 21] = [
    "run",
    "status",
    "architecture",
    "setting|differs in",
    "tp",
    "batch",
    "p2p",
    "link",
    "model",
    "dtype",
    "tokens",
    "on",
    "completion_ms|completion ms",
    "tpot_p50_ms|TPOT ms",
    "tokens_per_s|tok/s",
    "tokens_per_s_per_gpu|tok/s/GPU",
    "overlap_pct|overlap %",
    "!provenance",
    "tags",
    "~note",
    "~why",
];

/// Columns that a narrow terminal drops, from the last to the first.
const DROPPED_COLUMNS: [&str; 14] = [
    "TPOT ms",
    "tok/s",
    "p2p",
    "model",
    "status",
    "overlap %",
    "note",
    "why",
    "on",
    "completion ms",
    "tok/s/GPU",
    "link",
    "tokens",
    "dtype",
];

/// Options that have their own column, or are part of one.
const OPTIONS_WITH_COLUMN: [&str; 11] = [
    "architecture",
    "model",
    "dtype",
    "tp",
    "batch",
    "prompt_tokens",
    "output_tokens",
    "p2p",
    "hardware",
    "link",
    "backend",
];

/// Columns that move above the table if all rows share the value.
const MOVED_IF_SHARED: [&str; 8] = ["tp", "batch", "p2p", "link", "model", "dtype", "tokens", "on"];

/// Column of [`NARROW_COLUMNS`].
#[derive(Clone, Copy)]
struct NarrowColumn {
    /// Entry of [`NARROW_COLUMNS`]: the name, and a shorter title after `|`.
    title: &'static str,
    name: &'static str,
    /// Option of that name.
    option: Option<&'static OptionEntry>,
    /// Measure of that name.
    measure: Option<&'static Measure>,
}

impl NarrowColumn {
    fn new(title: &'static str) -> Self {
        let name = title.split('|').next().unwrap_or_default();
        Self { title, name, option: option(name), measure: measure(name) }
    }
}

/// Table with the columns of [`NARROW_COLUMNS`], one row per record, and a line with the values that all rows share.
pub fn narrow(records: &[Record], annotations: &Annotations) -> (String, Table) {
    let settings = settings(records, &OPTIONS_WITH_COLUMN);
    let first_line = |text: Option<&str>| text.and_then(|text| text.lines().next()).into();
    // a prefill without decoded tokens has no TPOT, and its tokens/s are meaningless
    let decodes = records.is_empty() || records.iter().any(|record| record.spec.output_tokens > 1);
    let columns = NARROW_COLUMNS.into_iter().filter_map(|column| match column {
        _ if decodes => Some(column),
        "tpot_p50_ms|TPOT ms" => Some("prefill_ms|TTFT ms"),
        "completion_ms|completion ms" | "tokens_per_s|tok/s" | "tokens_per_s_per_gpu|tok/s/GPU" => None,
        _ => Some(column),
    });
    let columns = columns.map(NarrowColumn::new);
    let cell = |record: &Record, setting: &String, column: NarrowColumn| {
        let NarrowColumn { name, option, measure, .. } = column;
        let (spec, annotation) = (&record.spec, annotations.of(&record.run));
        match name {
            "run" => Shown::text(&record.run),
            "status" => Shown::text(format!("{} {}", record.status.glyph(), record.status.as_str())),
            "tokens" => Shown::text(format!("{}+{}", spec.prompt_tokens, spec.output_tokens)),
            "setting" => Shown::some(setting),
            "on" => Shown::text(desk::platform(record)),
            "!provenance" => Shown::text(record.provenance),
            "tags" => annotation.map_or(Shown::None, |a| Shown::some(a.tags_in_a_line())),
            "~note" => first_line(annotation.map(|a| a.note.as_str())),
            "~why" => first_line(record.reason.as_deref()),
            _ => match (option, measure) {
                (Some(option), _) => option.shown(spec),
                // a prefill alone beside decoding cells
                (_, Some(m)) if m.name == "tpot_p50_ms" && spec.output_tokens < 2 => Shown::None,
                (_, measure) => measure.map_or(Shown::None, |m| Shown::number(m.of(record), m.decimals)),
            },
        }
    };
    let none = String::new();
    let is_common = |column: NarrowColumn| {
        let [first, rest @ ..] = records else { return false };
        let same = |of_first| rest.iter().all(|record| cell(record, &none, column) == of_first);
        MOVED_IF_SHARED.contains(&column.title) && !rest.is_empty() && same(cell(first, &none, column))
    };
    let (common, columns): (Vec<NarrowColumn>, Vec<NarrowColumn>) =
        columns.partition(|column| is_common(*column));
    let titles: Vec<&str> = columns.iter().map(|column| column.title).collect();
    let mut rows = Table::new(&titles).least(&DROPPED_COLUMNS);
    for (record, setting) in records.iter().zip(&settings) {
        rows.push(columns.iter().map(|column| cell(record, setting, *column)).collect());
    }
    let label = |record: &Record, name| option(name).map(|option| option.label(&record.spec));
    let words = common.into_iter().filter_map(|column| {
        let record = records.first()?;
        match column.title {
            // the native link is not mentioned
            "link" if column.option?.is_default(&record.spec) => None,
            "tokens" => {
                Some(format!("{} {}", label(record, "prompt_tokens")?, label(record, "output_tokens")?))
            }
            "on" => Some(format!("on {}", desk::platform(record))),
            title => label(record, title),
        }
    });
    let words: Vec<String> = words.collect();
    let common =
        (!words.is_empty()).then(|| format!("all {} cells: {}", records.len(), joined_labels(words)));
    // a pooled row has the id of one run and numbers of all
    let rounds = records.iter().map(|record| record.runs.len()).max().filter(|rounds| *rounds > 1);
    let pooled = rounds
        .map(|rounds| format!("each row pools up to {rounds} rounds; its run id is that of one round"));
    (common.into_iter().chain(pooled).collect::<Vec<_>>().join("\n"), rows)
}

/// All numbers of these records as CSV, one row per record.
pub fn csv(records: &[Record]) -> String {
    let table = RunTable::new(records, &Annotations::default());
    let rows: Vec<u32> = (0..records.len() as u32).collect();
    table.csv(&rows, &table.columns_of_records())
}

/// Rows per table. Longer lists repeat the header.
const TABLE_ROWS: usize = 1000;

/// Prints records in order and holds only those of the current table.
#[derive(Debug)]
pub struct RecordPrinter {
    format: OutputFormat,
    pending: Vec<Record>,
    printed: bool,
    annotations: Arc<Annotations>,
    /// Rows of a table that are still printed, if limited; later ones are counted.
    rows_left: Option<usize>,
    rows_cut: usize,
}

impl RecordPrinter {
    /// Creates a printer whose table ends after `limit` rows and has the tags and notes of `annotations`.
    pub fn new(format: OutputFormat, limit: Option<usize>, annotations: Arc<Annotations>) -> Self {
        let rows_left = limit.filter(|_| format == OutputFormat::Table);
        Self { format, pending: Vec::new(), printed: false, annotations, rows_left, rows_cut: 0 }
    }

    pub fn print(&mut self, record: Record) -> Result<()> {
        if self.format == OutputFormat::Json {
            return output::json_line(&without_samples(&record));
        }
        match &mut self.rows_left {
            Some(0) => {
                self.rows_cut += 1;
                return Ok(());
            }
            Some(left) => *left -= 1,
            None => {}
        }
        // drops samples: they are large and appear in no table
        self.pending.push(Record { samples: Default::default(), ..record });
        if self.pending.len() < TABLE_ROWS { Ok(()) } else { self.flush() }
    }

    /// Prints the rest. Returns the number of rows beyond the limit.
    pub fn finish(mut self) -> Result<usize> {
        if self.pending.is_empty() && (self.printed || self.format == OutputFormat::Json) {
            return Ok(self.rows_cut);
        }
        if self.rows_cut > 0 {
            let shown = self.pending.len();
            output::emit(&format!("First {shown} of {} runs\n", shown + self.rows_cut))?;
        }
        self.flush()?;
        Ok(self.rows_cut)
    }

    fn flush(&mut self) -> Result<()> {
        let text = match self.format {
            OutputFormat::Csv => {
                let text = csv(&self.pending);
                match text.split_once('\n') {
                    Some((_header, rows)) if self.printed => rows.to_owned(),
                    _ => text,
                }
            }
            _ => {
                let (common, table) = narrow(&self.pending, &self.annotations);
                if !common.is_empty() {
                    output::emit(&format!("{common}\n"))?;
                }
                output::aligned(&table)
            }
        };
        self.pending.clear();
        self.printed = true;
        output::emit(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use table::render::Sourced;
    use table::testing::sim_record;

    #[test]
    fn shared_values_move_above_the_table() {
        let cell =
            |batch, tp| sim_record("run", move |spec| (spec.batch, spec.tp) = (batch, tp), 0.0, 1.0);
        let table = |records: &[Record]| {
            let (common, table) = narrow(records, &Annotations::default());
            (common, table.csv(Sourced::NoRuns).lines().next().expect("a header").to_owned())
        };
        let (common, header) = table(&[cell(1, 4), cell(2, 4)]);
        assert!(common.starts_with("all 2 cells: tp4 p2p-on ") && common.contains("prompt"), "{common}");
        assert!(
            header.contains("batch") && !header.contains("tp,") && !header.contains("model"),
            "{header}"
        );
        let (common, header) = table(&[cell(1, 4), cell(2, 8)]);
        assert!(!common.contains("tp4") && header.contains("tp,batch"), "{common} {header}");
        // what is pooled is not the numbers of the run that is named
        let runs = vec!["a".to_owned(), "b".to_owned()];
        let (common, _) = table(&[Record { runs, ..cell(1, 4) }, cell(2, 4)]);
        assert!(common.contains("\neach row pools up to 2 rounds"), "{common}");
        // of a single run nothing is common
        let (common, header) = table(&[cell(1, 4)]);
        assert!(common.is_empty() && header.contains("tp,batch,p2p,link,model"), "{header}");
    }
}
