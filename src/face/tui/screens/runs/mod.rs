//! Screen 3: stored runs: found, sorted, marked, tagged, compared, deleted.

mod columns;
mod draw;
mod edits;
mod marked;
mod over;
pub mod state;

use std::collections::HashSet;
use std::sync::Arc;

use crossterm::event::KeyEvent;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use self::over::Over;
pub use self::state::Runs;
use crate::base::offer::Offer;
use crate::face::tui::action::acts;
use crate::face::tui::context::Opening;
use crate::face::tui::context::{Context, Request, SelectedRun};
use crate::face::tui::format;
use crate::face::tui::layout::{cut_bottom, cut_left, cut_top};
use crate::face::tui::message::Effect;
use crate::face::tui::overlay::Completing;
use crate::face::tui::paper::Subject;
use crate::face::tui::screen::{Acts, Command, Export, FileKind, Hints, Pointer, PointerKind, Screen};
use crate::face::tui::snapshot::Snapshot;
use crate::face::tui::widgets::field::FilterBox;
use crate::face::tui::widgets::list::List;
use crate::lab::store::Store;
use crate::study::analysis::side_by_side;
use crate::table::Field;

/// More runs than this are not deleted without asking.
const MANY: usize = 3;

acts! {
    Open: "open", "Enter", "open the run's timeline", Some("timeline");
    Filter: "filter", "/", "filter: words, arch:ladder, tpot<5, tag:good, -word", Some("filter");
    Mark: "mark", "Space", "mark the run, or take its mark away", Some("mark");
    SideBySide: "side-by-side", "c", "compare two marked runs side by side", Some("compare");
    SortNext: "sort-next", "s >", "sort by the next column", Some("sort");
    Detail: "detail", "d", "show or hide the run's details", Some("details");
    Tag: "tag", "t", "tag the marked runs, or the selected one", Some("tag");
    SortPrevious: "sort-previous", "S <", "sort by the previous column", None;
    SortBy: "sort-by", "O", "sort by a column, chosen by its name", None;
    SortReverse: "sort-reverse", "r", "reverse the order", Some("reverse");
    Group: "group", "g", "group by the column that is sorted by, or no more", None;
    Columns: "columns", "C", "choose and order columns", Some("columns");
    ScrollRight: "scroll-right", "Right l", "show columns further to the right", None;
    ScrollLeft: "scroll-left", "Left h", "show columns further to the left", None;
    Note: "note", "n", "write a note on the marked runs, or the selected one", None;
    Delete: "delete", "D", "delete the marked runs, or the selected one (to the trash)", None;
    Undo: "undo", "u", "take back the last tag, note, deletion or unmarking", None;
    MarkAll: "mark-all", "a", "mark all runs that are shown", None;
    MarkNone: "mark-none", "A", "take all marks away", None;
    OnlyMarked: "only-marked", "v", "show only marked runs, or all", None;
    OpenBoth: "open-both", "B", "open the timelines of the marked runs under one another", None;
    OpenBeneath: "open-beneath", "b", "open the run's timeline beneath the one shown", None;
    CopyId: "copy-id", "y", "copy the ids of the marked runs, or of the selected one", None;
}

impl Acts for Runs {
    type Act = Act;

