//! Streaming output of records: JSON lines, or CSV and tables in pieces.

use std::sync::Arc;

use super::output::{self, Format};
use super::record_table;
use base::error::Result;
use lab::store::Annotations;
use table::Record;

/// Rows per piece. Longer tables repeat their header.
const PIECE: usize = 1000;

/// Prints records in order and holds only the current piece.
#[derive(Debug)]
pub struct RecordPrinter {
    format: Format,
    piece: Vec<Record>,
    printed: bool,
    annotations: Arc<Annotations>,
}

impl RecordPrinter {
    pub fn new(format: Format) -> Self {
        Self { format, piece: Vec::new(), printed: false, annotations: Arc::default() }
    }

    /// Printer of a table that also shows tags and notes.
    pub fn annotated(annotations: Arc<Annotations>) -> Self {
        Self { annotations, ..Self::new(Format::Table) }
    }

    pub fn print(&mut self, record: Record) -> Result<()> {
        if self.format == Format::Json {
            return output::json_line(&record_table::contract_object(&record));
        }
        // drops samples: they are large and appear in no table
        self.piece.push(Record { samples: Default::default(), ..record });
        if self.piece.len() < PIECE { Ok(()) } else { self.flush() }
    }

    pub fn finish(mut self) -> Result<()> {
        if self.piece.is_empty() && (self.printed || self.format == Format::Json) {
            return Ok(());
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<()> {
        let text = match self.format {
            Format::Csv => {
                let text = record_table::csv(&self.piece);
                match text.split_once('\n') {
                    Some((_header, rows)) if self.printed => rows.to_owned(),
                    _ => text,
                }
            }
            _ => {
                let (common, table) = record_table::narrow(&self.piece, &self.annotations);
                if !common.is_empty() {
                    output::emit(&format!("{common}\n"))?;
                }
                output::aligned(&table)
            }
        };
        self.piece.clear();
        self.printed = true;
        output::emit(&text)
    }
}
