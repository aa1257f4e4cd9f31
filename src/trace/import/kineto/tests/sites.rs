//! The steps, ranges and operators in which GPU work was launched.

use super::*;
use crate::export::{ExportedRanks, chrome};
use crate::import::input::InputFile;
use crate::{HostWork, LaunchSite, NO_STEP, is_host_call};

fn gpu(ts: u32, correlation: u32) -> String {
    on_stream("kernel", "k", (ts, 90), &format!(r#", "correlation": {correlation}"#))
}

/// Start (us), step, name of the range and of the operator of each span.
fn sites(list: &[String]) -> Vec<(i64, u32, String, String)> {
    let trace = read(&events(list));
    assert_accounted(&trace);
    sites_of(&trace)
}

fn sites_of(trace: &Trace) -> Vec<(i64, u32, String, String)> {
    let name = |at: u32| trace.meta.range_names.get(at as usize).cloned().unwrap_or_default();
    let mut found: Vec<_> = (trace.spans.iter())
        .map(|span| {
            let range = match span.launched.range {
                LaunchSite::NONE => "unknown".into(),
                LaunchSite::OUTSIDE => "outside".into(),
                at => name(trace.ranges[at as usize].name),
            };
            (span.start_ns / 1000, span.step, range, name(span.launched.operator))
        })
        .collect();
    found.sort_unstable();
    found
}

fn site(start: i64, step: u32, range: &str, operator: &str) -> (i64, u32, String, String) {
    (start, step, range.into(), operator.into())
}

#[test]
fn work_belongs_to_where_it_was_launched() {
    let found = sites(&[
        host("user_annotation", "ProfilerStep#4", 1, (1000, 100)),
        host("user_annotation", "ProfilerStep#5", 1, (1100, 100)),
        host("user_annotation", "forward", 1, (1010, 50)),
        host("cpu_op", "aten::linear", 1, (1020, 30)),
        host("cpu_op", "aten::mm", 1, (1025, 20)),
        call("cudaLaunchKernel", 1, (1030, 5), 1),
        gpu(1500, 1),
        // the backward pass launches while the only other annotated thread waits
        host("cpu_op", "MmBackward0", 9, (1120, 30)),
        call("cudaLaunchKernel", 9, (1130, 5), 2),
        gpu(1600, 2),
        // the number of a call before the profile
        gpu(1050, 99),
        call("cudaLaunchKernel", 1, (1250, 5), 3),
        gpu(1700, 3),
        call("cudaLaunchKernel", 1, (1000, 5), 4),
        gpu(1800, 4),
    ]);
    assert_eq!(
        found,
        [
            site(1050, NO_STEP, "unknown", ""),
            site(1500, 4, "forward", "aten::mm"),
            site(1600, 5, "ProfilerStep#5", "MmBackward0"),
            site(1700, NO_STEP, "outside", "cudaLaunchKernel"),
            site(1800, 4, "ProfilerStep#4", "cudaLaunchKernel"),
        ]
    );
}

#[test]
fn a_launch_outside_its_threads_ranges_belongs_to_the_only_other_thread_in_one() {
    let backward = |others: &[String]| {
        let own = [
            host("user_annotation", "backward", 1, (1000, 200)),
            host("cpu_op", "MmBackward0", 9, (1120, 30)),
            call("cudaLaunchKernel", 9, (1130, 5), 2),
            gpu(1600, 2),
        ];
        sites(&[&own, others].concat())
    };
    assert_eq!(backward(&[]), [site(1600, 0, "backward", "MmBackward0")]);
    let loader = host("user_annotation", "load batch", 2, (1100, 100));
    assert_eq!(backward(&[loader]), [site(1600, 0, "outside", "MmBackward0")]);
    let loader = host("user_annotation", "load batch", 2, (1300, 100));
    assert_eq!(backward(&[loader]), [site(1600, 0, "backward", "MmBackward0")], "not in it then");
    // the thread's own ranges come first, and only while it is in one (DDP names its all-reduces)
    let all_reduce = |time| host("user_annotation", "nccl:all_reduce", 9, time);
    let named = backward(&[all_reduce((1125, 20))]);
    assert_eq!(named, [site(1600, 0, "nccl:all_reduce", "MmBackward0")]);
    assert_eq!(backward(&[all_reduce((1300, 20))]), [site(1600, 0, "backward", "MmBackward0")]);
}

#[test]
fn replayed_kernels_belong_to_the_launch_of_their_graph() {
    let (first, second) = ("execute_context_0(0)_generation_32(32)", "step[DECODE bs=32]");
    let found = sites(&[
        host("user_annotation", first, 1, (1000, 200)),
        host("cpu_op", "Torch-Compiled Region", 1, (1050, 120)),
        call("hipGraphLaunch", 1, (1100, 50), 1),
        gpu(1300, 1),
        gpu(1400, 1),
        host("user_annotation", second, 1, (1500, 200)),
        call("cudaGraphLaunch", 1, (1550, 50), 2),
        gpu(1800, 2),
    ]);
    assert_eq!(
        found,
        [
            site(1300, 0, first, "hipGraphLaunch"),
            site(1400, 0, first, "hipGraphLaunch"),
            site(1800, 1, second, "cudaGraphLaunch"),
        ]
    );
}

/// Calls that last at least 1 ms, one of them without a launch, and a launch outside of ranges while threads are in some.
#[test]
fn long_calls_annotate_nothing_and_are_the_same_after_an_export() {
    let list = [
        host("user_annotation", "forward", 1, (1000, 20_000)),
        host("user_annotation", "load batch", 2, (1500, 30_000)),
        call("cudaLaunchKernel", 1, (1100, 5), 1),
        gpu(1500, 1),
        host("cuda_runtime", "cudaStreamSynchronize", 1, (2000, 5000)),
        call("cudaFree", 9, (8000, 5000), 2),
        call("cudaLaunchKernel", 9, (12_000, 5), 3),
        gpu(14_000, 3),
        call("cudaMemcpy", 1, (20_000, 2000), 4),
        gpu(20_500, 4),
    ];
    let trace = read(&events(&list));
    assert_accounted(&trace);
    let mut file = Vec::new();
    chrome(&trace, ExportedRanks::All, &mut file).unwrap();
    let exported = import_bytes("t.json", &file, KinetoOptions::default()).unwrap();
    for trace in [&trace, &exported] {
        let name = |range: &crate::Range| trace.meta.range_names[range.name as usize].as_str();
        let calls: Vec<_> = (trace.ranges.iter())
            .map(|range| (name(range), range.thread, range.start_ns / 1000, range.end_ns / 1000))
            .filter(|(name, ..)| is_host_call(name))
            .collect();
        let expected = [
            ("cudaStreamSynchronize", 0, 2000, 7000),
            ("cudaMemcpy", 0, 20_000, 22_000),
            ("cudaFree", 2, 8000, 13_000),
        ];
        assert_eq!(calls, expected);
        let expected = [
            site(1500, 0, "forward", "cudaLaunchKernel"),
            site(14_000, 0, "outside", "cudaLaunchKernel"),
            site(20_500, 0, "forward", "cudaMemcpy"),
        ];
        assert_eq!(sites_of(trace), expected);
        let ready: Vec<i64> = trace.spans.iter().map(|span| span.ready_ns).collect();
        assert_eq!(ready, [1_105_000, 12_005_000, 20_499_999]);
    }
}

#[test]
fn steps_of_one_process_are_not_those_of_another() {
    let other = |event: String| event.replace("\"pid\": 1", "\"pid\": 2");
    let found = sites(&[
        host("user_annotation", "ProfilerStep#1", 1, (1000, 500)),
        other(host("user_annotation", "ProfilerStep#2", 1, (1010, 500))),
        call("cudaLaunchKernel", 3, (1100, 5), 1),
        gpu(2000, 1),
        other(call("cudaLaunchKernel", 3, (1100, 5), 2)),
        gpu(3000, 2),
    ]);
    assert_eq!(found.iter().map(|site| site.1).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn ranges_keep_their_work_however_files_are_put_together() {
    let directory = tempfile::tempdir().unwrap();
    let mut paths = Vec::new();
    for rank in 0..2 {
        let list = [
            host("user_annotation", &format!("later {rank}"), 1, (1600, 200)),
            host("user_annotation", &format!("early {rank}"), 2, (1000, 200)),
            call("cudaLaunchKernel", 1, (1650, 5), 1),
            gpu(1900, 1),
            call("cudaLaunchKernel", 2, (1100, 5), 2),
            gpu(1300, 2),
        ];
        let path = directory.path().join(format!("rank{rank}.json"));
        std::fs::write(&path, events(&list)).unwrap();
        paths.push(InputFile::from_path(&path));
    }
    let trace = super::super::open::import_files(&paths, None, super::super::open::read_events).unwrap();
    let range = |at: u32| trace.meta.range_names[trace.ranges[at as usize].name as usize].clone();
    let found: Vec<_> = (trace.spans.iter())
        .map(|span| (span.rank, span.start_ns / 1000, range(span.launched.range)))
        .collect();
    let expected =
        [(0, 1300, "early 0"), (0, 1900, "later 0"), (1, 1300, "early 1"), (1, 1900, "later 1")];
    assert_eq!(found, expected.map(|(rank, start, name)| (rank, start, name.to_owned())));
}

#[test]
fn operators_and_calls_are_kept_beside_the_ranges_and_change_nothing_else() {
    let of = |list: &[String]| read(&events(list));
    let list = [
        host("user_annotation", "ProfilerStep#4", 1, (1000, 200)),
        call("cudaLaunchKernel", 1, (1150, 5), 1),
        gpu(1300, 1),
    ];
    let operators = [
        host("cpu_op", "aten::copy_", 2, (1005, 3)),
        host("cpu_op", "aten::narrow", 1, (1020, 30)),
        host("cpu_op", "aten::linear", 1, (1010, 60)),
    ];
    let (bare, trace) = (of(&list), of(&[&list[..], &operators[..]].concat()));
    assert_accounted(&trace);
    assert_eq!((&trace.spans, &trace.ranges), (&bare.spans, &bare.ranges));
    assert_eq!(trace.meta.range_names, bare.meta.range_names);
    let work = &trace.meta.host;
    let found: Vec<_> = (work.events.iter())
        .map(|event| (event.thread, event.depth, event.start_ns / 1000, work.name(event)))
        .collect();
    let expected = [
        (0, 0, 1010, Some("aten::linear")),
        (0, 1, 1020, Some("aten::narrow")),
        (0, 0, 1150, Some("cudaLaunchKernel")),
        (1, 0, 1005, Some("aten::copy_")),
    ];
    assert_eq!(found, expected);
    assert_eq!((work.left_out, work.name(&trace.ranges[0])), (0, None));
    // the calls of an export stand for launches
    let mut file = Vec::new();
    chrome(&trace, ExportedRanks::All, &mut file).unwrap();
    let exported = import_bytes("t.json", &file, small()).unwrap();
    assert_eq!(*exported.meta.host, HostWork::default());
}
