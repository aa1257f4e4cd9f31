//! Maps over TP and batch.

use proptest::prelude::*;

use super::*;

/// Simulated standard and ladder over TPs, batches and prompts; ladder is faster by a factor that
/// says where it belongs.
fn grid(tps: &[u32], batches: &[u32], prompts: &[u32]) -> Vec<Record> {
    let mut records = Vec::new();
    for &tp in tps {
        for &batch in batches {
            for &prompt in prompts {
                for a in [Architecture::Standard, LADDER] {
                    let step = if a == LADDER { 1.0 / factor(tp, batch, prompt) } else { 1.0 };
                    let change = |s: &mut Spec| {
                        (s.tp, s.batch, s.prompt_tokens) = (tp, batch, prompt);
                        s.architecture = a.clone();
                    };
                    records.push(sim_record(&format!("{a}-{tp}-{batch}-{prompt}"), change, 0.0, step));
                }
            }
        }
    }
    records
}

fn factor(tp: u32, batch: u32, prompt: u32) -> f64 {
    1.0 + f64::from(tp) * 0.1 + f64::from(batch) * 0.01 + f64::from(prompt) * 0.0001
}

#[test]
fn by_tp_the_values_are_the_rows() {
    let records = grid(&[2, 4, 8], &[1, 4], &[16]);
    let report = compare(&records, "tp").unwrap();
    let slices = slices(&report);
    assert_eq!(slices.len(), 2, "one an architecture: {slices:?}");
    let map = HeatMap::new(&report, &slices[0]);
    assert_eq!((map.tps, map.batches), (vec![4, 8], vec![1, 4]));
}

#[test]
fn a_map_of_one_tp_and_batch_is_over_the_settings_that_vary() {
    let records = grid(&[8], &[1], &[16, 64, 32]);
    let report = compare(&records, "architecture").unwrap();
    let settings = Varied::from_specs(report.pairs.iter().map(|pair| &pair.side.spec));
    let axes = HeatAxes::among(&Axis::ARCHITECTURE, &settings);
    assert_eq!(axes.columns, Axis::Option("prompt_tokens"));
    let slices = slices_over(&report, &axes, 0..report.pairs.len(), |_| String::new());
    let map = HeatMap::new(&report, &slices[0]);
    assert_eq!((slices.len(), map.rows, map.columns), (1, owned(&["8"]), owned(&["16", "32", "64"])));
    // TP and batch where they vary
    let report = compare(&grid(&[2, 8], &[1, 4], &[16, 64]), "architecture").unwrap();
    let settings = Varied::from_specs(report.pairs.iter().map(|pair| &pair.side.spec));
    assert!(HeatAxes::among(&Axis::ARCHITECTURE, &settings).is_plain());
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

proptest! {
    #[test]
    fn every_pair_is_in_one_map_and_nothing_is_averaged(
        tps in prop::sample::subsequence(vec![2u32, 4, 8], 1..=3),
        batches in prop::sample::subsequence(vec![1u32, 4, 16, 64], 1..=4),
        prompts in prop::sample::subsequence(vec![16u32, 32, 64], 1..=3),
    ) {
        let report = compare(&grid(&tps, &batches, &prompts), "architecture").unwrap();
        let slices = slices(&report);
        prop_assert_eq!(slices.len(), prompts.len(), "a map a prompt length");
        let mut seen = Vec::new();
        for slice in &slices {
            let map = HeatMap::new(&report, slice);
            prop_assert_eq!(&map.tps, &tps);
            prop_assert_eq!(&map.batches, &batches);
            prop_assert_eq!(map.cells.len(), slice.pairs);
            for cell in &map.cells {
                let pair = &report.pairs[cell.pair];
                prop_assert_eq!(cell.more, 0);
                let spec = &pair.side.spec;
                prop_assert_eq!((cell.tp, cell.batch), (spec.tp, spec.batch));
                let expected = factor(spec.tp, spec.batch, spec.prompt_tokens);
                prop_assert!((cell.speedup - expected).abs() < 1e-9);
                seen.push(cell.pair);
            }
        }
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..report.pairs.len()).collect::<Vec<_>>());
    }
}
