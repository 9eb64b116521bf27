//! `dlopen` with `RTLD_DEEPBIND`: the library finds its own names first, and this `malloc`.
//!
//! A library that is opened with that flag finds libc's own `malloc` and `free` before this one's. The rest of the program,
//! libc's `getline` and `strdup` included, allocates here, so its `free` would end the program at the first large
//! block that it did not allocate itself. So such a library is opened, and what it found of libc's is changed for
//! this library's functions of that name ([`deep`](super::deep)). What it brings itself stays its own.
//!
//! libc's function looks at the return address: the caller's `RUNPATH` and namespace count. An open without the flag
//! is therefore no more than a detour on the way to it, which cannot be written in Rust. One with the flag is made from
//! here, in the folders in which the caller would look. Where there is to be no zone each call goes on as it is.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_uint, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::deep;
use crate::process;

/// libc's, from the first call on.
static NEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// libc's `dlopen`.
///
/// # Safety
/// As in libc.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    std::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "mov rdx, [rsp + 16]",
        "sub rsp, 8",
        "call {open}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "cmp rdx, {go_on}",
        "je 2f",
        "ret",
        "2: jmp qword ptr [rip + {next}]",
        open = sym open,
        next = sym NEXT,
        go_on = const GO_ON,
    )
}

const GO_ON: usize = 1;

/// What [`open`] did: in two registers.
#[repr(C)]
struct Opened {
    handle: *mut c_void,
    /// [`GO_ON`]: libc is to be called as this function was.
    way: usize,
}

/// Opens what is opened deeply. libc's function is known after that.
unsafe extern "C" fn open(path: *const c_char, flags: c_int, caller: *const c_void) -> Opened {
    let go_on = Opened { handle: ptr::null_mut(), way: GO_ON };
    if NEXT.load(Ordering::Relaxed).is_null() {
        // SAFETY: the name ends in NUL; RTLD_NEXT searches behind this library.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"dlopen".as_ptr()) };
        let none: extern "C" fn() -> *mut c_void = opens_nothing;
        NEXT.store(if found.is_null() { none as *mut c_void } else { found }, Ordering::Relaxed);
    }
    if flags & libc::RTLD_DEEPBIND == 0 || path.is_null() || !process::may_have_zone() {
        return go_on;
    }
    // SAFETY: the caller's terms: a string that ends in NUL.
    let name = unsafe { CStr::from_ptr(path) };
    let bytes = name.to_bytes();
    let handle = if bytes.contains(&b'$') {
        // A place that is said relative to the caller.
        return go_on;
    } else if bytes.contains(&b'/') {
        next(name, flags)
    } else {
        // SAFETY: the caller's return address.
        unsafe { by_name(name, flags, caller) }
    };
    if !handle.is_null() {
        deep::lead_here(handle);
    }
    Opened { handle, way: 0 }
}

/// libc's `dlopen`, called from here.
pub(super) fn next(path: &CStr, flags: c_int) -> *mut c_void {
    type Function = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
    // SAFETY: `open` stored libc's function of this type; a string that ends in NUL.
    unsafe {
        std::mem::transmute::<*mut c_void, Function>(NEXT.load(Ordering::Relaxed))(
            path.as_ptr(),
            flags,
        )
    }
}

/// Opens a library that has no path: if it is not there yet, from where its caller's are.
///
/// # Safety
/// The caller's return address.
unsafe fn by_name(name: &CStr, flags: c_int, caller: *const c_void) -> *mut c_void {
    let present = next(name, flags | libc::RTLD_NOLOAD);
    if !present.is_null() {
        return present;
    }
    let file = Path::new(OsStr::from_bytes(name.to_bytes()));
    // SAFETY: the caller's promise.
    for folder in unsafe { folders_of(caller) } {
        let file = folder.join(file);
        if file.exists()
            && let Ok(file) = CString::new(file.into_os_string().into_encoded_bytes())
        {
            let handle = next(&file, flags);
            if !handle.is_null() {
                return handle;
            }
        }
    }
    next(name, flags)
}

/// glibc's `Dl_serinfo`, with the first of its folders.
#[repr(C)]
struct SearchInfo {
    size: usize,
    count: c_uint,
    first: SearchPath,
}

#[repr(C)]
struct SearchPath {
    name: *const c_char,
    flags: c_uint,
}

/// Where the library (or program) at an address looks for those that it opens by name.
///
/// # Safety
/// An address in an object that stays loaded meanwhile.
unsafe fn folders_of(address: *const c_void) -> Vec<PathBuf> {
    type Address =
        unsafe extern "C" fn(*const c_void, *mut libc::Dl_info, *mut *mut c_void, c_int) -> c_int;
    type Info = unsafe extern "C" fn(*mut c_void, c_int, *mut c_void) -> c_int;
    const SEARCH: c_int = 4;
    const SEARCH_SIZE: c_int = 5;
    const LINK_MAP: c_int = 2;
    // SAFETY: the names end in NUL.
    let find = |name: &CStr| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    let (dladdr1, dlinfo) = (find(c"dladdr1"), find(c"dlinfo"));
    if dladdr1.is_null() || dlinfo.is_null() {
        return Vec::new();
    }
    let mut found = MaybeUninit::<libc::Dl_info>::uninit();
    let mut object = ptr::null_mut();
    let mut size =
        SearchInfo { size: 0, count: 0, first: SearchPath { name: ptr::null(), flags: 0 } };
    // SAFETY: glibc's functions of those names have these types. The first answers with the object, which is a handle too;
    // the second writes the head of the structure, and then as many bytes as that says.
    unsafe {
        let dladdr1 = std::mem::transmute::<*mut c_void, Address>(dladdr1);
        let dlinfo = std::mem::transmute::<*mut c_void, Info>(dlinfo);
        if dladdr1(address, found.as_mut_ptr(), &raw mut object, LINK_MAP) == 0
            || object.is_null()
            || dlinfo(object, SEARCH_SIZE, (&raw mut size).cast()) != 0
        {
            return Vec::new();
        }
        let mut room = vec![0u64; size.size.div_ceil(8).max(size_of::<SearchInfo>() / 8)];
        let info = room.as_mut_ptr().cast::<SearchInfo>();
        (*info).size = size.size;
        (*info).count = size.count;
        if dlinfo(object, SEARCH, info.cast()) != 0 {
            return Vec::new();
        }
        let first = (&raw const (*info).first).cast::<SearchPath>();
        (0..(*info).count as usize)
            .map(|index| CStr::from_ptr((*first.add(index)).name).to_bytes())
            .map(|name| PathBuf::from(OsStr::from_bytes(name)))
            .collect()
    }
}

/// Stands in where no library behind this one opens others.
extern "C" fn opens_nothing() -> *mut c_void {
    ptr::null_mut()
}
