//! Header above the lanes: titles of the open traces, verdict, hidden share, and what two traces are aligned at.

use super::state::{Pane, TimelineView};
use super::{Timeline, ask, info};
use crate::face::tui::prelude::*;
use base::text::without_middle;
use study::analysis::Varied;

/// Draws the title of the upper trace, and below it its verdict, or the comparison of two.
pub fn header(buf: &mut Buffer, area: Rect, view: &TimelineView, loading: Option<&str>, cx: &Context) {
    let theme = cx.theme;
    let (shown, whole) = (ns(view.window.width()), ns(view.bounds().width()));
    let (text, dim) = (theme.style(Role::Text), theme.style(Role::Dim));
    let pane = view.pane();
    let busy = match loading {
        Some(what) => format!("opening {}…  ", cut(what, area.width / 2).trim_end_matches('…')),
        None if cx.is_under_way::<Timeline>(ask::PREDICTION) => "simulating the run…  ".to_owned(),
        None => String::new(),
    };
    let position = |whole: &str| format!("window {shown} of {whole}");
    // at the right end of the title's row, if the title keeps most of it
    let fits = |window: &str, apart: usize| {
        view.panes.len() == 1 && usize::from(area.width) > 2 * window.width() + apart
    };
    let kernels = ns(pane.index.extent().width());
    let detailed = position(&format!("{whole} (first to last kernel {kernels})"));
    let is_detailed = kernels != whole && fits(&detailed, 0);
    let window = if is_detailed { detailed } else { position(&whole) };
    let is_above = is_detailed || fits(&window, 20);
    let beside = if is_above { "" } else { window.as_str() };
    let above = if is_above { window.width() as u16 + 1 } else { 0 };
    let (left, right) = cut_left(area, area.width - above);
    title(buf, Rect { width: left.width - u16::from(is_above), ..left }, view, 0, theme);
    if is_above {
        put(buf, right, right.x, right.y, &window, dim);
    }
    let below = Rect { x: area.x + 1, width: area.width.saturating_sub(1), ..area };
    if view.search.line.typing {
        let row = cut_bottom(below, 1).1;
        let status = info::search_status(view, area.width);
        view.search.line.draw_named(buf, row, theme, "search: ", &status);
        return;
    }
    let room = usize::from(below.width).saturating_sub(busy.width());
    let pieces = if view.panes.len() > 1 {
        let names = names(view);
        let aligned = view.aligned_words(area.width < 80, &names[1 - view.focus.min(1)]);
        fitting_pair_header(&view.compared_words(&names), &aligned, &window, room)
    } else {
        let verdict = pane.verdict.as_ref().map_or("", |verdict| verdict.headline.as_str());
        let [whole, own, _, all] = hidden(view, view.focus);
        fitting_header((scope(view), verdict), &[whole, own, all], beside, room)
    };
    let styles = [theme.style(Role::Title), text, dim];
    let pieces = pieces.iter().map(String::as_str).zip(styles);
    let pieces: Vec<(&str, Style)> =
        std::iter::once((&*busy, theme.style(Role::Key))).chain(pieces).collect();
    line(buf, below, 1, &pieces);
}

