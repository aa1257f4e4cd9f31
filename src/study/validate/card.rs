use super::score::Score;
use super::set::Measure;
use table::render::{Shown, Table};

/// Mean and largest absolute error of each measure as a table, with the cell of the largest.
pub fn card(scores: &[Score]) -> Table {
    let lines: Vec<(&Score, Measure)> = scores
        .iter()
        .flat_map(|score| Measure::ALL.map(|measure| (score, measure)))
        .filter(|(score, measure)| score.errors(*measure).is_some())
        .collect();
    let errors = |(score, measure): &(&Score, Measure)| score.errors(*measure);
    Table::of(
        &lines,
        &[
            ("set", &|(score, _): &(&Score, Measure)| Shown::text(&score.set.name)),
            ("rows", &|(score, _)| score.rows.into()),
            ("not_run", &|(score, _)| score.not_run.len().into()),
            ("measure", &|(_, measure)| measure.title().into()),
            ("mean_error", &|line| Shown::number(errors(line).map(|(mean, _)| mean), 1)),
            ("largest", &|line| Shown::number(errors(line).map(|(_, max)| max), 1)),
            ("unit", &|(_, measure)| measure.unit().into()),
            ("largest_at", &|(score, measure)| {
                let words = |r: &super::Residual| match measure.unit() {
                    "points" => {
                        format!(
                            "{:+.1}: {}, {:.1} % for {:.1} %",
                            r.error, r.cell, r.predicted, r.measured
                        )
                    }
                    _ => format!("{:+.1}: {}", r.error, r.cell),
                };
                score.largest(*measure).map(words).into()
            }),
        ],
    )
}
