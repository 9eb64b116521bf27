//! The report on a whole tree of processes: what children tell the process that reports.
//!
//! `prezero run` becomes the program, so no process of ours watches. Instead `PREZERO_TREE` names a file that does not
//! exist yet, in memory (`/dev/shm`). The first child that has a zone makes it; each child has a slot of it and writes
//! its counters there: scrubd now and then, and the child at its end. The process that reports reads all slots at its
//! end and removes the file.
//!
//! | a child | is counted |
//! |---|---|
//! | asks for nothing, so has no zone | not at all, and pays nothing |
//! | is forked without a zone, and asks for little | not at all, likewise |
//! | ends by itself | in full |
//! | is killed, or becomes another program | as far as scrubd has told, 20 ms before at most while scrubd runs |
//! | closes all descriptors, or clears its environment | in full: the name is kept from its start, and no descriptor |
//! | has another user or root, or a filter of system calls, by its end | as far as it has told before |
//! | is made by the kernel's call, not libc's | from its first look for memory beyond its lists |
//! | runs in its parent's memory (`vfork`, `CLONE_VM`) | with its parent |
//! | has a limit of file size below that of the file | where another child made the file |
//! | begins under a filter, or without the variable | not at all |
//! | outlives the process that reports | as far as it has told |
//! | is not among the first [`SLOTS`] | in the sums, at its end |
//!
//! A slot is memory that was allocated when the file was made: a full `/dev/shm` costs the report, never a signal.
//! Nothing here allocates or locks.

use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64};

use prezero_core::internal::COUNT;
use prezero_core::{Gauges, PAGE, Snapshot};
use prezero_report::processes::{LARGEST, Member, Processes};
use prezero_report::sums::{add, requested_bytes};
use prezero_sys::raw::syscall;
use prezero_sys::{birth, file, quiet, sandbox};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};

use super::{env, report};
use crate::compat::errno::Errno;
use crate::process;

/// Processes that have a slot of their own.
/// Fixed: 120 KiB for a tree of processes that ask for memory.
pub const SLOTS: usize = 256;
/// Bytes of the file's name. `prezero run` makes one of some 40.
const MOST_NAME: usize = 256;
/// What the file says first: no other build of the library has the same, unless its counters are the same.
const LAYOUT: u64 = (COUNT as u64) << 32 | 1;
/// Bytes of a process's name.
const NAME: usize = 16;

/// What is in a slot.
const FREE: u32 = 0;
/// A process that may tell more.
const TELLS: u32 = 1;
/// A process that has told all.
const ENDED: u32 = 2;

/// A process's counters.
#[repr(C, align(64))]
struct Slot {
    state: AtomicU32,
    pid: AtomicI32,
    name: [AtomicU64; NAME / 8],
    /// A float's bits.
    clear_ns: AtomicU64,
    counters: [AtomicU64; COUNT],
}

/// The file. All-zero bytes are one without counters.
#[repr(C)]
struct Tree {
    layout: AtomicU64,
    /// Slots that were given out, and more if more were asked for.
    taken: AtomicU64,
    /// Processes without a slot, and the sum of their counters.
    others: AtomicU64,
    sum: [AtomicU64; COUNT],
    slots: [Slot; SLOTS],
}

/// The name of the file, from the environment as it was given; empty: no report on the tree is wanted.
static NAME_OF: [AtomicU64; MOST_NAME / 8] = [const { AtomicU64::new(0) }; MOST_NAME / 8];
/// The file, once it is mapped. The child of a fork has it, too.
static MAPPED: AtomicPtr<Tree> = AtomicPtr::new(ptr::null_mut());
/// The slot of a process: its birth above, the slot's number and one below; 0: none.
static OWN: AtomicU64 = AtomicU64::new(0);
/// Bits of the slot's number and one.
const SLOT_BITS: u32 = 16;
/// The process that reports.
static ROOT: AtomicI32 = AtomicI32::new(0);
/// Its namespace of processes; 0: not known.
static NAMESPACE: AtomicU64 = AtomicU64::new(0);

