//! Experiment files: the contract's layout, the grid's order, and what each mistake is told.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use base::error::Error;
use plan::Architecture;
use run::Feasibility;
use run::Resolve;
use table::{Backend, CellOptions, Link, P2p, Recorder, Spec};

/// An experiment file with every table that there is.
const EXAMPLE: &str = r#"question = "How much does ladder gain on a 70B model, with and without P2P?"
backend = "sim"
hardware = "h100_sxm"
stack = "gpt-fast"         # sim only
[model]
name = "llama-3-70b"       # or path = "DIR"
[workload]
prompt_tokens = 1024
output_tokens = 512
samples = 10
warmup = 2
rounds = 3
seed = 0
[grid]
architecture = ["standard", "ladder", "parallel", "upper-bound"]
tp = [2, 4, 8]
batch = [1, 4, 16, 64]
p2p = ["on", "off"]
[links]                    # optional: what p2p on and off mean here (default: native)
on = "emulated:alpha_us=100,gb_s=20"
off = "emulated:alpha_us=400,gb_s=4"
[env]                      # optional: NCCL variables; a list makes it a grid axis
NCCL_ALGO = "Ring"
"#;

fn parsed(text: &str) -> Experiment {
    match Experiment::from_str(text, Path::new("dir/test.toml")) {
        Ok(experiment) => experiment,
        Err(e) => panic!("{e}"),
    }
}

