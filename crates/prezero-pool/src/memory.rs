//! Where the slots lie, and the calls that make one zero: all of the crate's unsafe code but the owners' promises.
//!
//! A method that changes a slot takes the [`Held`] of it: that no other code uses the slot meanwhile is the promise of
//! [`Bits`](crate::bits::Bits), which makes one `Held` of a slot at a time. A pool's `Held` stays in the pool.

use std::ptr::NonNull;

use prezero_sys::memory::{Errno, GRAIN, Reservation, promises};
use prezero_sys::process;
use rustix::mm::{MprotectFlags, mprotect};

use crate::bits::Held;

/// Pages of which the kernel says at once whether they are resident.
/// Fixed: the kernel looks at as many at a time, and they are bytes on the stack of a thread that may have little.
const AT_ONCE: usize = 1 << 12;

/// The slots' memory: a guard, a slot, a guard, a slot, and so on to the last guard.
#[derive(Debug)]
pub(crate) struct Memory {
    reservation: Reservation,
    /// Bytes of a slot, and from one slot to the next.
    bytes: usize,
    stride: usize,
}

impl Memory {
    /// Reserves `slots` of `bytes` each with `guard` bytes around each, all rounded up to pages.
    ///
    /// # Errors
    /// `INVAL` for slots of no byte, `NOMEM` for more than the address space or a limit has, `NOSYS` where memory that was
    /// given back is not zero.
    pub(crate) fn new(slots: usize, bytes: usize, guard: usize) -> Result<Memory, Errno> {
        let round = |bytes: usize| bytes.checked_next_multiple_of(GRAIN).ok_or(Errno::NOMEM);
        let (bytes, guard) = (round(bytes)?, round(guard)?);
        let stride = bytes.checked_add(guard).ok_or(Errno::NOMEM)?;
        let len = stride.checked_mul(slots).and_then(|len| len.checked_add(guard));
        if bytes == 0 || !promises::releases_to_zero() {
            return Err(if bytes == 0 { Errno::INVAL } else { Errno::NOSYS });
        }
        let reservation = Reservation::new(len.ok_or(Errno::NOMEM)?, GRAIN)?;
        for nth in (0..=slots).filter(|_| guard > 0) {
            // SAFETY: inside the reservation, which no other code has seen; the guards are no part of a slot.
            unsafe {
                let first = reservation.base().add(nth * stride);
                mprotect(first.as_ptr().cast(), guard, MprotectFlags::empty())?;
            }
        }
        Ok(Memory { reservation, bytes, stride })
    }

    /// Pages of a slot.
    pub(crate) fn pages(&self) -> usize {
        self.bytes / GRAIN
    }

    /// Where a slot begins in the reservation.
    fn offset(&self, held: &Held) -> usize {
        self.stride * held.slot() + (self.stride - self.bytes)
    }

    /// The number of the slot that begins there.
    pub(crate) fn slot_at(&self, address: NonNull<u8>) -> Option<usize> {
        let offset = address.addr().get().checked_sub(self.reservation.base().addr().get())?;
        let end = offset.checked_add(self.bytes)?;
        let is_one = end.is_multiple_of(self.stride) && end <= self.reservation.len();
        is_one.then(|| end / self.stride - 1)
    }

    /// Where a slot begins.
    pub(crate) fn address(&self, held: &Held) -> NonNull<u8> {
        // SAFETY: a slot lies inside the reservation.
        unsafe { self.reservation.base().add(self.offset(held)) }
    }

    /// What a slot holds.
    pub(crate) fn content<'a>(&'a self, held: &'a Held) -> &'a [u8] {
        // SAFETY: mapped for the life of `self` and readable; the holder alone writes, by a unique borrow of `held`.
        unsafe { std::slice::from_raw_parts(self.address(held).as_ptr(), self.bytes) }
    }

    /// The same, to write to.
    pub(crate) fn content_mut<'a>(&'a self, held: &'a mut Held) -> &'a mut [u8] {
        // SAFETY: as above, and the borrow of `held` is unique.
        unsafe { std::slice::from_raw_parts_mut(self.address(held).as_ptr(), self.bytes) }
    }

    /// Gives a slot's memory back to the kernel. The slot is zero then.
    ///
    /// # Errors
    /// `INVAL` where part of it is locked in memory: it may be other than zero.
    pub(crate) fn release(&self, held: &mut Held) -> Result<(), Errno> {
        // SAFETY: the slot is in hand, and nothing relies on what it held.
        unsafe { self.reservation.release(self.offset(held), self.bytes) }
    }

    /// Names the pages of a slot that may be other than zero, for they are resident. False where the kernel cannot say
    /// that: an absent page may lie in swap.
    pub(crate) fn find(&self, held: &Held, mut each: impl FnMut(usize)) -> bool {
        let (pages, mut states) = (self.pages(), [0; AT_ONCE]);
        !process::has_swap()
            && (0..pages).step_by(AT_ONCE).all(|first| {
                let states = &mut states[..AT_ONCE.min(pages - first)];
                let told = self.reservation.residency(self.offset(held) + first * GRAIN, states);
                // Most are not: eight at a time.
                let eights = (first..).step_by(8).zip(states.chunks(8));
                for (first, eight) in eights.filter(|(_, eight)| *eight != [0; 8]) {
                    let resident = (first..).zip(eight).filter(|(_, state)| **state & 1 != 0);
                    resident.for_each(|(page, _)| each(page));
                }
                told.is_ok()
            })
    }
}
