//! Interning of repeated texts.

use std::collections::HashMap;

use foldhash::fast::RandomState;

#[derive(Clone, Debug, Default)]
pub(super) struct Interner {
    numbers: HashMap<Box<[u8]>, u32, RandomState>,
}

impl Interner {
    #[inline]
    pub(super) fn intern(&mut self, text: &[u8]) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        // 2^32 distinct texts do not fit in memory
        let number = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        self.numbers.insert(text.into(), number);
        number
    }

    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Texts ordered by number.
    pub(super) fn texts(&self) -> Vec<&[u8]> {
        let mut texts = vec![&b""[..]; self.numbers.len()];
        for (text, number) in &self.numbers {
            texts[*number as usize] = text;
        }
        texts
    }

    /// Merges the texts of another interner. Returns the new number of each of its texts.
    pub(super) fn absorb(&mut self, other: &Self) -> Vec<u32> {
        other.texts().into_iter().map(|text| self.intern(text)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_keep_their_number_and_are_taken_over() {
        let mut first = Interner::default();
        assert_eq!([first.intern(b"a"), first.intern(b"b"), first.intern(b"a")], [0, 1, 0]);
        let mut second = Interner::default();
        second.intern(b"c");
        second.intern(b"b");
        assert_eq!(first.absorb(&second), [2, 1]);
        assert_eq!(first.texts(), [b"a", b"b", b"c"]);
    }
}
