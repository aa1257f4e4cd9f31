//! Screen 3: stored runs; filter, sort, mark, tag, compare, delete.

mod beside;
mod cells;
mod choose;
mod columns;
mod details;
mod draw;
mod edits;
mod header;
mod layout;
mod order;
mod recorded;
pub mod state;

use std::collections::HashSet;
use std::sync::Arc;

use self::cells::MarkedSide;
use self::layout::RunsLayout;
pub use self::recorded::TraceLookup;
pub use self::state::Runs;
use self::state::{Grouping, HIDDEN, RunListLine};
use crate::face::tui::prelude::*;
use crate::face::tui::trace_picker;
use crate::face::tui::widgets::table::ColumnPosition;
use lab::store::Store;
use plan::Architecture;
use study::analysis::RunTableColumn;
use table::Record;

acts! {
    Open: "open", "Enter", "open the run's timeline, or its details if it has none; of a cell: its rounds", Some("timeline") => "time";
    Filter: "filter", "/", "filter: words, arch:ladder, tpot<5, tag:good, -word", Some("filter") => "find", "search narrow query";
    Mark: "mark", "Space", "mark or unmark the run", Some("mark"), "select tick unmark";
    SideBySide: "side-by-side", "c", "compare two marked runs side by side", Some("compare") => "diff", "diff beside difference versus";
    SortNext: "sort-next", "s >", "sort by the next column", Some("sort"), "order";
    SortBy: "sort-by", "O", "choose the column to sort by, or the default order", Some("sort by"), "order";
    Detail: "detail", "d", "show or hide the run's details", Some("details") => "info", "info inspect";
    Whole: "whole", "W", "show all details of the run", None;
    Tag: "tag", "t", "tag the marked runs, or the selected one", Some("tag"), "label";
    SortPrevious: "sort-previous", "S <", "sort by the previous column", None;
    SortAlso: "sort-also", "&", "choose another column that breaks ties of the order", None;
    SortReverse: "sort-reverse", "I", "reverse the order", Some("reverse") => "rev";
    Group: "group", "g", "one row per cell or per run (gg: first row); without rounds: group by the sort column", None;
    Columns: "columns", "C", "choose and order columns", Some("columns") => "cols", "fields hide";
    ScrollRight: "scroll-right", "Right l", "scroll right: more columns", None;
    ScrollLeft: "scroll-left", "Left h", "scroll left: more columns", None;
    Note: "note", "T", "write a note on the marked runs, or the selected one", None, "comment annotate";
    Delete: "delete", "D Delete", "delete the marked runs, or the selected one (to the trash; undo restores them)", None, "remove rm trash";
    Undo: "undo", "u", "undo the last tag, note, deletion, unmarking, filter, order or grouping", None, "revert restore back";
    Redo: "redo", "ctrl-r", "redo", None;
    MarkAll: "mark-all", "a", "mark all runs shown", None;
    MarkNone: "mark-none", "A", "unmark all", None, "clear deselect unselect";
    OnlyMarked: "only-marked", "v", "show marked runs only, or all", None;
    OpenBoth: "open-both", "B", "open the timelines of the marked runs, one above the other", None, "beside diff two stack";
    OpenBeneath: "open-beneath", "b", "open the run's timeline below the open one", None, "beside diff second compare";
    CopyId: "copy-id", "y", "copy the ids of the marked runs, or of the selected one", None, "yank";
}

impl Acts for Runs {
    type Act = Act;

