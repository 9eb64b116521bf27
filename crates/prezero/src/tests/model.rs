//! Random histories of a zone against a naive model at page grain.
//!
//! The model knows the owner of each page, and what the page must hold. After every operation no
//! page has two owners, what owners wrote is intact, the armed checker finds nothing, free and
//! owned pages add up, and the counters tell the same story.

mod ops;

use proptest::prelude::*;

use self::ops::{Op, Part, Refusal, Request, operation, refusal, verify};
use super::fake::{Fake, Fault, pass};
use super::world::{World, config, holds};
use crate::block::{Block, Dirty, Zero};
use crate::clear::Use;
use crate::config::Verify;
use crate::config::ablation::Ablation;
use crate::count::counters::Counter;
use crate::map::state::PageState;
use crate::policy::Throttle;
use crate::pool::purge::lazy_free::Allowance;
use crate::sync::Ordering::Relaxed;
use crate::units::{HUGE, Order, PAGE, PageId, whole};
use crate::zone::resize::Grown;

const HUGE_BLOCKS: usize = 4;
const PAGES: u32 = 512 * HUGE_BLOCKS as u32;
/// Histories, and the longest of them.
const CASES: u32 = 400;
const OPS: usize = 60;

/// What an owned page must hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holds {
    /// Whatever it held when it was handed out.
    Unknown,
    Byte(u8),
}

enum Grip {
    Zero(Block<Zero>),
    Dirty(Block<Dirty>),
}

struct Owned {
    grip: Grip,
    holds: Vec<Holds>,
}

impl Owned {
    fn first(&self) -> PageId {
        match &self.grip {
            Grip::Zero(block) => block.first(),
            Grip::Dirty(block) => block.first(),
        }
    }

    fn pages(&self) -> u32 {
        self.holds.len() as u32
    }

    fn into_dirty(self) -> (Block<Dirty>, Vec<Holds>) {
        match self.grip {
            Grip::Zero(block) => (block.into_dirty(), self.holds),
            Grip::Dirty(block) => (block, self.holds),
        }
    }

    /// The pages that a part names.
    fn part(&self, (from, n): Part) -> (usize, usize) {
        let from = usize::from(from) * self.holds.len() / 256;
        (from, (usize::from(n) * self.holds.len() / 256).clamp(1, self.holds.len() - from))
    }
}

/// Pages, or calls, that the counters must agree with.
#[derive(Default)]
struct Expected {
    zero: u64,
    only_zero: u64,
    plain: u64,
    refused: u64,
    zeroed_pages: u64,
    freed_pages: u64,
}

struct Run {
    world: World,
    owned: Vec<Owned>,
    /// The owner of each page, by the first page of its block.
    owner: Vec<Option<PageId>>,
    expected: Expected,
    /// While a fork is under way: the pages that were free and zero when it began.
    fork: Option<Vec<bool>>,
    refused: Refused,
    /// Refusals that a parent counted.
    refusals: u64,
}

/// Whether the fake was ever told to refuse anything.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refused {
    Nothing,
    Something,
}

