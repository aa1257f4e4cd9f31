//! Conversion between text and token ids with a checkpoint's `tokenizer.json`.

use std::fmt::Display;
use std::path::Path;

use serde_json::json;

use super::Model;
use base::error;
use base::error::{Error, Result};
use base::input::InputKind;

/// Tokenizer of a checkpoint (`tokenizer.json`), using Hugging Face's library.
#[derive(Debug)]
pub struct Tokenizer {
    /// Its file, for errors.
    source: String,
    tokenizer: tokenizers::Tokenizer,
}

impl Tokenizer {
    /// Tokenizer of a model: from its directory, or bytes for a built-in shape with a vocabulary of 256.
    ///
    /// # Errors
    /// Returns an input error for a missing or unreadable tokenizer.
    pub fn from_model(model: &Model) -> Result<Self> {
        match &model.dir {
            Some(dir) => Self::open(dir),
            None if has_byte_tokens(model) => {
                let source = "tokenizer of bytes".to_owned();
                let tokenizer = tokenizers::Tokenizer::from_bytes(bytes_json())
                    .map_err(|error| Error::failed(format!("{source}: {error}")))?;
                Ok(Self { source, tokenizer })
            }
            None => Err(Error::input_help(
                format!("{} is a built-in shape without a tokenizer", model.name),
                "pass token ids, or a shape with a byte vocabulary: mini, tiny",
            )),
        }
    }

    /// Reads `tokenizer.json` of an HF directory.
    ///
    /// # Errors
    /// Returns an input error for a missing or invalid file.
    pub fn open(dir: &Path) -> Result<Self> {
        let path = dir.join("tokenizer.json");
        if !path.is_file() {
            return Err(Error::input_help(
                format!("{} does not exist, so text cannot be tokenized", path.display()),
                "copy the model's tokenizer.json there, or pass ids with --prompt-tokens-file",
            ));
        }
        let bytes = InputKind::TOKENIZER.bytes(&path)?;
        let wrong = |why: String| {
            Error::input_help(
                format!("{}: not a tokenizer: {why}", path.display()),
                "the tokenizer.json that HF's fast tokenizers save",
            )
        };
        // the library panics on some invalid JSON, and on some JSON that is no tokenizer
        serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).map_err(|e| wrong(e.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|error| wrong(error.to_string()))?;
        // uses a function compiled in the library's own crate
        let opened =
            error::catch_panic_quietly(|| text.parse::<tokenizers::Tokenizer>()).map_err(wrong)?;
        let mut tokenizer = opened.map_err(|error| wrong(error.to_string()))?;
        // some files request truncation or padding, which is meant for training in batches
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|error| wrong(error.to_string()))?;
        Ok(Self { source: path.display().to_string(), tokenizer })
    }

    /// Tokenizes a text, adding special tokens of the tokenizer's post-processor.
    ///
    /// # Errors
    /// Returns a failure with the tokenizer's reason.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.encode_with(text, true)
    }

    /// Tokenizes a text without adding special tokens.
    ///
    /// # Errors
    /// Returns a failure with the tokenizer's reason.
    pub fn encode_plain(&self, text: &str) -> Result<Vec<u32>> {
        self.encode_with(text, false)
    }

    fn encode_with(&self, text: &str, special: bool) -> Result<Vec<u32>> {
        let encoding = self.attempt("encode the text", || self.tokenizer.encode(text, special))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Decodes token ids. Shows special tokens, so that text after an ignored end-of-text token does not
    /// look like a continuation. Skips ids without a token.
    ///
    /// # Errors
    /// Returns a failure with the tokenizer's reason.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        self.attempt("decode the ids", || self.tokenizer.decode(ids, false))
    }

    /// Calls the library, whose panics are failures too.
    fn attempt<T, E: Display>(&self, what: &str, call: impl FnOnce() -> Result<T, E>) -> Result<T> {
        let failed = |why: String| Error::failed(format!("{}: cannot {what}: {why}", self.source));
        error::catch_panic_quietly(call).map_err(failed)?.map_err(|error| failed(error.to_string()))
    }
}

/// True if a model's tokens are bytes: a built-in shape with a vocabulary of 256, without its own
/// tokenizer.
pub(super) fn has_byte_tokens(model: &Model) -> bool {
    model.dir.is_none() && model.shape.vocab == 256
}

