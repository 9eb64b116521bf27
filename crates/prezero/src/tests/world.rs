//! A zone over fake memory, its scrubber, and the hands that write into blocks.
#![allow(unsafe_code)]

use prezero_sys::thread::{self, CpuMask};

use super::fake::{Fake, FakeThread, now, pass};
use crate::block::{Block, Content};
use crate::config::ablation::Ablation;
use crate::config::{Config, Machine};
use crate::count::counters::Counter;
use crate::map::state::{PageState, Tally};
use crate::mem::backing::Backing;
use crate::policy::{Step, Throttle};
use crate::pool::purge::hide::Hidden;
use crate::scrubd::scrub::Scrubber;
use crate::units::{HUGE, HUGE_PAGES, PAGE, PageId, Span};
use crate::zone::Zone;

/// Longer than any rest of a block before scrubd touches it, ns.
pub(super) const RESTED_NS: u64 = 1_000_000;
/// A window of the governor and a little more, ns.
pub(super) const WINDOW_NS: u64 = 110_000_000;

pub(super) struct World {
    pub(super) zone: Zone<Fake>,
    pub(super) scrubber: Scrubber<FakeThread>,
}

impl World {
    /// A zone of `huge` huge blocks with the default knobs.
    pub(super) fn new(huge: usize) -> World {
        World::with(huge, |_| {})
    }

    /// As `new`, with knobs of the test's own. Pins the thread, since lists are per CPU.
    pub(super) fn with(huge: usize, knobs: impl FnOnce(&mut Config)) -> World {
        World::of(Fake::new(huge * HUGE), &config(huge, knobs))
    }

    /// As `new`, of which the first `small` are faulted in small pages at first.
    pub(super) fn shrink(&self, bytes: usize) {
        // SAFETY: the fake maps nothing else there, and no test asks for a page that is gone without a look.
        #[allow(unsafe_code)]
        unsafe {
            self.zone.shrink(bytes);
        }
    }

    pub(super) fn in_small(huge: usize, small: usize) -> World {
        World::of(Fake::in_small(huge * HUGE, small), &config(huge, |_| {}))
    }

    pub(super) fn of(fake: Fake, config: &Config) -> World {
        thread::set_affinity(&CpuMask::only(thread::current_cpu())).unwrap();
        let zone = Zone::with_clock(fake, config, now).unwrap();
        zone.waker.is_the_tests();
        let now = zone.pool.clock.now_ns();
        let scrubber = Scrubber::new(FakeThread, now, config.without);
        World { zone, scrubber }
    }

    /// Hides its memory in units of `unit` huge blocks from now on. Nothing of it is in use.
    pub(super) fn in_units(mut self, unit: u32) -> World {
        let mapped = (self.fake().mapped() / HUGE) as u32;
        let huge = self.zone.pages() / HUGE_PAGES;
        self.zone.pool.purge.hidden = Hidden::in_units(unit, huge, mapped);
        self
    }

    pub(super) fn fake(&self) -> &Fake {
        self.zone.pool.memory.backing()
    }

    pub(super) fn count(&self, counter: Counter) -> u64 {
        self.zone.snapshot().get(counter)
    }

    /// Steps until there is nothing to do; panics if that never comes. Looks twice: what
    /// was asked for since the last look may be a burst that still goes on.
    pub(super) fn scrub(&mut self) -> u32 {
        pass(RESTED_NS);
        let first = self.work(Throttle::Normal);
        pass(RESTED_NS);
        first + self.work(Throttle::Normal)
    }

    /// Lets the governor know of a burst for `pages` zero pages that is over.
    pub(super) fn wanted_before(&mut self, pages: u32) {
        let demand = &self.zone.cpu().demand;
        demand.note(pages);
        demand.note_return(pages);
        self.work(Throttle::Resting);
        pass(RESTED_NS);
    }

    /// Steps in one mood until there is nothing to do, without letting time pass.
    pub(super) fn work(&mut self, mood: Throttle) -> u32 {
        let most = 10_000;
        (0..most)
            .find(|_| self.scrubber.step(&self.zone, mood) == Step::Nothing)
            .expect("the scrubber comes to rest")
    }

