//! Check that files opened together are ranks that ran one program.

use std::collections::{BTreeMap, BTreeSet};

use super::rank::is_of_order;
use crate::Trace;
use crate::overlap::Class;
use base::error::{Error, Result};
use base::text::file_name;

/// Minimum share of compute kernels, by name, that two ranks of one job have in common. Chosen, not measured: names of
/// kernels differ between ranks with other shapes.
const MIN_SHARED_KERNELS: f64 = 1.0 / 3.0;

/// Minimum number of different compute kernels by which a rank is judged: helpers launch a few of their own.
const MIN_DISTINCT_KERNELS: usize = 4;

/// Maximum number of files named in an error.
const MAX_NAMED: usize = 8;

/// Refuses several files whose ranks run different compute kernels if nothing names them as ranks of one job; warns if
/// something does.
pub(super) fn require_one_program(trace: &mut Trace) -> Result<()> {
    let Some(import) = trace.meta.import.as_mut().filter(|import| import.files.len() > 1) else {
        return Ok(());
    };
    let mut ran: BTreeMap<u32, Vec<bool>> = BTreeMap::new();
    for span in &trace.spans {
        let ran = ran.entry(span.rank).or_insert_with(|| vec![false; trace.operations.len()]);
        ran[span.operation as usize] = true;
    }
    let names = |ran: Vec<bool>| -> BTreeSet<&str> {
        let ran =
            trace.operations.iter().zip(ran).filter(|(_, ran)| *ran).map(|(operation, _)| operation);
        ran.filter(|operation| Class::new(operation, operation.lane) == Class::Compute)
            .map(|operation| operation.name.as_str())
            .collect()
    };
    let kernels: Vec<BTreeSet<&str>> = ran.into_values().map(names).collect();
    let mut ranks = kernels.iter().filter(|names| names.len() >= MIN_DISTINCT_KERNELS);
    let Some(first) = ranks.next() else { return Ok(()) };
    let common = |other: &BTreeSet<&str>| {
        first.intersection(other).count() as f64 / first.len().min(other.len()) as f64
    };
    let Some(share) = ranks.map(common).find(|share| *share < MIN_SHARED_KERNELS) else { return Ok(()) };
    if !is_of_order(import.ranks_from.as_deref()) {
        import.warnings.push(format!(
            "ranks share only {:.0} % of their compute kernels: unless they are pipeline stages, they run different \
             programs",
            100.0 * share
        ));
        return Ok(());
    }
    let names: Vec<String> = import.files.iter().take(MAX_NAMED).map(|file| file_name(file)).collect();
    let more = import.files.len() - names.len();
    Err(Error::input_help(
        format!(
            "{} traces of different programs, not the ranks of one job: some share only {:.0} % of their compute \
             kernels, and neither contents nor file names have rank numbers",
            import.files.len(),
            100.0 * share
        ),
        format!(
            "open one file: {}{}; to open ranks together, name their files rank0, rank1, ...",
            names.join(", "),
            if more > 0 { format!(" and {more} more") } else { String::new() }
        ),
    ))
}
