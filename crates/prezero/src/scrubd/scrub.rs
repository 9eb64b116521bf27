//! What scrubd does, one bounded step at a time: refile, scrub, give back.
//!
//! A step borrows at most one huge block, and puts it back early if an allocation asks for it
//! (see [`scrubbing`](crate::pool::scrubbing)). Blocks rest before they are touched: a block that was freed a moment ago is hot
//! and likely to be taken again, and is better cleared by its taker (Lameter, 2004).
//!
//! The thread calls [`Scrubber::step`] while there is work; tests call it with a clock of their own.

use crate::class::Class;
use crate::clear::Cache;
use crate::clear::clearing::ClearedOn;
use crate::clock::{Now, REST_NS, Tick, Ticks};
use crate::config::ablation::Ablation;
use crate::count::counters::Counter;
use crate::map::state::PageState::Dirty;
use crate::mem::backing::Backing;
use crate::policy::decay::Decay;
use crate::policy::governor::{Governor, Plan};
use crate::policy::{IDLE_NS, Step, Throttle};
use crate::pool::isolate::Isolated;
use crate::sync::Ordering::Relaxed;
use crate::units::{Order, PAGE, Span};
use crate::zone::Zone;
use crate::zone::isolate::{Ready, Remembers};
use crate::zone::request::HOT_NS;

/// scrubd does not stop for less than this to keep to its rate.
/// Fixed: about what the shortest sleep takes.
const PACE_GRAIN_NS: u64 = 100_000;
/// The time for which a remembered block waits until the CPU that freed it idles, ns. Cleared elsewhere it would
/// cost its next owner more than a clear in line.
/// Moved by: `bench grid --sizes 64K,256K,1M`.
const AWAY_NS: u64 = 20_000_000;

/// The most bytes of small blocks that are cleared in one step.
/// Moved by: counter `look_cpu_ns`, `prezero bench steady`.
const STEP_BYTES: usize = 1 << 20;

/// What the scrubber must be told about the thread it runs on.
pub(crate) trait Thread {
    /// Moves to the CPU on which a block will be used, if that CPU is idle.
    fn go_to(&mut self, cpu: usize) -> ClearedOn;
    /// CPU time of this thread, ns.
    fn cpu_ns(&self) -> u64;
}

/// scrubd's own state.
pub(crate) struct Scrubber<T> {
    pub(crate) thread: T,
    governor: Governor,
    plan: Plan,
    /// The cleared bytes fill `scrub_rate` until then, ns.
    paced_until: u64,
    decay: Decay,
    /// The program's requests and frees, and when a look on busy CPUs last found new ones, ns.
    calls: u64,
    called_at: u64,
    /// CPU time that is no part of the price of a clear: to give memory back, and to make fresh memory resident, ns.
    apart_ns: u64,
}

impl<T: Thread> Scrubber<T> {
    /// Allocates all that scrubd will ever need.
    pub(crate) fn new(thread: T, now_ns: u64, without: Ablation) -> Scrubber<T> {
        let governor = Governor::new(now_ns, without);
        Scrubber {
            thread,
            plan: governor.plan(),
            governor,
            paced_until: 0,
            decay: Decay::default(),
            calls: 0,
            called_at: now_ns,
            apart_ns: 0,
        }
    }

    /// The plan of the last step.
    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Whether a burst of requests for zero goes on, as far as can be seen, and its end is
    /// worth waiting for.
    pub(crate) fn follows_a_burst(&self) -> bool {
        self.plan.in_burst && self.plan.may_spend
    }

    /// Whether fewer zeroes lie ready than are wanted.
    pub(crate) fn lacks(&self, zone: &Zone<impl Backing>) -> bool {
        self.plan.may_spend
            && (zone.ready().zero < self.plan.target
                || zone.lacks_zero_hints(|class| self.remembered(class)))
    }

