//! Pages that come back to the pool, and how old they are there.

use crate::block::Run;
use crate::clock::Tick;
use crate::map::state::{PageState, Tally};
use crate::mem::backing::Backing;
use crate::pool::Pool;
use crate::sync::Ordering::Relaxed;
use crate::units::{PageId, Span};

impl<B: Backing> Pool<B> {
    /// Frees a settled run.
    pub(crate) fn put(&self, run: Run, tally: Tally, freed: Tick) {
        let span = run.span();
        if tally.remapped > 0 {
            return self.abandon_foreign(run.into_span(), freed);
        }
        if tally.absent < span.pages {
            self.freed.on.store(prezero_sys::cpu::current() as u32, Relaxed);
            self.freed.last.set(freed);
            self.map.set_freed(span, freed);
        }
        self.map.put(run);
        self.lazy_free_excess(span);
    }

    /// Frees a run that was only borrowed from the free memory: it is as old as it was.
    pub(crate) fn put_as_it_was(&self, run: Run) {
        self.map.put(run);
    }

    /// Slices whose mapping could not be mended are never used again; those between them are freed. Once one is free
    /// another thread may change it, so each is looked at before.
    #[cold]
    fn abandon_foreign(&self, span: Span, freed: Tick) {
        let mut at = span.first.0;
        let end = Span::new(PageId(span.end()), 0);
        for lost in self.map.runs_of(span, PageState::Remapped).chain([end]) {
            if at < lost.first.0 {
                let good = Span::new(PageId(at), lost.first.0 - at);
                self.put(Run::taken(good), self.map.tally(good), freed);
            }
            at = lost.end();
        }
    }
}
