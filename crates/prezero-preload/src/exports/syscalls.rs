//! Zone memory that the program changes by system calls.
//!
//! A program may protect, lock, advise, remap or unmap pages of a block that it got
//! from `malloc`. Each function here forwards to the next one unchanged, and where the
//! range touches the zone first marks those pages *foreign*: the zone replaces them by
//! fresh memory when the block is freed, and never hands them on as they are.
//!
//! What a program keeps from its children (`MADV_DONTFORK`) is a hole in the child's zone, which
//! the kernel would give to another mapping: the child closes it first of all.
//!
//! Four things are not forwarded as they stand:
//! - `munmap` and `mremap` leave inaccessible memory where zone pages were, and not a
//!   hole that the kernel would give to another mapping.
//! - `MADV_HUGEPAGE` inside the zone leaves no mark, which would make every `NumPy` array
//!   foreign: the zone has the huge blocks that lie in the range faulted in whole, once.
//! - `mlockall` would make all free memory resident. Before the zone exists it
//!   keeps it from existing; later the zone gives up what is free, and serves no more.
//!
//! A program that makes these calls without libc (`syscall(2)`) is not seen.

use std::ffi::{c_int, c_long, c_uint, c_ulong, c_void};
use std::ops::Range;
use std::ptr;

use prezero_core::{Heap, PAGE};

use crate::compat::errno::Errno;
use crate::compat::next;
use crate::process;
use crate::process::holes::{note_unforked, seal, seal_holes};

/// The heap and the whole pages of it that the range touches.
fn part(at: *const c_void, len: usize) -> Option<(&'static Heap, Range<usize>)> {
    let heap = process::ready()?;
    heap.part(at.addr(), len).map(|part| (heap, part))
}

/// Marks what the range touches of the zone.
///
/// # Safety
/// The program owns the range.
unsafe fn mark(at: *const c_void, len: usize) {
    if let Some((heap, part)) = part(at, len) {
        // SAFETY: the caller's promise; blocks are whole pages.
        unsafe { heap.mark_remapped(&part) };
    }
}

macro_rules! marking {
    ($($(#[$doc:meta])* $name:ident($at:ident: $type:ty, $len:ident: $length:ty $(, $arg:ident: $t:ty)*) -> $ret:ty;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As in libc.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($at: $type, $len: $length $(, $arg: $t)*) -> $ret {
                // SAFETY: the caller keeps the contract of `mark`.
                unsafe {
                    mark($at.cast(), $len as usize);
                    next::$name($at, $len $(, $arg)*)
                }
            }
        )*
    };
}

marking! {
    /// libc's `mprotect`.
    mprotect(at: *mut c_void, len: usize, prot: c_int) -> c_int;
    /// libc's `pkey_mprotect`.
    pkey_mprotect(at: *mut c_void, len: usize, prot: c_int, key: c_int) -> c_int;
    /// libc's `mlock`. (`munlock` changes nothing that `mlock` did not mark.)
    mlock(at: *const c_void, len: usize) -> c_int;
    /// libc's `mlock2`.
    mlock2(at: *const c_void, len: usize, flags: c_uint) -> c_int;
    /// libnuma's `mbind`.
    mbind(at: *mut c_void, len: c_ulong, mode: c_int, nodes: *const c_ulong, max: c_ulong, flags: c_uint) -> c_long;
    /// libc's `remap_file_pages`.
    remap_file_pages(at: *mut c_void, len: usize, prot: c_int, page: usize, flags: c_int) -> c_int;
}

/// `UFFDIO_REGISTER`, and the beginning of what its argument points at.
const UFFDIO_REGISTER: c_ulong = 0xc020_aa00;
#[repr(C)]
struct Registered {
    start: u64,
    len: u64,
}

