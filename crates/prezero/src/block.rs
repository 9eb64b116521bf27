//! Pages out of circulation: runs in the zone's hands, blocks in their owners'.
//!
//! [`Block`] carries in its type what is known of its content: a [`Block<Zero>`] can only come from a clear
//! engine, from the kernel, or from an owner who hands it back with proof.

use std::marker::PhantomData;

use crate::units::{PAGE, PageId, Span};

/// Pages that are out of circulation. Not `Copy`: whoever holds it puts it back or gives it to an owner, once.
#[derive(Debug)]
#[must_use = "pages that nobody puts back are lost"]
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

    /// Its first pages, so many, and what is behind them, if anything is.
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
pub trait Content: private::Sealed {}

/// Every byte is zero (resident, or absent and zero-filled by the kernel on first touch).
#[derive(Debug)]
pub enum Zero {}
/// Content unknown.
#[derive(Debug)]
pub enum Dirty {}

impl Content for Zero {}
impl Content for Dirty {}

mod private {
    pub trait Sealed {}
    impl Sealed for super::Zero {}
    impl Sealed for super::Dirty {}
}

/// A run of pages in its owner's hands. Neither `Copy` nor `Clone`: whoever holds it
/// is the only one who may touch the memory, until it goes back to its zone.
#[derive(Debug)]
#[must_use = "a block that is dropped is leaked: give it back with Zone::free"]
pub struct Block<C: Content> {
    first: PageId,
    pages: u32,
    content: PhantomData<C>,
}

impl<C: Content> Block<C> {
    /// Where a block is born; the caller vouches for `C`.
    pub(crate) fn of(run: Run) -> Self {
        let Span { first, pages } = run.into_span();
        Block { first, pages, content: PhantomData }
    }

    /// Its pages, back in the zone's hands.
    pub(crate) fn into_run(self) -> Run {
        Run(Span::new(self.first, self.pages))
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
}

impl Block<Zero> {
    /// Forgets that the block is zero: what an owner does who writes into it.
    pub fn into_dirty(self) -> Block<Dirty> {
        Block::of(self.into_run())
    }
}

/// A block of which the first pages are zero. What lies behind them was added to round a request
/// up, and may hold anything.
#[derive(Debug)]
#[must_use = "a block that is dropped is leaked: give it back with Zone::free"]
pub struct ZeroFront {
    block: Block<Dirty>,
    front: u32,
}

impl ZeroFront {
    /// Where it is born; the caller vouches for ownership and for the zeroes.
    pub(crate) fn of(run: Run, front: u32) -> ZeroFront {
        ZeroFront { block: Block::of(run), front }
    }

    /// How many pages are zero.
    pub fn zero_pages(&self) -> u32 {
        self.front
    }

    /// The whole of it, as what an owner who writes into it has.
    pub fn into_dirty(self) -> Block<Dirty> {
        self.block
    }
}
