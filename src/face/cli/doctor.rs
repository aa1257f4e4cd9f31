//! `ladderscope doctor`: capabilities of this machine. Never fails for lack of a GPU.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::doctor_gpu::{self, CudaState};
use super::doctor_machine::{self, Bandwidth, Cpu, Disk, MemoryState, Terminal, Timer};
use super::output::{self, FormatArgs, bytes};
use super::{doctor_check, doctor_store};
use base::error::Result;
use base::text::counted;
use run::comm::nccl::{self, Probe as Nccl};
use run::{BACKENDS, PlanBackend};
use table::render::{Shown, Sourced, Table};

/// Arguments of `ladderscope doctor`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Skip all measurements: finishes at once and does not disturb other users
    #[arg(long)]
    pub quick: bool,
    /// Verify results and speed on each GPU instead (half a minute per GPU); without a GPU, list the checks and exit
    /// with status 2
    #[arg(long, conflicts_with = "quick")]
    pub check: bool,
    /// Verify the checksums of all records and traces in a runs directory instead; exit with status 1 if a file is
    /// damaged
    #[arg(long, value_name = "DIR", conflicts_with_all = ["quick", "check"])]
    pub store: Option<PathBuf>,
    #[command(flatten)]
    pub output: FormatArgs,
}

/// Output of `doctor` in JSON.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct PrintedMachine {
    version: &'static str,
    cpu: Cpu,
    memory: MemoryState,
    /// Null if not measured.
    memory_bandwidth: Option<Bandwidth>,
    timer: Timer,
    cuda: CudaState,
    nccl: Nccl,
    nvtx: Nvtx,
    terminal: Terminal,
    disk: Disk,
    backends: Vec<BackendState>,
}

/// State of NVTX: attached if a tool receives ranges.
#[derive(Debug, Serialize, schemars::JsonSchema)]
struct Nvtx {
    attached: bool,
    /// Library of the attached tool, or how to attach one.
    detail: String,
}

/// Availability of a backend on this machine.
#[derive(Debug, Serialize, schemars::JsonSchema)]
struct BackendState {
    name: &'static str,
    available: bool,
    /// Capabilities, or why it is unavailable.
    detail: String,
}

pub fn run(args: &Args, dir: &Path) -> Result<u8> {
    if let Some(store) = &args.store {
        return doctor_store::check_store(store, args.output.format);
    }
    if args.check {
        return doctor_check::check_gpus(args.output.format);
    }
    let report = probe(dir, !args.quick);
    let csv = || {
        let mut rows = Table::new(["key", "value"]);
        flatten("", &serde_json::to_value(&report).unwrap_or_default(), &mut rows);
        rows.csv(Sourced::NoRuns)
    };
    output::print(args.output.format, &report, csv, || text(&report))?;
    Ok(0)
}

fn probe(dir: &Path, measure: bool) -> PrintedMachine {
    let cpu = doctor_machine::cpu();
    let memory = doctor_machine::memory();
    let memory_bandwidth = measure
        .then(|| doctor_machine::memory_bandwidth(cpu.threads, cpu.l3_bytes, memory.available_bytes));
    PrintedMachine {
        version: env!("CARGO_PKG_VERSION"),
        memory_bandwidth,
        cuda: doctor_gpu::probe(measure),
        nccl: nccl::probe(),
        backends: backends(),
        timer: doctor_machine::timer(),
        nvtx: nvtx(),
        terminal: doctor_machine::terminal(),
        disk: doctor_machine::disk(dir),
        cpu,
        memory,
    }
}

/// Reads the variable through which a tool attaches, since NVTX itself cannot be queried.
fn nvtx() -> Nvtx {
    const INJECTION: &str = "NVTX_INJECTION64_PATH";
    let path = std::env::var_os(INJECTION).filter(|path| !path.is_empty());
    let attached = path.as_ref().is_some_and(|path| Path::new(path).exists());
    let detail = match path {
        Some(path) => {
            let missing = if attached { "" } else { ": no such file" };
            format!("{INJECTION}={}{missing}", path.to_string_lossy())
        }
        None => "no profiler attached (try: nsys profile ladderscope run ...)".into(),
    };
    Nvtx { attached, detail }
}

fn backends() -> Vec<BackendState> {
    let state = |backend: &&dyn PlanBackend| {
        let found = backend.available();
        let available = found.is_ok();
        BackendState {
            name: backend.name().as_str(),
            available,
            detail: found.unwrap_or_else(|why| why),
        }
    };
    BACKENDS.iter().map(state).collect()
}

fn check_mark(is_good: bool) -> &'static str {
    if is_good { "✔" } else { "✘" }
}

