//! What can be typed next: names and values that are offered while a line is typed, in the workbench and by shells.

use std::ops::Range;

use super::text::folded;

/// What may be put instead of a word, and what that is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// What is put in.
    pub text: String,
    /// What it is, in a few words.
    pub about: String,
}

/// What can stand instead of the word that is being typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// The bytes of the text that an offer replaces.
    pub replaces: Range<usize>,
    /// What may stand there, the best first.
    pub offers: Vec<Offer>,
}

impl Offer {
    /// A text and what it is.
    pub fn new(text: impl Into<String>, about: impl Into<String>) -> Self {
        Self { text: text.into(), about: about.into() }
    }
}

/// The offers that hold what was typed, those that begin with it first, `most` of them at most. Letters of either
/// case, `-` and `_` are alike.
pub fn fitting(offers: impl IntoIterator<Item = Offer>, typed: &str, most: usize) -> Vec<Offer> {
    let typed = folded(typed);
    let place = |offer: Offer| Some((folded(&offer.text).find(&typed)? > 0, offer));
    let mut found: Vec<(bool, Offer)> = offers.into_iter().filter_map(place).collect();
    // stable: otherwise in their order
    found.sort_by_key(|(within, _)| *within);
    found.into_iter().take(most).map(|(_, offer)| offer).collect()
}

/// What can stand instead of the word before byte `cursor` of a line; words are parted by blanks and commas. Instead of
/// one that is typed whole all the others can.
pub fn complete_word(line: &str, cursor: usize, offers: &[Offer], most: usize) -> Completion {
    let before = line.get(..cursor).unwrap_or(line);
    // links have commas in them
    let whole = |text: &str| offers.iter().any(|offer| offer.text == text);
    let start = before.rfind([' ', ',']).filter(|_| !whole(before)).map_or(0, |at| at + 1);
    let word = &before[start..];
    let typed = if whole(word) { "" } else { word };
    Completion { replaces: start..before.len(), offers: fitting(offers.iter().cloned(), typed, most) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_several_words_is_completed() {
        let offers = ["standard", "ladder", "ladder:K"].map(|text| Offer::new(text, ""));
        let found = complete_word("standard, st more", 12, &offers, 8);
        assert_eq!((found.replaces, found.offers.len()), (10..12, 1));
        assert_eq!(complete_word("", 0, &offers, 8).offers.len(), 3);
        assert_eq!(
            complete_word("ladder", 6, &offers, 8).offers.len(),
            3,
            "typed whole: the others, too"
        );
    }

    #[test]
    fn what_begins_as_typed_comes_first() {
        let offers = ["p2p-off", "off", "on"].map(|text| Offer::new(text, ""));
        let texts = |typed| -> Vec<String> {
            fitting(offers.clone(), typed, 2).into_iter().map(|offer| offer.text).collect()
        };
        assert_eq!(texts("OFF"), ["off", "p2p-off"]);
        assert_eq!(texts("p2p_"), ["p2p-off"]);
        assert_eq!(texts(""), ["p2p-off", "off"]);
        assert!(texts("x").is_empty());
    }
}
