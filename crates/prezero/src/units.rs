//! Pages and orders: the units everything else counts in.
//!
//! A **page** is 4 KiB. A **block** is a run of whole pages; one of 2^order pages is aligned to its own size.

use std::fmt;

/// Bytes in a page.
pub const PAGE: usize = 4096;
/// Bytes in a huge block (order 9): what one page-table entry maps on x86-64 and,
/// with 4 KiB granules, on aarch64.
pub const HUGE: usize = PAGE << HUGE_ORDER;
/// Pages in a huge block.
pub const HUGE_PAGES: u32 = 1 << HUGE_ORDER;
/// Pages of a slice, 64 KiB: free memory is counted in them, and a zone begins at a multiple of one. A slice is a whole
/// number of pages on every kernel.
pub(crate) const SLICE: u32 = 16;
/// A page count, rounded up to whole slices: what a block has at least.
#[inline]
pub(crate) fn whole(pages: u32) -> u32 {
    pages.checked_next_multiple_of(SLICE).unwrap_or(u32::MAX)
}

/// Order of a huge block.
pub const HUGE_ORDER: u32 = 9;
/// The largest order that a request or an alignment may have: 1 GiB.
pub const MAX_ORDER: Order = Order(18);

/// The power of two that a block's page count is: 0 (4 KiB) to 18 (1 GiB).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Order(u8);

impl Order {
    /// Order 0, one page.
    pub const MIN: Order = Order(0);

    /// The order of a slice.
    pub(crate) const SLICE: Order = Order(SLICE.trailing_zeros() as u8);

    /// The order of a huge block.
    pub(crate) const HUGE: Order = Order(HUGE_ORDER as u8);

    /// An order, if it is one that a block may have.
    pub const fn new(order: u32) -> Option<Order> {
        if order <= MAX_ORDER.0 as u32 { Some(Order(order as u8)) } else { None }
    }

    /// The smallest order that holds `pages`, if there is one.
    pub const fn holding(pages: u32) -> Option<Order> {
        match pages.checked_next_power_of_two() {
            Some(power) if pages > 0 => Order::new(power.trailing_zeros()),
            _ => None,
        }
    }

    /// The largest aligned order that starts at `first` and spans at most `pages` (>= 1).
    pub(crate) fn fitting(first: PageId, pages: u32) -> Order {
        let align = first.0.trailing_zeros().min(MAX_ORDER.0 as u32);
        Order(align.min(pages.ilog2()) as u8)
    }

    /// The exponent.
    pub const fn get(self) -> u32 {
        self.0 as u32
    }

    /// Pages in a block of this order.
    pub const fn pages(self) -> u32 {
        1 << self.0
    }

    /// Bytes in a block of this order.
    pub const fn bytes(self) -> usize {
        PAGE << self.0
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Pages side by side: which, and how many. Says nothing of whose they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) first: PageId,
    pub(crate) pages: u32,
}

impl Span {
    pub(crate) const fn new(first: PageId, pages: u32) -> Span {
        Span { first, pages }
    }

    /// One past its last page.
    pub(crate) fn end(self) -> u32 {
        self.first.0 + self.pages
    }

    /// Its first `pages`.
    pub(crate) fn front(self, pages: u32) -> Span {
        debug_assert!(pages <= self.pages);
        Span { pages, ..self }
    }

    /// What lies behind its first `pages`.
    pub(crate) fn behind(self, pages: u32) -> Span {
        debug_assert!(pages <= self.pages);
        Span { first: self.first.plus(pages), pages: self.pages - pages }
    }

    /// The whole slices that it lies in.
    pub(crate) fn slices(self) -> Span {
        let first = self.first.0 / SLICE * SLICE;
        Span { first: PageId(first), pages: (self.end() - first).next_multiple_of(SLICE) }
    }

    /// The whole slices that lie in it, where it begins with one.
    pub(crate) fn whole_slices(self) -> Span {
        Span { pages: self.pages / SLICE * SLICE, ..self }
    }

    /// The pages that it has in common with another span, which it overlaps.
    pub(crate) fn within(self, other: Span) -> Span {
        let first = self.first.max(other.first);
        Span { first, pages: self.end().min(other.end()) - first.0 }
    }

    /// Its bytes.
    pub(crate) fn bytes(self) -> usize {
        self.pages as usize * PAGE
    }
}

/// A page's index in its zone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct PageId(pub(crate) u32);

impl PageId {
    /// The index, counted from the zone's first page.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The huge block that this page lies in.
    pub(crate) fn huge(self) -> usize {
        (self.0 >> HUGE_ORDER) as usize
    }

    pub(crate) fn plus(self, pages: u32) -> PageId {
        PageId(self.0 + pages)
    }

    #[inline]
    pub(crate) fn is_aligned(self, align: Order) -> bool {
        self.0 & (align.pages() - 1) == 0
    }
}
