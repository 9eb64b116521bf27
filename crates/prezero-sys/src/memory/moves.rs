//! Pages of a [`Reservation`] that change their addresses.
//!
//! `mremap` moves the tables that map the pages, and so takes a small part of the time of
//! `UFFDIO_MOVE`, which moves page by page, or of a copy.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use rustix::mm::{
    MapFlags, MremapFlags, MsyncFlags, ProtFlags, mmap_anonymous, mremap, mremap_fixed, msync,
    munmap,
};
use rustix::system::uname;

use super::reservation::{Errno, GRAIN, Reservation};
use crate::raw;
use crate::sandbox::unless_confined;
use crate::thread::Unheard;

/// More than any mapping can grow by, and less than what kernels refuse to think about: 64 TiB.
const TOO_MUCH: usize = 1 << 46;

/// Moved, and what it left reads as zero (since Linux 5.7).
const MOVE: MremapFlags = MremapFlags::MAYMOVE.union(MremapFlags::DONTUNMAP);

impl Reservation {
    /// Moves pages of `from..from+len` to `to` without copying what they hold: as many, from the
    /// first on, as lie in one mapping, whose bytes it answers. Where they were lie absent
    /// pages then, or a file's, if the program mapped one there; what was at `to` is gone, and
    /// what the mapping there was advised is as it was at `from`.
    ///
    /// A move that fails in the kernel may have unmapped its goal, and another thread's `mmap` could
    /// be put there. So each reason for a failure is ruled out first. Signals are blocked meanwhile,
    /// because a move that is interrupted begins again, with that hole. One reason is left: the
    /// kernel lacks memory for its own records. Then the goal is mapped again at once, and the race
    /// is accepted.
    ///
    /// # Safety
    /// The caller owns both ranges, which do not overlap, and needs nothing of what `to` holds.
    ///
    /// # Errors
    /// `NOSYS` from a kernel that cannot (before 5.13), or that may lose what moves (6.16 to
    /// 6.18.9), `BUSY` where it is locked in memory, as a move unlocks all of its mapping, what
    /// stays too, `NOMEM` where the process's address space is limited, else what the kernel says:
    /// all is as it was, but that `to` may be absent.
    pub unsafe fn move_pages(&self, from: usize, to: usize, len: usize) -> Result<usize, Errno> {
        let (source, goal) = (self.at(from, len), self.at(to, len));
        unless_confined()?;
        if !can_move() {
            return Err(Errno::NOSYS);
        }
        // The kernel counts the addresses twice for a moment.
        if is_limited() {
            return Err(Errno::NOMEM);
        }
        let len = in_one_mapping(source, len)?;
        let _unheard = Unheard::new();
        // Writes and drops nothing; the kernel says whether it is locked.
        // SAFETY: the reservation's own mapping, of which no content changes.
        unsafe { msync(source, len, MsyncFlags::ASYNC | MsyncFlags::INVALIDATE) }?;
        // SAFETY: both lie in the reservation's own mapping (checked by `at`) and are the caller's.
        let moved = unsafe { mremap_fixed(source, len, len, MOVE, goal) };
        if let Err(error) = moved {
            // SAFETY: puts nothing over what is mapped there.
            unsafe { close_hole(goal, len) };
            return Err(error);
        }
        Ok(len)
    }
}

/// Whether the process's private address space is limited, or nothing tells: a filter of system calls may answer with
/// an error, for which `rustix` has no room here.
fn is_limited() -> bool {
    [libc::RLIMIT_AS, libc::RLIMIT_DATA].into_iter().any(|which| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        let to = (&raw mut limit).addr();
        // SAFETY: the struct is there for the call to fill; if the call fails, it says "nothing".
        unsafe { raw::syscall(libc::SYS_prlimit64, [0, which as usize, 0, to]) };
        limit.rlim_cur != libc::RLIM_INFINITY
    })
}

/// How many bytes from `first` on lie in one mapping, at most `len`.
fn in_one_mapping(first: *mut c_void, len: usize) -> Result<usize, Errno> {
    if is_one_mapping(first, len)? {
        return Ok(len);
    }
    let (mut one, mut more) = (0, len / GRAIN);
    while more - one > 1 {
        let middle = one.midpoint(more);
        *if is_one_mapping(first, middle * GRAIN)? { &mut one } else { &mut more } = middle;
    }
    if one == 0 { Err(Errno::FAULT) } else { Ok(one * GRAIN) }
}

/// Whether a range is mapped, in one piece. The kernel says so before it says that a mapping cannot
/// be made longer by [`TOO_MUCH`].
fn is_one_mapping(first: *mut c_void, len: usize) -> Result<bool, Errno> {
    // SAFETY: asks for what cannot be.
    match unsafe { mremap(first, len, TOO_MUCH, MremapFlags::empty()) } {
        Err(Errno::NOMEM) => Ok(true),
        Err(Errno::FAULT) => Ok(false),
        Err(error) => Err(error),
        Ok(_) => Err(Errno::NOTSUP),
    }
}

/// # Safety
/// The range is the caller's.
unsafe fn close_hole(first: *mut c_void, len: usize) {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    // SAFETY: the kernel puts nothing over what is mapped.
    let _ = unsafe { mmap_anonymous(first, len, ProtFlags::READ | ProtFlags::WRITE, flags) };
}

