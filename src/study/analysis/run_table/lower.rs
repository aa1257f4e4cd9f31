//! The texts of a column, made for finding a word in all of them at once.

use memchr::memmem::Finder;

use base::text::folded;

/// Texts as searches compare them ([`folded`]), one behind another, so that all of them are searched in one go.
#[derive(Clone, Debug, Default)]
pub(in crate::analysis) struct Lower {
    all: String,
    /// Where each begins; and where the next one would.
    begins: Vec<usize>,
}

impl Lower {
    /// What separates texts: a character that no text of a run holds.
    const BORDER: char = '\0';

    pub fn new(texts: &[String]) -> Self {
        let mut lower = Self { all: String::new(), begins: Vec::with_capacity(texts.len() + 1) };
        for text in texts {
            lower.begins.push(lower.all.len());
            lower.all.push_str(&folded(text));
            lower.all.push(Self::BORDER);
        }
        lower.begins.push(lower.all.len());
        lower
    }

    /// How many different texts there are.
    pub fn len(&self) -> usize {
        self.begins.len().saturating_sub(1)
    }

    /// The text of this number, as searches compare it.
    pub fn get(&self, code: usize) -> &str {
        let end = self.begins.get(code + 1).map_or(0, |end| end.saturating_sub(1));
        self.begins.get(code).and_then(|begin| self.all.get(*begin..end)).unwrap_or_default()
    }

    /// All texts, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|code| self.get(code))
    }

    /// Whether some text holds the word.
    pub fn holds(&self, word: &str) -> bool {
        Finder::new(word.as_bytes()).find(self.all.as_bytes()).is_some()
    }

    /// Calls `found` with the number of each text that holds the word.
    pub fn holding(&self, word: &str, mut found: impl FnMut(usize)) {
        let bytes = self.all.as_bytes();
        let finder = Finder::new(word.as_bytes());
        let (mut from, mut code) = (0, 0);
        while let Some(at) = bytes.get(from..).and_then(|rest| finder.find(rest)) {
            // most often it is one of the next few
            let place = from + at;
            code += self.begins.get(code + 1..).map_or(0, |ends| {
                let near = ends.iter().take(8).take_while(|end| **end <= place).count();
                if near < 8 { near } else { ends.partition_point(|end| *end <= place) }
            });
            found(code);
            match self.begins.get(code + 1) {
                Some(next) => (from, code) = (*next, code + 1),
                None => return,
            }
        }
    }
}
