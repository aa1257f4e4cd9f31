//! Winners by setting, in a sentence: the outcome of most settings, and the settings in which it differs.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::compared::side_names;
use base::text::{capitalized, joined_with_and};
use study::analysis::{Axis, Comparison, ComparisonReport, Pivot, PivotRow, Varied};

/// Most settings that are compared with one another.
const MOST_SETTINGS: usize = 500;

/// Setting of a row with its outcome.
struct Outcome {
    /// Label on each axis: `tp8`, `b1`, `p2p-off`.
    labels: Vec<String>,
    /// Fastest values, several if they tie; empty if the samples decide nothing.
    winners: Vec<String>,
}

/// Some settings by the labels that they share; `None` is any label of that axis.
struct SettingRule(Vec<Option<String>>);

impl SettingRule {
    /// Widest rule around a setting that holds only settings with its outcome.
    fn around(setting: &Outcome, all: &[Outcome]) -> Self {
        let mut rule = Self(setting.labels.iter().cloned().map(Some).collect());
        for axis in 0..setting.labels.len() {
            let label = rule.0[axis].take();
            if all.iter().any(|other| rule.holds(other) && other.winners != setting.winners) {
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

/// Winners of these rows, which differ in these settings: `Ladder is fastest, but ties with standard at b64 p2p-on, tp2
/// b16 p2p-on`. `None` if all rows have the same winner, which the headline names, or if there are too many.
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
    let mut counts: BTreeMap<&[String], usize> = BTreeMap::new();
    for outcome in &outcomes {
        *counts.entry(&outcome.winners).or_default() += 1;
    }
    let mut by_count: Vec<(&[String], usize)> = counts.into_iter().collect();
    by_count.sort_by_key(|(_, count)| Reverse(*count));
    let ((most, _), others) = by_count.split_first()?;
    let mut others: Vec<&[String]> = others.iter().map(|(winners, _)| *winners).collect();
    // clauses without a subject follow the first one
    others.sort_by_key(|winners| !is_tie_with_usual(winners, most));
    let exception = |winners: &&[String]| {
        let rules: Vec<String> = rules_of(winners, &outcomes).iter().map(SettingRule::words).collect();
        format!("{} at {}", exception_words(winners, most), rules.join(", "))
    };
    let exceptions: Vec<String> = others.iter().map(exception).collect();
    let sentence = match most {
        [] => format!("{}; elsewhere undecided", exceptions.join("; ")),
        _ => format!("{}, but {}", usual_words(most), exceptions.join("; ")),
    };
    (!exceptions.is_empty()).then(|| capitalized(&sentence))
}

/// Outcome of most settings, as a clause.
fn usual_words(winners: &[String]) -> String {
    match winners {
        [winner] => format!("{winner} is fastest"),
        tied => format!("{} tie for fastest", joined_with_and(tied)),
    }
}

/// True if the winner of most settings ties with others.
fn is_tie_with_usual(winners: &[String], most: &[String]) -> bool {
    matches!(most, [usual] if winners.len() > 1 && winners.contains(usual))
}

/// Another outcome, as a clause after that of most settings.
fn exception_words(winners: &[String], most: &[String]) -> String {
    let is_usual = |winner: &&String| most.contains(winner);
    match winners {
        [] => "undecided".to_owned(),
        [winner] if most.len() > 1 && is_usual(&winner) => format!("{winner} alone wins"),
        [winner] => format!("{winner} wins"),
        _ if is_tie_with_usual(winners, most) => {
            let others: Vec<String> = winners.iter().filter(|of| !is_usual(of)).cloned().collect();
            format!("ties with {}", joined_with_and(&others))
        }
        tied => format!("{} tie", joined_with_and(tied)),
    }
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
        labels: axes.iter().map(|axis| axis.label(&first.side.spec)).collect(),
        winners: winners.into_iter().map(name).collect(),
    })
}

/// Rules that hold all settings with these winners and no others, the widest first.
fn rules_of(winners: &[String], outcomes: &[Outcome]) -> Vec<SettingRule> {
    let mut rules: Vec<SettingRule> = Vec::new();
    for setting in outcomes.iter().filter(|outcome| outcome.winners == winners) {
        let is_held = rules.iter().any(|rule| rule.holds(setting));
        if !is_held {
            rules.push(SettingRule::around(setting, outcomes));
        }
    }
    let held = |rule: &SettingRule| outcomes.iter().filter(|setting| rule.holds(setting)).count();
    rules.sort_by_key(|rule| Reverse(held(rule)));
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

    #[test]
    fn an_exception_says_who_wins_or_ties_with_whom() {
        let owned =
            |words: &[&str]| -> Vec<String> { words.iter().map(|word| (*word).to_owned()).collect() };
        let [ladder, tie, parallel] =
            [&["ladder"][..], &["standard", "ladder"], &["parallel"]].map(owned);
        assert_eq!(usual_words(&ladder), "ladder is fastest");
        assert_eq!(usual_words(&tie), "standard and ladder tie for fastest");
        assert_eq!(exception_words(&tie, &ladder), "ties with standard");
        assert_eq!(exception_words(&ladder, &tie), "ladder alone wins");
        assert_eq!(exception_words(&parallel, &ladder), "parallel wins");
        assert_eq!(exception_words(&tie, &parallel), "standard and ladder tie");
        assert_eq!(exception_words(&[], &ladder), "undecided");
    }
}
