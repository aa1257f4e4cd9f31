//! Resolution of a model argument to a [`Model`]: a built-in name or an HF directory.

use std::path::{Path, PathBuf};

use super::checkpoint::Oddities;
use super::config::ModelConfig;
use super::files;
use base::error::{Error, Result, nearest};
use base::input;
use base::text::same_name;
use plan::{Architecture, DType, ModelShape};

/// Model with its shape, and its checkpoint if it has one.
#[derive(Clone, Debug)]
pub struct Model {
    /// Built-in name, or directory as given.
    pub name: String,
    pub shape: ModelShape,
    /// HF directory; `None` for a built-in shape.
    pub dir: Option<PathBuf>,
    /// Wiring in the checkpoint's config: ladder of `ladder_layers`, or farskip of `farskip_layers`.
    pub wiring: Option<Architecture>,
    /// Number format of the checkpoint (`torch_dtype`), if stated.
    pub dtype: Option<DType>,
    /// End-of-text token ids from `generation_config.json`, else from `config.json`.
    pub eos: Vec<u32>,
    /// True if the directory has weights; otherwise they are random.
    pub has_weights: bool,
    /// Remark on the shape (bloom-176b's gated MLP, llama-3.1-405b's 16 KV heads).
    pub note: Option<&'static str>,
    /// Differences between the checkpoint's tensors and its config, one sentence each.
    pub warnings: Vec<String>,
}

impl Model {
    /// Finds a built-in shape by name, or an HF directory (`config.json`; weights optional). A built-in
    /// name takes precedence over a directory of the same name; write `./NAME` for the directory. A built-in mixture's
    /// name may change its experts: `NAME@experts=N,top-k=K`.
    ///
    /// # Errors
    /// Returns an input error for an unknown name (with the nearest built-in one), a directory without
    /// `config.json`, or a config that is invalid or not of the Llama family.
    pub fn resolve(name_or_dir: &str) -> Result<Self> {
        if let Some(model) = Self::with_changed_experts(name_or_dir)? {
            return Ok(model);
        }
        let path = Path::new(name_or_dir);
        if path.is_dir() {
            return Self::open(name_or_dir, path);
        }
        if let Some(name) = Self::built_in_names().find(|name| same_name(name, name_or_dir)) {
            return Self::built_in_named(name).ok_or_else(|| unknown(name_or_dir));
        }
        if path.is_file() {
            let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            return Err(Error::input_help(
                format!("model '{name_or_dir}' is a file; a built-in name or a directory is needed"),
                format!("pass the directory that contains config.json, perhaps {}", parent.display()),
            ));
        }
        Err(input::special_file_error(path, "a model's directory")
            .unwrap_or_else(|| unknown(name_or_dir)))
    }

    fn open(name: &str, dir: &Path) -> Result<Self> {
        let path = dir.join("config.json");
        if !path.is_file() {
            if let Some(refused) = input::special_file_error(&path, "a file") {
                return Err(refused);
            }
            return Err(Error::input_help(
                format!("model directory {} has no config.json", dir.display()),
                "an HF directory has config.json, and model.safetensors unless weights are to be random",
            ));
        }
        let config = ModelConfig::read(&path)?;
        let generation = dir.join("generation_config.json");
        let generation = generation.is_file().then(|| ModelConfig::read(&generation)).transpose()?;
        let eos = generation.map(|generation| generation.eos()).transpose()?.unwrap_or_default();
        let (mut shape, mut warnings) = (config.shape()?, Vec::new());
        let oddities =
            files::weight_files(dir).map(|paths| Oddities::from_paths(&paths)).unwrap_or_default();
        if shape.tied_embeddings && oddities.own_head {
            shape.tied_embeddings = false;
            warnings.push(format!(
                "{}: \"tie_word_embeddings\" is true, but lm_head.weight differs from the embedding: it is used",
                dir.display()
            ));
        }
        warnings.extend(
            oddities.prefix.map(|prefix| {
                format!("{}: ignoring the prefix '{prefix}' of all tensors", dir.display())
            }),
        );
        Ok(Self {
            name: name.into(),
            shape,
            dir: Some(dir.to_path_buf()),
            wiring: config.wiring()?,
            dtype: config.dtype()?,
            eos: if eos.is_empty() { config.eos()? } else { eos },
            has_weights: files::has_safetensors(dir)?,
            note: None,
            warnings,
        })
    }
}

/// Error for an argument that is neither a built-in name nor a directory.
fn unknown(given: &str) -> Error {
    let names: Vec<&str> = Model::built_in_names().collect();
    // for what looks like a path, report a missing directory instead of an unknown name
    if given.contains(['/', '\\']) || given.starts_with('.') {
        let last = Path::new(given).file_name().and_then(|n| n.to_str()).unwrap_or(given);
        let help = match nearest(last, names.iter().copied()) {
            Some(name) => format!("did you mean the built-in '{name}'? built in: {}", names.join(", ")),
            None => format!("pass an existing HF directory, or a built-in name: {}", names.join(", ")),
        };
        return Error::input_help(format!("model '{given}': no such directory"), help);
    }
    Error::unknown("model (neither a built-in name nor a directory)", given, names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(result: Result<Model>) -> (String, String) {
        match result {
            Err(error @ Error::Input { .. }) => {
                assert_eq!(error.exit_code(), 2);
                let Error::Input { message, help } = error else { return Default::default() };
                (message, help.unwrap_or_default())
            }
            other => (format!("not an input error: {other:?}"), String::new()),
        }
    }

    #[test]
    fn an_unknown_name_gets_the_nearest() {
        let (text, help) = message(Model::resolve("llama3-70b"));
        assert!(text.contains("'llama3-70b'"), "{text}");
        assert!(help.contains("'llama-3-70b'"), "{help}");
    }

    #[test]
    fn a_path_that_does_not_exist_is_called_that() {
        let (text, help) = message(Model::resolve("models/tinny"));
        assert!(text.contains("no such directory") && text.contains("models/tinny"), "{text}");
        assert!(help.contains("'tiny'"), "{help}");
    }

    #[test]
    fn files_and_directories_without_config_are_explained() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (text, _) = message(Model::resolve(&dir.path().to_string_lossy()));
        assert!(text.contains("no config.json"), "{text}");
        let file = dir.path().join("config.json");
        std::fs::write(&file, "{}").expect("write");
        let (text, help) = message(Model::resolve(&file.to_string_lossy()));
        assert!(text.contains("is a file"), "{text}");
        assert!(help.contains(&*dir.path().to_string_lossy()), "{help}");
    }
}
