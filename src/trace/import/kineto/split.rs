//! Splits a trace into whole events while reading it: in pieces, or event by event if the JSON is broken.
//!
//! Parses the top level of the file key by key, then splits events by their beginnings, or by brackets alone.
//! Holds at most one piece. A missing quote or brace inverts strings and brackets for the rest of the file; then
//! [`walk`] parses events one by one, and after a broken one searches for text that looks like an event and
//! accepts it only if it parses. The lost elements depend only on the file's bytes, not on the read sizes.

use super::blocks::{Elements, after_close};
use super::event::TraceEvent;
use super::json::{Cursor, JsonError, closing_quote};
use crate::import::input::UnpackedReader;
use base::error::{Error, Result};

/// Piece size: small enough for a core's private cache, large enough to make the handover cheap.
pub(super) const PIECE: usize = 512 << 10;
/// Maximum size of an event or top-level value, to bound memory. Real ones have kilobytes.
pub(super) const LONGEST: usize = 64 << 20;
/// Bytes at the end of a piece to search for the beginning of an event; real events are shorter.
const GUESSED: usize = 32 << 10;
/// Maximum length of an event's beginning, up to the end of its first key.
const FIRST_KEY: usize = 32;
const LONGEST_KEPT: usize = 4 << 20;
const TOP_OBJECT: &str = "the object at its top";

pub(super) struct JsonPiece {
    pub(super) data: Vec<u8>,
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) offset: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Top {
    /// Raw top-level values that may be useful.
    pub(super) values: Vec<(String, Vec<u8>)>,
    pub(super) has_events: bool,
    /// True if the events end unexpectedly, so brackets do not delimit them reliably.
    pub(super) is_broken: bool,
    pub(super) lost: LostEvents,
    pub(super) cut: Option<String>,
    pub(super) warnings: Vec<String>,
}

pub(super) struct Break(pub(super) String);

/// Consumes a piece and returns a spare buffer, if there is one.
pub(super) type Sink<'a> = dyn FnMut(JsonPiece) -> Option<Vec<u8>> + 'a;

type Events<'a> = dyn FnMut(&mut Splitter<'_>) -> Result<(), Break> + 'a;

pub(super) fn split(
    name: &str,
    source: UnpackedReader<'_>,
    piece: usize,
    sink: &mut Sink<'_>,
) -> Result<Top> {
    read(name, source, piece, &mut |splitter| splitter.events(sink))
}

pub(super) fn read(
    name: &str,
    source: UnpackedReader<'_>,
    piece: usize,
    events: &mut Events<'_>,
) -> Result<Top> {
    let mut splitter = Splitter {
        source,
        buffer: Vec::new(),
        length: 0,
        at: 0,
        offset: 0,
        ended: false,
        trouble: None,
        piece: piece.max(1),
        top: Top::default(),
    };
    let outcome = splitter.file(events);
    let trouble = match (splitter.trouble.take(), splitter.source.packed) {
        (Some(trouble), None) => return Err(Error::io(name)(trouble)),
        (Some(trouble), Some(packed)) => Some(format!("the {packed} stream is damaged: {trouble}")),
        (None, _) => None,
    };
    let mut top = splitter.top;
    match outcome {
        // the damage is after the trace, or the checksum does not match
        Ok(()) => top.warnings.extend(trouble),
        Err(Break(reason)) if top.has_events => top.cut = Some(reason),
        Err(Break(reason)) => {
            return Err(Error::input_help(
                format!("{name}: {reason}"),
                "expected a PyTorch profiler trace: JSON, an object with traceEvents or an array of events; plain or compressed by gzip, zstd, xz or bzip2",
            ));
        }
    }
    Ok(top)
}

pub(super) struct Splitter<'a> {
    source: UnpackedReader<'a>,
    pub(super) buffer: Vec<u8>,
    /// Number of valid bytes in the buffer.
    pub(super) length: usize,
    pub(super) at: usize,
    /// Offset of `buffer[0]` in the file.
    pub(super) offset: u64,
    ended: bool,
    trouble: Option<std::io::Error>,
    piece: usize,
    pub(super) top: Top,
}

