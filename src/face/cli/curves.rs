//! Loss curves as text, one letter per training, for files and terminals without colours.

use table::Curve;

/// Width of the axis labels next to the plot.
const LABELS: usize = 9;

const LETTERS: &str = "abcdefghijklmnopqrstuvwxyz";

/// Plots the loss over steps in `width` by `height` characters; a column is the mean of its steps. Letters refer to
/// the list below the plot. `*` marks cells that several curves share.
pub fn drawn(found: &[Curve], width: usize, height: usize) -> String {
    let columns = width.saturating_sub(LABELS + 1).max(8);
    let steps = found.iter().flat_map(|one| one.curve.last()).map(|step| step.step).max().unwrap_or(0);
    if steps == 0 {
        return String::new();
    }
    let lines: Vec<Vec<Option<f64>>> = found.iter().map(|one| means(one, steps, columns)).collect();
    let all = || lines.iter().flatten().flatten().copied();
    let (low, high) = all().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    let span = (high - low).max(1e-9);
    let mut cells = vec![vec![' '; columns]; height];
    for (line, letter) in lines.iter().zip(LETTERS.chars().cycle()) {
        for (column, value) in line.iter().enumerate() {
            let Some(value) = value else { continue };
            let row = ((high - value) / span * (height - 1) as f64).round() as usize;
            let cell = &mut cells[row.min(height - 1)][column];
            *cell = match *cell {
                ' ' => letter,
                same if same == letter => letter,
                _ => '*',
            };
        }
    }
    let mut text = String::from("loss (nats a token)\n");
    for (row, line) in cells.iter().enumerate() {
        let label = match row {
            row if row % 5 == 0 || row == height - 1 => {
                format!("{:.3}", high - span * row as f64 / (height - 1) as f64)
            }
            _ => String::new(),
        };
        let line: String = line.iter().collect();
        text += &format!("{label:>LABELS$}│{}\n", line.trim_end());
    }
    text += &format!("{:>LABELS$}└{}\n", "", "─".repeat(columns));
    let last = format!("{steps} steps");
    text += &format!("{:>LABELS$} 1{last:>room$}\n", "", room = columns - 1);
    for (one, letter) in found.iter().zip(LETTERS.chars().cycle()) {
        let loss = one.last_loss().map_or(String::new(), |loss| format!("  {loss:.4} at the end"));
        text += &format!("{:>LABELS$}{letter} {}{loss}\n", "", one.training.spec.label());
    }
    text
}

fn means(one: &Curve, steps: u32, columns: usize) -> Vec<Option<f64>> {
    let mut sums = vec![(0.0, 0u32); columns];
    for step in &one.curve {
        let column = (step.step.saturating_sub(1) as usize * columns / steps as usize).min(columns - 1);
        sums[column].0 += step.nll;
        sums[column].1 += 1;
    }
    sums.into_iter().map(|(sum, count)| (count > 0).then(|| sum / f64::from(count))).collect()
}
