//! What each page holds: two bits a page, out of band.
//!
//! The map speaks of *free* pages. While a page is in its owner's hands its entry is
//! what it was when the page was handed out; only its owner may change it, and
//! [`Remapped`](PageState::Remapped) is the one mark that an owner sets meanwhile.
//!
//! Entries are published together with their block: the release operation that puts
//! a block on a list orders the stores here before it, so relaxed accesses suffice.
//! A word is shared by the owners of sixteen pages; partial words change by
//! compare-and-swap.

use std::ops::Add;

use prezero_sys::memory::Errno;

use crate::sync::{AtomicU32, Meta, Ordering::Relaxed};
use crate::units::{PageId, Span};

/// The content and residency of one page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PageState {
    /// Not resident as far as we know: the kernel zero-fills it on first touch.
    Absent = 0,
    /// Resident, 4096 zero bytes.
    Zero = 1,
    /// Resident, content unknown.
    Dirty = 2,
    /// Its owner changed the mapping by a system call: replaced on free, never recycled.
    Remapped = 3,
}

impl PageState {
    fn from_bits(bits: u32) -> PageState {
        match bits & 3 {
            0 => PageState::Absent,
            1 => PageState::Zero,
            2 => PageState::Dirty,
            _ => PageState::Remapped,
        }
    }

    /// The word in which all sixteen pages are in this state.
    const fn pattern(self) -> u32 {
        self as u32 * LOW
    }
}

/// Pages of a range by state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Pages not resident.
    pub absent: u32,
    /// Pages resident and zero.
    pub zero: u32,
    /// Pages resident with unknown content.
    pub dirty: u32,
    /// Pages to be replaced.
    pub remapped: u32,
}

impl Add for Tally {
    type Output = Tally;

    fn add(self, other: Tally) -> Tally {
        Tally {
            absent: self.absent + other.absent,
            zero: self.zero + other.zero,
            dirty: self.dirty + other.dirty,
            remapped: self.remapped + other.remapped,
        }
    }
}

/// Words that are looked at without a branch between them: a cache line of them.
const TOGETHER: usize = 16;

/// Whether all words are this one.
fn all_are(words: &[AtomicU32], this: u32) -> bool {
    let differ = |words: &[AtomicU32]| {
        words.iter().fold(0, |differ, word| differ | (word.load(Relaxed) ^ this))
    };
    words.chunks(TOGETHER).all(|words| differ(words) == 0)
}

/// Pages per word.
const PER_WORD: u32 = 16;
/// The low bit of every entry of a word.
const LOW: u32 = 0x5555_5555;

pub(crate) struct StateMap {
    words: Meta<AtomicU32>,
}

impl StateMap {
    /// A map of `pages` absent pages.
    pub(crate) fn new(pages: u32) -> Result<StateMap, Errno> {
        Ok(StateMap { words: Meta::new(pages.div_ceil(PER_WORD) as usize)? })
    }

    pub(crate) fn get(&self, page: PageId) -> PageState {
        let word = self.words[(page.0 / PER_WORD) as usize].load(Relaxed);
        PageState::from_bits(word >> (page.0 % PER_WORD * 2))
    }

    /// Sets every page of a range that the caller owns.
    pub(crate) fn set(&self, span: Span, state: PageState) {
        let (bits, span) = (state.pattern(), self.words(span));
        span.whole.iter().for_each(|word| word.store(bits, Relaxed));
        for (word, mask) in span.ends() {
            let mut old = word.load(Relaxed);
            while old & mask != bits & mask {
                let new = (old & !mask) | (bits & mask);
                match word.compare_exchange_weak(old, new, Relaxed, Relaxed) {
                    Ok(_) => break,
                    Err(now) => old = now,
                }
            }
        }
    }

    /// Whether every page of the range is in `state`.
    pub(crate) fn all(&self, span: Span, state: PageState) -> bool {
        let (bits, span) = (state.pattern(), self.words(span));
        span.ends().all(|(word, mask)| (word.load(Relaxed) ^ bits) & mask == 0)
            && all_are(span.whole, bits)
    }

    /// Counts the pages of a range by state.
    pub(crate) fn tally(&self, span: Span) -> Tally {
        let (mut zero, mut dirty, mut remapped) = (0, 0, 0);
        let (pages, span) = (span.pages, self.words(span));
        // Counting bits is slow where the CPU's own instruction for it cannot be assumed, and most
        // words are all of one state.
        let mut add = |word: u32, words: u32| {
            if word == PageState::Dirty.pattern() {
                dirty += PER_WORD * words;
                return;
            }
            if word == PageState::Zero.pattern() {
                zero += PER_WORD * words;
                return;
            }
            let (low, high) = (word & LOW, word >> 1 & LOW);
            zero += (low & !high).count_ones() * words;
            dirty += (high & !low).count_ones() * words;
            remapped += (low & high).count_ones() * words;
        };
        for words in span.whole.chunks(TOGETHER) {
            let one = words[0].load(Relaxed);
            if all_are(words, one) {
                add(one, words.len() as u32);
            } else {
                words.iter().for_each(|word| add(word.load(Relaxed), 1));
            }
        }
        span.ends().for_each(|(word, mask)| add(word.load(Relaxed) & mask, 1));
        Tally { absent: pages - zero - dirty - remapped, zero, dirty, remapped }
    }

