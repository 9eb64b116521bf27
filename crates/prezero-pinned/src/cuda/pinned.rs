//! Pinned memory: a part of the lease, registered at the size that was asked for.
//!
//! Each registration is whole: drivers refuse a copy that spans two.
//! A call that fails leaves no error behind for the thread's next question, and the program gets what it would have got.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint, c_void};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::names::{Api, Own};
use crate::board::Kind;
use crate::shim::shim;
use crate::{plain, said};

/// What a registration and an allocation have in common: portable, mapped. Other flags are of allocations alone.
const COMMON_FLAGS: c_uint = 1 | 2;

thread_local! {
    /// Whether this thread is inside a function of a library's: what that calls is not the program's request.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Whether the thread is inside one.
pub fn is_inside() -> bool {
    INSIDE.with(Cell::get)
}

/// Calls a function of a library's.
pub fn inside<R>(work: impl FnOnce() -> R) -> R {
    let before = INSIDE.replace(true);
    let result = work();
    INSIDE.set(before);
    result
}

/// Memory that was made here: its length, and where it is from.
type Made = (usize, From);

#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    Lease,
    Plain,
}

/// All of it, by address.
static MADE: Mutex<BTreeMap<usize, Made>> = Mutex::new(BTreeMap::new());

fn all_made() -> MutexGuard<'static, BTreeMap<usize, Made>> {
    MADE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory for an allocation, and where it is from.
fn made(own: &Own, len: usize) -> Option<(*mut c_void, From)> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let part = shim().arena.as_ref().and_then(|arena| {
        let gpu = if arena.ranks.have_gpus() { inside(|| own.gpu()) } else { None };
        let rank = arena.ranks.of(gpu.as_ref().map(|address| &address[..]));
        arena.serve(len, protection, Kind::Alloc, rank)
    });
    part.map(|at| (at, From::Lease)).or_else(|| Some((plain::make(len)?, From::Plain)))
}

fn give_back(at: *mut c_void, len: usize, from: From) {
    match (from, &shim().arena) {
        (From::Lease, Some(arena)) => {
            arena.unmap(at.addr(), arena.whole(len).unwrap_or(len));
        }
        _ => plain::give_back(at, len),
    }
}

/// Allocates; `real` is the library's own function.
///
/// # Safety
/// `out` has room for an address, or is null.
pub unsafe fn allocate(
    api: Api,
    out: *mut *mut c_void,
    len: usize,
    flags: c_uint,
    real: impl Fn() -> c_int,
) -> c_int {
    if is_inside() || len < shim().threshold || flags & !COMMON_FLAGS != 0 || out.is_null() {
        return inside(real);
    }
    let own = Own::of(api);
    let Some((at, from)) = made(own, len) else { return inside(real) };
    let code = inside(|| own.register(at, len, flags));
    let is_elsewhere = code == 0 && inside(|| own.is_elsewhere(at));
    if code == 0 && !is_elsewhere {
        all_made().insert(at.addr(), (len, from));
        // SAFETY: the caller's room.
        unsafe { out.write(at) };
        return 0;
    }
    if is_elsewhere {
        said::ELSEWHERE.say(format_args!(
            "a device sees registered memory at another address here: pinned allocations are the driver's own"
        ));
        inside(|| own.unregister(at));
    } else {
        inside(|| own.clear_error());
        said::REGISTER.say(format_args!(
            "{} MiB cannot be registered (error {code}{}): the driver allocates by itself",
            len >> 20,
            Memlock { len }
        ));
    }
    give_back(at, len, from);
    inside(real)
}

/// Says that the limit of locked memory is smaller, if it is and holds for this process.
struct Memlock {
    len: usize,
}

impl fmt::Display for Memlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: 0 };
        // SAFETY: room for the kernel's answer.
        unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
        if limit.rlim_cur >= self.len as u64 || may_lock_all() {
            return Ok(());
        }
        write!(f, ", the limit is {} KiB: ulimit -l", limit.rlim_cur >> 10)
    }
}

/// Whether the process has `CAP_IPC_LOCK`.
fn may_lock_all() -> bool {
    // Fixed: the capability's number.
    const IPC_LOCK: u64 = 1 << 14;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    bits.is_some_and(|bits| bits & IPC_LOCK != 0)
}

/// Frees what was allocated.
pub fn free(api: Api, at: *mut c_void, real: impl Fn() -> c_int) -> c_int {
    let known = if is_inside() { None } else { all_made().remove(&at.addr()) };
    let Some((len, from)) = known else { return inside(real) };
    let own = Own::of(api);
    let code = inside(|| own.unregister(at));
    // Pages that a device may still write to serve nothing else.
    if code == 0 {
        give_back(at, len, from);
    }
    code
}

/// Registers memory of the program's; what is not of the lease is counted.
pub fn register(at: *mut c_void, len: usize, real: impl Fn() -> c_int) -> c_int {
    let is_programs = !is_inside();
    let code = inside(real);
    if let Some(arena) = shim().arena.as_ref().filter(|_| is_programs && code == 0) {
        arena.registered(at.addr(), len);
    }
    code
}

/// Ends a registration, unless it is of an allocation, of which the program knows none: then the library is asked of
/// memory that was never registered, for its own error.
pub fn unregister(at: *mut c_void, real: impl Fn(*mut c_void) -> c_int) -> c_int {
    let is_allocated = !is_inside() && all_made().contains_key(&at.addr());
    let unknown = (&raw const MADE).cast_mut().cast();
    inside(|| real(if is_allocated { unknown } else { at }))
}
