//! Handshake between two processes of a job: both prove that they know the job's secret before anything else that
//! they say is used or printed. The secret itself is never sent.
//!
//! Each side sends a random nonce. A proof is the HMAC-SHA256 (RFC 2104), keyed by the secret, of the sender's role,
//! the job, the port and every message so far, so it is invalid for another job, for a replayed handshake, and for
//! one relayed through another port. A message is a `u32` length, little-endian, and that many bytes of JSON.

use std::io::{self, Read, Write};

use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::mailbox::{array, malformed, sized};
use super::secret::{Secret, random_bytes};
use base::text::printable;

/// Version of everything that ranks send each other. Increase it with any change of [`Message`], of the input of a
/// proof, or of a mailbox frame: ranks of different versions then refuse each other instead of misreading bytes.
const PROTOCOL: u32 = 3;
/// Maximum length of a message in bytes.
const MAX_MESSAGE: u32 = 8192;
/// Maximum length of a refusal in characters, of at most 6 bytes each in JSON.
const MAX_REFUSAL: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Message {
    /// First message of a connecting process; says nothing about itself.
    Hello {
        protocol: u32,
        nonce: [u8; 32],
    },
    /// Rank 0's nonce, followed by its proof.
    Challenge {
        nonce: [u8; 32],
    },
    /// Identity of the connecting process, followed by its proof.
    Join(MeetingMember),
    Welcome,
    Refused(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MeetingMember {
    /// Version of the program.
    pub version: String,
    pub rank: usize,
    pub ranks: usize,
}

/// Role of the prover; a proof cannot be reflected to its sender.
#[derive(Clone, Copy, Debug)]
enum Role {
    Listener,
    Joiner,
}

/// Answer of rank 0 to a process that has joined; `Err` is the reason of a refusal.
pub(super) type Admission = Result<(), String>;

impl Message {
    fn bytes(&self) -> io::Result<Vec<u8>> {
        let json = serde_json::to_vec(self)?;
        let mut bytes = (json.len() as u32).to_le_bytes().to_vec();
        bytes.extend(json);
        Ok(bytes)
    }
}

/// Sends the last message of a handshake: a welcome, or the reason of a refusal.
pub(super) fn answer(mut to: impl Write, admission: Result<(), &str>) -> io::Result<()> {
    let message = match admission {
        Ok(()) => Message::Welcome,
        Err(why) => Message::Refused(why.chars().take(MAX_REFUSAL).collect()),
    };
    to.write_all(&message.bytes()?)?;
    to.flush()
}

/// One side of a handshake.
pub(super) struct Handshake<R, W> {
    from: R,
    to: W,
    transcript: Hmac<Sha256>,
}

impl<R: Read, W: Write> Handshake<R, W> {
    pub fn new((from, to): (R, W), secret: &Secret, job: u64, port: u16) -> Self {
        let mut transcript = secret.mac();
        transcript.update(&job.to_le_bytes());
        transcript.update(&port.to_le_bytes());
        Self { from, to, transcript }
    }

    /// Rank 0's side up to the identity of the other process. [`answer`] ends the handshake.
    pub fn accept(&mut self) -> io::Result<MeetingMember> {
        match self.receive()? {
            Message::Hello { protocol: PROTOCOL, .. } => {}
            Message::Hello { protocol, .. } => {
                return Err(malformed(format!(
                    "it speaks protocol {protocol}, this ladderscope {PROTOCOL}: start the same version everywhere"
                )));
            }
            _ => return Err(unexpected()),
        }
        self.send(&Message::Challenge { nonce: nonce()? })?;
        self.prove(Role::Listener)?;
        let joined = self.receive().map_err(|error| match error.kind() {
            // the other process checks this proof first
            io::ErrorKind::UnexpectedEof => malformed(
                "it closed the connection during authentication: it has another secret, or belongs to \
                 another job"
                    .into(),
            ),
            _ => error,
        })?;
        let Message::Join(member) = joined else { return Err(unexpected()) };
        match self.is_proven(Role::Joiner)? {
            true => Ok(member),
            false => Err(malformed("it does not have this job's secret, or is of another job".into())),
        }
    }

    /// The connecting side. A refusal that comes before rank 0's proof may be anyone's, so it is an error like a
    /// failed connection.
    pub fn join(&mut self, member: MeetingMember) -> io::Result<Admission> {
        self.send(&Message::Hello { protocol: PROTOCOL, nonce: nonce()? })?;
        match self.receive()? {
            Message::Challenge { .. } => {}
            Message::Refused(why) => return Err(io::Error::other(printable(&why).into_owned())),
            _ => return Err(unexpected()),
        }
        if !self.is_proven(Role::Listener)? {
            return Err(io::Error::other(
                "who listens there does not have this job's secret, or is of another job",
            ));
        }
        self.send(&Message::Join(member))?;
        self.prove(Role::Joiner)?;
        match self.receive()? {
            Message::Welcome => Ok(Ok(())),
            Message::Refused(why) => Ok(Err(printable(&why).into_owned())),
            _ => Err(unexpected()),
        }
    }

    fn send(&mut self, message: &Message) -> io::Result<()> {
        let bytes = message.bytes()?;
        self.transcript.update(&bytes);
        self.to.write_all(&bytes)?;
        self.to.flush()
    }

    fn receive(&mut self) -> io::Result<Message> {
        let json = sized(&mut self.from, MAX_MESSAGE).map_err(|e| match e.kind() {
            io::ErrorKind::InvalidData => foreign(),
            _ => e,
        })?;
        let message = serde_json::from_slice(&json).map_err(|_| foreign())?;
        self.transcript.update(&(json.len() as u32).to_le_bytes());
        self.transcript.update(&json);
        Ok(message)
    }

    fn proof(&self, role: Role) -> Hmac<Sha256> {
        let mut mac = self.transcript.clone();
        mac.update(match role {
            Role::Listener => b"ladderscope rank 0",
            Role::Joiner => b"ladderscope joiner",
        });
        mac
    }

    fn prove(&mut self, role: Role) -> io::Result<()> {
        let proof = self.proof(role).finalize().into_bytes();
        self.to.write_all(&proof)?;
        self.to.flush()
    }

    /// Reads the other side's proof and compares it in constant time.
    fn is_proven(&mut self, role: Role) -> io::Result<bool> {
        let proof: [u8; 32] = array(&mut self.from)?;
        Ok(self.proof(role).verify_slice(&proof).is_ok())
    }
}

fn foreign() -> io::Error {
    malformed("not ladderscope, or another version".into())
}

fn unexpected() -> io::Error {
    malformed("its message is out of order".into())
}

fn nonce() -> io::Result<[u8; 32]> {
    random_bytes().map_err(|e| io::Error::other(e.to_string()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn side<'a>(secret: &str, job: u64, port: u16, from: &'a [u8]) -> Handshake<&'a [u8], Vec<u8>> {
        Handshake::new((from, Vec::new()), &Secret::from_text(secret), job, port)
    }

    fn member() -> MeetingMember {
        MeetingMember { version: "1".into(), rank: 3, ranks: 8 }
    }

    const SHARED: &str = "what the ranks of these tests know";

    /// The proofs of a handshake hold for its own role, secret, job, port and messages alone.
    #[test]
    fn a_proof_is_of_one_handshake() {
        let started = |secret, job, port, said: &[u8]| {
            let mut side = side(secret, job, port, &[]);
            side.transcript.update(said);
            side
        };
        let proof = started(SHARED, 9, 23_000, b"said").proof(Role::Joiner).finalize().into_bytes();
        let holds = |secret, job, port, said: &[u8], role| {
            started(secret, job, port, said).proof(role).verify_slice(&proof).is_ok()
        };
        assert!(holds(SHARED, 9, 23_000, b"said", Role::Joiner));
        assert!(!holds(SHARED, 9, 23_000, b"said", Role::Listener), "reflected to who sent it");
        assert!(!holds("another secret", 9, 23_000, b"said", Role::Joiner));
        assert!(!holds(SHARED, 8, 23_000, b"said", Role::Joiner), "of another job");
        assert!(!holds(SHARED, 9, 23_001, b"said", Role::Joiner), "relayed");
        assert!(!holds(SHARED, 9, 23_000, b"sai", Role::Joiner), "of another rank, or replayed");
    }

    /// What a joiner sends in one handshake is refused in the next one, whose nonce is another.
    #[test]
    fn a_replayed_handshake_is_refused() {
        let (listener, joiner) = UnixStream::pair().unwrap();
        let joining = std::thread::spawn(move || {
            Handshake::new((&joiner, &joiner), &Secret::from_text(SHARED), 9, 23_000).join(member())
        });
        let mut read = Vec::new();
        let recorded = Recorded(&listener, &mut read);
        let mut handshake = Handshake::new((recorded, &listener), &Secret::from_text(SHARED), 9, 23_000);
        assert_eq!(handshake.accept().unwrap(), member());
        answer(&listener, Err("full\u{1b}[2J")).unwrap();
        let why = joining.join().unwrap().unwrap().expect_err("let in");
        assert!(why.starts_with("full") && !why.contains('\u{1b}'), "{why:?}");
        let why = side(SHARED, 9, 23_000, &read).accept().unwrap_err().to_string();
        assert!(why.contains("does not have this job's secret"), "{why}");
    }

    struct Recorded<'a>(&'a UnixStream, &'a mut Vec<u8>);

    impl Read for Recorded<'_> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let read = self.0.read(to)?;
            self.1.extend(&to[..read]);
            Ok(read)
        }
    }

    #[test]
    fn other_programs_and_other_protocols_are_told_apart() {
        let why = |sent: &[u8]| side(SHARED, 9, 1, sent).accept().unwrap_err().to_string();
        assert!(why(b"GET / HTTP/1.1\r\n\r\n").contains("not ladderscope"));
        assert!(why(&[2, 0, 0, 0, b'{', b'}']).contains("not ladderscope"));
        let mut newer = side(SHARED, 9, 1, &[]);
        newer.send(&Message::Hello { protocol: 77, nonce: [0; 32] }).unwrap();
        assert!(why(&newer.to).contains("protocol 77"));
        let mut early = side(SHARED, 9, 1, &[]);
        early.send(&Message::Welcome).unwrap();
        assert!(why(&early.to).contains("out of order"));
    }

    /// The longest messages are within the limit that the reader has.
    #[test]
    fn long_refusals_are_cut() {
        for long in ["\u{1f980}", "\u{1}"] {
            let mut sent = Vec::new();
            answer(&mut sent, Err(&long.repeat(100_000))).unwrap();
            assert!(sent.len() < MAX_MESSAGE as usize);
        }
    }
}
