//! Stored runs, runs as child processes, and sweeps over experiment files.

pub mod launch;
pub mod slurm;
pub mod store;
pub mod sweep;

use run::Outcome;
use run::sim::{COLLECTIVE_NOTE, QUEUED_NOTE, link_warning};
use table::{Record, Status};

/// Record of a run with everything that its outcome determines (status, metrics, overlap, warnings, environment), whether
/// a child process sent it or a simulation in this process returned it.
pub(crate) fn with_outcome(mut record: Record, outcome: Outcome) -> Record {
    let metrics = table::metrics(&record.spec, &[&outcome.samples], outcome.memory_bytes_per_rank);
    (record.status, record.reason) = match metrics {
        Some(_) => (Status::Ok, None),
        None => (Status::Failed, Some("it ended without a sample".into())),
    };
    record.metrics = metrics;
    record.instrumented =
        outcome.instrumented.map(|pass| table::overhead(&record.spec, &outcome.samples, *pass));
    record.warnings.extend(record.instrumented.as_ref().and_then(table::disturbed));
    for key in [COLLECTIVE_NOTE, QUEUED_NOTE] {
        let note = outcome.environment.get(key).and_then(|note| note.as_str());
        record.warnings.extend(note.map(str::to_owned));
    }
    record.warnings.extend(link_warning(&outcome.environment));
    let traced = record.instrumented.as_ref().and_then(|pass| pass.overlap);
    record.overlap = traced.or_else(|| outcome.samples.iter().rev().find_map(|s| s.overlap));
    record.verified = outcome.environment.get("self_check").map(|check| check["passed"] == true);
    record.environment.extend(outcome.environment);
    record.samples = outcome.samples.into();
    record
}
