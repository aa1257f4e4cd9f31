//! Links of a hardware profile: all-reduce latency by TP, within a node and across nodes.
//!
//! A link is either measured (points of message bytes and latency, interpolated in logarithms) or a
//! formula, `alpha_us + message bytes / (gb_s x 1e9)` with message (not bus) bytes. Measured latency is
//! split into the part explained by bandwidth and the rest, so that both can be scaled.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::CostSource;
use super::stack::CollectiveScale;
use table::Collective;

/// Connection of the GPUs of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Fabric {
    /// NVLink through a switch.
    #[default]
    Switch,
    /// Point to point, without a switch or symmetric NCCL memory.
    Mesh,
    /// PCIe alone: no collective of an NVLink machine is scaled to it.
    Pcie,
}

/// Defines the links, with a table for each collective other than NCCL's: its name in files, and its variant.
macro_rules! links {
    ($($(#[$about:meta])* $table:ident: $collective:ident,)*) => {
        /// The links of a profile.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct Links {
            /// Connection of the GPUs of a node: `switch`, `mesh` or `pcie`.
            #[serde(default)]
            pub fabric: Fabric,
            /// GPUs of a node communicate directly (NVLink if present).
            pub p2p_on: LinkTable,
            /// GPUs of a node communicate through host memory.
            pub p2p_off: LinkTable,
            $($(#[$about])* pub $table: Option<LinkTable>,)*
            /// Additional cost of an all-reduce across nodes.
            pub inter_node: InterNode,
        }

        impl Links {
            /// Latency table of a collective within a node with P2P, if known.
            pub fn table(&self, collective: Collective) -> Option<&LinkTable> {
                match collective {
                    Collective::Nccl => Some(&self.p2p_on),
                    $(Collective::$collective => self.$table.as_ref(),)*
                    Collective::Fastest => None,
                }
            }

            /// Sets the table of a collective other than NCCL's.
            pub(super) fn put(&mut self, collective: Collective, table: Option<LinkTable>) {
                match collective {
                    Collective::Nccl | Collective::Fastest => {}
                    $(Collective::$collective => self.$table = table,)*
                }
            }

            /// All intra-node tables, with their names in files.
            pub fn tables(&self) -> impl Iterator<Item = (&'static str, &LinkTable)> {
                let others = [$((stringify!($table), &self.$table)),*];
                let others = others.into_iter().filter_map(|(name, table)| Some((name, table.as_ref()?)));
                [("p2p_on", &self.p2p_on), ("p2p_off", &self.p2p_off)].into_iter().chain(others)
            }
        }
    };
}

links! {
    /// Custom one-shot all-reduce over P2P, if measured.
    one_shot: OneShot,
    /// NCCL's all-reduce over symmetric memory; if omitted, from the built-in rows.
    symmetric: Symmetric,
    /// Custom two-shot all-reduce over P2P; if omitted, from the built-in rows.
    two_shot: TwoShot,
    /// All-reduce within NVLink's switch; if omitted, from the built-in rows.
    multimem: Multimem,
    /// All-reduce fused with the residual addition and norm; if omitted, from the built-in rows.
    fused: Fused,
}

impl Links {
    /// True if the built-in rows of a collective do not apply.
    pub(super) fn lacks(&self, collective: Collective) -> bool {
        match self.fabric {
            Fabric::Switch => false,
            Fabric::Mesh => collective.about().needs_switch,
            Fabric::Pcie => true,
        }
    }

    /// Copies the `scaled` marks, which TOML does not preserve.
    pub(super) fn keep_scaled(&mut self, from: &Self) {
        for collective in Collective::ALL {
            if let (Some(table), Some(known)) = (self.table(collective).cloned(), from.table(collective))
            {
                self.put(collective, Some(LinkTable { scaled: known.scaled.clone(), ..table }));
            }
        }
    }
}

/// Latency of intra-node all-reduces by number of ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkTable {
    /// Remarks on the numbers.
    pub note: Option<String>,
    /// True if a table with one TP applies to every TP; otherwise cells at other TPs are skipped.
    #[serde(default)]
    pub extrapolate: bool,
    /// Rows by number of ranks; others are interpolated.
    pub tp: BTreeMap<u32, LinkPoint>,
    /// For a table scaled from NCCL's rather than read from the file: the NCCL rows behind each TP
    /// without its own measurements.
    #[serde(skip)]
    pub scaled: Option<BTreeMap<u32, BasisRows>>,
}

/// Rows of a link table behind its numbers at one TP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkBasis {
    pub tp: u32,
    pub rows: BasisRows,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BasisRows {
    /// Row with points at the TP itself.
    Points,
    /// Row at the TP itself, without points.
    Formula,
    /// Neighboring rows, interpolated linearly in log2(TP).
    Interpolated(u32, u32),
    /// Nearest row, and the next one on the same side for linear extrapolation; without it, a copy.
    Extrapolated(u32, Option<u32>),
    /// Only row, which the table does not allow other TPs to copy.
    Missing(u32),
}

impl LinkBasis {
    /// Note text, if the TP has no row of its own.
    pub fn note(&self) -> Option<String> {
        (!matches!(self.rows, BasisRows::Points | BasisRows::Formula)).then(|| self.to_string())
    }

    /// Explains why a cell at this TP cannot be simulated on `link`, with a remedy.
    pub fn problem(&self, link: &str) -> Option<String> {
        let BasisRows::Missing(only) = self.rows else { return None };
        let tp = self.tp;
        Some(format!(
            "link {link} was measured only at TP {only}: measure TP {tp}, or use the latencies of TP {only} (calibrate \
             --extrapolate, or extrapolate = true in [link.{link}])"
        ))
    }
}

impl std::fmt::Display for LinkBasis {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tp = self.tp;
        match self.rows {
            BasisRows::Points => write!(out, "TP {tp}: points"),
            BasisRows::Formula => write!(out, "TP {tp}: formula"),
            BasisRows::Interpolated(low, high) => {
                write!(out, "TP {tp} interpolated between TP {low} and TP {high}")
            }
            BasisRows::Extrapolated(near, Some(far)) => {
                write!(out, "TP {tp} extrapolated from TP {near} and TP {far}")
            }
            BasisRows::Extrapolated(near, None) => {
                write!(out, "TP {tp} extrapolated from TP {near} only")
            }
            BasisRows::Missing(only) => write!(out, "TP {tp} not measured (only TP {only} was)"),
        }
    }
}

/// All-reduce over a given number of ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkPoint {
    /// Latency of a small message (us).
    pub alpha_us: f64,
    /// Message bandwidth (1e9 bytes a second).
    pub gb_s: f64,
    /// Alternative path for large messages, used once it is faster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub large: Option<LargeMessages>,
    /// Thread blocks, at most one per multiprocessor; if omitted, as many as NCCL would use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ctas: Option<u32>,
    /// Basis of the points, if not all are measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Smallest and largest measured message, or 0 and 0 for none; other points are scaled, as the note
    /// says. If omitted, all points are measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_bytes: Option<(u64, u64)>,
    /// Measured latencies: (message bytes, us), bytes ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub points: Vec<(u64, f64)>,
}

