//! What lists of files say of traces before one is opened; reads only the first bytes of files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::directory::{self, Found};
use super::formats::{Reader, recognise};
use super::input::Input;
use super::rank::{Claim, choose, decide, far_apart, is_of_order, require_one_job};

/// Format of a file that cannot be opened as a trace, with an article: `a Chakra trace (JSON)`. `None` if it can be
/// opened, or if its first bytes do not tell. Packed archives are not unpacked.
pub fn refused(path: &Path) -> Option<&'static str> {
    let found = recognise(&Input::of(path)).ok()?;
    match found.reader() {
        Reader::None => found.format.map(|format| format.name),
        Reader::Archive(_) if found.packed.is_some() => None,
        Reader::Archive(_) => directory::of_file(path).is_err().then_some("an archive without a trace"),
        Reader::Importer(_) | Reader::Json => None,
    }
}

/// True if these traces of a directory are the ranks of one job, by their contents or names. Archives do not count.
pub fn are_ranks(files: &[PathBuf]) -> bool {
    let Ok(Found { files, .. }) = directory::of_files(files) else { return false };
    // each file counts as one rank: its processes are not read
    let claim = |(_, claim)| Claim { parts: vec![None], ..claim };
    let claims: Vec<Claim> = files.into_iter().map(claim).collect();
    // of several recordings of the same ranks, the importer reads one
    let Ok(chosen) = choose(&claims, None) else { return false };
    let claims: Vec<Claim> = chosen.files.iter().map(|at| claims[*at].clone()).collect();
    if claims.len() < 2 || require_one_job(&claims).is_err() || far_apart(&claims).is_some() {
        return false;
    }
    match claims.iter().map(Claim::rank).collect::<Option<BTreeSet<u32>>>() {
        Some(own) => own.len() > 1,
        None => !is_of_order(decide(&claims).how.as_deref()),
    }
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
        let files: Vec<PathBuf> = files.iter().map(|(name, _)| dir.path().join(name)).collect();
        are_ranks(&files)
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
        assert!(!holds(&[("run_1.json", &info(0, 8)), ("run_2.json", &info(0, 8))]), "both are rank 0");
        let at = |rank: u32, minutes: u64| {
            format!(r#"{} "baseTimeNanoseconds": {},"#, info(rank, 2), minutes * 60_000_000_000)
        };
        let [a, b, c, d] = [(0, 5), (1, 5), (0, 25), (1, 25)].map(|(rank, minutes)| at(rank, minutes));
        let twice =
            [("rank0_1.json", &*a), ("rank1_1.json", &*b), ("rank0_2.json", &*c), ("rank1_2.json", &*d)];
        assert!(holds(&twice), "two recordings of the same ranks");
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
