//! Writing what is shown to a file, and copying the command that shows the same. Any screen can be had
//! as a picture of itself; pages that have a figure or a table give that instead.

use std::path::{Path, PathBuf};

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use tui_input::Input;

use super::message::Effect;
use super::page::{Export, FileKind};
use super::screenshot;
use super::state::{Overlay, Prompt, Purpose, State};
use super::view;
use crate::text::shell_command;

/// Asks where to write what is shown.
pub fn ask(state: &mut State, purpose: Purpose) {
    let page = state.screen.page();
    let (title, name, endings) = match purpose {
        Purpose::Picture => ("picture of", "-screen", ".svg or .png"),
        _ => ("export", "", ".svg, .png or .csv"),
    };
    let path = state.dir.join("exports").join(format!("{}{name}.svg", page.title()));
    state.overlays.push(Overlay::Prompt(Prompt {
        title: format!("{title} {} to", page.title()),
        hint: format!("the ending decides: {endings}; Enter writes, Esc closes; nothing is overwritten"),
        input: Input::new(path.display().to_string()),
        error: None,
        purpose,
    }));
}

/// Writes what is shown to the file that was typed; why that cannot be.
pub fn to(state: &State, purpose: Purpose, typed: &str) -> Result<Vec<Effect>, String> {
    let path = PathBuf::from(typed.trim());
    let kind = FileKind::of(&path).ok_or_else(|| {
        format!("'{typed}' does not say what to write: end it with .svg, .png or .csv")
    })?;
    let figure = match purpose {
        Purpose::Picture => None,
        _ => state.screen.page().export(state, kind)?,
    };
    let export = match figure {
        Some(export) => export,
        None if kind == FileKind::Csv => {
            return Err("this screen has no table: .svg or .png write a picture of it".into());
        }
        None => picture(state),
    };
    Ok(vec![Effect::Export { export, path }])
}

/// A picture of the screen as it is, without what lies on top.
fn picture(state: &State) -> Export {
    let mut buffer = Buffer::empty(Rect::new(0, 0, state.size.0, state.size.1));
    view::draw_without_overlays(&mut buffer, state);
    let light = state.theme.is_light();
    Export::new(move |path| screenshot::write(&buffer, light, path))
}

/// Copies the command that shows the same as the screen.
pub fn copy_command(state: &mut State) -> Vec<Effect> {
    let Some(mut words) = state.screen.page().command(state) else {
        let why = state.screen.page().no_command(state);
        state.inform(why);
        return Vec::new();
    };
    if state.dir != Path::new("runs") {
        words.extend(["--dir".into(), state.dir.display().to_string()]);
    }
    let command = shell_command(std::iter::once("ladderscope".to_owned()).chain(words));
    let beyond = state.screen.page().beyond_command(state);
    state.inform(match beyond.as_slice() {
        [] => format!("copied: {command}"),
        beyond => format!("copied, but for {}: {command}", beyond.join(" and ")),
    });
    vec![Effect::Copy(command)]
}
