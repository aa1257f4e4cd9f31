//! What other ranks sent to one rank, whichever way it came, and waiting for it.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::wire::{Frame, Operation};

/// What other ranks sent to one rank and it has not taken yet, in order, by sender.
#[derive(Debug)]
pub(super) struct Mailbox {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    from: Vec<Sender>,
    /// Why nothing more will come from anybody.
    broken: Option<String>,
}

/// What is known of a rank that may send.
#[derive(Debug)]
struct Sender {
    messages: VecDeque<(Operation, u64, Vec<u8>)>,
    /// What it was doing last, as ` (loading weights)`; empty where it never said.
    phase: String,
    /// When the rank last showed progress.
    progress: Instant,
    left: bool,
}

/// Why waiting for other ranks' messages ended without them.
#[derive(Debug)]
pub(super) enum Missing {
    /// Some rank gave up or died.
    Broken(String),
    /// The rank that was waited for ended in good order.
    Left,
    /// It showed no progress for that long; what it was doing.
    Late { phase: String, silent: Duration },
}

impl Mailbox {
    /// Empty, for mail of so many ranks.
    pub fn new(ranks: usize) -> Self {
        let sender = || Sender {
            messages: VecDeque::new(),
            phase: String::new(),
            progress: Instant::now(),
            left: false,
        };
        let from = (0..ranks).map(|_| sender()).collect();
        Self { state: Mutex::new(State { from, broken: None }), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what rank `from` sent.
    pub fn take(&self, from: usize, frame: Frame) {
        let mut state = self.lock();
        let sender = &mut state.from[from];
        match frame {
            Frame::Data { operation, number, bytes } => {
                sender.progress = Instant::now();
                sender.messages.push_back((operation, number, bytes));
            }
            Frame::Phase(what) => note(sender, &what),
            Frame::Leave => sender.left = true,
            Frame::Abort(why) => {
                state.broken.get_or_insert(why);
            }
        }
        self.changed.notify_all();
    }

    /// What rank `of` is doing.
    pub fn phase(&self, of: usize, what: &str) {
        note(&mut self.lock().from[of], what);
    }

    /// Nothing more will come; the first reason stays.
    pub fn abort(&self, why: &str) {
        self.lock().broken.get_or_insert_with(|| why.to_owned());
        self.changed.notify_all();
    }

    /// The connection of a rank ended: its death, where it had not left.
    pub fn lost(&self, from: usize, why: &str) -> bool {
        let mut state = self.lock();
        let died = !state.from[from].left && state.broken.is_none();
        if died {
            state.broken = Some(why.to_owned());
        }
        self.changed.notify_all();
        died
    }

    /// Why nothing more will come, if so.
    pub fn check(&self) -> Result<(), String> {
        self.lock().broken.clone().map_or(Ok(()), Err)
    }

    /// What a rank that sent nothing yet is doing; `None` where something of it is here.
    pub fn missing(&self, from: usize) -> Option<String> {
        let state = self.lock();
        let sender = &state.from[from];
        sender.messages.is_empty().then(|| sender.phase.clone())
    }

    /// The next message of rank `from`. With `patience`, ends when it has shown no progress for so long.
    pub fn wait(
        &self,
        from: usize,
        patience: Option<Duration>,
    ) -> Result<(Operation, u64, Vec<u8>), Missing> {
        let began = Instant::now();
        let mut state = self.lock();
        loop {
            if let Some(why) = &state.broken {
                return Err(Missing::Broken(why.clone()));
            }
            let sender = &mut state.from[from];
            if let Some(message) = sender.messages.pop_front() {
                return Ok(message);
            }
            if sender.left {
                return Err(Missing::Left);
            }
            // what it did before the wait was no promise to come soon
            let since = sender.progress.max(began);
            state = match patience {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(patience) => {
                    let Some(left) = patience.checked_sub(since.elapsed()) else {
                        let phase = sender.phase.clone();
                        return Err(Missing::Late { phase, silent: patience });
                    };
                    let woken = self.changed.wait_timeout(state, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

fn note(sender: &mut Sender, what: &str) {
    sender.phase = format!(" ({what})");
    sender.progress = Instant::now();
}
