//! What a server hears about its lease on standard error, each line once a process.

use prezero_sys::say::Once;

/// Of the lease.
const fn once() -> Once {
    Once::new("prezero: claim: ")
}

pub static LOST: Once = once();
pub static POOL: Once = once();
pub static FULL: Once = once();
pub static FORK: Once = once();
pub static NO_SHM: Once = once();
pub static REGISTER: Once = once();
pub static ELSEWHERE: Once = once();
