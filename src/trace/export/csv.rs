//! A row a span, with names for everything.

use std::io::{self, Write};

use crate::text::csv_field;
use crate::trace::{Stream, Trace};

/// Writes the spans as CSV (RFC 4180, with plain line feeds); times in nanoseconds.
pub fn csv(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "sample,phase,step,rank,lane,process,device,stream,operation,kind,module,layer,\
         ready_ns,start_ns,end_ns,last_arrival_ns,provenance"
    )?;
    let optional = |number: Option<i64>| number.map(|n| n.to_string()).unwrap_or_default();
    let streams: Vec<String> = (trace.meta.streams.iter())
        .map(|Stream { process, device, id, .. }| {
            format!("{},{},{id}", optional(*process), optional(*device))
        })
        .collect();
    let operations: Vec<String> = (trace.operations.iter())
        .map(|o| {
            let layer = optional(o.layer.map(i64::from));
            format!("{},{},{},{layer}", csv_field(&o.name), csv_field(&o.kind), csv_field(&o.module))
        })
        .collect();
    for span in &trace.spans {
        let arrival = Some(span.last_arrival_ns).filter(|ns| *ns != -1);
        writeln!(
            out,
            "{},{},{},{},{},{},{},{},{},{},{},{}",
            span.sample,
            span.phase.as_str(),
            span.step,
            span.rank,
            span.lane.as_str(),
            streams.get(usize::from(span.stream)).map_or(",,", String::as_str),
            operations.get(span.operation as usize).map_or(",,,", String::as_str),
            span.ready_ns,
            span.start_ns,
            span.end_ns,
            optional(arrival),
            trace.meta.provenance
        )?;
    }
    Ok(())
}
