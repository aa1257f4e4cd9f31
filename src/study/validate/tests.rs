//! Data sets and their scores: how large errors may be, what a score counts, which files are refused.

use super::*;
use crate::rewire::{RewireChoice, Rewiring, Setting, StepSelection};
use base::error::Error;

fn set(name: &str) -> DataSet {
    DataSet::named(&[name.to_owned()]).unwrap().remove(0)
}

fn parsed(name: &str, text: &str) -> Result<Vec<Vec<MeasuredRun>>, Error> {
    set(name).parse("mine.csv", text, &Overrides::default())
}

/// Largest growth of an error over the documented one before this test fails: a tenth, and half of the last digit.
fn has_grown(error: f64, documented: f64) -> bool {
    error > 1.1 * documented + 0.05
}

/// Each set's errors as docs/simulator.md has them: whoever makes the simulator better or worse by more than a tenth
/// changes the table.
#[test]
fn errors_are_those_that_the_documentation_has() {
    let docs = include_str!("../../../docs/simulator.md");
    for set in DataSet::built_in().unwrap() {
        let score = Score::new(&set, &set.runs(&Overrides::default()).unwrap()).unwrap();
        assert!(set.serving || score.not_run.is_empty(), "{}: {:?}", set.name, score.not_run);
        if !docs.contains(&format!("| `{}` |", set.name)) {
            continue;
        }
        // from the set's line of the table on, a line a measure
        let lines = docs.lines().skip_while(|line| !line.starts_with(&format!("| `{}` |", set.name)));
        let mut lines = lines.enumerate().take_while(|(at, line)| *at == 0 || line.starts_with("| | "));
        for measure in Measure::ALL {
            let Some((mean, max)) = score.errors(measure) else { continue };
            let unit = measure.unit();
            let wanted = format!("| {} | {mean:.1} {unit} | {max:.1} {unit} |", measure.title());
            let line = lines.next().map(|(_, line)| line).unwrap_or_default();
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let number = |from_end: usize| -> f64 {
                let cell = cells.len().checked_sub(from_end).and_then(|at| cells.get(at));
                let text = cell.and_then(|cell| cell.strip_suffix(unit)).unwrap_or("0");
                text.trim().parse().unwrap_or(0.0)
            };
            assert!(cells.contains(&measure.title()), "{}: {wanted} is not: {line}", set.name);
            for (error, documented) in [(mean, number(3)), (max, number(2))] {
                let differs = has_grown(error, documented) || has_grown(documented, error);
                assert!(!differs, "{}: {wanted} is not: {line}", set.name);
            }
        }
        assert_eq!(lines.next(), None, "{}", set.name);
    }
}

/// Errors shown beside simulated numbers are those of the data, within a tenth and rounding.
#[test]
fn errors_shown_beside_numbers_are_those_of_the_data() {
    for known in trust::known_errors().iter().filter(|known| known.set != trust::REWIRE) {
        assert!(!known.rows().is_empty(), "{} on {}: no rows", known.stack, known.hardware);
        let set = set(&known.set);
        let runs = set.runs(&Overrides::default()).unwrap();
        let score = Score::new(&set, &runs).unwrap();
        let lines: Vec<usize> = runs
            .iter()
            .flatten()
            .filter(|run| run.spec.stack == known.stack && run.spec.hardware == known.hardware)
            .map(|run| run.line)
            .collect();
        let counted = score.residuals.iter().filter(|residual| {
            residual.measure == known.measure
                && lines.contains(&residual.line)
                && !score.queued.contains(&residual.line)
        });
        let errors: Vec<f64> = counted.map(|residual| residual.error.abs()).collect();
        let error = base::statistics::mean(&errors).unwrap();
        let differs = has_grown(error, known.pct) || has_grown(known.pct, error);
        assert!(!differs, "{} on {}: {error:.1} is not {}", known.stack, known.hardware, known.pct);
        // leads below it are ties
        let speedup = score.errors(Measure::Speedup).map(|(mean, _)| mean.ceil());
        assert_eq!(known.speedup_pct.map(f64::ceil), speedup, "{}", known.set);
    }
    assert_eq!(trust::KNOWN.first_tokens.len(), 3);
    for known in &trust::KNOWN.first_tokens {
        let set = set(&known.set);
        let score = Score::new(&set, &set.runs(&Overrides::default()).unwrap()).unwrap();
        let (error, _) = score.errors(Measure::Ttft).or(score.errors(Measure::Prefill)).unwrap();
        let differs = has_grown(error, known.pct) || has_grown(known.pct, error);
        assert!(!differs, "first tokens of {}: {error:.1} is not {}", known.set, known.pct);
    }
}

