//! Figures, the same as from the command line, including provenance: those that screens export, and figures for
//! papers, requested from the palette (kind, size, file; the kind that suits the screen and its selection first). They
//! are drawn and written in the background, and displayed if the terminal supports pictures.
//!
//! Exports the current view and copies the equivalent command. Every screen can be saved as a picture;
//! screens with a figure or table export that instead.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;

use super::notice::is_note_whole;
use super::overlay::FormatChoice;
use super::pictures::{Picture, PictureEncoding, Pictures};
use super::prelude::*;
use super::screens::timeline::state::TraceIndex;
use super::texts::PictureView;
use super::{screenshot, view};
use crate::desk;
use crate::desk::figure::{FigureKind, FigureRequest};
use crate::desk::{Stores, export, files, report_of_runs};
use base::error::{Error, Result};
use base::text::shell_command;
use study::analysis::{Axes, ComparisonReport, OverlayPoint, ParetoPoint};
use study::plot::{self, Figure, FigureOptions, OverlapPart, ParetoData, ProvenanceSummary, Size};
use study::report::ReportOrigin;
use table::Record;

/// Runs directory and its contents, for drawing on a background thread.
struct StoredRuns {
    dir: PathBuf,
    stored: Option<Arc<Snapshot>>,
}

impl StoredRuns {
    fn from_context(cx: &Context) -> Self {
        Self { dir: cx.dir.clone(), stored: cx.stored.clone() }
    }

    /// Provenance of these runs, counting every round of their cells.
    fn provenance<'a>(&self, runs: impl Iterator<Item = &'a str>) -> ProvenanceSummary {
        let Some(stored) = &self.stored else { return ProvenanceSummary::default() };
        let mut records = all_rounds(stored, runs);
        records.retain(|record| record.metrics.is_some());
        Stores::named(&[], &self.dir).provenance(&records)
    }
}

/// Records of all rounds of these runs' cells.
fn all_rounds<'a>(stored: &Snapshot, runs: impl Iterator<Item = &'a str>) -> Vec<Record> {
    let runs: HashSet<&str> = runs.collect();
    let shown = stored.records.iter().filter(|record| runs.contains(record.run.as_str()));
    let cells: HashSet<String> = shown.map(|record| record.spec.key()).collect();
    stored.records.iter().filter(|record| cells.contains(&record.spec.key())).cloned().collect()
}

/// Export of Pareto points on the axes, with the overlay points and limits, of a subject.
pub fn pareto(cx: &Context, points: Vec<ParetoPoint>, subject: Subject) -> Export {
    let source = StoredRuns::from_context(cx);
    Export::new(move |path| {
        let runs = points.iter().map(|point| point.run.as_str());
        let Subject { axes, others, limits, .. } = &subject;
        let overlay = plot::overlay(others, &points, *axes);
        let data = ParetoData { points: &points, axes: *axes, overlay, limits: limits.clone() };
        export::pareto(path, &data, || source.provenance(runs))
    })
}

pub fn comparison(cx: &Context, report: ComparisonReport) -> Export {
    let source = StoredRuns::from_context(cx);
    Export::new(move |path| {
        let runs = report.pairs.iter().flat_map(|pair| [&pair.run, &pair.baseline_run]);
        export::comparison(path, &report, || source.provenance(runs.map(String::as_str)))
    })
}

/// Kitty image id of figures; they are drawn above the plot.
const KITTY_ID: u32 = 0x006c_6165;

#[derive(Clone, Debug, Default)]
pub struct Subject {
    pub kind: Option<FigureKind>,
    /// Runs shown, whose cells are drawn with all rounds. `None`: the experiment of the selected run, or
    /// all stored runs if it has none.
    pub runs: Option<Vec<String>>,
    pub axes: Axes,
    pub others: Vec<OverlayPoint>,
    /// Limits of x, in the base unit of the axis.
    pub limits: Vec<f64>,
}

#[derive(Clone)]
struct FigureSource {
    subject: Subject,
    stored: Arc<Snapshot>,
    dir: PathBuf,
    /// Selected run, else the newest.
    near: Option<String>,
    traces: Vec<Arc<TraceIndex>>,
    pictures: Pictures,
    cell: Option<(u16, u16)>,
    room: Rect,
}

