//! Makes the pictures of README and `docs/workbench.md`: opens the workbench in a pseudo terminal, goes through its screens
//! as a user would, and lets it write pictures of itself.
//!
//! `cargo build --release && cargo run --release --example tour [-- DIRECTORY]`

#[path = "../tests/it/pty.rs"]
mod pty;

use std::error::Error;
use std::path::{Path, PathBuf};

use pty::Workbench;

/// A picture: its name, keys from the picture before, what must be seen first.
struct Scene {
    name: &'static str,
    keys: &'static [&'static str],
    shows: &'static str,
}

const SCENES: &[Scene] = &[
    Scene { name: "experiments", keys: &["1", "jjjjjjjjjjjj", "l"], shows: "paper-70b ·" },
    Scene { name: "runs", keys: &["3", "/", "arch:ladder tp:8 p2p:off", "\r"], shows: "runs" },
    Scene { name: "timeline", keys: &["G", "\r"], shows: "operations of" },
    // without the filter of the runs, which goes along
    Scene { name: "pareto", keys: &["5", "\x1b"], shows: "tokens/s/GPU" },
    Scene { name: "compare", keys: &["6"], shows: "fastest" },
    Scene { name: "what-if", keys: &["7", "j", "j", "j", "l", "l", "l"], shows: "break-even" },
    // executed: what is seen is what happens then
    Scene { name: "live", keys: &["1", "\x1b[D", "\x1b[H", "r"], shows: "ms/rank" },
];

fn main() -> Result<(), Box<dyn Error>> {
    let into = std::env::args().nth(1).map_or_else(|| PathBuf::from("examples/tour"), PathBuf::from);
    let into = std::path::absolute(into)?;
    // target/release/examples/tour
    let own = std::env::current_exe()?;
    let program = own.ancestors().nth(2).map(|dir| dir.join("ladderscope")).filter(|p| p.exists());
    let program = program.ok_or("build the program first: cargo build --release")?;
    let place = tempfile::tempdir()?;
    let run = |arguments: &[&str]| -> Result<(), Box<dyn Error>> {
        let mut command = std::process::Command::new(&program);
        let status = command.current_dir(place.path()).args(arguments).output()?.status;
        if status.success() { Ok(()) } else { Err(format!("{arguments:?} ended with {status}").into()) }
    };
    // as for somebody who works in the repository
    std::fs::create_dir(place.path().join("experiments"))?;
    for file in std::fs::read_dir("experiments")? {
        let file = file?;
        if !file.file_type()?.is_file() {
            continue;
        }
        std::fs::copy(file.path(), place.path().join("experiments").join(file.file_name()))?;
    }
    run(&["sweep", "paper-70b"])?;
    std::fs::create_dir_all(&into)?;
    for kind in ["overlap", "pareto"] {
        let path = into.join(format!("figure-{kind}.svg"));
        run(&["figure", kind, "-o", &path.display().to_string(), "--size", "page"])?;
        println!("{}", path.display());
    }
    run(&["sweep", "today", "--dir", "today"])?;
    let path = into.join("figure-today.svg");
    let shown = "hardware:h100_sxm,b200_sxm concurrency:4,64";
    run(&["figure", "gain", "--dir", "today", "--filter", shown, "-o", &path.display().to_string()])?;
    println!("{}", path.display());
    run(&["sweep", "moe", "--dir", "moe"])?;
    let path = into.join("figure-moe.svg");
    // farskip is ladder without shared experts
    let shown = "arch:standard,farskip,upper-bound";
    run(&["figure", "pareto", "--dir", "moe", "--filter", shown, "-o", &path.display().to_string()])?;
    println!("{}", path.display());
    let mut workbench = Workbench::open(&program, place.path(), &[], (120, 36));
    // keys before the experiments are read would select nothing
    workbench.wait_for("collective");
    for scene in SCENES {
        for key in scene.keys {
            workbench.press(key);
            std::thread::sleep(std::time::Duration::from_millis(300));
        }
        workbench.wait_for(scene.shows);
        // answers of what was asked in the background
        std::thread::sleep(std::time::Duration::from_secs(1));
        picture(&mut workbench, &into.join(format!("{}.svg", scene.name)))?;
        println!("{}", into.join(format!("{}.svg", scene.name)).display());
    }
    // the sweep of the last scene is cancelled
    workbench.press("qy");
    workbench.ended();
    Ok(())
}

/// Lets the workbench write a picture of its screen.
fn picture(workbench: &mut Workbench, path: &Path) -> Result<(), Box<dyn Error>> {
    // it overwrites nothing
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    workbench.press(":");
    workbench.wait_for("╭ palette");
    workbench.press("screenshot\r");
    workbench.wait_for("picture of");
    workbench.press("\x15");
    workbench.press(&format!("{}\r", path.display()));
    workbench.wait_for("wrote");
    Ok(())
}
