//! Device time of named ranges (NVTX, user annotations), by name and by layer.
//!
//! Device work belongs to the host ranges that launched it, whenever it ran. For ranks without recorded launches, and
//! for annotations that only the device has, it is the device's work during the range. Ranges of one name on one rank
//! form a union: nested ones count once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rayon::prelude::*;
use serde::Serialize;

use super::outer_ranges::OuterRanges;
use trace::overlap::intervals::{
    Coverage, TimeInterval, clip, common_length, difference, length, union,
};
use trace::overlap::{Lanes, LanesBuilder, SpanRuns, us};
use trace::{LaunchSite, Range};

/// Device time of the ranges of one name or layer. Times per rank, averaged over ranks (us).
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct RangeRow {
    pub name: String,
    /// Layer parsed from the name.
    pub layer: Option<u32>,
    /// Host ranges, over all ranks; device ranges for a name that only the device has.
    pub count: u64,
    /// Total duration of host ranges of this name (us); null if there are none.
    pub time_us: Option<f64>,
    /// Total duration of device annotations of this name (us); null if there are none.
    pub device_us: Option<f64>,
    /// Time in which any lane was busy with work of these ranges (us).
    pub busy_us: f64,
    /// Part on the compute lane (us).
    pub compute_us: f64,
    /// Part on the comm lane (us).
    pub comm_us: f64,
    /// Exposed part of `comm_us`: the rank's compute lane was idle (us).
    pub exposed_us: f64,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    count: u64,
    time: Option<i64>,
    device: Option<i64>,
    busy: i64,
    compute: i64,
    comm: i64,
    exposed: i64,
}

/// Rows by name, the longest first; empty if the trace has no names.
pub(super) fn by_name(runs: &SpanRuns, lanes: &[Lanes]) -> Vec<RangeRow> {
    let names = &runs.trace.meta.range_names;
    let mut rows: Vec<RangeRow> = sums(runs, lanes, |name| (name < names.len()).then_some(name as u32))
        .into_iter()
        .map(|(name, sums)| {
            let name = &names[name as usize];
            row(name.clone(), layer_of(name), sums, runs.ranks.len())
        })
        .collect();
    let time = |row: &RangeRow| row.time_us.or(row.device_us).unwrap_or(0.0);
    rows.sort_by(|a, b| time(b).total_cmp(&time(a)).then_with(|| a.name.cmp(&b.name)));
    rows
}

/// Rows by layer, in order; empty if no name contains a layer.
pub(super) fn by_layer(runs: &SpanRuns, lanes: &[Lanes]) -> Vec<RangeRow> {
    let layers: Vec<Option<u32>> = runs.trace.meta.range_names.iter().map(|n| layer_of(n)).collect();
    if layers.iter().all(Option::is_none) {
        return Vec::new();
    }
    let mut sums = sums(runs, lanes, |name| layers.get(name).copied().flatten());
    sums.sort_by_key(|(layer, _)| *layer);
    let ranks = runs.ranks.len();
    sums.into_iter()
        .map(|(layer, sums)| row(format!("layer {layer}"), Some(layer), sums, ranks))
        .collect()
}

fn row(name: String, layer: Option<u32>, sums: Sums, ranks: usize) -> RangeRow {
    let average = |ns: i64| us(ns) / ranks.max(1) as f64;
    RangeRow {
        name,
        layer,
        count: sums.count,
        time_us: sums.time.map(average),
        device_us: sums.device.map(average),
        busy_us: average(sums.busy),
        compute_us: average(sums.compute),
        comm_us: average(sums.comm),
        exposed_us: average(sums.exposed),
    }
}

