//! What goes over the wire between processes of one run: a greeting, then frames. Little-endian.
//!
//! A frame is `kind: u8, operation: u8, number: u64, length: u32` and as many bytes.

use std::io::{self, Read, Write};

/// First bytes of a greeting and of its answer.
const MAGIC: [u8; 8] = *b"LADDERSC";
/// Counts changes of what follows.
const PROTOCOL: u32 = 1;
/// More than any report: a length beyond this is no frame of ours.
const LONGEST: u32 = 1 << 30;
/// Longest text of a greeting or an answer.
const LONGEST_TEXT: u32 = 4096;

/// Which operation a message belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Barrier,
    Gather,
    Broadcast,
    Clock,
}

impl Operation {
    const ALL: [Self; 4] = [Self::Barrier, Self::Gather, Self::Broadcast, Self::Clock];

    /// What messages for people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Gather => "gathering of reports",
            Self::Broadcast => "broadcast",
            Self::Clock => "comparison of clocks",
        }
    }
}

/// What one rank sends to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// A part of a collective operation.
    Data { operation: Operation, number: u64, bytes: Vec<u8> },
    /// What the sender is doing.
    Phase(String),
    /// The sender ends in good order.
    Leave,
    /// Some rank cannot go on, and why.
    Abort(String),
}

impl Frame {
    /// Writes the frame whole.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let (kind, operation, number, bytes): (u8, u8, u64, &[u8]) = match self {
            Self::Data { operation, number, bytes } => (0, *operation as u8, *number, bytes),
            Self::Phase(what) => (1, 0, 0, what.as_bytes()),
            Self::Leave => (2, 0, 0, &[]),
            Self::Abort(why) => (3, 0, 0, why.as_bytes()),
        };
        let length = u32::try_from(bytes.len()).ok().filter(|n| *n <= LONGEST).ok_or_else(|| {
            bad(format!("a message of {} bytes is longer than {LONGEST}", bytes.len()))
        })?;
        let mut whole = Vec::with_capacity(14 + bytes.len());
        whole.extend([kind, operation]);
        whole.extend(number.to_le_bytes());
        whole.extend(length.to_le_bytes());
        whole.extend(bytes);
        to.write_all(&whole)?;
        to.flush()
    }

    /// Reads one frame; blocks.
    pub fn read(from: &mut impl Read) -> io::Result<Self> {
        let [kind, operation] = array(from)?;
        let number = u64::from_le_bytes(array(from)?);
        let bytes = sized(from, LONGEST)?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        match kind {
            0 => {
                let operation = Operation::ALL
                    .get(usize::from(operation))
                    .copied()
                    .ok_or_else(|| bad(format!("unknown operation {operation}")))?;
                Ok(Self::Data { operation, number, bytes })
            }
            1 => Ok(Self::Phase(text(bytes))),
            2 => Ok(Self::Leave),
            3 => Ok(Self::Abort(text(bytes))),
            _ => Err(bad(format!("unknown kind of message {kind}"))),
        }
    }
}

/// The greeting of a process that comes to the meeting: who it is, and to which job it belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub version: String,
    pub job: u64,
    pub rank: u32,
    pub ranks: u32,
}

impl Hello {
    /// The greeting of this very program.
    pub fn new(job: u64, rank: usize, ranks: usize) -> Self {
        let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Self { version, job, rank: small(rank), ranks: small(ranks) }
    }

    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut whole = begin();
        text(&mut whole, &self.version);
        whole.extend(self.job.to_le_bytes());
        whole.extend(self.rank.to_le_bytes());
        whole.extend(self.ranks.to_le_bytes());
        to.write_all(&whole)?;
        to.flush()
    }

    pub fn read(from: &mut impl Read) -> io::Result<Self> {
        check_begin(from)?;
        let version = String::from_utf8_lossy(&sized(from, LONGEST_TEXT)?).into_owned();
        let job = u64::from_le_bytes(array(from)?);
        let rank = u32::from_le_bytes(array(from)?);
        let ranks = u32::from_le_bytes(array(from)?);
        Ok(Self { version, job, rank, ranks })
    }
}

/// What rank 0 says to who came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Welcome,
    /// This is another job's meeting: look elsewhere.
    Elsewhere,
    /// The process may not take part, for this reason.
    Refused(String),
}

