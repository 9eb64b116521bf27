//! `madvise` on parts of the lease: private memory answers as the kernel's private memory does.
//!
//! | advice | on private memory | on other memory |
//! |---|---|---|
//! | `MADV_DONTNEED` | the kernel takes the pages out of the lease, and later ones are zero | the kernel's answer |
//! | `MADV_FREE` | nothing happens, as the kernel may do | the kernel's answer |
//! | `MADV_COLLAPSE` | nothing happens: its pages are large already | the same |
//! | `MADV_REMOVE` | `EINVAL`, as the kernel says | the kernel's answer |
//! | `MADV_DOFORK` | `EINVAL`: a child would share it | the kernel's answer |
//!
//! The kernel is asked by address, and knows what is mapped there: the table may be wrong about it.

use std::ffi::c_int;

use super::{Arena, SMALL, pointer};
use crate::table::{Segment, Table};
use crate::{raw, said};

/// Since Linux 5.18 and 6.1; libc knows one of them.
const DONTNEED_LOCKED: c_int = 24;
const COLLAPSE: c_int = 25;

impl Arena {
    /// `None`: the kernel's.
    pub fn advise(&self, at: usize, len: usize, advice: c_int) -> Option<c_int> {
        let end = at.checked_add(len)?.checked_next_multiple_of(SMALL)?;
        if !self.touches(at, len) || !at.is_multiple_of(SMALL) {
            return None;
        }
        self.with(|table| {
            table.first_in(at, end)?;
            Some(self.advise_all(table, at, end, advice))
        })
    }

    /// Goes on behind a gap, as the kernel does, and says of it at the end.
    pub(super) fn advise_all(&self, table: &Table, at: usize, end: usize, advice: c_int) -> c_int {
        let (mut from, mut has_gap) = (at, false);
        while from < end {
            let next = table.first_in(from, end);
            let (to, inside) = match next {
                Some(part) if part.at <= from => (part.end().min(end), next),
                Some(part) => (part.at, None),
                None => (end, None),
            };
            let kernel = |advice| {
                // SAFETY: the kernel is asked what the caller asked, of a part of its range.
                unsafe { raw::madvise(pointer(from), to - from, advice) }
            };
            let part = inside.map(|part| part.between(from, to));
            let own = part.and_then(|part| self.advise_part(part, advice, kernel));
            if own.unwrap_or_else(|| kernel(advice)) != 0 {
                if raw::error() != libc::ENOMEM {
                    return -1;
                }
                has_gap = true;
            }
            from = to;
        }
        if has_gap { raw::fail(libc::ENOMEM) } else { 0 }
    }

    fn advise_part(
        &self,
        part: Segment,
        advice: c_int,
        kernel: impl Fn(c_int) -> c_int,
    ) -> Option<c_int> {
        match (advice, part.kind.is_private() && self.grain == SMALL) {
            // Not of memory that is locked, or may not be written to: the first must not go, the second is cleared.
            (libc::MADV_DONTNEED | DONTNEED_LOCKED, true) => match kernel(libc::MADV_REMOVE) {
                0 => Some(0),
                _ if raw::error() == libc::EACCES || advice == DONTNEED_LOCKED => {
                    let done = self.lease.clear(self.page, part.offset, part.len);
                    Some(if done { 0 } else { raw::fail(libc::ENOMEM) })
                }
                _ => None,
            },
            (libc::MADV_FREE, true) => {
                // Of memory that is shared the kernel refuses it.
                let done = kernel(advice);
                Some(if done != 0 && raw::error() == libc::EINVAL { 0 } else { done })
            }
            (COLLAPSE, _) => Some(0),
            (libc::MADV_REMOVE, true) => Some(raw::fail(libc::EINVAL)),
            (libc::MADV_DOFORK, true) => {
                said::FORK.say(format_args!(
                    "MADV_DOFORK is refused on private memory of the lease: a child would share it"
                ));
                Some(raw::fail(libc::EINVAL))
            }
            _ => None,
        }
    }
}