fn text(report: &PrintedMachine) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        text += &output::wrapped(&format!("{name:<12}"), &value, 12);
    };
    line("ladderscope", report.version.into());
    let cpu = &report.cpu;
    line(
        "CPU",
        format!(
            "{}, {}, {}, L3 {}",
            cpu.model,
            counted(cpu.cores, "core"),
            counted(cpu.threads, "thread"),
            bytes(cpu.l3_bytes)
        ),
    );
    line("SIMD", if cpu.simd.is_empty() { "scalar".into() } else { cpu.simd.join(" ") });
    let memory = &report.memory;
    line(
        "memory",
        format!("{} total, {} available", bytes(memory.total_bytes), bytes(memory.available_bytes)),
    );
    line("bandwidth", bandwidth_text(report.memory_bandwidth.as_ref()));
    let timer = &report.timer;
    line(
        "timer",
        format!(
            "resolution {} ns, read cost {:.0} ns; sleep of {} us overshoots by {:.0} us (median; p99 {:.0} us)",
            timer.resolution_ns,
            timer.reading_ns,
            timer.sleep_us,
            timer.overshoot_p50_us,
            timer.overshoot_p99_us
        ),
    );
    for (name, value) in doctor_gpu::lines(&report.cuda) {
        line(&name, value);
    }
    line("NCCL", nccl_text(&report.nccl));
    line("NVTX", format!("{} {}", check_mark(report.nvtx.attached), report.nvtx.detail));
    let terminal = &report.terminal;
    let size =
        terminal.columns.zip(terminal.rows).map_or("no terminal".into(), |(c, r)| format!("{c}x{r}"));
    line(
        "terminal",
        format!(
            "{size}, colour {}, unicode {}",
            terminal.colour,
            if terminal.unicode { "yes" } else { "no" }
        ),
    );
    let disk = &report.disk;
    line("disk", format!("{} free for {}", disk.free_bytes.map_or("unknown".into(), bytes), disk.path));
    text += "\nBackends\n";
    for backend in &report.backends {
        let head = format!("  {} {:<6}", check_mark(backend.available), backend.name);
        text += &output::wrapped(&head, &backend.detail, 10);
    }
    text
}

fn bandwidth_text(bandwidth: Option<&Bandwidth>) -> String {
    match bandwidth {
        Some(bandwidth) => format!(
            "{:.1} GB/s read by 1 thread, {:.1} GB/s by {} (median of {} passes over {}{})",
            bandwidth.one_thread_gb_s,
            bandwidth.all_threads_gb_s,
            bandwidth.threads,
            bandwidth.passes,
            bytes(bandwidth.buffer_bytes),
            if bandwidth.exceeds_caches { "" } else { "; may include cache hits" }
        ),
        None => "not measured (--quick)".into(),
    }
}

fn nccl_text(nccl: &Nccl) -> String {
    match &nccl.version {
        Some(version) => {
            format!("{} {version} ({})", check_mark(true), nccl.library.as_deref().unwrap_or(""))
        }
        None => format!("{} {}", check_mark(false), nccl.problem.as_deref().unwrap_or("not found")),
    }
}

/// Adds a row for every leaf, e.g. `cuda.gpus.0.name` and its value.
fn flatten(prefix: &str, value: &serde_json::Value, rows: &mut Table) {
    let join = |key: &str| if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") };
    match value {
        serde_json::Value::Object(object) => {
            object.iter().for_each(|(key, value)| flatten(&join(key), value, rows));
        }
        serde_json::Value::Array(array) => {
            let items = array.iter().enumerate();
            items.for_each(|(index, value)| flatten(&join(&index.to_string()), value, rows));
        }
        serde_json::Value::Null => rows.push(vec![Shown::text(prefix), Shown::None]),
        serde_json::Value::String(text) => rows.push(vec![Shown::text(prefix), Shown::text(text)]),
        other => rows.push(vec![Shown::text(prefix), Shown::text(other)]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_has_a_row_for_every_leaf() {
        let mut rows = Table::new(["key", "value"]);
        flatten("", &serde_json::json!({"a": {"b": [1, "x"]}, "c": null}), &mut rows);
        assert_eq!(rows.csv(Sourced::NoRuns), "key,value\na.b.0,1\na.b.1,x\nc,\n");
    }

    #[test]
    fn every_backend_has_capabilities_or_a_reason() {
        let states = backends();
        let names: Vec<_> = states.iter().map(|s| s.name).collect();
        assert!(names.starts_with(&["sim", "cpu"]), "{names:?}");
        assert!(states[..2].iter().all(|state| state.available));
        assert!(states.iter().all(|state| !state.detail.is_empty()));
    }
}
