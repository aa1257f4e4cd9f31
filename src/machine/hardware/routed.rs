//! Messages between pipeline stages, and of expert parallelism.

use super::link::LinkTable;
use super::profile::Profile;
use super::stack::Engine;
use super::tables::{CostSource, Grid, Tables};
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
        let what = format!("experts-{hidden}x{width}x{top_k}x{experts}-{format}");
        let of = |engine: Engine| {
            self.section(&what, engine.as_str())?.kernel()?.along(tp.into(), ep.into(), tokens)
        };
        let others = || Engine::ALL.into_iter().filter_map(of);
        match engine {
            Some(engine @ (Engine::Vllm | Engine::Sglang)) => of(engine).or_else(|| others().next()),
            Some(Engine::TrtLlm) | None => others().min_by(|a, b| a.0.total_cmp(&b.0)),
        }
    }

    /// Latency of unmeasured experts (us). With measured ones of the same hidden size and width it is their ratio of
    /// latency to roofline: interpolated over their number between the two nearest, the nearest one's outside of them and
    /// with another top-k, which counts as a roofline. It lies between the latencies of measured experts that are smaller
    /// and larger in every size, so that more work is not faster, except as it was measured.
    pub fn similar_experts(
        &self,
        engine: Option<Engine>,
        format: DType,
        sizes: ExpertSizes,
        tokens: f64,
        roofline_us: &dyn Fn(&ExpertSizes) -> f64,
    ) -> (f64, CostSource) {
        let us = |of: ExpertSizes| self.experts_us(engine, format, of, tokens);
        let numbers = |of: &ExpertSizes| [of.hidden, of.width, of.top_k, of.experts];
        let measured = self.measured_experts(format, sizes);
        let (similar_us, source) = Self::ratio_of_similar(&measured, sizes, &us, roofline_us);
        // the smallest latency of the larger ones, and the largest of the smaller ones
        let [mut most, mut least] = [f64::INFINITY, 0.0];
        for of in measured {
            let [own, other] = [numbers(&sizes), numbers(&of)];
            let mut pairs = own.into_iter().zip(other);
            if pairs.clone().all(|(own, other)| other <= own) {
                least = us(of).map_or(least, |(us, _)| us.max(least));
            } else if pairs.all(|(own, other)| other >= own) {
                most = us(of).map_or(most, |(us, _)| us.min(most));
            }
        }
        (similar_us.min(most).max(least), source)
    }

    /// Shapes of measured experts in a format, divided like `sizes`.
    fn measured_experts(&self, format: DType, sizes: ExpertSizes) -> Vec<ExpertSizes> {
        let end = format!("-{format}");
        let shape = |what: &str| {
            let numbers = what.strip_prefix("experts-")?.strip_suffix(&*end)?.split('x');
            let numbers: Vec<u32> = numbers.filter_map(|number| number.parse().ok()).collect();
            let [hidden, width, top_k, experts] = numbers[..] else { return None };
            Some(ExpertSizes { hidden, width, top_k, experts, ..sizes })
        };
        let mut shapes: Vec<ExpertSizes> =
            self.sections.iter().filter_map(|section| shape(section.what)).collect();
        // each engine that measured a shape has a section of it
        shapes.dedup();
        shapes
    }

    fn ratio_of_similar(
        measured: &[ExpertSizes],
        sizes: ExpertSizes,
        us: &dyn Fn(ExpertSizes) -> Option<(f64, CostSource)>,
        roofline_us: &dyn Fn(&ExpertSizes) -> f64,
    ) -> (f64, CostSource) {
        let own_us = roofline_us(&sizes);
        let ratio = |a: u32, b: u32| (f64::from(a) / f64::from(b)).ln().abs();
        let distance =
            |of: &ExpertSizes| ratio(of.top_k, sizes.top_k) + ratio(of.experts, sizes.experts);
        let is_alike = |of: &&ExpertSizes| (of.hidden, of.width) == (sizes.hidden, sizes.width);
        let mut alike: Vec<ExpertSizes> = measured.iter().filter(is_alike).copied().collect();
        alike.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
        // each step asks, so only the shapes that count are looked up
        let log_ratio = |similar: ExpertSizes| {
            let (us, source) = us(similar)?;
            Some((similar, (us / roofline_us(&similar)).ln(), source))
        };
        let mut alike = alike.into_iter();
        let Some((first, near, first_source)) = alike.find_map(log_ratio) else {
            return (own_us, CostSource::Roofline);
        };
        let is_between = |other: &ExpertSizes| {
            other.top_k == first.top_k
                && (other.experts < sizes.experts) != (first.experts < sizes.experts)
        };
        let Some((second, far, source)) = alike.filter(is_between).find_map(log_ratio) else {
            return (own_us * near.exp(), CostSource::Roofline);
        };
        let log = |of: &ExpertSizes| f64::from(of.experts).ln();
        let weight = (log(&sizes) - log(&first)) / (log(&second) - log(&first));
        let is_measured = first.top_k == sizes.top_k;
        let own = if is_measured { CostSource::Interpolated } else { CostSource::Roofline };
        (own_us * (near + weight * (far - near)).exp(), first_source.max(source).max(own))
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
        let of = |engine: Engine| {
            self.section(&what, engine.as_str())?.kernel()?.beyond_us([heads, sequences, tokens], 2.0)
        };
        let others = || Engine::ALL.into_iter().filter_map(of);
        engine.and_then(of).or_else(|| others().min_by(|a, b| a.0.total_cmp(&b.0)))
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
    let known = grid.seconds_of(ranks.into()).into_iter().min_by(|a, b| far(a).total_cmp(&far(b)))?;
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
            exact(Tables::of(name).unwrap().experts_us(engine, DType::Mxfp4, sizes, tokens))
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
        let h100 = Tables::of("h100_sxm").unwrap();
        let lookups = std::cell::Cell::new(0);
        let similar = |sizes, tokens| {
            let roofline_us = |of: &ExpertSizes| {
                lookups.set(lookups.get() + 1);
                f64::from(of.experts)
            };
            h100.similar_experts(vllm, DType::Mxfp4, sizes, tokens, &roofline_us)
        };
        // 687 us for 128 experts, 200 us for 32; the geometric mean of their ratios between them
        let [most, least] = [687.0 / 128.0, 200.0 / 32.0];
        let half = ExpertSizes { experts: 64, ..OSS };
        for (sizes, ratio, wanted, shapes) in [
            (ExpertSizes { experts: 30, ..OSS }, least, CostSource::Roofline, 2),
            (half, f64::sqrt(most * least), CostSource::Interpolated, 3),
        ] {
            lookups.set(0);
            let (found, source) = similar(sizes, 32.0);
            let wanted_us = ratio * f64::from(sizes.experts);
            assert!((found / wanted_us - 1.0).abs() < 1e-9, "{sizes:?}: {found}, not {wanted_us}");
            assert_eq!((source, lookups.get()), (wanted, shapes), "{sizes:?}");
        }
        let (found, source) = similar(ExpertSizes { top_k: 8, ..OSS }, 32.0);
        assert!((found / 687.0 - 1.0).abs() < 1e-9, "{found}");
        assert_eq!(source, CostSource::Roofline, "no experts were measured with this top-k");
        // beyond the measured numbers of tokens both sides are rooflines
        assert_eq!(similar(half, 65_536.0).1, CostSource::Roofline);
        let other = |width| exact(Some(similar(ExpertSizes { width, ..OSS }, 32.0)));
        assert_eq!(other(1000), Some((128.0, CostSource::Roofline)), "nothing smaller was measured");
        assert_eq!(other(3000), Some((687.0, CostSource::Roofline)), "narrower ones take as long");
    }

    /// Only measured experts may be faster than smaller ones: at one token vLLM's 128 take 38.9 us, its 32 take 39.2.
    #[test]
    fn larger_experts_are_not_faster_than_smaller_ones() {
        let h100 = Tables::of("h100_sxm").unwrap();
        // as the simulator's, without the passing rows
        let us = |engine, tokens: f64, sizes: ExpertSizes| {
            let roofline_us = |of: &ExpertSizes| {
                let touched = (tokens * f64::from(of.top_k)).min(of.experts.into());
                15.0 + touched * f64::from(of.width) * 0.002
            };
            let measured = h100.experts_us(engine, DType::Mxfp4, sizes, tokens);
            let is_measured = measured.is_some();
            let similar = || h100.similar_experts(engine, DType::Mxfp4, sizes, tokens, &roofline_us);
            (measured.unwrap_or_else(similar).0, is_measured)
        };
        let mut sizes = Vec::new();
        for tp in [1, 8] {
            let oss = ExpertSizes { tp, ..OSS };
            sizes.push(
                [8, 16, 32, 40, 48, 64, 96, 128, 192].map(|experts| ExpertSizes { experts, ..oss }),
            );
            sizes.push([1, 2, 3, 4, 5, 6, 8, 12, 16].map(|top_k| ExpertSizes { top_k, ..oss }));
            sizes.push(
                [720, 1440, 2000, 2800, 2880, 2900, 3000, 4000, 5760]
                    .map(|width| ExpertSizes { width, ..oss }),
            );
        }
        for (engine, tokens) in [None, Some(Engine::Vllm), Some(Engine::Sglang)]
            .into_iter()
            .flat_map(|engine| [1.0, 3.0, 8.0, 12.0, 32.0, 100.0].map(|tokens| (engine, tokens)))
        {
            for sizes in &sizes {
                let mut most = 0.0;
                for of in sizes {
                    let (us, is_measured) = us(engine, tokens, *of);
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
            exact(Tables::of(name).unwrap().all_to_all_us(AllToAll {
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
        let h100 = Tables::of("h100_sxm").unwrap();
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
