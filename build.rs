//! Compiles `src/inject` as the shared object that `ladderscope record` puts into programs.
//!
//! A program cannot be loaded as a library, and Cargo cannot yet embed one crate's artifact in another, so this calls
//! the compiler itself. A release is linked by cargo-zigbuild, whose linker makes the object run on glibc 2.17, too.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=src/inject");
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let object = PathBuf::from(variable("OUT_DIR")).join("inject.so");
    let mut arguments = vec!["--edition=2024", "--crate-name=ladderscope_inject", "--crate-type=cdylib"];
    arguments.extend(["--cfg=shared_object", "-Cpanic=unwind", "-Cstrip=symbols", "-Ccodegen-units=1"]);
    arguments.extend(["-Copt-level=z", "-Clto=fat", "-Clink-arg=-Wl,-z,nodelete", "--cap-lints=allow"]);
    let linker = variable("RUSTC_LINKER");
    let linker = (!linker.is_empty()).then(|| format!("-Clinker={linker}"));
    let built = variable("CARGO_CFG_TARGET_OS") == "linux"
        && Command::new(variable("RUSTC"))
            .args(arguments)
            .args(linker)
            .args(["--target", &variable("TARGET"), "src/inject/lib.rs", "-o"])
            .arg(&object)
            .status()
            .is_ok_and(|status| status.success());
    if !built {
        // the program works without it, except for `record`, which says so
        println!(
            "cargo::warning=`ladderscope record` will not work: its recorder could not be compiled"
        );
        std::fs::write(&object, []).expect("OUT_DIR is writable");
    }
}
