//! Wire format between the processes of one run: a handshake, then frames; little-endian.
//!
//! The connecting process sends a hello with a nonce. Rank 0 answers with its own nonce and its proof that it knows
//! the job's secret. The process then sends its rank with its own proof, and rank 0 accepts or refuses it. A frame is
//! `kind: u8, operation: u8, number: u64, length: u32` and `length` bytes.

use std::io::{self, Read, Write};

use super::secret::{Nonce, Proof, Secret, Side};
use base::text::printable;

const MAGIC: [u8; 8] = *b"LADDERSC";
const PROTOCOL: u32 = 2;
/// Maximum payload length; larger than any report.
const LONGEST: u32 = 1 << 30;
const LONGEST_TEXT: u32 = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Barrier,
    Gather,
    Broadcast,
    Clock,
}

impl Operation {
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Data { operation: Operation, number: u64, bytes: Vec<u8> },
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

    pub fn read(from: &mut impl Read) -> io::Result<Self> {
        let [kind, operation] = array(from)?;
        let number = u64::from_le_bytes(array(from)?);
        let bytes = sized(from, LONGEST)?;
        let text = |bytes: Vec<u8>| printable(&String::from_utf8_lossy(&bytes)).into_owned();
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

/// First message of a connecting process: its job, nothing about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub job: u64,
    pub nonce: Nonce,
}

impl Hello {
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut whole = begin();
        whole.extend(self.job.to_le_bytes());
        whole.extend(self.nonce);
        to.write_all(&whole)?;
        to.flush()
    }

    pub fn read(from: &mut impl Read) -> io::Result<Self> {
        check_begin(from)?;
        Ok(Self { job: u64::from_le_bytes(array(from)?), nonce: array(from)? })
    }
}

/// Transcript of a handshake, covered by both proofs. It includes the port: a process that relays the messages
/// listens on another port, so its proofs are invalid.
#[derive(Clone, Debug)]
pub(super) struct Greeting {
    pub hello: Hello,
    /// Rank 0's 32 random bytes; invalidates proofs from earlier handshakes.
    pub nonce: Nonce,
    pub port: u16,
}

impl Greeting {
    fn said<T>(&self, more: &[u8], body: impl FnOnce(&[&[u8]]) -> T) -> T {
        let (job, port) = (self.hello.job.to_le_bytes(), self.port.to_le_bytes());
        body(&[&job, &port, &self.hello.nonce, &self.nonce, more])
    }

    pub fn first(&self, secret: &Secret) -> Proof {
        self.said(&[], |said| secret.prove(Side::First, said))
    }

