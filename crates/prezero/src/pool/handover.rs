//! The claim: the one block that scrubd works on, and how an allocation takes it without waiting.
//!
//! scrubd announces itself, takes a free block out of circulation, names it here, and clears it piece by piece. An
//! allocation that needs the block asks for it (`Wanted`, Xen's abort handshake). A running scrubd answers at its
//! next piece. A scrubd that does not answer was preempted, perhaps for long. Then the allocation fences and takes
//! the block (`Taken`). After the fence scrubd writes to the block no more: each piece is one restartable sequence
//! that checks this word first, and the kernel restarts a sequence that was preempted (membarrier,
//! `PRIVATE_EXPEDITED_RSEQ`).
//!
//! ```text
//!   Idle --begin--> Busy --close--> Closing --release--> Idle       scrubd keeps it
//!                    |                 ^
//!                    +--want--> Wanted-+   scrubd answers by closing
//!                                 |
//!                                 +--take--> Taken --release--> Idle   the allocation has it
//! ```
//!
//! The thread that moves the word to `Closing` or `Taken` owns the block and must put it back. The generation in
//! the word makes every claim's words unique, so a delayed piece or a delayed request cannot touch a later claim.

use crate::block::Run;
use crate::sync::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
    spin,
};
use crate::units::{PageId, Span};

/// What scrubd does with the block; decides how an allocation may take it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// Clears it in revocable pieces: may be taken after a fence.
    Scrub,
    /// A step that cannot be taken back (a page fault, a hardware engine): an allocation
    /// may ask, and goes elsewhere if the answer takes too long.
    Fixed,
}

/// Spins before an unanswered request is taken for an absent scrubd: about as long as the longest
/// piece of clearing. A fence is dear while scrubd runs, and cheap while it does not.
/// Moved by: `bench grid`.
#[cfg(not(loom))]
const PATIENCE: u32 = 500;
#[cfg(loom)]
const PATIENCE: u32 = 1;

/// Phases of the word.
/// Fixed: bits of a word.
const IDLE: u64 = 0;
const BUSY: u64 = 1;
const WANTED: u64 = 2;
const TAKEN: u64 = 3;
const CLOSING: u64 = 4;
const PHASE: u64 = 7;
/// Bits 3..5 hold the work, the rest the generation.
const WORK_SHIFT: u32 = 3;
const GENERATION: u64 = 1 << 5;

/// A block out of circulation, and how many of its pages from the first are done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Claimed {
    pub(crate) first: PageId,
    pub(crate) pages: u32,
    pub(crate) done: u32,
    /// The fork mark (`pool/fork_mark.rs`) when the clear began.
    pub(crate) mark: u32,
}

impl Claimed {
    /// Its pages, for the side that the claim names.
    pub(crate) fn run(&self) -> Run {
        Run::taken(Span::new(self.first, self.pages))
    }
}

/// What came of asking for the block.
#[must_use]
pub(crate) enum Answer<'a> {
    /// It is the caller's now.
    Seized(Seized<'a>),
    /// It is back where it came from, or about to be: look again.
    Released,
    /// It is not to be had soon: go elsewhere.
    Kept,
}

/// See the module.
#[repr(align(64))]
pub(crate) struct Claim {
    word: AtomicU64,
    /// First page and page count; stable from `begin` to `release`.
    block: AtomicU64,
    progress: AtomicU64,
    mark: AtomicU64,
    /// Not 0 while scrubd takes a block that it has not named yet. A hint.
    coming: AtomicU64,
}

/// scrubd's side of one claim.
pub(crate) struct Session<'a> {
    claim: &'a Claim,
    busy: u64,
}

/// An allocation's side of a claim that it took. The block is the holder's.
#[must_use = "the block must be put back, then the claim released"]
pub(crate) struct Seized<'a> {
    claim: &'a Claim,
    taken: u64,
    pub(crate) block: Claimed,
}

impl Claim {
    pub(crate) fn new() -> Claim {
        Claim {
            word: AtomicU64::new(IDLE),
            block: AtomicU64::new(0),
            progress: AtomicU64::new(0),
            mark: AtomicU64::new(0),
            coming: AtomicU64::new(0),
        }
    }

    /// scrubd: a claim is about to begin. Until then an allocation cannot ask for the block, nor
    /// for a moment for the free memory around it.
    pub(crate) fn announce(&self) {
        self.coming.store(1, Release);
    }

    /// scrubd: it does not.
    pub(crate) fn withdraw(&self) {
        self.coming.store(0, Release);
    }

    /// An allocation: waits for a claim that was announced. False if none was, or scrubd is
    /// absent.
    pub(crate) fn awaits(&self) -> bool {
        let comes = || self.coming.load(Acquire) != 0;
        comes()
            && (0..PATIENCE).any(|_| {
                spin();
                !comes()
            })
    }

    /// Changes with each claim that begins, ends or is asked for: a search meanwhile may have
    /// missed blocks that were free before or are after.
    pub(crate) fn moment(&self) -> u64 {
        self.word.load(Acquire)
    }

