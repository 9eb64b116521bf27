//! The zone's promises, one test each, on a thread and a clock of the test's own.

mod dumps;
mod forks;
mod growing;
mod hints;
mod integrity;
mod no_move;
mod purge;
mod requests;
mod scrubbing;
mod shrink;

use super::fake::pass;
use super::world::{RESTED_NS, WINDOW_NS, World};
use crate::block::{Block, Dirty, Zero};
use crate::class::Class;
use crate::map::state::Tally;
use crate::policy::Throttle;
use crate::units::{Order, PAGE, PageId, Span};

const ANY: Order = Order::MIN;
/// Pages of a class that fills all slots of a list.
const SMALL: u32 = 16;

fn order(n: u32) -> Order {
    Order::new(n).unwrap()
}

fn bytes(pages: u32) -> u64 {
    u64::from(pages) * PAGE as u64
}

impl World {
    fn zero(&self, pages: u32) -> Block<Zero> {
        self.zone.zero(pages, ANY).expect("the zone has room")
    }

    fn plain(&self, pages: u32) -> Block<Dirty> {
        self.zone.plain(pages, ANY).expect("the zone has room")
    }

    fn states(&self, first: PageId, pages: u32) -> Tally {
        self.zone.pool.map.tally(Span::new(first, pages))
    }

    /// Every block of one size that the zone has, written to.
    fn dirty_all(&self, pages: u32) -> Vec<Block<Dirty>> {
        let mut all = Vec::new();
        while let Some(block) = self.zone.plain(pages, ANY) {
            self.fill(block.first(), pages, 0xA5);
            all.push(block);
        }
        all
    }

    /// Puts `pages` zero pages into the map: asked for, written, freed and scrubbed.
    fn stock_zero(&mut self, pages: u32) {
        self.soil(self.zero(pages));
        self.scrub();
        self.forget();
        assert_eq!(self.zone.pool.map.sums.zero(), pages);
    }

    /// Has all CPUs forget where blocks were freed.
    fn forget(&self) {
        for (cpu, class) in
            self.zone.cpus.iter().flat_map(|cpu| Class::largest_first().map(move |c| (cpu, c)))
        {
            let rows = cpu.rows(class);
            while rows.take_hottest(|_| true).or_else(|| rows.take_zero(|_| true)).is_some() {}
        }
    }

    /// A burst of demand in each of `n` windows of the governor, of which the last is over.
    fn grow(&mut self, windows: u32, pages: u32) -> Vec<Block<Zero>> {
        let grown = (0..windows)
            .map(|_| {
                let block = self.zero(pages);
                pass(WINDOW_NS);
                self.scrubber.step(&self.zone, Throttle::Normal);
                block
            })
            .collect();
        pass(RESTED_NS);
        grown
    }
}
