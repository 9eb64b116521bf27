//! A run that the pool isolates for scrubd, and how it comes back.
//!
//! An isolated run is out of circulation, and [`Scrubbing`](crate::pool::scrubbing::Scrubbing) names it. scrubd clears
//! it, or faults it in, until a request wants it, and then [publishes](Pool::publish) the result.

use std::sync::atomic::AtomicU32;

use prezero_sys::thread::futex_wait;

use crate::block::Run;
use crate::clear::ClearEngine;
use crate::count::counters::Counter;
use crate::count::probes;
use crate::map::state::PageState;
use crate::mem::backing::Backing;
use crate::pool::Pool;
use crate::units::{PageId, SLICE, Span};

/// Pages that are cleared between two looks whether a request wants the run. In smaller pieces engines lose speed.
/// Moved by: `bench scrub`.
const PIECE: u32 = 32;
/// The time between two looks whether a fork is over, ns.
/// Fixed: short beside the copy of a process.
const FORK_NS: u64 = 50_000;

/// See the module.
#[must_use = "an isolated run must be published, or it never comes back"]
pub(crate) struct Isolated {
    pub(crate) span: Span,
    /// Pages from the first that are cleared, where they were dirty.
    done: u32,
    /// The forks when it was isolated.
    mark: u32,
}

impl<B: Backing> Pool<B> {
    /// Isolates free memory. `None`: an allocation was faster, or a fork is under way.
    pub(crate) fn isolate(&self, span: Span) -> Option<Isolated> {
        self.isolate_by(|| self.map.take(span))
    }

    /// Isolates the run that `take` takes out of circulation.
    pub(crate) fn isolate_by(&self, take: impl FnOnce() -> Option<Run>) -> Option<Isolated> {
        let mark = self.scrubbing.mark();
        let span = self.scrubbing.take(take, fork_passes)?;
        probes::scrub_begin(span);
        Some(Isolated { span, done: 0, mark })
    }

    /// Whether a request wants the isolated run.
    pub(crate) fn is_wanted(&self) -> bool {
        self.scrubbing.is_wanted()
    }

    /// Clears the dirty pages of an isolated run, piece by piece, until a request wants it.
    pub(crate) fn clear_isolated(&self, isolated: &mut Isolated, engine: &dyn ClearEngine) {
        let Span { first, pages } = isolated.span;
        for piece in (0..pages).step_by(PIECE as usize) {
            if self.is_wanted() {
                return;
            }
            let piece = Span::new(first.plus(piece), PIECE.min(pages - piece));
            self.map.each_run(piece, PageState::Dirty, |run| self.memory.clear(engine, run));
            isolated.done = piece.end() - first.0;
        }
    }

    /// Faults in the absent pages of an isolated run, slice by slice, until a request wants it or the kernel refuses:
    /// how many.
    pub(crate) fn populate_isolated(&self, isolated: &Isolated) -> u32 {
        let (mut populated, mut refused) = (0, false);
        self.map.each_run(isolated.span, PageState::Absent, |run| {
            for at in (run.first.0..run.end()).step_by(SLICE as usize) {
                let slice = Span::new(PageId(at), SLICE);
                if refused || self.is_wanted() {
                    return;
                }
                refused = self.memory.populate(slice).is_err();
                // Where it was refused a part may be resident.
                if !refused || self.must_not_move() || self.memory.release(slice).is_err() {
                    self.map.set(slice, PageState::Zero);
                    // It decays from now on, not from a free long ago.
                    self.map.set_freed(slice, self.clock.tick());
                }
                populated += if refused { 0 } else { SLICE };
            }
        });
        if refused {
            self.counters.add_exact(Counter::BackingErrors, 1);
        }
        populated
    }

    /// Records the cleared pages as zero, and puts the run back by `back`: how many pages that were.
    pub(crate) fn publish(&self, isolated: Isolated, back: impl FnOnce(Run)) -> u32 {
        if self.is_wanted() {
            probes::abort(isolated.span.first);
        }
        let Isolated { span, done, mark } = isolated;
        let cleared = self.publish_zero(span.front(done), mark);
        probes::scrub_end(Span::new(span.first, cleared));
        self.scrubbing.put(back, fork_passes);
        cleared
    }

    /// Records the dirty pages among a span as zero, which were cleared after `mark` was taken: how many they were.
    /// None if a fork began since.
    pub(crate) fn publish_zero(&self, span: Span, mark: u32) -> u32 {
        if !self.scrubbing.may_record(mark) {
            return 0;
        }
        let cleared = self.map.tally(span).dirty;
        self.map.each_run(span, PageState::Dirty, |run| {
            self.map.set(run, PageState::Zero);
        });
        cleared
    }
}

/// Passes a part of the time of a fork.
fn fork_passes() {
    futex_wait(&AtomicU32::new(0), 0, Some(FORK_NS));
}
