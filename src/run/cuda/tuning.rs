//! Experimental switches for the execution of steps: environment variables of the run's process, listed in
//! the record with their effect.

use super::kernels::Ahead;
use super::matmul::Way;
use base::error::{Error, Result};

/// Early start of kernels: 0 or 1.
const PROGRAMMATIC: &str = "LADDERSCOPE_PROGRAMMATIC";
/// Prefetch of further weights by a product that starts early: 0 or 1.
const PREFETCH: &str = "LADDERSCOPE_PREFETCH";
/// Number of SMs that kernels leave to an overlapping collective.
const SMS_FOR_COMM: &str = "LADDERSCOPE_SMS_FOR_COMM";
/// Implementation of a decode step's products, overriding the timing: `library` or `own`.
const PRODUCTS: &str = "LADDERSCOPE_PRODUCTS";

/// Prefetch of the next product's weights by a product, in KB per SM.
const AHEAD: &str = "LADDERSCOPE_AHEAD";
/// Prefetch by decode attention instead of by the product before it, in KB per SM.
const AHEAD_ATTEND: &str = "LADDERSCOPE_AHEAD_ATTEND";
/// Maximum prefetch (KB per SM): with 132 SMs, more than the L2 cache of an H100 holds.
const MOST_AHEAD: u32 = 384;

/// Experimental execution choices; they change results at most in their last bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// True if kernels may start before their predecessors end, if the GPU supports it.
    pub programmatic: bool,
    /// True if a product that starts early prefetches its next weights into the L2 cache.
    pub prefetch: bool,
    /// SMs left to an overlapping collective; `None` means as many as it uses.
    pub sms_for_comm: Option<u32>,
    /// Implementation of all products that have a choice; `None` means the fastest.
    pub products: Option<Way>,
    /// Prefetch of the next product's weights; off by default.
    pub ahead: Ahead,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            programmatic: true,
            prefetch: true,
            sms_for_comm: None,
            products: None,
            ahead: Ahead::default(),
        }
    }
}

impl Tuning {
    /// Reads the switches from this process's environment. Returns an input error for an invalid value, with
    /// the variable's name and its valid values.
    pub fn of_process() -> Result<Self> {
        Self::of(|name| std::env::var(name).ok())
    }

    fn of(variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let set = |name| variable(name).filter(|text| !text.trim().is_empty());
        let switch = |name| match set(name).as_deref().map(str::trim) {
            None | Some("1") => Ok(true),
            Some("0") => Ok(false),
            Some(other) => Err(Error::input(format!("{name} is '{other}'; it must be 0 or 1"))),
        };
        let (programmatic, prefetch) = (switch(PROGRAMMATIC)?, switch(PREFETCH)?);
        let number = |text: String| {
            text.trim().parse().map_err(|_| {
                let wanted = "it must be a number of multiprocessors, such as 24, or 0";
                Error::input(format!("{SMS_FOR_COMM} is '{text}'; {wanted}"))
            })
        };
        let sms_for_comm = set(SMS_FOR_COMM).map(number).transpose()?;
        let way = |text: String| match text.trim() {
            "library" => Ok(Way::Library),
            "own" => Ok(Way::Own),
            other => {
                let wanted = "it must be library or own";
                Err(Error::input(format!("{PRODUCTS} is '{other}'; {wanted}")))
            }
        };
        let products = set(PRODUCTS).map(way).transpose()?;
        let kb = |name| match set(name).as_deref().map(|text| (text, text.trim().parse::<u32>())) {
            None => Ok(0),
            Some((_, Ok(kb))) if kb <= MOST_AHEAD => Ok(kb),
            Some((text, _)) => {
                let wanted = format!("it must be a number of KB up to {MOST_AHEAD}, or 0");
                Err(Error::input(format!("{name} is '{text}'; {wanted}")))
            }
        };
        let ahead = Ahead { product_kb: kb(AHEAD)?, attention_kb: kb(AHEAD_ATTEND)? };
        Ok(Self { programmatic, prefetch, sms_for_comm, products, ahead })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(programmatic: &str, prefetch: &str, sms: &str) -> Result<Tuning> {
        let all = [(PROGRAMMATIC, programmatic), (PREFETCH, prefetch), (SMS_FOR_COMM, sms)];
        Tuning::of(|name| {
            all.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn variables_are_read_and_wrong_ones_refused() {
        assert_eq!(Tuning::of(|_| None).ok(), Some(Tuning::default()));
        assert_eq!(of("", "1", " ").ok(), Some(Tuning::default()));
        let wanted = Tuning { programmatic: false, sms_for_comm: Some(8), ..Tuning::default() };
        assert_eq!(of("0", "", "8").ok(), Some(wanted));
        assert_eq!(of("1", "0", "").ok(), Some(Tuning { prefetch: false, ..Tuning::default() }));
        for (programmatic, prefetch, sms, name) in
            [("yes", "", "8", PROGRAMMATIC), ("1", "2", "8", PREFETCH), ("1", "", "-1", SMS_FOR_COMM)]
        {
            let error = of(programmatic, prefetch, sms).expect_err("wrong");
            assert!(error.to_string().starts_with(name) && error.exit_code() == 2, "{error}");
        }
        let products = |text: &str| Tuning::of(|name| (name == PRODUCTS).then(|| text.to_owned()));
        let ahead = |name: &str, kb: &str| Tuning::of(|known| (known == name).then(|| kb.to_owned()));
        let wanted = Ahead { product_kb: 128, attention_kb: 0 };
        assert_eq!(ahead(AHEAD, " 128 ").ok(), Some(Tuning { ahead: wanted, ..Tuning::default() }));
        let wanted = Ahead { product_kb: 0, attention_kb: 384 };
        assert_eq!(ahead(AHEAD_ATTEND, "384").ok(), Some(Tuning { ahead: wanted, ..Tuning::default() }));
        for (name, kb) in [(AHEAD, "385"), (AHEAD_ATTEND, "-1"), (AHEAD, "64 KB")] {
            let error = ahead(name, kb).expect_err("wrong").to_string();
            assert!(
                error.starts_with(&format!("{name} is '{kb}'; it must be a number of KB")),
                "{error}"
            );
        }
        let error = products("cublas").expect_err("wrong").to_string();
        assert_eq!(error, "LADDERSCOPE_PRODUCTS is 'cublas'; it must be library or own");
    }
}