/// libc's `ioctl`: marks what a userfaultfd is to watch, whose faults would wait for an answer
/// long after the block was freed.
///
/// # Safety
/// As in libc, which declares it with any third argument; all are passed alike.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(file: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: the caller keeps the contract of `ioctl`.
    let answer = unsafe { next::ioctl(file, request, argument) };
    if request == UFFDIO_REGISTER && answer == 0 {
        // SAFETY: the kernel has read it, and said that it is one. The range is the caller's.
        unsafe {
            let registered = argument.cast::<Registered>().read_unaligned();
            mark(ptr::without_provenance(registered.start as usize), registered.len as usize);
        }
    }
    answer
}

/// libc's `shmat`: marks what `SHM_REMAP` puts over zone pages.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shmat(id: c_int, at: *const c_void, flags: c_int) -> *mut c_void {
    if flags & libc::SHM_REMAP != 0 && part(at, PAGE).is_some() {
        // SAFETY: a struct of integers, for which zero is valid, that the call fills.
        let segment = unsafe {
            let mut segment: libc::shmid_ds = std::mem::zeroed();
            libc::shmctl(id, libc::IPC_STAT, &raw mut segment);
            segment
        };
        // SAFETY: the caller keeps the contract of `shmat`: it gives up what lies there.
        unsafe { mark(at, segment.shm_segsz) };
    }
    // SAFETY: the caller keeps the contract of `shmat`.
    unsafe { next::shmat(id, at, flags) }
}

/// libc's `shmdt`: seals the hole that it leaves where a segment lay over zone pages.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shmdt(at: *const c_void) -> c_int {
    // SAFETY: the caller keeps the contract of `shmdt`.
    let answer = unsafe { next::shmdt(at) };
    if answer == 0
        && let Some((heap, _)) = part(at, PAGE)
    {
        heap.each_remapped(seal_holes);
    }
    answer
}

/// libc's `mmap`: marks what `MAP_FIXED` puts over zone pages.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    at: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    if flags & libc::MAP_FIXED != 0 {
        // SAFETY: the caller keeps the contract of `mmap`: it gives up what lies there.
        unsafe { mark(at, len) };
    }
    // SAFETY: the caller keeps the contract of `mmap`.
    unsafe { next::mmap(at, len, prot, flags, fd, offset) }
}

/// libc's `mmap64`, which is `mmap` where `off_t` has 64 bits.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    at: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the caller keeps the contract of `mmap64`.
    unsafe { mmap(at, len, prot, flags, fd, offset) }
}

/// libc's `madvise`.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(at: *mut c_void, len: usize, advice: c_int) -> c_int {
    if let Some((heap, part)) = part(at, len) {
        match advice {
            // These change neither content nor an attribute that outlives them.
            libc::MADV_NORMAL
            | libc::MADV_WILLNEED
            | libc::MADV_COLD
            | libc::MADV_PAGEOUT
            | libc::MADV_POPULATE_READ
            | libc::MADV_POPULATE_WRITE
            | libc::MADV_COLLAPSE => {}
            libc::MADV_HUGEPAGE if at.addr() == part.start && at.addr() + len <= part.end => {
                heap.make_huge(&part);
                return 0;
            }
            _ => {
                if advice == libc::MADV_DONTFORK {
                    note_unforked();
                }
                // SAFETY: the caller keeps the contract of `madvise`.
                unsafe { heap.mark_remapped(&part) };
            }
        }
    }
    // SAFETY: the caller keeps the contract of `madvise`.
    unsafe { next::madvise(at, len, advice) }
}

/// libc's `munmap`: zone pages become inaccessible, the rest goes to the kernel.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(at: *mut c_void, len: usize) -> c_int {
    let whole_pages = at.addr().is_multiple_of(PAGE) && at.addr().checked_add(len).is_some();
    let Some((heap, part)) = part(at, len).filter(|_| whole_pages) else {
        // SAFETY: the caller keeps the contract of `munmap`; a range that the kernel refuses it refuses whole.
        return unsafe { next::munmap(at, len) };
    };
    // SAFETY: the caller keeps the contract of `munmap`: it gives the range up.
    unsafe { heap.mark_remapped(&part) };
    let (before, behind) = (part.start - at.addr(), (at.addr() + len).saturating_sub(part.end));
    // SAFETY: three parts of the range that the caller gives up.
    unsafe {
        if before > 0 && next::munmap(at, before) != 0 {
            return -1;
        }
        if behind > 0 && next::munmap(ptr::without_provenance_mut(part.end), behind) != 0 {
            return -1;
        }
        seal(&part)
    }
}

