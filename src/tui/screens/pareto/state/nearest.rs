//! The nearest point in an arrow's direction.

/// Where an arrow points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    Left,
    Right,
    Up,
    Down,
}

/// How much farther a place seems that lies off to the side.
const ACROSS: f64 = 2.0;

/// The nearest of these places (x to the right, y upwards, one unit as long in both) from the one at
/// `from`, among those that lie in the direction; `None` where nothing does.
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
        fn every_place_apart_can_be_reached(
            places in prop::collection::vec((0i8..20, 0i8..20), 1..12), from in 0usize..12,
        ) {
            let mut places = places;
            places.sort_unstable();
            places.dedup();
            let from = from % places.len();
            let places: Vec<_> =
                places.iter().map(|(x, y)| Some((f64::from(*x), f64::from(*y)))).collect();
            let mut seen = vec![false; places.len()];
            let mut next = vec![from];
            while let Some(at) = next.pop() {
                if !std::mem::replace(&mut seen[at], true) {
                    use Direction::{Down, Left, Right, Up};
                    next.extend([Left, Right, Up, Down].into_iter().filter_map(|d| nearest(&places, at, d)));
                }
            }
            prop_assert!(seen.iter().all(|s| *s), "{seen:?} of {places:?}");
        }
    }
}
