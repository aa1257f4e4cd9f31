//! Records as CUPTI lays them out, what they are put together to, and what happens without a driver.

use std::collections::HashMap;
use std::mem::offset_of;

use cudarc::cupti::sys;

use super::*;
use crate::cuda::timing::{ClockMapping, Skeleton, Tie};
use inject::records::{self, ActivityRecord, RecordLayout, read};
use plan::Lane;

macro_rules! layout {
    ($record:ty) => {
        RecordLayout {
            start: offset_of!($record, start),
            end: offset_of!($record, end),
            device: offset_of!($record, deviceId),
            context: offset_of!($record, contextId),
            stream: offset_of!($record, streamId),
            correlation: offset_of!($record, correlationId),
            graph_node: offset_of!($record, graphNodeId),
            graph: offset_of!($record, graphId),
        }
    };
}

/// The recorder's offsets are NVIDIA's, and the same in all versions of a record.
#[test]
fn fields_stay_where_they_are_from_version_to_version() {
    assert_eq!(records::KERNEL, layout!(sys::CUpti_ActivityKernel9));
    assert_eq!(records::KERNEL, layout!(sys::CUpti_ActivityKernel10));
    assert_eq!(records::KERNEL_NAME, offset_of!(sys::CUpti_ActivityKernel10, name));
    assert_eq!(records::MEMCPY, layout!(sys::CUpti_ActivityMemcpy5));
    assert_eq!(records::MEMCPY, layout!(sys::CUpti_ActivityMemcpy6));
    assert_eq!(records::MEMSET, layout!(sys::CUpti_ActivityMemset4));
    for (ours, theirs) in [
        (records::COPY_KIND, offset_of!(sys::CUpti_ActivityMemcpy6, copyKind)),
        (records::BYTES, offset_of!(sys::CUpti_ActivityMemcpy6, bytes)),
        (records::BYTES, offset_of!(sys::CUpti_ActivityMemset4, bytes)),
        (records::CALL_ID, offset_of!(sys::CUpti_ActivityAPI, cbid)),
        (records::CALL_START, offset_of!(sys::CUpti_ActivityAPI, start)),
        (records::CALL_END, offset_of!(sys::CUpti_ActivityAPI, end)),
        (records::CALL_THREAD, offset_of!(sys::CUpti_ActivityAPI, threadId)),
        (records::CALL_CORRELATION, offset_of!(sys::CUpti_ActivityAPI, correlationId)),
        (records::EXTERNAL_ID, offset_of!(sys::CUpti_ActivityExternalCorrelation, externalId)),
        (
            records::EXTERNAL_CORRELATION_ID,
            offset_of!(sys::CUpti_ActivityExternalCorrelation, correlationId),
        ),
    ] {
        assert_eq!(ours, theirs);
    }
}

#[test]
fn records_are_read_whatever_their_alignment() {
    // SAFETY: all-zero bytes are a value of these plain records.
    let mut kernel: sys::CUpti_ActivityKernel10 = unsafe { std::mem::zeroed() };
    kernel.kind = sys::CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    (kernel.start, kernel.end, kernel.deviceId, kernel.streamId) = (1_000, 2_500, 3, 7);
    (kernel.correlationId, kernel.graphNodeId, kernel.name) = (42, 99, c"rms_norm".as_ptr());
    let size = size_of_val(&kernel);
    let mut bytes = vec![0u8; size + 1];
    // SAFETY: both are so many bytes long; the record is plain memory.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const kernel).cast::<u8>(), bytes.as_mut_ptr().add(1), size);
    }
    // SAFETY: a whole record lies there.
    let ActivityRecord::Work(parsed) = (unsafe { read(bytes.as_ptr().add(1)) }) else {
        panic!("no kernel")
    };
    let wanted = Activity {
        is_kernel: true,
        start_ns: 1_000,
        end_ns: 2_500,
        device: 3,
        stream: 7,
        correlation: 42,
        graph_node: 99,
        name: Some("rms_norm".into()),
    };
    assert_eq!(Activity::from(parsed), wanted);
    let external = sys::CUpti_ActivityExternalCorrelation {
        kind: sys::CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
        externalKind: sys::CUpti_ExternalCorrelationKind::CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0,
        externalId: u64::MAX - 1,
        correlationId: 17,
        reserved: 0,
    };
    // SAFETY: a whole record.
    let parsed = unsafe { read((&raw const external).cast()) };
    assert_eq!(parsed, ActivityRecord::External { id: u64::MAX - 1, correlation: 17 });
    assert_eq!(
        sys::CUpti_ExternalCorrelationKind::CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0 as u32,
        3,
        "the kind that ids are pushed as"
    );
}

#[test]
fn ids_come_back_as_they_were_pushed() {
    for step in [0, 1, 511, (1 << 24) - 1] {
        for label in [
            None,
            Some(OperationLabel { rank: 0, operation: 0 }),
            Some(OperationLabel { rank: 255, operation: 4_000 }),
        ] {
            let step = StepId(step);
            assert_eq!(StepId::parse(step.external(label)), (step, label));
        }
    }
}

