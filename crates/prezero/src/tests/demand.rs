//! The governor against patterns of demand, in time of the test's own.
//!
//! A model stands for everything but the policy: pages are counted, not kept, and a
//! scrubber with a CPU of its own clears at a fixed pace whatever the governor wants, as
//! soon as it has rested. The outcome is that of a user: the share of hits, the zeroes made in
//! vain, and the CPU time.

mod patterns;
mod recorded;

use crate::class::{Band, Class};
use crate::clock::REST_NS;
use crate::config::ablation::Ablation;
use crate::policy::governor::Governor;
use crate::policy::sample::Sample;
use crate::policy::size::ready_blocks;

pub(super) const US: u64 = 1_000;
pub(super) const MS: u64 = 1_000_000;
/// Pages of a MiB.
pub(super) const MIB: u64 = 256;

/// Between two looks of the scrubber, ns.
const LOOK_NS: u64 = 100 * US;
/// To clear a page, in place or ahead: 13 GB/s.
const CLEAR_NS: u64 = 300;

/// What a program does next.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    /// Asks for zeroed pages, or for any.
    Zero(u64),
    Plain(u64),
    /// Gives back this number of those it asked for as zero, or plain.
    FreeZero(u64),
    FreePlain(u64),
    /// The kernel gets all that is free.
    Release,
    /// Lets so much time pass, ns.
    Pass(u64),
}

/// What became of it, in pages.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Outcome {
    pub(super) freed: u64,
    pub(super) asked: u64,
    pub(super) hit: u64,
    pub(super) scrubbed: u64,
    /// Zero pages that plain requests took.
    pub(super) to_plain: u64,
    /// Zero pages that no request took.
    pub(super) left: u64,
    /// CPU time of the scrubber, ns.
    pub(super) spent_ns: u64,
}

impl Outcome {
    pub(super) fn hit_share(&self) -> f64 {
        self.hit as f64 / self.asked.max(1) as f64
    }

    /// Share of what was scrubbed that no request for zero used.
    pub(super) fn waste(&self) -> f64 {
        (self.to_plain + self.left) as f64 / self.scrubbed.max(1) as f64
    }

    /// Scrubbed pages for each that was freed.
    pub(super) fn effort(&self) -> f64 {
        self.scrubbed as f64 / self.freed.max(1) as f64
    }

    pub(super) fn since(&self, earlier: &Outcome) -> Outcome {
        Outcome {
            freed: self.freed - earlier.freed,
            asked: self.asked - earlier.asked,
            hit: self.hit - earlier.hit,
            scrubbed: self.scrubbed - earlier.scrubbed,
            to_plain: self.to_plain - earlier.to_plain,
            left: self.left,
            spent_ns: self.spent_ns - earlier.spent_ns,
        }
    }
}

/// The world in which the governor governs.
pub(super) struct Model {
    governor: Governor,
    now: u64,
    looked: u64,
    zero: u64,
    /// Dirty pages and when they were freed, the oldest first.
    dirty: Vec<(u64, u64)>,
    seen: Sample,
    outcome: Outcome,
    /// What each look of the scrubber costs, and each page that it clears, ns.
    look_ns: u64,
    scrub_ns: u64,
}

impl Model {
    pub(super) fn new() -> Model {
        Model::with_looks_of(0)
    }

    /// A model in which another core's cache holds the lines that are cleared.
    pub(super) fn with_scrubs_of(scrub_ns: u64) -> Model {
        Model { scrub_ns, ..Model::new() }
    }

    pub(super) fn with_looks_of(look_ns: u64) -> Model {
        let seen = Sample { clear_ns: CLEAR_NS as f64, ..Sample::default() };
        Model {
            look_ns,
            scrub_ns: CLEAR_NS,
            governor: Governor::new(0, Ablation::default()),
            now: 0,
            looked: 0,
            zero: 0,
            dirty: Vec::new(),
            seen,
            outcome: Outcome::default(),
        }
    }

    pub(super) fn outcome(&self) -> Outcome {
        Outcome { left: self.zero, spent_ns: self.seen.spent_ns, ..self.outcome }
    }

    /// What happens while the program does all this.
    pub(super) fn play(&mut self, acts: impl IntoIterator<Item = Act>) -> Outcome {
        let before = self.outcome();
        for act in acts {
            match act {
                Act::Zero(pages) => self.ask(pages),
                Act::Plain(pages) => self.ask_plain(pages),
                Act::FreeZero(pages) => {
                    self.seen.returned += pages;
                    self.free(pages);
                }
                Act::FreePlain(pages) => self.free(pages),
                Act::Release => {
                    self.seen.lost += self.zero;
                    self.zero = 0;
                    self.dirty.clear();
                }
                Act::Pass(ns) => self.pass(ns),
            }
        }
        self.outcome().since(&before)
    }

    fn ask(&mut self, pages: u64) {
        let hit = pages.min(self.zero);
        self.zero -= hit;
        let rested = self.rested();
        let dirty = self.take_dirty(pages - hit);
        self.seen.hits[Band::of(pages as u32).index()] += hit;
        self.outcome.hit += hit;
        self.outcome.asked += pages;
        // As the zone does: a block freed a moment before is no demand for a stock.
        if hit > 0 || rested > 0 || dirty < pages - hit {
            self.seen.demand[Band::of(pages as u32).index()] += pages;
            self.seen.absent += pages - hit - dirty;
        }
    }

    fn ask_plain(&mut self, pages: u64) {
        let dirty = self.take_dirty(pages);
        let zero = (pages - dirty).min(self.zero);
        self.zero -= zero;
        self.seen.lost += zero;
        self.outcome.to_plain += zero;
    }