/// Sums of the ranges whose names map to the same key.
fn sums(
    runs: &SpanRuns,
    lanes: &[Lanes],
    key: impl Fn(usize) -> Option<u32> + Sync,
) -> Vec<(u32, Sums)> {
    let all = &runs.trace.ranges;
    if all.is_empty() {
        return Vec::new();
    }
    let key = |range: &Range| key(range.name as usize);
    let outer = OuterRanges::from_trace(runs.trace);
    let mut launched = Launched::new(runs, &outer, &key);
    let has_launches =
        if runs.is_by_step() { outer.with_launches(&runs.trace.spans) } else { Vec::new() };
    let mut parts: Vec<RangePart> = Vec::new();
    for (at, range) in all.iter().enumerate() {
        let Some(key) = key(range) else { continue };
        let Ok(rank) = runs.ranks.binary_search(&range.rank) else { continue };
        let Some(time) = runs.clip_interval((range.start_ns, range.end_ns.max(range.start_ns))) else {
            continue;
        };
        let mut add = |time, is_first| {
            parts.push(RangePart { key, rank, on_device: range.on_device, time, is_first });
        };
        if !runs.is_by_step() {
            add(time, true);
        } else if launched.known[rank] && !range.on_device {
            // the host is ahead of the device, so the launches decide; a range without any belongs to its outer range
            let with_launches = outer.around(at as u32).find(|at| has_launches[*at]);
            if with_launches.is_some_and(|at| launched.active[at]) {
                add(time, true);
            }
        } else {
            // ranges have no steps, so use the times of the selected ones
            let extents = &lanes[rank].extents;
            let from = extents.partition_point(|extent| extent.1 < time.0);
            let near = extents[from..].iter().take_while(|extent| extent.0 <= time.1);
            let within = near.filter_map(|extent| clip(time, *extent));
            within.enumerate().for_each(|(at, time)| add(time, at == 0));
        }
    }
    parts.par_sort_unstable();
    let device = |lanes: &Lanes| {
        let exposed = difference(&lanes.comm, lanes.compute.union());
        [lanes.busy(), lanes.comm.clone(), exposed].map(Coverage::new)
    };
    let devices: Vec<[Coverage; 3]> = lanes.par_iter().map(device).collect();
    let mut sums: HashMap<u32, Sums> = HashMap::new();
    for together in parts.chunk_by(|a, b| (a.key, a.rank) == (b.key, b.rank)) {
        let RangePart { key, rank, .. } = together[0];
        let sums = sums.entry(key).or_default();
        let (host, device) = together.split_at(together.partition_point(|part| !part.on_device));
        let union_of = |parts: &[RangePart]| union(parts.iter().map(|part| part.time));
        for (sum, ranges) in [(&mut sums.time, host), (&mut sums.device, device)] {
            if !ranges.is_empty() {
                *sum = Some(sum.unwrap_or(0).saturating_add(length(&union_of(ranges))));
            }
        }
        let own = if host.is_empty() { device } else { host };
        sums.count += own.iter().filter(|part| part.is_first).count() as u64;
        if launched.known[rank] && !host.is_empty() {
            let lanes_of = launched.lanes.remove(&(key, rank)).unwrap_or_default().finish();
            let times = lanes_of.sums();
            sums.busy += times.busy_ns;
            sums.compute += times.compute_ns;
            sums.comm += times.comm_ns;
            sums.exposed += times.comm_ns - common_length(&lanes_of.comm, lanes[rank].compute.union());
            continue;
        }
        let ([busy, comm, exposed], mut near) = (&devices[rank], [0; 4]);
        for interval in union_of(own) {
            sums.busy += busy.within_with_cursor(interval, &mut near[0]);
            sums.compute += lanes[rank].compute.within_with_cursor(interval, &mut near[1]);
            sums.comm += comm.within_with_cursor(interval, &mut near[2]);
            sums.exposed += exposed.within_with_cursor(interval, &mut near[3]);
        }
    }
    sums.into_iter().collect()
}

/// Selected time of a range. The order makes parts of one key and rank adjacent, those of the device last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RangePart {
    key: u32,
    /// Index into [`SpanRuns::ranks`].
    rank: usize,
    on_device: bool,
    /// Absolute ns.
    time: TimeInterval,
    /// True for the first part of its range.
    is_first: bool,
}

