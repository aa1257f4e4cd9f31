//! The what-if screen as a user meets it: keys in, numbers of the real simulator out.

use std::sync::Arc;

use crossterm::event::{KeyCode, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};

use crate::face::tui::context::{Request, SelectedRun, Snapshot};
use crate::face::tui::screen::State;
use crate::face::tui::screen::Tab;
use crate::face::tui::screen::{AnyScreen as _, FileKind, Screen};
use crate::face::tui::tests::fixtures::{Driver, record, spec};
use crate::face::tui::update::{Effect, Message};
use run::sim::Simulator;
use study::whatif::{Slider, TracedSteps, WhatIfVariant};
use table::{Backend, Link, P2p, Spec};

/// The screen at this size, once its question was answered.
fn on((columns, rows): (u16, u16)) -> Driver {
    let mut driver = Driver::empty(columns, rows);
    driver.taps("7");
    driver
}

/// Moves the selection to a slider.
fn select(driver: &mut Driver, slider: Slider) {
    let whatif = &mut driver.state.whatif;
    whatif.list.selected = whatif.sliders().iter().position(|one| *one == slider).unwrap();
}

fn search(driver: &mut Driver) {
    let variant = driver.state.whatif.variant.clone();
    let found = super::break_even(&Simulator::default(), &variant);
    driver.state.whatif.found = Some((variant, found));
}

fn notes(driver: &Driver) -> Vec<String> {
    let notes = driver.state.whatif.notes(driver.state.cx.body(), &driver.state.cx);
    notes.into_iter().map(|note| note.text).collect()
}

fn tpot(state: &State, architecture: &str) -> f64 {
    let answer = state.whatif.answer.as_ref().unwrap();
    answer.row(&architecture.parse().unwrap()).unwrap().numbers.as_ref().unwrap().tpot_ms
}

#[test]
fn the_smallest_window_keeps_strip_and_hidden_share() {
    let mut driver = on((80, 24));
    let shares = |driver: &Driver| {
        let answer = driver.state.whatif.answer.as_ref().unwrap();
        let row = answer.row(&"ladder".parse().unwrap()).unwrap();
        crate::face::tui::format::percent(row.numbers.as_ref().unwrap().overlap_pct)
    };
    let shown = driver.screen();
    let line = shown.lines().find(|line| line.contains("▸ladder")).unwrap_or_default().to_owned();
    assert!(line.ends_with(&shares(&driver)), "{shown}");
    assert!(shown.contains("▓ hidden ╱ exposed") && shown.contains("  comm"), "{shown}");
    // kept variants take the frontier's place, not theirs; the rows that are left have the break-even
    driver.taps("p");
    search(&mut driver);
    let shown = driver.screen();
    assert!(shown.contains("▓ hidden ╱ exposed") && shown.contains("▸ A  ladder"), "{shown}");
    // nor that of any slider
    assert!(shown.contains(" serving ") && !shown.contains("more sliders"), "{shown}");
    driver.shows("no room for the frontier; t hides the strip");
    driver.shows(" break-even: ladder hides 95 % at AR");
    driver.taps("tt");
    driver.shows("▸ A  ladder");
    driver.shows("completion s");
    driver.hides("no room");
}

#[test]
fn looks() {
    let mut driver = on((120, 40));
    search(&mut driver);
    insta::assert_snapshot!("base_120x40", driver.screen());
    select(&mut driver, Slider::Alpha);
    for _ in 0..3 {
        driver.chord(KeyCode::Right, KeyModifiers::SHIFT);
    }
    select(&mut driver, Slider::Batch);
    driver.taps("ll");
    driver.taps("p");
    insta::assert_snapshot!("slid_120x40", driver.screen());
    driver.taps("tt");
    driver.tap(KeyCode::Enter);
    driver.taps("x");
    driver.tap(KeyCode::Enter);
    insta::assert_snapshot!("typing_120x40", driver.screen());
}

#[test]
fn every_number_follows_the_slider_and_undo_brings_it_back() {
    let mut driver = on((120, 40));
    let (standard, bound) = (tpot(&driver.state, "standard"), tpot(&driver.state, "upper-bound"));
    select(&mut driver, Slider::Alpha);
    driver.taps("L");
    let slower = tpot(&driver.state, "standard") / standard;
    assert!((1.03..1.1).contains(&slower), "{slower}");
    assert_eq!(tpot(&driver.state, "upper-bound"), bound, "it does not communicate");
    let shown = driver.screen();
    assert!(shown.contains("(base 15.9)"), "the value before stands beside: {shown}");
    driver.shows("AR latency: base 15.9 (key 0 restores it);");
    driver.taps("u");
    assert_eq!(tpot(&driver.state, "standard"), standard);
    driver.taps("u");
    driver.shows("nothing to undo");
    driver.chord(KeyCode::Char('r'), KeyModifiers::CONTROL);
    driver.shows("redone: AR latency from 15.9 to ");
    let slower = tpot(&driver.state, "standard") / standard;
    assert!((1.03..1.1).contains(&slower), "{slower}");
    driver.taps("u");
    driver.taps("LLL");
    select(&mut driver, Slider::Tp);
    driver.taps("h");
    assert_eq!(driver.state.whatif.variant.cell.tp, 4);
    driver.taps("0");
    assert_eq!(driver.state.whatif.variant.cell.tp, 8);
    driver.tap(KeyCode::Delete);
    assert_eq!(driver.state.whatif.variant, driver.state.whatif.base);
    assert_eq!(tpot(&driver.state, "standard"), standard);
}

#[test]
fn a_value_is_whole_and_that_of_the_base_is_beside_it_or_in_the_note() {
    let mut driver = on((80, 24));
    let row = |driver: &Driver| {
        let screen = driver.screen();
        let is_row =
            |line: &&str| line.starts_with(" architecture") || line.starts_with("*architecture");
        let row = screen.lines().find(is_row).unwrap_or_default().chars().take(36);
        row.collect::<String>().trim_end().to_owned()
    };
    let take = |driver: &mut Driver, name: &str| {
        driver.state.whatif.change(|variant, _| variant.cell.architecture = name.parse().unwrap());
        let effects = driver.send(Message::Resize(80, 24));
        driver.answer(effects);
    };
    take(&mut driver, "farskip");
    assert!(row(&driver).ends_with(" farskip"), "{}", row(&driver));
    let wanted = "architecture: base ladder (key 0 restores it); farskip: ";
    assert!(notes(&driver).iter().any(|note| note.starts_with(wanted)), "{:?}", notes(&driver));
    take(&mut driver, "stale:2");
    assert!(row(&driver).ends_with("stale:2"), "no room for the base: {}", row(&driver));
    // a value too wide beside the track takes its place
    take(&mut driver, "partial:0.5+ladder");
    assert!(row(&driver).ends_with(" partial:0.5+ladder"), "{}", driver.screen());
    assert!(!row(&driver).contains('─'), "{}", driver.screen());
}

/// The table lists few architectures, but the selected one always has a row.
#[test]
fn a_selected_architecture_has_a_row_in_every_window() {
    for size in [(60, 16), (80, 24), (120, 40)] {
        let mut driver = on(size);
        driver.state.whatif.change(|variant, _| variant.cell.batch = 4);
        for name in ["stale:2", "partial:0.5+ladder"] {
            driver.state.whatif.change(|variant, _| variant.cell.architecture = name.parse().unwrap());
            driver.taps("jk");
            let shown = driver.screen();
            let start: String = name.chars().take(7).collect();
            assert!(shown.contains(&format!("▸{start}")), "{name}: {shown}");
        }
    }
}

#[test]
fn while_a_key_is_held_the_screen_follows_and_ends_at_the_newest() {
    let mut driver = on((120, 40));
    select(&mut driver, Slider::Alpha);
    let mut effects = driver.keys("llll");
    let newest = driver.state.whatif.variant.clone();
    let mut shown = Vec::new();
    while let Some(Effect::Ask(task)) = effects.pop() {
        assert!(effects.is_empty(), "one question at a time");
        if task.slot.name == "answer" {
            effects = driver.send(Message::Answered(task.run()));
            shown.push(driver.state.whatif.answer.as_ref().unwrap().variant.clone());
        }
    }
    assert_eq!((shown.len(), shown.last()), (2, Some(&newest)), "what lay between was never asked");
    // nothing is asked where nothing changed
    assert!(driver.keys("jk").is_empty());
}