/// Traces of standard in the repository, rewired, against measured runs of the other wirings and of another link. The links
/// are emulated, so the predictions add no contention, whose rate was fitted to NCCL.
#[test]
fn errors_of_rewired_traces_are_those_of_measured_runs() {
    let traces = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    let text = |path: &str| std::fs::read_to_string(traces.join(path)).unwrap();
    let of_trace = |file: &str| {
        let manifest: toml::Table = toml::from_str(&text("MANIFEST.toml")).unwrap();
        let all = manifest["trace"].as_array().unwrap();
        let entry = all.iter().find(|entry| entry["file"].as_str() == Some(file)).unwrap();
        entry["tpot_ms"].as_float().unwrap()
    };
    let of_run = |run: &str| {
        let record: serde_json::Value =
            serde_json::from_str(&text(&format!("h100/runs/20261127-{run}/record.json"))).unwrap();
        record["metrics"]["tpot_ms"]["p50"].as_f64().unwrap()
    };
    let on = Some(table::P2p::On);
    let cases = [
        ("cpu-standard-tp2-600us", "ladder", None, of_trace("cpu-ladder-tp2-600us.parquet")),
        ("h100-standard-tp8-p2p-off", "ladder", None, of_trace("h100-ladder-tp8-p2p-off.parquet")),
        ("h100-standard-tp8-p2p-off", "parallel", None, of_run("033252-parallel-3f4211")),
        ("h100-standard-tp8-p2p-off", "upper-bound", None, of_run("033244-upper-bound-cb95ad")),
        ("h100-standard-tp8-p2p-off", "standard", on, of_run("033139-standard-39442a")),
        ("h100-standard-tp8-p2p-off", "ladder", on, of_run("033152-ladder-f104b0")),
        ("h100-standard-tp8-p2p-off", "parallel", on, of_run("033208-parallel-f04ed2")),
        ("h100-standard-tp8-p2p-off", "upper-bound", on, of_run("033200-upper-bound-979546")),
    ];
    let mut errors: std::collections::BTreeMap<String, Vec<f64>> = Default::default();
    for (file, architecture, p2p, measured_ms) in cases {
        let trace = trace::read(&traces.join(format!("{file}.parquet"))).unwrap();
        let is_gpu = file.starts_with("h100");
        let target =
            is_gpu.then(|| machine::hardware::Target::from_spec(trace.meta.spec.as_ref().unwrap()));
        let setting = Setting { target: target.map(Result::unwrap), ..Setting::default() };
        let rewiring = Rewiring::new(&trace, &StepSelection::default(), &setting).unwrap();
        let choice =
            RewireChoice { p2p, ..RewireChoice::from_architecture(architecture.parse().unwrap()) };
        let ms = rewiring.answer(&choice).unwrap().alone.step_us / 1e3;
        let error = 100.0 * (ms / measured_ms - 1.0);
        errors.entry(rewiring.error(&choice)).or_default().push(error.abs());
    }
    for known in trust::known_errors().iter().filter(|known| known.set == trust::REWIRE) {
        let changes = Changes { other_reduces: known.other_reduces, ..Changes::default() };
        let errors = &errors[&rewired_error(Some(&known.hardware), &changes)];
        let error = base::statistics::mean(errors).unwrap();
        let differs = has_grown(error, known.pct) || has_grown(known.pct, error);
        assert!(!differs, "{} {changes:?}: {error:.2} is not {}", known.hardware, known.pct);
    }
}

