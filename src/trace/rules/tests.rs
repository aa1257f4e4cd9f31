//! Which names the rules take for what, and what wrong rule files get.

use proptest::prelude::*;

use super::*;
use crate::{OperationInfo, Span, Trace, TraceMeta};
use base::error::Error;
use plan::Lane;
use table::Provenance;

fn operation(name: &str, kind: &str) -> OperationInfo {
    OperationInfo::imported(name.into(), kind)
}

/// A trace with one execution of `ns` nanoseconds of each operation.
fn trace(operations: &[(&str, &str)], ns: i64) -> Trace {
    let span = |(index, _): (usize, &(&str, &str))| Span {
        operation: index as u32,
        ready_ns: index as i64 * ns,
        start_ns: index as i64 * ns,
        end_ns: (index as i64 + 1) * ns,
        ..Span::EMPTY
    };
    Trace {
        meta: TraceMeta { recorder: "kineto".into(), ..TraceMeta::new(Provenance::Measured, 1) },
        operations: operations.iter().map(|(name, kind)| operation(name, kind)).collect(),
        spans: operations.iter().enumerate().map(span).collect(),
        ranges: Vec::new(),
    }
}

/// Lane and kind of a kernel of that name.
fn class(rules: &str, name: &str) -> (Lane, String) {
    kind_of(rules, name, "kernel")
}

fn kind_of(rules: &str, name: &str, kind: &str) -> (Lane, String) {
    let mut trace = trace(&[(name, kind)], 10);
    Rules::load(rules).expect("built in").classify(&mut trace);
    assert_eq!(trace.spans[0].lane, trace.operations[0].lane);
    (trace.operations[0].lane, trace.operations[0].kind.to_string())
}

#[test]
fn default_rules_know_the_collectives_of_the_field() {
    for (name, kind) in [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)", "all_reduce"),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "all_reduce"),
        ("ncclSymDevKernel_AllReduce_AGxLL_R_sum_bf16(ncclSymDevArgs)", "all_reduce"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_gather"),
        (
            "ncclDevKernel_ReduceScatter_Sum_f32_RING_SIMPLE(ncclDevKernelArgsStorage<4096ul>)",
            "reduce_scatter",
        ),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<(unsigned long)4096>)", "send_recv"),
        ("ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", "broadcast"),
        ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", "collective"),
        ("ncclDevKernelDebug_Generic(ncclDevKernelArgs)", "collective"),
        ("mscclKernel_Sum_half_LL(ncclDevComm*, mscclAlgo*, mscclWork*)", "collective"),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, …)", "all_reduce"),
        ("void aiter::cross_device_reduce_2stage<__hip_bfloat16, 8>(aiter::RankData*)", "all_reduce"),
        ("_ZN4vllm26cross_device_reduce_2stageI6__halfLi8EEEvPNS_8RankDataE", "all_reduce"),
        (
            "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BF",
            "all_reduce",
        ),
        (
            "void c10d::(anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16>(",
            "all_reduce",
        ),
        (
            "void (anonymous namespace)::one_shot_all_reduce_kernel<float, 16, 8, true>(float**)",
            "all_reduce",
        ),
        ("one_shot_all_gather_kernel", "all_gather"),
        ("void trt_reduce::oneShotAllReduceKernel<half, 8>(trt_reduce::AllReduceParams)", "all_reduce"),
        ("void tensorrt_llm::kernels::twoShotAllReduceKernel<__nv_bfloat16, 4>(…)", "all_reduce"),
        (
            "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<(flashinfer::trtllm_\
             allreduce_fusion::AllReduceFusionPattern)1, __nv_bfloat16, 8, true>(…)",
            "all_reduce",
        ),
        (
            "void quickreduce::allreduce_prototype_twoshot<quickreduce::AllReduceTwoshot<half>>(",
            "all_reduce",
        ),
        ("void userbuffers_fp16_sum_inplace_gpu_rw<8>(int, int, int)", "collective"),
        ("kuserbuffers_pushsend(int*, int*, int4*, int4*, int)", "collective"),
        ("void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, int*)", "dispatch"),
        ("void deep_ep::internode_ll::combine<true, 7168, 9>(void*, void*)", "combine"),
        ("void deep_ep::intranode::notify_dispatch<8>(int const*, int*)", "dispatch"),
        ("void dpsk::ep::internode::combine<__nv_bfloat16, 8>(int4*, float*)", "combine"),
        ("void dpsk::ep::internode_ll::dispatch<true, 7168>(void*)", "dispatch"),
        ("nvshmemi_transfer_rma_kernel(void*)", "collective"),
        ("void nvshmem_barrier_all_kernel()", "collective"),
        ("void mscclpp::executionKernel<float>(int)", "collective"),
        ("void tensorrt_llm::kernels::moeAllToAllKernel<2>(int)", "all_to_all"),
        ("void multimem_one_shot_reduce<float>()", "collective"),
        (
            "void tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel<tensorrt_llm::kernels::moe_comm::WarpPolicy, 8>(x)",
            "dispatch",
        ),
        ("void tensorrt_llm::kernels::moe_comm::moeA2ACombineKernel<__nv_bfloat16, 8>(x)", "combine"),
        ("void hybrid_ep::dispatch_kernel<hybrid_ep::config, 8>(x)", "dispatch"),
        ("void hybrid_ep::combine_kernel<8>(x)", "combine"),
        ("_ZN9hybrid_ep14combine_kernelILi8EEEvPv", "combine"),
        ("_ZN7deep_ep9internode8dispatchILb0ELi8EEEvP4int4", "dispatch"),
        ("void barrier_on_stream_kernel_threadgroup<(threadgroup_t)2>(int)", "collective"),
        ("void fcollect_on_stream_kernel<int>(int)", "collective"),
        ("exchangeSplitAndOffset(long*, long*)", "all_to_all"),
        ("allToAllV(void*, void*, long*)", "all_to_all"),
        ("a2a_dispatch_send_kernel", "dispatch"),
        (
            "void flashinfer::trtllm_mnnvl_allreduce::oneshotAllreduceFusionKernel<8, float>(x)",
            "all_reduce",
        ),
        (
            "void flashinfer::trtllm_allreduce_fusion::moereduction_allreduce_fusion_kernel_oneshot_lamport<8>(x)",
            "all_reduce",
        ),
        ("void aiter::reduce_scatter_cross_device_store<half, 8>(x)", "reduce_scatter"),
        ("void mori::moe::EpDispatchIntraNodeKernel<__hip_bfloat16>(x)", "dispatch"),
        (
            "void c10d::symmetric_memory::(anonymous namespace)::barrier_kernel(unsigned int**)",
            "collective",
        ),
        ("hcom_allReduce__123_0_1", "all_reduce"),
        ("hcom_broadcast__123_0_1", "collective"),
    ] {
        assert_eq!(class("default", name), (Lane::Comm, kind.into()), "{name}");
    }
}

