//! Winners by setting, in a sentence: who is fastest in how many settings, and in which ones.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::compared::side_names;
use base::text::{capitalized, counted, joined_with_and};
use study::analysis::{Axis, Comparison, ComparisonReport, Pivot, PivotRow, Varied};

/// Most settings that are compared with one another.
const MOST_SETTINGS: usize = 500;

/// Most rules that name the settings of one outcome; the sentence counts further settings.
const MOST_NAMED: usize = 3;

/// Setting of a row with its outcome.
struct Outcome {
    /// Words on each axis: `TP 8`, `batch 1`, `P2P off`.
    labels: Vec<String>,
    /// Fastest values, several if they tie; empty if the samples decide nothing.
    winners: Vec<String>,
}

/// Some settings by the labels that they share; `None` is any label of that axis.
struct SettingRule(Vec<Option<String>>);

impl SettingRule {
    /// Widest rule around a setting that holds only settings with its outcome and none of the rules before.
    fn around(setting: &Outcome, all: &[Outcome], before: &[Self]) -> Self {
        let mut rule = Self(setting.labels.iter().cloned().map(Some).collect());
        let is_barred = |other: &Outcome| {
            other.winners != setting.winners || before.iter().any(|rule| rule.holds(other))
        };
        for axis in (0..setting.labels.len()).rev() {
            let label = rule.0[axis].take();
            if all.iter().any(|other| rule.holds(other) && is_barred(other)) {
                rule.0[axis] = label;
            }
        }
        rule
    }

    fn holds(&self, setting: &Outcome) -> bool {
        self.0
            .iter()
            .zip(&setting.labels)
            .all(|(rule, label)| rule.as_ref().is_none_or(|of| of == label))
    }

    fn words(&self) -> String {
        self.0.iter().flatten().map(String::as_str).collect::<Vec<_>>().join(" ")
    }
}

/// Winners of these rows, which differ in these settings: `Ladder is fastest in 8 of 20 settings (batch 1 P2P off, TP 4
/// batch 1 P2P on, TP 8 batch 4 and 2 more), tied with parallel in 12`. `None` if all rows have the same winner, which the
/// headline names, or if there are too many.
pub fn winners_by_setting(
    axis: &Axis,
    report: &ComparisonReport,
    pivot: &Pivot,
    settings: &Varied,
) -> Option<String> {
    if pivot.rows.len() > MOST_SETTINGS {
        return None;
    }
    let axes: Vec<&Axis> = settings.axes().collect();
    let outcomes: Vec<Outcome> =
        pivot.rows.iter().filter_map(|row| outcome(axis, report, (pivot, row), &axes)).collect();
    sentence_of(&outcomes)
}

/// Outcomes as a sentence that starts with the value that is fastest in most settings, ties included. All but the most
/// frequent outcome name their settings; `None` if all settings have the same outcome.
fn sentence_of(outcomes: &[Outcome]) -> Option<String> {
    let mut counts: BTreeMap<&[String], usize> = BTreeMap::new();
    for outcome in outcomes {
        *counts.entry(&outcome.winners).or_default() += 1;
    }
    if counts.len() < 2 {
        return None;
    }
    let values: BTreeSet<&String> = outcomes.iter().flat_map(|outcome| &outcome.winners).collect();
    let wins = |value: &&String| {
        let is_among = |(winners, _): &(&&[String], &usize)| winners.contains(value);
        let among: usize = counts.iter().filter(is_among).map(|(_, count)| count).sum();
        (among, counts.get(std::slice::from_ref(*value)).copied())
    };
    // the first of several
    let subject = values.iter().copied().rev().max_by_key(wins)?;
    let mut all: Vec<(&[String], usize)> = counts.into_iter().collect();
    all.sort_by_key(|(winners, count)| {
        let is_of_subject = winners.contains(subject);
        (winners.is_empty(), !is_of_subject, is_of_subject && winners.len() > 1, Reverse(*count))
    });
    let (most, _) = all.iter().max_by_key(|(_, count)| *count)?;
    let is_alone = all.first().is_some_and(|(winners, _)| winners.len() == 1);
    let clause = |(at, (winners, count)): (usize, &(&[String], usize))| {
        let verb = match (at, *winners) {
            (0, [winner]) => format!("{winner} is fastest"),
            (0, tied) => format!("{} tie for fastest", joined_with_and(tied)),
            (_, []) => "; undecided".to_owned(),
            (_, [winner]) => format!("; {winner} is fastest"),
            (_, tied) if is_alone && tied.contains(subject) => {
                let others = tied.iter().filter(|winner| *winner != subject);
                format!(", tied with {}", joined_with_and(&others.collect::<Vec<_>>()))
            }
            (_, tied) => format!("; {} tie", joined_with_and(tied)),
        };
        let of = match at {
            0 => format!("{count} of {}", counted(outcomes.len(), "setting")),
            _ => count.to_string(),
        };
        let named = if winners == most { String::new() } else { places(winners, outcomes) };
        format!("{verb} in {of}{named}")
    };
    Some(capitalized(&all.iter().enumerate().map(clause).collect::<String>()))
}

/// Settings with these winners: ` (batch 64 P2P on, TP 4 batch 64 and 1 more)`.
fn places(winners: &[String], outcomes: &[Outcome]) -> String {
    let rules = rules_of(winners, outcomes);
    let is_named = |setting: &Outcome| rules.iter().any(|rule| rule.holds(setting));
    let own = outcomes.iter().filter(|setting| setting.winners == winners);
    let more = match own.filter(|setting| !is_named(setting)).count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named: Vec<String> = rules.iter().map(SettingRule::words).collect();
    format!(" ({}{more})", named.join(", "))
}