    /// Without runs, only the filter that hides them and the undo of a deletion are possible.
    fn why_not(&self, act: Act, cx: &Context) -> Option<&'static str> {
        let is_possible = match act {
            Act::Open => self.row().is_some(),
            Act::Undo | Act::Redo => true,
            Act::Filter if self.filter.narrows() => true,
            // a filter may leave no cell although it leaves runs
            Act::Group if self.has_rounds || self.grouping == Grouping::Column => true,
            _ => self.count > 0,
        };
        (!is_possible).then(|| cx.why_no_run())
    }

    fn hint(&self, act: Act, cx: &Context) -> Option<HintWords> {
        match act {
            Act::Open if self.selected_cell().is_some() => Some(HintWords::new("rounds")),
            Act::Open if self.no_timeline(cx.stored.as_ref()).is_some() => {
                Some(HintWords::new("details").shortened("info"))
            }
            _ => None,
        }
    }

    fn act(&mut self, act: Act, cx: &mut Context) {
        let stored = cx.stored.clone();
        let selected = self.selected(stored.as_ref()).map(|r| r.run.clone());
        match act {
            Act::Filter => self.filter.begin(),
            Act::Detail => self.detail = Some(!self.shows_detail(cx.size.0)),
            Act::Whole => self.show_whole(None, cx),
            Act::Open if self.toggle_cell(cx) => {}
            Act::Open => match self.no_timeline(stored.as_ref()) {
                Some(why) => self.show_whole(Some(why), cx),
                None => cx.open_runs(selected),
            },
            Act::OpenBeneath => {
                cx.request(Request::OpenRuns {
                    runs: selected.into_iter().collect(),
                    opening: Opening::Beneath,
                });
            }
            Act::OpenBoth => {
                if let Some(two) = self.two(cx) {
                    cx.open_runs(two.map(|side| side.run));
                }
            }
            Act::CopyId => {
                let runs = self.chosen(stored.as_ref());
                if !runs.is_empty() {
                    cx.inform(format!("copied {}", named(&runs)));
                    cx.perform(Effect::Copy(runs.join("\n")));
                }
            }
            Act::SortReverse => self.sort_anew(cx, Self::reverse),
            Act::SortNext | Act::SortPrevious => {
                if let Some(stored) = &stored {
                    let backwards = act == Act::SortPrevious;
                    self.sort_anew(cx, |runs| runs.sort_by_next(backwards, &stored.table));
                }
            }
            Act::SortBy | Act::SortAlso => self.ask_for_a_column(act == Act::SortAlso, cx),
            Act::Group => {
                self.leave_order(cx, Self::toggle_groups);
                let key = cx.key::<Runs>(Act::Group);
                let open = cx.key::<Runs>(Act::Open);
                let done = match (self.grouping, self.sort.first(), &stored) {
                    (Grouping::Runs, ..) => {
                        format!("one row per run: {key} pools the rounds of each cell")
                    }
                    _ if self.has_rounds => {
                        format!("one row per cell: {open} shows its rounds, {key} shows single runs")
                    }
                    (Grouping::Column, Some((name, _)), Some(stored)) => {
                        let title = order::order_title(&stored.table, name);
                        format!("grouped by {title}; {key} shows one list again")
                    }
                    _ => "not grouped".into(),
                };
                // the second `g` in a row takes the first one back
                let first_row = if key == "g" && cx.after_g { "; gg: first row" } else { "" };
                cx.inform(done + first_row);
            }
            Act::Columns => self.choose_columns(cx),
            Act::ScrollLeft | Act::ScrollRight => {
                let (before, by) = (self.scroll, if act == Act::ScrollLeft { -1 } else { 1 });
                self.scroll(by, cx);
                if self.scroll == before {
                    let end = if by < 0 { "first" } else { "last" };
                    cx.inform(format!("these are the {end} columns"));
                }
            }
            Act::Mark => {
                let runs = self.under_cursor(stored.as_ref());
                if runs.iter().all(|run| self.marked.contains(run)) {
                    self.marked.retain(|run| !runs.iter().any(|gone| gone == run));
                } else {
                    runs.into_iter().for_each(|run| self.marked.insert(run));
                }
            }
            Act::MarkAll => {
                let records =
                    stored.iter().flat_map(|s| self.rows().map(|row| s.records.get(row as usize)));
                let shown: Vec<String> = records.flatten().map(|record| record.run.clone()).collect();
                // append after marked runs that are not shown, in display order
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
                if let Some((two, runs)) = self.two(cx).zip(stored) {
                    Self::put_side_by_side(&two, &runs, cx);
                }
            }
            Act::Tag => self.ask_for_tags(cx),
            Act::Note => self.ask_for_a_note(cx),
            Act::Delete => self.delete_chosen(cx),
            Act::Undo => self.undo(cx),
            Act::Redo => self.redo(cx),
        }
    }
}

