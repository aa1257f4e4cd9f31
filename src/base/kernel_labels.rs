//! Labels of library kernels that say in their template arguments, or in a list of options, what they do.

/// Label of such a kernel: `elementwise Mul`, `copy`, `Tensile MT256x192x64`; `None` for other names.
pub fn library_label(name: &str) -> Option<String> {
    if name.starts_with("Cijk_") {
        let tile = name.split('_').find(|part| is_tile(part))?;
        return Some(format!("Tensile {tile}"));
    }
    let (kernel, arguments) = name.split_once('<')?;
    if !kernel.contains("elementwise_kernel") {
        return None;
    }
    let words = || arguments.split(|c: char| !c.is_alphanumeric() && c != '_');
    let operation = words().find_map(functor).or_else(|| words().find_map(inner_kernel))?;
    match operation.ends_with("copy") {
        true => Some("copy".into()),
        false => Some(format!("elementwise {operation}")),
    }
}

fn is_tile(part: &str) -> bool {
    part.strip_prefix("MT").is_some_and(|sizes| sizes.starts_with(|c: char| c.is_ascii_digit()))
}

/// `Mul` of `MulFunctor`, `add` of `CUDAFunctor_add`; functors that wrap another one have no operation.
fn functor(word: &str) -> Option<&str> {
    let (before, after) = word.split_once("Functor")?;
    let operation = after.split_once('_').map_or(before, |(_, operation)| operation);
    let is_wrapper = operation.ends_with("Unary") || operation.ends_with("Binary");
    (!operation.is_empty() && !is_wrapper).then_some(operation)
}

/// `masked_fill` of `masked_fill_kernel`; kernels that run another one have no operation.
fn inner_kernel(word: &str) -> Option<&str> {
    let (operation, _) = word.split_once("_kernel")?;
    (!operation.is_empty() && !operation.starts_with("gpu")).then_some(operation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_says_what_a_library_kernel_does() {
        let label = |name: &str| library_label(name).unwrap_or_default();
        let elementwise =
            |of: &str| label(&format!("void at::native::vectorized_elementwise_kernel<4, {of}>(int)"));
        let mul = "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> >";
        assert_eq!(elementwise(mul), "elementwise Mul");
        assert_eq!(elementwise("at::native::CUDAFunctor_add<c10::BFloat16>"), "elementwise add");
        let copy = "at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)";
        assert_eq!(elementwise(copy), "copy");
        assert_eq!(
            elementwise("at::native::masked_fill_kernel(at::TensorIterator&)"),
            "elementwise masked_fill"
        );
        assert_eq!(label("Cijk_Alik_Bljk_BBS_BH_MT256x192x64_MI16x16x1_SN"), "Tensile MT256x192x64");
        for other in
            ["void cutlass::gemm_kernel<128, 64>(int)", "decode/L0/mlp/up", "Cijk_SS_PostGSU8_VW4.kd"]
        {
            assert_eq!(library_label(other), None, "{other}");
        }
    }
}