    /// Whether the zone holds what may go back to the kernel after a while.
    pub(crate) fn has_to_watch(&self, zone: &Zone<impl Backing>) -> bool {
        zone.holds_idle_memory()
    }

    /// CPU time that is no part of the price of a clear, ns.
    pub(crate) fn apart_ns(&self) -> u64 {
        self.apart_ns
    }

    fn remembered(&self, class: Class) -> usize {
        self.plan.remembered[class.index()]
    }

    /// One bounded piece of work.
    pub(crate) fn step(&mut self, zone: &Zone<impl Backing>, mood: Throttle) -> Step {
        let now = zone.pool.clock.turn();
        // A child of a fork would believe what is recorded as zero now.
        if zone.pool.scrubbing.fork_is_under_way() {
            return Step::Nothing;
        }
        if mood == Throttle::Pressed {
            let gave = self.purging(|| zone.purge_all());
            return if gave { Step::Worked } else { Step::Nothing };
        }
        self.plan_anew(zone, now);
        let busy = matches!(mood, Throttle::Unsure | Throttle::Crowded);
        // A thread of the program that waits for a lock of the kernel's is not likely while the program is quiet.
        let may_purge = !busy || self.is_quiet(zone, now.ns);
        if mood == Throttle::Crowded {
            let gave = may_purge && self.purge(zone, now);
            return if gave { Step::Nap } else { Step::Nothing };
        }
        let may = mood != Throttle::Resting && self.plan.may_spend && zone.trust.is_whole();
        let start = zone.tuning.scrub_start().filter(|_| may);
        match start.and_then(|start| self.make_zero(zone, start, now, mood)) {
            None | Some(Step::Paced(_)) if may_purge && self.purge(zone, now) => Step::Nap,
            made => made.unwrap_or(Step::Nothing),
        }
    }

    /// Whether the program has requested and freed nothing for as long as one that idles.
    fn is_quiet(&mut self, zone: &Zone<impl Backing>, now: u64) -> bool {
        let kinds = [Counter::Frees, Counter::ZeroRequests, Counter::PlainRequests];
        let calls = kinds.map(|kind| zone.counted(kind)).iter().sum();
        if std::mem::replace(&mut self.calls, calls) != calls {
            self.called_at = now;
        }
        now.saturating_sub(self.called_at) >= IDLE_NS
    }

    /// Plans by what was counted since the last step.
    fn plan_anew(&mut self, zone: &Zone<impl Backing>, now: Now) {
        let spent_before = self.plan.may_spend;
        self.plan = self.governor.observe(now.ns, zone.seen());
        if spent_before && !self.plan.may_spend {
            zone.pool.counters.bump(Counter::Asides);
        }
        let target = self.plan.target.min(zone.tuning.stock_pages());
        zone.waker.target.store(target, Relaxed);
    }

    /// Makes something zero, and keeps to the rate that the user set. `None`: there is nothing to make.
    fn make_zero(
        &mut self,
        zone: &Zone<impl Backing>,
        start: Order,
        now: Now,
        mood: Throttle,
    ) -> Option<Step> {
        let wait = self.paced_until.saturating_sub(now.ns);
        if wait > PACE_GRAIN_NS {
            return Some(Step::Paced(wait));
        }
        let counters = &zone.pool.counters;
        let before = counters.get(Counter::ScrubbedBytes);
        let room = zone.room(mood == Throttle::Unsure);
        let made = self
            .refile(zone, start, now.tick, room)
            .or_else(|| self.scrub(zone, start, now.tick, mood, room))
            .or_else(|| self.grow(zone, mood, room));
        let bytes = counters.get(Counter::ScrubbedBytes) - before;
        if let Some(rate) = zone.tuning.scrub_rate() {
            self.paced_until =
                self.paced_until.max(now.ns) + bytes * 1_000_000_000 / rate.max(1) as u64;
        }
        made
    }

