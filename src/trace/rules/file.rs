//! Rule files: TOML with patterns for kernel names.
//!
//! In a pattern, `*` matches any text, every other character itself: C++ names are full of characters that are
//! special in regular expressions. Rules may match the function alone, without return type, template arguments
//! and parameters: `void at::native::reduce_kernel<512, 1, at::native::ReduceOp<…>>(…)` becomes
//! `at::native::reduce_kernel`, so they are not misled by the types of its arguments.

use std::path::Path;

use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::OperationKind;
use base::error::{Error, Result};
use base::input::InputKind;

pub const BUILT_IN: [(&str, &str); 3] = [
    ("default", include_str!("default.toml")),
    ("nccl-name", include_str!("nccl-name.toml")),
    ("hta", include_str!("hta.toml")),
];

/// Class that a rule assigns to operations.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "What")]
pub enum RuleClass {
    /// Moves data between ranks: a collective, send or receive.
    Communication,
    /// Copies or fills memory of one rank.
    Memory,
    /// Computes; also the default for operations that no rule matches.
    Compute,
    /// None of these; keeps the device busy only.
    Other,
}

impl RuleClass {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Communication => "communication",
            Self::Memory => "memory",
            Self::Compute => "compute",
            Self::Other => "other",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub name: String,
    pub what: RuleClass,
    /// Kind of matching operations.
    pub kind: OperationKind,
    /// True if patterns match the function only, not the whole name.
    pub(super) function_only: bool,
    pub(super) patterns: Vec<Glob>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// `default`, `nccl-name`, `hta`, or the path of the file.
    pub name: String,
    /// True if copies and fills of the profiler are memory, regardless of their names.
    pub memory_by_category: bool,
    /// True if a kernel's arguments ("Collective name") decide when no rule matches.
    pub arguments: bool,
    /// Rules; the first match decides.
    pub rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    #[serde(default, rename = "about")]
    _about: String,
    #[serde(default, rename = "match")]
    look_at: LookAt,
    #[serde(default = "yes")]
    memory_by_category: bool,
    #[serde(default = "yes")]
    arguments: bool,
    extends: Option<Spanned<String>>,
    #[serde(default, rename = "rule")]
    rules: Vec<RuleText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    name: Spanned<String>,
    what: RuleClass,
    kind: Option<Spanned<String>>,
    patterns: Spanned<Vec<Spanned<String>>>,
    #[serde(default)]
    ignore_case: bool,
    #[serde(rename = "match")]
    look_at: Option<LookAt>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum LookAt {
    #[default]
    Function,
    Name,
}

fn yes() -> bool {
    true
}

impl Default for Rules {
    fn default() -> Self {
        // The text is part of the program and a test parses it, so there is no error to report to a
        // user.
        Self::parse("default", BUILT_IN[0].1).unwrap_or_else(|_| Self {
            name: "default".into(),
            memory_by_category: true,
            arguments: true,
            rules: Vec::new(),
        })
    }
}

impl Rules {
    /// Loads built-in rules by name, or a rule file.
    ///
    /// # Errors
    ///
    /// Returns an input error for unknown rules, with the nearest name, or for an invalid file, with
    /// line and column.
    pub fn load(name_or_file: &str) -> Result<Self> {
        if let Some((name, text)) = BUILT_IN.iter().find(|(name, _)| *name == name_or_file) {
            return Self::parse(name, text);
        }
        let path = Path::new(name_or_file);
        if !path.exists() {
            let names = BUILT_IN.map(|(name, _)| name);
            return Err(match Error::unknown("rules", name_or_file, names) {
                Error::Input { message, help } => Error::Input {
                    message: format!("{message}, and no such file exists"),
                    help: help.map(|help| format!("{help}, or the path of a rule file (TOML)")),
                },
                other => other,
            });
        }
        Self::parse(name_or_file, &InputKind::RULES.text(path)?)
    }

