//! The lease as an arena: parts are cut out of it, mapped, and given back.
//!
//! A part is handed out zero: a page that served before is cleared first, by the thread that asks. Pages that never
//! served, or are cleared, go first. The first part that is free and large enough is taken.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::io::Write;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use prezero_sys::mapping::{self, room};

use crate::board::{self, Board, KINDS, Kind};
use crate::lease::Lease;
use crate::ranks::Ranks;
use crate::table::{Segment, Table};
use crate::{raw, said};

/// The smallest page, which lengths of mappings are rounded up to.
pub const SMALL: usize = 4096;
/// What a THP lease is mapped at a multiple of; parts of a lease of small pages begin there too.
const HUGE: usize = 2 << 20;

/// See the module.
pub struct Arena {
    lease: Lease,
    pub ranks: Ranks,
    pub board: Board,
    /// What a part is a multiple of.
    page: usize,
    /// What the kernel rounds the length of a mapping up to.
    grain: usize,
    threshold: usize,
    /// Of /dev/shm; 0: there is none.
    shm: u64,
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    table: UnsafeCell<Table>,
    /// No part was ever mapped outside these addresses.
    low: AtomicUsize,
    high: AtomicUsize,
}

// SAFETY: the table is behind the mutex, the rest atomic or never changed.
unsafe impl Send for Arena {}
// SAFETY: the same.
unsafe impl Sync for Arena {}

/// A number that `prezero claim` left in the environment.
pub fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.parse().ok()
}

impl Arena {
    /// Finds the lease of this process.
    pub fn begin() -> Option<Arena> {
        let (each, page) = (number("PREZERO_LEASE_BYTES")?, number("PREZERO_LEASE_PAGE")?);
        let process = number("PREZERO_LEASE_PID")?;
        let open = |file, inode| board::inherited(file, process, inode);
        let named = |file: &str, inode: &str| {
            let (file, inode) = (c_int::try_from(number(file)?).ok()?, number(inode)? as u64);
            open(file, inode)
        };
        let (ranks, files) = match Ranks::of_this_process() {
            Some((ranks, files)) => {
                let files: Option<Vec<_>> =
                    files.into_iter().map(|(file, inode)| open(file, inode)).collect();
                (ranks, files?)
            }
            None => (Ranks::default(), vec![named("PREZERO_LEASE_FD", "PREZERO_LEASE_INODE")?]),
        };
        let lease = Lease::of(files, each)?;
        let first = &lease.files()[0];
        let stat = raw::stat(first.number())?;
        let board = named("PREZERO_PINNED_BOARD", "PREZERO_PINNED_INODE")?;
        // A pool's pages are not cut.
        let grain = (stat.st_blksize as usize).max(SMALL);
        let grain = if mapping::is_of_a_pool(first.borrowed()) { grain } else { SMALL };
        let page = page.max(HUGE);
        // A part is of whole pages: smaller requests would waste most of one.
        let threshold = number("PREZERO_PINNED_THRESHOLD")?.max(page / 2);
        let shm = files::shm();
        let pages = lease.bytes() / page;
        Some(Arena {
            board: Board::of(board, pages)?,
            lease,
            ranks,
            page,
            grain,
            threshold,
            shm,
            mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            table: UnsafeCell::new(Table::of(pages, page)?),
            low: AtomicUsize::new(usize::MAX),
            high: AtomicUsize::new(0),
        })
    }

    /// Whether servers can share memory by name here.
    pub fn has_shm(&self) -> bool {
        self.shm != 0
    }

    /// Whether a request of this size is the arena's.
    pub fn is_for(&self, len: usize) -> bool {
        len >= self.threshold
    }

    fn with<R>(&self, work: impl FnOnce(&mut Table) -> R) -> R {
        // SAFETY: a mutex that was never moved since its first lock.
        unsafe { libc::pthread_mutex_lock(self.mutex.get()) };
        // SAFETY: behind the mutex, and `work` calls nothing that locks it.
        let result = work(unsafe { &mut *self.table.get() });
        // SAFETY: locked above.
        unsafe { libc::pthread_mutex_unlock(self.mutex.get()) };
        result
    }

    /// Whether parts may be mapped there: without the mutex.
    pub fn touches(&self, at: usize, len: usize) -> bool {
        at < self.high.load(Relaxed) && self.low.load(Relaxed) < at.saturating_add(len)
    }

    /// Cuts a part, which is held from now on, and not cleared yet.
    fn take(&self, table: &mut Table, len: usize, rank: usize) -> Option<usize> {
        let held = len.checked_next_multiple_of(self.page)?;
        if !self.has_room(table) || !table.may_have_free(held / self.page) {
            return None;
        }
        let mut found = self.lease.places(rank).flat_map(|place| [(place, true), (place, false)]);
        let offset = found.find_map(|((from, end), wants_zero)| {
            // Beginning where the last part ended: what lies before is taken, mostly.
            let next = if (from..end).contains(&table.next) { table.next } else { from };
            self.take_in(table, next, end, held, wants_zero)
                .or_else(|| self.take_in(table, from, end.min(next + held), held, wants_zero))
        })?;
        table.next = offset + held;
        table.have(offset, len);
        Some(offset)
    }