impl Screen for Runs {
    fn draw(&self, buf: &mut Buffer, body: Rect, cx: &Context) {
        draw::draw(buf, body, self, cx);
    }

    fn list(&mut self, body: Rect) -> Option<ScreenList<'_>> {
        let area = cut_top(self.areas(body).table, 1).1;
        Some(ScreenList { len: self.lines.len(), area, rows: 1, list: &mut self.list })
    }

    fn filter(&mut self) -> Option<&mut FilterBox> {
        Some(&mut self.filter)
    }

    fn input(&mut self, input: ScreenInput<'_>, cx: &mut Context) -> bool {
        match input {
            ScreenInput::Mouse(body, event) => return self.point(body, event, cx),
            ScreenInput::Narrow => {
                self.follow_scope();
                self.rearrange(cx);
            }
            ScreenInput::Close => self.close(cx),
            _ => return false,
        }
        true
    }

    fn own_edits(&self) -> Option<OwnEdits> {
        Some(OwnEdits { count: self.done.len(), are_views: false })
    }

    fn has_content(&self) -> bool {
        !self.lines.is_empty()
    }

    fn settle(&mut self, body: Rect, cx: &mut Context) {
        let stored = cx.stored.clone();
        self.show_group(usize::from(self.areas(body).table.height.saturating_sub(1)));
        let row = self.row();
        // compares the run with all rows, so only for another run, other rows or other columns
        if row.is_none() || self.unseen_row != row {
            let found = row.zip(stored.as_ref());
            self.unseen =
                found.map_or_else(Vec::new, |(row, stored)| columns::unseen(self, &stored.table, row));
            self.unseen_row = row;
        }
        if let Some(record) = self.selected(stored.as_ref()) {
            TraceLookup::ask::<Self>(record, cx, |runs| &mut runs.trace);
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
                    screen.whole = cx.ok_or_fail(whole).map(Box::new);
                },
            );
        }
    }

    fn serve(&mut self, request: Request, cx: &mut Context) -> Option<Request> {
        let Request::ShowRuns { runs, why } = request else { return Some(request) };
        let stored = cx.stored.clone().unwrap_or_default();
        match runs.as_slice() {
            [run] => match stored.find(run) {
                Some(record) => Self::show_record(record.clone(), Some(why), cx),
                None => cx.fail(why),
            },
            [a, b] => {
                cx.inform(why);
                let two = [a, b].map(|run| MarkedSide { run: run.clone(), is_cell: false });
                Self::put_side_by_side(&two, &stored, cx);
            }
            _ => cx.fail(why),
        }
        None
    }

    fn react(&mut self, news: &News, _cx: &mut Context) {
        let News::Runs { now: runs, before } = news else { return };
        self.deleting.clear();
        if !runs.has_runs_of(before.as_ref()) {
            self.noisy = cells::noisy_runs(runs);
            self.replaced = cells::replaced_runs(runs);
        }
        let place = self.list.selected;
        let held = self.selected(before.as_ref()).map(|record| record.run.clone());
        self.drop_marks_of_gone(runs);
        self.arrange(Some(runs));
        if let Some(run) = self.restored.take_if(|run| runs.find(run).is_some()) {
            self.select(&run, runs, place);
        } else if place == 0 && self.sort.is_empty() {
            // the user has not moved the cursor, so it stays on the best run, which may be a new one
            self.list.selected = self.first_run();
        } else if let Some(held) = held {
            // the selection stays on its run, or at its position if the run is gone
            self.select(&held, runs, place);
        }
    }

    fn status(&self, _cx: &Context) -> ScreenStatus {
        ScreenStatus { hints: self.filter.taken(), ..ScreenStatus::default() }
    }

    fn notes(&self, body: Rect, cx: &Context) -> Vec<ScreenNote> {
        draw::notes(self, body, cx)
    }

    fn selection(&self, cx: &Context) -> ScreenSelection {
        let run = |record: &Record| SelectedRun { spec: record.spec.clone(), run: record.run.clone() };
        let shown = || {
            let run = |row: u32| Some(cx.stored.as_ref()?.records.get(row as usize)?.run.clone());
            self.rows().filter_map(run).collect::<Vec<_>>()
        };
        let runs = match (self.marked.is_empty(), self.filter.narrows()) {
            (false, _) => Some(self.marked.as_slice().to_vec()),
            (true, true) => Some(shown()),
            (true, false) => None,
        };
        ScreenSelection {
            run: self.selected(cx.stored.as_ref()).map(run),
            figure: Subject { runs, ..Subject::default() },
        }
    }

    fn finds(&self, cx: &Context) -> Vec<Find> {
        let find = |record: &Record| {
            let (run, (name, about)) = (record.run.clone(), trace_picker::named(record));
            let find = Find::new(name, format!("run  {about}"), move |_: &mut Self, cx| {
                cx.open_runs([run]);
            });
            find.also(record.run.clone())
        };
        let sort = |column: &RunTableColumn| {
            let field = column.field.clone();
            let names = std::iter::once(&*field.name).chain(field.aliases.iter().copied());
            let words = table::measure(&field.name).map_or("", |measure| measure.words);
            let also = format!("order {words} {}", names.collect::<Vec<_>>().join(" "));
            let name = format!("sort runs by {}", columns::name(column));
            let sort = move |screen: &mut Self, cx: &mut Context| {
                screen.sort_by_column(&field.name, field.unit, false, cx);
            };
            Find::new(name, "runs  column", sort).also(also)
        };
        let columns = cx.stored.iter().flat_map(|stored| stored.table.shown());
        let columns = columns.filter(|column| !column.is_blank()).map(sort);
        // newest first
        let runs = cx.stored.iter().flat_map(|stored| stored.records.iter().rev()).map(find);
        columns.chain(runs).collect()
    }

    fn command(&self) -> Result<Command, &'static str> {
        let pooled = self.by_cell.then(|| "pooled rounds".to_owned());
        let beyond = [self.filter.beyond(), self.filter.runs_beyond(), self.order_beyond(), pooled];
        Ok(Command { words: self.words(), beyond: beyond.into_iter().flatten().collect() })
    }

    fn export(&self, kind: FileKind, cx: &Context) -> Result<Option<Export>, String> {
        let Some(stored) = cx.stored.clone().filter(|_| kind == FileKind::Csv) else {
            return Ok(None);
        };
        let mut rows: Vec<u32> = self.rows().collect();
        let is_marked = |row: &u32| self.marked.contains(&stored.records[*row as usize].run);
        let mut runs = "run";
        if !self.marked.is_empty() {
            // in the order shown, then those that the filter hides
            let all = (0..stored.records.len() as u32).rev();
            let hidden: Vec<u32> = all.filter(|row| is_marked(row) && !rows.contains(row)).collect();
            rows.retain(is_marked);
            rows.extend(hidden);
            runs = "marked run";
        }
        let mut columns: Vec<usize> =
            self.columns.iter().filter_map(|name| stored.table.find(name)).collect();
        // without these, rows of different cells would look the same
        let unseen = self.differing.iter().filter(|at| !columns.contains(at));
        let unseen: Vec<usize> = unseen.copied().collect();
        columns.extend(unseen);
        let what = counted(rows.len(), runs);
        let write = move |path: &std::path::Path| {
            base::atomic::write(path, stored.table.csv(&rows, &columns).as_bytes())
        };
        Ok(Some(Export::new(write).holding(what)))
    }
}

