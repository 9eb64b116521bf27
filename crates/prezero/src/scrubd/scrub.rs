//! What scrubd does, one bounded step at a time: refile, scrub, prefault, give back.
//!
//! A step takes at most one huge block out of circulation. It holds no lock, and an
//! allocation can have the block back at any moment (see [`crate::pool::handover`]). Blocks
//! rest before they are touched: what was freed a moment ago is hot and likely to be
//! taken again, and is better cleared by its taker (Lameter, 2004).
//!
//! The daemon calls [`Scrubber::step`] while there is work; tests call it with a clock
//! of their own.

mod prefault;
mod refile;

use prezero_sys::rseq::Rseq;

use crate::clear::choice::Place;
use crate::clear::{Cache, ClearEngine, Guard, Piece};
use crate::clock::{REST_NS, age, ticks};
use crate::config::without::{Mechanism, Without};
use crate::count::counters::{Counter, Counters};
use crate::count::probes;
use crate::mem::backing::Backing;
use crate::mem::states::PageState;
use crate::policy::decay::{Decay, More};
use crate::policy::governor::Governor;
use crate::policy::{Mood, Step};
use crate::pool::chunk::Chunk;
use crate::pool::handover::{Claimed, Session, Work};
use crate::pool::huge::LateBacking;
use crate::sync::Ordering::Relaxed;
use crate::units::{HUGE_ORDER, Order, PAGE, PageId};
use crate::zone::Zone;
use crate::zone::request::HOT_NS;
use crate::zone::seen::seen;

/// scrubd does not stop for less than this to keep to its rate, ns.
const PACE_GRAIN_NS: u64 = 100_000;
/// Pages of a piece (128 KiB): how long an allocation may wait for scrubd's answer, 5 to
/// 13 us, and how much work is lost when a piece is restarted. `rep stosb` reaches 90 % of
/// its bare rate on 64 MiB in such pieces, 84 % in a quarter of it; past the cache, where
/// each piece ends in a fence, it is 96 and 84 %.
const PIECE: u32 = 32;
/// Demoting clears a quarter as fast and loses nothing in smaller pieces.
const PIECE_DEMOTED: u32 = 8;

/// What the scrubber must be told about the thread it runs on.
pub(crate) trait Host {
    /// This thread's restartable-sequence area.
    fn rseq(&self) -> Option<&Rseq>;
    /// Moves to the CPU on which a block will be used, if that CPU is idle.
    fn go_home(&mut self, cpu: usize) -> Place;
    /// CPU time of this thread, ns.
    fn cpu_ns(&self) -> u64;
}

/// scrubd's own state.
pub(crate) struct Scrubber<H> {
    pub(crate) host: H,
    governor: Governor,
    /// The block that is being cleared piece by piece: its first page and length.
    focus: Option<(PageId, u32)>,
    /// Until when what was cleared fills `scrub_rate`, ns.
    paced_until: u64,
    /// The `scrub_start` that set it to work, while each look finds something to clear. A
    /// new one has to set it to work itself.
    working: Option<Order>,
    decay: Decay,
    gave_back_ns: u64,
    late: LateBacking,
    /// Pages freed so far, since when, in ticks, and whether zeroes lie where the next large requests
    /// find them with all that rested.
    freed: u64,
    freed_at: u32,
    lies_well: bool,
}

impl<H: Host> Scrubber<H> {
    /// Allocates all that scrubd will ever need.
    pub(crate) fn new(host: H, now_ns: u64, without: Without) -> Scrubber<H> {
        Scrubber {
            host,
            governor: Governor::new(now_ns, without),
            focus: None,
            paced_until: 0,
            working: None,
            decay: Decay::new(without),
            gave_back_ns: 0,
            late: LateBacking::default(),
            freed: 0,
            freed_at: 0,
            lies_well: false,
        }
    }

    /// Whether the program wants anything zero.
    pub(crate) fn is_wanted(&self) -> bool {
        self.governor.wants()
    }

    /// Whether it wants so much of it that the machine is to be measured.
    pub(crate) fn pays_to_measure(&self) -> bool {
        self.governor.pays_to_measure()
    }

    /// Whether a burst of requests for zero goes on, as far as can be seen, and its end is
    /// worth waiting for.
    pub(crate) fn follows_a_burst(&self) -> bool {
        self.governor.in_burst() && self.governor.may_spend()
    }