/// Notes where the counters go, while the environment is as it was given.
pub fn remember(root: &env::Reporter) {
    let fits = |name: &&str| name.len() < MOST_NAME && root.number != 0;
    let Some(name) = env::tree().filter(fits) else { return };
    write_text(&NAME_OF, name);
    ROOT.store(root.number, Relaxed);
    NAMESPACE.store(root.identity.map_or(0, |identity| identity.namespace()), Relaxed);
}

/// To be called when there is a zone: a child that is killed later is known.
pub fn join() {
    if ROOT.load(Relaxed) == 0 {
        return;
    }
    if let Some(heap) = process::ready() {
        // SAFETY: `tell` writes to a mapping, and calls nothing.
        unsafe { heap.zone().report_to(tell) };
    }
    if is_child() {
        own_slot();
    }
}

/// scrubd tells the counters of this process.
fn tell(snapshot: &Snapshot) {
    if is_child() && !sandbox::is_confined() {
        write(snapshot, TELLS);
    }
}

/// The last word of this process: it ends, or may not write any more.
#[inline(never)]
pub fn end() {
    if ROOT.load(Relaxed) == 0 || !is_child() {
        return;
    }
    let zone = process::ready().map(|heap| heap.zone());
    // The child of a fork that asked for nothing has nothing to say.
    if let Some(zone) = zone.filter(|zone| zone.has_own_stats()) {
        let errno = Errno::save();
        write(&zone.stats(), ENDED);
        errno.restore();
    }
}

fn own_number() -> i32 {
    prezero_sys::process::id().cast_signed()
}

fn is_child() -> bool {
    !report::is_reporter()
}

fn write(snapshot: &Snapshot, state: u32) {
    let Some(slot) = own_slot() else {
        if state == ENDED
            && let Some(tree) = tree()
        {
            tree.others.fetch_add(1, Relaxed);
            let counters = tree.sum.iter().zip(&snapshot.counters);
            counters.for_each(|(sum, n)| _ = sum.fetch_add(*n, Relaxed));
        }
        return;
    };
    let counters = slot.counters.iter().zip(&snapshot.counters);
    counters.for_each(|(cell, n)| cell.store(*n, Relaxed));
    slot.clear_ns.store(snapshot.gauges.clear_ns_per_page.to_bits(), Relaxed);
    slot.state.fetch_max(state, Release);
}

/// The slot of this process. Asks the kernel for the file only where it is not mapped yet.
fn own_slot() -> Option<&'static Slot> {
    let tree = tree()?;
    let own = OWN.load(Acquire);
    let birth = u64::from(birth::current());
    if own >> SLOT_BITS == birth {
        return tree.slots.get((own as u16 as usize).wrapping_sub(1));
    }
    let nth = tree.taken.fetch_add(1, Relaxed);
    let slot = usize::try_from(nth).ok().and_then(|nth| tree.slots.get(nth));
    // Without a slot the word says so: no slot has that number.
    let mine = birth << SLOT_BITS | if slot.is_some() { nth + 1 } else { u64::from(u16::MAX) };
    if OWN.compare_exchange(own, mine, AcqRel, Acquire).is_err() {
        // scrubd and the program's end, at the same time: the slot that was taken here stays empty.
        return own_slot();
    }
    let slot = slot?;
    slot.pid.store(own_number(), Relaxed);
    let mut name = [0; NAME];
    write_text(&slot.name, process_name(&mut name));
    slot.state.store(TELLS, Release);
    Some(slot)
}

/// The file, mapped now if it was not.
fn tree() -> Option<&'static Tree> {
    let mapped = MAPPED.load(Acquire);
    if mapped.is_null() {
        return map(OFlags::CREATE);
    }
    // SAFETY: `map` stored it, and it stays mapped.
    Some(unsafe { &*mapped })
}

/// Whether no filter ends the process for what is called here: a zone calls the same.
fn may_call() -> bool {
    let tried = || env::tried_filters().is_some() && env::tried_filters() == sandbox::filters();
    !sandbox::is_confined() && (process::ready().is_some() || !sandbox::is_filtered() || tried())
}

