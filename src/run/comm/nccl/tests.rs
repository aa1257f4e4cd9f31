//! The communicator against functions that behave as NCCL may: slow, hanging, failing in the background.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::PeerCheck;
use super::library::{Comm, Functions, NcclConfig, RawStream, SUCCESS};
use super::*;
use crate::comm::{Exchange, Peers};
use base::error::{Error, Result};
use plan::DType;

const SHORT: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(30);

/// Behaviours, chosen by the first byte of an id.
const FINE: u8 = 0;
const NEVER_READY: u8 = 1;
const REFUSES: u8 = 2;
const FAILS_LATER: u8 = 3;
const WAITS: u8 = 4;
const ABORT_HANGS: u8 = 5;
const FINALIZE_HANGS: u8 = 6;

/// What a communicator points to here. It is never freed: tests look at it after its end.
#[derive(Default)]
struct Fake {
    behaviour: u8,
    failed: AtomicBool,
    sums: AtomicU32,
    finalized: AtomicBool,
    destroyed: AtomicBool,
    aborted: AtomicBool,
}

fn fake(comm: Comm) -> &'static Fake {
    // SAFETY: communicators here are leaked boxes of this type.
    unsafe { &*(comm as *const Fake) }
}

unsafe extern "C" fn get_unique_id(id: *mut UniqueId) -> c_int {
    // SAFETY: the caller gives a place for an id.
    unsafe { (*id).bytes = [FINE; 128] };
    SUCCESS
}
unsafe extern "C" fn init_rank(
    comm: *mut Comm,
    ranks: c_int,
    id: UniqueId,
    rank: c_int,
    _: *mut NcclConfig,
) -> c_int {
    assert!(rank < ranks);
    let behaviour = id.bytes[0];
    if behaviour == REFUSES {
        return 5;
    }
    if behaviour == NEVER_READY {
        loop {
            std::thread::sleep(LONG);
        }
    }
    let fake = Fake { behaviour, ..Fake::default() };
    // SAFETY: the caller gives a place for a communicator.
    unsafe { *comm = Box::into_raw(Box::new(fake)).cast() };
    SUCCESS
}
unsafe extern "C" fn async_error(comm: Comm, code: *mut c_int) -> c_int {
    let fake = fake(comm);
    let now = if fake.failed.load(Ordering::SeqCst) { 6 } else { SUCCESS };
    // SAFETY: the caller gives a place for one int.
    unsafe { *code = now };
    SUCCESS
}
unsafe extern "C" fn all_reduce(
    _: *const c_void,
    _: *mut c_void,
    _: usize,
    dtype: c_int,
    operation: c_int,
    comm: Comm,
    _: RawStream,
) -> c_int {
    assert_eq!((dtype, operation), (9, 0));
    let fake = fake(comm);
    fake.sums.fetch_add(1, Ordering::SeqCst);
    match fake.behaviour {
        // for a peer that is dead: nothing but an abort ends it
        WAITS | ABORT_HANGS => {
            let began = Instant::now();
            while !fake.aborted.load(Ordering::SeqCst) && began.elapsed() < LONG {
                std::thread::sleep(Duration::from_millis(1));
            }
            3
        }
        FAILS_LATER => {
            fake.failed.store(true, Ordering::SeqCst);
            SUCCESS
        }
        _ => SUCCESS,
    }
}
unsafe extern "C" fn all_gather(
    _: *const c_void,
    _: *mut c_void,
    _: usize,
    _: c_int,
    _: Comm,
    _: RawStream,
) -> c_int {
    SUCCESS
}
unsafe extern "C" fn finalize(comm: Comm) -> c_int {
    let fake = fake(comm);
    fake.finalized.store(true, Ordering::SeqCst);
    if fake.behaviour == FINALIZE_HANGS {
        loop {
            std::thread::sleep(LONG);
        }
    }
    SUCCESS
}
unsafe extern "C" fn destroy(comm: Comm) -> c_int {
    fake(comm).destroyed.store(true, Ordering::SeqCst);
    SUCCESS
}
unsafe extern "C" fn abort(comm: Comm) -> c_int {
    fake(comm).aborted.store(true, Ordering::SeqCst);
    while fake(comm).behaviour == ABORT_HANGS {
        std::thread::sleep(LONG);
    }
    SUCCESS
}
unsafe extern "C" fn error_string(code: c_int) -> *const c_char {
    match code {
        5 => c"invalid usage".as_ptr(),
        6 => c"remote process exited or there was a network error".as_ptr(),
        _ => std::ptr::null(),
    }
}
unsafe extern "C" fn last_error(comm: Comm) -> *const c_char {
    if comm.is_null() { std::ptr::null() } else { c"\n rank 1 closed its socket".as_ptr() }
}

