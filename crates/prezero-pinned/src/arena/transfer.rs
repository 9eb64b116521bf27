//! Reads and writes of a file that is a part of the lease: what lies in the part is read and written there.
//!
//! The file itself keeps its size and its position. A call that hands pages from file to file is refused, as between file
//! systems that cannot, and programs copy then.

use std::ffi::{c_int, c_long, c_void};

use super::Arena;
use crate::board::Bound;
use crate::raw;

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    Read,
    Write,
}

impl Way {
    /// A piece, by the kernel; what it says, and `errno`.
    fn piece(self, file: c_int, at: *mut c_void, len: usize, from: i64) -> isize {
        let (file, call) = match self {
            Way::Read => (c_long::from(file), libc::SYS_pread64),
            Way::Write => (c_long::from(file), libc::SYS_pwrite64),
        };
        // SAFETY: the caller's memory, for the kernel to look at.
        unsafe { libc::syscall(call, file, at, len, from) as isize }
    }
}

impl Arena {
    /// Whether a descriptor's file is a part of the lease.
    pub fn is_part(&self, file: c_int) -> bool {
        self.bound(file).is_some()
    }

    /// The next byte that is there, or the next hole, of a file that is a part of the lease; `None`: it is none.
    pub fn seek(&self, file: c_int, from: i64, whence: c_int) -> Option<i64> {
        let size = self.bound(file)?.size as i64;
        if from < 0 || from >= size {
            return Some(raw::fail(libc::ENXIO).into());
        }
        let to = if whence == libc::SEEK_DATA { from } else { size };
        Some(raw::seek(file, to, libc::SEEK_SET))
    }

    /// Transfers at a place, or at the descriptor's own. `None`: the file is no part of the lease, or the kernel refuses it.
    pub fn transfer(
        &self,
        file: c_int,
        all: &[libc::iovec],
        at: Option<i64>,
        way: Way,
    ) -> Option<isize> {
        let bound = self.bound(file)?;
        let flags = raw::flags(file);
        let refused = if way == Way::Read { libc::O_WRONLY } else { libc::O_RDONLY };
        let appends = way == Way::Write && flags & libc::O_APPEND != 0;
        let place = at.unwrap_or_else(|| raw::seek(file, 0, libc::SEEK_CUR));
        let from = if appends { bound.size } else { usize::try_from(place).ok()? };
        let len: usize = all.iter().map(|each| each.iov_len).fold(0, usize::saturating_add);
        let len = if way == Way::Read { len.min(bound.size.saturating_sub(from)) } else { len };
        if flags & libc::O_ACCMODE == refused || from >= bound.len || len == 0 {
            return None;
        }
        let held = len.min(bound.len - from);
        let (offset, base) = (bound.offset + from, bound.offset);
        if !self.with(|table| self.hold_more(table, base, offset, held)) {
            return None;
        }
        let done = self.pieces(file, &bound, all, (from, len), way);
        self.with(|table| self.give_back(table, offset, held));
        let end = from + usize::try_from(done).unwrap_or(0);
        if way == Way::Write && end > bound.size.max(from) {
            raw::ftruncate(file, end as i64);
            self.look_at(file);
        }
        if at.is_none() && done > 0 {
            raw::seek(file, end as i64, libc::SEEK_SET);
        }
        Some(done)
    }

    /// Piece after piece: a buffer, of what lies in the part and in one file of the lease.
    fn pieces(
        &self,
        file: c_int,
        bound: &Bound,
        all: &[libc::iovec],
        (from, len): (usize, usize),
        way: Way,
    ) -> isize {
        let mut done = 0;
        for each in all {
            let mut inside = 0;
            while inside < each.iov_len && done < len {
                let (at, want) = (from + done, (each.iov_len - inside).min(len - done));
                let left = bound.len.saturating_sub(at).min(want);
                let piece = self.lease.pieces(bound.offset + at, left).next();
                let (number, begin, want) = piece
                    .map_or((file, at, want), |(file, begin, len)| (file.number(), begin, len));
                let buffer = each.iov_base.wrapping_byte_add(inside);
                let moved = way.piece(number, buffer, want, begin as i64);
                let Some(moved) = usize::try_from(moved).ok().filter(|&moved| moved > 0) else {
                    return if done > 0 { done as isize } else { moved };
                };
                (done, inside) = (done + moved, inside + moved);
            }
        }
        done as isize
    }
}
