//! A backing over heap memory that knows which of its pages are resident, and that can
//! refuse anything.
//!
//! It is as unkind as the contract lets it be: a release that fails has released half, a
//! populate that fails has populated half, a replace that fails leaves rubbish, a hide that fails
//! has done half, a show a quarter, a move that fails has lost what was at its goal, and a page that was swapped out is not resident and holds what it held.
#![allow(unsafe_code)]

use std::alloc::{self, Layout};
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering::Relaxed};

use prezero_sys::memory::Errno;
use prezero_sys::thread;

use crate::clear::clearing::ClearedOn;
use crate::mem::backing::Backing;
use crate::scrubd::scrub::Thread;
use crate::units::{HUGE, MAX_ORDER, PAGE, PageId};

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(1 << 40) };
}

/// The time on this thread, ns: a clock for [`Zone::with_clock`](crate::Zone::with_clock).
pub(super) fn now() -> u64 {
    NOW.get()
}

/// Lets `ns` nanoseconds pass on this thread.
pub(super) fn pass(ns: u64) {
    NOW.set(NOW.get() + ns);
}

/// Whether a call is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    Never,
    /// The n-th call from now, counted from 1, and no other.
    Nth(u32),
    Always,
}

/// One kind of call: how often it was made, and which of the next is refused.
#[derive(Default)]
pub(super) struct Call {
    made: AtomicU64,
    /// Calls until the one that is refused; 0: none is, below 0: all are.
    refuse_in: AtomicI64,
}

impl Call {
    pub(super) fn made(&self) -> u64 {
        self.made.load(Relaxed)
    }

    pub(super) fn refuse(&self, fault: Fault) {
        let n = match fault {
            Fault::Never => 0,
            Fault::Nth(n) => i64::from(n),
            Fault::Always => -1,
        };
        self.refuse_in.store(n, Relaxed);
    }

    fn make(&self) -> Result<(), Errno> {
        self.made.fetch_add(1, Relaxed);
        match self.refuse_in.load(Relaxed) {
            0 => Ok(()),
            n if n < 0 => Err(Errno::NOMEM),
            n => {
                self.refuse_in.store(n - 1, Relaxed);
                if n == 1 { Err(Errno::NOMEM) } else { Ok(()) }
            }
        }
    }
}

const ABSENT: u8 = 0;
const RESIDENT: u8 = 1;
const SWAPPED: u8 = 2;

/// Whose mapping a huge block has; 0: it has none.
const OWN: u8 = 1;
const OTHERS: u8 = 2;

/// What a failed `replace` leaves behind, and a move where the program had mapped a file.
const RUBBISH: u8 = 0xDB;

/// See the module.
pub(super) struct Fake {
    base: NonNull<u8>,
    layout: Layout,
    pages: Vec<AtomicU8>,
    /// Huge blocks in small pages at first.
    small: usize,
    /// Bytes that are mapped at first, and which huge blocks are so now.
    mapped: usize,
    own: Vec<AtomicU8>,
    huge: Mutex<Vec<(usize, usize)>>,
    unhuge: Mutex<Vec<(usize, usize)>>,
    offers: Mutex<Vec<(usize, usize)>>,
    /// Which huge blocks no child gets and no dump has.
    hidden: Vec<AtomicU8>,
    /// Not 0: others remember which pages lie where.
    watched: AtomicU8,
    /// 0: the machine has no swap.
    swaps: AtomicU8,
    pub(super) populates: Call,
    pub(super) releases: Call,
    pub(super) replaces: Call,
    pub(super) residencies: Call,
    pub(super) hides: Call,
    pub(super) shows: Call,
    pub(super) unmaps: Call,
    pub(super) moves: Call,
    pub(super) extends: Call,
    /// How long a page takes to be made resident, ns.
    pub(super) populate_ns: AtomicU64,
    /// How long a move takes, ns.
    pub(super) move_ns: AtomicU64,
    /// Pages that one move takes at most.
    pub(super) together: AtomicU64,
}

// SAFETY: the memory belongs to the value; the zone says which thread may touch which part, as with
// any backing.
unsafe impl Send for Fake {}
// SAFETY: as above; all other fields are atomics.
unsafe impl Sync for Fake {}