/// Whether the kernel moves pages and leaves the mapping, which reads as zero: tried once, on two pages.
fn can_move() -> bool {
    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;
    static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);
    if KNOWN.load(Relaxed) == UNKNOWN {
        KNOWN.store(if tried() { YES } else { NO }, Relaxed);
    }
    KNOWN.load(Relaxed) == YES
}

/// Whether a kernel of this release may lose the pages of a mapping that moves back to where it came
/// from. Merged with untouched neighbours it does not know whose the pages are: a fork does
/// not copy them, and the record of their owner is freed under them. Since 879bca0a2c4f (Linux
/// 6.16), mended early in 6.19 and in its stable kernels; a few later ones are left out to be sure.
/// And before 5.13 a shared mapping, which cannot be moved so, is refused only when its goal is gone.
fn loses_pages(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next().and_then(|n| n.parse().ok()).unwrap_or(0u32);
    let version = (next(), next(), next());
    version < (5, 13, 0) || ((6, 16, 0)..(6, 18, 10)).contains(&version)
}

fn tried() -> bool {
    if uname().release().to_str().map_or(true, loses_pages) {
        return false;
    }
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: pages of this call's own, which no other code has seen. If a move that failed
    // unmapped the second, it must not be unmapped again: it is left.
    unsafe {
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let Ok(first) = mmap_anonymous(ptr::null_mut(), 2 * GRAIN, both, flags) else {
            return false;
        };
        let second = first.byte_add(GRAIN);
        let [source, goal] = [first, second].map(|page| page.cast::<u8>());
        source.write_volatile(1);
        let moves = is_one_mapping(first, GRAIN) == Ok(true)
            && mremap_fixed(first, GRAIN, GRAIN, MOVE, second) == Ok(second);
        let moves = moves && (source.read_volatile(), goal.read_volatile()) == (0, 1);
        let _ = munmap(first, if moves { 2 * GRAIN } else { GRAIN });
        moves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: usize = 64;

    #[test]
    fn kernels_that_lose_what_moves_are_known_by_their_release() {
        for release in
            ["6.16.0", "6.16", "6.17.13-generic", "6.18.0-rc3", "6.18.9-1", "5.10.0", "2.6.78", "x"]
        {
            assert!(loses_pages(release), "{release}");
        }
        for release in
            ["5.13.0", "6.1.0-32", "6.12.57", "6.15.11", "6.18.10", "6.18.44-x", "6.19.0", "7.0"]
        {
            assert!(!loses_pages(release), "{release}");
        }
    }

    /// Twice `PAGES` pages, of which each of the first half holds its number and one; none where
    /// the kernel does not move them.
    fn filled() -> Option<Reservation> {
        if !can_move() {
            eprintln!("this kernel moves no pages: nothing was tested");
            return None;
        }
        let memory = Reservation::new(2 * PAGES * GRAIN, GRAIN).unwrap();
        for page in 0..PAGES {
            // SAFETY: inside the reservation, which is this test's.
            unsafe { memory.base().as_ptr().add(page * GRAIN).write(page as u8 + 1) };
        }
        Some(memory)
    }

    fn byte(memory: &Reservation, page: usize) -> u8 {
        // SAFETY: as above.
        unsafe { memory.base().as_ptr().add(page * GRAIN).read() }
    }

    fn resident(memory: &Reservation, page: usize) -> bool {
        let mut map = [0];
        memory.residency(page * GRAIN, &mut map).unwrap();
        map[0] & 1 != 0
    }

    #[test]
    fn pages_move_and_leave_absent_ones() {
        let Some(memory) = filled() else { return };
        // SAFETY: both ranges are this test's.
        let moved = unsafe { memory.move_pages(0, PAGES * GRAIN, PAGES * GRAIN) };
        assert_eq!(moved, Ok(PAGES * GRAIN));
        for page in 0..PAGES {
            assert!(!resident(&memory, page), "page {page}");
            assert_eq!((byte(&memory, page), byte(&memory, PAGES + page)), (0, page as u8 + 1));
        }
    }

    #[test]
    fn a_move_ends_where_the_mapping_does() {
        for border in [1, 2, 17, PAGES - 1] {
            let Some(memory) = filled() else { return };
            // SAFETY: no child is made.
            unsafe { memory.hide(border * GRAIN, GRAIN).unwrap() };
            // SAFETY: as above.
            let moved = unsafe { memory.move_pages(0, PAGES * GRAIN, PAGES * GRAIN) };
            assert_eq!(moved, Ok(border * GRAIN));
            assert_eq!(
                (byte(&memory, border), byte(&memory, PAGES + border)),
                (border as u8 + 1, 0)
            );
            assert_eq!((byte(&memory, 0), byte(&memory, PAGES)), (0, 1));
        }
    }

    #[test]
    fn what_was_at_the_goal_is_gone() {
        let Some(memory) = filled() else { return };
        // SAFETY: as above.
        let moved = unsafe { memory.move_pages(PAGES * GRAIN, 0, PAGES * GRAIN) };
        assert_eq!(moved, Ok(PAGES * GRAIN));
        assert!((0..2 * PAGES).all(|page| byte(&memory, page) == 0));
    }
}
