//! What the generator meant is what comes out, however it was written.

use proptest::prelude::*;

use super::*;
use crate::testing::kineto::Times;

fn style() -> impl Strategy<Value = Style> {
    let times = prop::sample::select(vec![Times::Fraction, Times::Text, Times::Exponent, Times::Excess]);
    (any::<[bool; 5]>(), times).prop_map(|([bare, spaced, shuffled, escaped, events_first], times)| {
        Style { bare, spaced, shuffled, escaped, times, events_first }
    })
}

#[test]
fn a_trace_reads_as_it_was_meant() {
    let generated = generated(Style::default());
    let trace = read(&generated.json);
    assert_eq!(described(&trace), truth(&generated));
    let report = import_report(&trace);
    assert_eq!(report.events, generated.ends.len() as u64);
    assert_eq!(report.used["range"], generated.ranges.len() as u64);
    assert_eq!(report.used["launch"], generated.spans.len() as u64);
    assert_eq!(report.ignored["metadata (ph M)"], 2);
    assert_eq!(report.warnings, [""; 0]);
    assert_accounted(&trace);
    assert_eq!(trace.meta.environment["gpus"][0]["name"], "NVIDIA H100 80GB HBM3");
    assert_eq!(trace.meta.ranks, 1);
}

#[test]
fn annotations_nest() {
    let generated = generated(Style::default());
    let trace = read(&generated.json);
    let mut ranges: Vec<_> = trace
        .ranges
        .iter()
        .map(|range| (trace.meta.range_names[range.name as usize].clone(), range.start_ns, range.end_ns))
        .collect();
    let mut expected = generated.ranges.clone();
    ranges.sort();
    expected.sort();
    assert_eq!(ranges, expected);
    for range in &trace.ranges {
        let step = trace.meta.range_names[range.name as usize].starts_with("ProfilerStep#");
        assert_eq!(range.depth, u16::from(!step), "{range:?}");
    }
}

#[test]
fn operators_are_used_and_no_ranges() {
    let generated = generated(Style::default());
    let trace = read(&generated.json);
    let written = generated.json.matches("cpu_op").count() as u64;
    assert_eq!(import_report(&trace).used["operator"], written);
    let name = |span: &crate::Span| {
        trace.meta.range_names.get(span.launched.operator as usize).map_or("", String::as_str)
    };
    assert!(
        trace
            .spans
            .iter()
            .all(|span| matches!(name(span), "cudaLaunchKernel") || name(span).contains("::"))
    );
    assert!(trace.spans.iter().any(|span| name(span).contains("::")));
}

#[test]
fn threads_and_pieces_change_nothing() {
    let generated = generate(
        Shape { events: 3000, ..Shape::default() },
        Style { escaped: true, ..Style::default() },
    );
    let one = read(&generated.json);
    for (parsers, piece) in [(1, 64 << 10), (2, 1), (3, 10_000), (2, 1 << 20)] {
        let options = KinetoOptions { parsers, piece };
        let other = import_bytes("t.json", generated.json.as_bytes(), options).unwrap();
        assert!(one.spans.len() > 200);
        assert_eq!(described(&other), described(&one), "{parsers} parsers, {piece} bytes");
        assert_eq!(other.ranges, one.ranges);
        assert_eq!(other.operations, one.operations);
        assert_eq!(other.meta.import, one.meta.import);
    }
}

#[test]
fn spans_are_sorted_by_phase_step_rank_and_start() {
    let trace = read(&generated(Style::default()).json);
    assert!(trace.spans.is_sorted_by_key(|span| (span.phase, span.step, span.rank, span.start_ns)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_way_of_writing_reads_the_same(
        style in style(),
        seed in any::<u64>(),
        streams in 1..4u64,
        piece in 1..5000usize,
    ) {
        let shape = Shape { events: 120, streams, seed, ..Shape::default() };
        let generated = generate(shape, style);
        let options = KinetoOptions { parsers: 0, piece };
        let trace = import_bytes("t.json", generated.json.as_bytes(), options).unwrap();
        prop_assert_eq!(described(&trace), truth(&generated));
        prop_assert_eq!(import_report(&trace).warnings.len(), 0, "{:?}", import_report(&trace).warnings);
    }

    #[test]
    fn a_truncated_trace_reads_up_to_the_break(style in style(), share in 0.0..1.0f64) {
        let generated = generate(Shape { events: 120, ..Shape::default() }, style);
        let mut cut = (generated.json.len() as f64 * share) as usize;
        while !generated.json.is_char_boundary(cut) {
            cut -= 1;
        }
        let bytes = &generated.json.as_bytes()[..cut];
        let whole = generated.ends.iter().filter(|end| **end <= cut).count();
        match import_bytes("t.json", bytes, small()) {
            Ok(trace) => {
                let report = import_report(&trace);
                prop_assert_eq!(report.events, whole as u64);
                let mut expected: Vec<_> = generated
                    .spans
                    .iter()
                    .filter(|(end, _)| *end <= cut)
                    .map(|(_, span)| (span.start_ns, span.end_ns, span.name.clone()))
                    .collect();
                expected.sort();
                let mut read: Vec<_> = described(&trace)
                    .into_iter()
                    .map(|span| (span.start_ns, span.end_ns, span.name))
                    .collect();
                read.sort();
                prop_assert_eq!(read, expected);
                let break_said = report.warnings.iter().any(|said| said.contains("the file ends at byte"));
                prop_assert!(break_said, "{:?}", report.warnings);
            }
            // before the events there is nothing to read
            Err(error) => {
                prop_assert_eq!(whole, 0);
                prop_assert!(error.to_string().contains("t.json: the file"), "{error}");
            }
        }
    }

    #[test]
    fn damaged_traces_never_panic_and_account_for_every_event(
        seed in any::<u64>(),
        style in style(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), 0..5u8, any::<u8>()), 1..8),
    ) {
        let mut bytes = generate(Shape { events: 60, seed, ..Shape::default() }, style).json.into_bytes();
        for (place, what, byte) in damage {
            let at = place.index(bytes.len());
            let structural = br#""\{}[],:0-"#;
            match what {
                0 => bytes[at] = byte,
                1 => bytes[at] = structural[byte as usize % structural.len()],
                2 => drop(bytes.remove(at)),
                3 => bytes.insert(at, structural[byte as usize % structural.len()]),
                _ => {
                    let end = (at + byte as usize * 4).min(bytes.len());
                    let part = bytes[at..end].to_vec();
                    bytes.splice(at..at, part);
                }
            }
        }
        if let Ok(trace) = import_bytes("t.json", &bytes, small()) {
            assert_accounted(&trace);
            let pieces = KinetoOptions { piece: 64, ..small() };
            let again = import_bytes("t.json", &bytes, pieces).unwrap();
            prop_assert_eq!(&again.spans, &trace.spans);
            for span in &trace.spans {
                prop_assert!(span.end_ns >= span.start_ns && span.rank < trace.meta.ranks);
                prop_assert!((span.operation as usize) < trace.operations.len());
                prop_assert!((span.stream as usize) < trace.meta.streams.len());
            }
            for range in &trace.ranges {
                prop_assert!((range.name as usize) < trace.meta.range_names.len());
            }
        }
    }
}