    /// The first maximal run of pages in `state` within the range.
    pub(crate) fn find(&self, span: Span, state: PageState) -> Option<Span> {
        let start = self.seek(span.first.0, span.end(), |s| s == state)?;
        let stop = self.seek(start, span.end(), |s| s != state).unwrap_or(span.end());
        Some(Span::new(PageId(start), stop - start))
    }

    /// Calls `each` for every maximal run of pages in `state` within the range.
    pub(crate) fn each_run(&self, span: Span, state: PageState, mut each: impl FnMut(Span)) {
        let mut left = span;
        while let Some(run) = self.find(left, state) {
            each(run);
            left = Span::new(PageId(run.end()), span.end() - run.end());
        }
    }

    /// The first page at or after `at` whose state satisfies `is`.
    fn seek(&self, mut at: u32, end: u32, is: impl Fn(PageState) -> bool) -> Option<u32> {
        while at < end {
            let word = self.words[(at / PER_WORD) as usize].load(Relaxed);
            let uniform = PageState::from_bits(word);
            if at.is_multiple_of(PER_WORD) && word == uniform.pattern() && !is(uniform) {
                at += PER_WORD;
                continue;
            }
            if is(PageState::from_bits(word >> (at % PER_WORD * 2))) {
                return Some(at);
            }
            at += 1;
        }
        None
    }
}

/// The words of a range: those that are all its own, and one at each end of which only the entries
/// in the mask are (none: 0).
struct Words<'a> {
    whole: &'a [AtomicU32],
    parts: [(Option<&'a AtomicU32>, u32); 2],
}

impl<'a> Words<'a> {
    fn ends(&self) -> impl Iterator<Item = (&'a AtomicU32, u32)> {
        self.parts.into_iter().filter_map(|(word, mask)| word.filter(|_| mask != 0).zip(Some(mask)))
    }
}

impl StateMap {
    fn words(&self, span: Span) -> Words<'_> {
        let (start, end) = (span.first.0, span.end());
        let (first_whole, last) = (start.div_ceil(PER_WORD), end / PER_WORD);
        let (head, tail) = (u32::MAX << (start % PER_WORD * 2), (1 << (end % PER_WORD * 2)) - 1);
        let word = |index: u32| self.words.get(index as usize);
        if first_whole > last {
            // All in one word.
            return Words { whole: &[], parts: [(word(last), head & tail), (None, 0)] };
        }
        let head = if start.is_multiple_of(PER_WORD) { 0 } else { head };
        Words {
            whole: &self.words[first_whole as usize..last as usize],
            parts: [(word(start / PER_WORD), head), (word(last), tail)],
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGES: u32 = 100;

    fn state() -> impl Strategy<Value = PageState> {
        (0u32..4).prop_map(PageState::from_bits)
    }

    proptest! {
        /// The packed map against a plain vector, through every query.
        #[test]
        fn map_agrees_with_a_vector(
            writes in prop::collection::vec((0..PAGES, 1..PAGES, state()), 0..40),
            query in (0..PAGES, 1..PAGES),
            wanted in state(),
        ) {
            let map = StateMap::new(PAGES).unwrap();
            let mut model = vec![PageState::Absent; PAGES as usize];
            for (first, pages, state) in writes {
                let pages = pages.min(PAGES - first);
                map.set(Span::new(PageId(first), pages), state);
                model[first as usize..(first + pages) as usize].fill(state);
            }
            for page in 0..PAGES {
                prop_assert_eq!(map.get(PageId(page)), model[page as usize]);
            }
            let (first, pages) = (query.0, query.1.min(PAGES - query.0));
            let part = &model[first as usize..(first + pages) as usize];
            let count = |s| part.iter().filter(|&&p| p == s).count() as u32;
            let tally = map.tally(Span::new(PageId(first), pages));
            prop_assert_eq!(tally, Tally {
                absent: count(PageState::Absent), zero: count(PageState::Zero),
                dirty: count(PageState::Dirty), remapped: count(PageState::Remapped),
            });
            prop_assert_eq!(map.all(Span::new(PageId(first), pages), wanted), count(wanted) == pages);
            let mut runs = Vec::new();
            map.each_run(Span::new(PageId(first), pages), wanted, |run| runs.extend(run.first.0..run.end()));
            let expected: Vec<u32> =
                (first..first + pages).filter(|&p| model[p as usize] == wanted).collect();
            prop_assert_eq!(runs, expected);
        }
    }
}
