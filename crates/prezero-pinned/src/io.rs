//! libc's functions that read and write a descriptor: a file in `/dev/shm` that is a part of the lease is read there.
//!
//! All others go on to libc's own, which threads can be cancelled in. Without such files nothing else is done.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use libc::{iovec, mode_t, off_t, size_t, ssize_t};

use crate::arena::{Arena, Way};
use crate::{arena, cuda, raw};

/// A function of libc's.
struct Next {
    name: &'static CStr,
    at: AtomicPtr<c_void>,
}

/// The arena, if it may have a file.
fn with_files() -> Option<&'static Arena> {
    arena().filter(|arena| arena.board.has_files())
}

/// Finds libc's own before the program begins: a look-up has no place in a signal handler.
pub fn begin() {
    for next in ALL {
        next.at.store(cuda::look_up(libc::RTLD_NEXT, next.name), Relaxed);
    }
}

macro_rules! passes {
    ($($name:ident = $symbol:literal ($($value:ident: $type:ty),*) -> $result:ty, $instead:expr;)*) => {
        #[allow(non_upper_case_globals)]
        mod next {
            use super::*;
            $(pub static $name: Next = Next { name: $symbol, at: AtomicPtr::new(null_mut()) };)*
        }
        static ALL: &[&Next] = &[$(&next::$name),*];
        $(
            /// # Safety
            /// As for libc's.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($value: $type),*) -> $result {
                let instead: Option<$result> = with_files().and_then(|arena| $instead(arena));
                if let Some(result) = instead {
                    return result;
                }
                let mut real = next::$name.at.load(Relaxed);
                if real.is_null() {
                    real = cuda::look_up(libc::RTLD_NEXT, $symbol);
                }
                if real.is_null() {
                    return raw::fail(libc::ENOSYS) as $result;
                }
                type Real = unsafe extern "C" fn($($type),*) -> $result;
                // SAFETY: libc's function of that name has this type, and is called as this one.
                unsafe { std::mem::transmute::<*mut c_void, Real>(real)($($value),*) }
            }
        )*
        /// This library's function of a name.
        pub fn of_libc(name: &CStr) -> Option<*const ()> {
            let all = [$(($symbol, $name as *const ())),*];
            all.iter().find(|(known, _)| *known == name).map(|(_, ours)| *ours)
        }
    };
}

/// One buffer.
fn one(
    arena: &Arena,
    file: c_int,
    at: *const c_void,
    len: usize,
    from: Option<i64>,
    way: Way,
) -> Option<ssize_t> {
    arena.transfer(file, &[iovec { iov_base: at.cast_mut(), iov_len: len }], from, way)
}

/// Several, which the kernel allows 1024 of.
fn many(
    arena: &Arena,
    file: c_int,
    all: *const iovec,
    count: c_int,
    from: Option<i64>,
    way: Way,
) -> Option<ssize_t> {
    let count = usize::try_from(count).ok().filter(|&count| count <= 1024 && !all.is_null())?;
    if !arena.is_part(file) {
        return None;
    }
    // SAFETY: the caller's list, of that length.
    arena.transfer(file, unsafe { std::slice::from_raw_parts(all, count) }, from, way)
}

/// Pages that one of the two files would hand out by itself: refused.
fn handed(arena: &Arena, one: c_int, other: c_int, error: c_int) -> Option<ssize_t> {
    (arena.is_part(one) || arena.is_part(other)).then(|| raw::fail(error) as ssize_t)
}

/// Where a byte or a hole is.
fn sought(arena: &Arena, file: c_int, from: off_t, whence: c_int) -> Option<off_t> {
    let is_it = whence == libc::SEEK_DATA || whence == libc::SEEK_HOLE;
    is_it.then(|| arena.seek(file, from, whence)).flatten()
}

