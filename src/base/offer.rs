//! Completions: names and values offered while typing, in the workbench and in shells.

use std::ops::Range;

use super::text::folded;

/// Replacement for a word, with a description.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    pub text: String,
    pub about: String,
}

/// Completions of the word being typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// Byte range that an offer replaces.
    pub replaces: Range<usize>,
    /// Best first.
    pub offers: Vec<Offer>,
}

impl Offer {
    pub fn new(text: impl Into<String>, about: impl Into<String>) -> Self {
        Self { text: text.into(), about: about.into() }
    }
}

/// Offers that contain the typed text, prefix matches first, at most `most`. Ignores case and treats `-`
/// and `_` alike.
pub fn fitting(offers: impl IntoIterator<Item = Offer>, typed: &str, most: usize) -> Vec<Offer> {
    let typed = folded(typed);
    let place = |offer: Offer| Some((folded(&offer.text).find(&typed)? > 0, offer));
    let mut found: Vec<(bool, Offer)> = offers.into_iter().filter_map(place).collect();
    // stable: keeps their order otherwise
    found.sort_by_key(|(within, _)| *within);
    found.into_iter().take(most).map(|(_, offer)| offer).collect()
}

/// Completes the word before byte `cursor`; words are separated by spaces and commas. For a complete
/// word, offers all alternatives.
pub fn complete_word(line: &str, cursor: usize, offers: &[Offer], most: usize) -> Completion {
    let before = line.get(..cursor).unwrap_or(line);
    // link values contain commas
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