#[test]
fn where_communication_stops_to_be_hidden_is_searched_when_no_key_follows() {
    let mut driver = on((120, 40));
    let search = |driver: &mut Driver, keys: &str| {
        let mut effects = driver.keys(keys);
        loop {
            match effects.pop() {
                Some(Effect::Ask(task)) if task.slot.name == "break-even" => return task,
                Some(Effect::Ask(task)) => effects = driver.send(Message::Answered(task.run())),
                other => panic!("{other:?}"),
            }
        }
    };
    select(&mut driver, Slider::Alpha);
    let (left, kept) = (search(&mut driver, "l"), search(&mut driver, "l"));
    driver.send(Message::Answered(left.run()));
    assert!(driver.state.whatif.break_even().is_none() && driver.screen().contains("searching"));
    driver.send(Message::Answered(kept.run()));
    assert_eq!(driver.state.whatif.break_even().map(<[_]>::len), Some(2));
}

#[test]
fn it_is_labelled_and_copies_the_command() {
    let mut driver = on((80, 24));
    select(&mut driver, Slider::Alpha);
    driver.taps("l");
    driver.shows("[simulated]");
    let effects = driver.keys("Y");
    let Some(Effect::Copy(command)) = effects.first() else { panic!("{effects:?}") };
    assert!(command.starts_with("ladderscope whatif --architecture ladder"), "{command}");
    assert!(command.contains("--dtype f16") && command.contains("--alpha-us 16"), "{command}");
}

#[test]
fn nothing_of_an_older_answer_is_copied_or_exported_while_the_next_is_under_way() {
    let mut driver = on((80, 24));
    select(&mut driver, Slider::Alpha);
    let pending = driver.keys("l");
    let effects = driver.keys("Y");
    assert!(effects.iter().all(|effect| !matches!(effect, Effect::Copy(_))), "{effects:?}");
    driver.shows("still simulating");
    assert!(driver.state.whatif.export(FileKind::Csv, &driver.state.cx).is_err());
    driver.answer(pending);
    let effects = driver.keys("Y");
    let Some(Effect::Copy(command)) = effects.first() else { panic!("{effects:?}") };
    assert!(command.contains("--alpha-us 16"), "{command}");
    // kept variants are not in the command, and the message says so
    driver.taps("p");
    driver.keys("Y");
    driver.shows("copied (without the kept variants): ladderscope whatif");
}

/// The profile's formula for P2P off has the latency inside a model already; the stack scales measured latencies alone.
#[test]
fn latency_says_what_the_stack_scales() {
    let mut driver = on((120, 40));
    let about = |driver: &mut Driver| {
        select(driver, Slider::Alpha);
        driver.tap(KeyCode::Up);
        driver.tap(KeyCode::Down);
        let notes = driver.state.whatif.notes(driver.state.cx.body(), &driver.state.cx);
        let about = notes.into_iter().find(|note| note.text.starts_with("AR latency: "));
        about.expect("a note on its latency").text
    };
    let on = about(&mut driver);
    assert!(on.contains("as in nccl-tests; stack gpt-fast scales it by 1.485 to "), "{on}");
    select(&mut driver, Slider::P2p);
    driver.taps("l");
    let off = about(&mut driver);
    assert!(off.contains("by the profile's formula, the same with every stack; "), "{off}");
}

/// The model is found by some of its letters, as in every other picker; the title names it, and its experts can be
/// divided in other ways over the same GPUs.
#[test]
fn a_model_is_picked_by_letters_and_named_in_the_title() {
    let mut driver = on((200, 50));
    select(&mut driver, Slider::Model);
    driver.tap(KeyCode::Enter);
    driver.taps("gptoss20");
    driver.tap(KeyCode::Enter);
    assert_eq!(driver.state.whatif.variant.cell.model, "gpt-oss-20b");
    let shown = driver.screen();
    let title = shown.lines().find(|line| line.contains("[simulated]")).expect("a title");
    assert!(title.contains("gpt-oss-20b") && !title.contains("llama-3-70b"), "{title}");
    select(&mut driver, Slider::Division);
    driver.taps("ll");
    driver.shows("DP 8 EP 8");
    let cell = &driver.state.whatif.variant.cell;
    assert_eq!((cell.tp, cell.ep, cell.dp), (1, 8, 8));
    // in the format of its checkpoint, unless another is chosen
    driver.shows("mxfp4 (base f16)");
    select(&mut driver, Slider::Dtype);
    driver.tap(KeyCode::Enter);
    driver.taps("bf16");
    driver.tap(KeyCode::Enter);
    assert_eq!(driver.state.whatif.variant.cell.dtype.to_string(), "bf16");
}

#[test]
fn a_typed_value_is_taken_or_told_what_is_wrong_with_it() {
    let mut driver = on((120, 40));
    select(&mut driver, Slider::Hardware);
    driver.tap(KeyCode::Enter);
    driver.taps("a100_sy");
    driver.tap(KeyCode::Enter);
    let shown = driver.screen();
    assert!(
        shown.contains("✘ unknown hardware profile 'a100_sy': did you") && shown.contains("previous"),
        "{shown}"
    );
    driver.taps("u");
    assert_eq!(driver.state.whatif.variant.cell.hardware, "h100_sxm");
    select(&mut driver, Slider::Batch);
    driver.tap(KeyCode::Enter);
    // an edit keeps the proposed 1
    driver.tap(KeyCode::End);
    driver.taps(".5");
    driver.tap(KeyCode::Enter);
    driver.shows("'1.5' is not a whole number");
    driver.tap(KeyCode::Esc);
    assert_eq!(driver.state.whatif.variant.cell.batch, 1);
}

#[test]
fn a_picker_keeps_a_name_that_is_no_value_and_says_which_are() {
    let mut driver = on((120, 40));
    let before = driver.state.whatif.variant.clone();
    for slider in [Slider::Collective, Slider::Architecture] {
        select(&mut driver, slider);
        driver.tap(KeyCode::Enter);
        driver.taps("xyz");
        driver.tap(KeyCode::Enter);
        driver.shows("› xyz");
        let shown = driver.screen();
        assert!(shown.contains("✘ unknown ") && shown.contains("'xyz'"), "{shown}");
        assert_eq!(driver.state.whatif.variant, before);
        driver.tap(KeyCode::Esc);
    }
}

#[test]
fn a_question_mark_says_what_may_be_typed() {
    let mut driver = on((120, 40));
    select(&mut driver, Slider::Alpha);
    driver.tap(KeyCode::Enter);
    driver.taps("/2?");
    driver.tap(KeyCode::Enter);
    driver.shows("x2,");
    assert_eq!(driver.state.whatif.variant.alpha_us, None);
}

#[test]
fn variants_are_kept_beside_each_other_and_exported() {
    let mut driver = on((120, 40));
    driver.taps("p");
    select(&mut driver, Slider::P2p);
    driver.taps("lp");
    driver.taps("p");
    driver.shows("kept already, as B");
    let shown = driver.screen();
    assert!(shown.contains("A  ladder") && shown.contains("P2P off"), "{shown}");
    driver.taps("n");
    assert_eq!(driver.state.whatif.variant.cell.p2p, P2p::On, "back to A");
    let export = driver.state.whatif.export(FileKind::Csv, &driver.state.cx).unwrap().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("whatif.csv");
    export.write(&path).unwrap();
    let csv = std::fs::read_to_string(path).unwrap();
    assert_eq!(
        csv.lines().count(),
        1 + 3 * 7,
        "now, A and B, seven architectures each; one sequence cannot be divided: {csv}"
    );
    assert!(csv.lines().skip(1).all(|line| line.contains(",simulated,")), "{csv}");
    assert!(csv.starts_with("variant,architecture,provenance,changes,"), "{csv}");
    assert!(csv.contains("\nB,ladder,simulated,P2P off,"), "{csv}");
    driver.taps("PPP");
    driver.shows("no variant is kept");
}

/// Rows of the exported CSV, by column name.
fn exported(driver: &Driver) -> Vec<std::collections::BTreeMap<String, String>> {
    let export = driver.state.whatif.export(FileKind::Csv, &driver.state.cx).unwrap().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("whatif.csv");
    export.write(&path).unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
    let columns = lines.next().unwrap();
    lines.map(|cells| columns.iter().cloned().zip(cells).collect()).collect()
}

