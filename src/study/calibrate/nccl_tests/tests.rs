//! Outputs of every layout give the same numbers; everything that is no measured all-reduce of one job is refused.

use proptest::prelude::*;

use super::*;

/// Message bytes, and the in-place time that the outputs below have.
const ROWS: [(u64, f64); 4] = [(8, 12.5), (1024, 12.75), (1 << 20, 25.0), (1 << 30, 4200.0)];

const VERSION: &str = "# nccl-tests version 2.17.6 nccl-headers=22808 nccl-library=22808\n";
const PROGRAM_LINE: &str = "# Collective test starting: all_reduce_perf\n";
const FOOTER: &str = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 123.4\n";

fn options(gpus: u32, graph: u32) -> String {
    format!(
        "# nThread 1 nGpus {gpus} minBytes 8 maxBytes 1073741824 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: {graph}\n#\n# Using devices\n"
    )
}

fn ranks(count: u32) -> String {
    let rank = |rank| {
        format!(
            "#  Rank  {rank} Group  0 Pid   {} on     node-a device  {rank} [0000:1b:00] NVIDIA H100 80GB HBM3\n",
            4711 + rank
        )
    };
    (0..count).map(rank).collect()
}

/// A table with this heading; `row` makes a row of bytes and time, its bandwidths and their ratio.
fn table(heading: &str, ratio: f64, row: impl Fn(u64, f64, &str, &str) -> String) -> String {
    let mut text = format!("#\n{heading}");
    for (bytes, us) in ROWS {
        let algorithm = bytes as f64 / us / 1e3;
        text += &row(bytes, us, &format!("{algorithm:.2}"), &format!("{:.2}", algorithm * ratio));
    }
    text
}

const BOTH: &str = "#                                      out-of-place                       in-place\n\
    #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n\
    #        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n";

/// The newest table; out of place takes 0.4 % more.
fn newest(ratio: f64) -> String {
    table(BOTH, ratio, |bytes, us, algorithm, bus| {
        format!(
            "{bytes:12} {:12}  float     sum      -1  {:7.3} {algorithm} {bus} 0  {us:7.2} {algorithm} {bus} N/A\n",
            bytes / 4,
            us * 1.004
        )
    })
}

/// Output of the newest nccl-tests over so many ranks, each a process.
fn output(count: u32, graph: u32, ratio: f64) -> String {
    [VERSION, PROGRAM_LINE, &options(1, graph), &ranks(count), &newest(ratio), FOOTER].concat()
}

fn good() -> String {
    output(4, 0, 1.5)
}

