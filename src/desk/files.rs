//! Trace file discovery: files near the current directory, and completion of a typed directory.

use std::cmp::Reverse;
use std::fs::{self, DirEntry, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use base::text::si;

/// File name endings of possible traces; the format is detected from the contents when a file is opened.
const ENDINGS: &str = ".parquet .json .json.gz .json.zst .json.xz .json.bz2 .sqlite .sqlite.gz .sqlite.zst .sqlite.xz \
                       .sqlite.bz2 .tar .tar.gz .tgz .zip";

/// Maximum depth of directories searched.
const MAX_DEPTH: usize = 4;

/// Maximum number of directories searched, and of files found.
const MAX_FOLDERS: usize = 400;
const MAX_FILES: usize = 200;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// Path as it would be typed; ends with `/` for a directory.
    pub path: String,
    /// File size, `folder`, or why it cannot be opened.
    pub about: String,
    pub is_trace: bool,
    /// True if it is known not to open as a trace.
    pub is_refused: bool,
}

impl FileEntry {
    pub fn is_folder(&self) -> bool {
        self.path.ends_with('/')
    }
}

/// True if the name may be that of a trace.
fn has_trace_ending(name: &str) -> bool {
    let name = name.to_lowercase();
    ENDINGS.split(' ').any(|ending| name.ends_with(ending))
}

/// Description of files that are not traces: unknown formats, and short JSON files without events.
const NO_TRACE: &str = "cannot be opened: not a trace";

/// Bytes of a JSON file that are searched for events.
const SEARCHED_BYTES: u64 = 64 << 10;

/// True for a file of no known format, and for a short JSON file without events.
fn is_no_trace(path: &Path) -> bool {
    let is_short = || path.metadata().is_ok_and(|data| data.len() <= SEARCHED_BYTES);
    !trace::import::is_known_file(path) || !may_have_events(path) && is_short()
}

/// False for a plain JSON file whose beginning has no events: results, settings.
fn may_have_events(path: &Path) -> bool {
    if path.extension().is_none_or(|extension| extension != "json") {
        return true;
    }
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(SEARCHED_BYTES).read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text);
    const TRACE_KEYS: [&str; 3] = ["\"traceEvents\"", "\"ph\"", "\"rocprofiler-sdk-tool\""];
    read.is_ok() && TRACE_KEYS.iter().any(|key| text.contains(key))
}

/// Build outputs, and JSON files of runs, which are no traces.
const SKIPPED_NAMES: [&str; 4] = ["target", "node_modules", "spec.json", "record.json"];

/// Finds trace files in a directory and its subdirectories, newest first. Skips hidden files, build outputs and runs
/// directories, whose traces are selected by run.
pub fn find_traces(folder: &Path, runs: &Path) -> Vec<FileEntry> {
    let mut found: Vec<(SystemTime, FileEntry)> = Vec::new();
    let mut folders = vec![(folder.to_owned(), 0)];
    let mut searched = 0;
    while let Some((path, depth)) = folders.pop() {
        searched += 1;
        if searched > MAX_FOLDERS || found.len() >= MAX_FILES {
            break;
        }
        for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Ok(kind) = entry.file_type() else { continue };
            if name.starts_with('.') || SKIPPED_NAMES.contains(&name.as_str()) {
                continue;
            }
            let is_store =
                || entry.path() == folder.join(runs) || entry.path().join(base::atomic::FOLDER).is_dir();
            if kind.is_dir() && depth < MAX_DEPTH && !is_store() {
                folders.insert(0, (entry.path(), depth + 1));
            } else if kind.is_file() && has_trace_ending(&name) && may_have_events(&entry.path()) {
                let path = entry.path();
                let shown = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
                let changed = entry.metadata().and_then(|data| data.modified());
                found.push((changed.unwrap_or(SystemTime::UNIX_EPOCH), file_entry(shown, &entry)));
            }
        }
    }
    found.sort_by_key(|(changed, file)| (Reverse(*changed), file.path.clone()));
    found.into_iter().map(|(_, file)| file).collect()
}

