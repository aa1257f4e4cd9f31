//! Generated profiler traces with known results, for tests and benchmarks. They have PyTorch's mix of
//! events (mostly operators, then launches, kernels, arrows, annotations), in various spellings of JSON.

use std::fmt::Write as _;

use fastrand::Rng;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub events: usize,
    /// Number of profiler steps, at least 1.
    pub steps: usize,
    /// Number of streams, at least 1.
    pub streams: u64,
    pub rank: u32,
    pub seed: u64,
}

impl Default for Shape {
    fn default() -> Self {
        Self { events: 200, steps: 3, streams: 2, rank: 0, seed: 1 }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Writes an array of events without an object around it.
    pub bare: bool,
    pub spaced: bool,
    pub shuffled: bool,
    pub escaped: bool,
    pub times: Times,
    /// Puts `traceEvents` first in the object instead of second to last.
    pub events_first: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Times {
    /// Microseconds with three decimals: `12.345`.
    #[default]
    Fraction,
    /// The same number in quotes: `"12.345"`.
    Text,
    /// An integer with an exponent: `12345e-3`.
    Exponent,
    /// `12.34599`: digits below 1 ns.
    Excess,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TrueSpan {
    /// Step that contains its launch.
    pub step: u32,
    pub start_ns: i64,
    pub end_ns: i64,
    /// Return of its launch, or its start if that was earlier (ns).
    pub ready_ns: i64,
    pub stream: i64,
    /// Name of the kernel or copy, unescaped.
    pub name: String,
    pub kind: &'static str,
}

#[derive(Clone, Debug, Default)]
pub struct Generated {
    pub json: String,
    /// All GPU events in order of writing, each with the offset of its end in the text.
    pub spans: Vec<(usize, TrueSpan)>,
    /// Annotations: name, start, end (ns).
    pub ranges: Vec<(String, i64, i64)>,
    /// Offset of the end of each event in the text, GPU or not.
    pub ends: Vec<usize>,
}

const KERNELS: [(&str, &str, &str); 6] = [
    ("kernel", "kernel", "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"),
    (
        "kernel",
        "kernel",
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>)",
    ),
    ("kernel", "kernel", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
    (
        "kernel",
        "kernel",
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_32x6_tn_align8>(cutlass_80::Params)",
    ),
    ("gpu_memcpy", "memcpy", "Memcpy DtoD (Device -> Device)"),
    ("gpu_memset", "memset", "Memset (Device)"),
];

const OPERATORS: [&str; 5] =
    ["aten::linear", "aten::addmm", "aten::empty_strided", "c10d::allreduce_", "aten::to"];

/// First time of a trace (ns): above 2^53 / 1000 in microseconds, so that a float would lose digits.
const FIRST_NS: i64 = 4_458_676_522_690_655_123;

/// Generates a trace of this shape and style. Deterministic for equal arguments.
pub fn generate(shape: Shape, style: Style) -> Generated {
    let mut writer =
        Writer { style, rng: Rng::with_seed(shape.seed), out: Generated::default(), first: true };
    let gap = if style.spaced { "\n  " } else { "" };
    if !style.bare {
        writer.out.json.push('{');
        if !style.events_first {
            top(&mut writer.out.json, shape, gap);
            writer.out.json.push(',');
        }
        let _ = write!(writer.out.json, "{gap}\"traceEvents\":{gap}");
    }
    writer.out.json.push('[');
    writer.metadata();
    let steps = shape.steps.max(1);
    let (mut now, mut free) = (FIRST_NS, vec![FIRST_NS; shape.streams.max(1) as usize]);
    let mut link = 1u64;
    for step in 0..steps {
        let (begin, number) = (now, step as u32 + 1);
        while writer.out.ends.len() * steps < shape.events * (step + 1) {
            now = writer.group(now, &mut free, &mut link, number);
        }
        writer.annotation(&format!("ProfilerStep#{number}"), begin, now);
        now += 1000;
    }
    writer.out.json.push_str(gap);
    writer.out.json.push(']');
    if !style.bare {
        if style.events_first {
            writer.out.json.push(',');
            top(&mut writer.out.json, shape, gap);
        } else {
            let _ = write!(writer.out.json, ",{gap}\"traceName\":{gap}\"trace.json\"");
        }
        let _ = write!(writer.out.json, "{gap}}}");
    }
    writer.out
}

fn top(json: &mut String, shape: Shape, gap: &str) {
    let rank = shape.rank;
    let _ = write!(
        json,
        "{gap}\"schemaVersion\":1,{gap}\"deviceProperties\":[{{\"id\":0,\"name\":\"NVIDIA H100 80GB HBM3\",\"totalGlobalMem\":85052031488,\"numSms\":132}}],{gap}\"cuda_driver_version\":12090,{gap}\"distributedInfo\":{{\"backend\":\"nccl\",\"rank\":{rank},\"world_size\":8,\"pg_config\":[{{\"pg_name\":\"0\",\"ranks\":[0,1]}}]}},{gap}\"baseTimeNanoseconds\":1711964646000000000"
    );
}

struct Writer {
    style: Style,
    rng: Rng,
    out: Generated,
    first: bool,
}

impl Writer {
    /// Writes a launch with its operators, arrows and GPU event; returns the host time after it.
    fn group(&mut self, now: i64, free: &mut [i64], link: &mut u64, step: u32) -> i64 {
        let mut at = now;
        for depth in 0..14 {
            let name = OPERATORS[self.rng.usize(..OPERATORS.len())];
            let length = self.rng.i64(500..9_000);
            let args = format!(
                "{{\"External id\": {link}, \"Record function id\": 0, \"Concrete Inputs\": [\"\", \"[2, 3]\", \"\"], \"Input type\": [\"c10::BFloat16\", \"Scalar\", \"\"], \"Input Dims\": [[{depth}, 4096], [4096], []], \"Ev Idx\": {link}}}"
            );
            self.event("X", "cpu_op", name, "4242", "4242", Some((at, length)), &args);
            at += self.rng.i64(1..2_000);
        }
        for _ in 0..2 {
            let call = self.rng.i64(1_000..8_000);
            let args = format!("{{\"External id\": {link}, \"cbid\": 211, \"correlation\": {link}}}");
            self.event("X", "cuda_runtime", "cudaLaunchKernel", "4242", "4242", Some((at, call)), &args);
            let launched = at + call;
            let row = self.rng.usize(..free.len());
            let start = free[row].max(at + self.rng.i64(500..20_000));
            let length = if self.rng.u32(..20) == 0 { 0 } else { self.rng.i64(1..90_000) };
            free[row] = start + length;
            let (category, kind, plain) = KERNELS[self.rng.usize(..KERNELS.len())];
            let (name, written) = self.name(plain);
            let stream = if row == 0 { 7 } else { 20 + row as i64 };
            let args = format!(
                "{{\"External id\": {link}, \"queued\": 0, \"device\": 0, \"context\": 1, \"stream\": {stream}, \"correlation\": {link}, \"registers per thread\": 40, \"grid\": [128, 1, 1], \"block\": [256, 1, 1], \"est. achieved occupancy %\": 31}}"
            );
            self.event("X", category, &written, "0", &stream.to_string(), Some((start, length)), &args);
            let ready_ns = launched.min(start - 1);
            let end_ns = start + length;
            let span = TrueSpan { step, start_ns: start, end_ns, ready_ns, stream, name, kind };
            self.out.spans.push((self.out.json.len(), span));
            self.event("s", "ac2g", "ac2g", "4242", "4242", Some((at, -1)), "");
            at = launched + self.rng.i64(1..3_000);
            *link += 1;
        }
        if self.rng.u32(..8) == 0 {
            self.annotation("## forward ##", now, at);
        }
        at
    }

    fn annotation(&mut self, name: &str, start: i64, end: i64) {
        // steps are recognised by name, so it is not escaped
        let (name, written) = match name.starts_with("ProfilerStep") {
            true => (name.to_owned(), name.to_owned()),
            false => self.name(name),
        };
        self.event(
            "X",
            "user_annotation",
            &written,
            "4242",
            "4242",
            Some((start, end - start)),
            "{\"External id\": 9}",
        );
        self.out.ranges.push((name, start, end));
    }

    fn metadata(&mut self) {
        self.event("M", "", "process_name", "4242", "0", None, "{\"name\": \"python {[\"}");
        self.event("M", "", "process_labels", "0", "0", None, "{\"labels\": \"GPU 0\"}");
    }

    fn name(&mut self, plain: &str) -> (String, String) {
        if !self.style.escaped || self.rng.bool() {
            return (plain.to_owned(), plain.to_owned());
        }
        (format!("{plain} \"q\\\" é\n{{"), format!("{plain} \\\"q\\\\\\\" \\u00e9\\n{{"))
    }

    /// Writes an event. Omits a negative duration.
    #[expect(clippy::too_many_arguments, reason = "an event has these keys")]
    fn event(
        &mut self,
        phase: &str,
        category: &str,
        name: &str,
        pid: &str,
        tid: &str,
        times: Option<(i64, i64)>,
        args: &str,
    ) {
        let mut keys = vec![("ph", format!("\"{phase}\""))];
        if !category.is_empty() {
            keys.push(("cat", format!("\"{category}\"")));
        }
        keys.push(("name", format!("\"{name}\"")));
        keys.push(("pid", pid.to_owned()));
        keys.push(("tid", tid.to_owned()));
        if let Some((start, duration)) = times {
            keys.push(("ts", self.time(start)));
            if duration >= 0 {
                keys.push(("dur", self.time(duration)));
            }
        }
        if !args.is_empty() {
            keys.push(("args", args.to_owned()));
        }
        if self.style.shuffled {
            self.rng.shuffle(&mut keys);
        }
        let json = &mut self.out.json;
        if !std::mem::take(&mut self.first) {
            json.push(',');
        }
        let (gap, colon) = if self.style.spaced { ("\n    ", " : ") } else { ("", ": ") };
        let _ = write!(json, "{}{{", if self.style.spaced { gap } else { "\n" });
        for (at, (key, value)) in keys.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            let _ = write!(json, "{comma}{gap}\"{key}\"{colon}{value}");
        }
        let _ = write!(json, "{gap}}}");
        self.out.ends.push(json.len());
    }

    fn time(&mut self, ns: i64) -> String {
        let plain = format!("{}.{:03}", ns / 1000, ns % 1000);
        match self.style.times {
            Times::Fraction => plain,
            Times::Text => format!("\"{plain}\""),
            Times::Exponent => format!("{ns}e-3"),
            Times::Excess => format!("{plain}{}", self.rng.u32(..1000)),
        }
    }
}
