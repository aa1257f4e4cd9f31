//! Marks of each screen and terms of the field, for the help. Architectures, options and columns are explained in the
//! words of their own tables.

use super::help::HelpEntry;
use super::prelude::*;
use super::screens::timeline::{LEGEND_MARKS, in_theme};
use plan::Architecture;
use study::whatif::Slider;
use table::options::OPTIONS;
use table::{MEASURES, Status};

/// Mark or term, its meaning, and other words that find it.
type Meaning = (&'static str, &'static str, &'static str);

const EXPERIMENTS: [Meaning; 6] = [
    ("●", "it runs on this machine; without the mark: simulated", "measured here"),
    (
        "3/18",
        "stored runs of these cells, of all; shared: another experiment has the same cells and ran them",
        "count progress others",
    ),
    ("▶", "the experiment runs now", "running"),
    ("…", "it waits in the queue of sweeps", "queued"),
    ("✘", "invalid file, with the reason next to it", "error invalid"),
    ("*", "it has edits that are not saved", "unsaved changed"),
];

const LIVE: [Meaning; 2] = [
    ("…", "the cell waits for its turn", "queued"),
    ("██▌··", "progress of the run; a part of a column is an eighth", "bar"),
];

const RUNS: [Meaning; 7] = [
    ("●", "a marked run", "selected"),
    ("▸ ▾", "a cell, its rounds pooled in one row; with its rounds below it", "fold unfold group"),
    (
        "!",
        "noisy: rounds of this cell differ widely; run them again on an idle machine",
        "noise rounds vary",
    ),
    (
        "~",
        "samples vary widely: mean and median latency differ by more than 10 %",
        "noise stall suspicious",
    ),
    (
        "«",
        "a later run of the sweep repeated it; pooled numbers leave it out",
        "repeated replaced older",
    ),
    ("↑ ↓", "order of the column: smallest, largest value first", "sort"),
    ("-", "the run has no such value", "missing empty"),
];

const PARETO: [Meaning; 7] = [
    ("● ○", "P2P on, off; each architecture has its own shape", "filled hollow legend"),
    ("• ◦", "small: dominated, as another run beats it in latency and throughput", "point"),
    ("[ ]", "the selected point; ▶ and ▲ mark its values on the axes", "cursor"),
    ("8x16", "TP x batch: 8 GPUs, 16 sequences", "label"),
    ("close:", "best point: within the simulator's error; measured: 95 % intervals overlap", "tie"),
    ("~8x4", "table: this point is just over the limit", "near"),
    ("1.17×", "table: times the best of standard, at the same batch and P2P", "speedup"),
];

const COMPARE: [Meaning; 9] = [
    ("★", "fastest of its row", "winner best"),
    ("≈", "a tie: within the simulator's error; measured: undecided", "close same"),
    ("†", "differs from the published speedup", "paper arxiv"),
    ("?", "no verdict: too few samples, or rounds measured apart", "few unknown"),
    ("!", "above the upper bound, or the bound itself: noise", "warning limit"),
    ("▲ ▼", "faster, slower than the baseline; in a header: order of the column", "verdict sort"),
    ("·", "no significant difference", "noise chance"),
    ("●", "a marked row", "selected"),
    ("[ ]", "the selected value", "cursor"),
];

const WHATIF: [Meaning; 6] = [
    ("──●──", "place of the value among those of the slider", "knob position"),
    ("(base 15.9)", "the value before it was changed", "original default"),
    ("▸", "the architecture of the sliders", "selected"),
    ("†", "an architecture that a standard model must be retrained for", "conversion quality"),
    ("▓ ╱", "hidden, exposed communication", "overlap"),
    ("A B C", "variants that were kept", "pin"),
];

const TERMS: [Meaning; 20] = [
    (
        "TPOT, ITL",
        "time per output token: median decode step; tokens/s includes stalls and the prefill",
        "inter-token latency",
    ),
    ("TTFT", "time to first token: latency of prefill", "prefill"),
    ("completion", "latency of prefill and decode together", "end-to-end e2e latency"),
    ("exposed", "communication during which the rank computes nothing", "non-overlapped"),
    ("hidden", "communication during which the rank computes as well", "overlap overlapped"),
    ("gap closed", "share of upper-bound's TPOT saving over standard that is reached", "gap % share"),
    ("upper-bound", "the model without all-reduces: wrong output, the limit of hiding", "speed limit"),
    ("baseline", "the runs that a speedup is relative to; standard unless changed", "reference"),
    ("frontier", "runs that no other beats in both latency and throughput", "pareto dominated"),
    ("cell", "one point of an experiment's grid", "configuration setting"),
    ("round", "one pass of a sweep over its cells", "repeat"),
    ("sample", "one timed generation of a run", "repeat"),
    (
        "95 % CI",
        "interval [low, high] from the spread of rounds and samples",
        "confidence bootstrap noise error uncertainty",
    ),
    ("significant", "the 95 % interval of the ratio excludes 1", "p-value chance faster slower verdict"),
    (
        "undecided",
        "not significant: noise may explain it; more rounds settle it",
        "chance verdict unknown",
    ),
    ("tie", "fastest together: their own ratio is not significant", "close same equal verdict"),
    ("P2P", "GPUs read each other's memory directly; off: through host memory", "nvlink pcie peer"),
    (
        "contention",
        "slowdown of kernels, and of the all-reduce, while both run at the same time",
        "interference",
    ),
    (
        "emulated-link",
        "computed here, with all-reduces padded to a latency and bandwidth",
        "emul provenance",
    ),
    ("simulated", "predicted from measured tables and constants, not run", "sim provenance"),
];

/// Rarer terms, which only the search of the help finds.
const RARE_TERMS: [Meaning; 15] = [
    (
        "hidden %",
        "share of communication during which the rank computes as well",
        "overlap % overlapped",
    ),
    ("exposed %", "exposed share of the decode phase, pooled over all rounds", "communication"),
    (
        "p-value",
        "chance of such a ratio if neither is faster; adjusted for the number of comparisons",
        "significant benjamini-hochberg student",
    ),
    ("alpha", "latency of a transfer: it takes alpha + bytes / bandwidth", "link all-reduce beta"),
    (
        "break-even",
        "highest latency, or lowest bandwidth, at which 95 % is still hidden",
        "limit what-if",
    ),
    ("exposed transfer", "exposed time that moves data; the rest waits for the last rank", "wait skew"),
    (
        "transfer-dominated",
        "verdict: two thirds of the exposed time move data (latency-bound: in small messages); skew-dominated: \
         wait for the last rank",
        "cause mixed inconclusive",
    ),
    (
        "frontier area",
        "area that a frontier gains over that of standard, from matched cells; ranks whole frontiers, not a speedup",
        "pareto gained hypervolume",
    ),
    ("rewire", "a traced step under another architecture: its kernels, other dependencies", "what-if"),
    ("tp8 b16", "setting of a run: TP 8, batch 16, then options that differ", "label name"),
    ("micro2", "2 micro-batches in turn: one computes while the other communicates", "micro-batches"),
    ("profile", "description of the hardware; stack: of the software on it", "constants engine"),
    ("provenance", "measured, emulated-link, shared-gpu or simulated", "origin trust"),
    ("step", "one decode iteration: one token per sequence; decode is all of them", "iteration"),
    ("run", "one execution of a cell in a process of its own", "process"),
];

/// Groups that only the search of the help has, with their headings.
pub fn searched_groups() -> [(&'static str, Vec<HelpEntry>); 5] {
    let forms = Architecture::FORMS.iter().zip(Architecture::MEANINGS);
    let architectures = forms.map(|(form, meaning)| HelpEntry::new(form, meaning, "architecture"));
    let options = OPTIONS.iter().map(|option| {
        let about = &option.about;
        let also = format!("{} {} {} option", option.flag, about.label, about.aliases.join(" "));
        HelpEntry::new(option.name, option.help(), &also)
    });
    let measures = MEASURES.iter().map(|measure| {
        let short = measure.aliases.first().unwrap_or(&measure.name);
        let also = format!("{} {} column measure", measure.name, measure.aliases.join(" "));
        HelpEntry::new(measure.title, &format!("{}; in filters: {short}", measure.words), &also)
    });
    let sliders = Slider::ALL.map(|slider| HelpEntry::new(slider.name(), slider.about(), "slider"));
    [
        ("More terms", entries(&RARE_TERMS)),
        ("Architectures", architectures.collect()),
        ("Options of an experiment", options.collect()),
        ("Columns of runs", measures.collect()),
        ("Sliders of what-if", sliders.into()),
    ]
}

fn entries(meanings: &[Meaning]) -> Vec<HelpEntry> {
    meanings.iter().map(|(name, text, also)| HelpEntry::new(name, text, also)).collect()
}

pub fn terms() -> Vec<HelpEntry> {
    entries(&TERMS)
}

/// Marks of a screen, in the colours of the theme if they carry a meaning.
pub fn marks(tab: Tab, theme: Theme) -> Vec<HelpEntry> {
    match tab {
        Tab::Experiments => entries(&EXPERIMENTS),
        Tab::Live => [statuses(), entries(&LIVE)].concat(),
        Tab::Runs => [statuses(), entries(&RUNS)].concat(),
        Tab::Timeline => {
            let entry = |(mark, role, words): (&'static str, Role, &'static str)| HelpEntry {
                role,
                ..HelpEntry::new(&in_theme(mark, role, theme), words, "")
            };
            LEGEND_MARKS.into_iter().map(entry).collect()
        }
        Tab::Pareto => entries(&PARETO),
        Tab::Compare => entries(&COMPARE),
        Tab::WhatIf => entries(&WHATIF),
    }
}

fn statuses() -> Vec<HelpEntry> {
    let entry = |status: Status| {
        let meaning = match status {
            Status::Ok => "the run ended",
            Status::Failed => "the run died, hung or was wrong",
            Status::Oom => "it does not fit in memory; not started",
            Status::Skipped => "it cannot run, as if TP does not divide the heads; not started",
            Status::Interrupted => "it was cancelled or stopped; a resumed sweep runs it",
            Status::Running => "it runs now",
        };
        HelpEntry::new(status.glyph(), &format!("{}: {meaning}", status.as_str()), "status")
    };
    Status::ALL.into_iter().map(entry).collect()
}
