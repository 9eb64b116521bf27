//! Pinned memory without a lease (`--or-plain`): made by all CPUs of the node before it is registered.
//!
//! The kernel makes and clears pages on the thread that touches them; a driver that pins absent pages does so on one thread,
//! under its lock. Here a thread for each CPU of the node populates pieces, and the caller waits. Pieces are of huge pages while
//! the node has some free, so that no thread compacts memory for them, and while they come faster than small ones: a guest
//! that reports free memory to its host waits milliseconds for each huge page.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

use prezero_sys::thread::{
    CpuMask, affinity, current_cpu, futex_wait, monotonic_ns, set_affinity, spawn_detached,
};

use crate::raw;
use crate::shim::shim;

/// Bytes that one thread populates at a time.
/// Moved by: `prezero bench pinned`, row `--or-plain`.
const PIECE: usize = 4 << 20;
/// The most threads: memory has no more bandwidth to give.
/// Moved by: `prezero bench pinned`, row `--or-plain`.
const THREADS: usize = 16;
/// A huge page, and its order in /proc/buddyinfo.
const HUGE: usize = 2 << 20;
const HUGE_ORDER: usize = 9;

/// Populated memory of the kernel; `None`: the driver may try.
pub fn make(len: usize) -> Option<*mut c_void> {
    if !shim().or_plain {
        return None;
    }
    let wide = len.checked_next_multiple_of(HUGE)?.checked_add(HUGE)?;
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping wherever the kernel likes.
    let map = unsafe { raw::mmap(null_mut(), wide, protection, flags, -1, 0)? };
    let at = map.map_addr(|at| at.next_multiple_of(HUGE));
    let before = at.addr() - map.addr();
    for (at, len) in [(map, before), (at.wrapping_byte_add(wide - HUGE), HUGE - before)] {
        if len > 0 {
            // SAFETY: a part of the new mapping that nothing uses.
            unsafe { raw::munmap(at, len) };
        }
    }
    // SAFETY: the new mapping. A child would copy pages that a device writes to.
    unsafe { raw::madvise(at, wide - HUGE, libc::MADV_DONTFORK) };
    if populate(at, wide - HUGE) {
        return Some(at);
    }
    give_back(at, len);
    None
}

/// Unmaps what `make` made.
pub fn give_back(at: *mut c_void, len: usize) {
    // SAFETY: made by `make`; the caller gives it up.
    unsafe { raw::munmap(at, len.next_multiple_of(HUGE)) };
}

/// What a byte of each size of page took last, in picoseconds; 0: not known yet.
#[derive(Default)]
struct Paces {
    huge: AtomicU64,
    small: AtomicU64,
}

impl Paces {
    /// Whether a piece comes in huge pages: the first one does, the second does not, and then the faster.
    fn wants_huge(&self, piece: usize) -> bool {
        match (piece, self.huge.load(Relaxed), self.small.load(Relaxed)) {
            (0, ..) => true,
            (1, ..) | (_, 0, _) | (_, _, 0) => false,
            (_, huge, small) => huge <= small,
        }
    }

    fn learn(&self, is_huge: bool, len: usize, ns: u64) {
        let pace = if is_huge { &self.huge } else { &self.small };
        pace.store((ns * 1000 / len as u64).max(1), Relaxed);
    }
}

/// What the threads share.
struct Shared {
    at: usize,
    len: usize,
    node: usize,
    /// `None`: where the threads run is not known.
    cpus: Option<CpuMask>,
    next: AtomicUsize,
    failed: AtomicUsize,
    paces: Paces,
    /// Threads that may still look at this.
    running: AtomicU32,
}