#[test]
fn default_rules_leave_computation_alone() {
    for name in [
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<…>>>(T3)",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float>(…)",
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float, float>(float*)",
        "void softmax_warp_forward<c10::BFloat16, float, 10, false, false>(c10::BFloat16*)",
        "void at::native::elementwise_kernel<128, 4, copy_to<ncclDataType_t>>(int, ncclKernelArgs)",
        "void cub::DeviceReduceKernel<cub::DeviceReducePolicy<ncclAllReduce>>(int)",
        "void vectorized_gather_kernel<16, long>(char*, char*, long*)",
        "void at::native::_scatter_gather_elementwise_kernel<128, 8>(int)",
        "triton_poi_fused_add_all_reduce_wait_tensor_3",
        "triton_red_fused__to_copy_all_gather_mean_1",
        "input_reduce_fusion",
        "loop_gather_fusion_12",
        "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128>>(…)",
        "void dpsk::ep::layout::get_dispatch_layout<256>(long const*)",
        "void deep_ep::layout::get_dispatch_layout<256, 4, 8>(long const*)",
        "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64",
        "void gemm_allreduce_fused_kernel<128>(float*)",
        "void warpAllReduceSum<float>(float*)",
        "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)",
        "void tensorrt_llm::kernels::moe_comm::moeA2APrepareDispatchKernel(int*)",
        "void hybrid_ep::scan_kernel<1024>(int*)",
        "_fwd_kernel_ep_scatter_2",
        "void moe::permute_dispatch_kernel<half>(half*)",
        "void vectorized_elementwise_kernel<4, dispatch>(int)",
        "void cub::DispatchReduceKernel<1>(int)",
        "MatmulAllReduce_bf16",
        "",
    ] {
        let (lane, kind) = class("default", name);
        assert_eq!((lane, kind.as_str()), (Lane::Compute, "kernel"), "{name}");
    }
}