fn nccl() -> &'static Nccl {
    Box::leak(Box::new(Nccl::from_functions(Functions {
        ncclGetUniqueId: get_unique_id,
        ncclCommInitRankConfig: init_rank,
        ncclCommGetAsyncError: async_error,
        ncclAllReduce: all_reduce,
        ncclReduceScatter: all_reduce,
        ncclAllGather: all_gather,
        ncclCommFinalize: finalize,
        ncclCommDestroy: destroy,
        ncclCommAbort: abort,
        ncclGetErrorString: error_string,
        ncclGetLastError: last_error,
    })))
}

fn join(behaviour: u8, timeout: Duration) -> Result<NcclCommunicator> {
    join_among(behaviour, timeout, Arc::new(|| Ok(())))
}

fn join_among(behaviour: u8, timeout: Duration, alive: PeerCheck) -> Result<NcclCommunicator> {
    let id = UniqueId::from_bytes(&[behaviour; 128]).unwrap();
    NcclCommunicator::join_with(nccl(), id, (1, 4), timeout, || Ok(()), alive)
}

fn sum(communicator: &NcclCommunicator) -> Result<()> {
    let (sum, bf16) = (Exchange::AllReduce, Some(DType::Bf16));
    // SAFETY: the functions here look at no address.
    unsafe { communicator.exchange(sum, [8, 8], 4, bf16, std::ptr::null_mut()) }
}

fn text<T>(result: Result<T>) -> String {
    result.err().map(|e| e.to_string()).unwrap_or_default()
}

#[test]
fn a_communicator_ends_in_good_order() {
    let communicator = join(FINE, LONG).unwrap();
    let seen = fake(communicator.address());
    sum(&communicator).unwrap();
    sum(&communicator).unwrap();
    communicator.check().unwrap();
    drop(communicator);
    assert_eq!(seen.sums.load(Ordering::SeqCst), 2);
    let ended = [&seen.finalized, &seen.destroyed, &seen.aborted].map(|b| b.load(Ordering::SeqCst));
    assert_eq!(ended, [true, true, false]);
}

/// A call that waits for a peer that is dead returns, because the watchdog ends the communicator under it: in time,
/// or as soon as the other ranks know.
#[test]
fn a_sum_with_a_dead_peer_ends() {
    let began = Instant::now();
    let communicator = join(WAITS, SHORT).unwrap();
    let seen = fake(communicator.address());
    let late = text(sum(&communicator));
    assert!(late.starts_with("rank 1: the all-reduce of 4 numbers was not enqueued within"), "{late}");
    assert!(seen.aborted.load(Ordering::SeqCst));
    assert_eq!(text(sum(&communicator)), late, "the reason stays");

    let dead = Arc::new(AtomicBool::new(false));
    let known = Arc::clone(&dead);
    let communicator = join_among(
        WAITS,
        LONG,
        Arc::new(move || match known.load(Ordering::SeqCst) {
            false => Ok(()),
            true => Err(Error::failed("rank 0 was killed")),
        }),
    )
    .unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(SHORT);
            dead.store(true, Ordering::SeqCst);
        });
        assert_eq!(text(sum(&communicator)), "rank 0 was killed");
    });
    // a rank's own thread may end what another one's waits for, too
    let communicator = join(WAITS, LONG).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(SHORT);
            communicator.abort("rank 2 ran out of memory");
        });
        assert_eq!(text(sum(&communicator)), "rank 2 ran out of memory");
    });
    assert!(began.elapsed() < LONG);
}

