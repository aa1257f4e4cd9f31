//! FLOPs and bytes of matrix products and attention, from the input shapes that PyTorch records on
//! operators. Operators without an exact formula are excluded: backward passes of attention, attention
//! with packed sequences or windows, sparse and grouped products.

use serde::{Deserialize, Serialize};

use super::dtype_bytes;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Product {
    /// Shapes of the operands: `[888, 2880] x [2880, 640]`.
    pub shape: String,
    /// Element type of the operands: `bf16`, `fp8_e4m3fn`.
    pub dtype: String,
    /// FLOPs; a multiply-add counts as two.
    pub flops: u64,
    /// Bytes of all inputs and the output, each once: the minimum memory traffic.
    pub bytes: u64,
    /// True for the first kernel of a call. Counting only these gives the number of calls.
    pub is_first: bool,
}

/// Arguments of a call as recorded: JSON arrays with one entry per argument; empty if the trace lacks
/// them.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallArguments<'a> {
    pub dims: &'a str,
    /// Tensor element types, and types of other arguments.
    pub types: &'a str,
    pub strides: &'a str,
    /// Values of non-tensor arguments.
    pub values: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Formula {
    /// Product of two arguments, starting at this index.
    Matmul(usize),
    /// Rows times a transposed weight.
    Linear,
    /// Scaled dot-product attention of three arguments.
    Attention(Order, Mask),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Batch, heads, tokens, elements.
    Heads,
    /// Batch, tokens, heads, elements.
    Tokens,
}

/// Argument that enables the causal mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mask {
    /// A boolean argument, by index.
    Flag(usize),
    /// Number before the first boolean, 0 for no mask; its index differs between versions of PyTorch.
    Number,
}

#[derive(Clone, Copy, Debug)]
struct Signature {
    name: &'static str,
    formula: Formula,
    /// Indices of the tensors that it reads.
    reads: &'static [usize],
    /// Arguments that must be absent for the formula to hold: lengths of packed sequences, windows,
    /// other masks.
    without: &'static [usize],
}

const fn signature(name: &'static str, formula: Formula, reads: &'static [usize]) -> Signature {
    Signature { name, formula, reads, without: &[] }
}

const fn attention(
    name: &'static str,
    order: Order,
    mask: Mask,
    reads: &'static [usize],
    without: &'static [usize],
) -> Signature {
    Signature { name, formula: Formula::Attention(order, mask), reads, without }
}

const SIGNATURES: [Signature; 18] = [
    signature("aten::mm", Formula::Matmul(0), &[0, 1]),
    signature("aten::bmm", Formula::Matmul(0), &[0, 1]),
    signature("aten::mv", Formula::Matmul(0), &[0, 1]),
    signature("aten::matmul", Formula::Matmul(0), &[0, 1]),
    signature("aten::addmm", Formula::Matmul(1), &[0, 1, 2]),
    signature("aten::addmv", Formula::Matmul(1), &[0, 1, 2]),
    signature("aten::baddbmm", Formula::Matmul(1), &[0, 1, 2]),
    signature("aten::_addmm_activation", Formula::Matmul(1), &[0, 1, 2]),
    signature("aten::linear", Formula::Linear, &[0, 1, 2]),
    signature("aten::_int_mm", Formula::Matmul(0), &[0, 1]),
    // two factors, their scales, bias
    signature("aten::_scaled_mm", Formula::Matmul(0), &[0, 1, 2, 3, 4]),
    // query, key, value, dropout, is_causal
    attention("aten::_scaled_dot_product_flash_attention", Order::Heads, Mask::Flag(4), &[0, 1, 2], &[]),
    // query, key, value, bias, compute_log_sumexp, dropout, is_causal
    attention(
        "aten::_scaled_dot_product_efficient_attention",
        Order::Heads,
        Mask::Flag(6),
        &[0, 1, 2, 3],
        &[],
    ),
    attention(
        "aten::_scaled_dot_product_cudnn_attention",
        Order::Heads,
        Mask::Flag(6),
        &[0, 1, 2, 3],
        &[],
    ),
    // query, key, value, two packed lengths, two longest, dropout, is_causal, return_debug_mask, scale, two windows, lengths
    attention(
        "aten::_flash_attention_forward",
        Order::Tokens,
        Mask::Flag(8),
        &[0, 1, 2],
        &[3, 4, 11, 12, 13],
    ),
    // query, key, value, bias, two packed lengths, longest, dropout, mask, compute_log_sumexp, ...
    attention("aten::_efficient_attention_forward", Order::Tokens, Mask::Number, &[0, 1, 2, 3], &[4, 5]),
    // query, key, value, bias, two packed lengths, two longest, compute_log_sumexp, dropout, is_causal
    attention("aten::_cudnn_attention_forward", Order::Heads, Mask::Flag(10), &[0, 1, 2, 3], &[4, 5]),
    // query, key, value, dropout, scale, causal, two windows
    attention("flash_attn::_flash_attn_forward", Order::Tokens, Mask::Flag(5), &[0, 1, 2], &[6, 7]),
];

