//! Detects two ranks on the same GPU before NCCL hangs or fails on it.

use std::collections::HashMap;

use base::error::{Error, Result};
use machine::driver::Gpu;
use run::comm::Peers;

/// Compares the GPUs of all ranks; every rank calls it with its own. Returns the same error on all ranks.
pub(super) fn all_different(peers: &Peers, device: usize) -> Result<()> {
    let info = Gpu::list()?.into_iter().nth(device);
    let info = info.ok_or_else(|| Error::failed(format!("there is no GPU {device}")))?;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    // includes the PCI address: emulated or partitioned GPUs may share a UUID
    let mine = format!("{} {} of {host}", info.uuid, info.pci);
    let all = peers.gather(mine.into_bytes())?;
    let problem = all.and_then(|all| {
        let names: Vec<String> = all.iter().map(|n| String::from_utf8_lossy(n).into_owned()).collect();
        shared(&names)
    });
    let answer = peers.broadcast(problem.unwrap_or_default().into_bytes())?;
    match answer.is_empty() {
        true => Ok(()),
        false => Err(Error::failed(String::from_utf8_lossy(&answer).into_owned())),
    }
}

/// Error message for the first GPU that two ranks share.
fn shared(names: &[String]) -> Option<String> {
    let mut first = HashMap::new();
    names.iter().enumerate().find_map(|(rank, name)| {
        let before = first.insert(name, rank)?;
        Some(format!(
            "ranks {before} and {rank} are on the same GPU ({name}): start at most as many processes a \
             host as it has GPUs, and let LOCAL_RANK or CUDA_VISIBLE_DEVICES tell them apart"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ranks_on_one_gpu_are_named() {
        let names = |all: [&str; 3]| all.map(str::to_owned).to_vec();
        assert_eq!(shared(&names(["a of x", "b of x", "a of y"])), None);
        let problem = shared(&names(["a of x", "b of x", "b of x"])).unwrap();
        assert!(problem.starts_with("ranks 1 and 2 are on the same GPU (b of x)"), "{problem}");
    }
}
