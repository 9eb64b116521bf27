//! Blocks in their owners' hands.
//!
//! [`Block`] carries in its type what is known of its content: a [`Block<Zero>`] can only come from a clear
//! engine, from the kernel, or from an owner who hands it back with proof.

use std::marker::PhantomData;

use crate::units::{PAGE, PageId, Span};

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
    /// Where a block is born; the caller vouches for ownership and for `C`.
    pub(crate) fn new(first: PageId, pages: u32) -> Self {
        debug_assert!(pages > 0);
        Block { first, pages, content: PhantomData }
    }

    pub(crate) fn span(&self) -> Span {
        Span::new(self.first, self.pages)
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
        Block::new(self.first, self.pages)
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
    pub(crate) fn new(first: PageId, pages: u32, front: u32) -> ZeroFront {
        ZeroFront { block: Block::new(first, pages), front }
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