/// Alternative path for large messages: a second formula.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LargeMessages {
    /// Latency of an empty message on this path (us).
    pub alpha_us: f64,
    /// Message bandwidth (1e9 bytes a second).
    pub gb_s: f64,
}

/// Additional cost across nodes: `alpha_us` per doubling of the nodes, plus `2 (nodes - 1) / nodes` x
/// message bytes at `gb_s`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InterNode {
    /// Remarks on the numbers.
    pub note: Option<String>,
    /// Latency per doubling of the nodes (us).
    pub alpha_us: f64,
    /// Combined bandwidth of a node's network cards (1e9 bytes a second).
    pub gb_s: f64,
}

impl LinkPoint {
    /// Message size in bytes up to which measured latency counts as pure latency. Assumed, not measured.
    pub const LATENCY_BYTES: u64 = 16 << 10;

    /// Message size in bytes from which the slope of the points is the bandwidth.
    pub const LARGE: u64 = 64 << 20;

    /// Link without measured points: `alpha_us + message bytes / (gb_s x 1e9)`.
    pub fn formula(alpha_us: f64, gb_s: f64) -> Self {
        Self { alpha_us, gb_s, ..Self::default() }
    }

    /// Link from measured points (message bytes, us; bytes ascending). `alpha_us` is the median up to 16
    /// KB; `gb_s` is the slope from 64 MB, or that of the two largest messages. `None` for fewer than
    /// two points or if the largest message is not slower than the previous one.
    pub fn of_points(points: Vec<(u64, f64)>) -> Option<Self> {
        let [.., before, last] = *points.as_slice() else { return None };
        let gb_s = (last.0 - before.0) as f64 / (last.1 - before.1) / 1e3;
        let link = Self::through(points, gb_s);
        (link.gb_s > 0.0 && link.gb_s.is_finite()).then_some(link)
    }