impl Fake {
    /// Absent memory of `bytes` bytes, aligned as a zone wants it.
    pub(super) fn new(bytes: usize) -> Fake {
        Fake::in_small(bytes, 0)
    }

    /// As `new`, of which only the first bytes are mapped. What lies behind is others'.
    pub(super) fn growing(bytes: usize, mapped: usize) -> Fake {
        let mut fake = Fake::new(bytes);
        fake.mapped = mapped;
        fake.own.iter().skip(mapped / HUGE).for_each(|huge| huge.store(0, Relaxed));
        // SAFETY: no zone has it yet.
        unsafe { fake.fill(mapped, bytes - mapped, RUBBISH) };
        fake
    }

    /// Others map something there.
    pub(super) fn occupy(&self, huge: usize) {
        self.own[huge].store(OTHERS, Relaxed);
    }

    /// As `new`, with `small` huge blocks in small pages at first.
    pub(super) fn in_small(bytes: usize, small: usize) -> Fake {
        let align = bytes.next_power_of_two().min(MAX_ORDER.bytes());
        let layout = Layout::from_size_align(bytes, align).unwrap();
        // SAFETY: the layout is not empty.
        let base = NonNull::new(unsafe { alloc::alloc_zeroed(layout) }).unwrap();
        let pages = (0..bytes / PAGE).map(|_| AtomicU8::new(ABSENT)).collect();
        let [populates, releases, replaces, residencies, hides, shows, unmaps, moves, extends] =
            [(); 9].map(|()| Call::default());
        let (huge, unhuge, offers) = Default::default();
        let hidden = (0..bytes / HUGE).map(|_| AtomicU8::new(0)).collect();
        Fake {
            base,
            layout,
            pages,
            small,
            mapped: bytes,
            own: (0..bytes / HUGE).map(|_| AtomicU8::new(OWN)).collect(),
            huge,
            unhuge,
            offers,
            hidden,
            watched: AtomicU8::new(0),
            swaps: AtomicU8::new(1),
            populates,
            releases,
            replaces,
            residencies,
            hides,
            shows,
            unmaps,
            moves,
            extends,
            populate_ns: AtomicU64::new(0),
            move_ns: AtomicU64::new(0),
            together: AtomicU64::new(u64::MAX),
        }
    }

    /// The owner of a page touches it: it is resident from now on.
    pub(super) fn touch(&self, page: PageId) {
        self.pages[page.index()].store(RESIDENT, Relaxed);
    }

    /// Whether the machine has swap.
    pub(super) fn set_swap(&self, on: bool) {
        self.swaps.store(on.into(), Relaxed);
    }

    /// Moves a page to swap, if there is anything to move.
    pub(super) fn swap_out(&self, page: PageId) {
        assert!(self.may_swap());
        let _ = self.pages[page.index()].compare_exchange(RESIDENT, SWAPPED, Relaxed, Relaxed);
    }

    /// Which huge blocks were asked for whole: the first and how many, for each call.
    pub(super) fn made_huge(&self) -> Vec<(usize, usize)> {
        self.huge.lock().unwrap().clone()
    }

    /// Which were asked for in small pages, as above.
    pub(super) fn made_small(&self) -> Vec<(usize, usize)> {
        self.unhuge.lock().unwrap().clone()
    }

    /// The memory that was offered to the kernel, which took it: the first huge block and how many,
    /// for each call.
    pub(super) fn lazily_freed(&self) -> Vec<(usize, usize)> {
        self.offers.lock().unwrap().clone()
    }

    /// Whether the child of a fork would find zeroes in this page, and a core dump lack it.
    pub(super) fn is_hidden(&self, page: PageId) -> bool {
        self.hidden[page.huge()].load(Relaxed) != 0
    }

    /// From now on others remember which pages lie where, or do no more. What they would not hear of panics.
    pub(super) fn watch(&self, on: bool) {
        self.watched.store(on.into(), Relaxed);
    }

    fn assert_unwatched(&self, offset: usize, len: usize) {
        let mut pages = self.pages[offset / PAGE..(offset + len) / PAGE].iter();
        let leaves = self.is_watched() && pages.any(|page| page.load(Relaxed) == RESIDENT);
        assert!(
            !leaves,
            "pages leave {:?}, and those who cache them do not hear of it",
            offset / PAGE
        );
    }

