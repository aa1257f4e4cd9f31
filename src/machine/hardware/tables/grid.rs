//! Grids of measured latencies, interpolated in logarithms.

use std::ops::Range;

use crate::hardware::CostSource;

/// Latencies, or their ratios to the roofline, by three sizes:
///
/// | table | first | second | third |
/// |---|---|---|---|
/// | products | n | k | m |
/// | quantization of activations | 0 | k | m |
/// | attention, also of latents | heads | sequences | tokens |
/// | routed experts | TP | EP | tokens |
/// | dispatch, combine | ranks | columns | rows |
/// | NCCL's all-to-all | ranks | 1 | bytes |
///
/// Lookups differ in their extrapolation:
///
/// | lookup | below the smallest size | above the largest size | a neighbor is missing |
/// |---|---|---|---|
/// | [`us`](Self::us) | none | none | none |
/// | [`beyond_us`](Self::beyond_us) | none | second, third: from half the size | third: from half the size |
/// | [`along`](Self::along) | third: latency of the smallest | third: in proportion | next measured third |
/// | [`clamped_us`](Self::clamped_us) | latency of the smallest | latency of the largest | none |
/// | [`neighbors`](Self::neighbors) | neighbors of the smallest | neighbors of the largest | NaN |
#[derive(Debug)]
pub struct Grid {
    axes: [Axis; 3],
    /// Logarithms; NaN if not measured.
    logs: Vec<f64>,
}

impl Grid {
    pub fn parse(text: &str) -> Option<Self> {
        Self::new(text, |_, us| us)
    }

    /// Parses rows that begin with the first two sizes, with a column for each value of the third. `value` is of
    /// sizes and their latency (us).
    pub fn new(text: &str, value: impl Fn([u64; 3], f64) -> f64) -> Option<Self> {
        let mut lines = text.lines().filter(|line| !line.starts_with('#'));
        let thirds = lines.next()?.split('\t').skip(2).map(|size| size.parse().ok());
        let thirds: Vec<u64> = thirds.collect::<Option<_>>()?;
        let rows: Vec<GridRow> = lines.map(GridRow::parse).collect::<Option<_>>()?;
        let axes = [
            Axis::new(rows.iter().map(|row| row.first).collect()),
            Axis::new(rows.iter().map(|row| row.second).collect()),
            Axis::new(thirds),
        ];
        let points: usize = axes.iter().map(|axis| axis.sizes.len()).product();
        let mut grid = Self { axes, logs: vec![f64::NAN; points] };
        for GridRow { first, second, latencies } in &rows {
            let row = grid.row(*first, *second)?;
            let thirds = &grid.axes[2].sizes;
            for ((third, latency), log) in thirds.iter().zip(latencies).zip(&mut grid.logs[row]) {
                *log = latency.map_or(f64::NAN, |us| value([*first, *second, *third], us).ln());
            }
        }
        Some(grid)
    }

    /// Positions in `logs` of all third sizes with these two; `None` if either was never measured.
    fn row(&self, first: u64, second: u64) -> Option<Range<usize>> {
        let [firsts, seconds, thirds] = &self.axes;
        let row = firsts.index(first)? * seconds.sizes.len() + seconds.index(second)?;
        Some(row * thirds.sizes.len()..(row + 1) * thirds.sizes.len())
    }

    /// Weights and logarithms of the up to eight nearest points, and the position among them.
    pub fn neighbors(&self, sizes: [u64; 3]) -> (impl Iterator<Item = (f64, f64)>, CostSource) {
        let [(firsts, a), (seconds, b), (thirds, c)] = [0, 1, 2].map(|i| self.axes[i].bracket(sizes[i]));
        let neighbor = move |n: usize| {
            let ((i, wi), (j, wj), (l, wl)) = (firsts[n / 4], seconds[n / 2 % 2], thirds[n % 2]);
            let at = (i * self.axes[1].sizes.len() + j) * self.axes[2].sizes.len() + l;
            (wi * wj * wl, self.logs[at])
        };
        ((0..8).map(neighbor).filter(|(weight, _)| *weight > 0.0), a.max(b).max(c))
    }

    /// Latency between measured points.
    pub fn us(&self, sizes: [u64; 3]) -> Option<(f64, CostSource)> {
        let (neighbors, source) = self.neighbors(sizes);
        if source == CostSource::Roofline {
            return None;
        }
        // a single missing neighbor makes it NaN
        let sum: f64 = neighbors.map(|(weight, log)| weight * log).sum();
        (!sum.is_nan()).then(|| (sum.exp(), source))
    }