impl Run {
    fn new(verify: Verify, scrubs: bool, mapped: usize, unit: u32) -> Run {
        let config = config(HUGE_BLOCKS, |config| {
            config.without = Ablation::read("cost-model").unwrap();
            config.verify = verify;
            config.decay = std::time::Duration::from_secs(2);
            if !scrubs {
                config.scrub_start = None;
            }
        });
        let mapped = mapped.next_multiple_of(unit as usize).min(HUGE_BLOCKS);
        let fake = Fake::growing(HUGE_BLOCKS * HUGE, mapped * HUGE);
        let world = World::of(fake, &config).in_units(unit);
        // A block that moves lies in two mappings now and then.
        world.fake().together.store(700, Relaxed);
        let owner = vec![None; PAGES as usize];
        Run {
            world,
            owned: Vec::new(),
            owner,
            expected: Expected::default(),
            fork: None,
            refused: Refused::Nothing,
            refusals: 0,
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Take(request, pages, align) => {
                self.take(request, pages, Order::new(align).unwrap())
            }
            Op::Pass(ns) => pass(ns),
            Op::Step(mood, n) => {
                for _ in 0..n {
                    self.world.scrubber.step(&self.world.zone, mood);
                }
            }
            Op::Reclaim => {
                self.world.zone.reclaim();
            }
            Op::Fork => self.fork(),
            Op::Child => self.become_child(),
            Op::Hide => self.world.zone.pool.hide_idle(),
            Op::Trim(keeps) => self.world.zone.pool.trim_to(keeps),
            Op::Watch(on) => self.world.fake().watch(on),
            Op::Limit(huge) => {
                if self.world.zone.pool.note_limit(huge.map(|n| n * HUGE as u64)) == Allowance::Less
                {
                    self.world.zone.pool.lazy_free_all();
                }
            }
            Op::SwapOut(first, n) => {
                for page in first..(first + n).min(PAGES) {
                    self.world.fake().swap_out(PageId(page));
                }
            }
            Op::Refuse(call, fault) => {
                let fake = self.world.fake();
                let call = match call {
                    Refusal::Populate => &fake.populates,
                    Refusal::Release => &fake.releases,
                    Refusal::Replace => &fake.replaces,
                    Refusal::Residency => &fake.residencies,
                    Refusal::Hide => &fake.hides,
                    Refusal::Show => &fake.shows,
                    Refusal::Move => &fake.moves,
                    Refusal::Extend => &fake.extends,
                    Refusal::Unmap => &fake.unmaps,
                };
                call.refuse(fault);
                self.refused = Refused::Something;
            }
            Op::Write(which, ..)
            | Op::Free(which)
            | Op::FreeZeroed(which)
            | Op::TailTo(which, _)
            | Op::Grow(which, _)
            | Op::Remapped(which, ..) => {
                if !self.owned.is_empty() {
                    self.apply_to_block(which % self.owned.len(), op);
                }
            }
        }
    }

    fn take(&mut self, request: Request, asked: u32, align: Order) {
        let (zone, pages) = (&self.world.zone, whole(asked));
        let populates = self.world.fake().populates.made();
        let grip = match request {
            Request::Zero => {
                self.expected.zero += 1;
                zone.zero(asked, align).map(Grip::Zero)
            }
            Request::ZeroFront => {
                self.expected.zero += 1;
                let block = zone.zero_front(front(asked), asked, align, Use::Unknown);
                block.map(|block| Grip::Dirty(block.into_dirty()))
            }
            Request::OnlyZero => {
                self.expected.only_zero += 1;
                zone.only_zero(asked, align).map(Grip::Zero)
            }
            Request::Plain => {
                self.expected.plain += 1;
                zone.plain(asked, align).map(Grip::Dirty)
            }
        };
        assert_eq!(self.world.fake().populates.made(), populates, "a request never populates");
        let Some(grip) = grip else {
            self.expected.refused += u64::from(!matches!(request, Request::OnlyZero));
            return;
        };
        let zero = match request {
            Request::Plain => 0,
            Request::ZeroFront => front(asked),
            Request::Zero | Request::OnlyZero => pages,
        };
        self.expected.zeroed_pages += u64::from(zero);
        let mut holds = vec![Holds::Unknown; pages as usize];
        holds[..zero as usize].fill(Holds::Byte(0));
        let owned = Owned { grip, holds };
        let first = owned.first();
        assert_eq!(first.0 % align.pages(), 0, "unaligned");
        // The fake does not see that clearing touches what it would not tell us of.
        let told = self.refused == Refused::Nothing;
        if matches!(request, Request::OnlyZero) && told {
            let resident = |n| self.world.fake().holds(first.plus(n));
            assert!((0..pages).all(resident), "ONLY_ZERO hands out what is resident");
        }
        self.own(first, pages);
        self.owned.push(owned);
    }

    fn own(&mut self, first: PageId, pages: u32) {
        for page in first.index()..(first.0 + pages) as usize {
            assert_eq!(self.owner[page].replace(first), None, "page {page} has two owners");
        }
    }

    fn disown(&mut self, first: PageId, pages: u32) {
        self.owner[first.index()..(first.0 + pages) as usize].fill(None);
        self.expected.freed_pages += u64::from(pages);
    }

