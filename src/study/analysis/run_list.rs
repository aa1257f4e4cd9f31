//! Default columns of the lists of runs: the table of `ladderscope runs` and `sweep`, and screen 3 of the workbench. The two
//! lists have an order each; a column that is the same in both is described once.

use std::cmp::Reverse;

use table::options::option;

/// Default column of a list of runs.
#[derive(Clone, Copy, Debug)]
pub struct RunListColumn {
    /// Name of a field ([`table::Field`]), or of a combination of options.
    pub name: &'static str,
    /// Title in the table; screen 3 has shorter ones.
    pub title: &'static str,
    /// Options that the column combines; empty if it is a field.
    pub combines: &'static [&'static str],
    /// Place in the order in which a narrow terminal drops columns of the table, 1 first; 0: after all others, from the
    /// right.
    drop_rank: u8,
    pub if_shared: IfShared,
}

/// Treatment of a column if several rows share its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfShared {
    Kept,
    /// A line above the list has the value instead.
    Moved,
    Omitted,
}

const fn column(name: &'static str, title: &'static str, drop_rank: u8) -> RunListColumn {
    RunListColumn { name, title, combines: &[], drop_rank, if_shared: IfShared::Kept }
}

const fn moved(name: &'static str, drop_rank: u8) -> RunListColumn {
    RunListColumn { if_shared: IfShared::Moved, ..column(name, name, drop_rank) }
}

const fn omitted(name: &'static str) -> RunListColumn {
    RunListColumn { if_shared: IfShared::Omitted, ..column(name, name, 0) }
}

const RUN: RunListColumn = column("run", "run", 0);
const ARCHITECTURE: RunListColumn = column("architecture", "architecture", 0);
const SETTING: RunListColumn = column("setting", "differs in", 0);
const TP: RunListColumn = moved("tp", 0);
const BATCH: RunListColumn = moved("batch", 0);
const P2P: RunListColumn = moved("p2p", 12);
const TPOT: RunListColumn = column("tpot_p50_ms", "TPOT ms", 14);
const TOKENS_PER_S: RunListColumn = column("tokens_per_s", "tok/s", 13);
const TOKENS_PER_S_PER_GPU: RunListColumn = column("tokens_per_s_per_gpu", "tok/s/GPU", 4);
const OVERLAP: RunListColumn = column("overlap_pct", "overlap %", 9);
const PROVENANCE: RunListColumn = column("provenance", "provenance", 0);
const TAGS: RunListColumn = column("tags", "tags", 0);
const NOTE: RunListColumn = column("note", "note", 8);

/// Replaces TPOT in a table of prefill-only runs.
pub const TTFT: RunListColumn = column("prefill_ms", "TTFT ms", 0);

/// Columns of the table. Tags, notes and reasons appear if there are any.
pub static TABLE_COLUMNS: [RunListColumn; 21] = [
    RUN,
    column("status", "status", 10),
    ARCHITECTURE,
    SETTING,
    TP,
    BATCH,
    P2P,
    moved("link", 3),
    moved("model", 11),
    moved("dtype", 1),
    RunListColumn { combines: &["prompt_tokens", "output_tokens"], ..moved("tokens", 2) },
    RunListColumn { combines: &["hardware", "backend"], ..moved("on", 6) },
    column("completion_ms", "completion ms", 5),
    TPOT,
    TOKENS_PER_S,
    TOKENS_PER_S_PER_GPU,
    OVERLAP,
    PROVENANCE,
    TAGS,
    NOTE,
    column("reason", "why", 7),
];

/// Columns of screen 3. Most runs divide neither experts nor sequences, and its first row names the model that all runs have.
pub static SCREEN_COLUMNS: [RunListColumn; 17] = [
    ARCHITECTURE,
    PROVENANCE,
    TP,
    omitted("ep"),
    omitted("dp"),
    BATCH,
    P2P,
    SETTING,
    omitted("model"),
    TPOT,
    TOKENS_PER_S_PER_GPU,
    column("exposed_pct", "exposed", 0),
    OVERLAP,
    TOKENS_PER_S,
    RUN,
    TAGS,
    NOTE,
];

/// Default column of screen 3 with this name.
pub fn screen_column(name: &str) -> Option<&'static RunListColumn> {
    SCREEN_COLUMNS.iter().find(|column| column.name == name)
}

/// Options that the table shows in columns of their own or combined.
pub fn options_in_table() -> Vec<&'static str> {
    let own = TABLE_COLUMNS.iter().filter_map(|column| option(column.name)).map(|option| option.name);
    own.chain(TABLE_COLUMNS.iter().flat_map(|column| column.combines.iter().copied())).collect()
}

/// Options that have their own column in both lists.
pub fn options_in_both_lists() -> Vec<&'static str> {
    let names = TABLE_COLUMNS.iter().map(|column| column.name);
    names.filter(|name| screen_column(name).is_some() && option(name).is_some()).collect()
}

/// Ranked columns of the table, which narrow terminals drop from the end of this list.
pub fn drop_order() -> Vec<&'static str> {
    let mut ranked = TABLE_COLUMNS.to_vec();
    ranked.retain(|column| column.drop_rank > 0);
    ranked.sort_by_key(|column| Reverse(column.drop_rank));
    ranked.into_iter().map(|column| column.name).collect()
}