impl Runs {
    fn close(&mut self, cx: &mut Context) {
        if self.shows_detail(cx.size.0) && !self.lines.is_empty() {
            self.detail = Some(false);
        } else if self.only_marked {
            self.only_marked = false;
            self.rearrange(cx);
        } else if !self.filter.value().is_empty() {
            let undo = cx.key::<Self>(Act::Undo);
            cx.inform(format!("dropped the filter {}: {undo} brings it back", self.filter.value()));
            self.filter.drop_text();
            self.rearrange(cx);
        } else {
            self.unmark(cx);
        }
    }

    fn point(&mut self, body: Rect, event: Pointer, cx: &mut Context) -> bool {
        match event.kind {
            PointerKind::Click | PointerKind::DoubleClick => {
                let header = cut_top(self.areas(body).table, 1).0;
                if !header.contains(event.at) {
                    return false;
                }
                let Some(stored) = cx.stored.clone() else { return false };
                let RunsLayout { columns, shown, .. } = self.layout(body, &stored.table);
                let on =
                    |place: &&ColumnPosition| (place.x..=place.x + place.width).contains(&event.at.x);
                if let Some(place) = shown.places.iter().find(on) {
                    let name = &columns[place.column].name;
                    let unit = order::unit(&stored.table, name);
                    self.sort_by_column(name, unit, event.shift, cx);
                }
                true
            }
            PointerKind::WheelSideways(notches) => {
                self.scroll(notches, cx);
                true
            }
            _ => false,
        }
    }

