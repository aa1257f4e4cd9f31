//! Handshake between two processes of a job: both prove that they know the job's secret before anything else that
//! they say is used or printed. The secret itself is never sent.
//!
//! Each side sends a random nonce. A proof is the HMAC-SHA256 (RFC 2104), keyed by the secret, of the sender's role,
//! the job, the port and every message so far, so it is invalid for another job, for a replayed handshake, and for
//! one relayed through another port. A message is a `u32` length, little-endian, and that many bytes of JSON.

use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::{fmt, io};

use hmac::{Hmac, KeyInit, Mac};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::mailbox::{array, malformed, sized};
use base::error::{Error, Result};
use base::text::{printable, shell_word};

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
    Join(Member),
    Welcome,
    Refused(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Member {
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

/// Answer of rank 0 to a process that has joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Welcome,
    Refused(String),
}

impl Message {
    fn bytes(&self) -> io::Result<Vec<u8>> {
        let json = serde_json::to_vec(self)?;
        let mut bytes = (json.len() as u32).to_le_bytes().to_vec();
        bytes.extend(json);
        Ok(bytes)
    }
}

impl Admission {
    /// Sends the last message of a handshake.
    pub fn send(&self, mut to: impl Write) -> io::Result<()> {
        let message = match self {
            Self::Welcome => Message::Welcome,
            Self::Refused(why) => Message::Refused(why.chars().take(MAX_REFUSAL).collect()),
        };
        to.write_all(&message.bytes()?)?;
        to.flush()
    }
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

    /// Rank 0's side up to the identity of the other process. [`Admission::send`] ends the handshake.
    pub fn accept(&mut self) -> io::Result<Member> {
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
            io::ErrorKind::UnexpectedEof => {
                malformed("it closed the connection during authentication: it has another secret, or belongs to another job".into())
            }
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
    pub fn join(&mut self, member: Member) -> io::Result<Admission> {
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
            Message::Welcome => Ok(Admission::Welcome),
            Message::Refused(why) => Ok(Admission::Refused(printable(&why).into_owned())),
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
    random().map_err(|e| io::Error::other(e.to_string()))
}

pub(super) fn random() -> Result<[u8; 32]> {
    let mut bytes = [0; 32];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(32) => Ok(bytes),
        Ok(_) => Err(Error::failed("the system gave too few random bytes")),
        Err(e) => Err(Error::failed(format!("the system gives no random bytes: {e}"))),
    }
}

const SECRET: &str = "LADDERSCOPE_SECRET";
const SECRET_FILE: &str = "LADDERSCOPE_SECRET_FILE";
/// Minimum length in characters; shorter secrets could be guessed.
const SHORTEST: usize = 16;
/// Maximum size of a secret file in bytes.
const LONGEST: u64 = 4096;

/// SHA-256 of a job's secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    pub fn of(text: &str) -> Self {
        Self(Sha256::digest(text.trim().as_bytes()).into())
    }

    /// Loads the secret of this job; creates the user's own file if there is none. Hosts without a common home
    /// directory need `LADDERSCOPE_SECRET`, or the same file on each.
    ///
    /// # Errors
    ///
    /// Returns an input error if there is no home directory to keep a secret in, if the file is readable by others,
    /// or if the secret is too short.
    pub fn of_job() -> Result<Self> {
        Self::from(&|name| std::env::var_os(name), std::env::home_dir())
    }

    fn from(variable: &dyn Fn(&str) -> Option<OsString>, home: Option<PathBuf>) -> Result<Self> {
        let set = |name: &str| match variable(name).map(OsString::into_string) {
            None => Ok(None),
            Some(Ok(value)) => Ok(Some(value).filter(|value| !value.trim().is_empty())),
            Some(Err(_)) => Err(Error::input(format!("{name} is not UTF-8"))),
        };
        if let Some(text) = set(SECRET)? {
            return checked(&text, SECRET);
        }
        if let Some(named) = set(SECRET_FILE)? {
            return read(Path::new(&named))?
                .ok_or_else(|| Error::input(format!("{SECRET_FILE}: there is no file {named}")));
        }
        // relative paths would depend on the current directory
        let absolute = |path: &PathBuf| path.is_absolute();
        let home = home.filter(absolute).map(|home| home.join(".local/state"));
        let Some(state) = set("XDG_STATE_HOME")?.map(PathBuf::from).filter(absolute).or(home) else {
            // never derive a secret from nothing: everybody on this host could reach rank 0's port
            return Err(no_secret("there is no home directory to keep one in (HOME is not set)".into()));
        };
        let path = state.join("ladderscope/secret");
        match read(&path)? {
            Some(secret) => Ok(secret),
            None => make(&path).map_err(|e| no_secret(format!("none can be kept: {e}"))),
        }
    }

    /// MAC keyed by the secret.
    fn mac(&self) -> Hmac<Sha256> {
        // HMAC pads a short key with zeros to the hash's block size
        let mut block = [0; 64];
        block[..self.0.len()].copy_from_slice(&self.0);
        <Hmac<Sha256> as KeyInit>::new(&block.into())
    }
}

