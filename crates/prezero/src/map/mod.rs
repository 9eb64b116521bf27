//! The free map: which slices of a zone are free, and what each slice holds.
//!
//! One descriptor stands for each 2 MiB, a huge block; in its masks a bit stands for a slice of 64 KiB. The thread that
//! clears a slice's bit in `free` owns the slice, and an owner alone changes what is recorded of it. Neighbours that are
//! free are free together, so no code splits or merges. A thread that stops anywhere holds back only what it owns.
//!
//! A *summary* byte for each huge block says what a search may find there. It is set to what the descriptor says after
//! every change, until both agree, so it may trail and is never wrong for good. A zone may be many times as large as the
//! memory that it ever used, so a walk passes over words of summaries where nothing was ever free.
//!
//! The release operation on `free` publishes the records of a span with the span. So relaxed accesses to them suffice.

#[cfg(test)]
mod model;
#[cfg(not(loom))]
pub(crate) mod search;
pub(crate) mod state;
#[cfg(not(loom))]
pub(crate) mod sums;
#[cfg(not(loom))]
pub(crate) mod walk;

use prezero_sys::memory::Errno;

use crate::block::Run;
use crate::clock::{LastTick, Tick};
use crate::map::state::{PageState, Tally};
#[cfg(not(loom))]
use crate::map::sums::Sums;
use crate::sync::{
    AtomicU32, AtomicU64, Meta,
    Ordering::{Relaxed, SeqCst},
    settle,
};
use crate::units::{HUGE_PAGES, PageId, SLICE, Span};

/// Slices of a huge block.
pub(crate) const SLICES: u32 = HUGE_PAGES / SLICE;
/// Huge blocks whose summaries share a word.
/// Fixed: bytes of a word.
pub(crate) const TOGETHER: u32 = 8;

/// Bits of a summary: free runs of 1, 2, 4, 8, 16 and 32 slices; free slices that are resident; that are zero.
pub(crate) const ANY: u8 = 1;
pub(crate) const WHOLE: u8 = 1 << 5;
pub(crate) const RESIDENT: u8 = 1 << 6;
pub(crate) const ZERO: u8 = 1 << 7;

/// A huge block. All-zero bytes: nothing is free, and nothing resident.
#[derive(Default)]
#[repr(align(16))]
struct Huge {
    free: AtomicU32,
    /// When something resident was freed here last.
    freed_at: LastTick,
    /// What each slice holds: the low and the high bit of its state.
    held: AtomicU64,
}

// SAFETY: atomics for which all-zero bytes are a valid value, and which have no destructor.
#[cfg(not(loom))]
#[allow(unsafe_code)]
unsafe impl prezero_sys::meta::Zeroable for Huge {}

/// The masks of a huge block's slices by what they hold.
#[derive(Clone, Copy)]
pub(crate) struct Masks {
    pub(crate) dirty: u32,
    pub(crate) zero: u32,
    pub(crate) remapped: u32,
}

impl Masks {
    fn of(held: u64) -> Masks {
        let (low, high) = (held as u32, (held >> 32) as u32);
        Masks { dirty: low & !high, zero: low & high, remapped: high & !low }
    }

    pub(crate) fn absent(self) -> u32 {
        !(self.dirty | self.zero | self.remapped)
    }

    pub(crate) fn resident(self) -> u32 {
        self.dirty | self.zero
    }

    pub(crate) fn in_state(self, state: PageState) -> u32 {
        match state {
            PageState::Absent => self.absent(),
            PageState::Zero => self.zero,
            PageState::Dirty => self.dirty,
            PageState::Remapped => self.remapped,
        }
    }

    /// The pages of some of the slices.
    pub(crate) fn tally(self, mask: u32) -> Tally {
        let pages = |slices: u32| (slices & mask).count_ones() * SLICE;
        let (zero, dirty, remapped) = (pages(self.zero), pages(self.dirty), pages(self.remapped));
        Tally { absent: pages(u32::MAX) - zero - dirty - remapped, zero, dirty, remapped }
    }
}

