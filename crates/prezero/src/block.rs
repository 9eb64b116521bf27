//! Pages out of circulation: runs in the zone's hands, blocks in their owners'.
//!
//! [`Block`] carries in its type what is known of its content: a [`Block<Zero>`] comes from a clear
//! engine, from the kernel, or from an owner that vouches for its zeroes in unsafe code.

use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::units::{PAGE, PageId, Span};

/// Pages that are out of circulation. Not `Copy`: its holder puts it back or gives it to an owner,
/// once.
#[derive(Debug)]
#[must_use = "pages that are not put back are lost"]
pub(crate) struct Run(Span);

impl Run {
    /// Pages that left circulation just now: the caller vouches that no other `Run` or [`Block`] has any of them.
    pub(crate) fn taken(span: Span) -> Run {
        debug_assert!(span.pages > 0);
        Run(span)
    }

    /// Which pages.
    pub(crate) fn span(&self) -> Span {
        self.0
    }

    /// The first page.
    pub(crate) fn first(&self) -> PageId {
        self.0.first
    }

    /// How many pages.
    pub(crate) fn pages(&self) -> u32 {
        self.0.pages
    }

    /// Splits off its first `pages`, and what is behind them, if anything is.
    pub(crate) fn split(self, pages: u32) -> (Run, Option<Run>) {
        let behind = self.0.behind(pages);
        (Run(self.0.front(pages)), (behind.pages > 0).then_some(Run(behind)))
    }

    /// Gives it up: it is put down where its span alone says what it is.
    pub(crate) fn into_span(self) -> Span {
        self.0
    }
}

/// What is known of a block's content. Sealed: [`Zero`] and [`Dirty`].
pub trait Content: private::Sealed {
    /// The pointer that an owner reaches the bytes by: see [`Zone::address`](crate::Zone::address).
    type Pointer: Copy;

    #[doc(hidden)]
    fn pointer(first: NonNull<u8>) -> Self::Pointer;
}

/// Every byte is zero (resident, or absent and zero-filled by the kernel on first touch).
#[derive(Debug)]
pub enum Zero {}
/// Content unknown.
#[derive(Debug)]
pub enum Dirty {}

/// A block that counts as zero is read, never written: [`Block::into_dirty`] comes first.
impl Content for Zero {
    type Pointer = *const u8;

    #[inline]
    fn pointer(first: NonNull<u8>) -> *const u8 {
        first.as_ptr()
    }
}

impl Content for Dirty {
    type Pointer = NonNull<u8>;

    #[inline]
    fn pointer(first: NonNull<u8>) -> NonNull<u8> {
        first
    }
}

mod private {
    pub trait Sealed {}
    impl Sealed for super::Zero {}
    impl Sealed for super::Dirty {}
}

/// The number of a zone. A process gives each zone a new one, so a block of a zone that is
/// dropped fits no later zone, even one at the same addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ZoneId(NonZeroU64);

impl ZoneId {
    /// A number that no zone has yet. The count does not run out.
    pub(crate) fn next() -> ZoneId {
        static GIVEN: AtomicU64 = AtomicU64::new(0);
        ZoneId(NonZeroU64::MIN.saturating_add(GIVEN.fetch_add(1, Relaxed)))
    }
}

/// A run of pages in its owner's hands. Neither `Copy` nor `Clone`: its owner alone may touch the
/// memory, until the block goes back to its zone.
///
/// A block names its zone, and every call of a zone that takes a block panics for one of another
/// zone: the same page numbers mean other memory there.
///
/// A block may outlive its zone. It is then a number without memory: no zone takes it back, and no
/// zone tells its address. An address that was asked for earlier dangles, as that of any freed
/// memory does, and only unsafe code follows an address.
#[derive(Debug)]
#[must_use = "a block that is dropped is leaked: give it back with Zone::free"]
pub struct Block<C: Content> {
    zone: ZoneId,
    first: PageId,
    pages: u32,
    content: PhantomData<C>,
}

impl<C: Content> Block<C> {
    /// Where a block is born; the caller vouches for `C`.
    #[inline]
    pub(crate) fn of(zone: ZoneId, run: Run) -> Self {
        let Span { first, pages } = run.into_span();
        Block { zone, first, pages, content: PhantomData }
    }

    /// Its pages, back in the hands of its zone, which `zone` must be.
    #[inline]
    pub(crate) fn into_run(self, zone: ZoneId) -> Run {
        self.expect_of(zone);
        Run(Span::new(self.first, self.pages))
    }

    /// Ends the thread unless the block is of this zone: its page numbers mean other memory in another.
    #[inline]
    pub(crate) fn expect_of(&self, zone: ZoneId) {
        if self.zone != zone {
            refuse();
        }
    }

    /// The first page.
    pub fn first(&self) -> PageId {
        self.first
    }

    /// How many pages.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// How many bytes.
    pub fn bytes(&self) -> usize {
        self.pages as usize * PAGE
    }

    /// Forgets what is known of the content. An owner does so before it writes.
    #[inline]
    pub fn into_dirty(self) -> Block<Dirty> {
        Block { zone: self.zone, first: self.first, pages: self.pages, content: PhantomData }
    }
}

impl Block<Dirty> {
    /// Vouches that the block is zero, so that [`Zone::free_zeroed`](crate::Zone::free_zeroed) takes it.
    ///
    /// # Safety
    /// Every byte of the block is zero, and nothing writes to it while it counts as zero.
    #[allow(unsafe_code)]
    pub unsafe fn assume_zero(self) -> Block<Zero> {
        Block { zone: self.zone, first: self.first, pages: self.pages, content: PhantomData }
    }
}

/// A block of which the first pages are zero. The pages behind them round a request up, and hold
/// anything.
#[derive(Debug)]
#[must_use = "a block that is dropped is leaked: give it back with Zone::free"]
pub struct ZeroFront {
    block: Block<Dirty>,
    front: u32,
}

impl ZeroFront {
    /// Where it is born; the caller vouches for the zeroes.
    #[inline]
    pub(crate) fn of(block: Block<Dirty>, front: u32) -> ZeroFront {
        ZeroFront { block, front }
    }

    /// How many pages are zero.
    pub fn zero_pages(&self) -> u32 {
        self.front
    }

    /// The whole block, to write to.
    #[inline]
    pub fn into_dirty(self) -> Block<Dirty> {
        self.block
    }
}

#[cold]
#[inline(never)]
fn refuse() -> ! {
    panic!("a block of another zone: only the zone that handed a block out takes it");
}