/// Maps the file; with `CREATE` it is made, if the process that reports lives.
fn map(create: OFlags) -> Option<&'static Tree> {
    if !may_call() {
        return None;
    }
    let mut name = [0; MOST_NAME];
    let name = CStr::from_bytes_until_nul(read_text(&NAME_OF, &mut name)).ok()?;
    // A file that is begun and not ended is of no use to any process.
    let length = size_of::<Tree>();
    let may = (lives(ROOT.load(Relaxed)) || is_elsewhere()) && may_be_as_long(length);
    let create = if may { create } else { OFlags::empty() };
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC | create;
    // The kernel's calls, not libc's, which this library and others may hook.
    let file = rustix::fs::openat(CWD, name, flags, Mode::RUSR | Mode::WUSR).ok()?;
    let mapped = is_whole(&file, length, create).then(|| {
        let (read, shared) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping touches no other memory.
        unsafe { rustix::mm::mmap(ptr::null_mut(), length, read, shared, &file, 0) }
    });
    file::close(file);
    let mapped = mapped?.ok()?;
    let tree = mapped.cast::<Tree>();
    // SAFETY: as long as a tree, at a page's boundary, allocated above; any bytes are atomics.
    let is_ours = unsafe {
        let layout = &(*tree).layout;
        layout.compare_exchange(0, LAYOUT, AcqRel, Acquire).unwrap_or_else(|layout| layout)
    };
    let ours = is_ours == 0 || is_ours == LAYOUT;
    let first = ours.then(|| MAPPED.compare_exchange(ptr::null_mut(), tree, AcqRel, Acquire));
    if !matches!(first, Some(Ok(_))) {
        // SAFETY: the mapping made above, of which no other code knows.
        unsafe { _ = rustix::mm::munmap(mapped, length) };
    }
    let mapped = if ours { MAPPED.load(Acquire) } else { ptr::null_mut() };
    // SAFETY: null, or a tree that stays mapped.
    unsafe { mapped.as_ref() }
}

/// Whether all of the file is there before it is touched: a page that the kernel does not find later is a signal. With
/// `CREATE` what it lacks is appended, so that two that make it write over nothing; by calls that a zone makes, which a
/// filter was tried with. A file that does not fit goes.
fn is_whole(file: &OwnedFd, length: usize, create: OFlags) -> bool {
    loop {
        let Ok(stat) = rustix::fs::fstat(file) else { return false };
        if stat.st_size >= length as i64 {
            return stat.st_blocks * 512 >= length as i64;
        }
        if create.is_empty() {
            return false;
        }
        if !matches!(quiet::write(file.as_fd(), &[0; PAGE]), Ok(1..)) {
            remove();
            return false;
        }
    }
}

/// Whether the limit of file size leaves room.
fn may_be_as_long(length: usize) -> bool {
    prezero_sys::process::limit(prezero_sys::process::RLIMIT_FSIZE)
        .is_none_or(|most| most >= length as u64)
}

/// Whether this process is in another namespace, where the number of the one that reports is another's or none.
fn is_elsewhere() -> bool {
    let namespace = NAMESPACE.load(Relaxed);
    namespace != 0 && birth::namespace().is_some_and(|own| own != namespace)
}

impl Tree {
    /// Adds what the processes without a slot did to a sum.
    #[inline(never)]
    fn add_others_to(&self, sum: &mut Snapshot) {
        let counters = self.sum.each_ref().map(|sum| sum.load(Relaxed));
        add(sum, &Snapshot { counters, gauges: Gauges::default() });
    }
}

/// Whether there is a process of that number.
fn lives(pid: i32) -> bool {
    // SAFETY: signal 0 is none.
    unsafe { syscall(libc::SYS_kill, [pid as usize, 0]) == 0 }
}

