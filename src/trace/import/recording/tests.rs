//! Parts as the recorder writes them, whole and damaged, and the join of grouped collectives.

use inject::format::{self, RecordingEvent};

use super::join::join;
use super::merged;
use super::part::RecordingPart;

/// A part with one chunk for each list of events.
fn part(chunks: &[Vec<RecordingEvent>]) -> Vec<u8> {
    let mut bytes = format::header().to_vec();
    for events in chunks {
        let mut chunk = Vec::new();
        events.iter().for_each(|event| event.encode(&mut chunk));
        bytes.extend((chunk.len() as u32).to_le_bytes());
        bytes.extend(format::checksum(&chunk).to_le_bytes());
        bytes.extend(chunk);
    }
    bytes
}

fn read(bytes: &[u8]) -> RecordingPart {
    RecordingPart::read("part", &mut &bytes[..]).expect("a part")
}

const KERNEL: u32 = 1;
const DOMAIN: u32 = 2;
const ALL_REDUCE: u32 = 3;
const ALL_GATHER: u32 = 4;

fn texts() -> Vec<RecordingEvent> {
    let names = ["ncclDevKernel_Generic", "NCCL", "ncclAllReduce", "ncclAllGather"];
    (1..).zip(names).map(|(id, name)| RecordingEvent::Text { id, text: name.into() }).collect()
}

/// A range of NCCL with its payload.
fn nccl(time_ns: u64, name: u32, communicator: u64, bytes: u64) -> [RecordingEvent; 2] {
    let payload = [communicator, bytes, 0, 0];
    let schema = (1 << 24) + 5;
    [
        RecordingEvent::Push { time_ns, thread: 5, domain: DOMAIN, name, schema, payload },
        RecordingEvent::Pop {
            time_ns: time_ns + 5,
            thread: 5,
            domain: DOMAIN,
            schema: 0,
            payload: [0; 4],
        },
    ]
}

/// A launch of an NCCL kernel, and the kernel.
fn launch(time_ns: u64, correlation: u32) -> [RecordingEvent; 2] {
    let (start_ns, end_ns) = (time_ns + 100, time_ns + 200);
    [
        RecordingEvent::Call {
            start_ns: time_ns,
            end_ns: time_ns + 1,
            thread: 5,
            correlation,
            id: 307,
            runtime: 0,
        },
        RecordingEvent::Kernel {
            start_ns,
            end_ns,
            device: 0,
            context: 1,
            stream: 7,
            correlation,
            name: KERNEL,
            node: 0,
            graph: 0,
        },
    ]
}

/// Name, bytes and number of calls of each launch, and the unjoined kernels.
fn joined(events: Vec<RecordingEvent>) -> (Vec<(u32, String, u64, u32)>, u64) {
    let joined = join(&read(&part(&[texts(), events])));
    let found = joined.by_correlation.into_iter();
    let mut found: Vec<_> = found.map(|(id, call)| (id, call.name, call.bytes, call.calls)).collect();
    found.sort();
    (found, joined.unjoined)
}

#[test]
fn grouped_calls_belong_to_the_launches_at_the_end_of_their_group() {
    let a = || nccl(10, ALL_REDUCE, 1 << 50, 100);
    let b = || nccl(20, ALL_REDUCE, 1 << 50, 11);
    let c = || nccl(30, ALL_GATHER, 2 << 50, 7);
    let reduce = |id, bytes, calls| (id, "ncclAllReduce".to_owned(), bytes, calls);
    // one kernel runs both
    let events = [a(), b(), launch(50, 1)].concat();
    assert_eq!(joined(events), (vec![reduce(1, 111, 2)], 0));
    // as many kernels as calls
    let events = [a(), c(), launch(50, 1), launch(60, 2)].concat();
    assert_eq!(joined(events).0[1], (2, "ncclAllGather".to_owned(), 7, 1));
    // one kernel a communicator
    let events = [a(), b(), c(), launch(50, 1), launch(60, 2)].concat();
    assert_eq!(joined(events).0[0], reduce(1, 111, 2));
    // two kernels of one communicator for three calls: nobody knows which
    let events = [a(), b(), a(), launch(50, 1), launch(60, 2)].concat();
    assert_eq!(joined(events), (Vec::new(), 2));
    // a kernel without any call
    assert_eq!(joined(launch(50, 1).to_vec()), (Vec::new(), 1));
}

