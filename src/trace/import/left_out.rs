//! Counts and names of the events that an import leaves out, and its doubts about those that it keeps.

use std::collections::{BTreeMap, BTreeSet};

use crate::Doubt;

/// Maximum number of events that are named for each reason.
const MOST_NAMED: usize = 3;

#[derive(Clone, Debug, Default)]
pub(super) struct LeftOut {
    named: BTreeMap<(&'static str, &'static str), Named>,
    doubts: BTreeSet<Doubt>,
}

#[derive(Clone, Debug, Default)]
struct Named {
    count: u64,
    /// Sort key (file offset or time), and description of the event.
    first: Vec<(i64, String)>,
}

impl LeftOut {
    /// Counts an event. Keeps the descriptions of the events with the smallest `order`.
    pub(super) fn add(
        &mut self,
        what: &'static str,
        why: &'static str,
        order: i64,
        name: impl FnOnce() -> String,
    ) {
        let named = self.named.entry((what, why)).or_default();
        named.count += 1;
        if named.first.len() < MOST_NAMED || named.first.last().is_some_and(|(last, _)| order < *last) {
            named.insert(order, name());
        }
    }

    pub(super) fn absorb(&mut self, other: Self) {
        self.doubts.extend(other.doubts);
        for (key, more) in other.named {
            let named = self.named.entry(key).or_default();
            named.count += more.count;
            more.first.into_iter().for_each(|(order, name)| named.insert(order, name));
        }
    }

    /// Number of dropped events by phrase: `kernel without a time`.
    pub(super) fn counts(&self) -> impl Iterator<Item = (String, u64)> {
        self.named.iter().map(|((what, why), named)| (format!("{what} {why}"), named.count))
    }

    /// Adds findings on doubtful events that were kept.
    pub(super) fn doubt(&mut self, doubts: impl IntoIterator<Item = Doubt>) {
        self.doubts.extend(doubts);
    }

    /// One sentence per reason: `3 kernels without a time ignored: gemm at 0 us, ...`; then those on doubtful events.
    pub(super) fn sentences(&self) -> impl Iterator<Item = String> {
        let left_out = self.named.iter().map(|((what, why), named)| {
            let names: Vec<&str> = named.first.iter().map(|(_, name)| name.as_str()).collect();
            let plural = match (named.count, *what) {
                (1, what) => what.to_owned(),
                (_, "memcpy" | "memset") => format!("{what} events"),
                (_, "launch" | "graph launch") => format!("{what}es"),
                (_, what) => format!("{what}s"),
            };
            let more = named.count - names.len() as u64;
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{} {plural} {why} ignored: {}{more}", named.count, names.join(", "))
        });
        left_out.chain(self.doubts.iter().map(|doubt| doubt.sentence.clone()))
    }

    pub(super) fn doubts(&self) -> impl Iterator<Item = Doubt> {
        self.doubts.iter().cloned()
    }
}

impl Named {
    fn insert(&mut self, order: i64, name: String) {
        let at = self.first.partition_point(|(other, _)| *other <= order);
        self.first.insert(at, (order, name));
        self.first.truncate(MOST_NAMED);
    }
}

pub(super) fn described(name: &str, start_ns: i64, end_ns: i64) -> String {
    let us = |ns: i128| {
        let text = format!("{}.{:03}", ns / 1000, (ns % 1000).abs());
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    let length = i128::from(end_ns) - i128::from(start_ns);
    let name = base::text::fitting_name(name, 60);
    format!("{name} at {} us for {} us", us(start_ns.into()), us(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_three_are_named() {
        let mut left = LeftOut::default();
        for at in (0..5).rev() {
            left.add("kernel", "without a time", at, || described("gemm", at, at + 1500));
        }
        let mut other = LeftOut::default();
        other.add("memcpy", "lasting longer than a day", 0, || "copy".into());
        left.absorb(other);
        let sentences: Vec<_> = left.sentences().collect();
        assert_eq!(
            sentences,
            [
                "5 kernels without a time ignored: gemm at 0 us for 1.5 us, gemm at 0.001 us for 1.5 us, gemm at \
                 0.002 us for 1.5 us and 2 more",
                "1 memcpy lasting longer than a day ignored: copy",
            ]
        );
        assert_eq!(left.counts().map(|(_, count)| count).sum::<u64>(), 6);
    }
}