impl Splitter<'_> {
    fn file(&mut self, events: &mut Events<'_>) -> Result<(), Break> {
        let first = self.peek()?;
        if first == Some(0xef) && self.buffer[..self.length].starts_with(b"\xef\xbb\xbf") {
            self.at = 3;
        }
        match self.peek()? {
            Some(b'[') => self.array(events)?,
            Some(b'{') => self.object(events)?,
            Some(byte) => {
                let byte = std::ascii::escape_default(byte);
                return Err(self.break_here(&format!("found '{byte}', expected {{ or [")));
            }
            None if self.trouble.is_none() => return Err(Break("the file is empty".into())),
            None => return Err(self.ended_in("its beginning")),
        }
        if self.peek()?.is_some() {
            let place = self.place();
            self.top
                .warnings
                .push(format!("byte {place}: the trace is closed, but more follows; not read"));
        }
        Ok(())
    }

    fn object(&mut self, events: &mut Events<'_>) -> Result<(), Break> {
        self.at += 1;
        loop {
            match self.peek()? {
                Some(b'"') => {}
                Some(b',') => {
                    self.at += 1;
                    continue;
                }
                Some(b'}') => {
                    self.at += 1;
                    break;
                }
                Some(_) => return Err(self.break_here("expected a key in quotes, or }")),
                None => return Err(self.ended_in(TOP_OBJECT)),
            }
            let key = self.whole("a key", |bytes| closing_quote(bytes, 1).map(|end| end + 1))?;
            let key = String::from_utf8_lossy(&self.buffer[key.0 + 1..key.1 - 1]).into_owned();
            match self.peek()? {
                Some(b':') => self.at += 1,
                Some(_) => return Err(self.break_here("expected :")),
                None => return Err(self.ended_in(TOP_OBJECT)),
            }
            match self.peek()? {
                Some(b'[') if key == "traceEvents" => self.array(events)?,
                Some(byte) => self.value(key, byte)?,
                None => return Err(self.ended_in(TOP_OBJECT)),
            }
        }
        if !self.top.has_events {
            return Err(Break("a JSON object without traceEvents".into()));
        }
        Ok(())
    }

    fn value(&mut self, key: String, first: u8) -> Result<(), Break> {
        let (from, to) = match first {
            b'"' => self.whole("a string", |bytes| closing_quote(bytes, 1).map(|end| end + 1))?,
            b'{' | b'[' => self.whole("a value", |bytes| after_close(bytes, 0, 0))?,
            b',' | b'}' | b']' | b':' => return Err(self.break_here("expected a value")),
            _ => self.whole("a number", |bytes| {
                bytes.iter().position(|byte| *byte <= b' ' || matches!(byte, b',' | b'}' | b']'))
            })?,
        };
        if to - from <= LONGEST_KEPT && self.top.values.len() < 256 {
            self.top.values.push((key, self.buffer[from..to].to_vec()));
        }
        Ok(())
    }

    fn array(&mut self, events: &mut Events<'_>) -> Result<(), Break> {
        self.at += 1;
        self.top.has_events = true;
        events(self)
    }

    /// Splits events into pieces: before text that looks like the first event's beginning, or else by
    /// brackets.
    fn events(&mut self, sink: &mut Sink<'_>) -> Result<(), Break> {
        let mut elements = Elements::default();
        let first = self.beginning();
        let mut scanned = self.at;
        loop {
            if let Some(next) = self.last_event(&first).filter(|_| !self.ended) {
                self.emit_piece(next, sink);
                (elements, scanned) = (Elements::default(), self.at);
                self.more()?;
                continue;
            }
            let found = elements.scan(&self.buffer[..self.length], scanned);
            scanned = self.length;
            if let Some(end) = found.end {
                self.top.is_broken |= self.buffer[end] != b']';
                self.emit_piece(end, sink);
                self.at = 1;
                return Ok(());
            }
            if let Some(complete) = found.complete {
                self.emit_piece(complete, sink);
                scanned = self.length;
            }
            let before = self.at;
            match self.more() {
                Ok(true) => {}
                outcome => {
                    self.top.is_broken = true;
                    outcome?;
                    return Err(self.cut(elements.is_inside()));
                }
            }
            // the remainder may have moved to the start of the buffer
            scanned -= before - self.at;
        }
    }

    /// Opening bracket and first key of the first event; empty if there is none.
    fn beginning(&self) -> Vec<u8> {
        let bytes = self.buffer[self.at..self.length].trim_ascii_start();
        let key = bytes.iter().position(|byte| *byte == b'"').filter(|_| bytes.first() == Some(&b'{'));
        let end = key.and_then(|key| closing_quote(bytes, key + 1));
        end.filter(|end| *end < FIRST_KEY).map_or(Vec::new(), |end| bytes[..=end].to_vec())
    }

    /// Position of the last event in the buffer that follows another and begins like the first one. A
    /// guess that is cheaper than counting brackets; a wrong one ends a piece within an event, which the
    /// parser reports as broken.
    fn last_event(&self, first: &[u8]) -> Option<usize> {
        let bytes = &self.buffer[self.at..self.length];
        let from = bytes.len().saturating_sub(GUESSED);
        let follows = |at: &usize| {
            let mut before = bytes[..*at].iter().rev().filter(|byte| **byte > b' ');
            bytes[*at..].starts_with(first)
                && before.next() == Some(&b',')
                && before.next() == Some(&b'}')
        };
        let mut opening = memchr::memrchr_iter(b'{', &bytes[from..]).map(|at| from + at);
        opening.find(follows).filter(|_| !first.is_empty()).map(|at| self.at + at)
    }

    pub(super) fn cut(&self, inside: bool) -> Break {
        self.ended_in(if inside { "an event" } else { "the array of events" })
    }

    fn emit_piece(&mut self, end: usize, sink: &mut Sink<'_>) {
        let from = self.at;
        let rest = self.length - end;
        let whole = std::mem::take(&mut self.buffer);
        // the remainder is usually the beginning of one event
        let tail = whole[end..self.length].to_vec();
        let offset = self.offset + from as u64;
        self.buffer = sink(JsonPiece { data: whole, from, to: end, offset }).unwrap_or_default();
        let wanted = self.piece.max(2 * rest);
        if self.buffer.len() < wanted {
            self.buffer.resize(wanted, 0);
        }
        self.buffer[..rest].copy_from_slice(&tail);
        self.offset += end as u64;
        (self.at, self.length) = (0, rest);
    }

    /// Reads until the buffer is full or the file ends. Returns false at the end of the file.
    pub(super) fn more(&mut self) -> Result<bool, Break> {
        if self.ended {
            return Ok(false);
        }
        if self.at > 0 {
            self.buffer.copy_within(self.at..self.length, 0);
            self.offset += self.at as u64;
            self.length -= self.at;
            self.at = 0;
        }
        if self.length == self.buffer.len() {
            if self.length >= LONGEST {
                return Err(self.break_here("an event or value of more than 64 MiB"));
            }
            let wanted = self.piece.max(2 * self.length);
            self.buffer.resize(wanted, 0);
        }
        let before = self.length;
        while self.length < self.buffer.len() {
            match self.source.bytes.read(&mut self.buffer[self.length..]) {
                Ok(0) => {
                    self.ended = true;
                    break;
                }
                Ok(count) => self.length += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.trouble = Some(error);
                    self.ended = true;
                    break;
                }
            }
        }
        Ok(self.length > before)
    }

    pub(super) fn peek(&mut self) -> Result<Option<u8>, Break> {
        loop {
            let rest = &self.buffer[self.at..self.length];
            if let Some(found) = rest.iter().position(|byte| *byte > b' ') {
                self.at += found;
                return Ok(Some(self.buffer[self.at]));
            }
            self.at = self.length;
            if !self.more()? {
                return Ok(None);
            }
        }
    }

    /// Reads until `end` finds the end of the value at the cursor, and moves past it.
    fn whole(
        &mut self,
        what: &str,
        end: impl Fn(&[u8]) -> Option<usize>,
    ) -> Result<(usize, usize), Break> {
        loop {
            if let Some(length) = end(&self.buffer[self.at..self.length]) {
                let from = self.at;
                self.at += length;
                return Ok((from, self.at));
            }
            if !self.more()? {
                return Err(self.ended_in(what));
            }
        }
    }

    pub(super) fn place(&self) -> u64 {
        self.offset + self.at as u64
    }

    pub(super) fn break_here(&self, what: &str) -> Break {
        Break(format!("byte {}: {what}", self.place()))
    }

    fn ended_in(&self, inside: &str) -> Break {
        let end = self.offset + self.length as u64;
        Break(match (&self.trouble, self.source.packed) {
            (Some(trouble), Some(packed)) => {
                format!(
                    "the {packed} stream breaks after {end} bytes of JSON ({trouble}), inside {inside}"
                )
            }
            _ => format!("the file ends at byte {end}, inside {inside}"),
        })
    }
}

