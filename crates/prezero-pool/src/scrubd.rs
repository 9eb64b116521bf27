//! The thread that cleans slots while a CPU idles, and gives idle memory back.
//!
//! It sleeps and looks. The sleep shrinks while slots are taken faster than zero ones lie ready, and grows otherwise; a
//! sleep that ended late says that all CPUs have other work, and is followed by a longer one, without a look. After a
//! while without work it sleeps until a `give` wakes it.
//!
//! It calls the kernel for memory only right after a sleep that ended in time: a thread that loses its CPU inside such a
//! call keeps a lock of the address space.

use std::path::Path;
use std::sync::atomic::{Ordering, fence};
use std::thread::{park_timeout, sleep};
use std::time::Duration;

use prezero_host::pressure::{Memory, Pressure};
use prezero_sys::thread;

use crate::slots::{After, Slots};

/// The shortest sleep, and the longest from which no `give` wakes.
/// Moved by: `examples/image`, owner ms.
const POLL_NS: u64 = 100_000;
const POLL_MAX_NS: u64 = 5_000_000;
/// The sleep after one that ended late, at most.
/// Moved by: `examples/image` beside busy CPUs.
const BACKOFF_MAX_NS: u64 = 64_000_000;
/// A sleep or a clear that took this much too long lost its CPU.
/// Moved by: `examples/image` beside busy CPUs.
const LATE_NS: u64 = 1_000_000;
/// After this time without work a `give` wakes.
/// Fixed: a wake a second costs nothing.
const QUIET_NS: u64 = 1_000_000_000;
/// Between two looks at the machine's memory while the pool is quiet and holds some.
/// Fixed: what `Pressure` looks at is new each 200 ms.
const WATCH: Duration = Duration::from_millis(200);
/// Zero slots that lay unused for this time go back to the kernel.
/// Moved by: resident memory of an idle service; DESIGN.md, Idle memory.
const DECAY_NS: u64 = 10_000_000_000;

/// The thread, until the pool ends.
pub(crate) fn run(slots: &Slots) {
    // Without a table of its own it opens no files: the program might close them.
    let pressure = thread::own_descriptors().is_ok().then(|| Pressure::new(Path::new("/")));
    // A thread of no idle class would take the program's own time.
    if thread::become_idle_class().is_ok() {
        Scrubd::new(slots, pressure, thread::monotonic_ns()).serve();
    }
}

struct Scrubd<'a> {
    slots: &'a Slots,
    pressure: Option<Pressure>,
    /// The next sleep, ns.
    wait: u64,
    /// The fewest zero slots that were there at a look since then, ns.
    least: usize,
    since: u64,
    /// When a look last found work, ns.
    worked: u64,
}

