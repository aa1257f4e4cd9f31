//! Timed generations on GPUs: warm-up, samples, and the environment of the record.
//!
//! Ranks are threads with one GPU each, or this process is one rank of several. With an emulated link, rank 0
//! runs alone. All ranks synchronize between samples. A sample begins after the barrier and ends with the
//! last rank's last token. Times come from events at step boundaries on each rank's GPU, relative to that
//! rank's start.

use std::sync::Arc;

use serde_json::{Value, json};

use super::collective::CollectiveTransport;
use super::engine::{Engine, EngineSetup, LinkCheck, Local, Programs};
use super::generation::Generation;
use super::instrumented::{self, InstrumentedResult, InstrumentedRun};
use super::matmul::{self, MatvecChoice, ProductKernel, ProductTimes};
use super::one_shot::{self, GpuAllReduce, OneShotRegions};
use super::ranks::{alive, among_peers, broadcast, gather, on_threads};
use super::timing::collectives::{self, CollectiveTime};
use super::{blas, check, cupti};
use crate::comm::nccl::{self, Nccl, NcclChoices};
use crate::comm::{EmulatedLink, Peers, emulated_link};
use crate::recorder::{GenerationTimes, MonotonicClock, combine, phase_name, prompts};
use crate::token_comparison::{GeneratedTokens, TokenComparison};
use crate::{Job, Outcome, RunEvent, RunResult};
use base::error::{Error, Result};
use machine::driver::Gpu;
use machine::environment::Sampled;
use model::Model;
use plan::{DType, QUANTIZED};
use table::{Environment, P2p, Provenance, Recorder, Sample, Spec, shared_gpu};
use trace::{Trace, TraceMeta};

struct Shared<'a> {
    job: &'a Job,
    setup: EngineSetup,
    programs: Arc<Programs>,
    prompts: Vec<u32>,
    link: Option<EmulatedLink>,
    clock: MonotonicClock,
}

struct RankOutcome {
    /// Samples of all ranks, on rank 0.
    samples: Vec<Sample>,
    /// Peak memory of a rank (bytes); on rank 0, the maximum over all ranks.
    memory_bytes: u64,
    environment: Environment,
    /// Result of the instrumented pass, on rank 0.
    traced: Option<InstrumentedResult>,
}

pub fn run(job: &Job, emit: &mut dyn FnMut(RunEvent)) -> RunResult {
    let spec = &job.spec;
    if job.record && spec.recorder == Recorder::Cupti {
        cupti::check_available()?;
    }
    let model = Model::resolve(&spec.model)?;
    let prompts = prompts(spec, model.shape.vocab);
    let setup = setup(job, model)?;
    let programs = Arc::new(Programs::new(&setup)?);
    let link = emulated_link(spec)?;
    let shared = Shared { job, setup, programs, prompts, link, clock: MonotonicClock::start() };
    let part = match (&job.ranks.peers, shared.link.is_some(), spec.tp) {
        (_, true, _) | (None, false, 1) => alone(&shared, emit)?,
        (Some(peers), false, _) => one_of_many(&shared, peers, emit)?,
        (None, false, _) => threads(&shared, emit)?,
    };
    let Programs { prefill, decode } = &*shared.programs;
    let plan_hashes = vec![prefill.plan.hash(), decode.plan.hash()];
    let mut outcome = Outcome {
        samples: part.samples,
        memory_bytes_per_rank: part.memory_bytes,
        plan_hashes: plan_hashes.clone(),
        environment: part.environment,
        instrumented: None,
    };
    let Some(traced) = part.traced else { return Ok((outcome, None)) };
    for message in traced.warnings {
        emit(RunEvent::Warning { message });
    }
    let recorder = traced.instrumented.recorder.clone();
    outcome.environment.extend(traced.environment);
    outcome.instrumented = Some(Box::new(traced.instrumented));
    let trace = Trace {
        meta: TraceMeta {
            spec: Some(spec.clone()),
            plan_hashes,
            clock: traced.clock,
            recorder,
            ..TraceMeta::new(spec.provenance(), traced.ranks)
        },
        operations: traced.operations,
        spans: traced.spans,
        ranges: Vec::new(),
    };
    Ok((outcome, Some(trace)))
}

