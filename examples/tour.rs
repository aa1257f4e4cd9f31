//! Makes the pictures of the README: opens the workbench in a pseudo terminal, goes through its screens
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
    Scene { name: "experiments", keys: &["1"], shows: "cells" },
    Scene { name: "runs", keys: &["3", "/", "arch:ladder tp:8", "\r"], shows: "runs" },
    Scene { name: "timeline", keys: &["\r"], shows: "decode" },
    Scene { name: "pareto", keys: &["5"], shows: "tokens/s/GPU" },
    Scene { name: "compare", keys: &["6"], shows: "ladder" },
];

fn main() -> Result<(), Box<dyn Error>> {
    let into = std::env::args().nth(1).map_or_else(|| PathBuf::from("examples/tour"), PathBuf::from);
    let into = std::path::absolute(into)?;
    // target/release/examples/tour
    let own = std::env::current_exe()?;
    let program = own.ancestors().nth(2).map(|dir| dir.join("ladderscope")).filter(|p| p.exists());
    let program = program.ok_or("build the program first: cargo build --release")?;
    let place = tempfile::tempdir()?;
    for experiment in ["paper-70b", "p2p"] {
        let mut sweep = std::process::Command::new(&program);
        let experiment = std::path::absolute(format!("experiments/{experiment}.toml"))?;
        let status = sweep.current_dir(place.path()).arg("sweep").arg(experiment).output()?.status;
        if !status.success() {
            return Err(format!("the sweep ended with {status}").into());
        }
    }
    std::fs::create_dir_all(&into)?;
    let mut workbench = Workbench::open(&program, place.path(), &[], (120, 36));
    workbench.wait_for("1 experiments");
    for scene in SCENES {
        for key in scene.keys {
            workbench.press(key);
            std::thread::sleep(std::time::Duration::from_millis(300));
        }
        workbench.wait_for(scene.shows);
        picture(&mut workbench, &into.join(format!("{}.svg", scene.name)))?;
        println!("{}", into.join(format!("{}.svg", scene.name)).display());
    }
    workbench.press("q");
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
    workbench.press("picture\r");
    workbench.wait_for("picture of");
    workbench.press("\x15");
    workbench.press(&format!("{}\r", path.display()));
    workbench.wait_for("written:");
    Ok(())
}
