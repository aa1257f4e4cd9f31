//! Where reading goes on after broken JSON. A missing quote or brace turns strings and brackets of all that follows
//! inside out; the next event is found by what it looks like, and believed only if it can be read.

use super::event::Event;
use super::scan::{Broken, Cursor};

/// The longest event that is looked for (bytes).
const LONGEST: usize = 1 << 20;
/// Places that look like an event and are none, before the search ends: damage must not cost more than its length.
const MOST_TRIED: usize = 1000;

/// The place of the first event after the first break in the elements of an array, if both are there.
pub(super) fn after_break(bytes: &[u8]) -> Option<usize> {
    let mut cursor = Cursor::new(bytes, 0);
    while let Some(byte) = cursor.peek() {
        let start = cursor.at;
        match byte {
            b',' => cursor.at += 1,
            b'{' if strict(&mut cursor).is_ok() => {}
            _ => return next_event(bytes, start + 1),
        }
    }
    None
}

/// The place of the next event at or after `from`: an object after a comma that can be read and has a phase.
pub(super) fn next_event(bytes: &[u8], from: usize) -> Option<usize> {
    let mut tried = 0;
    for found in memchr::memchr_iter(b'{', bytes.get(from..)?) {
        let at = from + found;
        let before = bytes[..at].iter().rev().find(|byte| **byte > b' ');
        let after = bytes[at + 1..].iter().find(|byte| **byte > b' ');
        if before != Some(&b',') || after != Some(&b'"') {
            continue;
        }
        let end = bytes.len().min(at + LONGEST);
        if strict(&mut Cursor::new(&bytes[..end], at)).is_ok_and(|event| event.phase.is_some()) {
            return Some(at);
        }
        tried += 1;
        if tried == MOST_TRIED {
            return None;
        }
    }
    None
}

/// Reads an event and its arguments to the end.
fn strict<'a>(cursor: &mut Cursor<'a>) -> Result<Event<'a>, Broken> {
    let event = Event::read(cursor, |_| true)?;
    event.arguments(cursor.bytes)?;
    Ok(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_event_is_found_after_a_break() {
        let event = r#"{"ph": "X", "name": "a", "args": {"list": [{"x": 1}, {"y": 2}]}}"#;
        for broken in [
            r#"{"ph": "X", "name": "a, "args": {}}"#,
            r#"{"ph": "X", "name: "a", "args": {}}"#,
            r#"{"ph": "X", "name": "C:\temp\", "args": {}}"#,
            r#"{"ph": "X", "args": {"a": 1}"#,
            r#"{"ph": "X", "args": {"a: 1}}"#,
            "}",
        ] {
            let broken = broken.replace(r"\\", r"\");
            let text = format!("{event},\n{broken},\n{event}, {event}");
            assert_eq!(after_break(text.as_bytes()), Some(event.len() + broken.len() + 4), "{broken}");
        }
        assert_eq!(after_break(format!("{event},{event}").as_bytes()), None);
        assert_eq!(after_break(br#"{"ph": "X", "name": "cut"#), None);
    }

    #[test]
    fn a_search_in_garbage_ends() {
        let garbage = br#",{"a":["#.repeat(200_000);
        assert_eq!(next_event(&garbage, 0), None);
    }
}
