//! Edits of texts with comments in every place where TOML allows them.

use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;

use super::Experiment;
use super::document::Document;
use super::edit::*;
use super::file::{ExperimentFile, GridOption};

const TEXT: &str = r#"# What the file is about.
question = "Who hides it?" # the question

backend = "sim" # no GPU needed
hardware = "h100_sxm"

# The model.
[model]
name = "llama-3-70b"

[workload] # of every cell
prompt_tokens = 1024
# few tokens: it is a test
output_tokens = 16

# What varies.
[grid]
architecture = [
    "standard",
    "ladder", # the paper's
    # no communication at all
    "upper-bound",
]
tp = [2, 4, 8] # GPUs
batch = [
    1, # latency
    16 # throughput
]
p2p = "on" # one value is an axis too

[env] # of the process
NCCL_PROTO = ["LL", "Simple"] # protocols
NCCL_ALGO = "Ring"
"#;

/// The same in other ways of writing.
const INLINE: &str = r#"backend = "sim" # first
model = { name = "llama-3-70b" }
grid.tp = [2, 4] # dotted
grid.batch = [1]
set = { "link.alpha_us" = [5, 10], hbm_gb_s = 3000 } # profile
# last"#;

fn edited(text: &str, edits: &[ExperimentEdit]) -> String {
    edits.iter().fold(text.to_owned(), |text, edit| apply(&text, Path::new("x.toml"), edit).unwrap())
}

fn insert(axis: &str, index: usize, value: &str) -> ExperimentEdit {
    ExperimentEdit::Insert { axis: axis.into(), index, value: value.into() }
}

fn remove(axis: &str, index: usize) -> ExperimentEdit {
    ExperimentEdit::Remove { axis: axis.into(), index }
}

/// The lines that an edit took away and brought.
fn difference(before: &str, after: &str) -> (Vec<String>, Vec<String>) {
    let only = |of: &str, other: &str| -> Vec<String> {
        of.lines().filter(|line| !other.lines().any(|l| l == *line)).map(str::to_owned).collect()
    };
    (only(before, after), only(after, before))
}

fn changed(edit: ExperimentEdit) -> (Vec<String>, Vec<String>) {
    difference(TEXT, &edited(TEXT, &[edit]))
}

#[test]
fn an_outline_has_every_setting_and_axis_in_file_order() {
    let outline = Document::parse(TEXT, Path::new("x.toml")).unwrap();
    let all: Vec<String> = outline
        .entries
        .iter()
        .map(|e| format!("{:?} {} {}", e.kind, e.name, e.values.join(" ")))
        .collect();
    assert_eq!(
        all,
        [
            "Setting question Who hides it?",
            "Setting backend sim",
            "Setting hardware h100_sxm",
            "Setting model llama-3-70b",
            "Setting prompt_tokens 1024",
            "Setting output_tokens 16",
            "Axis architecture standard ladder upper-bound",
            "Axis tp 2 4 8",
            "Axis batch 1 16",
            "Axis p2p on",
            "Axis env.NCCL_PROTO LL Simple",
            "Setting env.NCCL_ALGO Ring",
        ]
    );
    let inline = Document::parse(INLINE, Path::new("x.toml")).unwrap();
    let axes: Vec<&str> = inline.axes().map(|e| e.name.as_str()).collect();
    assert_eq!(axes, ["tp", "batch", "set.link.alpha_us"]);
}

#[test]
fn an_edit_changes_its_own_line_and_no_other() {
    let replace = ExperimentEdit::Replace { axis: "tp".into(), index: 1, value: "16".into() };
    let (gone, come) = changed(replace);
    assert_eq!((gone.len(), come.as_slice()), (1, &["tp = [2, 16, 8] # GPUs".to_owned()][..]));
    for (edit, line) in [
        (insert("tp", 3, "16"), "tp = [2, 4, 8, 16] # GPUs"),
        (remove("tp", 0), "tp = [4, 8] # GPUs"),
        (remove("tp", 2), "tp = [2, 4] # GPUs"),
        (ExperimentEdit::Move { axis: "tp".into(), from: 2, to: 0 }, "tp = [8, 2, 4] # GPUs"),
        (insert("p2p", 1, "off"), "p2p = [\"on\", \"off\"] # one value is an axis too"),
    ] {
        assert_eq!(changed(edit).1, [line]);
    }
    let set = ExperimentEdit::Set { name: "output_tokens".into(), value: "512".into() };
    let wanted = (vec!["output_tokens = 16".into()], vec!["output_tokens = 512".into()]);
    assert_eq!(changed(set), wanted);
    let (gone, come) = changed(ExperimentEdit::Drop { name: "tp".into() });
    assert_eq!((gone.len(), come), (1, vec!["# GPUs".into()]));
}

