//! What may happen to a zone, at random.

use proptest::prelude::*;

use super::super::fake::Fault;
use super::PAGES;
use crate::config::Verify;
use crate::policy::Throttle;

#[derive(Clone, Copy, Debug)]
pub(super) enum Request {
    Zero,
    ZeroFront,
    OnlyZero,
    Plain,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Refusal {
    Populate,
    Release,
    Replace,
    Residency,
    Hide,
    Show,
    Move,
    Extend,
    Unmap,
}

/// Pages of a block as fractions of it, in 256ths: where they begin and how many.
pub(super) type Part = (u8, u8);

#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    Take(Request, u32, u32),
    Write(usize, Part, u8),
    Free(usize),
    FreeZeroed(usize),
    TailTo(usize, u8),
    Grow(usize, u32),
    /// The owner changes a mapping, and may write into what it got.
    Remapped(usize, Part, Option<u8>),
    SwapOut(u32, u32),
    Pass(u64),
    Step(Throttle, u32),
    Reclaim,
    Fork,
    /// A fork, after which the test is the child, or the parent while that lives.
    Child,
    /// Memory that has been idle for a while is hidden from children and dumps.
    Hide,
    /// Address space that holds nothing leaves the zone, down to that number of huge blocks.
    Trim(u32),
    /// Others hook the calls by which pages leave their addresses, or do no more.
    Watch(bool),
    /// The process's memory has a limit from now on, in huge blocks, or none.
    Limit(Option<u64>),
    Refuse(Refusal, Fault),
}

pub(super) fn pages() -> impl Strategy<Value = u32> {
    prop_oneof![
        2 => (0u32..10).prop_map(|order| 1 << order),
        1 => (1u32..=32).prop_map(|slices| slices * 16),
        1 => 1u32..64,
        1 => 1u32..2048,
    ]
}

pub(super) fn operation() -> impl Strategy<Value = Op> {
    let request = prop_oneof![
        2 => Just(Request::Zero),
        2 => Just(Request::ZeroFront),
        1 => Just(Request::OnlyZero),
        2 => Just(Request::Plain),
    ];
    let align = prop_oneof![4 => Just(0u32), 1 => 0u32..11];
    let which = any::<prop::sample::Index>().prop_map(|index| index.index(1 << 16));
    let which = || which.clone();
    let byte = || 1u8..=255;
    let mood = prop_oneof![4 => Just(Throttle::Normal), 1 => Just(Throttle::Resting), 1 => Just(Throttle::Pressed)];
    let time = prop_oneof![
        Just(10_000u64),
        Just(200_000),
        Just(1_000_000),
        Just(110_000_000),
        Just(700_000_000)
    ];
    prop_oneof![
        12 => (request, pages(), align).prop_map(|(r, p, a)| Op::Take(r, p, a)),
        8 => (which(), any::<Part>(), byte()).prop_map(|(w, p, b)| Op::Write(w, p, b)),
        7 => which().prop_map(Op::Free),
        4 => which().prop_map(Op::FreeZeroed),
        2 => (which(), any::<u8>()).prop_map(|(w, n)| Op::TailTo(w, n)),
        3 => (which(), 1u32..300).prop_map(|(w, n)| Op::Grow(w, n)),
        1 => (which(), any::<Part>(), prop::option::of(byte()))
            .prop_map(|(w, p, b)| Op::Remapped(w, p, b)),
        1 => (0..PAGES, 1u32..600).prop_map(|(p, n)| Op::SwapOut(p, n)),
        5 => time.prop_map(Op::Pass),
        8 => (mood, 1u32..30).prop_map(|(m, n)| Op::Step(m, n)),
        1 => Just(Op::Reclaim),
        1 => Just(Op::Fork),
        1 => Just(Op::Child),
        1 => Just(Op::Hide),
        1 => (0..3u32).prop_map(Op::Trim),
        1 => any::<bool>().prop_map(Op::Watch),
        1 => prop::option::weighted(0.8, 0u64..64).prop_map(Op::Limit),
    ]
}

pub(super) fn refusal() -> impl Strategy<Value = Op> {
    let call = prop_oneof![
        Just(Refusal::Populate),
        Just(Refusal::Release),
        Just(Refusal::Replace),
        Just(Refusal::Residency),
        Just(Refusal::Hide),
        Just(Refusal::Show),
        Just(Refusal::Move),
        Just(Refusal::Extend),
        Just(Refusal::Unmap)
    ];
    let fault = prop_oneof![
        2 => Just(Fault::Never), 2 => (1u32..5).prop_map(Fault::Nth), 1 => Just(Fault::Always)
    ];
    (call, fault).prop_map(|(c, f)| Op::Refuse(c, f))
}

pub(super) fn verify() -> impl Strategy<Value = Verify> {
    prop_oneof![Just(Verify::Off), Just(Verify::Sample), Just(Verify::Full)]
}
