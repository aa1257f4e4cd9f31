//! Saves an experiment: atomically, and never over unseen changes.

use std::path::{Path, PathBuf};

use base::error::{Error, Result};
use base::input::InputKind;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Save {
    pub from: String,
    pub to: SaveTo,
    pub text: String,
    /// File contents at the last read; `None` if there was no file.
    pub expected: Option<String>,
    /// True to overwrite the file whatever it contains.
    pub overwrite: bool,
    /// True if the edits move to the new file and the source entry reverts to its saved text.
    pub moves: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SaveTo {
    File(PathBuf),
    Name(String),
}

impl Save {
    /// Entry name of the target file.
    pub fn name(&self) -> String {
        match &self.to {
            SaveTo::File(path) => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            SaveTo::Name(name) => name.clone(),
        }
    }
}

/// Writes the file; `dir` is the experiments directory. Returns its path, or `None` if nothing was
/// written because the file changed since it was read, or a new file already exists.
pub fn write(save: &Save, dir: &Path) -> Result<Option<PathBuf>> {
    let path = match &save.to {
        SaveTo::File(path) => path.clone(),
        SaveTo::Name(name) => dir.join(format!("{name}.toml")),
    };
    let there = path.exists().then(|| InputKind::EXPERIMENT.bytes(&path)).transpose()?;
    // a file deleted in the meantime is written again
    let as_read = match (&there, &save.expected) {
        (None, _) => true,
        (Some(there), Some(expected)) => there == expected.as_bytes() || there == save.text.as_bytes(),
        (Some(there), None) => there == save.text.as_bytes(),
    };
    if !as_read && !save.overwrite {
        return Ok(None);
    }
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(Error::io(parent))?;
    }
    base::atomic::write(&path, save.text.as_bytes())?;
    Ok(Some(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_changed_since_it_was_read_is_not_overwritten_unasked() {
        let dir = tempfile::tempdir().unwrap();
        let mut save = Save {
            from: "mine".into(),
            to: SaveTo::Name("mine".into()),
            text: "# new\n".into(),
            expected: None,
            overwrite: false,
            moves: false,
        };
        let path = write(&save, &dir.path().join("experiments")).unwrap().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "# new\n");
        // somebody edits it
        std::fs::write(&path, "# theirs\n").unwrap();
        save.to = SaveTo::File(path.clone());
        (save.text, save.expected) = ("# mine\n".into(), Some("# new\n".into()));
        assert_eq!(write(&save, dir.path()).unwrap(), None);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "# theirs\n");
        save.overwrite = true;
        assert_eq!(write(&save, dir.path()).unwrap().as_ref(), Some(&path));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "# mine\n");
        // a new file never takes the place of another
        let other = Save { expected: None, overwrite: false, text: "# other\n".into(), ..save.clone() };
        assert_eq!(write(&other, dir.path()).unwrap(), None);
        // a directory in the way is said
        let blocked = Save { to: SaveTo::File(dir.path().to_path_buf()), overwrite: true, ..save };
        assert!(write(&blocked, dir.path()).is_err());
    }
}
