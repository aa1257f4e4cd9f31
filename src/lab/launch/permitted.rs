//! Limits on orders: a rank runs the cell that rank 0 names, but nothing that could load code or access files chosen
//! by rank 0. Allowed are NCCL's and CUDA's tuning variables and built-in models and profiles. Anything else must
//! also be named on this rank's own command line.

use super::leader::takes_several;
use super::protocol::Request;
use base::error::{Error, Result};
use machine::hardware::{Profile, Stack};
use model::Model;
use run::launcher::Launched;
use table::Spec;
use table::options::variables;

/// Cells of this rank's own command line, resolved lazily.
pub type OwnCells<'a> = &'a dyn Fn() -> Result<Vec<Spec>>;

/// Checks an order, and replaces the meeting address and the rank with this process's own.
///
/// # Errors
///
/// Returns an input error that names what this rank does not accept from rank 0.
pub(super) fn permit(job: &mut Request, launched: &Launched, own: OwnCells<'_>) -> Result<()> {
    let refused = |what: String| {
        Error::input_help(
            format!("rank {} takes no {what} from rank 0", launched.rank),
            "start every rank with the same command line",
        )
    };
    let Some(place) = &mut job.place else { return Err(refused("run without a place".into())) };
    if place.meeting.ranks > launched.ranks || !takes_several(&job.spec) {
        return Err(refused(format!(
            "run of {} ranks on {}",
            place.meeting.ranks,
            job.spec.backend.as_str()
        )));
    }
    let Launched { address, ports, rank, local_rank, local_ranks, .. } = launched.clone();
    (place.meeting.address, place.meeting.ports, place.meeting.rank) = (address, ports, rank);
    (place.local_rank, place.local_ranks) = (local_rank, local_ranks);
    let spec = &job.spec;
    /// Predicate: true if one of this rank's own cells has the setting too.
    type IsOwn<'a> = Box<dyn Fn(&Spec) -> bool + 'a>;
    let mut unknown: Vec<(String, IsOwn<'_>)> = Vec::new();
    for (name, value) in &spec.env {
        if variables::refusal(name, value).is_some() {
            let is_own = |cell: &Spec| cell.env.get(name) == Some(value);
            unknown.push((format!("variable {name}={value}"), Box::new(is_own)));
        }
    }
    if !Model::is_built_in(&spec.model) {
        let is_own = |cell: &Spec| cell.model == spec.model;
        unknown.push((format!("model directory {}", spec.model), Box::new(is_own)));
    }
    if Profile::file(&spec.hardware).is_some() {
        let is_own = |cell: &Spec| cell.hardware == spec.hardware;
        unknown.push((format!("hardware file {}", spec.hardware), Box::new(is_own)));
    }
    if Stack::file(&spec.stack).is_some() {
        let is_own = |cell: &Spec| cell.stack == spec.stack;
        unknown.push((format!("stack file {}", spec.stack), Box::new(is_own)));
    }
    if unknown.is_empty() {
        return Ok(());
    }
    let own = own()?;
    match unknown.into_iter().find(|(_, is_own)| !own.iter().any(is_own)) {
        Some((what, _)) => Err(refused(what)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::launch::protocol::Place;
    use run::comm::Meeting;
    use run::launcher::Launcher;
    use table::Backend;

    fn launched() -> Launched {
        Launched {
            launcher: Launcher::Torchrun,
            rank: 1,
            ranks: 2,
            local_rank: 1,
            local_ranks: Some(2),
            address: "127.0.0.1".into(),
            ports: vec![23_000],
            job: 1,
        }
    }

    fn order(change: impl FnOnce(&mut Request)) -> Request {
        let spec = Spec { backend: Backend::Cuda, model: "tiny".into(), tp: 2, ..Spec::default() };
        let (address, ports) = ("somewhere.else".into(), vec![1]);
        let meeting = Meeting { address, ports, job: 7, rank: 0, ranks: 2 };
        let mut job = Request {
            run: "run".into(),
            dir: "/somewhere".into(),
            spec,
            record: true,
            watch: true,
            timeout: Duration::from_secs(1),
            place: Some(Place { meeting, local_rank: 0, local_ranks: None }),
        };
        change(&mut job);
        job
    }

    fn refusal(change: impl FnOnce(&mut Request), own: &Spec) -> Option<String> {
        let mut job = order(change);
        permit(&mut job, &launched(), &|| Ok(vec![own.clone()])).err().map(|e| e.to_string())
    }

    #[test]
    fn a_rank_meets_where_its_own_launcher_says() {
        let mut job = order(|_| ());
        let unneeded = || -> Result<Vec<Spec>> { panic!("a plain order asks for nothing of its own") };
        permit(&mut job, &launched(), &unneeded).unwrap();
        let place = job.place.unwrap();
        assert_eq!(
            (place.meeting.address.as_str(), &place.meeting.ports[..]),
            ("127.0.0.1", &[23_000][..])
        );
        assert_eq!((place.meeting.rank, place.meeting.job, place.local_rank), (1, 7, 1));
    }

    #[test]
    fn no_variable_path_or_program_comes_from_rank_0_alone() {
        let own = Spec::default();
        for (name, value) in [
            ("LD_PRELOAD", "x.so"),
            ("LD_AUDIT", "x.so"),
            ("PATH", "x"),
            ("PYTHONPATH", "x"),
            ("LADDERSCOPE_NCCL", "x.so"),
            ("LADDERSCOPE_SECRET", "x"),
            ("NCCL_NET_PLUGIN", "x"),
            ("NCCL_TUNER_PLUGIN", "x"),
            ("NCCL_PROFILER_PLUGIN", "x"),
            ("NCCL_CONF_FILE", "x"),
            ("NCCL_DEBUG_FILE", "x"),
            ("NCCL_GRAPH_FILE", "x"),
            ("NCCL_TOPO_FILE", "x"),
            ("NCCL_TOPO_DUMP_FILE", "x"),
            ("CUDA_INJECTION64_PATH", "x"),
            ("CUDA_CACHE_PATH", "x"),
            ("NCCL_ALGO", "/tmp/x"),
            ("nccl_algo", "Ring"),
        ] {
            let set = |job: &mut Request| _ = job.spec.env.insert(name.into(), value.into());
            let why = refusal(set, &own).unwrap_or_else(|| panic!("{name} was taken"));
            assert!(why.contains(&format!("takes no variable {name}={value} from rank 0")), "{why}");
            // what the rank's own command line says is the user's
            let mut same = own.clone();
            same.env.insert(name.into(), value.into());
            assert_eq!(refusal(set, &same), None, "{name}");
            same.env.insert(name.into(), "another".into());
            assert!(refusal(set, &same).is_some(), "{name} of another value");
        }
        let set = |job: &mut Request| _ = job.spec.env.insert("NCCL_ALGO".into(), "Ring".into());
        assert_eq!(refusal(set, &own), None);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.toml");
        std::fs::write(&file, "").unwrap();
        let path = file.to_string_lossy().into_owned();
        for set in [
            |job: &mut Request, path: &str| job.spec.model = path.into(),
            |job: &mut Request, path: &str| job.spec.hardware = path.into(),
            |job: &mut Request, path: &str| job.spec.stack = path.into(),
        ] {
            let why = refusal(|job| set(job, &path), &own).unwrap_or_else(|| panic!("it was taken"));
            assert!(why.contains(&path), "{why}");
            let mut same = order(|_| ());
            set(&mut same, &path);
            assert_eq!(refusal(|job| set(job, &path), &same.spec), None);
        }
        assert!(refusal(|job| job.spec.backend = Backend::Cpu, &own).is_some());
        assert!(refusal(|job| job.place.as_mut().unwrap().meeting.ranks = 3, &own).is_some());
        assert!(refusal(|job| job.place = None, &own).is_some());
    }
}
