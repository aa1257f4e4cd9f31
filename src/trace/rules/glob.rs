//! Patterns of rules: `*` matches any text, every other character itself.
//!
//! C++ names are full of characters that are special in regular expressions.

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    /// Texts between the stars, one more than there are stars.
    parts: Vec<String>,
    ignore_case: bool,
}

impl Glob {
    pub fn new(pattern: &str, ignore_case: bool) -> Self {
        let fold = |part: &str| if ignore_case { part.to_ascii_lowercase() } else { part.to_owned() };
        Self { parts: pattern.split('*').map(fold).collect(), ignore_case }
    }

    /// True if the whole name matches. `folded` is the name in ASCII lower case.
    pub fn matches(&self, name: &str, folded: &str) -> bool {
        let name = if self.ignore_case { folded } else { name };
        let (Some(first), [.., last]) = (self.parts.first(), self.parts.as_slice()) else {
            return false;
        };
        if self.parts.len() == 1 {
            return name == first;
        }
        let Some(rest) = name.strip_prefix(first.as_str()) else { return false };
        let Some(mut rest) = rest.strip_suffix(last.as_str()) else { return false };
        // The leftmost match of each part leaves the most room for the next ones.
        self.parts[1..self.parts.len() - 1].iter().all(|part| match rest.find(part.as_str()) {
            Some(at) => {
                rest = &rest[at + part.len()..];
                true
            }
            None => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, name: &str, ignore_case: bool) -> bool {
        Glob::new(pattern, ignore_case).matches(name, &name.to_ascii_lowercase())
    }

    #[test]
    fn a_star_stands_for_anything_and_the_rest_for_itself() {
        assert!(matches("nccl*Kernel*", "ncclDevKernel_AllReduce(x)", false));
        assert!(!matches("nccl*Kernel*", "void ncclDevKernel_AllReduce(x)", false));
        assert!(matches("*[lambda(*", "f<[lambda(int)]>", false));
        assert!(!matches("a?c", "abc", false));
        assert!(!matches("ab*ba", "aba", false), "prefix and suffix may not share characters");
        assert!(matches("*ALLREDUCE*", "oneShotAllReduceKernel", true));
        assert!(!matches("*ALLREDUCE*", "oneShotAllReduceKernel", false));
    }

    /// What a pattern matches by its definition, in exponential time: the tests compare with it.
    fn slowly(pattern: &[u8], name: &[u8]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some((b'*', rest)) => (0..=name.len()).any(|at| slowly(rest, &name[at..])),
            Some((c, rest)) => name.first() == Some(c) && slowly(rest, &name[1..]),
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(pattern in "[ab*]{0,7}", name in "[ab]{0,9}") {
            prop_assert_eq!(matches(&pattern, &name, false), slowly(pattern.as_bytes(), name.as_bytes()));
        }
    }
}