impl FigureSource {
    fn from_state(state: &State) -> Option<Self> {
        let cx = &state.cx;
        let screen = state.screen(cx.tab);
        let stored = cx.stored.clone()?;
        let newest = || stored.records.iter().max_by(|a, b| a.created.cmp(&b.created));
        let selection = screen.selection(cx);
        let near = selection.run.map(|selected| selected.run);
        let mut subject = selection.figure;
        let view = state.timeline.view.as_ref().filter(|_| cx.tab == Tab::Timeline);
        let panes = view.into_iter().flat_map(|view| &view.panes);
        let traces: Vec<Arc<TraceIndex>> = panes.map(|pane| pane.index.clone()).collect();
        if view.is_some() {
            subject.kind = Some(FigureKind::Overlap);
        }
        // a trace of a stored run was opened by its id
        let is_stored = |name: &String| stored.records.iter().any(|record| record.run == *name);
        let near =
            near.or_else(|| traces.iter().filter_map(|trace| trace.opened.clone()).find(is_stored));
        Some(Self {
            near: near.or_else(|| newest().map(|record| record.run.clone())),
            traces,
            subject,
            dir: cx.dir.clone(),
            pictures: state.pareto.pictures,
            cell: cx.cell_pixels,
            room: inside(inside(cx.body())),
            stored,
        })
    }

    fn kinds(&self) -> Vec<FigureKind> {
        let all = FigureKind::value_variants().iter().copied();
        let first = self.subject.kind;
        first.into_iter().chain(all.filter(|kind| Some(*kind) != first)).collect()
    }

    fn words(&self) -> String {
        let runs = match (&self.subject.runs, self.experiment()) {
            (Some(runs), _) => format!("the {} shown", counted(runs.len(), "run")),
            (None, Some(name)) => format!("experiment {name}"),
            (None, None) => "the stored runs".into(),
        };
        match self.traces.len() {
            0 => runs,
            traces => format!("the {} shown; other figures of {runs}", counted(traces, "trace")),
        }
    }

    fn experiment(&self) -> Option<&str> {
        let near = self.near.as_ref()?;
        let record = self.stored.records.iter().find(|record| record.run == *near)?;
        record.experiment.as_deref()
    }

    /// Records to draw: all rounds of the shown runs' cells, else the selected run's experiment.
    fn records(&self) -> Vec<Record> {
        if let Some(runs) = &self.subject.runs {
            return all_rounds(&self.stored, runs.iter().map(String::as_str));
        }
        let experiment = self.experiment();
        let of = |record: &&Record| experiment.is_none() || record.experiment.as_deref() == experiment;
        self.stored.records.iter().filter(of).cloned().collect()
    }

    /// Draws the figure; also returns notes for the user.
    fn draw(&self, kind: FigureKind, size: Size) -> Result<(Figure, Vec<String>)> {
        let options = FigureOptions { size, ..FigureOptions::default() };
        options.check()?;
        let (overlay, limits) = (self.subject.others.clone(), self.subject.limits.clone());
        let wanted = FigureRequest {
            kind,
            options,
            axes: self.subject.axes,
            overlay,
            limits,
            part: OverlapPart::default(),
            near: self.near.clone(),
        };
        if kind == FigureKind::Overlap && !self.traces.is_empty() {
            let traces: Vec<_> = self.traces.iter().map(|index| &index.trace).collect();
            let provenance = ProvenanceSummary::of_traces(traces.iter().copied());
            return Ok((wanted.draw_traces(&traces, &provenance)?, Vec::new()));
        }
        wanted.draw_records(self.records(), &Stores::named(&[], &self.dir))
    }

    /// Renders the figure for the terminal at the largest size that fits; `None` if pictures are
    /// unsupported or off.
    fn picture(&self, figure: &Figure) -> Option<Picture> {
        let protocol = self.pictures.protocol.filter(|_| self.pictures.on)?;
        let encoding = PictureEncoding { protocol, tmux: self.pictures.tmux, id: KITTY_ID };
        // the file is written; failing to display it is not an error
        Picture::of_figure(figure, (self.room.width, self.room.height), self.cell, encoding).ok()
    }
}