#[test]
fn an_exported_speedup_names_its_baseline_and_a_prediction_its_trace() {
    let mut driver = on((120, 40));
    let of_cell = exported(&driver);
    assert!(of_cell.iter().all(|row| row["speedup_over"] == "standard"), "{of_cell:?}");
    let request = Request::WhatIfTraced(traced_steps(), "first".into(), None);
    let effects = driver.send(Message::Request(request));
    driver.answer(effects);
    for row in exported(&driver) {
        assert_eq!([&row["provenance"], &row["speedup_over"]], ["predicted", "the trace"], "{row:?}");
        assert_eq!(row["base"], "6 of 7 decode steps of first");
        let [low, high] = ["speedup_low", "speedup_high"].map(|end| row[end].parse::<f64>().unwrap());
        assert!(low <= high && row["speedup_is_upper_bound"] == "false", "{row:?}");
    }
}

#[test]
fn a_variant_is_kept_before_its_answer_and_again_after_it_was_dropped() {
    let mut driver = on((120, 40));
    select(&mut driver, Slider::Alpha);
    for _ in 0..2 {
        let effects = driver.keys("Lp");
        driver.shows("kept as A once its answer arrives");
        assert!(driver.state.whatif.pins.is_empty());
        driver.answer(effects);
        driver.shows("kept as A");
        driver.hides("once its answer arrives");
        let pins = &driver.state.whatif.pins;
        assert_eq!((pins.len(), &pins[0].variant), (1, &driver.state.whatif.variant));
        driver.taps("pPu");
        driver.shows("undone: dropped A (ladder, AR latency ");
        assert_eq!(driver.state.whatif.pins.len(), 1);
        // the keep is newer than the slider
        let kept = driver.state.whatif.variant.clone();
        driver.taps("u");
        driver.shows("undone: kept A (ladder, AR latency ");
        driver.shows("; p or ");
        assert_eq!(driver.state.whatif.variant, kept);
        assert!(driver.state.whatif.pins.is_empty());
        driver.taps("u");
        assert_eq!(driver.state.whatif.variant, driver.state.whatif.base);
    }
}

#[test]
fn it_starts_from_the_run_that_is_selected() {
    let mut driver = Driver::full(120, 40);
    driver.state.cx.tab = Tab::Pareto;
    let point = driver.state.pareto.current().unwrap().clone();
    driver.taps("w");
    assert_eq!(driver.state.cx.tab, Tab::WhatIf);
    let cell = &driver.state.whatif.base.cell;
    assert_eq!((cell.model.as_str(), cell.tp, cell.backend), ("tiny", point.spec.tp, Backend::Sim));
    driver.shows(&format!("from run {}", point.run));
    // of a machine without a profile an H100 is made, and said
    assert_eq!(cell.hardware, "h100_sxm");
}

#[test]
fn it_starts_from_the_selected_experiment_although_a_trace_is_open() {
    let mut driver = Driver::full(120, 40);
    driver.taps("1w");
    assert_eq!(driver.state.cx.tab, Tab::WhatIf);
    let whatif = &driver.state.whatif;
    assert!(whatif.traced.is_none(), "{}", driver.screen());
    assert_eq!(whatif.base_name(), "run ladder tp2 b4 p2p-on");
    let cell = &whatif.base.cell;
    assert_eq!((cell.architecture.to_string().as_str(), cell.tp), ("ladder", 2));
}

#[test]
fn what_cannot_be_simulated_says_so_and_keeps_the_last_numbers() {
    let mut driver = on((120, 40));
    let standard = tpot(&driver.state, "standard");
    let mut bad = spec("ladder", 3, P2p::On, Backend::Sim);
    bad.hardware = "no_such".into();
    driver.state.whatif.start(&bad, "a test".into());
    driver.taps("j");
    driver.shows("no_such");
    let mut driver = on((120, 40));
    driver.state.whatif.variant.cell.model = "no-model".into();
    driver.taps("j");
    assert!(driver.screen().contains("✘") && driver.screen().contains("no-model"));
    driver.shows(" No answer: ");
    assert_eq!(tpot(&driver.state, "standard"), standard);
    // out of memory: the rows say so, the rest of the screen stays
    let mut driver = on((120, 40));
    select(&mut driver, Slider::Tp);
    driver.taps("hhh");
    driver.shows("out of memory");
    let answer = driver.state.whatif.answer.as_ref().map(Arc::clone).unwrap();
    assert!(answer.chosen().is_none());
}

#[test]
fn what_was_slid_is_there_at_the_next_start() {
    let mut driver = on((120, 40));
    assert_eq!(driver.state.whatif.remember(), None, "nothing was done yet");
    select(&mut driver, Slider::Alpha);
    driver.taps("Lt");
    let kept = driver.state.whatif.remember().unwrap();
    let mut next = Driver::empty(120, 40);
    next.state.whatif.recall(&kept, &mut next.state.cx);
    next.taps("7");
    assert_eq!(next.state.whatif.variant, driver.state.whatif.variant);
    assert_eq!(next.state.whatif.strip, driver.state.whatif.strip);
    // what cannot be read is left
    next.state.whatif.recall(&serde_json::json!({ "base": 3 }), &mut next.state.cx);
    assert_eq!(next.state.whatif.variant, driver.state.whatif.variant);
}

#[test]
fn a_track_is_clicked_and_dragged() {
    let mut driver = on((120, 40));
    let area =
        super::layout::areas(driver.state.cx.body(), true, (0, driver.state.whatif.sliders().len()), 0)
            .sliders;
    let (x, columns) = super::layout::tracks(area);
    let sliders = driver.state.whatif.sliders();
    let row = area.y + sliders.iter().position(|s| *s == Slider::Alpha).unwrap() as u16;
    let mut mouse = |kind, column| {
        let event = MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE };
        let effects = driver.send(Message::Mouse(event));
        driver.answer(effects);
        driver.state.whatif.variant.alpha_us
    };
    let middle = mouse(MouseEventKind::Down(MouseButton::Left), x + columns / 2).unwrap();
    assert!((10.0..40.0).contains(&middle), "{middle}");
    let right = mouse(MouseEventKind::Drag(MouseButton::Left), x + columns + 30).unwrap();
    assert_eq!(right, 2000.0, "beyond the end is the end");
    let left = mouse(MouseEventKind::Drag(MouseButton::Left), x).unwrap();
    assert_eq!(left, 0.1);
    assert_eq!(driver.state.whatif.slider(), Slider::Alpha);
}

/// The screen on a mixture with whole experts on eight ranks.
fn on_mixture(size: (u16, u16)) -> Driver {
    let mut driver = on(size);
    let mut cell = driver.state.whatif.base.cell.clone();
    (cell.model, cell.ep, cell.batch, cell.output_tokens) = ("gpt-oss-20b".into(), 8, 16, 16);
    (cell.stack, cell.architecture) = ("native".into(), "ladder".parse().unwrap());
    driver.state.whatif.start(&cell, "a test".into());
    driver.taps("j");
    driver
}

#[test]
fn a_mixture_shows_its_division_and_every_slider_or_how_many_are_below() {
    let driver = on_mixture((120, 40));
    let shown = driver.screen();
    for part in ["tp8 ep8 b16", " division ", " expert load ", " experts ", " top-k "] {
        assert!(shown.contains(part), "'{part}' is missing in {shown}");
    }
    assert!(!shown.contains("more sliders"), "{shown}");
    let mut driver = on_mixture((80, 24));
    driver.shows("↓ 5 more sliders");
    driver.state.whatif.list.selected = Slider::DENSE + 2;
    driver.taps("j");
    assert!(
        driver.screen().contains(" top-k ") && driver.screen().contains("↑ "),
        "{}",
        driver.screen()
    );
}

#[test]
fn a_combination_that_cannot_run_says_why_and_how_to_leave_it_and_knobs_stay() {
    let mut driver = on_mixture((120, 40));
    let experts = |driver: &Driver| {
        let values = driver.state.whatif.profile_values();
        Slider::Experts.place(&driver.state.whatif.variant, values)
    };
    let before = experts(&driver);
    driver.state.whatif.change(|variant, _| variant.cell.ep = 3);
    driver.taps("j");
    let shown = driver.screen();
    assert!(
        shown.contains("no architecture can run: EP 3 must be 1 (a slice of every expert"),
        "{shown}"
    );
    assert!(shown.contains("or TP (8: whole") && shown.contains("u undoes the last change"), "{shown}");
    let headline = shown.lines().nth(2).unwrap_or_default();
    assert!(headline.starts_with(" No architecture can run: EP 3 must be 1"), "{shown}");
    assert!(
        !shown.contains("1 ns") && shown.contains("no frontier: no architecture can run"),
        "{shown}"
    );
    assert_eq!(experts(&driver), before, "its knob is where it was");
    driver.taps("u");
    driver.shows("undone: division from TP 8 EP 3 back to TP 8 EP 8");
    assert!(driver.state.whatif.current().is_some_and(|answer| answer.cannot().is_none()));
}

