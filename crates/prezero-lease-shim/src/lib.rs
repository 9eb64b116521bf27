//! `libprezero_lease_shim.so`: a lease for programs that take no path to their memory.
//!
//! `prezero claim --preload` puts it in front of libc. It answers, once, the call by which such
//! a program makes its memory:
//!
//! | call | made by | gets |
//! |---|---|---|
//! | `open(DIR, O_TMPFILE)`, told so | JVM with `-XX:AllocateHeapAt=DIR` | a descriptor of the lease |
//! | `mmap(MAP_SHARED \| MAP_ANONYMOUS)`, more than half of the lease and not more than it | `PostgreSQL` and others with shared buffers | a mapping of the lease |
//! | `mmap(NULL, ..., MAP_SHARED, lease)` | memcached with `-e {lease}` | a mapping that begins where one of the lease's pages may |
//! | `fallocate`, `posix_fallocate` on the lease | JVM | yes, at once: the kernel would look at every page of it, which is there |
//!
//! Everything else, and the second such call, gets what it gets without the library: memory
//! of the kernel. A private mapping is never replaced, since what is private is copied by a
//! fork and cleared by `MADV_DONTNEED`, and a lease is neither. What is known to go wrong with a
//! lease is said once on standard error: mapping it privately, `MADV_DONTNEED` on it, System V shared
//! memory in its place, a parent that closed its descriptor. The program that `prezero claim` became
//! says at its end that no process used the lease, if that is so.
//!
//! # Once
//!
//! All processes that inherit the lease share one open file description, and so its offset,
//! which is zero when it comes from the broker. A process that takes the lease moves the offset by one
//! first, which the kernel does atomically; only the process that moved it to one has it. So neither
//! two programs of a script nor a restarted one ever share it, or find it dirty. A process that maps
//! the lease by its path moves the offset as well.
//!
//! # Given back
//!
//! A process that unmaps the lease which answered it closes its descriptor too. `PostgreSQL` makes its
//! shared memory anew after a crash: the lease would be held beside it, without use.
//!
//! Layers: said, jvm, lease

mod jvm;
mod lease;
mod said;

#[cfg(target_env = "gnu")]
prezero_glibc::names!(dlsym pthread_create);

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{
    MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, MAP_SHARED, O_TMPFILE, key_t, mode_t, off_t, size_t,
};

use lease::{Inherited, Lease, Lost};
use prezero_sys::mapping;

static INHERITED: OnceLock<Inherited> = OnceLock::new();

/// Looks for the lease before the program begins: an allocator that calls this library from inside
/// `malloc` must not find it in the middle of that.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = {
    extern "C" fn begin() {
        prezero_sys::say::panics();
        let _ = INHERITED.set(Inherited::look());
    }
    begin
};

/// Says at the end of the program whether the lease was of any use.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = {
    extern "C" fn end() {
        if let Some(lease) = lease() {
            lease.end();
        }
    }
    end
};

/// The lease of this process, if it inherited one.
fn lease() -> Option<&'static Lease> {
    match INHERITED.get()? {
        Inherited::Lease(lease) => Some(lease),
        Inherited::Lost(_) | Inherited::Nothing => None,
    }
}

/// The lease that did not reach this process.
fn lost() -> Option<&'static Lost> {
    match INHERITED.get()? {
        Inherited::Lost(lost) => Some(lost),
        Inherited::Lease(_) | Inherited::Nothing => None,
    }
}

/// libc's own function of that name.
///
/// # Safety
/// `F` is the type of that function, a pointer.
unsafe fn next<F: Copy>(known: &AtomicPtr<c_void>, name: &CStr) -> F {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    let mut address = known.load(Ordering::Relaxed);
    if address.is_null() {
        // SAFETY: looks a name up. Two threads find the same.
        address = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        known.store(address, Ordering::Relaxed);
    }
    if address.is_null() {
        // libc without `open` is none; there is nothing to go on with.
        std::process::abort();
    }
    // SAFETY: a pointer of the size checked above, to what the caller says it is.
    unsafe { std::mem::transmute_copy(&address) }
}

/// A descriptor of the lease for the call that wants the file of a heap; `None`: the kernel's.
///
/// # Safety
/// As for `open(2)`.
unsafe fn answer_open(path: *const c_char, flags: c_int) -> Option<c_int> {
    let here = lease().is_some() || lost().is_some();
    if !here || flags & O_TMPFILE != O_TMPFILE || path.is_null() {
        return None;
    }
    // SAFETY: a string that ends in NUL, as the caller of `open` promises.
    let path = unsafe { CStr::from_ptr(path) };
    let is_for = |heap| match (lease(), lost()) {
        (Some(lease), _) => lease.is_for(heap),
        (None, lost) => lost.is_none_or(|lost| lost.is_for(heap)),
    };
    if !jvm::is_heap(path, is_for) {
        return None;
    }
    if let Some(lost) = lost() {
        lost.missed();
    }
    lease()?.take_as_file()
}

