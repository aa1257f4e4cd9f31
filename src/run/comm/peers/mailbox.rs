//! Messages between the ranks of a run, and the mailbox of one rank in which they arrive, over threads or TCP.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base::text::printable;

/// Maximum payload length; larger than any report.
const MAX_FRAME: u32 = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerOperation {
    Barrier,
    Gather,
    Broadcast,
    Clock,
}

impl PeerOperation {
    const ALL: [Self; 4] = [Self::Barrier, Self::Gather, Self::Broadcast, Self::Clock];

    pub fn name(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Gather => "gathering of reports",
            Self::Broadcast => "broadcast",
            Self::Clock => "comparison of clocks",
        }
    }
}

/// A message: over TCP `kind: u8, operation: u8, number: u64, length: u32`, little-endian, and `length` bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Data { operation: PeerOperation, number: u64, bytes: Vec<u8> },
    Phase(String),
    Leave,
    Abort(String),
}

impl Frame {
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let (kind, operation, number, bytes): (u8, u8, u64, &[u8]) = match self {
            Self::Data { operation, number, bytes } => (0, *operation as u8, *number, bytes),
            Self::Phase(what) => (1, 0, 0, what.as_bytes()),
            Self::Leave => (2, 0, 0, &[]),
            Self::Abort(why) => (3, 0, 0, why.as_bytes()),
        };
        let length = u32::try_from(bytes.len()).ok().filter(|n| *n <= MAX_FRAME).ok_or_else(|| {
            malformed(format!("a message of {} bytes is longer than {MAX_FRAME}", bytes.len()))
        })?;
        let mut whole = Vec::with_capacity(14 + bytes.len());
        whole.extend([kind, operation]);
        whole.extend(number.to_le_bytes());
        whole.extend(length.to_le_bytes());
        whole.extend(bytes);
        to.write_all(&whole)?;
        to.flush()
    }

    pub fn read(from: &mut impl Read) -> io::Result<Self> {
        let [kind, operation] = array(from)?;
        let number = u64::from_le_bytes(array(from)?);
        let bytes = sized(from, MAX_FRAME)?;
        let text = |bytes: Vec<u8>| printable(&String::from_utf8_lossy(&bytes)).into_owned();
        match kind {
            0 => {
                let operation = PeerOperation::ALL
                    .get(usize::from(operation))
                    .copied()
                    .ok_or_else(|| malformed(format!("unknown operation {operation}")))?;
                Ok(Self::Data { operation, number, bytes })
            }
            1 => Ok(Self::Phase(text(bytes))),
            2 => Ok(Self::Leave),
            3 => Ok(Self::Abort(text(bytes))),
            _ => Err(malformed(format!("unknown kind of message {kind}"))),
        }
    }
}