/// Signature of an operator; in-place variants (`aten::addmm_`) share it.
fn find(operator: &[u8]) -> Option<&'static Signature> {
    let plain = operator.strip_suffix(b"_").unwrap_or(operator);
    // cheap: most operators differ in length already
    SIGNATURES.iter().find(|signature| signature.name.as_bytes() == plain)
}

/// True for operators whose work follows from the shapes of their inputs.
pub fn is_product(operator: &[u8]) -> bool {
    find(operator).is_some()
}

struct Tensor<'a> {
    dims: &'a [u64],
    bytes: u64,
}

struct Call {
    dims: Vec<Option<Vec<u64>>>,
    types: Vec<String>,
    strides: Vec<Option<Vec<u64>>>,
    values: Vec<String>,
}

fn array(text: &str) -> Vec<serde_json::Value> {
    serde_json::from_str(text).unwrap_or_default()
}

fn numbers(text: &str) -> Vec<Option<Vec<u64>>> {
    let list = |value: &serde_json::Value| value.as_array()?.iter().map(|n| n.as_u64()).collect();
    array(text).iter().map(list).collect()
}

fn words(text: &str) -> Vec<String> {
    let word = |value: serde_json::Value| match value {
        serde_json::Value::String(word) => word,
        other => other.to_string(),
    };
    array(text).into_iter().map(word).collect()
}

impl Call {
    fn from_arguments(arguments: CallArguments<'_>) -> Self {
        Self {
            dims: numbers(arguments.dims),
            types: words(arguments.types),
            strides: numbers(arguments.strides),
            values: words(arguments.values),
        }
    }

    fn dtype(&self, at: usize) -> &str {
        self.types.get(at).map_or("", String::as_str)
    }

    /// Value of a non-tensor argument; empty if the trace lacks it.
    fn value(&self, at: usize) -> &str {
        self.values.get(at).map_or("", String::as_str)
    }

    fn tensor(&self, at: usize) -> Option<Tensor<'_>> {
        let dims = self.dims.get(at)?.as_deref()?;
        let strides = self.strides.get(at).and_then(Option::as_ref).filter(|of| of.len() == dims.len());
        // an expanded dimension repeats the same elements
        let is_stored = |at: usize| strides.is_none_or(|strides| strides[at] > 0);
        let stored = dims.iter().enumerate().filter(|(at, _)| is_stored(*at)).map(|(_, size)| *size);
        Some(Tensor { dims, bytes: product(stored)?.checked_mul(dtype_bytes(self.dtype(at))?)? })
    }

    /// True if an argument is absent: neither a tensor nor a non-negative number.
    fn is_absent(&self, at: usize) -> bool {
        let has_tensor = dtype_bytes(self.dtype(at)).is_some();
        !has_tensor && !self.value(at).parse::<f64>().is_ok_and(|value| value >= 0.0)
    }

    /// True if the attention is causal; `None` if the trace does not record it.
    fn is_causal(&self, mask: Mask) -> Option<bool> {
        let flag = |text: &str| match text.to_ascii_lowercase().as_str() {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        };
        match mask {
            Mask::Flag(at) => flag(self.value(at)),
            Mask::Number => {
                let first = self.values.iter().position(|value| flag(value).is_some())?;
                Some(self.value(first.checked_sub(1)?).parse::<u32>().ok()? > 0)
            }
        }
    }
}

fn product(sizes: impl IntoIterator<Item = u64>) -> Option<u64> {
    sizes.into_iter().try_fold(1, u64::checked_mul)
}

/// Broadcast size of a dimension of two operands.
fn broadcast(a: u64, b: u64) -> Option<u64> {
    match (a, b) {
        (a, b) if a == b => Some(a),
        (1, other) | (other, 1) => Some(other),
        _ => None,
    }
}

/// FLOPs, and number of output elements.
type ProductWork = (u64, u64);

