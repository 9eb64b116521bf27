//! USDT probes: places where a tracer may look, one no-operation each while no tracer does.
//!
//! Provider `prezero`, in `libprezero.so` or in whatever links this crate. Addresses are byte
//! offsets in the zone. `hit` and `miss` come where the counters of these names rise; a request
//! for memory as it is has no probe, since the quickest take as long as a look would.
//!
//! | probe | arguments | when |
//! |---|---|---|
//! | `hit` | offset, bytes | a request for zeroed memory took a block that was zero |
//! | `miss` | bytes | cleared inline |
//! | `scrub__begin` | offset, bytes | scrubd begins to clear the dirty part of a block |
//! | `scrub__end` | offset, bytes | cleared |
//! | `abort` | offset | an allocation took the block meanwhile |
//! | `release` | offset, bytes | resident bytes went back to the kernel |
#![allow(unsafe_code)]

use crate::units::{PAGE, PageId, Span};

fn offset(first: PageId) -> u64 {
    u64::from(first.0) * PAGE as u64
}

fn bytes(pages: u32) -> u64 {
    u64::from(pages) * PAGE as u64
}

#[inline(always)]
pub(crate) fn hit(span: Span) {
    let Span { first, pages } = span;
    probe::probe!(prezero, hit, offset(first), bytes(pages));
}

#[inline(always)]
pub(crate) fn miss(cleared: u64) {
    probe::probe!(prezero, miss, cleared);
}

#[inline(always)]
pub(crate) fn scrub_begin(span: Span) {
    let Span { first, pages } = span;
    probe::probe!(prezero, scrub__begin, offset(first), bytes(pages));
}

#[inline(always)]
pub(crate) fn scrub_end(cleared: Span) {
    probe::probe!(prezero, scrub__end, offset(cleared.first), bytes(cleared.pages));
}

#[inline(always)]
pub(crate) fn abort(first: PageId) {
    probe::probe!(prezero, abort, offset(first));
}

#[inline(always)]
pub(crate) fn release(first: PageId, resident: u32) {
    probe::probe!(prezero, release, offset(first), bytes(resident));
}
