//! Hands on real CPUs: one thread, two that race, and a collector.

use super::*;
use crate::memory::Meta;
use crate::rseq::membarrier_rseq;
use crate::thread::{CpuMask, cpu_count, current_cpu, set_affinity};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What a CPU has here.
#[repr(C)]
struct One(Hand, AtomicU64);

// SAFETY: atomics, for which zero bytes are a valid value, without a destructor.
unsafe impl Plain for One {}
// SAFETY: a hand is an array of one hand; the other is nobody else's.
unsafe impl Hands for One {
    const OFFSET: usize = std::mem::offset_of!(One, 0);
    const COUNT: usize = 1;
    const LAST: usize = std::mem::offset_of!(One, 1);
}

fn put(hands: &[One], payload: u32) -> bool {
    super::put::<_, 0>(hands, 0, Held::new(payload, 7), &AtomicU32::new(0)).is_some()
}

fn take(hands: &[One]) -> Option<Held> {
    super::take(hands, 0)
}

fn pinned() -> Meta<One> {
    assert!(enable(), "a glibc and a kernel with restartable sequences");
    set_affinity(&CpuMask::only(current_cpu())).unwrap();
    Meta::new(cpu_count()).unwrap()
}

#[test]
fn a_hand_holds_one_thing_on_the_cpu_that_put_it() {
    let hands = pinned();
    assert_eq!(take(&hands), None);
    assert!(put(&hands, 5) && !put(&hands, 6));

    let held = hands[current_cpu()].0.peek().unwrap();

    assert_eq!((held.payload(), held.tag()), (5, 7));
    assert_eq!(take(&hands), Some(held));
    assert_eq!(take(&hands), None);
}

#[test]
fn a_closed_gate_and_a_row_without_this_cpu_take_nothing() {
    let hands = pinned();
    let held = Held::new(1, 0);
    let open = AtomicU32::new(0);
    assert!(super::put::<_, 1>(&hands, 0, held, &AtomicU32::new(2)).is_none());
    assert!(super::put::<_, 1>(&hands, 1, held, &open).is_none());
    assert!(super::put::<One, 1>(&[], 0, held, &open).is_none());
    assert!(super::take::<One>(&[], 0).is_none());
    assert_eq!(take(&hands), None);
}

#[test]
fn what_is_marked_is_the_collectors() {
    let hands = pinned();
    let hand = &hands[current_cpu()].0;
    assert!(put(&hands, 5));
    let (one, two) = (Token::next(), Token::next());
    let held = hand.peek().unwrap();

    assert!(hand.mark(held, one) && !hand.mark(held, two));
    assert!(take(&hands).is_none() && !put(&hands, 6));
    assert_eq!((hand.collect(two), hand.collect(one)), (None, Some(5)));
    assert!(put(&hands, 6));

    let held = hand.peek().unwrap();
    assert!(hand.mark(held, one));
    hand.unmark(one);
    assert_eq!(take(&hands).map(Held::payload), Some(6));
}

/// Threads that wander between the CPUs pass tokens on, while another collects: each
/// thing is at one place at any time, and none is lost.
#[test]
fn nothing_is_lost_or_doubled_between_threads_and_a_collector() {
    const THINGS: usize = 64;
    const TURNS: usize = 200_000;
    assert!(enable());
    let hands: Meta<One> = Meta::new(cpu_count()).unwrap();
    let owned: Vec<AtomicBool> = (0..THINGS).map(|_| AtomicBool::new(false)).collect();
    let got = |payload: u32| {
        assert!(!owned[payload as usize - 1].swap(true, Relaxed), "{payload} twice");
        payload
    };
    let gone = |payload: u32| {
        assert!(owned[payload as usize - 1].swap(false, Relaxed), "{payload} of nobody");
    };
    let work = |mine: &mut Vec<u32>| {
        for _ in 0..TURNS {
            if let Some(held) = take(&hands) {
                mine.push(got(held.payload()));
            }
            if let Some(payload) = mine.pop() {
                gone(payload);
                if !put(&hands, payload) {
                    mine.push(got(payload));
                }
            }
        }
    };
    let collect = |mine: &mut Vec<u32>, done: &AtomicBool| {
        while !done.load(Relaxed) {
            let token = Token::next();
            let marked = |one: &&One| one.0.peek().is_some_and(|held| one.0.mark(held, token));
            if hands.iter().filter(marked).count() > 0 && membarrier_rseq() {
                mine.extend(hands.iter().filter_map(|one| one.0.collect(token)).map(got));
            }
        }
    };
    let done = AtomicBool::new(false);
    let mut all: Vec<u32> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|n| {
                let first = n * THINGS as u32 / 8 + 1;
                let mut mine: Vec<u32> = (first..first + THINGS as u32 / 8).map(got).collect();
                scope.spawn(|| {
                    work(&mut mine);
                    mine
                })
            })
            .collect();
        let collector = scope.spawn(|| {
            let mut mine = vec![];
            collect(&mut mine, &done);
            mine
        });
        let theirs: Vec<u32> = workers.into_iter().flat_map(|w| w.join().unwrap()).collect();
        done.store(true, Relaxed);
        theirs.into_iter().chain(collector.join().unwrap()).collect()
    });
    all.extend(hands.iter().filter_map(|one| one.0.peek()).map(Held::payload));
    all.sort_unstable();
    assert_eq!(all, (1..=THINGS as u32 / 2).collect::<Vec<_>>());
}
