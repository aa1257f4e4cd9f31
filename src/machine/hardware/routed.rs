//! Latency of routed experts and of their exchanges, from tables; messages between pipeline stages.

use super::CostSource;
use super::link::LinkTable;
use super::profile::Profile;
use super::stack::Engine;
use super::tables::{ExpertSections, Grid, Tables};
use plan::DType;
use table::{Collective, P2p};

/// Shape of a layer's routed experts, and how ranks divide them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpertSizes {
    pub hidden: u32,
    pub width: u32,
    pub top_k: u32,
    pub experts: u32,
    /// Ranks that share each expert.
    pub tp: u32,
    /// Ranks among which whole experts are divided.
    pub ep: u32,
}

/// Sizes of an exchange of rows between all ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AllToAll {
    /// True for the way back, from experts to tokens.
    pub is_combine: bool,
    pub ranks: u32,
    /// Columns of a row's copies: hidden x top-k.
    pub copies: u32,
    /// Rows of each rank.
    pub rows: f64,
    /// Bytes of a rank's copies in the activations' format.
    pub bytes: f64,
}

impl ExpertSections {
    /// Its sizes, divided among ranks like others.
    fn divided_like(&self, sizes: ExpertSizes) -> ExpertSizes {
        let [hidden, width, top_k, experts] = self.sizes;
        ExpertSizes { hidden, width, top_k, experts, ..sizes }
    }
}

impl ExpertSizes {
    /// True if no size is larger than the other's.
    fn is_within(&self, other: &Self) -> bool {
        let sizes = |sizes: &Self| [sizes.hidden, sizes.width, sizes.top_k, sizes.experts];
        sizes(self).into_iter().zip(sizes(other)).all(|(own, other)| own <= other)
    }
}

/// Measured experts with their latency (us) for some tokens.
#[derive(Debug)]
struct KnownExperts {
    sizes: ExpertSizes,
    us: f64,
    source: CostSource,
}

/// Ratio of latency to roofline of experts whose hidden size and width were measured: interpolated over their number
/// between the two nearest, as few experts have another ratio than many; the nearest one's outside of them and with another
/// top-k, which counts as a roofline. 1 if nothing was measured.
fn similar_ratio(
    known: &[KnownExperts],
    sizes: ExpertSizes,
    roofline_us: &dyn Fn(&ExpertSizes) -> f64,
) -> (f64, CostSource) {
    let ratio = |a: u32, b: u32| (f64::from(a) / f64::from(b)).ln().abs();
    let distance = |known: &KnownExperts| {
        ratio(known.sizes.top_k, sizes.top_k) + ratio(known.sizes.experts, sizes.experts)
    };
    let is_same_width =
        |known: &&KnownExperts| (known.sizes.hidden, known.sizes.width) == (sizes.hidden, sizes.width);
    let mut same_width: Vec<&KnownExperts> = known.iter().filter(is_same_width).collect();
    same_width.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
    let Some((first, others)) = same_width.split_first() else { return (1.0, CostSource::Roofline) };
    let log_ratio = |known: &KnownExperts| (known.us / roofline_us(&known.sizes)).ln();
    let near = log_ratio(first);
    let is_between = |other: &&&KnownExperts| {
        other.sizes.top_k == first.sizes.top_k
            && (other.sizes.experts < sizes.experts) != (first.sizes.experts < sizes.experts)
    };
    let Some(second) = others.iter().find(is_between) else {
        return (near.exp(), CostSource::Roofline);
    };
    let log = |experts: u32| f64::from(experts).ln();
    let weight = (log(sizes.experts) - log(first.sizes.experts))
        / (log(second.sizes.experts) - log(first.sizes.experts));
    let is_measured = first.sizes.top_k == sizes.top_k;
    let own = if is_measured { CostSource::Interpolated } else { CostSource::Roofline };
    let source = first.source.max(second.source).max(own);
    ((near + weight * (log_ratio(second) - near)).exp(), source)
}

impl Tables {
    /// Latency of a layer's routed experts on one rank, for tokens of all ranks whose choices are spread evenly
    /// (us): the engine's, or another's if it was not measured at this TP and EP. Without an engine the quickest,
    /// and also in TensorRT-LLM: its newest kernels were measured in the engines that call them as a library.
    /// `None` for other shapes and formats than were measured.
    pub fn experts_us(
        &self,
        engine: Option<Engine>,
        format: DType,
        sizes: ExpertSizes,
        tokens: f64,
    ) -> Option<(f64, CostSource)> {
        let ExpertSizes { hidden, width, top_k, experts, tp, ep } = sizes;
        let is_asked = |shape: &&ExpertSections| {
            shape.format == format && shape.sizes == [hidden, width, top_k, experts]
        };
        let shape = self.experts().iter().find(is_asked)?;
        let us_in = |engine: Engine| self.experts_in(shape, engine)?.along(tp.into(), ep.into(), tokens);
        let others = || Engine::ALL.into_iter().filter_map(us_in);
        match engine {
            Some(engine @ (Engine::Vllm | Engine::Sglang)) => us_in(engine).or_else(|| others().next()),
            Some(Engine::TrtLlm) | None => others().min_by(|a, b| a.0.total_cmp(&b.0)),
        }
    }

