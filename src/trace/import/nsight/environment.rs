//! Machine and software of an export. Environment variables are excluded, because they may hold secrets.

use serde_json::Value;

use super::database::Database;
use table::Environment;

const SYSTEM: [(&str, &str); 5] = [
    ("Hostname", "host"),
    ("CpuDescription", "cpu"),
    ("NvDriverVersion", "driver"),
    ("CudaDriverVersion", "cuda_driver"),
    ("OsDescription", "os"),
];

const EXPORT: [(&str, &str); 2] =
    [("EXPORT_PRODUCT_VERSION", "nsight_systems"), ("EXPORT_SCHEMA_VERSION", "nsight_schema")];

pub(super) fn read(db: &Database) -> Environment {
    let mut environment = Environment::new();
    for (table, names) in [("TARGET_INFO_SYSTEM_ENV", &SYSTEM[..]), ("META_DATA_EXPORT", &EXPORT[..])] {
        if !db.has(table) {
            continue;
        }
        db.rows(table, &["name", "value"], |row| {
            let known = names.iter().find(|(name, _)| row.text(0) == Some(name));
            if let (Some((_, ours)), Some(value)) = (known, row.text(1))
                && !value.is_empty()
                && value.len() < 1024
            {
                environment.insert((*ours).into(), value.into());
            }
        });
    }
    if db.has("TARGET_INFO_GPU") {
        let mut gpus: Vec<(i64, Value)> = Vec::new();
        db.rows("TARGET_INFO_GPU", &["id", "name"], |row| {
            if let Some(name) = row.text(1) {
                gpus.push((row.integer(0).unwrap_or(i64::MAX), name.into()));
            }
        });
        gpus.sort_by_key(|(id, _)| *id);
        if !gpus.is_empty() {
            environment.insert("gpus".into(), gpus.into_iter().map(|(_, name)| name).collect());
        }
    }
    environment
}

/// Start of the recording on the host's wall clock (ns since 1970).
pub(super) fn began(db: &Database) -> Option<i64> {
    let mut began = None;
    if db.has("TARGET_INFO_SESSION_START_TIME") {
        db.rows("TARGET_INFO_SESSION_START_TIME", &["utcEpochNs"], |row| {
            began = began.or(row.integer(0))
        });
    }
    began
}