passes! {
    read = c"read" (file: c_int, at: *mut c_void, len: size_t) -> ssize_t, |arena| one(arena, file, at, len, None, Way::Read);
    write = c"write" (file: c_int, at: *const c_void, len: size_t) -> ssize_t, |arena| one(arena, file, at, len, None, Way::Write);
    pread = c"pread" (file: c_int, at: *mut c_void, len: size_t, from: off_t) -> ssize_t, |arena| one(arena, file, at, len, Some(from), Way::Read);
    pread64 = c"pread64" (file: c_int, at: *mut c_void, len: size_t, from: off_t) -> ssize_t, |arena| one(arena, file, at, len, Some(from), Way::Read);
    pwrite = c"pwrite" (file: c_int, at: *const c_void, len: size_t, from: off_t) -> ssize_t, |arena| one(arena, file, at, len, Some(from), Way::Write);
    pwrite64 = c"pwrite64" (file: c_int, at: *const c_void, len: size_t, from: off_t) -> ssize_t, |arena| one(arena, file, at, len, Some(from), Way::Write);
    readv = c"readv" (file: c_int, all: *const iovec, count: c_int) -> ssize_t, |arena| many(arena, file, all, count, None, Way::Read);
    writev = c"writev" (file: c_int, all: *const iovec, count: c_int) -> ssize_t, |arena| many(arena, file, all, count, None, Way::Write);
    preadv = c"preadv" (file: c_int, all: *const iovec, count: c_int, from: off_t) -> ssize_t, |arena| many(arena, file, all, count, Some(from), Way::Read);
    preadv64 = c"preadv64" (file: c_int, all: *const iovec, count: c_int, from: off_t) -> ssize_t, |arena| many(arena, file, all, count, Some(from), Way::Read);
    pwritev = c"pwritev" (file: c_int, all: *const iovec, count: c_int, from: off_t) -> ssize_t, |arena| many(arena, file, all, count, Some(from), Way::Write);
    pwritev64 = c"pwritev64" (file: c_int, all: *const iovec, count: c_int, from: off_t) -> ssize_t, |arena| many(arena, file, all, count, Some(from), Way::Write);
    sendfile = c"sendfile" (to: c_int, file: c_int, at: *mut off_t, len: size_t) -> ssize_t, |arena| handed(arena, to, file, libc::EINVAL);
    sendfile64 = c"sendfile64" (to: c_int, file: c_int, at: *mut off_t, len: size_t) -> ssize_t, |arena| handed(arena, to, file, libc::EINVAL);
    copy_file_range = c"copy_file_range" (file: c_int, at: *mut off_t, to: c_int, there: *mut off_t, len: size_t, flags: u32) -> ssize_t, |arena| handed(arena, file, to, libc::EXDEV);
    lseek = c"lseek" (file: c_int, from: off_t, whence: c_int) -> off_t, |arena| sought(arena, file, from, whence);
    lseek64 = c"lseek64" (file: c_int, from: off_t, whence: c_int) -> off_t, |arena| sought(arena, file, from, whence);
    open = c"open" (path: *const c_char, flags: c_int, mode: mode_t) -> c_int, |arena| opened(arena, libc::AT_FDCWD, path, flags, mode);
    open64 = c"open64" (path: *const c_char, flags: c_int, mode: mode_t) -> c_int, |arena| opened(arena, libc::AT_FDCWD, path, flags, mode);
    openat = c"openat" (folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int, |arena| opened(arena, folder, path, flags, mode);
    openat64 = c"openat64" (folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int, |arena| opened(arena, folder, path, flags, mode);
    creat = c"creat" (path: *const c_char, mode: mode_t) -> c_int, |arena| opened(arena, libc::AT_FDCWD, path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode);
}

/// A file that loses its content as it is opened. Others are libc's; one by `shm_open` is noticed when it gets a size.
fn opened(
    arena: &Arena,
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> Option<c_int> {
    if flags & libc::O_TRUNC == 0 {
        return None;
    }
    let file = raw::open_as(folder, path, flags, mode);
    if file >= 0 {
        arena.look_at(file);
    }
    Some(file)
}
