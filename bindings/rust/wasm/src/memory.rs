//! Memories of wasmtime that are slots of a `prezero::Pool`.
//!
//! Compiled code checks no bound of a memory that lies in a reservation of 4 GiB: what lies behind the memory must be
//! out of reach. All of a slot is in reach, so a memory has the slot's size from the beginning, and does not grow. The
//! pool's guard is the rest of the reservation and wasmtime's own guard.

use std::ptr::NonNull;
use std::sync::Arc;

use prezero::Pool;
use wasmtime::{LinearMemory, MemoryCreator, MemoryType, Result};

/// Bytes from the beginning of a memory on that code reaches without a check: wasmtime's usual reservation and guard.
const REACH: usize = (4 << 30) + (32 << 20);

/// Memories of one size.
pub struct Slots(Arc<Pool>);

impl Slots {
    /// A pool from which `most` memories of `bytes` may be out at a time.
    pub fn new(most: usize, bytes: usize) -> Slots {
        Slots(Arc::new(Pool::new(most, bytes, REACH - bytes).expect("a pool")))
    }

    /// Memories that were zero when an instance asked, and all.
    pub fn taken(&self) -> [f64; 2] {
        let stats = self.0.stats();
        [stats.zero as f64, (stats.zero + stats.cleared + stats.fresh) as f64]
    }
}

// SAFETY: a memory is a slot in hand, which no other code has; it is zero, stays where it is, and nothing is mapped in
// the `REACH` bytes behind its beginning but itself.
unsafe impl MemoryCreator for Slots {
    fn new_memory(
        &self,
        _: MemoryType,
        minimum: usize,
        maximum: Option<usize>,
        reserved: Option<usize>,
        guard: usize,
    ) -> Result<Box<dyn LinearMemory>, String> {
        let bytes = self.0.slot_bytes();
        if (minimum, maximum) != (bytes, Some(bytes)) {
            return Err(format!("a memory of {minimum} to {maximum:?} bytes; slots have {bytes}"));
        }
        if reserved.is_none_or(|reserved| reserved + guard > REACH) {
            return Err(format!("{reserved:?} bytes with a guard of {guard}: more than {REACH}"));
        }
        let slot = self.0.take().ok_or("all slots are out")?;
        Ok(Box::new(Memory { base: slot.into_raw(), pool: self.0.clone() }))
    }
}

struct Memory {
    base: NonNull<u8>,
    pool: Arc<Pool>,
}

// SAFETY: the slot is this memory's, whichever thread has that.
unsafe impl Send for Memory {}
// SAFETY: `&Memory` gives nothing away but the address.
unsafe impl Sync for Memory {}

// SAFETY: see `Slots`.
unsafe impl LinearMemory for Memory {
    fn byte_size(&self) -> usize {
        self.pool.slot_bytes()
    }

    fn byte_capacity(&self) -> usize {
        self.pool.slot_bytes()
    }

    fn grow_to(&mut self, _: usize) -> Result<()> {
        Err(wasmtime::format_err!("a slot does not grow"))
    }

    fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `into_raw` gave this address, and it comes back here alone. The pool finds what was written.
        drop(unsafe { self.pool.slot_at(self.base) });
    }
}
