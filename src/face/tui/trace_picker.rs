//! Dialogs that open a trace: pickers of trace files and stored runs, and the recording of a program.

use std::path::Path;

use super::context::Notice;
use super::pick::PickSearch;
use super::prelude::*;
use crate::desk::files::{self, FileEntry, folder_of};
use crate::desk::record::record_shell;
use base::text::without_middle;
use plan::Architecture;
use table::{Record, Spec};

/// Path chosen in a dialog that is being opened, and the screen below the dialog.
#[derive(Debug)]
pub struct TypedPath {
    path: String,
    opening: Opening,
    tab: Tab,
}

const RECENT: usize = 20;

/// Description of traces opened before; as short as a size, so that both are aligned.
const BEFORE: &str = "opened";

fn folder_exists(path: &str) -> bool {
    files::expand_home(folder_of(path)).is_dir()
}

/// Traces in the directory of the last one that still exists.
fn beside_last(recent: &[String]) -> Vec<FileEntry> {
    let last = recent.iter().find(|path| folder_exists(path));
    last.map(|last| files::sibling_traces(last)).unwrap_or_default()
}

/// Begins the title of the picker of files.
const FILES: &str = "open a trace";
const RUNS: &str = "open below: a trace, or a run (words or a filter)";
const RUNS_ALONE: &str = "open: a trace, or a run (words or a filter)";

/// Title of the picker of files, with the folder of the files that are listed by their names alone.
fn files_title(folder: &str) -> String {
    /// Columns of a folder; the rest of the title has to fit into the smallest window.
    const MOST: usize = 30;
    match folder {
        "" => format!("{FILES}: letters of its name, or a path"),
        folder => format!("{FILES} in {}: letters, or a path", without_middle(folder, MOST)),
    }
}

/// Name of a file in a picker whose title names `folder`: without that folder, and with `./` in the current one.
fn shown_in(folder: &str, path: &str) -> String {
    let inside = path.strip_prefix(folder).filter(|name| !name.is_empty() && !name.contains('/'));
    match inside {
        _ if folder.is_empty() => path.to_owned(),
        Some(name) => name.to_owned(),
        None if path.contains('/') => path.to_owned(),
        None => format!("./{path}"),
    }
}

/// Path of a file shown by [`shown_in`], or of a typed one; the id of a run stays.
fn path_in(folder: &str, name: String) -> String {
    if let Some(here) = name.strip_prefix("./").filter(|here| !here.is_empty()) {
        return here.to_owned();
    }
    let inside = format!("{folder}{name}");
    let exists = |path: &str| files::expand_home(path).exists();
    let is_inside = exists(&inside) || looks_like_path(&name) && !exists(&name);
    if is_inside && !name.contains('/') { inside } else { name }
}

fn files_as_lines(files: Vec<FileEntry>) -> Vec<(String, String)> {
    files.into_iter().map(|file| (file.path, file.about)).collect()
}

impl Pick {
    /// Lists files from the directory of the last trace, then recent files from elsewhere, then files near the current
    /// directory; files that cannot be opened come last.
    fn list_files(&mut self, siblings: Vec<FileEntry>, near: Vec<FileEntry>) {
        let before = std::mem::take(&mut self.lines);
        let (refused, siblings): (Vec<_>, Vec<_>) =
            siblings.into_iter().partition(|file| file.is_refused);
        let before = before.into_iter().map(|line| (line.name, line.about)).collect();
        for group in [files_as_lines(siblings), before, files_as_lines(near), files_as_lines(refused)] {
            self.add(group);
        }
    }
}

impl Context {
    /// Opens a picker of trace files: from the last trace's directory, which the title names, recent ones, and near the
    /// current directory.
    pub fn pick_file(&mut self, typed: &str, opening: Opening) {
        let folder = self.recent.first().map_or("", |last| folder_of(last)).to_owned();
        let before = |path: &String| (shown_in(&folder, path), BEFORE.to_owned());
        let lines: Vec<(String, String)> = self.recent.iter().map(before).collect();
        let pick = self.trace_pick(&files_title(&folder), lines, folder.clone(), opening);
        self.lay(pick.searched_by(PickSearch::Paths).typed(&clean(typed)));
        let (runs, recent) = (self.dir.clone(), self.recent.clone());
        self.ask_own(
            "near",
            move |_| {
                let mut siblings = beside_last(&recent);
                let is_recent = |file: &&mut FileEntry| recent.contains(&file.path) && !file.is_refused;
                for file in siblings.iter_mut().filter(is_recent) {
                    file.about = BEFORE.to_owned();
                }
                let mut near = files::find_traces(Path::new("."), &runs);
                for file in siblings.iter_mut().chain(&mut near) {
                    file.path = shown_in(&folder, &file.path);
                }
                Ok((siblings, near))
            },
            |found, cx| {
                let (siblings, near) = found.unwrap_or_default();
                if let Some(pick) = cx.top_mut::<Pick>().filter(|pick| pick.title.starts_with(FILES)) {
                    pick.list_files(siblings, near);
                }
            },
        );
    }

