//! Names of copies and fills, in the spelling of PyTorch's profiler, so that the same rules match.

/// Name of a copy: `Memcpy HtoD (Pinned -> Device)`.
pub(super) fn copy(kind: Option<i64>, source: Option<i64>, destination: Option<i64>) -> String {
    let direction = match kind {
        Some(1) => "HtoD",
        Some(2) => "DtoH",
        Some(3) => "HtoA",
        Some(4) => "AtoH",
        Some(5) => "AtoA",
        Some(6) => "AtoD",
        Some(7) => "DtoA",
        Some(8) => "DtoD",
        Some(9) => "HtoH",
        Some(10) => "PtoP",
        Some(11) => "Unified HtoD",
        Some(12) => "Unified DtoH",
        Some(13) => "Unified DtoD",
        _ => "unknown",
    };
    match (place(source), place(destination)) {
        (None, None) => format!("Memcpy {direction}"),
        (from, to) => {
            format!("Memcpy {direction} ({} -> {})", from.unwrap_or("Unknown"), to.unwrap_or("Unknown"))
        }
    }
}

/// Name of a fill: `Memset (Device)`.
pub(super) fn fill(memory: Option<i64>) -> String {
    place(memory).map_or("Memset".into(), |place| format!("Memset ({place})"))
}

fn place(memory: Option<i64>) -> Option<&'static str> {
    Some(match memory? {
        0 => "Pageable",
        1 => "Pinned",
        2 => "Device",
        3 => "Array",
        4 => "Managed",
        5 => "Device Static",
        6 => "Managed Static",
        _ => return None,
    })
}
