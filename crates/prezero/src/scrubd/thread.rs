//! The thread from its start: it looks, works, naps, backs off and parks, until the process ends or a call wants no
//! second thread (`waker/ending.rs`).
//!
//! `policy/pacer.rs` says how long it sleeps between two looks. After a while without work it parks and costs nothing.

use std::ffi::c_void;
use std::path::Path;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release, SeqCst};

use prezero_host::Topology;
use prezero_host::pressure::{Memory, Pressure, Room, Verdict};
use prezero_sys::thread::{self, Waited};

use super::ctl::Ctl;
use super::this_thread::ThisThread;
use crate::config::ablation::Mechanism;
use crate::count::counters::Counter;
use crate::mem::backing::Backing;
use crate::policy::backoff::Backoff;
use crate::policy::decay::LOOK_WITHIN_NS;
use crate::policy::pacer::{Look, Pacer};
use crate::policy::{IDLE_NS, PARK_NS, POLL_LAZY_NS, POLL_MAX_NS, WATCH_NS, WokenBy};
use crate::policy::{Step, Throttle};
use crate::pool::purge::lazy_free::Allowance;
use crate::scrubd::scrub::Scrubber;
use crate::waker::{ASLEEP, AWAKE, DOZING, PARKED};
use crate::zone::Zone;

/// The listener hears the counters this often at most: they cost some hundred loads.
/// Fixed: what a person who watches can read.
const TELL_NS: u64 = 20_000_000;

/// The thread.
#[allow(unsafe_code)]
pub(crate) extern "C" fn run<B: Backing + 'static>(zone: *mut c_void) -> *mut c_void {
    // SAFETY: `allow_scrubd_by` was given a reference to a zone that is never dropped.
    let zone: &'static Zone<B> = unsafe { &*zone.cast::<Zone<B>>() };
    let spawner = zone.waker.spawner();
    spawner.arrive(&zone.waker.life);
    thread::name_current(c"scrubd");
    zone.take_over();
    prezero_sys::cpu::look_up();
    let own_files = thread::own_descriptors().is_ok();
    let left = zone.waker.left.swap(std::ptr::null_mut(), AcqRel).cast::<Scrubd<B>>();
    let scrubd = if left.is_null() {
        Box::leak(Box::new(Scrubd::new(zone, own_files)))
    } else {
        // SAFETY: the last scrubd of this zone, whose thread is gone, wrote it down below.
        let scrubd = unsafe { &mut *left };
        scrubd.begin_again(own_files);
        scrubd
    };
    // Everything that allocates is done; from here on no thread may have to wait for this one.
    if let Some(pressure) = &scrubd.pressure {
        zone.pool.note_limit(pressure.limit());
        zone.pool.lazy_free_all();
    }
    scrubd.idle_class = thread::become_idle_class().is_ok();
    if scrubd.idle_class {
        zone.waker.idle_thread.store(thread::current_id(), Relaxed);
    }
    scrubd.serve();
    scrubd.withdraw();
    zone.waker.left.store(std::ptr::from_mut(scrubd).cast(), Release);
    zone.waker.mark_ended();
    spawner.leave(&zone.waker.life);
    std::ptr::null_mut()
}

/// Whether the kernel was told that the memory idles (`pool/purge`), since the program was quiet for long.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Advised {
    Yes,
    No,
}

pub(crate) struct Scrubd<B: 'static> {
    pub(crate) zone: &'static Zone<B>,
    pub(crate) scrubber: Scrubber<ThisThread>,
    pressure: Option<Pressure>,
    /// What tools see and ask for.
    pub(crate) ctl: Ctl,
    /// Of the last step.
    pub(crate) mood: Throttle,
    /// Whether this thread runs only on an idle CPU.
    idle_class: bool,
    /// Whether the limit of the program's memory fell below the one that idle memory was offered
    /// for.
    limit_fell: bool,
    backoff: Backoff,
    /// CPU time that is in the counters.
    counted: u64,
    /// The part of it that was no look.
    other_ns: u64,
    /// CPU time in which the machine was looked at.
    measured: u64,
    /// When the listener heard the counters.
    told: u64,
}

