//! Work of host threads in an imported trace: framework operators, and calls of the GPU's runtime and driver.

use crate::Range;

/// Operators and calls of an imported trace, for the timeline and the explanation of gaps. They are no named ranges: no
/// table, step or share counts them, and trace files do not store them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostWork {
    /// Operators and calls in the order of [`Trace::ranges`](crate::Trace::ranges). [`Range::name`] is
    /// [`Self::FIRST_NAME`] plus an index into [`Self::names`].
    pub events: Vec<Range>,
    /// Distinct names, without shapes.
    pub names: Vec<String>,
    /// Number of later events that were not kept.
    pub left_out: u64,
}

impl HostWork {
    /// Maximum number of events in a trace, the first in time; those of several files share it equally.
    pub const MOST: usize = 200_000;

    /// Least [`Range::name`] of an operator or call; names of ranges are below it.
    pub const FIRST_NAME: u32 = 1 << 31;

    /// Name of an operator or call; `None` for a named range.
    pub fn name(&self, event: &Range) -> Option<&str> {
        let at = event.name.checked_sub(Self::FIRST_NAME)?;
        self.names.get(at as usize).map(String::as_str)
    }
}
