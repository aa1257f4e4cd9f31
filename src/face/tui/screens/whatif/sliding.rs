//! The selected slider: moved by keys, dragged, reset, or set to a typed or picked value.

use ratatui::layout::{Position, Rect};

use super::state::WhatIf;
use super::{Act, layout};
use crate::desk::offers;
use crate::face::tui::context::Context;
use crate::face::tui::format;
use crate::face::tui::overlay::PromptCompletion;
use crate::face::tui::pick::{Pick, PickResult};
use crate::face::tui::screen::{Acts, Pointer, PointerKind, State, TabScreen};
use base::offer::Offer;
use plan::Architecture;
use study::whatif::{ARCHITECTURES, ProfileValues, Slider, WhatIfVariant, meaning_of_architecture};

impl WhatIf {
    /// Moves the selected slider by one step.
    pub fn slide(&mut self, up: bool, coarse: bool, cx: &mut Context) {
        if self.refuses(cx) {
            return;
        }
        let slider = self.slider();
        let moved = self.change(|variant, profile_values| {
            slider.step(variant, profile_values, up, coarse);
        });
        if !moved {
            let end = if up { "last" } else { "first" };
            cx.inform(format!("this is the {end} value of {}", slider.name()));
        }
    }

    /// True if the selected slider has no effect; the reason is shown.
    fn refuses(&self, cx: &mut Context) -> bool {
        let slider = self.slider();
        let Some(why) = slider.no_effect(&self.variant, self.profile_values()) else { return false };
        cx.inform(format!("{} has no effect: {why}", slider.name()));
        true
    }

    /// Opens a list of the selected slider's values, or an input if its values are not all listed.
    pub fn type_value(&mut self, cx: &mut Context) {
        if self.refuses(cx) {
            return;
        }
        let slider = self.slider();
        let now = slider.text(&self.variant, self.profile_values());
        let now = if now == "-" { String::new() } else { now };
        let unit = slider.unit();
        let title = format!("{}{}{unit}", slider.name(), if unit.is_empty() { "" } else { ", in " });
        let offers = offers_of(slider);
        let is_value = |offer: &Offer| {
            slider.set(&mut self.variant.clone(), self.profile_values(), &offer.text).is_ok()
        };
        if !offers.is_empty() && offers.iter().all(is_value) {
            return cx.lay(pick(slider, title, offers, &now));
        }
        let is = match (now.as_str(), unit) {
            ("", _) => "as the stack has it".to_owned(),
            (now, "") => now.to_owned(),
            (now, unit) => format!("{now} {unit}"),
        };
        let range = if offers.is_empty() { range(slider, self.profile_values()) } else { String::new() };
        let hint = format!("{}. Now {is}{range}", slider.about());
        let forms = hint.clone();
        let take = move |whatif: &mut Self, typed: &str, _: &mut Context| {
            if typed.ends_with('?') {
                return Err(forms.clone());
            }
            let mut outcome = Ok(());
            whatif.change(|variant, values| outcome = slider.set(variant, values, typed));
            outcome.map_err(|why| format::error(&why))
        };
        cx.prompt(PromptCompletion::Words(offers), title, hint, now, take);
    }

    pub fn reset_slider(&mut self, cx: &mut Context) {
        let (slider, base) = (self.slider(), self.base.clone());
        if !self.change(|variant, _| slider.reset(variant, &base)) {
            cx.inform(format!("{} is unchanged", slider.name()));
        }
    }

    pub fn reset_all(&mut self, cx: &mut Context) {
        let base = self.base.clone();
        if !self.change(|variant, _| *variant = base) {
            cx.inform("no slider is changed");
        }
    }

