//! Outcome of a run, from a child process or a simulation in this process, to its record.

use run::Outcome;
use run::sim::{COLLECTIVE_NOTE, QUEUED_NOTE, link_warning};
use table::{Record, Status};

/// Record of a run with everything that its outcome determines: status, metrics, overlap, warnings, environment.
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

#[cfg(test)]
mod tests {
    use super::*;
    use table::Sample;
    use table::testing::spec;

    fn record(samples: Vec<Sample>) -> Record {
        let outcome = Outcome {
            samples,
            memory_bytes_per_rank: 1000,
            plan_hashes: Vec::new(),
            environment: [(QUEUED_NOTE.to_owned(), serde_json::json!("requests wait"))].into(),
            instrumented: None,
        };
        with_outcome(Record::new(spec(), Status::Running, None), outcome)
    }

    #[test]
    fn a_run_without_samples_failed() {
        let record = record(Vec::new());
        assert_eq!(record.status, Status::Failed);
        assert_eq!(record.reason.as_deref(), Some("it ended without a sample"));
    }

    #[test]
    fn notes_of_the_simulator_become_warnings() {
        let sample = Sample { prefill_ms: 1.0, decode_ms: 4.0, steps_ms: vec![1.0; 4], overlap: None };
        let record = record(vec![sample]);
        assert_eq!((record.status, record.reason.as_deref()), (Status::Ok, None));
        assert_eq!(record.warnings, ["requests wait"]);
    }
}