    fn act(&mut self, act: Act, cx: &mut Context) {
        let stored = cx.stored.clone();
        let selected = self.selected(stored.as_ref()).map(|r| r.run.clone());
        match act {
            Act::Filter => self.filter.typing = true,
            Act::Detail => self.detail = Some(!self.shows_detail(cx.size.0)),
            Act::Open => cx.open_runs(selected),
            Act::OpenBeneath => {
                cx.request(Request::OpenRuns {
                    runs: selected.into_iter().collect(),
                    opening: Opening::Beneath,
                });
            }
            Act::OpenBoth => {
                if let Some([a, b]) = self.two(cx) {
                    cx.open_runs([b, a]);
                }
            }
            Act::CopyId => {
                let runs = self.chosen(stored.as_ref());
                if !runs.is_empty() {
                    cx.inform(format!("copied {}", named(&runs)));
                    cx.perform(Effect::Copy(runs.join("\n")));
                }
            }
            Act::SortReverse => {
                if let Some((_, down)) = self.sort.first_mut() {
                    *down = !*down;
                }
                self.rearrange(cx);
            }
            Act::SortNext | Act::SortPrevious => {
                if let Some(stored) = &stored {
                    self.sort_by_next(act == Act::SortPrevious, &stored.table);
                }
                self.rearrange(cx);
            }
            Act::SortBy => self.ask_for_a_column(cx),
            Act::Group => {
                self.grouped = !self.grouped;
                if self.grouped && self.sort.first().is_none_or(|(name, _)| name == "run") {
                    // every run is a group of its own then
                    self.sort_by("architecture", crate::table::Unit::Text);
                }
                self.rearrange(cx);
            }
            Act::Columns => {
                self.over = stored.as_ref().map(|stored| Over::columns(&self.columns, &stored.table));
            }
            Act::ScrollLeft => self.scroll(-1),
            Act::ScrollRight => self.scroll(1),
            Act::Mark => {
                if let Some(run) = selected {
                    self.marked.toggle(run);
                }
                let len = self.lines.len();
                self.list.move_by(1, len);
            }
            Act::MarkAll => {
                let records =
                    stored.iter().flat_map(|s| self.rows().map(|row| s.records.get(row as usize)));
                let shown: Vec<String> = records.flatten().map(|record| record.run.clone()).collect();
                // behind those that are marked and not shown, in their order
                let seen: HashSet<&str> = shown.iter().map(String::as_str).collect();
                self.marked.retain(|run| !seen.contains(run));
                shown.into_iter().for_each(|run| self.marked.insert(run));
            }
            Act::MarkNone => self.unmark(cx),
            Act::OnlyMarked => {
                if self.marked.is_empty() && !self.only_marked {
                    let key = cx.key::<Runs>(Act::Mark);
                    cx.inform(format!("no run is marked: {key} marks one"));
                } else {
                    self.only_marked = !self.only_marked;
                    self.rearrange(cx);
                }
            }
            Act::SideBySide => {
                if let Some(two) = self.two(cx) {
                    self.put_side_by_side(&two, cx);
                }
            }
            Act::Tag => self.ask_for_tags(cx),
            Act::Note => self.ask_for_a_note(cx),
            Act::Delete => {
                let runs = self.chosen(stored.as_ref());
                if runs.len() > MANY {
                    let text = format!("Delete {} runs? They go to the trash.", runs.len());
                    cx.confirm(text, move |screen: &mut Self, cx| screen.delete(runs, cx));
                } else if !runs.is_empty() {
                    self.delete(runs, cx);
                }
            }
            Act::Undo => self.undo(cx),
        }
    }
}

impl Screen for Runs {
    fn draw(&self, buf: &mut Buffer, body: Rect, cx: &Context) {
        draw::draw(buf, body, self, cx);
    }

    fn list_area(&self, body: Rect) -> Option<(usize, Rect)> {
        Some((self.lines.len(), cut_top(self.areas(body).1, 1).1))
    }

    fn list(&mut self) -> Option<&mut List> {
        Some(&mut self.list)
    }

    fn typed(&mut self, key: KeyEvent, cx: &mut Context) -> bool {
        if self.over.is_some() {
            self.in_over(key, cx);
            return true;
        }
        false
    }

    fn taken(&self) -> Option<Hints> {
        match &self.over {
            Some(over) => Some(over.hints()),
            None => self.filter.taken(),
        }
    }

    fn filter(&mut self) -> Option<&mut FilterBox> {
        Some(&mut self.filter)
    }

    fn narrow(&mut self, cx: &mut Context) {
        self.rearrange(cx);
    }