/// Headline, hidden share and window for a line of this width: drops the window, then details of the share, then
/// abbreviates the headline and drops kernel names and its later parts. Keeps the exposed share longer than the hidden
/// one. Prefixes the headline with its scope if the share names a step, as the first two shares do.
fn fitting_header(
    (scope, headline): (&str, &str),
    shares: &[String; 3],
    window: &str,
    room: usize,
) -> [String; 3] {
    let parts: Vec<&str> = headline.split(", ").filter(|part| !part.is_empty()).collect();
    // drop the kernel's name before any share of the time
    let shares_only: Vec<&str> =
        parts.iter().copied().filter(|part| !part.starts_with("most in ")).collect();
    let least = shares_only.len().min(1);
    // such a headline says so itself
    let unsaid = [(); 3].map(|()| String::new());
    let (scope, shares) =
        if parts.contains(&"no communication") { ("", &unsaid) } else { (scope, shares) };
    let mut lines = vec![[format!("{scope}{}", parts.join(", ")), shares[0].clone(), window.to_owned()]];
    let shorter = (least..=shares_only.len()).rev().map(|count| &shares_only[..count]);
    for kept in std::iter::once(&parts[..]).chain(shorter) {
        let headline = kept.join(", ");
        let (scoped, brief) =
            (format!("{scope}{headline}"), headline.replace(" communication", " comm"));
        let headlines = [scoped.clone(), scoped, headline];
        lines.extend(
            headlines.into_iter().zip(shares).map(|(line, share)| [line, share.clone(), String::new()]),
        );
        lines.push([brief.clone(), shares[2].clone(), String::new()]);
        if kept.last().is_some_and(|part| part.contains("exposed")) {
            lines.push([brief, String::new(), String::new()]);
        }
    }
    lines.push([shares_only[..least].join(", "), String::new(), String::new()]);
    first_fitting_line(lines, "; ", room)
}

/// Comparison of two aligned steps, their alignment and the window for a line of this width: drops the window, then the
/// exposed communication, then the lengths, then the remark on the alignment.
fn fitting_pair_header(compared: &str, aligned: &str, window: &str, room: usize) -> [String; 3] {
    let beside = |aligned: &str| {
        let room = room.saturating_sub(aligned.width() + 3);
        leading_clauses(compared, room, &["; ", ": "])
    };
    let short = aligned.split("; ").next().unwrap_or(aligned);
    let (compared, aligned) = match (beside(aligned), beside(short)) {
        (Some(compared), _) => (compared, aligned),
        (None, Some(compared)) => (compared, short),
        (None, None) => ("", aligned),
    };
    let line = |window: &str| [compared, aligned, window].map(str::to_owned);
    first_fitting_line(vec![line(window), line("")], "   ", room)
}

/// First line of three parts that fits, the last if none does, with a gap before each part but the first.
fn first_fitting_line(lines: Vec<[String; 3]>, gap: &str, room: usize) -> [String; 3] {
    let apart = |parts: [String; 3]| {
        let mut is_first = true;
        parts.map(|part| match part.is_empty() || std::mem::take(&mut is_first) {
            true => part,
            false => format!("{gap}{part}"),
        })
    };
    let mut lines: Vec<[String; 3]> = lines.into_iter().map(apart).collect();
    let width = |parts: &[String; 3]| parts.iter().map(|part| part.width()).sum::<usize>();
    let fits = lines.iter().position(|line| width(line) <= room);
    lines.swap_remove(fits.unwrap_or(lines.len() - 1))
}

/// Prefix naming the steps that the verdict covers, if the header also shows the share of one step: `decode: `. Empty if
/// the headline already names its steps.
fn scope(view: &TimelineView) -> &'static str {
    let pane = view.pane();
    let names_itself = pane
        .verdict
        .as_ref()
        .is_none_or(|verdict| verdict.undecided || verdict.only_prefill().is_some());
    match (view.step_looked_at(view.focus), pane.index.default_phase) {
        _ if names_itself || pane.index.steps.len() < 2 => "",
        (None, _) => "",
        (Some(_), Some(_)) => "decode: ",
        (Some(_), None) => "all steps: ",
    }
}

/// Hidden share of the communication of the step looked at and of all steps, `76.1 % of communication hidden in step 3,
/// 71.2 % in decode`; that of the step, then in fewer words; last that of all steps, of which the verdict speaks.
/// Imported traces whose steps have no names show all steps.
fn hidden(view: &TimelineView, at: usize) -> [String; 4] {
    let pane = &view.panes[at.min(view.panes.len() - 1)];
    let step = view.step_looked_at(at).and_then(|i| pane.index.steps.get(i)).map(|s| s.key);
    let all = match pane.index.default_phase {
        Some(_) => "decode",
        None => "all steps",
    };
    let place = step.map_or_else(|| all.to_owned(), |key| pane.index.step_label(key));
    let pct = |part| pane.overlap.get(&part).map_or("…".into(), |pct| percent(*pct));
    let of_all = match pane.overlap.get(&None) {
        Some(None) => "no communication".to_owned(),
        _ => format!("{} of comm hidden", pct(None)),
    };
    if pane.overlap.get(&step) == Some(&None) {
        let none = format!("no communication in {place}");
        return [none.clone(), none.clone(), none, of_all];
    }
    let own = format!("{} of communication hidden in {place}", pct(step));
    let whole = match step {
        Some(_) => format!("{own}, {} in {all}", pct(None)),
        None => own.clone(),
    };
    [whole, own, format!("{} hidden in {place}", pct(step)), of_all]
}

