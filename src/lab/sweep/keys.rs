//! Keys of experiment files besides the options of cells, each described once for the check ([`super::file`]), the
//! names valid in a table, and the JSON schema (`ladderscope schema experiment`).

use serde_json::{Map, Value, json};

use table::options::{OPTIONS, OptionEntry};

/// Tables of the file, with their description.
const TABLES: [(&str, &str); 8] = [
    ("model", "Model: name or path"),
    ("workload", "Workload and other options shared by all cells"),
    ("grid", "Axes of the grid: options with a value or a list of values; the last axis varies fastest"),
    ("links", "Links for p2p on and off: native, p2p-on, p2p-off or emulated:alpha_us=20,gb_s=50"),
    ("env", "Environment variables for the run's process; a list of values makes an axis"),
    ("set", "Overrides for values of the simulated hardware or stack; a list of values makes an axis"),
    ("evaluate", "Quality evaluation of the cells' models, on the cpu after all cells"),
    (
        "adapt",
        "Training of the cells' models, on the cpu after all cells: one training per architecture and seed",
    ),
];

/// Upper limit on counts of tokens, above the context of any model.
const MAX_TOKENS: i64 = 1 << 24;

/// Upper limit on ranks of a cell.
const MAX_GPUS: i64 = 1 << 20;

/// Values that a key accepts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Accepts {
    Text,
    Words(&'static [&'static str]),
    /// Whole number from the first to the second.
    Whole(i64, i64),
    /// Number above 0.
    Positive,
    /// List of whole numbers from 0, not empty.
    Seeds,
    /// Link of all-reduces, as in the option `link`.
    Link,
    /// Path of a directory or file, relative to the experiment file.
    Directory,
    File,
}

use Accepts::{Directory, File, Link, Positive, Seeds, Text, Whole, Words};

/// Key with a fixed place in the file.
#[derive(Debug)]
pub(super) struct FileKey {
    /// Table that has the key; empty for the top of the file.
    pub table: &'static str,
    pub name: &'static str,
    pub accepts: Accepts,
    pub about: &'static str,
}

const fn key(table: &'static str, name: &'static str, accepts: Accepts, about: &'static str) -> FileKey {
    FileKey { table, name, accepts, about }
}

const ROUNDS: &str =
    "Rounds over all cells, interleaved; each run is a fresh process [default: 3, simulated: 1]";
const TEXT: &str = "Text file, relative to the experiment file [default: the built-in text]";
const TOKENS_FILE: &str = "File of whitespace-separated token ids, instead of text";
const TOKENS: &str = "Number of tokens to use, from the start of the text";

static FILE_KEYS: [FileKey; 22] = [
    key("", "question", Text, "Question that the experiment answers, in one sentence"),
    key("", "rounds", Whole(1, 10_000), ROUNDS),
    key(
        "",
        "gpus",
        Whole(1, MAX_GPUS),
        "Keep only combinations with TP x PP x DP equal to this, and EP 1, TP or DP [default: all]",
    ),
    key("workload", "rounds", Whole(1, 10_000), ROUNDS),
    key("model", "name", Text, "Built-in model shape"),
    key("model", "path", Directory, "HF directory, relative to the experiment file"),
    key("links", "on", Link, "Link for p2p on"),
    key("links", "off", Link, "Link for p2p off"),
    key("evaluate", "text", File, TEXT),
    key("evaluate", "tokens_file", File, TOKENS_FILE),
    key("evaluate", "context", Whole(2, MAX_TOKENS), "Tokens per window [default: 512]"),
    key("evaluate", "tokens", Whole(1, MAX_TOKENS), TOKENS),
    key("adapt", "text", File, TEXT),
    key("adapt", "tokens_file", File, TOKENS_FILE),
    key("adapt", "tokens", Whole(1, MAX_TOKENS), TOKENS),
    key("adapt", "steps", Whole(1, MAX_TOKENS), "Training steps"),
    key("adapt", "batch", Whole(1, MAX_TOKENS), "Windows per step [default: 8]"),
    key("adapt", "context", Whole(2, MAX_TOKENS), "Tokens per window [default: 256]"),
    key("adapt", "lr", Positive, "Peak learning rate"),
    key("adapt", "distil", Positive, "Weight of the KL to the unconverted model in the loss"),
    key(
        "adapt",
        "layers",
        Words(&["all", "converted"]),
        "Layers to train in a checkpoint [default: converted]",
    ),
    key("adapt", "seeds", Seeds, "Seeds, one training each [default: 0]"),
];

