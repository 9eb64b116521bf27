//! Files in `/dev/shm` that are parts of the lease: memory that processes share by name.
//!
//! A file that gets a size of the threshold or more, was not written, and was not mapped, is bound to a part. The file itself
//! stays sparse; each mapping of it, by any process of the lease, is a mapping of the part. What lies beyond the part is the
//! file's.
//!
//! The kernel maps the file first, which decides whether it can be and where, and then the part lies over it.
//! It is asked for the file's size with each call: what was cut off since is cleared.
//!
//! A part is held by each process that maps it. While the file has its name it becomes no other part.

use std::ffi::{CStr, c_int, c_void};

use prezero_sys::mapping::room;

use super::{Arena, SMALL, pointer, populate, unmap};
use crate::board::{Bound, Kind};
use crate::raw;
use crate::table::{Segment, Table};

/// The device of `/dev/shm`, if it is a tmpfs of its own; 0: it is not. On a disk, or as a folder of another file system,
/// it shares its device with files that programs read and write.
pub fn shm() -> u64 {
    let device =
        |path: &CStr| raw::stat_path(libc::AT_FDCWD, path, 0).map_or(0, |stat| stat.st_dev);
    let (own, around) = (device(c"/dev/shm"), device(c"/dev/shm/.."));
    if own == around || !raw::is_tmpfs(c"/dev/shm") { 0 } else { own }
}

impl Arena {
    /// A file that is a part of the lease, or may become one.
    fn is_candidate(&self, stat: &libc::stat) -> bool {
        self.shm != 0
            && stat.st_dev == self.shm
            && stat.st_mode & libc::S_IFMT == libc::S_IFREG
            && self.grain == SMALL
    }

    /// The part that this descriptor's file is, as long as the kernel says now.
    pub(super) fn bound(&self, file: c_int) -> Option<Bound> {
        if !self.board.has_files() {
            return None;
        }
        let stat = raw::stat(file).filter(|stat| self.is_candidate(stat))?;
        self.with(|table| {
            self.board.sized(&stat, |bound, size| self.cut_off(table, file, bound, size))
        })
    }

    /// The size of this file may have changed.
    pub fn look_at(&self, file: c_int) {
        self.bound(file);
    }

    /// A file was cut off at this size. The windows of this process that lie behind it become the file's own, and no
    /// part of the file lies there any more; where another process has windows there they are cleared. Returns the length of
    /// the part.
    fn cut_off(&self, table: &mut Table, file: c_int, bound: &Bound, size: usize) -> usize {
        let clear = |to: usize| {
            if size < to {
                self.lease.clear(self.page, bound.offset + size, to - size);
            }
        };
        let len = size.next_multiple_of(SMALL);
        let (end, old) = (bound.offset + len, bound.offset + bound.len);
        let first = end - end % self.page;
        let held = old.next_multiple_of(self.page) - first;
        let own = raw::reopened(file);
        let is_alone = end < old && own.is_some() && self.lease.cut(first, held).is_ok();
        if !is_alone {
            clear(bound.len.min(bound.size.next_multiple_of(SMALL)));
            own.inspect(|&own| raw::close(own));
            return bound.len;
        }
        clear(len);
        let own = own.unwrap_or(file);
        raw::mappings(|raw::Mapping { mut from, to, protection, sharing, .. }| {
            while let Some(window) = table.first_in(from, to) {
                let window = window.between(from, to);
                from = window.end();
                if window.base != bound.offset || window.kind != Kind::File {
                    continue;
                }
                let before = end.saturating_sub(window.offset).min(window.len);
                if before < window.len {
                    let (at, len) = (window.at + before, window.len - before);
                    let begin = (window.offset + before - bound.offset) as i64;
                    let flags = sharing | libc::MAP_FIXED;
                    // SAFETY: in place of what the kernel has cut off.
                    let map = unsafe { raw::mmap(pointer(at), len, protection, flags, own, begin) };
                    if map.is_some() {
                        self.forget(table, at, at + len);
                    }
                }
            }
        });
        raw::close(own);
        // What was locked to know that no other has it, and this process has not either.
        table.have(first, held);
        self.give_back(table, first, held);
        len
    }

    /// A file has a size: binds it, if it is new.
    pub fn sized(&self, file: c_int) {
        let is_new = |stat: &libc::stat| stat.st_blocks == 0 && stat.st_nlink > 0;
        let is_shm = |stat: &libc::stat| self.shm != 0 && stat.st_dev == self.shm;
        let Some(stat) = raw::stat(file).filter(is_shm) else { return };
        let size = stat.st_size as usize;
        // A window has the rest of its last page too.
        let len = size.next_multiple_of(SMALL);
        let is_it = is_new(&stat) && self.is_for(len) && self.bound(file).is_none();
        if !is_it || self.is_of_a_pool() || !self.is_candidate(&stat) {
            return;
        }
        let Some(offset) = self.cut(len, Kind::File, self.ranks.mine()) else { return };
        let (device, inode) = (stat.st_dev, stat.st_ino);
        self.with(|table| {
            self.board.bind(Bound { device, inode, offset, len, size, unlinked: 0 });
            self.give_back(table, offset, len);
        });
    }

