//! Prints records as they come, however many: JSON a line each, CSV and tables in pieces.

use std::sync::Arc;

use super::output::{self, Format};
use super::record_table;
use base::error::Result;
use lab::store::Annotations;
use table::Record;

/// Rows of a piece. A table of more rows than this has its header again.
const PIECE: usize = 1000;

/// Prints records in order; nothing is kept but the current piece.
#[derive(Debug)]
pub struct RecordPrinter {
    format: Format,
    piece: Vec<Record>,
    printed: bool,
    annotations: Arc<Annotations>,
}

impl RecordPrinter {
    /// A printer in this format that has printed nothing yet.
    pub fn new(format: Format) -> Self {
        Self { format, piece: Vec::new(), printed: false, annotations: Arc::default() }
    }

    /// A table that shows these tags and notes too.
    pub fn annotated(annotations: Arc<Annotations>) -> Self {
        Self { annotations, ..Self::new(Format::Table) }
    }

    /// Prints a record, now or with its piece.
    pub fn print(&mut self, record: Record) -> Result<()> {
        if self.format == Format::Json {
            return output::json_line(&record_table::contract_object(&record));
        }
        // samples are many numbers, and in no table
        self.piece.push(Record { samples: Vec::new(), ..record });
        if self.piece.len() < PIECE { Ok(()) } else { self.flush() }
    }

    /// Prints what is left.
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
