//! Traces that Ladderscope wrote.

use memchr::memmem::find;

use super::formats::{FormatSignature, ImportSelection, Importer};
use crate::Trace;
use base::error::{Error, Result};

pub(super) static OWN: Importer = Importer {
    is_foreign: false,
    ..Importer::new(
        "a trace of Ladderscope (Parquet)",
        "ladderscope's own",
        &[FormatSignature::Test(is_own)],
        import,
    )
};

fn import(selection: ImportSelection<'_>) -> Result<Trace> {
    match selection.files.as_slice() {
        // a compressed file or archive member is unpacked into an anonymous temporary file
        [(file, _)] if file.begins_plain(b"PAR1")? => crate::read(&file.path),
        [(file, _)] => crate::read_file(file.to_whole_file()?, &file.path),
        files => Err(Error::input_help(
            format!(
                "{}: {} traces of ladderscope, each with all its ranks",
                selection.path.display(),
                files.len()
            ),
            "name one of them",
        )),
    }
}

/// True for Parquet with a Ladderscope footer entry, or without any footer (a truncated trace).
fn is_own(head: &[u8]) -> bool {
    head.starts_with(b"PAR1") && (!head.ends_with(b"PAR1") || find(head, b"ladderscope.").is_some())
}