    /// Whether fewer zeroes lie ready than are wanted.
    pub(crate) fn lacks<B: Backing>(&self, zone: &Zone<B>) -> bool {
        self.governor.may_spend()
            && (u64::from(zone.pool.stock.zero()) < self.governor.target()
                || self.lacks_listed(zone))
    }

    /// When it was seen last that blocks came back which had been asked for as zero, ns.
    pub(crate) fn returned_at(&self) -> u64 {
        self.governor.returned_at()
    }

    /// When it was seen last that somebody asked for zero, or when it began, ns.
    pub(crate) fn asked_at(&self) -> u64 {
        self.governor.asked_at()
    }

    /// Whether it looks for something to clear.
    pub(crate) fn looks(&self) -> bool {
        self.governor.looks()
    }

    /// CPU time that went into giving memory back, ns.
    pub(crate) fn gave_back_ns(&self) -> u64 {
        self.gave_back_ns
    }

    /// How long idle memory may wait to be looked over, ns.
    pub(crate) fn watch_ns(&self) -> u64 {
        self.decay.watch_ns()
    }

    /// One bounded piece of work.
    pub(crate) fn step<B: Backing>(&mut self, zone: &Zone<B>, mood: Mood) -> Step {
        let (now, tick) = zone.pool.clock.turn();
        if !zone.pool.handover.is_free() {
            return Step::Nothing; // an allocation is still putting back what it took
        }
        if mood == Mood::Pressed {
            let gave = self.giving_back(|_| zone.give_back_all());
            return if gave { Step::Worked } else { Step::Nothing };
        }
        let spent_before = self.governor.may_spend();
        self.governor.observe(now, seen(zone));
        if spent_before && !self.governor.may_spend() {
            zone.daemon.counters.bump(Counter::Asides);
        }
        zone.daemon.target.store(self.governor.target().min(zone.live.stock()), Relaxed);
        if mood == Mood::Crowded {
            return Step::Nothing;
        }
        let sure = mood != Mood::Unsure;
        if let Some(start) = zone.live.scrub_start()
            && mood != Mood::Resting
            && self.governor.may_spend()
            && zone.trust.is_whole()
        {
            if let Some(wait) = self.paced_until.checked_sub(now).filter(|&ns| ns > PACE_GRAIN_NS) {
                let more = sure && self.give_back(zone, now, tick);
                return if more { Step::Nap } else { Step::Paced(wait) };
            }
            // A block of order `start` sets scrubd to work, and it works down to `stop`.
            let stop = zone.live.scrub_stop();
            let stop = if self.working == Some(start) {
                stop
            } else {
                self.focus = None; // it may be of a lower order
                start.max(stop)
            };
            let before = zone.daemon.counters.get(Counter::ScrubbedBytes);
            // What would have to be offered to the kernel is not made while it is not asked.
            let unoffered = zone.pool.allowance().saturating_sub(zone.pool.stock.zero());
            let room = if sure { zone.room() } else { zone.room().min(u64::from(unoffered)) };
            let cleared = self
                .refile(zone, stop, tick, room)
                .or_else(|| self.scrub(zone, stop, tick, mood, room));
            let bytes = zone.daemon.counters.get(Counter::ScrubbedBytes) - before;
            if let Some(rate) = zone.live.scrub_rate() {
                self.paced_until = self.paced_until.max(now) + bytes * 1_000_000_000 / rate;
            }
            self.working = cleared.is_some().then_some(start);
            let step = cleared.or_else(|| if sure { self.prefault(zone, room) } else { None });
            if let Some(step) = step {
                return step;
            }
        }
        if sure && self.give_back(zone, now, tick) { Step::Nap } else { Step::Nothing }
    }

    /// Some of what has been idle for its time goes back to the kernel. True if there may be
    /// more.
    fn give_back<B: Backing>(&mut self, zone: &Zone<B>, now: u64, tick: u32) -> bool {
        let faulted = zone.pool.faulted.load(Relaxed);
        let Some(idle) = self.decay.due(now, zone.live.decay_ns(), faulted) else { return false };
        self.giving_back(|decay| {
            let (pages, more) = zone.give_back_idle(idle, tick);
            decay.gave(now, idle, u64::from(pages), more);
            more == More::Maybe
        })
    }

