//! Hands on real CPUs: one thread, two that race, and a collector.

use super::*;
use crate::memory::Meta;
use crate::thread::{CpuMask, cpu_count, current_cpu, set_affinity};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What a CPU has here.
#[repr(C)]
struct Two([Hand; 2], AtomicU64);

// SAFETY: atomics, for which zero bytes are a valid value, without a destructor.
unsafe impl Plain for Two {}
// SAFETY: the fields are what they say.
unsafe impl Hands for Two {
    const OFFSET: usize = std::mem::offset_of!(Two, 0);
    const COUNT: usize = 2;
    const LAST: usize = std::mem::offset_of!(Two, 1);
}

fn put(hands: &[Two], which: usize, payload: u32) -> bool {
    super::put::<_, 0>(hands, which, Held::new(payload, 7), &AtomicU32::new(0)).is_some()
}

fn take(hands: &[Two], which: usize) -> Option<Held> {
    Some(super::take(hands, which)?.0)
}

fn each(hands: &[Two]) -> impl Iterator<Item = &Hand> {
    hands.iter().flat_map(|cpu| &cpu.0)
}

fn pinned() -> Meta<Two> {
    assert!(enable(), "a glibc and a kernel with restartable sequences");
    set_affinity(&CpuMask::only(current_cpu())).unwrap();
    Meta::new(cpu_count()).unwrap()
}

#[test]
fn a_hand_holds_one_thing_on_the_cpu_that_put_it() {
    let hands = pinned();
    assert_eq!(take(&hands, 0), None);
    assert!(put(&hands, 0, 5) && !put(&hands, 0, 6));

    let held = hands[current_cpu()].0[0].peek().unwrap();

    assert_eq!((held.payload(), held.tag()), (5, Some(7)));
    let (taken, whose) = super::take(&hands[..], 0).unwrap();
    assert_eq!(taken, held);
    assert!(std::ptr::eq(whose, &hands[current_cpu()]));
    assert_eq!(take(&hands, 0), None);
}

#[test]
fn the_hands_of_a_cpu_are_apart_whichever_was_last() {
    let hands = pinned();
    for (which, payload) in [(1, 10), (0, 20)] {
        assert!(put(&hands, which, payload));
    }
    assert!(!put(&hands, 0, 21) && !put(&hands, 1, 11));
    let peeked = [0, 1].map(|which| hands[current_cpu()].0[which].peek().map(Held::payload));
    assert_eq!(peeked, [Some(20), Some(10)]);
    assert_eq!(take(&hands, 1).map(Held::payload), Some(10));
    assert!(put(&hands, 1, 12) && !put(&hands, 0, 22));
    assert_eq!(take(&hands, 0).map(Held::payload), Some(20));
}

#[test]
fn a_closed_gate_and_a_row_without_this_cpu_take_nothing() {
    let hands = pinned();
    let held = Held::new(1, 0);
    let open = AtomicU32::new(0);
    assert!(super::put::<_, 1>(&hands, 0, held, &AtomicU32::new(2)).is_none());
    assert!(super::put::<_, 1>(&hands, 2, held, &open).is_none());
    assert!(super::put::<Two, 1>(&[], 0, held, &open).is_none());
    assert!(super::take::<Two>(&[], 0).is_none());
    assert_eq!(take(&hands, 0), None);
}

#[test]
fn what_is_marked_is_the_collectors() {
    let hands = pinned();
    let hand = &hands[current_cpu()].0[0];
    assert!(put(&hands, 0, 5));
    let (one, two) = (Token::next(), Token::next());
    let held = hand.peek().unwrap();

    assert!(hand.mark(held, one) && !hand.mark(held, two));
    assert!(take(&hands, 0).is_none() && !put(&hands, 0, 6));
    assert_eq!((hand.collect(two), hand.collect(one)), (None, Some(5)));
    assert!(put(&hands, 0, 6));

    let held = hand.peek().unwrap();
    assert!(hand.mark(held, one));
    hand.unmark(one);
    assert_eq!(take(&hands, 0).map(Held::payload), Some(6));
}

/// The first collector was kept from its CPU, and comes back in the end.
#[test]
fn who_marks_last_has_what_was_marked_before() {
    let hands = pinned();
    let hand = &hands[current_cpu()].0[0];
    assert!(put(&hands, 0, 5));
    let (one, two) = (Token::next(), Token::next());
    assert!(hand.mark(hand.peek().unwrap(), one));

    let marked = hand.peek().unwrap();
    assert_eq!((marked.payload(), marked.tag()), (5, None));
    assert!(hand.mark(marked, two));

    hand.unmark(one);
    assert_eq!((hand.collect(one), hand.collect(two)), (None, Some(5)));
    assert_eq!(hand.collect(one), None);
}

/// Threads that wander between the CPUs pass things on, while two others collect: each
/// thing is at one place at any time, and none is lost.
#[test]
fn nothing_is_lost_or_doubled_between_threads_and_a_collector() {
    const THINGS: usize = 64;
    const TURNS: usize = 200_000;
    assert!(enable());
    let hands: Meta<Two> = Meta::new(cpu_count()).unwrap();
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
            let which = mine.len() % 2;
            if let Some(held) = take(&hands, which) {
                mine.push(got(held.payload()));
            }
            if let Some(payload) = mine.pop() {
                gone(payload);
                if !put(&hands, which, payload) {
                    mine.push(got(payload));
                }
            }
        }
    };
    let collect = |mine: &mut Vec<u32>, done: &AtomicBool| {
        while !done.load(Relaxed) {
            let token = Token::next();
            let marked = |hand: &&Hand| hand.peek().is_some_and(|held| hand.mark(held, token));
            if each(&hands).filter(marked).count() > 0 && fence() {
                mine.extend(each(&hands).filter_map(|hand| hand.collect(token)).map(got));
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
        let collectors = [(); 2].map(|()| {
            scope.spawn(|| {
                let mut mine = vec![];
                collect(&mut mine, &done);
                mine
            })
        });
        let theirs: Vec<u32> = workers.into_iter().flat_map(|w| w.join().unwrap()).collect();
        done.store(true, Relaxed);
        theirs.into_iter().chain(collectors.into_iter().flat_map(|c| c.join().unwrap())).collect()
    });
    all.extend(each(&hands).filter_map(Hand::peek).map(Held::payload));
    all.sort_unstable();
    assert_eq!(all, (1..=THINGS as u32 / 2).collect::<Vec<_>>());
}
