//! Ranks of a GPU run: their location, threads with one GPU each, and the setup and teardown common to all NCCL ranks.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::TIMEOUT;
use crate::comm::nccl::{Communicator, Nccl};
use crate::comm::{Peers, Progress};
use crate::cuda::collective::Collective;
use crate::cuda::engine::{Alive, Local};
use crate::cuda::probe;
use base::error::{Error, Result};
use machine::driver::Gpu;
use table::shared_gpu;

/// Location of a [`crate::Job`]'s ranks. By default all are threads of this process, the first one on GPU 0.
#[derive(Clone, Debug)]
pub struct Ranks {
    /// Timeout: the run fails if a rank makes no progress for this long.
    pub timeout: Duration,
    /// Other ranks, if this process is one of several. Then only rank 0 returns samples and a trace.
    pub peers: Option<Arc<Peers>>,
    /// GPU of this process's first rank.
    pub device: usize,
    /// Notified of all progress; the run fails after `timeout` without any. Counts run events, and each
    /// [`Peers::phase`] of [`Ranks::threads`] and `peers`.
    pub progress: Arc<Progress>,
}

impl Default for Ranks {
    fn default() -> Self {
        Self { timeout: TIMEOUT, peers: None, device: 0, progress: Arc::default() }
    }
}

impl Ranks {
    /// Creates peers for ranks that are threads of this process.
    pub fn threads(&self, ranks: usize) -> Vec<Peers> {
        let watched = |peers: Peers| peers.with_progress(Arc::clone(&self.progress));
        Peers::threads(ranks, self.timeout).into_iter().map(watched).collect()
    }
}

/// Runs one thread per rank: rank 0 runs `first` on this thread and returns the result, the others run
/// `other`. Returns the first error of any rank.
pub(super) fn on_threads<R: Send>(
    all: Vec<Peers>,
    first: impl FnOnce(&Arc<Peers>) -> Result<R>,
    other: impl Fn(&Arc<Peers>) -> Result<R> + Sync,
) -> Result<R> {
    let mut all = all.into_iter().map(Arc::new);
    let peers = all.next().ok_or_else(|| Error::failed("no ranks"))?;
    std::thread::scope(|scope| {
        let other = &other;
        let others: Vec<_> = all
            .map(|peers| {
                std::thread::Builder::new()
                    .name(format!("rank{}", peers.rank()))
                    .spawn_scoped(scope, move || other(&peers))
                    .map_err(|e| Error::failed(format!("cannot start a thread: {e}")))
            })
            .collect();
        let started: Result<Vec<_>> = others.into_iter().collect();
        let others = started.inspect_err(|error| peers.abort(&error.to_string()))?;
        let mut result = first(&peers);
        for other in others {
            let ended = other.join().unwrap_or_else(|_| Err(Error::failed("a rank panicked")));
            if let (Ok(_), Err(error)) = (&result, ended) {
                result = Err(error);
            }
        }
        result
    })
}

/// Runs a rank's `part` on its GPU after joining its peers; an error aborts all ranks. `messages` are the
/// message sizes (bytes) for probing NCCL's choices beforehand; `None` if nothing is timed.
pub(super) fn among_peers<R>(
    nccl: &'static Nccl,
    device: usize,
    peers: &Arc<Peers>,
    messages: Option<&[u64]>,
    part: impl FnOnce(&Gpu, Local) -> Result<R>,
) -> Result<R> {
    let result = (|| {
        let gpu = Gpu::open(device)?;
        gpu.bind()?;
        // with a shared GPU no latency is used, so NCCL's choices are not probed
        let chosen = match messages.filter(|_| !shared_gpu::is_on()) {
            Some(messages) => {
                peers.phase("asking what NCCL chooses");
                probe::chosen(nccl, peers, &gpu, messages)?
            }
            None => None,
        };
        peers.phase("joining NCCL");
        let on = gpu.clone();
        let communicator = Communicator::join(nccl, peers, move || on.bind())?;
        let index = peers.rank() as u32;
        let collective = Collective::Nccl(communicator, chosen.map(Box::new));
        part(&gpu, Local { ranks: index..index + 1, collective, one_shot: None })
    })();
    result.inspect_err(|error| peers.abort(&format!("rank {}: {error}", peers.rank())))
}

