//! `mremap` of parts of the lease.
//!
//! Private memory grows by a second part behind the first, in place or at another address. Where the lease has none left its
//! content moves into memory of the kernel. Memory that is shared, or pinned by `cudaHostAlloc`, does not grow: what lies behind
//! it in the file is another's.

use std::ffi::{c_int, c_void};

use prezero_sys::mapping::room;

use super::{Arena, SMALL, pointer, populate, unmap};
use crate::board::Kind;
use crate::raw;
use crate::table::{Segment, Table};

impl Arena {
    /// `None`: the kernel's.
    pub fn resize(
        &self,
        at: usize,
        len: usize,
        new: usize,
        flags: c_int,
        to: *mut c_void,
    ) -> Option<Result<*mut c_void, c_int>> {
        at.checked_add(len)?.checked_add(SMALL)?;
        if !self.touches(at, len.max(1)) {
            return None;
        }
        self.with(|table| {
            let first = table.first_in(at, at + len.max(1))?;
            let (len, new) = (len.next_multiple_of(SMALL), new.checked_next_multiple_of(SMALL)?);
            let known = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            let is_whole = self.is_tiled(table, at, at + len);
            if flags & !known != 0 || len == 0 || new == 0 || !at.is_multiple_of(self.grain) {
                return Some(Err(libc::EINVAL));
            }
            if !is_whole && new > len {
                return Some(Err(libc::EFAULT));
            }
            if flags & libc::MREMAP_FIXED != 0 {
                return Some(self.move_to(table, at, len, new, to));
            }
            if new <= len {
                // SAFETY: the end of what the caller gives up.
                if new < len && unsafe { raw::munmap(pointer(at + new), len - new) } != 0 {
                    return Some(Err(libc::EINVAL));
                }
                self.forget(table, at + new, at + len);
                return Some(Ok(pointer(at)));
            }
            if first.kind != Kind::Private {
                return Some(Err(libc::ENOMEM));
            }
            Some(self.grow(table, at, len, new, flags & libc::MREMAP_MAYMOVE != 0))
        })
    }

    fn is_tiled(&self, table: &Table, mut from: usize, to: usize) -> bool {
        while from < to {
            match table.at(from) {
                Some(part) => from = part.end(),
                None => return false,
            }
        }
        true
    }

    fn grow(
        &self,
        table: &mut Table,
        at: usize,
        len: usize,
        new: usize,
        may_move: bool,
    ) -> Result<*mut c_void, c_int> {
        let more = new - len;
        let offset = self.take(table, more, Kind::Private, self.ranks.mine());
        let offset = offset.filter(|&offset| self.ready(offset, more));
        let Some(offset) = offset else {
            return if may_move { self.leave(table, at, len, new) } else { Err(libc::ENOMEM) };
        };
        let (flags, end) =
            (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, pointer(at + len));
        let fixed = flags | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: behind the caller's memory, where nothing is: kernels without the flag choose another place.
        let behind = unsafe { raw::mmap(end, more, libc::PROT_NONE, fixed, -1, 0) };
        if let Some(elsewhere) = behind.filter(|&behind| behind != end) {
            unmap(elsewhere, more);
        }
        let begin = if behind == Some(end) {
            Some(pointer(at))
        } else if may_move {
            room(0, new, self.page)
        } else {
            None
        };
        let Some(begin) = begin else {
            self.drop_hold(table, offset);
            return Err(libc::ENOMEM);
        };
        if begin.addr() != at && !self.shift(table, at, len, begin) {
            unmap(begin, new);
            self.drop_hold(table, offset);
            return Err(libc::ENOMEM);
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let part = Segment { at: 0, len: more, offset, kind: Kind::Private };
        let tail = self.map(table, begin.wrapping_byte_add(len), protection, part);
        if tail.is_none() {
            self.drop_hold(table, offset);
            return Err(libc::ENOMEM);
        }
        table.keep(|each| each.at != 0 || each.offset != offset);
        self.board.count(Kind::Private, more);
        populate(begin.wrapping_byte_add(len), more);
        Ok(begin)
    }

    /// Moves parts, piece by piece, over room that was made for them.
    fn shift(&self, table: &mut Table, at: usize, len: usize, begin: *mut c_void) -> bool {
        let mut moved = 0;
        while moved < len {
            let Some(part) = table.take_out(at + moved, at + len) else { return false };
            let (to, flags) =
                (begin.wrapping_byte_add(moved), libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED);
            // SAFETY: from the caller's memory to room of this library's.
            if unsafe { raw::mremap(pointer(part.at), part.len, part.len, flags, to) }.is_none() {
                table.add(part);
                return false;
            }
            self.note(table, Segment { at: to.addr(), ..part });
            moved += part.len;
        }
        true
    }

    /// `MREMAP_FIXED`: shrinks if need be, and moves.
    fn move_to(
        &self,
        table: &mut Table,
        at: usize,
        len: usize,
        new: usize,
        to: *mut c_void,
    ) -> Result<*mut c_void, c_int> {
        let apart = to.addr() + new <= at || at + len <= to.addr();
        if new > len
            || !apart
            || !to.addr().is_multiple_of(self.grain)
            || !self.is_tiled(table, at, at + new)
        {
            return Err(libc::EINVAL);
        }
        if new < len {
            unmap(pointer(at + new), len - new);
            self.forget(table, at + new, at + len);
        }
        self.forget(table, to.addr(), to.addr() + new);
        if self.shift(table, at, new, to) { Ok(to) } else { Err(libc::ENOMEM) }
    }

    /// The content moves into memory of the kernel; the parts go back.
    fn leave(
        &self,
        table: &mut Table,
        at: usize,
        len: usize,
        new: usize,
    ) -> Result<*mut c_void, c_int> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping wherever the kernel likes.
        let map = unsafe { raw::mmap(std::ptr::null_mut(), new, protection, flags, -1, 0) };
        let map = map.ok_or(libc::ENOMEM)?;
        // SAFETY: from the caller's memory, which is mapped, to a new mapping of that length and more.
        unsafe { map.cast::<u8>().copy_from_nonoverlapping(pointer(at).cast::<u8>(), len) };
        self.board.count_missed(new);
        unmap(pointer(at), len);
        self.forget(table, at, at + len);
        Ok(map)
    }
}