/// Calls `write` with the counters of all processes: to begin with, `sum` is that of the one that reports.
pub fn with_all(mut sum: Box<Snapshot>, write: impl FnOnce(&Snapshot, &Processes<'_>)) {
    let tree = if ROOT.load(Relaxed) == 0 { None } else { map(OFlags::empty()) };
    let Some(tree) = tree else { return write(&sum, &Processes::default()) };
    remove();
    let mut largest = [(0, 0, [0; NAME]); LARGEST];
    let mut processes = Processes::default();
    let mut count = |pid: i32, bytes: u64, name: [u8; NAME]| {
        if bytes > 0 {
            processes.count += 1;
            let place = largest.iter().position(|(_, others, _)| *others < bytes);
            if let Some(place) = place {
                largest[place..].rotate_right(1);
                largest[place] = (pid, bytes, name);
            }
        }
    };
    let mut name = [0; NAME];
    process_name(&mut name);
    count(own_number(), requested_bytes(&sum), name);
    let (mut running, mut cut_short, mut others) = (0, 0, false);
    for slot in &tree.slots {
        let state = slot.state.load(Acquire);
        if state == FREE {
            continue;
        }
        let (pid, bytes) = (slot.pid.load(Relaxed), slot.add_to(&mut sum));
        let mut name = [0; NAME];
        read_text(&slot.name, &mut name);
        count(pid, bytes, name);
        others |= bytes > 0;
        if state == TELLS {
            *(if lives(pid) { &mut running } else { &mut cut_short }) += 1;
        }
    }
    tree.add_others_to(&mut sum);
    processes.count += tree.others.load(Relaxed);
    (processes.running, processes.cut_short) = (running, cut_short);
    let members = largest.each_ref().map(|(pid, bytes, name)| {
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(NAME);
        let name = std::str::from_utf8(&name[..end]).unwrap_or("?");
        Member { pid: *pid as u32, name, requested_bytes: *bytes }
    });
    let some = members.iter().filter(|member| member.requested_bytes > 0).count();
    processes.largest = if others { &members[..some] } else { &[] };
    write(&sum, &processes)
}

/// Removes the file: nothing more is read from it. No zone makes this call, so under a filter the file is left to the
/// next `prezero run`.
fn remove() {
    if sandbox::is_filtered() {
        return;
    }
    let mut name = [0; MOST_NAME];
    if let Ok(name) = CStr::from_bytes_until_nul(read_text(&NAME_OF, &mut name)) {
        let _ = rustix::fs::unlinkat(CWD, name, rustix::fs::AtFlags::empty());
    }
}

impl Slot {
    /// Adds what the process did to a sum: the bytes that it asked for. In a frame of its own, as it may be short.
    #[inline(never)]
    fn add_to(&self, sum: &mut Snapshot) -> u64 {
        let clear_ns_per_page = f64::from_bits(self.clear_ns.load(Relaxed));
        let gauges = Gauges { clear_ns_per_page, ..Gauges::default() };
        let counters = self.counters.each_ref().map(|cell| cell.load(Relaxed));
        let snapshot = Snapshot { counters, gauges };
        add(sum, &snapshot);
        requested_bytes(&snapshot)
    }
}

/// The name of the process, whichever thread asks; empty without `/proc`.
fn process_name(name: &mut [u8; NAME]) -> &str {
    let read = file::read(c"/proc/self/comm", &mut name[..]).map_or(0, <[u8]>::len);
    let end = read.saturating_sub(1).min(NAME - 1);
    name[end..].fill(0);
    std::str::from_utf8(&name[..end]).unwrap_or("?")
}

/// Writes a text, padded with NUL; what does not fit is cut.
fn write_text(words: &[AtomicU64], text: &str) {
    let mut rest = text.as_bytes();
    for word in words {
        let mut bytes = [0; 8];
        let now = rest.len().min(8);
        bytes[..now].copy_from_slice(&rest[..now]);
        rest = &rest[now..];
        word.store(u64::from_ne_bytes(bytes), Relaxed);
    }
}

/// The bytes of a text, its NULs included.
fn read_text<'a>(words: &[AtomicU64], to: &'a mut [u8]) -> &'a [u8] {
    for (bytes, word) in to.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
    }
    to
}