/// Gathers the part of every rank on rank 0, or of this rank without peers; `None` on other ranks. `what`
/// names the parts in errors.
pub(super) fn gather<T: Serialize + DeserializeOwned>(
    peers: Option<&Arc<Peers>>,
    what: &str,
    part: T,
) -> Result<Option<Vec<T>>> {
    let Some(peers) = peers else { return Ok(Some(vec![part])) };
    let bytes = serde_json::to_vec(&part).map_err(|e| Error::failed(format!("{what}: {e}")))?;
    let Some(all) = peers.gather(bytes)? else { return Ok(None) };
    let parse = |(rank, bytes): (usize, &Vec<u8>)| {
        serde_json::from_slice(bytes)
            .map_err(|e| Error::failed(format!("the {what} of rank {rank} cannot be read: {e}")))
    };
    all.iter().enumerate().map(parse).collect::<Result<Vec<T>>>().map(Some)
}

/// Rank 0's `value` on every rank; `value` itself without peers. `what` names it in errors.
pub(super) fn broadcast<T: Serialize + DeserializeOwned>(
    peers: Option<&Arc<Peers>>,
    what: &str,
    value: T,
) -> Result<T> {
    let Some(peers) = peers else { return Ok(value) };
    let bytes = serde_json::to_vec(&value).map_err(|e| Error::failed(format!("{what}: {e}")))?;
    serde_json::from_slice(&peers.broadcast(bytes)?)
        .map_err(|e| Error::failed(format!("rank 0's {what} cannot be read: {e}")))
}

/// Check that an engine polls while it waits: fails once another rank has ended.
pub(super) fn alive(peers: Option<&Arc<Peers>>) -> Alive {
    let peers = peers.cloned();
    Arc::new(move || peers.as_ref().map_or(Ok(()), |peers| peers.check()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(20);

    #[test]
    fn rank_0_has_what_all_ranks_bring_and_the_first_error_is_everybodys() {
        let part = |peers: &Arc<Peers>| {
            assert_eq!(gather(None, "names", peers.rank())?, Some(vec![peers.rank()]));
            gather(Some(peers), "names", format!("rank {}", peers.rank()))
        };
        let all = on_threads(Peers::threads(3, TIMEOUT), part, part).unwrap();
        assert_eq!(all.unwrap(), ["rank 0", "rank 1", "rank 2"]);

        let part = |peers: &Arc<Peers>| {
            if peers.rank() == 2 {
                peers.abort("out of memory");
                return Err(Error::failed("out of memory"));
            }
            peers.barrier()
        };
        let error = on_threads(Peers::threads(3, TIMEOUT), part, part).unwrap_err();
        assert_eq!(error.to_string(), "out of memory");
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let part = |peers: &Arc<Peers>| match peers.rank() {
            0 => gather(Some(peers), "times", 1_u32).map(|_| ()),
            _ => peers.gather(b"[".to_vec()).map(|_| ()),
        };
        let error = on_threads(Peers::threads(2, TIMEOUT), part, part).unwrap_err().to_string();
        assert!(error.contains("the times of rank 1 cannot be read"), "{error}");
    }

    #[test]
    fn a_rank_that_panics_is_an_error() {
        let part = |peers: &Arc<Peers>| -> Result<()> {
            assert_eq!(peers.rank(), 0, "a panic on purpose");
            Ok(())
        };
        let error = on_threads(Peers::threads(2, TIMEOUT), part, part).unwrap_err().to_string();
        assert!(error.contains("panicked"), "{error}");
    }
}
