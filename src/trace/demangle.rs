//! Demangling of C++ kernel names.

/// Floating-point types that the demangler cannot read, and types that it can, which stand in for them: mangled and
/// plain name. Kernels that use a stand-in itself get a wrong name.
const STAND_INS: [([&str; 2], [&str; 2]); 2] =
    [(["DF16b", "__bf16"], ["g", "__float128"]), (["DF16_", "_Float16"], ["e", "long double"])];

/// Name without C++'s mangling. A name that the demangler cannot read keeps its template arguments mangled.
pub(crate) fn demangled(name: String) -> String {
    if !name.starts_with("_Z") {
        return name;
    }
    let known = (STAND_INS.iter())
        .fold(name.clone(), |name, ([unreadable, _], [readable, _])| name.replace(unreadable, readable));
    let plain = |text: String| {
        STAND_INS.iter().fold(text, |text, ([_, name], [_, stand_in])| text.replace(stand_in, name))
    };
    let symbol = cpp_demangle::Symbol::new(&known).ok().and_then(|symbol| symbol.demangle().ok());
    symbol.map(plain).or_else(|| qualified(&name)).unwrap_or(name)
}

/// Namespaces and function of a mangled name, with its template arguments as they are: `a::kernel<Lb1E...>`.
fn qualified(name: &str) -> Option<String> {
    let rest = name.strip_prefix("_Z")?;
    let mut rest = rest.strip_prefix('N').unwrap_or(rest);
    let mut parts = Vec::new();
    while let Some(digits) = rest.find(|c: char| !c.is_ascii_digit()).filter(|digits| *digits > 0) {
        let end = digits.checked_add(rest[..digits].parse().ok()?)?;
        parts.push(rest.get(digits..end)?);
        rest = &rest[end..];
    }
    let arguments = rest.strip_prefix('I').map_or(String::new(), |rest| format!("<{rest}>"));
    (!parts.is_empty()).then(|| parts.join("::") + &arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mangled_names_are_read_or_keep_their_arguments() {
        let named = |name: &str| demangled(name.into());
        let norm = |bias: u8| {
            named(&format!(
                "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16_Li256ELb{bias}EEEvPT0_PT_PfS4_iib"
            ))
        };
        assert_eq!(
            norm(1),
            "void aiter::add_rmsnorm_quant_kernel<__bf16, _Float16, 256, true>(_Float16*, __bf16*, float*, \
             __bf16*, int, int, bool)"
        );
        assert_ne!(norm(0), norm(1));
        // a constrained template parameter, which the demangler cannot read
        let silu = named(
            "_ZN7sgl_hip10activation18act_and_mul_kernelI14__hip_bfloat16TnPFT_RKS3_EXadL_Z4siluIS2_ES3_S5_EEEEvPS3_PS4_i",
        );
        assert!(
            silu.starts_with("sgl_hip::activation::act_and_mul_kernel<14__hip_bfloat16Tn"),
            "{silu}"
        );
        let broken = ["_Z", "_ZN", "_ZN9", "_ZN99999999999999999999x", "_ZN2a\u{e9}", "gemm", "_ZN2a"];
        for name in broken {
            assert_eq!(named(name), name, "nothing to read");
        }
    }
}
