//! `libprezero_pinned.so`: a lease as the host memory of an inference server.
//!
//! `prezero claim --pinned` puts it in front of libc and CUDA. Requests from a threshold on are cut out of the lease until it
//! is used up; all others, and what does not fit, get what they would have got. Parts go back, and serve again.
//!
//! | a request | gets | goes back by |
//! |---|---|---|
//! | `cudaHostAlloc`, `cudaMallocHost`, `cuMemHostAlloc`, `cuMemAllocHost`, `hipHostMalloc` | a part, registered at the size that was asked for | their free |
//! | `mmap(MAP_PRIVATE \| MAP_ANONYMOUS)` | a part, hidden from children | `munmap` |
//! | `mmap(MAP_SHARED \| MAP_ANONYMOUS)` | a part | `munmap`, by each process |
//! | `ftruncate`, `fallocate` of a new file in `/dev/shm` | a part, in each mapping of the file | `shm_unlink`, `unlink`, and `munmap` by each process |
//!
//! Mappings that only reserve addresses (`PROT_NONE`, `MAP_NORESERVE`), are put somewhere or are stacks are no requests for memory.
//! A lease of a pool serves allocations alone: the kernel does not cut its pages, as a program may cut a mapping. [`arena`] has the arena, [`cuda`] the functions of CUDA.
//!
//! Private memory of the lease is hidden from children, which fault there: a lease cannot be copied on write.
//! A process that closes the descriptors of this library gives its parts to others, which the kernel's locks decide.
//!
//! Layers: raw, said, lease, ranks, board, table, arena, shim, plain, cuda, io

mod arena;
mod board;
mod cuda;
mod io;
mod lease;
mod plain;
mod ranks;
mod raw;
mod said;
mod shim;
mod table;

use std::ffi::{CStr, c_char, c_int, c_void};

use libc::{MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, MAP_SHARED, off_t, size_t};

use arena::{Arena, Resize};
use board::Kind;
use shim::shim;

/// The arena, for a request of the program's.
fn arena() -> Option<&'static Arena> {
    shim().arena.as_ref().filter(|_| !cuda::is_inside())
}

/// What asks for addresses, and not for memory; on x86-64 0x40 is `MAP_32BIT`.
const NO_REQUEST: c_int = libc::MAP_FIXED
    | libc::MAP_FIXED_NOREPLACE
    | libc::MAP_NORESERVE
    | libc::MAP_STACK
    | libc::MAP_GROWSDOWN
    | 0x40;

/// # Safety
/// As for `mmap(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    at: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the kernel is asked what the caller asked, on its terms.
    let kernel = || unsafe { raw::mmap(at, len, protection, flags, file, offset) };
    let Some(arena) = arena() else { return kernel().unwrap_or(MAP_FAILED) };
    if flags & MAP_ANONYMOUS != 0 {
        let is_request = protection == libc::PROT_READ | libc::PROT_WRITE
            && flags & NO_REQUEST == 0
            && at.is_null();
        let kind = match flags & libc::MAP_TYPE {
            MAP_PRIVATE => Some(Kind::Private),
            MAP_SHARED => Some(Kind::Shared),
            _ => None,
        };
        let part = kind
            .filter(|_| is_request)
            .and_then(|kind| arena.serve(len, protection, kind, arena.ranks.mine()));
        if let Some(part) = part {
            return part;
        }
    } else if let Some(part) = arena.map_file(at, len, protection, flags, file, offset) {
        return part.unwrap_or_else(|error| {
            raw::fail(error);
            MAP_FAILED
        });
    }
    let whole = len.saturating_add(arena::SMALL - 1) & !(arena::SMALL - 1);
    if flags & libc::MAP_FIXED != 0 && arena.touches(at.addr(), whole) {
        let mut map = None;
        let known = arena.changed(at.addr(), whole, || {
            map = kernel();
            map.is_some()
        });
        if known.is_some() {
            return map.unwrap_or(MAP_FAILED);
        }
    }
    kernel().unwrap_or(MAP_FAILED)
}

/// # Safety
/// As for `mmap(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    at: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the same function where off_t has 64 bits.
    unsafe { mmap(at, len, protection, flags, file, offset) }
}