    /// From here on it is the child of a fork.
    pub(super) fn fork(&self) {
        for huge in (0..self.hidden.len()).filter(|&huge| self.hidden[huge].load(Relaxed) != 0) {
            // SAFETY: hidden memory has no owner, which is what the tests are about.
            unsafe { self.fill(huge * HUGE, HUGE, 0) };
            self.mark(huge * HUGE, HUGE, ABSENT);
        }
    }

    fn set_hidden(&self, offset: usize, len: usize, to: u8) {
        assert!(offset.is_multiple_of(HUGE) && len.is_multiple_of(HUGE), "whole huge blocks");
        let huge = offset / HUGE..(offset + len) / HUGE;
        assert!(
            self.own[huge.clone()].iter().all(|huge| huge.load(Relaxed) == OWN),
            "it is the zone's"
        );
        let hidden = &self.hidden[huge];
        hidden.iter().for_each(|huge| huge.store(to, Relaxed));
    }

    /// Whether the kernel holds anything for the page, in memory or in swap.
    pub(super) fn holds(&self, page: PageId) -> bool {
        self.pages[page.index()].load(Relaxed) != ABSENT
    }

    fn mark(&self, offset: usize, len: usize, state: u8) {
        let huge = offset / HUGE..(offset + len).div_ceil(HUGE);
        assert!(self.own[huge].iter().all(|huge| huge.load(Relaxed) == OWN), "it is the zone's");
        self.pages[offset / PAGE..(offset + len) / PAGE]
            .iter()
            .for_each(|p| p.store(state, Relaxed));
    }

    /// # Safety
    /// The caller of the backing's method owns the range.
    unsafe fn fill(&self, offset: usize, len: usize, byte: u8) {
        assert!(offset + len <= self.layout.size());
        // SAFETY: inside the allocation, and the caller's promise.
        unsafe { self.base.add(offset).write_bytes(byte, len) };
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout.
        unsafe { alloc::dealloc(self.base.as_ptr(), self.layout) };
    }
}

/// Half of a range, in whole pages.
fn half(len: usize) -> usize {
    len / PAGE / 2 * PAGE
}

// SAFETY: the allocation lives as long as the value, is zero when new, and `release` and
// `replace` fill it with zero bytes.
unsafe impl Backing for Fake {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn len(&self) -> usize {
        self.layout.size()
    }

    fn mapped(&self) -> usize {
        self.mapped
    }

    fn extend(&self, offset: usize, len: usize) -> Result<(), Errno> {
        self.extends.make()?;
        assert!(offset.is_multiple_of(HUGE) && len.is_multiple_of(HUGE), "whole huge blocks");
        let own = &self.own[offset / HUGE..(offset + len) / HUGE];
        if own.iter().any(|huge| huge.load(Relaxed) != 0) {
            return Err(Errno::EXIST);
        }
        own.iter().for_each(|huge| huge.store(OWN, Relaxed));
        // SAFETY: it was mapped now, and no part of it is in use.
        unsafe { self.fill(offset, len, 0) };
        Ok(())
    }

    unsafe fn populate(&self, offset: usize, len: usize) -> Result<(), Errno> {
        pass(self.populate_ns.load(Relaxed));
        let made = self.populates.make();
        self.mark(offset, if made.is_ok() { len } else { half(len) }, RESIDENT);
        made
    }

    unsafe fn release(&self, offset: usize, len: usize) -> Result<(), Errno> {
        self.assert_unwatched(offset, len);
        let made = self.releases.make();
        let done = if made.is_ok() { len } else { half(len) };
        // SAFETY: the caller's promise.
        unsafe { self.fill(offset, done, 0) };
        self.mark(offset, done, ABSENT);
        made
    }

    unsafe fn replace(&self, offset: usize, len: usize) -> Result<(), Errno> {
        let made = self.replaces.make();
        // SAFETY: the caller's promise.
        unsafe { self.fill(offset, len, if made.is_ok() { 0 } else { RUBBISH }) };
        self.mark(offset, len, ABSENT);
        made
    }

