//! Software stacks that the simulator knows: how each lowers a plan.

use crate::error::{Error, Result};
use crate::plan::Lowering;

/// Names of the built-in stacks.
pub const STACKS: [&str; 2] = ["native", "gpt-fast"];

/// How a stack lowers plans. `native` is this program's own way on GPUs. `gpt-fast` is the stack of
/// the Ladder Residual paper's benchmark: `torch.compile` fuses additions with norms, and prefill
/// computes logits for every position. Both replicate the head.
pub fn lowering(stack: &str) -> Result<Lowering> {
    let native = Lowering { shard_head: false, all_logits: false, fuse_add_norm: true };
    match stack {
        "native" => Ok(native),
        "gpt-fast" => Ok(Lowering { all_logits: true, ..native }),
        _ => Err(Error::unknown("stack", stack, STACKS)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_differ_in_prefill_logits_and_unknown_ones_are_named() {
        assert!(!lowering("native").unwrap().all_logits);
        assert!(lowering("gpt-fast").unwrap().all_logits);
        let Err(Error::Input { message, help }) = lowering("gptfast") else { panic!("accepted") };
        assert_eq!(message, "unknown stack 'gptfast'");
        assert!(help.unwrap().contains("did you mean 'gpt-fast'?"));
    }
}
