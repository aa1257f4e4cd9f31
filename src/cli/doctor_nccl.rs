//! Finds NCCL without linking to it: `$LADDERSCOPE_NCCL`, then the names under which it is installed.

use std::ffi::c_int;

use libloading::{Library, Symbol};
use serde::Serialize;

/// Names a user's library with its path.
const VARIABLE: &str = "LADDERSCOPE_NCCL";
/// Distributions and the PyPI wheel install the first; the second comes with development packages.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// The NCCL that would be used.
#[derive(Debug, Default, Serialize)]
pub struct Nccl {
    /// `2.27.3`.
    pub version: Option<String>,
    /// Name or path under which it was found.
    pub library: Option<String>,
    /// Why there is none.
    pub problem: Option<String>,
}

/// Loads NCCL and asks its version.
pub fn probe() -> Nccl {
    let named = std::env::var(VARIABLE).ok().filter(|path| !path.is_empty());
    let mut problems = Vec::new();
    // A library that a user names is the one that is meant: no other is tried in its place.
    let candidates: Vec<&str> = match &named {
        Some(path) => vec![path.as_str()],
        None => NAMES.to_vec(),
    };
    for name in candidates {
        match version(name) {
            Ok(code) => {
                return Nccl {
                    version: Some(decode(code)),
                    library: Some(name.to_owned()),
                    problem: None,
                };
            }
            Err(problem) => problems.push(problem),
        }
    }
    let advice =
        if named.is_some() { String::new() } else { format!(" (${VARIABLE} may name the library)") };
    Nccl { problem: Some(format!("{}{advice}", problems.join("; "))), ..Nccl::default() }
}

fn version(name: &str) -> Result<c_int, String> {
    type GetVersion = unsafe extern "C" fn(*mut c_int) -> c_int;
    // SAFETY: loading runs the library's initialisers; NCCL's have no preconditions.
    let library = unsafe { Library::new(name) }.map_err(|error| why(name, &error))?;
    // SAFETY: this is the symbol's type in nccl.h, in all versions of NCCL 2.
    let get: Symbol<'_, GetVersion> =
        unsafe { library.get(b"ncclGetVersion\0") }.map_err(|error| why(name, &error))?;
    let mut code = 0;
    // SAFETY: the function writes one int to a valid address, and needs no GPU.
    match unsafe { get(&mut code) } {
        0 => Ok(code),
        error => Err(format!("{name}: ncclGetVersion answers {error}")),
    }
}

/// The loader's own words, which name the library or the symbol.
fn why(name: &str, error: &libloading::Error) -> String {
    let detail = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    if detail.contains(name) { detail } else { format!("{name}: {detail}") }
}

/// NCCL's version codes: major x 1000 + ... up to 2.8, major x 10000 + ... from 2.9 on.
fn decode(code: c_int) -> String {
    let scale = if code >= 10_000 { 10_000 } else { 1_000 };
    format!("{}.{}.{}", code / scale, code % scale / 100, code % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_version_codes_are_understood() {
        assert_eq!(decode(2_804), "2.8.4");
        assert_eq!(decode(22_703), "2.27.3");
    }

    #[test]
    fn a_library_that_is_not_there_is_named() {
        let problem = version("/no/such/libnccl.so").err().unwrap_or_default();
        assert!(problem.contains("/no/such/libnccl.so"), "{problem}");
    }

    #[test]
    fn a_library_that_is_not_nccl_is_refused() {
        let problem = version("libc.so.6").err().unwrap_or_default();
        assert!(problem.contains("ncclGetVersion"), "{problem}");
    }
}
