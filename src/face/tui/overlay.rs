//! What lies on a screen and takes its keys: help, palette, texts, and what a screen asks the user, with
//! what is done about the answer.

use std::fmt;

use tui_input::Input;

use super::context::Context;
use super::state::{Placed, State};

/// What lies on a screen and takes its keys.
#[derive(Debug)]
pub enum Overlay {
    /// All bindings of the screen, and of every screen.
    Help {
        /// How many lines lie above the first one shown.
        scroll: usize,
    },
    /// Actions by fuzzy search.
    Palette {
        /// What was typed so far, with its cursor.
        input: Input,
        /// Index into the matches.
        selected: usize,
    },
    /// A question that is answered by yes or no.
    Confirm(Question),
    /// A line to be typed.
    Prompt(Prompt),
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
    /// What was typed so far, with its cursor.
    pub input: Input,
    /// Why it could not be used.
    pub error: Option<String>,
    /// What is done with it.
    pub take: Take,
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
        Self { title, hint, input: Input::new(text), error: None, take }
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

    /// Asks the user for a line.
    pub fn ask_line(&mut self, prompt: Prompt) {
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

    /// Opens the palette with something typed.
    pub fn type_into_palette(&mut self, text: &str) {
        self.overlays.push(Overlay::Palette { input: Input::new(text.into()), selected: 0 });
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
        write!(f, "Prompt({:?}, {:?})", self.title, self.input.value())
    }
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Question({:?})", self.text)
    }
}
