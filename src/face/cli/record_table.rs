//! Records as rows: a narrow table for people and all numbers for CSV; whole or streamed.

use std::sync::Arc;

use super::output::{self, OutputFormat, without_samples};
use crate::desk;
use base::error::Result;
use lab::store::{Annotation, Annotations};
use study::analysis::run_list::{self, IfShared, RunListColumn, TABLE_COLUMNS};
use study::analysis::{RunTable, joined_labels, settings};
use table::options::option;
use table::render::{Shown, Table};
use table::{Field, FieldSource, Link, Record};

/// Default column and its field; `None` for a column that combines options.
struct NarrowColumn {
    column: RunListColumn,
    field: Option<Field>,
}

impl NarrowColumn {
    /// Default columns for these records: a prefill without decoded tokens has no TPOT, and its tokens/s are meaningless;
    /// runs on CPUs have no GPUs.
    fn all(records: &[Record]) -> Vec<Self> {
        let decodes = records.is_empty() || records.iter().any(|record| record.spec.output_tokens > 1);
        let is_on_cpu =
            !records.is_empty() && records.iter().all(|record| record.spec.backend.computes_on_cores());
        let fields = table::fields();
        let column = |column: &RunListColumn| {
            let column = match column.name {
                "tokens_per_s_per_gpu" if is_on_cpu => return None,
                _ if decodes => *column,
                "tpot_p50_ms" => run_list::TTFT,
                "completion_ms" | "tokens_per_s" | "tokens_per_s_per_gpu" => return None,
                _ => *column,
            };
            let field = fields.iter().find(|field| field.name == column.name);
            Some(Self { column, field: field.cloned() })
        };
        TABLE_COLUMNS.iter().filter_map(column).collect()
    }

    /// Column as in [`Table::new`].
    fn header(&self) -> String {
        let RunListColumn { name, title, .. } = self.column;
        let mark = match name {
            "provenance" => "!",
            "note" | "reason" => "~",
            _ => "",
        };
        format!("{mark}{name}|{title}")
    }

    /// Value of a record that differs from others of its experiment in `setting`.
    fn cell(&self, record: &Record, setting: &str, annotation: Option<&Annotation>) -> Shown {
        let spec = &record.spec;
        let Some(field) = &self.field else {
            return match self.column.name {
                "tokens" => Shown::text(format!("{}+{}", spec.prompt_tokens, spec.output_tokens)),
                _ => Shown::text(desk::platform(record)),
            };
        };
        let first_line = |text: Option<&str>| text.and_then(|text| text.lines().next()).into();
        match field.source {
            FieldSource::Option(option) => option.shown(spec),
            // a prefill-only cell among decoding cells
            FieldSource::Measure(m) if m.name == "tpot_p50_ms" && spec.output_tokens < 2 => Shown::None,
            FieldSource::Measure(measure) => Shown::number(measure.of(record), measure.decimals),
            FieldSource::Setting => Shown::some(setting),
            FieldSource::Tags => annotation.map_or(Shown::None, |a| Shown::some(a.tags_in_a_line())),
            FieldSource::Note => first_line(annotation.map(|a| a.note.as_str())),
            _ if field.name == "status" => {
                Shown::text(format!("{} {}", record.status.glyph(), record.status.as_str()))
            }
            _ => first_line(field.text(record).as_deref()),
        }
    }

    /// True if at least two records all share the value, which then moves above the table.
    fn is_moved(&self, records: &[Record]) -> bool {
        let [first, rest @ ..] = records else { return false };
        if self.column.if_shared != IfShared::Moved || rest.is_empty() {
            return false;
        }
        let shared = self.cell(first, "", None);
        rest.iter().all(|record| self.cell(record, "", None) == shared)
    }
}

/// Table with the default columns, one row per record, and lines above it: the values that all rows share, and the pooled
/// rounds.
pub fn narrow(records: &[Record], annotations: &Annotations) -> (String, Table) {
    let columns = NarrowColumn::all(records).into_iter();
    let (moved, columns): (Vec<_>, Vec<_>) = columns.partition(|column| column.is_moved(records));
    let mut table = Table::new(columns.iter().map(NarrowColumn::header)).least(&run_list::drop_order());
    let settings = settings(records, &run_list::options_in_table());
    for (record, setting) in records.iter().zip(&settings) {
        let annotation = annotations.of(&record.run);
        table.push(columns.iter().map(|column| column.cell(record, setting, annotation)).collect());
    }
    let lines = [shared_values(records, &moved), pooled_rounds(records)];
    (lines.into_iter().flatten().collect::<Vec<_>>().join("\n"), table)
}

/// Values of columns that are above the table: `all 8 cells: tp8 on h100_sxm native`.
fn shared_values(records: &[Record], moved: &[NarrowColumn]) -> Option<String> {
    let record = records.first()?;
    let label = |name| option(name).map_or_else(String::new, |option| option.label(&record.spec));
    let value = |moved: &NarrowColumn| match moved.column.name {
        // the native link is not mentioned
        "link" if record.spec.link == Link::Native => String::new(),
        "tokens" => format!("{} {}", label("prompt_tokens"), label("output_tokens")),
        "on" => format!("on {}", desk::platform(record)),
        name => label(name),
    };
    let values = joined_labels(moved.iter().map(value));
    (!values.is_empty()).then(|| format!("all {} cells: {values}", records.len()))
}

/// Explains rows that pool several runs: a pooled row has the id of one run and numbers of all.
fn pooled_rounds(records: &[Record]) -> Option<String> {
    let rounds = records.iter().map(|record| record.runs.len()).max().filter(|rounds| *rounds > 1)?;
    Some(format!("each row pools up to {rounds} rounds; its run id is that of one round"))
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
