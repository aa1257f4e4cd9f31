//! Warning that the machine was too busy for trustworthy numbers, from the signs of [noise](crate::analysis)
//! in the runs of one provenance and machine. Simulations are never doubted.

use super::question::Question;
use crate::analysis::{Varied, overload, slow_limits, wide_rounds};
use base::text::counted;
use table::{CellRuns, Provenance, Record};

/// Reasons to distrust the runs of one provenance and machine, as one sentence; `None` without any.
pub(super) fn doubt(records: &[Record], varied: &Varied, question: Option<&Question>) -> Option<String> {
    if records.iter().all(|record| record.provenance == Provenance::Simulated) {
        return None;
    }
    let (limit, wide, busy) =
        (question.and_then(slow_limit), widest(records, varied), overload(records));
    let verdict = match busy {
        Some(_) => "The machine was too busy for these numbers to be believed",
        None => "These numbers cannot be believed as they are",
    };
    let reasons: Vec<String> = [limit, wide, busy].into_iter().flatten().collect();
    if reasons.is_empty() {
        return None;
    }
    Some(format!("{verdict}: {}. Run the sweep again when nothing else runs.", reasons.join("; ")))
}

/// Pair in which `upper-bound` falls furthest behind `standard`.
fn slow_limit(question: &Question) -> Option<String> {
    let worst = slow_limits(question.report).min_by(|a, b| a.speedup.total_cmp(&b.speedup))?;
    Some(format!(
        "{}, which does not communicate, has {:.2}x the tokens/s of {}",
        question.named(worst),
        worst.speedup,
        question.baseline(worst)
    ))
}

fn widest(records: &[Record], varied: &Varied) -> Option<String> {
    let wide = wide_rounds(records);
    let widest = wide.first()?;
    let spec = &widest.spec;
    let cell = Some(varied.words(spec)).filter(|words| !words.is_empty()).unwrap_or(spec.label());
    let among = match (wide.len(), CellRuns::group(records).len()) {
        (_, 1) => String::new(),
        (1, count) => {
            format!(", the only one of {} whose rounds differ so", counted(count, "cell"))
        }
        (more, count) => format!(", the widest of {more} such cells among {count}"),
    };
    Some(format!("rounds of {cell} took {}{among}", widest.words()))
}
