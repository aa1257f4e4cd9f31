//! Sliders: the values of a variant that can change, their steps, and their text form.

use super::answer::ProfileValues;
use super::variant::WhatIfVariant;
use crate::analysis::filter;
use base::error::{Error, Result};
use base::text::counted;
use machine::hardware::{Profile, STACKS};
use model::Model;
use plan::{Architecture, DType};
use table::options::{self, OptionEntry, OptionKind};
use table::{Spec, Unit};

struct Entry {
    name: &'static str,
    unit: &'static str,
    /// Minimum and maximum; unused for choices.
    range: [f64; 2],
    about: &'static str,
    value: Value,
}

enum Value {
    Option(&'static str),
    /// Value of the variant's hardware or model: getter and setter, and the profile's default.
    Own {
        get: fn(&WhatIfVariant) -> Option<f64>,
        set: fn(&mut WhatIfVariant, Option<f64>),
        profile: fn(&ProfileValues) -> Option<f64>,
    },
    /// Choice that is no option of a cell: names, those that a variant can have, and the present one by index.
    Choice {
        names: fn(&WhatIfVariant) -> Vec<String>,
        fits: fn(Option<&ProfileValues>, usize) -> bool,
        get: fn(&WhatIfVariant) -> usize,
        set: fn(&mut WhatIfVariant, usize),
    },
}

macro_rules! hardware {
    ($key:ident, $profile:expr) => {
        Value::Own { get: |v| v.$key, set: |v, value| v.$key = value, profile: $profile }
    };
}

macro_rules! experts {
    ($at:literal) => {
        Value::Own {
            get: |v| Some(f64::from(v.experts()?[$at])),
            set: |v, value| v.set_experts($at, value),
            profile: |_| None,
        }
    };
}

macro_rules! sliders {
    ($($slider:ident: $name:literal, $unit:literal, $range:expr, $value:expr, $about:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Slider {
            $(#[doc = $about] $slider,)*
        }

        impl Slider {
            /// All sliders, those for the main question first.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$slider),*];

            const fn entry(self) -> Entry {
                match self {
                    $(Self::$slider => Entry {
                        name: $name, unit: $unit, range: $range, about: $about, value: $value,
                    },)*
                }
            }
        }
    };
}

/// Placeholder range: a choice has no scale.
const CHOICE: [f64; 2] = [0.0, 1.0];

#[rustfmt::skip]
sliders! {
    Architecture: "architecture", "", CHOICE, Value::Option("architecture"), "order of modules and all-reduces: staleness and synchronisation";
    Tp: "TP", "", [1.0, 64.0], Value::Option("tp"), "ranks; above the GPUs of a node, all-reduces cross the network";
    Batch: "batch", "", [1.0, 4096.0], Value::Option("batch"), "sequences decoded together";
    Alpha: "AR latency", "us", [0.1, 2000.0], hardware!(alpha_us, |p| Some(p.alpha_us)), "latency of a small all-reduce inside a node";
    Bandwidth: "bandwidth", "GB/s", [1.0, 2000.0], hardware!(gb_s, |p| Some(p.gb_s)), "message bandwidth of an all-reduce (bus bandwidth: x 2(TP-1)/TP)";
    NetworkLatency: "net latency", "us", [0.1, 2000.0], hardware!(network_alpha_us, |p| Some(p.network.as_ref()?.alpha_us)), "latency that the network adds to an all-reduce per doubling of the nodes";
    NetworkBandwidth: "net bw", "GB/s", [1.0, 4000.0], hardware!(network_gb_s, |p| Some(p.network.as_ref()?.gb_s)), "bandwidth of all network cards of a node";
    Sms: "comm SMs", "SMs", [0.0, 132.0], hardware!(sms, |p| p.sms), "SMs that a large all-reduce takes from compute (contention)";
    CommLoss: "comm loss", "%", [0.0, 99.0], hardware!(comm_loss_pct, |p| Some(p.comm_loss_pct)), "share of its bandwidth that an all-reduce loses while compute runs";
    P2p: "P2P", "", CHOICE, Value::Option("p2p"), "direct access between the GPUs of a node";
    Collective: "all-reduce", "", CHOICE, Value::Option("collective"), "all-reduce implementation: NCCL's, a custom one, or one fused with the norm";
    Prompt: "prompt", "tok", [1.0, 131_072.0], Value::Option("prompt_tokens"), "tokens of each prompt";
    Output: "output", "tok", [2.0, 32_768.0], Value::Option("output_tokens"), "new tokens of each sequence";
    Hardware: "hardware", "", CHOICE, Value::Option("hardware"), "profile of GPU and links";
    Hbm: "memory bw", "GB/s", [100.0, 20_000.0], hardware!(hbm_gb_s, |p| Some(p.hbm_gb_s)), "peak memory bandwidth of a GPU";
    Stack: "stack", "", CHOICE, Value::Option("stack"), "software stack: fusions, attention, overheads";
    Launch: "launch", "us", [0.1, 50.0], hardware!(launch_us, |p| Some(p.launch_us)), "fixed time per kernel in the stack";
    Model: "model", "", CHOICE, Value::Option("model"), "model shape";
    Dtype: "dtype", "", CHOICE, Value::Option("dtype"), "number format of the weights";
    Serving: "serving", "", CHOICE, Value::Option("concurrency"), "0: static batch; else requests in flight, with prefills between decode steps";
    Division: "division", "", CHOICE, Value::Choice {
        names: |v| (0..3).map(|division| division_name(&v.cell, division)).collect(),
        fits: |values, division| values.is_none_or(|values| values.divisions[division]),
        get: |v| division(&v.cell),
        set: |v, to| {
            let ranks = gpus(&v.cell);
            divide(&mut v.cell, ranks, to);
        },
    }, "how the same GPUs split the model: sliced experts (TP), whole experts (TP and EP), or data-parallel attention (DP and EP)";
    Load: "expert load", "", CHOICE, Value::Option("expert_load"), "skew of the tokens over experts";
    Experts: "experts", "", [1.0, 1024.0], experts!(0), "routed experts of a layer, each as wide as before";
    TopK: "top-k", "", [1.0, 64.0], experts!(1), "experts that each token chooses";
    LaunchGaps: "launch gaps", "", CHOICE, Value::Choice {
        names: |_| vec!["as traced".into(), "none".into()],
        fits: |_, _| true,
        get: |v| usize::from(v.no_launch_gaps),
        set: |v, to| v.no_launch_gaps = to > 0,
    }, "waiting for kernel launches; none: as if CUDA graphs launched all kernels in time";
}

/// Weight format in which a model is released, as far as known; models without one are simulated in bf16.
fn native_dtype(model: &str) -> DType {
    Model::resolve(model).ok().and_then(|model| model.dtype).unwrap_or(DType::Bf16)
}

/// Takes the weight format of the model's checkpoint if the former model had its own, `before`. The two 16-bit formats
/// count as one, so that fp16 stays fp16.
fn follow_checkpoint(variant: &mut WhatIfVariant, before: DType) {
    let is_16_bit = |dtype: DType| matches!(dtype, DType::Bf16 | DType::F16);
    let (dtype, next) = (variant.cell.dtype, native_dtype(&variant.cell.model));
    if dtype != before && !(is_16_bit(dtype) && is_16_bit(before)) {
        return;
    }
    let remembered = &mut variant.dtype_of_16_bits.0;
    if is_16_bit(dtype) {
        *remembered = Some(dtype);
    }
    variant.cell.dtype = remembered.filter(|_| is_16_bit(next)).unwrap_or(next);
}

/// GPUs of a pipeline stage.
pub(super) fn gpus(cell: &Spec) -> u32 {
    cell.tp.saturating_mul(cell.dp)
}

/// Division of the GPUs: 0 slices of every expert, 1 whole experts on TP ranks, 2 attention of each rank's own sequences.
fn division(cell: &Spec) -> usize {
    match (cell.dp, cell.ep) {
        (2.., _) => 2,
        (_, 2..) => 1,
        _ => 0,
    }
}

pub(super) fn divided(ranks: u32, division: usize) -> [u32; 3] {
    match division {
        0 => [ranks, 1, 1],
        1 => [ranks, ranks, 1],
        _ => [1, ranks, ranks],
    }
}

fn divide(cell: &mut Spec, ranks: u32, division: usize) {
    [cell.tp, cell.ep, cell.dp] = divided(ranks, division);
}

/// Divides this many GPUs as before. A single GPU keeps the division for the next time that there are more.
fn divide_as_before(variant: &mut WhatIfVariant, ranks: u32) {
    let division = match gpus(&variant.cell) {
        1 => std::mem::take(&mut variant.division_above_one).0,
        _ => division(&variant.cell),
    };
    divide(&mut variant.cell, ranks, division);
    if ranks == 1 {
        variant.division_above_one.0 = division;
    }
}

/// Name of a division; of the present one as it is, even if it cannot run.
fn division_name(cell: &Spec, to: usize) -> String {
    let [tp, ep, dp] = match to == division(cell) {
        true => [cell.tp, cell.ep, cell.dp],
        false => divided(gpus(cell), to),
    };
    let ep = if ep > 1 { format!(" EP {ep}") } else { String::new() };
    if dp > 1 { format!("DP {dp}{ep}") } else { format!("TP {tp}{ep}") }
}

impl Slider {
    /// Number of sliders for dense models within a node.
    pub const DENSE: usize = Self::ALL.len() - 7;

    /// Sliders of a simulated cell: those of experts only for mixtures, their numbers only for built-in ones, those of the
    /// network only across nodes.
    pub fn of_cell(variant: &WhatIfVariant, profile_values: Option<&ProfileValues>) -> Vec<Self> {
        let is_mixture = profile_values.is_some_and(|values| values.experts.is_some());
        let is_shown = |slider: &Self| match slider {
            Self::Division | Self::Load => is_mixture,
            Self::Experts | Self::TopK => is_mixture && variant.experts().is_some(),
            Self::LaunchGaps => false,
            slider => slider.is_of_these_nodes(profile_values),
        };
        Self::ALL.into_iter().filter(is_shown).collect()
    }

    /// Sliders that change a measured step; those of the network only across nodes.
    pub fn of_trace(profile_values: Option<&ProfileValues>) -> Vec<Self> {
        let all = [
            Self::Architecture,
            Self::Tp,
            Self::Alpha,
            Self::Bandwidth,
            Self::NetworkLatency,
            Self::NetworkBandwidth,
            Self::P2p,
            Self::Collective,
            Self::LaunchGaps,
        ];
        all.into_iter().filter(|slider| slider.is_of_these_nodes(profile_values)).collect()
    }

    pub fn is_of_network(self) -> bool {
        matches!(self, Self::NetworkLatency | Self::NetworkBandwidth)
    }

    /// False for the network within a node.
    fn is_of_these_nodes(self, profile_values: Option<&ProfileValues>) -> bool {
        !self.is_of_network() || profile_values.is_some_and(|values| values.network.is_some())
    }

    /// Reason why the slider has no effect on a variant, if so.
    pub fn no_effect(
        self,
        variant: &WhatIfVariant,
        profile_values: Option<&ProfileValues>,
    ) -> Option<String> {
        let dp = variant.cell.dp;
        let no_link = profile_values.and_then(|values| values.no_link.clone());
        match self {
            Self::Alpha | Self::Bandwidth | Self::P2p => no_link,
            slider if slider.is_of_network() => {
                let values = profile_values.filter(|values| values.network.is_none());
                no_link.or_else(|| Some(no_network(&variant.cell, values?.gpus_per_node)))
            }
            Self::Sms | Self::CommLoss if variant.cell.ranks() == 1 => no_link,
            Self::Collective if dp > 1 => {
                Some(format!("data-parallel attention (DP {dp}) has no all-reduce"))
            }
            Self::Collective => no_link,
            Self::LaunchGaps => {
                profile_values.and_then(|values| values.no_launch_gaps).map(str::to_owned)
            }
            Self::Division if gpus(&variant.cell) == 1 => Some("one GPU cannot be divided".into()),
            Self::Tp if dp > 1 => Some(format!("DP {dp} needs TP 1")),
            _ => None,
        }
    }
}

/// Numbers of experts, and of those that a token chooses.
const COUNTS: [u32; 10] = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
const TOP_KS: [u32; 9] = [1, 2, 3, 4, 6, 8, 12, 16, 32];

/// Architectures of the slider, by staleness, then by synchronisation.
pub const ARCHITECTURES: [&str; 17] = [
    "standard",
    "ladder",
    "stale:2",
    "stale:3",
    "parallel",
    "farskip",
    "parallel+ladder",
    "desync:2",
    "desync:4",
    "delayed:2",
    "delayed:4",
    "sync-drop",
    "kraken",
    "tracks:4",
    "partial:0.5",
    "partial:0.5+ladder",
    "upper-bound",
];

/// Meaning of an architecture, as of the syntax that it is written in.
pub fn meaning_of_architecture(architecture: &Architecture) -> &'static str {
    let name = architecture.to_string();
    let family = |form: &str| form.split([':', '+']).next().unwrap_or(form).to_owned();
    let forms = Architecture::FORMS.iter().zip(Architecture::MEANINGS);
    let is_ladder = name.ends_with("+ladder");
    let is_same_family =
        |form: &str| family(form) == family(&name) && form.ends_with("+ladder") == is_ladder;
    let exact = forms.clone().find(|(form, _)| **form == name);
    let takes = name.contains(':');
    let found = exact
        .or_else(|| forms.clone().find(|(form, _)| is_same_family(form) && form.contains(':') == takes))
        .or_else(|| forms.clone().find(|(form, _)| is_same_family(form)));
    found.map_or("", |(_, meaning)| meaning)
}

/// Meaning of an architecture with its own number: `one residual per rank, synchronised every 2 modules`.
pub fn own_meaning(architecture: &Architecture) -> String {
    let (name, meaning) = (architecture.to_string(), meaning_of_architecture(architecture));
    let Some((_, number)) = name.split_once(':') else {
        // without a number, all layers have it
        return meaning.split(" in the last K layers").next().unwrap_or(meaning).to_owned();
    };
    let is_placeholder = |word: &str| matches!(word, "D" | "K" | "N" | "S");
    if number.parse::<u32>().is_err() {
        return meaning.to_owned();
    }
    let words = meaning.split(' ').map(|word| if is_placeholder(word) { number } else { word });
    words.collect::<Vec<&str>>().join(" ")
}

/// True if a standard model must be retrained for an architecture; false for `upper-bound`, which is not a real model.
pub fn needs_retraining(architecture: &Architecture) -> bool {
    !matches!(architecture, Architecture::Standard | Architecture::UpperBound)
}

/// Meaning of an architecture, and the cost of converting a standard model to it.
pub fn about_architecture(architecture: &Architecture) -> String {
    let (name, meaning) = (architecture.to_string(), own_meaning(architecture));
    match needs_retraining(architecture) {
        false => format!("{name}: {meaning}"),
        true => format!("{name}: {meaning}; a standard model needs retraining and may lose quality"),
    }
}

impl Slider {
    /// Label on the screen, one or two words: `comm loss`.
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    pub fn unit(self) -> &'static str {
        self.entry().unit
    }

    pub fn about(self) -> &'static str {
        self.entry().about
    }