/// The error's message and help.
fn mistake(text: &str) -> (String, String) {
    let error = Experiment::from_str(text, Path::new("dir/test.toml")).unwrap_err();
    assert_eq!(error.exit_code(), 2, "{error}");
    match error {
        Error::At { message, help, .. } => (message, help.unwrap_or_default()),
        Error::Input { message, help } => (message, help.unwrap_or_default()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_contracts_example_is_96_cells_in_file_order() {
    let experiment = parsed(EXAMPLE);
    assert_eq!(experiment.name, "test");
    assert_eq!(experiment.rounds, 3);
    assert!(experiment.question.unwrap().starts_with("How much"));
    assert_eq!(experiment.axes, ["architecture", "tp", "batch", "p2p"]);
    assert_eq!(experiment.cells.len(), 96);
    let label = |i: usize| experiment.cells[i].spec.label();
    assert_eq!(label(0), "standard tp2 b1 p2p-on");
    assert_eq!(label(1), "standard tp2 b1 p2p-off");
    assert_eq!(label(2), "standard tp2 b4 p2p-on");
    assert_eq!(label(8), "standard tp4 b1 p2p-on");
    assert_eq!(label(24), "ladder tp2 b1 p2p-on");
    assert_eq!(label(95), "upper-bound tp8 b64 p2p-off");
    let spec = &experiment.cells[0].spec;
    assert_eq!((spec.backend, spec.prompt_tokens, spec.output_tokens), (Backend::Sim, 1024, 512));
    assert_eq!((spec.samples, spec.warmup, spec.stack.as_str()), (10, 2, "gpt-fast"));
    assert_eq!(spec.env["NCCL_ALGO"], "Ring");
}

#[test]
fn links_follow_p2p() {
    let experiment = parsed(EXAMPLE);
    for cell in &experiment.cells {
        let link = match cell.spec.p2p {
            P2p::On => Link::Emulated { alpha_us: 100.0, gb_s: 20.0 },
            P2p::Off => Link::Emulated { alpha_us: 400.0, gb_s: 4.0 },
        };
        assert_eq!(cell.spec.link, link);
    }
    let both = "backend = \"sim\"\n[grid]\np2p = [\"on\", \"off\"]\n";
    let given = parsed(&format!("{both}[links]\non = \"p2p-on\"\noff = \"p2p-off\"\n"));
    let links: Vec<Link> = given.cells.iter().map(|c| c.spec.link).collect();
    assert_eq!(links, [Link::P2pOn, Link::P2pOff]);
    // one link alone serves where one setting is used; a native one serves both
    assert_eq!(parsed("backend = \"sim\"\n[links]\non = \"p2p-on\"\n").cells[0].spec.link, Link::P2pOn);
    let off = parsed("backend = \"sim\"\np2p = \"off\"\n[links]\noff = \"p2p-off\"\n");
    assert_eq!(off.cells[0].spec.link, Link::P2pOff);
    assert_eq!(parsed(&format!("link = \"native\"\n{both}")).cells.len(), 2);
}

#[test]
fn variables_become_axes_where_they_are_lists() {
    let text = "backend = \"sim\"\n[grid]\ntp = [1, 2]\nenv.NCCL_PROTO = [\"LL\", \"Simple\"]\n\
                \"set.link.alpha_us\" = [5, 7.5]\n[env]\nNCCL_ALGO = [\"Ring\", \"Tree\"]\nNCCL_NTHREADS = 256\n";
    let experiment = parsed(text);
    let axes = ["tp", "env.NCCL_PROTO", "set.link.alpha_us", "env.NCCL_ALGO"];
    assert_eq!(experiment.axes, axes);
    assert_eq!(experiment.cells.len(), 16);
    let spec = &experiment.cells[3].spec;
    assert_eq!(spec.env["NCCL_PROTO"], "LL");
    assert_eq!(spec.env["NCCL_ALGO"], "Tree");
    assert_eq!(spec.env["NCCL_NTHREADS"], "256");
    assert_eq!(spec.set["link.alpha_us"], "7.5");
}

#[test]
fn a_simulation_needs_one_round_and_an_execution_three() {
    assert_eq!(parsed("backend = \"sim\"\n").rounds, 1);
    assert_eq!(parsed("backend = \"cpu\"\nmodel = \"tiny\"\n").rounds, 3);
    assert_eq!(parsed("rounds = 7\nbackend = \"cpu\"\n[model]\nname = \"tiny\"\n").rounds, 7);
}

#[test]
fn cells_that_cannot_run_say_why() {
    let experiment = parsed(
        "backend = \"sim\"\nhardware = \"h100_sxm\"\n[model]\nname = \"llama-3-70b\"\n[grid]\ntp = [1, 3, 8]\n",
    );
    assert!(
        matches!(&experiment.cells[0].feasibility, Feasibility::Oom(why) if why.contains("weights"))
    );
    assert!(
        matches!(&experiment.cells[1].feasibility, Feasibility::Skipped(why) if why.contains("64 mod 3 = 1"))
    );
    assert_eq!(experiment.cells[2].feasibility, Feasibility::Runs);
    let cuda = parsed("backend = \"cuda\"\n[model]\nname = \"tiny\"\n");
    assert!(matches!(&cuda.cells[0].feasibility, Feasibility::Skipped(why) if why.contains("cuda")));
    let f16 = parsed("backend = \"cpu\"\ndtype = \"f16\"\n[model]\nname = \"tiny\"\n");
    assert!(matches!(&f16.cells[0].feasibility, Feasibility::Skipped(why) if why.contains("f16")));
}

#[test]
fn every_mistake_is_told_where_it_is_and_what_would_be_right() {
    // text, what the message begins with, what the help holds
    let mistakes = [
        ("tp = = 2", "dir/test.toml:1:6: ", ""),
        (
            "backend = \"sim\"\n[grid]\narchitekture = [\"ladder\"]",
            "dir/test.toml:3:1: unknown axis in [grid] 'architekture'",
            "'architecture'",
        ),
        (
            "[grid]\narchitecture = [\"standard\", \"laddder\"]",
            "dir/test.toml:2:29: unknown architecture 'laddder'",
            "'ladder'",
        ),
        ("bakend = \"sim\"", "dir/test.toml:1:1: unknown key 'bakend'", "'backend'"),
        ("[grdi]\ntp = 1", "dir/test.toml:1:2: unknown table 'grdi'", "'grid'"),
        (
            "[workload]\nprompt_token = 4",
            "dir/test.toml:2:1: unknown key in [workload] 'prompt_token'",
            "'prompt_tokens'",
        ),
        ("[model]\nname = \"llama-3-70\"", "dir/test.toml:2:8: ", "llama-3-70b"),
        ("[model]\nnam = \"tiny\"", "dir/test.toml:2:1: unknown key in [model] 'nam'", "'name'"),
        (
            "[model]\npath = \"no/such/dir\"",
            "dir/test.toml:2:8: model path 'dir/no/such/dir' is not a directory",
            "experiment file's",
        ),
        ("[links]\nonn = \"native\"", "dir/test.toml:2:1: unknown key in [links] 'onn'", "'on'"),
        (
            "[links]\non = \"emulated:alpha=3\"",
            "dir/test.toml:2:6: link 'emulated:alpha=3': unknown parameter 'alpha'",
            "emulated:alpha_us=20",
        ),
        (
            "tp = \"2\"",
            "dir/test.toml:1:6: tp must be a whole number, and this is a string",
            "without quotes",
        ),
        ("tp = 0", "dir/test.toml:1:6: tp is 0", ""),
        ("tp = -1", "dir/test.toml:1:6: tp is -1", ""),
        ("p2p = true", "dir/test.toml:1:7: p2p must be a string", "\"on\""),
        ("tp = [1, 2]", "dir/test.toml:1:6: tp is a list here", "[grid]"),
        ("[grid]\ntp = []", "dir/test.toml:2:6: axis tp has no values", ""),
        ("[grid]\ntp = [1, 2, 1]", "dir/test.toml:2:13: '1' appears twice in tp", ""),
        ("tp = 1\n[grid]\ntp = [1, 2]", "dir/test.toml:3:1: tp is set twice, first in line 1", ""),
        ("rounds = 0", "dir/test.toml:1:10: rounds is 0", ""),
        ("[grid]\nrounds = [1, 2]", "dir/test.toml:2:1: rounds is not an axis", "[workload]"),
        ("grid = 3", "dir/test.toml:1:8: 'grid' is a table", "[grid]"),
        (
            "link = \"native\"\n[links]\non = \"native\"",
            "dir/test.toml:1:1: link is set, but [links]",
            "remove",
        ),
        (
            "[grid]\np2p = [\"on\", \"off\"]\n[links]\non = \"emulated:alpha_us=2,gb_s=5\"",
            "dir/test.toml:3:2: [links] has no link for P2P off",
            "both on and off",
        ),
        (
            "[links]\noff = \"emulated:alpha_us=2,gb_s=5\"\n[grid]\np2p = [\"off\", \"on\"]",
            "dir/test.toml:1:2: [links] has no link for P2P on",
            "both on and off",
        ),
        (
            "[grid]\np2p = [\"on\", \"off\"]\n[links]\non = \"native\"\noff = \"emulated:alpha_us=2,gb_s=5\"",
            "dir/test.toml:3:2: one of the links for P2P on and off is native",
            "both",
        ),
        ("[links]\noff = \"p2p-off\"", "dir/test.toml:1:2: [links] has no link for P2P on", "both"),
        (
            "p2p = \"off\"\n[links]\non = \"p2p-on\"",
            "dir/test.toml:2:2: [links] has no link for P2P off",
            "both",
        ),
        (
            "backend = \"sim\"\nlink = \"emulated:alpha_us=2,gb_s=5\"\n[grid]\np2p = [\"on\", \"off\"]",
            "dir/test.toml:2:8: link 'emulated:alpha_us=2,gb_s=5' is the same for P2P on and off",
            "[links]",
        ),
        (
            "backend = \"sim\"\n[grid]\np2p = [\"on\", \"off\"]\nlink = [\"native\", \"p2p-off\"]",
            "dir/test.toml:4:19: link 'p2p-off' is the same for P2P on and off",
            "[links]",
        ),
        ("hardware = \"h100\"", "dir/test.toml:1:12: ", "h100_sxm"),
        ("stack = \"gpt-slow\"", "dir/test.toml:1:9: unknown stack 'gpt-slow'", "gpt-fast"),
        (
            "backend = \"cpu\"\nmodel = \"tiny\"\nlink = \"p2p-on\"",
            "dir/test.toml: cell (link p2p-on): link 'p2p-on' is emulated from a hardware profile",
            "h100_sxm",
        ),
        ("seed = -1", "dir/test.toml:1:8: seed is -1; it must be a whole number from 0", ""),
        (
            "[env]\nLD_PRELOAD = \"x.so\"",
            "dir/test.toml:2:14: a file cannot set env.LD_PRELOAD",
            "--env LD_PRELOAD=VALUE",
        ),
        (
            "[grid]\nenv.NCCL_TUNER_PLUGIN = [\"a\", \"b\"]",
            "dir/test.toml:2:26: a file cannot set env.NCCL_TUNER_PLUGIN",
            "--env",
        ),
        (
            "[env]\nNCCL_ALGO = \"/tmp/x\"",
            "dir/test.toml:2:13: a file cannot set env.NCCL_ALGO to '/tmp/x', which is a path",
            "",
        ),
        (
            "[env]\nX = { y = 2020-01-01 }",
            "dir/test.toml:2:11: env.X.y must be a string or a number",
            "",
        ),
        ("[[grid]]\ntp = 1", "dir/test.toml:1:3: 'grid' is a table, and this is an array", "[grid]"),
        ("[tp]\nx = 1", "dir/test.toml:1:2: 'tp' is a key, and this is a table", "tp = VALUE"),
        ("workload.tp.x = 1", "dir/test.toml:1:13: unknown key in [workload] 'tp.x'", ""),
        ("[model]", "dir/test.toml:1:1: [model] is empty", "name or path"),
        (
            "[evaluate]\ncontext = 1",
            "dir/test.toml:2:11: context is 1; it must be a whole number from 2",
            "",
        ),
        (
            "[evaluate]\ncontext = 8\ntokens = 4",
            "dir/test.toml:3:1: tokens is 4, and a window has 8",
            "smaller context",
        ),
        (
            "[evaluate]\ntext = \"none.txt\"",
            "dir/test.toml:2:8: text 'dir/none.txt' is not a file",
            "experiment file's",
        ),
        ("[adapt]\nlr = 1", "dir/test.toml:1:2: [adapt] needs steps", "steps = 200"),
        ("adapt.lr = 1", "dir/test.toml:1:7: [adapt] needs steps", "steps = 200"),
        ("tp = 1\nlinks.off = \"p2p-off\"", "dir/test.toml:2:7: [links] has no link for P2P on", "both"),
        ("[adapt]\nsteps = 3\nlr = -1", "dir/test.toml:3:6: lr is -1; it must be a number above 0", ""),
        ("[adapt]\nstep = 3", "dir/test.toml:2:1: unknown key in [adapt] 'step'", "'steps'"),
        ("[adapt]\nlayers = \"al\"", "dir/test.toml:2:10: unknown layers 'al'", "'all'"),
        ("[adapt]\nseeds = []", "dir/test.toml:2:9: seeds must be a list of numbers", ""),
    ];
    for (text, begin, help_part) in mistakes {
        let (message, help) = mistake(text);
        assert!(message.starts_with(begin), "{text:?}\n  is told: {message}\n  not:     {begin}");
        assert!(help.contains(help_part), "{text:?} has the help {help:?}");
    }
}

#[test]
fn files_that_are_not_there_or_not_text_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let missing = Experiment::open(&dir.path().join("none.toml")).unwrap_err();
    assert_eq!(missing.exit_code(), 2);
    assert!(missing.to_string().contains("none.toml"));
    let path = dir.path().join("bytes.toml");
    std::fs::write(&path, b"a = \"\xff\"").unwrap();
    assert!(Experiment::open(&path).unwrap_err().to_string().contains("byte 5"));
}

#[test]
fn model_directories_are_looked_for_beside_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("my-model");
    std::fs::create_dir(&model).unwrap();
    let config = r#"{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 2,
        "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64,
        "vocab_size": 100, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "ladder_layers": "all",
        "hidden_act": "silu", "torch_dtype": "bfloat16"}"#;
    std::fs::write(model.join("config.json"), config.replace("\"ladder_layers\": \"all\",", ""))
        .unwrap();
    for text in ["[model]\npath = \"my-model\"\n", "[grid]\nmodel = [\"my-model\", \"tiny\"]\n"] {
        let path = dir.path().join("e.toml");
        std::fs::write(&path, format!("backend = \"cpu\"\n{text}")).unwrap();
        let experiment = Experiment::open(&path).unwrap();
        assert_eq!(experiment.cells[0].spec.model, model.to_string_lossy());
        assert_eq!(experiment.cells[0].spec.dtype, plan::DType::Bf16, "the checkpoint's");
    }
}

