//! Where composed steps of all ranks lie on one time axis.
//!
//! Replays that were composed into one step took several steps' time. Their step stands for one, so
//! composed steps stand one behind the other with the gap that there is between replays: the axis is a
//! generation's as it would be, not the one in which it was recorded. Ranks keep the offsets that they
//! had to each other.

/// One replay of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// When it started, on the clock of all ranks (ns).
    pub start_ns: i64,
    /// How long the replay took (ns).
    pub length_ns: i64,
}

/// When each composed step starts on each rank (ns), from every rank's replays and its composed steps'
/// lengths; `windows` replays make up a step. With one window, a step is a replay, and starts when that
/// did. `result[step][rank]`; as many steps as every rank has whole.
pub fn place(replays: &[Vec<Replayed>], lengths: &[Vec<i64>], windows: usize) -> Vec<Vec<i64>> {
    let windows = windows.max(1);
    let whole = replays.iter().map(|of_rank| of_rank.len() / windows);
    let steps = whole.chain(lengths.iter().map(Vec::len)).min().unwrap_or(0);
    if windows == 1 {
        return (0..steps).map(|step| replays.iter().map(|r| r[step].start_ns).collect()).collect();
    }
    let starts = |replay: usize| replays.iter().map(move |of_rank| of_rank[replay].start_ns);
    let ends = |replay: usize| replays.iter().map(move |r| r[replay].start_ns + r[replay].length_ns);
    // between the last end of a replay and the first start of the next
    let mut gaps: Vec<i64> = (1..steps * windows)
        .map(|next| starts(next).min().unwrap_or(0) - ends(next - 1).max().unwrap_or(0))
        .collect();
    let gap = median(&mut gaps).max(0);
    let mut begin = if steps > 0 { starts(0).min().unwrap_or(0) } else { 0 };
    let mut placed = Vec::with_capacity(steps);
    for step in 0..steps {
        let offsets: Vec<i64> = (0..replays.len())
            .map(|rank| {
                let of_step = step * windows..(step + 1) * windows;
                let mut late: Vec<i64> = of_step
                    .map(|replay| replays[rank][replay].start_ns - starts(replay).min().unwrap_or(0))
                    .collect();
                median(&mut late)
            })
            .collect();
        placed.push(offsets.iter().map(|offset| begin + offset).collect());
        let ends = offsets.iter().zip(lengths).map(|(offset, lengths)| offset + lengths[step]);
        begin += ends.max().unwrap_or(0) + gap;
    }
    placed
}

/// The lower median; 0 without values.
fn median(values: &mut [i64]) -> i64 {
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}