#[test]
fn lists_over_several_lines_keep_a_line_a_value() {
    let (gone, come) = changed(insert("batch", 2, "64"));
    assert_eq!(gone, ["    16 # throughput"]);
    assert_eq!(come, ["    16, # throughput", "    64"]);
    for index in [0, 3] {
        let wanted = (Vec::new(), vec!["    \"parallel\",".into()]);
        assert_eq!(changed(insert("architecture", index, "parallel")), wanted);
    }
    let wanted = (vec!["    \"standard\",".into()], Vec::new());
    assert_eq!(changed(remove("architecture", 0)), wanted);
    // a comment of what is gone stays
    let (gone, come) = changed(remove("architecture", 1));
    assert_eq!(gone, ["    \"ladder\", # the paper's"]);
    assert_eq!(come, ["     # the paper's"]);
}

#[test]
fn new_entries_go_where_their_kind_belongs() {
    let lines = |edit| changed(edit).1;
    let add = |axis: &str, values: &[&str]| ExperimentEdit::AddAxis {
        axis: axis.into(),
        values: values.iter().map(ToString::to_string).collect(),
    };
    assert_eq!(lines(add("stack", &["native", "gpt-fast"])), ["stack = [\"native\", \"gpt-fast\"]"]);
    assert_eq!(lines(add("env.NCCL_MAX_CTAS", &["1", "8"])), ["NCCL_MAX_CTAS = [1, 8]"]);
    let text = edited(TEXT, &[add("set.link.alpha_us", &["5", "7.5"])]);
    assert!(text.ends_with("\n\n[set]\n\"link.alpha_us\" = [5, 7.5]\n"), "{text}");
    // what was a setting gives way
    let text = edited(TEXT, &[add("prompt_tokens", &["128", "1024"])]);
    assert!(!text.contains("prompt_tokens = 1024\n") && text.contains("prompt_tokens = [128, 1024]"));
    let text = edited(TEXT, &[add("model", &["llama-3-8b", "llama-3-70b"])]);
    assert!(text.contains("# The model.\n") && !text.contains("[model]"), "{text}");
    assert!(Experiment::from_str(&text, Path::new("x.toml")).is_ok(), "{text}");
    let set = |name: &str, value: &str| ExperimentEdit::Set { name: name.into(), value: value.into() };
    assert_eq!(lines(set("rounds", "5")), ["rounds = 5"]);
    assert_eq!(lines(set("stack", "gpt-fast")), ["stack = \"gpt-fast\""]);
    assert!(edited("", &[set("seed", "7")]).starts_with("[workload]\nseed = 7\n"));
    let text = edited(INLINE, &[add("p2p", &["on", "off"]), set("set.gpus_per_node", "4")]);
    assert!(text.contains("grid.batch = [1]\ngrid.p2p = [\"on\", \"off\"]\n"), "{text}");
    assert!(text.contains("hbm_gb_s = 3000, gpus_per_node = 4 } # profile"), "{text}");
}

#[test]
fn keys_in_braces_are_dropped_and_set_whole() {
    let text = "set = { link.alpha_us = [5, 10], hbm_gb_s = 3000 }\n";
    let drop = ExperimentEdit::Drop { name: "set.link.alpha_us".into() };
    assert_eq!(edited(text, &[drop]), "set = { hbm_gb_s = 3000 }\n");
    let text = "set = { hbm_gb_s = 3000, \"link\" . alpha_us = 5 }\n";
    let drop = ExperimentEdit::Drop { name: "set.link.alpha_us".into() };
    assert_eq!(edited(text, &[drop]), "set = { hbm_gb_s = 3000 }\n");
    let set = || ExperimentEdit::Set { name: "set.gpus_per_node".into(), value: "4".into() };
    let text = "set = { hbm_gb_s = 3000, link = { alpha_us = 5 } }\n";
    let wanted = "set = { hbm_gb_s = 3000, link = { alpha_us = 5 }, gpus_per_node = 4 }\n";
    assert_eq!(edited(text, &[set()]), wanted);
}