/// NCCL's plugin: a call of this type, with its choices once it is enqueued.
fn plugin(time_ns: u64, kind: u32, communicator: u64, algorithm: u32) -> RecordingEvent {
    RecordingEvent::Collective {
        time_ns,
        thread: 5,
        communicator,
        kind,
        function: 5,
        datatype: 6,
        count: 100,
        sequence: 0,
        captured: 0,
        algorithm,
        protocol: 8,
        channels: 4,
    }
}

#[test]
fn the_plugin_gives_algorithms_and_stands_in_for_ranges() {
    let names = ["AllReduce", "ncclBfloat16", "RING", "LL", "TREE"];
    let told = || (5..).zip(names).map(|(id, name)| RecordingEvent::Text { id, text: name.into() });
    let chosen = |events: Vec<RecordingEvent>| {
        let events = told().chain(events).collect();
        let mut found: Vec<_> =
            join(&read(&part(&[texts(), events]))).by_correlation.into_iter().collect();
        found.sort();
        let shown = |call: super::join::NcclCollective| {
            (
                call.bytes,
                call.communicator,
                call.chosen.algorithm,
                call.chosen.protocol,
                call.chosen.channels,
            )
        };
        found.into_iter().map(|(_, call)| shown(call)).collect::<Vec<_>>()
    };
    let (id, other) = (1 << 50, 2 << 50);
    let (a, b) = (nccl(10, ALL_REDUCE, id, 100), nccl(20, ALL_REDUCE, other, 11));
    // the launches of a group, then its calls in any order
    let after = [plugin(70, 2, other, 9), plugin(71, 2, id, 7)];
    let events = [&a[..], &b, &launch(50, 1), &launch(60, 2), &after].concat();
    let of = |bytes, id, name: &str| (bytes, Some(id), name.to_owned(), "LL".to_owned(), 4);
    assert_eq!(chosen(events), [of(100, id, "RING"), of(11, other, "TREE")]);
    // without NVTX: 100 numbers of 2 bytes
    let events = [&[plugin(10, 1 << 9, id, 0)][..], &launch(50, 1), &[plugin(70, 2, id, 7)]].concat();
    assert_eq!(chosen(events), [of(200, id, "RING")]);
}

#[test]
fn a_part_that_is_cut_anywhere_is_read_up_to_its_last_whole_chunk() {
    let chunks: Vec<Vec<RecordingEvent>> =
        (0..4).map(|at| launch(1000 * at, at as u32 + 1).to_vec()).collect();
    let whole = part(&chunks);
    let mut lengths: Vec<usize> = (0..=chunks.len()).map(|n| part(&chunks[..n]).len()).collect();
    for length in format::HEADER..=whole.len() {
        let part = read(&whole[..length]);
        let complete = lengths.iter().filter(|end| **end <= length).count() - 1;
        assert_eq!(part.work.len(), complete, "{length} bytes");
        assert_eq!(part.cut.is_some(), !lengths.contains(&length), "{length} bytes");
    }
    for length in 0..format::HEADER {
        assert!(RecordingPart::read("part", &mut &whole[..length]).is_err());
    }
    // a flipped bit loses the chunk that it is in, and those after it
    lengths.dedup();
    let mut broken = whole;
    broken[lengths[2] - 1] ^= 1;
    assert_eq!(read(&broken).work.len(), 1);
}

#[test]
fn absurd_lengths_and_events_allocate_nothing() {
    for (length, sum) in [(u32::MAX, 0u32), (33 << 20, 0), (1 << 20, 5)] {
        let mut bytes = format::header().to_vec();
        bytes.extend(length.to_le_bytes());
        bytes.extend(sum.to_le_bytes());
        bytes.extend([1; 64]);
        assert!(read(&bytes).cut.is_some());
    }
    // pops without pushes, stops without starts, and times at the end of the world
    let odd = vec![
        RecordingEvent::Pop { time_ns: 5, thread: 1, domain: 0, schema: 0, payload: [0; 4] },
        RecordingEvent::Stop { time_ns: 1, id: 9 },
        RecordingEvent::Push {
            time_ns: u64::MAX,
            thread: 1,
            domain: 0,
            name: 77,
            schema: 0,
            payload: [9; 4],
        },
        RecordingEvent::Pop { time_ns: 0, thread: 1, domain: 0, schema: 3, payload: [1; 4] },
        RecordingEvent::NodeCloned { original: 4, node: 4 },
    ];
    let part = read(&part(&[odd]));
    assert_eq!(part.ranges.len(), 1);
    assert_eq!(part.ranges[0].end, Some(part.ranges[0].start));
    assert_eq!(join(&part).unjoined, 0);
}

