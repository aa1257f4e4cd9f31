//! Rotary embedding in HF configs, across four generations of the format.
//!
//! The base is `rope_theta`, at the top level or (newer) in `rope_parameters`; the scaling is
//! `rope_scaling` or (newer) `rope_parameters`, its kind `rope_type` or (older) `type`.

use serde_json::{Map, Value};

use super::config::Config;
use base::error::Result;
use plan::{Rope, RopeScaling};

/// HF's default base.
const DEFAULT_THETA: f64 = 10_000.0;

impl Config {
    pub(super) fn rope(&self) -> Result<Rope> {
        let parameters = self.rope_object("rope_parameters")?;
        let scaling = self.rope_object("rope_scaling")?;
        let in_object = |object: Option<(&str, &Map<String, Value>)>| {
            let (name, object) = object?;
            let value = object.get("rope_theta").filter(|v| !v.is_null())?;
            Some((format!("{name}.rope_theta"), value.clone()))
        };
        let theta = in_object(parameters)
            .or_else(|| self.get("rope_theta").map(|v| ("rope_theta".into(), v.clone())))
            .or_else(|| in_object(scaling));
        let theta = match theta {
            None => DEFAULT_THETA,
            Some((key, value)) => match value.as_f64().filter(|x| x.is_finite() && *x > 0.0) {
                Some(theta) => theta,
                None => return Err(self.wrong(&key, &value, "a number above 0")),
            },
        };
        let scaling = match parameters.or(scaling) {
            Some((name, object)) => self.scaling(name, object)?,
            None => None,
        };
        Ok(Rope { theta, scaling })
    }

    /// Top-level object, if present.
    fn rope_object<'a>(&'a self, key: &'a str) -> Result<Option<(&'a str, &'a Map<String, Value>)>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Object(object)) => Ok(Some((key, object))),
            Some(other) => {
                Err(self.wrong(key, other, "an object such as {\"rope_type\": \"llama3\", ...}"))
            }
        }
    }

    /// Scaling described by the object `name`.
    fn scaling(&self, name: &str, object: &Map<String, Value>) -> Result<Option<RopeScaling>> {
        let present = |key: &str| object.get(key).filter(|v| !v.is_null());
        let number = |key: &str| -> Result<f64> {
            let path = format!("{name}.{key}");
            let right = "a number above 0";
            let value = present(key).ok_or_else(|| self.missing(&path, right))?;
            let number = value.as_f64().filter(|x| x.is_finite() && *x > 0.0);
            number.ok_or_else(|| self.wrong(&path, value, right))
        };
        if let Some(value) = present("partial_rotary_factor").filter(|v| v.as_f64() != Some(1.0)) {
            let right = "not supported: only 1 or null, as in Llama";
            return Err(self.wrong(&format!("{name}.partial_rotary_factor"), value, right));
        }
        // models with mixed attention have one object per kind
        if let Some((kind, value)) = object.iter().find(|(_, value)| value.is_object()) {
            let right = "not supported: one rotary embedding for all layers, as in Llama";
            return Err(self.wrong(&format!("{name}.{kind}"), value, right));
        }
        let (kind_key, kind) = match (present("rope_type"), present("type")) {
            (Some(kind), _) => ("rope_type", kind),
            (None, Some(kind)) => ("type", kind),
            // an object with only the base has no scaling; one with a factor must state its kind
            (None, None) if present("factor").is_none() => return Ok(None),
            (None, None) => {
                return Err(self.missing(&format!("{name}.rope_type"), "\"llama3\" or \"linear\""));
            }
        };
        match kind.as_str() {
            Some("default") => Ok(None),
            Some("linear") => Ok(Some(RopeScaling::linear(number("factor")?))),
            Some("llama3") => {
                let scaling = RopeScaling {
                    factor: number("factor")?,
                    low_freq_factor: number("low_freq_factor")?,
                    high_freq_factor: number("high_freq_factor")?,
                    original_context: number("original_max_position_embeddings")?,
                };
                if scaling.low_freq_factor >= scaling.high_freq_factor {
                    return Err(self.wrong(
                        &format!("{name}.high_freq_factor"),
                        &scaling.high_freq_factor.into(),
                        format!("a number above low_freq_factor = {}", scaling.low_freq_factor),
                    ));
                }
                Ok(Some(scaling))
            }
            _ => Err(self.wrong(
                &format!("{name}.{kind_key}"),
                kind,
                "not supported: only \"default\", \"llama3\" and \"linear\"",
            )),
        }
    }
}
