//! Mailbox of one rank: messages received from other ranks over threads or TCP.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::wire::{Frame, Operation};

#[derive(Debug)]
pub(super) struct Mailbox {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    from: Vec<Sender>,
    broken: Option<String>,
}

#[derive(Debug)]
struct Sender {
    messages: VecDeque<(Operation, u64, Vec<u8>)>,
    /// Latest activity, as ` (loading weights)`; empty if never reported.
    phase: String,
    progress: Instant,
    left: bool,
}

/// Reason why a wait for a message failed.
#[derive(Debug)]
pub(super) enum Missing {
    Broken(String),
    Left,
    /// The rank made no progress for `silent`; `phase` is its latest activity.
    Late {
        phase: String,
        silent: Duration,
    },
}

impl Mailbox {
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

    /// Delivers a frame from rank `from`.
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

    pub fn phase(&self, of: usize, what: &str) {
        note(&mut self.lock().from[of], what);
    }

    /// Ends all waits with `why`; the first reason wins.
    pub fn abort(&self, why: &str) {
        self.lock().broken.get_or_insert_with(|| why.to_owned());
        self.changed.notify_all();
    }

    /// Handles a closed connection. Returns true if the rank died, that is, it had not left before.
    pub fn lost(&self, from: usize, why: &str) -> bool {
        let mut state = self.lock();
        let died = !state.from[from].left && state.broken.is_none();
        if died {
            state.broken = Some(why.to_owned());
        }
        self.changed.notify_all();
        died
    }

    pub fn check(&self) -> Result<(), String> {
        self.lock().broken.clone().map_or(Ok(()), Err)
    }

    /// Activity of a rank that has no message waiting; `None` if it has one.
    pub fn missing(&self, from: usize) -> Option<String> {
        let state = self.lock();
        let sender = &state.from[from];
        sender.messages.is_empty().then(|| sender.phase.clone())
    }

    /// Waits for the next message of rank `from`. With `patience`, fails after that long without progress.
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
            // activity before this wait does not count as progress
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
