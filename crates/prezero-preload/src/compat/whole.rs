//! Whether the malloc family is one whole.
//!
//! An allocator knows its own blocks alone, so none is asked about the block of another. A tracker of allocations may
//! define some of these functions, keep a size in front of each block, and leave the other functions to libc. So it is
//! looked at once which objects define what the program calls, and what lies behind this library. Where the program calls
//! another function than this library's, or what lies behind is of several objects, the library stands aside: blocks go
//! from the one to the other as they would without it.

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use libc::Elf64_Sym;
use prezero_sys::objects;

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

/// Looks at the functions behind this library, in the order of [`FAMILY`], and at the program's. `glibc`: an address
/// in it, or null.
pub(super) fn look(behind: [*mut c_void; FAMILY.len()], glibc: *mut c_void) {
    // The dynamic linker knows, where the compiler must not.
    let programs: [*const c_void; FAMILY.len()] = std::hint::black_box([
        libc::malloc as *const c_void,
        libc::calloc as *const c_void,
        libc::realloc as *const c_void,
        libc::free as *const c_void,
        libc::memalign as *const c_void,
        libc::aligned_alloc as *const c_void,
        libc::posix_memalign as *const c_void,
        libc::malloc_usable_size as *const c_void,
    ]);
    let [here, glibc] = objects_of([look as *const c_void, glibc.cast_const()]);
    let behind = objects_of(behind.map(<*mut c_void>::cast_const));
    let objects = objects_of(programs);
    // What a program that lies at a fixed place knows of another's function is an address in itself.
    let is_known = |(object, address): &(&usize, _)| **object != PROGRAM || !is_imported(*address);
    let mut known = objects.iter().zip(programs).filter(is_known);
    let ours = known.all(|(object, _)| *object == here);
    IS_WHOLE.store(ours && behind.iter().all(|object| *object == behind[0]), Relaxed);
    IS_GLIBCS.store(glibc != NONE && behind.iter().all(|object| *object == glibc), Relaxed);
}

/// The number of the program itself among the objects, and of none.
const PROGRAM: usize = 0;
const NONE: usize = usize::MAX;

/// The number of the object that each address lies in.
fn objects_of<const N: usize>(addresses: [*const c_void; N]) -> [usize; N] {
    let mut places = [NONE; N];
    let mut number = PROGRAM;
    objects::find(|object| {
        for (place, address) in places.iter_mut().zip(addresses) {
            if object.has(libc::PT_LOAD, address.addr()) {
                *place = number;
            }
        }
        number += 1;
        false
    });
    places
}

/// Whether an address of the program stands for a function that is another object's, as far as the linker says.
fn is_imported(address: *const c_void) -> bool {
    type Find = unsafe extern "C" fn(
        *const c_void,
        *mut libc::Dl_info,
        *mut *const Elf64_Sym,
        c_int,
    ) -> c_int;
    const SYMBOL: c_int = 1;
    let (mut found, mut symbol) = (MaybeUninit::<libc::Dl_info>::uninit(), ptr::null());
    // SAFETY: the name ends in NUL; glibc's function of that name has this type, and answers with a symbol of an object
    // that stays.
    unsafe {
        let find = libc::dlsym(libc::RTLD_DEFAULT, c"dladdr1".as_ptr());
        if find.is_null() {
            return true;
        }
        let find = std::mem::transmute::<*mut c_void, Find>(find);
        find(address, found.as_mut_ptr(), &raw mut symbol, SYMBOL);
        symbol.as_ref().is_none_or(|symbol| symbol.st_shndx == 0)
    }
}
