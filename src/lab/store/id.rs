//! Ids of runs and batches: UTC time for sorting, a readable word, and random digits. Tests inject time and
//! randomness to get fixed ids.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use jiff::Timestamp;
use rustix::rand::{GetRandomFlags, getrandom};

/// Source of time and randomness for ids.
#[derive(Clone, Debug)]
pub(super) struct IdSource {
    clock: Clock,
    random: Arc<Mutex<fastrand::Rng>>,
}

#[derive(Clone, Debug)]
enum Clock {
    System,
    /// Seconds since the epoch; every read advances it by one.
    Stepping(Arc<AtomicI64>),
}

impl IdSource {
    pub fn system() -> Self {
        let mut seed = [0; 8];
        let got = getrandom(&mut seed, GetRandomFlags::empty());
        // `fastrand` seeds itself from the clock: cluster tasks that start together would draw the same ids
        let random = match got {
            Ok(8) => fastrand::Rng::with_seed(u64::from_ne_bytes(seed)),
            _ => fastrand::Rng::with_seed(fastrand::u64(..) ^ u64::from(std::process::id())),
        };
        Self { clock: Clock::System, random: Arc::new(Mutex::new(random)) }
    }

    /// Clock that starts at `second` and advances by one second per read; random digits from `seed`.
    pub fn stepping(second: i64, seed: u64) -> Self {
        Self {
            clock: Clock::Stepping(Arc::new(AtomicI64::new(second))),
            random: Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))),
        }
    }

    /// Current time, or the next second of a stepping clock.
    pub fn now(&self) -> Timestamp {
        match &self.clock {
            // a system clock out of the range of dates is no reason to abort
            Clock::System => SystemTime::now().try_into().unwrap_or(Timestamp::MAX),
            Clock::Stepping(second) => {
                Timestamp::from_second(second.fetch_add(1, Ordering::SeqCst)).unwrap_or_default()
            }
        }
    }

    /// Id for something called `word`, created at `now`.
    pub fn id(&self, now: Timestamp, word: &str) -> String {
        let random = match self.random.lock() {
            Ok(mut random) => random.u32(..),
            Err(poisoned) => poisoned.into_inner().u32(..),
        };
        id(now, word, random)
    }
}

/// Id that sorts by time: UTC, a readable word and random digits, e.g. `20261121-043012-ladder-a1b2c3`.
fn id(now: Timestamp, word: &str, random: u32) -> String {
    let word: String = word
        .chars()
        .filter_map(|c| match c {
            'a'..='z' | '0'..='9' | '-' => Some(c),
            'A'..='Z' => Some(c.to_ascii_lowercase()),
            '+' | '.' | '_' => Some('-'),
            _ => None,
        })
        .take(24)
        .collect();
    format!("{}-{word}-{:06x}", now.strftime("%Y%m%d-%H%M%S"), random & 0xff_ffff)
}

/// RFC 3339 in UTC with microseconds. Fixed length, so text order is time order.
pub(super) fn rfc3339(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// True if a name is a valid id, and thus safe as a file name.
pub(super) fn is_id(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('.')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_readable_sort_by_time_and_are_names_of_files() {
        let source = IdSource::stepping(1_795_235_412, 7);
        let ids: Vec<String> = ["ladder", "desync:4", "ladder:[0+2]", "parallel+ladder"]
            .iter()
            .map(|word| source.id(source.now(), word))
            .collect();
        assert!(ids[0].starts_with("20261121-043012-ladder-"), "{}", ids[0]);
        assert!(ids[1].starts_with("20261121-043013-desync4-"), "{}", ids[1]);
        assert!(ids[2].starts_with("20261121-043014-ladder0-2-"), "{}", ids[2]);
        assert!(ids.is_sorted());
        assert!(ids.iter().all(|id| is_id(id)));
        assert!(!is_id("../escape") && !is_id("") && !is_id(".tmp-1") && !is_id("a:1"));
    }

    #[test]
    fn times_have_one_width() {
        let whole = rfc3339(Timestamp::from_second(0).unwrap());
        assert_eq!(whole, "1970-01-01T00:00:00.000000Z");
        assert_eq!(rfc3339(Timestamp::now()).len(), whole.len());
    }
}