/// # Safety
/// As for `munmap(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(at: *mut c_void, len: size_t) -> c_int {
    let part = shim().arena.as_ref().and_then(|arena| arena.unmap(at.addr(), len));
    // SAFETY: the kernel is asked what the caller asked, on its terms.
    part.unwrap_or_else(|| unsafe { raw::munmap(at, len) })
}

/// # Safety
/// As for `mremap(2)`; without `MREMAP_FIXED` the last argument may be left out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    at: *mut c_void,
    len: size_t,
    new: size_t,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    let asked = Resize { at: at.addr(), len, new, flags, to };
    match shim().arena.as_ref().and_then(|arena| arena.resize(asked)) {
        Some(Ok(map)) => map,
        Some(Err(error)) => {
            raw::fail(error);
            MAP_FAILED
        }
        // SAFETY: the kernel is asked what the caller asked, on its terms.
        None => unsafe { raw::mremap(at, len, new, flags, to) }.unwrap_or(MAP_FAILED),
    }
}

/// # Safety
/// As for `madvise(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(at: *mut c_void, len: size_t, advice: c_int) -> c_int {
    let part = shim().arena.as_ref().and_then(|arena| arena.advise(at.addr(), len, advice));
    // SAFETY: the kernel is asked what the caller asked, on its terms.
    part.unwrap_or_else(|| unsafe { raw::madvise(at, len, advice) })
}

/// A file gets a size. It is looked at before too: it may have lost its content since, and would get another size now.
fn resized(file: c_int, work: impl FnOnce() -> c_int) -> c_int {
    let Some(arena) = arena() else { return work() };
    arena.look_at(file);
    let done = work();
    let why = raw::error();
    arena.look_at(file);
    raw::fail(why);
    done
}

/// # Safety
/// As for `truncate(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn truncate(path: *const c_char, len: off_t) -> c_int {
    // SAFETY: the caller's path, which ends in NUL.
    let text = (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) });
    let known = arena().filter(|arena| text.is_some_and(|text| arena.has_file(text)));
    let Some(file) = known.and_then(|_| raw::open(text?)) else { return raw::truncate(path, len) };
    let done = resized(file, || raw::truncate(path, len));
    raw::close(file);
    done
}

/// # Safety
/// As for `truncate(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn truncate64(path: *const c_char, len: off_t) -> c_int {
    // SAFETY: the same function where off_t has 64 bits.
    unsafe { truncate(path, len) }
}

/// A file gets a size, and may become a part of the lease by it.
#[unsafe(no_mangle)]
pub extern "C" fn ftruncate(file: c_int, len: off_t) -> c_int {
    let done = resized(file, || raw::ftruncate(file, len));
    if let Some(arena) = arena().filter(|_| done == 0) {
        arena.sized(file);
    }
    done
}

/// The same where `off_t` has 64 bits.
#[unsafe(no_mangle)]
pub extern "C" fn ftruncate64(file: c_int, len: off_t) -> c_int {
    ftruncate(file, len)
}

/// A file's space is reserved, which is there of a part of the lease; or becomes a hole.
#[unsafe(no_mangle)]
pub extern "C" fn fallocate(file: c_int, mode: c_int, from: off_t, len: off_t) -> c_int {
    let (keeps, hole) = (libc::FALLOC_FL_KEEP_SIZE, libc::FALLOC_FL_PUNCH_HOLE);
    let reserves = mode & !keeps == 0;
    if reserves && arena().is_some_and(|arena| arena.reserved(file, from, len, mode == keeps)) {
        return 0;
    }
    // SAFETY: a question to the kernel about a number.
    let done = unsafe {
        libc::syscall(libc::SYS_fallocate, file as libc::c_long, mode as libc::c_long, from, len)
            as c_int
    };
    if let Some(arena) = arena().filter(|_| done == 0 && mode & hole != 0) {
        arena.punched(file, from, len);
    }
    done
}

/// The same where `off_t` has 64 bits.
#[unsafe(no_mangle)]
pub extern "C" fn fallocate64(file: c_int, mode: c_int, from: off_t, len: off_t) -> c_int {
    fallocate(file, mode, from, len)
}

