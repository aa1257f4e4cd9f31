//! Emulated collectives held against the link's own times: what is measured of a link contains what a launch costs, so
//! the kernel stays for that much less.

use serde::Serialize;

use super::Engine;
use super::step::transfers;
use crate::base::error::Result;
use crate::machine::driver::{DevicePtr, Memory};
use crate::plan::{Lane, Phase};
use crate::run::cuda::clock::Tick;
use crate::run::cuda::collective::Collective;
use crate::run::cuda::schedule::StreamId;
use crate::run::cuda::size::StepSize;
use crate::run::cuda::stopwatch::median_us;
use crate::run::cuda::transfer::Transfer;

/// What became of an emulated link on this GPU.
#[derive(Clone, Debug, Serialize)]
pub struct LinkCheck {
    /// How the clock ticks by which it waits.
    pub tick: Tick,
    /// What a launch takes of each collective's time (us), in a row of them.
    pub launch_us: f64,
    /// Collectives of each size of a step, one behind the other.
    pub checked: Vec<Checked>,
}

/// Emulated collectives of one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Checked {
    /// Bytes of the message.
    pub bytes: u64,
    /// What the link says (us).
    pub target_us: f64,
    /// What one took, from one to the next (us).
    pub took_us: f64,
}

impl Engine {
    /// Times emulated collectives of the sizes of this engine's steps and takes off what their launches cost, in steps
    /// that are made from now on; `None` where nothing is emulated. What lies in activations is lost.
    pub(in crate::run::cuda) fn check_link(&mut self) -> Result<Option<LinkCheck>> {
        let Collective::Emulated(link) = &self.collective else { return Ok(None) };
        let link = link.clone();
        let comm = StreamId { rank: 0, lane: Lane::Comm };
        let Some(stream) = self.streams.get(&comm) else { return Ok(None) };
        let tick = Tick::measure(&self.gpu, stream, &self.kernels.get("clock_probe")?)?;
        let (sequences, tokens) = self.setup.prefill;
        let decode = StepSize::decode(self.setup.sequences);
        let prefill = StepSize { first_sequence: 0, sequences, first_token: 0, tokens };
        let mut all: Vec<(Phase, Transfer)> = Vec::new();
        for (phase, size) in [(Phase::Decode, decode), (Phase::Prefill, prefill)] {
            let activations = &self.state(phase).activations;
            for (_, transfer) in transfers(self.programs.of(phase), activations, &size) {
                let same = |(_, known): &(Phase, Transfer)| {
                    (known.message_bytes(), known.exchange)
                        == (transfer.message_bytes(), transfer.exchange)
                };
                if !all.iter().any(same) {
                    all.push((phase, transfer));
                }
            }
        }
        let target = |transfer: &Transfer| transfer.lasts_ns(&link) as f64 / 1e3;
        if let Some((phase, transfer)) = all.first() {
            let more_us = self.time_emulated(*phase, transfer)? - target(transfer);
            self.link_launch_ns = (more_us * 1e3).max(0.0).round() as u64;
        }
        let check = |(phase, transfer): &(Phase, Transfer)| {
            let took_us = self.time_emulated(*phase, transfer)?;
            Ok(Checked { bytes: transfer.message_bytes(), target_us: target(transfer), took_us })
        };
        let checked = all.iter().map(check).collect::<Result<_>>()?;
        Ok(Some(LinkCheck { tick, launch_us: self.link_launch_ns as f64 / 1e3, checked }))
    }

    /// What one of several emulated collectives takes, one behind the other on the comm stream (us).
    fn time_emulated(&self, phase: Phase, transfer: &Transfer) -> Result<f64> {
        let (Collective::Emulated(link), Some(scratch)) = (&self.collective, &self.emulated) else {
            return Ok(0.0);
        };
        let gathered = self.gathered.as_ref().map(Memory::ptr);
        let link = (self.programs.of(phase), link, self.link_launch_ns);
        let multiprocessors = self.gpu.info().multiprocessors;
        let mut calls = transfer.emulated(
            self.kernels.of(false),
            link,
            scratch.places(),
            gathered,
            multiprocessors,
        )?;
        // what a message in 8 bits becomes is no part of the link
        calls.truncate(1);
        let stream = &self.streams[&StreamId { rank: 0, lane: Lane::Comm }];
        median_us(&self.gpu, stream, &[DevicePtr(0)], |_| self.launch(stream, &mut calls))
    }
}
