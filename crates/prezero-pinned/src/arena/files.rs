//! Files in `/dev/shm` that are parts of the lease: memory that processes share by name.
//!
//! A file that gets a size of the threshold or more, and was not written, is bound to a part. The file itself stays
//! sparse; each mapping of it, by any process of the lease, is a mapping of the part. What lies beyond the part is the file's.
//! `read` and `write` reach the file, and not the part.
//!
//! A part is held by each process that maps it, and by the one that bound it until the name is gone or the process ends.

use std::ffi::{CStr, c_int, c_void};

use prezero_sys::mapping::room;

use super::{Arena, SMALL, populate, unmap};
use crate::board::{Bound, Kind};
use crate::raw;
use crate::table::{Segment, Table};

/// The device of `/dev/shm`, if it is a tmpfs of its own; 0: it is not. On a disk, or as a folder of another file system,
/// it shares its device with files that programs read and write.
pub fn shm() -> u64 {
    let device = |path: &CStr| raw::stat_path(path).map_or(0, |stat| stat.st_dev);
    // A link is followed.
    let (own, around) = (device(c"/dev/shm/."), device(c"/dev/shm/.."));
    if own == around || !raw::is_tmpfs(c"/dev/shm") { 0 } else { own }
}

impl Arena {
    /// The part that this descriptor's file is.
    fn bound(&self, file: c_int) -> Option<Bound> {
        if file < 0 || !self.board.has_files() {
            return None;
        }
        let stat = raw::stat(file).filter(|stat| stat.st_dev == self.shm)?;
        self.with(|_| self.board.find(stat.st_dev, stat.st_ino))
    }

    /// Before a file gets a size: binds it, or clears what is cut off.
    pub fn sized(&self, file: c_int, len: usize) {
        if let Some(bound) = self.bound(file) {
            if len < bound.len {
                self.lease.clear(self.page, bound.offset + len, bound.len - len);
            }
            return;
        }
        if self.shm == 0 || !self.is_for(len) {
            return;
        }
        let is_new = |stat: &libc::stat| {
            stat.st_mode & libc::S_IFMT == libc::S_IFREG
                && stat.st_dev == self.shm
                && stat.st_blocks == 0
        };
        let Some(stat) = raw::stat(file).filter(is_new) else { return };
        let Some(offset) = self.cut(len, Kind::File, self.ranks.mine()) else { return };
        self.with(|table| {
            let (device, inode) = (stat.st_dev, stat.st_ino);
            if !self.board.bind(Bound { device, inode, offset, len, unlinked: 0 }) {
                self.drop_hold(table, offset);
            }
        });
    }

    /// Whether space that is reserved in a file is there: a part of the lease is.
    pub fn reserved(&self, file: c_int, from: i64, len: i64) -> bool {
        let end = from.checked_add(len).filter(|_| from >= 0 && len > 0).map(|end| end as usize);
        let Some(end) = end else { return false };
        if from == 0 {
            let size = raw::stat(file).map_or(0, |stat| stat.st_size as usize);
            if size < end {
                self.sized(file, end);
            }
        }
        let Some(bound) = self.bound(file).filter(|bound| end <= bound.len) else { return false };
        let size = raw::stat(file).map_or(0, |stat| stat.st_size as usize);
        size >= end.min(bound.len) || raw::ftruncate(file, end as i64) == 0
    }

    /// Maps a file that is a part of the lease; `None`: it is none.
    pub fn map_file(
        &self,
        at: *mut c_void,
        len: usize,
        protection: c_int,
        flags: c_int,
        file: c_int,
        offset: i64,
    ) -> Option<Result<*mut c_void, c_int>> {
        let bound = self.bound(file)?;
        let (begin, len) = (usize::try_from(offset).ok()?, len.checked_next_multiple_of(SMALL)?);
        let end = bound.len.next_multiple_of(SMALL);
        if begin >= end || len == 0 {
            return None;
        }
        if !begin.is_multiple_of(self.grain) {
            return Some(Err(libc::EINVAL));
        }
        let inside = len.min(end - begin);
        let part = Segment {
            at: 0,
            len: inside.next_multiple_of(self.grain),
            offset: bound.offset + begin,
            kind: Kind::File,
        };
        if !self.hold_file(&bound, &part) {
            return None;
        }
        let fixed = flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0;
        let room = if fixed {
            let flags = flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE);
            let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            // SAFETY: the caller's, to replace what is there or not.
            unsafe { raw::mmap(at, len, libc::PROT_NONE, flags, -1, 0) }
        } else {
            room(
                at.addr(),
                len,
                if begin.is_multiple_of(self.page) { self.page } else { self.grain },
            )
        };
        let Some(room) = room else {
            self.with(|table| self.give_back(table, &part));
            return Some(Err(libc::ENOMEM));
        };
        let flags = flags & !libc::MAP_FIXED_NOREPLACE | libc::MAP_FIXED;
        let map = self.with(|table| {
            if fixed {
                self.forget(table, room.addr(), room.addr() + len);
            }
            // SAFETY: into the room of this call, or where the caller has it.
            let map = unsafe { self.lease.map(room, part.len, protection, flags, part.offset) };
            match map {
                Some(map) => self.note(table, Segment { at: map.addr(), ..part }),
                None => self.give_back(table, &part),
            }
            map
        });
        let rest = len - inside;
        let behind = room.wrapping_byte_add(inside);
        let beyond = offset + inside as i64;
        // SAFETY: behind the part, in the same room.
        let is_whole = rest == 0
            || unsafe { raw::mmap(behind, rest, protection, flags, file, beyond) }.is_some();
        match map {
            // What another process populated is mapped here now, and not by a fault for each page in the program's loop.
            Some(map) if protection & libc::PROT_WRITE != 0 && flags & libc::MAP_SHARED != 0 => {
                populate(map, part.len);
            }
            Some(_) => {}
            None => unmap(room, len),
        }
        Some(map.filter(|_| is_whole).ok_or(libc::ENOMEM))
    }

    /// Holds a part of a file, unless it is cut anew meanwhile.
    fn hold_file(&self, bound: &Bound, part: &Segment) -> bool {
        self.with(|table: &mut Table| {
            let from = part.offset - part.offset % self.page;
            let to = (part.offset + part.len).next_multiple_of(self.page);
            let files = self.lease.files().len();
            if !table.has_room(files) || !self.lease.hold(from, to - from) {
                return false;
            }
            let same = self
                .board
                .find(bound.device, bound.inode)
                .is_some_and(|now| now.offset == bound.offset);
            if !same {
                self.give_back(table, part);
            }
            same
        })
    }

    /// What this path's file is, before its name goes.
    pub fn named(&self, path: &CStr) -> Option<Bound> {
        if !self.board.has_files() {
            return None;
        }
        let stat =
            raw::stat_path(path).filter(|stat| stat.st_dev == self.shm && stat.st_nlink == 1)?;
        self.with(|_| self.board.find(stat.st_dev, stat.st_ino))
    }

    /// Its name is gone.
    pub fn unnamed(&self, bound: &Bound) {
        self.with(|table| {
            self.board.unlinked(bound.device, bound.inode);
            self.let_go(table, bound.offset);
        });
    }
}