    /// Parses rules; `file` is their name in errors.
    ///
    /// # Errors
    ///
    /// Returns an input error with `file`, line and column.
    pub fn parse(file: &str, text: &str) -> Result<Self> {
        let parsed: FileText = toml::from_str(text).map_err(|error| Error::toml(file, text, &error))?;
        let wrong =
            |span, message: String, help: &str| Error::at(file, text, span, message, Some(help.into()));
        let mut rules: Vec<Rule> = Vec::with_capacity(parsed.rules.len());
        for rule in parsed.rules {
            let name = rule.name.get_ref().trim();
            if name.is_empty() || rules.iter().any(|other| other.name == name) {
                let message = format!("the rule's name '{name}' is empty or taken");
                return Err(wrong(rule.name.span(), message, "use a unique name per rule"));
            }
            if rule.patterns.get_ref().is_empty() {
                let message = format!("rule '{name}' has no patterns: it would match nothing");
                return Err(wrong(
                    rule.patterns.span(),
                    message,
                    "patterns = [\"nccl*\", \"*::all_reduce*\"]",
                ));
            }
            for pattern in rule.patterns.get_ref() {
                if pattern.get_ref().trim_matches('*').is_empty() {
                    let message = format!("pattern '{}' matches everything", pattern.get_ref());
                    return Err(wrong(
                        pattern.span(),
                        message,
                        "add part of the kernel's name to the stars",
                    ));
                }
            }
            let function_only = matches!(rule.look_at.unwrap_or(parsed.look_at), LookAt::Function);
            let texts = rule.patterns.get_ref().iter();
            rules.push(Rule {
                name: name.to_owned(),
                what: rule.what,
                kind: kind(&rule, &wrong)?,
                function_only,
                patterns: texts.map(|pattern| Glob::new(pattern.get_ref(), rule.ignore_case)).collect(),
            });
        }
        if let Some(base) = &parsed.extends {
            let names = BUILT_IN.map(|(name, _)| name);
            let Some((name, base_text)) = BUILT_IN.iter().find(|(name, _)| name == base.get_ref())
            else {
                return Err(match Error::unknown("rules to extend", base.get_ref(), names) {
                    Error::Input { message, help } => Error::at(file, text, base.span(), message, help),
                    other => other,
                });
            };
            // A user's rule may have the name of a built-in one; it comes first, so it decides.
            rules.extend(Self::parse(name, base_text)?.rules);
        }
        if rules.is_empty() {
            return Err(Error::input_help(
                format!("{file}: no rules"),
                "add [[rule]] tables, or extends = \"default\"",
            ));
        }
        let (memory_by_category, arguments) = (parsed.memory_by_category, parsed.arguments);
        Ok(Self { name: file.to_owned(), memory_by_category, arguments, rules })
    }

    pub fn is_default(&self) -> bool {
        self.name == BUILT_IN[0].0
    }
}

fn kind(
    rule: &RuleText,
    wrong: &dyn Fn(std::ops::Range<usize>, String, &str) -> Error,
) -> Result<OperationKind> {
    let Some(text) = &rule.kind else {
        return Ok(match rule.what {
            RuleClass::Communication => OperationKind::Collective,
            RuleClass::Memory => OperationKind::Memcpy,
            RuleClass::Compute => OperationKind::Kernel,
            RuleClass::Other => OperationKind::Other,
        });
    };
    let (span, text) = (text.span(), text.get_ref());
    let kind = OperationKind::from(text.as_str());
    let (right, help) = match rule.what {
        RuleClass::Memory => (kind.is_memory(), "memory is of kind \"memcpy\" or \"memset\""),
        RuleClass::Other => {
            (kind == OperationKind::Other, "leave the kind out: what is neither has none")
        }
        _ => (
            !kind.is_memory()
                && kind != OperationKind::Other
                && !text.is_empty()
                && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'),
            "a kind is a word of a-z, 0-9 and _: \"all_reduce\"; copies and fills are what = \"memory\"",
        ),
    };
    if right {
        return Ok(kind);
    }
    let message =
        format!("rule '{}': kind '{text}' is not one of {}", rule.name.get_ref(), rule.what.as_str());
    Err(wrong(span, message, help))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    /// Texts between the stars, one more than there are stars.
    parts: Vec<String>,
    ignore_case: bool,
}

impl Glob {
    pub fn new(pattern: &str, ignore_case: bool) -> Self {
        let fold = |part: &str| if ignore_case { part.to_ascii_lowercase() } else { part.to_owned() };
        Self { parts: pattern.split('*').map(fold).collect(), ignore_case }
    }

