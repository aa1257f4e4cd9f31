//! What lists of files say of traces before one is opened; reads only the first bytes of files.

use std::collections::BTreeSet;
use std::path::Path;

use super::directory::{self, Found};
use super::formats::{Reader, recognise};
use super::input::Input;
use super::rank::{Claim, decide, far_apart, is_of_order, require_one_job};

/// Format of a file that cannot be opened as a trace, with an article: `a Chakra trace (JSON)`. `None` if it can be
/// opened, or if its first bytes do not tell. Archives are unpacked.
pub fn refused(path: &Path) -> Option<&'static str> {
    let found = recognise(&Input::of(path)).ok()?;
    match found.reader() {
        Reader::None => found.format.map(|format| format.name),
        Reader::Archive(_) => directory::of_file(path).is_err().then_some("an archive without a trace"),
        Reader::Importer(_) | Reader::Json => None,
    }
}

/// True if the traces of a directory are the ranks of one job, by their contents or names.
pub fn holds_ranks(directory: &Path) -> bool {
    let Ok(Found { files, .. }) = directory::look(directory) else { return false };
    // each file counts as one rank: its processes are not read
    let claim = |(_, claim)| Claim { parts: vec![None], ..claim };
    let claims: Vec<Claim> = files.into_iter().map(claim).collect();
    if claims.len() < 2 || require_one_job(&claims).is_err() || far_apart(&claims).is_some() {
        return false;
    }
    // several recordings of the same ranks
    let own: Option<BTreeSet<u32>> = claims.iter().map(Claim::rank).collect();
    own.is_some_and(|own| own.len() > 1) || !is_of_order(&decide(&claims))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(files: &[(&str, &str)]) -> bool {
        let dir = tempfile::tempdir().unwrap();
        for (name, head) in files {
            let event = r#"{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1.0, "dur": 2.0}"#;
            let text = format!(r#"{{{head} "traceEvents": [{event}], "file": "{name}"}}"#);
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        holds_ranks(dir.path())
    }

    #[test]
    fn ranks_of_one_job_are_told_from_unrelated_traces() {
        assert!(holds(&[("rank0.json", ""), ("rank1.json", "")]));
        let info = |rank: u32, size: u32| {
            format!(r#""distributedInfo": {{"rank": {rank}, "world_size": {size}}},"#)
        };
        assert!(holds(&[("host_a.json", &info(0, 2)), ("host_b.json", &info(1, 2))]));
        assert!(!holds(&[("vllm.json", ""), ("b200_tp8.json", "")]));
        assert!(!holds(&[("a.json", &info(0, 2)), ("b.json", &info(1, 8))]), "of two jobs");
        assert!(!holds(&[("rank0.json", "")]), "one file");
    }

    #[test]
    fn a_file_that_cannot_be_opened_has_a_format() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            std::fs::write(dir.path().join(name), bytes).unwrap();
            refused(&dir.path().join(name))
        };
        assert_eq!(file("a.json", br#"{"traceEvents": [{"ph": "X", "ts": 1}]}"#), None);
        assert_eq!(file("a.h5", b"\x89HDF\r\n\x1a\n...."), Some("an HDF5 export of Nsight Systems"));
        assert_eq!(file("notes.txt", b"some words"), None, "not known");
    }
}
