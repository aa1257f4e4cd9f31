//! Costs of single operations, and of plans from step to step.

use super::*;
use crate::sim::durations::Durations;
use crate::sim::lanes::{LaneClock, LaneSimulation};
use crate::sim::testing::{plan, shape_70b, shape_tiny, spec};
use machine::hardware::{Engine, Profile, Stack};
use plan::{Architecture, Lowering, PlanSpec, Precision};

fn target() -> Target {
    Target { profile: Profile::load("h100_sxm").unwrap(), stack: Stack::load("gpt-fast").unwrap() }
}

fn formula(alpha_us: f64, gb_s: f64) -> CollectiveCost<'static> {
    CollectiveCost::Formula { alpha_us, gb_s }
}

fn fixed(fixed: u64) -> Quantity {
    Quantity { fixed, ..Quantity::ZERO }
}

#[test]
fn compute_is_bound_by_arithmetic_or_by_memory_and_collectives_by_the_link() {
    let mut target = target();
    (target.stack.launch_us, target.profile.hbm_gb_s, target.profile.hbm_efficiency) =
        (2.0, 1000.0, 0.5);
    (target.profile.tflops.bf16, target.profile.compute_efficiency) = (100.0, 0.5);
    let spec = Spec { dtype: DType::Bf16, ..spec("standard", "tiny") };
    let model = CostModel::new(&target, formula(10.0, 4.0), &spec, &shape_tiny(), Phase::Decode);
    let plan = plan(&Architecture::Standard, &shape_tiny(), 2, Phase::Decode);
    let mut class = model.class(&plan, &plan.operations[0]);
    let step = Step::decode(1, 8, 0);
    class.cost = Cost {
        flops: fixed(50_000_000),   // 1 us at 50 TFLOP/s
        bytes_read: fixed(300_000), // with the written ones 0.8 us at 500 GB/s
        bytes_written: fixed(100_000),
        ..Cost::default()
    };
    let cost = model.operation_cost(&class, &step);
    assert!(
        (cost.us - 3.0).abs() < 1e-9 && cost.is_compute_bound && cost.source == CostSource::Roofline
    );
    class.cost.flops = fixed(10_000_000);
    let cost = model.operation_cost(&class, &step);
    assert!((cost.us - 2.8).abs() < 1e-9 && !cost.is_compute_bound);
    (class.kind, class.lane) = (Kind::AllReduce, Lane::Comm);
    class.cost = Cost { message_bytes: fixed(4_000_000), ..Cost::default() };
    assert!((model.operation_cost(&class, &step).us - 1010.0).abs() < 1e-9);
}

/// No table has products with fp8 weights: they take their bytes' time, and say so.
#[test]
fn fp8_weights_take_the_time_of_their_bytes() {
    let (target, shape) = (target(), shape_70b());
    let spec = Spec { dtype: DType::Fp8, ..spec("standard", "llama-3-70b") };
    let model = CostModel::new(&target, formula(1.0, 1.0), &spec, &shape, Phase::Decode);
    let plan = spec.plan(&shape, Phase::Decode, Precision::gpu(DType::Fp8), Lowering::default());
    let plan = Plan::new(&PlanSpec { tp: 8, ..plan }).unwrap();
    let down = plan.operations.iter().find(|o| o.name == "L0/mlp/down").unwrap();
    let class = model.class(&plan, down);
    for (rows, efficiency) in [(1, target.stack.matvec.efficiency), (4, target.profile.hbm_efficiency)] {
        let cost = model.operation_cost(&class, &Step::decode(rows, 1024, 0));
        let bytes = 3584.0 * 8192.0 + 4.0 * 8192.0 + rows as f64 * 2.0 * (3584.0 + 8192.0);
        let us = target.stack.launch_us + bytes / (3350.0 * efficiency * 1e3);
        let scale = if rows == 1 { 1.0 } else { target.stack.matmul.decode_scale };
        assert!((cost.us - us * scale).abs() < 1e-6, "{rows} rows: {cost:?}, not {us}");
        assert_eq!(cost.source, CostSource::Roofline, "{rows} rows");
    }
}

