//! Exports shaped as Nsight Systems writes them, with known content.

use std::path::PathBuf;

use rusqlite::{Connection, params};

/// Serialized id of a process.
pub fn global(process: i64) -> i64 {
    (1 << 48) | (process << 24)
}

/// An export in the making.
pub struct Export {
    pub db: Connection,
    pub path: PathBuf,
    _directory: tempfile::TempDir,
    strings: i64,
}

pub const KERNEL: &str = "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, \
    contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, \
    shortName INTEGER, graphNodeId INTEGER)";
const MEMCPY: &str = "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, \
    streamId INTEGER, correlationId INTEGER, globalPid INTEGER, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER)";
const MEMSET: &str = "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER, end INTEGER, deviceId INTEGER, \
    streamId INTEGER, correlationId INTEGER, globalPid INTEGER, memKind INTEGER)";
const RUNTIME: &str = "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, \
    correlationId INTEGER, nameId INTEGER)";
const NVTX: &str = "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, \
    globalTid INTEGER, textId INTEGER, domainId INTEGER)";

impl Export {
    /// An export with all tables, which are empty.
    pub fn new() -> Self {
        let export = Self::without_tables();
        export.sql(&[KERNEL, MEMCPY, MEMSET, RUNTIME, NVTX].join(";"));
        export.sql("CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)");
        export
    }

    pub fn without_tables() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a trace?#%.sqlite");
        let db = Connection::open(&path).expect("a database");
        db.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF").expect("pragmas");
        Self { db, path, _directory: directory, strings: 1000 }
    }

    pub fn sql(&self, sql: &str) {
        self.db.execute_batch(sql).expect(sql);
    }

    /// The id of a text in the table of strings, which gets a row for it.
    pub fn string(&mut self, text: &str) -> i64 {
        self.strings += 1;
        self.db
            .execute("INSERT INTO StringIds VALUES (?1, ?2)", params![self.strings, text])
            .expect("string");
        self.strings
    }

    /// A kernel of a process, device and stream.
    pub fn kernel(&mut self, name: &str, at: (i64, i64, i64), correlation: i64, time: (i64, i64)) {
        let id = self.string(name);
        self.db
            .execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?1, ?2, ?3, 1, ?4, ?5, ?6, ?7, ?7, NULL)",
                params![time.0, time.1, at.1, at.2, correlation, global(at.0), id],
            )
            .expect("kernel");
    }

    /// A host call of a process's thread.
    pub fn launch(&self, thread: (i64, i64), correlation: i64, time: (i64, i64)) {
        self.db
            .execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?1, ?2, ?3, ?4, 1)",
                params![time.0, time.1, global(thread.0) + thread.1, correlation],
            )
            .expect("launch");
    }

    /// A pushed range of a process's thread.
    pub fn range(&self, thread: (i64, i64), text: &str, time: (i64, Option<i64>)) {
        self.db
            .execute(
                "INSERT INTO NVTX_EVENTS VALUES (?1, ?2, 59, ?3, ?4, NULL, 0)",
                params![time.0, time.1, text, global(thread.0) + thread.1],
            )
            .expect("range");
    }
}
