//! Checks of the kernels of a mixture of experts: the router's choice, lists of choices, and products of touched experts.

use super::{Argument, Bench, DTYPES, assert_close, checks, random};
use machine::driver::Launch;
use plan::{DType, RouterBias, RouterScore, Routing};
use run::testing::cpu::choose;
use run::testing::cuda::geometry::{self, grouped};

checks!(
    choices_are_those_of_the_cpu_backend,
    touched_experts_are_multiplied_and_others_never_read,
    choices_have_slots_activated_and_summed_with_their_experts_biases
);

fn choices_are_those_of_the_cpu_backend(bench: &mut Bench<'_>) {
    let plain = Routing::plain(RouterScore::Softmax, true);
    let grouped = Routing { groups: 8, kept_groups: 3, scale: 2.5, ..plain };
    for (routing, experts, top_k) in [
        (plain, 8, 2),
        (Routing { renormalise: false, ..plain }, 128, 8),
        (Routing { score: RouterScore::SoftmaxChosen, bias: RouterBias::Logits, ..plain }, 37, 4),
        (Routing { score: RouterScore::Sigmoid, bias: RouterBias::Choice, ..grouped }, 64, 6),
        (grouped, 256, 8),
    ] {
        bench.start(DType::F32);
        let rows = 11;
        let mut logits = random(5, rows * experts);
        // equal scores: the lower number comes first
        logits[..experts].fill(0.5);
        let bias = random(6, experts);
        let has_bias = routing.bias != RouterBias::None;
        let mut want = vec![0.0; 2 * rows * top_k];
        for (logits, choice) in logits.chunks(experts).zip(want.chunks_mut(2 * top_k)) {
            let bias = if has_bias { &bias[..] } else { &[] };
            choose(&routing, bias, &mut logits.to_vec(), choice);
        }
        let given = bench.input(&logits);
        let bias = bench.numbers(&bias);
        let choices = bench.output::<u32>(2 * rows * top_k);
        let arguments = [
            given.into(),
            bias.into(),
            choices.into(),
            (rows as u32).into(),
            (experts as u32).into(),
            (top_k as u32).into(),
            (routing.score as u32).into(),
            (routing.bias as u32).into(),
            u32::from(routing.renormalise).into(),
            (routing.scale as f32).into(),
            routing.groups.into(),
            routing.kept_groups.into(),
        ];
        bench.launch(
            "choose_experts",
            &geometry::choose_experts(rows as u32, experts as u32, 1),
            &arguments,
        );
        let found = bench.read::<u32>(choices);
        for (found, want) in found.chunks(2).zip(want.chunks(2)) {
            assert_eq!(found[0], want[0] as u32, "{routing:?}");
            let weight = f32::from_bits(found[1]);
            assert!((weight - want[1]).abs() < 1e-6, "{routing:?}: {weight}, not {}", want[1]);
        }
    }
}

