//! `madvise` on parts of the lease: private memory answers as the kernel's private memory does.
//!
//! | advice | on private memory | on shared memory |
//! |---|---|---|
//! | `MADV_DONTNEED` | the bytes are cleared | the kernel's answer |
//! | `MADV_FREE` | nothing happens, as the kernel may do | the kernel's answer |
//! | `MADV_HUGEPAGE`, `MADV_NOHUGEPAGE`, `MADV_COLLAPSE` | nothing happens: its pages are what they are | the same |
//! | `MADV_REMOVE` | `EINVAL`, as the kernel says | the bytes are cleared: pages stay the lease's |
//! | `MADV_DOFORK` | `EINVAL`: a child would share it | the kernel's answer |

use std::ffi::c_int;

use super::{Arena, pointer};
use crate::table::Segment;
use crate::{raw, said};

/// Since Linux 5.18 and 6.1; libc knows one of them.
const DONTNEED_LOCKED: c_int = 24;
const COLLAPSE: c_int = 25;

impl Arena {
    /// `None`: the kernel's.
    pub fn advise(&self, at: usize, len: usize, advice: c_int) -> Option<c_int> {
        let end = at.checked_add(len)?;
        if !self.touches(at, len) {
            return None;
        }
        self.with(|table| {
            table.first_in(at, end)?;
            let (mut from, mut result) = (at, 0);
            while from < end && result == 0 {
                let next = table.first_in(from, end);
                let (to, inside) = match next {
                    Some(part) if part.at <= from => (part.end().min(end), next),
                    Some(part) => (part.at, None),
                    None => (end, None),
                };
                let own = inside.and_then(|part| self.advise_part(part, from, to - from, advice));
                // SAFETY: the kernel is asked what the caller asked, of a part of its range.
                result = own
                    .unwrap_or_else(|| unsafe { raw::madvise(pointer(from), to - from, advice) });
                from = to;
            }
            Some(result)
        })
    }

    fn advise_part(&self, part: Segment, from: usize, len: usize, advice: c_int) -> Option<c_int> {
        let clear = || {
            let done = self.lease.clear(self.page, part.offset + (from - part.at), len);
            if done { 0 } else { raw::fail(libc::ENOMEM) }
        };
        match (advice, part.kind.is_private()) {
            (libc::MADV_DONTNEED | DONTNEED_LOCKED, true) | (libc::MADV_REMOVE, false) => {
                Some(clear())
            }
            (libc::MADV_FREE, true)
            | (libc::MADV_HUGEPAGE | libc::MADV_NOHUGEPAGE | COLLAPSE, _) => Some(0),
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
