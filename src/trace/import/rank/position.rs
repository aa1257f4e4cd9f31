//! Coordinates of ranks along the axes of parallelism, and the ranks that follow from them.

use std::collections::{BTreeMap, BTreeSet};

/// Larger numbers are time stamps or damage.
pub(in crate::import) const MAX_RANK: u32 = u16::MAX as u32;

/// Axis along which a job numbers its ranks, outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dimension {
    Node,
    Dp,
    Pp,
    Cp,
    Tp,
    Ep,
    /// Device or rank within a node.
    Local,
    Rank,
}

impl Dimension {
    const COUNT: usize = 8;

    /// Dimension of a word before a number, in lower case; `before` is the word before it.
    pub(super) fn new(word: &str, before: Option<&str>) -> Option<Self> {
        Some(match (before, word) {
            (Some("tp" | "tensor"), "rank") | (_, "tp" | "tprank") => Self::Tp,
            (Some("dp" | "data"), "rank") | (_, "dp" | "dprank") => Self::Dp,
            (Some("pp" | "pipeline"), "rank") | (_, "pp" | "pprank" | "stage") => Self::Pp,
            (Some("ep" | "expert"), "rank") | (_, "ep" | "eprank") => Self::Ep,
            (Some("cp" | "pcp" | "context"), "rank") | (_, "cp" | "pcp") => Self::Cp,
            (Some("node"), "rank") | (_, "node" | "noderank") => Self::Node,
            (Some("local"), "rank") | (_, "localrank" | "gpu" | "device" | "cuda") => Self::Local,
            (_, "rank" | "worker" | "globalrank" | "worldrank" | "procid") => Self::Rank,
            _ => return None,
        })
    }

    /// True for axes that also express the size of a job: `tp8`.
    pub(super) fn is_parallel(self) -> bool {
        matches!(self, Self::Dp | Self::Pp | Self::Cp | Self::Tp | Self::Ep)
    }
}

/// Coordinates of a rank; at least one is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::import) struct Position([Option<u32>; Dimension::COUNT]);

impl Position {
    pub(in crate::import) fn of_rank(rank: u32) -> Self {
        let mut position = Self::default();
        position.set(Dimension::Rank, rank);
        position
    }

    pub(super) fn set(&mut self, dimension: Dimension, at: u32) {
        self.0[dimension as usize] = Some(at);
    }

    pub(super) fn get(&self, dimension: Dimension) -> Option<u32> {
        self.0[dimension as usize]
    }

    pub(super) fn known(&self) -> usize {
        self.0.iter().flatten().count()
    }
}

/// Sets of dimensions that may number the ranks, most likely first. A name may have redundant
/// dimensions: SGLang's DP attention gives each TP rank a DP rank, and vLLM's EP rank follows from DP
/// and TP.
const NUMBERINGS: [&[Dimension]; 14] = {
    use Dimension::{Cp, Dp, Ep, Local, Node, Pp, Rank, Tp};
    [
        &[Rank],
        &[Node, Rank],
        &[Dp, Rank],
        &[Tp],
        &[Pp, Tp],
        &[Dp, Pp, Tp],
        &[Dp, Pp, Cp, Tp],
        &[Pp],
        &[Dp],
        &[Dp, Pp],
        &[Ep],
        &[Dp, Pp, Cp, Tp, Ep],
        &[Local],
        &[Node, Local],
    ]
};

/// Rank at each position, from the first numbering that distinguishes all positions; `None` if there is
/// none.
pub(super) fn ranks_at(positions: &[Position]) -> Option<Vec<u32>> {
    let distinct: BTreeSet<Position> = positions.iter().copied().collect();
    let (numbering, number) = NUMBERINGS.iter().find_map(|numbering| {
        let number = number(&distinct, numbering)?;
        Some((numbering, number))
    })?;
    let key = |position: &Position| coordinates(position, numbering);
    positions.iter().map(|position| number.get(&key(position)).copied()).collect()
}

