//! Walks over the map: huge blocks by their summaries, free runs, and runs of one state.

use std::ops::Range;

use crate::map::state::PageState;
use crate::map::{ANY, Map, SLICES, TOGETHER, WHOLE, bits, parts};
use crate::sync::Ordering::SeqCst;
use crate::units::{HUGE_ORDER, PageId, SLICE, Span};

/// The lowest bit of each byte of a word.
const LOW: u64 = 0x0101_0101_0101_0101;
/// Huge blocks after which a free run is told, although it may go on.
/// Fixed: long beside most requests, short beside a search of all memory.
pub(crate) const LONG: u32 = 128;

impl Map {
    /// Huge blocks that there are.
    pub(crate) fn len(&self) -> u32 {
        self.huge.len() as u32
    }

    /// The huge blocks of a range whose summaries have all these bits, lowest first.
    pub(crate) fn with(&self, range: Range<u32>, bits: u8) -> impl Iterator<Item = u32> {
        let mut at = range.start;
        std::iter::from_fn(move || {
            let found = self.seek(at..range.end, bits, 0)?;
            at = found + 1;
            Some(found)
        })
    }

    /// The first huge block of a range of whose summary `has` are set; or not all of them, if `turn` is 1.
    fn seek(&self, range: Range<u32>, has: u8, turn: u64) -> Option<u32> {
        let mut at = range.start;
        while at < range.end {
            let word = self.summary.get((at / TOGETHER) as usize)?.load(SeqCst);
            let set = (0..u8::BITS).filter(|bit| has >> bit & 1 != 0);
            let all = set.fold(LOW, |all, bit| all & word >> bit);
            let found = (all ^ (LOW * turn)) >> (at % TOGETHER * 8);
            if found != 0 {
                let found = at + found.trailing_zeros() / 8;
                return (found < range.end).then_some(found);
            }
            let next = at / TOGETHER + 1;
            // Where nothing was ever free no bit is set.
            at = TOGETHER * if turn == 0 { self.next_used(next)? } else { next };
        }
        None
    }

    /// The first word of summaries, from `word` on, where anything was ever free.
    fn next_used(&self, word: u32) -> Option<u32> {
        let (mut at, mut skip) = (word / u64::BITS, word % u64::BITS);
        loop {
            let used = self.used.get(at as usize)?.load(SeqCst) >> skip << skip;
            if used != 0 {
                return Some(at * u64::BITS + used.trailing_zeros());
            }
            (at, skip) = (at + 1, 0);
        }
    }

    /// The runs of at least `least` huge blocks that are free whole, lowest first. A run of more than `most` comes in
    /// parts, which overlap by what it takes for every `least` neighbours to lie in one part.
    pub(crate) fn whole_runs(&self, least: u32, most: u32) -> impl Iterator<Item = Range<u32>> {
        let (least, end) = (least.max(1), self.len());
        let mut at = 0;
        std::iter::from_fn(move || {
            loop {
                let start = self.seek(at..end, WHOLE, 0)?;
                let limit = end.min(start.saturating_add(most.max(least)));
                let stop = self.seek(start..limit, WHOLE, 1).unwrap_or(limit);
                at = if stop == limit && stop < end { stop + 1 - least } else { stop };
                if stop - start >= least {
                    return Some(start..stop);
                }
            }
        })
    }

    /// The maximal free runs, lowest first.
    pub(crate) fn free_runs(&self) -> impl Iterator<Item = Span> {
        joined(self.with(0..self.len(), ANY).flat_map(|at| spans(at, self.free_in(at))))
    }

    /// The first run of free slices within a span in `state`, which ends with its huge block at the latest.
    pub(crate) fn find_free(&self, span: Span, state: PageState) -> Option<Span> {
        let free = |(at, mask): (usize, u32)| {
            let mask = mask & self.free_in(at as u32) & self.masks(at).in_state(state);
            spans(at as u32, mask).next()
        };
        parts(span).find_map(free)
    }

    /// The maximal runs within a span in `state`, as they are when looked at.
    pub(crate) fn runs_of(&self, span: Span, state: PageState) -> impl Iterator<Item = Span> {
        joined(
            parts(span).flat_map(move |(at, mask)| {
                spans(at as u32, self.masks(at).in_state(state) & mask)
            }),
        )
    }

    /// Whether anything of a span is in `state`.
    pub(crate) fn any(&self, span: Span, state: PageState) -> bool {
        parts(span).any(|(at, mask)| self.masks(at).in_state(state) & mask != 0)
    }

    /// Calls `each` for every maximal run of slices in `state` within a span, which it may change.
    pub(crate) fn each_run(&self, span: Span, state: PageState, each: impl FnMut(Span)) {
        self.runs_of(span, state).for_each(each);
    }
}

/// Runs with their neighbours: those that end where the next begins are one.
pub(crate) fn joined(runs: impl Iterator<Item = Span>) -> impl Iterator<Item = Span> {
    let mut runs = runs.peekable();
    std::iter::from_fn(move || {
        let mut run = runs.next()?;
        while let Some(next) = runs.next_if(|next| next.first.0 == run.end()) {
            run.pages += next.pages;
        }
        Some(run)
    })
}

/// The runs of set bits among the slices of a huge block.
fn spans(at: u32, mut mask: u32) -> impl Iterator<Item = Span> {
    std::iter::from_fn(move || {
        (mask != 0).then(|| {
            let low = mask.trailing_zeros();
            let len = (mask >> low).trailing_ones();
            mask &= !bits(low, len);
            Span::new(PageId((at << HUGE_ORDER) + low * SLICE), len * SLICE)
        })
    })
}

/// Where `len` set bits in a row begin.
pub(crate) fn windows(mut mask: u32, len: u32) -> u32 {
    debug_assert!((1..=SLICES).contains(&len));
    let mut have = 1;
    while have < len {
        let step = have.min(len - have);
        mask &= mask >> step;
        have += step;
    }
    mask
}
