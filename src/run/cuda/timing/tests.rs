//! Windows, marks and composed steps, on made-up schedules whose truth is known.

use proptest::prelude::*;

use super::*;
use crate::plan::Lane;
use crate::run::comm::PingPong;
use crate::table::Coverage;

/// A step on two lanes: by operation its lane, what it reads from, and how long it takes (ns).
#[derive(Clone, Debug)]
struct Schedule {
    skeleton: Skeleton,
    took: Vec<i64>,
}

impl Schedule {
    /// Whether the operation's stream waits for an event: it reads from the other lane.
    fn waits(&self) -> Vec<bool> {
        let lanes = &self.skeleton.lanes;
        let cross =
            |(at, from): (usize, &Vec<u32>)| from.iter().any(|f| lanes[*f as usize] != lanes[at]);
        self.skeleton.reads_from.iter().enumerate().map(cross).collect()
    }

    /// One execution: when the events of `marks` happen on the two streams, each of which takes
    /// `event_ns` of its stream, with operation `i` taking `extra[i]` longer. Also each operation's start
    /// and end, and the length.
    fn execute(&self, marks: &Marks, event_ns: i64, extra: &[i64]) -> (Vec<f32>, Vec<(i64, i64)>, i64) {
        let mut times = vec![f32::NAN; marks.count()];
        let mut stream = [0i64; 2];
        let mut ends = vec![0i64; self.took.len()];
        let mut spans = Vec::new();
        times[Marks::STEP_START as usize] = 0.0;
        for (at, took) in self.took.iter().enumerate() {
            let lane = self.skeleton.lanes[at] as usize;
            let read = self.skeleton.reads_from[at].iter().map(|from| ends[*from as usize]).max();
            stream[lane] = stream[lane].max(read.unwrap_or(0));
            let mut record = |mark: Option<Mark>, stream: &mut i64| {
                if let Some(mark) = mark {
                    times[mark as usize] = *stream as f32 / 1e6;
                    *stream += event_ns;
                }
            };
            record(marks.before(at), &mut stream[lane]);
            let start = stream[lane];
            stream[lane] += took + extra[at];
            spans.push((start, stream[lane]));
            // whoever waits, waits for the event behind it
            ends[at] = stream[lane];
            record(marks.after(at), &mut stream[lane]);
        }
        let length = stream[0].max(stream[1]);
        times[Marks::STEP_END as usize] = length as f32 / 1e6;
        (times, spans, length)
    }

    fn compose(
        &self,
        windows: &Windows,
        event_ns: i64,
        mut extra: impl FnMut(usize) -> Vec<i64>,
    ) -> Composed {
        let waits = self.waits();
        let lanes = &self.skeleton.lanes;
        let marks: Vec<Marks> =
            windows.ranges().iter().map(|range| Marks::new(lanes, &waits, range.clone())).collect();
        let replays: Vec<Vec<f32>> =
            (0..windows.len()).map(|k| self.execute(&marks[k], event_ns, &extra(k)).0).collect();
        compose(&self.skeleton, windows, &marks, &replays).unwrap()
    }

    /// The truth: nothing is timed, nothing varies.
    fn undisturbed(&self) -> (Vec<(i64, i64)>, i64) {
        let none = Marks::new(&self.skeleton.lanes, &self.waits(), 0..0);
        // a window of nothing has no events but the step's
        let (_, spans, length) = self.execute(&none, 0, &vec![0; self.took.len()]);
        (spans, length)
    }
}

/// Comm lane busy, and busy while the compute lane was not (ns).
fn exposed(lanes: &[Lane], spans: &[(i64, i64)]) -> (i64, i64) {
    let of = |lane| -> Vec<(i64, i64)> {
        lanes.iter().zip(spans).filter(|(of, _)| **of == lane).map(|(_, span)| *span).collect()
    };
    let (compute, comm) = (of(Lane::Compute), of(Lane::Comm));
    let busy: i64 = comm.iter().map(|(start, end)| end - start).sum();
    let hidden = |(start, end): &(i64, i64)| -> i64 {
        compute.iter().map(|(s, e)| (e.min(end) - s.max(start)).max(0)).sum()
    };
    (busy, busy - comm.iter().map(hidden).sum::<i64>())
}

fn spans_of(composed: &Composed) -> Vec<(i64, i64)> {
    composed.operations.iter().map(|o| (o.start_ns, o.end_ns)).collect()
}

