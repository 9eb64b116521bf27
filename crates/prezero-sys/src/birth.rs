//! Which process this is.
//!
//! A process's number does not tell: the first process of a namespace has the number 1 as that of the namespace above
//! has, and a number comes back. And no handler hears of a child that is made without libc's `fork`.
//!
//! So a page that every child finds empty (`MADV_WIPEONFORK`) holds the process's *birth*, a number that differs from
//! those of all processes which this memory was copied from. Where the kernel does not wipe, it differs from theirs once
//! a handler of the fork says so ([`begins`]). Beside it stands the number of the process: one of another number with
//! that birth is a guest in the memory ([`is_guest`]). A program that comes by `exec` is told from others by what the
//! kernel says of it ([`identity`]).

use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicPtr, AtomicU32};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::{file, stderr};

/// What children find empty.
struct Born {
    /// 0: not asked for yet.
    birth: AtomicU32,
    /// The number of the process that asked first.
    process: AtomicU32,
}

/// The page that children find empty; null until it is asked for.
static PAGE: AtomicPtr<Born> = AtomicPtr::new(ptr::null_mut());
/// Where there is no page.
static COPIED: Born = Born { birth: AtomicU32::new(0), process: AtomicU32::new(0) };
/// The latest birth.
static LATEST: AtomicU32 = AtomicU32::new(0);
/// Bytes of the page.
const LEN: usize = 4096;

/// The birth of this process, never 0. The first call makes the page; later ones read two words.
#[inline]
pub fn current() -> u32 {
    let born = born();
    match born.birth.load(Relaxed) {
        0 => new(born),
        birth => birth,
    }
}

/// Whether the memory is another process's: the caller is the child of a `vfork`, or of a `clone` that shares it. Before
/// the page is made there is no guest.
pub fn is_guest() -> bool {
    let of_another = |born: &Born| {
        current();
        born.process.load(Relaxed) != crate::process::id()
    };
    made().is_some_and(of_another)
}

/// Whether this memory is a copy of another process's, made by a fork after the page was.
pub fn is_copied() -> bool {
    made().is_some() && current() > 1
}

/// The calling process is the child of a fork: it is born now, also where the kernel wiped nothing. Writes to no page
/// that it wiped.
pub fn begins() {
    if let Some(born) = made().filter(|born| born.birth.load(Relaxed) != 0) {
        born.birth.store(0, Relaxed);
    }
}

#[inline]
fn made() -> Option<&'static Born> {
    // SAFETY: null, or one of this module's, which stay.
    unsafe { PAGE.load(Acquire).as_ref() }
}

#[inline]
fn born() -> &'static Born {
    made().unwrap_or_else(make)
}

#[cold]
fn new(born: &Born) -> u32 {
    let birth = LATEST.fetch_add(1, Relaxed) + 1;
    born.process.store(crate::process::id(), Relaxed);
    born.birth.compare_exchange(0, birth, AcqRel, Acquire).map_or_else(|other| other, |_| birth)
}

#[cold]
fn make() -> &'static Born {
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new mapping touches no other memory.
    let page = unsafe { mmap_anonymous(ptr::null_mut(), LEN, access, flags) };
    let copied = (&raw const COPIED).cast_mut();
    let made = page.map_or(copied, <*mut c_void>::cast);
    if made != copied {
        // SAFETY: the mapping made above. An old kernel refuses it, and children find what was there.
        let _ = unsafe { madvise(made.cast(), LEN, Advice::LinuxWipeOnFork) };
    }
    let first = PAGE.compare_exchange(ptr::null_mut(), made, AcqRel, Acquire);
    if first.is_err() && made != copied {
        // SAFETY: the mapping made above, which no other code has seen.
        let _ = unsafe { munmap(made.cast(), LEN) };
    }
    // SAFETY: the page made above, zeroes which are no birth; or that of another thread, or the static. They stay.
    unsafe { &*first.map_or_else(|other| other, |_| made) }
}

/// What the kernel says of a process that no other has: a program keeps it through `exec`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// When the process began, in ticks since the machine did.
    began: u64,
    /// The inode of its namespace of processes.
    namespace: u64,
}

impl Identity {
    /// The inode of its namespace of processes.
    pub fn namespace(&self) -> u64 {
        self.namespace
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.began, self.namespace)
    }
}

impl std::str::FromStr for Identity {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Identity, Self::Err> {
        let (began, namespace) = text.split_once(':').unwrap_or((text, ""));
        Ok(Identity { began: began.parse()?, namespace: namespace.parse()? })
    }
}

/// That of this process; `None` without `/proc`. Neither locks nor allocates. By calls that the dynamic linker makes, too,
/// for filters' sake.
pub fn identity() -> Option<Identity> {
    let began = began(file::read(c"/proc/self/stat", &mut [0; 1024]).ok()?)?;
    Some(Identity { began, namespace: namespace()? })
}

/// The inode of this process's namespace of processes; `None` without `/proc`.
pub fn namespace() -> Option<u64> {
    let namespace = file::open(c"/proc/self/ns/pid").ok()?;
    let inode = stderr::inode(&namespace);
    file::close(namespace);
    inode.map(|(_, inode)| inode)
}

/// The 22nd field: the second is a name in brackets, which may have blanks and brackets itself.
fn began(stat: &[u8]) -> Option<u64> {
    let name = stat.iter().rposition(|byte| *byte == b')')?;
    let mut fields = stat[name..].split(|byte| *byte == b' ');
    // qemu-user knows no state, and takes the last exec for the beginning.
    let field = if fields.nth(1)? == b"0" { b"0" } else { fields.nth(18)? };
    std::str::from_utf8(field).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_no_handler_hears_of_has_another_birth() {
        let own = current();
        assert_eq!(current(), own);
        // SAFETY: the child makes system calls alone.
        let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
        if child == 0 {
            let other = current();
            // SAFETY: the child's end.
            unsafe { libc::_exit(i32::from(other == own || other != current())) };
        }
        let mut status = 0;
        // SAFETY: the child made above; the word is there for the call to fill.
        assert_eq!(i64::from(unsafe { libc::waitpid(child as i32, &mut status, 0) }), child);
        assert_eq!((status, current()), (0, own));
    }

    #[test]
    fn a_child_in_the_same_memory_is_a_guest_and_has_its_birth() {
        extern "C" fn look(own: *mut std::ffi::c_void) -> i32 {
            i32::from(!(is_guest() && current() as usize == own.addr()))
        }
        let own = current();
        assert!(!is_guest());
        let mut stack = vec![0u128; 4096];
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let mut status = 0;
        // SAFETY: the child ends before the call returns, on a stack of its own, and makes system calls alone.
        unsafe {
            let top = stack.as_mut_ptr().add(stack.len()).cast();
            let child = libc::clone(look, top, flags, ptr::without_provenance_mut(own as usize));
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
        }
        assert_eq!((status, current(), is_guest()), (0, own, false));
    }

    #[test]
    fn identity_is_the_same_each_time_and_is_written_and_read() {
        let own = identity().unwrap();
        assert_eq!(identity(), Some(own));
        assert_eq!(own.to_string().parse(), Ok(own));
        assert!("7".parse::<Identity>().is_err());
        let stat = b"7 (a) b (c) S 1 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 4711 9";
        assert_eq!(began(stat), Some(4711));
        let emulated = b"7 (a) 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 4711 0";
        assert_eq!(began(emulated), Some(0));
    }
}
