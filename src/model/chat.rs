//! Chat templates: Jinja templates of checkpoints that turn messages into one text, like Hugging Face's
//! `apply_chat_template`.

use std::path::{Path, PathBuf};

use minijinja::value::{Kwargs, Value as Jinja};
use minijinja::{Environment, ErrorKind, context};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter};
use serde_json::{Serializer, Value};

use base::error::{Error, Result};
use base::input::InputKind;

/// Files that may contain a template; the first one found is used.
const TEMPLATE_FILES: [&str; 2] = ["chat_template.jinja", "tokenizer_config.json"];

/// Special tokens available to templates, by key in `tokenizer_config.json` and
/// `special_tokens_map.json`.
const SPECIAL_TOKENS: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChatMessage<'a> {
    /// `system`, `user` or `assistant`.
    pub role: &'a str,
    pub content: &'a str,
}

#[derive(Debug)]
pub struct ChatTemplate {
    path: PathBuf,
    source: String,
    tokens: Vec<(&'static str, String)>,
}

impl ChatTemplate {
    /// Reads the template of an HF directory: `chat_template.jinja`, else `chat_template` in
    /// `tokenizer_config.json` (of several, the one named `default`).
    ///
    /// # Errors
    ///
    /// Returns an input error for a missing template, several without a default, or invalid JSON.
    pub fn open(dir: &Path) -> Result<Self> {
        let [file, config] = TEMPLATE_FILES.map(|name| dir.join(name));
        let [config_json, map] = [&config, &dir.join("special_tokens_map.json")].map(|path| json(path));
        let (config_json, map) = (config_json?, map?);
        let token = |name| {
            let text_in = |json: &Value| {
                let token = json.get(name)?;
                token.as_str().or_else(|| token.get("content")?.as_str()).map(str::to_owned)
            };
            Some((name, text_in(&config_json).or_else(|| text_in(&map))?))
        };
        let tokens = SPECIAL_TOKENS.into_iter().filter_map(token).collect();
        if file.is_file() {
            let source = InputKind::CONFIG.text(&file)?;
            return Ok(Self { path: file, source, tokens });
        }
        let source = of_config(&config, config_json.get("chat_template"))?.ok_or_else(|| {
            Error::input_help(
                format!("{} has no chat template ({})", dir.display(), TEMPLATE_FILES.join(", ")),
                "omit --chat, and write the prompt in the model's own format",
            )
        })?;
        Ok(Self { path: config, source, tokens })
    }

    /// Renders a conversation, up to the start of the model's answer.
    ///
    /// # Errors
    ///
    /// Returns an input error with the template's line for a syntax error or `raise_exception`.
    pub fn render(&self, messages: &[ChatMessage<'_>]) -> Result<String> {
        let wrong = |error: minijinja::Error| {
            let line = error.line().map_or(String::new(), |line| format!(", line {line}"));
            let why = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
            Error::input(format!("{}: chat template{line}: {why}", self.path.display()))
        };
        let mut jinja = Environment::new();
        jinja.set_trim_blocks(true);
        jinja.set_lstrip_blocks(true);
        jinja.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        jinja.add_filter("tojson", to_json);
        jinja.add_function("raise_exception", |why: String| -> Result<String, minijinja::Error> {
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, why))
        });
        jinja.add_function("strftime_now", |format: String| {
            let now = jiff::fmt::strtime::format(&format, &jiff::Zoned::now());
            now.map_err(|e| minijinja::Error::new(ErrorKind::InvalidOperation, e.to_string()))
        });
        for (name, token) in &self.tokens {
            jinja.add_global(*name, token.clone());
        }
        let source = without_generation_tags(&self.source);
        let template = jinja.template_from_str(&source).map_err(wrong)?;
        let context = context! { messages => messages, add_generation_prompt => true };
        template.render(context).map_err(wrong)
    }
}

/// Parses a JSON file; null if missing.
fn json(path: &Path) -> Result<Value> {
    if !path.is_file() {
        return Ok(Value::Null);
    }
    let bytes = InputKind::CONFIG.bytes(path)?;
    serde_json::from_slice(&bytes)
        .map_err(|e| Error::input(format!("{}: not valid JSON: {e}", path.display())))
}

