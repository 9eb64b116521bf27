//! The allocator that the program had, and the system-call functions behind ours.
//!
//! Every name that this library takes over is looked up once with
//! `dlsym(RTLD_NEXT)`: the next one in link order, be it glibc's or that of another
//! preloaded allocator. A slot starts with an *early* function, so that a call costs
//! one load and one jump and never asks whether we are ready: an early allocation
//! resolves all slots and forwards, or takes from the [`arena`] while somebody
//! resolves; an early system-call wrapper makes the system call itself, and stays in
//! its slot where nobody else defines the name.
//!
//! Resolving takes no lock of ours. A thread that finds another one at it does not
//! wait, because that one may be waiting for a lock of the dynamic linker which this
//! one holds.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

use libc::{pid_t, rlimit};
use prezero_core::{HandSize, PAGE};

use crate::arena;
use crate::message::Line;
use crate::process::Errno;

macro_rules! next {
    ($($name:ident($($arg:ident: $type:ty),*) -> $ret:ty, before: $early:expr;)*) => {
        /// The functions, those that every program calls all the time first: on one cache line,
        /// which nobody writes to once all are known.
        #[expect(non_snake_case, reason = "named after the functions they hold")]
        #[repr(C, align(64))]
        struct Slots {
            $($name: AtomicPtr<c_void>,)*
        }

        static SLOTS: Slots = Slots {
            $($name: {
                let early: unsafe extern "C" fn($($type),*) -> $ret = $early;
                AtomicPtr::new(early as *mut c_void)
            },)*
        };

        $(
            #[doc = concat!("The next `", stringify!($name), "`.")]
            ///
            /// # Safety
            /// As for the function of that name in libc.
            #[inline(always)]
            #[allow(non_snake_case, reason = "`_Exit` is libc's name")]
            pub unsafe fn $name($($arg: $type),*) -> $ret {
                type Function = unsafe extern "C" fn($($type),*) -> $ret;
                let address = SLOTS.$name.load(Ordering::Relaxed);
                // SAFETY: the slot starts with a function of this type, and `resolve`
                // stores only what the dynamic linker knows under this name. The
                // caller keeps its terms.
                unsafe { std::mem::transmute::<*mut c_void, Function>(address)($($arg),*) }
            }
        )*

        /// Name (NUL-terminated) and slot of each.
        static NAMED: &[(&str, &AtomicPtr<c_void>)] =
            &[$((concat!(stringify!($name), "\0"), &SLOTS.$name),)*];
    };
}

type Address = *mut c_void;

