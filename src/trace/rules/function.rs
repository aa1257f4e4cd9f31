//! Extraction of the function from a demangled kernel name, without return type, template arguments and
//! parameters.
//!
//! `void at::native::reduce_kernel<512, 1, at::native::ReduceOp<…>>(…)` becomes
//! `at::native::reduce_kernel`. Rules that match the function are not misled by the types of its
//! arguments.

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