/// An engine's products come from its table, the head from the table of 16-bit numbers.
#[test]
fn an_engines_quantized_products_come_from_its_table_or_the_roofline() {
    let (mut target, shape) = (target(), shape_70b());
    (target.stack.engine, target.stack.matvec.rows) = (Some(Engine::Vllm), 0);
    target.stack.activation_scales = ActivationScales::Dynamic;
    let cost_of = |target: &Target, dtype: DType, name: &str, rows: u64| {
        let spec = Spec { dtype, tp: 8, ..spec("standard", "llama-3-70b") };
        let model = CostModel::new(target, formula(1.0, 1.0), &spec, &shape, Phase::Decode);
        let precision = precision(&spec, target);
        let plan = spec.plan(&shape, Phase::Decode, precision, Lowering::default());
        let plan = Plan::new(&plan).unwrap();
        let class = model.class(&plan, plan.operations.iter().find(|o| o.name == name).unwrap());
        model.operation_cost(&class, &Step::decode(rows, 1024, 0))
    };
    let scale = target.stack.matmul.decode_scale;
    // gate and up: 7168 outputs of 8192 inputs a rank; vLLM on H100, measured
    let gate_up = cost_of(&target, DType::Fp8, "L0/mlp/gate_up", 64);
    assert!((gate_up.us / scale / GATE_UP_US - 1.0).abs() < 1e-9, "{gate_up:?}");
    assert_eq!(gate_up.source, CostSource::Table);
    target.stack.activation_scales = ActivationScales::Fused;
    assert!(cost_of(&target, DType::Fp8, "L0/mlp/gate_up", 64).us < gate_up.us - 3.0);
    // the head has 16 bits
    let [head, plain] =
        [DType::Fp8, DType::Bf16].map(|dtype| cost_of(&target, dtype, "head/logits", 64));
    assert_eq!(head, plain);
    // H100 multiplies no 4-bit numbers: the weights are expanded
    let four = cost_of(&target, DType::Nvfp4, "L0/mlp/gate_up", 64);
    let bytes = DType::Nvfp4.matrix_bytes(7168, 8192) as f64 + 64.0 * 2.0 * (7168.0 + 8192.0);
    let us = target.stack.launch_us + bytes / (3350.0 * target.profile.hbm_efficiency * 1e3);
    assert!((four.us / scale - us).abs() < 1e-6 && four.source == CostSource::Roofline, "{four:?}");
}

/// Without tables: two kernels a product, whose arithmetic does not hide behind its bytes; attention and the host have
/// shares of their own.
#[test]
fn a_gpu_without_tables_adds_its_own_constants_to_the_stack() {
    let shape = shape_70b();
    let mut target =
        Target { profile: Profile::load("mi300x").unwrap(), stack: Stack::load("vllm-0.10").unwrap() };
    let spec = Spec { dtype: DType::Fp8, tp: 8, ..spec("standard", "llama-3-70b") };
    let us_of = |target: &Target, name: &str| {
        let model = CostModel::new(target, formula(1.0, 1.0), &spec, &shape, Phase::Decode);
        let plan = spec.plan(&shape, Phase::Decode, precision(&spec, target), Lowering::default());
        let plan = Plan::new(&plan).unwrap();
        let operation = plan.operations.iter().find(|operation| operation.name == name).unwrap();
        model.operation_cost(&model.class(&plan, operation), &Step::decode(64, 1024, 0)).us
    };
    let [down, attend] = ["L0/mlp/down", "L0/attn/attend"].map(|name| us_of(&target, name));
    target.profile.kernel_us += 1.0;
    assert!((us_of(&target, "L0/mlp/down") - down - 2.0).abs() < 1e-9);
    target.profile.kernel_us -= 1.0;
    target.profile.compute_efficiency /= 2.0;
    let arithmetic = 2.0 * 64.0 * 3584.0 * 8192.0 / (2614.9 * 0.25 * 1e6);
    assert!((us_of(&target, "L0/mlp/down") - down - arithmetic).abs() < 1e-6);
    let fixed = target.stack.launch_us + target.profile.kernel_us;
    target.profile.attention_efficiency = Some(0.35 / 2.0);
    let slower = us_of(&target, "L0/attn/attend");
    assert!(((slower - fixed) / (attend - fixed) - 2.0).abs() < 1e-6, "{attend} {slower}");
    let host = |target: &Target| {
        let model = CostModel::new(target, formula(1.0, 1.0), &spec, &shape, Phase::Decode);
        let plan = plan(&Architecture::Standard, &shape, 8, Phase::Decode);
        model.host_us(&model.class(&plan, &plan.operations[0]), &Step::decode(64, 1024, 0))
    };
    let before = host(&target);
    target.profile.host_scale = 0.5;
    assert!((before - host(&target) - 32.0 * target.stack.sequence_us).abs() < 1e-6, "{before}");
}