/// Template from a config's key: a text, or the default in a list of `{"name", "template"}`.
fn of_config(path: &Path, value: Option<&Value>) -> Result<Option<String>> {
    let wrong = |what: String| {
        let help = "\"chat_template\" is a text, or a list of {\"name\": ..., \"template\": ...}";
        Error::input_help(format!("{}: {what}", path.display()), help)
    };
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(Value::Array(list)) => {
            let text = |one: &Value, key: &str| Some(one.get(key)?.as_str()?.to_owned());
            let named: Option<Vec<(String, String)>> =
                list.iter().map(|one| Some((text(one, "name")?, text(one, "template")?))).collect();
            let named =
                named.ok_or_else(|| wrong("\"chat_template\" has an entry of another kind".into()))?;
            match named
                .iter()
                .find(|(name, _)| name == "default")
                .or(named.first().filter(|_| named.len() == 1))
            {
                Some((_, template)) => Ok(Some(template.clone())),
                None => {
                    let names: Vec<&str> = named.iter().map(|(name, _)| name.as_str()).collect();
                    Err(wrong(format!(
                        "none of the chat templates is the default: {}",
                        names.join(", ")
                    )))
                }
            }
        }
        Some(other) => Err(wrong(format!("\"chat_template\" is {other}"))),
    }
}

/// Replaces `{% generation %}` and `{% endgeneration %}`, which mark the assistant's tokens for
/// training, with blocks without effect.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        out += before;
        let end = tag.find("%}").map_or(tag.len(), |end| end + 2);
        let (tag, after) = tag.split_at(end);
        let name = tag.trim_start_matches("{%").trim_end_matches("%}");
        let name = name.trim_start_matches(['-', '+']).trim_end_matches(['-', '+']).trim();
        out += &match name {
            "generation" => tag.replacen(name, "if true", 1),
            "endgeneration" => tag.replacen(name, "endif", 1),
            _ => tag.to_owned(),
        };
        rest = after;
    }
    out + rest
}

/// `tojson` like Hugging Face: Python's `json.dumps` without HTML escaping.
fn to_json(value: &Jinja, options: Kwargs) -> Result<Jinja, minijinja::Error> {
    let indent: Option<usize> = options.get("indent")?;
    let mut text = Vec::new();
    let written = match indent {
        Some(indent) => {
            let indent = " ".repeat(indent);
            let pretty = PrettyFormatter::with_indent(indent.as_bytes());
            value.serialize(&mut Serializer::with_formatter(&mut text, pretty))
        }
        None => value.serialize(&mut Serializer::with_formatter(&mut text, Python)),
    };
    written.map_err(|e| minijinja::Error::new(ErrorKind::BadSerialization, e.to_string()))?;
    Ok(Jinja::from_safe_string(String::from_utf8_lossy(&text).into_owned()))
}

/// JSON with Python's spaces after commas and colons.
struct Python;

impl Formatter for Python {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(&mut self, out: &mut W) -> std::io::Result<()> {
        out.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const USER: ChatMessage<'_> = ChatMessage { role: "user", content: "  Why <so>? " };
    const SYSTEM: ChatMessage<'_> = ChatMessage { role: "system", content: "Be brief." };