    fn pointer(&mut self, body: Rect, event: Pointer, cx: &mut Context) -> bool {
        if self.over.is_some() {
            return true;
        }
        match event.kind {
            PointerKind::Click | PointerKind::DoubleClick => {
                let table = self.areas(body).1;
                let header = cut_top(table, 1).0;
                if !header.contains(event.at) {
                    return false;
                }
                let Some(stored) = cx.stored.clone() else { return false };
                let shown = columns::lay_out(self, &stored.table, table);
                let on = |p: &&columns::Place| (p.x..p.x + p.width + 1).contains(&event.at.x);
                if let Some(place) = shown.places.iter().find(on) {
                    let unit = state::unit(&stored.table, &place.name);
                    self.sort_by(&place.name, unit);
                    self.rearrange(cx);
                }
                true
            }
            PointerKind::WheelSideways(notches) => {
                self.scroll(notches);
                true
            }
            _ => false,
        }
    }

    fn settle(&mut self, body: Rect, cx: &mut Context) {
        if let Some(over) = &mut self.over {
            over.bound(body);
        }
        if !self.shows_detail(cx.size.0) {
            return;
        }
        // rows of batches are listed without their environment
        let Some(record) = self.selected(cx.stored.as_ref()) else { return };
        let run = record.run.clone();
        let bare = record.environment.is_empty() && run.contains(':');
        if bare && self.whole.as_ref().is_none_or(|whole| whole.run != run) {
            let (store, id) = (Store::open(&cx.dir), run.clone());
            cx.want(
                "whole",
                &run,
                move |_| store.get(&id),
                |screen: &mut Self, whole, cx| {
                    screen.whole = cx.told(whole).map(Box::new);
                },
            );
        }
    }

    fn runs_changed(&mut self, runs: &Arc<Snapshot>, before: Option<&Arc<Snapshot>>, _cx: &mut Context) {
        self.deleting.clear();
        let place = self.list.selected;
        let held = self.selected(before).map(|record| record.run.clone());
        self.drop_marks_of_gone(runs);
        self.arrange(Some(runs));
        if let Some(held) = held {
            // the selection stays on its run, or where that is gone at its place
            self.select(&held, runs, place);
        }
    }

    fn experiment(&self, cx: &Context) -> Option<String> {
        self.selected(cx.stored.as_ref())?.experiment.clone()
    }

    fn selected_run(&self, cx: &Context) -> Option<SelectedRun> {
        let record = self.selected(cx.stored.as_ref())?;
        Some(SelectedRun { spec: record.spec.clone(), run: record.run.clone() })
    }

    fn close(&mut self, cx: &mut Context) {
        if self.shows_detail(cx.size.0) {
            self.detail = Some(false);
        } else if self.only_marked {
            self.only_marked = false;
            self.rearrange(cx);
        } else if self.filter.drop_text() {
            self.rearrange(cx);
        } else {
            self.unmark(cx);
        }
    }

    fn remember(&self) -> Option<serde_json::Value> {
        serde_json::to_value(self.keep()).ok()
    }

    fn recall(&mut self, kept: &serde_json::Value, cx: &mut Context) {
        if let Ok(kept) = serde_json::from_value(kept.clone()) {
            self.take(kept);
            self.rearrange(cx);
        }
    }

    fn command(&self) -> Result<Command, &'static str> {
        Ok(self.words().into())
    }

    fn figured(&self, cx: &Context) -> Subject {
        let shown = || {
            let run = |row: u32| Some(cx.stored.as_ref()?.records.get(row as usize)?.run.clone());
            self.rows().filter_map(run).collect::<Vec<_>>()
        };
        let runs = match (self.marked.is_empty(), self.filter.value().is_empty()) {
            (false, _) => Some(self.marked.as_slice().to_vec()),
            (true, false) => Some(shown()),
            (true, true) => None,
        };
        Subject { runs, ..Subject::default() }
    }

    fn export(&self, kind: FileKind, cx: &Context) -> Result<Option<Export>, String> {
        let Some(stored) = cx.stored.clone().filter(|_| kind == FileKind::Csv) else {
            return Ok(None);
        };
        let rows: Vec<u32> = self.rows().collect();
        let columns: Vec<usize> =
            self.columns.iter().filter_map(|name| stored.table.find(name)).collect();
        Ok(Some(Export::new(move |path| {
            crate::base::atomic::write(path, stored.table.csv(&rows, &columns).as_bytes())
        })))
    }
}

