//! Child side of a run: executes one job, sends events, and exits when its parent dies.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use super::{Request, TRACE};
use base::error::{Error, Result};
use base::regular;
use machine::driver::Gpu;
use run::comm::{Meeting, Peers, ProgressMonitor, Secret, start_watchdog};
use run::launcher::Launched;
use run::{Job, Outcome, RunEvent, executor, launcher};
use table::shared_gpu;

/// Interval between memory reports.
const MEMORY_EVERY: Duration = Duration::from_millis(500);

/// Entry point of the hidden verb `__run`: reads a job from standard input and writes events to standard output.
/// Exits when the parent dies.
pub fn child_main() -> ExitCode {
    // the parent handles terminal interrupts and ends its children itself
    let _ = signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::new(AtomicBool::new(false)));
    let mut line = String::new();
    let request: Request =
        match std::io::stdin().read_line(&mut line).map(|_| serde_json::from_str(&line)) {
            Ok(Ok(request)) => request,
            Ok(Err(e)) => {
                eprintln!("__run reads one line of JSON, a job, from standard input: {e}");
                return ExitCode::from(2);
            }
            Err(e) => {
                eprintln!("__run: standard input cannot be read: {e}");
                return ExitCode::from(2);
            }
        };
    if let Some(runs) = request.dir.as_ref().and_then(|dir| dir.parent()) {
        regular::confine(runs);
    }
    std::thread::spawn(exit_with_parent);
    std::thread::spawn(report_memory);
    let panic = remember_panics();
    let supervised = executor(request.spec.backend).is_ok_and(|executor| executor.is_supervised());
    let watched = Arc::new(Watched::default());
    if supervised {
        let seen = Arc::clone(&watched);
        start_watchdog(Arc::clone(&watched.progress), request.timeout, move |why| seen.give_up(&why));
    }
    let ended = match catch_unwind(AssertUnwindSafe(|| execute(&request, &watched))) {
        Ok(Ok(outcome)) => RunEvent::End { outcome },
        Ok(Err(e)) => RunEvent::Error { message: e.to_string(), code: e.exit_code() },
        Err(_) => {
            let message = panic.lock().ok().and_then(|mut p| p.take());
            let message = message.unwrap_or_else(|| "it panicked".into());
            RunEvent::Error { message: format!("internal error: {message}"), code: 1 }
        }
    };
    let code = if let RunEvent::Error { code, .. } = &ended { *code } else { 0 };
    send(&ended);
    if code != 0 && supervised {
        // an orderly exit could wait forever for a driver whose work hangs
        signal_hook::low_level::exit(i32::from(code));
    }
    ExitCode::from(code)
}

/// State that the watchdog needs to abort a run.
#[derive(Default)]
struct Watched {
    progress: Arc<ProgressMonitor>,
    peers: OnceLock<Arc<Peers>>,
}

impl Watched {
    /// Exits the process at once, because its state is no longer reliable.
    fn give_up(&self, why: &str) {
        if let Some(peers) = self.peers.get() {
            peers.abort(&format!("rank {}: {why}", peers.rank()));
        }
        send(&RunEvent::Error { message: why.to_owned(), code: 1 });
        leave();
    }
}

fn execute(request: &Request, watched: &Watched) -> Result<Outcome> {
    let mut job = Job::new(request.spec.clone(), true, request.watch);
    job.ranks.timeout = request.timeout;
    job.ranks.progress = Arc::clone(&watched.progress);
    if let Some(number) = request.job {
        let launched = launcher::of_process()?
            .ok_or_else(|| Error::failed("a run of several processes without a launcher"))?;
        let ranks = request.spec.tp as usize;
        report(watched, RunEvent::Phase { name: format!("meet {ranks} ranks") });
        let meeting = Meeting { job: number, ranks, ..launched.meeting.clone() };
        let peers = Peers::connect(&meeting, &Secret::load()?, request.timeout, None)?;
        let peers = Arc::new(peers.with_progress(Arc::clone(&watched.progress)));
        let _ = watched.peers.set(Arc::clone(&peers));
        job.ranks.peers = Some(Arc::clone(&peers));
        let done = choose_gpu(&mut job, launched, &peers).and_then(|()| run(request, &job, watched));
        if let Err(e) = &done {
            let why = e.to_string();
            // a message that names a rank may concern all ranks, or a different one
            let named = why.starts_with("rank");
            peers.abort(&if named { why } else { format!("rank {}: {why}", peers.rank()) });
        }
        return done;
    }
    run(request, &job, watched)
}

