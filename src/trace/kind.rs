//! Kinds of traced operations. Files, JSON and rule files store the kind as text, which is parsed once.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! operation_kinds {
    (
        plan { $($planned:ident = $planned_text:literal,)* }
        traces { $($(#[doc = $about:literal])* $traced:ident = $text:literal,)* }
    ) => {
        /// Kind of a traced operation, from a plan ([`plan::Kind`] without its parameters), an importer or a rule.
        #[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(from = "String", into = "String")]
        pub enum OperationKind {
            $($planned,)*
            $($(#[doc = $about])* $traced,)*
            /// Kind that a rule file introduces (`halo`), never the text of another variant: build it with `From`.
            Custom(String),
        }

        impl OperationKind {
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$planned => $planned_text,)*
                    $(Self::$traced => $text,)*
                    Self::Custom(text) => text,
                }
            }
        }

        impl From<&str> for OperationKind {
            fn from(text: &str) -> Self {
                match text {
                    $($planned_text => Self::$planned,)*
                    $($text => Self::$traced,)*
                    custom => Self::Custom(custom.to_owned()),
                }
            }
        }

        impl From<&plan::Kind> for OperationKind {
            fn from(kind: &plan::Kind) -> Self {
                let named = match kind {
                    $(plan::Kind::$planned { .. } => Self::$planned,)*
                };
                debug_assert_eq!(named.as_str(), kind.as_str());
                named
            }
        }
    };
}

operation_kinds! {
    plan {
        Embed = "embed",
        Norm = "norm",
        Add = "add",
        AddNorm = "add_norm",
        AddMean = "add_mean",
        Join = "join",
        JoinNorm = "join_norm",
        Narrow = "narrow",
        MeanShare = "mean_share",
        Quantize = "quantize",
        MatMul = "matmul",
        RopeAppend = "rope_append",
        BiasRopeAppend = "bias_rope_append",
        NormRopeAppend = "norm_rope_append",
        Append = "append",
        Attend = "attend",
        WindowAttend = "window_attend",
        LatentAppend = "latent_append",
        LatentAttend = "latent_attend",
        SigmoidMul = "sigmoid_mul",
        Router = "router",
        Experts = "experts",
        Dispatch = "dispatch",
        Combine = "combine",
        SiluMul = "silu_mul",
        AllReduce = "all_reduce",
        AllReduceAddNorm = "all_reduce_add_norm",
        ReduceScatter = "reduce_scatter",
        AllGather = "all_gather",
        SelectLast = "select_last",
        Send = "send",
        Receive = "receive",
        Sample = "sample",
    }
    traces {
        /// Kernel of an imported trace that no rule matches.
        Kernel = "kernel",
        Memcpy = "memcpy",
        Memset = "memset",
        /// Neither computation, communication nor memory: only counts as busy time of the device.
        Other = "other",
        /// Several operations of a plan, recorded or predicted as one.
        Module = "module",
        /// Collective of an unknown kind.
        Collective = "collective",
        AllToAll = "all_to_all",
        Broadcast = "broadcast",
        Reduce = "reduce",
        Gather = "gather",
        Scatter = "scatter",
        /// Send, receive, or both in one kernel.
        SendRecv = "send_recv",
        Barrier = "barrier",
    }
}

impl OperationKind {
    /// True for a copy or fill of memory.
    pub fn is_memory(&self) -> bool {
        matches!(self, Self::Memcpy | Self::Memset)
    }

    /// True for the exchange of tokens before or after their experts.
    pub fn is_exchange(&self) -> bool {
        matches!(self, Self::Dispatch | Self::Combine)
    }

    /// Ratio of bus bandwidth to algorithm bandwidth as nccl-tests defines it; `None` for kinds without one.
    pub fn bus_factor(&self, ranks: u32) -> Option<f64> {
        let n = f64::from(ranks);
        match self {
            _ if ranks < 2 => None,
            Self::AllReduce | Self::AllReduceAddNorm => Some(2.0 * (n - 1.0) / n),
            Self::AllGather
            | Self::ReduceScatter
            | Self::AllToAll
            | Self::Dispatch
            | Self::Combine
            | Self::Gather
            | Self::Scatter => Some((n - 1.0) / n),
            Self::Broadcast | Self::Reduce | Self::SendRecv | Self::Send => Some(1.0),
            _ => None,
        }
    }
}

impl From<String> for OperationKind {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<OperationKind> for String {
    fn from(kind: OperationKind) -> Self {
        kind.as_str().to_owned()
    }
}

impl fmt::Display for OperationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_keep_the_text_of_every_kind() {
        for (text, kind) in [
            ("\"all_reduce\"", OperationKind::AllReduce),
            ("\"send_recv\"", OperationKind::SendRecv),
            ("\"halo\"", OperationKind::Custom("halo".into())),
            ("\"\"", OperationKind::Custom(String::new())),
        ] {
            assert_eq!(serde_json::from_str::<OperationKind>(text).unwrap(), kind);
            assert_eq!(serde_json::to_string(&kind).unwrap(), text);
        }
        let join = plan::Kind::Join { root: true };
        assert_eq!(OperationKind::from(&join), OperationKind::from(join.as_str()));
    }

    #[test]
    fn bus_factors_are_those_of_nccl_tests() {
        let of = |kind: &str, ranks| OperationKind::from(kind).bus_factor(ranks);
        assert_eq!(of("all_reduce", 8), Some(1.75));
        assert_eq!(of("all_gather", 4), Some(0.75));
        assert_eq!((of("broadcast", 4), of("all_reduce", 1)), (Some(1.0), None));
        // kinds of own traces only: a fused all-reduce moves the message of a plain one
        assert_eq!(of("all_reduce_add_norm", 8), Some(1.75));
        assert_eq!(of("send", 8), Some(1.0));
    }
}