    /// Opens a picker of traces opened before, stored runs, files of the last trace's directory and near the current one,
    /// without those named in `shown`.
    pub fn pick_run(&mut self, opening: Opening, shown: &[String]) {
        let Some(stored) = self.stored.clone() else { return self.pick_file("", opening) };
        let lines = stored.records.iter().map(named);
        let before = self.recent.iter().filter(|path| !shown.contains(path));
        let before = before.map(|path| (path.clone(), BEFORE.to_owned()));
        let title = if shown.is_empty() { RUNS_ALONE } else { RUNS };
        let mut pick = self.trace_pick(title, lines.chain(before).collect(), String::new(), opening);
        pick.left_out = shown.to_vec();
        self.lay(pick.searched_by(PickSearch::Runs(stored)));
        self.add_near(title, "");
    }

    /// Adds files of the last trace's directory and near the current one to an open picker with this title, with `kind`
    /// before their descriptions.
    pub(super) fn add_near(&mut self, title: &'static str, kind: &'static str) {
        let (runs, recent) = (self.dir.clone(), self.recent.clone());
        self.ask_own(
            "near",
            move |_| {
                let mut found = beside_last(&recent);
                found.retain(|file| !file.is_refused);
                found.extend(files::find_traces(Path::new("."), &runs));
                Ok(found)
            },
            move |found, cx| {
                let line = |file: FileEntry| (file.path, format!("{kind}{}", file.about));
                let lines = found.unwrap_or_default().into_iter().map(line).collect();
                if let Some(pick) = cx.top_mut::<Pick>().filter(|pick| pick.title == title) {
                    pick.add(lines);
                }
            },
        );
    }

    /// Picker of traces, those of `folder` by their names; typed text is a choice if it is a path or the id of a run.
    fn trace_pick(
        &self,
        title: &str,
        lines: Vec<(String, String)>,
        folder: String,
        opening: Opening,
    ) -> Pick {
        let (stored, typed_in) = (self.stored.clone(), folder.clone());
        let is_run = move |name: &str| stored.as_ref().is_some_and(|stored| stored.find(name).is_some());
        let literal = move |text: &str, nothing_matches: bool| {
            let name = clean(text);
            let is_meant = nothing_matches && (looks_like_path(text) || is_run(&name));
            let below = if opening == Opening::Beneath { " below the open trace" } else { "" };
            is_meant.then(|| format!("Enter opens {}{below}", path_in(&typed_in, name)))
        };
        Pick::new(title, lines, literal, move |state, chosen| {
            if let PickResult::Text(name) = chosen {
                state.cx.open_named(path_in(&folder, clean(&name)), opening);
            }
        })
    }

    fn open_named(&mut self, name: String, opening: Opening) {
        let run = self.stored.as_ref().is_some_and(|stored| stored.find(&name).is_some());
        match run {
            true => self.request(Request::OpenRuns { runs: vec![name], opening }),
            false => self.open_typed(name, opening),
        }
    }

    /// Opens a path typed in a dialog; the dialog reopens if that fails.
    pub(super) fn open_typed(&mut self, path: String, opening: Opening) {
        self.typed_path = Some(TypedPath { path: path.clone(), opening, tab: self.tab });
        self.request(Request::OpenPath(path, opening));
    }

    /// Reports that a trace did not open. Reopens the dialog with the typed path and the error, unless the user has moved
    /// on.
    pub fn open_failed(&mut self, name: &str, why: String) {
        let is_waiting = self.tab == Tab::Timeline && self.overlays.is_empty();
        let typed = self.typed_path.take_if(|typed| typed.path == name).filter(|_| is_waiting);
        let Some(TypedPath { path, opening, tab }) = typed else { return self.fail(why) };
        self.tab = tab;
        self.log(Notice { text: why.clone(), error: true });
        self.pick_file(&path, opening);
        if let Some(pick) = self.top_mut::<Pick>() {
            pick.error = Some(why);
        }
    }

    /// Adds a file to the recent list; ignores run ids.
    pub fn opened(&mut self, source: String) {
        if !looks_like_path(&source) {
            return;
        }
        self.recent.retain(|known| *known != source);
        self.recent.insert(0, source);
        self.recent.truncate(RECENT);
    }
}

/// Place of a run among those to open below another: standard with the same settings, then other architectures with
/// them, then the rest.
pub(super) fn counterpart_rank(open: &Record, other: &Record) -> u8 {
    let settings = Spec { architecture: open.spec.architecture.clone(), ..other.spec.clone() };
    match (settings == open.spec, &other.spec.architecture) {
        (true, Architecture::Standard) => 0,
        (true, _) => 1,
        (false, _) => 2,
    }
}

/// Line of a run: its cell; provenance, status without a timeline, end of the id.
pub(super) fn named(record: &Record) -> (String, String) {
    const END: usize = 9;
    let failed = if record.metrics.is_some() { "" } else { record.status.as_str() };
    let from = record.run.char_indices().rev().nth(END - 1).map_or(0, |(at, _)| at);
    let cut = if from > 0 { "…" } else { "" };
    let id = format!("{cut}{}", &record.run[from..]);
    let words = [record.provenance.as_str(), failed, &id];
    let about = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join("  ");
    (format!("{} {}", record.spec.label(), record.spec.model), about)
}