#[test]
fn wrong_edits_and_texts_that_are_no_toml_are_explained() {
    let error = |text: &str, edit: ExperimentEdit| apply(text, Path::new("x.toml"), &edit).unwrap_err();
    let no_axis = error(TEXT, remove("bach", 0));
    assert!(no_axis.to_string().contains("unknown axis 'bach'"));
    let no_value = error(TEXT, remove("tp", 3));
    assert_eq!(no_value.to_string(), "axis tp has 3 values, so no value 4");
    let twice = error(TEXT, ExperimentEdit::AddAxis { axis: "tp".into(), values: vec!["1".into()] });
    assert!(twice.to_string().contains("tp is an axis already"));
    let broken = error("a = [1,\nb = 2", ExperimentEdit::Drop { name: "a".into() });
    assert!(broken.to_string().starts_with("x.toml:2:"), "{broken}");
}

#[test]
fn a_value_that_is_wrong_is_written_so_that_the_error_points_at_it() {
    let text =
        edited(TEXT, &[ExperimentEdit::Replace { axis: "tp".into(), index: 1, value: "four".into() }]);
    let error = Experiment::from_str(&text, Path::new("x.toml")).unwrap_err().to_string();
    assert!(error.starts_with("x.toml:24:10: tp must be a whole number"), "{error}");
}

#[test]
fn typed_lists_are_split_as_people_mean_them() {
    let cases: [(&str, &str, &[&str]); 9] = [
        ("tp", "1, 2 4", &["1", "2", "4"]),
        ("tp", "[2, 4, 8]", &["2", "4", "8"]),
        ("batch", "1..64*4", &["1", "4", "16", "64"]),
        ("batch", "1..4 4 9", &["1", "2", "3", "4", "9"]),
        ("architecture", "\"standard\", \"ladder\"", &["standard", "ladder"]),
        ("architecture", "[ladder:[0+2], \"standard\"]", &["ladder:[0+2]", "standard"]),
        ("link", "emulated:alpha_us=20,gb_s=50, native", &["emulated:alpha_us=20,gb_s=50", "native"]),
        ("env.NCCL_PROTO", "LL,LL128 Simple", &["LL,LL128", "Simple"]),
        ("env.X", "\"a b\" \"\"", &["a b", ""]),
    ];
    for (name, typed, wanted) in cases {
        assert_eq!(split_values(name, typed), wanted, "{name}: {typed}");
    }
}

#[test]
fn every_name_offered_can_be_an_axis() {
    let spec = crate::store::sample_spec("ladder");
    let spec = table::Spec { backend: table::Backend::Sim, hardware: "h100_sxm".into(), ..spec };
    let offered = axis_names(Some(&spec));
    assert!(offered.iter().any(|(name, _)| name == "set.link.p2p_on.tp.8.gb_s"));
    assert!(offered.iter().all(|(_, about)| !about.is_empty()));
    for (name, _) in offered {
        let values = vec!["1".to_owned()];
        let text =
            edited("backend = \"sim\"\n", &[ExperimentEdit::AddAxis { axis: name.clone(), values }]);
        let outline = Document::parse(&text, Path::new("x.toml")).unwrap();
        let axes: Vec<&str> = outline.axes().map(|e| e.name.as_str()).collect();
        assert!(axes == [name.as_str()] || name == "backend", "{text}");
    }
}

#[test]
fn undo_and_redo_walk_the_same_way() {
    let path = Path::new("x.toml");
    let mut text = Revisions::new(TEXT.into());
    assert!(!text.undo() && !text.redo() && !text.is_edited());
    assert!(text.edit(path, &[insert("tp", 0, "16")]).unwrap());
    let first = text.text().to_owned();
    assert!(text.edit(path, &[insert("tp", 0, "32")]).unwrap());
    assert!(text.undo() && text.text() == first && text.undo() && text.text() == TEXT);
    assert!(!text.undo() && text.redo() && text.redo() && !text.redo());
    assert!(text.text().contains("tp = [32, 16, 2"));
    assert!(text.undo() && text.edit(path, &[insert("tp", 0, "64")]).unwrap() && !text.redo());
    assert!(text.is_edited());
    text.wrote(text.text().to_owned());
    assert!(!text.is_edited() && text.undo() && text.is_edited());
}

