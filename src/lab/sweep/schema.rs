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
        "description": "Passes over the cells, cells interleaved, each run a fresh process [default: 3, simulated: 1]",
    });
    let link = json!({ "type": "string" });
    let model = json!({ "anyOf": [{ "type": "string" }, table("The model", json!({
        "name": { "type": "string", "description": "A built-in shape" },
        "path": { "type": "string", "description": "An HF directory; relative to the experiment file" },
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
            "type": "string", "description": "What the experiment asks, in a sentence",
        }),
    );
    file.insert("rounds".into(), rounds);
    file.insert("model".into(), model);
    file.insert(
        "workload".into(),
        table("What is decoded; takes every option of a cell", workload.into()),
    );
    let about = "Axes: an option of a cell with a value or a list of values; the last varies fastest";
    file.insert("grid".into(), table(about, grid.into()));
    let about = "What p2p on and off mean: native, p2p-on, p2p-off or emulated:alpha_us=20,gb_s=50";
    file.insert("links".into(), table(about, json!({ "on": link, "off": link })));

    let count =
        |least: u32, about: &str| json!({ "type": "integer", "minimum": least, "description": about });
    let about = "After the cells the quality of their models is evaluated, on the cpu";
    file.insert(
        "evaluate".into(),
        table(about, json!({
            "text": { "type": "string", "description": "A file of text; relative to the experiment file [default: the program's own text]" },
            "tokens_file": { "type": "string", "description": "A file of token ids separated by blanks, in place of a text" },
            "context": count(2, "Tokens of a window [default: 512]"),
            "tokens": count(1, "Use the text's first tokens alone"),
        })),
    );

    let about = "After the cells their models are trained, on the cpu: a training for each architecture and seed";
    let number = |about: &str| json!({ "type": "number", "exclusiveMinimum": 0, "description": about });
    file.insert(
        "adapt".into(),
        table(about, json!({
            "text": { "type": "string", "description": "A file of text; relative to the experiment file [default: the program's own text]" },
            "tokens_file": { "type": "string", "description": "A file of token ids separated by blanks, in place of a text" },
            "tokens": count(1, "Use the text's first tokens alone"),
            "steps": count(1, "Steps of a training"),
            "batch": count(1, "Windows of a step [default: 8]"),
            "context": count(2, "Tokens of a window [default: 256]"),
            "lr": number("The greatest learning rate"),
            "distil": number("How much KL to the unconverted model counts beside the tokens"),
            "layers": { "enum": ["all", "converted"], "description": "What is trained of a checkpoint [default: converted]" },
            "seeds": { "type": "array", "items": { "type": "integer", "minimum": 0 }, "description": "A training each [default: 0]" },
        })),
    );

    let about = "An experiment: a question, and the grid of cells that answers it";
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