    /// Latency of unmeasured experts (us): their roofline times the ratio of latency to roofline of measured ones of the
    /// same hidden size and width; see `similar_ratio`. Another width has the nearest one's ratio, and between two
    /// measured widths the latency is linear. So wider experts are not faster, except by up to 1.4 % between the two
    /// widths of hidden size 4096.
    pub fn similar_experts(
        &self,
        engine: Option<Engine>,
        format: DType,
        sizes: ExpertSizes,
        tokens: f64,
        roofline_us: &dyn Fn(&ExpertSizes) -> f64,
    ) -> (f64, CostSource) {
        let of_format = self.experts().iter().filter(|shape| shape.format == format);
        let matter = of_format.map(|shape| shape.divided_like(sizes)).filter(|shape| {
            shape.hidden == sizes.hidden || shape.is_within(&sizes) || sizes.is_within(shape)
        });
        let known = matter.filter_map(|shape| {
            let (us, source) = self.experts_us(engine, format, shape, tokens)?;
            Some(KnownExperts { sizes: shape, us, source })
        });
        let known: Vec<KnownExperts> = known.collect();
        let is_same_hidden = |known: &&KnownExperts| known.sizes.hidden == sizes.hidden;
        let widths = || known.iter().filter(is_same_hidden).map(|known| known.sizes.width);
        let narrower = widths().filter(|width| *width <= sizes.width).max();
        let wider = widths().filter(|width| *width >= sizes.width).min();
        let ratio = |sizes: ExpertSizes| similar_ratio(&known, sizes, roofline_us);
        let (us, source) = match (narrower, wider) {
            (Some(narrower), Some(wider)) if narrower < wider => {
                let [low, high] = [narrower, wider].map(|width| {
                    let sizes = ExpertSizes { width, ..sizes };
                    roofline_us(&sizes) * ratio(sizes).0
                });
                let weight = f64::from(sizes.width - narrower) / f64::from(wider - narrower);
                (low + weight * (high - low), CostSource::Roofline)
            }
            _ => {
                let width = narrower.or(wider).unwrap_or(sizes.width);
                let (ratio, source) = ratio(ExpertSizes { width, ..sizes });
                let is_measured = width == sizes.width;
                (roofline_us(&sizes) * ratio, if is_measured { source } else { CostSource::Roofline })
            }
        };
        // More work is not faster, except as measured: by the ratio alone, gpt-oss with 48 to 96 experts had up to 0.15 %
        // less latency per token than with 32 (H100, batch 1).
        let larger = known.iter().filter(|known| sizes.is_within(&known.sizes)).map(|known| known.us);
        let smaller = known.iter().filter(|known| known.sizes.is_within(&sizes)).map(|known| known.us);
        (us.min(larger.fold(f64::INFINITY, f64::min)).max(smaller.fold(0.0, f64::max)), source)
    }

    /// Latency of a decode step's attention over cached latents of DeepSeek-V3's width, without the products
    /// before and after it (us).
    pub fn latent_us(
        &self,
        engine: Option<Engine>,
        kv: DType,
        [heads, sequences, tokens]: [u64; 3],
    ) -> Option<(f64, CostSource)> {
        let what = format!("mla-{kv}");
        let us_in = |engine: Engine| {
            self.section(&what, engine.as_str())?.kernel()?.beyond_us([heads, sequences, tokens], 2.0)
        };
        let others = || Engine::ALL.into_iter().filter_map(us_in);
        engine.and_then(us_in).or_else(|| others().min_by(|a, b| a.0.total_cmp(&b.0)))
    }

