//! `mremap` of parts of the lease.
//!
//! The kernel moves and shrinks them as it does any mapping, and the table follows. A mapping that grows goes on in the file,
//! so private memory grows where what lies behind it in the lease is free, and a window where that is its file's.
//! Where it is not, private memory moves into memory of the kernel with its content, and what is shared is refused.

use std::ffi::{c_int, c_void};

use prezero_sys::mapping::room;

use super::{Arena, SMALL, pointer, populate, unmap};
use crate::board::Kind;
use crate::raw;
use crate::table::{Segment, Table};

/// What a call asks for, in whole pages.
#[derive(Clone, Copy)]
pub struct Resize {
    pub at: usize,
    pub len: usize,
    pub new: usize,
    pub flags: c_int,
    pub to: *mut c_void,
}

impl Resize {
    fn end(&self) -> usize {
        self.at + self.len
    }

    fn has(&self, flag: c_int) -> bool {
        self.flags & flag != 0
    }

    /// Whether the kernel refuses it wherever it is asked.
    fn is_wrong(&self) -> bool {
        let (known, moves) = (
            libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP,
            libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP,
        );
        let to = self.to.addr();
        let overlaps = || to < self.end() && self.at < to.saturating_add(self.new);
        self.flags & !known != 0
            || self.len == 0
            || self.new == 0
            || !self.at.is_multiple_of(SMALL)
            || self.has(moves) && !self.has(libc::MREMAP_MAYMOVE)
            || self.has(libc::MREMAP_DONTUNMAP) && self.len != self.new
            || self.has(libc::MREMAP_FIXED) && (!to.is_multiple_of(SMALL) || overlaps())
    }
}

impl Arena {
    /// `None`: the kernel's.
    pub fn resize(&self, asked: Resize) -> Option<Result<*mut c_void, c_int>> {
        let (len, new) = (
            asked.len.checked_next_multiple_of(SMALL)?,
            asked.new.checked_next_multiple_of(SMALL)?,
        );
        let asked = Resize { len, new, ..asked };
        let (from, to) = (asked.at, asked.at.checked_add(len.max(SMALL))?);
        let lands = asked.has(libc::MREMAP_FIXED).then_some(asked.to.addr());
        let lands = lands.and_then(|to| Some((to, to.checked_add(new)?)));
        if !self.touches(from, to - from) && !lands.is_some_and(|(from, _)| self.touches(from, new))
        {
            return None;
        }
        self.with(|table| {
            let first = table.first_in(from, to);
            if first.is_none() && lands.and_then(|(from, to)| table.first_in(from, to)).is_none() {
                return None;
            }
            if !self.has_room(table) {
                return Some(Err(libc::ENOMEM));
            }
            let is_whole = |part: &Segment| part.at <= from && to <= part.end();
            let stays = asked.has(libc::MREMAP_DONTUNMAP) || len == 0;
            let Some(part) = first.filter(|_| stays || new > len || asked.has(libc::MREMAP_FIXED))
            else {
                return Some(self.remap(table, asked));
            };
            Some(if asked.is_wrong() {
                Err(libc::EINVAL)
            } else if part.kind == Kind::Private {
                self.grow(table, Some(part).filter(is_whole), asked)
            } else if stays {
                Err(libc::ENOMEM)
            } else if new <= len {
                self.remap(table, asked)
            } else if part.kind == Kind::File && is_whole(&part) {
                self.grow_window(table, part, asked)
            } else {
                self.one_mapping(table, from, len).and(Err(libc::ENOMEM))
            })
        })
    }