next! {
    malloc(size: usize) -> Address, before: early::malloc;
    free(ptr: Address) -> (), before: early::free;
    calloc(count: usize, size: usize) -> Address, before: early::calloc;
    realloc(ptr: Address, size: usize) -> Address, before: early::realloc;
    aligned_alloc(align: usize, size: usize) -> Address, before: early::aligned_alloc;
    memalign(align: usize, size: usize) -> Address, before: early::memalign;
    posix_memalign(out: *mut Address, align: usize, size: usize) -> c_int,
        before: early::posix_memalign;
    valloc(size: usize) -> Address, before: early::valloc;
    pvalloc(size: usize) -> Address, before: early::pvalloc;
    malloc_usable_size(ptr: Address) -> usize, before: early::malloc_usable_size;
    malloc_trim(pad: usize) -> c_int, before: early::malloc_trim;

    mmap(at: Address, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> Address,
        before: early::mmap;
    munmap(at: Address, len: usize) -> c_int, before: early::munmap;
    mprotect(at: Address, len: usize, prot: c_int) -> c_int, before: early::mprotect;
    pkey_mprotect(at: Address, len: usize, prot: c_int, key: c_int) -> c_int,
        before: early::pkey_mprotect;
    madvise(at: Address, len: usize, advice: c_int) -> c_int, before: early::madvise;
    mremap(at: Address, old: usize, new: usize, flags: c_int, to: Address) -> Address,
        before: early::mremap;
    mlock(at: *const c_void, len: usize) -> c_int, before: early::mlock;
    mlock2(at: *const c_void, len: usize, flags: c_uint) -> c_int, before: early::mlock2;
    mlockall(flags: c_int) -> c_int, before: early::mlockall;
    mbind(at: Address, len: c_ulong, mode: c_int, nodes: *const c_ulong, max: c_ulong, flags: c_uint)
        -> c_long, before: early::mbind;
    remap_file_pages(at: Address, len: usize, prot: c_int, page: usize, flags: c_int) -> c_int,
        before: early::remap_file_pages;
    ioctl(file: c_int, request: c_ulong, argument: Address) -> c_int, before: early::ioctl;
    shmat(id: c_int, at: *const c_void, flags: c_int) -> Address, before: early::shmat;
    shmdt(at: *const c_void) -> c_int, before: early::shmdt;

    setrlimit(which: c_uint, limit: *const rlimit) -> c_int, before: early::setrlimit;
    setrlimit64(which: c_uint, limit: *const rlimit) -> c_int, before: early::setrlimit;
    prlimit(process: pid_t, which: c_uint, new: *const rlimit, old: *mut rlimit) -> c_int,
        before: early::prlimit;
    prlimit64(process: pid_t, which: c_uint, new: *const rlimit, old: *mut rlimit) -> c_int,
        before: early::prlimit;

    setuid(user: u32) -> c_int, before: early::setuid;
    setgid(group: u32) -> c_int, before: early::setgid;
    seteuid(user: u32) -> c_int, before: early::seteuid;
    setegid(group: u32) -> c_int, before: early::setegid;
    setreuid(real: u32, effective: u32) -> c_int, before: early::setreuid;
    setregid(real: u32, effective: u32) -> c_int, before: early::setregid;
    setresuid(real: u32, effective: u32, saved: u32) -> c_int, before: early::setresuid;
    setresgid(real: u32, effective: u32, saved: u32) -> c_int, before: early::setresgid;
    setgroups(count: usize, groups: *const u32) -> c_int, before: early::setgroups;
    initgroups(user: *const c_char, group: u32) -> c_int, before: early::initgroups;
    chroot(path: *const c_char) -> c_int, before: early::chroot;
    unshare(what: c_int) -> c_int, before: early::unshare;
    setns(file: c_int, kind: c_int) -> c_int, before: early::setns;

    _exit(status: c_int) -> !, before: early::exit_group;
    _Exit(status: c_int) -> !, before: early::exit_group;
    quick_exit(status: c_int) -> !, before: early::exit_group;
}

const UNRESOLVED: u8 = 0;
const RESOLVING: u8 = 1;
const RESOLVED: u8 = 2;
static STATE: AtomicU8 = AtomicU8::new(UNRESOLVED);

/// What [`resolve`] found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The slots hold the next functions.
    Known,
    /// Somebody is at it, perhaps this very thread further up its stack.
    NotYet,
}

/// Fills the slots, unless that is done or being done.
pub fn resolve() -> Next {
    match STATE.compare_exchange(UNRESOLVED, RESOLVING, Ordering::Acquire, Ordering::Acquire) {
        Ok(_) => {}
        Err(RESOLVED) => return Next::Known,
        Err(_) => return Next::NotYet,
    }
    // All are asked for before one is used: a half-filled table would let a block of
    // the next allocator meet an early `free`.
    let mut found = [std::ptr::null_mut(); NAMED.len()];
    for (address, (name, _)) in found.iter_mut().zip(NAMED) {
        // SAFETY: the name ends in NUL; RTLD_NEXT searches behind the object that holds
        // the caller, which is this library.
        *address = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast::<c_char>()) };
    }
    for (address, (_, slot)) in found.into_iter().zip(NAMED) {
        if !address.is_null() {
            slot.store(address, Ordering::Relaxed);
        }
    }
    STATE.store(RESOLVED, Ordering::Release);
    Next::Known
}

/// The largest block that glibc learns from, bytes: with what it adds to it `DEFAULT_MMAP_THRESHOLD_MAX`
/// (its malloc/malloc.c).
const LEARNS_MOST: usize = (32 << 20) - PAGE;
/// The first that it is shown, bytes: where the sizes begin that come to no hand, so that those that do
/// need not be looked at.
const LEARNS_LEAST: usize = HandSize::MOST;
/// What it is shown exceeds what the program asked for by one part in this many, so that sizes that grow
/// step by step are shown a few times.
const LEARNS_AHEAD: usize = 8;
/// The largest block that the next allocator was shown, bytes.
static LEARNT: AtomicUsize = AtomicUsize::new(0);

