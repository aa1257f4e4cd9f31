//! `ladderscope record`: a program of known times (`recorded.c`) that acts as driver, CUPTI and NCCL, and the program
//! itself, whose NVTX ranges take the real path.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::support::{Done, Place, Started, finish, wait_for};
use trace::Trace;

/// The fake CUPTI and the program that drives it.
pub fn built() -> &'static (PathBuf, PathBuf) {
    static BUILT: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("recorded-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/recorded.c");
        let build = |more: &[&str], name: &str| {
            let path = folder.join(name);
            let mut compiler = Command::new("cc");
            compiler
                .args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"])
                .arg(&path)
                .args(more)
                .arg(&source);
            let status = compiler.args(["-ldl", "-lpthread"]).status();
            assert!(status.expect("a C compiler is needed, as for the build itself").success());
            path
        };
        (build(&["-shared", "-fPIC", "-DCUPTI"], "libcupti.so"), build(&[], "program"))
    })
}

/// `record` with these options, of a shell command in which `$PROGRAM` is the program.
fn command(place: &Place, options: &[&str], shell: &str, variables: &[(&str, &str)]) -> Command {
    let (cupti, program) = built();
    let arguments = [&["record", "--name", "r"], options, &["--", "sh", "-c", shell]].concat();
    let mut command = place.command(&arguments);
    command.env("PROGRAM", program).env("FAKE_CUPTI", cupti);
    command.env("XDG_CACHE_HOME", place.path().join("cache"));
    command.env_remove("XDG_RUNTIME_DIR");
    command.envs(variables.iter().copied());
    command
}

fn record(place: &Place, shell: &str, variables: &[(&str, &str)]) -> Done {
    finish(command(place, &[], shell, variables))
}

fn parts(place: &Place) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(place.path().join("runs/recordings/r/parts")).into_iter().flatten();
    let paths = entries.flatten().map(|entry| entry.path());
    paths.filter(|path| path.extension().is_some_and(|e| e == "lspart")).collect()
}

fn trace(place: &Place) -> Trace {
    trace::read(&place.path().join("runs/recordings/r/trace.parquet")).expect("a trace")
}

/// Kernels of a rank by start: name, start and end from the first on.
fn kernels(trace: &Trace, rank: u32) -> Vec<(String, i64, i64)> {
    let is_kernel =
        |span: &&trace::Span| !trace.operations[span.operation as usize].name.contains("Memcpy");
    let mut spans: Vec<_> =
        trace.spans.iter().filter(|span| span.rank == rank).filter(is_kernel).collect();
    spans.sort_by_key(|span| span.start_ns);
    let first = spans.first().map_or(0, |span| span.start_ns);
    let name = |span: &trace::Span| {
        trace.operations[span.operation as usize].name.split('(').next().unwrap_or_default().to_owned()
    };
    spans.iter().map(|span| (name(span), span.start_ns - first, span.end_ns - first)).collect()
}

/// Kernels as the program timed them.
fn told(path: &Path) -> Vec<(String, i64, i64)> {
    let text = std::fs::read_to_string(path).expect("the program's times");
    let mut lines: Vec<(String, i64, i64)> = text
        .lines()
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            // _Z4gemmPfi: the length of the name, the name, its arguments
            let digits: String = words[0][2..].chars().take_while(char::is_ascii_digit).collect();
            let at = 2 + digits.len();
            let name = words[0][at..at + digits.parse::<usize>().unwrap()].to_owned();
            (name, words[1].parse().unwrap(), words[2].parse().unwrap())
        })
        .collect();
    lines.sort_by_key(|line| line.1);
    let first = lines[0].1;
    lines.into_iter().map(|(name, start, end)| (name, start - first, end - first)).collect()
}

const TWO_RANKS: &str =
    "RANK=1 FAKE_TIMES=t1 $PROGRAM & RANK=0 FAKE_TIMES=t0 $PROGRAM; code=$?; wait; exit $code";

/// All ranks in one trace, every kernel to the nanosecond, in each layout of CUPTI's records.
#[test]
fn both_ranks_are_one_trace_with_the_programs_own_times_in_every_record_layout() {
    for size in ["200", "208", "216", "224", "232", "248"] {
        let place = Place::new();
        let done = record(&place, TWO_RANKS, &[("FAKE_RECORD_SIZE", size)]);
        let done = done.exits(7);
        let trace = trace(&place);
        assert_eq!(trace.meta.ranks, 2, "{}", done.stderr);
        for rank in 0..2 {
            let told = told(&place.path().join(format!("t{rank}")));
            assert_eq!(told.len(), 12);
            assert_eq!(kernels(&trace, rank), told, "record of {size} bytes, rank {rank}");
        }
        assert!(done.stderr.contains("ranks from the launcher's RANK"), "{}", done.stderr);
        assert!(done.stdout.contains("exposed"), "{}", done.stdout);
        let import = trace.meta.import.as_ref().expect("an import");
        assert_eq!(import.used.get("kernel"), Some(&24), "{import:?}");
        assert_eq!(import.used.get("memcpy"), Some(&6));
    }
}