    pub fn option(self) -> Option<&'static OptionEntry> {
        match self.entry().value {
            Value::Option(name) => options::option(name),
            Value::Own { .. } | Value::Choice { .. } => None,
        }
    }

    /// Current number; `None` for a choice, or while the profile values are unknown.
    pub fn number(self, variant: &WhatIfVariant, profile_values: Option<&ProfileValues>) -> Option<f64> {
        match self.entry().value {
            Value::Option(_) => Some(self.option()?.number(&variant.cell)? as f64),
            Value::Own { get, profile, .. } => get(variant).or_else(|| profile_values.and_then(profile)),
            Value::Choice { .. } => None,
        }
    }

    pub fn text(self, variant: &WhatIfVariant, profile_values: Option<&ProfileValues>) -> String {
        match self.option() {
            // the switch follows the batch
            Some(_) if self == Self::Serving && variant.cell.concurrency > 0 => {
                variant.cell.batch.to_string()
            }
            Some(option) => option.text(&variant.cell).into_owned(),
            None => match self.entry().value {
                Value::Choice { names, get, .. } => names(variant).swap_remove(get(variant)),
                _ => self.number(variant, profile_values).map_or_else(|| "-".into(), shown),
            },
        }
    }

    /// Position between the ends, 0 to 1; for choices, by index.
    pub fn place(self, variant: &WhatIfVariant, profile_values: Option<&ProfileValues>) -> Option<f64> {
        // the offered counts depend on other sliders, a count's place does not
        if let Some(choices) = self.choices(variant, profile_values).filter(|_| !self.is_count()) {
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

    /// Moves the slider by one fine or coarse step; returns true if the value changed.
    pub fn step(
        self,
        variant: &mut WhatIfVariant,
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
                // cannot fail: the slider's own choices are valid
                let _ = self.set(variant, profile_values, choice);
            }
        } else if let Some(value) = self.number(variant, profile_values) {
            let [low, high] = self.range(profile_values);
            let next = match (self, coarse) {
                _ if self.is_share() => {
                    value + if up { 1.0 } else { -1.0 } * if coarse { 10.0 } else { 1.0 }
                }
                (Self::Alpha | Self::NetworkLatency, _) => next_round(value, up, coarse),
                (Self::Batch, false) | (_, true) => value * if up { 2.0 } else { 0.5 },
                (Self::Prompt | Self::Output, _) => next_multiple(value, 64.0, up),
                _ => neighbour(value, up),
            };
            // a typed value beyond the ends stays until it moves back towards them
            let bounded = if up { next.min(high.max(value)) } else { next.max(low.min(value)) };
            self.put(variant, bounded);
        }
        *variant != before
    }

    /// Moves the slider to a position between its ends, 0 to 1: the nearest choice, or a number with two
    /// significant digits.
    pub fn move_to(
        self,
        variant: &mut WhatIfVariant,
        profile_values: Option<&ProfileValues>,
        place: f64,
    ) {
        let place = place.clamp(0.0, 1.0);
        let [low, high] = self.range(profile_values);
        if let Some(choices) = self.choices(variant, profile_values) {
            let wanted = place * (high / low).ln();
            let far = |choice: &String| ((choice.parse().unwrap_or(low) / low).ln() - wanted).abs();
            let choice = match self.is_count() {
                true => choices.iter().min_by(|a, b| far(a).total_cmp(&far(b))),
                false => choices.get((place * (choices.len().max(1) - 1) as f64).round() as usize),
            };
            if let Some(choice) = choice {
                // cannot fail: the slider's own choices are valid
                let _ = self.set(variant, profile_values, choice);
            }
            return;
        }
        let value = if self.is_share() {
            (low + place * (high - low)).round()
        } else {
            let exact = low * (high / low).powf(place);
            format!("{exact:.1e}").parse().unwrap_or(exact)
        };
        self.put(variant, value.clamp(low, high));
    }

    /// Sets a typed value; errors state the valid values.
    pub fn set(
        self,
        variant: &mut WhatIfVariant,
        profile_values: Option<&ProfileValues>,
        text: &str,
    ) -> Result<()> {
        let text = text.trim();
        if let Value::Choice { names, fits, set, .. } = self.entry().value {
            let names = names(variant);
            let at = names.iter().position(|name| name == text).filter(|at| fits(profile_values, *at));
            let unknown = || Error::unknown(self.name(), text, names.iter().map(String::as_str));
            set(variant, at.ok_or_else(unknown)?);
            return Ok(());
        }
        let [least, _] = self.range(profile_values);
        let unit = self.unit();
        let number = match text.strip_suffix(unit).filter(|_| !unit.is_empty()) {
            // the unit, not a change
            Some(number) => typed(number, None),
            None => typed(text, self.number(variant, profile_values))
                .or_else(|| from_related_unit(text, unit)),
        };
        let relative = match unit {
            "us" => "type a number in us, or with ns, ms or s; or relative to the present value: x2, /2",
            "GB/s" => "type a number in GB/s, or with MB/s; or relative to the present value: x2, /2",
            _ => "type a number, or one relative to the present value: x2, /2",
        };
        // a relative number with the resulting value: `'x2' (160 SMs)`
        let named = || {
            let own = number.filter(|_| text.parse::<f64>().is_err());
            let own = own.map_or_else(String::new, |value| match self.unit() {
                "" => format!(" ({})", shown(value)),
                unit => format!(" ({} {unit})", shown(value)),
            });
            format!("{} '{text}'{own}", self.name())
        };
        let whole = || {
            let is_valid = |n: &f64| n.fract() == 0.0 && *n >= least && *n <= f64::from(u32::MAX);
            number.filter(is_valid).ok_or_else(|| {
                let problem = format!("{} is not a whole number of at least {least}", named());
                Error::input_help(problem, relative)
            })
        };
        match self.option() {
            Some(_) if text.is_empty() => {
                return Err(Error::input(format!("{}: no name is given", self.name())));
            }
            Some(option) if option.kind == OptionKind::Count => {
                self.put(variant, whole()?);
            }
            Some(option) => {
                let native = native_dtype(&variant.cell.model);
                option.read(&mut variant.cell, text)?;
                if self == Self::Model {
                    // the next model may have no experts
                    variant.division_above_one.0 = 0;
                    follow_checkpoint(variant, native);
                }
            }
            None if self.is_count() => {
                let value = whole()?;
                if variant.experts().is_none() {
                    let (name, model) = (self.name(), &variant.cell.model);
                    return Err(Error::input_help(
                        format!("{name}: {model} is no built-in mixture of experts"),
                        "`ladderscope models` lists built-in models",
                    ));
                }
                let mut changed = variant.clone();
                self.put(&mut changed, value);
                Model::resolve(&changed.cell.model)?;
                *variant = changed;
            }
            None => {
                let least = match self {
                    Self::Bandwidth | Self::NetworkBandwidth | Self::Hbm => f64::MIN_POSITIVE,
                    _ => 0.0,
                };
                let most = if self.is_share() { self.range(profile_values)[1] } else { 1e9 };
                let value = number.filter(|v: &f64| *v >= least && *v <= most).ok_or_else(|| {
                    let from = if least > 0.0 { "above 0" } else { "from 0" };
                    let (most, unit) = (shown(most), self.unit());
                    let problem = format!("{} is not a number {from} to {most} {unit}", named());
                    Error::input_help(problem, relative)
                })?;
                self.put(variant, value);
            }
        }
        Ok(())
    }

    pub fn reset(self, variant: &mut WhatIfVariant, base: &WhatIfVariant) {
        match self.entry().value {
            Value::Option(_) if self == Self::Tp => {
                // the division of the GPUs is another slider
                divide_as_before(variant, gpus(&base.cell));
            }
            Value::Option(_) => {
                let cell = &mut variant.cell;
                let is_other = self == Self::Model && cell.model != base.cell.model;
                if is_other && cell.dtype == native_dtype(&cell.model) {
                    cell.dtype = base.cell.dtype;
                }
                let option = self.option();
                // cannot fail: the value comes from a valid cell
                let _ = option.map(|option| option.read(&mut variant.cell, &option.text(&base.cell)));
            }
            Value::Own { get, set, .. } => set(variant, get(base)),
            Value::Choice { get, set, .. } => set(variant, get(base)),
        }
    }

    pub fn is_changed(self, variant: &WhatIfVariant, base: &WhatIfVariant) -> bool {
        let mut back = variant.clone();
        self.reset(&mut back, base);
        back != *variant
    }

    fn choices(
        self,
        variant: &WhatIfVariant,
        profile_values: Option<&ProfileValues>,
    ) -> Option<Vec<String>> {
        if let Value::Choice { names, fits, .. } = self.entry().value {
            let all = names(variant).into_iter().enumerate();
            return Some(
                all.filter(|(at, _)| fits(profile_values, *at)).map(|(_, name)| name).collect(),
            );
        }
        let names = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut choices = match self {
            Self::Architecture => names(&ARCHITECTURES),
            Self::P2p | Self::Collective | Self::Dtype => names(self.option()?.values()),
            Self::Serving => return Some(vec!["0".into(), variant.cell.batch.to_string()]),
            Self::Hardware => Profile::built_in().into_iter().map(|profile| profile.name).collect(),
            Self::Stack => names(&STACKS),
            Self::Model => Model::built_in().into_iter().map(|model| model.name).collect(),
            Self::Load => {
                names(&["balanced", "uniform", "power:0.5", "power:1", "power:1.5", "power:2"])
            }
            Self::Experts | Self::TopK => {
                self.number(variant, profile_values)?;
                // those that can be routed and divided over the ranks
                let fits = |count: &u32| {
                    let mut changed = variant.clone();
                    self.put(&mut changed, f64::from(*count));
                    let Spec { tp, ep, dp, .. } = changed.cell;
                    let model = Model::resolve(&changed.cell.model);
                    model.is_ok_and(|model| model.shape.expert_problem(tp, ep, dp).is_none())
                };
                let counts: &[u32] = if self == Self::TopK { &TOP_KS } else { &COUNTS };
                counts.iter().copied().filter(fits).map(|count| count.to_string()).collect()
            }
            Self::Tp => profile_values?.tps.iter().map(ToString::to_string).collect(),
            _ => return None,
        };
        // a typed value, or one from a stored run, is also a choice
        let now = self.text(variant, profile_values);
        if !choices.contains(&now) {
            choices.push(now);
        }
        if self.is_count() || self == Self::Tp {
            choices.sort_by_key(|choice| choice.parse::<u32>().unwrap_or(0));
        }
        Some(choices)
    }

    /// Minimum and maximum; the maximum of `Sms` depends on the GPU.
    pub fn range(self, profile_values: Option<&ProfileValues>) -> [f64; 2] {
        let [low, high] = self.entry().range;
        match profile_values.and_then(|values| values.sms_total).filter(|_| self == Self::Sms) {
            Some(total) => [low, f64::from(total) - 1.0],
            None => [low, high],
        }
    }

    /// True if it chooses among numbers of experts.
    fn is_count(self) -> bool {
        matches!(self, Self::Experts | Self::TopK)
    }

    /// True if the scale is linear, starts at 0 and has a maximum that no typed value exceeds.
    pub fn is_share(self) -> bool {
        matches!(self, Self::Sms | Self::CommLoss)
    }

    fn put(self, variant: &mut WhatIfVariant, value: f64) {
        match self.entry().value {
            Value::Option(_) => {
                let whole = value.round().clamp(self.entry().range[0], f64::from(u32::MAX / 2)) as u64;
                if self == Self::Tp {
                    return divide_as_before(variant, whole as u32);
                }
                self.option().map(|option| option.put(&mut variant.cell, whole));
            }
            Value::Own { set, .. } => set(variant, Some(value)),
            Value::Choice { .. } => {}
        }
    }
}