/// Lists a typed directory (`~/` is the home directory, the empty text the current one), subdirectories first; empty
/// if it cannot be read.
pub fn list_directory(typed: &str) -> Vec<FileEntry> {
    let mut entries: Vec<FileEntry> = Vec::new();
    for entry in fs::read_dir(directory(typed)).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        // follows symbolic links
        let is_folder = fs::metadata(entry.path()).is_ok_and(|data| data.is_dir());
        let path = format!("{typed}{name}");
        entries.push(if is_folder {
            let about = "folder".into();
            FileEntry { path: path + "/", about, is_trace: false, is_refused: false }
        } else {
            file_entry(path, &entry)
        });
    }
    entries.sort_by_key(sort_key);
    entries
}

/// Maximum number of files of a directory that are inspected, and of traces that can be ranks.
const MAX_INSPECTED: usize = 200;

/// Maximum number of folders, one per rank, that are inspected.
const MAX_RANK_FOLDERS: usize = 64;

/// Like [`list_directory`], but reads the start of each file: those that cannot be opened come last, with the reason.
/// Traces that are the ranks of one job come first, as one entry for the directory itself.
pub fn inspect_directory(typed: &str) -> Vec<FileEntry> {
    let mut entries = list_directory(typed);
    let folder = directory(typed);
    let path_of = |entry: &FileEntry| folder.join(&entry.path[typed.len()..]);
    let files = entries.iter_mut().filter(|entry| !entry.is_folder());
    for entry in files.take(MAX_INSPECTED) {
        let path = path_of(entry);
        entry.is_trace &= may_have_events(&path);
        let format = trace::import::unreadable_format(&path);
        let refused = match format {
            Some(format) => Some(format!("cannot be opened: {format}")),
            None => is_no_trace(&path).then(|| NO_TRACE.to_owned()),
        };
        if let Some(refused) = refused {
            (entry.is_trace, entry.is_refused, entry.about) = (false, true, refused);
        }
    }
    entries.sort_by_key(sort_key);
    let mut files: Vec<PathBuf> = entries.iter().filter(|entry| entry.is_trace).map(path_of).collect();
    if files.is_empty() {
        // one folder per rank, as opening the folder reads them
        let folders =
            entries.iter().filter(|entry| entry.is_folder()).take(MAX_RANK_FOLDERS).map(path_of);
        files.extend(folders.flat_map(|folder| traces_in(&folder)).take(MAX_INSPECTED + 1));
    }
    let traces = files.len();
    if (2..=MAX_INSPECTED).contains(&traces) {
        let path = format!("{typed}.");
        let are_ranks = trace::import::are_ranks(&files);
        let about = if are_ranks {
            format!("its {traces} files, the ranks of one job")
        } else {
            format!("its {traces} files as one trace (not named as ranks)")
        };
        let all = FileEntry { path, about, is_trace: true, is_refused: false };
        entries.insert(if are_ranks { 0 } else { entries.len() }, all);
    }
    entries
}

/// Paths of the traces in a directory, by their names and beginnings.
fn traces_in(folder: &Path) -> Vec<PathBuf> {
    let inside = list_directory(&format!("{}/", folder.display()));
    let paths = inside.into_iter().filter(|entry| entry.is_trace).map(|entry| PathBuf::from(entry.path));
    paths
        .filter(|path| may_have_events(path) && trace::import::unreadable_format(path).is_none())
        .collect()
}

/// Traces in the directory of a file that was opened before (or in that directory), last those of a format that cannot be
/// opened.
pub fn sibling_traces(opened: &str) -> Vec<FileEntry> {
    let folder = match expand_home(opened).is_dir() {
        true => format!("{}/", opened.trim_end_matches("/.").trim_end_matches('/')),
        false => folder_of(opened).to_owned(),
    };
    let mut entries = inspect_directory(&folder);
    // the directory as one trace is a choice of its listing, not of a search
    let is_shown = |entry: &FileEntry| entry.is_trace || entry.is_refused && entry.about != NO_TRACE;
    entries.retain(|entry| is_shown(entry) && !entry.path.ends_with("/."));
    entries
}

fn directory(typed: &str) -> PathBuf {
    if typed.is_empty() { PathBuf::from(".") } else { expand_home(typed) }
}

fn sort_key(entry: &FileEntry) -> (bool, bool, bool, String) {
    (entry.is_refused, !entry.is_folder(), !entry.is_trace, entry.path.to_lowercase())
}

/// Directory part of a typed path, with its `/`; empty if there is none.
pub fn folder_of(typed: &str) -> &str {
    match typed {
        "~" => "",
        typed => &typed[..typed.rfind('/').map_or(0, |at| at + 1)],
    }
}

