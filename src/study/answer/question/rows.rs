//! Table of an answer: the cells of the largest gains with their ratios and verdicts.

use super::{ComparisonQuestion, is_chance_of_many};
use crate::analysis::{
    Comparison, FlagKind, LEAST_DIFFERENCE, WideRounds, fastest, is_beaten_by_noise, is_measured_apart,
    less_work,
};
use crate::answer::{OmittedRows, contradicts_tpot};
use base::statistics::grouped;
use base::text::digits;
use table::Record;
use table::render::{Shown, Table};

/// Maximum rows of the table; the sentences cover all pairs.
const MOST_ROWS: usize = 12;

/// Columns that a narrow window drops, last one first. The speedup stays.
const LEAST: [&str; 6] = ["TPOT ms", ROUNDS_TPOT, "verdict", "exposed %", "published", "gap %"];

/// Title of ranges from the fastest to the slowest round, which are no confidence intervals.
const ROUNDS_TPOT: &str = "TPOT by round";

impl ComparisonQuestion<'_> {
    /// Table of the cells with their ratios, the baseline of each setting first; and the part that it leaves out. Runs
    /// without numbers have a row with their status.
    pub fn table(&self, missing: &[&Record]) -> (Table, OmittedRows) {
        let by = format!("!{}", self.report.by.replace('_', " "));
        let baseline = self.report.pairs.first().map_or_else(String::new, |pair| self.baseline(pair));
        // says that ratios are paired by round where the latencies shown seem to contradict them
        let is_wide = |pair: &Comparison| {
            let sides = [&pair.side, &pair.baseline_side];
            !is_measured_apart(pair) && sides.into_iter().any(|side| WideRounds::of_side(side).is_some())
        };
        // one form in all rows: the fastest and the slowest round of each if a cell's vary widely
        let has_ranges = self.report.pairs.iter().any(is_wide);
        let is_by_round = |pair: &Comparison| {
            let is_paired = pair.side.rounds.min(pair.baseline_side.rounds) > 1;
            !pair.is_simulated() && is_paired && (is_wide(pair) || contradicts_tpot(pair))
        };
        let by_round = self.report.pairs.iter().any(is_by_round);
        // ranges of rounds need the room of the baseline's name
        let (latency, speedup) = match self.report.latency() {
            "TPOT" if has_ranges => (ROUNDS_TPOT, "!tok/s x by round".to_owned()),
            "TPOT" if by_round => ("TPOT ms", "!tok/s x by round".to_owned()),
            "TPOT" => ("TPOT ms", format!("!tok/s vs {baseline}")),
            _ if by_round => ("TTFT ms", "!TTFT x by round".to_owned()),
            _ => ("TTFT ms", "!speedup (TTFT)".to_owned()),
        };
        // the interval of the speedup is the one that decides
        let latency_of = |pair: &Comparison, at: usize| {
            let is_own = pair.latency() == self.report.latency();
            let side = [&pair.baseline_side, &pair.side][at];
            let tpot = side.rounds_tpot_ms.filter(|_| self.report.latency() == "TPOT");
            match tpot.or(side.rounds_ms).filter(|_| has_ranges && is_own) {
                Some(range) => {
                    // rounds so far apart need no fractions, and a narrow window has no room
                    let short = |ms: f64| if ms < 10.0 { digits(ms) } else { format!("{ms:.0}") };
                    let [least, most] = range.map(short);
                    Shown::text(if least == most { least } else { format!("{least} to {most}") })
                }
                None => Shown::number(Some(pair.latencies_ms()[at]).filter(|_| is_own), 2),
            }
        };
        let titles = ["~setting", &by, latency, &speedup, "exposed %", "gap %", "verdict"];
        let has_published = self.report.pairs.iter().any(|pair| pair.published_speedup.is_some());
        let titles = titles.into_iter().chain(has_published.then_some("published"));
        let mut table = Table::new(titles).least(&LEAST);
        let leaders = self.choices.iter().map(|(_, pairs)| (pairs.len() > 1, fastest(pairs)));
        let leaders: Vec<(bool, Vec<&Comparison>)> = leaders.collect();
        // row without numbers
        let bare_row = |value: String, word: &str| {
            let mut row = vec![Shown::None; 7 + usize::from(has_published)];
            let words = [(0, String::new()), (1, value), (6, word.to_owned())];
            words.into_iter().for_each(|(at, text)| row[at] = Shown::text(text));
            row
        };
        let (settings, left_out) = self.table_settings();
        let rows: usize = settings.iter().map(|(_, pairs)| pairs.len() + 1).sum();
        let mut room = MOST_ROWS.saturating_sub(rows);
        let in_rows = settings.iter().flat_map(|(setting, pairs)| {
            // pairs may differ in rounds: show the baseline with the most
            let widest = pairs.iter().copied().max_by_key(|pair| pair.baseline_side.rounds);
            let baseline = widest.map(|pair| (setting, pair));
            pairs.iter().enumerate().map(move |(at, pair)| {
                let ended: &[&Comparison] = if at + 1 == pairs.len() { pairs } else { &[] };
                (baseline.filter(|_| at == 0), *pair, ended)
            })
        });
        // `ended`: the pairs of a setting at its last one, after which runs without numbers follow
        for (baseline, pair, ended) in in_rows {
            if let Some((setting, pair)) = baseline {
                let mut row = vec![
                    Shown::some(setting),
                    Shown::text(self.baseline(pair)),
                    latency_of(pair, 0),
                    Shown::None,
                    Shown::number(pair.baseline_side.exposed_pct, 1),
                    Shown::None,
                    Shown::text("baseline"),
                ];
                row.extend(has_published.then_some(Shown::None));
                table.push(row);
            }
            let mut absent = self.missing_in(ended, missing);
            absent.truncate(room);
            room -= absent.len();
            let absent = absent.into_iter().map(|(value, status)| bare_row(value, status));
            if is_measured_apart(pair) {
                // numbers of other rounds than the baseline's would contradict it
                let apart = pair.apart_from(&self.baseline(pair)).unwrap_or_default();
                table.push(bare_row(self.value(pair), &apart));
                absent.for_each(|row| table.push(row));
                continue;
            }
            // without a decided gain, the gap closed is undecided too
            let is_shown = pair.is_simulated() || !pair.verdict.is_undecided();
            let gap = pair.hidden_share.filter(|_| is_shown);
            let gap = match gap.filter(|_| is_slowed_by_contention(pair)) {
                Some(share) => Shown::text(format!("{:.0} contention", 100.0 * share)),
                None => Shown::interval(
                    gap.map(|share| 100.0 * share),
                    pair.hidden_share_ci95.map(|ci| ci.map(|share| 100.0 * share)),
                    0,
                ),
            };
            let mut row = vec![
                Shown::text(""),
                Shown::text(self.value(pair)),
                latency_of(pair, 1),
                Shown::interval(Some(pair.speedup), pair.speedup_ci95, 2),
                Shown::number(pair.side.exposed_pct, 1),
                gap,
                Shown::text(match pair.is_limit() {
                    true if is_limit_too_slow(pair, &self.report.pairs) => "too slow: noise".to_owned(),
                    true if self.is_doubtful_limit(pair) => "the limit, varies with P2P".to_owned(),
                    true => "the limit".to_owned(),
                    false => self.verdict_word(pair, &leaders),
                }),
            ];
            let published = pair.published_speedup.map(|of| of.ratio());
            row.extend(has_published.then(|| published.map_or(Shown::None, Shown::text)));
            table.push(row);
            absent.for_each(|row| table.push(row));
        }
        let head = left_out.common_head(table.len());
        (table.common_head(head), left_out)
    }

    /// True if this `upper-bound` differs between P2P on and off, although it does not communicate.
    pub(super) fn is_doubtful_limit(&self, limit: &Comparison) -> bool {
        let unequal = self.report.flags.iter().filter(|flag| flag.kind == FlagKind::UnequalLimits);
        unequal.flat_map(|flag| &flag.runs).any(|run| *run == limit.run)
    }

    /// Verdict of a choice as in the headline: the fastest of its setting or tied for it, else against the baseline.
    /// `leaders` has the fastest choices of each setting, and whether there are several choices.
    fn verdict_word(&self, pair: &Comparison, leaders: &[(bool, Vec<&Comparison>)]) -> String {
        if pair.is_above_limit {
            return "above the limit: noise".to_owned();
        }
        let value = self.value(pair);
        let value =
            self.twins.iter().find(|(twin, _)| *twin == value).map_or(value, |(_, of)| of.clone());
        let is_same =
            |own: &&Comparison| own.baseline_run == pair.baseline_run && self.value(own) == value;
        match leaders.iter().find(|(_, fastest)| fastest.iter().any(&is_same)) {
            Some((_, fastest)) if fastest.len() > 1 => "tied for fastest".to_owned(),
            Some((true, _)) => "fastest".to_owned(),
            _ if pair.verdict.is_tie() => "tied".to_owned(),
            _ if is_chance_of_many(pair) => {
                format!("undecided among {}", self.report.adjusted.tested)
            }
            // the details say why
            _ if pair.verdict.is_undecided() => "undecided".to_owned(),
            _ => pair.verdict.to_string(),
        }
    }

    /// Settings of the table with their pairs, and the part left out. If not all fit: whole settings by their largest
    /// gains, with the headline's.
    fn table_settings(&self) -> (Vec<(String, Vec<&Comparison>)>, OmittedRows) {
        let pairs = self.report.pairs.iter();
        let mut settings = grouped(pairs.map(|pair| (self.settings.words(&pair.side.spec), pair)));
        // the baseline of a setting has a row too
        let all = self.report.pairs.len() + settings.len();
        if all <= MOST_ROWS {
            return (settings, OmittedRows::default());
        }
        let gain = |pairs: &[&Comparison]| {
            let choices = pairs.iter().filter(|pair| !pair.is_limit() && !is_measured_apart(pair));
            choices.map(|pair| pair.speedup).fold(0.0, f64::max)
        };
        settings.sort_by(|(_, a), (_, b)| gain(b).total_cmp(&gain(a)));
        let of_headline = self.lead().and_then(|lead| {
            settings.iter().position(|(_, pairs)| pairs.iter().any(|pair| std::ptr::eq(*pair, lead)))
        });
        if let Some(at) = of_headline {
            settings[..=at].rotate_right(1);
        }
        let mut choices = 0;
        if let Some((_, pairs)) = settings.first_mut() {
            choices = pairs.len().saturating_sub(MOST_ROWS - 1);
            drop_slowest(pairs, MOST_ROWS - 1);
        }
        let mut rows = 0;
        let kept = settings.iter().take_while(|(_, pairs)| {
            rows += pairs.len() + 1;
            rows <= MOST_ROWS
        });
        let (kept, all_settings) = (kept.count(), settings.len());
        settings.truncate(kept);
        settings.sort_by(|(_, a), (_, b)| gain(b).total_cmp(&gain(a)));
        let shown: usize = settings.iter().map(|(_, pairs)| pairs.len() + 1).sum();
        (
            settings,
            OmittedRows { cells: all - shown, choices, settings: all_settings - kept, all_settings },
        )
    }
}

