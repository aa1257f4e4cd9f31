//! Terminal events, with the keys that crossterm 0.29 takes apart put together again: it reads Escape followed at once
//! by an arrow (`ESC ESC [ A`) as Escape, `[` and `A`.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// Maximum gap between the bytes of one key. A `[` that comes later was typed.
const GAP: Duration = Duration::from_millis(20);

/// Longest control sequence of a key.
const LONGEST: usize = 16;

pub trait KeySource {
    /// True if an event arrives within this time.
    fn poll(&mut self, within: Duration) -> io::Result<bool>;

    fn read(&mut self) -> io::Result<Event>;
}

/// Events of this process's terminal.
#[derive(Debug)]
pub struct TerminalKeys;

impl KeySource for TerminalKeys {
    fn poll(&mut self, within: Duration) -> io::Result<bool> {
        crossterm::event::poll(within)
    }

    fn read(&mut self) -> io::Result<Event> {
        crossterm::event::read()
    }
}

#[derive(Debug)]
pub struct Keys<S> {
    source: S,
    ready: VecDeque<Event>,
    /// True if the last event was Escape, whose next bytes may be a key that lost its first one.
    after_escape: bool,
}

impl<S: KeySource> Keys<S> {
    pub fn new(source: S) -> Self {
        Self { source, ready: VecDeque::new(), after_escape: false }
    }

    /// Waits for the next event. Escape is returned at once; only the event after it is examined.
    pub fn next(&mut self) -> io::Result<Event> {
        if std::mem::take(&mut self.after_escape) && self.ready.is_empty() {
            self.join()?;
        }
        let event = match self.ready.pop_front() {
            Some(event) => event,
            None => self.source.read()?,
        };
        self.after_escape = matches!(&event, Event::Key(key) if key.code == KeyCode::Esc);
        Ok(event)
    }

    /// Reads the events of a control sequence without its Escape, and replaces them by their key.
    fn join(&mut self) -> io::Result<()> {
        let (mut events, mut text) = (Vec::new(), String::new());
        while text.len() < LONGEST && self.source.poll(GAP)? {
            let event = self.source.read()?;
            let typed = typed(&event);
            events.push(event);
            let Some(c) = typed else { break };
            text.push(c);
            match (text.len(), c) {
                (1, '[' | 'O') => {}
                (1, _) => break,
                // a final byte ends the sequence
                (_, '@'..='~') => {
                    let key = key_of(&text).map(Event::Key);
                    // a control sequence of no known key types nothing
                    if key.is_some() || text.starts_with('[') {
                        events.clear();
                    }
                    events.extend(key);
                    break;
                }
                _ => {}
            }
        }
        self.ready.extend(events);
        Ok(())
    }
}

fn typed(event: &Event) -> Option<char> {
    let Event::Key(KeyEvent { code: KeyCode::Char(c), modifiers, kind: KeyEventKind::Press, .. }) =
        event
    else {
        return None;
    };
    (*modifiers - KeyModifiers::SHIFT).is_empty().then_some(*c)
}

/// Key of a control sequence without its Escape: `[A`, `OA`, `[1;5C`, `[5~`.
fn key_of(sequence: &str) -> Option<KeyEvent> {
    let (last, body) = (sequence.chars().last()?, &sequence[1..sequence.len() - 1]);
    let mut numbers = body.split(';').map(|number| number.parse::<u8>().ok());
    let (number, modifier) = (numbers.next().flatten(), numbers.next().flatten());
    let code = match (last, number) {
        ('A', _) => KeyCode::Up,
        ('B', _) => KeyCode::Down,
        ('C', _) => KeyCode::Right,
        ('D', _) => KeyCode::Left,
        ('H', _) | ('~', Some(1 | 7)) => KeyCode::Home,
        ('F', _) | ('~', Some(4 | 8)) => KeyCode::End,
        ('Z', _) => KeyCode::BackTab,
        ('P'..='S', _) => KeyCode::F(last as u8 - b'P' + 1),
        ('~', Some(2)) => KeyCode::Insert,
        ('~', Some(3)) => KeyCode::Delete,
        ('~', Some(5)) => KeyCode::PageUp,
        ('~', Some(6)) => KeyCode::PageDown,
        ('~', Some(number @ 11..=15)) => KeyCode::F(number - 10),
        ('~', Some(number @ 17..=21)) => KeyCode::F(number - 11),
        ('~', Some(number @ 23..=24)) => KeyCode::F(number - 12),
        _ => return None,
    };
    // xterm's modifiers: 1 + shift 1, alt 2, control 4
    let bits = modifier.map_or(0, |modifier| modifier.saturating_sub(1));
    let has = |bit: u8, modifier| if bits & bit > 0 { modifier } else { KeyModifiers::NONE };
    let modifiers =
        has(1, KeyModifiers::SHIFT) | has(2, KeyModifiers::ALT) | has(4, KeyModifiers::CONTROL);
    Some(KeyEvent::new(code, modifiers))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Events that are all available at once; afterwards the terminal is gone.
    struct Queue(VecDeque<Event>);

    impl KeySource for Queue {
        fn poll(&mut self, _: Duration) -> io::Result<bool> {
            Ok(!self.0.is_empty())
        }

        fn read(&mut self) -> io::Result<Event> {
            self.0.pop_front().ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
        }
    }

    /// Keys of what crossterm reads, `e` for Escape.
    fn read(events: &str) -> Vec<KeyEvent> {
        let event = |c: char| {
            let shift = if c.is_uppercase() { KeyModifiers::SHIFT } else { KeyModifiers::NONE };
            Event::Key(match c {
                'e' => KeyEvent::from(KeyCode::Esc),
                c => KeyEvent::new(KeyCode::Char(c), shift),
            })
        };
        let mut keys = Keys::new(Queue(events.chars().map(event).collect()));
        let key = |event| if let Event::Key(key) = event { Some(key) } else { None };
        std::iter::from_fn(|| keys.next().ok()).filter_map(key).collect()
    }

    fn codes(events: &str) -> Vec<KeyCode> {
        read(events).into_iter().map(|key| key.code).collect()
    }

    #[test]
    fn a_key_at_once_after_escape_is_itself() {
        use KeyCode::{Char, Delete, Down, Esc, F, Home, PageUp, Up};
        assert_eq!(codes("e[A"), [Esc, Up]);
        assert_eq!(codes("e[Ae[Be[5~"), [Esc, Up, Esc, Down, Esc, PageUp]);
        assert_eq!(codes("eOHe[3~eOP"), [Esc, Home, Esc, Delete, Esc, F(1)]);
        assert_eq!(codes("e[Aj"), [Esc, Up, Char('j')]);
        let held = read("e[1;5A");
        assert_eq!((held[1].code, held[1].modifiers), (Up, KeyModifiers::CONTROL));
        // letters stay letters, whatever follows
        assert_eq!(codes("eqj"), [Esc, Char('q'), Char('j')]);
        assert_eq!(codes("e["), [Esc, Char('[')]);
        assert_eq!(codes("eOj"), [Esc, Char('O'), Char('j')]);
        assert_eq!(codes("ee[A"), [Esc, Esc, Up]);
        assert_eq!(codes("[A"), [Char('['), Char('A')], "typed without Escape");
        assert_eq!(codes("e[99xj"), [Esc, Char('j')], "an unknown key does nothing");
    }
}
