//! Collectives: their cost in one cell, and the latency tables of all-reduces other than NCCL's.
//!
//! Measured rows (`tables/collectives.toml`) cover few GPUs, rank counts and messages. [`complete`] adds a
//! table for every collective missing in a profile's file; each point's note states its basis:
//!
//! - Another message or TP on a measured GPU: the profile's latency of the collective measured by the
//!   same source (NCCL; multimem for `fused`), times the ratio of the two at the nearest message.
//! - Another GPU: the latency of [`REFERENCE`], and a bandwidth scaled by the ratio of the NCCL
//!   bandwidths.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use base::text::binary_size;
use serde::Deserialize;

use super::CostSource;
use super::link::{BasisRows, LinkBasis, LinkPoint, LinkTable, Links};
use super::profile::Profile;
use super::stack::{CollectiveScale, Engine, EngineVersion, major_minor};
use table::{Collective, P2p};

#[derive(Clone, Debug)]
pub enum CollectiveCost<'a> {
    /// Emulated link: a formula.
    Formula {
        /// Latency of an empty message (us).
        alpha_us: f64,
        /// Message bandwidth (1e9 bytes per second).
        gb_s: f64,
    },
    Link {
        /// Intra-node all-reduce latency by number of ranks.
        table: &'a LinkTable,
        tp: u32,
        /// Scale of latency and transfer time within a model.
        scale: CollectiveScale,
        /// Added by the network.
        network: NetworkCost,
        /// Share of an all-reduce's transfer time taken by a reduce-scatter or all-gather.
        half: f64,
        own: Collective,
        /// NCCL's table, which an engine uses for messages that it reduces faster.
        nccl: Option<&'a LinkTable>,
    },
    /// The fastest of several at each message size; NCCL's first.
    Fastest(Vec<(Collective, Self)>),
}

/// Time that the network between nodes adds to a collective.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NetworkCost {
    us: f64,
    us_per_byte: f64,
}

impl NetworkCost {
    fn at(self, bytes: f64) -> f64 {
        self.us + bytes * self.us_per_byte
    }
}

