//! Parser for one event: extracts the few relevant keys, in any order, and skips the rest as fast as
//! possible.

use super::blocks::after_close;
use super::json::{Cursor, JsonError, JsonValue, NotATime, nanoseconds};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GpuCategory {
    Kernel,
    Memcpy,
    Memset,
}

impl GpuCategory {
    /// All variants, in order of discriminant.
    pub(super) const ALL: [Self; 3] = [Self::Kernel, Self::Memcpy, Self::Memset];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Memcpy => "memcpy",
            Self::Memset => "memset",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventClass {
    Gpu(GpuCategory),
    /// Host calls to the GPU runtime or driver.
    Launch,
    HostRange,
    /// A user annotation, as recorded on the device's streams.
    DeviceRange,
    /// Framework operators; imported as ranges on request.
    Operator,
    Other,
}

impl EventClass {
    pub(super) fn from_category(category: &[u8]) -> Self {
        let is = |name: &str| category.eq_ignore_ascii_case(name.as_bytes());
        let ends = |name: &str| {
            category
                .len()
                .checked_sub(name.len())
                .is_some_and(|at| category[at..].eq_ignore_ascii_case(name.as_bytes()))
        };
        if is("kernel") {
            Self::Gpu(GpuCategory::Kernel)
        } else if is("gpu_memcpy") || is("memcpy") {
            Self::Gpu(GpuCategory::Memcpy)
        } else if is("gpu_memset") || is("memset") {
            Self::Gpu(GpuCategory::Memset)
        } else if is("runtime") || is("driver") || ends("_runtime") || ends("_driver") {
            Self::Launch
        } else if is("user_annotation") || is("nvtx") || is("record_function") {
            Self::HostRange
        } else if is("gpu_user_annotation") {
            Self::DeviceRange
        } else if is("cpu_op") || is("operator") {
            Self::Operator
        } else {
            Self::Other
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TraceEvent<'a> {
    pub(super) phase: Option<&'a [u8]>,
    pub(super) category: Option<&'a [u8]>,
    pub(super) name: Option<&'a [u8]>,
    pub(super) pid: &'a [u8],
    pub(super) tid: &'a [u8],
    pub(super) start: Option<&'a [u8]>,
    pub(super) duration: Option<&'a [u8]>,
    /// Offset of the arguments in the event's source.
    pub(super) args: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EventArguments<'a> {
    pub(super) stream: Option<&'a [u8]>,
    pub(super) device: Option<&'a [u8]>,
    pub(super) correlation: Option<&'a [u8]>,
    pub(super) external: Option<&'a [u8]>,
    /// Rank within the communicator, and the job's ranks that belong to it.
    pub(super) rank: Option<&'a [u8]>,
    pub(super) group_ranks: Option<&'a [u8]>,
    pub(super) is_collective: bool,
    /// True for a launch of a Ladderscope export that begins before its call did.
    pub(super) is_stretched: bool,
    pub(super) bytes: Option<&'a [u8]>,
}

impl<'a> TraceEvent<'a> {
    /// Parses the object at the cursor and moves past it. Calls `wanted` once phase and category are
    /// known, and again with the name of a metadata event; skips the rest if it returns false.
    #[inline]
    pub(super) fn read(
        cursor: &mut Cursor<'a>,
        mut wanted: impl FnMut(&Self) -> bool,
    ) -> Result<Self, JsonError> {
        let start = cursor.at;
        cursor.enter()?;
        let mut event = Self::default();
        while let Some(key) = cursor.key()? {
            let value = cursor.value()?;
            match key {
                b"ph" => event.phase = value.text(),
                b"cat" => event.category = value.text(),
                b"name" => {
                    event.name = match value {
                        JsonValue::String(text) | JsonValue::Scalar(text) => Some(text),
                        JsonValue::Nested(..) => None,
                    }
                }
                b"pid" => event.pid = value.text().unwrap_or_default(),
                b"tid" => event.tid = value.text().unwrap_or_default(),
                b"ts" => event.start = value.text(),
                b"dur" => event.duration = value.text(),
                b"args" => {
                    event.args = match value {
                        JsonValue::Nested(_, at) => Some(at),
                        _ => None,
                    }
                }
                _ => {}
            }
            // only metadata events are selected by name
            let decides = matches!(key, b"ph" | b"cat") || key == b"name" && event.phase == Some(b"M");
            if decides && event.is_known() && !wanted(&event) {
                cursor.at = after_close(cursor.bytes, cursor.at, 1).ok_or(JsonError {
                    at: start,
                    expected: "an object that is closed",
                    ended: true,
                })?;
                return Ok(event);
            }
        }
        Ok(event)
    }

    /// True if further keys cannot change the event's type.
    fn is_known(&self) -> bool {
        self.phase.is_some_and(|phase| phase != b"X" || self.category.is_some())
    }

    /// Parses the argument `name` or `labels` of a metadata event.
    pub(super) fn label(&self, bytes: &'a [u8]) -> Result<Option<&'a [u8]>, JsonError> {
        let Some(mut cursor) = self.arguments_cursor(bytes) else { return Ok(None) };
        cursor.enter()?;
        while let Some(key) = cursor.key()? {
            let value = cursor.value()?;
            if matches!(key, b"name" | b"labels") {
                return Ok(value.text());
            }
        }
        Ok(None)
    }

    /// Cursor at the arguments object. `bytes` must be the source of the event.
    #[inline]
    pub(super) fn arguments_cursor(&self, bytes: &'a [u8]) -> Option<Cursor<'a>> {
        let mut cursor = Cursor::new(bytes, self.args?);
        (cursor.peek() == Some(b'{')).then_some(cursor)
    }

    #[inline]
    pub(super) fn arguments(&self, bytes: &'a [u8]) -> Result<EventArguments<'a>, JsonError> {
        let mut arguments = EventArguments::default();
        let Some(mut cursor) = self.arguments_cursor(bytes) else { return Ok(arguments) };
        cursor.enter()?;
        while let Some(key) = cursor.key()? {
            let value = cursor.value()?;
            match key {
                b"stream" => arguments.stream = value.text(),
                b"device" => arguments.device = value.text(),
                b"bytes" => arguments.bytes = value.text(),
                b"correlation" => arguments.correlation = value.text(),
                b"Rank" => arguments.rank = value.text(),
                b"Process Group Ranks" => arguments.group_ranks = value.text(),
                b"External id" | b"external id" => arguments.external = value.text(),
                b"Collective name" => arguments.is_collective = true,
                b"stretched" => arguments.is_stretched = true,
                _ => {}
            }
        }
        Ok(arguments)
    }
}

/// Start and end (ns) of an event, or the reason why it has none.
#[inline]
pub(super) fn times(event: &TraceEvent<'_>) -> Result<(i64, i64), &'static str> {
    const TOO_LARGE: &str = "with a time beyond 2^63 ns";
    let start = event.start.ok_or("without a start (ts)")?;
    let duration = event.duration.ok_or("without a duration (dur)")?;
    let number = |text, not_a_number| {
        nanoseconds(text).map_err(|wrong| match wrong {
            NotATime::NotANumber => not_a_number,
            NotATime::TooLarge => TOO_LARGE,
        })
    };
    let start = number(start, "with a start (ts) that is not a number")?;
    let duration = number(duration, "with a duration (dur) that is not a number")?;
    if duration < 0 {
        return Err("with a negative duration (dur)");
    }
    let end = start.checked_add(duration).ok_or(TOO_LARGE)?;
    Ok((start, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_have_a_class_in_any_case() {
        for (category, class) in [
            ("kernel", EventClass::Gpu(GpuCategory::Kernel)),
            ("Kernel", EventClass::Gpu(GpuCategory::Kernel)),
            ("Memcpy", EventClass::Gpu(GpuCategory::Memcpy)),
            ("gpu_memset", EventClass::Gpu(GpuCategory::Memset)),
            ("cuda_runtime", EventClass::Launch),
            ("cuda_driver", EventClass::Launch),
            ("hip_runtime", EventClass::Launch),
            ("Runtime", EventClass::Launch),
            ("user_annotation", EventClass::HostRange),
            ("gpu_user_annotation", EventClass::DeviceRange),
            ("cpu_op", EventClass::Operator),
            ("Operator", EventClass::Operator),
            ("python_function", EventClass::Other),
            ("", EventClass::Other),
        ] {
            assert_eq!(EventClass::from_category(category.as_bytes()), class, "{category}");
        }
    }

    #[test]
    fn an_unwanted_event_is_left_as_soon_as_it_is_known() {
        let text = br#"{"ph": "X", "cat": "cpu_op", "name": "x}", "args": {"a": "]"}} tail"#;
        let mut cursor = Cursor::new(text, 0);
        let event = TraceEvent::read(&mut cursor, |_| false).unwrap();
        assert_eq!((event.category, event.name), (Some(&b"cpu_op"[..]), None));
        assert_eq!(&text[cursor.at..], b" tail");
    }
}
