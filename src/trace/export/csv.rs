//! CSV export: one row per span, with names instead of indices.

use std::borrow::Cow;
use std::io::{self, Write};

use crate::{NO_STEP, OperationInfo, Trace};
use table::render::write_csv;

/// Writes spans as CSV (RFC 4180, but with plain line feeds); times in ns. With several traces, the
/// first column is the trace's name. Returns an error only if writing to `out` fails.
pub fn csv(traces: &[(&str, &Trace)], out: &mut impl Write) -> io::Result<()> {
    let several = traces.len() > 1;
    let header = [
        "trace",
        "sample",
        "phase",
        "step",
        "rank",
        "lane",
        "process",
        "device",
        "stream",
        "operation",
        "kind",
        "module",
        "layer",
        "ready_ns",
        "start_ns",
        "end_ns",
        "last_arrival_ns",
        "provenance",
    ];
    let number = |number: i64| Cow::Owned(number.to_string());
    let optional = |of: Option<i64>| of.map_or(Cow::Borrowed(""), number);
    let spans =
        traces.iter().flat_map(|(name, trace)| trace.spans.iter().map(move |span| (name, trace, span)));
    let rows = spans.map(|(name, trace, span)| {
        let stream = trace.meta.streams.get(usize::from(span.stream));
        let operation = trace.operations.get(span.operation as usize);
        let text = |of: fn(&OperationInfo) -> &str| Cow::Borrowed(operation.map_or("", of));
        let row = [
            Cow::Borrowed(*name),
            number(span.sample.into()),
            span.phase.as_str().into(),
            optional(Some(span.step).filter(|step| *step != NO_STEP).map(i64::from)),
            number(span.rank.into()),
            span.lane.as_str().into(),
            optional(stream.and_then(|s| s.process)),
            optional(stream.and_then(|s| s.device)),
            optional(stream.map(|s| s.id)),
            text(|o| &o.name),
            text(|o| &o.kind),
            text(|o| &o.module),
            optional(operation.and_then(|o| o.layer.map(i64::from))),
            number(span.ready_ns),
            number(span.start_ns),
            number(span.end_ns),
            optional(Some(span.last_arrival_ns).filter(|ns| *ns != -1)),
            trace.meta.provenance.as_str().into(),
        ];
        row.into_iter().skip(usize::from(!several))
    });
    write_csv(out, header.into_iter().skip(usize::from(!several)), rows)
}