#[test]
fn a_slider_without_effect_has_no_knob_and_says_why() {
    let mut driver = on_mixture((120, 40));
    driver.state.whatif.change(|variant, _| {
        (variant.cell.tp, variant.cell.dp) = (1, 8);
    });
    select(&mut driver, Slider::Bandwidth);
    driver.taps("k");
    driver.taps("j");
    let before = driver.state.whatif.variant.clone();
    driver.taps("l");
    driver.shows("bandwidth has no effect: dispatch and combine (DP 8) take their latency from");
    assert_eq!(driver.state.whatif.variant, before);
    search(&mut driver);
    let shown = driver.screen();
    let line = shown.lines().find(|line| line.contains(" bandwidth ")).unwrap_or_default();
    assert!(!line.chars().take(40).any(|c| c == '●'), "{line}");
    assert!(shown.contains("break-even: none: dispatch and combine"), "{shown}");
}

#[test]
fn the_smallest_window_shows_the_sliders_up_to_p2p_and_the_break_even_whole() {
    let mut driver = on((60, 16));
    search(&mut driver);
    let shown = driver.screen().split_whitespace().collect::<Vec<_>>().join(" ");
    for wanted in [
        "[simulated] llama-3-70b on h100_sxm, gpt-fast",
        "P2P on",
        "▸ladder† 9.58 1.35x",
        "break-even: ladder hides 95 % at AR latency <= 22.9 us, bandwidth >= 1.49 GB/s (each alone); now 99.",
    ] {
        assert!(shown.contains(wanted), "{wanted}: {}", driver.screen());
    }
}

#[test]
fn the_measurement_of_a_run_stays_beside_its_simulation() {
    let measured = record("run-1", spec("ladder", 2, P2p::On, Backend::Cuda), 1000.0);
    let simulated = record("run-2", spec("ladder", 2, P2p::On, Backend::Sim), 1000.0);
    let selected = [&measured, &simulated].map(|run| (run.spec.clone(), run.run.clone()));
    let stored = Arc::new(Snapshot::new(vec![measured, simulated], Vec::new()));
    for size in [(60, 16), (80, 24), (120, 40)] {
        let mut driver = on(size);
        driver.state.cx.stored = Some(Arc::clone(&stored));
        let mut start = |(spec, run): (table::Spec, String)| {
            let request = Request::WhatIf(Some(Box::new(SelectedRun { spec, run })));
            let effects = driver.send(Message::Request(request));
            driver.answer(effects);
            driver.screen()
        };
        let [of_measured, of_simulated] = selected.clone().map(&mut start);
        // the smallest window has no room for both
        let said = if size.0 < 80 { "measured 4.00 ms" } else { "run measured 4.00 ms, simulated " };
        assert!(of_measured.contains(said), "{of_measured}");
        assert!(!of_simulated.contains("measured 4.00"), "{of_simulated}");
    }
}

#[test]
fn the_step_time_of_a_trace_is_beside_the_simulation_of_its_run() {
    let run = record("run-1", spec("ladder", 2, P2p::On, Backend::Cuda), 1000.0);
    let mut driver = on((120, 40));
    for (provenance, is_shown) in
        [(table::Provenance::Measured, true), (table::Provenance::Simulated, false)]
    {
        let selected = SelectedRun { spec: run.spec.clone(), run: "ladder.parquet".into() };
        let (selected, measured) = (Box::new(selected), Some((10.9, provenance)));
        let request = Request::WhatIfRunOfTrace { selected, measured };
        let effects = driver.send(Message::Request(request));
        driver.answer(effects);
        let screen = driver.screen();
        assert_eq!(screen.contains(" % off its 10.9 ms"), is_shown, "{screen}");
        driver.shows(" trace of ladder: simulated");
        driver.shows("; open the trace of standard to predict from measured kernels");
        driver.shows("from run ladder.parquet");
        // and at the next start
        let kept = driver.state.whatif.remember().unwrap();
        let mut next = Driver::empty(120, 40);
        next.state.whatif.recall(&kept, &mut next.state.cx);
        next.taps("7");
        next.shows(" trace of ladder: simulated");
        assert_eq!(next.screen().contains(" % off its 10.9 ms"), is_shown, "{}", next.screen());
    }
}

#[test]
fn a_keep_is_redone_after_its_undo() {
    let mut driver = on((120, 40));
    select(&mut driver, Slider::Batch);
    driver.taps("lpu");
    assert!(driver.state.whatif.pins.is_empty());
    driver.chord(KeyCode::Char('r'), KeyModifiers::CONTROL);
    driver.shows("redone: kept as A");
    assert_eq!(driver.state.whatif.pins.len(), 1);
    // a new change ends what can be redone
    driver.taps("ul");
    driver.chord(KeyCode::Char('r'), KeyModifiers::CONTROL);
    driver.shows("nothing to redo");
}

#[test]
fn undo_reverts_the_last_action_and_names_it() {
    let mut driver = on((120, 40));
    select(&mut driver, Slider::Batch);
    driver.taps("plu");
    driver.shows("undone: batch from 2 back to 1; A stays kept");
    assert_eq!(driver.state.whatif.pins.len(), 1);
    driver.taps("u");
    driver.shows("undone: kept A (ladder); p or ");
    assert!(driver.state.whatif.pins.is_empty());
}

#[test]
fn the_knob_leaves_the_end_with_the_first_step() {
    for size in [(80, 24), (120, 40)] {
        let mut driver = on(size);
        select(&mut driver, Slider::Architecture);
        driver.taps("h");
        driver.shows(" ●─");
        let row = |driver: &Driver| {
            let shown = driver.screen();
            let row = shown.lines().find(|line| line.contains("architecture ")).unwrap_or_default();
            row.chars().take(30).collect::<String>()
        };
        let standard = row(&driver);
        assert!(standard.contains(" ●─"), "{standard}");
        driver.taps("l");
        assert!(row(&driver).contains(" ─●─"), "{}", row(&driver));
    }
}

#[test]
fn stored_runs_of_the_chosen_architecture_are_beside_its_prediction() {
    let [standard, ladder] = [("standard", 800.0), ("ladder", 1000.0)]
        .map(|(name, rate)| record(name, spec(name, 2, P2p::On, Backend::Cuda), rate));
    let selected = SelectedRun { spec: standard.spec.clone(), run: standard.run.clone() };
    let mut driver = on((120, 40));
    driver.state.cx.stored = Some(Arc::new(Snapshot::new(vec![standard, ladder], Vec::new())));
    let effects = driver.send(Message::Request(Request::WhatIf(Some(Box::new(selected)))));
    driver.answer(effects);
    let said = |driver: &Driver| notes(driver).into_iter().find(|note| note.contains("measured here"));
    assert_eq!(said(&driver), None, "the run itself is above");
    driver.state.whatif.change(|variant, _| variant.cell.architecture = "ladder".parse().unwrap());
    driver.taps("jk");
    assert_eq!(said(&driver).as_deref(), Some("measured here: ladder 4.00 ms in 1 run"));
    driver.state.whatif.change(|variant, _| variant.cell.batch *= 2);
    driver.taps("jk");
    assert_eq!(said(&driver), None, "another cell");
}

#[test]
fn a_cell_that_is_not_validated_says_so_before_its_break_even() {
    for size in [(60, 16), (80, 24), (120, 40)] {
        let mut driver = on(size);
        select(&mut driver, Slider::Tp);
        driver.taps("l");
        assert_eq!(driver.state.whatif.variant.cell.tp, 16);
        search(&mut driver);
        let shown = driver.screen();
        let unvalidated = shown.find("not validated").expect("a warning");
        assert!(
            unvalidated < shown.find("break-even: ladder hides 95 %").expect("a break-even"),
            "{shown}"
        );
    }
}

