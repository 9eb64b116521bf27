//! The thread that makes free memory zero.

use crate::mem::backing::Backing;
use crate::zone::Zone;
use prezero_sys::thread::{Pthread, Spawner};

pub(crate) mod ctl;
pub(crate) mod scrub;
pub(crate) mod this_thread;
pub(crate) mod thread;

/// Lets a zone start its scrubd, a `pthread`, when there is something to do. Without it the
/// zone clears nothing ahead and gives nothing back by itself.
pub fn allow_scrubd<B: Backing + 'static>(zone: &'static Zone<B>) {
    allow_scrubd_by(zone, &Pthread);
}

/// The same, with a thread that `spawner` makes. The first spawner that a zone is given stays.
#[allow(unsafe_code)]
pub fn allow_scrubd_by<B: Backing + 'static>(
    zone: &'static Zone<B>,
    spawner: &'static dyn Spawner,
) {
    zone.pool.expect_limit();
    let this = std::ptr::from_ref(zone).cast_mut().cast();
    // SAFETY: the zone is never dropped, and `run::<B>` expects a `Zone<B>`.
    unsafe { zone.waker.allow(this, thread::run::<B>, spawner) };
}
