//! Idle memory that the kernel may take when it lacks some.
//!
//! At the limit of a memory cgroup the kernel ends a program rather than wait for scrubd, which may not run for
//! long while CPUs are busy. So under such a limit no more than an *allowance* idles that is not offered
//! (`MADV_FREE`). The thread whose free exceeds the allowance offers the memory at once. Offered zeroes stay zero,
//! and the kernel keeps what is written later. Without a limit an offer is one comparison.
//!
//! Only whole huge blocks are offered, because an offer of a part splits a huge page. Beside the allowance lies free
//! memory in huge blocks that are used in part.

use std::ops::Range;

use crate::config::ablation::Mechanism;
use crate::mem::backing::Backing;
use crate::pool::Pool;
use crate::pool::purge::{AT_ONCE, pages, parts};
use crate::sync::Ordering::Relaxed;
use crate::units::{PAGE, Span};

/// The allowance is one part in this many of the limit: so much larger a program may be than
/// without prezero.
/// Moved by: `cargo test -p prezero-preload --test shim limits`.
const SHARE: u64 = 16;
/// Pages of the allowance until scrubd has read the limit.
/// Moved by: `cargo test -p prezero-preload --test shim limits`.
const UNREAD: u32 = 2048;

/// What a limit does to the allowance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Allowance {
    Less,
    AsBefore,
}

impl<B: Backing> Pool<B> {
    /// There may be a limit, and scrubd will read it.
    pub(crate) fn expect_limit(&self) {
        self.purge.allowance.store(UNREAD, Relaxed);
    }

    /// The lowest limit of this process's memory, bytes.
    pub(crate) fn note_limit(&self, limit: Option<u64>) -> Allowance {
        let pages = limit.map(|bytes| bytes / SHARE / PAGE as u64);
        let pages = pages.and_then(|pages| u32::try_from(pages).ok()).unwrap_or(u32::MAX);
        let before = self.purge.allowance.swap(pages, Relaxed);
        if pages < before { Allowance::Less } else { Allowance::AsBefore }
    }

    /// Pages that may idle without being offered.
    pub(crate) fn allowance(&self) -> u32 {
        if self.has(Mechanism::LazyFree) { self.purge.allowance.load(Relaxed) } else { u32::MAX }
    }

    /// These pages have come to the map: offers the huge blocks that they complete, if too
    /// much idles.
    #[inline]
    pub(crate) fn lazy_free_excess(&self, span: Span) {
        let Span { first, pages } = span;
        if self.map.sums.resident() > self.allowance() {
            self.lazy_free(first.huge() as u32..first.plus(pages - 1).huge() as u32 + 1);
        }
    }

    /// Offers all that the map has, if it is too much.
    pub(crate) fn lazy_free_all(&self) {
        if self.map.sums.resident() > self.allowance() {
            self.map.whole_runs(1, u32::MAX).for_each(|run| self.lazy_free(run));
        }
    }

    #[cold]
    fn lazy_free(&self, huge: Range<u32>) {
        for part in parts(huge, AT_ONCE) {
            if !self.lazily_freed(part.clone()) && part.len() > 1 {
                part.for_each(|one| {
                    self.lazily_freed(one..one + 1);
                });
            }
        }
    }

    /// Offers these huge blocks, if they are all free.
    fn lazily_freed(&self, huge: Range<u32>) -> bool {
        let span = pages(&huge);
        // No thread may write to them meanwhile, or the kernel would not know that it must keep them.
        let Some(run) = self.map.take(span) else { return false };
        self.memory.lazy_free(span);
        self.map.put(run);
        true
    }
}