/// Draws a trace's title after its provenance, which is never cut.
pub fn title(buf: &mut Buffer, area: Rect, view: &TimelineView, at: usize, theme: Theme) {
    let Some(pane) = view.panes.get(at) else { return };
    let provenance = pane.index.provenance();
    let label = format!("[{provenance}]{}", if pane.ghost.is_some() { " ghost:" } else { "" });
    let name = match &pane.ghost {
        Some(on) => format!("{}, on {on}", pane.index.title),
        None => pane.index.title.clone(),
    };
    let (text, bold) = (theme.style(Role::Text), theme.style(Role::Title));
    // in a narrow window, fewer words leave room for the name
    let [whole, own, short, _] = hidden(view, at);
    let hidden = match area.width {
        140.. => whole,
        100.. => own,
        _ => short,
    };
    let hidden = format!("  {hidden} ");
    let is_pair = view.panes.len() > 1;
    let taken = label.width() + 2 + if is_pair { hidden.width() } else { 0 };
    let room = area.width.saturating_sub(taken as u16);
    let apart = apart(view, at, room);
    let name = fitting_title(pane, &name, room.saturating_sub(apart.width() as u16));
    let pieces = [
        (" ", text),
        (&*label, theme.provenance(provenance)),
        (" ", text),
        (&*apart, theme.style(Role::Key)),
        (&*name, bold),
    ];
    line(buf, area, 0, &pieces);
    // the share goes to the right, if another trace occupies its row
    if is_pair {
        let x = area.right().saturating_sub(hidden.width() as u16);
        put(buf, area, x, area.y, &hidden, text);
    }
}

/// Title for this many columns. The file's format goes first, then the middle of the run's id, the id, and the model: two
/// runs usually share it, and differ in the settings behind it.
fn fitting_title(pane: &Pane, title: &str, room: u16) -> String {
    let fits = |name: &str| name.width() <= usize::from(room);
    let file = title.split_once("  ").filter(|(format, _)| is_format(pane, format) && !fits(title));
    let name = file.map_or(title, |(_, file)| file);
    if fits(name) {
        return name.to_owned();
    }
    let Some(spec) = pane.index.trace.meta.spec.as_ref() else { return cut(name, room) };
    let model = format!("{} ", spec.model);
    let (cell, id) = name.rsplit_once("  ").unwrap_or((name, ""));
    match id.strip_prefix(&model) {
        // of a trace file, whose name comes first
        Some(settings) => cut(&format!("{cell}  {settings}"), room),
        // the end of a run's id tells it from others
        None if cell.width() + 12 < usize::from(room) => {
            format!("{cell}  {}", without_middle(id, usize::from(room) - cell.width() - 2))
        }
        None if fits(cell) => cell.to_owned(),
        None => cut(&cell.replacen(&model, "", 1), room),
    }
}

/// True for the format that the title of a trace file begins with.
fn is_format(pane: &Pane, word: &str) -> bool {
    let import = pane.index.trace.meta.import.as_ref();
    import.map_or(word == "Ladderscope", |import| import.format == word)
}

/// Names that tell two traces apart: architectures, else settings that differ, else provenance, else the order.
pub fn names(view: &TimelineView) -> [String; 2] {
    let [a, b] = &view.panes[..] else { return Default::default() };
    let named = match (&a.index.trace.meta.spec, &b.index.trace.meta.spec) {
        (Some(a), Some(b)) if a.architecture != b.architecture => {
            [a, b].map(|spec| spec.architecture.to_string())
        }
        (Some(a), Some(b)) => [a, b].map(|spec| Varied::from_specs([a, b].into_iter()).words(spec)),
        _ => Default::default(),
    };
    let recorded = [a, b].map(|pane| pane.index.provenance().to_string());
    let tells = |names: &[String; 2]| names[0] != names[1] && names.iter().all(|name| !name.is_empty());
    let order = ["first".into(), "second".into()];
    [named, recorded].into_iter().find(tells).unwrap_or(order)
}