fn setup(job: &Job, model: Model) -> Result<EngineSetup> {
    let spec = &job.spec;
    let rows = u64::from(spec.batch) * u64::from(spec.prompt_tokens);
    if u32::try_from(rows).is_err() {
        return Err(Error::input(format!(
            "a prefill of {} x {} tokens is too large for the cuda backend",
            spec.batch, spec.prompt_tokens
        )));
    }
    Ok(EngineSetup {
        seed: spec.seed,
        sequences: spec.batch,
        capacity: spec.prompt_tokens + spec.output_tokens,
        output_tokens: spec.output_tokens,
        prefill: (spec.batch, spec.prompt_tokens),
        variant: spec.variant(),
        graph: !spec.no_graph,
        shard_head: spec.shard_head,
        comm_sms: spec.comm_sms,
        collective: spec.collective,
        timeout: job.ranks.timeout,
        progress: Arc::clone(&job.ranks.progress),
        ..EngineSetup::new(model, spec.architecture.clone(), spec.dtype, spec.tp)?
    })
}

/// Runs a single rank without peers.
fn alone(shared: &Shared<'_>, emit: &mut dyn FnMut(RunEvent)) -> Result<RankOutcome> {
    let gpu = Gpu::open(shared.job.ranks.device)?;
    let transport = match shared.link.clone() {
        Some(link) if shared.setup.tp > 1 => CollectiveTransport::Emulated(link),
        _ => CollectiveTransport::None,
    };
    let local = Local { ranks: 0..1, transport, one_shot: None };
    rank(shared, &gpu, local, None, emit)
}

/// Runs this process's rank among several processes.
fn one_of_many(
    shared: &Shared<'_>,
    peers: &Arc<Peers>,
    emit: &mut dyn FnMut(RunEvent),
) -> Result<RankOutcome> {
    let collective = shared.job.spec.collective;
    if GpuAllReduce::from_collective(collective)? != GpuAllReduce::Nccl {
        return Err(Error::input(one_shot::process_problem(collective)));
    }
    let nccl = Nccl::load()?;
    among(shared, nccl, shared.job.ranks.device, peers, None, emit)
}

/// Runs one thread and GPU per rank; rank 0 runs on this thread.
fn threads(shared: &Shared<'_>, emit: &mut dyn FnMut(RunEvent)) -> Result<RankOutcome> {
    let nccl = Nccl::load()?;
    let tp = shared.setup.tp as usize;
    let gpus = Gpu::count()?;
    if gpus < shared.job.ranks.device + tp && !shared_gpu::is_on() {
        return Err(Error::input_help(
            format!("TP {tp} needs {tp} GPUs, this machine has {gpus}"),
            "--link p2p-on --hardware h100_sxm runs one rank's shard with emulated all-reduces; or a lower \
             --tp",
        ));
    }
    let device = shared.job.ranks.device;
    let EngineSetup { collective, sequences, dtype, .. } = shared.setup;
    let one_shot = match GpuAllReduce::from_collective(collective)? {
        GpuAllReduce::Nccl => None,
        GpuAllReduce::OneShot | GpuAllReduce::OneShotAddNorm => {
            let row = u64::from(shared.setup.model.shape.hidden) * dtype.bytes();
            Some(OneShotRegions::allocate(device, &shared.programs.decode.plan, sequences, row)?)
        }
    };
    let one_shot = one_shot.as_ref();
    on_threads(
        shared.job.ranks.threads(tp),
        |peers| among(shared, nccl, device, peers, one_shot, emit),
        |peers| {
            let device = shared_gpu::device(device + peers.rank());
            among(shared, nccl, device, peers, one_shot, &mut |_| ())
        },
    )
}