fn read(text: &str) -> AllReduces {
    AllReduces::parse("a.txt", text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn problem(text: &str) -> String {
    let error = AllReduces::parse("a.txt", text).expect_err("refused");
    assert_eq!(error.exit_code(), 2);
    error.to_string()
}

#[test]
fn in_place_times_ranks_gpu_and_version_are_read() {
    let test = read(&output(8, 1, 1.75));
    assert_eq!(test.points, ROWS);
    assert_eq!((test.ranks, test.in_graph, test.warnings.as_slice()), (8, Some(true), [].as_slice()));
    assert_eq!(
        (test.gpu.as_deref(), test.version.as_deref()),
        (Some("NVIDIA H100 80GB HBM3"), Some("2.28.8"))
    );
    assert_eq!(read(&output(8, 0, 1.75)).in_graph, Some(false));
}

#[test]
fn every_layout_of_the_table_gives_the_same_times() {
    let half = |bytes: u64| bytes / 2;
    let no_root = BOTH.replace("   root ", "").replace("#wrong", " error");
    let one = |side: &str| {
        format!(
            "#   {side}\n# size count type redop root time algbw busbw #wrong\n# (B) (elements) (us) (GB/s) (GB/s)\n"
        )
    };
    let tables = [
        table(&no_root, 1.5, |bytes, us, a, b| {
            format!("{bytes} {} half sum {us} {a} {b} 2e-07 {us} {a} {b} 2e-07\n", half(bytes))
        }),
        table(&one("in-place"), 1.5, |bytes, us, a, b| {
            format!("{bytes} {} half sum -1 {us} {a} {b} 0\n", half(bytes))
        }),
        table(&one("out-of-place"), 1.5, |bytes, us, a, b| {
            format!("{bytes} {} half sum -1 {us} {a} {b} 0e+00\n", half(bytes))
        }),
        // columns of iterations, which the heading does not name
        table(BOTH, 1.5, |bytes, us, a, b| {
            let side = format!("{us} {a} {b} 0 11.0 19.0 15.5 0.04");
            format!("{bytes} {} half sum -1 {side} {side}\n", half(bytes))
        }),
        // in place was not measured
        table(BOTH, 1.5, |bytes, us, a, b| {
            format!("{bytes} {} half sum -1 {us} {a} {b} 0 N/A N/A N/A N/A\n", half(bytes))
        }),
        // a time stamp behind each row; other columns first
        table(
            "#  in-place\n# count size type time busbw algbw #wrong timestamp\n",
            1.5,
            |bytes, us, a, b| {
                format!("{} {bytes} half {us} {b} {a} 0 2026-11-27 12:00:00\n", half(bytes))
            },
        ),
    ];
    for table in tables {
        let text = [&options(1, 0), &ranks(4), &table, FOOTER].concat();
        let test = read(&text);
        assert_eq!(test.points, ROWS, "{text}");
        let is_foreign = !text.contains("in-place") || text.contains("N/A N/A");
        assert_eq!(
            test.warnings.iter().any(|it| it.starts_with("only out-of-place")),
            is_foreign || text.contains("#   out-of-place\n")
        );
    }
}

#[test]
fn prefixes_colours_and_line_ends_do_not_matter() {
    let good = good();
    let wanted = read(&good);
    let each = |prefix: &dyn Fn(usize) -> String| -> String {
        good.lines().enumerate().map(|(at, line)| format!("{}{line}\n", prefix(at))).collect()
    };
    for text in [
        each(&|_| "[1,0]<stdout>:".into()),
        each(&|_| " 0: ".into()),
        each(&|_| "[pod/nccl-test-launcher-x7k2p/main] ".into()),
        each(&|at| format!("[2026-11-27 12:00:{at:02}] ")),
        each(&|at| format!("Nov 27 12:00:{at:02} [1,0]<stdout>: ")),
        each(&|at| format!("2026-11-27T12:00:{at:02}.123456789Z ")),
        good.replace('\n', "\r\n"),
        good.replace("#  Rank", "\u{1b}[1;32m#\u{1b}[0m  Rank"),
        // other ranks say something in between
        each(&|at| {
            format!("[1,1]<stdout>:node-a:4712:4712 [1] NCCL INFO {at} coll channels\n[1,0]<stdout>:")
        }),
        each(&|at| format!("1: 8 nodes, {at} of them up\n0: ")),
        format!("+ mpirun -np 4 ./build/all_reduce_perf -b 8\n{good}\nreal 0m12.3s\n"),
    ] {
        assert_eq!(read(&text), wanted, "{text}");
    }
}

#[test]
fn sizes_are_sorted_zero_ones_left_out_and_repeated_ones_become_medians() {
    let good = good();
    let mut lines: Vec<&str> = good.lines().collect();
    let at = lines.iter().position(|line| line.starts_with("           8 ")).unwrap();
    lines[at..at + 4].reverse();
    let more = "0 0 float sum -1 0.18 0.00 0.00 0 0.15 0.00 0.00 0\n\
                8 2 float sum -1 13.0 0.00 0.00 0 90.0 0.00 0.00 0\n\
                8 2 float sum -1 13.0 0.00 0.00 0 12.7 0.00 0.00 0";
    lines.insert(at + 2, more);
    let test = read(&lines.join("\n"));
    assert_eq!((test.points[0], &test.points[1..]), ((8, 12.7), &ROWS[1..]));
    assert!(test.warnings[0].contains("up to 3 times: medians"), "{:?}", test.warnings);
}

#[test]
fn other_programs_are_refused_by_name() {
    let named = |name: &str| good().replace("starting: all_reduce_perf", &format!("starting: {name}"));
    for name in ["broadcast_perf", "all_gather_perf", "sendrecv_perf"] {
        assert!(problem(&named(name)).contains(&format!("output of {name}")));
    }
    // built with NAME_SUFFIX=_mpi
    assert_eq!(read(&named("all_reduce_perf_mpi")).points, ROWS);
    assert!(problem(&named("broadcast_perf_mpi")).contains("output of broadcast_perf_mpi"));
    let unnamed = |count: u32, ratio: f64| output(count, 0, ratio).replace(PROGRAM_LINE, "");
    let echoed = format!("$ ./build/reduce_perf -g 2\n{}", unnamed(2, 1.0));
    assert!(problem(&echoed).contains("output of reduce_perf"));
    let concluded = format!("{}# Collective test concluded: broadcast_perf\n", unnamed(2, 1.0));
    assert!(problem(&concluded).contains("output of broadcast_perf"));
    // two ranks prove nothing; a name does
    let two = AllReduces::parse("a.txt", &unnamed(2, 1.0)).unwrap_err();
    assert!(two.to_string().contains("2 ranks have the same bandwidths"), "{two}");
    let Error::Input { help: Some(help), .. } = two else { panic!("{two}") };
    assert!(help.contains("add the line '# Collective test starting: all_reduce_perf'"), "{help}");
    assert_eq!(read(&output(2, 0, 1.0)).ranks, 2);
    assert_eq!(read(&format!("{PROGRAM_LINE}{}", unnamed(2, 1.0))).points, ROWS);
    // more ranks do where bandwidths show the ratio
    assert_eq!(read(&unnamed(4, 1.5)).points, ROWS);
    let other = problem(&unnamed(8, 0.875));
    assert!(other.contains("an all-reduce over 8 ranks has 1.75"), "{other}");
    let text = unnamed(4, 1.5);
    let small: String = text
        .lines()
        .filter(|line| !line.contains("1048576 ") && !line.contains("1073741824 "))
        .map(|line| format!("{line}\n"))
        .collect();
    assert!(problem(&small).contains("too small for their bandwidths"));
}

#[test]
fn wrong_results_are_refused_in_every_number_format() {
    for wrong in ["3", "5.5924e+06", "inf", "nan", "-1", "1e-3"] {
        let text = good().replacen(" 0  ", &format!(" {wrong}  "), 1);
        let said = problem(&text);
        assert!(said.starts_with("a.txt:14: ") && said.contains("wrong results at 8 bytes"), "{said}");
    }
    assert!(
        problem(&good().replacen(" 0  ", " 5.6x  ", 1)).starts_with("a.txt:14: column wrong: '5.6x'")
    );
    for footer in ["12 FAILED", "0 FAILED", "5.6e+06 FAILED", "12"] {
        let said = problem(&good().replace("0 OK", footer));
        assert!(said.contains("a.txt:18: out of bounds values"), "{said}");
    }
    let error =
        |error: &str| good().replace("#wrong", "error").replacen(" 0  ", &format!(" {error}  "), 1);
    assert_eq!(read(&error("2e-07")).points, ROWS);
    for value in ["nan", "inf", "0.5"] {
        assert!(problem(&error(value)).contains("at 8 bytes"), "{value}");
    }
    let unchecked = read(&good().replace(" 0  ", " N/A  "));
    assert!(unchecked.warnings.iter().any(|it| it.contains("not verified")), "{unchecked:?}");
}

#[test]
fn several_jobs_in_a_file_are_refused() {
    let good = good();
    assert!(problem(&good.repeat(2)).contains("several jobs in one file"));
    // line by line, as launchers mix them
    let mixed: String = good.lines().map(|line| format!("{line}\n{line}\n")).collect();
    assert!(problem(&mixed).contains("several jobs in one file"));
    let two = format!("{good}{}", output(8, 0, 1.75).replace(VERSION, ""));
    assert!(problem(&two).contains("several jobs in one file"));
    // nothing but the ranks shows it
    let ranks_twice = [&options(1, 0), &ranks(4), &ranks(4), &newest(1.5), FOOTER].concat();
    assert!(problem(&ranks_twice).contains("rank 0 is listed twice"));
    let split = good.replace("Rank  1 Group  0", "Rank  1 Group  1");
    assert!(problem(&split).contains("2 groups"));
    let missing = good.replace("#  Rank  2 ", "#  Rnk  2 ");
    assert!(problem(&missing).contains("lists 3 ranks, but not rank 2"));
}

#[test]
fn what_is_no_all_reduce_of_a_node_is_refused_with_the_reason() {
    let good = good();
    assert!(problem(&good.replacen("node-a", "node-b", 1)).contains("2 hosts"));
    let one: String = good
        .lines()
        .filter(|line| !line.contains(" float ") || line.contains("1024 "))
        .map(|line| format!("{line}\n"))
        .collect();
    assert!(problem(&one).contains("1 size with a time, where at least 2 are needed"), "{one}");
    assert!(problem("hello").contains("0 rows of nccl-tests"));
    assert!(problem(&good.replace("    time ", " cputime ")).contains("(cputime)"));
    // of both the device's is taken
    let both = BOTH.replace("#wrong", "#wrong cputime");
    let both = table(&both, 1.5, |bytes, us, a, b| {
        let side = format!("{us} {a} {b} 0 4.90");
        format!("{bytes} 2 float sum -1 {side} {side}\n")
    });
    assert_eq!(read(format!("{}{}{both}", options(1, 0), ranks(4)).as_str()).points, ROWS);
    // units, by their names and by what follows from them
    assert!(problem(&good.replace("(us)", "(ms)")).contains("a.txt:13: unit (ms)"));
    let thousand = good.replace("  25.00 ", "  0.025 ");
    assert!(problem(&thousand).contains("1048576 bytes in 0.025 us are 41943.04 GB/s"), "{thousand}");
    let cut = &good[..good.find(" 4200").unwrap()];
    assert!(problem(cut).starts_with("a.txt:17: has "), "{}", problem(cut));
    let damaged = problem(&good.replace(" 12.75 ", " 12,75 "));
    assert!(damaged.starts_with("a.txt:15: column time: '12,75' is no number"), "{damaged}");
    assert!(problem(&good.replace(" 12.50 ", " 0.00 ")).contains("column time: 0 us"));
}

#[test]
fn several_all_reduces_a_launch_are_no_latency_of_one() {
    let text = good().replace("agg iters: 1 ", "agg iters: 8 ");
    let said = problem(&text);
    assert!(said.contains("8 all-reduces a launch (-m 8)"), "{said}");
    let json = json(|value| value["config"]["agg_iters"] = 8.into());
    assert!(problem(&json).contains("8 all-reduces a launch"), "{}", problem(&json));
}

/// A line for each size, as rccl-tests writes with `-Z json`.
#[test]
fn json_lines_of_rccl_tests_are_no_jobs() {
    let line =
        |bytes: u64| format!(r#"{{"name": "AllReduce", "ranks": 8, "size": {bytes}, "time": 20.0}}"#);
    let said = problem(&format!("{}\n{}\n", line(1024), line(2048)));
    assert!(said.contains("JSON without the results of nccl-tests"), "{said}");
}

#[test]
fn one_process_for_all_gpus_is_warned_of_without_graphs() {
    let launched = |gpus, graph| {
        let text = output(8, graph, 1.75).replace("nGpus 1 ", &format!("nGpus {gpus} "));
        read(&text).warnings.iter().any(|it| it.contains("small messages measure launches"))
    };
    assert!(launched(8, 0) && !launched(8, 1) && !launched(1, 0));
    // blanks that another tool made tabs or wider
    let of_eight = output(8, 0, 1.75).replace("nGpus 1 ", "nGpus 8 ");
    for blank in ["\t", "   ", "\u{a0}"] {
        let found = read(&of_eight.replace(' ', blank));
        assert_eq!(found, read(&of_eight));
        let wrong = of_eight.replace("values : 0 OK", "values : 3 FAILED").replace(' ', blank);
        assert!(problem(&wrong).contains("out of bounds values: 3"), "{blank:?}");
    }
    // where the options are missing, process ids show it
    let of_one = (0..8).fold(output(8, 0, 1.75).replace("# nThread", "# nthread"), |text, rank| {
        text.replace(&format!("Pid   {}", 4711 + rank), "Pid   4711")
    });
    assert!(read(&of_one).warnings[0].contains("mpirun -np 8 all_reduce_perf -g 1"));
}

/// Output of `-J`, after `change`.
fn json(change: impl Fn(&mut serde_json::Value)) -> String {
    let device = |rank: u32| {
        serde_json::json!({"rank": rank, "group": 0, "pid": 4711 + rank, "hostname": "node-a", "device": rank,
            "device_hex": "0000:1b:00", "device_info": "NVIDIA H100 80GB HBM3"})
    };
    let result = |&(bytes, us): &(u64, f64)| {
        let algorithm = bytes as f64 / us / 1e3;
        let side = |us: f64| serde_json::json!({"time": us, "alg_bw": algorithm, "bus_bw": 1.5 * algorithm, "nwrong": 0.0});
        serde_json::json!({"size": bytes, "count": bytes / 4, "type": "float", "redop": "sum", "root": "-1",
            "out_of_place": side(us * 1.01), "in_place": side(us), "experiment_name": "all_reduce_perf"})
    };
    let mut value = serde_json::json!({
        "version": 1, "nccl_version": 22808, "config": {"nthreads": 1, "ngpus": 1, "graph": 0},
        "devices": (0..4).map(device).collect::<Vec<_>>(),
        "results": ROWS.iter().map(result).collect::<Vec<_>>(),
        "out_of_bounds": {"count": 0, "okay": true},
    });
    change(&mut value);
    value.to_string()
}

#[test]
fn json_gives_what_the_text_gives_and_is_refused_for_the_same_reasons() {
    assert_eq!(read(&json(|_| ())), read(&good()));
    let unchecked = json(|value| {
        for row in value["results"].as_array_mut().unwrap() {
            (row["in_place"]["nwrong"], row["out_of_place"]["nwrong"]) = ("N/A".into(), ().into());
        }
    });
    assert_eq!(read(&unchecked).points, ROWS);
    let changed = |path: &'static str, to: serde_json::Value| {
        problem(&json(|value| *value.pointer_mut(path).unwrap() = to.clone()))
    };
    assert!(changed("/results/1/experiment_name", "broadcast_perf".into()).contains("several jobs"));
    assert!(changed("/out_of_bounds/count", 12.into()).contains("out of bounds values: 12"));
    assert!(
        changed("/results/2/in_place/nwrong", 5.6e6.into())
            .contains("results[2]: 5600000 wrong results")
    );
    assert!(changed("/results/2/in_place/nwrong", "inf".into()).contains("inf wrong results"));
    assert!(changed("/results/2/in_place", serde_json::json!({"cpu_time": 4.9})).contains("(cpu_time)"));
    assert!(changed("/results/2/size", "8K".into()).contains("results[2].size: \"8K\" is no number"));
    assert!(changed("/results/2/in_place/time", "x".into()).contains("results[2].in_place.time"));
    assert!(changed("/results/2/redop", "none".into()).contains("results[2]: redop \"none\""));
    assert!(changed("/results/2/root", "0".into()).contains("are not those of an all-reduce"));
    let without_time = json(|value| {
        let row = &mut value["results"][1];
        (row["in_place"]["time"], row["out_of_place"]["time"]) = (().into(), ().into());
    });
    assert!(problem(&without_time).contains("results[1]: no time"));
    assert!(changed("/devices/1/rank", 0.into()).contains("rank 0 is listed twice"));
    let other = problem(&json(|value| {
        for row in value["results"].as_array_mut().unwrap() {
            row["experiment_name"] = "all_gather_perf".into();
        }
    }));
    assert!(other.contains("output of all_gather_perf"), "{other}");
    assert!(problem(&json(|_| ()).repeat(2)).contains("several jobs"));
    let text = json(|_| ());
    assert!(problem(&text[..text.len() - 9]).contains("incomplete or damaged JSON"));
    assert!(problem("{\"results\": 3}").contains("JSON without the results"));
}

proptest! {
    #[test]
    fn damaged_output_is_read_or_refused(at in 0_usize..1900, with in "\\PC{0,9}", cut in 0_usize..1900) {
        let mut text: Vec<char> = output(4, 0, 1.5).chars().collect();
        let at = at.min(text.len());
        text.splice(at..(at + cut).min(text.len()), with.chars());
        let text: String = text.into_iter().collect();
        if let Ok(test) = AllReduces::parse("a.txt", &text) {
            prop_assert!(test.points.is_sorted_by(|a, b| a.0 < b.0));
            prop_assert!(test.points.iter().all(|(bytes, us)| *bytes > 0 && *us > 0.0));
        }
    }
}
