//! The one heap of a process, made at its first large request: [`Global`](crate::Global)'s and the preloaded library's.
//!
//! Short programs pay nothing: until a request reaches the threshold there is no zone, and where there cannot or must
//! not be one, no request reaches the threshold. The state only moves forward:
//!
//! | state | a large request |
//! |---|---|
//! | untouched | reads the environment and makes the heap |
//! | starting | waits a moment for the heap, or goes to the next allocator (blocks are told apart by address) |
//! | ready | comes from the heap |
//! | off | goes to the next allocator |
//!
//! A child forked while another thread makes the heap stays in that state, without a zone.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use prezero_sys::thread;

use crate::heap::Heap;

/// The time for which a thread waits for another that makes the heap, ns. That takes 0.1 ms. What the thread gets
/// elsewhere meanwhile would be faulted in once more here, and threads that begin together ask together.
/// Moved by: `prezero bench short`.
const START_NS: u64 = 2_000_000;

const UNTOUCHED: u8 = 0;
const STARTING: u8 = 1;
const READY: u8 = 2;
const OFF: u8 = 3;

/// What came of an attempt to make the heap.
#[derive(Debug)]
pub enum Made<T> {
    /// The heap, in the slot that was given; its threshold in bytes, and what is kept beside it.
    Heap(&'static Heap, usize, T),
    /// The request is below the threshold that the user set: bytes. The slot goes back.
    NotYet(usize, &'static mut MaybeUninit<Heap>),
    /// There is to be none.
    Nothing,
}

/// What every call looks at, on one cache line that is not written once it is set.
#[derive(Debug)]
#[repr(align(64))]
struct Hot {
    /// Bytes. The smallest request that is looked at more closely.
    threshold: AtomicUsize,
    /// Bytes in the zone; 0 until there is one.
    bytes: AtomicUsize,
    /// Address of the zone's first byte; valid when `bytes` is not 0.
    base: AtomicUsize,
    state: AtomicU8,
}

/// See the module. `T` is what its maker keeps beside the heap.
#[derive(Debug)]
#[repr(C)]
pub struct LazyHeap<T: 'static> {
    hot: Hot,
    heap: UnsafeCell<MaybeUninit<Heap>>,
    beside: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: both slots are written once, by the thread that moved the state to STARTING, before it is READY; they are read
// only after. A heap may be shared, and so may what is beside it.
unsafe impl<T: Sync> Sync for LazyHeap<T> {}

impl<T: Sync> LazyHeap<T> {
    /// No heap yet. Requests of `threshold` bytes or more make it.
    pub const fn new(threshold: usize) -> LazyHeap<T> {
        LazyHeap {
            hot: Hot {
                threshold: AtomicUsize::new(threshold),
                bytes: AtomicUsize::new(0),
                base: AtomicUsize::new(0),
                state: AtomicU8::new(UNTOUCHED),
            },
            heap: UnsafeCell::new(MaybeUninit::uninit()),
            beside: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// Bytes below which a request goes straight to the next allocator.
    #[inline(always)]
    pub fn threshold(&self) -> usize {
        self.hot.threshold.load(Ordering::Relaxed)
    }

    /// Requests of `bytes` or more come here from now on; `usize::MAX`: none does. Blocks of the zone come back to it
    /// all the same. The answer is what held before.
    pub fn set_threshold(&self, bytes: usize) -> usize {
        self.hot.threshold.swap(bytes, Ordering::SeqCst)
    }

    /// The heap in whose range `block` points, also where it has unmapped that: no block starts there, and a caller
    /// that finds none asks [`Heap::is_unmapped`].
    #[inline(always)]
    pub fn owner(&'static self, block: *const u8) -> Option<&'static Heap> {
        // Acquire: pairs with the store in `start`, which comes after that of the base and of the heap. On x86-64 it
        // costs nothing.
        let bytes = self.hot.bytes.load(Ordering::Acquire);
        let offset = block.addr().wrapping_sub(self.hot.base.load(Ordering::Relaxed));
        // SAFETY: bytes is not 0, so the slot was filled before.
        (offset < bytes).then(|| unsafe { self.filled() })
    }

    /// The heap, if it is there.
    #[inline]
    pub fn get(&'static self) -> Option<&'static Heap> {
        // SAFETY: READY is set after the slot.
        (self.hot.state.load(Ordering::Acquire) == READY).then(|| unsafe { self.filled() })
    }

    /// The heap and what is beside it, if they are there.
    #[inline]
    pub fn ready(&'static self) -> Option<(&'static Heap, &'static T)> {
        // SAFETY: READY is set after both slots, which are never written again.
        (self.hot.state.load(Ordering::SeqCst) == READY)
            .then(|| unsafe { (self.filled(), (*self.beside.get()).assume_init_ref()) })
    }

    /// Whether there will be no heap.
    pub fn is_off(&self) -> bool {
        self.hot.state.load(Ordering::Acquire) == OFF
    }

    /// From now on there is no heap, unless there is one already.
    pub fn turn_off(&self) {
        let (from, to) = (UNTOUCHED, OFF);
        if self.hot.state.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.set_threshold(usize::MAX);
        }
    }

    /// The heap for a request of `bytes`, made now by `make` if it is not there. `make` gets the request and the slot. It
    /// makes the heap there, gives the slot back, or ends all attempts: no two calls have the slot.
    ///
    /// # Panics
    /// If what `make` made, or gives back, lies elsewhere.
    #[cold]
    pub fn get_or_make(
        &'static self,
        bytes: usize,
        make: impl FnOnce(usize, &'static mut MaybeUninit<Heap>) -> Made<T>,
    ) -> Option<&'static Heap> {
        let state = &self.hot.state;
        match state.compare_exchange(UNTOUCHED, STARTING, Ordering::Relaxed, Ordering::Acquire) {
            Ok(_) => {}
            Err(STARTING) => return self.await_start(),
            Err(_) => return self.get(),
        }
        // SAFETY: this thread alone moved the state to STARTING, and no thread reads the slots before the stores below.
        let (heap, beside) = unsafe { (&mut *self.heap.get(), &mut *self.beside.get()) };
        let (next, threshold) = match make(bytes, heap) {
            Made::Heap(heap, threshold, kept) => {
                assert!(std::ptr::addr_eq(heap, self.heap.get()), "made in another slot");
                beside.write(kept);
                self.hot.base.store(heap.base(), Ordering::Relaxed);
                self.hot.bytes.store(heap.bytes(), Ordering::Release);
                (READY, threshold)
            }
            Made::NotYet(threshold, slot) => {
                assert!(std::ptr::addr_eq(slot, self.heap.get()), "another slot came back");
                (UNTOUCHED, threshold)
            }
            Made::Nothing => (OFF, usize::MAX),
        };
        self.hot.threshold.store(threshold, Ordering::Relaxed);
        // Sequentially consistent: a limit that is set meanwhile looks for the heap when it has written its own word.
        state.store(next, Ordering::SeqCst);
        self.get()
    }

    /// # Safety
    /// The slot is filled: the caller has seen READY, or a zone that is not empty.
    unsafe fn filled(&self) -> &Heap {
        // SAFETY: filled for good before either could be seen, and never written again.
        unsafe { (*self.heap.get()).assume_init_ref() }
    }

    /// The heap, once the thread that makes it is done. A thread that takes long was stopped, is this very thread below
    /// a signal handler, or did not come along through a fork: no call waits again.
    #[cold]
    fn await_start(&'static self) -> Option<&'static Heap> {
        static IN_VAIN: AtomicBool = AtomicBool::new(false);
        let until = thread::monotonic_ns() + START_NS;
        while self.hot.state.load(Ordering::Acquire) == STARTING && !IN_VAIN.load(Ordering::Relaxed)
        {
            if thread::monotonic_ns() > until {
                IN_VAIN.store(true, Ordering::Relaxed);
            }
            std::thread::yield_now();
        }
        self.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Machine};
    use crate::heap::fit::MIN_LIMIT;

    const THRESHOLD: usize = 128 << 10;

    fn lazy() -> &'static LazyHeap<usize> {
        Box::leak(Box::new(LazyHeap::new(0)))
    }

    fn made(slot: &'static mut MaybeUninit<Heap>) -> Made<usize> {
        let config = Config { limit: MIN_LIMIT, ..Config::new(&Machine::here()) };
        Made::Heap(Heap::build(slot, &config).unwrap(), THRESHOLD, 7)
    }

    #[test]
    fn threads_that_ask_at_once_get_one_heap() {
        let (lazy, makes) = (lazy(), AtomicUsize::new(0));
        let bases: Vec<usize> = std::thread::scope(|scope| {
            let ask = || {
                let heap = lazy.get_or_make(THRESHOLD, |_, slot| {
                    makes.fetch_add(1, Ordering::Relaxed);
                    made(slot)
                });
                heap.map_or(0, Heap::base)
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let heap = lazy.get().unwrap();
        assert_eq!(makes.into_inner(), 1);
        // A thread that waited in vain was served elsewhere.
        assert!(bases.iter().all(|&base| base == heap.base() || base == 0), "{bases:x?}");
        assert_eq!((lazy.threshold(), *lazy.ready().unwrap().1), (THRESHOLD, 7));
        let inside = std::ptr::without_provenance(heap.base() + heap.bytes() - 1);
        assert!(lazy.owner(inside).is_some() && lazy.owner(inside.wrapping_add(1)).is_none());
    }

    #[test]
    fn a_small_request_leaves_the_heap_to_a_larger_one() {
        let lazy = lazy();
        assert!(lazy.get_or_make(10, |_, slot| Made::NotYet(THRESHOLD, slot)).is_none());
        assert_eq!((lazy.threshold(), lazy.is_off()), (THRESHOLD, false));
        assert!(lazy.ready().is_none() && lazy.owner(std::ptr::null()).is_none());
        assert!(lazy.get_or_make(THRESHOLD, |_, slot| made(slot)).is_some());
    }

    /// A slot that a caller keeps would be handed out a second time.
    #[test]
    #[should_panic(expected = "another slot came back")]
    fn the_slot_of_an_attempt_comes_back_before_the_next() {
        let mut kept = None;
        lazy().get_or_make(10, |_, slot| {
            kept = Some(slot);
            Made::NotYet(THRESHOLD, Box::leak(Box::new(MaybeUninit::uninit())))
        });
    }

    #[test]
    fn where_there_is_to_be_no_heap_no_request_asks_again() {
        let (told, found) = (lazy(), lazy());
        told.turn_off();
        assert!(found.get_or_make(1, |_, _| Made::Nothing).is_none());
        for lazy in [told, found] {
            assert!(lazy.is_off());
            assert_eq!(lazy.threshold(), usize::MAX);
            assert!(lazy.get_or_make(THRESHOLD, |_, _| unreachable!()).is_none());
        }
    }

    #[test]
    fn what_is_there_stays() {
        let lazy = lazy();
        let heap = lazy.get_or_make(THRESHOLD, |_, slot| made(slot)).unwrap();
        lazy.turn_off();
        assert_eq!(lazy.set_threshold(usize::MAX), THRESHOLD);
        assert_eq!(lazy.get().map(Heap::base), Some(heap.base()));
    }
}
