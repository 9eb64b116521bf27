//! `dc zva`: zeroes a block of cache lines without reading them first.

use std::arch::asm;
use std::ptr::NonNull;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use super::{Cache, ClearEngine};

/// `DCZID_EL0`: the block is 4 << (bits 0-3) bytes ...
/// Fixed: a field of a register.
const BLOCK_SHIFT_MASK: u64 = 0xf;
/// ... unless this bit says that the instruction is not to be used.
const PROHIBITED: u64 = 1 << 4;

pub(super) struct DcZva {
    /// Bytes a `dc zva` clears; 0 until the first clear asks.
    block: AtomicUsize,
}

pub(super) static DC_ZVA: DcZva = DcZva { block: AtomicUsize::new(0) };

/// Whether the instruction may be used.
pub(super) fn has_dc_zva() -> bool {
    dczid() & PROHIBITED == 0
}

fn dczid() -> u64 {
    let value: u64;
    // SAFETY: reads a register that user space may always read.
    unsafe {
        asm!("mrs {}, dczid_el0", out(reg) value, options(nomem, nostack, preserves_flags));
    }
    value
}

impl DcZva {
    fn block(&self) -> usize {
        match self.block.load(Relaxed) {
            0 => {
                let block = 4 << (dczid() & BLOCK_SHIFT_MASK);
                self.block.store(block, Relaxed);
                block
            }
            known => known,
        }
    }
}

// SAFETY: a block is at most 2 KiB, so it divides the range, which is whole pages; `dc zva`
// writes zeroes to it, ordered like any store.
unsafe impl ClearEngine for DcZva {
    fn name(&self) -> &'static str {
        "dc-zva"
    }

    fn cache(&self) -> Cache {
        Cache::Cached
    }

    unsafe fn clear(&self, dst: NonNull<u8>, len: usize) {
        // SAFETY: len > 0, and the loop ends at dst + len, within the caller's range.
        unsafe {
            asm!(
                "2:",
                "dc zva, {at}",
                "add {at}, {at}, {block}",
                "cmp {at}, {end}",
                "b.lo 2b",
                at = inout(reg) dst.as_ptr() => _,
                end = in(reg) dst.as_ptr().add(len),
                block = in(reg) self.block(),
                options(nostack),
            );
        }
    }
}
