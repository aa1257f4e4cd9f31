//! Layers of a foreign trace: the work between the collectives that end them.

use std::collections::HashMap;

use super::foreign::{Repeated, families, spans_of};
use super::steps::{Ends, Spans, leads};
use trace::{Span, Trace};

/// Layers after the first that its own kernels are compared with; some models alternate two kinds.
const COMPARED: usize = 2;

/// Times at which the layers of a foreign trace begin, by rank.
#[derive(Clone, Debug)]
pub(crate) struct LayerTimes {
    pub layers: u32,
    /// Start (ns) of each layer, in time order; `None` starts the work after a step's last layer.
    begins: HashMap<u32, Vec<(i64, Option<u32>)>>,
}

impl LayerTimes {
    /// Finds the layers of every rank; `None` without a repetition, or if ranks have different numbers of collectives.
    pub fn of(trace: &Trace) -> Option<Self> {
        let ends = Ends::of(trace).ok()?;
        let (spans, group) = spans_of(trace, ends, &mut Vec::new()).ok()?;
        let repeated = Repeated::of(trace, (&spans, group), &HashMap::new(), ends, None).ok()?;
        if repeated.is_partial {
            return None;
        }
        let families = families(trace);
        let begins = |rank: &Spans<'_>| {
            let mut begins = Vec::new();
            for step in repeated.whole() {
                let places = rank.places(&step, repeated.count);
                let own = &rank.reduces[step];
                let (extra, own) = own.split_at(own.len() - 2 * repeated.layers as usize);
                let from = extra.last().map_or(places.start, |at| at + 1);
                let mut at = first(trace, rank, &families, own, from);
                for (layer, ends) in (0..).zip(own.chunks_exact(2)) {
                    begins.push((rank.spans[at].start_ns, Some(layer)));
                    at = ends[1] + 1;
                }
                begins.extend(rank.spans.get(at).map(|span| (span.start_ns, None)));
            }
            (rank.rank, begins)
        };
        let begins = repeated.ranks.iter().map(begins).collect();
        Some(Self { layers: repeated.layers, begins })
    }

    pub fn layer(&self, span: &Span) -> Option<u32> {
        let begins = self.begins.get(&span.rank)?;
        let at = begins.partition_point(|(begin, _)| *begin <= span.start_ns);
        begins[at.checked_sub(1)?].1
    }
}

/// First span of the first layer, between `from` and its first collective: where its kernels start to match those of
/// later layers, including the norm before. Earlier work is the embedding.
fn first(trace: &Trace, rank: &Spans<'_>, families: &[usize], own: &[usize], from: usize) -> usize {
    let family = |at: usize| families[rank.spans[at].operation as usize];
    let common = |later: &[usize]| {
        let most = (own[0] - from).min(later[1] - later[0] - 1);
        (0..most).take_while(|back| family(own[0] - 1 - back) == family(later[1] - 1 - back)).count()
    };
    // the collective before a later layer, and its first one
    let later = own[1..].chunks(2).filter(|pair| pair.len() == 2).take(COMPARED);
    let mut first = own[0] - later.map(common).max().unwrap_or(own[0] - from);
    while first > from && leads(trace, rank.spans[first - 1]) {
        first -= 1;
    }
    first
}
