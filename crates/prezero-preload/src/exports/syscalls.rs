//! One table of the system calls that the library takes part in, by libc's function and by the call's number: those that
//! change zone memory or limit it, and those that scrubd must know of.
//!
//! A program may protect, lock, advise, remap or unmap pages of a block that it got
//! from `malloc`. Each call is forwarded unchanged, and where the
//! range touches the zone those pages are marked *foreign* first: the zone replaces them by
//! fresh memory when the block is freed, and never hands them on as they are.
//!
//! What a program keeps from its children (`MADV_DONTFORK`) is a hole in the child's zone, which
//! the kernel would give to another mapping: the child closes it first of all.
//!
//! Three calls are not forwarded as they stand:
//! - `munmap` and `mremap` leave inaccessible memory where zone pages were, and not a
//!   hole that the kernel would give to another mapping.
//! - `MADV_HUGEPAGE` inside the zone leaves no mark, which would make every `NumPy` array
//!   foreign: the zone has the huge blocks that lie in the range faulted in whole, once.
//! - `mlockall` would make all free memory resident. Before the zone exists it
//!   keeps it from existing; later the zone gives up what is free, and serves no more.
//!
//! Not in the table, as they change no mapping of the zone: `munlock` and `munlockall` (they change nothing that `mlock` did not
//! mark), `set_mempolicy`, `migrate_pages`, `move_pages`, `msync`, `mincore`, `map_shadow_stack` (it replaces nothing).
//! A program that makes a call by an instruction of its own is not seen.

use std::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::ops::Range;
use std::{ptr, slice};

use libc::{iovec, pid_t, rlimit};
use prezero_core::{Heap, PAGE};

use super::filters::{PR_SET_VMA, confined_by, confined_by_call};
use super::limits::limited;
use super::rights::{change_root, enter, leave};
use crate::compat::errno::Errno;
use crate::compat::next;
use crate::process;
use crate::process::holes::{note_unforked, seal, seal_holes};

type Address = *mut c_void;
/// What goes to the kernel.
pub(super) type Words = [usize; 6];
/// What the kernel answers where it maps nothing.
const FAILED: isize = -1;

/// The heap and the whole pages of it that the range touches.
fn part(at: usize, len: usize) -> Option<(&'static Heap, Range<usize>)> {
    let heap = process::ready()?;
    heap.part(at, len).map(|part| (heap, part))
}

/// Marks what the range touches of the zone.
///
/// # Safety
/// The program owns the range.
unsafe fn mark(at: usize, len: usize) {
    if let Some((heap, part)) = part(at, len) {
        // SAFETY: the caller's promise; blocks are whole pages.
        unsafe { heap.mark_remapped(&part) };
    }
}

/// Makes a call of that number by `call`, which makes it with the words it is given. The table: what is done before or
/// instead.
///
/// # Safety
/// As in the kernel.
#[inline(always)]
pub(super) unsafe fn change(number: c_long, words: Words, call: impl Fn(Words) -> isize) -> isize {
    let [a, b, c, d, ..] = words;
    // SAFETY: the program owns the range, and gives up what the call takes.
    unsafe {
        match number {
            libc::SYS_mprotect
            | libc::SYS_pkey_mprotect
            | libc::SYS_mseal
            | libc::SYS_mlock
            | libc::SYS_mlock2
            | libc::SYS_mbind
            | libc::SYS_set_mempolicy_home_node
            | libc::SYS_remap_file_pages => mark(a, b),
            libc::SYS_mmap if d as c_int & libc::MAP_FIXED != 0 => mark(a, b),
            libc::SYS_munmap => return unmap(a, b, call),
            libc::SYS_mremap => return remap(words, call),
            libc::SYS_madvise if is_followed(a, b, c as c_int) => return 0,
            libc::SYS_process_madvise => return followed_by_each(words, call),
            libc::SYS_mlockall => before_all_is_locked(a as c_int),
            libc::SYS_shmat => before_a_segment(a as c_int, b, c as c_int),
            libc::SYS_shmdt => return unsegment(words, call),
            libc::SYS_ioctl => return watch(words, call),
            libc::SYS_prctl => {
                if a as c_int == PR_SET_VMA {
                    mark(c, d);
                }
                return confined_by(a as c_int, [b, c, d], || call(words));
            }
            libc::SYS_setrlimit => {
                return limited((0, a as c_uint, b as *const rlimit), || call(words));
            }
            libc::SYS_prlimit64 => {
                return limited((a as pid_t, b as c_uint, c as *const rlimit), || call(words));
            }
            libc::SYS_chroot => return change_root(|| call(words)),
            libc::SYS_setns => return enter(b as c_int, || call(words)),
            libc::SYS_unshare => return leave(a as c_int, || call(words)),
            libc::SYS_seccomp => return confined_by_call(a, c, || call(words)),
            _ => {}
        }
    }
    call(words)
}

