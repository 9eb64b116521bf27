//! The `prezero_*` functions, for programs that know this library. `prezero.h` is their manual.
//!
//! Blocks go to and fro between these functions and the malloc family that the program calls, be it this library's or not.

use std::ffi::{c_char, c_int, c_void};
use std::fmt::{self, Write};
use std::ptr;

use prezero_core::{Heap, Use};

use super::family::{calloc, calloc_for, free, malloc, release_zeroed};
use super::the_programs;
use crate::compat::errno::Errno;
use crate::compat::whole;
use crate::process;

/// As `malloc`.
#[unsafe(no_mangle)]
pub extern "C" fn prezero_alloc(size: usize) -> *mut c_void {
    // SAFETY: any size may be asked for.
    unsafe { the_programs(malloc as unsafe extern "C" fn(_) -> _)(size) }
}

/// As `calloc(1, size)`.
#[unsafe(no_mangle)]
pub extern "C" fn prezero_zalloc(size: usize) -> *mut c_void {
    // SAFETY: any size may be asked for.
    unsafe { the_programs(calloc as unsafe extern "C" fn(usize, _) -> _)(1, size) }
}

/// As `calloc(1, size)`, for a caller that knows what it does with the block first: a value of
/// `enum prezero_use`; any other says nothing.
#[unsafe(no_mangle)]
pub extern "C" fn prezero_zalloc_for(size: usize, first_use: c_int) -> *mut c_void {
    if !whole::is_whole() {
        return prezero_zalloc(size);
    }
    let first_use = if first_use == 1 { Use::Sparse } else { Use::Unknown };
    // SAFETY: any size may be asked for.
    unsafe { calloc_for(1, size, first_use) }
}

/// Memory that is zero already and resident, or null.
#[unsafe(no_mangle)]
pub extern "C" fn prezero_try_zalloc(size: usize) -> *mut c_void {
    if size < process::threshold() || !whole::is_whole() {
        return ptr::null_mut();
    }
    let block = process::heap_for(size).and_then(|heap| heap.zeroed_already(size));
    block.map_or(ptr::null_mut(), |block| block.as_ptr().cast())
}

/// As `free`.
///
/// # Safety
/// `ptr` is null or a block that this library or the malloc family handed out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prezero_free(ptr: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { the_programs(free as unsafe extern "C" fn(_))(ptr) }
}

/// As `free`, for a block whose every byte (of its usable size) is zero.
///
/// # Safety
/// As for [`prezero_free`]; and the block is zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prezero_free_zeroed(ptr: *mut c_void) {
    match process::owner(ptr).filter(|_| whole::is_whole()) {
        // SAFETY: the caller's promise.
        Some(heap) => unsafe { release_zeroed(heap, ptr) },
        // SAFETY: the caller's promise.
        None => unsafe { prezero_free(ptr) },
    }
}

/// Writes the statistics as one JSON object and a NUL, cut to fit; returns the length
/// of the whole text, as `snprintf` does.
///
/// # Safety
/// `buffer` takes `size` bytes, or `size` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prezero_stats_json(buffer: *mut c_char, size: usize) -> c_int {
    let (errno, _floats) = (Errno::save(), prezero_sys::thread::Floats::defaults());
    let snapshot = process::ready().map(Heap::snapshot).unwrap_or_default();
    let mut text = Cut { buffer: buffer.cast(), room: size.saturating_sub(1), len: 0 };
    let _ = prezero_report::write_json(&snapshot, &Default::default(), &mut text);
    if size > 0 {
        // SAFETY: at most `size - 1` bytes were written before it.
        unsafe { buffer.add(text.len.min(text.room)).write(0) };
    }
    errno.restore();
    text.len.try_into().unwrap_or(c_int::MAX)
}

/// As much of a text as fits, and how long it was.
struct Cut {
    buffer: *mut u8,
    room: usize,
    len: usize,
}

impl Write for Cut {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let fits = text.len().min(self.room.saturating_sub(self.len));
        if fits > 0 {
            // SAFETY: len + fits <= room, which the caller's buffer has.
            unsafe { ptr::copy_nonoverlapping(text.as_ptr(), self.buffer.add(self.len), fits) };
        }
        self.len += text.len();
        Ok(())
    }
}
