//! What prezero holds that the program may need, and how the program gets it.
//!
//! The program's call fails first. What prezero holds is given up then, and the call made again.
//!
//! | held | given up by | calls that are made again |
//! |---|---|---|
//! | a task: scrubd | its end, for as long as the process lives | those that make a process or a thread (`EAGAIN`) |
//! | address space: what the zone has free | unmapping it ([`space`](super::space)) | those that map memory, under a limit (`ENOMEM`) |
//! | memory of a cgroup: what the zone has free | giving it back: scrubd, by pressure | none: the kernel does not fail |
//! | tasks of a cgroup, the machine; CPU time that is limited | the end of scrubd, when little is left (`Room` of `prezero-host`) | none |
//! | mappings: a constant number | a zone is made where there is room for more (`make`) | none |
//! | descriptors | none is held in the program's table; the look at a file is over within a call | none |
//! | locked memory | nothing is locked; what `mlockall` would lock is given up before | none |
//! | signals, timers, restartable sequences of the program's threads | none is used | none |

use std::ffi::c_int;

use super::ready_and_own;
use crate::compat::errno::Errno;

/// Makes a call that needs a task, and makes it again if it failed for lack of one and scrubd's could be had. `error`
/// tells why an answer is none; 0: it is one.
pub fn with_task<R>(call: impl Fn() -> R, error: impl Fn(&R) -> c_int) -> R {
    let before = super::ready().map(|heap| heap.zone().scrubd_ends());
    let answer = call();
    let lacks = error(&answer) == libc::EAGAIN;
    if before.is_some_and(|before| lacks && gives_task_up(before)) { call() } else { answer }
}

/// Ends scrubd for good. Whether there is a task more since it had ended `before` times.
fn gives_task_up(before: u32) -> bool {
    let errno = Errno::save();
    let ends = ready_and_own().is_some_and(|heap| heap.zone().give_scrubd_up(before));
    errno.restore();
    ends
}

/// The error of a call that answers -1 and sets `errno`.
pub fn errno_of(answer: &c_int) -> c_int {
    if *answer == -1 { Errno::save().number() } else { 0 }
}

/// After a `vfork` that the kernel answered with minus an error's number: whether it is to be made again.
pub fn is_worth_another(error: c_int) -> bool {
    error == libc::EAGAIN
        && super::ready().is_some_and(|heap| gives_task_up(heap.zone().scrubd_ends()))
}
