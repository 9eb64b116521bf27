//! Which parts of the lease this process has mapped, and where.
//!
//! Two lists: what is mapped, by address, and how many bytes of each page of the lease this process has. Neighbours
//! that go on in address and lease are one entry, as they are one mapping for the kernel.
//! Both lists have a fixed room: they are read and changed inside `mmap`, which an allocator may have called.
//! There is room for as many entries as the kernel allows mappings. Without room nothing is added; [`Table::has_room`] says so.

use std::ptr::null_mut;

use crate::board::Kind;
use crate::raw;

/// A part that is mapped.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    pub at: usize,
    pub len: usize,
    /// In the lease.
    pub offset: usize,
    pub kind: Kind,
    /// Of [`Kind::File`]: where the file begins in the lease.
    pub base: usize,
}

impl Segment {
    /// Where it ends.
    pub fn end(&self) -> usize {
        self.at + self.len
    }

    /// What of it lies between two addresses.
    pub fn between(self, from: usize, to: usize) -> Segment {
        let at = self.at.max(from);
        Segment { at, len: self.end().min(to) - at, offset: self.offset + (at - self.at), ..self }
    }

    fn goes_on_in(&self, next: &Segment) -> bool {
        (self.end(), self.offset + self.len) == (next.at, next.offset)
            && (self.kind, self.base) == (next.kind, next.base)
    }
}

/// See the module.
#[derive(Debug)]
pub struct Table {
    segments: &'static mut [Segment],
    count: usize,
    /// Bytes that this process has of each page: of two mappings twice. 0: the page is not held.
    had: &'static mut [usize],
    page: usize,
    /// Pages of which it has none.
    free: usize,
    /// Where the next part is looked for.
    pub next: usize,
}

/// The most entries of a table, where the kernel allows more mappings than that.
const MOST: usize = 1 << 20;

/// A list that the kernel has filled with zero, for the life of the process.
fn list<T>(len: usize) -> Option<&'static mut [T]> {
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
    );
    // SAFETY: a new mapping wherever the kernel likes.
    let first = unsafe { raw::mmap(null_mut(), len * size_of::<T>(), protection, flags, -1, 0)? };
    // SAFETY: of that length, never unmapped, and this function's alone. Its two types are valid as zero.
    Some(unsafe { std::slice::from_raw_parts_mut(first.cast(), len) })
}

impl Table {
    /// For a lease of that many pages.
    pub fn of(pages: usize, page: usize) -> Option<Table> {
        let most = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok();
        let most = most.and_then(|most| most.trim().parse().ok()).unwrap_or(MOST);
        let (segments, had) = (list(MOST.min(most))?, list(pages)?);
        Some(Table { segments, count: 0, had, page, free: pages, next: 0 })
    }

    /// All of them, by address.
    pub fn all(&self) -> &[Segment] {
        &self.segments[..self.count]
    }

    /// Whether that many more fit.
    pub fn has_room(&self, more: usize) -> bool {
        self.count + more <= self.segments.len()
    }

    /// The number of the first that ends behind this address.
    fn behind(&self, address: usize) -> usize {
        self.all().partition_point(|each| each.end() <= address)
    }

    /// Adds one, which is had from now on; `false`: there is no room.
    pub fn add(&mut self, segment: Segment) -> bool {
        let place = self.behind(segment.at);
        let before =
            place.checked_sub(1).filter(|&before| self.segments[before].goes_on_in(&segment));
        let after =
            (place < self.count && segment.goes_on_in(&self.segments[place])).then_some(place);
        match (before, after) {
            (Some(before), Some(after)) => {
                self.segments[before].len += segment.len + self.segments[after].len;
                self.remove(after);
            }
            (Some(before), None) => self.segments[before].len += segment.len,
            (None, Some(after)) => {
                let whole = segment.len + self.segments[after].len;
                self.segments[after] = Segment { len: whole, ..segment };
            }
            (None, None) => {
                if !self.has_room(1) {
                    return false;
                }
                self.segments.copy_within(place..self.count, place + 1);
                self.segments[place] = segment;
                self.count += 1;
            }
        }
        self.have(segment.offset, segment.len);
        true
    }

