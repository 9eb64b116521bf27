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
/// Segments for a part each, beside those of the threshold's size: what `munmap` leaves of larger ones.
const PIECES: usize = 1024;

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
        let room = lease.bytes() / threshold + lease.files().len() + PIECES;
        Some(Arena {
            board: Board::of(board, lease.bytes() / page)?,
            lease,
            ranks,
            page,
            grain,
            threshold,
            shm,
            mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            table: UnsafeCell::new(Table::with_room(room)?),
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
    fn take(&self, table: &mut Table, len: usize, kind: Kind, rank: usize) -> Option<usize> {
        let files = self.lease.files().len();
        let held = len.checked_next_multiple_of(self.page).filter(|_| table.has_room(files))?;
        let mut found = self.lease.places(rank).flat_map(|place| [(place, true), (place, false)]);
        let offset = found.find_map(|(place, wants_zero)| {
            self.take_in(table, place.0, place.1, held, wants_zero)
        })?;
        self.board.recut(offset, held);
        table.add(Segment { at: 0, len, offset, kind });
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
        while from + held <= end {
            let page = from / self.page;
            let used = || self.board.first_used(page, (from + held) / self.page);
            if let Some(end) = table.covered(from, from + held) {
                from = end.next_multiple_of(self.page);
            } else if let Some(used) = used().filter(|_| wants_zero) {
                from = (used + 1) * self.page;
            } else if let Err(end) = self.lease.cut(from, held) {
                from = end.max(from + 1).next_multiple_of(self.page);
            } else {
                return Some(from);
            }
        }
        None
    }

    /// Has a part zero, and notes that it is used from now on.
    fn ready(&self, offset: usize, len: usize) -> bool {
        let (mut page, end) = (offset / self.page, (offset + len).div_ceil(self.page));
        while let Some(first) = self.board.first_used(page, end) {
            if !self.lease.clear(self.page, first * self.page, self.page) {
                return false;
            }
            self.board.cleared(first, first + 1);
            page = first + 1;
        }
        self.board.hand_out(offset / self.page, end);
        true
    }

    /// Cuts a part that is zero; `None`: there is no room for it.
    fn cut(&self, len: usize, kind: Kind, rank: usize) -> Option<usize> {
        let Some(offset) = self.with(|table| self.take(table, len, kind, rank)) else {
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
        self.with(|table| self.drop_hold(table, offset));
        None
    }

    /// Forgets what is held at this offset without a mapping, and gives back what nothing else here has.
    fn drop_hold(&self, table: &mut Table, offset: usize) {
        let is_it = |each: &Segment| each.at == 0 && each.offset == offset;
        let Some(gone) = table.all().iter().find(|each| is_it(each)).copied() else { return };
        table.keep(|each| !is_it(each));
        self.give_back(table, &gone);
    }

    fn give_back(&self, table: &Table, gone: &Segment) {
        let mut release = |from, to| self.lease.release(from, to - from);
        table.released(self.page, gone.offset, gone.offset + gone.len, &mut release);
    }

    /// Memory for a request of that rank; `None`: it gets what it would have got.
    pub fn serve(
        &self,
        hint: *mut c_void,
        len: usize,
        protection: c_int,
        kind: Kind,
        rank: usize,
    ) -> Option<*mut c_void> {
        if !self.is_for(len) {
            return None;
        }
        let len = len.checked_next_multiple_of(self.grain)?;
        let offset = self.cut(len, kind, rank)?;
        let map = room(hint.addr(), len, self.page).and_then(|room| {
            self.with(|table| {
                let map =
                    self.map(table, room, protection, Segment { at: 0, len, offset, kind })?;
                table.keep(|each| each.at != 0 || each.offset != offset);
                Some(map)
            })
        });
        match map {
            Some(map) => populate(map, len),
            None => self.with(|table| self.drop_hold(table, offset)),
        }
        map
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
        match map.filter(|&map| !part.kind.is_private() || is_hidden(map)) {
            Some(map) => self.note(table, Segment { at: map.addr(), ..part }),
            None => unmap(room, part.len),
        }
        map
    }

    /// Notes what is mapped, each file's piece by itself: `mremap` moves no two mappings at once.
    fn note(&self, table: &mut Table, segment: Segment) {
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
        self.with(|table| {
            table.first_in(at, end)?;
            let mut end = end;
            if table.at(end - 1).is_some() {
                end = end.next_multiple_of(self.grain);
            }
            // SAFETY: as the caller was told; rounded up only where the kernel had rounded up.
            let done = unsafe { raw::munmap(std::ptr::with_exposed_provenance_mut(at), end - at) };
            if done == 0 {
                self.forget(table, at, end);
            }
            Some(done)
        })
    }

    /// These addresses are not the arena's any more.
    fn forget(&self, table: &mut Table, from: usize, to: usize) {
        while let Some(gone) = table.take_out(from, to) {
            self.give_back(table, &gone);
            if gone.kind == Kind::File
                && self.board.file_at(gone.offset).is_some_and(|file| file.unlinked != 0)
            {
                self.let_go(table, gone.offset);
            }
        }
    }

    /// Gives back a file's part that nothing here maps any more.
    fn let_go(&self, table: &mut Table, offset: usize) {
        let Some(file) = self.board.file_at(offset) else { return };
        let inside = |each: &&Segment| {
            each.at != 0 && (file.offset..file.offset + file.len).contains(&each.offset)
        };
        if !table.all().iter().any(|each| inside(&each)) {
            self.drop_hold(table, file.offset);
        }
    }

    /// Whether another mapping may take these addresses: by `work`, which says whether it did.
    pub fn replaced(&self, at: usize, len: usize, work: impl FnOnce() -> bool) {
        self.with(|table| {
            if work() {
                self.forget(table, at, at + len.next_multiple_of(SMALL));
            }
        });
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
        let told = str::from_utf8(&room[..room.len() - left]).unwrap_or_default();
        prezero_sys::tell!(
            "prezero: claim: {} of {} MiB of the lease served{told}",
            used >> 20,
            self.lease.bytes() >> 20
        );
    }
}

mod advice;
mod files;
mod fork;
mod growth;

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
