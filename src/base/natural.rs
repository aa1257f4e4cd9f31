//! Natural order: compares numbers within names by value, `ladder:8` before `ladder:16`.

use std::cmp::Ordering;

/// Compares two texts in natural order; only identical texts are equal.
pub fn natural_order(a: &str, b: &str) -> Ordering {
    let (mut x, mut y) = (a.as_bytes(), b.as_bytes());
    loop {
        let same = x.iter().zip(y).take_while(|(p, q)| p == q && !p.is_ascii_digit()).count();
        (x, y) = (&x[same..], &y[same..]);
        match (x.first(), y.first()) {
            (None, None) => return a.cmp(b),
            (None, _) => return Ordering::Less,
            (_, None) => return Ordering::Greater,
            (Some(p), Some(q)) if p.is_ascii_digit() && q.is_ascii_digit() => {
                let (m, n) = (number(x), number(y));
                // without leading zeros, more digits mean a larger number
                let (p, q) = (significant(&x[..m]), significant(&y[..n]));
                let order = p.len().cmp(&q.len()).then_with(|| p.cmp(q));
                if order.is_ne() {
                    return order;
                }
                (x, y) = (&x[m..], &y[n..]);
            }
            (Some(p), Some(q)) => return p.cmp(q),
        }
    }
}

fn number(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

fn significant(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().take_while(|byte| **byte == b'0').count();
    &digits[zeros..]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_within_names_are_numbers() {
        let mut names =
            ["ladder:16", "ladder:8", "b:10", "b:9", "ladder", "1b", "34b", "3b", "a01", "a1"];
        names.sort_by(|a, b| natural_order(a, b));
        assert_eq!(
            names,
            ["1b", "3b", "34b", "a01", "a1", "b:9", "b:10", "ladder", "ladder:8", "ladder:16"]
        );
    }

    proptest! {
        #[test]
        fn it_is_an_order(texts in prop::collection::vec("[a0-2]{0,6}", 3)) {
            let (a, b, c) = (&texts[0], &texts[1], &texts[2]);
            prop_assert_eq!(natural_order(a, b), natural_order(b, a).reverse());
            prop_assert_eq!(natural_order(a, b).is_eq(), a == b);
            if natural_order(a, b).is_le() && natural_order(b, c).is_le() {
                prop_assert!(natural_order(a, c).is_le());
            }
        }
    }
}