#[test]
fn the_largest_residuals_of_published_rows_have_causes() {
    for set in DataSet::built_in().unwrap() {
        let score = Score::new(&set, &set.runs(&Overrides::default()).unwrap()).unwrap();
        let worst = score.worst();
        assert!(worst.len() >= 3, "{}", set.name);
        let unknown: Vec<&LargestResidual<'_>> =
            worst.iter().filter(|worst| worst.cause.is_none()).collect();
        assert!(unknown.is_empty(), "{}: {unknown:?}", set.name);
        let mine = Score { is_published: false, ..score };
        assert!(mine.worst().iter().all(|worst| worst.cause.is_none()), "a file's rows have none");
    }
}

#[test]
fn a_rewired_trace_says_the_error_of_its_hardware_or_that_there_is_none() {
    let of = |hardware, other_reduces, uncovered| {
        rewired_error(hardware, &Changes { other_reduces, uncovered, is_contended: false })
    };
    let known = of(Some("H100-SXM"), false, None);
    assert!(known.starts_with("2 % mean TPOT error, not fitted: rewired traces on h100_sxm"), "{known}");
    let other = of(Some("h100_sxm"), true, None);
    assert!(
        other.starts_with("6 % mean TPOT error, not fitted: rewired traces with another link"),
        "{other}"
    );
    assert_eq!(of(Some("b200_sxm"), false, None), "not validated for this hardware and engine");
    assert_eq!(of(None, false, None), "not validated for this hardware and engine");
    assert_eq!(of(Some("h100_sxm"), true, Some("another TP")), "not validated for another TP");
    // leads below the stated error are ties
    let band = |hardware, other_reduces, uncovered| {
        let changes = Changes { other_reduces, uncovered, is_contended: false };
        TieBand::of_rewired(Some(hardware), &changes).pct()
    };
    let known = [band("H100-SXM", false, None), band("h100_sxm", true, None), band("cpu", false, None)];
    assert_eq!(known, ["2 %", "6 %", "3 %"]);
    assert_eq!(band("b200_sxm", false, None), TieBand::UNKNOWN.pct());
    assert_eq!(band("h100_sxm", true, Some("another TP")), TieBand::UNKNOWN.pct());
}

/// Rows of a file in the columns of the published ones: groups, engines by version, and rows that cannot run.
#[test]
fn served_rows_are_grouped_and_those_that_wait_for_cache_are_scored_apart() {
    let text = "# rows of mine\n\
                system,model,weights,engine,version,tp,dp,concurrency,isl,osl,ttft_ms,tpot_ms,kv,length_ratio,source,id\n\
                h100_sxm,qwen3-32b,bf16,vllm,0.12.0,4,1,16,1024,512,150,15,?,1,me,1\n\
                h100_sxm,qwen3-32b,bf16,vllm,0.19.1,4,1,16,1024,512,150,15,?,1,me,2\n\
                h100_sxm,qwen3-32b,bf16,vllm,0.12.0,2,1,128,4096,1024,58752,55,?,1,me,3\n\
                h100_sxm,qwen3-32b,bf16,mystery,1.0,4,1,16,1024,512,150,15,?,1,me,4\n\
                h100_sxm,nonsense-9b,bf16,vllm,0.12.0,4,1,16,1024,512,150,15,?,1,me,5\n\
                h100_sxm,qwen3-32b,bf16,vllm,0.12.0,4,8,16,1024,512,150,15,?,1,me,6\n";
    let set = set("serving_dense");
    assert!(set.has_columns_of(text));
    let rows = parsed("serving_dense", text).unwrap();
    let stack = |row: usize| rows[row][0].spec.stack.as_str();
    assert_eq!((stack(0), stack(1)), ("vllm-0.12", "vllm-0.15"), "the newest that is not newer");
    let score = Score::new(&set, &rows).unwrap();
    assert_eq!(score.queued, [5]);
    let reasons: Vec<&str> = score.not_run.iter().map(|not| not.reason.as_str()).collect();
    assert_eq!(reasons.len(), 3, "{reasons:?}");
    assert!(reasons[0].contains("engine mystery") && reasons[2].contains("DP 8"), "{reasons:?}");
    let group = &score.groups[0];
    assert_eq!((group.rows, group.not_run, group.queued, score.groups.len()), (4, 1, 1, 3));
    let errors = |line: usize| {
        let of = |r: &&ValidationResidual| r.line == line && r.measure == Measure::Tpot;
        score.residuals.iter().find(of).unwrap().error.abs()
    };
    let mean = group.mean_abs_pct["tpot"].unwrap();
    assert!((mean - (errors(3) + errors(4)) / 2.0).abs() < 1e-9);
}

