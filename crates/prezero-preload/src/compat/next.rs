//! The allocator that the program had, and the system-call functions behind the exported ones.
//!
//! Every name that this library takes over is looked up once with
//! `dlsym(RTLD_NEXT)`: the next one in link order, be it glibc's or that of another
//! preloaded allocator. A slot starts with an *early* function, so that a call costs
//! one load and one jump and never asks whether all is known: an early allocation
//! resolves all slots and forwards, or takes from the [`arena`](super::arena) while another call
//! resolves; an early system-call wrapper makes the system call itself, and stays in
//! its slot where no other library defines the name.
//!
//! The dynamic linker is asked here alone, and for all else that a request needs to know of the program
//! ([`company`], [`whole`]). Resolving takes no lock of this library. A thread that finds another one at it does not
//! wait, because that one may be waiting for a lock of the dynamic linker which this
//! one holds.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use libc::{FILE, iovec, pid_t, rlimit};

use super::{company, whole};

/// What the slots hold at first.
mod early;

macro_rules! next {
    ($($name:ident($($arg:ident: $type:ty),*) -> $ret:ty, before: $early:expr;)*) => {
        /// The functions, those that every program calls all the time first: on one cache line,
        /// which is not written once all are known.
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
            #[allow(non_snake_case, reason = "libc has such names")]
            pub unsafe fn $name($($arg: $type),*) -> $ret {
                type Function = unsafe extern "C" fn($($type),*) -> $ret;
                let address = SLOTS.$name.load(Ordering::Relaxed);
                // SAFETY: the slot starts with a function of this type, and `resolve`
                // stores only what the dynamic linker knows under this name. The
                // caller keeps its terms.
                unsafe { std::mem::transmute::<*mut c_void, Function>(address)($($arg),*) }
            }
        )*

        /// Name and slot of each.
        static NAMED: &[(&CStr, &AtomicPtr<c_void>)] = &[$((
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("one NUL, at the end"),
            },
            &SLOTS.$name,
        ),)*];
    };
}

type Address = *mut c_void;
/// What runs at a fork.
pub type Handler = unsafe extern "C" fn();

/// What a thread runs; the two kinds differ in what it answers.
pub type Start = Option<unsafe extern "C" fn(Address) -> Address>;

/// `struct mallinfo` and `struct mallinfo2`, as glibc has them.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Mallinfo<T> {
    /// Bytes in heaps.
    pub arena: T,
    /// Free blocks.
    pub ordblks: T,
    /// Free small blocks.
    pub smblks: T,
    /// Blocks in mappings of their own.
    pub hblks: T,
    /// Bytes in those.
    pub hblkhd: T,
    /// Not used.
    pub usmblks: T,
    /// Bytes in free small blocks.
    pub fsmblks: T,
    /// Bytes in use in heaps.
    pub uordblks: T,
    /// Bytes free in heaps.
    pub fordblks: T,
    /// Bytes at the top of the heap that `malloc_trim` would give back.
    pub keepcost: T,
}

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
    mallopt(parameter: c_int, value: c_int) -> c_int, before: early::mallopt;
    mallinfo() -> Mallinfo<c_int>, before: early::mallinfo;
    mallinfo2() -> Mallinfo<usize>, before: early::mallinfo2;
    malloc_info(options: c_int, stream: *mut FILE) -> c_int, before: early::malloc_info;
    cfree(ptr: Address) -> (), before: early::cfree;
    __libc_free(ptr: Address) -> (), before: early::free;
    __libc_realloc(ptr: Address, size: usize) -> Address, before: early::realloc;

    mmap(at: Address, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> Address,
        before: early::mmap;
    munmap(at: Address, len: usize) -> c_int, before: early::munmap;
    mprotect(at: Address, len: usize, prot: c_int) -> c_int, before: early::mprotect;
    pkey_mprotect(at: Address, len: usize, prot: c_int, key: c_int) -> c_int,
        before: early::pkey_mprotect;
    madvise(at: Address, len: usize, advice: c_int) -> c_int, before: early::madvise;
    posix_madvise(at: Address, len: usize, advice: c_int) -> c_int, before: early::posix_madvise;
    process_madvise(process: c_int, ranges: *const iovec, count: usize, advice: c_int, flags: c_uint)
        -> isize, before: early::process_madvise;
    mseal(at: Address, len: usize, flags: c_ulong) -> c_int, before: early::mseal;
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

    prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int, before: early::prctl;
    syscall(number: c_long, a: Address, b: Address, c: Address, d: Address, e: Address, f: Address)
        -> c_long, before: early::syscall;

    __register_atfork(before: Handler, parent: Handler, child: Handler, library: Address) -> c_int,
        before: early::__register_atfork;
    pthread_atfork(before: Handler, parent: Handler, child: Handler) -> c_int,
        before: early::pthread_atfork;
    fork() -> pid_t, before: early::fork_by_libc;
    daemon(stays: c_int, speaks: c_int) -> c_int, before: early::daemon;
    pthread_create(thread: Address, how: *const c_void, entry: Start, with: Address) -> c_int,
        before: early::pthread_create;
    thrd_create(thread: Address, entry: Start, with: Address) -> c_int, before: early::thrd_create;
    posix_spawn(pid: *mut pid_t, path: *const c_char, actions: *const c_void, how: *const c_void,
        arguments: *const *mut c_char, environment: *const *mut c_char) -> c_int, before: early::posix_spawn;
    posix_spawnp(pid: *mut pid_t, file: *const c_char, actions: *const c_void, how: *const c_void,
        arguments: *const *mut c_char, environment: *const *mut c_char) -> c_int, before: early::posix_spawnp;
    popen(command: *const c_char, kind: *const c_char) -> *mut FILE, before: early::popen;
    system(command: *const c_char) -> c_int, before: early::system;
    _Fork() -> c_int, before: early::fork;
    clone(entry: Option<unsafe extern "C" fn(Address) -> c_int>, stack: Address, flags: c_int, argument: Address,
        parent: Address, tls: Address, child: Address) -> c_int, before: early::clone;

    _exit(status: c_int) -> !, before: early::exit_group;
    _Exit(status: c_int) -> !, before: early::exit_group;
    quick_exit(status: c_int) -> !, before: early::exit_group;
}

