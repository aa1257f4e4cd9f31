//! Made-up runs for benches: deterministic, their records whole (4 samples of 63 decode steps, an
//! environment).

use std::path::Path;

use plan::DType;
use table::{Backend, Overlap, P2p, Record, Sample, Spec, Status, metrics};

/// The runs of a grid over architecture, TP, batch, P2P and model, round after round.
pub fn record(i: usize, backend: Backend) -> Record {
    let pick = |of: &[&'static str], by: usize| of[i / by % of.len()];
    let architecture = pick(&["standard", "ladder", "parallel", "desync:4", "upper-bound"], 1);
    let p2p = [P2p::On, P2p::Off][i / 5 % 2];
    let mut spec = Spec {
        architecture: architecture.parse().expect("an architecture"),
        model: pick(&["llama-3-8b", "llama-3-70b", "llama-3.1-405b"], 10).into(),
        dtype: DType::F16,
        tp: [1, 2, 4, 8][i / 30 % 4],
        batch: [1, 4, 16, 64, 256][i / 120 % 5],
        prompt_tokens: 1024,
        output_tokens: 64,
        p2p,
        backend,
        hardware: if backend == Backend::Sim { "h100_sxm".into() } else { "host".into() },
        stack: "gpt-fast".into(),
        samples: 4,
        warmup: 1,
        ..Spec::default()
    };
    spec.env.insert("NCCL_ALGO".into(), pick(&["Ring", "Tree"], 600).into());
    let failed = i.is_multiple_of(97);
    let status = if failed { Status::Failed } else { Status::Ok };
    let mut record = Record::new(spec, status, failed.then(|| "rank 1 died of signal 9".into()));
    let second = i / 2;
    record.run = match backend {
        Backend::Sim => format!("20261121-043012-sim-4f2a91:{i}"),
        _ => format!(
            "202611{:02}-{:02}{:02}{:02}-{}-{i:06x}",
            1 + second / 86_400 % 28,
            second / 3600 % 24,
            second / 60 % 60,
            second % 60,
            architecture.replace(':', "")
        ),
    };
    record.created = format!("2026-11-21T04:30:12.{i:06}Z");
    record.round = (i / 1200) as u32;
    record.experiment = Some("paper-70b".into());
    if status == Status::Ok {
        let mut random = fastrand::Rng::with_seed(i as u64);
        let sample = |random: &mut fastrand::Rng| {
            let steps: Vec<f64> = (0..63).map(|_| 8.0 + random.f64()).collect();
            Sample {
                prefill_ms: 40.0 + random.f64(),
                decode_ms: steps.iter().sum(),
                steps_ms: if backend == Backend::Sim { Vec::new() } else { steps },
                overlap: None,
            }
        };
        let count = if backend == Backend::Sim { 1 } else { 4 };
        record.samples = (0..count).map(|_| sample(&mut random)).collect::<Vec<_>>().into();
        record.metrics = metrics(&record.spec, &[&record.samples], 12_300_000_000);
        record.overlap = Some(Overlap {
            comm_ms: 90.0,
            exposed_comm_ms: 90.0 * random.f64(),
            overlap_pct: Some(100.0 * random.f64()),
            compute_ms: 400.0,
            idle_ms: 3.0,
            peer_wait_ms: None,
            split: None,
        });
    }
    let words = ["host", "cpu", "os", "kernel", "driver", "nccl", "commit", "recorder", "compiler"];
    for (at, word) in words.iter().enumerate() {
        record.environment.insert((*word).into(), format!("{word} as it was found, {at}").into());
    }
    record.environment.insert("clocks_mhz".into(), serde_json::json!([1980, 1980, 1975 + i % 5, 1980]));
    record
}

/// A runs directory, written without syncing each file.
pub fn directory(dir: &Path, runs: usize) {
    for i in 0..runs {
        let record = record(i, Backend::Cpu);
        let run = dir.join(&record.run);
        std::fs::create_dir_all(&run).expect("a directory");
        let json = serde_json::to_vec_pretty(&record).expect("JSON");
        std::fs::write(run.join("record.json"), json).expect("a file");
    }
}