/// Rows that a fit has not seen are predicted nearly as well as the others, with constants near the stack's.
#[test]
fn rows_left_out_of_a_fit_are_predicted_nearly_as_well() {
    let mut set = set("serving_dense");
    let is_kept = |line: &&str| line.starts_with("system") || line.contains("qwen3-32b,bf16,vllm");
    let rows: Vec<&str> = set.rows.lines().filter(is_kept).collect();
    assert_eq!(rows.len(), 61);
    set.rows = Box::leak(rows.join("\n").into_boxed_str());
    let parts = left_out(&set).unwrap();
    let names: Vec<&str> = parts.iter().map(|part| part.left_out.as_str()).collect();
    assert_eq!(names, ["nothing", "a third of the settings in turn"], "one model on one GPU");
    assert!(parts.iter().all(|part| part.engine == "vllm-0.12" && part.rows == 57), "{parts:?}");
    let tpot = |part: &CrossValidation| part.mean_abs_pct["tpot"].unwrap();
    let (fitted, out) = (tpot(&parts[0]), tpot(&parts[1]));
    assert!(fitted < 3.2 && fitted < out + 0.1 && out < 1.5 * fitted, "{fitted} {out}");
    let [low, high] = parts[1].constants["step_us"];
    assert!(low > 500.0 && high < 2500.0 && low < high, "{low} {high}");
    let refused = left_out(&DataSet::named(&["paper_70b".into()]).unwrap()[0]).unwrap_err();
    assert!(refused.to_string().contains("no rows of serving engines"), "{refused}");
}

/// Every served row without a queue belongs to one TP and one concurrency.
#[test]
fn errors_by_tp_and_concurrency_count_every_row_once() {
    let set = set("serving_dense");
    let score = Score::new(&set, &set.runs(&Overrides::default()).unwrap()).unwrap();
    for by in ["tp", "concurrency"] {
        let slices: Vec<&Slice> = score.slices.iter().filter(|slice| slice.by == by).collect();
        assert_eq!(slices.iter().map(|s| s.rows).sum::<usize>(), score.rows - score.queued.len());
        let sum: f64 = slices.iter().map(|s| s.rows as f64 * s.mean_abs_pct["tpot"].unwrap()).sum();
        let rows = (score.rows - score.queued.len()) as f64;
        assert!((sum / rows - score.errors(Measure::Tpot).unwrap().0).abs() < 1e-9);
        // no bias by either that is far beyond the mean error
        assert!(slices.iter().all(|s| s.bias_pct["tpot"].unwrap().abs() < 5.0), "{slices:?}");
    }
}

#[test]
fn every_set_says_what_it_rests_on() {
    for set in DataSet::built_in().unwrap() {
        assert!(set.source.len() > 10 && !set.unknown.is_empty(), "{}", set.name);
    }
}