/// [64, 8192] x [8192, 7168] in fp8 (us).
const GATE_UP_US: f64 = 28.0;

#[test]
fn one_row_streams_the_weights_and_more_rows_come_from_the_table() {
    let (target, shape) = (target(), shape_70b());
    let spec = spec("standard", "llama-3-70b");
    let model = CostModel::new(&target, formula(1.0, 1.0), &spec, &shape, Phase::Decode);
    let plan = plan(&Architecture::Standard, &shape, 8, Phase::Decode);
    let down = plan.operations.iter().find(|o| o.name == "L0/mlp/down").unwrap();
    let class = model.class(&plan, down);
    let one = model.operation_cost(&class, &Step::decode(1, 1024, 0));
    let bytes = 2.0 * (3584.0 * 8192.0 + 3584.0 + 8192.0);
    let expected = target.stack.launch_us + bytes / (3350.0 * target.stack.matvec.efficiency * 1e3);
    assert!((one.us - expected).abs() < 1e-6 && one.source == CostSource::Calibrated, "{one:?}");
    let four = model.operation_cost(&class, &Step::decode(4, 1024, 0));
    // between 24.05 and 22.13 us, measured
    let table = four.us / target.stack.matmul.decode_scale;
    assert!((table - 23.07).abs() < 0.05 && four.source == CostSource::Table, "{four:?}");
}

#[test]
fn a_static_cache_costs_the_same_at_every_step_and_a_growing_one_more() {
    let shape = shape_70b();
    for (stack, grows) in [("gpt-fast", false), ("native", true)] {
        let target = Target { stack: Stack::load(stack).unwrap(), ..target() };
        let spec = Spec { batch: 16, ..spec("standard", "llama-3-70b") };
        let model = CostModel::new(&target, formula(1.0, 1.0), &spec, &shape, Phase::Decode);
        let plan = plan(&Architecture::Standard, &shape, 8, Phase::Decode);
        let mut durations = Durations::new(model, &plan, &Step::decode(16, 1024, 0));
        let first: i64 = durations.ns.iter().sum();
        durations.grow(&Step::decode(16, 1024, 500));
        let last: i64 = durations.ns.iter().sum();
        assert_eq!(last > first, grows, "{stack}: {first} {last}");
        assert_eq!(durations.is_growing(), grows);
    }
}

#[test]
fn without_cuda_graphs_no_kernel_is_faster_than_its_launch() {
    let mut target = target();
    target.stack.cuda_graphs = false;
    let spec = spec("standard", "tiny");
    let model = CostModel::new(&target, formula(1.0, 1.0), &spec, &shape_tiny(), Phase::Decode);
    let plan = plan(&Architecture::Standard, &shape_tiny(), 2, Phase::Decode);
    let durations = Durations::new(model, &plan, &Step::decode(1, 8, 0));
    for (operation, ns) in plan.operations.iter().zip(&durations.ns) {
        if operation.lane == Lane::Compute {
            assert!(*ns >= (target.stack.eager_launch_us * 1e3) as i64, "{}: {ns}", operation.name);
        }
    }
}

