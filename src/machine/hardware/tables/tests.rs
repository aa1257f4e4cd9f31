//! Lookups in latency tables.

use super::super::routed::ExpertSizes;
use super::super::stack::ActivationScales;
use super::*;

const H100: Peaks = Peaks { tflops: 989.4, gb_s: 3350.0 };

/// Measured on an H100: format and engine, [m, n, k], latency (us).
const ROWS: [((DType, Engine), [u64; 3], f64); 3] = [
    ((DType::Fp8, Engine::TrtLlm), [1, 8192, 8192], 37.4),
    ((DType::Fp8, Engine::Vllm), [64, 7168, 8192], 28.0),
    ((DType::Fp8Block, Engine::Sglang), [8192, 4096, 4096], 228.0),
];

/// Product of [64, 8192] and [8192, 8192] with nvfp4 weights in vLLM on a B200 (us).
const NVFP4: f64 = 12.9;

/// Attention in vLLM on an H100: phase, cache, sequences and tokens, latency (us).
const ATTENTION: [(Phase, DType, u64, u64, f64); 4] = [
    (Phase::Decode, DType::Bf16, 16, 1023, 14.9),
    (Phase::Decode, DType::Fp8, 64, 8191, 68.2),
    (Phase::Prefill, DType::Bf16, 1, 4096, 69.5),
    (Phase::Prefill, DType::Fp8, 4, 1024, 53.0),
];

fn product_at(tables: &Tables, shape: [u64; 3], peaks: Peaks) -> Option<(f64, CostSource)> {
    tables.product_us((DType::Bf16, None), ActivationScales::Static, shape, peaks)
}

fn product(tables: &Tables, shape: [u64; 3]) -> Option<(f64, CostSource)> {
    product_at(tables, shape, H100)
}

/// Median of the engines' decode attention with 8 query heads a KV head.
fn median_attention(
    tables: &Tables,
    heads: u64,
    sequences: u64,
    context: u64,
) -> Option<(f64, CostSource)> {
    let (kv_heads, kv, tokens) = (heads / 8, DType::Bf16, context - 1);
    let sizes = AttentionSizes { heads, kv_heads, head_dim: 128, window: None, kv, sequences, tokens };
    tables.attention_us(None, Phase::Decode, sizes)
}

#[test]
fn all_built_in_tables_parse() {
    for name in Tables::names() {
        let tables = Tables::from_name(name).unwrap();
        assert!(product(tables, [1, 4096, 4096]).is_some(), "{name}");
        for section in tables.sections.iter() {
            let is_product = section.what.parse::<DType>().is_ok();
            let parses =
                if is_product { section.products().is_some() } else { section.kernel().is_some() };
            assert!(parses, "{name}: {} {}", section.what, section.engine);
        }
    }
    assert!(Tables::from_name("nonsense").is_none());
}

/// A decode step asks for experts up to hundreds of times.
#[test]
fn unmeasured_experts_use_only_sections_of_comparable_shapes() {
    const SECTIONS: &str = "
>experts-2880x2880x4x32-mxfp4 vllm 1\ntp\tep\t1\n1\t1\t40
>experts-2880x2880x4x32-mxfp4 sglang 1\ntp\tep\t1\n1\t1\t41
>experts-2880x2880x4x128-mxfp4 vllm 1\ntp\tep\t1\n1\t1\t90
>experts-2880x2880x4x64-fp8 vllm 1\ntp\tep\t1\n1\t1\t70
>experts-2048x4096x4x64-mxfp4 vllm 1\ntp\tep\t1\n1\t1\t60
>mla-bf16 vllm 1\ntp\tep\t1\n1\t1\t10";
    let tables = Tables {
        name: "test",
        matmul: LazyLock::new(|| None),
        sections: LazyLock::new(|| TableSection::all(SECTIONS)),
        experts: OnceLock::new(),
        attention: LazyLock::new(|| None),
    };
    let sizes = ExpertSizes { hidden: 2880, width: 2880, top_k: 4, experts: 64, tp: 1, ep: 1 };
    let roofline_us = |of: &ExpertSizes| f64::from(of.experts);
    let (us, source) =
        tables.similar_experts(Some(Engine::Vllm), DType::Mxfp4, sizes, 1.0, &roofline_us);
    assert!((40.0..90.0).contains(&us) && source == CostSource::Interpolated, "{us} {source}");
    let used = tables.sections.iter().filter(|section| section.kernel.get().is_some());
    let used: Vec<(&str, &str)> = used.map(|section| (section.what, section.engine)).collect();
    let [few, many] = ["experts-2880x2880x4x32-mxfp4", "experts-2880x2880x4x128-mxfp4"];
    assert_eq!(used, [(few, "vllm 1"), (many, "vllm 1")]);
}

#[test]
fn points_of_the_table_come_back() {
    let tables = Tables::from_name("h100_sxm").unwrap();
    // the geometric mean of 49.18 and 51.64 us, and of 2817.62 and 3108.46 us
    let (us, source) = product(tables, [1, 8192, 8192]).unwrap();
    assert!((us - 50.39).abs() < 0.02 && source == CostSource::Table, "{us} {source:?}");
    let (us, source) = product(tables, [16384, 8192, 8192]).unwrap();
    assert!((us - 2959.5).abs() < 1.0 && source == CostSource::Table, "{us} {source:?}");
    let (us, source) = median_attention(tables, 8, 1, 1023).unwrap();
    assert!((us - 12.43).abs() < 0.01 && source == CostSource::Table, "{us} {source:?}");
}

