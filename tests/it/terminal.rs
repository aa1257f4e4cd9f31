//! The workbench in a real (pseudo) terminal: what a user sees, keys, exit status, restoration.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::pty::Workbench;
use super::support::Place;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ladderscope");

/// Simulated: a second, nothing to wait for.
const SIMULATED: &str = r#"
question = "Does ladder hide the link?"
backend = "sim"
hardware = "h100_sxm"
[model]
name = "llama-3-8b"
[workload]
prompt_tokens = 128
output_tokens = 17
[grid]
architecture = ["standard", "ladder"]
tp = [2, 4]
batch = [1]
"#;

/// Executed, and long enough to be interrupted.
const EXECUTED: &str = r#"
backend = "cpu"
[model]
name = "tiny"
[workload]
prompt_tokens = 8
output_tokens = 64
samples = 200
rounds = 3
[grid]
architecture = ["standard", "ladder"]
tp = [2]
batch = [1]
[links]
on = "emulated:alpha_us=2000,gb_s=1"
"#;

/// A directory with these experiments.
fn place(experiments: &[(&str, &str)]) -> Place {
    let place = Place::new();
    let dir = place.path().join("experiments");
    std::fs::create_dir_all(&dir).expect("a directory");
    for (name, text) in experiments {
        std::fs::write(dir.join(format!("{name}.toml")), text).expect("a file");
    }
    place
}

fn open(dir: &Path, size: (u16, u16)) -> Workbench {
    let workbench = Workbench::open(Path::new(PROGRAM), dir, &[], size);
    workbench.wait_for("1 experiments");
    workbench
}

/// Goes to the experiment and runs it.
fn run(workbench: &mut Workbench, experiment: &str) {
    workbench.wait_for(experiment);
    workbench.press(":");
    workbench.wait_for("╭ palette");
    workbench.press("\x1b");
    workbench.wait("╭ palette", false);
    // experiments of the directory stand in the list behind the built-in ones
    for _ in 0..40 {
        if workbench.contents().contains(&format!("╭ {experiment}")) {
            workbench.press("r");
            return;
        }
        // on a busy machine the screen follows late: a second key must not go past what is looked for
        let title = |workbench: &Workbench| {
            workbench
                .contents()
                .lines()
                .find(|line| line.starts_with("╭ experiments"))
                .map(str::to_owned)
        };
        let (before, pressed) = (title(workbench), Instant::now());
        workbench.press("j");
        while title(workbench) == before && pressed.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    panic!("{experiment} is not in the list:\n{}", workbench.contents());
}

/// A workbench that has run the simulated experiment, and its directory.
fn swept(size: (u16, u16)) -> (Place, Workbench) {
    let place = place(&[("mine", SIMULATED)]);
    let mut workbench = open(place.path(), size);
    run(&mut workbench, "mine");
    workbench.wait_for("4/4");
    (place, workbench)
}

/// Leaves it; the terminal is as it was.
fn quit(mut workbench: Workbench) {
    workbench.press("q");
    assert_eq!(workbench.ended().1.exit_code(), 0);
}

#[test]
fn keys_that_never_change_work_and_quitting_restores_the_terminal() {
    let place = Place::new();
    let mut workbench = open(place.path(), (80, 24));
    workbench.press("?");
    workbench.wait_for("╭ help");
    workbench.press("\x1b");
    workbench.wait("╭ help", false);
    workbench.press("3");
    workbench.wait_for("no runs");
    workbench.press("\t");
    workbench.wait_for("no trace is open");
    workbench.press(":");
    workbench.wait_for("╭ palette");
    workbench.press("\x1b");
    workbench.wait("╭ palette", false);
    quit(workbench);
}

/// Bytes of two keys that arrive at once, as from a script or a slow connection.
#[test]
fn an_arrow_at_once_after_escape_is_an_arrow() {
    let place = Place::new();
    let mut workbench = open(place.path(), (80, 24));
    workbench.wait_for("╭ quickstart");
    workbench.press("\x1b\x1b[B");
    workbench.wait_for("╭ collective");
    workbench.press("?");
    workbench.wait_for("╭ help");
    workbench.press("\x1b\x1b[A\x1b\x1b[B\x1b\x1bOB");
    workbench.wait_for("╭ delayed");
    workbench.press("?");
    workbench.wait_for("╭ help");
    workbench.press("\x1bj");
    workbench.wait("╭ help", false);
    quit(workbench);
}

#[test]
fn a_sweep_its_timeline_an_export_and_the_next_morning() {
    let (place, mut workbench) = swept((100, 30));
    workbench.press("3");
    workbench.wait_for("4 of 4 runs");
    workbench.press("\r");
    workbench.wait_for("operations of step");
    workbench.wait_for("simulated");
    workbench.press(":screenshot\r");
    workbench.wait_for("timeline-screen.svg");
    workbench.press("\r");
    workbench.wait_for("wrote");
    let picture = place.path().join("runs/exports/timeline-screen.svg");
    let svg = std::fs::read_to_string(picture).expect("the picture was written");
    assert!(svg.starts_with("<svg") && svg.contains("simulated"));
    workbench.press("5");
    workbench.wait_for("tokens/s/GPU");
    workbench.press("x");
    workbench.wait_for("export pareto to");
    workbench.press("\r");
    workbench.wait_for("wrote");
    let figure = std::fs::read_to_string(place.path().join("runs/exports/pareto.svg"));
    let figure = figure.expect("the figure was written");
    for said in ["h100_sxm", "4 runs", env!("CARGO_PKG_VERSION")] {
        assert!(figure.contains(said), "the figure does not say {said}");
    }
    quit(workbench);

    let again = open(place.path(), (100, 30));
    again.wait_for("tokens/s/GPU");
    quit(again);
}

#[test]
fn sigterm_restores_the_terminal_and_keeps_what_was_done() {
    let place = place(&[("long", EXECUTED)]);
    let mut workbench = open(place.path(), (80, 24));
    run(&mut workbench, "long");
    workbench.wait_for("▶ ");
    // a run that is told to start has a directory soon after
    let began = Instant::now();
    let is_stored = || place.run(&["runs", "--format", "json"]).exits(0).stdout.contains("by process");
    while !is_stored() && began.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(100));
    }
    workbench.signal(Signal::TERM);
    assert_ne!(workbench.ended().1.exit_code(), 0);
    let done = place.run(&["runs", "--format", "json"]).exits(0);
    assert!(done.stdout.contains("interrupted"), "{}", done.stdout);
}