/// Maximum size of an event, in bytes.
const LONGEST_EVENT: usize = 256 << 10;
/// Budget of wasted bytes for all breaks of a file. The rest is dropped once it is used up, so that
/// damage cannot cost hours.
const EFFORT: usize = 2 << 30;

#[derive(Clone, Debug, Default)]
pub(super) struct LostEvents {
    pub(super) elements: u64,
    pub(super) bytes: u64,
    /// Offset of the first error in the uncompressed file, and the expected text.
    pub(super) first: Option<(u64, &'static str)>,
}

pub(super) type Visit<'a> = dyn FnMut(&mut Cursor<'_>, u64) -> Result<(), JsonError> + 'a;

/// Reads `source` to its end and visits each event. Repeats a visit with more bytes if it runs out of
/// them.
pub(super) fn walk(
    name: &str,
    source: UnpackedReader<'_>,
    piece: usize,
    visit: &mut Visit<'_>,
) -> Result<Top> {
    read(name, source, piece, &mut |splitter| Walk { splitter, effort: EFFORT }.events(visit))
}

struct Walk<'a, 'b> {
    splitter: &'a mut Splitter<'b>,
    /// Remaining budget of wasted bytes.
    effort: usize,
}

impl Walk<'_, '_> {
    fn events(&mut self, visit: &mut Visit<'_>) -> Result<(), Break> {
        while let Some(byte) = self.splitter.peek()? {
            match byte {
                b',' => self.splitter.at += 1,
                b']' => {
                    self.splitter.at += 1;
                    return Ok(());
                }
                _ => {
                    if let Err((offset, broken)) = self.event(visit)? {
                        self.skip_broken(offset, broken)?;
                    }
                }
            }
        }
        Err(self.splitter.cut(false))
    }

