//! A block that the pool isolates for scrubd, and how it comes back.
//!
//! An isolated block is out of circulation, and its [claim](crate::pool::handover) names it: an allocation may take it
//! away at any moment. scrubd clears it, or faults it in, and then [publishes](Pool::publish) the result.

use prezero_sys::rseq::Rseq;

use crate::block::Run;
use crate::clear::{Cache, ClearEngine, Guard, Piece};
use crate::count::probes;
use crate::mem::backing::Backing;
use crate::mem::states::PageState;
use crate::pool::Pool;
use crate::pool::chunk::Chunk;
use crate::pool::handover::{Session, Work};
use crate::units::{PAGE, PageId, Span};

/// Pages of a piece: how long an allocation may wait for scrubd's answer, and how much work is lost
/// when a piece is restarted. In smaller pieces engines lose speed.
/// Moved by: `bench scrub`.
const PIECE: u32 = 32;
/// Pages of a piece that is demoted. Demoting is slower, and loses nothing in smaller pieces.
/// Moved by: `bench scrub`.
const PIECE_DEMOTED: u32 = 8;

/// See the module.
#[must_use = "an isolated block must be published, or it never comes back"]
pub(crate) struct Isolated<'a> {
    session: Session<'a>,
    pub(crate) span: Span,
    /// The forks when it was isolated (see `fork_mark`).
    mark: u32,
}

impl Isolated<'_> {
    /// Whether no allocation has asked for it.
    pub(crate) fn is_undisturbed(&self) -> bool {
        self.session.undisturbed()
    }
}

impl<B: Backing> Pool<B> {
    /// Isolates a chunk of a free block. `None`: an allocation was faster.
    pub(crate) fn isolate(&self, chunk: &Chunk, work: Work) -> Option<Isolated<'_>> {
        self.handover.announce();
        let Some(run) = self.borrow(chunk) else {
            self.handover.withdraw();
            return None;
        };
        Some(self.isolate_taken(run, work))
    }

    /// Isolates a block that the caller has taken out of circulation.
    pub(crate) fn isolate_taken(&self, run: Run, work: Work) -> Isolated<'_> {
        // From here on the claim has it.
        let span = run.into_span();
        let mark = self.fork_mark();
        let session = self.handover.begin(span, work, mark);
        probes::scrub_begin(span);
        Isolated { session, span, mark }
    }

    /// Clears the dirty pages of an isolated block, piece by piece, until an allocation wants it.
    pub(crate) fn clear_isolated(
        &self,
        isolated: &Isolated<'_>,
        engine: &dyn ClearEngine,
        rseq: Option<&Rseq>,
    ) {
        let piece = match engine.cache() {
            Cache::Cached | Cache::Bypassing => PIECE,
            Cache::Demoted => PIECE_DEMOTED,
        };
        let (session, mut at, end) = (&isolated.session, isolated.span.first, isolated.span.end());
        while let Some(run) = self.states.find(Span::new(at, end - at.0), PageState::Dirty) {
            for from in (0..run.pages).step_by(piece as usize) {
                let piece = Span::new(run.first.plus(from), piece.min(run.pages - from));
                let guard = Guard {
                    claim: session.word(),
                    expected: session.busy(),
                    progress: session.progress(),
                    next: u64::from(piece.end() - isolated.span.first.0),
                    rseq,
                };
                if self.memory.clear_guarded(engine, piece, &guard) == Piece::Revoked {
                    return;
                }
            }
            at = PageId(run.end());
            if at.0 >= end {
                return;
            }
        }
    }

    /// Faults in the absent pages of an isolated block, page by page, until an allocation wants it or the kernel refuses:
    /// how many.
    pub(crate) fn populate_isolated(&self, isolated: &Isolated<'_>) -> u32 {
        let backing = self.memory.backing();
        let mut populated = 0;
        self.states.each_run(isolated.span, PageState::Absent, |run| {
            for page in run.each() {
                let wanted = !isolated.is_undisturbed();
                if wanted || backing.populate(page.index() * PAGE, PAGE).is_err() {
                    return;
                }
                self.states.set(Span::new(page, 1), PageState::Zero);
                populated += 1;
            }
        });
        if populated > 0 {
            // It decays from now on, not from a free long ago.
            self.freed.at[isolated.span.first.huge()].set(self.clock.tick());
        } else {
            self.counters.add_exact(crate::count::counters::Counter::BackingErrors, 1);
        }
        populated
    }

    /// Records the cleared pages as zero, and puts the block back by `back`. How many pages that were; `None`: an
    /// allocation has the block.
    pub(crate) fn publish(&self, isolated: Isolated<'_>, back: impl FnOnce(Run)) -> Option<u32> {
        if !isolated.is_undisturbed() {
            probes::abort(isolated.span.first);
        }
        let claimed = isolated.session.close()?;
        let cleared = self.publish_zero(Span::new(claimed.first, claimed.done), isolated.mark);
        probes::scrub_end(Span::new(isolated.span.first, cleared));
        back(claimed.run());
        isolated.session.release();
        Some(cleared)
    }
}