    /// Counts the CPU time of what gives memory back.
    fn giving_back(&mut self, give: impl FnOnce(&mut Decay) -> bool) -> bool {
        let began = self.host.cpu_ns();
        let outcome = give(&mut self.decay);
        self.gave_back_ns += self.host.cpu_ns().saturating_sub(began);
        outcome
    }

    /// Bytes that will have gone through the caches when zeroes out of a stock of `stock`
    /// bytes are used: the stock itself, or what the program uses meanwhile.
    fn until_used(&self, stock: usize) -> usize {
        stock.max(self.governor.traffic() as usize * PAGE)
    }

    /// Clears a piece of a rested dirty block, until the zero stock is what the governor
    /// wants: first the block that the next request of each size would get, the likeliest
    /// request first, and then the largest there are.
    fn scrub<B: Backing>(
        &mut self,
        zone: &Zone<B>,
        stop: Order,
        tick: u32,
        mood: Mood,
        room: u64,
    ) -> Option<Step> {
        let (zero, dirty) = (u64::from(zone.pool.stock.zero()), u64::from(zone.pool.stock.dirty()));
        let target = self.governor.target().min(zero.saturating_add(room));
        if dirty == 0 {
            return None;
        }
        // While the program frees and takes all the time, what it did not come back to yet is hot like the rest.
        let pauses = age(tick, zone.pool.freed_last.load(Relaxed)) > ticks(REST_NS);
        let rest = ticks(if pauses { REST_NS } else { HOT_NS });
        let rested = |at: u32| at != 0 && age(tick, at) > rest;
        let chunk = if zero < target {
            self.focus
                .and_then(|run| {
                    zone.pool.chunk_within(run, PageState::Dirty, target - zero, rested)
                })
                .or_else(|| self.next_dirty(zone, stop, target - zero, rested))
                .or_else(|| zone.pool.find_chunk(stop, PageState::Dirty, rested))
        } else {
            // What is zero may lie where the next large request does not fit.
            let most = self.governor.most().saturating_sub(zero).min(room);
            let large = stop.max(Order::new(HUGE_ORDER + 1)?);
            if most > 0 && zone.has(Mechanism::Layout) && self.may_lie_badly(tick) {
                let found = self.next_dirty(zone, large, most, rested);
                self.lies_well = found.is_none() && age(tick, self.freed_at) > ticks(REST_NS);
                found
            } else {
                None
            }
        };
        let chunk = chunk.filter(|chunk| u64::from(chunk.order.pages()) <= room)?;
        // What will lie ready when scrubd is done: it may be used in one go.
        let set = (zero + dirty).min(target) as usize * PAGE;
        let place = if zone.choice().prefers_home(set) {
            self.host.go_home(zone.pool.freed_on.load(Relaxed) as usize)
        } else {
            Place::Elsewhere
        };
        // Taken only now: the move may wait behind somebody on a busy CPU, and a block that
        // is out of circulation without a claim cannot be asked for.
        zone.pool.handover.announce();
        if !zone.pool.borrow(&chunk) {
            zone.pool.handover.withdraw();
            return Some(Step::Nap); // somebody was faster
        }
        // For the price of a clear the kernel makes a huge page of it, zero as well.
        let now = zone.pool.clock.now_ns();
        if mood == Mood::Normal
            && (self.late.is_over(now) || !zone.has(Mechanism::Late))
            && zone.pool.was_made_huge(&chunk)
        {
            let (_, ns) = self.populate(zone, &chunk, Counter::ScrubbedBytes);
            charge(&zone.daemon.counters, Counter::ScrubCpuNs, ns, self.late.note(now, ns));
            return Some(Step::Nap);
        }
        let engine = zone.choice().scrub(set, self.until_used(set), place);
        let step = self.clear(zone, chunk.first, chunk.order.pages(), engine, |zone| {
            zone.pool.put_as_it_was(chunk.first, chunk.order.pages());
        });
        if mood == Mood::Normal {
            zone.pool.offer_excess(chunk.first, chunk.order.pages());
        }
        Some(step)
    }

    /// Whether to search for zeroes that no large request fits: not again before something is freed.
    fn may_lie_badly(&mut self, tick: u32) -> bool {
        let freed = self.governor.freed();
        if freed != self.freed {
            (self.freed, self.freed_at, self.lies_well) = (freed, tick, false);
        }
        !self.lies_well
    }