#[test]
fn products_by_format_and_engine_come_back_without_what_the_checkpoint_spares() {
    let us = |name: &str, key, scales, shape, tflops, gb_s| {
        let tables = Tables::from_name(name).unwrap();
        let (format, engine) = key;
        let peaks = Peaks { tflops, gb_s };
        tables.product_us((format, Some(engine)), scales, shape, peaks).unwrap()
    };
    let (dynamic, fixed) = (ActivationScales::Dynamic, ActivationScales::Static);
    for (key, [m, n, k], expected) in ROWS {
        let (us, source) = us("h100_sxm", key, dynamic, [m, n, k], 1978.9, 3350.0);
        assert!((us / expected - 1.0).abs() < 1e-9, "{key:?}: {us}, not {expected}");
        assert_eq!(source, CostSource::Table);
    }
    // quantize.csv, k 8192 and m 1: 7.19 us for the scale and 1.36 us to write fp8
    let key = (DType::Fp8, Engine::TrtLlm);
    let [all, spared, fused] = [dynamic, fixed, ActivationScales::Fused]
        .map(|scales| us("h100_sxm", key, scales, [1, 8192, 8192], 1978.9, 3350.0).0);
    assert!((all - spared - 7.19).abs() < 1e-9 && (spared - fused - 1.36).abs() < 1e-9);
    let (four, _) =
        us("b200_sxm", (DType::Nvfp4, Engine::Vllm), fixed, [64, 8192, 8192], 9000.0, 8000.0);
    // the kernel that writes fp8, k 8192: 2.63 us at m 32 and 2.59 us at m 128
    let cast = (2.63_f64 * 2.59).sqrt();
    assert!((four - NVFP4 - cast).abs() < 1e-9, "{four}");
    // no table of the engine, none of the format
    let h100 = Tables::from_name("h100_sxm").unwrap();
    assert_eq!(h100.product_us((DType::Nvfp4, Some(Engine::Vllm)), fixed, [1, 8192, 8192], H100), None);
    let l40s = Tables::from_name("l40s").unwrap();
    let block = (DType::Fp8Block, Some(Engine::Vllm));
    assert_eq!(l40s.product_us(block, fixed, [1, 8192, 8192], H100), None);
}

#[test]
fn attention_by_engine_and_cache_comes_back_and_grows_beyond_the_table() {
    let tables = Tables::from_name("h100_sxm").unwrap();
    let us = |phase, kv, sequences, tokens| {
        let (head_dim, window) = (128, None);
        let sizes = AttentionSizes { heads: 8, kv_heads: 1, head_dim, window, kv, sequences, tokens };
        tables.attention_us(Some(Engine::Vllm), phase, sizes).unwrap()
    };
    for (phase, kv, sequences, tokens, expected) in ATTENTION {
        let (us, source) = us(phase, kv, sequences, tokens);
        assert!((us / expected - 1.0).abs() < 1e-9, "{us}, not {expected}");
        assert_eq!(source, CostSource::Table);
    }
    let (one, two) =
        (us(Phase::Decode, DType::Bf16, 1, 65535), us(Phase::Decode, DType::Bf16, 1, 131_070));
    assert_eq!(two, (2.0 * one.0, CostSource::Roofline));
    let (one, two) =
        (us(Phase::Prefill, DType::Bf16, 1, 16384), us(Phase::Prefill, DType::Bf16, 1, 32768));
    assert_eq!(two, (4.0 * one.0, CostSource::Roofline));
    let sizes = AttentionSizes {
        heads: 8,
        kv_heads: 8,
        head_dim: 128,
        window: None,
        kv: DType::Bf16,
        sequences: 1,
        tokens: 1023,
    };
    assert_eq!(tables.attention_us(Some(Engine::Vllm), Phase::Decode, sizes), None);
    // a micro-batch without sequences
    let none = AttentionSizes { kv_heads: 1, kv: DType::Fp8, sequences: 0, ..sizes };
    assert_eq!(tables.attention_us(Some(Engine::Vllm), Phase::Decode, none), None);
}

#[test]
fn between_points_it_lies_between_them_and_says_so() {
    let tables = Tables::from_name("h100_sxm").unwrap();
    let us = |shape| product(tables, shape).unwrap();
    let (low, mid, high) = (us([1, 7168, 8192]), us([1, 7680, 8192]), us([1, 8192, 8192]));
    assert!(low.0 < mid.0 && mid.0 < high.0, "{low:?} {mid:?} {high:?}");
    assert_eq!(mid.1, CostSource::Interpolated);
    let (low, mid, high) = (
        median_attention(tables, 8, 16, 1023).unwrap(),
        median_attention(tables, 8, 16, 1500).unwrap(),
        median_attention(tables, 8, 16, 2047).unwrap(),
    );
    assert!(low.0 <= mid.0 && mid.0 <= high.0 && mid.1 == CostSource::Interpolated);
}

#[test]
fn beyond_the_table_it_follows_the_roofline_or_is_silent() {
    let tables = Tables::from_name("h100_sxm").unwrap();
    let (one, _) = product(tables, [16384, 4096, 4096]).unwrap();
    let (two, source) = product(tables, [32768, 4096, 4096]).unwrap();
    assert_eq!(source, CostSource::Roofline);
    assert!((two / one - 2.0).abs() < 0.01, "{one} {two}");
    assert_eq!(product(tables, [1, 65536, 65536]), None);
    assert_eq!(median_attention(tables, 4, 1, 100), None);
}

#[test]
fn a_device_of_twice_the_peaks_takes_half_the_time() {
    let tables = Tables::from_name("h100_sxm").unwrap();
    let twice = Peaks { tflops: 2.0 * H100.tflops, gb_s: 2.0 * H100.gb_s };
    for shape in [[1, 8192, 1024], [4096, 3584, 8192]] {
        let (one, two) =
            (product(tables, shape).unwrap().0, product_at(tables, shape, twice).unwrap().0);
        assert!((one / two - 2.0).abs() < 1e-9);
    }
}