/// Runs one rank among peers, which may be threads or processes.
fn among(
    shared: &Shared<'_>,
    nccl: &'static Nccl,
    device: usize,
    peers: &Arc<Peers>,
    one_shot: Option<&Arc<OneShotRegions>>,
    emit: &mut dyn FnMut(RunEvent),
) -> Result<RankOutcome> {
    let messages = shared.programs.messages(&shared.setup);
    among_peers(nccl, device, peers, Some(&messages), |gpu, local| {
        let local = Local { one_shot: one_shot.cloned(), ..local };
        rank(shared, gpu, local, Some(peers), emit)
    })
}

/// Progress of a rank: for the watchdog of its peers, and as events of the run.
struct Reporter<'a> {
    peers: Option<&'a Arc<Peers>>,
    emit: &'a mut dyn FnMut(RunEvent),
}

impl Reporter<'_> {
    fn phase(&mut self, name: &str) {
        self.event(RunEvent::Phase { name: name.to_owned() });
    }

    fn event(&mut self, event: RunEvent) {
        if let (RunEvent::Phase { name }, Some(peers)) = (&event, self.peers) {
            peers.phase(name);
        }
        (self.emit)(event);
    }

    fn warn(&mut self, message: Option<String>) {
        if let Some(message) = message {
            self.event(RunEvent::Warning { message });
        }
    }
}

fn rank(
    shared: &Shared<'_>,
    gpu: &Gpu,
    local: Local,
    peers: Option<&Arc<Peers>>,
    emit: &mut dyn FnMut(RunEvent),
) -> Result<RankOutcome> {
    let (spec, setup) = (&shared.job.spec, &shared.setup);
    crate::recorder::name_thread(&format!("rank {}", local.ranks.start));
    let is_first = local.ranks.start == 0;
    let mut report = Reporter { peers, emit };
    let mut on_phase = |what: &str| report.phase(what);
    // check one GPU per node
    let known = is_first.then(|| check::before_a_run(gpu, &mut on_phase)).flatten();
    let programs = Arc::clone(&shared.programs);
    let mut engine = Engine::new(gpu, setup, programs, local, alive(peers), &mut on_phase)?;
    let link = engine.check_link()?;
    let products = choose_products(&mut engine, setup.tuning.products, peers, &mut on_phase)?;
    report.phase(if setup.graph { "capturing a decode step" } else { "preparing" });
    let mut generation = Generation::new(&engine, spec.batch, spec.prompt_tokens, spec.output_tokens)?;
    let is_traced = shared.job.record && spec.recorder != Recorder::Off;
    let event_choice =
        is_traced.then(|| generation.time_collectives(&engine, peers)).transpose()?.flatten();
    let sampled = samples(shared, &engine, &mut generation, &mut report)?;
    // before the instrumented pass, whose graphs and events would add to the memory
    let memory_bytes = most(peers, engine.memory_per_rank()?)?;
    let mut environment = environment(spec, &engine, &generation, setup, &products, link.as_ref());
    environment.insert("computed".into(), sampled.compared.environment());
    environment.insert("gpus_sampled".into(), json!(gather(peers, "clocks", sampled.clocks)?));
    if is_traced {
        let events = collectives::environment(&engine, event_choice, &sampled.collectives);
        environment.insert("collective_events".into(), events);
    }
    let is_passed = known.as_deref().is_some_and(check::passed);
    environment.insert("self_check".into(), json!({ "passed": is_passed, "checks": known }));
    report.warn(match spec.provenance() {
        Provenance::SharedGpu => {
            Some("LADDERSCOPE_SHARED_GPU is set: latencies of this run are meaningless".into())
        }
        Provenance::Measured | Provenance::EmulatedLink | Provenance::Simulated => {
            check::warning(known.as_deref())
        }
    });
    if let (P2p::Off, CollectiveTransport::Nccl(_, chosen)) = (spec.p2p, &engine.transport) {
        report.warn(chosen.as_deref().and_then(NcclChoices::switch_without_p2p));
    }
    let traced = match is_traced {
        true => {
            report.phase("timing operations");
            instrumented::run(&InstrumentedRun {
                engine: &engine,
                spec,
                prompts: &shared.prompts,
                peers,
                clock: shared.clock,
                events: event_choice.is_some_and(|choice| choice.in_samples),
            })
            .map_err(|error| Error::failed(format!("timing operations: {error}")))?
        }
        false => None,
    };
    if let Some(peers) = peers {
        // wait for the other ranks
        peers.barrier()?;
    }
    Ok(RankOutcome { samples: sampled.samples, memory_bytes, environment, traced })
}

