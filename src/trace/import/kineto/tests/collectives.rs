//! Arguments of collectives: on kernels, on operators, abbreviated, in any order.

use super::*;
use crate::rules::Rules;
use crate::{CollectiveInfo, ProcessGroup, Span};
use plan::Lane;

const NCCL: &str = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)";

/// A kernel with these arguments besides its stream.
fn of_kernel(name: &str, at: u32, arguments: &str) -> String {
    complete(["kernel", name], (0, 20), (at, 40), &format!(r#""stream": 20, "device": 0{arguments}"#))
}

/// An operator that carries a collective's arguments.
fn operator(at: u32, external: u32, arguments: &str) -> String {
    let arguments = format!(r#""External id": {external}{arguments}"#);
    complete(["cpu_op", "record_param_comms"], (9, 5), (at, 30), &arguments)
}

fn all_reduce(group: &str, ranks: &str) -> String {
    format!(
        r#", "Collective name": "allreduce", "In msg nelems": 8192, "Out msg nelems": 8192, "Group size": 2, "dtype": "BFloat16", "Process Group Name": "{group}", "Process Group Description": "TP", "Process Group Ranks": "{ranks}""#
    )
}

fn file(top: &str, list: &[String]) -> Trace {
    read(&format!("{{{top}\"traceEvents\": {}}}", events(list)))
}

/// Known properties of each span's collective, in order of time, and its group.
fn collectives(trace: &Trace) -> Vec<Option<(CollectiveInfo, Option<&ProcessGroup>)>> {
    let of = |span: &Span| {
        let info = trace.operations[span.operation as usize].collective.clone()?;
        let group = info.group.map(|group| &trace.meta.groups[group as usize]);
        Some((info, group))
    };
    trace.spans.iter().map(of).collect()
}

#[test]
fn arguments_on_kernels_are_read() {
    let events = [
        of_kernel(NCCL, 10, &all_reduce("1", "[0, 1]")),
        of_kernel("gemm", 60, ""),
        of_kernel(NCCL, 110, &format!(r#"{}, "Seq": 7"#, all_reduce("1", "[0, 1]"))),
        // another group of that name, and another size
        of_kernel(NCCL, 160, &all_reduce("1", "[2, 3]")),
        of_kernel(NCCL, 210, &all_reduce("1", "[0, 1]").replace("8192", "4096")),
    ];
    let trace = file("", &events);
    let found = collectives(&trace);
    let (info, group) = found[0].as_ref().unwrap();
    assert_eq!((info.name.as_str(), info.dtype.as_str()), ("allreduce", "BFloat16"));
    assert_eq!((info.in_elements, info.message_bytes), (Some(8192), Some(16_384)));
    let expected =
        ProcessGroup { name: "1".into(), description: "TP".into(), size: 2, ranks: vec![0, 1] };
    assert_eq!(*group, Some(&expected));
    assert_eq!(found[1], None);
    assert_eq!(found[2], found[0]);
    assert_eq!(found[3].as_ref().unwrap().1.unwrap().ranks, [2, 3]);
    assert_eq!(found[4].as_ref().unwrap().0.message_bytes, Some(8192));
    assert_eq!(trace.meta.groups.len(), 2);
    let names = trace.operations.iter().filter(|operation| operation.name == NCCL);
    assert_eq!(names.count(), 3, "three operations of one name");
    let sequences: Vec<u32> = trace.spans.iter().map(|span| span.sequence).collect();
    assert_eq!(sequences[2], 7);
    assert!([0, 1, 3].iter().all(|at| sequences[*at] == Span::NO_SEQUENCE));
    assert_accounted(&trace);
}

#[test]
fn operators_give_their_arguments_to_the_kernels_that_they_launch() {
    let linked = r#", "correlation": 1, "External id": 44"#;
    let by_time = r#", "correlation": 2"#;
    let events = [
        operator(0, 44, &format!(r#"{}, "Seq": 3, "Rank": 1"#, all_reduce("4", "[4, 5]"))),
        operator(100, 45, &all_reduce("5", "[4, 6]")),
        complete(["cuda_runtime", "cudaLaunchKernelExC"], (9, 5), (105, 3), r#""correlation": 2"#),
        of_kernel(NCCL, 20, linked),
        // what else the operator launches is no collective
        of_kernel("void at::native::copy_kernel(int)", 65, linked),
        of_kernel(NCCL, 120, by_time),
        of_kernel(NCCL, 170, ""),
    ];
    let mut reversed = events.clone();
    reversed.reverse();
    for order in [events, reversed] {
        let trace = file("", &order);
        let found = collectives(&trace);
        let ranks: Vec<_> =
            found.iter().map(|of| of.as_ref().map(|(_, group)| &group.unwrap().ranks[..])).collect();
        assert_eq!(ranks, [Some(&[4, 5][..]), None, Some(&[4, 6]), None]);
        assert_eq!(trace.spans[0].sequence, 3);
        assert_eq!(import_report(&trace).used["operator"], 2);
        assert_accounted(&trace);
    }
}

#[test]
fn a_launch_within_operators_of_two_threads_gets_nobodys_arguments() {
    let events = [
        operator(100, 45, &all_reduce("5", "[4, 6]")),
        operator(101, 46, &all_reduce("6", "[4, 7]")),
        complete(["cuda_runtime", "cudaLaunchKernel"], (9, 5), (105, 3), r#""correlation": 2"#),
        of_kernel(NCCL, 120, r#", "correlation": 2"#),
    ];
    assert_eq!(collectives(&file("", &events)), [None]);
}

#[test]
fn ranks_are_known_where_their_list_is_abbreviated() {
    let group = |more: &str| {
        format!(
            r#", "Collective name": "_allgather_base", "In msg nelems": 4, "Out msg nelems": 16, "Group size": 4, "dtype": "Float", "Process Group Name": "7"{more}"#
        )
    };
    let top = r#""distributedInfo": {"backend": "nccl", "rank": 2, "world_size": 8, "pg_config": [{"pg_name": "7", "pg_desc": "x", "pg_size": 4, "ranks": [7, 5, 3, 2]}]}, "#;
    for (top, more, ranks) in [
        ("", r#", "Process Group Ranks": "[6, 0, 2, 4]""#, &[0, 2, 4, 6][..]),
        ("", r#", "Process Group Ranks": [0, 2, 4, 6]"#, &[0, 2, 4, 6]),
        (
            "",
            r#", "Process Group Ranks": "[0, ..., 6]", "Global rank start": 0, "Global rank stride": 2"#,
            &[0, 2, 4, 6],
        ),
        (
            top,
            r#", "Process Group Ranks": "[2, ..., 7]", "Global rank start": 2, "Global rank stride": 0"#,
            &[2, 3, 5, 7],
        ),
        (top, r#", "Process Group Ranks": "[]""#, &[2, 3, 5, 7]),
        ("", r#", "Process Group Ranks": "[0, ..., 6]""#, &[]),
        // a list that does not fit the size is not believed
        ("", r#", "Process Group Ranks": "[0, 1]""#, &[]),
    ] {
        let trace = file(top, &[of_kernel("ncclDevKernel_AllGather_RING_LL(x)", 10, &group(more))]);
        let found = collectives(&trace);
        let (info, of) = found[0].as_ref().unwrap();
        assert_eq!((of.unwrap().size, &of.unwrap().ranks[..]), (4, ranks), "{more}");
        assert_eq!(info.message_bytes, Some(64), "what a rank gets out");
    }
}

#[test]
fn peers_of_sends_and_receives_are_read() {
    let named = |name: &str| format!(r#", "Collective name": {name}, "Group size": 4"#);
    let events = [
        of_kernel("ncclDevKernel_SendRecv(x)", 10, &named(r#""send", "Dst Rank": 3"#)),
        of_kernel("ncclDevKernel_SendRecv(x)", 60, &named(r#""recv", "Src Rank": 2"#)),
        of_kernel("ncclDevKernel_SendRecv(x)", 110, &named(r#""send""#)),
    ];
    let trace = file("", &events);
    let peers: Vec<Option<u32>> =
        collectives(&trace).into_iter().map(|found| found.unwrap().0.peer).collect();
    assert_eq!(peers, [Some(3), Some(2), None]);
}

#[test]
fn arguments_decide_what_a_generic_kernel_is() {
    let named = |name: &str| format!(r#", "Collective name": "{name}", "Group size": 8"#);
    let events = [
        of_kernel("ncclDevKernel_Generic(x)", 10, &named("allreduce")),
        of_kernel("ncclDevKernel_SendRecv(x)", 60, &named("all_to_allv")),
        of_kernel("a_vendors_collective_kernel", 110, &named("_reduce_scatter_base")),
        of_kernel("void at::native::copy_kernel(int)", 160, &named("allreduce")),
        of_kernel("ncclDevKernel_Generic(x)", 210, &named("wait")),
    ];
    let kinds = |rules: &str| {
        let mut trace = file("", &events);
        Rules::load(rules).unwrap().classify(&mut trace);
        trace.spans.sort_by_key(|span| span.start_ns);
        let kind = |span: &Span| {
            (span.lane == Lane::Comm).then(|| trace.operations[span.operation as usize].kind.to_string())
        };
        trace.spans.iter().map(kind).map(|kind| kind.unwrap_or_default()).collect::<Vec<_>>()
    };
    assert_eq!(kinds("default"), ["all_reduce", "all_to_all", "reduce_scatter", "", "collective"]);
    assert_eq!(
        kinds("nccl-name"),
        ["all_reduce", "all_to_all", "", "", "collective"],
        "names alone decide"
    );
}