#[test]
fn collectives_have_bytes_and_group_also_in_graphs() {
    let place = Place::new();
    record(&place, TWO_RANKS, &[]).exits(7);
    let trace = trace(&place);
    assert_eq!(trace.meta.groups.len(), 1, "{:?}", trace.meta.groups);
    let group = &trace.meta.groups[0];
    assert_eq!(
        (group.name.as_str(), group.description.as_str(), group.size, group.ranks.as_slice()),
        ("abcdef0123456789", "tp", 2, &[0, 1][..])
    );
    let mut bytes: Vec<Option<u64>> = Vec::new();
    for span in &trace.spans {
        let operation = &trace.operations[span.operation as usize];
        let is_nccl = operation.name.starts_with("nccl");
        assert_eq!(span.lane == plan::Lane::Comm, is_nccl, "{}", operation.name);
        if is_nccl {
            let info = operation.collective.as_ref().expect("a joined collective");
            assert_eq!((info.name.as_str(), info.group), ("ncclAllReduce", Some(0)));
            let chosen = (info.algorithm.as_str(), info.protocol.as_str(), info.channels);
            let algorithm = if info.message_bytes == Some(4096) { "TREE" } else { "RING" };
            assert_eq!(chosen, (algorithm, "LL", Some(2)));
            bytes.push(info.message_bytes);
        }
    }
    bytes.sort_unstable();
    // 3 steps of 2 ranks: eager with 16384 bytes, captured with 4096
    assert_eq!(bytes, [[Some(4096); 6], [Some(16_384); 6]].concat());
    let path = "runs/recordings/r/trace.parquet";
    let overlap = place.run(&["overlap", path, "--format", "json"]).exits(0).json();
    let row = &overlap["collectives"][0];
    assert_eq!((&row["protocol"], &row["channels"]), (&"LL".into(), &2.into()), "{row}");
    // the copy has no launch, and so no step
    let steps: std::collections::BTreeSet<u32> =
        trace.spans.iter().map(|span| span.step).filter(|step| *step != trace::NO_STEP).collect();
    assert_eq!(steps.into_iter().collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn killed_hanging_and_closing_programs_keep_their_records_and_status() {
    for (variables, code, kernels_kept) in [
        (vec![("FAKE_END", "kill")], 137, 12),
        (vec![("FAKE_END", "_exit")], 5, 12),
        (vec![("FAKE_END", "close")], 7, 12),
        (vec![("FAKE_END", "fork")], 7, 12),
        (vec![("FAKE_END", "exec")], 7, 12),
        (vec![("FAKE_END", "spawn")], 7, 12),
        (vec![("FAKE_END", "late-fork")], 7, 12),
        (vec![("FAKE_BUSY", "1")], 7, 12),
        (vec![("FAKE_SECOND", "1")], 7, 12),
        // the last flush hangs: its records are lost, the program ends
        (vec![("FAKE_HANG", "1")], 7, 0),
    ] {
        let place = Place::new();
        let began = std::time::Instant::now();
        let done = record(&place, "exec $PROGRAM", &variables).exits(code);
        assert!(began.elapsed().as_secs() < 20, "{variables:?}");
        if kernels_kept == 0 {
            continue;
        }
        assert_eq!(kernels(&trace(&place), 0).len(), kernels_kept, "{variables:?} {}", done.stderr);
        let printed = format!("{} {}", done.stdout, done.stderr);
        let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
        let says = |text: &str| printed.contains(text);
        assert_eq!(says("its last 0.1 s may be missing"), matches!(code, 137 | 5), "{}", done.stderr);
        let busy = variables[0].0 == "FAKE_BUSY";
        assert_eq!(says("CUPTI for Kineto has the callbacks"), busy, "{}", done.stderr);
        let second = variables[0].0 == "FAKE_SECOND";
        assert_eq!(says("recording by CUPTI's second interface"), second, "{}", done.stderr);
    }
    let done = record(&Place::new(), "exec $PROGRAM", &[("FAKE_SECOND", "2")]).exits(7);
    let told = "CUPTI 14 at registering buffers: CUPTI for Kineto uses CUPTI's other interface";
    assert!(done.stderr.contains(told), "{}", done.stderr);
}

/// vLLM's way to end: one worker is killed, the others are asked. All are ranks of one trace.
#[test]
fn a_killed_worker_is_a_rank_beside_those_that_ended() {
    let place = Place::new();
    let workers = "RANK=1 FAKE_END=kill $PROGRAM & RANK=2 FAKE_END=_exit $PROGRAM & \
                   RANK=0 $PROGRAM; code=$?; wait; exit $code";
    let done = record(&place, workers, &[]).exits(7);
    let trace = trace(&place);
    assert_eq!(trace.meta.ranks, 3, "{}", done.stderr);
    for rank in 0..3 {
        assert_eq!(kernels(&trace, rank).len(), 12, "rank {rank}: {}", done.stderr);
    }
}

#[test]
fn a_hundred_short_processes_have_a_part_each() {
    let place = Place::new();
    let many = "for i in 0 1 2 3 4 5 6 7 8 9; do for j in 0 1 2 3 4 5 6 7 8 9; do \
                RANK=$i$j $PROGRAM & done; wait; done; exit 3";
    let done = record(&place, many, &[]).exits(3);
    assert_eq!(parts(&place).len(), 100);
    let trace = trace(&place);
    assert_eq!(trace.meta.ranks, 100, "{}", done.stderr);
    assert!((0..100).all(|rank| kernels(&trace, rank).len() == 12), "{}", done.stderr);
}

#[test]
fn programs_that_cannot_be_recorded_run_as_without_us() {
    let place = Place::new();
    let done = record(&place, "echo out; echo err >&2; exit 3", &[]).exits(3);
    assert_eq!(done.stdout, "out\n");
    assert!(done.stderr.contains("no process of the program used CUDA"), "{}", done.stderr);
    let done = place.run(&["record", "--", "/no/such/program"]).exits(2);
    assert!(done.stderr.contains("/no/such/program"), "{}", done.stderr);
    let done = record(&Place::new(), "true", &[("CUDA_INJECTION64_PATH", "/other.so")]).exits(2);
    assert!(done.stderr.contains("CUDA_INJECTION64_PATH is set already: /other.so"), "{}", done.stderr);
    // an outer recorder records already
    let done = record(&Place::new(), "exit 4", &[("LADDERSCOPE_RECORD", "/elsewhere")]).exits(4);
    assert!(done.stderr.contains("already recorded into /elsewhere"), "{}", done.stderr);
}

/// A directory that cannot be written any more costs the recording, not the program.
#[test]
fn a_vanished_directory_and_a_size_limit_end_the_recording_alone() {
    let place = Place::new();
    let gone = "rm -rf runs/recordings/r/parts; exec $PROGRAM";
    record(&place, gone, &[]).exits(7);
    let place = Place::new();
    let done = finish(command(&place, &["--limit", "1"], "FAKE_END=_exit exec $PROGRAM", &[])).exits(5);
    assert!(done.stderr.contains("stopped at the size limit"), "{}", done.stderr);
    // the part may have 512 bytes: SIGXFSZ does not reach the program
    let place = Place::new();
    let done = record(&place, "ulimit -f 1; FAKE_END=_exit exec $PROGRAM", &[]).exits(5);
    assert!(done.stderr.contains("could not write any more: File too large"), "{}", done.stderr);
    // a rank that cannot write costs no other one
    let place = Place::new();
    let one = "(ulimit -f 0; RANK=1 exec $PROGRAM); RANK=0 exec $PROGRAM";
    let done = record(&place, one, &[]).exits(7);
    assert!(done.stderr.contains("could not write any more: File too large"), "{}", done.stderr);
    assert_eq!(kernels(&trace(&place), 0).len(), 12);
}

/// `record` of the program, after mounts of a namespace of its own; `None` where those are forbidden.
fn within(place: &Place, mounts: &str, variables: &[(&str, &Path)]) -> Option<Done> {
    let of_its_own = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
        command
    };
    let allowed = of_its_own("mount -t tmpfs none /mnt").output().is_ok_and(|out| out.status.success());
    if !allowed {
        eprintln!("skipped: mounts need user namespaces");
        return None;
    }
    let inner = command(place, &[], "FAKE_END=_exit exec $PROGRAM", &[]);
    let mut outer = of_its_own(&format!("{mounts} && exec \"$0\" \"$@\""));
    outer.arg(inner.get_program()).args(inner.get_args()).current_dir(place.path());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer.envs(variables.iter().copied());
    Some(finish(outer))
}

#[test]
fn a_full_disk_ends_the_recording_and_not_the_program() {
    let place = Place::new();
    std::fs::create_dir_all(place.path().join("runs/recordings")).unwrap();
    // a page: the control file
    let mounts = "mount -t tmpfs -o size=4k none runs/recordings";
    let Some(done) = within(&place, mounts, &[]) else { return };
    let done = done.exits(5);
    assert!(done.stderr.contains("No space left on device"), "{}", done.stderr);
}

#[test]
fn a_folder_from_which_nothing_may_be_run_is_passed_over() {
    let place = Place::new();
    let runtime = place.path().join("runtime");
    std::fs::create_dir_all(&runtime).unwrap();
    let mounts = format!("mount -t tmpfs -o noexec none {}", runtime.display());
    let Some(done) = within(&place, &mounts, &[("XDG_RUNTIME_DIR", &runtime)]) else { return };
    done.exits(5);
    assert_eq!(kernels(&trace(&place), 0).len(), 12);
    assert!(std::fs::read_dir(place.path().join("cache/ladderscope")).unwrap().count() == 1);
}

/// A process that may not read the control file records nothing and says nothing.
#[test]
fn another_users_process_is_left_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let shell = match rustix::process::getuid().is_root() {
        // the other user may not reach the build directory
        true => {
            "cp $PROGRAM program; cp $FAKE_CUPTI cupti.so; export FAKE_CUPTI=$PWD/cupti.so; \
             exec setpriv --reuid 65534 --regid 65534 --clear-groups ./program"
        }
        false => {
            "chmod 0 runs/recordings/r/parts; $PROGRAM; code=$?; chmod 700 runs/recordings/r/parts; exit $code"
        }
    };
    let done = record(&place, shell, &[]).exits(7);
    assert_eq!(parts(&place), Vec::<PathBuf>::new(), "{}", done.stderr);
    assert!(done.stderr.contains("no process of the program used CUDA"), "{}", done.stderr);
}