pub fn ask(state: &mut State) {
    let Some(source) = FigureSource::from_state(state) else {
        return state.cx.inform("stored runs are still loading");
    };
    let kinds = source.kinds();
    let title = format!("figure of {}", source.words());
    let lines = kinds.iter().map(|kind| (kind.name(), kind.help())).collect();
    let pick = Pick::new(
        title,
        lines,
        |_, _| None,
        move |state, chosen| {
            let PickResult::Line(at) = chosen else { return };
            if let Some(kind) = kinds.get(at) {
                ask_size(state, source, *kind);
            }
        },
    );
    state.cx.lay(pick);
}

/// Common figure widths in papers: name and description.
const SIZES: [(&str, &str); 2] = [
    ("column", "3.33 inches wide: a column of two"),
    ("page", "6.9 inches wide: both columns, or the text of one"),
];

fn ask_size(state: &mut State, source: FigureSource, kind: FigureKind) {
    let title = format!("size of the {} figure: or type inches, 3.3x2.5", kind.name());
    let lines = SIZES.map(|(name, about)| (name.to_owned(), about.to_owned())).into();
    let literal = |typed: &str, nothing_matches: bool| {
        let typed = typed.trim();
        let digit = typed.starts_with(|c: char| c.is_ascii_digit());
        (nothing_matches && digit).then(|| match typed.parse::<Size>() {
            Ok(_) => format!("Enter takes {typed} inches"),
            Err(error) => error.to_string(),
        })
    };
    state.cx.lay(Pick::new(title, lines, literal, move |state, chosen| {
        let text = match chosen {
            PickResult::Line(at) => SIZES.get(at).map_or("page", |size| size.0).to_owned(),
            PickResult::Text(typed) => typed.trim().to_owned(),
        };
        match text.parse::<Size>() {
            Ok(size) => ask_file(&mut state.cx, source, kind, size),
            Err(error) => state.cx.inform(error.to_string()),
        }
    }));
}

fn ask_file(cx: &mut Context, source: FigureSource, kind: FigureKind, size: Size) {
    let name = kind.name();
    let path = source.dir.join("exports").join(format!("{name}.svg"));
    let formats = FileKind::FIGURES.map(|kind| (kind, described(kind).to_owned()));
    let prompt = Prompt::new(
        format!("{name} figure to"),
        KEPT.into(),
        path.display().to_string(),
        PromptCompletion::Nothing,
        Box::new(move |state, typed| {
            let path = typed_path(typed, FileKind::Svg);
            plot::check_format(&path).map_err(|error| super::format::error(&error))?;
            write(&mut state.cx, source.clone(), kind, size, path);
            Ok(())
        }),
    );
    cx.ask_line(prompt.with_formats(formats.into()));
}

/// Draws and writes the figure in the background, then reports the path and displays it.
fn write(cx: &mut Context, source: FigureSource, kind: FigureKind, size: Size, path: PathBuf) {
    cx.inform(format!("drawing the {} figure…", kind.name()));
    let work = move |_: &_| {
        let (figure, notes) = source.draw(kind, size)?;
        let path = export::write_free(path, |path: &Path| figure.save(path))?;
        let picture = source.picture(&figure);
        Ok::<_, Error>((path, figure.title().to_owned(), notes, picture))
    };
    // a separate slot per figure keeps one from making another stale
    let slot = usize::try_from(cx.now_ms).unwrap_or_default();
    cx.ask_own(("figure", slot), work, move |written, cx| {
        let Some((path, title, notes, picture)) = cx.ok_or_fail(written) else { return };
        let texts = [vec![format!("wrote {}: {title}", path.display())], notes].concat();
        cx.inform(texts.join("; "));
        // an overlay opened in the meantime is not interrupted
        if let Some(picture) = picture.filter(|_| cx.overlays.is_empty()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            // the footer shows the written path meanwhile
            let title = format!("{name}: Esc closes");
            cx.lay(PictureView { title, picture });
        }
    });
}

/// Prompts for the path of the screen's own figure or table, if it has one, otherwise of a picture of the screen.
pub fn ask_export(state: &mut State) {
    ask_path(state, ("export", ".svg"), true);
}

pub fn ask_picture(state: &mut State) {
    ask_path(state, ("picture of", "-screen.svg"), false);
}

/// Hint below a path to write to.
const KEPT: &str = "an existing file is kept: the new one gets a number";

