//! Which ranges are steps: `ProfilerStep#12`, `decode step 12`, `iteration 12`.

/// The number at the end of a step's name, and what stands before it in lower case.
pub(super) fn step(name: &str) -> Option<(String, u32)> {
    let name = name.trim().trim_end_matches([']', ')', '>']);
    let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = name[prefix.len()..].parse().ok()?;
    if prefix.len() > 64 {
        return None;
    }
    let prefix = prefix
        .trim_end_matches([' ', '#', '_', ':', '=', '-', '.', '[', '(', '<', '/'])
        .to_ascii_lowercase();
    let word = prefix.rsplit(|c: char| !c.is_ascii_alphanumeric()).next()?;
    let is_step = word.ends_with("step") || word == "iteration" || word == "iter";
    is_step.then_some((prefix, number))
}

/// Which of several kinds of steps to go by: the highest, then the most frequent.
pub(super) fn preference(prefix: &str) -> u32 {
    match prefix {
        "profilerstep" => 3,
        _ if prefix.contains("decod") => 2,
        _ if prefix.ends_with("step") => 1,
        _ => 0,
    }
}

/// Steps of one process: which holds a moment.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// Start, end, thread, number; by start once sorted.
    list: Vec<(i64, i64, i64, u32)>,
    /// Latest end of this and all before: says when looking further back is in vain.
    latest: Vec<i64>,
}

impl Steps {
    pub fn push(&mut self, start: i64, end: i64, thread: i64, number: u32) {
        self.list.push((start, end, thread, number));
    }

    pub fn sort(&mut self) {
        self.list.sort_unstable();
        self.latest = self
            .list
            .iter()
            .scan(i64::MIN, |latest, step| {
                *latest = step.1.max(*latest);
                Some(*latest)
            })
            .collect();
    }

    /// The step at a time: of the launching thread, else of any thread. The latest to start decides.
    pub fn at(&self, time: i64, thread: Option<i64>) -> Option<u32> {
        /// How far back to look, where steps of many threads lie over one another.
        const FAR: usize = 256;
        let end = self.list.partition_point(|step| step.0 <= time);
        let mut any = None;
        for index in (end.saturating_sub(FAR)..end).rev() {
            if self.latest[index] <= time {
                break;
            }
            let (_, step_end, of, number) = self.list[index];
            if time < step_end {
                if thread.is_none_or(|thread| thread == of) {
                    return Some(number);
                }
                any = any.or(Some(number));
            }
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_told_from_other_ranges_by_their_names() {
        for (name, expected) in [
            ("ProfilerStep#12", Some(("profilerstep", 12))),
            ("decode step 7", Some(("decode step", 7))),
            ("Iteration: 0", Some(("iteration", 0))),
            ("iter_003", Some(("iter", 3))),
            ("train/step[4]", Some(("train/step", 4))),
            ("aten::copy_, op_id = 99", None),
            ("step", None),
            ("step 99999999999", None),
            ("stepping 3", None),
            ("filter 3", None),
            ("", None),
        ] {
            let expected = expected.map(|(prefix, number): (&str, u32)| (prefix.to_owned(), number));
            assert_eq!(step(name), expected, "{name}");
        }
    }

    #[test]
    fn the_launching_threads_step_decides_and_then_any() {
        let mut steps = Steps::default();
        for (start, end, thread, number) in [(0, 100, 1, 0), (100, 200, 1, 1), (50, 150, 2, 9)] {
            steps.push(start, end, thread, number);
        }
        steps.sort();
        assert_eq!(steps.at(99, Some(1)), Some(0));
        assert_eq!(steps.at(100, Some(1)), Some(1));
        assert_eq!(steps.at(120, Some(2)), Some(9));
        assert_eq!(steps.at(120, Some(3)), Some(1));
        assert_eq!(steps.at(200, None), None);
        assert_eq!(steps.at(-1, None), None);
    }
}
