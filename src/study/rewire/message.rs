//! Estimated message sizes of collectives whose trace does not record them: the size whose latency on a
//! hardware profile's link matches the transfer time.

use super::collective::{MESSAGES, by_name, bytes_of, cost};
use crate::analysis::CollectiveRow;
use machine::hardware::Target;
use table::P2p;

/// Multiple of the smallest message's latency up to which the latency says little about the size: at this
/// point 5 % more time means 25 % more bytes.
const FLAT: f64 = 1.25;

/// Message size (bytes) estimated from a latency.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Message {
    About(f64),
    /// Upper bound: smaller messages have the same latency.
    AtMost(f64),
}

/// Message size whose latency is `time_us`. `us` maps bytes to latency; a measured curve may fall where NCCL
/// switches protocols.
fn message(us: impl Fn(f64) -> f64, time_us: f64) -> Message {
    let flat_us = FLAT * us(MESSAGES.0);
    let least = bytes_of(&us, time_us.max(flat_us), MESSAGES);
    // a larger message with at most the same latency
    let larger = (1..=32).map(|step| least * 2f64.powf(f64::from(step) / 4.0));
    let faster = larger.filter(|bytes| us(*bytes) < time_us.max(flat_us)).last();
    let most = faster.map(|bytes| bytes_of(&us, time_us.max(flat_us), (bytes, MESSAGES.1)));
    match most {
        None if time_us > flat_us => Message::About(least),
        most => Message::AtMost(most.unwrap_or(least)),
    }
}

/// Estimates missing message sizes from the transfer times of matched collectives that the profile covers at
/// their group size. Bandwidths stay empty: they would only repeat the profile's.
pub fn estimate_messages(rows: &mut [CollectiveRow], target: &Target, p2p: P2p) {
    for row in rows.iter_mut().filter(|row| row.message_bytes.is_none()) {
        let (Some(ranks), Some(time_us)) = (row.group_size, row.transfer_us) else { continue };
        let Some(collective) = by_name(&row.executed.name).first().copied() else { continue };
        let Ok(cost) = cost(target, collective, p2p, ranks) else { continue };
        let found = match row.kind.as_str() {
            _ if ranks < 2 || time_us <= 0.0 => continue,
            "all_reduce" => message(|bytes| cost.us(bytes).0, time_us),
            "reduce_scatter" | "all_gather" => message(|bytes| cost.half_us(bytes).0, time_us),
            _ => continue,
        };
        match found {
            Message::About(bytes) => row.message_bytes = Some(bytes.round() as u64),
            Message::AtMost(bytes) => row.message_bytes_at_most = Some(bytes.round() as u64),
        }
        row.message_bytes_from = Some("calibration");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::hardware::{CollectiveScale, Profile};
    use table::Collective;

    #[test]
    fn a_formula_is_inverted_above_its_latency() {
        // 10 us and 100 GB/s
        let us = |bytes: f64| 10.0 + bytes / 1e5;
        for bytes in [4e5, 1e6, 1e9] {
            let Message::About(found) = message(us, us(bytes)) else { panic!("{bytes}") };
            assert!((found / bytes - 1.0).abs() < 1e-6, "{found} for {bytes}");
        }
        // up to 12.5 us the size is open
        for time_us in [0.1, 9.0, 10.0, 12.0] {
            let Message::AtMost(most) = message(us, time_us) else { panic!("{time_us}") };
            assert!((most / 2.5e5 - 1.0).abs() < 0.01, "{most} at {time_us}");
        }
    }

    #[test]
    fn messages_that_a_measured_link_cannot_tell_apart_have_an_upper_limit() {
        let h100 = Profile::load("h100_sxm").unwrap();
        let (cost, _) = h100.collective(Collective::Nccl, P2p::On, 8, CollectiveScale::ALONE);
        for bytes in [1e6, 1.6e7, 3e9] {
            let Message::About(found) = message(|b| cost.us(b).0, cost.us(bytes).0) else {
                panic!("{bytes}")
            };
            assert!((found / bytes - 1.0).abs() < 0.01, "{found} for {bytes}");
        }
        let Message::AtMost(small) = message(|b| cost.us(b).0, cost.us(4096.0).0) else { panic!() };
        assert!((16_384.0..1e6).contains(&small), "{small}");
        // 512 KiB takes 156 us, 1 MiB 132 us
        let mi300x = Profile::load("mi300x").unwrap();
        let (cost, _) = mi300x.collective(Collective::Nccl, P2p::Off, 8, CollectiveScale::ALONE);
        let Message::AtMost(either) = message(|b| cost.us(b).0, 145.0) else { panic!() };
        assert!((1_048_576.0..2_097_152.0).contains(&either), "{either}");
    }
}
