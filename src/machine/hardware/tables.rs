//! Measured latency tables, interpolated in logarithms.
//!
//! For matrix products the ratio of measured latency to the roofline is interpolated: it varies slowly,
//! is exact at measured shapes, and follows changed peaks of a profile. For decode attention the latency
//! itself is interpolated. A lookup takes about ten logarithms; callers cache results of equal shapes.

use std::sync::LazyLock;

use base::words::words;

words! {
    /// Source of an operation's latency, most certain first.
    CostSource, "cost source" {
        /// Point of a latency table.
        Table = "table",
        /// Interpolated between points of a latency table.
        Interpolated = "interpolated",
        /// Bytes or FLOPs / the rate that the profile states for kernels.
        Roofline = "roofline",
        /// Bytes or FLOPs / a rate fitted to measured runs.
        Calibrated = "calibrated",
    }
}

/// Latency tables of one device: matrix products and decode attention.
#[derive(Debug)]
pub struct Tables {
    name: &'static str,
    matmul: MatMulTable,
    attention: AttentionTable,
}

static BUILT_IN: LazyLock<Vec<Tables>> = LazyLock::new(|| {
    /// Tables of the devices, from files named after them.
    macro_rules! of {
        ($($name:literal),*) => {
            [$((
                $name,
                include_str!(concat!("tables/", $name, "_matmul.tsv")),
                include_str!(concat!("tables/", $name, "_attention.tsv")),
            )),*]
        };
    }
    let table = |(name, matmul, attention)| {
        Some(Tables {
            name,
            matmul: MatMulTable::parse(matmul)?,
            attention: AttentionTable::parse(attention)?,
        })
    };
    of!["a100_sxm", "b200_sxm", "h100_sxm", "h200_sxm", "l40s"].into_iter().filter_map(table).collect()
});

impl Tables {
    pub const NAMES: [&'static str; 5] = ["a100_sxm", "b200_sxm", "h100_sxm", "h200_sxm", "l40s"];

    pub fn of(name: &str) -> Option<&'static Self> {
        BUILT_IN.iter().find(|tables| tables.name == name)
    }

    /// Latency of a bf16 matrix product [m, k] x [k, n] on a device with these peaks (us). `None` for
    /// shapes the table does not cover.
    pub fn matmul_us(&self, shape: [u64; 3], peaks: Peaks) -> Option<(f64, CostSource)> {
        self.matmul.us(shape, peaks)
    }

    /// Latency of one decode step's attention over `context` tokens of each of `batch` sequences, with
    /// `heads` query heads on the rank, 8 per KV head (us). `None` outside the table.
    pub fn attention_us(&self, heads: u64, batch: u64, context: u64) -> Option<(f64, CostSource)> {
        self.attention.us(heads, batch, context)
    }
}

/// Peak arithmetic and memory bandwidth of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peaks {
    /// Dense arithmetic (1e12 operations per second).
    pub tflops: f64,
    /// Memory bandwidth (1e9 bytes per second).
    pub gb_s: f64,
}

impl Peaks {
    /// Roofline latency of a matrix product with 2-byte numbers (us).
    fn us(&self, [m, n, k]: [f64; 3]) -> f64 {
        let arithmetic = 2.0 * m * n * k / (self.tflops * 1e6);
        let memory = 2.0 * (n * k + m * k + m * n) / (self.gb_s * 1e3);
        arithmetic.max(memory)
    }
}

/// Table axis: ascending values and their logarithms.
#[derive(Debug)]
struct Axis {
    values: Vec<u64>,
    logs: Vec<f64>,
}

impl Axis {
    fn new(mut values: Vec<u64>) -> Self {
        values.sort_unstable();
        values.dedup();
        let logs = values.iter().map(|&v| (v as f64).ln()).collect();
        Self { values, logs }
    }

    fn index(&self, value: u64) -> Option<usize> {
        self.values.binary_search(&value).ok()
    }