#[test]
fn a_link_of_another_gpu_is_a_stand_in_beside_the_slider_and_in_a_sentence() {
    let mut driver = on((120, 40));
    driver.state.whatif.variant.cell.hardware = "a100_sxm".into();
    select(&mut driver, Slider::P2p);
    driver.hides("stand-in");
    driver.taps("l");
    driver.shows("off (stand-in)");
    driver.shows("link: stand-in, not a measurement of this GPU");
}

#[test]
fn kept_variants_show_in_the_smallest_window_and_undo_says_what_it_undid() {
    let mut driver = on((60, 16));
    driver.taps("p");
    select(&mut driver, Slider::Batch);
    driver.taps("lp");
    let shown = driver.screen();
    let header = shown.lines().nth(1).unwrap_or_default();
    assert!(header.contains("batch 2; llama-3-70b"), "changes come first: {shown}");
    let row = |start: &str| {
        let row = shown.lines().find(|line| line.starts_with(start)).unwrap_or_default().to_owned();
        row.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(row(" kept A ladder ").starts_with("kept A ladder 9.58 ms 1.35x std. -"), "{shown}");
    assert!(row("▸kept B batch 2 ").ends_with("x std. = vs now"), "{shown}");
    assert!(!shown.contains(" ↑1 "), "none is hidden: {shown}");
    driver.taps("lu");
    driver.shows("undone: batch from 4 back to 2; A to B stay kept");
    // a third one leaves no row to the first: the header names all
    driver.taps("lp");
    let shown = driver.screen();
    assert!(shown.contains("; kept: ABC  ") && shown.contains("▸kept C batch 4 "), "{shown}");
    assert!(shown.contains(" ↑1   B batch 2 "), "the others have a sign: {shown}");
}

#[test]
fn the_network_has_two_sliders_where_tp_spans_nodes() {
    let mut driver = on((80, 24));
    driver.hides("net latency");
    select(&mut driver, Slider::Tp);
    driver.taps("l");
    driver.shows(" net latency ");
    driver.shows(" net bw ");
    assert_eq!(driver.state.whatif.slider(), Slider::Tp, "the selection stays");
    let before = tpot(&driver.state, "standard");
    select(&mut driver, Slider::NetworkLatency);
    driver.taps("L");
    assert!(tpot(&driver.state, "standard") > before);
    let notes = driver.state.whatif.notes(driver.state.cx.body(), &driver.state.cx);
    let note = notes.iter().find(|note| note.text.starts_with("net latency: ")).expect("a note");
    for part in [
        "base 26.04 (key 0 restores it); ",
        "2 nodes of 8 GPUs; default of h100_sxm: ",
        "arXiv 2501.06589",
    ] {
        assert!(note.text.contains(part), "'{part}' is missing in {}", note.text);
    }
    // the command has it, and within a node the sliders vanish above the selected one
    let effects = driver.keys("Y");
    let Some(Effect::Copy(command)) = effects.first() else { panic!("{effects:?}") };
    assert!(command.contains("--tp 16") && command.contains("--network-alpha-us 30"), "{command}");
    select(&mut driver, Slider::P2p);
    driver.taps("uu");
    driver.hides("net latency");
    assert_eq!(driver.state.whatif.slider(), Slider::P2p);
}

/// Steps for the sliders, of a simulated trace.
fn traced_steps() -> Arc<TracedSteps> {
    traced_steps_over(Link::Native)
}

fn traced_steps_over(link: Link) -> Arc<TracedSteps> {
    let mut cell = Spec { output_tokens: 8, link, ..WhatIfVariant::default().cell };
    (cell.architecture, cell.model, cell.tp) = ("standard".parse().unwrap(), "llama-3.2-1b".into(), 2);
    let trace = run::testing::simulated(&cell);
    let target = machine::hardware::Target::from_spec(&cell).unwrap();
    let arguments = vec!["trace.json".to_owned()];
    Arc::new(TracedSteps::new(&trace, None, [None; 2], target, arguments).unwrap())
}

#[test]
fn it_follows_the_open_trace_and_changes_return_with_their_trace() {
    let mut driver = on((120, 40));
    let step = traced_steps();
    let open = |driver: &mut Driver, name: &str| {
        driver.state.cx.open_trace = Some(name.to_owned());
        let request = Request::WhatIfTraced(Arc::clone(&step), name.to_owned(), None);
        let effects = driver.send(Message::Request(request));
        driver.answer(effects);
    };
    open(&mut driver, "first");
    driver.shows("[predicted from 6 of 7 decode steps of first]");
    driver.shows(" Fastest step");
    let whatif = &driver.state.whatif;
    let headline = super::notes::headline(
        whatif,
        whatif.answer.as_ref().expect("it is predicted"),
        u16::MAX,
        &driver.state.cx,
    );
    assert!(headline.contains("x the trace") && !headline.contains("x standard"), "{headline}");
    let answer = whatif.answer.as_ref().expect("it is predicted");
    let [low, high] = answer.fastest().rows[0].1.speedup_95.expect("6 steps have an interval");
    let is_alike = format!("{low:.2}") == format!("{high:.2}");
    assert_eq!(headline.contains(" ["), !is_alike, "{headline}: {low} {high}");
    driver.shows("step ms  x trace 95 % of steps");
    driver.hides("break-even: ");
    select(&mut driver, Slider::Alpha);
    driver.taps("L");
    let changed = driver.state.whatif.variant.clone();
    // another trace is opened: nothing predicted from the first one stays
    driver.state.cx.open_trace = Some("second".to_owned());
    let effects = driver.send(Message::Resize(120, 40));
    driver.answer(effects);
    driver.hides("of first]");
    open(&mut driver, "second");
    driver.shows("[predicted from 6 of 7 decode steps of second]");
    assert_eq!(driver.state.whatif.variant, driver.state.whatif.base);
    open(&mut driver, "first");
    driver.shows("your changes to first are back; Delete resets all");
    assert_eq!(driver.state.whatif.variant, changed);
    driver.taps("u");
    assert_eq!(driver.state.whatif.variant, driver.state.whatif.base);
    // the same trace again keeps them
    driver.taps("L");
    let changed = driver.state.whatif.variant.clone();
    assert_ne!(changed, driver.state.whatif.base);
    open(&mut driver, "first");
    assert_eq!(driver.state.whatif.variant, changed);
}

/// Standard gains from a faster link too, so that a speedup over the trace is not that of the architecture.
#[test]
fn a_changed_trace_has_the_speedup_over_standard_beside_the_one_over_the_trace() {
    for size in [(60, 16), (80, 24), (120, 40), (200, 60)] {
        let mut driver = on(size);
        let request = Request::WhatIfTraced(traced_steps(), "first".into(), None);
        let effects = driver.send(Message::Request(request));
        driver.answer(effects);
        driver.hides("x std.");
        select(&mut driver, Slider::Alpha);
        driver.taps("LLL");
        driver.shows(if size.0 < 200 { "x std." } else { "x trace  x standard" });
        let answer = driver.state.whatif.current().expect("it is predicted").clone();
        let own = answer.row(&"ladder".parse().unwrap()).unwrap().numbers.as_ref().unwrap();
        let over = answer.speedup_over_standard(own).expect("standard is predicted");
        let shown = driver.screen();
        let row = shown.lines().find(|line| line.contains(" ladder† ")).expect("a row of ladder");
        for speedup in [own.speedup.unwrap(), over] {
            assert!(row.contains(&format!(" {speedup:.2}x")), "{speedup}: {shown}");
        }
        if size.0 == 200 {
            driver.shows("x standard, ");
            driver.shows("; change: by sliders");
        }
        if size.0 >= 120 {
            driver.taps("p");
            let shown = driver.screen();
            let titles = shown.lines().find(|line| line.starts_with("kept arch")).expect("titles");
            assert!(titles.contains("x trace x standard  vs now tok/s/user"), "{shown}");
            assert!(!titles.contains("vs base"), "{shown}");
            let chosen = answer.chosen().expect("standard runs");
            let kept = shown.lines().find(|line| line.starts_with("▸ A  standard")).expect("a row");
            for number in [chosen.tpot_ms, 1e3 / chosen.tpot_ms] {
                assert!(kept.contains(&crate::face::tui::format::digits(number)), "{shown}");
            }
            // a wide table has the speed of the present variant in the same unit
            assert_eq!(shown.matches("tok/s/user").count(), if size.0 < 200 { 1 } else { 2 }, "{shown}");
        }
    }
}

#[test]
fn the_headline_of_the_smallest_window_has_the_winner_and_its_speedup_whole() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let trace = trace::read(&path.join("traces/h100-standard-tp8-p2p-off.parquet")).unwrap();
    let target = machine::hardware::Target::from_spec(trace.meta.spec.as_ref().unwrap()).unwrap();
    let measured = TracedSteps::new(&trace, None, [None; 2], target, Vec::new()).unwrap();
    for steps in [traced_steps(), Arc::new(measured)] {
        let mut driver = on((60, 16));
        let effects = driver.send(Message::Request(Request::WhatIfTraced(steps, "first".into(), None)));
        driver.answer(effects);
        for alpha_us in [None, Some(100.0), Some(300.0)] {
            driver.state.whatif.change(|variant, _| variant.alpha_us = alpha_us);
            driver.taps("jk");
            let whatif = &driver.state.whatif;
            let answer = whatif.current().expect("it is predicted");
            let headline = super::notes::headline(whatif, answer, 59, &driver.state.cx);
            assert!(headline.chars().count() <= 59, "{headline}");
            let shown = driver.screen();
            assert!(shown.lines().nth(2).unwrap_or_default().contains(&headline), "{shown}");
            let fastest = answer.fastest();
            let is_named = fastest.rows.iter().any(|(row, _)| headline.contains(&answer.label(row)));
            assert!(is_named && headline.contains("x the trace"), "{headline}");
        }
    }
}

