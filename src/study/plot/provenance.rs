//! Provenance of a figure: the caption below it, and the metadata of its file.

use std::collections::BTreeSet;
use std::path::Path;

use super::style;
use crate::rewire::PREDICTION_ERROR;
use crate::validate::{nearest_errors, stand_ins};
use base::text::{counted, shell_command};
use machine::environment::binary_hash;
use run::sim::LINK_WARNING;
use table::{Environment, Provenance, Record, Spec};
use trace::Trace;

/// Maximum values that a list spells out; longer lists give only the count.
const LISTED: usize = 3;

/// Provenance of a figure's numbers: measured or simulated, machines, software.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProvenanceSummary {
    pub kinds: BTreeSet<Provenance>,
    pub hardware: BTreeSet<String>,
    /// Emulated links and overridden profile values.
    pub changes: BTreeSet<String>,
    /// Links not measured at their TP: `link: TP 8 extrapolated from TP 4 and TP 2`.
    pub links: BTreeSet<String>,
    /// Links that other GPUs stand in for.
    pub stand_ins: BTreeSet<String>,
    /// Stacks of the simulator, or driver and NCCL versions of the machines.
    pub software: BTreeSet<String>,
    /// Errors of the simulator on the nearest validated data.
    pub errors: BTreeSet<String>,
    pub commits: BTreeSet<String>,
    /// Number of runs; 0 for a trace without a run.
    pub runs: usize,
    /// Sources of overlay points: a paper, a file.
    pub elsewhere: BTreeSet<String>,
    /// Dates of the runs (RFC 3339).
    pub days: BTreeSet<String>,
    pub writer: Option<Writer>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// Command line, with paths shortened by [`without_places`].
    pub command: String,
    pub binary: Option<String>,
}

impl Writer {
    pub fn here() -> Self {
        let words = std::env::args_os().skip(1);
        let words = words.map(|word| without_places(&word.to_string_lossy()));
        Self {
            command: shell_command(std::iter::once("ladderscope".to_owned()).chain(words)),
            binary: binary_hash().as_str().map(str::to_owned),
        }
    }
}

/// Shortens absolute paths in a text, because published figures must not reveal the machine's folders:
/// relative to the working directory if inside, else only the file name.
pub(super) fn without_places(text: &str) -> String {
    if !text.contains('/') {
        return text.to_owned();
    }
    let here = std::env::current_dir().ok();
    let short = |part: &str| {
        let path = Path::new(part);
        let below = here.as_deref().and_then(|here| path.strip_prefix(here).ok());
        let left = match (path.is_absolute(), below) {
            (false, _) => return part.to_owned(),
            (true, Some(below)) if below.as_os_str().is_empty() => Path::new("."),
            (true, Some(below)) => below,
            (true, None) => path.file_name().map_or(path, Path::new),
        };
        left.to_string_lossy().into_owned()
    };
    // a path may be part of a list, an option or a sentence
    let parts = text.split_inclusive([' ', '=', ',', ':', ';', '(', ')', '"', '\'']);
    parts
        .map(|part| {
            let word = part.trim_end_matches([' ', '=', ',', ':', ';', '(', ')', '"', '\'']);
            short(word) + &part[word.len()..]
        })
        .collect()
}

