//! Texts of a column, concatenated for a fast search of all of them.

use memchr::memmem::Finder;

use base::text::folded;

/// Folded texts ([`folded`]) in one string, so that one search covers all.
#[derive(Clone, Debug, Default)]
pub(in crate::analysis) struct Lower {
    all: String,
    /// Start of each text, plus the end of the last.
    begins: Vec<usize>,
}

impl Lower {
    /// Separator of texts: a character that no text of a run contains.
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

    pub fn len(&self) -> usize {
        self.begins.len().saturating_sub(1)
    }

    pub fn get(&self, code: usize) -> &str {
        let end = self.begins.get(code + 1).map_or(0, |end| end.saturating_sub(1));
        self.begins.get(code).and_then(|begin| self.all.get(*begin..end)).unwrap_or_default()
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|code| self.get(code))
    }

    pub fn holds(&self, word: &str) -> bool {
        Finder::new(word.as_bytes()).find(self.all.as_bytes()).is_some()
    }

    /// Calls `found` with the code of each text that contains the word.
    pub fn holding(&self, word: &str, mut found: impl FnMut(usize)) {
        let bytes = self.all.as_bytes();
        let finder = Finder::new(word.as_bytes());
        let (mut from, mut code) = (0, 0);
        while let Some(at) = bytes.get(from..).and_then(|rest| finder.find(rest)) {
            // usually one of the next few
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