    fn remove(&mut self, place: usize) {
        self.segments.copy_within(place + 1..self.count, place);
        self.count -= 1;
    }

    /// The one that is mapped at this address.
    pub fn at(&self, address: usize) -> Option<Segment> {
        self.first_in(address, address + 1)
    }

    /// The first that is mapped in a range of addresses.
    pub fn first_in(&self, from: usize, to: usize) -> Option<Segment> {
        self.all().get(self.behind(from)).filter(|each| each.at < to && from < to).copied()
    }

    /// Whether a mapping here has a byte of this range of the lease.
    pub fn has(&self, from: usize, to: usize) -> bool {
        self.all().iter().any(|each| each.offset < to && from < each.offset + each.len)
    }

    /// Takes the first piece of a range of addresses out, which is still had; what is left of a segment stays. `None`: nothing
    /// is mapped there any more, or what would stay finds no room.
    pub fn take_out(&mut self, from: usize, to: usize) -> Option<Segment> {
        let whole = self.first_in(from, to)?;
        let (place, gone) = (self.behind(from), whole.between(from, to));
        let (before, after) = (gone.at - whole.at, whole.end() - gone.end());
        match (before, after) {
            (0, 0) => self.remove(place),
            (_, 0) => self.segments[place].len = before,
            (0, _) => self.segments[place] = whole.between(gone.end(), whole.end()),
            _ => {
                if !self.has_room(1) {
                    return None;
                }
                self.segments.copy_within(place..self.count, place + 1);
                self.count += 1;
                self.segments[place].len = before;
                self.segments[place + 1] = whole.between(gone.end(), whole.end());
            }
        }
        Some(gone)
    }

    /// The pages of a range of the lease, and the bytes of it in each.
    fn pages(&self, from: usize, len: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (page, end) = (self.page, from + len);
        let bytes = move |number: usize| end.min((number + 1) * page) - from.max(number * page);
        (from / page..end.div_ceil(page)).map(move |number| (number, bytes(number)))
    }

    /// This process has a range of the lease, mapped or held for a file.
    pub fn have(&mut self, from: usize, len: usize) {
        for (page, bytes) in self.pages(from, len) {
            self.free -= usize::from(self.had[page] == 0);
            self.had[page] += bytes;
        }
    }

    /// It has it once less: calls `release` for each run of pages that nothing here has any more.
    pub fn have_not(&mut self, from: usize, len: usize, mut release: impl FnMut(usize, usize)) {
        let mut run = (0, 0);
        for (page, bytes) in self.pages(from, len) {
            self.had[page] = self.had[page].saturating_sub(bytes);
            if self.had[page] != 0 {
                continue;
            }
            self.free += 1;
            if run.1 != page {
                if run.0 < run.1 {
                    release(run.0 * self.page, run.1 * self.page);
                }
                run.0 = page;
            }
            run.1 = page + 1;
        }
        if run.0 < run.1 {
            release(run.0 * self.page, run.1 * self.page);
        }
    }

    /// The last of these pages that this process has, of `None`.
    pub fn last_had(&self, from: usize, to: usize) -> Option<usize> {
        (from..to).rev().find(|&page| self.had[page] > 0)
    }

    /// Whether that many pages may be free.
    pub fn may_have_free(&self, pages: usize) -> bool {
        pages <= self.free
    }

    /// In a child of fork: keeps what it has mapped.
    pub fn inherit(&mut self) {
        // Zero without a write to each page of a long list.
        // SAFETY: a private mapping, and this process's copy of it.
        let is_zero = unsafe {
            raw::madvise(self.had.as_mut_ptr().cast(), size_of_val(self.had), libc::MADV_DONTNEED)
        };
        if is_zero != 0 {
            self.had.fill(0);
        }
        self.free = self.had.len();
        let mut kept = 0;
        for number in 0..self.count {
            let each = self.segments[number];
            if !each.kind.is_private() {
                self.segments[kept] = each;
                kept += 1;
                self.have(each.offset, each.len);
            }
        }
        self.count = kept;
    }
}