    /// Visits the event at the cursor; a broken one with its offset in the file.
    fn event(&mut self, visit: &mut Visit<'_>) -> Result<Result<(), (u64, JsonError)>, Break> {
        loop {
            let Splitter { buffer, length, at, .. } = &*self.splitter;
            let (start, end) = (*at, (*length).min(at + LONGEST_EVENT));
            let mut cursor = Cursor::new(&buffer[..end], start);
            let broken = match visit(&mut cursor, self.splitter.place()) {
                Ok(()) => {
                    self.splitter.at = cursor.at;
                    return Ok(Ok(()));
                }
                Err(broken) => broken,
            };
            let offset = self.splitter.offset + broken.at as u64;
            let read = if broken.ended { end } else { cursor.at.max(broken.at) } - start;
            if !broken.ended || end - start == LONGEST_EVENT || !self.splitter.more()? {
                self.effort = self.effort.saturating_sub(read + 1);
                return Ok(Err((offset, broken)));
            }
        }
    }

    /// Skips the broken element at the cursor: to the first valid event inside its brackets, or else to
    /// its end; if its brackets are not closed, to the next valid event anywhere.
    #[cold]
    fn skip_broken(&mut self, offset: u64, broken: JsonError) -> Result<(), Break> {
        let start = self.splitter.place();
        let end = self.element()?.map(|length| start + length as u64);
        let found = self.seek(start, end)?;
        // a truncated last event does not count as broken
        if found || !broken.ended {
            let lost = &mut self.splitter.top.lost;
            lost.elements += 1;
            lost.first.get_or_insert((offset, broken.expected));
            let place = self.splitter.place();
            self.splitter.top.lost.bytes += place - start;
        }
        if found { Ok(()) } else { Err(self.splitter.cut(true)) }
    }

    /// Length of the element at the cursor by its brackets, if it is closed.
    fn element(&mut self) -> Result<Option<usize>, Break> {
        while self.splitter.length - self.splitter.at < LONGEST_EVENT && self.splitter.more()? {}
        let Splitter { buffer, length, at, .. } = &*self.splitter;
        let bytes = &buffer[*at..(*length).min(at + LONGEST_EVENT)];
        let mut cursor = Cursor::new(bytes, 0);
        let length = match (bytes.first(), cursor.value()) {
            (Some(b'{' | b'['), _) | (_, Err(_)) => after_close(bytes, 0, 0),
            (_, Ok(_)) => Some(cursor.at),
        };
        self.effort = self.effort.saturating_sub(length.unwrap_or(bytes.len()));
        Ok(length)
    }