    /// Cuts a part between two offsets.
    fn take_in(
        &self,
        table: &Table,
        mut from: usize,
        end: usize,
        held: usize,
        wants_zero: bool,
    ) -> Option<usize> {
        if wants_zero && !self.board.may_have_zero(held / self.page) {
            return None;
        }
        while from + held <= end {
            let (page, to) = (from / self.page, (from + held) / self.page);
            let used = || self.board.last_used(page, to).filter(|_| wants_zero);
            if let Some(last) = table.last_had(page, to).or_else(used) {
                from = (last + 1) * self.page;
            } else if let Err(end) = self.cut_at(table, from, held) {
                from = end.max(from + 1).next_multiple_of(self.page);
            } else {
                return Some(from);
            }
        }
        None
    }

    /// Cuts this part, of which nothing here has a page. `Err`: where what is in the way ends.
    fn cut_at(&self, table: &Table, from: usize, len: usize) -> Result<(), usize> {
        self.board.recut(from, len, |file| {
            let is_free = !table.has(file.offset, file.offset + file.len)
                && self.lease.cut(file.offset, file.len).is_ok();
            if is_free {
                self.lease.release(file.offset, file.len);
            }
            !is_free
        })?;
        self.lease.cut(from, len)
    }

    /// Whether the table takes what one call may add: pieces of each file, and what is left of others.
    fn has_room(&self, table: &Table) -> bool {
        table.has_room(4 + self.lease.files().len())
    }

    /// Has a part zero, and notes that it is used from now on.
    fn ready(&self, offset: usize, len: usize) -> bool {
        for page in offset / self.page..(offset + len).div_ceil(self.page) {
            if self.board.last_used(page, page + 1).is_some() {
                if !self.lease.clear(self.page, page * self.page, self.page) {
                    return false;
                }
                self.board.cleared(page);
            }
        }
        for page in offset / self.page..(offset + len).div_ceil(self.page) {
            self.board.hand_out(page);
        }
        true
    }

    /// Cuts a part that is zero, and is held; `None`: there is no room for it.
    fn cut(&self, len: usize, kind: Kind, rank: usize) -> Option<usize> {
        let Some(offset) = self.with(|table| self.take(table, len, rank)) else {
            self.board.count_missed(len);
            said::FULL.say(format_args!(
                "{} MiB asked for do not fit into what is left of the lease, and are the kernel's",
                len >> 20
            ));
            return None;
        };
        if self.ready(offset, len) {
            self.board.count(kind, len);
            return Some(offset);
        }
        self.with(|table| self.give_back(table, offset, len));
        None
    }

    /// This process has a range of the lease once less.
    fn give_back(&self, table: &mut Table, offset: usize, len: usize) {
        table.have_not(offset, len, |from, to| self.lease.release(from, to - from));
    }

    /// Whether pages are not cut: then only allocations, which come and go as a whole, are of the lease.
    fn is_of_a_pool(&self) -> bool {
        let is = self.grain > SMALL;
        if is {
            said::POOL.say(format_args!(
                "the lease is of a hugetlb pool, whose pages are not cut: mappings and files in /dev/shm \
                are the kernel's; backing = \"thp\" in prezerod.toml serves them"
            ));
        }
        is
    }

    /// Memory for a request of that rank; `None`: it gets what it would have got.
    pub fn serve(
        &self,
        len: usize,
        protection: c_int,
        kind: Kind,
        rank: usize,
    ) -> Option<*mut c_void> {
        if !self.is_for(len) || kind != Kind::Alloc && self.is_of_a_pool() {
            return None;
        }
        let len = self.whole(len)?;
        let offset = self.cut(len, kind, rank)?;
        let map = room(0, len, self.page).and_then(|room| {
            self.with(|table| {
                self.map(table, room, protection, Segment { at: 0, len, offset, kind, base: 0 })
            })
        });
        self.with(|table| self.give_back(table, offset, len));
        if let Some(map) = map {
            populate(map, len);
        }
        map
    }

    /// The length of a mapping of the lease of that many bytes.
    pub fn whole(&self, len: usize) -> Option<usize> {
        len.checked_next_multiple_of(self.grain)
    }