    unsafe fn move_pages(&self, from: usize, to: usize, len: usize) -> Result<usize, Errno> {
        self.assert_unwatched(from, len);
        self.assert_unwatched(to, len);
        if let Err(error) = self.moves.make() {
            // SAFETY: the caller's promise.
            unsafe { self.fill(to, len, 0) };
            self.mark(to, len, ABSENT);
            return Err(error);
        }
        pass(self.move_ns.load(Relaxed));
        let pages = (len / PAGE).min(self.together.load(Relaxed) as usize);
        for page in 0..pages {
            let was = &self.pages[from / PAGE + page];
            self.pages[to / PAGE + page].store(was.swap(ABSENT, Relaxed), Relaxed);
        }
        let bytes = pages * PAGE;
        // The advice on a mapping moves with it.
        for at in (0..bytes / HUGE * HUGE).step_by(HUGE) {
            let given = self.hidden[(from + at) / HUGE].load(Relaxed);
            self.hidden[(to + at) / HUGE].store(given, Relaxed);
        }
        assert!(from.max(to) + len <= self.layout.size() && from.abs_diff(to) >= len);
        // SAFETY: inside the allocation, apart, and the caller's promise.
        unsafe {
            self.base.add(from).copy_to_nonoverlapping(self.base.add(to), bytes);
            self.fill(from, bytes, RUBBISH);
        }
        Ok(bytes)
    }

    unsafe fn unmap(&self, offset: usize, len: usize) -> Result<(), Errno> {
        self.unmaps.make()?;
        // SAFETY: the caller's promise. What others write there.
        unsafe { self.fill(offset, len, RUBBISH) };
        // The advice on a mapping goes with it.
        self.set_hidden(offset, len, 0);
        self.own[offset / HUGE..(offset + len) / HUGE].iter().for_each(|own| own.store(0, Relaxed));
        Ok(())
    }

    unsafe fn unmap_absent(&self, offset: usize, len: usize) -> Result<(), Errno> {
        let mut pages = self.pages[offset / PAGE..(offset + len) / PAGE].iter();
        assert!(pages.all(|page| page.load(Relaxed) == ABSENT), "something is lost");
        // SAFETY: the caller's promise.
        unsafe { self.unmap(offset, len) }
    }

    fn is_watched(&self) -> bool {
        self.watched.load(Relaxed) != 0
    }

    fn small(&self) -> usize {
        self.small * HUGE
    }

    fn make_small(&self, offset: usize, len: usize) {
        self.unhuge.lock().unwrap().push((offset / HUGE, len / HUGE));
    }

    fn make_huge(&self, offset: usize, len: usize) {
        self.huge.lock().unwrap().push((offset / HUGE, len / HUGE));
    }

    unsafe fn lazy_free(&self, offset: usize, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.fill(offset, len, 0) };
        self.offers.lock().unwrap().push((offset / HUGE, len / HUGE));
    }

    unsafe fn hide(&self, offset: usize, len: usize) -> Result<(), Errno> {
        let made = self.hides.make();
        let done = if made.is_ok() { len } else { len / HUGE / 2 * HUGE };
        self.set_hidden(offset, done, 1);
        made.map_err(|_| Errno::INVAL)
    }

    fn show(&self, offset: usize, len: usize) -> Result<(), Errno> {
        let made = self.shows.make();
        let done = if made.is_ok() { len } else { len / HUGE / 4 * HUGE };
        self.set_hidden(offset, done, 0);
        made.map_err(|_| Errno::AGAIN)
    }

    fn residency(&self, offset: usize, resident: &mut [u8]) -> Result<(), Errno> {
        let made = self.residencies.make();
        if made.is_ok() {
            for (byte, page) in resident.iter_mut().zip(&self.pages[offset / PAGE..]) {
                // The bits above the lowest mean nothing.
                *byte = 0xFE | u8::from(page.load(Relaxed) == RESIDENT);
            }
        }
        made
    }

    fn may_swap(&self) -> bool {
        self.swaps.load(Relaxed) != 0
    }
}

/// The thread of the test, as a place for scrubd to run on.
#[derive(Default)]
pub(super) struct FakeThread;

impl Thread for FakeThread {
    fn go_to(&mut self, _cpu: usize) -> ClearedOn {
        ClearedOn::Preferred
    }

    fn cpu_ns(&self) -> u64 {
        // The time that the fake is told to take is the thread's as well.
        thread::thread_cpu_ns() + now()
    }
}