/// See the module.
pub(crate) struct Map {
    huge: Meta<Huge>,
    summary: Meta<AtomicU64>,
    /// A bit for each word of summaries: whether anything was ever free there. None is cleared again.
    used: Meta<AtomicU64>,
    #[cfg(not(loom))]
    pub(crate) sums: Sums,
}

impl Map {
    /// A map of `huge` huge blocks, all in use.
    pub(crate) fn new(huge: u32) -> Result<Map, Errno> {
        let words = huge.div_ceil(TOGETHER);
        Ok(Map {
            huge: Meta::new(huge as usize)?,
            summary: Meta::new(words as usize)?,
            used: Meta::new(words.div_ceil(u64::BITS) as usize)?,
            #[cfg(not(loom))]
            sums: Sums::new(),
        })
    }

    /// Frees a run.
    pub(crate) fn put(&self, run: Run) {
        let mut sum = Tally::default();
        for (at, mask) in parts(run.into_span()) {
            self.note_used(at as u32 / TOGETHER);
            let huge = &self.huge[at];
            sum = sum + self.masks(at).tally(mask);
            let was = huge.free.fetch_or(mask, SeqCst);
            debug_assert_eq!(was & mask, 0, "slices {mask:#x} of huge block {at} freed twice");
            self.sum_up(at);
        }
        self.add(sum);
    }

    /// Before the word's first summary is set, so that no walk that could see that passes over it.
    fn note_used(&self, word: u32) {
        let (used, bit) = (&self.used[(word / u64::BITS) as usize], 1 << (word % u64::BITS));
        if used.load(Relaxed) & bit == 0 {
            used.fetch_or(bit, SeqCst);
        }
    }

    /// Takes a span if all of it is free; else takes nothing.
    pub(crate) fn take(&self, span: Span) -> Option<Run> {
        let mut sum = Tally::default();
        for (at, mask) in parts(span) {
            let all = |free: u32| (free & mask == mask).then_some(free & !mask);
            let huge = self.huge.get(at);
            if huge.is_none_or(|huge| huge.free.fetch_update(SeqCst, Relaxed, all).is_err()) {
                self.sub(sum);
                // A thread that stopped before it summed up, in a fork for good, must not send others here again.
                huge.into_iter().for_each(|_| self.sum_up(at));
                let done = (at as u32 * HUGE_PAGES).saturating_sub(span.first.0);
                if done > 0 {
                    self.put(Run::taken(span.front(done)));
                }
                return None;
            }
            self.sum_up(at);
            sum = sum + self.masks(at).tally(mask);
        }
        self.sub(sum);
        Some(Run::taken(span))
    }

    /// Has a summary agree with its descriptor.
    ///
    /// All accesses are sequentially consistent: a thread that leaves because both agree is seen by the one that wrote an
    /// older summary and looks again.
    fn sum_up(&self, at: usize) {
        let (word, shift) = (&self.summary[at / TOGETHER as usize], at as u32 % TOGETHER * 8);
        loop {
            settle();
            let old = word.load(SeqCst);
            let new = old & !(0xFF << shift) | u64::from(self.summary_of(at)) << shift;
            if old == new {
                return;
            }
            // Where another thread was faster, the next look tells.
            let _ = word.compare_exchange(old, new, SeqCst, Relaxed);
        }
    }

    fn summary_of(&self, at: usize) -> u8 {
        let free = self.huge[at].free.load(SeqCst);
        let masks = self.masks(at);
        let (mut runs, mut summary) = (u64::from(free), 0);
        for n in 0..=SLICES.ilog2() {
            summary |= u8::from(runs != 0) << n;
            runs &= runs >> (1 << n);
        }
        let has = |mask: u32, bit: u8| if free & mask != 0 { bit } else { 0 };
        summary | has(masks.resident(), RESIDENT) | has(masks.zero, ZERO)
    }

    /// The summary of a huge block; 0 beyond the last.
    pub(crate) fn summary(&self, at: u32) -> u8 {
        let word = self.summary.get((at / TOGETHER) as usize);
        word.map_or(0, |word| (word.load(SeqCst) >> (at % TOGETHER * 8)) as u8)
    }

