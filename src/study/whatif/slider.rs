//! Sliders: what of a variant can be changed, by how much at a time, and from what text.

use super::engine::ProfileValues;
use super::variant::Variant;
use crate::base::error::{Error, Result};
use crate::machine::hardware::{Profile, STACKS};
use crate::model::Model;
use crate::plan::Architecture;
use crate::table::{Collective, P2p};

/// One thing that can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slider {
    /// Residual wiring, by staleness and synchronisation.
    Architecture,
    /// How many ranks the model is sharded over (TP).
    Tp,
    /// How many sequences are decoded together.
    Batch,
    /// Tokens of each prompt.
    Prompt,
    /// How many new tokens each sequence gets.
    Output,
    /// Whether GPUs talk directly.
    P2p,
    /// What an all-reduce takes however small its message is (us).
    Alpha,
    /// At which rate an all-reduce moves its message (1e9 bytes a second).
    Bandwidth,
    /// How many SMs' worth of work a large all-reduce takes from compute.
    Sms,
    /// How much of its speed an all-reduce loses while compute runs (%).
    CommLoss,
    /// Which all-reduce is simulated: NCCL's, or a custom one-shot kernel.
    Collective,
    /// Which GPU and link, as a hardware profile has them.
    Hardware,
    /// Peak bandwidth of a GPU's memory (1e9 bytes a second).
    Hbm,
    /// Which software stack executes the plans.
    Stack,
    /// Fixed time of a kernel.
    Launch,
    /// Which built-in model shape is decoded.
    Model,
}

/// The architectures that the slider goes through, by staleness, then by synchronisation.
pub const ARCHITECTURES: [&str; 9] = [
    "standard",
    "ladder",
    "stale:2",
    "stale:3",
    "parallel",
    "parallel+ladder",
    "desync:2",
    "desync:4",
    "upper-bound",
];

impl Slider {
    /// All, those of the question first.
    pub const ALL: [Self; 16] = [
        Self::Architecture,
        Self::Tp,
        Self::Batch,
        Self::Alpha,
        Self::Bandwidth,
        Self::Sms,
        Self::CommLoss,
        Self::P2p,
        Self::Collective,
        Self::Prompt,
        Self::Output,
        Self::Hardware,
        Self::Hbm,
        Self::Stack,
        Self::Launch,
        Self::Model,
    ];