/// Reason why the ranks of a cell cross no network.
fn no_network(cell: &Spec, gpus_per_node: u32) -> String {
    match cell.link.is_emulated() {
        true => "an emulated link connects all ranks".into(),
        false => format!(
            "{} fit in a node of {gpus_per_node} GPUs; choose a larger TP",
            counted(cell.tp.max(cell.dp) as usize, "rank")
        ),
    }
}

/// Number in microseconds or GB/s, from one with another unit of time or bandwidth, as in a filter of runs: `0.02 ms`,
/// `500 MB/s`.
fn from_related_unit(text: &str, unit: &str) -> Option<f64> {
    let value = match unit {
        "us" => 1e3 * filter::number(&text.replace('µ', "u"), Unit::Ms)?,
        "GB/s" => filter::number(text.strip_suffix("/s")?, Unit::Bytes)? / 1e9,
        _ => return None,
    };
    // without the rounding errors of the conversion
    format!("{value:.9e}").parse().ok().filter(|value: &f64| value.is_finite())
}

/// Number as typed, or relative to the present value: `x2` or `2x`, `/2`, `50%`.
fn typed(text: &str, now: Option<f64>) -> Option<f64> {
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    let by = if let Some(times) = text.strip_prefix(['x', '*']).or(text.strip_suffix('x')) {
        number(times)?
    } else if let Some(over) = text.strip_prefix('/') {
        1.0 / number(over).filter(|number| *number != 0.0)?
    } else if let Some(percent) = text.strip_suffix('%') {
        number(percent)? / 100.0
    } else {
        return number(text);
    };
    Some(now? * by)
}

