//! Counts and names of the events that an import leaves out, and its doubts about those that it keeps.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::Path;

use super::misplaced::AGAIN;
use crate::{Doubt, Doubted, IgnoredKernel};

/// Maximum number of events that are named for each reason.
const MOST_NAMED: usize = 3;

/// Maximum number of names of kernels that are counted.
const MOST_KERNELS: usize = 1000;

#[derive(Clone, Debug, Default)]
pub(super) struct LeftOut {
    named: BTreeMap<(&'static str, &'static str), Named>,
    /// Number of events by kernel, without second records.
    kernels: BTreeMap<String, u64>,
    doubts: BTreeSet<Doubt>,
    remarks: BTreeSet<String>,
}

/// Name of an event, and its time in words.
pub(super) struct Described {
    pub(super) name: String,
    pub(super) time: String,
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
        describe: impl FnOnce() -> Described,
    ) {
        let Described { name, time } = describe();
        let named = self.named.entry((what, why)).or_default();
        named.count += 1;
        if named.first.len() < MOST_NAMED || named.first.last().is_some_and(|(last, _)| order < *last) {
            named.insert(order, format!("{} {time}", base::text::fitting_name(&name, 60)));
        }
        if what == "kernel" && why != AGAIN {
            self.count_kernel(name, 1);
        }
    }

    fn count_kernel(&mut self, name: String, count: u64) {
        if self.kernels.len() < MOST_KERNELS || self.kernels.contains_key(&name) {
            *self.kernels.entry(name).or_default() += count;
        }
    }

    pub(super) fn absorb(&mut self, other: Self) {
        self.doubts.extend(other.doubts);
        self.remarks.extend(other.remarks);
        other.kernels.into_iter().for_each(|(name, count)| self.count_kernel(name, count));
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

    /// Adds warnings about events that were kept and change no result.
    pub(super) fn remark(&mut self, remarks: impl IntoIterator<Item = String>) {
        self.remarks.extend(remarks);
    }

    /// One sentence per reason: `3 kernels without a time ignored: gemm at 0 us, ...`; then those on kept events.
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
        let kept = self.doubts.iter().map(|doubt| &doubt.sentence).chain(&self.remarks);
        left_out.chain(kept.cloned())
    }

    pub(super) fn doubts_launches(&self) -> bool {
        self.doubts.iter().any(|doubt| doubt.about == Doubted::Launches)
    }

    /// Doubts about the file at this path.
    pub(super) fn doubts(&self, path: &str) -> impl Iterator<Item = Doubt> {
        let file = Path::new(path).file_name().map_or(path.into(), OsStr::to_string_lossy);
        let named = move |Doubt { about, sentence }: Doubt| Doubt {
            about,
            sentence: format!("{file}: {sentence}"),
        };
        self.doubts.iter().cloned().map(named)
    }

    pub(super) fn kernels(&self) -> impl Iterator<Item = IgnoredKernel> {
        let kernel = |(name, count): (&String, &u64)| IgnoredKernel {
            name: name.clone(),
            count: *count,
            is_communication: false,
        };
        self.kernels.iter().map(kernel)
    }
}

impl Named {
    fn insert(&mut self, order: i64, name: String) {
        let at = self.first.partition_point(|(other, _)| *other <= order);
        self.first.insert(at, (order, name));
        self.first.truncate(MOST_NAMED);
    }
}

pub(super) fn described(name: &str, start_ns: i64, end_ns: i64) -> Described {
    let us = |ns: i128| {
        let text = format!("{}.{:03}", ns / 1000, (ns % 1000).abs());
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    let length = i128::from(end_ns) - i128::from(start_ns);
    let time = format!("at {} us for {} us", us(start_ns.into()), us(length));
    Described { name: name.to_owned(), time }
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
        other.add("memcpy", "lasting longer than a day", 0, || described("copy", 0, i64::MAX));
        other.add("kernel", AGAIN, 0, || described("gemm", 0, 1));
        left.absorb(other);
        let sentences: Vec<_> = left.sentences().collect();
        assert_eq!(
            sentences,
            [
                "1 kernel recorded a second time ignored: gemm at 0 us for 0.001 us",
                "5 kernels without a time ignored: gemm at 0 us for 1.5 us, gemm at 0.001 us for 1.5 us, gemm at \
                 0.002 us for 1.5 us and 2 more",
                "1 memcpy lasting longer than a day ignored: copy at 0 us for 9223372036854775.807 us",
            ]
        );
        assert_eq!(left.counts().map(|(_, count)| count).sum::<u64>(), 7);
        let kernels: Vec<_> = left.kernels().map(|kernel| (kernel.name, kernel.count)).collect();
        assert_eq!(kernels, [("gemm".to_owned(), 5)], "a second record is no loss");
    }
}
