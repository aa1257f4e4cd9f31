//! Small windows: caveats that do not fit are counted beside the key of the help, which has them in full.

use super::fixtures::Driver;
use crate::face::tui::screen::ScreenNote;

/// Notes of the current screen.
fn notes(driver: &Driver) -> Vec<ScreenNote> {
    let cx = &driver.state.cx;
    driver.state.screen(cx.tab).notes(cx.body(), cx)
}

#[test]
fn what_does_not_fit_is_counted_and_in_the_help() {
    for (columns, rows) in [(60, 16), (80, 24)] {
        for screen in ["5", "6", "7"] {
            let mut driver = Driver::full(columns, rows);
            driver.taps(screen);
            let folded: Vec<ScreenNote> =
                notes(&driver).into_iter().filter(|note| note.is_folded).collect();
            assert!(
                columns > 60 || !folded.is_empty(),
                "{screen}: 60 columns have no room for all notes"
            );
            match folded.as_slice() {
                [] => driver.hides(": ?"),
                [note] if note.is_beside_hint => driver.shows(" ?: whole line"),
                [_] => driver.shows(" +1 note: ?"),
                more => driver.shows(&format!(" +{} notes: ?", more.len())),
            }
            driver.taps("?");
            match folded.len() {
                0 => driver.hides("Notes not shown"),
                _ => driver.shows("Notes not shown on this screen"),
            }
            let mut help = String::new();
            for _ in 0..40 {
                help += &driver.screen();
                driver.taps("j");
            }
            let words = |text: &str| {
                let kept = text.chars().filter(|c| c.is_alphanumeric() || ".%≈±".contains(*c));
                kept.collect::<String>()
            };
            let help = words(&help);
            for note in folded {
                let begin: String = words(&note.text).chars().take(24).collect();
                assert!(help.contains(&begin), "{screen} at {columns}x{rows}: {note:?} not in {help}");
            }
        }
    }
}

#[test]
fn a_window_with_room_for_all_notes_counts_none() {
    let mut driver = Driver::full(200, 60);
    driver.taps("6");
    assert!(notes(&driver).iter().all(|note| !note.is_folded), "{:?}", notes(&driver));
    driver.hides(" note: ?");
    driver.hides(" notes: ?");
}

#[test]
fn a_headline_keeps_its_remark_in_the_notes() {
    let mut driver = Driver::full(60, 16);
    driver.taps("6");
    let remark = "(and this remark is too long for two rows of sixty columns)";
    if let Some((_, answer)) = &mut driver.state.compare.answer {
        answer.headline =
            format!("Ladder is faster than standard in one setting, 1.25x its tokens/s {remark}");
    }
    driver.hides("and this remark");
    driver.shows("notes: ?");
    driver.taps("?");
    driver.shows("and this remark is too long");
}

#[test]
fn what_the_list_of_runs_cuts_is_in_the_help() {
    let help = |keys: &str| {
        let mut driver = Driver::full(60, 16);
        driver.taps(keys);
        let mut help = String::new();
        for _ in 0..200 {
            help += &driver.screen();
            driver.taps("j");
        }
        help
    };
    assert!(help("3?").contains("; runs differ"));
    let details = help("3d?");
    for part in ["details of 20260102-0304-", "completion latency: ", "bench-1"] {
        assert!(details.contains(part), "{part}: {details}");
    }
    // a window with room for all has no such notes
    let mut driver = Driver::full(120, 40);
    driver.taps("3");
    assert!(notes(&driver).iter().all(|note| !note.is_folded), "{:?}", notes(&driver));
}

#[test]
fn the_footer_of_a_narrow_window_has_four_keys_of_the_screen() {
    for screen in ["1", "3", "4", "5", "6", "7"] {
        let mut driver = Driver::full(60, 16);
        driver.taps(screen);
        let footer = driver.screen().lines().last().unwrap_or_default().to_owned();
        let own = footer.split("? help").next().unwrap_or_default();
        let hints = own.split("  ").filter(|hint| !hint.trim().is_empty()).count();
        assert!(hints >= 4 && footer.ends_with("? help  : menu  q quit"), "{screen}: {footer}");
    }
}

#[test]
fn narrow_tabs_leave_room_for_the_progress_of_a_sweep() {
    let mut driver = Driver::full(60, 16).with_sweep();
    driver.taps("21");
    let tabs = driver.screen().lines().next().unwrap_or_default().to_owned();
    assert!(tabs.starts_with(" 1 exp 2 live") && tabs.contains(" 7 what  "), "{tabs}");
    assert!(tabs.trim_end().ends_with("▶ 1/4"), "{tabs}");
}