impl CollectiveCost<'_> {
    /// The cost at a message size, and the all-reduce that `fastest` takes there.
    fn at(&self, bytes: f64) -> (&Self, Option<Collective>) {
        let Self::Fastest(all) = self else { return (self, None) };
        let us = |one: &&(Collective, Self)| one.1.us(bytes).0;
        let fastest = all.iter().min_by(|a, b| us(a).total_cmp(&us(b)));
        fastest.map_or((self, None), |(collective, cost)| (cost, Some(*collective)))
    }

    /// All-reduce used at a message size by `fastest`, or by an engine that switches to NCCL; `None` for a fixed one.
    pub fn choice(&self, bytes: f64) -> Option<Collective> {
        match self {
            Self::Link { table, tp, scale, own, nccl: Some(nccl), .. } => {
                let us = |table: &LinkTable| table.us(*tp, bytes, *scale).0;
                Some(if us(nccl) < us(table) { Collective::Nccl } else { *own })
            }
            _ => self.at(bytes).1,
        }
    }

    /// Message sizes (bytes) at which the all-reduce changes, ascending from 0, up to 1 GiB; empty for a fixed one.
    pub fn switches(&self) -> Vec<(u64, Collective)> {
        let mut found: Vec<(u64, Collective)> = Vec::new();
        let sizes = (80..=240).map(|eighth| 2_f64.powf(f64::from(eighth) / 8.0) as u64);
        let mut below = 0;
        for bytes in sizes {
            let Some(choice) = self.choice(bytes as f64) else { return Vec::new() };
            match found.last() {
                Some((_, before)) if *before == choice => {}
                None => found.push((0, choice)),
                Some(_) => {
                    // the first size with the new one, to the byte
                    let (mut low, mut high) = (below, bytes);
                    while high - low > 1 {
                        let middle = u64::midpoint(low, high);
                        match self.choice(middle as f64) == Some(choice) {
                            true => high = middle,
                            false => low = middle,
                        }
                    }
                    found.push((high, choice));
                }
            }
            below = bytes;
        }
        found
    }

    /// Latency of an all-reduce (us) and its cost source.
    pub fn us(&self, bytes: f64) -> (f64, CostSource) {
        match self {
            Self::Formula { alpha_us, gb_s } => (alpha_us + bytes / (gb_s * 1e3), CostSource::Roofline),
            Self::Link { table, tp, scale, network, nccl, .. } => {
                let (own, of_nccl) =
                    (table.us(*tp, bytes, *scale), nccl.map(|t| t.us(*tp, bytes, *scale)));
                let (us, source) = of_nccl.filter(|nccl| nccl.0 < own.0).unwrap_or(own);
                let source = if network.us > 0.0 { CostSource::Calibrated } else { source };
                (us + network.at(bytes), source)
            }
            Self::Fastest(_) => match self.at(bytes) {
                (cost, Some(_)) => cost.us(bytes),
                (_, None) => (0.0, CostSource::Calibrated),
            },
        }
    }

    /// Latency of an all-reduce when run back to back, as in nccl-tests (us).
    pub fn alone_us(&self, bytes: f64) -> f64 {
        match self.at(bytes).0 {
            Self::Link { table, tp, network, nccl, .. } => {
                let of_nccl = nccl.map_or(f64::INFINITY, |nccl| nccl.alone_us(*tp, bytes));
                table.alone_us(*tp, bytes).min(of_nccl) + network.at(bytes)
            }
            other => other.us(bytes).0,
        }
    }

    /// Latency of a reduce-scatter of a message, or of an all-gather with that result (us): the latency
    /// of an empty all-reduce plus [a share](table::AboutCollective::half) of its transfer time.
    pub fn half_us(&self, bytes: f64) -> (f64, CostSource) {
        let cost = self.at(bytes).0;
        let half = match cost {
            Self::Link { half, .. } => *half,
            _ => 0.5,
        };
        let ((whole, _), (none, _)) = (cost.us(bytes), cost.us(0.0));
        (none + half * (whole - none).max(0.0), CostSource::Calibrated)
    }

    /// True for the formula of an emulated link.
    pub fn is_formula(&self) -> bool {
        matches!(self, Self::Formula { .. })
    }

    pub fn note(&self) -> Option<String> {
        match self {
            Self::Formula { .. } => None,
            Self::Link { table, tp, .. } => table.note(*tp),
            Self::Fastest(all) => {
                let names: Vec<&str> = all.iter().map(|(collective, _)| collective.as_str()).collect();
                Some(format!(
                    "at each message size the fastest of {}, which differ in their sources",
                    names.join(", ")
                ))
            }
        }
    }

    /// Profile rows behind the latencies; `None` for an emulated link.
    pub fn basis(&self) -> Option<LinkBasis> {
        match self {
            Self::Formula { .. } => None,
            Self::Link { table, tp, .. } => Some(table.basis(*tp)),
            Self::Fastest(all) => all.first()?.1.basis(),
        }
    }

    /// True if the message size lies within the measured range; always true for an emulated link.
    pub fn covers(&self, bytes: f64) -> bool {
        match self.at(bytes).0 {
            Self::Link { table, tp, .. } => table.covers(*tp, bytes),
            _ => true,
        }
    }

    /// Thread blocks of a collective of this message size, if known.
    pub fn ctas(&self, bytes: f64) -> Option<u32> {
        match self.at(bytes).0 {
            Self::Link { table, tp, .. } => table.ctas(*tp),
            _ => None,
        }
    }
}

impl Profile {
    /// NCCL all-reduce as a formula (alpha_us, gb_s of message bytes) for `tp` ranks; (0, infinite) for
    /// one rank. TP above `gpus_per_node` spans nodes.
    pub fn link(&self, p2p: P2p, tp: u32) -> (f64, f64) {
        let (table, _) = self.table_of(Collective::Nccl, p2p, tp);
        let (alpha_us, gb_s) = table.at(tp.min(self.gpus_per_node));
        let network = self.network(tp);
        if network == NetworkCost::default() {
            return (alpha_us, gb_s);
        }
        (alpha_us + network.us, 1.0 / (1.0 / gb_s + network.us_per_byte * 1e3))
    }