    /// The kernel does it, and the table follows.
    fn remap(&self, table: &mut Table, asked: Resize) -> Result<*mut c_void, c_int> {
        let Resize { at, len, new, flags, to } = asked;
        // SAFETY: as the caller was told.
        let map = unsafe { raw::mremap(pointer(at), len, new, flags, to) };
        let map = map.ok_or_else(raw::error)?;
        let kept = len.min(new);
        self.forget(table, at + kept, at + len);
        if map.addr() != at {
            self.forget(table, map.addr(), map.addr() + new);
            while let Some(part) = table.take_out(at, at + kept) {
                self.note(table, Segment { at: map.addr() + (part.at - at), ..part });
                self.give_back(table, part.offset, part.len);
            }
        }
        Ok(map)
    }

    /// A mapping grows: what lies behind the part in the lease is its too, and is held already. Where there is no room it moves,
    /// to where one of the lease's pages may begin.
    fn remap_on(
        &self,
        table: &mut Table,
        part: Segment,
        asked: Resize,
    ) -> Result<*mut c_void, c_int> {
        let Resize { at, len, new, .. } = asked;
        let (offset, more) = (part.offset + (at - part.at), new - len);
        let is_free = asked.flags == libc::MREMAP_MAYMOVE;
        let here = Resize { flags: if is_free { 0 } else { asked.flags }, ..asked };
        let mut map = self.remap(table, here);
        if is_free && map == Err(libc::ENOMEM) {
            let shift = offset % self.page;
            map = room(0, new + shift, self.page).ok_or(libc::ENOMEM).and_then(|room| {
                unmap(room, shift);
                let to = room.wrapping_byte_add(shift);
                let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                self.remap(table, Resize { flags, to, ..asked }).inspect_err(|_| unmap(to, new))
            });
        }
        if let Ok(map) = map {
            let end = map.wrapping_byte_add(len);
            let at = end.addr();
            self.note(table, Segment { at, len: more, offset: offset + len, ..part });
            populate(end, more);
        }
        self.give_back(table, offset + len, more);
        map
    }

    /// Private memory grows, or moves in several pieces.
    fn grow(
        &self,
        table: &mut Table,
        part: Option<Segment>,
        asked: Resize,
    ) -> Result<*mut c_void, c_int> {
        if let Some(part) = part.filter(|_| asked.new > asked.len) {
            let (from, more) = (part.offset + (asked.end() - part.at), asked.new - asked.len);
            if self.extend(table, from, more) {
                let map = self.remap_on(table, part, asked);
                self.board.count(Kind::Private, if map.is_ok() { more } else { 0 });
                return map;
            }
        }
        // Newer kernels move several mappings at once.
        let moves = asked.new <= asked.len && !asked.has(libc::MREMAP_DONTUNMAP);
        let map = if moves { self.remap(table, asked) } else { Err(libc::EFAULT) };
        if map == Err(libc::EFAULT) { self.leave(table, asked) } else { map }
    }

    /// Cuts what lies behind a part in the lease, and clears it.
    fn extend(&self, table: &mut Table, from: usize, more: usize) -> bool {
        let to = from + more;
        let edge = from.next_multiple_of(self.page).min(to);
        let held = (to - edge).next_multiple_of(self.page);
        let is_one_file = edge + held <= self.lease.bytes()
            && self.lease.pieces(from - SMALL, more + SMALL).count() == 1;
        let (page, end) = (edge / self.page, (edge + held) / self.page);
        let is_free = is_one_file
            && !table.has(from, to)
            && table.last_had(page, end).is_none()
            && (held == 0 || self.cut_at(table, edge, held).is_ok());
        if !is_free {
            return false;
        }
        table.have(from, more);
        let is_zero = (edge == from || self.lease.clear(self.page, from, edge - from))
            && (held == 0 || self.ready(edge, to - edge));
        if !is_zero {
            self.give_back(table, from, more);
        }
        is_zero
    }

    /// A window grows in its file, and not beyond the file's part.
    fn grow_window(
        &self,
        table: &mut Table,
        part: Segment,
        asked: Resize,
    ) -> Result<*mut c_void, c_int> {
        let (from, more) = (part.offset + (asked.end() - part.at), asked.new - asked.len);
        if !self.hold_more(table, part.base, from, more) {
            return Err(libc::ENOMEM);
        }
        self.remap_on(table, part, asked)
    }