/// libc's `mremap`.
///
/// # Safety
/// As in libc. The fifth argument counts only where a flag says so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    at: *mut c_void,
    old: usize,
    new: usize,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    if flags & libc::MREMAP_FIXED != 0 {
        // SAFETY: the caller keeps the contract of `mremap`: it gives up what lies there.
        unsafe { mark(to, new) };
    }
    let kept = flags & libc::MREMAP_DONTUNMAP != 0;
    let Some((heap, part)) = part(at, old).filter(|_| at.addr().is_multiple_of(PAGE)) else {
        // SAFETY: the caller keeps the contract of `mremap`.
        return unsafe { next::mremap(at, old, new, flags, to) };
    };
    // SAFETY: the caller keeps the contract of `mremap`. What it says of a range holds for each part of it.
    unsafe {
        heap.mark_remapped(&part);
        if kept || part.len() < old {
            // The old pages stay mapped; or a range that leaves the zone, which no block
            // of the zone does, and which the kernel refuses as two mappings.
            return next::mremap(at, old, new, flags, to);
        }
        let (old, new) = (old.next_multiple_of(PAGE), new.next_multiple_of(PAGE));
        if flags & libc::MREMAP_FIXED == 0 && new <= old {
            let tail = at.addr() + new..at.addr() + old;
            return if tail.is_empty() || seal(&tail) == 0 { at } else { libc::MAP_FAILED };
        }
        if flags & libc::MREMAP_MAYMOVE == 0 || new == 0 {
            let errno = if new == 0 || flags != 0 { libc::EINVAL } else { libc::ENOMEM };
            Errno::set(errno);
            return libc::MAP_FAILED;
        }
        move_out(at, old, new, (flags & libc::MREMAP_FIXED != 0).then_some(to))
    }
}

/// Moves zone pages out of the zone and leaves inaccessible ones, with no moment at
/// which the addresses are free for another thread's mapping.
///
/// # Safety
/// As for `mremap` with `MREMAP_MAYMOVE`; both lengths are whole pages, and not 0.
unsafe fn move_out(
    at: *mut c_void,
    old: usize,
    new: usize,
    to: Option<*mut c_void>,
) -> *mut c_void {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let mut flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    if to.is_some() {
        flags |= libc::MAP_FIXED;
    }
    // SAFETY: the target is new, or what the caller lets be replaced; then pages move
    // onto it, and the old addresses are the caller's to give up.
    unsafe {
        let room = next::mmap(to.unwrap_or(ptr::null_mut()), new, prot, flags, -1, 0);
        if room == libc::MAP_FAILED {
            return room;
        }
        let len = old.min(new);
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
        if next::mremap(at, len, len, flags, room) == libc::MAP_FAILED {
            // A kernel before 5.7 does not know DONTUNMAP.
            let errno = Errno::save();
            next::munmap(room, new);
            errno.restore();
            return libc::MAP_FAILED;
        }
        if seal(&(at.addr()..at.addr() + old)) != 0 {
            return libc::MAP_FAILED;
        }
        room
    }
}

/// libc's `mlockall`. A program that locks its memory counts on no fault in it from then on: what it has of the zone is
/// made resident with all else, what the zone has free goes away, and later blocks are the next allocator's.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    process::never();
    if let Some(heap) = process::ready_and_own() {
        // Pages that moved would leave others that are locked no more.
        heap.never_move();
        // With MCL_ONFAULT a program counts on no more than that what is touched stays.
        if flags & libc::MCL_ONFAULT == 0 {
            process::serve_no_more();
            // SAFETY: every export that is given an address asks `Heap::is_unmapped` first.
            unsafe { heap.zone().shrink(0) };
        }
    }
    // SAFETY: the caller keeps the contract of `mlockall`.
    unsafe { next::mlockall(flags) }
}