#[test]
fn auto_says_what_it_chose_and_why() {
    let experiment = parsed("[grid]\nmodel = [\"tiny\", \"llama-3-70b\"]\ntp = [2, 4]\n");
    let backends: Vec<Backend> = experiment.cells.iter().map(|c| c.spec.backend).collect();
    assert_eq!(backends, [Backend::Cpu, Backend::Cpu, Backend::Sim, Backend::Sim]);
    let notes = experiment.notes.clone();
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[0].starts_with("backend cpu: ") && notes[0].contains("; tiny has"), "{notes:?}");
    assert!(notes[1].contains("too many for cpu"), "{notes:?}");
    assert!(!experiment.cells.iter().any(|c| c.spec.link.is_emulated()), "never on its own");
}

#[test]
fn defaults_are_the_documented_ones() {
    let (cpu, note) =
        CellOptions { model: Some("tiny".into()), backend: Some(Backend::Cpu), ..Default::default() }
            .resolve()
            .unwrap();
    assert_eq!(note, None);
    assert_eq!((cpu.tp, cpu.batch, cpu.prompt_tokens, cpu.output_tokens), (1, 1, 32, 32));
    assert_eq!((cpu.samples, cpu.warmup, cpu.hardware.as_str()), (10, 2, "host"));
    assert_eq!((cpu.dtype, cpu.architecture), (plan::DType::F32, Architecture::Standard));
    let sim = CellOptions { backend: Some(Backend::Sim), ..Default::default() };
    let (sim, _) = sim.resolve().unwrap();
    assert_eq!((sim.prompt_tokens, sim.output_tokens, sim.samples, sim.warmup), (1024, 512, 1, 0));
    assert_eq!((sim.model.as_str(), sim.hardware.as_str()), ("llama-3.2-1b", "h100_sxm"));
    assert_eq!(sim.dtype, plan::DType::Bf16);
}