/// Prefix that distinguishes a pane's run if both titles look alike at this width: `p2p-off: `. Empty for foreign traces.
fn apart(view: &TimelineView, at: usize, room: u16) -> String {
    let title = |pane: &Pane| fitting_title(pane, &pane.index.title, room);
    match &view.panes[..] {
        [upper, lower]
            if title(upper) == title(lower)
                && view.panes.iter().all(|pane| pane.index.trace.meta.spec.is_some()) =>
        {
            format!("{}: ", names(view)[at.min(1)])
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::face::tui::tests::fixtures;

    #[test]
    fn the_hidden_share_is_of_the_communication_of_a_step() {
        let mut view = TimelineView::new(Arc::new(fixtures::trace()));
        let step = view.panes[0].step_key(view.time, true);
        view.panes[0].overlap = [(step, Some(76.1)), (None, Some(71.2))].into();
        let words = hidden(&view, 0);
        assert_eq!(words[0], "76.1 % of communication hidden in step 2, 71.2 % in decode");
        assert_eq!(words[1..3], ["76.1 % of communication hidden in step 2", "76.1 % hidden in step 2"]);
        assert_eq!(words[3], "71.2 % of comm hidden", "beside a verdict on all steps");
        view.panes[0].overlap.insert(step, None);
        assert_eq!(hidden(&view, 0)[0], "no communication in step 2", "a share of nothing is no number");
    }

    #[test]
    fn a_narrow_title_keeps_the_settings_rather_than_the_model() {
        let pane = Pane::new(Arc::new(fixtures::trace()));
        let spec = pane.index.trace.meta.spec.as_ref().expect("a run of ours");
        let (model, label) = (&spec.model, spec.label());
        let shown = |title: &str, room: usize| fitting_title(&pane, title, room as u16);
        let run = format!("{model} {label}  20260102-030405-abcdef");
        let cell = format!("{model} {label}");
        assert_eq!(shown(&run, run.width()), run);
        assert_eq!(shown(&run, cell.width()), cell);
        assert_eq!(shown(&run, cell.width() - 1), label);
        let file = format!("Ladderscope  a.parquet  {cell}");
        assert_eq!(shown(&file, 11 + label.width()), format!("a.parquet  {label}"));
    }

    #[test]
    fn the_exposed_share_outlasts_the_hidden_one() {
        let hidden = "0.0 % of communication hidden in step 0";
        let shares =
            [format!("{hidden}, 0.0 % in decode"), hidden.into(), "0.0 % of comm hidden".into()];
        let shown = |headline: &str, room: usize| {
            fitting_header(("decode: ", headline), &shares, "", room).concat()
        };
        let headline = "9.6 % idle, 4.2 % exposed communication, both transfer and waiting";
        let own = format!("decode: {headline}; {hidden}");
        assert_eq!(shown(headline, own.len()), own, "beside a step, the headline names its steps");
        assert_eq!(shown(headline, 58), "9.6 % idle, 4.2 % exposed comm; 0.0 % of comm hidden");
        assert_eq!(shown(headline, 40), "9.6 % idle, 4.2 % exposed comm");
        let busy = format!("85 % compute, most in flash_fwd_kernel (45 %), {headline}");
        let most = "85 % compute, 9.6 % idle, 4.2 % exposed comm";
        assert_eq!(shown(&busy, 58), most, "names go before shares of the time");
        assert_eq!(shown("one rank, no communication", 80), "one rank, no communication", "once");
        let mixed = "mixed step (prefill and decode) 0: one rank, no communication";
        assert_eq!(shown(mixed, 59), "mixed step (prefill and decode) 0: one rank, no comm");
    }
}
