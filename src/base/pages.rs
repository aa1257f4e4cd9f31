//! Pages of Parquet columns, looked at before they are decoded: Parquet's readers allocate whatever a damaged page
//! claims to hold, and an allocation that fails ends the process.

use std::io::Cursor;

use polars_buffer::Buffer;
use polars_core::prelude::PolarsResult;
use polars_parquet::read::{ColumnChunkMetadata, PageReader};
use polars_parquet::write::CompressedPage;

/// No page is longer than this; one that claims to be is damaged.
const LONGEST: usize = 1 << 30;

/// The pages of a column chunk, in order; `None` where one claims more than the rows of its row group. Looks at the
/// head of each, decodes nothing and copies nothing. Fails where a head cannot be read.
pub fn pages(
    chunk: Buffer<u8>,
    column: &ColumnChunkMetadata,
    rows: usize,
) -> PolarsResult<Option<PageReader>> {
    let whole = Cursor::new(chunk);
    let reader = |whole| PageReader::new(whole, column, Vec::new(), LONGEST);
    for page in reader(whole.clone()) {
        if matches!(page?, CompressedPage::Data(page) if page.num_values() > rows) {
            return Ok(None);
        }
    }
    Ok(Some(reader(whole)))
}
