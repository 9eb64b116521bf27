//! What a lower limit leaves no room for.

use prezero_host::Size;

use super::{Broker, Inode};
use crate::filler::Pace;
use crate::inode::Kind;
use crate::protocol::{Backing, Page};

/// What went for a lower limit.
#[derive(Debug, Default)]
pub struct Shed {
    /// Jobs to cancel.
    pub jobs: Vec<u64>,
    /// What is told of it, a line for each sort of page.
    pub lines: Vec<String>,
}

impl<I: Inode> Broker<I> {
    /// Lets go at once what lies above the limit, oldest first, and what is being made above it.
    /// To be called when the limit may have become lower.
    pub fn shed(&mut self) -> Shed {
        let mut shed = Shed::default();
        let mut pages: Vec<(Backing, Page)> =
            self.stock.iter().map(|blank| (blank.kind.backing, blank.kind.page)).collect();
        pages.extend(self.jobs.iter().map(|job| (job.kind.backing, job.kind.page)));
        pages.sort_unstable();
        pages.dedup();
        for (backing, page) in pages {
            self.shed_pages(&mut shed, backing, page);
        }
        shed
    }

    fn shed_pages(&mut self, shed: &mut Shed, backing: Backing, page: Page) {
        let alike = |kind: &Kind| kind.backing == backing && kind.page == page;
        let Some(kind) = self
            .stock
            .iter()
            .map(|blank| blank.kind)
            .chain(self.jobs.iter().map(|job| job.kind))
            .find(alike)
        else {
            return;
        };
        let limit = self.limit(kind);
        let mut ready: u64 =
            self.stock.iter().filter(|blank| alike(&blank.kind)).map(|blank| blank.bytes).sum();
        let mut freed = 0;
        while ready > limit {
            let Some(blank) = self.stock.take_oldest(|blank| alike(&blank.kind)) else { break };
            ready -= blank.bytes;
            freed += blank.bytes;
        }
        // What a client waits for is made all the same: the limit is the stock's.
        for job in self.jobs.iter().filter(|job| job.pace == Pace::Idle && alike(&job.kind)) {
            if ready + job.bytes > limit {
                shed.jobs.push(job.serial);
            } else {
                ready += job.bytes;
            }
        }
        self.counters.waste_bytes += freed;
        if freed > 0 {
            let (freed, limit) = (Size(freed as usize), Size(limit as usize));
            shed.lines.push(format!(
                "the limit of {} pages of {page} is {limit} now: {freed} of stock went back to the kernel",
                backing.name()
            ));
        }
    }
}