#[test]
fn a_trace_is_closed_by_the_footer_or_the_palette() {
    for typed in ["close trace", "leave trace", "without trace"] {
        let mut driver = on((160, 40));
        driver.hides("close trace");
        let request = Request::WhatIfTraced(traced_steps(), "first".into(), None);
        let effects = driver.send(Message::Request(request));
        driver.answer(effects);
        driver.shows("B close trace");
        driver.keys(&format!(":{typed}"));
        driver.enter();
        assert!(driver.state.whatif.traced.is_none(), "{typed}: {}", driver.screen());
    }
}

#[test]
fn architectures_that_need_retraining_are_marked_in_every_window() {
    for size in [(60, 16), (80, 24), (120, 40)] {
        let driver = on(size);
        let shown = driver.screen();
        assert!(shown.contains("†retrained ") && shown.contains("▸ladder†"), "{shown}");
        for own in ["standard†", "upper-bound†"] {
            assert!(!shown.contains(own), "{shown}");
        }
    }
}

#[test]
fn a_latency_that_the_stack_scales_has_the_result_beside_it() {
    let mut driver = on((120, 40));
    let values = driver.state.whatif.profile_values().cloned().unwrap();
    let scale = values.latency_scale.expect("gpt-fast scales it");
    let scaled = crate::face::tui::format::digits(scale * values.alpha_us);
    driver.shows(&format!("15.9 us x{scale}={scaled}"));
    select(&mut driver, Slider::Alpha);
    let said = format!("stack gpt-fast scales it by {scale} to {scaled} us");
    assert!(notes(&driver).iter().any(|note| note.contains(&said)), "{:?}", notes(&driver));
}

#[test]
fn an_open_trace_is_offered_and_leaves_a_changed_or_kept_cell_alone() {
    for key in ["L", "p"] {
        let mut driver = on((120, 40));
        select(&mut driver, Slider::Alpha);
        driver.taps(key);
        let variant = driver.state.whatif.variant.clone();
        driver.state.cx.open_trace = Some("first".to_owned());
        let effects = driver.send(Message::Resize(120, 40));
        driver.answer(effects);
        driver.shows("what-if stays at the paper's 70B cell; B starts from the open trace");
        assert!(driver.state.whatif.traced.is_none());
        assert_eq!(driver.state.whatif.variant, variant);
    }
}

/// Kept variants belong to the trace, and are there at the next start.
#[test]
fn variants_kept_for_a_trace_return_with_it_and_across_restarts() {
    let open = |driver: &mut Driver, name: &str| {
        let request = Request::WhatIfTraced(traced_steps(), name.into(), None);
        let effects = driver.send(Message::Request(request));
        driver.answer(effects);
    };
    let pins = |driver: &Driver| {
        let pins = driver.state.whatif.pins.iter();
        pins.map(|pin| (pin.variant.alpha_us, pin.answer.arguments.clone())).collect::<Vec<_>>()
    };
    let mut driver = on((120, 40));
    driver.taps("p");
    open(&mut driver, "first");
    assert!(pins(&driver).is_empty(), "those of cells wait");
    driver.state.whatif.change(|variant, _| variant.alpha_us = Some(40.0));
    driver.taps("jp");
    let kept = pins(&driver);
    assert_eq!((kept.len(), kept[0].0), (1, Some(40.0)), "{}", driver.screen());
    open(&mut driver, "second");
    driver.shows("1 variant kept with first");
    assert!(pins(&driver).is_empty());
    open(&mut driver, "first");
    assert_eq!(pins(&driver), kept);
    driver.shows("your changes to first are back");
    let saved = driver.state.whatif.remember().unwrap();
    let mut next = Driver::empty(120, 40);
    next.state.whatif.recall(&saved, &mut next.state.cx);
    next.taps("7");
    assert_eq!(pins(&next).len(), 1, "the one of the cell");
    next.shows("open first to go on with it");
    open(&mut next, "first");
    assert_eq!(pins(&next), kept);
    assert_eq!(next.state.whatif.variant, driver.state.whatif.variant, "the changes are back");
    next.shows("variants of this trace");
    next.taps("B");
    next.shows("; 1 variant kept with first");
}

#[test]
fn the_fastest_is_named_with_its_ties_and_header_and_headline_are_whole() {
    for (size, said) in [
        ((60, 16), " Fastest TPOT: ladder and delayed:2, 1.35x standard (±5 %)"),
        ((80, 24), " Fastest TPOT: ladder and delayed:2, 1.35x standard (tied within 5 %), 9.58 ms"),
        ((120, 40), " (tied within 5 %), 9.58 ms; without communication 1.44x"),
    ] {
        let mut driver = on(size);
        search(&mut driver);
        driver.shows(said);
        let shown = driver.screen();
        let top: Vec<&str> = shown.lines().skip(1).take(3).collect();
        let trust = " error 2 % on fitted cells, 12 % on batch sizes left out";
        assert!(top[2].starts_with(trust), "{shown}");
        // the trust row is cut from its end in the smallest window
        assert!(top[0].contains("[simulated]") && top[..2].iter().all(|l| !l.contains('…')), "{shown}");
        let even = shown.lines().find(|line| line.contains("break-even: ")).expect("a break-even");
        assert!(!even.contains('…'), "{shown}");
    }
}

#[test]
fn the_smallest_window_has_the_exposed_communication_of_every_architecture() {
    let driver = on((60, 16));
    let shown = driver.screen();
    assert!(shown.contains("TPOT ms  x std. exp. ms"), "{shown}");
    let answer = driver.state.whatif.answer.as_ref().unwrap();
    let standard = answer.row(&"standard".parse().unwrap()).unwrap().numbers.as_ref().unwrap();
    let exposed = crate::face::tui::format::digits(standard.exposed_ms);
    let row = shown.lines().find(|line| line.contains(" standard   ")).unwrap_or_default();
    assert!(row.ends_with(&exposed), "{exposed}: {shown}");
}

#[test]
fn the_footer_offers_resets_and_undo_once_a_slider_is_changed() {
    let mut driver = on((80, 24));
    driver.hides("reset");
    select(&mut driver, Slider::Alpha);
    driver.taps("l");
    driver.shows("Enter type  p keep  0 reset  u undo");
}

#[test]
fn keys_of_parts_without_room_say_how_many_rows_they_need() {
    let mut driver = on((60, 16));
    driver.hides("t strip");
    driver.taps("t");
    driver.shows("no room for the strip: it needs 20 rows");
    driver.taps("f");
    driver.shows("no room for the frontier: it needs 2");
    assert!(!driver.state.whatif.by_tpot);
    let mut driver = on((80, 24));
    driver.taps("t");
    driver.hides("no room");
    driver.taps("f");
    driver.shows("frontier over TPOT");
}

#[test]
fn a_base_value_keeps_a_gap_to_the_architectures() {
    let mut driver = on((60, 16));
    select(&mut driver, Slider::Tp);
    driver.taps("l");
    let shown = driver.screen();
    assert!(shown.contains("16 (base 8)") && !shown.contains("(base 8)▸"), "{shown}");
}

