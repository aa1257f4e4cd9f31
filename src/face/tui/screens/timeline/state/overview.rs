//! Density of the whole trace per column. Computed from the index once per width, off the drawing thread.

use rayon::prelude::*;

use super::index::TraceIndex;
use super::row::{Class, Row};

/// Shares of a column's time, averaged over ranks, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Density {
    /// Computing, on each rank's busiest row.
    pub compute: f32,
    /// Communicating, on each rank's busiest row.
    pub comm: f32,
    /// Exposed communication of each rank.
    pub exposed: f32,
}

/// Densities of a whole trace, from first start to last end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overview {
    pub columns: Vec<Density>,
}

impl Overview {
    pub fn of(index: &TraceIndex, columns: usize) -> Self {
        let window = index.bounds;
        // an eighth of a column is invisible
        let tolerance = window.width() / (columns.max(1) as i64 * 8);
        let of_rank = |rank: &super::index::RankRows| -> Vec<[i64; 3]> {
            let mut sums = vec![[0i64; 3]; columns];
            let rows: Vec<&Row> = index.rows[rank.rows.clone()].iter().collect();
            for row in rows {
                let covered = row.columns(index.spans(), window, columns, tolerance);
                for (sum, column) in sums.iter_mut().zip(covered) {
                    let of = |class: Class| column.covered[class as usize];
                    *sum = [sum[0].max(of(Class::Compute)), sum[1].max(of(Class::Comm)), sum[2]];
                }
            }
            for (sum, exposed) in sums.iter_mut().zip(rank.exposed.columns(window, columns)) {
                sum[2] = exposed;
            }
            sums
        };
        let ranks: Vec<Vec<[i64; 3]>> = index.ranks.par_iter().map(of_rank).collect();
        let count = ranks.len().max(1) as f32;
        let columns = (0..columns)
            .map(|column| {
                let width =
                    window.time(column + 1, columns).saturating_sub(window.time(column, columns));
                let share = |what: usize| {
                    let sum: f32 = ranks.iter().map(|rank| rank[column][what] as f32).sum();
                    (sum / count / width.max(1) as f32).clamp(0.0, 1.0)
                };
                Density { compute: share(0), comm: share(1), exposed: share(2) }
            })
            .collect();
        Self { columns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::tui::tests::fixtures;

    #[test]
    fn densities_are_what_the_lanes_did() {
        let index = fixtures::trace();
        let whole = Overview::of(&index, 1).columns[0];
        // five steps of 46 us; 30 us of compute each, and on comm 15 us of rank 0 and 13 us of rank 1
        let width = index.bounds.width() as f32;
        let near = |share: f32, ns: f32| (share - ns / width).abs() < 0.13;
        assert!(near(whole.compute, 150_000.0), "{whole:?}");
        assert!(near(whole.comm, 70_000.0), "{whole:?}");
        assert!(near(whole.exposed, 70_000.0), "standard hides nothing: {whole:?}");
        let fine = Overview::of(&index, 500);
        assert_eq!(fine.columns.len(), 500);
        assert!(fine.columns.iter().all(|d| d.exposed <= d.comm + 1e-3));
        assert!(fine.columns.iter().any(|d| d.exposed > 0.9 && d.compute < 0.1));
        assert_eq!(Overview::of(&index, 0).columns, []);
    }
}