    /// Cost of a collective for `tp` ranks, and the collective actually used. All except NCCL's need P2P
    /// and ranks within one node; otherwise NCCL's replaces them, as in engines.
    pub fn collective(
        &self,
        collective: Collective,
        p2p: P2p,
        tp: u32,
        scale: CollectiveScale,
    ) -> (CollectiveCost<'_>, Collective) {
        let is_known = |one: &Collective| {
            self.table_of(*one, p2p, tp).1 == *one && self.link_problem(*one, p2p, tp).is_none()
        };
        let all: Vec<Collective> = match collective {
            Collective::Fastest => Collective::ALL
                .into_iter()
                .filter(|one| one.about().is_choice && is_known(one))
                .collect(),
            _ => Vec::new(),
        };
        if all.len() > 1 {
            let all = all.into_iter().map(|one| (one, self.collective(one, p2p, tp, scale).0)).collect();
            return (CollectiveCost::Fastest(all), Collective::Fastest);
        }
        let (table, used) = self.table_of(collective, p2p, tp);
        let (tp, network) = (tp.min(self.gpus_per_node), self.network(tp));
        let half = used.about().half;
        (CollectiveCost::Link { table, tp, scale, network, half, own: used, nccl: None }, used)
    }

    /// Like [`Profile::collective`], with the engine's own kernels for `one-shot` and TensorRT-LLM's for `fused`
    /// (FlashInfer uses the same) if they were measured on the GPU. Engines take NCCL where it is faster.
    pub fn collective_in(
        &self,
        engine: Option<EngineVersion>,
        collective: Collective,
        p2p: P2p,
        tp: u32,
        scale: CollectiveScale,
    ) -> (CollectiveCost<'_>, Collective) {
        let (mut cost, used) = self.collective(collective, p2p, tp, scale);
        let engine = match (engine, used) {
            (Some(engine), Collective::OneShot) => Some(engine),
            (Some((Engine::TrtLlm, version)), Collective::Fused) => Some((Engine::TrtLlm, version)),
            // FlashInfer's version is not the engine's
            (Some(_), Collective::Fused) => Some((Engine::TrtLlm, None)),
            _ => None,
        };
        let kernels = engine.and_then(|engine| kernels(&self.name, engine));
        if let (CollectiveCost::Link { table, nccl, .. }, Some(kernels)) = (&mut cost, kernels) {
            (*table, *nccl) = (kernels, Some(&self.link.p2p_on));
        }
        (cost, used)
    }

    /// Table for an all-reduce, and the collective it belongs to: NCCL's if the requested one is
    /// impossible or unmeasured.
    pub fn table_of(&self, collective: Collective, p2p: P2p, tp: u32) -> (&LinkTable, Collective) {
        let is_possible = p2p == P2p::On && tp <= self.gpus_per_node;
        match (self.link.table(collective).filter(|_| is_possible), p2p) {
            (Some(table), _) => (table, collective),
            (None, P2p::On) => (&self.link.p2p_on, Collective::Nccl),
            (None, P2p::Off) => (&self.link.p2p_off, Collective::Nccl),
        }
    }

    /// Source of latencies that another GPU or setting stands in for: `all-reduces of rtx_pro_6000`; `None` if they are this
    /// GPU's own.
    pub fn stand_in(&self, collective: Collective, p2p: P2p, tp: u32) -> Option<&str> {
        let note = self.table_of(collective, p2p, tp).0.note.as_deref()?;
        let (kind, source) = note.split_once(": ")?;
        kind.starts_with("stand-in").then_some(source)
    }

    /// Table rows behind a collective's latencies at `tp` ranks.
    pub fn link_basis(&self, collective: Collective, p2p: P2p, tp: u32) -> LinkBasis {
        self.table_of(collective, p2p, tp).0.basis(tp.min(self.gpus_per_node))
    }

    /// Explains why a collective has no latency at `tp` ranks (link not measured there).
    pub fn link_problem(&self, collective: Collective, p2p: P2p, tp: u32) -> Option<String> {
        let (table, _) = self.table_of(collective, p2p, tp);
        // a table scaled from NCCL's has the same gaps as NCCL's
        let missing = if table.scaled.is_some() { &self.link.p2p_on } else { table };
        let name = self.link.tables().find(|(_, known)| std::ptr::eq(*known, missing))?.0;
        let inside = tp.min(self.gpus_per_node);
        table.basis(inside).problem(name).filter(|_| inside > 1)
    }