/// The state letter of a process: `T` is stopped.
fn state(workbench: &Workbench) -> char {
    let pid = workbench.child.process_id().expect("it runs");
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next()).expect("a state")
}

#[test]
fn ctrl_z_and_sigtstp_give_the_terminal_back_and_fg_draws_again() {
    use rustix::process::Signal;
    let place = place(&[]);
    let mut workbench = open(place.path(), (100, 30));
    for by_key in [true, false, true] {
        workbench.wait_for("1 experiments");
        let written = workbench.written();
        match by_key {
            true => workbench.press("\x1a"),
            false => workbench.signal(Signal::TSTP),
        }
        crate::support::wait_for("a stop", || (state(&workbench) == 'T').then_some(()));
        crate::support::wait_for("the main screen", || {
            let said = workbench.written_since(written);
            let has = |sequence: &[u8]| said.windows(sequence.len()).any(|part| part == sequence);
            // alternate screen, cursor, bracketed paste
            (has(b"\x1b[?1049l") && has(b"\x1b[?25h") && has(b"\x1b[?2004l")).then_some(())
        });
        assert!(workbench.is_cooked(), "a shell has to echo again");
        assert!(!workbench.contents().contains("1 experiments"), "{}", workbench.contents());
        workbench.signal(Signal::CONT);
        workbench.wait_for("1 experiments");
        crate::support::wait_for("raw mode", || (!workbench.is_cooked()).then_some(()));
        workbench.press("?");
        workbench.wait_for("╭ help");
        workbench.press("\x1b");
        workbench.wait("╭ help", false);
    }
    // stopped and let go on from outside: the shell may have changed the terminal's modes meanwhile
    workbench.signal(Signal::STOP);
    crate::support::wait_for("a stop", || (state(&workbench) == 'T').then_some(()));
    let written = workbench.written();
    workbench.signal(Signal::CONT);
    crate::support::wait_for("a new picture", || (workbench.written() > written + 500).then_some(()));
    quit(workbench);
}

#[test]
fn a_defect_restores_the_terminal_and_is_told_on_it() {
    let place = Place::new();
    let program = Path::new(PROGRAM);
    let panic = [("LADDERSCOPE_PANIC_AT_FRAME", "2")];
    let mut workbench = Workbench::open_with(program, place.path(), &[], &panic, (80, 24));
    // keys apart, since one that comes before a picture is drawn changes that one
    for key in ["3", "4", "3", "4"] {
        std::thread::sleep(Duration::from_millis(250));
        workbench.press(key);
    }
    let (left, status) = workbench.ended();
    assert_eq!(status.exit_code(), 1);
    assert!(left.contains("ladderscope") && left.contains("on purpose"), "{left}");
}

