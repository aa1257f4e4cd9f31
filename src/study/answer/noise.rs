//! Warning that the machine was too busy for trustworthy numbers, from the signs of [noise](crate::analysis)
//! in the runs of one provenance and machine. Simulations have no noise.

use super::question::Question;
use crate::analysis::{Varied, overload, slow_limits, wide_rounds};
use table::{CellRuns, Provenance, Record};

/// Signs of noise in the runs of one provenance and machine, as one sentence; `None` without any.
pub(super) fn noise(records: &[Record], varied: &Varied, question: Option<&Question>) -> Option<String> {
    if records.iter().all(|record| record.provenance == Provenance::Simulated) {
        return None;
    }
    let (limit, wide, busy) =
        (question.and_then(slow_limit), widest(records, varied), overload(records));
    let reasons: Vec<String> = [limit, wide, busy].into_iter().flatten().collect();
    (!reasons.is_empty())
        .then(|| format!("Noisy: {}. Run everything again on an idle machine.", reasons.join("; ")))
}

/// Pair in which `upper-bound` falls furthest behind `standard`.
fn slow_limit(question: &Question) -> Option<String> {
    let worst = slow_limits(question.report).min_by(|a, b| a.speedup.total_cmp(&b.speedup))?;
    Some(format!(
        "{} has {:.2}x the tokens/s of {}, although it does not communicate",
        question.named(worst),
        worst.speedup,
        question.baseline(worst)
    ))
}

fn widest(records: &[Record], varied: &Varied) -> Option<String> {
    let wide = wide_rounds(records);
    let widest = wide.first()?;
    let spec = &widest.spec;
    let cell = Some(varied.phrase(spec)).filter(|words| !words.is_empty()).unwrap_or(spec.label());
    let among = match CellRuns::group(records).len() {
        1 => String::new(),
        count => format!(" ({} of {count} cells vary that much)", wide.len()),
    };
    Some(format!("rounds of {cell} took {}{among}", widest.words()))
}