impl Runs {
    /// (Summary and filter, the table with its header, the details with their frame).
    fn areas(&self, body: Rect) -> (Rect, Rect, Rect) {
        let (top, rest) = cut_top(body, 1);
        let (table, details) = match self.shows_detail(body.width) {
            false => cut_bottom(rest, 0),
            true if body.width >= 150 => cut_left(rest, body.width - state::DETAILS),
            true => {
                // half of the room, and what a short list does not need
                let list = u16::try_from(self.lines.len().max(1) + 1).unwrap_or(u16::MAX);
                cut_bottom(rest, rest.height - list.min(rest.height.div_ceil(2)))
            }
        };
        (top, table, details)
    }

    /// Chooses and orders anew.
    fn rearrange(&mut self, cx: &Context) {
        self.arrange(cx.stored.as_deref());
    }

    fn scroll(&mut self, by: isize) {
        let most = self.columns.len().saturating_sub(state::PINNED.len() + 1);
        self.scroll = self.scroll.saturating_add_signed(by).min(most);
    }
}

impl Runs {
    /// The two marked runs, or the marked one and the selected one; told where there are no two.
    fn two(&self, cx: &mut Context) -> Option<[String; 2]> {
        let selected = self.selected(cx.stored.as_ref()).map(|record| record.run.clone());
        match (self.marked.as_slice(), selected) {
            ([a, b], _) => Some([a.clone(), b.clone()]),
            ([a], Some(b)) if *a != b => Some([a.clone(), b]),
            _ => {
                let (key, marked) = (cx.key::<Self>(Act::Mark), self.marked.len());
                let does = if marked > 2 { "unmarks" } else { "marks" };
                cx.inform(format!("this takes two runs, {marked} are marked: {key} {does} one"));
                None
            }
        }
    }

    fn put_side_by_side(&mut self, two: &[String; 2], cx: &mut Context) {
        let Some(runs) = cx.stored.clone() else { return };
        let place = |run: &String| runs.records.iter().position(|record| record.run == *run);
        let (Some(a), Some(b)) = (place(&two[0]), place(&two[1])) else { return };
        self.over = Some(Over::SideBySide { both: None, scroll: 0 });
        let work = move |_: &_| side_by_side(&runs.records, a, b);
        cx.ask("side by side", work, |screen: &mut Self, both, cx| match cx.told(both) {
            None => screen.over = None,
            Some(both) => {
                // unless it was closed meanwhile
                if let Some(Over::SideBySide { both: shown, .. }) = &mut screen.over {
                    *shown = Some(Box::new(both));
                }
            }
        });
    }

    fn ask_for_a_column(&self, cx: &mut Context) {
        let Some(stored) = cx.stored.clone() else { return };
        let offer = |field: &Field| Offer::new(field.short(), field.title.clone());
        let offers = stored.table.shown().map(|column| offer(&column.field));
        let known = Completing::Words(offers.collect());
        let hint = "any column, shown or not";
        cx.prompt_completing(known, "sort by", hint, "", move |screen: &mut Self, typed, cx| {
            let at = stored.table.column(typed.trim()).map_err(|error| format::error(&error))?;
            let field = &stored.table.columns()[at].field;
            screen.sort_by(&field.name, field.unit);
            screen.rearrange(cx);
            Ok(())
        });
    }
}

/// One run by its id, several by their number.
fn named(runs: &[String]) -> String {
    match runs {
        [run] => run.clone(),
        runs => format!("{} runs", runs.len()),
    }
}