    /// The two nearest values with their weights, clamped to the axis, and the position of the value: on
    /// the axis (`Table`), between its ends (`Interpolated`) or beyond (`Roofline`).
    fn bracket(&self, value: u64) -> ([(usize, f64); 2], CostSource) {
        let last = self.values.len() - 1;
        let above = self.values.partition_point(|v| *v < value);
        if above > last {
            return ([(last, 1.0), (last, 0.0)], CostSource::Roofline);
        }
        if self.values[above] == value {
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

/// Rows of a tab-separated table: the first two columns and the rest, `None` if empty.
type Rows = Vec<(u64, u64, Vec<Option<f64>>)>;

/// Parses a table into the header values from the third column and the rows.
fn parse(text: &str) -> Option<(Vec<u64>, Rows)> {
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let header = lines.next()?.split('\t').skip(2).map(|v| v.parse().ok()).collect::<Option<_>>()?;
    let rows = lines
        .map(|line| {
            let mut fields = line.split('\t');
            let (a, b) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
            Some((a, b, fields.map(|v| v.parse().ok()).collect()))
        })
        .collect::<Option<_>>()?;
    Some((header, rows))
}

#[derive(Debug)]
struct MatMulTable {
    n: Axis,
    k: Axis,
    m: Axis,
    /// ln(latency / roofline) by (n, k, m); NaN if not measured.
    ratios: Vec<f64>,
}

impl MatMulTable {
    fn parse(text: &str) -> Option<Self> {
        let peak = |key: &str| -> Option<f64> {
            let head = text.lines().next()?;
            head.split_whitespace().find_map(|word| word.strip_prefix(key))?.parse().ok()
        };
        let peaks = Peaks { tflops: peak("peak_tflops=")?, gb_s: peak("hbm_gb_s=")? };
        let (header, rows) = parse(text)?;
        let m = Axis::new(header);
        let n = Axis::new(rows.iter().map(|row| row.0).collect());
        let k = Axis::new(rows.iter().map(|row| row.1).collect());
        let mut ratios = vec![f64::NAN; n.values.len() * k.values.len() * m.values.len()];
        for (rows_n, rows_k, latencies) in &rows {
            let at = (n.index(*rows_n)? * k.values.len() + k.index(*rows_k)?) * m.values.len();
            for (i, latency) in latencies.iter().enumerate() {
                let roofline = peaks.us([m.values[i], *rows_n, *rows_k].map(|v| v as f64));
                *ratios.get_mut(at + i)? = latency.map_or(f64::NAN, |us| (us / roofline).ln());
            }
        }
        Some(Self { n, k, m, ratios })
    }

    fn us(&self, [m, n, k]: [u64; 3], peaks: Peaks) -> Option<(f64, CostSource)> {
        let (ms, in_m) = self.m.bracket(m);
        let (ns, in_n) = self.n.bracket(n);
        let (ks, in_k) = self.k.bracket(k);
        let mut source = in_m.max(in_n).max(in_k);
        let (mut sum, mut weights) = (0.0, 0.0);
        for (i, wi) in ns {
            for (j, wj) in ks {
                for (l, wl) in ms {
                    let weight = wi * wj * wl;
                    let ratio = self.ratios[(i * self.k.values.len() + j) * self.m.values.len() + l];
                    if weight > 0.0 && !ratio.is_nan() {
                        sum += weight * ratio;
                        weights += weight;
                    }
                }
            }
        }
        // a few large shapes were not measured: no result if most neighbors are missing
        if weights < 0.5 {
            return None;
        }
        if weights < 1.0 - 1e-9 {
            source = source.max(CostSource::Interpolated);
        }
        Some(((sum / weights).exp() * peaks.us([m, n, k].map(|v| v as f64)), source))
    }
}

#[derive(Debug)]
struct AttentionTable {
    heads: Axis,
    batch: Axis,
    context: Axis,
    /// ln(latency) by (heads, batch, context); NaN if not measured.
    latencies: Vec<f64>,
}

impl AttentionTable {
    fn parse(text: &str) -> Option<Self> {
        let (header, rows) = parse(text)?;
        let context = Axis::new(header);
        let heads = Axis::new(rows.iter().map(|row| row.0).collect());
        let batch = Axis::new(rows.iter().map(|row| row.1).collect());
        let size = heads.values.len() * batch.values.len() * context.values.len();
        let mut latencies = vec![f64::NAN; size];
        for (row_heads, row_batch, row) in &rows {
            let at = (heads.index(*row_heads)? * batch.values.len() + batch.index(*row_batch)?)
                * context.values.len();
            for (i, latency) in row.iter().enumerate() {
                *latencies.get_mut(at + i)? = latency.map_or(f64::NAN, f64::ln);
            }
        }
        Some(Self { heads, batch, context, latencies })
    }

    fn us(&self, heads: u64, batch: u64, context: u64) -> Option<(f64, CostSource)> {
        let (hs, in_h) = self.heads.bracket(heads);
        let (bs, in_b) = self.batch.bracket(batch);
        let (cs, in_c) = self.context.bracket(context);
        let source = in_h.max(in_b).max(in_c);
        if source == CostSource::Roofline {
            return None;
        }
        let mut sum = 0.0;
        for (i, wi) in hs {
            for (j, wj) in bs {
                for (l, wl) in cs {
                    let weight = wi * wj * wl;
                    let at = (i * self.batch.values.len() + j) * self.context.values.len() + l;
                    if weight > 0.0 {
                        // a single missing neighbor makes it NaN
                        sum += weight * self.latencies[at];
                    }
                }
            }
        }
        (!sum.is_nan()).then(|| (sum.exp(), source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H100: Peaks = Peaks { tflops: 989.4, gb_s: 3350.0 };

    #[test]
    fn all_built_in_tables_parse() {
        for name in Tables::NAMES {
            assert!(Tables::of(name).is_some(), "{name}");
        }
        assert!(Tables::of("nonsense").is_none());
    }

    #[test]
    fn points_of_the_table_come_back() {
        let tables = Tables::of("h100_sxm").unwrap();
        // the geometric mean of 49.18 and 51.64 us, and of 2817.62 and 3108.46 us
        let (us, source) = tables.matmul_us([1, 8192, 8192], H100).unwrap();
        assert!((us - 50.39).abs() < 0.02 && source == CostSource::Table, "{us} {source:?}");
        let (us, source) = tables.matmul_us([16384, 8192, 8192], H100).unwrap();
        assert!((us - 2959.5).abs() < 1.0 && source == CostSource::Table, "{us} {source:?}");
        let (us, source) = tables.attention_us(8, 1, 1023).unwrap();
        assert!((us - 12.43).abs() < 0.01 && source == CostSource::Table, "{us} {source:?}");
    }

    #[test]
    fn between_points_it_lies_between_them_and_says_so() {
        let tables = Tables::of("h100_sxm").unwrap();
        let us = |shape| tables.matmul_us(shape, H100).unwrap();
        let (low, mid, high) = (us([1, 7168, 8192]), us([1, 7680, 8192]), us([1, 8192, 8192]));
        assert!(low.0 < mid.0 && mid.0 < high.0, "{low:?} {mid:?} {high:?}");
        assert_eq!(mid.1, CostSource::Interpolated);
        let (low, mid, high) = (
            tables.attention_us(8, 16, 1023).unwrap(),
            tables.attention_us(8, 16, 1500).unwrap(),
            tables.attention_us(8, 16, 2047).unwrap(),
        );
        assert!(low.0 <= mid.0 && mid.0 <= high.0 && mid.1 == CostSource::Interpolated);
    }

    #[test]
    fn beyond_the_table_it_follows_the_roofline_or_is_silent() {
        let tables = Tables::of("h100_sxm").unwrap();
        let (one, _) = tables.matmul_us([16384, 4096, 4096], H100).unwrap();
        let (two, source) = tables.matmul_us([32768, 4096, 4096], H100).unwrap();
        assert_eq!(source, CostSource::Roofline);
        assert!((two / one - 2.0).abs() < 0.01, "{one} {two}");
        assert_eq!(tables.matmul_us([1, 65536, 65536], H100), None);
        assert_eq!(tables.attention_us(4, 1, 100), None);
    }

    #[test]
    fn a_device_of_twice_the_peaks_takes_half_the_time() {
        let tables = Tables::of("h100_sxm").unwrap();
        let twice = Peaks { tflops: 2.0 * H100.tflops, gb_s: 2.0 * H100.gb_s };
        for shape in [[1, 8192, 1024], [4096, 3584, 8192]] {
            let (one, two) =
                (tables.matmul_us(shape, H100).unwrap().0, tables.matmul_us(shape, twice).unwrap().0);
            assert!((one / two - 2.0).abs() < 1e-9);
        }
    }
}