fn no_secret(why: String) -> Error {
    Error::input_help(
        format!("ranks meet only with a secret of the job, and {why}"),
        format!(
            "give all ranks the same: {SECRET}=$(head -c 32 /dev/urandom | base64), or {SECRET_FILE}=FILE with such a \
             line in it; LADDERSCOPE_LAUNCHER=none runs all ranks in one process"
        ),
    )
}

fn checked(text: &str, from: &str) -> Result<Secret> {
    if text.trim().chars().count() < SHORTEST {
        return Err(Error::input(format!(
            "the secret in {from} is shorter than {SHORTEST} characters and could be guessed"
        )));
    }
    Ok(Secret::of(text))
}

fn read(path: &Path) -> Result<Option<Secret>> {
    let opened = std::fs::OpenOptions::new()
        .read(true)
        // opening a pipe must not block
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
        .open(path);
    let mut file = match opened {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::input(format!("{}: {e}", path.display()))),
    };
    let metadata = file.metadata().map_err(Error::io(path))?;
    let wrong = |what: String| Error::input(format!("{}: {what}", path.display()));
    if !metadata.is_file() || metadata.len() > LONGEST {
        return Err(wrong("is no file with a secret".into()));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(Error::input_help(
            format!(
                "{}: others can read the secret (mode {:o})",
                path.display(),
                metadata.mode() & 0o777
            ),
            format!("chmod 600 {}", shell_word(&path.to_string_lossy())),
        ));
    }
    let own = rustix::process::geteuid().as_raw();
    if metadata.uid() != own {
        return Err(wrong(format!("belongs to user {}, and this process to {own}", metadata.uid())));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(|e| wrong(e.to_string()))?;
    checked(&text, &path.display().to_string()).map(Some)
}

