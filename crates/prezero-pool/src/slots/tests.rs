//! Random histories of a pool without its thread, beside a naive model, and an oracle that reads every slot.

use proptest::prelude::*;

use super::*;
use crate::bits::Held;
use crate::memory::Memory;

const SLOTS: usize = 3;
const PAGE: usize = 4096;
const PAGES: usize = 70;

/// How an owner writes and gives, or what scrubd does.
#[derive(Clone, Copy, Debug)]
enum Op {
    Take,
    /// Writes pages of the nth slot that is out, and marks them, or that it is not known which.
    Write {
        nth: usize,
        first: usize,
        pages: usize,
        known: bool,
    },
    Give(usize),
    Scrub,
    PurgeZero,
    PurgeDirty,
}

fn ops() -> impl Strategy<Value = Op> {
    let write = (0..SLOTS, 0..PAGES, 1..PAGES, any::<bool>());
    prop_oneof![
        3 => Just(Op::Take),
        4 => write.prop_map(|(nth, first, pages, known)| Op::Write { nth, first, pages, known }),
        3 => (0..SLOTS).prop_map(Op::Give),
        2 => Just(Op::Scrub),
        1 => Just(Op::PurgeZero),
        1 => Just(Op::PurgeDirty),
    ]
}

/// A slot that is out, and what its owner wrote.
struct Out {
    held: Held,
    content: Vec<u8>,
}

proptest! {
    #[test]
    fn a_slot_that_is_taken_is_zero_and_its_owners_alone(
        ops in prop::collection::vec(ops(), 1..80),
        guard in prop_oneof![Just(0), Just(PAGE)],
    ) {
        let memory = Memory::new(SLOTS, PAGES * PAGE, guard).unwrap();
        let slots = Slots::new(memory, SLOTS);
        let mut out: Vec<Out> = Vec::new();
        let mut home = [None; SLOTS];
        for (nth, op) in ops.into_iter().enumerate() {
            match op {
                Op::Take => {
                    let held = slots.take();
                    prop_assert_eq!(held.is_some(), out.len() < SLOTS);
                    let Some(held) = held else { continue };
                    let content = slots.memory.content(&held);
                    prop_assert!(content.iter().all(|&byte| byte == 0), "a false zero: slot {}", held.slot());
                    prop_assert!(out.iter().all(|other| other.held.slot() != held.slot()));
                    let at = slots.memory.address(&held);
                    prop_assert_eq!(*home[held.slot()].get_or_insert(at), at);
                    out.push(Out { held, content: vec![0; PAGES * PAGE] });
                }
                Op::Write { nth: which, first, pages, known } if which < out.len() => {
                    let Out { held, content } = &mut out[which];
                    let part = first * PAGE..(first + pages).min(PAGES) * PAGE;
                    if known {
                        (part.start / PAGE..part.end / PAGE).for_each(|page| slots.touch(held, page));
                    } else {
                        slots.touch(held, PAGES);
                    }
                    content[part.clone()].fill(nth as u8 | 1);
                    slots.memory.content_mut(held)[part].fill(nth as u8 | 1);
                }
                Op::Give(which) if which < out.len() => {
                    let Out { held, content } = out.swap_remove(which);
                    prop_assert!(slots.memory.content(&held) == content, "written by another");
                    slots.give(held);
                }
                Op::Scrub => slots.dirty.take_any().into_iter().for_each(|it| slots.scrub(it, After::Keep)),
                Op::PurgeZero => slots.zero.take_any().into_iter().for_each(|it| slots.scrub(it, After::Release)),
                Op::PurgeDirty => slots.dirty.take_any().into_iter().for_each(|it| slots.scrub(it, After::Release)),
                Op::Write { .. } | Op::Give(_) => {}
            }
            let inside = slots.zero.count() + slots.dirty.count() + slots.fresh.count();
            prop_assert_eq!(inside + out.len(), SLOTS);
        }
    }
}

fn few(slots: usize) -> Slots {
    Slots::new(Memory::new(slots, PAGES * PAGE, 0).unwrap(), slots)
}

fn dirty_slot(slots: &Slots) {
    let mut held = slots.fresh.take_any().unwrap();
    slots.memory.content_mut(&mut held)[0] = 1;
    slots.touch(&held, 0);
    slots.give(held);
}

#[test]
fn zero_slots_come_before_fresh_ones_and_those_before_many_dirty_ones() {
    let slots = few(4);
    dirty_slot(&slots);
    let first = slots.take().unwrap();
    assert_eq!(slots.stats().fresh, 1, "one dirty slot waits for scrubd");
    slots.scrub(slots.dirty.take_any().unwrap(), After::Keep);
    let second = slots.take().unwrap();
    assert_eq!(slots.stats().zero, 1);
    slots.give(first);
    slots.give(second);
    let _third = slots.take().unwrap();
    assert_eq!(slots.stats().cleared, 1, "two dirty slots and none out: one is cleared");
}

#[test]
fn what_is_locked_in_memory_is_cleared_where_it_cannot_be_given_back() {
    let slots = Slots::new(Memory::new(1, PAGES * PAGE, 0).unwrap(), 1);
    let mut held = slots.take().unwrap();
    let at = slots.memory.address(&held).as_ptr();
    // SAFETY: two pages of the slot in hand.
    #[allow(unsafe_code)]
    if unsafe { libc::mlock(at.add(PAGE).cast(), 2 * PAGE) } != 0 {
        return; // No page may be locked here.
    }
    slots.memory.content_mut(&mut held).fill(7);
    slots.touch(&held, PAGES);
    slots.give(held);
    slots.scrub(slots.dirty.take_any().unwrap(), After::Release);
    assert_eq!(slots.zero.count(), 1, "the kernel keeps what is locked");
    let held = slots.take().unwrap();
    assert!(slots.memory.content(&held).iter().all(|&byte| byte == 0));
}

#[test]
fn an_address_is_a_slots_only_where_one_begins() {
    for guard in [0, PAGE] {
        let slots = Slots::new(Memory::new(SLOTS, PAGES * PAGE, guard).unwrap(), SLOTS);
        let held: Vec<_> = std::iter::from_fn(|| slots.fresh.take_any()).collect();
        let at = |held: &Held| slots.memory.address(held);
        for one in &held {
            assert_eq!(slots.memory.slot_at(at(one)), Some(one.slot()));
            for other in [at(one).addr().get() - 1, at(one).addr().get() + PAGE] {
                let other = NonNull::new(std::ptr::without_provenance_mut(other)).unwrap();
                assert_eq!(slots.memory.slot_at(other), None);
            }
        }
        let (first, last) = (at(&held[0]).addr().get(), at(&held[SLOTS - 1]).addr().get());
        for outside in [first - PAGES * PAGE - guard, last + PAGES * PAGE + guard] {
            let outside = NonNull::new(std::ptr::without_provenance_mut(outside)).unwrap();
            assert_eq!(slots.memory.slot_at(outside), None, "guard {guard}");
        }
    }
}