    /// A short name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Architecture => "architecture",
            Self::Tp => "TP",
            Self::Batch => "batch",
            Self::Prompt => "prompt",
            Self::Output => "output",
            Self::P2p => "P2P",
            Self::Alpha => "alpha",
            Self::Bandwidth => "bandwidth",
            Self::Sms => "SMs of comm",
            Self::CommLoss => "comm loss",
            Self::Collective => "all-reduce",
            Self::Hardware => "hardware",
            Self::Hbm => "memory bw",
            Self::Stack => "stack",
            Self::Launch => "launch",
            Self::Model => "model",
        }
    }

    /// What its value is counted in.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Prompt | Self::Output => "tok",
            Self::Alpha | Self::Launch => "us",
            Self::Bandwidth | Self::Hbm => "GB/s",
            Self::CommLoss => "%",
            _ => "",
        }
    }

    /// What it means, in a sentence.
    pub fn about(self) -> &'static str {
        match self {
            Self::Architecture => "residual wiring: how stale, how often synchronised",
            Self::Tp => "ranks; above a node's GPUs the network joins in",
            Self::Batch => "sequences decoded together",
            Self::Prompt => "tokens of each prompt",
            Self::Output => "new tokens of each sequence",
            Self::P2p => "whether GPUs of a node talk directly",
            Self::Alpha => "latency of a small all-reduce inside a node; the stack scales measured ones",
            Self::Bandwidth => "message bandwidth of an all-reduce (bus bandwidth: x 2(TP-1)/TP)",
            Self::Sms => "SMs' worth of work that a large all-reduce takes from compute (contention)",
            Self::CommLoss => "part of its rate that an all-reduce loses while compute runs",
            Self::Collective => "NCCL's, or a one-shot all-reduce where the profile has one",
            Self::Hardware => "profile of GPU and links",
            Self::Hbm => "peak memory bandwidth of a GPU",
            Self::Stack => "software stack: what it fuses, how it attends, what it loses",
            Self::Launch => "fixed time of a kernel in the stack",
            Self::Model => "model shape",
        }
    }

    /// The number it stands at, where it is one of a scale. `None` where the profile values are not known yet.
    pub fn number(self, variant: &Variant, profile_values: Option<&ProfileValues>) -> Option<f64> {
        let cell = &variant.cell;
        let of = |set: Option<f64>, value: fn(&ProfileValues) -> Option<f64>| {
            set.or_else(|| profile_values.and_then(value))
        };
        match self {
            Self::Tp => Some(f64::from(cell.tp)),
            Self::Batch => Some(f64::from(cell.batch)),
            Self::Prompt => Some(f64::from(cell.prompt_tokens)),
            Self::Output => Some(f64::from(cell.output_tokens)),
            Self::Alpha => of(variant.alpha_us, |f| Some(f.alpha_us)),
            Self::Bandwidth => of(variant.gb_s, |f| Some(f.gb_s)),
            Self::Sms => of(variant.sms, |f| f.sms),
            Self::CommLoss => of(variant.comm_loss_pct, |f| Some(f.comm_loss_pct)),
            Self::Hbm => of(variant.hbm_gb_s, |f| Some(f.hbm_gb_s)),
            Self::Launch => of(variant.launch_us, |f| Some(f.launch_us)),
            _ => None,
        }
    }

    /// Its value, as it is shown.
    pub fn text(self, variant: &Variant, profile_values: Option<&ProfileValues>) -> String {
        let cell = &variant.cell;
        match self {
            Self::Architecture => cell.architecture.to_string(),
            Self::P2p => cell.p2p.as_str().into(),
            Self::Collective => cell.collective.as_str().into(),
            Self::Hardware => cell.hardware.clone(),
            Self::Stack => cell.stack.clone(),
            Self::Model => cell.model.clone(),
            Self::Tp => cell.tp.to_string(),
            Self::Batch => cell.batch.to_string(),
            Self::Prompt => cell.prompt_tokens.to_string(),
            Self::Output => cell.output_tokens.to_string(),
            _ => self.number(variant, profile_values).map_or_else(|| "-".into(), shown),
        }
    }

    /// Where it stands between its ends, 0 to 1; choices by their place in the list.
    pub fn place(self, variant: &Variant, profile_values: Option<&ProfileValues>) -> Option<f64> {
        if let Some(choices) = self.choices(variant, profile_values) {
            let text = self.text(variant, profile_values);
            let at = choices.iter().position(|choice| *choice == text)?;
            return Some(at as f64 / (choices.len().max(2) - 1) as f64);
        }
        let value = self.number(variant, profile_values)?;
        let [low, high] = self.range(profile_values);
        let place = if self.is_share() {
            (value - low) / (high - low)
        } else {
            (value.max(low) / low).ln() / (high / low).ln()
        };
        Some(place.clamp(0.0, 1.0))
    }

    /// Moves it by one, fine or coarse; whether anything changed.
    pub fn step(
        self,
        variant: &mut Variant,
        profile_values: Option<&ProfileValues>,
        up: bool,
        coarse: bool,
    ) -> bool {
        let before = variant.clone();
        if let Some(choices) = self.choices(variant, profile_values) {
            let text = self.text(variant, profile_values);
            let at = choices.iter().position(|choice| *choice == text);
            let next = match (at, up) {
                (None, _) => 0,
                (Some(at), true) => (at + 1).min(choices.len().saturating_sub(1)),
                (Some(at), false) => at.saturating_sub(1),
            };
            if let Some(choice) = choices.get(next) {
                // its own choices are values that it takes
                let _ = self.set(variant, profile_values, choice);
            }
        } else if let Some(value) = self.number(variant, profile_values) {
            let [low, high] = self.range(profile_values);
            let next = match (self, coarse) {
                _ if self.is_share() => {
                    value + if up { 1.0 } else { -1.0 } * if coarse { 10.0 } else { 1.0 }
                }
                (Self::Batch, false) | (_, true) => value * if up { 2.0 } else { 0.5 },
                (Self::Prompt | Self::Output, _) => next_multiple(value, 64.0, up),
                _ => neighbour(value, up),
            };
            // a value typed beyond the ends stays until it is moved towards them
            let bounded = if up { next.min(high.max(value)) } else { next.max(low.min(value)) };
            self.put(variant, bounded);
        }
        *variant != before
    }

    /// Moves it to a place between its ends, 0 to 1: the nearest choice, or a number of two digits.
    pub fn move_to(self, variant: &mut Variant, profile_values: Option<&ProfileValues>, place: f64) {
        let place = place.clamp(0.0, 1.0);
        if let Some(choices) = self.choices(variant, profile_values) {
            let at = (place * (choices.len().max(1) - 1) as f64).round() as usize;
            if let Some(choice) = choices.get(at) {
                // its own choices are values that it takes
                let _ = self.set(variant, profile_values, choice);
            }
            return;
        }
        let [low, high] = self.range(profile_values);
        let value = if self.is_share() {
            (low + place * (high - low)).round()
        } else {
            let exact = low * (high / low).powf(place);
            format!("{exact:.1e}").parse().unwrap_or(exact)
        };
        self.put(variant, value.clamp(low, high));
    }

    /// Takes a typed value. Errors say what would be right.
    pub fn set(
        self,
        variant: &mut Variant,
        profile_values: Option<&ProfileValues>,
        text: &str,
    ) -> Result<()> {
        let text = text.trim();
        let cell = &mut variant.cell;
        match self {
            Self::Architecture => cell.architecture = text.parse::<Architecture>()?,
            Self::P2p => cell.p2p = text.parse::<P2p>()?,
            Self::Collective => cell.collective = text.parse::<Collective>()?,
            Self::Hardware | Self::Stack | Self::Model if text.is_empty() => {
                return Err(Error::input(format!("{}: no name is given", self.name())));
            }
            Self::Hardware => cell.hardware = text.into(),
            Self::Stack => cell.stack = text.into(),
            Self::Model => cell.model = text.into(),
            Self::Tp | Self::Batch | Self::Prompt | Self::Output => {
                let least = if self == Self::Output { 2 } else { 1 };
                let value: u32 = text.parse().ok().filter(|n| *n >= least).ok_or_else(|| {
                    Error::input(format!(
                        "{} '{text}' is not a whole number of at least {least}",
                        self.name()
                    ))
                })?;
                self.put(variant, f64::from(value));
            }
            _ => {
                let least =
                    if matches!(self, Self::Bandwidth | Self::Hbm) { f64::MIN_POSITIVE } else { 0.0 };
                let most = if self.is_share() { self.range(profile_values)[1] } else { 1e9 };
                let number = text.parse().ok().filter(|v: &f64| *v >= least && *v <= most);
                let value = number.ok_or_else(|| {
                    let from = if least > 0.0 { "above 0" } else { "from 0" };
                    Error::input(format!(
                        "{} '{text}' is not a number {from} to {}",
                        self.name(),
                        shown(most)
                    ))
                })?;
                self.put(variant, value);
            }
        }
        Ok(())
    }

    /// Back to what it is in `base`.
    pub fn reset(self, variant: &mut Variant, base: &Variant) {
        match self {
            Self::Architecture => variant.cell.architecture = base.cell.architecture.clone(),
            Self::Tp => variant.cell.tp = base.cell.tp,
            Self::Batch => variant.cell.batch = base.cell.batch,
            Self::Prompt => variant.cell.prompt_tokens = base.cell.prompt_tokens,
            Self::Output => variant.cell.output_tokens = base.cell.output_tokens,
            Self::P2p => variant.cell.p2p = base.cell.p2p,
            Self::Alpha => variant.alpha_us = base.alpha_us,
            Self::Bandwidth => variant.gb_s = base.gb_s,
            Self::Sms => variant.sms = base.sms,
            Self::CommLoss => variant.comm_loss_pct = base.comm_loss_pct,
            Self::Collective => variant.cell.collective = base.cell.collective,
            Self::Hardware => variant.cell.hardware.clone_from(&base.cell.hardware),
            Self::Hbm => variant.hbm_gb_s = base.hbm_gb_s,
            Self::Stack => variant.cell.stack.clone_from(&base.cell.stack),
            Self::Launch => variant.launch_us = base.launch_us,
            Self::Model => variant.cell.model.clone_from(&base.cell.model),
        }
    }

    /// Whether it was moved: resetting it would change something.
    pub fn is_changed(self, variant: &Variant, base: &Variant) -> bool {
        let mut back = variant.clone();
        self.reset(&mut back, base);
        back != *variant
    }

    /// The values of a slider that is a choice.
    fn choices(self, variant: &Variant, profile_values: Option<&ProfileValues>) -> Option<Vec<String>> {
        let names = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut choices = match self {
            Self::Architecture => names(&ARCHITECTURES),
            Self::P2p => names(&["on", "off"]),
            Self::Collective => names(&["nccl", "one-shot"]),
            Self::Hardware => Profile::built_in().into_iter().map(|profile| profile.name).collect(),
            Self::Stack => names(&STACKS),
            Self::Model => Model::built_in().into_iter().map(|model| model.name).collect(),
            Self::Tp => profile_values?.tps.iter().map(ToString::to_string).collect(),
            _ => return None,
        };
        // what was typed, or came with a run, is a choice too
        let now = self.text(variant, profile_values);
        if !choices.contains(&now) {
            choices.push(now);
        }
        Some(choices)
    }

    /// The ends of its scale.
    pub fn range(self, profile_values: Option<&ProfileValues>) -> [f64; 2] {
        match self {
            Self::Tp => [1.0, 64.0],
            Self::Batch => [1.0, 4096.0],
            Self::Prompt => [1.0, 131_072.0],
            Self::Output => [2.0, 32_768.0],
            Self::Alpha => [0.1, 2000.0],
            Self::Bandwidth => [1.0, 2000.0],
            Self::Sms => {
                [0.0, profile_values.and_then(|f| f.sms_total).map_or(132.0, |n| f64::from(n) - 1.0)]
            }
            Self::CommLoss => [0.0, 99.0],
            Self::Hbm => [100.0, 20_000.0],
            Self::Launch => [0.1, 50.0],
            _ => [0.0, 1.0],
        }
    }

    /// Whether its scale is linear and begins at 0.
    fn is_share(self) -> bool {
        matches!(self, Self::Sms | Self::CommLoss)
    }

    fn put(self, variant: &mut Variant, value: f64) {
        let whole = value.round().clamp(1.0, f64::from(u32::MAX / 2)) as u32;
        match self {
            Self::Tp => variant.cell.tp = whole,
            Self::Batch => variant.cell.batch = whole,
            Self::Prompt => variant.cell.prompt_tokens = whole,
            Self::Output => variant.cell.output_tokens = whole.max(2),
            Self::Alpha => variant.alpha_us = Some(value),
            Self::Bandwidth => variant.gb_s = Some(value),
            Self::Sms => variant.sms = Some(value),
            Self::CommLoss => variant.comm_loss_pct = Some(value),
            Self::Hbm => variant.hbm_gb_s = Some(value),
            Self::Launch => variant.launch_us = Some(value),
            _ => {}
        }
    }
}

/// The next value of two significant digits above or below.
fn neighbour(value: f64, up: bool) -> f64 {
    if value <= 0.0 {
        return if up { 0.1 } else { 0.0 };
    }
    let power = 10f64.powi(value.log10().floor() as i32 - 1);
    let digits = value / power;
    // what is one already but for rounding moves on by a whole one
    let next = if up { (digits + 1e-6).floor() + 1.0 } else { (digits - 1e-6).ceil() - 1.0 };
    // 10 and below: the digits of the decade below
    let next = if next < 10.0 { 9.9 } else { next };
    format!("{:.2e}", next * power).parse().unwrap_or(value)
}

/// The next multiple above or below.
fn next_multiple(value: f64, of: f64, up: bool) -> f64 {
    if up { ((value / of).floor() + 1.0) * of } else { ((value / of).ceil() - 1.0) * of }
}

/// A number with up to four significant digits and no zeros behind them.
pub(super) fn shown(value: f64) -> String {
    let rounded: f64 = format!("{value:.3e}").parse().unwrap_or(value);
    if rounded.abs() >= 1e7 { format!("{rounded:e}") } else { rounded.to_string() }
}