/// Names as in the public sources of vLLM, SGLang, TensorRT-LLM, FlashInfer, DeepGEMM, AITER and triton_kernels.
#[test]
fn default_rules_know_the_kernels_of_experts() {
    for (name, kind) in [
        ("fused_moe_kernel", "experts"),
        ("fused_moe_kernel_gptq_awq", "experts"),
        ("_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1_swiglu", "experts"),
        ("_p_matmul_ogs_NNT_fp8e4nvxfp8e4nvxmxfp4_64x256x128x1", "experts"),
        (
            "void marlin_moe_wna16::Marlin<__nv_bfloat16, 1125899906909960l, 256, 1, 8, 8>(int4 const*)",
            "experts",
        ),
        (
            "void deep_gemm::fp8_gemm_kernel<4096u, 7168u, 128u, 128u, 8u, (deep_gemm::GemmType)2>(__nv_bfloat16*)",
            "experts",
        ),
        (
            "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<cute::tuple\
             <int, int, int> > > >(x)",
            "experts",
        ),
        (
            "bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x8x256_s4_et128x8_m128x8x32_cga1x1x1_dynB_sm100f",
            "experts",
        ),
        ("grouped_gemm_triton_kernel", "experts"),
        ("void vllm::moe::topkGatingSoftmax<8, 128, 4, 16, int>(float const*)", "router"),
        ("void moe_fused_gate_kernel<float, 32, 256, 8>(void*)", "router"),
        ("void moe::dev::routing::routingDeepSeek::routingMainKernel<float>(x)", "router"),
        ("_topk_forward", "router"),
    ] {
        assert_eq!(class("default", name), (Lane::Compute, kind.into()), "{name}");
    }
    // ordinary products of the same libraries
    for name in [
        "void deep_gemm::fp8_gemm_kernel<4096u, 7168u, 128u, (deep_gemm::GemmType)0>(__nv_bfloat16*)",
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int> > >(x)",
    ] {
        assert_eq!(class("default", name), (Lane::Compute, "kernel".into()), "{name}");
    }
}

/// Exchanges of NCCL around experts: an all-gather and a reduce-scatter, or sends. Those of attention keep their kinds.
#[test]
fn exchanges_around_experts_are_dispatch_and_combine() {
    let names = [
        "ncclDevKernel_AllGather_RING_LL(x)",
        "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)",
        "ncclDevKernel_SendRecv(x)",
        "fused_moe_kernel",
        "flash_fwd_splitkv_kernel",
        "void vllm::moe::topkGatingSoftmax<8, 128, 4, 16, int>(x)",
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)",
    ];
    let [gather, scatter, send, experts, attention, router, reduce] = [0u32, 1, 2, 3, 4, 5, 6];
    let kinds = |order: &[u32]| {
        let mut trace = trace(&names.map(|name| (name, "kernel")), 10);
        let span = trace.spans[0];
        trace.spans = (0..)
            .zip(order)
            .map(|(at, operation)| Span {
                operation: *operation,
                start_ns: 10 * at,
                end_ns: 10 * at + 8,
                ..span
            })
            .collect();
        Rules::default().classify(&mut trace);
        trace.spans.sort_by_key(|span| span.start_ns);
        let kind = |span: &Span| trace.operations[span.operation as usize].kind.to_string();
        trace.spans.iter().map(kind).collect::<Vec<_>>()
    };
    let layer = [attention, scatter, gather, router, experts, experts, scatter];
    let found = kinds(&[layer, layer].concat());
    let one = ["kernel", "reduce_scatter", "dispatch", "router", "experts", "experts", "combine"];
    assert_eq!(found, [one, one].concat());
    let found = kinds(&[attention, send, experts, send, send, experts, send]);
    assert_eq!(found, ["kernel", "dispatch", "experts", "combine", "dispatch", "experts", "combine"]);
    // slices of every expert: nothing is exchanged, and the head's all-gather stays one
    let found =
        kinds(&[attention, reduce, router, experts, reduce, gather, attention, reduce, experts, reduce]);
    assert!(!found.iter().any(|kind| kind == "dispatch" || kind == "combine"), "{found:?}");
}

#[test]
fn memory_goes_by_the_profilers_category_and_then_by_name() {
    for rules in ["default", "nccl-name"] {
        assert_eq!(kind_of(rules, "CopyDeviceToHost", "memcpy"), (Lane::Compute, "memcpy".into()));
        assert_eq!(kind_of(rules, "ncclKernel fill", "memset"), (Lane::Compute, "memset".into()));
        assert_eq!(class(rules, "Memcpy HtoD (Pinned -> Device)").1, "memcpy");
        assert_eq!(class(rules, "Memset (Device)").1, "memset");
    }
    for (name, kind) in [
        ("__amd_rocclr_copyBuffer", "memcpy"),
        ("__amd_rocclr_copyBufferRect.kd", "memcpy"),
        ("__amd_rocclr_fillBufferAligned", "memset"),
        ("MEMORY_COPY_DEVICE_TO_HOST", "memcpy"),
        ("CopyHostToDevice", "memcpy"),
    ] {
        assert_eq!(class("default", name), (Lane::Compute, kind.into()), "{name}");
    }
}

