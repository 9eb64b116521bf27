//! Up to which size a hot block that is cleared in place beats a cold zero block.
//!
//! A hot block costs a clear, and its lines are in the cache when its owner touches them. A cold one costs nothing
//! until its owner touches it: then each line comes from the place where another core left it. The cheaper one
//! depends on the size, on how much its owner touches, and on the machine. So it is measured: [`Border`].

use std::ptr::NonNull;

use super::{ClearEngine, Engines};
use crate::units::PAGE;

/// What the owner of a zeroed block will do with it first, as far as it says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Use {
    /// Touch little of it: a zero block is worth more then, however cold.
    Sparse,
    /// The owner did not say; taken as a quarter of it.
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
/// Bytes of scratch that a measurement needs.
/// Fixed: the largest size that is tried.
pub const SCRATCH: usize = TRIED[TRIED.len() - 1] as usize * PAGE;
/// Tries of each size, and of each size from 1 MiB on. The least time counts, since noise only
/// adds, and adds a smaller part to a longer time.
/// Moved by: gauge `hot_border_bytes`, counter `daemon_cpu_ns`.
const TRIES: usize = 4;
const TRIES_LONG: usize = 2;

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
    Border::by(|first_use, pages| {
        let (bytes, lines) = (pages as usize * PAGE, first_use.lines());
        let tries = if bytes < 1 << 20 { TRIES } else { TRIES_LONG };
        let (mut hot, mut cold) = (u64::MAX, u64::MAX);
        for _ in 0..tries {
            touch(bytes, Use::Fill.lines());
            hot = hot.min(timed(&|| {
                clear(engines.cached, bytes);
                touch(bytes, lines);
            }));
        }
        for _ in 0..tries {
            if !elsewhere(&mut || clear(far(bytes), bytes)) {
                clear(engines.bypassing, bytes);
            }
            cold = cold.min(timed(&|| touch(bytes, lines)));
        }
        (hot, cold)
    })
}

impl Border {
    /// By the costs of a hot and a cold block of so many pages. The more lines the owner touches the more
    /// the cold one costs beside the hot one, so one use's border bounds the next one's.
    fn by(mut costs: impl FnMut(Use, u32) -> (u64, u64)) -> Border {
        let mut first_won = |first_use, from, to| {
            let mut sizes = TRIED.into_iter().filter(|pages| (from..to).contains(pages));
            let won = sizes.find(|&pages| {
                let (hot, cold) = costs(first_use, pages);
                cold <= hot
            });
            match won {
                // The smallest that any zone serves: then it holds for all.
                Some(pages) if pages == TRIED[0] => 0,
                won => won.unwrap_or(to),
            }
        };
        let unknown = first_won(Use::Unknown, 0, u32::MAX);
        let sparse = first_won(Use::Sparse, 0, unknown);
        let fill = first_won(Use::Fill, unknown, u32::MAX);
        Border(Use::ALL.map(|first_use| match first_use {
            Use::Sparse => sparse,
            Use::Unknown => unknown,
            Use::Fill => fill,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prezero_sys::memory::Reservation;
    use prezero_sys::thread::monotonic_ns;

    #[test]
    fn border_is_the_first_size_at_which_cold_wins() {
        // A hot block costs 64 a page; a cold one 1,024 and 3 for each line that is touched.
        let costs = |first_use: Use, pages| {
            let touched = u64::from(pages) * first_use.lines() as u64;
            (64 * u64::from(pages), 1024 + 3 * touched)
        };
        assert_eq!(Border::by(costs), Border([32, 64, u32::MAX]));
        assert_eq!(Border::by(|_, _| (2, 1)), Border::NOWHERE, "cold wins everywhere");
        assert_eq!(Border::by(|_, _| (1, 2)), Border::UNKNOWN, "hot wins everywhere");
    }

    #[test]
    fn nothing_is_measured_that_another_use_has_answered() {
        for (won, sparse, fill) in [(TRIED[0], 0, 5), (64, 2, 3), (u32::MAX, 5, 0)] {
            let mut asked = [0; Use::ALL.len()];
            let border = Border::by(|first_use, pages| {
                asked[first_use as usize] += 1;
                // Of the others noise says what cannot be.
                let wins = first_use == Use::Unknown && pages >= won;
                (u64::from(wins), u64::from(!wins))
            });
            assert_eq!((asked[0], asked[2]), (sparse, fill), "{border:?}");
            assert!(border.pages(Use::Sparse) <= border.pages(Use::Unknown));
            assert!(border.pages(Use::Unknown) <= border.pages(Use::Fill));
        }
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
            // One size at least for `Unknown`, and one for a use that it did not answer.
            assert!(asked >= 2 * TRIES);
            for first_use in Use::ALL {
                let pages = border.pages(first_use);
                assert!(pages == 0 || pages == u32::MAX || TRIED.contains(&pages), "{border:?}");
            }
        }
    }
}