#[test]
fn changes_are_in_percent_and_both_names_find_the_latency() {
    let mut driver = on((120, 40));
    select(&mut driver, Slider::Alpha);
    driver.taps("LLL");
    let shown = driver.screen();
    let is_row = |line: &&str| line.contains(" standard  ") && !line.contains("x standard");
    let row = shown.lines().find(is_row).unwrap_or_default();
    assert!(row.contains(" % ") && row.matches('x').count() == 1, "{row}");
    for typed in ["alpha", "AR latency"] {
        driver.state.whatif.list.selected = 0;
        driver.keys(&format!("/{typed}"));
        driver.enter();
        assert_eq!(driver.state.whatif.slider(), Slider::Alpha, "{typed}");
    }
}

#[test]
fn the_measurement_of_a_run_over_an_emulated_link_is_shown() {
    let mut run = record("run-1", spec("ladder", 2, P2p::On, Backend::Cuda), 1000.0);
    run.provenance = table::Provenance::EmulatedLink;
    let (spec, name) = (run.spec.clone(), run.run.clone());
    let mut driver = on((140, 40));
    driver.state.cx.stored = Some(Arc::new(Snapshot::new(vec![run], Vec::new())));
    let request = Request::WhatIf(Some(Box::new(SelectedRun { spec, run: name })));
    let effects = driver.send(Message::Request(request));
    driver.answer(effects);
    driver.shows("run measured 4.00 ms over an emulated link, simulated ");
}

#[test]
fn a_trace_over_an_emulated_link_starts_at_its_values_and_scales_by_its_formula() {
    let mut driver = on((140, 40));
    let step = traced_steps_over(Link::Emulated { alpha_us: 200.0, gb_s: 5.0 });
    let effects = driver.send(Message::Request(Request::WhatIfTraced(step, "first".into(), None)));
    driver.answer(effects);
    driver.shows("; emulated link ");
    let whatif = &driver.state.whatif;
    let number = |slider: Slider| slider.number(&whatif.variant, whatif.profile_values());
    assert_eq!([Slider::Alpha, Slider::Bandwidth].map(number), [Some(200.0), Some(5.0)]);
    let comm_ms = |driver: &Driver| {
        let answer = driver.state.whatif.current().expect("it is predicted");
        answer.row(&"standard".parse().unwrap()).unwrap().numbers.clone().unwrap().comm_ms
    };
    let before = comm_ms(&driver);
    select(&mut driver, Slider::Alpha);
    let about = notes(&driver).into_iter().find(|note| note.starts_with("AR latency: ")).unwrap();
    let wanted = "; base: 200 us (emulated link); one all-reduce: ";
    assert!(about.contains(wanted) && about.contains(", as traced (median)"), "{about}");
    driver.state.whatif.change(|variant, _| variant.alpha_us = Some(100.0));
    driver.taps("jk");
    select(&mut driver, Slider::Alpha);
    let about = notes(&driver).into_iter().find(|note| note.starts_with("AR latency: ")).unwrap();
    assert!(
        about.contains("; standard communicates for ")
            && about.contains("x the trace's ")
            && about.contains(" us, traced "),
        "{about}"
    );
    // the latency is nearly all of a small message's time
    let share = comm_ms(&driver) / before;
    assert!((0.5..0.55).contains(&share), "{share}");
}

#[test]
fn the_time_of_a_trace_has_its_provenance() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let trace = trace::read(&path.join("traces/h100-standard-tp8-p2p-off.parquet")).unwrap();
    let target = machine::hardware::Target::from_spec(trace.meta.spec.as_ref().unwrap()).unwrap();
    let steps = TracedSteps::new(&trace, None, [None; 2], target, Vec::new()).unwrap();
    let mut driver = on((200, 60));
    let request = Request::WhatIfTraced(Arc::new(steps), "first".into(), None);
    let effects = driver.send(Message::Request(request));
    driver.answer(effects);
    driver.shows("] trace: TP 8, emulated-link 17.7 ms");
    driver.shows("; trace 17.7 ms (emulated-link)");
    driver.hides("measured 17.7");
    // the setting of the link is not the time of a traced all-reduce
    driver.shows(" 62.25 us (setting, with launch)");
    driver.shows(" nccl 61.7 us (traced)");
    driver.shows(
        "simulator: ladder 1.48x standard in this cell, with contention; from this trace 1.64x, without",
    );
    // the recording keeps its TP
    driver.state.whatif.change(|variant, _| variant.cell.tp = 4);
    driver.taps("jk");
    driver.shows("*changed: TP 4; trace: TP 8, emulated-link 17.7 ms");
    driver.shows(" us (traced 61.7)");
    driver.hides("simulator: ");
}

#[test]
fn a_trace_without_launch_gaps_says_that_there_are_none_to_remove() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let trace = trace::read(&path.join("traces/h100-standard-tp8-p2p-off.parquet")).unwrap();
    let target = machine::hardware::Target::from_spec(trace.meta.spec.as_ref().unwrap()).unwrap();
    let steps = TracedSteps::new(&trace, None, [None; 2], target, Vec::new()).unwrap();
    let mut driver = on((120, 40));
    let request = Request::WhatIfTraced(Arc::new(steps), "first".into(), None);
    let effects = driver.send(Message::Request(request));
    driver.answer(effects);
    driver.shows("as traced (no effect)");
    let why = driver.state.whatif.profile_values().unwrap().no_launch_gaps.expect("a reason");
    driver.taps("c");
    driver.shows(why);
    select(&mut driver, Slider::LaunchGaps);
    driver.taps("l");
    assert_eq!(driver.state.whatif.variant, driver.state.whatif.base);
    assert!(notes(&driver).contains(&format!("launch gaps: no effect: {why}")), "{:?}", notes(&driver));
}

/// Every backend calls its own all-reduce `nccl` in the options of its runs.
#[test]
fn a_trace_of_the_cpu_backend_has_no_all_reduce_of_nccl() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let trace = trace::read(&path.join("traces/cpu-standard-tp2-600us.parquet")).unwrap();
    let target = WhatIfVariant::default().plain_target().unwrap();
    let steps = TracedSteps::new(&trace, None, [None; 2], target, Vec::new()).unwrap();
    let mut driver = on((120, 40));
    let request = Request::WhatIfTraced(Arc::new(steps), "first".into(), None);
    let effects = driver.send(Message::Request(request));
    driver.answer(effects);
    let shown = driver.screen();
    let row = shown.lines().find(|line| line.contains(" all-reduce ")).expect("a slider");
    assert!(row.contains(" cpu's own ") && !row.contains("nccl"), "{shown}");
}

#[test]
fn the_time_of_one_all_reduce_follows_the_link_in_every_window() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let trace = trace::read(&path.join("traces/h100-standard-tp8-p2p-off.parquet")).unwrap();
    for (size, unchanged, changed) in [
        ((60, 16), "nccl 61.7 ", "nccl 40.3 "),
        ((80, 24), "nccl 61.7 us ", "nccl 40.3 us "),
        ((120, 40), "nccl 61.7 us (traced)", "nccl 40.3 us  "),
        ((200, 60), "nccl 61.7 us (traced)", "nccl 40.3 us (traced 61.7)"),
    ] {
        let target = machine::hardware::Target::from_spec(trace.meta.spec.as_ref().unwrap()).unwrap();
        let steps = TracedSteps::new(&trace, None, [None; 2], target, Vec::new()).unwrap();
        let mut driver = on(size);
        let request = Request::WhatIfTraced(Arc::new(steps), "first".into(), None);
        let effects = driver.send(Message::Request(request));
        driver.answer(effects);
        driver.shows(unchanged);
        // shorter by the modelled ratio, 41.8 to 64.1 us
        driver.state.whatif.change(|variant, _| variant.alpha_us = Some(40.0));
        driver.taps("jk");
        driver.shows(changed);
    }
    // of a simulated cell too
    let mut driver = on((200, 60));
    driver.hides(" us (base 2");
    driver.state.whatif.change(|variant, _| variant.cell.tp = 4);
    driver.taps("jk");
    let shown = driver.screen();
    let row = shown.lines().find(|line| line.starts_with(" all-reduce ")).expect("a slider");
    assert!(row.contains(" nccl ") && row.contains(" us (base 2"), "{shown}");
}