struct Launched {
    /// Lanes by key of the ranges and rank.
    lanes: HashMap<(u32, usize), LanesBuilder>,
    /// True for ranks with recorded launches.
    known: Vec<bool>,
    /// True for ranges that launched selected work.
    active: Vec<bool>,
}

impl Launched {
    fn new(
        runs: &SpanRuns,
        outer: &OuterRanges<'_>,
        key: &(impl Fn(&Range) -> Option<u32> + Sync),
    ) -> Self {
        let ranges = &runs.trace.ranges;
        let active: Vec<AtomicBool> = ranges.iter().map(|_| AtomicBool::new(false)).collect();
        let of_rank = |(rank, of_rank): (usize, &Vec<_>)| {
            let mut places: HashMap<u32, usize> = HashMap::new();
            let mut lanes: Vec<((u32, usize), LanesBuilder)> = Vec::new();
            let mut known = false;
            // caches the ranges around the last site and their lanes, since launches of one range are adjacent
            let (mut last, mut of_site) = (LaunchSite::NONE, Vec::new());
            runs.each(of_rank, |span, interval| {
                let site = span.launched.range;
                known |= site != LaunchSite::NONE;
                if site != last {
                    last = site;
                    of_site.clear();
                    of_site.extend(outer.around(site).filter_map(|at| {
                        let place = *places.entry(key(&ranges[at])?).or_insert_with_key(|key| {
                            lanes.push(((*key, rank), LanesBuilder::default()));
                            lanes.len() - 1
                        });
                        // a range that ends within the site is not around its later launches
                        let end = ranges[at].end_ns;
                        let until = if end < ranges[site as usize].end_ns { end } else { i64::MAX };
                        Some((at, place, until))
                    }));
                }
                for (at, place, _) in of_site.iter().filter(|around| span.ready_ns < around.2) {
                    active[*at].store(true, Relaxed);
                    lanes[*place].1.add(span, interval, runs.class(span));
                }
            });
            (lanes, known)
        };
        let found: Vec<_> = runs.by_rank.par_iter().enumerate().map(of_rank).collect();
        let mut all = Self {
            lanes: HashMap::new(),
            known: Vec::new(),
            active: active.into_iter().map(AtomicBool::into_inner).collect(),
        };
        for (lanes, known) in found {
            all.lanes.extend(lanes);
            all.known.push(known);
        }
        all
    }
}

/// Layer index in a name: `model.layers.12.mlp`, `layer_12`, `nn.Module: LlamaDecoderLayer_12`, `transformer.h.12`,
/// `decode/L12/mlp`.
pub fn layer_of(name: &str) -> Option<u32> {
    let number = |text: &str| {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        text[..digits].parse().ok()
    };
    let lower = name.to_ascii_lowercase();
    for word in ["layers", "layer", "blocks", "block", "transformer.h"] {
        for (at, _) in lower.match_indices(word) {
            let rest = &lower[at + word.len()..];
            let rest = rest.strip_prefix(['.', '_', '-', ':', '[', '/', ' ', '#']).unwrap_or(rest);
            if let Some(layer) = number(rest.trim_start()) {
                return Some(layer);
            }
        }
    }
    name.split('/').find_map(|part| {
        let digits = part.strip_prefix('L').filter(|d| d.bytes().all(|b| b.is_ascii_digit()))?;
        number(digits)
    })
}

#[cfg(test)]
mod tests {
    //! Named ranges and layers of traces made by hand.

    use super::*;
    use crate::analysis::profile_events::{annotation, host_event, imported, kernel, launch};
    use crate::analysis::trace_report;
    use plan::{Lane, Phase};
    use trace::overlap::Selection;
    use trace::testing::{span, trace};
    use trace::{Range, Span, Trace};

    fn launched_in(mut span: Span, range: u32) -> Span {
        span.launched.range = range;
        span
    }