#[test]
fn joining_ends_with_the_time_out_or_with_a_sibling() {
    let began = Instant::now();
    let late = text(join(NEVER_READY, SHORT));
    assert!(late.starts_with("joining rank 1 of 4: NCCL 2.27.3 was not ready within 0 s"), "{late}");
    let looks = AtomicU32::new(0);
    let alive = move || match looks.fetch_add(1, Ordering::SeqCst) {
        0..5 => Ok(()),
        _ => Err(Error::failed("rank 1 is gone")),
    };
    let gone = join_among(NEVER_READY, LONG, Arc::new(alive));
    assert_eq!(text(gone), "rank 1 is gone");
    assert!(began.elapsed() < LONG);
}

#[test]
fn what_nccl_says_of_its_failures_is_told() {
    let refused = text(join(REFUSES, LONG));
    let wanted = "joining rank 1 of 4: NCCL 2.27.3 answers 5 (invalid usage);";
    assert!(refused.starts_with(wanted), "{refused}");
    let communicator = join(FAILS_LATER, LONG).unwrap();
    let seen = fake(communicator.address());
    sum(&communicator).unwrap();
    let failed = text(communicator.check());
    assert!(
        failed.starts_with("rank 1, in the background: NCCL 2.27.3 answers 6 (remote process exited")
            && failed.contains("): rank 1 closed its socket; --env NCCL_DEBUG=INFO"),
        "{failed}"
    );
    assert!(seen.aborted.load(Ordering::SeqCst));
    // the reason stays
    assert_eq!([text(communicator.check()), text(sum(&communicator))], [failed.clone(), failed]);
    drop(communicator);
    assert!(!seen.finalized.load(Ordering::SeqCst), "what was aborted is not finalized");
}

#[test]
fn an_end_that_hangs_is_left_to_the_end_of_the_process() {
    let began = Instant::now();
    let communicator = join(ABORT_HANGS, LONG).unwrap();
    communicator.abort("enough");
    drop(communicator);
    let communicator = join(FINALIZE_HANGS, LONG).unwrap();
    let seen = fake(communicator.address());
    drop(communicator);
    assert!(seen.aborted.load(Ordering::SeqCst) && !seen.destroyed.load(Ordering::SeqCst));
    assert!(began.elapsed() < LONG);
}

#[test]
fn another_thread_may_abort_what_this_one_waits_for() {
    let communicator = Arc::new(join(FINE, LONG).unwrap());
    let other = Arc::clone(&communicator);
    std::thread::spawn(move || other.abort("rank 3 ran out of memory")).join().unwrap();
    assert_eq!(text(sum(&communicator)), "rank 3 ran out of memory");
    assert_eq!(text(communicator.check()), "rank 3 ran out of memory");
}

#[test]
fn ranks_join_through_their_peers_and_fail_together() {
    let nccl = nccl();
    let joined: Vec<_> = Peers::threads(3, LONG)
        .into_iter()
        .map(|peers| {
            let join = move || {
                let peers = Arc::new(peers);
                NcclCommunicator::join(nccl, &peers, || Ok(())).map(|_| peers.rank())
            };
            std::thread::spawn(join)
        })
        .collect();
    let ranks: Vec<usize> = joined.into_iter().map(|rank| rank.join().unwrap().unwrap()).collect();
    assert_eq!(ranks, [0, 1, 2]);
    // rank 1 fails before it joins
    let mut peers = Peers::threads(2, LONG);
    let dies = peers.pop().unwrap();
    let waits = peers.pop().unwrap();
    dies.abort("rank 1: no GPU");
    assert_eq!(text(NcclCommunicator::join(nccl, &Arc::new(waits), || Ok(()))), "rank 1: no GPU");
}