/// One of libc's functions that open files, with the library's in front of it.
macro_rules! opens {
    ($name:ident, $symbol:literal) => {
        /// # Safety
        /// As for `open(2)`; without `O_CREAT` and `O_TMPFILE` the mode may be left out.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            type Open = unsafe extern "C" fn(*const c_char, c_int, mode_t) -> c_int;
            static NEXT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
            // SAFETY: called as this one.
            unsafe { answer_open(path, flags) }.unwrap_or_else(|| {
                // SAFETY: libc's own of this name, called as this one.
                unsafe { next::<Open>(&NEXT, $symbol)(path, flags, mode) }
            })
        }
    };
}

opens!(open, c"open");
opens!(open64, c"open64");

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
    let sharing = flags & (MAP_SHARED | MAP_PRIVATE);
    if let Some(lease) = lease() {
        if sharing == MAP_SHARED && flags & MAP_ANONYMOUS != 0 {
            if let Some(map) = lease.take_as_memory(at, len, protection, flags) {
                return map;
            }
        } else if sharing == MAP_PRIVATE && file >= 0 && lease.is(file) {
            said::PRIVATE.say(
                "the lease is mapped privately: each page that is written is copied, \
                which costs more than no lease; map it MAP_SHARED",
            );
        }
    } else if sharing == MAP_SHARED
        && flags & MAP_ANONYMOUS != 0
        && let Some(lost) = lost().filter(|lost| lost.is_for(len))
    {
        lost.missed();
    }
    if sharing == MAP_SHARED
        && at.is_null()
        && file >= 0
        && let Some(lease) = lease()
        && lease.is(file)
        && let Some(map) = lease.map_at_a_page(len, protection, flags, file, offset)
    {
        return map;
    }
    // SAFETY: the kernel is asked what the caller asked, on its terms.
    let Some(map) = (unsafe { mapping::mmap(at, len, protection, flags, file, offset) }) else {
        return MAP_FAILED;
    };
    if sharing == MAP_SHARED
        && file >= 0
        && let Some(lease) = lease()
        && lease.is(file)
    {
        lease.mapped(map, len);
    }
    map
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

/// Whether that much of this file lies ready, as a lease does. Other modes than this one change a
/// file.
fn is_there(file: c_int, mode: c_int, from: off_t, len: off_t) -> bool {
    let end = from.checked_add(len).filter(|_| mode == 0 && from >= 0 && len > 0);
    end.is_some_and(|end| file >= 0 && lease().is_some_and(|lease| lease.is_whole_up_to(file, end)))
}

/// The functions of libc that reserve a file's space, with the library's in front of them.
macro_rules! reserves {
    ($name:ident, $symbol:literal $(, $mode:ident)?) => {
        /// # Safety
        /// As for libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(file: c_int, $($mode: c_int,)? from: off_t, len: off_t) -> c_int {
            type Reserve =
                unsafe extern "C" fn(c_int, $(reserves!(@int $mode),)? off_t, off_t) -> c_int;
            static NEXT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
            let mode = 0 $(+ $mode)?;
            if is_there(file, mode, from, len) {
                return 0;
            }
            // SAFETY: libc's own of this name, called as this one.
            unsafe { next::<Reserve>(&NEXT, $symbol)(file, $($mode,)? from, len) }
        }
    };
    (@int $mode:ident) => { c_int };
}

reserves!(fallocate, c"fallocate", mode);
reserves!(fallocate64, c"fallocate64", mode);
reserves!(posix_fallocate, c"posix_fallocate");
reserves!(posix_fallocate64, c"posix_fallocate64");

/// # Safety
/// As for `munmap(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(at: *mut c_void, len: size_t) -> c_int {
    let all = lease().and_then(|lease| Some((lease, lease.unmapped(at, len)?)));
    // SAFETY: as the caller was told.
    let mut done = unsafe { mapping::munmap(at, len) };
    if let Some((lease, whole)) = all {
        if done != 0 && len < whole {
            // The program does not know that its memory came in larger pages than it asked for, and the kernel refuses
            // to cut them: so it is the lease that lies there.
            // SAFETY: as the caller was told; the rest is part of the same map.
            done = unsafe { mapping::munmap(at, whole) };
        }
        lease.give_back();
    }
    done
}

/// # Safety
/// As for `madvise(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(at: *mut c_void, len: size_t, advice: c_int) -> c_int {
    if advice == libc::MADV_DONTNEED && lease().is_some_and(|lease| lease.holds(at)) {
        said::DONTNEED.say(
            "MADV_DONTNEED on the lease keeps what is in it, as on all shared memory; \
            MADV_REMOVE clears it",
        );
    }
    // SAFETY: the kernel is asked what the caller asked, on its terms.
    unsafe { mapping::madvise(at, len, advice) }
}

/// # Safety
/// As for `shmget(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shmget(key: key_t, len: size_t, flags: c_int) -> c_int {
    type Get = unsafe extern "C" fn(key_t, size_t, c_int) -> c_int;
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    if lease().is_some_and(|lease| lease.is_for(len)) {
        said::SYSTEM_V.say(
            "System V shared memory is never the lease; PostgreSQL: shared_memory_type = mmap",
        );
    }
    // SAFETY: libc's own of this name, called as this one.
    unsafe { next::<Get>(&NEXT, c"shmget")(key, len, flags) }
}
