//! What lies on a screen and takes its keys: help, texts, and what the user is asked - yes or no, for a line, to
//! choose from a list - with what is done about the answer.

use std::fmt;
use std::sync::Arc;

use super::context::Context;
use super::conversions::Conversions;
use super::pick::{Chosen, Folder, Pick};
use super::pictures::Picture;
use super::screen::Hints;
use super::screens::timeline::Timeline;
use super::state::{Placed, State};
use super::trainings::Trainings;
use super::widgets::field::{Field, FilterBox};
use super::widgets::offers::Offers;
use crate::base::offer::{Completion, Offer, complete_word};
use crate::desk::files::{FileEntry, folder_of, within};

/// What lies on a screen and takes its keys.
#[derive(Debug)]
pub enum Overlay {
    /// All bindings of the screen, and of every screen.
    Help {
        /// How many lines lie above the first one shown.
        scroll: usize,
        /// Which lines are shown.
        search: FilterBox,
    },
    /// A list to choose from, such as the palette.
    Pick(Pick),
    /// A question that is answered by yes or no.
    Confirm(Question),
    /// A line to be typed.
    Prompt(Prompt),
    /// A picture, such as a figure that was written.
    Picture {
        /// What it shows, and how it is closed.
        title: String,
        /// The picture, as the terminal's sequences.
        picture: Picture,
    },
    /// The stored results of `convert`.
    Conversions(Conversions),
    /// The stored trainings.
    Trainings(Trainings),
    /// A text, such as an experiment's file.
    Text {
        /// What the text is called.
        title: String,
        /// The lines of the text.
        lines: Vec<String>,
        /// How many lines lie above the first one shown.
        scroll: usize,
    },
}

impl Overlay {
    /// Its keys and what they do.
    pub fn hints(&self) -> Hints {
        match self {
            Self::Help { .. } => &[("/", "search"), ("↑ ↓", "scroll"), ("Esc", "close")],
            Self::Text { .. } => &[("↑ ↓", "scroll"), ("Esc", "close")],
            Self::Pick(_) => {
                &[("Enter", "choose"), ("↑ ↓", "select"), ("Tab", "complete"), ("Esc", "close")]
            }
            Self::Confirm(_) => &[("y Enter", "yes"), ("n Esc", "no")],
            Self::Prompt(prompt) if prompt.offers.list().is_empty() => {
                &[("Enter", "take it"), ("↑", "typed before"), ("Esc", "close")]
            }
            Self::Prompt(_) => {
                &[("Enter", "take it"), ("Tab", "complete"), ("↑", "typed before"), ("Esc", "close")]
            }
            Self::Picture { .. } => &[("Esc", "close")],
            Self::Conversions(shown) => shown.hints(),
            Self::Trainings(shown) => shown.hints(),
        }
    }
}

/// Takes a typed line; why it cannot be used.
pub type Take = Box<dyn Fn(&mut State, &str) -> Result<(), String>>;

/// A line that the user is asked for.
pub struct Prompt {
    /// What the user is asked for.
    pub title: String,
    /// What may be typed.
    pub hint: String,
    /// What was typed so far.
    pub field: Field,
    /// Why it could not be used.
    pub error: Option<String>,
    /// What can be typed next, and what that is taken from.
    pub offers: Offers,
    completing: Completing,
    /// What is done with it.
    pub take: Take,
}

/// What Tab completes in a line.
#[derive(Clone, Debug, Default)]
pub enum Completing {
    /// Nothing: no offers are made, and Tab leaves the line as it is.
    #[default]
    Nothing,
    /// The last of its words, which are parted by blanks and commas.
    Words(Vec<Offer>),
    /// The path of a file.
    Paths,
}

/// Offers of a prompt that are listed in it.
pub const LISTED: usize = 10;

/// What is asked before it is done.
pub struct Question {
    /// The question in words.
    pub text: String,
    /// What is done about a yes.
    pub yes: Box<dyn FnOnce(&mut State)>,
}

impl Prompt {
    /// A prompt with a line that begins as `text`.
    pub fn new(title: String, hint: String, text: String, take: Take) -> Self {
        let (offers, completing) = (Offers::default(), Completing::Nothing);
        Self { title, hint, field: Field::new(text), error: None, offers, completing, take }
    }

    /// The prompt, with what Tab completes in it.
    pub fn completing(self, completing: Completing) -> Self {
        Self { completing, ..self }
    }

    /// The folder of the path that is typed, where paths are completed.
    fn wanted_folder(&self) -> Option<String> {
        matches!(self.completing, Completing::Paths).then(|| folder_of(self.field.value()).to_owned())
    }

