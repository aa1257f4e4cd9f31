//! Cache keys of compiled units (`$XDG_CACHE_HOME/ladderscope/kernels/KEY.cubin`).

use sha2::{Digest, Sha256};

use super::sources::{HEADERS, Unit};
use base::hash::hex;

/// Hash of everything that determines the machine code: source, headers, options (including the architecture)
/// and compiler version.
pub(super) fn key(unit: &Unit, options: &[String], (major, minor): (u32, u32)) -> String {
    let mut hash = Sha256::new();
    let mut add = |text: &str| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    };
    add(unit.name);
    add(unit.source);
    for (name, text) in HEADERS {
        add(name);
        add(text);
    }
    for option in options {
        add(option);
    }
    add(&format!("nvrtc {major}.{minor}"));
    format!("{}.cubin", hex(hash.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::kernels::sources::UNITS;

    #[test]
    fn keys_differ_by_all_that_code_follows_from() {
        let options = |text: &str| vec![text.to_owned()];
        let keys = [
            key(&UNITS[0], &options("-DA"), (13, 0)),
            key(&UNITS[1], &options("-DA"), (13, 0)),
            key(&UNITS[0], &options("-DB"), (13, 0)),
            key(&UNITS[0], &options("-DA"), (12, 9)),
            key(&UNITS[0], &["-D".to_owned(), "A".to_owned()], (13, 0)),
        ];
        let distinct: std::collections::HashSet<&String> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
        assert_eq!(keys[0], key(&UNITS[0], &options("-DA"), (13, 0)));
        assert_eq!(keys[0].len(), 64 + ".cubin".len());
    }
}
