//! Recording of a program from the palette: asks for the command, and opens the trace when it ends.

use super::overlay::{Completing, Prompt};
use super::prelude::*;
use crate::desk::record::record_shell;

const TITLE: &str = "record a program";
const HINT: &str = "a shell command, such as torchrun --nproc-per-node 8 bench.py: it runs in the background, and its \
                    trace opens when it ends";

pub fn ask(cx: &mut Context) {
    let take = |state: &mut State, line: &str| {
        if line.trim().is_empty() {
            return Err("type a command".into());
        }
        start(&mut state.cx, line.trim().to_owned());
        Ok(())
    };
    let prompt =
        Prompt::new(TITLE.into(), HINT.into(), String::new(), Completing::Nothing, Box::new(take));
    cx.ask_line(prompt);
}

fn start(cx: &mut Context, line: String) {
    let stamp = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S-%3f").to_string();
    cx.inform(format!("recording {line}: its trace opens when it ends"));
    let dir = cx.dir.clone();
    // a slot of its own: a second recording does not make the first one stale
    let slot = ("record", usize::try_from(cx.now_ms).unwrap_or(usize::MAX));
    cx.ask_own(
        slot,
        move |_| record_shell(&dir, &stamp, &line),
        |recorded, cx| {
            let Some(recorded) = cx.told(recorded) else { return };
            if let Some(failure) = recorded.failure {
                cx.fail(format!("the recorded program failed, {failure}"));
            }
            let path = recorded.trace.to_string_lossy().into_owned();
            cx.request(Request::OpenPath(path, Opening::Alone(None)));
        },
    );
}