    /// Latency of a dispatch or a combine (us): the fastest library measured at this number of ranks;
    /// NCCL's all-to-all otherwise. DeepEP sends fp8 out and bf16 back.
    pub fn all_to_all_us(&self, sizes: AllToAll) -> Option<(f64, CostSource)> {
        let AllToAll { is_combine, ranks, copies, rows, bytes } = sizes;
        let way = if is_combine { "combine" } else { "dispatch" };
        let engines = ["sglang", "trtllm"];
        let libraries = ["ll", "normal", "nvlink"].into_iter().flat_map(|library| {
            let what = format!("{way}-{library}");
            engines
                .iter()
                .filter_map(move |engine| self.section(&what, engine)?.kernel())
                .collect::<Vec<_>>()
        });
        let quickest = libraries
            .filter_map(|grid| nearest(grid, ranks, copies, rows))
            .min_by(|a, b| a.0.total_cmp(&b.0));
        quickest.or_else(|| self.section("all-to-all", "nccl")?.kernel()?.along(ranks.into(), 1, bytes))
    }
}

/// Latency among measured ranks at the measured width nearest to `copies`, for as many columns in all.
fn nearest(grid: &Grid, ranks: u32, copies: u32, rows: f64) -> Option<(f64, CostSource)> {
    let far = |known: &u64| (*known as f64 / f64::from(copies)).ln().abs();
    let known = grid.second_sizes(ranks.into()).into_iter().min_by(|a, b| far(a).total_cmp(&far(b)))?;
    let (us, source) = grid.along(ranks.into(), known, rows * f64::from(copies) / known as f64)?;
    Some((us, if known == u64::from(copies) { source } else { source.max(CostSource::Interpolated) }))
}

#[derive(Clone, Copy, Debug)]
pub enum TransferCost<'a> {
    /// Emulated link: a formula.
    Formula {
        /// Latency of an empty message (us).
        alpha_us: f64,
        /// Bandwidth (1e9 bytes per second).
        gb_s: f64,
    },
    Inside(&'a LinkTable),
    Network {
        /// Latency of an empty message (us).
        alpha_us: f64,
        /// Bandwidth of one GPU's share of the network cards (1e9 bytes per second).
        gb_s: f64,
    },
}

impl TransferCost<'_> {
    /// Latency of a message (us).
    pub fn us(&self, bytes: f64) -> f64 {
        match self {
            Self::Formula { alpha_us, gb_s } | Self::Network { alpha_us, gb_s } => {
                alpha_us + bytes / (gb_s * 1e3)
            }
            Self::Inside(table) => table.alone_us(2, bytes),
        }
    }

    /// Basis of the latency, in words.
    pub fn note(&self) -> String {
        match self {
            Self::Formula { .. } => "emulated".into(),
            Self::Inside(_) => {
                "derived: within a node, as an all-reduce of the message over 2 ranks".into()
            }
            Self::Network { alpha_us, gb_s } => format!(
                "derived: between nodes, {alpha_us} us + message bytes / {gb_s} GB/s (a GPU's share of the network)"
            ),
        }
    }
}

