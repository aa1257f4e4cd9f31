//! What lies on a screen and takes its keys: help, texts, and what the user is asked - yes or no, for a line, to
//! choose from a list - with what is done about the answer.

use std::fmt;

use nucleo_matcher::pattern::{CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Matcher};

use super::context::Context;
use super::screens::pareto::picture::Picture;
use super::state::{Placed, State};
use super::widgets::field::Field;

/// What lies on a screen and takes its keys.
#[derive(Debug)]
pub enum Overlay {
    /// All bindings of the screen, and of every screen.
    Help {
        /// How many lines lie above the first one shown.
        scroll: usize,
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
    /// What is done with it.
    pub take: Take,
}

/// A list that the user chooses from by typing.
pub struct Pick {
    /// What the user chooses.
    pub title: String,
    /// What was typed so far.
    pub field: Field,
    /// Which of the lines that match is selected.
    pub selected: usize,
    /// The lines: a name, in which is searched, and what there is to say of it.
    pub lines: Vec<(String, String)>,
    literal: Literal,
    take: TakeChosen,
}

/// What Enter does with a text itself, in words, where the text is meant: told of the text, and of whether no line
/// matches it.
type Literal = Box<dyn Fn(&str, bool) -> Option<String>>;

/// Does what is done about a choice.
type TakeChosen = Box<dyn FnOnce(&mut State, Chosen)>;

/// What was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// A line, by its index.
    Line(usize),
    /// What was typed itself.
    Text(String),
}

/// A name with its index, as the search wants it.
struct Named<'a>(usize, &'a str);

impl AsRef<str> for Named<'_> {
    fn as_ref(&self) -> &str {
        self.1
    }
}

impl Pick {
    /// A list of lines; `literal` says what Enter does with a text itself, where that is meant.
    pub fn new(
        title: impl Into<String>,
        lines: Vec<(String, String)>,
        literal: impl Fn(&str, bool) -> Option<String> + 'static,
        take: impl FnOnce(&mut State, Chosen) + 'static,
    ) -> Self {
        let (literal, take) = (Box::new(literal), Box::new(take));
        Self { title: title.into(), field: Field::default(), selected: 0, lines, literal, take }
    }

    /// The list with something typed.
    pub fn typed(self, text: &str) -> Self {
        Self { field: Field::new(text), ..self }
    }

    /// The lines that match what was typed, the best first, by index.
    pub fn found(&self) -> Vec<usize> {
        let typed = self.field.value().trim_end_matches([' ', '=']);
        let pattern = Pattern::parse(typed, CaseMatching::Ignore, Normalization::Smart);
        let names = self.lines.iter().enumerate().map(|(at, line)| Named(at, &line.0));
        let found = pattern.match_list(names, &mut Matcher::new(Config::DEFAULT));
        let mut found: Vec<usize> = found.into_iter().map(|(named, _)| named.0).collect();
        // who types a part of a name means that name
        let typed = typed.to_lowercase();
        found.sort_by_key(|at| !self.lines[*at].0.to_lowercase().contains(&typed));
        found
    }

    /// What Enter does with the text itself, where it is meant.
    pub fn literal(&self) -> Option<String> {
        (self.literal)(self.field.value(), self.found().is_empty())
    }

    /// What Enter chooses; `None` where nothing matches.
    pub fn chosen(&self) -> Option<Chosen> {
        if self.literal().is_some() {
            return Some(Chosen::Text(self.field.value().to_owned()));
        }
        self.found().get(self.selected).copied().map(Chosen::Line)
    }

    /// Does what is done about the choice.
    pub fn take(self, state: &mut State, chosen: Chosen) {
        (self.take)(state, chosen);
    }
}

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
        Self { title, hint, field: Field::new(text), error: None, take }
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
        let take: Take = Box::new(move |state, typed| {
            let (screen, cx) = S::of(state);
            take(screen, typed, cx)
        });
        self.ask_line(Prompt::new(title.into(), hint.into(), text.into(), take));
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

impl fmt::Debug for Pick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pick({:?}, {:?})", self.title, self.field.value())
    }
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Question({:?})", self.text)
    }
}
