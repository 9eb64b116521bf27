//! The run that scrubd scrubs: one word names it, and nothing takes it away.
//!
//! scrubd takes a run out of the map, names it here, works on it, and puts it back. A request that lacks a run asks
//! for this one: scrubd then puts it back after the piece in hand. scrubd may have lost its CPU, so the request
//! waits for a bounded number of spins, and goes elsewhere after that.
//!
//! ```text
//!   None --take--> Taking ---> Held --put--> Closing ---> None
//! ```
//!
//! **Fork.** A fork copies page after page while other threads go on. Its child finds the run either here or in the
//! map, never in both: the word counts the forks under way, and becomes or ceases to be `Held` only while there are
//! none. A child whose word says `Taking` or `Closing` loses the run. A lost run is better than one with two owners.
//!
//! **Zeroes.** A clear begins with the [count of forks](Scrubbing::mark), and its zeroes are recorded only while no
//! fork began since: a child might see the record, and the page as it was before.

use crate::block::Run;
use crate::sync::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
    spin,
};
use crate::units::{PageId, Span};

/// Spins of a request that waits for the run: about as long as the longest piece takes.
/// Moved by: `bench grid`.
#[cfg(not(loom))]
const PATIENCE: u32 = 500;
#[cfg(loom)]
const PATIENCE: u32 = 1;

/// The word: state, whether a request asked, pages, first page, a generation that each run adds one to, and the forks
/// under way.
/// Fixed: bits of a word.
const NONE: u64 = 0;
const TAKING: u64 = 1;
const HELD: u64 = 2;
const CLOSING: u64 = 3;
const STATE: u64 = 3;
const WANTED: u64 = 1 << 2;
const PAGES_SHIFT: u32 = 3;
const FIRST_SHIFT: u32 = 14;
const ONE_GENERATION: u64 = 1 << 44;
const ONE_FORK: u64 = 1 << 52;
const GENERATION: u64 = ONE_FORK - ONE_GENERATION;
const FORKS: u64 = !(ONE_FORK - 1);

/// See the module.
#[repr(align(64))]
pub(crate) struct Scrubbing {
    word: AtomicU64,
    /// Forks that began so far.
    forks: AtomicU32,
}

impl Scrubbing {
    pub(crate) fn new() -> Scrubbing {
        Scrubbing { word: AtomicU64::new(NONE), forks: AtomicU32::new(0) }
    }

    /// scrubd: takes a run by `take` and names it. `None`: there was none, or a fork is under way. `pause` passes the time
    /// of a fork that begins meanwhile.
    pub(crate) fn take(
        &self,
        take: impl FnOnce() -> Option<Run>,
        pause: impl Fn(),
    ) -> Option<Span> {
        if !self.changes(|word| word & GENERATION | TAKING) {
            return None;
        }
        let Some(run) = take() else {
            self.ends();
            return None;
        };
        let span = run.into_span();
        debug_assert!(span.pages < 1 << (FIRST_SHIFT - PAGES_SHIFT), "at most a huge block");
        let name = u64::from(span.first.0) << FIRST_SHIFT | u64::from(span.pages) << PAGES_SHIFT;
        let held = |word: u64| word.wrapping_add(ONE_GENERATION) & GENERATION | name | HELD;
        while !self.changes(held) {
            pause();
        }
        Some(span)
    }

    /// scrubd: whether a request asked for the run.
    pub(crate) fn is_wanted(&self) -> bool {
        self.word.load(Relaxed) & WANTED != 0
    }

    /// scrubd: the run goes back by `put`. It stays for as long as a fork is under way; `pause` passes the time.
    pub(crate) fn put(&self, put: impl FnOnce(Run), pause: impl Fn()) {
        let run = self.held().map(Run::taken);
        while !self.changes(|word| word & GENERATION | CLOSING) {
            pause();
        }
        run.map(put);
        self.ends();
    }

    /// Changes the word unless a fork is under way.
    fn changes(&self, to: impl Fn(u64) -> u64) -> bool {
        let to = |word| (word & FORKS == 0).then(|| to(word));
        self.word.fetch_update(AcqRel, Acquire, to).is_ok()
    }

    /// scrubd has no run.
    fn ends(&self) {
        let none = |word| Some(word & (GENERATION | FORKS) | NONE);
        let _ = self.word.fetch_update(AcqRel, Acquire, none);
    }

