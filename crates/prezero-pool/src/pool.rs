//! The pool, and a slot in its owner's hands.

use std::io;
use std::mem::{ManuallyDrop, forget};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::thread::{self, JoinHandle};

use prezero_sys::birth;
use prezero_sys::memory::{Errno, GRAIN};
use prezero_sys::thread::Unheard;

use crate::bits::Held;
use crate::memory::Memory;
use crate::scrubd;
use crate::slots::{PoolStats, Slots};

/// Bytes of scrubd's stack.
/// Fixed: it reads small files into a few KiB.
const STACK: usize = 128 << 10;

/// See the crate's page.
#[derive(Debug)]
pub struct Pool {
    slots: Arc<Slots>,
    /// scrubd, and the process that has it.
    thread: Option<(JoinHandle<()>, u32)>,
}

impl Pool {
    /// A pool of fresh slots, of which `slots` may be out at the same time, and its scrubd. Each has `bytes`, and no access
    /// survives the `guard` bytes before and after it; both are rounded up to pages. With a guard of 0 slots lie side by
    /// side. A pool that is dropped waits until scrubd is done with the slot in hand.
    ///
    /// # Errors
    /// What the kernel says: `EINVAL` for nothing, `ENOMEM` for more than the address space or a limit has, `ENOSYS` from a
    /// kernel whose memory is not zero after it was given back, or whose pages are larger than 4 KiB.
    pub fn new(slots: usize, bytes: usize, guard: usize) -> io::Result<Pool> {
        // One more, for scrubd to work on.
        let all = slots.checked_add(1).filter(|&all| slots > 0 && all <= u32::MAX as usize);
        let all = all.ok_or(Errno::INVAL)?;
        let slots = Arc::new(Slots::new(Memory::new(all, bytes, guard)?, all));
        let (_unheard, its) = (Unheard::for_a_thread(), slots.clone());
        let thread = thread::Builder::new().name("prezero-pool".into()).stack_size(STACK);
        // Without a thread each `take` clears for itself.
        let thread = thread.spawn(move || scrubd::run(&its)).ok();
        Ok(Pool { slots, thread: thread.map(|thread| (thread, birth::current())) })
    }

    /// A slot that is zero. `None`: all are out.
    #[inline]
    pub fn take(&self) -> Option<Slot<'_>> {
        let held = ManuallyDrop::new(self.slots.take()?);
        Some(Slot { pool: self, held })
    }

    /// Takes a slot back of which these bytes alone may be other than zero, beside those that [`Slot::bytes_mut`] handed
    /// out. The kernel is not asked. A slot that is dropped goes back without such a word.
    ///
    /// # Safety
    /// All other bytes are zero: `take` hands them out as they are.
    ///
    /// # Panics
    /// If it is another pool's, or a range lies outside.
    pub unsafe fn give(&self, slot: Slot<'_>, touched: impl IntoIterator<Item = Range<usize>>) {
        assert!(std::ptr::eq(self, slot.pool), "the slot is another pool's");
        touched.into_iter().for_each(|range| slot.note(&range));
        self.slots.forget(&slot.held);
    }

    /// The slot that lies there, back from its owner's [`into_raw`](Slot::into_raw). `None` where no slot that is out begins.
    ///
    /// # Safety
    /// The slot was turned into that address, and has not come back since.
    pub unsafe fn slot_at(&self, address: NonNull<u8>) -> Option<Slot<'_>> {
        // SAFETY: the caller's promise.
        let held = ManuallyDrop::new(unsafe { self.slots.held_at(address) }?);
        Some(Slot { pool: self, held })
    }

    /// Bytes of a slot.
    pub fn slot_bytes(&self) -> usize {
        self.slots.memory.pages() * GRAIN
    }

    /// What was handed out so far.
    pub fn stats(&self) -> PoolStats {
        self.slots.stats()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        match self.thread.take() {
            Some((thread, process)) if process == birth::current() => {
                self.slots.ended.store(true, Ordering::Release);
                thread.thread().unpark();
                let _ = thread.join();
            }
            // The child of a fork has no such thread.
            thread => forget(thread),
        }
    }
}

/// A slot in its owner's hands. Dropped, it goes back: scrubd clears what [`bytes_mut`](Slot::bytes_mut) handed out, and
/// asks the kernel for more if [`as_mut_ptr`](Slot::as_mut_ptr) was called.
#[derive(Debug)]
pub struct Slot<'a> {
    pool: &'a Pool,
    held: ManuallyDrop<Held>,
}

impl Slot<'_> {
    /// What it holds.
    pub fn bytes(&self) -> &[u8] {
        self.pool.slots.memory.content(&self.held)
    }

    /// A part of it, to write to. The pool notes the part's pages, and clears them.
    ///
    /// # Panics
    /// If the part lies outside.
    pub fn bytes_mut(&mut self, part: Range<usize>) -> &mut [u8] {
        self.note(&part);
        &mut self.pool.slots.memory.content_mut(&mut self.held)[part]
    }

    /// Where it begins, for code that notes nothing. What such code maps over the slot, protects or locks is as before when
    /// the slot goes back.
    pub fn as_mut_ptr(&mut self) -> NonNull<u8> {
        let slots = &self.pool.slots;
        slots.touch(&self.held, slots.memory.pages());
        slots.memory.address(&self.held)
    }

    /// The slot as its address, until [`Pool::slot_at`]: for owners that no borrow reaches, as in C.
    pub fn into_raw(mut self) -> NonNull<u8> {
        let address = self.as_mut_ptr();
        forget(self);
        address
    }

    fn note(&self, part: &Range<usize>) {
        let outside = part.start > part.end || part.end > self.pool.slot_bytes();
        assert!(!outside, "outside the slot: {part:?}");
        let pages = part.start / GRAIN..part.end.div_ceil(GRAIN);
        pages.for_each(|page| self.pool.slots.touch(&self.held, page));
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let slots = &self.pool.slots;
        // SAFETY: taken once, here.
        slots.give(unsafe { ManuallyDrop::take(&mut self.held) });
        // Pairs with that of scrubd, which looks for dirty slots before it dozes.
        fence(Ordering::SeqCst);
        if slots.quiet.load(Ordering::Relaxed)
            && slots.quiet.swap(false, Ordering::Relaxed)
            && let Some((scrubd, _)) = &self.pool.thread
        {
            scrubd.thread().unpark();
        }
    }
}
