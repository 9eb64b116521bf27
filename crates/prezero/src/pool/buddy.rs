//! The buddy: which blocks are free, by order, without a lock.
//!
//! One bitmap per order, a set bit is a free block: 1 + 1/2 + 1/4 ... = 2 bits a page in all. Two buddies are
//! neighbouring bits of one word, so one compare-and-swap both sees a free buddy and takes it: `put` either sets
//! its own bit or takes the buddy's and goes up an order. No merge is missed, no thread waits, and a thread that is
//! stopped in the middle holds back only the block in its hands.
//!
//! Merging ends at the huge block. A longer block is a run of neighbours there ([runs](crate::pool::runs)), whether
//! they are buddies or not, and one operation on one word takes or puts 64 of them. A split and a merge through
//! more orders would touch a cache line of each order (`LLFree` keeps huge frames likewise).
//!
//! Content is not looked at here: page states survive split and merge because they are kept per page in
//! [`StateMap`](crate::mem::states::StateMap), which split and merge do not touch.
//!
//! Accepted race: `count` and the scan window (`low..high`) are hints that trail the bits. A search may miss a
//! block that is being put back at that moment and go on to a larger one; it never returns a block twice.

use std::ops::Range;

use prezero_sys::memory::Errno;

use crate::block::Run;
use crate::mem::bits::spans;
use crate::sync::{
    AtomicU32, AtomicU64, Meta,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use crate::units::{HUGE_ORDER, HUGE_PAGES, Order, PageId, Span};

/// Bitmaps: one for each order up to the huge block.
/// Fixed: the orders that there are.
const ORDERS: usize = HUGE_ORDER as usize + 1;

pub(crate) struct Buddy {
    orders: [Bitmap; ORDERS],
}

/// The free blocks of one order.
struct Bitmap {
    words: Meta<AtomicU64>,
    /// How many bits are set.
    count: AtomicU32,
    /// No word below this one is likely to have a bit set.
    low: AtomicU32,
    /// One past the last word that ever had a bit set.
    high: AtomicU32,
}

impl Buddy {
    /// A buddy in which nothing is free yet.
    pub(crate) fn new(pages: u32) -> Result<Buddy, Errno> {
        let mut maps = Vec::with_capacity(ORDERS);
        for order in Order::MIN.to_huge() {
            let bits = pages.div_ceil(order.pages());
            maps.push(Bitmap {
                words: Meta::new(bits.div_ceil(64) as usize)?,
                count: AtomicU32::new(0),
                low: AtomicU32::new(0),
                high: AtomicU32::new(0),
            });
        }
        let Ok(orders) = maps.try_into() else { unreachable!("one map per order") };
        Ok(Buddy { orders })
    }

    /// Frees a run of pages that the caller owns, as the fewest aligned blocks.
    pub(crate) fn put_run(&self, run: Run) {
        let Span { first, pages } = run.into_span();
        let (mut at, mut left) = (first, pages);
        while left > 0 {
            let order = Order::fitting(at, left);
            let pages = if order >= Order::HUGE {
                let huge = left / HUGE_PAGES;
                self.put_huge(at.huge() as u32..at.huge() as u32 + huge);
                huge * HUGE_PAGES
            } else {
                self.put(at, order);
                order.pages()
            };
            at = at.plus(pages);
            left -= pages;
        }
    }

    /// Frees huge blocks that the caller owns.
    fn put_huge(&self, range: Range<u32>) {
        let map = self.huge();
        for (at, mask) in spans(range) {
            let old = map.words[at as usize].fetch_or(mask, AcqRel);
            debug_assert_eq!(old & mask, 0, "huge blocks {mask:#x} of word {at} freed twice");
            map.count.fetch_add(mask.count_ones(), Relaxed);
            map.note(at);
        }
    }

    /// Takes huge blocks, as many from the front of the range on as are free, by whole words: how
    /// many. None behind the zone is free.
    fn take_huge(&self, range: Range<u32>) -> u32 {
        let map = self.huge();
        let mut taken = 0;
        for (at, mask) in spans(range) {
            let all = |old: u64| (old & mask == mask).then_some(old & !mask);
            let word = map.words.get(at as usize);
            if word.is_none_or(|word| word.fetch_update(AcqRel, Relaxed, all).is_err()) {
                break;
            }
            map.count.fetch_sub(mask.count_ones(), Relaxed);
            taken += mask.count_ones();
        }
        taken
    }

    fn huge(&self) -> &Bitmap {
        &self.orders[HUGE_ORDER as usize]
    }

    /// Frees a block that the caller owns, merging it with its free buddies.
    pub(crate) fn put(&self, block: PageId, order: Order) {
        let (mut block, mut order) = (block, order);
        loop {
            let map = &self.orders[order.get() as usize];
            let index = block.0 >> order.get();
            let word = &map.words[(index / 64) as usize];
            let (mine, buddy) = (1u64 << (index % 64), 1u64 << ((index % 64) ^ 1));
            let above = order.merged();
            let mut old = word.load(Relaxed);
            let merged = loop {
                debug_assert_eq!(old & mine, 0, "block {block:?} order {order} freed twice");
                let merge = above.is_some() && old & buddy != 0;
                let new = if merge { old & !buddy } else { old | mine };
                match word.compare_exchange_weak(old, new, AcqRel, Relaxed) {
                    Ok(_) => break merge,
                    Err(now) => old = now,
                }
            };
            match above {
                Some(above) if merged => {
                    map.count.fetch_sub(1, Relaxed);
                    block = PageId(block.0 & !order.pages());
                    order = above;
                }
                _ => {
                    map.count.fetch_add(1, Relaxed);
                    return map.note(index / 64);
                }
            }
        }
    }

    /// Takes this very block, if it is free at this order.
    pub(crate) fn take(&self, block: PageId, order: Order) -> bool {
        let map = &self.orders[order.get() as usize];
        let index = block.0 >> order.get();
        let bit = 1u64 << (index % 64);
        let taken = map.words[(index / 64) as usize].fetch_and(!bit, AcqRel) & bit != 0;
        if taken {
            map.count.fetch_sub(1, Relaxed);
        }
        taken
    }

    /// Takes `wanted`, a block of order `order` inside the free block `block` of order
    /// `from`, and frees what is left of it. `None` if `block` is no longer free.
    pub(crate) fn carve(
        &self,
        block: PageId,
        from: Order,
        wanted: PageId,
        order: Order,
    ) -> Option<Run> {
        debug_assert!(wanted >= block && wanted.0 - block.0 < from.pages());
        if !self.take(block, from) {
            return None;
        }
        let mut level = from;
        while level > order {
            let Some(half) = level.below() else { break };
            level = half;
            // The half that does not hold `wanted`; its buddy is ours, so it stays split.
            let other = ((wanted.0 >> level.get()) ^ 1) << level.get();
            self.put(PageId(other), level);
        }
        Some(Run::taken(Span::new(wanted, order.pages())))
    }

    /// Takes the run `first..first+pages` if all of it is free; else takes nothing.
    pub(crate) fn take_run(&self, span: Span) -> Option<Run> {
        let Span { first, pages } = span;
        let (mut at, end) = (first.0, first.0 + pages);
        while at < end {
            let inside = Order::fitting(PageId(at), end - at);
            if inside >= Order::HUGE {
                let huge = PageId(at).huge() as u32..PageId(end).huge() as u32;
                let taken = self.take_huge(huge.clone());
                at += taken * HUGE_PAGES;
                if taken < huge.end - huge.start {
                    break;
                }
                continue;
            }
            let Some((block, from)) = self.holder(PageId(at)) else { break };
            // The largest aligned block that starts here and stays within both.
            let inside = Order::fitting(PageId(at), (end - at).min(block.0 + from.pages() - at));
            if let Some(run) = self.carve(block, from, PageId(at), inside) {
                at = run.into_span().end();
            }
        }
        if at >= end {
            return Some(Run::taken(span));
        }
        if at > first.0 {
            self.put_run(Run::taken(Span::new(first, at - first.0)));
        }
        None
    }

    /// The free block that holds `page`, at this moment.
    pub(crate) fn holder(&self, page: PageId) -> Option<(PageId, Order)> {
        Order::MIN.to_huge().find_map(|order| {
            let block = PageId((page.0 >> order.get()) << order.get());
            self.is_free(block, order).then_some((block, order))
        })
    }

    fn is_free(&self, block: PageId, order: Order) -> bool {
        let index = block.0 >> order.get();
        let words = &self.orders[order.get() as usize].words;
        let word = words.get((index / 64) as usize);
        word.is_some_and(|w| w.load(Acquire) >> (index % 64) & 1 != 0)
    }

    /// Which of 64 neighbouring huge blocks are free, one bit each.
    pub(crate) fn free_huge(&self, word: u32) -> u64 {
        self.huge().words[word as usize].load(Acquire)
    }

    /// The words up to the last that ever had one.
    pub(crate) fn huge_words(&self) -> u32 {
        self.huge().high.load(Relaxed)
    }

    /// Free blocks of one order, about.
    pub(crate) fn count(&self, order: Order) -> u32 {
        self.balance(order).max(0) as u32
    }

    /// Free pages, all orders together, about.
    pub(crate) fn free(&self) -> u32 {
        let pages = |order: Order| i64::from(self.balance(order)) << order.get();
        Order::MIN.to_huge().map(pages).sum::<i64>().max(0) as u32
    }

    /// Below 0 for a moment, where a block is taken before it was counted.
    fn balance(&self, order: Order) -> i32 {
        self.orders[order.get() as usize].count.load(Relaxed) as i32
    }

    /// The free blocks of one order, lowest address first, as they are when looked at.
    pub(crate) fn blocks(&self, order: Order) -> impl Iterator<Item = PageId> {
        let map = &self.orders[order.get() as usize];
        let low = map.low.load(Relaxed);
        let high = if map.count.load(Relaxed) == 0 { low } else { map.high.load(Relaxed) };
        let mut at = low;
        let mut word = 0;
        let mut seen = false;
        std::iter::from_fn(move || {
            while word == 0 {
                if at >= high {
                    return None;
                }
                word = map.words[at as usize].load(Acquire);
                at += 1;
                if word != 0 && !seen {
                    seen = true;
                    map.raise_low(low, at - 1);
                }
            }
            let bit = word.trailing_zeros();
            word &= word - 1;
            Some(PageId(((at - 1) * 64 + bit) << order.get()))
        })
    }
}

impl Bitmap {
    /// A bit of this word was set: later searches look there.
    fn note(&self, word: u32) {
        self.low.fetch_min(word, AcqRel);
        self.high.fetch_max(word + 1, Relaxed);
    }

    /// Lets later searches start at `to`, every word of `from..to` having been empty.
    fn raise_low(&self, from: u32, to: u32) {
        if to <= from || self.low.compare_exchange(from, to, AcqRel, Relaxed).is_err() {
            return;
        }
        // A block put below `to` lowers the window after setting its bit. If it did so
        // before the exchange above, its bit is visible here; if after, it won.
        if let Some(at) = (from..to).find(|&w| self.words[w as usize].load(Acquire) != 0) {
            self.low.fetch_min(at, AcqRel);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Huge blocks in two words, and some pages.
    const PAGES: u32 = 70 * HUGE_PAGES + 256;

    fn order(n: u32) -> Order {
        Order::new(n).unwrap()
    }

    fn len() -> impl Strategy<Value = u32> {
        prop_oneof![1..64u32, 1..3 * HUGE_PAGES, 1..PAGES]
    }

    /// Every free page, each exactly once, and no two free buddies left unmerged.
    fn free_pages(buddy: &Buddy) -> Vec<bool> {
        let mut free = vec![false; PAGES as usize];
        for order in Order::MIN.to_huge() {
            let blocks: Vec<PageId> = buddy.blocks(order).collect();
            assert_eq!(blocks.len() as u32, buddy.count(order));
            for block in blocks {
                assert_eq!(block.0 % order.pages(), 0, "unaligned");
                let twin = PageId(block.0 ^ order.pages());
                assert!(order == Order::HUGE || !buddy.is_free(twin, order), "unmerged buddies");
                for page in &mut free[block.index()..block.index() + order.pages() as usize] {
                    assert!(!std::mem::replace(page, true), "page free twice");
                }
            }
        }
        free
    }

    proptest! {
        #[test]
        fn buddy_agrees_with_a_page_vector(
            // What begins and ends with a huge block, or anywhere; short and long.
            ops in prop::collection::vec((any::<bool>(), 0..PAGES, len(), any::<bool>()), 1..60),
        ) {
            let buddy = Buddy::new(PAGES).unwrap();
            let mut model = vec![false; PAGES as usize];
            for (take, first, pages, whole) in ops {
                let first = if whole { first & !(HUGE_PAGES - 1) } else { first };
                let pages = if whole { pages.next_multiple_of(HUGE_PAGES) } else { pages };
                let pages = pages.min(PAGES - first);
                let range = first as usize..(first + pages) as usize;
                if take {
                    let free = model[range.clone()].iter().all(|&f| f);
                    prop_assert_eq!(buddy.take_run(Span::new(PageId(first), pages)).is_some(), free);
                    if free { model[range].fill(false); }
                } else if model[range.clone()].iter().all(|&f| !f) {
                    buddy.put_run(Run::taken(Span::new(PageId(first), pages)));
                    model[range].fill(true);
                }
                prop_assert_eq!(free_pages(&buddy), model.clone());
            }
        }
    }

    #[test]
    fn carve_leaves_everything_but_the_wanted_block_free() {
        let buddy = Buddy::new(PAGES).unwrap();
        buddy.put(PageId(0), order(8));

        assert!(buddy.carve(PageId(0), order(8), PageId(96), order(4)).is_some());

        let free = free_pages(&buddy);
        assert!((0..256).all(|p| free[p] != (96..112).contains(&p)));
        assert!(buddy.carve(PageId(0), order(8), PageId(0), order(0)).is_none(), "block was taken");
    }

    #[test]
    fn blocks_put_below_the_scan_window_are_found() {
        let buddy = Buddy::new(1 << 14).unwrap();
        buddy.put(PageId(10_000), order(0));
        assert_eq!(buddy.blocks(order(0)).next(), Some(PageId(10_000)));

        buddy.put(PageId(2), order(0));

        assert_eq!(buddy.blocks(order(0)).next(), Some(PageId(2)));
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    fn order(n: u32) -> Order {
        Order::new(n).unwrap()
    }

    /// Every free block of four pages, as (order, first page).
    fn free(buddy: &Buddy) -> Vec<(u32, u32)> {
        let all = |n: u32| buddy.blocks(order(n)).map(move |block| (n, block.0));
        (0..=2).flat_map(all).collect()
    }

    /// Runs `one` and `other` at once on a buddy of four pages on which `before` was run,
    /// and shows what came of it to `after`.
    fn race<A: Send + 'static>(
        before: fn(&Buddy),
        one: fn(&Buddy) -> A,
        other: fn(&Buddy) -> A,
        after: fn(&Buddy, A, A),
    ) {
        loom::model(move || {
            let buddy = Arc::new(Buddy::new(4).unwrap());
            before(&buddy);
            let theirs = {
                let buddy = buddy.clone();
                thread::spawn(move || other(&buddy))
            };
            let ours = one(&buddy);
            let theirs = theirs.join().unwrap();
            after(&buddy, ours, theirs);
        });
    }

    /// Both buddies come back at once, their neighbour is free: no merge is missed.
    #[test]
    fn two_puts_merge_whatever_their_order() {
        race(
            |buddy| buddy.put(PageId(2), order(1)),
            |buddy| buddy.put(PageId(0), order(0)),
            |buddy| buddy.put(PageId(1), order(0)),
            |buddy, (), ()| assert_eq!(free(buddy), [(2, 0)]),
        );
    }

    /// A block is taken while its buddy comes back: one owner, and nothing lost.
    #[test]
    fn a_block_is_taken_or_merged_and_never_both() {
        race(
            |buddy| buddy.put(PageId(0), order(0)),
            |buddy| buddy.take(PageId(0), order(0)),
            |buddy| {
                buddy.put(PageId(1), order(0));
                false
            },
            |buddy, taken, _| {
                let left: &[_] = if taken { &[(0, 1)] } else { &[(1, 0)] };
                assert_eq!(free(buddy), left);
            },
        );
    }

    /// Two threads carve the same block: one gets its page, and the rest is free.
    #[test]
    fn two_carve_one_block_and_one_wins() {
        race(
            |buddy| buddy.put(PageId(0), order(2)),
            |buddy| buddy.carve(PageId(0), order(2), PageId(0), order(0)).is_some(),
            |buddy| buddy.carve(PageId(0), order(2), PageId(3), order(0)).is_some(),
            |buddy, one, other| {
                assert!(one != other);
                let left = if one { [(0, 1), (1, 2)] } else { [(0, 2), (1, 0)] };
                assert_eq!(free(buddy), left);
            },
        );
    }

    /// Two want overlapping runs of huge blocks, in two words, one of them a page of one: the same.
    #[test]
    fn overlapping_runs_of_huge_blocks_have_one_owner() {
        const HUGES: u32 = 65;
        const WHOLE: u32 = HUGES * HUGE_PAGES;
        let mut model = loom::model::Builder::new();
        // A look for every free page takes a load for each 64 pages.
        model.max_branches = 10_000;
        model.check(|| {
            let buddy = Arc::new(Buddy::new(WHOLE).unwrap());
            buddy.put_run(Run::taken(Span::new(PageId(62 * HUGE_PAGES), 3 * HUGE_PAGES)));
            let theirs = {
                let buddy = buddy.clone();
                thread::spawn(move || {
                    buddy.take_run(Span::new(PageId(64 * HUGE_PAGES), 1)).is_some()
                })
            };
            let ours = buddy.take_run(Span::new(PageId(63 * HUGE_PAGES), 2 * HUGE_PAGES)).is_some();
            let theirs = theirs.join().unwrap();
            assert!(!(ours && theirs));
            let free: u32 = Order::MIN
                .to_huge()
                .map(|order| buddy.blocks(order).count() as u32 * order.pages())
                .sum();
            let taken = u32::from(theirs) + if ours { 2 * HUGE_PAGES } else { 0 };
            assert_eq!(free, 3 * HUGE_PAGES - taken);
        });
    }

    /// Two threads want overlapping runs: never do both get theirs, and the loser leaves nothing
    /// taken.
    #[test]
    fn overlapping_runs_have_one_owner() {
        race(
            |buddy| buddy.put(PageId(0), order(2)),
            |buddy| buddy.take_run(Span::new(PageId(0), 3)).is_some(),
            |buddy| buddy.take_run(Span::new(PageId(1), 3)).is_some(),
            |buddy, one, other| {
                assert!(!(one && other));
                let pages: u32 = free(buddy).iter().map(|&(order, _)| 1 << order).sum();
                assert_eq!(pages, if one || other { 1 } else { 4 });
            },
        );
    }
}
