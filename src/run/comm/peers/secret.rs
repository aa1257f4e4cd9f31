//! A job's secret: from the environment or the user's own file, which is created once with mode 600.

use std::ffi::OsString;
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use hmac::{Hmac, KeyInit};
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::{Digest, Sha256};

use base::error::{Error, Result};
use base::text::shell_word;

const SECRET: &str = "LADDERSCOPE_SECRET";
const SECRET_FILE: &str = "LADDERSCOPE_SECRET_FILE";
/// Minimum length in characters; shorter secrets could be guessed.
const MIN_CHARACTERS: usize = 16;
/// Maximum size of a secret file in bytes.
const MAX_FILE_BYTES: u64 = 4096;

/// SHA-256 of a job's secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    pub fn from_text(text: &str) -> Self {
        Self(Sha256::digest(text.trim().as_bytes()).into())
    }

    /// Loads the secret of this job; creates the user's own file if there is none. Hosts without a common home
    /// directory need `LADDERSCOPE_SECRET`, or the same file on each.
    ///
    /// # Errors
    ///
    /// Returns an input error if there is no home directory to keep a secret in, if the file is readable by others,
    /// or if the secret is too short.
    pub fn load() -> Result<Self> {
        Self::load_from(&|name| std::env::var_os(name), std::env::home_dir())
    }

    fn load_from(variable: &dyn Fn(&str) -> Option<OsString>, home: Option<PathBuf>) -> Result<Self> {
        let value = |name: &str| match variable(name).map(OsString::into_string) {
            None => Ok(None),
            Some(Ok(value)) => Ok(Some(value).filter(|value| !value.trim().is_empty())),
            Some(Err(_)) => Err(Error::input(format!("{name} is not UTF-8"))),
        };
        if let Some(text) = value(SECRET)? {
            return parse(&text, SECRET);
        }
        if let Some(named) = value(SECRET_FILE)? {
            return read_file(Path::new(&named))?
                .ok_or_else(|| Error::input(format!("{SECRET_FILE}: there is no file {named}")));
        }
        // relative paths would depend on the current directory
        let absolute = |path: &PathBuf| path.is_absolute();
        let home = home.filter(absolute).map(|home| home.join(".local/state"));
        let Some(state) = value("XDG_STATE_HOME")?.map(PathBuf::from).filter(absolute).or(home) else {
            // never derive a secret from nothing: everybody on this host could reach rank 0's port
            return Err(no_secret("there is no home directory to keep one in (HOME is not set)".into()));
        };
        let path = state.join("ladderscope/secret");
        match read_file(&path)? {
            Some(secret) => Ok(secret),
            None => create_file(&path).map_err(|e| no_secret(format!("none can be kept: {e}"))),
        }
    }

    /// MAC keyed by the secret.
    pub(super) fn mac(&self) -> Hmac<Sha256> {
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

fn parse(text: &str, source: &str) -> Result<Secret> {
    if text.trim().chars().count() < MIN_CHARACTERS {
        return Err(Error::input(format!(
            "the secret in {source} is shorter than {MIN_CHARACTERS} characters and could be guessed"
        )));
    }
    Ok(Secret::from_text(text))
}

fn read_file(path: &Path) -> Result<Option<Secret>> {
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
    let refused = |why: String| Error::input(format!("{}: {why}", path.display()));
    if !metadata.is_file() || metadata.len() > MAX_FILE_BYTES {
        return Err(refused("is no file with a secret".into()));
    }
    let mode = metadata.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(Error::input_help(
            format!("{}: others can read the secret (mode {mode:o})", path.display()),
            format!("chmod 600 {}", shell_word(&path.to_string_lossy())),
        ));
    }
    let user = rustix::process::geteuid().as_raw();
    if metadata.uid() != user {
        return Err(refused(format!("belongs to user {}, and this process to {user}", metadata.uid())));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(|e| refused(e.to_string()))?;
    parse(&text, &path.display().to_string()).map(Some)
}

/// Creates the secret file atomically, unless another rank was faster; returns the secret in it.
fn create_file(path: &Path) -> Result<Secret> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(Error::io(folder))?;
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(Error::io(folder))?;
    let text = base::checksum::hex(random_bytes()?);
    writeln!(file, "{text}").and_then(|()| file.as_file().sync_all()).map_err(Error::io(path))?;
    match file.persist_noclobber(path) {
        Ok(_) => parse(&text, &path.display().to_string()),
        Err(e) if e.error.kind() == ErrorKind::AlreadyExists => read_file(path)?
            .ok_or_else(|| Error::failed(format!("{}: was there and is gone", path.display()))),
        Err(e) => Err(Error::io(path)(e.error)),
    }
}

pub(super) fn random_bytes() -> Result<[u8; 32]> {
    let mut bytes = [0; 32];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(32) => Ok(bytes),
        Ok(_) => Err(Error::failed("the system gave too few random bytes")),
        Err(e) => Err(Error::failed(format!("the system gives no random bytes: {e}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn concurrent_ranks_create_one_file_and_read_the_same_secret() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/ladderscope/secret");
        assert_eq!(read_file(&path).unwrap(), None);
        let made: Vec<Secret> = std::thread::scope(|scope| {
            let ranks: Vec<_> = (0..8).map(|_| scope.spawn(|| create_file(&path).unwrap())).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        });
        assert!(made.iter().all(|secret| *secret == made[0]));
        assert_eq!(read_file(&path).unwrap().unwrap(), made[0]);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let files = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(files, 1, "no temporary file is left");
    }

    #[test]
    fn without_a_home_a_missing_secret_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        std::fs::write(&file, "0123456789abcdef0").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let of = |variables: &[(&str, &str)], home: Option<&Path>| {
            let variable = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| OsString::from(value))
            };
            Secret::load_from(&variable, home.map(Path::to_owned))
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
        let given = Secret::from_text("0123456789abcdef0");
        assert!(!format!("{given:?}").contains(|c: char| c.is_ascii_digit()), "it is not printed");
        assert_eq!(of(&[(SECRET, "0123456789abcdef0")], None).unwrap(), given);
        assert_eq!(of(&[(SECRET_FILE, file.to_str().unwrap())], None).unwrap(), given);
        assert!(of(&[(SECRET, "short")], None).unwrap_err().to_string().contains("shorter than"));
        let missing = of(&[(SECRET_FILE, "/no/such/file")], Some(folder.path())).unwrap_err();
        assert!(missing.to_string().contains("there is no file"), "{missing}");
        let made = of(&[], Some(folder.path())).unwrap();
        assert_ne!(made, Secret::from_text(""));
        assert_eq!(of(&[], Some(folder.path())).unwrap(), made, "the file of all ranks now");
        // a home that cannot be written: `docker run --user` has `/`
        let error = of(&[], Some(&file)).unwrap_err();
        assert!(error.exit_code() == 2, "{error}");
    }

    #[test]
    fn a_readable_short_or_special_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "0123456789abcdef").unwrap();
        let mode =
            |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let refusal = |path: &Path| read_file(path).unwrap_err().to_string();
        mode(0o640);
        assert!(refusal(&path).contains("others can read the secret (mode 640)"));
        mode(0o600);
        assert_eq!(read_file(&path).unwrap(), Some(Secret::from_text("0123456789abcdef")));
        std::fs::write(&path, "short").unwrap();
        assert!(refusal(&path).contains("shorter than 16 characters"));
        assert!(refusal(folder.path()).contains("is no file with a secret"));
    }
}