/// One expert with more rows than are multiplied at a time, one with a single row, and one without any, whose weights
/// are NaN.
fn touched_experts_are_multiplied_and_others_never_read(bench: &mut Bench<'_>) {
    let (first, own, top_k) = (4u32, 3usize, 2usize);
    for dtype in DTYPES {
        for (hidden, width, rows) in [(64usize, 40usize, 21usize), (520, 72, 5), (37, 19, 18)] {
            bench.start(dtype);
            // expert 4 of every row, expert 6 of row 3; 9 is another rank's
            let other = |row: usize| if row == 3 { (6, 0.25) } else { (9, 0.5) };
            let choices: Vec<u32> = (0..rows)
                .flat_map(|row| [(4, 0.75f32), other(row)])
                .flat_map(|(expert, weight): (u32, f32)| [expert, weight.to_bits()])
                .collect();
            let mut weights = random(2, own * 2 * width * hidden);
            let mut downs = random(3, own * hidden * width);
            weights[2 * width * hidden..4 * width * hidden].fill(f32::NAN);
            downs[hidden * width..2 * hidden * width].fill(f32::NAN);
            let choices = bench.input(&choices);
            let x = bench.numbers(&random(1, rows * hidden));
            let (w, d) = (bench.numbers(&weights), bench.numbers(&downs));
            let (b, c) =
                (bench.numbers(&random(7, own * 2 * width)), bench.numbers(&random(8, own * hidden)));
            let [counts, lists] = [own, own * rows].map(|count| bench.output::<u32>(count));
            let active = bench.output_numbers(rows * top_k * width);
            let outputs = bench.output::<f32>(rows * top_k * hidden);
            let out = bench.output_numbers(rows * hidden);
            let count = |x: usize| (x as u32).into();
            let arguments = [
                choices.into(),
                counts.into(),
                lists.into(),
                count(rows),
                count(top_k),
                first.into(),
                count(own),
            ];
            bench.launch("group_choices", &geometry::group_choices(own as u32), &arguments);
            assert_eq!(bench.read::<u32>(counts), [rows as u32, 0, 1]);
            let up = grouped(dtype, rows as u32, hidden as u32, 3);
            let arguments = [
                x.into(),
                w.into(),
                b.into(),
                counts.into(),
                lists.into(),
                active.into(),
                count(own),
                count(rows),
                count(width),
                count(top_k),
                0u32.into(),
            ];
            bench.launch_with("experts_up", &up.defines, &up.geometry, &arguments);
            let down = grouped(dtype, rows as u32, width as u32, 3);
            let arguments = [
                active.into(),
                d.into(),
                c.into(),
                counts.into(),
                lists.into(),
                outputs.into(),
                count(own),
                count(rows),
                count(hidden),
            ];
            bench.launch_with("experts_down", &down.defines, &down.geometry, &arguments);
            let arguments = [
                outputs.into(),
                Argument::Null,
                Argument::Null,
                choices.into(),
                out.into(),
                count(top_k),
                first.into(),
                count(own),
                count(hidden),
            ];
            bench.launch("sum_experts", &Launch::grid([rows as u32, 1, 1], 64), &arguments);

            let read = |handle| bench.read_numbers(handle);
            let (x, w, d, b, c) = (read(x), read(w), read(d), read(b), read(c));
            let dot = |x: &[f32], w: &[f32]| x.iter().zip(w).map(|(x, w)| x * w).sum::<f32>();
            let mut want = vec![0.0; rows * hidden];
            for (row, want) in want.chunks_mut(hidden).enumerate() {
                let x = &x[row * hidden..][..hidden];
                for (expert, weight) in
                    [(0, 0.75), (2, 0.25)].into_iter().take(1 + usize::from(row == 3))
                {
                    let product = |at: usize| {
                        let at = expert * 2 * width + at;
                        dot(x, &w[at * hidden..][..hidden]) + b[at]
                    };
                    let active: Vec<f32> = (0..width)
                        .map(|i| (product(i), product(width + i)))
                        .map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up)
                        .collect();
                    for (i, want) in want.iter_mut().enumerate() {
                        let at = expert * hidden + i;
                        *want += weight * (dot(&active, &d[at * width..][..width]) + c[at]);
                    }
                }
            }
            assert_close(&format!("{rows} rows of {hidden} x {width}"), dtype, &read(out), &want);
        }
    }
}