impl Answer {
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let (kind, why) = match self {
            Self::Welcome => (0, ""),
            Self::Elsewhere => (1, ""),
            Self::Refused(why) => (2, why.as_str()),
        };
        let mut whole = begin();
        whole.push(kind);
        text(&mut whole, why);
        to.write_all(&whole)?;
        to.flush()
    }

    pub fn read(from: &mut impl Read) -> io::Result<Self> {
        check_begin(from)?;
        let [kind] = array(from)?;
        let why = String::from_utf8_lossy(&sized(from, LONGEST_TEXT)?).into_owned();
        match kind {
            0 => Ok(Self::Welcome),
            1 => Ok(Self::Elsewhere),
            2 => Ok(Self::Refused(why)),
            _ => Err(bad(format!("unknown answer {kind}"))),
        }
    }
}

fn begin() -> Vec<u8> {
    let mut whole = MAGIC.to_vec();
    whole.extend(PROTOCOL.to_le_bytes());
    whole
}

fn check_begin(from: &mut impl Read) -> io::Result<()> {
    let magic: [u8; 8] = array(from)?;
    if magic != MAGIC {
        return Err(bad("it is no ladderscope".into()));
    }
    let protocol = u32::from_le_bytes(array(from)?);
    if protocol != PROTOCOL {
        return Err(bad(format!(
            "it speaks protocol {protocol}, this ladderscope {PROTOCOL}: start the same version everywhere"
        )));
    }
    Ok(())
}

fn text(whole: &mut Vec<u8>, text: &str) {
    let bytes = &text.as_bytes()[..text.len().min(LONGEST_TEXT as usize)];
    whole.extend((bytes.len() as u32).to_le_bytes());
    whole.extend(bytes);
}

fn array<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// A length and as many bytes, taken in as they come: a length that lies allocates nothing.
fn sized(from: &mut impl Read, longest: u32) -> io::Result<Vec<u8>> {
    let length = u32::from_le_bytes(array(from)?);
    if length > longest {
        return Err(bad(format!("a length of {length} bytes is more than {longest}")));
    }
    let mut bytes = Vec::new();
    let read = from.take(u64::from(length)).read_to_end(&mut bytes)?;
    if read < length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

fn bad(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let data =
            Frame::Data { operation: Operation::Clock, number: u64::MAX, bytes: vec![7; 100_000] };
        let frames = [data, Frame::Phase("löst".into()), Frame::Leave, Frame::Abort("why".into())];
        let mut bytes = Vec::new();
        frames.iter().for_each(|frame| frame.write(&mut bytes).unwrap());
        let mut from = bytes.as_slice();
        for frame in frames {
            assert_eq!(Frame::read(&mut from).unwrap(), frame);
        }
        let hello = Hello::new(9, 3, 8);
        let mut bytes = Vec::new();
        hello.write(&mut bytes).unwrap();
        assert_eq!(Hello::read(&mut bytes.as_slice()).unwrap(), hello);
        for answer in [Answer::Welcome, Answer::Elsewhere, Answer::Refused("no".into())] {
            let mut bytes = Vec::new();
            answer.write(&mut bytes).unwrap();
            assert_eq!(Answer::read(&mut bytes.as_slice()).unwrap(), answer);
        }
    }

    #[test]
    fn strangers_and_other_versions_are_told_apart() {
        let mut bytes = Vec::new();
        Hello::new(1, 0, 2).write(&mut bytes).unwrap();
        bytes[8] = 77;
        let error = Hello::read(&mut bytes.as_slice()).unwrap_err().to_string();
        assert!(error.contains("protocol 77"), "{error}");
        let error = Hello::read(&mut b"GET / HTTP/1.1\r\n\r\n".as_slice()).unwrap_err().to_string();
        assert!(error.contains("no ladderscope"), "{error}");
    }

    proptest! {
        #[test]
        fn garbage_is_an_error_not_a_panic_and_allocates_no_more_than_came(
            bytes in proptest::collection::vec(any::<u8>(), 0..200)
        ) {
            let _ = Frame::read(&mut bytes.as_slice());
            let _ = Hello::read(&mut bytes.as_slice());
            let _ = Answer::read(&mut bytes.as_slice());
        }
    }
}
