//! Which zeroes may be recorded while a process forks.
//!
//! A fork copies page after page while other threads of the parent go on. The child may see the record of a page as
//! it is after a clear, and the page as it was before. So each clear begins with a mark of the forks so far, and
//! zeroes are recorded only where no fork began since.

use crate::mem::backing::Backing;
use crate::mem::states::PageState;
use crate::pool::Pool;
use crate::sync::Ordering::{AcqRel, Acquire, Release};
use crate::units::Span;

/// One fork in the count of forks; below it count those under way.
/// Fixed: bits of a word.
const FORK: u32 = 1 << 8;

impl<B: Backing> Pool<B> {
    /// What to hand to [`publish_zero`](Pool::publish_zero) for clearing that starts now.
    pub(crate) fn fork_mark(&self) -> u32 {
        self.forks.load(Acquire)
    }

    /// Whether some thread is forking right now.
    pub(crate) fn fork_is_under_way(&self) -> bool {
        !self.fork_mark().is_multiple_of(FORK)
    }

    /// Marks as zero the dirty pages among a span, which were cleared after
    /// `mark` was taken, and returns how many they were; none if a fork began since: its
    /// child may see this record and the pages as they were before.
    pub(crate) fn publish_zero(&self, span: Span, mark: u32) -> u32 {
        if !mark.is_multiple_of(FORK) || self.fork_mark() != mark {
            return 0;
        }
        let cleared = self.states.tally(span).dirty;
        self.states.each_run(span, PageState::Dirty, |run| {
            self.states.set(run, PageState::Zero);
        });
        cleared
    }

    /// A fork begins.
    pub(crate) fn fork_begins(&self) {
        self.forks.fetch_add(FORK + 1, AcqRel);
    }

    /// The fork is over, in the parent.
    pub(crate) fn fork_is_over(&self) {
        self.forks.fetch_sub(1, AcqRel);
    }

    /// The fork is over, in the child.
    pub(crate) fn is_a_child(&self) {
        self.forks.store(0, Release);
    }
}