    /// Link through points (bytes ascending), which keep their latencies: `alpha_us` and `gb_s` are derived from them.
    /// The given bandwidth is used if fewer than two of them have [`LinkPoint::LARGE`] bytes.
    pub fn through(points: Vec<(u64, f64)>, gb_s: f64) -> Self {
        let mut link = Self { points, ..Self::formula(0.0, gb_s) };
        if let Some((alpha_us, gb_s)) = link.measured() {
            (link.alpha_us, link.gb_s) = (alpha_us, gb_s);
        }
        link
    }

    /// Latency without concurrent work (us).
    pub(super) fn alone_us(&self, bytes: f64) -> f64 {
        self.us(bytes, CollectiveScale::ALONE).0
    }

    /// (alpha_us, gb_s) derived from the measured points, if possible.
    pub(super) fn measured(&self) -> Option<(f64, f64)> {
        let mut small: Vec<f64> =
            self.points.iter().filter(|p| p.0 <= Self::LATENCY_BYTES).map(|p| p.1).collect();
        small.sort_unstable_by(f64::total_cmp);
        let alpha = match (small.len(), small.get(small.len() / 2)) {
            (0, _) | (_, None) => self.points.first()?.1,
            (n, Some(high)) => f64::midpoint(small[(n - 1) / 2], *high),
        };
        let last = self.points.last()?;
        let from = self.points.iter().find(|p| p.0 >= Self::LARGE).filter(|p| p.0 < last.0);
        let gb_s = match from {
            Some(from) if last.1 > from.1 => (last.0 - from.0) as f64 / (last.1 - from.1) / 1e3,
            _ => self.gb_s,
        };
        Some((alpha, gb_s))
    }

    /// Measured latency, interpolated in logarithms, and extended beyond the last point by bandwidth.
    fn interpolated(&self, bytes: f64, gb_s: f64) -> (f64, CostSource) {
        let above = self.points.partition_point(|p| (p.0 as f64) < bytes);
        match (above.checked_sub(1).and_then(|i| self.points.get(i)), self.points.get(above)) {
            (_, Some(high)) if high.0 as f64 == bytes => (high.1, CostSource::Table),
            (Some(low), Some(high)) => {
                let t = (bytes / low.0 as f64).ln() / (high.0 as f64 / low.0 as f64).ln();
                (low.1 * (high.1 / low.1).powf(t), CostSource::Interpolated)
            }
            (None, Some(first)) => (first.1, CostSource::Interpolated),
            (Some(last), None) => {
                (last.1 + (bytes - last.0 as f64) / (gb_s * 1e3), CostSource::Interpolated)
            }
            (None, None) => (0.0, CostSource::Calibrated),
        }
    }

    /// Latency of a message within a model (us).
    fn us(&self, bytes: f64, scale: CollectiveScale) -> (f64, CostSource) {
        let Some((alpha, gb_s)) = self.measured() else {
            let way = |alpha_us: f64, gb_s: f64| alpha_us + scale.transfer_scale * bytes / (gb_s * 1e3);
            let direct = way(self.alpha_us, self.gb_s);
            let us = self.large.map_or(direct, |large| direct.min(way(large.alpha_us, large.gb_s)));
            return (us, CostSource::Calibrated);
        };
        let (us, source) = self.interpolated(bytes, gb_s);
        let transfer = us.min(bytes / (gb_s * 1e3));
        let latency = (us - transfer) * (self.alpha_us / alpha) * scale.latency_scale;
        let is_scaled = scale.transfer_scale != 1.0
            || self.measured_bytes.is_some_and(|(low, high)| bytes < low as f64 || bytes > high as f64);
        let source = if is_scaled { CostSource::Calibrated } else { source };
        (latency + transfer * (gb_s / self.gb_s) * scale.transfer_scale, source)
    }
}