/// Path that the user typed, with the extension of this kind if it has none and is no directory.
fn typed_path(typed: &str, kind: FileKind) -> PathBuf {
    let path = files::expand_home(typed.trim());
    let is_file = path.file_name().is_some() && !typed.trim().ends_with('/') && !path.is_dir();
    match is_file && path.extension().is_none() {
        true => path.with_extension(kind.extension()),
        false => path,
    }
}

fn described(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Svg => "figure, vector graphics",
        FileKind::Png => "figure, pixels",
        FileKind::Csv => "table",
        FileKind::Html => "page to share, for a browser",
    }
}

/// Formats in which the current screen can be written, or the reason why there is none.
fn formats(state: &mut State, figure: bool) -> Result<Vec<FormatChoice>, String> {
    const PICTURE: &str = "picture of this screen, with tabs and footer";
    if !figure {
        return Ok(FileKind::FIGURES.map(|kind| (kind, PICTURE.to_owned())).into());
    }
    let (mut formats, mut why) = (Vec::new(), None);
    for kind in FileKind::ALL.into_iter().chain([FileKind::Html]) {
        match (state.screen(state.cx.tab).export(kind, &state.cx), kind) {
            (Ok(Some(export)), _) => {
                let holds = export.holds.map(|what| format!(": {what}")).unwrap_or_default();
                formats.push((kind, format!("{}{holds}", described(kind))));
            }
            (Ok(None), FileKind::Svg | FileKind::Png) => formats.push((kind, PICTURE.to_owned())),
            (Ok(None), FileKind::Csv) => {}
            (Ok(None), FileKind::Html) => {
                let report = RunsToReport::from_state(state);
                let words = |runs: RunsToReport| format!("report of {} to share", runs.count());
                formats.extend(report.map(|runs| (kind, words(runs))));
            }
            (Err(reason), _) => why = why.or(Some(reason)),
        }
    }
    match why.filter(|_| formats.is_empty()) {
        Some(why) => Err(why),
        None => Ok(formats),
    }
}

/// Prompts for the path of a page: of the open trace on its own screen, elsewhere of the runs that the screen shows.
pub fn ask_page(state: &mut State) {
    let is_open = state.timeline.view.is_some();
    let runs = match state.cx.tab == Tab::Timeline && is_open {
        true => None,
        false => RunsToReport::from_state(state),
    };
    match runs {
        Some(runs) => ask_page_of(&mut state.cx, runs),
        None if is_open => {
            state.cx.tab = Tab::Timeline;
            ask_path(state, ("page of", ".html"), true);
        }
        None => {
            let first = state.cx.keys.to_first_run();
            state.cx.inform(format!("no finished run and no open trace to report: {first}"));
        }
    }
}

#[derive(Clone, Debug)]
struct RunsToReport {
    records: Arc<Vec<Record>>,
    filter: String,
    dir: PathBuf,
}

impl RunsToReport {
    /// Runs that the filter of the screen leaves, or all; `None` if none of them has numbers. Ignores terms that the
    /// runs lack, as the screens do.
    fn from_state(state: &mut State) -> Option<Self> {
        let (screen, cx) = state.split(state.cx.tab);
        let stored = cx.stored.as_ref()?;
        let (filter, records) = match screen.filter() {
            None => (String::new(), stored.records.to_vec()),
            Some(filter) => {
                let rows = filter.rows(stored).1.into_iter();
                let records = rows.filter_map(|row| stored.records.get(row as usize)).cloned();
                (filter.text().into_owned(), records.collect())
            }
        };
        let has_numbers = records.iter().any(Record::has_numbers);
        has_numbers.then(|| Self { records: Arc::new(records), filter, dir: cx.dir.clone() })
    }

    fn count(&self) -> String {
        counted(self.records.len(), "run")
    }

    fn export(self) -> Export {
        let holds = self.count();
        Export::new(move |path| self.write(path)).holding(holds)
    }

    fn write(&self, path: &Path) -> Result<()> {
        let directory = desk::dir_option(&self.dir);
        let origin = ReportOrigin {
            arguments: directory.clone(),
            directory,
            filter: self.filter.clone(),
            ..ReportOrigin::default()
        };
        let page = report_of_runs(&self.records, &Stores::named(&[], &self.dir), origin)?;
        plot::write(path, page.html.as_bytes())
    }
}