/// libc's functions of calls in the table: `NAME = NUMBER (ARGUMENTS) -> ANSWER`.
macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident = $number:ident ($($arg:ident: $type:ty),*) -> $ret:ty;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As in libc.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $ret {
            let mut words = [0; 6];
            words.iter_mut().zip([$($arg as usize),*]).for_each(|(to, word)| *to = word);
            let call = |[$($arg,)* ..]: Words| {
                // SAFETY: the caller keeps the contract of this function.
                unsafe { next::$name($($arg as $type),*) as isize }
            };
            // SAFETY: as above.
            unsafe { change(libc::$number, words, call) as $ret }
        }
    )*};
}

calls! {
    /// libc's `mprotect`.
    mprotect = SYS_mprotect(at: Address, len: usize, prot: c_int) -> c_int;
    /// libc's `pkey_mprotect`.
    pkey_mprotect = SYS_pkey_mprotect(at: Address, len: usize, prot: c_int, key: c_int) -> c_int;
    /// libc's `mseal`, in newer ones.
    mseal = SYS_mseal(at: Address, len: usize, flags: c_ulong) -> c_int;
    /// libc's `mlock`.
    mlock = SYS_mlock(at: *const c_void, len: usize) -> c_int;
    /// libc's `mlock2`.
    mlock2 = SYS_mlock2(at: *const c_void, len: usize, flags: c_uint) -> c_int;
    /// libc's `mlockall`.
    mlockall = SYS_mlockall(flags: c_int) -> c_int;
    /// libnuma's `mbind`.
    mbind = SYS_mbind(at: Address, len: c_ulong, mode: c_int, nodes: *const c_ulong, max: c_ulong, flags: c_uint) -> c_long;
    /// libc's `remap_file_pages`.
    remap_file_pages = SYS_remap_file_pages(at: Address, len: usize, prot: c_int, page: usize, flags: c_int) -> c_int;
    /// libc's `mmap`.
    mmap = SYS_mmap(at: Address, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> Address;
    /// libc's `munmap`.
    munmap = SYS_munmap(at: Address, len: usize) -> c_int;
    /// libc's `mremap`. The fifth argument counts only where a flag says so.
    mremap = SYS_mremap(at: Address, old: usize, new: usize, flags: c_int, to: Address) -> Address;
    /// libc's `madvise`.
    madvise = SYS_madvise(at: Address, len: usize, advice: c_int) -> c_int;
    /// libc's `process_madvise`.
    process_madvise = SYS_process_madvise(process: c_int, ranges: *const iovec, count: usize, advice: c_int, flags: c_uint) -> isize;
    /// libc's `shmat`.
    shmat = SYS_shmat(id: c_int, at: *const c_void, flags: c_int) -> Address;
    /// libc's `shmdt`.
    shmdt = SYS_shmdt(at: *const c_void) -> c_int;
    /// libc's `ioctl`, which it declares with any third argument; all are passed alike.
    ioctl = SYS_ioctl(file: c_int, request: c_ulong, argument: Address) -> c_int;
    /// libc's `prctl`, which it declares with any further arguments; all are passed alike.
    prctl = SYS_prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int;
    /// libc's `setrlimit`.
    setrlimit = SYS_setrlimit(which: c_uint, limit: *const rlimit) -> c_int;
    /// The same, where `rlim_t` has 64 bits.
    setrlimit64 = SYS_setrlimit(which: c_uint, limit: *const rlimit) -> c_int;
    /// libc's `prlimit`.
    prlimit = SYS_prlimit64(process: pid_t, which: c_uint, new: *const rlimit, old: *mut rlimit) -> c_int;
    /// The same, where `rlim_t` has 64 bits.
    prlimit64 = SYS_prlimit64(process: pid_t, which: c_uint, new: *const rlimit, old: *mut rlimit) -> c_int;
    /// libc's `chroot`.
    chroot = SYS_chroot(path: *const c_char) -> c_int;
    /// libc's `setns`.
    setns = SYS_setns(file: c_int, kind: c_int) -> c_int;
    /// libc's `unshare`.
    unshare = SYS_unshare(what: c_int) -> c_int;
}

/// libc's `posix_madvise`, of which the kernel hears as of `madvise`, by the same numbers; not of `POSIX_MADV_DONTNEED`.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_madvise(at: Address, len: usize, advice: c_int) -> c_int {
    // SAFETY: the caller keeps the contract of `posix_madvise`.
    unsafe {
        if advice != libc::POSIX_MADV_DONTNEED && leaves_a_trace(advice) {
            mark(at.addr(), len);
        }
        next::posix_madvise(at, len, advice)
    }
}

