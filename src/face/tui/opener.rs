//! Open dialog: stored runs found by a filter, newest first; or trace files (recent, nearby, then the
//! typed folder).

use std::path::Path;

use super::context::{Context, Opening, Request};
use super::pick::{Chosen, Pick, Search};
use crate::desk::files;
use table::Record;

const RECENT: usize = 20;

const FILES: &str = "open a trace: a path lists its folder";
const RUNS: &str = "open a run: a filter, or the path of a trace";

impl Context {
    pub fn pick_file(&mut self, typed: &str, opening: Opening) {
        let before = |path: &String| (path.clone(), "opened before".to_owned());
        let lines: Vec<(String, String)> = self.recent.iter().map(before).collect();
        self.lay(pick(FILES, lines, opening).searched_by(Search::Paths).typed(&clean(typed)));
        let runs = self.dir.clone();
        self.ask_own(
            "near",
            move |_| Ok(files::near(Path::new("."), &runs)),
            |found, cx| {
                let found = found.unwrap_or_default().into_iter();
                let lines = found.map(|file| (file.path, file.about)).collect();
                if let Some(pick) = cx.top_mut::<Pick>().filter(|pick| pick.title == FILES) {
                    pick.add(lines);
                }
            },
        );
    }

    /// Opens a picker for stored runs that also accepts a file path.
    pub fn pick_run(&mut self, opening: Opening) {
        let Some(stored) = self.stored.clone() else { return self.pick_file("", opening) };
        let lines = stored.records.iter().map(|record| (record.run.clone(), told(record))).collect();
        self.lay(pick(RUNS, lines, opening).searched_by(Search::Runs(stored)));
    }

    fn open_named(&mut self, name: String, opening: Opening) {
        let run = self.stored.as_ref().is_some_and(|stored| stored.find(&name).is_some());
        self.request(match run {
            true => Request::OpenRuns { runs: vec![name], opening },
            false => Request::OpenPath(name, opening),
        });
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

fn pick(title: &str, lines: Vec<(String, String)>, opening: Opening) -> Pick {
    let literal = move |text: &str, nothing| meant(text, nothing, opening);
    Pick::new(title, lines, literal, move |state, chosen| {
        if let Chosen::Text(name) = chosen {
            state.cx.open_named(clean(&name), opening);
        }
    })
}

fn told(record: &Record) -> String {
    let failed = if record.metrics.is_some() { "" } else { record.status.as_str() };
    let words = [&record.spec.label(), &record.spec.model, record.provenance.as_str(), failed];
    words.join("  ").trim_end().to_owned()
}

/// Describes what Enter does with the typed text when no entry matches.
fn meant(text: &str, nothing_matches: bool, opening: Opening) -> Option<String> {
    let below = if opening == Opening::Beneath { " beneath the trace shown" } else { "" };
    let text = clean(text);
    (nothing_matches && !text.is_empty()).then(|| format!("Enter opens {text}{below}"))
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
    fn a_path_is_cleaned_of_what_terminals_put_round_it() {
        assert_eq!(clean("'/tmp/a b.json' "), "/tmp/a b.json");
        assert_eq!(clean("/tmp/a\\ b.json"), "/tmp/a b.json");
        assert_eq!(clean("file:///tmp/x.sqlite"), "/tmp/x.sqlite");
    }
}