fn coordinates(position: &Position, numbering: &[Dimension]) -> Vec<u32> {
    numbering.iter().map(|dimension| position.get(*dimension).unwrap_or(0)).collect()
}

/// Ranks by coordinates, with the last dimension varying fastest; `None` if two positions coincide.
fn number(distinct: &BTreeSet<Position>, numbering: &[Dimension]) -> Option<BTreeMap<Vec<u32>, u32>> {
    // the innermost dimension is required; missing outer ones are 0
    let innermost = numbering.last()?;
    if distinct.iter().any(|position| position.get(*innermost).is_none()) {
        return None;
    }
    let keys: BTreeSet<Vec<u32>> = distinct.iter().map(|p| coordinates(p, numbering)).collect();
    if keys.len() < distinct.len() {
        return None;
    }
    let values = |at: usize| keys.iter().map(|key| key[at]).collect::<BTreeSet<u32>>();
    // nodes have cluster-wide numbers, so use their order only
    let axes: Vec<(BTreeSet<u32>, bool)> =
        numbering.iter().enumerate().map(|(at, d)| (values(at), *d == Dimension::Node)).collect();
    let rank = |key: &Vec<u32>| {
        key.iter().zip(&axes).try_fold(0u32, |rank, (value, (values, is_node))| {
            let most = values.last().copied().unwrap_or(0);
            let (at, size) = match is_node {
                true => (values.range(..value).count() as u32, values.len() as u32),
                false => (*value, most.checked_add(1)?),
            };
            rank.checked_mul(size)?.checked_add(at).filter(|rank| *rank <= MAX_RANK)
        })
    };
    keys.iter().map(|key| Some((key.clone(), rank(key)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(coordinates: &[(Dimension, u32)]) -> Position {
        let mut position = Position::default();
        coordinates.iter().for_each(|(dimension, at)| position.set(*dimension, *at));
        position
    }

    #[test]
    fn ranks_come_from_the_first_numbering_that_distinguishes_all_positions() {
        use Dimension::{Dp, Ep, Node, Pp, Rank, Tp};
        for (positions, expected) in [
            (vec![at(&[(Rank, 3), (Tp, 1)]), at(&[(Rank, 0), (Tp, 0)])], Some(vec![3, 0])),
            (
                vec![at(&[(Tp, 0), (Dp, 0)]), at(&[(Tp, 1), (Dp, 0)]), at(&[(Tp, 2), (Dp, 1)])],
                Some(vec![0, 1, 2]),
            ),
            (
                vec![
                    at(&[(Tp, 0), (Dp, 0)]),
                    at(&[(Tp, 1), (Dp, 0)]),
                    at(&[(Tp, 0), (Dp, 1)]),
                    at(&[(Tp, 1), (Dp, 1)]),
                ],
                Some(vec![0, 1, 2, 3]),
            ),
            (vec![at(&[(Tp, 1), (Pp, 1)]), at(&[(Tp, 1), (Pp, 0)])], Some(vec![3, 1])),
            (vec![at(&[(Node, 17), (Rank, 1)]), at(&[(Node, 4), (Rank, 1)])], Some(vec![3, 1])),
            (vec![at(&[(Ep, 5)]), at(&[(Ep, 6)])], Some(vec![5, 6])),
            (vec![at(&[(Dp, 2), (Tp, 5)]), at(&[(Dp, 0), (Tp, 1)])], Some(vec![5, 1])),
            (vec![at(&[(Dp, 2)]), at(&[(Dp, 0)])], Some(vec![2, 0])),
            (vec![at(&[(Dp, 2)]), at(&[(Tp, 2)])], None),
            (vec![at(&[(Dp, 60_000), (Tp, 2)]), at(&[(Dp, 1), (Tp, 2)]), at(&[(Dp, 1), (Tp, 0)])], None),
        ] {
            assert_eq!(ranks_at(&positions), expected, "{positions:?}");
        }
    }
}