    /// Sorts by a column, or with `also` breaks ties by it.
    fn sort_by_column(&mut self, name: &str, unit: table::Unit, also: bool, cx: &Context) {
        match also {
            true => {
                self.leave_order(cx, |runs| runs.sort_also_by(name, unit));
            }
            false => self.sort_anew(cx, |runs| runs.sort_by(name, unit)),
        }
    }

    fn rearrange(&mut self, cx: &Context) {
        self.arrange(cx.stored.as_deref());
    }

    /// Scrolls up to the header of the selected run's group if both fit into these rows.
    fn show_group(&mut self, rows: usize) {
        let selected = self.list.selected;
        let is_header = |line: &RunListLine| matches!(line, RunListLine::Group { .. });
        if let Some(header) = self.lines.iter().take(selected + 1).rposition(is_header)
            && selected - header < rows
        {
            self.list.offset = self.list.offset.min(header);
        }
    }

    /// Scrolls sideways until a column is visible.
    fn scroll_to(&mut self, name: &str, cx: &Context) {
        let Some(stored) = &cx.stored else { return };
        loop {
            let layout = self.layout(cx.body(), &stored.table);
            let mut shown = layout.shown.places.iter().map(|place| &layout.columns[place.column].name);
            if shown.any(|shown| shown == name) || layout.shown.left < self.scroll {
                self.scroll = layout.shown.left;
                return;
            }
            self.scroll += 1;
        }
    }

    /// Scrolls sideways, up to the last column.
    fn scroll(&mut self, by: isize, cx: &Context) {
        let Some(stored) = &cx.stored else { return };
        // other columns are pinned once the user scrolls
        self.scroll = self.scroll.saturating_add_signed(by);
        self.scroll = self.layout(cx.body(), &stored.table).shown.left;
    }
}

impl Runs {
    /// Number of marked runs that the filter or the scope hides.
    fn hidden_marks(&self, stored: &Snapshot) -> usize {
        // nothing to count in most frames
        if self.count == stored.records.len() {
            return 0;
        }
        let run = |row: u32| stored.records.get(row as usize);
        let is_marked = |row: &u32| run(*row).is_some_and(|record| self.marked.contains(&record.run));
        self.marked.len().saturating_sub(self.rows().filter(is_marked).count())
    }

    /// Reason why the selected run has no timeline; `None` if it has one.
    fn no_timeline(&self, stored: Option<&Arc<Snapshot>>) -> Option<String> {
        self.trace.no_timeline(self.selected(stored)?)
    }

