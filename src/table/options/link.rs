//! Link used by all-reduces: the machine's own or an emulated one.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use base::error::Error;

/// Allowed link latencies in us, emulated or in a hardware profile. The maximum (about 17 minutes) keeps
/// sums within the clock's range.
pub const LATENCIES_US: RangeInclusive<f64> = 0.0..=1e9;

/// Allowed link bandwidths in 1e9 bytes per second, emulated or in a hardware profile.
pub const BANDWIDTHS_GB_S: RangeInclusive<f64> = 1e-6..=1e9;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Link {
    /// Link of the machine or simulated hardware, subject to the P2P option.
    Native,
    /// Emulated from the hardware profile's link with P2P.
    P2pOn,
    /// Emulated from the hardware profile's link without P2P.
    P2pOff,
    /// Emulated: an all-reduce takes `alpha_us + message bytes / (gb_s x 1e9)`.
    Emulated {
        /// Latency of one all-reduce in us.
        alpha_us: f64,
        /// Message (not bus) bandwidth in 1e9 bytes per second.
        gb_s: f64,
    },
}

impl Link {
    /// True if runs over this link are labeled `emulated-link`.
    pub fn is_emulated(&self) -> bool {
        !matches!(self, Self::Native)
    }

    /// Label for people: `50us+300GB/s` for an emulated link, else its value.
    pub fn label(&self) -> String {
        match self {
            Self::Emulated { alpha_us, gb_s } => format!("{alpha_us}us+{gb_s}GB/s"),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Native => f.write_str("native"),
            Self::P2pOn => f.write_str("p2p-on"),
            Self::P2pOff => f.write_str("p2p-off"),
            Self::Emulated { alpha_us, gb_s } => write!(f, "emulated:alpha_us={alpha_us},gb_s={gb_s}"),
        }
    }
}

impl FromStr for Link {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parameters = match text {
            "native" => return Ok(Self::Native),
            "p2p-on" => return Ok(Self::P2pOn),
            "p2p-off" => return Ok(Self::P2pOff),
            _ => text.strip_prefix("emulated:"),
        };
        let bad = |what: String| {
            Error::input_help(
                format!("link '{text}': {what}"),
                "write native, p2p-on, p2p-off or emulated:alpha_us=20,gb_s=50 (gb_s: message bandwidth in GB/s)",
            )
        };
        let Some(parameters) = parameters else { return Err(bad("not a link".into())) };
        let (mut alpha_us, mut gb_s) = (None, None);
        for pair in parameters.split(',') {
            let (key, value) =
                pair.split_once('=').ok_or_else(|| bad(format!("'{pair}' is not key=value")))?;
            let (slot, allowed) = match key.trim() {
                "alpha_us" => (&mut alpha_us, LATENCIES_US),
                "gb_s" => (&mut gb_s, BANDWIDTHS_GB_S),
                other => return Err(bad(format!("unknown parameter '{other}'"))),
            };
            let number = value.trim().parse().ok().filter(|number| allowed.contains(number));
            *slot = Some(number.ok_or_else(|| {
                let (least, most) = (allowed.start(), allowed.end());
                bad(format!("{key} = '{value}' is not a number from {least:e} to {most:e}"))
            })?);
        }
        match (alpha_us, gb_s) {
            (Some(alpha_us), Some(gb_s)) => Ok(Self::Emulated { alpha_us, gb_s }),
            _ => Err(bad("alpha_us and gb_s are both required".into())),
        }
    }
}

impl Serialize for Link {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Link {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn links_round_trip(alpha_us in 0.0f64..1e6, gb_s in 1e-3f64..1e6) {
            let link = Link::Emulated { alpha_us, gb_s };
            prop_assert_eq!(link.to_string().parse::<Link>().unwrap(), link);
        }

        #[test]
        fn the_link_parser_never_panics(text in "(emulated:)?[a-z_=0-9.,:-]{0,40}") {
            let _ = text.parse::<Link>();
        }
    }

    #[test]
    fn bad_links_say_what_would_be_right() {
        for (text, wanted) in [
            ("emulated:alpha_us=5", "alpha_us and gb_s are both required"),
            ("emulated:alpha_us=5,gb_s=0", "gb_s = '0' is not a number from 1e-6 to 1e9"),
            ("emulated:alpha_us=5,gb_s=1e-300", "gb_s = '1e-300' is not a number from 1e-6 to 1e9"),
            ("emulated:alpha_us=1.8e16,gb_s=1", "alpha_us = '1.8e16' is not a number from 0e0 to 1e9"),
            ("emulated:alpha_us=x,gb_s=1", "alpha_us = 'x' is not a number"),
            ("emulated:alpha_us=NaN,gb_s=inf", "alpha_us = 'NaN' is not a number"),
            ("emulated:alfa=5,gb_s=1", "unknown parameter 'alfa'"),
            ("nvlink", "not a link"),
        ] {
            let error = text.parse::<Link>().unwrap_err();
            assert!(error.to_string().contains(wanted), "{error}");
            assert_eq!(error.exit_code(), 2);
        }
    }
}
