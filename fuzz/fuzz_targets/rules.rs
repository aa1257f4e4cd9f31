//! Any text is a rule file or an error that names its place; rules that parse classify any name.

#![no_main]

use ladderscope::trace::rules::Rules;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(error) = Rules::parse("fuzz.toml", text) {
        assert!(error.to_string().contains("fuzz.toml"), "{error}");
    }
});
