//! Concurrent reading and parsing: one thread decompresses and splits, others parse, each into its own
//! table.
//!
//! Both sides recycle the same few buffers, so memory use does not grow with the file.

use std::thread;

use crossbeam_channel::{bounded, unbounded};

use super::recover::walk;
use super::split::{Piece, Top, split};
use super::table::Table;
use crate::import::unpack::Source;
use base::error::{Error, Result};

#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// Number of parser threads; 0 parses on the calling thread.
    pub(super) parsers: usize,
    pub(super) piece: usize,
}

pub(super) type Open<'a> = dyn Fn() -> Result<Source<'a>> + 'a;

/// Parses a file's events into one table. A broken file is read again on one thread, because its
/// brackets no longer delimit events; the result thus depends only on the bytes, not on the piece
/// boundaries.
pub(super) fn read(name: &str, open: &Open<'_>, reading: Reading) -> Result<(Top, Table)> {
    if let Some(read) = read_sound(name, open()?, reading)? {
        return Ok(read);
    }
    let mut table = Table::default();
    let mut top = walk(name, open()?, reading.piece, &mut |cursor, place| table.event(cursor, place))?;
    table.lose(std::mem::take(&mut top.lost));
    Ok((top, table))
}

/// Parses a file in pieces. Returns `None` if a piece is broken or truncated.
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
                        // fails if the reader has finished
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
