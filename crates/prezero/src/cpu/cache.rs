//! What one CPU remembers: where blocks were freed last, and its own counts.

use std::ops::Deref;

use prezero_sys::memory::Errno;

use crate::class::{CLASSES, Class};
use crate::clock::Tick;
use crate::count::counters::{Counter, Counters};
use crate::cpu::demand::Demand;
use crate::cpu::hints::Rows;
use crate::pool::classify::Sparse;
use crate::sync::{AtomicU32, Meta};
use crate::units::PageId;

/// See the module. All-zero bytes are an empty cache.
#[repr(C, align(64))]
pub(crate) struct CpuCache {
    pub(crate) counters: Counters,
    pub(crate) demand: Demand,
    /// Hits until the next sample (see `zone/integrity.rs`).
    pub(crate) countdown: AtomicU32,
    rows: [Rows; CLASSES],
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

    /// The hints of a class.
    #[inline]
    pub(crate) fn rows(&self, class: Class) -> &Rows {
        &self.rows[class.index()]
    }

    /// Remembers where a block was freed, all zero or not.
    #[inline]
    pub(crate) fn note_free(&self, class: Class, first: PageId, freed: Tick, is_zero: bool) {
        self.rows(class).note(first, freed, is_zero, class.slots());
    }
}

/// The caches of all CPUs.
pub(crate) struct Cpus {
    rows: Meta<CpuCache>,
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
        Ok(Cpus { rows })
    }

    /// The cache of this thread's CPU; a hint, the thread may be elsewhere by now.
    #[inline]
    pub(crate) fn here(&self) -> &CpuCache {
        let cpu = prezero_sys::cpu::current();
        &self.rows[if cpu < self.rows.len() { cpu } else { cpu % self.rows.len() }]
    }
}