    /// Moves to the first valid event after `start` and before `end`, or else to `end`. Returns false at
    /// the end of the file.
    fn seek(&mut self, start: u64, end: Option<u64>) -> Result<bool, Break> {
        self.splitter.at += 1;
        while self.effort > 0 {
            let Splitter { buffer, length, at, .. } = &mut *self.splitter;
            let comma = memchr::memchr(b',', &buffer[*at..*length]);
            *at = comma.map_or(*length, |comma| *at + comma + 1);
            let place = self.splitter.place();
            if end.is_some_and(|end| place >= end) {
                break;
            }
            if place - start > LONGEST as u64 {
                return Err(self.splitter.break_here("an event or value of more than 64 MiB"));
            }
            let next = self.splitter.peek()?;
            if next.is_none() && end.is_none() {
                return Ok(false);
            }
            let place = self.splitter.place();
            if comma.is_some() && next == Some(b'{') && self.event(&mut require_event)?.is_ok() {
                self.splitter.at = (place - self.splitter.offset) as usize;
                return Ok(true);
            }
        }
        match end {
            Some(end) => {
                self.splitter.at = (end - self.splitter.offset) as usize;
                Ok(true)
            }
            None => Err(self.splitter.break_here("too much broken JSON; reading stopped")),
        }
    }
}

/// Parses an event and its arguments; requires a phase.
fn require_event(cursor: &mut Cursor<'_>, _place: u64) -> Result<(), JsonError> {
    let start = cursor.at;
    let event = TraceEvent::read(cursor, |_| true)?;
    event.arguments(cursor.bytes)?;
    event.phase.map(|_| ()).ok_or(JsonError { at: start, expected: "a phase", ended: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::input::unpack;

    /// Names of the events in an array, and what is lost, read in pieces of one size.
    fn names(text: &str, piece: usize) -> (Vec<String>, LostEvents) {
        let mut names = Vec::new();
        let top = walk("t", unpack("t", text.as_bytes()).unwrap(), piece, &mut |cursor, _| {
            let event = TraceEvent::read(cursor, |_| true)?;
            names.push(String::from_utf8_lossy(event.name.unwrap_or_default()).into_owned());
            Ok(())
        });
        (names, top.unwrap().lost)
    }

    fn event(name: &str) -> String {
        format!(r#"{{"ph": "X", "name": "{name}", "args": {{"list": [{{"x": 1}}, {{"y": 2}}]}}}}"#)
    }

    #[test]
    fn a_broken_event_costs_itself_alone() {
        for broken in [
            r#"{"ph": "X", "name": "a, "args": {}}"#,
            r#"{"ph": "X", "name: "a", "args": {}}"#,
            r#"{"ph": "X", "name": "C:\temp\", "args": {}}"#,
            r#"{"ph": "X", "args": {"a": 1}"#,
            r#"{"ph": "X", "args": {"a: 1}}"#,
            r#"{"ph" "X"}"#,
            "}",
            "17",
            "{",
        ] {
            let broken = broken.replace(r"\\", r"\");
            let text = format!("[{},\n{broken},\n{}, {}]", event("first"), event("next"), event("last"));
            for piece in [1, 50, 300, 1 << 20] {
                let (names, lost) = names(&text, piece);
                assert_eq!(names, ["first", "next", "last"], "{broken} in pieces of {piece}");
                assert_eq!(lost.elements, 1, "{broken}");
                // with the comma and the line's end where brackets do not say where it ends
                let more = lost.bytes - broken.len() as u64;
                assert!(more == 0 || more == 2, "{broken}: {} bytes", lost.bytes);
            }
        }
    }

    #[test]
    fn the_last_event_of_a_cut_file_is_not_a_broken_one() {
        let text = format!("[{}, 17, {}", event("first"), &event("cut")[..40]);
        assert_eq!(names(&text, 64).1.elements, 1);
        let text = format!("[{}, {}", event("first"), r#"{"ph": oops", "name": "x"}]"#);
        assert_eq!(names(&text, 64).1.elements, 1);
    }

    #[test]
    fn a_search_in_garbage_ends() {
        let text = format!("[{}", r#",{"a":["#.repeat(20_000));
        let top = read("t", unpack("t", text.as_bytes()).unwrap(), 4096, &mut |splitter| {
            Walk { splitter, effort: 1 << 20 }.events(&mut require_event)
        });
        let top = top.unwrap();
        assert!(top.cut.is_some_and(|cut| cut.contains("too much broken JSON")));
    }
}
