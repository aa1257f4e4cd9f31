//! Exports the current view and copies the equivalent command. Every screen can be saved as a picture;
//! screens with a figure or table export that instead.

use std::path::Path;

use super::prelude::*;
use super::screenshot;
use super::view;
use crate::desk;
use base::text::shell_command;

/// Prompts for an export path. `figure`: export the screen's own figure or table if it has one,
/// otherwise a picture of the screen.
pub fn ask(state: &mut State, figure: bool) {
    let screen = state.cx.tab.title();
    let (title, name, endings) = match figure {
        false => ("picture of", "-screen", ".svg or .png"),
        true => ("export", "", ".svg, .png or .csv"),
    };
    let path = state.cx.dir.join("exports").join(format!("{screen}{name}.svg"));
    let prompt = Prompt::new(
        format!("{title} {screen} to"),
        format!("the extension chooses the format: {endings}; existing files are kept"),
        path.display().to_string(),
        Completing::Paths,
        Box::new(move |state, typed| to(state, figure, typed)),
    );
    state.cx.ask_line(prompt);
}

/// Writes the export to the typed path; returns the reason if it cannot.
fn to(state: &mut State, figure: bool, typed: &str) -> Result<(), String> {
    let path = desk::files::expanded(typed.trim());
    let kind = FileKind::of(&path)
        .ok_or_else(|| format!("'{typed}': unknown format; use .svg, .png or .csv"))?;
    let figure = match figure {
        false => None,
        true => state.screen(state.cx.tab).export(kind, &state.cx)?,
    };
    let export = match figure {
        Some(export) => export,
        None if kind == FileKind::Csv => {
            return Err("this screen has no table; use .svg or .png for a picture".into());
        }
        None => picture(state),
    };
    state.cx.perform(Effect::Export { export, path });
    Ok(())
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
    if cx.dir != Path::new("runs") {
        words.extend(["--dir".into(), cx.dir.display().to_string()]);
    }
    let command = shell_command(std::iter::once("ladderscope".to_owned()).chain(words));
    cx.inform(match beyond.as_slice() {
        [] => format!("copied: {command}"),
        beyond => format!("copied, but for {}: {command}", beyond.join(" and ")),
    });
    cx.perform(Effect::Copy(command));
}