impl<'a> Scrubd<'a> {
    fn new(slots: &'a Slots, pressure: Option<Pressure>, now: u64) -> Scrubd<'a> {
        Scrubd { slots, pressure, wait: POLL_NS, least: usize::MAX, since: now, worked: now }
    }

    fn serve(&mut self) {
        while !self.slots.ended.load(Ordering::Acquire) {
            let began = thread::monotonic_ns();
            let quiet = began.saturating_sub(self.worked) > QUIET_NS;
            match quiet {
                true => self.doze(),
                false => sleep(Duration::from_nanos(self.wait)),
            }
            let now = thread::monotonic_ns();
            let late = !quiet && now - began > self.wait + LATE_NS;
            if late || self.look(now) {
                self.wait = (self.wait * 2).min(BACKOFF_MAX_NS);
            }
        }
    }

    /// Sleeps until a `give`, or until memory has to be watched.
    fn doze(&self) {
        let (quiet, holds) = (&self.slots.quiet, self.slots.zero.count() > 0);
        quiet.store(true, Ordering::Relaxed);
        // Pairs with that of a slot's drop: either the slot is seen here, or there that this thread dozes.
        fence(Ordering::SeqCst);
        if self.slots.dirty.count() == 0 {
            park_timeout(if holds { WATCH } else { Duration::MAX });
        }
        quiet.store(false, Ordering::Relaxed);
    }

    /// Cleans what is dirty, and gives back what idles or is asked for. Whether it lost its CPU.
    fn look(&mut self, now: u64) -> bool {
        let (slots, ready) = (self.slots, self.slots.zero.count());
        self.least = self.least.min(ready);
        let tight = |it: &mut Pressure| it.sample(now).memory == Memory::Tight;
        let tight = self.pressure.as_mut().is_some_and(tight);
        let mut cleaned = 0;
        while let Some(held) = slots.dirty.take_any() {
            let (began, cpu) = (thread::monotonic_ns(), thread::thread_cpu_ns());
            slots.scrub(held, if tight { After::Release } else { After::Keep });
            cleaned += 1;
            self.worked = now;
            let took = thread::monotonic_ns() - began;
            if took > thread::thread_cpu_ns() - cpu + LATE_NS {
                return true;
            }
        }
        if tight || now - self.since >= DECAY_NS {
            let idle = if tight { usize::MAX } else { self.least };
            let idle = (0..idle).map_while(|_| slots.zero.take_any());
            idle.for_each(|held| slots.scrub(held, After::Release));
            (self.since, self.least) = (now, usize::MAX);
        }
        let wait = if cleaned > ready { self.wait / 2 } else { self.wait * 2 };
        self.wait = wait.clamp(POLL_NS, POLL_MAX_NS);
        false
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memory::Memory as Range;

    fn slots(many: usize) -> Slots {
        Slots::new(Range::new(many, 1 << 16, 0).unwrap(), many)
    }

    fn used(slots: &Slots, many: usize) {
        let out: Vec<_> = (0..many).map(|_| slots.take().unwrap()).collect();
        for mut held in out {
            slots.memory.content_mut(&mut held).fill(1);
            slots.touch(&held, slots.memory.pages());
            slots.give(held);
        }
    }

    /// Looks until a look does not lose its CPU.
    fn look(scrubd: &mut Scrubd<'_>, now: u64) {
        while scrubd.look(now) {}
    }

    #[test]
    fn slots_that_no_take_wanted_for_a_while_go_back_and_others_stay() {
        let slots = slots(8);
        let start = 1_000;
        let mut scrubd = Scrubd::new(&slots, None, start);
        used(&slots, 5);
        look(&mut scrubd, start);
        look(&mut scrubd, start + DECAY_NS);
        let start = start + DECAY_NS;
        assert_eq!((slots.zero.count(), slots.fresh.count()), (5, 3));
        let out: Vec<_> = (0..2).map(|_| slots.take().unwrap()).collect();
        look(&mut scrubd, start + 2);
        out.into_iter().for_each(|held| slots.give(held));
        look(&mut scrubd, start + 3);
        assert_eq!(slots.zero.count(), 5);
        look(&mut scrubd, start + DECAY_NS);
        assert_eq!((slots.zero.count(), slots.fresh.count()), (2, 6), "two were taken meanwhile");
    }

    #[test]
    fn all_goes_back_where_memory_is_short() {
        let root = std::env::temp_dir().join(format!("prezero-pool-{}", std::process::id()));
        std::fs::create_dir_all(root.join("proc")).unwrap();
        let scarce = "MemTotal: 1000 kB\nMemAvailable: 1 kB\n";
        std::fs::write(root.join("proc/meminfo"), scarce).unwrap();
        let slots = slots(4);
        let mut scrubd = Scrubd::new(&slots, Some(Pressure::new(&root)), 0);
        used(&slots, 3);
        look(&mut scrubd, 1_000);
        assert_eq!((slots.zero.count(), slots.dirty.count(), slots.fresh.count()), (0, 0, 4));
        std::fs::remove_dir_all(&root).unwrap();
    }
}
