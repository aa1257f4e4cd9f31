//! Conversion of a checkpoint to ladder layers: linked weights next to a modified `config.json`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::Model;
use base::atomic::{self, UnfinishedDir};
use base::error::{Error, Result};
use base::input::InputKind;
use plan::LayerSet;

/// Extensions of weight files, which are linked; other files are small, may be edited by hand, and are
/// copied.
pub(super) const WEIGHTS: [&str; 4] = ["safetensors", "bin", "pth", "pt"];

impl Model {
    /// Writes an HF directory `out` of the model's checkpoint with these ladder layers: `ladder_layers`
    /// in `config.json` is a count for the last layers, else a list. Weight files are hard links, or
    /// symbolic links where the file system allows no others; subdirectories are omitted. The directory
    /// appears complete or not at all.
    ///
    /// # Errors
    ///
    /// Returns an input error if the model is not a directory, lacks the layers, or if `out` is not an
    /// empty or new place in an existing directory; a failure if a file cannot be written.
    pub fn write_converted(&self, layers: &LayerSet, out: &Path) -> Result<()> {
        let list = layers.layers(self.shape.layers)?;
        let dir = self.dir.as_deref().ok_or_else(|| {
            Error::input(format!("{} is a built-in shape: it has no weights to link", self.name))
        })?;
        check_place(out)?;
        let unfinished = UnfinishedDir::create(out)?;
        for from in files(dir)? {
            let Some(name) = from.file_name() else { continue };
            let to = unfinished.path().join(name);
            match from.extension().is_some_and(|e| WEIGHTS.iter().any(|known| e == *known)) {
                true => link(&from, &to)?,
                false => fs::copy(&from, &to).map(drop).map_err(Error::io(&from))?,
            }
        }
        let config = config(&dir.join("config.json"), &list, self.shape.layers)?;
        atomic::write(&unfinished.path().join("config.json"), config.as_bytes())?;
        unfinished.finish().map_err(Error::io(out))
    }
}

/// Checks that `out` does not exist or is an empty directory, and that its parent exists.
///
/// # Errors
///
/// Returns an input error that states the problem.
pub fn check_place(out: &Path) -> Result<()> {
    let parent = out.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !parent.is_dir() {
        return Err(Error::input_help(
            format!("{}: there is no directory {}", out.display(), parent.display()),
            "make it, or name another place",
        ));
    }
    match out.symlink_metadata() {
        Ok(there) if !there.is_dir() => {
            Err(Error::input(format!("{}: a file is in its place", out.display())))
        }
        Ok(_) if fs::read_dir(out).map_err(Error::io(out))?.next().is_some() => Err(Error::input_help(
            format!("{}: the directory is not empty", out.display()),
            "name one that is not there yet",
        )),
        _ => Ok(()),
    }
}

/// Files of a directory that a copy of the checkpoint needs, except its config.
pub(super) fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(Error::io(dir))? {
        let path = entry.map_err(Error::io(dir))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_file() && name != "config.json" && !name.starts_with('.') {
            found.push(path);
        }
    }
    Ok(found)
}

/// Links a weight file, resolving links of a download cache.
fn link(from: &Path, to: &Path) -> Result<()> {
    let whole = from.canonicalize().map_err(Error::io(from))?;
    fs::hard_link(&whole, to).or_else(|_| std::os::unix::fs::symlink(&whole, to)).map_err(Error::io(to))
}

fn config(path: &Path, list: &[u32], layers: u32) -> Result<String> {
    let mut members = members(path)?;
    set_layers(&mut members, list, layers);
    let text = serde_json::to_string_pretty(&members);
    text.map(|text| text + "\n").map_err(|e| Error::failed(format!("{}: {e}", path.display())))
}

pub(super) fn members(path: &Path) -> Result<Map<String, Value>> {
    let text = InputKind::CONFIG.text(path)?;
    let wrong = |what: String| Error::input(format!("{}: {what}", path.display()));
    match serde_json::from_str(&text).map_err(|e| wrong(format!("not JSON: {e}")))? {
        Value::Object(members) => Ok(members),
        _ => Err(wrong("not a JSON object".into())),
    }
}