    /// Private memory moves into memory of the kernel with its content, or goes on behind it.
    fn leave(&self, table: &mut Table, asked: Resize) -> Result<*mut c_void, c_int> {
        let Resize { at, len, new, to, .. } = asked;
        let protection = self.one_mapping(table, at, len)?;
        if !Arena::is_private(table, at, at + len) {
            return Err(libc::EFAULT);
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: where nothing is, wherever the kernel likes, or where the caller wants it.
        let make = |at, len, protection, more| unsafe {
            raw::mmap(at, len, protection, flags | more, -1, 0)
        };
        self.board.count_missed(new - new.min(len));
        if !asked.has(libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP) {
            let behind = pointer(at + len);
            let map = make(behind, new - len, protection, libc::MAP_FIXED_NOREPLACE);
            if map == Some(behind) {
                self.forget(table, at + len, at + new);
                return Ok(pointer(at));
            }
            // Kernels without the flag choose another place.
            if let Some(elsewhere) = map {
                unmap(elsewhere, new - len);
            }
            if !asked.has(libc::MREMAP_MAYMOVE) {
                return Err(libc::ENOMEM);
            }
        }
        let both = libc::PROT_READ | libc::PROT_WRITE;
        let is_fixed = asked.has(libc::MREMAP_FIXED);
        let (place, how) = if is_fixed { (to, libc::MAP_FIXED) } else { (pointer(0), 0) };
        let map = make(place, new, both, how).ok_or(libc::ENOMEM)?;
        self.forget(table, map.addr(), map.addr() + new);
        let old = pointer(at);
        // SAFETY: the caller's memory, which is mapped and goes or is cleared, and a new mapping of that length and more.
        unsafe {
            if protection & libc::PROT_READ == 0 {
                libc::mprotect(old, len, libc::PROT_READ);
            }
            map.cast::<u8>().copy_from_nonoverlapping(old.cast::<u8>(), len.min(new));
            if protection != both {
                libc::mprotect(map, new, protection);
            }
        }
        if asked.has(libc::MREMAP_DONTUNMAP) {
            self.advise_all(table, at, at + len, libc::MADV_DONTNEED);
            // SAFETY: as it was before.
            unsafe { libc::mprotect(old, len, protection) };
        } else {
            unmap(old, len);
            self.forget(table, at, at + len);
        }
        Ok(map)
    }

    /// The protection of what would be one mapping, had the kernel made all of it: pieces of the lease and of its own, one
    /// behind the other, each whole and under the same protection.
    fn one_mapping(&self, table: &Table, at: usize, len: usize) -> Result<c_int, c_int> {
        let (mut pieces, mut from) = (0, at);
        while from < at + len {
            let next = table.first_in(from, at + len);
            from = next.map_or(at + len, |part| if part.at <= from { part.end() } else { part.at });
            pieces += 1;
        }
        let (mut end, mut protection) = (at, None);
        raw::mappings(|own| {
            let goes_on = own.from <= end && end < own.to && end < at + len;
            if goes_on && protection.is_none_or(|all| all == own.protection) {
                (end, protection) = (own.to, Some(own.protection));
                pieces -= 1;
            }
        });
        protection.filter(|_| end >= at + len && pieces == 0).ok_or(libc::EFAULT)
    }

    /// Whether all of a range is private memory: of the lease, or of the kernel.
    fn is_private(table: &Table, at: usize, end: usize) -> bool {
        let mut is_it = true;
        raw::mappings(|own| {
            let (from, to) = (own.from.max(at), own.to.min(end));
            if from < to {
                let part = table.first_in(from, to);
                is_it &= match part {
                    Some(part) => part.kind == Kind::Private,
                    None => own.sharing == libc::MAP_PRIVATE && !own.has_file,
                };
            }
        });
        is_it
    }
}