#[test]
fn a_window_and_ranges_restrict_the_recording() {
    let place = Place::new();
    let options = ["--range", "*step 1"];
    finish(command(&place, &options, "exec $PROGRAM", &[])).exits(7);
    assert_eq!(kernels(&trace(&place), 0).len(), 4);
    // the window opens after the program has ended
    let place = Place::new();
    finish(command(&place, &["--delay", "100"], "exec $PROGRAM", &[])).exits(7);
    assert!(!place.path().join("runs/recordings/r/trace.parquet").exists());
    // and is over after its first run
    let place = Place::new();
    let twice = "$PROGRAM; sleep 1; exec $PROGRAM";
    let done = finish(command(&place, &["--duration", "0.8"], twice, &[])).exits(7);
    assert_eq!(kernels(&trace(&place), 0).len(), 12, "{}", done.stderr);
}

#[test]
fn a_recording_starts_and_stops_on_demand() {
    let place = Place::new();
    let shell = "$PROGRAM; touch first; while ! test -e go; do sleep 0.05; done; exec $PROGRAM";
    let started = Started::from_command(command(&place, &["--on-demand"], shell, &[]));
    wait_for("the first run", || place.path().join("first").exists().then_some(()));
    let directory = place.path().join("runs/recordings/r");
    let directory = directory.to_str().expect("a path");
    place.run(&["record", "--stop", directory]).exits(2);
    place.run(&["record", "--start", directory]).exits(0);
    place.run(&["record", "--start", directory]).exits(2);
    std::thread::sleep(std::time::Duration::from_millis(500));
    std::fs::write(place.path().join("go"), "").unwrap();
    started.wait().exits(7);
    assert_eq!(kernels(&trace(&place), 0).len(), 12);
    let done = place.run(&["record", "--merge", directory]).exits(0);
    assert!(done.stdout.contains("exposed"), "{}", done.stdout);
    place.run(&["record", "--merge", place.path().to_str().unwrap()]).exits(2);
}

