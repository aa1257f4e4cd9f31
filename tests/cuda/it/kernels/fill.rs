//! Machine code for the checks on a GPU, made beforehand: time on a machine with a GPU can be dear.
//!
//! With `LADDERSCOPE_CUBINS_FOR=90` (sm_90) the checks on the CPU also compile what they launch for that
//! architecture, into the cache of kernels (`$XDG_CACHE_HOME/ladderscope/kernels`). Taken along, and with an NVRTC of
//! the same version there, the checks on the GPU find everything they launch.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, PoisonError};

use base::cache::FileCache;
use run::testing::cuda::TranslationUnit;
use run::testing::cuda::cache_key;
use run::testing::cuda::{KernelOptions, Nvrtc};
use run::testing::cuda::{cubin, defines, options_for};

/// The architecture that is asked for: 90 is (9, 0).
fn architecture() -> Result<Option<(u32, u32)>, String> {
    let Ok(named) = std::env::var("LADDERSCOPE_CUBINS_FOR") else { return Ok(None) };
    let number: u32 = named.parse().map_err(|_| {
        format!("LADDERSCOPE_CUBINS_FOR={named}: a number such as 90 (for sm_90) is right")
    })?;
    Ok(Some((number / 10, number % 10)))
}

/// Compiles a unit as the checks on a GPU launch it, with and without early starts, where that is asked for.
pub(super) fn compile_for_gpu(
    unit: &TranslationUnit,
    options: &KernelOptions,
    constants: &[(&str, u32)],
) -> Result<(), String> {
    static DONE: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);
    let Some(sm) = architecture()? else { return Ok(()) };
    let nvrtc = Nvrtc::get().map_err(|error| error.to_string())?;
    let cache = FileCache::of_user("kernels").ok_or("there is no home to cache kernels in")?;
    for programmatic in [false, true] {
        let options = KernelOptions { programmatic, ..*options };
        let with = options_for(&defines(unit, &options, constants, sm), sm);
        let key = cache_key(unit, &with, nvrtc.version());
        let new = DONE.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone());
        if new && cache.load(&key).is_none() {
            let output = cubin(nvrtc, unit, &with).map_err(|error| error.to_string())?;
            cache.store(&key, &output.bytes);
        }
    }
    Ok(())
}