    /// Inter-node overhead of an all-reduce; zero within a node.
    fn network(&self, tp: u32) -> NetworkCost {
        let nodes = f64::from(tp.div_ceil(self.gpus_per_node.max(1)).max(1));
        if nodes <= 1.0 {
            return NetworkCost::default();
        }
        let outside = &self.link.inter_node;
        NetworkCost {
            us: outside.alpha_us * nodes.log2(),
            us_per_byte: 2.0 * (nodes - 1.0) / nodes / (outside.gb_s * 1e3),
        }
    }
}

/// All-reduce kernels of an engine on a GPU, in CUDA graphs, if measured: of the oldest measured version that is not
/// older than the engine's, else of the newest.
fn kernels(gpu: &str, (engine, version): EngineVersion) -> Option<&'static LinkTable> {
    type Versions = Vec<([u32; 2], LinkTable)>;
    static KERNELS: LazyLock<BTreeMap<(&'static str, Engine), Versions>> = LazyLock::new(|| {
        let text = include_str!("tables/all_reduce.tsv");
        let mut lines = text.lines().filter(|line| !line.starts_with('#'));
        let head = lines.next().unwrap_or_default();
        let bytes: Vec<u64> = head.split('\t').skip(4).filter_map(|v| v.parse().ok()).collect();
        let mut kernels = BTreeMap::<_, Versions>::new();
        let mut before = "";
        // rows of a version follow each other, versions ascend
        for line in lines {
            let fields: Vec<&'static str> = line.split('\t').collect();
            let [gpu, name, full, tp, us @ ..] = fields.as_slice() else { continue };
            let (Ok(engine), Ok(tp)) = (name.parse::<Engine>(), tp.parse()) else { continue };
            // disturbed measurements are empty
            let points = bytes.iter().zip(us).filter_map(|(bytes, us)| Some((*bytes, us.parse().ok()?)));
            let points: Vec<(u64, f64)> = points.collect();
            let Some(&(most, us)) = points.last() else { continue };
            let range = (points[0].0, most);
            let versions = kernels.entry((*gpu, engine)).or_default();
            if versions.is_empty() || before != *full {
                versions.push((major_minor(full).unwrap_or_default(), LinkTable::default()));
            }
            before = full;
            let note = format!("kernel of {engine} {full} in CUDA graphs (aiconfigurator @095f58a)");
            if let Some((_, table)) = versions.last_mut() {
                table.tp.insert(tp, point(points, most as f64 / us / 1e3, None, range, note));
            }
        }
        kernels
    });
    let versions = KERNELS.iter().find(|((of, by), _)| *of == gpu && *by == engine)?.1;
    let fits = version.and_then(|wanted| versions.iter().find(|(version, _)| *version >= wanted));
    fits.or(versions.last()).map(|(_, table)| table)
}

/// GPU with the most rows; others are scaled from it.
pub(super) const REFERENCE: &str = "h100_sxm";

/// Measurements of one collective at one TP by one source.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Measured {
    gpus: Vec<String>,
    tp: u32,
    collective: Collective,
    source: String,
    ctas: Option<u32>,
    /// Collective whose kernel handles messages below the measured range.
    smaller: Option<Collective>,
    /// Measured message sizes in bytes, ascending.
    bytes: Vec<u64>,
    /// Latency of each message (us).
    us: Vec<f64>,
    /// Reference collective measured by the same source, if any.
    beside: Option<Collective>,
    /// Latency of the reference collective (us).
    #[serde(default)]
    beside_us: Vec<f64>,
}

static MEASURED: LazyLock<Vec<Measured>> = LazyLock::new(|| {
    #[derive(Deserialize)]
    struct File {
        measured: Vec<Measured>,
    }
    let file: Option<File> = toml::from_str(include_str!("tables/collectives.toml")).ok();
    file.map(|file| file.measured).unwrap_or_default()
});

/// Links of the reference GPU, with all tables.
static OF_REFERENCE: LazyLock<Option<Links>> = LazyLock::new(|| {
    let text = Profile::built_in_text(REFERENCE)?;
    let mut links = toml::from_str::<Profile>(text).ok()?.link;
    for collective in Collective::ALL {
        if links.table(collective).is_none() {
            let table = of_rows(&links, collective);
            links.put(collective, table);
        }
    }
    Some(links)
});

