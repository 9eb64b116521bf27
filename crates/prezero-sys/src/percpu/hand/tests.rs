//! Hands on real CPUs: one thread, two that race, and a collector.

use super::*;
use crate::memory::meta::Meta;
use crate::thread::{CpuMask, cpu_count, current_cpu, set_affinity};
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What a CPU has here.
#[repr(C)]
struct Two([Hand; 2], AtomicU64, [AtomicU64; 2]);

// SAFETY: atomics, for which zero bytes are a valid value, without a destructor.
unsafe impl Plain for Two {}

/// Two hands a CPU, and what decides.
struct Test {
    cpus: Meta<Two>,
    gate: Gate,
}

// SAFETY: the fields are what they say.
unsafe impl Row<Two> for Test {
    const CPUS: usize = offset_of!(Test, cpus);
    const GATE: usize = offset_of!(Test, gate);
    const HANDS: usize = offset_of!(Two, 0);
    const COUNT: usize = 2;
    const LAST: usize = offset_of!(Two, 1);
    const PUTS: usize = offset_of!(Two, 2);
}

impl Test {
    fn new(cpus: usize) -> Test {
        assert!(enable(), "a glibc and a kernel with restartable sequences");
        Test { cpus: Meta::new(cpus).unwrap(), gate: Gate::default() }
    }

    fn pinned() -> Test {
        set_affinity(&CpuMask::only(current_cpu())).unwrap();
        Test::new(cpu_count())
    }

    /// The hand of this thread's CPU.
    fn hand(&self, which: usize) -> &Hand {
        &self.cpus[current_cpu()].0[which]
    }
}

/// Payloads are told by their number here.
fn number(held: Held) -> usize {
    held.payload() >> 16
}

fn put(hands: &Test, which: usize, number: usize) -> bool {
    super::put::<_, _, 0>(hands, which, Held::new(number << 16, 7))
}

fn take(hands: &Test, which: usize) -> Option<usize> {
    Some(super::take(hands, which)? >> 16)
}

fn collect(hand: &Hand, token: Token) -> Option<usize> {
    Some(hand.collect(token)? >> 16)
}

fn each(hands: &Test) -> impl Iterator<Item = &Hand> {
    hands.cpus.iter().flat_map(|cpu| &cpu.0)
}

#[test]
fn a_hand_holds_one_thing_on_the_cpu_that_put_it() {
    let hands = Test::pinned();
    assert_eq!(take(&hands, 0), None);
    assert!(put(&hands, 0, 5) && !put(&hands, 0, 6));

    let held = hands.hand(0).peek().unwrap();

    assert_eq!((number(held), held.tag()), (5, Some(7)));
    let (taken, whose) = take_of(&hands, 0).unwrap();
    assert_eq!(taken, held);
    assert!(std::ptr::eq(whose, &hands.cpus[current_cpu()]));
    assert_eq!([0, 1].map(|which| whose.2[which].load(Relaxed)), [1, 0]);
    assert_eq!(take(&hands, 0), None);
}

#[test]
fn the_hands_of_a_cpu_are_apart_whichever_was_last() {
    let hands = Test::pinned();
    for (which, payload) in [(1, 10), (0, 20)] {
        assert!(put(&hands, which, payload));
    }
    assert!(!put(&hands, 0, 21) && !put(&hands, 1, 11));
    let peeked = [0, 1].map(|which| hands.hand(which).peek().map(number));
    assert_eq!(peeked, [Some(20), Some(10)]);
    assert_eq!(take(&hands, 1), Some(10));
    assert!(put(&hands, 1, 12) && !put(&hands, 0, 22));
    assert_eq!(take(&hands, 0), Some(20));
}

#[test]
fn payload_tag_and_token_fill_the_word_and_keep_apart() {
    const LAST: usize = 0xffff_ffff_0000;
    for payload in [1 << 16, 0x7fff_1234_0000, LAST] {
        for tag in [0, 1, TAG] {
            let held = Held::new(payload, tag | 1 << 15);
            assert_eq!((held.payload(), held.tag(), held.0 >> 63), (payload, Some(tag), 0));
        }
        for token in [0, 1, 0xffff, 0x1_0000, u32::MAX >> 1].map(Token) {
            let word = token.marks(payload);
            let marked = Held(word);
            assert_eq!((marked.payload(), marked.tag(), word >> 63), (payload, None, 1));
            for other in [Token(token.0 ^ 1), Token(token.0 ^ 1 << 16), Token(token.0 ^ 1 << 30)] {
                assert_ne!(other.marks(payload), word);
            }
        }
    }
}

#[test]
fn nothing_comes_by_a_closed_gate_or_to_a_hand_that_is_not_there() {
    let hands = Test::pinned();
    hands.gate.word.store(1, Relaxed);
    assert!(!put(&hands, 0, 1));
    assert!(super::put::<_, _, 1>(&hands, 0, Held::new(1 << 16, 0)));
    assert_eq!(take(&hands, 0), Some(1));
    hands.gate.word.store(0, Relaxed);
    assert!(!put(&hands, 2, 1) && take(&hands, 2).is_none());
    let nobody = Test::new(0);
    assert!(!put(&nobody, 0, 1) && take(&nobody, 0).is_none() && take_of(&nobody, 0).is_none());
}