#[test]
fn signals_reach_the_program() {
    let place = Place::new();
    let shell = "trap 'exit 9' TERM; touch ready; while :; do sleep 0.05; done";
    let started = Started::from_command(command(&place, &[], shell, &[]));
    wait_for("the program", || place.path().join("ready").exists().then_some(()));
    started.signal(rustix::process::Signal::TERM);
    started.wait().exits(9);
}

/// The real path of NVTX: the header's own loader, and the cpu backend's ranges.
#[test]
fn nvtx_ranges_of_the_cpu_backend_are_recorded() {
    let place = Place::new();
    let cell = "run --backend cpu --model tiny --architecture ladder --tp 2 --prompt-tokens 4 --output-tokens 3 \
                --samples 1 --warmup 0";
    let mut arguments = vec!["record", "--name", "r", "--", crate::BINARY];
    arguments.extend(cell.split_whitespace());
    let mut command = place.command(&arguments);
    command.env("XDG_CACHE_HOME", place.path().join("cache")).env_remove("XDG_RUNTIME_DIR");
    let done = finish(command).exits(0);
    assert!(done.stdout.contains("No process used a GPU."), "{}", done.stdout);
    let trace = trace(&place);
    let count = |name: &str| {
        let is = |range: &&trace::Range| trace.meta.range_names[range.name as usize] == name;
        trace.ranges.iter().filter(is).count()
    };
    // two ranks are threads of one process, and three output tokens are two decode steps
    assert_eq!(count("prefill/L3/mlp/down"), 2);
    assert_eq!(count("decode/L0/attn/qkv"), 4);
    assert_eq!(count("rank 1 comm: decode/L0/attn/all_reduce"), 2);
    assert_eq!(parts(&place).len(), 1, "only the process that runs has ranges");
}