impl<B: Backing + 'static> Scrubd<B> {
    fn new(zone: &'static Zone<B>, own_files: bool) -> Scrubd<B> {
        let topology = Topology::read(Path::new(Topology::ROOT));
        zone.clearing.learn(&topology, zone.config.scrub_cache);
        let this = ThisThread::new(zone.cpus.len(), own_files, zone.config.without);
        zone.waker.has_moved();
        Scrubd {
            zone,
            scrubber: Scrubber::new(this, zone.pool.clock.now_ns(), zone.config.without),
            pressure: own_files.then(|| Pressure::new(Path::new("/"))),
            ctl: Ctl::new(&zone.config, topology, own_files),
            mood: Throttle::Normal,
            idle_class: false,
            backoff: Backoff::new(),
            limit_fell: false,
            counted: 0,
            other_ns: 0,
            measured: 0,
            told: 0,
        }
    }

    /// The last thread's state becomes this one's, with all that was learnt.
    fn begin_again(&mut self, own_files: bool) {
        self.scrubber.thread.renew(own_files);
        if !own_files {
            self.pressure = None;
        } else if self.pressure.is_none() || self.zone.waker.has_moved() {
            self.pressure = Some(Pressure::new(Path::new("/")));
        }
        self.ctl.begin_again(own_files);
        self.counted = 0;
        self.backoff = Backoff::new();
    }

    /// Nothing that ends with this thread is in use any more. The panel's values stay as they were
    /// last written: a thread waits for this one's end.
    fn withdraw(&mut self) {
        self.ctl.close();
    }

    /// Looks, works and sleeps, until the thread is called off.
    fn serve(&mut self) {
        let mut pacer = Pacer::new(self.zone.pool.clock.now_ns());
        let mut advised = Advised::No;
        while !self.zone.waker.is_called_off() {
            let (step, ended, backoff) = self.look();
            if backoff.is_some() {
                self.sleep(AWAKE, backoff);
                continue;
            }
            pacer.looked(ended, self.seen(step));
            match step {
                Step::Worked => self.backoff.worked(),
                Step::Paced(wait) => {
                    self.sleep(AWAKE, Some(wait.min(POLL_LAZY_NS)));
                }
                Step::Nap | Step::Nothing => advised = self.pause(&mut pacer, ended, advised),
            }
        }
    }

    /// One look: requests of tools, one step, and the counters. The step, the time at its end, and the backoff that is
    /// due, ns.
    fn look(&mut self) -> (Step, u64, Option<u64>) {
        let began = (self.zone.pool.clock.now_ns(), thread::thread_cpu_ns());
        self.attend(began.0);
        let step = self.step(began.0);
        let ended = (self.zone.pool.clock.now_ns(), thread::thread_cpu_ns());
        self.count_cpu_ns(ended.1);
        if ended.0.saturating_sub(self.told) >= TELL_NS {
            self.tell(ended.0);
        }
        let backs_off = self.zone.has(Mechanism::Backoff);
        let backoff = || self.backoff.after(ended.0 - began.0, ended.1 - began.1);
        (step, ended.0, backs_off.then(backoff).flatten())
    }

    /// Sleeps as long as the pacer says, or parks. What was quiet for long is advised once.
    fn pause(&mut self, pacer: &mut Pacer, now: u64, advised: Advised) -> Advised {
        let quiet = pacer.quiet(now);
        let mut advised = if quiet >= IDLE_NS { advised } else { Advised::No };
        if quiet >= IDLE_NS && advised == Advised::No && self.mood == Throttle::Normal {
            self.zone.pool.hide_idle();
            advised = Advised::Yes;
        }
        if quiet >= PARK_NS {
            self.park();
            pacer.begin_again();
            return advised;
        }
        let (ns, state) = pacer.next(now, || self.scrubber.lacks(self.zone));
        let state = match state {
            WokenBy::Nothing if ns > POLL_MAX_NS => ASLEEP,
            WokenBy::Nothing => AWAKE,
            WokenBy::LargeFrees => DOZING,
            WokenBy::AnyFree => PARKED,
        };
        let by_free = self.sleep(state, Some(ns)) != Waited::TimedOut;
        pacer.woke(self.zone.pool.clock.now_ns(), by_free);
        advised
    }

    fn seen(&self, step: Step) -> Look {
        let scrubs = self.zone.tuning.scrub_start().is_some();
        Look {
            step,
            frees: self.zone.counted(Counter::Frees),
            asked_at: self.scrubber.plan().asked_at,
            returned_at: self.scrubber.plan().returned_at,
            lasts_ns: self.scrubber.plan().lasts_ns,
            in_burst: scrubs && self.scrubber.follows_a_burst(),
            may_clear: scrubs && self.scrubber.plan().looks,
        }
    }

    /// Sleeps until a free wakes it, or for a while if there is memory to watch.
    fn park(&mut self) {
        self.leave();
        self.tell(self.zone.pool.clock.now_ns());
        self.zone.waker.word.store(PARKED, SeqCst);
        // A free that saw the old word left its block before we look here; one that sees
        // the new word changes it, and then there is no sleep.
        let watch = self.scrubber.has_to_watch(self.zone).then_some(LOOK_WITHIN_NS.min(WATCH_NS));
        self.wait(PARKED, watch);
    }

    fn sleep(&mut self, state: u32, ns: Option<u64>) -> Waited {
        self.zone.waker.word.store(state, SeqCst);
        self.wait(state, ns)
    }

    fn wait(&mut self, state: u32, ns: Option<u64>) -> Waited {
        let began = self.zone.pool.clock.now_ns();
        // A thread that wants it to end changed the word before this was stored, or will.
        if self.zone.waker.is_called_off() {
            return Waited::Changed;
        }
        let waited = thread::futex_wait(&self.zone.waker.word, state, ns);
        self.zone.waker.word.store(AWAKE, SeqCst);
        self.zone.pool.counters.bump(Counter::ScrubdWakeups);
        let slept = self.zone.pool.clock.now_ns() - began;
        let (scrubber, plan) = (&self.scrubber, self.scrubber.plan());
        // As far as is known without a look.
        let scrubs = self.zone.tuning.scrub_start().is_some();
        let would_clear = || scrubs && plan.looks && plan.target > 0;
        let crowds = self.zone.has(Mechanism::Backoff);
        self.backoff.slept(ns, slept, would_clear, || crowds && scrubber.thread.is_in_a_crowd());
        waited
    }

    fn step(&mut self, now: u64) -> Step {
        let verdict = self.sample(now);
        if verdict.is_some_and(|verdict| verdict.room == Room::Little) {
            self.zone.waker.takes_too_much();
        }
        let mood = match verdict {
            Some(v) if v.memory == Memory::Tight => Throttle::Pressed,
            _ if self.backoff.is_crowded() => Throttle::Crowded,
            _ if !self.idle_class => Throttle::Resting,
            _ if self.backoff.is_late() => Throttle::Unsure,
            _ => Throttle::Normal,
        };
        if let Some(verdict) = verdict
            && self.zone.pool.note_limit(verdict.limit) == Allowance::Less
        {
            self.limit_fell = true;
        }
        if mood == Throttle::Normal && std::mem::take(&mut self.limit_fell) {
            self.zone.pool.lazy_free_all();
        }
        self.mood = mood;
        if matches!(mood, Throttle::Crowded | Throttle::Unsure) {
            self.zone.pool.counters.bump(Counter::BusyLooks);
        }
        self.scrubber.step(self.zone, mood)
    }

    /// How the machine fares. A scrubd that clears nothing looks at that as well: it is no part of what zeroes cost.
    fn sample(&mut self, now: u64) -> Option<Verdict> {
        let pressure = self.pressure.as_mut()?;
        if !pressure.is_due(now) {
            return Some(pressure.sample(now));
        }
        let began = thread::thread_cpu_ns();
        let verdict = pressure.sample(now);
        self.measured += thread::thread_cpu_ns() - began;
        Some(verdict)
    }

    /// Shows the listener the counters.
    fn tell(&mut self, now: u64) {
        if let Some(listener) = self.zone.waker.listener.get() {
            self.told = now;
            listener(&self.zone.stats());
        }
    }

    /// Counts the CPU time until now, and what of it went into looking for something to clear: all that is nothing
    /// else.
    fn count_cpu_ns(&mut self, cpu_ns: u64) {
        let counters = &self.zone.pool.counters;
        counters.add(Counter::ScrubdCpuNs, cpu_ns - self.counted);
        let work = counters.get(Counter::ScrubCpuNs);
        let other_ns = work + self.scrubber.apart_ns() + self.measured;
        let look = (cpu_ns - self.counted).saturating_sub(other_ns - self.other_ns);
        (self.counted, self.other_ns) = (cpu_ns, other_ns);
        // No program pays for looks at which nothing may be done.
        let may = self.mood != Throttle::Crowded && self.zone.tuning.scrub_start().is_some();
        if may && self.scrubber.plan().looks {
            counters.add(Counter::LookCpuNs, look);
        }
    }
}