    /// The two marked runs or cells, or the marked and the selected one, the baseline first; shows a message if there are not
    /// two.
    fn two(&self, cx: &mut Context) -> Option<[MarkedSide; 2]> {
        let is_cell = self.selected_cell().is_some();
        let selected = self.selected(cx.stored.as_ref());
        let selected = selected.map(|record| MarkedSide { run: record.run.clone(), is_cell });
        let marked = self.marked_sides(cx.stored.as_ref());
        let two = match (marked.as_slice(), selected) {
            ([a, b], _) => Some([a.clone(), b.clone()]),
            ([a], Some(b)) if a.run != b.run => Some([a.clone(), b]),
            _ => None,
        };
        match two {
            Some([a, b]) => {
                let stored = cx.stored.as_ref();
                let record = |side: &MarkedSide| stored.and_then(|stored| stored.find(&side.run));
                let is_standard = |side: &MarkedSide| {
                    record(side).is_some_and(|run| run.spec.architecture == Architecture::Standard)
                };
                Some(if is_standard(&b) && !is_standard(&a) { [b, a] } else { [a, b] })
            }
            None => {
                let (key, marked) = (cx.key::<Self>(Act::Mark), self.marked.len());
                let does = if marked > 2 { "unmarks" } else { "marks" };
                let none = cx.key::<Self>(Act::MarkNone);
                let rest = if marked > 2 { format!(", {none} all") } else { String::new() };
                let hidden = cx.stored.as_deref().map_or(0, |stored| self.hidden_marks(stored));
                let hidden = match hidden {
                    0 => String::new(),
                    hidden => format!(" ({hidden} not shown)"),
                };
                cx.inform(format!(
                    "this takes two runs, {marked} are marked{hidden}: {key} {does} one{rest}"
                ));
                None
            }
        }
    }

    /// Asks for the column to sort by, or with `also` for one that breaks ties.
    fn ask_for_a_column(&self, also: bool, cx: &mut Context) {
        let Some(stored) = cx.stored.clone() else { return };
        let line = |column: &RunTableColumn| {
            let field = &column.field;
            let (name, title) = match columns::name(column) {
                // the title of the list, found by the other name of the measure, too
                title if field.name == HIDDEN => (title.to_owned(), field.short().to_owned()),
                title => (field.short().to_owned(), title.to_owned()),
            };
            let sorted = self.sort.iter().position(|(known, _)| *known == field.name);
            let place = sorted.map(|at| format!("{}. {}", at + 1, order::arrow(self.sort[at].1)));
            let title = if name == title { None } else { Some(title) };
            (name, title.into_iter().chain(place).collect::<Vec<_>>().join("  "))
        };
        // pooled rounds have no id, but an order of creation
        let is_listed = |column: &&RunTableColumn| column.field.name == "run" || !self.is_blank(column);
        let columns = stored.table.shown().filter(is_listed).map(line);
        let columns = columns.map(|line| (Some(line.0.clone()), line));
        let opening = ("default".to_owned(), "best of the newest sweep first".to_owned());
        let opening = (!also).then_some((None, opening));
        let (names, lines): (Vec<Option<String>>, Vec<_>) = opening.into_iter().chain(columns).unzip();
        // also accepts other names of a column
        let known = Arc::clone(&stored);
        let literal = move |typed: &str, nothing_matches: bool| {
            let column = known.table.column(typed.trim()).ok().filter(|_| nothing_matches)?;
            Some(format!("Enter sorts by {}", columns::name(&known.table.columns()[column])))
        };
        let take = move |screen: &mut Self, chosen, cx: &mut Context| {
            let name = match chosen {
                PickResult::Line(at) => names[at].clone(),
                PickResult::Text(typed) => Some(typed),
            };
            let Some(name) = name else { return screen.sort_anew(cx, |runs| runs.sort.clear()) };
            if let Ok(at) = stored.table.column(name.trim()) {
                let field = &stored.table.columns()[at].field;
                screen.sort_by_column(&field.name, field.unit, also, cx);
            }
        };
        let title = match also {
            true => "then by: a column that breaks ties".to_owned(),
            false => format!("sort by: any column; {} adds another", cx.key::<Self>(Act::SortAlso)),
        };
        cx.pick(title, lines, literal, take);
    }
}

/// Names one run by id, several by count.
fn named(runs: &[String]) -> String {
    match runs {
        [run] => run.clone(),
        runs => format!("{} runs", runs.len()),
    }
}