    pub fn is_first(&self, secret: &Secret, proof: &Proof) -> bool {
        self.said(&[], |said| secret.accepts(Side::First, said, proof))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Visitor {
    pub version: String,
    pub rank: u32,
    pub ranks: u32,
}

impl Visitor {
    /// Identity of this process, with this program's version.
    pub fn new(rank: usize, ranks: usize) -> Self {
        let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Self { version: env!("CARGO_PKG_VERSION").to_owned(), rank: small(rank), ranks: small(ranks) }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut whole = Vec::new();
        text(&mut whole, &self.version);
        whole.extend(self.rank.to_le_bytes());
        whole.extend(self.ranks.to_le_bytes());
        whole
    }

    pub fn write(&self, greeting: &Greeting, secret: &Secret, to: &mut impl Write) -> io::Result<()> {
        let mut whole = self.bytes();
        let proof = greeting.said(&whole, |said| secret.prove(Side::Other, said));
        whole.extend(proof);
        to.write_all(&whole)?;
        to.flush()
    }

    /// Reads and verifies the identity; without a valid proof its contents are neither used nor printed.
    pub fn read(greeting: &Greeting, secret: &Secret, from: &mut impl Read) -> io::Result<Self> {
        let version = String::from_utf8_lossy(&sized(from, LONGEST_TEXT)?).into_owned();
        let [rank, ranks] = [array(from)?, array(from)?].map(u32::from_le_bytes);
        let visitor = Self { version, rank, ranks };
        let proof = array(from)?;
        match greeting.said(&visitor.bytes(), |said| secret.accepts(Side::Other, said, &proof)) {
            true => Ok(visitor),
            false => Err(bad("it does not have this job's secret".into())),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Rank 0's nonce and proof; asks the process to identify itself.
    Challenge {
        nonce: Nonce,
        proof: Proof,
    },
    Welcome,
    Elsewhere,
    Refused(String),
}

impl Answer {
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut whole = begin();
        match self {
            Self::Welcome => whole.push(0),
            Self::Elsewhere => whole.push(1),
            Self::Refused(why) => {
                whole.push(2);
                text(&mut whole, why);
            }
            Self::Challenge { nonce, proof } => {
                whole.push(3);
                whole.extend(nonce);
                whole.extend(proof);
            }
        }
        to.write_all(&whole)?;
        to.flush()
    }

    pub fn read(from: &mut impl Read) -> io::Result<Self> {
        check_begin(from)?;
        let [kind] = array(from)?;
        match kind {
            0 => Ok(Self::Welcome),
            1 => Ok(Self::Elsewhere),
            2 => {
                let why = String::from_utf8_lossy(&sized(from, LONGEST_TEXT)?).into_owned();
                Ok(Self::Refused(printable(&why).into_owned()))
            }
            3 => Ok(Self::Challenge { nonce: array(from)?, proof: array(from)? }),
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

/// Reads a length and that many bytes as they arrive, so a false length allocates nothing.
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

/// Parses arbitrary bytes as every message type, for fuzzing; only termination matters.
#[cfg(any(test, fuzzing))]
pub fn read_any_message(bytes: &[u8]) {
    let greeting = Greeting { hello: Hello { job: 9, nonce: [1; 32] }, nonce: [2; 32], port: 23_000 };
    let mut from = bytes;
    while Frame::read(&mut from).is_ok() {}
    let _ = Hello::read(&mut &*bytes);
    let _ = Answer::read(&mut &*bytes);
    let _ = Visitor::read(&greeting, &Secret::of("s"), &mut &*bytes);
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
        let greeting = greeting();
        let mut bytes = Vec::new();
        greeting.hello.write(&mut bytes).unwrap();
        assert_eq!(Hello::read(&mut bytes.as_slice()).unwrap(), greeting.hello);
        let challenge = Answer::Challenge { nonce: [3; 32], proof: [4; 32] };
        for answer in [challenge, Answer::Welcome, Answer::Elsewhere, Answer::Refused("no".into())] {
            let mut bytes = Vec::new();
            answer.write(&mut bytes).unwrap();
            assert_eq!(Answer::read(&mut bytes.as_slice()).unwrap(), answer);
        }
    }

    fn greeting() -> Greeting {
        Greeting { hello: Hello { job: 9, nonce: [1; 32] }, nonce: [2; 32], port: 23_000 }
    }

    #[test]
    fn who_comes_is_believed_with_its_proof_alone() {
        let (secret, greeting, visitor) = (Secret::of("of this job"), greeting(), Visitor::new(3, 8));
        let mut bytes = Vec::new();
        visitor.write(&greeting, &secret, &mut bytes).unwrap();
        let read = |greeting: &Greeting, secret: &Secret, bytes: &[u8]| {
            Visitor::read(greeting, secret, &mut &bytes[..]).map_err(|e| e.to_string())
        };
        assert_eq!(read(&greeting, &secret, &bytes), Ok(visitor));
        let refused = Err("it does not have this job's secret".to_owned());
        assert_eq!(read(&greeting, &Secret::of("another"), &bytes), refused);
        assert_eq!(
            read(&Greeting { nonce: [7; 32], ..greeting.clone() }, &secret, &bytes),
            refused,
            "replayed"
        );
        assert_eq!(
            read(&Greeting { port: 1, ..greeting.clone() }, &secret, &bytes),
            refused,
            "passed on"
        );
        let rank = bytes.len() - 40;
        bytes[rank] ^= 1;
        assert_eq!(read(&greeting, &secret, &bytes), refused, "another rank");
        let proof = greeting.first(&secret);
        assert!(
            greeting.is_first(&secret, &proof) && !greeting.is_first(&Secret::of("another"), &proof)
        );
    }

    #[test]
    fn what_other_ranks_say_cannot_steer_a_terminal() {
        let mut bytes = Vec::new();
        Frame::Abort("rank 1:\n\x1b[2J\u{9b}0m gone".into()).write(&mut bytes).unwrap();
        let Frame::Abort(why) = Frame::read(&mut bytes.as_slice()).unwrap() else { panic!() };
        assert!(why.starts_with("rank 1:\n") && why.ends_with("gone"), "{why:?}");
        assert!(!why.contains(['\x1b', '\u{9b}']), "{why:?}");
    }

    #[test]
    fn strangers_and_other_versions_are_told_apart() {
        let mut bytes = Vec::new();
        greeting().hello.write(&mut bytes).unwrap();
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
            read_any_message(&bytes);
        }
    }
}