    /// A request: what a search saw. It may have missed a run that came or went if this changed.
    pub(crate) fn moment(&self) -> u64 {
        self.word.load(Acquire) & !(WANTED | FORKS)
    }

    /// A request: asks for scrubd's run and waits for it. Whether a search may find more than one that began at `moment`.
    pub(crate) fn gives_way(&self, moment: u64) -> bool {
        let now = self.word.load(Acquire);
        if now & !(WANTED | FORKS) != moment {
            return true;
        }
        if now & STATE == NONE {
            return false;
        }
        let asks = now & (STATE | WANTED) == HELD;
        if asks && self.word.compare_exchange(now, now | WANTED, AcqRel, Relaxed).is_err() {
            return self.moment() != moment;
        }
        (0..PATIENCE).any(|_| {
            spin();
            self.moment() != moment
        })
    }

    /// The run in scrubd's hands, for checks that look at everything.
    pub(crate) fn held(&self) -> Option<Span> {
        let word = self.word.load(Acquire);
        (word & STATE == HELD).then(|| named(word))
    }

    /// The child of a fork has no scrubd: the run of its parent's is the child's.
    pub(crate) fn inherit(&self) -> Option<Run> {
        let held = self.held().map(Run::taken);
        self.word.store(self.word.load(Relaxed) & GENERATION | NONE, Release);
        held
    }

    /// What to hand to [`may_record`](Scrubbing::may_record) for a clear that begins now.
    pub(crate) fn mark(&self) -> u32 {
        self.forks.load(Acquire)
    }

    /// Whether the zeroes of a clear may be recorded that began at `mark`.
    pub(crate) fn may_record(&self, mark: u32) -> bool {
        !self.fork_is_under_way() && self.mark() == mark
    }

    /// Whether some thread is forking right now.
    pub(crate) fn fork_is_under_way(&self) -> bool {
        self.word.load(Acquire) & FORKS != 0
    }

    /// A fork begins.
    pub(crate) fn fork_begins(&self) {
        self.forks.fetch_add(1, AcqRel);
        self.word.fetch_add(ONE_FORK, AcqRel);
    }

    /// The fork is over, in the parent.
    pub(crate) fn fork_is_over(&self) {
        self.word.fetch_sub(ONE_FORK, AcqRel);
    }
}

