//! Launch details of one kernel in a Kineto file: grid and block from its own event, call and operator
//! from the linked events. The first pass finds the kernel, the second its launch; if no external id
//! links the operator, a third pass finds the innermost operator around the call.

use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::event::{EventClass, TraceEvent, times};
use super::json::{last_integer, unescape};
use super::open::metadata;
use super::split::{PIECE, Top, walk};
use crate::demangle::demangled;
use crate::import::input::InputFile;
use crate::import::{KernelLaunch, KernelQuery};
use base::error::Result;

/// Calls `each` with every event of the wanted classes: the event, the bytes it was parsed from, and its
/// own text. Skips unreadable events.
fn events(
    path: &Path,
    wanted: impl Fn(EventClass) -> bool,
    mut each: impl FnMut(&TraceEvent, &[u8], &[u8]),
) -> Result<Top> {
    let name = path.display().to_string();
    walk(&name, InputFile::from_path(path).unpacked()?, PIECE, &mut |cursor, _| {
        let (bytes, start) = (cursor.bytes, cursor.at);
        let mut whole = true;
        let event = TraceEvent::read(cursor, |event| {
            let class =
                event.category.map(EventClass::from_category).filter(|_| event.phase == Some(b"X"));
            whole = class.is_some_and(&wanted);
            whole
        })?;
        if whole && event.category.is_some() {
            each(&event, bytes, &bytes[start..cursor.at]);
        }
        Ok(())
    })
}

struct KernelEvent {
    /// Start on the file's own clock (ns).
    start_ns: i64,
    text: Vec<u8>,
    external: Option<i64>,
    correlation: Option<i64>,
}

/// Reads the launch details of a kernel; `None` if no file contains it. Returns an error if a file
/// cannot be read.
pub(super) fn kernel(files: &[PathBuf], wanted: &KernelQuery) -> Result<Option<KernelLaunch>> {
    let read: Vec<(Vec<KernelEvent>, Option<i64>)> =
        files.par_iter().map(|path| candidates(path, wanted)).collect::<Result<_>>()?;
    // files with a base time are relative to it; the trace is relative to the earliest base
    let first = read.iter().filter_map(|(_, base)| *base).min();
    for (path, (found, base)) in files.iter().zip(read) {
        let shift = base.zip(first).map_or(0, |(base, first)| base.saturating_sub(first));
        let own = wanted.time.0.saturating_sub(shift);
        if let Some(found) = found.into_iter().find(|found| found.start_ns == own) {
            return describe(path, &found).map(Some);
        }
    }
    Ok(None)
}

/// Kernels with the same name, duration and stream, and the file's base time.
fn candidates(path: &Path, wanted: &KernelQuery) -> Result<(Vec<KernelEvent>, Option<i64>)> {
    let length = wanted.time.1.saturating_sub(wanted.time.0);
    let mut found = Vec::new();
    let gpu = |class| matches!(class, EventClass::Gpu(_));
    let top = events(path, gpu, |event, bytes, text| {
        let same = |time: &(i64, i64)| time.1.saturating_sub(time.0) == length;
        let Some(time) = times(event).ok().filter(same) else { return };
        let Ok(arguments) = event.arguments(bytes) else { return };
        let stream = arguments.stream.unwrap_or(event.tid);
        if last_integer(stream) == Some(wanted.stream)
            && event.name.is_some_and(|name| demangled(unescape(name).0) == wanted.name)
        {
            found.push(KernelEvent {
                start_ns: time.0,
                text: text.to_vec(),
                external: arguments.external.and_then(last_integer),
                correlation: arguments.correlation.and_then(last_integer),
            });
        }
    })?;
    Ok((found, metadata(&top).base_ns))
}

struct Call {
    name: String,
    thread: (Vec<u8>, Vec<u8>),
    start_ns: i64,
}

fn describe(path: &Path, found: &KernelEvent) -> Result<KernelLaunch> {
    let value: serde_json::Value =
        serde_json::from_slice(&found.text).unwrap_or(serde_json::Value::Null);
    let three = |key: &str| -> Option<[i64; 3]> {
        let list = value["args"][key].as_array()?;
        let [x, y, z] = &list[..] else { return None };
        Some([x.as_i64()?, y.as_i64()?, z.as_i64()?])
    };
    let (mut call, mut operator): (Option<Call>, Option<String>) = (None, None);
    let name = |event: &TraceEvent| event.name.map(|name| unescape(name).0);
    events(
        path,
        |class| matches!(class, EventClass::Launch | EventClass::Operator),
        |event, bytes, _| {
            let Ok(arguments) = event.arguments(bytes) else { return };
            let number = |text: Option<&[u8]>| text.and_then(last_integer);
            match event.category.map(EventClass::from_category) {
                Some(EventClass::Launch) if call.is_none() => {
                    let same = number(arguments.correlation).filter(|n| Some(*n) == found.correlation);
                    if let (Some(_), Some(name), Ok((start_ns, _))) = (same, name(event), times(event)) {
                        let thread = (event.pid.to_vec(), event.tid.to_vec());
                        call = Some(Call { name, thread, start_ns });
                    }
                }
                Some(EventClass::Operator) if operator.is_none() => {
                    let same = number(arguments.external).filter(|n| Some(*n) == found.external);
                    operator = same.and_then(|_| name(event));
                }
                _ => {}
            }
        },
    )?;
    if let (None, Some(call)) = (&operator, &call) {
        operator = around(path, call)?;
    }
    Ok(KernelLaunch {
        grid: three("grid"),
        block: three("block"),
        correlation: found.correlation,
        call: call.map(|call| call.name),
        operator,
    })
}

/// Innermost operator on the call's thread around its start.
fn around(path: &Path, call: &Call) -> Result<Option<String>> {
    let mut inner: Option<(i64, String)> = None;
    events(
        path,
        |class| class == EventClass::Operator,
        |event, _, _| {
            let Ok((start, end)) = times(event) else { return };
            let covers = start <= call.start_ns && call.start_ns < end;
            let thread = (event.pid, event.tid) == (&call.thread.0[..], &call.thread.1[..]);
            if covers && thread && inner.as_ref().is_none_or(|(before, _)| start >= *before) {
                inner = event.name.map(|name| (start, unescape(name).0));
            }
        },
    )?;
    Ok(inner.map(|(_, name)| name))
}