/// libc's `mmap64`, which is `mmap` where `off_t` has 64 bits.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    at: Address,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> Address {
    // SAFETY: the caller keeps the contract of `mmap64`.
    unsafe { mmap(at, len, prot, flags, fd, offset) }
}

/// Marks what a userfaultfd is to watch, whose faults would wait for an answer long after the block was freed.
///
/// # Safety
/// As for `ioctl`.
unsafe fn watch(words: Words, call: impl Fn(Words) -> isize) -> isize {
    const UFFDIO_REGISTER: usize = 0xc020_aa00;
    let answer = call(words);
    if words[1] == UFFDIO_REGISTER && answer == 0 {
        // SAFETY: the kernel has read it, and said that it begins with a range. That is the caller's.
        unsafe {
            let [start, len] = (words[2] as *const [u64; 2]).read_unaligned();
            mark(start as usize, len as usize);
        }
    }
    answer
}

/// Marks what `SHM_REMAP` is about to put over zone pages.
///
/// # Safety
/// The caller gives up what the segment is put over.
unsafe fn before_a_segment(id: c_int, at: usize, flags: c_int) {
    if flags & libc::SHM_REMAP != 0 && part(at, PAGE).is_some() {
        // SAFETY: a struct of integers, for which zero is valid, that the call fills. The caller's promise.
        unsafe {
            let mut segment: libc::shmid_ds = std::mem::zeroed();
            libc::shmctl(id, libc::IPC_STAT, &raw mut segment);
            mark(at, segment.shm_segsz);
        }
    }
}

/// Seals the hole that `shmdt` leaves where a segment lay over zone pages.
fn unsegment(words: Words, call: impl Fn(Words) -> isize) -> isize {
    let answer = call(words);
    if answer == 0
        && let Some((heap, _)) = part(words[0], PAGE)
    {
        heap.each_remapped(seal_holes);
    }
    answer
}

/// Whether an advice changes content, or an attribute that outlives it.
fn leaves_a_trace(advice: c_int) -> bool {
    !matches!(
        advice,
        libc::MADV_NORMAL
            | libc::MADV_WILLNEED
            | libc::MADV_COLD
            | libc::MADV_PAGEOUT
            | libc::MADV_POPULATE_READ
            | libc::MADV_POPULATE_WRITE
            | libc::MADV_COLLAPSE
    )
}

/// Marks a range for which the kernel takes an advice, if that leaves a trace.
///
/// # Safety
/// The program owns the range.
unsafe fn mark_advised(at: usize, len: usize, advice: c_int) {
    if leaves_a_trace(advice) {
        if advice == libc::MADV_DONTFORK && part(at, len).is_some() {
            note_unforked();
        }
        // SAFETY: the caller's promise.
        unsafe { mark(at, len) };
    }
}

/// Whether the zone itself follows an advice; where not, the range is marked.
///
/// # Safety
/// The program owns the range.
unsafe fn is_followed(at: usize, len: usize, advice: c_int) -> bool {
    if advice == libc::MADV_HUGEPAGE
        && let Some((heap, part)) = part(at, len)
        && at == part.start
        && at + len <= part.end
    {
        heap.make_huge(&part);
        return true;
    }
    // SAFETY: the caller's promise.
    unsafe { mark_advised(at, len, advice) };
    false
}

/// Marks what `process_madvise` changed. The kernel takes an advice that leaves a trace for the calling process alone.
///
/// # Safety
/// As for `process_madvise`.
unsafe fn followed_by_each(words: Words, call: impl Fn(Words) -> isize) -> isize {
    let [_, ranges, count, advice, ..] = words;
    let answer = call(words);
    if answer > 0 {
        // SAFETY: the kernel has read some of them, and taken the advice for them.
        for range in unsafe { slice::from_raw_parts(ranges as *const iovec, count) } {
            // SAFETY: the caller's.
            unsafe { mark_advised(range.iov_base.addr(), range.iov_len, advice as c_int) };
        }
    }
    answer
}

/// `munmap`: zone pages become inaccessible, the rest goes to the kernel.
///
/// # Safety
/// As for `munmap`.
unsafe fn unmap(at: usize, len: usize, call: impl Fn(Words) -> isize) -> isize {
    let unmap = |at: usize, len: usize| call([at, len, 0, 0, 0, 0]);
    let whole_pages = at.is_multiple_of(PAGE) && at.checked_add(len).is_some();
    let Some((heap, part)) = part(at, len).filter(|_| whole_pages) else {
        // A range that the kernel refuses it refuses whole.
        return unmap(at, len);
    };
    // SAFETY: the caller keeps the contract of `munmap`: it gives the range up.
    unsafe { heap.mark_remapped(&part) };
    let (before, behind) = (part.start - at, (at + len).saturating_sub(part.end));
    if before > 0 && unmap(at, before) != 0 || behind > 0 && unmap(part.end, behind) != 0 {
        return -1;
    }
    // SAFETY: a part of the range that the caller gives up.
    unsafe { seal(&part) as isize }
}

