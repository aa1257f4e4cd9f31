//! Calibration of emulated collectives against the link's latency. A measured link latency includes the
//! launch, so the kernel waits that much less. Also times a collective in parallel with a chain of products.

use serde::Serialize;

use super::Engine;
use super::step::transfers;
use crate::cuda::collective::{Collective, Transfer};
use crate::cuda::launches::Call;
use crate::cuda::program::StepSize;
use crate::cuda::schedule::StreamId;
use crate::cuda::timing::Tick;
use crate::cuda::timing::stopwatch::{LIMIT, median_us, rounds_us};
use base::error::Result;
use machine::driver::{DevicePtr, Memory, Stream};
use plan::{Lane, Phase};

const REPLAYS: usize = 2;

/// Calibration of an emulated link on this GPU.
#[derive(Clone, Debug, Serialize)]
pub struct LinkCheck {
    /// Resolution of the clock the kernel waits on.
    pub tick: Tick,
    /// Launch overhead per collective in a back-to-back sequence (us).
    pub launch_us: f64,
    /// Back-to-back collectives of each message size of a step.
    pub checked: Vec<Checked>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Checked {
    pub bytes: u64,
    /// Latency according to the link (us).
    pub target_us: f64,
    /// Measured latency per collective (us).
    pub took_us: f64,
}

impl Engine {
    /// Times emulated collectives at this engine's message sizes and subtracts their launch overhead in steps
    /// created later. Returns `None` if nothing is emulated. Overwrites activations.
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

    /// Graph latencies (us) of an emulated collective of a decode step, of a chain of products of about the
    /// same length, and of both in parallel. Returns `None` if nothing is emulated. Overwrites activations.
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
        for product in self.products()?.iter().filter(|product| !product.product.logits) {
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

    /// Latency of a graph (us) with `beside` on the communication stream and `times` repetitions of `calls`
    /// on the compute stream.
    pub(in crate::cuda) fn graph_us(
        &self,
        beside: &mut [Call],
        calls: &mut [Call],
        times: usize,
    ) -> Result<f64> {
        let (main, comm) = (self.main(), self.for_collectives());
        // libraries load kernels at the first launch, which a capture may forbid
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

    fn for_collectives(&self) -> &Stream {
        self.streams.get(&StreamId { rank: 0, lane: Lane::Comm }).unwrap_or_else(|| self.main())
    }

    /// Latency of one of several back-to-back emulated collectives (us).
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
        // unpacking an 8-bit message is not part of the link
        calls.truncate(1);
        let stream = self.for_collectives();
        median_us(&self.gpu, stream, &[DevicePtr(0)], |_| self.launch(stream, &mut calls))
    }
}