impl ProvenanceSummary {
    /// Provenance of these runs. Rows of batches have a commit only with their environment (see
    /// [`lab::store::Store::complete`]).
    pub fn of_records<'a>(records: impl IntoIterator<Item = &'a Record>) -> Self {
        let (mut provenance, mut specs) = (Self::default(), Vec::new());
        for record in records {
            specs.push(&record.spec);
            provenance.add(&record.spec, record.provenance, &record.environment);
            let links = record.warnings.iter().filter(|warning| warning.starts_with(LINK_WARNING));
            provenance.links.extend(links.cloned());
            provenance.days.extend(record.created.get(..10).map(str::to_owned));
            provenance.runs += record.runs.len().max(1);
        }
        provenance.stand_ins = stand_ins(specs);
        provenance
    }

    /// Adds the commits of these batch records; rows of a batch share its commit.
    pub fn with_commits_of<'a>(mut self, wholes: impl IntoIterator<Item = &'a Record>) -> Self {
        self.commits.extend(Self::of_records(wholes).commits);
        self
    }

    pub fn of_traces<'a>(traces: impl IntoIterator<Item = &'a Trace>) -> Self {
        let mut provenance = Self::default();
        for trace in traces {
            let meta = &trace.meta;
            provenance.kinds.insert(meta.provenance);
            match &meta.spec {
                Some(spec) => provenance.add(spec, meta.provenance, &meta.environment),
                None => provenance.add_machine(&meta.environment),
            }
            provenance.errors.extend(text(&meta.environment, &format!("/{PREDICTION_ERROR}")));
            provenance.runs += usize::from(meta.run.is_some());
            provenance
                .software
                .extend(meta.import.as_ref().map(|import| format!("from {}", import.format)));
        }
        provenance
    }

    fn add(&mut self, spec: &Spec, provenance: Provenance, environment: &Environment) {
        self.kinds.insert(provenance);
        if spec.backend.is_simulated() {
            let set: Vec<String> = spec.set.iter().map(|(k, v)| format!("{k}={v}")).collect();
            self.changes.extend((!set.is_empty()).then(|| set.join(" ")));
            self.hardware.insert(spec.hardware.clone());
            self.software.insert(format!("stack {}", spec.stack));
            self.errors.extend(nearest_errors([spec]));
        } else {
            self.add_machine(environment);
            if spec.link.is_emulated() {
                self.changes.insert(format!("link {}", spec.link));
            }
        }
        self.commits.extend(text(environment, "/commit").map(short));
    }

    fn add_machine(&mut self, environment: &Environment) {
        let gpus = environment.get("gpus").and_then(|gpus| gpus.as_array()).filter(|g| !g.is_empty());
        // some profilers list GPUs without names
        let gpu = gpus.and_then(|gpus| Some((gpus.len(), gpus.first()?.get("name")?.as_str()?)));
        let gpu = gpu.filter(|(_, name)| !name.trim().is_empty());
        let cpu = text(environment, "/cpu/model");
        let what = gpu.map(|(count, name)| format!("{count} x {name}")).or(cpu);
        match (what, text(environment, "/host")) {
            (Some(what), Some(host)) => self.hardware.insert(format!("{what} ({host})")),
            (Some(name), None) | (None, Some(name)) => self.hardware.insert(name),
            (None, None) => false,
        };
        for (path, name) in [("/driver/version", "driver"), ("/driver/cuda", "CUDA"), ("/nccl", "NCCL")]
        {
            self.software.extend(text(environment, path).map(|version| format!("{name} {version}")));
        }
    }

    pub fn origin(&self) -> String {
        style::provenance(self.kinds.iter().copied())
    }

    pub fn caption(&self) -> String {
        let mut words = vec![self.origin()];
        words.extend(listed("sources", &self.elsewhere).map(|sources| format!("overlay: {sources}")));
        words.extend(listed("machines and profiles", &self.hardware));
        words.extend(listed("links and profile values", &self.changes));
        words.extend(listed("extrapolated links", &self.links));
        words.extend(listed("stand-ins for links", &self.stand_ins));
        words.extend(listed("software versions", &self.software));
        words.extend(listed("simulator errors (`validate` lists them)", &self.errors));
        words.extend((self.runs > 0).then(|| counted(self.runs, "run")));
        words.push(match listed("commits", &self.commits) {
            Some(commits) => format!("ladderscope {} {commits}", env!("CARGO_PKG_VERSION")),
            None => format!("ladderscope {}", env!("CARGO_PKG_VERSION")),
        });
        words.extend(match (self.days.first(), self.days.last()) {
            (Some(first), Some(last)) if first != last => Some(format!("{first} to {last}")),
            (first, _) => first.cloned(),
        });
        words.retain(|word| !word.is_empty());
        without_places(&words.join("; "))
    }

    pub fn pairs(&self) -> Vec<(&'static str, String)> {
        let join = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join("; ");
        let all = [
            ("Provenance", self.origin()),
            ("Beside", join(&self.elsewhere)),
            ("Hardware", join(&self.hardware.union(&self.changes).cloned().collect())),
            ("Links", join(&self.links.union(&self.stand_ins).cloned().collect())),
            ("Stack", join(&self.software)),
            ("Software", concat!("ladderscope ", env!("CARGO_PKG_VERSION")).to_owned()),
            ("Commit", join(&self.commits)),
            ("Command", self.writer.as_ref().map(|writer| writer.command.clone()).unwrap_or_default()),
            ("Binary", self.writer.as_ref().and_then(|w| w.binary.clone()).unwrap_or_default()),
            ("Runs", if self.runs > 0 { self.runs.to_string() } else { String::new() }),
            ("Creation Time", self.days.last().cloned().unwrap_or_default()),
        ];
        let known = all.into_iter().filter(|(_, value)| !value.is_empty());
        known.map(|(name, value)| (name, without_places(&value))).collect()
    }
}

fn text(environment: &Environment, pointer: &str) -> Option<String> {
    let mut keys = pointer.split('/').skip(1);
    let first = environment.get(keys.next()?)?;
    keys.try_fold(first, |value, key| value.get(key))?.as_str().map(str::to_owned)
}