#[test]
fn a_steps_host_time_precedes_its_first_kernel_once_and_is_calibrated() {
    let (spec, shape) = (spec("standard", "tiny"), shape_tiny());
    let plan = plan(&Architecture::Standard, &shape, 2, Phase::Decode);
    let run = |step_us: f64, cuda_graphs: bool| {
        let mut target = target();
        (target.stack.step_us, target.stack.cuda_graphs) = (step_us, cuda_graphs);
        let model = CostModel::new(&target, formula(1.0, 1.0), &spec, &shape, Phase::Decode);
        let durations = Durations::new(model, &plan, &Step::decode(1, 8, 0));
        let (mut events, mut clock) = (Vec::new(), LaneClock::default());
        LaneSimulation::new(&plan).step(&durations, &mut clock, |event| events.push(event));
        (durations.by_source()[CostSource::Calibrated as usize], events, clock.tokens)
    };
    for cuda_graphs in [false, true] {
        let (without, none, least) = run(0.0, cuda_graphs);
        let (with, some, tokens) = run(500.0, cuda_graphs);
        assert_eq!(plan.operations[0].kind, Kind::Embed);
        // the GPU idles until the host has launched the step
        assert_eq!((some[0].ready, some[0].start, tokens - least), (500_000, 500_000, 500_000));
        assert!(
            some.iter().zip(&none).all(|(some, none)| some.end - some.start == none.end - none.start)
        );
        assert!((with - without - 500.0).abs() < 1e-6, "{without} {with}");
    }
}

#[test]
fn another_step_changes_nothing_but_what_depends_on_the_context() {
    let mut target = target();
    target.stack = Stack::load("native").unwrap();
    target.profile.tables = None;
    (target.stack.contention.arithmetic, target.stack.contention.memory) = (0.25, 0.5);
    let spec = Spec { dtype: DType::Bf16, ..spec("standard", "tiny") };
    let plan = plan(&Architecture::Standard, &shape_tiny(), 2, Phase::Decode);
    let [first, last] = [0, 700].map(|step| Step::decode(3, 8, step));
    // attention is memory-bound in the first step and compute-bound in the last
    let attend = &plan.operations.iter().find(|o| o.kind == Kind::Attend).unwrap().cost;
    let flops_per_byte = [first, last].map(|step| {
        let bytes = attend.bytes_read.at(&step) + attend.bytes_written.at(&step);
        attend.flops.at(&step) as f64 / bytes as f64
    });
    let profile = &mut target.profile;
    profile.tflops.bf16 = flops_per_byte.iter().sum::<f64>() / 2.0
        * (profile.hbm_gb_s * profile.hbm_efficiency / (profile.compute_efficiency * 1e3));
    let new = |step: &Step| {
        let model = CostModel::new(&target, formula(1.0, 1.0), &spec, &shape_tiny(), Phase::Decode);
        Durations::new(model, &plan, step)
    };
    let mut durations = new(&first);
    assert!(durations.grow(&last));
    assert_eq!(durations.ns, new(&last).ns);
    assert_ne!(durations.ns, new(&first).ns);
    assert_eq!(durations.contention, new(&last).contention);
    assert_ne!(durations.contention, new(&first).contention);
}

#[test]
fn every_kernel_of_attention_over_latents_has_the_gpus_fixed_time() {
    let shape = model::Model::resolve("deepseek-v3").unwrap().shape;
    let spec = Spec { dtype: DType::Fp8, tp: 8, ..spec("standard", "deepseek-v3") };
    let us = |kernel_us: f64| {
        let mut target = target();
        target.profile.tables = None;
        target.profile.kernel_us = kernel_us;
        let model = CostModel::new(&target, formula(1.0, 1.0), &spec, &shape, Phase::Decode);
        let plan = spec.plan(&shape, Phase::Decode, precision(&spec, &target), Lowering::default());
        let plan = Plan::new(&plan).unwrap();
        let attend = plan.operations.iter().find(|o| o.kind == Kind::LatentAttend).unwrap();
        model.operation_cost(&model.class(&plan, attend), &Step::decode(4, 1024, 0)).us
    };
    assert!((us(1.5) - us(0.0) - 1.5 * f64::from(LATENT_KERNELS)).abs() < 1e-9);
}
