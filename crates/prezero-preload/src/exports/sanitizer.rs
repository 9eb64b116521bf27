//! What `AddressSanitizer` asks the program.
//!
//! Its runtime refuses to start behind a preloaded library, unless told otherwise. The program's own answer comes first: the
//! dynamic linker finds it before this one.

use std::ffi::c_char;

/// Options of the runtime.
#[unsafe(no_mangle)]
pub extern "C" fn __asan_default_options() -> *const c_char {
    c"verify_asan_link_order=0".as_ptr()
}
