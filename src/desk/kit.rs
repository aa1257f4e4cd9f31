//! Import of what `experiments/gpu/measure.sh` packed on another machine: runs, recordings, nccl-tests output.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use base::atomic::UnfinishedDir;
use base::error::{Error, Result};
use base::input::InputKind;
use base::regular;
use lab::store::{CopiedRuns, DamagedFile, RecordingCopies, Store};
use study::analysis::MeasuredGrid;
use table::P2p;

/// Subdirectory of the kit with its store.
const RUNS: &str = "runs";
/// Subdirectory with output of `all_reduce_perf`: `tp8-on.txt`, `tp8-off.txt`.
const LINKS: &str = "nccl-tests";
/// File with the [`KitOrigin`].
const ORIGIN_FILE: &str = "kit.json";
/// Summary of a kit from before it had an [`ORIGIN_FILE`].
const SUMMARY: &str = "summary.json";

/// Folder of results of `measure.sh`.
#[derive(Debug)]
pub struct Kit {
    folder: PathBuf,
    /// Temporary directory of an unpacked archive, in the runs directory that the kit is imported into.
    _unpacked: Option<UnfinishedDir>,
    /// Members of the archive that were left out, one sentence each.
    pub notes: Vec<String>,
}

/// Origin of a kit: program, machine, and parts of the measurement (`kit.json`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct KitOrigin {
    pub version: Option<String>,
    pub commit: Option<String>,
    pub host: Option<String>,
    pub driver: Option<String>,
    pub cuda: Option<String>,
    pub nccl: Option<String>,
    /// Name of each GPU.
    pub gpus: Vec<String>,
    /// Command line of `measure.sh`.
    pub command: Vec<String>,
    pub parts: Vec<KitPart>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct KitPart {
    pub part: String,
    /// ok, failed or skipped.
    pub status: String,
    pub seconds: f64,
    pub why: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Summary {
    /// Object with the `name` of the GPU.
    gpu: serde_json::Value,
    parts: Vec<KitPart>,
}

/// Imported contents of a kit.
#[derive(Debug)]
pub struct ImportedKit {
    pub origin: KitOrigin,
    pub runs: CopiedRuns,
    pub recordings: RecordingCopies,
    pub grid: MeasuredGrid,
    /// Files of the kit that are damaged and were left out.
    pub damaged: Vec<DamagedFile>,
}

impl Kit {
    /// Opens a folder, or an archive of one, which is unpacked into the store's directory until the kit is dropped.
    ///
    /// # Errors
    ///
    /// Returns an input error for anything but results of `measure.sh`, and the errors of [`trace::import::unpack`].
    pub fn open(path: &Path, store: &Store) -> Result<Self> {
        let (mut folder, mut notes, mut unpacked) = (path.to_owned(), Vec::new(), None);
        if !path.is_dir() {
            notes = trace::import::unpack(path, || {
                store.prepare()?;
                let into = unpacked.insert(UnfinishedDir::create(&store.dir().join("kit"))?);
                folder = into.path().to_owned();
                Ok(folder.clone())
            })?;
        }
        if !is_kit(&folder) {
            let entries = regular::entries(&folder).map_err(Error::io(&folder))?;
            let folders = entries.iter().filter(|entry| entry.is_dir);
            let mut kits = folders.map(|entry| folder.join(&entry.name)).filter(|folder| is_kit(folder));
            folder = match (kits.next(), kits.next()) {
                (Some(only), None) => only,
                (first, _) => {
                    let found = if first.is_some() { "several folders of" } else { "no" };
                    return Err(Error::input_help(
                        format!("{}: {found} results of measure.sh", path.display()),
                        format!(
                            "pass its OUT or OUT.tar.gz, with {ORIGIN_FILE}, {RUNS}/ or {LINKS}/ in it"
                        ),
                    ));
                }
            };
        }
        Ok(Self { folder, _unpacked: unpacked, notes })
    }

    /// Copies runs and recordings into a store, and arranges the kit's measured cells.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be written. Damaged and unreadable files are part of the result.
    pub fn import(&self, store: &Store) -> Result<ImportedKit> {
        let mut damaged = Vec::new();
        let runs = Store::open(self.folder.join(RUNS));
        let copied = store.copy_from(&runs, &mut damaged)?;
        let recordings = store.copy_recordings_from(&Store::open(&self.folder), &mut damaged)?;
        let origin = self.origin().unwrap_or_else(|file| {
            damaged.push(file);
            KitOrigin::default()
        });
        // `copy_from` has named what cannot be listed
        let grid = MeasuredGrid::from_records(&runs.list().unwrap_or_default().records);
        Ok(ImportedKit { origin, runs: copied, recordings, grid, damaged })
    }

    /// Files of all-reduces measured with nccl-tests, for each P2P setting that has some.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be listed.
    pub fn links(&self) -> Result<Vec<(P2p, Vec<PathBuf>)>> {
        let folder = self.folder.join(LINKS);
        if !folder.is_dir() {
            return Ok(Vec::new());
        }
        let mut entries = regular::entries(&folder).map_err(Error::io(&folder))?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let files_of = |p2p: P2p| {
            let ending = format!("-{}.txt", p2p.as_str());
            let own = entries.iter().filter(|entry| !entry.is_dir && entry.name.ends_with(&ending));
            (p2p, own.map(|entry| folder.join(&entry.name)).collect::<Vec<_>>())
        };
        let all = [P2p::On, P2p::Off].map(files_of).into_iter();
        Ok(all.filter(|(_, files)| !files.is_empty()).collect())
    }

    /// Reads the origin. Returns the file if it is damaged.
    fn origin(&self) -> Result<KitOrigin, DamagedFile> {
        let about = self.folder.join(ORIGIN_FILE);
        if about.exists() {
            return read_json(&about)
                .map_err(|problem| DamagedFile { path: ORIGIN_FILE.into(), problem });
        }
        let summary = self.folder.join(SUMMARY);
        if !summary.exists() {
            return Ok(KitOrigin::default());
        }
        let Summary { gpu, parts } =
            read_json(&summary).map_err(|problem| DamagedFile { path: SUMMARY.into(), problem })?;
        let gpus = gpu["name"].as_str().map(str::to_owned).into_iter().collect();
        Ok(KitOrigin { gpus, parts, ..KitOrigin::default() })
    }
}

fn is_kit(folder: &Path) -> bool {
    folder.join(ORIGIN_FILE).is_file() || [RUNS, LINKS].iter().any(|name| folder.join(name).is_dir())
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, String> {
    let bytes = InputKind::CONFIG.bytes(path).map_err(|error| error.to_string())?;
    serde_json::from_slice(&bytes).map_err(|error| error.to_string())
}