#[test]
fn speed_ups_are_over_standard_of_the_same_cell_and_a_row_that_cannot_run_is_counted() {
    let text = "model,architecture,tp,batch,p2p,prompt_tokens,output_tokens,tokens_per_s\n\
                # llama\n\
                LLAMA-3.2-1B,standard,2,1,on,32,8,100\n\
                LLAMA-3.2-1B,ladder,2,1,on,32,8,150\n\
                LLAMA-3.2-1B,ladder,2,2,on,32,8,150\n\
                nonsense-9b,ladder,2,1,on,32,8,150\n\
                LLAMA-3.2-1B,ladder,3,1,on,32,8,150\n";
    let score = Score::new(&set("paper_70b"), &parsed("paper_70b", text).unwrap()).unwrap();
    assert_eq!((score.rows, score.not_run.len(), score.residuals.len()), (5, 2, 5));
    assert_eq!(score.not_run.iter().map(|not| not.line).collect::<Vec<_>>(), [6, 7]);
    assert!(score.not_run[1].reason.contains("TP 3 does not divide"), "{:?}", score.not_run);
    let tokens: Vec<f64> = score
        .residuals
        .iter()
        .filter(|residual| residual.measure == Measure::TokensPerS)
        .map(|residual| residual.predicted)
        .collect();
    let speedup = score.largest(Measure::Speedup).unwrap();
    assert!((speedup.measured - 1.5).abs() < 1e-12);
    assert!((speedup.predicted - tokens[1] / tokens[0]).abs() < 1e-12);
    let error = 100.0 * (speedup.predicted / 1.5 - 1.0);
    assert!((score.errors(Measure::Speedup).unwrap().0 - error.abs()).abs() < 1e-9);
    assert_eq!(score.errors(Measure::Tpot), None);
    let gain = score.largest(Measure::Gain).unwrap();
    assert!((gain.measured - 50.0).abs() < 1e-9);
    assert!((gain.error - 100.0 * (speedup.predicted - 1.5)).abs() < 1e-9, "points: {gain:?}");
}

#[test]
fn rank_orders_count_the_cells_that_the_simulator_reverses() {
    let set = set("paper_70b");
    let score = Score::new(&set, &set.runs(&Overrides::default()).unwrap()).unwrap();
    let of = |a: &str, b: &str| score.orders.iter().find(|order| order.architectures == [a, b]).unwrap();
    let order = of("ladder", "parallel");
    let band = TieBand { share: 0.02, ..TieBand::UNKNOWN };
    assert_eq!((order.pairs, order.reversed.len()), (14, 5));
    for known in &trust::KNOWN.orders {
        let [a, b] = &known.architectures;
        let order = of(a, b);
        assert_eq!((known.pairs, known.reversed), (order.pairs, order.reversed.len()));
        assert!(set.is_on(&known.hardware, &known.stack), "{known:?}");
    }
    for pair in &order.reversed {
        assert!((0.5..3.2).contains(&pair.measured_lead_pct), "{pair:?}");
        assert!(pair.reversed_lead_pct >= 0.0 && !pair.cell.contains("ladder"), "{pair:?}");
        assert!(band.holds(1.0 + pair.reversed_lead_pct / 100.0), "it would be named: {pair:?}");
    }
    assert!(of("standard", "ladder").reversed.is_empty());
    assert!(score.orders.iter().all(|order| !order.architectures.contains(&"upper-bound".to_owned())));
    // the gain that is farthest off: 70B, TP 8, batch 1 without P2P
    let gain = score.largest(Measure::Gain).unwrap();
    assert!(gain.cell.contains("ladder tp8 b1 p2p-off"), "{gain:?}");
    assert!((gain.measured - 59.9).abs() < 0.1 && (gain.predicted - 48.0).abs() < 1.0, "{gain:?}");
    // ties have no order
    let text = "model,architecture,tp,batch,p2p,prompt_tokens,output_tokens,tokens_per_s\n\
                llama-3.2-1b,standard,2,1,on,32,8,100\n\
                llama-3.2-1b,ladder,2,1,on,32,8,100\n\
                llama-3.2-1b,parallel,2,1,on,32,8,1\n";
    let mine = Score::new(&set, &parsed("paper_70b", text).unwrap()).unwrap();
    let found: Vec<(usize, usize)> =
        mine.orders.iter().map(|order| (order.pairs, order.reversed.len())).collect();
    assert_eq!(found, [(0, 0), (1, 1), (1, 0)], "{:?}", mine.orders);
    let lines: Vec<[usize; 2]> =
        mine.orders.iter().flat_map(|order| order.reversed.iter().map(|pair| pair.lines)).collect();
    assert_eq!(lines, [[2, 4]]);
}