#[test]
fn what_is_launched_belongs_to_what_was_said_last_until_that_ends() {
    let (one, other) =
        (OperationLabel { rank: 1, operation: 7 }, OperationLabel { rank: 1, operation: 8 });
    let said = super::CorrelationGuard::said;
    // captured, or outside of a recorded step
    let capturing = operation(one);
    assert_eq!(said(), (None, Some(one)));
    drop(capturing);
    assert_eq!(said(), (None, None));
    {
        let _step = step(StepId(3));
        assert_eq!(said(), (Some(StepId(3)), None));
        for label in [one, other] {
            let _launched = operation(label);
            assert_eq!(said(), (Some(StepId(3)), Some(label)));
        }
        assert_eq!(said(), (Some(StepId(3)), None));
    }
    assert_eq!(said(), (None, None));
}

fn activity(correlation: u32, graph_node: u64, start_ns: u64, end_ns: u64) -> Activity {
    Activity {
        is_kernel: true,
        start_ns,
        end_ns,
        device: 0,
        stream: 7,
        correlation,
        graph_node,
        name: Some(format!("kernel{correlation}")),
    }
}

#[test]
fn kernels_of_an_operation_are_one_span_and_what_is_missing_is_counted() {
    let op = |operation| OperationLabel { rank: 0, operation };
    let tie = Tie { at_ns: 50_000, uncertainty_ns: 10 };
    let recording = CuptiRecording {
        activities: vec![
            // eager prefill: two kernels of operation 0
            activity(1, 0, 1_100, 1_200),
            activity(1, 0, 1_250, 1_300),
            // a replay: nodes 5 and 6, in whatever order
            activity(2, 6, 2_400, 2_600),
            activity(2, 5, 2_000, 2_300),
            // nobody's
            activity(3, 0, 3_000, 3_100),
            // of no step, and not expected to be
            Activity { is_kernel: false, name: None, ..activity(9, 0, 500, 600) },
            activity(2, 77, 3_000, 3_100),
            // no room for its times
            activity(2, 5, 0, 0),
        ],
        external: HashMap::from([(1, StepId(0).external(Some(op(0)))), (2, StepId(4).external(None))]),
        nodes: HashMap::from([(5, op(0)), (6, op(1))]),
        dropped: 9,
        timeline: ClockMapping::between(tie, tie, 0),
        zero: 1_000,
    };
    let assembled = assemble(&recording, |_| vec![op(0), op(1)]);
    let span = |start_ns, end_ns| OperationSpan { start_ns, end_ns };
    assert_eq!(assembled.steps[&StepId(0)], [(op(0), span(50_100, 50_300))].into());
    let replay = &assembled.steps[&StepId(4)];
    assert_eq!(*replay, [(op(0), span(51_000, 51_300)), (op(1), span(51_400, 51_600))].into());
    let report = &assembled.report;
    assert_eq!((report.activities, report.unassigned, report.untimed), (8, 2, 1));
    assert_eq!((report.dropped, report.missing), (9, 1));
    let warning = report.warning().unwrap();
    assert!(warning.contains("2 belong to no operation (the first: kernel3)"), "{warning}");
    assert!(warning.contains("9 records were dropped, 1 operations have no record"), "{warning}");
    assert_eq!(CuptiReport::default().warning(), None);
}

#[test]
fn early_starters_count_from_the_end_of_those_they_wait_for() {
    let skeleton = Skeleton {
        lanes: vec![Lane::Compute, Lane::Compute, Lane::Comm, Lane::Compute],
        reads_from: vec![vec![], vec![0], vec![1], vec![1, 2]],
    };
    let span = |start_ns, end_ns| Some(OperationSpan { start_ns, end_ns });
    let found = [span(100, 200), span(190, 300), None, span(310, 400)];
    let (length, times) = operation_times(&skeleton, &found, 90);
    assert_eq!((length, times[0], times[2]), (310, Some([90, 100, 200]), None));
    assert_eq!(times[1], Some([200, 200, 300]), "started early to wait");
    assert_eq!(times[3], Some([300, 310, 400]), "of what it reads, what there is a record of");
}

#[test]
fn without_a_driver_a_recording_is_an_error_and_leaves_nothing_on() {
    for _ in 0..2 {
        match CuptiSession::start(|| 0) {
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("CUPTI"), "{text}");
                assert!(!text.contains("on already"), "what failed is off again: {text}");
            }
            // a machine with a driver and CUPTI: nothing was launched
            Ok(session) => {
                let recording = session.finish(|| 0).unwrap();
                assert!(recording.activities.is_empty());
            }
        }
    }
    // saying what launches belong to does no harm without a recording
    let outer = step(StepId(1));
    drop(operation(OperationLabel { rank: 0, operation: 3 }));
    drop(outer);
}