#[test]
fn a_tiny_window_says_so_and_a_larger_one_goes_on() {
    let place = Place::new();
    for size in [(30, 6), (20, 5)] {
        let mut workbench = Workbench::open(Path::new(PROGRAM), place.path(), &[], size);
        workbench.wait_for("too small");
        workbench.resize((100, 30));
        workbench.wait_for("1 experiments");
        quit(workbench);
    }
}

/// A window manager that tiles sends a new size while a key is on its way: the program learns of both at one moment.
#[test]
fn a_key_that_comes_with_a_change_of_size_is_not_lost() {
    let place = Place::new();
    let mut workbench = open(place.path(), (80, 24));
    for i in 0..200 {
        let (key, page) = [("3", "no runs"), ("4", "no trace is open")][i % 2];
        workbench.resize((80 + i as u16 % 7, 24));
        // from before the signal's handler to behind it
        std::thread::sleep(Duration::from_micros(i as u64 % 20 * 10));
        workbench.press(key);
        workbench.wait_for(page);
    }
    quit(workbench);
}

#[test]
fn a_storm_of_sizes_and_keys_leaves_a_working_window() {
    let (_place, mut workbench) = swept((120, 40));
    let mut random = fastrand::Rng::with_seed(7);
    for i in 0..150 {
        let size = match i % 5 {
            0 => (random.u16(1..30), random.u16(1..10)),
            _ => (random.u16(60..220), random.u16(10..70)),
        };
        workbench.resize(size);
        workbench.press(["\t", "j", "k", "\x1b[A", "2", "4", "5", "6"][random.usize(..8)]);
        if i % 10 == 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    workbench.resize((100, 30));
    workbench.press("\x1b\x1b");
    std::thread::sleep(Duration::from_millis(50));
    workbench.press("3");
    workbench.wait_for("4 of 4 runs");
    quit(workbench);
}

#[test]
fn broken_settings_and_an_unreadable_memory_are_told_and_work_goes_on() {
    let place = Place::new();
    let write = |path: &str, text: &str| {
        let path = place.path().join("home").join(path);
        std::fs::create_dir_all(path.parent().expect("it has one")).expect("a directory");
        std::fs::write(path, text).expect("a file");
    };
    write("config/ladderscope/config.toml", "theme = \"drak\"\n[keys]\n\"everywhere.down\" = [\"n\"]\n");
    let mut workbench = open(place.path(), (100, 30));
    workbench.wait_for("config.toml:1: unknown theme"); // the line wraps behind it
    workbench.press("\x1b");
    workbench.wait("unknown theme", false);
    quit(workbench);

    write("config/ladderscope/config.toml", "theme = \"dark\"\n");
    let kept = std::fs::read_dir(place.path().join("home/state/ladderscope")).expect("it remembers");
    for file in kept {
        std::fs::write(file.expect("a file").path(), "{ not json").expect("it can be broken");
    }
    let mut workbench = open(place.path(), (100, 30));
    workbench.wait_for("Esc closes");
    workbench.press("\x1b");
    workbench.wait("Esc closes", false);
    quit(workbench);
}

#[test]
fn a_place_that_takes_no_file_and_a_run_deleted_underneath_are_told_and_work_goes_on() {
    let (place, mut workbench) = swept((100, 30));
    workbench.press("3");
    workbench.wait_for("4 of 4 runs");
    workbench.press(":screenshot\r");
    workbench.wait_for("runs-screen.svg");
    // clears the line
    workbench.press("\x15/dev/null/x.svg\r");
    workbench.wait_for("Esc closes");
    workbench.wait_for("/dev/null");
    workbench.press("\x1b");
    workbench.wait("Esc closes", false);

    std::fs::remove_dir_all(place.path().join("runs")).expect("it can be deleted");
    workbench.press("R");
    workbench.wait_for("no runs");
    quit(workbench);
}

#[test]
#[cfg(target_os = "linux")]
fn an_idle_workbench_draws_nothing_and_uses_no_processor() {
    let (_place, mut workbench) = swept((100, 30));
    workbench.press("3");
    workbench.wait_for("4 of 4 runs");
    std::thread::sleep(Duration::from_secs(1));
    let pid = workbench.child.process_id().expect("it runs");
    // user and system time, in ticks of 10 ms
    let ticks = || -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
        let behind_name = stat.rsplit_once(')').expect("proc(5)").1;
        behind_name.split_whitespace().skip(11).take(2).map(|t| t.parse::<u64>().expect("proc(5)")).sum()
    };
    // on a machine with much to do it takes a while until nothing happens; what goes on for ever never ends
    let mut spent = (0, 0);
    for _ in 0..10 {
        let (written, used) = (workbench.written(), ticks());
        std::thread::sleep(Duration::from_secs(2));
        spent = (workbench.written() - written, ticks() - used);
        if spent.0 == 0 && spent.1 <= 1 {
            return quit(workbench);
        }
    }
    panic!(
        "it draws {} bytes and takes {} ticks of 10 ms in 2 s although nothing happens",
        spent.0, spent.1
    );
}

