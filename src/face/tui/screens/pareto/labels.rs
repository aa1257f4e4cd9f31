//! Label placement: next to the point, covering neither points nor other labels nor, if possible, lines.

use std::collections::HashSet;

use ratatui::layout::Rect;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PointLabel {
    pub x: u16,
    pub y: u16,
    pub text: String,
    pub point: usize,
}

/// Places the names of the `wanted` points, in order of priority, in an area where all of `points` have a glyph, and some
/// of them a suffix or brackets in the cells of `beside`. Labels without a place are dropped. Only those of main points may
/// cover `lines`, and only the first may touch points of another name, or their brackets, whose label it could seem to be.
pub fn place(
    area: Rect,
    points: &[(u16, u16)],
    beside: &[(u16, u16)],
    lines: &HashSet<(u16, u16)>,
    (names, wanted): (&[String], &[usize]),
    is_main: impl Fn(usize) -> bool,
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
    for (at, point) in wanted.iter().enumerate() {
        let (Some(&(x, y)), Some(text)) = (points.get(*point), names.get(*point)) else { continue };
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
        // one free column on either side separates labels
        let cells = |(x, y): (u16, u16)| (x.saturating_sub(1)..=x + width).map(move |x| (x, y));
        let (own, row) = points[*point];
        let is_own = |(x, y): (u16, u16)| y == row && x.abs_diff(own) < gap;
        let fits = |place: (u16, u16), over_lines: bool| {
            let is_free = |at: (u16, u16)| {
                is_own(at)
                    || index(at.0, at.1).is_none_or(|at| !taken[at])
                        && (over_lines || !lines.contains(&at))
            };
            let inside =
                index(place.0, place.1).is_some() && index(place.0 + width - 1, place.1).is_some();
            // a blank separates it from the axis
            inside && place.0 > area.x && cells(place).all(is_free)
        };
        let others = points.iter().zip(names).filter(|(_, name)| *name != text).map(|(cell, _)| *cell);
        let brackets = beside.iter().filter(|(at, row)| *row != y || at.abs_diff(x) > 1);
        let brackets = brackets.flat_map(|(x, y)| [(x.saturating_sub(1), *y), (x + 1, *y)]);
        let others: Vec<(u16, u16)> = others.chain(brackets).collect();
        let touches_others = |place: (u16, u16)| {
            let rows = place.1.saturating_sub(1)..=place.1 + 1;
            rows.flat_map(|y| cells((place.0, y))).any(|cell| others.contains(&cell))
        };
        let found = |over_lines: bool, is_alone: bool| {
            let mut places = places.iter().filter_map(|(x, y)| x.zip(*y));
            places.find(|place| {
                width > 0 && fits(*place, over_lines) && !(is_alone && touches_others(*place))
            })
        };
        let touching = || found(false, false).or_else(|| found(true, false));
        let found = found(false, true)
            .or_else(|| if is_main(*point) { found(true, true) } else { None })
            .or_else(|| if at == 0 && is_main(*point) { touching() } else { None });
        if let Some((x, y)) = found {
            cells((x, y)).filter_map(|(x, y)| index(x, y)).for_each(|at| taken[at] = true);
            labels.push(PointLabel { x, y, text: text.clone(), point: *point });
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
            let names: Vec<_> = (0..points.len()).map(|i| format!("{i}x16")).collect();
            let all: Vec<_> = (0..points.len()).collect();
            let mut seen: HashSet<(u16, u16)> = points.iter().copied().collect();
            for label in place(area, &points, &[], &HashSet::new(), (&names, &all), |_| true) {
                for x in label.x..label.x + label.text.len() as u16 {
                    prop_assert!(area.contains((x, label.y).into()));
                    prop_assert!(seen.insert((x, label.y)), "{label:?} covers something");
                }
            }
        }
    }

    #[test]
    fn a_lone_point_has_its_label_at_its_right() {
        let places = |beside: &[(u16, u16)]| {
            let (area, names) = (Rect::new(0, 0, 20, 5), ["8x16".to_owned()]);
            place(area, &[(4, 2)], beside, &HashSet::new(), (&names, &[0]), |_| false)
        };
        assert_eq!(places(&[]), [PointLabel { x: 5, y: 2, text: "8x16".into(), point: 0 }]);
        let behind = [PointLabel { x: 6, y: 2, text: "8x16".into(), point: 0 }];
        assert_eq!(places(&[(5, 2)]), behind, "behind a suffix");
    }

    #[test]
    fn a_label_touches_another_point_or_the_axis_only_if_it_has_to() {
        let labels = |points: &[(u16, u16)], is_main: bool| {
            let names: Vec<_> = (0..points.len()).map(|i| format!("8x{}", i + 1)).collect();
            place(Rect::new(2, 0, 20, 5), points, &[], &HashSet::new(), (&names, &[0]), |_| is_main)
        };
        // the only free place, left of the point, touches the axis
        let at_axis = [(6, 2), (7, 2), (7, 1), (7, 3)];
        assert!(labels(&at_axis, true).is_empty());
        // between two points it could be of either
        let between = [(8, 2), (13, 2), (7, 1), (8, 1), (9, 1), (7, 3), (8, 3), (9, 3), (7, 2)];
        assert!(labels(&between, false).is_empty());
        assert_eq!(labels(&between, true).len(), 1);
    }

    #[test]
    fn only_the_first_label_stands_next_to_another_point() {
        let names = ["8x1", "8x4"].map(str::to_owned);
        // rows above and below have no room
        let (points, area) = ([(3, 0), (9, 0)], Rect::new(0, 0, 14, 1));
        let brackets = [(2, 0), (4, 0)];
        let labels = |wanted: &[usize]| {
            place(area, &points, &brackets, &HashSet::new(), (&names, wanted), |_| true)
        };
        assert_eq!(labels(&[1]).len(), 1);
        let both = labels(&[0, 1]);
        assert_eq!(both.iter().map(|label| label.point).collect::<Vec<_>>(), [0, 1], "{both:?}");
        // 8x4 would stand between the brackets of 8x1 and its own point
        let near = [(3, 0), (9, 0), (11, 0)];
        let names = ["8x1", "8x4", "8x16"].map(str::to_owned);
        let labels = place(area, &near, &brackets, &HashSet::new(), (&names, &[0, 1]), |_| true);
        assert!(labels.iter().all(|label| label.point != 1), "{labels:?}");
    }

    #[test]
    fn neighbours_of_one_name_share_a_label() {
        let names = ["4x4", "4x4", "8x1"].map(str::to_owned);
        let points = [(8, 2), (9, 2), (15, 2)];
        let area = Rect::new(0, 0, 20, 5);
        let labels = place(area, &points, &[], &HashSet::new(), (&names, &[0]), |_| false);
        assert_eq!((labels[0].x, labels[0].y), (7, 1), "above both");
    }

    #[test]
    fn a_label_cuts_a_line_only_if_it_is_of_a_main_point() {
        let names = ["8x16".to_owned()];
        let labels = |lines: &HashSet<(u16, u16)>, is_main: bool| {
            place(Rect::new(0, 0, 20, 5), &[(8, 2)], &[], lines, (&names, &[0]), |_| is_main)
        };
        let row: HashSet<(u16, u16)> = (0..20).map(|x| (x, 2)).collect();
        let above = labels(&row, false);
        assert_eq!((above[0].x, above[0].y), (6, 1), "above its line");
        let everywhere: HashSet<(u16, u16)> =
            (0..5).flat_map(|y| (0..20).map(move |x| (x, y))).collect();
        assert!(labels(&everywhere, false).is_empty());
        assert_eq!(labels(&everywhere, true).len(), 1);
    }
}