#[test]
fn a_large_window_has_thick_bars_of_a_trace() {
    for (size, is_thick) in [((120, 40), false), ((200, 60), true)] {
        let mut driver = on(size);
        let request = Request::WhatIfTraced(traced_steps(), "first".into(), None);
        let effects = driver.send(Message::Request(request));
        driver.answer(effects);
        let shown = driver.screen();
        let rows = shown.lines().skip_while(|line| !line.contains("▸standard"));
        let bar = rows.take(2).filter(|line| line.contains("████")).count();
        assert_eq!(bar == 2, is_thick, "{shown}");
        let terms = "hidden: behind compute; gap: closed to the limit";
        driver.shows(&if is_thick {
            format!("{terms}; each column is a median of its own")
        } else {
            terms.into()
        });
        driver.shows("error of predictions: ");
    }
}

#[test]
fn a_tie_names_ladder() {
    let ties = ["parallel", "desync:2", "ladder", "sync-drop"].map(str::to_owned);
    assert_eq!(super::notes::few_of(&ties), "parallel, ladder and 2 more");
    assert_eq!(super::notes::few_of(&ties[1..]), "desync:2, ladder and sync-drop");
}

#[test]
fn leads_within_the_error_of_an_unvalidated_cell_are_ties() {
    for (size, said) in [((60, 16), " (±5 %)"), ((120, 40), " (tied within 5 %)")] {
        let mut driver = on(size);
        select(&mut driver, Slider::Tp);
        driver.taps("l");
        let shown = driver.screen();
        let headline = shown.lines().nth(2).unwrap_or_default();
        assert!(headline.contains(said) && headline.contains("ladder"), "{shown}");
        driver.shows("not validated for TP 16");
    }
}

#[test]
fn a_profile_value_that_follows_tp_has_its_base_and_says_what_a_reset_gives() {
    let mut driver = on((120, 40));
    select(&mut driver, Slider::Tp);
    driver.taps("h");
    assert_eq!(driver.state.whatif.variant.cell.tp, 4);
    let note = |driver: &Driver| {
        let notes = driver.state.whatif.notes(driver.state.cx.body(), &driver.state.cx);
        notes.into_iter().find(|note| note.text.starts_with("AR latency: ")).expect("a note").text
    };
    driver.shows("(base 15.9)");
    select(&mut driver, Slider::Alpha);
    assert!(note(&driver).starts_with("AR latency: base 15.9 at TP 8; "), "{}", note(&driver));
    let of_tp_4 = Slider::Alpha.text(&driver.state.whatif.variant, driver.state.whatif.profile_values());
    driver.taps("L");
    let wanted = format!("AR latency: base 15.9 at TP 8, key 0 resets to {of_tp_4}; ");
    assert!(note(&driver).starts_with(&wanted), "{}", note(&driver));
}

#[test]
fn a_missing_validation_stays_when_hardware_is_changed() {
    for size in [(60, 16), (80, 24), (120, 40)] {
        let mut driver = on(size);
        select(&mut driver, Slider::Alpha);
        driver.taps("L");
        driver.shows("not validated");
    }
}

#[test]
fn a_run_of_a_machine_without_a_profile_says_so_until_the_base_changes() {
    let mut of_host = spec("ladder", 2, P2p::On, Backend::Cpu);
    of_host.hardware = "host".into();
    let run = record("run-1", of_host, 1000.0);
    let selected = SelectedRun { spec: run.spec.clone(), run: run.run.clone() };
    let stored = Arc::new(Snapshot::new(vec![run], Vec::new()));
    for size in [(60, 16), (80, 24), (120, 40)] {
        let mut driver = on(size);
        driver.state.cx.stored = Some(Arc::clone(&stored));
        let effects = driver.send(Message::Request(Request::WhatIf(Some(Box::new(selected.clone())))));
        driver.answer(effects);
        driver.taps("jk");
        driver.shows(" On h100_sxm, not on a CPU: ");
        driver.shows("measured 4.00 ms on a CPU");
    }
}

/// The narrow table beside the sliders has fewer columns, and names the cell of an unchanged variant alone.
#[test]
fn a_kept_variant_names_what_was_changed() {
    let all = ["TPOT ms", "x standard", "vs now", "tok/s/GPU", "settings"];
    let narrow = ["TPOT ms", "vs now", "settings"];
    for (size, titles, (title, first), settings) in [
        ((80, 24), &narrow[..], ("kept settings", "A  batch 2"), "batch 2"),
        ((100, 30), &all[..], ("kept arch", "A  ladder"), "batch 2; tp8"),
    ] {
        let mut driver = on(size);
        select(&mut driver, Slider::Batch);
        driver.taps("lp");
        let row = |driver: &Driver, start: &str| {
            let shown = driver.screen();
            shown.lines().find(|line| line.contains(start)).unwrap_or_default().to_owned()
        };
        assert!(row(&driver, &format!("▸ {first}")).contains(settings), "{}", driver.screen());
        for name in titles {
            assert!(row(&driver, title).contains(name), "{name}: {}", driver.screen());
        }
        // back at the base, the variant is a slower one
        driver.taps("0");
        assert!(row(&driver, &format!("  {first}")).contains(" +"), "{}", driver.screen());
    }
}

/// Link values that were not measured are marked, and changes stay in the header of every window.
#[test]
fn an_estimate_of_the_profile_is_marked_and_changes_leave_room_for_the_cell() {
    let mut driver = on((120, 40));
    driver.hides("~");
    driver.state.whatif.change(|variant, _| variant.cell.hardware = "mi300x".into());
    driver.taps("jk");
    let is_estimate = |values: &study::whatif::ProfileValues| {
        values.link_note.as_ref().is_some_and(|note| note.contains("not measured"))
    };
    assert!(driver.state.whatif.profile_values().is_some_and(is_estimate));
    driver.shows(" ~");
    let mut driver = on((60, 16));
    driver.taps("p");
    driver.state.whatif.change(|variant, _| {
        (variant.alpha_us, variant.cell.p2p) = (Some(31.1), P2p::Off);
    });
    driver.taps("jk");
    driver.shows("2 changes; ");
    driver.shows("llama-3-70b");
    // the architecture has a mark, too
    driver.state.whatif.change(|variant, _| variant.cell.architecture = "parallel".parse().unwrap());
    driver.taps("jk");
    driver.shows("3 changes; ");
}

#[test]
fn a_change_says_what_it_does_to_the_selected_architecture_and_keeps_the_cell() {
    for size in [(60, 16), (80, 24), (120, 40)] {
        let mut driver = on(size);
        driver.state.whatif.change(|variant, _| variant.alpha_us = Some(124.5));
        driver.taps("jk");
        let of_ladder = |note: &String| note.contains("; ladder ") && note.contains(" ms (was 9.58)");
        assert!(notes(&driver).iter().any(of_ladder), "{:?}", notes(&driver));
        // the header explains the mark of a changed slider
        driver.shows(if size.0 < 80 {
            " *AR latency 124.5 us; "
        } else {
            " *changed: AR latency 124.5 us; "
        });
        driver.shows("llama-3-70b");
        let shown = driver.screen();
        let row = shown.lines().find(|line| line.starts_with("*AR latency")).expect("a slider");
        // narrow windows have the base below the sliders alone
        let wanted = if size.0 < 120 { "124.5 us  " } else { "124.5 us (base 15.9)" };
        assert!(row.contains(wanted) && !row.contains("(15.9)"), "{shown}");
    }
}

#[test]
fn a_gap_that_is_left_although_communication_is_hidden_is_explained() {
    let driver = on((120, 40));
    let wanted = "gap: ladder hides 99.6 % of its communication and is ";
    let note = notes(&driver).into_iter().find(|note| note.starts_with(wanted)).expect("a note");
    assert!(note.contains(" us slower than upper-bound: "), "{note}");
    assert!(note.contains(" us kernels slowed by communication beside them"), "{note}");
}

#[test]
fn the_header_explains_the_mark_of_the_architecture() {
    let mut driver = on((80, 24));
    driver.hides("*changed");
    select(&mut driver, Slider::Architecture);
    driver.taps("l");
    driver.shows("*architecture");
    driver.shows(" *changed: architecture; ");
    driver.taps("0");
    driver.hides("*changed");
}

#[test]
fn an_unfamiliar_architecture_that_is_fastest_is_explained() {
    let driver = on((120, 40));
    let notes = driver.state.whatif.notes(driver.state.cx.body(), &driver.state.cx);
    let is_said =
        |text: &str| text == "meaning: delayed:2: other ranks' partial sums join 2 modules later";
    assert!(notes.iter().any(|note| is_said(&note.text)), "{}", driver.screen());
}