impl LinkTable {
    /// Rows behind the numbers at `tp` ranks.
    pub fn basis(&self, tp: u32) -> LinkBasis {
        let below = self.tp.range(..tp).rev().map(|(tp, _)| *tp);
        let above = self.tp.range(tp..).map(|(tp, _)| *tp);
        let beyond = |near: Option<u32>, far: Option<u32>| match (near, far) {
            (Some(only), None) if !self.extrapolate => BasisRows::Missing(only),
            (near, far) => BasisRows::Extrapolated(near.unwrap_or_default(), far),
        };
        let of_nccl = self.scaled.as_ref().and_then(|rows| rows.get(&tp));
        if let Some(rows) = of_nccl {
            return LinkBasis { tp, rows: *rows };
        }
        let rows = match (self.tp.get(&tp), below.clone().next(), above.clone().next()) {
            (Some(row), ..) if row.points.is_empty() => BasisRows::Formula,
            (Some(_), ..) => BasisRows::Points,
            (None, Some(low), Some(high)) => BasisRows::Interpolated(low, high),
            (None, low, None) => beyond(low, below.clone().nth(1)),
            (None, None, high) => beyond(high, above.clone().nth(1)),
        };
        LinkBasis { tp, rows }
    }

    /// Neighboring rows of `tp` and their weights: linear in log2(tp), also beyond the ends; a table
    /// with one row is constant.
    fn rows(&self, tp: u32) -> Vec<(f64, &LinkPoint)> {
        if let Some(point) = self.tp.get(&tp) {
            return vec![(1.0, point)];
        }
        let rows: Vec<(f64, &LinkPoint)> =
            self.tp.iter().map(|(&ranks, point)| (f64::from(ranks).log2(), point)).collect();
        let x = f64::from(tp).log2();
        let above =
            rows.partition_point(|(at, _)| *at < x).clamp(1, rows.len().saturating_sub(1).max(1));
        match (rows.get(above - 1), rows.get(above)) {
            (Some((x0, low)), Some((x1, high))) => {
                let t = (x - x0) / (x1 - x0);
                vec![(1.0 - t, *low), (t, *high)]
            }
            (Some((_, only)), None) => vec![(1.0, *only)],
            _ => Vec::new(),
        }
    }

    /// Thread blocks at `tp` ranks, if known.
    pub(super) fn ctas(&self, tp: u32) -> Option<u32> {
        self.rows(tp).into_iter().filter_map(|(_, row)| row.ctas).max()
    }

    /// Notes on the origin of the numbers at `tp` ranks.
    pub fn note(&self, tp: u32) -> Option<String> {
        let basis = self.basis(tp).note();
        let mut words: Vec<&str> = basis.as_deref().into_iter().chain(self.note.as_deref()).collect();
        words.extend(self.rows(tp).iter().filter_map(|(_, row)| row.note.as_deref()));
        (!words.is_empty()).then(|| words.join("; "))
    }

    /// True if anything at `tp` ranks was measured.
    pub fn is_measured(&self, tp: u32) -> bool {
        self.rows(tp).iter().any(|(_, row)| row.measured_bytes != Some((0, 0)))
    }

    /// True if a stack scales the latency at `tp` ranks: it is measured back to back, not a formula.
    pub fn is_scaled(&self, tp: u32) -> bool {
        self.rows(tp).iter().any(|(_, row)| !row.points.is_empty())
    }

    /// True if the message size lies within the measured range at `tp` ranks.
    pub fn covers(&self, tp: u32, bytes: f64) -> bool {
        self.rows(tp).iter().all(|(_, row)| {
            row.measured_bytes.is_none_or(|(least, most)| (least as f64..=most as f64).contains(&bytes))
        })
    }