pub(super) fn set_layers(members: &mut Map<String, Value>, list: &[u32], layers: u32) {
    let value = match LayerSet::of(list, layers) {
        LayerSet::Only(list) if !list.is_empty() => Value::from(list),
        _ => Value::from(list.len()),
    };
    members.insert("ladder_layers".into(), value);
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// A checkpoint of four layers, whose weights are no real ones.
    fn place() -> (tempfile::TempDir, Model) {
        let dir = tempfile::tempdir().unwrap();
        let model = dir.path().join("model");
        fs::create_dir_all(model.join("original")).unwrap();
        let config = r#"{"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 64,
            "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 128, "rms_norm_eps": 1e-05,
            "rope_theta": 10000.0, "own": [1, {"deep": null}]}"#;
        fs::write(model.join("config.json"), config).unwrap();
        fs::write(model.join("weights"), "weights").unwrap();
        std::os::unix::fs::symlink("weights", model.join("model.safetensors")).unwrap();
        fs::write(model.join("tokenizer.json"), "{}").unwrap();
        let model = Model::resolve(&model.to_string_lossy()).unwrap();
        (dir, model)
    }

    #[test]
    fn weights_are_linked_the_config_says_which_layers_and_nothing_else_changes() {
        let (dir, model) = place();
        let sets = [
            (LayerSet::Only(vec![1, 2]), "[1,2]", Some(LayerSet::Only(vec![1, 2]))),
            (LayerSet::Only(vec![2, 3]), "2", Some(LayerSet::Last(2))),
            (LayerSet::All, "4", Some(LayerSet::Last(4))),
            (LayerSet::Only(vec![]), "0", Some(LayerSet::Last(0))),
        ];
        for (at, (set, said, read)) in sets.into_iter().enumerate() {
            let out = dir.path().join(format!("out{at}"));
            model.write_converted(&set, &out).unwrap();
            let inode = |path: PathBuf| fs::metadata(path).unwrap().ino();
            assert_eq!(inode(out.join("model.safetensors")), inode(dir.path().join("model/weights")));
            assert_ne!(
                inode(out.join("tokenizer.json")),
                inode(dir.path().join("model/tokenizer.json"))
            );
            assert!(!out.join("original").exists());
            let config = |dir: &Path| -> Value {
                serde_json::from_slice(&fs::read(dir.join("config.json")).unwrap()).unwrap()
            };
            let mut written = config(&out);
            let layers = written.as_object_mut().unwrap().remove("ladder_layers").unwrap();
            assert_eq!(layers.to_string(), said);
            assert_eq!(written, config(&dir.path().join("model")));
            assert_eq!(Model::resolve(&out.to_string_lossy()).unwrap().ladder_layers, read);
        }
        let left = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(left, 5, "nothing unfinished is left");
    }

    #[test]
    fn nothing_is_overwritten_and_what_cannot_be_is_told() {
        let (dir, model) = place();
        let told = |layers: LayerSet, out: &str| {
            let error = model.write_converted(&layers, &dir.path().join(out)).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{error}");
            error.to_string()
        };
        assert!(told(LayerSet::All, "model").contains("not empty"));
        assert!(told(LayerSet::All, "no/out").contains("no directory"));
        assert!(told(LayerSet::Only(vec![0, 4]), "out").contains("layer 4"));
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(told(LayerSet::All, "file").contains("in its place"));
        fs::create_dir(dir.path().join("empty")).unwrap();
        model.write_converted(&LayerSet::All, &dir.path().join("empty")).unwrap();
        fs::write(dir.path().join("model/config.json"), "[]").unwrap();
        assert!(told(LayerSet::All, "out").contains("config.json: not a JSON object"));
        assert!(!dir.path().join("out").exists());
    }
}