impl Profile {
    /// Cost of a transfer from each pipeline stage to the next; the last stage's goes to the first.
    pub fn transfers(&self, p2p: P2p, (tp, pp): (u32, u32)) -> Vec<TransferCost<'_>> {
        // a node holds whole stages, or a stage whole nodes
        let together = (self.gpus_per_node / tp.max(1)).max(1);
        let is_inside = |a: u32, b: u32| tp <= self.gpus_per_node && a / together == b / together;
        let outside = &self.link.inter_node;
        let gb_s = outside.gb_s / f64::from(self.gpus_per_node.max(1));
        (0..pp)
            .map(|stage| match is_inside(stage, (stage + 1) % pp) {
                true => TransferCost::Inside(self.table_of(Collective::Nccl, p2p, 2).0),
                false => TransferCost::Network { alpha_us: outside.alpha_us, gb_s },
            })
            .collect()
    }

    /// Explains why transfers between stages have no latency (link not measured at 2 ranks).
    pub fn transfer_problem(&self, p2p: P2p, (tp, pp): (u32, u32)) -> Option<String> {
        let inside = |cost: &TransferCost<'_>| matches!(cost, TransferCost::Inside(_));
        let any = pp > 1 && self.transfers(p2p, (tp, pp)).iter().any(inside);
        self.link_problem(Collective::Nccl, p2p, 2).filter(|_| any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without the rounding of logarithms.
    fn exact(found: Option<(f64, CostSource)>) -> Option<(f64, CostSource)> {
        found.map(|(us, source)| ((us * 1e6).round() / 1e6, source))
    }

    const OSS: ExpertSizes =
        ExpertSizes { hidden: 2880, width: 2880, top_k: 4, experts: 128, tp: 1, ep: 1 };

    #[test]
    fn measured_experts_come_back_from_their_engine_or_another() {
        let us = |name: &str, engine, sizes, tokens| {
            exact(Tables::from_name(name).unwrap().experts_us(engine, DType::Mxfp4, sizes, tokens))
        };
        // moe_h100_sxm.csv, balanced
        let vllm = Some(Engine::Vllm);
        assert_eq!(us("h100_sxm", vllm, OSS, 32.0), Some((687.0, CostSource::Table)));
        assert_eq!(us("h100_sxm", Some(Engine::TrtLlm), OSS, 32.0), us("h100_sxm", vllm, OSS, 32.0));
        let ep8 = ExpertSizes { ep: 8, ..OSS };
        // the quicker of TensorRT-LLM's 164 us and vLLM's
        assert_eq!(us("h100_sxm", Some(Engine::TrtLlm), ep8, 32.0), Some((142.0, CostSource::Table)));
        let (between, source) = us("h100_sxm", vllm, OSS, 24.0).unwrap();
        assert!((368.0..687.0).contains(&between) && source == CostSource::Interpolated);
        let (beyond, source) = us("h100_sxm", vllm, OSS, 16384.0).unwrap();
        assert!((beyond / (2.0 * 2930.0) - 1.0).abs() < 1e-9 && source == CostSource::Roofline);
        assert_eq!(us("h100_sxm", vllm, ExpertSizes { width: 1000, ..OSS }, 1.0), None);
        assert_eq!(us("h100_sxm", vllm, ExpertSizes { tp: 16, ..OSS }, 1.0), None);
        let h100 = Tables::from_name("h100_sxm").unwrap();
        let similar = |sizes, tokens| {
            let roofline_us = |of: &ExpertSizes| f64::from(of.experts) * f64::from(of.width) / 2880.0;
            h100.similar_experts(vllm, DType::Mxfp4, sizes, tokens, &roofline_us)
        };
        // 687 us for 128 experts, 200 us for 32; the geometric mean of their ratios between them
        let [most, least] = [687.0 / 128.0, 200.0 / 32.0];
        let half = ExpertSizes { experts: 64, ..OSS };
        for (sizes, ratio, wanted) in [
            (ExpertSizes { experts: 30, ..OSS }, least, CostSource::Roofline),
            (half, f64::sqrt(most * least), CostSource::Interpolated),
        ] {
            let (found, source) = similar(sizes, 32.0);
            let wanted_us = ratio * f64::from(sizes.experts);
            assert!((found / wanted_us - 1.0).abs() < 1e-9, "{sizes:?}: {found}, not {wanted_us}");
            assert_eq!(source, wanted, "{sizes:?}");
        }
        let (found, source) = similar(ExpertSizes { top_k: 8, ..OSS }, 32.0);
        assert!((found / 687.0 - 1.0).abs() < 1e-9, "{found}");
        assert_eq!(source, CostSource::Roofline, "no experts were measured with this top-k");
        // beyond the measured numbers of tokens both sides are rooflines
        assert_eq!(similar(half, 65_536.0).1, CostSource::Roofline);
        // other widths are in proportion to their roofline
        let other = |width| exact(Some(similar(ExpertSizes { width, ..OSS }, 32.0)));
        assert_eq!(other(1440), Some((687.0 / 2.0, CostSource::Roofline)));
        assert_eq!(other(5760), Some((687.0 * 2.0, CostSource::Roofline)));
    }

    /// Only measured experts may be faster than smaller ones: at one token vLLM's 128 take 38.9 us, its 32 take 39.2.
    #[test]
    fn larger_experts_are_not_faster_than_smaller_ones() {
        let h100 = Tables::from_name("h100_sxm").unwrap();
        // as the simulator's, without the passing rows
        let us = |engine, tokens: f64, format, sizes: ExpertSizes| {
            let roofline_us = |of: &ExpertSizes| {
                let touched = (tokens * f64::from(of.top_k)).min(of.experts.into());
                15.0 + touched * f64::from(of.width) * 0.002
            };
            let measured = h100.experts_us(engine, format, sizes, tokens);
            let is_measured = measured.is_some();
            let similar = || h100.similar_experts(engine, format, sizes, tokens, &roofline_us);
            (measured.unwrap_or_else(similar).0, is_measured)
        };
        let mut rows = Vec::new();
        for tp in [1, 8] {
            let oss = ExpertSizes { tp, ..OSS };
            let experts = [8, 16, 32, 40, 48, 64, 96, 128, 192];
            rows.push((DType::Mxfp4, experts.map(|experts| ExpertSizes { experts, ..oss })));
            let top_k = [1, 2, 3, 4, 5, 6, 8, 12, 16];
            rows.push((DType::Mxfp4, top_k.map(|top_k| ExpertSizes { top_k, ..oss })));
            let widths = [720, 1440, 2000, 2800, 2880, 2900, 3000, 4000, 5760];
            for experts in [64, 128] {
                let of = |width| ExpertSizes { width, experts, ..oss };
                rows.push((DType::Mxfp4, widths.map(of)));
            }
            // two widths were measured
            let widths = [768, 1535, 1536, 1537, 4692, 8192, 14335, 14336, 14337];
            let of = |width| ExpertSizes { hidden: 4096, width, top_k: 4, experts: 64, ..oss };
            rows.push((DType::Bf16, widths.map(of)));
        }
        for (engine, tokens) in [None, Some(Engine::Vllm), Some(Engine::Sglang)]
            .into_iter()
            .flat_map(|engine| [1.0, 3.0, 8.0, 12.0, 32.0, 100.0].map(|tokens| (engine, tokens)))
        {
            for (format, sizes) in &rows {
                let mut most = 0.0;
                for of in sizes {
                    let (us, is_measured) = us(engine, tokens, *format, *of);
                    assert!(us > most - 1e-9 || is_measured, "{of:?}, {tokens}: {us} after {most}");
                    most = us;
                }
            }
        }
    }

    #[test]
    fn rows_travel_by_the_quickest_library_and_by_nccl_where_none_was_measured() {
        let of = |name: &str, is_combine, ranks, rows| {
            let (copies, bytes) = (7168 * 8, rows * 2.0 * 7168.0 * 8.0);
            exact(Tables::from_name(name).unwrap().all_to_all_us(AllToAll {
                is_combine,
                ranks,
                copies,
                rows,
                bytes,
            }))
        };
        // DeepEP's low-latency kernels
        assert_eq!(of("h100_sxm", false, 8, 64.0), Some((24.6, CostSource::Table)));
        assert_eq!(of("h100_sxm", true, 8, 64.0), Some((39.7, CostSource::Table)));
        // many rows: its other kernels
        assert_eq!(of("h100_sxm", false, 8, 1024.0), Some((154.0, CostSource::Table)));
        assert_eq!(of("h100_sxm", false, 64, 128.0), Some((167.0, CostSource::Table)));
        let (a100, source) = of("a100_sxm", false, 8, 64.0).unwrap();
        assert!(a100 > 30.0 && source == CostSource::Interpolated, "{a100}");
        assert_eq!(of("a100_sxm", false, 16, 64.0), None);
    }

    #[test]
    fn latents_of_all_heads_come_back() {
        let h100 = Tables::from_name("h100_sxm").unwrap();
        let us = |engine, sizes| exact(h100.latent_us(engine, DType::Bf16, sizes));
        assert_eq!(us(Some(Engine::TrtLlm), [16, 64, 4095]), Some((119.0, CostSource::Table)));
        assert!(us(None, [128, 1, 1023]).is_some());
    }

    #[test]
    fn stages_within_a_node_use_its_link_and_others_one_network_card() {
        let profile = Profile::load("h100_sxm").unwrap();
        let of = |tp, pp| profile.transfers(P2p::On, (tp, pp));
        let is_inside = |costs: &[TransferCost<'_>]| -> Vec<bool> {
            costs.iter().map(|cost| matches!(cost, TransferCost::Inside(_))).collect()
        };
        assert_eq!(is_inside(&of(4, 2)), [true, true]);
        assert_eq!(is_inside(&of(8, 2)), [false, false]);
        // two stages a node; the last one's tokens cross nodes
        assert_eq!(is_inside(&of(4, 4)), [true, false, true, false]);
        assert_eq!(is_inside(&of(16, 2)), [false, false]);
        let [inside, outside] = [of(4, 2)[0], of(8, 2)[0]].map(|cost| cost.us(33_554_432.0));
        assert_eq!(inside, profile.link.p2p_on.alone_us(2, 33_554_432.0));
        let network = &profile.link.inter_node;
        let card = network.gb_s / f64::from(profile.gpus_per_node);
        assert_eq!(outside, network.alpha_us + 33_554_432.0 / (card * 1e3));
        assert!(of(8, 2)[0].note().starts_with("derived: between nodes"));
    }

    #[test]
    fn a_link_without_two_ranks_is_refused_only_if_stages_share_a_node() {
        let mut profile = Profile::load("h100_sxm").unwrap();
        profile.link.p2p_on.tp.retain(|tp, _| *tp == 8);
        profile.link.p2p_on.extrapolate = false;
        assert!(profile.transfer_problem(P2p::On, (4, 2)).unwrap().contains("measured only at TP 8"));
        assert_eq!(profile.transfer_problem(P2p::On, (8, 2)), None);
        assert_eq!(profile.transfer_problem(P2p::On, (4, 1)), None);
    }
}
