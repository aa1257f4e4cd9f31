use super::answer::{Answer, Rewiring, Times};
use table::Provenance;
use table::render::{Shown, Table};

struct Row<'a> {
    name: String,
    provenance: Provenance,
    collective: String,
    alone: &'a Times,
    contended: Option<&'a Times>,
}

/// Measured steps, then every answer. Times in us.
pub fn answers_table(rewiring: &Rewiring, answers: &[Answer]) -> Table {
    let measured = rewiring.measured();
    let first = Row {
        name: match rewiring.provenance {
            Provenance::EmulatedLink => "as run, emulated-link".into(),
            provenance => format!("as {provenance}"),
        },
        provenance: rewiring.provenance,
        collective: String::new(),
        alone: &measured,
        contended: rewiring.target.is_some().then_some(&measured),
    };
    let rest = answers.iter().map(|answer| Row {
        name: answer.choice.label(),
        provenance: Provenance::Simulated,
        collective: answer.choice.collective.map(|c| c.to_string()).unwrap_or_default(),
        alone: &answer.alone,
        contended: answer.contended.as_ref(),
    });
    let rows: Vec<Row<'_>> = std::iter::once(first).chain(rest).collect();
    let low = |pair: Option<[f64; 2]>, decimals| Shown::number(pair.map(|pair| pair[0]), decimals);
    let high = |pair: Option<[f64; 2]>, decimals| Shown::number(pair.map(|pair| pair[1]), decimals);
    let best = |row: &Row<'_>| *row.contended.unwrap_or(row.alone);
    Table::of(
        &rows,
        &[
            ("wiring", &|row| Shown::text(&row.name)),
            ("provenance|", &|row| Shown::text(row.provenance)),
            ("collective|", &|row| Shown::text(&row.collective)),
            ("step_us|step (us)", &|row| Shown::Number(row.alone.step_us, 1)),
            ("speedup", &|row| Shown::Number(row.alone.speedup, 3)),
            ("exposed_us|exposed", &|row| Shown::Number(row.alone.exposed_us, 1)),
            ("contended_step_us|contended (us)", &|row| {
                Shown::number(row.contended.map(|times| times.step_us), 1)
            }),
            ("contended_speedup|speedup then", &|row| {
                Shown::number(row.contended.map(|times| times.speedup), 3)
            }),
            ("speedup_low|from", &|row| low(best(row).speedup_95, 3)),
            ("speedup_high|to", &|row| high(best(row).speedup_95, 3)),
            ("step_low_us|", &|row| low(best(row).step_us_95, 1)),
            ("step_high_us|", &|row| high(best(row).step_us_95, 1)),
        ],
    )
}
