//! Every engine of this machine: it clears its range and nothing else, and a revoked piece
//! never writes again.

use super::*;
use prezero_sys::memory::Reservation;
use prezero_sys::rseq::{membarrier_register, membarrier_rseq};
use prezero_sys::thread::{CpuMask, affinity, set_affinity};
use std::hint::spin_loop;
use std::sync::atomic::AtomicBool;
use std::thread;

const PAGE: usize = 4096;
const PATTERN: u8 = 0xa5;

fn memory(len: usize) -> Reservation {
    Reservation::new(len, PAGE).unwrap()
}

/// Sets all bytes, as their owner may.
fn fill(range: &Reservation, byte: u8) {
    // SAFETY: mapped, and the test says that the memory is its own at this point.
    unsafe { range.base().write_bytes(byte, range.len()) };
}

/// Index of the first byte in `from..to` that is not `byte`.
fn first_not(range: &Reservation, from: usize, to: usize, byte: u8) -> Option<usize> {
    // SAFETY: within the range. Volatile, because a test looks for writes that must not be.
    (from..to).find(|&i| unsafe { range.base().add(i).read_volatile() } != byte)
}

#[test]
fn clear_zeroes_its_range_and_nothing_else() {
    for engine in engines() {
        for pages in [1, 2, 3, 8, 17, 512] {
            let len = pages * PAGE;
            let range = memory(len + 2 * PAGE);
            fill(&range, PATTERN);
            // SAFETY: the range is ours and one page larger on both sides.
            unsafe { engine.clear(range.base().add(PAGE), len) };
            let name = engine.name();
            assert_eq!(first_not(&range, 0, PAGE, PATTERN), None, "{name} before");
            assert_eq!(first_not(&range, PAGE, PAGE + len, 0), None, "{name} {pages}");
            assert_eq!(first_not(&range, PAGE + len, range.len(), PATTERN), None, "{name} after");
        }
    }
}

#[test]
fn guarded_piece_commits_after_it_cleared() {
    let rseq = Rseq::of_current_thread();
    for (engine, rseq) in engines().flat_map(|e| [(e, None), (e, rseq.as_ref())]) {
        for pages in [1, 8, 512] {
            let len = pages * PAGE;
            let range = memory(len + 2 * PAGE);
            fill(&range, PATTERN);
            let (claim, progress) = (AtomicU64::new(7), AtomicU64::new(1));
            let guard = Guard { claim: &claim, expected: 7, progress: &progress, next: 2, rseq };
            // SAFETY: the range is ours.
            let piece = unsafe { engine.clear_guarded(range.base().add(PAGE), len, &guard) };
            assert_eq!(piece, Piece::Cleared);
            assert_eq!(progress.load(Acquire), 2);
            assert_eq!(claim.load(Acquire), 7);
            assert_eq!(first_not(&range, 0, PAGE, PATTERN), None);
            assert_eq!(first_not(&range, PAGE, PAGE + len, 0), None);
            assert_eq!(first_not(&range, PAGE + len, range.len(), PATTERN), None);
        }
    }
}

#[test]
fn guarded_piece_writes_nothing_for_another_claim() {
    let rseq = Rseq::of_current_thread();
    let range = memory(8 * PAGE);
    fill(&range, PATTERN);
    for (engine, rseq) in engines().flat_map(|e| [(e, None), (e, rseq.as_ref())]) {
        // Differs only in the upper half, which a 32-bit compare would miss.
        let (claim, progress) = (AtomicU64::new(7 | 1 << 63), AtomicU64::new(1));
        let guard = Guard { claim: &claim, expected: 7, progress: &progress, next: 2, rseq };
        // SAFETY: the range is ours.
        let piece = unsafe { engine.clear_guarded(range.base(), range.len(), &guard) };
        assert_eq!(piece, Piece::Revoked);
        assert_eq!(progress.load(Acquire), 1);
        assert_eq!(first_not(&range, 0, range.len(), PATTERN), None);
    }
}

/// Where the two threads of [`revoke`] run.
#[derive(Clone, Copy, Debug)]
enum Cpus {
    /// Both on one: the scrubber is preempted inside its section.
    Same,
    /// Wherever the kernel puts them.
    Any,
}