/// Kernels around the products by cuBLASLt: an expert with slots to fill up, one without a row, one whose rows fill its slots.
fn choices_have_slots_activated_and_summed_with_their_experts_biases(bench: &mut Bench<'_>) {
    let (first, own, top_k) = (4u32, 3usize, 2usize);
    let (hidden, width, rows) = (300usize, 37usize, 70usize);
    let count = |x: usize| Argument::from(x as u32);
    // expert 4 of every row, expert 6 of the first 64; 9 is another rank's
    let chosen = |row: usize, n: usize| match (n, row < 64) {
        (0, _) => (4u32, 0.75f32),
        (_, true) => (6, 0.25),
        (_, false) => (9, 0.5),
    };
    let all: Vec<u32> = (0..rows * top_k)
        .map(|choice| chosen(choice / top_k, choice % top_k))
        .flat_map(|(expert, weight)| [expert, weight.to_bits()])
        .collect();
    // 70 rows in 128 slots, then 64 in 64
    let slots = 192;
    let slot_of = |row: usize, n: usize| match n {
        0 => row,
        _ => 128 + row,
    };
    for dtype in DTYPES {
        bench.start(dtype);
        let choices = bench.input(&all);
        let [counts, lists] = [own, own * rows].map(|count| bench.output::<u32>(count));
        let mut arguments = vec![choices.into(), counts.into(), lists.into(), count(rows)];
        arguments.extend([count(top_k), first.into(), count(own)]);
        bench.launch("group_choices", &geometry::group_choices(own as u32), &arguments);
        assert_eq!(bench.read::<u32>(counts), [70, 0, 64]);
        let [rows_of, experts_of, slot] =
            [slots, slots, rows * top_k].map(|count| bench.output::<u32>(count));
        let mut arguments = vec![counts.into(), lists.into(), rows_of.into(), experts_of.into()];
        arguments.extend([slot.into(), count(rows), count(top_k)]);
        bench.launch("place_choices", &geometry::place_choices(own as u32), &arguments);
        let want: Vec<u32> = (0..slots as u32)
            .map(|slot| match slot {
                0..70 => slot,
                70..128 => 0,
                _ => slot - 128,
            })
            .collect();
        assert_eq!(bench.read::<u32>(rows_of), want);
        let want: Vec<u32> = (0..slots).map(|slot| if slot < 128 { 0 } else { 2 }).collect();
        assert_eq!(bench.read::<u32>(experts_of), want);
        for (choice, slot) in bench.read::<u32>(slot).into_iter().enumerate() {
            let (row, n) = (choice / top_k, choice % top_k);
            if chosen(row, n).0 != 9 {
                assert_eq!(slot as usize, slot_of(row, n), "choice {choice}");
            }
        }

        let sums = random(1, slots * 2 * width);
        let given = bench.input(&sums);
        let bias = bench.numbers(&random(2, own * 2 * width));
        for (clamped, biased) in [(false, false), (true, true)] {
            let active = bench.output_numbers(slots * width);
            let bias_or_null = if biased { bias.into() } else { Argument::Null };
            let mut arguments = vec![given.into(), experts_of.into(), bias_or_null, active.into()];
            arguments.extend([count(width), u32::from(clamped).into()]);
            let launch = geometry::expert_rows(slots as u32, width as u32);
            bench.launch("activate_experts", &launch, &arguments);
            let bias = bench.read_numbers(bias);
            let mut want = Vec::new();
            for (slot, sums) in sums.chunks(2 * width).enumerate() {
                let bias = &bias[if slot < 128 { 0 } else { 2 } * 2 * width..][..2 * width];
                let sum = |at: usize| sums[at] + if biased { bias[at] } else { 0.0 };
                want.extend((0..width).map(|i| (sum(i), sum(width + i))).map(
                    |(gate, up)| match clamped {
                        true => {
                            (up.clamp(-7.0, 7.0) + 1.0) * gate.min(7.0) / (1.0 + (-1.702 * gate).exp())
                        }
                        false => gate / (1.0 + (-gate).exp()) * up,
                    },
                ));
            }
            assert_close("activation", dtype, &bench.read_numbers(active), &want);
        }

        let results = random(3, slots * hidden);
        let given = bench.input(&results);
        let bias = bench.numbers(&random(4, own * hidden));
        let out = bench.output_numbers(rows * hidden);
        let mut arguments = vec![given.into(), slot.into(), bias.into(), choices.into(), out.into()];
        arguments.extend([count(top_k), first.into(), count(own), count(hidden)]);
        let launch = geometry::expert_rows(rows as u32, hidden as u32);
        bench.launch("sum_experts", &launch, &arguments);
        let bias = bench.read_numbers(bias);
        let mut want = vec![0.0; rows * hidden];
        for (row, want) in want.chunks_mut(hidden).enumerate() {
            for (n, (expert, weight)) in [chosen(row, 0), chosen(row, 1)].into_iter().enumerate() {
                if expert == 9 {
                    continue;
                }
                let bias = &bias[(expert - first) as usize * hidden..][..hidden];
                let result = &results[slot_of(row, n) * hidden..][..hidden];
                for ((want, x), bias) in want.iter_mut().zip(result).zip(bias) {
                    *want += weight * (x + bias);
                }
            }
        }
        assert_close("sums", dtype, &bench.read_numbers(out), &want);
    }
}
