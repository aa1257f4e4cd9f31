//! Lists the built-in hardware profiles and stacks: one TOML file each, named after it.

use std::fmt::Write;
use std::path::Path;

fn main() {
    let mut code = String::new();
    // the defaults of `--hardware` and `--stack` come first
    for (folder, list, first) in [("profiles", "PROFILES", "h100_sxm"), ("stacks", "STACKS", "native")] {
        let folder = Path::new("hardware").join(folder);
        println!("cargo::rerun-if-changed={}", folder.display());
        let files = folder.read_dir().expect("the folder of built-in values is beside the code");
        let mut files: Vec<_> = files.map(|file| file.expect("a readable folder").path()).collect();
        let name = |file: &Path| file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        files.sort_by_key(|file| (name(file) != first, numbers_padded(&name(file))));
        let (count, names) = (files.len(), files.iter().map(|file| name(file)).collect::<Vec<_>>());
        let _ = writeln!(code, "pub const {list}_NAMES: [&str; {count}] = {names:?};");
        let _ = writeln!(code, "pub(super) const {list}: [(&str, &str); {count}] = [");
        for file in files {
            let path = format!("/{}", file.display());
            // relative to the crate, so that a moved checkout still builds
            let text = format!("include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), {path:?}))");
            let _ = writeln!(code, "    ({:?}, {text}),", name(&file));
        }
        code += "];\n";
    }
    let out = std::env::var("OUT_DIR").expect("Cargo sets OUT_DIR");
    std::fs::write(Path::new(&out).join("built_in.rs"), code).expect("OUT_DIR is writable");
}

/// Key in natural order: `vllm-0.8` before `vllm-0.10`.
fn numbers_padded(name: &str) -> String {
    name.split_inclusive(|c: char| !c.is_ascii_digit()).map(|part| format!("{part:0>8}")).collect()
}
