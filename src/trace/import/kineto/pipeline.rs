//! Reading and parsing at once: this thread unpacks and cuts, others parse, each into a table of its own.
//!
//! Both sides hand each other the same few buffers, so memory does not grow with the file.

use std::thread;

use crossbeam_channel::{bounded, unbounded};

use super::recover::walk;
use super::split::{Piece, Top, split};
use super::table::Table;
use crate::import::unpack::Source;
use base::error::{Error, Result};

/// How the text of a file is read: by how many threads, and what is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// Threads that parse; 0: this one does.
    pub(super) parsers: usize,
    /// Bytes of a piece.
    pub(super) piece: usize,
}

/// Opens a file to read it from its beginning.
pub(super) type Open<'a> = dyn Fn() -> Result<Source<'a>> + 'a;

/// Reads a file's events into one table. A file that breaks somewhere is read again on one thread, because brackets no
/// longer say where events begin: so the result depends on the bytes alone, not on where pieces were cut.
pub(super) fn read(name: &str, open: &Open<'_>, reading: Reading) -> Result<(Top, Table)> {
    if let Some(read) = read_sound(name, open()?, reading)? {
        return Ok(read);
    }
    let mut table = Table::default();
    let mut top = walk(name, open()?, reading.piece, &mut |cursor, place| table.event(cursor, place))?;
    table.lose(std::mem::take(&mut top.lost));
    Ok((top, table))
}

/// Reads a file's events by pieces. `None` if one of them is broken or the file is cut off within them.
fn read_sound(name: &str, source: Source<'_>, reading: Reading) -> Result<Option<(Top, Table)>> {
    let parse = |table: &mut Table, piece: &Piece| {
        table.read(&piece.data[piece.from..piece.to], piece.offset).is_ok()
    };
    if reading.parsers == 0 {
        let (mut table, mut sound) = (Table::default(), true);
        let top = split(name, source, reading.piece, &mut |piece| {
            sound = sound && parse(&mut table, &piece);
            Some(piece.data)
        })?;
        return Ok((sound && !top.is_broken).then_some((top, table)));
    }
    thread::scope(|scope| {
        let (work, pieces) = bounded::<Piece>(reading.parsers + 1);
        let (spare, spares) = unbounded::<Vec<u8>>();
        let parsers: Vec<_> = (0..reading.parsers)
            .map(|_| {
                let (pieces, spare) = (pieces.clone(), spare.clone());
                scope.spawn(move || {
                    let (mut table, mut sound) = (Table::default(), true);
                    for piece in pieces {
                        sound = sound && parse(&mut table, &piece);
                        // nobody waits for it once everything is read
                        spare.send(piece.data).ok();
                    }
                    (table, sound)
                })
            })
            .collect();
        drop(pieces);
        let top = split(name, source, reading.piece, &mut |piece| {
            work.send(piece).ok();
            spares.try_recv().ok()
        });
        drop(work);
        let (mut tables, mut sound) = (Vec::new(), true);
        for parser in parsers {
            let (table, is_sound) =
                parser.join().map_err(|_| Error::failed(format!("{name}: a parser gave up")))?;
            sound &= is_sound;
            tables.push(table);
        }
        let top = top?;
        Ok((sound && !top.is_broken).then(|| (top, Table::merged(tables))))
    })
}