    /// Writes into every page of a block, and gives it back.
    pub(super) fn soil<C: Content>(&self, block: Block<C>) {
        self.fill(block.first(), block.pages(), 0xA5);
        self.zone.free(block);
    }

    /// As its owner, fills pages with a byte.
    pub(super) fn fill(&self, first: PageId, pages: u32, byte: u8) {
        for n in 0..pages {
            self.fake().touch(first.plus(n));
        }
        fill(&self.zone, first, pages, byte);
    }

    /// A fork begins; the test goes on in both processes, one after the other.
    pub(super) fn before_fork(&self) {
        // SAFETY: the test calls one of the two below next.
        unsafe { self.zone.before_fork() };
    }

    /// The fork is over, in the parent.
    pub(super) fn after_fork_in_parent(&self) {
        // SAFETY: the test called `before_fork`.
        unsafe { self.zone.after_fork_in_parent() };
    }

    /// The fork is over, in the child: the parent's scrubber never goes on.
    pub(super) fn after_fork_in_child(&self) {
        // SAFETY: the test called `before_fork`, and plays the child from here on.
        unsafe { self.zone.after_fork_in_child() };
    }

    /// The test, as the owner of these pages, changes their mapping.
    pub(super) fn mark_remapped(&self, first: PageId, pages: u32) {
        // SAFETY: the test owns the pages.
        unsafe { self.zone.mark_remapped(first, pages) };
    }

    /// Pages by state, free or not.
    pub(super) fn tally(&self) -> Tally {
        self.zone.pool.map.tally(Span::new(PageId(0), self.zone.pages()))
    }

    /// The zone agrees with itself: checker, sums, and absent pages that read as zero.
    pub(super) fn assert_sound(&self) {
        // SAFETY: the test is the zone's only thread, and runs its scrubber itself.
        assert_eq!(unsafe { self.zone.check() }, Ok(()));
        assert!(self.zone.pool.scrubbing.held().is_none(), "a step leaves no run behind");
        let map = &self.zone.pool.map;
        let mut free = Tally::default();
        for run in map.free_runs() {
            free = free + map.tally(run);
            for page in (run.first.0..run.end()).map(PageId) {
                if map.state(page) == PageState::Absent {
                    assert!(holds(&self.zone, page, 0), "absent page {page:?} is not zero");
                }
            }
        }
        assert_eq!(
            (map.sums.zero(), map.sums.dirty(), map.sums.free()),
            (free.zero, free.dirty, free.zero + free.dirty + free.absent),
            "the sums are of what is free"
        );
    }
}

/// Knobs for a zone of `huge` huge blocks. Blocks of any size are worth a clear, and none lie ready ahead, unless a
/// test wants to see that.
pub(super) fn config(huge: usize, knobs: impl FnOnce(&mut Config)) -> Config {
    let machine = Machine { memory: huge * HUGE, engine: crate::engine_named, reports_free: false };
    let mut config = Config::new(&machine);
    config.without = Ablation::read("cost-model,ready").unwrap();
    knobs(&mut config);
    config
}

/// Fills pages that the caller owns.
pub(super) fn fill<B: Backing>(zone: &Zone<B>, first: PageId, pages: u32, byte: u8) {
    // SAFETY: the test owns the pages.
    unsafe { zone.pool.memory.address(first).write_bytes(byte, pages as usize * PAGE) };
}

/// Whether every byte of a page that no thread writes to now is `byte`.
pub(super) fn holds<B: Backing>(zone: &Zone<B>, page: PageId, byte: u8) -> bool {
    let address = zone.pool.memory.address(page).as_ptr();
    // SAFETY: the page is mapped and no thread writes to it during the test's look.
    let bytes: &[u8] = unsafe { std::slice::from_raw_parts(address, PAGE) };
    bytes[0] == byte && bytes[1..] == bytes[..PAGE - 1]
}

/// Whether a block that the test owns is all zero.
pub(super) fn is_zero<B: Backing, C: Content>(zone: &Zone<B>, block: &Block<C>) -> bool {
    (0..block.pages()).all(|n| holds(zone, block.first().plus(n), 0))
}
