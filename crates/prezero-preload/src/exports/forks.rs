//! Children that no handler of a fork hears of: `_Fork`, `clone`, and by their numbers ([`numbered`](super::numbered)).
//!
//! They are copies of the process. What the counters of one begin with is noted, and nothing else is done: the zone
//! sees for itself that it is a child's.

use std::ffi::{c_int, c_long, c_void};

use crate::compat::errno::Errno;
use crate::compat::next;
use crate::process::fork::{self, without_handlers};
use crate::process::report;
use crate::process::shortage::{errno_of, with_task};

/// libc's `_Fork`.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Fork() -> c_int {
    // SAFETY: the caller keeps the contract of `_Fork`.
    with_task(|| without_handlers(|| unsafe { next::_Fork() }.into()) as c_int, errno_of)
}

type Entry = unsafe extern "C" fn(*mut c_void) -> c_int;

/// What the child of a `clone` is to do. The child has a copy of it at the same address.
struct Told {
    entry: Entry,
    argument: *mut c_void,
}

/// libc's `clone`. A child in the same memory is a thread, or as that of a `vfork`.
///
/// # Safety
/// As in libc, which declares the last three only where flags ask for them; all are passed alike.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clone(
    entry: Option<Entry>,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent: *mut c_void,
    tls: *mut c_void,
    child: *mut c_void,
) -> c_int {
    let Some(own) = entry.filter(|_| is_a_copy(flags as u64) && !stack.is_null()) else {
        // SAFETY: the caller keeps the contract of `clone`.
        let call = || unsafe { next::clone(entry, stack, flags, argument, parent, tls, child) };
        return with_task(call, errno_of);
    };
    let mut told = Told { entry: own, argument };
    let told = (&raw mut told).cast();
    // SAFETY: the caller keeps the contract of `clone`; `begin` reads what is told in the child's copy of this frame.
    let call = || unsafe { next::clone(Some(begin), stack, flags, told, parent, tls, child) };
    // Its child does not come back here.
    with_task(|| without_handlers(|| call().into()) as c_int, errno_of)
}

/// The child: libc ends it without a hook when this returns.
///
/// # Safety
/// `told` is a [`Told`] of [`clone`].
unsafe extern "C" fn begin(told: *mut c_void) -> c_int {
    fork::is_a_child();
    // SAFETY: the caller's promise; entry and argument are the program's.
    let status = unsafe {
        let told = &*told.cast::<Told>();
        (told.entry)(told.argument)
    };
    report::at_exit();
    status
}

/// Whether a child with these flags is a copy of the process.
pub fn is_a_copy(flags: u64) -> bool {
    flags & libc::CLONE_VM as u64 == 0
}

/// The system call `clone3`, whose flags are the first word of what it is given.
///
/// # Safety
/// As in the kernel.
pub unsafe fn clone3(given: *mut c_void, len: usize, call: impl Fn() -> c_long) -> c_long {
    let flags = if len >= 8 { readable(given) } else { None };
    if flags.is_some_and(is_a_copy) { without_handlers(call) } else { call() }
}

/// The word at an address of the program's, if there is one: the kernel says so, and raises no signal.
fn readable(at: *mut c_void) -> Option<u64> {
    let mut word = 0u64;
    let to = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: size_of::<u64>() };
    let from = libc::iovec { iov_base: at, iov_len: size_of::<u64>() };
    let errno = Errno::save();
    // SAFETY: the kernel writes to the word, and copes with any other address.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &to, 1, &from, 1, 0) };
    let refused = read < 0 && Errno::save().number() != libc::EFAULT;
    errno.restore();
    if refused && !at.is_null() {
        // SAFETY: a filter refuses the call; the program's promise to `clone3` is that so much can be read.
        return Some(unsafe { at.cast::<u64>().read_unaligned() });
    }
    (read == size_of::<u64>() as isize).then_some(word)
}
