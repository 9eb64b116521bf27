//! What the slots hold until the next functions are known, and for good where no other library has the name.

use std::ptr;

use prezero_sys::raw;

use super::*;
use crate::compat::arena;
use crate::compat::errno::Errno;
use crate::compat::message::Line;

/// Runs `forward` if the next allocator is known, `meanwhile` otherwise.
///
/// Being here with everything resolved means that no library behind this one has the name:
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
    // Not from the arena, which `free` recognises itself, and no other allocator gives yet.
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

    // No program's constructor makes children while the functions are looked up.
    daemon(stays: c_int, speaks: c_int) -> c_int { refused() }
    thrd_create(thread: Address, entry: Start, with: Address) -> c_int { refused().abs() }
    posix_spawn(pid: *mut pid_t, path: *const c_char, actions: *const c_void, how: *const c_void,
        arguments: *const *mut c_char, environment: *const *mut c_char) -> c_int { libc::EAGAIN }
    posix_spawnp(pid: *mut pid_t, file: *const c_char, actions: *const c_void, how: *const c_void,
        arguments: *const *mut c_char, environment: *const *mut c_char) -> c_int { libc::EAGAIN }
    popen(command: *const c_char, kind: *const c_char) -> *mut FILE {{ refused(); ptr::null_mut() }}
    system(command: *const c_char) -> c_int { refused() }
}

/// libc's, with the handlers.
pub unsafe extern "C" fn fork_by_libc() -> pid_t {
    // SAFETY: no terms.
    once_known(&SLOTS.fork, fork_by_libc as *mut c_void, || unsafe { super::fork() }, refused)
}

fn refused() -> c_int {
    Errno::set(libc::EAGAIN);
    -1
}