/// A process with this many kernels of 1 us.
fn process(pid: u32, parent: u32, kernels: u64, more: Vec<RecordingEvent>) -> RecordingPart {
    let command = format!("program {pid}").into_bytes();
    let start_ns = u64::from(pid);
    let described = RecordingEvent::Process { pid, parent, start_ns, host: b"node".to_vec(), command };
    let kernel = |at: u64| launch(1_000_000 + 1000 * at, at as u32 + 1);
    let events = (0..kernels).flat_map(kernel).collect();
    let mut read = read(&part(&[texts(), vec![described], more, events]));
    read.name = format!("node-{pid}");
    read
}

fn variable(text: &str) -> RecordingEvent {
    RecordingEvent::Variable { text: text.into() }
}

fn communicator(id: u64, ranks: u32, rank: u32) -> RecordingEvent {
    RecordingEvent::Communicator {
        time_ns: 1,
        id,
        plugin: 6,
        nodes: 1,
        ranks,
        rank,
        device: 0,
        name: Vec::new(),
    }
}

/// Process ids of the ranks in order, and the sentence about those that are none.
fn ranked(parts: Vec<RecordingPart>) -> (Vec<String>, Option<String>) {
    let report = merged(parts).expect("a trace").meta.import.expect("a report");
    let about = report.warnings.into_iter().find(|warning| warning.starts_with("left out"));
    (report.files, about)
}

#[test]
fn probes_and_front_ends_are_no_ranks_and_workers_are() {
    let files = |pids: &[u32]| pids.iter().map(|pid| format!("node-{pid}")).collect::<Vec<_>>();
    // probes that form a communicator of their own and inherit their parent's rank
    let probe = |pid, rank| process(pid, 10, 3, vec![communicator(9, 2, rank), variable("RANK=0")]);
    let (ranks, about) = ranked(vec![
        process(10, 1, 100, vec![communicator(5, 2, 0), variable("RANK=0")]),
        process(11, 1, 100, vec![communicator(5, 2, 1), variable("RANK=1")]),
        probe(12, 0),
        probe(13, 1),
    ]);
    assert_eq!(ranks, files(&[10, 11]));
    let about = about.expect("a sentence");
    assert!(about.contains("12 (program 12), 13 (program 13)"), "{about}");
    // an engine's front end with some kernels, a core without any, and workers ranked by NCCL
    let (ranks, about) = ranked(vec![
        process(20, 1, 5, Vec::new()),
        process(21, 20, 0, vec![variable("OTHER=1")]),
        process(22, 21, 80, vec![communicator(5, 2, 1)]),
        process(23, 21, 90, vec![communicator(5, 2, 0)]),
    ]);
    assert_eq!(ranks, files(&[23, 22]));
    assert!(about.is_some_and(|about| about.contains("20 (program 20)")));
    // a rank that does little: in the ranks' communicator, or numbered by the launcher
    for (parent, child) in [
        (
            vec![communicator(5, 2, 0), variable("RANK=0")],
            vec![communicator(5, 2, 1), variable("RANK=0")],
        ),
        (vec![variable("RANK=0")], vec![variable("RANK=1")]),
    ] {
        let (ranks, about) = ranked(vec![process(30, 1, 100, parent), process(31, 30, 2, child)]);
        assert_eq!((ranks, about), (files(&[30, 31]), None));
    }
    // as much work as its parent, and work of strangers
    let (ranks, about) = ranked(vec![process(40, 1, 50, Vec::new()), process(41, 40, 40, Vec::new())]);
    assert_eq!((ranks.len(), about), (2, None));
    let (ranks, about) = ranked(vec![process(40, 1, 50, Vec::new()), process(41, 1, 1, Vec::new())]);
    assert_eq!((ranks.len(), about), (2, None));
}