/// Abbreviated commit, with its `+dirty` suffix if present.
fn short(commit: String) -> String {
    let (hash, dirty) = commit.split_once('+').map_or((commit.as_str(), None), |(h, d)| (h, Some(d)));
    let hash = hash.get(..10).unwrap_or(hash);
    dirty.map_or_else(|| hash.to_owned(), |dirty| format!("{hash}+{dirty}"))
}

fn listed(what: &str, set: &BTreeSet<String>) -> Option<String> {
    match set.len() {
        0 => None,
        n if n <= LISTED => Some(set.iter().cloned().collect::<Vec<_>>().join(", ")),
        n => Some(format!("{n} {what}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn absolute_paths_are_shortened_and_nothing_else() {
        let here = std::env::current_dir().unwrap();
        let below = here.join("runs/a.svg").display().to_string();
        for (text, wanted) in [
            ("/home/ann/models/llama", "llama"),
            ("--weights=/home/ann/llama", "--weights=llama"),
            ("/a/b.txt,/c/d.txt", "b.txt,d.txt"),
            ("simulated; /x/y/mine.toml; stack /x/z.toml (3)", "simulated; mine.toml; stack z.toml (3)"),
            ("tokens/s/GPU, 2 / 3, runs/a", "tokens/s/GPU, 2 / 3, runs/a"),
            ("../shared/x.toml", "../shared/x.toml"),
            (below.as_str(), "runs/a.svg"),
        ] {
            assert_eq!(without_places(text), wanted);
        }
        assert_eq!(without_places(&here.display().to_string()), ".");
        let writer = Writer::here();
        assert!(writer.command.starts_with("ladderscope"), "{writer:?}");
        assert_eq!(writer.binary.as_ref().map(String::len), Some(64));
    }

    #[test]
    fn one_machine_is_one_whatever_was_changed_in_it() {
        let of = |alpha: u32| {
            let set = |spec: &mut Spec| _ = spec.set.insert("link.alpha_us".into(), alpha.to_string());
            sim_record(&alpha.to_string(), set, 1.0, 1.0)
        };
        let records: Vec<Record> = (1..8).map(of).collect();
        let caption = ProvenanceSummary::of_records(&records).caption();
        assert!(caption.contains("h100_sxm; 7 links and profile values"), "{caption}");
        let caption = ProvenanceSummary::of_records(&records[..1]).caption();
        assert!(caption.contains("h100_sxm; link.alpha_us=1"), "{caption}");
    }

    use super::*;
    use table::testing::{record, sim_record};

    #[test]
    fn an_extrapolated_link_stands_under_the_figure() {
        let mut record = sim_record("a", |_| (), 1.0, 1.0);
        record.warnings = vec!["odd".into(), "link: TP 8 extrapolated from TP 4 and TP 2".into()];
        let provenance = ProvenanceSummary::of_records([&record]);
        let caption = provenance.caption();
        assert!(caption.contains("; link: TP 8 extrapolated from TP 4 and TP 2;"), "{caption}");
        assert!(!caption.contains("odd"), "{caption}");
        assert!(provenance.pairs().iter().any(|(key, value)| *key == "Links" && value.contains("TP 8")));
    }

    #[test]
    fn a_caption_says_all_that_a_sceptic_asks() {
        let mut measured = record("a", |_| (), 0, &[(1.0, 1.0)]);
        measured.created = "2026-01-02T03:04:05Z".into();
        for (key, value) in [
            ("host", json!("node7")),
            ("gpus", json!([{"name": "NVIDIA H100"}, {"name": "NVIDIA H100"}])),
            ("driver", json!({"cuda": "13.0", "version": "580.1"})),
            ("nccl", json!("2.28.3")),
            ("commit", json!("0123456789abcdef+dirty")),
        ] {
            measured.environment.insert(key.into(), value);
        }
        let simulated = sim_record("b", |_| (), 1.0, 1.0);
        let provenance = ProvenanceSummary::of_records([&measured, &simulated]);
        let caption = provenance.caption();
        for part in [
            "measured; simulated (not a measurement)",
            "2 x NVIDIA H100 (node7)",
            "h100_sxm",
            "2 runs",
            "0123456789+dirty",
            "2026-01-02",
        ] {
            assert!(caption.contains(part), "'{part}' is missing in {caption}");
        }
        let pairs = provenance.pairs();
        let of = |name| pairs.iter().find(|(key, _)| *key == name).map(|(_, v)| v.as_str());
        assert_eq!(of("Stack"), Some("CUDA 13.0; NCCL 2.28.3; driver 580.1; stack native"));
        assert_eq!(of("Creation Time"), Some("2026-01-02"));
    }
}