fn neighbour(value: f64, up: bool) -> f64 {
    if value <= 0.0 {
        return if up { 0.1 } else { 0.0 };
    }
    let power = 10f64.powi(value.log10().floor() as i32 - 1);
    let digits = value / power;
    // tolerate rounding errors in a value that already has two digits
    let next = if up { (digits + 1e-6).floor() + 1.0 } else { (digits - 1e-6).ceil() - 1.0 };
    // at 10 or below, continue with the digits of the lower decade
    let next = if next < 10.0 { 9.9 } else { next };
    format!("{:.2e}", next * power).parse().unwrap_or(value)
}

/// Next round value of a latency: by about 5 %, or coarsely by 12 to 50 %.
fn next_round(value: f64, up: bool, coarse: bool) -> f64 {
    /// Round numbers of a decade, at most a third apart.
    const COARSE: [f64; 10] = [1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0];
    /// Least coarse change.
    const LEAST: f64 = 1.12;
    /// Largest fine change of a round value.
    const MOST: f64 = 0.081;
    if value <= 0.0 {
        return if up { 0.1 } else { 0.0 };
    }
    let decade = |of: f64| 10f64.powf(of.log10().floor());
    let next = if coarse {
        let below = decade(value) / 10.0;
        let all = [1.0, 10.0, 100.0].into_iter();
        let mut all = all.flat_map(|by| COARSE.map(|round| below * by * round));
        let next = match up {
            true => all.find(|next| *next >= LEAST * value),
            false => all.rfind(|next| *next <= value / LEAST),
        };
        next.unwrap_or(value)
    } else {
        let most = MOST * value;
        let steps = [5.0, 2.0, 1.0].map(|step| step * decade(most));
        let step = steps.into_iter().find(|step| *step <= most).unwrap_or(steps[2]);
        let steps = value / step;
        // tolerate rounding errors in a value that is a multiple already
        step * if up { (steps + 1e-6).floor() + 1.0 } else { (steps - 1e-6).ceil() - 1.0 }
    };
    format!("{next:.3e}").parse().unwrap_or(next)
}

fn next_multiple(value: f64, of: f64, up: bool) -> f64 {
    if up { ((value / of).floor() + 1.0) * of } else { ((value / of).ceil() - 1.0) * of }
}

/// Formats a number with up to four significant digits, without trailing zeros.
pub(super) fn shown(value: f64) -> String {
    let rounded: f64 = format!("{value:.3e}").parse().unwrap_or(value);
    if rounded.abs() >= 1e7 { format!("{rounded:e}") } else { rounded.to_string() }
}