/// Timed generations of one rank.
struct Samples {
    /// Samples of all ranks, on rank 0.
    samples: Vec<Sample>,
    /// This rank's event timings of the collectives in each sample's last decode step.
    collectives: Vec<Vec<CollectiveTime>>,
    compared: TokenComparison,
    /// State of the GPU during the samples.
    clocks: Option<Sampled>,
}

fn samples(
    shared: &Shared<'_>,
    engine: &Engine,
    generation: &mut Generation,
    report: &mut Reporter<'_>,
) -> Result<Samples> {
    let (spec, peers) = (&shared.job.spec, report.peers);
    let watch = shared.job.watch && engine.ranks.first().is_some_and(|rank| rank.index == 0);
    let info = engine.gpu.info();
    let compared = TokenComparison::new(spec, shared.setup.model.shape.layers);
    let mut done = Samples { samples: Vec::new(), collectives: Vec::new(), compared, clocks: None };
    for number in 0..spec.warmup + spec.samples {
        let name = phase_name(spec, number);
        if number == spec.warmup {
            done.clocks = Some(Sampled::start(info));
        }
        report.phase(&name);
        engine.prepare(spec.batch, &shared.prompts)?;
        if let Some(peers) = peers {
            peers.barrier()?;
        }
        let times = generation
            .run(engine, &name, watch, &mut |event| report.event(event))
            .map_err(|error| Error::failed(format!("{name}: {error}")))?;
        if number >= spec.warmup {
            if let Some(clocks) = &mut done.clocks {
                clocks.ended(info);
            }
            done.collectives.push(generation.collectives()?);
        }
        let tokens = engine.generated_tokens(spec.output_tokens)?;
        let Some(all) = gather(peers, "times", (times, tokens))? else { continue };
        let (all, tokens): (Vec<GenerationTimes>, Vec<GeneratedTokens>) = all.into_iter().unzip();
        done.compared.check(&name, &tokens)?;
        if let Some(index) = number.checked_sub(spec.warmup) {
            let sample = combine(&all, &[], spec.tp);
            report.event(RunEvent::SampleDone { index, of: spec.samples, sample: sample.clone() });
            done.samples.push(sample);
        }
    }
    Ok(done)
}

/// Times a decode step's products and selects the fastest implementation, or uses `asked`. Rank 0 decides for
/// all ranks, because ranks with the same data must compute the same bits.
fn choose_products(
    engine: &mut Engine,
    asked: Option<ProductKernel>,
    peers: Option<&Arc<Peers>>,
    on_phase: &mut dyn FnMut(&str),
) -> Result<Vec<ProductTimes>> {
    let products = engine.products()?;
    let own = matmul::measure(engine, &products, asked, peers.is_none(), on_phase)?;
    let times = broadcast(peers, "times of products", own)?;
    let fastest = || matmul::choice(engine.setup.dtype, &products, &times);
    // for steps created later
    engine.setup.matvec = asked.map_or_else(fastest, MatvecChoice::Asked);
    Ok(times)
}