    fn named(spans: Vec<Span>, ranges: &[(&str, u32, i64, i64)]) -> Trace {
        let mut trace = trace(spans);
        trace.operations.iter_mut().for_each(|operation| operation.layer = None);
        for &(name, rank, start_ns, end_ns) in ranges {
            let names = &mut trace.meta.range_names;
            let at = names.iter().position(|n| n == name).unwrap_or(names.len());
            if at == names.len() {
                names.push(name.into());
            }
            trace.ranges.push(Range {
                rank,
                on_device: false,
                thread: 0,
                depth: 0,
                name: at as u32,
                start_ns,
                end_ns,
            });
        }
        trace
    }

    #[test]
    fn ranges_count_what_the_device_did_in_their_time() {
        let spans = vec![
            span(0, Lane::Compute, 0, 4_000),
            span(0, Lane::Comm, 3_000, 6_000),
            span(1, Lane::Compute, 0, 2_000),
        ];
        // The nested range of the same name counts once, as time; rank 1 has a shorter one.
        let ranges =
            [("forward", 0, 1_000, 8_000), ("forward", 0, 2_000, 3_000), ("forward", 1, 1_000, 2_000)];
        let rows = trace_report(&named(spans, &ranges), &Selection::default()).ranges;
        let row = &rows[0];
        assert_eq!((row.name.as_str(), row.count), ("forward", 3));
        assert_eq!((row.time_us, row.busy_us), (Some(4.0), 3.0), "averaged over two ranks");
        assert_eq!((row.compute_us, row.comm_us, row.exposed_us), (2.0, 1.5, 1.0));
    }

    #[test]
    fn a_window_cuts_ranges_too() {
        let spans = vec![span(0, Lane::Compute, 0, 10_000)];
        let trace = named(spans, &[("a", 0, 1_000, 9_000)]);
        let window = Selection { from_ns: Some(2_000), to_ns: Some(5_000), ..Selection::default() };
        let rows = trace_report(&trace, &window).ranges;
        assert_eq!((rows[0].time_us, rows[0].busy_us), (Some(3.0), 3.0));
    }