/// The run that a word names.
fn named(word: u64) -> Span {
    let first = (word % ONE_GENERATION) >> FIRST_SHIFT;
    let pages = word >> PAGES_SHIFT & ((1 << (FIRST_SHIFT - PAGES_SHIFT)) - 1);
    Span::new(PageId(first as u32), pages as u32)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const RUN: Span = Span { first: PageId((1 << 30) - 512), pages: 512 };

    fn no_fork() {
        panic!("no fork is under way");
    }

    fn taken() -> Scrubbing {
        let scrubbing = Scrubbing::new();
        assert_eq!(scrubbing.take(|| Some(Run::taken(RUN)), no_fork), Some(RUN));
        scrubbing
    }

    fn put(scrubbing: &Scrubbing) {
        let mut back = None;
        scrubbing.put(|run| back = Some(run.into_span()), no_fork);
        assert_eq!(back, Some(RUN));
    }

    #[test]
    fn a_run_has_its_name_for_as_long_as_it_is_held() {
        let scrubbing = taken();
        assert_eq!(scrubbing.held(), Some(RUN));
        put(&scrubbing);
        assert_eq!(scrubbing.held(), None);
        assert_eq!(scrubbing.take(|| None, no_fork), None);
        assert_eq!(scrubbing.held(), None);
    }

    #[test]
    fn a_search_hears_that_a_run_came_or_went_meanwhile() {
        let scrubbing = Scrubbing::new();
        let before = scrubbing.moment();
        assert!(!scrubbing.gives_way(before), "nothing is held");
        scrubbing.take(|| Some(Run::taken(RUN)), no_fork);
        let during = scrubbing.moment();
        assert!(scrubbing.gives_way(before));
        put(&scrubbing);
        assert!(scrubbing.gives_way(during) && scrubbing.gives_way(before));
    }

    #[test]
    fn a_request_asks_and_an_absent_scrubd_keeps_it_waiting_for_a_while_only() {
        let scrubbing = taken();
        assert!(!scrubbing.is_wanted());
        assert!(!scrubbing.gives_way(scrubbing.moment()));
        assert!(scrubbing.is_wanted());
        put(&scrubbing);
        assert!(!scrubbing.is_wanted(), "nothing is asked of the next run");
    }

    #[test]
    fn a_request_has_the_run_that_a_running_scrubd_puts_back() {
        let scrubbing = taken();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !scrubbing.is_wanted() {}
                put(&scrubbing);
            });
            let moment = scrubbing.moment();
            while !scrubbing.gives_way(moment) {}
        });
        assert_eq!(scrubbing.held(), None);
    }

    #[test]
    fn the_word_stands_still_while_a_fork_is_under_way() {
        let scrubbing = taken();
        scrubbing.fork_begins();
        let waits = std::cell::Cell::new(0);
        let mut back = None;
        scrubbing.put(
            |run| back = Some(run.into_span()),
            || {
                assert_eq!(scrubbing.held(), Some(RUN), "what the child finds");
                waits.set(waits.get() + 1);
                if waits.get() == 3 {
                    scrubbing.fork_is_over();
                }
            },
        );
        assert_eq!((back, waits.get()), (Some(RUN), 3));
        scrubbing.fork_begins();
        assert_eq!(scrubbing.take(|| panic!("taken during a fork"), no_fork), None);
    }

    #[test]
    fn zeroes_are_recorded_only_if_no_fork_began_since_their_clear() {
        let scrubbing = Scrubbing::new();
        let before = scrubbing.mark();
        assert!(scrubbing.may_record(before));
        scrubbing.fork_begins();
        let during = scrubbing.mark();
        assert!(!scrubbing.may_record(before) && !scrubbing.may_record(during));
        scrubbing.fork_is_over();
        assert!(!scrubbing.may_record(before));
        assert!(scrubbing.may_record(during), "no child has the record");
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicBool;
    use loom::thread;

    struct World {
        scrubbing: Scrubbing,
        /// Whether the run is in the map.
        free: AtomicBool,
    }

    fn world() -> Arc<World> {
        Arc::new(World { scrubbing: Scrubbing::new(), free: AtomicBool::new(true) })
    }

    impl World {
        fn take(&self) -> Option<Run> {
            let was = self.free.swap(false, AcqRel);
            was.then(|| Run::taken(Span::new(PageId(4), 2)))
        }

        fn scrub(&self) {
            if self.scrubbing.take(|| self.take(), thread::yield_now).is_some() {
                let put = |run: Run| {
                    run.into_span();
                    assert!(!self.free.swap(true, AcqRel), "put back once");
                };
                self.scrubbing.put(put, thread::yield_now);
            }
        }
    }

    /// A fork copies the word and the map in either order: the child has the run once at most.
    fn fork(word_first: bool) {
        loom::model(move || {
            let world = world();
            let forker = {
                let world = world.clone();
                thread::spawn(move || {
                    world.scrubbing.fork_begins();
                    let word = || world.scrubbing.held().is_some();
                    let free = || world.free.load(Acquire);
                    let (held, free) = match word_first {
                        true => {
                            let held = word();
                            (held, free())
                        }
                        false => {
                            let free = free();
                            (word(), free)
                        }
                    };
                    world.scrubbing.fork_is_over();
                    assert!(!(held && free), "the child would have the run twice");
                })
            };
            world.scrub();
            forker.join().unwrap();
            assert!(world.free.load(Acquire));
        });
    }

    #[test]
    fn the_child_has_the_run_once_whatever_is_copied_first() {
        fork(true);
        fork(false);
    }

    /// A request that found nothing looks again, or the run is still in scrubd's hands.
    #[test]
    fn a_request_takes_the_run_once() {
        loom::model(|| {
            let world = world();
            let request = {
                let world = world.clone();
                thread::spawn(move || {
                    for _ in 0..2 {
                        let moment = world.scrubbing.moment();
                        if world.take().map(Run::into_span).is_some() {
                            return true;
                        }
                        if !world.scrubbing.gives_way(moment) {
                            break;
                        }
                    }
                    false
                })
            };
            world.scrub();
            let has_it = request.join().unwrap();
            assert_ne!(world.free.load(Acquire), has_it, "it is in one place");
        });
    }
}