    /// Formula at `tp` ranks: alpha is interpolated linearly and bandwidth geometrically in log2(tp), so
    /// that it stays positive. (0, infinite) for one rank.
    pub fn at(&self, tp: u32) -> (f64, f64) {
        if tp <= 1 {
            return (0.0, f64::INFINITY);
        }
        let rows = self.rows(tp);
        let alpha: f64 = rows.iter().map(|(w, row)| w * row.alpha_us).sum();
        let gb_s: f64 = rows.iter().map(|(w, row)| w * row.gb_s.ln()).sum();
        (alpha.max(0.0), gb_s.exp())
    }

    /// Latency at `tp` ranks without concurrent work (us).
    pub fn alone_us(&self, tp: u32, bytes: f64) -> f64 {
        self.us(tp, bytes, CollectiveScale::ALONE).0
    }

    /// Latency of a message at `tp` ranks (us).
    pub(super) fn us(&self, tp: u32, bytes: f64, scale: CollectiveScale) -> (f64, CostSource) {
        if tp <= 1 {
            return (0.0, CostSource::Roofline);
        }
        let (mut us, mut source) = (0.0, CostSource::Table);
        let rows = self.rows(tp);
        for (weight, row) in &rows {
            let (one, from) = row.us(bytes, scale);
            us += weight * one;
            source = source.max(from);
        }
        if rows.len() > 1 {
            source = source.max(CostSource::Interpolated);
        }
        (us.max(0.0), source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::{Profile, Stack, Target};
    use table::P2p;

    #[test]
    fn latency_and_bandwidth_of_measured_points_are_those_of_the_built_in_profiles() {
        for name in ["h100_sxm", "h200_sxm"] {
            for (tp, point) in &Profile::load(name).unwrap().link.p2p_on.tp {
                let found = LinkPoint::of_points(point.points.clone()).unwrap();
                let near = |found: f64, told: f64| (found / told - 1.0).abs() < 0.005;
                assert!(near(found.alpha_us, point.alpha_us), "{name} {tp}: {} us", found.alpha_us);
                assert!(near(found.gb_s, point.gb_s), "{name} {tp}: {} GB/s", found.gb_s);
            }
        }
        // without messages that show the bandwidth, the two largest have to
        let few = LinkPoint::of_points(vec![(1024, 9.0), (2048, 10.0), (1 << 20, 20.0)]).unwrap();
        assert_eq!((few.alpha_us, few.gb_s.round()), (9.5, 105.0));
        assert_eq!(LinkPoint::of_points(vec![(1024, 9.0)]), None);
        assert_eq!(LinkPoint::of_points(vec![(1024, 9.0), (4096, 9.0)]), None, "no bandwidth");
    }

    fn table(rows: &[(u32, f64, f64)]) -> LinkTable {
        let tp = rows.iter().map(|&(tp, alpha, gb)| (tp, LinkPoint::formula(alpha, gb))).collect();
        LinkTable { note: None, extrapolate: false, tp, scaled: None }
    }

    /// A profile of NCCL's links alone: the other collectives are scaled from them, and lack what they lack.
    #[test]
    fn scaled_collectives_rest_on_the_rows_of_nccl() {
        let profile = |rows: &[(u32, f64, f64)]| {
            let tps: String = rows
                .iter()
                .map(|(tp, us, gb)| format!("[link.p2p_on.tp.{tp}]\nalpha_us = {us:?}\ngb_s = {gb:?}\n"))
                .collect();
            let text = format!(
                "name = \"mine\"\nmemory_gb = 24.0\nhbm_gb_s = 1008.0\nhbm_efficiency = 0.9\ncompute_efficiency = 0.8\n\
                 gpus_per_node = 8\nsms = 128\nsources = []\n[tflops]\nbf16 = 165.0\nf16 = 165.0\nf32 = 82.0\n\
                 [link.p2p_on]\n{tps}[link.p2p_off.tp.2]\nalpha_us = 20.0\ngb_s = 8.0\n[link.inter_node]\nalpha_us = 20.0\n\
                 gb_s = 50.0\n"
            );
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("mine.toml");
            std::fs::write(&path, text).unwrap();
            Profile::load(path.to_str().unwrap()).unwrap()
        };
        let others = Collective::ALL
            .into_iter()
            .filter(|collective| !matches!(collective, Collective::Nccl | Collective::Fastest));
        let two = profile(&[(2, 10.0, 10.0), (4, 14.0, 5.0)]);
        for collective in others.clone() {
            let basis = |tp| two.link_basis(collective, P2p::On, tp);
            assert_eq!(basis(4).note(), None, "{collective}");
            assert!(matches!(basis(8).rows, BasisRows::Extrapolated(..)), "{collective}");
            assert_eq!(basis(8).to_string(), "TP 8 extrapolated from TP 4 and TP 2");
            assert!(!two.link.table(collective).unwrap().covers(8, 16384.0), "{collective}");
        }
        // values that are set leave it so
        let target = Target { profile: two, stack: Stack::load("native").unwrap() };
        let set = [("hbm_gb_s".to_owned(), "900".to_owned())].into();
        let two = target.with(&set).unwrap().profile;
        let one_shot = two.link_basis(Collective::OneShot, P2p::On, 8);
        assert!(matches!(one_shot.rows, BasisRows::Extrapolated(..)));
        let one = profile(&[(4, 14.0, 5.0)]);
        for collective in others {
            let problem = one.link_problem(collective, P2p::On, 8).unwrap();
            assert!(problem.starts_with("link p2p_on was measured only at TP 4"), "{problem}");
            assert!(problem.contains("[link.p2p_on]") && !problem.contains("one_shot"), "{problem}");
            assert_eq!(one.link_problem(collective, P2p::On, 4), None);
        }
    }

    #[test]
    fn every_tp_says_on_which_rows_it_rests() {
        let said = |rows: &[(u32, f64, f64)], tp| table(rows).basis(tp).to_string();
        let two = [(2, 10.0, 20.0), (4, 20.0, 5.0)];
        assert_eq!(said(&two, 8), "TP 8 extrapolated from TP 4 and TP 2");
        assert_eq!(said(&two, 4), "TP 4: formula");
        assert_eq!(said(&[(4, 9.0, 9.0), (8, 9.0, 9.0)], 2), "TP 2 extrapolated from TP 4 and TP 8");
        assert_eq!(said(&[(2, 9.0, 9.0), (8, 9.0, 9.0)], 6), "TP 6 interpolated between TP 2 and TP 8");
        let h100 = Profile::load("h100_sxm").unwrap();
        assert_eq!(h100.link.p2p_on.basis(8).to_string(), "TP 8: points");
        assert_eq!(h100.link.p2p_on.basis(8).note(), None);
        // one row is copied only where its table says so
        let mut one = table(&two[1..]);
        for tp in [2, 8] {
            let problem = one.basis(tp).problem("p2p_on").unwrap();
            assert!(problem.contains("TP 4") && problem.contains("--extrapolate"), "{problem}");
        }
        assert_eq!(one.basis(4).problem("p2p_on"), None);
        one.extrapolate = true;
        let copied = one.basis(8);
        assert!(matches!(copied.rows, BasisRows::Extrapolated(..)));
        assert_eq!(copied.problem("p2p_on"), None);
        assert_eq!(one.note(8).unwrap(), "TP 8 extrapolated from TP 4 only");
    }

    fn us(profile: &Profile, collective: Collective, p2p: P2p, tp: u32, bytes: f64) -> f64 {
        profile.collective(collective, p2p, tp, CollectiveScale::ALONE).0.us(bytes).0
    }

    #[test]
    fn rows_are_exact_and_what_lies_between_follows_log2_tp() {
        let table = table(&[(2, 10.0, 400.0), (8, 30.0, 100.0)]);
        assert_eq!(table.at(2).0, 10.0);
        assert!((table.at(8).1 - 100.0).abs() < 1e-9);
        let (four, sixteen) = (table.at(4), table.at(16));
        assert!((four.0 - 20.0).abs() < 1e-9 && (four.1 - 200.0).abs() < 1e-9);
        assert!((sixteen.0 - 40.0).abs() < 1e-9 && (sixteen.1 - 50.0).abs() < 1e-9);
        assert_eq!(table.us(8, 1e6, CollectiveScale::ALONE).0, 40.0);
    }

    #[test]
    fn one_rank_needs_no_time_and_one_row_is_constant() {
        let table = table(&[(2, 10.0, 400.0)]);
        assert_eq!(table.at(1), (0.0, f64::INFINITY));
        assert_eq!(table.us(1, 1e9, CollectiveScale::ALONE).0, 0.0);
        assert_eq!(table.us(2, 1e6, CollectiveScale::ALONE), table.us(64, 1e6, CollectiveScale::ALONE));
    }

    #[test]
    fn measured_points_come_back_and_their_parts_scale() {
        let mut profile = Profile::load("h100_sxm").unwrap();
        let at = |profile: &Profile, bytes| us(profile, Collective::Nccl, P2p::On, 8, bytes);
        assert!((at(&profile, 1_048_576.0) - 25.41).abs() < 0.3, "{}", at(&profile, 1_048_576.0));
        assert!((at(&profile, 536_870_912.0) - 2111.72).abs() < 3.0);
        let (small, large) = (at(&profile, 1024.0), at(&profile, 536_870_912.0));
        let point = profile.link.p2p_on.tp.get_mut(&8).unwrap();
        point.alpha_us *= 2.0;
        let slower = (at(&profile, 1024.0), at(&profile, 536_870_912.0));
        assert!((slower.0 / small - 2.0).abs() < 0.01 && slower.1 / large < 1.1, "{slower:?}");
        let point = profile.link.p2p_on.tp.get_mut(&8).unwrap();
        point.alpha_us /= 2.0;
        point.gb_s *= 2.0;
        let faster = (at(&profile, 1024.0), at(&profile, 536_870_912.0));
        assert!(faster.0 / small > 0.99 && faster.1 / large < 0.6, "{faster:?}");
    }

    #[test]
    fn formulas_never_get_faster_with_the_message_and_interpolation_stays_between_its_points() {
        for profile in Profile::built_in() {
            let links = [Some(&profile.link.p2p_on), Some(&profile.link.p2p_off)];
            for point in links.into_iter().chain([profile.link.one_shot.as_ref()]).flatten() {
                for row in point.tp.values() {
                    let (_, gb_s) = row.measured().unwrap_or((row.alpha_us, row.gb_s));
                    // measurements are noisy: a larger message may have been faster, but nothing
                    // between two points lies outside them
                    for pair in row.points.windows(2) {
                        let (low, high) = (pair[0].1.min(pair[1].1), pair[0].1.max(pair[1].1));
                        for share in [0.25, 0.5, 0.75] {
                            let gap = (pair[1].0 - pair[0].0) as f64;
                            let us = row.interpolated(pair[0].0 as f64 + share * gap, gb_s).0;
                            assert!(low <= us * 1.000_001 && us <= high * 1.000_001, "{}", profile.name);
                        }
                    }
                    if row.points.is_empty() {
                        let times: Vec<f64> = (8..31)
                            .map(|power| row.us(f64::from(1 << power), CollectiveScale::ALONE).0)
                            .collect();
                        assert!(times.is_sorted(), "{}: {times:?}", profile.name);
                    }
                }
            }
        }
    }

    #[test]
    fn transfers_scale_apart_from_latency_of_points_and_of_formulas() {
        let half = CollectiveScale { latency_scale: 3.0, transfer_scale: 0.5 };
        let mut point = LinkPoint::formula(10.0, 1.0);
        assert_eq!(point.us(1000.0, half).0, 10.5);
        point.large = Some(LargeMessages { alpha_us: 50.0, gb_s: 100.0 });
        assert_eq!(point.us(1e6, half).0, 55.0);
        let h100 = Profile::load("h100_sxm").unwrap();
        let nccl = |bytes, scale| h100.link.p2p_on.us(8, bytes, scale);
        let transfer = 1e6 / (h100.link(P2p::On, 8).1 * 1e3);
        let (alone, _) = nccl(1e6, CollectiveScale::ALONE);
        let (less, source) = nccl(1e6, CollectiveScale { latency_scale: 1.0, transfer_scale: 0.5 });
        assert!((alone - less - 0.5 * transfer).abs() < 0.02 && source == CostSource::Calibrated);
    }

    /// The older mesh has no switch: whatever an engine makes of latency, it is no faster.
    #[test]
    fn an_engines_latency_counts_on_the_mesh_as_on_the_switch() {
        let [mesh, switch] = ["a100_mesh", "a100_sxm"].map(|name| Profile::load(name).unwrap());
        let gpt_fast = CollectiveScale { latency_scale: 1.485, transfer_scale: 1.0 };
        let none = CollectiveScale::ALONE;
        for (collective, p2p) in
            [(Collective::Nccl, P2p::On), (Collective::Nccl, P2p::Off), (Collective::OneShot, P2p::On)]
        {
            for tp in [2, 4, 8] {
                let us = |profile: &Profile, scale, bytes| {
                    profile.collective(collective, p2p, tp, scale).0.us(bytes).0
                };
                let told = format!("{collective} {p2p:?} {tp}");
                assert!(us(&mesh, gpt_fast, 16_384.0) > 1.1 * us(&mesh, none, 16_384.0), "{told}");
                for bytes in [16_384.0, 1_048_576.0] {
                    assert!(
                        us(&mesh, gpt_fast, bytes) >= 0.999 * us(&switch, gpt_fast, bytes),
                        "{told}"
                    );
                }
            }
        }
    }

    #[test]
    fn tp_above_a_node_pays_for_the_network_too() {
        let profile = Profile::load("h100_sxm").unwrap();
        let (inside, outside) = (profile.link(P2p::On, 8), &profile.link.inter_node);
        let (alpha_us, gb_s) = profile.link(P2p::On, 16);
        assert!((alpha_us - inside.0 - outside.alpha_us).abs() < 1e-9);
        // two nodes: each byte crosses the network once in each direction
        assert!((1.0 / gb_s - 1.0 / inside.1 - 1.0 / outside.gb_s).abs() < 1e-12);
        assert!(profile.link(P2p::On, 32).0 > alpha_us);
        let of = |tp| us(&profile, Collective::Nccl, P2p::On, tp, 32768.0);
        assert!((of(16) - of(8) - outside.alpha_us - 32768.0 / (outside.gb_s * 1e3)).abs() < 1e-9);
    }

    #[test]
    fn one_shot_falls_back_to_nccl_without_p2p_and_says_so() {
        let profile = Profile::load("h100_sxm").unwrap();
        let used = |profile: &Profile, p2p| {
            profile.collective(Collective::OneShot, p2p, 8, CollectiveScale::ALONE).1
        };
        assert_eq!(used(&profile, P2p::On), Collective::OneShot);
        assert_eq!(used(&profile, P2p::Off), Collective::Nccl);
        let both = |collective| us(&profile, collective, P2p::On, 8, 16384.0);
        assert!(both(Collective::OneShot) < both(Collective::Nccl) / 2.0);
        // TokenWeave, figure 4: (MiB, reduce-scatter, all-gather in us) over multimem on 8 H100s
        let (cost, _) = profile.collective(Collective::Multimem, P2p::On, 8, CollectiveScale::ALONE);
        for (mib, scatter, gather) in [(16, 59.1, 55.23), (128, 381.41, 368.96), (512, 1485.06, 1443.74)]
        {
            let half = cost.half_us(f64::from(mib) * f64::from(1 << 20)).0;
            assert!((half / scatter - 1.0).abs() < 0.05 && (half / gather - 1.0).abs() < 0.06, "{half}");
        }
        // below them the measured halves take more than this rule gives them
        let small = cost.half_us(f64::from(1 << 20)).0;
        assert!(small > 13.0 && small < 16.1, "{small}");
        // without rows of its own a GPU has it scaled, and says from which
        let a100 = Profile::load("a100_sxm").unwrap();
        assert_eq!(used(&a100, P2p::On), Collective::OneShot);
        assert!(!a100.link.one_shot.as_ref().unwrap().is_measured(8));
        let note = a100.link.one_shot.unwrap().note(8).unwrap();
        assert!(note.contains("not measured on a100_sxm: scaled from h100_sxm"), "{note}");
    }
}
