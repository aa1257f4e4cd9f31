//! Nearest point in a direction.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    Left,
    Right,
    Up,
    Down,
}

/// Weight of the sideways distance.
const ACROSS: f64 = 2.0;

/// Returns the place nearest to the one at `from` in a direction, if any. Places are (x to the right, y
/// upwards) with equal units.
pub fn nearest(places: &[Option<(f64, f64)>], from: usize, direction: Direction) -> Option<usize> {
    let (x, y) = places.get(from).copied().flatten()?;
    let offset = |place: (f64, f64)| {
        let (dx, dy) = (place.0 - x, place.1 - y);
        match direction {
            Direction::Right => (dx, dy.abs()),
            Direction::Left => (-dx, dy.abs()),
            Direction::Up => (dy, dx.abs()),
            Direction::Down => (-dy, dx.abs()),
        }
    };
    let ahead = |(i, place): (usize, &Option<(f64, f64)>)| {
        let (along, across) = offset((*place)?);
        (i != from && along > 1e-9).then_some((i, along.hypot(ACROSS * across)))
    };
    let found = places.iter().enumerate().filter_map(ahead).min_by(|a, b| a.1.total_cmp(&b.1));
    found.map(|(i, _)| i)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn arrows_go_where_they_point() {
        let places = [(0.0, 0.0), (1.0, 0.2), (0.2, 1.0), (5.0, 0.0), (-1.0, -3.0)].map(Some);
        assert_eq!(nearest(&places, 0, Direction::Right), Some(1));
        assert_eq!(nearest(&places, 0, Direction::Up), Some(2));
        assert_eq!(nearest(&places, 1, Direction::Right), Some(3));
        assert_eq!(nearest(&places, 0, Direction::Left), Some(4), "what is off to the side, where else");
        assert_eq!(nearest(&places, 3, Direction::Right), None);
    }

    proptest! {
        #[test]
        fn an_arrow_finds_something_exactly_where_something_lies(
            places in prop::collection::vec((0i8..20, 0i8..20), 1..12), from in 0usize..12,
        ) {
            let from = from % places.len();
            let places: Vec<(f64, f64)> =
                places.iter().map(|(x, y)| (f64::from(*x), f64::from(*y))).collect();
            let shown: Vec<_> = places.iter().copied().map(Some).collect();
            let (x, y) = places[from];
            let along = |direction, place: (f64, f64)| match direction {
                Direction::Left => x - place.0,
                Direction::Right => place.0 - x,
                Direction::Up => place.1 - y,
                Direction::Down => y - place.1,
            };
            for direction in [Direction::Left, Direction::Right, Direction::Up, Direction::Down] {
                let ahead = places.iter().any(|place| along(direction, *place) > 0.0);
                let found = nearest(&shown, from, direction);
                prop_assert_eq!(found.is_some(), ahead);
                prop_assert!(found.is_none_or(|i| along(direction, places[i]) > 0.0));
            }
        }
    }
}