    /// The next dirty chunk that `fits`, and what follows it in its block from now on.
    fn next_dirty<B: Backing>(
        &mut self,
        zone: &Zone<B>,
        stop: Order,
        most: u64,
        fits: impl Fn(u32) -> bool,
    ) -> Option<Chunk> {
        let (focus, chunk) = self.next_chunk(zone, stop, PageState::Dirty, most, fits)?;
        self.focus = Some(focus);
        Some(chunk)
    }

    /// The first chunk in a state of the block that the likeliest request would get now, if it has
    /// one that `fits`, or of the next likeliest; and that block. No more of it than the pages
    /// ahead, nor than `most`.
    fn next_chunk<B: Backing>(
        &self,
        zone: &Zone<B>,
        stop: Order,
        state: PageState,
        most: u64,
        fits: impl Fn(u32) -> bool,
    ) -> Option<((PageId, u32), Chunk)> {
        let bands = self.governor.likeliest().filter(|(band, _)| band.order() >= stop);
        bands.into_iter().find_map(|(band, ahead)| {
            let pages = u64::from(band.pages()).min(ahead) as u32;
            let run = (zone.pool.next_for_zero(pages)?, pages);
            Some((run, zone.pool.chunk_within(run, state, most, &fits)?))
        })
    }

    /// Clears the dirty pages of a block that is out of circulation, and puts it back by
    /// `back`, unless an allocation takes it meanwhile.
    fn clear<B: Backing>(
        &mut self,
        zone: &Zone<B>,
        first: PageId,
        pages: u32,
        engine: &dyn ClearEngine,
        back: impl FnOnce(&Zone<B>),
    ) -> Step {
        let began = self.host.cpu_ns();
        let mark = zone.pool.fork_mark();
        let rseq = self.host.rseq();
        let work = if rseq.is_some() && engine.revocable() { Work::Scrub } else { Work::Fixed };
        let session = zone.pool.handover.begin(first, pages, work, mark);
        probes::scrub_begin(first, pages);
        let piece = match engine.cache() {
            Cache::Cached | Cache::Bypassing => PIECE,
            Cache::Demoted => PIECE_DEMOTED,
        };
        let mut at = first;
        let end = first.0 + pages;
        'runs: while let Some((run, n)) = zone.pool.states.find(at, end - at.0, PageState::Dirty) {
            for from in (0..n).step_by(piece as usize) {
                let (piece, n) = (run.plus(from), piece.min(n - from));
                let guard = Guard {
                    claim: session.word(),
                    expected: session.busy(),
                    progress: session.progress(),
                    next: u64::from(piece.0 + n - first.0),
                    rseq,
                };
                if zone.pool.memory.clear_guarded(engine, piece, n, &guard) == Piece::Revoked {
                    break 'runs;
                }
            }
            at = run.plus(n);
            if at.0 >= end {
                break;
            }
        }
        let counters = &zone.daemon.counters;
        let step = outcome(&session, counters);
        if step == Step::Nap {
            probes::abort(first);
        }
        if let Some(Claimed { done, .. }) = session.close() {
            let cleared = zone.pool.publish_zero(first, done, mark);
            probes::scrub_end(first, cleared);
            let bytes = u64::from(cleared) * PAGE as u64;
            counters.add(Counter::ScrubbedBytes, bytes);
            if engine.cache() == Cache::Bypassing {
                counters.add(Counter::BypassedBytes, bytes);
            }
            back(zone);
            session.release();
        }
        // What its owner only read is resident as the kernel's one page of zeroes, and faulted in here.
        let ns = self.host.cpu_ns().saturating_sub(began);
        charge(counters, Counter::ScrubCpuNs, ns, LateBacking::beyond(ns));
        step
    }
}

/// Books the CPU time that a kind of work took: what of it was late apart, since it is not the price.
fn charge(counters: &Counters, work: Counter, ns: u64, late: u64) {
    counters.add(work, ns - late);
    counters.add(Counter::LateCpuNs, late);
}

/// Whether scrubd could do what it wanted with its block.
fn outcome(session: &Session<'_>, counters: &Counters) -> Step {
    if session.undisturbed() {
        return Step::Worked;
    }
    counters.bump(Counter::Aborts);
    Step::Nap
}
