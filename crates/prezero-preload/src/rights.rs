//! Changes of the process's user and groups.
//!
//! To the kernel these belong to each thread, so libc signals every thread to change its own and
//! waits until all have. scrubd, of the idle class, may not run for a second where all CPUs are
//! busy. Who may change them at will may hurry it as well.

use std::ffi::c_int;

use crate::{next, process};

macro_rules! answered_by_all {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*);)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As in libc.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
                let zone = process::ready().map(|process| process.heap.zone());
                if let Some(zone) = zone {
                    zone.before_all_threads();
                }
                // SAFETY: the caller's terms.
                let answer = unsafe { next::$name($($arg),*) };
                if let Some(zone) = zone {
                    zone.after_all_threads();
                }
                answer
            }
        )*
    };
}

answered_by_all! {
    /// libc's `setuid`.
    setuid(user: u32);
    /// libc's `setgid`.
    setgid(group: u32);
    /// libc's `seteuid`.
    seteuid(user: u32);
    /// libc's `setegid`.
    setegid(group: u32);
    /// libc's `setreuid`.
    setreuid(real: u32, effective: u32);
    /// libc's `setregid`.
    setregid(real: u32, effective: u32);
    /// libc's `setresuid`.
    setresuid(real: u32, effective: u32, saved: u32);
    /// libc's `setresgid`.
    setresgid(real: u32, effective: u32, saved: u32);
    /// libc's `setgroups`.
    setgroups(count: usize, groups: *const u32);
}
