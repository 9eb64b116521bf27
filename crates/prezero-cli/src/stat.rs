//! What the kernel says of a process in one line: `/proc/PID/stat`, by the fields of proc(5).

/// Fields behind the name, from the state on.
const FLAGS: usize = 6;
#[cfg(any(test, feature = "top"))]
const BEGAN: usize = 19;
/// `PF_EXITING` of the kernel's `sched.h`: its memory goes before its state says so.
const EXITING: u32 = 4;

/// All behind the name, which may hold anything.
#[derive(Debug)]
pub struct Stat(String);

impl Stat {
    /// `None`: there is no such process.
    pub fn of(pid: u32) -> Option<Stat> {
        Stat::parsed(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parsed(line: &str) -> Option<Stat> {
        Some(Stat(line.rsplit_once(')')?.1.to_string()))
    }

    fn field(&self, nth: usize) -> Option<&str> {
        self.0.split_whitespace().nth(nth)
    }

    /// It was stopped by a signal or a tracer.
    pub fn is_stopped(&self) -> bool {
        matches!(self.field(0), Some("T" | "t"))
    }

    /// It ends, or nothing of it is left but its number, which its parent has not asked for.
    pub fn is_ending(&self) -> bool {
        let flags = self.field(FLAGS).and_then(|flags| flags.parse::<u32>().ok());
        matches!(self.field(0), Some("Z" | "X")) || flags.is_some_and(|flags| flags & EXITING != 0)
    }

    /// When, in the clock's ticks since the machine began: with its number it tells it from others.
    #[cfg(any(test, feature = "top"))]
    pub fn began(&self) -> Option<&str> {
        self.field(BEGAN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ends_says_so_by_its_state_or_its_flags() {
        let stat = |line| Stat::parsed(line).unwrap();
        assert!(stat("7 (a) b) R 1 7 7 0 -1 4194308 90 0").is_ending());
        assert!(stat("7 (a) Z 1 7 7 0 -1 4194304 90 0").is_ending());
        assert!(!stat("7 (a) R 1 7 7 0 -1 4194304 90 0").is_ending());
        assert!(stat("7 (T) t 1 7").is_stopped() && !stat("7 (T) R 1 7").is_stopped());
        assert!(Stat::parsed("").is_none() && Stat::of(u32::MAX).is_none());
        assert!(!Stat::of(std::process::id()).unwrap().is_ending());
    }
}