pub fn looks_like_path(text: &str) -> bool {
    let text = text.trim();
    let name = text.rsplit('/').next().unwrap_or(text);
    text.starts_with(['/', '~', '\'', '"'])
        || text.contains('/')
        || name.rsplit_once('.').is_some_and(|(stem, end)| !stem.is_empty() && !end.is_empty())
}

/// Normalizes a path dropped by a terminal: removes quotes, escaped spaces and `file://`.
pub fn clean(text: &str) -> String {
    let text = text.trim();
    for quote in ['\'', '"'] {
        if let Some(inner) = text.strip_prefix(quote) {
            return inner.strip_suffix(quote).unwrap_or(inner).into();
        }
    }
    text.strip_prefix("file://").unwrap_or(text).replace("\\ ", " ")
}

const RECORD: &str = "record a program";
const RECORD_HINT: &str = "a shell command, such as torchrun --nproc-per-node 8 bench.py: it runs in the background, and its \
                    trace opens when it ends";

/// Asks for a command to record; its trace opens when the program ends.
pub fn ask_recording(cx: &mut Context) {
    let take = |state: &mut State, line: &str| {
        if line.trim().is_empty() {
            return Err("type a command".into());
        }
        record(&mut state.cx, line.trim().to_owned());
        Ok(())
    };
    let prompt = Prompt::new(
        RECORD.into(),
        RECORD_HINT.into(),
        String::new(),
        PromptCompletion::Nothing,
        Box::new(take),
    );
    cx.ask_line(prompt);
}

fn record(cx: &mut Context, line: String) {
    let stamp = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S-%3f").to_string();
    cx.inform(format!("recording {line}: its trace opens when it ends"));
    let dir = cx.dir.clone();
    // a slot of its own: a second recording does not make the first one stale
    let slot = ("record", usize::try_from(cx.now_ms).unwrap_or(usize::MAX));
    cx.ask_own(
        slot,
        move |_| record_shell(&dir, &stamp, &line),
        |recorded, cx| {
            let Some(recorded) = cx.ok_or_fail(recorded) else { return };
            if let Some(failure) = recorded.failure {
                cx.fail(format!("the recorded program failed, {failure}"));
            }
            let path = recorded.trace.to_string_lossy().into_owned();
            cx.request(Request::OpenPath(path, Opening::Alone(None)));
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_from_words() {
        for path in
            ["/tmp/a.parquet", "'/tmp/a b.json' ", "a/b", "~/x", "trace.json.gz", "file:///tmp/x.sqlite"]
        {
            assert!(looks_like_path(path), "{path}");
        }
        for words in ["undo", "open the run", "20260102-0304-1", ""] {
            assert!(!looks_like_path(words), "{words}");
        }
    }

    #[test]
    fn standard_with_the_same_settings_is_the_first_run_to_open_below() {
        let run = |architecture: &str, batch: u32| {
            let change = |spec: &mut Spec| {
                spec.architecture = architecture.parse().expect("it is one");
                spec.batch = batch;
            };
            table::testing::record("a", change, 0, &[(1.0, 1.0)])
        };
        let ladder = run("ladder", 1);
        let ranks = [run("standard", 1), run("parallel", 1), run("standard", 4)];
        assert_eq!(ranks.map(|other| counterpart_rank(&ladder, &other)), [0, 1, 2]);
    }

    #[test]
    fn a_file_of_the_folder_in_the_title_is_shown_by_its_name_and_opened_by_its_path() {
        let dir = tempfile::tempdir().expect("a directory");
        let folder = format!("{}/", dir.path().display());
        std::fs::write(dir.path().join("a.json"), "{}").expect("a file");
        let shown = |path: &str| shown_in(&folder, path);
        let inside = format!("{folder}a.json");
        assert_eq!(shown(&inside), "a.json");
        assert_eq!(path_in(&folder, shown(&inside)), inside);
        // a file of the same name in the current directory is another one
        assert_eq!(shown("a.json"), "./a.json");
        assert_eq!(path_in(&folder, shown("a.json")), "a.json");
        for elsewhere in ["/elsewhere/b.json", "sub/b.json"] {
            assert_eq!(path_in(&folder, shown(elsewhere)), elsewhere);
        }
        assert_eq!(shown_in("", "a.json"), "a.json");
        // one that is gone is named whole in the error
        assert_eq!(path_in(&folder, "gone.json".into()), format!("{folder}gone.json"));
        assert_eq!(path_in(&folder, "20260102-0304-1".into()), "20260102-0304-1");
    }

    #[test]
    fn a_path_is_cleaned_of_what_terminals_put_round_it() {
        assert_eq!(clean("'/tmp/a b.json' "), "/tmp/a b.json");
        assert_eq!(clean("/tmp/a\\ b.json"), "/tmp/a b.json");
        assert_eq!(clean("file:///tmp/x.sqlite"), "/tmp/x.sqlite");
    }
}
