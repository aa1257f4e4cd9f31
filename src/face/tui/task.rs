//! Background questions: asked by a screen, answered on a thread, delivered to the same screen.
//!
//! Each question has a [`TaskSlot`] of its screen. A newer question in the same slot makes the older one
//! stale: its work is asked to stop and its answer is dropped, both in this module. A panic in the work
//! becomes an error of the answer.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::format;
use super::prelude::*;
use super::screen::TabScreen;
use base::error::Result;
use base::error::catch_panic;

/// Identity of a kind of question: screen, name, and an index if a screen asks the same about several things. Made from a
/// name, or from a name and an index: `"areas"`, `("overview", 1)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskSlot {
    /// Asking screen; `None` for the workbench and its overlays.
    owner: Option<Tab>,
    pub name: &'static str,
    pub index: usize,
}

/// Cancellation flag of a question's work.
#[derive(Clone, Debug)]
pub struct Stop {
    serial: u64,
    newest: Arc<AtomicU64>,
}

impl Stop {
    /// True if the answer is no longer wanted, e.g. because of a newer question.
    pub fn is_asked(&self) -> bool {
        self.newest.load(Ordering::Relaxed) != self.serial
    }
}

type Take = Box<dyn FnOnce(&mut State) + Send>;

pub struct BackgroundTask {
    pub slot: TaskSlot,
    stop: Stop,
    work: Box<dyn FnOnce(&Stop) -> Take + Send>,
}

pub struct TaskAnswer {
    slot: TaskSlot,
    stop: Stop,
    take: Take,
}

impl BackgroundTask {
    /// Does the work; may take long.
    pub fn run(self) -> TaskAnswer {
        let Self { slot, stop, work } = self;
        let take = if stop.is_asked() { Box::new(|_: &mut State| {}) } else { work(&stop) };
        TaskAnswer { slot, stop, take }
    }
}

impl TaskAnswer {
    /// Delivers the answer to the asking screen, unless it is stale.
    pub fn deliver(self, state: &mut State) {
        if self.stop.is_asked() {
            return;
        }
        if let Some(asked) = state.cx.tasks.0.get_mut(&self.slot) {
            asked.under_way = false;
        }
        (self.take)(state);
    }
}

/// Maximum threads per slot. A second one lets a newer question start while work that cannot be stopped,
/// such as reading a trace, is still running.
const AT_A_TIME: usize = 2;

/// Active questions, and the newest waiting one per slot. This bounds a slot to the data of three
/// questions.
#[derive(Clone, Debug, Default)]
pub struct Questions(Arc<Mutex<HashMap<TaskSlot, UnderWay>>>);

#[derive(Debug, Default)]
struct UnderWay {
    threads: usize,
    waiting: Option<BackgroundTask>,
}

impl Questions {
    /// Runs a question's work on a thread as soon as its slot has a free one, then calls `answered`
    /// there. A waiting question is dropped when a newer one replaces it.
    pub fn ask(&self, task: BackgroundTask, answered: impl Fn(TaskAnswer) + Send + 'static) {
        let slot = task.slot;
        {
            let mut slots = self.slots();
            let under_way = slots.entry(slot).or_default();
            if under_way.threads == AT_A_TIME {
                // replaces the waiting question, which is now stale
                under_way.waiting = Some(task);
                return;
            }
            under_way.threads += 1;
        }
        let questions = self.clone();
        std::thread::spawn(move || {
            let mut next = Some(task);
            while let Some(task) = next {
                answered(task.run());
                let mut slots = questions.slots();
                let Some(under_way) = slots.get_mut(&slot) else { return };
                next = under_way.waiting.take();
                if next.is_none() {
                    under_way.threads -= 1;
                    if under_way.threads == 0 {
                        slots.remove(&slot);
                    }
                }
            }
        });
    }

    fn slots(&self) -> std::sync::MutexGuard<'_, HashMap<TaskSlot, UnderWay>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for BackgroundTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BackgroundTask({:?})", self.slot)
    }
}

impl fmt::Debug for TaskAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskAnswer({:?})", self.slot)
    }
}

