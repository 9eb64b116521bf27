//! What a lower limit leaves no room for.

use prezero_host::Size;

use super::{Broker, Inode};
use crate::filler::Priority;
use crate::inode::Kind;
use crate::protocol::{Backing, Page};

/// What went for a lower limit.
#[derive(Debug, Default)]
pub struct Trimmed {
    /// Jobs to cancel.
    pub jobs: Vec<u64>,
    /// What is told of it, a line for each sort of page.
    pub lines: Vec<String>,
}

impl<I: Inode> Broker<I> {
    /// Lets go at once what lies above the limit, oldest first, and what is being made above it.
    /// To be called when the limit may have become lower.
    pub fn trim_to_limit(&mut self) -> Trimmed {
        let mut trimmed = Trimmed::default();
        let mut pages: Vec<(Backing, Page)> =
            self.stock.iter().map(|inode| (inode.kind.backing, inode.kind.page)).collect();
        pages.extend(self.planner.jobs.iter().map(|job| (job.kind.backing, job.kind.page)));
        pages.sort_unstable();
        pages.dedup();
        for (backing, page) in pages {
            self.trim_pages(&mut trimmed, backing, page);
        }
        trimmed
    }

    fn trim_pages(&mut self, trimmed: &mut Trimmed, backing: Backing, page: Page) {
        let alike = |kind: &Kind| kind.backing == backing && kind.page == page;
        let Some(kind) = self
            .stock
            .iter()
            .map(|inode| inode.kind)
            .chain(self.planner.jobs.iter().map(|job| job.kind))
            .find(alike)
        else {
            return;
        };
        let limit = self.limit(kind);
        let mut ready: u64 =
            self.stock.iter().filter(|inode| alike(&inode.kind)).map(|inode| inode.bytes).sum();
        let mut freed = 0;
        while ready > limit {
            let Some(inode) = self.stock.take_oldest(|inode| alike(&inode.kind)) else { break };
            ready -= inode.bytes;
            freed += inode.bytes;
            inode.file.discard();
        }
        // What a client waits for is made all the same: the limit is the stock's.
        for job in self
            .planner
            .jobs
            .iter()
            .filter(|job| job.priority == Priority::Idle && alike(&job.kind))
        {
            if ready + job.bytes > limit {
                trimmed.jobs.push(job.serial);
            } else {
                ready += job.bytes;
            }
        }
        self.counters.waste_bytes += freed;
        if freed > 0 {
            let (freed, limit) = (Size(freed as usize), Size(limit as usize));
            trimmed.lines.push(format!(
                "the limit of {} pages of {page} is {limit} now: {freed} of stock went back to the kernel",
                backing.name()
            ));
        }
    }
}
