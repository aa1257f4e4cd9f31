//! Emulated collectives held against the link's own times: what is measured of a link contains what a launch costs, so
//! the kernel stays for that much less. And what one takes beside a chain of products.

use serde::Serialize;

use super::Engine;
use super::step::transfers;
use crate::cuda::clock::Tick;
use crate::cuda::collective::Collective;
use crate::cuda::launches::Call;
use crate::cuda::schedule::StreamId;
use crate::cuda::size::StepSize;
use crate::cuda::stopwatch::{LIMIT, median_us, rounds_us};
use crate::cuda::transfer::Transfer;
use base::error::Result;
use machine::driver::{DevicePtr, Memory, Stream};
use plan::{Lane, Phase};

/// Replays of a graph in a round.
const REPLAYS: usize = 2;

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
    pub(in crate::cuda) fn check_link(&mut self) -> Result<Option<LinkCheck>> {
        let Collective::Emulated(link) = &self.collective else { return Ok(None) };
        let link = link.clone();
        let tick = Tick::measure(&self.gpu, self.for_collectives(), &self.kernels.get("clock_probe")?)?;
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

    /// What an emulated collective of a decode step takes, what a chain of products that is about as long takes, and both
    /// beside each other (us), in graphs, whose launches cost a host nothing. `None` where nothing is emulated. What lies
    /// in activations is lost.
    pub(in crate::cuda) fn time_beside(&self) -> Result<Option<[f64; 3]>> {
        let (Collective::Emulated(link), Some(scratch)) = (&self.collective, &self.emulated) else {
            return Ok(None);
        };
        let program = &self.programs.decode;
        let size = StepSize::decode(self.setup.sequences);
        let all = transfers(program, &self.state(Phase::Decode).activations, &size);
        let Some((_, transfer)) = all.first() else { return Ok(None) };
        let (kernels, whole) = (self.kernels.of(false), self.gpu.info().multiprocessors);
        let link = (program, link, self.link_launch_ns);
        let gathered = self.gathered.as_ref().map(Memory::ptr);
        let mut collective = transfer.emulated(kernels, link, scratch.places(), gathered, whole)?;
        let mut chain = Vec::new();
        for product in self.products()?.iter().filter(|product| !product.logits) {
            for weight in &product.weights {
                chain.push(product.by_own_kernel(kernels, *weight)?);
            }
        }
        let communication_us = self.graph_us(&mut collective, &mut [], 0)?;
        let one_us = self.graph_us(&mut [], &mut chain, 1)?;
        let times = (communication_us / one_us.max(1.0)).ceil().max(1.0) as usize;
        let products_us = self.graph_us(&mut [], &mut chain, times)?;
        let both_us = self.graph_us(&mut collective, &mut chain, times)?;
        Ok(Some([communication_us, products_us, both_us]))
    }

    /// What a graph takes (us) of these calls on the stream of collectives beside those, so many times, on the compute stream.
    pub(super) fn graph_us(&self, beside: &mut [Call], calls: &mut [Call], times: usize) -> Result<f64> {
        let (main, comm) = (self.main(), self.for_collectives());
        // libraries load kernels when they are first launched, which a capture may forbid
        self.launch(comm, beside)?;
        self.launch(main, calls)?;
        main.synchronize_within(LIMIT)?;
        comm.synchronize_within(LIMIT)?;
        let (fork, join) = (self.gpu.event(false)?, self.gpu.event(false)?);
        let graph = main.capture(|| {
            main.record(&fork)?;
            comm.wait(&fork)?;
            self.launch(comm, beside)?;
            (0..times).try_for_each(|_| self.launch(main, calls))?;
            comm.record(&join)?;
            main.wait(&join)
        })?;
        let graph = graph.instantiate()?;
        graph.upload(main)?;
        rounds_us(&self.gpu, main, REPLAYS, |_| graph.launch(main))
    }

    /// The stream on which collectives are launched.
    fn for_collectives(&self) -> &Stream {
        self.streams.get(&StreamId { rank: 0, lane: Lane::Comm }).unwrap_or_else(|| self.main())
    }

    /// What one of several emulated collectives takes, one behind the other (us).
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
        let stream = self.for_collectives();
        median_us(&self.gpu, stream, &[DevicePtr(0)], |_| self.launch(stream, &mut calls))
    }
}