/// TOML allows `_` between digits, and its integers end at i64::MAX.
#[test]
fn numbers_may_have_separators_and_seeds_all_64_bits() {
    let text = "backend = \"sim\"\n[set]\nhbm_gb_s = 3_350.5\n[workload]\nprompt_tokens = 1_024\n";
    let spec = &parsed(text).cells[0].spec;
    assert_eq!((spec.set["hbm_gb_s"].as_str(), spec.prompt_tokens), ("3350.5", 1024));
    let seed = |text: &str| parsed(&format!("[workload]\nseed = {text}\n")).cells[0].spec.seed;
    assert_eq!(seed("\"18446744073709551615\""), u64::MAX);
    assert_eq!(seed("7"), 7);
    assert!(mistake("[workload]\nseed = \"7\"").0.contains("a whole number"));
}

#[test]
fn options_of_the_simulator_choose_it_or_are_said_to_do_nothing() {
    let options = CellOptions {
        model: Some("tiny".into()),
        hardware: Some("a100_sxm".into()),
        set: vec!["link.alpha_us=5".into()],
        ..Default::default()
    };
    let (spec, note) = options.resolve().unwrap();
    assert_eq!(spec.backend, Backend::Sim);
    assert!(note.unwrap().contains("set, hardware need the simulator"));
    let (spec, note) = CellOptions { backend: Some(Backend::Cpu), ..options }.resolve().unwrap();
    assert_eq!((spec.hardware.as_str(), spec.set.len()), ("host", 0));
    assert!(note.unwrap().contains("only matter to the simulator"));
    let wrong = CellOptions { set: vec!["link.alpha=5".into()], ..Default::default() };
    assert_eq!(wrong.resolve().unwrap_err().exit_code(), 2);
}