/// With a real library: `LADDERSCOPE_NCCL=/path/libnccl.so.2 cargo test -- --ignored a_real_nccl`.
#[test]
#[ignore = "needs NCCL's library, and no GPU"]
fn a_real_nccl_loads_and_joins_or_says_why_not() {
    let probed = probe();
    assert_eq!(probed.problem, None);
    let nccl = Nccl::load().unwrap();
    assert_eq!(Some(nccl.version()), probed.version);
    assert!(nccl.version().starts_with("2."), "{}", nccl.version());
    let result = nccl.unique_id().and_then(|id| {
        let limit = Duration::from_secs(20);
        NcclCommunicator::join_with(nccl, id, (0, 1), limit, || Ok(()), Arc::new(|| Ok(())))
    });
    println!("version {} from {:?}: {:?}", nccl.version(), probed.library, result);
    println!("{:?}", chosen());
    if let Err(error) = result {
        assert!(error.to_string().contains("NCCL 2."), "{error}");
    }
}

#[test]
fn choices_are_read_from_debug_lines() {
    let text = "\
node1:812:812 [0] NCCL INFO NCCL version 2.27.3+cuda12.9
node1:812:812 [0] NCCL INFO NCCL_ALGO set by environment to Ring
node1:812:830 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1.
node1:812:830 [0] NCCL INFO Using network Socket
node1:812:830 [0] NCCL INFO 24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels
node1:812:830 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
node1:812:830 [0] NCCL INFO Channel 01/0 : 1[1] -> 2[0] [send] via NET/IB/0/GDRDMA
node1:812:812 [0] NCCL INFO AllReduce: 16384 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}
node1:812:812 [0] NCCL INFO AllReduce: 268435456 Bytes -> Algo 5 proto 2 time 801.5
node1:812:812 [0] NCCL INFO Broadcast: 4 Bytes -> Algo RING proto LL

node1:812:830 [0] misc/socket.cc:123 NCCL WARN socketStart: Connect failed
no line of NCCL's at all";
    let chosen = parse(text);
    assert_eq!(chosen.version.as_deref(), Some("2.27.3+cuda12.9"));
    assert_eq!((chosen.channels, chosen.network.as_deref()), (Some(24), Some("Socket")));
    assert_eq!((chosen.nvls, chosen.switch_without_p2p().is_some()), (Some(false), true));
    assert_eq!(chosen.transports, ["NET/IB", "P2P/CUMEM"].map(String::from).into());
    assert_eq!(chosen.heeded, ["NCCL_ALGO", "NCCL_P2P_DISABLE"].map(String::from).into());
    let by_size = [(16_384, "RING LL".to_owned()), (268_435_456, "NVLS_TREE SIMPLE".to_owned())];
    assert_eq!(chosen.all_reduce, by_size.into());
    assert_eq!(chosen.blocks, [(16_384, 2)].into(), "older versions do not tell");
    assert_eq!(chosen.warnings, ["socketStart: Connect failed"]);
    assert_eq!(parse(""), NcclChoices::default());
}

#[test]
fn sums_within_the_switch_are_told_where_p2p_is_off() {
    let channels =
        "a:1:1 [0] NCCL INFO 16 coll channels, 16 collnet channels, 16 nvls channels, 32 p2p channels";
    let of = |lines: &str| parse(&format!("{channels}\n{lines}")).switch_without_p2p();
    let (ring, nvls) = (
        "a:1:1 [0] NCCL INFO AllReduce: 16384 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}",
        "a:1:1 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..15}",
    );
    assert_eq!(of(ring), None);
    let said = of(&format!("{ring}\n{nvls}")).unwrap_or_default();
    assert!(
        said.contains("NVLS for messages of 1048576 bytes") && said.contains("--nvls off"),
        "{said}"
    );
    assert!(of("").is_some_and(|said| said.contains("it may choose NVLS")));
}
