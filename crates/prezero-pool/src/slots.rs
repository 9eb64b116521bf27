//! The slots: which are zero, dirty and fresh, what is known of each, and the order in which `take` looks.
//!
//! | `take` gets | if |
//! |---|---|
//! | the slot that this CPU gave last | it is zero |
//! | any zero slot | |
//! | a fresh slot | hardly more slots are dirty than are out: scrubd gets one ahead |
//! | a dirty slot, cleared here | this CPU's last one first: its lines are near |
//! | a fresh slot | |

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use prezero_sys::memory::GRAIN;
use prezero_sys::{cpu, thread};

use crate::bits::{Bits, Held};
use crate::memory::Memory;

/// Times that `take` looks for a slot before it says that all are out.
/// Fixed: scrubd would have to move each slot between two looks at it.
const LOOKS: usize = 4;

/// The slots that a pool handed out so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct PoolStats {
    /// Those that were zero: scrubd had cleared them.
    pub zero: u64,
    /// Those that `take` cleared.
    pub cleared: u64,
    /// Those that were fresh.
    pub fresh: u64,
}

/// The slot that one CPU gave last, which may be gone since, and what it took: zero, cleared, fresh.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Row {
    latest: AtomicU32,
    taken: [AtomicU64; 3],
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Slots {
    pub(crate) memory: Memory,
    pub(crate) zero: Bits,
    pub(crate) dirty: Bits,
    pub(crate) fresh: Bits,
    /// Slot after slot the pages that may be other than zero, and behind the last page whether all may be. The holder of
    /// the slot alone reads and writes its `room`, whole words.
    touched: Bits,
    room: usize,
    all: usize,
    rows: Box<[Row]>,
    /// Whether scrubd waits for a `give`, and whether it is to end.
    pub(crate) quiet: AtomicBool,
    pub(crate) ended: AtomicBool,
}

/// What becomes of a slot's memory that is cleaned while no owner waits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    Keep,
    Release,
}

impl Slots {
    pub(crate) fn new(memory: Memory, slots: usize) -> Slots {
        cpu::look_up();
        let [zero, dirty, fresh] = [0; 3].map(|_| Bits::new(slots));
        (0..slots).for_each(|slot| fresh.mark(slot));
        let room = (memory.pages() + 1).next_multiple_of(64);
        let touched = Bits::new(slots * room);
        let rows = (0..thread::cpu_count().max(1)).map(|_| Row::default()).collect();
        let (quiet, ended) = (AtomicBool::new(false), AtomicBool::new(false));
        Slots { memory, zero, dirty, fresh, touched, room, all: slots, rows, quiet, ended }
    }

    fn row(&self) -> &Row {
        &self.rows[cpu::current() % self.rows.len()]
    }

    /// A slot that is zero. See the module.
    #[inline]
    pub(crate) fn take(&self) -> Option<Held> {
        let row = self.row();
        // A slot that scrubd moves meanwhile may be where this one looked already.
        let (mut held, kind) = (0..LOOKS).find_map(|_| {
            let latest = row.latest.load(Ordering::Relaxed) as usize;
            let near = |bits: &Bits| bits.take(latest).or_else(|| bits.take_any());
            let fresh = || self.fresh.take_any().map(|held| (held, 2));
            let zero = near(&self.zero).map(|held| (held, 0));
            zero.or_else(|| self.ahead().then(fresh).flatten())
                .or_else(|| near(&self.dirty).map(|held| (held, 1)))
                .or_else(fresh)
        })?;
        row.taken[kind].fetch_add(1, Ordering::Relaxed);
        if kind == 1 {
            self.clean(&mut held, After::Keep);
        }
        Some(held)
    }

    /// Whether a fresh slot is better than a dirty one: scrubd has the dirty ones meanwhile.
    fn ahead(&self) -> bool {
        let (dirty, fresh) = (self.dirty.count(), self.fresh.count());
        // Slots may move between two counts.
        dirty <= self.all.saturating_sub(dirty + fresh) + 1
    }

    /// Takes a slot back as it is.
    #[inline]
    pub(crate) fn give(&self, held: Held) {
        self.row().latest.store(held.slot() as u32, Ordering::Relaxed);
        self.dirty.put(held);
    }

    /// Notes that a page of a slot may be other than zero; behind the last page, that any may be.
    pub(crate) fn touch(&self, held: &Held, page: usize) {
        self.touched.mark(held.slot() * self.room + page);
    }

    /// Forgets that any page of a slot may be other than zero; whether that was so.
    pub(crate) fn forget(&self, held: &Held) -> bool {
        self.touched.unmark(held.slot() * self.room + self.memory.pages())
    }

    /// Makes a slot zero, and says where it belongs then.
    fn clean(&self, held: &mut Held, after: After) -> &Bits {
        let find = || self.memory.find(held, |page| self.touch(held, page));
        let (first, known) = (held.slot() * self.room, !self.forget(held) || find());
        let goes = (after == After::Release || !known) && self.memory.release(held).is_ok();
        let content = if goes { &mut [] } else { self.memory.content_mut(held) };
        if !known {
            content.fill(0);
        }
        self.touched.drain(first..first + self.room, |page| {
            content.chunks_mut(GRAIN).nth(page).into_iter().for_each(|page| page.fill(0));
        });
        if goes { &self.fresh } else { &self.zero }
    }

    /// Makes a slot zero, and puts it where `take` finds it.
    pub(crate) fn scrub(&self, mut held: Held, after: After) {
        self.clean(&mut held, after).put(held);
    }

    /// The slot that begins there, if it is out.
    ///
    /// # Safety
    /// As for [`Held::again`].
    pub(crate) unsafe fn held_at(&self, address: NonNull<u8>) -> Option<Held> {
        let slot = self.memory.slot_at(address)?;
        let is_in = [&self.zero, &self.dirty, &self.fresh].iter().any(|bits| bits.has(slot));
        // SAFETY: the caller's promise.
        (!is_in).then(|| unsafe { Held::again(slot) })
    }

    pub(crate) fn stats(&self) -> PoolStats {
        let sum =
            |kind: usize| self.rows.iter().map(|row| row.taken[kind].load(Ordering::Relaxed)).sum();
        let [zero, cleared, fresh] = std::array::from_fn(sum);
        PoolStats { zero, cleared, fresh }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