/// glibc before 2.34 has it in a library that may be loaded later, and for one object alone.
pub unsafe extern "C" fn pthread_create(
    thread: Address,
    how: *const c_void,
    entry: Start,
    with: Address,
) -> c_int {
    let (slot, me) = (&SLOTS.pthread_create, pthread_create as *mut c_void);
    if resolve() == Next::NotYet || slot.load(Ordering::Relaxed) == me {
        // SAFETY: the names end in NUL. Nothing is loaded, and what is stays for the thread that is about to run there.
        let found = unsafe {
            let library =
                libc::dlopen(c"libpthread.so.0".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if library.is_null() {
                return libc::EAGAIN;
            }
            libc::dlsym(library, c"pthread_create".as_ptr())
        };
        if found.is_null() {
            return libc::EAGAIN;
        }
        slot.store(found, Ordering::Relaxed);
    }
    // SAFETY: the caller keeps the terms of the function of that name.
    unsafe { super::pthread_create(thread, how, entry, with) }
}

/// Stays where no program is linked with the name any more: what glibc keeps of it is its `free`.
pub unsafe extern "C" fn cfree(ptr: Address) {
    // SAFETY: the caller keeps the terms of `free`.
    unsafe { super::__libc_free(ptr) }
}

/// Stays where no library behind this one has the name (musl).
pub unsafe extern "C" fn malloc_trim(_pad: usize) -> c_int {
    0
}

/// The same.
pub unsafe extern "C" fn mallopt(_parameter: c_int, _value: c_int) -> c_int {
    0
}

/// The same.
pub unsafe extern "C" fn mallinfo() -> Mallinfo<c_int> {
    Mallinfo::default()
}

/// The same (glibc before 2.33, whose `mallinfo` says as much as fits).
pub unsafe extern "C" fn mallinfo2() -> Mallinfo<usize> {
    // SAFETY: no terms.
    let fits = unsafe { super::mallinfo() };
    let wide = |n: c_int| n as c_uint as usize;
    Mallinfo {
        arena: wide(fits.arena),
        ordblks: wide(fits.ordblks),
        smblks: wide(fits.smblks),
        hblks: wide(fits.hblks),
        hblkhd: wide(fits.hblkhd),
        usmblks: wide(fits.usmblks),
        fsmblks: wide(fits.fsmblks),
        uordblks: wide(fits.uordblks),
        fordblks: wide(fits.fordblks),
        keepcost: wide(fits.keepcost),
    }
}

/// The same.
pub unsafe extern "C" fn malloc_info(_options: c_int, _stream: *mut FILE) -> c_int {
    libc::ENOSYS
}

macro_rules! system_call {
    ($($name:ident = $number:ident($($arg:ident: $type:ty),*) -> $ret:ty;)*) => {
        $(pub unsafe extern "C" fn $name($($arg: $type),*) -> $ret {
            // Not by libc's function, whose name is this library's.
            // SAFETY: the arguments of the system call in its order, on the caller's terms.
            let answer = unsafe { raw::syscall(libc::$number, [$($arg as usize),*]) };
            said(answer) as $ret
        })*
    };
}

system_call! {
    mmap = SYS_mmap(at: Address, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> Address;
    munmap = SYS_munmap(at: Address, len: usize) -> c_int;
    mprotect = SYS_mprotect(at: Address, len: usize, prot: c_int) -> c_int;
    pkey_mprotect = SYS_pkey_mprotect(at: Address, len: usize, prot: c_int, key: c_int) -> c_int;
    madvise = SYS_madvise(at: Address, len: usize, advice: c_int) -> c_int;
    process_madvise = SYS_process_madvise(process: c_int, ranges: *const iovec, count: usize, advice: c_int, flags: c_uint) -> isize;
    mseal = SYS_mseal(at: Address, len: usize, flags: c_ulong) -> c_int;
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
    prctl = SYS_prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int;
    remap_file_pages = SYS_remap_file_pages(at: Address, len: usize, prot: c_int, page: usize, flags: c_int) -> c_int;
}

/// What libc's `syscall` does.
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: Address,
    b: Address,
    c: Address,
    d: Address,
    e: Address,
    f: Address,
) -> c_long {
    // SAFETY: the arguments are the caller's.
    said(unsafe { raw::syscall(number, [a, b, c, d, e, f].map(Address::addr)) })
}

/// What libc says of the kernel's answer.
fn said(answer: isize) -> c_long {
    const LEAST_ERROR: isize = -4095;
    if (LEAST_ERROR..0).contains(&answer) {
        Errno::set(-answer as c_int);
        return -1;
    }
    answer as c_long
}

/// Each libc has it.
pub unsafe extern "C" fn posix_madvise(_at: Address, _len: usize, _advice: c_int) -> c_int {
    libc::ENOSYS
}

pub unsafe extern "C" fn seteuid(user: u32) -> c_int {
    // SAFETY: the caller keeps the contract of `seteuid`; `u32::MAX` leaves a number as it is.
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

/// Stays where the name is that of POSIX.
pub unsafe extern "C" fn __register_atfork(
    before: Handler,
    parent: Handler,
    child: Handler,
    _library: Address,
) -> c_int {
    // SAFETY: the caller keeps the terms of the function of that name.
    unsafe { super::pthread_atfork(before, parent, child) }
}

/// Stays where there is neither: scrubd notices a fork by itself.
pub unsafe extern "C" fn pthread_atfork(
    _before: Handler,
    _parent: Handler,
    _child: Handler,
) -> c_int {
    libc::ENOMEM
}

/// The call that glibc before 2.34 has no function for.
pub unsafe extern "C" fn fork() -> c_int {
    // SAFETY: without a stack the child goes on as its parent does.
    said(unsafe { raw::syscall(libc::SYS_clone, [libc::SIGCHLD as usize]) }) as c_int
}

/// No system call alone: the child begins on its own stack.
pub unsafe extern "C" fn clone(
    entry: Option<unsafe extern "C" fn(Address) -> c_int>,
    stack: Address,
    flags: c_int,
    argument: Address,
    parent: Address,
    tls: Address,
    child: Address,
) -> c_int {
    once_known(
        &SLOTS.clone,
        clone as *mut c_void,
        // SAFETY: the caller keeps the terms of the function of that name.
        || unsafe { super::clone(entry, stack, flags, argument, parent, tls, child) },
        || {
            Errno::set(libc::EAGAIN);
            -1
        },
    )
}

pub unsafe extern "C" fn exit_group(status: c_int) -> ! {
    // SAFETY: the system call does not return.
    unsafe { raw::syscall(libc::SYS_exit_group, [status as usize]) };
    unreachable!("the kernel ends the process")
}