    /// Whether space that is reserved in a file is there: a part of the lease is.
    pub fn reserved(&self, file: c_int, from: i64, len: i64, keeps_size: bool) -> bool {
        let end = from.checked_add(len).filter(|_| from >= 0 && len > 0);
        let (Some(end), Some(stat)) = (end, raw::stat(file)) else { return false };
        if !self.is_candidate(&stat) || raw::flags(file) & libc::O_ACCMODE == libc::O_RDONLY {
            return false;
        }
        let grows = stat.st_size < end && !keeps_size;
        let is_there = |bound: Bound| end as usize <= bound.len;
        if let Some(bound) = self.bound(file) {
            let done = is_there(bound) && (!grows || raw::ftruncate(file, end) == 0);
            self.look_at(file);
            return done;
        }
        if from != 0 || !grows || !self.is_for(end as usize) || raw::ftruncate(file, end) != 0 {
            return false;
        }
        self.sized(file);
        let done = self.bound(file).is_some_and(is_there);
        if !done {
            raw::ftruncate(file, stat.st_size);
        }
        done
    }

    /// The kernel has made a hole in a file.
    pub fn punched(&self, file: c_int, from: i64, len: i64) {
        if let Some(bound) = self.bound(file) {
            let from = (from as usize).min(bound.len);
            let len = (len as usize).min(bound.len - from);
            if len > 0 {
                self.lease.clear(self.page, bound.offset + from, len);
            }
        }
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
        let stat = raw::stat(file).filter(|stat| self.is_candidate(stat))?;
        let Some(bound) = self.bound(file) else {
            let (device, inode) = (stat.st_dev, stat.st_ino);
            self.with(|_| self.board.bind(Bound { device, inode, ..Bound::default() }));
            return None;
        };
        let (begin, whole) = (usize::try_from(offset).ok()?, len.checked_next_multiple_of(SMALL)?);
        if begin >= bound.len || whole == 0 || !begin.is_multiple_of(SMALL) {
            return None;
        }
        let fixed = libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE;
        let is_free = flags & fixed == 0 && at.is_null();
        let base = bound.offset;
        let (inside, offset_in) = (whole.min(bound.len - begin), base + begin);
        let part = Segment { at: 0, len: inside, offset: offset_in, kind: Kind::File, base };
        let map = self.with(|table| {
            if !self.has_room(table) {
                return Err(libc::ENOMEM);
            }
            // Where one of the lease's pages may begin.
            let shift = begin % self.page;
            let made = is_free.then(|| room(0, whole + shift, self.page));
            let (place, how) = match made {
                Some(room) => {
                    let room = room.ok_or(libc::ENOMEM)?;
                    unmap(room, shift);
                    (room.wrapping_byte_add(shift), flags | libc::MAP_FIXED)
                }
                None => (at, flags),
            };
            // SAFETY: as the caller asked, or into the room of this call.
            let map = unsafe { raw::mmap(place, len, protection, how, file, offset) };
            let Some(map) = map else {
                let why = raw::error();
                if is_free {
                    unmap(place, whole);
                }
                return Err(why);
            };
            self.forget(table, map.addr(), map.addr() + whole);
            if !self.hold_more(table, base, part.offset, part.len) {
                return Ok(map);
            }
            let over = flags & !libc::MAP_FIXED_NOREPLACE | libc::MAP_FIXED;
            // SAFETY: over what was mapped above.
            let done = unsafe { self.lease.map(map, part.len, protection, over, part.offset) };
            if done.is_some() {
                self.note(table, Segment { at: map.addr(), ..part });
            } else {
                unmap(map, whole);
            }
            self.give_back(table, part.offset, part.len);
            done.ok_or(libc::ENOMEM)
        });
        if let Ok(map) = map
            && protection & libc::PROT_WRITE != 0
            && flags & libc::MAP_TYPE != libc::MAP_PRIVATE
        {
            // What another process populated is mapped here now, and not by a fault for each page in the program's loop.
            populate(map, inside);
        }
        Some(map)
    }

    /// Holds a range of a file that begins there in the lease, unless it is cut anew meanwhile, or ends before.
    pub(super) fn hold_more(
        &self,
        table: &mut Table,
        base: usize,
        from: usize,
        len: usize,
    ) -> bool {
        let first = from - from % self.page;
        let held = (from + len).next_multiple_of(self.page) - first;
        table.have(from, len);
        let is_it = self.lease.hold(first, held)
            && self.board.file_at(base).is_some_and(|file| from + len <= base + file.len);
        if !is_it {
            self.give_back(table, from, len);
        }
        is_it
    }

    /// Whether this path is a file that may be a part of the lease. A link is followed.
    pub fn has_file(&self, path: &CStr) -> bool {
        self.board.has_files()
            && raw::stat_path(libc::AT_FDCWD, path, 0).is_some_and(|stat| self.is_candidate(&stat))
    }

    /// What this path's file is, before its name goes.
    pub fn named(&self, folder: c_int, path: &CStr) -> Option<(u64, u64)> {
        let stat = raw::stat_path(folder, path, libc::AT_SYMLINK_NOFOLLOW)?;
        (self.is_candidate(&stat) && stat.st_nlink == 1).then_some((stat.st_dev, stat.st_ino))
    }

    /// Its name is gone.
    pub fn unnamed(&self, (device, inode): (u64, u64)) {
        self.with(|_| self.board.unlinked(device, inode));
    }
}