#[test]
fn tables_are_no_wider_than_the_terminal_or_100_columns_in_a_pipe() {
    let place = Place::new();
    let piped = place.run(&["models"]).stdout;
    assert!(
        piped.lines().all(|line| line.chars().count() <= 100) && piped.contains("parameters"),
        "{piped}"
    );
    for (columns, left_out) in [(80, "note, parameters, vocab"), (110, "note")] {
        let shown = Workbench::open(Path::new(PROGRAM), place.path(), &["models"], (columns, 60));
        shown.wait_for(" tiny ");
        let told = format!("hidden to fit {columns} columns: {left_out}; --format json");
        let text = shown.contents();
        assert!(text.contains(&told), "{text}");
        // nothing is wrapped: below each model stands the next one
        let lines: Vec<&str> = text.lines().collect();
        let at = lines.iter().position(|line| line.starts_with(" llama-3-8b ")).expect("a row");
        assert!(lines[at + 1].starts_with(" llama-3-70b ") && lines[at].contains("14336"), "{text}");
    }
}

/// Everything that a verb writes to a terminal of this kind, and its status.
fn written(place: &Place, arguments: &[&str], environment: &[(&str, &str)]) -> (String, u32) {
    let program = Path::new(PROGRAM);
    let verb = Workbench::open_with(program, place.path(), arguments, environment, (100, 30));
    let (bytes, status) = verb.plain();
    (String::from_utf8_lossy(&bytes).into_owned(), status.exit_code())
}

#[test]
fn a_dumb_terminal_gets_no_escape_sequence_and_no_workbench() {
    let place = place(&[("mine", SIMULATED)]);
    let executed =
        ["run", "--backend", "cpu", "--model", "tiny", "--samples", "1", "--output-tokens", "4"];
    let generated =
        ["generate", "--model", "tiny", "--prompt-tokens-file", "ids", "--output-tokens", "2"];
    place.write("ids", "1 2 3\n");
    place.write("wrong.toml", "[grid]\ntpp = [1]\n");
    let verbs: [(&[&str], u32); 9] = [
        (&["sweep", "experiments/mine.toml"], 0),
        (&executed, 0),
        (&generated, 0),
        (&["runs"], 0),
        (&["compare", "--by", "architecture"], 0),
        (&["--help"], 0),
        (&["sweep", "wrong.toml"], 2),
        (&["runs", "--no-such-option"], 2),
        (&[], 2),
    ];
    for (arguments, status) in verbs {
        // with CI set, clap would colour what it prints on any terminal
        let (text, code) = written(&place, arguments, &[("TERM", "dumb"), ("CI", "true")]);
        assert_eq!(code, status, "{arguments:?}: {text}");
        assert!(!text.contains('\u{1b}') && !text.is_empty(), "{arguments:?}: {text:?}");
        assert!(!arguments.is_empty() || text.contains("TERM is 'dumb'"), "{text}");
    }
    let coloured = |environment: &[(&str, &str)]| {
        written(&place, &["sweep", "wrong.toml"], environment).0.contains('\u{1b}')
    };
    assert!(coloured(&[]), "a terminal has colours");
    assert!(!coloured(&[("NO_COLOR", "1")]));
    assert!(coloured(&[("TERM", "dumb"), ("CLICOLOR_FORCE", "1")]), "who forces colours gets them");
    assert!(!coloured(&[("TERM", "dumb"), ("CLICOLOR_FORCE", "0")]));
    assert!(!coloured(&[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")]));
}

#[test]
fn a_program_is_recorded_from_the_palette_and_its_trace_opens() {
    let place = Place::new();
    let mut workbench = open(place.path(), (160, 40));
    let record = |workbench: &mut Workbench, line: &str| {
        workbench.press(":");
        workbench.wait_for("╭ palette");
        workbench.press("record a program");
        workbench.press("\r");
        workbench.wait_for("a shell command, such as");
        workbench.press(line);
        workbench.press("\r");
    };
    record(&mut workbench, "echo nothing to see; exit 3");
    workbench.wait_for("nothing was recorded");
    workbench.press("\x1b");
    workbench.wait("nothing was recorded", false);
    let (cupti, program) = super::recording::built();
    record(&mut workbench, &format!("FAKE_CUPTI={} {}", cupti.display(), program.display()));
    workbench.wait_for("gemm");
    assert!(workbench.contents().contains("the recorded program failed, exit status: 7"));
    quit(workbench);
}