    /// Offers what can be typed next.
    fn suggest(&mut self, folder: Option<&Folder>) {
        let line = self.field.value();
        let completion = match &self.completing {
            Completing::Nothing => return,
            Completing::Words(words) => complete_word(line, self.field.cursor(), words, LISTED),
            Completing::Paths => {
                let wanted = self.wanted_folder();
                let entries = folder.filter(|folder| Some(&folder.0) == wanted.as_ref());
                let entries = entries.iter().flat_map(|(_, entries)| entries.iter());
                let begins = |entry: &&FileEntry| entry.path.starts_with(line);
                let offers = entries
                    .filter(begins)
                    .map(|entry| Offer::new(entry.path.clone(), entry.about.clone()));
                Completion { replaces: 0..line.len(), offers: offers.take(LISTED).collect() }
            }
        };
        self.offers.set(completion, line);
    }
}

/// After every message: what lies on top is searched for what is typed in it, and the folder of a path that is typed
/// there is read, in the background.
pub fn settle(cx: &mut Context) {
    let wanted = match cx.overlays.last() {
        Some(Overlay::Pick(pick)) => pick.wanted_folder(),
        Some(Overlay::Prompt(prompt)) => prompt.wanted_folder(),
        _ => None,
    };
    match wanted {
        Some(folder) => {
            let (typed, key) = (folder.clone(), folder.clone());
            cx.want(
                "folder",
                &key,
                move |_| Ok(within(&typed)),
                move |_: &mut Timeline, entries, cx| {
                    cx.folder = entries.ok().map(|entries| (folder, Arc::new(entries)));
                },
            );
        }
        // another time it is read anew
        None if cx.folder.take().is_some() => cx.forget::<Timeline>("folder"),
        None => {}
    }
    let folder = cx.folder.clone();
    match cx.overlays.last_mut() {
        Some(Overlay::Pick(pick)) => {
            pick.list_folder(folder.as_ref());
            pick.settle();
        }
        Some(Overlay::Prompt(prompt)) => prompt.suggest(folder.as_ref()),
        _ => {}
    }
}

impl Context {
    /// Asks the user for a line that begins as `text`; `take` has it, or says why it cannot be used.
    pub fn prompt<S: Placed>(
        &mut self,
        title: impl Into<String>,
        hint: impl Into<String>,
        text: impl Into<String>,
        take: impl Fn(&mut S, &str, &mut Self) -> Result<(), String> + 'static,
    ) {
        self.prompt_completing(Completing::Nothing, title, hint, text, take);
    }

    /// As [`Self::prompt`], of a line in which Tab completes something.
    pub fn prompt_completing<S: Placed>(
        &mut self,
        completing: Completing,
        title: impl Into<String>,
        hint: impl Into<String>,
        text: impl Into<String>,
        take: impl Fn(&mut S, &str, &mut Self) -> Result<(), String> + 'static,
    ) {
        let take: Take = Box::new(move |state, typed| {
            let (screen, cx) = S::of(state);
            take(screen, typed, cx)
        });
        let prompt = Prompt::new(title.into(), hint.into(), text.into(), take);
        self.ask_line(prompt.completing(completing));
    }

    /// Asks the user for a line; ↑ goes through those that were taken under this title before.
    pub fn ask_line(&mut self, mut prompt: Prompt) {
        prompt.field.past = self.past.get(&prompt.title).cloned().unwrap_or_default();
        self.overlays.push(Overlay::Prompt(prompt));
    }

    /// Asks the user whether to do something; one such question is open at a time.
    pub fn confirm<S: Placed>(
        &mut self,
        text: impl Into<String>,
        yes: impl FnOnce(&mut S, &mut Self) + 'static,
    ) {
        let yes = Box::new(|state: &mut State| {
            let (screen, cx) = S::of(state);
            yes(screen, cx);
        });
        self.question(Question { text: text.into(), yes });
    }

    /// Lets the user choose from a list; `take` has what was chosen.
    pub fn pick<S: Placed>(
        &mut self,
        title: impl Into<String>,
        lines: Vec<(String, String)>,
        literal: impl Fn(&str, bool) -> Option<String> + 'static,
        take: impl FnOnce(&mut S, Chosen, &mut Self) + 'static,
    ) {
        let take = |state: &mut State, chosen| {
            let (screen, cx) = S::of(state);
            take(screen, chosen, cx);
        };
        self.choose(Pick::new(title, lines, literal, take));
    }

    /// Lets the user choose from a list.
    pub fn choose(&mut self, pick: Pick) {
        self.overlays.push(Overlay::Pick(pick));
    }

    /// Asks a question, instead of one that is open.
    pub fn question(&mut self, question: Question) {
        self.drop_questions();
        self.overlays.push(Overlay::Confirm(question));
    }

    /// Takes back what was asked.
    pub fn drop_questions(&mut self) {
        self.overlays.retain(|o| !matches!(o, Overlay::Confirm(_)));
    }
}

impl fmt::Debug for Prompt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Prompt({:?}, {:?})", self.title, self.field.value())
    }
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Question({:?})", self.text)
    }
}
