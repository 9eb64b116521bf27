//! Zone memory that the program changes by system calls, one table of them: by libc's function, and by the call's number.
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

use std::ffi::{c_int, c_long, c_uint, c_ulong, c_void};
use std::ops::Range;
use std::{ptr, slice};

use libc::iovec;
use prezero_core::{Heap, PAGE};

use super::filters::{PR_SET_VMA, confined_by};
use crate::compat::errno::Errno;
use crate::compat::next;
use crate::process;
use crate::process::holes::{note_unforked, seal, seal_holes};

type Address = *mut c_void;

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

/// What goes to the kernel and comes from it: a word.
trait Word {
    fn of(word: Address) -> Self;
    fn word(self) -> Address;
}

macro_rules! words {
    ($($number:ty),*) => {$(
        impl Word for $number {
            fn of(word: Address) -> Self {
                word.addr() as $number
            }

            fn word(self) -> Address {
                ptr::without_provenance_mut(self as usize)
            }
        }
    )*};
}

words!(c_int, c_uint, c_long, c_ulong, isize, usize);

impl<T> Word for *mut T {
    fn of(word: Address) -> Self {
        word.cast()
    }

    fn word(self) -> Address {
        self.cast()
    }
}

impl<T> Word for *const T {
    fn of(word: Address) -> Self {
        word.cast()
    }

    fn word(self) -> Address {
        self.cast_mut().cast()
    }
}

/// `NAME = NUMBER(ARGUMENTS) -> ANSWER, call => WHAT IS DONE`, where `call` is the function behind this one, or the call by its
/// number.
macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident = $number:path,
        ($($arg:ident: $type:ty),*) -> $ret:ty, $call:ident => $what:expr;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As in libc.
            #[unsafe(no_mangle)]
            #[allow(unused_unsafe, reason = "not all mark")]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> $ret {
                // SAFETY: the caller keeps the contract of this function.
                let $call = |$($arg: $type),*| unsafe { next::$name($($arg),*) };
                // SAFETY: the caller owns the range, and gives up what the call takes.
                unsafe { $what }
            }
        )*

        /// Makes the call of that number, if it is one of these.
        ///
        /// # Safety
        /// As in the kernel.
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        #[allow(unused_unsafe, reason = "not all mark")]
        pub(super) unsafe fn by_number(number: c_long, words: [Address; 6]) -> Option<c_long> {
            let raw = |given: &[Address]| {
                let mut words = [ptr::null_mut(); 6];
                words[..given.len()].copy_from_slice(given);
                let [a, b, c, d, e, f] = words;
                // SAFETY: the caller keeps the contract of `by_number`.
                unsafe { next::syscall(number, a, b, c, d, e, f) }.word()
            };
            match number {
                $($number => {
                    let mut given = words.into_iter();
                    $(let $arg = <$type>::of(given.next().unwrap_or_default());)*
                    let $call = |$($arg: $type),*| <$ret>::of(raw(&[$($arg.word()),*]));
                    // SAFETY: the caller owns the range, and gives up what the call takes.
                    let answer: $ret = unsafe { $what };
                    Some(c_long::of(answer.word()))
                })*
                _ => None,
            }
        }
    };
}

