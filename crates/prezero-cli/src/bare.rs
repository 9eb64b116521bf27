//! A clear engine in a bare loop: nothing around it but the clock.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::time::Instant;

use prezero::PAGE;
use prezero::clear::ClearEngine;

/// Passes over the memory; the median counts.
const PASSES: usize = 9;
/// Bytes cleared in one timed pass, at least: a small window is cleared many times over.
const PASS_BYTES: usize = 64 << 20;

/// Whole pages, resident, for engines to clear.
#[derive(Debug)]
pub struct Memory {
    start: NonNull<u8>,
    layout: Layout,
}

impl Memory {
    /// `bytes` is a multiple of a page and not zero.
    pub fn new(bytes: usize) -> Memory {
        assert!(bytes > 0 && bytes.is_multiple_of(PAGE), "{bytes} bytes are not whole pages");
        let Ok(layout) = Layout::from_size_align(bytes, PAGE) else {
            unreachable!("a page is a power of two")
        };
        // SAFETY: the layout's size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) });
        let memory = Memory { start: start.unwrap_or_else(|| handle_alloc_error(layout)), layout };
        // SAFETY: ours, `bytes` long. Written, so that it is resident.
        unsafe { memory.start.write_bytes(1, bytes) };
        memory
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, freed once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// Bytes for each nanosecond (GB/s) of `engine`, over and over the first `window` bytes.
pub fn rate(engine: &dyn ClearEngine, memory: &Memory, window: usize) -> f64 {
    assert!(window <= memory.layout.size() && window.is_multiple_of(PAGE) && window > 0);
    let times = (PASS_BYTES / window).max(1);
    let mut rates: Vec<f64> = (0..PASSES)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..times {
                // SAFETY: whole pages of our own memory; the engine is one that this CPU has.
                unsafe { engine.clear(memory.start, window) };
            }
            (times * window) as f64 / start.elapsed().as_nanos().max(1) as f64
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    rates[PASSES / 2]
}

#[cfg(test)]
mod tests {
    use super::*;
    use prezero::clear;

    #[test]
    fn every_engine_has_a_rate_and_leaves_zeroes() {
        let memory = Memory::new(1 << 20);
        for engine in clear::engines() {
            assert!(rate(engine, &memory, 1 << 20) > 0.0, "{}", engine.name());
            // SAFETY: ours, initialised, and no thread writes now.
            let bytes = unsafe { std::slice::from_raw_parts(memory.start.as_ptr(), 1 << 20) };
            assert!(bytes.iter().all(|&byte| byte == 0), "{}", engine.name());
        }
    }
}