/// A claim for [`revoke`]: an odd one is the scrubber's, the taker makes it even.
fn is_scrubbers(claim: u64) -> bool {
    claim % 2 == 1
}

/// Takes a block away from a scrubber `rounds` times, or until that got to run at all, and
/// checks each time that no thread writes to it any more. Returns the pieces that the scrubber
/// committed.
fn revoke(engine: &'static dyn ClearEngine, cpus: Cpus, rounds: u64) -> u64 {
    assert!(membarrier_register());
    let range = memory(8 * PAGE);
    fill(&range, 0);
    let claim = AtomicU64::new(1);
    let progress = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    let cpu = (0..).find(|&cpu| affinity().contains(cpu)).unwrap();
    let place = || {
        if let Cpus::Same = cpus {
            set_affinity(&CpuMask::only(cpu)).unwrap();
        }
    };

    thread::scope(|scope| {
        let scrubber = scope.spawn(|| {
            place();
            let rseq = Rseq::of_current_thread().unwrap();
            let mut committed = 0;
            while !done.load(Acquire) {
                let expected = claim.load(Acquire);
                if !is_scrubbers(expected) {
                    thread::yield_now();
                    continue;
                }
                let next = expected << 32 | committed;
                let (claim, progress, rseq) = (&claim, &progress, Some(&rseq));
                let guard = Guard { claim, expected, progress, next, rseq };
                // SAFETY: the taker changes the claim, and then revokes, before it writes.
                match unsafe { engine.clear_guarded(range.base(), range.len(), &guard) } {
                    Piece::Cleared => committed += 1,
                    Piece::Revoked => spin_loop(),
                }
            }
            committed
        });
        let taker = scope.spawn(|| {
            place();
            for round in 0.. {
                if round >= rounds && progress.load(Acquire) > 0 {
                    break;
                }
                // Lets the scrubber begin a piece, at least until it has no CPU.
                thread::yield_now();
                claim.store(2 * round + 2, Release);
                assert!(membarrier_rseq());

                let committed = progress.load(Acquire);
                fill(&range, PATTERN);
                for _ in 0..2 {
                    thread::yield_now();
                    let broken = first_not(&range, 0, range.len(), PATTERN);
                    assert_eq!(broken, None, "{} {cpus:?} round {round}", engine.name());
                }
                assert_eq!(progress.load(Acquire), committed, "a commit after the revocation");
                claim.store(2 * round + 3, Release);
            }
            done.store(true, Release);
        });
        // A failed taker must not leave the scrubber running.
        let taken = taker.join();
        done.store(true, Release);
        let committed = scrubber.join().unwrap();
        taken.unwrap();
        committed
    })
}

fn revocable() -> impl Iterator<Item = &'static dyn ClearEngine> {
    let can = Rseq::of_current_thread().is_some();
    engines().filter(move |engine| can && engine.revocable())
}

#[test]
fn revoked_piece_never_writes_again() {
    for engine in revocable() {
        assert!(revoke(engine, Cpus::Any, 500) > 0, "{} never cleared", engine.name());
    }
}

#[test]
fn revoked_piece_of_a_preempted_scrubber_never_writes_again() {
    for engine in revocable() {
        assert!(revoke(engine, Cpus::Same, 100) > 0, "{} never cleared", engine.name());
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn preemption_does_not_stop_a_piece_for_good() {
    // Two scrubbers on one CPU preempt each other: every piece commits nevertheless.
    let cpu = (0..).find(|&cpu| affinity().contains(cpu)).unwrap();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                set_affinity(&CpuMask::only(cpu)).unwrap();
                let rseq = Rseq::of_current_thread();
                let range = memory(512 * PAGE);
                let (claim, progress) = (AtomicU64::new(1), AtomicU64::new(0));
                for next in 1..=300 {
                    let (claim, progress, rseq) = (&claim, &progress, rseq.as_ref());
                    let guard = Guard { claim, expected: 1, progress, next, rseq };
                    let engine = by_name("stosb").unwrap();
                    // SAFETY: the range is this thread's own.
                    let piece = unsafe { engine.clear_guarded(range.base(), range.len(), &guard) };
                    assert_eq!((piece, progress.load(Acquire)), (Piece::Cleared, next));
                }
            });
        }
    });
}