fn ask_page_of(cx: &mut Context, runs: RunsToReport) {
    let count = runs.count();
    let of = if runs.filter.is_empty() { String::new() } else { format!(" ({})", runs.filter) };
    let path = cx.dir.join("exports").join("report.html");
    let take = move |state: &mut State, typed: &str| {
        let path = typed_path(typed, FileKind::Html);
        if FileKind::from_path(&path) != Some(FileKind::Html) {
            return Err(format!("'{typed}': a report is an HTML page; use a name that ends in .html"));
        }
        state.cx.write_export(runs.clone().export(), path);
        Ok(())
    };
    cx.ask_line(Prompt::new(
        format!("report of {count} to"),
        format!("one HTML page to share: figures, tables, origin of every number{of}"),
        path.display().to_string(),
        PromptCompletion::Paths,
        Box::new(take),
    ));
}

fn ask_path(state: &mut State, (title, name): (&str, &str), figure: bool) {
    let formats = match formats(state, figure) {
        Ok(formats) => formats,
        Err(why) => return state.cx.inform(why),
    };
    let screen = state.cx.tab.title();
    let path = state.cx.dir.join("exports").join(format!("{screen}{name}"));
    let has_own = |kind| matches!(state.screen(state.cx.tab).export(kind, &state.cx), Ok(Some(_)));
    // a screen with a table but no figure of its own is exported for the table
    let is_table = figure && has_own(FileKind::Csv) && !has_own(FileKind::Svg);
    let kind = match FileKind::from_path(&path) {
        Some(FileKind::Svg) | None if is_table => FileKind::Csv,
        kind => kind.unwrap_or(FileKind::Svg),
    };
    let prompt = Prompt::new(
        format!("{title} {screen} to"),
        format!("{KEPT}; without an extension, .{} is added", kind.extension()),
        path.display().to_string(),
        PromptCompletion::Paths,
        Box::new(move |state, typed| export_to(state, figure, typed_path(typed, kind))),
    );
    state.cx.ask_line(prompt.with_formats(formats));
}

/// Writes the export to a path; returns the reason if it cannot.
fn export_to(state: &mut State, figure: bool, path: PathBuf) -> Result<(), String> {
    let kind = FileKind::from_path(&path)
        .ok_or_else(|| format!("'{}': unknown format; use .svg, .png, .csv or .html", path.display()))?;
    let figure = match figure {
        false => None,
        true => state.screen(state.cx.tab).export(kind, &state.cx)?,
    };
    let export = match (figure, kind) {
        (Some(export), _) => export,
        (None, FileKind::Svg | FileKind::Png) => picture(state),
        (None, FileKind::Html) => RunsToReport::from_state(state)
            .ok_or("no finished run to report; use .svg or .png for a picture")?
            .export(),
        (None, FileKind::Csv) => {
            return Err("this screen has no table; use .svg or .png for a picture".into());
        }
    };
    state.cx.write_export(export, path);
    Ok(())
}

impl Context {
    /// Writes an export in the background, which may take seconds; another message says when it is done.
    fn write_export(&mut self, export: Export, path: PathBuf) {
        self.inform(format!("writing {}…", path.display()));
        self.perform(Effect::Export { export, path });
    }
}

fn picture(state: &State) -> Export {
    let mut buffer = Buffer::empty(Rect::new(0, 0, state.cx.size.0, state.cx.size.1));
    view::draw_without_overlays(&mut buffer, state);
    let light = state.cx.theme.is_light();
    Export::new(move |path| screenshot::write(&buffer, light, path))
}

pub fn copy_command(state: &mut State) {
    let Command { mut words, beyond } = match state.screen(state.cx.tab).command() {
        Ok(command) => command,
        Err(why) => return state.cx.inform(why),
    };
    let cx = &mut state.cx;
    words.extend(desk::dir_option(&cx.dir));
    let command = shell_command(std::iter::once("ladderscope".to_owned()).chain(words));
    let missing = match beyond.as_slice() {
        [] => String::new(),
        beyond => format!(" (without {})", beyond.join(" and ")),
    };
    let whole = format!("copied{missing}: {command}");
    cx.inform(match is_note_whole(&whole, cx.size) {
        true => whole,
        false => format!("copied {} characters{missing}: {command}", command.chars().count()),
    });
    cx.perform(Effect::Copy(command));
}
