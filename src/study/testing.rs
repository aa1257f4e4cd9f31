//! Synthetic results for the tests of this crate and of the crates that use it.

use crate::analysis::{
    Conversion, ConversionCandidate, ConversionPoint, ConversionReport, Origins, Unconverted, alone,
    comparators, ordered,
};
use plan::DType;
use table::{Provenance, Quality, Spec};

/// Report of a four-layer model. KL grows with the square of the number of converted layers (plus 0.001 if
/// layer 0 is one of them); every converted layer adds a tenth of the speed.
pub fn conversion_report() -> ConversionReport {
    let mut sets = alone(Conversion::Ladder, 4);
    sets.extend(ordered(Conversion::Ladder, &[0.4, 0.1, 0.3, 0.2]));
    sets.extend(comparators(Conversion::Ladder, 4, 2));
    let quality = |kl: f64| Quality {
        nll: 3.0 + kl,
        perplexity: (3.0 + kl).exp(),
        kl,
        agreement: 1.0 / (1.0 + kl),
        nll_ci95: None,
        perplexity_ci95: None,
        kl_ci95: Some([0.9 * kl, 1.1 * kl]),
        agreement_ci95: None,
    };
    let point = |(at, chosen): (usize, ConversionCandidate)| {
        let count = chosen.layers.len() as f64;
        let architecture = chosen.conversion.architecture(&chosen.layers, 4);
        ConversionPoint {
            number: at + 1,
            conversion: chosen.conversion,
            series: chosen.series,
            target_architecture: architecture.clone(),
            architecture,
            quality: quality(0.01 * count * count + 0.001 * f64::from(chosen.layers[0] == 0)),
            layers: chosen.layers,
            tokens_per_s: 100.0 + 10.0 * count,
            tpot_ms: 1000.0 / (100.0 + 10.0 * count),
            speedup: 1.0 + 0.1 * count,
        }
    };
    ConversionReport {
        version: ConversionReport::VERSION,
        model: "model".into(),
        layers: 4,
        text: "text.txt".into(),
        context: 512,
        tokens: 2048,
        windows: 4,
        predicted: 2044,
        tp: 1,
        dtype: DType::F32,
        target: Spec::default(),
        provenance: Origins { quality: Provenance::Measured, speed: Provenance::Simulated },
        standard: Unconverted { quality: quality(0.0), tokens_per_s: 100.0, tpot_ms: 10.0 },
        points: sets.into_iter().enumerate().map(point).collect(),
    }
}