calls! {
    /// libc's `mprotect`.
    mprotect = libc::SYS_mprotect, (at: Address, len: usize, prot: c_int) -> c_int,
        call => { mark(at, len); call(at, len, prot) };
    /// libc's `pkey_mprotect`.
    pkey_mprotect = libc::SYS_pkey_mprotect, (at: Address, len: usize, prot: c_int, key: c_int) -> c_int,
        call => { mark(at, len); call(at, len, prot, key) };
    /// libc's `mseal`, in newer ones.
    mseal = libc::SYS_mseal, (at: Address, len: usize, flags: c_ulong) -> c_int,
        call => { mark(at, len); call(at, len, flags) };
    /// libc's `mlock`.
    mlock = libc::SYS_mlock, (at: *const c_void, len: usize) -> c_int,
        call => { mark(at, len); call(at, len) };
    /// libc's `mlock2`.
    mlock2 = libc::SYS_mlock2, (at: *const c_void, len: usize, flags: c_uint) -> c_int,
        call => { mark(at, len); call(at, len, flags) };
    /// libc's `mlockall`.
    mlockall = libc::SYS_mlockall, (flags: c_int) -> c_int,
        call => { before_all_is_locked(flags); call(flags) };
    /// libnuma's `mbind`.
    mbind = libc::SYS_mbind,
        (at: Address, len: c_ulong, mode: c_int, nodes: *const c_ulong, max: c_ulong, flags: c_uint) -> c_long,
        call => { mark(at, len as usize); call(at, len, mode, nodes, max, flags) };
    /// The system call of this name, for which a libc may have a function.
    set_mempolicy_home_node = libc::SYS_set_mempolicy_home_node,
        (at: Address, len: c_ulong, node: c_ulong, flags: c_ulong) -> c_long,
        call => { mark(at, len as usize); call(at, len, node, flags) };
    /// libc's `remap_file_pages`.
    remap_file_pages = libc::SYS_remap_file_pages,
        (at: Address, len: usize, prot: c_int, page: usize, flags: c_int) -> c_int,
        call => { mark(at, len); call(at, len, prot, page, flags) };
    /// libc's `mmap`: marks what `MAP_FIXED` puts over zone pages.
    mmap = libc::SYS_mmap,
        (at: Address, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> Address,
        call => {
            if flags & libc::MAP_FIXED != 0 {
                mark(at, len);
            }
            call(at, len, prot, flags, fd, offset)
        };
    /// libc's `munmap`: zone pages become inaccessible, the rest goes to the kernel.
    munmap = libc::SYS_munmap, (at: Address, len: usize) -> c_int, call => unmap(at, len, call);
    /// libc's `mremap`. The fifth argument counts only where a flag says so.
    mremap = libc::SYS_mremap, (at: Address, old: usize, new: usize, flags: c_int, to: Address) -> Address,
        call => remap(at, old, new, flags, to, call);
    /// libc's `madvise`.
    madvise = libc::SYS_madvise, (at: Address, len: usize, advice: c_int) -> c_int,
        call => if advise(at, len, advice) == Advice::Done { 0 } else { call(at, len, advice) };
    /// libc's `process_madvise`. The kernel takes an advice that leaves a trace for the calling process alone.
    process_madvise = libc::SYS_process_madvise,
        (process: c_int, ranges: *const iovec, count: usize, advice: c_int, flags: c_uint) -> isize,
        call => {
            let answer = call(process, ranges, count, advice, flags);
            if answer >= 0 && !ranges.is_null() && leaves_a_trace(advice) {
                for range in slice::from_raw_parts(ranges, count) {
                    mark_advised(range.iov_base, range.iov_len, advice);
                }
            }
            answer
        };
    /// libc's `shmat`: marks what `SHM_REMAP` puts over zone pages.
    shmat = libc::SYS_shmat, (id: c_int, at: *const c_void, flags: c_int) -> Address,
        call => { before_a_segment(id, at, flags); call(id, at, flags) };
    /// libc's `shmdt`: seals the hole that it leaves where a segment lay over zone pages.
    shmdt = libc::SYS_shmdt, (at: *const c_void) -> c_int,
        call => {
            let answer = call(at);
            if answer == 0 && let Some((heap, _)) = part(at, PAGE) {
                heap.each_remapped(seal_holes);
            }
            answer
        };
    /// libc's `ioctl`: marks what a userfaultfd is to watch, whose faults would wait for an answer
    /// long after the block was freed. libc declares it with any third argument; all are passed alike.
    ioctl = libc::SYS_ioctl, (file: c_int, request: c_ulong, argument: Address) -> c_int,
        call => {
            let answer = call(file, request, argument);
            if request == UFFDIO_REGISTER && answer == 0 {
                let registered = argument.cast::<Registered>().read_unaligned();
                mark(ptr::without_provenance(registered.start as usize), registered.len as usize);
            }
            answer
        };
    /// libc's `prctl`, which declares it with any further arguments; all are passed alike: marks what gets a name, and
    /// installs filters of system calls.
    prctl = libc::SYS_prctl, (option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int,
        call => {
            if option == PR_SET_VMA {
                mark(ptr::without_provenance(b as usize), c as usize);
            }
            confined_by(option, [a, b, c], || call(option, a, b, c, d).into()) as c_int
        };
}

/// libc's `posix_madvise`, of which the kernel hears as of `madvise`.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_madvise(at: Address, len: usize, advice: c_int) -> c_int {
    // SAFETY: the caller keeps the contract of `posix_madvise`, whose advices have the numbers of `madvise`.
    unsafe {
        if advice != libc::POSIX_MADV_DONTNEED && leaves_a_trace(advice) {
            mark(at, len);
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

/// `UFFDIO_REGISTER`, and the beginning of what its argument points at.
const UFFDIO_REGISTER: c_ulong = 0xc020_aa00;
#[repr(C)]
struct Registered {
    start: u64,
    len: u64,
}

/// A segment is about to be attached.
///
/// # Safety
/// The caller gives up what the segment is put over.
unsafe fn before_a_segment(id: c_int, at: *const c_void, flags: c_int) {
    if flags & libc::SHM_REMAP != 0 && part(at, PAGE).is_some() {
        // SAFETY: a struct of integers, for which zero is valid, that the call fills. The caller's promise.
        unsafe {
            let mut segment: libc::shmid_ds = std::mem::zeroed();
            libc::shmctl(id, libc::IPC_STAT, &raw mut segment);
            mark(at, segment.shm_segsz);
        }
    }
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

/// Marks a range for which the kernel takes an advice that leaves a trace.
///
/// # Safety
/// The program owns the range.
unsafe fn mark_advised(at: *const c_void, len: usize, advice: c_int) {
    if advice == libc::MADV_DONTFORK && part(at, len).is_some() {
        note_unforked();
    }
    // SAFETY: the caller's promise.
    unsafe { mark(at, len) };
}

/// Who follows an advice.
#[derive(PartialEq, Eq)]
enum Advice {
    /// The zone has.
    Done,
    /// The kernel is to.
    Forwarded,
}

/// Takes an advice before the kernel hears it.
///
/// # Safety
/// The program owns the range.
unsafe fn advise(at: Address, len: usize, advice: c_int) -> Advice {
    if advice == libc::MADV_HUGEPAGE
        && let Some((heap, part)) = part(at, len)
        && at.addr() == part.start
        && at.addr() + len <= part.end
    {
        heap.make_huge(&part);
        return Advice::Done;
    }
    if leaves_a_trace(advice) {
        // SAFETY: the caller's promise.
        unsafe { mark_advised(at, len, advice) };
    }
    Advice::Forwarded
}

/// `munmap`, where `unmap` is the kernel's.
///
/// # Safety
/// As in libc.
unsafe fn unmap(at: Address, len: usize, unmap: impl Fn(Address, usize) -> c_int) -> c_int {
    let whole_pages = at.addr().is_multiple_of(PAGE) && at.addr().checked_add(len).is_some();
    let Some((heap, part)) = part(at, len).filter(|_| whole_pages) else {
        // A range that the kernel refuses it refuses whole.
        return unmap(at, len);
    };
    // SAFETY: the caller keeps the contract of `munmap`: it gives the range up.
    unsafe { heap.mark_remapped(&part) };
    let (before, behind) = (part.start - at.addr(), (at.addr() + len).saturating_sub(part.end));
    if before > 0 && unmap(at, before) != 0 {
        return -1;
    }
    if behind > 0 && unmap(ptr::without_provenance_mut(part.end), behind) != 0 {
        return -1;
    }
    // SAFETY: a part of the range that the caller gives up.
    unsafe { seal(&part) }
}

/// `mremap`, where `remap` is the kernel's.
///
/// # Safety
/// As in libc.
unsafe fn remap(
    at: Address,
    old: usize,
    new: usize,
    flags: c_int,
    to: Address,
    remap: impl Fn(Address, usize, usize, c_int, Address) -> Address,
) -> Address {
    if flags & libc::MREMAP_FIXED != 0 {
        // SAFETY: the caller keeps the contract of `mremap`: it gives up what lies there.
        unsafe { mark(to, new) };
    }
    let kept = flags & libc::MREMAP_DONTUNMAP != 0;
    let Some((heap, part)) = part(at, old).filter(|_| at.addr().is_multiple_of(PAGE)) else {
        return remap(at, old, new, flags, to);
    };
    // SAFETY: the caller keeps the contract of `mremap`. What it says of a range holds for each part of it.
    unsafe {
        heap.mark_remapped(&part);
        if kept || part.len() < old {
            // The old pages stay mapped; or a range that leaves the zone, which no block
            // of the zone does, and which the kernel refuses as two mappings.
            return remap(at, old, new, flags, to);
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
        let to = (flags & libc::MREMAP_FIXED != 0).then_some(to);
        move_out(at, old, new, to, |room, len| {
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
            remap(at, len, len, flags, room) != libc::MAP_FAILED
        })
    }
}

/// Moves zone pages out of the zone and leaves inaccessible ones, with no moment at
/// which the addresses are free for another thread's mapping. `move_to` moves so many bytes.
///
/// # Safety
/// As for `mremap` with `MREMAP_MAYMOVE`; both lengths are whole pages, and not 0.
unsafe fn move_out(
    at: Address,
    old: usize,
    new: usize,
    to: Option<Address>,
    move_to: impl FnOnce(Address, usize) -> bool,
) -> Address {
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
        if !move_to(room, old.min(new)) {
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