/// Maximum over all ranks on rank 0; the rank's own number on other ranks.
fn most(peers: Option<&Arc<Peers>>, number: u64) -> Result<u64> {
    let all = gather(peers, "memory", number)?.unwrap_or_default();
    Ok(all.into_iter().fold(number, u64::max))
}

fn environment(
    spec: &Spec,
    engine: &Engine,
    generation: &Generation,
    setup: &EngineSetup,
    products: &[ProductTimes],
    checked: Option<&LinkCheck>,
) -> Environment {
    let info = engine.gpu.info();
    let compiled = engine.kernels.compiled();
    let weights = if setup.model.has_weights { "checkpoint" } else { "random, from the seed" };
    let transport = &engine.transport;
    let divided =
        engine.divided().map(|(compute, comm)| json!({ "compute": compute, "communication": comm }));
    let divides_head = setup.shard_head || spec.architecture.wiring(1).divides_head();
    let mut environment = Environment::from([
        ("backend".into(), json!("cuda")),
        ("gpu".into(), json!(info.name)),
        ("gpu_uuid".into(), json!(info.uuid)),
        ("compute_capability".into(), json!(format!("{}.{}", info.sm.0, info.sm.1))),
        ("multiprocessors".into(), json!(info.multiprocessors)),
        ("driver_api".into(), json!(info.driver_api)),
        ("nvrtc".into(), json!(engine.kernels.compiler())),
        ("cublaslt".into(), json!(blas::version().ok())),
        (
            "kernels".into(),
            json!({
                "compiled": compiled.compiled,
                "from_disk": compiled.cached,
                "ms": compiled.time.as_secs_f64() * 1e3,
            }),
        ),
        ("decode".into(), json!(if setup.graph { "graph" } else { "eager" })),
        ("graph_nodes".into(), json!(generation.graph_nodes())),
        ("collective".into(), json!(engine.collectives_in_words())),
        ("collective_multiprocessors".into(), json!(engine.collective_sms(spec.batch))),
        ("programmatic_launches".into(), json!(engine.programmatic())),
        ("programmatic_edges".into(), json!(generation.programmatic_edges())),
        ("multiprocessors_divided".into(), json!(divided)),
        ("prefetch".into(), json!(engine.programmatic() && setup.tuning.prefetch)),
        (
            "ahead".into(),
            json!(
                (engine.programmatic() && setup.tuning.prefetch)
                    .then_some(engine.kernels.options().ahead)
            ),
        ),
        ("matvec".into(), json!(engine.setup.matvec.describe())),
        ("products".into(), json!(products)),
        ("head".into(), json!(if divides_head && spec.tp > 1 { "sharded" } else { "replicated" })),
        ("weights".into(), json!(weights)),
        ("activations".into(), json!(setup.dtype)),
        ("kv_cache".into(), json!(setup.dtype)),
        ("parameters".into(), json!(setup.model.shape.parameters())),
    ]);
    if setup.weights == DType::Fp8 {
        environment.insert("quantized".into(), json!(QUANTIZED));
    }
    match transport {
        CollectiveTransport::Nccl(_, chosen) => {
            environment.insert("nccl".into(), json!(Nccl::load().ok().map(|n| n.version().to_string())));
            environment.insert("nccl_first_sums_bytes".into(), json!(engine.nccl_bytes));
            environment.insert("nccl_variables".into(), json!(nccl::variables()));
            environment.insert("nccl_chosen".into(), json!(chosen));
        }
        CollectiveTransport::Emulated(link) => {
            let mut entry = link.describe();
            let more = json!({ "ranks": spec.tp, "executed_ranks": 1, "on_this_gpu": checked });
            if let (Some(entry), Value::Object(more)) = (entry.as_object_mut(), more) {
                entry.extend(more);
            }
            environment.insert("emulated_link".into(), entry);
        }
        CollectiveTransport::None | CollectiveTransport::Loopback => {}
    }
    environment
}
