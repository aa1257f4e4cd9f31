//! Recordings of `ladderscope record`: imports the parts that the processes wrote as one trace.
//!
//! `part` reads a part, `assemble` orders the processes, `join` finds the collective of each NCCL kernel. Placing spans,
//! steps and ranges is shared with the import of Nsight Systems' exports, whose tables have the same contents.

mod assemble;
mod join;
mod part;
#[cfg(test)]
mod tests;

use super::formats::{Importer, Mark};
use super::input::Input;

pub(super) static PARTS: Importer = Importer {
    name: "a part of a recording of Ladderscope",
    word: "ladderscope's own",
    marks: &[Mark::Begins(&inject::format::MAGIC)],
    // the selection's notes are about the control file beside the parts
    import: |selection| {
        let files: Vec<Input> = selection.files.into_iter().map(|(input, _)| input).collect();
        assemble::import(&files)
    },
    ..Importer::PLAIN
};

/// Reads bytes as a part and merges it, alone and with a second one, for the fuzz target.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    let read = |name: &str| part::Part::read(name, &mut &bytes[..]);
    let _ = read("part").and_then(|part| assemble::merged(vec![part]));
    let _ = read("a").and_then(|a| assemble::merged(vec![a, read("b")?]));
}
