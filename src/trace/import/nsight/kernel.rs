//! Launch details of one kernel in an Nsight Systems export: grid and block from its row, the host call
//! by correlation id, and the innermost NVTX range around the call.

use std::path::Path;

use super::database::{Database, DatabaseFile};
use super::gpu::KERNELS;
use super::host::{self, is_range, process, without_numbers};
use crate::import::input::Input;
use crate::import::kernel::{Kernel, Wanted};
use base::error::Result;

type Found = (Kernel, Option<i64>);

/// Reads the launch details of a kernel; `None` if the export does not contain it. Returns an error if
/// the file is not a readable database.
pub(super) fn kernel(path: &Path, wanted: &Wanted) -> Result<Option<Kernel>> {
    let db = Database::open(&DatabaseFile::of(&Input::of(path))?)?;
    let Some((mut kernel, own)) = row(&db, wanted) else { return Ok(None) };
    let mut call: Option<(i64, i64, Option<i64>)> = None;
    if db.has(host::CALLS) {
        let columns = ["start", "globalTid", "correlationId", "nameId"];
        db.rows(host::CALLS, &columns, |row| {
            let (Some(start), Some(thread)) = (row.integer(0), row.integer(1)) else { return };
            let same = row.integer(2) == kernel.correlation && kernel.correlation > Some(0);
            // outermost of nested calls
            let first = call.is_none_or(|(before, ..)| start < before);
            if same && own.is_none_or(|own| own == process(thread)) && first {
                call = Some((start, thread, row.integer(3)));
            }
        });
    }
    if let Some((start, thread, name)) = call {
        kernel.call = name.and_then(|id| db.string(id));
        kernel.operator = range(&db, start, thread);
    }
    Ok(Some(kernel))
}

fn row(db: &Database, wanted: &Wanted) -> Option<Found> {
    if !db.has(KERNELS) {
        return None;
    }
    let columns = [
        "start",
        "end",
        "streamId",
        "correlationId",
        "globalPid",
        "gridX",
        "gridY",
        "gridZ",
        "blockX",
        "blockY",
        "blockZ",
    ];
    let mut found: Option<Found> = None;
    db.rows(KERNELS, &columns, |row| {
        let time = row.integer(0).zip(row.integer(1));
        if time == Some(wanted.time) && row.integer(2) == Some(wanted.stream) {
            let three = |first: usize| {
                Some([row.integer(first)?, row.integer(first + 1)?, row.integer(first + 2)?])
            };
            let kernel = Kernel {
                grid: three(5),
                block: three(8),
                correlation: row.integer(3),
                ..Kernel::default()
            };
            found = Some((kernel, row.integer(4).map(process)));
        }
    });
    found
}

fn range(db: &Database, time: i64, thread: i64) -> Option<String> {
    if !db.has(host::NVTX) {
        return None;
    }
    let columns = ["start", "end", "eventType", "text", "textId", "globalTid"];
    let mut inner: Option<(i64, String)> = None;
    db.rows(host::NVTX, &columns, |row| {
        let Some(start) = row.integer(0) else { return };
        let covers = start <= time && row.integer(1).is_none_or(|end| time < end);
        let of_thread = row.integer(5) == Some(thread) && row.integer(2).is_none_or(is_range);
        if covers && of_thread && inner.as_ref().is_none_or(|(before, _)| start >= *before) {
            let text = row.text(3).map(str::to_owned);
            let text = text.or_else(|| row.integer(4).and_then(|id| db.string(id)));
            inner = text.map(|text| (start, without_numbers(&text).to_owned())).or(inner.take());
        }
    });
    inner.map(|(_, name)| name)
}