    fn apply_to_block(&mut self, which: usize, op: Op) {
        let mut owned = self.owned.swap_remove(which);
        let (first, pages) = (owned.first(), owned.pages());
        match op {
            Op::Write(_, part, byte) => {
                self.write(&mut owned, part, byte);
                self.owned.push(owned);
            }
            Op::Remapped(_, part, byte) => {
                let (from, n) = owned.part(part);
                if let Some(byte) = byte {
                    self.write(&mut owned, part, byte);
                }
                self.world.mark_remapped(first.plus(from as u32), n as u32);
                self.owned.push(owned);
            }
            Op::Free(_) => {
                self.disown(first, pages);
                match owned.grip {
                    Grip::Zero(block) => self.world.zone.free(block),
                    Grip::Dirty(block) => self.world.zone.free(block),
                }
            }
            Op::FreeZeroed(_) => match owned {
                Owned { grip: Grip::Zero(block), holds }
                    if holds.iter().all(|&h| h == Holds::Byte(0)) =>
                {
                    self.disown(first, pages);
                    self.world.zone.free_zeroed(block);
                }
                owned => self.owned.push(owned),
            },
            Op::TailTo(_, part) => {
                let (block, mut holds) = owned.into_dirty();
                let keep = whole(u32::from(part) * pages / 256);
                let block = self.world.zone.shorten_to(block, keep);
                if keep > 0 {
                    self.disown(first.plus(keep), pages - keep);
                    holds.truncate(keep as usize);
                }
                assert_eq!((block.first(), block.pages()), (first, holds.len() as u32));
                self.owned.push(Owned { grip: Grip::Dirty(block), holds });
            }
            Op::Grow(_, more) => {
                let (mut block, mut holds) = owned.into_dirty();
                let more = whole(more);
                if self.world.zone.try_grow(&mut block, pages + more) == Grown::Yes {
                    for page in first.0 + pages..first.0 + pages + more {
                        let before = self.owner[page as usize].replace(first);
                        assert_eq!(before, None, "page {page} has two owners");
                    }
                    assert_eq!(block.first(), first);
                } else {
                    block = self.grow_elsewhere(block, pages + more);
                }
                holds.resize(block.pages() as usize, Holds::Unknown);
                self.owned.push(Owned { grip: Grip::Dirty(block), holds });
            }
            _ => self.owned.push(owned),
        }
    }

    fn grow_elsewhere(&mut self, block: Block<Dirty>, to: u32) -> Block<Dirty> {
        let (first, pages) = (block.first(), block.pages());
        let moved_before = self.world.count(Counter::MovedBytes);
        self.expected.plain += 1;
        let grown = match self.world.zone.grow_elsewhere(block, to, Order::MIN) {
            Ok(grown) => grown,
            Err(block) => {
                self.expected.refused += 1;
                return block;
            }
        };
        let moved = ((self.world.count(Counter::MovedBytes) - moved_before) / PAGE as u64) as u32;
        // Copied pages were written to.
        (moved..pages).for_each(|n| self.world.fake().touch(grown.first().plus(n)));
        self.disown(first, pages);
        self.expected.freed_pages -= u64::from(moved);
        self.own(grown.first(), grown.pages());
        assert_eq!(grown.pages(), to);
        grown
    }

    fn write(&self, owned: &mut Owned, part: Part, byte: u8) {
        let (from, n) = owned.part(part);
        owned.holds[from..from + n].fill(Holds::Byte(byte));
        self.world.fill(owned.first().plus(from as u32), n as u32, byte);
    }

    fn fork(&mut self) {
        if self.fork.take().is_some() {
            return self.world.after_fork_in_parent();
        }
        let zero = (0..PAGES).map(|page| self.is_free_zero(page)).collect();
        self.fork = Some(zero);
        self.world.before_fork();
    }

    /// Goes on in the child of a fork, which counts from zero.
    fn become_child(&mut self) {
        if self.fork.is_some() {
            return;
        }
        self.refusals += self.world.count(Counter::BackingErrors);
        self.world.before_fork();
        self.world.fake().fork();
        self.world.after_fork_in_child();
        self.world.zone.take_over();
        self.expected = Expected::default();
    }

    /// What counts as touched, although its owner left it alone, is cleared before a request gets
    /// it as zero. That touches it, which the fake does not see.
    fn tell_of_clears_to_come(&self) {
        let fake = self.world.fake();
        let is_dirty = |page: &PageId| self.world.zone.pool.map.state(*page) == PageState::Dirty;
        let free = (0..PAGES).filter(|&page| self.owner[page as usize].is_none()).map(PageId);
        free.filter(is_dirty).filter(|&page| !fake.holds(page)).for_each(|page| fake.touch(page));
    }

    fn is_free_zero(&self, page: u32) -> bool {
        self.owner[page as usize].is_none()
            && self.world.zone.pool.map.state(PageId(page)) == PageState::Zero
    }