/// Axes by name, of a text that the experiment reader accepts.
fn parsed(text: &str) -> BTreeMap<String, Vec<String>> {
    let draft =
        ExperimentFile::parse(text, Path::new("x.toml")).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let named = |axis: &GridOption| {
        (axis.name.clone(), axis.values.iter().map(|(value, _)| value.clone()).collect())
    };
    draft.axes.iter().map(named).collect()
}

/// Comments of a text whose strings have no `#`, sorted.
fn all_comments(text: &str) -> Vec<String> {
    let mut all: Vec<String> =
        text.lines().filter_map(|l| l.find('#').map(|at| l[at..].trim_end().to_owned())).collect();
    all.sort();
    all
}

/// Values that each axis takes.
fn pool(axis: &str) -> &'static [&'static str] {
    match axis {
        "architecture" => &["standard", "ladder", "parallel", "upper-bound", "desync:2", "stale:2"],
        "p2p" => &["on", "off"],
        "stack" => &["native", "gpt-fast"],
        "env.NCCL_PROTO" | "env.NCCL_MAX_CTAS" => &["LL", "LL128", "Simple", "1", "2.5"],
        "set.link.alpha_us" => &["1", "2.5", "10", "20"],
        _ => &["1", "2", "4", "8", "16", "32"],
    }
}

const AXES: [&str; 9] = [
    "architecture",
    "tp",
    "batch",
    "p2p",
    "stack",
    "output_tokens",
    "env.NCCL_PROTO",
    "env.NCCL_MAX_CTAS",
    "set.link.alpha_us",
];

/// Axes that an edit should give; `None` where it makes no sense there.
fn describe(
    axes: &BTreeMap<String, Vec<String>>,
    (kind, axis, at, to, value): (u8, usize, usize, usize, usize),
) -> Option<(ExperimentEdit, BTreeMap<String, Vec<String>>)> {
    let name = AXES[axis % AXES.len()].to_owned();
    let pool = pool(&name);
    let value = pool[value % pool.len()].to_owned();
    let mut axes = axes.clone();
    if kind == 5 {
        if axes.contains_key(&name) {
            return None;
        }
        let values: Vec<String> =
            pool.iter().take(1 + at % pool.len()).map(ToString::to_string).collect();
        axes.insert(name.clone(), values.clone());
        return Some((ExperimentEdit::AddAxis { axis: name, values }, axes));
    }
    let values = axes.get_mut(&name)?;
    let index = at % values.len();
    let edit = match kind {
        0 if !values.contains(&value) => {
            values[index].clone_from(&value);
            ExperimentEdit::Replace { axis: name, index, value }
        }
        1 if !values.contains(&value) => {
            let index = at % (values.len() + 1);
            values.insert(index, value.clone());
            ExperimentEdit::Insert { axis: name, index, value }
        }
        2 if values.len() > 1 => {
            values.remove(index);
            ExperimentEdit::Remove { axis: name, index }
        }
        3 => {
            let to = to % values.len();
            let moved = values.remove(index);
            values.insert(to, moved);
            ExperimentEdit::Move { axis: name, from: index, to }
        }
        4 => {
            axes.remove(&name);
            ExperimentEdit::Drop { name }
        }
        6 => {
            let new: Vec<String> = pool.iter().skip(at % pool.len()).map(ToString::to_string).collect();
            values.clone_from(&new);
            ExperimentEdit::Values { axis: name, values: new }
        }
        _ => return None,
    };
    Some((edit, axes))
}

proptest! {
    #[test]
    fn any_edits_keep_all_comments_and_make_the_grid_they_describe(
        which in 0_usize..4,
        steps in prop::collection::vec((0_u8..7, 0_usize..16, 0_usize..8, 0_usize..8, 0_usize..8), 1..40),
    ) {
        let crlf = TEXT.replace('\n', "\r\n");
        let bare = "# nothing yet";
        let start = [TEXT, INLINE, &crlf, bare][which];
        let mut text = start.to_owned();
        let mut axes = parsed(&text);
        for step in steps {
            let Some((edit, wanted)) = describe(&axes, step) else { continue };
            text = apply(&text, Path::new("x.toml"), &edit).unwrap();
            prop_assert_eq!(parsed(&text), wanted.clone(), "after {:?}:\n{}", edit, text);
            prop_assert_eq!(all_comments(&text), all_comments(start), "after {:?}:\n{}", edit, text);
            let bare_newlines = text.replace("\r\n", "").contains('\n');
            prop_assert!(which != 2 || !bare_newlines, "after {:?}:\n{:?}", edit, text);
            axes = wanted;
        }
    }
}