#[test]
fn the_nccl_name_rules_look_at_the_beginning_of_the_name_or_for_nccl_kernel() {
    for (name, comm) in [
        ("ncclDevKernel_AllGather_RING_LL(…)", true),
        ("ncclfoo", true),
        ("void ncclKernel_x()", true),
        ("void wrap<ncclKernel>()", true),
        ("void ncclDevKernel_x()", false),
        ("NCCLKernel", false),
        ("void multimem_all_reduce_kernel<x>()", false),
    ] {
        assert_eq!(class("nccl-name", name).0 == Lane::Comm, comm, "{name}");
    }
}

/// Answers of `get_kernel_type` of Holistic Trace Analysis since 0.5.
#[test]
fn the_hta_rules_answer_as_holistic_trace_analysis() {
    for (name, category, kind) in [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(…)", "kernel", "collective"),
        ("ncclDevKernel_SendRecv(…)", "kernel", "collective"),
        ("nccl:all_reduce", "kernel", "kernel"),
        ("void ncclKernel_x()", "kernel", "kernel"),
        ("Memcpy HtoD (Pinned -> Device)", "memcpy", "memcpy"),
        ("Memset (Device)", "memset", "memset"),
        ("dma_copy", "kernel", "memcpy"),
        ("CopyHostToDevice", "memcpy", "kernel"),
        ("void batched_Memcpy_kernel()", "kernel", "other"),
        ("void fooMemset()", "kernel", "kernel"),
        ("cudaStreamSync", "kernel", "other"),
        ("void allreduce_fusion_kernel_twoshot_Sync()", "kernel", "other"),
        ("void vllm::cross_device_reduce_1stage<half, 8>()", "kernel", "kernel"),
    ] {
        assert_eq!(kind_of("hta", name, category).1, kind, "{name}");
    }
}

#[test]
fn the_report_says_which_rule_took_what_and_what_is_doubtful() {
    let names = [
        ("ncclDevKernel_AllReduce_Sum(x)", "kernel"),
        ("my_peer_exchange", "kernel"),
        ("my_kernel", "kernel"),
        ("Memcpy PtoP (Device -> Device)", "memcpy"),
        ("void at::native::reduce_kernel<1>()", "kernel"),
        ("input_reduce_fusion", "kernel"),
    ];
    let report = Rules::default().classify(&mut trace(&names, 1000));
    let took: Vec<_> = report
        .matches
        .iter()
        .flat_map(|rule| {
            rule.operations.iter().map(|operation| (rule.rule.as_str(), operation.name.as_str()))
        })
        .collect();
    assert_eq!(
        took,
        [
            ("copies and fills (profiler category)", names[3].0),
            ("PyTorch's own kernels", names[4].0),
            ("fused by XLA", names[5].0),
            ("NCCL all-reduce", names[0].0),
            ("no rule", names[2].0),
            ("no rule", names[1].0),
        ]
    );
    assert_eq!(
        report.communication()[0],
        &Matched { name: names[0].0.into(), count: 1, total_ns: 1000 }
    );
    let doubtful: Vec<_> =
        report.unsure.iter().map(|unsure| (unsure.operation.name.as_str(), unsure.taken_for)).collect();
    assert_eq!(doubtful, [(names[3].0, RuleClass::Memory), (names[1].0, RuleClass::Compute)]);
    assert!(report.unsure[1].why.contains("'peer'"), "{:?}", report.unsure[1].why);
}

/// Kernels of one name that differ in the collective's arguments are one row of the report.
#[test]
fn matches_of_one_name_are_reported_as_one() {
    let nccl = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)";
    let names =
        [(nccl, "kernel"), ("gemm", "kernel"), (nccl, "kernel"), ("gemm", "kernel"), (nccl, "kernel")];
    let mut trace = trace(&names, 1_000);
    let report = Rules::default().classify(&mut trace);
    let rows: Vec<_> = report
        .matches
        .iter()
        .flat_map(|matches| &matches.operations)
        .map(|matched| (matched.name.as_str(), matched.count, matched.total_ns))
        .collect();
    assert_eq!(rows, [(nccl, 3, 3_000), ("gemm", 2, 2_000)]);
    assert_eq!(trace.operations.len(), 5, "the operations stay apart");
}

