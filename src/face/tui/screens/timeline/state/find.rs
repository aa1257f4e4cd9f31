//! Search in the open traces: moves between matches as they arrive.

use super::index::Line;
use super::search::Matches;
use super::view::{Search, View};

impl View {
    /// Goes to the next or previous match in the focused pane; false if there is none.
    pub fn go_to_match(&mut self, forwards: bool) -> bool {
        let pane = self.pane();
        let Some(matches) = &pane.matches else { return false };
        let from = (pane.current().unwrap_or(Line::Rank(0)), pane.place);
        let time = self.time.saturating_add(pane.origin);
        let Some((line, place)) =
            matches.neighbour(&pane.index, |line| pane.hides(line), from, time, forwards)
        else {
            return false;
        };
        self.pane_mut().go_to(line, place);
        self.follow();
        self.show_cursor();
        true
    }

    pub fn found(&mut self, pane: usize, matches: Matches) {
        if let Some(pane) = self.panes.get_mut(pane) {
            pane.matches = Some(matches);
        }
        if self.search.awaited && pane == self.focus {
            self.search.awaited = false;
            self.go_to_first();
        }
    }

    /// Goes to the first match, now or once the search is done.
    pub fn go_to_found(&mut self) {
        let query = self.search.line.value();
        let matches = self.panes.get(self.focus).and_then(|pane| pane.matches.as_ref());
        if matches.is_some_and(|matches| matches.query == query) {
            self.go_to_first();
        } else {
            self.search.awaited = true;
        }
    }

    fn go_to_first(&mut self) {
        let zoom = std::mem::take(&mut self.search.zoom);
        if self.go_to_match(true) && zoom {
            self.zoom_span();
        }
    }

    pub fn forget_search(&mut self) {
        let mut line = std::mem::take(&mut self.search.line);
        line.drop_text();
        self.search = Search { line, ..Search::default() };
        for pane in &mut self.panes {
            (pane.matches, pane.totals) = (None, None);
        }
    }
}