#[derive(Debug, Default)]
pub struct Tasks(HashMap<TaskSlot, SlotState>);

#[derive(Debug, Default)]
struct SlotState {
    newest: Arc<AtomicU64>,
    under_way: bool,
    key: Option<Box<dyn Any>>,
}

impl Context {
    /// Asks a question: `work` runs on a thread, `into` receives the result or a user-facing error. An
    /// active question in this slot becomes stale.
    pub fn ask<S: TabScreen, T: Send + 'static>(
        &mut self,
        slot: impl Into<TaskSlot>,
        work: impl FnOnce(&Stop) -> Result<T> + Send + 'static,
        into: impl FnOnce(&mut S, Result<T, String>, &mut Self) + Send + 'static,
    ) {
        self.ask_in(slot.into().of::<S>(), None, work, |state, answer| {
            let (screen, cx) = S::screen_and_context(state);
            into(screen, answer, cx);
        });
    }

    /// Like [`Self::ask`], for the workbench or an overlay.
    pub fn ask_own<T: Send + 'static>(
        &mut self,
        slot: impl Into<TaskSlot>,
        work: impl FnOnce(&Stop) -> Result<T> + Send + 'static,
        into: impl FnOnce(Result<T, String>, &mut Self) + Send + 'static,
    ) {
        self.ask_in(slot.into(), None, work, |state, answer| into(answer, &mut state.cx));
    }

    fn ask_in<T: Send + 'static>(
        &mut self,
        slot: TaskSlot,
        key: Option<Box<dyn Any>>,
        work: impl FnOnce(&Stop) -> Result<T> + Send + 'static,
        into: impl FnOnce(&mut State, Result<T, String>) + Send + 'static,
    ) {
        let asked = self.tasks.0.entry(slot).or_default();
        (asked.under_way, asked.key) = (true, key);
        let serial = asked.newest.fetch_add(1, Ordering::Relaxed) + 1;
        let stop = Stop { serial, newest: Arc::clone(&asked.newest) };
        let work = move |stop: &Stop| -> Take {
            let answer = guarded(|| work(stop));
            let answer = answer.and_then(|answer| answer.map_err(|error| format::error(&error)));
            Box::new(move |state| into(state, answer))
        };
        self.effects.push(Effect::Ask(BackgroundTask { slot, stop, work: Box::new(work) }));
    }

    /// True if the last question of a slot had this key.
    fn has_asked<K: PartialEq + 'static>(&self, slot: TaskSlot, key: &K) -> bool {
        let asked = self.tasks.0.get(&slot).and_then(|asked| asked.key.as_ref());
        asked.and_then(|asked| asked.downcast_ref()) == Some(key)
    }

    /// Asks a question unless the last one in this slot had the same key. For
    /// [`super::screen::Screen::settle`], which requests missing answers after every message.
    pub fn want<S: TabScreen, K: PartialEq + Clone + 'static, T: Send + 'static>(
        &mut self,
        slot: impl Into<TaskSlot>,
        key: &K,
        work: impl FnOnce(&Stop) -> Result<T> + Send + 'static,
        into: impl FnOnce(&mut S, Result<T, String>, &mut Self) + Send + 'static,
    ) {
        let slot = slot.into().of::<S>();
        if !self.has_asked(slot, key) {
            self.ask_in(slot, Some(Box::new(key.clone())), work, |state, answer| {
                let (screen, cx) = S::screen_and_context(state);
                into(screen, answer, cx);
            });
        }
    }

    /// Like [`Self::want`], for the workbench or an overlay.
    pub fn want_own<K: PartialEq + Clone + 'static, T: Send + 'static>(
        &mut self,
        slot: impl Into<TaskSlot>,
        key: &K,
        work: impl FnOnce(&Stop) -> Result<T> + Send + 'static,
        into: impl FnOnce(Result<T, String>, &mut Self) + Send + 'static,
    ) {
        let slot = slot.into();
        if !self.has_asked(slot, key) {
            let key: Box<dyn Any> = Box::new(key.clone());
            self.ask_in(slot, Some(key), work, |state, answer| into(answer, &mut state.cx));
        }
    }

    /// Like [`Self::want`], but sequential: while a question of this slot is active, no other is asked,
    /// and its answer is used even if outdated, so that the screen follows a held key.
    pub fn follow<S: TabScreen, K: PartialEq + Clone + 'static, T: Send + 'static>(
        &mut self,
        slot: impl Into<TaskSlot>,
        key: &K,
        work: impl FnOnce(&Stop) -> Result<T> + Send + 'static,
        into: impl FnOnce(&mut S, Result<T, String>, &mut Self) + Send + 'static,
    ) {
        let slot = slot.into();
        if !self.is_under_way::<S>(slot) {
            self.want(slot, key, work, into);
        }
    }

    pub fn is_under_way<S: TabScreen>(&self, slot: impl Into<TaskSlot>) -> bool {
        self.tasks.0.get(&slot.into().of::<S>()).is_some_and(|asked| asked.under_way)
    }

    /// Cancels the active question of this slot and forgets its key.
    pub fn forget<S: TabScreen>(&mut self, slot: impl Into<TaskSlot>) {
        self.forget_in(slot.into().of::<S>());
    }

    /// Like [`Self::forget`], for the workbench or an overlay.
    pub fn forget_own(&mut self, slot: impl Into<TaskSlot>) {
        self.forget_in(slot.into());
    }

    fn forget_in(&mut self, slot: TaskSlot) {
        if let Some(asked) = self.tasks.0.get_mut(&slot) {
            asked.newest.fetch_add(1, Ordering::Relaxed);
            (asked.under_way, asked.key) = (false, None);
        }
    }
}