/// `tokenizer.json` with bytes as tokens; each byte's value is its id.
pub(super) fn bytes_json() -> String {
    // GPT-2's characters for bytes, used in the vocabulary of byte-level tokenizers
    let mut further = 256u32..;
    let vocab: serde_json::Map<String, serde_json::Value> = (0..=255u8)
        .map(|byte| {
            let letter = match byte {
                b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => char::from(byte),
                _ => further.next().and_then(char::from_u32).unwrap_or_default(),
            };
            (letter.to_string(), byte.into())
        })
        .collect();
    let level = json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false,
    });
    // split into short words: nothing is merged, and long words would only use memory
    let split = json!({
        "type": "Split", "pattern": { "Regex": "(?s).{1,64}" }, "behavior": "Isolated", "invert": false,
    });
    let pre_tokenizer = json!({ "type": "Sequence", "pretokenizers": [split, level.clone()] });
    let json = json!({
        "version": "1.0", "added_tokens": [], "normalizer": null, "post_processor": null,
        "pre_tokenizer": pre_tokenizer, "decoder": level,
        "model": { "type": "BPE", "vocab": vocab, "merges": [] },
    });
    json.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words, a special token, and a post-processor that puts it first.
    const JSON: &str = r#"{
        "version": "1.0",
        "added_tokens": [{"id": 0, "content": "<s>", "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true}],
        "normalizer": null,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}},
        "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"<s>": 0, "<unk>": 1, "once": 2, "upon": 3},
            "unk_token": "<unk>"}
    }"#;

    fn with(json: &str) -> (tempfile::TempDir, Result<Tokenizer>) {
        let dir = tempfile::tempdir().expect("temporary directory");
        std::fs::write(dir.path().join("tokenizer.json"), json).expect("write");
        let tokenizer = Tokenizer::open(dir.path());
        (dir, tokenizer)
    }

    #[test]
    fn text_gets_its_special_tokens_and_comes_back_with_them() {
        let (_dir, tokenizer) = with(JSON);
        let tokenizer = tokenizer.expect("a tokenizer");
        assert_eq!(tokenizer.encode("once upon dragons").ok(), Some(vec![0, 2, 3, 1]));
        assert_eq!(tokenizer.encode_plain("once upon").ok(), Some(vec![2, 3]));
        assert_eq!(tokenizer.decode(&[2, 0, 3]).ok().as_deref(), Some("once <s> upon"));
    }

    #[test]
    fn a_file_that_asks_for_texts_to_be_cut_is_not_obeyed() {
        let cut = JSON.replacen(
            '{',
            r#"{"truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},"#,
            1,
        );
        let (_dir, tokenizer) = with(&cut);
        let ids = tokenizer.expect("a tokenizer").encode_plain("once upon once upon").expect("encodes");
        assert_eq!(ids, [2, 3, 2, 3]);
    }

    /// Llama 3's kind of tokenizer: its own splitting (with look-ahead), then byte-level BPE.
    #[test]
    fn llama_3s_splitting_is_obeyed() {
        let pattern = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
        let byte_level = serde_json::json!({"type": "ByteLevel", "add_prefix_space": false,
            "trim_offsets": true, "use_regex": false});
        let json = serde_json::json!({
            "version": "1.0", "added_tokens": [], "normalizer": null, "post_processor": null,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
                byte_level]},
            "decoder": byte_level,
            "model": {"type": "BPE", "ignore_merges": true,
                "vocab": {"1": 0, "11": 1, "111": 2, "1111": 3, "Ġ": 4, "a": 5, "Ġa": 6, "ĠĠ": 7},
                "merges": [["1", "1"], ["11", "1"], ["11", "11"], ["Ġ", "a"], ["Ġ", "Ġ"]]}
        });
        let (_dir, tokenizer) = with(&json.to_string());
        let tokenizer = tokenizer.expect("a tokenizer");
        // digits in threes, and the last of several blanks joins the word
        let ids = tokenizer.encode("1111   a").expect("encodes");
        assert_eq!(ids, [2, 0, 7, 6]);
        assert_eq!(tokenizer.decode(&ids).ok().as_deref(), Some("1111   a"));
    }

    #[test]
    fn a_missing_or_broken_file_is_named() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let missing = Tokenizer::open(dir.path()).expect_err("no file");
        assert!(missing.to_string().contains("tokenizer.json does not exist"), "{missing}");
        assert_eq!(missing.exit_code(), 2);
        // the library panics at these two: a decoder that is cut off, and one that is none
        let cut = JSON.replace("\"decoder\": null,", r#""decoder": {"type": "Re": null},"#);
        let none =
            JSON.replace("\"decoder\": null,", r#""decoder": {"type": "Sequence", "decoders": 7},"#);
        for json in ["", "{}", "[1, 2]", &JSON[..JSON.len() / 2], &cut, &none] {
            let (dir, broken) = with(json);
            let message = broken.expect_err("broken").to_string();
            assert!(message.starts_with(&*dir.path().to_string_lossy()), "{message}");
            assert!(message.contains("not a tokenizer"), "{message}");
        }
    }
}