impl Shared {
    /// Populates pieces until all are.
    fn work(&self) {
        let _ = self.cpus.as_ref().map(set_affinity);
        loop {
            let piece = self.next.fetch_add(1, Relaxed);
            let from = piece * PIECE;
            if from >= self.len {
                return;
            }
            let (at, len) =
                (std::ptr::with_exposed_provenance_mut(self.at + from), PIECE.min(self.len - from));
            let is_huge = self.paces.wants_huge(piece) && has_huge_pages(self.node, len);
            let advice = if is_huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
            let began = monotonic_ns();
            // SAFETY: a part of the new mapping.
            let done = unsafe {
                raw::madvise(at, len, advice);
                raw::madvise(at, len, libc::MADV_POPULATE_WRITE)
            };
            self.paces.learn(is_huge, len, monotonic_ns() - began);
            self.failed.fetch_add(usize::from(done != 0), Relaxed);
        }
    }
}

extern "C" fn run(shared: *mut c_void) -> *mut c_void {
    // SAFETY: `populate` waits for the count below.
    let shared = unsafe { &*shared.cast::<Shared>() };
    shared.work();
    shared.running.fetch_sub(1, Release);
    null_mut()
}

/// By threads that libc starts with each glibc (`std::thread` asks for newer ones).
fn populate(at: *mut c_void, len: usize) -> bool {
    /// Of a thread that reads two small files.
    const STACK: usize = 256 << 10;
    /// Between two looks at the threads, ns.
    const LOOK_NS: u64 = 500_000;
    let (node, cpus) = node();
    let count = cpus.as_ref().map_or(1, CpuMask::count).min(THREADS).min(len.div_ceil(PIECE));
    let shared = Shared {
        at: at.expose_provenance(),
        len,
        node,
        cpus,
        next: AtomicUsize::new(0),
        failed: AtomicUsize::new(0),
        paces: Paces::default(),
        running: AtomicU32::new(0),
    };
    for _ in 0..count {
        shared.running.fetch_add(1, Relaxed);
        // SAFETY: `shared` lives until no thread runs any more; `run` does not unwind.
        if unsafe { spawn_detached(STACK, run, (&raw const shared).cast_mut().cast()) }.is_err() {
            shared.running.fetch_sub(1, Relaxed);
        }
    }
    loop {
        match shared.running.load(Acquire) {
            0 => break,
            running => futex_wait(&shared.running, running, Some(LOOK_NS)),
        };
    }
    // Without a thread nothing was populated.
    shared.next.load(Relaxed) * PIECE >= len && shared.failed.load(Relaxed) == 0
}

/// This thread's node, and the CPUs of it that the process may use; `None`: not known, one thread does it.
fn node() -> (usize, Option<CpuMask>) {
    let (mine, allowed) = (current_cpu(), affinity());
    for node in 0.. {
        let Ok(list) =
            std::fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist"))
        else {
            break;
        };
        let cpus = cpus(&list);
        if cpus.contains(&mine) {
            return (
                node,
                Some(CpuMask::of(cpus.into_iter().filter(|&cpu| allowed.contains(cpu)))),
            );
        }
    }
    (0, Some(allowed))
}

/// The CPUs of a kernel's list: `0-3,8`.
fn cpus(list: &str) -> Vec<usize> {
    let ranges = list.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?)
    });
    ranges.flatten().collect()
}

/// Whether the node has that many bytes of huge pages free, and as many again: several threads ask.
fn has_huge_pages(node: usize, len: usize) -> bool {
    let free = std::fs::read_to_string("/proc/buddyinfo").unwrap_or_default();
    let of_zone = |line: &str| {
        let rest = line.strip_prefix("Node ")?;
        let (number, rest) = rest.split_once(',')?;
        let counts =
            rest.split_whitespace().skip(2).map(|count| count.parse::<usize>().unwrap_or(0));
        let bytes = counts.enumerate().skip(HUGE_ORDER).map(|(order, count)| count << order << 12);
        (number.trim() == node.to_string()).then(|| bytes.sum::<usize>())
    };
    free.lines().filter_map(of_zone).sum::<usize>() >= 2 * len
}