    fn free(&mut self, pages: u64) {
        self.dirty.push((self.now, pages));
        self.outcome.freed += pages;
    }

    fn rested(&self) -> u64 {
        let old = |&&(at, _): &&(u64, u64)| at + REST_NS <= self.now;
        self.dirty.iter().filter(old).map(|&(_, pages)| pages).sum()
    }

    /// Takes what was freed last first, as the hot one.
    fn take_dirty(&mut self, pages: u64) -> u64 {
        let mut left = pages;
        while left > 0
            && let Some((_, have)) = self.dirty.last_mut()
        {
            let taken = left.min(*have);
            *have -= taken;
            left -= taken;
            if *have == 0 {
                self.dirty.pop();
            }
        }
        pages - left
    }

    fn pass(&mut self, ns: u64) {
        let until = self.now + ns;
        while self.looked + LOOK_NS <= until {
            self.looked += LOOK_NS;
            self.now = self.now.max(self.looked);
            self.seen.free = self.zero + self.dirty.iter().map(|&(_, pages)| pages).sum::<u64>();
            self.governor.observe(self.looked, self.seen);
            if self.governor.plan().looks {
                self.seen.look_ns += self.look_ns;
            }
            self.scrub(LOOK_NS / self.scrub_ns);
        }
        self.now = until;
    }

    fn scrub(&mut self, most: u64) {
        let wanted = self.governor.plan().target.saturating_sub(self.zero);
        if !self.governor.plan().may_spend {
            return;
        }
        let mut left = wanted.min(most).min(self.rested());
        self.zero += left;
        self.seen.spent_ns += left * self.scrub_ns;
        self.outcome.scrubbed += left;
        self.seen.scrubbed += left;
        self.dirty.retain_mut(|(_, pages)| {
            let taken = left.min(*pages);
            *pages -= taken;
            left -= taken;
            *pages > 0
        });
    }
}

impl Default for Model {
    fn default() -> Model {
        Model::new()
    }
}

#[test]
fn of_each_size_no_more_lies_ready_than_2_mib() {
    for (pages, blocks) in
        [(32, 8), (64, 8), (96, 5), (128, 4), (256, 2), (384, 1), (512, 1), (4 * 512, 1)]
    {
        assert_eq!(ready_blocks(Band::of(pages)), blocks, "{pages} pages");
    }
}

/// Requests of one block, looked at as rarely as the plan says: of 256 KiB, of which eight lie ready, and of 1.25 and 2
/// MiB, of which one does.
#[test]
fn blocks_lie_ready_and_half_of_their_time_is_slept_through() {
    for pages in [64, 320, 512] {
        let (band, interval) = (Band::of(pages), 3 * MS);
        let (pages, ready) = (u64::from(pages), ready_blocks(band));
        let mut governor = Governor::new(0, Ablation::default());
        let mut seen = Sample { clear_ns: CLEAR_NS as f64, ..Sample::default() };
        let (mut now, mut asked) = (0, 0);
        for look in 0..200 {
            let plan = governor.plan();
            now += if plan.lasts_ns > 0 { plan.lasts_ns } else { interval };
            let requests = now / interval - asked;
            asked += requests;
            // Once scrubd slept too long
            seen.demand[band.index()] += pages * (requests + u64::from(look == 50));
            seen.hits[band.index()] += if look > 2 { pages * requests } else { 0 };
            seen.returned += pages * requests;
            (seen.free, seen.look_ns) = (ready * pages, seen.look_ns + 60 * US);
            governor.observe(now, seen);
        }
        let plan = governor.plan();
        let class = Class::of(pages as u32).unwrap();
        assert_eq!(plan.remembered[class.index()] as u64, ready);
        let half = ready * interval / 2;
        let told = format!("{} ns for {pages} pages", plan.lasts_ns);
        assert!((half * 4 / 5..=half * 5 / 4).contains(&plan.lasts_ns), "{told}");
        assert_eq!(plan.lacks, 0);
    }
}

#[test]
fn memory_for_what_lies_ready_is_bounded() {
    let mut governor = Governor::new(0, Ablation::read("cost-model").unwrap());
    let mut seen = Sample { clear_ns: CLEAR_NS as f64, ..Sample::default() };
    for look in 1..20 {
        for pages in [32, 64, 128, 256] {
            seen.demand[Band::of(pages).index()] += u64::from(pages);
            seen.returned += u64::from(pages);
        }
        governor.observe(look * 3 * MS, seen);
    }
    assert_eq!(governor.plan().lacks, 4 * MIB, "of four sizes");
    seen.free = 3 * MIB;
    governor.observe(60 * MS, seen);
    assert_eq!(governor.plan().lacks, MIB);
}

/// A block of 6 MiB, which is no power of two, beside a small one.
#[test]
fn nothing_is_slept_through_while_a_size_is_asked_for_that_does_not_lie_ready() {
    let mut governor = Governor::new(0, Ablation::default());
    let mut seen = Sample { clear_ns: CLEAR_NS as f64, ..Sample::default() };
    for look in 1..50 {
        for pages in [64, 6 * MIB] {
            seen.demand[Band::of(pages as u32).index()] += pages;
            seen.hits[Band::of(pages as u32).index()] += pages;
            seen.returned += pages;
        }
        seen.free = 8 * MIB;
        governor.observe(look * 3 * MS, seen);
        assert_eq!(governor.plan().lasts_ns, 0, "look {look}");
    }
}