/// Outcome of a row; `None` if it has only limits, of which none is a choice.
fn outcome(
    axis: &Axis,
    report: &ComparisonReport,
    (pivot, row): (&Pivot, &PivotRow),
    axes: &[&Axis],
) -> Option<Outcome> {
    let pairs: Vec<&Comparison> = row.known().map(|at| &report.pairs[at]).collect();
    let first = pairs.iter().find(|pair| !pair.side.spec.architecture.is_limit())?;
    let mut winners = row.winners(report);
    // in the order of the columns, the baseline first
    winners.sort_by_key(|winner| pivot.values.iter().position(|value| value == winner));
    let name = |winner: &str| match pairs.iter().find(|pair| pair.value == winner) {
        Some(pair) => side_names(axis, pair)[1].clone(),
        None => side_names(axis, first)[0].clone(),
    };
    Some(Outcome {
        labels: axes.iter().map(|axis| axis.phrase(&first.side.spec)).collect(),
        winners: winners.into_iter().map(name).collect(),
    })
}

/// Widest disjoint rules that hold only settings with these winners, at most [`MOST_NAMED`], in the order of the settings.
fn rules_of(winners: &[String], outcomes: &[Outcome]) -> Vec<SettingRule> {
    let mut rules: Vec<SettingRule> = Vec::new();
    let held = |rule: &SettingRule| outcomes.iter().filter(|setting| rule.holds(setting)).count();
    while rules.len() < MOST_NAMED {
        let own = outcomes.iter().filter(|outcome| outcome.winners == winners);
        let further = own.filter(|setting| !rules.iter().any(|rule| rule.holds(setting)));
        let around = further.map(|setting| SettingRule::around(setting, outcomes, &rules));
        // the first of several
        let Some(widest) = around.min_by_key(|rule| Reverse(held(rule))) else { break };
        rules.push(widest);
    }
    rules.sort_by_key(|rule| outcomes.iter().position(|setting| rule.holds(setting)));
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(all: [([&str; 2], &[&str]); 4]) -> Vec<Outcome> {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        all.map(|(labels, winners)| Outcome { labels: owned(&labels), winners: owned(winners) }).into()
    }

    #[test]
    fn an_exception_is_named_by_as_few_labels_as_tell_it_apart() {
        let all = outcomes([
            (["tp2", "b1"], &["ladder"]),
            (["tp2", "b64"], &["standard", "ladder"]),
            (["tp8", "b1"], &["parallel"]),
            (["tp8", "b64"], &["standard", "ladder"]),
        ]);
        let words = |of: usize| -> Vec<String> {
            rules_of(&all[of].winners, &all).iter().map(SettingRule::words).collect()
        };
        assert_eq!([words(1), words(2), words(0)], [["b64"], ["tp8 b1"], ["tp2 b1"]]);
    }

    /// The widest rules first would be `tp2`, and `b1` of both TPs.
    #[test]
    fn named_settings_are_disjoint_and_in_order() {
        let all = outcomes([
            (["tp2", "b1"], &["ladder"]),
            (["tp2", "b64"], &["ladder"]),
            (["tp8", "b1"], &["ladder"]),
            (["tp8", "b64"], &["parallel"]),
        ]);
        let rules = rules_of(&all[0].winners, &all);
        let words: Vec<String> = rules.iter().map(SettingRule::words).collect();
        assert_eq!(words, ["tp2", "tp8 b1"]);
        assert!(all.iter().all(|setting| rules.iter().filter(|rule| rule.holds(setting)).count() < 2));
    }

    #[test]
    fn the_sentence_begins_with_who_is_fastest_and_counts_settings() {
        let sentence = |winners: [&[&str]; 4]| {
            let labels = [["tp2", "b1"], ["tp2", "b64"], ["tp8", "b1"], ["tp8", "b64"]];
            sentence_of(&outcomes(std::array::from_fn(|at| (labels[at], winners[at]))))
        };
        let [ladder, parallel, undecided] = [&["ladder"][..], &["parallel"], &[]];
        let [tie, baseline_ties] = [["ladder", "parallel"], ["standard", "ladder"]];
        let [tie, baseline_ties] = [&tie[..], &baseline_ties];
        for (winners, expected) in [
            (
                [ladder, tie, tie, tie],
                "Ladder is fastest in 1 of 4 settings (tp2 b1), tied with parallel in 3",
            ),
            (
                [ladder, tie, parallel, ladder],
                "Ladder is fastest in 2 of 4 settings, tied with parallel in 1 (tp2 b64); parallel is \
                 fastest in 1 (tp8 b1)",
            ),
            (
                [tie, tie, baseline_ties, undecided],
                "Ladder and parallel tie for fastest in 2 of 4 settings; standard and ladder tie in 1 (tp8 \
                 b1); undecided in 1 (tp8 b64)",
            ),
            (
                [undecided, ladder, undecided, ladder],
                "Ladder is fastest in 2 of 4 settings (b64); undecided in 2",
            ),
        ] {
            assert_eq!(sentence(winners).as_deref(), Some(expected));
        }
        assert_eq!(sentence([ladder; 4]), None, "the headline names it");
    }

    #[test]
    fn further_settings_of_an_outcome_are_counted() {
        let all: Vec<Outcome> = (0..10)
            .map(|at| Outcome {
                labels: vec![format!("tp{at}"), format!("b{at}")],
                winners: vec![if at < 4 { "ladder" } else { "parallel" }.to_owned()],
            })
            .collect();
        let expected =
            "Parallel is fastest in 6 of 10 settings; ladder is fastest in 4 (tp0, tp1, tp2 and 1 more)";
        assert_eq!(sentence_of(&all).as_deref(), Some(expected));
    }
}