#[test]
fn a_row_that_is_shut_gives_back_what_it_has() {
    let hands = Test::pinned();
    assert!(put(&hands, 0, 1));
    hands.gate.shut.store(1, Relaxed);
    assert!(!put(&hands, 1, 2));
    assert_eq!(take(&hands, 0), Some(1));
    assert!(!put(&hands, 0, 1));
}

#[test]
fn what_is_marked_is_the_collectors() {
    let hands = Test::pinned();
    let hand = hands.hand(0);
    assert!(put(&hands, 0, 5));
    let (one, two) = (Token::next(), Token::next());
    let held = hand.peek().unwrap();

    assert!(hand.mark(held, one) && !hand.mark(held, two));
    assert!(take(&hands, 0).is_none() && !put(&hands, 0, 6));
    assert_eq!((collect(hand, two), collect(hand, one)), (None, Some(5)));
    assert!(put(&hands, 0, 6));

    let held = hand.peek().unwrap();
    assert!(hand.mark(held, one));
    hand.unmark(one);
    assert_eq!(take(&hands, 0), Some(6));
}

/// The first collector was kept from its CPU, and comes back in the end.
#[test]
fn who_marks_last_has_what_was_marked_before() {
    let hands = Test::pinned();
    let hand = hands.hand(0);
    assert!(put(&hands, 0, 5));
    let (one, two) = (Token::next(), Token::next());
    assert!(hand.mark(hand.peek().unwrap(), one));

    let marked = hand.peek().unwrap();
    assert_eq!((number(marked), marked.tag()), (5, None));
    assert!(hand.mark(marked, two));

    hand.unmark(one);
    assert_eq!((collect(hand, one), collect(hand, two)), (None, Some(5)));
    assert_eq!(collect(hand, one), None);
}

/// Threads that wander between the CPUs pass things on, while two others collect: each
/// thing is at one place at any time, and none is lost.
#[test]
fn nothing_is_lost_or_doubled_between_threads_and_a_collector() {
    const THINGS: usize = 64;
    const TURNS: usize = 200_000;
    let hands = Test::new(cpu_count());
    let owned: Vec<AtomicBool> = (0..THINGS).map(|_| AtomicBool::new(false)).collect();
    let got = |number: usize| {
        assert!(!owned[number - 1].swap(true, Relaxed), "{number} twice");
        number
    };
    let gone = |number: usize| {
        assert!(owned[number - 1].swap(false, Relaxed), "{number} of nobody");
    };
    let work = |mine: &mut Vec<usize>| {
        for _ in 0..TURNS {
            let which = mine.len() % 2;
            if let Some(thing) = take(&hands, which) {
                mine.push(got(thing));
            }
            if let Some(thing) = mine.pop() {
                gone(thing);
                if !put(&hands, which, thing) {
                    mine.push(got(thing));
                }
            }
        }
    };
    let collector = |mine: &mut Vec<usize>, done: &AtomicBool| {
        while !done.load(Relaxed) {
            let token = Token::next();
            let marked = |hand: &&Hand| hand.peek().is_some_and(|held| hand.mark(held, token));
            if each(&hands).filter(marked).count() > 0 && fence() {
                mine.extend(each(&hands).filter_map(|hand| collect(hand, token)).map(got));
            }
        }
    };
    let done = AtomicBool::new(false);
    let mut all: Vec<usize> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|n| {
                let first = n * THINGS / 8 + 1;
                let mut mine: Vec<usize> = (first..first + THINGS / 8).map(got).collect();
                scope.spawn(|| {
                    work(&mut mine);
                    mine
                })
            })
            .collect();
        let collectors = [(); 2].map(|()| {
            scope.spawn(|| {
                let mut mine = vec![];
                collector(&mut mine, &done);
                mine
            })
        });
        let theirs: Vec<usize> = workers.into_iter().flat_map(|w| w.join().unwrap()).collect();
        done.store(true, Relaxed);
        theirs.into_iter().chain(collectors.into_iter().flat_map(|c| c.join().unwrap())).collect()
    });
    all.extend(each(&hands).filter_map(Hand::peek).map(number));
    all.sort_unstable();
    assert_eq!(all, (1..=THINGS / 2).collect::<Vec<_>>());
}

#[test]
fn an_area_is_usable_when_it_is_known_and_nobody_bars_it() {
    let area = Area::unknown();
    assert_eq!(area.usable(), None);
    area.bar();
    area.learn(Some(-64));
    assert!(area.usable().is_none() && area.is_barred(), "who learns does not lift a bar");
    area.bar();
    area.unbar();
    assert_eq!(area.usable(), None, "one of two is left");
    area.unbar();
    assert_eq!(area.usable(), Some(Area::BIAS - 64));
    area.learn(Some(2464));
    assert_eq!(area.usable(), Some(Area::BIAS + 2464));
    area.learn(None);
    assert!(area.usable().is_none() && !area.is_barred());
}