#[test]
fn options_of_gpus_reach_only_their_backend() {
    let options = CellOptions {
        model: Some("tiny".into()),
        backend: Some(Backend::Cuda),
        recorder: Some(Recorder::Cupti),
        no_graph: Some(true),
        ..Default::default()
    };
    let (spec, note) = options.resolve().unwrap();
    assert_eq!((spec.recorder, spec.no_graph), (Recorder::Cupti, true));
    assert_eq!(note, None);
    let (cpu, note) = CellOptions { backend: Some(Backend::Cpu), ..options.clone() }.resolve().unwrap();
    assert_eq!((cpu.recorder, cpu.no_graph), Default::default());
    assert!(note.unwrap().contains("recorder, no_graph only matter to the cuda backend"));
    let plain =
        CellOptions { model: Some("tiny".into()), backend: Some(Backend::Cpu), ..Default::default() };
    assert_eq!(plain.resolve().unwrap().0.key(), cpu.key(), "what does nothing makes no other cell");
    let written = serde_json::to_value(&cpu).unwrap();
    assert!(written.get("recorder").is_none() && written.get("no_graph").is_none(), "{written}");
}

#[test]
fn options_of_gpus_are_settings_and_axes_of_files() {
    let text = "backend = \"cuda\"\nmodel = \"tiny\"\n[grid]\nrecorder = [\"stamps\", \"events\"]\nno_graph = [false, true]\n";
    let specs: Vec<Spec> = parsed(text).cells.into_iter().map(|cell| cell.spec).collect();
    let of: Vec<(Recorder, bool)> = specs.iter().map(|spec| (spec.recorder, spec.no_graph)).collect();
    use Recorder::{Events, Stamps};
    assert_eq!(of, [(Stamps, false), (Stamps, true), (Events, false), (Events, true)]);
    for (wrong, message) in [
        ("no_graph = \"yes\"", "no_graph must be true or false, and this is a string"),
        ("no_graph = 1", "no_graph must be true or false, and this is an integer"),
        ("recorder = \"event\"", "unknown recorder 'event'"),
    ] {
        let error = Experiment::from_str(&format!("model = \"tiny\"\n{wrong}\n"), Path::new("x.toml"));
        let error = error.unwrap_err().to_string();
        assert!(error.contains(message) && error.starts_with("x.toml:2:"), "{error}");
    }
}