/// The zone serves a block of so many bytes, of which the next allocator gets to know.
///
/// glibc keeps twice the largest block that it mapped and got back for itself at the top of its heap, and
/// gives what lies beyond to the kernel, at each `free`. One that never sees a large block keeps 128 KiB,
/// and small blocks that come and go by the megabyte are faulted in each time (measured: 28 times
/// the time). So a block like it is asked of glibc and given back, untouched, when the zone serves the first
/// so large. In a request, not in the program's `free`: that of a mapped block takes no lock in glibc.
#[inline(always)]
pub fn learn_of(bytes: usize) {
    if bytes > LEARNT.load(Ordering::Relaxed) && bytes <= LEARNS_MOST {
        show(bytes);
    }
}

#[cold]
fn show(bytes: usize) {
    let bytes = (bytes + bytes / LEARNS_AHEAD).clamp(LEARNS_LEAST, LEARNS_MOST);
    if LEARNT.fetch_max(bytes, Ordering::Relaxed) < bytes {
        let errno = Errno::save();
        // SAFETY: no terms, and what it gives back is what it was given, or null.
        unsafe { free(malloc(bytes)) };
        errno.restore();
    }
}

/// Whether a sanitizer is in the program: it must see every block, so it serves them all.
pub fn is_sanitized() -> bool {
    let runtimes = [c"__asan_init", c"__tsan_init", c"__lsan_init", c"__msan_init"];
    // SAFETY: the names end in NUL.
    let found = |name: &CStr| unsafe { !libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()).is_null() };
    let found = runtimes.into_iter().any(found);
    // SAFETY: no terms. What was not found is no error that the program should hear of.
    unsafe { libc::dlerror() };
    found
}

/// Whether there is one thread only; false where libc does not say (glibc before 2.32).
pub fn is_single_threaded() -> bool {
    // SAFETY: the name ends in NUL; the symbol, where it exists, is a `char` that glibc sets.
    unsafe {
        let single = libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr());
        libc::dlerror();
        !single.is_null() && single.cast::<c_char>().read_volatile() != 0
    }
}

/// What the slots hold at first.
mod early {
    use super::*;
    use std::ptr;

    /// Runs `forward` if the next allocator is known, `meanwhile` otherwise.
    ///
    /// Being here with everything resolved means that nobody behind us has the name:
    /// there is no allocator to forward to, and no way on.
    fn once_known<R>(
        slot: &AtomicPtr<c_void>,
        me: *mut c_void,
        forward: impl Fn() -> R,
        meanwhile: impl Fn() -> R,
    ) -> R {
        match resolve() {
            Next::NotYet => meanwhile(),
            Next::Known if slot.load(Ordering::Relaxed) == me => {
                Line::fatal(format_args!("prezero: no C library behind libprezero.so"))
            }
            Next::Known => forward(),
        }
    }

    macro_rules! early {
        ($($name:ident($($arg:ident: $type:ty),*) -> $ret:ty { $meanwhile:expr })*) => {
            $(pub unsafe extern "C" fn $name($($arg: $type),*) -> $ret {
                once_known(
                    &SLOTS.$name,
                    $name as *mut c_void,
                    // SAFETY: the caller keeps the terms of the function of that name.
                    || unsafe { super::$name($($arg),*) },
                    || $meanwhile,
                )
            })*
        };
    }

    early! {
        malloc(size: usize) -> Address { arena::alloc(size, 16) }
        // Not from the arena, which `free` recognises itself, and nobody else gives yet.
        free(_ptr: Address) -> () { () }
        calloc(count: usize, size: usize) -> Address {
            count.checked_mul(size).map_or(ptr::null_mut(), |size| arena::alloc(size, 16))
        }
        // Blocks of the arena do not come here, see `realloc`.
        realloc(_ptr: Address, size: usize) -> Address { arena::alloc(size, 16) }
        aligned_alloc(align: usize, size: usize) -> Address { arena::alloc(size, align) }
        memalign(align: usize, size: usize) -> Address { arena::alloc(size, align) }
        posix_memalign(out: *mut Address, align: usize, size: usize) -> c_int {{
            let block = arena::alloc(size, align);
            if block.is_null() {
                libc::ENOMEM
            } else {
                // SAFETY: the caller's promise: `out` takes an address.
                unsafe { *out = block };
                0
            }
        }}
        valloc(size: usize) -> Address { arena::alloc(size, 4096) }
        pvalloc(size: usize) -> Address { arena::alloc(size.next_multiple_of(4096), 4096) }
        malloc_usable_size(_ptr: Address) -> usize { 0 }
    }