/// Path of a typed text, in which `~` is the home directory.
pub fn expand_home(typed: &str) -> PathBuf {
    let home = Path::new(typed).strip_prefix("~").ok().zip(std::env::home_dir());
    home.map_or_else(|| PathBuf::from(typed), |(rest, home)| home.join(rest))
}

fn file_entry(path: String, entry: &DirEntry) -> FileEntry {
    let is_trace = has_trace_ending(&path);
    let size = entry.metadata().map_or(0, |data| data.len());
    FileEntry { path, about: si(size as f64, "B"), is_trace, is_refused: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(paths: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for path in paths {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "0123456789").unwrap();
        }
        dir
    }

    #[test]
    fn nearby_traces_are_found_except_those_of_runs() {
        let dir = made(&[
            "a.json.gz",
            "deep/er/b.SQLITE",
            "notes.txt",
            ".git/c.json",
            "target/d.json",
            "runs/x/trace.parquet",
        ]);
        let mut found: Vec<String> =
            find_traces(dir.path(), Path::new("runs")).into_iter().map(|entry| entry.path).collect();
        found.sort();
        assert_eq!(found, ["a.json.gz", "deep/er/b.SQLITE"]);
    }

    #[test]
    fn a_folder_lists_folders_then_traces_then_the_rest() {
        let dir = made(&["z/x.json", "b.json", "a.txt", "c.json"]);
        let typed = format!("{}/", dir.path().display());
        let names = |entries: &[FileEntry]| -> Vec<String> {
            entries.iter().map(|entry| entry.path[typed.len()..].to_owned()).collect()
        };
        let entries = list_directory(&typed);
        assert_eq!(names(&entries), ["z/", "b.json", "c.json", "a.txt"]);
        assert_eq!(entries[1].about, "10.0 B");
        assert!(list_directory("/no/such/folder/").is_empty());
        assert!(inspect_directory("/no/such/folder/").is_empty());

        let event = r#"{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2}]}"#;
        let write = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
        write("b.json", event.as_bytes());
        write("c.json", event.as_bytes());
        write("a.h5", b"\x89HDF\r\n\x1a\n....");
        write("r.json", b"{\"tpot_ms\": 7.28}");
        let entries = inspect_directory(&typed);
        assert_eq!(names(&entries), ["z/", "b.json", "c.json", "a.h5", "a.txt", "r.json", "."]);
        assert!(entries[3].is_refused && entries[3].about.contains("an HDF5 export"), "{entries:?}");
        for text in &entries[4..6] {
            assert!(text.is_refused && text.about == NO_TRACE, "{entries:?}");
        }
        fs::remove_file(dir.path().join("r.json")).unwrap();
        assert!(entries[6].about.contains("not named as ranks"), "{entries:?}");
        for opened in [&format!("{typed}b.json"), &typed, typed.trim_end_matches('/')] {
            assert_eq!(names(&sibling_traces(opened)), ["b.json", "c.json", "a.h5"], "{opened}");
        }
        // files named after ranks
        for name in ["a.txt", "a.h5", "b.json", "c.json"] {
            fs::remove_file(dir.path().join(name)).unwrap();
        }
        write("rank0.json", event.as_bytes());
        write("rank1.json", event.replace('1', "5").as_bytes());
        let entries = inspect_directory(&typed);
        assert_eq!(names(&entries), [".", "z/", "rank0.json", "rank1.json"]);
        assert_eq!(entries[0].about, "its 2 files, the ranks of one job");
        // one directory per rank
        for rank in ["rank0", "rank1"] {
            fs::create_dir(dir.path().join(rank)).unwrap();
            fs::rename(
                dir.path().join(format!("{rank}.json")),
                dir.path().join(format!("{rank}/{rank}.json")),
            )
            .unwrap();
        }
        let entries = inspect_directory(&typed);
        assert_eq!(names(&entries), [".", "rank0/", "rank1/", "z/"]);
        assert_eq!(entries[0].about, "its 2 files, the ranks of one job");
        assert!(crate::desk::is_trace(&typed), "so does a report of the folder");
    }

    #[test]
    fn the_directory_part_of_a_typed_path() {
        for (typed, folder) in
            [("", ""), ("a", ""), ("a/b", "a/"), ("/x", "/"), ("~/t/", "~/t/"), ("~", "")]
        {
            assert_eq!(folder_of(typed), folder, "{typed}");
        }
    }
}
