//! Where a hot block that is cleared in place stops beating a zero block that is cold.
//!
//! A hot block costs a clear, and its lines are in the cache when its owner touches them. A
//! cold one costs nothing, until he touches it: then each line comes from wherever another
//! core left it. Which is cheaper depends on the size (does a hot block fit his cache?), on
//! how much he touches, and on the machine; so it is measured: [`Border`].

use std::ptr::NonNull;

use super::{ClearEngine, Engines};
use crate::page::PAGE;

/// What the owner of a zeroed block will do with it first, if he knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Use {
    /// Touch little of it: a zero block is worth more to him, however cold.
    Sparse,
    /// He did not say; taken as a quarter of it.
    #[default]
    Unknown,
    /// Write all of it: up to the border a hot block is worth more, although it must be
    /// cleared.
    Fill,
}

impl Use {
    const ALL: [Use; 3] = [Use::Sparse, Use::Unknown, Use::Fill];

    /// Cache lines of each page that it touches.
    fn lines(self) -> usize {
        match self {
            Use::Sparse => 1,
            Use::Unknown => 16,
            Use::Fill => 64,
        }
    }
}

/// For each [`Use`], the pages from which on zero and cold wins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Border([u32; Use::ALL.len()]);

impl Border {
    /// Before anything is measured: hot wins wherever it is on offer.
    pub const UNKNOWN: Border = Border([u32::MAX; Use::ALL.len()]);

    /// Zero wins at every size.
    #[cfg(test)]
    pub(crate) const NOWHERE: Border = Border([0; Use::ALL.len()]);

    /// Whether a hot block of `pages` is to be preferred.
    #[inline]
    pub fn hot_wins(&self, pages: u32, first_use: Use) -> bool {
        pages < self.0[first_use as usize]
    }

    /// The border for one use, in pages; `u32::MAX`: none was found up to the largest size
    /// that was tried.
    pub fn pages(&self, first_use: Use) -> u32 {
        self.0[first_use as usize]
    }
}

/// Sizes that are tried, in pages: 64 KiB, below which no zone serves, to 2 MiB, above which
/// none keeps hot blocks.
const TRIED: [u32; 5] = [16, 32, 64, 256, 512];
/// Bytes of scratch that it needs.
pub const SCRATCH: usize = TRIED[TRIED.len() - 1] as usize * PAGE;
/// Times that each is tried; the least counts, since noise only adds.
const TRIES: usize = 4;

/// Measures the border, in some milliseconds, and allocates nothing. `elsewhere` runs what it
/// is given on another CPU and comes back, or says that it could not do both; then a clear
/// past the cache stands for a cold block. `far` is the engine that clears for another CPU.
///
/// # Safety
/// `scratch` starts [`SCRATCH`] bytes that are mapped, resident, writable and the caller's
/// own, at a multiple of 4096.
pub unsafe fn measure_border(
    engines: &Engines,
    far: &dyn Fn(usize) -> &'static dyn ClearEngine,
    scratch: NonNull<u8>,
    now: &dyn Fn() -> u64,
    elsewhere: &mut dyn FnMut(&mut dyn FnMut()) -> bool,
) -> Border {
    let touch = |bytes: usize, lines: usize| {
        for at in (0..bytes).step_by(PAGE / lines) {
            // SAFETY: inside the scratch.
            unsafe { scratch.add(at).write_volatile(1) };
        }
    };
    // SAFETY: inside the scratch, which is the caller's own.
    let clear = |engine: &dyn ClearEngine, bytes| unsafe { engine.clear(scratch, bytes) };
    let timed = |work: &dyn Fn()| {
        let began = now();
        work();
        now().saturating_sub(began)
    };
    Border(Use::ALL.map(|first_use| {
        let lines = first_use.lines();
        border(|pages| {
            let bytes = pages as usize * PAGE;
            let (mut hot, mut cold) = (u64::MAX, u64::MAX);
            for _ in 0..TRIES {
                touch(bytes, Use::Fill.lines());
                hot = hot.min(timed(&|| {
                    clear(engines.cached, bytes);
                    touch(bytes, lines);
                }));
                touch(bytes, Use::Fill.lines());
                if !elsewhere(&mut || clear(far(bytes), bytes)) {
                    clear(engines.bypassing, bytes);
                }
                cold = cold.min(timed(&|| touch(bytes, lines)));
            }
            (hot, cold)
        })
    }))
}

/// The first size at which what `costs` says of a cold block is no more than of a hot one.
fn border(mut costs: impl FnMut(u32) -> (u64, u64)) -> u32 {
    let won = TRIED.into_iter().find(|&pages| {
        let (hot, cold) = costs(pages);
        cold <= hot
    });
    match won {
        // The smallest that any zone serves: then it holds for all.
        Some(pages) if pages == TRIED[0] => 0,
        Some(pages) => pages,
        None => u32::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prezero_sys::memory::Reservation;
    use prezero_sys::thread::monotonic_ns;

    #[test]
    fn border_is_the_first_size_at_which_cold_wins() {
        // A hot block costs 2 a page; a cold one 100, and 1 a page.
        let costs = |pages: u32| (2 * u64::from(pages), 100 + u64::from(pages));
        assert_eq!(border(costs), 256);
        assert_eq!(border(|_| (2, 1)), 0, "cold wins everywhere");
        assert_eq!(border(|_| (1, 2)), u32::MAX, "hot wins everywhere");
    }

    #[test]
    fn unknown_border_keeps_what_is_hot() {
        for first_use in Use::ALL {
            assert!(Border::UNKNOWN.hot_wins(512, first_use));
        }
    }

    #[test]
    fn far_blocks_are_cleared_elsewhere_where_that_is_possible() {
        let scratch = Reservation::new(SCRATCH, 4096).unwrap();
        scratch.populate(0, SCRATCH);
        let engines = Engines::uncalibrated();
        for possible in [true, false] {
            let mut asked = 0;
            let mut elsewhere = |work: &mut dyn FnMut()| {
                asked += 1;
                if possible {
                    work();
                }
                possible
            };
            // SAFETY: the scratch is this test's own.
            let border = unsafe {
                let far = |_| engines.cached;
                measure_border(&engines, &far, scratch.base(), &monotonic_ns, &mut elsewhere)
            };
            assert!(asked >= Use::ALL.len() * TRIES);
            for first_use in Use::ALL {
                let pages = border.pages(first_use);
                assert!(pages == 0 || pages == u32::MAX || TRIED.contains(&pages), "{border:?}");
            }
        }
    }
}
