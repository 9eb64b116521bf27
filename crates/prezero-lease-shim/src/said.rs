//! What goes wrong with a lease, said once on standard error.

use prezero_sys::say::Once;

/// Of the lease.
const fn once() -> Once {
    Once::new("prezero: claim: ")
}

pub static PRIVATE: Once = once();
pub static DONTNEED: Once = once();
pub static TOO_LARGE: Once = once();
pub static LOST: Once = once();
pub static GIVEN_BACK: Once = once();
pub static SYSTEM_V: Once = once();
pub static UNUSED: Once = once();