    /// Stays where nobody behind us has the name (musl).
    pub unsafe extern "C" fn malloc_trim(_pad: usize) -> c_int {
        0
    }

    macro_rules! system_call {
        ($($name:ident = $number:ident($($arg:ident: $type:ty),*) -> $ret:ty;)*) => {
            $(pub unsafe extern "C" fn $name($($arg: $type),*) -> $ret {
                // SAFETY: the arguments of the system call in its order, on the
                // caller's terms.
                unsafe { libc::syscall(libc::$number, $($arg),*) as $ret }
            })*
        };
    }

    system_call! {
        mmap = SYS_mmap(at: Address, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> Address;
        munmap = SYS_munmap(at: Address, len: usize) -> c_int;
        mprotect = SYS_mprotect(at: Address, len: usize, prot: c_int) -> c_int;
        pkey_mprotect = SYS_pkey_mprotect(at: Address, len: usize, prot: c_int, key: c_int) -> c_int;
        madvise = SYS_madvise(at: Address, len: usize, advice: c_int) -> c_int;
        mremap = SYS_mremap(at: Address, old: usize, new: usize, flags: c_int, to: Address) -> Address;
        mlock = SYS_mlock(at: *const c_void, len: usize) -> c_int;
        mlock2 = SYS_mlock2(at: *const c_void, len: usize, flags: c_uint) -> c_int;
        mlockall = SYS_mlockall(flags: c_int) -> c_int;
        shmat = SYS_shmat(id: c_int, at: *const c_void, flags: c_int) -> Address;
        shmdt = SYS_shmdt(at: *const c_void) -> c_int;
        setrlimit = SYS_setrlimit(which: c_uint, limit: *const rlimit) -> c_int;
        prlimit = SYS_prlimit64(process: pid_t, which: c_uint, new: *const rlimit, old: *mut rlimit) -> c_int;
        setuid = SYS_setuid(user: u32) -> c_int;
        setgid = SYS_setgid(group: u32) -> c_int;
        setreuid = SYS_setreuid(real: u32, effective: u32) -> c_int;
        setregid = SYS_setregid(real: u32, effective: u32) -> c_int;
        setresuid = SYS_setresuid(real: u32, effective: u32, saved: u32) -> c_int;
        setresgid = SYS_setresgid(real: u32, effective: u32, saved: u32) -> c_int;
        setgroups = SYS_setgroups(count: usize, groups: *const u32) -> c_int;
        chroot = SYS_chroot(path: *const c_char) -> c_int;
        unshare = SYS_unshare(what: c_int) -> c_int;
        setns = SYS_setns(file: c_int, kind: c_int) -> c_int;
        ioctl = SYS_ioctl(file: c_int, request: c_ulong, argument: Address) -> c_int;
        mbind = SYS_mbind(at: Address, len: c_ulong, mode: c_int, nodes: *const c_ulong, max: c_ulong, flags: c_uint) -> c_long;
        remap_file_pages = SYS_remap_file_pages(at: Address, len: usize, prot: c_int, page: usize, flags: c_int) -> c_int;
    }

    pub unsafe extern "C" fn seteuid(user: u32) -> c_int {
        // SAFETY: the caller's terms; `u32::MAX` leaves a number as it is.
        unsafe { setresuid(u32::MAX, user, u32::MAX) }
    }

    pub unsafe extern "C" fn setegid(group: u32) -> c_int {
        // SAFETY: as above.
        unsafe { setresgid(u32::MAX, group, u32::MAX) }
    }

    /// No system call: it reads the system's list of groups.
    pub unsafe extern "C" fn initgroups(user: *const c_char, group: u32) -> c_int {
        once_known(
            &SLOTS.initgroups,
            initgroups as *mut c_void,
            // SAFETY: the caller keeps the terms of the function of that name.
            || unsafe { super::initgroups(user, group) },
            || {
                Errno::set(libc::ENOMEM);
                -1
            },
        )
    }

    pub unsafe extern "C" fn exit_group(status: c_int) -> ! {
        // SAFETY: the system call does not return.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
        unreachable!("the kernel ends the process")
    }
}
