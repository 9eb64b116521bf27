//! Address space that the zone has and the program needs, where that is limited.
//!
//! Under `RLIMIT_AS` or `RLIMIT_DATA` these functions stand before the next ones of their names. Where the next one finds no
//! room, the zone unmaps what it has free and reaches no further, and the next one is called again. A program without such a
//! limit does not pay: [`next`] calls what is in its slots.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::ready_and_own;
use crate::compat::errno::Errno;
use crate::compat::next::{self, Start};

type Address = *mut c_void;

macro_rules! with_space {
    ($($name:ident($($arg:ident: $type:ty),*) -> $ret:ty, $lacks:expr;)*) => {
        struct Next { $($name: AtomicPtr<c_void>,)* }

        static NEXT: Next = Next { $($name: AtomicPtr::new(std::ptr::null_mut()),)* };

        $(unsafe extern "C" fn $name($($arg: $type),*) -> $ret {
            type Function = unsafe extern "C" fn($($type),*) -> $ret;
            // SAFETY: `begins` stored the next function of this name before it put this one before it; the caller keeps
            // its contract, and a call that found no room has changed nothing.
            with_space(|| unsafe {
                let next = NEXT.$name.load(Ordering::Acquire);
                std::mem::transmute::<*mut c_void, Function>(next)($($arg),*)
            }, $lacks)
        })*

        /// The process has a limit of address space: what its calls find no room for is asked for again.
        #[inline(never)]
        pub fn begins() {
            static BEGUN: AtomicBool = AtomicBool::new(false);
            if !BEGUN.swap(true, Ordering::Relaxed) {
                $(next::put_before(stringify!($name), $name as *mut c_void, &NEXT.$name);)*
            }
        }
    };
}

with_space! {
    malloc(size: usize) -> Address, is_null;
    calloc(count: usize, size: usize) -> Address, is_null;
    realloc(block: Address, size: usize) -> Address, is_null;
    aligned_alloc(align: usize, size: usize) -> Address, is_null;
    memalign(align: usize, size: usize) -> Address, is_null;
    valloc(size: usize) -> Address, is_null;
    pvalloc(size: usize) -> Address, is_null;
    posix_memalign(out: *mut Address, align: usize, size: usize) -> c_int, is_error;
    mmap(at: Address, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> Address, is_failed;
    mremap(at: Address, old: usize, new: usize, flags: c_int, to: Address) -> Address, is_failed;
    mprotect(at: Address, len: usize, prot: c_int) -> c_int, is_error;
    shmat(id: c_int, at: *const c_void, flags: c_int) -> Address, is_failed;
    pthread_create(thread: Address, how: *const c_void, entry: Start, with: Address) -> c_int, is_error;
}

fn is_null(answer: &Address) -> bool {
    answer.is_null() && Errno::save().number() == libc::ENOMEM
}

fn is_failed(answer: &Address) -> bool {
    *answer == libc::MAP_FAILED && Errno::save().number() == libc::ENOMEM
}

/// Of what answers with an error's number, or -1 and `errno`.
fn is_error(answer: &c_int) -> bool {
    let error = if *answer < 0 { Errno::save().number() } else { *answer };
    matches!(error, libc::ENOMEM | libc::EAGAIN)
}

fn with_space<R>(call: impl Fn() -> R, lacks: impl Fn(&R) -> bool) -> R {
    let before = Errno::save();
    let answer = call();
    if !lacks(&answer) {
        return answer;
    }
    let Some(heap) = ready_and_own() else { return answer };
    let error = Errno::save();
    // SAFETY: every export that is given an address asks `Heap::is_unmapped` first.
    unsafe { heap.zone().shrink(0) };
    before.restore();
    let answer = call();
    if lacks(&answer) {
        error.restore();
    }
    answer
}
