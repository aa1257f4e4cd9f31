//! Quality cost of the fastest architecture, which is a different network than `standard`.

use super::question::Question;
use table::{Record, RunQuality};

/// KL of the fastest architecture against `standard`, or a note that nobody evaluated it. `None` if nothing
/// is faster than `standard`.
pub(super) fn quality(records: &[Record], question: &Question) -> Option<String> {
    let value = question.winner()?.value;
    let of = records.iter().filter(|record| question.axis.phrase(&record.spec) == value);
    let mut found: Vec<&RunQuality> = of.filter_map(|record| record.quality.as_deref()).collect();
    found.sort_by(|a, b| a.quality.kl.total_cmp(&b.quality.kl));
    found.dedup_by(|a, b| a.quality.kl == b.quality.kl);
    let kl = |quality: &RunQuality| {
        let ci = quality.quality.kl_ci95;
        let ci = ci.map_or(String::new(), |[low, high]| format!(" [{low:.3}, {high:.3}]"));
        format!("{:.3}{ci}", quality.quality.kl)
    };
    Some(match found.as_slice() {
        [] => format!("Quality of {value} was not evaluated (`ladderscope evaluate`)."),
        [one] => format!("{value} is {} nats per token (KL) from standard: {}.", kl(one), one.told()),
        [least, .., most] => format!(
            "{value} is {} to {} nats per token (KL) from standard: {}.",
            kl(least),
            kl(most),
            most.basis()
        ),
    })
}
