//! Named ranges and layers of traces made by hand.

use super::*;
use crate::plan::Lane;
use crate::study::analysis::testing::{span, trace};
use crate::study::analysis::trace_report;
use crate::trace::overlap::Selection;
use crate::trace::{Range, Span, Trace};

fn named(spans: Vec<Span>, ranges: &[(&str, u32, i64, i64)]) -> Trace {
    let mut trace = trace(spans);
    trace.operations.iter_mut().for_each(|operation| operation.layer = None);
    for &(name, rank, start_ns, end_ns) in ranges {
        let names = &mut trace.meta.range_names;
        let at = names.iter().position(|n| n == name).unwrap_or(names.len());
        if at == names.len() {
            names.push(name.into());
        }
        trace.ranges.push(Range { rank, thread: 0, depth: 0, name: at as u32, start_ns, end_ns });
    }
    trace
}

#[test]
fn ranges_count_what_the_device_did_in_their_time() {
    let spans = vec![
        span(0, Lane::Compute, 0, 4_000),
        span(0, Lane::Comm, 3_000, 6_000),
        span(1, Lane::Compute, 0, 2_000),
    ];
    // The nested range of the same name counts once, as time; rank 1 has a shorter one.
    let ranges =
        [("forward", 0, 1_000, 8_000), ("forward", 0, 2_000, 3_000), ("forward", 1, 1_000, 2_000)];
    let rows = trace_report(&named(spans, &ranges), &Selection::default()).ranges;
    let row = &rows[0];
    assert_eq!((row.name.as_str(), row.count), ("forward", 3));
    assert_eq!((row.time_us, row.busy_us), (4.0, 3.0), "averaged over two ranks");
    assert_eq!((row.compute_us, row.comm_us, row.exposed_us), (2.0, 1.5, 1.0));
}

#[test]
fn a_window_cuts_ranges_too() {
    let spans = vec![span(0, Lane::Compute, 0, 10_000)];
    let trace = named(spans, &[("a", 0, 1_000, 9_000)]);
    let window = Selection { from_ns: Some(2_000), to_ns: Some(5_000), ..Selection::default() };
    let rows = trace_report(&trace, &window).ranges;
    assert_eq!((rows[0].time_us, rows[0].busy_us), (3.0, 3.0));
}

#[test]
fn a_step_has_the_ranges_of_its_time() {
    let spans =
        vec![span(0, Lane::Compute, 0, 1_000), Span { step: 1, ..span(0, Lane::Compute, 2_000, 3_000) }];
    let trace = named(spans, &[("early", 0, 0, 1_500), ("late", 0, 2_500, 4_000)]);
    let step = Selection { step: Some(1), ..Selection::default() };
    let rows = trace_report(&trace, &step).ranges;
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].name.as_str(), rows[0].time_us, rows[0].busy_us), ("late", 0.5, 0.5));
}

#[test]
fn layers_come_from_names_where_operations_do_not_tell() {
    let spans = vec![span(0, Lane::Compute, 0, 3_000), span(0, Lane::Comm, 2_000, 6_000)];
    let ranges =
        [("model.layers.1.mlp", 0, 0, 4_000), ("layers.1.attn", 0, 3_000, 5_000), ("loss", 0, 0, 9_000)];
    let mut trace = named(spans, &ranges);
    let layers = trace_report(&trace, &Selection::default()).layers;
    assert_eq!(layers.len(), 1);
    assert_eq!((layers[0].layer, layers[0].from), (Some(1), "ranges"));
    assert_eq!((layers[0].compute_us, layers[0].comm_us, layers[0].exposed_us), (3.0, 3.0, 2.0));
    // Operations that know better go first.
    trace.operations[1].layer = Some(7);
    let layers = trace_report(&trace, &Selection::default()).layers;
    assert_eq!((layers[0].layer, layers[0].comm_us, layers[0].exposed_us), (Some(7), 4.0, 3.0));
    assert_eq!((layers[1].layer, layers[1].compute_us), (None, 3.0));
}

#[test]
fn names_tell_layers() {
    for (name, layer) in [
        ("model.layers.12.mlp.down_proj", Some(12)),
        ("nn.Module: LlamaDecoderLayer_7", Some(7)),
        ("layer 3", Some(3)),
        ("Layer3", Some(3)),
        ("transformer.h.31.attn", Some(31)),
        ("blocks[4]", Some(4)),
        ("decode/L12/mlp/down", Some(12)),
        ("layer_norm", None),
        ("LayerNorm.layers.5", Some(5)),
        ("aten::native_layer_norm", None),
        ("L/x", None),
        ("layers.99999999999", None),
        ("große Schicht 5", None),
        ("", None),
    ] {
        assert_eq!(layer_of(name), layer, "{name}");
    }
}