/// Of these names, those that a glibc may lack.
const MAY_LACK: &str = "cfree mallinfo2 mbind mlock2 mseal pkey_mprotect process_madvise pthread_atfork pthread_create thrd_create _Fork";

const UNRESOLVED: u8 = 0;
const RESOLVING: u8 = 1;
const RESOLVED: u8 = 2;
static STATE: AtomicU8 = AtomicU8::new(UNRESOLVED);

/// The names of all these functions.
pub fn names() -> impl Iterator<Item = &'static CStr> {
    NAMED.iter().map(|(name, _)| *name)
}

/// Has the calls of that name made by another function, which finds the one of before in `next`.
pub fn put_before(name: &str, function: *mut c_void, next: &AtomicPtr<c_void>) {
    let at = names().position(|each| each.to_bytes() == name.as_bytes());
    if let Some((_, slot)) = at.and_then(|at| NAMED.get(at)) {
        next.store(slot.load(Ordering::Relaxed), Ordering::Release);
        slot.store(function, Ordering::Release);
    }
}

/// What [`resolve`] found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The slots hold the next functions.
    Known,
    /// Another call is at it, perhaps of this very thread further up its stack.
    NotYet,
}

/// Fills the slots, unless that is done or being done.
pub fn resolve() -> Next {
    match STATE.compare_exchange(UNRESOLVED, RESOLVING, Ordering::Acquire, Ordering::Acquire) {
        Ok(_) => {}
        Err(RESOLVED) => return Next::Known,
        Err(_) => return Next::NotYet,
    }
    fill();
    Next::Known
}

/// In a frame of its own: the first large request may come on a short stack.
#[cold]
#[inline(never)]
fn fill() {
    // All are asked for before one is used: a half-filled table would let a block of
    // the next allocator meet an early `free`.
    let mut found = [std::ptr::null_mut(); NAMED.len()];
    for (address, name) in found.iter_mut().zip(names()) {
        *address = if MAY_LACK.split(' ').any(|each| each.as_bytes() == name.to_bytes()) {
            company::look_up(libc::RTLD_NEXT, name)
        } else {
            // SAFETY: the name ends in NUL; RTLD_NEXT searches behind the object that holds
            // the caller, which is this library.
            unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
        };
    }
    let of_family = whole::FAMILY.map(|name| {
        names().position(|each| each == name).map_or(std::ptr::null_mut(), |at| found[at])
    });
    company::look();
    // A sanitizer's own functions may not be called before it has begun, and its allocator has the program to itself.
    if !company::is_sanitized() {
        whole::look(of_family);
    }
    for (address, (_, slot)) in found.into_iter().zip(NAMED) {
        if !address.is_null() {
            slot.store(address, Ordering::Relaxed);
        }
    }
    STATE.store(RESOLVED, Ordering::Release);
}