    /// Maps a part into room that was made for it.
    fn map(
        &self,
        table: &mut Table,
        room: *mut c_void,
        protection: c_int,
        part: Segment,
    ) -> Option<*mut c_void> {
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        // SAFETY: replaces what `room` made, which no other code has seen.
        let map = unsafe { self.lease.map(room, part.len, protection, flags, part.offset) };
        // SAFETY: the new mapping.
        let is_hidden = |map| unsafe { raw::madvise(map, part.len, libc::MADV_DONTFORK) } == 0;
        let is_good = |&map: &_| !part.kind.is_private() || is_hidden(map);
        match map.filter(|_| self.has_room(table)).filter(is_good) {
            Some(map) => {
                self.note(table, Segment { at: map.addr(), ..part });
                Some(map)
            }
            None => {
                unmap(room, part.len);
                None
            }
        }
    }

    /// Notes what is mapped, each file's piece by itself: `mremap` moves no two mappings at once. What the table knew of these
    /// addresses ended without it.
    fn note(&self, table: &mut Table, segment: Segment) {
        self.forget(table, segment.at, segment.end());
        self.low.fetch_min(segment.at, Relaxed);
        self.high.fetch_max(segment.end(), Relaxed);
        let mut done = 0;
        for (_, _, len) in self.lease.pieces(segment.offset, segment.len) {
            let (at, offset) = (segment.at + done, segment.offset + done);
            table.add(Segment { at, len, offset, ..segment });
            done += len;
        }
    }

    /// Unmaps, and gives back what was a part. `None`: the caller's addresses are not the arena's.
    pub fn unmap(&self, at: usize, len: usize) -> Option<c_int> {
        let end = at.checked_add(len)?.checked_next_multiple_of(SMALL)?;
        if !self.touches(at, len) {
            return None;
        }
        // SAFETY: as the caller was told.
        self.changed(at, end - at, || unsafe { raw::munmap(pointer(at), len) } == 0).map(|done| {
            // `errno` says why not.
            if done { 0 } else { -1 }
        })
    }

    /// Other memory, or none, may come to these addresses by `work`, which says whether it did. `None`: they are not the
    /// arena's.
    pub fn changed(&self, at: usize, len: usize, work: impl FnOnce() -> bool) -> Option<bool> {
        self.with(|table| {
            table.first_in(at, at.saturating_add(len))?;
            if !table.has_room(1) {
                raw::fail(libc::ENOMEM);
                return Some(false);
            }
            let done = work();
            if done {
                self.forget(table, at, at + len);
            }
            Some(done)
        })
    }

    /// These addresses are not the arena's any more.
    fn forget(&self, table: &mut Table, from: usize, to: usize) {
        while let Some(gone) = table.take_out(from, to) {
            self.give_back(table, gone.offset, gone.len);
        }
    }

    /// What the first program says at its end, which a signal handler may bring about: nothing here allocates.
    pub fn report(&self) {
        let (served, missed) = self.board.counts();
        let used = self.board.handed_out() * self.page;
        let each = KINDS.iter().zip(served).filter(|(_, bytes)| *bytes > 0);
        // Longer than all kinds together with their largest numbers.
        let mut room = [0; 192];
        let mut rest = &mut room[..];
        for (number, (name, bytes)) in each.enumerate() {
            let _ =
                write!(rest, "{}{name} {} MiB", if number == 0 { ": " } else { ", " }, bytes >> 20);
        }
        if missed > 0 {
            let _ = write!(rest, "; {} MiB did not fit", missed >> 20);
        }
        let left = rest.len();
        let registered = self.board.registered();
        let told = str::from_utf8(&room[..room.len() - left]).unwrap_or_default();
        prezero_sys::tell!(
            "prezero: claim: {} of {} MiB of the lease served{told}",
            used >> 20,
            self.lease.bytes() >> 20
        );
        if registered >> 20 > 0 {
            prezero_sys::tell!(
                "prezero: claim: {} MiB registered were the program's own memory",
                registered >> 20
            );
        }
    }

    /// Counts what the program registered, unless it is of the lease.
    pub fn registered(&self, at: usize, len: usize) {
        let is_ours = self.touches(at, len) && self.with(|table| table.at(at).is_some());
        if !is_ours {
            self.board.count_registered(len);
        }
    }
}

mod advice;
mod files;
mod fork;
mod growth;
mod transfer;

pub use growth::Resize;
pub use transfer::Way;

/// Maps the pages that are there: a fault for each large page, now and not in the program's loop.
fn populate(map: *mut c_void, len: usize) {
    // SAFETY: the new mapping. Where the kernel knows no such advice pages are mapped as they are touched.
    unsafe { raw::madvise(map, len, libc::MADV_POPULATE_WRITE) };
}

/// Unmaps what `room` has mapped, which no other code has seen.
fn unmap(at: *mut c_void, len: usize) {
    // SAFETY: see above.
    unsafe { mapping::unmap(at, len) };
}

/// An address as a pointer.
fn pointer(at: usize) -> *mut c_void {
    if at == 0 { null_mut() } else { std::ptr::with_exposed_provenance_mut(at) }
}