impl TaskSlot {
    fn of<S: TabScreen>(self) -> Self {
        Self { owner: Some(S::TAB), ..self }
    }
}

impl From<&'static str> for TaskSlot {
    fn from(name: &'static str) -> Self {
        Self { owner: None, name, index: 0 }
    }
}

impl From<(&'static str, usize)> for TaskSlot {
    fn from((name, index): (&'static str, usize)) -> Self {
        Self { owner: None, name, index }
    }
}

/// Converts a panic into an error, so that a bug neither freezes nor ends the workbench.
pub fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_panic(work).map_err(|text| format!("a defect of ladderscope, please report it: {text}"))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// While two questions of a slot are being answered, of those asked meanwhile only the newest is kept and answered.
    #[test]
    fn a_slot_holds_two_questions_under_way_and_the_newest_behind_them() {
        let questions = Questions::default();
        let newest = Arc::new(AtomicU64::new(0));
        let (answers, answered) = mpsc::channel();
        let (began, begun) = mpsc::channel();
        let (mut going, mut waits): (Vec<_>, Vec<_>) = (0..2).map(|_| mpsc::channel::<()>()).unzip();
        // what a question holds on to is given up with it
        let data = Arc::new(());
        for serial in 0..50 {
            newest.store(serial, Ordering::Relaxed);
            let (hold, began, data) = (waits.pop(), began.clone(), Arc::clone(&data));
            let stop = Stop { serial, newest: Arc::clone(&newest) };
            let work = move |_: &Stop| -> Take {
                began.send(serial).unwrap();
                if let Some(hold) = hold {
                    hold.recv().unwrap();
                }
                drop(data);
                Box::new(|_| {})
            };
            let slot = TaskSlot { owner: Some(Tab::Compare), name: "comparison", index: 0 };
            let answers = answers.clone();
            let task = BackgroundTask { slot, stop, work: Box::new(work) };
            questions.ask(task, move |answer| answers.send(answer).unwrap());
            if serial < 2 {
                assert_eq!(begun.recv_timeout(Duration::from_secs(60)), Ok(serial), "it does not wait");
            }
        }
        assert_eq!(Arc::strong_count(&data), 4, "two under way and the newest");
        going.drain(..).for_each(|go| go.send(()).unwrap());
        for _ in 0..3 {
            answered.recv_timeout(Duration::from_secs(60)).unwrap();
        }
        assert_eq!(begun.try_iter().collect::<Vec<_>>(), [49]);
        assert_eq!(Arc::strong_count(&data), 1);
    }
}
