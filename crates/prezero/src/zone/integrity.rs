//! Is a page that is marked zero really zero? Checked before it is handed out.
//!
//! `sample` reads a page of a block now and then; `full` reads every byte. A page that is recorded as absent is
//! read unless the kernel proves that it has no content. The first page that turns out not to be
//! zero is counted, reported once on stderr, and ends all trust: from then on every block is cleared in line,
//! whatever its record says. openEuler's kzerod handed out dirty pages for years because no code looked.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use crate::config::Verify;
use crate::count::counters::Counter;
use crate::cpu::cache::CpuCache;
use crate::map::state::PageState;
use crate::mem::backing::Backing;
use crate::pool::classify::Residency;
use crate::units::Span;
use crate::zone::Zone;

/// `sample` reads one page of one hit in this many: a small part of a hit's time.
/// Moved by: `prezero bench verify`.
const SAMPLE_EVERY: u32 = 512;

pub(crate) struct Trust {
    /// Which page of the block the next sample reads.
    turn: AtomicU32,
    lost: AtomicBool,
}

impl Trust {
    pub(crate) fn new() -> Trust {
        Trust { turn: AtomicU32::new(0x9E37_79B9), lost: AtomicBool::new(false) }
    }

    /// Whether no check has failed yet.
    pub(crate) fn is_whole(&self) -> bool {
        !self.lost.load(Relaxed)
    }

    /// Whether the zero pages of an owned block may be handed out as zero.
    #[inline]
    pub(crate) fn holds<B: Backing>(&self, zone: &Zone<B>, cpu: &CpuCache, span: Span) -> bool {
        let Span { first, pages } = span;
        if !self.is_whole() {
            return false;
        }
        match zone.tuning.verify() {
            Verify::Off => true,
            Verify::Sample => {
                // The CPU's own; a lost decrement moves the sample, no more.
                let left = cpu.countdown.load(Relaxed);
                if left > 0 {
                    cpu.countdown.store(left - 1, Relaxed);
                    return true;
                }
                cpu.countdown.store(SAMPLE_EVERY - 1, Relaxed);
                self.checks(zone, cpu, Span::new(first.plus(self.random() % pages), 1))
            }
            Verify::Full => self.checks(zone, cpu, span),
        }
    }

    /// Reads back pages that are recorded as zero, and pages that are recorded as absent and are not proven so.
    #[cold]
    fn checks<B: Backing>(&self, zone: &Zone<B>, cpu: &CpuCache, span: Span) -> bool {
        let mut good = true;
        zone.pool.map.each_run(span.slices(), PageState::Zero, |run| {
            good = good && self.check(zone, cpu, run.within(span));
        });
        zone.pool.map.each_run(span.slices(), PageState::Absent, |run| {
            zone.pool.each_residency(run, |run, residency| match residency {
                Residency::Absent => {}
                Residency::Resident => good = good && self.check(zone, cpu, run.within(span)),
                Residency::Unknown => {
                    good = good && self.check(zone, cpu, run.within(span));
                    // To read a page makes it resident, and it is to stay absent. Nothing is lost.
                    if good && !zone.pool.must_not_move() {
                        let _ = zone.pool.memory.release(run);
                    }
                }
            });
        });
        good
    }

    #[cold]
    fn check<B: Backing>(&self, zone: &Zone<B>, cpu: &CpuCache, span: Span) -> bool {
        let Span { first, pages } = span;
        cpu.counters.add(Counter::VerifiedPages, pages as u64);
        if zone.pool.memory.is_zero(span) {
            return true;
        }
        let bad =
            (0..pages).filter(|&n| !zone.pool.memory.is_zero(Span::new(first.plus(n), 1))).count();
        cpu.counters.add_exact(Counter::VerifyFailures, bad as u64);
        if !self.lost.swap(true, Relaxed) {
            prezero_sys::say::complain(
                "prezero: a free page that should be zero was written to (a dangling pointer in \
                 the program, or a bug in prezero): memory is cleared on demand from now on\n",
            );
        }
        false
    }

    /// Xorshift (Marsaglia, 2003): which page to look at, not a secret.
    fn random(&self) -> u32 {
        let mut x = self.turn.load(Relaxed);
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        self.turn.store(x, Relaxed);
        x
    }
}
