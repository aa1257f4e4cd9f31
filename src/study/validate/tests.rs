//! Data sets and their scores: how large errors may be, what a score counts, which files are refused.

use super::*;
use crate::base::error::Error;

fn set(name: &str) -> DataSet {
    DataSet::named(&[name.to_owned()]).unwrap().remove(0)
}

fn parsed(name: &str, text: &str) -> Result<Vec<Vec<Run>>, Error> {
    set(name).parse("mine.csv", text, &Overrides::default())
}

/// A measure, and what the mean and the largest of its errors may be at most.
type Limit = (Measure, f64, f64);

/// What the errors of a set may be at most. Whoever makes the simulator better lowers them; they never grow.
const MOST: [(&str, &[Limit]); 4] = [
    ("paper_70b", &[(Measure::TokensPerS, 1.8, 7.5), (Measure::Speedup, 1.9, 7.4)]),
    ("prefill_h100", &[(Measure::Prefill, 3.0, 8.0), (Measure::CommunicationShare, 1.6, 3.5)]),
    ("decode_a100_gptfast", &[(Measure::TokensPerS, 1.3, 2.3)]),
    ("decode_a100_lmdeploy", &[(Measure::TokensPerS, 1.5, 3.6), (Measure::Tpot, 1.8, 5.1)]),
];

#[test]
fn no_error_of_a_set_grows() {
    let sets = DataSet::built_in().unwrap();
    assert_eq!(sets.iter().map(|set| set.name.as_str()).collect::<Vec<_>>(), MOST.map(|(name, _)| name));
    for (set, (name, most)) in sets.iter().zip(MOST) {
        let score = Score::of(set, &set.runs(&Overrides::default()).unwrap()).unwrap();
        assert!(score.not_run.is_empty(), "{name}: {:?}", score.not_run);
        for measure in Measure::ALL {
            let allowed = most.iter().find(|(of, ..)| *of == measure);
            let errors = score.errors(measure);
            assert_eq!(errors.is_some(), allowed.is_some(), "{name} {measure:?}: {errors:?}");
            if let (Some((mean, max)), Some((_, most_mean, most_max))) = (errors, allowed) {
                assert!(mean <= *most_mean && max <= *most_max, "{name} {measure:?}: {mean} {max}");
            }
        }
    }
}

#[test]
fn every_set_says_what_it_rests_on() {
    for set in DataSet::built_in().unwrap() {
        assert!(set.source.len() > 10 && !set.unknown.is_empty(), "{}", set.name);
        assert!(!set.fitted.is_empty(), "{}", set.name);
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
    let score = Score::of(&set("paper_70b"), &parsed("paper_70b", text).unwrap()).unwrap();
    assert_eq!((score.rows, score.not_run.len(), score.residuals.len()), (5, 2, 4));
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
}

#[test]
fn a_row_may_give_its_models_shape_and_lack_a_measurement() {
    let header = "model,layers,hidden,heads,kv_heads,mlp,vocabulary,tp,batch,prompt_tokens,output_tokens,tokens_per_s,median_token_s";
    let text = format!("{header}\nmine,2,256,4,4,512,1000,2,1,16,8,,0.001\n");
    let runs = parsed("decode_a100_lmdeploy", &text).unwrap();
    let score = Score::of(&set("decode_a100_lmdeploy"), &runs).unwrap();
    assert_eq!((score.residuals.len(), score.residuals[0].measured), (1, 1.0));
    let twice = text.replace("mine,2,", "mine,4,");
    let runs = parsed("decode_a100_lmdeploy", &twice).unwrap();
    let twice = Score::of(&set("decode_a100_lmdeploy"), &runs).unwrap();
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
        (header.replace("batch", "tp"), "mine.csv:1: column 'tp' stands there twice"),
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
fn the_columns_tell_the_set() {
    for set in DataSet::built_in().unwrap() {
        let all = DataSet::built_in().unwrap();
        let header = set.header();
        let found: Vec<&str> = all
            .iter()
            .filter(|other| other.has_columns_of(&header))
            .map(|other| other.name.as_str())
            .collect();
        assert_eq!(found, [set.name.as_str()]);
    }
}
