//! Changes of the process's user, groups, namespaces and root.
//!
//! To the kernel these belong to each thread. libc changes those that it knows of, and scrubd is
//! not one of them: it would stay root in a process that is not root any more, or outside of its root.
//! The kernel changes namespaces for a process with one thread only, or for one thread alone. So
//! scrubd ends before such a call, and another starts when there is something to do.

use std::ffi::{c_char, c_int};

use prezero_core::internal::Change;
use prezero_sys::sandbox;

use crate::compat::next;
use crate::process::{self, confine, root};

/// To unshare any of these is a matter of each thread, or of the only one. Namespaces for children
/// alone are not among them: after a `CLONE_NEWPID` no thread can be made any more, so the scrubd that
/// there is stays.
const OF_EACH_THREAD: c_int = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_THREAD
    | libc::CLONE_SIGHAND
    | libc::CLONE_VM;

/// Makes the call while there is no scrubd.
pub(super) fn alone<R>(change: Change, call: impl FnOnce() -> R) -> R {
    match process::ready() {
        // It has none.
        Some(_) if sandbox::is_confined() => call(),
        Some(heap) => heap.zone().without_scrubd(change, call),
        None => call(),
    }
}

macro_rules! of_each_thread {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*), $change:ident;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As in libc.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
                // SAFETY: the caller keeps the contract of `alone`.
                alone(Change::$change, || unsafe { next::$name($($arg),*) })
            }
        )*
    };
}

of_each_thread! {
    /// libc's `setuid`.
    setuid(user: u32), Rights;
    /// libc's `setgid`.
    setgid(group: u32), Rights;
    /// libc's `seteuid`.
    seteuid(user: u32), Rights;
    /// libc's `setegid`.
    setegid(group: u32), Rights;
    /// libc's `setreuid`.
    setreuid(real: u32, effective: u32), Rights;
    /// libc's `setregid`.
    setregid(real: u32, effective: u32), Rights;
    /// libc's `setresuid`.
    setresuid(real: u32, effective: u32, saved: u32), Rights;
    /// libc's `setresgid`.
    setresgid(real: u32, effective: u32, saved: u32), Rights;
    /// libc's `setgroups`.
    setgroups(count: usize, groups: *const u32), Rights;
    /// libc's `initgroups`.
    initgroups(user: *const c_char, group: u32), Rights;
}

/// Makes a call that changes the root.
pub(super) fn change_root(call: impl FnOnce() -> isize) -> isize {
    let answer = alone(Change::View, call);
    if answer == 0 {
        root::has_changed();
    }
    answer
}

/// Makes a call that enters a namespace of that kind.
pub(super) fn enter(kind: c_int, call: impl FnOnce() -> isize) -> isize {
    // No kind: whatever the file is of.
    if kind == 0 || kind & libc::CLONE_NEWPID != 0 {
        confine::child_is_special();
    }
    if kind == libc::CLONE_NEWPID { call() } else { alone(Change::View, call) }
}

/// Makes a call that leaves what is shared.
pub(super) fn leave(what: c_int, call: impl FnOnce() -> isize) -> isize {
    if what & libc::CLONE_NEWPID != 0 {
        confine::child_is_special();
    }
    if what & OF_EACH_THREAD == 0 { call() } else { alone(Change::View, call) }
}