/// Chooses the GPU of this process's rank. Returns an error on all ranks if two of them chose the same GPU, before
/// NCCL hangs or fails on it.
fn choose_gpu(job: &mut Job, launched: &Launched, peers: &Peers) -> Result<()> {
    if shared_gpu::is_on() {
        return Ok(());
    }
    job.ranks.device = launched.device(Gpu::count()?)?;
    let device = job.ranks.device;
    let info = Gpu::list()?.into_iter().nth(device);
    let info = info.ok_or_else(|| Error::failed(format!("no GPU {device} in this machine")))?;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    // includes the PCI address: emulated or partitioned GPUs may share a UUID
    let mine = format!("{} {} of {host}", info.uuid, info.pci);
    let all = peers.gather(mine.into_bytes())?;
    let problem = all.and_then(|all| {
        let names: Vec<String> = all.iter().map(|n| String::from_utf8_lossy(n).into_owned()).collect();
        shared_by_two(&names)
    });
    let answer = peers.broadcast(problem.unwrap_or_default().into_bytes())?;
    match answer.is_empty() {
        true => Ok(()),
        false => Err(Error::failed(String::from_utf8_lossy(&answer).into_owned())),
    }
}

/// Error message for the first GPU that two ranks share.
fn shared_by_two(names: &[String]) -> Option<String> {
    let mut first = HashMap::new();
    names.iter().enumerate().find_map(|(rank, name)| {
        let before = first.insert(name, rank)?;
        Some(format!(
            "ranks {before} and {rank} are on the same GPU ({name}): start at most as many processes a \
             host as it has GPUs, and let LOCAL_RANK or CUDA_VISIBLE_DEVICES tell them apart"
        ))
    })
}

/// Sends an event to the parent and counts it as progress.
fn report(watched: &Watched, event: RunEvent) {
    watched.progress.of_run(match &event {
        RunEvent::Phase { name } => Some(name),
        _ => None,
    });
    send(&event);
}

fn run(request: &Request, job: &Job, watched: &Watched) -> Result<Outcome> {
    // before the run, so that load and clocks are not affected by it
    let mut environment = machine::environment::collect();
    let backend = executor(request.spec.backend)?;
    let (mut outcome, trace) = backend.run(job, &mut |event| report(watched, event))?;
    environment.extend(std::mem::take(&mut outcome.environment));
    let warnings = backend.after(job, &mut environment);
    warnings.into_iter().for_each(|message| send(&RunEvent::Warning { message }));
    environment.insert("plan_hashes".into(), serde_json::json!(outcome.plan_hashes));
    outcome.environment = environment;
    if let (Some(mut trace), Some(dir)) = (trace, &request.dir) {
        report(watched, RunEvent::Phase { name: "writing the trace".into() });
        trace.meta.run = Some(request.run.clone());
        trace.meta.environment = outcome.environment.clone();
        trace::write(&dir.join(TRACE), &trace)?;
    }
    report_resident();
    Ok(outcome)
}

/// Writes one event as one line. Lines from different threads never mix.
fn send(event: &RunEvent) {
    let Ok(mut line) = serde_json::to_string(event) else { return };
    line.push('\n');
    let mut out = std::io::stdout().lock();
    if out.write_all(line.as_bytes()).and_then(|()| out.flush()).is_err() {
        // the parent has closed the pipe
        leave();
    }
}

/// Exits at once: an orderly exit runs library handlers that may wait for hung work.
fn leave() -> ! {
    signal_hook::low_level::exit(1)
}

/// Exits when standard input closes. The parent keeps it open while it lives.
fn exit_with_parent() {
    let mut buffer = [0; 256];
    loop {
        match std::io::stdin().read(&mut buffer) {
            Ok(0) => leave(),
            Err(e) if e.kind() != std::io::ErrorKind::Interrupted => leave(),
            _ => {}
        }
    }
}

fn report_memory() {
    while report_resident() {
        std::thread::sleep(MEMORY_EVERY);
    }
}

/// Reports resident memory. Returns false if the system does not provide it.
fn report_resident() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let Some(resident_bytes) = machine::environment::entry_bytes(&status, "VmRSS") else { return false };
    send(&RunEvent::Memory { resident_bytes });
    true
}

/// Stores the message and location of the latest panic. The usual panic text still goes to the log.
fn remember_panics() -> Arc<Mutex<Option<String>>> {
    let latest = Arc::new(Mutex::new(None));
    let (store, usual) = (latest.clone(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |info| {
        if let Ok(mut latest) = store.lock() {
            let what = info.payload_as_str().unwrap_or("a panic without a message");
            let place = info.location().map(|l| format!(" at {l}")).unwrap_or_default();
            *latest = Some(format!("{what}{place}"));
        }
        usual(info);
    }));
    latest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ranks_on_one_gpu_are_named() {
        let names = |all: [&str; 3]| all.map(str::to_owned).to_vec();
        assert_eq!(shared_by_two(&names(["a of x", "b of x", "a of y"])), None);
        let problem = shared_by_two(&names(["a of x", "b of x", "b of x"])).unwrap();
        assert!(problem.starts_with("ranks 1 and 2 are on the same GPU (b of x)"), "{problem}");
    }
}