/// True if noise puts `upper-bound` behind a choice of its setting that does no less work, in throughput or in latency.
fn is_limit_too_slow(limit: &Comparison, pairs: &[Comparison]) -> bool {
    let latency = |pair: &Comparison| pair.latencies_ms()[1];
    let is_ahead = |pair: &Comparison| {
        !pair.is_limit()
            && !is_measured_apart(pair)
            && pair.baseline_run == limit.baseline_run
            && latency(pair) * (1.0 + LEAST_DIFFERENCE) < latency(limit)
            && less_work(&pair.side.spec).is_none()
    };
    let is_measured = limit.is_limit() && !limit.is_simulated();
    is_beaten_by_noise(limit, pairs) || is_measured && pairs.iter().any(is_ahead)
}

/// True if a simulated cell exposes little communication and still leaves a gap to `upper-bound`, mostly by contention.
fn is_slowed_by_contention(pair: &Comparison) -> bool {
    let exposes_little = pair.side.exposed_pct.is_some_and(|pct| pct < 10.0);
    let has_gap = pair.hidden_share.is_some_and(|share| share < 0.9);
    let above = pair.above_upper_bound.filter(|above| above.decode_ms > 0.0);
    let is_contention = above.is_some_and(|above| above.contention_ms >= 0.5 * above.decode_ms);
    pair.is_simulated() && exposes_little && has_gap && is_contention
}

/// Drops the slowest choices of a setting, until `most` pairs are left.
fn drop_slowest(pairs: &mut Vec<&Comparison>, most: usize) {
    while pairs.len() > most {
        let choices = pairs.iter().enumerate().filter(|(_, pair)| !pair.is_limit());
        let slowest = choices.min_by(|(_, a), (_, b)| a.speedup.total_cmp(&b.speedup));
        let Some((slowest, _)) = slowest else { return pairs.truncate(most) };
        pairs.remove(slowest);
    }
}
