//! Label placement: next to the point, covering neither points nor other labels.

use ratatui::layout::Rect;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PointLabel {
    pub x: u16,
    pub y: u16,
    pub text: String,
    pub point: usize,
}

/// Places texts in order of priority in an area where all of `points` have a glyph, and some of them a suffix or
/// brackets in the cells of `beside`. Texts without a free place are dropped.
pub fn place(
    area: Rect,
    points: &[(u16, u16)],
    beside: &[(u16, u16)],
    texts: &[(usize, String)],
) -> Vec<PointLabel> {
    let (columns, rows) = (usize::from(area.width), usize::from(area.height));
    let mut taken = vec![false; columns * rows];
    let index = |x: u16, y: u16| {
        let inside = area.contains((x, y).into());
        inside.then(|| usize::from(y - area.y) * columns + usize::from(x - area.x))
    };
    for (x, y) in points.iter().chain(beside) {
        if let Some(at) = index(*x, *y) {
            taken[at] = true;
        }
    }
    let mut labels = Vec::new();
    for (point, text) in texts {
        let Some(&(x, y)) = points.get(*point) else { continue };
        let width = text.chars().count() as u16;
        let middle = x.saturating_sub(width / 2);
        let gap = if beside.contains(&(x + 1, y)) && !points.contains(&(x + 1, y)) { 2 } else { 1 };
        let left = x.checked_sub(width + gap);
        let (above, below) = (y.checked_sub(1), Some(y + 1));
        // right, above, below, left, then the corners
        let places = [
            (Some(x + gap), Some(y)),
            (Some(middle), above),
            (Some(middle), below),
            (left, Some(y)),
            (left, above),
            (Some(x + gap), below),
            (Some(x + gap), above),
            (left, below),
        ];
        for (x, y) in places.into_iter().filter_map(|(x, y)| x.zip(y)) {
            // one free column on either side separates labels
            let cells = || (x.saturating_sub(1)..=x + width).map(move |x| (x, y));
            let (own, row) = points[*point];
            let is_own = |(x, y): (u16, u16)| y == row && x.abs_diff(own) < gap;
            let free = cells().all(|at| is_own(at) || index(at.0, at.1).is_none_or(|at| !taken[at]));
            let inside = index(x, y).is_some() && index(x + width - 1, y).is_some();
            if width > 0 && free && inside {
                cells().filter_map(|(x, y)| index(x, y)).for_each(|at| taken[at] = true);
                labels.push(PointLabel { x, y, text: text.clone(), point: *point });
                break;
            }
        }
    }
    labels
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn labels_cover_no_point_and_no_other_label(
            points in prop::collection::vec((5u16..45, 3u16..13), 0..30),
        ) {
            let area = Rect::new(5, 3, 40, 10);
            let texts: Vec<_> = (0..points.len()).map(|i| (i, format!("{i}x16"))).collect();
            let mut seen: std::collections::HashSet<(u16, u16)> = points.iter().copied().collect();
            for label in place(area, &points, &[], &texts) {
                for x in label.x..label.x + label.text.len() as u16 {
                    prop_assert!(area.contains((x, label.y).into()));
                    prop_assert!(seen.insert((x, label.y)), "{label:?} covers something");
                }
            }
        }
    }

    #[test]
    fn a_lone_point_has_its_label_at_its_right() {
        let labels = place(Rect::new(0, 0, 20, 5), &[(4, 2)], &[], &[(0, "8x16".into())]);
        assert_eq!(labels, [PointLabel { x: 5, y: 2, text: "8x16".into(), point: 0 }]);
        let labels = place(Rect::new(0, 0, 20, 5), &[(4, 2)], &[(5, 2)], &[(0, "8x16".into())]);
        assert_eq!(
            labels,
            [PointLabel { x: 6, y: 2, text: "8x16".into(), point: 0 }],
            "behind a suffix"
        );
    }
}
