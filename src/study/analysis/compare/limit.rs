//! Architectures that beat `upper-bound`. It drops only the communication of `standard`, so architectures that compute
//! less than `standard` can be faster.

use super::{Comparison, ComparisonReport, LEAST_DIFFERENCE};
use plan::Architecture;
use table::{Collective, Spec};

/// Description of the work that a cell saves relative to `upper-bound`; `None` if it saves none.
pub fn less_work(spec: &Spec) -> Option<&'static str> {
    if spec.architecture.wiring(1).fused_block {
        Some("one norm and one input projection a layer instead of two")
    } else if spec.collective == Collective::Fused || spec.sequence_parallel {
        Some("collectives take over norms, which upper-bound has to compute")
    } else {
        None
    }
}

struct Beaten<'a> {
    pair: &'a Comparison,
    limit: &'a Comparison,
    less: &'static str,
}

impl Beaten<'_> {
    fn lead(&self) -> f64 {
        self.limit.tpot_ms / self.pair.tpot_ms
    }
}

/// Remark on cells that beat `upper-bound` in the same setting because they do less work; `setting` names the setting
/// of a pair.
pub fn beaten_limit(
    report: &ComparisonReport,
    setting: impl Fn(&Comparison) -> String,
) -> Option<String> {
    let (limits, choices): (Vec<&Comparison>, Vec<&Comparison>) =
        report.pairs.iter().partition(|pair| pair.side.spec.architecture.is_limit());
    let mut beaten: Vec<Beaten<'_>> = Vec::new();
    // skip large grids without upper-bound
    for pair in choices.into_iter().filter(|_| !limits.is_empty()) {
        let Some(less) = less_work(&pair.side.spec) else { continue };
        let spec = Spec { architecture: Architecture::UpperBound, ..pair.side.spec.clone() };
        let of_pair = |limit: &&&Comparison| {
            limit.side.spec == spec && limit.side.provenance == pair.side.provenance
        };
        let limit = limits.iter().find(of_pair).copied();
        let beats = limit.map(|limit| Beaten { pair, limit, less });
        beaten.extend(beats.filter(|beaten| beaten.lead() > 1.0 + LEAST_DIFFERENCE));
    }
    let most = beaten.iter().max_by(|a, b| a.lead().total_cmp(&b.lead()))?;
    let at = match setting(most.pair) {
        at if at.is_empty() => String::new(),
        at if beaten.len() == 1 => format!(" at {at}"),
        at => format!(", most of {} cases at {at}", beaten.len()),
    };
    let tpot_ms = [most.pair.tpot_ms, most.limit.tpot_ms];
    Some(no_limit(&most.pair.side.spec.architecture_label(), most.less, tpot_ms, &at))
}

/// Sentence on an architecture that beats `upper-bound`, with both TPOTs (ms).
pub fn no_limit(label: &str, less: &str, [tpot_ms, limit_ms]: [f64; 2], at: &str) -> String {
    format!(
        "upper-bound is not a limit for {label}, which does less work ({less}): TPOT {tpot_ms:.2} ms against {limit_ms:.2} ms{at}."
    )
}