    /// Whether scrubd has a block in its hands, at a glance.
    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.word.load(Relaxed) & PHASE != IDLE
    }

    /// Whether a new claim can begin: no allocation is still putting back the last block.
    pub(crate) fn is_free(&self) -> bool {
        self.word.load(Acquire) & PHASE == IDLE
    }

    /// scrubd: writes down the block it has just taken. The claim must be free.
    pub(crate) fn begin(&self, span: Span, work: Work, mark: u32) -> Session<'_> {
        let Span { first, pages } = span;
        let idle = self.word.load(Acquire);
        debug_assert_eq!(idle & PHASE, IDLE, "one claim at a time");
        self.block.store((first.0 as u64) << 32 | pages as u64, Relaxed);
        self.progress.store(0, Relaxed);
        self.mark.store(mark as u64, Relaxed);
        let generation = (idle & !(GENERATION - 1)).wrapping_add(GENERATION);
        let busy = generation | (work as u64) << WORK_SHIFT | BUSY;
        self.word.store(busy, Release);
        self.withdraw();
        Session { claim: self, busy }
    }

    /// An allocation: asks for the block and, if scrubd does not answer, takes it.
    /// `fence` must guarantee that no piece of scrubd's is under way when it returns
    /// true; when it returns false nothing was guaranteed and nothing is taken.
    pub(crate) fn seize(&self, fence: impl FnOnce() -> bool) -> Answer<'_> {
        let busy = self.word.load(Acquire);
        let wanted = busy & !PHASE | WANTED;
        if busy & PHASE == BUSY
            && self.word.compare_exchange(busy, wanted, AcqRel, Relaxed).is_err()
        {
            return Answer::Released; // it moved just now, most likely on
        }
        let mut now = busy;
        for _ in 0..PATIENCE {
            now = self.word.load(Acquire);
            if now & PHASE == IDLE || now & !PHASE != busy & !PHASE {
                return Answer::Released;
            }
            spin();
        }
        // Taken by another allocation, or scrubd lost its CPU while it put the block back.
        if now != wanted || busy & PHASE != BUSY {
            return Answer::Kept;
        }
        let work = wanted >> WORK_SHIFT & 3;
        if work == Work::Fixed as u64 {
            return Answer::Kept;
        }
        // Pieces that start from now on see `Wanted` and write nothing; the fence ends
        // the one that may be under way. Only then is the block there to be taken.
        if !fence() {
            return Answer::Kept;
        }
        let taken = busy & !PHASE | TAKEN;
        if self.word.compare_exchange(wanted, taken, AcqRel, Relaxed).is_err() {
            return Answer::Released;
        }
        Answer::Seized(Seized { claim: self, taken, block: self.read() })
    }

    /// The child of a fork has no scrubd: whatever the parent's held is the child's.
    pub(crate) fn inherit(&self) -> Option<Claimed> {
        self.withdraw();
        let word = self.word.load(Acquire);
        // In `Closing` and `Taken` a thread was putting the block back, and may have done so: then
        // it may have an owner already. A lost block is better than one with two owners.
        let held = matches!(word & PHASE, BUSY | WANTED).then(|| self.read());
        self.word.store(word & !(GENERATION - 1), Release);
        held
    }

    /// The block in scrubd's hands, for checks that look at everything.
    pub(crate) fn held(&self) -> Option<Claimed> {
        self.is_held().then(|| self.read())
    }

    fn read(&self) -> Claimed {
        let block = self.block.load(Relaxed);
        Claimed {
            first: PageId((block >> 32) as u32),
            pages: block as u32,
            done: self.progress.load(Acquire) as u32,
            mark: self.mark.load(Relaxed) as u32,
        }
    }
}

impl<'a> Session<'a> {
    /// What a piece checks (`word() == busy()`) and commits (`progress()`).
    pub(crate) fn word(&self) -> &'a AtomicU64 {
        &self.claim.word
    }

    pub(crate) fn busy(&self) -> u64 {
        self.busy
    }

    pub(crate) fn progress(&self) -> &'a AtomicU64 {
        &self.claim.progress
    }

    /// Whether no allocation has asked for the block.
    pub(crate) fn undisturbed(&self) -> bool {
        self.claim.word.load(Relaxed) == self.busy
    }

    /// Takes the block back for good, to put it on a list. `None` if it was taken away:
    /// then it is not scrubd's any more.
    pub(crate) fn close(&self) -> Option<Claimed> {
        let closing = self.busy & !PHASE | CLOSING;
        let mut from = self.busy;
        loop {
            match self.claim.word.compare_exchange(from, closing, AcqRel, Acquire) {
                Ok(_) => return Some(self.claim.read()),
                Err(now) if now == self.busy & !PHASE | WANTED => from = now,
                Err(now) if now == self.busy => from = now,
                Err(_) => return None,
            }
        }
    }

    /// After `close` and after the block was put back.
    pub(crate) fn release(&self) {
        self.claim.word.store(self.busy & !(GENERATION - 1), Release);
    }
}

impl Seized<'_> {
    /// After the block was put back: scrubd may claim again.
    pub(crate) fn release(self) {
        self.claim.word.store(self.taken & !(GENERATION - 1), Release);
    }
}

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