    /// Some of the memory that has idled for its time goes back to the kernel. True if there may be
    /// more.
    fn purge(&mut self, zone: &Zone<impl Backing>, now: Now) -> bool {
        let Some(idle) = self.decay.due(now.ns, zone.tuning.decay_ns()) else { return false };
        let more = self.purging(|| zone.purge_idle(idle, now.tick));
        if !more {
            self.decay.is_done(now.ns);
        }
        more
    }

    /// Counts the CPU time of what gives memory back.
    fn purging(&mut self, give: impl FnOnce() -> bool) -> bool {
        let began = self.thread.cpu_ns();
        let outcome = give();
        self.apart_ns += self.thread.cpu_ns().saturating_sub(began);
        outcome
    }

    /// Arcangeli's idle task: from a CPU's hot-cold row to its zero row, on that CPU if
    /// it is idle, so that the zeroes lie in its own cache.
    fn refile(
        &mut self,
        zone: &Zone<impl Backing>,
        start: Order,
        tick: Tick,
        room: u64,
    ) -> Option<Step> {
        let remembered = self.plan.remembered;
        let wanted = |class: Class| remembered[class.index()];
        for (cpu, class, ready) in zone.lacking(start, tick, wanted) {
            let bytes = class.pages() as usize * PAGE;
            // A step costs more than a small clear.
            let blocks = (wanted(class) - ready).min(STEP_BYTES / bytes).max(1);
            let blocks = blocks.min((room / u64::from(class.pages())) as usize);
            let on = self.go_where_wanted(zone, bytes, cpu);
            // A block whose CPU is busy waits for it a while before it is cleared far
            // from it: filled at once, it would cost more than its inline clear.
            let waits = on == ClearedOn::Other && zone.clearing.fits_private_cache(bytes);
            let rest = if waits { AWAY_NS } else { REST_NS };
            let stock = zone.ready().zero as usize * PAGE + bytes;
            let rest = Ticks::rounded_up(rest);
            let mut done = None;
            for _ in 0..blocks {
                let Some(isolated) = zone.isolate_coldest((cpu, class), tick, rest) else {
                    break;
                };
                let step = self.clear(zone, isolated, Remembers::Cpu(cpu, class), stock);
                done = Some(step);
                if step != Step::Worked {
                    break;
                }
            }
            if done.is_some() {
                return done;
            }
        }
        None
    }

    /// Makes memory resident for blocks that are to lie ready: fresh memory of the kernel is zero.
    fn grow(&mut self, zone: &Zone<impl Backing>, mood: Throttle, room: u64) -> Option<Step> {
        let lacks = self.plan.lacks.min(room);
        if lacks == 0 || mood != Throttle::Normal {
            return None;
        }
        let isolated = zone.pool.isolate(zone.pool.find_absent(lacks)?)?;
        let began = self.thread.cpu_ns();
        let populated = zone.pool.populate_isolated(&isolated);
        outcome(zone);
        zone.publish(isolated, Remembers::Nobody);
        // Paid once, for as long as it stays.
        self.apart_ns += self.thread.cpu_ns().saturating_sub(began);
        (populated > 0).then_some(Step::Nap)
    }

