//! Tries of a step for which the kernel found no huge page, while a client waits.
//!
//! Memory that is full of cached files has no huge page in one piece. A try that fails wakes the kernel's compaction,
//! which has gathered one a moment later. Told the times; reads no clock.
//!
//! Only a claim that waits for a lease made to order has them. Where [`LONGEST_NS`] is 0 there are none, and the claim is
//! refused at the first huge page that the kernel lacks.

use rustix::io::Errno;

use crate::inode::Kind;
use crate::protocol::Backing;

/// First pause, ns; doubled each time in a row.
const MIN_NS: u64 = 4_000_000;
/// The longest pause, ns.
const MAX_NS: u64 = 128_000_000;
/// How long tries of one step go on, ns. A host without memory is told so after this time.
/// Moved by: `prezero claim 1G` beside `cp` of large files, on a host whose memory is full of cached files.
const LONGEST_NS: u64 = 3_000_000_000;

/// See the module.
#[derive(Debug)]
pub struct Retries {
    next_ns: u64,
    /// When the first try of this step failed, ns.
    since: Option<u64>,
}

impl Retries {
    /// No step has failed.
    pub fn new() -> Retries {
        Retries { next_ns: MIN_NS, since: None }
    }

    /// How long to pause before the next try of a step that has failed, ns; `None`: it stays as it is.
    pub fn after(&mut self, now: u64, kind: Kind, error: Option<Errno>) -> Option<u64> {
        // A pool has what it has, and a cgroup its limit (`BUSY`).
        let passes =
            kind.backing == Backing::Thp && matches!(error, Some(Errno::NOMEM | Errno::AGAIN));
        if !passes || now.saturating_sub(*self.since.get_or_insert(now)) >= LONGEST_NS {
            return None;
        }
        let pause = self.next_ns;
        self.next_ns = (2 * pause).min(MAX_NS);
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Page;
    use crate::tenant::Payer;

    const MS: u64 = 1_000_000;

    fn kind(backing: Backing) -> Kind {
        Kind { page: Page::Huge, backing, node: 0, payer: Payer::BROKER }
    }

    #[test]
    fn a_step_is_tried_after_longer_and_longer_pauses_and_not_without_end() {
        let (mut retries, mut now, mut pauses) = (Retries::new(), 7 * MS, vec![]);
        while let Some(pause) = retries.after(now, kind(Backing::Thp), Some(Errno::AGAIN)) {
            pauses.push(pause / MS);
            now += pause;
        }
        assert_eq!(pauses[..7], [4, 8, 16, 32, 64, 128, 128]);
        assert!((LONGEST_NS..LONGEST_NS + MAX_NS).contains(&(now - 7 * MS)), "{now}");
    }

    #[test]
    fn what_does_not_pass_is_not_tried_again() {
        for (backing, error) in [
            (Backing::Hugetlb, Errno::NOMEM),
            (Backing::Hugetlb, Errno::NOSPC),
            (Backing::Thp, Errno::BUSY),
            (Backing::Thp, Errno::INVAL),
        ] {
            assert_eq!(Retries::new().after(MS, kind(backing), Some(error)), None, "{error:?}");
        }
        assert_eq!(Retries::new().after(MS, kind(Backing::Thp), None), None);
    }
}
