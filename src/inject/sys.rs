//! The C library, as far as std does not cover it.

use std::ffi::{c_char, c_int, c_long, c_void};

#[repr(C)]
struct TimeSpec {
    seconds: i64,
    nanoseconds: c_long,
}

const REALTIME: c_int = 0;
const MONOTONIC: c_int = 1;
const THREAD_CPU: c_int = 3;
const SET_MASK: c_int = 2;
#[cfg(target_arch = "x86_64")]
const GETTID: c_long = 186;
#[cfg(not(target_arch = "x86_64"))]
const GETTID: c_long = 178;

pub(crate) const NOW: c_int = 2;
pub(crate) const NO_LOAD: c_int = 4;

/// `sigset_t` of glibc.
type SignalSet = [u64; 16];

unsafe extern "C" {
    fn clock_gettime(clock: c_int, time: *mut TimeSpec) -> c_int;
    fn syscall(number: c_long, ...) -> c_long;
    fn pthread_sigmask(how: c_int, set: *const SignalSet, old: *mut SignalSet) -> c_int;
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
    fn atexit(handler: extern "C" fn()) -> c_int;
    fn setpriority(which: c_int, who: u32, nice: c_int) -> c_int;
    fn gethostname(name: *mut c_char, length: usize) -> c_int;
    pub(crate) fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    pub(crate) fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

fn time(clock: c_int) -> u64 {
    let mut time = TimeSpec { seconds: 0, nanoseconds: 0 };
    // SAFETY: writes one struct to a valid address.
    unsafe { clock_gettime(clock, &mut time) };
    (time.seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(time.nanoseconds as u64)
}

pub(crate) fn realtime_ns() -> u64 {
    time(REALTIME)
}

pub(crate) fn monotonic_ns() -> u64 {
    time(MONOTONIC)
}

pub(crate) fn thread_cpu_ns() -> u64 {
    time(THREAD_CPU)
}

pub(crate) fn thread_id() -> u32 {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { syscall(GETTID) as u32 }
}

pub(crate) fn at_exit(handler: extern "C" fn()) {
    // SAFETY: the object is never unloaded (`-z nodelete`), so the handler stays valid.
    unsafe { atexit(handler) };
}

pub(crate) fn at_fork_in_child(handler: extern "C" fn()) {
    // SAFETY: as above.
    unsafe { pthread_atfork(None, None, Some(handler)) };
}

/// Runs `body` with all signals blocked, so that threads it starts never run the program's handlers.
pub(crate) fn with_signals_blocked<T>(body: impl FnOnce() -> T) -> T {
    let mut old: SignalSet = [0; 16];
    // SAFETY: both sets are at least as large as the C library's.
    let blocked = unsafe { pthread_sigmask(SET_MASK, &[u64::MAX; 16], &mut old) } == 0;
    let result = body();
    if blocked {
        // SAFETY: as above.
        unsafe { pthread_sigmask(SET_MASK, &old, std::ptr::null_mut()) };
    }
    result
}

/// Lowers the priority of the calling thread.
pub(crate) fn be_nice() {
    // SAFETY: takes plain numbers; Linux applies it to one thread.
    unsafe { setpriority(0, thread_id(), 10) };
}

pub(crate) fn host_name() -> Vec<u8> {
    let mut name = [0u8; 256];
    // SAFETY: writes at most 255 bytes to a valid address.
    unsafe { gethostname(name.as_mut_ptr().cast(), 255) };
    name.iter().copied().take_while(|byte| *byte != 0).collect()
}