/// The object runs on old systems, and shares nothing but its doors.
#[test]
fn the_object_exports_its_doors_alone() {
    let place = Place::new();
    record(&place, "exec $PROGRAM", &[]).exits(7);
    let mut objects = std::fs::read_dir(place.path().join("cache/ladderscope")).unwrap().flatten();
    let object = objects.next().expect("the object").path();
    let Ok(listed) = Command::new("nm").args(["-D", "--defined-only"]).arg(&object).output() else {
        return;
    };
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let names: Vec<&str> = text.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    let plugins = (1..=6).map(|version| format!("ncclProfiler_v{version}"));
    let mut wanted: Vec<String> =
        ["InitializeInjection", "InitializeInjectionNvtx2", "InitializeInjectionNvtxExtension"]
            .map(str::to_owned)
            .into_iter()
            .chain(plugins)
            .collect();
    wanted.sort();
    assert_eq!(names, wanted);
    assert!(std::fs::metadata(&object).unwrap().len() <= 400_000);
    // glibc and the compiler's unwinder alone: nothing that the program's own libraries could clash with
    let listed = Command::new("objdump").arg("-p").arg(&object).output().expect("objdump is beside nm");
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let known = ["libc.so.", "libgcc_s.so.", "ld-linux", "libpthread.so.", "libdl.so."];
    let needed = text.lines().filter_map(|line| line.trim().strip_prefix("NEEDED"));
    let unknown: Vec<&str> = needed
        .map(str::trim)
        .filter(|name| !known.iter().any(|known| name.starts_with(known)))
        .collect();
    assert_eq!(unknown, Vec::<&str>::new());
}

/// A prediction from one recording is compared with the next one.
#[test]
fn a_recording_is_compared_with_a_stored_prediction() {
    let place = Place::new();
    let standard = format!("{}/traces/cpu-standard-tp2-600us.parquet", env!("CARGO_MANIFEST_DIR"));
    let unknown = finish(command(&place, &["--check", "faster"], "touch ran", &[])).exits(2);
    assert!(unknown.stderr.contains("no prediction 'faster'"), "{}", unknown.stderr);
    assert!(!place.path().join("ran").exists(), "refused before the program starts");
    place.run(&["whatif", "--model", "tiny", "--tp", "2", "--save", "cell"]).exits(0);
    let of_cell = finish(command(&place, &["--check", "cell"], "true", &[])).exits(2);
    assert!(of_cell.stderr.contains("does not say which trace"), "{}", of_cell.stderr);
    place.run(&["rewire", &standard, "--architecture", "ladder", "--save", "to-ladder"]).exits(0);
    let options = ["--check", "to-ladder", "--format", "json"];
    let done = finish(command(&place, &options, "exec $PROGRAM", &[])).exits(7);
    let diff = done.json();
    let check = &diff["checks"][0];
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    let measured = number(&diff["a"]["step_us"]) / number(&diff["b"]["step_us"]);
    assert!((number(&check["measured_speedup"]) / measured - 1.0).abs() < 1e-9, "{diff}");
    assert_eq!(check["after"], "trace.parquet");
    let stored = std::fs::read_to_string(place.path().join("runs/predictions/to-ladder.json")).unwrap();
    assert!(stored.contains("measured_speedup"), "remembered: {stored}");
}