    pub fn point(&mut self, body: Rect, event: Pointer, cx: &mut Context) -> bool {
        let area = layout::areas_of(body, self).sliders;
        let (x, columns) = layout::tracks(area);
        // a drag that began on a track keeps moving its slider, wherever the pointer is
        let place = |at: u16| f64::from(at.saturating_sub(x)) / f64::from(columns.max(2) - 1);
        let on_track = |at: Position| area.contains(at) && (x..x + columns).contains(&at.x);
        if let PointerKind::Drag(from) = event.kind
            && on_track(from)
        {
            self.drag_to(place(event.at.x), cx);
            return true;
        }
        if !area.contains(event.at) {
            return false;
        }
        let row = usize::from(event.at.y - area.y) + self.list.offset;
        match event.kind {
            PointerKind::Click if row < self.sliders().len() && on_track(event.at) => {
                self.list.selected = row;
                self.drag_to(place(event.at.x), cx);
                true
            }
            PointerKind::Click if row < self.sliders().len() => {
                self.list.selected = row;
                true
            }
            // the wheel over the selected slider moves it
            PointerKind::Wheel(notches) if row == self.list.selected => {
                let act = if notches < 0 { Act::More } else { Act::Less };
                (0..notches.unsigned_abs().min(20)).for_each(|_| self.act(act, cx));
                true
            }
            _ => false,
        }
    }

    /// Moves the selected slider to a position between its ends, 0 to 1.
    fn drag_to(&mut self, place: f64, cx: &mut Context) {
        if !self.refuses(cx) {
            let slider = self.slider();
            self.change(|variant, values| slider.move_to(variant, values, place));
        }
    }
}

/// Values to pick from. Other architectures, such as `desync:8`, are typed.
fn offers_of(slider: Slider) -> Vec<Offer> {
    if slider != Slider::Architecture {
        return slider.option().map(offers::values).unwrap_or_default();
    }
    let known = ARCHITECTURES.iter().filter_map(|name| name.parse::<Architecture>().ok());
    known.map(|one| Offer::new(one.to_string(), meaning_of_architecture(&one))).collect()
}

/// Range of a number, and the forms that a typed one may have; a share of the GPU or link has no value beyond it.
fn range(slider: Slider, values: Option<&ProfileValues>) -> String {
    let number = |value: f64| match value.fract() == 0.0 {
        true => format!("{value}"),
        false => format::digits(value),
    };
    let [low, high] = slider.range(values).map(number);
    let beyond = if slider.is_share() { "" } else { ", or any number" };
    let related = match slider.unit() {
        "us" => ", or with ns, ms, s",
        "GB/s" => ", or with MB/s",
        _ => "",
    };
    format!("; slider range {low} to {high}{beyond}{related}, or x2, /2")
}

/// Fuzzy picker of a slider's values. Text that matches none is taken as typed, such as the directory of a model; if it is no
/// value, the picker stays with it and the error.
fn pick(slider: Slider, title: String, offers: Vec<Offer>, now: &str) -> Pick {
    let selected = offers.iter().position(|offer| offer.text == now).unwrap_or(0);
    let lines = offers.iter().map(|offer| (offer.text.clone(), offer.about.clone())).collect();
    let literal = move |text: &str, nothing_matches: bool| {
        let is_value = || slider.set(&mut WhatIfVariant::default(), None, text).is_ok();
        (nothing_matches && !text.trim().is_empty()).then(|| match is_value() {
            true => format!("Enter takes {text}"),
            false => format!("{text} is no value of {}", slider.name()),
        })
    };
    let (title_again, now) = (title.clone(), now.to_owned());
    let take = move |state: &mut State, chosen| {
        let value = match chosen {
            PickResult::Line(at) => offers.get(at).map(|offer| offer.text.clone()).unwrap_or_default(),
            PickResult::Text(text) => text,
        };
        let (whatif, cx) = WhatIf::screen_and_context(state);
        let mut outcome = Ok(());
        whatif.change(|variant, values| outcome = slider.set(variant, values, &value));
        if let Err(why) = outcome {
            cx.lay(pick(slider, title_again, offers, &now).typed(&value).refused(format::error(&why)));
        }
    };
    Pick::new(title, lines, literal, take).selecting(selected)
}
