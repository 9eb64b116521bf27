//! The `prezero_pool_*` functions: `prezero_core::Pool` by addresses. `prezero.h` is their manual.
//!
//! They need nothing of the zone: a pool is there too where the library stands aside.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::slice;

use prezero_core::Pool;

use crate::compat::errno::Errno;
use crate::compat::message::Line;

/// `struct prezero_range`: bytes of a slot, the last not included.
#[repr(C)]
pub struct Part {
    first: usize,
    end: usize,
}

/// A pool and its thread, or null and `errno`.
#[unsafe(no_mangle)]
pub extern "C" fn prezero_pool_new(slots: usize, bytes: usize, guard: usize) -> *mut Pool {
    let errno = Errno::save();
    match Pool::new(slots, bytes, guard) {
        Ok(pool) => {
            errno.restore();
            Box::into_raw(Box::new(pool))
        }
        Err(error) => {
            Errno::set(error.raw_os_error().unwrap_or(libc::ENOMEM));
            ptr::null_mut()
        }
    }
}

/// A slot that is zero, or null.
///
/// # Safety
/// `pool` is one of [`prezero_pool_new`] that was not destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prezero_pool_take(pool: *mut Pool) -> *mut c_void {
    let errno = Errno::save();
    // SAFETY: the caller's promise.
    let slot = unsafe { &*pool }.take();
    let slot = slot.map_or(ptr::null_mut(), |slot| slot.into_raw().as_ptr().cast());
    errno.restore();
    slot
}

/// Takes a slot back; the kernel is asked what was written.
///
/// # Safety
/// As for [`prezero_pool_take`]; and nothing uses the slot any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prezero_pool_give(pool: *mut Pool, slot: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { give("prezero_pool_give", pool, slot, None) }
}

/// Takes a slot back of which these parts alone were written.
///
/// # Safety
/// As for [`prezero_pool_give`]; `parts` has `many`, and all other bytes of the slot are zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prezero_pool_give_written(
    pool: *mut Pool,
    slot: *mut c_void,
    parts: *const Part,
    many: usize,
) {
    // SAFETY: the caller's promise; of no part there may be no address.
    let parts = if many > 0 { unsafe { slice::from_raw_parts(parts, many) } } else { &[] };
    // SAFETY: the caller's promise.
    unsafe { give("prezero_pool_give_written", pool, slot, Some(parts)) }
}

/// # Safety
/// As for the two above.
unsafe fn give(function: &str, pool: *mut Pool, slot: *mut c_void, written: Option<&[Part]>) {
    let Some(address) = NonNull::new(slot.cast()) else { return };
    let errno = Errno::save();
    // SAFETY: the caller's promise: the slot comes back once.
    let (pool, slot) = unsafe { (&*pool, (*pool).slot_at(address)) };
    let Some(slot) = slot else {
        let why = "is not the start of a slot that is out (another pool's, or given twice)";
        Line::fatal(format_args!("prezero: {function}(): {address:p} {why}"))
    };
    let bytes = pool.slot_bytes();
    let within = |part: &Part| part.first.min(part.end).min(bytes)..part.end.min(bytes);
    match written {
        // SAFETY: the caller's promise.
        Some(parts) => unsafe { pool.give(slot, parts.iter().map(within)) },
        None => drop(slot),
    }
    errno.restore();
}

/// Ends a pool. Null is ignored.
///
/// # Safety
/// As for [`prezero_pool_take`]; and nothing uses the pool or a slot of it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prezero_pool_destroy(pool: *mut Pool) {
    let errno = Errno::save();
    if !pool.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(pool) });
    }
    errno.restore();
}