impl Measured {
    fn ends(&self) -> (u64, u64) {
        (self.bytes.first().copied().unwrap_or(0), self.bytes.last().copied().unwrap_or(0))
    }

    /// Measured message range, in words.
    fn range(&self) -> String {
        let (low, high) = self.ends();
        format!("{} to {}", binary_size(low as f64), binary_size(high as f64))
    }

    /// Ratio of the latency to the reference collective's, interpolated in logarithms and constant
    /// beyond the measured range.
    fn ratio(&self, bytes: u64) -> f64 {
        let ratio = |at: usize| self.us[at] / self.beside_us.get(at).copied().unwrap_or(self.us[at]);
        let above = self.bytes.partition_point(|known| *known < bytes);
        match (above.checked_sub(1), self.bytes.get(above)) {
            (Some(low), Some(&high)) => {
                let from = self.bytes[low] as f64;
                let t = (bytes as f64 / from).ln() / (high as f64 / from).ln();
                ratio(low) * (ratio(above) / ratio(low)).powf(t)
            }
            (low, _) => ratio(low.unwrap_or(0)),
        }
    }

    /// Rows of a collective on a GPU nearest to `tp` ranks.
    fn nearest(gpu: &str, collective: Collective, tp: u32) -> Option<&'static Self> {
        let away = |rows: &&Self| (f64::from(rows.tp) / f64::from(tp)).log2().abs();
        MEASURED
            .iter()
            .filter(|rows| rows.collective == collective && rows.gpus.iter().any(|known| known == gpu))
            .min_by(|a, b| away(a).total_cmp(&away(b)))
    }
}

/// Adds a table for each collective missing in a GPU's links.
pub(super) fn complete(links: &mut Links, gpu: &str) {
    let Some(reference) = OF_REFERENCE.as_ref() else { return };
    for collective in Collective::ALL {
        if !links.lacks(collective)
            && links.table(collective).is_none()
            && let Some(known) = reference.table(collective)
        {
            let is_reference = gpu == REFERENCE && links.p2p_on == reference.p2p_on;
            let table =
                if is_reference { known.clone() } else { elsewhere(links, gpu, collective, known) };
            // without any TP with known NCCL latency, NCCL replaces the collective
            links.put(collective, (!table.tp.is_empty()).then_some(table));
        }
    }
}

/// Table of a collective on the reference GPU: rows of the TP itself, or scaled from the nearest TP.
fn of_rows(links: &Links, collective: Collective) -> Option<LinkTable> {
    let mut tp = BTreeMap::new();
    for (&ranks, nccl) in &links.p2p_on.tp {
        let rows = Measured::nearest(REFERENCE, collective, ranks)?;
        let beside = rows.beside.unwrap_or_default();
        let base = links.table(beside)?.tp.get(&ranks)?;
        let scaled = |bytes: u64| base.alone_us(bytes as f64) * rows.ratio(bytes);
        // messages below the range scale with the collective whose kernel handles them, if any
        let (low, high) = rows.ends();
        let kernel = rows.smaller.and_then(|smaller| {
            let table = links.table(smaller)?;
            let there = table.tp.get(&rows.tp)?.alone_us(low as f64);
            Some((smaller, table.tp.get(&ranks)?, rows.us.first()? / there))
        });
        let smaller = |bytes: u64| match kernel {
            Some((_, table, factor)) => factor * table.alone_us(bytes as f64),
            None => scaled(bytes),
        };
        let grid = nccl.points.iter().map(|point| point.0);
        let (below, above): (Vec<u64>, Vec<u64>) = grid.partition(|&bytes| bytes < low);
        let own = rows.tp == ranks;
        let within: Vec<(u64, f64)> = if own {
            rows.bytes.iter().copied().zip(rows.us.iter().copied()).collect()
        } else {
            above.iter().filter(|bytes| **bytes <= high).map(|&bytes| (bytes, scaled(bytes))).collect()
        };
        let (least, most) = (within.first()?.1, within.last()?.1);
        let small = below.into_iter().map(|bytes| (bytes, smaller(bytes).min(least)));
        let large = above.into_iter().filter(|bytes| *bytes > high);
        let large = large.map(|bytes| (bytes, scaled(bytes).max(most)));
        let points = rising(small.chain(within).chain(large).collect());
        let others = match kernel {
            Some((smaller, _, factor)) => format!(
                "smaller messages {factor:.2} x {smaller}, larger ones in proportion to {beside}"
            ),
            None => format!("other messages in proportion to {beside}"),
        };
        let (source, range) = (&rows.source, rows.range());
        let note = match own {
            true => format!("{source}: measured from {range}; {others} as at the nearest of these"),
            false => format!(
                "{source}: not measured at TP {ranks}, scaled from TP {} in proportion to {beside}; {others}",
                rows.tp
            ),
        };
        let measured = if own { (low, high) } else { (0, 0) };
        tp.insert(ranks, point(points, base.gb_s / rows.ratio(high), rows.ctas, measured, note));
    }
    (!tp.is_empty()).then_some(LinkTable { note: None, extrapolate: false, tp, scaled: None })
}

