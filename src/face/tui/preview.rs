//! Headless timeline, for measuring index and draw times and for rendering frames as text.

use std::path::PathBuf;
use std::sync::Arc;

use crossterm::event::KeyModifiers;

use super::prelude::*;
use super::screens::timeline::state::TraceIndex;
use super::screens::timeline::state::measure;
use super::update::Message;
use super::{update, view};
use table::Record;
use trace::Trace;

/// Headless workbench with its own buffer.
#[derive(Debug)]
pub struct Preview {
    state: State,
    buffer: Buffer,
}

impl Preview {
    /// Indexes one trace, or two stacked, in a window of this size (columns, rows).
    pub fn open(traces: Vec<Trace>, (columns, rows): (u16, u16)) -> Self {
        let mut state = State::new(Context::new(PathBuf::new(), Theme::new(true), (columns, rows)));
        let index = |trace| Arc::new(TraceIndex::new("preview".into(), trace));
        state.timeline.show(
            traces.into_iter().map(index).collect(),
            Opening::Alone(None),
            &mut state.cx,
        );
        state.cx.tab = Tab::Timeline;
        let effects = update::update(&mut state, Message::Resize(columns, rows));
        let mut preview = Self { state, buffer: Buffer::empty(Rect::new(0, 0, columns, rows)) };
        preview.answer(effects);
        preview
    }

    pub fn runs(records: Vec<Record>, (columns, rows): (u16, u16)) -> Self {
        let mut state = State::new(Context::new(PathBuf::new(), Theme::new(true), (columns, rows)));
        let snapshot = Arc::new(Snapshot::new(records, Vec::new()));
        update::update(&mut state, Message::Runs(Ok(snapshot)));
        state.cx.tab = Tab::Runs;
        Self { state, buffer: Buffer::empty(Rect::new(0, 0, columns, rows)) }
    }

    pub fn shown_runs(&self) -> usize {
        self.state.runs.count
    }

    /// Answers the timeline's background questions synchronously, except overlaps: they are the slowest,
    /// and no frame waits for them.
    fn answer(&mut self, mut effects: Vec<Effect>) {
        while let Some(effect) = effects.pop() {
            if let Effect::Ask(task) = effect
                && task.slot.name != "overlap"
            {
                effects.extend(update::update(&mut self.state, Message::Answered(task.run())));
            }
        }
    }

    /// Presses a key (Backspace is `\u{8}`, Enter is `\n`) and answers the questions it raises.
    pub fn press(&mut self, key: char) {
        let effects = update::update(&mut self.state, Message::Key(event(key)));
        self.answer(effects);
    }

    /// Presses a key without answering the questions it raises.
    pub fn tap(&mut self, key: char) {
        update::update(&mut self.state, Message::Key(event(key)));
    }

    /// Builds the overview of the first trace over this many columns; returns the number of columns with
    /// computation.
    pub fn overview(&self, columns: usize) -> usize {
        let pane = self.state.timeline.view.as_ref().and_then(|view| view.panes.first());
        let overview = pane.map(|pane| measure::overview(&pane.index, columns)).unwrap_or_default();
        overview.iter().filter(|density| density.compute > 0.0).count()
    }

    pub fn draw(&mut self) -> &Buffer {
        self.buffer.reset();
        view::draw(&mut self.buffer, &self.state);
        &self.buffer
    }

    /// Memory used by the indices, excluding traces, in bytes.
    pub fn index_bytes(&self) -> usize {
        let panes = self.state.timeline.view.iter().flat_map(|view| &view.panes);
        panes.map(|pane| pane.index.bytes()).sum()
    }
}

fn event(key: char) -> KeyEvent {
    let code = match key {
        '\u{8}' => KeyCode::Backspace,
        '\n' => KeyCode::Enter,
        key => KeyCode::Char(key),
    };
    KeyEvent::new(code, KeyModifiers::NONE)
}
