//! The driver layer and cuBLASLt on the software CUDA device: memory, streams, graphs, faults.
//!
//! The device is found by variables that must be set before a process starts: each test runs its body, an
//! ignored test of this binary, in a process of its own.

use std::process::Command;

use crate::device::{Device, device};
use crate::support::finish;

/// Set in the process that runs a body.
const INSIDE: &str = "LADDERSCOPE_TEST_INSIDE";

/// Runs the body of this name on the software device with these variables.
fn on_device(device: &Device, body: &str, variables: &[(&str, &str)]) {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.envs(device.variables()).envs(variables.iter().copied());
    run(body, command);
}

/// Runs the body of this name; ends it where it takes too long.
fn run(body: &str, mut command: Command) {
    let cache = tempfile::tempdir().expect("a temporary folder");
    command.args(["--exact", &format!("driver::inside::{body}"), "--ignored", "--nocapture"]);
    command.env("XDG_CACHE_HOME", cache.path()).env(INSIDE, "1");
    let done = finish(command);
    assert!(done.code == 0 && done.stdout.contains("1 passed"), "{body}: {done:?}");
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_keeps_the_same_rules() {
    if let Err(error) = machine::driver::Gpu::count() {
        eprintln!("skipped: {error}");
        return;
    }
    let bodies = [
        "memory",
        "streams",
        "graphs",
        "failed_captures",
        "frees_in_captures",
        "products",
        "captured_products",
    ];
    for body in bodies {
        eprintln!("{body} ...");
        run(body, Command::new(std::env::current_exe().expect("this binary")));
    }
}

#[test]
fn memory_is_written_read_and_bounded() {
    on_device(device!(), "memory", &[]);
}

#[test]
fn memory_that_does_not_fit_is_told_with_its_arithmetic() {
    on_device(device!(), "too_much_memory", &[("FAKE_CUDA_MEMORY", "1048576")]);
}

#[test]
fn streams_copy_fill_and_run_kernels_in_order() {
    let device = device!();
    for seed in ["1", "2", "3"] {
        on_device(device, "streams", &[("FAKE_CUDA_SEED", seed)]);
    }
}

#[test]
fn two_streams_are_captured_and_replayed() {
    let device = device!();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let log = folder.path().join("log");
    for seed in ["1", "2", "3", "4"] {
        let path = log.to_str().expect("UTF-8");
        on_device(device, "graphs", &[("FAKE_CUDA_SEED", seed), ("FAKE_CUDA_LOG", path)]);
    }
    // kernels keep the priorities of their streams (CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)
    let log = std::fs::read_to_string(log).expect("the log of calls");
    let lines: Vec<serde_json::Value> =
        log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let made = lines.iter().find(|line| line.to_string().contains("instantiate"));
    assert!(made.is_some_and(|line| line["flags"] == 8), "{log}");
}

#[test]
fn a_capture_that_fails_leaves_the_stream_usable() {
    on_device(device!(), "failed_captures", &[]);
}

#[test]
fn memory_dropped_in_a_capture_is_freed_after_it() {
    on_device(device!(), "frees_in_captures", &[]);
}

#[test]
fn threads_capture_and_allocate_beside_one_another() {
    on_device(device!(), "threads", &[("FAKE_CUDA_DEVICES", "2")]);
}

#[test]
fn products_are_right_in_all_types() {
    on_device(device!(), "products", &[]);
}

#[test]
fn products_are_captured_with_a_reserved_workspace_only() {
    on_device(device!(), "captured_products", &[]);
}

#[test]
fn a_kernel_that_hangs_ends_waiting_and_hinders_no_exit() {
    on_device(device!(), "hang", &[("FAKE_CUDA_HANG", "add:1")]);
}

#[test]
fn a_kernel_that_fails_is_told_when_it_is_waited_for() {
    on_device(device!(), "failure", &[("FAKE_CUDA_BREAK", "add:1=700")]);
}

#[test]
fn drivers_that_refuse_say_why_and_what_to_do() {
    let device = device!();
    for (code, advice) in [
        ("100", "CUDA_VISIBLE_DEVICES"),
        ("802", "nvidia-fabricmanager"),
        ("803", "restart the machine"),
        ("804", "LD_LIBRARY_PATH"),
        ("999", "nvidia-smi"),
    ] {
        let fail = format!("cuInit:1={code}");
        on_device(device, "refusal", &[("FAKE_CUDA_FAIL", &fail), ("EXPECTED", advice)]);
    }
}

/// What runs in processes of their own.
mod inside {
    use std::time::{Duration, Instant};

    use base::error::Error;
    use half::{bf16, f16};
    use machine::driver::{
        DevicePtr, Function, Gpu, Launch, Memory, Priority, Stream, any_abandoned, arguments,
    };
    use plan::DType;
    use run::cuda::blas::{Blas, MatMul, Operands};
    use run::cuda::kernels::{GpuKernels, KernelOptions};

    use super::INSIDE;

    /// A body that does nothing unless it runs inside.
    macro_rules! body {
        ($name:ident, $body:block) => {
            #[test]
            #[ignore = "the body of a test above"]
            fn $name() {
                if std::env::var_os(INSIDE).is_some() {
                    $body
                }
            }
        };
    }

    fn message<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
        result.expect_err("an error").to_string()
    }

    fn gpu() -> Gpu {
        Gpu::open(0).expect("a GPU")
    }

    /// Whether it is the software device, on which nobody else is.
    fn is_software(gpu: &Gpu) -> bool {
        gpu.info().name.contains("Software")
    }

    fn stream(gpu: &Gpu) -> Stream {
        gpu.stream(Priority::Normal).expect("a stream")
    }

    fn floats(gpu: &Gpu, values: &[f32]) -> Memory {
        let memory = gpu.allocate(4 * values.len() as u64, "numbers").expect("memory");
        memory.upload(0, bytemuck::cast_slice(values)).expect("an upload");
        memory
    }

    fn read(memory: &Memory) -> Vec<f32> {
        let mut values = vec![0.0_f32; memory.bytes() as usize / 4];
        memory.download(0, bytemuck::cast_slice_mut(&mut values)).expect("a download");
        values
    }

    /// `add` of `kernels/elementwise.cu`: out = a + b.
    struct Add(Function);

    impl Add {
        fn new(gpu: &Gpu) -> Self {
            let options = KernelOptions { dtype: DType::F32, ..KernelOptions::default() };
            Self(GpuKernels::new(gpu, &options).and_then(|kernels| kernels.get("add")).expect("add"))
        }

        fn run(&self, stream: &Stream, a: DevicePtr, b: DevicePtr, out: DevicePtr, n: u64) {
            self.launch(stream, a, b, out, n, false);
        }

        fn launch(
            &self,
            stream: &Stream,
            a: DevicePtr,
            b: DevicePtr,
            out: DevicePtr,
            n: u64,
            programmatic: bool,
        ) {
            let launch = Launch { grid: [1, 1, 1], block: [64, 1, 1], shared_bytes: 0, programmatic };
            stream.launch(&self.0, &launch, &mut arguments![a, b, out, n]).expect("a launch");
        }
    }

    body!(memory, {
        let gpu = gpu();
        let info = gpu.info();
        assert_eq!(info.index, 0);
        assert!(!is_software(&gpu) || info.sm == (9, 0), "{info:?}");
        assert!(info.uuid.starts_with("GPU-") && info.multiprocessors > 0, "{info:?}");
        let (before, total) = gpu.memory().expect("its memory");
        assert_eq!(total, info.memory_bytes);
        let memory = gpu.allocate(1 << 20, "a test").expect("memory");
        assert_eq!(memory.ptr().0 % 256, 0);
        assert!(gpu.memory().expect("its memory").0 < before);
        memory.upload(100, &[1, 2, 3]).expect("an upload");
        let mut back = [0; 2];
        memory.download(101, &mut back).expect("a download");
        assert_eq!(back, [2, 3]);
        assert!(message(memory.upload((1 << 20) - 2, &[1, 2, 3])).contains("1048576 bytes"));
        drop(memory);
        // on a GPU other processes take memory too
        assert!(!is_software(&gpu) || gpu.memory().expect("its memory").0 == before);
        assert_eq!(gpu.allocate(0, "nothing").expect("nothing").bytes(), 0);
        let error = message(Gpu::open(700));
        let count = Gpu::count().expect("a number of GPUs");
        assert!(error.contains("no GPU 700") && error.contains(&format!("sees {count}")), "{error}");
    });

    body!(too_much_memory, {
        let gpu = gpu();
        let kept = gpu.allocate(500_000, "the first half").expect("memory");
        let error = message(gpu.allocate(900_000, "the KV cache"));
        for part in
            ["out of memory on GPU 0", "the KV cache needs 900000 bytes", "are free", "larger TP"]
        {
            assert!(error.contains(part), "{part}: {error}");
        }
        drop(kept);
        gpu.allocate(900_000, "the KV cache").expect("memory after another was freed");
    });

    body!(streams, {
        let gpu = gpu();
        let (stream, add) = (stream(&gpu), Add::new(&gpu));
        let n = 1000_u64;
        let ones: Vec<f32> = vec![1.0; n as usize];
        let a = gpu.allocate(4 * n, "a").expect("memory");
        let b = gpu.allocate(4 * n, "b").expect("memory");
        stream.copy_to_device(a.ptr(), bytemuck::cast_slice(&ones)).expect("a copy");
        stream.fill(b.ptr(), 0, 4 * n).expect("a fill");
        // programmatic launches depend on the one before them too
        for turn in 0..5 {
            add.launch(&stream, a.ptr(), b.ptr(), b.ptr(), n, turn % 2 == 1);
        }
        stream.synchronize_within(Duration::from_secs(20)).expect("its end");
        assert_eq!(read(&b), vec![5.0; n as usize]);
        let (start, end) = (gpu.event(true).expect("an event"), gpu.event(true).expect("an event"));
        stream.record(&start).expect("a record");
        add.run(&stream, a.ptr(), b.ptr(), b.ptr(), n);
        stream.record(&end).expect("a record");
        end.synchronize_within(Duration::from_secs(20)).expect("its end");
        assert!(end.is_done().expect("an answer") && stream.is_done().expect("an answer"));
        assert!(end.elapsed_ms(&start).expect("a time") > 0.0);
        let untimed = gpu.event(false).expect("an event");
        stream.record(&untimed).expect("a record");
        untimed.synchronize_within(Duration::from_secs(20)).expect("its end");
        assert!(message(untimed.elapsed_ms(&start)).contains("no times"));
    });

    body!(graphs, {
        let gpu = gpu();
        let (main, beside, add) =
            (stream(&gpu), gpu.stream(Priority::High).expect("a stream"), Add::new(&gpu));
        let n = 64_u64;
        let one = floats(&gpu, &[1.0; 64]);
        let (x, y) = (floats(&gpu, &[0.0; 64]), floats(&gpu, &[0.0; 64]));
        let event = || gpu.event(false).expect("an event");
        let (fork, join) = (event(), event());
        let (start, end) = (gpu.event(true).expect("an event"), gpu.event(true).expect("an event"));
        // a step: x += 1 twice; beside it, after the first, y += x; joined: x += y
        let graph = main
            .capture(|| {
                main.record_external(&start)?;
                add.run(&main, x.ptr(), one.ptr(), x.ptr(), n);
                main.record(&fork)?;
                beside.wait(&fork)?;
                add.run(&beside, y.ptr(), x.ptr(), y.ptr(), n);
                beside.record(&join)?;
                main.wait(&join)?;
                add.run(&main, x.ptr(), one.ptr(), x.ptr(), n);
                add.run(&main, x.ptr(), y.ptr(), x.ptr(), n);
                main.record_external(&end)
            })
            .expect("a graph");
        assert_eq!(graph.nodes().expect("nodes"), 6, "four kernels, two records");
        let exec = graph.instantiate().expect("a graph to launch");
        drop(graph);
        assert_eq!(read(&x), vec![0.0; 64], "nothing was done yet");
        exec.upload(&main).expect("an upload");
        let (mut x_now, mut y_now) = (0.0, 0.0);
        for _ in 0..3 {
            exec.launch(&main).expect("a launch");
            main.synchronize_within(Duration::from_secs(20)).expect("its end");
            y_now += x_now + 1.0;
            x_now += 2.0 + y_now;
            assert_eq!((read(&x), read(&y)), (vec![x_now; 64], vec![y_now; 64]));
            assert!(end.elapsed_ms(&start).expect("a time inside of the graph") > 0.0);
        }
    });

    body!(failed_captures, {
        let gpu = gpu();
        let (main, beside, add) = (stream(&gpu), stream(&gpu), Add::new(&gpu));
        let x = floats(&gpu, &[1.0; 64]);
        assert_eq!(message(main.capture(|| Err(Error::failed("the work fails")))), "the work fails");
        let error = message(main.capture(|| main.copy_to_device(x.ptr(), &[0; 4])));
        assert!(error.contains("while a graph is captured"), "{error}");
        let error = message(main.capture(|| main.synchronize()));
        assert!(error.contains("900") && error.contains("--no-graph"), "{error}");
        // forked, never joined
        let fork = gpu.event(false).expect("an event");
        let error = message(main.capture(|| {
            main.record(&fork)?;
            beside.wait(&fork)?;
            add.run(&beside, x.ptr(), x.ptr(), x.ptr(), 64);
            Ok(())
        }));
        assert!(error.contains("904") && error.contains("--no-graph"), "{error}");
        assert!(message(main.end_capture()).contains("not begun"));
        let fresh = stream(&gpu);
        add.run(&fresh, x.ptr(), x.ptr(), x.ptr(), 64);
        fresh.synchronize().expect("its end");
        assert_eq!(read(&x), vec![2.0; 64]);
        add.run(&main, x.ptr(), x.ptr(), x.ptr(), 64);
        main.synchronize().expect("the stream of the failed captures works");
        assert_eq!(read(&x), vec![4.0; 64]);
        let abandoned = stream(&gpu);
        abandoned.begin_capture().expect("a capture");
        drop(abandoned);
        assert!(!Stream::any_capturing());
    });

    body!(frees_in_captures, {
        let gpu = gpu();
        let (main, add) = (stream(&gpu), Add::new(&gpu));
        let x = floats(&gpu, &[1.0; 64]);
        let (before, _) = gpu.memory().expect("its memory");
        let dropped = gpu.allocate(64 << 20, "memory to drop").expect("memory");
        let (with, _) = gpu.memory().expect("its memory");
        assert!(with < before);
        let graph = main
            .capture(|| {
                drop(dropped);
                add.run(&main, x.ptr(), x.ptr(), x.ptr(), 64);
                Ok(())
            })
            .expect("a free would have ended the capture");
        assert!(!is_software(&gpu) || gpu.memory().expect("its memory").0 == before);
        graph.instantiate().expect("a graph").launch(&main).expect("a launch");
        main.synchronize().expect("its end");
        assert_eq!(read(&x), vec![2.0; 64]);
    });

    body!(threads, {
        std::thread::scope(|scope| {
            for index in 0..2 {
                scope.spawn(move || {
                    let gpu = Gpu::open(index).expect("a GPU");
                    let (main, add) = (stream(&gpu), Add::new(&gpu));
                    let x = floats(&gpu, &[1.0; 64]);
                    for _ in 0..20 {
                        let graph = main
                            .capture(|| {
                                add.run(&main, x.ptr(), x.ptr(), x.ptr(), 64);
                                Ok(())
                            })
                            .expect("a graph");
                        graph.instantiate().expect("a graph").launch(&main).expect("a launch");
                        main.synchronize().expect("its end");
                        let memory = floats(&gpu, &[0.5; 64]);
                        add.run(&main, memory.ptr(), memory.ptr(), memory.ptr(), 64);
                        main.synchronize().expect("its end");
                        assert_eq!(read(&memory), vec![1.0; 64]);
                    }
                    assert_eq!(read(&x), vec![(1 << 20) as f32; 64]);
                });
            }
        });
    });

    /// Numbers stored in a type, and what they are after that.
    fn store(values: &[f32], dtype: DType) -> (Vec<u8>, Vec<f32>) {
        match dtype {
            DType::F32 => (bytemuck::cast_slice(values).to_vec(), values.to_vec()),
            DType::F16 => {
                let stored: Vec<f16> = values.iter().map(|v| f16::from_f32(*v)).collect();
                let back = stored.iter().map(|v| v.to_f32()).collect();
                (bytemuck::cast_slice(&stored).to_vec(), back)
            }
            // no operand of a product is quantized
            _ => {
                let stored: Vec<bf16> = values.iter().map(|v| bf16::from_f32(*v)).collect();
                let back = stored.iter().map(|v| v.to_f32()).collect();
                (bytemuck::cast_slice(&stored).to_vec(), back)
            }
        }
    }

    fn load(bytes: &[u8], dtype: DType) -> Vec<f32> {
        match dtype {
            DType::F32 => bytemuck::pod_collect_to_vec::<u8, f32>(bytes),
            DType::F16 => {
                bytemuck::pod_collect_to_vec::<u8, f16>(bytes).iter().map(|v| v.to_f32()).collect()
            }
            _ => bytemuck::pod_collect_to_vec::<u8, bf16>(bytes).iter().map(|v| v.to_f32()).collect(),
        }
    }

    /// A product with random operands: memory, and what must come out.
    struct Product {
        matmul: MatMul,
        x: Memory,
        w: Memory,
        out: Memory,
        right: Vec<f64>,
    }

    impl Product {
        fn new(gpu: &Gpu, matmul: MatMul) -> Self {
            let (rows, inputs, outputs) =
                (matmul.rows as usize, matmul.inputs as usize, matmul.outputs as usize);
            let mut random = fastrand::Rng::with_seed(matmul.rows + 31 * matmul.inputs);
            let mut numbers = |n: usize| (0..n).map(|_| random.f32() - 0.5).collect::<Vec<_>>();
            let (x_bytes, x) = store(&numbers(rows * inputs), matmul.dtype);
            let (w_bytes, w) = store(&numbers(outputs * inputs), matmul.dtype);
            let mut right = vec![0.0; rows * outputs];
            for r in 0..rows {
                for o in 0..outputs {
                    let terms =
                        (0..inputs).map(|i| f64::from(x[r * inputs + i]) * f64::from(w[o * inputs + i]));
                    right[r * outputs + o] = terms.sum();
                }
            }
            let memory = |bytes: &[u8]| {
                let memory = gpu.allocate(bytes.len() as u64, "an operand").expect("memory");
                memory.upload(0, bytes).expect("an upload");
                memory
            };
            let out = gpu.allocate(matmul.bytes()[2], "a product").expect("memory");
            Self { x: memory(&x_bytes), w: memory(&w_bytes), out, right, matmul }
        }

        fn run(&self, blas: &Blas, stream: &Stream) -> Result<(), Error> {
            blas.matmul(stream, &self.matmul, self.x.ptr(), self.w.ptr(), self.out.ptr())
        }

        fn check(&self) {
            let mut bytes = vec![0xff; self.out.bytes() as usize];
            self.out.download(0, &mut bytes).expect("a download");
            let dtype = if self.matmul.f32_output { DType::F32 } else { self.matmul.dtype };
            let tolerance = if dtype == DType::F32 { 1e-5 } else { 1e-2 };
            let largest = self.right.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
            for (at, (value, right)) in load(&bytes, dtype).iter().zip(&self.right).enumerate() {
                let error = (f64::from(*value) - right).abs() / largest;
                assert!(error <= tolerance, "{} at {at}: {value} for {right}", self.matmul);
            }
        }
    }

    fn matmul(rows: u64, inputs: u64, outputs: u64, dtype: DType, f32_output: bool) -> MatMul {
        MatMul { rows, inputs, outputs, dtype, f32_output, sm_target: None }
    }

    body!(products, {
        let gpu = gpu();
        let (blas, stream) = (Blas::new(&gpu).expect("cuBLASLt"), stream(&gpu));
        for dtype in [DType::F32, DType::Bf16, DType::F16] {
            for f32_output in [false, true] {
                for (rows, inputs, outputs) in [(1, 8, 5), (7, 64, 33), (33, 24, 1), (16, 128, 96)] {
                    let product = Product::new(&gpu, matmul(rows, inputs, outputs, dtype, f32_output));
                    product.run(&blas, &stream).expect("a product");
                    stream.synchronize().expect("its end");
                    product.check();
                }
            }
        }
        let target = MatMul { sm_target: Some(2), ..matmul(4, 64, 32, DType::Bf16, true) };
        blas.prepare(&target).expect("a plan");
        let product = Product::new(&gpu, target);
        let weights = [product.w.ptr()];
        let operands = Operands { x: product.x.ptr(), weights: &weights, out: product.out.ptr() };
        let tuned = blas.tune(&stream, &target, &operands).expect("times");
        assert!(tuned.candidates >= 1 && tuned.best < tuned.candidates, "{tuned:?}");
        assert!(tuned.best_us > 0.0 && tuned.best_us <= tuned.first_us, "{tuned:?}");
        product.run(&blas, &stream).expect("a product");
        stream.synchronize().expect("its end");
        product.check();
        assert!(message(blas.prepare(&matmul(0, 8, 8, DType::F32, false))).contains("is empty"));
    });

    body!(captured_products, {
        let gpu = gpu();
        let (blas, main) = (Blas::new(&gpu).expect("cuBLASLt"), stream(&gpu));
        let product = Product::new(&gpu, matmul(3, 64, 40, DType::Bf16, false));
        let error = message(main.capture(|| product.run(&blas, &main)));
        assert!(error.contains("reserve"), "{error}");
        blas.reserve(&main).expect("a workspace");
        let exec = main
            .capture(|| product.run(&blas, &main))
            .and_then(|graph| graph.instantiate())
            .expect("a graph");
        for _ in 0..2 {
            let poison = vec![0xff; product.out.bytes() as usize];
            product.out.upload(0, &poison).expect("an upload");
            exec.launch(&main).expect("a launch");
            main.synchronize().expect("its end");
            product.check();
        }
    });

    body!(hang, {
        let gpu = gpu();
        let (main, add) = (stream(&gpu), Add::new(&gpu));
        let x = floats(&gpu, &[1.0; 64]);
        add.run(&main, x.ptr(), x.ptr(), x.ptr(), 64);
        let begun = Instant::now();
        let error = message(main.synchronize_within(Duration::from_millis(300)));
        assert!(error.contains("has not finished") && error.contains("0.3 s"), "{error}");
        assert!(gpu.is_abandoned() && any_abandoned());
        // freeing would wait for the kernel
        drop((x, add, main, gpu));
        assert!(begun.elapsed() < Duration::from_secs(10));
    });

    body!(failure, {
        let gpu = gpu();
        let (main, add) = (stream(&gpu), Add::new(&gpu));
        let x = floats(&gpu, &[1.0; 64]);
        add.run(&main, x.ptr(), x.ptr(), x.ptr(), 64);
        let error = message(main.synchronize_within(Duration::from_secs(20)));
        assert!(error.contains("700") && error.contains("compute-sanitizer"), "{error}");
        assert!(message(x.upload(0, &[0; 4])).contains("GPU 0"), "the GPU stays unusable");
    });

    body!(refusal, {
        let expected = std::env::var("EXPECTED").expect("what to expect");
        for _ in 0..2 {
            let error = message(Gpu::count());
            assert!(error.contains(&expected), "{error}");
        }
        assert!(message(Gpu::open(0)).contains(&expected));
    });
}
