//! Which parts of the lease this process has mapped, and where.
//!
//! The list has a fixed room: it is read and changed inside `mmap`, which an allocator may have called.

use std::ptr::null_mut;

use crate::board::Kind;
use crate::raw;

/// A part that is mapped; `at` 0: held without a mapping, as by the process that made a file of it.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    pub at: usize,
    pub len: usize,
    /// In the lease.
    pub offset: usize,
    pub kind: Kind,
}

impl Segment {
    /// Where it ends.
    pub fn end(&self) -> usize {
        self.at + self.len
    }
}

/// See the module.
#[derive(Debug)]
pub struct Table {
    first: *mut Segment,
    room: usize,
    count: usize,
}

// SAFETY: the list lies in memory that is this table's alone.
unsafe impl Send for Table {}

impl Table {
    /// With room for that many.
    pub fn with_room(room: usize) -> Option<Table> {
        let (len, flags) = (room * size_of::<Segment>(), libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping wherever the kernel likes.
        let first = unsafe { raw::mmap(null_mut(), len, protection, flags, -1, 0)? };
        Some(Table { first: first.cast(), room, count: 0 })
    }

    /// All of them.
    pub fn all(&self) -> &[Segment] {
        // SAFETY: the first `count` were written by `add`.
        unsafe { std::slice::from_raw_parts(self.first, self.count) }
    }

    fn all_mut(&mut self) -> &mut [Segment] {
        // SAFETY: see above.
        unsafe { std::slice::from_raw_parts_mut(self.first, self.count) }
    }

    /// Whether another few fit, beside a piece in each file.
    pub fn has_room(&self, files: usize) -> bool {
        self.count + 4 + files < self.room
    }

    /// Adds one.
    pub fn add(&mut self, segment: Segment) {
        assert!(self.count < self.room && segment.len > 0);
        // SAFETY: within the room.
        unsafe { self.first.add(self.count).write(segment) };
        self.count += 1;
    }

    /// Drops those that are not to be kept.
    pub fn keep(&mut self, keep: impl Fn(&Segment) -> bool) {
        let mut kept = 0;
        for number in 0..self.count {
            let each = self.all()[number];
            if keep(&each) {
                self.all_mut()[kept] = each;
                kept += 1;
            }
        }
        self.count = kept;
    }

    /// The one that is mapped at this address.
    pub fn at(&self, address: usize) -> Option<Segment> {
        self.all()
            .iter()
            .find(|each| each.at != 0 && (each.at..each.end()).contains(&address))
            .copied()
    }

    /// The first that is mapped in a range of addresses.
    pub fn first_in(&self, from: usize, to: usize) -> Option<Segment> {
        let inside =
            self.all().iter().filter(|each| each.at != 0 && each.at < to && from < each.end());
        inside.min_by_key(|each| each.at).copied()
    }

    /// Where the last one ends that has a byte of this part of the lease.
    pub fn covered(&self, from: usize, to: usize) -> Option<usize> {
        let inside =
            self.all().iter().filter(|each| each.offset < to && from < each.offset + each.len);
        inside.map(|each| each.offset + each.len).max()
    }

    /// Takes a range of addresses out; what is left of a segment stays. `None`: nothing is mapped there any more.
    pub fn take_out(&mut self, from: usize, to: usize) -> Option<Segment> {
        let gone = self.first_in(from, to)?;
        let (start, end) = (gone.at.max(from), gone.end().min(to));
        let part = |at: usize, end: usize| Segment {
            at,
            len: end - at,
            offset: gone.offset + (at - gone.at),
            ..gone
        };
        self.keep(|each| each.at != gone.at);
        if gone.at < start {
            self.add(part(gone.at, start));
        }
        if end < gone.end() {
            self.add(part(end, gone.end()));
        }
        Some(part(start, end))
    }

    /// Calls `release` for each whole page of a part of the lease that nothing here has any more.
    pub fn released(
        &self,
        page: usize,
        from: usize,
        to: usize,
        release: &mut dyn FnMut(usize, usize),
    ) {
        let (from, to) = (from - from % page, to.next_multiple_of(page));
        let around = |each: &Segment| {
            let first = each.offset - each.offset % page;
            (first, (each.offset + each.len).next_multiple_of(page))
        };
        let mut in_the_way =
            self.all().iter().map(around).filter(|&(first, end)| first < to && from < end);
        let Some((first, end)) = in_the_way.next() else {
            release(from, to);
            return;
        };
        if from < first {
            self.released(page, from, first, release);
        }
        if end < to {
            self.released(page, end, to, release);
        }
    }
}