/// Creates the secret file atomically, unless another rank was faster; returns the secret in it.
fn make(path: &Path) -> Result<Secret> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(Error::io(folder))?;
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(Error::io(folder))?;
    let text = base::checksum::hex(random()?);
    writeln!(file, "{text}").and_then(|()| file.as_file().sync_all()).map_err(Error::io(path))?;
    match file.persist_noclobber(path) {
        Ok(_) => checked(&text, &path.display().to_string()),
        Err(e) if e.error.kind() == ErrorKind::AlreadyExists => read(path)?
            .ok_or_else(|| Error::failed(format!("{}: was there and is gone", path.display()))),
        Err(e) => Err(Error::io(path)(e.error)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn side<'a>(secret: &str, job: u64, port: u16, from: &'a [u8]) -> Handshake<&'a [u8], Vec<u8>> {
        Handshake::new((from, Vec::new()), &Secret::of(secret), job, port)
    }

    fn member() -> Member {
        Member { version: "1".into(), rank: 3, ranks: 8 }
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
            Handshake::new((&joiner, &joiner), &Secret::of(SHARED), 9, 23_000).join(member())
        });
        let mut read = Vec::new();
        let recorded = Recorded(&listener, &mut read);
        let mut handshake = Handshake::new((recorded, &listener), &Secret::of(SHARED), 9, 23_000);
        assert_eq!(handshake.accept().unwrap(), member());
        Admission::Refused("full\u{1b}[2J".into()).send(&listener).unwrap();
        let Admission::Refused(why) = joining.join().unwrap().unwrap() else { panic!("let in") };
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
            Admission::Refused(long.repeat(100_000)).send(&mut sent).unwrap();
            assert!(sent.len() < MAX_MESSAGE as usize);
        }
    }

    #[test]
    fn a_file_of_ones_own_is_made_once_and_read_by_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/ladderscope/secret");
        assert_eq!(read(&path).unwrap(), None);
        let made: Vec<Secret> = std::thread::scope(|scope| {
            let ranks: Vec<_> = (0..8).map(|_| scope.spawn(|| make(&path).unwrap())).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        });
        assert!(made.iter().all(|secret| *secret == made[0]));
        assert_eq!(read(&path).unwrap().unwrap(), made[0]);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(
            std::fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1,
            "nothing is left beside it"
        );
    }

    #[test]
    fn without_a_home_no_secret_is_made_of_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        std::fs::write(&file, "0123456789abcdef0").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let of = |variables: &[(&str, &str)], home: Option<&Path>| {
            let variable = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| OsString::from(value))
            };
            Secret::from(&variable, home.map(Path::to_owned))
        };
        for home in [None, Some(Path::new("")), Some(Path::new("relative"))] {
            for variables in
                [&[][..], &[(SECRET, " ")], &[(SECRET_FILE, "")], &[("XDG_STATE_HOME", "here")]]
            {
                let error = of(variables, home).unwrap_err();
                assert_eq!(error.exit_code(), 2);
                assert!(error.to_string().contains("no home directory"), "{error}");
                let Error::Input { help: Some(help), .. } = error else { panic!("no help") };
                assert!(help.contains(SECRET) && help.contains(SECRET_FILE), "{help}");
            }
        }
        let given = Secret::of("0123456789abcdef0");
        assert!(!format!("{given:?}").contains(|c: char| c.is_ascii_digit()), "it is not printed");
        assert_eq!(of(&[(SECRET, "0123456789abcdef0")], None).unwrap(), given);
        assert_eq!(of(&[(SECRET_FILE, file.to_str().unwrap())], None).unwrap(), given);
        assert!(of(&[(SECRET, "short")], None).unwrap_err().to_string().contains("shorter than"));
        let missing = of(&[(SECRET_FILE, "/no/such/file")], Some(folder.path())).unwrap_err();
        assert!(missing.to_string().contains("there is no file"), "{missing}");
        let made = of(&[], Some(folder.path())).unwrap();
        assert_ne!(made, Secret::of(""));
        assert_eq!(of(&[], Some(folder.path())).unwrap(), made, "the file of all ranks now");
        // a home that cannot be written: `docker run --user` has `/`
        let error = of(&[], Some(&file)).unwrap_err();
        assert!(error.exit_code() == 2, "{error}");
    }

    #[test]
    fn a_file_that_others_can_read_or_that_is_no_secret_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "0123456789abcdef").unwrap();
        let mode =
            |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        mode(0o640);
        assert!(read(&path).unwrap_err().to_string().contains("others can read the secret (mode 640)"));
        mode(0o600);
        assert_eq!(read(&path).unwrap(), Some(Secret::of("0123456789abcdef")));
        std::fs::write(&path, "short").unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("shorter than 16 characters"));
        assert!(read(folder.path()).unwrap_err().to_string().contains("is no file with a secret"));
    }
}