pub(super) fn file_key(table: &str, name: &str) -> Option<&'static FileKey> {
    FILE_KEYS.iter().find(|key| key.table == table && key.name == name)
}

pub(super) fn is_table(name: &str) -> bool {
    TABLES.iter().any(|(table, _)| *table == name)
}

/// Names valid in a table; of the whole file for the top (`""`).
pub(super) fn valid_names(table: &str) -> Vec<&'static str> {
    let mut names: Vec<&str> =
        FILE_KEYS.iter().filter(|key| key.table == table).map(|key| key.name).collect();
    let options = OPTIONS.iter().map(|option| option.name);
    match table {
        "" => {
            names.extend(TABLES.map(|(table, _)| table));
            names.extend(options.filter(|name| *name != "model"));
        }
        "workload" => names.extend(options),
        "grid" => names.extend(options.chain(["env.NAME", "set.KEY"])),
        _ => {}
    }
    names
}

impl FileKey {
    fn schema(&self) -> Value {
        let mut schema = match self.accepts {
            Text | Link | Directory | File => json!({ "type": "string" }),
            Words(words) => json!({ "enum": words }),
            Whole(least, most) => json!({ "type": "integer", "minimum": least, "maximum": most }),
            Positive => json!({ "type": "number", "exclusiveMinimum": 0 }),
            Seeds => json!({ "type": "array", "items": { "type": "integer", "minimum": 0 } }),
        };
        schema["description"] = self.about.into();
        schema
    }
}

/// JSON schema of experiment files, for editors. The check's errors are better than those of a schema.
pub fn experiment_schema() -> Value {
    let mut file = properties("");
    for (name, about) in TABLES.iter().filter(|(name, _)| !is_pairs(name)) {
        let table = object(about, properties(name).into());
        let schema =
            if *name == "model" { json!({ "anyOf": [{ "type": "string" }, table] }) } else { table };
        file.insert((*name).to_owned(), schema);
    }
    let mut schema = object("Experiment: a question and the grid of cells that answers it", file.into());
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "Experiment".into();
    schema
}

/// Schemas by key of a table; of the whole file for the top (`""`).
fn properties(table: &str) -> Map<String, Value> {
    let mut all = Map::new();
    if matches!(table, "" | "workload" | "grid") {
        let schema = |option: &OptionEntry| match table {
            "grid" => one_or_many(&option.schema()),
            _ => option.schema(),
        };
        all.extend(OPTIONS.iter().map(|option| (option.name.to_owned(), schema(option))));
    }
    if matches!(table, "" | "grid") {
        let values = one_or_many(&json!({ "type": ["string", "number", "boolean"] }));
        for (name, about) in TABLES.iter().filter(|(name, _)| is_pairs(name)) {
            let schema =
                json!({ "type": "object", "additionalProperties": values, "description": about });
            all.insert((*name).to_owned(), schema);
        }
    }
    let keys = FILE_KEYS.iter().filter(|key| key.table == table);
    all.extend(keys.map(|key| (key.name.to_owned(), key.schema())));
    all
}

/// True for tables of variables, whose names are free.
fn is_pairs(table: &str) -> bool {
    matches!(table, "env" | "set")
}

fn object(about: &str, properties: Value) -> Value {
    json!({ "type": "object", "description": about, "properties": properties, "additionalProperties": false })
}

fn one_or_many(one: &Value) -> Value {
    json!({ "anyOf": [one, { "type": "array", "items": one }] })
}