/// `mremap`: inaccessible pages stay where zone pages were.
///
/// # Safety
/// As for `mremap`.
unsafe fn remap(words: Words, call: impl Fn(Words) -> isize) -> isize {
    let [at, old, new, flags, to, _] = words;
    let flags = flags as c_int;
    let is_fixed = flags & libc::MREMAP_FIXED != 0;
    if is_refused(words) {
        return call(words);
    }
    if is_fixed {
        // SAFETY: the caller keeps the contract of `mremap`: it gives up what lies there.
        unsafe { mark(to, new) };
    }
    let Some((heap, part)) = part(at, old).filter(|_| at.is_multiple_of(PAGE)) else {
        return call(words);
    };
    // SAFETY: the caller keeps the contract of `mremap`. What it says of a range holds for each part of it.
    unsafe {
        heap.mark_remapped(&part);
        if flags & libc::MREMAP_DONTUNMAP != 0 || part.len() < old {
            // The old pages stay mapped; or a range that leaves the zone, which no block
            // of the zone does, and which the kernel refuses as two mappings.
            return call(words);
        }
        let (old, new) = (old.next_multiple_of(PAGE), new.next_multiple_of(PAGE));
        if !is_fixed && new <= old {
            let tail = at + new..at + old;
            return if tail.is_empty() || seal(&tail) == 0 { at as isize } else { FAILED };
        }
        if flags & libc::MREMAP_MAYMOVE == 0 {
            Errno::set(libc::ENOMEM);
            return FAILED;
        }
        move_out(at, old, new, is_fixed.then_some(to), call)
    }
}

/// Whether the kernel refuses a `mremap` for its words alone, and leaves all as it is.
fn is_refused([at, old, new, flags, to, _]: Words) -> bool {
    let known = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
    let flags = flags as c_int;
    let (moves, is_fixed) = (flags & libc::MREMAP_MAYMOVE != 0, flags & libc::MREMAP_FIXED != 0);
    let whole = |len: usize| len.checked_next_multiple_of(PAGE);
    let (Some(old), Some(new)) = (whole(old), whole(new)) else { return true };
    let ends = |at: usize, len: usize| at.checked_add(len);
    let (Some(end), Some(to_end)) = (ends(at, old), ends(to, new)) else { return true };
    let overlaps = to < end && at < to_end;
    flags & !known != 0
        || new == 0
        || is_fixed && (!moves || !to.is_multiple_of(PAGE) || overlaps)
        || flags & libc::MREMAP_DONTUNMAP != 0 && (!moves || old != new)
}

/// Moves zone pages out of the zone and leaves inaccessible ones, with no moment at
/// which the addresses are free for another thread's mapping.
///
/// # Safety
/// As for `mremap` with `MREMAP_MAYMOVE`; both lengths are whole pages, and not 0.
unsafe fn move_out(
    at: usize,
    old: usize,
    new: usize,
    to: Option<usize>,
    call: impl Fn(Words) -> isize,
) -> isize {
    let (prot, anonymous) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let fixed = if to.is_some() { libc::MAP_FIXED } else { 0 };
    let room = ptr::without_provenance_mut(to.unwrap_or(0));
    // SAFETY: the target is new, or what the caller lets be replaced; then pages move
    // onto it, and the old addresses are the caller's to give up.
    unsafe {
        let room = next::mmap(room, new, prot, anonymous | fixed, -1, 0);
        if room == libc::MAP_FAILED {
            return FAILED;
        }
        let len = old.min(new);
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
        if call([at, len, len, flags as usize, room.addr(), 0]) == FAILED {
            // A kernel before 5.7 does not know DONTUNMAP.
            let errno = Errno::save();
            // What it replaced of the zone is no hole.
            unmap(room.addr(), new, |[at, len, ..]| {
                next::munmap(ptr::without_provenance_mut(at), len) as isize
            });
            errno.restore();
            return FAILED;
        }
        if seal(&(at..at + old)) != 0 { FAILED } else { room.addr() as isize }
    }
}

/// The program is about to lock all its memory. It counts on no fault in it from then on: what it has of the zone is
/// made resident with all else, what the zone has free goes away, and later blocks are the next allocator's.
fn before_all_is_locked(flags: c_int) {
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
}