pub(super) fn array<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Reads a length and that many bytes as they arrive, so a false length allocates nothing.
pub(super) fn sized(from: &mut impl Read, longest: u32) -> io::Result<Vec<u8>> {
    let length = u32::from_le_bytes(array(from)?);
    if length > longest {
        return Err(malformed(format!("a length of {length} bytes is more than {longest}")));
    }
    let mut bytes = Vec::new();
    let read = from.take(u64::from(length)).read_to_end(&mut bytes)?;
    if read < length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

pub(super) fn malformed(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[derive(Debug)]
pub(super) struct Mailbox {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    from: Vec<Sender>,
    broken: Option<String>,
}

#[derive(Debug)]
struct Sender {
    messages: VecDeque<(PeerOperation, u64, Vec<u8>)>,
    /// Latest activity, as ` (loading weights)`; empty if never reported.
    phase: String,
    progress: Instant,
    left: bool,
}

/// Reason why a wait for a message failed.
#[derive(Debug)]
pub(super) enum ReceiveError {
    Broken(String),
    Left,
    /// The rank made no progress for `silent`; `phase` is its latest activity.
    Late {
        phase: String,
        silent: Duration,
    },
}

impl Mailbox {
    pub fn new(ranks: usize) -> Self {
        let sender = || Sender {
            messages: VecDeque::new(),
            phase: String::new(),
            progress: Instant::now(),
            left: false,
        };
        let from = (0..ranks).map(|_| sender()).collect();
        Self { state: Mutex::new(State { from, broken: None }), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers a frame from rank `from`.
    pub fn take(&self, from: usize, frame: Frame) {
        let mut state = self.lock();
        let sender = &mut state.from[from];
        match frame {
            Frame::Data { operation, number, bytes } => {
                sender.progress = Instant::now();
                sender.messages.push_back((operation, number, bytes));
            }
            Frame::Phase(what) => note(sender, &what),
            Frame::Leave => sender.left = true,
            Frame::Abort(why) => {
                state.broken.get_or_insert(why);
            }
        }
        self.changed.notify_all();
    }

    pub fn phase(&self, of: usize, what: &str) {
        note(&mut self.lock().from[of], what);
    }

    /// Ends all waits with `why`; the first reason wins.
    pub fn abort(&self, why: &str) {
        self.lock().broken.get_or_insert_with(|| why.to_owned());
        self.changed.notify_all();
    }

    /// Handles a closed connection. Returns true if the rank died, that is, it had not left before.
    pub fn lost(&self, from: usize, why: &str) -> bool {
        let mut state = self.lock();
        let died = !state.from[from].left && state.broken.is_none();
        if died {
            state.broken = Some(why.to_owned());
        }
        self.changed.notify_all();
        died
    }

    pub fn check(&self) -> Result<(), String> {
        self.lock().broken.clone().map_or(Ok(()), Err)
    }

    /// Activity of a rank that has no message waiting; `None` if it has one.
    pub fn missing(&self, from: usize) -> Option<String> {
        let state = self.lock();
        let sender = &state.from[from];
        sender.messages.is_empty().then(|| sender.phase.clone())
    }

    /// Waits for the next message of rank `from`. With `patience`, fails after that long without progress.
    pub fn wait(
        &self,
        from: usize,
        patience: Option<Duration>,
    ) -> Result<(PeerOperation, u64, Vec<u8>), ReceiveError> {
        let began = Instant::now();
        let mut state = self.lock();
        loop {
            if let Some(why) = &state.broken {
                return Err(ReceiveError::Broken(why.clone()));
            }
            let sender = &mut state.from[from];
            if let Some(message) = sender.messages.pop_front() {
                return Ok(message);
            }
            if sender.left {
                return Err(ReceiveError::Left);
            }
            // activity before this wait does not count as progress
            let since = sender.progress.max(began);
            state = match patience {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(patience) => {
                    let Some(left) = patience.checked_sub(since.elapsed()) else {
                        let phase = sender.phase.clone();
                        return Err(ReceiveError::Late { phase, silent: patience });
                    };
                    let woken = self.changed.wait_timeout(state, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

fn note(sender: &mut Sender, what: &str) {
    sender.phase = format!(" ({what})");
    sender.progress = Instant::now();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let data =
            Frame::Data { operation: PeerOperation::Clock, number: u64::MAX, bytes: vec![7; 100_000] };
        let frames = [data, Frame::Phase("löst".into()), Frame::Leave, Frame::Abort("why".into())];
        let mut bytes = Vec::new();
        frames.iter().for_each(|frame| frame.write(&mut bytes).unwrap());
        let mut from = bytes.as_slice();
        for frame in frames {
            assert_eq!(Frame::read(&mut from).unwrap(), frame);
        }
    }

    #[test]
    fn what_other_ranks_say_cannot_steer_a_terminal() {
        let mut bytes = Vec::new();
        Frame::Abort("rank 1:\n\x1b[2J\u{9b}0m gone".into()).write(&mut bytes).unwrap();
        let Frame::Abort(why) = Frame::read(&mut bytes.as_slice()).unwrap() else { panic!() };
        assert!(why.starts_with("rank 1:\n") && why.ends_with("gone"), "{why:?}");
        assert!(!why.contains(['\x1b', '\u{9b}']), "{why:?}");
    }
}