/// Work of `[.., m, k]` times `[.., k, n]`; a vector is one row or one column.
fn matmul(a: &[u64], b: &[u64]) -> Option<ProductWork> {
    let (&k, rows) = a.split_last()?;
    let (m, a_batch) = rows.split_last().map_or((1, rows), |(m, batch)| (*m, batch));
    let (n, inner, b_batch) = match b {
        [inner] => (1, *inner, &b[..0]),
        [batch @ .., inner, n] => (*n, *inner, batch),
        [] => return None,
    };
    if k != inner {
        return None;
    }
    let depth = a_batch.len().max(b_batch.len());
    let size = |of: &[u64], at: usize| (at + of.len()).checked_sub(depth).map_or(1, |at| of[at]);
    let batch = (0..depth).map(|at| broadcast(size(a_batch, at), size(b_batch, at)));
    let elements = product([product(batch.collect::<Option<Vec<u64>>>()?)?, m, n])?;
    Some((product([2, elements, k])?, elements))
}

/// Work of `[.., k]` times the transposed `[n, k]`.
fn linear(rows: &[u64], weight: &[u64]) -> Option<ProductWork> {
    let transposed: Vec<u64> = weight.iter().rev().copied().collect();
    let (&k, rows) = rows.split_last()?;
    matmul(&[product(rows.iter().copied())?, k], &transposed).filter(|_| weight.len() <= 2)
}

/// Work of the scores of all queries and keys, and their product with the values.
fn attend([q, k, v]: [&[u64]; 3], order: Order, causal: bool) -> Option<ProductWork> {
    let parts = |dims: &[u64]| match (order, dims) {
        (Order::Heads, [batch, heads, tokens, size]) | (Order::Tokens, [batch, tokens, heads, size]) => {
            Some([*batch, *heads, *tokens, *size])
        }
        _ => None,
    };
    let [batch, heads, queries, size] = parts(q)?;
    let [k_batch, k_heads, keys, k_size] = parts(k)?;
    let [v_batch, v_heads, values, v_size] = parts(v)?;
    let fits = [k_batch, v_batch] == [batch; 2]
        && k_heads == v_heads
        && heads.checked_rem(k_heads) == Some(0)
        && (keys, size) == (values, k_size)
        // for other lengths, kernels differ in the alignment of the mask
        && (!causal || queries == keys);
    let all = product([2, batch, heads, queries, keys, size.checked_add(v_size)?])?;
    let flops = if causal { all / 2 } else { all };
    fits.then_some((flops, product([batch, heads, queries, v_size])?))
}

fn dtype_name(dtype: &str) -> String {
    let name = dtype.rsplit("::").next().unwrap_or(dtype).to_ascii_lowercase();
    let name = match name.as_str() {
        "bfloat16" => "bf16",
        "half" => "f16",
        "float" => "f32",
        "double" => "f64",
        "signed char" | "char" => "int8",
        "unsigned char" | "byte" => "uint8",
        name => return name.strip_prefix("float8").map_or(name.to_owned(), |rest| format!("fp8{rest}")),
    };
    name.to_owned()
}

fn output_bytes(operator: &str, call: &Call, operand: &str) -> Option<u64> {
    match operator {
        "aten::_int_mm" => Some(4),
        // out_dtype, as a number of c10::ScalarType
        "aten::_scaled_mm" => match call.value(6) {
            "5" | "15" => Some(2),
            "6" => Some(4),
            _ => dtype_bytes(operand),
        },
        _ => dtype_bytes(operand),
    }
}

