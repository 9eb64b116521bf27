//! Whether the malloc family is one whole.
//!
//! An allocator knows its own blocks alone, so none is asked about the block of another. A tracker of allocations may
//! define some of these functions, keep a size in front of each block, and leave the other functions to libc. So it is
//! looked at once which objects define what the program calls, and what lies behind this library. Where the program calls
//! another function than this library's, or what lies behind is of several objects, the library stands aside: blocks go
//! from the one to the other as they would without it.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use prezero_sys::objects;

use super::company;

/// What other allocators define, apart from what is obsolete.
pub(super) const FAMILY: [&CStr; 8] = [
    c"malloc",
    c"calloc",
    c"realloc",
    c"free",
    c"memalign",
    c"aligned_alloc",
    c"posix_memalign",
    c"malloc_usable_size",
];

static IS_WHOLE: AtomicBool = AtomicBool::new(true);
static IS_GLIBCS: AtomicBool = AtomicBool::new(false);

/// Whether the program's functions are this library's, and those behind it one other object's.
pub fn is_whole() -> bool {
    IS_WHOLE.load(Relaxed)
}

/// Whether the next allocator is glibc's.
pub fn is_glibcs() -> bool {
    IS_GLIBCS.load(Relaxed)
}

/// Looks at the functions behind this library, in the order of [`FAMILY`], and at the program's: the first that there are.
pub(super) fn look(behind: [*mut c_void; FAMILY.len()]) {
    let programs = objects_of(FAMILY.map(|name| company::look_up(libc::RTLD_DEFAULT, name)));
    let [here, glibc] = objects_of([look as *mut c_void, company::glibc()]);
    let behind = objects_of(behind);
    let ours = programs.iter().all(|object| *object == here);
    IS_WHOLE.store(ours && behind.iter().all(|object| *object == behind[0]), Relaxed);
    IS_GLIBCS.store(glibc.is_some() && behind.iter().all(|object| *object == glibc), Relaxed);
}

/// Where the object begins that each address lies in.
fn objects_of<const N: usize>(addresses: [*mut c_void; N]) -> [Option<usize>; N] {
    let mut places = [None; N];
    objects::find(|object| {
        for (place, address) in places.iter_mut().zip(addresses) {
            if object.has(libc::PT_LOAD, address.addr()) {
                *place = Some(object.base);
            }
        }
        false
    });
    places
}
