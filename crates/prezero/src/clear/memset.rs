//! Ordinary stores: what the platform's `memset` does. Everywhere, and in the cache.

use std::ptr::NonNull;

use super::{Cache, ClearEngine};

pub(super) struct Memset;

// SAFETY: writes zeroes to exactly the range, with stores that any release orders.
unsafe impl ClearEngine for Memset {
    fn name(&self) -> &'static str {
        "memset"
    }

    fn cache(&self) -> Cache {
        Cache::Cached
    }

    unsafe fn clear(&self, dst: NonNull<u8>, len: usize) {
        // SAFETY: the caller owns the range.
        unsafe { dst.write_bytes(0, len) };
    }
}