#[test]
fn zeros_from_the_command_line_are_refused() {
    for options in [
        CellOptions { tp: Some(0), ..Default::default() },
        CellOptions { output_tokens: Some(0), ..Default::default() },
        CellOptions { samples: Some(0), ..Default::default() },
        CellOptions { env: vec!["NCCL_ALGO".into()], ..Default::default() },
    ] {
        assert_eq!(options.resolve().unwrap_err().exit_code(), 2);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever a text editor does to a file, reading it ends in an experiment or an error.
    #[test]
    fn damaged_text_never_panics(
        at in 0..EXAMPLE.len(),
        removed in 0_usize..40,
        inserted in prop_oneof!["\\PC{0,6}", "[\\[\\]\"=,.#\n{}'0-9a-z_-]{0,8}"],
    ) {
        // the example is ASCII: every byte begins a character
        let end = (at + removed).min(EXAMPLE.len());
        let text = format!("{}{inserted}{}", &EXAMPLE[..at], &EXAMPLE[end..]);
        // the grid is made, cells are not judged: that builds plans, and is not what is tested here
        match file::ExperimentFile::parse(&text, Path::new("test.toml")).and_then(|draft| {
            (0..draft.count().min(1000)).map(|index| draft.cell(index)).collect::<base::error::Result<Vec<_>>>()
        }) {
            Ok(cells) => prop_assert!(!cells.is_empty()),
            Err(e) => prop_assert!(e.to_string().contains("test.toml"), "{e}"),
        }
    }
}

#[test]
fn a_grid_is_counted_before_any_cell_is_made() {
    let numbers = (1..=1000).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let text = format!(
        "backend = \"sim\"\n[grid]\nmodel = [\"1b\"]\nbatch = [{numbers}]\nprompt_tokens = [{numbers}]\nseed = [{numbers}]\n"
    );
    let error = Experiment::from_str(&text, Path::new("huge.toml")).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    let message = error.to_string();
    let arithmetic =
        "1000 batch x 1000 prompt_tokens x 1000 seed = 1,000,000,000 cells, more than 100,000";
    assert!(message.contains(arithmetic), "{message}");
    assert!(message.starts_with("huge.toml:3:1"), "{message}");
    // an axis that is too long alone is refused before its values are looked at: the wrong one is not met
    let long = (1..=100_001).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let text = format!("[grid]\nbatch = [-1, {long}]\ntp = [2]\n");
    let message = Experiment::from_str(&text, Path::new("long.toml")).unwrap_err().to_string();
    assert!(message.contains("100002 batch = 100,002 cells, more than 100,000"), "{message}");
    assert!(message.starts_with("long.toml:2:1"), "{message}");
    // nor does one overflow that no machine could count
    let names: Vec<&str> = vec!["batch", "prompt_tokens", "output_tokens", "seed", "samples", "warmup"];
    let axes: Vec<String> = names.iter().map(|name| format!("{name} = [{numbers}]\n")).collect();
    let sets: Vec<String> = (0..4).map(|n| format!("\"link.a{n}\" = [{numbers}]\n")).collect();
    let text = format!("[grid]\n{}[grid.set]\n{}", axes.concat(), sets.concat());
    let message = Experiment::from_str(&text, Path::new("huge.toml")).unwrap_err().to_string();
    assert!(message.contains("= 1.0e30 cells"), "{message}");
}

#[test]
fn every_option_and_profile_value_can_be_an_axis() {
    let text = r#"
backend = "sim"
model = "tiny"
[grid]
collective = ["nccl", "one-shot"]
stack = ["native", "gpt-fast"]
hardware = ["h100_sxm", "a100_sxm"]
link = ["native", "emulated:alpha_us=5,gb_s=50"]
dtype = ["bf16", "f16"]
prompt_tokens = [8, 16]
output_tokens = [2, 3]
[grid.set]
"link.alpha_us" = [5, 10.5]
hbm_gb_s = [1000, 2000]
"#;
    let experiment = Experiment::from_str(text, Path::new("axes.toml")).unwrap();
    assert_eq!(experiment.cells.len(), 512);
    assert_eq!(experiment.axes.last().unwrap(), "set.hbm_gb_s");
    let keys: std::collections::HashSet<String> =
        experiment.cells.iter().map(|cell| cell.spec.key()).collect();
    assert_eq!(keys.len(), 512, "no two cells are the same");
    let (first, last) = (&experiment.cells[0].spec, &experiment.cells[511].spec);
    assert_eq!(first.set["link.alpha_us"], "5");
    assert_eq!((last.set["link.alpha_us"].as_str(), last.set["hbm_gb_s"].as_str()), ("10.5", "2000"));
    assert_eq!(experiment.cells[1].spec.set["hbm_gb_s"], "2000", "the last axis varies fastest");
    let wrong = text.replace("hbm_gb_s =", "hbm_gbs =");
    let error = Experiment::from_str(&wrong, Path::new("axes.toml")).unwrap_err();
    assert!(format!("{error:?}").contains("hbm_gb_s"), "{error:?}");
}

#[test]
fn what_a_backend_does_not_read_makes_no_other_cell_of_it() {
    let text = "[model]\nname = \"tiny\"\n[grid]\nbackend = [\"cpu\", \"cuda\"]\ntp = [1, 2]\nnvls = [\"on\", \"off\"]\n";
    let experiment = parsed(text);
    let of = |backend| experiment.cells.iter().filter(|cell| cell.spec.backend == backend).count();
    assert_eq!((of(Backend::Cpu), of(Backend::Cuda)), (2, 4));
    let notes = experiment.notes.clone();
    assert!(notes.iter().any(|note| note.starts_with("2 of 8 cells duplicate others")), "{notes:?}");
    let notes = parsed("backend = \"cpu\"\n[model]\nname = \"tiny\"\n").notes;
    assert!(notes.is_empty(), "{notes:?}");
}
