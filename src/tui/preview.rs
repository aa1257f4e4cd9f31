//! The timeline without a terminal: what it costs to index a trace and to draw a frame of it can be
//! measured, and a frame can be had as text.

use std::path::PathBuf;
use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::action::Screen;
use super::message::{Message, Snapshot};
use super::screens::timeline::state::TraceIndex;
use super::state::State;
use super::theme::Theme;
use super::{update, view};
use crate::store::Record;
use crate::trace::Trace;

/// A workbench that shows traces, in a window of its own.
#[derive(Debug)]
pub struct Preview {
    state: State,
    buffer: Buffer,
}

impl Preview {
    /// Indexes one trace, or two to be shown under one another, in a window of so many columns and rows.
    pub fn open(traces: Vec<Trace>, (columns, rows): (u16, u16)) -> Self {
        let mut state = State::new(PathBuf::new(), Theme::new(true), (columns, rows));
        let index = |trace| Arc::new(TraceIndex::new("preview".into(), trace));
        let request = state.timeline.request("traces".into(), false);
        let result = Ok(traces.into_iter().map(index).collect());
        update::update(&mut state, Message::Trace { request, result });
        state.screen = Screen::Timeline;
        Self { state, buffer: Buffer::empty(Rect::new(0, 0, columns, rows)) }
    }

    /// A workbench at the page of these runs, in a window of so many columns and rows.
    pub fn runs(records: Vec<Record>, (columns, rows): (u16, u16)) -> Self {
        let mut state = State::new(PathBuf::new(), Theme::new(true), (columns, rows));
        let snapshot = Arc::new(Snapshot::new(records, Vec::new()));
        update::update(&mut state, Message::Runs(Ok(snapshot)));
        state.screen = Screen::Runs;
        Self { state, buffer: Buffer::empty(Rect::new(0, 0, columns, rows)) }
    }

    /// How many of the runs are shown.
    pub fn shown_runs(&self) -> usize {
        self.state.runs.count
    }

    /// Presses a key, Backspace for `\u{8}`, Enter for `\n`; what it asks for in the background is not done.
    pub fn press(&mut self, key: char) {
        let code = match key {
            '\u{8}' => KeyCode::Backspace,
            '\n' => KeyCode::Enter,
            key => KeyCode::Char(key),
        };
        let key = KeyEvent::new(code, KeyModifiers::NONE);
        update::update(&mut self.state, Message::Key(key));
    }

    /// Draws a frame.
    pub fn draw(&mut self) -> &Buffer {
        self.buffer.reset();
        view::draw(&mut self.buffer, &self.state);
        &self.buffer
    }

    /// Bytes that the indices take beside the traces.
    pub fn index_bytes(&self) -> usize {
        let panes = self.state.timeline.view.iter().flat_map(|view| &view.panes);
        panes.map(|pane| pane.index.bytes()).sum()
    }
}
