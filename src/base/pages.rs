//! Pages of Parquet columns, looked at before they are decoded: Parquet's readers allocate whatever a damaged page
//! claims to hold, and an allocation that fails ends the process.

use std::io::Cursor;

use polars::prelude::PolarsResult;
use polars_parquet::read::{ColumnChunkMetadata, PageReader};
use polars_parquet::write::CompressedPage;

/// No page is longer than this; one that claims to be is damaged.
const LONGEST: usize = 1 << 30;

/// The pages of a column that lie in `bytes`, in order; none of them longer than a page is.
pub fn pages(bytes: Vec<u8>, column: &ColumnChunkMetadata) -> PageReader {
    PageReader::new(Cursor::new(bytes.into()), column, Vec::new(), LONGEST)
}

/// Whether each page of a column that lies in `bytes` holds at most the rows of its row group. Reads their heads and
/// decodes nothing. Fails where a head cannot be read.
pub fn fit(bytes: Vec<u8>, column: &ColumnChunkMetadata, rows: usize) -> PolarsResult<bool> {
    for page in pages(bytes, column) {
        if let CompressedPage::Data(page) = page?
            && page.num_values() > rows
        {
            return Ok(false);
        }
    }
    Ok(true)
}
