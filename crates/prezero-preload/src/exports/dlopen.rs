//! `dlopen` and `dlmopen` with `RTLD_DEEPBIND`: the library finds its own names first, and this `malloc`.
//!
//! A library that is opened with that flag finds libc's own `malloc` and `free` before this one's. The rest of the program,
//! libc's `getline` and `strdup` included, allocates here, so its `free` would end the program at the first large
//! block that it did not allocate itself. So such a library is opened, and what it found of libc's is changed for
//! this library's functions of that name ([`deep`](super::deep)). What it brings itself stays its own.
//!
//! libc's functions look at the return address: the caller's `RUNPATH`, place and namespace count. An open without the flag
//! is therefore no more than a detour on the way to them, which cannot be written in Rust. One with the flag is made from
//! here, in the folders in which the [caller](super::caller) would look. Where there is to be no zone each call goes on
//! as it is. So does `dlmopen` into a namespace of its own, which has a libc of its own, too.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_long, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::caller::Caller;
use super::deep;
use crate::process;

/// libc's `dlopen`, from the first call on.
static NEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// libc's `dlmopen`, likewise.
static NEXT_INTO: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// The namespace of the program.
const BASE: c_long = 0;

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

/// libc's `dlmopen`.
///
/// # Safety
/// As in libc.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlmopen(
    namespace: c_long,
    path: *const c_char,
    flags: c_int,
) -> *mut c_void {
    std::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "mov rcx, [rsp + 24]",
        "call {open_into}",
        "cmp rdx, {go_on}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "je 2f",
        "ret",
        "2: jmp qword ptr [rip + {next}]",
        open_into = sym open_into,
        next = sym NEXT_INTO,
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
    look_up(&NEXT, c"dlopen");
    // SAFETY: the caller keeps the contract of `open`: a path or null, and the caller's return address.
    unsafe { open_deeply(path, flags, caller) }
}

/// The same for `dlmopen`, into the program's namespace.
unsafe extern "C" fn open_into(
    namespace: c_long,
    path: *const c_char,
    flags: c_int,
    caller: *const c_void,
) -> Opened {
    look_up(&NEXT_INTO, c"dlmopen");
    look_up(&NEXT, c"dlopen");
    if namespace != BASE {
        return Opened { handle: ptr::null_mut(), way: GO_ON };
    }
    // SAFETY: the caller keeps the contract of `open_into`: a path or null, and the caller's return address.
    unsafe { open_deeply(path, flags, caller) }
}

/// Fills in libc's function of that name.
fn look_up(slot: &AtomicPtr<c_void>, name: &CStr) {
    if slot.load(Ordering::Relaxed).is_null() {
        // SAFETY: the name ends in NUL; RTLD_NEXT searches behind this library.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        let none: extern "C" fn() -> *mut c_void = opens_nothing;
        slot.store(if found.is_null() { none as *mut c_void } else { found }, Ordering::Relaxed);
    }
}

unsafe fn open_deeply(path: *const c_char, flags: c_int, caller: *const c_void) -> Opened {
    let go_on = Opened { handle: ptr::null_mut(), way: GO_ON };
    if flags & libc::RTLD_DEEPBIND == 0 || path.is_null() || !process::may_have_zone() {
        return go_on;
    }
    // SAFETY: the caller keeps the contract of `open_deeply`: a string that ends in NUL.
    let name = unsafe { CStr::from_ptr(path) };
    let bytes = name.to_bytes();
    // SAFETY: the caller's return address; its object stays loaded meanwhile.
    let caller = || unsafe { Caller::at(caller) };
    let handle = if !bytes.contains(&b'/') {
        by_name(name, flags, caller())
    } else if !bytes.contains(&b'$') {
        next(name, flags)
    } else if let Some(name) = caller().and_then(|caller| caller.expands(bytes)) {
        next(&name, flags)
    } else {
        return go_on;
    };
    if !handle.is_null() {
        deep::lead_here(handle);
    }
    Opened { handle, way: 0 }
}

/// libc's `dlopen`, called from here.
pub(super) fn next(path: &CStr, flags: c_int) -> *mut c_void {
    type Function = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
    // SAFETY: `look_up` stored libc's function of this type; a string that ends in NUL.
    unsafe {
        std::mem::transmute::<*mut c_void, Function>(NEXT.load(Ordering::Relaxed))(
            path.as_ptr(),
            flags,
        )
    }
}

/// Opens a library that has no path: if it is not there yet, from where its caller's are.
fn by_name(name: &CStr, flags: c_int, caller: Option<Caller>) -> *mut c_void {
    let present = next(name, flags | libc::RTLD_NOLOAD);
    if !present.is_null() {
        return present;
    }
    let file = Path::new(OsStr::from_bytes(name.to_bytes()));
    for folder in caller.map(|caller| caller.folders()).unwrap_or_default() {
        let file = folder.join(file);
        // Not by libc: another preloaded library may hook its calls, and wait for the lock that it holds around this one.
        if accessat(CWD, &file, Access::EXISTS, AtFlags::empty()).is_ok()
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

/// Stands in where no library behind this one opens others.
extern "C" fn opens_nothing() -> *mut c_void {
    ptr::null_mut()
}
