//! JSON schema of experiment files, for editors (`ladderscope schema experiment`). Describes the input of
//! [`super::draft`], whose errors are better than those of a schema.

use serde_json::{Map, Value, json};

use table::options::{OPTIONS, OptionEntry, PAIRS, Pairs};

pub fn experiment_schema() -> Value {
    let options = |of: &dyn Fn(&OptionEntry) -> Value| -> Map<String, Value> {
        OPTIONS.iter().map(|option| (option.name.to_owned(), of(option))).collect()
    };
    let variables = |properties: &mut Map<String, Value>| {
        let scalar = json!({ "type": ["string", "number", "boolean"] });
        for Pairs { name, help, .. } in &PAIRS {
            let about = format!("{help}; a list of values makes an axis");
            properties.insert(
                (*name).to_owned(),
                json!({ "type": "object", "additionalProperties": one_or_many(&scalar), "description": about }),
            );
        }
    };
    let rounds = json!({
        "type": "integer", "minimum": 1, "maximum": super::draft::MAX_ROUNDS,
        "description": "Rounds over all cells, interleaved; each run is a fresh process [default: 3, simulated: 1]",
    });
    let link = json!({ "type": "string" });
    let model = json!({ "anyOf": [{ "type": "string" }, table("Model: name or path", json!({
        "name": { "type": "string", "description": "Built-in model shape" },
        "path": { "type": "string", "description": "HF directory, relative to the experiment file" },
    }))]});

    let mut grid = options(&|option| one_or_many(&option.schema()));
    variables(&mut grid);
    let mut workload = options(&OptionEntry::schema);
    workload.insert("rounds".into(), rounds.clone());
    let mut file = options(&OptionEntry::schema);
    variables(&mut file);
    file.insert(
        "question".into(),
        json!({
            "type": "string", "description": "Question that the experiment answers, in one sentence",
        }),
    );
    file.insert("rounds".into(), rounds);
    file.insert("model".into(), model);
    file.insert(
        "workload".into(),
        table("Workload and other options shared by all cells", workload.into()),
    );
    let about =
        "Axes of the grid: options with a value or a list of values; the last axis varies fastest";
    file.insert("grid".into(), table(about, grid.into()));
    let about = "Links for p2p on and off: native, p2p-on, p2p-off or emulated:alpha_us=20,gb_s=50";
    file.insert("links".into(), table(about, json!({ "on": link, "off": link })));

    let count =
        |least: u32, about: &str| json!({ "type": "integer", "minimum": least, "description": about });
    let about = "Quality evaluation of the cells' models, on the cpu after all cells";
    file.insert(
        "evaluate".into(),
        table(about, json!({
            "text": { "type": "string", "description": "Text file, relative to the experiment file [default: the built-in text]" },
            "tokens_file": { "type": "string", "description": "File of whitespace-separated token ids, instead of text" },
            "context": count(2, "Tokens per window [default: 512]"),
            "tokens": count(1, "Number of tokens to use, from the start of the text"),
        })),
    );

    let about = "Training of the cells' models, on the cpu after all cells: one training per architecture and seed";
    let number = |about: &str| json!({ "type": "number", "exclusiveMinimum": 0, "description": about });
    file.insert(
        "adapt".into(),
        table(about, json!({
            "text": { "type": "string", "description": "Text file, relative to the experiment file [default: the built-in text]" },
            "tokens_file": { "type": "string", "description": "File of whitespace-separated token ids, instead of text" },
            "tokens": count(1, "Number of tokens to use, from the start of the text"),
            "steps": count(1, "Training steps"),
            "batch": count(1, "Windows per step [default: 8]"),
            "context": count(2, "Tokens per window [default: 256]"),
            "lr": number("Peak learning rate"),
            "distil": number("Weight of the KL to the unconverted model in the loss"),
            "layers": { "enum": ["all", "converted"], "description": "Layers to train in a checkpoint [default: converted]" },
            "seeds": { "type": "array", "items": { "type": "integer", "minimum": 0 }, "description": "Seeds, one training each [default: 0]" },
        })),
    );

    let about = "Experiment: a question and the grid of cells that answers it";
    let mut schema = table(about, file.into());
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "Experiment".into();
    schema
}

fn table(about: &str, properties: Value) -> Value {
    json!({
        "type": "object", "description": about, "properties": properties, "additionalProperties": false,
    })
}

fn one_or_many(one: &Value) -> Value {
    json!({ "anyOf": [one, { "type": "array", "items": one }] })
}