    /// Whether all of a span is free, at this moment.
    pub(crate) fn is_free(&self, span: Span) -> bool {
        parts(span).all(|(at, mask)| self.free_in(at as u32) & mask == mask)
    }

    /// The free slices of a huge block.
    pub(crate) fn free_in(&self, at: u32) -> u32 {
        self.huge[at as usize].free.load(SeqCst)
    }

    /// What a huge block's slices hold.
    pub(crate) fn masks(&self, at: usize) -> Masks {
        Masks::of(self.huge[at].held.load(Relaxed))
    }

    /// The state of a page's slice.
    pub(crate) fn state(&self, page: PageId) -> PageState {
        let held = self.huge[page.huge()].held.load(Relaxed) >> (page.0 / SLICE % SLICES);
        match (held & 1, held >> 32 & 1) {
            (0, 0) => PageState::Absent,
            (1, 0) => PageState::Dirty,
            (0, _) => PageState::Remapped,
            _ => PageState::Zero,
        }
    }

    /// Records what the slices of a span of the caller's hold.
    pub(crate) fn set(&self, span: Span, state: PageState) {
        for (at, mask) in parts(span) {
            let (held, both) = (&self.huge[at].held, u64::from(mask) << 32 | u64::from(mask));
            let [low, high] = [state as u64 & 1, state as u64 >> 1];
            let bits = (high << 32 | low) * u64::from(mask);
            let mut old = held.load(Relaxed);
            while old & both != bits {
                match held.compare_exchange_weak(old, old & !both | bits, Relaxed, Relaxed) {
                    Ok(_) => break,
                    Err(now) => old = now,
                }
            }
        }
    }

    /// Whether all of a span is in this state.
    pub(crate) fn all(&self, span: Span, state: PageState) -> bool {
        parts(span).all(|(at, mask)| self.masks(at).in_state(state) & mask == mask)
    }

    /// The pages of a span by state.
    pub(crate) fn tally(&self, span: Span) -> Tally {
        let tallies = parts(span).map(|(at, mask)| self.masks(at).tally(mask));
        tallies.fold(Tally::default(), |sum, one| sum + one)
    }

    /// When something resident was freed last in a huge block.
    pub(crate) fn freed_at(&self, huge: u32) -> Option<Tick> {
        self.huge[huge as usize].freed_at.get()
    }

    /// Something resident of a span is freed now.
    pub(crate) fn set_freed(&self, span: Span, now: Tick) {
        parts(span).for_each(|(at, _)| self.huge[at].freed_at.set(now));
    }

    /// Nothing resident is left of a huge block.
    pub(crate) fn forget_freed(&self, huge: u32) {
        self.huge[huge as usize].freed_at.clear();
    }

    #[cfg(not(loom))]
    fn add(&self, sum: Tally) {
        self.sums.add(sum);
    }

    #[cfg(not(loom))]
    fn sub(&self, sum: Tally) {
        self.sums.sub(sum);
    }

    #[cfg(loom)]
    fn add(&self, _: Tally) {}

    #[cfg(loom)]
    fn sub(&self, _: Tally) {}
}

/// The huge blocks of a span of whole slices, each with the slices.
pub(crate) fn parts(span: Span) -> impl Iterator<Item = (usize, u32)> {
    debug_assert!(span.first.0.is_multiple_of(SLICE) && span.pages.is_multiple_of(SLICE));
    let (mut at, end) = (span.first.0 / SLICE, (span.first.0 + span.pages) / SLICE);
    std::iter::from_fn(move || {
        (at < end).then(|| {
            let (huge, low) = (at / SLICES, at % SLICES);
            let len = (end - at).min(SLICES - low);
            at += len;
            (huge as usize, bits(low, len))
        })
    })
}

/// `len` bits in a row, 1 to 32, from bit `low` on.
pub(crate) fn bits(low: u32, len: u32) -> u32 {
    u32::MAX >> (SLICES - len) << low
}
