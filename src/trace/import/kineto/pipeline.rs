//! Reading and parsing at once: this thread unpacks and cuts, others parse, each into a table of its own.
//!
//! Both sides hand each other the same few buffers, so memory does not grow with the file.

use std::thread;

use crossbeam_channel::{bounded, unbounded};

use super::split::{Piece, Top, split};
use super::table::Table;
use crate::base::error::{Error, Result};
use crate::trace::import::unpack::Source;

/// How the text of a file is read: by how many threads, and what is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// Threads that parse; 0: this one does.
    pub(super) parsers: usize,
    /// Bytes of a piece.
    pub(super) piece: usize,
}

/// Reads a file's events into one table.
pub(super) fn read(name: &str, source: Source<'_>, reading: Reading) -> Result<(Top, Table)> {
    let parse = |table: &mut Table, piece: &Piece| {
        table.read(&piece.data[piece.from..piece.to], piece.offset);
    };
    if reading.parsers == 0 {
        let mut table = Table::default();
        let top = split(name, source, reading.piece, &mut |piece| {
            parse(&mut table, &piece);
            Some(piece.data)
        })?;
        return Ok((top, table));
    }
    thread::scope(|scope| {
        let (work, pieces) = bounded::<Piece>(reading.parsers + 1);
        let (spare, spares) = unbounded::<Vec<u8>>();
        let parsers: Vec<_> = (0..reading.parsers)
            .map(|_| {
                let (pieces, spare) = (pieces.clone(), spare.clone());
                scope.spawn(move || {
                    let mut table = Table::default();
                    for piece in pieces {
                        parse(&mut table, &piece);
                        // nobody waits for it once everything is read
                        spare.send(piece.data).ok();
                    }
                    table
                })
            })
            .collect();
        drop(pieces);
        let top = split(name, source, reading.piece, &mut |piece| {
            work.send(piece).ok();
            spares.try_recv().ok()
        });
        drop(work);
        let mut table = Table::default();
        for parser in parsers {
            let part = parser.join().map_err(|_| Error::failed(format!("{name}: a parser gave up")))?;
            table.absorb(part);
        }
        Ok((top?, table))
    })
}