    /// True if the whole name matches. `folded` is the name in ASCII lower case.
    pub fn matches(&self, name: &str, folded: &str) -> bool {
        let name = if self.ignore_case { folded } else { name };
        let (Some(first), [.., last]) = (self.parts.first(), self.parts.as_slice()) else {
            return false;
        };
        if self.parts.len() == 1 {
            return name == first;
        }
        let Some(rest) = name.strip_prefix(first.as_str()) else { return false };
        let Some(mut rest) = rest.strip_suffix(last.as_str()) else { return false };
        // The leftmost match of each part leaves the most room for the next ones.
        self.parts[1..self.parts.len() - 1].iter().all(|part| match rest.find(part.as_str()) {
            Some(at) => {
                rest = &rest[at + part.len()..];
                true
            }
            None => false,
        })
    }
}

/// Spellings of the anonymous namespace, which are removed.
const UNNAMED: [&str; 4] =
    ["(anonymous namespace)::", "<unnamed>::", "{anonymous}::", "(anonymous_namespace)::"];

/// Qualified name of the function; the whole name if none is found.
pub fn function(name: &str) -> String {
    let mut found = String::new();
    let mut depth = 0u32;
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = UNNAMED.iter().find_map(|unnamed| rest.strip_prefix(unnamed)) {
            rest = after;
            continue;
        }
        match c {
            // parameters; an opening parenthesis before any name belongs to the return type
            '(' if depth == 0 && found.ends_with(|c: char| c != ' ') => break,
            '<' | '(' => depth += 1,
            '>' | ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 => found.push(c),
            _ => {}
        }
        rest = &rest[c.len_utf8()..];
    }
    match found.trim_end().rsplit(' ').next() {
        Some(last) if !last.is_empty() => last.to_owned(),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, name: &str, ignore_case: bool) -> bool {
        Glob::new(pattern, ignore_case).matches(name, &name.to_ascii_lowercase())
    }

    #[test]
    fn a_star_stands_for_anything_and_the_rest_for_itself() {
        assert!(matches("nccl*Kernel*", "ncclDevKernel_AllReduce(x)", false));
        assert!(!matches("nccl*Kernel*", "void ncclDevKernel_AllReduce(x)", false));
        assert!(matches("*[lambda(*", "f<[lambda(int)]>", false));
        assert!(!matches("a?c", "abc", false));
        assert!(!matches("ab*ba", "aba", false), "prefix and suffix may not share characters");
        assert!(matches("*ALLREDUCE*", "oneShotAllReduceKernel", true));
        assert!(!matches("*ALLREDUCE*", "oneShotAllReduceKernel", false));
    }

    /// Match of a pattern by its definition, in exponential time: the tests compare with it.
    fn slowly(pattern: &[u8], name: &[u8]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some((b'*', rest)) => (0..=name.len()).any(|at| slowly(rest, &name[at..])),
            Some((c, rest)) => name.first() == Some(c) && slowly(rest, &name[1..]),
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(pattern in "[ab*]{0,7}", name in "[ab]{0,9}") {
            prop_assert_eq!(matches(&pattern, &name, false), slowly(pattern.as_bytes(), name.as_bytes()));
        }
    }

    #[test]
    fn a_function_is_found_in_the_names_that_profilers_write() {
        for (name, expected) in [
            (
                "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<(unsigned long)4096>)",
                "ncclDevKernel_SendRecv",
            ),
            (
                "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, unsig",
                "multimem_all_reduce_kernel",
            ),
            (
                "void at::native::<unnamed>::CatArrayBatchedCopy<at::native::<unnamed>::Opaque<2>, 1>(char *)",
                "at::native::CatArrayBatchedCopy",
            ),
            (
                "std::enable_if<!(false), void>::type internal::gemvx::kernel<int>(int)",
                "internal::gemvx::kernel",
            ),
            (
                "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN",
                "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN",
            ),
            ("", ""),
            ("<>", "<>"),
        ] {
            assert_eq!(function(name), expected);
        }
    }

    proptest! {
        #[test]
        fn any_name_has_a_function(name in "[a-z:<>() ,*é]{0,40}") {
            prop_assert_eq!(function(&name).is_empty(), name.is_empty());
        }
    }
}
