//! Bytes of a trace, however they are packed: plain, gzip (several members too), zstd.

use std::io::{BufRead, BufReader, Read};

use crate::base::error::{Error, Result};

/// A stream of JSON.
pub(super) struct Source<'a> {
    pub(super) bytes: Box<dyn Read + 'a>,
    /// What it is unpacked from; a break in it is a truncated file, not a failing disk.
    pub(super) packed: Option<&'static str>,
}

/// Compressed bytes asked for at once.
const PACKED: usize = 256 << 10;

/// Recognises the packing by its first bytes.
pub(super) fn unpack<'a>(name: &str, raw: impl Read + 'a) -> Result<Source<'a>> {
    let mut raw = BufReader::with_capacity(PACKED, raw);
    let start = raw.fill_buf().map_err(Error::io(name))?;
    Ok(match start {
        [0x1f, 0x8b, ..] => {
            Source { bytes: Box::new(flate2::bufread::MultiGzDecoder::new(raw)), packed: Some("gzip") }
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let decoder = zstd::stream::read::Decoder::with_buffer(raw).map_err(Error::io(name))?;
            Source { bytes: Box::new(decoder), packed: Some("zstd") }
        }
        _ => Source { bytes: Box::new(raw), packed: None },
    })
}
