//! Input files that a user names: read whole, up to the size limit of their kind.

use std::io::Read;
use std::path::Path;

use super::error::{Error, Result};
use super::regular::{open_linked, special_name};

/// Kind of input file, with its size limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputKind {
    /// Name in error messages: `an experiment file`.
    name: &'static str,
    /// Maximum size in bytes.
    pub limit: u64,
}

const MIB: u64 = 1 << 20;

impl InputKind {
    pub const EXPERIMENT: Self = Self { name: "an experiment file", limit: 16 * MIB };
    pub const HARDWARE: Self = Self { name: "a hardware profile", limit: 16 * MIB };
    pub const STACK: Self = Self { name: "a stack file", limit: 16 * MIB };
    /// Settings, themes and saved state of the workbench.
    pub const SETTINGS: Self = Self { name: "settings", limit: 16 * MIB };
    pub const RULES: Self = Self { name: "a rule file", limit: MIB };
    /// Configuration (JSON) or chat template of a checkpoint.
    pub const CONFIG: Self = Self { name: "a model configuration", limit: 16 * MIB };
    /// Weight map of a checkpoint (JSON).
    pub const INDEX: Self = Self { name: "a weight index", limit: 256 * MIB };
    pub const TOKENIZER: Self = Self { name: "a tokenizer", limit: 256 * MIB };
    /// Measurements: CSV, or benchmark output.
    pub const TABLE: Self = Self { name: "a table", limit: 256 * MIB };
    pub const TEXT: Self = Self { name: "a text", limit: 1024 * MIB };

    /// Reads a file of this kind, following links.
    ///
    /// # Errors
    ///
    /// Returns an input error for a pipe, a device, a directory, a missing file and a file above the
    /// limit; a failure if the file cannot be read.
    pub fn bytes(self, path: &Path) -> Result<Vec<u8>> {
        let file = open_linked(path).map_err(Error::io(path))?;
        let length = file.metadata().map_err(Error::io(path))?.len();
        // files may grow while being read, so the limit also applies to the bytes read
        let mut bytes = Vec::new();
        if length <= self.limit {
            file.take(self.limit + 1).read_to_end(&mut bytes).map_err(Error::io(path))?;
        }
        if length.max(bytes.len() as u64) > self.limit {
            return Err(Error::input(format!(
                "{}: {} MiB is too large for {} (limit {} MiB)",
                path.display(),
                length.div_ceil(MIB),
                self.name,
                self.limit / MIB
            )));
        }
        Ok(bytes)
    }

    /// Reads a file of this kind as UTF-8 text, following links.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::bytes`], and an input error with the first byte that is not UTF-8.
    pub fn text(self, path: &Path) -> Result<String> {
        String::from_utf8(self.bytes(path)?).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            Error::input_help(
                format!("{}: byte {at} is not UTF-8 text", path.display()),
                format!("give {} in UTF-8", self.name),
            )
        })
    }
}

/// Input error for a path to a pipe, socket or device; `None` for any other path, even a missing one.
/// Follows links.
pub fn special_file_error(path: &Path, wanted: &str) -> Option<Error> {
    let kind = std::fs::metadata(path).ok()?.file_type();
    (!kind.is_file() && !kind.is_dir()).then(|| {
        let path = path.display();
        Error::input_help(
            format!("{path}: is {}, not {wanted}", special_name(kind)),
            "write its content to a regular file, and name that",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_devices_and_large_files_are_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), rustix::fs::Mode::RWXU).unwrap();
        std::fs::write(at("latin"), b"caf\xe9").unwrap();
        std::fs::write(at("good"), "x = 1\n").unwrap();
        std::fs::File::create(at("sparse")).unwrap().set_len(InputKind::RULES.limit + 1).unwrap();
        let why = |path: &Path| {
            let error = InputKind::RULES.text(path).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{error}");
            error.to_string()
        };
        assert!(why(&at("pipe")).ends_with("is a named pipe, not a file"));
        assert!(why(Path::new("/dev/zero")).ends_with("is a device, not a file"));
        assert!(why(&at("sparse")).ends_with("2 MiB is too large for a rule file (limit 1 MiB)"));
        assert!(why(&at("latin")).ends_with("byte 3 is not UTF-8 text"));
        assert!(why(dir.path()).ends_with("is a directory, not a file"));
        assert_eq!(InputKind::RULES.text(&at("good")).unwrap(), "x = 1\n");
    }
}
