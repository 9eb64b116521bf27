//! What one CPU keeps in front of the pool: its lists, its own counts.
//!
//! A CPU's number is a hint about locality, never a right. Any thread may take from any cache, by one atomic
//! operation on the slot that names the block.

use std::ops::Deref;

use prezero_sys::memory::Errno;

use crate::class::{CLASSES, Class};
use crate::clock::LastTick;
use crate::count::counters::{Counter, Counters};
use crate::cpu::demand::Demand;
use crate::cpu::list::{BATCH, Entry, Held, Lists};
use crate::pool::classify::Sparse;
use crate::sync::{AtomicU32, Meta};

/// See the module. All-zero bytes are an empty cache.
#[repr(C, align(64))]
pub(crate) struct CpuCache {
    pub(crate) counters: Counters,
    pub(crate) demand: Demand,
    /// Hits until the next sample (see `zone/integrity.rs`).
    pub(crate) countdown: AtomicU32,
    /// When cold blocks were last moved to the pool.
    pub(crate) gathered_at: LastTick,
    lists: [Lists; CLASSES],
    /// Blocks that came back mostly untouched (see `pool/classify.rs`).
    pub(crate) sparse: Sparse,
}

// SAFETY: every field is atomics for which all-zero bytes are the empty value, and none has a destructor.
#[allow(unsafe_code)]
unsafe impl prezero_sys::meta::Zeroable for CpuCache {}

impl CpuCache {
    /// Whether anything was ever asked for or freed here. For the looks of scrubd: a machine
    /// may have hundreds of CPUs on which the program never ran.
    pub(crate) fn was_used(&self) -> bool {
        use Counter::{Frees, OnlyZeroRequests, PlainRequests, ZeroRequests};
        [ZeroRequests, OnlyZeroRequests, PlainRequests, Frees]
            .into_iter()
            .any(|counter| self.counters.get(counter) != 0)
    }

    /// The lists of a class.
    #[inline]
    pub(crate) fn lists(&self, class: Class) -> &Lists {
        &self.lists[class.index()]
    }

    /// Takes a zero block that `fits`.
    #[inline]
    pub(crate) fn take_zero(&self, class: Class, fits: impl Fn(Entry) -> bool) -> Option<Entry> {
        let lists = self.lists(class);
        let zero = |e: Entry| e.held == Held::Zero && fits(e);
        lists.zero.take(zero).or_else(|| lists.hot_cold.take_hottest(lists.newest(), zero))
    }

    /// Takes the block of the hot-cold list that `fits` and was freed last.
    #[inline]
    pub(crate) fn take_hottest(&self, class: Class, fits: impl Fn(Entry) -> bool) -> Option<Entry> {
        let lists = self.lists(class);
        lists.hot_cold.take_hottest(lists.newest(), fits)
    }

    /// Takes the block of the hot-cold list that `fits` and was freed first.
    pub(crate) fn take_coldest(&self, class: Class, fits: impl Fn(Entry) -> bool) -> Option<Entry> {
        let lists = self.lists(class);
        lists.hot_cold.take_coldest(lists.newest(), fits)
    }

    /// Takes any block that `fits`, a zero one last.
    pub(crate) fn take(&self, class: Class, fits: impl Fn(Entry) -> bool) -> Option<Entry> {
        let lists = self.lists(class);
        lists.hot_cold.take(&fits).or_else(|| lists.zero.take(&fits))
    }

    /// Puts a block on the lists. `None`: there is room for it. Else the caller moves on what is handed back.
    #[inline]
    pub(crate) fn put(&self, class: Class, entry: Entry) -> Option<Entry> {
        let lists = self.lists(class);
        let (entry, slots) = (lists.stamp(entry), class.slots());
        if entry.held == Held::Zero {
            if lists.zero.push(entry, slots).is_ok() {
                return None;
            }
            self.counters.bump(Counter::Overflows);
        }
        lists.hot_cold.push(entry, slots).err()
    }

    /// The coldest blocks of a full hot-cold list, taken off it.
    pub(crate) fn overflow(&self, class: Class) -> impl Iterator<Item = Entry> + '_ {
        let blocks = BATCH.min(class.slots());
        std::iter::from_fn(move || self.take_coldest(class, |_| true)).take(blocks)
    }

    /// What the lists hold, as it is when looked at.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (Class, Entry)> + '_ {
        Class::largest_first().flat_map(|class| {
            let lists = self.lists(class);
            lists.zero.entries().chain(lists.hot_cold.entries()).map(move |entry| (class, entry))
        })
    }
}

/// The caches of all CPUs.
pub(crate) struct Cpus {
    rows: Meta<CpuCache>,
    /// When all lists were last drained for a request.
    pub(crate) drained_at: LastTick,
}

impl Deref for Cpus {
    type Target = [CpuCache];

    fn deref(&self) -> &[CpuCache] {
        &self.rows
    }
}

impl Cpus {
    /// Empty caches for as many CPUs as there may ever be.
    pub(crate) fn new() -> Result<Cpus, Errno> {
        let rows = Meta::new(prezero_sys::thread::cpu_count())?;
        Ok(Cpus { rows, drained_at: LastTick::default() })
    }

    /// The cache of this thread's CPU; a hint, the thread may be elsewhere by now.
    #[inline]
    pub(crate) fn here(&self) -> &CpuCache {
        let cpu = prezero_sys::cpu::current();
        &self.rows[if cpu < self.rows.len() { cpu } else { cpu % self.rows.len() }]
    }
}
