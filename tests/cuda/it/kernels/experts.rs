//! Checks of the kernels of a mixture of experts: the router's choice, lists of choices, and products of touched experts.

use super::{Bench, DTYPES, assert_close, checks, random};
use machine::driver::Launch;
use plan::{DType, RouterBias, RouterScore, Routing};
use run::testing::cpu::choose;
use run::testing::cuda::geometry::{self, grouped};

checks!(choices_are_those_of_the_cpu_backend, touched_experts_are_multiplied_and_others_never_read);

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