    /// Clears a piece of the largest rested dirty block, until the zero stock is what the plan wants.
    fn scrub(
        &mut self,
        zone: &Zone<impl Backing>,
        start: Order,
        tick: Tick,
        mood: Throttle,
        room: u64,
    ) -> Option<Step> {
        let Ready { zero, dirty } = zone.ready();
        let target = self.plan.target.min(zero.saturating_add(room));
        if dirty == 0 {
            return None;
        }
        let (freed_on, freed) = zone.freed_last(tick);
        // While the program frees and takes all the time, a block that it did not take back yet is hot as well.
        let is_idle = freed.is_none_or(|freed| freed > Ticks::rounded_up(REST_NS));
        let rest = Ticks::rounded_up(if is_idle { REST_NS } else { HOT_NS });
        let lack = target.checked_sub(zero).filter(|&lack| lack > 0)?;
        let span = zone.pool.find_idle(start.pages(), Dirty, None, rested(tick, rest))?;
        let span = zone.pool.idle_within(span, Dirty, lack);
        let span = span.filter(|span| u64::from(span.pages) <= room)?;
        // The zero stock when scrubd is done: a program may use it in one go.
        let set = (zero + dirty).min(target) as usize * PAGE;
        self.go_where_wanted(zone, set, freed_on);
        // Isolated only now: the move may have waited behind another thread on a busy CPU.
        if mood == Throttle::Normal && zone.pool.can_be_huge(span) {
            return Some(self.make_huge(zone, span));
        }
        let Some(isolated) = zone.pool.isolate(span) else {
            return Some(Step::Nap); // an allocation was faster
        };
        let step = self.clear(zone, isolated, Remembers::Nobody, set);
        if mood == Throttle::Normal {
            zone.pool.lazy_free_excess(span);
        }
        Some(step)
    }

    /// Moves to where a set of `bytes` is cleared best, which `cpu` is likely to use.
    fn go_where_wanted(
        &mut self,
        zone: &Zone<impl Backing>,
        bytes: usize,
        cpu: usize,
    ) -> ClearedOn {
        if zone.clearing.prefers_one_cpu(bytes) { self.thread.go_to(cpu) } else { ClearedOn::Other }
    }

    /// Clears the dirty pages of an isolated block, a part of a set of `set` bytes, and puts it back.
    fn clear(
        &mut self,
        zone: &Zone<impl Backing>,
        mut isolated: Isolated,
        who: Remembers,
        set: usize,
    ) -> Step {
        let began = self.thread.cpu_ns();
        let counters = &zone.pool.counters;
        let engine = zone.clearing.scrub(set);
        zone.pool.clear_isolated(&mut isolated, engine);
        let step = outcome(zone);
        let bytes = u64::from(zone.publish(isolated, who)) * PAGE as u64;
        counters.add(Counter::ScrubbedBytes, bytes);
        if engine.cache() == Cache::Bypassing {
            counters.add(Counter::BypassedBytes, bytes);
        }
        // A page that its owner only read is the kernel's one page of zeroes, and is faulted in
        // here.
        let ns = self.thread.cpu_ns().saturating_sub(began);
        counters.add(Counter::ScrubCpuNs, ns);
        if bytes > 0 {
            zone.clearing.note(engine, set, bytes as usize, ns);
        }
        step
    }

    /// For the price of a clear the kernel makes a huge page of small ones, zero as well.
    fn make_huge(&mut self, zone: &Zone<impl Backing>, span: Span) -> Step {
        let Some(isolated) = zone.pool.isolate(span) else { return Step::Nap };
        let began = self.thread.cpu_ns();
        let populated = if zone.pool.make_huge_isolated(&isolated) {
            zone.pool.populate_isolated(&isolated)
        } else {
            0
        };
        let counters = &zone.pool.counters;
        outcome(zone);
        zone.publish(isolated, Remembers::Nobody);
        zone.pool.lazy_free_excess(span);
        counters.add(Counter::ScrubbedBytes, u64::from(populated) * PAGE as u64);
        counters.add(Counter::ScrubCpuNs, self.thread.cpu_ns().saturating_sub(began));
        Step::Nap
    }
}

/// Whether memory whose last free is known has rested.
fn rested(now: Tick, rest: Ticks) -> impl Fn(Option<Tick>) -> bool {
    move |freed| freed.is_some_and(|freed| now.since(freed) > rest)
}

/// Whether scrubd could do what it wanted with its block.
fn outcome(zone: &Zone<impl Backing>) -> Step {
    if !zone.pool.is_wanted() {
        return Step::Worked;
    }
    zone.pool.counters.bump(Counter::Aborts);
    Step::Nap
}
