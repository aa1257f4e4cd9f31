//! Writing an experiment's file: atomically, and never over something that nobody has seen.

use std::path::{Path, PathBuf};

use base::error::{Error, Result};
use base::input::InputKind;

/// A file to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Save {
    /// The entry whose text it is.
    pub from: String,
    /// Over which file, or under which new name, it is written.
    pub to: SaveTo,
    /// The text that is written.
    pub text: String,
    /// What the file had when it was read; `None`: there was none.
    pub expected: Option<String>,
    /// Write whatever is there now.
    pub overwrite: bool,
    /// The edits go with it: the entry they were made in is as it was.
    pub moves: bool,
}

/// Where an experiment is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SaveTo {
    /// The file it was read from.
    File(PathBuf),
    /// A file of this name in the directory of experiments.
    Name(String),
}

impl Save {
    /// The name of the entry that the file will be.
    pub fn name(&self) -> String {
        match &self.to {
            SaveTo::File(path) => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            SaveTo::Name(name) => name.clone(),
        }
    }
}

/// Writes it; `dir` is the directory of experiments. Its path; `None` where nothing was written: the file is not
/// as it was read, or is there although it should be new.
pub fn write(save: &Save, dir: &Path) -> Result<Option<PathBuf>> {
    let path = match &save.to {
        SaveTo::File(path) => path.clone(),
        SaveTo::Name(name) => dir.join(format!("{name}.toml")),
    };
    let there = path.exists().then(|| InputKind::EXPERIMENT.bytes(&path)).transpose()?;
    // a file that was removed meanwhile is written again
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
