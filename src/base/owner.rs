//! Owner process of an unfinished file or directory, recorded in its name. Cleanup removes only names
//! whose process is provably gone.

use std::sync::OnceLock;

/// Name prefix of unfinished files and directories.
const PREFIX: &str = ".ladderscope-";

/// Process identity. The PID alone is ambiguous: PIDs are reused, and other hosts and containers have
/// their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pid: i32,
    /// Start time in clock ticks since boot.
    start: u64,
    /// Kernel boot id, hex digits only.
    boot: String,
    /// Inode of the PID namespace.
    namespace: u64,
}

impl Owner {
    /// This process; `None` without `/proc`.
    fn current() -> Option<&'static Self> {
        static CURRENT: OnceLock<Option<Owner>> = OnceLock::new();
        let read = || {
            let pid = std::process::id() as i32;
            let (_, start) = stat(pid)?;
            let boot = boot()?.chars().filter(char::is_ascii_hexdigit).collect();
            let namespace = std::fs::read_link("/proc/self/ns/pid").ok()?;
            let namespace =
                namespace.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()?;
            Some(Self { pid, start, boot, namespace })
        };
        CURRENT.get_or_init(read).as_ref()
    }

    /// Parses the process from a name; `None` for names not created by [`unfinished_name`].
    fn of(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(PREFIX)?.split('-');
        let (pid, start) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let (boot, namespace) = (parts.next()?, parts.next()?.parse().ok()?);
        let (key, random) = (parts.next()?, parts.next()?);
        let is_hex = |text: &str, length| {
            text.len() == length
                && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        };
        let is_ours = is_hex(boot, 32) && is_hex(key, 8) && is_hex(random, 16) && parts.next().is_none();
        is_ours.then(|| Self { pid, start, boot: boot.to_owned(), namespace })
    }

    /// True if the process ran under this kernel, in this PID namespace, and has ended.
    fn is_gone(&self) -> bool {
        let Some(here) = Self::current() else { return false };
        if self.boot != here.boot || self.namespace != here.namespace {
            return false;
        }
        stat(self.pid).is_none_or(|(state, start)| matches!(state, 'Z' | 'X') || start != self.start)
    }
}

/// Creates a unique name for unfinished output of this process; `target` is its final name.
pub fn unfinished_name(target: &str) -> String {
    let (key, random) = (key(target), fastrand::u64(..));
    match Owner::current() {
        Some(Owner { pid, start, boot, namespace }) => {
            format!("{PREFIX}{pid}-{start}-{boot}-{namespace}-{key}-{random:016x}")
        }
        // identifies no process, so nobody removes it
        None => format!("{PREFIX}{}-{key}-{random:016x}", std::process::id()),
    }
}

/// True for names that [`unfinished_name`] creates.
pub fn is_unfinished(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// True if [`unfinished_name`] created the name in a process that is gone, for `target` if given.
pub fn is_abandoned(name: &str, target: Option<&str>) -> bool {
    let is_of = |target| name.rsplit('-').nth(1) == Some(key(target).as_str());
    target.is_none_or(is_of) && Owner::of(name).is_some_and(|owner| owner.is_gone())
}

fn key(target: &str) -> String {
    super::hash::short_key(target)[..8].to_owned()
}

/// State and start time (clock ticks since boot) of a process, from `/proc/PID/stat`.
pub fn stat(pid: i32) -> Option<(char, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // the command name in parentheses may contain spaces and parentheses
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    // field 22 of the line; state is field 3
    Some((state, fields.nth(18)?.parse().ok()?))
}

pub fn boot() -> Option<String> {
    Some(std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned())
}

/// Name as a dead process would have created it.
#[cfg(test)]
pub(super) fn name_of_the_dead(target: &str) -> Option<String> {
    let Owner { pid, start, boot, namespace } = Owner::current()?;
    let (start, key) = (start + 1, key(target));
    Some(format!("{PREFIX}{pid}-{start}-{boot}-{namespace}-{key}-{:016x}", fastrand::u64(..)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_whose_process_is_provably_gone_are_abandoned() {
        let live = unfinished_name("a.json");
        assert!(!is_abandoned(&live, None), "this process runs");
        let dead = name_of_the_dead("a.json").unwrap();
        assert!(is_abandoned(&dead, None) && is_abandoned(&dead, Some("a.json")));
        assert!(!is_abandoned(&dead, Some("b.json")), "another output's");
        let parts: Vec<&str> = dead[PREFIX.len()..].split('-').collect();
        let with = |at: usize, value: &str| {
            let mut parts = parts.clone();
            parts[at] = value;
            format!("{PREFIX}{}", parts.join("-"))
        };
        let other_boot = "0123456789abcdef0123456789abcdef";
        for name in [
            with(2, other_boot),
            with(3, "1"),
            with(2, "short"),
            with(5, "x"),
            dead.replace(PREFIX, ".tmp-"),
            format!("{dead}-more"),
            format!("{PREFIX}notes"),
            ".tmp-abc".to_owned(),
            ".trace-1".to_owned(),
            String::new(),
        ] {
            assert!(!is_abandoned(&name, None), "{name}");
        }
    }

    #[test]
    fn a_child_that_ended_has_abandoned_its_files_even_before_it_is_reaped() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id() as i32;
        let here = Owner::current().unwrap();
        let owner = Owner { pid, start: stat(pid).unwrap().1, ..here.clone() };
        let options = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        let id = rustix::process::WaitId::Pid(rustix::process::Pid::from_raw(pid).unwrap());
        rustix::process::waitid(id, options).unwrap();
        assert!(owner.is_gone());
        child.wait().unwrap();
        assert!(owner.is_gone());
    }
}