/// Table of a collective on another GPU: the reference's latency and a bandwidth scaled with NCCL's. The
/// GPU's own rows take precedence, with larger messages extrapolated as on the reference.
fn elsewhere(links: &Links, gpu: &str, collective: Collective, known: &LinkTable) -> LinkTable {
    let reference = OF_REFERENCE.as_ref().map(|reference| &reference.p2p_on);
    let (mut tp, mut of_nccl) = (BTreeMap::new(), BTreeMap::new());
    for (&ranks, of_reference) in &known.tp {
        let nccl = links.p2p_on.basis(ranks);
        if matches!(nccl.rows, BasisRows::Missing(_)) {
            continue;
        }
        let there = reference.map_or(f64::INFINITY, |nccl| nccl.at(ranks).1);
        let factor = links.p2p_on.at(ranks).1 / there;
        let scaled = LinkPoint { gb_s: of_reference.gb_s * factor, ..of_reference.clone() };
        let from = format!("from {REFERENCE} (latency as there, bandwidth x {factor:.2} as NCCL's)");
        let rows = Measured::nearest(gpu, collective, ranks);
        let (low, high) = rows.map_or((0, 0), Measured::ends);
        let mut points: Vec<(u64, f64)> = Vec::new();
        let there = known.note(ranks).map(|there| format!(", where {there}")).unwrap_or_default();
        let mut source = format!("not measured on {gpu}: scaled {from}{there}");
        if let Some(rows) = rows {
            points.extend(rows.bytes.iter().copied().zip(rows.us.iter().copied()));
            let at = if rows.tp == ranks { String::new() } else { format!("as at TP {}, ", rows.tp) };
            let (measured_by, range) = (&rows.source, rows.range());
            source = format!("{measured_by}: {at}measured from {range}; larger messages scaled {from}");
        }
        let larger = scaled.points.iter().map(|point| point.0).filter(|bytes| *bytes > high);
        points.extend(larger.map(|bytes| (bytes, scaled.alone_us(bytes as f64))));
        let measured = rows.filter(|rows| rows.tp == ranks).map_or((0, 0), |_| (low, high));
        if measured == (0, 0) && nccl.note().is_some() {
            of_nccl.insert(ranks, nccl.rows);
        }
        let ctas = rows.and_then(|rows| rows.ctas).or(scaled.ctas);
        tp.insert(ranks, point(rising(points), scaled.gb_s, ctas, measured, source));
    }
    LinkTable { note: None, extrapolate: links.p2p_on.extrapolate, tp, scaled: Some(of_nccl) }
}

/// Makes latencies non-decreasing: where sources disagree, raises the larger message's.
fn rising(mut points: Vec<(u64, f64)>) -> Vec<(u64, f64)> {
    let mut least = 0.0_f64;
    for point in &mut points {
        least = least.max((point.1 * 1e3).round() / 1e3);
        point.1 = least;
    }
    points
}

/// Point with latency and bandwidth derived from its own measurements, so that nothing is rescaled.
fn point(
    points: Vec<(u64, f64)>,
    gb_s: f64,
    ctas: Option<u32>,
    measured: (u64, u64),
    note: String,
) -> LinkPoint {
    let (measured_bytes, note) = (Some(measured), Some(note));
    LinkPoint { ctas, measured_bytes, note, ..LinkPoint::through(points, gb_s) }
}

#[cfg(test)]
mod tests;
