//! Results of `convert`: `conversions/KEY.json` in the runs directory, one per checkpoint, text and target,
//! overwritten when it is computed again. The store treats the contents as opaque JSON.

use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::directory::{Store, file_name, names};
use base::error::{Error, Result};
use base::{atomic, regular};

pub(super) const FOLDER: &str = "conversions";

impl Store {
    /// Stores a conversion under a key, replacing an earlier one. Returns its path. Fails if the file cannot be
    /// written.
    pub fn add_conversion(&self, key: &str, conversion: &impl Serialize) -> Result<PathBuf> {
        let folder = self.dir().join(FOLDER);
        regular::folder(&folder).map_err(Error::io(&folder))?;
        let path = folder.join(format!("{key}.json"));
        let mut json = serde_json::to_vec_pretty(conversion)
            .map_err(|e| Error::failed(format!("{}: {e}", path.display())))?;
        json.push(b'\n');
        atomic::write(&path, &json)?;
        Ok(path)
    }

    /// Stored conversions, newest first, and the errors of unreadable ones. Fails if the folder exists and cannot be
    /// read.
    pub fn conversions<T: DeserializeOwned>(&self) -> Result<(Vec<T>, Vec<String>)> {
        let folder = self.dir().join(FOLDER);
        regular::folder(&folder).map_err(Error::io(&folder))?;
        let files = names(&folder, |entry| file_name(entry).filter(|name| name.ends_with(".json")))?;
        let (mut found, mut unreadable) = (Vec::new(), Vec::new());
        for path in files.iter().map(|name| folder.join(name)) {
            let written = path.metadata().and_then(|there| there.modified()).ok();
            let read = regular::read(&path).map_err(|e| e.to_string());
            match read.and_then(|bytes| serde_json::from_slice(&bytes).map_err(|e| e.to_string())) {
                Ok(conversion) => found.push((written, conversion)),
                Err(why) => unreadable.push(format!("{}: {why}", path.display())),
            }
        }
        found.sort_by_key(|(written, _)| std::cmp::Reverse(*written));
        Ok((found.into_iter().map(|(_, conversion)| conversion).collect(), unreadable))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_is_stored_is_found_once_and_what_cannot_be_read_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("runs"));
        assert_eq!(store.conversions::<Value>().unwrap(), (vec![], vec![]));
        assert!(!store.dir().exists(), "nothing is made until something is stored");
        store.add_conversion("a", &json!({"n": 1})).unwrap();
        let path = store.add_conversion("a", &json!({"n": 2})).unwrap();
        std::fs::write(path.with_file_name("b.json"), "{").unwrap();
        std::fs::write(path.with_file_name("c.txt"), "other").unwrap();
        let (found, unreadable) = store.conversions::<Value>().unwrap();
        assert_eq!(found, [json!({"n": 2})]);
        assert!(unreadable.len() == 1 && unreadable[0].contains("b.json: "), "{unreadable:?}");
        assert!(store.list().unwrap().records.is_empty() && store.ids().unwrap().is_empty());
    }
}