/// The same, by another name; returns the error.
#[unsafe(no_mangle)]
pub extern "C" fn posix_fallocate(file: c_int, from: off_t, len: off_t) -> c_int {
    if arena().is_some_and(|arena| arena.reserved(file, from, len, false)) {
        return 0;
    }
    type Reserve = unsafe extern "C" fn(c_int, off_t, off_t) -> c_int;
    let next = cuda::look_up(libc::RTLD_NEXT, c"posix_fallocate");
    if next.is_null() {
        return libc::ENOSYS;
    }
    // SAFETY: libc's function of that name has this type.
    unsafe { std::mem::transmute::<*mut c_void, Reserve>(next)(file, from, len) }
}

/// The same where `off_t` has 64 bits.
#[unsafe(no_mangle)]
pub extern "C" fn posix_fallocate64(file: c_int, from: off_t, len: off_t) -> c_int {
    posix_fallocate(file, from, len)
}

/// Ends the process without its destructors, as shells do: the last line is said first.
#[unsafe(no_mangle)]
pub extern "C" fn _exit(status: c_int) -> ! {
    shim::told();
    loop {
        // SAFETY: ends the process.
        unsafe { libc::syscall(libc::SYS_exit_group, status as libc::c_long) };
    }
}

/// The same by C's name.
#[unsafe(no_mangle)]
pub extern "C" fn _Exit(status: c_int) -> ! {
    _exit(status)
}

/// # Safety
/// As for `unlinkat(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlinkat(folder: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's path, which ends in NUL.
    let text = (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) });
    // A part of the lease that was known by it goes back.
    let known = arena().and_then(|arena| Some((arena, arena.named(folder, text?)?)));
    let (from, flags) = (libc::c_long::from(folder), libc::c_long::from(flags));
    // SAFETY: the caller's path, for the kernel to look at.
    let done = unsafe { libc::syscall(libc::SYS_unlinkat, from, path, flags) as c_int };
    if let Some((arena, file)) = known.filter(|_| done == 0) {
        arena.unnamed(file);
    }
    done
}

/// # Safety
/// As for `unlink(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: the same of the current folder.
    unsafe { unlinkat(libc::AT_FDCWD, path, 0) }
}

/// # Safety
/// As for `shm_unlink(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shm_unlink(name: *const c_char) -> c_int {
    /// What a name is part of.
    const FOLDER: &[u8] = b"/dev/shm/";
    // SAFETY: the caller's name, which ends in NUL.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let name = &name[name.iter().take_while(|&&byte| byte == b'/').count()..];
    let mut path = [0; FOLDER.len() + 256];
    if name.is_empty() || name.contains(&b'/') || name.len() > 255 {
        return raw::fail(libc::EINVAL);
    }
    path[..FOLDER.len()].copy_from_slice(FOLDER);
    path[FOLDER.len()..][..name.len()].copy_from_slice(name);
    // SAFETY: ends in NUL, since the rest of the array is 0.
    let done = unsafe { unlink(path.as_ptr().cast()) };
    // SAFETY: this thread's own.
    if done != 0 && unsafe { *libc::__errno_location() } == libc::EPERM {
        return raw::fail(libc::EACCES);
    }
    done
}

/// Before the program begins.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = {
    extern "C" fn begin() {
        io::begin();
        let _ = cuda::OF_LIBC.set(of_libc);
    }
    begin
};

/// This library's function of a name of libc's.
fn of_libc(name: &CStr) -> Option<*const ()> {
    let all = [
        (c"mmap", mmap as *const ()),
        (c"mmap64", mmap64 as *const ()),
        (c"munmap", munmap as *const ()),
        (c"mremap", mremap as *const ()),
        (c"madvise", madvise as *const ()),
        (c"truncate", truncate as *const ()),
        (c"truncate64", truncate64 as *const ()),
        (c"ftruncate", ftruncate as *const ()),
        (c"ftruncate64", ftruncate64 as *const ()),
        (c"fallocate", fallocate as *const ()),
        (c"fallocate64", fallocate64 as *const ()),
        (c"posix_fallocate", posix_fallocate as *const ()),
        (c"posix_fallocate64", posix_fallocate64 as *const ()),
        (c"unlink", unlink as *const ()),
        (c"unlinkat", unlinkat as *const ()),
        (c"shm_unlink", shm_unlink as *const ()),
    ];
    let found = all.iter().find(|(known, _)| *known == name).map(|(_, ours)| *ours);
    found.or_else(|| io::of_libc(name))
}