    #[test]
    fn a_step_has_the_ranges_of_its_time() {
        let spans = vec![
            span(0, Lane::Compute, 0, 1_000),
            Span { step: 1, ..span(0, Lane::Compute, 2_000, 3_000) },
        ];
        let mut trace = named(spans, &[("early", 0, 0, 1_500), ("late", 0, 2_500, 4_000)]);
        // a simulated step would begin at the end of the one before
        trace.meta.provenance = table::Provenance::Measured;
        let step = Selection { step: Some(1), ..Selection::default() };
        let rows = trace_report(&trace, &step).ranges;
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].name.as_str(), rows[0].time_us, rows[0].busy_us), ("late", Some(0.5), 0.5));
    }

    #[test]
    fn layers_come_from_names_where_operations_do_not_tell() {
        let spans = vec![span(0, Lane::Compute, 0, 3_000), span(0, Lane::Comm, 2_000, 6_000)];
        let ranges = [
            ("model.layers.1.mlp", 0, 0, 4_000),
            ("layers.1.attn", 0, 3_000, 5_000),
            ("loss", 0, 0, 9_000),
        ];
        let mut trace = named(spans, &ranges);
        let layers = trace_report(&trace, &Selection::default()).layers;
        assert_eq!(layers.len(), 1);
        assert_eq!((layers[0].layer, layers[0].from), (Some(1), "ranges"));
        assert_eq!((layers[0].compute_us, layers[0].comm_us, layers[0].exposed_us), (3.0, 3.0, 2.0));
        // Operations that know better go first.
        trace.operations[1].layer = Some(7);
        let layers = trace_report(&trace, &Selection::default()).layers;
        assert_eq!((layers[0].layer, layers[0].comm_us, layers[0].exposed_us), (Some(7), 4.0, 3.0));
        assert_eq!((layers[1].layer, layers[1].compute_us), (None, 3.0));
    }

    #[test]
    fn names_tell_layers() {
        for (name, layer) in [
            ("model.layers.12.mlp.down_proj", Some(12)),
            ("nn.Module: LlamaDecoderLayer_7", Some(7)),
            ("layer 3", Some(3)),
            ("Layer3", Some(3)),
            ("transformer.h.31.attn", Some(31)),
            ("blocks[4]", Some(4)),
            ("decode/L12/mlp/down", Some(12)),
            ("layer_norm", None),
            ("LayerNorm.layers.5", Some(5)),
            ("aten::native_layer_norm", None),
            ("L/x", None),
            ("layers.99999999999", None),
            ("große Schicht 5", None),
            ("", None),
        ] {
            assert_eq!(layer_of(name), layer, "{name}");
        }
    }

    const ANNOTATED: [&str; 5] = [
        r#"{"ph": "X", "cat": "user_annotation", "name": "optimizer", "pid": 1, "tid": 1, "ts": 1000, "dur": 200}"#,
        r#"{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 1100, "dur": 5, "args": {"correlation": 1}}"#,
        r#"{"ph": "X", "cat": "kernel", "name": "before", "pid": 0, "tid": 7, "ts": 1000, "dur": 900, "args": {"stream": 7, "correlation": 2}}"#,
        r#"{"ph": "X", "cat": "gpu_user_annotation", "name": "optimizer", "pid": 0, "tid": 7, "ts": 2000, "dur": 50}"#,
        r#"{"ph": "X", "cat": "kernel", "name": "adam", "pid": 0, "tid": 7, "ts": 2000, "dur": 50, "args": {"stream": 7, "correlation": 1}}"#,
    ];

    #[test]
    fn annotations_of_host_and_device_are_two_things() {
        let row = &trace_report(&imported(&ANNOTATED), &Selection::default()).ranges[0];
        assert_eq!(
            (row.count, row.time_us, row.device_us, row.busy_us),
            (1, Some(200.0), Some(50.0), 50.0)
        );
        // without launches and annotations of the host, as of CUDA graphs recorded as a whole, what ran in the time of the
        // device's annotation counts
        let row = &trace_report(&imported(&ANNOTATED[2..]), &Selection::default()).ranges[0];
        assert_eq!((row.count, row.time_us, row.device_us, row.busy_us), (1, None, Some(50.0), 50.0));
    }

    #[test]
    fn device_time_belongs_to_the_ranges_that_launched_it() {
        let work = |launched: u32, stream: u32, name: &str, start: u32, dur: u32| {
            launch("cudaGraphLaunch", launched, 1) + "," + &kernel(name, stream, start, dur, launched)
        };
        let (first, second) = ("execute_context_0(0)_generation_32(32)", "step[EXTEND bs=4]");
        let trace = imported(&[
            annotation(first, 1, 1000, 200),
            annotation("layers.3.mlp", 1, 1050, 100),
            work(1100, 7, "gemm", 2000, 500),
            work(1180, 9, "ncclDevKernel_AllReduce", 2300, 400),
            annotation(second, 1, 2100, 200), // the first one's kernels run in its time
            work(2150, 7, "gemm", 3000, 100),
            work(2900, 7, "gemm", 3200, 70),
        ]);
        let report = trace_report(&trace, &Selection::default());
        let row = |name: &str| {
            let row = report.ranges.iter().find(|row| row.name == name).unwrap();
            (row.time_us, row.device_us, row.busy_us, row.compute_us, row.comm_us, row.exposed_us)
        };
        assert_eq!(row(first), (Some(200.0), None, 700.0, 500.0, 400.0, 200.0));
        assert_eq!(row("layers.3.mlp"), (Some(100.0), None, 500.0, 500.0, 0.0, 0.0));
        assert_eq!(row(second), (Some(200.0), None, 100.0, 100.0, 0.0, 0.0));
        assert_eq!((report.layers[0].layer, report.layers[0].compute_us), (Some(3), 500.0));
        let steps: Vec<_> = (report.steps.iter())
            .map(|step| (step.step, step.name.as_deref(), step.batch, step.compute_us, step.comm_us))
            .collect();
        assert_eq!(
            steps,
            [(0, Some(first), Some(32), 500.0, 400.0), (1, Some(second), Some(4), 100.0, 0.0)]
        );
        let of_step = Selection::of_step(report.steps[1].key);
        let ranges = trace_report(&trace, &of_step).ranges;
        assert_eq!(
            ranges.iter().map(|row| (row.name.as_str(), row.busy_us)).collect::<Vec<_>>(),
            [(second, 100.0)]
        );
        let operators: Vec<_> = (report.operators.iter())
            .map(|row| (row.name.as_str(), row.count, row.total_us, row.comm_us, row.exposed_us))
            .collect();
        assert_eq!(operators, [("cudaGraphLaunch", 4, 1070.0, 400.0, 200.0)]);
    }

    /// Ranges of one thread that overlap without one being within the other, as of two steps in flight.
    #[test]
    fn a_range_has_no_launches_after_its_end() {
        let work = |launched: u32, start: u32, dur: u32| {
            launch("cudaLaunchKernel", launched, 1) + "," + &kernel("gemm", 7, start, dur, launched)
        };
        let events = [
            annotation("A", 1, 0, 100),
            annotation("B", 1, 50, 100),
            annotation("C", 1, 120, 80),
            work(10, 1000, 50),
            work(60, 1100, 51),
            work(110, 1200, 52),
            work(130, 1300, 53),
            work(160, 1400, 54),
        ];
        let trace = imported(&events);
        let report = trace_report(&trace, &Selection::default());
        let mut busy: Vec<_> =
            report.ranges.iter().map(|row| (row.name.as_str(), row.busy_us)).collect();
        busy.sort_by_key(|row| row.0);
        assert_eq!(busy, [("A", 101.0), ("B", 156.0), ("C", 107.0)]);
    }

    #[test]
    fn work_launched_before_the_profile_belongs_to_no_step_and_no_operator() {
        let step = |step: u32| {
            let at = 1000 + 100 * step;
            [
                annotation(&format!("ProfilerStep#{step}"), 1, at, 100),
                kernel("k", 7, at, 95, 1 + step),
                launch("cudaLaunchKernel", at + 50, 1),
                host_event("cpu_op", "aten::mm", 1, at + 40, 20),
                kernel("k", 7, at + 200, 90, at + 50),
            ]
        };
        let events = [step(0), step(1)].concat();
        let report = trace_report(&imported(&events), &Selection::default());
        let steps: Vec<_> =
            report.steps.iter().map(|s| (s.step, s.start_ns, s.end_ns, s.compute_us)).collect();
        assert_eq!(steps, [(0, 200_000, 290_000, 90.0), (1, 300_000, 390_000, 90.0)]);
        let operators: Vec<_> =
            report.operators.iter().map(|row| (row.name.as_str(), row.count, row.total_us)).collect();
        assert_eq!(operators, [("(launch not recorded)", 2, 190.0), ("aten::mm", 2, 180.0)]);
    }

    /// DistributedDataParallel names its all-reduces on the thread of the backward pass; the step is on the thread that
    /// waits for it.
    #[test]
    fn a_range_has_the_work_of_ranges_on_a_thread_that_it_waits_for() {
        let call = launch("cudaLaunchKernel", 1120, 9);
        let kernel = kernel("ncclDevKernel_AllReduce", 7, 2000, 400, 1120);
        let comm_of_step = |others: &[String]| {
            let step = annotation("ProfilerStep#4", 1, 1000, 500);
            let reduce = annotation("nccl:all_reduce", 9, 1100, 50);
            let mut all = vec![step.as_str(), &reduce, &call, &kernel];
            all.extend(others.iter().map(String::as_str));
            let report = trace_report(&imported(&all), &Selection::default());
            let comm = |name: &str| report.ranges.iter().find(|row| row.name == name).unwrap().comm_us;
            assert_eq!(comm("nccl:all_reduce"), 400.0);
            comm("ProfilerStep#4")
        };
        assert_eq!(comm_of_step(&[]), 400.0, "as in the table of steps");
        // the innermost range around it
        let backward = || annotation("## backward ##", 1, 1050, 300);
        assert_eq!(comm_of_step(&[backward()]), 400.0);
        // which of two threads waits for it is not known
        assert_eq!(comm_of_step(&[annotation("load batch", 2, 1050, 300)]), 0.0);
        // it outlasts this one
        assert_eq!(comm_of_step(&[annotation("load batch", 2, 1050, 60)]), 400.0);
    }

    #[test]
    fn a_call_on_another_thread_holds_no_ranges() {
        let mut trace = named(
            vec![launched_in(span(0, Lane::Compute, 2_000, 2_100), 2)],
            &[
                ("step", 0, 0, 1_000),
                ("cudaDeviceSynchronize", 0, 100, 900),
                ("all_reduce", 0, 200, 300),
            ],
        );
        trace.ranges[2].thread = 1;
        let report = trace_report(&trace, &Selection::default());
        let busy: Vec<_> = report.ranges.iter().map(|row| (row.name.as_str(), row.busy_us)).collect();
        assert_eq!(busy, [("step", 0.1), ("cudaDeviceSynchronize", 0.0), ("all_reduce", 0.1)]);
    }

    #[test]
    fn ranges_of_other_phases_do_not_count() {
        let of = |phase, step, start, range| {
            let mut span = launched_in(span(0, Lane::Compute, start, start + 100), range);
            (span.phase, span.step) = (phase, step);
            span
        };
        let spans = vec![
            of(Phase::Prefill, 0, 1_000, 0),
            of(Phase::Decode, 0, 2_000, 3),
            of(Phase::Decode, 1, 3_000, 5),
        ];
        // the host is a step ahead of the device; "sample" launches nothing
        let ranges = [
            ("execute", 0, 0, 900),
            ("sample", 0, 700, 800),
            ("execute", 0, 1_000, 1_900),
            ("model", 0, 1_100, 1_200),
            ("sample", 0, 1_700, 1_800),
            ("execute", 0, 1_950, 2_000),
        ];
        let trace = named(spans, &ranges);
        let rows = |selection: &Selection| {
            let report = trace_report(&trace, selection);
            let mut rows: Vec<_> = (report.ranges.into_iter())
                .map(|row| (row.name, row.count, row.time_us.unwrap(), row.busy_us))
                .collect();
            rows.sort_by(|a, b| a.0.cmp(&b.0));
            rows
        };
        let decode = Selection { phase: Some(Phase::Decode), ..Selection::default() };
        assert_eq!(
            rows(&decode),
            [
                ("execute".into(), 2, 0.95, 0.2),
                ("model".into(), 1, 0.1, 0.1),
                ("sample".into(), 1, 0.1, 0.0)
            ]
        );
        let prefill = Selection { phase: Some(Phase::Prefill), ..Selection::default() };
        assert_eq!(rows(&prefill), [("execute".into(), 1, 0.9, 0.1), ("sample".into(), 1, 0.1, 0.0)]);
    }

    /// Annotations that only the device has cover parts of several selected steps.
    #[test]
    fn a_range_across_selected_parts_has_all_of_them() {
        let of = |sample, phase, start| {
            let mut span = span(0, Lane::Compute, start, start + 100);
            (span.sample, span.phase, span.step) = (sample, phase, 0);
            span
        };
        let spans =
            vec![of(0, Phase::Decode, 0), of(1, Phase::Prefill, 1_000), of(1, Phase::Decode, 2_000)];
        let mut trace = named(spans, &[("attention", 0, 50, 2_050)]);
        trace.meta.provenance = table::Provenance::Measured;
        trace.ranges[0].on_device = true;
        let decode = Selection { phase: Some(Phase::Decode), ..Selection::default() };
        let row = &trace_report(&trace, &decode).ranges[0];
        assert_eq!((row.count, row.device_us, row.busy_us), (1, Some(0.1), 0.1));
    }
}