    /// Latency of attention. Extrapolates to more sequences than were measured in proportion, and to more tokens by this
    /// factor per doubling.
    pub fn beyond_us(&self, [first, second, third]: [u64; 3], growth: f64) -> Option<(f64, CostSource)> {
        let [_, seconds, thirds] = &self.axes;
        if let Some(found) = self.us([first, second, third]) {
            return Some(found);
        }
        let (smaller, times) = if second > *seconds.sizes.last()? {
            ([first, second.div_ceil(2), third], 2.0)
        } else if third > 1 && third.div_ceil(2) >= *thirds.sizes.first()? {
            ([first, second, third.div_ceil(2)], growth)
        } else {
            return None;
        };
        self.beyond_us(smaller, growth).map(|(us, _)| (us * times, CostSource::Roofline))
    }

    /// Second sizes that were measured with a first one.
    pub fn second_sizes(&self, first: u64) -> Vec<u64> {
        let is_measured = |second: &u64| {
            self.row(first, *second).is_some_and(|row| self.logs[row].iter().any(|log| !log.is_nan()))
        };
        self.axes[1].sizes.iter().copied().filter(is_measured).collect()
    }

    /// Latency at any third size with two sizes that were measured together.
    pub fn along(&self, first: u64, second: u64, third: f64) -> Option<(f64, CostSource)> {
        let row = &self.logs[self.row(first, second)?];
        let points = self.axes[2].sizes.iter().zip(row).filter(|(_, log)| !log.is_nan());
        let points: Vec<(f64, f64)> = points.map(|(size, log)| (*size as f64, *log)).collect();
        let above = points.partition_point(|(size, _)| *size < third);
        let Some(&(high, high_log)) = points.get(above) else {
            let &(most, log) = points.last()?;
            return Some((log.exp() * third / most, CostSource::Roofline));
        };
        let before = above.checked_sub(1).map(|before| points[before]);
        let Some((low, low_log)) = before.filter(|_| third < high) else {
            return Some((high_log.exp(), CostSource::Table));
        };
        let weight = (third.ln() - low.ln()) / (high.ln() - low.ln());
        Some(((low_log + weight * (high_log - low_log)).exp(), CostSource::Interpolated))
    }

    /// Latency at the nearest sizes within the measured ones.
    pub fn clamped_us(&self, mut sizes: [u64; 3]) -> Option<f64> {
        for (size, axis) in sizes.iter_mut().zip(&self.axes) {
            *size = (*size).clamp(*axis.sizes.first()?, *axis.sizes.last()?);
        }
        self.us(sizes).map(|(us, _)| us)
    }
}

/// Row of a tab-separated table.
struct GridRow {
    first: u64,
    second: u64,
    /// Latency at each third size (us), `None` if empty.
    latencies: Vec<Option<f64>>,
}

impl GridRow {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split('\t');
        let (first, second) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        Some(Self { first, second, latencies: fields.map(|us| us.parse().ok()).collect() })
    }
}

/// Axis of a grid: ascending sizes and their logarithms.
#[derive(Debug)]
struct Axis {
    sizes: Vec<u64>,
    logs: Vec<f64>,
}

impl Axis {
    fn new(mut sizes: Vec<u64>) -> Self {
        sizes.sort_unstable();
        sizes.dedup();
        let logs = sizes.iter().map(|&v| (v as f64).ln()).collect();
        Self { sizes, logs }
    }

    fn index(&self, value: u64) -> Option<usize> {
        self.sizes.binary_search(&value).ok()
    }

    /// The two nearest sizes with their weights, clamped to the axis, and the position of the value: on
    /// the axis (`Table`), between its ends (`Interpolated`) or beyond (`Roofline`).
    fn bracket(&self, value: u64) -> ([(usize, f64); 2], CostSource) {
        let last = self.sizes.len() - 1;
        let above = self.sizes.partition_point(|v| *v < value);
        if above > last {
            return ([(last, 1.0), (last, 0.0)], CostSource::Roofline);
        }
        if self.sizes[above] == value {
            return ([(above, 1.0), (above, 0.0)], CostSource::Table);
        }
        if above == 0 {
            return ([(0, 1.0), (0, 0.0)], CostSource::Roofline);
        }
        let (low, high) = (self.logs[above - 1], self.logs[above]);
        let weight = ((value as f64).ln() - low) / (high - low);
        ([(above - 1, 1.0 - weight), (above, weight)], CostSource::Interpolated)
    }
}