#[test]
fn a_row_may_give_its_models_shape_and_lack_a_measurement() {
    let header = "model,layers,hidden,heads,kv_heads,mlp,vocabulary,tp,batch,prompt_tokens,output_tokens,tokens_per_s,median_token_s";
    let text = format!("{header}\nmine,2,256,4,4,512,1000,2,1,16,8,,0.001\n");
    let runs = parsed("decode_a100_lmdeploy", &text).unwrap();
    let score = Score::new(&set("decode_a100_lmdeploy"), &runs).unwrap();
    assert_eq!((score.residuals.len(), score.residuals[0].measured), (1, 1.0));
    let twice = text.replace("mine,2,", "mine,4,");
    let runs = parsed("decode_a100_lmdeploy", &twice).unwrap();
    let twice = Score::new(&set("decode_a100_lmdeploy"), &runs).unwrap();
    assert!(twice.residuals[0].predicted > 1.5 * score.residuals[0].predicted);
}

#[test]
fn wrong_files_are_refused_with_their_place() {
    let header = "model,tp,batch,prompt_tokens,output_tokens,tokens_per_s";
    for (text, wanted) in [
        (String::new(), "mine.csv: it is empty"),
        (header.to_owned(), "mine.csv: it has a header and no rows"),
        (header.replace("batch", "bach"), "mine.csv:1: unknown column 'bach'"),
        (header.replace("batch,", ""), "mine.csv:1: it has no column 'batch'"),
        (header.replace("batch", "tp"), "mine.csv:1: column 'tp' appears twice"),
        (format!("{header}\ntiny,1,1,5,5"), "mine.csv:2: has 5 fields, the header 6"),
        (format!("{header}\ntiny,0,1,5,5,3"), "mine.csv:2: tp is '0'"),
        (format!("{header}\ntiny,x,1,5,5,3"), "mine.csv:2: tp is 'x'"),
        (format!("{header}\n,1,1,5,5,3"), "mine.csv:2: model is ''"),
        (format!("{header}\ntiny,1,1,5,5,-3"), "mine.csv:2: tokens_per_s is '-3'"),
        (format!("{header}\ntiny,1,1,5,5,"), "mine.csv:2: tokens_per_s is ''"),
    ] {
        let error = parsed("decode_a100_gptfast", &text).unwrap_err();
        assert!(error.to_string().contains(wanted), "{text}: {error}");
        assert_eq!(error.exit_code(), 2);
    }
    let unknown = DataSet::named(&["paper-7b".to_owned()]).unwrap_err();
    assert!(unknown.to_string().contains("paper-7b"), "{unknown}");
}

#[test]
fn shapes_that_no_model_has_are_refused() {
    let header = "model,layers,hidden,heads,kv_heads,mlp,vocabulary,tp,batch,prompt_tokens,output_tokens,tokens_per_s";
    for (shape, wanted) in [
        ("10001,256,4,4,512,1000", "layers is '10001'; it must be at most 10000"),
        ("2,4194305,1,1,512,1000", "hidden is '4194305'; it must be at most 4194304"),
        ("2,256,4,4,4000000000,1000", "mlp is '4000000000'"),
        ("2,256,4,4,512,4000000000", "vocabulary is '4000000000'"),
        ("2,256,4,3,512,1000", "kv_heads is '3'; it must divide heads, which is 4"),
        ("2,256,3,3,512,1000", "heads is '3'; it must divide hidden"),
    ] {
        let text = format!("{header}\nmine,{shape},1,1,16,8,5\n");
        let error = parsed("decode_a100_lmdeploy", &text).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn the_columns_tell_the_set() {
    for set in DataSet::built_in().unwrap() {
        let all = DataSet::built_in().unwrap();
        let header = set.header();
        let found: Vec<&str> = all
            .iter()
            .filter(|other| other.has_columns_of(&header))
            .map(|other| other.name.as_str())
            .collect();
        // both sets of served rows have the same columns
        let own = set.name.as_str();
        let wanted = if set.serving { vec!["serving_dense", "serving_moe"] } else { vec![own] };
        assert_eq!(found, wanted);
    }
}
