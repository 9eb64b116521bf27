//! The JVM's own door: the open by which it makes the file of its heap.
//!
//! A JVM with `-XX:AllocateHeapAt=DIR` opens `DIR` with `O_TMPFILE`. The lease answers that call of a
//! process that has loaded `libjvm.so` and was told `DIR`, and no other: `O_TMPFILE` is how many
//! programs make their temporary files.

use std::ffi::{CStr, c_int, c_void};

use prezero_host::jvm::{Around, Options};

/// Whether this process asks for the file of a JVM's heap that the lease `is_for`: start scripts run
/// others before, which tell their version or have a small heap.
pub fn is_heap(directory: &CStr, is_for: impl Fn(usize) -> bool) -> bool {
    let Ok(directory) = directory.to_str() else { return false };
    if !is_jvm() {
        return false;
    }
    let told = told();
    told.last("-XX:AllocateHeapAt=").is_some_and(|(told, _)| told == directory)
        && !told.only_tells()
        && told.heap().is_none_or(is_for)
}

/// What this process was told as a JVM.
fn told() -> Options {
    let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let line = String::from_utf8_lossy(&line);
    let around = Around {
        variable: &|name| std::env::var(name).ok(),
        file: &|path| std::fs::read_to_string(path).ok(),
    };
    Options::read(line.split('\0').skip(1), &around)
}

/// Whether `libjvm.so` is loaded: by `java`, or by a launcher of another name.
fn is_jvm() -> bool {
    extern "C" fn look(object: *mut libc::dl_phdr_info, _size: usize, found: *mut c_void) -> c_int {
        // SAFETY: the linker's description of an object, for the time of this call.
        let name = unsafe { (*object).dlpi_name };
        if name.is_null() {
            return 0;
        }
        // SAFETY: a name that ends in NUL, of the same description.
        let is_jvm = unsafe { CStr::from_ptr(name) }.to_bytes().ends_with(b"/libjvm.so");
        // SAFETY: the `bool` below, which outlives the call and has no other user.
        unsafe { *found.cast::<bool>() |= is_jvm };
        c_int::from(is_jvm)
    }
    let mut found = false;
    // SAFETY: `look` is called in this call alone, with a pointer to `found`.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    found
}