/// Random steps: operations on either lane (the first on compute), each reading from up to two before
/// it, always from one of the other lane where that is what it is for.
fn schedules() -> impl Strategy<Value = Schedule> {
    let operation =
        (0u8..4, 1_000i64..40_000, any::<prop::sample::Index>(), any::<prop::sample::Index>());
    prop::collection::vec(operation, 6..90).prop_map(|operations| {
        let (mut lanes, mut reads_from, mut took) = (Vec::new(), Vec::new(), Vec::new());
        for (at, (kind, length, one, other)) in operations.into_iter().enumerate() {
            let comm = kind == 0 && at > 0;
            lanes.push(if comm { Lane::Comm } else { Lane::Compute });
            let mut from: Vec<u32> = match at {
                0 => Vec::new(),
                // a collective reads what was computed last
                _ if comm => lanes[..at]
                    .iter()
                    .rposition(|l| *l == Lane::Compute)
                    .map(|p| p as u32)
                    .into_iter()
                    .collect(),
                _ if kind == 1 => vec![one.index(at) as u32, other.index(at) as u32],
                _ => vec![at as u32 - 1],
            };
            from.sort_unstable();
            from.dedup();
            reads_from.push(from);
            took.push(length);
        }
        Schedule { skeleton: Skeleton { lanes, reads_from }, took }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn windows_cover_every_operation_once_and_begin_on_the_compute_lane(
        schedule in schedules(), count in 1usize..12,
    ) {
        let lanes = &schedule.skeleton.lanes;
        let windows = Windows::split(lanes, count);
        prop_assert!((1..=count).contains(&windows.len()));
        let mut next = 0;
        for range in windows.ranges() {
            prop_assert_eq!(range.start, next);
            prop_assert!(range.end > range.start);
            prop_assert_eq!(lanes[range.start], Lane::Compute);
            next = range.end;
        }
        prop_assert_eq!(next, lanes.len());
        prop_assert_eq!(Windows::new(lanes, Coverage::Full, 100).len(), 1);
        let rotating = Windows::new(lanes, Coverage::Rotating, count);
        prop_assert!(rotating.len() <= count.min(8));
    }

    #[test]
    fn each_operation_of_a_window_has_a_start_and_an_end_and_few_events_do(
        schedule in schedules(), count in 1usize..9,
    ) {
        let (lanes, waits) = (&schedule.skeleton.lanes, schedule.waits());
        let windows = Windows::split(lanes, count);
        for range in windows.ranges() {
            let marks = Marks::new(lanes, &waits, range.clone());
            let mut recorded: Vec<Mark> = (0..lanes.len())
                .flat_map(|o| [marks.before(o), marks.after(o)]).flatten().collect();
            let unique = recorded.len();
            recorded.sort_unstable();
            recorded.dedup();
            prop_assert_eq!(recorded.len(), unique, "an event is recorded once");
            prop_assert_eq!(recorded, (2..marks.count() as u32).collect::<Vec<_>>());
            for (operation, waits) in waits.iter().enumerate() {
                let inside = range.contains(&operation);
                prop_assert_eq!(marks.of(operation).is_some(), inside);
                prop_assert_eq!(marks.after(operation).is_some(), inside);
                if inside && *waits {
                    prop_assert!(marks.before(operation).is_some(), "its start is after its wait");
                }
            }
            let timed = range.len();
            let fresh = range.clone().filter(|o| waits[*o]).count() + 2;
            prop_assert!(marks.count() <= 2 + timed + fresh + 1);
        }
    }

    #[test]
    fn a_step_that_is_always_the_same_is_composed_to_itself(
        schedule in schedules(), count in 1usize..9,
    ) {
        let windows = Windows::split(&schedule.skeleton.lanes, count);
        let composed = schedule.compose(&windows, 0, |_| vec![0; schedule.took.len()]);
        let (spans, length) = schedule.undisturbed();
        // f32 milliseconds of a step of some ms tell nanoseconds apart to about 1
        for (found, wanted) in spans_of(&composed).iter().zip(&spans) {
            prop_assert!((found.0 - wanted.0).abs() <= 2 && (found.1 - wanted.1).abs() <= 2, "{found:?} {wanted:?}");
        }
        prop_assert!((composed.length_ns - length).abs() <= 2);
        prop_assert!(composed.seams.clipped_ns <= 4 * spans.len() as i64);
        prop_assert_eq!(composed.seams.moved, 0);
        prop_assert!((composed.seams.stretch() - 1.0).abs() < 1e-3);
    }

    #[test]
    fn jitter_stays_bounded_lanes_never_overlap_themselves_and_what_is_read_was_there(
        schedule in schedules(), count in 1usize..9, seed in any::<u64>(), jitter in 0i64..3_000,
    ) {
        let windows = Windows::split(&schedule.skeleton.lanes, count);
        let mut random = fastrand::Rng::with_seed(seed);
        // each operation of each replay takes up to `each` longer; all of a replay up to `jitter`
        let each = jitter / schedule.took.len() as i64;
        let composed = schedule.compose(&windows, 0, |_| {
            (0..schedule.took.len()).map(|_| random.i64(0..=each)).collect()
        });
        let (spans, length) = schedule.undisturbed();
        let found = spans_of(&composed);
        let within = 4 * jitter + 8;
        for (found, wanted) in found.iter().zip(&spans) {
            prop_assert!((found.0 - wanted.0).abs() <= within, "{found:?} {wanted:?}");
            prop_assert!((found.1 - wanted.1).abs() <= within, "{found:?} {wanted:?}");
        }
        prop_assert!((composed.length_ns - length).abs() <= within);
        let mut lane_end = [0i64; 2];
        for (at, operation) in composed.operations.iter().enumerate() {
            let end = &mut lane_end[schedule.skeleton.lanes[at] as usize];
            prop_assert!(operation.start_ns >= *end && operation.end_ns >= operation.start_ns);
            prop_assert!(operation.ready_ns <= operation.start_ns && operation.end_ns <= composed.length_ns);
            *end = operation.end_ns;
            for from in &schedule.skeleton.reads_from[at] {
                prop_assert!(composed.operations[*from as usize].end_ns <= operation.ready_ns);
            }
        }
        let lanes = &schedule.skeleton.lanes;
        let (wanted, seen) = (exposed(lanes, &spans), exposed(lanes, &found));
        let communications = lanes.iter().filter(|lane| **lane == Lane::Comm).count() as i64;
        prop_assert!((wanted.0 - seen.0).abs() <= 2 * within * communications);
        prop_assert!((wanted.1 - seen.1).abs() <= 2 * within * spans.len() as i64);
    }

    #[test]
    fn what_timing_takes_is_taken_off_again(
        schedule in schedules(), count in 2usize..9, event_ns in 200i64..900,
    ) {
        // compute alone: its length is the sum, and every event adds to it
        let compute = Schedule {
            skeleton: Skeleton {
                lanes: vec![Lane::Compute; schedule.took.len()],
                reads_from: (0..schedule.took.len() as u32).map(|at| at.checked_sub(1).into_iter().collect()).collect(),
            },
            took: schedule.took.iter().map(|took| took + 2_000).collect(),
        };
        let windows = Windows::split(&compute.skeleton.lanes, count);
        prop_assume!(windows.len() > 1);
        let composed = compute.compose(&windows, event_ns, |_| vec![0; compute.took.len()]);
        let (_, length) = compute.undisturbed();
        // the step's windows are as long as they are untimed, but for the events at their very edges
        prop_assert!((composed.length_ns - length).abs() <= 3 * event_ns, "{} {length}", composed.length_ns);
        prop_assert!(composed.seams.stretch() > 1.0);
    }

    #[test]
    fn events_that_were_swapped_or_never_recorded_give_an_answer_or_none(
        schedule in schedules(), count in 1usize..5, noise in prop::collection::vec(prop_oneof![Just(f32::NAN), Just(-1.0f32), 0.0f32..1e9], 400),
    ) {
        let (lanes, waits) = (&schedule.skeleton.lanes, schedule.waits());
        let windows = Windows::split(lanes, count);
        let marks: Vec<Marks> = windows.ranges().iter().map(|r| Marks::new(lanes, &waits, r.clone())).collect();
        let mut noise = noise.into_iter().cycle();
        let replays: Vec<Vec<f32>> =
            marks.iter().map(|m| (0..m.count()).map(|_| noise.next().unwrap()).collect()).collect();
        if let Some(composed) = compose(&schedule.skeleton, &windows, &marks, &replays) {
            prop_assert!(composed.operations.iter().all(|o| o.end_ns >= o.start_ns && o.start_ns >= o.ready_ns));
        }
    }

    #[test]
    fn ranks_keep_their_offsets_and_steps_do_not_overlap(
        steps in 1usize..6, windows in 1usize..6, ranks in 1usize..4, gap in 0i64..5_000,
        lag in prop::collection::vec(0i64..2_000, 4), length in 20_000i64..50_000,
    ) {
        let replays: Vec<Vec<Replayed>> = (0..ranks)
            .map(|rank| {
                (0..steps * windows)
                    .map(|s| Replayed { start_ns: 7 + s as i64 * (length + 2_000 + gap) + lag[rank], length_ns: length })
                    .collect()
            })
            .collect();
        let lengths = vec![vec![length; steps]; ranks];
        let placed = place(&replays, &lengths, windows);
        prop_assert_eq!(placed.len(), steps);
        prop_assert_eq!(placed[0].clone(), replays.iter().map(|r| r[0].start_ns).collect::<Vec<_>>());
        for pair in placed.windows(2) {
            let ends = pair[0].iter().map(|start| start + length).max().unwrap();
            prop_assert!(pair[1].iter().all(|start| *start >= ends));
            for rank in 1..ranks {
                prop_assert_eq!(pair[1][rank] - pair[1][0], lag[rank] - lag[0]);
            }
        }
    }

    #[test]
    fn the_best_round_trip_holds_the_event_and_drift_is_corrected(
        event in 1_000_000i64..1_000_000_000, apart in 1_000_000_000i64..100_000_000_000,
        trips in prop::collection::vec((1i64..30_000, 1i64..30_000), 1..40), ppm in -200i64..200,
    ) {
        let around = |event: i64| -> Vec<RoundTrip> {
            trips.iter().map(|(b, a)| RoundTrip { before_ns: event - b, after_ns: event + a }).collect()
        };
        let (at, start) = RoundTrip::best(&around(event)).unwrap();
        prop_assert!((start.at_ns - event).abs() <= start.uncertainty_ns);
        prop_assert!(trips.iter().all(|(b, a)| b + a >= trips[at].0 + trips[at].1));
        // the device's clock runs some parts in a million fast
        let device = apart + apart / 1_000_000 * ppm;
        let (_, end) = RoundTrip::best(&around(event + apart)).unwrap();
        let timeline = Timeline::between(start, end, device);
        for part in 0..=4 {
            let (host, device) = (event + apart / 4 * part, device / 4 * part);
            prop_assert!((timeline.host_ns(device) - host).abs() <= timeline.uncertainty_ns() + 8, "{timeline:?}");
        }
    }

    #[test]
    fn the_quickest_answer_gives_the_offset_of_a_peer(
        offset in -1_000_000_000i64..1_000_000_000, ways in prop::collection::vec((1i64..200_000, 1i64..200_000), 1..50),
    ) {
        let answers: Vec<PingPong> = ways.iter().enumerate().map(|(n, (there, back))| {
            let sent = n as i64 * 1_000_000;
            PingPong { sent, theirs: sent + there - offset, received: sent + there + back }
        }).collect();
        let tie = rank_tie(&answers).unwrap();
        prop_assert!((tie.at_ns - offset).abs() <= tie.uncertainty_ns);
        let least = ways.iter().map(|(there, back)| there + back).min().unwrap();
        prop_assert!(tie.uncertainty_ns <= least / 2 + 1);
    }
}

#[test]
fn drift_that_is_not_corrected_counts_as_uncertainty() {
    // found by the law above: 8.5 us of drift hide within two ties of 4.3 us each
    let trip = |event: i64| RoundTrip { before_ns: event - 1853, after_ns: event + 6672 }.tie();
    let (event, apart) = (1_000_000, 4_263_217_338);
    let device = apart + 8526;
    let timeline = Timeline::between(trip(event), trip(event + apart), device);
    assert_eq!(
        timeline.host_ns(device),
        trip(event).at_ns + device,
        "below what the ties tell, clocks run alike"
    );
    assert!((timeline.host_ns(device) - (event + apart)).abs() <= timeline.uncertainty_ns());
}

#[test]
fn few_replays_give_no_step() {
    let lanes = vec![Lane::Compute; 8];
    let skeleton = Skeleton { lanes: lanes.clone(), reads_from: vec![Vec::new(); 8] };
    let windows = Windows::split(&lanes, 2);
    let marks: Vec<Marks> =
        windows.ranges().iter().map(|r| Marks::new(&lanes, &[false; 8], r.clone())).collect();
    assert_eq!(compose(&skeleton, &windows, &marks, &[vec![0.0; marks[0].count()]]), None);
    assert!(rank_tie(&[]).is_none() && RoundTrip::best(&[]).is_none());
    assert_eq!(place(&[], &[], 8), Vec::<Vec<i64>>::new());
}

#[test]
fn recorders_are_told_apart_by_name() {
    let name = |coverage| recorder_name(crate::table::Recorder::Events, coverage, 8);
    assert_eq!(name(Coverage::Rotating), "cuda events, rotating K=8");
    assert_eq!(name(Coverage::Full), "cuda events, full");
}