    fn assert_holds(&self) {
        self.world.assert_sound();
        let owned_pages = (0..PAGES).filter(|&page| self.owner[page as usize].is_some());
        let hidden = owned_pages.map(PageId).find(|&page| self.world.fake().is_hidden(page));
        assert_eq!(hidden, None, "a child or a dump would not have what its parent owns");
        for owned in &self.owned {
            for (n, holding) in owned.holds.iter().enumerate() {
                if let Holds::Byte(byte) = *holding {
                    let page = owned.first().plus(n as u32);
                    assert!(holds(&self.world.zone, page, byte), "page {page:?}: not {byte:#x}");
                }
            }
        }
        self.assert_sums();
        self.assert_counters();
        let Some(zero) = &self.fork else { return };
        let born = (0..PAGES).find(|&p| self.is_free_zero(p) && !zero[p as usize]);
        assert_eq!(born, None, "zero was published while a fork was under way");
    }

    fn assert_sums(&self) {
        let owned = self.owner.iter().flatten().count();
        let abandoned = (0..PAGES)
            .filter(|&p| self.owner[p as usize].is_none())
            .filter(|&p| self.world.zone.pool.map.state(PageId(p)) == PageState::Remapped)
            .count();
        let refused = self.refusals + self.world.count(Counter::BackingErrors);
        assert!(abandoned == 0 || refused > 0, "only a refusal costs a page");
        let gauges = self.world.zone.snapshot().gauges;
        assert_eq!(gauges.allocated_bytes, ((owned + abandoned) * PAGE) as u64);
    }

    fn assert_counters(&self) {
        let now = self.world.zone.snapshot();
        let bytes = |pages: u64| pages * PAGE as u64;
        assert_eq!(now.get(Counter::ZeroRequests), self.expected.zero);
        assert_eq!(now.get(Counter::OnlyZeroRequests), self.expected.only_zero);
        assert_eq!(now.get(Counter::PlainRequests), self.expected.plain);
        assert_eq!(now.get(Counter::Refused), self.expected.refused);
        assert_eq!(now.get(Counter::FreeBytes), bytes(self.expected.freed_pages));
        assert_eq!(
            now.get(Counter::HitBytes)
                + now.get(Counter::MissBytes)
                + now.get(Counter::AbsentBytes),
            bytes(self.expected.zeroed_pages),
            "every page of zeroed memory was hit, missed or absent"
        );
        assert_eq!(now.get(Counter::VerifyFailures), 0);
    }

    /// All owners free their blocks, and all pages are one free run again.
    fn end(mut self) {
        if self.fork.is_some() {
            self.fork();
        }
        let refused = self.refused;
        use Refusal::*;
        for call in [Populate, Release, Replace, Residency, Hide, Show, Move, Extend, Unmap] {
            self.apply(Op::Refuse(call, Fault::Never));
        }
        while !self.owned.is_empty() {
            self.apply_to_block(0, Op::Free(0));
        }
        self.apply(Op::Watch(false));
        self.world.work(Throttle::Pressed);
        self.assert_holds();
        let tally = self.world.tally();
        assert_eq!(tally.absent + tally.remapped, PAGES, "{tally:?} after everything went back");
        let held = (0..PAGES)
            .map(PageId)
            .filter(|&p| self.world.zone.pool.map.state(p) == PageState::Absent)
            .find(|&p| self.world.fake().holds(p));
        // A populate that failed half way may leave something behind.
        if refused == Refused::Nothing {
            assert_eq!(held, None, "recorded as absent, and the kernel holds it");
        }
    }
}

/// Pages that a request for a zero front wants zero.
fn front(pages: u32) -> u32 {
    pages - pages / 4
}

fn run(verify: Verify, scrubs: bool, (mapped, unit): (usize, u32), ops: &[Op]) {
    let mut run = Run::new(verify, scrubs, mapped, unit);
    for &op in ops {
        run.apply(op);
        run.tell_of_clears_to_come();
        run.assert_holds();
    }
    run.end();
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: CASES,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn zone_agrees_with_a_page_vector(
        verify in verify(),
        scrubs in prop::bool::weighted(0.9),
        sizes in (1..=HUGE_BLOCKS, 1..=3u32),
        ops in prop::collection::vec(operation(), 1..OPS),
    ) {
        run(verify, scrubs, sizes, &ops);
    }

    /// The same while the kernel refuses calls: the zone stays consistent, and nothing is
    /// called zero that is not.
    #[test]
    fn zone_survives_refusals(
        verify in verify(),
        sizes in (1..=HUGE_BLOCKS, 1..=3u32),
        ops in prop::collection::vec(prop_oneof![6 => operation(), 1 => refusal()], 1..OPS),
    ) {
        run(verify, true, sizes, &ops);
    }
}