    /// A directory with these files.
    fn directory(files: &[(&str, String)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    fn rendered(template: &str, messages: &[ChatMessage<'_>]) -> Result<String> {
        let config = json!({
            "bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>", "chat_template": template,
        });
        let dir = directory(&[("tokenizer_config.json", config.to_string())]);
        ChatTemplate::open(dir.path())?.render(messages)
    }

    /// Cut down from the templates of published models, with what each asks of Jinja.
    #[test]
    fn templates_of_published_models_render_as_theirs() {
        let chatml = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
        let text = rendered(chatml, &[SYSTEM, USER]).unwrap();
        assert_eq!(
            text,
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n  Why <so>? <|im_end|>\n<|im_start|>assistant\n"
        );
        // llama 3: trimming, a default that is set, whitespace control, dates
        let llama = "{{- bos_token }}\n{%- if not date_string is defined %}\n    {%- if strftime_now is defined %}\n        {%- set date_string = strftime_now(\"%d %b %Y\") %}\n    {%- else %}\n        {%- set date_string = \"26 Jul 2024\" %}\n    {%- endif %}\n{%- endif %}\n{%- if messages[0]['role'] == 'system' %}\n    {%- set system_message = messages[0]['content']|trim %}\n    {%- set messages = messages[1:] %}\n{%- else %}\n    {%- set system_message = \"\" %}\n{%- endif %}\n{{- \"<|system|>\" }}{{- system_message }}{{- date_string|length > 9 }}\n{%- for message in messages %}\n    {%- if not (message.role == 'ipython' or 'tool_calls' in message) %}\n    {{- '<|' + message['role'] + '|>\\n\\n'+ message['content'] | trim + '<|eot|>' }}\n    {%- endif %}\n{%- endfor %}\n{%- if add_generation_prompt %}\n    {{- '<|assistant|>' }}\n{%- endif %}\n";
        assert_eq!(
            rendered(llama, &[SYSTEM, USER]).unwrap().to_lowercase(),
            "<s><|system|>be brief.true<|user|>\n\nwhy <so>?<|eot|><|assistant|>"
        );
        // qwen 3: reversed slices, namespaces, methods of Python's strings
        let qwen = "{%- set ns = namespace(last=messages|length - 1, multi=true) %}\n{%- for message in messages[::-1] %}\n    {%- set index = (messages|length - 1) - loop.index0 %}\n    {%- if ns.multi and message.role == \"user\" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}\n        {%- set ns.multi = false %}\n        {%- set ns.last = index %}\n    {%- endif %}\n{%- endfor %}\n{%- for message in messages %}\n    {{- loop.index0 ~ message.content.strip().split('<')[-1].lstrip('s').rstrip('?') }}\n    {%- if loop.last %}{% break %}{% endif %}\n{%- endfor %}\n{{- ns.last }}{%- if enable_thinking is defined and enable_thinking is false %}no{%- endif %}";
        assert_eq!(rendered(qwen, &[SYSTEM, USER]).unwrap(), "0Be brief.1o>1");
        // mistral: turns are counted, and what is refused says why
        let mistral = "{{ bos_token }}{% for message in messages %}\n{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\n{{ raise_exception('Conversation roles must alternate') }}\n{% endif %}[INST]{{ message['content'].strip() }}[/INST]{% endfor %}";
        assert_eq!(rendered(mistral, &[USER]).unwrap(), "<s>[INST]Why <so>?[/INST]");
        let refused = rendered(mistral, &[SYSTEM, USER]).unwrap_err().to_string();
        assert!(
            refused.contains(
                "tokenizer_config.json: chat template, line 3: Conversation roles must alternate"
            ),
            "{refused}"
        );
        // JSON as Python writes it, and the marks of trainers
        let marked = "{% generation %}{{ messages[0]|tojson }}{%- endgeneration -%} {{ messages|tojson(indent=2) }}";
        assert_eq!(
            rendered(marked, &[SYSTEM]).unwrap(),
            "{\"role\": \"system\", \"content\": \"Be brief.\"}[\n  {\n    \"role\": \"system\",\n    \"content\": \"Be brief.\"\n  }\n]"
        );
    }

    #[test]
    fn a_file_of_its_own_counts_first_and_of_several_the_default() {
        let config = json!({"chat_template": "config"}).to_string();
        let both = directory(&[
            ("tokenizer_config.json", config),
            ("chat_template.jinja", "{{ eos_token }}file".into()),
            ("special_tokens_map.json", json!({"eos_token": {"content": "<e>"}}).to_string()),
        ]);
        assert_eq!(ChatTemplate::open(both.path()).unwrap().render(&[USER]).unwrap(), "<e>file");
        let list = |names: &[&str]| {
            let one = |name: &&str| json!({"name": name, "template": format!("the {name}")});
            let config = json!({"chat_template": names.iter().map(one).collect::<Vec<_>>()});
            let dir = directory(&[("tokenizer_config.json", config.to_string())]);
            ChatTemplate::open(dir.path())?.render(&[USER])
        };
        assert_eq!(list(&["rag", "default"]).unwrap(), "the default");
        assert_eq!(list(&["rag"]).unwrap(), "the rag");
        assert!(list(&["rag", "tool_use"]).unwrap_err().to_string().contains("rag, tool_use"));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named_with_its_line() {
        let none = directory(&[("tokenizer_config.json", "{}".into())]);
        let error = ChatTemplate::open(none.path()).unwrap_err();
        assert!(
            error.to_string().contains("no chat template (chat_template.jinja, tokenizer_config.json)")
        );
        assert_eq!(error.exit_code(), 2);
        for (template, wanted) in [
            ("a\n{% if %}", "chat template, line 2: "),
            ("{% for m in messages %}\n\n{{ m.content.nothing() }}{% endfor %}", "line 3: "),
            ("{{ messages[0].content | nothing }}", "line 1: "),
        ] {
            let error = rendered(template, &[USER]).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
        let broken = directory(&[("tokenizer_config.json", "{".into())]);
        assert!(ChatTemplate::open(broken.path()).unwrap_err().to_string().contains("not valid JSON"));
        let number = directory(&[("tokenizer_config.json", r#"{"chat_template": 3}"#.into())]);
        assert!(
            ChatTemplate::open(number.path())
                .unwrap_err()
                .to_string()
                .contains("\"chat_template\" is 3")
        );
    }
}