impl Product {
    /// Work of a call; `None` if the operator or its arguments do not determine it.
    pub fn new(operator: &str, arguments: CallArguments<'_>) -> Option<Self> {
        let signature = find(operator.as_bytes())?;
        let call = Call::from_arguments(arguments);
        let dims = |at: usize| call.dims.get(at)?.as_deref();
        let shown = |dims: &[u64]| format!("{dims:?}");
        let (operand, (flops, elements), shape) = match signature.formula {
            Formula::Matmul(first) => {
                let (a, b) = (dims(first)?, dims(first + 1)?);
                (first, matmul(a, b)?, format!("{} x {}", shown(a), shown(b)))
            }
            Formula::Linear => {
                let (rows, weight) = (dims(0)?, dims(1)?);
                (0, linear(rows, weight)?, format!("{} x {}^T", shown(rows), shown(weight)))
            }
            Formula::Attention(order, mask) => {
                if !signature.without.iter().all(|at| call.is_absent(*at)) {
                    return None;
                }
                let causal = call.is_causal(mask)?;
                let operands = [dims(0)?, dims(1)?, dims(2)?];
                let mask = if causal { ", causal" } else { "" };
                let shape = format!("q {}, k {}{mask}", shown(operands[0]), shown(operands[1]));
                (0, attend(operands, order, causal)?, shape)
            }
        };
        let dtype = call.dtype(operand);
        let mut bytes = output_bytes(signature.name, &call, dtype)?.checked_mul(elements)?;
        for at in signature.reads {
            let tensor = call.tensor(*at).filter(|tensor| !tensor.dims.contains(&0));
            bytes = bytes.checked_add(tensor.map_or(0, |tensor| tensor.bytes))?;
        }
        (flops > 0).then(|| Self { shape, dtype: dtype_name(dtype), flops, bytes, is_first: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product_of(operator: &str, dims: &str, types: &str, values: &str) -> Option<Product> {
        Product::new(operator, CallArguments { dims, types, strides: "", values })
    }

    fn work(operator: &str, dims: &str, dtype: &str) -> Option<(u64, u64)> {
        let types = format!("[{}]", [format!("\"{dtype}\""), format!("\"{dtype}\"")].join(","));
        product_of(operator, dims, &types, "").map(|product| (product.flops, product.bytes))
    }

    #[test]
    fn products_multiply_and_add_each_element() {
        let (m, k, n) = (888, 2880, 640);
        let bytes = 2 * (m * k + k * n + m * n);
        let dims = "[[888, 2880], [2880, 640]]";
        assert_eq!(work("aten::mm", dims, "c10::BFloat16"), Some((2 * m * k * n, bytes)));
        assert_eq!(work("aten::mm_", dims, "c10::Half"), Some((2 * m * k * n, bytes)));
        assert_eq!(work("aten::mm", dims, "float"), Some((2 * m * k * n, 2 * bytes)));
        assert_eq!(work("aten::matmul", dims, "float"), Some((2 * m * k * n, 2 * bytes)));
        // a batch, and one that repeats
        let batched = 2 * 16 * (4 * 8 * 2);
        let elements = 16 * (4 * 8 + 8 * 2 + 4 * 2);
        assert_eq!(work("aten::bmm", "[[16,4,8],[16,8,2]]", "float"), Some((batched, 4 * elements)));
        let repeated = 16 * (4 * 8 + 4 * 2) + 8 * 2;
        assert_eq!(work("aten::matmul", "[[16,4,8],[8,2]]", "float"), Some((batched, 4 * repeated)));
        assert_eq!(work("aten::matmul", "[[4,8],[16,8,2]]", "float").map(|w| w.0), Some(batched));
        assert_eq!(work("aten::mv", "[[4,8],[8]]", "double"), Some((64, 8 * (32 + 8 + 4))));
        let linear = (2 * 6 * 5 * 8, 4 * (6 * 8 + 5 * 8 + 6 * 5));
        assert_eq!(work("aten::linear", "[[2,3,8],[5,8]]", "float"), Some(linear));
    }

    #[test]
    fn addends_scales_and_other_output_types_count_as_bytes() {
        let float = r#"["float","float","float","Scalar","Scalar"]"#;
        let product =
            product_of("aten::addmm", "[[640],[888,2880],[2880,640],[],[]]", float, "").unwrap();
        assert_eq!(product.flops, 2 * 888 * 2880 * 640);
        assert_eq!(product.bytes, 4 * (640 + 888 * 2880 + 2880 * 640 + 888 * 640));
        assert_eq!((product.shape.as_str(), &*product.dtype), ("[888, 2880] x [2880, 640]", "f32"));
        let batched = product_of("aten::baddbmm", "[[3,4,6],[3,4,5],[3,5,6],[],[]]", float, "").unwrap();
        assert_eq!((batched.flops, batched.bytes), (2 * 3 * 4 * 5 * 6, 4 * 3 * (24 + 20 + 30 + 24)));
        let types = r#"["c10::Float8_e4m3fn","c10::Float8_e4m3fn","float","float","c10::BFloat16","","Scalar","Scalar"]"#;
        let dims = "[[16,32],[32,48],[],[],[48],[],[],[]]";
        let scaled = |values| product_of("aten::_scaled_mm", dims, types, values).unwrap();
        let read = 16 * 32 + 32 * 48 + 4 + 4 + 2 * 48;
        let bf16 = scaled(r#"["","","","","","","15","False"]"#);
        assert_eq!((bf16.flops, bf16.bytes), (2 * 16 * 32 * 48, read + 2 * 16 * 48));
        assert_eq!(bf16.dtype, "fp8_e4m3fn");
        assert_eq!(scaled(r#"["","","","","","","6","False"]"#).bytes, read + 4 * 16 * 48);
        assert_eq!(scaled("").bytes, read + 16 * 48, "the least");
        let int8 = r#"["signed char","signed char"]"#;
        let int8 = product_of("aten::_int_mm", "[[32,64],[64,16]]", int8, "").unwrap();
        assert_eq!((int8.bytes, &*int8.dtype), (32 * 64 + 64 * 16 + 4 * 32 * 16, "int8"));
    }

    #[test]
    fn expanded_tensors_are_read_once() {
        let strides = "[[0, 0], [16, 1]]";
        let (dims, types) = ("[[8, 16], [16, 4]]", r#"["float", "float"]"#);
        let product =
            Product::new("aten::mm", CallArguments { dims, types, strides, values: "" }).unwrap();
        assert_eq!((product.flops, product.bytes), (2 * 8 * 16 * 4, 4 * (1 + 16 * 4 + 8 * 4)));
    }

    #[test]
    fn attention_counts_scores_and_values() {
        let half = r#"["c10::Half","c10::Half","c10::Half","Scalar","Scalar","Scalar","Scalar"]"#;
        let flash = |dims: &str, causal: &str| {
            let values = format!(r#"["","","","0.","{causal}","False",""]"#);
            product_of("aten::_scaled_dot_product_flash_attention", dims, half, &values)
        };
        let (b, h, s, d) = (2, 32, 1024, 128);
        let dims = "[[2,32,1024,128],[2,8,1024,128],[2,8,1024,128],[],[],[],[]]";
        let whole = flash(dims, "False").unwrap();
        assert_eq!(whole.flops, 4 * b * h * s * s * d);
        assert_eq!(whole.bytes, 2 * (2 * b * h * s * d + 2 * b * 8 * s * d));
        let causal = flash(dims, "True").unwrap();
        assert_eq!((causal.flops, causal.bytes), (whole.flops / 2, whole.bytes));
        assert_eq!(causal.shape, "q [2, 32, 1024, 128], k [2, 8, 1024, 128], causal");
        assert_eq!(flash(dims, ""), None, "the trace does not say");
        let decode = "[[2,32,1,128],[2,32,1000,128],[2,32,1000,128],[],[],[],[]]";
        assert_eq!(flash(decode, "False").unwrap().flops, 4 * b * h * 1000 * d);
        assert_eq!(flash(decode, "True"), None, "another corner in another kernel");
    }

    #[test]
    fn inner_operators_of_attention_have_their_own_order() {
        let types = r#"["c10::Half","c10::Half","c10::Half","","","Scalar","Scalar","Scalar","Scalar","Scalar","","","","",""]"#;
        let dims = "[[2,64,4,16],[2,64,4,16],[2,64,4,16],[],[],[],[],[],[],[],[],[],[],[],[]]";
        let flops = 4 * 2 * 4 * 64 * 64 * 16;
        let inner = |types: &str, window: &str| {
            let values =
                format!(r#"["","","","","","64","64","0.","False","False","0.25","{window}","","",""]"#);
            product_of("aten::_flash_attention_forward", dims, types, &values)
                .map(|product| product.flops)
        };
        assert_eq!((inner(types, ""), inner(types, "-1")), (Some(flops), Some(flops)));
        assert_eq!(inner(types, "128"), None, "a window");
        let packed = types.replacen(r#""","""#, r#""int","int""#, 1);
        assert_eq!(inner(&packed, ""), None, "packed sequences");
        // the mask's place differs between versions
        for values in [
            r#"["","","","","","","","0.","1","False","",""]"#,
            r#"["","","","","","","","","0.","1","True","",""]"#,
        ] {
            let found = product_of("aten::_efficient_attention_forward", dims, types, values);
            assert_eq!(found.map(|product| product.flops), Some(flops / 2), "{values}");
        }
    }

    #[test]
    fn nothing_is_made_up_of_arguments_that_do_not_fit() {
        for (operator, dims, dtype) in [
            ("aten::mm", "[[4,8],[9,2]]", "float"),
            ("aten::mm", "[[4,8]]", "float"),
            ("aten::mm", "[]", "float"),
            ("aten::mm", "", "float"),
            ("aten::mm", "[[4,8],[8,", "float"),
            ("aten::mm", "[[4,-8],[-8,2]]", "float"),
            ("aten::mm", "[[0,8],[8,2]]", "float"),
            ("aten::mm", "[[4,8],[8,2]]", "c10::complex<float>"),
            ("aten::mm", "[[4,8],[8,2]]", ""),
            ("aten::mm", "[[4294967296,4294967296],[4294967296,2]]", "float"),
            ("aten::bmm", "[[3,4,8],[2,8,2]]", "float"),
            ("aten::relu", "[[4,8],[8,2]]", "float"),
            ("aten::linear", "[[4,8],[2,9]]", "float"),
        ] {
            assert_eq!(work(operator, dims, dtype), None, "{operator} {dims} {dtype}");
        }
    }
}