#[test]
fn spans_keep_their_order_by_lane_after_classifying() {
    let names =
        [("ncclDevKernel_AllReduce(x)", "kernel"), ("b", "kernel"), ("ncclDevKernel_x", "kernel")];
    let mut trace = trace(&names, 5);
    Rules::default().classify(&mut trace);
    let order: Vec<_> = trace.spans.iter().map(|span| (span.lane, span.start_ns)).collect();
    assert_eq!(order, [(Lane::Compute, 5), (Lane::Comm, 0), (Lane::Comm, 10)]);
}

#[test]
fn a_users_rules_come_before_those_that_they_extend() {
    let rules = Rules::parse(
        "mine.toml",
        "extends = \"default\"\n[[rule]]\nname = \"mine\"\nwhat = \"communication\"\nkind = \"halo\"\n\
         patterns = [\"at::native::exchange\"]\n",
    )
    .expect("right");
    let mut trace = trace(&[("void at::native::exchange<1>()", "kernel"), ("ncclx()", "kernel")], 1);
    let report = rules.classify(&mut trace);
    assert_eq!(
        trace.operations.iter().map(|o| o.kind.as_str()).collect::<Vec<_>>(),
        ["halo", "collective"]
    );
    assert_eq!((report.rules.as_str(), report.matches[0].rule.as_str()), ("mine.toml", "mine"));
}

#[test]
fn every_built_in_file_parses_under_its_name() {
    for (name, _) in BUILT_IN {
        let rules = Rules::load(name).expect(name);
        assert_eq!(rules.name, name);
        assert!(rules.rules.len() >= 3);
    }
    assert!(Rules::default().is_default() && Rules::default().rules.len() > 20);
}

const RIGHT: &str =
    "[[rule]]\nname = \"a\"\nwhat = \"communication\"\nkind = \"b\"\npatterns = [\"c*\"]\n";

#[test]
fn a_wrong_rule_file_is_an_error_at_its_place() {
    for (from, to, place, says) in [
        ("patterns", "paterns", "5:1", "did you mean 'patterns'?"),
        ("\"communication\"", "\"comunication\"", "3:8", "did you mean 'communication'?"),
        ("[\"c*\"]", "[]", "5:12", "would match nothing"),
        ("[\"c*\"]", "[\"c\", \"**\"]", "5:18", "matches everything"),
        ("\"b\"", "\"memcpy\"", "4:8", "what = \"memory\""),
        ("\"b\"", "\"All Reduce\"", "4:8", "'All Reduce'"),
        ("\"communication\"", "\"memory\"", "4:8", "'b' is not one of memory"),
        ("\"a\"", "\"\"", "2:8", "empty or taken"),
        ("[[rule]]", "extends = \"defalt\"\n[[rule]]", "1:11", "did you mean 'default'?"),
        ("[[rule]]", "match = \"names\"\n[[rule]]", "1:9", "did you mean 'name'?"),
        ("[\"c*\"]", "[\"c*\"", "", "mine.toml:"),
    ] {
        let text = RIGHT.replacen(from, to, 1);
        assert_ne!(text, RIGHT);
        let Err(Error::At { message, help, .. }) = Rules::parse("mine.toml", &text) else {
            panic!("accepted: {text}")
        };
        let all = format!("{message} {}", help.unwrap_or_default());
        assert!(all.starts_with(&format!("mine.toml:{place}")) && all.contains(says), "{all}");
    }
    assert!(Rules::parse("mine.toml", "").unwrap_err().to_string().contains("no rules"));
}

#[test]
fn rules_that_do_not_exist_get_the_nearest_name() {
    let Err(Error::Input { message, help }) = Rules::load("nccl_name") else { panic!("accepted") };
    assert!(message.contains("'nccl_name'") && message.contains("no such file"), "{message}");
    assert!(help.unwrap_or_default().contains("did you mean 'nccl-name'?"));
}

proptest! {
    #[test]
    fn no_rule_file_and_no_name_makes_it_panic(
        text in prop_oneof![
            "[\\[\\]a-z\"=*\n ]{0,80}",
            (0..RIGHT.len(), any::<char>()).prop_map(|(at, c)| format!("{}{c}{}", &RIGHT[..at], &RIGHT[at..])),
        ],
        name in ".{0,40}",
    ) {
        let rules = Rules::parse("any.toml", &text).unwrap_or_default();
        let mut trace = trace(&[(&name, "kernel")], i64::MAX / 4);
        let report = rules.classify(&mut trace);
        prop_assert_eq!(report.matches.iter().map(|rule| rule.operations.len()).sum::<usize>(), 1);
    }
}
