//! Recovery from broken JSON. A missing quote or brace inverts strings and brackets for the rest of the
//! file. So events are parsed one by one here; after a broken event, the scan searches for text that
//! looks like an event and accepts it only if it parses.
//!
//! The lost elements depend only on the file's bytes, not on the read sizes.

use super::blocks::after_close;
use super::event::Event;
use super::scan::{Broken, Cursor};
use super::split::{Break, LONGEST, Splitter, Top, read};
use crate::import::unpack::Source;
use base::error::Result;

/// Maximum size of an event, in bytes.
const LONGEST_EVENT: usize = 256 << 10;
/// Budget of wasted bytes for all breaks of a file. The rest is dropped once it is used up, so that
/// damage cannot cost hours.
const EFFORT: usize = 2 << 30;

#[derive(Clone, Debug, Default)]
pub(super) struct Lost {
    pub(super) elements: u64,
    pub(super) bytes: u64,
    /// Offset of the first error in the uncompressed file, and the expected text.
    pub(super) first: Option<(u64, &'static str)>,
}

pub(super) type Visit<'a> = dyn FnMut(&mut Cursor<'_>, u64) -> Result<(), Broken> + 'a;

/// Reads `source` to its end and visits each event. Repeats a visit with more bytes if it runs out of
/// them.
pub(super) fn walk(name: &str, source: Source<'_>, piece: usize, visit: &mut Visit<'_>) -> Result<Top> {
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
                    if let Err(broken) = self.event(visit)? {
                        self.pass(&broken)?;
                    }
                }
            }
        }
        Err(self.splitter.cut(false))
    }

    fn event(&mut self, visit: &mut Visit<'_>) -> Result<Result<(), BrokenAt>, Break> {
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
                return Ok(Err(BrokenAt { offset, expected: broken.expected, ended: broken.ended }));
            }
        }
    }

    /// Skips the broken element at the cursor: to the first valid event inside its brackets, or else to
    /// its end; if its brackets are not closed, to the next valid event anywhere.
    #[cold]
    fn pass(&mut self, broken: &BrokenAt) -> Result<(), Break> {
        let start = self.splitter.place();
        let end = self.element()?.map(|length| start + length as u64);
        let found = self.seek(start, end)?;
        // a truncated last event does not count as broken
        if found || !broken.ended {
            let lost = &mut self.splitter.top.lost;
            lost.elements += 1;
            lost.first.get_or_insert((broken.offset, broken.expected));
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
            if comma.is_some() && next == Some(b'{') && self.event(&mut sound)?.is_ok() {
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

struct BrokenAt {
    offset: u64,
    expected: &'static str,
    ended: bool,
}

/// Parses an event and its arguments; requires a phase.
fn sound(cursor: &mut Cursor<'_>, _place: u64) -> Result<(), Broken> {
    let start = cursor.at;
    let event = Event::read(cursor, |_| true)?;
    event.arguments(cursor.bytes)?;
    event.phase.map(|_| ()).ok_or(Broken { at: start, expected: "a phase", ended: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::unpack::unpack;

    /// Names of the events in an array, and what is lost, read in pieces of one size.
    fn names(text: &str, piece: usize) -> (Vec<String>, Lost) {
        let mut names = Vec::new();
        let top = walk("t", unpack("t", text.as_bytes()).unwrap(), piece, &mut |cursor, _| {
            let event = Event::read(cursor, |_| true)?;
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
            Walk { splitter, effort: 1 << 20 }.events(&mut sound)
        });
        let top = top.unwrap();
        assert!(top.cut.is_some_and(|cut| cut.contains("too much broken JSON")));
    }
}
